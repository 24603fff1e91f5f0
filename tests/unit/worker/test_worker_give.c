/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tickets that are given back by consumers that are not let in: what a producer
 * makes of the words, and when a consumer says them.
 */
#include "tests/unit/worker/holder.h"

#define FULL_TURNS 5u /* waits double from 10 ms to the longest, 160 */

/* ---- the producer ---- */

static struct kvpull_give_word word_of(const struct world *world, uint32_t slot,
				       uint64_t generation)
{
	return (struct kvpull_give_word){
		.slot = slot,
		.generation = generation,
		.tag = kvpull_ticket_tag(world->worker->secret, slot,
					 generation),
	};
}

/* A message of one word, into bytes[64]. */
static size_t message_put(uint8_t *bytes, struct kvpull_give_word word)
{
	static struct kvpull_give give;
	size_t byte_count;

	give.magic = KVPULL_GIVE_MAGIC;
	give.word_count = 1;
	give.words[0] = word;
	byte_count = kvpull_give_put(bytes, 64, &give);
	assert_int_not_equal(byte_count, 0);
	return byte_count;
}

/* A caller that says nothing else. */
static void give(struct world *world, uint32_t index,
		 struct kvpull_give_word word)
{
	struct kvpull_event *event = world_word(world, index);

	event->uid++; /* a user that is not let in */
	event->data_bytes =
		message_put(world->data[world->queue_count - 1], word);
	world_poll(world, 1);
}

static uint64_t counted(struct world *world, const char *name)
{
	union kvpull_worker_counts counts;
	uint32_t row;

	kvpull_worker_counts(world->worker, &counts);
	for (row = 0; row < kvpull_worker_counters.row_count; row++)
		if (!strcmp(kvpull_worker_counters.rows[row].name, name))
			return counts.values[row];
	fail_msg("no counter %s", name);
	return 0;
}

/* The first of two ranks of a consumer is let in. */
static struct world_caller *one_of_two(struct world *world, uint32_t index)
{
	const struct world_hello who = { .instance = 0x11,
					 .incarnation = 0x12,
					 .rank_count = 2 };

	return world_let_in(world, index, &who);
}

HELD_TEST(caller_that_is_not_let_in_gives_a_ticket_back)
{
	give(world, 0, word_of(world, SLOT, GENERATION));
	ended(world, KVPULL_END_GIVEN_BACK);
	/* Nothing answers, and no place is kept. */
	assert_int_equal(world->callers[0].closed, 1);
	assert_int_equal(world->callers[0].refused, 0);
	assert_int_equal(world->worker->progress->callers.all[0].state,
			 KVPULL_CALLER_FREE);
	assert_int_equal(counted(world, "holds_given_back"), 1);
	assert_int_equal(counted(world, "gives"), 1);
	assert_int_equal(counted(world, "consumers_refused"), 0);
	warned(world, "blocks are free");
}

/* A refused consumer may have thousands of them. */
WORLD_TEST(tickets_given_back_have_a_line_a_second)
{
	uint32_t at;

	for (at = 0; at < 4; at++) {
		const uint32_t before = world->lines.counts[KVPULL_LOG_WARN];

		world_hold(world, KEY + at, SLOT + at, GENERATION + at);
		if (at == 3)
			world->now_ns += KVPULL_NS_PER_S;
		give(world, 0, word_of(world, SLOT + at, GENERATION + at));
		assert_int_equal(world->lines.counts[KVPULL_LOG_WARN] - before,
				 at % 3 == 0);
	}
	warned(world, "those of 2 requests more");
}

HELD_TEST(route_hands_over_what_callers_without_a_place_give_back)
{
	uint8_t bytes[64];
	size_t byte_count;

	byte_count = message_put(bytes, word_of(world, SLOT, GENERATION));
	kvpull_serve_given(world->worker->progress, bytes, byte_count - 1);
	world_poll(world, 1);
	world_silent(world, KEY);
	kvpull_serve_given(world->worker->progress, bytes, byte_count);
	world_poll(world, 1);
	ended(world, KVPULL_END_GIVEN_BACK);
}

WORLD_TEST(words_with_wrong_tags_slots_and_old_ones_are_counted)
{
	struct kvpull_give_word word = word_of(world, SLOT, GENERATION);

	hold(world);
	word.tag ^= 1;
	give(world, 0, word);
	give(world, 0, word_of(world, world->config.max_holds, GENERATION));
	assert_int_equal(counted(world, "gives_bad"), 2);
	world_silent(world, KEY);
	give(world, 0, word_of(world, SLOT, GENERATION));
	give(world, 0, word_of(world, SLOT, GENERATION));
	give(world, 0, word_of(world, SLOT, GENERATION - 1));
	assert_int_equal(counted(world, "gives_old"), 2);
	assert_int_equal(counted(world, "gives"), 1);
	ended(world, KVPULL_END_GIVEN_BACK);
}

WORLD_TEST(ticket_given_back_before_the_hold_is_known_ends_it_when_it_comes)
{
	give(world, 0, word_of(world, SLOT, GENERATION));
	world_poll(world, 2);
	hold(world);
	world_poll(world, 1);
	ended(world, KVPULL_END_GIVEN_BACK);
}

WORLD_TEST(claim_said_before_the_mark_keeps_the_hold_until_its_release)
{
	struct world_caller *caller = one_of_two(world, 1);

	hold(world);
	say(world, caller, KVPULL_NOTE_CLAIM);
	give(world, 0, word_of(world, SLOT, GENERATION));
	world_poll(world, 2);
	world_silent(world, KEY);
	tell(world, caller, KVPULL_NOTE_RELEASE);
	/* The second rank of that consumer never came. */
	ended(world, KVPULL_END_GIVEN_BACK);
}

WORLD_TEST(other_ranks_take_the_end_of_one_as_a_mark)
{
	struct world_caller *caller = one_of_two(world, 1);
	const struct kvpull_command mark =
		end_of(GENERATION, KVPULL_END_GIVEN_BACK);

	hold(world);
	tell(world, caller, KVPULL_NOTE_CLAIM);
	world_send(world, &mark, 1);
	world_poll(world, 1);
	world_silent(world, KEY);
	tell(world, caller, KVPULL_NOTE_RELEASE);
	ended(world, KVPULL_END_GIVEN_BACK);
}

HELD_TEST(consumer_that_was_let_in_gives_nothing_back_by_its_call)
{
	struct kvpull_event *event;

	(void)one_of_two(world, 1);
	event = world_event(world, KVPULL_EVENT_CALLER_MESSAGE, 1);
	event->data_bytes = message_put(world->data[world->queue_count - 1],
					word_of(world, SLOT, GENERATION));
	world_poll(world, 2);
	world_silent(world, KEY);
	assert_int_equal(counted(world, "gives"), 0);
}

/* ---- the consumer ---- */

static void released(struct world *world, uint64_t serial)
{
	world_command(world, KVPULL_COMMAND_RELEASE, 0, serial);
	/* Peers have their turn before tickets in each. */
	world_poll(world, 2);
}

static void refused(struct world *world, const char *address, int code)
{
	const uint32_t peer = world_peer_at(world, address);

	world_challenge(world, peer);
	world_refuse(world, peer, code);
	world_down(world, peer);
	world_poll(world, 1);
}

static void answered(struct world *world, uint32_t peer, int code)
{
	world_event(world, KVPULL_EVENT_PEER_DOWN, peer)->code = code;
	world->peers[peer].used = 0;
	world_poll(world, 1);
}

/* The call ends as the route says. */
static void heard(struct world *world, const char *address, int code)
{
	answered(world, world_peer_at(world, address), code);
	world_poll(world, 1);
}

/* The call that is heard was the last one owed. */
static void all_heard(struct world *world, const char *address)
{
	heard(world, address, 0);
	assert_int_equal(world->worker->claims.map.count, 0);
}

static void gave(const struct world *world, uint32_t at, uint64_t serial,
		 uint32_t rank)
{
	assert_in_range(at, 0, world->give.word_count - 1);
	assert_int_equal(world->give.words[at].slot, serial % 100);
	assert_int_equal(world->give.words[at].generation, serial);
	assert_int_equal(world->give.words[at].tag, serial * 10 + rank);
}

/* So many calls were made; the first word of the last one is this. */
static void gave_one(const struct world *world, uint32_t calls, uint64_t serial,
		     uint32_t rank)
{
	assert_int_equal(world->gives, calls);
	gave(world, 0, serial, rank);
}

/* A claim of ticket 101, whose one rank refuses it. */
static void claim_refused(struct world *world, int code)
{
	claim(world, 101, 1);
	refused(world, "1-0", code);
}

WORLD_TEST(refused_consumer_gives_its_ticket_back_at_once)
{
	claim_pull(world, 9, 101, 1, 0);
	refused(world, "1-0", KVPULL_EREJECTED);
	failed(world, 9, KVPULL_EREJECTED);
	world_poll(world, 1);
	/* Requests that wait in the engine's queue are not waited for. */
	assert_int_equal(world->gives, 1);
	assert_int_equal(world->give.word_count, 1);
	gave(world, 0, 101, 0);
	heard(world, "1-0", 0);
	assert_int_equal(counted(world, "gives_said"), 1);
	assert_int_equal(world->worker->claims.map.count, 1);
	warned(world, "were given back");
	warned(world, "cmpl-7");
	/* Such a request is told why when its turn comes. */
	world_pull(world, 10, 101, 0);
	world_poll(world, 2);
	failed(world, 10, KVPULL_EREJECTED);
	released(world, 101);
	assert_int_equal(world->gives, 1);
	assert_int_equal(world->worker->claims.map.count, 0);
	assert_int_equal(counted(world, "releases_queued"), 0);
}

WORLD_TEST(ticket_is_given_back_while_its_request_waits_in_a_queue)
{
	world_claim(world, 101, 1);
	claim(world, 102, 1);
	refused(world, "1-0", KVPULL_EREJECTED);
	world_poll(world, 1);
	assert_int_equal(world->gives, 1);
	assert_int_equal(world->give.word_count, 2);
	heard(world, "1-0", 0);
	assert_int_equal(counted(world, "gives_said"), 2);
}

WORLD_TEST(
	ticket_that_was_given_back_is_not_pulled_from_a_producer_that_takes_us_now)
{
	claim_refused(world, KVPULL_EREJECTED);
	world_poll(world, 1);
	heard(world, "1-0", 0);
	world_pass(world, 1100 * WORLD_MS);
	(void)claim_up(world, 102);
	world_pull(world, 9, 101, 0);
	world_poll(world, 2);
	failed(world, 9, KVPULL_EREJECTED);
}

WORLD_TEST(each_rank_that_refuses_gets_its_own_word)
{
	claim(world, 101, 2);
	(void)world_up(world, "1-0", 0, 2);
	refused(world, "1-1", KVPULL_EREJECTED);
	released(world, 101);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 1);
	gave_one(world, 1, 101, 1);
	all_heard(world, "1-1");
}

WORLD_TEST(more_tickets_than_a_call_takes_go_by_the_next_one)
{
	uint64_t serial;

	for (serial = 101; serial <= 105; serial++)
		world_claim(world, serial, 1);
	world_poll(world, 1);
	refused(world, "1-0", KVPULL_EAUTH);
	for (serial = 101; serial <= 105; serial++)
		world_command(world, KVPULL_COMMAND_RELEASE, 0, serial);
	world_poll(world, 2);
	assert_int_equal(world->give.word_count, WORLD_GIVES);
	gave(world, 0, 101, 0);
	gave(world, 2, 103, 0);
	heard(world, "1-0", 0);
	assert_int_equal(world->gives, 2);
	assert_int_equal(world->give.word_count, 2);
	gave(world, 0, 104, 0);
	gave(world, 1, 105, 0);
	all_heard(world, "1-0");
	assert_int_equal(counted(world, "gives_said"), 5);
}

/* A claim of ticket 101 is refused, so a call gives the ticket back. */
static void give_begin(struct world *world)
{
	claim_refused(world, KVPULL_EVERSION);
	released(world, 101);
}

WORLD_TEST(call_that_was_not_heard_is_made_again)
{
	give_begin(world);
	assert_int_equal(world->gives, 1);
	heard(world, "1-0", KVPULL_EAGAIN);
	assert_int_equal(world->worker->claims.map.count, 1);
	world_pass(world, 20 * WORLD_MS);
	gave_one(world, 2, 101, 0);
	all_heard(world, "1-0");
}

/* A call of ours that ends at its deadline: the route says that of any peer. */
static void late(struct world *world)
{
	const uint32_t peer = world_peer_at(world, "1-0");

	world_pass(world, world->config.connect_ms * WORLD_MS);
	assert_int_equal(world->peers[peer].disconnected, 1);
	heard(world, "1-0", KVPULL_EPEER);
}

WORLD_TEST(call_that_is_answered_too_late_is_made_again)
{
	give_begin(world);
	late(world);
	assert_int_equal(world->worker->claims.map.count, 1);
	world_pass(world, 20 * WORLD_MS);
	gave_one(world, 2, 101, 0);
	all_heard(world, "1-0");
	assert_int_equal(counted(world, "gives_said"), 1);
}

/* Calls go on as long as the ticket may be live, and no longer. */
WORLD_TEST(call_that_is_never_answered_is_given_up_with_the_ticket)
{
	uint32_t times = 0;

	give_begin(world);
	while (world->worker->claims.map.count) {
		const uint32_t gives = world->gives;

		assert_true(times < 100);
		late(world);
		times++;
		world_pass(world, 200 * WORLD_MS);
		assert_int_equal(world->gives - gives,
				 world->worker->claims.map.count);
	}
	assert_true(times > 1);
	assert_int_equal(counted(world, "gives_said"), 0);
}

WORLD_TEST(call_to_a_producer_that_is_not_there_is_given_up)
{
	give_begin(world);
	heard(world, "1-0", KVPULL_EPEER);
	assert_int_equal(world->worker->claims.map.count, 0);
	assert_int_equal(counted(world, "gives_said"), 0);
}

WORLD_TEST(claim_that_comes_during_a_call_that_gives_back_is_said_after_it)
{
	claim_refused(world, KVPULL_EREJECTED);
	/* From then on a claim calls the producer again. */
	world_pass(world, 1100 * WORLD_MS);
	released(world, 101);
	assert_int_equal(world->gives, 1);
	claim(world, 102, 1);
	heard(world, "1-0", 0);
	assert_int_equal(world_is_connected(world, "1-0"), 1);
	refused(world, "1-0", KVPULL_EREJECTED);
	released(world, 102);
	gave_one(world, 2, 102, 0);
	all_heard(world, "1-0");
}

WORLD_TEST(another_incarnation_is_given_nothing_back)
{
	claim_refused(world, KVPULL_EPEER);
	released(world, 101);
	assert_int_equal(world->worker->claims.map.count, 0);
	assert_int_equal(world->gives, 0);
}

WORLD_TEST(consumer_that_refuses_a_welcome_says_why_and_gives_its_ticket_back)
{
	struct kvpull_welcome welcome;
	uint32_t peer;

	claim(world, 101, 1);
	peer = greeted(world, "1-0", 0, 1, &welcome);
	welcome.caches[0].head_bytes *= 2;
	world_welcome_send(world, peer, &welcome);
	assert_int_equal(world->peers[peer].refusal.code, KVPULL_EREJECTED);
	assert_non_null(strstr(world->peers[peer].refusal.field, "memory ("));
	assert_int_equal(world->peers[peer].disconnected, 1);
	world_down(world, peer);
	released(world, 101);
	gave_one(world, 1, 101, 0);
	all_heard(world, "1-0");
}

/* The producer answers each call that it is full, until the waits are longest. */
static void stays_full(struct world *world)
{
	uint32_t turn;

	for (turn = 0; turn < FULL_TURNS; turn++) {
		const uint32_t peer = world_peer_at(world, "1-0");

		/* A full producer may have room the next time. */
		assert_int_equal(world->gives, 0);
		answered(world, peer, KVPULL_EFULL);
		if (turn + 1 < FULL_TURNS)
			world_pass(world, 200 * WORLD_MS);
	}
	world_poll(world, 1);
}

WORLD_TEST(ticket_of_a_producer_that_stays_full_is_given_back)
{
	uint32_t connects;

	claim(world, 101, 1);
	released(world, 101);
	stays_full(world);
	gave_one(world, 1, 101, 0);
	/* The producer has one call of ours at a time. */
	connects = world->connects;
	world_pass(world, 200 * WORLD_MS);
	assert_int_equal(world->connects, connects);
	all_heard(world, "1-0");
}

WORLD_TEST(ticket_of_a_full_producer_is_kept_while_its_request_waits)
{
	claim(world, 101, 1);
	stays_full(world);
	world_pass(world, 200 * WORLD_MS);
	assert_int_equal(world->gives, 0);
	(void)world_up(world, "1-0", 0, 1);
	assert_int_equal(world_notes(world, KVPULL_NOTE_CLAIM), 1);
}

/* The hold waits for that rank's own release, which D keeps to say. */
WORLD_TEST(claim_that_a_full_producer_has_heard_is_released_not_given_back)
{
	uint32_t peer;
	uint32_t turn;

	peer = claim_up(world, 101);
	assert_int_equal(world_notes(world, KVPULL_NOTE_CLAIM), 1);
	world_down(world, peer);
	released(world, 101);
	for (turn = 0; turn < 2 * FULL_TURNS; turn++) {
		world_pass(world, 20 * WORLD_MS);
		peer = world_peer_at(world, "1-0");
		answered(world, peer, KVPULL_EFULL);
		world_pass(world, 200 * WORLD_MS);
	}
	assert_int_equal(world->gives, 0);
	(void)world_up(world, "1-0", 0, 1);
	world_poll(world, 1);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 1);
	assert_int_equal(world->worker->claims.map.count, 0);
}
