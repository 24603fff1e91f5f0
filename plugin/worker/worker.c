/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half: open, close, memory and regions.
 *
 * Invariants: all memory is in arenas that are sealed before create() returns;
 * nothing is served before the regions are known; every hold is revoked before
 * memory that it names is unmapped.
 */
#include "plugin/worker/worker.h"

#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sodium.h>

#include "base/params.h"
#include "plugin/progress/plan.h"
#include "shm/file.h"

#define CLOSE_NS KVPULL_NS_PER_S

static uint64_t clock_now(void *context)
{
	(void)context;
	return kvpull_clock_ns();
}

/*
 * What an engine's step with a pull touches, with the ids of the pulls that are
 * used first and so most: the last one that was freed is the next.
 */
static void pulls_take(struct kvpull_worker *worker)
{
	const struct kvpull_config *config = &worker->facts.config;
	const uint32_t hot_count = config->pulls_max < KVPULL_PULLS_HOT ?
					   config->pulls_max :
					   KVPULL_PULLS_HOT;
	const size_t ids_bytes =
		2 * (size_t)config->pull_blocks_max * sizeof(uint32_t);
	struct kvpull_arena *hot = &worker->hot;

	kvpull_index_pool_init(&worker->pull_pool, config->pulls_max, hot);
	worker->handover.pulls = kvpull_arena_take(
		hot, config->pulls_max, sizeof(*worker->handover.pulls));
	worker->pull_notes = kvpull_arena_take(hot, config->pulls_max,
					       sizeof(*worker->pull_notes));
	kvpull_map_init(&worker->pull_map, config->pulls_max, hot);
	kvpull_map_init(&worker->claim_map, kvpull_config_claims_max(config),
			hot);
	worker->ids_few = kvpull_arena_take(hot, config->pulls_max,
					    2 * KVPULL_PAIRS_FEW *
						    sizeof(*worker->ids_few));
	worker->ids_hot = kvpull_arena_take(hot, hot_count, ids_bytes);
	worker->ids = kvpull_arena_take(
		&worker->arena, config->pulls_max - hot_count, ids_bytes);
	worker->pulls_start.first = worker->pulls_small.first = KVPULL_NONE;
	worker->pulls_ended.first = KVPULL_NONE;
	worker->pull_failed = KVPULL_NONE;
}

static int tables_take(struct kvpull_worker *worker)
{
	const struct kvpull_config *config = &worker->facts.config;
	struct kvpull_arena *arena = &worker->arena;

	kvpull_index_pool_init(&worker->claim_pool,
			       kvpull_config_claims_max(config), arena);
	worker->claim_notes =
		kvpull_arena_take(arena, kvpull_config_claims_max(config),
				  sizeof(*worker->claim_notes));
	worker->consumer_notes =
		kvpull_arena_take(arena, worker->facts.caller_count_max,
				  sizeof(*worker->consumer_notes));
	worker->active = kvpull_arena_take(arena, config->consumers_max,
					   sizeof(*worker->active));
	worker->facts.caches = kvpull_arena_take(arena, KVPULL_CACHES_MAX,
						 sizeof(*worker->facts.caches));
	worker->refused = kvpull_arena_take(arena, config->requests_max,
					    sizeof(*worker->refused));
	worker->result_count_max = config->max_holds + 2 * config->pulls_max +
				   config->requests_max + 1; /* RANK */
	worker->results = kvpull_arena_take(arena, worker->result_count_max,
					    sizeof(*worker->results));
	pulls_take(worker);
	return kvpull_arena_ok(arena) && kvpull_arena_ok(&worker->hot) ?
		       0 :
		       KVPULL_ENOMEM;
}

static int holds_take(struct kvpull_worker *worker)
{
	const struct kvpull_config *config = &worker->facts.config;
	struct kvpull_hold_params params = {
		.log = &worker->facts.log,
		.incarnation = worker->facts.incarnation,
		.lease_ns = config->lease_ms * KVPULL_NS_PER_MS,
		.hold_max_ns = config->hold_max_ms * KVPULL_NS_PER_MS,
		.grace_ns = config->grace_ms * KVPULL_NS_PER_MS,
		.hold_count_max = config->max_holds,
		.instance_count_max = 2 * config->consumers_max,
	};
	const size_t bytes = (size_t)config->max_holds *
			     sizeof(struct kvpull_revocation_entry);
	int code;

	code = kvpull_segment_make(&worker->entries, "kvpull-revocation", bytes,
				   KVPULL_SEGMENT_READ_ONLY, 0,
				   &worker->facts.log);
	if (code)
		return code;
	memcpy(params.secret, worker->secret, sizeof(params.secret));
	params.shown = worker->status.holds;
	/* A page-aligned mapping serves the entries' alignment. */
	params.entries =
		(struct kvpull_revocation_entry *)(void *)worker->entries.base;
	worker->holds = kvpull_holds_open(&params, &worker->arena);
	if (!worker->holds)
		return KVPULL_ENOMEM;
	worker->facts.serve.entries = params.entries;
	worker->facts.serve.entries_fd = worker->entries.fd;
	worker->facts.serve.slot_count = config->max_holds;
	return 0;
}

/* What version 1 does not do is refused by name, not ignored. */
int kvpull_worker_params_check(const struct kvpull_open_params *params,
			       struct kvpull_error_detail *detail)
{
	uint32_t group;

	if (params->pp_size > 1 || params->dcp_size > 1 || params->push_mode) {
		kvpull_detail_set(
			detail, KVPULL_EUNSUPPORTED,
			params->push_mode   ? "push_mode" :
			params->pp_size > 1 ? "pp_size" :
					      "dcp_size",
			"not supported in this version: use 1 (push_mode: 0)");
		return KVPULL_EUNSUPPORTED;
	}
	if (!params->engine_id || !*params->engine_id ||
	    !kvpull_fields_text_is_good(params->engine_id,
					KVPULL_ENGINE_ID_BYTES_MAX)) {
		kvpull_detail_set(
			detail, KVPULL_EINVAL, "engine_id",
			"needed: 1 .. %u bytes without control characters",
			KVPULL_ENGINE_ID_BYTES_MAX - 1);
		return KVPULL_EINVAL;
	}
	for (group = 0; group < params->group_count; group++)
		if (params->groups[group].kind >= KVPULL_GROUP_STATE) {
			kvpull_detail_set(
				detail, KVPULL_EUNSUPPORTED, "groups",
				"group %u: recurrent state slots are not supported in this version",
				group);
			return KVPULL_EUNSUPPORTED;
		}
	if (!params->tp_size || params->tp_size > KVPULL_RANKS_MAX ||
	    params->tp_rank >= params->tp_size) {
		kvpull_detail_set(detail, KVPULL_EINVAL, "tp_rank",
				  "tp_rank %u of tp_size %u: size is 1 .. %u",
				  params->tp_rank, params->tp_size,
				  KVPULL_RANKS_MAX);
		return KVPULL_EINVAL;
	}
	return kvpull_compat_check(params, detail);
}

/* The last error that is logged while it is there, for a call's detail. */
struct kept_error {
	struct kvpull_log log; /* the worker's own */
	char message[KVPULL_LOG_LINE_BYTES];
};

static void kept_write(void *context, uint32_t level, const char *message)
{
	struct kept_error *kept = context;

	if (level == KVPULL_LOG_ERROR)
		(void)snprintf(kept->message, sizeof(kept->message), "%s",
			       message);
	if (kept->log.write && level <= kept->log.level)
		kept->log.write(kept->log.context, level, message);
}

static void kept_fatal(void *context, const char *message)
{
	const struct kept_error *kept = context;

	if (kept->log.fatal)
		kept->log.fatal(kept->log.context, message);
}

/* Not while the worker has threads: they read its log. */
static void kept_begin(struct kvpull_worker *worker, struct kept_error *kept)
{
	kept->log = worker->facts.log;
	kept->message[0] = '\0';
	worker->facts.log.write = kept_write;
	worker->facts.log.fatal = kept_fatal;
	worker->facts.log.context = kept;
	if (!kept->log.write)
		worker->facts.log.level = KVPULL_LOG_ERROR;
}

static int kept_end(struct kvpull_worker *worker, const struct kept_error *kept,
		    int code, struct kvpull_error_detail *detail)
{
	worker->facts.log = kept->log;
	if (code && kept->message[0])
		kvpull_detail_set(detail, code, "", "%s", kept->message);
	else if (code)
		kvpull_detail_set(
			detail, code, "", "%s",
			code == KVPULL_ENOMEM ?
				"no memory for the tables: lower the keys *_max or max_holds" :
				"an operation of this host failed: see the log");
	return code;
}

/* Parameters that were checked. */
static int identity_take(struct kvpull_worker *worker,
			 const struct kvpull_worker_setup *setup)
{
	const struct kvpull_open_params *params = setup->params;

	if (kvpull_compat_init(&worker->facts.compat, params))
		return KVPULL_EINVAL;
	memcpy(worker->facts.engine_id, params->engine_id,
	       strlen(params->engine_id) + 1);
	kvpull_compat_digest(&worker->facts.compat, worker->compat_digest);
	worker->facts.tp_rank = params->tp_rank;
	worker->facts.tp_size = params->tp_size;
	worker->facts.incarnation = setup->incarnation;
	while (!worker->facts.incarnation)
		randombytes_buf(&worker->facts.incarnation,
				sizeof(worker->facts.incarnation));
	randombytes_buf(worker->secret, sizeof(worker->secret));
	return 0;
}

static int parts_open(struct kvpull_worker *worker,
		      const struct kvpull_worker_setup *setup)
{
	struct kvpull_progress_params progress = {
		.facts = &worker->facts,
		.handover = &worker->handover,
		.arena = &worker->arena,
		.transport = setup->transport,
		.transport_context = setup->transport_context,
	};
	const struct kvpull_status_params status = {
		.log = &worker->facts.log,
		.config = &worker->facts.config,
		.engine_id = worker->facts.engine_id,
		.incarnation = worker->facts.incarnation,
		.now_ns = kvpull_facts_now(&worker->facts),
		.tp_rank = worker->facts.tp_rank,
		.tp_size = worker->facts.tp_size,
		.caller_count_max = worker->facts.caller_count_max,
		.peer_count_max =
			kvpull_config_peer_entries(&worker->facts.config),
		/* A test's own transport: it has no folder. */
		.is_private = setup->transport != NULL,
	};
	int code;

	kvpull_arena_init(&worker->arena, &worker->facts.log);
	kvpull_arena_init_hot(&worker->hot, &worker->facts.log);
	worker->facts.status = &worker->status;
	code = kvpull_status_open(&worker->status, &status);
	if (!code)
		code = tables_take(worker);
	if (!code)
		code = kvpull_handover_open(&worker->handover, &worker->facts,
					    &worker->end, &progress.end,
					    &worker->arena);
	if (!code)
		code = holds_take(worker);
	if (!code)
		code = kvpull_progress_open(&progress, &worker->progress);
	return code;
}

int kvpull_worker_create(const struct kvpull_worker_setup *setup,
			 struct kvpull_worker **out,
			 struct kvpull_error_detail *detail)
{
	struct kvpull_worker *worker;
	struct kept_error kept;
	int code;

	if (sodium_init() < 0) {
		kvpull_detail_set(detail, KVPULL_EDEVICE, "",
				  "libsodium cannot be initialized");
		return KVPULL_EDEVICE;
	}
	code = kvpull_worker_params_check(setup->params, detail);
	if (code)
		return code;
	worker = mmap(NULL, sizeof(*worker), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (worker == MAP_FAILED) {
		kvpull_detail_set(detail, KVPULL_ENOMEM, "", "out of memory");
		return KVPULL_ENOMEM;
	}
	worker->pid = getpid();
	worker->facts.log = setup->log;
	worker->facts.log.budget = &worker->facts.log_budget;
	worker->facts.config = *setup->config;
	worker->facts.caller_count_max =
		kvpull_progress_callers_max(&worker->facts.config);
	worker->facts.now_ns = setup->now_ns ? setup->now_ns : clock_now;
	worker->facts.now_context = setup->now_context;
	worker->entries.fd = worker->wakeup.fd = worker->wakeup.timer_fd = -1;
	worker->handover.engine_wake_fd = -1;
	worker->handover.progress_wake_fd = -1;
	worker->result_first = worker->result_next = 1;
	kept_begin(worker, &kept);
	code = identity_take(worker, setup);
	if (!code)
		code = parts_open(worker, setup);
	code = kept_end(worker, &kept, code, detail);
	if (code) {
		kvpull_worker_destroy(worker);
		return code;
	}
	worker->stats.arena_bytes = worker->arena.used + worker->hot.used;
	kvpull_arena_seal(&worker->arena);
	kvpull_arena_seal(&worker->hot);
	kvpull_info(
		&worker->facts.log,
		"worker rank %u of %u of %s open, incarnation %016llx, arena %zu KiB (taken as used)",
		worker->facts.tp_rank, worker->facts.tp_size,
		worker->facts.engine_id,
		(unsigned long long)worker->facts.incarnation,
		(size_t)worker->stats.arena_bytes / 1024);
	*out = worker;
	return 0;
}

/* Nothing new starts; what runs is ended and what was claimed is released. */
static void wind_down(struct kvpull_worker *worker)
{
	const uint64_t until = kvpull_facts_now(&worker->facts) + CLOSE_NS;
	struct kvpull_poll_record records[64];

	atomic_store_explicit(&worker->handover.closing, 1,
			      memory_order_relaxed);
	kvpull_worker_retire(worker);
	while (worker->registered &&
	       (worker->pull_map.count || worker->claim_map.count) &&
	       kvpull_facts_now(&worker->facts) < until) {
		if (kvpull_worker_poll(worker, records, 64, sizeof(*records)) ==
		    0)
			(void)sched_yield();
	}
}

static void files_close(struct kvpull_worker *worker)
{
	while (worker->file_count)
		(void)close(worker->file_fds[--worker->file_count]);
}

void kvpull_worker_destroy(struct kvpull_worker *worker)
{
	uint32_t index;

	/* A child has neither the threads nor the shared memory to end. */
	if (!worker || worker->pid != getpid())
		return;
	if (worker->arena.sealed)
		wind_down(worker);
	kvpull_progress_close(worker->progress);
	kvpull_wakeup_close(&worker->wakeup);
	kvpull_handover_close(&worker->handover);
	for (index = 0; index < worker->memory_count; index++)
		if (worker->memories[index].base)
			kvpull_segment_unmake(&worker->memories[index]);
	files_close(worker);
	if (worker->entries.base)
		kvpull_segment_unmake(&worker->entries);
	kvpull_status_close(&worker->status);
	kvpull_arena_fini(&worker->arena);
	kvpull_arena_fini(&worker->hot);
	(void)munmap(worker, sizeof(*worker));
}

/* A place that was given back, or a new one; NULL: there is none. */
static struct kvpull_shared *memory_place(struct kvpull_worker *worker)
{
	uint32_t index;

	for (index = 0; index < worker->memory_count; index++)
		if (!worker->memories[index].base)
			return &worker->memories[index];
	if (worker->memory_count == KVPULL_REGIONS_MAX)
		return NULL;
	/* It counts with or without memory: whoever looks asks for a base. */
	return &worker->memories[worker->memory_count++];
}

int kvpull_worker_memory_alloc(struct kvpull_worker *worker, uint64_t bytes,
			       uint32_t flags, struct kvpull_memory *memory)
{
	struct kvpull_shared *shared;
	struct kvpull_memory own = { .struct_size = sizeof(own) };
	const uint32_t huge = flags & KVPULL_MEMORY_HUGE &&
			      worker->facts.config.huge == KVPULL_AUTO;
	int code;

	if (!bytes || flags & ~KVPULL_MEMORY_HUGE || worker->registered ||
	    kvpull_params_check_output(memory))
		return KVPULL_EINVAL;
	shared = memory_place(worker);
	if (!shared)
		return KVPULL_EFULL;
	code = kvpull_segment_make(shared, "kvpull-kv", bytes,
				   KVPULL_SEGMENT_READ_ONLY, huge ? 2 : 0,
				   &worker->facts.log);
	if (code)
		return code;
	own.base = shared->base;
	own.bytes = shared->bytes;
	own.huge_bytes = shared->huge_bytes;
	own.took_ns = shared->took_ns;
	own.fd = shared->fd;
	return kvpull_params_give(memory, &own, sizeof(own));
}

int kvpull_worker_memory_free(struct kvpull_worker *worker, void *base)
{
	uint32_t index;

	for (index = 0; index < worker->memory_count; index++) {
		struct kvpull_shared *shared = &worker->memories[index];

		if (shared->base != base || !base)
			continue;
		/* Mapped by consumers for as long as the worker is open. */
		if (worker->registered)
			return KVPULL_EINVAL;
		kvpull_segment_unmake(shared);
		shared->base = NULL;
		return 0;
	}
	return KVPULL_EINVAL;
}

static const struct kvpull_shared *memory_of(const struct kvpull_worker *worker,
					     const struct kvpull_region *region)
{
	uint32_t index;

	for (index = 0; index < worker->memory_count; index++) {
		const struct kvpull_shared *shared = &worker->memories[index];

		const uint64_t at = (uint64_t)((uintptr_t)region->base -
					       (uintptr_t)shared->base);

		if (shared->base && at < shared->bytes &&
		    region->bytes <= shared->bytes - at)
			return shared;
	}
	return NULL;
}

/* The engine's descriptor stays its own; ours can only read. */
static int file_take(struct kvpull_worker *worker,
		     const struct kvpull_region *region,
		     struct kvpull_region_view *view,
		     struct kvpull_error_detail *detail)
{
	const char *why;
	int code;

	view->base = NULL;
	view->fd_offset = region->fd_offset;
	code = kvpull_file_serve(region->fd, region->fd_offset, region->bytes,
				 &view->fd, &why);
	if (code) {
		kvpull_detail_set(detail, code, "regions",
				  "the file of a region %s", why);
		return code;
	}
	worker->file_fds[worker->file_count++] = view->fd;
	return 0;
}

static int region_take(struct kvpull_worker *worker,
		       const struct kvpull_region *region,
		       struct kvpull_region_view *view,
		       struct kvpull_error_detail *detail)
{
	const struct kvpull_shared *shared;

	*view = (struct kvpull_region_view){
		.kind = region->kind,
		.fd = -1,
		.base = region->base,
		.bytes = region->bytes,
	};
	if (region->kind == KVPULL_REGION_FILE)
		return file_take(worker, region, view, detail);
	if (!region->bytes || !region->base) {
		kvpull_detail_set(detail, KVPULL_EINVAL, "regions",
				  "a region needs base and bytes");
		return KVPULL_EINVAL;
	}
	if (region->kind == KVPULL_REGION_FOREIGN)
		return 0;
	/* A.3's flush of what was read, and the order against kernels. */
	if (region->kind == KVPULL_REGION_DMABUF &&
	    worker->facts.config.dmabuf == KVPULL_DMABUF_NO) {
		kvpull_detail_set(
			detail, KVPULL_EUNSUPPORTED, "dmabuf",
			"device memory is refused: nothing flushes it yet before a pull is LOADED, so that tokens could be wrong; use host memory");
		return KVPULL_EUNSUPPORTED;
	}
	if (region->kind == KVPULL_REGION_DMABUF) {
		view->fd = region->fd;
		view->fd_offset = region->fd_offset;
		return 0;
	}
	if (region->kind != KVPULL_REGION_PROVIDED) {
		kvpull_detail_set(
			detail, KVPULL_EUNSUPPORTED, "regions",
			"region kind %u is not supported in this version: use memory_alloc(), foreign host memory or a file",
			region->kind);
		return KVPULL_EUNSUPPORTED;
	}
	shared = memory_of(worker, region);
	if (!shared) {
		kvpull_detail_set(
			detail, KVPULL_EINVAL, "regions",
			"a provided region must lie in memory from one memory_alloc()");
		return KVPULL_EINVAL;
	}
	view->fd = shared->fd;
	view->fd_offset =
		(uint64_t)((uintptr_t)region->base - (uintptr_t)shared->base);
	return 0;
}

/* The caller's structs may be shorter than ours: its size is the stride. */
static const void *item(const void *items, uint32_t index)
{
	size_t stride;

	memcpy(&stride, items, sizeof(stride));
	return (const uint8_t *)items + index * stride;
}

static int items_take(struct kvpull_worker *worker,
		      const struct kvpull_regions *given,
		      struct kvpull_error_detail *detail)
{
	char name[32];
	uint32_t index;
	int code;

	for (index = 0; index < given->region_count; index++) {
		struct kvpull_region region = { 0 };

		(void)snprintf(name, sizeof(name), "regions[%u]", index);
		code = kvpull_params_take_named(&region, sizeof(region),
						item(given->regions, index),
						name, detail);
		if (!code)
			code = region_take(worker, &region,
					   &worker->facts.serve.regions[index],
					   detail);
		if (code)
			return code;
	}
	for (index = 0; index < given->cache_count; index++) {
		(void)snprintf(name, sizeof(name), "caches[%u]", index);
		code = kvpull_params_take_named(
			&worker->facts.caches[index],
			sizeof(worker->facts.caches[index]),
			item(given->caches, index), name, detail);
		if (code)
			return code;
	}
	return 0;
}

/* Once served it is registered: consumers may be there before the thread. */
static int serve_start(struct kvpull_worker *worker,
		       struct kvpull_error_detail *detail)
{
	struct kept_error kept;
	int code;

	kept_begin(worker, &kept);
	code = kvpull_progress_serve(worker->progress);
	code = kept_end(worker, &kept, code, detail);
	if (code)
		return code;
	worker->registered = 1;
	kvpull_worker_rank_tell(worker);
	if (worker->facts.config.progress != KVPULL_PROGRESS_THREAD)
		return 0;
	code = kvpull_progress_start(worker->progress);
	if (code)
		kvpull_detail_set(
			detail, code, "progress",
			"the worker's thread cannot be started: see the log, close the worker and open another");
	return code;
}

int kvpull_worker_regions_register(struct kvpull_worker *worker,
				   const struct kvpull_regions *given,
				   struct kvpull_error_detail *detail)
{
	struct kvpull_plan_side side = { 0 };
	int code;

	if (worker->registered || !given->regions || !given->caches ||
	    !given->region_count || given->region_count > KVPULL_REGIONS_MAX ||
	    !given->cache_count || given->cache_count > KVPULL_CACHES_MAX) {
		kvpull_detail_set(
			detail, KVPULL_EINVAL, "regions",
			"register once, 1 .. %u regions and 1 .. %u caches",
			KVPULL_REGIONS_MAX, KVPULL_CACHES_MAX);
		return KVPULL_EINVAL;
	}
	code = items_take(worker, given, detail);
	if (code)
		goto err_files;
	side.caches = worker->facts.caches;
	side.cache_count = given->cache_count;
	side.region_count = given->region_count;
	side.regions = worker->facts.serve.regions;
	side.tp_rank = worker->facts.tp_rank;
	side.tp_size = worker->facts.tp_size;
	side.replicated = worker->facts.compat.replicated;
	side.head_total = worker->facts.compat.head_count;
	code = kvpull_plan_check(&side, detail);
	if (!code)
		code = kvpull_plan_check_model(
			&side, worker->facts.compat.layer_count,
			worker->facts.compat.group_count, detail);
	if (code)
		goto err_files;
	worker->facts.cache_count = given->cache_count;
	kvpull_small_init(worker);
	worker->facts.serve.region_count = given->region_count;
	(void)kvpull_serve_number_fds(&worker->facts.serve);
	code = serve_start(worker, detail);
	if (!code || worker->registered)
		return code;
err_files:
	files_close(worker);
	return code;
}

int kvpull_worker_peers(struct kvpull_worker *worker,
			struct kvpull_peer_info *peers, uint32_t capacity,
			size_t peer_bytes)
{
	return kvpull_progress_peers(worker->progress, peers, capacity,
				     peer_bytes);
}
