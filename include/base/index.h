/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indices of fixed tables: which are free, and lists of those in use. Nothing
 * is touched before it is used, so a large table costs its high-water mark.
 */
#ifndef KVPULL_BASE_INDEX_H
#define KVPULL_BASE_INDEX_H

#include "base/arena.h"

/* Free indices; the last given back is taken first. */
struct kvpull_index_pool {
	uint32_t *given_back; /* stack */
	uint32_t given_back_count;
	uint32_t touched; /* indices from here on were never taken */
	uint32_t count_max;
};

static inline void kvpull_index_pool_init(struct kvpull_index_pool *pool,
					  uint32_t count_max,
					  struct kvpull_arena *arena)
{
	*pool = (struct kvpull_index_pool){ .count_max = count_max };
	KVPULL_ARENA_TAKE(arena, pool->given_back, count_max);
}

/* Returns the index that the next _take() will return. */
static inline uint32_t
kvpull_index_pool_peek(const struct kvpull_index_pool *pool)
{
	if (pool->given_back_count)
		return pool->given_back[pool->given_back_count - 1];
	return pool->touched < pool->count_max ? pool->touched : KVPULL_NONE;
}

static inline uint32_t kvpull_index_pool_take(struct kvpull_index_pool *pool)
{
	if (pool->given_back_count)
		return pool->given_back[--pool->given_back_count];
	return pool->touched < pool->count_max ? pool->touched++ : KVPULL_NONE;
}

static inline void kvpull_index_pool_give(struct kvpull_index_pool *pool,
					  uint32_t index)
{
	pool->given_back[pool->given_back_count++] = index;
}

static inline uint32_t
kvpull_index_pool_used(const struct kvpull_index_pool *pool)
{
	return pool->touched - pool->given_back_count;
}

struct kvpull_index_link {
	uint32_t next;
	uint32_t previous;
	uint32_t linked;
};

/* First in, first out; any member can leave. */
struct kvpull_index_list {
	struct kvpull_index_link *links; /* [count_max of the table] */
	uint32_t first;
	uint32_t last;
	uint32_t count;
};

static inline void kvpull_index_list_init(struct kvpull_index_list *list,
					  uint32_t count_max,
					  struct kvpull_arena *arena)
{
	*list = (struct kvpull_index_list){ .first = KVPULL_NONE,
					    .last = KVPULL_NONE };
	KVPULL_ARENA_TAKE(arena, list->links, count_max);
}

/*
 * Put an index behind a member, or first where that is KVPULL_NONE. Does nothing
 * if it is a member already.
 */
static inline void kvpull_index_list_insert(struct kvpull_index_list *list,
					    uint32_t index, uint32_t behind)
{
	struct kvpull_index_link *link = &list->links[index];

	if (link->linked)
		return;
	link->linked = 1;
	link->previous = behind;
	link->next =
		behind == KVPULL_NONE ? list->first : list->links[behind].next;
	if (behind == KVPULL_NONE)
		list->first = index;
	else
		list->links[behind].next = index;
	if (link->next == KVPULL_NONE)
		list->last = index;
	else
		list->links[link->next].previous = index;
	list->count++;
}

/* Does nothing if it is a member already. */
static inline void kvpull_index_list_push(struct kvpull_index_list *list,
					  uint32_t index)
{
	kvpull_index_list_insert(list, index, list->last);
}

/* Does nothing if it is no member. */
static inline void kvpull_index_list_remove(struct kvpull_index_list *list,
					    uint32_t index)
{
	struct kvpull_index_link *link = &list->links[index];

	if (!link->linked)
		return;
	link->linked = 0;
	if (link->previous == KVPULL_NONE)
		list->first = link->next;
	else
		list->links[link->previous].next = link->next;
	if (link->next == KVPULL_NONE)
		list->last = link->previous;
	else
		list->links[link->next].previous = link->previous;
	list->count--;
}

/*
 * Digest of one item. The sum over all items is the table's digest, so the
 * order of items does not count.
 */
static inline uint64_t kvpull_index_mix(uint64_t a, uint64_t b)
{
	uint64_t mixed = a * UINT64_C(0x9e3779b97f4a7c15) ^ b;

	mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
	return mixed ^ mixed >> 31;
}

#endif /* KVPULL_BASE_INDEX_H */
