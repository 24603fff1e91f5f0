/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, engine's thread: the descriptor on which an engine sleeps. It is
 * readable when a poll has something to do. Nothing here is a system call for
 * an engine that never asked for event_fd().
 */
#include "plugin/worker/worker.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/epoll.h"
#include "base/fd.h"

/* An engine that sleeps: ask everybody for a doorbell, then look once more. */
static int bells_arm(struct kvpull_worker *worker)
{
	int more = kvpull_ring_arm(&worker->end.reader);
	uint32_t at;

	/* Without a thread of its own the transport wakes this one. */
	if (worker->facts.config.progress == KVPULL_PROGRESS_CALLER)
		more |= kvpull_progress_arm(worker->progress);

	for (at = 0; at < worker->active_count; at++) {
		const uint32_t index = worker->active[at];
		const struct kvpull_consumer_note *note =
			&worker->consumer_notes[index];

		if (note->joined && !note->dropped)
			more |= kvpull_ring_arm(
				worker->handover.consumers[index].ring);
	}
	return more;
}

static void events_timer(struct kvpull_worker *worker)
{
	uint64_t at_ns = kvpull_holds_deadline(worker->holds);
	struct itimerspec timer = { 0 };

	/* Heartbeats, reconnects and deadlines are this thread's then. */
	if (worker->facts.config.progress == KVPULL_PROGRESS_CALLER &&
	    kvpull_progress_due_ns(worker->progress) < at_ns)
		at_ns = kvpull_progress_due_ns(worker->progress);
	if (at_ns == worker->timer_set_ns)
		return;
	worker->timer_set_ns = at_ns;
	if (at_ns != UINT64_MAX) {
		timer.it_value.tv_sec = (time_t)(at_ns / KVPULL_NS_PER_S);
		timer.it_value.tv_nsec = (long)(at_ns % KVPULL_NS_PER_S);
	}
	(void)timerfd_settime(worker->timer_fd, TFD_TIMER_ABSTIME, &timer,
			      NULL);
}

/* Eat what woke us; the doorbells are edge triggered. */
static void events_clear(struct kvpull_worker *worker)
{
	struct epoll_event events[8];
	int count;

	if (worker->facts.config.progress == KVPULL_PROGRESS_CALLER)
		kvpull_progress_disarm(worker->progress);
	count = epoll_wait(worker->event_fd, events, 8, 0);
	worker->events_kept = 0;
	/* Its time came after this poll's: it is to be set once more. */
	for (; count > 0; count--)
		if (events[count - 1].data.fd == worker->timer_fd)
			worker->timer_set_ns = 0;
}

/* The descriptor stays readable until a poll has cleared it. */
static void events_keep(struct kvpull_worker *worker)
{
	if (worker->events_kept)
		return;
	worker->events_kept = 1;
	(void)eventfd_write(worker->handover.engine_wake_fd, 1);
}

void kvpull_worker_poll_due(struct kvpull_worker *worker)
{
	if (worker->events_wanted)
		events_keep(worker);
}

void kvpull_sleep_told(struct kvpull_worker *worker, uint32_t left)
{
	int keep = !worker->events_armed;

	if (worker->facts.config.progress == KVPULL_PROGRESS_CALLER)
		keep |= !kvpull_progress_rings(worker->progress);
	else
		keep |= left != 0;
	if (keep)
		events_keep(worker);
}

int kvpull_sleep_arm(struct kvpull_worker *worker)
{
	events_clear(worker);
	worker->events_armed = !bells_arm(worker);
	return !worker->events_armed;
}

void kvpull_sleep_ready(struct kvpull_worker *worker, uint32_t worked)
{
	events_timer(worker);
	/* More is due than one poll does: wake up again at once. */
	if (worked)
		events_keep(worker);
}

/* 0, or -1 with errno. */
static int events_open(struct kvpull_worker *worker)
{
	int failed;

	worker->event_fd = epoll_create1(EPOLL_CLOEXEC);
	worker->timer_fd =
		timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	failed = worker->event_fd < 0 || worker->timer_fd < 0 ||
		 kvpull_epoll_add(worker->event_fd,
				  worker->handover.engine_wake_fd,
				  EPOLLIN | EPOLLET) ||
		 kvpull_epoll_add(worker->event_fd, worker->timer_fd,
				  EPOLLIN | EPOLLET) ||
		 kvpull_progress_watch(worker->progress, worker->event_fd);
	return failed ? -1 : 0;
}

/* The next call tries again. */
static void events_close(struct kvpull_worker *worker)
{
	kvpull_fd_close(&worker->event_fd);
	kvpull_fd_close(&worker->timer_fd);
}

int kvpull_worker_event_fd(struct kvpull_worker *worker)
{
	if (worker->event_fd >= 0)
		return worker->event_fd;
	if (events_open(worker)) {
		kvpull_error(&worker->facts.log, "event_fd: %s",
			     strerror(errno));
		events_close(worker);
		return KVPULL_EDEVICE;
	}
	worker->events_wanted = 1;
	worker->timer_set_ns = UINT64_MAX;
	/* Nothing is armed yet: its first sleep ends in a poll that does. */
	(void)eventfd_write(worker->handover.engine_wake_fd, 1);
	return worker->event_fd;
}
