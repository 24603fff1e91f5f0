/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of the peer's memory are copied to memory that is taken for it, on a stream
 * of its own and from a slot of its own: copies of pulls may be queued meanwhile,
 * and wait for the engine as long as they like. The bytes are nobody's.
 */
#include "cuda/choice.h"

#include <string.h>

#include "base/clock.h"
#include "base/device_name.h"
#include "base/least.h"
#include "cuda/context.h"
#include "cuda/kernel.h"
#include "cuda/memory.h"
#include "cuda/work.h"

#define ROUNDS 2u /* of each way; the fastest counts */
#define COPY_BYTES_MAX ((uint64_t)2 << 20)

static const uint32_t lengths[KVPULL_CUDA_LENGTHS] = { 4096, 16384, 65536 };

uint32_t
kvpull_cuda_choose(const struct kvpull_cuda_times times[KVPULL_CUDA_LENGTHS])
{
	uint32_t at = 0;

	while (at < KVPULL_CUDA_LENGTHS &&
	       times[at].kernel_ns <= times[at].calls_ns)
		at++;
	if (at == KVPULL_CUDA_LENGTHS)
		return UINT32_MAX;
	return at ? lengths[at - 1] : 0;
}

uint32_t
kvpull_cuda_rate(const struct kvpull_cuda_times times[KVPULL_CUDA_LENGTHS],
		 uint64_t bytes)
{
	uint64_t least_ns = UINT64_MAX;
	uint64_t rate;
	uint32_t at;

	for (at = 0; at < KVPULL_CUDA_LENGTHS; at++)
		least_ns = kvpull_least(
			least_ns,
			kvpull_least(times[at].kernel_ns, times[at].calls_ns));
	/* A clock that stood still measured 0 ns. */
	rate = bytes * 1000 / (least_ns ? least_ns : 1);
	if (rate > INT32_MAX)
		return INT32_MAX;
	return rate ? (uint32_t)rate : 1;
}

/* ---- copies that are timed ---- */

struct comparison {
	struct kvpull_cuda *cuda;
	struct gpu_stream *stream;
	const struct kvpull_device_memory *source;
	struct kvpull_device_memory target;
	uint32_t row_bytes;
	uint32_t row_count;
	const char *call; /* the last one of the driver's */
};

typedef int copy_fn(struct comparison *comparison);

static int by_kernel(struct comparison *comparison)
{
	struct kvpull_cuda *const cuda = comparison->cuda;
	const struct kvpull_device_strip strip = {
		.source = comparison->source->address,
		.target = comparison->target.address,
		.source_stride = comparison->row_bytes,
		.target_stride = comparison->row_bytes,
		.row_bytes = comparison->row_bytes,
		.source_ids = cuda->choice->ids,
		.target_ids = cuda->choice->ids,
		.row_count = comparison->row_count,
	};
	const struct kvpull_device_gather gather = { .strips = &strip,
						     .strip_count = 1 };
	struct gather_job job;
	const uint64_t units = kvpull_cuda_plan(
		&gather, &cuda->slots[KVPULL_DEVICE_SLOTS], &job);

	comparison->call = "cuLaunchKernel";
	return kvpull_cuda_launch(cuda, job, units, comparison->stream);
}

static int by_calls(struct comparison *comparison)
{
	struct kvpull_cuda_choice *const choice = comparison->cuda->choice;
	const struct kvpull_device_pieces pieces = {
		.targets = choice->targets,
		.sources = choice->sources,
		.bytes = choice->bytes,
		.count = comparison->row_count,
	};

	comparison->call = comparison->cuda->device.has_batch ?
				   "cuMemcpyBatchAsync" :
				   "cuMemcpyDtoDAsync";
	return kvpull_cuda_pieces_queue(comparison->cuda, &pieces,
					comparison->stream);
}

/* The rows in an order that is neither's own. */
static void rows_make(struct comparison *comparison, uint32_t row_bytes)
{
	struct kvpull_cuda_choice *const choice = comparison->cuda->choice;
	const uint64_t bytes = comparison->target.bytes;
	uint32_t at;

	comparison->row_bytes = row_bytes;
	comparison->row_count = (uint32_t)(bytes / row_bytes);
	for (at = 0; at < comparison->row_count; at++) {
		/* 7 and a power of two have no common factor. */
		const uint32_t id = at * 7 % comparison->row_count;
		const uint64_t offset = (uint64_t)id * row_bytes;

		choice->ids[at] = id;
		choice->targets[at] = comparison->target.address + offset;
		choice->sources[at] = comparison->source->address + offset;
		choice->bytes[at] = row_bytes;
	}
}

/* The shortest of some rounds: 0, or the driver's code. */
static int copy_time(struct comparison *comparison, copy_fn *copy,
		     uint64_t *took_ns)
{
	uint32_t round;

	*took_ns = UINT64_MAX;
	for (round = 0; round < ROUNDS; round++) {
		const uint64_t began_ns = kvpull_clock_ns();
		int code = copy(comparison);

		if (code)
			return code;
		comparison->call = "cuStreamSynchronize";
		code = comparison->cuda->calls.cuStreamSynchronize(
			comparison->stream);
		if (code)
			return code;
		*took_ns = kvpull_least(*took_ns, kvpull_clock_ns() - began_ns);
	}
	return 0;
}

static int lengths_time(struct comparison *comparison,
			struct kvpull_cuda_times times[KVPULL_CUDA_LENGTHS])
{
	uint32_t at;
	int code = 0;

	for (at = 0; at < KVPULL_CUDA_LENGTHS && !code; at++) {
		rows_make(comparison, lengths[at]);
		code = copy_time(comparison, by_kernel, &times[at].kernel_ns);
		if (!code)
			code = copy_time(comparison, by_calls,
					 &times[at].calls_ns);
	}
	return code;
}

/* ---- the choice ---- */

static void
choice_say(const struct kvpull_cuda *cuda, const uint8_t *uuid,
	   uint32_t gathers,
	   const struct kvpull_cuda_times times[KVPULL_CUDA_LENGTHS])
{
	char name[KVPULL_DEVICE_NAME_BYTES];

	kvpull_device_name(name, uuid);
	kvpull_info(
		cuda->device.log,
		"cuda: device %d copies rows of up to %u bytes from %s by the kernel, others by the driver's calls: 2 MiB by rows of 4, 16, 64 KiB took %llu, %llu, %llu us by the kernel, %llu, %llu, %llu us by calls",
		cuda->index, gathers, name,
		(unsigned long long)times[0].kernel_ns / 1000,
		(unsigned long long)times[1].kernel_ns / 1000,
		(unsigned long long)times[2].kernel_ns / 1000,
		(unsigned long long)times[0].calls_ns / 1000,
		(unsigned long long)times[1].calls_ns / 1000,
		(unsigned long long)times[2].calls_ns / 1000);
}

/* The ways are not compared: 0, by the driver's calls; or KVPULL_EDEVICE. */
static int refused(struct kvpull_cuda *cuda, const char *call, int code)
{
	/* A copy that cannot be waited for may end at any time. */
	if (!strcmp(call, "cuStreamSynchronize"))
		return kvpull_cuda_check(cuda, call, code, KVPULL_CUDA_DEVICE);
	if (kvpull_cuda_error(code, KVPULL_CUDA_CALL) == KVPULL_EDEVICE)
		return kvpull_cuda_check(cuda, call, code, KVPULL_CUDA_CALL);
	kvpull_info(
		cuda->device.log,
		"cuda: device %d copies from another GPU by the driver's calls, since these were not compared with the kernel: %s: %d %s",
		cuda->index, call, code,
		kvpull_cuda_code_name(&cuda->calls, code));
	return 0;
}

/* Parts of a copy that was refused may be queued: its memory is there until then. */
static int copies_end(const struct comparison *comparison)
{
	struct kvpull_cuda *const cuda = comparison->cuda;
	return KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_DEVICE, cuStreamSynchronize,
			       comparison->stream);
}

/* The context is current. *gpu is set, also on an error that ends nothing. */
static int compare(struct comparison *comparison, struct kvpull_cuda_gpu *gpu)
{
	struct kvpull_cuda *const cuda = comparison->cuda;
	struct kvpull_cuda_times times[KVPULL_CUDA_LENGTHS];
	int code = lengths_time(comparison, times);

	if (code) {
		code = refused(cuda, comparison->call, code);
		return code ? code : copies_end(comparison);
	}
	gpu->gathers = kvpull_cuda_choose(times);
	gpu->bytes_per_us = kvpull_cuda_rate(times, comparison->target.bytes);
	choice_say(cuda, gpu->uuid, gpu->gathers, times);
	return 0;
}

/* A stream, memory to copy to, and none of both afterwards. */
static int compared(struct kvpull_cuda *cuda,
		    const struct kvpull_device_memory *source,
		    struct kvpull_cuda_gpu *gpu)
{
	struct comparison comparison = {
		.cuda = cuda,
		.source = source,
		.target = { .bytes = kvpull_least(source->bytes,
						  COPY_BYTES_MAX) },
	};
	int code = cuda->calls.cuStreamCreate(&comparison.stream,
					      GPU_STREAM_NON_BLOCKING);

	if (code)
		return refused(cuda, "cuStreamCreate", code);
	code = kvpull_cuda_own_take(cuda, &comparison.target);
	if (!code) {
		/* An error of this one is the loss of the device. */
		(void)compare(&comparison, gpu);
		kvpull_cuda_unmap(&cuda->device, &comparison.target);
	}
	if (kvpull_cuda_is_lost(cuda))
		return KVPULL_EDEVICE;
	code = cuda->calls.cuStreamDestroy(comparison.stream);
	return kvpull_cuda_check(cuda, "cuStreamDestroy", code,
				 KVPULL_CUDA_CALL) == KVPULL_EDEVICE ?
		       KVPULL_EDEVICE :
		       0;
}

/* Memory of this GPU's is copied as it was when its first was mapped. */
static void as_chosen(struct kvpull_device_memory *memory,
		      const struct kvpull_cuda_gpu *gpu)
{
	memory->gathers = gpu->gathers;
	memory->bytes_per_us = gpu->bytes_per_us;
}

static int gpu_compared(struct kvpull_cuda *cuda, const uint8_t *uuid,
			struct kvpull_device_memory *source)
{
	struct kvpull_cuda_choice *const choice = cuda->choice;
	struct kvpull_cuda_gpu gpu = { 0 };
	uint32_t at;
	int mode;
	int code;

	for (at = 0; at < choice->gpu_count && at < KVPULL_CUDA_GPUS_MAX; at++)
		if (!memcmp(choice->gpus[at].uuid, uuid,
			    KVPULL_DEVICE_UUID_BYTES)) {
			as_chosen(source, &choice->gpus[at]);
			return 0;
		}
	code = kvpull_cuda_enter(cuda, &mode);
	if (code)
		return code;
	memcpy(gpu.uuid, uuid, sizeof(gpu.uuid));
	code = compared(cuda, source, &gpu);
	if (kvpull_cuda_leave(cuda, mode, code))
		return code;
	choice->gpus[choice->gpu_count++ % KVPULL_CUDA_GPUS_MAX] = gpu;
	as_chosen(source, &gpu);
	return 0;
}

int kvpull_cuda_import_chosen(struct kvpull_device *device, int fd,
			      uint64_t bytes, const uint8_t *uuid,
			      struct kvpull_device_memory *memory)
{
	struct kvpull_cuda *const cuda = kvpull_cuda_of(device);
	struct kvpull_device_memory taken;
	int code = kvpull_cuda_import_fd(device, fd, bytes, uuid, &taken);

	/* A lost device keeps what it has mapped. */
	if (!code && !taken.gathers && cuda->slots)
		code = gpu_compared(cuda, uuid, &taken);
	if (!code)
		*memory = taken;
	return code;
}
