/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process with a device: the library on one side, and on the other an engine
 * that calls the same driver by itself. The driver is tests/fake/cuda, loaded as
 * the libcuda.so.1 of this process. Each case is a child, whose exit status the
 * fake makes 99 if anything is left.
 */
#ifndef KVPULL_TESTS_UNIT_CUDA_WORLD_H
#define KVPULL_TESTS_UNIT_CUDA_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "cuda/context.h"
#include "cuda/cuda.h"
#include "tests/lib/lines.h"

/* In a child of a test: cmocka's own would go on in it. */
#define MUST(condition)                                                        \
	do {                                                                   \
		if (!(condition)) {                                            \
			(void)printf("%s:%d: %s; last line: %s\n", __FILE__,   \
				     __LINE__, #condition, lines.bad);         \
			(void)fflush(stdout);                                  \
			_exit(1);                                              \
		}                                                              \
	} while (0)

/* Calls of the driver that the engine makes and the library does not. */
/* clang-format off */
#define WORLD_CALLS(X)                                                         \
	X(cuMemcpyHtoDAsync, (uint64_t target, const void *source,             \
			      size_t bytes, struct gpu_stream *stream))        \
	X(cuMemcpyDtoHAsync, (void *target, uint64_t source, size_t bytes,     \
			      struct gpu_stream *stream))                      \
	X(fake_capture, (struct gpu_stream *stream, int is_capturing))         \
	X(fake_run, (struct gpu_stream *stream, void (*kernel)(void *context), \
		     void *context))
/* clang-format on */

/* NOLINTNEXTLINE(bugprone-macro-parentheses): a name and a list. */
#define WORLD_MEMBER(name, arguments) int(*name) arguments;

struct world {
	struct kvpull_arena arena;
	struct kvpull_log log;
	struct kvpull_device *device;
	const struct kvpull_device_ops *ops;
	const struct kvpull_cuda_calls *calls; /* of the device */
	struct gpu_stream *stream;             /* the engine's own */
	uint64_t (*fake_calls)(void);
	uint64_t (*fake_launches)(void);
	uint64_t (*fake_waits)(void);
	uint32_t (*fake_retains)(int device);
	WORLD_CALLS(WORLD_MEMBER)
	uint32_t fds; /* that were open before */
};

extern struct world world;

/*
 * Run a program in a child: its exit status, or minus the signal that ends it. A
 * program that ends by _exit(0) gave all back before, too, or this is LEFT_OVER.
 */
#define LEFT_OVER 98
int end_of(void (*run)(void));

/* A program ends well, with all that it has: its device is lost, or hangs. */
__attribute__((noreturn)) void leave(void);

/* The fake is this process's libcuda.so.1. */
void fake_load(void);

/* A log of level info and worse ones, to `lines`, which is empty again. */
void log_begin(void);
int device_open(void);

/* All of the above, and the engine's context, current, and stream. */
void world_open(void);
/* Likewise, with memory of so many bytes. */
struct kvpull_device_memory world_open_with(uint64_t bytes);
void world_close(void);
/* Likewise, and that memory is unmapped before. */
void world_close_with(struct kvpull_device_memory *memory);

/* The engine's own work, to its end. */
void bytes_put(uint64_t address, const uint8_t *bytes, size_t count);
void bytes_get(uint64_t address, uint8_t *bytes, size_t count);

struct kvpull_device_memory memory_of(uint64_t bytes);
struct kvpull_device_event *event_of_device(void);

/* Record the event behind all copies, and ask until it is reached. */
int copies_end(struct kvpull_device_event *event);

/* Copies a single piece; a single row, by the kernel. */
int copy_one(uint64_t target, uint64_t source, size_t bytes);
int gather_one(uint64_t target, uint64_t source, size_t bytes);

#endif
