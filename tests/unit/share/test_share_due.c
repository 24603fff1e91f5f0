/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a handle has something to do by itself: the deadlines of probes, reads and
 * spills, which poll() and an engine that sleeps go by.
 */
#include "tests/unit/share/handle.h"

#define SLOTS 4u

uint32_t world_blocks = HANDLE_CHUNKS;

static struct handle_world world;
static int32_t codes[HANDLE_CHUNKS];
static struct kvpull_reader_place place;
static uint64_t incarnation; /* of the owner, as a probe told it */

static void begin(const char *more)
{
	const struct kvpull_reader_share share =
		handle_slots("/dev/shm", SLOTS);
	struct kvpull_reader_record record;

	handle_begin(&world, more);
	handle_share(&world, &share);
	handle_connect(&world);
	(void)handle_fill(&world, 0, 1);
	(void)handle_probed(&world, 1, &place, &record);
	assert_int_equal(record.code, 0);
	incarnation = record.incarnation;
}

UNIT_FIXTURE(setup)
{
	begin(",\"inline_bytes\":0,\"lease_ms\":400000");
}

UNIT_FIXTURE(setup_deadline)
{
	begin(",\"inline_bytes\":0,\"lease_ms\":400000,\"deadline_ms\":300000");
}

/* Chunk 0 is begun to be read into this block. */
static uint64_t read_begin(uint32_t block, uint64_t deadline_ns)
{
	uint64_t id;

	assert_int_equal(handle_read_into(&world, block, &place, 1, incarnation,
					  deadline_ns, &codes[block], &id),
			 0);
	return id;
}

static uint64_t spill_begin(uint32_t at, uint64_t deadline_ns)
{
	uint64_t id;

	assert_int_equal(
		handle_spill(&world, 0, 1, 0, deadline_ns, &codes[at], &id), 0);
	return id;
}

static uint64_t reads_due_ns(void)
{
	return kvpull_share_reader_due_ns(world.reader->reader);
}

static uint64_t spills_due_ns(void)
{
	return kvpull_share_spills_due_ns(&world.owner->spills);
}

/* Without a deadline of the call's, so long after it. */
static void expect_default(uint64_t ms)
{
	uint64_t before_ns = kvpull_clock_ns();

	(void)read_begin(0, 0);
	assert_in_range(reads_due_ns(), before_ns + ms * KVPULL_NS_PER_MS,
			kvpull_clock_ns() + ms * KVPULL_NS_PER_MS);
	before_ns = kvpull_clock_ns();
	(void)spill_begin(1, 0);
	assert_in_range(spills_due_ns(), before_ns + ms * KVPULL_NS_PER_MS,
			kvpull_clock_ns() + ms * KVPULL_NS_PER_MS);
}

UNIT_TEST_WITH(reads_and_spills_are_due_after_deadline_ms, setup_deadline,
	       handle_down)
{
	expect_default(300000);
}

UNIT_TEST_WITH(reads_and_spills_are_due_after_lease_ms_without_one, setup,
	       handle_down)
{
	expect_default(400000);
}

UNIT_TEST_WITH(the_earliest_deadline_is_due_until_its_read_ends, setup,
	       handle_down)
{
	const uint64_t far_ns = kvpull_clock_ns() + 1000 * KVPULL_NS_PER_S;
	struct kvpull_reader_record record;
	uint64_t id;

	assert_true(reads_due_ns() == UINT64_MAX);
	(void)read_begin(0, far_ns + 2);
	assert_true(reads_due_ns() == far_ns + 2);
	id = read_begin(1, far_ns + 1);
	assert_true(reads_due_ns() == far_ns + 1);
	(void)read_begin(2, far_ns + 3);
	assert_true(reads_due_ns() == far_ns + 1);
	assert_int_equal(world.ops->cancel(world.reader, id), 0);
	assert_true(reads_due_ns() == far_ns + 2);
	assert_int_equal(world.reader->counts.asks_live, 3);
	while (world.reader->counts.asks_live)
		(void)handle_turn(&world, &record);
	assert_true(reads_due_ns() == UINT64_MAX);
}

UNIT_TEST_WITH(the_earliest_deadline_is_due_until_its_spill_ends, setup,
	       handle_down)
{
	const uint64_t far_ns = kvpull_clock_ns() + 1000 * KVPULL_NS_PER_S;
	struct kvpull_reader_record record;
	uint64_t id;

	assert_true(spills_due_ns() == UINT64_MAX);
	assert_true(kvpull_share_spills_due_ns(&world.reader->spills) ==
		    UINT64_MAX);
	(void)spill_begin(0, far_ns + 2);
	assert_true(spills_due_ns() == far_ns + 2);
	id = spill_begin(1, far_ns + 1);
	assert_true(spills_due_ns() == far_ns + 1);
	(void)spill_begin(2, far_ns + 3);
	assert_true(spills_due_ns() == far_ns + 1);
	assert_int_equal(world.ops->cancel(world.owner, id), 0);
	assert_true(spills_due_ns() == far_ns + 2);
	/* Once, and no spill of a later number in the same place. */
	assert_int_equal(world.ops->cancel(world.owner, id), KVPULL_EINVAL);
	assert_int_equal(
		world.ops->cancel(world.owner, id + (UINT64_C(1) << 32)),
		KVPULL_EINVAL);
	assert_int_equal(world.ops->cancel(world.owner,
					   (id & ~UINT64_C(0xffffffff)) |
						   (KVPULL_READER_OPEN_MAX +
						    KVPULL_READER_SPILLS_MAX)),
			 KVPULL_EINVAL);
	/* The end of the cancelled spill is the first to be told. */
	assert_int_equal(kvpull_share_spills_arm(&world.owner->spills), 1);
	assert_int_equal(
		world.ops->poll(world.owner, &record, 1, sizeof(record)), 1);
	assert_int_equal(record.id, id);
	assert_int_equal(record.code, KVPULL_EABORTED);
	assert_int_equal(record.count, 0);
	assert_int_equal(codes[1], KVPULL_EABORTED);
}
