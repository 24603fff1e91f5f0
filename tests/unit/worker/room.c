/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/worker/room.h"

int room_setup(void **state)
{
	return world_begin(state, ",\"pulls_max\":16,\"tickets_max\":16");
}

int room_setup_full(void **state)
{
	const int code = room_setup(state);

	all_used(*state);
	return code;
}

int room_setup_quick(void **state)
{
	const int code = room_setup(state);

	((struct world *)*state)->read_code = 1;
	return code;
}

void tries_pass(struct world *world, uint32_t times)
{
	while (times--)
		world_pass(world, 5 * WORLD_MS);
}

void claim_and_pull(struct world *world, uint32_t producer, uint32_t ranks)
{
	world_claim(world, producer * 100 + 1, ranks);
	world_pull(world, producer, producer * 100 + 1, KVPULL_FLAG_RELEASE);
}

void all_used(struct world *world)
{
	char address[16];
	uint32_t producer;

	for (producer = 1; producer <= WORLD_PEERS; producer++) {
		if (producer <= WAITED)
			world_claim(world, 100 * (uint64_t)producer + 1, 1);
		else
			claim_and_pull(world, producer, 1);
		world_poll(world, 2);
		(void)snprintf(address, sizeof(address), "%u-0", producer);
		(void)world_up(world, address, 0, 1);
	}
}

uint32_t read_end(struct world *world, uint32_t producer)
{
	char address[16];
	uint32_t peer;
	uint32_t at;

	(void)snprintf(address, sizeof(address), "%u-0", producer);
	peer = world_peer_at(world, address);
	for (at = 0; at < WORLD_READS; at++)
		if (world->reads[at].read && world->reads[at].peer == peer)
			world_done(world, at, 0);
	return peer;
}

uint32_t peer_end(struct world *world, uint32_t producer)
{
	const uint32_t peer = read_end(world, producer);
	uint32_t rounds = 0;

	while (!world->peers[peer].disconnected) {
		assert_in_range(rounds++, 0, 20);
		world_pass(world, 5 * WORLD_MS);
	}
	world_down(world, peer);
	return peer;
}

void goes_to(struct world *world, uint32_t from, uint32_t to)
{
	const uint32_t peer = peer_end(world, from);
	char address[16];

	world_pass(world, 5 * WORLD_MS);
	world_pass(world, 5 * WORLD_MS);
	(void)snprintf(address, sizeof(address), "%u-0", to);
	assert_string_equal(world->peers[peer].address, address);
}

void go_to(struct world *world, uint32_t from, const uint32_t *to)
{
	while (*to)
		goes_to(world, from++, *to++);
}
