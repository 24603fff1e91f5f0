/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets of a consumer: believed as far as they go, no twin of one, so many. */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/unit/scheduler/world.h"

/* The ticket has 64 tokens; the request may have more, or fewer. */
UNIT_TEST(no_more_is_loaded_than_the_ticket_has)
{
	static const struct {
		uint32_t prompt;
		uint32_t local;
		uint32_t loaded;
	} cases[] = { { 64, 0, 64 },  { 100, 0, 64 }, { 100, 16, 48 },
		      { 48, 0, 48 },  { 48, 16, 32 }, { 100, 64, 0 },
		      { 100, 80, 0 }, { 48, 48, 0 } };
	const struct world_ticket ticket = world_make_ticket(7);
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct world *world = world_of_consumer(1);
		struct kvpull_request request = world_request_of(1, &ticket);
		uint32_t tokens = 0;

		request.prompt_tokens = cases[i].prompt;
		assert_int_equal(world_ask(world, &request), 0);
		assert_int_equal(kvpull_scheduler_matched_tokens(
					 world->scheduler, 1, cases[i].local,
					 &tokens, world->now_ns),
				 cases[i].loaded ? KVPULL_MATCH_LOAD :
						   KVPULL_MATCH_NOTHING);
		assert_int_equal(tokens, cases[i].loaded);
		world_close(world);
	}
}

/*
 * A ticket of the same worker, slot and generation: only one of the two can be
 * real.
 */
static struct world_ticket twin_of(uint64_t incarnation)
{
	struct world *producer = world_of(1, incarnation);
	struct world_ticket twin;

	world_enter(producer, 1, 0, 2); /* another prompt */
	finish_held(producer, 1, KVPULL_FINISH_LENGTH, &twin);
	world_close(producer);
	return twin;
}

CONSUMER_TEST(twin_of_a_ticket_in_use_is_refused, 1)
{
	const struct world_ticket twin = twin_of(7);

	want(world, 1, ticket);
	assert_int_equal(world_want(world, 2, &twin, 1), KVPULL_ENOTICKET);
	assert_int_equal(world_want(world, 3, ticket, 1), 0);
	assert_int_equal(world_counts(world).bad_tickets, 1);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_WAIT);
	expect_settled(world, KVPULL_COMMAND_CLAIM, 1);
}

static uint32_t texts_used(const struct world *world)
{
	return kvpull_index_pool_used(&world->scheduler->texts.pool);
}

/*
 * A released ticket is remembered for a lease, in which there are many of
 * thousands of blocks.
 */
CONSUMER_TEST(released_ticket_keeps_no_body, 1)
{
	want(world, 1, ticket);
	assert_int_equal(texts_used(world), 1);
	finish(world, 1, KVPULL_FINISH_REJECT);
	assert_int_equal(texts_used(world), 0);
}

/* There is nothing to load by either of them. */
CONSUMER_TEST(twin_of_a_released_ticket_loads_nothing, 1)
{
	const struct world_ticket twin = twin_of(7);
	want(world, 1, ticket);
	finish(world, 1, KVPULL_FINISH_REJECT);
	world_settle(world);
	assert_int_equal(world_want(world, 2, &twin, 1), 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	expect_settled(world, KVPULL_COMMAND_CLAIM, 1);
}

#define KEY_TEST(name) TICKET_TEST(name, world_of_key(3))

/* A name that a stranger gave to a ticket is none of those that our key made. */
KEY_TEST(ticket_of_another_key_is_given_back_and_takes_no_name)
{
	uint64_t serial;

	assert_int_equal(world_want(world, 1, ticket, 1), KVPULL_ENOTICKET);
	expect_settled(world, KVPULL_COMMAND_CLAIM, 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	serial = world_command(world, KVPULL_COMMAND_CLAIM)->ticket_serial;
	assert_true(
		world_command(world, KVPULL_COMMAND_RELEASE)->ticket_serial ==
		serial);
	assert_int_equal(world->scheduler->demand.by_identity.count, 0);
	assert_int_equal(world_counts(world).tickets_live, 0);
	assert_int_equal(world_counts(world).bad_tickets, 1);
}

KEY_TEST(damaged_ticket_is_not_given_back)
{
	struct world_ticket damaged = *ticket;

	damaged.text[20] ^= 1;
	assert_int_equal(world_want(world, 1, &damaged, 1), KVPULL_ENOTICKET);
	expect_settled(world, KVPULL_COMMAND_CLAIM, 0);
}

static void show(struct world *world, const struct world_ticket *ticket)
{
	assert_int_equal(world_reject(world, ticket), KVPULL_ENOTICKET);
}

/* Anybody can make them without our key. */
KEY_TEST(tickets_of_other_keys_that_are_given_back_are_few_a_second)
{
	uint32_t second;
	uint32_t i;

	for (second = 1; second <= 3; second++) {
		for (i = 0; i < 3 * KVPULL_STRANGERS_MAX; i++)
			show(world, ticket);
		expect_settled(world, KVPULL_COMMAND_CLAIM,
			       second * KVPULL_STRANGERS_MAX);
		assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE),
				 second * KVPULL_STRANGERS_MAX);
		world->now_ns += KVPULL_NS_PER_S;
	}
}

/* The outbox has room for the claim of a stranger's ticket, not for its release. */
static void strangers_release_waits(struct world *world,
				    const struct world_ticket *ticket)
{
	struct kvpull_outbox *outbox = &world->scheduler->outbox;

	for (outbox->capacity = outbox->tail_at + 1;
	     !world->scheduler->demand.stranger_serial; outbox->capacity++)
		show(world, ticket);
}

/* A claim without its release would stand in the workers for good. */
KEY_TEST(release_of_another_keys_ticket_waits_for_room)
{
	struct kvpull_outbox *outbox = &world->scheduler->outbox;
	const size_t capacity = outbox->capacity;

	strangers_release_waits(world, ticket);
	show(world, ticket);
	world_step(world);
	assert_false(world_has_step(world));
	outbox->capacity = capacity;
	assert_true(world_has_step(world));
	expect_settled(world, KVPULL_COMMAND_CLAIM, 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
}

/* A stranger's serial has one place: the next stranger's would take it. */
KEY_TEST(release_that_waits_for_room_goes_before_the_next_claim)
{
	struct kvpull_outbox *outbox = &world->scheduler->outbox;
	const size_t capacity = outbox->capacity;

	strangers_release_waits(world, ticket);
	outbox->capacity = capacity;
	show(world, ticket);
	expect_settled(world, KVPULL_COMMAND_CLAIM, 2);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 2);
}

/* Workers beat for the tickets of a half that speaks, and no longer. */
CONSUMER_TEST(half_speaks_each_third_of_a_lease_while_it_has_a_ticket, 1)
{
	const uint64_t third_ns = WORLD_LEASE_NS / 3;
	struct kvpull_step_header header;
	uint32_t times;

	want(world, 1, ticket);
	world_settle(world);
	for (times = 0; times < 8; times++) {
		struct kvpull_wire_reader reader = { .data = world->bytes };

		world->now_ns += third_ns - 1;
		assert_int_equal(world_has_step(world), 0);
		assert_int_equal(world_build(world), 0);
		world->now_ns++;
		assert_int_not_equal(world_has_step(world), 0);
		reader.byte_count = world_build(world);
		assert_int_equal(step_get_header(&reader, &header), 0);
		assert_int_equal(header.record_count, 0);
		assert_int_equal(world_has_step(world), 0);
		assert_int_equal(world_build(world), 0);
	}
	finish(world, 1, KVPULL_FINISH_ABORT);
	expect_settled(world, KVPULL_COMMAND_RELEASE, 1);
	world->now_ns += 2 * third_ns;
	assert_int_equal(world_has_step(world), 0);
	assert_int_equal(world_build(world), 0);
}

/* Headers alone must not put the resending of a lost command off. */
CONSUMER_TEST(lost_command_is_sent_again_by_a_half_that_speaks, 1)
{
	const uint64_t third_ns = WORLD_LEASE_NS / 3;

	want(world, 1, ticket);
	assert_true(world_build(world) > 0); /* and lost */
	world->now_ns += third_ns;
	world_step(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_CLAIM), 1);
}

CONSUMER_TEST_WITH(full_ticket_table_forgets_the_oldest_released_first, 1,
		   tickets_max = 2)
{
	struct world_ticket tickets[4];
	uint32_t i;

	for (i = 0; i < 4; i++)
		tickets[i] = world_make_ticket(20 + i);
	assert_int_equal(world_want(world, 1, &tickets[0], 1), 0);
	assert_int_equal(world_want(world, 2, &tickets[1], 1), 0);
	assert_int_equal(world_want(world, 3, &tickets[2], 1), KVPULL_EFULL);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_NOTHING);
	finish(world, 1, KVPULL_FINISH_REJECT);
	/*
	 * The ticket's release is not on its way yet: the ticket keeps its
	 * place.
	 */
	assert_int_equal(world_want(world, 4, &tickets[2], 1), KVPULL_EFULL);
	world_settle(world);
	assert_int_equal(world_want(world, 5, &tickets[2], 1), 0);
	assert_int_equal(world_want(world, 6, &tickets[3], 1), KVPULL_EFULL);
}

static uint32_t claims_after(struct world *world, uint64_t key,
			     const struct world_ticket *ticket)
{
	assert_int_equal(world_want(world, key, ticket, 1), 0);
	finish(world, key, KVPULL_FINISH_REJECT);
	world_settle(world);
	return world_count(world, KVPULL_COMMAND_CLAIM);
}

/* A ticket that is forgotten too early is claimed, and released, once more. */
CONSUMER_TEST_WITH(ticket_table_forgets_no_released_ticket_while_it_has_room, 1,
		   tickets_max = 3)
{
	struct world_ticket tickets[4];
	uint32_t i;

	for (i = 0; i < 4; i++)
		tickets[i] = world_make_ticket(20 + i);
	for (i = 0; i < 3; i++)
		assert_int_equal(claims_after(world, 1 + i, &tickets[i]),
				 1 + i);
	for (i = 0; i < 3; i++)
		assert_int_equal(claims_after(world, 11 + i, &tickets[i]), 3);
	/* The table is full: one is forgotten, the one asked for longest ago. */
	assert_int_equal(claims_after(world, 21, &tickets[3]), 4);
	for (i = 1; i < 4; i++)
		assert_int_equal(claims_after(world, 30 + i, &tickets[i]), 4);
	assert_int_equal(claims_after(world, 41, &tickets[0]), 5);
}

/* The ticket is good: its request may be given its blocks after all. */
CONSUMER_TEST(groups_that_the_engine_has_not_are_its_mistake, 1)
{
	static const uint32_t ids[4] = { 1, 2, 3, 4 };
	const struct kvpull_blocks groups[2] = {
		{ .block_count = 4, .block_ids = ids },
		{ .block_count = 0, .block_ids = ids },
	};
	struct kvpull_allocation allocation = world_allocation_of(1, 2, groups);

	want_offered(world, 1, ticket);
	assert_int_equal(world_allocate_with(world, &allocation),
			 KVPULL_EINVAL);
	expect_warning(world, "names 2 groups");
	allocation.group_count = 0;
	assert_int_equal(world_allocate_with(world, &allocation),
			 KVPULL_EINVAL);
	expect_warning(world, "names 0 groups");
	allocation.group_count = 1;
	assert_int_equal(world_allocate_with(world, &allocation), 0);
}

/*
 * A host that gives blocks to a request that was offered nothing gets a log
 * line.
 */
CONSUMER_TEST(blocks_that_were_not_offered_are_said, 1)
{
	want(world, 1, ticket);
	assert_int_equal(world_allocate(world, 1, 0, 4), KVPULL_EINVAL);
	expect_warning(world, "did not offer");
}

static void want_by(struct world *world, uint64_t key,
		    const struct world_ticket *ticket, int32_t priority)
{
	struct kvpull_request request = world_request_of(key, ticket);

	request.priority = priority;
	assert_int_equal(world_ask(world, &request), 0);
}

/* The second request shares the ticket, and is the one that pulls. */
UNIT_TEST(claim_has_the_first_requests_priority_and_a_pull_its_own)
{
	static const int32_t priorities[] = { 0, 5, -5, INT32_MIN, INT32_MAX };
	const struct world_ticket ticket = world_make_ticket(7);
	uint32_t at;

	for (at = 0; at < 5; at++) {
		struct world *world = world_of_consumer(1);

		want_by(world, 1, &ticket, priorities[at]);
		want_by(world, 2, &ticket, 7);
		world_settle(world);
		assert_int_equal(
			world_command(world, KVPULL_COMMAND_CLAIM)->priority,
			priorities[at]);
		load(world, 1 + at % 2);
		world_settle(world);
		assert_int_equal(
			world_command(world, KVPULL_COMMAND_PULL)->priority,
			at % 2 ? 7 : priorities[at]);
		world_close(world);
	}
}

/* Nobody waits for the release of a ticket that is never read. */
CONSUMER_TEST(claim_of_a_rejected_request_has_no_priority, 1)
{
	assert_int_equal(world_reject(world, ticket), 0);
	world_settle(world);
	assert_int_equal(world_command(world, KVPULL_COMMAND_CLAIM)->priority,
			 0);
}
