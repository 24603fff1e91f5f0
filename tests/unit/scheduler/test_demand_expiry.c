/* SPDX-License-Identifier: Apache-2.0 */
/* A consumer's ticket that expired, where each user pulls for itself. */
#include "tests/unit/scheduler/world.h"

CONSUMER_TEST_WITH(nobody_retries_after_expiry_where_each_pulls, 1,
		   share_prefix = 0)
{
	want(world, 3, ticket);
	load(world, 1);
	/* Chosen before, and not yet given its blocks. */
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_LOAD);
	world_settle(world);
	pull_ended(world, 0, 1, KVPULL_EEXPIRED);
	assert_int_equal(world_allocate(world, 2, 0, 4), KVPULL_EEXPIRED);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_NOTHING);
	expect_settled(world, KVPULL_COMMAND_PULL, 2);
	assert_int_equal(world_command(world, KVPULL_COMMAND_PULL)->reason,
			 KVPULL_EEXPIRED);
	world_pull_ended(world, 0, 2, KVPULL_EEXPIRED);
	expect_settled(world, KVPULL_COMMAND_RELEASE, 1);
}
