/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumers' table: the state of each rank, and what changes it.
 *
 * A rank in grace or away may be waited for by a caller of the same rank: that
 * is `called`, whose due time says whether a sweep has seen it (instance.h).
 */
#include "plugin/hold/instance.h"

enum rank_event {
	RANK_JOINS,  /* the worker that joined last */
	RANK_CALLS,  /* another worker of the rank */
	RANK_ENTERS, /* likewise, and a sweep has judged its call */
	RANK_GOES,   /* is lost, having said that it goes */
	RANK_LOST,
	RANK_DIES, /* in a sweep: its grace has ended, or its caller is lost */
	RANK_OVER, /* its instance is */
	RANK_EVENTS
};

enum rank_action {
	RANK_BUG, /* an empty cell: the table or a caller is wrong */
	RANK_MOVE,
	RANK_REFUSE,
	RANK_WAIT
};

struct rank_edge {
	uint8_t action;
	uint8_t next;
};

#define MOVE(state)                                                            \
	{                                                                      \
		RANK_MOVE, KVPULL_RANK_##state                                 \
	}

/* Drawn in plugin/README.md. Nothing but rank_apply() follows an edge. */
static const struct rank_edge rank_edges[KVPULL_RANK_STATES][RANK_EVENTS] = {
	[KVPULL_RANK_NEVER] = {
		[RANK_JOINS] = MOVE(HERE),
		[RANK_CALLS] = MOVE(HERE),
		[RANK_OVER] = MOVE(DEAD),
	},
	[KVPULL_RANK_HERE] = {
		[RANK_JOINS] = { RANK_REFUSE, KVPULL_RANK_HERE },
		[RANK_CALLS] = { RANK_REFUSE, KVPULL_RANK_HERE },
		[RANK_GOES] = MOVE(AWAY),
		[RANK_LOST] = MOVE(GRACE),
	},
	[KVPULL_RANK_GRACE] = {
		[RANK_JOINS] = MOVE(HERE),
		[RANK_CALLS] = { RANK_WAIT, KVPULL_RANK_CALLED },
		[RANK_DIES] = MOVE(DEAD),
	},
	[KVPULL_RANK_AWAY] = {
		[RANK_JOINS] = MOVE(HERE),
		[RANK_CALLS] = { RANK_WAIT, KVPULL_RANK_CALLED },
		[RANK_OVER] = MOVE(DEAD),
	},
	[KVPULL_RANK_CALLED] = {
		[RANK_JOINS] = { RANK_WAIT, KVPULL_RANK_CALLED },
		[RANK_CALLS] = { RANK_WAIT, KVPULL_RANK_CALLED },
		[RANK_ENTERS] = MOVE(HERE),
		[RANK_DIES] = MOVE(DEAD),
	},
	[KVPULL_RANK_DEAD] = {
		[RANK_JOINS] = MOVE(HERE),
		[RANK_CALLS] = MOVE(HERE),
	},
};

/* rank < rank_count */
static enum kvpull_rank_state rank_state(const struct kvpull_instance *instance,
					 uint32_t rank)
{
	uint32_t state = KVPULL_RANK_NEVER;

	while (state < KVPULL_RANK_DEAD &&
	       !(instance->ranks[state] >> rank & 1))
		state++;
	return (enum kvpull_rank_state)state;
}

/* 0, or what the edge answers to a join. */
static int rank_apply(const struct kvpull_instances *instances,
		      struct kvpull_instance *instance, uint32_t rank,
		      enum rank_event event)
{
	const uint64_t bit = UINT64_C(1) << rank;
	const enum kvpull_rank_state state = rank_state(instance, rank);
	const struct rank_edge edge = rank_edges[state][event];

	kvpull_check(instances->log, edge.action != RANK_BUG);
	instance->ranks[state] &= ~bit;
	instance->ranks[edge.next] |= bit;
	if (edge.action == RANK_REFUSE)
		return KVPULL_EREJECTED;
	return edge.action == RANK_WAIT ? KVPULL_EAGAIN : 0;
}

static void ranks_apply(const struct kvpull_instances *instances,
			struct kvpull_instance *instance, uint64_t ranks,
			enum rank_event event)
{
	for (; ranks; ranks &= ranks - 1)
		(void)rank_apply(instances, instance,
				 (uint32_t)__builtin_ctzll(ranks), event);
}

/* Ranks that a sweep may have to judge, or a worker still speaks for. */
static uint64_t ranks_served(const struct kvpull_instance *instance)
{
	return instance->ranks[KVPULL_RANK_HERE] |
	       instance->ranks[KVPULL_RANK_GRACE] |
	       instance->ranks[KVPULL_RANK_CALLED];
}

/* An instance that is over, and looked through, has no name any more. */
static uint32_t find(const struct kvpull_instances *instances, uint64_t id)
{
	uint32_t i;

	for (i = 0; i < instances->count; i++) {
		const struct kvpull_instance *instance = &instances->all[i];

		if (instance->rank_count && instance->id == id &&
		    (instance->scanning || !kvpull_instance_is_over(instance)))
			return i;
	}
	return KVPULL_NONE;
}

static uint32_t find_free(const struct kvpull_instances *instances)
{
	uint32_t i;

	for (i = 0; i < instances->count; i++)
		if (!instances->all[i].rank_count)
			return i;
	return KVPULL_NONE;
}

static uint32_t add(struct kvpull_instances *instances,
		    const struct kvpull_join *join)
{
	const uint32_t at = find_free(instances);

	if (at != KVPULL_NONE)
		instances->all[at] = (struct kvpull_instance){
			.id = join->instance_id,
			.rank_count = join->rank_count,
			.ranks[KVPULL_RANK_NEVER] =
				kvpull_ranks_all(join->rank_count),
		};
	return at;
}

static void release_entry(struct kvpull_instance *instance)
{
	if (!instance->refs && !instance->scanning && !ranks_served(instance))
		*instance = (struct kvpull_instance){ 0 };
}

static enum rank_event event_of(const struct kvpull_instance *instance,
				const struct kvpull_join *join)
{
	const uint64_t last = instance->workers[join->rank];

	if (!join->worker || !last || join->worker == last)
		return RANK_JOINS;
	if (instance->ranks[KVPULL_RANK_CALLED] >> join->rank & 1 &&
	    instance->due_ns[join->rank] == UINT64_MAX)
		return RANK_ENTERS;
	return RANK_CALLS;
}

/* Lets the next sweep judge this rank. */
static void judge_next(struct kvpull_instances *instances,
		       struct kvpull_instance *instance, uint32_t rank)
{
	instance->due_ns[rank] = 0;
	instances->due_ns = 0;
}

/* 0, or why this rank cannot join an instance that is known. */
static int admit(struct kvpull_instances *instances,
		 struct kvpull_instance *instance,
		 const struct kvpull_join *join)
{
	enum rank_event event;
	int code;

	/* The id is free when its holds were looked through. */
	if (kvpull_instance_is_over(instance))
		return KVPULL_EAGAIN;
	if (instance->rank_count != join->rank_count)
		return KVPULL_EREJECTED;
	if (instance->scanning >> join->rank & 1)
		return KVPULL_EAGAIN;
	event = event_of(instance, join);
	code = rank_apply(instances, instance, join->rank, event);
	if (event == RANK_CALLS && code == KVPULL_EAGAIN) {
		instance->forsaken &= ~(UINT64_C(1) << join->rank);
		judge_next(instances, instance, join->rank);
	}
	return code;
}

void kvpull_instances_init(struct kvpull_instances *instances, uint32_t count,
			   uint64_t grace_ns, struct kvpull_arena *arena)
{
	*instances = (struct kvpull_instances){ .log = arena->log,
						.count = count,
						.grace_ns = grace_ns,
						.due_ns = UINT64_MAX };
	KVPULL_ARENA_TAKE(arena, instances->all, count);
}

void kvpull_instances_tick(struct kvpull_instances *instances)
{
	uint32_t i;

	if (!instances->back)
		return;
	for (i = 0; i < instances->count; i++)
		instances->all[i].back = 0;
	instances->back = 0;
}

int kvpull_instances_join(struct kvpull_instances *instances,
			  const struct kvpull_join *join, uint32_t *index)
{
	struct kvpull_instance *joined;
	uint64_t absent;
	uint32_t at;
	int code;

	if (join->rank_count > KVPULL_RANKS_MAX ||
	    join->rank >= join->rank_count)
		return KVPULL_EREJECTED;
	at = find(instances, join->instance_id);
	if (at == KVPULL_NONE)
		at = add(instances, join);
	if (at == KVPULL_NONE)
		return KVPULL_EFULL;
	joined = &instances->all[at];
	absent = kvpull_instance_dead(joined);
	code = admit(instances, joined, join);
	if (code)
		return code;
	joined->back |= absent & UINT64_C(1) << join->rank;
	instances->back |= joined->back != 0;
	joined->workers[join->rank] = join->worker;
	kvpull_instance_hear(joined, join->rank, join->lease_now_ns);
	*index = at;
	return 0;
}

void kvpull_instances_call_lost(struct kvpull_instances *instances,
				const struct kvpull_join *join)
{
	const uint32_t at = find(instances, join->instance_id);
	struct kvpull_instance *called;

	if (at == KVPULL_NONE)
		return;
	called = &instances->all[at];
	if (join->rank >= called->rank_count ||
	    !(called->ranks[KVPULL_RANK_CALLED] >> join->rank & 1) ||
	    event_of(called, join) == RANK_JOINS)
		return;
	called->forsaken |= UINT64_C(1) << join->rank;
	judge_next(instances, called, join->rank);
}

void kvpull_instance_part(struct kvpull_instance *instance, uint32_t rank)
{
	instance->parting |=
		instance->ranks[KVPULL_RANK_HERE] & UINT64_C(1) << rank;
}

void kvpull_instances_leave(struct kvpull_instances *instances, uint32_t index,
			    uint32_t rank, uint64_t grace_ns,
			    uint64_t lease_now_ns)
{
	struct kvpull_instance *left =
		kvpull_instances_speaking(instances, index, rank);
	const uint64_t bit = UINT64_C(1) << (rank % KVPULL_RANKS_MAX);
	uint64_t due_ns;

	if (!left || !(left->ranks[KVPULL_RANK_HERE] & bit))
		return;
	if (left->parting & bit) {
		left->parting &= ~bit;
		(void)rank_apply(instances, left, rank, RANK_GOES);
		release_entry(left);
		return;
	}
	(void)rank_apply(instances, left, rank, RANK_LOST);
	if (grace_ns < instances->grace_ns)
		grace_ns = instances->grace_ns;
	due_ns = lease_now_ns > UINT64_MAX - grace_ns ? UINT64_MAX :
							lease_now_ns + grace_ns;
	left->due_ns[rank] = due_ns;
	if (due_ns < instances->due_ns)
		instances->due_ns = due_ns;
}

struct kvpull_instance *
kvpull_instances_speaking(struct kvpull_instances *instances, uint32_t index,
			  uint32_t rank)
{
	struct kvpull_instance *instance;

	if (index >= instances->count || rank >= KVPULL_RANKS_MAX)
		return NULL;
	instance = &instances->all[index];
	if (!((instance->ranks[KVPULL_RANK_HERE] |
	       instance->ranks[KVPULL_RANK_GRACE]) >>
		      rank &
	      1))
		return NULL;
	return instance;
}

void kvpull_instance_hear(struct kvpull_instance *instance, uint32_t rank,
			  uint64_t lease_now_ns)
{
	if (lease_now_ns > instance->heard_ns[rank])
		instance->heard_ns[rank] = lease_now_ns;
}

void kvpull_instances_acquire(struct kvpull_instances *instances,
			      uint32_t index)
{
	instances->all[index].refs++;
}

void kvpull_instances_release(struct kvpull_instances *instances,
			      uint32_t index)
{
	instances->all[index].refs--;
	release_entry(&instances->all[index]);
}

/* Ranks to be judged now; the first time of the others goes to *next_ns. */
static uint64_t ranks_due(const struct kvpull_instance *instance,
			  uint64_t lease_now_ns, uint64_t *next_ns)
{
	uint64_t left = instance->ranks[KVPULL_RANK_GRACE] |
			instance->ranks[KVPULL_RANK_CALLED];
	uint64_t due = 0;

	for (; left; left &= left - 1) {
		const uint32_t rank = (uint32_t)__builtin_ctzll(left);

		if (instance->due_ns[rank] <= lease_now_ns)
			due |= UINT64_C(1) << rank;
		else if (instance->due_ns[rank] < *next_ns)
			*next_ns = instance->due_ns[rank];
	}
	return due;
}

/* Return: the ranks that become dead or called, but for those that never came. */
static uint64_t judge(const struct kvpull_instances *instances,
		      struct kvpull_instance *instance, uint64_t due)
{
	const uint64_t died =
		due & (instance->ranks[KVPULL_RANK_GRACE] | instance->forsaken);
	const uint64_t away = instance->ranks[KVPULL_RANK_AWAY];
	uint64_t called = due & ~died;

	for (; called; called &= called - 1)
		instance->due_ns[__builtin_ctzll(called)] = UINT64_MAX;
	instance->forsaken &= ~died;
	ranks_apply(instances, instance, died, RANK_DIES);
	if (!died || ranks_served(instance))
		return due;
	ranks_apply(instances, instance,
		    away | instance->ranks[KVPULL_RANK_NEVER], RANK_OVER);
	return due | away;
}

uint32_t kvpull_instances_scan_begin(struct kvpull_instances *instances,
				     uint64_t lease_now_ns)
{
	uint64_t next_ns = UINT64_MAX;
	uint32_t rank_count = 0;
	uint32_t i;

	for (i = 0; i < instances->count; i++) {
		struct kvpull_instance *instance = &instances->all[i];
		const uint64_t due =
			ranks_due(instance, lease_now_ns, &next_ns);

		instance->scanning = judge(instances, instance, due);
		rank_count +=
			(uint32_t)__builtin_popcountll(instance->scanning);
	}
	instances->due_ns = next_ns;
	return rank_count;
}

void kvpull_instances_scan_end(struct kvpull_instances *instances)
{
	uint32_t i;

	for (i = 0; i < instances->count; i++) {
		struct kvpull_instance *instance = &instances->all[i];

		if (!instance->scanning)
			continue;
		instance->scanning = 0;
		release_entry(instance);
	}
}
