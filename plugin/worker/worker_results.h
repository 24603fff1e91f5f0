/* SPDX-License-Identifier: Apache-2.0 */
/* Results for the scheduler half, kept until a step acknowledges them. */
#ifndef KVPULL_PLUGIN_WORKER_RESULTS_H
#define KVPULL_PLUGIN_WORKER_RESULTS_H

#include "plugin/handover/handover.h"

struct kvpull_worker_result {
	uint64_t key;
	uint64_t generation;
	uint64_t bytes;
	uint32_t kind; /* enum kvpull_result_kind */
	uint32_t slot;
	int32_t reason;
};

struct kvpull_worker_results {
	struct kvpull_worker_result *kept; /* [count_max] circular */
	const struct kvpull_log *log;
	uint64_t first;         /* sequence of the oldest kept */
	uint64_t next;          /* sequence of the next new one */
	uint64_t rank_sequence; /* of the last RANK; 0: none was said */
	uint32_t address_told;  /* the handover's count, with that RANK */
	uint32_t count_max;
};

void kvpull_results_init(struct kvpull_worker_results *results,
			 const struct kvpull_facts *facts,
			 struct kvpull_arena *arena);
/* Keep a result; room was checked by the caller. */
void kvpull_results_add(struct kvpull_worker_results *results,
			const struct kvpull_worker_result *result);
/*
 * Say who we are, where what the tickets to come need is not what was said last:
 * at first, and when an own address has changed.
 */
void kvpull_results_add_rank(struct kvpull_worker_results *results,
			     const struct kvpull_handover *handover);
/* The scheduler half has all up to this sequence. */
void kvpull_results_acknowledge(struct kvpull_worker_results *results,
				uint64_t sequence);

static inline uint32_t
kvpull_results_room(const struct kvpull_worker_results *results)
{
	return results->count_max - (uint32_t)(results->next - results->first);
}

static inline struct kvpull_worker_result *
kvpull_result_at(const struct kvpull_worker_results *results, uint64_t sequence)
{
	return &results->kept[sequence % results->count_max];
}

#endif /* KVPULL_PLUGIN_WORKER_RESULTS_H */
