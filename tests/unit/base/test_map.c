/* SPDX-License-Identifier: Apache-2.0 */

#include "base/map.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"

#define COUNT_MAX 40u
#define STEPS 100000u
#define KEYS 64u

static struct kvpull_arena arena;

static struct kvpull_map map_of(uint32_t count_max)
{
	struct kvpull_map map;

	kvpull_arena_init(&arena, NULL);
	kvpull_map_init(&map, count_max, &arena);
	assert_true(kvpull_arena_ok(&arena));
	return map;
}

/* A test of a map that has room for so many. */
#define MAP_TEST(name, count_max)                                              \
	static void name##_of(struct kvpull_map *map);                         \
	UNIT_TEST(name)                                                        \
	{                                                                      \
		struct kvpull_map map = map_of(count_max);                     \
                                                                               \
		name##_of(&map);                                               \
		kvpull_arena_fini(&arena);                                     \
	}                                                                      \
	static void name##_of(struct kvpull_map *map)

static void sets(struct kvpull_map *map, uint64_t key, uint32_t value)
{
	assert_int_equal(kvpull_map_set(map, key, value), 0);
}

MAP_TEST(key_that_was_never_set_is_none, 4)
{
	assert_true(kvpull_map_get(map, 1) == KVPULL_NONE);
	assert_true(kvpull_map_get(map, UINT64_MAX) == KVPULL_NONE);
	assert_true(kvpull_map_get(map, 0) == KVPULL_NONE);
}

MAP_TEST(key_zero_is_refused, 4)
{
	assert_int_equal(kvpull_map_set(map, 0, 1), KVPULL_EINVAL);
	assert_int_equal(map->count, 0);
	kvpull_map_remove(map, 0);
	assert_int_equal(map->count, 0);
}

MAP_TEST(second_set_replaces, 4)
{
	sets(map, 7, 1);
	sets(map, 7, 2);
	assert_int_equal(map->count, 1);
	assert_int_equal(kvpull_map_get(map, 7), 2);
}

MAP_TEST(full_map_refuses_new_keys_and_replaces_old, 8)
{
	uint64_t key;

	for (key = 1; key <= 8; key++)
		sets(map, key, (uint32_t)key);
	assert_int_equal(kvpull_map_set(map, 9, 9), KVPULL_EFULL);
	assert_true(kvpull_map_get(map, 9) == KVPULL_NONE);
	sets(map, 8, 80);
	kvpull_map_remove(map, 1);
	sets(map, 9, 9);
	assert_int_equal(kvpull_map_get(map, 8), 80);
	assert_int_equal(kvpull_map_get(map, 9), 9);
}

MAP_TEST(removing_what_is_not_there_changes_nothing, 4)
{
	sets(map, 5, 50);
	kvpull_map_remove(map, 6);
	assert_int_equal(map->count, 1);
	assert_int_equal(kvpull_map_get(map, 5), 50);
}

/* Keys whose home is the last slot: their chain goes round the end. */
UNIT_TEST(chain_over_the_end_survives_any_removal)
{
	uint64_t keys[5];
	uint32_t removed;

	for (removed = 0; removed < 5; removed++) {
		struct kvpull_map map = map_of(8);
		uint64_t key = 1;
		uint32_t i;

		for (i = 0; i < 5; key++)
			if (kvpull_map_home(&map, key) == map.mask)
				keys[i++] = key;
		for (i = 0; i < 5; i++)
			sets(&map, keys[i], i);
		kvpull_map_remove(&map, keys[removed]);
		for (i = 0; i < 5; i++)
			assert_true(kvpull_map_get(&map, keys[i]) ==
				    (i == removed ? KVPULL_NONE : i));
		kvpull_arena_fini(&arena);
	}
}

static void assert_equals_model(const struct kvpull_map *map,
				const uint64_t *keys, const uint32_t *model)
{
	uint32_t i;

	for (i = 0; i < KEYS; i++)
		assert_true(kvpull_map_get(map, keys[i]) == model[i]);
}

/* Against an array, full or nearly so, where chains are longest. */
/* A cache line has several of these keys, a page has all. */
MAP_TEST(keys_that_are_counted_lie_beside_each_other, 1024)
{
	uint64_t key;

	for (key = 64; key < 80; key++) {
		const uint32_t at = kvpull_map_home(map, key);

		sets(map, key, (uint32_t)key);
		assert_true(map->entries[at].key == key);
		assert_true(key == 64 || map->entries[at - 1].key == key - 1);
	}
}

/* As addresses are: all of them have the same low bits. */
MAP_TEST(keys_that_are_far_apart_are_found, 1024)
{
	uint64_t key;

	for (key = 1; key <= 1024; key++)
		sets(map, key << 12, (uint32_t)key);
	for (key = 1; key <= 1024; key++)
		assert_int_equal(kvpull_map_get(map, key << 12), key);
}

MAP_TEST(map_equals_a_naive_model, COUNT_MAX)
{
	uint64_t keys[KEYS];
	uint32_t model[KEYS];
	uint64_t seed = 1;
	uint32_t i;

	for (i = 0; i < KEYS; i++) {
		/* Counters and scattered keys, both. */
		keys[i] = i & 1 ? i : random_next(&seed);
		model[i] = KVPULL_NONE;
	}
	for (i = 0; i < STEPS; i++) {
		const uint64_t random = random_next(&seed);
		const uint32_t at = (uint32_t)(random >> 8) % KEYS;
		const uint32_t count = map->count;
		const uint32_t is_new = model[at] == KVPULL_NONE;

		if (!(random & 3)) {
			kvpull_map_remove(map, keys[at]);
			model[at] = KVPULL_NONE;
			assert_int_equal(map->count, count - !is_new);
		} else if (is_new && count == COUNT_MAX) {
			assert_int_equal(kvpull_map_set(map, keys[at], i),
					 KVPULL_EFULL);
		} else {
			sets(map, keys[at], i);
			model[at] = i;
			assert_int_equal(map->count, count + is_new);
		}
		if (i % 16 == 0)
			assert_equals_model(map, keys, model);
	}
}
