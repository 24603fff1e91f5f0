/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of a consumer, and the router that brings it tickets. */
#include <string.h>

#include "tests/sim/change.h"
#include "tests/sim/payload.h"

/* In a big world a router knows some producers for each consumer. */
static struct sim_hold *neighbour_pick(const struct sim_instance *instance,
				       uint32_t back)
{
	struct sim_world *world = instance->world;
	const uint32_t producers = (world->instance_count + 3) / 4;
	const uint64_t near = instance->index / 4 + sim_below(world, 8);
	uint32_t at = world->instances[4 * (near % producers)].newest;

	while (at && back-- && world->holds[at - 1].older)
		at = world->holds[at - 1].older;
	return at ? &world->holds[at - 1] : NULL;
}

/* A ticket that some producer gave out, mostly a fresh one. */
static struct sim_hold *ticket_pick(const struct sim_instance *instance)
{
	struct sim_world *world = instance->world;
	const uint32_t count = world->hold_count;
	const uint32_t back = sim_chance(world, 900) ? 6 : 64;

	if (world->big)
		return neighbour_pick(instance,
				      (uint32_t)sim_below(world, back));
	if (!count)
		return NULL;
	return &world->holds[count - 1 -
			     sim_below(world, count < back ? count : back)];
}

/* Return: nobody has used the request's ticket here, or its users still wait. */
static int is_fresh(struct sim_instance *instance,
		    const struct sim_request *request)
{
	struct sim_hold *hold = &instance->world->holds[request->hold];
	struct sim_user *user = sim_user_of(hold, instance);
	const int is_first = user->used_life != instance->incarnation;
	uint32_t at;

	user->used_life = instance->incarnation;
	if (is_first)
		user->used_ns = instance->world->now_ns;
	for (at = 0; at < SIM_REQUESTS && !is_first; at++) {
		const struct sim_request *other = &instance->requests[at];

		if (other != request && other->fresh && !other->wrong &&
		    !other->changed && other->state == SIM_WAITING &&
		    other->hold == request->hold)
			return 1;
	}
	return is_first;
}

/* A copy whose key's checksum alone is damaged has its tags, and is given back. */
static void admission_failed(const struct sim_instance *instance,
			     struct sim_hold *hold)
{
	struct sim_user *user = sim_user_of(hold, instance);

	user->used_life = user->copied_life = instance->incarnation;
}

static int admit(struct sim_instance *instance, struct sim_hold *hold,
		 const char *ticket)
{
	struct sim_world *world = instance->world;
	struct sim_request *request = sim_request_slot(instance);
	struct kvpull_request call = { .struct_size = sizeof(call) };

	if (!request)
		return 1;
	memset(request, 0, sizeof(*request));
	request->state = SIM_WAITING;
	request->key =
		sim_key_next(world, (uint32_t)(request - instance->requests));
	request->hold = (uint32_t)(hold - world->holds);
	request->tokens = hold->tokens;
	request->computed = hold->computed;
	request->since_ns = world->now_ns;
	if (sim_chance(world, world->shape.crowd ? 300 : 30))
		request->queued_ns =
			world->now_ns + sim_below(world, 3 * world->lease_ns);
	if (sim_chance(world, 250))
		request->local_tokens =
			SIM_BLOCK_TOKENS *
			(uint32_t)sim_below(world, hold->block_count + 1);
	memcpy(request->digest, hold->digest, sizeof(request->digest));
	if (sim_fault(world, SIM_FAULT_OTHER_PROMPT, 30)) {
		request->wrong = 1;
		request->digest[15] ^= 1;
	}
	call.key = request->key;
	call.ticket = ticket;
	call.ticket_bytes = hold->ticket_bytes;
	call.prompt_tokens = request->tokens;
	call.flags = KVPULL_REQUEST_PULL;
	call.adapter = sim_adapter(world, request->key);
	call.priority = sim_priority(world, hold->generation);
	memcpy(call.prompt_digest, request->digest, sizeof(request->digest));
	sim_trace(world,
		  "instance %lu admits request %lu for the ticket of %lu",
		  instance->index, request->key, hold->key);
	if (kvpull_scheduler_request_new(instance->scheduler, &call,
					 world->now_ns)) {
		admission_failed(instance, hold);
		return 1;
	}
	request->shown = 1;
	request->fresh = ticket == hold->ticket && is_fresh(instance, request);
	return 0;
}

static void arrive(struct sim_instance *instance)
{
	struct sim_world *world = instance->world;
	struct sim_hold *hold = ticket_pick(instance);
	uint32_t users =
		sim_chance(world, 250) ? 2 + (uint32_t)sim_below(world, 2) : 1;
	char ticket[SIM_TICKET_BYTES];

	if (!hold)
		return;
	memcpy(ticket, hold->ticket, hold->ticket_bytes);
	if (sim_fault(world, SIM_FAULT_CORRUPT, 30)) {
		ticket[sim_below(world, hold->ticket_bytes)] ^= 1;
		world->counts.corrupt++;
		if (!admit(instance, hold, ticket))
			sim_fail(world, "a corrupt ticket is accepted");
		return;
	}
	/*
	 * Requests that share a ticket wait for all its users, with what they
	 * all keep.
	 */
	if (world->smooth)
		users = sim_user_of(hold, instance)->used_life !=
			instance->incarnation;
	while (users--)
		(void)admit(instance, hold, hold->ticket);
}

static void reject(struct sim_instance *instance)
{
	struct sim_world *world = instance->world;
	struct sim_hold *hold = ticket_pick(instance);
	int code;

	if (!hold)
		return;
	sim_trace(world, "instance %lu rejects the ticket of %lu",
		  instance->index, hold->key, 0);
	code = kvpull_scheduler_request_rejected(
		instance->scheduler, hold->ticket, hold->ticket_bytes,
		world->now_ns);
	if (code && code != KVPULL_EFULL &&
	    instance->stranger != SIM_STRANGER_KEY)
		sim_fail(world, "a rejection is answered %d", code);
	sim_user_of(hold, instance)->used_life = instance->incarnation;
	if (!code)
		sim_user_of(hold, instance)->left_ns = world->now_ns;
	world->counts.rejects++;
}

/* The payload of a ticket is told to whom it was read for, and to no other. */
static void payload_check(struct sim_instance *instance,
			  const struct sim_request *request)
{
	struct sim_world *world = instance->world;
	uint8_t wanted[SIM_PAYLOAD_BYTES];
	uint8_t told[SIM_PAYLOAD_BYTES];
	uint32_t wanted_bytes;
	size_t bytes;

	if (kvpull_scheduler_payload_get(instance->scheduler, request->key,
					 told, sizeof(told), &bytes))
		return;
	if (request->good != (UINT64_C(1) << instance->ranks) - 1)
		sim_fail(
			world,
			"request %llu is told the payload of a ticket that was not read",
			(unsigned long long)request->key);
	wanted_bytes =
		sim_payload_fill(world->holds[request->hold].content, wanted);
	if (bytes != wanted_bytes || memcmp(told, wanted, bytes))
		sim_fail(world, "request %llu is told another payload",
			 (unsigned long long)request->key);
	world->counts.payloads++;
}

static void leave(struct sim_instance *instance, struct sim_request *request,
		  uint32_t reason)
{
	struct kvpull_finish call = {
		.struct_size = sizeof(call),
		.key = request->key,
		.reason = reason,
		.computed_tokens = request->tokens,
	};

	payload_check(instance, request);
	if (kvpull_scheduler_request_finished(instance->scheduler, &call,
					      instance->world->now_ns) !=
	    KVPULL_FINISH_FREE)
		sim_fail(instance->world, "a consumer's request is held");
	if (request->shown)
		sim_user_of(&instance->world->holds[request->hold], instance)
			->left_ns = instance->world->now_ns;
	sim_trace(instance->world, "instance %lu ends request %lu",
		  instance->index, request->key, 0);
	request->finished = 1;
	if (request->state == SIM_PULLING)
		return;
	request->state = SIM_IDLE;
	sim_blocks_give(instance, request);
}

/*
 * The instance's scheduler half hears of the expiry now, if no message is lost.
 */
static void expiry_note(struct sim_instance *instance,
			const struct sim_request *request)
{
	struct sim_world *world = instance->world;
	struct sim_user *user =
		sim_user_of(&world->holds[request->hold], instance);

	if (world->bytes_faulty)
		return;
	user->expired_life = instance->incarnation;
	user->expired_ns = world->now_ns;
}

/* All ranks told: the blocks are good, or the engine computes by itself. */
static void settle(struct sim_instance *instance, struct sim_request *request)
{
	const uint64_t all = (UINT64_C(1) << instance->ranks) - 1;

	if (request->state != SIM_PULLING || request->reported != all)
		return;
	sim_user_of(&instance->world->holds[request->hold], instance)
		->ended_life = instance->incarnation;
	if (request->expired)
		expiry_note(instance, request);
	if (!request->failed && !request->finished)
		sim_change_used(instance, request);
	request->state = SIM_LOCAL;
	if (!request->finished)
		return;
	request->state = SIM_IDLE;
	sim_blocks_give(instance, request);
}

void sim_consumer_ended(struct sim_proc *proc,
			const struct kvpull_poll_record *record)
{
	struct sim_instance *instance = proc->instance;
	struct sim_request *request = sim_request_find(instance, record->key);
	const uint64_t bit = UINT64_C(1) << proc->rank;

	if (!request || request->state != SIM_PULLING ||
	    (request->reported & bit))
		sim_fail(proc->world,
			 "request %llu is reported twice by rank %u",
			 (unsigned long long)record->key, proc->rank);
	request->reported |= bit;
	if (record->kind == KVPULL_POLL_LOADED)
		request->good |= bit;
	request->failed |= record->kind == KVPULL_POLL_FAILED;
	request->expired |= record->reason == KVPULL_EEXPIRED;
	settle(instance, request);
}

void sim_consumer_rank_lost(struct sim_instance *instance, uint32_t rank)
{
	uint32_t at;

	for (at = 0; at < SIM_REQUESTS; at++) {
		struct sim_request *request = &instance->requests[at];

		if (request->state != SIM_PULLING)
			continue;
		request->reported |= UINT64_C(1) << rank;
		request->failed = 1;
		settle(instance, request);
	}
}

static void allocate(struct sim_instance *instance, struct sim_request *request,
		     uint32_t tokens)
{
	struct sim_world *world = instance->world;
	const uint32_t first = request->local_tokens / SIM_BLOCK_TOKENS;
	const uint32_t end =
		(request->local_tokens + tokens + SIM_BLOCK_TOKENS - 1) /
		SIM_BLOCK_TOKENS;
	struct sim_group groups[SIM_GROUPS];
	struct kvpull_blocks blocks[SIM_GROUPS];
	struct kvpull_allocation call = {
		.struct_size = sizeof(call),
		.key = request->key,
		.external_tokens = tokens,
		.groups = blocks,
	};
	uint32_t count = end - first;
	uint32_t rank;
	uint32_t at;
	int code;

	/* A state is that of the last token: all are loaded, or none. */
	if (!world->shape.state && sim_chance(world, 100))
		count = 1 + (uint32_t)sim_below(world, count);
	if (first + count < end)
		call.external_tokens = (first + count) * SIM_BLOCK_TOKENS -
				       request->local_tokens;
	if (!sim_blocks_take(instance, request, count))
		return;
	request->first_index = first;
	call.group_count = sim_groups_fill(
		world, request, world->holds[request->hold].block_count, groups,
		blocks);
	request->state = SIM_PULLING;
	request->since_ns = world->now_ns;
	for (rank = 0; rank < instance->ranks; rank++) {
		struct sim_proc *proc = instance->procs[rank];

		request->stall_ns[rank] = proc->stall_ns;
		for (at = 0; at < count; at++)
			proc->block_key[request->blocks[at]] = request->key;
	}
	code = kvpull_scheduler_allocated(instance->scheduler, &call,
					  world->now_ns);
	sim_trace(world, "instance %lu allocates for request %lu: %ld",
		  instance->index, request->key, (uint64_t)(int64_t)code);
	if (code == KVPULL_EINVAL || code == KVPULL_ENOKEY)
		sim_fail(world, "an allocation after LOAD is answered %d",
			 code);
	if (sim_chance(world, 50))
		(void)kvpull_scheduler_allocated(instance->scheduler, &call,
						 world->now_ns);
}

/* May another request read by this ticket now? */
static void load_check(struct sim_instance *instance,
		       const struct sim_request *request)
{
	struct sim_world *world = instance->world;
	const struct sim_user *user =
		sim_user_of(&world->holds[request->hold], instance);
	uint32_t at;

	if (user->expired_life == instance->incarnation &&
	    request->since_ns < user->expired_ns)
		sim_fail(world, "request %llu may load what has expired",
			 (unsigned long long)request->key);
	for (at = 0; at < SIM_REQUESTS && instance->share_prefix; at++)
		if (instance->requests[at].state == SIM_PULLING &&
		    instance->requests[at].hold == request->hold)
			sim_fail(
				world,
				"request %llu may load what %llu is loading",
				(unsigned long long)request->key,
				(unsigned long long)instance->requests[at].key);
}

/* Is there really nothing for it to read? None waits longer for a rank. */
static void nothing_check(struct sim_instance *instance,
			  const struct sim_request *request)
{
	struct sim_world *world = instance->world;
	struct sim_hold *hold = &world->holds[request->hold];

	if (request->fresh && !request->wrong && !request->changed &&
	    !instance->restarts && !instance->stranger &&
	    (sim_ranks_are_known(instance) ||
	     world->now_ns < request->since_ns + world->lease_ns) &&
	    request->local_tokens < hold->computed &&
	    sim_user_of(hold, instance)->ended_life != instance->incarnation)
		sim_fail(world, "request %llu may load nothing, and why?",
			 (unsigned long long)request->key);
}

/* The scheduler's step asks about each request that waits. */
static void ask(struct sim_instance *instance, struct sim_request *request)
{
	struct sim_world *world = instance->world;
	uint32_t computed;
	uint32_t tokens = 0;
	int code;
	const int answer = kvpull_scheduler_matched_tokens(
		instance->scheduler, request->key, request->local_tokens,
		&tokens, world->now_ns);

	if (answer == KVPULL_MATCH_NOTHING) {
		const struct kvpull_allocation call = {
			.struct_size = sizeof(call),
			.key = request->key,
		};

		nothing_check(instance, request);
		code = kvpull_scheduler_allocated(instance->scheduler, &call,
						  world->now_ns);
		/* There may have been no room to know it. */
		if (code && (code != KVPULL_ENOKEY || !world->shape.tight))
			sim_fail(world, "a full local hit is refused");
		request->state = SIM_LOCAL;
		return;
	}
	if (answer == KVPULL_MATCH_WAIT)
		return;
	load_check(instance, request);
	if (request->changed)
		sim_fail(world, "request %llu may load, of before a change",
			 (unsigned long long)request->key);
	if (request->wrong)
		sim_fail(world, "request %llu may load another prompt's blocks",
			 (unsigned long long)request->key);
	computed = world->holds[request->hold].computed;
	if (!tokens || request->local_tokens + tokens > computed ||
	    (world->shape.state && request->local_tokens + tokens != computed))
		sim_fail(world, "request %llu may load %u tokens",
			 (unsigned long long)request->key, tokens);
	if (world->shape.changes && sim_chance(world, 20))
		sim_change(instance);
	if (sim_chance(world, 700))
		allocate(instance, request, tokens);
}

static void turn_request(struct sim_instance *instance,
			 struct sim_request *request)
{
	struct sim_world *world = instance->world;

	switch (request->state) {
	case SIM_WAITING:
		if (!world->quiet && world->now_ns < request->queued_ns)
			break;
		if (world->quiet || sim_chance(world, world->smooth ? 1 : 15))
			leave(instance, request,
			      sim_chance(world, 500) ? KVPULL_FINISH_ABORT :
						       KVPULL_FINISH_REJECT);
		else if (sim_chance(world, 600))
			ask(instance, request);
		break;
	case SIM_PULLING:
		if (!request->finished && sim_chance(world, 8))
			leave(instance, request, KVPULL_FINISH_ABORT);
		break;
	case SIM_LOCAL:
		if (world->quiet || sim_chance(world, 100))
			leave(instance, request, KVPULL_FINISH_STOP);
		break;
	case SIM_IDLE:
	case SIM_RUNNING:
	case SIM_HELD:
		break;
	}
}

void sim_consumer_turn(struct sim_instance *instance)
{
	struct sim_world *world = instance->world;
	uint32_t at;

	for (at = 0; at < SIM_REQUESTS; at++)
		turn_request(instance, &instance->requests[at]);
	if (world->quiet)
		return;
	if (world->shape.changes && sim_chance(world, 5))
		sim_change(instance);
	if (sim_chance(world, 300))
		arrive(instance);
	if (sim_fault(world, SIM_FAULT_REJECTED, 50))
		reject(instance);
}
