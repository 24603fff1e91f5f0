/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, engine's thread: what steps and polls share, slots to hand over
 * and results to keep.
 */
#include "plugin/worker/worker.h"

#include <sys/eventfd.h>

void kvpull_worker_tell(struct kvpull_worker *worker, uint32_t kind,
			uint32_t index, uint64_t serial)
{
	if (kvpull_handover_push(&worker->end, kind, index, serial))
		(void)eventfd_write(worker->handover.progress_wake_fd, 1);
}

uint32_t kvpull_worker_result_room(const struct kvpull_worker *worker)
{
	return worker->result_count_max -
	       (uint32_t)(worker->result_next - worker->result_first);
}

void kvpull_worker_result_add(struct kvpull_worker *worker,
			      const struct kvpull_worker_result *result)
{
	kvpull_check(&worker->facts.log, kvpull_worker_result_room(worker) > 0);
	worker->results[worker->result_next % worker->result_count_max] =
		*result;
	worker->result_next++;
}

/* Slots of the last poll's failures: their blocks need not be told any more. */
void kvpull_worker_failed_free(struct kvpull_worker *worker)
{
	while (worker->pull_failed != KVPULL_NONE) {
		const uint32_t index = worker->pull_failed;

		worker->pull_failed = worker->pull_notes[index].next;
		kvpull_index_pool_give(&worker->pull_pool, index);
	}
}
