/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of the facts that a host registers and names: layers and groups of the
 * model, ids of its own cache, blocks of the tokens to be loaded.
 */
#include <stdio.h>
#include <string.h>

#include "kvpull/connector.h"
#include "tests/lib/host.h"
#include "tests/lib/lines.h"
#include "tests/lib/unit.h"

#define BLOCKS 8u
#define LAYERS 3u
#define TOKENS 16u
#define HEAD_BYTES 64u /* of a head in a block: all of one layer */
#define LAYER_BYTES ((uint64_t)HEAD_BYTES * BLOCKS)

static const struct kvpull_group groups[2] = { { .block_tokens = TOKENS },
					       { .block_tokens = TOKENS } };

static const struct kvpull_model model = { .struct_size = sizeof(model),
					   .model = "m",
					   .dtype = "u8",
					   .layout = "LBHNC",
					   .layer_count = LAYERS,
					   .head_count = 1,
					   .head_bytes = HEAD_BYTES / TOKENS };

static uint8_t memory[1 << 16];

static void expect_warning(const char *words)
{
	if (!lines_said(words))
		fail_msg("\"%s\" is not in: %s", words, lines.all);
	lines_forget();
}

static const struct kvpull_host host = { .struct_size = sizeof(host),
					 .log = lines_keep,
					 .log_level = KVPULL_LOG_WARN };

static struct kvpull_open_params open_params(const char *engine_id,
					     uint32_t group_count)
{
	return (struct kvpull_open_params){
		.struct_size = sizeof(struct kvpull_open_params),
		.host = &host,
		.config_json =
			"{\"progress\":\"caller\",\"copy_threads\":0,\"route\":\"shm\"}",
		.model = &model,
		.engine_id = engine_id,
		.tp_size = 1,
		.groups = groups,
		.group_bytes = sizeof(*groups),
		.group_count = group_count,
	};
}

/* Each layer has a place of its own. */
static struct kvpull_cache cache_of(uint32_t group, uint32_t layer_first,
				    uint32_t layer_count)
{
	return (struct kvpull_cache){
		.struct_size = sizeof(struct kvpull_cache),
		.group_index = group,
		.layer_first = layer_first,
		.layer_count = layer_count,
		.offset = layer_first * LAYER_BYTES,
		.layer_stride = LAYER_BYTES,
		.block_stride = HEAD_BYTES,
		.head_stride = HEAD_BYTES,
		.block_count = BLOCKS,
		.row_count = 1,
		.head_count = 1,
		.head_bytes = HEAD_BYTES,
	};
}

static int caches_register(struct kvpull_worker *worker,
			   const struct kvpull_cache *caches, uint32_t count,
			   struct kvpull_error_detail *detail)
{
	const struct kvpull_region region = { .struct_size = sizeof(region),
					      .kind = KVPULL_REGION_FOREIGN,
					      .fd = -1,
					      .base = memory,
					      .bytes = sizeof(memory) };
	const struct kvpull_regions regions = { .struct_size = sizeof(regions),
						.regions = &region,
						.caches = caches,
						.region_count = 1,
						.cache_count = count };

	return kvpull_connector_v1()->worker->regions_register(worker, &regions,
							       detail);
}

/* Refused, in these words, and another one may follow. */
static void refused_with(const struct kvpull_cache *caches, uint32_t count,
			 const char *words)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	const struct kvpull_open_params params = open_params("engine", 2);
	const struct kvpull_cache good[2] = { cache_of(0, 0, 2),
					      cache_of(1, 2, 1) };
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_worker *worker;

	assert_int_equal(ops->open(&params, &worker, NULL), 0);
	assert_int_equal(caches_register(worker, caches, count, &detail),
			 KVPULL_EINVAL);
	if (!strstr(detail.message, words))
		fail_msg("\"%s\" is not in: %s", words, detail.message);
	assert_int_equal(caches_register(worker, good, 2, &detail), 0);
	ops->close(worker);
}

UNIT_TEST(registration_covers_the_model)
{
	const struct kvpull_cache half[2] = { cache_of(0, 0, 1),
					      cache_of(1, 2, 1) };
	const struct kvpull_cache beyond[2] = { cache_of(0, 0, 2),
						cache_of(1, 2, 2) };
	const struct kvpull_cache group[2] = { cache_of(0, 0, 2),
					       cache_of(2, 2, 1) };
	const struct kvpull_cache twice[2] = { cache_of(0, 0, 3),
					       cache_of(1, 2, 1) };

	refused_with(half, 2, "layer 1 is in no cache: the model has 3");
	refused_with(half, 1, "layer 1 is in no cache");
	refused_with(beyond, 2, "the model has 3 layers");
	refused_with(group, 2, "the engine has 2 groups");
	refused_with(twice, 2, "another cache has its layers");
}

/* ---- an engine of one rank and one group ---- */

struct engine {
	struct kvpull_scheduler *scheduler;
	struct kvpull_worker *worker;
};

static struct engine engine_open(const char *engine_id)
{
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	const struct kvpull_open_params params = open_params(engine_id, 1);
	const struct kvpull_cache caches[2] = { cache_of(0, 0, 2),
						cache_of(0, 2, 1) };
	struct engine engine;

	assert_int_equal(ops->scheduler->open(&params, &engine.scheduler, NULL),
			 0);
	assert_int_equal(ops->worker->open(&params, &engine.worker, NULL), 0);
	assert_int_equal(caches_register(engine.worker, caches, 2, NULL), 0);
	assert_int_equal(host_introduce(engine.worker, engine.scheduler), 0);
	return engine;
}

static void engine_close(struct engine *engine)
{
	kvpull_connector_v1()->worker->close(engine->worker);
	kvpull_connector_v1()->scheduler->close(engine->scheduler);
}

static char ticket[4096];

/* Answer of a finish with so many tokens of these blocks; its ticket. */
static int finish_of(struct engine *engine, uint64_t key,
		     const struct kvpull_blocks *blocks,
		     uint32_t computed_tokens, size_t *ticket_bytes)
{
	const struct kvpull_scheduler_ops *ops =
		kvpull_connector_v1()->scheduler;
	const struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = key,
		.flags = KVPULL_REQUEST_WANTS_HOLD,
		.prompt_tokens = 4 * TOKENS,
	};
	struct kvpull_finish params = {
		.struct_size = sizeof(params),
		.key = key,
		.computed_tokens = computed_tokens,
		.group_count = 1,
		.groups = blocks,
		.group_bytes = sizeof(*blocks),
		.ticket = ticket,
		.ticket_capacity = sizeof(ticket),
	};
	int answer;

	assert_int_equal(ops->request_new(engine->scheduler, &request), 0);
	answer = ops->request_finished(engine->scheduler, &params);
	*ticket_bytes = params.ticket_bytes;
	return answer;
}

/* Blocks of a prompt of 4 of them; the last id is this one. */
static int hold(struct engine *engine, uint64_t key, uint32_t last_id,
		size_t *ticket_bytes)
{
	const uint32_t ids[4] = { 0, 1, 2, last_id };
	const struct kvpull_blocks blocks = { 0, 4, ids };

	return finish_of(engine, key, &blocks, 4 * TOKENS, ticket_bytes);
}

static int finish(struct engine *engine, uint64_t key, uint32_t first_index,
		  uint32_t block_count, uint32_t computed_tokens)
{
	const uint32_t ids[4] = { 0, 1, 2, 3 };
	const struct kvpull_blocks blocks = { first_index, block_count, ids };
	size_t ticket_bytes;

	return finish_of(engine, key, &blocks, computed_tokens, &ticket_bytes);
}

UNIT_TEST(tokens_beyond_the_named_blocks_are_not_held)
{
	struct engine engine = engine_open("p");

	assert_int_equal(finish(&engine, 1, 0, 3, 4 * TOKENS),
			 KVPULL_FINISH_FREE);
	expect_warning("64 of 64 prompt tokens computed, and the blocks of "
		       "group 0 are those of tokens 0 to 48");
	assert_int_equal(finish(&engine, 2, 0, 3, 3 * TOKENS + 1),
			 KVPULL_FINISH_FREE);
	expect_warning("49 of 64 prompt tokens computed");
	assert_int_equal(finish(&engine, 3, 1, 3, 4 * TOKENS),
			 KVPULL_FINISH_FREE);
	expect_warning("are those of tokens 16 to 64");
	/* Fewer tokens, and tokens that the engine made after the prompt. */
	assert_int_equal(finish(&engine, 4, 0, 3, 3 * TOKENS),
			 KVPULL_FINISH_HELD);
	assert_int_equal(finish(&engine, 5, 0, 4, 9 * TOKENS),
			 KVPULL_FINISH_HELD);
	engine_close(&engine);
}

UNIT_TEST(block_beyond_the_cache_is_not_held)
{
	struct engine engine = engine_open("p");
	size_t ticket_bytes;

	assert_int_equal(hold(&engine, 1, BLOCKS, &ticket_bytes),
			 KVPULL_FINISH_FREE);
	assert_int_equal(ticket_bytes, 0);
	expect_warning("names block 8 of group 0, its caches have 8");
	assert_int_equal(hold(&engine, 2, BLOCKS - 1, &ticket_bytes),
			 KVPULL_FINISH_HELD);
	engine_close(&engine);
}

/*
 * Answer of allocated() to these blocks, after LOAD for so many local tokens.
 */
static int allocated(struct engine *engine, uint64_t key,
		     const struct kvpull_blocks *blocks,
		     uint32_t external_tokens)
{
	const struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.key = key,
		.external_tokens = external_tokens,
		.group_count = 1,
		.groups = blocks,
		.group_bytes = sizeof(*blocks),
	};

	return kvpull_connector_v1()->scheduler->allocated(engine->scheduler,
							   &allocation);
}

static void want(struct engine *engine, uint64_t key, size_t ticket_bytes,
		 uint32_t local_tokens)
{
	const struct kvpull_scheduler_ops *ops =
		kvpull_connector_v1()->scheduler;
	const struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = key,
		.flags = KVPULL_REQUEST_PULL,
		.prompt_tokens = 4 * TOKENS,
		.ticket = ticket,
		.ticket_bytes = ticket_bytes,
	};
	uint32_t tokens;

	assert_int_equal(ops->request_new(engine->scheduler, &request), 0);
	assert_int_equal(ops->matched_tokens(engine->scheduler, key,
					     local_tokens, &tokens),
			 KVPULL_MATCH_LOAD);
	assert_int_equal(tokens, 4 * TOKENS - local_tokens);
}

UNIT_TEST(local_block_beyond_the_cache_is_refused)
{
	struct engine p = engine_open("p");
	struct engine d = engine_open("d");
	const uint32_t bad[2] = { 5, BLOCKS };
	const uint32_t good[2] = { 5, BLOCKS - 1 };
	struct kvpull_blocks blocks = { 2, 2, bad };
	size_t ticket_bytes;

	assert_int_equal(hold(&p, 1, 3, &ticket_bytes), KVPULL_FINISH_HELD);
	want(&d, 7, ticket_bytes, 2 * TOKENS);
	assert_int_equal(allocated(&d, 7, &blocks, 2 * TOKENS), KVPULL_EINVAL);
	expect_warning("names block 8 of group 0, its caches have 8");
	/* Nothing happened: it may say it again. */
	blocks.block_ids = good;
	assert_int_equal(allocated(&d, 7, &blocks, 2 * TOKENS), 0);
	engine_close(&d);
	engine_close(&p);
}

UNIT_TEST(block_beyond_the_external_tokens_is_refused)
{
	struct engine p = engine_open("p");
	struct engine d = engine_open("d");
	const uint32_t ids[4] = { 4, 5, 6, 7 };
	const struct kvpull_blocks all = { 0, 4, ids };
	const struct kvpull_blocks before = { 1, 2, ids };
	const struct kvpull_blocks behind = { 2, 2, ids };
	const struct kvpull_blocks right = { 2, 1, ids };
	const struct kvpull_blocks last = { 3, 1, ids };
	size_t ticket_bytes;

	assert_int_equal(hold(&p, 1, 3, &ticket_bytes), KVPULL_FINISH_HELD);
	want(&d, 7, ticket_bytes, 2 * TOKENS);
	/* The local prefix would be written over. */
	assert_int_equal(allocated(&d, 7, &all, 2 * TOKENS), KVPULL_EINVAL);
	expect_warning("32 to 63 are to be loaded");
	assert_int_equal(allocated(&d, 7, &before, 2 * TOKENS), KVPULL_EINVAL);
	assert_int_equal(allocated(&d, 7, &behind, TOKENS), KVPULL_EINVAL);
	/* More than matched_tokens() said. */
	assert_int_equal(allocated(&d, 7, &behind, 2 * TOKENS + 1),
			 KVPULL_EINVAL);
	/* A block would be left as it is, and be taken for loaded. */
	assert_int_equal(allocated(&d, 7, &right, 2 * TOKENS), KVPULL_EINVAL);
	assert_int_equal(allocated(&d, 7, &last, 2 * TOKENS), KVPULL_EINVAL);
	assert_int_equal(allocated(&d, 7, &right, TOKENS + 1), KVPULL_EINVAL);
	assert_int_equal(allocated(&d, 7, &right, TOKENS), 0);
	engine_close(&d);
	engine_close(&p);
}
