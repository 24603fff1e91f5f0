/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads into memory of a GPU that nobody checks, since they were cancelled or left, or
 * lost their peer: they are flushed before they end. The fake NIC keeps what it wrote
 * until then.
 */
#include <sched.h>

#include "tests/unit/verbs/gpu.h"
#include "verbs/gpu.h"

#define TEST(name) UNIT_TEST_WITH(name, NULL, gpu_down)

/* The engine's later work in the blocks is not overwritten. */
static void engine_writes(void)
{
	uint32_t rail;
	uint64_t at;

	memset(world.d.memory, 7, WORLD_BYTES);
	for (rail = 0; rail < 2; rail++)
		fake_verbs_land(rail);
	for (at = 0; at < WORLD_BYTES; at++)
		assert_int_equal(world.d.memory[at], 7);
}

static void cancel(void)
{
	world_read_cancel();
}

/* Rail 0 has brought a part of the read, and rail 1 has not answered. */
static void half_is_read(void)
{
	world_read_held_by(2, 5);
	assert_int_equal(world.d.reads_done, 0);
	assert_true(fake_verbs_unseen() != 0);
}

/* Nothing but the flush was missing, and it wakes the owner. */
static void flush_ends_the_read(void)
{
	side_sleep(&world.d);
	fake_verbs_knobs.held_devices = fake_verbs_knobs.held_loops = 0;
	fake_verbs_run();
	assert_true(side_would_wake(&world.d));
	world_run(5);
	assert_int_equal(world.d.reads_done, 1);
}

TEST(cancelled_check_waits_for_its_flush)
{
	gpu_begin_read(1);
	fake_verbs_knobs.held_loops = 1;
	assert_int_equal(world_check_start(), 0);
	world_run(5);
	cancel();
	world_run(20);
	assert_int_equal(world.d.checks_done, 0);
	fake_verbs_knobs.held_loops = 0;
	world_run(5);
	assert_int_equal(world.d.checks_done, 1);
	engine_writes();
}

TEST(cancelled_read_is_flushed_before_it_ends)
{
	gpu_begin(2);
	half_is_read();
	cancel();
	fake_verbs_knobs.held_loops = 1;
	fake_verbs_knobs.held_devices = 0;
	world_run(20);
	assert_int_equal(world.d.reads_done, 0);
	flush_ends_the_read();
	engine_writes();
	/* The next read has flushes of its own. */
	world.d.reads_done = 0;
	gpu_read_is_done();
	gpu_checks(5, 0);
	assert_true(gpu_bytes_are_right());
}

static int leave(void)
{
	world.d.reads_done = 0;
	return world.d.route->ops->read_leave(world.d.route, world.peer,
					      &world.read);
}

/* The read came whole, and another part of its pull failed. */
TEST(read_that_is_left_is_flushed)
{
	gpu_begin_read(2);
	assert_true(fake_verbs_unseen() != 0);
	fake_verbs_knobs.held_loops = 1;
	assert_int_equal(leave(), 1);
	assert_int_equal(leave(), 0);
	cancel();
	world_run(20);
	assert_int_equal(world.d.reads_done, 0);
	flush_ends_the_read();
	assert_int_equal(world.d.read_code, KVPULL_EABORTED);
	engine_writes();
	/* Nothing of it is left, nor of one that was checked. */
	assert_int_equal(leave(), 0);
	gpu_read_is_done();
	gpu_checks(5, 0);
	assert_int_equal(leave(), 0);
	/* The end of its peer is told. */
	fake_verbs_cut();
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.d.downs, 1);
}

/* A ticket names a slot that is not there: nothing is posted for the check. */
TEST(read_whose_check_is_refused_is_flushed)
{
	gpu_begin_read(1);
	world.slots[0] = UINT32_MAX;
	assert_int_equal(world_check_start(), KVPULL_EEXPIRED);
	assert_int_equal(leave(), 1);
	world_run(5);
	assert_int_equal(world.d.reads_done, 1);
	engine_writes();
}

TEST(read_of_a_peer_that_is_gone_is_flushed)
{
	gpu_begin_read(1);
	fake_verbs_cut();
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.d.downs, 1);
	assert_int_equal(leave(), 1);
	world_run(5);
	assert_int_equal(world.d.reads_done, 1);
	engine_writes();
}

/* Nothing flushes what the device has written, and nothing more comes from it. */
TEST(read_of_a_device_that_is_gone_ends)
{
	gpu_begin_read(1);
	fake_verbs_cut();
	world_run(WORLD_MS_FLUSHED);
	fake_verbs_knobs.held_loops = 1;
	assert_int_equal(leave(), 1);
	fake_verbs_unaddress(0);
	while (fake_verbs_domains(world.d.memory))
		world_run(1);
	world_run(2);
	world_read_ended(KVPULL_EABORTED);
	assert_int_equal(leave(), 0);
}

static void driver_flushes(void)
{
	gpu_begin(2);
	side_close(&world.d);
	world.device_flush = KVPULL_DEVICE_FLUSH_DRIVER;
	assert_int_equal(gpu_serve(&world.d), 0);
	world.strip.local = world.d.memory;
	world.d.ups = 0;
	world_connect_run(100);
}

TEST(read_that_is_left_is_flushed_by_the_driver)
{
	driver_flushes();
	gpu_read_is_done();
	assert_int_equal(leave(), 1);
	world_run(20);
	/* The GPU's thread is not polled yet. */
	assert_int_equal(world.d.reads_done, 0);
	gpu_await(&world.d.reads_done);
	assert_int_equal(gpu.flush_count, 1);
}

TEST(cancelled_read_is_flushed_by_the_driver)
{
	driver_flushes();
	half_is_read();
	cancel();
	fake_verbs_knobs.held_devices = 0;
	world_run(20);
	/* The GPU's thread is not polled yet. */
	assert_int_equal(world.d.reads_done, 0);
	gpu_await(&world.d.reads_done);
	assert_int_equal(gpu.flush_count, 1);
}

/* The peer's end is told after the read's, and nobody spins until then. */
TEST(lost_peers_read_is_flushed_before_it_ends)
{
	gpu_begin(2);
	half_is_read();
	fake_verbs_knobs.held_loops = 1;
	fake_verbs_cut();
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.d.reads_done, 0);
	assert_int_equal(world.d.downs, 0);
	flush_ends_the_read();
	assert_int_equal(world.d.read_code, KVPULL_EPEER);
	engine_writes();
	world_run(5);
	assert_int_equal(world.d.downs, 1);
}

/* A loop that does not answer is broken, and the other rail goes on. */
TEST(flush_without_an_answer_ends_in_time)
{
	static struct kvpull_verbs_reads reads;
	const struct kvpull_verbs_end *end;

	gpu_begin(2);
	end = (const struct kvpull_verbs_end *)fake_verbs_owner(1);
	reads.shared = end->shared;
	side_hear(&world.d, KVPULL_LOG_ERROR);
	half_is_read();
	assert_true(kvpull_verbs_gpu_due_ns(&reads) == UINT64_MAX);
	cancel();
	fake_verbs_knobs.held_loops = 1;
	fake_verbs_knobs.held_devices = 0;
	world_run(GPU_FLUSH_MS - 100);
	assert_int_equal(world.d.reads_done, 0);
	assert_int_equal(world.d.downs, 0);
	/* A sleeping owner is woken then. */
	assert_true(kvpull_verbs_gpu_due_ns(&reads) - world.now_ns <=
		    110 * KVPULL_NS_PER_MS);
	world_run(200);
	assert_int_equal(world.d.reads_done, 1);
	assert_true(lines_said("(no answer in time)"));
}

/* A rail has one READ in flight: the next one serves who asks meanwhile. */
TEST(flush_in_flight_is_no_flush_of_later_bytes)
{
	struct kvpull_read second;

	gpu_begin(1);
	second = world.read;
	second.index = 1;
	gpu_read_is_done();
	fake_verbs_knobs.held_loops = 1;
	assert_int_equal(world_check_start(), 0);
	world.d.reads_done = 0;
	assert_int_equal(world_start(&second), 0);
	world_run(20);
	assert_int_equal(world.d.reads_done, 1);
	assert_int_equal(world.d.route->ops->check_start(world.d.route,
							 world.peer, &second),
			 0);
	world_run(5);
	fake_verbs_knobs.held_loops = 0;
	world_run(10);
	assert_int_equal(world.d.checks_done, 2);
	assert_int_equal(fake_verbs_count(FAKE_VERBS_LOOP), 2);
}
