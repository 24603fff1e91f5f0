/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept: kvpull_ids_copy() writes `count` ids at most, whatever the bytes say by
 * then; a view is taken only if its runs are `count` ids together and none goes
 * beyond 32 bits. Time is linear in the ids.
 */
#include "base/ids.h"

#include <endian.h>
#include <string.h>

enum ids_form {
	IDS_NARROW = 1, /* else u32 */
	IDS_RUNS = 2    /* else a list */
};

static void put_list(struct kvpull_wire_writer *writer, const uint32_t *ids,
		     uint32_t count, uint32_t form)
{
	if (form & IDS_NARROW)
		kvpull_wire_put_u16s(writer, ids, count);
	else
		kvpull_wire_put_u32s(writer, ids, count);
}

/* What a list is made of. */
struct shape {
	uint32_t runs;
	uint32_t bits; /* that its ids have */
};

/* Of count ids behind the first: a run goes on by one more, and never to 0. */
static inline void shape_add(struct shape *shape, const uint32_t *list,
			     uint32_t count)
{
	const uint32_t *before = list - 1;
	uint32_t runs = 0;
	uint32_t bits = 0;
	uint32_t i;

	for (i = 0; i < count; i++) {
		runs += (uint32_t)(list[i] - before[i] != 1) |
			(uint32_t)(list[i] == 0);
		bits |= list[i];
	}
	shape->runs += runs;
	shape->bits |= bits;
}

/* In loops of known length: each id is looked at before any is written. */
static struct shape shape_of(const uint32_t *list, uint32_t count)
{
	struct shape shape = { 1, list[0] };
	uint32_t at = 1;

	for (; count - at >= KVPULL_WIRE_U16S; at += KVPULL_WIRE_U16S)
		shape_add(&shape, list + at, KVPULL_WIRE_U16S);
	shape_add(&shape, list + at, count - at);
	return shape;
}

/* Both arrays at once: the second begins where the first will have ended. */
static void put_runs(struct kvpull_wire_writer *writer, const uint32_t *list,
		     uint32_t count, const struct shape *shape, uint32_t form)
{
	struct kvpull_wire_writer mores = *writer;
	uint32_t at = 0;

	mores.used += (size_t)shape->runs * (form & IDS_NARROW ? 2 : 4);
	while (at < count) {
		const uint32_t run = kvpull_ids_run(list, at, count);

		put_list(writer, list + at, 1, form);
		kvpull_wire_put_u16(&mores, (uint16_t)(run - 1));
		at += run;
	}
	writer->used = mores.used;
}

void kvpull_ids_put(struct kvpull_wire_writer *writer,
		    const struct kvpull_ids *ids)
{
	struct shape shape;
	uint32_t form = 0;

	kvpull_wire_put_u32(writer, ids->count);
	if (!ids->count)
		return;
	if (!ids->list) {
		kvpull_wire_put(writer, ids->bytes, ids->byte_count);
		return;
	}
	shape = shape_of(ids->list, ids->count);
	if (shape.bits <= UINT16_MAX)
		form |= IDS_NARROW;
	if (4 + (uint64_t)shape.runs * (form ? 4 : 6) <
	    (uint64_t)ids->count * (form ? 2 : 4))
		form |= IDS_RUNS;
	kvpull_wire_put_u8(writer, (uint8_t)form);
	if (!(form & IDS_RUNS)) {
		put_list(writer, ids->list, ids->count, form);
		return;
	}
	kvpull_wire_put_u32(writer, shape.runs);
	put_runs(writer, ids->list, ids->count, &shape, form);
}

static uint32_t u16_at(const uint8_t *bytes, uint32_t index)
{
	uint16_t value;

	memcpy(&value, bytes + (size_t)index * 2, sizeof(value));
	return le16toh(value);
}

static uint32_t u32_at(const uint8_t *bytes, uint32_t index)
{
	uint32_t value;

	memcpy(&value, bytes + (size_t)index * 4, sizeof(value));
	return le32toh(value);
}

/* Both arrays of a list of runs. */
struct runs {
	const uint8_t *firsts;
	const uint8_t *mores; /* ids of each after its first */
	uint32_t count;
	uint32_t is_narrow;
};

static uint32_t first_of(const struct runs *runs, uint32_t index)
{
	return runs->is_narrow ? u16_at(runs->firsts, index) :
				 u32_at(runs->firsts, index);
}

/* They were found whole before. */
static struct runs runs_get(struct kvpull_wire_reader *reader, uint32_t form)
{
	const uint32_t id_bytes = form & IDS_NARROW ? 2 : 4;
	const uint32_t count = kvpull_wire_get_u32(reader);
	struct runs runs = { NULL, NULL, 0, form & IDS_NARROW };

	runs.firsts = kvpull_wire_get(reader, (size_t)count * id_bytes);
	runs.mores = kvpull_wire_get(reader, (size_t)count * 2);
	if (!reader->bad)
		runs.count = count;
	return runs;
}

static int runs_are_good(const struct runs *runs, uint32_t count)
{
	uint64_t total = runs->count;
	uint32_t i;

	for (i = 0; i < runs->count; i++) {
		const uint32_t more = u16_at(runs->mores, i);

		if (more > UINT32_MAX - first_of(runs, i))
			return 0;
		total += more;
	}
	return total == count;
}

void kvpull_ids_get(struct kvpull_wire_reader *reader, uint32_t max,
		    struct kvpull_ids *ids)
{
	struct kvpull_ids got = { 0 };
	size_t start;
	uint8_t form;

	got.count = kvpull_wire_get_u32(reader);
	start = reader->at;
	if (got.count > max)
		reader->bad = 1;
	if (got.count && !reader->bad) {
		form = kvpull_wire_get_u8(reader);
		if (form > (IDS_NARROW | IDS_RUNS)) {
			reader->bad = 1;
		} else if (form & IDS_RUNS) {
			const struct runs runs = runs_get(reader, form);

			if (!runs_are_good(&runs, got.count))
				reader->bad = 1;
		} else {
			(void)kvpull_wire_get(reader, (size_t)got.count *
							      (form ? 2 : 4));
		}
	}
	if (reader->bad)
		got.count = 0;
	got.bytes = reader->data + start;
	got.byte_count = reader->bad ? 0 : (uint32_t)(reader->at - start);
	*ids = got;
}

static void copy_narrow(const uint8_t *bytes, uint32_t *list, uint32_t count)
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
	for (i = 0; i < count; i++)
		list[i] = u16_at(bytes, i);
}

static void copy_runs(const struct runs *runs, uint32_t *list, uint32_t count)
{
	uint32_t at = 0;
	uint32_t i;

	for (i = 0; i < runs->count; i++) {
		const uint32_t first = first_of(runs, i);
		const uint32_t run = u16_at(runs->mores, i) + 1;
		uint32_t id;

		if (run > count - at)
			return;
		for (id = 0; id < run; id++)
			list[at + id] = first + id;
		at += run;
	}
}

void kvpull_ids_copy(const struct kvpull_ids *ids, uint32_t *list)
{
	struct kvpull_wire_reader reader = { ids->bytes, ids->byte_count, 0,
					     0 };
	struct runs runs;
	uint8_t form;

	if (!ids->count)
		return;
	form = kvpull_wire_get_u8(&reader);
	if (form & IDS_RUNS) {
		runs = runs_get(&reader, form);
		copy_runs(&runs, list, ids->count);
	} else if (form & IDS_NARROW) {
		const uint8_t *bytes =
			kvpull_wire_get(&reader, (size_t)ids->count * 2);

		if (bytes)
			copy_narrow(bytes, list, ids->count);
	} else {
		kvpull_wire_get_u32s(&reader, list, ids->count);
	}
}
