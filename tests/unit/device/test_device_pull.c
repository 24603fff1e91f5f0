/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pulls from device memory to device memory: P's descriptor, D's import, copies by
 * the device behind D's mark, P's entry behind them. Each case is a child.
 */
#include "base/clock.h"
#include "tests/lib/counts.h"
#include "tests/lib/patience.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"
#include "tests/unit/device/engines.h"

#define COUNT 16u /* blocks of a pull */
#define FIRST 32u /* of D's */
#define AUTO ",\"device\":\"auto\""

static const uint64_t nothing = KVPULL_STREAM_NONE;

/* P's blocks have bytes of their own, and are held; D is to pull them. */
static void begin_some(uint64_t key, uint32_t first, uint32_t count)
{
	uint32_t at;

	for (at = 0; at < count; at++)
		block_put(&p, at, (uint32_t)key + at);
	hold(key, count, 0);
	pull(key, first, count);
}

static void begin(uint64_t key)
{
	begin_some(key, FIRST, COUNT);
}

/* How many of D's first blocks have P's bytes. */
static uint32_t some_right(uint64_t key, uint32_t count)
{
	uint32_t right = 0;
	uint32_t at;

	for (at = 0; at < count; at++)
		right += (uint32_t)block_is(&d, FIRST + at, (uint32_t)key + at);
	return right;
}

static uint32_t blocks_right(uint64_t key)
{
	return some_right(key, COUNT);
}

/* The engine's own stream, as a handle. */
static uint64_t stream(void)
{
	return (uint64_t)(uintptr_t)world.stream;
}

static void late(const char *us)
{
	(void)setenv("FAKE_CUDA_LATE_US", us, 1);
}

static void refused_by_driver(const char *call)
{
	(void)setenv("FAKE_CUDA_REFUSE", call, 1);
}

/* ---- a pull ---- */

/* More pulls than there are marks at once. */
static void pulled_with(const char *keys)
{
	struct kvpull_peer_info peer;
	uint64_t mark;
	uint64_t key;

	engines_open(keys);
	mark = stream();
	for (key = 1; key < 6; key++) {
		begin(key);
		step_loads(&mark);
		MUST(blocks_right(key) == COUNT);
	}
	/* The engine's thread would copy it, were it host memory. */
	block_put(&p, 0, 99);
	hold(key, 1, 0);
	pull(key, FIRST, 1);
	step_loads(&mark);
	MUST(block_is(&d, FIRST, 99));
	MUST(!lines.bad_count);
	MUST(worker_ops->peers(d.worker, &peer, 1, sizeof(peer)) == 1);
	MUST(!strcmp(peer.why, "device: the same GPU"));
	MUST(worker_counts(worker_ops, d.worker).device_mapped_bytes ==
	     ENGINE_BYTES);
	MUST(!worker_counts(worker_ops, d.worker).device_stores);
	engines_close();
}

static void pulled(void)
{
	pulled_with(AUTO ",\"pulls_max\":1");
}

static void pulled_by_threads(void)
{
	pulled_with(",\"device\":\"required\",\"progress\":\"thread\"");
}

UNIT_TEST(blocks_are_pulled_from_device_to_device)
{
	assert_int_equal(end_of(pulled), 0);
	assert_int_equal(end_of(pulled_by_threads), 0);
}

/* ---- the engine's own work ---- */

/*
 * The pull has its time while the engines' stream is stopped; it waits for a mark.
 * Return: how many blocks are right when the stream has ended.
 */
static uint32_t right_after_stop(int is_marked)
{
	uint32_t right;

	if (is_marked)
		MUST(a_while());
	else
		(void)pull_end();
	stream_go();
	MUST(pull_end() == KVPULL_POLL_LOADED);
	stream_end();
	right = blocks_right(1);
	engines_close();
	return right;
}

/*
 * D's engine has queued zeros for its blocks, which begin when the pull has had
 * its time. Return: how many blocks have P's bytes in the end.
 */
static uint32_t right_in_the_end(int is_marked)
{
	uint64_t mark = KVPULL_STREAM_NONE;
	uint32_t at;

	engines_open(AUTO);
	begin(1);
	stream_stop();
	for (at = 0; at < COUNT; at++)
		block_zero(&d, FIRST + at);
	if (is_marked)
		mark = stream();
	step(&mark);
	return right_after_stop(is_marked);
}

static void marked(void)
{
	MUST(right_in_the_end(1) == COUNT);
}

/* The control: an engine that says it has queued nothing, and has. */
static void lied(void)
{
	MUST(!right_in_the_end(0));
}

UNIT_TEST(bytes_land_behind_what_the_engine_has_queued)
{
	assert_int_equal(end_of(marked), 0);
	assert_int_equal(end_of(lied), 0);
}

/* Each pull waits for its own mark, and no later one. */
UNIT_TEST_IN_CHILD(pull_does_not_wait_for_a_later_mark)
{
	uint64_t mark;

	engines_open(AUTO);
	begin(1);
	mark = stream();
	step(&mark);
	/* A later mark, of work that no pull waits for. */
	stream_stop();
	step_loads(&mark);
	stream_go();
	stream_end();
	MUST(blocks_right(1) == COUNT);
	engines_close();
}

UNIT_TEST_IN_CHILD(pull_of_a_step_without_a_mark_fails_by_name)
{
	uint64_t mark;

	engines_open(AUTO);
	mark = stream();
	begin(1);
	step_loads(&mark);
	begin(2);
	/* The last mark was the last step's. */
	step_fails(NULL, KVPULL_EINVAL);
	MUST(lines_said("call engine_mark() before each step()"));
	MUST(blocks_right(1) == COUNT);
	begin(3);
	step_loads(&mark);
	MUST(blocks_right(3) == COUNT);
	engines_close();
}

UNIT_TEST_IN_CHILD(pull_waits_for_the_mark_after_a_capture)
{
	uint64_t mark;

	engines_open(AUTO);
	mark = stream();
	begin(1);
	MUST(!world.fake_capture(world.stream, 1));
	MUST(!worker_ops->engine_mark(d.worker, mark));
	step(NULL);
	MUST(a_while());
	MUST(!world.fake_capture(world.stream, 0));
	step_loads(&mark);
	MUST(blocks_right(1) == COUNT);
	MUST(!lines.bad_count);
	engines_close();
}

UNIT_TEST_IN_CHILD(mark_needs_a_device)
{
	engines_begin();
	MUST(!engine_open(&d, ""));
	MUST(worker_ops->engine_mark(d.worker, 0) == KVPULL_EUNSUPPORTED);
	MUST(worker_ops->engine_mark(NULL, 0) == KVPULL_EINVAL);
	engines_close();
}

/* ---- holds that are written later ---- */

/*
 * P's engine has queued the writes of the blocks, which begin when the pull has
 * had its time. Return: how many blocks are right.
 */
static uint32_t right_of_written(int is_marked)
{
	uint32_t at;

	engines_open(AUTO);
	stream_stop();
	for (at = 0; at < COUNT; at++)
		block_put_later(&p, at, 1 + at);
	hold(1, COUNT, KVPULL_FINISH_READY_NEEDED);
	if (is_marked)
		MUST(!worker_ops->hold_ready_after(
			p.worker, 1,
			worker_ops->engine_mark(p.worker, stream())));
	else
		MUST(!worker_ops->hold_ready(p.worker, 1));
	pull(1, FIRST, COUNT);
	step(&nothing);
	return right_after_stop(is_marked);
}

static void ready_in_time(void)
{
	MUST(right_of_written(1) == COUNT);
}

/* The control: an engine that does not wait for its own writes. */
static void ready_too_early(void)
{
	MUST(!right_of_written(0));
}

UNIT_TEST(hold_is_ready_when_its_mark_is_reached)
{
	assert_int_equal(end_of(ready_in_time), 0);
	assert_int_equal(end_of(ready_too_early), 0);
}

/* The mark of a hold that has ended says nothing of the next one of its key. */
UNIT_TEST_IN_CHILD(mark_makes_no_later_hold_of_the_key_ready)
{
	engines_open(AUTO);
	stream_stop();
	hold(1, COUNT, KVPULL_FINISH_READY_NEEDED);
	MUST(!worker_ops->hold_ready_after(
		p.worker, 1, worker_ops->engine_mark(p.worker, stream())));
	hold_revoke();
	while (!p.sent)
		turn_of_p();
	hold(1, COUNT, KVPULL_FINISH_READY_NEEDED);
	pull(1, FIRST, COUNT);
	step(&nothing);
	stream_go();
	stream_end();
	MUST(a_while());
	MUST(!worker_ops->hold_ready(p.worker, 1));
	MUST(pull_end() == KVPULL_POLL_LOADED);
	engines_close();
}

UNIT_TEST_IN_CHILD(marks_of_holds_are_checked_and_counted)
{
	int64_t mark;

	engines_open(AUTO ",\"pulls_max\":1");
	hold(1, 1, KVPULL_FINISH_READY_NEEDED);
	hold(2, 1, KVPULL_FINISH_READY_NEEDED);
	stream_stop();
	mark = worker_ops->engine_mark(p.worker, stream());
	MUST(mark == 1);
	MUST(worker_ops->hold_ready_after(p.worker, 1, 0) == KVPULL_EINVAL);
	MUST(worker_ops->hold_ready_after(p.worker, 1, mark + 1) ==
	     KVPULL_EINVAL);
	MUST(worker_ops->hold_ready_after(NULL, 1, mark) == KVPULL_EINVAL);
	MUST(worker_ops->hold_ready_after(p.worker, 3, mark) == KVPULL_ENOKEY);
	MUST(!worker_ops->hold_ready_after(p.worker, 1, mark));
	/* The one place is taken until a poll finds the mark reached. */
	MUST(worker_ops->hold_ready_after(p.worker, 2, mark) == KVPULL_EAGAIN);
	stream_go();
	stream_end();
	turn_of_p();
	MUST(!worker_ops->hold_ready_after(p.worker, 2, mark));
	engines_close();
}

/* ---- the check ---- */

#define RACED 4u      /* blocks of a pull */
#define RACES_MIN 20u /* of each outcome */
#define RACES_MAX 2000u

/*
 * P gives its blocks away some turns after the pull began, and the new owner
 * writes in the same poll. Return: the pull is believed.
 */
static int race_is_won(uint64_t key, uint32_t after_turns)
{
	uint32_t at;

	begin_some(key, FIRST, RACED);
	step(&nothing);
	(void)turns(after_turns);
	hold_revoke();
	for (at = 0; at < RACED; at++)
		block_zero(&p, at);
	(void)pull_end();
	if (d.kind == KVPULL_POLL_LOADED)
		MUST(some_right(key, RACED) == RACED);
	else
		MUST(d.reason == KVPULL_EEXPIRED);
	stream_end();
	return d.kind == KVPULL_POLL_LOADED;
}

/* Each outcome moves the next races to where the other one is likelier. */
UNIT_TEST_IN_CHILD(blocks_that_were_given_away_are_never_believed)
{
	uint64_t state = 1;
	uint32_t believed = 0;
	uint32_t expired = 0;
	uint32_t most = 1000; /* turns */
	uint64_t key;

	late("50");
	engines_open(AUTO);
	/* The first one connects. */
	(void)race_is_won(1, UINT32_MAX);
	for (key = 2; believed < RACES_MIN || expired < RACES_MIN; key++) {
		MUST(key < RACES_MAX);
		if (race_is_won(key, (uint32_t)(random_next(&state) % most))) {
			believed++;
			most -= most / 8;
		} else {
			expired++;
			most += 1 + most / 8;
		}
	}
	engines_close();
}

/* ---- aborts, deaths, refusals ---- */

/*
 * All three wait for the engine's stream. The third one is not queued on the
 * device, which has two slices, and has no bytes to await.
 */
UNIT_TEST_IN_CHILD(aborted_pull_ends_before_its_copies_were_queued)
{
	uint64_t mark;

	engines_open(AUTO);
	begin_some(1, 0, COUNT);
	begin_some(2, COUNT, COUNT);
	begin_some(3, FIRST, COUNT);
	stream_stop();
	mark = stream();
	step(&mark);
	MUST(a_while());
	pull_abort(3);
	step(&mark);
	MUST(pull_end() == KVPULL_POLL_FAILED);
	MUST(d.key == 3 && d.reason == KVPULL_EABORTED);
	stream_go();
	d.kind = 0;
	MUST(pull_end() == KVPULL_POLL_LOADED);
	d.kind = 0;
	MUST(pull_end() == KVPULL_POLL_LOADED);
	engines_close();
}

UNIT_TEST_IN_CHILD(peer_that_ends_leaves_no_mapping)
{
	uint32_t tries = 1000 * patience();

	late("3000");
	engines_open(AUTO);
	begin(1);
	step_loads(&nothing);
	begin(2);
	step(&nothing);
	(void)turns(3);
	engine_close(&p);
	while (!d.kind)
		turn_of_d();
	MUST(d.kind == KVPULL_POLL_FAILED || blocks_right(2) == COUNT);
	/* It polls until an end was told. */
	d.kind = 0;
	while (worker_counts(worker_ops, d.worker).device_mapped_bytes) {
		MUST(tries--);
		turn_of_d();
		kvpull_clock_nap();
	}
	engines_close();
}

UNIT_TEST_IN_CHILD(memory_that_cannot_be_mapped_fails_the_pull)
{
	struct kvpull_peer_info peer;

	refused_by_driver("cuMemImportFromShareableHandle 101");
	engines_open(AUTO);
	begin(1);
	step_fails(&nothing, KVPULL_EROUTE);
	MUST(lines_said("cuMemImportFromShareableHandle: 101"));
	MUST(lines_said(
		"not visible in this container: show both GPUs to both"));
	/* P's memory would be refused again: P is not called again. */
	MUST(said_in_time("is given up: EROUTE"));
	MUST(worker_counts(worker_ops, d.worker).peer_connects == 1);
	MUST(worker_ops->peers(d.worker, &peer, 1, sizeof(peer)) == 1);
	MUST(strstr(peer.why, "refused: the memory of its device"));
	engines_close();
}

/* A driver that maps nothing for reads alone: it is counted, and works. */
UNIT_TEST_IN_CHILD(mapping_that_allows_stores_is_counted)
{
	(void)setenv("FAKE_CUDA_READ", "801", 1);
	engines_open(AUTO);
	begin(1);
	step_loads(&nothing);
	MUST(worker_counts(worker_ops, d.worker).device_stores == 1);
	MUST(lines_said("a peer's memory is mapped for stores, too"));
	engines_close();
}

static void slow_by_driver(const char *call)
{
	(void)setenv("FAKE_CUDA_SLOW", call, 1);
}

/*
 * D's device never maps P's memory. D polls, says what it lives for, and closes
 * within its second; P's blocks are free then.
 */
UNIT_TEST_IN_CHILD(driver_that_hangs_keeps_nobody_waiting)
{
	slow_by_driver("cuMemImportFromShareableHandle never");
	engines_open(AUTO);
	begin(1);
	step(&nothing);
	MUST(a_while());
	MUST(!p.sent);
	engine_close(&d);
	while (!p.sent)
		turn_of_p();
	/* The thread that hangs is left behind, with all that it has. */
	leave();
}

UNIT_TEST_IN_CHILD(pull_waits_for_a_mapping_that_takes_its_time)
{
	slow_by_driver("cuMemSetAccess 50000");
	engines_open(AUTO);
	begin(1);
	step_loads(&nothing);
	MUST(blocks_right(1) == COUNT);
	engines_close();
}

/*
 * P's and D's context is one, as that of two ranks of a process would be: both
 * are lost, and P's holds end though nobody can copy any more.
 */
UNIT_TEST_IN_CHILD(lost_device_ends_holds_and_pulls_and_not_the_process)
{
	uint32_t at;

	engines_open(AUTO);
	begin(1);
	step_loads(&nothing);
	hold(3, COUNT, 0);
	hold(2, COUNT, 0);
	pull(2, FIRST, COUNT);
	device_break();
	MUST(worker_ops->engine_mark(p.worker, 0) == KVPULL_EDEVICE);
	step(&nothing);
	MUST(pull_end() == KVPULL_POLL_FAILED);
	/* Nobody has asked for the third one. */
	for (at = 0; at < 1000 && p.sent < 3; at++)
		turn_of_p();
	MUST(p.sent == 3);
	MUST(lines_said("the device is lost: all holds and pulls end"));
	MUST(worker_counts(worker_ops, p.worker).devices_lost == 1);
	/* The process keeps what the device has, and the fake counts it. */
	leave();
}

static void unlike(uint32_t kind_of_p, uint32_t kind_of_d, const char *line)
{
	engines_begin();
	MUST(!engine_open(&p, AUTO));
	MUST(!engine_open(&d, AUTO));
	MUST(!engine_register(&p, kind_of_p));
	MUST(!engine_register(&d, kind_of_d));
	hold(1, COUNT, 0);
	pull(1, FIRST, COUNT);
	step_fails(&nothing, KVPULL_EUNSUPPORTED);
	MUST(lines_said(line));
	engines_close();
}

static void from_host(void)
{
	unlike(KVPULL_REGION_PROVIDED, KVPULL_REGION_DEVICE,
	       "peer's region 0 is in host memory: this worker's blocks are a device's");
}

static void to_host(void)
{
	unlike(KVPULL_REGION_DEVICE, KVPULL_REGION_PROVIDED,
	       ": this worker's blocks are in host memory");
}

UNIT_TEST(device_and_host_memory_are_not_read_into_each_other)
{
	assert_int_equal(end_of(from_host), 0);
	assert_int_equal(end_of(to_host), 0);
}
