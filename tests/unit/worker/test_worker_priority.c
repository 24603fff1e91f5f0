/* SPDX-License-Identifier: Apache-2.0 */
/* Priorities of pulls: which of those that wait for entries goes first. */
#include "tests/unit/worker/room.h"

static void pull_of(struct world *world, uint32_t producer, int32_t priority)
{
	world->priority = priority;
	claim_and_pull(world, producer, 1);
}

/* Likewise, and is tried once. */
static void pull_waits(struct world *world, uint32_t producer, int32_t priority)
{
	pull_of(world, producer, priority);
	tries_pass(world, 1);
}

ROOM_TEST(route_is_told_the_priority_of_a_pull)
{
	static const int32_t priorities[] = { 0, -3, INT32_MIN, INT32_MAX };
	uint32_t at;

	world_claim(world, 101, 1);
	world_poll(world, 2);
	(void)world_up(world, "1-0", 0, 1);
	for (at = 0; at < 4; at++) {
		world->priority = priorities[at];
		pull(world, at + 1, 101, 0);
		assert_non_null(world->reads[at].read);
		assert_int_equal(world->reads[at].read->priority,
				 priorities[at]);
	}
	for (at = 0; at < 4; at++)
		world_done(world, at, 0);
}

FULL_ROOM_TEST(pulls_have_their_turn_by_priority)
{
	pull_of(world, 9, 3);
	pull_of(world, 10, 0);
	pull_of(world, 11, -1);
	pull_waits(world, 12, 0);
	GO_TO(world, 5, 11, 10, 12, 9);
}

/* A turn that has begun is not taken away, and the next one is picked of all. */
FULL_ROOM_TEST(turn_goes_from_a_pull_to_the_most_urgent)
{
	pull_of(world, 9, 3);
	/* A newcomer is picked at once where it is alone. */
	world_poll(world, 2);
	assert_int_not_equal(world->worker->progress->room.turn, KVPULL_NONE);
	pull_of(world, 10, 5);
	pull_waits(world, 11, -1);
	GO_TO(world, 5, 9, 11, 10);
}

/* The turn ends in the very run in which another pull comes. */
FULL_ROOM_TEST(newcomer_takes_no_turn_before_a_more_urgent_pull)
{
	uint32_t peer;

	pull_waits(world, 9, 3);
	pull_waits(world, 11, -1);
	peer = peer_end(world, 5);
	pull_waits(world, 10, 5);
	assert_string_equal(world->peers[peer].address, "9-0");
	GO_TO(world, 6, 11, 10);
}

/* A claim without a pull is older, and wants no turn. */
FULL_ROOM_TEST(last_turn_of_a_round_is_the_oldest_pulls)
{
	world->worker->progress->room.turns.given = KVPULL_TURNS_A_ROUND - 1;
	world->priority = -9;
	world_claim(world, 1301, 1);
	world_pass(world, 5 * WORLD_MS);
	pull_of(world, 9, 3);
	pull_of(world, 10, 4);
	pull_waits(world, 11, -1);
	GO_TO(world, 5, 9, 11, 10);
}

/*
 * Two entries come free at once. The first ends the turn of 9, and 10, which is
 * the oldest then, finds the second one without waiting. It has had its turn.
 */
FULL_ROOM_TEST(oldest_pull_that_waits_for_nothing_has_had_its_turn)
{
	uint32_t peers[2];
	uint32_t at;

	world->worker->progress->room.turns.given = KVPULL_TURNS_A_ROUND - 2;
	pull_waits(world, 9, 3);
	pull_waits(world, 10, 5);
	for (at = 0; at < 2; at++)
		peers[at] = read_end(world, 5 + at);
	for (at = 0; at < 2; at++)
		world_down(world, peers[at]);
	tries_pass(world, 2);
	assert_string_equal(world->peers[peers[0]].address, "9-0");
	assert_string_equal(world->peers[peers[1]].address, "10-0");
	pull_of(world, 11, 4);
	pull_waits(world, 12, -1);
	GO_TO(world, 7, 12, 11);
}

/*
 * A claim of that priority waits, and then its pull of another one does; beside
 * them pulls of priority 3, one of which has the turn. Which is next?
 */
static void claim_then_pull(struct world *world, int32_t claim, int32_t pull)
{
	all_used(world);
	world->priority = claim;
	world_claim(world, 1001, 1);
	world_pass(world, 5 * WORLD_MS);
	pull_waits(world, 9, 3);
	pull_waits(world, 11, 3);
	world->priority = pull;
	world_pull(world, 10, 1001, KVPULL_FLAG_RELEASE);
	world_pass(world, 5 * WORLD_MS);
	GO_TO(world, 5, 9, 10, 11);
}

/* Siblings share a ticket, and the second of them is in a hurry. */
ROOM_TEST(claim_waits_with_the_urgency_of_its_pull)
{
	claim_then_pull(world, 5, -1);
}

/* A pull that is less urgent than its ticket takes nothing from it. */
ROOM_TEST(claim_keeps_the_urgency_of_its_first_request)
{
	claim_then_pull(world, -1, 5);
}

/* Between these polls pulls are not seen to wait: they are looked at too late. */
FULL_ROOM_TEST(release_of_an_urgent_ticket_waits_for_all_pulls)
{
	uint32_t peer;

	world->priority = -5;
	world_claim(world, 1001, 1);
	world_pass(world, 5 * WORLD_MS);
	pull_waits(world, 9, INT32_MAX);
	pull_of(world, 11, 7);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 1001);
	world_pass(world, 5 * WORLD_MS);
	peer = peer_end(world, 5);
	world_pass(world, 50 * WORLD_MS);
	world_pass(world, 50 * WORLD_MS);
	assert_string_equal(world->peers[peer].address, "9-0");
	goes_to(world, 6, 11);
}
