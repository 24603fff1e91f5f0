/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of an engine: see the header. Reports are counted as engines do: an
 * end counts when each rank has reported it, and one that comes twice from a
 * rank is a failure of the library.
 */
#include "tools/ib_pull_engine.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"

#define STEP_BYTES (8u << 20)
#define RECORDS 256
#define COUNTERS_MAX 64

uint64_t engine_now_ns(void)
{
	return kvpull_clock_ns();
}

uint64_t engine_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

void *engine_library_symbol(const char *name)
{
	char path[PATH_MAX + 32];
	const char *named = getenv("KVPULL_TEST_LIBRARY");
	void *library = NULL;
	ssize_t used = readlink("/proc/self/exe", path, PATH_MAX);
	char *slash;
	void *symbol;

	if (named) {
		library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
	} else if (used > 0) {
		path[used] = '\0';
		slash = strrchr(path, '/');
		(void)snprintf(slash + 1, 32, "libkvpull.so.1");
		library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	if (!library && !named)
		library = dlopen("libkvpull.so.1", RTLD_NOW | RTLD_LOCAL);
	symbol = library ? dlsym(library, name) : NULL;
	if (!symbol)
		fprintf(stderr, "%s%s\n", dlerror(),
			library ?
				"" :
				"; after make install run ldconfig, or set LD_LIBRARY_PATH to its folder");
	return symbol;
}

const struct kvpull_connector_ops *engine_library(void)
{
	void *symbol = engine_library_symbol("kvpull_connector_v1");
	kvpull_connector_v1_fn connector;

	if (!symbol)
		return NULL;
	/* POSIX lets a symbol's address be a function; C does not say so. */
	memcpy(&connector, &symbol, sizeof(connector));
	return connector();
}

static uint32_t rank_heads(const struct engine *engine)
{
	return ENGINE_HEADS * engine->pp_size / engine->rank_count;
}

static int memory_take(struct engine *engine, uint32_t rank)
{
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	void *own;
	int code;

	if (engine->foreign) {
		own = mmap(NULL, engine->memory_bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		engine->memory[rank] = own == MAP_FAILED ? NULL : own;
		return own == MAP_FAILED ? KVPULL_ENOMEM : 0;
	}
	code = engine->ops->worker->memory_alloc(
		engine->workers[rank], engine->memory_bytes,
		engine->gpu ? KVPULL_MEMORY_DEVICE : KVPULL_MEMORY_HUGE,
		&memory);
	if (code)
		return code;
	engine->memory[rank] = memory.base;
	engine->huge_bytes += memory.huge_bytes;
	engine->provider_ns += memory.took_ns;
	return 0;
}

/* The layers of a rank's stage: a cache a group that has any of them. */
static uint32_t caches_fill(const struct engine *engine, uint32_t rank,
			    struct kvpull_cache caches[KVPULL_GROUPS_MAX])
{
	const struct engine_shape *shape = &engine->shape;
	const uint32_t layers = shape->layer_count / shape->group_count;
	const uint32_t stage = engine_pp_rank(engine, rank);
	const uint32_t begin = engine_stage_first(engine, stage);
	const uint32_t behind = engine_stage_first(engine, stage + 1);
	uint32_t count = 0;
	uint32_t group;

	for (group = 0; group < shape->group_count; group++) {
		uint32_t first = group * layers;
		uint32_t end = first + layers;

		if (first < begin)
			first = begin;
		if (end > behind)
			end = behind;
		if (first >= end)
			continue;
		caches[count++] = (struct kvpull_cache){
			.struct_size = sizeof(*caches),
			.group_index = group,
			.layer_first = first,
			.layer_count = end - first,
			.offset = first * engine_layer_bytes(engine),
			.layer_stride = engine_layer_bytes(engine),
			.block_stride = engine_rank_block_bytes(engine),
			.head_stride = shape->block_bytes / ENGINE_HEADS,
			.block_count = shape->block_count,
			.row_count = 1,
			.head_first = engine_tp_rank(engine, rank) *
				      rank_heads(engine),
			.head_count = rank_heads(engine),
			.head_bytes = shape->block_bytes / ENGINE_HEADS,
		};
	}
	return count;
}

static int regions_register(struct engine *engine, uint32_t rank,
			    struct kvpull_error_detail *detail)
{
	struct kvpull_cache caches[KVPULL_GROUPS_MAX];
	const struct kvpull_region region = {
		.struct_size = sizeof(region),
		.kind = engine->gpu     ? KVPULL_REGION_DEVICE :
			engine->device  ? KVPULL_REGION_DMABUF :
			engine->foreign ? KVPULL_REGION_FOREIGN :
					  KVPULL_REGION_PROVIDED,
		.fd = engine->device ? STDERR_FILENO : -1,
		.base = engine->memory[rank],
		.bytes = engine->memory_bytes,
	};
	const struct kvpull_regions regions = {
		.struct_size = sizeof(regions),
		.regions = &region,
		.caches = caches,
		.region_count = 1,
		.cache_count = caches_fill(engine, rank, caches),
	};

	return engine->ops->worker->regions_register(engine->workers[rank],
						     &regions, detail);
}

static int rank_open(struct engine *engine,
		     const struct kvpull_open_params *params, uint32_t rank,
		     struct kvpull_error_detail *detail)
{
	struct kvpull_open_params own = *params;
	int code;

	own.tp_rank = engine_tp_rank(engine, rank);
	own.pp_rank = engine_pp_rank(engine, rank);
	code = engine->ops->worker->open(&own, &engine->workers[rank], detail);
	if (code)
		return code;
	code = memory_take(engine, rank);
	if (code)
		(void)snprintf(detail->message, sizeof(detail->message),
			       "no %" PRIu64 " MiB of memory for the blocks",
			       engine->memory_bytes >> 20);
	if (!code)
		code = regions_register(engine, rank, detail);
	return code;
}

int engine_rank_info(struct engine *engine, uint32_t rank, void *bytes,
		     size_t capacity, size_t *byte_count)
{
	if (engine->carrier)
		return engine->carrier->info(engine->carrier->context, rank,
					     bytes, capacity, byte_count);
	return engine->ops->worker->rank_info(engine->workers[rank], bytes,
					      capacity, byte_count);
}

static int rank_introduce(struct engine *engine, uint32_t rank)
{
	uint8_t info[4096];
	size_t info_bytes = 0;
	const int code =
		engine_rank_info(engine, rank, info, sizeof(info), &info_bytes);

	return code ? code :
		      engine->ops->scheduler->rank_info(engine->scheduler, info,
							info_bytes);
}

static int ranks_open(struct engine *engine, const struct engine_params *params,
		      const struct kvpull_open_params *open,
		      struct kvpull_error_detail *detail)
{
	uint32_t rank;
	int code = 0;

	for (rank = 0; !code && rank < engine->rank_count; rank++) {
		if (params->part == ENGINE_WHOLE ||
		    (params->part == ENGINE_RANK && params->rank == rank))
			code = rank_open(engine, open, rank, detail);
		if (!code && params->part != ENGINE_RANK)
			code = rank_introduce(engine, rank);
	}
	return code;
}

static int halves_open(struct engine *engine,
		       const struct engine_params *params)
{
	struct kvpull_error_detail *detail = &engine->detail;
	struct kvpull_group groups[KVPULL_GROUPS_MAX] = { { 0 } };
	const struct kvpull_model model = {
		.struct_size = sizeof(model),
		.model = params->model ? params->model : "ib_pull",
		.revision = params->revision,
		.weights = params->weights,
		.dtype = params->dtype ? params->dtype : "bytes",
		.layout = params->layout ? params->layout : "LBHNC",
		.layer_count = params->shape.layer_count,
		.head_count = ENGINE_HEADS,
		.head_bytes = params->shape.block_bytes /
			      (ENGINE_HEADS * params->shape.block_tokens),
	};
	const struct kvpull_open_params open = {
		.struct_size = sizeof(open),
		.host = params->host,
		.config_json = params->config_json,
		.model = &model,
		.engine_id = params->engine_id,
		.tp_size = params->tp_size,
		.pp_size = params->pp_size,
		.groups = groups,
		.group_bytes = sizeof(*groups),
		.group_count = params->shape.group_count,
		.device_kind = params->gpu ? params->gpu->kind : 0,
		.device_index = params->gpu ? params->gpu->index : 0,
	};
	uint32_t index;
	int code = 0;

	detail->struct_size = sizeof(*detail);
	for (index = 0; index < params->shape.group_count; index++)
		groups[index].block_tokens = params->shape.block_tokens;
	if (params->shape.has_states)
		groups[index - 1].kind = KVPULL_GROUP_STATE;
	if (params->part != ENGINE_RANK)
		code = engine->ops->scheduler->open(&open, &engine->scheduler,
						    detail);
	if (!code)
		code = ranks_open(engine, params, &open, detail);
	if (code && !params->quiet)
		fprintf(stderr, "%s: %s%s%s (%s)\n", params->engine_id,
			detail->field, detail->field[0] ? ": " : "",
			detail->message, engine->ops->error_text(code));
	return code;
}

/* Shuffled, so that neighbours in a request are not so in memory. */
static void pool_fill(struct engine *engine, uint32_t contiguous)
{
	uint64_t random = 88172645463325252u;
	uint32_t index;

	engine->free_count = engine->shape.block_count;
	for (index = 0; index < engine->free_count; index++)
		engine->free_blocks[index] = index;
	for (index = engine->free_count; index > 1 && !contiguous; index--) {
		const uint32_t other =
			(uint32_t)(engine_random(&random) % index);
		const uint32_t held = engine->free_blocks[other];

		engine->free_blocks[other] = engine->free_blocks[index - 1];
		engine->free_blocks[index - 1] = held;
	}
}

int engine_open(struct engine *engine, const struct engine_params *params)
{
	const struct engine_shape *shape = &params->shape;

	memset(engine, 0, sizeof(*engine));
	engine->ops = params->ops;
	engine->shape = *shape;
	engine->pp_size = params->pp_size ? params->pp_size : 1;
	engine->rank_count = params->tp_size * engine->pp_size;
	engine->gpu = params->gpu;
	engine->foreign = params->foreign;
	engine->device = params->device;
	engine->carrier = params->carrier;
	engine->memory_bytes = engine_layer_bytes(engine) * shape->layer_count;
	engine->bytes_capacity = STEP_BYTES;
	engine->bytes = malloc(STEP_BYTES);
	engine->free_blocks =
		calloc(shape->block_count, sizeof(*engine->free_blocks));
	engine->reports = calloc(ENGINE_EVENTS_MAX, sizeof(*engine->reports));
	engine->events = calloc(ENGINE_EVENTS_MAX, sizeof(*engine->events));
	if (!engine->bytes || !engine->free_blocks || !engine->reports ||
	    !engine->events) {
		fprintf(stderr, "%s: out of memory\n", params->engine_id);
		return KVPULL_ENOMEM;
	}
	pool_fill(engine, params->contiguous);
	engine->next_key = 1;
	return halves_open(engine, params);
}

void engine_close(struct engine *engine)
{
	uint32_t rank;

	for (rank = 0; rank < engine->rank_count; rank++) {
		if (engine->workers[rank])
			engine->ops->worker->close(engine->workers[rank]);
		if (engine->foreign && engine->memory[rank])
			(void)munmap(engine->memory[rank],
				     engine->memory_bytes);
	}
	if (engine->scheduler)
		engine->ops->scheduler->close(engine->scheduler);
	free(engine->bytes);
	free(engine->free_blocks);
	free(engine->reports);
	free(engine->events);
}

static void event_add(struct engine *engine, const struct engine_event *event)
{
	if (engine->event_count == ENGINE_EVENTS_MAX) {
		fprintf(stderr, "more events than the model engine takes\n");
		abort();
	}
	engine->events[(engine->event_first + engine->event_count++) %
		       ENGINE_EVENTS_MAX] = *event;
}

int engine_event(struct engine *engine, struct engine_event *event)
{
	if (!engine->event_count)
		return 0;
	*event = engine->events[engine->event_first];
	engine->event_first = (engine->event_first + 1) % ENGINE_EVENTS_MAX;
	engine->event_count--;
	return 1;
}

static struct engine_report *report_find(struct engine *engine, uint64_t key,
					 uint32_t kind)
{
	const uint32_t sent = kind == KVPULL_POLL_SENT;
	uint32_t index;

	for (index = 0; index < engine->report_count; index++) {
		struct engine_report *report = &engine->reports[index];

		if (report->key == key &&
		    (report->kind == KVPULL_POLL_SENT) == sent)
			return report;
	}
	if (engine->report_count == ENGINE_EVENTS_MAX)
		abort();
	engine->reports[engine->report_count] =
		(struct engine_report){ .key = key, .kind = kind };
	return &engine->reports[engine->report_count++];
}

/* Pulls die with a worker; holds of the old one are reported by the new one. */
static int is_lost(const struct engine *engine, uint32_t rank, uint64_t key,
		   uint32_t kind)
{
	return kind != KVPULL_POLL_SENT && key < engine->first_key[rank];
}

/*
 * The event, if each rank has reported. A pull that a rank will never report
 * has failed.
 */
static void report_settle(struct engine *engine, struct engine_report *report)
{
	uint32_t rank;

	for (rank = 0; rank < engine->rank_count; rank++) {
		if (report->ranks & UINT64_C(1) << rank)
			continue;
		if (!is_lost(engine, rank, report->key, report->kind))
			return;
		if (report->event.kind == KVPULL_POLL_LOADED) {
			report->event.kind = KVPULL_POLL_FAILED;
			report->event.reason = KVPULL_EPEER;
		}
	}
	event_add(engine, &report->event);
	*report = engine->reports[--engine->report_count];
}

int engine_rank_restarted(struct engine *engine, uint32_t rank)
{
	uint32_t index;

	engine->first_key[rank] = engine->next_key;
	for (index = engine->report_count; index > 0; index--) {
		struct engine_report *report = &engine->reports[index - 1];

		/* Blocks that this rank had loaded are gone with its memory. */
		if (report->event.kind == KVPULL_POLL_LOADED &&
		    report->ranks >> rank & 1) {
			report->event.kind = KVPULL_POLL_FAILED;
			report->event.reason = KVPULL_EPEER;
		}
		report_settle(engine, report);
	}
	return rank_introduce(engine, rank);
}

static void slowest_take(struct engine_event *event,
			 const struct kvpull_poll_record *record)
{
	uint64_t *phase_ns = event->phase_ns;

	event->took_ns = record->took_ns;
	phase_ns[ENGINE_QUEUE] = record->begun_ns;
	phase_ns[ENGINE_CONNECT] = record->asked_ns - record->begun_ns;
	phase_ns[ENGINE_READ] = record->came_ns - record->asked_ns;
	phase_ns[ENGINE_CHECK] = record->took_ns - record->came_ns;
}

/* Counts one rank's record of a key; the last rank's makes the event. */
static void report_take(struct engine *engine, uint32_t rank,
			const struct kvpull_poll_record *record)
{
	struct engine_report *report =
		report_find(engine, record->key, record->kind);
	const uint64_t bit = UINT64_C(1) << rank;

	if (report->ranks & bit ||
	    is_lost(engine, rank, record->key, record->kind)) {
		engine->double_reports++;
		return;
	}
	report->ranks |= bit;
	report->event.key = record->key;
	if (record->kind != KVPULL_POLL_LOADED || !report->event.kind)
		report->event.kind = record->kind;
	if (!report->event.reason)
		report->event.reason = record->reason;
	report->event.bytes += record->bytes;
	if (record->took_ns > report->event.took_ns)
		slowest_take(&report->event, record);
	report_settle(engine, report);
}

int engine_rank_turn(struct engine *engine, uint32_t rank, const void *bytes,
		     size_t byte_count, struct kvpull_poll_record *records,
		     uint32_t capacity)
{
	const struct kvpull_worker_ops *ops = engine->ops->worker;
	struct kvpull_worker *worker = engine->workers[rank];
	int code = 0;

	if (engine->carrier)
		return engine->carrier->turn(engine->carrier->context, rank,
					     bytes, byte_count, records,
					     capacity);
	if (byte_count && engine->gpu && engine->gpu->marks &&
	    ops->engine_mark(worker, engine->gpu->stream) < 0)
		return KVPULL_EDEVICE;
	if (byte_count) {
		code = ops->step(worker, bytes, byte_count);
		if (!code)
			code = ops->start_loads(worker, NULL);
	}
	return code ? code :
		      ops->poll(worker, records, capacity, sizeof(*records));
}

static int rank_step(struct engine *engine, uint32_t rank, size_t step_bytes)
{
	struct kvpull_poll_record records[RECORDS] = { 0 };
	const int count = engine_rank_turn(engine, rank, engine->bytes,
					   step_bytes, records, RECORDS);
	int index;

	for (index = 0; index < count; index++)
		report_take(engine, rank, &records[index]);
	return count < 0 ? count : 0;
}

int engine_rank_result(struct engine *engine, uint32_t rank, void *bytes,
		       size_t capacity, size_t *byte_count)
{
	if (engine->carrier)
		return engine->carrier->result(engine->carrier->context, rank,
					       bytes, capacity, byte_count);
	return engine->ops->worker->result_build(engine->workers[rank], bytes,
						 capacity, byte_count);
}

static int rank_result(struct engine *engine, uint32_t rank)
{
	size_t byte_count = 0;
	int code = engine_rank_result(engine, rank, engine->bytes,
				      engine->bytes_capacity, &byte_count);

	if (!code && byte_count)
		code = engine->ops->scheduler->result_take(
			engine->scheduler, engine->bytes, byte_count);
	return code;
}

uint32_t engine_waits(const struct engine *engine,
		      struct pollfd waits[ENGINE_RANKS_MAX])
{
	uint32_t rank;

	for (rank = 0; rank < engine->rank_count; rank++) {
		waits[rank].fd =
			engine->ops->worker->event_fd(engine->workers[rank]);
		waits[rank].events = POLLIN;
	}
	return rank;
}

int engine_has_step(const struct engine *engine)
{
	const int bits = engine->ops->scheduler->has_pending(engine->scheduler);

	/* An error is what the next step says, too. */
	return bits > 0 && (uint32_t)bits & KVPULL_PENDING_STEP;
}

uint64_t engine_count(const struct engine *engine, uint32_t rank,
		      const char *name)
{
	struct kvpull_counter all[COUNTERS_MAX];
	int count = engine->ops->worker->counters(engine->workers[rank], all,
						  COUNTERS_MAX, sizeof(*all));

	if (count > COUNTERS_MAX)
		count = COUNTERS_MAX;
	for (; count > 0; count--)
		if (!strcmp(all[count - 1].name, name))
			return all[count - 1].value;
	return 0;
}

uint32_t engine_peers(const struct engine *engine, uint32_t rank,
		      struct kvpull_peer_info *peers, uint32_t capacity)
{
	const int count = engine->ops->worker->peers(
		engine->workers[rank], peers, capacity, sizeof(*peers));

	return count < 0                  ? 0 :
	       (uint32_t)count < capacity ? (uint32_t)count :
					    capacity;
}

int engine_poll(struct engine *engine)
{
	uint32_t rank;
	int code = 0;

	for (rank = 0; !code && rank < engine->rank_count; rank++)
		code = rank_step(engine, rank, 0);
	return code;
}

int engine_step(struct engine *engine)
{
	size_t step_bytes = 0;
	uint32_t rank;
	int code;

	code = engine->ops->scheduler->step_build(
		engine->scheduler, engine->bytes, engine->bytes_capacity,
		&step_bytes);
	for (rank = 0; !code && rank < engine->rank_count; rank++)
		code = rank_step(engine, rank, step_bytes);
	for (rank = 0; !code && rank < engine->rank_count; rank++)
		code = rank_result(engine, rank);
	return code;
}

int engine_blocks_take(struct engine *engine, uint32_t *ids, uint32_t count)
{
	if (engine->free_count < count)
		return KVPULL_EFULL;
	engine->free_count -= count;
	memcpy(ids, engine->free_blocks + engine->free_count,
	       count * sizeof(*ids));
	return 0;
}

void engine_blocks_give(struct engine *engine, const uint32_t *ids,
			uint32_t count)
{
	memcpy(engine->free_blocks + engine->free_count, ids,
	       count * sizeof(*ids));
	engine->free_count += count;
}
