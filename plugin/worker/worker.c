/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half: open and close; worker_memory.c has memory and regions.
 *
 * Invariants: all memory is in arenas that are sealed before create() returns;
 * nothing is served before the regions are known; every hold is revoked before
 * memory that it names is unmapped.
 */
#include "plugin/worker/worker.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sodium.h>

#include "base/cause.h"
#include "base/kept_error.h"
#include "base/params.h"

/*
 * Part of close() that waits until peers took the releases; the rest is for
 * threads.
 */
#define WIND_DOWN_NS (KVPULL_CLOSE_NS / 3 * 2)

static uint64_t clock_now(void *context)
{
	(void)context;
	return kvpull_clock_ns();
}

static int tables_take(struct kvpull_worker *worker)
{
	const struct kvpull_config *config = &worker->facts.config;
	const uint32_t claims_max = kvpull_config_claims_max(config);
	struct kvpull_arena *arena = &worker->arena;
	struct kvpull_arena *hot = &worker->hot;

	kvpull_index_pool_init(&worker->claims.pool, claims_max, arena);
	KVPULL_ARENA_TAKE(arena, worker->claims.notes, claims_max);
	KVPULL_ARENA_TAKE(arena, worker->crowd.notes,
			  worker->facts.caller_count_max);
	KVPULL_ARENA_TAKE(arena, worker->crowd.active, config->consumers_max);
	KVPULL_ARENA_TAKE(arena, worker->facts.caches, KVPULL_CACHES_MAX);
	kvpull_marks_init(&worker->marks, config->pulls_max, arena);
	kvpull_results_init(&worker->results, &worker->facts, arena);
	KVPULL_ARENA_TAKE(hot, worker->handover.pulls, config->pulls_max);
	kvpull_pulls_init(&worker->pulls, config, arena, hot);
	kvpull_map_init(&worker->claims.map, claims_max, hot);
	kvpull_turns_init(&worker->small.turns, config->pulls_max, hot);
	return kvpull_arena_ok(arena) && kvpull_arena_ok(hot) ? 0 :
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
	kvpull_given_init(&worker->handover.given, worker->secret,
			  config->max_holds, &worker->arena);
	params.given = worker->handover.given.newest;
	params.shown = worker->status.holds;
	/* A page-aligned mapping serves the entries' alignment. */
	params.entries =
		(struct kvpull_revocation_entry *)(void *)worker->entries.base;
	worker->holds = kvpull_holds_open(&params, &worker->arena);
	if (!worker->holds)
		return KVPULL_ENOMEM;
	worker->crowd.holds = worker->holds;
	worker->facts.serve.entries = params.entries;
	worker->facts.serve.entries_fd = worker->entries.fd;
	worker->facts.serve.slot_count = config->max_holds;
	return 0;
}

static int ranks_check(const struct kvpull_open_params *params,
		       struct kvpull_error_detail *detail)
{
	const uint32_t stages = kvpull_worker_stages(params);

	if (!params->tp_size || params->tp_size > KVPULL_RANKS_MAX ||
	    params->tp_rank >= params->tp_size)
		return kvpull_detail_set(
			detail, KVPULL_EINVAL, "tp_rank",
			"tp_rank %u of tp_size %u: size is 1 .. %u",
			params->tp_rank, params->tp_size, KVPULL_RANKS_MAX);
	if (params->pp_rank < stages &&
	    stages <= KVPULL_RANKS_MAX / params->tp_size)
		return 0;
	return kvpull_detail_set(
		detail, KVPULL_EINVAL, "pp_rank",
		"pp_rank %u of pp_size %u, tp_size %u: an engine has at most %u ranks",
		params->pp_rank, stages, params->tp_size, KVPULL_RANKS_MAX);
}

/* Refuses by name the features that version 1 lacks. */
int kvpull_worker_params_check(const struct kvpull_open_params *params,
			       struct kvpull_error_detail *detail)
{
	uint32_t group;

	if (params->dcp_size > 1)
		return kvpull_detail_set(
			detail, KVPULL_EUNSUPPORTED, "dcp_size",
			"decode-context parallel is not supported: its ranks have other tokens of a block, and a ticket says which heads and layers a rank has, not which tokens; use 1");
	if (params->push_mode)
		return kvpull_detail_set(
			detail, KVPULL_EUNSUPPORTED, "push_mode",
			"not supported in this version: use 0");
	if (!params->engine_id || !*params->engine_id ||
	    !kvpull_fields_text_is_good(params->engine_id,
					KVPULL_ENGINE_ID_BYTES_MAX))
		return kvpull_detail_set(
			detail, KVPULL_EINVAL, "engine_id",
			"needed: 1 .. %u bytes without control characters",
			KVPULL_ENGINE_ID_BYTES_MAX - 1);
	for (group = 0; group < params->group_count; group++)
		if (params->groups[group].kind > KVPULL_GROUP_STATE)
			return kvpull_detail_set(
				detail, KVPULL_EUNSUPPORTED, "groups",
				"groups[%u].kind is %u: this version knows 0 to %u",
				group, params->groups[group].kind,
				KVPULL_GROUP_STATE);
	if (ranks_check(params, detail))
		return KVPULL_EINVAL;
	return kvpull_compat_check(params, detail);
}

/* The device that the engine names, and the key that may require one. */
static int device_check(const struct kvpull_worker_setup *setup,
			struct kvpull_error_detail *detail)
{
	const struct kvpull_open_params *params = setup->params;

	if (params->device_kind > KVPULL_DEVICE_CUDA ||
	    params->device_index < 0)
		return kvpull_detail_set(
			detail, KVPULL_EUNSUPPORTED, "device_kind",
			"device %d of kind %u: kinds are 0 and %u, devices 0..",
			params->device_index, params->device_kind,
			KVPULL_DEVICE_CUDA);
	if (params->device_kind ||
	    setup->config->device != KVPULL_DEVICE_REQUIRED)
		return 0;
	return kvpull_detail_set(
		detail, KVPULL_ECONFIG, "device",
		"device=required, and the engine names none (device_kind): set device=auto");
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
	worker->facts.device_kind = params->device_kind;
	worker->facts.device_index = params->device_index;
	worker->facts.stage = (struct kvpull_stage){
		.rank = params->pp_rank * params->tp_size + params->tp_rank,
		.rank_count = params->tp_size * kvpull_worker_stages(params),
		.pp_size = kvpull_worker_stages(params),
	};
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
		.rank = worker->facts.stage.rank,
		.rank_count = worker->facts.stage.rank_count,
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
	worker->crowd.consumers = worker->handover.consumers;
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
	struct kvpull_kept_error kept;
	int code;

	if (sodium_init() < 0)
		return kvpull_detail_set(detail, KVPULL_EDEVICE, "",
					 "libsodium cannot be initialized");
	code = kvpull_worker_params_check(setup->params, detail);
	if (!code)
		code = device_check(setup, detail);
	if (code)
		return code;
	worker = mmap(NULL, sizeof(*worker), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (worker == MAP_FAILED)
		return kvpull_detail_set(detail, KVPULL_ENOMEM, "", "%s",
					 kvpull_why(MAP, errno));
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
	kvpull_kept_begin(&worker->facts.log, &kept);
	code = identity_take(worker, setup);
	if (!code)
		code = parts_open(worker, setup);
	code = kvpull_kept_end(&worker->facts.log, &kept, code, detail);
	if (code) {
		kvpull_worker_destroy(worker);
		return code;
	}
	worker->counts.arena_bytes = worker->arena.used + worker->hot.used;
	kvpull_arena_seal(&worker->arena);
	kvpull_arena_seal(&worker->hot);
	kvpull_info(
		&worker->facts.log,
		"worker rank %u of %u of %s open, incarnation %016llx, arena %zu KiB (taken as used)",
		worker->facts.stage.rank, worker->facts.stage.rank_count,
		worker->facts.engine_id,
		(unsigned long long)worker->facts.incarnation,
		(size_t)worker->counts.arena_bytes / 1024);
	*out = worker;
	return 0;
}

/* Nothing new starts; what runs is ended and what was claimed is released. */
static void wind_down(struct kvpull_worker *worker)
{
	const uint64_t until = kvpull_facts_now(&worker->facts) + WIND_DOWN_NS;
	struct kvpull_poll_record records[64];

	atomic_store_explicit(&worker->handover.closing, 1,
			      memory_order_relaxed);
	kvpull_worker_retire(worker);
	while (worker->memories.registered &&
	       (worker->pulls.map.count || worker->claims.map.count) &&
	       kvpull_facts_now(&worker->facts) < until) {
		/* A test's own clock goes on by looks at it. */
		if (!kvpull_worker_poll(worker, records, 64,
					sizeof(*records)) &&
		    worker->facts.now_ns == clock_now)
			kvpull_clock_nap();
	}
}

void kvpull_worker_destroy(struct kvpull_worker *worker)
{
	const uint64_t close_by_ns = kvpull_clock_close_by();

	/* A child has neither the threads nor the shared memory to end. */
	if (!worker || worker->pid != getpid())
		return;
	if (worker->arena.sealed)
		wind_down(worker);
	if (!worker->memories.registered)
		kvpull_worker_memories_free(worker);
	kvpull_progress_close(worker->progress, close_by_ns);
	kvpull_wakeup_close(&worker->wakeup);
	kvpull_handover_close(&worker->handover);
	kvpull_worker_memories_free(worker);
	kvpull_worker_files_close(&worker->memories);
	if (worker->entries.base)
		kvpull_segment_unmake(&worker->entries);
	kvpull_status_close(&worker->status);
	kvpull_arena_fini(&worker->arena);
	kvpull_arena_fini(&worker->hot);
	(void)munmap(worker, sizeof(*worker));
}

int kvpull_worker_peers(struct kvpull_worker *worker,
			struct kvpull_peer_info *peers, uint32_t capacity,
			size_t peer_bytes)
{
	return kvpull_progress_peers(worker->progress, peers, capacity,
				     peer_bytes);
}
