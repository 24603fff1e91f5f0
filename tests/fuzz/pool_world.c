/* SPDX-License-Identifier: Apache-2.0 */
/* Handles, calls in any order, and the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fuzz/pool.h"
#include "tests/lib/folder.h"

#define TURNS_MAX 20000u

typedef void (*pool_call_fn)(struct pool_handle *handle);

struct pool_world *pool_world;
struct pool_counts pool_counts;

struct kvpull_reader_naming pool_naming_of(struct kvpull_model *model,
					   uint32_t weights)
{
	static const char *const names[POOL_WEIGHTS] = { "w0", "w1", "w2" };

	*model = (struct kvpull_model){ .struct_size = sizeof(*model),
					.model = "m",
					.weights = names[weights],
					.dtype = "float16",
					.layout = "LBHNC" };
	return (struct kvpull_reader_naming){
		.struct_size = sizeof(struct kvpull_reader_naming),
		.model = model,
		.hash = "sha256",
		.tp_size = 1,
	};
}

void pool_handle_open(struct pool_handle *handle)
{
	struct kvpull_model model;
	/* Most handles have the same weights. */
	const uint32_t weights =
		api_chance(800) ? 0 : (uint32_t)api_below(POOL_WEIGHTS);
	const struct kvpull_reader_naming naming =
		pool_naming_of(&model, weights);
	const struct kvpull_reader_params params = {
		.struct_size = sizeof(params),
		.config_json = pool_world->config,
		.naming = &naming,
		.engine_id = "fuzz",
	};
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	memset(handle, 0, sizeof(*handle));
	handle->weights = weights;
	if (pool_world->ops->open(&params, &handle->reader, &detail))
		api_fail("open: %s", detail.message);
	handle->blocks = calloc(POOL_BLOCKS, POOL_CHUNK_BYTES);
	api_expect(handle->blocks &&
		   !pool_world->ops->local_add(handle->reader, handle->blocks,
					       POOL_CHUNK_BYTES, POOL_BLOCKS,
					       &handle->local));
}

void pool_handle_close(struct pool_handle *handle)
{
	pool_world->ops->close(handle->reader);
	free(handle->blocks);
	pool_asks_drop(handle);
}

static void restart(struct pool_handle *handle)
{
	pool_handle_close(handle);
	pool_handle_open(handle);
}

static void sleep_any(struct pool_handle *handle)
{
	(void)handle;
	api_sleep_ns(api_below((api_chance(900) ? 1 : 40) * API_NS_PER_MS));
}

static void turn(struct pool_handle *handle)
{
	uint32_t polls = 1 + (uint32_t)api_below(24);

	(void)handle;
	while (polls--) {
		pool_poll(&pool_world->handles[polls % POOL_HANDLES]);
		api_sleep_ns(API_NS_PER_MS / 10);
	}
}

/* clang-format off */
static const struct {
	const char *name;
	uint32_t weight;
	pool_call_fn call;
} calls[] = {
	{ "share", 12, pool_share },
	{ "unshare", 1, pool_unshare },
	{ "write_begin", 40, pool_write_begin },
	{ "a write goes on", 30, pool_write_on },
	{ "write_end", 60, pool_write_end },
	{ "put", 20, pool_put },
	{ "guard_bump", 3, pool_bump },
	{ "guard_bump_all", 3, pool_bump_all },
	{ "spill", 50, pool_spill },
	{ "an owner's call", 10, pool_owner_odd },
	{ "peer_add", 30, pool_peer_add },
	{ "peer_remove", 5, pool_peer_remove },
	{ "probe", 110, pool_probe },
	{ "read", 140, pool_read },
	{ "cancel", 8, pool_cancel },
	{ "poll", 100, pool_poll },
	{ "turn", 200, turn },
	{ "a reader's call", 10, pool_reader_odd },
	{ "false turn", 120, pool_false_turn },
	{ "false call", 10, pool_false_call },
	{ "restart", 2, restart },
	{ "sleep", 60, sleep_any },
};
/* clang-format on */

static void call_one(void)
{
	uint64_t total = 0;
	uint64_t drawn;
	size_t at;

	for (at = 0; at < sizeof(calls) / sizeof(calls[0]); at++)
		total += calls[at].weight;
	drawn = api_below(total);
	for (at = 0; drawn >= calls[at].weight; at++)
		drawn -= calls[at].weight;
	api_call(calls[at].name);
	calls[at].call(&pool_world->handles[api_below(POOL_HANDLES)]);
}

/* The library measures its copies once a process, which takes the real clock. */
static void first_open(void)
{
	static int is_done;
	struct pool_handle handle;

	if (is_done)
		return;
	is_done = 1;
	api_clock_init(0);
	pool_handle_open(&handle);
	pool_handle_close(&handle);
}

static void world_open(void)
{
	uint32_t at;

	pool_world = calloc(1, sizeof(*pool_world));
	api_expect(pool_world != NULL);
	pool_world->ops = kvpull_reader_v1();
	(void)snprintf(pool_world->folder, sizeof(pool_world->folder),
		       "/tmp/kvpull-api-fuzz-XXXXXX");
	api_expect(mkdtemp(pool_world->folder) != NULL);
	(void)snprintf(
		pool_world->config, sizeof(pool_world->config),
		"{\"socket_dir\":\"%s\",\"copy_threads\":0,\"connect_ms\":%u,\"consumers_max\":%u,\"peers_max\":%u,\"inline_bytes\":%u,\"lease_ms\":%u}",
		pool_world->folder, 10 + (unsigned)api_below(40),
		1 + (unsigned)api_below(8), 1 + (unsigned)api_below(8),
		api_chance(500) ? 0u : 65536u, 10 + (unsigned)api_below(100));
	first_open();
	api_clock_init(1);
	for (at = 0; at < POOL_HANDLES; at++) {
		pool_handle_open(&pool_world->handles[at]);
		pool_share(&pool_world->handles[at]);
	}
	pool_false_open();
	for (at = 0; at < POOL_HANDLES * POOL_PEERS; at++)
		pool_peer_add(&pool_world->handles[at % POOL_HANDLES]);
}

/* Each ask that was begun ends, whatever its peer is. */
static void asks_end(void)
{
	uint32_t turns;
	uint32_t open = 1;
	uint32_t at;

	for (turns = 0; open; turns++) {
		if (turns == TURNS_MAX)
			api_fail("%u probes and reads have not ended", open);
		for (open = 0, at = 0; at < POOL_HANDLES; at++) {
			pool_poll(&pool_world->handles[at]);
			open += pool_open(&pool_world->handles[at]);
		}
		pool_false_turn(&pool_world->handles[0]);
		api_sleep_ns(API_NS_PER_MS / 10);
	}
}

static int32_t code_of(const struct pool_handle *handle, uint32_t peer)
{
	struct kvpull_reader_peer peers[KVPULL_READER_PEERS_MAX];
	const int count = pool_world->ops->peers(handle->reader, peers,
						 KVPULL_READER_PEERS_MAX,
						 sizeof(peers[0]));
	int at;

	for (at = 0; at < count; at++)
		if (peers[at].peer == peer)
			return peers[at].code;
	return KVPULL_EINVAL;
}

/* A new owner and a new reader, beside whatever is there. */
static void newcomer_is_served(void)
{
	struct pool_handle *owner = &pool_world->handles[0];
	struct pool_handle *reader = &pool_world->handles[1];
	const uint64_t good = pool_counts.good;
	struct kvpull_model model;
	const struct kvpull_reader_naming naming = pool_naming_of(&model, 0);
	uint32_t turns;
	uint32_t peer;

	restart(owner);
	restart(reader);
	owner->weights = reader->weights = 0;
	api_expect(
		!pool_world->ops->guard_bump_all(owner->reader, &naming, NULL));
	api_expect(!pool_world->ops->guard_bump_all(reader->reader, &naming,
						    NULL));
	while (!owner->is_shared)
		pool_share(owner);
	api_expect(!pool_world->ops->peer_add(reader->reader, owner->address,
					      &peer));
	reader->peers[0] = (struct pool_peer){ 1, 0, peer };
	for (turns = 0; pool_counts.good == good; turns++) {
		const int32_t code = code_of(reader, peer);

		if (turns == TURNS_MAX || (code && code != KVPULL_EAGAIN))
			api_fail("a newcomer is not served: %d", code);
		pool_write_begin(owner);
		pool_write_end(owner);
		pool_put(owner);
		pool_poll(owner);
		pool_probe(reader);
		pool_read(reader);
		pool_poll(reader);
		pool_false_turn(owner);
		api_sleep_ns(API_NS_PER_MS / 10);
	}
}

void pool_run(uint64_t call_count)
{
	uint64_t at;

	world_open();
	for (at = 0; at < call_count && !api_draw_over(); at++)
		call_one();
	api_call("the end");
	asks_end();
	/* After the end of the draw all keys are 0, which are not served. */
	if (!api_draw_over())
		newcomer_is_served();
	api_call("close");
	for (at = 0; at < POOL_HANDLES; at++)
		pool_handle_close(&pool_world->handles[at]);
	pool_false_close();
	if (folder_remove(pool_world->folder))
		api_fail("%s is not empty: sockets were left",
			 pool_world->folder);
	free(pool_world);
	pool_world = NULL;
}
