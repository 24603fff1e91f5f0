/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small reads, which the owner's thread copies by itself: so many bytes from
 * one of its runs to the next, in turns by their priority. Once
 * 512 reads of 64 KiB were all copied as they were started, and the first was
 * done with the last, 2.9 ms later.
 */

#include "shm/read.h"
#include "tests/unit/shm/world.h"

uint32_t world_blocks = 512u;

#define READS 20u
#define READ_BLOCKS 8u /* 32 KiB: what is copied as soon as it is started */
#define READ_BYTES ((uint64_t)READ_BLOCKS * WORLD_BLOCK_BYTES)
#define RUN_READS (KVPULL_SHM_POLL_BYTES / (uint32_t)READ_BYTES)

struct small {
	struct world world;
	struct kvpull_read reads[READS];
	struct kvpull_strip strips[READS];
	uint32_t next; /* that must end */
};

static void small_open(struct small *small, uint32_t is_foreign)
{
	struct world *world = &small->world;
	struct kvpull_shm_params params;
	uint32_t i;

	memset(small, 0, sizeof(*small));
	world_begin(world);
	world_memory_make(world);
	if (is_foreign) {
		world->serve.regions[0].kind = KVPULL_REGION_FOREIGN;
		world->serve.regions[0].fd = -1;
	}
	world_serve(world, "p");
	params = world_params(world, "d");
	params.reads_max = READS;
	/* More than is ever taken: it is cut to what fits into a poll. */
	params.inline_bytes = UINT32_MAX;
	side_open(&world->d, &params);
	world_connect(world);
	/* Each brings the same blocks to a place of its own. */
	for (i = 0; i < READS; i++) {
		small->reads[i] = world_read(world, READ_BLOCKS);
		small->strips[i] = world->strip;
		small->strips[i].remote_offset = 0;
		small->strips[i].local += i * READ_BYTES;
		small->strips[i].remote_block_stride = WORLD_BLOCK_BYTES;
		small->reads[i].index = i;
		small->reads[i].strips = &small->strips[i];
	}
	memset(world->local, 0, READS * READ_BYTES);
}

static void small_open_own(struct small *small)
{
	small_open(small, 0);
}

static void small_close(struct small *small)
{
	world_close(&small->world);
}

#define TEST(name) UNIT_TEST_BETWEEN(name, small, small_open_own, small_close)

static int small_start(struct small *small, uint32_t index)
{
	struct kvpull_transport *d = small->world.d.transport;

	return d->ops->read_start(d, small->world.peer, &small->reads[index]);
}

/* The first is copied at once; the others, to @count, wait. */
static void small_start_all(struct small *small, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		assert_int_equal(small_start(small, i), !i);
}

/* 1: all of it is there; 0: not a byte is. */
static int is_copied(const struct small *small, uint32_t index)
{
	static const uint8_t zeros[WORLD_BLOCK_BYTES];
	const struct world *world = &small->world;
	const uint8_t *local = world->local + index * READ_BYTES;
	uint32_t copied = 0;
	uint32_t i;

	for (i = 0; i < READ_BLOCKS; i++)
		copied += memcmp(local + (size_t)i * WORLD_BLOCK_BYTES, zeros,
				 WORLD_BLOCK_BYTES) != 0;
	assert_true(!copied || copied == READ_BLOCKS);
	for (i = 0; copied && i < READ_BLOCKS; i++)
		assert_memory_equal(local + (size_t)i * WORLD_BLOCK_BYTES,
				    world->kv.base + (size_t)world->ids[i] *
							     WORLD_BLOCK_BYTES,
				    WORLD_BLOCK_BYTES);
	return copied != 0;
}

static uint32_t copied_count(const struct small *small)
{
	uint32_t count = 0;
	uint32_t i;

	for (i = 0; i < READS; i++)
		count += (uint32_t)is_copied(small, i);
	return count;
}

/* A poll; how many it told, which must be the next in their order. */
static uint32_t small_poll(struct small *small)
{
	struct world *world = &small->world;
	uint32_t told = 0;

	(void)side_poll(world, &world->d);
	while (world->d.queue_count) {
		assert_ptr_equal(world_read_done(world, 0),
				 &small->reads[small->next]);
		small->next++;
		told++;
	}
	return told;
}

/* As an owner does: starts, a poll, and starts again in one run. */
static void runs_are_bounded(uint32_t is_foreign)
{
	struct small small;
	uint32_t copied;
	uint32_t polls;
	uint32_t i;

	small_open(&small, is_foreign);
	/* The first at once, though so many come with it. */
	assert_int_equal(small_start(&small, 0), 1);
	assert_true(is_copied(&small, 0));
	for (i = 1; i < READS / 2; i++)
		assert_int_equal(small_start(&small, i), 0);
	assert_int_equal(copied_count(&small), 1);
	small.next = 1;
	copied = small_poll(&small);
	/* After the poll, but in the same run. */
	for (; i < READS; i++)
		assert_int_equal(small_start(&small, i), 0);
	copied += 1;
	assert_int_equal(copied_count(&small), copied);
	assert_in_range(copied, 2, RUN_READS);
	for (polls = 0; small.next < READS; polls++) {
		assert_true(polls < READS);
		copied = copied_count(&small);
		assert_in_range(small_poll(&small), 1, RUN_READS / 2);
		assert_in_range(copied_count(&small) - copied, 1,
				RUN_READS / 2);
	}
	/* Then there is room for one at once again. */
	assert_int_equal(small_start(&small, 0), 1);
	assert_int_equal(small_start(&small, 1), 0);
	small.next = 1;
	assert_int_equal(small_poll(&small), 1);
	world_close(&small.world);
}

UNIT_TEST(small_reads_of_a_run_are_bounded)
{
	runs_are_bounded(0);
}

UNIT_TEST(small_foreign_reads_of_a_run_are_bounded)
{
	runs_are_bounded(1);
}

/* Waiting reads are neither forgotten by a sleeper nor lost by few events. */
TEST(waiting_reads_keep_the_owner_awake)
{
	struct kvpull_transport *d = small->world.d.transport;
	struct kvpull_event event;
	uint32_t i;

	small_start_all(small, 6);
	for (i = 1; i < 6; i++) {
		assert_int_equal(d->ops->arm(d), 1);
		d->ops->disarm(d);
		assert_int_equal(
			d->ops->poll(d, small->world.now_ns, &event, 1), 1);
		assert_int_equal(event.kind, KVPULL_EVENT_READ_DONE);
		assert_ptr_equal(event.read, &small->reads[i]);
	}
	assert_int_equal(d->ops->arm(d), 0);
	d->ops->disarm(d);
}

/* The next read that ends, well or as this says. */
static uint32_t ended_next(struct small *small, int32_t code)
{
	return world_read_done(&small->world, code)->index;
}

TEST(waiting_read_that_is_cancelled_copies_nothing)
{
	struct kvpull_transport *d = small->world.d.transport;

	small_start_all(small, 3);
	d->ops->read_cancel(d, small->world.peer, &small->reads[1]);
	assert_int_equal(ended_next(small, KVPULL_EABORTED), 1);
	assert_false(is_copied(small, 1));
	assert_int_equal(ended_next(small, 0), 2);
	assert_true(is_copied(small, 2));
}

/* The peer dies while its reads wait: each ends, none is copied after. */
TEST(waiting_reads_end_with_their_peer)
{
	struct world *world = &small->world;
	struct kvpull_transport *d = world->d.transport;
	uint32_t copied;
	uint32_t i;

	small_start_all(small, READS);
	copied = copied_count(small);
	d->ops->disconnect(d, world->peer);
	for (i = 1; i < READS; i++) {
		const struct kvpull_event event =
			world_expect(world, &world->d, KVPULL_EVENT_READ_DONE);

		copied += !event.code;
		assert_true(!event.code || event.code == KVPULL_EPEER);
	}
	assert_int_equal(copied_count(small), copied);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
}

TEST(waiting_reads_are_copied_by_priority)
{
	static const uint32_t order[] = { 9, 2, 3, 4, 5, 6, 7, 1, 8 };
	uint32_t i;

	small->reads[1].priority = INT32_MAX;
	small->reads[9].priority = -1;
	small_start_all(small, 10);
	for (i = 0; i < 9; i++)
		assert_int_equal(ended_next(small, 0), order[i]);
}

/* A request that was cancelled wants its blocks back, not its turn. */
TEST(cancelled_read_is_ended_before_urgent_ones)
{
	struct kvpull_transport *d = small->world.d.transport;
	uint32_t i;

	small->reads[5].priority = 1;
	small_start_all(small, 6);
	d->ops->read_cancel(d, small->world.peer, &small->reads[5]);
	assert_int_equal(ended_next(small, KVPULL_EABORTED), 5);
	for (i = 1; i < 5; i++)
		assert_int_equal(ended_next(small, 0), i);
}

/* Slices of both: the second one has seven of eight. */
UNIT_TEST(urgent_foreign_read_ends_before_one_that_was_begun)
{
	struct small small;
	uint32_t i;

	small_open(&small, 1);
	for (i = 0; i < 2; i++) {
		small.reads[i] = world_read(&small.world, 128);
		small.reads[i].index = i;
		small.reads[i].strips = &small.strips[i];
		small.strips[i].local = small.world.strip.local +
					(size_t)i * 128 * WORLD_BLOCK_BYTES;
	}
	small.reads[0].priority = 1;
	assert_int_equal(small_start(&small, 0), 0);
	(void)side_poll(&small.world, &small.world.d);
	assert_int_equal(small_start(&small, 1), 0);
	assert_int_equal(ended_next(&small, 0), 1);
	assert_int_equal(ended_next(&small, 0), 0);
	world_close(&small.world);
}
