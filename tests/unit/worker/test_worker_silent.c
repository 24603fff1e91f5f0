/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker whose scheduler half says nothing more: what it is owed may be a
 * release that nobody steps.
 */
#include "tests/unit/worker/peer.h"

#define TICKET 101u
#define LEASE_NS (3000 * WORLD_MS)

static uint32_t claimed(struct world *world)
{
	world_claim(world, TICKET, 1);
	world_poll(world, 1);
	return world_up(world, "1-0", 0, 1);
}

/* Time goes on, seen by a poll every tenth of a second. */
static void pass(struct world *world, uint64_t ns)
{
	const uint64_t until_ns = world->now_ns + ns;

	while (world->now_ns < until_ns)
		world_pass(world, 100 * WORLD_MS);
}

/* As a half with live tickets speaks: a header alone, each third of a lease. */
static void pass_spoken_to(struct world *world, uint64_t ns)
{
	const uint64_t until_ns = world->now_ns + ns;

	while (world->now_ns < until_ns) {
		world_send(world, NULL, 0);
		pass(world, LEASE_NS / 3);
	}
}

WORLD_TEST(half_that_speaks_is_beaten_for)
{
	const uint32_t peer = claimed(world);

	pass_spoken_to(world, 5 * LEASE_NS);
	assert_in_range(world->peers[peer].beats, 14, 16);
}

/* The last beat is two leases old at most: the hold ends within three. */
WORLD_TEST(half_that_is_silent_is_beaten_for_two_leases)
{
	const uint32_t peer = claimed(world);
	uint32_t beats;

	pass(world, 2 * LEASE_NS - 100 * WORLD_MS);
	beats = world->peers[peer].beats;
	assert_in_range(beats, 6, 7);
	pass(world, 200 * WORLD_MS);
	beats = world->peers[peer].beats;
	pass(world, 5 * LEASE_NS);
	assert_int_equal(world->peers[peer].beats, beats);
}

WORLD_TEST(half_that_speaks_again_is_beaten_for_again)
{
	const uint32_t peer = claimed(world);
	uint32_t beats;

	pass(world, 3 * LEASE_NS);
	beats = world->peers[peer].beats;
	world_send(world, NULL, 0);
	pass(world, LEASE_NS / 3);
	assert_in_range(world->peers[peer].beats, beats + 1, beats + 2);
}

/* Bytes that are refused, or of nobody, are no word of it. */
WORLD_TEST(bytes_that_are_refused_are_no_word)
{
	const uint32_t peer = claimed(world);
	const uint64_t until_ns = world->now_ns + 4 * LEASE_NS;
	uint32_t beats = 0;

	while (world->now_ns < until_ns) {
		assert_true(kvpull_worker_step(world->worker, "nothing", 7) <
			    0);
		assert_int_equal(kvpull_worker_step(world->worker, NULL, 0), 0);
		pass(world, LEASE_NS / 3);
		if (world->now_ns < until_ns - LEASE_NS)
			beats = world->peers[peer].beats;
	}
	assert_int_equal(world->peers[peer].beats, beats);
}

/* A read on its way needs its producer's blocks, whoever is silent. */
WORLD_TEST(pull_that_runs_is_beaten_for)
{
	const uint32_t peer = claimed(world);
	uint32_t beats;

	world_pull(world, 1, TICKET, 0);
	world_poll(world, 1);
	assert_int_equal(world->read_starts, 1);
	pass(world, 4 * LEASE_NS);
	beats = world->peers[peer].beats;
	assert_in_range(beats, 12, 14);
	/* And when it is over, no more. */
	world_done(world, 0, KVPULL_EREAD);
	pass(world, LEASE_NS);
	assert_int_equal(world->peers[peer].beats, beats);
}

/* A ticket that nothing is pulled of, at another producer. */
WORLD_TEST(pull_is_beaten_for_where_it_reads)
{
	const uint32_t peer = claimed(world);
	uint32_t other;
	uint32_t beats;

	world_claim(world, 2 * TICKET, 1);
	world_poll(world, 1);
	other = world_up(world, "2-0", 0, 1);
	world_pull(world, 1, TICKET, 0);
	world_poll(world, 1);
	pass(world, 2 * LEASE_NS + 200 * WORLD_MS);
	beats = world->peers[peer].beats;
	pass(world, LEASE_NS);
	assert_true(world->peers[peer].beats > beats);
	assert_in_range(world->peers[other].beats, 6, 7);
	world_done(world, 0, KVPULL_EREAD);
}

/* Scheduler half and worker know their own lease, and not the producer's. */
WORLD_TEST(longer_lease_of_the_two_counts)
{
	struct kvpull_welcome welcome;
	uint32_t peer;
	uint32_t beats;

	world_claim(world, TICKET, 1);
	world_poll(world, 1);
	peer = world_peer_at(world, "1-0");
	world_challenge(world, peer);
	world_welcome_fill(world, peer, 0, 1, &welcome);
	welcome.lease_ns = LEASE_NS / 10;
	world_welcome_send(world, peer, &welcome);
	pass(world, 2 * LEASE_NS - 100 * WORLD_MS);
	assert_in_range(world->peers[peer].beats, 57, 61);
	pass(world, 200 * WORLD_MS);
	beats = world->peers[peer].beats;
	pass(world, LEASE_NS);
	assert_int_equal(world->peers[peer].beats, beats);
}
