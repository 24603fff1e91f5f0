/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that a scheduler half sends before the worker's memory is
 * registered, and pulls that wait for start_loads().
 */
#include "tests/unit/worker/peer.h"

#include <fcntl.h>
#include <unistd.h>

#define KEY 5u
#define SERIAL 700u

/* Before the registration. */
#define EARLY_TEST(name)                                                       \
	UNIT_TEST_OF(name, struct world, world, world_setup_bare,              \
		     world_teardown)

EARLY_TEST(pull_waits_for_the_registration)
{
	world_claim(world, SERIAL, 1);
	world_pull(world, KEY, SERIAL, KVPULL_FLAG_RELEASE);
	/* Routes are not known yet. */
	world_poll(world, 3);
	world_silent(world, KEY);
	world_register(world);
	world_poll(world, 2);
	(void)world_up(world, "7-0", 0, 1);
	assert_int_equal(world_notes(world, KVPULL_NOTE_CLAIM), 1);
	world_done(world, 0, 0);
	loaded(world, KEY);
	world_poll(world, 2);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 1);
}

EARLY_TEST(abort_before_the_registration_is_reported_after_it)
{
	world_claim(world, SERIAL, 1);
	world_pull(world, KEY, SERIAL, KVPULL_FLAG_RELEASE);
	world_command(world, KVPULL_COMMAND_ABORT, KEY, 0);
	world_poll(world, 3);
	world_register(world);
	world_poll(world, 3);
	failed(world, KEY, KVPULL_EABORTED);
}

EARLY_TEST(worker_without_memory_closes_with_a_pull_waiting)
{
	claim_pull(world, KEY, SERIAL, 1, KVPULL_FLAG_RELEASE);
	world_silent(world, KEY);
}

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
	claim(world, 201, 1);
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

/* The engine's work in flight may still write these blocks. */
EARLY_TEST(release_of_another_ticket_starts_no_load)
{
	pull_that_waits(world);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 201);
	waits_until_start_loads(world, 0);
}

EARLY_TEST(abort_of_another_request_starts_no_load)
{
	pull_that_waits(world);
	world_pull_command(world, KEY + 1, 201, 0);
	world_pull_command(world, KEY + 2, 101, 0);
	/* There is one way out: an aborted pull begins in order to end. */
	world_command(world, KVPULL_COMMAND_ABORT, KEY + 1, 0);
	world_poll(world, 2);
	assert_int_equal(world->read_starts, 1);
	assert_true(reads_end(world) == 1);
	failed(world, KEY + 1, KVPULL_EABORTED);
	world_pull_command(world, KEY + 3, 101, 0);
	assert_int_equal(kvpull_worker_start_loads(world->worker), 0);
	world_poll(world, 2);
	assert_int_equal(reads_end(world), 3);
	loaded(world, KEY);
	loaded(world, KEY + 2);
	loaded(world, KEY + 3);
}

/* The pull's end comes before the release. */
EARLY_TEST(release_starts_the_pulls_of_its_ticket)
{
	pull_that_waits(world);
	world_pull_command(world, KEY + 1, 201, 0);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 201);
	waits_until_start_loads(world, 1);
}

/* The scheduler half knows of their ends before the next poll. */
EARLY_TEST(places_of_failed_pulls_are_taken_at_once)
{
	uint32_t key;

	pull_that_waits(world);
	for (key = KEY + 1; key < KEY + 4; key++)
		world_pull_command(world, key, 101, 0);
	for (key = KEY; key < KEY + 4; key++)
		world_command(world, KVPULL_COMMAND_ABORT, key, 0);
	world_poll(world, 1);
	(void)reads_end(world);
	for (key = KEY; key < KEY + 4; key++)
		failed(world, key, KVPULL_EABORTED);
	/* The last one's place is kept for its list of blocks. */
	for (key = KEY + 4; key < KEY + 8; key++)
		world_pull(world, key, 201, 0);
	world_poll(world, 2);
	assert_int_equal(reads_end(world), 4);
	for (key = KEY + 4; key < KEY + 8; key++)
		loaded(world, key);
}

/* Consumers have it mapped, and know of no other. */
WORLD_TEST(memory_that_is_served_stays_what_it_is)
{
	const struct kvpull_cache cache = world_cache(0, 1);
	const struct kvpull_region region = {
		.struct_size = sizeof(region),
		.fd = -1,
		.base = world->memory,
		.bytes = (uint64_t)WORLD_BLOCKS * WORLD_BLOCK_BYTES,
	};
	const struct kvpull_regions again = {
		.struct_size = sizeof(again),
		.regions = &region,
		.caches = &cache,
		.region_count = 1,
		.cache_count = 1,
	};
	struct kvpull_memory more = { .struct_size = sizeof(more) };

	assert_int_equal(
		kvpull_worker_memory_free(world->worker, world->memory),
		KVPULL_EINVAL);
	assert_int_equal(
		kvpull_worker_regions_register(world->worker, &again, NULL),
		KVPULL_EINVAL);
	assert_int_equal(
		kvpull_worker_memory_alloc(world->worker, 4096, 0, &more),
		KVPULL_EINVAL);
	world->memory[0] = 1;
}

/* The descriptor that wakes the engine is the first that open() takes. */
UNIT_TEST(engine_that_closed_its_standard_input_opens)
{
	const int input = fcntl(0, F_DUPFD_CLOEXEC, 3);
	void *opened = NULL;
	const struct world *world;

	(void)close(0);
	assert_int_equal(world_setup(&opened), 0);
	world = opened;
	assert_int_equal(world->worker->handover.engine_wake_fd, 0);
	assert_int_equal(world_teardown(&opened), 0);
	if (input >= 0)
		assert_int_equal(dup2(input, 0), 0);
}
