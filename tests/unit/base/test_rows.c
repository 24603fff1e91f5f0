/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a read, in their order: each byte once, empty strips not at all. */
#include <string.h>

#include "base/rows.h"
#include "tests/lib/unit.h"

static const uint32_t remote_ids[] = { 5, 3, 9 };
static const uint32_t local_ids[] = { 0, 2, 1 };

/* Blocks of group 0: the first two; of group 1: none; of group 2: the third. */
static const uint32_t group_first[KVPULL_GROUPS_MAX + 1] = { 0, 2, 2, 3 };

static const struct kvpull_strip strips[] = {
	{ .group_index = 1, .row_bytes = 8, .row_count = 1 },
	{ .group_index = 0, .row_bytes = 0, .row_count = 4 },
	{ .group_index = 0, .row_bytes = 8, .row_count = 0 },
	{ .group_index = 0,
	  .remote_offset = 1000,
	  .remote_block_stride = 100,
	  .remote_row_stride = 20,
	  .local_block_stride = 64,
	  .local_row_stride = 16,
	  .row_bytes = 10,
	  .row_count = 2 },
	{ .group_index = 2,
	  .remote_offset = 7,
	  .remote_block_stride = 1,
	  .local_block_stride = 32,
	  .row_bytes = 3,
	  .row_count = 1 },
	{ .group_index = 1, .row_bytes = 8, .row_count = 1 },
};

/* strip, id's place, remote, local, bytes: with at most 6 bytes a row. */
static const uint32_t expected[][5] = {
	{ 3, 0, 1500, 0, 6 },   { 3, 0, 1506, 6, 4 },   { 3, 0, 1520, 16, 6 },
	{ 3, 0, 1526, 22, 4 },  { 3, 1, 1300, 128, 6 }, { 3, 1, 1306, 134, 4 },
	{ 3, 1, 1320, 144, 6 }, { 3, 1, 1326, 150, 4 }, { 4, 2, 16, 32, 3 },
};

UNIT_TEST(rows_come_in_order_and_empty_strips_have_none)
{
	static uint8_t local[256];
	struct kvpull_strip own[sizeof(strips) / sizeof(strips[0])];
	struct kvpull_read read = { .strips = own,
				    .strip_count = 6,
				    .remote_ids = remote_ids,
				    .local_ids = local_ids,
				    .group_first = group_first };
	struct kvpull_rows_cursor cursor = { 0 };
	struct kvpull_row row;
	size_t at;

	memcpy(own, strips, sizeof(own));
	for (at = 0; at < 6; at++)
		own[at].local = local;
	for (at = 0; at < sizeof(expected) / sizeof(expected[0]); at++) {
		assert_int_equal(kvpull_rows_next(&read, &cursor, 6, &row), 1);
		assert_ptr_equal(row.strip, &own[expected[at][0]]);
		assert_int_equal(row.at, expected[at][1]);
		assert_int_equal(row.remote_offset, expected[at][2]);
		assert_int_equal(row.local - local, expected[at][3]);
		assert_int_equal(row.bytes, expected[at][4]);
	}
	assert_int_equal(kvpull_rows_next(&read, &cursor, 6, &row), 0);
	assert_int_equal(kvpull_rows_next(&read, &cursor, 6, &row), 0);
	/* A whole row, where there is room for exactly that, and for more. */
	for (at = 10; at <= 11; at++) {
		memset(&cursor, 0, sizeof(cursor));
		assert_int_equal(kvpull_rows_next(&read, &cursor, at, &row), 1);
		assert_int_equal(row.bytes, 10);
		assert_int_equal(cursor.row_index, 1);
	}
	/* Nothing but empty strips. */
	memset(&cursor, 0, sizeof(cursor));
	read.strip_count = 3;
	assert_int_equal(kvpull_rows_next(&read, &cursor, 6, &row), 0);
}
