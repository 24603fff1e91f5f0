/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumers that a producer rank knows: instances, the state of each of
 * their ranks, and when each rank was last heard of. Pure. All times are on the
 * hold table's lease clock.
 *
 * never   did not come yet
 * here    connected
 * grace   lost; the same worker may come back until the grace ends
 * away    closed its connection to make room for others, and said so before
 * called  was in grace or away when another worker of the rank called; that
 *         worker is let in after the next sweep
 * dead    its grace ended, or its instance is over
 *
 * A sweep makes ranks dead, and judges the deaths and calls since the last one
 * together. A rank that becomes dead or called releases what its *instance* has
 * claimed by then. While it is dead or called it owes nothing on what its
 * instance claims; never, here, grace and away owe.
 * An instance is over when a rank's grace ended and no rank is here, in grace
 * or called. All its ranks are dead then. Claims keep its entry, and who joins
 * under its id afterwards is another instance.
 * An entry whose ranks are all never, away or dead, and that no claim names, is
 * forgotten.
 */
#ifndef KVPULL_PLUGIN_INSTANCE_H
#define KVPULL_PLUGIN_INSTANCE_H

#include <stddef.h>

#include "base/arena.h"
#include "base/transport.h"

#define KVPULL_CLAIMS_MAX 4u /* instances a hold keeps */

enum kvpull_rank_state {
	KVPULL_RANK_NEVER,
	KVPULL_RANK_HERE,
	KVPULL_RANK_GRACE,
	KVPULL_RANK_AWAY,
	KVPULL_RANK_CALLED,
	KVPULL_RANK_DEAD,
	KVPULL_RANK_STATES
};

struct kvpull_instance {
	uint64_t id;
	uint32_t rank_count; /* 0: the entry is free */
	uint32_t refs;       /* claims that name it */
	/* Bitmaps: each rank below rank_count is in exactly one. */
	uint64_t ranks[KVPULL_RANK_STATES];
	uint64_t scanning; /* called or dead; holds are looked through for them */
	uint64_t parting;  /* here, and have said that they go */
	uint64_t back;     /* joined in this poll; were called or dead before */
	uint64_t forsaken; /* called, and the caller is lost */
	uint64_t heard_ns[KVPULL_RANKS_MAX]; /* last sign of life */
	/* grace: its end; called: 0, or UINT64_MAX once a sweep has judged it */
	uint64_t due_ns[KVPULL_RANKS_MAX];
	uint64_t workers[KVPULL_RANKS_MAX]; /* who joined last; 0: unknown */
};

_Static_assert(offsetof(struct kvpull_instance, scanning) == KVPULL_CACHE_LINE,
	       "a release reads the first line of an instance alone");

struct kvpull_instances {
	const struct kvpull_log *log;
	struct kvpull_instance *all; /* [count] */
	uint32_t count;
	uint32_t back; /* some rank of some instance is */
	uint64_t grace_ns;
	uint64_t due_ns; /* no sweep has a rank to judge before; UINT64_MAX: none */
};

/* kvpull_arena_ok() says whether there was memory. */
void kvpull_instances_init(struct kvpull_instances *instances, uint32_t count,
			   uint64_t grace_ns, struct kvpull_arena *arena);

/*
 * A grace is for a worker whose connection flapped. Another worker of the rank
 * knows nothing of what its predecessor claimed: it calls, and is told
 * KVPULL_EAGAIN until that is released.
 */
struct kvpull_join {
	uint64_t instance_id;
	uint64_t worker; /* incarnation; 0: unknown, taken for the last one */
	uint64_t lease_now_ns;
	uint32_t rank;
	uint32_t rank_count;
};

/* A poll begins: who came in the last one is there like the others. */
void kvpull_instances_tick(struct kvpull_instances *instances);

/* As kvpull_holds_join. */
int KVPULL_MUST_CHECK kvpull_instances_join(struct kvpull_instances *instances,
					    const struct kvpull_join *join,
					    uint32_t *index);

/* As kvpull_holds_call_lost. */
void kvpull_instances_call_lost(struct kvpull_instances *instances,
				const struct kvpull_join *join);

/* A rank that is here says that it goes, and will be back. */
void kvpull_instance_part(struct kvpull_instance *instance, uint32_t rank);

/*
 * A rank that is here is lost. It is away if it said that it goes; else its
 * grace begins: the table's, or a longer one. A rank that is not here: nothing.
 */
void kvpull_instances_leave(struct kvpull_instances *instances, uint32_t index,
			    uint32_t rank, uint64_t grace_ns,
			    uint64_t lease_now_ns);

/* The instance, if this rank is here or in grace; else NULL. */
struct kvpull_instance *
kvpull_instances_speaking(struct kvpull_instances *instances, uint32_t index,
			  uint32_t rank);

void kvpull_instance_hear(struct kvpull_instance *instance, uint32_t rank,
			  uint64_t lease_now_ns);

/* A claim names the instance from here until _release. */
void kvpull_instances_acquire(struct kvpull_instances *instances,
			      uint32_t index);
void kvpull_instances_release(struct kvpull_instances *instances,
			      uint32_t index);

/*
 * A sweep judges the graces that have ended and the calls. Return: how many
 * ranks became dead or called; if any, all holds are looked through, and then
 * scan_end is called.
 */
uint32_t kvpull_instances_scan_begin(struct kvpull_instances *instances,
				     uint64_t lease_now_ns);
void kvpull_instances_scan_end(struct kvpull_instances *instances);

/* A bit for each rank; rank_count is 1 or more. */
static inline uint64_t kvpull_ranks_all(uint32_t rank_count)
{
	return UINT64_MAX >> (KVPULL_RANKS_MAX - rank_count);
}

static inline int
kvpull_instance_is_over(const struct kvpull_instance *instance)
{
	return instance->rank_count &&
	       instance->ranks[KVPULL_RANK_DEAD] ==
		       kvpull_ranks_all(instance->rank_count);
}

/* Ranks that count as having released whatever the instance claims. */
static inline uint64_t
kvpull_instance_dead(const struct kvpull_instance *instance)
{
	return instance->ranks[KVPULL_RANK_CALLED] |
	       instance->ranks[KVPULL_RANK_DEAD];
}

/* Ranks that owe nothing on what others of their instance claim now. */
static inline uint64_t
kvpull_instance_absent(const struct kvpull_instance *instance)
{
	return kvpull_instance_dead(instance) | instance->back;
}

#endif /* KVPULL_PLUGIN_INSTANCE_H */
