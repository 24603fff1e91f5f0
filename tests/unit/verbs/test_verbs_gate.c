/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callers that were not let in, by the thousand: they have few places, and an
 * honest consumer, from their own address or another, is in at once.
 */
#include "tests/unit/verbs/world.h"

#include "verbs/endpoint.h"
#include "verbs/gate.h"

#define STRANGER "10.66.0.77"
#define STRANGERS 1000u

static int gate_up(void **state)
{
	(void)state;
	world_init();
	world.callers_max = 64;
	return world_open();
}

static void stranger_calls(const char *address)
{
	const struct kvpull_verbs_greeting call = { .kind = KVPULL_VERBS_CALL };

	world_stranger_calls(address, call);
}

/* So many a millisecond. */
static void strangers_call(const char *address, uint32_t count, uint32_t a_step)
{
	uint32_t i;

	for (i = 0; i < count; i++) {
		stranger_calls(address);
		if (i % a_step == a_step - 1)
			world_run(1);
	}
	world_run(2);
}

/* Within a second, calling again as often as it is told that there is no room. */
static void consumer_is_in(void)
{
	uint32_t tries;

	for (tries = 0; tries < 10 && !world.d.ups; tries++) {
		world_connect_run(100);
	}
	assert_int_equal(world.d.ups, 1);
	world_reads(5);
}

#define TEST(name) UNIT_TEST_WITH(name, gate_up, world_down)

TEST(silent_callers_keep_nobody_out)
{
	strangers_call(STRANGER, STRANGERS, 8);
	assert_int_equal(fake_verbs_strangers(),
			 KVPULL_VERBS_WAITING_ADDRESS_MAX);
	consumer_is_in();
}

TEST(silent_callers_of_many_addresses_keep_nobody_out)
{
	char address[32];
	uint32_t i;

	for (i = 0; i < STRANGERS; i++) {
		(void)snprintf(address, sizeof(address), "10.66.0.%u",
			       i % 200 + 20);
		stranger_calls(address);
		if (i % 8 == 7)
			world_run(1);
	}
	world_run(60);
	assert_int_equal(fake_verbs_strangers(), KVPULL_VERBS_WAITING_MAX);
	consumer_is_in();
}

/* The fake has D at 10.66.0.1, too. */
TEST(silent_callers_of_ones_own_address_keep_nobody_out)
{
	strangers_call(FAKE_VERBS_ADDRESS, STRANGERS, 8);
	consumer_is_in();
}

TEST(caller_has_50_ms_for_its_hello)
{
	strangers_call(STRANGER, KVPULL_VERBS_WAITING_ADDRESS_MAX, 16);
	world_run(30);
	strangers_call(STRANGER, 4, 16);
	assert_int_equal(side_counts(&world.p)->calls_refused, 4);
	assert_int_equal(world.p.downs, 0);
	/* Then the oldest goes for one that comes, and only then. */
	world_run(30);
	assert_int_equal(world.p.downs, 0);
	strangers_call(STRANGER, 1, 16);
	assert_int_equal(world.p.downs, 1);
	assert_int_equal(fake_verbs_strangers(),
			 KVPULL_VERBS_WAITING_ADDRESS_MAX);
}

/* The oldest waiting caller goes, though others had no time yet. */
TEST(oldest_caller_goes)
{
	const uint32_t half = KVPULL_VERBS_WAITING_ADDRESS_MAX / 2;

	strangers_call(STRANGER, half, 16);
	world_run(40);
	strangers_call(STRANGER, half, 16);
	world_run(20);
	strangers_call(STRANGER, 1, 16);
	assert_int_equal(side_counts(&world.p)->calls_refused, 0);
	assert_int_equal(world.p.downs, 1);
	assert_int_equal(fake_verbs_strangers(), 2 * half);
}

/* Callers say who they are, so that the owner may make room; none is let in. */
UNIT_TEST_DOWN(callers_beyond_the_bound_wait_and_are_not_admitted)
{
	world_init();
	world.callers_max = 1;
	(void)world_open();
	consumer_is_in();
	strangers_call(STRANGER, 8, 1);
	assert_int_equal(fake_verbs_strangers(), 8);
	world_comes_up(10);
	assert_int_equal(world.d.downs, 0);
}

TEST(admitted_caller_is_never_given_up)
{
	consumer_is_in();
	strangers_call(FAKE_VERBS_ADDRESS, STRANGERS, 8);
	strangers_call(STRANGER, STRANGERS, 8);
	assert_int_equal(world.d.downs, 0);
	assert_int_equal(world_note_send(1), 0);
	world_run(5);
	assert_int_equal(world.note_count, 1);
}

UNIT_TEST_DOWN(stranger_has_no_consumers_place)
{
	world_init();
	world.callers_max = 1;
	(void)world_open();
	strangers_call(STRANGER, KVPULL_VERBS_WAITING_ADDRESS_MAX, 16);
	world_comes_up(10);
}

TEST(no_place_is_left_behind)
{
	uint32_t made;

	made = fake_verbs_live();
	strangers_call(STRANGER, STRANGERS, 8);
	world_run(6000);
	assert_int_equal(fake_verbs_strangers(), 0);
	assert_int_equal(fake_verbs_live(), made);
	assert_int_equal(world.p.ups, world.p.downs);
	consumer_is_in();
}

/* The callers have an allowed address, and know only how a call begins. */
TEST(callers_that_say_garbage_are_no_flood_of_log)
{
	uint32_t i;

	lines_forget();
	side_count_lines(&world.p);
	for (i = 0; i < STRANGERS; i++) {
		stranger_calls(STRANGER);
		world_run(1);
		(void)fake_verbs_inject(0, "garbage", 8);
	}
	assert_in_range(lines.bad_count, 1, 10);
}

/* As a worker does while P is full: each 160 ms. */
TEST(peer_that_has_no_room_is_said_once_a_second_at_most)
{
	uint32_t tries;
	uint32_t i;

	lines_forget();
	for (tries = 0; tries < 60; tries++) {
		for (i = 0; i < KVPULL_VERBS_WAITING_ADDRESS_MAX; i++)
			stranger_calls(FAKE_VERBS_ADDRESS);
		side_count_lines(&world.d);
		if (!world_connect())
			world_run(160);
	}
	assert_in_range(lines.bad_count, 1, 11);
}
