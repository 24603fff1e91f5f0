/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posts that a device takes in part: of what it took none is signalled. Whoever
 * sleeps hears of its end all the same.
 */
#include "tests/unit/verbs/world.h"

#include <errno.h>

#define TAKEN 5u

/* Nothing is a neighbour of anything: 64 work requests. */
static int attached(void **state)
{
	(void)world_attached(state);
	world_scatter();
	return 0;
}

/* D sleeps with its bell armed; its engine starts a read in between. */
static void read_is_posted_in_part(void)
{
	side_sleep(&world.d);
	fake_verbs_knobs.post_at = TAKEN + 1;
	fake_verbs_knobs.post_times = 1;
	fake_verbs_knobs.post_error = ENOMEM;
	assert_int_equal(world_read_start(), 0);
	assert_int_equal(side_counts(&world.d)->post_busy, 1);
	assert_int_equal(world.d.route->ops->arm(world.d.route), 0);
}

#define TEST(name) UNIT_TEST_WITH(name, attached, world_down)

TEST(part_that_was_posted_wakes_a_sleeper)
{
	read_is_posted_in_part();
	fake_verbs_run();
	assert_int_equal(side_would_wake(&world.d), 1);
	world.d.route->ops->disarm(world.d.route);
	world_read_ends_well(3);
	/* A READ was posted twice, to where it belongs. */
	assert_int_equal(fake_verbs_count(FAKE_VERBS_READ), WORLD_BLOCKS + 1);
	assert_int_equal(side_counts(&world.d)->read_bytes, WORLD_BYTES);
}

/* Nothing is posted behind it any more: it is not cut, it is done. */
TEST(part_that_was_posted_ends_a_cancelled_read)
{
	read_is_posted_in_part();
	world_read_cancel();
	world_run(3);
	world_read_ended(KVPULL_EABORTED);
	assert_int_equal(side_counts(&world.d)->flushes, 0);
	assert_int_equal(world.d.downs, 0);
}

/* Slots of tails are given back: no queue overflows, however many there were. */
TEST(parts_leave_no_slot_taken)
{
	uint32_t round;

	for (round = 1; round <= 600; round++) {
		world.d.reads_done = 0;
		memset(world.d.memory, 0, WORLD_BYTES);
		fake_verbs_knobs.post_at = TAKEN + 1;
		fake_verbs_knobs.post_times = 1;
		fake_verbs_knobs.post_error = EAGAIN;
		world_reads_well(4);
	}
	assert_int_equal(side_counts(&world.d)->post_busy, 600);
}

/* Two of four go by the rail that is left; the others follow. */
UNIT_TEST_RAILS(part_of_a_lost_rail_that_was_posted_in_part_is_read)
{
	world_read_held_by(2, 3);
	fake_verbs_knobs.post_at = 3;
	fake_verbs_knobs.post_times = 1;
	fake_verbs_knobs.post_error = ENOMEM;
	fake_verbs_cut_device(1);
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(fake_verbs_knobs.post_times, 0);
	world_read_is_good();
	assert_int_equal(side_counts(&world.d)->requests_moved,
			 WORLD_BLOCKS / 2);
}

/*
 * Notifications that a lost rail swallowed are posted first, and the queue is
 * full.
 */
UNIT_TEST_RAILS(notification_does_not_overtake_those_before)
{
	world_read_held_by(3, 0);
	assert_int_equal(world_note_send(1), 0);
	assert_int_equal(world_note_send(2), 0);
	fake_verbs_cut_device(0);
	fake_verbs_knobs.post_at = 1;
	fake_verbs_knobs.post_times = 1;
	fake_verbs_knobs.post_error = ENOMEM;
	while (fake_verbs_knobs.post_times)
		side_poll(&world.d);
	assert_int_equal(world_note_send(3), KVPULL_EAGAIN);
	fake_verbs_knobs.held_devices = 1;
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world_note_send(3), 0);
	world_run(3);
	assert_int_equal(world.note_count, 3);
	assert_int_equal(world.notes[1].generation, 2);
	assert_int_equal(world.p.downs + world.d.downs, 0);
}

/* Nothing is on its way that would tell when there is room. */
TEST(queue_that_nobody_fills_is_not_full)
{
	side_sleep(&world.d);
	fake_verbs_knobs.post_at = 1;
	fake_verbs_knobs.post_times = 1;
	fake_verbs_knobs.post_error = ENOMEM;
	world_read_run(WORLD_MS_FLUSHED);
	world_read_ended(KVPULL_EPEER);
	assert_int_equal(world.d.downs, 1);
}
