/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An owner's host. By the rules: it writes only between write_begin() and
 * write_end(), and puts the key whose bytes it wrote under what it was told
 * then, however long ago. A write goes on after its chunk was bumped.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/pool.h"

#define WORDS (POOL_CHUNK_BYTES / sizeof(uint64_t))

uint64_t pool_word(uint64_t key, uint32_t weights, uint32_t at)
{
	return api_mix(key << 32 | (uint64_t)weights << 16 | at);
}

void pool_share(struct pool_handle *handle)
{
	struct kvpull_reader_share own = { .struct_size = sizeof(own),
					   .chunk_bytes = POOL_CHUNK_BYTES,
					   .chunk_count = POOL_CHUNKS };
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct api_struct given;
	size_t byte_count;
	int code;

	if (api_chance(500)) /* so few that keys find no place */
		own.entry_count = 8 + (uint32_t)api_below(16);
	if (api_chance(700)) {
		own.slot_folder = api_chance(500) ? "/dev/shm" : "/var/tmp";
		own.slot_count = POOL_SLOTS;
	}
	given = api_struct_make(&own, sizeof(own));
	code = pool_world->ops->share(handle->reader, given.given, &memory,
				      NULL);
	free(given.given);
	if (given.is_bad || handle->memory || !own.chunk_count ||
	    !own.chunk_bytes)
		api_expect(code == KVPULL_EINVAL);
	if (code)
		return;
	handle->memory = memory.base;
	handle->is_shared = 1;
	handle->has_slots = own.slot_count != 0;
	api_expect(!pool_world->ops->address(handle->reader, handle->address,
					     sizeof(handle->address),
					     &byte_count));
}

void pool_unshare(struct pool_handle *handle)
{
	const int code = pool_world->ops->unshare(handle->reader);

	api_expect(code == (handle->is_shared ? 0 : KVPULL_EINVAL));
	handle->is_shared = 0;
}

static struct pool_chunk *chunk_any(struct pool_handle *handle, uint32_t *at)
{
	*at = (uint32_t)api_below(POOL_CHUNKS);
	return &handle->chunks[*at];
}

static void words_write(struct pool_handle *handle, uint32_t at, uint32_t first,
			uint32_t count)
{
	const struct pool_chunk *chunk = &handle->chunks[at];
	uint64_t *words = (uint64_t *)(void *)(handle->memory +
					       (size_t)at * POOL_CHUNK_BYTES);

	for (; count; count--, first++)
		words[first] = pool_word(chunk->key, chunk->weights, first);
}

void pool_write_begin(struct pool_handle *handle)
{
	const struct kvpull_reader_ops *ops = pool_world->ops;
	uint64_t generation = 0;
	uint32_t at;
	struct pool_chunk *chunk = chunk_any(handle, &at);
	int code = ops->guard_bump(handle->reader, &at, 1, &generation);

	if (!handle->is_shared) {
		api_expect(code == KVPULL_EINVAL);
		return;
	}
	api_expect(!code);
	code = ops->write_begin(handle->reader, at);
	api_expect(code == (chunk->is_writing ? KVPULL_EAGAIN : 0));
	if (code)
		return;
	chunk->key = 1 + api_below(POOL_KEYS);
	if (!handle->computed_epoch || api_chance(700)) {
		handle->computed_weights = handle->weights;
		api_expect(
			!ops->epoch(handle->reader, &handle->computed_epoch));
	}
	chunk->weights = handle->computed_weights;
	chunk->epoch = handle->computed_epoch;
	chunk->is_writing = 1;
	chunk->generation = generation;
	words_write(handle, at, 0, (uint32_t)api_below(WORDS));
}

void pool_write_on(struct pool_handle *handle)
{
	uint32_t at;
	const struct pool_chunk *chunk = chunk_any(handle, &at);
	const uint32_t first = (uint32_t)api_below(WORDS);

	if (handle->memory && chunk->is_writing)
		words_write(handle, at, first, (uint32_t)WORDS - first);
}

/*
 * Puts the chunk under the key that was written there last, whenever that was.
 */
static void chunk_put(struct pool_handle *handle, uint32_t at)
{
	const struct pool_chunk *chunk = &handle->chunks[at];
	uint8_t bytes[8];
	struct kvpull_reader_put own = { .struct_size = sizeof(own),
					 .key = { bytes, sizeof(bytes) },
					 .chunk = at,
					 .generation = chunk->generation,
					 .epoch = chunk->epoch };
	uint64_t generation = 0;
	uint64_t epoch = 0;
	struct api_struct given;
	int code;

	if (!chunk->key)
		return;
	memcpy(bytes, &chunk->key, sizeof(bytes));
	if (handle->is_shared) {
		api_expect(!pool_world->ops->generation(handle->reader, at,
							&generation));
		api_expect(!pool_world->ops->epoch(handle->reader, &epoch));
	}
	given = api_struct_make(&own, sizeof(own));
	code = pool_world->ops->put(handle->reader, given.given);
	free(given.given);
	if (given.is_bad || !handle->is_shared) {
		api_expect(code == KVPULL_EINVAL);
		return;
	}
	if (given.known_bytes < sizeof(own)) {
		api_expect(code == KVPULL_EINVAL || code == KVPULL_ESTALE);
		return;
	}
	if (epoch != chunk->epoch || generation != chunk->generation)
		api_expect(code == KVPULL_ESTALE);
	else if (chunk->is_writing)
		api_expect(code == KVPULL_EAGAIN);
	else
		api_expect(!code || code == KVPULL_EFULL);
	pool_counts.puts += !code;
}

void pool_write_end(struct pool_handle *handle)
{
	uint32_t at;
	struct pool_chunk *chunk = chunk_any(handle, &at);
	uint32_t tries;
	int code;

	for (tries = 0; tries < 8 && !chunk->is_writing; tries++)
		chunk = chunk_any(handle, &at);
	if (chunk->is_writing)
		words_write(handle, at, 0, WORDS);
	code = pool_world->ops->write_end(handle->reader, at);
	if (!handle->is_shared) {
		api_expect(code == KVPULL_EINVAL);
		return;
	}
	api_expect(code == (chunk->is_writing ? 0 : KVPULL_EINVAL));
	chunk->is_writing = 0;
	if (!code && api_chance(800))
		chunk_put(handle, at);
}

void pool_put(struct pool_handle *handle)
{
	chunk_put(handle, (uint32_t)api_below(POOL_CHUNKS));
}
void pool_bump(struct pool_handle *handle)
{
	const uint32_t count = (uint32_t)api_below(POOL_CHUNKS + 1);
	uint64_t *generations = malloc(sizeof(uint64_t) * (count + 1));
	uint32_t *chunks = malloc(sizeof(uint32_t) * (count + 1));
	uint32_t bad = !handle->is_shared;
	uint32_t at;
	int code;

	api_expect(generations && chunks);
	for (at = 0; at < count; at++) {
		chunks[at] = api_chance(990) ?
				     (uint32_t)api_below(POOL_CHUNKS) :
				     api_odd_u32();
		bad |= chunks[at] >= POOL_CHUNKS;
	}
	code = pool_world->ops->guard_bump(handle->reader, chunks, count,
					   api_chance(800) ? generations :
							     NULL);
	api_expect(code == (bad ? KVPULL_EINVAL : 0));
	free(generations);
	free(chunks);
}

void pool_bump_all(struct pool_handle *handle)
{
	const uint32_t weights = (uint32_t)api_below(POOL_WEIGHTS);
	const int is_new = api_chance(600);
	struct kvpull_model model;
	struct kvpull_reader_naming naming = pool_naming_of(&model, weights);
	int code;

	if (api_chance(50))
		naming.hash = NULL;
	code = pool_world->ops->guard_bump_all(handle->reader,
					       is_new ? &naming : NULL, NULL);
	api_expect(code == (is_new && !naming.hash ? KVPULL_EINVAL : 0));
	if (is_new && !code)
		handle->weights = weights;
}

/* Returns, in most cases, a chunk that could be put. */
static uint32_t chunk_to_spill(const struct pool_handle *handle)
{
	uint32_t tries;
	uint32_t at = 0;

	for (tries = 0; tries < 12; tries++) {
		const struct pool_chunk *chunk;

		at = (uint32_t)api_below(POOL_CHUNKS);
		chunk = &handle->chunks[at];
		if (chunk->key && !chunk->is_writing &&
		    chunk->epoch == handle->computed_epoch)
			break;
	}
	return at;
}

/* As chunk_put(): what was written there last, complete or not, old or not. */
static uint32_t puts_draw(const struct pool_handle *handle, uint8_t *puts,
			  size_t put_bytes, uint64_t *keys, uint32_t count)
{
	uint32_t bad = 0;
	uint32_t at;

	for (at = 0; at < count; at++) {
		const uint32_t chunk = chunk_to_spill(handle);
		const struct pool_chunk *is = &handle->chunks[chunk];
		struct kvpull_reader_put put = {
			.struct_size = put_bytes,
			.key = { &keys[at], sizeof(keys[at]) },
			.chunk = chunk,
			.generation = is->generation,
			.epoch = is->epoch,
		};

		keys[at] = is->key;
		if (!is->key)
			put.generation = UINT64_MAX;
		if (api_chance(5))
			put.chunk = POOL_CHUNKS + (uint32_t)api_below(9);
		if (api_chance(5))
			put.key.bytes = NULL;
		bad |= put.chunk >= POOL_CHUNKS || !put.key.bytes;
		memcpy(puts + at * put_bytes, &put, sizeof(put));
	}
	return bad;
}

void pool_spill(struct pool_handle *handle)
{
	const size_t put_bytes =
		sizeof(struct kvpull_reader_put) + 8 * api_below(3);
	struct pool_ask *ask = pool_ask_of(handle, 0);
	struct kvpull_reader_spill own = { .struct_size = sizeof(own),
					   .put_bytes = put_bytes };
	uint64_t keys[POOL_ITEMS];
	struct api_struct given;
	uint64_t id = 0;
	uint32_t is_bad;
	uint8_t *puts;
	int code;

	if (!ask)
		return;
	memset(ask, 0, sizeof(*ask));
	ask->is_spill = 1;
	ask->count = (uint32_t)api_below(api_chance(900) ? 4 : POOL_ITEMS);
	ask->codes = malloc(sizeof(int32_t) * (ask->count + 1));
	puts = calloc(ask->count + 1, put_bytes);
	api_expect(ask->codes && puts);
	memset(ask->codes, 0xa5, sizeof(int32_t) * ask->count);
	is_bad = puts_draw(handle, puts, put_bytes, keys, ask->count);
	own.puts = (const void *)puts;
	own.put_count = ask->count;
	own.codes = ask->codes;
	own.deadline_ns =
		api_chance(700) ? 0 : api_now_ns() + api_below(API_NS_PER_MS);
	given = api_struct_make(&own, sizeof(own));
	code = pool_world->ops->spill(handle->reader, given.given, &id);
	pool_ask_begun(ask, code,
		       given.is_bad || is_bad || !handle->is_shared ||
			       !handle->has_slots || !own.put_count,
		       id);
	free(given.given);
	free(puts);
}

void pool_spill_ended(const struct pool_ask *ask,
		      const struct kvpull_reader_record *record)
{
	uint32_t good = 0;
	uint32_t at;

	for (at = 0; at < ask->count; at++) {
		api_expect(ask->codes[at] <= 0 && ask->codes[at] > -1000);
		good += !ask->codes[at];
	}
	api_expect(good == record->count);
	api_expect((good == ask->count) == !record->code);
	pool_counts.spilled += good;
}

void pool_owner_odd(struct pool_handle *handle)
{
	const struct kvpull_reader_ops *ops = pool_world->ops;
	const uint32_t chunk = api_odd_u32();
	const size_t room = (size_t)api_below(64);
	char *text = malloc(room + 1);
	uint64_t value;
	size_t byte_count;
	int code;

	api_expect(text != NULL);
	code = ops->address(handle->reader, text, room, &byte_count);
	api_expect(handle->is_shared ? !code || code == KVPULL_ETOOSMALL :
				       code == KVPULL_EINVAL);
	free(text);
	code = ops->generation(handle->reader, chunk, &value);
	api_expect(!code == (handle->is_shared && chunk < POOL_CHUNKS));
	api_expect(ops->write_end(NULL, 0) == KVPULL_EINVAL);
	if (chunk >= POOL_CHUNKS) {
		api_expect(ops->write_begin(handle->reader, chunk) ==
			   KVPULL_EINVAL);
		api_expect(ops->write_end(handle->reader, chunk) ==
			   KVPULL_EINVAL);
	}
	api_expect(ops->error_text((int)api_odd_u32()) != NULL);
}
