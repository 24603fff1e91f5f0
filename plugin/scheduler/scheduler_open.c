/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler half: its tables are taken and laid out, once. */
#include <string.h>

#include "base/kept_error.h"
#include "base/params.h"
#include "plugin/scheduler/scheduler_state.h"

static uint32_t chunk_count(const struct kvpull_config *config)
{
	/* A short text each, and the long ones out of as much as the log. */
	return 2 * config->max_holds + config->families_max +
	       config->tickets_max + config->step_log_mib * 1024;
}

static size_t log_bytes(const struct kvpull_config *config)
{
	return (size_t)config->step_log_mib << 20;
}

static void init_producer(struct kvpull_scheduler *scheduler,
			  uint64_t ranks_all)
{
	const struct kvpull_config *config = &scheduler->config;
	struct kvpull_arena *arena = &scheduler->arena;

	kvpull_texts_init(&scheduler->texts, chunk_count(config), arena);
	kvpull_families_init(&scheduler->families, config->families_max, arena);
	scheduler->families.texts = &scheduler->texts;
	scheduler->families.lease_ns = config->lease_ms * KVPULL_NS_PER_MS;
	kvpull_slots_init(&scheduler->slots, config->max_holds, arena);
	scheduler->slots.log = scheduler->log;
	scheduler->slots.families = &scheduler->families;
	scheduler->slots.texts = &scheduler->texts;
	scheduler->slots.ranks_all = ranks_all;
}

static void init_consumer(struct kvpull_scheduler *scheduler,
			  uint64_t ranks_all)
{
	const struct kvpull_config *config = &scheduler->config;
	struct kvpull_demand *demand = &scheduler->demand;

	kvpull_demand_init(demand, config->tickets_max, &scheduler->arena);
	demand->log = scheduler->log;
	demand->outbox = &scheduler->outbox;
	demand->texts = &scheduler->texts;
	demand->counts = &scheduler->counts;
	demand->scratch = scheduler->ticket;
	demand->scratch_bytes = scheduler->ticket_bytes;
	demand->ticket_key = kvpull_config_key(&scheduler->config);
	demand->lease_ns = config->lease_ms * KVPULL_NS_PER_MS;
	demand->ranks_all = ranks_all;
	demand->share_prefix = config->share_prefix;
	demand->pull_blocks_max = config->pull_blocks_max;
	demand->pulls_max = config->pulls_max;
	memcpy(demand->compat, scheduler->compat, sizeof(demand->compat));
}

static void init_requests(struct kvpull_scheduler *scheduler)
{
	const uint32_t count_max = scheduler->config.requests_max;
	struct kvpull_arena *arena = &scheduler->arena;

	KVPULL_ARENA_TAKE(arena, scheduler->requests, count_max);
	kvpull_index_pool_init(&scheduler->request_pool, count_max, arena);
	kvpull_index_list_init(&scheduler->owing, count_max, arena);
	kvpull_map_init(&scheduler->by_key, count_max, arena);
	KVPULL_ARENA_TAKE(arena, scheduler->ticket, 1);
	scheduler->block_ids = kvpull_arena_take(
		arena, KVPULL_TICKET_BLOCKS_MAX, sizeof(uint32_t));
	scheduler->ticket_bytes =
		kvpull_arena_take(arena, 1, KVPULL_TICKET_BYTES_MAX);
}

static void init_compat(struct kvpull_scheduler *scheduler,
			const struct kvpull_compat *compat)
{
	uint32_t group;

	kvpull_compat_digest(compat, scheduler->compat);
	scheduler->group_count = compat->group_count;
	for (group = 0; group < compat->group_count; group++) {
		scheduler->group_tokens[group] =
			compat->groups[group].block_tokens;
		scheduler->group_kinds[group] = compat->groups[group].kind;
		if (compat->groups[group].kind == KVPULL_GROUP_STATE)
			scheduler->demand.has_state = 1;
	}
}

int kvpull_scheduler_create(const struct kvpull_scheduler_setup *setup,
			    struct kvpull_scheduler **scheduler)
{
	struct kvpull_outbox_params outbox = {
		.incarnation = setup->incarnation,
		.resend_ns = setup->config->lease_ms * KVPULL_NS_PER_MS / 3,
		.log_bytes = log_bytes(setup->config),
		.rank_count = setup->rank_count,
	};
	const uint64_t ranks_all =
		setup->rank_count == 64 ?
			UINT64_MAX :
			(UINT64_C(1) << setup->rank_count) - 1;
	struct kvpull_log log = *setup->log;
	struct kvpull_kept_error kept;
	struct kvpull_scheduler *made;
	struct kvpull_arena arena;

	kvpull_check(setup->log, setup->incarnation != 0);
	kvpull_kept_begin(&log, &kept);
	kvpull_arena_init(&arena, &log);
	KVPULL_ARENA_TAKE(&arena, made, 1);
	if (!made)
		return kvpull_kept_end(&log, &kept, KVPULL_ENOMEM,
				       setup->detail);
	made->arena = arena;
	made->own_log = log;
	made->own_log.budget = &made->log_budget;
	made->log = made->arena.log = outbox.log = &made->own_log;
	made->config = *setup->config;
	made->rank_count = setup->rank_count;
	made->pp_size = setup->pp_size;
	made->layer_count = setup->compat->layer_count;
	(void)snprintf(made->engine_id, sizeof(made->engine_id), "%s",
		       setup->engine_id);
	init_compat(made, setup->compat);
	init_requests(made);
	init_producer(made, ranks_all);
	init_consumer(made, ranks_all);
	kvpull_outbox_init(&made->outbox, &outbox, &made->arena);
	if (!kvpull_arena_ok(&made->arena)) {
		kvpull_scheduler_destroy(made);
		return kvpull_kept_end(&log, &kept, KVPULL_ENOMEM,
				       setup->detail);
	}
	made->own_log = *setup->log;
	made->own_log.budget = &made->log_budget;
	kvpull_arena_seal(&made->arena);
	*scheduler = made;
	return 0;
}

void kvpull_scheduler_destroy(struct kvpull_scheduler *scheduler)
{
	struct kvpull_arena arena;

	if (!scheduler)
		return;
	arena = scheduler->arena; /* it has the scheduler, too */
	kvpull_arena_fini(&arena);
}
