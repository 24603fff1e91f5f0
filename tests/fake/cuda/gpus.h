/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPUs of the fake driver's node. A GPU has a place on the node, which is one in
 * all processes, and a number among those that a process sees, as the driver gives it.
 *
 * Environment: FAKE_CUDA_GPUS ("0000 beef": a GPU for each word, which ends its UUID
 * "fake device 0000"; one GPU), FAKE_CUDA_P2P ("11 01": a word for each GPU, a 1 for
 * each GPU's memory that it reaches; all reach all), CUDA_VISIBLE_DEVICES (places, as
 * "1,0"; all, in order). FAKE_CUDA_POSIX_FD, _RDMA, _FLUSH and _ORDERING of cuda.h
 * may have a word for each GPU, too; the last word is that of all others.
 */
#ifndef KVPULL_TESTS_FAKE_CUDA_GPUS_H
#define KVPULL_TESTS_FAKE_CUDA_GPUS_H

#include <stdatomic.h>
#include <stdint.h>

#define FAKE_GPUS_MAX 8u
#define FAKE_ANY UINT32_MAX /* some GPU */
#define FAKE_ENO_DEVICE 100 /* CUDA_ERROR_NO_DEVICE */

/* A GPU that this process sees. The numbers order nothing: relaxed. */
struct fake_gpu {
	uint32_t place;
	_Atomic uint32_t retained; /* references to its primary context */
	_Atomic uint32_t retains;  /* and how often one was ever taken */
	/* The code that ended its context, of all later calls there. */
	_Atomic int sticky;
};

/* Find the GPUs that this process sees: GPU_OK, or FAKE_ENO_DEVICE. */
int fake_gpus_find(void);

/* The GPU of that place, by this process's number; FAKE_ANY: it is not seen here. */
uint32_t fake_gpu_at(uint32_t place);

/* 1: a GPU of place @from reaches the memory of the one of place @to. */
int fake_reaches(uint32_t from, uint32_t to);

/* The 16 bytes of its UUID. */
void fake_uuid(uint32_t place, uint8_t *uuid);

/* The environment's word @name for the GPU of that place, as a number. */
int fake_gpu_number(const char *name, uint32_t place, int otherwise);

/* For programs that look it up: how often the context of @device was retained. */
__attribute__((visibility("default"))) uint32_t fake_retains(int device);

/*
 * The code that ended the context of this process's GPU, or 0; of any one, with
 * FAKE_ANY. End it, or all of them.
 */
int fake_sticky(uint32_t gpu);
void fake_lose(uint32_t gpu, int code);

#endif
