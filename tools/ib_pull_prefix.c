/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ib_pull_prefix.h"

#include <stdlib.h>
#include <string.h>

static uint32_t chunk_ids(const struct ib_prefix *prefix)
{
	return prefix->chunk_blocks * prefix->engine->shape.group_count;
}

/* Key 0 is the map's own. */
static struct ib_chunk *chunk_find(const struct ib_prefix *prefix,
				   uint64_t hash)
{
	const uint32_t place = kvpull_map_get(&prefix->chunk_of, hash + 1);

	return place == KVPULL_NONE ? NULL : &prefix->chunks[place];
}

static uint32_t chunk_place(const struct ib_prefix *prefix,
			    const struct ib_chunk *chunk)
{
	return (uint32_t)(chunk - prefix->chunks);
}

int ib_prefix_open(struct ib_prefix *prefix, struct engine *engine,
		   uint32_t chunk_blocks)
{
	struct kvpull_arena *arena = &prefix->arena;
	uint32_t count_max;

	*prefix = (struct ib_prefix){
		.engine = engine,
		.chunk_blocks = chunk_blocks,
	};
	count_max = engine->shape.block_count / chunk_ids(prefix);
	if (!count_max)
		count_max = 1; /* which the pool will never fill */
	kvpull_arena_init(arena, NULL);
	kvpull_map_init(&prefix->chunk_of, count_max, arena);
	kvpull_index_pool_init(&prefix->free, count_max, arena);
	kvpull_index_list_init(&prefix->idle, count_max, arena);
	prefix->chunks = kvpull_arena_take_table(arena, count_max,
						 sizeof(*prefix->chunks));
	return kvpull_arena_ok(arena) ? 0 : KVPULL_ENOMEM;
}

static void chunk_evict(struct ib_prefix *prefix, uint32_t place)
{
	struct ib_chunk *chunk = &prefix->chunks[place];

	kvpull_index_list_remove(&prefix->idle, place);
	kvpull_map_remove(&prefix->chunk_of, chunk->hash + 1);
	engine_blocks_give(prefix->engine, chunk->ids, chunk_ids(prefix));
	free(chunk->ids);
	chunk->ids = NULL;
	kvpull_index_pool_give(&prefix->free, place);
}

void ib_prefix_close(struct ib_prefix *prefix)
{
	if (prefix->engine && kvpull_arena_ok(&prefix->arena))
		while (prefix->idle.first != KVPULL_NONE)
			chunk_evict(prefix, prefix->idle.first);
	kvpull_arena_fini(&prefix->arena);
	prefix->engine = NULL;
}

uint32_t ib_prefix_pin(struct ib_prefix *prefix, const uint64_t *hashes,
		       uint32_t count)
{
	uint32_t found;

	for (found = 0; found < count; found++) {
		struct ib_chunk *chunk = chunk_find(prefix, hashes[found]);

		if (!chunk)
			break;
		if (!chunk->pin_count++)
			kvpull_index_list_remove(&prefix->idle,
						 chunk_place(prefix, chunk));
	}
	return found;
}

void ib_prefix_unpin(struct ib_prefix *prefix, const uint64_t *hashes,
		     uint32_t count)
{
	/* The last one first, so that it is evicted before those it needs. */
	while (count) {
		struct ib_chunk *chunk = chunk_find(prefix, hashes[--count]);

		if (chunk && !--chunk->pin_count)
			kvpull_index_list_push(&prefix->idle,
					       chunk_place(prefix, chunk));
	}
}

int ib_prefix_take(struct ib_prefix *prefix, uint32_t *ids, uint32_t count)
{
	while (engine_blocks_take(prefix->engine, ids, count)) {
		if (prefix->idle.first == KVPULL_NONE)
			return KVPULL_EFULL;
		chunk_evict(prefix, prefix->idle.first);
	}
	return 0;
}

/* 1: the chunk's blocks stay in it. Another request may have brought them. */
static int chunk_keep(struct ib_prefix *prefix, const uint32_t *ids,
		      uint32_t blocks, uint64_t hash)
{
	const uint32_t chunk_blocks = prefix->chunk_blocks;
	uint32_t *kept = NULL;
	uint32_t place;
	uint32_t group;

	if (chunk_find(prefix, hash))
		return 0;
	place = kvpull_index_pool_peek(&prefix->free);
	if (place != KVPULL_NONE && prefix->chunks && chunk_ids(prefix))
		kept = malloc(chunk_ids(prefix) * sizeof(*kept));
	if (!kept || kvpull_map_set(&prefix->chunk_of, hash + 1, place)) {
		free(kept);
		return 0;
	}
	(void)kvpull_index_pool_take(&prefix->free);
	for (group = 0; group < prefix->engine->shape.group_count; group++)
		memcpy(kept + group * chunk_blocks, ids + group * blocks,
		       chunk_blocks * sizeof(*kept));
	prefix->chunks[place] = (struct ib_chunk){ .hash = hash, .ids = kept };
	return 1;
}

void ib_prefix_give(struct ib_prefix *prefix, const uint32_t *ids,
		    uint32_t blocks, const uint64_t *hashes, uint32_t count)
{
	const uint32_t groups = prefix->engine->shape.group_count;
	uint32_t at = count * prefix->chunk_blocks;
	uint32_t group;

	for (group = 0; group < groups; group++)
		engine_blocks_give(prefix->engine, ids + group * blocks + at,
				   blocks - at);
	/* As in ib_prefix_unpin(): the first chunk is evicted last. */
	while (count--) {
		at -= prefix->chunk_blocks;
		if (chunk_keep(prefix, ids + at, blocks, hashes[count])) {
			kvpull_index_list_push(
				&prefix->idle,
				kvpull_map_get(&prefix->chunk_of,
					       hashes[count] + 1));
			continue;
		}
		for (group = 0; group < groups; group++)
			engine_blocks_give(prefix->engine,
					   ids + group * blocks + at,
					   prefix->chunk_blocks);
	}
}
