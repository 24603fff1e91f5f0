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

UNIT_TEST(key_that_was_never_set_is_none)
{
	const struct kvpull_map map = map_of(4);

	assert_true(kvpull_map_get(&map, 1) == KVPULL_NONE);
	assert_true(kvpull_map_get(&map, UINT64_MAX) == KVPULL_NONE);
	assert_true(kvpull_map_get(&map, 0) == KVPULL_NONE);
	kvpull_arena_fini(&arena);
}

UNIT_TEST(key_zero_is_refused)
{
	struct kvpull_map map = map_of(4);

	assert_int_equal(kvpull_map_set(&map, 0, 1), KVPULL_EINVAL);
	assert_int_equal(map.count, 0);
	kvpull_map_remove(&map, 0);
	assert_int_equal(map.count, 0);
	kvpull_arena_fini(&arena);
}

UNIT_TEST(second_set_replaces)
{
	struct kvpull_map map = map_of(4);

	assert_int_equal(kvpull_map_set(&map, 7, 1), 0);
	assert_int_equal(kvpull_map_set(&map, 7, 2), 0);
	assert_int_equal(map.count, 1);
	assert_int_equal(kvpull_map_get(&map, 7), 2);
	kvpull_arena_fini(&arena);
}

UNIT_TEST(full_map_refuses_new_keys_and_replaces_old)
{
	struct kvpull_map map = map_of(8);
	uint64_t key;

	for (key = 1; key <= 8; key++)
		assert_int_equal(kvpull_map_set(&map, key, (uint32_t)key), 0);
	assert_int_equal(kvpull_map_set(&map, 9, 9), KVPULL_EFULL);
	assert_true(kvpull_map_get(&map, 9) == KVPULL_NONE);
	assert_int_equal(kvpull_map_set(&map, 8, 80), 0);
	kvpull_map_remove(&map, 1);
	assert_int_equal(kvpull_map_set(&map, 9, 9), 0);
	assert_int_equal(kvpull_map_get(&map, 8), 80);
	assert_int_equal(kvpull_map_get(&map, 9), 9);
	kvpull_arena_fini(&arena);
}

UNIT_TEST(removing_what_is_not_there_changes_nothing)
{
	struct kvpull_map map = map_of(4);

	assert_int_equal(kvpull_map_set(&map, 5, 50), 0);
	kvpull_map_remove(&map, 6);
	assert_int_equal(map.count, 1);
	assert_int_equal(kvpull_map_get(&map, 5), 50);
	kvpull_arena_fini(&arena);
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
			assert_int_equal(kvpull_map_set(&map, keys[i], i), 0);
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
UNIT_TEST(keys_that_are_counted_lie_beside_each_other)
{
	struct kvpull_map map = map_of(1024);
	uint64_t key;

	for (key = 64; key < 80; key++) {
		const uint32_t at = kvpull_map_home(&map, key);

		assert_int_equal(kvpull_map_set(&map, key, (uint32_t)key), 0);
		assert_true(map.entries[at].key == key);
		assert_true(key == 64 || map.entries[at - 1].key == key - 1);
	}
	kvpull_arena_fini(&arena);
}

/* As addresses are: all of them have the same low bits. */
UNIT_TEST(keys_that_are_far_apart_are_found)
{
	struct kvpull_map map = map_of(1024);
	uint64_t key;

	for (key = 1; key <= 1024; key++)
		assert_int_equal(kvpull_map_set(&map, key << 12, (uint32_t)key),
				 0);
	for (key = 1; key <= 1024; key++)
		assert_int_equal(kvpull_map_get(&map, key << 12), key);
	kvpull_arena_fini(&arena);
}

UNIT_TEST(map_equals_a_naive_model)
{
	struct kvpull_map map = map_of(COUNT_MAX);
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
		const uint32_t count = map.count;
		const uint32_t is_new = model[at] == KVPULL_NONE;

		if (!(random & 3)) {
			kvpull_map_remove(&map, keys[at]);
			model[at] = KVPULL_NONE;
			assert_int_equal(map.count, count - !is_new);
		} else if (is_new && count == COUNT_MAX) {
			assert_int_equal(kvpull_map_set(&map, keys[at], i),
					 KVPULL_EFULL);
		} else {
			assert_int_equal(kvpull_map_set(&map, keys[at], i), 0);
			model[at] = i;
			assert_int_equal(map.count, count + is_new);
		}
		if (i % 16 == 0)
			assert_equals_model(&map, keys, model);
	}
	kvpull_arena_fini(&arena);
}
