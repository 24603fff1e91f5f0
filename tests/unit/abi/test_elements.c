/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays of an engine whose header is of another minor: its elements are longer
 * than the library's, or shorter.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvpull/connector.h"
#include "plugin/worker/worker.h"
#include "tests/lib/folder.h"
#include "tests/lib/host.h"
#include "tests/lib/unit.h"

#define BLOCKS 8u
#define BLOCK_BYTES 1024u

/* Each as a later minor may have it. */
struct newer_group {
	struct kvpull_group now;
	uint64_t more;
};

struct newer_blocks {
	struct kvpull_blocks now;
	uint64_t more;
};

struct newer_record {
	struct kvpull_poll_record now;
	uint64_t more[2];
};

struct newer_peer {
	struct kvpull_peer_info now;
	uint64_t more;
};

/* An engine that holds and claims its own tickets. */
struct engine {
	const struct kvpull_connector_ops *ops;
	struct kvpull_scheduler *scheduler;
	struct kvpull_worker *worker;
	char dir[64];
	char ticket[4096];
	size_t ticket_bytes;
};

static int halves_open(struct engine *engine, const struct newer_group *groups,
		       size_t group_bytes)
{
	static const struct kvpull_model model = {
		.struct_size = sizeof(model),
		.model = "m",
		.dtype = "u8",
		.layout = "LBHNC",
		.layer_count = 1,
		.head_count = 1,
		.head_bytes = 64,
	};
	char config[160];
	const struct kvpull_open_params params = {
		.struct_size = sizeof(params),
		.config_json = config,
		.model = &model,
		.engine_id = "engine",
		.tp_size = 1,
		.groups = &groups->now,
		.group_bytes = group_bytes,
		.group_count = 2,
	};
	int code;

	(void)snprintf(
		config, sizeof(config),
		"{\"progress\":\"caller\",\"copy_threads\":0,\"max_holds\":64,\"socket_dir\":\"%s\"}",
		engine->dir);
	code = engine->ops->scheduler->open(&params, &engine->scheduler, NULL);
	return code ? code :
		      engine->ops->worker->open(&params, &engine->worker, NULL);
}

static void serve(struct engine *engine)
{
	const struct kvpull_worker_ops *ops = engine->ops->worker;
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_region region = { .struct_size = sizeof(region),
					.fd = -1,
					.bytes = (uint64_t)2 * BLOCKS *
						 BLOCK_BYTES };
	struct kvpull_cache caches[2];
	const struct kvpull_regions regions = host_regions(&region, caches);

	assert_int_equal(
		ops->memory_alloc(engine->worker, region.bytes, 0, &memory), 0);
	region.base = memory.base;
	caches[0] = (struct kvpull_cache){ .struct_size = sizeof(*caches),
					   .layer_count = 1,
					   .block_stride = BLOCK_BYTES,
					   .head_stride = BLOCK_BYTES,
					   .block_count = BLOCKS,
					   .row_count = 1,
					   .head_count = 1,
					   .head_bytes = BLOCK_BYTES };
	assert_int_equal(ops->regions_register(engine->worker, &regions, NULL),
			 0);
	assert_int_equal(host_introduce(engine->worker, engine->scheduler), 0);
}

static int engine_make(void **state)
{
	static const struct newer_group groups[2] = {
		{ .now = { .block_tokens = 16 } },
		{ .now = { .block_tokens = 32 } }
	};
	struct engine *engine = calloc(1, sizeof(*engine));

	assert_non_null(engine);
	(void)snprintf(engine->dir, sizeof(engine->dir),
		       "/tmp/kvpull-test-XXXXXX");
	assert_non_null(mkdtemp(engine->dir));
	engine->ops = kvpull_connector_v1();
	assert_int_equal(halves_open(engine, groups, sizeof(*groups)), 0);
	serve(engine);
	*state = engine;
	return 0;
}

static int engine_end(void **state)
{
	struct engine *engine = *state;

	engine->ops->worker->close(engine->worker);
	engine->ops->scheduler->close(engine->scheduler);
	(void)folder_remove(engine->dir);
	free(engine);
	return 0;
}

/* Answer of request_finished(). */
static int finish(struct engine *engine, uint64_t key,
		  const struct newer_blocks *blocks, size_t group_bytes)
{
	const struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = key,
		.prompt_tokens = 32,
		.flags = KVPULL_REQUEST_WANTS_HOLD,
	};
	struct kvpull_finish params = {
		.struct_size = sizeof(params),
		.key = key,
		.computed_tokens = 32,
		.group_count = 2,
		.groups = &blocks->now,
		.group_bytes = group_bytes,
		.ticket = engine->ticket,
		.ticket_capacity = sizeof(engine->ticket),
	};
	int code;

	assert_int_equal(engine->ops->scheduler->request_new(engine->scheduler,
							     &request),
			 0);
	code = engine->ops->scheduler->request_finished(engine->scheduler,
							&params);
	engine->ticket_bytes = params.ticket_bytes;
	return code;
}

static void step(struct engine *engine)
{
	uint8_t bytes[65536];
	size_t byte_count;

	assert_int_equal(
		engine->ops->scheduler->step_build(engine->scheduler, bytes,
						   sizeof(bytes), &byte_count),
		0);
	assert_int_equal(
		engine->ops->worker->step(engine->worker, bytes, byte_count),
		0);
}

static const uint32_t ids[2] = { 3, 5 };

/* Two blocks of the first group, and one of the second. */
static const struct newer_blocks both[2] = {
	{ .now = { .block_count = 2, .block_ids = ids } },
	{ .now = { .block_count = 1, .block_ids = ids + 1 } }
};

UNIT_TEST(groups_with_a_member_set_that_is_unknown_are_refused)
{
	struct newer_group groups[2] = { { .now = { .block_tokens = 16 } },
					 { .now = { .block_tokens = 32 } } };
	struct engine engine = { .ops = kvpull_connector_v1(), .dir = "/tmp" };

	groups[1].more = 1;
	assert_int_equal(halves_open(&engine, groups, sizeof(*groups)),
			 KVPULL_EINVAL);
	assert_null(engine.scheduler);
	assert_int_equal(halves_open(&engine, groups, 0), KVPULL_EINVAL);
	assert_int_equal(halves_open(&engine, groups, 4), KVPULL_EINVAL);
}

#define TEST(name)                                                             \
	UNIT_TEST_OF(name, struct engine, engine, engine_make, engine_end)

TEST(longer_blocks_are_found_each_at_its_place)
{
	struct newer_blocks blocks[2] = { both[0], both[1] };
	struct kvpull_ticket_info info = { .struct_size = sizeof(info) };

	assert_int_equal(finish(engine, 1, blocks, 8), KVPULL_EINVAL);
	assert_int_equal(finish(engine, 1, blocks, 0), KVPULL_EINVAL);
	blocks[1].more = 1;
	assert_int_equal(finish(engine, 1, blocks, sizeof(*blocks)),
			 KVPULL_EINVAL);
	blocks[1].more = 0;
	assert_int_equal(finish(engine, 1, blocks, sizeof(*blocks)),
			 KVPULL_FINISH_HELD);
	assert_int_equal(engine->ops->ticket_peek(engine->ticket,
						  engine->ticket_bytes, &info),
			 0);
	assert_int_equal(info.block_count, 3);
}

TEST(allocation_of_longer_blocks_is_taken)
{
	struct newer_blocks blocks[2] = { both[0], both[1] };
	struct kvpull_request request = { .struct_size = sizeof(request),
					  .key = 2,
					  .ticket = engine->ticket,
					  .prompt_tokens = 32,
					  .flags = KVPULL_REQUEST_PULL };
	struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.key = 2,
		.external_tokens = 32,
		.group_count = 2,
		.groups = &blocks->now,
		.group_bytes = sizeof(*blocks),
	};
	const struct kvpull_scheduler_ops *ops = engine->ops->scheduler;
	uint32_t tokens;

	assert_int_equal(finish(engine, 1, blocks, sizeof(*blocks)),
			 KVPULL_FINISH_HELD);
	request.ticket_bytes = engine->ticket_bytes;
	assert_int_equal(ops->request_new(engine->scheduler, &request), 0);
	assert_int_equal(ops->matched_tokens(engine->scheduler, 2, 0, &tokens),
			 KVPULL_MATCH_LOAD);
	blocks[1].more = 1;
	assert_int_equal(ops->allocated(engine->scheduler, &allocation),
			 KVPULL_EINVAL);
	blocks[1].more = 0;
	assert_int_equal(ops->allocated(engine->scheduler, &allocation), 0);
}

/* An older caller's request has no priority, whatever lies behind its struct. */
TEST(priority_behind_an_older_request_is_not_looked_at)
{
	const struct kvpull_scheduler_ops *ops = engine->ops->scheduler;
	struct kvpull_request request = { .struct_size = sizeof(request),
					  .key = 1,
					  .prompt_tokens = 32,
					  .priority = INT32_MIN,
					  .reserved = 1 };

	assert_int_equal(ops->request_new(engine->scheduler, &request),
			 KVPULL_EINVAL);
	request.struct_size = offsetof(struct kvpull_request, priority);
	assert_int_equal(ops->request_new(engine->scheduler, &request), 0);
	request.struct_size = sizeof(request);
	request.reserved = 0;
	request.key = 2;
	assert_int_equal(ops->request_new(engine->scheduler, &request), 0);
}

/* Three holds end; a poll has room for two. */
TEST(records_are_of_the_callers_size)
{
	const struct kvpull_worker_ops *ops = engine->ops->worker;
	struct newer_record records[2];
	uint8_t older[3 * 16];
	uint64_t keys = 0;
	int i;

	for (i = 1; i <= 3; i++)
		assert_int_equal(
			finish(engine, (uint64_t)i, both, sizeof(*both)),
			KVPULL_FINISH_HELD);
	step(engine);
	assert_int_equal(ops->revoke_all(engine->worker), 3);
	assert_int_equal(ops->poll(engine->worker, &records->now, 2, 0),
			 KVPULL_EINVAL);
	assert_int_equal(ops->poll(engine->worker, &records->now, 2, 24),
			 KVPULL_EINVAL);
	assert_int_equal(ops->poll(engine->worker, &records->now, 2, 36),
			 KVPULL_EINVAL);
	assert_int_equal(
		ops->poll(engine->worker, NULL, 2, sizeof(records->now)),
		KVPULL_EINVAL);
	memset(records, 0xee, sizeof(records));
	assert_int_equal(
		ops->poll(engine->worker, &records->now, 2, sizeof(*records)),
		2);
	for (i = 0; i < 2; i++) {
		assert_int_equal(records[i].now.kind, KVPULL_POLL_SENT);
		assert_int_equal(records[i].now.reason, KVPULL_END_REVOKED);
		assert_int_equal(records[i].more[0], 0);
		assert_int_equal(records[i].more[1], 0);
		keys |= UINT64_C(1) << records[i].now.key;
	}
	/* A record array shorter than any header's has the members that fit. */
	memset(older, 0xee, sizeof(older));
	assert_int_equal(
		kvpull_worker_poll(engine->worker, (void *)older, 3, 16), 1);
	keys |= UINT64_C(1) << older[0];
	assert_int_equal(keys, 1u << 1 | 1u << 2 | 1u << 3);
	assert_int_equal(older[8], KVPULL_POLL_SENT);
	for (i = 16; i < (int)sizeof(older); i++)
		assert_int_equal(older[i], 0xee);
}

TEST(peers_are_of_the_callers_size_and_name_their_route)
{
	const struct kvpull_worker_ops *ops = engine->ops->worker;
	struct kvpull_request request = { .struct_size = sizeof(request),
					  .key = 2,
					  .ticket = engine->ticket,
					  .prompt_tokens = 32,
					  .flags = KVPULL_REQUEST_PULL };
	struct kvpull_poll_record record;
	struct newer_peer peers[2];

	assert_int_equal(finish(engine, 1, both, sizeof(*both)),
			 KVPULL_FINISH_HELD);
	request.ticket_bytes = engine->ticket_bytes;
	assert_int_equal(engine->ops->scheduler->request_new(engine->scheduler,
							     &request),
			 0);
	step(engine);
	(void)ops->poll(engine->worker, &record, 1, sizeof(record));
	memset(peers, 0xee, sizeof(peers));
	assert_int_equal(ops->peers(engine->worker, &peers->now, 2, 0),
			 KVPULL_EINVAL);
	assert_int_equal(
		ops->peers(engine->worker, NULL, 1, sizeof(peers->now)),
		KVPULL_EINVAL);
	assert_int_equal(
		ops->peers(engine->worker, NULL, 0, sizeof(peers->now)), 1);
	assert_int_equal(
		ops->peers(engine->worker, &peers->now, 2, sizeof(*peers)), 1);
	assert_string_equal(peers[0].now.route, "shm");
	assert_non_null(strstr(peers[0].now.why, "same node"));
	assert_int_equal(peers[0].more, 0);
	assert_int_equal(peers[1].now.incarnation,
			 UINT64_C(0xeeeeeeeeeeeeeeee));
}
