/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More ranks of producers than there are entries for: who waits, for what, and in
 * which order.
 */
#include <stdlib.h>

#include "tests/unit/worker/peer.h"

#define TEST(name) UNIT_TEST_WITH(name, world_setup_tickets, world_teardown)

#define CROWD 6u
#define CROWD_RANKS 4u
#define CROWD_ROUNDS 200u

/*
 * Whoever is called comes up, and whoever is left goes: then another claim is
 * there in time for its entry.
 */
static void peers_answer(struct world *world, uint32_t *claimed)
{
	uint32_t peer;

	for (peer = 0; peer < WORLD_PEERS; peer++) {
		const struct world_peer *at = &world->peers[peer];

		if (at->used && at->disconnected) {
			if (*claimed < CROWD)
				world_claim(world, ++*claimed * 100 + 1,
					    CROWD_RANKS);
			world_down(world, peer);
		} else if (at->used && !at->attached) {
			(void)world_up(
				world, at->address,
				(uint32_t)strtoul(at->address + 2, NULL, 10),
				CROWD_RANKS);
		}
	}
}

/* All ranks of a producer. */
static int is_connected(const struct world *world, uint32_t producer)
{
	char address[16];
	uint32_t rank;

	for (rank = 0; rank < CROWD_RANKS; rank++) {
		(void)snprintf(address, sizeof(address), "%u-%u", producer,
			       rank);
		if (!world_is_connected(world, address))
			return 0;
	}
	return 1;
}

/*
 * Six producers, and entries for the ranks of one: claims that had some each
 * would wait for each other until their pulls are too late.
 */
TEST(claims_wait_for_entries_with_all_that_they_need_or_none)
{
	struct world *world = *state;
	uint32_t claimed = 2;
	uint32_t released = 0;
	uint32_t round;
	uint32_t at;

	world_claim(world, 101, CROWD_RANKS);
	world_claim(world, 201, CROWD_RANKS);
	for (round = 0; round < CROWD_ROUNDS; round++) {
		/* Claims that wait are tried each 5 ms: none is always first. */
		world_pass(world, (1 + round % 4) * WORLD_MS);
		peers_answer(world, &claimed);
		for (at = 1; at <= CROWD; at++) {
			if (released >> at & 1 || !is_connected(world, at))
				continue;
			world_command(world, KVPULL_COMMAND_RELEASE, 0,
				      at * 100 + 1);
			released |= 1u << at;
		}
	}
	assert_int_equal(released, (1u << (CROWD + 1)) - 2);
}

/* All ranks of it come up, within some rounds. */
static void await_connected(struct world *world, uint32_t producer)
{
	uint32_t claimed = CROWD;
	uint32_t round;

	for (round = 0; round < CROWD_ROUNDS; round++) {
		world_pass(world, (1 + round % 4) * WORLD_MS);
		peers_answer(world, &claimed);
		if (is_connected(world, producer))
			return;
	}
	fail_msg("producer %u is not connected", producer);
}

/*
 * The second one has the entry of one rank of the first, which is wanted again:
 * that claim is not to keep the others while it waits for that one.
 */
TEST(claim_on_a_producer_that_is_half_gone_keeps_no_entries)
{
	struct world *world = *state;

	world_claim(world, 101, CROWD_RANKS);
	await_connected(world, 1);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 101);
	world_claim(world, 201, CROWD_RANKS);
	while (!world->peers[0].disconnected)
		world_pass(world, WORLD_MS);
	world_down(world, 0);
	world_pass(world, WORLD_MS);
	assert_true(world_is_connected(world, "2-0"));
	world_claim(world, 102, CROWD_RANKS);
	await_connected(world, 2);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 201);
	await_connected(world, 1);
}

/* It could never be read: its pull fails at once. */
TEST(producer_of_more_ranks_than_there_are_entries_is_refused)
{
	struct world *world = *state;

	world_claim(world, 101, 5);
	world_pull(world, 7, 101, KVPULL_FLAG_RELEASE);
	world_poll(world, 3);
	world_reported(world, 7, KVPULL_POLL_FAILED, KVPULL_EROUTE);
	assert_int_equal(world->connects, 0);
}

/* Every entry is an open claim's. */
static void all_used(struct world *world)
{
	char address[16];
	uint32_t producer;

	for (producer = 1; producer <= WORLD_PEERS; producer++) {
		world_claim(world, 100 * (uint64_t)producer + 1, 1);
		world_poll(world, 1);
		(void)snprintf(address, sizeof(address), "%u-0", producer);
		(void)world_up(world, address, 0, 1);
	}
}

TEST(claims_have_their_turn_in_order)
{
	struct world *world = *state;
	char address[16];
	uint32_t at;

	all_used(world);
	for (at = 0; at < WORLD_PEERS; at++) {
		world_claim(world, 100 * (uint64_t)(at + 5) + 1, 1);
		world_pass(world, 3 * WORLD_MS);
	}
	for (at = 0; at < WORLD_PEERS; at++) {
		uint32_t rounds = 0;

		world_command(world, KVPULL_COMMAND_RELEASE, 0, at * 100 + 101);
		while (!world->peers[at].disconnected) {
			assert_in_range(rounds++, 0, 20);
			world_pass(world, 5 * WORLD_MS);
		}
		world_down(world, at);
		world_pass(world, 5 * WORLD_MS);
		world_pass(world, 5 * WORLD_MS);
	}
	for (at = 0; at < WORLD_PEERS; at++) {
		(void)snprintf(address, sizeof(address), "%u-0", at + 5);
		assert_string_equal(world->peers[at].address, address);
	}
}

/* It needs no entry, whoever waits for one. */
TEST(ticket_without_a_route_fails_at_once_though_others_wait)
{
	struct world *world = *state;

	all_used(world);
	world_claim(world, 501, 1);
	world_poll(world, 2);
	world->reachable_code = KVPULL_EROUTE;
	world_claim(world, 901, 1);
	world_pull(world, 9, 901, 0);
	world_pass(world, 20 * WORLD_MS);
	world_reported(world, 9, KVPULL_POLL_FAILED, KVPULL_EROUTE);
}

TEST(producer_of_too_many_ranks_is_refused_though_others_wait)
{
	struct world *world = *state;

	all_used(world);
	world_claim(world, 501, 1);
	world_poll(world, 2);
	world_claim(world, 601, 5);
	world_pull(world, 9, 601, 0);
	world_pass(world, 20 * WORLD_MS);
	world_reported(world, 9, KVPULL_POLL_FAILED, KVPULL_EROUTE);
}
