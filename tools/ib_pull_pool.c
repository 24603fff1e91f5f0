/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --pool: owners that share chunks by content, and readers that ask nobody,
 * each a process of its own. What arrives at an owner is computed and put, the
 * chunk that was unused for longest is evicted for it; a reader probes one owner
 * for the keys of a request and reads those that it found. Keys are drawn by
 * Zipf's law, or are a trace's hash_ids. The bytes of a chunk are made from its
 * key, so each piece that is believed can be checked.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/index.h"
#include "base/map.h"
#include "kvpull/reader.h"
#include "tools/ib_pull_parts.h"
#include "tools/json.h"

#define PROCESSES_MAX 16u /* owners, and readers */
#define ITEMS_MAX KVPULL_READER_ITEMS_MAX
#define LIMIT_NS UINT64_C(30000000000)
#define NAP_MS 100
#define SOON 8u /* arrivals at an owner that a reader may be ahead */

/* Work of a process, or the sum over all processes. */
struct tally {
	/* The handle's own; the last row is all 0. */
	struct kvpull_counter counters[ENGINE_COUNTERS_MAX + 1];
	uint64_t took_ns, probe_ns; /* of readers, without checks of bytes */
	uint64_t bytes_checked, bytes_wrong;
};

/* Where an owner is found. */
struct place {
	_Atomic uint32_t is_up;   /* filled once, and the address */
	_Atomic uint64_t arrived; /* requests at the owner */
	char address[512];
};

struct shared {
	_Atomic uint32_t stop; /* the readers are done */
	struct place owners[PROCESSES_MAX];
	struct tally tallies[2 * PROCESSES_MAX]; /* of each process */
};

struct pool {
	const struct ib_options *options;
	const struct kvpull_reader_ops *ops;
	struct shared *shared;
	struct ib_keys keys;
	struct kvpull_reader *handle; /* of this process, and what it did: */
	struct tally *tally;
};

static uint64_t word_of(uint64_t key, uint64_t at)
{
	return (key + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ at << 40 ^ at;
}

/* ---- both ---- */

static void log_line(void *context, uint32_t level, const char *message)
{
	(void)context;
	if (level <= KVPULL_LOG_WARN)
		fprintf(stderr, "%s\n", message);
}

/* 0, or 1: why not was said. */
static int handle_open(struct pool *pool, const char *engine_id)
{
	static const struct kvpull_host host = { .struct_size = sizeof(host),
						 .log = log_line };
	static const struct kvpull_model model = {
		.struct_size = sizeof(model),
		.model = "ib_pull",
		.weights = "none",
		.dtype = "bytes",
		.layout = "chunks",
	};
	static const struct kvpull_reader_naming naming = {
		.struct_size = sizeof(naming),
		.model = &model,
		.hash = "number",
	};
	char *config = ib_config_make(pool->options);
	const struct kvpull_reader_params params = {
		.struct_size = sizeof(params),
		.host = &host,
		.config_json = config,
		.naming = &naming,
		.engine_id = engine_id,
	};
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	if (config && pool->ops->open(&params, &pool->handle, &detail))
		fprintf(stderr, "%s: %s\n", engine_id, detail.message);
	free(config);
	return !pool->handle;
}

static void handle_sleep(const struct pool *pool, int ms)
{
	struct pollfd wait = { .fd = pool->ops->event_fd(pool->handle),
			       .events = POLLIN };

	(void)poll(&wait, 1, ms);
}

static void handle_close(const struct pool *pool)
{
	(void)pool->ops->counters(pool->handle, pool->tally->counters,
				  ENGINE_COUNTERS_MAX,
				  sizeof(struct kvpull_counter));
	pool->ops->close(pool->handle);
}

/* ---- an owner ---- */

struct owner {
	struct pool *pool;
	struct place *place;
	uint64_t random;
	uint64_t *words;              /* of the chunks */
	uint64_t *key_of;             /* [chunks]; key + 1; 0: none */
	struct kvpull_map chunk_of;   /* key + 1 */
	struct kvpull_index_list lru; /* chunks, unused for longest first */
	struct kvpull_arena arena;
};

static int owner_open(struct owner *owner)
{
	struct pool *pool = owner->pool;
	const struct ib_options *options = pool->options;
	const uint32_t count = options->shape.block_count;
	const struct kvpull_reader_share share = {
		.struct_size = sizeof(share),
		.chunk_bytes = options->shape.block_bytes,
		.chunk_count = count,
		.flags = KVPULL_MEMORY_HUGE,
	};
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	size_t byte_count;
	uint32_t at;

	kvpull_arena_init(&owner->arena, NULL);
	kvpull_map_init(&owner->chunk_of, count, &owner->arena);
	kvpull_index_list_init(&owner->lru, count, &owner->arena);
	owner->key_of = kvpull_arena_take_table(&owner->arena, count,
						sizeof(*owner->key_of));
	if (handle_open(pool, "owner") || !kvpull_arena_ok(&owner->arena))
		return 1;
	if (pool->ops->share(pool->handle, &share, &memory, &detail) ||
	    pool->ops->address(pool->handle, owner->place->address,
			       sizeof(owner->place->address), &byte_count)) {
		fprintf(stderr, "share: %s\n", detail.message);
		return 1;
	}
	owner->words = memory.base;
	for (at = 0; at < count; at++)
		kvpull_index_list_push(&owner->lru, at);
	return 0;
}

/* In the order that a pool's owner keeps: see reader.h. */
static int chunk_write(struct owner *owner, uint32_t chunk, uint64_t key)
{
	const struct kvpull_reader_ops *ops = owner->pool->ops;
	struct kvpull_reader *handle = owner->pool->handle;
	const size_t count =
		owner->pool->options->shape.block_bytes / sizeof(uint64_t);
	uint64_t *words = owner->words + chunk * count;
	struct kvpull_reader_put put = { .struct_size = sizeof(put),
					 .key = { &key, sizeof(key) },
					 .chunk = chunk };
	size_t at;
	int code;

	code = ops->guard_bump(handle, &chunk, 1, &put.generation);
	if (!code)
		code = ops->write_begin(handle, chunk);
	if (code)
		return code;
	for (at = 0; at < count; at++)
		words[at] = word_of(key, at);
	code = ops->write_end(handle, chunk);
	if (!code)
		code = ops->epoch(handle, &put.epoch);
	if (!code)
		code = ops->put(handle, &put);
	return code == KVPULL_EFULL ? 0 : code; /* that one is missed */
}

/* Makes the key the most recently used; 0 or 1. */
static int key_use(struct owner *owner, uint64_t key)
{
	uint32_t chunk = kvpull_map_get(&owner->chunk_of, key + 1);
	int code = 0;

	if (chunk == KVPULL_NONE) {
		chunk = owner->lru.first;
		kvpull_map_remove(&owner->chunk_of, owner->key_of[chunk]);
		owner->key_of[chunk] = key + 1;
		code = kvpull_map_set(&owner->chunk_of, key + 1, chunk);
		if (!code)
			code = chunk_write(owner, chunk, key);
		if (code)
			fprintf(stderr, "owner: error %d\n", code);
	}
	kvpull_index_list_remove(&owner->lru, chunk);
	kvpull_index_list_push(&owner->lru, chunk);
	return code != 0;
}

static int request_compute(struct owner *owner)
{
	/* Pairs with nothing: readers take it for a number alone. */
	const uint64_t number = atomic_fetch_add_explicit(
		&owner->place->arrived, 1, memory_order_relaxed);
	uint64_t keys[ITEMS_MAX];
	const uint32_t count =
		ib_keys_of(&owner->pool->keys, number, &owner->random, keys);
	int failed = 0;
	uint32_t at;

	for (at = 0; !failed && at < count; at++)
		failed = key_use(owner, keys[at]);
	return failed;
}

/* Before anybody reads: till all is full, or as often as that takes at least. */
static int owner_fill(struct owner *owner)
{
	uint32_t left = owner->pool->options->shape.block_count;
	int failed = 0;

	/* Chunks without a key are the first ones of the list. */
	while (!failed && left-- && !owner->key_of[owner->lru.first])
		failed = request_compute(owner);
	return failed;
}

static int owner_run(struct pool *pool, uint32_t index)
{
	struct owner owner = { .pool = pool,
			       .place = &pool->shared->owners[index],
			       .random = (pool->options->seed + index) << 40 };
	const uint32_t rate = pool->options->rate;
	struct kvpull_reader_record record;
	uint64_t begun_ns;
	uint64_t done = 0;
	int failed = owner_open(&owner) || owner_fill(&owner);

	/* Pairs with the acquire in owners_await(). */
	atomic_store_explicit(&owner.place->is_up, 1, memory_order_release);
	begun_ns = engine_now_ns();
	while (!failed && !atomic_load_explicit(&pool->shared->stop,
						memory_order_relaxed)) {
		const uint64_t due =
			(engine_now_ns() - begun_ns) * rate / 1000000000;

		for (; !failed && done < due; done++)
			failed = request_compute(&owner);
		(void)pool->ops->poll(pool->handle, &record, 0, sizeof(record));
		handle_sleep(pool, rate ? 1 : NAP_MS);
	}
	handle_close(pool);
	kvpull_arena_fini(&owner.arena);
	return failed;
}

/* ---- a reader ---- */

struct reader {
	struct pool *pool;
	uint64_t *words; /* of [request_blocks] blocks, as long as chunks */
	uint32_t local;
	uint32_t peers[PROCESSES_MAX];
	uint64_t random;
	uint64_t check_ns;
	uint64_t incarnation;     /* that places are of */
	uint64_t keys[ITEMS_MAX]; /* of a request */
	struct kvpull_reader_place places[ITEMS_MAX];
	int32_t codes[ITEMS_MAX]; /* of those that were found */
};

/* Until each owner is connected; 0 or 1. */
static int reader_connect(struct reader *reader)
{
	const struct pool *pool = reader->pool;
	const uint32_t count = pool->options->owners;
	const uint64_t until_ns = engine_now_ns() + LIMIT_NS;
	struct kvpull_reader_peer peers[PROCESSES_MAX];
	struct kvpull_reader_record record;
	uint32_t at;

	for (at = 0; at < count; at++)
		if (pool->ops->peer_add(pool->handle,
					pool->shared->owners[at].address,
					&reader->peers[at]))
			return 1;
	at = 0;
	while (at < count && engine_now_ns() < until_ns &&
	       !*pool->options->stop) {
		(void)pool->ops->poll(pool->handle, &record, 0, sizeof(record));
		(void)pool->ops->peers(pool->handle, peers, count,
				       sizeof(peers[0]));
		if (!peers[at].code)
			at++;
		else
			handle_sleep(pool, NAP_MS);
	}
	return at < count;
}

static int reader_open(struct reader *reader)
{
	struct pool *pool = reader->pool;
	const struct ib_options *options = pool->options;

	reader->words =
		calloc(options->request_blocks, options->shape.block_bytes);
	return !reader->words || handle_open(pool, "reader") ||
	       pool->ops->local_add(pool->handle, reader->words,
				    options->shape.block_bytes,
				    options->request_blocks, &reader->local) ||
	       reader_connect(reader);
}

/* Return: 0: what was begun has ended; pieces have codes of their own. */
static int await(struct reader *reader, const char *what, int code)
{
	const struct pool *pool = reader->pool;
	struct kvpull_reader_record record;

	if (!code) {
		while (!pool->ops->poll(pool->handle, &record, 1,
					sizeof(record)))
			if (pool->options->thread)
				handle_sleep(pool, NAP_MS);
		reader->incarnation = record.incarnation;
		code = record.code == KVPULL_ESTALE ? 0 : record.code;
	}
	if (code)
		fprintf(stderr, "%s: %s\n", what, pool->ops->error_text(code));
	return code != 0;
}

static int keys_probe(struct reader *reader, uint32_t peer, uint32_t count)
{
	const struct pool *pool = reader->pool;
	struct kvpull_reader_key keys[ITEMS_MAX];
	const struct kvpull_reader_probe probe = {
		.struct_size = sizeof(probe),
		.peer = peer,
		.key_count = count,
		.keys = keys,
		.key_bytes = sizeof(keys[0]),
		.places = reader->places,
		.place_bytes = sizeof(reader->places[0]),
	};
	const uint64_t begun_ns = engine_now_ns();
	uint64_t id;
	uint32_t at;
	int failed;

	for (at = 0; at < count; at++)
		keys[at] =
			(struct kvpull_reader_key){ &reader->keys[at],
						    sizeof(reader->keys[at]) };
	failed = await(reader, "probe",
		       pool->ops->probe(pool->handle, &probe, &id));
	pool->tally->probe_ns += engine_now_ns() - begun_ns;
	return failed;
}

/* Reads the pieces that a probe found, each into the block of its key. */
static int places_read(struct reader *reader, uint32_t peer, uint32_t count)
{
	const struct pool *pool = reader->pool;
	struct kvpull_reader_piece pieces[ITEMS_MAX];
	struct kvpull_reader_read read = {
		.struct_size = sizeof(read),
		.peer = peer,
		.local = reader->local,
		.pieces = pieces,
		.piece_bytes = sizeof(pieces[0]),
		.codes = reader->codes,
		.incarnation = reader->incarnation,
	};
	uint64_t id;
	uint32_t at;

	for (at = 0; at < count; at++) {
		const struct kvpull_reader_place *place = &reader->places[at];

		if (place->chunk == KVPULL_READER_NONE)
			continue;
		pieces[read.piece_count++] =
			(struct kvpull_reader_piece){ place->chunk, at,
						      place->generation };
	}
	return read.piece_count &&
	       await(reader, "read", pool->ops->read(pool->handle, &read, &id));
}

/* Each piece that is believed has the bytes of its key. */
static void pieces_check(struct reader *reader, uint32_t count)
{
	struct tally *tally = reader->pool->tally;
	const size_t bytes = reader->pool->options->shape.block_bytes;
	const size_t words_a_block = bytes / sizeof(*reader->words);
	const uint64_t begun_ns = engine_now_ns();
	uint32_t piece = 0;
	uint32_t at;

	for (at = 0; at < count; at++) {
		const uint64_t *words = reader->words + at * words_a_block;
		size_t word;

		if (reader->places[at].chunk == KVPULL_READER_NONE ||
		    reader->codes[piece++])
			continue;
		tally->bytes_checked += bytes;
		for (word = 0; word < words_a_block; word++)
			if (words[word] != word_of(reader->keys[at], word))
				tally->bytes_wrong += sizeof(*words);
	}
	reader->check_ns += engine_now_ns() - begun_ns;
}

/* Makes the request here soon after it arrived at its owner; 0 or 1. */
static int request_run(struct reader *reader, uint64_t number)
{
	const struct pool *pool = reader->pool;
	const uint32_t owner = (uint32_t)(number % pool->options->owners);
	const uint32_t peer = reader->peers[owner];
	const uint64_t arrived = atomic_load_explicit(
		&pool->shared->owners[owner].arrived, memory_order_relaxed);
	const uint32_t count = ib_keys_of(&pool->keys, arrived + number % SOON,
					  &reader->random, reader->keys);

	if (keys_probe(reader, peer, count) || places_read(reader, peer, count))
		return 1;
	if (pool->options->verify)
		pieces_check(reader, count);
	return 0;
}

static int reader_run(struct pool *pool, uint32_t index)
{
	const struct ib_options *options = pool->options;
	struct reader reader = { .pool = pool,
				 .random = (options->seed + 64 + index) << 40 };
	int failed = reader_open(&reader);
	const uint64_t begun_ns = engine_now_ns();
	uint64_t number;

	for (number = 0;
	     !failed && !*options->stop &&
	     (options->duration_s ?
		      engine_now_ns() - begun_ns <
			      options->duration_s * UINT64_C(1000000000) :
		      number < options->request_count);
	     number++)
		failed = request_run(&reader, number);
	pool->tally->took_ns = engine_now_ns() - begun_ns - reader.check_ns;
	handle_close(pool);
	free(reader.words);
	return failed;
}

/* ---- all of them ---- */

static double counted(const struct tally *sum, const char *name)
{
	return (double)engine_counter(sum->counters, name);
}

static double ratio(double part, double all)
{
	return all > 0 ? part / all : 0;
}

static void add_up(const struct pool *pool, struct tally *sum)
{
	uint32_t at;
	uint32_t row;

	memset(sum, 0, sizeof(*sum));
	(void)pool->ops->counters(NULL, sum->counters, ENGINE_COUNTERS_MAX,
				  sizeof(sum->counters[0]));
	for (at = 0; at < 2 * PROCESSES_MAX; at++) {
		const struct tally *one = &pool->shared->tallies[at];

		for (row = 0; row < ENGINE_COUNTERS_MAX; row++)
			sum->counters[row].value += one->counters[row].value;
		sum->took_ns += one->took_ns;
		sum->probe_ns += one->probe_ns;
		sum->bytes_checked += one->bytes_checked;
		sum->bytes_wrong += one->bytes_wrong;
	}
}

static void print(const struct pool *pool, const struct tally *sum, int is_ok)
{
	const struct ib_options *options = pool->options;
	const double probes = counted(sum, "probes");
	const double found = counted(sum, "keys_found");
	const double stale = counted(sum, "pieces_stale");
	const double hit_ratio =
		ratio(found, found + counted(sum, "keys_missed"));
	const double stale_ratio =
		ratio(stale, stale + counted(sum, "pieces_good"));
	const double probe_us = ratio((double)sum->probe_ns / 1e3, probes);
	/* A reader's, on average. */
	const double took_ns = (double)sum->took_ns / options->consumers;
	const double probes_s = ratio(probes * 1e9, took_ns);
	const double gb_s = ratio(counted(sum, "bytes_read"), took_ns);
	const struct kvpull_counter *row;
	json_t *object;

	if (!options->json) {
		printf("readers   probes  probes/s probe us  hits %%  stale %%     GB/s\n"
		       "%7u %8.0f %9.0f %8.1f %7.2f %8.4f %8.3f\n"
		       "chunks put %.0f, bytes checked %llu, bytes wrong %llu\n"
		       "pool: %s\n",
		       options->consumers, probes, probes_s, probe_us,
		       100 * hit_ratio, 100 * stale_ratio, gb_s,
		       counted(sum, "puts"),
		       (unsigned long long)sum->bytes_checked,
		       (unsigned long long)sum->bytes_wrong,
		       is_ok ? "ok" : "FAILED");
		return;
	}
	object = json_pack("{s:b, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:I, s:I}",
			   "ok", is_ok, "owners", (int)options->owners,
			   "readers", (int)options->consumers, "probes_per_s",
			   probes_s, "probe_us", probe_us, "hit_ratio",
			   hit_ratio, "stale_ratio", stale_ratio, "gb_s", gb_s,
			   "bytes_checked", (json_int_t)sum->bytes_checked,
			   "bytes_wrong", (json_int_t)sum->bytes_wrong);
	for (row = sum->counters; row->name; row++)
		set(object, row->name, row->value);
	(void)json_show(object, 0);
}

/* Return: how many did not end with 0. */
static int children_wait(const struct pool *pool, const pid_t *pids,
			 uint32_t count)
{
	int failed = 0;

	for (; count; count--)
		failed += ib_child_wait(pool->options, pids, count, NULL) != 0;
	return failed;
}

static int owners_await(const struct pool *pool)
{
	uint32_t at;

	for (at = 0; at < pool->options->owners; at++)
		/* Pairs with the release in owner_run(). */
		while (!atomic_load_explicit(&pool->shared->owners[at].is_up,
					     memory_order_acquire)) {
			if (waitpid(-1, NULL, WNOHANG) || *pool->options->stop)
				return 1;
			(void)poll(NULL, 0, 1);
		}
	return 0;
}

static int processes_run(struct pool *pool)
{
	const struct ib_options *options = pool->options;
	pid_t owners[PROCESSES_MAX];
	pid_t readers[PROCESSES_MAX];
	struct tally sum;
	int failed;
	uint32_t at;

	for (at = 0; at < options->owners; at++, pool->tally++) {
		owners[at] = ib_child_start(1);
		if (!owners[at])
			_exit(owner_run(pool, at));
	}
	failed = owners_await(pool);
	for (at = 0; !failed && at < options->consumers; at++, pool->tally++) {
		readers[at] = ib_child_start(0);
		if (!readers[at])
			_exit(reader_run(pool, at));
	}
	if (!failed)
		failed = children_wait(pool, readers, options->consumers);
	atomic_store_explicit(&pool->shared->stop, 1, memory_order_relaxed);
	failed += children_wait(pool, owners, options->owners);
	add_up(pool, &sum);
	failed |= sum.bytes_wrong || counted(&sum, "pieces_failed") > 0;
	print(pool, &sum, !failed);
	return failed != 0;
}

static int play(struct ib_options *own, void *shared)
{
	struct pool pool = { .options = own,
			     .shared = shared,
			     .tally = ((struct shared *)shared)->tallies };
	kvpull_reader_v1_fn table;
	int failed;

	if (engine_library_find("kvpull_reader_v1", &table))
		return 1;
	pool.ops = table();
	failed = ib_keys_open(&pool.keys, own) || processes_run(&pool);
	ib_keys_close(&pool.keys);
	return failed;
}

int ib_pool(const struct ib_options *options)
{
	return ib_together(options, "pool", sizeof(struct shared), play);
}
