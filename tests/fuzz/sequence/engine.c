/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine: both halves of the library, a pool of blocks, and requests. Its
 * invariants: each key is reported once; LOADED bytes are those that were held;
 * a hold that the scheduler half gave is SENT.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/sequence/sequence.h"
#include "tests/lib/host.h"

const struct kvpull_group seq_group = { .block_tokens = 1 };

const struct kvpull_model seq_model = {
	.struct_size = sizeof(seq_model),
	.model = "tiny",
	.dtype = "float32",
	.layout = "LBHNC",
	.layer_count = 1,
	.head_count = SEQ_HEADS,
	.head_bytes = SEQ_BLOCK_BYTES / SEQ_HEADS,
};

struct kvpull_cache seq_cache(void)
{
	return (struct kvpull_cache){
		.struct_size = sizeof(struct kvpull_cache),
		.layer_count = 1,
		.block_stride = SEQ_BLOCK_BYTES,
		.head_stride = SEQ_BLOCK_BYTES / SEQ_HEADS,
		.block_count = SEQ_BLOCKS,
		.row_count = 1,
		.head_count = SEQ_HEADS,
		.head_bytes = SEQ_BLOCK_BYTES / SEQ_HEADS,
	};
}

static void log_line(void *context, uint32_t level, const char *line)
{
	const struct seq_engine *engine = context;

	if (getenv("TEST_LOG"))
		(void)printf("# %llu %u %u %s\n",
			     (unsigned long long)engine->world->now_ns / 1000,
			     engine->who, level, line);
}

static void config_load(struct seq_engine *engine)
{
	const struct seq_options *options = &engine->world->options;
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	char json[1024];

	(void)snprintf(
		json, sizeof(json),
		"{\"progress\":\"caller\",\"copy_threads\":0,\"uring\":\"no\","
		"\"huge\":\"no\",\"max_holds\":8,\"peers_max\":%u,"
		"\"consumers_max\":%u,\"pull_blocks_max\":16,"
		"\"requests_max\":64,\"pulls_max\":4,\"tickets_max\":8,"
		"\"lease_ms\":60,\"hold_max_ms\":400,\"grace_ms\":%u,"
		"\"connect_ms\":500,\"deadline_ms\":50,\"flush_after_ms\":5,"
		"\"ring_records\":16,\"step_log_mib\":1,\"families_max\":8,"
		"\"inline_bytes\":%u,\"verbs_credits\":4,\"verbs_depth\":8,"
		"\"verbs_batch\":2,\"socket_dir\":\"%s\"}",
		SEQ_PEERS_MAX, SEQ_CALLERS, options->grace ? 20 : 0,
		options->copies_late ? 0 : 65536, engine->world->folder);
	if (kvpull_config_load(&engine->config, json, &detail))
		seq_fail("%s: %s", detail.field, detail.message);
	if (options->key) {
		engine->config.key_set = 1;
		memcpy(engine->config.key, seq_key(engine->world),
		       sizeof(engine->config.key));
	}
}

static void memory_register(struct seq_engine *engine)
{
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_region region = { .struct_size = sizeof(region),
					.fd = -1 };
	const struct kvpull_cache cache = seq_cache();
	const struct kvpull_regions regions = host_regions(&region, &cache);
	uint8_t info[1024];
	size_t info_bytes;

	if (engine->world->options.foreign && engine->who == SEQ_P) {
		region.kind = KVPULL_REGION_FOREIGN;
		memory.base = engine->own = calloc(SEQ_BLOCKS, SEQ_BLOCK_BYTES);
	} else if (kvpull_worker_memory_alloc(engine->worker,
					      SEQ_BLOCKS * SEQ_BLOCK_BYTES, 0,
					      &memory)) {
		seq_fail("no memory for blocks");
	}
	engine->memory = memory.base;
	region.base = memory.base;
	region.bytes = SEQ_BLOCKS * SEQ_BLOCK_BYTES;
	if (kvpull_worker_regions_register(engine->worker, &regions, &detail))
		seq_fail("%s: %s", detail.field, detail.message);
	if (kvpull_worker_rank_info(engine->worker, info, sizeof(info),
				    &info_bytes) ||
	    kvpull_scheduler_rank_info(engine->scheduler, info, info_bytes,
				       engine->world->now_ns))
		seq_fail("the halves do not know each other");
}

void seq_engine_open(struct seq_engine *engine)
{
	struct seq_world *world = engine->world;
	static const char *const names[SEQ_ENGINES] = { "p", "d", "v" };
	struct kvpull_open_params params = {
		.struct_size = sizeof(params),
		.model = &seq_model,
		.engine_id = names[engine->who],
		.tp_size = 1,
		.groups = &seq_group,
		.group_count = 1,
	};
	struct kvpull_worker_setup setup = {
		.params = &params,
		.config = &engine->config,
		.incarnation = engine->incarnation,
		.transport = seq_world_transport,
		.transport_context = engine,
		.now_ns = seq_world_now,
		.now_context = world,
	};
	struct kvpull_scheduler_setup scheduler = { .log = &engine->log,
						    .config = &engine->config,
						    .engine_id =
							    params.engine_id,
						    .rank_count = 1,
						    .pp_size = 1 };
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_compat compat;

	config_load(engine);
	engine->log = (struct kvpull_log){ .write = log_line,
					   .context = engine,
					   .level = KVPULL_LOG_DEBUG };
	if (!getenv("TEST_LOG"))
		engine->log = (struct kvpull_log){ 0 };
	setup.log = engine->log;
	if (kvpull_compat_init(&compat, &params))
		seq_fail("the model is none");
	scheduler.compat = &compat;
	scheduler.incarnation = setup.incarnation + 1;
	if (kvpull_scheduler_create(&scheduler, &engine->scheduler) ||
	    kvpull_worker_create(&setup, &engine->worker, &detail))
		seq_fail("engine %u: %s: %s", engine->who, detail.field,
			 detail.message);
	memory_register(engine);
	if (world->options.sleeps && kvpull_worker_event_fd(engine->worker) < 0)
		seq_fail("engine %u: no descriptor to sleep on", engine->who);
}

void seq_engine_close(struct seq_engine *engine)
{
	kvpull_worker_destroy(engine->worker);
	kvpull_arena_fini(&engine->arena);
	kvpull_scheduler_destroy(engine->scheduler);
	free(engine->own);
	engine->worker = NULL;
	engine->scheduler = NULL;
}

/* Blocks. */

static uint8_t byte_of(uint64_t content, uint32_t index, uint32_t at)
{
	return (uint8_t)(content * 31 + index * 7 + at + content / 256);
}

static int blocks_take(struct seq_engine *engine, struct seq_request *request,
		       uint32_t count)
{
	uint32_t at;

	request->block_count = 0;
	for (at = 0; at < SEQ_BLOCKS && request->block_count < count; at++) {
		/* From both ends, so that they are no neighbours. */
		const uint32_t block =
			request->block_count & 1 ? SEQ_BLOCKS - 1 - at : at;

		if (engine->busy[block])
			continue;
		engine->busy[block] = 1;
		request->blocks[request->block_count++] = block;
	}
	return request->block_count == count;
}

static void blocks_give(struct seq_engine *engine, struct seq_request *request)
{
	uint32_t at;

	for (at = 0; at < request->block_count; at++) {
		engine->busy[request->blocks[at]] = 0;
		/* Another owner writes there at once. */
		memset(engine->memory + request->blocks[at] * SEQ_BLOCK_BYTES,
		       0xee, SEQ_BLOCK_BYTES);
	}
	memset(request, 0, sizeof(*request));
}

static void blocks_fill(const struct seq_engine *engine,
			const struct seq_request *request)
{
	uint32_t index;
	uint32_t at;

	for (index = 0; index < request->block_count; index++)
		for (at = 0; at < SEQ_BLOCK_BYTES; at++)
			engine->memory[request->blocks[index] * SEQ_BLOCK_BYTES +
				       at] =
				byte_of(request->content, index, at);
}

static void blocks_compare(const struct seq_engine *engine,
			   const struct seq_request *request)
{
	uint32_t index;
	uint32_t at;

	for (index = 0; request->content && index < request->block_count;
	     index++)
		for (at = 0; at < SEQ_BLOCK_BYTES; at++)
			if (engine->memory[request->blocks[index] *
						   SEQ_BLOCK_BYTES +
					   at] !=
			    byte_of(request->content, index, at))
				seq_fail(
					"engine %u: wrong bytes are LOADED: key %llu block %u byte %u",
					engine->who,
					(unsigned long long)request->key, index,
					at);
}

/* Requests. */

static struct seq_request *request_slot(struct seq_engine *engine)
{
	uint32_t at;

	for (at = 0; at < SEQ_REQUESTS; at++)
		if (engine->requests[at].state == SEQ_IDLE)
			return &engine->requests[at];
	return NULL;
}

static struct seq_request *request_find(struct seq_engine *engine, uint64_t key)
{
	uint32_t at;

	for (at = 0; at < SEQ_REQUESTS; at++)
		if (engine->requests[at].state != SEQ_IDLE &&
		    engine->requests[at].key == key)
			return &engine->requests[at];
	seq_fail("engine %u: a report of key %llu, which is none", engine->who,
		 (unsigned long long)key);
}

uint32_t seq_engine_open_requests(const struct seq_engine *engine)
{
	uint32_t count = 0;
	uint32_t at;

	for (at = 0; at < SEQ_REQUESTS; at++)
		count += engine->requests[at].state != SEQ_IDLE;
	return count;
}

static void digest_put(uint8_t digest[KVPULL_DIGEST_BYTES], uint64_t content)
{
	memset(digest, 0x5a, KVPULL_DIGEST_BYTES);
	memcpy(digest, &content, sizeof(content));
}

struct seq_ticket *seq_engine_prefill(struct seq_engine *engine,
				      uint32_t block_count, uint32_t unready)
{
	struct seq_world *world = engine->world;
	struct seq_request *mine = request_slot(engine);
	struct seq_ticket *ticket =
		&world->tickets[world->ticket_next % SEQ_TICKETS];
	struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = ++world->number,
		.prompt_tokens = block_count,
		.flags = KVPULL_REQUEST_WANTS_HOLD,
	};
	struct kvpull_finish finish = {
		.struct_size = sizeof(finish),
		.key = request.key,
		.flags = unready ? KVPULL_FINISH_READY_NEEDED : 0,
		.computed_tokens = block_count,
		.group_count = 1,
		.ticket = ticket->text,
		.ticket_capacity = sizeof(ticket->text),
	};
	struct kvpull_blocks blocks = { .block_count = block_count };
	static struct kvpull_ticket_scratch scratch;
	struct kvpull_ticket_info info = { .struct_size = sizeof(info) };
	int code;

	if (!mine)
		return NULL;
	if (!blocks_take(engine, mine, block_count)) {
		blocks_give(engine, mine);
		return NULL;
	}
	mine->key = mine->content = request.key;
	blocks_fill(engine, mine);
	digest_put(request.prompt_digest, mine->content);
	blocks.block_ids = mine->blocks;
	finish.groups = &blocks;
	code = kvpull_scheduler_request_new(engine->scheduler, &request,
					    world->now_ns);
	ticket->bytes = 0;
	if (!code)
		code = kvpull_scheduler_request_finished(
			engine->scheduler, &finish, world->now_ns);
	if (code != KVPULL_FINISH_HELD) {
		blocks_give(engine, mine);
		return NULL;
	}
	mine->state = SEQ_HELD;
	mine->unready = unready;
	ticket->bytes = finish.ticket_bytes;
	ticket->content = mine->content;
	ticket->block_count = block_count;
	if (kvpull_ticket_peek(ticket->text, ticket->bytes, &scratch, &info))
		seq_fail("a ticket of P's own is none");
	ticket->slot = info.slot;
	ticket->generation = info.generation;
	world->ticket_next++;
	return ticket;
}

void seq_engine_ready(struct seq_engine *engine)
{
	uint32_t at;

	for (at = 0; at < SEQ_REQUESTS; at++) {
		struct seq_request *request = &engine->requests[at];

		if (request->state == SEQ_HELD && request->unready &&
		    !kvpull_worker_hold_ready(engine->worker, request->key))
			request->unready = 0;
	}
}

struct seq_request *seq_engine_pull(struct seq_engine *engine,
				    const struct seq_ticket *ticket)
{
	struct seq_world *world = engine->world;
	struct seq_request *mine = request_slot(engine);
	struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = ++world->number,
		.ticket = ticket->text,
		.ticket_bytes = ticket->bytes,
		.prompt_tokens = ticket->block_count,
		.flags = KVPULL_REQUEST_PULL,
	};

	if (!mine || !ticket->bytes)
		return NULL;
	digest_put(request.prompt_digest, ticket->content);
	if (kvpull_scheduler_request_new(engine->scheduler, &request,
					 world->now_ns))
		return NULL;
	mine->state = SEQ_NEW;
	mine->key = request.key;
	mine->content = ticket->content;
	mine->block_count = 0;
	return mine;
}

/* A request of D's is over, one way or the other. */
static void request_end(struct seq_engine *engine, struct seq_request *request,
			uint32_t reason)
{
	struct kvpull_finish finish = { .struct_size = sizeof(finish),
					.key = request->key,
					.reason = reason };

	(void)kvpull_scheduler_request_finished(engine->scheduler, &finish,
						engine->world->now_ns);
}

void seq_engine_abort(struct seq_engine *engine, uint32_t index)
{
	struct seq_request *request = &engine->requests[index % SEQ_REQUESTS];

	if (request->state == SEQ_IDLE || request->mine)
		return;
	request_end(engine, request, KVPULL_FINISH_ABORT);
	/* Blocks that are held, or loaded into, stay until a report. */
	if (request->state == SEQ_NEW)
		blocks_give(engine, request);
}

static void request_ask(struct seq_engine *engine, struct seq_request *request)
{
	const uint64_t now_ns = engine->world->now_ns;
	struct kvpull_blocks blocks = { .block_ids = request->blocks };
	struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.key = request->key,
		.group_count = 1,
		.groups = &blocks,
	};
	uint32_t tokens = 0;
	const int match = kvpull_scheduler_matched_tokens(
		engine->scheduler, request->key, 0, &tokens, now_ns);

	if (match == KVPULL_MATCH_WAIT)
		return;
	if (match != KVPULL_MATCH_LOAD || tokens > SEQ_REQUEST_BLOCKS_MAX ||
	    !blocks_take(engine, request, tokens)) {
		request_end(engine, request, KVPULL_FINISH_STOP);
		blocks_give(engine, request);
		return;
	}
	blocks.block_count = request->block_count;
	allocation.external_tokens = tokens;
	request->state = SEQ_LOADING;
	(void)kvpull_scheduler_allocated(engine->scheduler, &allocation,
					 now_ns);
}

void seq_engine_step(struct seq_engine *engine)
{
	static uint8_t bytes[65536];
	size_t byte_count = 0;
	uint32_t at;

	for (at = 0; at < SEQ_REQUESTS; at++)
		if (engine->requests[at].state == SEQ_NEW)
			request_ask(engine, &engine->requests[at]);
	if (kvpull_scheduler_step_build(engine->scheduler, bytes, sizeof(bytes),
					&byte_count, engine->world->now_ns))
		seq_fail("engine %u: no step can be built", engine->who);
	if (byte_count && kvpull_worker_step(engine->worker, bytes, byte_count))
		seq_fail("engine %u: its own step is refused", engine->who);
	(void)kvpull_worker_start_loads(engine->worker);
}

static void record_take(struct seq_engine *engine,
			const struct kvpull_poll_record *record)
{
	struct seq_request *request = request_find(engine, record->key);
	const int is_sent = record->kind == KVPULL_POLL_SENT;

	if ((request->state != SEQ_HELD && is_sent) ||
	    (request->state != SEQ_LOADING && !is_sent))
		seq_fail("engine %u: report %u of key %llu in state %u",
			 engine->who, record->kind,
			 (unsigned long long)record->key, request->state);
	if (record->kind == KVPULL_POLL_LOADED)
		blocks_compare(engine, request);
	if (request->mine) {
		engine->loaded += record->kind == KVPULL_POLL_LOADED;
		engine->failed += record->kind == KVPULL_POLL_FAILED;
		engine->reason = record->reason;
	}
	engine->world->pulls += record->kind == KVPULL_POLL_LOADED;
	if (!is_sent)
		request_end(engine, request, KVPULL_FINISH_STOP);
	blocks_give(engine, request);
}

void seq_engine_poll(struct seq_engine *engine)
{
	static uint8_t bytes[65536];
	struct kvpull_poll_record records[8];
	size_t byte_count = 0;
	int count;
	int at;

	do {
		count = kvpull_worker_poll(engine->worker, records, 8,
					   sizeof(*records));
		if (count < 0)
			seq_fail("engine %u: poll: %d", engine->who, count);
		for (at = 0; at < count; at++)
			record_take(engine, &records[at]);
	} while (count == 8);
	if (kvpull_worker_result_build(engine->worker, bytes, sizeof(bytes),
				       &byte_count))
		seq_fail("engine %u: no result can be built", engine->who);
	if (byte_count &&
	    kvpull_scheduler_result_take(engine->scheduler, bytes, byte_count,
					 engine->world->now_ns))
		seq_fail("engine %u: its worker's result is refused",
			 engine->who);
}

void seq_engine_turn(struct seq_engine *engine)
{
	seq_engine_step(engine);
	seq_engine_poll(engine);
}
