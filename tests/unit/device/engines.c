/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/device/engines.h"

#include <semaphore.h>

#include "base/clock.h"
#include "tests/lib/folder.h"
#include "tests/lib/host.h"
#include "tests/lib/patience.h"
#include "tests/lib/unit.h"

#define TOKENS 16u
#define AWAIT_NS (20 * KVPULL_NS_PER_S)
#define NAPS_A_WHILE 150u
#define SAID_NS (3 * KVPULL_NS_PER_S)

struct engine p;
struct engine d;
struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
const struct kvpull_worker_ops *worker_ops;

static const struct kvpull_scheduler_ops *scheduler_ops;
static struct kvpull_cuda_calls calls;
static sem_t gate; /* a kernel of the engines' waits there: see stream_stop() */
static char folder[64];

void engines_begin(void)
{
	struct gpu_context *context;

	worker_ops = kvpull_connector_v1()->worker;
	scheduler_ops = kvpull_connector_v1()->scheduler;
	(void)snprintf(folder, sizeof(folder), "/tmp/kvpull-test-XXXXXX");
	MUST(mkdtemp(folder));
	fake_load();
	log_begin();
	MUST(!kvpull_cuda_calls_load(&calls, &world.log));
	world.calls = &calls;
	MUST(!calls.cuDevicePrimaryCtxRetain(&context, 0));
	MUST(!calls.cuCtxPushCurrent(context));
	MUST(!calls.cuStreamCreate(&world.stream, GPU_STREAM_NON_BLOCKING));
	MUST(!sem_init(&gate, 0, 0));
}

int engine_open(struct engine *engine, const char *keys)
{
	static const struct kvpull_group group = { .block_tokens = TOKENS };
	static const struct kvpull_host host = { .struct_size = sizeof(host),
						 .log = lines_keep,
						 .log_level = KVPULL_LOG_WARN };
	static const struct kvpull_model model = {
		.struct_size = sizeof(model),
		.model = "tiny",
		.dtype = "bytes",
		.layout = "LBHNC",
		.layer_count = 1,
		.head_count = 1,
		.head_bytes = ENGINE_BLOCK_BYTES / TOKENS,
	};
	char config[512];
	struct kvpull_open_params params =
		host_params(engine == &p ? "P" : "D", config, &model, &group);
	int code;

	params.host = &host;
	params.device_kind = KVPULL_DEVICE_CUDA;
	(void)snprintf(
		config, sizeof(config),
		"{\"route\":\"shm\",\"copy_threads\":0,\"status\":\"off\",\"connect_ms\":60000,\"socket_dir\":\"%s\"%s%s}",
		folder,
		strstr(keys, "progress") ? "" : ",\"progress\":\"caller\"",
		keys);
	*engine = (struct engine){ 0 };
	code = worker_ops->open(&params, &engine->worker, &detail);
	if (!code)
		code = scheduler_ops->open(&params, &engine->scheduler,
					   &detail);
	return code;
}

int engine_register(struct engine *engine, uint32_t region_kind)
{
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_region region = { .struct_size = sizeof(region),
					.kind = region_kind,
					.fd = -1,
					.bytes = ENGINE_BYTES };
	const struct kvpull_cache cache = {
		.struct_size = sizeof(cache),
		.layer_count = 1,
		.block_stride = ENGINE_BLOCK_BYTES,
		.block_count = ENGINE_BLOCKS,
		.row_count = 1,
		.head_count = 1,
		.head_stride = ENGINE_BLOCK_BYTES,
		.head_bytes = ENGINE_BLOCK_BYTES,
	};
	const struct kvpull_regions regions = host_regions(&region, &cache);
	const uint32_t flags =
		region_kind == KVPULL_REGION_DEVICE ? KVPULL_MEMORY_DEVICE : 0;
	int code = worker_ops->memory_alloc(engine->worker, ENGINE_BYTES, flags,
					    &memory);

	if (code)
		return code;
	region.base = memory.base;
	engine->address = (uint64_t)(uintptr_t)memory.base;
	code = worker_ops->regions_register(engine->worker, &regions, &detail);
	if (code)
		return code;
	MUST(!host_introduce(engine->worker, engine->scheduler));
	return 0;
}

void engines_open(const char *keys)
{
	engines_begin();
	MUST(!engine_open(&p, keys));
	MUST(!engine_open(&d, keys));
	MUST(!engine_register(&p, KVPULL_REGION_DEVICE));
	MUST(!engine_register(&d, KVPULL_REGION_DEVICE));
}

void engine_close(struct engine *engine)
{
	if (engine->worker)
		worker_ops->close(engine->worker);
	if (engine->scheduler)
		scheduler_ops->close(engine->scheduler);
	*engine = (struct engine){ 0 };
}

void engines_close(void)
{
	struct gpu_context *context;

	engine_close(&d);
	engine_close(&p);
	MUST(!calls.cuStreamDestroy(world.stream));
	MUST(!calls.cuCtxPopCurrent(&context));
	MUST(!calls.cuDevicePrimaryCtxRelease(0));
	kvpull_arena_fini(&world.arena);
	(void)folder_remove_all(folder);
	MUST(fds_open() == world.fds);
}

/* ---- blocks ---- */

static uint64_t block_at(const struct engine *engine, uint32_t block)
{
	return engine->address + (uint64_t)block * ENGINE_BLOCK_BYTES;
}

static void bytes_make(uint8_t *bytes, uint32_t seed)
{
	uint32_t at;

	for (at = 0; at < ENGINE_BLOCK_BYTES; at++)
		bytes[at] = (uint8_t)(at * 7 + (at >> 8) + seed * 31 + 1);
}

void block_put(const struct engine *engine, uint32_t block, uint32_t seed)
{
	uint8_t bytes[ENGINE_BLOCK_BYTES];

	bytes_make(bytes, seed);
	bytes_put(block_at(engine, block), bytes, sizeof(bytes));
}

void block_put_later(const struct engine *engine, uint32_t block, uint32_t seed)
{
	static uint8_t bytes[ENGINE_BLOCKS][ENGINE_BLOCK_BYTES];

	bytes_make(bytes[block], seed);
	MUST(!world.cuMemcpyHtoDAsync(block_at(engine, block), bytes[block],
				      ENGINE_BLOCK_BYTES, world.stream));
}

int block_is(const struct engine *engine, uint32_t block, uint32_t seed)
{
	uint8_t found[ENGINE_BLOCK_BYTES];
	uint8_t bytes[ENGINE_BLOCK_BYTES];

	bytes_make(bytes, seed);
	bytes_get(block_at(engine, block), found, sizeof(found));
	return !memcmp(found, bytes, sizeof(bytes));
}

void block_zero(const struct engine *engine, uint32_t block)
{
	MUST(!calls.cuMemsetD8Async(block_at(engine, block), 0,
				    ENGINE_BLOCK_BYTES, world.stream));
}

void device_break(void)
{
	/* To nowhere. */
	MUST(!calls.cuMemsetD8Async(4096, 0, 1, world.stream));
	MUST(calls.cuStreamSynchronize(world.stream));
}

static void gate_wait(void *unused)
{
	(void)unused;
	while (sem_wait(&gate))
		; /* a signal */
}

void stream_stop(void)
{
	MUST(!world.fake_run(world.stream, gate_wait, NULL));
}

void stream_go(void)
{
	MUST(!sem_post(&gate));
}

void hold_revoke(void)
{
	MUST(worker_ops->revoke_all(p.worker) >= 0);
}

void stream_end(void)
{
	MUST(!calls.cuStreamSynchronize(world.stream));
}

/* ---- steps ---- */

static void records_take(struct engine *engine)
{
	struct kvpull_poll_record record;

	/* A test takes one pull's end at a time. */
	while ((!engine->kind || engine == &p) &&
	       worker_ops->poll(engine->worker, &record, 1, sizeof(record))) {
		if (record.kind == KVPULL_POLL_SENT) {
			engine->sent++;
			continue;
		}
		engine->key = record.key;
		engine->kind = record.kind;
		engine->reason = record.reason;
	}
}

/* The driver may answer late: an engine's thread and its polls do not wait for it. */
static void waits_compared(uint64_t waits)
{
	MUST(world.fake_waits() == waits);
}

static void results_take(struct engine *engine)
{
	const uint64_t waits = world.fake_waits();
	char bytes[8192];
	size_t count;

	records_take(engine);
	waits_compared(waits);
	MUST(!worker_ops->result_build(engine->worker, bytes, sizeof(bytes),
				       &count));
	if (count)
		MUST(!scheduler_ops->result_take(engine->scheduler, bytes,
						 count));
}

static void step_make(struct engine *engine)
{
	const uint64_t waits = world.fake_waits();
	char bytes[16384];
	size_t count;
	int code;

	MUST(!scheduler_ops->step_build(engine->scheduler, bytes, sizeof(bytes),
					&count));
	code = worker_ops->step(engine->worker, bytes, count);
	/* The engine's device may be lost. */
	MUST(!code || code == KVPULL_ECLOSED);
	MUST(!worker_ops->start_loads(engine->worker, NULL));
	waits_compared(waits);
}

static void turn(struct engine *engine)
{
	step_make(engine);
	results_take(engine);
}

void hold(uint64_t key, uint32_t count, uint32_t flags)
{
	const struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = key,
		.prompt_tokens = count * TOKENS,
		.flags = KVPULL_REQUEST_WANTS_HOLD,
	};
	uint32_t ids[ENGINE_BLOCKS];
	const struct kvpull_blocks blocks = { 0, count, ids };
	struct kvpull_finish finish = {
		.struct_size = sizeof(finish),
		.key = key,
		.flags = flags,
		.computed_tokens = count * TOKENS,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
		.group_count = 1,
		.ticket = p.ticket,
		.ticket_capacity = sizeof(p.ticket),
	};
	uint32_t at;

	for (at = 0; at < count; at++)
		ids[at] = at;
	MUST(scheduler_ops->request_new(p.scheduler, &request) >= 0);
	MUST(scheduler_ops->request_finished(p.scheduler, &finish) ==
	     KVPULL_FINISH_HELD);
	p.ticket_bytes = finish.ticket_bytes;
	turn(&p);
}

void pull(uint64_t key, uint32_t first, uint32_t count)
{
	const struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = key,
		.prompt_tokens = count * TOKENS,
		.flags = KVPULL_REQUEST_PULL,
		.ticket = p.ticket,
		.ticket_bytes = p.ticket_bytes,
	};
	uint32_t ids[ENGINE_BLOCKS];
	const struct kvpull_blocks blocks = { 0, count, ids };
	struct kvpull_allocation room = {
		.struct_size = sizeof(room),
		.key = key,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
		.group_count = 1,
	};
	uint32_t at;

	for (at = 0; at < count; at++)
		ids[at] = first + at;
	d.kind = 0;
	MUST(scheduler_ops->request_new(d.scheduler, &request) >= 0);
	MUST(scheduler_ops->matched_tokens(d.scheduler, key, 0,
					   &room.external_tokens) ==
	     KVPULL_MATCH_LOAD);
	MUST(!scheduler_ops->allocated(d.scheduler, &room));
}

void pull_abort(uint64_t key)
{
	struct kvpull_finish finish = { .struct_size = sizeof(finish),
					.key = key,
					.reason = KVPULL_FINISH_ABORT };

	MUST(scheduler_ops->request_finished(d.scheduler, &finish) >= 0);
}

void step(const uint64_t *stream)
{
	if (stream)
		MUST(worker_ops->engine_mark(d.worker, *stream) >= 0);
	step_make(&d);
}

void turn_of_d(void)
{
	results_take(&d);
}

void turn_of_p(void)
{
	turn(&p);
}

uint32_t turns(uint32_t count)
{
	uint32_t made;

	for (made = 0; made < count && !d.kind; made++) {
		turn_of_d();
		turn_of_p();
	}
	return made;
}

int a_while(void)
{
	uint32_t naps;

	for (naps = 0; naps < NAPS_A_WHILE && !d.kind; naps++) {
		(void)turns(1);
		kvpull_clock_nap();
	}
	return !d.kind;
}

int said_in_time(const char *text)
{
	const uint64_t by_ns = kvpull_clock_ns() + SAID_NS * patience();

	while (!lines_said(text) && kvpull_clock_ns() < by_ns) {
		d.kind = 0; /* it polls until an end was told */
		(void)turns(1);
	}
	return lines_said(text);
}

uint32_t pull_end(void)
{
	const uint64_t by_ns = kvpull_clock_ns() + AWAIT_NS * patience();

	while (!d.kind) {
		MUST(kvpull_clock_ns() < by_ns);
		(void)turns(1);
	}
	return d.kind;
}

void step_loads(const uint64_t *stream)
{
	step(stream);
	MUST(pull_end() == KVPULL_POLL_LOADED);
}

void step_fails(const uint64_t *stream, int32_t reason)
{
	step(stream);
	MUST(pull_end() == KVPULL_POLL_FAILED);
	MUST(d.reason == reason);
}
