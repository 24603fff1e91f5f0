/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, engine's thread: consumers that make room for others.
 *
 * Once consumers_max is reached progress refuses a new consumer with EFULL, and
 * tells this thread how many places that consumer lacks. The consumer that was
 * heard longest ago is closed, with all ranks of its instance, if no rank of it
 * has a claim or a note in its ring. The hold table takes it for away, as if it
 * had said that it makes room. It connects again at its next claim.
 */
#include "plugin/worker/worker.h"

/* A new consumer's first claim may still be on its way over a network. */
#define ROOM_AGE_NS (100 * KVPULL_NS_PER_MS)
#define ROOM_INSTANCES_MAX 8u /* that make room in one poll */

static int is_idle(const struct kvpull_worker *worker, uint32_t index,
		   uint64_t now_ns)
{
	const struct kvpull_consumer_note *note =
		&worker->consumer_notes[index];

	return note->joined && !note->dropped && !note->leaves &&
	       now_ns - note->joined_ns >= ROOM_AGE_NS &&
	       !kvpull_holds_is_claimed(worker->holds, note->instance) &&
	       !kvpull_ring_ready(worker->handover.consumers[index].ring);
}

/* KVPULL_NONE: all have claims, or are new. */
static uint32_t silent_longest(const struct kvpull_worker *worker,
			       uint64_t now_ns)
{
	const struct kvpull_consumer_note *notes = worker->consumer_notes;
	uint32_t found = KVPULL_NONE;
	uint32_t at;

	for (at = 0; at < worker->active_count; at++) {
		const uint32_t index = worker->active[at];

		if (is_idle(worker, index, now_ns) &&
		    (found == KVPULL_NONE ||
		     notes[index].heard_ns < notes[found].heard_ns))
			found = index;
	}
	return found;
}

static int are_siblings(const struct kvpull_worker *worker, uint32_t index,
			uint32_t other)
{
	const struct kvpull_consumer *consumers = worker->handover.consumers;

	return consumers[index].instance_id == consumers[other].instance_id;
}

static int instance_is_idle(const struct kvpull_worker *worker, uint32_t index,
			    uint64_t now_ns)
{
	uint32_t at;

	for (at = 0; at < worker->active_count; at++)
		if (are_siblings(worker, index, worker->active[at]) &&
		    !is_idle(worker, worker->active[at], now_ns))
			return 0;
	return 1;
}

static void instance_close(struct kvpull_worker *worker, uint32_t index,
			   uint64_t now_ns)
{
	const struct kvpull_consumer *consumer =
		&worker->handover.consumers[index];
	uint32_t at;

	for (at = 0; at < worker->active_count; at++) {
		const uint32_t other = worker->active[at];

		if (!are_siblings(worker, index, other))
			continue;
		worker->consumer_notes[other].leaves = 1;
		worker->leaving_count++;
		kvpull_worker_tell(worker, KVPULL_TO_DROP, other, 0);
	}
	if (kvpull_second_passed(&worker->room_say_ns, now_ns))
		kvpull_warn(
			&worker->facts.log,
			"consumer %s pid %u makes room for another, as it has no claim: raise consumers_max (%u)",
			consumer->engine_id, consumer->pid,
			worker->facts.config.consumers_max);
}

void kvpull_worker_room_make(struct kvpull_worker *worker, uint64_t now_ns)
{
	uint32_t wanted = worker->room_wanted;
	uint32_t turn;

	worker->room_wanted = 0;
	/* The places of those that leave come free soon. */
	if (worker->leaving_count)
		return;
	for (turn = 0; wanted && turn < ROOM_INSTANCES_MAX; turn++) {
		const uint32_t index = silent_longest(worker, now_ns);
		uint32_t places;

		if (index == KVPULL_NONE ||
		    !instance_is_idle(worker, index, now_ns))
			return;
		places = worker->handover.consumers[index].rank_count;
		wanted -= places < wanted ? places : wanted;
		instance_close(worker, index, now_ns);
	}
}
