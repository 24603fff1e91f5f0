/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of a producer: prefills, finishes, blocks that are really reused. */
#include <string.h>

#include "tests/sim/change.h"
#include "tests/sim/device.h"
#include "tests/sim/payload.h"

/* sim_request.flags */
#define READY 1u  /* its writes end after its finish */
#define FAMILY 2u /* it shares its siblings' hold */

static void fill(struct sim_instance *instance, struct sim_request *request)
{
	uint32_t rank;
	uint32_t at;

	for (at = 0; at < request->block_count; at++)
		for (rank = 0; rank < instance->ranks; rank++)
			sim_fill(instance->procs[rank], request, at,
				 request->content);
	if (instance->world->shape.device)
		sim_kernels_note(instance, request);
}

static void prefill(struct sim_instance *instance)
{
	struct sim_world *world = instance->world;
	struct sim_request *request = sim_request_slot(instance);
	const struct sim_request *sibling =
		&instance->requests[sim_below(world, instance->request_count)];
	struct kvpull_request call = { .struct_size = sizeof(call) };
	uint32_t count = 1 + (uint32_t)sim_below(world, SIM_REQUEST_BLOCKS);

	if (!request)
		return;
	memset(request, 0, sizeof(*request));
	if (sibling->state != SIM_IDLE && sibling->parent &&
	    sibling != request && sim_chance(world, 600)) {
		request->parent = sibling->parent;
		request->tokens = sibling->tokens;
		memcpy(request->digest, sibling->digest,
		       sizeof(request->digest));
		count = (request->tokens + SIM_BLOCK_TOKENS - 1) /
			SIM_BLOCK_TOKENS;
	}
	if (!sim_blocks_take(instance, request, count))
		return;
	request->key =
		sim_key_next(world, (uint32_t)(request - instance->requests));
	request->content = sim_random(world);
	request->state = SIM_RUNNING;
	if (!request->tokens) {
		request->tokens = count * SIM_BLOCK_TOKENS -
				  (uint32_t)sim_below(world, SIM_BLOCK_TOKENS);
		memcpy(request->digest, &request->content,
		       sizeof(request->content));
		if (sim_chance(world, 300))
			request->parent = request->key;
	}
	request->flags =
		sim_fault(world, SIM_FAULT_WRITTEN_LATE, 100) ? READY : 0;
	request->computed = request->tokens;
	if (world->shape.partial && sim_chance(world, 300))
		request->computed =
			1 + (uint32_t)sim_below(world, request->tokens);
	if (!request->flags)
		fill(instance, request);
	call.key = request->key;
	call.parent_key = request->parent;
	call.prompt_tokens = request->tokens;
	call.flags = sim_chance(world, 950) ? KVPULL_REQUEST_WANTS_HOLD : 0;
	call.flags |= sim_chance(world, 100) ? KVPULL_REQUEST_ALONE : 0;
	if (request->parent && call.flags == KVPULL_REQUEST_WANTS_HOLD)
		request->flags |= FAMILY;
	call.adapter = sim_adapter(world, request->key);
	memcpy(call.prompt_digest, request->digest, sizeof(request->digest));
	/* A table may be full: the request is unknown then, and never held. */
	if (!kvpull_scheduler_request_new(instance->scheduler, &call,
					  world->now_ns) &&
	    world->shape.changes && sim_chance(world, 300))
		sim_change_hit(instance, request);
}

/* A sibling whose hold all of them share, while it lives. */
static const struct sim_request *
sibling_held(const struct sim_instance *instance,
	     const struct sim_request *request)
{
	const struct sim_request *other =
		&instance->requests[sim_key_find(instance->world,
						 request->parent)
					    ->sibling];

	if (other->state == SIM_HELD && other != request &&
	    other->flags & request->flags & FAMILY &&
	    other->parent == request->parent)
		return other;
	return NULL;
}

static void held_check(struct sim_instance *instance,
		       const struct sim_request *request, size_t ticket_bytes)
{
	const struct sim_request *sibling = sibling_held(instance, request);
	const struct sim_shape *shape = &instance->world->shape;

	if (!ticket_bytes)
		sim_fail(instance->world,
			 "request %llu is held without a ticket",
			 (unsigned long long)request->key);
	if (request->changed)
		sim_fail(instance->world,
			 "request %llu is held, of before a change",
			 (unsigned long long)request->key);
	if (instance->draining)
		sim_fail(instance->world,
			 "request %llu is held while instance %u drains",
			 (unsigned long long)request->key, instance->index);
	/* A family that found no room has as many holds as members. */
	if (sibling && !shape->tight)
		sim_fail(instance->world,
			 "request %llu is held, and its sibling %llu too",
			 (unsigned long long)request->key,
			 (unsigned long long)sibling->key);
}

/* A request whose blocks are free carries no ticket, or that of its family. */
static void free_check(struct sim_instance *instance,
		       const struct sim_request *request,
		       const struct kvpull_finish *call)
{
	struct sim_world *world = instance->world;
	const struct sim_request *sibling = sibling_held(instance, request);
	uint32_t hold;

	if (!call->ticket_bytes) {
		if (sibling && call->reason == KVPULL_FINISH_STOP &&
		    !request->changed && !world->shape.tight)
			sim_fail(world,
				 "request %llu got no ticket of sibling %llu",
				 (unsigned long long)request->key,
				 (unsigned long long)sibling->key);
		return;
	}
	world->counts.siblings++;
	hold = sim_oracle_ticket(instance, call->ticket, call->ticket_bytes);
	if (!request->parent || hold == SIM_NONE ||
	    memcmp(world->holds[hold].digest, request->digest,
		   sizeof(request->digest)))
		sim_fail(world, "request %llu got a ticket of no sibling",
			 (unsigned long long)request->key);
}

/* Kernels that are queued, and not done, are late writes from here on. */
static uint32_t is_queued(const struct sim_instance *instance,
			  struct sim_request *request)
{
	if (!instance->world->shape.device || request->flags & READY ||
	    sim_kernels_are_done(instance, request))
		return 0;
	request->flags |= READY;
	request->written = (UINT64_C(1) << instance->ranks) - 1;
	return 1;
}

static void finish(struct sim_instance *instance, struct sim_request *request,
		   uint32_t reason)
{
	uint8_t payload[SIM_PAYLOAD_BYTES];
	struct sim_world *world = instance->world;
	struct sim_group groups[SIM_GROUPS];
	struct kvpull_blocks blocks[SIM_GROUPS];
	char ticket[SIM_TICKET_BYTES];
	const uint32_t is_late =
		request->flags & READY || is_queued(instance, request);
	struct kvpull_finish call = {
		.struct_size = sizeof(call),
		.key = request->key,
		.reason = reason,
		.flags = is_late ? KVPULL_FINISH_READY_NEEDED : 0,
		.computed_tokens = request->computed,
		.group_count = sim_groups_fill(
			world, request, request->block_count, groups, blocks),
		.payload_bytes = sim_payload_fill(request->content, payload),
		.payload = payload,
		.groups = blocks,
		.ticket = ticket,
		.ticket_capacity = sizeof(ticket),
	};
	const int answer = kvpull_scheduler_request_finished(
		instance->scheduler, &call, world->now_ns);

	sim_trace(world, "instance %lu finishes request %lu, answer %ld",
		  instance->index, request->key, (uint64_t)(int64_t)answer);
	if (answer == KVPULL_FINISH_HELD) {
		held_check(instance, request, call.ticket_bytes);
		request->state = SIM_HELD;
		request->since_ns = world->now_ns;
		if (request->flags & FAMILY)
			sim_key_find(world, request->parent)->sibling =
				(uint32_t)(request - instance->requests);
		world->counts.holds++;
		sim_oracle_held(instance, request, ticket, call.ticket_bytes);
		return;
	}
	if (answer != KVPULL_FINISH_FREE)
		sim_fail(world, "request %llu: finish said %d",
			 (unsigned long long)request->key, answer);
	world->counts.frees++;
	free_check(instance, request, &call);
	request->state = SIM_IDLE;
	sim_blocks_give(instance, request);
}

/* A client goes away after the end: the blocks are held until the reports. */
static void finish_again(struct sim_instance *instance,
			 const struct sim_request *request)
{
	char ticket[SIM_TICKET_BYTES];
	struct kvpull_finish call = {
		.struct_size = sizeof(call),
		.key = request->key,
		.reason = KVPULL_FINISH_ABORT,
		.ticket = ticket,
		.ticket_capacity = sizeof(ticket),
	};

	if (kvpull_scheduler_request_finished(instance->scheduler, &call,
					      instance->world->now_ns) !=
	    KVPULL_FINISH_HELD)
		sim_fail(instance->world,
			 "request %llu is held no more after an abort",
			 (unsigned long long)request->key);
	sim_oracle_aborted(instance, request->key);
	instance->world->counts.aborts++;
}

/* READY_NEEDED: the writes end now, on one rank. */
static void write_late(struct sim_instance *instance,
		       struct sim_request *request)
{
	const uint32_t rank =
		(uint32_t)sim_below(instance->world, instance->ranks);
	const uint64_t bit = UINT64_C(1) << rank;
	struct sim_proc *proc = instance->procs[rank];
	uint32_t at;

	if (!proc->alive || (request->ready & bit))
		return;
	for (at = 0; at < request->block_count && !(request->written & bit);
	     at++)
		sim_fill(proc, request, at, request->content);
	request->written |= bit;
	if (proc->device ?
		    sim_kernels_ready(proc, request) :
		    !kvpull_worker_hold_ready(proc->worker, request->key))
		request->ready |= bit;
}

void sim_producer_sent(struct sim_proc *proc,
		       const struct kvpull_poll_record *record)
{
	struct sim_instance *instance = proc->instance;
	struct sim_request *request = sim_request_find(instance, record->key);
	const uint64_t all = (UINT64_C(1) << instance->ranks) - 1;

	/* sim_oracle_sent() judged it; only a rank's second worker may repeat. */
	if (!request || request->state != SIM_HELD)
		return;
	sim_oracle_heard(proc, record);
	request->reported |= UINT64_C(1) << proc->rank;
	if (request->reported != all)
		return;
	request->state = SIM_IDLE;
	sim_blocks_give(instance, request);
}

static void turn_request(struct sim_instance *instance,
			 struct sim_request *request)
{
	struct sim_world *world = instance->world;

	if (request->state == SIM_RUNNING) {
		if (world->quiet || sim_chance(world, 20))
			finish(instance, request, KVPULL_FINISH_ABORT);
		else if (sim_chance(world, 150))
			finish(instance, request,
			       sim_chance(world, 50) ? KVPULL_FINISH_ERROR :
						       KVPULL_FINISH_STOP);
	} else if (request->state == SIM_HELD) {
		if (request->flags & READY && sim_chance(world, 300))
			write_late(instance, request);
		if (sim_fault(world, SIM_FAULT_ABORTED, 5))
			finish_again(instance, request);
	}
}

/*
 * Blocks of holds that this rank knows are over are not read any more: they may
 * be overwritten.
 */
static void overwrite(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	uint32_t index;
	uint32_t at;

	for (index = 0; index < proc->instance->request_count; index++) {
		struct sim_request *request = &proc->instance->requests[index];

		if (request->state != SIM_HELD ||
		    !sim_oracle_is_known(proc, request->key))
			continue;
		for (at = 0; at < request->block_count; at++)
			sim_fill(proc, request, at, sim_random(world));
		request->written |= UINT64_C(1) << proc->rank;
	}
}

static void revoke_rank(struct sim_proc *proc)
{
	sim_trace(proc->world, "process %lu revokes", proc->index, 0, 0);
	proc->instance->revoked = 1;
	if (kvpull_worker_revoke_all(proc->worker, KVPULL_END_REVOKED) >= 0)
		overwrite(proc);
}

/* At the worst moment: a consumer spoke of what the rank does not hold yet. */
static void revoke_staged(struct sim_instance *instance)
{
	struct sim_world *world = instance->world;
	uint32_t rank;

	for (rank = 0; rank < instance->ranks; rank++) {
		struct sim_proc *proc = instance->procs[rank];
		struct kvpull_hold_counts counts;

		if (!proc->alive)
			continue;
		kvpull_holds_counts(proc->worker->holds, &counts);
		if (counts.staged && sim_fault(world, SIM_FAULT_REVOKED, 50))
			revoke_rank(proc);
	}
}

static void instance_revoke(struct sim_instance *instance)
{
	struct sim_world *world = instance->world;
	struct sim_proc *proc =
		instance->procs[sim_below(world, instance->ranks)];

	sim_trace(world, "instance %lu revokes", instance->index, 0, 0);
	instance->revoked = 1;
	if (sim_chance(world, 500))
		(void)kvpull_scheduler_reset(instance->scheduler,
					     KVPULL_RESET_REVOKE,
					     world->now_ns);
	else if (proc->alive)
		revoke_rank(proc);
}

static void drain(struct sim_instance *instance, uint32_t on)
{
	instance->draining = on;
	if (kvpull_scheduler_drain(instance->scheduler, on) < 0)
		sim_fail(instance->world, "instance %u cannot drain",
			 instance->index);
}

void sim_producer_turn(struct sim_instance *instance)
{
	struct sim_world *world = instance->world;
	uint32_t at;

	do {
		for (at = 0; at < SIM_REQUESTS; at++)
			turn_request(
				instance,
				&instance->requests[instance->window + at]);
		instance->window = (instance->window + SIM_REQUESTS) %
				   instance->request_count;
	} while (world->quiet && instance->window);
	if (instance->draining && (world->quiet || sim_chance(world, 50)))
		drain(instance, 0);
	if (world->quiet)
		return;
	if (sim_fault(world, SIM_FAULT_DRAINED, 2))
		drain(instance, 1);
	if (world->shape.changes && sim_chance(world, 5))
		sim_change(instance);
	if (world->shape.changes && sim_chance(world, 20))
		sim_change_clear(instance);
	if (sim_chance(world, 400))
		prefill(instance);
	if (sim_fault(world, SIM_FAULT_REVOKED, 2))
		instance_revoke(instance);
	revoke_staged(instance);
}
