/* SPDX-License-Identifier: Apache-2.0 */
/* n > 1 on the producer: one hold and one ticket a family. */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/lib/fence.h"
#include "tests/unit/scheduler/world.h"

#define PARENT UINT64_C(77)

static void end_hold(struct world *world, uint64_t key)
{
	world_step(world);
	hold_ended(world, 0, key, KVPULL_END_RELEASED);
}

/* Requests 1 .. count of one parent and prompt. */
static void enter_siblings(struct world *world, uint64_t count)
{
	uint64_t key;

	for (key = 1; key <= count; key++)
		world_enter(world, key, PARENT, 1);
}

static void expect_same(const struct world_ticket *ticket,
			const struct world_ticket *first)
{
	assert_int_equal(ticket->bytes, first->bytes);
	assert_memory_equal(ticket->text, first->text, first->bytes);
}

PRODUCER_TEST(eight_siblings_have_one_hold_and_equal_tickets, 1)
{
	struct world_ticket first;
	struct world_ticket other;
	uint64_t key;

	enter_siblings(world, 8);
	finish_held(world, 5, KVPULL_FINISH_STOP, &first);
	for (key = 1; key <= 8; key++) {
		if (key == 5)
			continue;
		finish_free(world, key, KVPULL_FINISH_LENGTH, &other);
		expect_same(&other, &first);
	}
	world_step(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_HOLD), 1);
	assert_int_equal(world_command(world, KVPULL_COMMAND_HOLD)->key, 5);
	assert_int_equal(world_counts(world).family_members, 7);
	assert_int_equal(world_counts(world).holds_live, 1);
}

PRODUCER_TEST(late_sibling_gets_the_old_ticket_until_a_lease_passed, 1)
{
	struct world_ticket first;
	struct world_ticket late;

	enter_siblings(world, 3);
	finish_held(world, 1, KVPULL_FINISH_STOP, &first);
	end_hold(world, 1);
	world->now_ns += WORLD_LEASE_NS - 1;
	finish_free(world, 2, KVPULL_FINISH_STOP, &late);
	expect_same(&late, &first);
	world->now_ns += 1;
	finish_held(world, 3, KVPULL_FINISH_STOP, &late);
	assert_memory_not_equal(late.text, first.text, first.bytes);
	end_hold(world, 3);
	world->now_ns += WORLD_LEASE_NS;
	world_settle(world);
	assert_int_equal(world_counts(world).families_live, 0);
	expect_fresh(world);
}

PRODUCER_TEST(family_lives_while_its_hold_does, 1)
{
	struct world_ticket ticket;

	enter_siblings(world, 2);
	finish_held(world, 1, KVPULL_FINISH_STOP, &ticket);
	world->now_ns += 3 * WORLD_LEASE_NS;
	finish_free(world, 2, KVPULL_FINISH_STOP, &ticket);
	assert_true(ticket.bytes > 0);
}

PRODUCER_TEST(aborted_first_sibling_leaves_the_hold_to_the_next, 1)
{
	struct world_ticket ticket;

	enter_siblings(world, 2);
	finish_free(world, 1, KVPULL_FINISH_ABORT, &ticket);
	assert_int_equal(ticket.bytes, 0);
	finish_held(world, 2, KVPULL_FINISH_STOP, &ticket);
}

PRODUCER_TEST(other_prompt_of_the_same_parent_has_its_own_hold, 1)
{
	struct world_ticket first;
	struct world_ticket other;

	world_enter(world, 1, PARENT, 1);
	world_enter(world, 2, PARENT, 2);
	world_enter(world, 3, PARENT, 1);
	finish_held(world, 1, KVPULL_FINISH_STOP, &first);
	finish_held(world, 2, KVPULL_FINISH_STOP, &other);
	assert_memory_not_equal(first.text, other.text, first.bytes);
	/* The end of the second says nothing of the family's. */
	end_hold(world, 2);
	world->now_ns += 2 * WORLD_LEASE_NS;
	finish_free(world, 3, KVPULL_FINISH_STOP, &other);
	expect_same(&other, &first);
}

PRODUCER_TEST(siblings_that_ask_for_it_have_a_hold_each, 1)
{
	struct kvpull_request request = {
		.parent_key = PARENT,
		.prompt_tokens = 64,
		.flags = KVPULL_REQUEST_WANTS_HOLD | KVPULL_REQUEST_ALONE,
	};

	for (request.key = 10; request.key < 13; request.key++) {
		assert_int_equal(world_ask(world, &request), 0);
		finish_held(world, request.key, KVPULL_FINISH_STOP, NULL);
	}
}

PRODUCER_TEST_WITH(siblings_can_have_a_hold_each, 1, siblings_alone = 1)
{
	uint64_t key;

	for (key = 1; key <= 3; key++) {
		world_enter(world, key, PARENT, 1);
		finish_held(world, key, KVPULL_FINISH_STOP, NULL);
	}
}

PRODUCER_TEST_WITH(oldest_ended_family_makes_room, 1, families_max = 2)
{
	uint64_t key;

	for (key = 1; key <= 3; key++)
		world_enter(world, key, key + 100, 1);
	for (key = 1; key <= 3; key++)
		world_enter(world, key + 10, key + 100, 1);
	finish_held(world, 1, KVPULL_FINISH_STOP, NULL);
	finish_held(world, 2, KVPULL_FINISH_STOP, NULL);
	end_hold(world, 2);
	finish_held(world, 3, KVPULL_FINISH_STOP, NULL);
	assert_int_equal(world_counts(world).families_live, 2);
	finish_free(world, 11, KVPULL_FINISH_STOP, NULL);
	finish_free(world, 13, KVPULL_FINISH_STOP, NULL);
	/* Forgotten, and no room while the others live: a hold of its own. */
	finish_held(world, 12, KVPULL_FINISH_STOP, NULL);
	assert_int_equal(world_counts(world).families_live, 2);
}

PRODUCER_TEST(reset_forgets_families_and_keeps_holds, 1)
{
	enter_siblings(world, 2);
	finish_held(world, 1, KVPULL_FINISH_STOP, NULL);
	world_reset(world, KVPULL_RESET_FORGET);
	assert_int_equal(world_counts(world).holds_live, 1);
	assert_int_equal(world_counts(world).families_live, 0);
	finish_held(world, 2, KVPULL_FINISH_STOP, NULL);
	/* The old hold's end must not end the new family. */
	end_hold(world, 1);
	world->now_ns += 2 * WORLD_LEASE_NS;
	world_settle(world);
	assert_int_equal(world_counts(world).families_live, 1);
}

PRODUCER_TEST(member_with_a_small_buffer_can_ask_again, 1)
{
	char text[WORLD_TICKET_BYTES];
	struct kvpull_finish finish = { .key = 2, .computed_tokens = 64 };
	struct world_ticket ticket;
	uint64_t before;

	enter_siblings(world, 2);
	finish_held(world, 1, KVPULL_FINISH_STOP, &ticket);
	before = kvpull_scheduler_digest(world->scheduler);
	assert_int_equal(world_finish_with(world, &finish), KVPULL_ETOOSMALL);
	assert_int_equal(finish.ticket_bytes, ticket.bytes);
	/* A ticket buffer that is a byte too short gets no ticket. */
	finish.ticket = text;
	finish.ticket_capacity = ticket.bytes - 1;
	assert_int_equal(world_finish_with(world, &finish), KVPULL_ETOOSMALL);
	assert_true(kvpull_scheduler_digest(world->scheduler) == before);
	finish_free(world, 2, KVPULL_FINISH_STOP, &ticket);
}

/* Memory behind a table that is full looks like one family more. */
PRODUCER_TEST_WITH(reset_forgets_no_family_beyond_the_table, 1,
		   families_max = 2)
{
	struct kvpull_family *beyond;
	struct kvpull_family before;
	struct kvpull_family after;
	uint64_t key;

	for (key = 1; key <= 2; key++) {
		world_enter(world, key, PARENT + key, 1);
		finish_held(world, key, KVPULL_FINISH_STOP, NULL);
	}
	assert_int_equal(world_counts(world).families_live, 2);
	beyond = &world->scheduler->families.families[2];
	fence_open(beyond, sizeof(*beyond));
	before = *beyond;
	*beyond = world->scheduler->families.families[1];
	world_reset(world, KVPULL_RESET_FORGET);
	after = *beyond;
	*beyond = before;
	assert_int_equal(after.parent_key, PARENT + 2);
	assert_int_equal(world_counts(world).families_live, 0);
}
