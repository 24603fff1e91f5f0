/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the parts of the probe: the driver's calls, this process's device,
 * memory and kernels, the other process, and lines of JSON. A call that fails
 * ends the process by a line that names it.
 */
#ifndef KVPULL_TESTS_GPU_PROBE_H
#define KVPULL_TESTS_GPU_PROBE_H

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/driver.h"
#include "tests/gpu/kernels.cu"

#define MIB ((uint64_t)1 << 20)

/* NOLINTNEXTLINE(bugprone-macro-parentheses): a name and a list. */
#define GPU_DECLARE(name, version, arguments) int(*name) arguments;
struct probe_calls {
	GPU_ALL_CALLS(GPU_DECLARE)
	gpu_batch_12_fn batch_12; /* NULL: the driver has none */
	gpu_batch_13_fn batch_13;
};

extern struct probe_calls gpu;

struct probe_self {
	int device;
	struct gpu_context *context;
	struct gpu_stream *stream;
	struct gpu_module *module;
	struct gpu_function *gather;
	struct gpu_function *stamp;
	struct gpu_function *compare;
	size_t granularity;
	uint32_t blocks; /* of a launch: two a multiprocessor */
};

extern struct probe_self self;

struct region {
	uint64_t address;
	size_t bytes;
};

/* The producer, as its consumer has it: memory that is mapped here. */
struct peer {
	int socket;
	int fd;
	uint64_t seed; /* of the stamps in all of its memory */
	struct region region;
};

/* ---- probe.c ---- */

__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format,
							  ...);

/* A word or a number that is no measurement. */
__attribute__((format(printf, 2, 3))) void fact(const char *name,
						const char *format, ...);

/* The median, the least and the most of @values, which are sorted by it. */
void measured(const char *name, const char *unit, double *values,
	      uint32_t count);

/* Say it, and end the process if it is not so. */
void must_be(const char *name, int is_so);

double now_us(void);
const char *name_of(int code);
void must(int code, const char *call);
#define MUST(call) must(gpu.call, #call)

void kernels_load(const char *path);
void launch(struct gpu_function *kernel, uint32_t blocks, void **arguments);

/* Write stamps of @seed into all of @region; wait. Return: the driver's code. */
int region_stamp(const struct region *region, uint64_t seed);

/* Reserve, map, grant @access. Return: the code of the first that is refused. */
int region_map(struct region *region, uint64_t handle, int access);
void region_unmap(const struct region *region);

/* Memory of this process; @fd, which may be NULL: its descriptor. */
void region_take(struct region *region, size_t bytes, int *fd);

/* ---- share.c ---- */

void serve(const char *path, uint64_t mib);
void share(const char *path, const char *ptx);
__attribute__((noreturn)) void store(char **words);
void peer_open(struct peer *peer, const char *path);
void peer_close(struct peer *peer);

/* Map it; with stores, where the driver refuses less. Return: the access. */
int peer_map_for_reads(struct peer *peer);

/* P writes new stamps into all of its memory. */
void peer_stamp(struct peer *peer, uint64_t seed);

/* ---- copy.c ---- */

void copy(const char *path, uint32_t repeats);

#endif
