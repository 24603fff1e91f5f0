/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread over CUDA's table and the fake driver: whole pulls between two
 * processes' memory, beside an engine that computes and captures graphs.
 */
#include <fcntl.h>

#include "base/clock.h"
#include "base/device_thread.h"
#include "tests/fake/cuda/cuda.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"
#include "tests/unit/cuda/world.h"
#include "tests/unit/device/reads.h"

#define BYTES (4 * FAKE_GRANULARITY)
#define BLOCK_BYTES 4096u
#define BLOCKS 600u
#define JOBS 3u
#define FILL 0x5a

static struct {
	struct kvpull_device_thread *thread;
	struct kvpull_device_memory source; /* P's, as it has it */
	struct kvpull_device_memory target;
	struct reads_read reads[JOBS];
	struct kvpull_device_job jobs[JOBS];
	struct kvpull_device_region region;
} pulls;

static uint8_t pattern[BYTES];
static uint8_t found[BYTES];

/* The engine's own calls, from the device that the thread has opened. */
static void pulls_open(void)
{
	const struct kvpull_device_thread_params params = {
		.open = kvpull_cuda_open,
		.wake_fd = -1,
		.limits = { .job_max = JOBS,
			    .mapping_max = 2,
			    .bytes_per_ms = 1 },
	};
	struct gpu_context *context;

	fake_load();
	log_begin();
	MUST(!kvpull_device_thread_open(&pulls.thread, &params, &world.log));
	world.device = kvpull_device_thread_device(pulls.thread);
	world.ops = world.device->ops;
	world.calls = &kvpull_cuda_of(world.device)->calls;
	MUST(!world.calls->cuDevicePrimaryCtxRetain(&context, 0));
	MUST(!world.calls->cuCtxPushCurrent(context));
	MUST(!world.calls->cuStreamCreate(&world.stream,
					  GPU_STREAM_NON_BLOCKING));
	pulls.source = memory_of(BYTES);
	pulls.target = memory_of(BYTES);
}

static void engine_ends(void)
{
	struct gpu_context *context;

	MUST(!world.calls->cuStreamDestroy(world.stream));
	MUST(!world.calls->cuCtxPopCurrent(&context));
	MUST(!world.calls->cuDevicePrimaryCtxRelease(0));
}

static void pulls_close(void)
{
	engine_ends();
	world.ops->unmap(world.device, &pulls.source);
	world.ops->unmap(world.device, &pulls.target);
	MUST(!kvpull_device_thread_close(
		pulls.thread, kvpull_clock_ns() + KVPULL_DEVICE_HANG_NS));
	kvpull_arena_fini(&world.arena);
	MUST(fds_open() == world.fds);
}

static struct kvpull_device_end end_await(enum kvpull_device_kind kind)
{
	struct kvpull_device_end next;

	while (!kvpull_device_thread_poll(pulls.thread, &next, 1,
					  kvpull_clock_ns()))
		kvpull_clock_nap();
	MUST(next.kind == kind);
	return next;
}

static void mapping_order(uint64_t bytes)
{
	int fd = -1;

	MUST(!world.ops->export_fd(world.device, &pulls.source, &fd));
	kvpull_device_thread_import(pulls.thread, 0, fd, bytes,
				    world.device->uuid);
}

/* Every third block of the source, whole, to another place of the target. */
static struct kvpull_device_job *job_make(uint32_t index)
{
	struct reads_read *const made = &pulls.reads[index];
	struct kvpull_device_job *const job = &pulls.jobs[index];
	uint32_t at;

	reads_make(made, index, BLOCKS, BLOCK_BYTES);
	for (at = 0; at < BLOCKS; at++)
		made->ids[at] = JOBS * (at * 7 % BLOCKS) + index;
	made->strip.local = (uint8_t *)(uintptr_t)pulls.target.address;
	made->strip.local_block_stride = BLOCK_BYTES;
	*job = (struct kvpull_device_job){ .read = &made->read,
					   .regions = &pulls.region,
					   .region_count = 1 };
	return job;
}

static void job_order(uint32_t index)
{
	MUST(!kvpull_device_thread_start(pulls.thread, job_make(index)));
}

static void target_compared(size_t bytes)
{
	static const uint8_t zeros[BYTES];

	bytes_get(pulls.target.address, found, BYTES);
	MUST(!memcmp(found, pattern, bytes));
	MUST(!memcmp(found + bytes, zeros, BYTES - bytes));
}

static void pattern_put(void)
{
	uint64_t seed = 34;

	random_fill(&seed, pattern, sizeof(pattern));
	bytes_put(pulls.source.address, pattern, BYTES);
}

/* ---- bytes ---- */

static void pulled(void)
{
	uint32_t at;

	pulls_open();
	pattern_put();
	mapping_order(BYTES);
	for (at = 0; at < JOBS; at++)
		job_order(at);
	kvpull_device_thread_unmap(pulls.thread, 0);
	(void)end_await(KVPULL_DEVICE_IMPORT);
	for (at = 0; at < JOBS; at++)
		MUST(!end_await(KVPULL_DEVICE_COPY).code);
	(void)end_await(KVPULL_DEVICE_UNMAP);
	target_compared((size_t)JOBS * BLOCKS * BLOCK_BYTES);
	MUST(!lines.bad_count);
	pulls_close();
}

static void pulled_by_kernel(void)
{
	pulled();
	MUST(world.fake_launches());
}

static void pulled_without(void)
{
	pulled();
	MUST(!world.fake_launches());
}

/* With the kernel, and as drivers copy that refuse it. */
static void both_ways(void)
{
	assert_int_equal(end_of(pulled_by_kernel), 0);
	(void)setenv("FAKE_CUDA_REFUSE", "cuModuleLoadData 218", 1);
	assert_int_equal(end_of(pulled_without), 0);
	(void)unsetenv("FAKE_CUDA_REFUSE");
}

UNIT_TEST(three_pulls_in_turn_bring_the_right_bytes)
{
	static const char *const versions[] = { "12000", "12080", "13000" };
	uint32_t at;

	for (at = 0; at < 3; at++) {
		(void)setenv("FAKE_CUDA_VERSION", versions[at], 1);
		both_ways();
	}
	(void)unsetenv("FAKE_CUDA_VERSION");
}

/* The fake ends a program that destroys, unmaps or reuses what is in use. */
UNIT_TEST(slow_copies_are_waited_for)
{
	(void)setenv("FAKE_CUDA_LATE_US", "300", 1);
	both_ways();
	(void)unsetenv("FAKE_CUDA_LATE_US");
}

static void closed_early(void)
{
	pulls_open();
	mapping_order(BYTES);
	job_order(0);
	job_order(1);
	(void)end_await(KVPULL_DEVICE_IMPORT);
	engine_ends();
	kvpull_device_thread_adopt(pulls.thread, &pulls.target);
	world.ops->unmap(world.device, &pulls.source);
	MUST(!kvpull_device_thread_close(
		pulls.thread, kvpull_clock_ns() + KVPULL_DEVICE_HANG_NS));
	kvpull_arena_fini(&world.arena);
	MUST(fds_open() == world.fds);
}

UNIT_TEST(close_ends_what_is_queued_and_leaves_nothing)
{
	(void)setenv("FAKE_CUDA_LATE_US", "2000", 1);
	assert_int_equal(end_of(closed_early), 0);
	(void)unsetenv("FAKE_CUDA_LATE_US");
}

/* ---- beside the engine ---- */

/* The engine's step, whose last store into a block comes late. */
static void marked(void)
{
	struct kvpull_device_event *mark;
	uint32_t i;

	pulls_open();
	pattern_put();
	mark = event_of_device();
	mapping_order(BYTES);
	for (i = 0; i < 20; i++)
		MUST(!world.calls->cuMemsetD8Async(pulls.target.address, FILL,
						   BYTES, world.stream));
	MUST(world.ops->mark(world.device, (uint64_t)(uintptr_t)world.stream,
			     mark) == 1);
	job_make(0)->after = mark;
	MUST(!kvpull_device_thread_start(pulls.thread, &pulls.jobs[0]));
	(void)end_await(KVPULL_DEVICE_IMPORT);
	MUST(!end_await(KVPULL_DEVICE_COPY).code);
	bytes_get(pulls.target.address, found, BYTES);
	MUST(!memcmp(found, pattern, BLOCK_BYTES));
	MUST(found[BLOCK_BYTES] == FILL);
	kvpull_device_thread_unmap(pulls.thread, 0);
	(void)end_await(KVPULL_DEVICE_UNMAP);
	world.ops->event_close(world.device, mark);
	pulls_close();
}

UNIT_TEST(pull_comes_behind_its_mark)
{
	(void)setenv("FAKE_CUDA_LATE_US", "1000", 1);
	assert_int_equal(end_of(marked), 0);
	(void)unsetenv("FAKE_CUDA_LATE_US");
}

/* The fake ends a program that makes other calls than relaxed ones meanwhile. */
UNIT_TEST_IN_CHILD(capture_of_a_graph_is_not_disturbed)
{
	pulls_open();
	pattern_put();
	(void)world.fake_capture(world.stream, 1);
	mapping_order(BYTES);
	job_order(0);
	kvpull_device_thread_unmap(pulls.thread, 0);
	(void)end_await(KVPULL_DEVICE_IMPORT);
	MUST(!end_await(KVPULL_DEVICE_COPY).code);
	(void)end_await(KVPULL_DEVICE_UNMAP);
	(void)world.fake_capture(world.stream, 0);
	MUST(!lines.bad_count);
	pulls_close();
}

/* ---- errors ---- */

UNIT_TEST_IN_CHILD(foreign_descriptor_ends_its_peer_alone)
{
	pulls_open();
	kvpull_device_thread_import(pulls.thread, 0,
				    open("/dev/null", O_RDWR | O_CLOEXEC),
				    BYTES, world.device->uuid);
	job_order(0);
	MUST(end_await(KVPULL_DEVICE_IMPORT).code == KVPULL_EROUTE);
	MUST(end_await(KVPULL_DEVICE_COPY).code == KVPULL_EROUTE);
	MUST(lines.bad_count == 1);
	kvpull_device_thread_unmap(pulls.thread, 0);
	(void)end_await(KVPULL_DEVICE_UNMAP);
	/* The device works on. */
	mapping_order(BYTES);
	job_order(0);
	(void)end_await(KVPULL_DEVICE_IMPORT);
	MUST(!end_await(KVPULL_DEVICE_COPY).code);
	pulls_close();
}

UNIT_TEST_IN_CHILD(sticky_error_ends_all_pulls_in_one_line)
{
	uint64_t calls;

	pulls_open();
	mapping_order(BYTES);
	(void)end_await(KVPULL_DEVICE_IMPORT);
	/* The engine itself stores beyond its memory. */
	MUST(!copy_one(pulls.target.address + BYTES - 32, pulls.source.address,
		       64));
	job_order(0);
	job_order(1);
	MUST(end_await(KVPULL_DEVICE_COPY).code == KVPULL_EDEVICE);
	MUST(end_await(KVPULL_DEVICE_COPY).code == KVPULL_EDEVICE);
	MUST(lines.bad_count == 1 && strstr(lines.bad, "device 0 is lost"));
	calls = world.fake_calls();
	job_order(0);
	MUST(end_await(KVPULL_DEVICE_COPY).code == KVPULL_EDEVICE);
	kvpull_device_thread_unmap(pulls.thread, 0);
	(void)end_await(KVPULL_DEVICE_UNMAP);
	MUST(kvpull_device_thread_close(pulls.thread,
					kvpull_clock_close_by()) == 1);
	MUST(world.fake_calls() == calls && lines.bad_count == 1);
	leave();
}
