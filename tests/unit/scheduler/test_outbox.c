/* SPDX-License-Identifier: Apache-2.0 */
/* The log of commands and the two sequences: lost, replayed, out of room. */
#include "tests/unit/scheduler/world.h"

PRODUCER_TEST(nothing_to_say_is_no_bytes, 1)
{
	world_settle(world);
	assert_int_equal(world_build(world), 0);
	assert_false(world_has_step(world));
	hold(world, 1);
	assert_true(world_has_step(world));
	world_step(world);
	assert_false(world_has_step(world));
	assert_int_equal(world_build(world), 0);
}

/* Tickets of a half before must be dead when its engine writes the first block. */
WORLD_TEST(first_step_is_said_before_a_rank_is_known, world_of_silent(2))
{
	assert_true(world_build(world) > 0);
	assert_int_equal(world_build(world), 0);
}

PRODUCER_TEST(acks_travel_without_commands_and_are_not_pending, 1)
{
	hold_settled(world, 1);
	assert_int_equal(world_build(world), 0);
	world_end_hold(world, 1, KVPULL_END_RELEASED);
	assert_false(world_has_step(world));
	assert_int_equal(world->ranks[0].result_first, 1);
	world_step(world);
	assert_int_equal(world->ranks[0].result_first, 2);
}

PRODUCER_TEST(lost_step_is_sent_again_after_the_gap, 2)
{
	uint64_t key;

	hold_settled(world, 1);
	hold(world, 2);
	assert_true(world_build(world) > 0); /* and nobody gets it */
	hold_told(world, 3);
	assert_int_equal(world_count(world, KVPULL_COMMAND_HOLD), 1);
	assert_int_equal(world->ranks[0].gap, 1);
	world_take_all(world);
	assert_true(world_has_step(world));
	expect_settled(world, KVPULL_COMMAND_HOLD, 3);
	for (key = 1; key <= 3; key++)
		assert_int_equal(world->seen[key - 1].command.key, key);
	assert_int_equal(world->ranks[1].applied, 3);
	assert_true(world_counts(world).resends >= 1);
}

PRODUCER_TEST(lost_first_step_is_sent_again, 2)
{
	hold(world, 1);
	assert_true(world_build(world) > 0);
	/* Two that follow are known to be out of order, whatever they say. */
	hold_told(world, 2);
	hold_told(world, 3);
	assert_int_equal(world->seen_count, 0);
	expect_settled(world, KVPULL_COMMAND_HOLD, 3);
	assert_int_equal(world->seen[0].command.key, 1);
}

PRODUCER_TEST(step_lost_by_one_rank_is_applied_once_by_the_other, 2)
{
	size_t bytes;

	hold_settled(world, 1);
	hold(world, 2);
	bytes = world_build(world);
	world_deliver_to(world, 0, world->bytes, bytes);
	hold(world, 3);
	expect_settled(world, KVPULL_COMMAND_HOLD, 3);
	assert_int_equal(world->ranks[1].applied, 3);
}

PRODUCER_TEST(last_lost_step_is_sent_again_after_silence, 1)
{
	hold_settled(world, 1);
	hold(world, 2);
	assert_true(world_build(world) > 0);
	world_take_all(world);
	assert_false(world_has_step(world));
	world->now_ns += WORLD_LEASE_NS / 3;
	assert_true(world_has_step(world));
	expect_settled(world, KVPULL_COMMAND_HOLD, 2);
	world->now_ns += WORLD_LEASE_NS;
	assert_false(world_has_step(world)); /* all is acknowledged */
}

PRODUCER_TEST(replayed_results_count_once, 2)
{
	struct world_said said;

	hold_told(world, 1);
	world_hold_ended(world, 0, 1, KVPULL_END_RELEASED);
	said = world_say(world, 0);
	world_hears(world, &said);
	world_hears(world, &said);
	assert_int_equal(world_counts(world).results_replayed, 1);
	assert_int_equal(world_counts(world).unknown_keys, 0);
	assert_int_equal(world_counts(world).holds_live, 1);
}

PRODUCER_TEST(lost_results_are_not_acknowledged, 1)
{
	struct world_rank *rank = &world->ranks[0];

	hold(world, 1);
	hold(world, 2);
	hold_settled(world, 3);
	hold_ended(world, 0, 1, KVPULL_END_RELEASED);
	assert_int_equal(rank->result_first, 2);
	world_hold_ended(world, 0, 2, KVPULL_END_RELEASED);
	world_hold_ended(world, 0, 3, KVPULL_END_RELEASED);
	rank->result_first = 3; /* the one in between got lost on the way */
	world_take(world, 0);
	assert_int_equal(world_counts(world).holds_live, 2);
	rank->result_first = 2;
	world_step(world);
	assert_int_equal(rank->result_first, 2);
	/* Lost whole, then said again. */
	assert_true(world_say(world, 0).byte_count > 0);
	world_settle(world);
	assert_int_equal(rank->result_first, 4);
	assert_int_equal(world_counts(world).holds_live, 0);
}

PRODUCER_TEST(old_gap_in_a_replay_resends_nothing, 1)
{
	struct world_said said;

	hold_settled(world, 1);
	hold(world, 2);
	assert_true(world_build(world) > 0);
	hold_told(world, 3);
	said = world_say(world, 0);
	world_settle(world);
	assert_int_equal(world->ranks[0].applied, 3);
	world_hears(world, &said);
	assert_false(world_has_step(world));
	/* Nor what is on its way meanwhile. */
	hold(world, 4);
	assert_true(world_build(world) > 0);
	world_hears(world, &said);
	assert_false(world_has_step(world));
	assert_int_equal(world_counts(world).resends, 1);
}

PRODUCER_TEST(log_is_trimmed_when_all_ranks_applied, 2)
{
	uint64_t key;

	world->blind = 1;
	/* Many times the log's size goes through. */
	for (key = 1; key <= 150000; key += 50) {
		uint64_t each;

		for (each = key; each < key + 50; each++)
			hold_told(world, each);
		for (each = 0; each < 50; each++) {
			struct kvpull_result result = {
				.kind = KVPULL_RESULT_HOLD_ENDED,
				.key = key + each,
				.slot = (uint32_t)each,
				.generation = key / 50 + 1,
			};

			if (key > 1)
				result.slot = 49 - (uint32_t)each;
			if (key / 50 % 2 == 0)
				result.slot = (uint32_t)each;
			world_add(world, 0, &result);
			world_add(world, 1, &result);
		}
		world_take_all(world);
		world_step(world);
	}
	assert_int_equal(world_counts(world).holds_live, 0);
	assert_int_equal(world_counts(world).no_slot, 0);
}

PRODUCER_TEST(restarted_worker_begins_after_what_its_predecessor_was_told, 2)
{
	uint32_t i;

	hold(world, 1);
	hold_told(world, 2); /* rank 1 has not acknowledged: all is kept */
	world_worker_start(world, 0, 999);
	world_add_rank(world, 0);
	world->seen_count = 0;
	world_settle(world);
	world_settle(world);
	hold_settled(world, 3);
	for (i = 0; i < world->seen_count; i++)
		if (world->seen[i].command.kind == KVPULL_COMMAND_HOLD)
			assert_int_equal(world->seen[i].command.key, 3);
	assert_int_equal(world_count(world, KVPULL_COMMAND_HOLD), 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), 2);
	assert_int_equal(world->ranks[0].applied, world->ranks[1].applied);
}

PRODUCER_TEST(restarted_worker_is_never_named_in_its_predecessors_steps, 2)
{
	struct kvpull_step_header header;
	struct kvpull_wire_reader reader = { .data = world->bytes };

	hold_told(world, 1);
	world_worker_replace(world, 0, 999);
	/*
	 * No rank acknowledged: after the silence all commands are sent again.
	 */
	world->now_ns += WORLD_LEASE_NS;
	reader.byte_count = world_build(world);
	assert_int_equal(step_get_header(&reader, &header), 0);
	assert_int_equal(header.first_sequence, 1);
	assert_int_equal(header.ack_incarnations[0], 700);
}

PRODUCER_TEST(new_scheduler_takes_results_where_the_worker_stands, 1)
{
	struct world_rank *rank = &world->ranks[0];

	/* Fifty were taken by an earlier scheduler half. */
	rank->result_first = 51;
	rank->result_next = 51;
	rank->step_incarnation = 6;
	rank->applied = 0;
	hold_told(world, 1);
	hold_ended(world, 0, 1, KVPULL_END_RELEASED);
	assert_int_equal(world_counts(world).holds_live, 0);
	assert_int_equal(rank->result_first, 52);
}

/* Deterministic, not good: which bytes get lost. */
static uint32_t chance(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)(*seed >> 33) % 100;
}

static void report_what_was_taken(struct world *world, uint32_t *reported)
{
	uint32_t rank;

	for (; *reported < world->seen_count; (*reported)++) {
		const struct kvpull_command *command =
			&world->seen[*reported].command;

		for (rank = 0; rank < world->rank_count; rank++)
			world_hold_ended(world, rank, command->key,
					 KVPULL_END_RELEASED);
	}
}

PRODUCER_TEST(random_losses_and_replays_lose_and_repeat_nothing, 3)
{
	struct world_said kept = { .byte_count = 0 };
	uint32_t reported = 0;
	uint64_t seed = 1;
	uint64_t key = 1;
	uint32_t round;
	uint32_t rank;

	for (round = 0; round < 4000; round++) {
		size_t bytes;

		world->now_ns += KVPULL_NS_PER_MS;
		if (chance(&seed) < 30 && world_counts(world).holds_live < 8)
			hold(world, key++);
		bytes = chance(&seed) < 70 ? world_build(world) : 0;
		for (rank = 0; bytes && rank < 3; rank++)
			if (chance(&seed) < 80)
				world_deliver_to(world, rank, world->bytes,
						 bytes);
		report_what_was_taken(world, &reported);
		for (rank = 0; rank < 3; rank++)
			if (chance(&seed) < 70)
				world_take(world, rank);
		if (kept.byte_count && chance(&seed) < 20)
			world_hears(world, &kept);
		if (chance(&seed) < 20)
			kept = world_say(world, chance(&seed) % 3);
	}
	for (round = 0; round < 4; round++) {
		world_settle(world);
		report_what_was_taken(world, &reported);
		world->now_ns += WORLD_LEASE_NS;
	}
	world_settle(world);
	assert_true(key > 300);
	assert_int_equal(world_count(world, KVPULL_COMMAND_HOLD), key - 1);
	for (round = 0; round < world->seen_count; round++)
		assert_int_equal(world->seen[round].command.key, round + 1);
	assert_int_equal(world_counts(world).holds_live, 0);
	assert_int_equal(world_counts(world).holds_ended, key - 1);
	assert_int_equal(world_counts(world).unknown_keys, 0);
	assert_int_equal(world->ranks[2].applied, key - 1);
}
