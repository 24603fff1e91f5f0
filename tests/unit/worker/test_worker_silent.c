/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker whose scheduler half says nothing more: what it is owed may be a
 * release that nobody steps.
 */
#include "tests/unit/worker/holder.h"

#define TICKET 101u

/* No beat comes for that long. */
static void no_beats(struct world *world, uint32_t peer, uint64_t ns)
{
	const uint32_t beats = world->peers[peer].beats;

	world_live(world, ns);
	assert_int_equal(world->peers[peer].beats, beats);
}

/* As a half with live tickets speaks: a header alone, each third of a lease. */
static void pass_spoken_to(struct world *world, uint64_t ns)
{
	const uint64_t until_ns = world->now_ns + ns;

	while (world->now_ns < until_ns) {
		world_send(world, NULL, 0);
		world_live(world, LEASE_NS / 3);
	}
}

WORLD_TEST(half_that_speaks_is_beaten_for)
{
	const uint32_t peer = claim_up(world, TICKET);

	pass_spoken_to(world, 5 * LEASE_NS);
	assert_in_range(world->peers[peer].beats, 14, 16);
}

/* The last beat is two leases old at most: the hold ends within three. */
WORLD_TEST(half_that_is_silent_is_beaten_for_two_leases)
{
	const uint32_t peer = claim_up(world, TICKET);
	uint32_t beats;

	world_live(world, 2 * LEASE_NS - 100 * WORLD_MS);
	beats = world->peers[peer].beats;
	assert_in_range(beats, 6, 7);
	world_live(world, 200 * WORLD_MS);
	no_beats(world, peer, 5 * LEASE_NS);
}

WORLD_TEST(half_that_speaks_again_is_beaten_for_again)
{
	const uint32_t peer = claim_up(world, TICKET);
	uint32_t beats;

	world_live(world, 3 * LEASE_NS);
	beats = world->peers[peer].beats;
	world_send(world, NULL, 0);
	world_live(world, LEASE_NS / 3);
	assert_in_range(world->peers[peer].beats, beats + 1, beats + 2);
}

/* Bytes that are refused, or of nobody, are no word of it. */
WORLD_TEST(bytes_that_are_refused_are_no_word)
{
	const uint32_t peer = claim_up(world, TICKET);
	const uint64_t until_ns = world->now_ns + 4 * LEASE_NS;
	uint32_t beats = 0;

	while (world->now_ns < until_ns) {
		assert_true(kvpull_worker_step(world->worker, "nothing", 7) <
			    0);
		assert_int_equal(kvpull_worker_step(world->worker, NULL, 0), 0);
		world_live(world, LEASE_NS / 3);
		if (world->now_ns < until_ns - LEASE_NS)
			beats = world->peers[peer].beats;
	}
	assert_int_equal(world->peers[peer].beats, beats);
}

/* A read on its way needs its producer's blocks, whoever is silent. */
WORLD_TEST(pull_that_runs_is_beaten_for)
{
	const uint32_t peer = claim_up(world, TICKET);
	uint32_t beats;

	pull(world, 1, TICKET, 0);
	assert_int_equal(world->read_starts, 1);
	world_live(world, 4 * LEASE_NS);
	beats = world->peers[peer].beats;
	assert_in_range(beats, 12, 14);
	/* And when it is over, no more. */
	world_done(world, 0, KVPULL_EREAD);
	world_live(world, LEASE_NS);
	assert_int_equal(world->peers[peer].beats, beats);
}

/* A ticket that nothing is pulled of, at another producer. */
WORLD_TEST(pull_is_beaten_for_where_it_reads)
{
	const uint32_t peer = claim_up(world, TICKET);
	uint32_t other;
	uint32_t beats;

	claim(world, 2 * TICKET, 1);
	other = world_up(world, "2-0", 0, 1);
	pull(world, 1, TICKET, 0);
	world_live(world, 2 * LEASE_NS + 200 * WORLD_MS);
	beats = world->peers[peer].beats;
	world_live(world, LEASE_NS);
	assert_true(world->peers[peer].beats > beats);
	assert_in_range(world->peers[other].beats, 6, 7);
	world_done(world, 0, KVPULL_EREAD);
}

/* Scheduler half and worker know their own lease, and not the producer's. */
WORLD_TEST(longer_lease_of_the_two_counts)
{
	struct kvpull_welcome welcome;
	uint32_t peer;

	claim(world, TICKET, 1);
	peer = greeted(world, "1-0", 0, 1, &welcome);
	welcome.lease_ns = LEASE_NS / 10;
	world_welcome_send(world, peer, &welcome);
	world_live(world, 2 * LEASE_NS - 100 * WORLD_MS);
	assert_in_range(world->peers[peer].beats, 57, 61);
	world_live(world, 200 * WORLD_MS);
	no_beats(world, peer, LEASE_NS);
}
