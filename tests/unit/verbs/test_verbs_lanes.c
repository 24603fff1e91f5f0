/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several queue pairs to a peer by each rail: how many there are, what goes by
 * each of them, and what becomes of reads when one is lost.
 */
#include "tests/unit/verbs/world.h"

#include "verbs/bundle.h"
#include "verbs/setup.h"

#define STRANGER "10.66.0.77"

static uint32_t lanes_in(const struct kvpull_verbs_bundle *bundle)
{
	uint32_t count = 0;
	uint32_t place;

	for (place = 0; place < bundle->shared->lane_count; place++)
		count += bundle->ends[place].state == KVPULL_VERBS_IN;
	return count;
}

/* P allows so many queue pairs by a rail, and D wants so many. */
static void lanes_up_as(uint32_t rails, uint32_t allowed, uint32_t wanted)
{
	world_rails_init(rails);
	world.qps = allowed;
	(void)world_open();
	world.qps = wanted;
	world_consumer_again();
	world_scatter();
	world_comes_up(20);
}

static void lanes_up(uint32_t rails, uint32_t qps)
{
	lanes_up_as(rails, qps, qps);
	assert_int_equal(lanes_in(world_bundle()), rails * qps);
}

UNIT_TEST(read_is_spread_over_every_queue_pair)
{
	uint32_t rails;
	uint32_t qps;

	for (rails = 1; rails <= 2; rails++)
		for (qps = 1; qps <= KVPULL_VERBS_QPS_MAX; qps++) {
			const uint32_t count = rails * qps;
			const struct kvpull_verbs_bundle *bundle;
			uint32_t place;

			lanes_up(rails, qps);
			assert_int_equal(fake_verbs_calls(), count);
			bundle = world_bundle();
			world_read_held(0);
			for (place = 0; place < count; place++)
				/* Four a doorbell: nobody is a doorbell ahead. */
				assert_in_range(
					bundle->ends[place].requests_open,
					WORLD_BLOCKS / count - 4,
					WORLD_BLOCKS / count + 4);
			fake_verbs_knobs.held = 0;
			world_read_ends_well(5);
			world_check_is_good();
			assert_int_equal(world_down(state), 0);
		}
}

UNIT_TEST_ATTACHED(default_is_one_queue_pair_a_rail)
{
	const struct kvpull_verbs_bundle *bundle = world_bundle();

	world_run(2000);
	assert_int_equal(bundle->shared->lane_count, 1);
	assert_int_equal(fake_verbs_calls(), 1);
	assert_int_equal(bundle->token[0] | bundle->token[1], 0);
}

/* The lesser value counts: nobody is called in vain, now or later. */
UNIT_TEST(both_sides_bound_the_queue_pairs)
{
	static const struct {
		uint32_t rails, allowed, wanted, lanes;
	} cases[] = {
		{ 1, 1, 4, 1 }, { 1, 4, 1, 1 }, { 1, 2, 4, 2 }, { 1, 3, 2, 2 },
		{ 2, 1, 4, 2 }, { 2, 4, 1, 2 }, { 2, 2, 3, 4 },
	};
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		lanes_up_as(cases[i].rails, cases[i].allowed, cases[i].wanted);
		world_run(2000);
		assert_int_equal(lanes_in(world_bundle()), cases[i].lanes);
		assert_int_equal(fake_verbs_calls(), cases[i].lanes);
		assert_int_equal(side_counts(&world.p)->calls_refused, 0);
		assert_int_equal(world_down(state), 0);
	}
}

/* The configuration refuses more; a table of this size must not be overrun. */
UNIT_TEST(route_opens_no_more_queue_pairs_than_there_are_places)
{
	struct kvpull_verbs_params params = { .qps = KVPULL_VERBS_QPS_MAX + 1 };

	kvpull_verbs_setup_defaults(&params);
	assert_int_equal(params.qps, KVPULL_VERBS_QPS_MAX);
}

/* Whichever is the last one: the read ends, and the entry is asked, after it. */
UNIT_TEST(read_ends_after_the_last_queue_pair)
{
	uint32_t place;

	for (place = 0; place < KVPULL_VERBS_QPS_MAX; place++) {
		lanes_up(1, KVPULL_VERBS_QPS_MAX);
		fake_verbs_knobs.held_owner = &world_bundle()->ends[place];
		world_read_run(10);
		assert_int_equal(fake_verbs_count(FAKE_VERBS_READ),
				 WORLD_BLOCKS -
					 WORLD_BLOCKS / KVPULL_VERBS_QPS_MAX);
		assert_int_equal(world.d.reads_done, 0);
		fake_verbs_knobs.held_owner = NULL;
		world_read_ends_well(5);
		world_check_is_good();
		assert_int_equal(world_down(state), 0);
	}
}

/*
 * The lost one's part waits until nothing can land by it any more. Then the others
 * read that part, also where notifications went by it; it is built again.
 */
UNIT_TEST(queue_pair_lost_in_mid_read_costs_no_byte)
{
	uint32_t place;

	for (place = 0; place < 2 * 2; place++) {
		const struct kvpull_verbs_bundle *bundle;
		uint32_t calls;

		lanes_up(2, 2);
		bundle = world_bundle();
		calls = fake_verbs_calls();
		fake_verbs_knobs.held_owner = &bundle->ends[place];
		world_read_run(3);
		fake_verbs_cut_owner(&bundle->ends[place]);
		world_run(90);
		assert_int_equal(world.d.reads_done, 0);
		assert_int_equal(lanes_in(bundle), 3);
		assert_int_equal(world_note_send(7), 0);
		world_read_ends_well(2 * WORLD_MS_FLUSHED);
		fake_verbs_knobs.held_owner = NULL;
		world_check_is_good();
		assert_int_equal(side_counts(&world.d)->requests_moved,
				 WORLD_BLOCKS / 4);
		assert_int_equal(world.note_count, 1);
		assert_int_equal(world.p.downs, 0);
		assert_int_equal(fake_verbs_calls(), calls + 1);
		assert_int_equal(world_down(state), 0);
	}
}

/* The others go on without a word to the owner of the read. */
UNIT_TEST(read_that_fails_by_one_queue_pair_goes_on_by_the_others)
{
	uint32_t at;

	for (at = 1; at <= WORLD_BLOCKS; at += 5) {
		lanes_up(1, 3);
		fake_verbs_knobs.fail_at[FAKE_VERBS_READ] = at;
		fake_verbs_knobs.fail_status = IBV_WC_RETRY_EXC_ERR;
		world_reads_well(2 * WORLD_MS_FLUSHED);
		world_check_is_good();
		assert_int_equal(lanes_in(world_bundle()), 3);
		assert_int_equal(world_down(state), 0);
	}
}

/* Tries and paces are of one connection. */
UNIT_TEST(next_connection_begins_anew)
{
	struct kvpull_verbs_bundle *bundle;
	uint32_t place;
	uint32_t round;

	lanes_up(1, 2);
	for (round = 1; round < 4; round++) {
		world_read_run(5);
		assert_int_equal(world.d.reads_done, round);
		bundle = world_bundle();
		world_disconnect();
		world_run(WORLD_MS_FLUSHED);
		assert_int_equal(world.d.downs, round);
		for (place = 0; place < 2; place++) {
			const struct kvpull_verbs_end *end =
				&bundle->ends[place];

			assert_int_equal(end->attempts, 0);
			assert_int_equal(end->retry_ns, 0);
			assert_int_equal(end->in_ns, 0);
			assert_int_equal(end->pace.ns[KVPULL_PACE_SMALL], 0);
		}
		world_connect_run(20);
		assert_int_equal(lanes_in(world_bundle()), 2);
	}
	assert_int_equal(world_down(state), 0);
}

/* P did not see that it was lost: the new one takes its place, and no other's. */
UNIT_TEST(queue_pair_that_is_built_again_replaces_itself)
{
	const struct kvpull_verbs_bundle *bundle;
	uint32_t openings;

	lanes_up(1, 2);
	bundle = world_bundle();
	openings = fake_verbs_openings();
	side_hear(&world.d, KVPULL_LOG_WARN);
	fake_verbs_knobs.mute = 1;
	kvpull_verbs_end_lose(&bundle->ends[1], KVPULL_EPEER, "in a test");
	/* The first try tells P that the old one is gone. */
	world_run(8 * WORLD_MS_FLUSHED);
	fake_verbs_knobs.mute = 0;
	assert_true(lines_said("no room there"));
	assert_false(lines_said("it rejects us"));
	assert_int_equal(lanes_in(bundle), 2);
	assert_int_equal(bundle->first, 0);
	assert_int_equal(fake_verbs_openings(), openings + 1);
	assert_int_equal(world.d.downs, 0);
	assert_int_equal(world.p.downs, 0);
	world_reads_well(5);
	assert_int_equal(world_down(state), 0);
}

/* Links flap, and retries bridge that: both queue pairs stay. */
UNIT_TEST(only_rail_without_a_link_keeps_its_queue_pairs)
{
	const struct kvpull_verbs_bundle *bundle;

	lanes_up(1, 2);
	bundle = world_bundle();
	fake_verbs_async(0, IBV_EVENT_PORT_ERR);
	world_run(5);
	assert_int_equal(lanes_in(bundle), 2);
	assert_int_equal(world.d.downs, 0);
	assert_int_equal(world_down(state), 0);
}

UNIT_TEST(rail_without_a_link_loses_all_its_queue_pairs)
{
	const struct kvpull_verbs_bundle *bundle;
	uint32_t place;

	lanes_up(2, 2);
	bundle = world_bundle();
	fake_verbs_knobs.answer = FAKE_VERBS_SILENCE;
	world_read_held_by(2, 3);
	fake_verbs_async(1, IBV_EVENT_PORT_ERR);
	world_run(2 * WORLD_MS_FLUSHED);
	for (place = 0; place < 4; place++)
		assert_int_equal(bundle->ends[place].state == KVPULL_VERBS_IN,
				 bundle->ends[place].rail == 0);
	world_read_is_good();
	assert_int_equal(world.d.downs, 0);
	assert_int_equal(world_down(state), 0);
}

/* The number of a rail or of its queue pair is one that no consumer may have. */
UNIT_TEST(call_of_a_place_that_is_none_is_refused)
{
	struct kvpull_verbs_greeting call = { .kind = KVPULL_VERBS_CALL };

	lanes_up(1, 2);
	call.rail = KVPULL_VERBS_RAILS_MAX;
	world_stranger_calls(STRANGER, call);
	call.rail = 0;
	call.lane = KVPULL_VERBS_QPS_MAX;
	world_stranger_calls(STRANGER, call);
	world_run(2);
	assert_int_equal(side_counts(&world.p)->frames_bad, 2);
	assert_int_equal(fake_verbs_strangers(), 0);
	assert_int_equal(lanes_in(world_bundle()), 2);
	assert_int_equal(world_down(state), 0);
}

/* A consumer with the token has as many places as P allows, and no more. */
UNIT_TEST(queue_pair_beyond_those_allowed_is_refused)
{
	struct kvpull_verbs_greeting join = { .kind = KVPULL_VERBS_JOIN,
					      .lane = 2 };

	lanes_up(1, 2);
	memcpy(join.token, world_bundle()->token, sizeof(join.token));
	world_stranger_calls(STRANGER, join);
	world_run(2);
	assert_int_equal(side_counts(&world.p)->calls_refused, 1);
	assert_int_equal(fake_verbs_strangers(), 0);
	assert_int_equal(lanes_in(world_bundle()), 2);
	assert_int_equal(world_down(state), 0);
}

UNIT_TEST(lines_name_the_queue_pair_and_its_rail)
{
	world_init();
	world.qps = 2;
	(void)world_open();
	side_hear(&world.d, KVPULL_LOG_INFO);
	world_connect_run(20);
	assert_true(lines_said("queue pair 1 of rail 0 is up"));
	fake_verbs_cut_owner(&world_bundle()->ends[0]);
	world_run(5);
	assert_true(
		lines_said("notifications go by queue pair 1 of rail 0 now"));
	assert_int_equal(world_down(state), 0);
}
