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

#define STEP_BYTES (8u << 20)
#define RECORDS 256

uint64_t engine_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

int engine_library_find(const char *name, void *function)
{
	char path[PATH_MAX + 32];
	const char *named = getenv("KVPULL_TEST_LIBRARY");
	void *library = NULL;
	/* A link to a file that was replaced meanwhile still names its folder. */
	const ssize_t used = readlink("/proc/self/exe", path, PATH_MAX);
	void *symbol;

	if (named) {
		library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
	} else if (used > 0) {
		path[used] = '\0';
		(void)snprintf(strrchr(path, '/') + 1, 32, "libkvpull.so.1");
		library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	if (!library && !named)
		library = dlopen("libkvpull.so.1", RTLD_NOW | RTLD_LOCAL);
	symbol = library ? dlsym(library, name) : NULL;
	if (!symbol) {
		fprintf(stderr, "%s%s\n", dlerror(),
			library ?
				"" :
				"; after make install run ldconfig, or set LD_LIBRARY_PATH to its folder");
		return 1;
	}
	/* POSIX lets a symbol's address be a function; C does not say so. */
	memcpy(function, &symbol, sizeof(symbol));
	return 0;
}

const struct kvpull_connector_ops *engine_library(void)
{
	kvpull_connector_v1_fn connector;

	return engine_library_find("kvpull_connector_v1", &connector) ?
		       NULL :
		       connector();
}

static int memory_take(struct engine *engine, uint32_t rank)
{
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	int code = 0;

	if (engine->foreign)
		memory.base =
			mmap(NULL, engine->memory_bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	else
		code = engine->ops->worker->memory_alloc(
			engine->workers[rank], engine->memory_bytes,
			engine->gpu ? KVPULL_MEMORY_DEVICE : KVPULL_MEMORY_HUGE,
			&memory);
	if (memory.base == MAP_FAILED)
		code = KVPULL_ENOMEM;
	if (!code)
		engine->memory[rank] = memory.base;
	else
		(void)snprintf(engine->detail.message,
			       sizeof(engine->detail.message),
			       "no %" PRIu64 " MiB of memory for the blocks",
			       engine->memory_bytes >> 20);
	return code;
}

struct engine_layers engine_layers(const struct engine *engine, uint32_t rank,
				   uint32_t group)
{
	const struct engine_shape *shape = &engine->shape;
	const uint32_t count = shape->layer_count / shape->group_count;
	const uint32_t stage = rank / engine->tp_size;
	const uint32_t begin = shape->layer_count * stage / engine->pp_size;
	const uint32_t behind =
		shape->layer_count * (stage + 1) / engine->pp_size;
	struct engine_layers layers = { group * count, (group + 1) * count };

	if (layers.first < begin)
		layers.first = begin;
	if (layers.end > behind)
		layers.end = behind;
	return layers;
}

/* A cache for each group that has layers in the rank's stage. */
static uint32_t caches_fill(const struct engine *engine, uint32_t rank,
			    struct kvpull_cache caches[KVPULL_GROUPS_MAX])
{
	const struct engine_shape *shape = &engine->shape;
	const uint32_t heads = ENGINE_HEADS / engine->tp_size;
	uint32_t count = 0;
	uint32_t group;

	for (group = 0; group < shape->group_count; group++) {
		const struct engine_layers layers =
			engine_layers(engine, rank, group);

		if (layers.first >= layers.end)
			continue;
		caches[count++] = (struct kvpull_cache){
			.struct_size = sizeof(*caches),
			.group_index = group,
			.layer_first = layers.first,
			.layer_count = layers.end - layers.first,
			.offset = layers.first * engine->layer_bytes,
			.layer_stride = engine->layer_bytes,
			.block_stride = engine->block_bytes,
			.head_stride = shape->block_bytes / ENGINE_HEADS,
			.block_count = shape->block_count,
			.row_count = 1,
			.head_first = rank % engine->tp_size * heads,
			.head_count = heads,
			.head_bytes = shape->block_bytes / ENGINE_HEADS,
		};
	}
	return count;
}

static int regions_register(struct engine *engine,
			    const struct engine_params *params, uint32_t rank)
{
	struct kvpull_cache caches[KVPULL_GROUPS_MAX];
	const struct kvpull_region region = {
		.struct_size = sizeof(region),
		.kind = params->gpu     ? KVPULL_REGION_DEVICE :
			params->device  ? KVPULL_REGION_DMABUF :
			params->foreign ? KVPULL_REGION_FOREIGN :
					  KVPULL_REGION_PROVIDED,
		.fd = params->device ? STDERR_FILENO : -1,
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
						     &regions, &engine->detail);
}

static int rank_introduce(struct engine *engine, uint32_t rank)
{
	uint8_t info[4096];
	size_t info_bytes = 0;
	const int code = engine->ops->worker->rank_info(
		engine->workers[rank], info, sizeof(info), &info_bytes);

	return code ? code :
		      engine->ops->scheduler->rank_info(engine->scheduler, info,
							info_bytes);
}

static int rank_open(struct engine *engine, const struct engine_params *params,
		     struct kvpull_open_params *open, uint32_t rank)
{
	int code;

	open->tp_rank = rank % engine->tp_size;
	open->pp_rank = rank / engine->tp_size;
	code = engine->ops->worker->open(open, &engine->workers[rank],
					 &engine->detail);
	if (!code)
		code = memory_take(engine, rank);
	if (!code)
		code = regions_register(engine, params, rank);
	if (!code && engine->scheduler)
		code = rank_introduce(engine, rank);
	return code;
}

static int halves_open(struct engine *engine,
		       const struct engine_params *params)
{
	const struct engine_shape *shape = &params->shape;
	struct kvpull_group groups[KVPULL_GROUPS_MAX] = { { 0 } };
	const struct kvpull_model model = {
		.struct_size = sizeof(model),
		.model = params->model ? params->model : "ib_pull",
		.revision = params->revision,
		.weights = params->weights,
		.dtype = params->dtype ? params->dtype : "bytes",
		.layout = params->layout ? params->layout : "LBHNC",
		.layer_count = shape->layer_count,
		.head_count = ENGINE_HEADS,
		.head_bytes = shape->block_bytes /
			      (ENGINE_HEADS * shape->block_tokens),
	};
	struct kvpull_open_params open = {
		.struct_size = sizeof(open),
		.host = params->host,
		.config_json = params->config_json,
		.model = &model,
		.engine_id = params->engine_id,
		.tp_size = params->tp_size,
		.pp_size = params->pp_size,
		.groups = groups,
		.group_bytes = sizeof(*groups),
		.group_count = shape->group_count,
		.device_kind = params->gpu ? params->gpu->kind : 0,
		.device_index = params->gpu ? params->gpu->index : 0,
	};
	uint32_t index;
	int code = 0;

	for (index = 0; index < shape->group_count; index++)
		groups[index].block_tokens = shape->block_tokens;
	if (shape->has_states)
		groups[index - 1].kind = KVPULL_GROUP_STATE;
	if (params->only_rank)
		return rank_open(engine, params, &open, params->only_rank - 1);
	code = engine->ops->scheduler->open(&open, &engine->scheduler,
					    &engine->detail);
	for (index = 0; !code && index < engine->rank_count; index++)
		code = rank_open(engine, params, &open, index);
	return code;
}

/* Shuffled, so that neighbours in a request are not so in memory. */
static void pool_fill(struct engine *engine, uint32_t contiguous)
{
	uint64_t random = 88172645463325252u;
	uint32_t *ids = engine->free_blocks;
	uint32_t id;

	for (id = 0; id < engine->shape.block_count; id++) {
		const uint64_t place =
			contiguous ? id : engine_random(&random) % (id + 1);

		ids[id] = ids[place];
		ids[place] = id;
	}
	engine->free_count = id;
}

int engine_open(struct engine *engine, const struct engine_params *params)
{
	const struct engine_shape *shape = &params->shape;
	const uint32_t pp_size = params->pp_size ? params->pp_size : 1;
	int code;

	*engine = (struct engine){
		.ops = params->ops,
		.shape = *shape,
		.tp_size = params->tp_size,
		.pp_size = pp_size,
		.rank_count = params->tp_size * pp_size,
		.gpu = params->gpu,
		.foreign = params->foreign,
		.bytes = malloc(STEP_BYTES),
		.free_blocks = calloc(shape->block_count, sizeof(uint32_t)),
		.events =
			calloc(ENGINE_EVENTS_MAX, sizeof(struct engine_event)),
		.next_key = 1,
		.detail = { .struct_size = sizeof(engine->detail) },
	};
	engine->block_bytes = shape->block_bytes / params->tp_size;
	engine->layer_bytes = engine->block_bytes * shape->block_count;
	engine->memory_bytes = engine->layer_bytes * shape->layer_count;
	engine->words = malloc(engine->block_bytes);
	if (!engine->bytes || !engine->free_blocks || !engine->events ||
	    !engine->words) {
		fprintf(stderr, "%s: out of memory\n", params->engine_id);
		return KVPULL_ENOMEM;
	}
	pool_fill(engine, params->contiguous);
	code = halves_open(engine, params);
	if (code && !params->quiet)
		fprintf(stderr, "%s: %s%s%s (%s)\n", params->engine_id,
			engine->detail.field,
			engine->detail.field[0] ? ": " : "",
			engine->detail.message, engine->ops->error_text(code));
	return code;
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
	free(engine->words);
	free(engine->free_blocks);
	free(engine->events);
}

int engine_event(struct engine *engine, struct engine_event *event)
{
	struct engine_event *events = engine->events;

	if (!engine->event_count)
		return 0;
	*event = events[0];
	engine->event_count--;
	memmove(events, events + 1,
		(engine->event_count + engine->open_count) * sizeof(*events));
	return 1;
}

/* Pulls die with a worker; holds of the old one are reported by the new one. */
static int is_lost(const struct engine *engine, uint32_t rank, uint64_t key,
		   uint32_t kind)
{
	return kind != KVPULL_POLL_SENT && key < engine->first_key[rank];
}

/* The event of a record, begun with the first rank's record of its key. */
static struct engine_event *event_find(struct engine *engine,
				       const struct kvpull_poll_record *record)
{
	const uint32_t end = engine->event_count + engine->open_count;
	struct engine_event *event = engine->events + engine->event_count;

	for (; event < engine->events + end; event++)
		if (event->key == record->key &&
		    (event->kind == KVPULL_POLL_SENT) ==
			    (record->kind == KVPULL_POLL_SENT))
			return event;
	if (end == ENGINE_EVENTS_MAX) {
		fprintf(stderr, "more events than the model engine takes\n");
		abort();
	}
	engine->open_count++;
	*event = (struct engine_event){ .key = record->key,
					.kind = record->kind };
	return event;
}

/* A rank's blocks of this pull are lost. */
static void event_fail(struct engine_event *event)
{
	if (event->kind != KVPULL_POLL_LOADED)
		return;
	event->kind = KVPULL_POLL_FAILED;
	event->reason = KVPULL_EPEER;
}

/*
 * Ends the event if each rank has reported. A pull that a rank will never
 * report has failed.
 */
static void event_settle(struct engine *engine, struct engine_event *event)
{
	struct engine_event *place = &engine->events[engine->event_count];
	struct engine_event ended;
	uint32_t rank;

	for (rank = 0; rank < engine->rank_count; rank++) {
		if (event->ranks >> rank & 1)
			continue;
		if (!is_lost(engine, rank, event->key, event->kind))
			return;
		event_fail(event);
	}
	ended = *event;
	*event = *place;
	*place = ended;
	engine->event_count++;
	engine->open_count--;
}

int engine_rank_restarted(struct engine *engine, uint32_t rank)
{
	uint32_t at = engine->event_count;
	uint32_t left;

	engine->first_key[rank] = engine->next_key;
	for (left = engine->open_count; left; left--, at++) {
		struct engine_event *event = &engine->events[at];

		/* Blocks that this rank had loaded are gone with its memory. */
		if (event->ranks >> rank & 1)
			event_fail(event);
		event_settle(engine, event);
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

/* Counts one rank's record of a key; the last rank's ends the event. */
static void record_take(struct engine *engine, uint32_t rank,
			const struct kvpull_poll_record *record)
{
	struct engine_event *event =
		is_lost(engine, rank, record->key, record->kind) ?
			NULL :
			event_find(engine, record);

	if (!event || event->ranks >> rank & 1) {
		engine->double_reports++;
		return;
	}
	event->ranks |= UINT64_C(1) << rank;
	if (record->kind != KVPULL_POLL_LOADED)
		event->kind = record->kind;
	if (!event->reason)
		event->reason = record->reason;
	event->bytes += record->bytes;
	if (record->took_ns > event->took_ns)
		slowest_take(event, record);
	event_settle(engine, event);
}

int engine_rank_turn(struct engine *engine, uint32_t rank, const void *bytes,
		     size_t byte_count, struct kvpull_poll_record *records,
		     uint32_t capacity)
{
	const struct kvpull_worker_ops *ops = engine->ops->worker;
	struct kvpull_worker *worker = engine->workers[rank];
	int code = 0;

	if (byte_count && engine->gpu && engine->gpu->marks &&
	    ops->engine_mark(worker, engine->gpu->stream) < 0)
		return KVPULL_EDEVICE;
	if (byte_count)
		code = ops->step(worker, bytes, byte_count);
	if (byte_count && !code)
		code = ops->start_loads(worker, NULL);
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
		record_take(engine, rank, &records[index]);
	return count < 0 ? count : 0;
}

static int rank_result(struct engine *engine, uint32_t rank)
{
	size_t byte_count = 0;
	int code = engine->ops->worker->result_build(
		engine->workers[rank], engine->bytes, STEP_BYTES, &byte_count);

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

uint64_t engine_counter(const struct kvpull_counter *row, const char *name)
{
	while (row->name && strcmp(row->name, name) != 0)
		row++;
	return row->value;
}

uint64_t engine_count(const struct engine *engine, const char *name)
{
	struct kvpull_counter rows[ENGINE_COUNTERS_MAX + 1] = { { 0 } };
	uint64_t count = 0;
	uint32_t rank;

	for (rank = 0; rank < engine->rank_count; rank++) {
		(void)engine->ops->worker->counters(engine->workers[rank], rows,
						    ENGINE_COUNTERS_MAX,
						    sizeof(*rows));
		count += engine_counter(rows, name);
	}
	return count;
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
	int code = engine->ops->scheduler->step_build(
		engine->scheduler, engine->bytes, STEP_BYTES, &step_bytes);

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
