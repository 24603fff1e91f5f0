/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks in processes of their own: the scheduler's process carries step and
 * result bytes to them over socket pairs, and each can be killed and started
 * again alone.
 */
#ifndef KVPULL_TESTS_RANKS_H
#define KVPULL_TESTS_RANKS_H

#include <sys/types.h>

#include "plugin/counters/counters.h"
#include "tools/ib_pull_engine.h"

struct ranks {
	struct engine_params params; /* of each; the texts are the caller's */
	struct kvpull_connector_ops ops; /* its workers are the processes */
	pid_t pids[ENGINE_RANKS_MAX];
	int sockets[ENGINE_RANKS_MAX]; /* -1: dead */
	int inherited; /* a descriptor that a rank must not keep */
	int has_gpu;   /* each opens one of its own */
};

/*
 * Start all; .ops is then for engine_open(). One struct ranks a process. 0 or an
 * error.
 */
int ranks_open(struct ranks *ranks, const struct engine_params *params,
	       int inherited, int has_gpu);
void ranks_close(struct ranks *ranks);
void ranks_kill(struct ranks *ranks, uint32_t rank);
int ranks_start(struct ranks *ranks, uint32_t rank);
/* As engine_block_fill(), in each rank's memory. */
void ranks_fill(struct ranks *ranks, uint32_t group, uint32_t id,
		uint64_t seed);
/* As engine_block_wrong(); a dead rank has none. */
uint64_t ranks_wrong(struct ranks *ranks, uint32_t group, uint32_t id,
		     uint64_t seed);
/* Stats of a live rank; all 0 for a dead one. */
void ranks_stats(struct ranks *ranks, uint32_t rank,
		 union kvpull_worker_counts *counts);

#endif /* KVPULL_TESTS_RANKS_H */
