/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of CUDA's driver that the tests of device memory make beside those
 * of the library, which cuda/driver.h declares. tests/gpu/layout.cu holds both
 * to cuda.h.
 */
#ifndef KVPULL_TESTS_GPU_DRIVER_H
#define KVPULL_TESTS_GPU_DRIVER_H

#include "cuda/driver.h"

#define GPU_TEST_CALLS(X)                                                      \
	X(cuDeviceGetName, 2000, (char *name, int bytes, int device))          \
	X(cuDeviceTotalMem, 3020, (size_t * bytes, int device))                \
	X(cuEventSynchronize, 2000, (struct gpu_event * event))                \
	X(cuEventElapsedTime, 2000,                                            \
	  (float *ms, struct gpu_event *from, struct gpu_event *to))           \
	X(cuMemcpyDtoHAsync, 3020,                                             \
	  (void *target, uint64_t source, size_t bytes,                        \
	   struct gpu_stream *stream))                                         \
	X(cuMemcpyHtoDAsync, 3020,                                             \
	  (uint64_t target, const void *source, size_t bytes,                  \
	   struct gpu_stream *stream))

#define GPU_ALL_CALLS(X)                                                       \
	GPU_CALLS(X)                                                           \
	GPU_TEST_CALLS(X)

#endif
