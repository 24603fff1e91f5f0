/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake driver ends a program that loses memory or data, and answers the
 * rest as the driver does. Each case is a child, which it may end.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/gather.h"
#include "cuda/kernel.h"
#include "tests/fake/cuda/cuda.h"
#include "tests/lib/unit.h"

#define BYTES (2 * FAKE_GRANULARITY)
#define WRONG 99 /* fake_wrong() */
#define LATE_US "200000"

static struct {
	struct gpu_context *context;
	struct gpu_stream *stream;
	uint64_t handle;
	uint64_t address;
} at;

static const struct gpu_allocation allocation = {
	.type = GPU_ALLOCATION_PINNED,
	.handle_types = GPU_HANDLE_POSIX_FD,
	.location = { GPU_LOCATION_DEVICE, 0 },
};

static void must(int code)
{
	if (code)
		_exit(code);
}

static void access_set(int flags)
{
	const struct gpu_access access = {
		.location = { GPU_LOCATION_DEVICE, 0 }, .flags = flags
	};

	must(cuMemSetAccess(at.address, BYTES, &access, 1));
}

/* A device, a stream, and memory that is mapped. */
static void begin(void)
{
	must(cuInit(0));
	must(cuDevicePrimaryCtxRetain(&at.context, 0));
	must(cuCtxPushCurrent(at.context));
	must(cuStreamCreate(&at.stream, GPU_STREAM_NON_BLOCKING));
	must(cuMemCreate(&at.handle, BYTES, &allocation, 0));
	must(cuMemAddressReserve(&at.address, BYTES, 0, 0, 0));
	must(cuMemMap(at.address, BYTES, 0, at.handle, 0));
	access_set(GPU_ACCESS_READ_WRITE);
}

static void end(void)
{
	must(cuMemUnmap(at.address, BYTES));
	must(cuMemAddressFree(at.address, BYTES));
	must(cuMemRelease(at.handle));
	must(cuStreamDestroy(at.stream));
	must(cuCtxPopCurrent(&at.context));
	must(cuDevicePrimaryCtxRelease(0));
}

/* Run a program: its exit status, or minus the signal that ends it. */
static int end_of(void (*run)(void))
{
	const pid_t child = fork();
	int status = 0;

	assert_true(child >= 0);
	if (!child) {
		/* cmocka would take it for a failure of its own process. */
		(void)signal(SIGSEGV, SIG_DFL);
		if (!freopen("/dev/null", "w", stderr))
			_exit(1);
		run();
		exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

UNIT_TEST_IN_CHILD(copies_are_done_in_order)
{
	uint8_t bytes[16] = { 1, 2, 3 };
	uint8_t back[16] = { 0 };

	begin();
	must(cuMemsetD8Async(at.address, 7, BYTES, at.stream));
	must(cuMemcpyHtoDAsync(at.address, bytes, sizeof(bytes), at.stream));
	must(cuMemcpyDtoDAsync(at.address + BYTES - 16, at.address, 16,
			       at.stream));
	must(cuMemcpyDtoHAsync(back, at.address + BYTES - 16, 16, at.stream));
	must(cuStreamSynchronize(at.stream));
	if (memcmp(bytes, back, sizeof(bytes)))
		_exit(1);
	end();
}

UNIT_TEST_ENDS(cpu_cannot_touch_device_memory, -SIGSEGV)
{
	begin();
	*(uint8_t *)(uintptr_t)at.address = 1;
}

UNIT_TEST_IN_CHILD(child_of_fork_has_no_driver)
{
	int count;

	begin();
	if (!fork())
		_exit(cuDeviceGetCount(&count) != GPU_ENOT_INITIALIZED ||
		      cuMemUnmap(at.address, BYTES) != GPU_ENOT_INITIALIZED);
	if (wait(&count) < 0 || count)
		_exit(1);
	end();
}

UNIT_TEST_ENDS(calls_want_a_current_context, GPU_EINVALID_CONTEXT)
{
	struct gpu_stream *stream;

	must(cuInit(0));
	_exit(cuStreamCreate(&stream, GPU_STREAM_NON_BLOCKING));
}

UNIT_TEST_ENDS(unmap_under_a_copy_ends_the_program, WRONG)
{
	(void)setenv("FAKE_CUDA_LATE_US", LATE_US, 1);
	begin();
	must(cuMemcpyDtoDAsync(at.address + FAKE_GRANULARITY, at.address, 16,
			       at.stream));
	must(cuMemUnmap(at.address, BYTES));
}

UNIT_TEST_ENDS(pinned_memory_freed_under_a_copy_ends_the_program, WRONG)
{
	void *host;

	(void)setenv("FAKE_CUDA_LATE_US", LATE_US, 1);
	begin();
	must(cuMemHostAlloc(&host, 64, 0));
	must(cuMemcpyHtoDAsync(at.address, host, 64, at.stream));
	must(cuMemFreeHost(host));
}

/* ---- kernels ---- */

static struct {
	struct gpu_module *module;
	struct gpu_function *gather;
	struct kvpull_cuda_slot *slot; /* pinned */
	uint64_t other;                /* memory apart */
	uint64_t other_handle;
} kernel;

/* Two rows, of which the second comes from memory apart. */
static int two_launched(void)
{
	struct gather_job job = { .strips = kernel.slot->strips,
				  .source_ids = kernel.slot->source_ids,
				  .target_ids = kernel.slot->target_ids,
				  .strip_count = 2 };
	uint64_t first = 0;
	uint64_t units = 2;
	void *arguments[] = { &job, &first, &units };

	kernel.slot->strips[0] = (struct gather_strip){
		.source = at.address, .target = at.address + 64, .row_bytes = 64
	};
	kernel.slot->strips[1] =
		(struct gather_strip){ .source = kernel.other,
				       .target = at.address + 128,
				       .row_bytes = 64,
				       .unit_first = 1,
				       .id_first = 1 };
	return cuLaunchKernel(kernel.gather, 2, 1, 1, GATHER_LANES, 1, 1, 0,
			      at.stream, arguments, NULL);
}

static void kernel_begin(void)
{
	const struct gpu_access access = {
		.location = { GPU_LOCATION_DEVICE, 0 }, .flags = GPU_ACCESS_READ
	};
	void *memory;

	begin();
	must(cuModuleLoadData(&kernel.module, ".version 7.0\n.entry gather("));
	must(cuModuleGetFunction(&kernel.gather, kernel.module, "gather"));
	must(cuMemHostAlloc(&memory, sizeof(*kernel.slot), 0));
	kernel.slot = memory;
	must(cuMemCreate(&kernel.other_handle, BYTES, &allocation, 0));
	must(cuMemAddressReserve(&kernel.other, BYTES, 0, 0, 0));
	must(cuMemMap(kernel.other, BYTES, 0, kernel.other_handle, 0));
	must(cuMemSetAccess(kernel.other, BYTES, &access, 1));
}

static void kernel_end(void)
{
	must(cuStreamSynchronize(at.stream));
	must(cuMemUnmap(kernel.other, BYTES));
	must(cuMemAddressFree(kernel.other, BYTES));
	must(cuMemRelease(kernel.other_handle));
	must(cuMemFreeHost(kernel.slot));
	must(cuModuleUnload(kernel.module));
	end();
}

static void kernel_copies(void)
{
	uint8_t back[64];

	kernel_begin();
	must(cuMemsetD8Async(at.address, 7, 64, at.stream));
	must(two_launched());
	must(cuMemcpyDtoHAsync(back, at.address + 128, 64, at.stream));
	must(cuStreamSynchronize(at.stream));
	if (back[0] != FAKE_FORMER_BYTE || back[63] != FAKE_FORMER_BYTE)
		_exit(1);
	must(cuMemcpyDtoHAsync(back, at.address + 64, 64, at.stream));
	must(cuStreamSynchronize(at.stream));
	if (back[0] != 7 || back[63] != 7 || fake_launches() != 1)
		_exit(2);
	kernel_end();
}

static void kernel_without_context(void)
{
	kernel_begin();
	must(cuCtxPopCurrent(&at.context));
	if (two_launched() != GPU_EINVALID_CONTEXT)
		_exit(1);
	must(cuCtxPushCurrent(at.context));
	kernel_end();
}

/* Two workers of a process have one context, and a module each. */
static void other_module_unloaded(void)
{
	struct gpu_module *other;

	(void)setenv("FAKE_CUDA_LATE_US", LATE_US, 1);
	kernel_begin();
	must(cuModuleLoadData(&other, ".version 7.0\n.entry gather("));
	must(two_launched());
	must(cuModuleUnload(other));
	kernel_end();
}

UNIT_TEST(kernel_copies_rows_in_the_current_context)
{
	assert_int_equal(end_of(kernel_copies), 0);
	assert_int_equal(end_of(other_module_unloaded), 0);
	assert_int_equal(end_of(kernel_without_context), 0);
}

static void kernel_late(void)
{
	(void)setenv("FAKE_CUDA_LATE_US", LATE_US, 1);
	kernel_begin();
	must(two_launched());
}

static void unmap_under_kernel(void)
{
	kernel_late();
	must(cuMemUnmap(kernel.other, BYTES));
}

static void slot_freed_under_kernel(void)
{
	kernel_late();
	must(cuMemFreeHost(kernel.slot));
}

static void module_unloaded_under_kernel(void)
{
	kernel_late();
	must(cuModuleUnload(kernel.module));
}

static void ids_reused_under_kernel(void)
{
	kernel_late();
	kernel.slot->strips[1].source_stride = 64;
	kernel.slot->source_ids[1] = 1;
	must(cuStreamSynchronize(at.stream));
}

static void kernel_of_no_module(void)
{
	kernel_begin();
	must(cuModuleUnload(kernel.module));
	(void)two_launched();
}

static void kernel_while_capturing(void)
{
	kernel_begin();
	(void)fake_capture(at.stream, 1);
	(void)two_launched();
}

UNIT_TEST(misuse_of_a_kernel_ends_the_program)
{
	assert_int_equal(end_of(unmap_under_kernel), WRONG);
	assert_int_equal(end_of(slot_freed_under_kernel), WRONG);
	assert_int_equal(end_of(module_unloaded_under_kernel), WRONG);
	assert_int_equal(end_of(ids_reused_under_kernel), WRONG);
	assert_int_equal(end_of(kernel_of_no_module), WRONG);
	assert_int_equal(end_of(kernel_while_capturing), WRONG);
}

UNIT_TEST_IN_CHILD(kernel_that_stores_where_it_may_not_loses_the_context)
{
	kernel_begin();
	access_set(GPU_ACCESS_READ);
	must(two_launched());
	_exit(cuStreamSynchronize(at.stream) != GPU_EILLEGAL_ADDRESS);
}

/* ---- what else ends a program ---- */

UNIT_TEST_ENDS(addresses_freed_while_mapped_end_the_program, WRONG)
{
	begin();
	must(cuMemAddressFree(at.address, BYTES));
}

UNIT_TEST_ENDS(event_destroyed_before_it_is_reached_ends_the_program, WRONG)
{
	struct gpu_event *event;

	(void)setenv("FAKE_CUDA_LATE_US", LATE_US, 1);
	begin();
	must(cuEventCreate(&event, 0));
	must(cuEventRecord(event, at.stream));
	if (cuEventQuery(event) != GPU_ENOT_READY)
		_exit(1);
	must(cuEventDestroy(event));
}

UNIT_TEST_ENDS(null_stream_ends_the_program, WRONG)
{
	begin();
	must(cuMemsetD8Async(at.address, 0, 16, NULL));
}

static void left_open(void)
{
	begin();
}

static void left_mapped(void)
{
	begin();
	must(cuMemRelease(at.handle));
	must(cuStreamDestroy(at.stream));
	must(cuCtxPopCurrent(&at.context));
	must(cuDevicePrimaryCtxRelease(0));
}

static void left_event(void)
{
	struct gpu_event *event;

	begin();
	must(cuEventCreate(&event, 0));
	end();
}

UNIT_TEST(anything_left_at_exit_is_said)
{
	assert_int_equal(end_of(left_open), WRONG);
	assert_int_equal(end_of(left_mapped), WRONG);
	assert_int_equal(end_of(left_event), WRONG);
}

/* The context is lost: all later calls say so. */
UNIT_TEST_IN_CHILD(store_through_a_mapping_for_reads_loses_the_context)
{
	begin();
	access_set(GPU_ACCESS_READ);
	must(cuMemsetD8Async(at.address, 0, 16, at.stream));
	if (cuStreamSynchronize(at.stream) != GPU_EILLEGAL_ADDRESS ||
	    cuMemUnmap(at.address, BYTES) != GPU_EILLEGAL_ADDRESS)
		_exit(1);
}

UNIT_TEST_IN_CHILD(work_beyond_a_mapping_loses_the_context)
{
	begin();
	must(cuMemsetD8Async(at.address + BYTES - 16, 0, 32, at.stream));
	_exit(cuStreamSynchronize(at.stream) != GPU_EILLEGAL_ADDRESS);
}

UNIT_TEST_IN_CHILD(foreign_descriptors_and_claimed_sizes_are_refused)
{
	const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	uint64_t address;
	uint64_t handle;
	int fd;

	begin();
	must(cuMemExportToShareableHandle(&fd, at.handle, GPU_HANDLE_POSIX_FD,
					  0));
	if (cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)null,
					   GPU_HANDLE_POSIX_FD) !=
	    GPU_EINVALID_VALUE)
		_exit(1);
	must(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd,
					    GPU_HANDLE_POSIX_FD));
	must(cuMemAddressReserve(&address, 2 * BYTES, 0, 0, 0));
	if (cuMemMap(address, 2 * BYTES, 0, handle, 0) != GPU_EINVALID_VALUE)
		_exit(2);
	must(cuMemMap(address, BYTES, 0, handle, 0));
	must(cuMemRelease(handle));
	must(cuMemUnmap(address, BYTES));
	must(cuMemAddressFree(address, 2 * BYTES));
	(void)close(fd);
	end();
}

/* Work of another stream is late, and is waited for all the same. */
UNIT_TEST_IN_CHILD(stream_waits_for_an_event_of_another)
{
	struct gpu_stream *other;
	struct gpu_event *event;
	uint8_t byte = 0;

	(void)setenv("FAKE_CUDA_LATE_US", "20000", 1);
	begin();
	must(cuStreamCreate(&other, GPU_STREAM_NON_BLOCKING));
	must(cuEventCreate(&event, GPU_EVENT_DISABLE_TIMING));
	must(cuMemsetD8Async(at.address, 5, 16, other));
	must(cuMemsetD8Async(at.address, 6, 16, other));
	must(cuEventRecord(event, other));
	must(cuStreamWaitEvent(at.stream, event, 0));
	must(cuMemcpyDtoHAsync(&byte, at.address, 1, at.stream));
	must(cuStreamSynchronize(at.stream));
	if (byte != 6)
		_exit(1);
	must(cuEventDestroy(event));
	must(cuStreamDestroy(other));
	end();
}

static void refused_by_number(void)
{
	int count;

	/* cuInit() is the first one. */
	(void)setenv("FAKE_CUDA_REFUSE", "#2 801", 1);
	must(cuInit(0));
	if (cuDeviceGetCount(&count) != GPU_ENOT_SUPPORTED)
		_exit(1);
	must(cuDeviceGetCount(&count));
	if (fake_calls() != 3)
		_exit(2);
}

static void lost_by_number(void)
{
	(void)setenv("FAKE_CUDA_REFUSE", "#5 700", 1);
	must(cuInit(0));
	must(cuDevicePrimaryCtxRetain(&at.context, 0));
	must(cuCtxPushCurrent(at.context));
	must(cuStreamCreate(&at.stream, GPU_STREAM_NON_BLOCKING));
	if (cuStreamSynchronize(at.stream) != GPU_EILLEGAL_ADDRESS)
		_exit(1);
	/* Each later call has it, too. */
	if (cuMemRelease(1) != GPU_EILLEGAL_ADDRESS)
		_exit(2);
}

UNIT_TEST(call_of_a_number_is_refused)
{
	assert_int_equal(end_of(refused_by_number), 0);
	assert_int_equal(end_of(lost_by_number), 0);
}

static void strict_while_capturing(void)
{
	begin();
	(void)fake_capture(at.stream, 1);
	(void)cuStreamSynchronize(at.stream);
}

static void relaxed_while_capturing(void)
{
	int mode = GPU_CAPTURE_RELAXED;
	int status;

	begin();
	must(cuThreadExchangeStreamCaptureMode(&mode));
	(void)fake_capture(at.stream, 1);
	must(cuStreamIsCapturing(at.stream, &status));
	if (!status ||
	    cuStreamIsCapturing(NULL, &status) != GPU_ECAPTURE_IMPLICIT)
		_exit(1);
	end();
}

static void recorded_while_capturing(void)
{
	int mode = GPU_CAPTURE_RELAXED;
	struct gpu_event *event;

	begin();
	must(cuThreadExchangeStreamCaptureMode(&mode));
	must(cuEventCreate(&event, 0));
	(void)fake_capture(at.stream, 1);
	(void)cuEventRecord(event, at.stream);
}

UNIT_TEST(call_that_would_end_a_capture_ends_the_program)
{
	assert_int_equal(end_of(strict_while_capturing), WRONG);
	assert_int_equal(end_of(recorded_while_capturing), WRONG);
	assert_int_equal(end_of(relaxed_while_capturing), 0);
}

UNIT_TEST_IN_CHILD(new_memory_holds_what_was_there_before)
{
	uint8_t byte;

	begin();
	must(cuMemcpyDtoHAsync(&byte, at.address + BYTES - 1, 1, at.stream));
	must(cuStreamSynchronize(at.stream));
	if (byte != FAKE_FORMER_BYTE)
		_exit(1);
	end();
}

static int has_batch(const char *driver, int version)
{
	void *function;
	int status;

	(void)setenv("FAKE_CUDA_VERSION", driver, 1);
	return !cuGetProcAddress_v2("cuMemcpyBatchAsync", &function, version, 0,
				    &status);
}

UNIT_TEST(drivers_have_the_calls_of_their_version)
{
	void *function;
	int status;

	assert_false(has_batch("12000", 13000));
	assert_true(has_batch("12080", 12080));
	assert_false(has_batch("13000", 12000));
	assert_true(has_batch("13000", 13000));
	assert_int_equal(
		cuGetProcAddress_v2("cuNothing", &function, 13000, 0, &status),
		GPU_ENOT_FOUND);
	(void)unsetenv("FAKE_CUDA_VERSION");
}
