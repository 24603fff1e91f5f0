/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker as producer whose polls come seldom, beside a progress thread and
 * without one: semantics B.4. The test plays the thread.
 */
#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "tests/unit/worker/holder.h"

#define LEASE_MS UINT64_C(3000)

static int setup_beside(void **state)
{
	const int code = world_setup(state);

	((struct world *)*state)->worker->facts.config.progress =
		KVPULL_PROGRESS_THREAD;
	return code;
}

#define BESIDE_A_THREAD(name)                                                  \
	UNIT_TEST_OF(name, struct world, world, setup_beside, world_teardown)

static void thread_runs(struct world *world)
{
	(void)kvpull_progress_run(world->worker->progress, world->now_ns);
}

/* Return: milliseconds after which a poll reported the hold, polled at a pace. */
static uint64_t reported_after(struct world *world, uint64_t pace_ms,
			       uint64_t thread_ms)
{
	uint64_t ms = 0;

	while (!world->record_count) {
		ms += 100;
		world->now_ns += 100 * WORLD_MS;
		if (thread_ms && ms % thread_ms == 0)
			thread_runs(world);
		if (ms % pace_ms == 0)
			world_poll(world, 1);
	}
	ended(world, KVPULL_END_EXPIRED);
	return ms;
}

BESIDE_A_THREAD(hold_ends_at_the_first_poll_after_its_lease_beside_a_thread)
{
	thread_runs(world);
	hold(world);
	assert_int_equal(reported_after(world, 1200, 300), 3600);
}

WORLD_TEST(hold_ends_a_gap_after_its_lease_without_a_thread)
{
	hold(world);
	assert_int_equal(reported_after(world, 1200, 0), 4800);
}

/* A process that is stopped as a whole has heard nobody for that long. */
BESIDE_A_THREAD(claimant_that_beats_outlives_a_stop_of_its_producer)
{
	struct world_caller *caller;

	world->worker->facts.config.progress = KVPULL_PROGRESS_CALLER;
	caller = consumer(world, 0, 0x11);
	world->worker->facts.config.progress = KVPULL_PROGRESS_THREAD;
	thread_runs(world);
	hold(world);
	tell(world, caller, KVPULL_NOTE_CLAIM);
	/* The next heartbeat comes while nothing runs here. */
	world->now_ns += LEASE_NS;
	world_poll(world, 1);
	world_silent(world, KEY);
	/* The thread has a third of a lease to hand it over. */
	world->now_ns += LEASE_NS / 3;
	world_poll(world, 1);
	world_silent(world, KEY);
	thread_runs(world);
	kvpull_ring_beat(&caller->writer);
	world->now_ns += LEASE_NS / 3;
	thread_runs(world);
	world_poll(world, 1);
	world_silent(world, KEY);
}

static _Atomic int slept_ms;
static _Atomic uint32_t sleeps;

/* The progress thread sleeps in this call, which takes no time here. */
int epoll_wait(int epoll_fd, struct epoll_event *events, int capacity,
	       int timeout_ms)
{
	/* Order does not matter: each value is handed to the waiting test. */
	atomic_store_explicit(&slept_ms, timeout_ms, memory_order_relaxed);
	atomic_fetch_add_explicit(&sleeps, 1, memory_order_relaxed);
	return epoll_pwait(epoll_fd, events, capacity, 0, NULL);
}

static int wake_fd;

static int wake_fd_of(const struct kvpull_transport *transport)
{
	(void)transport;
	return wake_fd;
}

static void thread_stop(struct kvpull_progress *progress)
{
	atomic_store_explicit(&progress->thread.stop, 1, memory_order_relaxed);
	assert_int_equal(pthread_join(progress->thread.id, NULL), 0);
	progress->thread.runs = 0;
}

/* The thread runs until it slept so many times. */
static void thread_sleeps(struct world *world, uint32_t times)
{
	atomic_store_explicit(&sleeps, 0, memory_order_relaxed);
	wake_fd = eventfd(0, EFD_CLOEXEC);
	world->ops.fd = wake_fd_of;
	assert_int_equal(kvpull_progress_start(world->worker->progress), 0);
	while (atomic_load_explicit(&sleeps, memory_order_relaxed) < times)
		(void)sched_yield();
	thread_stop(world->worker->progress);
	world->ops.fd = fake_ops.fd;
	assert_int_equal(close(wake_fd), 0);
}

/* A sleep of a second, whatever the lease was, would count as a stop. */
BESIDE_A_THREAD(idle_thread_sleeps_a_sixth_of_a_lease)
{
	thread_sleeps(world, 1);
	assert_int_equal(atomic_load_explicit(&slept_ms, memory_order_relaxed),
			 LEASE_MS / 6);
}

/* The descriptor is watched by level: left unread, it would end every sleep. */
BESIDE_A_THREAD(thread_that_was_woken_sleeps_again)
{
	const int wake = world->worker->handover.progress_wake_fd;
	eventfd_t times;

	assert_int_equal(eventfd_write(wake, 1), 0);
	thread_sleeps(world, 2);
	assert_int_equal(eventfd_read(wake, &times), -1);
	assert_int_equal(errno, EAGAIN);
}

static void stopped_at(const struct kvpull_handover *handover, uint64_t at_ns,
		       uint64_t stopped_ns)
{
	assert_int_equal(kvpull_handover_stopped(handover, at_ns, LEASE_NS),
			 stopped_ns);
}

static void ran_at(const struct kvpull_handover *handover, uint64_t at_ns)
{
	assert_int_equal(
		atomic_load_explicit(&handover->ran_ns, memory_order_relaxed),
		at_ns);
}

UNIT_TEST(thread_that_sleeps_a_sixth_of_a_lease_is_not_stopped)
{
	struct kvpull_handover handover = { .stopped_ns = 0 };
	uint64_t last_ns = 0;
	uint64_t at_ns;

	for (at_ns = LEASE_NS; at_ns < 10 * LEASE_NS; at_ns += LEASE_NS / 6) {
		kvpull_handover_ran(&handover, last_ns, at_ns, LEASE_NS);
		last_ns = at_ns;
		stopped_at(&handover, at_ns + LEASE_NS / 3, 0);
	}
}

UNIT_TEST(thread_that_stops_is_seen_while_it_does_and_after)
{
	struct kvpull_handover handover = { .stopped_ns = 0 };
	const uint64_t stop_ns = LEASE_NS / 3 + 1;

	kvpull_handover_ran(&handover, 0, LEASE_NS, LEASE_NS);
	stopped_at(&handover, LEASE_NS + stop_ns, stop_ns);
	kvpull_handover_ran(&handover, LEASE_NS, LEASE_NS + stop_ns, LEASE_NS);
	stopped_at(&handover, LEASE_NS + stop_ns, stop_ns);
	/* And again: the sum. */
	kvpull_handover_ran(&handover, LEASE_NS + stop_ns,
			    LEASE_NS + 3 * stop_ns, LEASE_NS);
	stopped_at(&handover, LEASE_NS + 3 * stop_ns, 3 * stop_ns);
}

/* The engine reads the line in each poll: it is written seldom. */
UNIT_TEST(run_of_the_thread_is_told_to_a_sixty_fourth_of_a_lease)
{
	struct kvpull_handover handover = { .stopped_ns = 0 };

	kvpull_handover_ran(&handover, 0, LEASE_NS, LEASE_NS);
	kvpull_handover_ran(&handover, LEASE_NS, LEASE_NS + LEASE_NS / 64 - 1,
			    LEASE_NS);
	ran_at(&handover, LEASE_NS);
	kvpull_handover_ran(&handover, LEASE_NS, LEASE_NS + LEASE_NS / 64,
			    LEASE_NS);
	ran_at(&handover, LEASE_NS + LEASE_NS / 64);
}
