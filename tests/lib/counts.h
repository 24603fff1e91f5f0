/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counters of an engine's halves by name, as an engine reads them: by
 * counters() of the ABI. A row that the library does not have is 0.
 */
#ifndef KVPULL_TESTS_LIB_COUNTS_H
#define KVPULL_TESTS_LIB_COUNTS_H

#include "plugin/counters/counters.h"

static inline void counts_take(uint64_t *values, uint32_t capacity, int count,
			       const struct kvpull_counter *all)
{
	uint32_t i;

	for (i = 0; i < capacity; i++)
		values[i] = (int)i < count ? all[i].value : 0;
}

static inline union kvpull_worker_counts
worker_counts(const struct kvpull_worker_ops *ops, struct kvpull_worker *worker)
{
	struct kvpull_counter all[KVPULL_WORKER_COUNTER_COUNT];
	union kvpull_worker_counts counts;

	counts_take(counts.values, KVPULL_WORKER_COUNTER_COUNT,
		    ops->counters(worker, all, KVPULL_WORKER_COUNTER_COUNT,
				  sizeof(all[0])),
		    all);
	return counts;
}

static inline union kvpull_scheduler_counts
scheduler_counts(const struct kvpull_scheduler_ops *ops,
		 struct kvpull_scheduler *scheduler)
{
	struct kvpull_counter all[KVPULL_SCHEDULER_COUNTER_COUNT];
	union kvpull_scheduler_counts counts;

	counts_take(counts.values, KVPULL_SCHEDULER_COUNTER_COUNT,
		    ops->counters(scheduler, all,
				  KVPULL_SCHEDULER_COUNTER_COUNT,
				  sizeof(all[0])),
		    all);
	return counts;
}

#endif /* KVPULL_TESTS_LIB_COUNTS_H */
