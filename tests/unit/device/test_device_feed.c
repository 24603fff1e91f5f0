/* SPDX-License-Identifier: Apache-2.0 */
/* Orders to a device, step by step: slices, turns, events, errors. */
#include "tests/unit/device/feeds.h"

#include "tests/lib/unit.h"
#include "tests/unit/device/table.h"

static uint64_t mapping_address(uint32_t mapping)
{
	return feeds.feed.mappings[mapping].memory.address;
}

/* ---- slices ---- */

UNIT_TEST_FED(slice_has_at_most_64_MiB, UINT64_MAX)
{
	uint32_t at;

	(void)job_order(0, 0, 3, 100 * MIB);
	job_ends(0);
	assert_int_equal(table.copy_count, 5);
	for (at = 0; at < 4; at++)
		assert_int_equal(table.copies[at].bytes, 64 * MIB);
	assert_int_equal(table.copies[4].bytes, 44 * MIB);
}

UNIT_TEST_FED(slice_has_what_the_device_copies_in_a_millisecond, MIB)
{
	uint32_t at;

	(void)job_order(0, 0, 40, MIB / 4);
	job_ends(0);
	assert_int_equal(table.copy_count, 10);
	for (at = 0; at < 10; at++) {
		assert_int_equal(table.copies[at].bytes, MIB);
		assert_int_equal(table.copies[at].pieces, 4);
	}
}

UNIT_TEST_FED(slice_of_a_slow_device_has_64_KiB, 1)
{
	(void)job_order(0, 0, 2, 65536);
	all_reached();
	assert_int_equal(table.copy_count, 2);
	assert_int_equal(table.copies[1].bytes, 65536);
}

/* The device copies so many bytes in a millisecond, and is late by so long. */
static void slices_take(uint64_t bytes_per_ms, uint64_t late_ns)
{
	struct kvpull_device_feed *const feed = &feeds.feed;

	steps();
	while (feed->slice_count) {
		const uint64_t bytes = feed->slices[feed->slice_first %
						    KVPULL_DEVICE_SLICES_MAX]
					       .bytes;

		feeds.now_ns +=
			bytes * KVPULL_NS_PER_MS / bytes_per_ms + late_ns;
		/* A copy and its record. */
		table_reach(2);
		steps();
	}
}

UNIT_TEST(slices_of_a_slower_device_become_shorter)
{
	assert_int_equal(feed_begin(64 * MIB), 0);
	mapped(0, 4096 * MIB);
	(void)job_order(0, 0, 20, 64 * MIB);
	slices_take(16 * MIB, 0);
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, 0), 0);
	assert_int_equal(table.copies[1].bytes, 64 * MIB);
	assert_int_equal(table.copies[2].bytes, 52 * MIB);
	assert_in_range(table.copies[table.copy_count - 2].bytes, 16 * MIB,
			17 * MIB);
	feed_end();
}

UNIT_TEST_FED(slices_of_a_faster_device_become_longer, MIB)
{
	(void)job_order(0, 0, 20, 64 * MIB);
	slices_take(1024 * MIB, 20000);
	assert_int_equal(table.copies[1].bytes, MIB);
	assert_int_equal(table.copies[table.copy_count - 2].bytes, 64 * MIB);
}

/* Small ones are seen late, and an engine may keep its mark for long. */
UNIT_TEST_FED(slices_that_say_nothing_of_the_device_change_no_length, MIB)
{
	(void)job_order(0, 0, 1, 4096);
	slices_take(1024 * MIB, 20000);
	assert_int_equal(feeds.feed.slice_bytes, MIB);
	job_order(1, 0, 1, MIB)->after = table_mark();
	slices_take(1024 * MIB, 100 * KVPULL_NS_PER_MS);
	assert_int_equal(feeds.feed.slice_bytes, MIB);
}

static void pieces_are_counted(enum reads_shape shape)
{
	table.copy_count = 0;
	reads_shape = shape;
	(void)job_order(0, 0, READS_BLOCKS_MAX, 64);
	reads_shape = READS_APART_HERE;
	job_ends(0);
	assert_int_equal(table.copies[0].pieces, KVPULL_DEVICE_PIECES_MAX);
	assert_int_equal(table.copies[1].pieces,
			 READS_BLOCKS_MAX - KVPULL_DEVICE_PIECES_MAX);
}

UNIT_TEST_FED(slice_has_no_more_pieces_than_the_table_takes, UINT64_MAX)
{
	pieces_are_counted(READS_APART_HERE);
	pieces_are_counted(READS_APART_THERE);
}

UNIT_TEST_FED(rows_side_by_side_are_one_piece, UINT64_MAX)
{
	reads_shape = READS_CLOSE;
	(void)job_order(0, 0, READS_BLOCKS_MAX, 64);
	reads_shape = READS_APART_HERE;
	all_reached();
	assert_int_equal(table.copy_count, 1);
	assert_int_equal(table.copies[0].pieces, 1);
	assert_int_equal(table.copies[0].bytes, READS_BLOCKS_MAX * 64);
}

UNIT_TEST_FED(two_slices_are_queued_at_once, MIB)
{
	(void)job_order(0, 0, 8, MIB);
	steps();
	assert_int_equal(table.copy_count, 2);
	/* The copy itself is reached, and its event is not. */
	table_reach(1);
	steps();
	assert_int_equal(table.copy_count, 2);
	table_reach(1);
	steps();
	assert_int_equal(table.copy_count, 3);
}

UNIT_TEST_FED(jobs_take_turns, MIB)
{
	uint32_t at;

	mapped(1, 4096 * MIB);
	(void)job_order(0, 0, 8, MIB);
	(void)job_order(1, 1, 4, MIB);
	all_reached();
	/* The first one had both slices before the other came. */
	for (at = 2; at < 10; at++)
		assert_int_equal(table.copies[at].source >= mapping_address(1),
				 at % 2 == 0);
	/* The short one ends first. */
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, 0), 1);
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, 0), 0);
}

/* The eighth turn is the older one's. */
UNIT_TEST_FED(urgent_job_has_seven_turns_of_eight, MIB)
{
	uint32_t at;

	mapped(1, 4096 * MIB);
	(void)job_order(0, 0, 20, MIB);
	(void)job_order(1, 1, 20, MIB);
	feeds.reads[1].read.priority = -5;
	all_reached();
	for (at = 1; at < 17; at++)
		assert_int_equal(table.copies[at].source >= mapping_address(1),
				 at % 8 != 7);
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, 0), 1);
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, 0), 0);
}

/* ---- ends ---- */

UNIT_TEST_FED(job_ends_behind_the_event_of_its_last_slice, MIB)
{
	uint32_t at;

	(void)job_order(0, 0, 3, MIB);
	for (at = 0; at < 5; at++) {
		steps();
		assert_true(no_end());
		table_reach(1);
	}
	steps();
	assert_true(no_end());
	table_reach(1);
	steps();
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, 0), 0);
	assert_int_equal(feeds.jobs[0].code, 0);
}

UNIT_TEST_FED(job_of_no_rows_ends_without_a_call, MIB)
{
	(void)job_order(0, 0, 0, MIB);
	steps();
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, 0), 0);
	assert_string_equal(table.words, " import");
}

UNIT_TEST_FED(memory_is_unmapped_behind_the_last_event, MIB)
{
	(void)job_order(0, 0, 2, MIB);
	order(KVPULL_DEVICE_UNMAP, 0);
	/* The table ends the program that unmaps under a copy. */
	steps();
	assert_int_equal(table.mapped, 1);
	table_reach(3);
	steps();
	assert_int_equal(table.mapped, 1);
	table_reach(1);
	steps();
	assert_int_equal(table.mapped, 0);
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, 0), 0);
	assert_int_equal(end_take(KVPULL_DEVICE_UNMAP, 0), 0);
	assert_string_equal(table.words,
			    " import copy record copy record unmap");
}

UNIT_TEST_FED(unmap_waits_for_no_job_of_another_mapping, MIB)
{
	mapped(1, 4096 * MIB);
	(void)job_order(0, 0, 8, MIB);
	steps();
	order(KVPULL_DEVICE_UNMAP, 1);
	steps();
	assert_int_equal(end_take(KVPULL_DEVICE_UNMAP, 0), 1);
	assert_true(no_end());
}

UNIT_TEST_FED(cancel_ends_the_feeding_and_waits_for_what_is_queued, MIB)
{
	(void)job_order(0, 0, 8, MIB);
	steps();
	order(KVPULL_DEVICE_CANCEL, 0);
	steps();
	assert_int_equal(table.copy_count, 2);
	assert_true(no_end());
	table_reach(2);
	steps();
	assert_true(no_end());
	table_reach(2);
	steps();
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, KVPULL_EABORTED), 0);
	assert_int_equal(feeds.jobs[0].code, KVPULL_EABORTED);
	assert_int_equal(table.copy_count, 2);
	/* The index is another job's now: a late cancel is nobody's. */
	order(KVPULL_DEVICE_CANCEL, 0);
	(void)job_order(0, 0, 1, MIB);
	job_ends(0);
}

UNIT_TEST_FED(cancel_of_what_is_queued_whole_changes_nothing, MIB)
{
	(void)job_order(0, 0, 2, MIB);
	steps();
	order(KVPULL_DEVICE_CANCEL, 0);
	job_ends(0);
}

/* ---- marks ---- */

UNIT_TEST_FED(copy_waits_for_its_mark_once, MIB)
{
	job_order(0, 0, 2, MIB)->after = table_mark();
	job_ends(0);
	assert_string_equal(table.words,
			    " import wait copy record copy record");
}

UNIT_TEST(job_of_no_rows_ends_when_its_mark_is_reached)
{
	assert_int_equal(feed_begin(MIB), 0);
	job_order(0, 0, 0, MIB)->after = table_mark();
	steps();
	assert_string_equal(table.words, " wait record");
	assert_true(no_end());
	job_ends(0);
	feed_end();
}

UNIT_TEST_FED(mark_that_cannot_be_waited_for_ends_the_job_without_a_copy, MIB)
{
	table.codes[TABLE_WAIT] = KVPULL_EUNSUPPORTED;
	job_order(0, 0, 2, MIB)->after = table_mark();
	steps();
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, KVPULL_EUNSUPPORTED), 0);
	assert_int_equal(table.copy_count, 0);
}

/* ---- errors ---- */

UNIT_TEST(jobs_of_an_import_that_failed_end_with_its_code)
{
	assert_int_equal(feed_begin(MIB), 0);
	table.codes[TABLE_IMPORT] = KVPULL_EROUTE;
	mapping_order(0, MIB);
	(void)job_order(0, 0, 2, 64);
	order(KVPULL_DEVICE_UNMAP, 0);
	steps();
	assert_int_equal(end_take(KVPULL_DEVICE_IMPORT, KVPULL_EROUTE), 0);
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, KVPULL_EROUTE), 0);
	assert_int_equal(end_take(KVPULL_DEVICE_UNMAP, 0), 0);
	assert_string_equal(table.words, " import");
	feed_end();
}

UNIT_TEST(region_may_begin_inside_its_mapping)
{
	assert_int_equal(feed_begin(UINT64_MAX), 0);
	mapped(0, 4 * MIB);
	(void)job_order(0, 0, 2, MIB);
	feeds.regions[0].offset = 2 * MIB;
	job_ends(0);
	assert_int_equal(table.copy_count, 1);
	assert_int_equal(table.copies[0].source, mapping_address(0) + 2 * MIB);
	feed_end();
}

UNIT_TEST(row_beyond_its_mapping_is_not_copied)
{
	assert_int_equal(feed_begin(UINT64_MAX), 0);
	mapped(0, 2 * MIB);
	(void)job_order(0, 0, 3, MIB);
	(void)job_order(1, 0, 1, MIB);
	feeds.jobs[1].region_count = 0;
	/* A region that leaves less room behind it, and one that lies outside. */
	(void)job_order(2, 0, 2, MIB);
	feeds.regions[2].offset = MIB;
	(void)job_order(3, 0, 1, MIB);
	feeds.regions[3].offset = 2 * MIB + 1;
	job_ends(KVPULL_EPROTO);
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, KVPULL_EPROTO), 1);
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, KVPULL_EPROTO), 2);
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, KVPULL_EPROTO), 3);
	assert_int_equal(table.copy_count, 0);
	feed_end();
}

UNIT_TEST_FED(copy_that_is_refused_ends_its_job_alone, MIB)
{
	table.codes[TABLE_COPY] = KVPULL_EUNSUPPORTED;
	(void)job_order(0, 0, 2, MIB);
	steps();
	table.codes[TABLE_COPY] = 0;
	(void)job_order(1, 0, 2, MIB);
	job_ends(KVPULL_EUNSUPPORTED);
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, 0), 1);
}

UNIT_TEST_FED(parts_of_a_refused_copy_are_waited_for, MIB)
{
	table.codes[TABLE_COPY] = KVPULL_EREAD;
	(void)job_order(0, 0, 1, MIB);
	order(KVPULL_DEVICE_UNMAP, 0);
	steps();
	assert_true(no_end());
	assert_string_equal(table.words, " import copy record");
	table_reach_all();
	steps();
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, KVPULL_EREAD), 0);
	assert_int_equal(end_take(KVPULL_DEVICE_UNMAP, 0), 0);
}

/* The device is lost by @call: all ends, and no call follows. */
static void lost_by(enum table_call call)
{
	uint32_t made = 0;
	uint32_t at;

	assert_int_equal(feed_begin(MIB), 0);
	mapped(0, 4096 * MIB);
	mapped(1, 4096 * MIB);
	table.codes[call] = KVPULL_EDEVICE;
	table.after[call] = call == TABLE_IMPORT ? 0 : 1;
	job_order(0, 0, 8, MIB)->after = table_mark();
	job_order(1, 0, 8, MIB)->after = table_mark();
	order(KVPULL_DEVICE_UNMAP, 0);
	if (call == TABLE_IMPORT)
		mapping_order(2, MIB);
	all_reached();
	for (at = 0; at < TABLE_CALLS; at++)
		made += table.made[at];
	if (call == TABLE_IMPORT)
		assert_int_equal(end_take(KVPULL_DEVICE_IMPORT, KVPULL_EDEVICE),
				 2);
	at = end_take(KVPULL_DEVICE_COPY, KVPULL_EDEVICE);
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, KVPULL_EDEVICE), 1 - at);
	assert_int_equal(end_take(KVPULL_DEVICE_UNMAP, 0), 0);
	/* And whatever is ordered later. */
	mapping_order(0, MIB);
	(void)job_order(0, 1, 8, MIB);
	order(KVPULL_DEVICE_UNMAP, 1);
	steps();
	assert_int_equal(end_take(KVPULL_DEVICE_IMPORT, KVPULL_EDEVICE), 0);
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, KVPULL_EDEVICE), 0);
	assert_int_equal(end_take(KVPULL_DEVICE_UNMAP, 0), 1);
	for (at = 0; at < TABLE_CALLS; at++)
		made -= table.made[at];
	assert_int_equal(made, 0);
	/* The table says the line of a refused call, not the feed. */
	assert_int_equal(errors_logged(), 0);
	feed_lost();
}

UNIT_TEST(lost_device_ends_all_jobs_and_gets_no_call)
{
	lost_by(TABLE_IMPORT);
	lost_by(TABLE_COPY);
	lost_by(TABLE_RECORD);
	lost_by(TABLE_QUERY);
	lost_by(TABLE_WAIT);
}

UNIT_TEST(copy_without_an_event_ends_the_device)
{
	assert_int_equal(feed_begin(MIB), 0);
	mapped(0, 4096 * MIB);
	table.codes[TABLE_RECORD] = KVPULL_EUNSUPPORTED;
	(void)job_order(0, 0, 1, MIB);
	steps();
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, KVPULL_EDEVICE), 0);
	feed_lost();
}

UNIT_TEST(slice_that_hangs_keeps_its_job_and_ends_the_others)
{
	assert_int_equal(feed_begin(MIB), 0);
	mapped(0, 4096 * MIB);
	(void)job_order(0, 0, 2, MIB);
	steps();
	(void)job_order(1, 0, 1, MIB);
	steps_for(KVPULL_DEVICE_HANG_NS - 1);
	assert_true(no_end());
	steps_for(1);
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, KVPULL_EDEVICE), 1);
	assert_true(no_end());
	assert_int_equal(errors_logged(), 1);
	steps_for(KVPULL_DEVICE_HANG_NS);
	assert_int_equal(errors_logged(), 1);
	/* The copy has landed after all: blocks are not kept for ever. */
	table_reach_all();
	steps();
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, KVPULL_EDEVICE), 0);
	feed_lost();
}

/* The device may have been stopped, too: a machine that was paused. */
UNIT_TEST(time_in_which_nobody_looked_is_no_hang)
{
	assert_int_equal(feed_begin(MIB), 0);
	mapped(0, 4096 * MIB);
	(void)job_order(0, 0, 1, MIB);
	steps();
	feeds.now_ns += 100 * KVPULL_DEVICE_HANG_NS;
	steps();
	steps_for(KVPULL_DEVICE_HANG_NS - KVPULL_DEVICE_LOOK_NS - 1);
	assert_int_equal(errors_logged(), 0);
	steps_for(1);
	assert_int_equal(errors_logged(), 1);
	feed_lost();
}

UNIT_TEST(slice_that_waits_for_the_engine_does_not_hang)
{
	struct kvpull_device_event *const mark = table_mark();

	assert_int_equal(feed_begin(MIB), 0);
	mapped(0, 4096 * MIB);
	job_order(0, 0, 1, MIB)->after = table_mark();
	mark->recorded = UINT64_MAX;
	steps();
	steps_for(KVPULL_DEVICE_HANG_NS);
	/* Reached: from here on the time is the device's. */
	mark->recorded = 0;
	steps_for(KVPULL_DEVICE_HANG_NS - 1);
	assert_int_equal(errors_logged(), 0);
	steps_for(1);
	assert_int_equal(errors_logged(), 1);
	feed_lost();
}

UNIT_TEST(mark_that_loses_the_device_unmaps_nothing)
{
	assert_int_equal(feed_begin(MIB), 0);
	mapped(0, 4096 * MIB);
	mapped(1, 4096 * MIB);
	table.codes[TABLE_WAIT] = KVPULL_EDEVICE;
	/* Both slices are taken, so that the unmap is ordered before the wait. */
	(void)job_order(0, 1, 8, MIB);
	steps();
	job_order(1, 0, 1, MIB)->after = table_mark();
	order(KVPULL_DEVICE_UNMAP, 0);
	steps();
	table_reach(4);
	steps();
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, KVPULL_EDEVICE), 1);
	assert_int_equal(end_take(KVPULL_DEVICE_UNMAP, 0), 0);
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, KVPULL_EDEVICE), 0);
	assert_int_equal(table.mapped, 2);
	feed_lost();
}

UNIT_TEST_FED(slow_slices_one_after_the_other_do_not_hang, MIB)
{
	(void)job_order(0, 0, 6, MIB);
	slices_take(UINT64_MAX, KVPULL_DEVICE_HANG_NS - 1);
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, 0), 0);
	assert_int_equal(errors_logged(), 0);
}

/* ---- open and close ---- */

UNIT_TEST(events_that_cannot_be_opened_are_not_left)
{
	table_refuses_event = 1;
	assert_int_equal(feed_begin(MIB), KVPULL_ENOMEM);
	table_refuses_event = 0;
	assert_int_equal(table.open_events, 0);
	kvpull_arena_fini(&feeds.arena);
}

UNIT_TEST(close_leaves_memory_under_a_copy_as_it_is)
{
	assert_int_equal(feed_begin(MIB), 0);
	mapped(0, 4096 * MIB);
	(void)job_order(0, 0, 2, MIB);
	steps();
	assert_int_equal(kvpull_device_feed_close(&feeds.feed, feeds.now_ns),
			 1);
	assert_int_equal(table.mapped, 1);
	kvpull_arena_fini(&feeds.arena);
}

UNIT_TEST(close_unmaps_what_is_mapped_and_drops_orders)
{
	const uint32_t fds = fds_open();

	assert_int_equal(feed_begin(MIB), 0);
	mapped(0, 4096 * MIB);
	mapping_order(1, MIB);
	feed_end();
	assert_int_equal(table.mapped, 0);
	assert_int_equal(fds_open(), fds);
}

/* A process may end its worker while its own kernels run. */
UNIT_TEST(mark_that_was_not_reached_is_left_at_close)
{
	struct kvpull_device_event **marks;
	uint32_t at;

	assert_int_equal(feed_begin(UINT64_MAX), 0);
	marks = feeds.feed.marks;
	for (at = 0; at < MARKS; at++)
		assert_int_equal(feeds.feed.device->ops->event_open(
					 feeds.feed.device, &marks[at]),
				 0);
	assert_ptr_not_equal(marks[0], marks[1]);
	assert_int_equal(table.open_events, KVPULL_DEVICE_SLICES_MAX + MARKS);
	marks[0]->recorded = UINT64_MAX;
	/* The table would end the program, were it closed or any other left. */
	table.open_events--;
	feed_end();
}
