/* SPDX-License-Identifier: Apache-2.0 */
/* What a finish says is there, and what of it makes a ticket. */
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

/* Its blocks are still being written: no ticket may name them. */
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
	assert_int_equal(world_stats(world).holds_taken, 0);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_HOLD), 0);
	world_close(world);
}
