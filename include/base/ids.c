/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept: kvpull_ids_copy() writes `count` ids at most, whatever the bytes say by
 * then; a view is taken only if its runs are its ids together and none goes
 * beyond the bytes that an id has. Time is linear in the ids.
 *
 * Ids are looked at STEP at once where there are so many.
 */
#include "base/ids.h"

#include <endian.h>
#include <string.h>

#define STEP 4u
#define RUN_STEPS 8u  /* compared at once */
#define MORE_BYTES 2u /* of a run's ids after its first */

/* Of each compiler that we have: its operators work on all of them at once. */
typedef uint32_t ids_step __attribute__((vector_size(STEP * 4)));

/* What any of them has. */
static uint32_t step_bits(const ids_step *step)
{
	uint32_t bits = 0;
	uint32_t i;

	for (i = 0; i < STEP; i++)
		bits |= (*step)[i];
	return bits;
}

/* What a list is made of. */
struct shape {
	uint32_t runs;
	uint32_t bits; /* that its ids have */
};

/* Each id is looked at before any is written. */
static struct shape shape_of(const uint32_t *list, uint32_t count)
{
	ids_step before;
	ids_step step;
	ids_step bits = { 0 };
	ids_step same = { 0 }; /* less one for each that goes on in its run */
	struct shape shape = { count, list[0] };
	uint32_t at = 1;

	for (; count - at >= STEP; at += STEP) {
		memcpy(&before, list + at - 1, sizeof(before));
		memcpy(&step, list + at, sizeof(step));
		bits |= step;
		same += (ids_step)(step - before == 1);
	}
	for (; at < count; at++) {
		shape.bits |= list[at];
		shape.runs -= list[at] - list[at - 1] == 1;
	}
	for (at = 0; at < STEP; at++)
		shape.runs += same[at];
	shape.bits |= step_bits(&bits);
	/* No run goes on from the highest id to 0. */
	if (shape.bits == UINT32_MAX)
		for (at = 1; at < count; at++)
			shape.runs += !list[at] && list[at - 1] == UINT32_MAX;
	return shape;
}

static void put_id(struct kvpull_wire_writer *writer, uint32_t id,
		   uint32_t id_bytes)
{
	const uint32_t bytes = htole32(id);

	kvpull_wire_put(writer, &bytes, id_bytes);
}

/* Each by a store of four, of which the next one takes back the last. */
static void put_u24s(struct kvpull_wire_writer *writer, const uint32_t *list,
		     uint32_t count)
{
	const size_t byte_count = (size_t)count * 3;
	uint8_t *to = writer->data + writer->used;

	if (writer->used > writer->capacity ||
	    byte_count > writer->capacity - writer->used) {
		writer->used += byte_count;
		return;
	}
	writer->used += byte_count - 3;
	for (; count > 1; count--, to += 3) {
		const uint32_t bytes = htole32(*list++);

		memcpy(to, &bytes, sizeof(bytes));
	}
	put_id(writer, *list, 3);
}

static void put_list(struct kvpull_wire_writer *writer, const uint32_t *list,
		     uint32_t count, uint32_t id_bytes)
{
	if (id_bytes == 2) {
		kvpull_wire_put_u16s(writer, list, count);
	} else if (id_bytes == 3) {
		put_u24s(writer, list, count);
	} else {
		kvpull_wire_put_u32s(writer, list, count);
	}
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

/* Both arrays at once: the second begins where the first will have ended. */
static void put_runs(struct kvpull_wire_writer *writer, const uint32_t *list,
		     uint32_t count, uint32_t runs, uint32_t id_bytes)
{
	struct kvpull_wire_writer mores = *writer;
	uint32_t at = 0;

	mores.used += (size_t)runs * id_bytes;
	while (at < count) {
		const uint32_t run = run_at(list, at, count);

		put_id(writer, list[at], id_bytes);
		kvpull_wire_put_u16(&mores, (uint16_t)(run - 1));
		at += run;
	}
	writer->used = mores.used;
}

void kvpull_ids_put(struct kvpull_wire_writer *writer,
		    const struct kvpull_ids *ids)
{
	uint32_t id_bytes = 4;
	struct shape shape;

	kvpull_wire_put_u32(writer, ids->count);
	if (!ids->count)
		return;
	if (!ids->list) {
		kvpull_wire_put(writer, ids->bytes, ids->byte_count);
		return;
	}
	shape = shape_of(ids->list, ids->count);
	while (id_bytes > 2 && !(shape.bits >> (8 * (id_bytes - 1))))
		id_bytes--;
	if ((uint64_t)shape.runs * (id_bytes + MORE_BYTES) >=
	    (uint64_t)ids->count * id_bytes)
		shape.runs = ids->count;
	kvpull_wire_put_u32(writer, shape.runs);
	kvpull_wire_put_u8(writer, (uint8_t)id_bytes);
	if (shape.runs == ids->count)
		put_list(writer, ids->list, ids->count, id_bytes);
	else
		put_runs(writer, ids->list, ids->count, shape.runs, id_bytes);
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

/* Of `count` ids; 0: it is none. What the runs add up to is not looked at. */
static int view_get(struct kvpull_wire_reader *reader, uint32_t count,
		    struct view *view)
{
	view->runs = kvpull_wire_get_u32(reader);
	view->id_bytes = kvpull_wire_get_u8(reader);
	if (!view->runs || view->runs > count || view->id_bytes < 2 ||
	    view->id_bytes > 4)
		return 0;
	view->firsts =
		kvpull_wire_get(reader, (size_t)view->runs * view->id_bytes);
	view->mores = NULL;
	if (view->runs != count)
		view->mores = kvpull_wire_get(reader,
					      (size_t)view->runs * MORE_BYTES);
	return !reader->bad;
}

static int view_is_good(const struct view *view, uint32_t count)
{
	/* A run that ends beyond its ids' bytes would be longer as ours. */
	const uint32_t id_max = UINT32_MAX >> 8 * (4 - view->id_bytes);
	uint64_t total = view->runs;
	uint32_t i;

	if (!view->mores)
		return 1;
	for (i = 0; i < view->runs; i++) {
		const uint32_t more = more_at(view, i);

		if (more > id_max - first_at(view, i))
			return 0;
		total += more;
	}
	return total == count;
}

void kvpull_ids_get(struct kvpull_wire_reader *reader, uint32_t max,
		    struct kvpull_ids *ids)
{
	const uint32_t count = kvpull_wire_get_u32(reader);
	const size_t start = reader->at;
	struct view view;

	if (count > max || (count && !(view_get(reader, count, &view) &&
				       view_is_good(&view, count))))
		reader->bad = 1;
	*ids = (struct kvpull_ids){ 0 };
	if (reader->bad)
		return;
	ids->bytes = reader->data + start;
	ids->byte_count = (uint32_t)(reader->at - start);
	ids->count = count;
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
	uint16_t some[KVPULL_WIRE_U16S];
	uint32_t i;

	for (; count >= KVPULL_WIRE_U16S; count -= KVPULL_WIRE_U16S) {
		memcpy(some, bytes, sizeof(some));
		for (i = 0; i < KVPULL_WIRE_U16S; i++)
			list[i] = le16toh(some[i]);
		bytes += sizeof(some);
		list += KVPULL_WIRE_U16S;
	}
	for (i = 0; i < count; i++, bytes += 2)
		list[i] = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
}

/* Each but the last by a load of four. */
static void copy_u24s(const uint8_t *bytes, uint32_t *list, uint32_t count)
{
	uint32_t id;

	for (; count > 1; count--, bytes += 3) {
		memcpy(&id, bytes, sizeof(id));
		*list++ = le32toh(id) & 0xffffff;
	}
	*list = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 |
		(uint32_t)bytes[2] << 16;
}

static void copy_list(const struct view *view, uint32_t first, uint32_t count,
		      uint32_t *list)
{
	const size_t byte_count = (size_t)count * view->id_bytes;
	struct kvpull_wire_reader reader = {
		view->firsts + (size_t)first * view->id_bytes, byte_count, 0, 0
	};

	if (view->id_bytes == 2)
		copy_u16s(reader.data, list, count);
	else if (view->id_bytes == 4)
		kvpull_wire_get_u32s(&reader, list, count);
	else
		copy_u24s(reader.data, list, count);
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
	struct kvpull_wire_reader reader = { ids->bytes, ids->byte_count, 0,
					     0 };
	struct view view;

	if (!count || first > ids->count || count > ids->count - first ||
	    !view_get(&reader, ids->count, &view))
		return;
	if (view.mores)
		copy_runs(&view, first, count, list);
	else
		copy_list(&view, first, count, list);
}

int kvpull_ids_are_below(const uint32_t *list, uint32_t count, uint32_t bound)
{
	ids_step beyond = { 0 };
	ids_step step;
	uint32_t at = 0;

	/*
	 * The top bit of id, or of bound - 1 - id, is set where id is not below:
	 * as long as the bound has none.
	 */
	if (bound && bound <= INT32_MAX)
		for (; count - at >= STEP; at += STEP) {
			memcpy(&step, list + at, sizeof(step));
			beyond |= (bound - 1 - step) | step;
		}
	if (step_bits(&beyond) >> 31)
		return 0;
	for (; at < count; at++)
		if (list[at] >= bound)
			return 0;
	return 1;
}
