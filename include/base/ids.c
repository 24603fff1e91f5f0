/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept: kvpull_ids_copy() writes `count` ids at most, and reads no byte beyond
 * those that were taken, whatever they say by then; a list is taken only if its
 * runs are its ids together and none goes beyond the bytes that an id has. Time
 * is linear in the ids.
 *
 * Ids are looked at STEP at once where there are so many.
 */
#include "base/ids.h"

#include <endian.h>
#include <string.h>
#if defined(__x86_64__)
#include <tmmintrin.h>
#endif

#include "base/stream.h"

#define STEP 4u
#define RUN_STEPS 8u  /* compared at once */
#define MORE_BYTES 2u /* of a run's ids after its first */
#define HEAD_BYTES 9u /* ids, runs, bytes of an id */
#define U16S 32u      /* at once: a loop of known length */

/*
 * gcc and clang both have vector types: an operator works on all ids of a step
 * at once.
 */
typedef uint32_t ids_step __attribute__((vector_size(STEP * 4)));

/* Bits that are set in any id of the step. */
static uint32_t step_bits(const ids_step *step)
{
	uint32_t bits = 0;
	uint32_t i;

	for (i = 0; i < STEP; i++)
		bits |= (*step)[i];
	return bits;
}

#if defined(__x86_64__)

/* Constants for a step of STEP ids of three bytes each, as read and written. */
#define STEP_U24S 12u
#define STEP_ROOM 6u /* ids that there must be, so that 16 bytes are theirs */

/* Ids that were written; 16 bytes are for 12. */
__attribute__((target("ssse3"))) static uint32_t
put_u24_steps(uint8_t *to, const uint32_t *list, uint32_t count)
{
	const __m128i order = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13,
					    14, -1, -1, -1, -1);
	uint32_t at;

	for (at = 0; count - at >= STEP_ROOM; at += STEP, to += STEP_U24S)
		_mm_storeu_si128(
			(void *)to,
			_mm_shuffle_epi8(
				_mm_loadu_si128((const void *)(list + at)),
				order));
	return at;
}

/* Does the same to ids that were read. */
__attribute__((target("ssse3"))) static uint32_t
copy_u24_steps(const uint8_t *bytes, uint32_t *list, uint32_t count)
{
	const __m128i order = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8,
					    -1, 9, 10, 11, -1);
	uint32_t at;

	for (at = 0; count - at >= STEP_ROOM; at += STEP, bytes += STEP_U24S)
		_mm_storeu_si128(
			(void *)(list + at),
			_mm_shuffle_epi8(_mm_loadu_si128((const void *)bytes),
					 order));
	return at;
}

#endif

/* Facts of a list that decide how it is encoded. */
struct shape {
	uint32_t runs;
	uint32_t bits; /* that its ids have */
};

/*
 * Looks at the ids from the second on, a step at a time. Returns how many it
 * has looked at.
 */
static uint32_t shape_steps(const uint32_t *list, uint32_t count,
			    struct shape *shape)
{
	ids_step before;
	ids_step step;
	ids_step bits = { 0 };
	ids_step same = { 0 }; /* less one for each that goes on in its run */
	uint32_t at;
	uint32_t i;

	for (at = 1; count - at >= STEP; at += STEP) {
		memcpy(&before, list + at - 1, sizeof(before));
		memcpy(&step, list + at, sizeof(step));
		bits |= step;
		same += (ids_step)(step - before == 1);
	}
	for (i = 0; i < STEP; i++)
		shape->runs += same[i];
	shape->bits |= step_bits(&bits);
	return at;
}

/* Each id is looked at before any is written. */
static struct shape shape_of(const uint32_t *list, uint32_t count)
{
	struct shape shape = { count, list[0] };
	uint32_t at = 1;

	if (count > 2 * STEP)
		at = shape_steps(list, count, &shape);
	for (; at < count; at++) {
		shape.bits |= list[at];
		shape.runs -= list[at] - list[at - 1] == 1;
	}
	/* No run goes on from the highest id to 0. */
	if (shape.bits == UINT32_MAX)
		for (at = 1; at < count; at++)
			shape.runs += !list[at] && list[at - 1] == UINT32_MAX;
	return shape;
}

static void put_id(uint8_t *to, uint32_t id, uint32_t id_bytes)
{
	const uint32_t bytes = htole32(id);

	memcpy(to, &bytes, id_bytes);
}

static void put_u16s(uint8_t *to, const uint32_t *list, uint32_t count)
{
	uint16_t low[U16S];
	uint32_t i;

	for (; count >= U16S; count -= U16S, to += sizeof(low)) {
		for (i = 0; i < U16S; i++)
			low[i] = htole16((uint16_t)*list++);
		memcpy(to, low, sizeof(low));
	}
	for (; count; count--, to += 2)
		put_id(to, *list++, 2);
}

/* Each by a store of four, of which the next one takes back the last. */
static void put_u24s(uint8_t *to, const uint32_t *list, uint32_t count)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("ssse3")) {
		const uint32_t done = put_u24_steps(to, list, count);

		to += (size_t)done * 3;
		list += done;
		count -= done;
	}
#endif
	for (; count > 1; count--, to += 3)
		put_id(to, *list++, 4);
	put_id(to, *list, 3);
}

static void put_u32s(uint8_t *to, const uint32_t *list, uint32_t count)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	memcpy(to, list, count * sizeof(*list));
#else
	for (; count; count--, to += 4)
		put_id(to, *list++, 4);
#endif
}

static void put_list(uint8_t *to, const uint32_t *list, uint32_t count,
		     uint32_t id_bytes)
{
	if (id_bytes == 2)
		put_u16s(to, list, count);
	else if (id_bytes == 3)
		put_u24s(to, list, count);
	else
		put_u32s(to, list, count);
}

/* 0: the ids of RUN_STEPS from here are first, first + 1 and so on. */
static uint32_t steps_differ(const uint32_t *list, uint32_t first)
{
	ids_step wanted = { 0, 1, 2, 3 };
	ids_step others = { 0 };
	ids_step step;
	uint32_t i;

	wanted += first;
	for (i = 0; i < RUN_STEPS; i++) {
		memcpy(&step, list + (size_t)i * STEP, sizeof(step));
		others |= step ^ wanted;
		wanted += STEP;
	}
	return step_bits(&others);
}

/* Ids from `at` on that follow one another; 1 at least. */
static uint32_t run_at(const uint32_t *list, uint32_t at, uint32_t count)
{
	const uint32_t left = count - at;
	const uint32_t first = list[at];
	uint32_t run = 1;

	list += at;
	/* No run goes on from the highest id to 0. */
	while (left - run >= RUN_STEPS * STEP &&
	       first < UINT32_MAX - run - RUN_STEPS * STEP &&
	       !steps_differ(list + run, first + run))
		run += RUN_STEPS * STEP;
	while (run < left && list[run] == (uint64_t)first + run)
		run++;
	return run;
}

/* Both arrays at once; no more of them than there is room for. */
static void put_runs(uint8_t *to, const uint32_t *list, uint32_t count,
		     uint32_t runs, uint32_t id_bytes)
{
	uint8_t *more = to + (size_t)runs * id_bytes;
	uint32_t at = 0;

	for (; runs && at < count; runs--) {
		const uint32_t run = run_at(list, at, count);

		put_id(to, list[at], id_bytes);
		put_id(more, run - 1, MORE_BYTES);
		to += id_bytes;
		more += MORE_BYTES;
		at += run;
	}
}

/* Room for so many bytes, which are counted in any case; NULL: there is none. */
static uint8_t *take(struct kvpull_wire_writer *writer, size_t byte_count)
{
	const size_t at = writer->used;

	writer->used += byte_count;
	return at <= writer->capacity && byte_count <= writer->capacity - at ?
		       writer->data + at :
		       NULL;
}

static void put_shaped(struct kvpull_wire_writer *writer,
		       const struct kvpull_ids *ids)
{
	struct shape shape = shape_of(ids->list, ids->count);
	uint32_t id_bytes = 4;
	size_t byte_count;
	uint8_t *to;

	while (id_bytes > 2 && !(shape.bits >> (8 * (id_bytes - 1))))
		id_bytes--;
	byte_count = (size_t)shape.runs * (id_bytes + MORE_BYTES);
	if (byte_count >= (size_t)ids->count * id_bytes) {
		shape.runs = ids->count;
		byte_count = (size_t)ids->count * id_bytes;
	}
	to = take(writer, HEAD_BYTES + byte_count);
	if (!to)
		return;
	put_id(to, ids->count, 4);
	put_id(to + 4, shape.runs, 4);
	to[8] = (uint8_t)id_bytes;
	to += HEAD_BYTES;
	if (shape.runs == ids->count)
		put_list(to, ids->list, ids->count, id_bytes);
	else
		put_runs(to, ids->list, ids->count, shape.runs, id_bytes);
}

void kvpull_ids_put(struct kvpull_wire_writer *writer,
		    const struct kvpull_ids *ids)
{
	if (ids->count && ids->list) {
		put_shaped(writer, ids);
		return;
	}
	kvpull_wire_put_u32(writer, ids->count);
	if (ids->count)
		kvpull_wire_put(writer, ids->bytes, ids->byte_count);
}

/* A list as it lies in its bytes. */
struct view {
	const uint8_t *firsts;
	const uint8_t *mores; /* ids of each run after its first; NULL: none */
	uint32_t runs;
	uint32_t id_bytes;
};

static uint32_t more_at(const struct view *view, uint32_t index)
{
	uint16_t value;

	memcpy(&value, view->mores + (size_t)index * MORE_BYTES, sizeof(value));
	return le16toh(value);
}

static uint32_t first_at(const struct view *view, uint32_t index)
{
	uint32_t value = 0;

	memcpy(&value, view->firsts + (size_t)index * view->id_bytes,
	       view->id_bytes);
	return le32toh(value);
}

/* Finds the parts of an encoded list whose bytes were checked. */
static struct view view_of(const struct kvpull_ids *ids)
{
	const uint8_t *firsts = ids->bytes + HEAD_BYTES - 4;

	return (struct view){
		.firsts = firsts,
		.mores = ids->runs == ids->count ?
				 NULL :
				 firsts + (size_t)ids->runs * ids->id_bytes,
		.runs = ids->runs,
		.id_bytes = ids->id_bytes,
	};
}

static int runs_are_good(const struct kvpull_ids *ids)
{
	const struct view view = view_of(ids);
	/* A run that ends beyond its ids' bytes would be longer as ours. */
	const uint32_t id_max = UINT32_MAX >> 8 * (4 - view.id_bytes);
	uint64_t total = view.runs;
	uint32_t i;

	if (!view.mores)
		return 1;
	for (i = 0; i < view.runs; i++) {
		const uint32_t more = more_at(&view, i);

		if (more > id_max - first_at(&view, i))
			return 0;
		total += more;
	}
	return total == ids->count;
}

/*
 * Takes the list's bytes from the reader. Returns 0 if fewer are there than the
 * list needs.
 */
static int bytes_get(struct kvpull_wire_reader *reader, struct kvpull_ids *ids)
{
	const size_t start = reader->at;
	size_t byte_count;

	ids->bytes = reader->data + start;
	ids->runs = kvpull_wire_get_u32(reader);
	ids->id_bytes = kvpull_wire_get_u8(reader);
	if (!ids->runs || ids->runs > ids->count || ids->id_bytes < 2 ||
	    ids->id_bytes > 4)
		return 0;
	byte_count = (size_t)ids->runs * ids->id_bytes;
	if (ids->runs != ids->count)
		byte_count += (size_t)ids->runs * MORE_BYTES;
	if (!kvpull_wire_get(reader, byte_count))
		return 0;
	ids->byte_count = (uint32_t)(reader->at - start);
	return 1;
}

void kvpull_ids_get(struct kvpull_wire_reader *reader, uint32_t max,
		    struct kvpull_ids *ids)
{
	*ids = (struct kvpull_ids){ .count = kvpull_wire_get_u32(reader) };
	if (ids->count > max ||
	    (ids->count && !(bytes_get(reader, ids) && runs_are_good(ids))))
		reader->bad = 1;
	if (reader->bad)
		*ids = (struct kvpull_ids){ 0 };
}

/* The ids from first on, one after another. */
static void copy_run(uint32_t first, uint32_t *list, uint32_t count)
{
	ids_step step = { 0, 1, 2, 3 };

	for (step += first; count >= STEP; count -= STEP, list += STEP) {
		memcpy(list, &step, sizeof(step));
		step += STEP;
	}
	for (first = step[0]; count; count--)
		*list++ = first++;
}

static void copy_u16s(const uint8_t *bytes, uint32_t *list, uint32_t count)
{
	uint16_t some[U16S];
	uint32_t i;

	for (; count >= U16S; count -= U16S) {
		memcpy(some, bytes, sizeof(some));
		for (i = 0; i < U16S; i++)
			list[i] = le16toh(some[i]);
		bytes += sizeof(some);
		list += U16S;
	}
	for (i = 0; i < count; i++, bytes += 2)
		list[i] = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
}

/* Each but the last by a load of four. */
static void copy_u24s(const uint8_t *bytes, uint32_t *list, uint32_t count)
{
	uint32_t id;

#if defined(__x86_64__)
	if (__builtin_cpu_supports("ssse3")) {
		const uint32_t done = copy_u24_steps(bytes, list, count);

		bytes += (size_t)done * 3;
		list += done;
		count -= done;
	}
#endif
	for (; count > 1; count--, bytes += 3) {
		memcpy(&id, bytes, sizeof(id));
		*list++ = le32toh(id) & 0xffffff;
	}
	*list = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 |
		(uint32_t)bytes[2] << 16;
}

static void copy_u32s(const uint8_t *bytes, uint32_t *list, uint32_t count)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	kvpull_stream_copy(list, bytes, count * sizeof(*list));
#else
	for (; count; count--, bytes += 4) {
		memcpy(list, bytes, sizeof(*list));
		*list = le32toh(*list);
		list++;
	}
#endif
}

static void copy_list(const struct view *view, uint32_t first, uint32_t count,
		      uint32_t *list)
{
	const uint8_t *bytes = view->firsts + (size_t)first * view->id_bytes;

	if (view->id_bytes == 2)
		copy_u16s(bytes, list, count);
	else if (view->id_bytes == 3)
		copy_u24s(bytes, list, count);
	else
		copy_u32s(bytes, list, count);
}

static void copy_runs(const struct view *view, uint32_t skip, uint32_t count,
		      uint32_t *list)
{
	uint32_t i;

	for (i = 0; i < view->runs && count; i++) {
		const uint32_t first = first_at(view, i) + skip;
		uint32_t run = more_at(view, i) + 1;

		if (run <= skip) {
			skip -= run;
			continue;
		}
		run -= skip;
		if (run > count)
			run = count;
		copy_run(first, list, run);
		list += run;
		count -= run;
		skip = 0;
	}
}

void kvpull_ids_copy(const struct kvpull_ids *ids, uint32_t first,
		     uint32_t count, uint32_t *list)
{
	struct view view;

	if (!count || !ids->bytes || first > ids->count ||
	    count > ids->count - first)
		return;
	view = view_of(ids);
	if (view.mores)
		copy_runs(&view, first, count, list);
	else
		copy_list(&view, first, count, list);
}

static ids_step step_at(const uint32_t *list)
{
	ids_step step;

	memcpy(&step, list, sizeof(step));
	return step;
}

/*
 * Ids that were looked at, by four steps at once. The top bit of id, or of
 * bound - 1 - id, is set where id is not below: as long as the bound has none.
 */
static uint32_t beyond_steps(const uint32_t *list, uint32_t count,
			     uint32_t bound, uint32_t *bits)
{
	ids_step beyond = { 0 };
	uint32_t at;

	for (at = 0; count - at >= 4 * STEP; at += 4 * STEP) {
		const ids_step one = step_at(list + at);
		const ids_step two = step_at(list + at + STEP);
		const ids_step three = step_at(list + at + 2 * STEP);
		const ids_step four = step_at(list + at + 3 * STEP);

		beyond |= ((one | (bound - 1 - one)) |
			   (two | (bound - 1 - two))) |
			  ((three | (bound - 1 - three)) |
			   (four | (bound - 1 - four)));
	}
	*bits = step_bits(&beyond);
	return at;
}

int kvpull_ids_are_below(const uint32_t *list, uint32_t count, uint32_t bound)
{
	uint32_t bits = 0;
	uint32_t at = 0;

	if (bound && bound <= INT32_MAX)
		at = beyond_steps(list, count, bound, &bits);
	if (bits >> 31)
		return 0;
	for (; at < count; at++)
		if (list[at] >= bound)
			return 0;
	return 1;
}
