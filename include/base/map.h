/* SPDX-License-Identifier: Apache-2.0 */
/*
 * u64 key to u32 value, fixed capacity, open addressing with backward-shift
 * removal: nothing is allocated after open, no tombstones. uthash was looked
 * at: it takes a table from malloc when it grows. Key 0 is not used.
 */
#ifndef KVPULL_BASE_MAP_H
#define KVPULL_BASE_MAP_H

#include "base/arena.h"

/* Keys are counters mostly: as many as this lie beside each other. */
#define KVPULL_MAP_NEIGHBOURS 16u

struct kvpull_map_entry {
	uint64_t key; /* 0: empty */
	uint32_t value;
};

struct kvpull_map {
	struct kvpull_map_entry *entries;
	uint32_t mask;
	uint32_t count;
	uint32_t count_max;
};

static inline void kvpull_map_init(struct kvpull_map *map, uint32_t count_max,
				   struct kvpull_arena *arena)
{
	uint32_t slots = 16;

	while (slots < count_max * 2)
		slots *= 2;
	map->entries = (struct kvpull_map_entry *)kvpull_arena_take_table(
		arena, slots, sizeof(*map->entries));
	map->mask = slots - 1;
	map->count = 0;
	map->count_max = count_max;
}

static inline uint32_t kvpull_map_home(const struct kvpull_map *map,
				       uint64_t key)
{
	const uint64_t group = key / KVPULL_MAP_NEIGHBOURS;
	const uint64_t mixed = group * UINT64_C(0x9e3779b97f4a7c15) >> 32;

	return (uint32_t)(mixed * KVPULL_MAP_NEIGHBOURS +
			  key % KVPULL_MAP_NEIGHBOURS) &
	       map->mask;
}

static inline uint32_t kvpull_map_get(const struct kvpull_map *map,
				      uint64_t key)
{
	uint32_t at = kvpull_map_home(map, key);

	for (; map->entries[at].key; at = (at + 1) & map->mask)
		if (map->entries[at].key == key)
			return map->entries[at].value;
	return KVPULL_NONE;
}

/* Sets or replaces; 0, KVPULL_EFULL, or KVPULL_EINVAL for key 0. */
static inline KVPULL_MUST_CHECK int kvpull_map_set(struct kvpull_map *map,
						   uint64_t key, uint32_t value)
{
	uint32_t at = kvpull_map_home(map, key);

	if (!key)
		return KVPULL_EINVAL;
	for (; map->entries[at].key; at = (at + 1) & map->mask)
		if (map->entries[at].key == key) {
			map->entries[at].value = value;
			return 0;
		}
	if (map->count == map->count_max)
		return KVPULL_EFULL;
	map->entries[at].key = key;
	map->entries[at].value = value;
	map->count++;
	return 0;
}

/* Removing a key that is not there does nothing. */
static inline void kvpull_map_remove(struct kvpull_map *map, uint64_t key)
{
	uint32_t hole = kvpull_map_home(map, key);
	uint32_t at;

	while (map->entries[hole].key && map->entries[hole].key != key)
		hole = (hole + 1) & map->mask;
	if (!map->entries[hole].key)
		return;
	for (at = (hole + 1) & map->mask; map->entries[at].key;
	     at = (at + 1) & map->mask) {
		const uint32_t home =
			kvpull_map_home(map, map->entries[at].key);

		/* Move it back unless its home lies after the hole. */
		if (((at - home) & map->mask) >= ((at - hole) & map->mask)) {
			map->entries[hole] = map->entries[at];
			hole = at;
		}
	}
	map->entries[hole].key = 0;
	map->count--;
}

#endif /* KVPULL_BASE_MAP_H */
