/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights and adapters that change in an engine, and what its cache has of before.
 * A request's adapter is its key's, so that it has one without a draw.
 */
#include "tests/sim/change.h"

#define ADAPTERS 3u /* 0: none */

uint64_t sim_adapter(const struct sim_world *world, uint64_t key)
{
	return world->shape.changes ? key % ADAPTERS : 0;
}

/* In an engine's own books: what it asked for, and what it loads. */
static void request_change(struct sim_instance *instance,
			   struct sim_request *request, uint64_t adapter)
{
	if (adapter && sim_adapter(instance->world, request->key) != adapter)
		return;
	if (request->state == SIM_RUNNING || request->state == SIM_WAITING ||
	    request->state == SIM_PULLING)
		request->changed = 1;
}

void sim_change(struct sim_instance *instance)
{
	struct sim_world *world = instance->world;
	const uint64_t adapter = sim_below(world, ADAPTERS);
	uint32_t at;

	sim_trace(world, "instance %lu changes adapter %lu", instance->index,
		  adapter, 0);
	if (kvpull_scheduler_changed(instance->scheduler, adapter,
				     world->now_ns))
		sim_fail(world, "instance %u cannot tell of a change",
			 instance->index);
	for (at = 0; at < instance->request_count; at++)
		request_change(instance, &instance->requests[at], adapter);
	instance->suspects |= adapter ? 1u << adapter : ~0u;
	world->counts.changes++;
}

void sim_change_clear(struct sim_instance *instance)
{
	instance->suspects = 0;
	if (kvpull_scheduler_reset(instance->scheduler, KVPULL_RESET_CLEARED,
				   instance->world->now_ns))
		sim_fail(instance->world, "instance %u cannot clear its cache",
			 instance->index);
}

void sim_change_hit(struct sim_instance *instance, struct sim_request *request)
{
	struct sim_world *world = instance->world;
	const uint64_t adapter = sim_adapter(world, request->key);
	uint32_t tokens = 0;

	if (kvpull_scheduler_matched_tokens(instance->scheduler, request->key,
					    1, &tokens, world->now_ns) !=
	    KVPULL_MATCH_NOTHING)
		sim_fail(world, "a request without a ticket may load");
	if (instance->suspects >> adapter & 1)
		request->changed = 1;
}

void sim_change_used(struct sim_instance *instance, struct sim_request *request)
{
	const int code =
		kvpull_scheduler_loaded(instance->scheduler, request->key);

	if (code != (request->changed ? KVPULL_EMISMATCH : 0))
		sim_fail(instance->world,
			 "request %llu is loaded, may it be used? %d",
			 (unsigned long long)request->key, code);
}
