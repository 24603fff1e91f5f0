/* SPDX-License-Identifier: Apache-2.0 */
/* A pull's life: each of its states meets each event. */
#include "plugin/progress/progress_state.h"
#include "tests/unit/worker/peer.h"

#define KEY 1u
#define SERIAL 101u

static const char *const rank_names[2] = { "1-0", "1-1" };

static void both_up(struct world *world)
{
	(void)world_up(world, rank_names[0], 0, 2);
	(void)world_up(world, rank_names[1], 1, 2);
}

/*
 * Makes a pull of a ticket of two ranks, with its reads, or checks, in flight.
 */
static void pull_to(struct world *world, enum kvpull_reads_state state)
{
	const uint32_t written = state == KVPULL_READS_WRITTEN;

	world_claim(world, SERIAL, 2);
	world_pull(world, KEY, SERIAL,
		   KVPULL_FLAG_RELEASE | (written ? KVPULL_FLAG_READY : 0));
	world->check_code = 0;
	world_poll(world, 1);
	if (state == KVPULL_READS_CONNECT)
		return;
	both_up(world);
	if (state == KVPULL_READS_GUARDS) {
		world_done(world, 0, 0);
		world_done(world, 1, 0);
	}
	if (state == KVPULL_READS_DRAIN) {
		world_command(world, KVPULL_COMMAND_ABORT, KEY, 0);
		world_poll(world, 1);
	}
	assert_int_equal(world->worker->progress->reads.requests[0].state,
			 state);
	assert_int_equal(world->reads[0].checking,
			 written || state == KVPULL_READS_GUARDS);
	assert_int_equal(world->reads[1].checking,
			 written || state == KVPULL_READS_GUARDS);
}

/* Nothing is left of a pull: slots, parts, uses. */
static void pull_is_gone(const struct world *world)
{
	const struct kvpull_progress *progress = world->worker->progress;
	uint32_t at;

	assert_int_equal(progress->reads.live.count, 0);
	assert_int_equal(world->worker->pulls.map.count, 0);
	assert_int_equal(kvpull_index_pool_used(&progress->reads.part_pool), 0);
	for (at = 0;
	     at < kvpull_config_claims_max(&world->worker->facts.config); at++)
		assert_int_equal(progress->claims.all[at].pull_count, 0);
}

WORLD_TEST(pull_that_reads_live_blocks_is_loaded)
{
	pull_to(world, KVPULL_READS_GUARDS);
	world_silent(world, KEY);
	world_done(world, 0, 0);
	world_silent(world, KEY);
	world_done(world, 1, 0);
	world_reported(world, KEY, KVPULL_POLL_LOADED, 0);
	assert_int_equal(world->records[0].bytes, 2 * WORLD_BLOCK_BYTES);
	world_poll(world, 2);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 2);
	pull_is_gone(world);
	assert_int_equal(world->worker->claims.map.count, 0);
}

WORLD_TEST(pull_of_a_revoked_hold_expires)
{
	pull_to(world, KVPULL_READS_GUARDS);
	world_done(world, 0, 0);
	world->entry.revoked = SERIAL;
	world_done(world, 1, 0);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EEXPIRED);
	world_poll(world, 2);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 2);
	pull_is_gone(world);
}

WORLD_TEST(entry_of_another_incarnation_expires)
{
	pull_to(world, KVPULL_READS_GUARDS);
	world->entry.incarnation = 0xbad;
	world_done(world, 0, 0);
	/* The other check still runs: no report precedes its end. */
	world_silent(world, KEY);
	world_done(world, 1, 0);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EEXPIRED);
	pull_is_gone(world);
}

WORLD_TEST(entries_are_read_after_the_data_of_all_peers)
{
	pull_to(world, KVPULL_READS_DATA);
	world_done(world, 0, 0);
	assert_null(world->reads[0].read);
	world_poll(world, 3);
	assert_false(world->reads[0].checking);
	world_done(world, 1, 0);
	assert_true(world->reads[0].checking);
	assert_true(world->reads[1].checking);
}

/* Abort. */

WORLD_TEST(abort_while_connecting_fails_at_once)
{
	pull_to(world, KVPULL_READS_CONNECT);
	world_command(world, KVPULL_COMMAND_ABORT, KEY, 0);
	world_poll(world, 1);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EABORTED);
	pull_is_gone(world);
}

WORLD_TEST(abort_while_not_written_waits_for_the_check)
{
	pull_to(world, KVPULL_READS_WRITTEN);
	world_command(world, KVPULL_COMMAND_ABORT, KEY, 0);
	world_poll(world, 1);
	world_silent(world, KEY);
	world_done(world, 0, 0);
	world_silent(world, KEY);
	world_done(world, 1, 0);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EABORTED);
	pull_is_gone(world);
}

WORLD_TEST(abort_while_reading_waits_for_every_read)
{
	pull_to(world, KVPULL_READS_DATA);
	world_command(world, KVPULL_COMMAND_ABORT, KEY, 0);
	world_poll(world, 1);
	assert_true(world->reads[0].cancelled);
	assert_true(world->reads[1].cancelled);
	world_silent(world, KEY);
	world_done(world, 1, 0); /* was over before the cancel */
	world_silent(world, KEY);
	world_done(world, 0, KVPULL_EABORTED);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EABORTED);
	pull_is_gone(world);
}

WORLD_TEST(abort_while_checking_fails_a_live_pull)
{
	pull_to(world, KVPULL_READS_GUARDS);
	world_command(world, KVPULL_COMMAND_ABORT, KEY, 0);
	world_poll(world, 1);
	world_done(world, 0, 0);
	world_done(world, 1, 0);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EABORTED);
	pull_is_gone(world);
}

WORLD_TEST(second_abort_changes_nothing)
{
	uint32_t times;

	pull_to(world, KVPULL_READS_DRAIN);
	for (times = 0; times < 1000; times++)
		world_command(world, KVPULL_COMMAND_ABORT, KEY, 0);
	world_poll(world, 2);
	world_silent(world, KEY);
	world_done(world, 0, 0);
	world_done(world, 1, 0);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EABORTED);
	world_command(world, KVPULL_COMMAND_ABORT, KEY, 0);
	world_poll(world, 1);
	pull_is_gone(world);
}

/* An abort that is still on its way when its pull ends and the slot is used
 * again must not end the next one. */
WORLD_TEST(abort_of_the_last_use_of_a_slot_is_ignored)
{
	uint32_t serial;

	pull_to(world, KVPULL_READS_CONNECT);
	serial = world->worker->pulls.notes[0].serial;
	world_command(world, KVPULL_COMMAND_ABORT, KEY, 0);
	world_poll(world, 2);
	world_pull(world, KEY + 1, SERIAL, 0);
	world_poll(world, 1);
	assert_int_equal(world->worker->handover.pulls[0].key, KEY + 1);
	kvpull_worker_tell(world->worker, KVPULL_TO_ABORT, 0, serial);
	world_poll(world, 1);
	world_silent(world, KEY + 1);
}

WORLD_TEST(abort_before_start_loads_is_reported_once)
{
	world_claim(world, SERIAL, 1);
	world_pull_command(world, KEY, SERIAL, 0);
	world_command(world, KVPULL_COMMAND_ABORT, KEY, 0);
	world_poll(world, 1);
	assert_int_equal(kvpull_worker_start_loads(world->worker), 0);
	world_poll(world, 1);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EABORTED);
	pull_is_gone(world);
}

/* Most that have no route are of a producer that has ended since. */
WORLD_TEST(no_route_does_not_blame_the_configuration_alone)
{
	world->reachable_code = KVPULL_EROUTE;
	world_claim(world, SERIAL, 1);
	world_poll(world, 2);
	assert_non_null(strstr(world->lines.of[KVPULL_LOG_WARN],
			       "its worker has ended"));
	world->reachable_code = 0;
}

/* Deadline. */

/* The engine's step had nothing to compute, and started nothing. */
WORLD_TEST(deadline_before_start_loads_fails)
{
	world_claim(world, SERIAL, 1);
	world_poll(world, 1);
	(void)world_up(world, rank_names[0], 0, 1);
	world_pull_command(world, KEY, SERIAL, 0);
	world_pass(world, 499 * WORLD_MS);
	world_silent(world, KEY);
	world_pass(world, 1 * WORLD_MS);
	world_poll(world, 1);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EDEADLINE);
	assert_int_equal(kvpull_worker_start_loads(world->worker), 0);
	world_poll(world, 1);
	assert_int_equal(world->record_count, 1);
	assert_int_equal(world->read_starts, 0);
	pull_is_gone(world);
}

WORLD_TEST(deadline_while_connecting_fails)
{
	pull_to(world, KVPULL_READS_CONNECT);
	world_pass(world, 499 * WORLD_MS);
	world_silent(world, KEY);
	world_pass(world, 1 * WORLD_MS);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EDEADLINE);
	pull_is_gone(world);
}

WORLD_TEST(deadline_while_reading_waits_until_no_write_can_land)
{
	pull_to(world, KVPULL_READS_DATA);
	world_pass(world, 500 * WORLD_MS);
	assert_true(world->reads[0].cancelled);
	world_silent(world, KEY);
	world_pass(world, 500 * WORLD_MS);
	world_silent(world, KEY);
	world_done(world, 0, KVPULL_EABORTED);
	world_done(world, 1, KVPULL_EABORTED);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EDEADLINE);
	pull_is_gone(world);
}

WORLD_TEST(deadline_while_not_written_fails)
{
	pull_to(world, KVPULL_READS_WRITTEN);
	world->check_code = 1;
	world_done(world, 0, 0);
	world_done(world, 1, 0);
	world_pass(world, 400 * WORLD_MS);
	world_silent(world, KEY);
	world_pass(world, 100 * WORLD_MS);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EDEADLINE);
	pull_is_gone(world);
}

WORLD_TEST(deadline_while_checking_fails)
{
	pull_to(world, KVPULL_READS_GUARDS);
	world_pass(world, 500 * WORLD_MS);
	assert_true(world->reads[0].cancelled && world->reads[1].cancelled);
	world_silent(world, KEY);
	world_done(world, 0, 0);
	world_done(world, 1, 0);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EDEADLINE);
	pull_is_gone(world);
}

WORLD_TEST(deadline_after_an_abort_keeps_its_reason)
{
	pull_to(world, KVPULL_READS_DRAIN);
	world_pass(world, 1000 * WORLD_MS);
	world_silent(world, KEY);
	world_done(world, 0, 0);
	world_done(world, 1, KVPULL_EABORTED);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EABORTED);
}

/* Peer down. */

WORLD_TEST(peer_down_while_connecting_is_connected_again)
{
	pull_to(world, KVPULL_READS_CONNECT);
	world_down(world, world_up(world, rank_names[0], 0, 2));
	world_silent(world, KEY);
	world_pass(world, 100 * WORLD_MS);
	both_up(world);
	world_done(world, 0, 0);
	world_done(world, 1, 0);
	world_done(world, 0, 0);
	world_done(world, 1, 0);
	world_reported(world, KEY, KVPULL_POLL_LOADED, 0);
}

WORLD_TEST(peer_down_while_reading_fails_after_the_other_read)
{
	pull_to(world, KVPULL_READS_DATA);
	world_down(world, world_peer_at(world, rank_names[1]));
	assert_true(world->reads[0].cancelled);
	world_silent(world, KEY);
	world_done(world, 0, 0);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EPEER);
	pull_is_gone(world);
}

/* All bytes of one peer are there when it dies: the check is too late. */
WORLD_TEST(peer_that_dies_between_read_and_check_fails_it)
{
	pull_to(world, KVPULL_READS_DATA);
	world_done(world, 0, 0);
	world_down(world, world_peer_at(world, rank_names[0]));
	world_pass(world, 100 * WORLD_MS);
	if (world->worker->progress->reads.requests[0].state ==
	    KVPULL_READS_DATA)
		world_done(world, 1, 0);
	else
		world_done(world, 1, KVPULL_EABORTED);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EPEER);
	pull_is_gone(world);
}

/*
 * The peer came back before the others were done: it is not "the same peer" any
 * more.
 */
WORLD_TEST(peer_that_died_and_came_back_fails_the_check)
{
	pull_to(world, KVPULL_READS_DATA);
	world_done(world, 0, 0);
	world_down(world, world_peer_at(world, rank_names[0]));
	world_pass(world, 100 * WORLD_MS);
	if (world->worker->progress->reads.requests[0].state ==
	    KVPULL_READS_DATA)
		(void)world_up(world, rank_names[0], 0, 2);
	world->check_code = 1;
	world_done(world, 1, 0);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EPEER);
	pull_is_gone(world);
}

WORLD_TEST(peer_down_while_checking_fails)
{
	pull_to(world, KVPULL_READS_GUARDS);
	world_done(world, 1, 0);
	world_down(world, world_peer_at(world, rank_names[0]));
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EPEER);
	pull_is_gone(world);
}

WORLD_TEST(peer_down_while_draining_keeps_the_reason)
{
	pull_to(world, KVPULL_READS_DRAIN);
	world_down(world, world_peer_at(world, rank_names[0]));
	world_down(world, world_peer_at(world, rank_names[1]));
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EABORTED);
	pull_is_gone(world);
}

/*
 * Ready at one peer, it waits for the other. Meanwhile the first is lost and
 * comes back with less memory: the ids were checked against the old plan.
 */
WORLD_TEST(ready_part_is_not_read_from_another_connection)
{
	struct kvpull_welcome welcome;
	uint32_t peer;

	pull_to(world, KVPULL_READS_WRITTEN);
	world->entry.ready = SERIAL;
	world_done(world, 0, 0);
	world_down(world, world_peer_at(world, rank_names[0]));
	world_pass(world, 10 * WORLD_MS);
	peer = world_peer_at(world, rank_names[0]);
	world_challenge(world, peer);
	world_welcome_fill(world, peer, 0, 2, &welcome);
	welcome.caches[0].block_count = 2;
	welcome.regions[0].bytes = WORLD_BLOCK_BYTES;
	world_welcome_send(world, peer, &welcome);
	assert_int_equal(world->read_starts, 0);
	world_done(world, 1, 0);
	assert_int_equal(world->read_starts, 0);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EPEER);
	pull_is_gone(world);
}

/* Ready. */

WORLD_TEST(pull_is_not_read_before_it_is_written)
{
	pull_to(world, KVPULL_READS_WRITTEN);
	world->entry.ready = SERIAL - 1;
	world_done(world, 0, 0);
	world->entry.ready = SERIAL;
	world_done(world, 1, 0);
	world_pass(world, WORLD_MS);
	assert_int_equal(world->read_starts, 0);
	world_done(world, 0, 0);
	assert_int_equal(world->read_starts, 2);
	world_done(world, 0, 0);
	world_done(world, 1, 0);
	world_done(world, 0, 0);
	world_done(world, 1, 0);
	world_reported(world, KEY, KVPULL_POLL_LOADED, 0);
}

WORLD_TEST(revoked_before_it_was_written_expires)
{
	pull_to(world, KVPULL_READS_WRITTEN);
	world->entry.revoked = SERIAL;
	world_done(world, 0, 0);
	world_done(world, 1, 0);
	assert_int_equal(world->read_starts, 0);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EEXPIRED);
	pull_is_gone(world);
}

/* Refusals of the transport. */

WORLD_TEST(read_that_must_wait_is_started_later)
{
	world->read_code = KVPULL_EAGAIN;
	world_claim(world, SERIAL, 2);
	world_pull(world, KEY, SERIAL, 0);
	world_poll(world, 1);
	both_up(world);
	world_pass(world, WORLD_MS);
	assert_true(world->read_starts > 2);
	world_silent(world, KEY);
	world->read_code = 1;
	world_pass(world, WORLD_MS);
	world_reported(world, KEY, KVPULL_POLL_LOADED, 0);
	pull_is_gone(world);
}

WORLD_TEST(read_that_cannot_start_fails_the_pull)
{
	world->read_code = KVPULL_EREAD;
	world_claim(world, SERIAL, 2);
	world_pull(world, KEY, SERIAL, 0);
	world_poll(world, 1);
	both_up(world);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EREAD);
	pull_is_gone(world);
}

WORLD_TEST(read_that_fails_fails_the_pull)
{
	pull_to(world, KVPULL_READS_DATA);
	world_done(world, 0, KVPULL_EREAD);
	world_silent(world, KEY);
	assert_true(world->reads[1].cancelled);
	world_done(world, 1, 0);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EREAD);
	pull_is_gone(world);
}

WORLD_TEST(check_that_cannot_start_fails_the_pull)
{
	pull_to(world, KVPULL_READS_DATA);
	world->check_code = KVPULL_EPROTO;
	world_done(world, 0, 0);
	world_done(world, 1, 0);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EPROTO);
	pull_is_gone(world);
}

WORLD_TEST(ids_beyond_the_peer_fail_the_pull)
{
	struct kvpull_welcome welcome;
	uint32_t peer;

	world_claim(world, SERIAL, 1);
	world_pull(world, KEY, SERIAL, 0);
	world_poll(world, 1);
	peer = world_peer_at(world, "1-0");
	world_challenge(world, peer);
	world_welcome_fill(world, peer, 0, 1, &welcome);
	welcome.caches[0].block_count = 4;
	world_welcome_send(world, peer, &welcome);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_ETRUNCATED);
	assert_int_equal(world->read_starts, 0);
	pull_is_gone(world);
}

/* Tables. */

WORLD_TEST(pull_beyond_the_table_is_reported_failed_once)
{
	uint64_t key;

	world_claim(world, SERIAL, 1);
	for (key = 1; key <= 6; key++)
		world_pull(world, key, SERIAL, 0);
	world_poll(world, 2);
	world_reported(world, 5, KVPULL_POLL_FAILED, KVPULL_EFULL);
	world_reported(world, 6, KVPULL_POLL_FAILED, KVPULL_EFULL);
	for (key = 1; key <= 4; key++)
		world_silent(world, key);
	world_pass(world, 600 * WORLD_MS);
	for (key = 1; key <= 4; key++)
		world_reported(world, key, KVPULL_POLL_FAILED,
			       KVPULL_EDEADLINE);
	pull_is_gone(world);
}

WORLD_TEST(pull_after_its_release_expires)
{
	world_claim(world, SERIAL, 1);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, SERIAL);
	world_pull(world, KEY, SERIAL, 0);
	world_poll(world, 1);
	world_reported(world, KEY, KVPULL_POLL_FAILED, KVPULL_EEXPIRED);
	pull_is_gone(world);
}

/* A step that says the same twice is broken; it must not do the pull twice. */
WORLD_TEST(key_that_is_pulled_already_is_not_pulled_again)
{
	pull_to(world, KVPULL_READS_DATA);
	world_pull(world, KEY, SERIAL, 0);
	world_poll(world, 1);
	world_done(world, 0, 0);
	world_done(world, 1, 0);
	world_done(world, 0, 0);
	world_done(world, 1, 0);
	world_pass(world, 600 * WORLD_MS);
	world_reported(world, KEY, KVPULL_POLL_LOADED, 0);
	pull_is_gone(world);
}

WORLD_TEST(failed_blocks_are_told_until_the_next_poll)
{
	uint32_t blocks[4];
	uint32_t count = 0;

	pull_to(world, KVPULL_READS_CONNECT);
	world_command(world, KVPULL_COMMAND_ABORT, KEY, 0);
	assert_int_equal(kvpull_worker_failed_blocks(world->worker, KEY, blocks,
						     4, &count),
			 KVPULL_ENOKEY);
	world_poll(world, 1);
	assert_int_equal(kvpull_worker_failed_blocks(world->worker, KEY, blocks,
						     1, &count),
			 KVPULL_ETOOSMALL);
	assert_int_equal(count, 2);
	assert_int_equal(kvpull_worker_failed_blocks(world->worker, KEY, blocks,
						     4, &count),
			 0);
	assert_int_equal(blocks[0], 5);
	assert_int_equal(blocks[1], 6);
	world_poll(world, 1);
	assert_int_equal(kvpull_worker_failed_blocks(world->worker, KEY, blocks,
						     4, &count),
			 KVPULL_ENOKEY);
}

WORLD_TEST(close_waits_for_pulls_in_flight_but_not_for_ever)
{
	pull_to(world, KVPULL_READS_DATA);
	world->tick_ns = WORLD_MS;
	kvpull_worker_destroy(world->worker);
	world->worker = NULL;
	assert_true(world->reads[0].cancelled);
	/* Not released: a read may still be under way. */
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 0);
}
