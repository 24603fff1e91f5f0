/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a finish, and the ticket that they make. */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/unit/scheduler/world.h"

static struct world_ticket ticket;

UNIT_TEST(finish_without_its_parts_is_free)
{
	static const struct kvpull_blocks nothing = { .block_count = 3 };
	static const struct {
		const struct kvpull_blocks *groups;
		uint32_t payload_bytes;
	} wrong[] = { { NULL, 0 }, { &nothing, 0 }, { &world_group, 8 } };
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct world *world = world_of(1, 5);
		struct kvpull_finish finish = world_finish_of(1, &ticket);

		world_enter(world, 1, 0, 1);
		finish.groups = wrong[i].groups;
		finish.payload_bytes = wrong[i].payload_bytes;
		assert_int_equal(world_finish_with(world, &finish),
				 KVPULL_FINISH_FREE);
		assert_int_equal(finish.ticket_bytes, 0);
		world_close(world);
	}
}

PRODUCER_TEST(finish_without_a_buffer_is_told_the_size, 1)
{
	struct kvpull_finish finish = world_finish_of(1, &ticket);

	finish.ticket = NULL;
	world_enter(world, 1, 0, 1);
	assert_int_equal(world_finish_with(world, &finish), KVPULL_ETOOSMALL);
	assert_in_range(finish.ticket_bytes, 1, sizeof(ticket.text));
	finish.ticket = ticket.text;
	finish.ticket_capacity = sizeof(ticket.text);
	assert_int_equal(world_finish_with(world, &finish), KVPULL_FINISH_HELD);
}

/* A ticket names what was computed: the rest of the prompt is nobody's. */
UNIT_TEST(ticket_has_no_more_than_was_computed)
{
	static struct kvpull_ticket_scratch scratch;
	static const struct {
		uint32_t computed;
		uint32_t told;
	} cases[] = { { 40, 40 }, { 64, 64 }, { 65, 64 }, { 1, 1 } };
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvpull_ticket_info info = { .struct_size =
							   sizeof(info) };
		struct world *world = world_of(1, 5);
		struct kvpull_finish finish = world_finish_of(1, &ticket);

		finish.computed_tokens = cases[i].computed;
		world_enter(world, 1, 0, 1); /* 64 tokens */
		assert_int_equal(world_finish_with(world, &finish),
				 KVPULL_FINISH_HELD);
		assert_int_equal(kvpull_ticket_peek(ticket.text,
						    finish.ticket_bytes,
						    &scratch, &info),
				 0);
		assert_int_equal(info.prompt_tokens, cases[i].told);
		world_close(world);
	}
}

/* The request's blocks are still being written: no ticket may name them. */
PRODUCER_TEST(request_that_still_pulls_is_not_held, 1)
{
	const struct world_ticket from = world_make_ticket(9);
	struct kvpull_request request = world_request_of(1, &from);

	request.flags |= KVPULL_REQUEST_WANTS_HOLD;
	assert_int_equal(world_ask(world, &request), 0);
	load(world, 1);
	finish_free(world, 1, KVPULL_FINISH_LENGTH, &ticket);
	assert_int_equal(ticket.bytes, 0);
	assert_int_equal(world_counts(world).holds_taken, 0);
	expect_settled(world, KVPULL_COMMAND_HOLD, 0);
}

/* A worker that registered no memory has none, and nobody could read of it. */
WORLD_TEST(request_is_not_held_before_its_ranks_have_addresses,
	   world_of_silent(1))
{
	world->ranks[0].address = "";
	world_tell_rank(world, 0);
	hold_refused(world, 1);
	assert_int_equal(world_counts(world).not_ready, 1);
	world->ranks[0].address = NULL;
	world_tell_rank(world, 0);
	hold(world, 2);
}

/* As many as a word has bits. */
UNIT_TEST(all_of_64_ranks_have_to_report)
{
	const struct kvpull_config config = world_config();
	const struct kvpull_compat compat = { .group_count = 1 };
	const struct kvpull_log log = { .write = NULL };
	const struct kvpull_scheduler_setup setup = {
		.log = &log,
		.config = &config,
		.compat = &compat,
		.engine_id = "engine",
		.rank_count = KVPULL_RANKS_MAX,
		.pp_size = 1,
		.incarnation = 7,
	};
	struct kvpull_scheduler *scheduler;

	assert_int_equal(kvpull_scheduler_create(&setup, &scheduler), 0);
	assert_true(scheduler->slots.ranks_all == UINT64_MAX);
	assert_true(scheduler->demand.ranks_all == UINT64_MAX);
	kvpull_scheduler_destroy(scheduler);
}

/* The blocks are a consumer's until every rank has reported the end. */
PRODUCER_TEST(key_that_is_held_is_no_new_request, 1)
{
	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	world_enter(world, 1, 0, 2);
	finish_held(world, 1, KVPULL_FINISH_LENGTH, &ticket);
	assert_int_equal(world_counts(world).holds_taken, 1);
}

PRODUCER_TEST(payload_that_is_too_long_goes_nowhere, 1)
{
	static const uint8_t payload[KVPULL_PAYLOAD_BYTES_MAX + 64];
	static char text[KVPULL_TICKET_BYTES_MAX];
	/* The member that lies behind the ticket's payload. */
	char *behind = world->scheduler->ticket->unknown;
	struct kvpull_finish finish = world_finish_of(1, NULL);

	finish.payload = payload;
	finish.payload_bytes = sizeof(payload);
	world_enter(world, 1, 0, 1);
	*behind = 1;
	assert_int_equal(world_finish_with(world, &finish), KVPULL_FINISH_FREE);
	assert_int_equal(*behind, 1);
	/* The longest one travels. */
	finish.payload_bytes = KVPULL_PAYLOAD_BYTES_MAX;
	finish.ticket = text;
	finish.ticket_capacity = sizeof(text);
	world_enter(world, 1, 0, 1);
	assert_int_equal(world_finish_with(world, &finish), KVPULL_FINISH_HELD);
}
