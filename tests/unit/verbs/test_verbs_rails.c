/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several rails of the route between machines over the fake fabric: how reads
 * are spread, and what becomes of them, of notifications and of the peer when
 * a rail is lost in the middle.
 */
#include "tests/unit/verbs/world.h"

#include "verbs/bundle.h"

UNIT_TEST_RAILS(address_names_every_rail)
{
	assert_string_equal(side_address(&world.p),
			    "10.66.0.1:7471,10.66.1.1:7471");
}

/* P serves these addresses with these names; NULL: it is refused. */
static void names_case(const char *device, const char *address,
		       const char *served, int code)
{
	world_init();
	fake_verbs_devices(2);
	world.listen_port = 7471;
	world.device = device;
	world.address = address;
	assert_int_equal(side_open(&world.p), code);
	if (!code) {
		assert_int_equal(side_serve(&world.p), 0);
		assert_string_equal(side_address(&world.p), served);
	}
	side_close(&world.p);
	assert_int_equal(fake_verbs_live(), 0);
}

UNIT_TEST(rails_are_those_that_are_named_in_their_order)
{
	names_case("", "", "10.66.0.1:7471", 0);
	names_case("fake1", "", "10.66.1.1:7471", 0);
	names_case("fake1,fake0", "", "10.66.1.1:7471,10.66.0.1:7471", 0);
	names_case("", "10.66.1.1,10.66.0.1", "10.66.1.1:7471,10.66.0.1:7471",
		   0);
	/* The second is not named: another port than the first's. */
	names_case("fake1", "10.66.1.1,10.66.0.1",
		   "10.66.1.1:7471,10.66.0.1:7471", 0);
	/* A device that is not there is missing, and the other one serves. */
	names_case("fake0,fake7", "", "10.66.0.1:7471", 0);
	names_case("fake7,fake1", "", "10.66.1.1:7471", 0);
	names_case("fake0,fake0", "", "10.66.0.1:7471", 0);
	names_case("", "10.66.0.1,10.66.0.1", "10.66.0.1:7471", 0);
	names_case("fake6,fake7", "", "", 0);
	names_case("fake0,,fake1", "", NULL, KVPULL_ECONFIG);
	names_case("", "10.66.0.1,nonsense", NULL, KVPULL_ECONFIG);
}

UNIT_TEST_RAILS(read_is_spread_over_the_rails)
{
	world_reads_well(3);
	assert_int_equal(world_reads_by(0), WORLD_BLOCKS / 2);
	assert_int_equal(world_reads_by(1), WORLD_BLOCKS / 2);
	assert_int_equal(world_check_start(), 0);
	world_run(3);
	assert_int_equal(world.d.checks_done, 1);
	assert_int_equal(fake_verbs_count(FAKE_VERBS_CHECK), 1);
}

UNIT_TEST(small_read_is_one_doorbell_of_one_rail)
{
	(void)world_rails_open();
	world.batch = 0;
	world_consumer_again();
	world_read_make(0);
	world_connect_run(20);
	world_read_run(3);
	assert_int_equal(world.d.reads_done, 1);
	assert_int_equal(side_counts(&world.d)->doorbells, 1);
	/* The next one goes by the other. */
	assert_int_equal(world_reads_by(0) * world_reads_by(1), 0);
	world_read_run(3);
	assert_int_equal(world_reads_by(0), world_reads_by(1));
	assert_int_equal(world_down(state), 0);
}

UNIT_TEST(rail_that_is_slow_reads_less)
{
	world_shallow_rails_up();
	world_read_held_by(2, 10);
	/* Rail 0 holds the work that it took; rail 1 reads on. */
	assert_int_equal(world_reads_by(0), WORLD_BLOCKS - 8);
	assert_int_equal(world.d.reads_done, 0);
	fake_verbs_knobs.held_devices = 0;
	world_read_ends_well(3);
	assert_int_equal(world_reads_by(1), 8);
	assert_int_equal(world_down(state), 0);
}

/* In mid-read: half of the work requests are posted to each rail. */
static void cut_in_mid_read(uint32_t device)
{
	fake_verbs_knobs.held_devices = 1u << device;
	world_read_run(3);
	assert_int_equal(world_reads_by(!device), WORLD_BLOCKS / 2);
	fake_verbs_cut_device(device);
	/* READs in its wire could still land. */
	world_run(90);
	assert_int_equal(world.d.reads_done, 0);
	world_run(WORLD_MS_FLUSHED);
}

UNIT_TEST(part_of_a_lost_rail_is_read_by_the_other)
{
	uint32_t device;

	for (device = 0; device < 2; device++) {
		(void)world_rails_up(state);
		cut_in_mid_read(device);
		world_read_is_good();
		assert_int_equal(world_reads_by(device), 0);
		assert_int_equal(world_reads_by(!device), WORLD_BLOCKS);
		assert_int_equal(side_counts(&world.d)->requests_moved,
				 WORLD_BLOCKS / 2);
		assert_int_equal(world.p.downs, 0);
		assert_int_equal(world_down(state), 0);
	}
}

UNIT_TEST_RAILS(lost_rail_never_writes_after_the_read_was_told)
{
	cut_in_mid_read(1);
	world_read_is_good();
	memset(world.d.memory, 0x5a, WORLD_BYTES);
	fake_verbs_knobs.held_devices = 0;
	fake_verbs_run();
	world_run(20);
	assert_int_equal(world.d.memory[0], 0x5a);
	assert_int_equal(world.d.memory[WORLD_BYTES - 1], 0x5a);
	assert_int_equal(world.d.reads_done, 1);
}

UNIT_TEST_RAILS(part_that_was_read_before_the_loss_is_not_read_again)
{
	world_read_held_by(2, 0);
	/* Eight of 32 more, then the wire is cut. */
	fake_verbs_knobs.held_devices = 1;
	fake_verbs_knobs.budget = 8;
	world_run(3);
	assert_int_equal(world_reads_by(1), 8);
	assert_int_equal(fake_verbs_knobs.held, 1);
	fake_verbs_cut_device(1);
	world_run(WORLD_MS_FLUSHED);
	fake_verbs_knobs.held = fake_verbs_knobs.held_devices = 0;
	world_read_ends_well(5);
	assert_int_equal(side_counts(&world.d)->requests_moved,
			 WORLD_BLOCKS / 2 - 8);
}

UNIT_TEST_RAILS(part_that_is_read_while_the_rail_is_flushed_is_good)
{
	world_read_held_by(2, 0);
	fake_verbs_cut_device(1);
	world_run(3);
	fake_verbs_knobs.held_devices = 1;
	fake_verbs_knobs.budget = 8;
	world_run(WORLD_MS_FLUSHED);
	fake_verbs_knobs.held = fake_verbs_knobs.held_devices = 0;
	world_read_ends_well(5);
	assert_int_equal(side_counts(&world.d)->requests_moved,
			 WORLD_BLOCKS / 2 - 8);
}

/* Each work request of a read in turn fails, on each rail. */
UNIT_TEST(failed_work_request_costs_a_rail_and_no_read)
{
	uint32_t at;

	for (at = 1; at <= WORLD_BLOCKS / 2; at += 5) {
		(void)world_rails_up(state);
		fake_verbs_knobs.fail_device = 1 + at % 2;
		fake_verbs_knobs.fail_at[FAKE_VERBS_READ] = at;
		fake_verbs_knobs.fail_status = IBV_WC_RETRY_EXC_ERR;
		world_read_run(WORLD_MS_FLUSHED);
		assert_int_equal(fake_verbs_knobs.fail_at[FAKE_VERBS_READ], 0);
		world_read_is_good();
		assert_int_equal(world_down(state), 0);
	}
}

static void checked_are_right(void)
{
	uint32_t at;

	for (at = 0; at < world.read.slot_count; at++) {
		assert_int_equal(world.checked[at].incarnation,
				 WORLD_INCARNATION);
		assert_int_equal(world.checked[at].revoked,
				 100 + world.slots[at]);
	}
}

/* Checks of one slot, and of as many as take several posts. */
UNIT_TEST(lost_rail_takes_the_check_with_it_and_brings_it_back)
{
	uint32_t round;
	uint32_t at;

	for (round = 0; round < 4; round++) {
		const uint32_t device = round % 2;

		(void)world_rails_up(state);
		for (at = 0; at < WORLD_SLOTS; at++)
			kvpull_revocation_write(&world.p.entries[at], 100 + at);
		world.read.slot_count = round < 2 ? 1 : WORLD_SLOTS;
		for (at = 0; at < world.read.slot_count; at++)
			world.slots[at] = (at + 3) % WORLD_SLOTS;
		/* Posted to one of both: the other one is lost, or this. */
		fake_verbs_knobs.held_devices = 3;
		assert_int_equal(world_check_start(), 0);
		fake_verbs_cut_device(device);
		world_run(WORLD_MS_FLUSHED);
		fake_verbs_knobs.held_devices = 1u << device;
		world_run(5);
		assert_int_equal(world.d.checks_done, 1);
		assert_int_equal(world.d.check_code, 0);
		checked_are_right();
		assert_int_equal(
			fake_verbs_device_count(device, FAKE_VERBS_CHECK), 0);
		assert_int_equal(world_down(state), 0);
	}
}

UNIT_TEST_RAILS(loss_of_both_rails_is_the_peers_end)
{
	world_read_held_by(3, 0);
	fake_verbs_cut_device(1);
	world_run(50);
	fake_verbs_cut_device(0);
	world_run(90);
	assert_int_equal(world.d.reads_done, 0);
	world_run(WORLD_MS_FLUSHED);
	world_read_ended(KVPULL_EPEER);
	side_is_down(&world.d, KVPULL_EPEER);
	assert_int_equal(world.p.downs, 1);
}

UNIT_TEST(lost_rail_joins_again)
{
	uint32_t device;

	for (device = 0; device < 2; device++) {
		(void)world_rails_up(state);
		fake_verbs_cut_device(device);
		world_run(2000);
		assert_int_equal(world.d.downs + world.p.downs, 0);
		assert_int_equal(world.p.ups, 1);
		world_reads_well(3);
		assert_int_equal(world_reads_by(0), WORLD_BLOCKS / 2);
		assert_int_equal(world_reads_by(1), WORLD_BLOCKS / 2);
		assert_int_equal(world_down(state), 0);
	}
}

/* P still has the old one: it makes room for the new one. */
UNIT_TEST_RAILS(rail_that_only_the_consumer_lost_joins_again)
{
	fake_verbs_knobs.mute = 1;
	fake_verbs_async(1, IBV_EVENT_QP_FATAL);
	side_step(&world.d);
	world_run(WORLD_MS_FLUSHED);
	fake_verbs_knobs.mute = 0;
	world_run(1500);
	assert_int_equal(world.d.downs + world.p.downs, 0);
	world_reads_well(3);
	assert_int_equal(world_reads_by(1), WORLD_BLOCKS / 2);
}

/* A port that flaps: the longer the less often. */
UNIT_TEST_RAILS(rail_that_flaps_is_tried_less_and_less_often)
{
	uint32_t joins[2] = { 0, 0 };
	uint32_t half;
	uint32_t ms;

	fake_verbs_knobs.answer = FAKE_VERBS_REJECTED;
	fake_verbs_knobs.answer_device = 2;
	fake_verbs_cut_device(1);
	for (half = 0; half < 2; half++)
		for (ms = 0; ms < 16000; ms++) {
			const uint32_t before = fake_verbs_calls();

			world_run(1);
			joins[half] += fake_verbs_calls() - before;
		}
	assert_in_range(joins[0], 4, 10);
	assert_in_range(joins[1], 1, 2);
	assert_int_equal(world.d.downs, 0);
}

/* D does not know that P is another one: what it holds on to is silent. */
UNIT_TEST_RAILS(rail_to_another_incarnation_ends_the_peer)
{
	fake_verbs_knobs.held_devices = 1;
	fake_verbs_knobs.mute = 1;
	assert_int_equal(world_read_start(), 0);
	side_close(&world.p);
	side_begin(&world.p);
	world.p.ups = 0;
	fake_verbs_cut_device(1);
	world_run(2 * WORLD_MS_FLUSHED);
	world_read_ended(KVPULL_EPEER);
	assert_int_equal(world.d.downs, 1);
	assert_int_equal(world.p.ups, 0);
	assert_int_equal(side_counts(&world.p)->calls_refused, 1);
}

UNIT_TEST_RAILS(notes_that_were_swallowed_are_said_by_the_other_rail)
{
	uint64_t generation = 0;
	uint32_t i;

	fake_verbs_knobs.held_devices = 1;
	while (!world_note_send(generation + 1))
		generation++;
	assert_int_equal(generation, 4);
	world_run(5);
	assert_int_equal(world.note_count, 0);
	fake_verbs_cut_device(0);
	world_run(WORLD_MS_FLUSHED);
	for (i = 0; i < 20; i++) {
		while (!world_note_send(generation + 1))
			generation++;
		world_run(2);
	}
	assert_true(generation > 40);
	assert_int_equal(world.note_count, generation);
	while (generation--)
		assert_int_equal(world.notes[generation].generation,
				 generation + 1);
	assert_int_equal(
		world.d.route->ops->notes_open(world.d.route, world.peer), 0);
}

UNIT_TEST_RAILS(note_whose_acknowledgement_was_lost_is_taken_once)
{
	assert_int_equal(world_note_send(1), 0);
	assert_int_equal(world_note_send(2), 0);
	fake_verbs_run();
	fake_verbs_knobs.held_devices = 1;
	side_poll(&world.p);
	assert_int_equal(world.note_count, 2);
	assert_int_equal(
		world.d.route->ops->notes_open(world.d.route, world.peer), 2);
	fake_verbs_cut_device(0);
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world_note_send(3), 0);
	world_run(5);
	assert_int_equal(world.note_count, 3);
	assert_int_equal(world.notes[2].generation, 3);
	assert_int_equal(
		world.d.route->ops->notes_open(world.d.route, world.peer), 0);
}

UNIT_TEST_RAILS(note_that_waits_for_room_on_both_rails_is_taken_once)
{
	world_ring_fill();
	assert_int_equal(world_note_send(1), 0);
	assert_int_equal(world_note_send(2), 0);
	world_run(3);
	fake_verbs_cut_device(0);
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.note_count, 0);
	assert_int_equal(world.p.downs, 0);
	world.keeps_rings = 0;
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.note_count, 2);
	assert_int_equal(world.notes[0].generation, 1);
	assert_int_equal(world.notes[1].generation, 2);
	assert_int_equal(side_counts(&world.p)->frames_bad, 0);
	assert_int_equal(world.p.downs, 0);
	assert_int_equal(world.d.downs, 0);
}

UNIT_TEST_RAILS(heartbeats_move_too)
{
	fake_verbs_knobs.held_devices = 1;
	fake_verbs_cut_device(0);
	world_run(2);
	assert_true(world.beat_count >= 1);
	world.beat_count = 0;
	world.d.route->ops->beat(world.d.route, world.peer);
	world_run(3);
	assert_int_equal(world.beat_count, 1);
}

UNIT_TEST(first_rail_that_cannot_be_reached_is_passed_over)
{
	int answer;

	for (answer = FAKE_VERBS_ADDR_ERROR; answer < FAKE_VERBS_ANSWERS;
	     answer++) {
		(void)world_rails_open();
		fake_verbs_knobs.answer = (enum fake_verbs_answer)answer;
		fake_verbs_knobs.answer_device = 1;
		world_comes_up(answer == FAKE_VERBS_SILENCE ? 2600 : 20);
		assert_int_equal(world.d.downs, 0);
		world_reads_well(3);
		assert_int_equal(world_reads_by(0), 0);
		/* The rail comes when it can. */
		memset(&fake_verbs_knobs, 0, sizeof(fake_verbs_knobs));
		world_run(12000);
		world.d.reads_done = 0;
		world_reads_well(3);
		assert_int_equal(world_reads_by(0), WORLD_BLOCKS / 2);
		assert_int_equal(world_down(state), 0);
	}
}

UNIT_TEST(unlike_numbers_of_rails_use_the_smaller)
{
	uint32_t of_p;

	for (of_p = 1; of_p <= 2; of_p++) {
		(void)world_rails_open();
		side_close(&world.d);
		side_close(&world.p);
		world.rails = of_p;
		assert_int_equal(side_open(&world.p), 0);
		world.rails = 3 - of_p;
		assert_int_equal(side_open(&world.d), 0);
		world_serve();
		world_scatter();
		world_connect_run(20);
		world_reads_well(3);
		assert_int_equal(world_reads_by(1), 0);
		assert_int_equal(world_down(state), 0);
	}
}

UNIT_TEST_RAILS(cancelled_read_of_a_lost_rail_is_aborted)
{
	world_read_held_by(2, 3);
	world_read_cancel();
	fake_verbs_cut_device(1);
	world_run(90);
	assert_int_equal(world.d.reads_done, 0);
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.d.reads_done, 1);
	/* All was posted; what the rail took with it was never read. */
	assert_int_equal(world.d.read_code, KVPULL_EABORTED);
	assert_int_equal(world_reads_by(0), WORLD_BLOCKS / 2);
	assert_int_equal(world.d.downs, 0);
}

UNIT_TEST_RAILS(cancelled_read_is_not_whole_without_its_lost_part)
{
	world_read_held_by(3, 0);
	fake_verbs_cut_device(1);
	world_run(60);
	world_read_cancel();
	world_run(60);
	/* One rail is quiet by now; the other one's part comes at last. */
	fake_verbs_knobs.held_devices = 2;
	world_run(5);
	world_read_ended(KVPULL_EABORTED);
	assert_int_equal(side_counts(&world.d)->flushes, 0);
}

UNIT_TEST(cancelled_part_of_a_lost_rail_is_not_read_by_the_other)
{
	world_shallow_rails_up();
	world_read_held_by(3, 0);
	fake_verbs_cut_device(1);
	world_run(WORLD_MS_FLUSHED);
	/* The part waits for room. */
	assert_int_equal(side_counts(&world.d)->requests_moved, 0);
	world_read_cancel();
	fake_verbs_knobs.held_devices = 0;
	world_run(5);
	world_read_ended(KVPULL_EABORTED);
	assert_int_equal(fake_verbs_count(FAKE_VERBS_READ), 8);
	assert_int_equal(world_down(state), 0);
}

UNIT_TEST(part_of_a_lost_rail_waits_for_room)
{
	world_shallow_rails_up();
	world_read_held_by(3, 0);
	fake_verbs_cut_device(1);
	/* Also over the time at which it could be built again. */
	world_run(1000);
	assert_int_equal(side_counts(&world.d)->requests_moved, 0);
	fake_verbs_knobs.held_devices = 0;
	world_read_ends_well(20);
	assert_int_equal(side_counts(&world.d)->requests_moved, 8);
	assert_int_equal(world_down(state), 0);
}

UNIT_TEST(token_is_known_as_a_whole_and_only_when_in)
{
	struct kvpull_verbs_bundle bundle = { .state = KVPULL_BUNDLE_IN,
					      .token = { 1, 2 } };
	static const uint64_t wrong[][2] = { { 1, 3 }, { 2, 2 }, { 0, 0 } };
	static const uint64_t right[2] = { 1, 2 };
	size_t i;

	assert_true(kvpull_verbs_bundle_knows(&bundle, right));
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_false(kvpull_verbs_bundle_knows(&bundle, wrong[i]));
	bundle.state = KVPULL_BUNDLE_ENDING;
	assert_false(kvpull_verbs_bundle_knows(&bundle, right));
	bundle = (struct kvpull_verbs_bundle){ .state = KVPULL_BUNDLE_IN };
	/* None was drawn. */
	assert_false(kvpull_verbs_bundle_knows(&bundle, wrong[2]));
}

UNIT_TEST(rail_to_other_memory_ends_the_bundle)
{
	struct kvpull_log log = { 0 };
	struct kvpull_verbs_shared shared = { .log = &log, .lane_count = 2 };
	uint32_t differ;

	for (differ = 0; differ < 9; differ++) {
		struct kvpull_verbs_bundle bundle = {
			.shared = &shared, .state = KVPULL_BUNDLE_IN
		};
		struct kvpull_verbs_end ends[2];
		struct kvpull_keys *keys;

		memset(ends, 0, sizeof(ends));
		keys = &ends[1].keys;
		bundle.ends = ends;
		ends[0].shared = ends[1].shared = &shared;
		ends[0].state = KVPULL_VERBS_IN;
		ends[1].state = KVPULL_VERBS_OPEN;
		ends[1].place = 1;
		ends[0].keys.region_count = 2;
		*keys = ends[0].keys;
		keys->mr_keys[1] = 9; /* each rail's own */
		keys->entries_key = 8;
		keys->slot_count += differ == 1;
		keys->region_count -= differ == 2;
		keys->token[1] += differ == 3;
		keys->entries.address += differ == 4;
		keys->regions[1].address += differ == 5;
		keys->regions[0].bytes += differ == 6;
		keys->mr_shift += differ == 7;
		keys->qps += differ == 8;
		kvpull_verbs_bundle_keys(&bundle, &ends[1]);
		assert_int_equal(bundle.state, differ ? KVPULL_BUNDLE_ENDING :
							KVPULL_BUNDLE_IN);
		assert_int_equal(ends[1].state,
				 differ ? KVPULL_VERBS_LOST : KVPULL_VERBS_IN);
	}
}

UNIT_TEST_RAILS(cancel_breaks_only_the_rail_that_hangs)
{
	world_read_held_by(2, 3);
	world_read_cancel();
	world_run(2 * WORLD_MS_FLUSHED);
	world_read_ended(KVPULL_EABORTED);
	assert_int_equal(side_counts(&world.d)->flushes, 1);
	assert_int_equal(world.d.downs, 0);
}

/* Without waiting for what is in its wire to fail. */
UNIT_TEST(rail_without_a_link_is_left_at_once)
{
	static const enum ibv_event_type types[] = { IBV_EVENT_PORT_ERR,
						     IBV_EVENT_QP_FATAL,
						     IBV_EVENT_DEVICE_FATAL };
	size_t i;

	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		(void)world_rails_up(state);
		world_read_held_by(2, 0);
		fake_verbs_async(1, types[i]);
		side_step(&world.d);
		world_read_ends_well(WORLD_MS_FLUSHED);
		assert_int_equal(world_down(state), 0);
	}
}

UNIT_TEST_RAILS(device_that_breaks_is_not_tried_again)
{
	fake_verbs_async(1, IBV_EVENT_DEVICE_FATAL);
	side_step(&world.d);
	world_run(2000);
	world_reads_well(3);
	assert_int_equal(world_reads_by(1), 0);
}

UNIT_TEST_RAILS(devices_that_are_removed_are_the_peers_end)
{
	cut_in_mid_read(1);
	world_read_is_good();
	fake_verbs_remove_device();
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.d.downs, 1);
	assert_int_equal(world_connect(), KVPULL_EPEER);
}

#define TEST(name) UNIT_TEST_RAILS(name)
