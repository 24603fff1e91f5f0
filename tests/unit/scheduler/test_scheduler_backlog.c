/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results that pile up while no request asks for a step. A worker says only so
 * many at once, the oldest first, until a step acknowledges them.
 */
#include "tests/unit/scheduler/world.h"

#define HOLDS 2600u
#define A_BUILD 1024u /* as a worker's */

/* Takes the result of a worker that still reports the ends of all holds. */
static void say(struct world *world, uint64_t first)
{
	const uint64_t left = HOLDS + 1 - first;
	const struct kvpull_result_header header = {
		.incarnation = world->ranks[0].incarnation,
		.first_sequence = first,
		.record_count = (uint32_t)(left < A_BUILD ? left : A_BUILD),
		.step_incarnation = world->ranks[0].step_incarnation,
		.step_sequence = world->ranks[0].applied,
	};
	struct kvpull_wire_writer writer = { world->bytes, WORLD_BYTES, 0 };
	uint32_t i;

	kvpull_step_put_result_header(&writer, &header);
	for (i = 0; i < header.record_count; i++) {
		const struct kvpull_command *taken =
			&world->seen[first - 1 + i].command;
		const struct kvpull_result result = {
			.kind = KVPULL_RESULT_HOLD_ENDED,
			.slot = taken->slot,
			.key = taken->key,
			.generation = taken->generation,
		};

		kvpull_step_put_result(&writer, &result);
	}
	assert_int_equal(world_hear(world, world->bytes, writer.used), 0);
}

/* An idle engine steps only when it is asked to. */
PRODUCER_TEST_WITH(results_of_an_idle_engine_are_all_taken, 1,
		   max_holds = config.requests_max = HOLDS)
{
	uint32_t polls;
	uint64_t key;

	for (key = 1; key <= HOLDS; key++)
		hold_told(world, key);
	assert_int_equal(world->seen_count, HOLDS);
	for (polls = 0; polls < 10; polls++) {
		say(world, world->ranks[0].result_first);
		if (world_has_step(world))
			world_step(world);
	}
	assert_int_equal(world_counts(world).holds_live, 0);
	assert_false(world_has_step(world));
}

/* Its slot is another request's by the time at which the end would be told. */
PRODUCER_TEST_WITH(end_of_one_hold_is_not_told_of_the_next, 2, max_holds = 1)
{
	uint32_t at;

	hold_told(world, 1);
	world_hold_ended(world, 0, 1, KVPULL_END_EXPIRED);
	world_take(world, 0);
	world_hold_ended(world, 1, 1, KVPULL_END_EXPIRED);
	world_take(world, 1);
	assert_int_equal(world_counts(world).holds_live, 0);
	hold_told(world, 2);
	for (at = 0; at < world->seen_count; at++)
		assert_false(world->seen[at].command.kind ==
				     KVPULL_COMMAND_END &&
			     world->seen[at].command.key == 2);
}

/* A few results do not wake anybody: the next step takes their word along. */
PRODUCER_TEST(few_results_ask_for_no_step, 1)
{
	hold_told(world, 1);
	world_hold_ended(world, 0, 1, KVPULL_END_RELEASED);
	world_take(world, 0);
	assert_false(world_has_step(world));
}
