/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that an engine makes again or out of order, tickets that do not fit
 * them, and commands that wait for room in a log that is full.
 */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/lib/newer.h"
#include "tests/unit/scheduler/world.h"

static uint32_t texts_used(const struct world *world)
{
	return kvpull_index_pool_used(&world->scheduler->demand.texts->pool);
}

/* Scheduling again between a pull's begin and its end is no second pull. */
CONSUMER_TEST(request_that_pulls_waits_and_pulls_once, 1)
{
	want(world, 1, ticket);
	load(world, 1);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_WAIT);
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
	pull_ended(world, 0, 1, 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
	expect_settled(world, KVPULL_COMMAND_PULL, 1);
	assert_int_equal(world_counts(world).pulls_done, 1);
	expect_failure(world, 1, 0);
}

/* Groups with a window need no block of each token, but one at least. */
CONSUMER_TEST(pull_of_no_blocks_is_refused, 1)
{
	const struct kvpull_blocks nothing = { .block_ids =
						       world_local_blocks };
	const struct kvpull_allocation allocation =
		world_allocation_of(1, 1, &nothing);

	world->scheduler->group_kinds[0] = KVPULL_GROUP_SLIDING;
	want_offered(world, 1, ticket);
	assert_int_equal(world_allocate_with(world, &allocation),
			 KVPULL_EINVAL);
	expect_line(
		world,
		"request request-b key 1: allocated() has blocks for tokens that matched_tokens() did not offer, or none for those that it did");
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
}

/* The most groups that there can be are another mistake than one more. */
CONSUMER_TEST(allocation_of_more_groups_than_there_can_be_is_refused, 1)
{
	const struct kvpull_blocks groups[KVPULL_GROUPS_MAX + 1] = {
		{ .block_count = 4, .block_ids = world_local_blocks }
	};
	struct kvpull_allocation allocation =
		world_allocation_of(1, KVPULL_GROUPS_MAX, groups);

	want_offered(world, 1, ticket);
	for (; allocation.group_count <= KVPULL_GROUPS_MAX + 1;
	     allocation.group_count++) {
		assert_int_equal(world_allocate_with(world, &allocation),
				 KVPULL_EINVAL);
		expect_warning(
			world,
			allocation.group_count == KVPULL_GROUPS_MAX ?
				": allocated() names 8 groups, and open() named 1" :
				": allocated() names groups or blocks, and gives none");
	}
}

/* The producer's model has as many groups as ours: this ticket was made up. */
static struct world_ticket ticket_of_two_groups(void)
{
	struct world_ticket ticket = world_make_ticket(7);
	struct kvpull_ticket *fields = world_decode(&ticket);

	fields->block_ids = world_blocks;
	fields->groups[1] = (struct kvpull_ticket_group){ .block_tokens = 16,
							  .first_id = 4 };
	fields->group_count = 2;
	world_encode(fields, &ticket);
	return ticket;
}

WORLD_TEST(ticket_of_other_groups_fails_its_pull_alone, world_of_consumer(1))
{
	const struct world_ticket two = ticket_of_two_groups();
	const struct world_ticket one = world_make_ticket(8);
	/* Behind the one that is named lies one that would fit the ticket. */
	const struct kvpull_blocks groups[] = {
		{ .block_count = 4, .block_ids = world_local_blocks },
		{ .block_count = 0 },
	};
	const struct kvpull_allocation allocation =
		world_allocation_of(1, 1, groups);
	const struct world_seen *seen;

	assert_int_equal(world_want(world, 1, &two, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate_with(world, &allocation),
			 KVPULL_ETRUNCATED);
	expect_line(
		world,
		"request request-b key 1 cannot be pulled: its ticket lacks the blocks asked for (ETRUNCATED)");
	world_settle(world);
	seen = world_last(world, KVPULL_COMMAND_PULL);
	assert_int_equal(seen->command.key, 1);
	assert_int_equal(seen->command.reason, KVPULL_ETRUNCATED);
	world_pull_ended(world, 0, 1, KVPULL_ETRUNCATED);
	assert_int_equal(world_want(world, 2, &one, 1), 0);
	load(world, 2);
}

/* By a required field, or by another number in its text. */
WORLD_TEST(newer_ticket_is_refused_by_the_name_of_its_field,
	   world_of_consumer(1))
{
	struct world_ticket ticket = world_make_ticket(7);
	struct kvpull_ticket *fields = world_decode(&ticket);
	char line[256];

	fields->ids = (struct kvpull_ids){ .list = world_blocks, .count = 4 };
	ticket.bytes = newer_ticket(fields, ticket.text, sizeof(ticket.text));
	assert_int_equal(world_want(world, 1, &ticket, 1), KVPULL_ENOTICKET);
	(void)snprintf(
		line, sizeof(line),
		"ticket of %zu bytes refused: another version than ours, %u (by tint)",
		ticket.bytes, KVPULL_WIRE_VERSION);
	expect_line(world, line);
	memcpy(ticket.text, "kvp9.", 5);
	assert_int_equal(world_want(world, 2, &ticket, 1), KVPULL_ENOTICKET);
	expect_warning(world, "(by its text)");
	assert_int_equal(world_counts(world).bad_tickets, 2);
}

WORLD_TEST(request_of_which_nothing_was_computed_is_not_held,
	   world_of_consumer(1))
{
	struct world_ticket ticket;
	struct kvpull_finish finish = world_finish_of(1, &ticket);

	finish.computed_tokens = 0;
	world_enter(world, 1, 0, 1);
	assert_int_equal(world_finish_with(world, &finish), KVPULL_FINISH_FREE);
	assert_int_equal(finish.ticket_bytes, 0);
	expect_line(world, "");
	assert_int_equal(world_counts(world).holds_live, 0);
}

/* ---- a log that is full ---- */

/* Room for so many bytes more. Return: what the log had. */
static size_t room_leave(struct world *world, size_t bytes)
{
	struct kvpull_outbox *outbox = &world->scheduler->outbox;
	const size_t capacity = outbox->capacity;

	outbox->capacity = outbox->tail_at + bytes;
	return capacity;
}

CONSUMER_TEST(ticket_that_the_log_has_no_room_for_leaves_nothing, 1)
{
	struct kvpull_demand *demand = &world->scheduler->demand;
	size_t capacity;

	world_settle(world);
	capacity = room_leave(world, 1);
	assert_int_equal(world_want(world, 1, ticket, 1), KVPULL_EFULL);
	expect_line(
		world,
		"no room for the ticket of request request-b: tickets_max 16 or step_log_mib 1 is reached");
	assert_int_equal(world_reject(world, ticket), KVPULL_EFULL);
	expect_failure(world, 1, KVPULL_EFULL);
	assert_int_equal(texts_used(world), 0);
	assert_int_equal(demand->live_count, 0);
	assert_int_equal(kvpull_index_pool_used(&demand->pool), 0);
	assert_int_equal(demand->by_identity.count, 0);
	world->scheduler->outbox.capacity = capacity;
	assert_int_equal(world_want(world, 2, ticket, 1), 0);
	assert_int_equal(demand->live_count, 1);
}

CONSUMER_TEST(release_waits_for_room_and_is_said_once, 1)
{
	size_t capacity;

	want(world, 1, ticket);
	world_step(world);
	capacity = room_leave(world, 1);
	finish(world, 1, KVPULL_FINISH_REJECT);
	assert_int_equal(world_build(world), 0);
	assert_false(world_has_step(world));
	assert_int_equal(texts_used(world), 0);
	world->scheduler->outbox.capacity = capacity;
	assert_true(world_has_step(world));
	expect_settled(world, KVPULL_COMMAND_RELEASE, 1);
	assert_false(world_has_step(world));
}

/* First that the pull is over before it began, then that nobody waits for it. */
WORLD_TEST(refusal_and_abort_wait_for_room_and_are_said_once,
	   world_of_consumer(1))
{
	const struct world_ticket ticket = world_make_short_ticket(7, 1);
	size_t capacity;
	size_t bytes;

	want_offered(world, 1, &ticket);
	world_step(world);
	world->seen_count = 0;
	capacity = room_leave(world, 1);
	assert_int_equal(world_allocate(world, 1, 0, 4), KVPULL_ETRUNCATED);
	finish(world, 1, KVPULL_FINISH_ABORT);
	assert_int_equal(world_build(world), 0);
	/* Byte by byte: for a while there is room for one of them alone. */
	for (bytes = 2; world->seen_count < 2 && bytes < 200; bytes++) {
		(void)room_leave(world, bytes);
		world_step(world);
	}
	assert_int_equal(world->scheduler->owing.count, 0);
	world->scheduler->outbox.capacity = capacity;
	world_settle(world);
	assert_int_equal(world->seen_count, 2);
	assert_int_equal(world->seen[0].command.kind, KVPULL_COMMAND_PULL);
	assert_int_equal(world->seen[0].command.reason, KVPULL_ETRUNCATED);
	assert_int_equal(world->seen[1].command.kind, KVPULL_COMMAND_ABORT);
	assert_int_equal(world->seen[1].command.key, 1);
	pull_ended(world, 0, 1, KVPULL_EABORTED);
	assert_int_equal(
		kvpull_index_pool_used(&world->scheduler->request_pool), 0);
}

/* ---- time ---- */

/* The clock of two calls may be read out of order: nothing is over by that. */
CONSUMER_TEST(earlier_clock_ends_nothing, 1)
{
	struct world_ticket first;
	struct world_ticket second;

	/* A hold, a family that ended, a ticket that is remembered. */
	assert_int_equal(world_hold(world, 1, &first), KVPULL_FINISH_HELD);
	world_enter(world, 2, 50, 2);
	finish_held(world, 2, KVPULL_FINISH_LENGTH, &first);
	assert_int_equal(world_want(world, 5, ticket, 1), 0);
	finish(world, 5, KVPULL_FINISH_REJECT);
	world_settle(world);
	hold_ended(world, 0, 2, KVPULL_END_RELEASED);
	world->now_ns -= 1;
	assert_int_equal(world_pending(world), KVPULL_PENDING_HOLDS);
	assert_int_equal(world->lines.counts[KVPULL_LOG_ERROR], 0);
	world_enter(world, 3, 50, 2);
	finish_free(world, 3, KVPULL_FINISH_LENGTH, &second);
	assert_int_equal(second.bytes, first.bytes);
	assert_memory_equal(second.text, first.text, first.bytes);
	assert_int_equal(world_want(world, 6, ticket, 1), 0);
	assert_int_equal(world_match(world, 6, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_counts(world).tickets_seen, 1);
}
