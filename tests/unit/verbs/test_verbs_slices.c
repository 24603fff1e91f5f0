/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is registered in slices: pulls are cut where a slice ends, on
 * either side, and a device that comes back takes one slice a poll. Slices have
 * 4 KiB here.
 */
#include "tests/unit/verbs/world.h"

#define SLICE 4096u
#define SHIFT 12u
#define BLOCK 1000u
#define BLOCKS 12u
#define BYTES (BLOCKS * BLOCK)

/* P's second region is read, into D's first one; neither begins with a slice. */
static _Alignas(SLICE) uint8_t p_memory[8 * SLICE];
static _Alignas(SLICE) uint8_t d_memory[8 * SLICE];
static uint8_t *const p_base = p_memory + 3 * SLICE + 500;
static uint8_t *const d_base = d_memory + 2222;

static uint64_t slices_of(const uint8_t *base, uint64_t bytes)
{
	return ((uintptr_t)base + bytes - 1) / SLICE - (uintptr_t)base / SLICE +
	       1;
}

static void region_add(struct world_side *side, uint32_t kind, uint8_t *base,
		       uint64_t bytes)
{
	side->serve.regions[side->serve.region_count++] =
		(struct kvpull_region_view){
			.kind = kind,
			.fd = 9,
			.base = base,
			.fd_offset = SLICE + (uintptr_t)base % SLICE,
			.bytes = bytes
		};
}

static int side_serves(struct world_side *side)
{
	side->serve.slot_count = WORLD_SLOTS;
	side->serve.entries = side->entries;
	route_begin(side->route);
	return side->route->ops->serve(side->route, &side->serve);
}

static void sides_serve(uint32_t kind)
{
	uint32_t i;

	world_init();
	world.mr_shift = SHIFT;
	assert_int_equal(side_open(&world.p), 0);
	assert_int_equal(side_open(&world.d), 0);
	region_add(&world.p, kind, p_memory + 100, SLICE + 1);
	region_add(&world.p, kind, p_base, BYTES);
	region_add(&world.d, kind, d_base, BYTES);
	assert_int_equal(side_serves(&world.p), 0);
	assert_int_equal(side_serves(&world.d), 0);
	for (i = 0; i < BYTES; i++)
		p_base[i] = (uint8_t)(i * 31 + i / 256 + 1);
	for (i = 0; i < WORLD_SLOTS; i++)
		atomic_store_explicit(&world.p.entries[i].incarnation,
				      WORLD_INCARNATION, memory_order_relaxed);
}

/* Block i of P to block i * step of D. */
static void read_make(uint32_t step)
{
	uint32_t i;

	memset(d_memory, 0, sizeof(d_memory));
	world.d.reads_done = world.d.checks_done = 0;
	world_read_make(0);
	for (i = 0; i < BLOCKS; i++)
		world.local_ids[i] = i * step % BLOCKS;
	for (i = 1; i <= KVPULL_GROUPS_MAX; i++)
		world.group_first[i] = BLOCKS;
	world.strip.region_index = 1;
	world.strip.remote_block_stride = world.strip.local_block_stride =
		BLOCK;
	world.strip.row_bytes = BLOCK;
	world.strip.local = d_base;
	world.read.byte_count = BYTES;
}

static void pull_is_right(uint32_t step)
{
	uint32_t i;

	read_make(step);
	world_read_run(20);
	world_read_ended(0);
	for (i = 0; i < BLOCKS; i++)
		assert_memory_equal(d_base + world.local_ids[i] * BLOCK,
				    p_base + i * BLOCK, BLOCK);
	world_check_is_good();
}

static void connected(void)
{
	world.d.ups = 0;
	world_comes_up(20);
	assert_int_equal(world.attach_code, 0);
}

#define TEST(name) UNIT_TEST_DOWN(name)

TEST(pull_is_cut_where_slices_end)
{
	const uint64_t slices = slices_of(p_memory + 100, SLICE + 1) +
				slices_of(p_base, BYTES) +
				slices_of(d_base, BYTES);

	sides_serve(KVPULL_REGION_PROVIDED);
	/* Besides, each its entries, and where it reads others'. */
	assert_int_equal(fake_verbs_registrations(), slices + 4);
	connected();
	pull_is_right(1);
	/* In one row on both sides: cut by P's slices, and no more. */
	assert_int_equal(fake_verbs_count(FAKE_VERBS_READ),
			 slices_of(p_base, BYTES));
	pull_is_right(5);
	pull_is_right(7);
}

/* More than there is room for: said at once, and nothing is left behind. */
TEST(too_many_slices_are_refused)
{
	const uint32_t live = fake_verbs_live();

	world_init();
	world.mr_shift = SHIFT;
	assert_int_equal(side_open(&world.p), 0);
	region_add(&world.p, KVPULL_REGION_PROVIDED, p_memory,
		   UINT64_C(1) << 40);
	assert_int_equal(side_serves(&world.p), KVPULL_EUNSUPPORTED);
	side_close(&world.p);
	assert_int_equal(fake_verbs_live(), live);
}

/* Return: the most that one poll of a side registered, or deregistered. */
static uint32_t most_in_a_poll(uint32_t steps)
{
	struct world_side *const sides[] = { &world.p, &world.d };
	uint32_t most = 0;
	uint32_t i;

	for (i = 0; i < 2 * steps; i++) {
		const uint32_t made = fake_verbs_registrations();
		const uint32_t unmade = fake_verbs_deregistrations();

		world.now_ns += WORLD_STEP_NS / 2;
		side_poll(sides[i % 2]);
		if (fake_verbs_registrations() - made > most)
			most = fake_verbs_registrations() - made;
		if (fake_verbs_deregistrations() - unmade > most)
			most = fake_verbs_deregistrations() - unmade;
	}
	return most;
}

TEST(device_that_comes_back_takes_a_slice_a_poll)
{
	const uint32_t served = 2 + 1 + 4;

	sides_serve(KVPULL_REGION_PROVIDED);
	assert_in_range(slices_of(d_base, BYTES), 4, 9);
	connected();
	pull_is_right(1);
	fake_verbs_remove_device();
	/*
	 * A poll deregisters one MR, and memory of a page: frames, or entries.
	 */
	assert_in_range(most_in_a_poll(3000), 1, 2);
	assert_int_equal(world.d.downs, 1);
	assert_in_range(fake_verbs_deregistrations(), served, 100);
	fake_verbs_return(0, 0);
	assert_in_range(most_in_a_poll(2000), 1, 2);
	connected();
	pull_is_right(5);
}

/* Registrations that were begun are given up, and begun again. */
TEST(device_is_lost_again_while_it_comes_back)
{
	uint32_t polls;

	for (polls = 1; polls < 12; polls++) {
		uint32_t before;

		sides_serve(KVPULL_REGION_PROVIDED);
		connected();
		fake_verbs_remove_device();
		world_run(3000);
		fake_verbs_return(0, 0);
		before = fake_verbs_registrations();
		while (fake_verbs_registrations() == before)
			world_run(1);
		world_run(polls);
		fake_verbs_remove_device();
		world_run(3000);
		fake_verbs_return(0, 0);
		world_run(2000);
		connected();
		pull_is_right(7);
		side_close(&world.d);
		side_close(&world.p);
		assert_int_equal(fake_verbs_live(), 0);
	}
}
