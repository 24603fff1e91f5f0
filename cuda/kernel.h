/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of many rows by the kernel of gather.cu. Its strips and ids lie in
 * pinned memory of the host, in a slot for each copy that may be queued.
 */
#ifndef KVPULL_CUDA_KERNEL_H
#define KVPULL_CUDA_KERNEL_H

#include "base/device.h"
#include "cuda/gather.h"

struct gpu_stream;
struct kvpull_cuda;

/* Slots of copies, and the one of choice.h, where ways are compared. */
#define KVPULL_CUDA_SLOTS (KVPULL_DEVICE_SLOTS + 1u)

/* The device reads a slot as long as its copy is queued. */
struct kvpull_cuda_slot {
	struct gather_strip strips[KVPULL_DEVICE_STRIPS_MAX];
	uint32_t source_ids[KVPULL_DEVICE_ROWS_MAX];
	uint32_t target_ids[KVPULL_DEVICE_ROWS_MAX];
};

/*
 * Write a copy into a slot. Return: the units of *job, which lies in the slot; 0:
 * it is beyond a bound of base/device.h, or not made of its units.
 */
uint64_t KVPULL_MUST_CHECK
kvpull_cuda_plan(const struct kvpull_device_gather *gather,
		 struct kvpull_cuda_slot *slot, struct gather_job *job);

/*
 * Load the kernel, and take the slots; the context is current. 0 also where the
 * driver refuses that, with one line: the device has no kernel then.
 */
int KVPULL_MUST_CHECK kvpull_cuda_kernel_open(struct kvpull_cuda *cuda);
/* Give back all that was taken; the context is current, no copy is queued. */
void kvpull_cuda_kernel_close(struct kvpull_cuda *cuda);

/* Queue a job of kvpull_cuda_plan() there; the context is current. A driver's code. */
int KVPULL_MUST_CHECK kvpull_cuda_launch(struct kvpull_cuda *cuda,
					 struct gather_job job, uint64_t units,
					 struct gpu_stream *stream);

int kvpull_cuda_gather(struct kvpull_device *device,
		       const struct kvpull_device_gather *gather);

#endif /* KVPULL_CUDA_KERNEL_H */
