/* SPDX-License-Identifier: Apache-2.0 */
/* Probes and reads of a share, whose owner goes on writing. */
#include "tests/unit/share/world.h"

#define SEEDS 40u

UNIT_TEST_SEEDS(keys_are_found_and_their_bytes_read, SEEDS)
{
	struct kvpull_pool_found found[3];
	struct kvpull_share_reader_end end;
	uint64_t id;
	uint32_t at;

	for (at = 0; at < 3; at++) {
		share_put(world, 100 + at, 5 * at);
		assert_int_equal(share_probe(world, 100 + at, &found[at]), 1);
		assert_int_equal(found[at].memory.index, 5 * at);
	}
	assert_int_equal(share_read(world, found, 3, 7, &id), 0);
	share_wait(world, &end);
	assert_true(end.id == id);
	assert_int_equal(end.code, 0);
	assert_int_equal(end.count, 3);
	assert_null(end.found);
	for (at = 0; at < 3; at++) {
		assert_int_equal(end.codes[at], 0);
		assert_true(share_is_of(world->blocks[7 + at], 100 + at, 2));
	}
	assert_int_equal(world->checks, 1);
}

UNIT_TEST_SHARE(a_probe_says_which_of_many_keys_are_missing, 1)
{
	struct kvpull_pool_key keys[KVPULL_READER_ITEMS_MAX];
	const struct kvpull_share_reader_probe probe = {
		.peer = world->peer,
		.key_count = KVPULL_READER_ITEMS_MAX,
		.keys = keys,
	};
	struct kvpull_share_reader_end end;
	uint64_t id;
	uint32_t at;

	for (at = 0; at < KVPULL_READER_ITEMS_MAX; at++)
		keys[at] = pool_key(&world->owner, at);
	for (at = 0; at < SHARE_CHUNKS; at++)
		share_put(world, at * 16, at);
	assert_int_equal(kvpull_share_reader_probe(world->reader, &probe, &id),
			 0);
	share_wait(world, &end);
	assert_int_equal(end.count, KVPULL_READER_ITEMS_MAX);
	for (at = 0; at < KVPULL_READER_ITEMS_MAX; at++)
		assert_int_equal(end.found[at].memory.index,
				 at % 16 ? KVPULL_NONE : at / 16);
}

static void refill(struct share_world *world)
{
	share_put(world, 9, 1);
}

UNIT_TEST_SEEDS(a_place_refilled_before_the_copy_is_stale, SEEDS)
{
	struct kvpull_pool_found found;
	struct kvpull_share_reader_end end;
	uint64_t id;

	share_put(world, 1, 1);
	assert_int_equal(share_probe(world, 1, &found), 1);
	world->before_data = refill;
	assert_int_equal(share_read(world, &found, 1, 0, &id), 0);
	share_wait(world, &end);
	assert_int_equal(end.code, KVPULL_ESTALE);
	assert_int_equal(end.codes[0], KVPULL_ESTALE);
	/* The key is elsewhere, or gone. */
	assert_int_equal(share_probe(world, 1, &found), 0);
	assert_int_equal(share_probe(world, 9, &found), 1);
	assert_int_equal(share_read(world, &found, 1, 0, &id), 0);
	share_wait(world, &end);
	assert_int_equal(end.codes[0], 0);
	assert_true(share_is_of(world->blocks[0], 9, 3));
}

UNIT_TEST_SEEDS(only_pieces_bumped_between_copy_and_check_are_stale, SEEDS)
{
	struct kvpull_pool_found found[3];
	struct kvpull_share_reader_end end;
	uint64_t id;
	uint32_t at;

	for (at = 0; at < 3; at++) {
		share_put(world, at, at);
		assert_int_equal(share_probe(world, at, &found[at]), 1);
	}
	world->before_guards = refill;
	assert_int_equal(share_read(world, found, 3, 0, &id), 0);
	share_wait(world, &end);
	assert_int_equal(end.code, KVPULL_ESTALE);
	assert_int_equal(end.codes[0], 0);
	assert_int_equal(end.codes[1], KVPULL_ESTALE);
	assert_int_equal(end.codes[2], 0);
	assert_true(share_is_of(world->blocks[0], 0, 2));
	assert_true(share_is_of(world->blocks[2], 2, 2));
}

static uint64_t drawn;

static uint32_t draw(uint32_t below)
{
	drawn = drawn * UINT64_C(6364136223846793005) + 1442695041;
	return (uint32_t)(drawn >> 33) % below;
}

/* The owner at random, each chunk many times over: no good piece is wrong. */
UNIT_TEST(what_is_good_has_the_bytes_of_its_key)
{
	uint32_t good = 0;
	uint32_t stale = 0;
	uint64_t seed;

	for (seed = 1; seed <= SEEDS; seed++) {
		struct share_world *world = share_open(seed);
		uint32_t round;

		drawn = seed;
		for (round = 0; round < 100; round++) {
			const uint64_t key = draw(8);
			struct kvpull_pool_found found;
			struct kvpull_share_reader_end end;
			uint64_t id;

			share_put(world, draw(8), draw(4));
			if (!share_probe(world, key, &found))
				continue;
			assert_int_equal(share_read(world, &found, 1, 3, &id),
					 0);
			while (!kvpull_share_reader_end(world->reader, &end)) {
				share_turn(world);
				if (draw(2) == 0)
					share_put(world, draw(8), draw(4));
			}
			good += !end.codes[0];
			stale += end.codes[0] == KVPULL_ESTALE;
			if (!end.codes[0])
				assert_true(
					share_is_of(world->blocks[3], key,
						    found.memory.generation));
		}
		share_close(world);
	}
	print_message("%u good, %u stale\n", good, stale);
	assert_true(good > 100);
	assert_true(stale > 100);
}

UNIT_TEST_SHARE(torn_and_hostile_entries_are_a_miss, 3)
{
	struct kvpull_pool_found found;
	uint64_t *words;
	uint32_t at;

	share_put(world, 1, 1);
	words = (uint64_t *)(void *)world->owner.params.entries;
	assert_int_equal(share_probe(world, 1, &found), 1);
	for (at = 0; at < 64 * KVPULL_POOL_WORDS; at++) {
		const uint64_t is = words[at];

		if (!is && at % KVPULL_POOL_WORDS != 4)
			continue;
		words[at] ^= 1;
		/* A word of the key's entry, or of none. */
		(void)share_probe(world, 1, &found);
		assert_true(found.memory.index == KVPULL_NONE ||
			    found.memory.index == 1);
		if (is)
			assert_int_equal(found.memory.index, KVPULL_NONE);
		words[at] = is;
	}
	memset(words, 0xff, 64 * sizeof(struct kvpull_pool_entry));
	assert_int_equal(share_probe(world, 1, &found), 0);
}

UNIT_TEST_SHARE(a_destination_is_one_reads_at_a_time, 4)
{
	struct kvpull_pool_found found[2];
	struct kvpull_share_reader_end end;
	uint64_t first;
	uint64_t second;

	share_put(world, 1, 1);
	assert_int_equal(share_probe(world, 1, &found[0]), 1);
	found[1] = found[0];
	/* The same source twice is allowed. */
	assert_int_equal(share_read(world, found, 2, 5, &first), 0);
	assert_int_equal(share_read(world, found, 1, 6, &second),
			 KVPULL_EINVAL);
	/* The refused read has taken no block: 4 is free, 5 is not. */
	assert_int_equal(share_read(world, found, 2, 4, &second),
			 KVPULL_EINVAL);
	assert_int_equal(share_read(world, found, 1, 4, &second), 0);
	share_wait(world, &end);
	share_wait(world, &end);
	assert_int_equal(share_read(world, found, 2, 5, &first), 0);
	share_wait(world, &end);
	assert_int_equal(end.code, 0);
}

UNIT_TEST_SHARE(a_block_twice_in_one_read_is_refused, 4)
{
	const struct kvpull_reader_piece pieces[2] = { { .generation = 1 },
						       { .generation = 1 } };
	struct kvpull_reader_read read = {
		.peer = world->peer,
		.local = world->local,
		.piece_count = 2,
		.pieces = pieces,
		.incarnation = POOL_INCARNATION,
	};
	struct kvpull_share_reader_end end;
	uint64_t id;

	assert_int_equal(kvpull_share_reader_read(world->reader, &read, &id),
			 KVPULL_EINVAL);
	read.piece_count = 1;
	assert_int_equal(kvpull_share_reader_read(world->reader, &read, &id),
			 0);
	share_wait(world, &end);
}
