/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rows.h"

#include "base/least.h"

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

/* The strip that the cursor is at, or the next one with rows; NULL: none. */
static const struct kvpull_strip *strip_find(const struct kvpull_read *read,
					     struct kvpull_rows_cursor *cursor,
					     uint32_t *block_count)
{
	for (; cursor->strip_index < read->strip_count; cursor->strip_index++) {
		const struct kvpull_strip *strip =
			&read->strips[cursor->strip_index];

		*block_count = strip_block_count(read, strip);
		if (*block_count && strip->row_count && strip->row_bytes)
			return strip;
	}
	return NULL;
}

int kvpull_rows_next(const struct kvpull_read *read,
		     struct kvpull_rows_cursor *cursor, uint64_t byte_max,
		     struct kvpull_row *row)
{
	uint32_t block_count;
	const struct kvpull_strip *const strip =
		strip_find(read, cursor, &block_count);
	uint32_t at;

	if (!strip)
		return 0;
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
	row->bytes = kvpull_least(strip->row_bytes - cursor->row_bytes_done,
				  byte_max);
	cursor_advance(cursor, row, block_count);
	return 1;
}

/* Behind a run: a row in parts first, then the blocks, then the rows. */
static void run_advance(struct kvpull_rows_cursor *cursor,
			const struct kvpull_run *run, uint32_t block_count)
{
	cursor->row_bytes_done += run->bytes;
	if (cursor->row_bytes_done < run->strip->row_bytes)
		return;
	cursor->row_bytes_done = 0;
	cursor->block_index += run->count;
	if (cursor->block_index < block_count)
		return;
	cursor->block_index = 0;
	if (++cursor->row_index < run->strip->row_count)
		return;
	cursor->row_index = 0;
	cursor->strip_index++;
}

int kvpull_runs_next(const struct kvpull_read *read,
		     struct kvpull_rows_cursor *cursor, uint64_t byte_max,
		     uint32_t count_max, struct kvpull_run *run)
{
	uint32_t block_count;
	const struct kvpull_strip *const strip =
		strip_find(read, cursor, &block_count);
	uint64_t offset;

	if (!strip)
		return 0;
	offset = cursor->row_bytes_done;
	run->strip = strip;
	run->at = read->group_first[strip->group_index] + cursor->block_index;
	run->remote_offset = strip->remote_offset +
			     cursor->row_index * strip->remote_row_stride +
			     offset;
	run->local = strip->local +
		     cursor->row_index * strip->local_row_stride + offset;
	run->bytes = strip->row_bytes - offset;
	run->count =
		kvpull_least_u32(block_count - cursor->block_index, count_max);
	if (offset || run->bytes > byte_max)
		run->count = 1;
	else if (run->count > byte_max / run->bytes)
		run->count = (uint32_t)(byte_max / run->bytes);
	run->bytes = kvpull_least(run->bytes, byte_max);
	run_advance(cursor, run, block_count);
	return 1;
}
