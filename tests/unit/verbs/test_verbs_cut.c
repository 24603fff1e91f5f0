/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads whose connection was cut for another read: they say how many bytes
 * came, and the next connection reads the missing ones.
 */
#include "tests/unit/verbs/world.h"

#define HALF_BLOCKS (WORLD_BLOCKS / 2)
#define HALF_BYTES ((uint64_t)HALF_BLOCKS * WORLD_BLOCK_BYTES)

static struct kvpull_read victim; /* of the second half; it is cancelled */
static uint32_t first_half[KVPULL_GROUPS_MAX + 1];
static uint32_t second_half[KVPULL_GROUPS_MAX + 1];

static void reads_make(void)
{
	uint32_t i;

	first_half[0] = 0;
	second_half[0] = HALF_BLOCKS;
	for (i = 1; i <= KVPULL_GROUPS_MAX; i++) {
		first_half[i] = HALF_BLOCKS;
		second_half[i] = WORLD_BLOCKS;
	}
	world.read.group_first = first_half;
	world.read.byte_count = HALF_BYTES;
	victim = world.read;
	victim.index = 1;
	victim.group_first = second_half;
}

/* The read's first bytes are there, in the order of its ids. */
static void bytes_are_there(uint64_t bytes)
{
	uint64_t at;

	for (at = 0; at < bytes; at++) {
		const uint64_t byte = world.remote_ids[at / WORLD_BLOCK_BYTES] *
					      WORLD_BLOCK_BYTES +
				      at % WORLD_BLOCK_BYTES;

		assert_int_equal(world.d.memory[byte], world.p.memory[byte]);
	}
}

/* Both are read until so many work requests were carried out, then no more. */
static void cut_after(uint32_t requests)
{
	fake_verbs_knobs.held = !requests;
	fake_verbs_knobs.budget = requests;
	assert_int_equal(world_read_start(), 0);
	assert_int_equal(world_start(&victim), 0);
	world_run(3);
	world_cancel(&victim);
	world_run(400);
	assert_int_equal(world.d.reads_done, 2);
	assert_int_equal(world.d.down_code, KVPULL_EABORTED);
	assert_int_equal(world.d.read_code, KVPULL_EABORTED);
	memset(&fake_verbs_knobs, 0, sizeof(fake_verbs_knobs));
}

static void rest_is_read(uint32_t rails)
{
	const uint64_t done_bytes = world.read.done_bytes;
	const uint32_t before = fake_verbs_count(FAKE_VERBS_READ);

	world.d.reads_done = world.d.ups = 0;
	world_comes_up(20 * rails);
	world_read_run(5);
	world_read_ended(0);
	bytes_are_there(HALF_BYTES);
	assert_int_equal((fake_verbs_count(FAKE_VERBS_READ) - before) *
				 WORLD_BLOCK_BYTES,
			 HALF_BYTES - done_bytes);
}

/* Both wait in a lost rail for room in the other: one of them is cancelled. */
UNIT_TEST(cancelled_part_of_a_lost_rail_takes_no_others_with_it)
{
	(void)world_rails_open();
	world.depth = HALF_BLOCKS;
	world_consumer_again();
	world_connect_run(20);
	reads_make();
	world_read_held_by(3, 0);
	assert_int_equal(world_start(&victim), 0);
	fake_verbs_cut_device(1);
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(side_counts(&world.d)->requests_moved, 0);
	world_cancel(&victim);
	fake_verbs_knobs.held_devices = 2;
	world_run(20);
	assert_int_equal(world.d.reads_done, 2);
	assert_int_equal(world.d.downs, 0);
	bytes_are_there(HALF_BYTES);
	assert_int_equal(world_down(state), 0);
}

UNIT_TEST(cut_read_is_read_on_where_it_ended)
{
	uint32_t requests;
	uint32_t rails;
	uint32_t parts;

	for (rails = 1; rails <= 2; rails++) {
		parts = 0;
		/* Each rail still reads for the victim. */
		for (requests = 0; requests < WORLD_BLOCKS / rails;
		     requests += 3) {
			(void)world_rails_up_count(rails);
			reads_make();
			cut_after(requests);
			assert_in_range(world.read.done_bytes, 0, HALF_BYTES);
			bytes_are_there(world.read.done_bytes);
			parts += world.read.done_bytes &&
				 world.read.done_bytes < HALF_BYTES;
			rest_is_read(rails);
			assert_int_equal(world_down(state), 0);
		}
		/* Four a doorbell, of both in turns. */
		assert_true(parts > 5);
	}
}
