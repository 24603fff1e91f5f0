/* SPDX-License-Identifier: Apache-2.0 */
/* Three engines of one model: opened, restarted by halves, closed. */
#include "tests/fuzz/api.h"
#include "tests/lib/folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_BYTES 32

struct api_world *api_world;
struct api_counts api_counts;

static void host_fatal(void *context, const char *message)
{
	(void)context;
	api_fail("fatal: %s", message);
}

static void host_log(void *context, uint32_t level, const char *message)
{
	/* The calling thread may be the library's own. */
	if (!api_world->shape.is_threaded)
		api_trace("%s: log %u: %s",
			  ((const struct api_engine *)context)->name, level,
			  message);
}

static struct kvpull_group *groups(void)
{
	static struct kvpull_group all[API_GROUPS_MAX];
	uint32_t group;

	for (group = 0; group < API_GROUPS_MAX; group++)
		all[group] = (struct kvpull_group){
			.block_tokens = api_world->shape.block_tokens,
			.kind = group && api_world->shape.is_window ?
					KVPULL_GROUP_SLIDING :
				group && api_world->shape.is_state ?
					KVPULL_GROUP_STATE :
					KVPULL_GROUP_FULL,
		};
	return all;
}

struct kvpull_open_params api_open_params(const struct api_engine *engine,
					  uint32_t rank)
{
	static struct kvpull_model model;
	static struct kvpull_host hosts[API_ENGINES];
	struct kvpull_host *host = &hosts[engine->index];

	*host = (struct kvpull_host){
		.struct_size = sizeof(*host),
		.context = (void *)(uintptr_t)engine,
		.log = host_log,
		.fatal = host_fatal,
	};
	model = (struct kvpull_model){
		.struct_size = sizeof(model),
		.model = "fuzz",
		.dtype = "bytes",
		.layout = "any",
		.layer_count = api_world->shape.group_count * API_LAYERS,
		.head_count = API_HEADS,
		.head_bytes = api_world->shape.is_unlike ?
				      0 :
				      api_world->shape.plane_count *
					      api_token_bytes(0),
		.replicated = api_world->shape.replicated,
	};
	return (struct kvpull_open_params){
		.struct_size = sizeof(struct kvpull_open_params),
		.host = host,
		.config_json = engine->config,
		.model = &model,
		.engine_id = engine->name,
		.tp_size = engine->tp_size,
		.tp_rank = rank,
		.groups = groups(),
		.group_bytes = sizeof(struct kvpull_group),
		.group_count = api_world->shape.group_count,
	};
}

static void memory_make(struct api_engine *engine, uint32_t rank)
{
	const struct kvpull_worker_ops *ops = api_world->ops->worker;
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct api_rank *to = &engine->ranks[rank];

	if (api_chance(250)) {
		to->foreign = calloc(1, to->memory_bytes);
		to->memory = to->foreign;
		api_expect(to->memory != NULL);
		return;
	}
	api_expect(
		!ops->memory_alloc(to->worker, to->memory_bytes, 0, &memory));
	to->memory = memory.base;
}

/* The lie of a record is refused by both halves, and names a member. */
static void lie_open(const struct api_engine *engine, uint32_t rank)
{
	struct kvpull_open_params params = api_open_params(engine, rank);
	struct kvpull_model model = *params.model;
	struct kvpull_group all[API_GROUPS_MAX];
	struct kvpull_error_detail details[2] = {
		{ .struct_size = sizeof(details[0]) },
		{ .struct_size = sizeof(details[1]) },
	};
	struct kvpull_scheduler *scheduler;
	struct kvpull_worker *worker;

	memcpy(all, params.groups, sizeof(all));
	if (!api_lie_tell_model(&model, all))
		return;
	params.model = &model;
	params.groups = all;
	if (!api_world->ops->worker->open(&params, &worker, &details[0]))
		api_lie_taken(engine, rank);
	params.tp_rank = 0;
	if (!api_world->ops->scheduler->open(&params, &scheduler, &details[1]))
		api_lie_taken(engine, rank);
	api_expect(details[0].field[0] && details[1].field[0]);
	api_counts.lies++;
}

int api_worker_open(struct api_engine *engine, uint32_t rank)
{
	const struct kvpull_open_params params = api_open_params(engine, rank);
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct api_rank *to = &engine->ranks[rank];
	const uint32_t life = to->life;
	int code;

	lie_open(engine, rank);
	code = api_world->ops->worker->open(&params, &to->worker, &detail);
	if (code)
		api_fail("%s rank %u: open: %s: %s", engine->name, rank,
			 detail.field, detail.message);
	to->life = life + 1;
	api_caches_make(engine, rank);
	memory_make(engine, rank);
	api_rank_forget(engine, rank, 1);
	return code;
}

static int regions_register(struct api_engine *engine, uint32_t rank,
			    const struct kvpull_region *region,
			    const struct kvpull_cache *caches,
			    uint32_t cache_count)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	const struct kvpull_regions regions = { .struct_size = sizeof(regions),
						.regions = region,
						.caches = caches,
						.region_count = 1,
						.cache_count = cache_count };
	const int code = api_world->ops->worker->regions_register(
		engine->ranks[rank].worker, &regions, &detail);

	api_expect(!code || (detail.field[0] && detail.message[0]));
	if (code)
		api_trace("%s rank %u: register: %s: %s", engine->name, rank,
			  detail.field, detail.message);
	return code;
}

void api_worker_register(struct api_engine *engine, uint32_t rank)
{
	struct api_rank *to = &engine->ranks[rank];
	const struct kvpull_region region = {
		.struct_size = sizeof(region),
		.kind = to->foreign ? KVPULL_REGION_FOREIGN :
				      KVPULL_REGION_PROVIDED,
		.fd = -1,
		.base = to->memory,
		.bytes = to->memory_bytes,
	};
	struct kvpull_cache caches[API_CACHES_MAX + 1];
	struct kvpull_region told = region;
	uint32_t cache_count;

	to->registered = 1;
	if (api_lie_tell(to, &told, caches, &cache_count)) {
		if (!regions_register(engine, rank, &told, caches,
				      cache_count)) {
			api_lie_taken(engine, rank);
			return;
		}
		api_counts.lies++;
	}
	/* After a refusal the host can register again. */
	if (regions_register(engine, rank, &region, to->caches,
			     to->cache_count))
		api_fail("%s rank %u: register", engine->name, rank);
}

void api_rank_introduce(struct api_engine *engine, uint32_t rank)
{
	struct api_rank *from = &engine->ranks[rank];
	uint8_t bytes[4096];
	size_t byte_count = 0;

	if (!from->registered)
		return;
	api_expect(!api_world->ops->worker->rank_info(
		from->worker, bytes, sizeof(bytes), &byte_count));
	api_expect(!api_world->ops->scheduler->rank_info(engine->scheduler,
							 bytes, byte_count));
	api_rank_known(engine, rank);
}

void api_rank_known(struct api_engine *engine, uint32_t rank)
{
	struct api_rank *from = &engine->ranks[rank];

	if (!from->known && engine->introduced >> rank & 1)
		api_pulls_lost(engine, rank);
	engine->introduced |= 1u << rank;
	from->known = 1;
}

static void worker_close(struct api_engine *engine, uint32_t rank)
{
	struct api_rank *from = &engine->ranks[rank];
	const uint32_t life = from->life;
	const uint64_t before_ns = api_now_ns();

	/* close() may wait a second for peers that do not poll. */
	api_clock_cost(API_NS_PER_MS);
	api_world->ops->worker->close(from->worker);
	api_clock_cost(1000);
	if (api_now_ns() - before_ns > 2000 * API_NS_PER_MS)
		api_fail("close took %llu ms",
			 (unsigned long long)((api_now_ns() - before_ns) /
					      API_NS_PER_MS));
	/* Other engines were not asleep that long: they did nothing at all. */
	api_clock_back(before_ns + API_NS_PER_MS);
	free(from->foreign);
	from->foreign = from->memory = NULL;
	if (from->known)
		api_pulls_lost(engine, rank);
	else
		api_orphans_lost(engine, rank);
	api_rank_forget(engine, rank, 0);
	memset(from, 0, sizeof(*from));
	from->life = life;
}

void api_worker_restart(struct api_engine *engine, uint32_t rank)
{
	/*
	 * One that its scheduler half never heard of, and that pulled: whoever
	 * comes after it is given its commands again.
	 */
	if (engine->ranks[rank].follows == engine->life &&
	    !engine->ranks[rank].known) {
		if (!engine->ranks[rank].registered)
			api_worker_register(engine, rank);
		api_rank_introduce(engine, rank);
	}
	api_trace("%s: worker %u restarts", engine->name, rank);
	api_counts.restarts++;
	worker_close(engine, rank);
	(void)api_worker_open(engine, rank);
	if (api_chance(200))
		return;
	api_worker_register(engine, rank);
	if (api_chance(800))
		api_rank_introduce(engine, rank);
}

static void scheduler_open(struct api_engine *engine)
{
	const struct kvpull_open_params params = api_open_params(engine, 0);
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	uint32_t rank;

	if (api_world->ops->scheduler->open(&params, &engine->scheduler,
					    &detail))
		api_fail("%s: open: %s: %s", engine->name, detail.field,
			 detail.message);
	engine->life++;
	engine->draining = engine->introduced = 0;
	for (rank = 0; rank < API_RANKS_MAX; rank++)
		engine->ranks[rank].known = 0;
}

void api_scheduler_restart(struct api_engine *engine)
{
	uint32_t rank;

	api_trace("%s: scheduler restarts", engine->name);
	api_counts.restarts++;
	api_world->ops->scheduler->close(engine->scheduler);
	scheduler_open(engine);
	for (rank = 0; rank < engine->tp_size; rank++) {
		if (api_chance(500))
			api_worker_restart(engine, rank);
		if (api_chance(500))
			api_rank_introduce(engine, rank);
	}
}

static const char *bool_draw(void)
{
	return api_chance(500) ? "true" : "false";
}

/* The tables are so small that each of them is full now and then. */
static void config_make(struct api_engine *engine, int has_key)
{
	const struct api_shape *shape = &api_world->shape;
	const int tight = api_chance(300);
	char key[96] = "";

	if (has_key)
		(void)snprintf(key, sizeof(key), ", \"key_file\": \"%s/key\"",
			       api_world->folder);
	(void)snprintf(
		engine->config, sizeof(engine->config),
		"{\"route\": \"shm\", \"uring\": \"no\", \"huge\": \"no\", \"progress\": \"%s\", \"copy_threads\": %u, "
		"\"socket_dir\": \"%s\", \"lease_ms\": %llu, \"hold_max_ms\": %llu, \"log_level\": \"debug\", "
		"\"max_holds\": %u, \"tickets_max\": %u, \"requests_max\": %u, \"families_max\": %u, \"pulls_max\": %u, "
		"\"pull_blocks_max\": %u, \"step_log_mib\": 1, \"peers_max\": %u, \"consumers_max\": %u, \"ring_records\": %u, "
		"\"share_prefix\": %s, \"siblings_alone\": %s, \"abort_revokes\": %s, \"inline_bytes\": %u, \"deadline_ms\": %u, "
		"\"flush_after_ms\": %u%s}",
		shape->is_threaded ? "thread" : "caller",
		shape->is_threaded ? (unsigned)api_below(2) : 0u,
		api_world->folder,
		(unsigned long long)(shape->lease_ns / API_NS_PER_MS),
		(unsigned long long)(shape->hold_max_ns / API_NS_PER_MS),
		tight ? 1 + (unsigned)api_below(6) : 64,
		tight ? 1 + (unsigned)api_below(6) : 64,
		tight ? 2 + (unsigned)api_below(16) : 256,
		tight ? 1 + (unsigned)api_below(3) : 16,
		tight ? 1 + (unsigned)api_below(3) : 16,
		tight ? 1 + (unsigned)api_below(12) : 64,
		tight ? 2 + (unsigned)api_below(6) : 16,
		tight ? 2 + (unsigned)api_below(6) : 16, tight ? 16u : 256u,
		bool_draw(), bool_draw(), bool_draw(),
		api_chance(500) ? 0u : 65536u,
		api_chance(800) ? 0 : 1 + (unsigned)api_below(8),
		1 + (unsigned)api_below(20), key);
}

static void key_make(void)
{
	char path[96];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/key", api_world->folder);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	api_expect(fd >= 0);
	api_expect(write(fd, "01234567890123456789012345678901", KEY_BYTES) ==
		   KEY_BYTES);
	(void)close(fd);
}

static void engine_open(struct api_engine *engine, uint32_t index, int has_key)
{
	uint32_t rank;

	engine->index = index;
	engine->tp_size = 1 + (uint32_t)api_below(API_RANKS_MAX);
	(void)snprintf(engine->name, sizeof(engine->name), "engine%u", index);
	config_make(engine, has_key);
	scheduler_open(engine);
	for (rank = 0; rank < engine->tp_size; rank++) {
		(void)api_worker_open(engine, rank);
		/* A few calls come before the regions are registered. */
		if (api_chance(60))
			continue;
		api_worker_register(engine, rank);
		if (api_chance(950))
			api_rank_introduce(engine, rank);
	}
}

static void shape_draw(int is_threaded)
{
	struct api_shape *shape = &api_world->shape;

	shape->group_count = 1 + (uint32_t)api_below(API_GROUPS_MAX);
	api_geometry_draw(shape);
	shape->replicated = (uint32_t)api_chance(250);
	shape->is_threaded = (uint32_t)is_threaded;
	shape->lease_ns = (10 + api_below(3) * 20) * API_NS_PER_MS;
	if (is_threaded)
		shape->lease_ns = 100 * API_NS_PER_MS;
	shape->hold_max_ns = shape->lease_ns * (1 + api_below(6));
	if (api_chance(400))
		api_world->lie.kind =
			(enum api_lie_kind)api_below(API_LIE_KINDS);
	api_world->lie.amount = api_below(UINT32_MAX);
	/* A lie of a state's bytes is one that nobody can see. */
	shape->is_state =
		!shape->is_window && !api_world->lie.kind && api_chance(400);
}

/* Without a fake clock yet: the library measures its copies once a process. */
static void first_open(void)
{
	static int is_done;
	struct kvpull_worker *worker;
	struct kvpull_open_params params;

	if (is_done)
		return;
	is_done = 1;
	api_clock_init(0);
	(void)snprintf(api_world->engines[0].config, 8, "{}");
	(void)snprintf(api_world->engines[0].name, 8, "first");
	api_world->engines[0].tp_size = 1;
	api_world->shape.group_count = api_world->shape.block_tokens = 1;
	api_world->shape.row_count = api_world->shape.plane_count = 1;
	params = api_open_params(&api_world->engines[0], 0);
	api_expect(!api_world->ops->worker->open(&params, &worker, NULL));
	api_world->ops->worker->close(worker);
}

void api_world_open(int is_threaded)
{
	static char folder[] = "/tmp/kvpull-api-fuzz-XXXXXX";
	int has_key;
	uint32_t index;

	api_world = calloc(1, sizeof(*api_world));
	api_expect(api_world != NULL);
	api_world->ops = kvpull_connector_v1();
	first_open();
	api_clock_init(!is_threaded);
	memset(&api_world->engines[0], 0, sizeof(api_world->engines[0]));
	(void)snprintf(folder + sizeof(folder) - 7, 7, "XXXXXX");
	api_expect(mkdtemp(folder) != NULL);
	(void)snprintf(api_world->folder, sizeof(api_world->folder), "%s",
		       folder);
	shape_draw(is_threaded);
	api_world->key_next = api_world->content_next = 1;
	api_world->hold_next = 1;
	has_key = api_chance(200);
	if (has_key)
		key_make();
	for (index = 0; index < API_ENGINES; index++)
		engine_open(&api_world->engines[index], index, has_key);
}

void api_world_close(void)
{
	char path[96];
	uint32_t index;
	uint32_t rank;

	if (api_world->lie.taken)
		api_fail("lie %u was believed, and no read showed it",
			 api_world->lie.kind);
	for (index = 0; index < API_ENGINES; index++) {
		struct api_engine *engine = &api_world->engines[index];

		for (rank = 0; rank < engine->tp_size; rank++)
			worker_close(engine, rank);
		api_world->ops->scheduler->close(engine->scheduler);
	}
	for (index = 0; index < API_HOLDS_MAX; index++)
		free(api_world->holds[index].ticket);
	api_messages_drop();
	(void)snprintf(path, sizeof(path), "%s/key", api_world->folder);
	(void)unlink(path);
	if (folder_remove(api_world->folder))
		api_fail("%s is not empty: sockets were left",
			 api_world->folder);
	free(api_world);
	api_world = NULL;
}
