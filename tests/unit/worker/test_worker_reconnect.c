/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker as consumer: which peers it connects to again, and when, and what
 * it does when there is no place for one more.
 */
#include "tests/unit/worker/peer.h"

/* Up, and nobody's any more. */
static void peer_unused(struct world *world, uint32_t producer)
{
	const uint64_t serial = producer * 100 + 1;
	char address[8];

	(void)snprintf(address, sizeof(address), "%u-0", producer);
	claim(world, serial, 1);
	(void)world_up(world, address, 0, 1);
	release(world, serial);
}

/* As many as there is room for. */
static void peers_unused(struct world *world, uint32_t first)
{
	uint32_t producer;

	for (producer = first; producer < first + WORLD_PEERS; producer++)
		peer_unused(world, producer);
}

/* The connection to producer 1 ends, and time passes. */
static void first_goes(struct world *world, uint64_t ns)
{
	world_down(world, world_peer_at(world, "1-0"));
	world_pass(world, ns);
}

#define UNUSED_TEST(name) WORLD_TEST_AFTER(name, peers_unused(world, 1))

UNUSED_TEST(unused_peer_makes_room_for_another)
{
	uint32_t producer;

	claim(world, 901, 1);
	/* There is room, soon: nothing has to be said. */
	assert_string_equal(world->lines.of[KVPULL_LOG_WARN], "");
	pull(world, 9, 901, 0);
	world_pass(world, 20 * WORLD_MS);
	/* The longest unused, and no other one, once. */
	for (producer = 0; producer < WORLD_PEERS; producer++)
		assert_int_equal(world->peers[producer].disconnected != 0,
				 producer == 0);
	assert_int_equal(world_notes(world, KVPULL_NOTE_AWAY), 1);
	first_goes(world, 5 * WORLD_MS);
	assert_false(world_is_connected(world, "1-0"));
	(void)world_up(world, "9-0", 0, 1);
	assert_int_equal(world->notes[world->note_count - 1].generation, 901);
	assert_int_equal(world->read_starts, 1);
	world_done(world, 0, 0);
	loaded(world, 9);
	assert_int_equal(world->lines.counts[KVPULL_LOG_ERROR], 0);
}

/*
 * Without the word the peer would take us for dead, and end our siblings'
 * claims.
 */
UNUSED_TEST(peer_hears_that_we_make_room_before_its_connection_ends)
{
	const struct kvpull_record away = { .kind = KVPULL_NOTE_AWAY };

	/*
	 * The peer's ring is full: it is tried again, and the connection is
	 * kept until then.
	 */
	world->notify_code = KVPULL_EAGAIN;
	world_claim(world, 901, 1);
	world_pass(world, 200 * WORLD_MS);
	assert_int_equal(world->peers[0].disconnected, 0);
	world->notify_code = 0;
	world->notes_open = 1;
	world_pass(world, 20 * WORLD_MS);
	assert_int_equal(world_notes(world, KVPULL_NOTE_AWAY), 1);
	assert_memory_equal(&world->notes[world->note_count - 1], &away,
			    sizeof(away));
	assert_int_equal(world->peers[0].disconnected, 0);
	world->notes_open = 0;
	world_pass(world, WORLD_MS);
	assert_int_not_equal(world->peers[0].disconnected, 0);
}

/* After the word AWAY a peer may ignore further notes. */
UNUSED_TEST(nothing_is_claimed_of_a_peer_that_was_told_that_we_go)
{
	world->notes_open = 1;
	world_claim(world, 901, 1);
	world_poll(world, 2);
	assert_int_equal(world_notes(world, KVPULL_NOTE_AWAY), 1);
	world_claim(world, 102, 1);
	world_pass(world, 90 * WORLD_MS);
	assert_int_equal(world->notes[world->note_count - 1].kind,
			 KVPULL_NOTE_AWAY);
	world_pass(world, 20 * WORLD_MS);
	first_goes(world, 20 * WORLD_MS);
	(void)world_up(world, "1-0", 0, 1);
	assert_int_equal(world->notes[world->note_count - 1].generation, 102);
}

/* A stopped peer reads the word when it goes on. */
UNUSED_TEST(peer_that_does_not_hear_that_we_go_is_left)
{
	world->notes_open = 1;
	world_claim(world, 901, 1);
	world_poll(world, 2);
	world_pass(world, 90 * WORLD_MS);
	assert_int_equal(world->peers[0].disconnected, 0);
	world_pass(world, 20 * WORLD_MS);
	assert_int_not_equal(world->peers[0].disconnected, 0);
	assert_int_equal(world_notes(world, KVPULL_NOTE_AWAY), 1);
}

/* The worker claims what its siblings claimed meanwhile: it is no successor. */
UNUSED_TEST(peer_that_made_room_knows_us_again)
{
	uint64_t self;
	uint32_t producer;
	uint32_t peer;

	self = world->peers[0].hello.incarnation;
	for (producer = WORLD_PEERS + 1; producer <= 2 * WORLD_PEERS;
	     producer++) {
		world_claim(world, producer * 100 + 1, 1);
		world_pass(world, 20 * WORLD_MS);
		world_down(world, (producer - 1) % WORLD_PEERS);
		world_pass(world, 5 * WORLD_MS);
		peer_unused(world, producer);
	}
	world_claim(world, 102, 1);
	world_pass(world, 20 * WORLD_MS);
	world_down(world, 0);
	world_pass(world, 5 * WORLD_MS);
	peer = world_peer_at(world, "1-0");
	world_challenge(world, peer);
	assert_int_equal(world->peers[peer].hello.incarnation, self);
}

static void pulled_from(struct world *world, const char *address, uint64_t key)
{
	(void)world_up(world, address, 0, 1);
	world_poll(world, 1);
	world_done(world, 0, 0);
	loaded(world, key);
}

/* Out of descriptors, for one: that passes, and says nothing of the peer. */
WORLD_TEST(route_that_cannot_tell_is_asked_again)
{
	world->reachable_code = KVPULL_EAGAIN;
	world_claim(world, 101, 1);
	world_pull(world, 9, 101, 0);
	world_pass(world, 20 * WORLD_MS);
	world_silent(world, 9);
	assert_false(world_is_connected(world, "1-0"));
	world->reachable_code = 0;
	world_pass(world, 5 * WORLD_MS);
	world_pass(world, WORLD_MS);
	pulled_from(world, "1-0", 9);
}

static uint64_t greeted_as(struct world *world)
{
	const uint32_t peer = world_peer_at(world, "1-0");

	world_challenge(world, peer);
	return world->peers[peer].hello.incarnation;
}

static void first_is_given_up(struct world *world)
{
	uint32_t rounds;

	world->connect_code = KVPULL_EPEER;
	world_down(world, world_peer_at(world, "1-0"));
	for (rounds = 0; rounds < 10; rounds++)
		world_pass(world, 500 * WORLD_MS);
	world->connect_code = 0;
}

/*
 * The claims at this peer are given up, and the peer may live. It renews our
 * claims as long as it knows us.
 */
WORLD_TEST(peer_that_was_given_up_knows_us_as_another)
{
	uint64_t first;
	uint64_t second;

	claim(world, 101, 1);
	first = greeted_as(world);
	/* A flap: it is the same one that comes back. */
	first_goes(world, 20 * WORLD_MS);
	assert_int_equal(greeted_as(world), first);
	first_is_given_up(world);
	claim(world, 102, 1);
	second = greeted_as(world);
	assert_int_not_equal(second, first);
	assert_int_not_equal(second, 0);
}

/* Also when its place was another's meanwhile. */
WORLD_TEST(peer_that_was_given_up_and_forgotten_knows_us_as_another)
{
	uint64_t first;

	claim(world, 101, 1);
	first = greeted_as(world);
	first_is_given_up(world);
	peers_unused(world, 2);
	world_claim(world, 102, 1);
	world_pass(world, 20 * WORLD_MS);
	world_down(world, world_peer_at(world, "2-0"));
	world_pass(world, 5 * WORLD_MS);
	assert_int_not_equal(greeted_as(world), first);
}

static void not_greeted(struct world *world, uint32_t peer)
{
	assert_int_equal(world->peers[peer].disconnected, 1);
	assert_int_equal(world->peers[peer].hello.wanted, 0);
	world_down(world, peer);
	world_pass(world, 20 * WORLD_MS);
	failed(world, 9, KVPULL_EAUTH);
}

/* Another process may have bound the name of a producer that ended. */
WORLD_TEST(producer_of_a_user_that_is_not_allowed_is_not_greeted)
{
	uint32_t peer;

	claim_pull(world, 9, 101, 1, 0);
	peer = world_peer_at(world, "1-0");
	world->peer_uid = world->config.uids[0] + 1;
	world_challenge(world, peer);
	not_greeted(world, peer);
}

/* In a user namespace that maps not all users, one uid is many of them. */
WORLD_TEST(producer_who_may_be_anybody_is_not_greeted)
{
	uint32_t peer;

	claim_pull(world, 9, 101, 1, 0);
	peer = world_peer_at(world, "1-0");
	world->worker->facts.config.has_unknown_users = 1;
	world->worker->facts.config.unknown_uid = world->peer_uid;
	world_challenge(world, peer);
	warned(world, "is not asked: its user");
	not_greeted(world, peer);
}

static void busy_round(struct world *world)
{
	const uint32_t peer = world_peer_at(world, "1-0");

	world_challenge(world, peer);
	world_refuse(world, peer, KVPULL_EAGAIN);
	assert_int_equal(world->peers[peer].disconnected, 1);
	world_down(world, peer);
	world_pass(world, 200 * WORLD_MS);
}

/* The peer has not handled the end of our last connection yet: try again. */
WORLD_TEST(busy_peer_is_asked_until_it_is_ready)
{
	uint32_t attempt;

	claim(world, 101, 1);
	for (attempt = 0; attempt < 2 * KVPULL_RETRY_ATTEMPTS_MAX; attempt++)
		busy_round(world);
	(void)world_up(world, "1-0", 0, 1);
	assert_int_equal(world_notes(world, KVPULL_NOTE_CLAIM), 1);
}

/* A connection that breaks soon after its welcome is one more attempt. */
WORLD_TEST(peer_that_lets_us_in_and_hangs_up_is_given_up)
{
	uint32_t attempt;

	claim(world, 101, 1);
	for (attempt = 0; attempt <= KVPULL_RETRY_ATTEMPTS_MAX; attempt++) {
		(void)world_up(world, "1-0", 0, 1);
		world_pass(world, (world->config.connect_ms - 1) * WORLD_MS);
		first_goes(world, 320 * WORLD_MS);
	}
	assert_false(world_is_connected(world, "1-0"));
	assert_int_equal(world->worker->progress->claims.all[0].open_count, 0);
}

WORLD_TEST(peer_that_stayed_up_for_connect_ms_has_all_its_attempts_again)
{
	uint32_t attempt;

	claim(world, 101, 1);
	for (attempt = 0; attempt < 3 * KVPULL_RETRY_ATTEMPTS_MAX; attempt++) {
		(void)world_up(world, "1-0", 0, 1);
		world_pass(world, world->config.connect_ms * WORLD_MS);
		first_goes(world, 0);
	}
	assert_true(world_is_connected(world, "1-0"));
}

/* No release can be sent, and the ticket cannot be given back either. */
WORLD_TEST(release_at_a_busy_peer_ends_at_its_lease)
{
	uint32_t rounds = 0;

	world->give_code = KVPULL_EAGAIN;
	claim(world, 101, 1);
	busy_round(world);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 101);
	while (world->worker->claims.map.count) {
		busy_round(world);
		/* Each round takes 200 ms, and a lease is 3 s. */
		assert_in_range(++rounds, 1, 32);
	}
	assert_in_range(rounds, 14, 18);
	assert_true(world->gives > 0);
	/*
	 * No ticket needs the peer any more: it is left alone until one does.
	 */
	world_poll(world, 1);
	if (world_is_connected(world, "1-0"))
		busy_round(world);
	world_pass(world, 1000 * WORLD_MS);
	assert_false(world_is_connected(world, "1-0"));
	(void)claim_up(world, 102);
}

static void busy_for_two_seconds(struct world *world, int code)
{
	const uint32_t connects = world->connects;
	uint32_t ms;

	world->connect_code = code;
	for (ms = 0; ms < 2000; ms++)
		world_pass(world, WORLD_MS);
	assert_in_range(world->connects - connects, 10, 20);
}

/* Calls of a full peer are at last 160 ms apart, also for our own ENOMEM. */
WORLD_TEST(busy_peer_is_asked_less_and_less)
{
	world_claim(world, 101, 1);
	busy_for_two_seconds(world, KVPULL_EFULL);
	busy_for_two_seconds(world, KVPULL_ENOMEM);
	busy_for_two_seconds(world, KVPULL_EAGAIN);
	world->connect_code = 0;
	world_pass(world, 200 * WORLD_MS);
	(void)world_up(world, "1-0", 0, 1);
}

static void welcome_and_go(struct world *world, uint32_t peer,
			   const struct kvpull_welcome *welcome)
{
	world_welcome_send(world, peer, welcome);
	world_down(world, peer);
}

/* EFULL of kvpull_plan_make() never passes: it must not be waited for. */
WORLD_TEST(peer_of_more_strips_than_a_plan_has_is_given_up)
{
	struct kvpull_welcome welcome;
	uint32_t peer;

	claim_pull(world, 9, 101, 1, 0);
	peer = world_peer_at(world, "1-0");
	world->worker->progress->remotes.all[0].plan.strip_count_max = 0;
	world_challenge(world, peer);
	world_welcome_fill(world, peer, 0, 1, &welcome);
	welcome_and_go(world, peer, &welcome);
	world_pass(world, 1000 * WORLD_MS);
	/* The one call since then gives the ticket back. */
	assert_int_equal(world->connects, 1);
	assert_int_equal(world->gives, 1);
	failed(world, 9, KVPULL_EUNSUPPORTED);
}

/* The connection ended between its welcome and the use of it. */
WORLD_TEST(connection_lost_in_its_welcome_is_no_refusal)
{
	struct kvpull_welcome welcome;
	uint32_t peer;

	claim(world, 101, 1);
	peer = world_peer_at(world, "1-0");
	world->attach_code = KVPULL_EPEER;
	world_challenge(world, peer);
	world_welcome_fill(world, peer, 0, 1, &welcome);
	welcome_and_go(world, peer, &welcome);
	world->attach_code = 0;
	world_pass(world, 20 * WORLD_MS);
	(void)world_up(world, "1-0", 0, 1);
	assert_int_equal(world_notes(world, KVPULL_NOTE_CLAIM), 1);
}

WORLD_TEST(handshake_that_takes_longer_than_connect_ms_is_cut)
{
	uint32_t answers;
	uint32_t peer;

	claim(world, 101, 1);
	for (answers = 0; answers < 2; answers++) {
		peer = world_peer_at(world, "1-0");
		if (answers)
			world_challenge(world, peer);
		world_pass(world, (world->config.connect_ms - 1) * WORLD_MS);
		assert_int_equal(world->peers[peer].disconnected, 0);
		world_pass(world, 2 * WORLD_MS);
		assert_int_not_equal(world->peers[peer].disconnected, 0);
		world_down(world, peer);
		world_pass(world, 10 * WORLD_MS);
	}
}

/* A shortage would be called for ever. */
WORLD_TEST(peer_that_goes_in_each_welcome_is_given_up)
{
	const struct kvpull_peer *remote =
		&world->worker->progress->remotes.all[0].peer;
	struct kvpull_welcome welcome;
	uint32_t calls;
	uint32_t peer;

	world_claim(world, 101, 1);
	world->attach_code = KVPULL_EPEER;
	for (calls = 0; calls <= KVPULL_RETRY_ATTEMPTS_MAX; calls++) {
		assert_int_not_equal(remote->state, KVPULL_PEER_GONE);
		world_pass(world, KVPULL_RETRY_NS << calls);
		peer = greeted(world, "1-0", 0, 1, &welcome);
		welcome_and_go(world, peer, &welcome);
	}
	assert_int_equal(remote->state, KVPULL_PEER_GONE);
}

/* The peer was away for a while, and no pull missed it. */
WORLD_TEST(lost_peer_is_connected_again_at_the_next_pull)
{
	(void)claim_up(world, 101);
	world->connect_code = KVPULL_EPEER;
	first_goes(world, 20 * WORLD_MS);
	/* The heartbeats are over: the last ticket of this peer is gone. */
	world->now_ns += 7000 * WORLD_MS;
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 101);
	world_poll(world, 3);
	world->connect_code = 0;
	world_claim(world, 102, 1);
	world_pull(world, 7, 102, KVPULL_FLAG_RELEASE);
	world_poll(world, 2);
	world_silent(world, 7);
	world_pass(world, 1000 * WORLD_MS / 8);
	pulled_from(world, "1-0", 7);
}

/* A later ticket of producer 1, which names where it listens now. */
static void claim_at(struct world *world, uint64_t serial, const char *address)
{
	struct kvpull_ticket_rank rank = { .incarnation = 0xa000 + 16,
					   .tag = serial * 10 };
	const struct kvpull_command command = {
		.kind = KVPULL_COMMAND_CLAIM,
		.slot = (uint32_t)(serial % 100),
		.generation = serial,
		.rank_count = 1,
		.ticket_serial = serial,
		.ranks = &rank,
		.label = "cmpl-8",
	};

	(void)snprintf(rank.address, sizeof(rank.address), "%s", address);
	world_send(world, &command, 1);
}

/* Claimed by one ticket and pulled, then nobody is there any more. */
static void peer_leaves(struct world *world)
{
	uint32_t rounds;

	(void)claim_up(world, 101);
	release(world, 101);
	world_down(world, world_peer_at(world, "1-0"));
	for (rounds = 0; rounds < 30; rounds++)
		world_pass(world, 1000 * WORLD_MS);
}

#define LEFT_TEST(name) WORLD_TEST_AFTER(name, peer_leaves(world))

/* A pull of that ticket, and what the worker calls for its sake. */
static void calls_for(struct world *world, uint64_t key, uint64_t serial)
{
	world_pull(world, key, serial, KVPULL_FLAG_RELEASE);
	world_poll(world, 2);
	world_pass(world, 20 * WORLD_MS);
}

/* The peer's worker lives on, and listens elsewhere: its tickets say where. */
LEFT_TEST(peer_that_moved_is_called_where_its_tickets_say)
{
	claim_at(world, 102, "fake:1-moved");
	calls_for(world, 7, 102);
	assert_true(world_is_connected(world, "1-moved"));
	pulled_from(world, "1-moved", 7);
}

/* Nothing here leads to that address, or the ticket has none of this route. */
LEFT_TEST(peer_is_called_where_it_was_if_a_ticket_names_no_place_to_go)
{
	claim_at(world, 102, "fake:nowhere");
	claim_at(world, 103, "other:1-moved");
	calls_for(world, 7, 103);
	pulled_from(world, "1-0", 7);
}

/* A ticket from before it moved comes late: its hold is read at the new place. */
LEFT_TEST(peer_that_moved_is_not_called_where_an_older_ticket_says)
{
	claim_at(world, 104, "fake:1-moved");
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 104);
	claim_at(world, 103, "fake:1-0");
	calls_for(world, 7, 103);
	assert_true(world_is_connected(world, "1-moved"));
	assert_false(world_is_connected(world, "1-0"));
}

/* Every attempt at the peer at that address ends; the claim of 102 is there. */
static void peer_given_up(struct world *world, const char *place)
{
	char address[32];
	uint32_t tries;

	(void)snprintf(address, sizeof(address), "fake:%s", place);
	claim_at(world, 102, address);
	world_pull(world, 7, 102, KVPULL_FLAG_RELEASE);
	for (tries = 0; tries <= KVPULL_RETRY_ATTEMPTS_MAX; tries++) {
		world_pass(world, 700 * WORLD_MS);
		assert_true(world_is_connected(world, place));
		world_down(world, world_peer_at(world, place));
		world_poll(world, 2);
	}
}

/*
 * No peer is at the last ticket's address; the next ticket has the right one.
 */
LEFT_TEST(peer_that_was_given_up_is_called_at_once_where_it_is_now)
{
	peer_given_up(world, "1-nowhere");
	claim_at(world, 103, "fake:1-moved");
	world_pull(world, 8, 103, KVPULL_FLAG_RELEASE);
	world_poll(world, 3);
	assert_true(world_is_connected(world, "1-moved"));
}

/* Nobody is told of its end; its lease is far longer. */
LEFT_TEST(claim_at_a_peer_that_was_given_up_ends_at_once)
{
	peer_given_up(world, "1-0");
	claim_at(world, 103, "fake:1-0");
	world_pull(world, 8, 103, KVPULL_FLAG_RELEASE);
	world_poll(world, 3);
	assert_false(world_is_connected(world, "1-0"));
	failed(world, 8, KVPULL_EPEER);
	release(world, 103);
	assert_int_equal(world->worker->progress->counts->releases_queued, 0);
}

UNIT_TEST(every_reason_to_refuse_is_told)
{
	static const int32_t codes[] = { KVPULL_EAGAIN,    KVPULL_ENOMEM,
					 KVPULL_EPROTO,    KVPULL_EROUTE,
					 KVPULL_EREJECTED, KVPULL_EVERSION,
					 KVPULL_EAUTH,     KVPULL_EFULL,
					 KVPULL_EPEER };
	uint8_t bytes[512];
	size_t i;

	for (i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		const struct kvpull_refusal refusal = { .code = codes[i],
							.field = "admission" };
		struct kvpull_refusal got = { 0 };
		const size_t used = kvpull_handshake_put_refusal(
			bytes, sizeof(bytes), &refusal);

		assert_int_not_equal(used, 0);
		assert_int_equal(
			kvpull_handshake_get_refusal(bytes, used, &got), 0);
		assert_int_equal(got.code, codes[i]);
	}
}

/*
 * A forged ticket claims to be the newest of all, and no peer is at its
 * address.
 */
WORLD_TEST(forged_ticket_does_not_say_for_ever_where_a_peer_is)
{
	uint32_t rounds;

	(void)claim_up(world, 101);
	claim_at(world, 9999999, "fake:1-nowhere");
	world_poll(world, 2);
	world_down(world, world_peer_at(world, "1-0"));
	world_poll(world, 2);
	for (rounds = 0; rounds < 30 && !world_is_connected(world, "1-0");
	     rounds++) {
		world_claim(world, 102 + rounds, 1);
		world_pass(world, 1000 * WORLD_MS);
		if (world_is_connected(world, "1-nowhere"))
			world_down(world, world_peer_at(world, "1-nowhere"));
		release(world, 102 + rounds);
	}
	assert_true(world_is_connected(world, "1-0"));
}
