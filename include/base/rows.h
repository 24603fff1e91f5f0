/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a read, one after the other: strip by strip, block by block. For
 * the ways of reading that cannot copy from a mapping.
 */
#ifndef KVPULL_BASE_ROWS_H
#define KVPULL_BASE_ROWS_H

#include "base/transport.h"

/* Where a read has got to; zeroed to begin. */
struct kvpull_rows_cursor {
	uint32_t strip_index;
	uint32_t block_index; /* within the strip's group */
	uint32_t row_index;
	uint32_t reserved;
	uint64_t row_bytes_done;
};

/* A row, or what is left of it. */
struct kvpull_row {
	const struct kvpull_strip *strip;
	uint64_t remote_offset; /* in the region */
	uint8_t *local;
	uint64_t bytes;
	uint32_t at; /* of its block, in the ids */
	uint32_t reserved;
};

/*
 * The next row, or what byte_max leaves of it; byte_max > 0. Return: 0: there
 * is none left; 1: *row, and the cursor is behind it.
 */
int KVPULL_MUST_CHECK kvpull_rows_next(const struct kvpull_read *read,
				       struct kvpull_rows_cursor *cursor,
				       uint64_t byte_max,
				       struct kvpull_row *row);

#endif /* KVPULL_BASE_ROWS_H */
