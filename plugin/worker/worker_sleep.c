/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, engine's thread: the descriptor on which an engine sleeps. It is
 * readable when a poll has something to do. Nothing here is a system call for
 * an engine that never asked for event_fd().
 */
#include "plugin/worker/worker_state.h"

#include <errno.h>

#include "base/cause.h"

/* An engine that sleeps: ask everybody for a doorbell, then look once more. */
static int bells_arm(struct kvpull_worker *worker)
{
	const struct kvpull_crowd *crowd = &worker->crowd;
	int more = kvpull_ring_arm(&worker->end.reader);
	uint32_t at;

	/* Without a thread of its own the transport wakes this one. */
	if (worker->facts.config.progress == KVPULL_PROGRESS_CALLER)
		more |= kvpull_progress_arm(worker->progress);

	for (at = 0; at < crowd->active_count; at++)
		if (kvpull_crowd_is_in(crowd, crowd->active[at]))
			more |= kvpull_ring_arm(
				crowd->consumers[crowd->active[at]].ring);
	return more;
}

static void events_timer(struct kvpull_worker *worker)
{
	const uint32_t waiting = worker->pulls.start.first;
	uint64_t at_ns = kvpull_holds_deadline(worker->holds);

	/*
	 * Pulls that are never started have their deadline on this thread, too.
	 */
	if (waiting != KVPULL_NONE &&
	    worker->handover.pulls[waiting].deadline_ns < at_ns)
		at_ns = worker->handover.pulls[waiting].deadline_ns;
	/* Heartbeats, reconnects and deadlines are this thread's then. */
	if (worker->facts.config.progress == KVPULL_PROGRESS_CALLER &&
	    kvpull_progress_due_ns(worker->progress) < at_ns)
		at_ns = kvpull_progress_due_ns(worker->progress);
	kvpull_wakeup_at(&worker->wakeup, at_ns);
}

void kvpull_sleep_told(struct kvpull_worker *worker, uint32_t left)
{
	int keep = !worker->events_armed;

	if (worker->facts.config.progress == KVPULL_PROGRESS_CALLER)
		keep |= !kvpull_progress_rings(worker->progress);
	else
		keep |= left != 0;
	if (keep)
		kvpull_wakeup_keep(&worker->wakeup);
}

int kvpull_sleep_arm(struct kvpull_worker *worker)
{
	if (worker->facts.config.progress == KVPULL_PROGRESS_CALLER)
		kvpull_progress_disarm(worker->progress);
	kvpull_wakeup_clear(&worker->wakeup);
	worker->events_armed = !bells_arm(worker);
	return !worker->events_armed;
}

void kvpull_sleep_ready(struct kvpull_worker *worker, uint32_t worked)
{
	events_timer(worker);
	/* More is due than one poll does: wake up again at once. */
	if (worked)
		kvpull_wakeup_keep(&worker->wakeup);
}

int kvpull_worker_event_fd(struct kvpull_worker *worker)
{
	struct kvpull_wakeup *wakeup = &worker->wakeup;

	if (wakeup->fd >= 0)
		return wakeup->fd;
	if (kvpull_wakeup_open(wakeup, worker->handover.engine_wake_fd) ||
	    kvpull_progress_watch(worker->progress, wakeup->fd)) {
		kvpull_error(&worker->facts.log, "event_fd: %s",
			     kvpull_why(WATCH, errno));
		/* The next call tries again. */
		kvpull_wakeup_close(wakeup);
		return KVPULL_EDEVICE;
	}
	/* Nothing is armed yet: its first sleep ends in a poll that does. */
	kvpull_wakeup_keep(wakeup);
	return wakeup->fd;
}
