/* SPDX-License-Identifier: Apache-2.0 */
/* A group of recurrent states: all tokens of a ticket and its state, or nothing. */
#include "tests/unit/scheduler/world.h"

#define KEY 1u

uint32_t world_groups = 2;
uint32_t world_group_kinds[KVPULL_GROUPS_MAX] = { KVPULL_GROUP_FULL,
						  KVPULL_GROUP_STATE };

static const uint32_t blocks_there[4] = { 10, 11, 20, 21 };
static const uint32_t blocks_here[4] = { 1, 2, 3, 4 };
static const uint32_t slots_there[2] = { 77, 78 };
static const uint32_t slots_here[2] = { 55, 56 };

/* The prompt has 64 tokens, a block has 16. */
static int finish_state(struct world *producer, uint32_t computed,
			uint32_t first, uint32_t count,
			struct world_ticket *ticket)
{
	const struct kvpull_blocks groups[2] = {
		{ .block_count = 4, .block_ids = blocks_there },
		{ .first_index = first,
		  .block_count = count,
		  .block_ids = slots_there },
	};
	struct kvpull_finish finish = world_finish_of(KEY, ticket);
	int answer;

	finish.computed_tokens = computed;
	finish.group_count = 2;
	finish.groups = groups;
	world_enter(producer, KEY, 0, 1);
	answer = world_finish_with(producer, &finish);
	ticket->bytes = finish.ticket_bytes;
	return answer;
}

/* The ticket of `tokens` computed tokens, with the state after them. */
static struct world_ticket ticket_make(uint32_t tokens)
{
	struct world *producer = world_of_producer(1);
	struct world_ticket ticket;

	assert_int_equal(
		finish_state(producer, tokens, (tokens - 1) / 16, 1, &ticket),
		KVPULL_FINISH_HELD);
	world_close(producer);
	return ticket;
}

/* The request wants this ticket, and is offered what is not local. */
static struct world *world_wants(struct world_ticket ticket)
{
	struct world *world = world_of_consumer(1);

	assert_int_equal(world_want(world, KEY, &ticket, 1), 0);
	return world;
}

static int match(struct world *world, uint32_t local_tokens, uint32_t *tokens)
{
	return kvpull_scheduler_matched_tokens(
		world->scheduler, KEY, local_tokens, tokens, world->now_ns);
}

static int allocate(struct world *world, uint32_t tokens, uint32_t full_first,
		    uint32_t full_count, uint32_t first, uint32_t count)
{
	const struct kvpull_blocks groups[2] = {
		{ .first_index = full_first,
		  .block_count = full_count,
		  .block_ids = blocks_here + full_first },
		{ .first_index = first,
		  .block_count = count,
		  .block_ids = slots_here },
	};
	const struct kvpull_allocation allocation = {
		.key = KEY,
		.external_tokens = tokens,
		.group_count = 2,
		.groups = groups,
	};

	return world_allocate_with(world, &allocation);
}

/* Also where the engine has some of the blocks: the state is that of the end. */
UNIT_TEST(state_is_loaded_with_all_tokens_up_to_its_count)
{
	static const uint32_t counts[] = { 64, 48, 33, 16, 1 };
	uint32_t local;
	size_t i;

	for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		for (local = 0; local < counts[i]; local += 16) {
			struct world *world =
				world_wants(ticket_make(counts[i]));
			const uint32_t last = (counts[i] - 1) / 16;
			const struct world_seen *seen;
			uint32_t tokens = 0;

			assert_int_equal(match(world, local, &tokens),
					 KVPULL_MATCH_LOAD);
			assert_int_equal(tokens, counts[i] - local);
			assert_int_equal(allocate(world, tokens, local / 16,
						  last + 1 - local / 16, last,
						  1),
					 0);
			world_settle(world);
			seen = world_last(world, KVPULL_COMMAND_PULL);
			assert_int_equal(seen->pair_count,
					 last + 2 - local / 16);
			assert_int_equal(seen->remote[seen->pair_count - 1],
					 slots_there[0]);
			assert_int_equal(seen->local[seen->pair_count - 1],
					 slots_here[0]);
			world_close(world);
		}
}

/* The state after tokens that the request does not have is of no use to it. */
WORLD_TEST(shorter_request_loads_no_state, world_of_consumer(1))
{
	const struct world_ticket ticket = ticket_make(64);
	struct kvpull_request request = world_request_of(KEY, &ticket);
	uint32_t tokens = 0;

	request.prompt_tokens = 63;
	assert_int_equal(world_ask(world, &request), 0);
	assert_int_equal(match(world, 0, &tokens), KVPULL_MATCH_NOTHING);
	assert_int_equal(tokens, 0);
}

WORLD_TEST(state_that_is_local_is_not_loaded, world_wants(ticket_make(48)))
{
	uint32_t tokens = 0;

	assert_int_equal(match(world, 48, &tokens), KVPULL_MATCH_NOTHING);
	assert_int_equal(match(world, 32, &tokens), KVPULL_MATCH_LOAD);
	assert_int_equal(tokens, 16);
}

UNIT_TEST(pull_that_names_another_state_is_refused)
{
	static const struct {
		uint32_t tokens;
		uint32_t full_count;
		uint32_t first;
		uint32_t count;
	} wrong[] = {
		{ 48, 3, 2, 1 }, /* fewer tokens: their state is not there */
		{ 64, 4, 2, 1 }, /* the slot of another count */
		{ 64, 4, 3, 0 }, /* none: blocks without their state */
		{ 64, 4, 2, 2 }, /* two */
		{ 64, 4, 3, 2 },
	};
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct world *world = world_wants(ticket_make(64));
		uint32_t tokens = 0;

		assert_int_equal(match(world, 0, &tokens), KVPULL_MATCH_LOAD);
		assert_int_equal(allocate(world, wrong[i].tokens, 0,
					  wrong[i].full_count, wrong[i].first,
					  wrong[i].count),
				 KVPULL_EINVAL);
		assert_int_equal(allocate(world, 64, 0, 4, 3, 1), 0);
		world_close(world);
	}
}

/* Each would let D take another state for that of the last token. */
UNIT_TEST(finish_names_the_one_slot_of_its_last_token)
{
	static const struct {
		uint32_t computed;
		uint32_t first;
		uint32_t count;
		int answer;
	} finishes[] = {
		{ 64, 3, 1, KVPULL_FINISH_HELD },
		{ 48, 2, 1, KVPULL_FINISH_HELD },
		{ 63, 3, 1, KVPULL_FINISH_HELD },
		{ 48, 3, 1, KVPULL_FINISH_FREE },
		{ 49, 2, 1, KVPULL_FINISH_FREE },
		{ 64, 2, 2, KVPULL_FINISH_FREE },
		{ 64, 3, 2, KVPULL_FINISH_FREE },
		{ 64, 4, 0, KVPULL_FINISH_FREE },
		{ 0, 0, 1, KVPULL_FINISH_FREE },
	};
	size_t i;

	for (i = 0; i < sizeof(finishes) / sizeof(finishes[0]); i++) {
		struct world *producer = world_of_producer(1);
		struct world_ticket ticket;

		assert_int_equal(finish_state(producer, finishes[i].computed,
					      finishes[i].first,
					      finishes[i].count, &ticket),
				 finishes[i].answer);
		assert_int_equal(!!ticket.bytes,
				 finishes[i].answer == KVPULL_FINISH_HELD);
		world_close(producer);
	}
}

/* Blocks that came without their state are not used: both fail as one. */
WORLD_TEST(state_that_expired_fails_its_blocks, world_wants(ticket_make(64)))
{
	uint32_t tokens = 0;

	assert_int_equal(match(world, 0, &tokens), KVPULL_MATCH_LOAD);
	assert_int_equal(allocate(world, 64, 0, 4, 3, 1), 0);
	expect_settled(world, KVPULL_COMMAND_PULL, 1);
	pull_ended(world, 0, KEY, KVPULL_EEXPIRED);
	assert_int_equal(match(world, 0, &tokens), KVPULL_MATCH_NOTHING);
	expect_failure(world, KEY, KVPULL_EEXPIRED);
}
