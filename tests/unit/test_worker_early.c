/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a scheduler half says before the worker's memory is registered, and
 * pulls that wait for start_loads().
 */
#include "tests/unit/worker_peer.h"

#define KEY 5u
#define SERIAL 700u

static void pull_waits_for_the_registration(void **state)
{
	struct world *world = *state;

	world_claim(world, SERIAL, 1);
	world_pull(world, KEY, SERIAL, KVPULL_FLAG_RELEASE);
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
	world_pull(world, KEY, SERIAL, KVPULL_FLAG_RELEASE);
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
	world_pull(world, KEY, SERIAL, KVPULL_FLAG_RELEASE);
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

static uint32_t reads_end(struct world *world)
{
	uint32_t count = 0;
	uint32_t index;

	for (index = 0; index < KVPULL_RANKS_MAX; index++) {
		if (!world->reads[index].read)
			continue;
		world_done(world, index,
			   world->reads[index].cancelled ? KVPULL_EABORTED : 0);
		count++;
	}
	return count;
}

/* Two tickets of two producers; a pull of the first one waits. */
static void pull_that_waits(struct world *world)
{
	world_register(world);
	world_claim(world, 101, 1);
	world_claim(world, 201, 1);
	world_poll(world, 1);
	(void)world_up(world, "1-0", 0, 1);
	(void)world_up(world, "2-0", 0, 1);
	world_pull_command(world, KEY, 101, 0);
	world_poll(world, 2);
	assert_int_equal(world->read_starts, 0);
}

static void waits_until_start_loads(struct world *world, uint32_t reads)
{
	world_poll(world, 2);
	assert_int_equal(world->read_starts, reads);
	assert_int_equal(kvpull_worker_start_loads(world->worker), 0);
	world_poll(world, 2);
	assert_int_equal(world->read_starts, reads + 1);
}

/* Its blocks may still be written by what the engine has in flight. */
static void release_of_another_ticket_starts_no_load(void **state)
{
	struct world *world = *state;

	pull_that_waits(world);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 201);
	waits_until_start_loads(world, 0);
}

static void abort_of_another_request_starts_no_load(void **state)
{
	struct world *world = *state;

	pull_that_waits(world);
	world_pull_command(world, KEY + 1, 201, 0);
	world_pull_command(world, KEY + 2, 101, 0);
	/* One way out: what is aborted begins, to end. */
	world_command(world, KVPULL_COMMAND_ABORT, KEY + 1, 0);
	world_poll(world, 2);
	assert_int_equal(world->read_starts, 1);
	assert_true(reads_end(world) == 1);
	world_reported(world, KEY + 1, KVPULL_POLL_FAILED, KVPULL_EABORTED);
	world_pull_command(world, KEY + 3, 101, 0);
	assert_int_equal(kvpull_worker_start_loads(world->worker), 0);
	world_poll(world, 2);
	assert_int_equal(reads_end(world), 3);
	world_reported(world, KEY, KVPULL_POLL_LOADED, 0);
	world_reported(world, KEY + 2, KVPULL_POLL_LOADED, 0);
	world_reported(world, KEY + 3, KVPULL_POLL_LOADED, 0);
}

/* What it pulled comes before its end. */
static void release_starts_the_pulls_of_its_ticket(void **state)
{
	struct world *world = *state;

	pull_that_waits(world);
	world_pull_command(world, KEY + 1, 201, 0);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 201);
	waits_until_start_loads(world, 1);
}

/* The scheduler half knows of their ends before the next poll. */
static void places_of_failed_pulls_are_taken_at_once(void **state)
{
	struct world *world = *state;
	uint32_t key;

	pull_that_waits(world);
	for (key = KEY + 1; key < KEY + 4; key++)
		world_pull_command(world, key, 101, 0);
	for (key = KEY; key < KEY + 4; key++)
		world_command(world, KVPULL_COMMAND_ABORT, key, 0);
	world_poll(world, 1);
	(void)reads_end(world);
	for (key = KEY; key < KEY + 4; key++)
		world_reported(world, key, KVPULL_POLL_FAILED, KVPULL_EABORTED);
	/* The last one's place is kept for its list of blocks. */
	for (key = KEY + 4; key < KEY + 8; key++)
		world_pull(world, key, 201, 0);
	world_poll(world, 2);
	assert_int_equal(reads_end(world), 4);
	for (key = KEY + 4; key < KEY + 8; key++)
		world_reported(world, key, KVPULL_POLL_LOADED, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pull_waits_for_the_registration),
		TEST(abort_before_the_registration_is_reported_after_it),
		TEST(worker_without_memory_closes_with_a_pull_waiting),
		TEST(release_of_another_ticket_starts_no_load),
		TEST(abort_of_another_request_starts_no_load),
		TEST(release_starts_the_pulls_of_its_ticket),
		TEST(places_of_failed_pulls_are_taken_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
