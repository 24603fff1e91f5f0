/* SPDX-License-Identifier: Apache-2.0 */
/* A pull that finds no claim, and pulls that share a table of parts. */
#include "plugin/progress/progress_state.h"
#include "tests/unit/worker/peer.h"

#define KEY 1u
#define SERIAL 101u

WORLD_TEST(pull_that_the_scheduler_refused_is_reported_failed)
{
	const uint32_t none = 0;
	struct kvpull_command command = world_pull_of(KEY, 0, &none, &none, 0);

	command.reason = KVPULL_ETRUNCATED;
	world_send(world, &command, 1);
	world_poll(world, 2);
	failed(world, KEY, KVPULL_ETRUNCATED);
}

WORLD_TEST(pull_without_a_claim_expires)
{
	pull(world, KEY, SERIAL, 0);
	failed(world, KEY, KVPULL_EEXPIRED);
}

/* Parts of all pulls come from one pool: who cannot have all takes none. */
WORLD_TEST(pulls_that_want_the_same_parts_do_not_block_each_other)
{
	struct kvpull_progress *progress = world->worker->progress;

	world_claim(world, SERIAL, 2);
	world_pull(world, 1, SERIAL, 0);
	pull(world, 2, SERIAL, 0);
	/* Two parts in all. */
	progress->reads.part_pool.count_max = 2;
	(void)world_up(world, "1-0", 0, 2);
	(void)world_up(world, "1-1", 1, 2);
	world->check_code = 1;
	both_done(world);
	world_pass(world, WORLD_MS);
	both_done(world);
	loaded(world, 1);
	loaded(world, 2);
}

WORLD_TEST_WITH(one_pull_of_many_ranks_has_parts_enough,
		",\"pulls_max\":1,\"tickets_max\":4")
{
	assert_true(world->worker->progress->reads.part_pool.count_max >=
		    KVPULL_RANKS_MAX);
}

/* A command keeps its place in the ring until the other thread has it. */
WORLD_TEST_WITH(every_claim_may_come_and_go_before_progress_looks,
		",\"pulls_max\":4,\"tickets_max\":80")
{
	uint64_t serial;

	for (serial = 101; serial < 101 + 160; serial++)
		world_claim(world, serial, 1);
	assert_int_equal(world->worker->claims.map.count, 160);
	for (serial = 101; serial < 101 + 160; serial++)
		world_command(world, KVPULL_COMMAND_RELEASE, 0, serial);
	world_poll(world, 1);
	assert_int_equal(
		kvpull_ring_ready(&world->worker->progress->end.reader), 0);
}

/* With a secret that others know, anybody could make the tags of tickets. */
UNIT_TEST(each_worker_draws_a_secret_of_its_own)
{
	static const uint8_t none[KVPULL_SECRET_BYTES];
	struct world *worlds[2];
	uint32_t at;

	for (at = 0; at < 2; at++) {
		worlds[at] = world_new("");
		assert_memory_not_equal(worlds[at]->worker->secret, none,
					sizeof(none));
	}
	assert_memory_not_equal(worlds[0]->worker->secret,
				worlds[1]->worker->secret, sizeof(none));
	for (at = 0; at < 2; at++)
		world_end(worlds[at]);
}
