/* SPDX-License-Identifier: Apache-2.0 */
/* How far a pull came, and when: what its poll record says of it. */
#include "tests/unit/worker/peer.h"

#define KEY 1u
#define SERIAL 101u

/* A pull from two ranks; a millisecond passes before each phase. */
static void pull_until_read(struct world *world)
{
	world->check_code = 0;
	world_claim(world, SERIAL, 2);
	world_pull(world, KEY, SERIAL, KVPULL_FLAG_READY);
	world_pass(world, WORLD_MS); /* begun */
	(void)world_up(world, "1-0", 0, 2);
	world->now_ns += WORLD_MS;
	(void)world_up(world, "1-1", 1, 2); /* connected */
	world->now_ns += WORLD_MS;
	world->entry.ready = SERIAL;
	world_done(world, 0, 0);
	world_done(world, 1, 0); /* written: asked */
	world->now_ns += WORLD_MS;
	world_done(world, 0, 0);
}

static const struct kvpull_poll_record *record_of(const struct world *world,
						  uint32_t kind)
{
	assert_int_equal(world->record_count, 1);
	assert_int_equal(world->records[0].kind, kind);
	return &world->records[0];
}

static void failed_with(const struct world *world, const char *text)
{
	(void)record_of(world, KVPULL_POLL_FAILED);
	warned(world, text);
}

/* At its deadline. */
static void late_with(struct world *world, const char *text)
{
	world_pass(world, 501 * WORLD_MS);
	failed_with(world, text);
}

WORLD_TEST(loaded_pull_says_when_it_reached_each_phase)
{
	const struct kvpull_poll_record *record;

	pull_until_read(world);
	world->now_ns += WORLD_MS;
	world_done(world, 1, 0); /* the last byte */
	world->now_ns += WORLD_MS;
	world_done(world, 0, 0);
	world_done(world, 1, 0); /* checked */
	record = record_of(world, KVPULL_POLL_LOADED);
	assert_int_equal(record->begun_ns, WORLD_MS);
	assert_int_equal(record->connected_ns, 2 * WORLD_MS);
	assert_int_equal(record->asked_ns, 3 * WORLD_MS);
	assert_int_equal(record->came_ns, 5 * WORLD_MS);
	assert_int_equal(record->took_ns, 6 * WORLD_MS);
}

static void ranks_up(struct world *world)
{
	assert_int_equal(world_up(world, "1-0", 0, 2), 0);
	assert_int_equal(world_up(world, "1-1", 1, 2), 1);
}

/* The second one takes the place of the first, which had a part more. */
WORLD_TEST(pull_counts_for_the_peers_that_it_read)
{
	const struct kvpull_status_peer *rows;
	uint32_t at;

	world->read_code = world->check_code = 1;
	claim_pull(world, KEY, SERIAL, 2, KVPULL_FLAG_RELEASE);
	ranks_up(world);
	world_poll(world, 2);
	loaded(world, KEY);
	claim_pull(world, KEY + 1, 2 * SERIAL - 1, 1, KVPULL_FLAG_RELEASE);
	assert_int_equal(world_up(world, "2-0", 0, 1), 2);
	world_poll(world, 2);
	loaded(world, KEY + 1);
	rows = world->worker->facts.status->peers;
	for (at = 0; at < 3; at++)
		assert_int_equal(kvpull_status_get(&rows[at].pulls), 1);
}

WORLD_TEST(failed_pull_says_how_far_it_came)
{
	const struct kvpull_poll_record *record;

	pull_until_read(world);
	world->now_ns += WORLD_MS;
	world_done(world, 1, KVPULL_EPEER);
	record = record_of(world, KVPULL_POLL_FAILED);
	assert_int_equal(record->connected_ns, 2 * WORLD_MS);
	assert_int_equal(record->asked_ns, 3 * WORLD_MS);
	assert_int_equal(record->came_ns, 0);
	assert_int_equal(record->took_ns, 5 * WORLD_MS);
}

static void aborted_unconnected(struct world *world)
{
	const struct kvpull_poll_record *record;

	world->now_ns += WORLD_MS;
	abort_pull(world, KEY);
	record = record_of(world, KVPULL_POLL_FAILED);
	assert_int_equal(record->begun_ns, WORLD_MS);
	assert_int_equal(record->connected_ns, 0);
	assert_int_equal(record->asked_ns, 0);
	assert_int_equal(record->came_ns, 0);
}

WORLD_TEST(pull_without_a_peer_was_begun_and_not_connected)
{
	world_claim(world, SERIAL, 2);
	world_pull(world, KEY, SERIAL, 0);
	world_pass(world, WORLD_MS);
	aborted_unconnected(world);
}

/* The connection is cut for another pull's sake: the last beginning counts. */
WORLD_TEST(pull_that_begins_again_is_not_connected)
{
	pull_until_read(world);
	world_done(world, 1, 0);
	world_lost(world, world_peer_at(world, "1-0"), KVPULL_EABORTED);
	world_done(world, 1, 0);
	aborted_unconnected(world);
}

/* The line has request, age, reason, peer, route, and the hold at P. */
WORLD_TEST(failed_pull_is_a_line_that_names_both_sides)
{
	world->read_code = 0;
	pull_until_read(world);
	world->now_ns += WORLD_MS;
	world_done(world, 1, KVPULL_EPEER);
	(void)record_of(world, KVPULL_POLL_FAILED);
	assert_string_equal(
		world->lines.of[KVPULL_LOG_WARN],
		"pull of request cmpl-7 key 1 failed after 5 ms, waiting for the bytes: "
		"EPEER: the peer is gone: recompute, later pulls reconnect; "
		"peer P pid 77 by fake 1-0, slot 1 generation 101 of 000000000000a010");
}

WORLD_TEST(claim_is_a_line_that_names_the_request_and_its_hold)
{
	claim(world, SERIAL, 2);
	assert_non_null(strstr(
		world->lines.all,
		"ticket claimed for request cmpl-7: slot 1 generation 101 of "
		"000000000000a010, 2 ranks\n"));
}

WORLD_TEST(phase_is_told_where_a_pull_failed)
{
	claim_pull(world, KEY, SERIAL, 2, 0);
	late_with(world, " ms, waiting to connect: "
			 "EDEADLINE: ");
}

WORLD_TEST(pull_that_was_never_started_is_a_line_that_says_so)
{
	world_claim(world, SERIAL, 2);
	world_pull_command(world, KEY, SERIAL, 0);
	world_poll(world, 1);
	ranks_up(world);
	late_with(world, " ms, waiting for start_loads(), which this "
			 "engine has not called: EDEADLINE: ");
}

WORLD_TEST(phase_tells_what_became_of_the_last_try)
{
	world->connect_code = KVPULL_EAGAIN; /* out of descriptors here */
	claim_pull(world, KEY, SERIAL, 2, 0);
	late_with(world, " ms, waiting to connect (last try: EAGAIN): "
			 "EDEADLINE: ");
}

/* A producer that died fails all of its tickets: two lines, not one each. */
WORLD_TEST(pulls_that_fail_alike_share_a_line)
{
	const uint32_t warnings = world->lines.counts[KVPULL_LOG_WARN];
	uint32_t at;

	world_claim(world, SERIAL, 1);
	for (at = 0; at < 4; at++)
		world_pull(world, KEY + at, SERIAL, 0);
	world_poll(world, 1);
	assert_int_equal(world_up(world, "1-0", 0, 1), 0);
	world_poll(world, 1);
	world_lost(world, 0, KVPULL_EPEER);
	world->connect_code = KVPULL_EPEER;
	world_pass(world, 400 * WORLD_MS);
	world_pass(world, 100 * WORLD_MS);
	assert_int_equal(world->lines.counts[KVPULL_LOG_WARN], warnings + 1);
	warned(world, "pull of request ");
	world_pass(world, 1000 * WORLD_MS);
	assert_int_equal(world->lines.counts[KVPULL_LOG_WARN], warnings + 2);
	assert_string_equal(world->lines.of[KVPULL_LOG_WARN],
			    "3 more pulls from P 1-0 failed likewise: EPEER");
}

WORLD_TEST(refused_pull_is_a_line)
{
	pull(world, KEY, SERIAL, 0);
	failed_with(world, "pull of request cmpl-7 key 1 "
			   "refused: EEXPIRED: ");
}

/* The progress thread looks at the clock before the command comes. */
WORLD_TEST(pull_never_takes_less_than_no_time)
{
	world->read_code = 1;
	(void)claim_up(world, SERIAL);
	world->now_ns += 1000;
	world_pull(world, KEY, SERIAL, 0);
	(void)kvpull_progress_run(world->worker->progress, world->now_ns - 500);
	world_poll(world, 1);
	loaded(world, KEY);
	assert_in_range(world->records[0].took_ns, 0, 1000000);
}
