// SPDX-License-Identifier: Apache-2.0
/*
 * How a read becomes shares.
 *
 * A strip is spans: the rows of its blocks, or whole blocks where the rows
 * lie one after the other on both sides. A long span is cut into columns. A
 * unit is one column of one span, and `lanes` units make a granule, which
 * the routine copies side by side. Granules are column by column over the same
 * `lanes` spans, so that a worker which takes the next share goes on in the
 * very streams that the CPU's prefetch already follows (measured: 6-9 % at
 * 256 KiB and above).
 *
 * Strips are laid end to end on a line of bytes, every granule of a strip with
 * the same length, and a share is the granules that begin in its part of the
 * line. So each granule is in just one share. Streams that begin cost: shares
 * are as long as what is copied side by side (measured: 1 MiB instead of 256 KiB
 * is 4 % at 128 MiB in spans of 256 KiB, and nothing in spans of 32 KiB), if that
 * leaves enough of them to go round; the last ones are short, so that threads
 * end together.
 */
#include "shm/copy_plan.h"

#include "base/least.h"

#define BATCH_SPANS_MAX 256u
#define TAIL_PARTS 4u
#define TAIL_BYTES_MIN 262144u
#define SHARES_WANTED 16u /* of a long read; at least half as many */
#define LINE_BYTES 64u

/* How a strip is cut into spans. */
struct shape {
	const struct kvpull_copy_routine *routine;
	uint64_t span_bytes;
	uint64_t span_count;
	uint64_t row_count; /* spans a block */
	uint64_t column_bytes;
	uint64_t column_count;
	uint64_t unit_count;
	uint64_t granule_units;
	uint64_t granule_count;
};

struct batch {
	const struct kvpull_copy_routine *routine;
	uint64_t bytes;
	uint32_t count;
	struct kvpull_span spans[BATCH_SPANS_MAX];
};

static enum kvpull_copy_class class_of(uint64_t span_bytes)
{
	if (span_bytes <= 1024)
		return KVPULL_COPY_1K;
	if (span_bytes <= 4096)
		return KVPULL_COPY_4K;
	if (span_bytes <= 16384)
		return KVPULL_COPY_16K;
	if (span_bytes <= 65536)
		return KVPULL_COPY_64K;
	return KVPULL_COPY_LONG;
}

static void cut_columns(struct shape *shape, uint64_t column_bytes_max)
{
	const uint64_t bytes = shape->span_bytes;

	shape->column_count = 1;
	shape->column_bytes = bytes;
	if (bytes <= column_bytes_max)
		return;
	/* Even columns, of whole lines; the last may be a little shorter. */
	shape->column_count = (bytes + column_bytes_max - 1) / column_bytes_max;
	shape->column_bytes =
		(bytes + shape->column_count - 1) / shape->column_count;
	shape->column_bytes = (shape->column_bytes + LINE_BYTES - 1) &
			      ~(uint64_t)(LINE_BYTES - 1);
	shape->column_count =
		(bytes + shape->column_bytes - 1) / shape->column_bytes;
}

/* All of a shape but how its spans are cut. */
static void spans_of(const struct kvpull_copy_plan *plan,
		     const struct kvpull_strip *strip, struct shape *shape)
{
	const uint32_t *first = plan->read->group_first + strip->group_index;

	shape->span_bytes = strip->row_bytes;
	shape->row_count = strip->row_count;
	if (strip->remote_row_stride == strip->row_bytes &&
	    strip->local_row_stride == strip->row_bytes) {
		shape->span_bytes *= strip->row_count;
		shape->row_count = strip->row_count ? 1 : 0;
	}
	shape->span_count = (first[1] - first[0]) * shape->row_count;
	if (!shape->span_bytes)
		shape->span_count = 0;
	shape->routine = plan->choices.routines[class_of(shape->span_bytes)];
}

static void shape_of(const struct kvpull_copy_plan *plan,
		     const struct kvpull_strip *strip, struct shape *shape)
{
	uint32_t lanes;

	spans_of(plan, strip, shape);
	lanes = shape->routine->lanes;
	/* lanes is a power of two. */
	cut_columns(shape, plan->share_bytes / lanes);
	shape->unit_count = shape->span_count * shape->column_count;
	shape->granule_units =
		shape->unit_count < lanes ? shape->unit_count : lanes;
	shape->granule_count = (shape->unit_count + lanes - 1) >>
			       (uint32_t)__builtin_ctz(lanes);
}

static inline uint64_t granule_bytes(const struct shape *shape)
{
	return shape->granule_units * shape->column_bytes;
}

/* The first granule that begins at or after `at`, seen from the strip. */
static uint64_t granule_from(const struct shape *shape, uint64_t at)
{
	const uint64_t bytes = granule_bytes(shape);
	const uint64_t granule = (at + bytes - 1) / bytes;

	return granule < shape->granule_count ? granule : shape->granule_count;
}

static uint64_t read_bytes(const struct kvpull_read *read)
{
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < read->strip_count; i++) {
		const struct kvpull_strip *strip = &read->strips[i];
		const uint32_t *first = read->group_first + strip->group_index;

		bytes += (uint64_t)(first[1] - first[0]) * strip->row_count *
			 strip->row_bytes;
	}
	return bytes;
}

static uint32_t share_bytes_of(const struct kvpull_copy_plan *plan)
{
	uint32_t share_bytes = KVPULL_COPY_SHARE_BYTES_MIN;
	const uint64_t wanted = read_bytes(plan->read) / SHARES_WANTED;
	uint64_t side_bytes = 0; /* spans side by side */
	struct shape shape;
	uint32_t i;

	if (wanted <= share_bytes)
		return share_bytes;
	for (i = 0; i < plan->read->strip_count; i++) {
		spans_of(plan, &plan->read->strips[i], &shape);
		if (shape.span_count &&
		    shape.span_bytes * shape.routine->lanes > side_bytes)
			side_bytes = shape.span_bytes * shape.routine->lanes;
	}
	while (share_bytes < KVPULL_COPY_SHARE_BYTES_MAX &&
	       share_bytes < wanted && share_bytes < side_bytes)
		share_bytes *= 2;
	return share_bytes;
}

/* The last of the long ones, and what is left, are cut. */
static void shares_cut(struct kvpull_copy_plan *plan, uint64_t bytes)
{
	uint64_t left;

	plan->tail_bytes = plan->share_bytes / TAIL_PARTS;
	if (plan->tail_bytes < TAIL_BYTES_MIN)
		plan->tail_bytes = plan->share_bytes;
	plan->tail_first = (uint32_t)(bytes / plan->share_bytes);
	if (plan->tail_first)
		plan->tail_first--;
	left = bytes - (uint64_t)plan->tail_first * plan->share_bytes;
	plan->share_count =
		plan->tail_first +
		(uint32_t)((left + plan->tail_bytes - 1) / plan->tail_bytes);
}

void kvpull_copy_plan_init(struct kvpull_copy_plan *plan,
			   const struct kvpull_copy_job *job,
			   const struct kvpull_copy_choices *choices,
			   uint64_t serial)
{
	uint64_t bytes = 0;
	struct shape shape;
	uint32_t i;

	plan->read = job->read;
	plan->regions = job->regions;
	plan->choices = *choices;
	plan->serial = serial;
	plan->share_bytes = share_bytes_of(plan);
	plan->is_short = plan->share_bytes == KVPULL_COPY_SHARE_BYTES_MIN;
	for (i = 0; i < plan->read->strip_count; i++) {
		uint64_t granule;

		shape_of(plan, &plan->read->strips[i], &shape);
		granule = granule_bytes(&shape);
		bytes += shape.granule_count * granule;
		/*
		 * A granule that does not divide the share would straddle two
		 * shares.
		 */
		if (granule && KVPULL_COPY_SHARE_BYTES_MIN % granule)
			plan->is_short = 0;
	}
	shares_cut(plan, bytes);
}

static void batch_flush(struct batch *batch)
{
	if (batch->count)
		batch->routine->copy(batch->spans, batch->count,
				     (size_t)batch->bytes);
	batch->count = 0;
}

static inline struct kvpull_span *
batch_add(struct batch *batch, const struct kvpull_copy_routine *routine,
	  uint64_t bytes)
{
	if (batch->count == BATCH_SPANS_MAX || batch->bytes != bytes ||
	    batch->routine != routine) {
		batch_flush(batch);
		batch->routine = routine;
		batch->bytes = bytes;
	}
	return &batch->spans[batch->count++];
}

/* A strip with its ids, while its units are added. */
struct source {
	const struct kvpull_strip *strip;
	const struct shape *shape;
	const uint8_t *remote;
	const uint32_t *remote_ids;
	const uint32_t *local_ids;
};

static inline void unit_add(struct batch *batch, const struct source *source,
			    uint64_t block, uint64_t row, uint64_t column)
{
	const struct kvpull_strip *strip = source->strip;
	const struct shape *shape = source->shape;
	const uint64_t at = column * shape->column_bytes;
	const uint64_t left = shape->span_bytes - at;
	struct kvpull_span *span = batch_add(
		batch, shape->routine,
		left < shape->column_bytes ? left : shape->column_bytes);

	span->from = source->remote +
		     source->remote_ids[block] * strip->remote_block_stride +
		     row * strip->remote_row_stride + at;
	span->to = strip->local +
		   source->local_ids[block] * strip->local_block_stride +
		   row * strip->local_row_stride + at;
}

/* Adds the spans from `unit` to `unit_end`. */
static void spans_add(struct batch *batch, const struct source *source,
		      uint64_t unit, uint64_t unit_end)
{
	const uint64_t row_count = source->shape->row_count;
	uint64_t block = unit / row_count;
	uint64_t row = unit % row_count;

	for (; unit < unit_end; unit++) {
		unit_add(batch, source, block, row, 0);
		if (++row == row_count) {
			row = 0;
			block++;
		}
	}
}

/* Units are columns; at least 16 KiB each, so the divisions do not matter. */
static void columns_add(struct batch *batch, const struct source *source,
			uint64_t unit, uint64_t unit_end)
{
	const struct shape *shape = source->shape;
	const uint64_t lanes = shape->routine->lanes;

	for (; unit < unit_end; unit++) {
		const uint64_t band_units = lanes * shape->column_count;
		const uint64_t band = unit / band_units;
		const uint64_t in_band = unit % band_units;
		const uint64_t left = shape->span_count - band * lanes;
		const uint64_t here = left < lanes ? left : lanes;
		const uint64_t span = band * lanes + in_band % here;

		unit_add(batch, source, span / shape->row_count,
			 span % shape->row_count, in_band / here);
	}
}

static void source_init(struct source *source,
			const struct kvpull_copy_plan *plan,
			const struct kvpull_strip *strip,
			const struct shape *shape)
{
	const uint32_t first = plan->read->group_first[strip->group_index];

	source->strip = strip;
	source->shape = shape;
	source->remote =
		plan->regions[strip->region_index] + strip->remote_offset;
	source->remote_ids = plan->read->remote_ids + first;
	source->local_ids = plan->read->local_ids + first;
}

static void granules_add(struct batch *batch, const struct source *source,
			 uint64_t granule, uint64_t granule_end)
{
	const struct shape *shape = source->shape;
	const uint64_t unit = granule * shape->granule_units;
	const uint64_t unit_end = kvpull_least(
		granule_end * shape->granule_units, shape->unit_count);

	if (shape->column_count == 1)
		spans_add(batch, source, unit, unit_end);
	else
		columns_add(batch, source, unit, unit_end);
}

static uint64_t share_begin(const struct kvpull_copy_plan *plan, uint32_t share)
{
	if (share <= plan->tail_first)
		return (uint64_t)share * plan->share_bytes;
	return (uint64_t)plan->tail_first * plan->share_bytes +
	       (uint64_t)(share - plan->tail_first) * plan->tail_bytes;
}

void kvpull_copy_share(const struct kvpull_copy_plan *plan,
		       uint32_t share_index, struct kvpull_copy_cursor *cursor)
{
	const uint64_t from = share_begin(plan, share_index);
	const uint64_t end = share_begin(plan, share_index + 1);
	uint64_t strip_start = 0;
	struct source source;
	struct batch batch;
	struct shape shape;
	uint32_t i = 0;

	batch.count = 0;
	batch.bytes = 0;
	batch.routine = NULL;
	if (cursor->serial == plan->serial && cursor->strip_start <= from) {
		strip_start = cursor->strip_start;
		i = cursor->strip_index;
	}
	cursor->serial = plan->serial;
	for (; i < plan->read->strip_count && strip_start < end; i++) {
		const struct kvpull_strip *strip = &plan->read->strips[i];
		uint64_t granule = 0;

		shape_of(plan, strip, &shape);
		cursor->strip_start = strip_start;
		cursor->strip_index = i;
		if (!shape.unit_count)
			continue;
		if (strip_start < from)
			granule = granule_from(&shape, from - strip_start);
		source_init(&source, plan, strip, &shape);
		granules_add(&batch, &source, granule,
			     granule_from(&shape, end - strip_start));
		strip_start += shape.granule_count * granule_bytes(&shape);
	}
	batch_flush(&batch);
}
