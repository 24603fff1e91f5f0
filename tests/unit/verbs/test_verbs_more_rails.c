/* SPDX-License-Identifier: Apache-2.0 */
/* Three to eight rails between the same two machines. */
#include "tests/unit/verbs/world.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RAILS_MIN 3u
#define RAILS_MAX 8u

static int without_random;

/* In the place of libc's, for the library that is linked to this program. */
ssize_t getrandom(void *bytes, size_t byte_count, unsigned int flags)
{
	if (!without_random)
		return syscall(SYS_getrandom, bytes, byte_count, flags);
	errno = EAGAIN;
	return -1;
}

UNIT_TEST(read_is_spread_over_every_rail)
{
	uint32_t count;
	uint32_t rail;

	for (count = RAILS_MIN; count <= RAILS_MAX; count++) {
		uint32_t all = 0;

		(void)world_rails_up_count(count);
		world_reads_well(5);
		for (rail = 0; rail < count; rail++) {
			/* Four a doorbell: nobody is a doorbell ahead. */
			assert_in_range(world_reads_by(rail),
					WORLD_BLOCKS / count - 4,
					WORLD_BLOCKS / count + 4);
			all += world_reads_by(rail);
		}
		assert_int_equal(all, WORLD_BLOCKS);
		world_check_is_good();
		assert_int_equal(world_down(state), 0);
	}
}

/* All of it would fit into one batch of the first rail. */
UNIT_TEST(large_read_is_cut_into_a_share_for_each_rail)
{
	(void)world_rails_open();
	world.batch = 0;
	world_consumer_again();
	world_read_make(0);
	/* All memory, once for each of so many blocks. */
	world.strip.row_bytes = WORLD_BYTES;
	world.strip.remote_block_stride = world.strip.local_block_stride = 0;
	world.read.byte_count = (uint64_t)WORLD_BLOCKS * WORLD_BYTES;
	world_connect_run(20);
	world_read_run(5);
	world_read_ended(0);
	assert_int_equal(world_reads_by(0), world_reads_by(1));
	assert_int_equal(world_down(state), 0);
}

/* Parts of the lost rails wait in the wire, and the last rail reads them. */
UNIT_TEST(read_goes_on_by_the_last_rail_that_is_left)
{
	uint32_t count;
	uint32_t left;
	uint32_t rail;

	for (count = RAILS_MIN; count <= RAILS_MAX; count++)
		for (left = 0; left < count; left++) {
			const uint32_t others =
				((1u << count) - 1) & ~(1u << left);

			(void)world_rails_up_count(count);
			fake_verbs_knobs.held_devices = others;
			world_read_run(3);
			assert_int_equal(world.d.reads_done, 0);
			for (rail = 0; rail < count; rail++)
				if (rail != left)
					fake_verbs_cut_device(rail);
			world_read_ends_well(WORLD_MS_FLUSHED);
			assert_int_equal(world_reads_by(left), WORLD_BLOCKS);
			world_check_is_good();
			assert_int_equal(world_down(state), 0);
		}
}

/*
 * Rails are lost one after the other, each before others have read the last
 * one's part.
 */
UNIT_TEST(rails_lost_in_turn_cost_no_byte)
{
	uint32_t rail;

	(void)world_rails_up_count(RAILS_MAX);
	fake_verbs_knobs.held_devices = (1u << RAILS_MAX) - 1;
	assert_int_equal(world_read_start(), 0);
	for (rail = 0; rail + 1 < RAILS_MAX; rail++) {
		world_run(WORLD_MS_FLUSHED / 2);
		fake_verbs_cut_device(rail);
	}
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.d.reads_done, 0);
	assert_int_equal(world.d.downs, 0);
	fake_verbs_knobs.held_devices = 0;
	world_read_ends_well(5);
	assert_true(side_counts(&world.d)->requests_moved >=
		    WORLD_BLOCKS / RAILS_MAX);
	world_check_is_good();
	assert_int_equal(world_down(state), 0);
}

UNIT_TEST(loss_of_every_rail_is_the_peers_end)
{
	uint32_t count;
	uint32_t rail;

	for (count = RAILS_MIN; count <= RAILS_MAX; count++) {
		(void)world_rails_up_count(count);
		fake_verbs_knobs.held_devices = (1u << count) - 1;
		assert_int_equal(world_read_start(), 0);
		for (rail = 0; rail < count; rail++)
			fake_verbs_cut_device(rail);
		world_run(WORLD_MS_FLUSHED);
		world_read_ended(KVPULL_EPEER);
		assert_int_equal(world.d.downs, 1);
		assert_int_equal(world_down(state), 0);
	}
}

/* A link that is good for days is lost now and then: it is missed shortly. */
UNIT_TEST_RAILS(rail_that_was_good_for_long_joins_at_once)
{
	uint32_t round;

	for (round = 0; round < 8; round++) {
		const uint32_t before = fake_verbs_calls();

		world.now_ns += 11 * KVPULL_NS_PER_S;
		world_run(5);
		fake_verbs_cut_device(1);
		world_run(2 * WORLD_MS_FLUSHED);
		assert_int_equal(fake_verbs_calls(), before + 1);
	}
	assert_int_equal(world.d.downs, 0);
	world_reads_well(3);
	assert_int_equal(world_reads_by(1), WORLD_BLOCKS / 2);
}

/* P knows a challenged consumer: another rail would begin all over again. */
UNIT_TEST_DOWN(handshake_in_the_middle_goes_by_no_other_rail)
{
	(void)world_rails_open();
	assert_int_equal(world_connect(), 0);
	while (!world.d.messages)
		world_run(1);
	fake_verbs_cut_device(0);
	world_run(WORLD_MS_FLUSHED);
	side_is_down(&world.d, KVPULL_EPEER);
	assert_int_equal(world.d.ups, 0);
	assert_int_equal(fake_verbs_calls(), 1);
}

/* By whichever rail notes go, each is taken, in order. */
UNIT_TEST(notes_go_by_any_rail_that_is_left)
{
	uint32_t rail;

	(void)world_rails_up_count(RAILS_MAX);
	for (rail = 0; rail < RAILS_MAX; rail++) {
		const struct kvpull_record record = { .kind = 1,
						      .generation = rail };

		assert_int_equal(world.d.route->ops->notify(
					 world.d.route, world.peer, &record),
				 0);
		if (rail + 1 < RAILS_MAX) {
			fake_verbs_knobs.answer = FAKE_VERBS_SILENCE;
			fake_verbs_cut_device(rail);
		}
		world_run(WORLD_MS_FLUSHED);
	}
	assert_int_equal(world.d.downs, 0);
	assert_int_equal(world.note_count, RAILS_MAX);
	for (rail = 0; rail < RAILS_MAX; rail++)
		assert_int_equal(world.notes[rail].generation, rail);
	assert_int_equal(world_down(state), 0);
}

/* The producer could draw no token: it would refuse each further rail. */
UNIT_TEST_DOWN(producer_without_a_token_is_called_by_one_rail)
{
	(void)world_rails_open();
	without_random = 1;
	world_connect_run(2 * WORLD_MS_FLUSHED);
	without_random = 0;
	assert_int_equal(world.d.ups, 1);
	assert_int_equal(fake_verbs_calls(), 1);
	world_reads_well(5);
	assert_int_equal(world_reads_by(0), WORLD_BLOCKS);
}
