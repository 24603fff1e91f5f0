/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/worker/worker_pulls.h"

/* The slots that are used first are used most: the last one freed is the next. */
void kvpull_pulls_init(struct kvpull_worker_pulls *pulls,
		       const struct kvpull_config *config,
		       struct kvpull_arena *arena, struct kvpull_arena *hot)
{
	const uint32_t count = config->pulls_max;
	const uint32_t hot_count =
		count < KVPULL_PULLS_HOT ? count : KVPULL_PULLS_HOT;
	const size_t ids_bytes =
		2 * (size_t)config->pull_blocks_max * sizeof(*pulls->ids);

	kvpull_index_pool_init(&pulls->pool, count, hot);
	kvpull_map_init(&pulls->map, count, hot);
	KVPULL_ARENA_TAKE(hot, pulls->notes, count);
	pulls->ids_few = kvpull_arena_take(
		hot, count, 2 * KVPULL_PAIRS_FEW * sizeof(*pulls->ids_few));
	pulls->ids_hot = kvpull_arena_take(hot, hot_count, ids_bytes);
	pulls->ids = kvpull_arena_take(arena, count - hot_count, ids_bytes);
	pulls->blocks_max = config->pull_blocks_max;
	pulls->refused_max = config->requests_max;
	KVPULL_ARENA_TAKE(arena, pulls->refused, pulls->refused_max);
	pulls->start.first = pulls->ended.first = pulls->failed = KVPULL_NONE;
}

int kvpull_pulls_slot(struct kvpull_worker_pulls *pulls, uint64_t key,
		      uint32_t pairs, uint32_t *index)
{
	uint32_t at = kvpull_index_pool_peek(&pulls->pool);

	if (at == KVPULL_NONE) {
		kvpull_pulls_free_failed(pulls);
		at = kvpull_index_pool_peek(&pulls->pool);
	}
	if (at == KVPULL_NONE || pairs > pulls->blocks_max ||
	    kvpull_map_set(&pulls->map, key, at))
		return KVPULL_EFULL;
	*index = kvpull_index_pool_take(&pulls->pool);
	return 0;
}

/*
 * Pulls of few pairs share pages: a page and a cache set each would cost more than
 * their ids.
 */
uint32_t *kvpull_pulls_ids(const struct kvpull_worker_pulls *pulls,
			   uint32_t index, uint32_t pairs)
{
	const size_t step = 2 * (size_t)pulls->blocks_max;

	if (pairs <= KVPULL_PAIRS_FEW)
		return pulls->ids_few + index * (size_t)KVPULL_PAIRS_FEW * 2;
	return index < KVPULL_PULLS_HOT ?
		       pulls->ids_hot + index * step :
		       pulls->ids + (index - KVPULL_PULLS_HOT) * step;
}

void kvpull_pulls_add(struct kvpull_worker_pulls *pulls,
		      struct kvpull_pull_list *list, uint32_t index)
{
	pulls->notes[index].next = KVPULL_NONE;
	if (list->first == KVPULL_NONE)
		list->first = index;
	else
		pulls->notes[list->last].next = index;
	list->last = index;
}

uint32_t kvpull_pulls_take(struct kvpull_worker_pulls *pulls,
			   struct kvpull_pull_list *list)
{
	const uint32_t index = list->first;

	list->first = pulls->notes[index].next;
	return index;
}

void kvpull_pulls_free_failed(struct kvpull_worker_pulls *pulls)
{
	while (pulls->failed != KVPULL_NONE) {
		const uint32_t index = pulls->failed;

		pulls->failed = pulls->notes[index].next;
		kvpull_index_pool_give(&pulls->pool, index);
	}
}
