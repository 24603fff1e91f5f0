/* SPDX-License-Identifier: Apache-2.0 */
/* The expiry heap: order, one entry a slot, and equal to a naive model. */
#include "plugin/hold/lease.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"

#define SLOTS 64u

static struct kvpull_arena arena;

static int setup(void **state)
{
	static struct kvpull_leases leases;

	kvpull_arena_init(&arena, NULL);
	*state = &leases;
	kvpull_leases_init(&leases, SLOTS, &arena);
	return !kvpull_arena_ok(&arena);
}

static int teardown(void **state)
{
	(void)state;
	kvpull_arena_fini(&arena);
	return 0;
}

#define TEST(name)                                                             \
	UNIT_TEST_OF(name, struct kvpull_leases, leases, setup, teardown)

TEST(empty_heap_is_never_due)
{
	assert_int_equal(kvpull_leases_next(leases), UINT64_MAX);
}

TEST(roots_come_in_order_of_their_keys)
{
	uint32_t i;

	for (i = 0; i < SLOTS; i++)
		kvpull_leases_arm(leases, i, 1000 + (i * 37) % SLOTS);
	for (i = 0; i < SLOTS; i++) {
		assert_int_equal(kvpull_leases_next(leases), 1000 + i);
		assert_int_equal((kvpull_leases_root(leases) * 37) % SLOTS, i);
		kvpull_leases_drop(leases);
	}
	assert_int_equal(kvpull_leases_next(leases), UINT64_MAX);
}

TEST(slot_has_one_entry_and_keeps_its_lower_key)
{
	kvpull_leases_arm(leases, 3, 50);
	kvpull_leases_arm(leases, 3, 70);
	assert_int_equal(kvpull_leases_next(leases), 50);
	kvpull_leases_arm(leases, 3, 20);
	assert_int_equal(kvpull_leases_next(leases), 20);
	kvpull_leases_drop(leases);
	assert_int_equal(kvpull_leases_next(leases), UINT64_MAX);
}

/* vllm #58222: a renewed hold at the head hid those due behind it. */
TEST(renewed_root_hides_nothing_behind_it)
{
	kvpull_leases_arm(leases, 1, 10);
	kvpull_leases_arm(leases, 2, 20);
	kvpull_leases_rekey(leases, 900);
	assert_int_equal(kvpull_leases_root(leases), 2);
	assert_int_equal(kvpull_leases_next(leases), 20);
	kvpull_leases_drop(leases);
	assert_int_equal(kvpull_leases_root(leases), 1);
	assert_int_equal(kvpull_leases_next(leases), 900);
}

TEST(cleared_heap_takes_every_slot_again)
{
	uint32_t i, round;

	for (round = 0; round < 3; round++) {
		for (i = 0; i < SLOTS; i++)
			kvpull_leases_arm(leases, i, 5 + i);
		assert_int_equal(leases->count, SLOTS);
		kvpull_leases_clear(leases);
		assert_int_equal(kvpull_leases_next(leases), UINT64_MAX);
	}
}

static uint64_t model_least(const uint64_t *keys)
{
	uint64_t least = UINT64_MAX;
	uint32_t i;

	for (i = 0; i < SLOTS; i++)
		if (keys[i] < least)
			least = keys[i];
	return least;
}

TEST(heap_equals_a_naive_model_in_any_order)
{
	uint64_t keys[SLOTS];
	uint64_t seed = 0x1234567;
	uint32_t i;

	for (i = 0; i < SLOTS; i++)
		keys[i] = UINT64_MAX;
	for (i = 0; i < 200000; i++) {
		const uint32_t slot = (uint32_t)(random_next(&seed) % SLOTS);
		const uint64_t key_ns = random_next(&seed) % 5000;
		const uint64_t least_ns = model_least(keys);
		const uint64_t what = random_next(&seed) % 1000;

		assert_int_equal(kvpull_leases_next(leases), least_ns);
		if (what == 0) {
			kvpull_leases_clear(leases);
			for (uint32_t j = 0; j < SLOTS; j++)
				keys[j] = UINT64_MAX;
		} else if (what < 500 || least_ns == UINT64_MAX) {
			kvpull_leases_arm(leases, slot, key_ns);
			keys[slot] = key_ns < keys[slot] ? key_ns : keys[slot];
		} else if (what < 750) {
			const uint32_t root = kvpull_leases_root(leases);

			assert_int_equal(keys[root], least_ns);
			keys[root] += key_ns;
			kvpull_leases_rekey(leases, keys[root]);
		} else {
			const uint32_t root = kvpull_leases_root(leases);

			assert_int_equal(keys[root], least_ns);
			keys[root] = UINT64_MAX;
			kvpull_leases_drop(leases);
		}
	}
}
