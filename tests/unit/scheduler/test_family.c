/* SPDX-License-Identifier: Apache-2.0 */
/* n > 1 on the producer: one hold and one ticket a family. */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/lib/fence.h"
#include "tests/unit/scheduler/world.h"

#define PARENT UINT64_C(77)

static struct world *opened(void)
{
	const struct kvpull_config config = world_config();

	return world_open(&config, 1, 7);
}

static void end_hold(struct world *world, uint64_t key)
{
	world_step(world);
	world_hold_ended(world, 0, key, KVPULL_END_RELEASED);
	world_settle(world);
}

UNIT_TEST(eight_siblings_have_one_hold_and_equal_tickets)
{
	struct world *world = opened();
	struct world_ticket first;
	struct world_ticket other;
	uint64_t key;

	for (key = 1; key <= 8; key++)
		world_enter(world, key, PARENT, 1);
	assert_int_equal(world_finish(world, 5, KVPULL_FINISH_STOP, &first),
			 KVPULL_FINISH_HELD);
	for (key = 1; key <= 8; key++) {
		if (key == 5)
			continue;
		assert_int_equal(
			world_finish(world, key, KVPULL_FINISH_LENGTH, &other),
			KVPULL_FINISH_FREE);
		assert_int_equal(other.bytes, first.bytes);
		assert_memory_equal(other.text, first.text, first.bytes);
	}
	world_step(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_HOLD), 1);
	assert_int_equal(world_last(world, KVPULL_COMMAND_HOLD)->command.key,
			 5);
	assert_int_equal(world_counts(world).family_members, 7);
	assert_int_equal(world_counts(world).holds_live, 1);
	world_close(world);
}

UNIT_TEST(late_sibling_gets_the_old_ticket_until_a_lease_passed)
{
	struct world *world = opened();
	const uint64_t fresh = kvpull_scheduler_digest(world->scheduler);
	struct world_ticket first;
	struct world_ticket late;

	world_enter(world, 1, PARENT, 1);
	world_enter(world, 2, PARENT, 1);
	world_enter(world, 3, PARENT, 1);
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_STOP, &first),
			 KVPULL_FINISH_HELD);
	end_hold(world, 1);
	world->now_ns += WORLD_LEASE_NS - 1;
	assert_int_equal(world_finish(world, 2, KVPULL_FINISH_STOP, &late),
			 KVPULL_FINISH_FREE);
	assert_int_equal(late.bytes, first.bytes);
	assert_memory_equal(late.text, first.text, first.bytes);
	world->now_ns += 1;
	assert_int_equal(world_finish(world, 3, KVPULL_FINISH_STOP, &late),
			 KVPULL_FINISH_HELD);
	assert_memory_not_equal(late.text, first.text, first.bytes);
	end_hold(world, 3);
	world->now_ns += WORLD_LEASE_NS;
	world_settle(world);
	assert_int_equal(world_counts(world).families_live, 0);
	assert_true(kvpull_scheduler_digest(world->scheduler) == fresh);
	world_close(world);
}

UNIT_TEST(family_lives_while_its_hold_does)
{
	struct world *world = opened();
	struct world_ticket ticket;

	world_enter(world, 1, PARENT, 1);
	world_enter(world, 2, PARENT, 1);
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_STOP, &ticket),
			 KVPULL_FINISH_HELD);
	world->now_ns += 3 * WORLD_LEASE_NS;
	assert_int_equal(world_finish(world, 2, KVPULL_FINISH_STOP, &ticket),
			 KVPULL_FINISH_FREE);
	assert_true(ticket.bytes > 0);
	world_close(world);
}

UNIT_TEST(aborted_first_sibling_leaves_the_hold_to_the_next)
{
	struct world *world = opened();
	struct world_ticket ticket;

	world_enter(world, 1, PARENT, 1);
	world_enter(world, 2, PARENT, 1);
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_ABORT, &ticket),
			 KVPULL_FINISH_FREE);
	assert_int_equal(ticket.bytes, 0);
	assert_int_equal(world_finish(world, 2, KVPULL_FINISH_STOP, &ticket),
			 KVPULL_FINISH_HELD);
	world_close(world);
}

UNIT_TEST(other_prompt_of_the_same_parent_has_its_own_hold)
{
	struct world *world = opened();
	struct world_ticket first;
	struct world_ticket other;

	world_enter(world, 1, PARENT, 1);
	world_enter(world, 2, PARENT, 2);
	world_enter(world, 3, PARENT, 1);
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_STOP, &first),
			 KVPULL_FINISH_HELD);
	assert_int_equal(world_finish(world, 2, KVPULL_FINISH_STOP, &other),
			 KVPULL_FINISH_HELD);
	assert_memory_not_equal(first.text, other.text, first.bytes);
	/* The end of the second says nothing of the family's. */
	world_step(world);
	world_hold_ended(world, 0, 2, KVPULL_END_RELEASED);
	world_settle(world);
	world->now_ns += 2 * WORLD_LEASE_NS;
	assert_int_equal(world_finish(world, 3, KVPULL_FINISH_STOP, &other),
			 KVPULL_FINISH_FREE);
	assert_memory_equal(first.text, other.text, first.bytes);
	world_close(world);
}

UNIT_TEST(siblings_can_have_a_hold_each)
{
	struct kvpull_config config = world_config();
	struct kvpull_request request = {
		.key = 10,
		.parent_key = PARENT,
		.prompt_tokens = 64,
		.flags = KVPULL_REQUEST_WANTS_HOLD | KVPULL_REQUEST_ALONE,
	};
	struct world_ticket ticket;
	struct world *world = opened();
	uint64_t key;

	for (key = 10; key < 13; key++) {
		request.key = key;
		assert_int_equal(kvpull_scheduler_request_new(world->scheduler,
							      &request,
							      world->now_ns),
				 0);
		assert_int_equal(
			world_finish(world, key, KVPULL_FINISH_STOP, &ticket),
			KVPULL_FINISH_HELD);
	}
	world_close(world);
	config.siblings_alone = 1;
	world = world_open(&config, 1, 7);
	for (key = 1; key <= 3; key++) {
		world_enter(world, key, PARENT, 1);
		assert_int_equal(
			world_finish(world, key, KVPULL_FINISH_STOP, &ticket),
			KVPULL_FINISH_HELD);
	}
	world_close(world);
}

UNIT_TEST(oldest_ended_family_makes_room)
{
	struct kvpull_config config = world_config();
	struct world_ticket ticket;
	struct world *world;
	uint64_t key;

	config.families_max = 2;
	world = world_open(&config, 1, 7);
	for (key = 1; key <= 3; key++)
		world_enter(world, key, key + 100, 1);
	for (key = 1; key <= 3; key++)
		world_enter(world, key + 10, key + 100, 1);
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_STOP, &ticket),
			 KVPULL_FINISH_HELD);
	assert_int_equal(world_finish(world, 2, KVPULL_FINISH_STOP, &ticket),
			 KVPULL_FINISH_HELD);
	end_hold(world, 2);
	assert_int_equal(world_finish(world, 3, KVPULL_FINISH_STOP, &ticket),
			 KVPULL_FINISH_HELD);
	assert_int_equal(world_counts(world).families_live, 2);
	assert_int_equal(world_finish(world, 11, KVPULL_FINISH_STOP, &ticket),
			 KVPULL_FINISH_FREE);
	assert_int_equal(world_finish(world, 13, KVPULL_FINISH_STOP, &ticket),
			 KVPULL_FINISH_FREE);
	/* Forgotten, and no room while the others live: a hold of its own. */
	assert_int_equal(world_finish(world, 12, KVPULL_FINISH_STOP, &ticket),
			 KVPULL_FINISH_HELD);
	assert_int_equal(world_counts(world).families_live, 2);
	world_close(world);
}

UNIT_TEST(reset_forgets_families_and_keeps_holds)
{
	struct world *world = opened();
	struct world_ticket first;
	struct world_ticket second;

	world_enter(world, 1, PARENT, 1);
	world_enter(world, 2, PARENT, 1);
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_STOP, &first),
			 KVPULL_FINISH_HELD);
	assert_int_equal(kvpull_scheduler_reset(world->scheduler,
						KVPULL_RESET_FORGET,
						world->now_ns),
			 0);
	assert_int_equal(world_counts(world).holds_live, 1);
	assert_int_equal(world_counts(world).families_live, 0);
	assert_int_equal(world_finish(world, 2, KVPULL_FINISH_STOP, &second),
			 KVPULL_FINISH_HELD);
	/* The old hold's end must not end the new family. */
	end_hold(world, 1);
	world->now_ns += 2 * WORLD_LEASE_NS;
	world_settle(world);
	assert_int_equal(world_counts(world).families_live, 1);
	world_close(world);
}

UNIT_TEST(member_with_a_small_buffer_can_ask_again)
{
	struct world *world = opened();
	char text[WORLD_TICKET_BYTES];
	struct kvpull_finish finish = { .key = 2, .computed_tokens = 64 };
	struct world_ticket ticket;
	uint64_t before;

	world_enter(world, 1, PARENT, 1);
	world_enter(world, 2, PARENT, 1);
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_STOP, &ticket),
			 KVPULL_FINISH_HELD);
	before = kvpull_scheduler_digest(world->scheduler);
	assert_int_equal(kvpull_scheduler_request_finished(
				 world->scheduler, &finish, world->now_ns),
			 KVPULL_ETOOSMALL);
	assert_int_equal(finish.ticket_bytes, ticket.bytes);
	/* A ticket buffer that is a byte too short gets no ticket. */
	finish.ticket = text;
	finish.ticket_capacity = ticket.bytes - 1;
	assert_int_equal(kvpull_scheduler_request_finished(
				 world->scheduler, &finish, world->now_ns),
			 KVPULL_ETOOSMALL);
	assert_true(kvpull_scheduler_digest(world->scheduler) == before);
	assert_int_equal(world_finish(world, 2, KVPULL_FINISH_STOP, &ticket),
			 KVPULL_FINISH_FREE);
	world_close(world);
}

/* Memory behind a table that is full looks like one family more. */
UNIT_TEST(reset_forgets_no_family_beyond_the_table)
{
	struct kvpull_config config = world_config();
	struct kvpull_family *beyond;
	struct kvpull_family before;
	struct kvpull_family after;
	struct world_ticket ticket;
	struct world *world;
	uint64_t key;

	config.families_max = 2;
	world = world_open(&config, 1, 7);
	for (key = 1; key <= 2; key++) {
		world_enter(world, key, PARENT + key, 1);
		assert_int_equal(
			world_finish(world, key, KVPULL_FINISH_STOP, &ticket),
			KVPULL_FINISH_HELD);
	}
	assert_int_equal(world_counts(world).families_live, 2);
	beyond = &world->scheduler->families.families[2];
	fence_open(beyond, sizeof(*beyond));
	before = *beyond;
	*beyond = world->scheduler->families.families[1];
	assert_int_equal(kvpull_scheduler_reset(world->scheduler,
						KVPULL_RESET_FORGET,
						world->now_ns),
			 0);
	after = *beyond;
	*beyond = before;
	assert_int_equal(after.parent_key, PARENT + 2);
	assert_int_equal(world_counts(world).families_live, 0);
	world_close(world);
}
