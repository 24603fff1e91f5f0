/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's calls as a table, filled from libcuda.so.1 when a device is
 * opened: a host without that library loads kvpull all the same.
 */
#ifndef KVPULL_CUDA_CALLS_H
#define KVPULL_CUDA_CALLS_H

#include "base/log.h"
#include "cuda/driver.h"

/* NOLINTNEXTLINE(bugprone-macro-parentheses): a name and a list. */
#define KVPULL_CUDA_MEMBER(name, version, arguments) int(*name) arguments;
struct kvpull_cuda_calls {
	GPU_CALLS(KVPULL_CUDA_MEMBER)
	/* The driver's version decides between the two; both NULL before 12.8. */
	gpu_batch_12_fn batch_12;
	gpu_batch_13_fn batch_13;
};

/*
 * Load the library, which stays loaded, and call cuInit(). 0, or
 * KVPULL_EUNSUPPORTED and one line of level warn that says what is missing.
 */
int KVPULL_MUST_CHECK kvpull_cuda_calls_load(struct kvpull_cuda_calls *calls,
					     const struct kvpull_log *log);

/* The driver's name of a code. */
const char *kvpull_cuda_code_name(const struct kvpull_cuda_calls *calls,
				  int code);

#endif /* KVPULL_CUDA_CALLS_H */
