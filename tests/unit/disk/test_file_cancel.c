/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of file regions that end before their pieces have come. */
#include "tests/unit/disk/world.h"

static void is_untouched(const struct world *world)
{
	size_t i;

	for (i = 0; i < LOCAL_BYTES; i++)
		if (world->local[i] != UNTOUCHED)
			fail();
}

static void cancelled_read(struct world *world)
{
	(void)read_plain(world, 0, 48, 131072);
	start(world, 0);
	poll_once(world);
	assert_int_equal(world->ended_count, 0);
	if (world->way != WAY_PREAD)
		assert_int_equal(world->files.uring.in_flight,
				 KVPULL_FILE_DEPTH);
	memset(world->local, UNTOUCHED, LOCAL_BYTES);
	kvpull_files_cancel(&world->files, &world->reads[0], KVPULL_EABORTED);
	/* The first one counts. */
	kvpull_files_cancel(&world->files, &world->reads[0], KVPULL_EPEER);
	assert_int_equal(kvpull_files_arm(&world->files), 1);
	poll_once(world);
	only_one_ended(world, 0, KVPULL_EABORTED);
	/* The read's memory may be anybody's now. */
	memset(&world->read[0], 0xff, sizeof(world->read[0]));
	memset(&world->reads[0], 0xff, sizeof(world->reads[0]));
	pieces_are_back(world);
	assert_int_equal(world->ended_count, 1);
	is_untouched(world);
}

UNIT_TEST(cancelled_read_ends_at_once_and_writes_no_more)
{
	in_each_way(cancelled_read);
}

static void waiting_read(struct world *world)
{
	(void)read_plain(world, 0, 48, 131072);
	start(world, 0);
	start(world, 0 + 1);
	(void)read_plain(world, 1, 48, 131072);
	kvpull_files_cancel(&world->files, &world->reads[1], KVPULL_EPEER);
	poll_once(world);
	only_one_ended(world, 1, KVPULL_EPEER);
	poll_until(world, 2);
	assert_ptr_equal(world->ended[1], &world->reads[0]);
	assert_int_equal(world->reads[0].code, 0);
	pieces_are_back(world);
	verify(world, &world->read[0]);
}

UNIT_TEST(read_that_still_waits_can_be_cancelled)
{
	in_each_way(waiting_read);
}

static void over_read(struct world *world)
{
	(void)read_plain(world, 0, 4, 4096);
	start(world, 0);
	poll_until(world, 1);
	only_one_ended(world, 0, 0);
	kvpull_files_cancel(&world->files, &world->reads[0], KVPULL_EABORTED);
	only_one_ended(world, 0, 0);
	verify(world, &world->read[0]);
	pieces_are_back(world);
}

UNIT_TEST(read_that_was_over_stays_so)
{
	in_each_way(over_read);
}

/*
 * The read's descriptors are closed as soon as it has ended, and may be another
 * file's.
 */
static void closed_read(struct world *world)
{
	(void)read_plain(world, 0, 48, 131072);
	start(world, 0);
	poll_once(world);
	kvpull_files_cancel(&world->files, &world->reads[0], KVPULL_EPEER);
	kvpull_file_close(&world->regions[1]);
	poll_once(world);
	pieces_are_back(world);
	only_one_ended(world, 0, KVPULL_EPEER);
}

UNIT_TEST(files_close_while_their_pieces_are_under_way)
{
	in_each_way(closed_read);
}

static void left_read(struct world *world)
{
	(void)read_plain(world, 0, 48, 131072);
	start(world, 0);
	poll_once(world);
	assert_int_equal(world->ended_count, 0);
}

UNIT_TEST(close_with_pieces_under_way_does_not_hang)
{
	in_each_way(left_read);
}

/*
 * Entries that the kernel did not take are not read from a later file of that
 * number.
 */
static void busy_read(struct world *world)
{
	const int own = world->regions[1].fd;
	const int own_direct = world->regions[1].direct_fd;
	char text[8];
	int pipes[2];

	if (world->way == WAY_PREAD)
		return;
	assert_int_equal(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(write(pipes[1], "others'", 8), 8);
	(void)read_plain(world, 0, 16, 131072);
	start(world, 0);
	kernel_is_busy = 1;
	poll_once(world);
	assert_int_equal(kvpull_files_arm(&world->files), 1);
	kvpull_files_cancel(&world->files, &world->reads[0], KVPULL_EPEER);
	poll_once(world);
	only_one_ended(world, 0, KVPULL_EPEER);
	kvpull_file_close(&world->regions[1]);
	assert_int_equal(dup2(pipes[0], own), own);
	if (own_direct >= 0)
		assert_int_equal(dup2(pipes[0], own_direct), own_direct);
	kernel_is_busy = 0;
	poll_once(world);
	pieces_are_back(world);
	assert_int_equal(read(pipes[0], text, sizeof(text)), 8);
	(void)close(own);
	if (own_direct >= 0)
		(void)close(own_direct);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
}

UNIT_TEST(dropped_piece_reads_nothing_of_others)
{
	in_each_way(busy_read);
}

static void waiting_for_the_kernel(struct world *world)
{
	kernel_is_busy = 1;
	(void)read_plain(world, 0, 16, 131072);
	start(world, 0);
	poll_once(world);
	kvpull_files_close(&world->files, kvpull_clock_close_by());
	kernel_is_busy = 0;
	assert_int_equal(lines.bad_count, 0);
}

UNIT_TEST(close_drops_what_the_kernel_did_not_take)
{
	in_each_way(waiting_for_the_kernel);
}
