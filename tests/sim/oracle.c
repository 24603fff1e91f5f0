/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle's books of holds: who was given which, and who has reported it. */
#include <string.h>

#include "plugin/hold/hold_state.h"
#include "tests/sim/oracle.h"

struct sim_hold *sim_hold_find(struct sim_world *world, uint64_t key)
{
	const uint32_t hold = sim_key_find(world, key)->hold;

	return hold ? &world->holds[hold - 1] : NULL;
}

struct sim_hold *sim_hold_named(const struct sim_instance *instance,
				uint32_t slot, uint64_t generation)
{
	struct sim_world *world = instance->world;
	uint32_t at;

	if (slot >= world->shape.holds)
		return NULL;
	for (at = instance->slots[slot]; at;
	     at = world->holds[at - 1].slot_older) {
		struct sim_hold *hold = &world->holds[at - 1];

		if (hold->life != instance->incarnation)
			return NULL;
		if (hold->generation == generation)
			return hold;
	}
	return NULL;
}

int sim_hold_is_over(struct sim_world *world, const struct sim_hold *hold)
{
	struct sim_instance *instance = &world->instances[hold->instance];

	return hold->life != instance->incarnation ||
	       !sim_request_find(instance, hold->key);
}

void sim_oracle_held(struct sim_instance *instance,
		     const struct sim_request *request, const char *ticket,
		     size_t ticket_bytes)
{
	static struct kvpull_ticket_scratch scratch;
	struct sim_world *world = instance->world;
	struct kvpull_ticket_info info = { .struct_size = sizeof(info) };
	struct sim_hold *hold = &world->holds[world->hold_count];
	uint32_t rank;

	if (world->hold_count == world->hold_capacity)
		sim_fail(world,
			 "more holds than the oracle keeps: fewer steps");
	if (kvpull_ticket_peek(ticket, ticket_bytes, &scratch, &info) ||
	    info.slot >= world->shape.holds)
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
		.older = instance->newest,
		.slot_older = instance->slots[info.slot],
	};
	memcpy(hold->digest, request->digest, sizeof(hold->digest));
	memcpy(hold->ticket, ticket, ticket_bytes);
	sim_story_add(world, ticket, ticket_bytes);
	for (rank = 0; rank < instance->ranks; rank++) {
		hold->tags[rank] = scratch.ticket.ranks[rank].tag;
		hold->workers[rank] = scratch.ticket.ranks[rank].incarnation;
	}
	sim_list_add(&instance->open, world->hold_count);
	for (rank = 0; rank < instance->ranks; rank++)
		sim_list_add(&instance->procs[rank]->untaken,
			     world->hold_count);
	instance->newest = instance->slots[info.slot] = ++world->hold_count;
	sim_key_find(world, request->key)->hold = world->hold_count;
}

uint32_t sim_oracle_ticket(const struct sim_instance *instance,
			   const char *ticket, size_t ticket_bytes)
{
	static struct kvpull_ticket_scratch scratch;
	struct kvpull_ticket_info info = { .struct_size = sizeof(info) };
	const struct sim_hold *hold;

	if (kvpull_ticket_peek(ticket, ticket_bytes, &scratch, &info))
		return SIM_NONE;
	hold = sim_hold_named(instance, info.slot, info.generation);
	if (!hold || hold->ticket_bytes != ticket_bytes ||
	    memcmp(hold->ticket, ticket, ticket_bytes) != 0)
		return SIM_NONE;
	return (uint32_t)(hold - instance->world->holds);
}

int sim_hold_is_of(const struct sim_hold *hold, const struct sim_proc *proc)
{
	return hold->life == proc->instance->incarnation;
}

void sim_oracle_told(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	uint32_t at = 0;

	while (at < proc->untaken.count) {
		struct sim_hold *hold = &world->holds[proc->untaken.at[at]];
		struct sim_hold_rank *rank = &hold->ranks[proc->rank];

		if (sim_hold_is_over(world, hold)) {
			sim_list_drop(&proc->untaken, at);
			continue;
		}
		if (kvpull_map_get(&proc->worker->holds->keys, hold->key) ==
		    KVPULL_NONE) {
			at++;
			continue;
		}
		sim_list_drop(&proc->untaken, at);
		rank->taken_by = proc->incarnation;
		rank->taken_ns = world->now_ns;
		rank->taken_missed_ns = proc->missed_ns;
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
	if (!hold || record->reason == KVPULL_END_RELEASED)
		return;
	if (record->reason == KVPULL_END_GIVEN_BACK && !hold->marked_ns)
		hold->marked_ns = proc->world->now_ns;
	if (record->reason != KVPULL_END_GIVEN_BACK && !hold->told_ns)
		hold->told_ns = proc->world->now_ns;
}

void sim_oracle_aborted(struct sim_instance *instance, uint64_t key)
{
	struct sim_hold *hold = sim_hold_find(instance->world, key);

	if (hold)
		hold->aborted = 1;
}

/* Words of a dead process that its engine never got were never said. */
void sim_oracle_proc_dead(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	const uint64_t bit = UINT64_C(1) << proc->rank;
	uint32_t at;

	for (at = proc->instance->newest; at; at = world->holds[at - 1].older) {
		struct sim_hold *hold = &world->holds[at - 1];
		struct sim_hold_rank *rank = &hold->ranks[proc->rank];
		const struct sim_request *request;

		if (!sim_hold_is_of(hold, proc))
			break;
		if (rank->sent_by != proc->incarnation)
			continue;
		request = sim_request_find(proc->instance, hold->key);
		if (request && !(request->reported & bit))
			rank->sent_by = 0;
		if (rank->heard_by == proc->incarnation)
			rank->excused = proc->unsaid;
	}
}
