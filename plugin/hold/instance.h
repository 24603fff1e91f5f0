/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumers that a producer rank knows: instances, each with its ranks,
 * when these were last heard of, and which of them are dead. Pure. All times
 * are on the hold table's lease clock.
 *
 * A rank is connected -> dying (its grace) -> scanning (holds are looked
 * through for it) -> gone, until it joins again. While gone it counts as having
 * released whatever its instance claims: no hold waits for a rank that is not
 * there. Who joins after it may be another worker, which was told of none of
 * that: of what was claimed before, or lay in a ring when it came, it owes a
 * word only on what it claims itself.
 * One that said so before it left is *away* instead: it closed its connection to
 * make room for others, so what its instance claims it will claim, too, and holds
 * wait for it as for a rank that did not come yet. When all are away, and claim
 * nothing, their instance is forgotten.
 * When the last rank of an instance dies, so does the instance, with ranks that
 * are away or never came: it is *retired*, kept while claims name it, and who
 * joins under its id afterwards is another instance.
 */
#ifndef KVPULL_PLUGIN_INSTANCE_H
#define KVPULL_PLUGIN_INSTANCE_H

#include "base/arena.h"
#include "base/transport.h"

struct kvpull_instance {
	uint64_t id;
	uint64_t connected; /* these five: bitmaps of ranks, disjoint */
	uint64_t dying;
	uint64_t scanning;
	uint64_t gone;
	uint64_t away;
	uint64_t parting;  /* are connected, and have said that they go */
	uint64_t replaced; /* are dying: were away, and another worker came */
	uint64_t back;     /* were gone, and joined in this poll */
	uint32_t rank_count;
	uint32_t refs; /* claims that name it */
	uint32_t used;
	uint32_t retired;
	uint64_t heard_ns[KVPULL_RANKS_MAX]; /* last sign of life */
	uint64_t due_ns[KVPULL_RANKS_MAX];   /* dying: end of its grace */
	uint64_t workers[KVPULL_RANKS_MAX];  /* who joined last; 0: unknown */
};

struct kvpull_instances {
	struct kvpull_instance *all; /* [count] */
	uint32_t count;
	uint32_t back; /* some rank of some instance is */
	uint64_t grace_ns;
	uint64_t due_ns; /* no grace ends before; UINT64_MAX: nobody is dying */
};

/* 0 or KVPULL_ENOMEM: the arena is too small. */
int KVPULL_MUST_CHECK kvpull_instances_init(struct kvpull_instances *instances,
					    uint32_t count, uint64_t grace_ns,
					    struct kvpull_arena *arena);

/*
 * A grace is for a worker whose connection flapped. Another worker of the rank
 * knows nothing of what that one claimed, so its join ends the grace: it is
 * told KVPULL_EAGAIN until the death is worked off.
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

/* A rank that speaks says that it goes, and will be back. */
void kvpull_instance_part(struct kvpull_instance *instance, uint32_t rank);

/*
 * Starts a rank's grace: the table's, or a longer one; who has said that it goes
 * is away. A rank that is not connected: nothing.
 */
void kvpull_instances_leave(struct kvpull_instances *instances, uint32_t index,
			    uint32_t rank, uint64_t grace_ns,
			    uint64_t lease_now_ns);

/* The instance, if this rank is connected or in its grace; else NULL. */
struct kvpull_instance *
kvpull_instances_speaking(struct kvpull_instances *instances, uint32_t index,
			  uint32_t rank);

void kvpull_instance_hear(struct kvpull_instance *instance, uint32_t rank,
			  uint64_t lease_now_ns);

/* A claim names it; ends with _release. */
void kvpull_instances_acquire(struct kvpull_instances *instances,
			      uint32_t index);
void kvpull_instances_release(struct kvpull_instances *instances,
			      uint32_t index);

/*
 * Ranks whose grace is over become scanning. Return: how many; if any, holds
 * are looked through, then scan_end makes them gone.
 */
uint32_t kvpull_instances_scan_begin(struct kvpull_instances *instances,
				     uint64_t lease_now_ns);
void kvpull_instances_scan_end(struct kvpull_instances *instances);

static inline uint64_t kvpull_ranks_all(uint32_t rank_count)
{
	return UINT64_MAX >> (KVPULL_RANKS_MAX - rank_count);
}

static inline int
kvpull_instance_is_here(const struct kvpull_instance *instance)
{
	return (instance->connected | instance->dying | instance->away) != 0;
}

/* Ranks that owe nothing on what others of their instance claim now. */
static inline uint64_t
kvpull_instance_absent(const struct kvpull_instance *instance)
{
	return instance->scanning | instance->gone | instance->back;
}

/* Ranks that count as having released whatever the instance claims. */
static inline uint64_t
kvpull_instance_dead(const struct kvpull_instance *instance)
{
	return kvpull_instance_is_here(instance) ?
		       instance->scanning | instance->gone :
		       kvpull_ranks_all(instance->rank_count);
}

#endif /* KVPULL_PLUGIN_INSTANCE_H */
