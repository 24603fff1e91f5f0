/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The faster way to copy from another GPU's memory, by the kernel or by the driver's
 * own calls: compared once a GPU, when memory of it is first mapped.
 */
#ifndef KVPULL_CUDA_CHOICE_H
#define KVPULL_CUDA_CHOICE_H

#include "base/device.h"

/* Lengths of rows that are compared, and rows of a copy. */
#define KVPULL_CUDA_LENGTHS 3u
#define KVPULL_CUDA_CHOICE_ROWS 512u
/* GPUs whose choice is remembered; one more takes the place of the oldest. */
#define KVPULL_CUDA_GPUS_MAX 16u

/* How long a copy of one length took. */
struct kvpull_cuda_times {
	uint64_t kernel_ns;
	uint64_t calls_ns;
};

struct kvpull_cuda_gpu {
	uint8_t uuid[KVPULL_DEVICE_UUID_BYTES];
	uint32_t gathers;
	uint32_t bytes_per_us; /* see struct kvpull_device_memory */
};

/* Belongs to the device thread; all bytes are zero at first. */
struct kvpull_cuda_choice {
	struct kvpull_cuda_gpu gpus[KVPULL_CUDA_GPUS_MAX];
	uint32_t gpu_count; /* free-running */
	uint32_t ids[KVPULL_CUDA_CHOICE_ROWS];
	uint64_t targets[KVPULL_CUDA_CHOICE_ROWS];
	uint64_t sources[KVPULL_CUDA_CHOICE_ROWS];
	size_t bytes[KVPULL_CUDA_CHOICE_ROWS];
};

/*
 * Rows of up to so many bytes go by the kernel: it was not slower for any length
 * up to there (pure). UINT32_MAX: all rows; 0: none.
 */
uint32_t
kvpull_cuda_choose(const struct kvpull_cuda_times times[KVPULL_CUDA_LENGTHS]);

/*
 * How fast the fastest of these copies was, each of so many bytes (pure): at least
 * 1 byte a us, at most INT32_MAX.
 */
uint32_t
kvpull_cuda_rate(const struct kvpull_cuda_times times[KVPULL_CUDA_LENGTHS],
		 uint64_t bytes);

/* import_fd() of base/device.h: memory of another GPU has its choice. */
int kvpull_cuda_import_chosen(struct kvpull_device *device, int fd,
			      uint64_t bytes, const uint8_t *uuid,
			      struct kvpull_device_memory *memory);

#endif /* KVPULL_CUDA_CHOICE_H */
