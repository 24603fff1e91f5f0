/* SPDX-License-Identifier: Apache-2.0 */
/* Copies by the kernel: which memory has it, what it brings, what is refused. */
#include "tests/unit/cuda/world.h"

#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "cuda/choice.h"
#include "tests/fake/cuda/cuda.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"

#define BYTES (2 * FAKE_GRANULARITY)
#define ROWS 100u
#define ROW_BYTES 20000u /* a unit, and a part of one */
#define OTHER "another GPU 0000"

static uint8_t pattern[BYTES];
static uint8_t found[BYTES];

static struct {
	struct kvpull_device_memory own;
	struct kvpull_device_memory foreign;
	struct kvpull_device_event *event;
} copies;

static void copies_open(const void *uuid)
{
	uint64_t seed = 34;
	int fd;

	world_open();
	copies.event = event_of_device();
	copies.own = memory_of(BYTES);
	random_fill(&seed, pattern, sizeof(pattern));
	bytes_put(copies.own.address, pattern, BYTES / 2);
	MUST(!world.ops->export_fd(world.device, &copies.own, &fd));
	MUST(!world.ops->import_fd(world.device, fd, BYTES,
				   uuid ? uuid : world.device->uuid,
				   &copies.foreign));
	(void)close(fd);
}

static void copies_close(void)
{
	MUST(!copies_end(copies.event));
	world.ops->event_close(world.device, copies.event);
	world.ops->unmap(world.device, &copies.foreign);
	world.ops->unmap(world.device, &copies.own);
	world_close();
}

/* ---- which memory ---- */

UNIT_TEST_IN_CHILD(memory_of_the_same_gpu_is_gathered)
{
	copies_open(NULL);
	MUST(copies.foreign.gathers == UINT32_MAX);
	MUST(!copies.foreign.bytes_per_us);
	MUST(lines.counts[KVPULL_LOG_INFO] == 1 &&
	     strstr(lines.of[KVPULL_LOG_INFO], "by a kernel of 4 blocks"));
	copies_close();
}

/* ---- another GPU ---- */

static const char another[] = "copies rows of up to ";

/* Import memory of the peer's once more. */
static struct kvpull_device_memory imported(const void *uuid)
{
	struct kvpull_device_memory memory;
	int fd;

	MUST(!world.ops->export_fd(world.device, &copies.own, &fd));
	MUST(!world.ops->import_fd(world.device, fd, BYTES, uuid, &memory));
	(void)close(fd);
	return memory;
}

UNIT_TEST_IN_CHILD(ways_from_another_gpu_are_compared_once)
{
	struct kvpull_device_memory again;
	uint64_t launches;

	copies_open(OTHER);
	launches = world.fake_launches();
	MUST(launches >= 3 && strstr(lines.of[KVPULL_LOG_INFO], another));
	MUST(strstr(lines.of[KVPULL_LOG_INFO],
		    "from GPU-616e6f74-6865-7220-4750-552030303030 by"));
	lines.of[KVPULL_LOG_INFO][0] = '\0';
	again = imported(OTHER);
	MUST(again.gathers == copies.foreign.gathers);
	MUST(copies.foreign.bytes_per_us);
	MUST(again.bytes_per_us == copies.foreign.bytes_per_us);
	MUST(world.fake_launches() == launches);
	MUST(!lines.of[KVPULL_LOG_INFO][0]);
	world.ops->unmap(world.device, &again);
	again = imported("a third GPU 0000");
	MUST(world.fake_launches() == 2 * launches);
	world.ops->unmap(world.device, &again);
	/* The peer's bytes, and our own, are what they were. */
	bytes_get(copies.own.address, found, BYTES);
	MUST(!memcmp(found, pattern, BYTES / 2) && !found[BYTES - 1]);
	MUST(!lines.bad_count);
	copies_close();
}

/* Time that passes until a look at the clock: behind a launch, or not; 0: real time. */
static uint64_t launched_ns;
static uint64_t called_ns;

int clock_gettime(clockid_t which, struct timespec *now)
{
	static uint64_t launches;
	static uint64_t now_ns;
	uint64_t launches_now;

	if (!launched_ns || !world.fake_launches)
		return (int)syscall(SYS_clock_gettime, which, now);
	launches_now = world.fake_launches();
	now_ns += launches_now > launches ? launched_ns : called_ns;
	launches = launches_now;
	*now = kvpull_clock_timespec(now_ns);
	return 0;
}

static void kernel_is_slower(void)
{
	launched_ns = 300000;
	called_ns = 200000;
	copies_open(OTHER);
	MUST(!copies.foreign.gathers);
	MUST(strstr(lines.of[KVPULL_LOG_INFO],
		    "took 300, 300, 300 us by the kernel, 200, 200, 200 us"));
	copies_close();
}

static void kernel_is_faster(void)
{
	launched_ns = 200000;
	called_ns = 300000;
	copies_open(OTHER);
	MUST(copies.foreign.gathers == UINT32_MAX);
	MUST(strstr(lines.of[KVPULL_LOG_INFO],
		    "took 200, 200, 200 us by the kernel, 300, 300, 300 us"));
	copies_close();
}

UNIT_TEST(faster_way_from_another_gpu_is_taken)
{
	assert_int_equal(end_of(kernel_is_slower), 0);
	assert_int_equal(end_of(kernel_is_faster), 0);
}

UNIT_TEST(rows_that_the_kernel_copied_as_fast_are_its)
{
	static const struct kvpull_cuda_times all[] = { { 1, 2 },
							{ 2, 2 },
							{ 3, 4 } };
	static const struct kvpull_cuda_times some[] = { { 1, 2 },
							 { 2, 2 },
							 { 3, 2 } };
	static const struct kvpull_cuda_times few[] = { { 1, 2 },
							{ 3, 2 },
							{ 1, 2 } };
	static const struct kvpull_cuda_times none[] = { { 3, 2 },
							 { 1, 2 },
							 { 1, 2 } };

	assert_int_equal(kvpull_cuda_choose(all), UINT32_MAX);
	assert_int_equal(kvpull_cuda_choose(some), 16384);
	assert_int_equal(kvpull_cuda_choose(few), 4096);
	assert_int_equal(kvpull_cuda_choose(none), 0);
}

UNIT_TEST(rate_is_that_of_the_fastest_copy)
{
	static const struct kvpull_cuda_times kernel[] = { { 9, 8 },
							   { 4, 8 },
							   { 9, 7 } };
	static const struct kvpull_cuda_times calls[] = { { 9, 8 },
							  { 9, 8 },
							  { 9, 2 } };
	static const struct kvpull_cuda_times slow[] = { { 900000, 900000 },
							 { 900000, 900000 },
							 { 900000, 900000 } };
	static const struct kvpull_cuda_times none[KVPULL_CUDA_LENGTHS];

	assert_int_equal(kvpull_cuda_rate(kernel, 4096), 4096 * 1000 / 4);
	assert_int_equal(kvpull_cuda_rate(calls, 4096), 4096 * 1000 / 2);
	/* 0 would be a rate that is not known. */
	assert_int_equal(kvpull_cuda_rate(slow, 512), 1);
	assert_int_equal(kvpull_cuda_rate(none, UINT64_C(2) << 20), 2097152000);
	assert_int_equal(kvpull_cuda_rate(none, UINT64_C(4) << 20), INT32_MAX);
}

static void not_compared(void)
{
	copies_open(OTHER);
	MUST(!copies.foreign.gathers && !lines.bad_count);
	MUST(!copies.foreign.bytes_per_us);
	MUST(strstr(lines.of[KVPULL_LOG_INFO], getenv("WANTED")));
	copies_close();
}

UNIT_TEST(ways_that_cannot_be_compared_are_the_drivers)
{
	(void)setenv("FAKE_CUDA_REFUSE", "cuLaunchKernel 801", 1);
	(void)setenv("WANTED", ": cuLaunchKernel: 801", 1);
	assert_int_equal(end_of(not_compared), 0);
	/* In the middle of many calls, of which the first are queued. */
	(void)setenv("FAKE_CUDA_VERSION", "12000", 1);
	(void)setenv("FAKE_CUDA_LATE_US", "2000", 1);
	(void)setenv("FAKE_CUDA_REFUSE", "#200 801", 1);
	(void)setenv("WANTED", ": cuMemcpyDtoDAsync: 801", 1);
	assert_int_equal(end_of(not_compared), 0);
	(void)unsetenv("FAKE_CUDA_VERSION");
	(void)unsetenv("FAKE_CUDA_LATE_US");
	(void)unsetenv("FAKE_CUDA_REFUSE");
}

static void without_kernel(void)
{
	copies_open(NULL);
	MUST(!copies.foreign.gathers);
	MUST(!lines.bad_count && lines.counts[KVPULL_LOG_INFO] == 1);
	MUST(strstr(lines.of[KVPULL_LOG_INFO], "copies by the driver's calls"));
	MUST(strstr(lines.of[KVPULL_LOG_INFO], getenv("WANTED")));
	MUST(gather_one(copies.own.address + 64, copies.foreign.address, 64) ==
	     KVPULL_EINVAL);
	MUST(!copy_one(copies.own.address + 64, copies.foreign.address, 64));
	copies_close();
}

UNIT_TEST(driver_that_refuses_the_kernel_copies_without_it)
{
	static const char *const refusals[][2] = {
		{ "cuModuleLoadData 218", "cuModuleLoadData: 218 " },
		{ "cuModuleLoadData 801", "cuModuleLoadData: 801 " },
		{ "cuModuleGetFunction 500", "cuModuleGetFunction: 500 " },
		{ "cuMemHostAlloc 2", "cuMemHostAlloc: 2 " },
	};
	size_t at;

	for (at = 0; at < sizeof(refusals) / sizeof(*refusals); at++) {
		(void)setenv("FAKE_CUDA_REFUSE", refusals[at][0], 1);
		(void)setenv("WANTED", refusals[at][1], 1);
		assert_int_equal(end_of(without_kernel), 0);
	}
	(void)unsetenv("FAKE_CUDA_REFUSE");
}

/* ---- bytes ---- */

/*
 * Rows of the first half to other places of the second, by two strips; in another
 * order in each slot.
 */
static int rows_gathered(uint32_t slot)
{
	static uint32_t source_ids[ROWS];
	static uint32_t target_ids[ROWS];
	struct kvpull_device_strip strips[2];
	const struct kvpull_device_gather gather = { strips, 2, slot };
	uint32_t at;
	int code;

	for (at = 0; at < ROWS; at++) {
		source_ids[at] = (at + slot) % ROWS;
		target_ids[at] = source_ids[at] * 7 % ROWS;
	}
	strips[0] = (struct kvpull_device_strip){
		.source = copies.foreign.address,
		.target = copies.own.address + BYTES / 2,
		.source_stride = ROW_BYTES,
		.target_stride = ROW_BYTES,
		.row_bytes = ROW_BYTES,
		.source_ids = source_ids,
		.target_ids = target_ids,
		.row_count = ROWS / 4,
	};
	strips[1] = strips[0];
	strips[1].source_ids = source_ids + ROWS / 4;
	strips[1].target_ids = target_ids + ROWS / 4;
	strips[1].row_count = ROWS - ROWS / 4;
	code = world.ops->gather(world.device, &gather);
	/* The strips and ids may be reused at once. */
	memset(source_ids, 0xff, sizeof(source_ids));
	memset(target_ids, 0xff, sizeof(target_ids));
	memset(strips, 0xff, sizeof(strips));
	return code;
}

static void rows_compared(void)
{
	uint32_t at;

	bytes_get(copies.own.address, found, BYTES);
	MUST(!memcmp(found, pattern, BYTES / 2));
	for (at = 0; at < ROWS; at++)
		MUST(!memcmp(found + BYTES / 2 + at * 7 % ROWS * ROW_BYTES,
			     pattern + at * (size_t)ROW_BYTES, ROW_BYTES));
	for (at = ROWS * ROW_BYTES; at < BYTES / 2; at++)
		MUST(!found[BYTES / 2 + at]);
}

static void gathered(void)
{
	copies_open(NULL);
	MUST(!rows_gathered(0));
	MUST(!rows_gathered(KVPULL_DEVICE_SLOTS - 1));
	MUST(world.fake_launches() == 2);
	MUST(!copies_end(copies.event));
	rows_compared();
	MUST(!lines.bad_count);
	copies_close();
}

/* The fake ends a program that writes into a slot while it is queued. */
UNIT_TEST(two_slots_are_queued_and_bring_the_right_bytes)
{
	assert_int_equal(end_of(gathered), 0);
	(void)setenv("FAKE_CUDA_LATE_US", "20000", 1);
	assert_int_equal(end_of(gathered), 0);
	(void)unsetenv("FAKE_CUDA_LATE_US");
}

static sem_t gate;

static void gate_wait(void *unused)
{
	(void)unused;
	while (sem_wait(&gate))
		; /* a signal */
}

/* A pull's slices wait for the engine, which may wait for anybody. */
UNIT_TEST_IN_CHILD(ways_are_compared_beside_copies_that_wait)
{
	struct gpu_stream *stream;
	struct kvpull_device_memory foreign;

	copies_open(NULL);
	stream = kvpull_cuda_of(world.device)->stream;
	MUST(!sem_init(&gate, 0, 0));
	MUST(!world.fake_run(stream, gate_wait, NULL));
	MUST(!rows_gathered(0) && !rows_gathered(1));
	foreign = imported(OTHER);
	MUST(!sem_post(&gate));
	MUST(!copies_end(copies.event));
	rows_compared();
	world.ops->unmap(world.device, &foreign);
	copies_close();
}

/* ---- errors ---- */

UNIT_TEST_IN_CHILD(copy_beyond_its_bounds_makes_no_call)
{
	struct kvpull_device_gather gather = { 0 };
	uint64_t calls;

	copies_open(NULL);
	calls = world.fake_calls();
	MUST(world.ops->gather(world.device, &gather) == KVPULL_EINVAL);
	MUST(rows_gathered(KVPULL_DEVICE_SLOTS) == KVPULL_EINVAL);
	MUST(gather_one(copies.own.address + 8, copies.foreign.address, 64) ==
	     KVPULL_EINVAL);
	MUST(world.fake_calls() == calls && !lines.bad_count);
	copies_close();
}

static void refused(void)
{
	copies_open(NULL);
	MUST(rows_gathered(0) == KVPULL_EREAD);
	MUST(lines.bad_count == 1 && strstr(lines.bad, "cuLaunchKernel: "));
	MUST(!world.ops->is_lost(world.device));
	copies_close();
}

UNIT_TEST(launch_that_is_refused_ends_its_copy)
{
	static const char *const refusals[] = { "cuLaunchKernel 2",
						"cuLaunchKernel 801" };
	size_t at;

	for (at = 0; at < sizeof(refusals) / sizeof(*refusals); at++) {
		(void)setenv("FAKE_CUDA_REFUSE", refusals[at], 1);
		assert_int_equal(end_of(refused), 0);
	}
	(void)unsetenv("FAKE_CUDA_REFUSE");
}

UNIT_TEST_IN_CHILD(kernel_beyond_its_memory_ends_the_device)
{
	copies_open(NULL);
	MUST(!gather_one(copies.own.address + BYTES - 16,
			 copies.foreign.address, 32));
	MUST(copies_end(copies.event) == KVPULL_EDEVICE);
	MUST(gather_one(copies.own.address, copies.foreign.address + 64, 64) ==
	     KVPULL_EDEVICE);
	MUST(lines.bad_count == 1 && strstr(lines.bad, "device 0 is lost"));
	leave();
}

UNIT_TEST_IN_CHILD(kernel_disturbs_no_capture)
{
	copies_open(NULL);
	(void)world.fake_capture(world.stream, 1);
	MUST(!rows_gathered(0));
	MUST(!copies_end(copies.event));
	(void)world.fake_capture(world.stream, 0);
	rows_compared();
	copies_close();
}
