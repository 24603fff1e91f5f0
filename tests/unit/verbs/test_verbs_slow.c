/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rail that is slow over the fake fabric: reads go by the other one, late
 * parts of reads are read again there, and late answers never land in blocks
 * that were given back.
 */
#include "tests/unit/verbs/world.h"

#include "verbs/pace.h"
#include "verbs/run.h"
#include "verbs/spread.h"

#define LATE_MS ((uint32_t)(KVPULL_PACE_LATE_NS / KVPULL_NS_PER_MS))

static uint32_t pull(uint32_t steps_max)
{
	uint32_t steps = 0;

	world.d.reads_done = 0;
	memset(world.d.memory, 0, WORLD_BYTES);
	assert_int_equal(world_read_start(), 0);
	while (!world.d.reads_done && steps < steps_max) {
		world_run(1);
		steps++;
	}
	world_read_is_good();
	return steps;
}

/* Rail 1 answers a read that late, and is in time again after that. */
static void answers_late(uint32_t ms)
{
	fake_verbs_knobs.held_devices = 2;
	world.d.reads_done = 0;
	world_read_run(ms);
	assert_int_equal(world.d.reads_done, 0);
	fake_verbs_knobs.held_devices = 0;
	world_read_ends_well(3);
}

UNIT_TEST_RAILS(reads_leave_a_rail_that_answered_late)
{
	uint32_t before;
	uint32_t at;

	pull(3);
	answers_late(50);
	before = world_reads_by(1);
	for (at = 0; at < 100; at++)
		pull(3);
	assert_int_equal(world_reads_by(1), before);
}

UNIT_TEST_RAILS(rail_that_is_in_time_again_shares_after_its_rest)
{
	uint32_t trials;
	uint32_t before;

	pull(3);
	answers_late(50);
	world_run(51 * KVPULL_PACE_REST_TIMES + 1);
	for (trials = 0; trials < 10; trials++) {
		pull(3);
		world_run(2 * KVPULL_PACE_REST_TIMES);
	}
	before = world_reads_by(1);
	pull(3);
	assert_int_equal(world_reads_by(1) - before, WORLD_BLOCKS / 2);
}

/* Checks are asked of the rail that answers soonest, too. */
UNIT_TEST_RAILS(check_leaves_a_rail_that_answered_late)
{
	uint32_t at;

	pull(3);
	answers_late(50);
	for (at = 0; at < 10; at++) {
		world.d.checks_done = 0;
		assert_int_equal(world_check_start(), 0);
		world_run(3);
		assert_int_equal(world.d.checks_done, 1);
	}
	assert_int_equal(fake_verbs_device_count(1, FAKE_VERBS_CHECK), 0);
}

/* Rail 1 holds half of a read, which is late in a moment; rail 0 is idle. */
static void half_is_late(void)
{
	pull(3);
	fake_verbs_knobs.held_devices = 2;
	memset(world.d.memory, 0, WORLD_BYTES);
	world.d.reads_done = 0;
	world_read_run(LATE_MS - 1);
	assert_int_equal(world.d.reads_done, 0);
	assert_int_equal(side_counts(&world.d)->requests_moved, 0);
}

UNIT_TEST_RAILS(late_part_is_read_by_an_idle_rail)
{
	half_is_late();
	world_read_ends_well(WORLD_MS_FLUSHED);
	assert_int_equal(side_counts(&world.d)->requests_moved,
			 WORLD_BLOCKS / 2);
	/* It comes again, and trials find it as late as before. */
	world_run(2000);
	pull(3);
	assert_int_equal(world.d.downs + world.p.downs, 0);
}

UNIT_TEST_RAILS(sleeper_is_woken_when_a_rail_is_late)
{
	const struct kvpull_verbs_bundle *bundle = world_bundle();

	half_is_late();
	assert_in_range(kvpull_verbs_bundle_due_ns(bundle), world.now_ns,
			world.now_ns + 2 * WORLD_STEP_NS);
	world_read_ends_well(WORLD_MS_FLUSHED);
}

/* The answers come in the worst moments: just before and after the end. */
UNIT_TEST_RAILS(late_answer_never_lands_in_a_block_that_was_given_back)
{
	uint32_t steps = 0;

	half_is_late();
	/* Until its queue pair is gone the read is not told as done. */
	world_run(90);
	assert_int_equal(world.d.reads_done, 0);
	while (!world.d.reads_done && steps++ < WORLD_MS_FLUSHED)
		world_run(1);
	world_read_is_good();
	memset(world.d.memory, 0x5a, WORLD_BYTES);
	fake_verbs_knobs.held_devices = 0;
	fake_verbs_run();
	world_run(20);
	for (steps = 0; steps < WORLD_BYTES; steps++)
		assert_int_equal(world.d.memory[steps], 0x5a);
	assert_int_equal(world.d.reads_done, 1);
}

/*
 * What is answered while the rail is flushed counts, and is not read again. It
 * does not make the rail a fast one.
 */
UNIT_TEST_RAILS(late_part_that_comes_while_the_rail_is_flushed_is_good)
{
	const struct kvpull_verbs_bundle *bundle = world_bundle();

	half_is_late();
	world_run(5);
	fake_verbs_knobs.held_devices = 0;
	world_read_ends_well(WORLD_MS_FLUSHED);
	assert_int_equal(side_counts(&world.d)->requests_moved, 0);
	assert_true(bundle->ends[1].pace.ns[KVPULL_PACE_SMALL] >=
		    KVPULL_PACE_LATE_NS);
}

UNIT_TEST_RAILS(cancelled_read_of_a_late_rail_ends_as_before)
{
	half_is_late();
	world_read_cancel();
	world_run(5);
	assert_int_equal(world.d.reads_done, 0);
	world_run(WORLD_MS_FLUSHED);
	world_read_ended(KVPULL_EABORTED);
	assert_int_equal(world.d.downs, 0);
}

/*
 * Either rail holds its half when the peer ends. The other rail is quiet at
 * once; neither the read nor the peer is told before the held rail is quiet.
 */
UNIT_TEST(peer_ends_when_its_last_rail_is_quiet)
{
	uint32_t held;
	uint32_t at;

	for (held = 0; held < 2; held++) {
		(void)world_rails_up(state);
		fake_verbs_knobs.held_devices = 1u << held;
		world_read_run(3);
		assert_int_equal(world_reads_by(!held), WORLD_BLOCKS / 2);
		world_disconnect();
		world_run(90);
		assert_int_equal(world_bundle()->ends[!held].state,
				 KVPULL_VERBS_QUIET);
		assert_int_equal(world.d.reads_done + world.d.downs, 0);
		world_run(30);
		world_read_ended(KVPULL_EPEER);
		assert_int_equal(world.d.downs, 1);
		memset(world.d.memory, 0x5a, WORLD_BYTES);
		fake_verbs_knobs.held_devices = 0;
		fake_verbs_run();
		for (at = 0; at < WORLD_BYTES; at++)
			assert_int_equal(world.d.memory[at], 0x5a);
		assert_int_equal(world_down(state), 0);
	}
}

/* The consumer's own pause is not the rail's. */
UNIT_TEST_RAILS(consumer_that_slept_gives_up_no_rail)
{
	pull(3);
	assert_int_equal(world_read_start(), 0);
	world.d.reads_done = 0;
	world.now_ns += 10 * KVPULL_PACE_LATE_NS;
	side_poll(&world.p);
	side_poll(&world.d);
	world_read_ends_well(3);
	assert_int_equal(side_counts(&world.d)->requests_moved, 0);
	pull(3);
	assert_true(world_reads_by(1) > WORLD_BLOCKS);
}

UNIT_TEST_RAILS(rail_with_completions_to_look_at_is_not_given_up)
{
	struct kvpull_verbs_bundle *bundle = world_bundle();

	half_is_late();
	bundle->shared->now_ns += 2 * WORLD_STEP_NS;
	kvpull_verbs_spread_cut(bundle);
	assert_int_equal(bundle->ends[1].state, KVPULL_VERBS_IN);
	bundle->ends[1].empty_ns = bundle->shared->now_ns;
	kvpull_verbs_spread_cut(bundle);
	assert_int_equal(bundle->ends[1].state, KVPULL_VERBS_LOST);
	assert_int_equal(bundle->ends[0].state, KVPULL_VERBS_IN);
	world_read_ends_well(WORLD_MS_FLUSHED);
}

#define MIB (UINT64_C(1) << 20)

UNIT_TEST(batches_are_the_fast_rails_shares)
{
	struct kvpull_verbs_shared shared = { .lane_count = 2 };
	struct kvpull_verbs_bundle bundle = { .shared = &shared,
					      .state = KVPULL_BUNDLE_IN };
	struct kvpull_verbs_end ends[2];
	struct kvpull_pace *pace;

	memset(ends, 0, sizeof(ends));
	pace = &ends[1].pace;
	bundle.ends = ends;
	ends[0].shared = ends[1].shared = &shared;
	ends[0].state = ends[1].state = KVPULL_VERBS_IN;
	ends[1].place = 1;
	shared.params.window_bytes = 16 * MIB;
	assert_int_equal(kvpull_verbs_spread_share(&bundle, &ends[1], MIB),
			 MIB / 2);
	assert_int_equal(kvpull_verbs_spread_share(&bundle, &ends[1], 1),
			 KVPULL_PACE_BYTES);
	assert_int_equal(kvpull_verbs_spread_share(&bundle, NULL, 64 * MIB),
			 4 * MIB);
	ends[0].pace.ns[KVPULL_PACE_LARGE] = 1;
	pace->ns[KVPULL_PACE_LARGE] = KVPULL_PACE_BAND + 1;
	assert_int_equal(kvpull_verbs_spread_share(&bundle, &ends[1], MIB),
			 KVPULL_PACE_BYTES);
	assert_int_equal(kvpull_verbs_spread_share(&bundle, &ends[0], MIB),
			 MIB);
}

/* No other rail could read it sooner. */
UNIT_TEST_RAILS(only_rail_is_never_late)
{
	pull(3);
	fake_verbs_knobs.answer = FAKE_VERBS_SILENCE;
	fake_verbs_cut_device(0);
	world_run(WORLD_MS_FLUSHED);
	fake_verbs_knobs.held_devices = 2;
	world.d.reads_done = 0;
	world_read_run(10 * LATE_MS);
	assert_int_equal(world.d.reads_done, 0);
	fake_verbs_knobs.held_devices = 0;
	world_read_ends_well(3);
}
