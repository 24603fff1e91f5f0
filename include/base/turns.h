/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns of indices that wait. The smallest priority has the next turn, and of
 * equal ones the index that came first. The last of KVPULL_TURNS_A_ROUND turns is
 * the oldest index's, whatever its priority. So an index with n - 1 older ones
 * before it is served within n * KVPULL_TURNS_A_ROUND turns, and none starves.
 *
 * While all priorities are alike there is one list, as without priorities. The
 * first that differs makes the other one, in a pass over the members, and a push
 * then passes the members of greater priority. All else is O(1). Pure.
 */
#ifndef KVPULL_BASE_TURNS_H
#define KVPULL_BASE_TURNS_H

#include "base/index.h"

#define KVPULL_TURNS_A_ROUND 8u

struct kvpull_turns {
	struct kvpull_index_list arrival; /* in order of their push */
	struct kvpull_index_list urgent;  /* unlike: the same, by priority */
	int32_t *priorities;              /* unlike: [count_max of the table] */
	int32_t alike;   /* all members' priority, unless unlike */
	uint32_t unlike; /* since arrival was empty */
	uint32_t given;  /* turns so far, free-running */
};

static inline void kvpull_turns_init(struct kvpull_turns *turns,
				     uint32_t count_max,
				     struct kvpull_arena *arena)
{
	turns->alike = 0;
	turns->unlike = turns->given = 0;
	kvpull_index_list_init(&turns->arrival, count_max, arena);
	kvpull_index_list_init(&turns->urgent, count_max, arena);
	KVPULL_ARENA_TAKE(arena, turns->priorities, count_max);
}

static inline void kvpull_turns_rank(struct kvpull_turns *turns, uint32_t index,
				     int32_t priority)
{
	uint32_t behind = turns->urgent.last;

	while (behind != KVPULL_NONE && turns->priorities[behind] > priority)
		behind = turns->urgent.links[behind].previous;
	turns->priorities[index] = priority;
	kvpull_index_list_insert(&turns->urgent, index, behind);
}

/* Does nothing if it is a member already. */
static inline void kvpull_turns_push(struct kvpull_turns *turns, uint32_t index,
				     int32_t priority)
{
	uint32_t at = turns->arrival.first;

	if (turns->arrival.links[index].linked)
		return;
	if (at == KVPULL_NONE) {
		turns->alike = priority;
		turns->unlike = 0;
	}
	if (!turns->unlike && priority != turns->alike) {
		turns->unlike = 1;
		for (; at != KVPULL_NONE; at = turns->arrival.links[at].next)
			kvpull_turns_rank(turns, at, turns->alike);
	}
	kvpull_index_list_push(&turns->arrival, index);
	if (turns->unlike)
		kvpull_turns_rank(turns, index, priority);
}

/* Does nothing if it is no member. */
static inline void kvpull_turns_remove(struct kvpull_turns *turns,
				       uint32_t index)
{
	kvpull_index_list_remove(&turns->arrival, index);
	if (turns->unlike)
		kvpull_index_list_remove(&turns->urgent, index);
}

/* The members by priority; until the next push. */
static inline const struct kvpull_index_list *
kvpull_turns_list(const struct kvpull_turns *turns)
{
	return turns->unlike ? &turns->urgent : &turns->arrival;
}

/* 1: the next turn is the oldest's. */
static inline int kvpull_turns_is_oldest(const struct kvpull_turns *turns)
{
	return turns->given % KVPULL_TURNS_A_ROUND == KVPULL_TURNS_A_ROUND - 1;
}

/* The index whose turn is next; KVPULL_NONE: nobody waits. */
static inline uint32_t kvpull_turns_next(const struct kvpull_turns *turns)
{
	return kvpull_turns_is_oldest(turns) ? turns->arrival.first :
					       kvpull_turns_list(turns)->first;
}

/* A turn was given: the next one follows. */
static inline void kvpull_turns_give(struct kvpull_turns *turns)
{
	turns->given++;
}

#endif /* KVPULL_BASE_TURNS_H */
