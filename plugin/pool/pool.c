// SPDX-License-Identifier: Apache-2.0
#include "plugin/pool/pool.h"

#include "base/transport.h"

struct place {
	uint64_t key;     /* a word of the one that it was put with, or 0 */
	uint32_t entry;   /* that lists it, or KVPULL_NONE */
	uint16_t writing; /* a write has begun and was not seen to end */
	uint16_t is_used; /* written, put or read under the guard's generation */
};

struct kvpull_pool {
	struct kvpull_pool_directory directory;
	struct kvpull_revocation_entry *guards; /* [place_count] */
	struct place *places;                   /* [place_count] */
	uint64_t epoch;
	uint32_t place_count;
	uint32_t reserved;
};

struct kvpull_pool *kvpull_pool_open(const struct kvpull_pool_params *params,
				     struct kvpull_arena *arena)
{
	struct kvpull_pool *pool = kvpull_arena_take(arena, 1, sizeof(*pool));
	const uint32_t place_count =
		params->share.chunk_count + params->share.slot_count;
	uint32_t at;

	if (!pool ||
	    kvpull_pool_directory_init(&pool->directory, &params->share,
				       params->entries, arena))
		return NULL;
	KVPULL_ARENA_TAKE(arena, pool->places, place_count);
	if (!pool->places)
		return NULL;
	pool->guards = params->guards;
	pool->place_count = place_count;
	pool->epoch = 1;
	for (at = 0; at < place_count; at++) {
		pool->places[at].entry = KVPULL_NONE;
		atomic_store_explicit(&pool->guards[at].incarnation,
				      params->share.incarnation,
				      memory_order_relaxed);
	}
	kvpull_revocation_fence();
	return pool;
}

uint64_t kvpull_pool_epoch(const struct kvpull_pool *pool)
{
	return pool->epoch;
}

uint64_t kvpull_pool_generation(const struct kvpull_pool *pool, uint32_t place)
{
	if (place >= pool->place_count)
		return 0;
	return atomic_load_explicit(&pool->guards[place].revoked,
				    memory_order_relaxed) +
	       1;
}

int kvpull_pool_write_begin(struct kvpull_pool *pool, uint32_t place)
{
	if (place >= pool->place_count)
		return KVPULL_EINVAL;
	if (pool->places[place].writing)
		return KVPULL_EAGAIN;
	if (pool->places[place].is_used)
		return KVPULL_EINVAL;
	pool->places[place].is_used = 1;
	pool->places[place].writing = 1;
	return 0;
}

int kvpull_pool_write_end(struct kvpull_pool *pool, uint32_t place)
{
	if (place >= pool->place_count || !pool->places[place].writing)
		return KVPULL_EINVAL;
	pool->places[place].writing = 0;
	return 0;
}

/* Where the place is to be listed; its key has no other place of this kind. */
static uint32_t entry_take(struct kvpull_pool *pool,
			   const struct kvpull_pool_key *key, uint32_t place)
{
	struct kvpull_pool_directory *directory = &pool->directory;
	const uint32_t entry =
		kvpull_pool_directory_find(directory, key, place);

	if (entry == KVPULL_NONE)
		return kvpull_pool_directory_free(directory, key);
	pool->places[kvpull_pool_directory_place(directory, entry)].entry =
		KVPULL_NONE;
	return entry;
}

int kvpull_pool_is_writing(const struct kvpull_pool *pool, uint32_t place)
{
	return place < pool->place_count && pool->places[place].writing;
}

uint32_t kvpull_pool_find(const struct kvpull_pool *pool,
			  const struct kvpull_pool_key *key, uint32_t place)
{
	const uint32_t entry =
		kvpull_pool_directory_find(&pool->directory, key, place);

	return entry == KVPULL_NONE ?
		       KVPULL_NONE :
		       kvpull_pool_directory_place(&pool->directory, entry);
}

/* Keys are digests: one word tells them apart. */
static uint64_t word_of(const struct kvpull_pool_key *key)
{
	return key->words[0] ? key->words[0] : 1;
}

int kvpull_pool_check(const struct kvpull_pool *pool,
		      const struct kvpull_pool_put *put)
{
	const struct place *place;

	if (put->place >= pool->place_count)
		return KVPULL_EINVAL;
	place = &pool->places[put->place];
	if (put->epoch != pool->epoch ||
	    put->generation != kvpull_pool_generation(pool, put->place))
		return KVPULL_ESTALE;
	if (kvpull_pool_is_writing(pool, put->place))
		return KVPULL_EAGAIN;
	/* Listed or not: its key may have another place by now. */
	return place->key && place->key != word_of(&put->key) ? KVPULL_EINVAL :
								0;
}

void kvpull_pool_use(struct kvpull_pool *pool,
		     const struct kvpull_pool_put *put)
{
	if (!kvpull_pool_check(pool, put))
		pool->places[put->place].is_used = 1;
}

int kvpull_pool_put(struct kvpull_pool *pool, const struct kvpull_pool_put *put)
{
	const struct kvpull_pool_place listed = { .index = put->place,
						  .generation =
							  put->generation };
	const int code = kvpull_pool_check(pool, put);
	struct place *place;
	uint32_t entry;

	if (code)
		return code;
	place = &pool->places[put->place];
	if (place->entry != KVPULL_NONE)
		return 0;
	entry = entry_take(pool, &put->key, put->place);
	if (entry == KVPULL_NONE)
		return KVPULL_EFULL;
	kvpull_pool_directory_write(&pool->directory, entry, &put->key,
				    &listed);
	place->entry = entry;
	place->key = word_of(&put->key);
	place->is_used = 1;
	return 0;
}

/* Nothing is promised before the fence. */
static uint64_t place_bump(struct kvpull_pool *pool, uint32_t index)
{
	const uint64_t generation = kvpull_pool_generation(pool, index);
	struct place *place = &pool->places[index];

	if (place->entry != KVPULL_NONE)
		kvpull_pool_directory_clear(&pool->directory, place->entry);
	place->entry = KVPULL_NONE;
	place->key = 0;
	place->is_used = 0;
	kvpull_revocation_write(&pool->guards[index], generation);
	return generation + 1;
}

int kvpull_pool_bump(struct kvpull_pool *pool, const uint32_t *places,
		     uint32_t count, uint64_t *generations)
{
	uint32_t at;

	for (at = 0; at < count; at++)
		if (places[at] >= pool->place_count)
			return KVPULL_EINVAL;
	for (at = 0; at < count; at++) {
		const uint64_t generation = place_bump(pool, places[at]);

		if (generations)
			generations[at] = generation;
	}
	kvpull_revocation_fence();
	return 0;
}

void kvpull_pool_bump_all(struct kvpull_pool *pool)
{
	uint32_t at;

	for (at = 0; at < pool->place_count; at++)
		(void)place_bump(pool, at);
	kvpull_revocation_fence();
	pool->epoch++;
}

void kvpull_pool_close(struct kvpull_pool *pool)
{
	uint32_t at;

	for (at = 0; at < pool->place_count; at++) {
		(void)place_bump(pool, at);
		kvpull_revocation_close(&pool->guards[at]);
	}
	kvpull_revocation_fence();
}
