/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rows.h"

static uint32_t strip_block_count(const struct kvpull_read *read,
				  const struct kvpull_strip *strip)
{
	return read->group_first[strip->group_index + 1] -
	       read->group_first[strip->group_index];
}

static void cursor_advance(struct kvpull_rows_cursor *cursor,
			   const struct kvpull_row *row, uint32_t block_count)
{
	cursor->row_bytes_done += row->bytes;
	if (cursor->row_bytes_done < row->strip->row_bytes)
		return;
	cursor->row_bytes_done = 0;
	if (++cursor->row_index < row->strip->row_count)
		return;
	cursor->row_index = 0;
	if (++cursor->block_index < block_count)
		return;
	cursor->block_index = 0;
	cursor->strip_index++;
}

int kvpull_rows_next(const struct kvpull_read *read,
		     struct kvpull_rows_cursor *cursor, uint64_t byte_max,
		     struct kvpull_row *row)
{
	const struct kvpull_strip *strip;
	uint32_t block_count;
	uint32_t at;

	for (;; cursor->strip_index++) {
		if (cursor->strip_index == read->strip_count)
			return 0;
		strip = &read->strips[cursor->strip_index];
		block_count = strip_block_count(read, strip);
		if (block_count && strip->row_count && strip->row_bytes)
			break;
	}
	at = read->group_first[strip->group_index] + cursor->block_index;
	row->strip = strip;
	row->at = at;
	row->remote_offset = strip->remote_offset +
			     read->remote_ids[at] * strip->remote_block_stride +
			     cursor->row_index * strip->remote_row_stride +
			     cursor->row_bytes_done;
	row->local = strip->local +
		     read->local_ids[at] * strip->local_block_stride +
		     cursor->row_index * strip->local_row_stride +
		     cursor->row_bytes_done;
	row->bytes = strip->row_bytes - cursor->row_bytes_done;
	if (row->bytes > byte_max)
		row->bytes = byte_max;
	cursor_advance(cursor, row, block_count);
	return 1;
}
