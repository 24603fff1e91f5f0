/* SPDX-License-Identifier: Apache-2.0 */
/* A pool's handle as the benchmarks open one. */
#ifndef KVPULL_TESTS_BENCH_POOL_HANDLE_H
#define KVPULL_TESTS_BENCH_POOL_HANDLE_H

#include "kvpull/reader.h"
#include "tests/bench/bench.h"

/* NULL: it was refused, and a line of the library's says why. */
struct kvpull_reader *pool_handle_open(const struct bench *bench);
/* Until it is connected, or until_ns; 0 or the code of the peer. */
int pool_handle_connect(struct kvpull_reader *handle, const char *address,
			uint64_t until_ns, uint32_t *peer);

#endif /* KVPULL_TESTS_BENCH_POOL_HANDLE_H */
