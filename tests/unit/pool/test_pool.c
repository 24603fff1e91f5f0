/* SPDX-License-Identifier: Apache-2.0 */
/* The owner's side of a share: guards, generations, namespaces, quarantine. */
#include "tests/unit/pool/world.h"

/* Each of its tables in turn finds no memory. */
UNIT_TEST_POOL(a_pool_has_all_of_its_tables_or_is_not_opened, 4, 2, 16)
{
	static const struct kvpull_log silent;
	struct kvpull_arena arena;
	struct kvpull_pool *pool = NULL;
	uint32_t failures = 0;

	for (failures = 0; !pool; failures++) {
		assert_in_range(failures, 0, 1000);
		kvpull_arena_init(&arena, &silent);
		arena.bytes_max = (size_t)failures * KVPULL_CACHE_LINE;
		pool = kvpull_pool_open(&world->params, &arena);
		assert_int_equal(kvpull_arena_ok(&arena), pool != NULL);
		if (pool)
			kvpull_pool_close(pool);
		kvpull_arena_fini(&arena);
	}
	assert_true(failures > 3);
}

UNIT_TEST_POOL(a_put_key_is_found_with_its_guard, 4, 2, 16)
{
	struct kvpull_pool_found found;

	assert_int_equal(pool_probe(world, 1, &found), 0);
	assert_int_equal(pool_put(world, 1, 3), 0);
	assert_int_equal(pool_probe(world, 1, &found), 1);
	assert_int_equal(found.memory.index, 3);
	assert_int_equal(found.memory.generation, 1);
	assert_int_equal(found.file.index, KVPULL_NONE);
	assert_true(pool_is_valid(world, &found.memory));
	assert_int_equal(pool_put(world, 1, 3), 0);
	/* The bytes of one generation have one key. */
	assert_int_equal(pool_put(world, 2, 3), KVPULL_EINVAL);
	assert_int_equal(pool_put(world, 2, 6), KVPULL_EINVAL);
}

UNIT_TEST_POOL(a_key_may_have_a_place_in_memory_and_one_in_the_file, 4, 2, 16)
{
	struct kvpull_pool_found found;
	const uint32_t memory = 1;

	assert_int_equal(pool_put(world, 9, 4), 0);
	assert_int_equal(pool_put(world, 9, memory), 0);
	assert_int_equal(pool_probe(world, 9, &found), 2);
	assert_int_equal(found.memory.index, memory);
	assert_int_equal(found.file.index, 4);
	assert_int_equal(kvpull_pool_bump(world->pool, &memory, 1, NULL), 0);
	assert_int_equal(pool_probe(world, 9, &found), 1);
	assert_int_equal(found.memory.index, KVPULL_NONE);
	assert_int_equal(found.file.index, 4);
}

UNIT_TEST_POOL(a_present_key_moves_to_the_place_that_is_put, 4, 0, 16)
{
	struct kvpull_pool_found found;
	const uint32_t old = 0;

	assert_int_equal(pool_put(world, 5, old), 0);
	assert_int_equal(pool_put(world, 5, 2), 0);
	assert_int_equal(pool_probe(world, 5, &found), 1);
	assert_int_equal(found.memory.index, 2);
	/* The bytes there are still that key's, until the chunk is bumped. */
	assert_int_equal(pool_put(world, 6, old), KVPULL_EINVAL);
	assert_int_equal(pool_put(world, 5, old), 0);
	assert_int_equal(pool_put(world, 5, 2), 0);
	/* The entry now belongs to the other place. */
	assert_int_equal(kvpull_pool_bump(world->pool, &old, 1, NULL), 0);
	assert_int_equal(pool_probe(world, 5, &found), 1);
}

UNIT_TEST_POOL(a_bump_withdraws_and_no_old_read_is_believed, 4, 0, 16)
{
	struct kvpull_pool_found before;
	struct kvpull_pool_found after;
	const uint32_t places[] = { 2, 0 };
	uint64_t generations[2];

	assert_int_equal(pool_put(world, 5, 2), 0);
	assert_int_equal(pool_probe(world, 5, &before), 1);
	assert_int_equal(kvpull_pool_bump(world->pool, places, 2, generations),
			 0);
	assert_int_equal(generations[0], 2);
	assert_int_equal(generations[1], 2);
	assert_int_equal(kvpull_pool_generation(world->pool, 2), 2);
	assert_false(pool_is_valid(world, &before.memory));
	assert_int_equal(pool_probe(world, 5, &after), 0);
	/* Put again, the old answer still is of the old bytes. */
	assert_int_equal(pool_put(world, 5, 2), 0);
	assert_int_equal(pool_probe(world, 5, &after), 1);
	assert_true(pool_is_valid(world, &after.memory));
	assert_false(pool_is_valid(world, &before.memory));
}

UNIT_TEST_POOL(a_bump_of_no_place_does_nothing, 4, 0, 16)
{
	const uint32_t places[] = { 1, 4 };

	assert_int_equal(kvpull_pool_bump(world->pool, places, 2, NULL),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_pool_generation(world->pool, 1), 1);
	assert_int_equal(kvpull_pool_generation(world->pool, 4), 0);
}

UNIT_TEST_POOL(a_put_under_another_generation_is_stale, 4, 0, 16)
{
	struct kvpull_pool_found found;
	const uint32_t place = 1;

	assert_int_equal(kvpull_pool_bump(world->pool, &place, 1, NULL), 0);
	assert_int_equal(pool_put_under(world, 1, place, 1), KVPULL_ESTALE);
	assert_int_equal(pool_put_under(world, 1, place, 3), KVPULL_ESTALE);
	assert_int_equal(pool_probe(world, 1, &found), 0);
	assert_int_equal(pool_put_under(world, 1, place, 2), 0);
}

UNIT_TEST_POOL(a_place_whose_write_goes_on_is_neither_filled_nor_put, 4, 0, 16)
{
	const uint32_t place = 1;

	assert_int_equal(kvpull_pool_write_end(world->pool, place),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_pool_write_begin(world->pool, 4),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_pool_write_end(world->pool, 4), KVPULL_EINVAL);
	assert_int_equal(kvpull_pool_write_begin(world->pool, place), 0);
	assert_int_equal(pool_put(world, 1, place), KVPULL_EAGAIN);
	/* A bump stops readers, not writers. */
	assert_int_equal(kvpull_pool_bump(world->pool, &place, 1, NULL), 0);
	assert_int_equal(kvpull_pool_write_begin(world->pool, place),
			 KVPULL_EAGAIN);
	assert_int_equal(pool_put(world, 1, place), KVPULL_EAGAIN);
	assert_int_equal(kvpull_pool_write_end(world->pool, place), 0);
	assert_int_equal(kvpull_pool_write_begin(world->pool, place), 0);
	assert_int_equal(kvpull_pool_write_end(world->pool, place), 0);
	assert_int_equal(pool_put(world, 1, place), 0);
}

UNIT_TEST_POOL(what_readers_may_know_is_bumped_before_it_is_written, 4, 0, 16)
{
	const uint32_t place = 1;

	assert_int_equal(pool_put(world, 1, place), 0);
	assert_int_equal(kvpull_pool_write_begin(world->pool, place),
			 KVPULL_EINVAL);
	/* Also where its key is listed elsewhere by now. */
	assert_int_equal(pool_put(world, 1, 2), 0);
	assert_int_equal(kvpull_pool_write_begin(world->pool, place),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_pool_bump(world->pool, &place, 1, NULL), 0);
	assert_int_equal(kvpull_pool_write_begin(world->pool, place), 0);
}

/* The first put, if it came late, would list what the second write left. */
UNIT_TEST_POOL(a_generation_is_of_one_write, 4, 0, 16)
{
	const uint32_t place = 1;

	assert_int_equal(kvpull_pool_write_begin(world->pool, place), 0);
	assert_int_equal(kvpull_pool_write_end(world->pool, place), 0);
	assert_int_equal(kvpull_pool_write_begin(world->pool, place),
			 KVPULL_EINVAL);
	assert_int_equal(pool_put(world, 1, place), 0);
	assert_int_equal(kvpull_pool_bump(world->pool, &place, 1, NULL), 0);
	assert_int_equal(kvpull_pool_write_begin(world->pool, place), 0);
}

UNIT_TEST_POOL(new_weights_end_all_that_was_computed_before, 4, 2, 16)
{
	struct kvpull_pool_namespace old;
	struct kvpull_pool_found before;
	struct kvpull_pool_found found;
	struct kvpull_pool_put put = { .place = 0 };

	old = world->namespace_digest;
	put.key = pool_key(world, 2);
	put.epoch = kvpull_pool_epoch(world->pool);
	assert_int_equal(pool_put(world, 1, 3), 0);
	assert_int_equal(pool_put(world, 1, 5), 0);
	assert_int_equal(pool_probe(world, 1, &before), 2);
	world->namespace_digest.bytes[0] ^= 1;
	kvpull_pool_bump_all(world->pool);
	assert_false(pool_is_valid(world, &before.memory));
	assert_false(pool_is_valid(world, &before.file));
	/* Computed before, written after. */
	put.generation = kvpull_pool_generation(world->pool, 0);
	assert_int_equal(kvpull_pool_put(world->pool, &put), KVPULL_ESTALE);
	put.epoch = kvpull_pool_epoch(world->pool);
	assert_int_equal(kvpull_pool_put(world->pool, &put), 0);
	/* A reader of the old namespace finds nothing of the new. */
	assert_int_equal(pool_put(world, 1, 1), 0);
	assert_int_equal(pool_probe(world, 1, &found), 1);
	world->namespace_digest = old;
	assert_int_equal(pool_probe(world, 1, &found), 0);
}

UNIT_TEST(an_owner_that_ended_is_believed_nothing)
{
	struct pool_world world;
	struct kvpull_pool_found found;
	struct kvpull_pool_found none;

	pool_world_open(&world, 4, 0, 16);
	assert_int_equal(pool_put(&world, 1, 3), 0);
	assert_int_equal(pool_probe(&world, 1, &found), 1);
	kvpull_pool_close(world.pool);
	assert_false(pool_is_valid(&world, &found.memory));
	assert_int_equal(pool_probe(&world, 1, &none), 0);
	assert_int_equal(
		atomic_load_explicit(&world.params.guards[3].incarnation,
				     memory_order_relaxed),
		0);
	kvpull_arena_fini(&world.arena);
}

UNIT_TEST_POOL(a_place_behind_the_last_is_none, 4, 2, 16)
{
	const uint32_t places[2] = { 0, 6 };
	uint64_t generation;

	assert_int_equal(kvpull_pool_write_begin(world->pool, 5), 0);
	assert_int_equal(kvpull_pool_is_writing(world->pool, 5), 1);
	assert_int_equal(kvpull_pool_is_writing(world->pool, 4), 0);
	assert_int_equal(kvpull_pool_is_writing(world->pool, 6), 0);
	assert_int_equal(kvpull_pool_is_writing(world->pool, UINT32_MAX), 0);
	assert_int_equal(kvpull_pool_write_end(world->pool, 5), 0);
	assert_int_equal(kvpull_pool_write_end(world->pool, 5), KVPULL_EINVAL);
	assert_int_equal(kvpull_pool_write_begin(world->pool, 6),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_pool_write_end(world->pool, 6), KVPULL_EINVAL);
	assert_int_equal(pool_put_under(world, 1, 6, 1), KVPULL_EINVAL);
	/* None is bumped of a list with such a place. */
	generation = kvpull_pool_generation(world->pool, 0);
	assert_int_equal(kvpull_pool_bump(world->pool, places, 2, NULL),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_pool_generation(world->pool, 0), generation);
	assert_int_equal(kvpull_pool_bump(world->pool, places, 1, NULL), 0);
	assert_int_equal(kvpull_pool_generation(world->pool, 0),
			 generation + 1);
}

#ifdef KVPULL_DEBUG
static int unfenced;

static void watch(enum kvpull_revocation_act act)
{
	unfenced = act == KVPULL_REVOCATION_WRITTEN;
}

UNIT_TEST(no_bump_returns_before_its_fence)
{
	struct pool_world world;
	const uint32_t place = 1;

	pool_world_open(&world, 4, 0, 16);
	kvpull_revocation_hook = watch;
	unfenced = 1;
	assert_int_equal(kvpull_pool_bump(world.pool, &place, 1, NULL), 0);
	assert_false(unfenced);
	unfenced = 1;
	kvpull_pool_bump_all(world.pool);
	assert_false(unfenced);
	unfenced = 1;
	pool_world_close(&world);
	assert_false(unfenced);
	kvpull_revocation_hook = NULL;
}
#endif
