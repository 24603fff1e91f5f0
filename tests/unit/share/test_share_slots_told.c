/* SPDX-License-Identifier: Apache-2.0 */
/* The codes of spills are true, whatever the owner does meanwhile. */
#include "tests/unit/share/handle.h"

#define SLOTS 4u

uint32_t world_blocks = HANDLE_CHUNKS;

static struct handle_world world;
static int32_t codes[HANDLE_CHUNKS];

UNIT_FIXTURE(setup)
{
	const struct kvpull_reader_share params =
		handle_slots("/var/tmp", SLOTS);

	handle_begin(&world, "");
	handle_share(&world, &params);
}

/* A put of a chunk of a new share. */
static struct kvpull_pool_put put_of(uint32_t chunk, uint64_t key)
{
	return (struct kvpull_pool_put){ .key.words[0] = key << 32,
					 .place = chunk,
					 .generation = 1,
					 .epoch = 1 };
}

/* Chunks 0 .. count - 1, with keys chunk + 1. */
static void spill(uint32_t count, struct kvpull_reader_record *record)
{
	struct kvpull_pool_put puts[HANDLE_CHUNKS];
	uint64_t id;
	uint32_t at;

	for (at = 0; at < count; at++)
		puts[at] = put_of(at, at + 1);
	assert_int_equal(kvpull_share_spill_begin(&world.owner->spills, puts,
						  count, codes, UINT64_MAX,
						  &id),
			 0);
	handle_spilled(&world, id, record);
}

/* As put() has it: one generation's bytes are one key's. */
UNIT_TEST_WITH(a_chunk_is_spilled_under_the_key_that_it_is_listed_under, setup,
	       handle_down)
{
	const struct kvpull_pool_put other = put_of(0, 2);
	struct kvpull_reader_record record;

	assert_int_equal(kvpull_pool_put(world.owner->pool, &other), 0);
	spill(1, &record);
	assert_int_equal(record.code, KVPULL_EINVAL);
	assert_int_equal(codes[0], KVPULL_EINVAL);
}

/* Though its put told a generation that had not begun. */
UNIT_TEST_WITH(a_chunk_is_not_written_while_it_is_copied, setup, handle_down)
{
	struct kvpull_pool_put early = put_of(0, 1);
	uint64_t id;

	early.generation++;
	assert_int_equal(kvpull_share_spill_begin(&world.owner->spills, &early,
						  1, codes, UINT64_MAX, &id),
			 0);
	assert_int_equal(
		world.ops->guard_bump(world.owner, &early.place, 1, NULL), 0);
	(void)kvpull_share_spills_run(&world.owner->spills, 0);
	/* Bytes of before and of after would be in the slot, and listed. */
	assert_int_equal(world.ops->write_begin(world.owner, early.place),
			 KVPULL_EINVAL);
}

UNIT_TEST_WITH(what_lost_its_slot_before_the_end_is_not_told_as_there, setup,
	       handle_down)
{
	struct kvpull_reader_record record;

	spill(SLOTS, &record);
	assert_int_equal(record.code, 0);
	/*
	 * The first chunks are in the file, and the fifth takes the oldest
	 * one's slot.
	 */
	spill(SLOTS + 1, &record);
	assert_int_equal(record.code, KVPULL_ESTALE);
	assert_int_equal(record.count, SLOTS);
	assert_int_equal(codes[0], KVPULL_ESTALE);
	assert_int_equal(codes[1], 0);
	assert_int_equal(codes[SLOTS], 0);
}
