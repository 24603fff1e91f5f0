/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker as producer: what its consumers say reaches the holds in the order
 * of a poll, and as a consumer: when it says that it lives.
 */
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "plugin/hold/hold_state.h"
#include "tests/unit/worker/holder.h"

#define ALL_HOLDS (2 * KVPULL_SCAN_MAX + 100u) /* beyond two sweeps */
#define HOLDS (ALL_HOLDS - SLOT)
#define ENDS 300u /* more than one poll tells */
#define PATIENCE_MS 20000
#define TAIL_AT 128u /* in a ring: include/base/ring.c */

uint32_t world_holds = ALL_HOLDS;

static void hold_next(struct world *world, uint32_t index)
{
	world_hold(world, KEY + index, SLOT + index, GENERATION);
}

HEARD_TEST(heartbeat_renews_what_its_consumer_claimed)
{
	say(world, caller, KVPULL_NOTE_CLAIM);
	world_live(world, LEASE_NS - 200 * WORLD_MS);
	kvpull_ring_beat(&caller->writer);
	world_live(world, LEASE_NS - 200 * WORLD_MS);
	world_silent(world, KEY);
	world_live(world, 300 * WORLD_MS);
	ended(world, KVPULL_END_EXPIRED);
}

HELD_TEST(hold_that_expires_names_who_claimed_it_last)
{
	struct world_caller *caller;

	world_live(world, LEASE_NS + 100 * WORLD_MS);
	warned(world, "expired at its lease");
	assert_non_null(strstr(world->lines.of[KVPULL_LOG_WARN],
			       "claimed last by nobody; slot"));
	caller = consumer(world, 0, 0x11);
	world_hold(world, KEY + 1, SLOT, GENERATION + 1);
	world_say(world, caller, KVPULL_NOTE_CLAIM, SLOT, GENERATION + 1);
	world_live(world, LEASE_NS + 200 * WORLD_MS);
	assert_non_null(strstr(world->lines.of[KVPULL_LOG_WARN],
			       "claimed last by consumer pid 0; slot 3 "));
}

HEARD_TEST(release_in_the_ring_comes_before_the_end_of_the_lease)
{
	world_live(world, LEASE_NS - 100 * WORLD_MS);
	say(world, caller, KVPULL_NOTE_RELEASE);
	world_live(world, 100 * WORLD_MS);
	ended(world, KVPULL_END_RELEASED);
}

/* A clock behind whose every reading its consumer says the next thing. */
struct busy_clock {
	struct world *world;
	struct world_caller *caller;
	uint64_t said_ns[8];
	uint32_t said;
};

static uint64_t busy_now(void *context)
{
	struct busy_clock *clock = context;
	struct world *world = clock->world;
	const uint64_t now_ns = world->now_ns;

	world->now_ns += WORLD_MS;
	if (clock->said < 8) {
		clock->said_ns[clock->said++] = world->now_ns;
		say(world, clock->caller, KVPULL_NOTE_CLAIM);
	}
	return now_ns;
}

HEARD_TEST(what_is_said_has_no_time_before_it_was_said)
{
	struct busy_clock clock = { .world = world, .caller = caller };
	struct kvpull_facts *facts = &world->worker->facts;
	const struct kvpull_facts before = *facts;

	world_poll(world, 1);
	facts->now_ns = busy_now;
	facts->now_context = &clock;
	world->now_ns += WORLD_MS;
	world_poll(world, 1);
	*facts = before;
	/* The first, and what was said behind the tail waits. */
	assert_in_range(clock.said, 2, 8);
	assert_int_equal(kvpull_ring_ready(&caller->ring), clock.said - 1);
	assert_in_range(world->worker->holds->now_ns, clock.said_ns[0],
			world->now_ns);
}

HEARD_TEST(claim_in_the_ring_comes_before_the_end_of_the_lease)
{
	world_live(world, LEASE_NS - 100 * WORLD_MS);
	say(world, caller, KVPULL_NOTE_CLAIM);
	world_live(world, 100 * WORLD_MS);
	world_silent(world, KEY);
}

HEARD_TEST(death_releases_at_the_next_poll)
{
	tell(world, caller, KVPULL_NOTE_CLAIM);
	caller_down(world, 0, 1);
	ended(world, KVPULL_END_RELEASED);
	world_poll(world, 1);
	assert_int_equal(caller->forgotten, 1);
}

HEARD_TEST(last_words_of_the_dead_count)
{
	world_poll(world, 1);
	say(world, caller, KVPULL_NOTE_RELEASE);
	caller_down(world, 0, 1);
	ended(world, KVPULL_END_RELEASED);
}

/* All holds of the worker, so many, are revoked. */
static void revoked(const struct world *world, int count)
{
	assert_int_equal(
		kvpull_worker_revoke_all(world->worker, KVPULL_END_REVOKED),
		count);
}

/* Is an engine that sleeps woken? Once asked, no more. */
static int is_due(const struct kvpull_worker *worker)
{
	eventfd_t wakes;

	return !eventfd_read(worker->handover.engine_wake_fd, &wakes);
}

/* As event_fd() does; this transport has no descriptors. */
static void events_open(struct kvpull_worker *worker)
{
	worker->wakeup.fd = epoll_create1(EPOLL_CLOEXEC);
	worker->wakeup.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	assert_true(worker->wakeup.fd >= 0 && worker->wakeup.timer_fd >= 0);
	worker->wakeup.timer_ns = UINT64_MAX;
	worker->wakeup.wake_fd = worker->handover.engine_wake_fd;
}

/* A test whose engine sleeps on its descriptor. */
#define EVENTS_TEST(name)                                                      \
	static void name##_of_worker(struct world *world,                      \
				     struct kvpull_worker *worker);            \
	WORLD_TEST(name)                                                       \
	{                                                                      \
		events_open(world->worker);                                    \
		name##_of_worker(world, world->worker);                        \
	}                                                                      \
	static void name##_of_worker(struct world *world,                      \
				     struct kvpull_worker *worker)

/* A consumer whose record comes while the engine goes to sleep. */
static struct world_caller *late;

static int arm_late(struct kvpull_transport *transport)
{
	if (late)
		say(world_of(transport), late, KVPULL_NOTE_RELEASE);
	late = NULL;
	return 0;
}

HEARD_TEST(record_that_comes_while_arming_is_not_slept_over)
{
	world_poll(world, 1);
	world->ops.arm = arm_late;
	events_open(world->worker);
	late = caller;
	world_poll(world, 1);
	ended(world, KVPULL_END_RELEASED);
}

static int arm_busy(struct kvpull_transport *transport)
{
	(void)transport;
	return 1;
}

/* As reads in slices: work, and no event to tell of it. */
EVENTS_TEST(transport_that_has_more_to_do_is_not_slept_over)
{
	world_poll(world, 2);
	(void)is_due(worker);
	world_poll(world, 1);
	assert_false(is_due(worker));
	world->ops.arm = arm_busy;
	world_poll(world, 1);
	assert_true(is_due(worker));
}

/*
 * A poll returns its records before it looks at the descriptor. So the
 * descriptor stays readable, each time, until a poll returned none.
 */
EVENTS_TEST(poll_that_told_something_is_followed_by_another)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	uint32_t round;

	assert_int_equal(epoll_ctl(worker->wakeup.fd, EPOLL_CTL_ADD,
				   worker->handover.engine_wake_fd, &event),
			 0);
	for (round = 0; round < 3; round++) {
		hold_next(world, round);
		world_poll(world, 3);
		assert_int_equal(epoll_wait(worker->wakeup.fd, &event, 1, 0),
				 0);
		revoked(world, 1);
		world_poll(world, 1);
		sent(world, KEY + round, KVPULL_END_REVOKED);
		assert_int_equal(epoll_wait(worker->wakeup.fd, &event, 1, 0),
				 1);
	}
}

static int rings_now(const struct kvpull_transport *transport)
{
	(void)transport;
	return 1;
}

/* As if a consumer had ended them: this engine's own calls keep it readable. */
static void said_nothing(struct kvpull_worker *worker)
{
	(void)is_due(worker);
	worker->wakeup.is_kept = 0;
}

/* A bell that is unread keeps the descriptor readable: one call less. */
EVENTS_TEST(bell_that_is_unread_needs_no_other)
{
	uint32_t round;

	for (round = 0; round < 4; round++) {
		const uint32_t rings = round & 1;
		const uint32_t armed = round < 2;

		hold_next(world, round);
		world_poll(world, 3);
		assert_int_equal(worker->events_armed, 1);
		(void)is_due(worker);
		/*
		 * An event that came before all was armed may have been read
		 * already.
		 */
		worker->events_armed = armed;
		world->ops.rings = rings ? rings_now : fake_ops.rings;
		revoked(world, 1);
		said_nothing(worker);
		world_poll(world, 1);
		sent(world, KEY + round, KVPULL_END_REVOKED);
		assert_int_equal(is_due(worker), !(rings && armed));
		world->ops.rings = fake_ops.rings;
	}
}

/* No event comes for the ends that are left. */
EVENTS_TEST(ends_that_one_poll_leaves_are_not_slept_over)
{
	static struct kvpull_poll_record records[2 * ENDS];
	uint32_t told = 0;
	uint32_t index;
	int count = 0;

	worker->facts.config.progress = KVPULL_PROGRESS_THREAD;
	for (index = 0; index < ENDS; index++)
		hold_next(world, index);
	world_poll(world, 3);
	assert_int_equal(worker->events_armed, 1);
	revoked(world, ENDS);
	said_nothing(worker);
	for (; told < ENDS; told += (uint32_t)count) {
		(void)is_due(worker);
		count = kvpull_worker_poll(worker, records, 2 * ENDS,
					   sizeof(*records));
		assert_in_range(count, 1, ENDS - told);
		if (told + (uint32_t)count < ENDS)
			assert_true(is_due(worker));
	}
	assert_true(told > (uint32_t)count);
}

static void sleep_well(struct world *world)
{
	world_poll(world, 3);
	(void)is_due(world->worker);
	world_poll(world, 1);
	assert_false(is_due(world->worker));
}

/* Each leaves something to a poll, of which no bell tells. */
EVENTS_TEST(calls_between_polls_wake_a_sleeper)
{
	world_claim(world, 101, 1);
	assert_true(is_due(worker));
	world_poll(world, 1);
	(void)world_up(world, "1-0", 0, 1);
	world->check_code = 0;
	world_pull(world, 1, 101, 0);
	sleep_well(world);
	/* The read ends in progress(), and is told by a poll. */
	world_done_queue(world, 0, 0);
	assert_true(kvpull_worker_progress(worker) > 0);
	assert_true(is_due(worker));
	hold(world);
	sleep_well(world);
	revoked(world, 1);
	assert_true(is_due(worker));
}

/* An engine may start loads long after the step that brought them. */
EVENTS_TEST(load_that_is_started_late_wakes_a_sleeper)
{
	(void)claim_up(world, 101);
	world_pull_command(world, 1, 101, 0);
	sleep_well(world);
	assert_int_equal(kvpull_worker_start_loads(worker), 0);
	assert_true(is_due(worker));
}

/* A step makes no event, and a lease even less: a poll is due. */
EVENTS_TEST(lease_that_a_step_began_is_not_slept_over)
{
	worker->facts.config.progress = KVPULL_PROGRESS_THREAD;
	world_poll(world, 3);
	assert_int_equal(worker->events_armed, 1);
	(void)is_due(worker);
	/* The first ends in the poll that follows the step: it tells. */
	hold_next(world, 0);
	revoked(world, 1);
	hold_next(world, 1);
	world_poll(world, 1);
	ended(world, KVPULL_END_REVOKED);
	assert_true(is_due(worker));
	world_poll(world, 2);
	assert_in_range(worker->wakeup.timer_ns, world->now_ns,
			world->now_ns + LEASE_NS);
}

/* A poll that began before the timer's time may eat what the timer says. */
EVENTS_TEST(timer_that_fired_is_set_again)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	const struct itimerspec now = { .it_value.tv_nsec = 1 };
	struct pollfd fired = { .events = POLLIN };

	event.data.fd = fired.fd = worker->wakeup.timer_fd;
	assert_int_equal(epoll_ctl(worker->wakeup.fd, EPOLL_CTL_ADD,
				   worker->wakeup.timer_fd, &event),
			 0);
	hold(world);
	world_poll(world, 2);
	assert_int_equal(
		timerfd_settime(worker->wakeup.timer_fd, 0, &now, NULL), 0);
	assert_int_equal(epoll_wait(worker->wakeup.fd, &event, 1, PATIENCE_MS),
			 1);
	/* Looked at, it is quiet until it fires again. */
	assert_int_equal(
		timerfd_settime(worker->wakeup.timer_fd, 0, &now, NULL), 0);
	assert_int_equal(poll(&fired, 1, PATIENCE_MS), 1);
	world_poll(world, 1);
	/* At the time of this world, which is long ago by the kernel's clock. */
	assert_int_equal(epoll_wait(worker->wakeup.fd, &event, 1, PATIENCE_MS),
			 1);
}

/*
 * The consumer waits until its predecessor's death was handled, and makes no
 * event.
 */
WORLD_TEST(consumer_that_waits_to_be_let_in_is_not_slept_over)
{
	struct kvpull_worker *worker = world->worker;
	uint32_t polls = 0;
	uint32_t index;

	(void)consumer(world, 0, 0x11);
	for (index = 0; index < HOLDS; index++)
		hold_next(world, index);
	events_open(worker);
	sleep_well(world);
	(void)world_event(world, KVPULL_EVENT_CALLER_DOWN, 0);
	(void)consumer(world, 1, 0x11);
	while (!worker->crowd.notes[1].joined) {
		assert_in_range(polls++, 0, 9);
		assert_true(is_due(worker));
		world_poll(world, 1);
	}
	sleep_well(world);
}

WORLD_TEST(broken_rings_are_counted_and_told_once_a_second)
{
	struct kvpull_worker *worker = world->worker;
	uint32_t round;

	for (round = 0; round < 3; round++) {
		struct world_caller *caller = consumer(world, 0, 0x11 + round);

		memset((uint8_t *)caller->memory + TAIL_AT, 0xff,
		       sizeof(uint64_t));
		world_poll(world, 2);
		assert_int_equal(worker->counts.rings_broken, round + 1);
		assert_int_equal(caller->dropped, 1);
		assert_int_equal(world->lines.counts[KVPULL_LOG_ERROR],
				 1 + round / 2);
		caller_down(world, 0, 2);
		world->now_ns += round ? KVPULL_NS_PER_S : 0;
	}
}

static int bell = -1;

static int bell_of(const struct kvpull_transport *transport)
{
	(void)transport;
	return bell;
}

/* The lowest one that is free. */
static int descriptor_next(void)
{
	const int next = eventfd(0, EFD_CLOEXEC);

	assert_int_equal(close(next), 0);
	return next;
}

/* A process that is short of descriptors may have some the next time. */
WORLD_TEST(event_fd_that_failed_is_tried_again)
{
	struct kvpull_worker *worker = world->worker;
	const int next = descriptor_next();
	struct pollfd due = { .events = POLLIN };

	world->ops.fd = bell_of;
	bell = -1; /* it cannot be waited for */
	assert_int_equal(kvpull_worker_event_fd(worker), KVPULL_EDEVICE);
	assert_int_equal(descriptor_next(), next);
	bell = eventfd(0, EFD_CLOEXEC);
	due.fd = kvpull_worker_event_fd(worker);
	assert_true(due.fd >= 0);
	assert_int_equal(poll(&due, 1, 0), 1);
	assert_int_equal(close(bell), 0);
}

WORLD_TEST(event_fd_with_descriptor_0_is_opened_once)
{
	int input;
	int again;

	world->ops.fd = bell_of;
	bell = eventfd(0, EFD_CLOEXEC);
	input = input_close();
	assert_int_equal(kvpull_worker_event_fd(world->worker), 0);
	again = kvpull_worker_event_fd(world->worker);
	kvpull_wakeup_close(&world->worker->wakeup);
	input_open(input);
	assert_int_equal(again, 0);
	assert_int_equal(close(bell), 0);
}

/*
 * The poll sends heartbeats, so the sleep must not be longer than their
 * interval.
 */
EVENTS_TEST(engine_that_does_the_io_wakes_up_for_heartbeats)
{
	(void)claim_up(world, 101);
	world_poll(world, 2);
	assert_in_range(worker->wakeup.timer_ns, world->now_ns,
			world->now_ns + LEASE_NS / 3);
}

/* A pull without start_loads() must still end at its deadline. */
WORLD_TEST(engine_that_sleeps_wakes_up_for_a_pull_that_it_did_not_start)
{
	struct kvpull_worker *worker = world->worker;

	/* Heartbeats are another thread's, and wake nobody here. */
	worker->facts.config.progress = KVPULL_PROGRESS_THREAD;
	events_open(worker);
	world_claim(world, 101, 1);
	world_pull_command(world, KEY, 101, 0);
	world_poll(world, 2);
	assert_true(worker->pulls.start.first != KVPULL_NONE);
	assert_int_equal(
		worker->wakeup.timer_ns,
		worker->handover.pulls[worker->pulls.start.first].deadline_ns);
}

WORLD_TEST(consumer_beats_three_times_a_lease_until_the_release)
{
	uint32_t peer;
	uint32_t beats;

	peer = claim_up(world, 101);
	beats = world->peers[peer].beats;
	world_live(world, LEASE_NS);
	assert_in_range(world->peers[peer].beats - beats, 2, 4);
	release(world, 101);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 1);
	beats = world->peers[peer].beats;
	world_live(world, LEASE_NS);
	assert_int_equal(world->peers[peer].beats, beats);
}
