/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads that wait for their turn, or for another rail: in which order they are
 * posted, and what a cancel leaves of the others.
 */
#include "tests/unit/verbs/world.h"

#include "verbs/bundle.h"
#include "verbs/cursor.h"
#include "verbs/run.h"

#define READS 4u
#define HALF (WORLD_BLOCKS / 2)

/* Reads of all blocks, which end as these say, in this order. */
static struct kvpull_read reads[READS];
static uint32_t order[READS];
static int32_t codes[READS];
static uint32_t ended;

static void reads_begin(void)
{
	uint32_t i;

	ended = 0;
	memset(world.d.memory, 0, WORLD_BYTES);
	for (i = 0; i < READS; i++) {
		reads[i] = world.read;
		reads[i].index = i;
	}
}

static int start(uint32_t index)
{
	return world_start(&reads[index]);
}

static void cancel(uint32_t index)
{
	world_cancel(&reads[index]);
}

static void run(uint32_t ms)
{
	struct kvpull_event events[8];
	int count;
	int i;

	for (; ms; ms--) {
		side_step(&world.p);
		count = world.d.route->ops->poll(world.d.route, world.now_ns,
						 events, 8);
		for (i = 0; i < count; i++) {
			if (events[i].kind != KVPULL_EVENT_READ_DONE) {
				side_event(&world.d, &events[i]);
				continue;
			}
			assert_in_range(ended, 0, READS - 1);
			order[ended] = events[i].read->index;
			codes[ended++] = events[i].code;
		}
	}
}

static void ended_as(uint32_t at, uint32_t index, int32_t code)
{
	assert_true(at < ended);
	assert_int_equal(order[at], index);
	assert_int_equal(codes[at], code);
}

/* The only rail takes eight work requests at once, of 64 of each read. */
static void narrow_up(void)
{
	(void)world_rails_open();
	world.rails = 1;
	world.depth = 8;
	world_consumer_again();
	world_comes_up(20);
	reads_begin();
}

UNIT_TEST(read_that_waits_is_cancelled_at_once_and_the_others_are_read)
{
	uint32_t cancelled;

	for (cancelled = 1; cancelled < READS; cancelled++) {
		uint32_t i;

		narrow_up();
		fake_verbs_knobs.held = 1;
		for (i = 0; i < READS; i++)
			assert_int_equal(start(i), 0);
		run(3);
		assert_int_equal(ended, 0);
		cancel(cancelled);
		cancel(cancelled);
		run(1);
		assert_int_equal(ended, 1);
		ended_as(0, cancelled, KVPULL_EABORTED);
		fake_verbs_knobs.held = 0;
		run(200);
		assert_int_equal(ended, READS);
		for (i = 1; i < READS; i++)
			assert_int_equal(codes[i], 0);
		assert_memory_equal(world.p.memory, world.d.memory,
				    WORLD_BYTES);
		assert_int_equal(fake_verbs_count(FAKE_VERBS_READ),
				 (READS - 1) * WORLD_BLOCKS);
		assert_int_equal(world.d.downs, 0);
		assert_int_equal(world_down(state), 0);
	}
}

UNIT_TEST(urgent_read_is_posted_before_those_that_wait)
{
	uint32_t i;

	narrow_up();
	fake_verbs_knobs.held = 1;
	reads[3].priority = -1;
	for (i = 0; i < READS; i++)
		assert_int_equal(start(i), 0);
	run(3);
	assert_int_equal(ended, 0);
	fake_verbs_knobs.held = 0;
	run(200);
	assert_int_equal(ended, READS);
	ended_as(0, 3, 0);
	assert_memory_equal(world.p.memory, world.d.memory, WORLD_BYTES);
	assert_int_equal(world_down(state), 0);
}

/* A read whose end was told is not cancelled, nor what is none. */
UNIT_TEST(cancel_that_comes_too_late_changes_nothing)
{
	narrow_up();
	assert_int_equal(start(0), 0);
	run(20);
	ended_as(0, 0, 0);
	cancel(0);
	cancel(1);
	run(5);
	assert_int_equal(ended, 1);
	assert_int_equal(start(0), 0);
	run(20);
	ended_as(1, 0, 0);
	assert_int_equal(world_down(state), 0);
}

/* Batches of a read that an end has not seen done. */
static uint32_t batches_of(const struct kvpull_verbs_end *end, uint32_t read)
{
	uint32_t count = 0;
	uint32_t i;

	for (i = 0; i < end->batch_count; i++) {
		const struct kvpull_verbs_batch *batch =
			&end->batches[(end->batch_first + i) % end->queue_max];

		count +=
			batch->kind == KVPULL_VERBS_READ && batch->read == read;
	}
	return count;
}

/* Two batches are in flight at once: at first two of read 0, which came first. */
UNIT_TEST(eighth_batch_is_the_oldest_reads)
{
	static const uint32_t posted[][READS] = {
		{ 2, 0, 0, 0 }, { 0, 1, 1, 0 }, { 0, 1, 0, 1 }, { 1, 0, 1, 0 },
		{ 0, 1, 0, 1 }, { 0, 0, 1, 1 }, { 0, 1, 1, 0 }, { 1, 0, 0, 1 },
	};
	uint32_t round;
	uint32_t i;

	narrow_up();
	fake_verbs_knobs.held = 1;
	for (i = 0; i < READS; i++) {
		reads[i].priority = i ? -1 : 0;
		assert_int_equal(start(i), 0);
	}
	for (round = 0; round < 8; round++) {
		for (i = 0; i < READS; i++)
			assert_int_equal(batches_of(fake_verbs_owner(1), i),
					 posted[round][i]);
		fake_verbs_knobs.held = 0;
		fake_verbs_knobs.budget = 8;
		run(1);
	}
	fake_verbs_knobs.held = 0;
	run(200);
	assert_int_equal(ended, READS);
	assert_memory_equal(world.p.memory, world.d.memory, WORLD_BYTES);
	assert_int_equal(world_down(state), 0);
}

/* Two rails of eight work requests each; both hold parts of two reads. */
static const struct kvpull_verbs_bundle *two_reads_wait(void)
{
	const struct kvpull_verbs_bundle *bundle;

	world_shallow_rails_up();
	bundle = world_bundle();
	reads_begin();
	fake_verbs_knobs.held_devices = 3;
	assert_int_equal(start(0), 0);
	assert_int_equal(start(1), 0);
	/* All of rail 1 make room for one batch of either. */
	fake_verbs_knobs.held_devices = 1;
	fake_verbs_knobs.budget = 8;
	run(2);
	fake_verbs_knobs.held = 0;
	fake_verbs_knobs.held_devices = 3;
	assert_true(batches_of(&bundle->ends[1], 0) > 0);
	assert_true(batches_of(&bundle->ends[1], 1) > 0);
	return bundle;
}

/* Both wait in the lost rail, for room in the other one. */
UNIT_TEST(cancel_drops_only_its_own_parts_of_a_lost_rail)
{
	uint32_t which;

	for (which = 0; which < 2; which++) {
		const struct kvpull_verbs_bundle *bundle = two_reads_wait();
		uint32_t other;

		fake_verbs_cut_device(1);
		run(WORLD_MS_FLUSHED);
		assert_int_equal(bundle->ends[1].state, KVPULL_VERBS_QUIET);
		assert_int_equal(bundle->redo_open, 2);
		other = batches_of(&bundle->ends[1], !which);
		cancel(which);
		assert_int_equal(batches_of(&bundle->ends[1], which), 0);
		assert_int_equal(batches_of(&bundle->ends[1], !which), other);
		assert_int_equal(bundle->redo_open, other);
		fake_verbs_knobs.held_devices = 0;
		run(60);
		assert_int_equal(ended, 2);
		ended_as(codes[0] ? 0 : 1, which, KVPULL_EABORTED);
		ended_as(codes[0] ? 1 : 0, !which, 0);
		assert_memory_equal(world.p.memory, world.d.memory,
				    WORLD_BYTES);
		assert_int_equal(bundle->redo_open, 0);
		assert_int_equal(world.d.downs, 0);
		assert_int_equal(world_down(state), 0);
	}
}

/* The ring of batches begins anywhere in its memory when its rail is lost. */
UNIT_TEST(parts_of_a_lost_rail_are_found_around_the_end_of_their_ring)
{
	const struct kvpull_verbs_end *end;
	uint32_t gap;

	for (gap = 1; gap <= 5; gap += 2) {
		uint32_t pulls = 0;

		(void)world_rails_up(state);
		end = &world_bundle()->ends[1];
		while (end->batch_first + gap < end->queue_max) {
			assert_in_range(++pulls, 1, 1000);
			world.d.reads_done = 0;
			world_read_run(2);
			if (end->batch_first + 8 >= end->queue_max)
				break;
		}
		memset(world.d.memory, 0, WORLD_BYTES);
		world.d.reads_done = 0;
		world_read_held_by(2, 0);
		assert_true(end->batch_first + end->batch_count >
			    end->queue_max);
		fake_verbs_cut_device(1);
		world_read_ends_well(WORLD_MS_FLUSHED);
		assert_int_equal(world_down(state), 0);
	}
}

/* A sleeper is not kept awake by what waits for room, which wakes it. */
UNIT_TEST(sleeper_waits_for_room_without_polls)
{
	struct kvpull_verbs_bundle *bundle;
	uint32_t tries = 0;

	world_shallow_rails_up();
	bundle = world_bundle();
	world_read_held_by(3, 0);
	fake_verbs_cut_device(1);
	world_run(1000);
	assert_int_equal(bundle->ends[1].state, KVPULL_VERBS_QUIET);
	assert_true(bundle->redo_open > 0);
	while (kvpull_verbs_bundle_arm(bundle))
		assert_in_range(++tries, 1, 10);
	fake_verbs_knobs.held_devices = 0;
	world_read_ends_well(20);
	assert_int_equal(world_down(state), 0);
}

/* Rows that lie end to end on both sides are one part of one slice. */
UNIT_TEST(rows_join_only_where_both_sides_have_them_end_to_end)
{
	static const struct kvpull_keys keys = { .mr_shift = 40 };
	const struct kvpull_slice_limits limits = { .bytes_max = 1 << 20,
						    .parts_max = 8,
						    .mr_shift = 40,
						    .keys = &keys };
	static const struct {
		uint64_t remote_stride, local_stride;
		uint32_t slices, parts;
	} rows[] = {
		{ 64, 64, 1, 1 },
		{ 64, 96, 1, 2 },
		{ 96, 64, 2, 1 },
		{ 96, 96, 2, 1 },
	};
	static uint8_t local[256];
	uint32_t ids[1] = { 0 };
	uint32_t group_first[KVPULL_GROUPS_MAX + 1] = { 0, 1 };
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kvpull_strip strip = {
			.remote_block_stride = 256,
			.remote_row_stride = rows[i].remote_stride,
			.local = local,
			.local_block_stride = 256,
			.local_row_stride = rows[i].local_stride,
			.row_bytes = 64,
			.row_count = 2,
		};
		const struct kvpull_read read = { .strip_count = 1,
						  .strips = &strip,
						  .remote_ids = ids,
						  .local_ids = ids,
						  .group_first = group_first };
		struct kvpull_cursor cursor;
		struct kvpull_slice slice;
		uint32_t slices = 0;

		kvpull_cursor_seek(&cursor, &read, 0);
		while (!kvpull_cursor_is_done(&cursor, &read)) {
			kvpull_cursor_next(&cursor, &read, &limits, &slice);
			assert_int_equal(slice.part_count, rows[i].parts);
			slices++;
		}
		assert_int_equal(slices, rows[i].slices);
	}
}
