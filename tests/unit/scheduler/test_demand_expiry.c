/* SPDX-License-Identifier: Apache-2.0 */
/* A consumer's ticket that expired, where each user pulls for itself. */
#include "tests/unit/scheduler/world.h"

UNIT_TEST(nobody_retries_after_expiry_where_each_pulls)
{
	struct kvpull_config config = world_config();
	struct world *world;
	const struct world_ticket ticket = world_make_ticket(7);
	uint64_t key;

	config.share_prefix = 0;
	world = world_open(&config, 1, 9);
	for (key = 1; key <= 3; key++)
		assert_int_equal(world_want(world, key, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
	/* Chosen before, and not yet given its blocks. */
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_LOAD);
	world_settle(world);
	world_pull_ended(world, 0, 1, KVPULL_EEXPIRED);
	world_settle(world);
	assert_int_equal(world_allocate(world, 2, 0, 4), KVPULL_EEXPIRED);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_NOTHING);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_PULL), 2);
	assert_int_equal(world_last(world, KVPULL_COMMAND_PULL)->command.reason,
			 KVPULL_EEXPIRED);
	world_pull_ended(world, 0, 2, KVPULL_EEXPIRED);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	world_close(world);
}
