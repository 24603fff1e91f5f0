/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of a world: its calls, its requests and their tickets. */
#include "tests/unit/scheduler/world.h"

int world_ask(struct world *world, const struct kvpull_request *request)
{
	return kvpull_scheduler_request_new(world->scheduler, request,
					    world->now_ns);
}

int world_reject(struct world *world, const struct world_ticket *ticket)
{
	return kvpull_scheduler_request_rejected(world->scheduler, ticket->text,
						 ticket->bytes, world->now_ns);
}

int world_finish_with(struct world *world, struct kvpull_finish *finish)
{
	return kvpull_scheduler_request_finished(world->scheduler, finish,
						 world->now_ns);
}

int world_allocate_with(struct world *world,
			const struct kvpull_allocation *allocation)
{
	return kvpull_scheduler_allocated(world->scheduler, allocation,
					  world->now_ns);
}

int world_pending(const struct world *world)
{
	return kvpull_scheduler_has_pending(world->scheduler, world->now_ns);
}

int world_has_step(const struct world *world)
{
	const int bits = world_pending(world);

	assert_true(bits >= 0);
	return (bits & (int)KVPULL_PENDING_STEP) != 0;
}

void world_reset(struct world *world, uint32_t flags)
{
	assert_int_equal(
		kvpull_scheduler_reset(world->scheduler, flags, world->now_ns),
		0);
}

void world_change(struct world *world, uint64_t adapter)
{
	assert_int_equal(kvpull_scheduler_changed(world->scheduler, adapter,
						  world->now_ns),
			 0);
}

int world_hear(struct world *world, const uint8_t *bytes, size_t byte_count)
{
	return kvpull_scheduler_result_take(world->scheduler, bytes, byte_count,
					    world->now_ns);
}

void world_enter(struct world *world, uint64_t key, uint64_t parent_key,
		 int digest_byte)
{
	struct kvpull_request request = {
		.key = key,
		.parent_key = parent_key,
		.prompt_tokens = 64,
		.flags = KVPULL_REQUEST_WANTS_HOLD,
		.label = "request-a",
	};

	memset(request.prompt_digest, digest_byte,
	       sizeof(request.prompt_digest));
	assert_int_equal(world_ask(world, &request), 0);
}

/* Lies behind the groups of each call: nothing must look at it. */
#define NO_GROUP                                                               \
	{                                                                      \
		.first_index = UINT32_MAX, .block_count = UINT32_MAX           \
	}

struct kvpull_finish world_finish_of(uint64_t key, struct world_ticket *ticket)
{
	return (struct kvpull_finish){
		.key = key,
		.reason = KVPULL_FINISH_LENGTH,
		.computed_tokens = 64,
		.group_count = 1,
		.groups = &world_group,
		.ticket = ticket ? ticket->text : NULL,
		.ticket_capacity = ticket ? sizeof(ticket->text) : 0,
	};
}

int world_finish(struct world *world, uint64_t key, uint32_t reason,
		 struct world_ticket *ticket)
{
	const struct kvpull_blocks groups[] = { world_group, NO_GROUP };
	struct world_ticket unused;
	struct kvpull_finish finish;
	int answer;

	ticket = ticket ? ticket : &unused;
	finish = world_finish_of(key, ticket);
	finish.reason = reason;
	finish.groups = groups;
	answer = world_finish_with(world, &finish);
	ticket->bytes = finish.ticket_bytes;
	return answer;
}

void finish_held(struct world *world, uint64_t key, uint32_t reason,
		 struct world_ticket *ticket)
{
	assert_int_equal(world_finish(world, key, reason, ticket),
			 KVPULL_FINISH_HELD);
}

void finish_free(struct world *world, uint64_t key, uint32_t reason,
		 struct world_ticket *ticket)
{
	assert_int_equal(world_finish(world, key, reason, ticket),
			 KVPULL_FINISH_FREE);
}

int world_hold(struct world *world, uint64_t key, struct world_ticket *ticket)
{
	world_enter(world, key, 0, 1);
	return world_finish(world, key, KVPULL_FINISH_LENGTH, ticket);
}

void hold(struct world *world, uint64_t key)
{
	assert_int_equal(world_hold(world, key, NULL), KVPULL_FINISH_HELD);
}

void hold_told(struct world *world, uint64_t key)
{
	hold(world, key);
	world_step(world);
}

void hold_settled(struct world *world, uint64_t key)
{
	hold(world, key);
	world_settle(world);
}

void hold_refused(struct world *world, uint64_t key)
{
	struct world_ticket ticket;

	assert_int_equal(world_hold(world, key, &ticket), KVPULL_FINISH_FREE);
	assert_int_equal(ticket.bytes, 0);
}

uint64_t world_hold_all(struct world *world, uint64_t key)
{
	struct world_ticket ticket;

	while (world_hold(world, key, &ticket) == KVPULL_FINISH_HELD)
		assert_true(++key < world->config.max_holds);
	assert_int_equal(ticket.bytes, 0);
	return key;
}

void world_hold_ended(struct world *world, uint32_t rank, uint64_t key,
		      int32_t reason)
{
	struct kvpull_result result = { .kind = KVPULL_RESULT_HOLD_ENDED,
					.key = key,
					.reason = reason };
	uint32_t i;

	for (i = 0; i < world->seen_count; i++)
		if (world->seen[i].command.kind == KVPULL_COMMAND_HOLD &&
		    world->seen[i].command.key == key) {
			result.slot = world->seen[i].command.slot;
			result.generation = world->seen[i].command.generation;
		}
	assert_true(result.generation != 0);
	world_add(world, rank, &result);
}

void hold_ended(struct world *world, uint32_t rank, uint64_t key,
		int32_t reason)
{
	world_hold_ended(world, rank, key, reason);
	world_settle(world);
}

void world_end_hold(struct world *world, uint64_t key, int32_t reason)
{
	uint32_t rank;

	for (rank = 0; rank < world->rank_count; rank++)
		world_hold_ended(world, rank, key, reason);
	world_take_all(world);
}

struct kvpull_request world_request_of(uint64_t key,
				       const struct world_ticket *ticket)
{
	struct kvpull_request request = {
		.key = key,
		.ticket = ticket->text,
		.ticket_bytes = ticket->bytes,
		.prompt_tokens = 64,
		.flags = KVPULL_REQUEST_PULL,
		.label = "request-b",
	};

	memset(request.prompt_digest, 1, sizeof(request.prompt_digest));
	return request;
}

int world_want(struct world *world, uint64_t key,
	       const struct world_ticket *ticket, int digest_byte)
{
	struct kvpull_request request = world_request_of(key, ticket);

	memset(request.prompt_digest, digest_byte,
	       sizeof(request.prompt_digest));
	return world_ask(world, &request);
}

void want(struct world *world, uint64_t count,
	  const struct world_ticket *ticket)
{
	uint64_t key;

	for (key = 1; key <= count; key++)
		assert_int_equal(world_want(world, key, ticket, 1), 0);
}

int world_match(struct world *world, uint64_t key, uint32_t local_tokens)
{
	uint32_t tokens = 0;
	const int answer = kvpull_scheduler_matched_tokens(
		world->scheduler, key, local_tokens, &tokens, world->now_ns);

	if (answer == KVPULL_MATCH_LOAD)
		assert_int_equal(tokens, 64 - local_tokens);
	return answer;
}

void want_offered(struct world *world, uint64_t count,
		  const struct world_ticket *ticket)
{
	want(world, count, ticket);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
}

struct kvpull_allocation world_allocation_of(uint64_t key, uint32_t group_count,
					     const struct kvpull_blocks *groups)
{
	return (struct kvpull_allocation){
		.key = key,
		.external_tokens = 64,
		.group_count = group_count,
		.groups = groups,
	};
}

int world_allocate(struct world *world, uint64_t key, uint32_t first_index,
		   uint32_t block_count)
{
	const struct kvpull_blocks groups[] = {
		{ .first_index = first_index,
		  .block_count = block_count,
		  .block_ids = world_local_blocks },
		NO_GROUP,
	};
	struct kvpull_allocation allocation =
		world_allocation_of(key, 1, groups);

	allocation.external_tokens = block_count * 16;
	return world_allocate_with(world, &allocation);
}

void expect_failure(struct world *world, uint64_t key, int code)
{
	assert_int_equal(kvpull_scheduler_match_failure(world->scheduler, key),
			 code);
}

void load(struct world *world, uint64_t key)
{
	assert_int_equal(world_match(world, key, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate(world, key, 0, 4), 0);
}

void world_pull_ended(struct world *world, uint32_t rank, uint64_t key,
		      int32_t reason)
{
	const struct kvpull_result result = { .kind = KVPULL_RESULT_PULL_ENDED,
					      .key = key,
					      .reason = reason };

	world_add(world, rank, &result);
}

void pull(struct world *world, uint64_t count,
	  const struct world_ticket *ticket)
{
	want(world, count, ticket);
	load(world, 1);
	world_settle(world);
}

void load_refused(struct world *world, uint64_t key, int code)
{
	assert_int_equal(world_match(world, key, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate(world, key, 0, 4), code);
}

void pull_ended(struct world *world, uint32_t rank, uint64_t key,
		int32_t reason)
{
	world_pull_ended(world, rank, key, reason);
	world_settle(world);
}

void end_pull(struct world *world, uint64_t key, int32_t reason)
{
	uint32_t rank;

	for (rank = 0; rank < world->rank_count; rank++)
		world_pull_ended(world, rank, key, reason);
	world_settle(world);
}

void finish(struct world *world, uint64_t key, uint32_t reason)
{
	finish_free(world, key, reason, NULL);
}

void forget_all(struct world *world)
{
	world_settle(world);
	world->now_ns += WORLD_LEASE_NS;
	world_settle(world);
}

static uint8_t body[KVPULL_TICKET_BYTES_MAX];

struct kvpull_ticket *world_decode(const struct world_ticket *ticket)
{
	static struct kvpull_ticket fields;

	assert_int_equal(kvpull_ticket_decode(ticket->text, ticket->bytes, NULL,
					      body, &fields),
			 0);
	return &fields;
}

void world_encode(struct kvpull_ticket *fields, struct world_ticket *ticket)
{
	assert_int_equal(kvpull_ticket_encode(fields, NULL, body, ticket->text,
					      sizeof(ticket->text),
					      &ticket->bytes),
			 0);
}

struct world_ticket world_make_short_ticket(uint64_t incarnation,
					    uint32_t lacking)
{
	struct world *producer = world_of(1, incarnation);
	struct kvpull_ticket *fields;
	struct world_ticket ticket;

	assert_int_equal(world_hold(producer, 1, &ticket), KVPULL_FINISH_HELD);
	world_close(producer);
	/* No producer of ours makes such a ticket: its fields, written anew. */
	fields = world_decode(&ticket);
	fields->block_ids = world_blocks;
	fields->groups[0].block_count -= lacking;
	world_encode(fields, &ticket);
	return ticket;
}

struct world_ticket world_make_ticket(uint64_t incarnation)
{
	return world_make_short_ticket(incarnation, 0);
}
