/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: a cursor stands at a byte that is still to be read, or behind the
 * last strip. Strips without ids or bytes are stepped over.
 */
#include "verbs/cursor.h"

#include "base/least.h"

/* The piece at a cursor: the rest of a row, or of a block whose rows join. */
struct piece {
	uint64_t remote_offset;
	uint8_t *local;
	uint64_t bytes;
	uint32_t same_strip; /* as the piece before */
};

/* Rows that lie end to end on both sides are one row. */
static int rows_join(const struct kvpull_strip *strip)
{
	return strip->row_count == 1 ||
	       (strip->remote_row_stride == strip->row_bytes &&
		strip->local_row_stride == strip->row_bytes);
}

static uint64_t row_bytes(const struct kvpull_strip *strip)
{
	return rows_join(strip) ? strip->row_bytes * strip->row_count :
				  strip->row_bytes;
}

static uint32_t row_count(const struct kvpull_strip *strip)
{
	return rows_join(strip) ? 1 : strip->row_count;
}

/* To the first strip from here that has anything to read. */
static void strip_find(struct kvpull_cursor *cursor,
		       const struct kvpull_read *read)
{
	for (; cursor->strip < read->strip_count; cursor->strip++) {
		const struct kvpull_strip *strip = &read->strips[cursor->strip];
		const uint32_t *first = &read->group_first[strip->group_index];

		if (first[0] < first[1] && strip->row_bytes &&
		    strip->row_count) {
			cursor->id = first[0];
			break;
		}
	}
	cursor->row = 0;
	cursor->at = 0;
}

int kvpull_cursor_is_done(const struct kvpull_cursor *cursor,
			  const struct kvpull_read *read)
{
	return cursor->strip == read->strip_count;
}

static uint64_t block_bytes(const struct kvpull_strip *strip)
{
	return strip->row_bytes * strip->row_count;
}

static uint64_t strip_bytes(const struct kvpull_read *read, uint32_t index)
{
	const struct kvpull_strip *strip = &read->strips[index];
	const uint32_t *first = &read->group_first[strip->group_index];

	return block_bytes(strip) * (first[1] - first[0]);
}

uint64_t kvpull_cursor_tell(const struct kvpull_cursor *cursor,
			    const struct kvpull_read *read)
{
	const struct kvpull_strip *strip = &read->strips[cursor->strip];
	uint64_t bytes = 0;
	uint32_t at;

	for (at = 0; at < cursor->strip; at++)
		bytes += strip_bytes(read, at);
	if (kvpull_cursor_is_done(cursor, read))
		return bytes;
	return bytes + cursor->row * row_bytes(strip) + cursor->at +
	       block_bytes(strip) *
		       (cursor->id - read->group_first[strip->group_index]);
}

void kvpull_cursor_seek(struct kvpull_cursor *cursor,
			const struct kvpull_read *read, uint64_t bytes)
{
	const struct kvpull_strip *strip;

	*cursor = (struct kvpull_cursor){ 0 };
	while (cursor->strip < read->strip_count &&
	       bytes >= strip_bytes(read, cursor->strip))
		bytes -= strip_bytes(read, cursor->strip++);
	strip_find(cursor, read);
	if (kvpull_cursor_is_done(cursor, read) || !bytes)
		return;
	strip = &read->strips[cursor->strip];
	cursor->id += (uint32_t)(bytes / block_bytes(strip));
	bytes %= block_bytes(strip);
	cursor->row = (uint32_t)(bytes / row_bytes(strip));
	cursor->at = bytes % row_bytes(strip);
}

static struct piece piece_of(const struct kvpull_cursor *cursor,
			     const struct kvpull_read *read)
{
	const struct kvpull_strip *strip = &read->strips[cursor->strip];

	return (struct piece){
		.remote_offset = strip->remote_offset +
				 read->remote_ids[cursor->id] *
					 strip->remote_block_stride +
				 cursor->row * strip->remote_row_stride +
				 cursor->at,
		.local = strip->local +
			 read->local_ids[cursor->id] *
				 strip->local_block_stride +
			 cursor->row * strip->local_row_stride + cursor->at,
		.bytes = row_bytes(strip) - cursor->at,
		.same_strip = 1,
	};
}

static void advance(struct kvpull_cursor *cursor,
		    const struct kvpull_read *read, uint64_t bytes)
{
	const struct kvpull_strip *strip = &read->strips[cursor->strip];

	cursor->at += bytes;
	if (cursor->at < row_bytes(strip))
		return;
	cursor->at = 0;
	if (++cursor->row < row_count(strip))
		return;
	cursor->row = 0;
	if (++cursor->id < read->group_first[strip->group_index + 1])
		return;
	cursor->strip++;
	strip_find(cursor, read);
}

/*
 * Return: 1 if the piece's begin was added, 0 if it does not go on from here.
 * Strips may lie in regions that are neighbours here: a part is in one region,
 * and in one MR of it.
 */
static int piece_add(struct kvpull_slice *slice, const struct piece *piece,
		     uint64_t bytes, const struct kvpull_slice_limits *limits)
{
	const uint64_t mr_mask = (UINT64_C(1) << limits->mr_shift) - 1;
	struct kvpull_slice_part *last = &slice->parts[slice->part_count - 1];

	if (piece->remote_offset != slice->remote_offset + slice->bytes)
		return 0;
	if (!last->bytes ||
	    (piece->same_strip && last->local + last->bytes == piece->local &&
	     (uintptr_t)piece->local & mr_mask)) {
		last->bytes += bytes;
	} else {
		if (slice->part_count == limits->parts_max)
			return 0;
		last[1].local = piece->local;
		last[1].bytes = bytes;
		slice->part_count++;
	}
	slice->bytes += bytes;
	return 1;
}

void kvpull_cursor_next(struct kvpull_cursor *cursor,
			const struct kvpull_read *read,
			const struct kvpull_slice_limits *limits,
			struct kvpull_slice *slice)
{
	const uint32_t region = read->strips[cursor->strip].region_index;
	struct piece piece = piece_of(cursor, read);
	const uint64_t bytes_max = kvpull_least(
		limits->bytes_max,
		kvpull_mr_left(limits->keys->regions[region].address +
				       piece.remote_offset,
			       limits->keys->mr_shift));

	slice->region_index = region;
	slice->remote_offset = piece.remote_offset;
	slice->bytes = 0;
	slice->part_count = 1;
	slice->parts[0].local = piece.local;
	slice->parts[0].bytes = 0;
	while (slice->bytes < bytes_max) {
		const uint64_t room =
			kvpull_least(bytes_max - slice->bytes,
				     kvpull_mr_left((uintptr_t)piece.local,
						    limits->mr_shift));
		const uint64_t bytes = kvpull_least(piece.bytes, room);
		const uint32_t strip = cursor->strip;

		if (!piece_add(slice, &piece, bytes, limits))
			return;
		advance(cursor, read, bytes);
		if (kvpull_cursor_is_done(cursor, read) ||
		    read->strips[cursor->strip].region_index != region)
			return;
		piece = piece_of(cursor, read);
		piece.same_strip = cursor->strip == strip;
	}
}
