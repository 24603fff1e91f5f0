/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections of the route between machines that are refused or end while
 * something else happens, and timers that fire meanwhile.
 */
#include "tests/unit/verbs/world.h"

#include "tests/lib/lines.h"
#include "verbs/gate.h"

/* Polls P without its owner, which forgets callers. */
static void p_poll(void)
{
	struct kvpull_event events[8];

	world.now_ns += WORLD_STEP_NS;
	(void)world.p.route->ops->poll(world.p.route, world.now_ns, events, 8);
}

static int long_ago(void **state)
{
	int code;

	world_began_ns = KVPULL_NS_PER_S;
	code = world_attached(state);
	world_began_ns = 0;
	return code;
}

static const struct kvpull_verbs_greeting call = { .kind = KVPULL_VERBS_CALL };

/* As many callers of D's address wait as may, and have had no time yet. */
UNIT_TEST_UP(caller_in_a_crowd_hears_that_it_is_full)
{
	uint32_t at;

	for (at = 0; at < KVPULL_VERBS_WAITING_ADDRESS_MAX; at++)
		world_stranger_calls(FAKE_VERBS_ADDRESS, call);
	p_poll();
	assert_int_equal(world_connect(), 0);
	for (at = 0; at < 40 && !world.d.downs; at++) {
		p_poll();
		side_poll(&world.d);
	}
	side_is_down(&world.d, KVPULL_EFULL);
}

/* Calls that are refused are all counted; the log has a line a second. */
UNIT_TEST_UP(calls_that_are_refused_are_logged_once_a_second)
{
	uint32_t at;

	lines_forget();
	world.p.log = lines_from(KVPULL_LOG_WARN);
	for (at = 0; at < 2000; at++) {
		world_stranger_calls("192.168.9.9", call);
		p_poll();
	}
	assert_true(side_counts(&world.p)->calls_refused > 10);
	assert_in_range(lines.bad_count, 1, 3);
}

/* P refuses and hangs up; D sees that first, and then what P had said. */
UNIT_TEST_UP(word_before_the_end_is_heard_though_the_end_came_first)
{
	struct kvpull_event none;
	uint32_t polls;

	world.refuses = 1;
	assert_int_equal(world_connect(), 0);
	while (!world.p.messages) {
		world_run(1);
		assert_int_equal(world.d.downs, 0);
	}
	assert_string_equal(world.d.message, "challenge");
	for (polls = 0; polls < 100; polls++) {
		side_poll(&world.p);
		fake_verbs_run();
	}
	/* Without room for events nothing but the CM is listened to. */
	for (polls = 0; polls < 100; polls++)
		(void)world.d.route->ops->poll(world.d.route, world.now_ns,
					       &none, 0);
	world_run(10);
	assert_string_equal(world.d.message, "no");
	assert_int_equal(world.d.downs, 1);
}

/* D cannot read the welcome, and P must get the reason. */
UNIT_TEST_UP(word_of_who_refuses_a_welcome_is_heard)
{
	world.leaves = 1;
	world_connect_run(30);
	assert_string_equal(world.p.message, "farewell");
	assert_int_equal(world.p.downs, 1);
	assert_int_equal(world.d.downs, 1);
	/* P did not reject the call: D may make it again. */
	assert_int_equal(world.d.down_code, KVPULL_EPEER);
	world.leaves = 0;
	world_comes_up(30);
	assert_int_equal(world.attach_code, 0);
}

/* P, which said nothing, is gone: nobody waits for the handshake's end. */
UNIT_TEST_UP(end_without_a_word_is_told_at_once)
{
	world.silent = 1;
	world_connect_run(10);
	assert_int_equal(world.p.ups, 1);
	assert_int_equal(world.d.downs, 0);
	fake_verbs_cut();
	world_run(10);
	side_is_down(&world.d, KVPULL_EPEER);
}

/*
 * The timer fires between a poll's look at the clock and its look at the timer.
 */
UNIT_TEST_WITH(timer_that_fired_too_early_is_set_again, long_ago, world_down)
{
	const struct kvpull_transport_ops *ops = world.p.route->ops;
	struct pollfd wakes = { .fd = ops->fd(world.p.route),
				.events = POLLIN };
	uint32_t round;

	for (round = 0; round < 3; round++) {
		uint32_t tries = 0;

		while (ops->arm(world.p.route)) {
			assert_true(++tries < 100);
			side_poll(&world.p);
		}
		/* To probe D, by a clock that is long past. */
		assert_int_equal(poll(&wakes, 1, 20000), 1);
		ops->disarm(world.p.route);
		side_poll(&world.p);
	}
}

/* The dead host's device has taken the question, so no second one is sent. */
UNIT_TEST_ATTACHED(host_that_took_a_heartbeat_and_died_is_given_up)
{
	uint32_t left;

	world.now_ns += 3 * KVPULL_NS_PER_S;
	side_poll(&world.p);
	side_poll(&world.p);
	fake_verbs_knobs.mute = 1;
	side_close(&world.d);
	for (left = 40; left && !world.p.downs; left--) {
		world.now_ns += 2 * KVPULL_NS_PER_S;
		side_poll(&world.p);
	}
	assert_int_equal(world.p.downs, 1);
	assert_int_equal(world.p.down_code, KVPULL_EPEER);
	/* Not soon: who is only stopped goes on. */
	assert_in_range(40 - left, 29, 32);
}

/*
 * A consumer whose scheduler half is silent sends no heartbeats: what asks
 * whether the producer is alive must not renew its leases instead.
 */
UNIT_TEST_ATTACHED(question_whether_it_is_alive_renews_no_lease)
{
	const uint64_t before = side_counts(&world.d)->frames_sent;
	uint32_t left;

	for (left = 20; left; left--) {
		world.now_ns += KVPULL_NS_PER_S;
		side_poll(&world.d);
		world_run(3);
	}
	assert_true(side_counts(&world.d)->frames_sent > before);
	assert_int_equal(world.p.downs, 0);
	assert_int_equal(world.d.downs, 0);
	assert_int_equal(world.beat_count, 0);
	world.d.route->ops->beat(world.d.route, world.peer);
	world_run(3);
	assert_int_equal(world.beat_count, 1);
}

/*
 * The owner of a pool looks at no ring: a reader that fills its own is not
 * kept.
 */
UNIT_TEST_ATTACHED(end_is_told_though_nobody_takes_what_was_said)
{
	world_ring_fill();
	assert_int_equal(world_note_send(1), 0);
	assert_int_equal(world_note_send(2), 0);
	world_run(5);
	fake_verbs_cut();
	world_run(5000);
	/* A slow engine hears it first. */
	assert_int_equal(world.d.downs, 1);
	assert_int_equal(world.p.downs, 0);
	world_run(10000);
	assert_int_equal(world.p.downs, 1);
	assert_int_equal(side_counts(&world.p)->frames_bad, 0);
}
