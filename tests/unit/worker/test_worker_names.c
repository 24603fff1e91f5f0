/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name by which a worker greets a producer: another one for whoever was given
 * up, the same as ever for all others. One that meets another name takes the
 * worker for restarted, and ends what its siblings have claimed.
 */
#include "tests/unit/worker/peer.h"

/* Peers that were disconnected go down. */
static void pass(struct world *world, uint64_t ns)
{
	uint32_t peer;

	world_pass(world, ns);
	for (peer = 0; peer < WORLD_PEERS; peer++)
		if (world->peers[peer].used && world->peers[peer].disconnected)
			world_down(world, peer);
}

static void released(struct world *world, uint64_t serial)
{
	world_command(world, KVPULL_COMMAND_RELEASE, 0, serial);
	pass(world, 5 * WORLD_MS);
	world->note_count = 0;
}

/* Claimed, met, released: by which name it was greeted. */
static uint64_t met(struct world *world, uint32_t producer, uint32_t serial)
{
	char address[16];
	uint64_t name;
	uint32_t rounds;

	(void)snprintf(address, sizeof(address), "%u-0", producer);
	world_claim(world, producer * 100 + serial, 1);
	for (rounds = 0; rounds < 8; rounds++)
		pass(world, 5 * WORLD_MS);
	name = world->peers[world_up(world, address, 0, 1)].hello.incarnation;
	released(world, producer * 100 + serial);
	return name;
}

/* Lost, if it was there, and called in vain while there is a claim on it. */
static void give_up(struct world *world, uint32_t producer, uint32_t serial)
{
	char address[16];
	uint32_t rounds;

	(void)snprintf(address, sizeof(address), "%u-0", producer);
	world->connect_code = KVPULL_EPEER;
	world_claim(world, producer * 100 + serial, 1);
	pass(world, 5 * WORLD_MS);
	if (world_is_connected(world, address))
		world_down(world, world_peer_at(world, address));
	for (rounds = 0; rounds < 10; rounds++)
		pass(world, 700 * WORLD_MS);
	world->connect_code = 0;
	released(world, producer * 100 + serial);
}

/* So many others are given up: whoever was known is forgotten. */
static void others_give_up(struct world *world, uint32_t first, uint32_t count)
{
	uint32_t at;

	for (at = 0; at < count; at++)
		give_up(world, first + at, 1);
}

WORLD_TEST(others_keep_our_name_when_one_is_given_up)
{
	const uint64_t name = met(world, 1, 1);

	others_give_up(world, 2, 2 * WORLD_PEERS);
	assert_int_equal(met(world, 1, 2), name);
	assert_int_equal(met(world, 999, 1), name);
}

WORLD_TEST(each_that_was_given_up_has_another_name)
{
	uint64_t names[4];
	uint32_t before;
	uint32_t at;

	names[0] = met(world, 1, 1);
	for (at = 1; at < 4; at++) {
		give_up(world, 1, 1 + at);
		others_give_up(world, 20 * at, WORLD_PEERS);
		names[at] = met(world, 1, 10 + at);
		for (before = 0; before < at; before++)
			assert_int_not_equal(names[at], names[before]);
		/* And keeps that. */
		others_give_up(world, 20 * at + 10, WORLD_PEERS);
		assert_int_equal(met(world, 1, 20 + at), names[at]);
	}
}

/* More than can be remembered: then all have another one. */
WORLD_TEST(more_than_are_known_by_name_are_all_given_another)
{
	const uint64_t name = met(world, 1, 1);

	give_up(world, 1, 2);
	others_give_up(world, 2, KVPULL_NAMED_MAX + WORLD_PEERS);
	assert_int_not_equal(met(world, 1, 3), name);
	assert_int_not_equal(met(world, 5000, 1), name);
}

/* We ended them, however soon after they came up and however often. */
WORLD_TEST(connections_that_made_room_are_no_faults_of_their_peer)
{
	uint32_t at;

	world->read_code = 1;
	for (at = 1; at <= 2 * KVPULL_RETRY_ATTEMPTS_MAX; at++) {
		claim_pull(world, at, 100 + at, 1, KVPULL_FLAG_RELEASE);
		(void)world_up(world, "1-0", 0, 1);
		world_poll(world, 2);
		loaded(world, at);
		assert_int_equal(kvpull_remote_idle_close(
					 &world->worker->progress->remotes, 1,
					 world->now_ns),
				 1);
		world_poll(world, 1);
		world_down(world, world_peer_at(world, "1-0"));
	}
}
