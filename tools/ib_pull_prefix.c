/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ib_pull_prefix.h"

#include <string.h>

/* Returns the chunk's place, or KVPULL_NONE. Key 0 is the map's own. */
static uint32_t chunk_find(const struct ib_prefix *prefix, uint64_t hash)
{
	return kvpull_map_get(&prefix->chunk_of, hash + 1);
}

int ib_prefix_open(struct ib_prefix *prefix, struct engine *engine,
		   uint32_t chunk_blocks)
{
	struct kvpull_arena *arena = &prefix->arena;
	const uint32_t chunk_ids = chunk_blocks * engine->shape.group_count;
	/* Tables are not empty: one chunk more than the pool can hold. */
	const uint32_t count_max = engine->shape.block_count / chunk_ids + 1;

	*prefix = (struct ib_prefix){
		.engine = engine,
		.chunk_blocks = chunk_blocks,
		.chunk_ids = chunk_ids,
	};
	kvpull_arena_init(arena, NULL);
	kvpull_map_init(&prefix->chunk_of, count_max, arena);
	kvpull_index_pool_init(&prefix->free, count_max, arena);
	kvpull_index_list_init(&prefix->idle, count_max, arena);
	prefix->chunks = kvpull_arena_take_table(arena, count_max,
						 sizeof(*prefix->chunks));
	prefix->ids = kvpull_arena_take_table(
		arena, (size_t)count_max * chunk_ids, sizeof(*prefix->ids));
	return kvpull_arena_ok(arena) ? 0 : KVPULL_ENOMEM;
}

static void chunk_evict(struct ib_prefix *prefix, uint32_t place)
{
	kvpull_index_list_remove(&prefix->idle, place);
	kvpull_map_remove(&prefix->chunk_of, prefix->chunks[place].hash + 1);
	engine_blocks_give(prefix->engine,
			   prefix->ids + place * prefix->chunk_ids,
			   prefix->chunk_ids);
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
		const uint32_t place = chunk_find(prefix, hashes[found]);

		if (place == KVPULL_NONE)
			break;
		prefix->chunks[place].pin_count++;
		kvpull_index_list_remove(&prefix->idle, place);
	}
	return found;
}

void ib_prefix_unpin(struct ib_prefix *prefix, const uint64_t *hashes,
		     uint32_t count)
{
	/* The last one first, so that it is evicted before those it needs. */
	while (count) {
		const uint32_t place = chunk_find(prefix, hashes[--count]);

		if (place != KVPULL_NONE && !--prefix->chunks[place].pin_count)
			kvpull_index_list_push(&prefix->idle, place);
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

/* A place for a chunk, or KVPULL_NONE: another request may have brought it. */
static uint32_t chunk_begin(struct ib_prefix *prefix, uint64_t hash)
{
	const uint32_t place = kvpull_index_pool_peek(&prefix->free);

	if (chunk_find(prefix, hash) != KVPULL_NONE ||
	    kvpull_map_set(&prefix->chunk_of, hash + 1, place))
		return KVPULL_NONE;
	prefix->chunks[place] = (struct ib_chunk){ .hash = hash };
	return kvpull_index_pool_take(&prefix->free);
}

void ib_prefix_give(struct ib_prefix *prefix, const uint32_t *ids,
		    uint32_t blocks, const uint64_t *hashes, uint32_t count)
{
	const uint32_t groups = prefix->engine->shape.group_count;
	const uint32_t each = prefix->chunk_blocks;
	uint32_t at = count * each;
	uint32_t group;

	for (group = 0; group < groups; group++)
		engine_blocks_give(prefix->engine, ids + group * blocks + at,
				   blocks - at);
	/* As in ib_prefix_unpin(): the first chunk is evicted last. */
	while (count--) {
		const uint32_t place = chunk_begin(prefix, hashes[count]);

		at -= each;
		for (group = 0; group < groups; group++) {
			const uint32_t *from = ids + group * blocks + at;

			if (place == KVPULL_NONE)
				engine_blocks_give(prefix->engine, from, each);
			else
				memcpy(prefix->ids +
					       (place * groups + group) * each,
				       from, each * sizeof(*from));
		}
		if (place != KVPULL_NONE)
			kvpull_index_list_push(&prefix->idle, place);
	}
}
