/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker whose route cuts a connection to end one pull's reads: the others
 * read the rest when the peer is connected again.
 */
#include "tests/unit/worker/peer.h"

#define SERIAL 101u

static const char *const rank_names[2] = { "1-0", "1-1" };

static void pulls_start(struct world *world, uint32_t count, uint32_t flags)
{
	uint32_t key;

	world_claim(world, SERIAL, 2);
	for (key = 1; key <= count; key++)
		world_pull(world, key, SERIAL, flags);
	world->check_code = 0;
	world_poll(world, 1);
	(void)world_up(world, rank_names[0], 0, 2);
	(void)world_up(world, rank_names[1], 1, 2);
}

/* A test of a pull whose reads have begun. */
#define CUT_TEST(name) WORLD_TEST_AFTER(name, pulls_start(world, 1, 0))

static void cut(struct world *world, uint32_t rank)
{
	world_lost(world, world_peer_at(world, rank_names[rank]),
		   KVPULL_EABORTED);
}

static void both_cut(struct world *world)
{
	cut(world, 0);
	cut(world, 1);
}

static void is_up_again(struct world *world, uint32_t rank)
{
	world_pass(world, 20 * WORLD_MS);
	(void)world_up(world, rank_names[rank], rank, 2);
}

/* Ends everything that is open well, round after round. */
static void all_done(struct world *world)
{
	uint32_t rounds;
	uint32_t index;

	for (rounds = 0; rounds < 4; rounds++)
		for (index = 0; index < KVPULL_RANKS_MAX; index++)
			if (world->reads[index].read)
				world_done(world, index, 0);
}

/* The read that is open of that rank. */
static const struct kvpull_read *reading(const struct world *world,
					 uint32_t rank)
{
	const uint32_t peer = world_peer_at(world, rank_names[rank]);
	uint32_t index;

	for (index = 0; index < KVPULL_RANKS_MAX; index++)
		if (world->reads[index].read &&
		    world->reads[index].peer == peer &&
		    !world->reads[index].checking)
			return world->reads[index].read;
	fail_msg("nothing is read of rank %u", rank);
	return NULL;
}

static void both_read_from_the_start(const struct world *world)
{
	assert_int_equal(reading(world, 0)->done_bytes, 0);
	assert_int_equal(reading(world, 1)->done_bytes, 0);
}

static uint32_t checking(const struct world *world)
{
	uint32_t count = 0;
	uint32_t index;

	for (index = 0; index < KVPULL_RANKS_MAX; index++)
		count += world->reads[index].read &&
			 world->reads[index].checking;
	return count;
}

/* All that is open ends well, and the pull was loaded, whole. */
static void loads(struct world *world, uint64_t key)
{
	uint32_t index;

	all_done(world);
	loaded(world, key);
	for (index = 0; index < world->record_count; index++)
		if (world->records[index].key == key)
			assert_int_equal(world->records[index].bytes,
					 2 * WORLD_BLOCK_BYTES);
}

CUT_TEST(pull_that_reads_reads_the_rest)
{
	assert_int_equal(world->reads[0].read->done_bytes, 0);
	world->reads[0].read->done_bytes = 100;
	cut(world, 0);
	/* The other rank's read may still write. */
	assert_false(world->reads[1].cancelled);
	is_up_again(world, 0);
	assert_int_equal(world->read_starts, 2);
	world_done(world, 1, 0);
	world_pass(world, WORLD_MS);
	/* The third read is of the rank that was cut, for the missing bytes. */
	assert_int_equal(world->read_starts, 3);
	assert_int_equal(reading(world, 0)->done_bytes, 100);
	world_silent(world, 1);
	loads(world, 1);
	/* Parts of the first attempt are free, too. */
	assert_int_equal(kvpull_index_pool_used(
				 &world->worker->progress->reads.part_pool),
			 0);
}

/* Bytes read for other strips do not count for these. */
CUT_TEST(peer_with_other_strips_is_read_from_the_start)
{
	struct kvpull_welcome welcome;
	uint32_t peer;

	world_done(world, 1, 0);
	world->reads[0].read->done_bytes = 100;
	cut(world, 0);
	world_pass(world, 20 * WORLD_MS);
	peer = greeted(world, rank_names[0], 0, 2, &welcome);
	welcome.regions[0].bytes += WORLD_BLOCK_BYTES;
	welcome.caches[0].offset += WORLD_BLOCK_BYTES;
	world_welcome_send(world, peer, &welcome);
	world_pass(world, WORLD_MS);
	assert_int_equal(world->read_starts, 3);
	assert_int_equal(reading(world, 0)->done_bytes, 0);
	loads(world, 1);
}

/* A slot's next pull has read nothing yet. */
CUT_TEST(next_pull_begins_at_the_start)
{
	world->reads[0].read->done_bytes = 100;
	cut(world, 0);
	world_done(world, 1, 0);
	is_up_again(world, 0);
	loads(world, 1);
	world_pull(world, 2, SERIAL, 0);
	world_poll(world, 3);
	both_read_from_the_start(world);
	loads(world, 2);
}

/* All data is there, and no entry will come by the same connection. */
CUT_TEST(pull_that_checks_checks_again)
{
	both_done(world);
	assert_true(world->reads[0].checking);
	cut(world, 0);
	world_done(world, 1, 0);
	assert_int_equal(checking(world), 0);
	is_up_again(world, 0);
	assert_int_equal(world->read_starts, 2);
	assert_int_equal(checking(world), 2);
	loads(world, 1);
}

/* Bytes in memory of a device were not flushed, and all are read again. */
CUT_TEST(pull_into_a_device_begins_again)
{
	world->worker->handover.pulls[0].after = KVPULL_AFTER_NOTHING;
	both_done(world);
	assert_true(world->reads[0].checking);
	cut(world, 0);
	world_done(world, 1, 0);
	is_up_again(world, 0);
	assert_int_equal(checking(world), 0);
	assert_int_equal(world->read_starts, 4);
	both_read_from_the_start(world);
	loads(world, 1);
}

WORLD_TEST(pull_that_waits_to_be_written_waits_again)
{
	world->entry.ready = SERIAL;
	pulls_start(world, 1, KVPULL_FLAG_READY);
	assert_true(world->reads[0].checking);
	cut(world, 1);
	world_done(world, 0, 0);
	is_up_again(world, 1);
	assert_int_equal(world->read_starts, 0);
	assert_true(world->reads[0].checking);
	loads(world, 1);
}

/*
 * The data came by a connection that ends before the check, while the pull
 * waits for the other rank; 0: only one ended.
 */
static void ends_between_data_and_check(struct world *world, int32_t code,
					int32_t next_code)
{
	const int32_t codes[2] = { code, next_code };
	uint32_t at;

	pulls_start(world, 1, 0);
	world_done(world, 0, 0);
	for (at = 0; at < 2 && codes[at]; at++) {
		world_lost(world, world_peer_at(world, rank_names[0]),
			   codes[at]);
		is_up_again(world, 0);
	}
	assert_int_equal(checking(world), 0);
	world_done(world, 1, 0);
	world_pass(world, WORLD_MS);
}

WORLD_TEST(pull_between_data_and_check_reads_what_is_missing)
{
	ends_between_data_and_check(world, KVPULL_EABORTED, 0);
	assert_int_equal(world->read_starts, 2);
	assert_int_equal(checking(world), 2);
	loads(world, 1);
}

/* Cut again for others before it looks: still nobody's fault. */
WORLD_TEST(pull_whose_peer_is_cut_twice_reads_what_is_missing)
{
	ends_between_data_and_check(world, KVPULL_EABORTED, KVPULL_EABORTED);
	world_silent(world, 1);
	loads(world, 1);
}

/* The peer's own connection was cut, and another one was lost. */
WORLD_TEST(pull_whose_peer_was_cut_and_then_lost_reads_what_is_missing)
{
	ends_between_data_and_check(world, KVPULL_EABORTED, KVPULL_EPEER);
	loads(world, 1);
}

/* Lost, and whoever came back was cut: the loss may have been a death. */
WORLD_TEST(pull_whose_peer_was_lost_and_then_cut_fails)
{
	ends_between_data_and_check(world, KVPULL_EPEER, KVPULL_EABORTED);
	failed(world, 1, KVPULL_EPEER);
}

CUT_TEST(pull_that_begins_while_it_is_cut_waits)
{
	loads(world, 1);
	world->read_code = KVPULL_EABORTED;
	world_pull(world, 2, SERIAL, 0);
	world_poll(world, 3);
	world_pass(world, WORLD_MS);
	world_silent(world, 2);
	world->read_code = 0;
	cut(world, 0);
	is_up_again(world, 0);
	loads(world, 2);
}

WORLD_TEST(cancelled_pull_ends_and_the_other_goes_on)
{
	pulls_start(world, 2, 0);
	abort_pull(world, 1);
	both_cut(world);
	failed(world, 1, KVPULL_EABORTED);
	is_up_again(world, 0);
	is_up_again(world, 1);
	loads(world, 2);
}

CUT_TEST(deadline_ends_what_would_begin_again)
{
	cut(world, 0);
	world_pass(world, 500 * WORLD_MS);
	/* The other rank's read may write until it ends. */
	assert_true(world->reads[1].cancelled);
	world_silent(world, 1);
	world_done(world, 1, KVPULL_EABORTED);
	failed(world, 1, KVPULL_EDEADLINE);
}

CUT_TEST(deadline_bounds_how_often_it_begins)
{
	uint32_t times;

	for (times = 0; times < 20; times++) {
		world_silent(world, 1);
		both_cut(world);
		is_up_again(world, 0);
		world_pass(world, 5 * WORLD_MS);
		(void)world_up(world, rank_names[1], 1, 2);
	}
	both_cut(world);
	world_pass(world, 20 * WORLD_MS);
	failed(world, 1, KVPULL_EDEADLINE);
}

CUT_TEST(peer_that_dies_of_it_fails_the_pull)
{
	cut(world, 0);
	world_down(world, world_peer_at(world, rank_names[1]));
	failed(world, 1, KVPULL_EPEER);
}

/* The peer lived when it was cut: a failing call does not prove its death. */
CUT_TEST(peer_is_called_again_after_a_cut)
{
	world->connect_code = KVPULL_EPEER;
	cut(world, 0);
	world_done(world, 1, KVPULL_EABORTED);
	world_pass(world, 10 * WORLD_MS);
	world_silent(world, 1);
	world->connect_code = 0;
	is_up_again(world, 0);
	loads(world, 1);
}

CUT_TEST(peer_that_is_not_there_after_a_cut_fails_the_pull)
{
	uint32_t before;

	before = world->connects;
	world->connect_code = KVPULL_EPEER;
	cut(world, 0);
	world_done(world, 1, KVPULL_EABORTED);
	while (world->connects - before < 3) {
		world_silent(world, 1);
		world_pass(world, 5 * WORLD_MS);
		assert_in_range(world->connects - before, 1, 3);
	}
	world_pass(world, WORLD_MS);
	failed(world, 1, KVPULL_EPEER);
}

CUT_TEST(hold_that_ended_meanwhile_expires)
{
	both_cut(world);
	world->entry.revoked = SERIAL;
	is_up_again(world, 0);
	(void)world_up(world, rank_names[1], 1, 2);
	all_done(world);
	failed(world, 1, KVPULL_EEXPIRED);
}
