/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that an engine makes again or out of order, tickets that do not fit
 * them, and commands that wait for room in a log that is full.
 */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/lib/newer.h"
#include "tests/unit/scheduler/world.h"

static struct world *opened(void)
{
	const struct kvpull_config config = world_config();

	return world_open(&config, 1, 9);
}

static uint32_t texts_used(const struct world *world)
{
	return kvpull_index_pool_used(&world->scheduler->demand.texts->pool);
}

static int has_step(const struct world *world)
{
	return (kvpull_scheduler_has_pending(world->scheduler, world->now_ns) &
		(int)KVPULL_PENDING_STEP) != 0;
}

/* Scheduling again between a pull's begin and its end is no second pull. */
UNIT_TEST(request_that_pulls_waits_and_pulls_once)
{
	const struct world_ticket ticket = world_make_ticket(7);
	struct world *world = opened();

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_WAIT);
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
	world_pull_ended(world, 0, 1, 0);
	world_settle(world);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_PULL), 1);
	assert_int_equal(world_counts(world).pulls_done, 1);
	assert_int_equal(kvpull_scheduler_match_failure(world->scheduler, 1),
			 0);
	world_close(world);
}

/* Groups with a window need no block of each token, but one at least. */
UNIT_TEST(pull_of_no_blocks_is_refused)
{
	const struct world_ticket ticket = world_make_ticket(7);
	const struct kvpull_blocks nothing = { .block_ids =
						       world_local_blocks };
	const struct kvpull_allocation allocation = { .key = 1,
						      .external_tokens = 64,
						      .group_count = 1,
						      .groups = &nothing };
	struct world *world = opened();

	world->scheduler->group_kinds[0] = KVPULL_GROUP_SLIDING;
	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(kvpull_scheduler_allocated(world->scheduler,
						    &allocation, world->now_ns),
			 KVPULL_EINVAL);
	assert_string_equal(
		world->lines.of[KVPULL_LOG_WARN],
		"request request-b key 1: allocated() has blocks for tokens that matched_tokens() did not offer, or none for those that it did");
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
	world_close(world);
}

/* The most groups that there can be are another mistake than one more. */
UNIT_TEST(allocation_of_more_groups_than_there_can_be_is_refused)
{
	const struct world_ticket ticket = world_make_ticket(7);
	const struct kvpull_blocks groups[KVPULL_GROUPS_MAX + 1] = {
		{ .block_count = 4, .block_ids = world_local_blocks }
	};
	struct kvpull_allocation allocation = { .key = 1,
						.external_tokens = 64,
						.group_count =
							KVPULL_GROUPS_MAX,
						.groups = groups };
	struct world *world = opened();

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	for (; allocation.group_count <= KVPULL_GROUPS_MAX + 1;
	     allocation.group_count++) {
		assert_int_equal(kvpull_scheduler_allocated(world->scheduler,
							    &allocation,
							    world->now_ns),
				 KVPULL_EINVAL);
		assert_non_null(strstr(
			world->lines.of[KVPULL_LOG_WARN],
			allocation.group_count == KVPULL_GROUPS_MAX ?
				": allocated() names 8 groups, and open() named 1" :
				": allocated() names groups or blocks, and gives none"));
	}
	world_close(world);
}

/* The producer's model has as many groups as ours: this ticket was made up. */
static struct world_ticket ticket_of_two_groups(void)
{
	static uint8_t scratch[KVPULL_TICKET_BYTES_MAX];
	static struct kvpull_ticket fields;
	struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(kvpull_ticket_decode(ticket.text, ticket.bytes, NULL,
					      scratch, &fields),
			 0);
	fields.block_ids = world_blocks;
	fields.groups[1] = (struct kvpull_ticket_group){ .block_tokens = 16,
							 .first_id = 4 };
	fields.group_count = 2;
	assert_int_equal(kvpull_ticket_encode(&fields, NULL, scratch,
					      ticket.text, sizeof(ticket.text),
					      &ticket.bytes),
			 0);
	return ticket;
}

UNIT_TEST(ticket_of_other_groups_fails_its_pull_alone)
{
	const struct world_ticket two = ticket_of_two_groups();
	const struct world_ticket one = world_make_ticket(8);
	/* Behind the one that is named lies one that would fit the ticket. */
	const struct kvpull_blocks groups[] = {
		{ .block_count = 4, .block_ids = world_local_blocks },
		{ .block_count = 0 },
	};
	const struct kvpull_allocation allocation = { .key = 1,
						      .external_tokens = 64,
						      .group_count = 1,
						      .groups = groups };
	struct world *world = opened();
	const struct world_seen *seen;

	assert_int_equal(world_want(world, 1, &two, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(kvpull_scheduler_allocated(world->scheduler,
						    &allocation, world->now_ns),
			 KVPULL_ETRUNCATED);
	assert_string_equal(
		world->lines.of[KVPULL_LOG_WARN],
		"request request-b key 1 cannot be pulled: its ticket lacks the blocks asked for (ETRUNCATED)");
	world_settle(world);
	seen = world_last(world, KVPULL_COMMAND_PULL);
	assert_int_equal(seen->command.key, 1);
	assert_int_equal(seen->command.reason, KVPULL_ETRUNCATED);
	world_pull_ended(world, 0, 1, KVPULL_ETRUNCATED);
	assert_int_equal(world_want(world, 2, &one, 1), 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate(world, 2, 0, 4), 0);
	world_close(world);
}

/* By a required field, or by another number in its text. */
UNIT_TEST(newer_ticket_is_refused_by_the_name_of_its_field)
{
	static uint8_t scratch[KVPULL_TICKET_BYTES_MAX];
	static struct kvpull_ticket fields;
	struct world_ticket ticket = world_make_ticket(7);
	struct world *world = opened();
	char line[256];

	assert_int_equal(kvpull_ticket_decode(ticket.text, ticket.bytes, NULL,
					      scratch, &fields),
			 0);
	fields.ids = (struct kvpull_ids){ .list = world_blocks, .count = 4 };
	ticket.bytes = newer_ticket(&fields, ticket.text, sizeof(ticket.text));
	assert_int_equal(world_want(world, 1, &ticket, 1), KVPULL_ENOTICKET);
	(void)snprintf(
		line, sizeof(line),
		"ticket of %zu bytes refused: another version than ours, %u (by tint)",
		ticket.bytes, KVPULL_WIRE_VERSION);
	assert_string_equal(world->lines.of[KVPULL_LOG_WARN], line);
	memcpy(ticket.text, "kvp9.", 5);
	assert_int_equal(world_want(world, 2, &ticket, 1), KVPULL_ENOTICKET);
	assert_non_null(
		strstr(world->lines.of[KVPULL_LOG_WARN], "(by its text)"));
	assert_int_equal(world_counts(world).bad_tickets, 2);
	world_close(world);
}

UNIT_TEST(request_of_which_nothing_was_computed_is_not_held)
{
	struct world *world = opened();
	const struct kvpull_blocks blocks = { .block_count = 4,
					      .block_ids = world_blocks };
	static char text[WORLD_TICKET_BYTES];
	struct kvpull_finish finish = {
		.key = 1,
		.reason = KVPULL_FINISH_LENGTH,
		.group_count = 1,
		.groups = &blocks,
		.ticket = text,
		.ticket_capacity = sizeof(text),
	};

	world_enter(world, 1, 0, 1);
	assert_int_equal(kvpull_scheduler_request_finished(
				 world->scheduler, &finish, world->now_ns),
			 KVPULL_FINISH_FREE);
	assert_int_equal(finish.ticket_bytes, 0);
	assert_string_equal(world->lines.of[KVPULL_LOG_WARN], "");
	assert_int_equal(world_counts(world).holds_live, 0);
	world_close(world);
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

UNIT_TEST(ticket_that_the_log_has_no_room_for_leaves_nothing)
{
	const struct world_ticket ticket = world_make_ticket(7);
	struct world *world = opened();
	struct kvpull_demand *demand = &world->scheduler->demand;
	size_t capacity;

	world_settle(world);
	capacity = room_leave(world, 1);
	assert_int_equal(world_want(world, 1, &ticket, 1), KVPULL_EFULL);
	assert_string_equal(
		world->lines.of[KVPULL_LOG_WARN],
		"no room for the ticket of request request-b: tickets_max 16 or step_log_mib 1 is reached");
	assert_int_equal(
		kvpull_scheduler_request_rejected(world->scheduler, ticket.text,
						  ticket.bytes, world->now_ns),
		KVPULL_EFULL);
	assert_int_equal(kvpull_scheduler_match_failure(world->scheduler, 1),
			 KVPULL_EFULL);
	assert_int_equal(texts_used(world), 0);
	assert_int_equal(demand->live_count, 0);
	assert_int_equal(kvpull_index_pool_used(&demand->pool), 0);
	assert_int_equal(demand->by_identity.count, 0);
	world->scheduler->outbox.capacity = capacity;
	assert_int_equal(world_want(world, 2, &ticket, 1), 0);
	assert_int_equal(demand->live_count, 1);
	world_close(world);
}

UNIT_TEST(release_waits_for_room_and_is_said_once)
{
	const struct world_ticket ticket = world_make_ticket(7);
	struct world *world = opened();
	struct kvpull_finish finish = { .key = 1,
					.reason = KVPULL_FINISH_REJECT };
	size_t capacity;

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	world_step(world);
	capacity = room_leave(world, 1);
	assert_int_equal(kvpull_scheduler_request_finished(
				 world->scheduler, &finish, world->now_ns),
			 KVPULL_FINISH_FREE);
	assert_int_equal(world_build(world), 0);
	assert_false(has_step(world));
	assert_int_equal(texts_used(world), 0);
	world->scheduler->outbox.capacity = capacity;
	assert_true(has_step(world));
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	assert_false(has_step(world));
	world_close(world);
}

/* First that the pull is over before it began, then that nobody waits for it. */
UNIT_TEST(refusal_and_abort_wait_for_room_and_are_said_once)
{
	const struct world_ticket ticket = world_make_short_ticket(7, 1);
	struct world *world = opened();
	struct kvpull_finish finish = { .key = 1,
					.reason = KVPULL_FINISH_ABORT };
	size_t capacity;
	size_t bytes;

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	world_step(world);
	world->seen_count = 0;
	capacity = room_leave(world, 1);
	assert_int_equal(world_allocate(world, 1, 0, 4), KVPULL_ETRUNCATED);
	assert_int_equal(kvpull_scheduler_request_finished(
				 world->scheduler, &finish, world->now_ns),
			 KVPULL_FINISH_FREE);
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
	world_pull_ended(world, 0, 1, KVPULL_EABORTED);
	world_settle(world);
	assert_int_equal(
		kvpull_index_pool_used(&world->scheduler->request_pool), 0);
	world_close(world);
}

/* ---- time ---- */

/* The clock of two calls may be read out of order: nothing is over by that. */
UNIT_TEST(earlier_clock_ends_nothing)
{
	const struct world_ticket ticket = world_make_ticket(7);
	struct world *world = opened();
	struct kvpull_finish finish = { .key = 5,
					.reason = KVPULL_FINISH_REJECT };
	struct world_ticket first;
	struct world_ticket second;

	/* A hold, a family that ended, a ticket that is remembered. */
	assert_int_equal(world_hold(world, 1, &first), KVPULL_FINISH_HELD);
	world_enter(world, 2, 50, 2);
	assert_int_equal(world_finish(world, 2, KVPULL_FINISH_LENGTH, &first),
			 KVPULL_FINISH_HELD);
	assert_int_equal(world_want(world, 5, &ticket, 1), 0);
	(void)kvpull_scheduler_request_finished(world->scheduler, &finish,
						world->now_ns);
	world_settle(world);
	world_hold_ended(world, 0, 2, KVPULL_END_RELEASED);
	world_settle(world);
	world->now_ns -= 1;
	assert_int_equal(
		kvpull_scheduler_has_pending(world->scheduler, world->now_ns),
		KVPULL_PENDING_HOLDS);
	assert_int_equal(world->lines.counts[KVPULL_LOG_ERROR], 0);
	world_enter(world, 3, 50, 2);
	assert_int_equal(world_finish(world, 3, KVPULL_FINISH_LENGTH, &second),
			 KVPULL_FINISH_FREE);
	assert_int_equal(second.bytes, first.bytes);
	assert_memory_equal(second.text, first.text, first.bytes);
	assert_int_equal(world_want(world, 6, &ticket, 1), 0);
	assert_int_equal(world_match(world, 6, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_counts(world).tickets_seen, 1);
	world_close(world);
}
