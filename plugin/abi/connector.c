/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ABI's two tables. This layer takes structs of any size from the caller,
 * refuses pointers that are not there, reads the clock, and calls the halves; it
 * decides nothing.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <sodium.h>

#include "base/clock.h"
#include "base/params.h"
#include "plugin/abi/opening.h"
#include "plugin/config/config.h"
#include "plugin/scheduler/scheduler.h"
#include "plugin/worker/worker.h"

/* Element sizes of arrays in the first version; no caller's are smaller. */
#define GROUP_BYTES_FIRST 8u
#define BLOCKS_BYTES_FIRST 16u
#define RECORD_BYTES_FIRST 32u
#define PEER_BYTES_FIRST 288u

/* NULL is a buffer of no bytes, and of no others. */
static int is_buffer(const void *bytes, size_t byte_count)
{
	return bytes || !byte_count;
}

/* Parameters of both opens after the checks. */
struct opening {
	struct kvpull_open_params params;
	struct kvpull_model model;
	struct kvpull_group groups[KVPULL_GROUPS_MAX];
	struct kvpull_log log;
	struct kvpull_config config;
};

/* half: where the handle is to be written. */
static int opening_take(struct opening *opening,
			const struct kvpull_open_params *params,
			const void *half, struct kvpull_error_detail *detail)
{
	struct kvpull_host host;
	int code;

	memset(opening, 0, sizeof(*opening));
	code = kvpull_params_take_named(&opening->params,
					sizeof(opening->params), params,
					"params", detail);
	if (!code)
		code = kvpull_opening_host(&host, opening->params.host, half,
					   detail);
	if (!code)
		code = kvpull_params_take_named(
			&opening->model, sizeof(opening->model),
			opening->params.model, "model", detail);
	if (code)
		return code;
	if (opening->params.reserved || opening->params.reserved2)
		return kvpull_detail_set(detail, KVPULL_EINVAL, "reserved",
					 "a reserved member is not 0");
	if (!opening->params.groups || !opening->params.group_count ||
	    opening->params.group_count > KVPULL_GROUPS_MAX)
		return kvpull_detail_set(detail, KVPULL_EINVAL, "groups",
					 "1 .. %u groups are needed",
					 KVPULL_GROUPS_MAX);
	code = kvpull_elements_take(
		opening->groups, sizeof(*opening->groups),
		opening->params.group_count, opening->params.groups,
		opening->params.group_bytes, GROUP_BYTES_FIRST);
	if (code)
		return kvpull_detail_set(
			detail, code, "group_bytes",
			"a group of %zu bytes: fill in the struct's sizeof, and nothing that this library does not know",
			opening->params.group_bytes);
	opening->params.groups = opening->groups;
	opening->params.model = &opening->model;
	return kvpull_opening_config(&opening->config, &opening->log, &host,
				     opening->params.config_json, detail);
}

static int scheduler_open(const struct kvpull_open_params *params,
			  struct kvpull_scheduler **scheduler,
			  struct kvpull_error_detail *detail)
{
	struct kvpull_scheduler_setup setup = { 0 };
	struct kvpull_compat compat;
	struct opening opening;
	int code;

	code = opening_take(&opening, params, scheduler, detail);
	if (!code)
		code = kvpull_worker_params_check(&opening.params, detail);
	if (!code)
		code = kvpull_compat_init(&compat, &opening.params);
	if (code)
		return code;
	setup.log = &opening.log;
	setup.config = &opening.config;
	setup.compat = &compat;
	setup.engine_id = opening.params.engine_id;
	setup.pp_size = kvpull_worker_stages(&opening.params);
	setup.rank_count = opening.params.tp_size * setup.pp_size;
	setup.incarnation = kvpull_half_incarnation(kvpull_clock_utc_ns(),
						    randombytes_random());
	setup.detail = detail;
	return kvpull_scheduler_create(&setup, scheduler);
}

static int scheduler_rank_info(struct kvpull_scheduler *scheduler,
			       const void *bytes, size_t byte_count)
{
	if (!scheduler || !is_buffer(bytes, byte_count))
		return KVPULL_EINVAL;
	return kvpull_scheduler_rank_info(scheduler, bytes, byte_count,
					  kvpull_clock_ns());
}

static int scheduler_ranks_missing(struct kvpull_scheduler *scheduler)
{
	return scheduler ? kvpull_scheduler_ranks_missing(scheduler) :
			   KVPULL_EINVAL;
}

static int scheduler_request_new(struct kvpull_scheduler *scheduler,
				 const struct kvpull_request *request)
{
	struct kvpull_request own;

	if (!scheduler || kvpull_params_take(&own, sizeof(own), request) ||
	    !is_buffer(own.ticket, own.ticket_bytes) || own.reserved)
		return KVPULL_EINVAL;
	/* The members that are longer than what sizes are multiples of. */
	if ((request->struct_size >
		     offsetof(struct kvpull_request, prompt_digest) &&
	     request->struct_size < offsetof(struct kvpull_request, label)) ||
	    (request->struct_size > offsetof(struct kvpull_request, trace) &&
	     request->struct_size < offsetof(struct kvpull_request, adapter)))
		return KVPULL_EINVAL;
	return kvpull_scheduler_request_new(scheduler, &own, kvpull_clock_ns());
}

static int scheduler_matched_tokens(struct kvpull_scheduler *scheduler,
				    uint64_t key, uint32_t local_tokens,
				    uint32_t *tokens)
{
	if (!scheduler || !tokens)
		return KVPULL_EINVAL;
	return kvpull_scheduler_matched_tokens(scheduler, key, local_tokens,
					       tokens, kvpull_clock_ns());
}

/*
 * A request's groups, in elements of ours. A wrong number of them is passed on:
 * who uses them refuses it.
 */
static int blocks_take(struct kvpull_blocks own[KVPULL_GROUPS_MAX],
		       const struct kvpull_blocks **groups,
		       uint32_t group_count, size_t group_bytes)
{
	int code;

	if (!*groups || group_count > KVPULL_GROUPS_MAX)
		return 0;
	code = kvpull_elements_take(own, sizeof(*own), group_count, *groups,
				    group_bytes, BLOCKS_BYTES_FIRST);
	if (!code)
		*groups = own;
	return code;
}

static int scheduler_match_failure(struct kvpull_scheduler *scheduler,
				   uint64_t key)
{
	return scheduler ? kvpull_scheduler_match_failure(scheduler, key) :
			   KVPULL_EINVAL;
}

static int scheduler_allocated(struct kvpull_scheduler *scheduler,
			       const struct kvpull_allocation *allocation)
{
	struct kvpull_blocks groups[KVPULL_GROUPS_MAX];
	struct kvpull_allocation own;
	int code;

	if (!scheduler)
		return KVPULL_EINVAL;
	code = kvpull_params_take(&own, sizeof(own), allocation);
	if (!code)
		code = blocks_take(groups, &own.groups, own.group_count,
				   own.group_bytes);
	return code ? code :
		      kvpull_scheduler_allocated(scheduler, &own,
						 kvpull_clock_ns());
}

static int scheduler_request_finished(struct kvpull_scheduler *scheduler,
				      struct kvpull_finish *finish)
{
	struct kvpull_blocks groups[KVPULL_GROUPS_MAX];
	struct kvpull_finish own;
	uint64_t now_ns;
	int code;

	if (!scheduler)
		return KVPULL_EINVAL;
	now_ns = kvpull_clock_ns();
	code = kvpull_params_take(&own, sizeof(own), finish);
	if (!code && !is_buffer(own.ticket, own.ticket_capacity))
		code = KVPULL_EINVAL;
	if (!code)
		code = blocks_take(groups, &own.groups, own.group_count,
				   own.group_bytes);
	if (code)
		return code;
	code = kvpull_scheduler_request_finished(scheduler, &own, now_ns);
	/*
	 * The scheduler half repeats commands that the attached worker does not
	 * take.
	 */
	(void)kvpull_scheduler_say(scheduler, now_ns);
	if (finish->struct_size >=
	    offsetof(struct kvpull_finish, ticket_bytes) +
		    sizeof(finish->ticket_bytes))
		finish->ticket_bytes = own.ticket_bytes;
	return code;
}

static int scheduler_request_rejected(struct kvpull_scheduler *scheduler,
				      const void *ticket, size_t ticket_bytes)
{
	uint64_t now_ns;
	int code;

	if (!scheduler || !is_buffer(ticket, ticket_bytes))
		return KVPULL_EINVAL;
	now_ns = kvpull_clock_ns();
	code = kvpull_scheduler_request_rejected(scheduler, ticket,
						 ticket_bytes, now_ns);
	(void)kvpull_scheduler_say(scheduler, now_ns);
	return code;
}

static int scheduler_worker_attach(struct kvpull_scheduler *scheduler,
				   struct kvpull_worker *worker)
{
	return scheduler ? kvpull_scheduler_worker_attach(scheduler, worker,
							  kvpull_worker_step) :
			   KVPULL_EINVAL;
}

static int scheduler_ticket_get(struct kvpull_scheduler *scheduler,
				uint64_t key, void *ticket, size_t capacity,
				size_t *ticket_bytes)
{
	if (!scheduler || !is_buffer(ticket, capacity) || !ticket_bytes)
		return KVPULL_EINVAL;
	return kvpull_scheduler_ticket_get(scheduler, key, ticket, capacity,
					   ticket_bytes);
}

static int scheduler_payload_get(struct kvpull_scheduler *scheduler,
				 uint64_t key, void *payload, size_t capacity,
				 size_t *payload_bytes)
{
	if (!scheduler || !is_buffer(payload, capacity) || !payload_bytes)
		return KVPULL_EINVAL;
	return kvpull_scheduler_payload_get(scheduler, key, payload, capacity,
					    payload_bytes);
}

static int scheduler_drain(struct kvpull_scheduler *scheduler, uint32_t on)
{
	return scheduler ? kvpull_scheduler_drain(scheduler, on) :
			   KVPULL_EINVAL;
}

static int scheduler_step_build(struct kvpull_scheduler *scheduler, void *bytes,
				size_t capacity, size_t *byte_count)
{
	if (!scheduler || !is_buffer(bytes, capacity) || !byte_count)
		return KVPULL_EINVAL;
	return kvpull_scheduler_step_build(scheduler, bytes, capacity,
					   byte_count, kvpull_clock_ns());
}

static int scheduler_result_take(struct kvpull_scheduler *scheduler,
				 const void *bytes, size_t byte_count)
{
	if (!scheduler || !is_buffer(bytes, byte_count))
		return KVPULL_EINVAL;
	return kvpull_scheduler_result_take(scheduler, bytes, byte_count,
					    kvpull_clock_ns());
}

static int scheduler_has_pending(struct kvpull_scheduler *scheduler)
{
	return scheduler ? kvpull_scheduler_has_pending(scheduler,
							kvpull_clock_ns()) :
			   KVPULL_EINVAL;
}

static int scheduler_reset(struct kvpull_scheduler *scheduler, uint32_t flags)
{
	return scheduler ? kvpull_scheduler_reset(scheduler, flags,
						  kvpull_clock_ns()) :
			   KVPULL_EINVAL;
}

static int scheduler_changed(struct kvpull_scheduler *scheduler,
			     uint64_t adapter)
{
	uint64_t now_ns;
	int code;

	if (!scheduler)
		return KVPULL_EINVAL;
	now_ns = kvpull_clock_ns();
	code = kvpull_scheduler_changed(scheduler, adapter, now_ns);
	(void)kvpull_scheduler_say(scheduler, now_ns);
	return code;
}

static int scheduler_loaded(struct kvpull_scheduler *scheduler, uint64_t key)
{
	return scheduler ? kvpull_scheduler_loaded(scheduler, key) :
			   KVPULL_EINVAL;
}

static int scheduler_counters(struct kvpull_scheduler *scheduler,
			      struct kvpull_counter *counters,
			      uint32_t capacity, size_t counter_bytes)
{
	union kvpull_scheduler_counts counts;

	if (scheduler)
		kvpull_scheduler_counts(scheduler, &counts);
	return kvpull_counters_list(&kvpull_scheduler_counters,
				    scheduler ? counts.values : NULL, counters,
				    capacity, counter_bytes);
}

static int worker_open(const struct kvpull_open_params *params,
		       struct kvpull_worker **worker,
		       struct kvpull_error_detail *detail)
{
	struct kvpull_worker_setup setup = { 0 };
	struct opening opening;
	int code;

	code = opening_take(&opening, params, worker, detail);
	if (code)
		return code;
	setup.params = &opening.params;
	setup.config = &opening.config;
	setup.log = opening.log;
	return kvpull_worker_create(&setup, worker, detail);
}

static int worker_regions_register(struct kvpull_worker *worker,
				   const struct kvpull_regions *regions,
				   struct kvpull_error_detail *detail)
{
	struct kvpull_regions own;

	if (!worker || kvpull_params_take_named(&own, sizeof(own), regions,
						"regions", detail))
		return KVPULL_EINVAL;
	return kvpull_worker_regions_register(worker, &own, detail);
}

static int worker_memory_alloc(struct kvpull_worker *worker, uint64_t bytes,
			       uint32_t flags, struct kvpull_memory *memory)
{
	return worker ? kvpull_worker_memory_alloc(worker, bytes, flags,
						   memory) :
			KVPULL_EINVAL;
}

static int worker_memory_free(struct kvpull_worker *worker, void *base)
{
	return worker ? kvpull_worker_memory_free(worker, base) : KVPULL_EINVAL;
}

static int worker_rank_info(struct kvpull_worker *worker, void *bytes,
			    size_t capacity, size_t *byte_count)
{
	if (!worker || !is_buffer(bytes, capacity) || !byte_count)
		return KVPULL_EINVAL;
	return kvpull_worker_rank_info(worker, bytes, capacity, byte_count);
}

static int worker_step(struct kvpull_worker *worker, const void *bytes,
		       size_t byte_count)
{
	return worker && is_buffer(bytes, byte_count) ?
		       kvpull_worker_step(worker, bytes, byte_count) :
		       KVPULL_EINVAL;
}

static int worker_hold_ready(struct kvpull_worker *worker, uint64_t key)
{
	return worker ? kvpull_worker_hold_ready(worker, key) : KVPULL_EINVAL;
}

static int worker_failed_blocks(struct kvpull_worker *worker, uint64_t key,
				uint32_t *blocks, uint32_t capacity,
				uint32_t *block_count)
{
	if (!worker || !is_buffer(blocks, capacity) || !block_count)
		return KVPULL_EINVAL;
	return kvpull_worker_failed_blocks(worker, key, blocks, capacity,
					   block_count);
}

static int worker_result_build(struct kvpull_worker *worker, void *bytes,
			       size_t capacity, size_t *byte_count)
{
	if (!worker || !is_buffer(bytes, capacity) || !byte_count)
		return KVPULL_EINVAL;
	return kvpull_worker_result_build(worker, bytes, capacity, byte_count);
}

static int worker_event_fd(struct kvpull_worker *worker)
{
	return worker ? kvpull_worker_event_fd(worker) : KVPULL_EINVAL;
}

static int64_t worker_engine_mark(struct kvpull_worker *worker, uint64_t stream)
{
	return worker ? kvpull_worker_mark(worker, stream) : KVPULL_EINVAL;
}

static int worker_hold_ready_after(struct kvpull_worker *worker, uint64_t key,
				   int64_t mark)
{
	return worker ? kvpull_worker_hold_ready_after(worker, key, mark) :
			KVPULL_EINVAL;
}

static int worker_start_loads(struct kvpull_worker *worker, void *stream)
{
	if (!worker)
		return KVPULL_EINVAL;
	return stream ? KVPULL_EUNSUPPORTED : kvpull_worker_start_loads(worker);
}

static int worker_revoke_all(struct kvpull_worker *worker)
{
	return worker ? kvpull_worker_revoke_all(worker, KVPULL_END_REVOKED) :
			KVPULL_EINVAL;
}

static int worker_progress(struct kvpull_worker *worker, uint32_t budget)
{
	(void)budget; /* one run is bounded */
	if (!worker || worker->facts.config.progress != KVPULL_PROGRESS_CALLER)
		return KVPULL_EINVAL;
	return kvpull_worker_progress(worker);
}

static int worker_poll(struct kvpull_worker *worker,
		       struct kvpull_poll_record *records, uint32_t capacity,
		       size_t record_bytes)
{
	if (!worker || !is_buffer(records, capacity) ||
	    kvpull_element_check(record_bytes, RECORD_BYTES_FIRST))
		return KVPULL_EINVAL;
	return kvpull_worker_poll(worker, records, capacity, record_bytes);
}

static int worker_peers(struct kvpull_worker *worker,
			struct kvpull_peer_info *peers, uint32_t capacity,
			size_t peer_bytes)
{
	if (!worker || !is_buffer(peers, capacity) ||
	    kvpull_element_check(peer_bytes, PEER_BYTES_FIRST))
		return KVPULL_EINVAL;
	return kvpull_worker_peers(worker, peers, capacity, peer_bytes);
}

static int worker_counters(struct kvpull_worker *worker,
			   struct kvpull_counter *counters, uint32_t capacity,
			   size_t counter_bytes)
{
	union kvpull_worker_counts counts;

	if (worker)
		kvpull_worker_counts(worker, &counts);
	return kvpull_counters_list(&kvpull_worker_counters,
				    worker ? counts.values : NULL, counters,
				    capacity, counter_bytes);
}

static int config_check(const char *config_json,
			struct kvpull_error_detail *detail)
{
	struct kvpull_config config;

	return kvpull_config_load(&config, config_json, detail);
}

static const struct kvpull_scheduler_ops scheduler_ops = {
	.struct_size = sizeof(scheduler_ops),
	.open = scheduler_open,
	.close = kvpull_scheduler_destroy,
	.rank_info = scheduler_rank_info,
	.ranks_missing = scheduler_ranks_missing,
	.request_new = scheduler_request_new,
	.matched_tokens = scheduler_matched_tokens,
	.allocated = scheduler_allocated,
	.request_finished = scheduler_request_finished,
	.request_rejected = scheduler_request_rejected,
	.ticket_get = scheduler_ticket_get,
	.step_build = scheduler_step_build,
	.result_take = scheduler_result_take,
	.has_pending = scheduler_has_pending,
	.reset = scheduler_reset,
	.drain = scheduler_drain,
	.counters = scheduler_counters,
	.worker_attach = scheduler_worker_attach,
	.changed = scheduler_changed,
	.loaded = scheduler_loaded,
	.match_failure = scheduler_match_failure,
	.payload_get = scheduler_payload_get,
};

static const struct kvpull_worker_ops worker_ops = {
	.struct_size = sizeof(worker_ops),
	.open = worker_open,
	.close = kvpull_worker_destroy,
	.memory_alloc = worker_memory_alloc,
	.memory_free = worker_memory_free,
	.regions_register = worker_regions_register,
	.rank_info = worker_rank_info,
	.step = worker_step,
	.start_loads = worker_start_loads,
	.hold_ready = worker_hold_ready,
	.engine_mark = worker_engine_mark,
	.hold_ready_after = worker_hold_ready_after,
	.poll = worker_poll,
	.failed_blocks = worker_failed_blocks,
	.result_build = worker_result_build,
	.revoke_all = worker_revoke_all,
	.event_fd = worker_event_fd,
	.progress = worker_progress,
	.peers = worker_peers,
	.counters = worker_counters,
};

static int ticket_peek(const void *text, size_t text_bytes,
		       struct kvpull_ticket_info *info)
{
	struct kvpull_ticket_scratch *scratch;
	int code;

	if (!is_buffer(text, text_bytes) || !info)
		return KVPULL_EINVAL;
	scratch = mmap(NULL, sizeof(*scratch), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (scratch == MAP_FAILED)
		return KVPULL_ENOMEM;
	code = kvpull_ticket_peek(text, text_bytes, scratch, info);
	(void)munmap(scratch, sizeof(*scratch));
	return code;
}

static const struct kvpull_connector_ops connector_ops = {
	.struct_size = sizeof(connector_ops),
	.abi_major = KVPULL_ABI_MAJOR,
	.abi_minor = KVPULL_ABI_MINOR,
	.version = KVPULL_VERSION,
	.caps = KVPULL_CAP_SHM | KVPULL_CAP_FOREIGN | KVPULL_CAP_FILE |
		KVPULL_CAP_VERBS | KVPULL_CAP_KEY | KVPULL_CAP_CUDA,
	.error_text = kvpull_error_text,
	.config_check = config_check,
	.ticket_peek = ticket_peek,
	.scheduler = &scheduler_ops,
	.worker = &worker_ops,
};

__attribute__((visibility("default"))) const struct kvpull_connector_ops *
kvpull_connector_v1(void)
{
	return &connector_ops;
}
