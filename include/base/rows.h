/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a read, one after the other: strip by strip, block by block. For
 * the ways of reading that cannot copy from a mapping. Or many of them at once,
 * as runs: the rows of a number, of as many blocks as fit.
 */
#ifndef KVPULL_BASE_ROWS_H
#define KVPULL_BASE_ROWS_H

#include "base/transport.h"

/* Where a read has got to; zeroed to begin. */
struct kvpull_rows_cursor {
	uint32_t strip_index;
	uint32_t block_index; /* within the strip's group */
	uint32_t row_index;
	uint64_t row_bytes_done;
};

/* A row, or what is left of it. */
struct kvpull_row {
	const struct kvpull_strip *strip;
	uint64_t remote_offset; /* in the region */
	uint8_t *local;
	uint64_t bytes;
	uint32_t at; /* of its block, in the ids */
};

/*
 * The next row, or what byte_max leaves of it; byte_max > 0. Return: 0: there
 * is none left; 1: *row, and the cursor is behind it.
 */
int KVPULL_MUST_CHECK kvpull_rows_next(const struct kvpull_read *read,
				       struct kvpull_rows_cursor *cursor,
				       uint64_t byte_max,
				       struct kvpull_row *row);

/*
 * Rows of blocks in a row: of each id the bytes from remote_offset + id *
 * remote_block_stride on, likewise at local.
 */
struct kvpull_run {
	const struct kvpull_strip *strip;
	uint64_t remote_offset; /* in the region, of id 0 */
	uint8_t *local;         /* of id 0 */
	uint64_t bytes;         /* of each row */
	uint32_t at;            /* where their ids begin */
	uint32_t count;         /* rows; 1 where bytes are a part of a row */
};

/*
 * The next run of at most byte_max bytes and count_max rows, both > 0. A read is
 * walked by runs or by rows, not by both: runs go by rows first, then by blocks.
 */
int KVPULL_MUST_CHECK kvpull_runs_next(const struct kvpull_read *read,
				       struct kvpull_rows_cursor *cursor,
				       uint64_t byte_max, uint32_t count_max,
				       struct kvpull_run *run);

#endif /* KVPULL_BASE_ROWS_H */
