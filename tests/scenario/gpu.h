/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU of the model engine's process, by the fake driver beside this program.
 * Work that an engine has queued comes late, as on a busy GPU.
 */
#ifndef KVPULL_TESTS_GPU_H
#define KVPULL_TESTS_GPU_H

#include "tools/ib_pull_engine.h"

/* After the fork; once a process. Fails the case where there is none. */
const struct engine_gpu *gpu_open(void);
/* Queue a load, whose bytes are there after a wait. */
void gpu_get_later(uint64_t address, void *bytes, uint64_t byte_count);
/* Wait until what was filled is there: before a hold that needs no ready. */
static inline void gpu_blocks_written(const struct engine *engine)
{
	if (engine->gpu)
		engine->gpu->wait();
}

/* The engine's stream captures a graph from here on, or no more. */
void gpu_capture(int is_capturing);
/* Before the process ends; the engine is closed. */
void gpu_close(void);

#endif /* KVPULL_TESTS_GPU_H */
