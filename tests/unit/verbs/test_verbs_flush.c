/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads into memory of a GPU: posted behind the engine's mark, and flushed by the
 * NIC that wrote before a check ends. The fake NIC keeps what it wrote until then.
 */
#include <sched.h>

#include "tests/unit/verbs/gpu.h"
#include "verbs/gpu.h"

#define TEST(name) UNIT_TEST_WITH(name, NULL, gpu_down)

/* ---- marks ---- */

TEST(nothing_is_read_before_the_mark)
{
	uint32_t looks;

	gpu_begin(1);
	world.read.after = gpu_mark();
	assert_int_equal(world_read_start(), 0);
	/* The thread has looked at the mark since, and found it ahead. */
	looks = gpu.looks + 2;
	while (gpu.looks < looks) {
		gpu_poll();
		world_run(1);
		(void)sched_yield();
	}
	assert_int_equal(fake_verbs_count(FAKE_VERBS_READ), 0);
	gpu_reach();
	gpu_await(&world.d.reads_done);
	assert_int_equal(world.d.read_code, 0);
	gpu_checks(5, 0);
	assert_true(gpu_bytes_are_right());
}

TEST(read_without_a_mark_is_refused)
{
	gpu_begin(1);
	world.read.after = 0;
	assert_int_equal(world_read_start(), KVPULL_EINVAL);
	assert_int_equal(fake_verbs_count(FAKE_VERBS_READ), 0);
	world.read.after = KVPULL_AFTER_NOTHING;
	gpu_read_is_done();
}

TEST(mark_that_cannot_be_waited_for_ends_the_read)
{
	gpu_begin(1);
	gpu.wait_code = KVPULL_EUNSUPPORTED;
	world.read.after = gpu_mark();
	assert_int_equal(world_read_start(), 0);
	gpu_await(&world.d.reads_done);
	assert_int_equal(world.d.read_code, KVPULL_EUNSUPPORTED);
	assert_int_equal(fake_verbs_count(FAKE_VERBS_READ), 0);
	gpu_reach();
}

TEST(read_that_is_cancelled_before_its_mark_is_never_posted)
{
	gpu_begin(1);
	world.read.after = gpu_mark();
	assert_int_equal(world_read_start(), 0);
	world_read_cancel();
	gpu_reach();
	gpu_await(&world.d.reads_done);
	assert_int_equal(world.d.read_code, KVPULL_EABORTED);
	assert_int_equal(fake_verbs_count(FAKE_VERBS_READ), 0);
}

/* The peer ends first: its end is told after the read's. */
TEST(peer_that_ends_before_the_mark_ends_the_read)
{
	gpu_begin(1);
	world.read.after = gpu_mark();
	assert_int_equal(world_read_start(), 0);
	while (!gpu.looks)
		(void)sched_yield();
	fake_verbs_cut();
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.d.reads_done, 0);
	assert_int_equal(world.d.downs, 0);
	/* No poll would find anything, and the owner may sleep. */
	side_sleep(&world.d);
	gpu_reach();
	gpu_await(&world.d.downs);
	world_read_ended(KVPULL_EPEER);
	assert_int_equal(fake_verbs_count(FAKE_VERBS_READ), 0);
}

/* ---- flushes ---- */

TEST(bytes_are_seen_once_the_check_has_ended)
{
	gpu_begin_read(1);
	assert_false(gpu_bytes_are_right());
	assert_int_equal(fake_verbs_count(FAKE_VERBS_LOOP), 0);
	gpu_checks(5, 0);
	assert_int_equal(fake_verbs_unseen(), 0);
	assert_true(gpu_bytes_are_right());
	assert_int_equal(fake_verbs_count(FAKE_VERBS_LOOP), 1);
	assert_int_equal(world.checked[0].incarnation, WORLD_INCARNATION);
}

TEST(close_says_how_often_it_flushed)
{
	gpu_begin(1);
	side_hear(&world.d, KVPULL_LOG_INFO);
	gpu_read_is_done();
	assert_int_equal(world_check_start(), 0);
	world_run(5);
	side_close(&world.d);
	assert_non_null(
		strstr(lines.all, ", 1 READs that flush memory of a GPU"));
}

TEST(check_waits_for_the_flush)
{
	gpu_begin_read(1);
	fake_verbs_knobs.held_loops = 1;
	assert_int_equal(world_check_start(), 0);
	world_run(20);
	/* The entry is here. */
	assert_int_equal(fake_verbs_count(FAKE_VERBS_CHECK), 1);
	assert_int_equal(world.d.checks_done, 0);
	side_sleep(&world.d);
	fake_verbs_knobs.held_loops = 0;
	fake_verbs_run();
	assert_true(side_would_wake(&world.d));
	world_run(5);
	gpu_check_is(0);
	assert_true(gpu_bytes_are_right());
}

/* The flush is here, and says nothing of the ticket. */
TEST(entry_decides_and_the_flush_does_not)
{
	gpu_begin_read(1);
	atomic_store_explicit(&world.p.entries[3].revoked, 9,
			      memory_order_relaxed);
	gpu_checks(5, 0);
	assert_int_equal(world.checked[0].revoked, 9);
}

TEST(each_rail_flushes_what_it_wrote)
{
	gpu_begin_read(2);
	assert_true(world_reads_by(0) && world_reads_by(1));
	gpu_checks(5, 0);
	assert_int_equal(fake_verbs_device_count(0, FAKE_VERBS_LOOP), 1);
	assert_int_equal(fake_verbs_device_count(1, FAKE_VERBS_LOOP), 1);
	assert_true(gpu_bytes_are_right());
}

/* A check without data before it has nothing to flush. */
TEST(check_without_data_flushes_nothing)
{
	gpu_begin(1);
	gpu_checks(5, 0);
	assert_int_equal(fake_verbs_count(FAKE_VERBS_LOOP), 0);
	/* Nor has the second one of a pull. */
	gpu_read_is_done();
	world.d.checks_done = 0;
	assert_int_equal(world_check_start(), 0);
	world_run(5);
	world.d.checks_done = 0;
	gpu_checks(5, 0);
	assert_int_equal(fake_verbs_count(FAKE_VERBS_LOOP), 1);
}

/* No queue pair of a peer has the loop's keys in its protection domain. */
TEST(loop_has_a_domain_and_keys_of_its_own)
{
	gpu_begin(1);
	assert_int_equal(fake_verbs_domains(world.d.memory), 2);
	assert_int_equal(fake_verbs_memory_access(world.d.memory),
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	/* The revocation table is read by peers alone. */
	assert_int_equal(fake_verbs_domains(world.d.entries), 1);
}

/* Bytes of an earlier connection were not flushed, and are read again. */
TEST(bytes_of_an_earlier_connection_are_read_again)
{
	gpu_begin(1);
	world.read.done_bytes = WORLD_BYTES / 2;
	gpu_read_is_done();
	fake_verbs_land(0);
	assert_true(gpu_bytes_are_right());
}

/* Sleep, flush, sleep, flush: each completion makes an event. */
TEST(each_flush_wakes_its_owner)
{
	uint32_t times;

	gpu_begin(1);
	for (times = 0; times < 3; times++) {
		world.d.reads_done = world.d.checks_done = 0;
		gpu_read_is_done();
		fake_verbs_knobs.held_loops = 1;
		assert_int_equal(world_check_start(), 0);
		world_run(5);
		side_sleep(&world.d);
		fake_verbs_knobs.held_loops = 0;
		fake_verbs_run();
		assert_true(side_would_wake(&world.d));
		world_run(5);
		gpu_check_is(0);
	}
}

/* ---- loops that fail ---- */

TEST(loop_that_fails_fails_the_read_and_is_made_again)
{
	gpu_begin(1);
	side_hear(&world.d, KVPULL_LOG_ERROR);
	gpu_read_is_done();
	fake_verbs_knobs.fail_at[FAKE_VERBS_LOOP] = 1;
	fake_verbs_knobs.fail_status = IBV_WC_WR_FLUSH_ERR;
	assert_int_equal(world_check_start(), 0);
	world_run(5);
	/* Bytes that the broken loop did not flush may be seen for some time. */
	assert_int_equal(world.d.checks_done, 0);
	assert_int_equal(world.d.downs, 0);
	world_run(GPU_FLUSH_MS + 100);
	assert_int_equal(world.d.checks_done, 1);
	assert_int_not_equal(world.d.check_code, 0);
	assert_true(lines_said("its queue pair to itself failed (flushed)"));
	world_run(3000);
	assert_int_equal(world.d.downs, 1);
	/* The rail is back, and so is the peer. */
	world.d.ups = world.d.reads_done = world.d.checks_done = 0;
	world_comes_up(20);
	gpu_read_is_done();
	gpu_checks(5, 0);
	assert_true(gpu_bytes_are_right());
}

/* The other rail goes on. */
TEST(rail_whose_loop_fails_is_left)
{
	gpu_begin_read(2);
	fake_verbs_knobs.fail_device = 2;
	fake_verbs_knobs.fail_at[FAKE_VERBS_LOOP] = 1;
	fake_verbs_knobs.fail_status = IBV_WC_RETRY_EXC_ERR;
	gpu_checks(GPU_FLUSH_MS + 100, KVPULL_EREAD);
	fake_verbs_land(1);
	memset(world.d.memory, 0, WORLD_BYTES);
	world.d.reads_done = world.d.checks_done = 0;
	gpu_read_is_done();
	gpu_checks(5, 0);
	assert_true(gpu_bytes_are_right());
	assert_int_equal(world.d.downs, 0);
}

/* Another device does not flush bytes of the one that was taken away. */
TEST(device_that_leaves_before_the_flush_fails_the_read)
{
	gpu_begin_read(2);
	assert_true(world_reads_by(1) != 0);
	fake_verbs_unaddress(1);
	world_run(2000);
	/* The rail is back, with a loop that knows nothing of what was written. */
	fake_verbs_return(1, 0);
	world_run(3000);
	assert_int_equal(fake_verbs_domains(world.d.memory), 4);
	gpu_checks(5, KVPULL_EREAD);
}

TEST(rail_without_a_loop_serves_no_memory_of_a_gpu)
{
	uint32_t at;

	world_rails_init(1);
	gpu_open();
	/* Each of its transitions in turn; the last try makes it. */
	for (at = 1; at < 5; at++) {
		assert_int_equal(side_open(&world.d), 0);
		side_hear(&world.d, KVPULL_LOG_ERROR);
		fake_verbs_knobs.modify_at = at;
		assert_int_equal(gpu_serve_open(&world.d),
				 at < 4 ? KVPULL_EUNSUPPORTED : 0);
		assert_int_equal(lines_said("does not serve memory of a GPU"),
				 at < 4);
		fake_verbs_knobs.modify_at = 0;
		if (at < 4)
			assert_int_equal(side_serve(&world.d), 0);
		side_close(&world.d);
		assert_int_equal(fake_verbs_live(), 0);
	}
}

TEST(one_rail_without_a_loop_leaves_the_other)
{
	world_rails_init(2);
	gpu_open();
	assert_int_equal(side_open(&world.d), 0);
	side_hear(&world.d, KVPULL_LOG_ERROR);
	fake_verbs_knobs.modify_at = 4;
	assert_int_equal(gpu_serve_open(&world.d), 0);
	assert_true(
		lines_said("rail 1, fake1, does not serve memory of a GPU"));
	assert_null(strstr(side_address(&world.d), "10.66.1.1"));
	/* The rail is tried again. */
	world_run(3000);
	assert_non_null(strstr(side_address(&world.d), "10.66.1.1"));
}

/* ---- device_flush ---- */

static void begin_with(uint32_t device_flush)
{
	world.device_flush = device_flush;
}

TEST(driver_flushes_where_it_is_asked_to)
{
	gpu_begin(1);
	side_close(&world.d);
	begin_with(KVPULL_DEVICE_FLUSH_DRIVER);
	fake_verbs_knobs.in_order = 1;
	assert_int_equal(gpu_serve(&world.d), 0);
	world.strip.local = world.d.memory;
	world.d.ups = 0;
	world_connect_run(20);
	gpu_read_is_done();
	assert_int_equal(gpu.flush_count, 0);
	assert_int_equal(world_check_start(), 0);
	world_run(20);
	/* The GPU's thread is not polled yet. */
	assert_int_equal(world.d.checks_done, 0);
	gpu_await(&world.d.checks_done);
	gpu_check_is(0);
	assert_int_equal(gpu.flush_count, 1);
	assert_int_equal(fake_verbs_count(FAKE_VERBS_LOOP), 0);
	/* A refused one fails the read. */
	gpu.flush_code = KVPULL_EREAD;
	world.d.reads_done = world.d.checks_done = 0;
	gpu_read_is_done();
	assert_int_equal(world_check_start(), 0);
	gpu_await(&world.d.checks_done);
	gpu_check_is(KVPULL_EREAD);
}

TEST(driver_that_cannot_flush_is_refused_by_name)
{
	world_rails_init(1);
	gpu_open();
	gpu.device.can_flush = 0;
	world.device_flush = KVPULL_DEVICE_FLUSH_DRIVER;
	side_hear(&world.d, KVPULL_LOG_WARN);
	assert_int_equal(side_open(&world.d), 0);
	assert_int_equal(gpu_serve(&world.d), KVPULL_EUNSUPPORTED);
	assert_true(lines_said("set device_flush=always"));
}

/* auto: the driver says whether the NIC has to. */
TEST(order_of_the_driver_is_believed_where_it_is_asked)
{
	static const struct {
		uint32_t flush, in_order, domains;
	} rows[] = { { KVPULL_DEVICE_FLUSH_AUTO, 0, 2 },
		     { KVPULL_DEVICE_FLUSH_AUTO, 1, 1 },
		     { KVPULL_DEVICE_FLUSH_ALWAYS, 1, 2 },
		     { KVPULL_DEVICE_FLUSH_DRIVER, 0, 1 } };
	uint32_t i;

	for (i = 0; i < 4; i++) {
		if (i) {
			side_close(&world.d);
			gpu_close();
		}
		world_rails_init(1);
		gpu_open();
		gpu.device.orders_writes = rows[i].in_order;
		world.device_flush = rows[i].flush;
		assert_int_equal(side_open(&world.d), 0);
		assert_int_equal(gpu_serve(&world.d), 0);
		assert_int_equal(fake_verbs_domains(world.d.memory),
				 rows[i].domains);
	}
}
