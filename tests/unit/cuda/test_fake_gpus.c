/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake driver has as many GPUs as its environment says, each with a context, a
 * memory, streams and kernels of its own, and a matrix of which reach which.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/gather.h"
#include "cuda/ptx.h"
#include "tests/fake/cuda/cuda.h"
#include "tests/lib/unit.h"
#include "tests/unit/cuda/world.h"

#define BYTES FAKE_GRANULARITY
#define GPUS 2
#define WRONG 99 /* fake_wrong() */
#define FILL 7

static struct {
	struct gpu_context *context;
	struct gpu_stream *stream;
	uint64_t handle;
	uint64_t address;
} gpus[GPUS];

static int end_with(const char *name, const char *value, void (*run)(void))
{
	int status;

	(void)setenv("FAKE_CUDA_GPUS", "0000 beef", 1);
	(void)setenv(name, value, 1);
	status = end_of(run);
	(void)unsetenv(name);
	(void)unsetenv("FAKE_CUDA_GPUS");
	return status;
}

static int access_set(uint64_t address, int device)
{
	const struct gpu_access access = {
		.location = { GPU_LOCATION_DEVICE, device },
		.flags = GPU_ACCESS_READ_WRITE,
	};

	return cuMemSetAccess(address, BYTES, &access, 1);
}

static void context_use(int gpu)
{
	struct gpu_context *before;

	MUST(!cuCtxPopCurrent(&before));
	MUST(!cuCtxPushCurrent(gpus[gpu].context));
}

/* Memory of a GPU, which it alone may touch; its context is current. */
static void memory_take(int gpu)
{
	const struct gpu_allocation allocation = {
		.type = GPU_ALLOCATION_PINNED,
		.handle_types = GPU_HANDLE_POSIX_FD,
		.location = { GPU_LOCATION_DEVICE, gpu },
	};

	MUST(!cuMemCreate(&gpus[gpu].handle, BYTES, &allocation, 0));
	MUST(!cuMemAddressReserve(&gpus[gpu].address, BYTES, 0, 0, 0));
	MUST(!cuMemMap(gpus[gpu].address, BYTES, 0, gpus[gpu].handle, 0));
	MUST(!access_set(gpus[gpu].address, gpu));
}

static void begin(void)
{
	struct gpu_context *last;
	int gpu;

	MUST(!cuInit(0));
	for (gpu = 0; gpu < GPUS; gpu++) {
		MUST(!cuDevicePrimaryCtxRetain(&gpus[gpu].context, gpu));
		MUST(!cuCtxPushCurrent(gpus[gpu].context));
		MUST(!cuStreamCreate(&gpus[gpu].stream,
				     GPU_STREAM_NON_BLOCKING));
		memory_take(gpu);
	}
	MUST(gpus[0].context != gpus[1].context);
	/* The last one that was pushed is the current one. */
	MUST(!cuCtxPopCurrent(&last) && last == gpus[1].context);
}

static void gpu_end(int gpu)
{
	MUST(!cuMemUnmap(gpus[gpu].address, BYTES));
	MUST(!cuMemAddressFree(gpus[gpu].address, BYTES));
	MUST(!cuMemRelease(gpus[gpu].handle));
	MUST(!cuStreamDestroy(gpus[gpu].stream));
	MUST(!cuDevicePrimaryCtxRelease(gpu));
}

static void end(void)
{
	struct gpu_context *last;
	int gpu;

	for (gpu = 0; gpu < GPUS; gpu++)
		gpu_end(gpu);
	MUST(!cuCtxPopCurrent(&last));
}

/* ---- which GPUs there are ---- */

/* The end of a GPU's UUID, which its environment has named. */
static int is_called(int device, const char *name)
{
	uint8_t uuid[16];

	return !cuDeviceGetUuid(uuid, device) &&
	       !memcmp(uuid, "fake device ", 12) && !memcmp(uuid + 12, name, 4);
}

static int posix_fd_of(int device)
{
	int value = -1;

	MUST(!cuDeviceGetAttribute(&value, GPU_ATTRIBUTE_POSIX_FD, device));
	return value;
}

static void counted(void)
{
	char pci[GPUS][16];
	int count;
	int device;

	MUST(!cuInit(0) && !cuDeviceGetCount(&count) && count == GPUS);
	MUST(is_called(0, "0000") && is_called(1, "beef"));
	MUST(!cuDeviceGet(&device, 1) && device == 1);
	MUST(cuDeviceGet(&device, 2) == GPU_EINVALID_DEVICE);
	MUST(cuDeviceGet(&device, -1) == GPU_EINVALID_DEVICE);
	MUST(!cuDeviceGetPCIBusId(pci[0], sizeof(pci[0]), 0));
	MUST(!cuDeviceGetPCIBusId(pci[1], sizeof(pci[1]), 1));
	MUST(strcmp(pci[0], pci[1]) != 0);
	MUST(posix_fd_of(0) == 1 && posix_fd_of(1) == 0);
}

UNIT_TEST(gpus_have_names_and_attributes_of_their_own)
{
	assert_int_equal(end_with("FAKE_CUDA_POSIX_FD", "1 0", counted), 0);
}

static void turned(void)
{
	int count;

	MUST(!cuInit(0) && !cuDeviceGetCount(&count) && count == GPUS);
	MUST(is_called(0, "beef") && is_called(1, "0000"));
}

static void hidden(void)
{
	int count;
	int device;

	MUST(!cuInit(0) && !cuDeviceGetCount(&count) && count == 1);
	MUST(is_called(0, "beef"));
	MUST(cuDeviceGet(&device, 1) == GPU_EINVALID_DEVICE);
}

static void none(void)
{
	MUST(cuInit(0) == FAKE_ENO_DEVICE);
}

UNIT_TEST(process_sees_the_gpus_that_its_environment_shows_it)
{
	const char name[] = "CUDA_VISIBLE_DEVICES";

	assert_int_equal(end_with(name, "1,0", turned), 0);
	assert_int_equal(end_with(name, "1", hidden), 0);
	assert_int_equal(end_with(name, "1,2,0", hidden), 0);
	assert_int_equal(end_with(name, "", none), 0);
	assert_int_equal(end_with(name, "-1", none), 0);
}

/* ---- contexts ---- */

static void apart(void)
{
	struct gpu_module *module;
	struct gpu_function *function;
	struct gpu_event *event;
	struct gather_job job = { 0 };
	uint64_t zero = 0;
	void *arguments[] = { &job, &zero, &zero };

	begin();
	MUST(!cuModuleLoadData(&module, kvpull_cuda_ptx));
	MUST(!cuModuleGetFunction(&function, module, "gather"));
	MUST(!cuEventCreate(&event, GPU_EVENT_DISABLE_TIMING));
	MUST(cuEventRecord(event, gpus[1].stream) == GPU_EINVALID_HANDLE);
	/* The other GPU's stream, and the other GPU's context. */
	MUST(cuLaunchKernel(function, 1, 1, 1, GATHER_LANES, 1, 1, 0,
			    gpus[1].stream, arguments,
			    NULL) == GPU_EINVALID_HANDLE);
	context_use(1);
	MUST(cuLaunchKernel(function, 1, 1, 1, GATHER_LANES, 1, 1, 0,
			    gpus[1].stream, arguments,
			    NULL) == GPU_EINVALID_HANDLE);
	MUST(!cuEventRecord(event, gpus[0].stream));
	/* Another GPU's work can wait for it. */
	MUST(!cuStreamWaitEvent(gpus[1].stream, event, 0));
	MUST(!cuStreamSynchronize(gpus[1].stream));
	MUST(!cuEventQuery(event) && !cuEventDestroy(event));
	MUST(!cuModuleUnload(module));
	MUST(fake_retains(0) == 1 && fake_retains(1) == 1);
	end();
}

UNIT_TEST(kernels_and_events_belong_to_the_context_that_made_them)
{
	assert_int_equal(end_with("FAKE_CUDA_VERSION", "13000", apart), 0);
}

static void context_left(void)
{
	struct gpu_context *context;

	MUST(!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 1));
}

UNIT_TEST(context_of_any_gpu_that_is_left_is_said)
{
	assert_int_equal(end_with("FAKE_CUDA_VERSION", "13000", context_left),
			 WRONG);
}

/* A GPU that touches memory of another, which was not given to it, is lost. */
static void touched(void)
{
	begin();
	MUST(!cuMemsetD8Async(gpus[1].address, FILL, BYTES, gpus[1].stream));
	MUST(!cuStreamSynchronize(gpus[1].stream));
	MUST(!cuMemcpyDtoDAsync(gpus[0].address, gpus[1].address, BYTES,
				gpus[0].stream));
	MUST(cuStreamSynchronize(gpus[0].stream) == GPU_EILLEGAL_ADDRESS);
	MUST(cuMemRelease(gpus[0].handle) == GPU_EILLEGAL_ADDRESS);
	context_use(1);
	MUST(!cuMemsetD8Async(gpus[1].address, FILL, BYTES, gpus[1].stream));
	MUST(!cuStreamSynchronize(gpus[1].stream));
	leave();
}

UNIT_TEST(gpu_without_access_is_lost_and_the_others_work_on)
{
	assert_int_equal(end_with("FAKE_CUDA_VERSION", "13000", touched), 0);
}

/* ---- which GPU reaches which ---- */

static uint8_t byte_of(int gpu)
{
	uint8_t byte = 0;

	MUST(!cuMemcpyDtoHAsync(&byte, gpus[gpu].address + BYTES - 1, 1,
				gpus[gpu].stream));
	MUST(!cuStreamSynchronize(gpus[gpu].stream));
	return byte;
}

/* Two digits: whether the first GPU reaches the second, and the second the first. */
static void reached(void)
{
	int first;
	int second;

	begin();
	first = access_set(gpus[1].address, 0);
	second = access_set(gpus[0].address, 1);
	MUST(!first || first == GPU_EINVALID_DEVICE);
	MUST(!second || second == GPU_EINVALID_DEVICE);
	end();
	exit(10 * !first + !second);
}

UNIT_TEST(gpu_reaches_what_the_matrix_says)
{
	assert_int_equal(end_with("FAKE_CUDA_P2P", "11 11", reached), 11);
	assert_int_equal(end_with("FAKE_CUDA_P2P", "11 01", reached), 10);
	assert_int_equal(end_with("FAKE_CUDA_P2P", "10 11", reached), 1);
	assert_int_equal(end_with("FAKE_CUDA_P2P", "10 01", reached), 0);
	assert_int_equal(end_with("FAKE_CUDA_VERSION", "13000", reached), 11);
}

static void copied(void)
{
	begin();
	MUST(!cuMemsetD8Async(gpus[1].address, FILL, BYTES, gpus[1].stream));
	MUST(!cuStreamSynchronize(gpus[1].stream));
	MUST(!access_set(gpus[1].address, 0));
	MUST(!cuMemcpyDtoDAsync(gpus[0].address, gpus[1].address, BYTES,
				gpus[0].stream));
	MUST(byte_of(0) == FILL);
	end();
}

UNIT_TEST(bytes_are_copied_from_one_gpu_to_another)
{
	assert_int_equal(end_with("FAKE_CUDA_P2P", "11 01", copied), 0);
}

/* Memory of another process, by its descriptor: of the node's second GPU. */
static int foreign_fd;

static void imported(void)
{
	struct gpu_context *context;
	uint64_t handle;
	int code;

	MUST(!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0));
	MUST(!cuCtxPushCurrent(context));
	code = cuMemImportFromShareableHandle(
		&handle, (void *)(intptr_t)foreign_fd, GPU_HANDLE_POSIX_FD);
	(void)close(foreign_fd);
	if (!code)
		MUST(!cuMemRelease(handle));
	MUST(!cuCtxPopCurrent(&context) && !cuDevicePrimaryCtxRelease(0));
	exit(code);
}

/* Another process exports it, says the number of its descriptor, and lives on. */
static void export_to(int socket)
{
	int fd;

	begin();
	MUST(!cuMemExportToShareableHandle(&fd, gpus[1].handle,
					   GPU_HANDLE_POSIX_FD, 0));
	MUST(write(socket, &fd, sizeof(fd)) == sizeof(fd));
	(void)pause();
}

UNIT_TEST(memory_of_a_gpu_that_is_not_seen_is_not_imported)
{
	char path[64];
	int ends[2];
	pid_t exporter;
	int fd;

	assert_int_equal(pipe(ends), 0);
	(void)setenv("FAKE_CUDA_GPUS", "0000 beef", 1);
	exporter = fork();
	assert_true(exporter >= 0);
	if (!exporter)
		export_to(ends[1]);
	assert_int_equal(read(ends[0], &fd, sizeof(fd)), sizeof(fd));
	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)exporter, fd);
	foreign_fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(foreign_fd >= 0);
	(void)kill(exporter, SIGKILL);
	assert_int_equal(waitpid(exporter, NULL, 0), exporter);
	assert_int_equal(end_with("CUDA_VISIBLE_DEVICES", "1,0", imported), 0);
	assert_int_equal(end_with("CUDA_VISIBLE_DEVICES", "0", imported),
			 GPU_EINVALID_DEVICE);
	(void)close(foreign_fd);
	(void)close(ends[0]);
	(void)close(ends[1]);
}
