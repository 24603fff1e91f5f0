/* SPDX-License-Identifier: Apache-2.0 */
/* The worker half: one rank's memory, holds, step bytes and reports. */
#ifndef KVPULL_PLUGIN_WORKER_H
#define KVPULL_PLUGIN_WORKER_H

#include "plugin/worker/worker_state.h"

/* Inputs of open(); the simulation brings its own transport and clock. */
struct kvpull_worker_setup {
	const struct kvpull_open_params *params;
	const struct kvpull_config *config;
	struct kvpull_log log;
	uint64_t incarnation; /* 0: drawn */
	/* As in struct kvpull_progress_params: the at-th of its routes. */
	struct kvpull_transport *(*transport)(void *context,
					      const struct kvpull_log *log,
					      uint32_t at);
	void *transport_context;
	uint64_t (*now_ns)(void *context); /* NULL: CLOCK_MONOTONIC */
	void *now_context;
};

int KVPULL_MUST_CHECK
kvpull_worker_create(const struct kvpull_worker_setup *setup,
		     struct kvpull_worker **worker,
		     struct kvpull_error_detail *detail);
/* Refuses unsupported parameters by name; also for the scheduler half. */
int KVPULL_MUST_CHECK
kvpull_worker_params_check(const struct kvpull_open_params *params,
			   struct kvpull_error_detail *detail);
/* Pipeline stages of the engine. */
static inline uint32_t
kvpull_worker_stages(const struct kvpull_open_params *params)
{
	return params->pp_size ? params->pp_size : 1;
}
void kvpull_worker_destroy(struct kvpull_worker *worker);
int kvpull_worker_peers(struct kvpull_worker *worker,
			struct kvpull_peer_info *peers, uint32_t capacity,
			size_t peer_bytes);

#endif /* KVPULL_PLUGIN_WORKER_H */
