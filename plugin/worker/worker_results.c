/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/worker/worker_results.h"

void kvpull_results_init(struct kvpull_worker_results *results,
			 const struct kvpull_facts *facts,
			 struct kvpull_arena *arena)
{
	const struct kvpull_config *config = &facts->config;

	results->count_max = config->max_holds + 2 * config->pulls_max +
			     config->requests_max + 1; /* RANK */
	KVPULL_ARENA_TAKE(arena, results->kept, results->count_max);
	results->log = &facts->log;
	results->first = results->next = 1;
}

void kvpull_results_add(struct kvpull_worker_results *results,
			const struct kvpull_worker_result *result)
{
	kvpull_check(results->log, kvpull_results_room(results) > 0);
	*kvpull_result_at(results, results->next++) = *result;
}

void kvpull_results_add_rank(struct kvpull_worker_results *results,
			     const struct kvpull_handover *handover)
{
	const struct kvpull_worker_result rank = { .kind = KVPULL_RESULT_RANK };
	const uint32_t count = atomic_load_explicit(&handover->address_count,
						    memory_order_relaxed);

	/* At most one RANK result waits: there is room for one. */
	if (count == results->address_told ||
	    results->rank_sequence >= results->first)
		return;
	results->address_told = count;
	results->rank_sequence = results->next;
	kvpull_results_add(results, &rank);
}

void kvpull_results_acknowledge(struct kvpull_worker_results *results,
				uint64_t sequence)
{
	if (sequence >= results->first && sequence < results->next)
		results->first = sequence + 1;
}
