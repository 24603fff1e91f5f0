/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A consumer's rank that has layer 0 of three, and a producer of several stages:
 * from whom it reads, whom it tells, and whom it does not believe.
 */
#include "tests/unit/worker/peer.h"

#define KEY 7u
#define SERIAL 101u
#define LAYERS 3u
#define LAYER_BYTES (WORLD_BLOCKS * WORLD_BLOCK_BYTES)

static int setup(void **state)
{
	const int code = world_setup(state);
	struct world *world = *state;

	world->worker->facts.compat.layer_count = LAYERS;
	return code;
}

#define TEST(name)                                                             \
	UNIT_TEST_OF(name, struct world, world, setup, world_teardown)

/* A rank of a producer of two stages of one rank. */
static void stage_up(struct world *world, const char *address, uint32_t pp_rank,
		     uint32_t layer_first, uint32_t layer_end)
{
	const uint32_t peer = world_peer_at(world, address);
	const uint32_t count = layer_end - layer_first;
	struct kvpull_welcome welcome;

	world_challenge(world, peer);
	world_welcome_fill(world, peer, 0, 1, &welcome);
	welcome.pp_rank = pp_rank;
	welcome.pp_size = 2;
	welcome.regions[0].bytes = (uint64_t)count * LAYER_BYTES;
	welcome.caches[0].layer_first = layer_first;
	welcome.caches[0].layer_count = count;
	welcome.caches[0].layer_stride = LAYER_BYTES;
	world_welcome_send(world, peer, &welcome);
}

/* Likewise, and a ticket of two ranks is pulled. */
static int setup_pull(void **state)
{
	const int code = setup(state);

	claim_pull(*state, KEY, SERIAL, 2, KVPULL_FLAG_RELEASE);
	return code;
}

#define PULL_TEST(name)                                                        \
	UNIT_TEST_OF(name, struct world, world, setup_pull, world_teardown)

/* The stage that has none of our layers is told like the other one. */
PULL_TEST(rank_reads_its_own_layers_and_tells_all_stages)
{
	stage_up(world, "1-0", 0, 0, 1);
	assert_int_equal(world->read_starts, 0);
	stage_up(world, "1-1", 1, 1, 3);
	world_poll(world, 1);
	assert_int_equal(world->read_starts, 1);
	assert_int_equal(world->reads[0].peer, 0);
	world_done(world, 0, 0);
	world_poll(world, 1);
	loaded(world, KEY);
	world_poll(world, 2);
	assert_int_equal(world_notes(world, KVPULL_NOTE_CLAIM), 2);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 2);
}

/* A producer that was told one number by two ranks would wait for the other. */
TEST(hello_has_a_number_among_the_ranks_of_all_stages)
{
	const struct world_peer *peer = &world->peers[0];

	world_claim(world, SERIAL, 1);
	world->worker->facts.stage.rank = 3;
	world->worker->facts.stage.rank_count = 4;
	world->worker->facts.stage.pp_size = 2;
	world_poll(world, 1);
	world_challenge(world, world_peer_at(world, "1-0"));
	assert_int_equal(peer->hello.rank, 3);
	assert_int_equal(peer->hello.rank_count, 4);
}

static void not_pulled(struct world *world, const char *why)
{
	world_poll(world, 1);
	failed(world, KEY, KVPULL_EPROTO);
	assert_int_equal(world->read_starts, 0);
	if (!strstr(world->lines.all, why))
		fail_msg("\"%s\" is in no line", why);
}

PULL_TEST(layer_that_no_stage_has_fails_the_pull_by_name)
{
	stage_up(world, "1-0", 0, 0, 1);
	stage_up(world, "1-1", 1, 2, 3);
	not_pulled(
		world,
		"whose ranks do not fit: layers that no rank has: rank 0 of 2 has layers 0 to 0, and rank 1 has 2 to 2");
}

PULL_TEST(layer_of_two_stages_fails_the_pull_by_name)
{
	stage_up(world, "1-1", 1, 0, 3);
	stage_up(world, "1-0", 0, 0, 1);
	not_pulled(
		world,
		"layers that two stages have: rank 0 of 2 has layers 0 to 0, and rank 1 has 0 to 2");
}

/* The ticket has them exchanged, or another size. */
PULL_TEST(stage_in_the_place_of_another_fails_the_pull)
{
	stage_up(world, "1-0", 1, 1, 3);
	stage_up(world, "1-1", 0, 0, 1);
	world_poll(world, 1);
	failed(world, KEY, KVPULL_EPROTO);
	assert_int_equal(world->read_starts, 0);
}

/* At the handshake: nothing that another rank has could make it whole. */
PULL_TEST(last_stage_ends_with_the_model)
{
	stage_up(world, "1-0", 0, 0, 1);
	stage_up(world, "1-1", 1, 1, 2);
	world_down(world, 1);
	failed(world, KEY, KVPULL_EREJECTED);
	assert_int_equal(world->read_starts, 0);
	assert_non_null(
		strstr(world->lines.all,
		       "rank 1 of 2, stage 1 of 2, has layers 1 to 1 of 3"));
}
