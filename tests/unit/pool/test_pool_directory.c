/* SPDX-License-Identifier: Apache-2.0 */
/* The directory: torn and hostile windows, a full table, a million puts. */
#include <pthread.h>
#include <stdio.h>

#include "tests/lib/random.h"
#include "tests/unit/pool/world.h"

static uint64_t draw_state = UINT64_C(88172645463325252);

static uint32_t draw(uint32_t below)
{
	return (uint32_t)((random_next(&draw_state) >> 32) * below >> 32);
}

struct entry {
	uint64_t words[KVPULL_POOL_WORDS];
};

static struct entry sealed(const struct pool_world *world, uint64_t number,
			   uint64_t place, uint64_t generation)
{
	const struct kvpull_pool_key key = pool_key(world, number);
	struct entry entry = { { 0, 0, 0, 0, place,
				 world->params.share.incarnation,
				 generation } };

	memcpy(entry.words, key.words, sizeof(key.words));
	entry.words[7] =
		kvpull_pool_seal(entry.words, world->params.share.secret);
	return entry;
}

static uint32_t judge_alone(const struct pool_world *world, uint64_t number,
			    const struct entry *entry, uint32_t at,
			    struct kvpull_pool_found *found)
{
	const struct kvpull_pool_key key = pool_key(world, number);
	struct entry window[KVPULL_POOL_WINDOW] = { { { 0 } } };

	window[at] = *entry;
	return kvpull_pool_judge(&world->params.share, &key,
				 (const void *)window, found);
}

/* Each of the 256 mixes by eight bytes of what was there and what came. */
static void mixes_are_misses(const struct pool_world *world,
			     const struct entry *old, const struct entry *fresh)
{
	struct kvpull_pool_found found;
	uint32_t mask;
	uint64_t number;
	uint32_t at;

	for (mask = 0; mask < 256; mask++) {
		struct entry mix;

		for (at = 0; at < KVPULL_POOL_WORDS; at++)
			mix.words[at] = mask >> at & 1 ? fresh->words[at] :
							 old->words[at];
		if (!memcmp(&mix, old, sizeof(mix)) ||
		    !memcmp(&mix, fresh, sizeof(mix)))
			continue;
		for (number = 1; number <= 2; number++)
			assert_int_equal(judge_alone(world, number, &mix,
						     mask % 8, &found),
					 0);
	}
}

UNIT_TEST_POOL(every_mix_of_two_writes_is_a_miss, 8, 2, 32)
{
	const struct entry zero = { { 0 } };
	struct entry entries[6];
	size_t old;
	size_t fresh;

	entries[0] = sealed(world, 1, 3, 5); /* another key's chunk */
	entries[1] = sealed(world, 2, 3, 6);
	entries[2] = sealed(world, 1, 3, 7); /* the chunk, later */
	entries[3] = sealed(world, 1, 4, 5); /* put elsewhere */
	entries[4] = sealed(world, 2, 9, 5); /* spilled */
	entries[5] = zero;
	for (old = 0; old < 6; old++)
		for (fresh = 0; fresh < 6; fresh++)
			mixes_are_misses(world, &entries[old], &entries[fresh]);
}

UNIT_TEST_POOL(an_entry_is_taken_whole_and_of_this_share_or_not_at_all, 8, 2,
	       32)
{
	struct kvpull_pool_found found;
	struct entry entry;
	uint32_t bit;

	entry = sealed(world, 1, 3, 5);
	assert_int_equal(judge_alone(world, 1, &entry, 7, &found), 1);
	assert_int_equal(found.memory.generation, 5);
	for (bit = 0; bit < 8 * sizeof(entry); bit++) {
		struct entry flipped = entry;

		flipped.words[bit / 64] ^= UINT64_C(1) << bit % 64;
		assert_int_equal(judge_alone(world, 1, &flipped, 0, &found), 0);
	}
	/* The owner's own seal, over another key, and over what cannot be. */
	for (bit = 0; bit < 4; bit++) {
		entry = sealed(world, 1, 3, 5);
		entry.words[bit] ^= 1;
		entry.words[7] = kvpull_pool_seal(entry.words,
						  world->params.share.secret);
		assert_int_equal(judge_alone(world, 1, &entry, 0, &found), 0);
	}
	entry = sealed(world, 1, 10, 5);
	assert_int_equal(judge_alone(world, 1, &entry, 0, &found), 0);
	entry = sealed(world, 1, UINT64_C(1) << 32, 5);
	assert_int_equal(judge_alone(world, 1, &entry, 0, &found), 0);
	world->params.share.incarnation++;
	entry = sealed(world, 1, 3, 5);
	world->params.share.incarnation--;
	assert_int_equal(judge_alone(world, 1, &entry, 0, &found), 0);
	/* Sealed by another share. */
	world->params.share.secret[0] ^= 1;
	entry = sealed(world, 1, 3, 5);
	world->params.share.secret[0] ^= 1;
	assert_int_equal(judge_alone(world, 1, &entry, 0, &found), 0);
}

UNIT_TEST_POOL(the_first_of_two_places_of_a_kind_counts, 8, 2, 32)
{
	struct kvpull_pool_found found;
	struct kvpull_pool_key key;
	struct entry window[KVPULL_POOL_WINDOW] = { { { 0 } } };

	key = pool_key(world, 1);
	window[2] = sealed(world, 1, 3, 5);
	window[4] = sealed(world, 1, 4, 6);
	window[5] = sealed(world, 1, 8, 7);
	window[6] = sealed(world, 1, 9, 8);
	assert_int_equal(kvpull_pool_judge(&world->params.share, &key,
					   (const void *)window, &found),
			 2);
	assert_int_equal(found.memory.index, 3);
	assert_int_equal(found.file.index, 8);
}

/* By its owner, too: no key is found by a part of its digest. */
UNIT_TEST_POOL(an_owner_finds_a_key_by_all_of_its_digest, 8, 2, 32)
{
	const struct kvpull_pool_place place = { .index = 3, .generation = 5 };
	struct kvpull_pool_directory directory;
	struct kvpull_pool_entry entries[32] = { 0 };
	struct kvpull_arena arena;
	struct kvpull_pool_key key;
	uint32_t index;
	uint32_t bit;

	kvpull_arena_init(&arena, NULL);
	assert_int_equal(kvpull_pool_directory_init(&directory,
						    &world->params.share,
						    entries, &arena),
			 0);
	key = pool_key(world, 1);
	index = kvpull_pool_directory_free(&directory, &key);
	assert_true(index != KVPULL_NONE);
	kvpull_pool_directory_write(&directory, index, &key, &place);
	assert_int_equal(kvpull_pool_directory_find(&directory, &key, 3),
			 index);
	for (bit = 0; bit < 256; bit++) {
		struct kvpull_pool_key other = key;

		other.words[bit / 64] ^= UINT64_C(1) << bit % 64;
		assert_int_equal(
			kvpull_pool_directory_find(&directory, &other, 3),
			KVPULL_NONE);
	}
	/* In memory it is, and not in the file. */
	assert_int_equal(kvpull_pool_directory_find(&directory, &key, 8),
			 KVPULL_NONE);
	kvpull_arena_fini(&arena);
}

UNIT_TEST(the_whole_key_is_what_is_looked_for)
{
	struct kvpull_pool_namespace namespaces[2] = { { { 1 } }, { { 2 } } };
	struct kvpull_pool_key key;
	struct kvpull_pool_key other;
	uint8_t bytes[KVPULL_READER_KEY_BYTES_MAX + 1] = { 0 };
	uint8_t whole[32 + 36];
	uint8_t digest[32];

	/* Hash and group: a key cut to 32 bytes is another group's, too. */
	assert_int_equal(kvpull_pool_key_make(namespaces, bytes, 36, &key), 0);
	bytes[35] = 1;
	assert_int_equal(kvpull_pool_key_make(namespaces, bytes, 36, &other),
			 0);
	assert_memory_not_equal(&key, &other, sizeof(key));
	assert_int_equal(kvpull_pool_key_make(namespaces + 1, bytes, 36, &key),
			 0);
	assert_memory_not_equal(&key, &other, sizeof(key));
	memcpy(whole, namespaces + 1, 32);
	memcpy(whole + 32, bytes, 36);
	assert_int_equal(crypto_generichash(digest, sizeof(digest), whole,
					    sizeof(whole), NULL, 0),
			 0);
	assert_memory_equal(&key, digest, sizeof(digest));
	assert_int_equal(kvpull_pool_key_make(namespaces, bytes, 0, &key),
			 KVPULL_EINVAL);
	assert_int_equal(
		kvpull_pool_key_make(namespaces, bytes, sizeof(bytes), &key),
		KVPULL_EINVAL);
	assert_int_equal(kvpull_pool_key_make(namespaces, bytes,
					      sizeof(bytes) - 1, &key),
			 0);
}

static void differ(const struct kvpull_reader_naming *naming, size_t *count,
		   struct kvpull_pool_namespace seen[32])
{
	size_t at;

	assert_int_equal(kvpull_pool_namespace_make(naming, &seen[*count]), 0);
	for (at = 0; at < *count; at++)
		assert_memory_not_equal(&seen[at], &seen[*count],
					sizeof(seen[at]));
	++*count;
}

UNIT_TEST(all_that_decides_the_bytes_is_in_the_namespace)
{
	struct kvpull_pool_namespace seen[32];
	struct kvpull_reader_naming naming = pool_naming();
	struct kvpull_model model = *naming.model;
	const char **needed[] = { &model.model, &model.weights, &model.dtype,
				  &model.layout, &naming.hash };
	const char **texts[] = { &model.model,   &model.revision,
				 &model.weights, &model.dtype,
				 &model.layout,  &model.attention,
				 &model.config,  &model.engine,
				 &naming.hash,   &naming.seed };
	uint32_t *numbers[] = { &model.layer_count, &model.head_count,
				&model.head_bytes, &model.replicated,
				&naming.tp_size };
	size_t count = 0;
	size_t at;

	naming.model = &model;
	differ(&naming, &count, seen);
	for (at = 0; at < sizeof(texts) / sizeof(texts[0]); at++) {
		const char *was = *texts[at];

		*texts[at] = "another";
		differ(&naming, &count, seen);
		*texts[at] = was;
	}
	for (at = 0; at < sizeof(numbers) / sizeof(numbers[0]); at++) {
		++*numbers[at];
		differ(&naming, &count, seen);
		--*numbers[at];
	}
	/* The same letters, parted elsewhere. */
	model.revision = "main1";
	model.weights = "2";
	differ(&naming, &count, seen);
	model.revision = "main";
	model.weights = "12";
	differ(&naming, &count, seen);
	for (at = 0; at < sizeof(needed) / sizeof(needed[0]); at++) {
		const char *was = *needed[at];

		*needed[at] = at % 2 ? "" : NULL;
		assert_int_equal(kvpull_pool_namespace_make(&naming, seen),
				 KVPULL_EINVAL);
		*needed[at] = was;
	}
}

UNIT_TEST_POOL(a_key_without_a_free_entry_is_named, 16, 0, KVPULL_POOL_WINDOW)
{
	struct kvpull_pool_found found;
	const uint32_t place = 2;
	uint64_t number;

	for (number = 0; number < KVPULL_POOL_WINDOW; number++)
		assert_int_equal(pool_put(world, number, (uint32_t)number), 0);
	assert_int_equal(pool_put(world, number, 9), KVPULL_EFULL);
	assert_int_equal(pool_probe(world, number, &found), 0);
	/* A present key needs no other entry, a withdrawn one is used again. */
	assert_int_equal(pool_put(world, 3, 10), 0);
	assert_int_equal(kvpull_pool_bump(world->pool, &place, 1, NULL), 0);
	assert_int_equal(pool_put(world, number, 9), 0);
	for (number = 0; number <= KVPULL_POOL_WINDOW; number++)
		assert_int_equal(pool_probe(world, number, &found),
				 number != place);
}

#define ORACLE_KEYS 2000u
#define ORACLE_CHUNKS 600u
#define ORACLE_SLOTS 200u
#define ORACLE_PLACES (ORACLE_CHUNKS + ORACLE_SLOTS)
/* There is one thread: a part of the puts shows as much under its sanitizer. */
#if defined(__SANITIZE_THREAD__)
#define ORACLE_PUTS 200000u
#else
#define ORACLE_PUTS 1000000u
#endif

/* The expected directory: the key of each place, and the places of each key. */
struct oracle {
	struct pool_world world;
	uint32_t key_of[ORACLE_PLACES];
	uint32_t place_of[ORACLE_KEYS][2]; /* in memory, in the file */
	struct kvpull_pool_key keys[ORACLE_KEYS];
	uint32_t lost;
};

static void oracle_check(const struct oracle *oracle, uint32_t key)
{
	struct kvpull_pool_found found;

	(void)pool_probe_key(&oracle->world, &oracle->keys[key], &found);
	assert_int_equal(found.memory.index, oracle->place_of[key][0]);
	assert_int_equal(found.file.index, oracle->place_of[key][1]);
	if (found.memory.index != KVPULL_NONE)
		assert_true(pool_is_valid(&oracle->world, &found.memory));
	if (found.file.index != KVPULL_NONE)
		assert_true(pool_is_valid(&oracle->world, &found.file));
}

static void oracle_bump(struct oracle *oracle, uint32_t place)
{
	const uint32_t key = oracle->key_of[place];

	assert_int_equal(kvpull_pool_bump(oracle->world.pool, &place, 1, NULL),
			 0);
	oracle->key_of[place] = KVPULL_NONE;
	if (key == KVPULL_NONE)
		return;
	oracle->place_of[key][place >= ORACLE_CHUNKS] = KVPULL_NONE;
	oracle_check(oracle, key);
}

static void oracle_put(struct oracle *oracle, uint32_t key, uint32_t place)
{
	uint32_t *now = &oracle->place_of[key][place >= ORACLE_CHUNKS];
	const int code = pool_put(&oracle->world, key, place);

	if (code) {
		assert_int_equal(code, KVPULL_EFULL);
		assert_int_equal(*now, KVPULL_NONE);
		oracle->lost++;
	} else {
		if (*now != KVPULL_NONE)
			oracle->key_of[*now] = KVPULL_NONE;
		*now = place;
		oracle->key_of[place] = key;
	}
	oracle_check(oracle, key);
}

UNIT_TEST(a_million_random_puts_are_as_a_naive_table_has_them)
{
	struct oracle *oracle = calloc(1, sizeof(*oracle));
	uint32_t left = ORACLE_PUTS;
	uint32_t at;

	assert_non_null(oracle);
	pool_world_open(&oracle->world, ORACLE_CHUNKS, ORACLE_SLOTS,
			4 * ORACLE_PLACES);
	for (at = 0; at < ORACLE_PLACES; at++)
		oracle->key_of[at] = KVPULL_NONE;
	for (at = 0; at < ORACLE_KEYS; at++) {
		oracle->keys[at] = pool_key(&oracle->world, at);
		oracle->place_of[at][0] = KVPULL_NONE;
		oracle->place_of[at][1] = KVPULL_NONE;
	}
	while (left--) {
		const uint32_t place = draw(ORACLE_PLACES);

		oracle_bump(oracle, place);
		oracle_put(oracle, draw(ORACLE_KEYS), place);
		oracle_check(oracle, draw(ORACLE_KEYS));
	}
	for (at = 0; at < ORACLE_KEYS; at++)
		oracle_check(oracle, at);
	/* Withdrawn entries are used again: it never silts up. */
	assert_in_range(oracle->lost, 0, ORACLE_PUTS / 10000);
	pool_world_close(&oracle->world);
	free(oracle);
}

#define LOAD_CHUNKS 100000u

/* Each chunk with a key of its own, then all replaced once, at random. */
static uint32_t keys_lost(uint32_t per_mille)
{
	struct pool_world world;
	uint32_t lost = 0;
	uint32_t number;

	pool_world_open(&world, LOAD_CHUNKS, 0,
			(uint32_t)((uint64_t)LOAD_CHUNKS * 1000 / per_mille));
	for (number = 0; number < 2 * LOAD_CHUNKS; number++) {
		const uint32_t place =
			number < LOAD_CHUNKS ? number : draw(LOAD_CHUNKS);

		assert_int_equal(kvpull_pool_bump(world.pool, &place, 1, NULL),
				 0);
		lost += pool_put(&world, number, place) == KVPULL_EFULL;
	}
	pool_world_close(&world);
	return lost;
}

UNIT_TEST(four_entries_a_chunk_lose_next_to_nothing)
{
	const uint32_t quarter = keys_lost(250);
	const uint32_t half = keys_lost(500);

	print_message(
		"of %u puts EFULL: %u at 4 entries a chunk, %u at 3, %u at 2\n",
		2 * LOAD_CHUNKS, quarter, keys_lost(333), half);
	assert_in_range(quarter, 0, 20);
	assert_in_range(half, 0, 2 * LOAD_CHUNKS / 100);
}

#define RACE_KEYS 6u
#define RACE_CHUNKS 3u
#define RACE_WORDS 32u
#define RACE_PUTS 200000u

struct race {
	struct pool_world world;
	struct kvpull_pool_key keys[RACE_KEYS];
	_Atomic uint64_t bytes[RACE_CHUNKS][RACE_WORDS];
	_Atomic uint32_t is_over;
	uint32_t believed;
	uint32_t refused;
	uint32_t wrong;
};

/* Whole only if each word is the key's; what is refused may be anything. */
static void race_read(struct race *race, uint32_t key)
{
	struct kvpull_pool_found found;
	uint32_t at;
	int is_wrong = 0;

	if (!pool_probe_key(&race->world, &race->keys[key], &found))
		return;
	for (at = 0; at < RACE_WORDS; at++)
		is_wrong |= atomic_load_explicit(
				    &race->bytes[found.memory.index][at],
				    memory_order_acquire) != key;
	if (!pool_is_valid(&race->world, &found.memory)) {
		race->refused++;
		return;
	}
	race->believed++;
	race->wrong += (uint32_t)is_wrong;
}

static void *race_reader(void *context)
{
	struct race *race = context;
	uint32_t key = 0;

	while (!atomic_load_explicit(&race->is_over, memory_order_acquire))
		race_read(race, key++ % RACE_KEYS);
	return NULL;
}

UNIT_TEST(a_racing_reader_believes_no_wrong_byte)
{
	static struct race race;
	pthread_t thread;
	uint32_t left = RACE_PUTS;
	uint32_t at;

	pool_world_open(&race.world, RACE_CHUNKS, 0, KVPULL_POOL_WINDOW);
	for (at = 0; at < RACE_KEYS; at++)
		race.keys[at] = pool_key(&race.world, at);
	assert_int_equal(pthread_create(&thread, NULL, race_reader, &race), 0);
	while (left--) {
		const uint32_t place = draw(RACE_CHUNKS);
		const uint32_t key = draw(RACE_KEYS);

		assert_int_equal(
			kvpull_pool_bump(race.world.pool, &place, 1, NULL), 0);
		for (at = 0; at < RACE_WORDS; at++)
			atomic_store_explicit(&race.bytes[place][at], key,
					      memory_order_relaxed);
		assert_int_equal(pool_put(&race.world, key, place), 0);
	}
	atomic_store_explicit(&race.is_over, 1, memory_order_release);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(race.wrong, 0);
	print_message("%u reads believed, %u refused\n", race.believed,
		      race.refused);
	pool_world_close(&race.world);
}
