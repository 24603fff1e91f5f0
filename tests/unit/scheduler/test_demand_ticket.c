/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets of a consumer: believed as far as they go, no twin of one, so many. */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/unit/scheduler/world.h"

static struct world *consumer(void)
{
	const struct kvpull_config config = world_config();

	return world_open(&config, 1, 5);
}

static int want_by(struct world *world, uint64_t key,
		   const struct world_ticket *ticket, uint32_t prompt_tokens,
		   int32_t priority)
{
	struct kvpull_request request = {
		.key = key,
		.ticket = ticket->text,
		.ticket_bytes = ticket->bytes,
		.prompt_tokens = prompt_tokens,
		.flags = KVPULL_REQUEST_PULL,
		.priority = priority,
	};

	memset(request.prompt_digest, 1, sizeof(request.prompt_digest));
	return kvpull_scheduler_request_new(world->scheduler, &request,
					    world->now_ns);
}

static int want(struct world *world, uint64_t key,
		const struct world_ticket *ticket, uint32_t prompt_tokens)
{
	return want_by(world, key, ticket, prompt_tokens, 0);
}

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
	const struct world_ticket ticket = world_make_ticket(9);
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct world *world = consumer();
		uint32_t tokens = 0;

		assert_int_equal(want(world, 1, &ticket, cases[i].prompt), 0);
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
	const struct kvpull_config config = world_config();
	struct world *producer = world_open(&config, 1, incarnation);
	struct world_ticket twin;

	world_enter(producer, 1, 0, 2); /* another prompt */
	assert_int_equal(world_finish(producer, 1, KVPULL_FINISH_LENGTH, &twin),
			 KVPULL_FINISH_HELD);
	world_close(producer);
	return twin;
}

UNIT_TEST(twin_of_a_ticket_in_use_is_refused)
{
	const struct world_ticket ticket = world_make_ticket(9);
	const struct world_ticket twin = twin_of(9);
	struct world *world = consumer();

	assert_int_equal(want(world, 1, &ticket, 64), 0);
	assert_int_equal(want(world, 2, &twin, 64), KVPULL_ENOTICKET);
	assert_int_equal(want(world, 3, &ticket, 64), 0);
	assert_int_equal(world_counts(world).bad_tickets, 1);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_WAIT);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_CLAIM), 1);
	world_close(world);
}

/*
 * A released ticket is remembered for a lease, in which there are many of
 * thousands of blocks.
 */
UNIT_TEST(released_ticket_keeps_no_body)
{
	const struct world_ticket ticket = world_make_ticket(9);
	struct world_ticket none;
	struct world *world = consumer();

	assert_int_equal(want(world, 1, &ticket, 64), 0);
	assert_int_equal(kvpull_index_pool_used(&world->scheduler->texts.pool),
			 1);
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_REJECT, &none),
			 KVPULL_FINISH_FREE);
	assert_int_equal(kvpull_index_pool_used(&world->scheduler->texts.pool),
			 0);
	world_close(world);
}

/* There is nothing to load by either of them. */
UNIT_TEST(twin_of_a_released_ticket_loads_nothing)
{
	const struct world_ticket ticket = world_make_ticket(9);
	const struct world_ticket twin = twin_of(9);
	struct world_ticket none;
	struct world *world = consumer();

	assert_int_equal(want(world, 1, &ticket, 64), 0);
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_REJECT, &none),
			 KVPULL_FINISH_FREE);
	world_settle(world);
	assert_int_equal(want(world, 2, &twin, 64), 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_CLAIM), 1);
	world_close(world);
}

static int has_step(struct world *world)
{
	return kvpull_scheduler_has_pending(world->scheduler, world->now_ns) &
	       (int)KVPULL_PENDING_STEP;
}

static struct world *keyed_consumer(void)
{
	struct kvpull_config config = world_config();

	config.key_set = 1;
	memset(config.key, 3, sizeof(config.key));
	return world_open(&config, 1, 5);
}

/* A name that a stranger gave to a ticket is none of those that our key made. */
UNIT_TEST(ticket_of_another_key_is_given_back_and_takes_no_name)
{
	const struct world_ticket ticket = world_make_ticket(9);
	struct world *world = keyed_consumer();
	uint64_t serial;

	assert_int_equal(want(world, 1, &ticket, 64), KVPULL_ENOTICKET);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_CLAIM), 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	serial = world_last(world, KVPULL_COMMAND_CLAIM)->command.ticket_serial;
	assert_true(world_last(world, KVPULL_COMMAND_RELEASE)
			    ->command.ticket_serial == serial);
	assert_int_equal(world->scheduler->demand.by_identity.count, 0);
	assert_int_equal(world_counts(world).tickets_live, 0);
	assert_int_equal(world_counts(world).bad_tickets, 1);
	world_close(world);
}

UNIT_TEST(damaged_ticket_is_not_given_back)
{
	struct world_ticket ticket = world_make_ticket(9);
	struct world *world = keyed_consumer();

	ticket.text[20] ^= 1;
	assert_int_equal(want(world, 1, &ticket, 64), KVPULL_ENOTICKET);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_CLAIM), 0);
	world_close(world);
}

static void show(struct world *world, const struct world_ticket *ticket)
{
	assert_int_equal(kvpull_scheduler_request_rejected(
				 world->scheduler, ticket->text, ticket->bytes,
				 world->now_ns),
			 KVPULL_ENOTICKET);
}

/* Anybody can make them without our key. */
UNIT_TEST(tickets_of_other_keys_that_are_given_back_are_few_a_second)
{
	const struct world_ticket ticket = world_make_ticket(9);
	struct world *world = keyed_consumer();
	uint32_t second;
	uint32_t i;

	for (second = 1; second <= 3; second++) {
		for (i = 0; i < 3 * KVPULL_STRANGERS_MAX; i++)
			show(world, &ticket);
		world_settle(world);
		assert_int_equal(world_count(world, KVPULL_COMMAND_CLAIM),
				 second * KVPULL_STRANGERS_MAX);
		assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE),
				 second * KVPULL_STRANGERS_MAX);
		world->now_ns += KVPULL_NS_PER_S;
	}
	world_close(world);
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
UNIT_TEST(release_of_another_keys_ticket_waits_for_room)
{
	const struct world_ticket ticket = world_make_ticket(9);
	struct world *world = keyed_consumer();
	struct kvpull_outbox *outbox = &world->scheduler->outbox;
	const size_t capacity = outbox->capacity;

	strangers_release_waits(world, &ticket);
	show(world, &ticket);
	world_step(world);
	assert_false(has_step(world));
	outbox->capacity = capacity;
	assert_true(has_step(world));
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_CLAIM), 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	world_close(world);
}

/* A stranger's serial has one place: the next stranger's would take it. */
UNIT_TEST(release_that_waits_for_room_goes_before_the_next_claim)
{
	const struct world_ticket ticket = world_make_ticket(9);
	struct world *world = keyed_consumer();
	struct kvpull_outbox *outbox = &world->scheduler->outbox;
	const size_t capacity = outbox->capacity;

	strangers_release_waits(world, &ticket);
	outbox->capacity = capacity;
	show(world, &ticket);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_CLAIM), 2);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 2);
	world_close(world);
}

/* Workers beat for the tickets of a half that speaks, and no longer. */
UNIT_TEST(half_speaks_each_third_of_a_lease_while_it_has_a_ticket)
{
	const struct kvpull_config config = world_config();
	const struct world_ticket ticket = world_make_ticket(7);
	struct world *world = world_open(&config, 1, 9);
	const uint64_t third_ns = config.lease_ms * KVPULL_NS_PER_MS / 3;
	struct kvpull_step_header header;
	struct world_ticket none;
	uint32_t times;

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	world_settle(world);
	for (times = 0; times < 8; times++) {
		struct kvpull_wire_reader reader = { .data = world->bytes };

		world->now_ns += third_ns - 1;
		assert_int_equal(has_step(world), 0);
		assert_int_equal(world_build(world), 0);
		world->now_ns++;
		assert_int_not_equal(has_step(world), 0);
		reader.byte_count = world_build(world);
		assert_int_equal(step_get_header(&reader, &header), 0);
		assert_int_equal(header.record_count, 0);
		assert_int_equal(has_step(world), 0);
		assert_int_equal(world_build(world), 0);
	}
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_ABORT, &none),
			 KVPULL_FINISH_FREE);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	world->now_ns += 2 * third_ns;
	assert_int_equal(has_step(world), 0);
	assert_int_equal(world_build(world), 0);
	world_close(world);
}

/* Headers alone must not put the resending of a lost command off. */
UNIT_TEST(lost_command_is_sent_again_by_a_half_that_speaks)
{
	const struct kvpull_config config = world_config();
	const struct world_ticket ticket = world_make_ticket(7);
	struct world *world = world_open(&config, 1, 9);
	const uint64_t third_ns = config.lease_ms * KVPULL_NS_PER_MS / 3;

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_true(world_build(world) > 0); /* and lost */
	world->now_ns += third_ns;
	world_step(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_CLAIM), 1);
	world_close(world);
}

UNIT_TEST(full_ticket_table_forgets_the_oldest_released_first)
{
	struct kvpull_config config = world_config();
	struct world_ticket tickets[4];
	struct world_ticket none;
	struct world *world;
	uint32_t i;

	config.tickets_max = 2;
	world = world_open(&config, 1, 9);
	for (i = 0; i < 4; i++)
		tickets[i] = world_make_ticket(20 + i);
	assert_int_equal(world_want(world, 1, &tickets[0], 1), 0);
	assert_int_equal(world_want(world, 2, &tickets[1], 1), 0);
	assert_int_equal(world_want(world, 3, &tickets[2], 1), KVPULL_EFULL);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_REJECT, &none),
			 KVPULL_FINISH_FREE);
	/*
	 * The ticket's release is not on its way yet: the ticket keeps its
	 * place.
	 */
	assert_int_equal(world_want(world, 4, &tickets[2], 1), KVPULL_EFULL);
	world_settle(world);
	assert_int_equal(world_want(world, 5, &tickets[2], 1), 0);
	assert_int_equal(world_want(world, 6, &tickets[3], 1), KVPULL_EFULL);
	world_close(world);
}

static uint32_t claims_after(struct world *world, uint64_t key,
			     const struct world_ticket *ticket)
{
	struct world_ticket none;

	assert_int_equal(world_want(world, key, ticket, 1), 0);
	assert_int_equal(world_finish(world, key, KVPULL_FINISH_REJECT, &none),
			 KVPULL_FINISH_FREE);
	world_settle(world);
	return world_count(world, KVPULL_COMMAND_CLAIM);
}

/* A ticket that is forgotten too early is claimed, and released, once more. */
UNIT_TEST(ticket_table_forgets_no_released_ticket_while_it_has_room)
{
	struct kvpull_config config = world_config();
	struct world_ticket tickets[4];
	struct world *world;
	uint32_t i;

	config.tickets_max = 3;
	world = world_open(&config, 1, 9);
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
	world_close(world);
}

/* The ticket is good: its request may be given its blocks after all. */
UNIT_TEST(groups_that_the_engine_has_not_are_its_mistake)
{
	static const uint32_t ids[4] = { 1, 2, 3, 4 };
	const struct kvpull_blocks groups[2] = {
		{ .block_count = 4, .block_ids = ids },
		{ .block_count = 0, .block_ids = ids },
	};
	struct kvpull_allocation allocation = { .key = 1,
						.external_tokens = 64,
						.group_count = 2,
						.groups = groups };
	struct world *world = consumer();
	const struct world_ticket ticket = world_make_ticket(9);

	assert_int_equal(want(world, 1, &ticket, 64), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(kvpull_scheduler_allocated(world->scheduler,
						    &allocation, world->now_ns),
			 KVPULL_EINVAL);
	assert_non_null(
		strstr(world->lines.of[KVPULL_LOG_WARN], "names 2 groups"));
	allocation.group_count = 0;
	assert_int_equal(kvpull_scheduler_allocated(world->scheduler,
						    &allocation, world->now_ns),
			 KVPULL_EINVAL);
	assert_non_null(
		strstr(world->lines.of[KVPULL_LOG_WARN], "names 0 groups"));
	allocation.group_count = 1;
	assert_int_equal(kvpull_scheduler_allocated(world->scheduler,
						    &allocation, world->now_ns),
			 0);
	world_close(world);
}

/*
 * A host that gives blocks to a request that was offered nothing gets a log
 * line.
 */
UNIT_TEST(blocks_that_were_not_offered_are_said)
{
	struct world *world = consumer();
	const struct world_ticket ticket = world_make_ticket(9);

	assert_int_equal(want(world, 1, &ticket, 64), 0);
	assert_int_equal(world_allocate(world, 1, 0, 4), KVPULL_EINVAL);
	assert_non_null(
		strstr(world->lines.of[KVPULL_LOG_WARN], "did not offer"));
	world_close(world);
}

/* The second request shares the ticket, and is the one that pulls. */
UNIT_TEST(claim_has_the_first_requests_priority_and_a_pull_its_own)
{
	static const int32_t priorities[] = { 0, 5, -5, INT32_MIN, INT32_MAX };
	const struct world_ticket ticket = world_make_ticket(9);
	uint32_t at;

	for (at = 0; at < 5; at++) {
		struct world *world = consumer();

		assert_int_equal(want_by(world, 1, &ticket, 64, priorities[at]),
				 0);
		assert_int_equal(want_by(world, 2, &ticket, 64, 7), 0);
		world_settle(world);
		assert_int_equal(world_last(world, KVPULL_COMMAND_CLAIM)
					 ->command.priority,
				 priorities[at]);
		assert_int_equal(world_match(world, 1 + at % 2, 0),
				 KVPULL_MATCH_LOAD);
		assert_int_equal(world_allocate(world, 1 + at % 2, 0, 4), 0);
		world_settle(world);
		assert_int_equal(
			world_last(world, KVPULL_COMMAND_PULL)->command.priority,
			at % 2 ? 7 : priorities[at]);
		world_close(world);
	}
}

/* Nobody waits for the release of a ticket that is never read. */
UNIT_TEST(claim_of_a_rejected_request_has_no_priority)
{
	const struct world_ticket ticket = world_make_ticket(9);
	struct world *world = consumer();

	assert_int_equal(
		kvpull_scheduler_request_rejected(world->scheduler, ticket.text,
						  ticket.bytes, world->now_ns),
		0);
	world_settle(world);
	assert_int_equal(
		world_last(world, KVPULL_COMMAND_CLAIM)->command.priority, 0);
	world_close(world);
}
