/* SPDX-License-Identifier: Apache-2.0 */
/* A worker as consumer: how often it calls a peer that does not last. */
#include "tests/unit/worker/peer.h"

/* Networks and versions do not change by waiting, and the route says why. */
WORLD_TEST(peer_that_rejects_our_call_is_given_up_at_once)
{
	world_claim(world, 101, 1);
	world_pull(world, 7, 101, KVPULL_FLAG_RELEASE);
	world_poll(world, 2);
	world_lost(world, world_peer_at(world, "1-0"), KVPULL_EREJECTED);
	world_poll(world, 2);
	failed(world, 7, KVPULL_EREJECTED);
	world_pass(world, 1000 * WORLD_MS);
	assert_int_equal(world->connects, 1);
}

/*
 * Small messages pass and READs do not: each connection comes up, and breaks.
 * Requests name the peer again and again, also when it was given up.
 */
WORLD_TEST(peer_whose_connections_break_is_called_less_and_less_often)
{
	uint32_t steps;

	for (steps = 0; steps < 2000; steps++) {
		claim(world, 101 + steps % 90, 1);
		if (world_is_connected(world, "1-0")) {
			(void)world_up(world, "1-0", 0, 1);
			world_down(world, world_peer_at(world, "1-0"));
		}
		world_command(world, KVPULL_COMMAND_RELEASE, 0,
			      101 + steps % 90);
		world_pass(world, 10 * WORLD_MS);
	}
	assert_in_range(world->connects, 10, 16);
}
