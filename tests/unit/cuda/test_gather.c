/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of device memory as C, on random jobs: each byte by a plain loop. */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gather.cu"
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
	struct gather_strip strips[STRIPS_MAX];
	uint32_t source_ids[STRIPS_MAX * IDS_MAX];
	uint32_t target_ids[STRIPS_MAX * IDS_MAX];
	uint32_t id_count[STRIPS_MAX];
	struct gather_job job;
	uint64_t unit_count;
} world;

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
static void ids_draw(uint32_t strip, uint64_t first)
{
	uint32_t i;

	world.id_count[strip] = 1 + draw(IDS_MAX);
	for (i = 0; i < world.id_count[strip]; i++) {
		const uint32_t other = draw(i + 1);

		world.source_ids[first + i] = draw(IDS_MAX);
		world.target_ids[first + i] = world.target_ids[first + other];
		world.target_ids[first + other] = i;
	}
}

static void job_draw(void)
{
	uint64_t first = 0;
	uint32_t i;

	world.unit_count = 0;
	world.job = (struct gather_job){
		.strips = world.strips,
		.source_ids = world.source_ids,
		.target_ids = world.target_ids,
		.strip_count = 1 + draw(STRIPS_MAX),
	};
	for (i = 0; i < world.job.strip_count; i++) {
		struct gather_strip *strip = &world.strips[i];
		const uint32_t pieces = 1 + draw(ROW_PIECES_MAX);

		ids_draw(i, first);
		*strip = (struct gather_strip){
			.source = (uint64_t)(uintptr_t)world.source +
				  i * STRIP_BYTES,
			.target = (uint64_t)(uintptr_t)world.target +
				  i * STRIP_BYTES,
			.source_stride = STRIP_BYTES / IDS_MAX,
			.target_stride = STRIP_BYTES / IDS_MAX,
			.row_bytes = (uint64_t)pieces * GATHER_PIECE_BYTES,
			.unit_first = world.unit_count,
			.id_first = first,
		};
		first += world.id_count[i];
		world.unit_count += (strip->row_bytes + GATHER_UNIT_BYTES - 1) /
				    GATHER_UNIT_BYTES * world.id_count[i];
	}
}

static void expected_make(void)
{
	uint32_t strip;
	uint32_t i;

	memset(world.expected, UNTOUCHED, STRIPS_MAX * STRIP_BYTES);
	for (strip = 0; strip < world.job.strip_count; strip++) {
		const struct gather_strip *at = &world.strips[strip];

		for (i = 0; i < world.id_count[strip]; i++)
			memcpy(world.expected + strip * STRIP_BYTES +
				       world.target_ids[at->id_first + i] *
					       at->target_stride,
			       world.source + strip * STRIP_BYTES +
				       world.source_ids[at->id_first + i] *
					       at->source_stride,
			       at->row_bytes);
	}
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

static int teardown(void **state)
{
	(void)state;
	free(world.source);
	free(world.target);
	free(world.expected);
	return 0;
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
