/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/kernel.h"

#include <string.h>

#include "cuda/context.h"
#include "cuda/ptx.h"

/* Blocks of threads of a launch, a multiprocessor. */
#define BLOCKS_A_PROCESSOR 2u

/* ---- what the kernel is given ---- */

static int is_of_units(const struct kvpull_device_strip *strip)
{
	const uint64_t all = strip->source | strip->target |
			     strip->source_stride | strip->target_stride |
			     strip->row_bytes;

	return strip->row_bytes && strip->row_count &&
	       !(all % KVPULL_DEVICE_UNIT);
}

static uint64_t units_of(const struct kvpull_device_strip *strip)
{
	const uint64_t row_units =
		(strip->row_bytes + GATHER_UNIT_BYTES - 1) / GATHER_UNIT_BYTES;

	return row_units * strip->row_count;
}

uint64_t kvpull_cuda_plan(const struct kvpull_device_gather *gather,
			  struct kvpull_cuda_slot *slot, struct gather_job *job)
{
	uint64_t units = 0;
	uint32_t rows = 0;
	uint32_t at;

	if (gather->strip_count > KVPULL_DEVICE_STRIPS_MAX)
		return 0;
	for (at = 0; at < gather->strip_count; at++) {
		const struct kvpull_device_strip *const strip =
			&gather->strips[at];
		const size_t id_bytes = strip->row_count * sizeof(uint32_t);

		if (!is_of_units(strip) ||
		    strip->row_count > KVPULL_DEVICE_ROWS_MAX - rows)
			return 0;
		slot->strips[at] = (struct gather_strip){
			.source = strip->source,
			.target = strip->target,
			.source_stride = strip->source_stride,
			.target_stride = strip->target_stride,
			.row_bytes = strip->row_bytes,
			.unit_first = units,
			.id_first = rows,
		};
		memcpy(slot->source_ids + rows, strip->source_ids, id_bytes);
		memcpy(slot->target_ids + rows, strip->target_ids, id_bytes);
		units += units_of(strip);
		rows += strip->row_count;
	}
	*job = (struct gather_job){ .strips = slot->strips,
				    .source_ids = slot->source_ids,
				    .target_ids = slot->target_ids,
				    .strip_count = gather->strip_count };
	return units;
}

/* ---- copies ---- */

int kvpull_cuda_launch(struct kvpull_cuda *cuda, struct gather_job job,
		       uint64_t units, struct gpu_stream *stream)
{
	const uint32_t blocks =
		units < cuda->blocks ? (uint32_t)units : cuda->blocks;
	uint64_t first = 0;
	void *arguments[] = { &job, &first, &units };

	return cuda->calls.cuLaunchKernel(cuda->gather, blocks, 1, 1,
					  GATHER_LANES, 1, 1, 0, stream,
					  arguments, NULL);
}

int kvpull_cuda_gather(struct kvpull_device *device,
		       const struct kvpull_device_gather *gather)
{
	struct kvpull_cuda *const cuda = kvpull_cuda_of(device);
	struct gather_job job;
	uint64_t units;
	int code;
	int mode;

	if (kvpull_cuda_is_lost(cuda))
		return KVPULL_EDEVICE;
	if (!cuda->slots || gather->slot >= KVPULL_DEVICE_SLOTS)
		return KVPULL_EINVAL;
	units = kvpull_cuda_plan(gather, &cuda->slots[gather->slot], &job);
	if (!units)
		return KVPULL_EINVAL;
	code = kvpull_cuda_enter(cuda, &mode);
	if (code)
		return code;
	/* On the device's stream copies are made in their order. */
	code = kvpull_cuda_check(
		cuda, "cuLaunchKernel",
		kvpull_cuda_launch(cuda, job, units, cuda->stream),
		KVPULL_CUDA_COPY);
	return kvpull_cuda_leave(cuda, mode, code);
}

/* ---- open and close ---- */

/* A device without the kernel works on: 0, but where it is lost. */
static int refused(struct kvpull_cuda *cuda, const char *call, int code)
{
	if (kvpull_cuda_error(code, KVPULL_CUDA_CALL) == KVPULL_EDEVICE)
		return kvpull_cuda_check(cuda, call, code, KVPULL_CUDA_CALL);
	kvpull_info(
		cuda->device.log,
		"cuda: device %d copies by the driver's calls, since it has no kernel: %s: %d %s: small blocks are copied more slowly",
		cuda->index, call, code,
		kvpull_cuda_code_name(&cuda->calls, code));
	return 0;
}

static int slots_take(struct kvpull_cuda *cuda, const char **call)
{
	void *memory = NULL;
	const int code = cuda->calls.cuMemHostAlloc(
		&memory, KVPULL_CUDA_SLOTS * sizeof(*cuda->slots),
		GPU_HOST_PORTABLE);

	*call = "cuMemHostAlloc";
	if (!code)
		cuda->slots = memory;
	return code;
}

static int kernel_find(struct kvpull_cuda *cuda, const char **call)
{
	int processors = 0;
	int code;

	*call = "cuModuleGetFunction";
	code = cuda->calls.cuModuleGetFunction(&cuda->gather, cuda->module,
					       "gather");
	if (code)
		return code;
	*call = "cuDeviceGetAttribute";
	code = cuda->calls.cuDeviceGetAttribute(
		&processors, GPU_ATTRIBUTE_PROCESSORS, cuda->index);
	cuda->blocks = BLOCKS_A_PROCESSOR * (uint32_t)processors;
	return code ? code : slots_take(cuda, call);
}

void kvpull_cuda_kernel_close(struct kvpull_cuda *cuda)
{
	if (cuda->slots && !kvpull_cuda_is_lost(cuda)) {
		(void)KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL, cuMemFreeHost,
				      cuda->slots);
	}
	if (cuda->module && !kvpull_cuda_is_lost(cuda)) {
		(void)KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL, cuModuleUnload,
				      cuda->module);
	}
	cuda->slots = NULL;
	cuda->module = NULL;
}

int kvpull_cuda_kernel_open(struct kvpull_cuda *cuda)
{
	const char *call = "cuModuleLoadData";
	int code = cuda->calls.cuModuleLoadData(&cuda->module, kvpull_cuda_ptx);

	if (!code)
		code = kernel_find(cuda, &call);
	if (!code) {
		kvpull_info(
			cuda->device.log,
			"cuda: device %d copies from its own GPU's memory by a kernel of %u blocks",
			cuda->index, cuda->blocks);
		return 0;
	}
	/* The close gives back what was taken. */
	return refused(cuda, call, code);
}
