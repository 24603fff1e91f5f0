/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that can go wrong on a fabric, each in turn: every completion
 * status on every kind of work request, posts that are refused, completions
 * that come late or never, answers of the CM, objects that cannot be made, a
 * device that goes. Each ends in the documented error, and nothing is left.
 */
#include "tests/unit/verbs/world.h"

#include "verbs/endpoint.h"

static const char *const kind_names[FAKE_VERBS_LOOP] = { "read", "check",
							 "send", "receive" };

/* After a fault: D was told, and can connect and pull again. */
static void comes_back(void)
{
	memset(&fake_verbs_knobs, 0, sizeof(fake_verbs_knobs));
	world_run(300);
	side_is_down(&world.d, KVPULL_EPEER);
	assert_int_equal(world.p.downs, 1);
	world.d.reads_done = world.d.ups = 0;
	memset(world.d.memory, 0, WORLD_BYTES);
	world_comes_up(10);
	world_reads(5);
}

/* Do something of each kind; the fault hits one of them. */
static void everything(void)
{
	if (world_read_start() == 0)
		world_run(3);
	if (world.d.reads_done == 1 && !world.d.read_code &&
	    !world_check_start())
		world_run(3);
	(void)world_note_send(1);
	world_run(3);
}

static void status_case(enum fake_verbs_kind kind, int status)
{
	void *none = NULL;

	(void)world_attached(&none);
	fake_verbs_knobs.fail_at[kind] = 1;
	fake_verbs_knobs.fail_status = (enum ibv_wc_status)status;
	everything();
	assert_int_equal(fake_verbs_knobs.fail_at[kind], 0);
	world_run(300);
	if (kind == FAKE_VERBS_READ) {
		world_read_ended(KVPULL_EPEER);
	}
	if (kind == FAKE_VERBS_CHECK) {
		assert_int_equal(world.d.checks_done, 1);
		assert_int_equal(world.d.check_code, KVPULL_EPEER);
	}
	comes_back();
	if (world_down(&none))
		fail_msg("objects are left after status %d of a %s", status,
			 kind_names[kind]);
}

UNIT_TEST(every_status_of_every_work_request_is_the_peers_end)
{
	int kind;
	int status;

	/* Memory of the host has no loop. */
	for (kind = 0; kind < FAKE_VERBS_LOOP; kind++)
		for (status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_TM_ERR;
		     status++)
			status_case((enum fake_verbs_kind)kind, status);
}

UNIT_TEST(full_queue_is_tried_again)
{
	static const int errors[] = { ENOMEM, EAGAIN };
	uint32_t at;
	size_t i;

	for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		for (at = 1; at <= WORLD_BLOCKS; at += 9) {
			(void)world_attached(state);
			world_scatter();
			/* Something is in flight: the queue can be full. */
			assert_int_equal(world_note_send(1), 0);
			fake_verbs_knobs.post_at = at;
			fake_verbs_knobs.post_times = 1;
			fake_verbs_knobs.post_error = errors[i];
			world_read_run(10);
			assert_int_equal(fake_verbs_knobs.post_times, 0);
			world_read_ended(0);
			assert_memory_equal(world.p.memory, world.d.memory,
					    WORLD_BYTES);
			assert_int_equal(world.d.downs, 0);
			assert_int_equal(world_down(state), 0);
		}
}

UNIT_TEST(refused_post_is_the_peers_end)
{
	uint32_t at;

	for (at = 1; at <= WORLD_BLOCKS; at += 21) {
		(void)world_attached(state);
		world_scatter();
		fake_verbs_knobs.post_at = at;
		fake_verbs_knobs.post_times = 1;
		fake_verbs_knobs.post_error = EINVAL;
		world_read_run(300);
		world_read_ended(KVPULL_EPEER);
		world_read_make(0);
		comes_back();
		assert_int_equal(world_down(state), 0);
	}
}

#define TEST(name) UNIT_TEST_ATTACHED(name)

TEST(read_ends_only_when_nothing_can_land)
{
	uint8_t before[WORLD_BYTES];

	world_read_held(0);
	world_read_cancel();
	/* Neither flushed nor done: it waits for flush_after, 100 ms. */
	world_run(90);
	assert_int_equal(world.d.reads_done, 0);
	/* Then the queue pair is broken, and given as long to be flushed. */
	world_run(220);
	assert_int_equal(world.d.reads_done, 1);
	assert_true(world.d.read_code < 0);
	assert_int_equal(side_counts(&world.d)->flushes, 1);
	memcpy(before, world.d.memory, WORLD_BYTES);
	fake_verbs_knobs.held = 0;
	world_run(50);
	assert_memory_equal(before, world.d.memory, WORLD_BYTES);
}

/* Nothing is wrong with the peer: who else reads by it may begin again. */
TEST(cut_for_one_read_is_told_the_others_as_such)
{
	const struct kvpull_transport_ops *ops = world.d.route->ops;
	struct kvpull_read other = world.read;
	struct kvpull_read third = world.read;

	other.index = 1;
	third.index = 2;
	world_read_held(0);
	assert_int_equal(world_start(&other), 0);
	world_read_cancel();
	while (!side_counts(&world.d)->flushes)
		world_run(1);
	/* The queue pair is not quiet yet. */
	assert_int_equal(world_start(&third), KVPULL_EABORTED);
	assert_int_equal(ops->check_start(world.d.route, world.peer, &third),
			 KVPULL_EABORTED);
	assert_int_equal(world.d.reads_done, 0);
	world_run(220);
	assert_int_equal(world.d.reads_done, 2);
	assert_int_equal(world.d.read_code, KVPULL_EABORTED);
	side_is_down(&world.d, KVPULL_EABORTED);
	world.d.down_code = KVPULL_EPEER;
	comes_back();
}

/* Another peer's read is in the wire meanwhile: it is not over. */
TEST(end_of_a_peer_ends_no_read_of_another)
{
	const struct kvpull_transport_ops *ops = world.d.route->ops;
	const uint32_t first = world.peer;
	struct kvpull_read other = world.read;

	other.index = 1;
	world_connect_run(10);
	fake_verbs_knobs.held = 1;
	assert_int_equal(ops->read_start(world.d.route, first, &other), 0);
	assert_int_equal(world_read_start(), 0);
	ops->disconnect(world.d.route, first);
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.d.downs, 1);
	world_read_ended(KVPULL_EPEER);
	fake_verbs_knobs.held = 0;
	world_run(5);
	assert_int_equal(world.d.reads_done, 2);
	assert_int_equal(world.d.read_code, 0);
	assert_true(world_read_is_right());
}

/*
 * The rail ends though receives were flushed: its reads are still in the wire.
 */
TEST(rail_is_not_quiet_before_its_reads)
{
	struct kvpull_verbs_end *end = fake_verbs_owner(1);

	world_read_held(0);
	world_disconnect();
	end->receive_open = 0;
	world_run(90);
	assert_int_equal(world.d.reads_done, 0);
	world_run(30);
	assert_int_equal(world.d.reads_done, 1);
}

/* The value of an earlier read of the entry does not count. */
TEST(check_that_fails_does_not_say_what_the_last_one_read)
{
	assert_int_equal(world_check_start(), 0);
	world_run(5);
	assert_int_equal(world.d.checks_done, 1);
	world_entry_judges(0);
	fake_verbs_knobs.fail_at[FAKE_VERBS_CHECK] = 1;
	fake_verbs_knobs.fail_status = IBV_WC_RETRY_EXC_ERR;
	assert_int_equal(world_check_start(), 0);
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.d.checks_done, 2);
	world_entry_judges(KVPULL_EEXPIRED);
}

TEST(read_that_was_told_is_never_written_again)
{
	uint32_t steps = 0;

	world_read_held(0);
	world_disconnect();
	/* P lives on, and does not know yet. */
	while (!world.d.reads_done && steps++ < 300) {
		side_step(&world.d);
	}
	assert_int_equal(world.d.reads_done, 1);
	/* D has told it and has not run since: the fabric goes on. */
	memset(world.d.memory, 0x5a, WORLD_BYTES);
	fake_verbs_knobs.held = 0;
	fake_verbs_run();
	assert_int_equal(world.d.memory[0], 0x5a);
	assert_int_equal(world.d.memory[WORLD_BYTES - 1], 0x5a);
}

TEST(end_is_told_after_all_reads_however_small_the_polls)
{
	const struct kvpull_transport_ops *ops = world.d.route->ops;
	struct kvpull_read reads[5];
	struct kvpull_event event;
	uint32_t told = 0;
	uint32_t i;

	fake_verbs_knobs.held = 1;
	for (i = 0; i < 5; i++) {
		reads[i] = world.read;
		reads[i].index = i;
		assert_int_equal(world_start(&reads[i]), 0);
	}
	world_disconnect();
	for (i = 0; i < 300 && told < 6; i++) {
		world.now_ns += WORLD_STEP_NS;
		if (!ops->poll(world.d.route, world.now_ns, &event, 1))
			continue;
		assert_int_equal(event.kind, told < 5 ? KVPULL_EVENT_READ_DONE :
							KVPULL_EVENT_PEER_DOWN);
		told++;
	}
	assert_int_equal(told, 6);
}

TEST(cancelled_read_that_completes_is_no_fault)
{
	world_read_held(0);
	world_read_cancel();
	world_run(50);
	fake_verbs_knobs.held = 0;
	world_run(200);
	assert_int_equal(world.d.reads_done, 1);
	assert_int_equal(world.d.downs, 0);
	assert_true(world_read_is_right());
}

/* A work request completes every 50 ms after a cancel: slow, and not dead. */
UNIT_TEST(slow_wire_is_not_cut_by_a_cancel)
{
	uint32_t round;

	(void)world_up_batch(4);
	world_connect_run(10);
	world_scatter();
	world_read_held(0);
	world_read_cancel();
	for (round = 0; round < 16; round++) {
		fake_verbs_knobs.held = 0;
		fake_verbs_knobs.budget = 4;
		world_run(50);
	}
	assert_int_equal(world.d.downs, 0);
	assert_int_equal(world.d.reads_done, 1);
	assert_int_equal(side_counts(&world.d)->flushes, 0);
	memset(&fake_verbs_knobs, 0, sizeof(fake_verbs_knobs));
	assert_int_equal(world_down(state), 0);
}

TEST(check_that_hangs_ends_soon_after_its_cancel)
{
	fake_verbs_knobs.held = 1;
	assert_int_equal(world_check_start(), 0);
	world_run(1000);
	world_read_cancel();
	world_run(90);
	/* The READ may still land where the next entry is read into. */
	assert_int_equal(world.d.checks_done, 0);
	world_run(220);
	assert_int_equal(world.d.checks_done, 1);
	assert_true(world.d.check_code < 0);
	assert_int_equal(side_counts(&world.d)->flushes, 1);
	world_entry_judges(KVPULL_EEXPIRED);
}

TEST(cancelled_check_that_completes_is_no_fault)
{
	fake_verbs_knobs.held = 1;
	assert_int_equal(world_check_start(), 0);
	world_read_cancel();
	world_run(50);
	fake_verbs_knobs.held = 0;
	world_run(200);
	assert_int_equal(world.d.checks_done, 1);
	assert_int_equal(world.d.check_code, 0);
	assert_int_equal(world.d.downs, 0);
}

TEST(late_completions_end_in_success)
{
	world_read_held(1500);
	assert_int_equal(world.d.reads_done, 0);
	fake_verbs_knobs.held = 0;
	world_run(5);
	world_read_ended(0);
}

TEST(disconnect_ends_reads_first)
{
	world_read_held(0);
	world_disconnect();
	world_run(90);
	assert_int_equal(world.d.reads_done + world.d.downs, 0);
	world_run(30);
	world_read_ended(KVPULL_EPEER);
	assert_int_equal(world.d.downs, 1);
}

TEST(cut_is_seen_by_both)
{
	fake_verbs_cut();
	comes_back();
}

TEST(removed_device_ends_all_and_refuses_more)
{
	const struct kvpull_transport_ops *ops = world.d.route->ops;

	world_read_held(0);
	fake_verbs_remove_device();
	world_run(300);
	world_read_ended(KVPULL_EPEER);
	assert_int_equal(world.d.downs, 1);
	assert_int_equal(world.p.downs, 1);
	assert_int_equal(world_connect(), KVPULL_EPEER);
	assert_int_equal(ops->reachable(world.d.route, "10.66.0.9:5"),
			 KVPULL_EROUTE);
}

TEST(device_that_breaks_ends_all_and_refuses_more)
{
	assert_int_equal(world_read_start(), 0);
	fake_verbs_knobs.held = 1;
	fake_verbs_async(0, IBV_EVENT_DEVICE_FATAL);
	side_step(&world.d);
	world_run(300);
	assert_int_equal(world.d.reads_done, 1);
	side_is_down(&world.d, KVPULL_EPEER);
	assert_int_equal(world.p.downs, 1);
	assert_int_equal(world_connect(), KVPULL_EPEER);
}

UNIT_TEST(event_of_a_queue_pair_or_queue_is_the_peers_end)
{
	static const enum ibv_event_type types[] = { IBV_EVENT_QP_FATAL,
						     IBV_EVENT_QP_REQ_ERR,
						     IBV_EVENT_QP_ACCESS_ERR,
						     IBV_EVENT_CQ_ERR };
	size_t i;

	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		(void)world_attached(state);
		fake_verbs_async(0, types[i]);
		side_step(&world.d);
		comes_back();
		assert_int_equal(world_down(state), 0);
	}
}

TEST(event_of_no_harm_is_none)
{
	static const enum ibv_event_type types[] = { IBV_EVENT_COMM_EST,
						     IBV_EVENT_PORT_ACTIVE,
						     IBV_EVENT_PORT_ERR,
						     IBV_EVENT_GID_CHANGE };
	size_t i;

	/* An only rail stays: links flap. */
	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		fake_verbs_async(0, types[i]);
		world_run(3);
	}
	assert_int_equal(world.d.downs + world.p.downs, 0);
	world_read_run(3);
	assert_int_equal(world.d.reads_done, 1);
}

#define TEST_UP(name) UNIT_TEST_UP(name)

TEST_UP(every_answer_of_the_cm_is_an_end)
{
	int answer;

	for (answer = FAKE_VERBS_ADDR_ERROR; answer < FAKE_VERBS_ANSWERS;
	     answer++) {
		world.d.downs = 0;
		fake_verbs_knobs.answer = (enum fake_verbs_answer)answer;
		world_connect_run(answer == FAKE_VERBS_SILENCE ? 5200 : 10);
		assert_int_equal(world.d.downs, 1);
		assert_int_equal(world.d.down_code,
				 answer == FAKE_VERBS_REJECTED_SAID ?
					 KVPULL_EREJECTED :
					 KVPULL_EPEER);
	}
	fake_verbs_knobs.answer = FAKE_VERBS_ACCEPT;
	world_comes_up(10);
}

UNIT_TEST(object_that_cannot_be_made_fails_open)
{
	uint32_t at;
	int code = -1;

	for (at = 1; code; at++) {
		world_init();
		fake_verbs_knobs.make_at = at;
		code = side_open(&world.p);
		if (!code)
			code = side_serve(&world.p);
		if (!code && fake_verbs_knobs.make_at == 0)
			fail_msg("object %u was not made and not missed", at);
		side_close(&world.p);
		assert_int_equal(fake_verbs_live(), 0);
	}
	assert_true(at > 8);
}

UNIT_TEST(object_that_cannot_be_made_fails_its_connection)
{
	uint32_t at;

	for (at = 1; at <= 12; at++) {
		(void)world_up(state);
		fake_verbs_knobs.make_at = at;
		if (world_connect() == 0)
			world_run(300);
		/* Objects that the fake itself makes do not count. */
		if (world.d.ups == 0) {
			fake_verbs_knobs.make_at = 0;
			world_run(5400);
			world_comes_up(10);
		}
		assert_int_equal(world_down(state), 0);
	}
}

UNIT_TEST(transition_that_fails_fails_its_connection)
{
	uint32_t at;

	/* Both to take receives, to receive and to send, and P to be read. */
	for (at = 1; at <= 7; at++) {
		(void)world_up(state);
		fake_verbs_knobs.modify_at = at;
		world_connect_run(6000);
		assert_int_equal(fake_verbs_knobs.modify_at, 0);
		assert_int_equal(world.d.ups, 0);
		assert_int_equal(world.d.downs, 1);
		assert_int_equal(fake_verbs_openings(), 0);
		world_comes_up(10);
		assert_int_equal(world_down(state), 0);
	}
}

UNIT_TEST(closing_in_the_middle_leaves_nothing)
{
	uint32_t steps;

	for (steps = 0; steps < 12; steps++) {
		(void)world_up(state);
		world_connect_run(steps);
		if (world.d.ups)
			(void)world_read_start();
		assert_int_equal(world_down(state), 0);
	}
}
