/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/scenario/gpu.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/driver.h"
#include "tests/scenario/scenario.h"

/* Stores that are queued read these, so their bytes stay. */
#define STAGES 256u
#define STAGE_BYTES 65536u

/* clang-format off */
#define CALLS(X)                                                               \
	X(cuInit, (uint32_t flags))                                            \
	X(cuDevicePrimaryCtxRetain, (struct gpu_context **context, int device))\
	X(cuDevicePrimaryCtxRelease, (int device))                             \
	X(cuCtxPushCurrent, (struct gpu_context *context))                     \
	X(cuCtxPopCurrent, (struct gpu_context **context))                     \
	X(cuStreamCreate, (struct gpu_stream **stream, uint32_t flags))        \
	X(cuStreamDestroy, (struct gpu_stream *stream))                        \
	X(cuStreamSynchronize, (struct gpu_stream *stream))                    \
	X(cuMemcpyHtoDAsync, (uint64_t target, const void *source,             \
			      size_t bytes, struct gpu_stream *stream))        \
	X(cuMemcpyDtoHAsync, (void *target, uint64_t source, size_t bytes,     \
			      struct gpu_stream *stream))                      \
	X(fake_capture, (struct gpu_stream *stream, int is_capturing))
/* clang-format on */

/* NOLINTNEXTLINE(bugprone-macro-parentheses): a name and a list. */
#define MEMBER(name, arguments) int(*name) arguments;
static struct {
	CALLS(MEMBER)
	void (*fake_end)(void);
	struct gpu_stream *stream;
	uint8_t *stages; /* [STAGES][STAGE_BYTES] */
	uint32_t stage;  /* the next one */
	struct engine_gpu engine;
} gpu;

static void must(int code, const char *call)
{
	if (code)
		scenario_fail("%s: %d", call, code);
}
#define MUST(call) must(call, #call)

static void gpu_wait(void)
{
	MUST(gpu.cuStreamSynchronize(gpu.stream));
}

static void gpu_put(uint64_t address, const void *bytes, uint64_t byte_count)
{
	uint8_t *const stage = gpu.stages + (size_t)gpu.stage * STAGE_BYTES;

	if (byte_count > STAGE_BYTES)
		scenario_fail("a block is too large for this GPU");
	memcpy(stage, bytes, byte_count);
	MUST(gpu.cuMemcpyHtoDAsync(address, stage, byte_count, gpu.stream));
	gpu.stage = (gpu.stage + 1) % STAGES;
	if (!gpu.stage)
		gpu_wait();
}

void gpu_get_later(uint64_t address, void *bytes, uint64_t byte_count)
{
	MUST(gpu.cuMemcpyDtoHAsync(bytes, address, byte_count, gpu.stream));
}

static void gpu_get(uint64_t address, void *bytes, uint64_t byte_count)
{
	gpu_get_later(address, bytes, byte_count);
	gpu_wait();
}

void gpu_capture(int is_capturing)
{
	MUST(gpu.fake_capture(gpu.stream, is_capturing));
}

const struct engine_gpu *gpu_open(void)
{
	struct gpu_context *context;
	void *library;

	/* The library finds the driver that is loaded under its name. */
	scenario_load("cuda/libcuda.so.1", &library);
	/* ISO C has no cast from an object to a function pointer. */
#define LOOK_UP(name, arguments)                                               \
	*(void **)(void *)&gpu.name = dlsym(library, #name);                   \
	if (!gpu.name)                                                         \
		scenario_fail("the driver has no " #name);
	CALLS(LOOK_UP)
	*(void **)(void *)&gpu.fake_end = dlsym(library, "fake_end");
	if (!gpu.fake_end)
		scenario_fail("the driver has no fake_end");
	gpu.stages = malloc((size_t)STAGES * STAGE_BYTES);
	if (!gpu.stages)
		scenario_fail("out of memory");
	MUST(gpu.cuInit(0));
	MUST(gpu.cuDevicePrimaryCtxRetain(&context, 0));
	MUST(gpu.cuCtxPushCurrent(context));
	MUST(gpu.cuStreamCreate(&gpu.stream, GPU_STREAM_NON_BLOCKING));
	gpu.engine = (struct engine_gpu){
		.kind = KVPULL_DEVICE_CUDA,
		.stream = (uint64_t)(uintptr_t)gpu.stream,
		.marks = 1,
		.put = gpu_put,
		.get = gpu_get,
		.wait = gpu_wait,
	};
	return &gpu.engine;
}

void gpu_close(void)
{
	struct gpu_context *context;

	gpu_wait();
	MUST(gpu.cuStreamDestroy(gpu.stream));
	MUST(gpu.cuCtxPopCurrent(&context));
	MUST(gpu.cuDevicePrimaryCtxRelease(0));
	free(gpu.stages);
	/* The process ends by _exit(). */
	gpu.fake_end();
}
