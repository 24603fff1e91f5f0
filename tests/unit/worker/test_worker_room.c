/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More ranks of producers than there are entries for: who waits, for what, and in
 * which order. Claims that wait have WAITED entries at most, pulls as many more.
 */
#include <stdlib.h>
#include <sys/resource.h>

#include "tests/unit/worker/room.h"

#define CROWD 6u
#define CROWD_RANKS 4u
#define CROWD_ROUNDS 150u

/* A ticket of so many ranks is claimed, and its only pull begins. */
static void want(struct world *world, uint64_t key, uint64_t serial,
		 uint32_t ranks)
{
	world_claim(world, serial, ranks);
	world_pull(world, key, serial, KVPULL_FLAG_RELEASE);
}

/* Every called peer comes up, and one of the disconnected ones goes down. */
static void peers_answer(struct world *world, uint32_t ranks)
{
	uint32_t gone = 0;
	uint32_t peer;

	for (peer = 0; peer < WORLD_PEERS; peer++) {
		const struct world_peer *at = &world->peers[peer];

		if (at->used && at->disconnected && !gone++)
			world_down(world, peer);
		else if (at->used && !at->attached && !at->disconnected)
			(void)world_up(
				world, at->address,
				(uint32_t)strtoul(strchr(at->address, '-') + 1,
						  NULL, 10),
				ranks);
	}
}

/* Claims that wait are tried each 5 ms: none is always first. */
static void round_run(struct world *world, uint32_t round, uint32_t ranks)
{
	world_pass(world, (1 + round % 4) * WORLD_MS);
	peers_answer(world, ranks);
}

static void rounds_run(struct world *world, uint32_t count, uint32_t ranks)
{
	uint32_t round;

	for (round = 0; round < count; round++)
		round_run(world, round, ranks);
}

static int is_loaded(const struct world *world, uint64_t key)
{
	uint32_t at;

	for (at = 0; at < world->record_count; at++)
		if (world->records[at].key == key &&
		    world->records[at].kind == KVPULL_POLL_LOADED)
			return 1;
	return 0;
}

static void await_loaded(struct world *world, uint64_t key, uint32_t ranks)
{
	uint32_t round;

	for (round = 0; round < CROWD_ROUNDS && !is_loaded(world, key); round++)
		round_run(world, round, ranks);
	loaded(world, key);
}

static void pull_whole(struct world *world, uint32_t producer, uint32_t ranks)
{
	claim_and_pull(world, producer, ranks);
	await_loaded(world, producer, ranks);
}

/* All ranks of a producer. */
static int is_connected(const struct world *world, uint32_t producer,
			uint32_t ranks)
{
	char address[16];
	uint32_t rank;

	for (rank = 0; rank < ranks; rank++) {
		(void)snprintf(address, sizeof(address), "%u-%u", producer,
			       rank);
		if (!world_is_connected(world, address))
			return 0;
	}
	return 1;
}

/*
 * Six producers, and entries for the ranks of two: pulls that had some each
 * would wait for each other until they are too late.
 */
QUICK_ROOM_TEST(pulls_wait_for_entries_with_all_that_they_need_or_none)
{
	uint32_t begun = 0;
	uint32_t round;
	uint32_t at;

	for (round = 0; round < CROWD_ROUNDS; round++) {
		/*
		 * Another claim comes in time for an entry that becomes free.
		 */
		if (begun < CROWD && (begun < 3 || round % 3 == 0))
			claim_and_pull(world, ++begun, CROWD_RANKS);
		round_run(world, round, CROWD_RANKS);
	}
	for (at = 1; at <= CROWD; at++)
		loaded(world, at);
}

/*
 * The second one has the entry of one rank of the first, which is wanted again:
 * that pull is not to keep the others while it waits for that one.
 */
QUICK_ROOM_TEST(pull_from_a_producer_that_is_half_gone_keeps_no_entries)
{
	uint32_t producer;

	for (producer = 1; producer <= 2; producer++) {
		pull_whole(world, producer, CROWD_RANKS);
	}
	claim_and_pull(world, 3, CROWD_RANKS);
	while (!world->peers[0].disconnected)
		world_pass(world, WORLD_MS);
	world_down(world, 0);
	world_pass(world, 5 * WORLD_MS);
	assert_true(world_is_connected(world, "3-0"));
	want(world, 9, 102, CROWD_RANKS);
	await_loaded(world, 3, CROWD_RANKS);
	await_loaded(world, 9, CROWD_RANKS);
}

/*
 * An engine claims what it has no blocks for yet: those tickets wait for pulls
 * that have some, which must not wait for them.
 */
QUICK_ROOM_TEST(claims_that_wait_leave_entries_to_pulls)
{
	uint32_t at;

	for (at = 1; at <= CROWD; at++)
		world_claim(world, at * 100 + 1, CROWD_RANKS);
	for (at = CROWD; at; at--) {
		world_pull(world, at, at * 100 + 1, KVPULL_FLAG_RELEASE);
		await_loaded(world, at, CROWD_RANKS);
		/* The one that was told first keeps what it has. */
		assert_true(is_connected(world, 1, CROWD_RANKS));
	}
}

/* In time, so that its producer keeps the blocks. */
QUICK_ROOM_TEST(claim_that_waits_is_told_when_there_is_room)
{
	uint32_t at;

	for (at = 1; at <= 2; at++)
		world_claim(world, at * 100 + 1, CROWD_RANKS);
	rounds_run(world, 10, CROWD_RANKS);
	warned(world, "raise peers_max");
	assert_int_equal(world_notes(world, KVPULL_NOTE_CLAIM), CROWD_RANKS);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 101);
	rounds_run(world, 10, CROWD_RANKS);
	assert_int_equal(world_notes(world, KVPULL_NOTE_CLAIM),
			 2 * CROWD_RANKS);
}

static void reads_end(struct world *world, const uint8_t *which)
{
	uint32_t at;

	for (at = 0; at < WORLD_READS; at++)
		if (world->reads[at].read && which[at])
			world_done(world, at, 0);
}

static void reads_note(const struct world *world, uint8_t *which)
{
	uint32_t at;

	for (at = 0; at < WORLD_READS; at++)
		which[at] = world->reads[at].read != NULL;
}

/* A pull of theirs ends when the next one has begun. */
ROOM_TEST(producers_with_a_steady_load_make_room_for_another)
{
	uint8_t ran[WORLD_READS] = { 0 };
	uint32_t round;
	uint32_t at;

	for (at = 1; at <= WAITED; at++)
		world_claim(world, at * 100 + 1, 1);
	for (round = 0; round < CROWD_ROUNDS && !is_loaded(world, 9); round++) {
		world->record_count = world->note_count = 0;
		if (round % 4 == 0)
			reads_note(world, ran);
		for (at = WAITED + 1; round % 4 == 0 && at <= WORLD_PEERS;
		     at++) {
			const uint64_t ticket = at * 100 + 1 + round / 4;

			world_claim(world, ticket, 1);
			world_pull(world, ticket, ticket, KVPULL_FLAG_RELEASE);
		}
		if (round == 8)
			claim_and_pull(world, 9, 1);
		if (round % 4 == 2)
			reads_end(world, ran);
		round_run(world, round, 1);
	}
	assert_true(is_loaded(world, 9));
	/* Entries of the other pulls come as before. */
	world->read_code = 1;
	for (at = WAITED + 1; at <= WORLD_PEERS; at++) {
		want(world, at, at * 100 + 99, 1);
		await_loaded(world, at, 1);
	}
}

/* A claim that several requests share is pulled again when they have blocks. */
QUICK_ROOM_TEST(claim_whose_pulls_are_over_waits_again)
{
	world_claim(world, 101, CROWD_RANKS);
	world_pull(world, 1, 101, 0);
	await_loaded(world, 1, CROWD_RANKS);
	world_claim(world, 201, CROWD_RANKS);
	rounds_run(world, 10, CROWD_RANKS);
	assert_int_equal(world_notes(world, KVPULL_NOTE_CLAIM), CROWD_RANKS);
	world_pull(world, 2, 101, KVPULL_FLAG_RELEASE);
	await_loaded(world, 2, CROWD_RANKS);
	rounds_run(world, 10, CROWD_RANKS);
	assert_int_equal(world_notes(world, KVPULL_NOTE_CLAIM),
			 2 * CROWD_RANKS);
}

/* The other request's pull still reads. */
ROOM_TEST(claim_with_a_pull_left_does_not_wait)
{
	const struct kvpull_remote *remote =
		&world->worker->progress->remotes.all[0];

	world_claim(world, 101, 1);
	world_pull(world, 1, 101, 0);
	pull(world, 2, 101, 0);
	(void)world_up(world, "1-0", 0, 1);
	world_poll(world, 1);
	world_done(world, 0, 0);
	loaded(world, 1);
	assert_int_equal(remote->wait_count, 0);
	world_done(world, 1, 0);
	loaded(world, 2);
	assert_int_equal(remote->wait_count, 1);
}

/* More of them wait than should: none joins them until those are fewer. */
QUICK_ROOM_TEST(no_claim_joins_where_too_many_wait)
{
	world_claim(world, 101, CROWD_RANKS);
	world_claim(world, 201, CROWD_RANKS);
	world_pull(world, 2, 201, 0);
	await_loaded(world, 2, CROWD_RANKS);
	world->note_count = 0;
	world_claim(world, 202, CROWD_RANKS);
	rounds_run(world, 10, CROWD_RANKS);
	assert_int_equal(world_notes(world, KVPULL_NOTE_CLAIM), 0);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 201);
	rounds_run(world, 10, CROWD_RANKS);
	pull_whole(world, 3, CROWD_RANKS);
}

/* All other entries, from this producer's on, are those of pulls that read. */
static void others_read(struct world *world, uint32_t first)
{
	uint32_t at;

	world->read_code = 0;
	for (at = first; at <= WORLD_PEERS; at++) {
		claim_and_pull(world, at, 1);
		rounds_run(world, 5, 1);
	}
}

/* And is not connected again yet. */
static void first_is_lost(struct world *world)
{
	world->connect_code = KVPULL_EAGAIN;
	world_down(world, world_peer_at(world, "1-0"));
	world->connect_code = 0;
}

/* Entries of a claim's own ranks are no room for its other ranks. */
QUICK_ROOM_TEST(claim_without_room_calls_nobody)
{
	uint32_t connects;

	pull_whole(world, 1, 1);
	others_read(world, 2);
	first_is_lost(world);
	world_pass(world, 5 * WORLD_MS);
	connects = world->connects;
	world_claim(world, 102, 2);
	rounds_run(world, 20, 2);
	assert_int_equal(world->connects, connects);
}

/* Nor do they keep a connection that nobody uses from making room for those. */
QUICK_ROOM_TEST(claim_that_waits_has_connections_closed_for_its_other_ranks)
{
	uint32_t rounds;
	uint32_t at;

	for (at = 1; at <= 2; at++) {
		pull_whole(world, at, 1);
	}
	others_read(world, 3);
	first_is_lost(world);
	world_claim(world, 102, 2);
	at = world_peer_at(world, "2-0");
	for (rounds = 0; !world->peers[at].disconnected; rounds++) {
		assert_in_range(rounds, 0, 20);
		world_pass(world, WORLD_MS);
	}
}

/* The ticket could never be read: its pull fails at once. */
ROOM_TEST(producer_of_more_ranks_than_there_are_entries_is_refused)
{
	claim_and_pull(world, 1, WAITED + 1);
	world_poll(world, 3);
	failed(world, 1, KVPULL_EROUTE);
	assert_int_equal(world->connects, 0);
}

FULL_ROOM_TEST(pulls_have_their_turn_in_order)
{
	uint32_t at;

	for (at = 1; at <= WAITED; at++) {
		claim_and_pull(world, WORLD_PEERS + at, 1);
		world_pass(world, 3 * WORLD_MS);
	}
	for (at = 1; at <= WAITED; at++)
		goes_to(world, WAITED + at, WORLD_PEERS + at);
}

/* Return: bit n is set where the peers of producer n drain. */
static uint32_t draining(const struct world *world)
{
	uint32_t producers = 0;
	uint32_t peer;

	for (peer = 0; peer < WORLD_PEERS; peer++)
		if (world->worker->progress->remotes.all[peer].drains)
			producers |= 1u << strtoul(world->peers[peer].address,
						   NULL, 10);
	return producers;
}

/*
 * Claims wait on 1 to 4, nobody uses 5, pulls of 6, 7 and 8 have 2, 1 and 2
 * claims: only these three drain, the one with the fewest claims first.
 */
FULL_ROOM_TEST(entries_of_pulls_alone_drain_the_least_used_first)
{
	static const uint32_t expected[] = { 1u << 7, 3u << 6, 7u << 6,
					     7u << 6 };
	uint32_t at;

	for (at = 6; at <= WORLD_PEERS; at += 2) {
		want(world, at * 100 + 2, at * 100 + 2, 1);
	}
	(void)read_end(world, 5);
	world_pass(world, 5 * WORLD_MS);
	claim_and_pull(world, 9, 2);
	world_poll(world, 1);
	for (at = 0; at < 4; at++) {
		world_pass(world, 5 * WORLD_MS);
		assert_int_equal(draining(world), expected[at]);
	}
}

/* The engine may keep the ticket for another pull. */
FULL_ROOM_TEST(pull_that_ends_without_its_entries_has_the_turn_no_more)
{
	world_claim(world, 901, 1);
	world_pull(world, 21, 901, 0);
	/* The first try is a newcomer's, and the second one takes the turn. */
	tries_pass(world, 2);
	assert_int_not_equal(world->worker->progress->room.turn, KVPULL_NONE);
	world_command(world, KVPULL_COMMAND_ABORT, 21, 0);
	world_pass(world, 5 * WORLD_MS);
	failed(world, 21, KVPULL_EABORTED);
	claim_and_pull(world, 10, 1);
	goes_to(world, 5, 10);
}

/* A release only ends a hold sooner, which its lease ends anyway. */
FULL_ROOM_TEST(pulls_have_their_turn_before_releases)
{
	claim_and_pull(world, 9, 1);
	world_claim(world, 1001, 1);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 1001);
	claim_and_pull(world, 11, 1);
	world_pass(world, 5 * WORLD_MS);
	GO_TO(world, 5, 9, 11, 10);
}

/*
 * Two entries come free at once: the pull with the turn has one of them, and the
 * next pull the other, though a claim without a pull is more urgent and few wait.
 */
FULL_ROOM_TEST(urgent_claims_that_wait_leave_entries_to_pulls_that_wait)
{
	uint32_t first;
	uint32_t second;

	world_command(world, KVPULL_COMMAND_RELEASE, 0, 401);
	world_pass(world, 5 * WORLD_MS);
	claim_and_pull(world, 9, 1);
	rounds_run(world, 10, 1);
	assert_true(world_is_connected(world, "9-0"));
	claim_and_pull(world, 10, 1);
	claim_and_pull(world, 11, 1);
	world->priority = -9;
	world_claim(world, 1201, 1);
	first = read_end(world, 5);
	tries_pass(world, 2);
	assert_true(world->peers[first].disconnected);
	second = read_end(world, 6);
	world_pass(world, WORLD_MS);
	world_down(world, first);
	world_down(world, second);
	world_pass(world, 5 * WORLD_MS);
	assert_string_equal(world->peers[first].address, "10-0");
	assert_string_equal(world->peers[second].address, "11-0");
}

/*
 * Two entries come free in the run in which a claim and its release come. The first
 * one ends the turn of 9, and the second is for 11, which the next run tries.
 */
FULL_ROOM_TEST(release_that_comes_between_two_turns_takes_no_entry_of_a_pull)
{
	uint32_t peers[2];

	claim_and_pull(world, 9, 1);
	world_poll(world, 2);
	claim_and_pull(world, 11, 1);
	world_pass(world, 5 * WORLD_MS);
	peers[0] = read_end(world, 5);
	peers[1] = read_end(world, 6);
	world_claim(world, 1001, 1);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 1001);
	world_lost_queue(world, peers[1], KVPULL_EPEER);
	world_down(world, peers[0]);
	tries_pass(world, 2);
	assert_string_equal(world->peers[peers[0]].address, "9-0");
	assert_string_equal(world->peers[peers[1]].address, "11-0");
}

/* None is unused: until its deadline, or a lease for its release. */
FULL_ROOM_TEST(pull_without_room_for_its_peer_waits)
{
	uint32_t rounds;

	world_claim(world, 901, 1);
	world_pull(world, 21, 901, 0);
	world_pull(world, 22, 901, 0);
	world_pass(world, 400 * WORLD_MS);
	world_silent(world, 22);
	world_command(world, KVPULL_COMMAND_ABORT, 21, 0);
	world_poll(world, 2);
	failed(world, 21, KVPULL_EABORTED);
	world_pass(world, 100 * WORLD_MS);
	failed(world, 22, KVPULL_EDEADLINE);
	/* The release is still pending, and sent when there is room. */
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 901);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 101);
	for (rounds = 0; !world->peers[0].disconnected; rounds++) {
		assert_in_range(rounds, 0, 4);
		world_pass(world, 5 * WORLD_MS);
	}
	world_down(world, 0);
	world_pass(world, 5 * WORLD_MS);
	(void)world_up(world, "9-0", 0, 1);
	world_poll(world, 2);
	assert_int_equal(world->notes[world->note_count - 1].kind,
			 KVPULL_NOTE_RELEASE);
	assert_int_equal(world->notes[world->note_count - 1].generation, 901);
}

/* A ticket without a route needs no entry, whoever waits for one. */
FULL_ROOM_TEST(ticket_without_a_route_fails_at_once_though_others_wait)
{
	claim_and_pull(world, 10, 1);
	world_poll(world, 2);
	world->reachable_code = KVPULL_EROUTE;
	claim_and_pull(world, 11, 1);
	world_pass(world, 20 * WORLD_MS);
	failed(world, 11, KVPULL_EROUTE);
}

FULL_ROOM_TEST(producer_of_too_many_ranks_is_refused_though_others_wait)
{
	claim_and_pull(world, 10, 1);
	world_poll(world, 2);
	claim_and_pull(world, 11, WAITED + 1);
	world_pass(world, 20 * WORLD_MS);
	failed(world, 11, KVPULL_EROUTE);
	world_silent(world, 10);
}

/* A way that cannot tell now, as one without descriptors, holds up nobody. */
QUICK_ROOM_TEST(pull_whose_way_cannot_tell_yet_has_no_turn)
{
	world->reachable_code = KVPULL_EAGAIN;
	claim_and_pull(world, 1, CROWD_RANKS);
	/* A claim that lacks entries can take the turn from its second try on. */
	tries_pass(world, 2);
	world->reachable_code = 0;
	claim_and_pull(world, 2, CROWD_RANKS);
	assert_int_equal(world->worker->progress->room.turn, KVPULL_NONE);
	await_loaded(world, 2, CROWD_RANKS);
	await_loaded(world, 1, CROWD_RANKS);
}

/* Nor does it keep what it knows of its producer. */
QUICK_ROOM_TEST(pull_whose_way_cannot_tell_yet_keeps_no_entry)
{
	const struct kvpull_remote *remote =
		&world->worker->progress->remotes.all[0];

	pull_whole(world, 1, 1);
	world_pass(world, 5 * WORLD_MS);
	assert_int_equal(remote->claim_count, 0);
	world->reachable_code = KVPULL_EAGAIN;
	want(world, 2, 102, CROWD_RANKS);
	world_pass(world, 5 * WORLD_MS);
	assert_int_equal(remote->claim_count, 0);
	assert_int_equal(remote->wait_count, 0);
}

/* Each of them is left, not the one that was unused for longest several times. */
QUICK_ROOM_TEST(as_many_connections_as_are_wanted_make_room)
{
	uint32_t closed = 0;
	uint32_t at;

	for (at = 1; at <= 2; at++) {
		pull_whole(world, at, CROWD_RANKS);
	}
	claim_and_pull(world, 3, CROWD_RANKS);
	tries_pass(world, 2);
	for (at = 0; at < WORLD_PEERS; at++)
		closed +=
			world->peers[at].used && world->peers[at].disconnected;
	assert_int_equal(closed, CROWD_RANKS);
	assert_int_equal(world_notes(world, KVPULL_NOTE_AWAY), CROWD_RANKS);
}

/* The first one was connected before all others, and used after them. */
QUICK_ROOM_TEST(connection_that_was_unused_for_longest_makes_room)
{
	uint32_t at;

	for (at = 1; at <= WORLD_PEERS; at++) {
		pull_whole(world, at, 1);
	}
	world->now_ns += WORLD_MS;
	want(world, 102, 102, 1);
	world_poll(world, 2);
	loaded(world, 102);
	claim_and_pull(world, 9, 1);
	world_pass(world, 5 * WORLD_MS);
	for (at = 0; at < WORLD_PEERS; at++)
		assert_int_equal(world->peers[at].disconnected, at == 1);
}

/*
 * With fewer descriptors than entries, claims get some ranks of each ticket,
 * and pulls starve.
 */
UNIT_TEST(few_descriptors_are_few_entries)
{
	static const struct {
		uint64_t descriptors;
		uint32_t entries;
		uint32_t waited;
	} cases[] = { { 64 + 3 * 100, 2 * WAITED, WAITED },
		      { 64 + 3 * 6, 6, 3 },
		      { 64 + 3 * 2, WAITED, WAITED / 2 },
		      { 40, WAITED, WAITED / 2 } };
	struct world *world;
	struct rlimit before;
	struct rlimit limit;
	uint32_t at;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	for (at = 0; at < sizeof(cases) / sizeof(*cases); at++) {
		limit = before;
		limit.rlim_cur = cases[at].descriptors;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
		world = world_new("");
		assert_int_equal(world->worker->progress->remotes.count,
				 cases[at].entries);
		assert_int_equal(world->worker->progress->room.waited_max,
				 cases[at].waited);
		assert_int_equal(strstr(world->lines.of[KVPULL_LOG_WARN],
					"ulimit -n") != NULL,
				 cases[at].entries < 2 * WAITED);
		world_end(world);
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}
