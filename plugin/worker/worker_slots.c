/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, engine's thread: what steps and polls share, slots to hand over.
 */
#include "plugin/worker/worker_state.h"

#include <sys/eventfd.h>

/* State of a wake-up of a progress thread that sleeps. */
enum wake_due {
	WAKE_NOTHING = 0,
	WAKE_LATER, /* by the next call */
	WAKE_NOW    /* by the end of this one */
};

void kvpull_worker_tell_later(struct kvpull_worker *worker, uint32_t kind,
			      uint32_t index, uint64_t serial)
{
	if (kvpull_handover_push(&worker->end, kind, index, serial) &&
	    worker->wake_due == WAKE_NOTHING)
		worker->wake_due = WAKE_LATER;
}

void kvpull_worker_tell(struct kvpull_worker *worker, uint32_t kind,
			uint32_t index, uint64_t serial)
{
	kvpull_worker_tell_later(worker, kind, index, serial);
	/* A ring says that its reader sleeps once a sleep. */
	if (worker->wake_due != WAKE_NOTHING)
		worker->wake_due = WAKE_NOW;
}

void kvpull_worker_wake_all(struct kvpull_worker *worker)
{
	if (worker->wake_due == WAKE_NOTHING)
		return;
	worker->wake_due = WAKE_NOTHING;
	(void)eventfd_write(worker->handover.progress_wake_fd, 1);
}

void kvpull_worker_wake(struct kvpull_worker *worker)
{
	if (worker->wake_due == WAKE_NOW)
		kvpull_worker_wake_all(worker);
}

void kvpull_pull_hand_over(struct kvpull_worker *worker, uint32_t index)
{
	worker->claims.notes[worker->handover.pulls[index].claim].waiting--;
	kvpull_worker_tell(worker, KVPULL_TO_PULL, index,
			   worker->pulls.notes[index].serial);
}

/*
 * Hands over this pull, and those of this claim, where they were not begun. The
 * others stay. KVPULL_NONE: no pull, no claim.
 */
static void pulls_hand_over(struct kvpull_worker *worker, uint32_t pull,
			    uint32_t claim)
{
	const struct kvpull_pull_order *orders = worker->handover.pulls;
	struct kvpull_pull_list stay = { KVPULL_NONE, KVPULL_NONE };
	struct kvpull_worker_pulls *pulls = &worker->pulls;
	struct kvpull_turns *small = &worker->small.turns;
	uint32_t index;
	uint32_t next;

	while (pulls->start.first != KVPULL_NONE) {
		index = kvpull_pulls_take(pulls, &pulls->start);
		if (index == pull || orders[index].claim == claim)
			kvpull_pull_hand_over(worker, index);
		else
			kvpull_pulls_add(pulls, &stay, index);
	}
	pulls->start = stay;
	for (index = small->arrival.first; index != KVPULL_NONE; index = next) {
		next = small->arrival.links[index].next;
		if (index != pull && orders[index].claim != claim)
			continue;
		kvpull_turns_remove(small, index);
		kvpull_pull_hand_over(worker, index);
	}
}

void kvpull_worker_pull_abort(struct kvpull_worker *worker, uint32_t index)
{
	struct kvpull_pull_note *note = &worker->pulls.notes[index];

	if (note->abort_told)
		return;
	note->abort_told = 1;
	/*
	 * There is one way out: a pull that has not begun is begun in order to
	 * end.
	 */
	pulls_hand_over(worker, index, KVPULL_NONE);
	kvpull_worker_tell(worker, KVPULL_TO_ABORT, index, note->serial);
}

void kvpull_worker_claim_release(struct kvpull_worker *worker, uint32_t index)
{
	struct kvpull_claim_note *note = &worker->claims.notes[index];

	if (note->release_told)
		return;
	note->release_told = 1;
	/* Many pulls may wait, and hardly ever one of this claim. */
	if (note->waiting)
		pulls_hand_over(worker, KVPULL_NONE, index);
	kvpull_worker_tell(worker, KVPULL_TO_RELEASE, index,
			   worker->handover.claims[index].serial);
}
