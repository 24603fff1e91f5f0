/* SPDX-License-Identifier: Apache-2.0 */
/* Turns by priority, of which the last of a round is the oldest's. */
#include <string.h>

#include "base/turns.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"

#define INDICES 64u

struct world {
	struct kvpull_arena arena;
	struct kvpull_turns turns;
};

static int setup(void **state)
{
	static const struct kvpull_log silent;
	static struct world world;

	kvpull_arena_init(&world.arena, &silent);
	kvpull_turns_init(&world.turns, INDICES, &world.arena);
	*state = &world;
	return !kvpull_arena_ok(&world.arena);
}

static int teardown(void **state)
{
	struct world *world = *state;

	kvpull_arena_fini(&world->arena);
	return 0;
}

#define TEST(name) UNIT_TEST_OF(name, struct world, world, setup, teardown)

/* The next one has its turn, and leaves. */
static uint32_t turn(struct kvpull_turns *turns)
{
	const uint32_t index = kvpull_turns_next(turns);

	if (index == KVPULL_NONE)
		return index;
	kvpull_turns_remove(turns, index);
	kvpull_turns_give(turns);
	return index;
}

TEST(smaller_number_goes_first_and_equal_ones_as_they_came)
{
	static const int32_t priorities[] = { 3, INT32_MAX, 0, -2,
					      3, INT32_MIN, 0 };
	static const uint32_t order[] = { 5, 3, 2, 6, 0, 4, 1 };
	uint32_t at;

	assert_int_equal(kvpull_turns_next(&world->turns), KVPULL_NONE);
	for (at = 0; at < 7; at++)
		kvpull_turns_push(&world->turns, at, priorities[at]);
	for (at = 0; at < 7; at++)
		assert_int_equal(turn(&world->turns), order[at]);
	assert_int_equal(kvpull_turns_next(&world->turns), KVPULL_NONE);
	assert_int_equal(world->turns.arrival.count, 0);
	assert_int_equal(world->turns.urgent.count, 0);
	/* Where all that wait are alike again nothing is ranked. */
	kvpull_turns_push(&world->turns, 1, 4);
	kvpull_turns_push(&world->turns, 0, 4);
	assert_int_equal(world->turns.urgent.count, 0);
}

TEST(last_turn_of_a_round_is_the_oldests)
{
	uint32_t at;

	for (at = 0; at < 10; at++)
		kvpull_turns_push(&world->turns, at, -(int32_t)at);
	for (at = 0; at < KVPULL_TURNS_A_ROUND - 1; at++)
		assert_int_equal(turn(&world->turns), 9 - at);
	assert_int_equal(turn(&world->turns), 0);
	assert_int_equal(turn(&world->turns), 2);
}

/* Others come for ever, each more urgent than the few that wait. */
TEST(index_with_older_ones_before_it_is_served_within_so_many_rounds)
{
	uint32_t served[4] = { 0 };
	uint32_t turns = 0;
	uint32_t at;

	for (at = 0; at < 4; at++)
		kvpull_turns_push(&world->turns, at, 7 - (int32_t)at);
	for (at = 10; turns < 4 * KVPULL_TURNS_A_ROUND; turns++) {
		uint32_t index;

		kvpull_turns_push(&world->turns, at, -1);
		at = at == INDICES - 1 ? 10 : at + 1;
		index = turn(&world->turns);
		if (index < 4)
			served[index] = turns + 1;
	}
	for (at = 0; at < 4; at++)
		assert_int_equal(served[at], (at + 1) * KVPULL_TURNS_A_ROUND);
}

TEST(member_is_pushed_once_and_may_leave_at_any_time)
{
	struct kvpull_turns *turns = &world->turns;

	kvpull_turns_push(turns, 1, 5);
	kvpull_turns_push(turns, 1, -5);
	kvpull_turns_push(turns, 2, 0);
	assert_int_equal(turns->arrival.count, 2);
	assert_int_equal(kvpull_turns_next(turns), 2);
	kvpull_turns_remove(turns, 2);
	kvpull_turns_remove(turns, 2);
	assert_int_equal(kvpull_turns_next(turns), 1);
	kvpull_turns_push(turns, 2, 6);
	assert_int_equal(turn(turns), 1);
	assert_int_equal(turn(turns), 2);
	assert_int_equal(turn(turns), KVPULL_NONE);
}

/* The oldest index, or the oldest one of the least priority. */
static uint32_t expected(const uint32_t *waiting, const int32_t *priorities,
			 uint32_t count, uint32_t given)
{
	uint32_t best = 0;
	uint32_t at;

	if (given % KVPULL_TURNS_A_ROUND == KVPULL_TURNS_A_ROUND - 1)
		return waiting[0];
	for (at = 1; at < count; at++)
		if (priorities[waiting[at]] < priorities[waiting[best]])
			best = at;
	return waiting[best];
}

TEST(turns_equal_a_list_that_is_searched)
{
	uint32_t waiting[INDICES] = { 0 };
	int32_t priorities[INDICES];
	uint8_t is_waiting[INDICES] = { 0 };
	uint64_t random = 7;
	uint32_t count = 0;
	uint32_t round;

	for (round = 0; round < 20000; round++) {
		uint32_t index = (uint32_t)(random_next(&random) % INDICES);
		uint32_t at;

		if (!is_waiting[index]) {
			priorities[index] =
				(int32_t)(random_next(&random) % 5) - 2;
			kvpull_turns_push(&world->turns, index,
					  priorities[index]);
			waiting[count++] = index;
			is_waiting[index] = 1;
			continue;
		}
		if (random_next(&random) % 2) {
			index = expected(waiting, priorities, count,
					 world->turns.given);
			assert_int_equal(turn(&world->turns), index);
		} else {
			kvpull_turns_remove(&world->turns, index);
		}
		is_waiting[index] = 0;
		for (at = 0; waiting[at] != index; at++)
			;
		memmove(&waiting[at], &waiting[at + 1],
			(--count - at) * sizeof(*waiting));
		assert_int_equal(world->turns.arrival.count, count);
	}
}
