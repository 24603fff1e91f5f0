/* SPDX-License-Identifier: Apache-2.0 */
/* A finish that leaves out what it says is there is held by nobody. */
#include "tests/unit/scheduler_world.h"

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

static void finish_without_its_parts_is_free(void **state)
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

	(void)state;
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

static void finish_without_a_buffer_is_told_the_size(void **state)
{
	const struct kvpull_blocks blocks = { .block_count = 4,
					      .block_ids = world_blocks };
	const struct kvpull_config config = world_config();
	struct world *world = world_open(&config, 1, 5);
	struct kvpull_finish finish = { .groups = &blocks,
					.ticket_capacity = 4096 };

	(void)state;
	world_enter(world, 1, 0, 1);
	assert_int_equal(finish_with(world, &finish), KVPULL_ETOOSMALL);
	assert_in_range(finish.ticket_bytes, 1, sizeof(ticket.text));
	finish.ticket = ticket.text;
	finish.ticket_capacity = sizeof(ticket.text);
	assert_int_equal(finish_with(world, &finish), KVPULL_FINISH_HELD);
	world_close(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finish_without_its_parts_is_free),
		cmocka_unit_test(finish_without_a_buffer_is_told_the_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
