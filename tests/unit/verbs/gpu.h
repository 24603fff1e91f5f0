/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU without a driver, behind the real device thread: its memory is that of the
 * process, its stream stands still behind a mark until the test reaches it. It
 * makes dmabufs, or refuses them, as the test says.
 */
#ifndef KVPULL_TESTS_UNIT_VERBS_GPU_H
#define KVPULL_TESTS_UNIT_VERBS_GPU_H

#include <stdatomic.h>

#include "base/device_thread.h"
#include "tests/unit/verbs/world.h"

/* A region begins so far into its memory. */
#define GPU_OFFSET 4096u

struct gpu {
	struct kvpull_device device; /* first: the seam's */
	int dmabuf_code;             /* of dmabuf(); 0: it makes one */
	uint32_t dmabuf_count;       /* that were made */
	struct kvpull_device_memory dmabuf_memory; /* of the last one */
	int wait_code;                             /* of a wait for a mark */
	int flush_code;                            /* of flush() */
	_Atomic uint32_t flush_count;
	_Atomic uint32_t looks; /* at events that were not reached */
};

extern struct gpu gpu;

/* Opens the GPU and its thread: world.gpu. */
void gpu_open(void);
void gpu_close(void);
/* A mark of the engine's that the GPU has not reached: for a read's `after`. */
uint64_t gpu_mark(void);
/* The GPU has reached it. */
void gpu_reach(void);
/* As the route that has the GPU's thread does. */
void gpu_poll(void);
/* Both sides run until this is not 0. */
void gpu_await(const uint32_t *count);
/* All regions of what the side serves are memory of the GPU, each of its own. */
void gpu_fill(struct world_side *side);
/* The side, which is open, serves such memory: what serve() says. */
int gpu_serve_open(struct world_side *side);
/* The side is opened again, and serves such memory: what serve() says. */
int gpu_serve(struct world_side *side);

/* A loop's time in milliseconds: KVPULL_VERBS_FLUSH_TIMES of flush_ns. */
#define GPU_FLUSH_MS 1000u

/* P has memory of the host; D has a GPU, and is connected. gpu_down() ends both. */
void gpu_begin(uint32_t rails);
int gpu_down(void **state);
/* world.read begins, and ends well. */
void gpu_read_is_done(void);
/* gpu_begin(), and world.read has ended well. */
void gpu_begin_read(uint32_t rails);
/* The check has ended, with this code. */
void gpu_check_is(int code);
/* A check begins, and is that after so many steps. */
void gpu_checks(uint32_t steps, int code);
/* Each block is at its own number. */
int gpu_bytes_are_right(void);

#endif /* KVPULL_TESTS_UNIT_VERBS_GPU_H */
