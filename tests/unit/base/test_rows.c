/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a read, in their order: each byte once, empty strips not at all. */
#include <string.h>

#include "base/rows.h"
#include "tests/lib/random.h"
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

/* ---- runs ---- */

#define BLOCKS 6u
#define STRIPS 3u
#define BYTES 4096u

static uint8_t by_rows[BYTES];
static uint8_t by_runs[BYTES];

static uint32_t draw(uint64_t *random, uint32_t below)
{
	return (uint32_t)(random_next(random) % below);
}

/* Each byte of the copy says where it came from, and none comes twice. */
static void bytes_come(uint8_t *to, const uint8_t *local, uint64_t remote,
		       uint64_t bytes)
{
	uint8_t *const here = to + (local - by_runs);
	uint64_t at;

	for (at = 0; at < bytes; at++) {
		assert_int_equal(here[at], 0);
		here[at] = (uint8_t)(1 + (remote + at) % 251);
	}
}

static void rows_walk(const struct kvpull_read *read, uint64_t byte_max)
{
	struct kvpull_rows_cursor cursor = { 0 };
	struct kvpull_row row;

	memset(by_rows, 0, sizeof(by_rows));
	while (kvpull_rows_next(read, &cursor, byte_max, &row))
		bytes_come(by_rows, row.local, row.remote_offset, row.bytes);
}

static void runs_walk(const struct kvpull_read *read, uint64_t byte_max,
		      uint32_t count_max)
{
	struct kvpull_rows_cursor cursor = { 0 };
	struct kvpull_run run;
	uint32_t at;

	memset(by_runs, 0, sizeof(by_runs));
	while (kvpull_runs_next(read, &cursor, byte_max, count_max, &run)) {
		assert_in_range(run.count, 1, count_max);
		assert_in_range(run.count * run.bytes, 1, byte_max);
		for (at = run.at; at < run.at + run.count; at++)
			bytes_come(
				by_runs,
				run.local +
					read->local_ids[at] *
						run.strip->local_block_stride,
				run.remote_offset +
					read->remote_ids[at] *
						run.strip->remote_block_stride,
				run.bytes);
	}
	assert_int_equal(
		kvpull_runs_next(read, &cursor, byte_max, count_max, &run), 0);
}

/* Strips side by side here: a block has 128 bytes, a row up to 30. */
static void strips_draw(struct kvpull_strip *own, uint64_t *random)
{
	uint32_t at;

	for (at = 0; at < STRIPS; at++)
		own[at] = (struct kvpull_strip){
			.group_index = draw(random, 3),
			.remote_offset = draw(random, 1000),
			.remote_block_stride = 1000,
			.remote_row_stride = 50,
			.local = by_runs + at * 128 * BLOCKS,
			.local_block_stride = 128,
			.local_row_stride = 32,
			.row_bytes = draw(random, 31),
			.row_count = draw(random, 5),
		};
}

UNIT_TEST(runs_have_the_bytes_of_the_rows_and_each_once)
{
	static const uint32_t remote[BLOCKS] = { 7, 3, 9, 3, 1, 8 };
	static const uint32_t here[BLOCKS] = { 4, 1, 5, 0, 3, 2 };
	static const uint32_t first[KVPULL_GROUPS_MAX + 1] = { 0, 4, 4, 6 };
	struct kvpull_strip own[STRIPS];
	const struct kvpull_read read = { .strips = own,
					  .strip_count = STRIPS,
					  .remote_ids = remote,
					  .local_ids = here,
					  .group_first = first };
	uint64_t random = 34;
	uint32_t i;

	for (i = 0; i < 2000; i++) {
		strips_draw(own, &random);
		rows_walk(&read, 1 + draw(&random, 200));
		runs_walk(&read, 1 + draw(&random, 200), 1 + draw(&random, 5));
		assert_memory_equal(by_rows, by_runs, sizeof(by_rows));
	}
}
