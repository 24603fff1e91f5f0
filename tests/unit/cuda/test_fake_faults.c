/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults that the environment tells the fake driver to make are made: each has a
 * test here that sees it. Refusals and late work are in test_fake.c.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "tests/fake/cuda/cuda.h"
#include "tests/lib/unit.h"
#include "tests/unit/cuda/world.h"

#define BYTES FAKE_GRANULARITY
#define WRONG 99 /* fake_wrong() */
#define ROUNDS_MAX 200u

static int end_with(const char *name, const char *value, void (*run)(void))
{
	int status;

	(void)setenv(name, value, 1);
	status = end_of(run);
	(void)unsetenv(name);
	return status;
}

static uint8_t byte_at(uint64_t address, struct gpu_stream *stream)
{
	uint8_t byte;

	MUST(!world.cuMemcpyDtoHAsync(&byte, address, 1, stream));
	MUST(!world.calls->cuStreamSynchronize(stream));
	return byte;
}

/* A copy is begun, and not ended, at one of many moments. */
static void torn(void)
{
	struct kvpull_device_memory memory;
	struct gpu_stream *other;
	uint32_t round = 0;
	uint8_t first;
	uint8_t last;

	memory = world_open_with(BYTES);
	MUST(!world.calls->cuStreamCreate(&other, GPU_STREAM_NON_BLOCKING));
	do {
		MUST(round++ < ROUNDS_MAX);
		MUST(!world.calls->cuMemsetD8Async(
			memory.address, (uint8_t)round, BYTES, world.stream));
		first = byte_at(memory.address, other);
		last = byte_at(memory.address + BYTES - 1, other);
		MUST(!world.calls->cuStreamSynchronize(world.stream));
	} while (first == last);
	MUST(first == (uint8_t)round && last == (uint8_t)(round - 1));
	MUST(!world.calls->cuStreamDestroy(other));
	world_close_with(&memory);
}

UNIT_TEST(others_see_a_copy_that_is_half_done)
{
	assert_int_equal(end_with("FAKE_CUDA_INSIDE_US", "20000", torn), 0);
}

/* Two pieces go to one place: the one that is copied last stays. */
UNIT_TEST_IN_CHILD(pieces_of_a_batch_are_copied_in_any_order)
{
	struct kvpull_device_memory memory;
	uint32_t ends[3] = { 0 };
	uint32_t round;

	memory = world_open_with(BYTES);
	bytes_put(memory.address, (const uint8_t[]){ 1, 2 }, 2);
	for (round = 0; round < ROUNDS_MAX; round++) {
		uint64_t targets[] = { memory.address + 2, memory.address + 2 };
		uint64_t sources[] = { memory.address, memory.address + 1 };
		size_t bytes[] = { 1, 1 };
		const struct kvpull_device_pieces pieces = { targets, sources,
							     bytes, 2 };
		struct gpu_stream *const stream =
			kvpull_cuda_of(world.device)->stream;

		MUST(!world.ops->copy(world.device, &pieces));
		ends[byte_at(memory.address + 2, stream)]++;
	}
	MUST(!ends[0] && ends[1] && ends[2]);
	world_close_with(&memory);
}

/* ---- calls that take their time ---- */

static void slow(void)
{
	struct kvpull_device_memory memory;
	uint64_t began_ns;

	world_open();
	began_ns = kvpull_clock_ns();
	memory = memory_of(BYTES);
	MUST(kvpull_clock_ns() - began_ns >= 50 * KVPULL_NS_PER_MS);
	world_close_with(&memory);
}

UNIT_TEST(call_that_is_named_takes_longer)
{
	assert_int_equal(
		end_with("FAKE_CUDA_SLOW", "cuMemSetAccess 50000", slow), 0);
}

static _Atomic uint32_t has_returned;

static void *synchronize(void *unused)
{
	(void)unused;
	(void)world.calls->cuStreamSynchronize(world.stream);
	atomic_store_explicit(&has_returned, 1, memory_order_relaxed);
	return NULL;
}

static void hung(void)
{
	pthread_t thread;
	uint32_t naps;

	world_open();
	MUST(!pthread_create(&thread, NULL, synchronize, NULL));
	for (naps = 0; naps < 100; naps++)
		kvpull_clock_nap();
	/* All others go on. */
	MUST(!world.calls->cuStreamDestroy(world.stream));
	MUST(!atomic_load_explicit(&has_returned, memory_order_relaxed));
	leave();
}

UNIT_TEST(call_that_is_named_never_returns)
{
	assert_int_equal(
		end_with("FAKE_CUDA_SLOW", "cuStreamSynchronize never", hung),
		0);
}

/* ---- what a thread does ---- */

static void *memory_taken(void *memory)
{
	*(struct kvpull_device_memory *)memory = memory_of(BYTES);
	return NULL;
}

UNIT_TEST_IN_CHILD(calls_that_may_wait_are_counted_by_their_thread)
{
	struct kvpull_device_memory memory;
	struct kvpull_device_event *mark;
	pthread_t thread;
	uint64_t waits;

	world_open();
	mark = event_of_device();
	waits = world.fake_waits();
	MUST(world.ops->mark(world.device, (uint64_t)(uintptr_t)world.stream,
			     mark) == 1);
	while (!world.ops->query(world.device, mark))
		;
	MUST(!pthread_create(&thread, NULL, memory_taken, &memory));
	(void)pthread_join(thread, NULL);
	MUST(world.fake_waits() == waits);
	world.ops->unmap(world.device, &memory);
	MUST(world.fake_waits() > waits);
	world.ops->event_close(world.device, mark);
	world_close();
}

/* ---- streams that are none ---- */

static void no_stream_awaited(void)
{
	world_open();
	(void)world.calls->cuStreamSynchronize((void *)&world);
}

static void no_stream_asked(void)
{
	int status;

	world_open();
	(void)world.calls->cuStreamIsCapturing((void *)&world, &status);
}

UNIT_TEST(stream_that_is_none_ends_the_program)
{
	assert_int_equal(end_of(no_stream_awaited), WRONG);
	assert_int_equal(end_of(no_stream_asked), WRONG);
}
