/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader's host, and the oracle: a piece that is good has the bytes of the key
 * that was asked for, under the weights that the reader has; each ask that was
 * begun ends once; arrays are as long as the call was told, in blocks of their
 * own, so that the sanitizer sees what is written beside them.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/pool.h"

uint32_t pool_open(const struct pool_handle *handle)
{
	uint32_t count = 0;
	uint32_t at;

	for (at = 0; at < KVPULL_READER_OPEN_MAX; at++)
		count += handle->asks[at].id != 0;
	return count;
}

static void ask_free(struct pool_ask *ask)
{
	free(ask->places);
	free(ask->codes);
	memset(ask, 0, sizeof(*ask));
}

void pool_asks_drop(struct pool_handle *handle)
{
	uint32_t at;

	for (at = 0; at < KVPULL_READER_OPEN_MAX; at++)
		ask_free(&handle->asks[at]);
}

struct pool_ask *pool_ask_of(struct pool_handle *handle, uint64_t id)
{
	uint32_t at;

	for (at = 0; at < KVPULL_READER_OPEN_MAX; at++)
		if (handle->asks[at].id == id)
			return &handle->asks[at];
	return NULL;
}

void pool_peer_add(struct pool_handle *handle)
{
	const struct pool_handle *other =
		&pool_world->handles[api_below(POOL_HANDLES)];
	struct pool_peer *peer = &handle->peers[api_below(POOL_PEERS)];
	const int is_false = api_chance(250);
	const char *address = is_false ? pool_false_address() : other->address;
	uint32_t number;
	int code;

	if (api_chance(30)) {
		code = pool_world->ops->peer_add(
			handle->reader,
			api_chance(500) ? "shm:nobody" : "verbs:1.2.3.4",
			&number);
		api_expect(code < 0);
		return;
	}
	if (peer->is_used || !*address)
		return;
	code = pool_world->ops->peer_add(handle->reader, address, &number);
	api_expect(!code || code == KVPULL_EFULL || code == KVPULL_EROUTE ||
		   code == KVPULL_EAGAIN);
	if (code)
		return;
	*peer = (struct pool_peer){ 1, (uint32_t)is_false, number };
}

void pool_peer_remove(struct pool_handle *handle)
{
	struct pool_peer *peer = &handle->peers[api_below(POOL_PEERS)];

	if (!peer->is_used)
		return;
	api_expect(!pool_world->ops->peer_remove(handle->reader, peer->number));
	api_expect(pool_world->ops->peer_remove(handle->reader, peer->number) ==
		   KVPULL_EINVAL);
	peer->is_used = 0;
}

/* An ask that has a place to be remembered in; NULL: all are taken. */
static struct pool_ask *ask_take(struct pool_handle *handle,
				 const struct pool_peer **peer)
{
	struct pool_ask *ask = pool_ask_of(handle, 0);

	*peer = &handle->peers[api_below(POOL_PEERS)];
	if (!ask || !(*peer)->is_used)
		return NULL;
	memset(ask, 0, sizeof(*ask));
	ask->peer = (*peer)->number;
	ask->is_false = (*peer)->is_false;
	ask->weights = handle->weights;
	ask->count = 1 + (uint32_t)api_below(POOL_ITEMS);
	if (api_chance(20))
		ask->count = 250 + (uint32_t)api_below(10);
	return ask;
}

static uint64_t deadline_draw(void)
{
	return api_chance(700) ? 0 : api_now_ns() + api_below(API_NS_PER_MS);
}

/* Judges the answer of a call that begins something. */
void pool_ask_begun(struct pool_ask *ask, int code, int is_bad, uint64_t id)
{
	if (is_bad)
		api_expect(code == KVPULL_EINVAL);
	if (!code) {
		ask->id = id;
		return;
	}
	api_expect(code < 0);
	ask_free(ask);
}

void pool_probe(struct pool_handle *handle)
{
	const struct pool_peer *peer;
	struct pool_ask *ask = ask_take(handle, &peer);
	const size_t key_bytes = 16 + 8 * api_below(3);
	uint64_t numbers[KVPULL_READER_ITEMS_MAX + 8];
	struct kvpull_reader_probe own = { .struct_size = sizeof(own) };
	struct api_struct given;
	uint8_t *keys;
	uint64_t id = 0;
	uint32_t at;
	int code;

	if (!ask)
		return;
	ask->is_probe = 1;
	ask->place_bytes = 16 + 8 * api_below(4);
	ask->places = malloc(ask->place_bytes * ask->count);
	keys = calloc(ask->count, key_bytes);
	api_expect(ask->places && keys);
	memset(ask->places, 0xa5, ask->place_bytes * ask->count);
	for (at = 0; at < ask->count; at++) {
		const struct kvpull_reader_key key = { &numbers[at], 8 };

		numbers[at] = 1 + api_below(POOL_KEYS + 4);
		memcpy(keys + at * key_bytes, &key, sizeof(key));
		if (at < KVPULL_READER_ITEMS_MAX)
			ask->finds[at].key = numbers[at];
	}
	own.peer = ask->peer;
	own.key_count = ask->count;
	own.keys = (const void *)keys;
	own.key_bytes = key_bytes;
	own.places = (void *)ask->places;
	own.place_bytes = ask->place_bytes;
	own.deadline_ns = deadline_draw();
	given = api_struct_make(&own, sizeof(own));
	code = pool_world->ops->probe(handle->reader, given.given, &id);
	pool_ask_begun(ask, code,
		       given.is_bad || own.key_count > KVPULL_READER_ITEMS_MAX,
		       id);
	/* A struct that was cut says another peer. */
	if (!code && own.peer != peer->number)
		ask->is_false = 1;
	free(given.given);
	free(keys);
}

/* Pieces of what this peer was found to have, and seldom of anything. */
static void pieces_draw(struct pool_handle *handle, struct pool_ask *ask,
			uint8_t *pieces, size_t piece_bytes,
			uint64_t *incarnation)
{
	const uint32_t in_file = (uint32_t)api_chance(400);
	uint32_t at;

	*incarnation = 0;
	for (at = 0; at < ask->count; at++) {
		const uint32_t first = (uint32_t)api_below(POOL_FINDS);
		const struct pool_find *find = &handle->finds[first];
		struct kvpull_reader_piece piece = { 0 };
		uint32_t tries;

		for (tries = 0; tries < POOL_FINDS; tries++) {
			if (find->key && find->peer == ask->peer &&
			    (find->chunk >= POOL_CHUNKS) == in_file &&
			    (!*incarnation ||
			     find->incarnation == *incarnation))
				break;
			find = &handle->finds[(first + tries) % POOL_FINDS];
		}
		if (!*incarnation)
			*incarnation = find->incarnation;
		piece.chunk = find->chunk;
		piece.generation = find->generation;
		piece.block = (uint32_t)api_below(POOL_BLOCKS);
		if (at < KVPULL_READER_ITEMS_MAX) {
			ask->finds[at] = *find;
			ask->blocks[at] = piece.block;
		}
		if (api_chance(10)) {
			piece.chunk = api_odd_u32();
			piece.block = api_odd_u32();
			if (at < KVPULL_READER_ITEMS_MAX)
				ask->finds[at].key = UINT64_MAX;
		}
		memcpy(pieces + at * piece_bytes, &piece, sizeof(piece));
	}
	/* A place of another life is nobody's place in this one. */
	for (at = 0; at < ask->count && at < KVPULL_READER_ITEMS_MAX; at++)
		if (ask->finds[at].incarnation != *incarnation)
			ask->finds[at].key = UINT64_MAX;
}

void pool_read(struct pool_handle *handle)
{
	const struct pool_peer *peer;
	struct pool_ask *ask = ask_take(handle, &peer);
	const size_t piece_bytes = 16 + 8 * api_below(3);
	struct kvpull_reader_read own = { .struct_size = sizeof(own) };
	struct api_struct given;
	uint8_t *pieces;
	uint64_t id = 0;
	int code;

	if (!ask)
		return;
	/* Few, so that most of their blocks differ. */
	if (ask->count < KVPULL_READER_ITEMS_MAX / 2)
		ask->count = 1 + (ask->count - 1) % 4;
	ask->codes = malloc(sizeof(int32_t) * ask->count);
	pieces = calloc(ask->count, piece_bytes);
	api_expect(ask->codes && pieces);
	memset(ask->codes, 0xa5, sizeof(int32_t) * ask->count);
	pieces_draw(handle, ask, pieces, piece_bytes, &own.incarnation);
	own.peer = ask->peer;
	own.local = api_chance(990) ? handle->local : api_odd_u32();
	own.pieces = (const void *)pieces;
	own.piece_bytes = piece_bytes;
	own.codes = ask->codes;
	own.piece_count = ask->count;
	own.deadline_ns = deadline_draw();
	given = api_struct_make(&own, sizeof(own));
	code = pool_world->ops->read(handle->reader, given.given, &id);
	pool_ask_begun(
		ask, code,
		given.is_bad || own.piece_count > KVPULL_READER_ITEMS_MAX, id);
	if (!code && own.peer != peer->number)
		ask->is_false = 1;
	free(given.given);
	free(pieces);
}

void pool_cancel(struct pool_handle *handle)
{
	const struct pool_ask *ask =
		&handle->asks[api_below(KVPULL_READER_OPEN_MAX)];
	const uint64_t id = ask->id ? ask->id : api_odd_u32();
	const int code = pool_world->ops->cancel(handle->reader, id);

	api_expect(!code || code == KVPULL_EINVAL);
	/* An ask that was never begun cannot be cancelled. */
	api_expect(code || ask->id);
}

static void probe_ended(struct pool_handle *handle, const struct pool_ask *ask,
			const struct kvpull_reader_record *record)
{
	uint32_t found = 0;
	uint32_t at;

	for (at = 0; at < ask->count; at++) {
		struct kvpull_reader_place place;
		struct pool_find *find;

		memcpy(&place, ask->places + at * ask->place_bytes,
		       sizeof(place));
		if (place.chunk == KVPULL_READER_NONE)
			continue;
		found++;
		api_expect(ask->is_false ||
			   place.chunk < POOL_CHUNKS + POOL_SLOTS);
		api_expect(ask->is_false ||
			   place.in_file == (place.chunk >= POOL_CHUNKS));
		find = &handle->finds[handle->find_next++ % POOL_FINDS];
		*find = (struct pool_find){
			.key = ask->is_false ? UINT64_MAX : ask->finds[at].key,
			.incarnation = record->incarnation,
			.generation = place.generation,
			.weights = ask->weights,
			.peer = ask->peer,
			.chunk = place.chunk,
		};
	}
	api_expect(found == record->count);
	api_expect(!record->code || !found);
	pool_counts.found += found;
}

static void piece_judge(const struct pool_handle *handle,
			const struct pool_ask *ask, uint32_t piece)
{
	const struct pool_find *find = &ask->finds[piece];
	const uint64_t *words =
		(const uint64_t *)(const void *)(handle->blocks +
						 (size_t)ask->blocks[piece] *
							 POOL_CHUNK_BYTES);
	uint32_t at;

	pool_counts.good++;
	pool_counts.filed += find->chunk >= POOL_CHUNKS;
	if (find->key == UINT64_MAX || ask->is_false)
		return;
	/* As they were set when the read began, and have not been since. */
	if (find->weights != ask->weights || ask->weights != handle->weights)
		api_fail("a place of weights %u is good under weights %u",
			 find->weights, handle->weights);
	for (at = 0; at < POOL_CHUNK_BYTES / sizeof(*words); at++)
		if (words[at] != pool_word(find->key, find->weights, at))
			api_fail("chunk %u is not of key %llu, from word %u on",
				 find->chunk, (unsigned long long)find->key,
				 at);
}

static void read_ended(const struct pool_handle *handle,
		       const struct pool_ask *ask,
		       const struct kvpull_reader_record *record)
{
	uint32_t good = 0;
	uint32_t at;

	for (at = 0; at < ask->count; at++) {
		const int32_t code = ask->codes[at];

		api_expect(code <= 0);
		good += !code;
		pool_counts.stale += code == KVPULL_ESTALE;
		pool_counts.other += code && code != KVPULL_ESTALE;
		if (!code)
			piece_judge(handle, ask, at);
	}
	api_expect(good == record->count);
	api_expect((good == ask->count) == !record->code);
}

void pool_poll(struct pool_handle *handle)
{
	/*
	 * After the end of the draw all draws are 0, and no end would ever be
	 * returned.
	 */
	const uint32_t capacity = api_draw_over() ? 3 : (uint32_t)api_below(4);
	const size_t record_bytes = 24 + 8 * api_below(3);
	uint8_t *records = malloc(record_bytes * (capacity + 1));
	int count;
	int at;

	api_expect(records != NULL);
	count = pool_world->ops->poll(handle->reader, (void *)records, capacity,
				      record_bytes);
	api_expect(count >= 0 && (uint32_t)count <= capacity);
	for (at = 0; at < count; at++) {
		struct kvpull_reader_record record;
		struct pool_ask *ask;

		memcpy(&record, records + (size_t)at * record_bytes,
		       sizeof(record));
		ask = record.id ? pool_ask_of(handle, record.id) : NULL;
		if (!ask)
			api_fail("a record of nobody: %llx",
				 (unsigned long long)record.id);
		if (ask->is_spill)
			pool_spill_ended(ask, &record);
		else if (ask->is_probe)
			probe_ended(handle, ask, &record);
		else
			read_ended(handle, ask, &record);
		ask_free(ask);
	}
	free(records);
}

void pool_reader_odd(struct pool_handle *handle)
{
	const struct kvpull_reader_ops *ops = pool_world->ops;
	const uint32_t capacity = (uint32_t)api_below(POOL_PEERS + 1);
	const size_t peer_bytes =
		sizeof(struct kvpull_reader_peer) + 8 * api_below(3);
	uint8_t *peers = malloc(peer_bytes * (capacity + 1));
	uint32_t used = 0;
	uint32_t at;
	uint32_t local;

	api_expect(peers != NULL);
	for (at = 0; at < POOL_PEERS; at++)
		used += handle->peers[at].is_used;
	api_expect(ops->peers(handle->reader, (void *)peers, capacity,
			      peer_bytes) == (int)used);
	free(peers);
	api_expect(ops->peers(handle->reader, NULL, 0, api_odd_u32()) <=
		   (int)used);
	/* Some of these values are in range. */
	api_expect(ops->local_add(handle->reader,
				  handle->blocks + api_below(4096),
				  1 + api_below(64), 1 + api_odd_u32() % 64,
				  &local) == KVPULL_EINVAL);
	api_expect(ops->peer_remove(handle->reader, 64 + api_odd_u32() % 9) ==
		   KVPULL_EINVAL);
	api_expect(ops->poll(handle->reader, NULL, 1, 24) == KVPULL_EINVAL);
	if (api_chance(200))
		api_expect(ops->event_fd(handle->reader) >= 0);
}
