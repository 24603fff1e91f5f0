/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle's books of holds: who was given which, and who has reported it. */
#include <string.h>

#include "plugin/hold/hold_state.h"
#include "tests/sim/oracle.h"

struct sim_hold *sim_hold_find(struct sim_world *world, uint64_t key)
{
	uint32_t at;

	for (at = world->hold_count; at > 0; at--)
		if (world->holds[at - 1].key == key)
			return &world->holds[at - 1];
	return NULL;
}

void sim_oracle_held(struct sim_instance *instance,
		     const struct sim_request *request, const char *ticket,
		     size_t ticket_bytes)
{
	static struct kvpull_ticket_scratch scratch;
	struct sim_world *world = instance->world;
	struct kvpull_ticket_info info = { .struct_size = sizeof(info) };
	struct sim_hold *hold = &world->holds[world->hold_count];

	if (world->hold_count == SIM_HOLDS)
		sim_fail(world,
			 "more holds than the oracle keeps: fewer steps");
	if (kvpull_ticket_peek(ticket, ticket_bytes, &scratch, &info))
		sim_fail(world, "a fresh ticket cannot be read");
	*hold = (struct sim_hold){
		.key = request->key,
		.content = request->content,
		.generation = info.generation,
		.life = instance->incarnation,
		.created_ns = world->now_ns,
		.slot = info.slot,
		.instance = instance->index,
		.tokens = request->tokens,
		.computed = request->computed,
		.block_count = request->block_count,
		.ticket_bytes = ticket_bytes,
	};
	memcpy(hold->digest, request->digest, sizeof(hold->digest));
	memcpy(hold->ticket, ticket, ticket_bytes);
	world->open[world->open_count++] = world->hold_count++;
}

uint32_t sim_oracle_ticket(const struct sim_world *world, const char *ticket,
			   size_t ticket_bytes)
{
	uint32_t at;

	for (at = world->hold_count; at > 0; at--)
		if (world->holds[at - 1].ticket_bytes == ticket_bytes &&
		    !memcmp(world->holds[at - 1].ticket, ticket, ticket_bytes))
			return at - 1;
	return SIM_NONE;
}

int sim_hold_is_of(const struct sim_hold *hold, const struct sim_proc *proc)
{
	return hold->life == proc->instance->incarnation;
}

void sim_oracle_told(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	uint32_t at;

	for (at = 0; at < world->open_count; at++) {
		struct sim_hold *hold = &world->holds[world->open[at]];
		struct sim_hold_rank *rank = &hold->ranks[proc->rank];

		if (!sim_hold_is_of(hold, proc) ||
		    rank->taken_by == proc->incarnation ||
		    kvpull_map_get(&proc->worker->holds->keys, hold->key) ==
			    KVPULL_MAP_NONE)
			continue;
		rank->taken_by = proc->incarnation;
		rank->taken_ns = world->now_ns;
		rank->taken_stall_ns = proc->stall_ns;
	}
}

int sim_oracle_is_known(struct sim_proc *proc, uint64_t key)
{
	const struct sim_hold *hold = sim_hold_find(proc->world, key);
	const struct sim_hold_rank *rank;

	if (!hold)
		return 0;
	rank = &hold->ranks[proc->rank];
	return rank->taken_by == proc->incarnation || rank->claimer_count;
}

void sim_oracle_heard(struct sim_proc *proc,
		      const struct kvpull_poll_record *record)
{
	struct sim_hold *hold = sim_hold_find(proc->world, record->key);

	if (hold)
		hold->ranks[proc->rank].heard_by = proc->incarnation;
	if (hold && !hold->told_ns && record->reason != KVPULL_END_RELEASED)
		hold->told_ns = proc->world->now_ns;
}

void sim_oracle_aborted(struct sim_instance *instance, uint64_t key)
{
	struct sim_hold *hold = sim_hold_find(instance->world, key);

	if (hold)
		hold->aborted = 1;
}

/* What it had said, and the engine never got, was never said. */
void sim_oracle_proc_dead(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	const uint64_t bit = UINT64_C(1) << proc->rank;
	uint32_t at;

	for (at = 0; at < world->hold_count; at++) {
		struct sim_hold *hold = &world->holds[at];
		struct sim_hold_rank *rank = &hold->ranks[proc->rank];
		const struct sim_request *request;

		if (!sim_hold_is_of(hold, proc) ||
		    rank->sent_by != proc->incarnation)
			continue;
		request = sim_request_find(proc->instance, hold->key);
		if (request && !(request->reported & bit))
			rank->sent_by = 0;
		if (rank->heard_by == proc->incarnation)
			rank->excused = proc->unsaid;
	}
}
