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
		both_done(world);
	}
	if (state == KVPULL_READS_DRAIN) {
		abort_pull(world, KEY);
	}
	assert_int_equal(world->worker->progress->reads.requests[0].state,
			 state);
	assert_int_equal(world->reads[0].checking,
			 written || state == KVPULL_READS_GUARDS);
	assert_int_equal(world->reads[1].checking,
			 written || state == KVPULL_READS_GUARDS);
}

/* A test of such a pull. */
#define PULL_TEST(name, state)                                                 \
	WORLD_TEST_AFTER(name, pull_to(world, KVPULL_READS_##state))

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

static void pull_failed(const struct world *world, int32_t reason)
{
	failed(world, KEY, reason);
	pull_is_gone(world);
}

static void pull_loaded(const struct world *world)
{
	loaded(world, KEY);
	pull_is_gone(world);
}

PULL_TEST(pull_that_reads_live_blocks_is_loaded, GUARDS)
{
	world_silent(world, KEY);
	world_done(world, 0, 0);
	world_silent(world, KEY);
	world_done(world, 1, 0);
	loaded(world, KEY);
	assert_int_equal(world->records[0].bytes, 2 * WORLD_BLOCK_BYTES);
	world_poll(world, 2);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 2);
	pull_is_gone(world);
	assert_int_equal(world->worker->claims.map.count, 0);
}

PULL_TEST(pull_of_a_revoked_hold_expires, GUARDS)
{
	world_done(world, 0, 0);
	world->entry.revoked = SERIAL;
	world_done(world, 1, 0);
	failed(world, KEY, KVPULL_EEXPIRED);
	world_poll(world, 2);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 2);
	pull_is_gone(world);
}

PULL_TEST(entry_of_another_incarnation_expires, GUARDS)
{
	world->entry.incarnation = 0xbad;
	world_done(world, 0, 0);
	/* The other check still runs: no report precedes its end. */
	world_silent(world, KEY);
	world_done(world, 1, 0);
	pull_failed(world, KVPULL_EEXPIRED);
}

PULL_TEST(entries_are_read_after_the_data_of_all_peers, DATA)
{
	world_done(world, 0, 0);
	assert_null(world->reads[0].read);
	world_poll(world, 3);
	assert_false(world->reads[0].checking);
	world_done(world, 1, 0);
	assert_true(world->reads[0].checking);
	assert_true(world->reads[1].checking);
}

/* Abort. */

PULL_TEST(abort_while_connecting_fails_at_once, CONNECT)
{
	abort_pull(world, KEY);
	pull_failed(world, KVPULL_EABORTED);
}

PULL_TEST(abort_while_not_written_waits_for_the_check, WRITTEN)
{
	abort_pull(world, KEY);
	world_silent(world, KEY);
	world_done(world, 0, 0);
	world_silent(world, KEY);
	world_done(world, 1, 0);
	pull_failed(world, KVPULL_EABORTED);
}

PULL_TEST(abort_while_reading_waits_for_every_read, DATA)
{
	abort_pull(world, KEY);
	assert_true(world->reads[0].cancelled);
	assert_true(world->reads[1].cancelled);
	world_silent(world, KEY);
	world_done(world, 1, 0); /* was over before the cancel */
	world_silent(world, KEY);
	world_done(world, 0, KVPULL_EABORTED);
	pull_failed(world, KVPULL_EABORTED);
}

PULL_TEST(abort_while_checking_fails_a_live_pull, GUARDS)
{
	abort_pull(world, KEY);
	both_done(world);
	pull_failed(world, KVPULL_EABORTED);
}

PULL_TEST(second_abort_changes_nothing, DRAIN)
{
	uint32_t times;

	for (times = 0; times < 1000; times++)
		world_command(world, KVPULL_COMMAND_ABORT, KEY, 0);
	world_poll(world, 2);
	world_silent(world, KEY);
	both_done(world);
	failed(world, KEY, KVPULL_EABORTED);
	abort_pull(world, KEY);
	pull_is_gone(world);
}

/* An abort that is still on its way when its pull ends and the slot is used
 * again must not end the next one. */
PULL_TEST(abort_of_the_last_use_of_a_slot_is_ignored, CONNECT)
{
	uint32_t serial;

	serial = world->worker->pulls.notes[0].serial;
	world_command(world, KVPULL_COMMAND_ABORT, KEY, 0);
	world_poll(world, 2);
	pull(world, KEY + 1, SERIAL, 0);
	assert_int_equal(world->worker->handover.pulls[0].key, KEY + 1);
	kvpull_worker_tell(world->worker, KVPULL_TO_ABORT, 0, serial);
	world_poll(world, 1);
	world_silent(world, KEY + 1);
}

WORLD_TEST(abort_before_start_loads_is_reported_once)
{
	world_claim(world, SERIAL, 1);
	world_pull_command(world, KEY, SERIAL, 0);
	abort_pull(world, KEY);
	assert_int_equal(kvpull_worker_start_loads(world->worker), 0);
	world_poll(world, 1);
	pull_failed(world, KVPULL_EABORTED);
}

/* Most that have no route are of a producer that has ended since. */
WORLD_TEST(no_route_does_not_blame_the_configuration_alone)
{
	world->reachable_code = KVPULL_EROUTE;
	world_claim(world, SERIAL, 1);
	world_poll(world, 2);
	warned(world, "its worker has ended");
	world->reachable_code = 0;
}

/* Deadline. */

/* The engine's step had nothing to compute, and started nothing. */
WORLD_TEST(deadline_before_start_loads_fails)
{
	claim(world, SERIAL, 1);
	(void)world_up(world, rank_names[0], 0, 1);
	world_pull_command(world, KEY, SERIAL, 0);
	world_pass(world, 499 * WORLD_MS);
	world_silent(world, KEY);
	world_pass(world, 1 * WORLD_MS);
	world_poll(world, 1);
	failed(world, KEY, KVPULL_EDEADLINE);
	assert_int_equal(kvpull_worker_start_loads(world->worker), 0);
	world_poll(world, 1);
	assert_int_equal(world->record_count, 1);
	assert_int_equal(world->read_starts, 0);
	pull_is_gone(world);
}

PULL_TEST(deadline_while_connecting_fails, CONNECT)
{
	world_pass(world, 499 * WORLD_MS);
	world_silent(world, KEY);
	world_pass(world, 1 * WORLD_MS);
	pull_failed(world, KVPULL_EDEADLINE);
}

PULL_TEST(deadline_while_reading_waits_until_no_write_can_land, DATA)
{
	world_pass(world, 500 * WORLD_MS);
	assert_true(world->reads[0].cancelled);
	world_silent(world, KEY);
	world_pass(world, 500 * WORLD_MS);
	world_silent(world, KEY);
	world_done(world, 0, KVPULL_EABORTED);
	world_done(world, 1, KVPULL_EABORTED);
	pull_failed(world, KVPULL_EDEADLINE);
}

PULL_TEST(deadline_while_not_written_fails, WRITTEN)
{
	world->check_code = 1;
	both_done(world);
	world_pass(world, 400 * WORLD_MS);
	world_silent(world, KEY);
	world_pass(world, 100 * WORLD_MS);
	pull_failed(world, KVPULL_EDEADLINE);
}

PULL_TEST(deadline_while_checking_fails, GUARDS)
{
	world_pass(world, 500 * WORLD_MS);
	assert_true(world->reads[0].cancelled && world->reads[1].cancelled);
	world_silent(world, KEY);
	both_done(world);
	pull_failed(world, KVPULL_EDEADLINE);
}

PULL_TEST(deadline_after_an_abort_keeps_its_reason, DRAIN)
{
	world_pass(world, 1000 * WORLD_MS);
	world_silent(world, KEY);
	world_done(world, 0, 0);
	world_done(world, 1, KVPULL_EABORTED);
	failed(world, KEY, KVPULL_EABORTED);
}

/* Peer down. */

PULL_TEST(peer_down_while_connecting_is_connected_again, CONNECT)
{
	world_down(world, world_up(world, rank_names[0], 0, 2));
	world_silent(world, KEY);
	world_pass(world, 100 * WORLD_MS);
	both_up(world);
	both_done(world);
	both_done(world);
	loaded(world, KEY);
}

PULL_TEST(peer_down_while_reading_fails_after_the_other_read, DATA)
{
	world_down(world, world_peer_at(world, rank_names[1]));
	assert_true(world->reads[0].cancelled);
	world_silent(world, KEY);
	world_done(world, 0, 0);
	pull_failed(world, KVPULL_EPEER);
}

/* All bytes of one peer are there when it dies: the check is too late. */
PULL_TEST(peer_that_dies_between_read_and_check_fails_it, DATA)
{
	world_done(world, 0, 0);
	world_down(world, world_peer_at(world, rank_names[0]));
	world_pass(world, 100 * WORLD_MS);
	if (world->worker->progress->reads.requests[0].state ==
	    KVPULL_READS_DATA)
		world_done(world, 1, 0);
	else
		world_done(world, 1, KVPULL_EABORTED);
	pull_failed(world, KVPULL_EPEER);
}

/*
 * The peer came back before the others were done: it is not "the same peer" any
 * more.
 */
PULL_TEST(peer_that_died_and_came_back_fails_the_check, DATA)
{
	world_done(world, 0, 0);
	world_down(world, world_peer_at(world, rank_names[0]));
	world_pass(world, 100 * WORLD_MS);
	if (world->worker->progress->reads.requests[0].state ==
	    KVPULL_READS_DATA)
		(void)world_up(world, rank_names[0], 0, 2);
	world->check_code = 1;
	world_done(world, 1, 0);
	pull_failed(world, KVPULL_EPEER);
}

PULL_TEST(peer_down_while_checking_fails, GUARDS)
{
	world_done(world, 1, 0);
	world_down(world, world_peer_at(world, rank_names[0]));
	pull_failed(world, KVPULL_EPEER);
}

PULL_TEST(peer_down_while_draining_keeps_the_reason, DRAIN)
{
	world_down(world, world_peer_at(world, rank_names[0]));
	world_down(world, world_peer_at(world, rank_names[1]));
	pull_failed(world, KVPULL_EABORTED);
}

/*
 * Ready at one peer, it waits for the other. Meanwhile the first is lost and
 * comes back with less memory: the ids were checked against the old plan.
 */
PULL_TEST(ready_part_is_not_read_from_another_connection, WRITTEN)
{
	struct kvpull_welcome welcome;
	uint32_t peer;

	world->entry.ready = SERIAL;
	world_done(world, 0, 0);
	world_down(world, world_peer_at(world, rank_names[0]));
	world_pass(world, 10 * WORLD_MS);
	peer = greeted(world, rank_names[0], 0, 2, &welcome);
	welcome.caches[0].block_count = 2;
	welcome.regions[0].bytes = WORLD_BLOCK_BYTES;
	world_welcome_send(world, peer, &welcome);
	assert_int_equal(world->read_starts, 0);
	world_done(world, 1, 0);
	assert_int_equal(world->read_starts, 0);
	pull_failed(world, KVPULL_EPEER);
}

/* Ready. */

PULL_TEST(pull_is_not_read_before_it_is_written, WRITTEN)
{
	world->entry.ready = SERIAL - 1;
	world_done(world, 0, 0);
	world->entry.ready = SERIAL;
	world_done(world, 1, 0);
	world_pass(world, WORLD_MS);
	assert_int_equal(world->read_starts, 0);
	world_done(world, 0, 0);
	assert_int_equal(world->read_starts, 2);
	both_done(world);
	both_done(world);
	loaded(world, KEY);
}

PULL_TEST(revoked_before_it_was_written_expires, WRITTEN)
{
	world->entry.revoked = SERIAL;
	both_done(world);
	assert_int_equal(world->read_starts, 0);
	pull_failed(world, KVPULL_EEXPIRED);
}

/* Refusals of the transport. */

WORLD_TEST(read_that_must_wait_is_started_later)
{
	world->read_code = KVPULL_EAGAIN;
	claim_pull(world, KEY, SERIAL, 2, 0);
	both_up(world);
	world_pass(world, WORLD_MS);
	assert_true(world->read_starts > 2);
	world_silent(world, KEY);
	world->read_code = 1;
	world_pass(world, WORLD_MS);
	pull_loaded(world);
}

WORLD_TEST(read_that_cannot_start_fails_the_pull)
{
	world->read_code = KVPULL_EREAD;
	claim_pull(world, KEY, SERIAL, 2, 0);
	both_up(world);
	pull_failed(world, KVPULL_EREAD);
}

PULL_TEST(read_that_fails_fails_the_pull, DATA)
{
	world_done(world, 0, KVPULL_EREAD);
	world_silent(world, KEY);
	assert_true(world->reads[1].cancelled);
	world_done(world, 1, 0);
	pull_failed(world, KVPULL_EREAD);
}

PULL_TEST(check_that_cannot_start_fails_the_pull, DATA)
{
	world->check_code = KVPULL_EPROTO;
	both_done(world);
	pull_failed(world, KVPULL_EPROTO);
}

WORLD_TEST(ids_beyond_the_peer_fail_the_pull)
{
	struct kvpull_welcome welcome;
	uint32_t peer;

	claim_pull(world, KEY, SERIAL, 1, 0);
	peer = greeted(world, "1-0", 0, 1, &welcome);
	welcome.caches[0].block_count = 4;
	world_welcome_send(world, peer, &welcome);
	failed(world, KEY, KVPULL_ETRUNCATED);
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
	failed(world, 5, KVPULL_EFULL);
	failed(world, 6, KVPULL_EFULL);
	for (key = 1; key <= 4; key++)
		world_silent(world, key);
	world_pass(world, 600 * WORLD_MS);
	for (key = 1; key <= 4; key++)
		failed(world, key, KVPULL_EDEADLINE);
	pull_is_gone(world);
}

WORLD_TEST(pull_after_its_release_expires)
{
	world_claim(world, SERIAL, 1);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, SERIAL);
	pull(world, KEY, SERIAL, 0);
	pull_failed(world, KVPULL_EEXPIRED);
}

/* A step that says the same twice is broken; it must not do the pull twice. */
PULL_TEST(key_that_is_pulled_already_is_not_pulled_again, DATA)
{
	pull(world, KEY, SERIAL, 0);
	both_done(world);
	both_done(world);
	world_pass(world, 600 * WORLD_MS);
	pull_loaded(world);
}

PULL_TEST(failed_blocks_are_told_until_the_next_poll, CONNECT)
{
	world_command(world, KVPULL_COMMAND_ABORT, KEY, 0);
	(void)world_failed_blocks(world, KEY, 4, KVPULL_ENOKEY);
	world_poll(world, 1);
	(void)world_failed_blocks(world, KEY, 1, KVPULL_ETOOSMALL);
	assert_int_equal(world_failed_blocks(world, KEY, 4, 0), 5);
	world_poll(world, 1);
	(void)world_failed_blocks(world, KEY, 4, KVPULL_ENOKEY);
}

PULL_TEST(close_waits_for_pulls_in_flight_but_not_for_ever, DATA)
{
	world->tick_ns = WORLD_MS;
	kvpull_worker_destroy(world->worker);
	world->worker = NULL;
	assert_true(world->reads[0].cancelled);
	/* Not released: a read may still be under way. */
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 0);
}
