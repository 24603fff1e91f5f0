/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/worker/worker_crowd.h"

/* The first claim of a new consumer may still be on its way over a network. */
#define ROOM_AGE_NS (100 * KVPULL_NS_PER_MS)
#define ROOM_INSTANCES_MAX 8u /* that make room in one poll */

static int is_idle(const struct kvpull_crowd *crowd, uint32_t index,
		   uint64_t now_ns)
{
	const struct kvpull_consumer_note *note = &crowd->notes[index];

	return kvpull_crowd_is_in(crowd, index) && !note->leaves &&
	       now_ns - note->joined_ns >= ROOM_AGE_NS &&
	       !kvpull_holds_is_claimed(crowd->holds, note->instance) &&
	       !kvpull_ring_ready(crowd->consumers[index].ring);
}

static int are_siblings(const struct kvpull_crowd *crowd, uint32_t index,
			uint32_t other)
{
	return crowd->consumers[index].instance_id ==
	       crowd->consumers[other].instance_id;
}

static int instance_is_idle(const struct kvpull_crowd *crowd, uint32_t index,
			    uint64_t now_ns)
{
	uint32_t at;

	for (at = 0; at < crowd->active_count; at++)
		if (are_siblings(crowd, index, crowd->active[at]) &&
		    !is_idle(crowd, crowd->active[at], now_ns))
			return 0;
	return 1;
}

/*
 * KVPULL_NONE: each instance has a claim, or a rank that is new. Siblings are
 * looked at last, since that takes a walk over all consumers.
 */
static uint32_t silent_longest(const struct kvpull_crowd *crowd,
			       uint64_t now_ns)
{
	const struct kvpull_consumer_note *notes = crowd->notes;
	uint32_t found = KVPULL_NONE;
	uint32_t at;

	for (at = 0; at < crowd->active_count; at++) {
		const uint32_t index = crowd->active[at];

		if (is_idle(crowd, index, now_ns) &&
		    (found == KVPULL_NONE ||
		     notes[index].heard_ns < notes[found].heard_ns) &&
		    instance_is_idle(crowd, index, now_ns))
			found = index;
	}
	return found;
}

/* Return: its ranks that are here. */
static uint32_t instance_leaves(const struct kvpull_crowd *crowd,
				uint32_t index)
{
	uint32_t count = 0;
	uint32_t at;

	for (at = 0; at < crowd->active_count; at++) {
		if (!are_siblings(crowd, index, crowd->active[at]))
			continue;
		crowd->notes[crowd->active[at]].leaves = 1;
		count++;
	}
	return count;
}

void kvpull_crowd_add(struct kvpull_crowd *crowd, uint32_t index)
{
	struct kvpull_consumer_note *note = &crowd->notes[index];

	note->joined = note->dropped = note->leaves = 0;
	note->active_at = crowd->active_count;
	crowd->active[crowd->active_count++] = index;
}

void kvpull_crowd_remove(struct kvpull_crowd *crowd, uint32_t index)
{
	const struct kvpull_consumer_note *note = &crowd->notes[index];
	const uint32_t last = crowd->active[--crowd->active_count];

	crowd->leaving_count -= note->leaves;
	crowd->active[note->active_at] = last;
	crowd->notes[last].active_at = note->active_at;
}

uint32_t kvpull_crowd_choose(struct kvpull_crowd *crowd, uint64_t now_ns)
{
	uint32_t wanted = crowd->wanted;
	uint32_t turn;

	crowd->wanted = 0;
	if (!wanted || crowd->leaving_count)
		return 0;
	for (turn = 0; wanted && turn < ROOM_INSTANCES_MAX; turn++) {
		const uint32_t index = silent_longest(crowd, now_ns);
		uint32_t places;

		if (index == KVPULL_NONE)
			break;
		places = crowd->consumers[index].rank_count;
		wanted -= places < wanted ? places : wanted;
		crowd->leaving_count += instance_leaves(crowd, index);
	}
	return crowd->leaving_count;
}
