/* SPDX-License-Identifier: Apache-2.0 */
/* What a scheduler half says before the worker's memory is registered. */
#include "tests/unit/worker_peer.h"

#define KEY 5u
#define SERIAL 700u

static void pull_waits_for_the_registration(void **state)
{
	struct world *world = *state;

	world_claim(world, SERIAL, 1);
	world_pull(world, KEY, SERIAL, KVPULL_PULL_RELEASE);
	/* Which routes there will be nobody knows yet. */
	world_poll(world, 3);
	world_silent(world, KEY);
	world_register(world);
	world_poll(world, 2);
	(void)world_up(world, "7-0", 0, 1);
	assert_int_equal(world_notes(world, KVPULL_NOTE_CLAIM), 1);
	world_done(world, 0, 0);
	world_reported(world, KEY, KVPULL_POLL_LOADED, 0);
	world_poll(world, 2);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 1);
}

static void abort_before_the_registration_is_reported_after_it(void **state)
{
	struct world *world = *state;

	world_claim(world, SERIAL, 1);
	world_pull(world, KEY, SERIAL, KVPULL_PULL_RELEASE);
	world_command(world, KVPULL_COMMAND_ABORT, KEY, 0);
	world_poll(world, 3);
	world_register(world);
	world_poll(world, 3);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EABORTED);
}

static void worker_without_memory_closes_with_a_pull_waiting(void **state)
{
	struct world *world = *state;

	world_claim(world, SERIAL, 1);
	world_pull(world, KEY, SERIAL, KVPULL_PULL_RELEASE);
	world_poll(world, 1);
	world_silent(world, KEY);
}

static int up(void **state)
{
	struct world *world = calloc(1, sizeof(*world));

	assert_non_null(world);
	world_create(world, ",\"pulls_max\":4,\"tickets_max\":4");
	*state = world;
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pull_waits_for_the_registration),
		TEST(abort_before_the_registration_is_reported_after_it),
		TEST(worker_without_memory_closes_with_a_pull_waiting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
