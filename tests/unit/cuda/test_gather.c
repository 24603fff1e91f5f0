/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of device memory as C, on random copies as the library launches
 * them: each byte by a plain loop.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/kernel.h"
#include "tests/gpu/kernels.cu"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"

#define JOBS 300u
#define STRIPS_MAX 4u
#define IDS_MAX 24u
#define ROW_PIECES_MAX 4096u /* four units */
#define STRIP_BYTES ((uint64_t)IDS_MAX * ROW_PIECES_MAX * GATHER_PIECE_BYTES)
#define UNTOUCHED 0xee

static struct {
	uint64_t random;
	uint8_t *source;
	uint8_t *target;
	uint8_t *expected;
	struct kvpull_device_strip strips[STRIPS_MAX];
	struct kvpull_cuda_slot slot;
	uint32_t source_ids[STRIPS_MAX * IDS_MAX];
	uint32_t target_ids[STRIPS_MAX * IDS_MAX];
	struct gather_job job;
	uint64_t unit_count;
} world;

static struct kvpull_device_gather bounded;
static struct kvpull_device_strip *bounded_strips;

static void *memory(uint64_t address, uint64_t bytes, int is_store)
{
	(void)is_store;
	assert_int_equal(address % (bytes < 16 ? 4 : 8), 0);
	return (void *)(uintptr_t)address;
}

static uint32_t draw(uint32_t below)
{
	return (uint32_t)(random_next(&world.random) % below);
}

/* Distinct targets, since two rows in one place have no order. */
static void ids_draw(uint32_t *source_ids, uint32_t *target_ids, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++) {
		const uint32_t other = draw(i + 1);

		source_ids[i] = draw(IDS_MAX);
		target_ids[i] = target_ids[other];
		target_ids[other] = i;
	}
}

static void strip_draw(uint32_t at)
{
	uint32_t *const source_ids = world.source_ids + at * IDS_MAX;
	uint32_t *const target_ids = world.target_ids + at * IDS_MAX;
	const uint32_t count = 1 + draw(IDS_MAX);

	ids_draw(source_ids, target_ids, count);
	world.strips[at] = (struct kvpull_device_strip){
		.source = (uint64_t)(uintptr_t)world.source + at * STRIP_BYTES,
		.target = (uint64_t)(uintptr_t)world.target + at * STRIP_BYTES,
		.source_stride = STRIP_BYTES / IDS_MAX,
		.target_stride = STRIP_BYTES / IDS_MAX,
		.row_bytes = (uint64_t)(1 + draw(ROW_PIECES_MAX)) *
			     GATHER_PIECE_BYTES,
		.source_ids = source_ids,
		.target_ids = target_ids,
		.row_count = count,
	};
}

static uint64_t planned(uint32_t strip_count)
{
	const struct kvpull_device_gather gather = { world.strips, strip_count,
						     0 };

	return kvpull_cuda_plan(&gather, &world.slot, &world.job);
}

static void job_draw(void)
{
	const uint32_t count = 1 + draw(STRIPS_MAX);
	uint64_t units = 0;
	uint32_t i;

	for (i = 0; i < count; i++) {
		strip_draw(i);
		units += (world.strips[i].row_bytes + GATHER_UNIT_BYTES - 1) /
			 GATHER_UNIT_BYTES * world.strips[i].row_count;
	}
	world.unit_count = planned(count);
	assert_int_equal(world.unit_count, units);
	/* The kernel has what is in the slot, and nothing else. */
	memset(world.strips + count, UNTOUCHED,
	       (STRIPS_MAX - count) * sizeof(*world.strips));
}

static void expected_make(void)
{
	uint32_t strip;
	uint32_t i;

	memset(world.expected, UNTOUCHED, STRIPS_MAX * STRIP_BYTES);
	for (strip = 0; strip < world.job.strip_count; strip++) {
		const struct kvpull_device_strip *at = &world.strips[strip];

		for (i = 0; i < at->row_count; i++)
			memcpy(world.expected + strip * STRIP_BYTES +
				       at->target_ids[i] * at->target_stride,
			       world.source + strip * STRIP_BYTES +
				       at->source_ids[i] * at->source_stride,
			       at->row_bytes);
	}
	/* The ids are the slot's from here on. */
	memset(world.source_ids, UNTOUCHED, sizeof(world.source_ids));
}

static void each_thread(uint32_t blocks,
			void (*run)(uint64_t first, uint64_t end),
			uint64_t first, uint64_t end)
{
	gather_thread.blocks = blocks;
	gather_thread.memory = memory;
	for (gather_thread.block = 0; gather_thread.block < blocks;
	     gather_thread.block++)
		for (gather_thread.lane = 0; gather_thread.lane < GATHER_LANES;
		     gather_thread.lane++)
			run(first, end);
}

static void gather_run(uint64_t first, uint64_t end)
{
	gather(world.job, first, end);
}

static int setup(void **state)
{
	(void)state;
	world.random = 34;
	world.source = aligned_alloc(64, STRIPS_MAX * STRIP_BYTES);
	world.target = aligned_alloc(64, STRIPS_MAX * STRIP_BYTES);
	world.expected = aligned_alloc(64, STRIPS_MAX * STRIP_BYTES);
	return !world.source || !world.target || !world.expected;
}

UNIT_FIXTURE(teardown)
{
	free(world.source);
	free(world.target);
	free(world.expected);
}

UNIT_TEST_WITH(random_jobs_copy_each_row_and_nothing_else, setup, teardown)
{
	uint64_t at;
	uint32_t i;

	for (at = 0; at < STRIPS_MAX * STRIP_BYTES; at++)
		world.source[at] = (uint8_t)random_next(&world.random);
	for (i = 0; i < JOBS; i++) {
		const uint32_t blocks = 1 + draw(9);
		uint64_t cut;

		job_draw();
		expected_make();
		memset(world.target, UNTOUCHED, STRIPS_MAX * STRIP_BYTES);
		/* In two slices. */
		cut = draw((uint32_t)world.unit_count);
		each_thread(blocks, gather_run, 0, cut);
		each_thread(blocks, gather_run, cut, world.unit_count);
		assert_memory_equal(world.target, world.expected,
				    STRIPS_MAX * STRIP_BYTES);
	}
}

static struct gather_expected stamped;
static uint64_t differences;

static void stamp_run(uint64_t first, uint64_t end)
{
	stamp(first, end, stamped.seed);
}

static void compare_run(uint64_t first, uint64_t end)
{
	(void)first;
	compare(world.job, end, stamped);
}

UNIT_TEST_WITH(comparison_counts_each_piece_that_differs, setup, teardown)
{
	uint64_t *piece;

	stamped = (struct gather_expected){
		.origin = (uint64_t)(uintptr_t)world.source,
		.seed = 0x123456789,
		.counter = (uint64_t)(uintptr_t)&differences,
	};
	job_draw();
	each_thread(3, stamp_run, stamped.origin,
		    STRIPS_MAX * STRIP_BYTES / GATHER_PIECE_BYTES);
	each_thread(3, gather_run, 0, world.unit_count);
	each_thread(5, compare_run, 0, world.unit_count);
	assert_int_equal(differences, 0);
	/* Turn a bit in the last piece of a row. */
	piece = (uint64_t *)(uintptr_t)(world.strips[0].target +
					world.target_ids[0] *
						world.strips[0].target_stride +
					world.strips[0].row_bytes - 8);
	*piece ^= (uint64_t)1 << 63;
	each_thread(5, compare_run, 0, world.unit_count);
	assert_int_equal(differences, 1);
}

/* ---- bounds ---- */

static void strips_make(uint32_t count, uint32_t row_count)
{
	static uint32_t ids[KVPULL_DEVICE_ROWS_MAX];
	static struct kvpull_device_strip strips[KVPULL_DEVICE_STRIPS_MAX + 1];
	uint32_t at;

	for (at = 0; at < count; at++)
		strips[at] = (struct kvpull_device_strip){
			.row_bytes = GATHER_UNIT_BYTES + 16,
			.source_ids = ids,
			.target_ids = ids,
			.row_count = row_count,
		};
	bounded = (struct kvpull_device_gather){ strips, count, 0 };
	bounded_strips = strips;
}

static uint64_t units(void)
{
	return kvpull_cuda_plan(&bounded, &world.slot, &world.job);
}

UNIT_TEST(copy_beyond_a_bound_has_no_plan)
{
	strips_make(KVPULL_DEVICE_STRIPS_MAX, 1);
	assert_int_equal(units(), 2 * KVPULL_DEVICE_STRIPS_MAX);
	strips_make(KVPULL_DEVICE_STRIPS_MAX + 1, 1);
	assert_int_equal(units(), 0);
	strips_make(0, 1);
	assert_int_equal(units(), 0);
	strips_make(2, KVPULL_DEVICE_ROWS_MAX / 2);
	assert_int_equal(units(), 2 * KVPULL_DEVICE_ROWS_MAX);
	bounded_strips[1].row_count++;
	assert_int_equal(units(), 0);
	strips_make(1, 0);
	assert_int_equal(units(), 0);
	strips_make(1, UINT32_MAX);
	assert_int_equal(units(), 0);
}

UNIT_TEST(copy_that_is_not_of_units_has_no_plan)
{
	static const size_t members[] = {
		offsetof(struct kvpull_device_strip, source),
		offsetof(struct kvpull_device_strip, target),
		offsetof(struct kvpull_device_strip, source_stride),
		offsetof(struct kvpull_device_strip, target_stride),
		offsetof(struct kvpull_device_strip, row_bytes),
	};
	size_t at;

	for (at = 0; at < sizeof(members) / sizeof(*members); at++) {
		strips_make(1, 3);
		assert_int_equal(units(), 6);
		*(uint64_t *)(void *)((uint8_t *)bounded_strips +
				      members[at]) += 8;
		assert_int_equal(units(), 0);
	}
	strips_make(1, 3);
	bounded_strips[0].row_bytes = 0;
	assert_int_equal(units(), 0);
}
