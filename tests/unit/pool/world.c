/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/pool/world.h"

#include "plugin/reads/judge.h"

struct kvpull_reader_naming pool_naming(void)
{
	static const struct kvpull_model model = {
		.struct_size = sizeof(model),
		.model = "llama",
		.revision = "main",
		.weights = "1",
		.dtype = "float16",
		.layout = "LBHNC",
		.attention = "flash",
		.layer_count = 2,
		.head_count = 8,
		.head_bytes = 256,
		.config = "00ff",
		.engine = "vllm 0.32",
	};

	return (struct kvpull_reader_naming){
		.model = &model, .hash = "sha256", .seed = "0", .tp_size = 1
	};
}

void pool_world_open(struct pool_world *world, uint32_t chunk_count,
		     uint32_t slot_count, uint32_t entry_count)
{
	static const struct kvpull_log silent;
	const struct kvpull_reader_naming naming = pool_naming();
	struct kvpull_pool_params *params = &world->params;

	memset(world, 0, sizeof(*world));
	kvpull_arena_init(&world->arena, &silent);
	params->share = (struct kvpull_pool_share){
		.incarnation = POOL_INCARNATION,
		.chunk_count = chunk_count,
		.slot_count = slot_count,
		.entry_count = entry_count,
		.secret = { 7, 6, 5, 4, 3, 2, 1 },
	};
	assert_int_equal(
		kvpull_pool_namespace_make(&naming, &world->namespace_digest),
		0);
	params->entries = kvpull_arena_take(&world->arena, entry_count,
					    sizeof(*params->entries));
	params->guards =
		kvpull_arena_take(&world->arena, chunk_count + slot_count,
				  sizeof(*params->guards));
	world->pool = kvpull_pool_open(params, &world->arena);
	assert_non_null(world->pool);
	kvpull_arena_seal(&world->arena);
}

void pool_world_close(struct pool_world *world)
{
	kvpull_pool_close(world->pool);
	kvpull_arena_fini(&world->arena);
}

struct kvpull_pool_key pool_key(const struct pool_world *world, uint64_t number)
{
	uint8_t bytes[36] = { 0x5a }; /* as many as vLLM's */
	struct kvpull_pool_key key;

	memcpy(bytes + 1, &number, sizeof(number));
	assert_int_equal(kvpull_pool_key_make(&world->namespace_digest, bytes,
					      sizeof(bytes), &key),
			 0);
	return key;
}

int pool_put_under(struct pool_world *world, uint64_t number, uint32_t place,
		   uint64_t generation)
{
	const struct kvpull_pool_put put = {
		.key = pool_key(world, number),
		.place = place,
		.generation = generation,
		.epoch = kvpull_pool_epoch(world->pool),
	};

	return kvpull_pool_put(world->pool, &put);
}

int pool_put(struct pool_world *world, uint64_t number, uint32_t place)
{
	return pool_put_under(world, number, place,
			      kvpull_pool_generation(world->pool, place));
}

/* A read of the window, by eight bytes as they come. */
static void pool_window(const struct pool_world *world,
			const struct kvpull_pool_key *key,
			uint8_t window[KVPULL_POOL_WINDOW_BYTES])
{
	const uint32_t first = kvpull_pool_window(&world->params.share, key);
	uint32_t entry;
	uint32_t at;

	for (entry = 0; entry < KVPULL_POOL_WINDOW; entry++)
		for (at = 0; at < KVPULL_POOL_WORDS; at++) {
			const uint64_t word = atomic_load_explicit(
				&world->params.entries[first + entry].words[at],
				memory_order_acquire);

			memcpy(window + (entry * KVPULL_POOL_WORDS + at) *
						sizeof(word),
			       &word, sizeof(word));
		}
}

uint32_t pool_probe_key(const struct pool_world *world,
			const struct kvpull_pool_key *key,
			struct kvpull_pool_found *found)
{
	_Alignas(uint64_t) uint8_t window[KVPULL_POOL_WINDOW_BYTES];

	pool_window(world, key, window);
	return kvpull_pool_judge(&world->params.share, key,
				 (const void *)window, found);
}

uint32_t pool_probe(const struct pool_world *world, uint64_t number,
		    struct kvpull_pool_found *found)
{
	const struct kvpull_pool_key key = pool_key(world, number);

	return pool_probe_key(world, &key, found);
}

int pool_is_valid(const struct pool_world *world,
		  const struct kvpull_pool_place *place)
{
	const struct kvpull_revocation_value guard =
		kvpull_revocation_read(&world->params.guards[place->index]);

	return !kvpull_guard_judge(KVPULL_GUARD_CHUNK, &guard, POOL_INCARNATION,
				   place->generation);
}
