/* SPDX-License-Identifier: Apache-2.0 */
/* Slices of a device that gathers: strips, their bounds, and what goes by pieces. */
#include "tests/lib/unit.h"
#include "tests/unit/device/feeds.h"
#include "tests/unit/device/table.h"

static uint64_t mapping_address(void)
{
	return feeds.feed.mappings[0].memory.address;
}

static void gathering_begin(uint64_t bytes_per_ms)
{
	assert_int_equal(feed_begin(bytes_per_ms), 0);
	table.gathers = UINT32_MAX;
	mapped(0, 4096 * MIB);
}

#define UNIT_TEST_GATHER(name, bytes_per_ms)                                   \
	UNIT_TEST_FED_BY(name, gathering_begin, bytes_per_ms)

/* ---- slices ---- */

UNIT_TEST_GATHER(blocks_of_a_strip_are_gathered_by_one_call, UINT64_MAX)
{
	(void)job_order(0, 0, READS_BLOCKS_MAX, 4096);
	job_ends(0);
	assert_string_equal(table.words, " import gather record");
	assert_int_equal(table.copies[0].strips, 1);
	assert_int_equal(table.copies[0].pieces, READS_BLOCKS_MAX);
	assert_int_equal(table.copies[0].source, mapping_address());
	assert_int_equal(table.copies[0].target, READS_LOCAL);
}

UNIT_TEST_GATHER(slices_of_strips_have_at_most_64_MiB, UINT64_MAX)
{
	uint32_t at;

	(void)job_order(0, 0, 40, 10 * MIB);
	job_ends(0);
	assert_int_equal(table.copy_count, 7);
	for (at = 0; at < 6; at++)
		assert_int_equal(table.copies[at].bytes, 64 * MIB);
	assert_int_equal(table.copies[6].bytes, 16 * MIB);
}

/* The rest of a row goes on where the slice before ended. */
UNIT_TEST(row_longer_than_a_slice_is_gathered_in_parts_of_units)
{
	uint32_t at;

	gathering_begin(MIB + 8);
	(void)job_order(0, 0, 1, 4 * MIB);
	feeds.feed.slice_bytes = MIB + 8;
	job_ends(0);
	assert_int_equal(table.copy_count, 4);
	for (at = 0; at < 4; at++) {
		assert_int_equal(table.copies[at].bytes, MIB);
		assert_int_equal(table.copies[at].source,
				 mapping_address() + at * MIB);
		assert_int_equal(table.copies[at].target,
				 READS_LOCAL + at * MIB);
	}
	feed_end();
}

/* A strip of so many blocks, each of many rows. */
static void rows_order(uint32_t blocks, uint32_t row_count)
{
	struct kvpull_strip *const strip = &feeds.reads[0].strip;

	(void)job_order(0, 0, blocks, 64);
	strip->row_count = row_count;
	strip->remote_row_stride = 64;
	strip->local_row_stride = 64;
	strip->remote_block_stride = 64 * row_count;
	strip->local_block_stride = 128 * row_count;
}

UNIT_TEST_GATHER(slice_has_no_more_rows_than_the_table_takes, UINT64_MAX)
{
	rows_order(READS_BLOCKS_MAX, 17);
	job_ends(0);
	assert_int_equal(table.copy_count, 2);
	assert_int_equal(table.copies[0].pieces, KVPULL_DEVICE_ROWS_MAX);
	assert_int_equal(table.copies[1].pieces,
			 17 * READS_BLOCKS_MAX - KVPULL_DEVICE_ROWS_MAX);
}

UNIT_TEST_GATHER(slice_has_no_more_strips_than_the_table_takes, UINT64_MAX)
{
	rows_order(2, KVPULL_DEVICE_STRIPS_MAX + 3);
	job_ends(0);
	assert_int_equal(table.copy_count, 2);
	assert_int_equal(table.copies[0].strips, KVPULL_DEVICE_STRIPS_MAX);
	assert_int_equal(table.copies[1].strips, 3);
	assert_int_equal(table.copies[1].source,
			 mapping_address() + 64 * KVPULL_DEVICE_STRIPS_MAX);
}

/* The table ends the program that uses a slot again before its copy is reached. */
UNIT_TEST_GATHER(slot_is_used_again_behind_its_event, MIB)
{
	(void)job_order(0, 0, 8, MIB);
	steps();
	assert_int_equal(table.copy_count, 2);
	table_reach(2);
	steps();
	assert_int_equal(table.copy_count, 3);
	job_ends(0);
	assert_int_equal(table.copy_count, 8);
}

UNIT_TEST_GATHER(gather_that_is_refused_ends_its_job_behind_its_event, MIB)
{
	table.codes[TABLE_GATHER] = KVPULL_EREAD;
	(void)job_order(0, 0, 2, MIB);
	steps();
	assert_true(no_end());
	job_ends(KVPULL_EREAD);
	assert_int_equal(table.copy_count, 1);
}

/* ---- what goes by pieces ---- */

static void job_goes_by_pieces(void)
{
	table.copy_count = 0;
	job_ends(0);
	assert_int_equal(table.copies[0].strips, 0);
	assert_int_equal(table.made[TABLE_GATHER], 0);
}

UNIT_TEST_FED(memory_that_does_not_gather_goes_by_pieces, MIB)
{
	(void)job_order(0, 0, 2, 64);
	job_goes_by_pieces();
}

/* Another GPU's: its driver copies long rows faster. */
UNIT_TEST(rows_longer_than_the_choice_go_by_pieces)
{
	assert_int_equal(feed_begin(MIB), 0);
	table.gathers = 16384;
	mapped(0, 4096 * MIB);
	(void)job_order(0, 0, 2, 16384);
	job_ends(0);
	assert_int_equal(table.copies[0].strips, 1);
	table.made[TABLE_GATHER] = 0;
	(void)job_order(0, 0, 2, 16384 + KVPULL_DEVICE_UNIT);
	job_goes_by_pieces();
	feed_end();
}

/* The member's address in the strip of the next job. */
static uint64_t *member_of(size_t offset)
{
	return (uint64_t *)(void *)((uint8_t *)&feeds.reads[0].strip + offset);
}

UNIT_TEST_GATHER(rows_that_are_not_of_units_go_by_pieces, MIB)
{
	static const size_t members[] = {
		offsetof(struct kvpull_strip, remote_offset),
		offsetof(struct kvpull_strip, remote_block_stride),
		offsetof(struct kvpull_strip, remote_row_stride),
		offsetof(struct kvpull_strip, local),
		offsetof(struct kvpull_strip, local_block_stride),
		offsetof(struct kvpull_strip, local_row_stride),
		offsetof(struct kvpull_strip, row_bytes),
	};
	size_t at;

	for (at = 0; at < sizeof(members) / sizeof(*members); at++) {
		(void)job_order(0, 0, 3, 64);
		*member_of(members[at]) += 8;
		job_goes_by_pieces();
	}
	(void)job_order(0, 0, 3, 64);
	feeds.regions[0].offset = 8;
	job_goes_by_pieces();
}

UNIT_TEST_GATHER(one_strip_that_is_not_of_units_is_enough, MIB)
{
	struct kvpull_strip strips[2];

	(void)job_order(0, 0, 3, 64);
	strips[0] = feeds.reads[0].strip;
	strips[1] = strips[0];
	strips[1].row_bytes = 60;
	feeds.reads[0].read.strips = strips;
	feeds.reads[0].read.strip_count = 2;
	job_goes_by_pieces();
}

/* ---- what is claimed ---- */

static void strip_is_refused(void)
{
	all_reached();
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, KVPULL_EPROTO), 0);
	assert_int_equal(table.copy_count, 0);
}

UNIT_TEST_GATHER(strip_beyond_its_mapping_is_not_gathered, UINT64_MAX)
{
	struct kvpull_strip *const strip = &feeds.reads[0].strip;

	/* The largest id counts, wherever it stands, and where the region begins. */
	(void)job_order(0, 0, 3, MIB);
	feeds.reads[0].ids[1] = 4096;
	strip_is_refused();
	(void)job_order(0, 0, 3, MIB);
	feeds.regions[0].offset = 4094 * MIB;
	strip_is_refused();
	(void)job_order(0, 0, 3, MIB);
	feeds.regions[0].offset = 4097 * MIB;
	strip_is_refused();
	(void)job_order(0, 0, 3, MIB);
	feeds.regions[0].offset = 4096 * MIB;
	strip_is_refused();
	(void)job_order(0, 0, 3, MIB);
	feeds.jobs[0].region_count = 0;
	strip_is_refused();
	/* Sums that begin again at 0. */
	(void)job_order(0, 0, 3, MIB);
	strip->remote_block_stride = UINT64_C(1) << 63;
	strip_is_refused();
	(void)job_order(0, 0, 3, MIB);
	strip->remote_offset = UINT64_MAX - MIB + 1;
	strip_is_refused();
}

UNIT_TEST_GATHER(strip_may_end_with_its_mapping, UINT64_MAX)
{
	(void)job_order(0, 0, 3, MIB);
	feeds.regions[0].offset = 4093 * MIB;
	job_ends(0);
	assert_int_equal(table.copies[0].source,
			 mapping_address() + 4093 * MIB);
}

UNIT_TEST(device_of_a_mapping_is_the_one_that_was_claimed)
{
	assert_int_equal(feed_begin(MIB), 0);
	feeds.feed.mappings[0].uuid[15] = 34;
	mapped(0, 4096 * MIB);
	assert_int_equal(table.uuid[15], 34);
	feed_end();
}
