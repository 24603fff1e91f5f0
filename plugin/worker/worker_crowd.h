/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Consumers that make room for others, and what the engine's thread keeps of
 * each consumer.
 *
 * Once consumers_max is reached progress refuses a new consumer with EFULL, and
 * tells the engine's thread how many places that consumer lacks. The consumer
 * that was heard longest ago is closed, with all ranks of its instance, if no
 * rank of it has a claim or a note in its ring. The hold table takes it for away,
 * as if it had said that it makes room. It connects again at its next claim.
 */
#ifndef KVPULL_PLUGIN_WORKER_CROWD_H
#define KVPULL_PLUGIN_WORKER_CROWD_H

#include "plugin/handover/handover.h"
#include "plugin/hold/hold.h"

struct kvpull_consumer_note {
	uint32_t joined;    /* 0: not yet, 1: in the hold table */
	uint32_t instance;  /* index in the hold table */
	uint32_t active_at; /* position in the active list */
	uint32_t dropped;
	uint32_t leaves; /* it makes room, and is being closed */
	uint64_t joined_ns;
	uint64_t heard_ns; /* its last note or heartbeat, or its join */
	/*
	 * Identity of the last consumer that joined: once given back, the slot
	 * is another's.
	 */
	uint64_t instance_id;
	uint32_t rank;
	uint32_t pid;
	char engine_id[KVPULL_ENGINE_ID_BYTES_MAX];
};

struct kvpull_crowd {
	const struct kvpull_consumer *consumers; /* by caller's index */
	struct kvpull_consumer_note *notes;      /* likewise */
	const struct kvpull_holds *holds;
	uint32_t *active; /* [consumers_max] in the hold table or joining */
	uint32_t active_count;
	uint32_t waits;         /* 1: one of them could not join yet */
	uint32_t leaving_count; /* of the active: make room */
	uint32_t wanted;        /* places that a new consumer lacks */
};

void kvpull_crowd_add(struct kvpull_crowd *crowd, uint32_t index);
void kvpull_crowd_remove(struct kvpull_crowd *crowd, uint32_t index);
/*
 * Choose consumers that make room for the places that are wanted, after the rings
 * were drained: all ranks of an instance, or none. Each has notes[].leaves set.
 * Return: how many ranks leave, fewer places than wanted where others have claims
 * or are new; 0 also while others leave, since their places come free soon.
 */
uint32_t kvpull_crowd_choose(struct kvpull_crowd *crowd, uint64_t now_ns);

/* Joined and not dropped: polls drain this consumer's ring. */
static inline int kvpull_crowd_is_in(const struct kvpull_crowd *crowd,
				     uint32_t index)
{
	return crowd->notes[index].joined && !crowd->notes[index].dropped;
}

#endif /* KVPULL_PLUGIN_WORKER_CROWD_H */
