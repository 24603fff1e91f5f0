/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a finish, and the ticket that they make. */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/unit/scheduler/world.h"

static struct world_ticket ticket;

static int finish_with(struct world *world, struct kvpull_finish *finish)
{
	finish->key = 1;
	finish->reason = KVPULL_FINISH_LENGTH;
	finish->computed_tokens = 64;
	finish->group_count = 1;
	return kvpull_scheduler_request_finished(world->scheduler, finish,
						 world->now_ns);
}

UNIT_TEST(finish_without_its_parts_is_free)
{
	static const struct kvpull_blocks nothing = { .block_count = 3 };
	static const struct kvpull_blocks blocks = { .block_count = 4,
						     .block_ids =
							     world_blocks };
	const struct kvpull_finish wrong[] = {
		{ .groups = NULL },
		{ .groups = &nothing },
		{ .groups = &blocks, .payload_bytes = 8 },
	};
	const struct kvpull_config config = world_config();
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct world *world = world_open(&config, 1, 5);
		struct kvpull_finish finish = wrong[i];

		world_enter(world, 1, 0, 1);
		finish.ticket = ticket.text;
		finish.ticket_capacity = sizeof(ticket.text);
		assert_int_equal(finish_with(world, &finish),
				 KVPULL_FINISH_FREE);
		assert_int_equal(finish.ticket_bytes, 0);
		world_close(world);
	}
}

UNIT_TEST(finish_without_a_buffer_is_told_the_size)
{
	const struct kvpull_blocks blocks = { .block_count = 4,
					      .block_ids = world_blocks };
	const struct kvpull_config config = world_config();
	struct world *world = world_open(&config, 1, 5);
	struct kvpull_finish finish = { .groups = &blocks,
					.ticket_capacity = 4096 };

	world_enter(world, 1, 0, 1);
	assert_int_equal(finish_with(world, &finish), KVPULL_ETOOSMALL);
	assert_in_range(finish.ticket_bytes, 1, sizeof(ticket.text));
	finish.ticket = ticket.text;
	finish.ticket_capacity = sizeof(ticket.text);
	assert_int_equal(finish_with(world, &finish), KVPULL_FINISH_HELD);
	world_close(world);
}

/* A ticket names what was computed: the rest of the prompt is nobody's. */
UNIT_TEST(ticket_has_no_more_than_was_computed)
{
	static struct kvpull_ticket_scratch scratch;
	static const struct {
		uint32_t computed;
		uint32_t told;
	} cases[] = { { 40, 40 }, { 64, 64 }, { 65, 64 }, { 1, 1 } };
	const struct kvpull_blocks blocks = { .block_count = 4,
					      .block_ids = world_blocks };
	const struct kvpull_config config = world_config();
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvpull_ticket_info info = { .struct_size =
							   sizeof(info) };
		struct world *world = world_open(&config, 1, 5);
		struct kvpull_finish finish = {
			.key = 1,
			.reason = KVPULL_FINISH_LENGTH,
			.computed_tokens = cases[i].computed,
			.group_count = 1,
			.groups = &blocks,
			.ticket = ticket.text,
			.ticket_capacity = sizeof(ticket.text),
		};

		world_enter(world, 1, 0, 1); /* 64 tokens */
		assert_int_equal(
			kvpull_scheduler_request_finished(
				world->scheduler, &finish, world->now_ns),
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
UNIT_TEST(request_that_still_pulls_is_not_held)
{
	const struct kvpull_config config = world_config();
	const struct world_ticket from = world_make_ticket(9);
	struct world *world = world_open(&config, 1, 5);
	struct kvpull_request request = {
		.key = 1,
		.ticket = from.text,
		.ticket_bytes = from.bytes,
		.prompt_tokens = 64,
		.flags = KVPULL_REQUEST_PULL | KVPULL_REQUEST_WANTS_HOLD,
	};

	memset(request.prompt_digest, 1, sizeof(request.prompt_digest));
	assert_int_equal(kvpull_scheduler_request_new(world->scheduler,
						      &request, world->now_ns),
			 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_LENGTH, &ticket),
			 KVPULL_FINISH_FREE);
	assert_int_equal(ticket.bytes, 0);
	assert_int_equal(world_counts(world).holds_taken, 0);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_HOLD), 0);
	world_close(world);
}

/* A worker that registered no memory has none, and nobody could read of it. */
UNIT_TEST(request_is_not_held_before_its_ranks_have_addresses)
{
	const struct kvpull_config config = world_config();
	struct world *world = world_open_silent(&config, 1, 7);

	world->ranks[0].address = "";
	world_tell_rank(world, 0);
	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_FREE);
	assert_int_equal(world_counts(world).not_ready, 1);
	world->ranks[0].address = NULL;
	world_tell_rank(world, 0);
	assert_int_equal(world_hold(world, 2, &ticket), KVPULL_FINISH_HELD);
	world_close(world);
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
UNIT_TEST(key_that_is_held_is_no_new_request)
{
	const struct kvpull_config config = world_config();
	struct world *world = world_open(&config, 1, 7);

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	world_enter(world, 1, 0, 2);
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_LENGTH, &ticket),
			 KVPULL_FINISH_HELD);
	assert_int_equal(world_counts(world).holds_taken, 1);
	world_close(world);
}

UNIT_TEST(payload_that_is_too_long_goes_nowhere)
{
	static const uint8_t payload[KVPULL_PAYLOAD_BYTES_MAX + 64];
	static char text[KVPULL_TICKET_BYTES_MAX];
	static const struct kvpull_blocks blocks = { .block_count = 4,
						     .block_ids =
							     world_blocks };
	const struct kvpull_config config = world_config();
	struct world *world = world_open(&config, 1, 7);
	/* The member that lies behind the ticket's payload. */
	char *behind = world->scheduler->ticket->unknown;
	struct kvpull_finish finish = { .groups = &blocks,
					.payload = payload,
					.payload_bytes = sizeof(payload) };

	world_enter(world, 1, 0, 1);
	*behind = 1;
	assert_int_equal(finish_with(world, &finish), KVPULL_FINISH_FREE);
	assert_int_equal(*behind, 1);
	/* The longest one travels. */
	finish.payload_bytes = KVPULL_PAYLOAD_BYTES_MAX;
	finish.ticket = text;
	finish.ticket_capacity = sizeof(text);
	world_enter(world, 1, 0, 1);
	assert_int_equal(finish_with(world, &finish), KVPULL_FINISH_HELD);
	world_close(world);
}
