/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads that land in memory of the worker's GPU. They are posted once the GPU has
 * reached the engine's mark, so that nothing that it still does overwrites them.
 * When the entries are read, after the data, what came by each rail is flushed: by
 * the rail's loop (loop.h), or by the GPU's driver. A check ends after both. The
 * entries decide what it says, and a flush that fails makes it fail.
 *
 * A read that fails or is cancelled has no check. It is flushed before it ends, once
 * nothing of it is in flight: no byte of it is seen after that. One that ended well, and
 * whose check never comes, is flushed when its owner leaves it. A loop has KVPULL_VERBS_FLUSH_TIMES
 * times flush_ns for its answer. Where none comes it is broken, and a read that wrote by
 * the rail of a broken one ends so late, unless the device is left before.
 */
#ifndef KVPULL_VERBS_GPU_H
#define KVPULL_VERBS_GPU_H

#include "verbs/reads.h"

/*
 * Wait for the mark that the read comes behind. 1: there is nothing to wait for;
 * 0: reads->begun() follows; KVPULL_EINVAL: nobody said what the GPU
 * still does; KVPULL_EAGAIN.
 */
int KVPULL_MUST_CHECK kvpull_verbs_gpu_mark(struct kvpull_verbs_reads *reads,
					    struct kvpull_verbs_read *own);
/* The last of these work requests, posted by that end, writes there. */
void kvpull_verbs_gpu_wrote(struct kvpull_verbs_reads *reads,
			    struct kvpull_verbs_read *own,
			    const struct kvpull_verbs_end *end,
			    const struct ibv_send_wr *last);
/*
 * Flush what the read's data left. Return: own->flushes.open, and so often
 * reads->flushed() follows.
 */
uint32_t kvpull_verbs_gpu_flush(struct kvpull_verbs_reads *reads,
				struct kvpull_verbs_read *own);
/* The read is cancelled: its mark is; a flush is not. Both are waited for. */
void kvpull_verbs_gpu_forget(struct kvpull_verbs_reads *reads,
			     struct kvpull_verbs_read *own);

/* A part of a poll. Return: loops that broke since, by bit of their rails. */
uint32_t kvpull_verbs_gpu_run(struct kvpull_verbs_reads *reads);
/* When a loop's time is over; UINT64_MAX: nothing waits for one. */
uint64_t kvpull_verbs_gpu_due_ns(struct kvpull_verbs_reads *reads);
/* The rail's device is left: what waits for its loop fails. */
void kvpull_verbs_gpu_leave(struct kvpull_verbs_reads *reads, uint32_t device);
/* Must be called before a sleep; 1: look once more first. */
int KVPULL_MUST_CHECK kvpull_verbs_gpu_arm(struct kvpull_verbs_reads *reads);

#endif /* KVPULL_VERBS_GPU_H */
