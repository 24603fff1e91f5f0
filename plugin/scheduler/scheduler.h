/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler half: pure bookkeeping for both roles. No I/O, no thread;
 * time is an argument. plugin/abi/connector.c puts the ABI's calls and the clock
 * on top of it; tests/sim calls it with virtual time.
 *
 * Files: scheduler_request.c (requests, both roles' calls), scheduler_rank.c
 * (workers: ranks, steps, results), slot.c (P's holds: who reported), family.c
 * (parent -> ticket), text.c (ticket texts), outbox.c (the log of commands,
 * resends, acks), demand.c (D's tickets: users, states, who loads), offer.c
 * (the tokens that one offers), kept.c (what D keeps of one, and what P's engine
 * tells D's), scheduler_blocks.c (what an engine may name as blocks),
 * scheduler_change.c (weights and adapters that change).
 */
#ifndef KVPULL_PLUGIN_SCHEDULER_H
#define KVPULL_PLUGIN_SCHEDULER_H

#include "base/arena.h"
#include "plugin/bytes/handshake.h"
#include "plugin/bytes/step.h"
#include "plugin/config/config.h"
#include "plugin/counters/counters.h"

struct kvpull_scheduler;

/* A worker's step(). */
typedef int kvpull_step_fn(struct kvpull_worker *worker, const void *bytes,
			   size_t byte_count);

struct kvpull_scheduler_setup {
	const struct kvpull_log *log; /* copied */
	const struct kvpull_config *config;
	const struct kvpull_compat *compat;
	const char *engine_id;
	uint32_t rank_count; /* tp_size * pp_size */
	uint32_t pp_size;
	uint64_t incarnation; /* kvpull_half_incarnation(), not 0 */
	struct kvpull_error_detail *detail; /* why it failed; NULL: nobody asks */
};

/* 0, KVPULL_ENOMEM. The scheduler owns its arena. */
int KVPULL_MUST_CHECK
kvpull_scheduler_create(const struct kvpull_scheduler_setup *setup,
			struct kvpull_scheduler **scheduler);
void kvpull_scheduler_destroy(struct kvpull_scheduler *scheduler);

/* As the ABI's calls of the same names (connector.h), time added. */
int kvpull_scheduler_rank_info(struct kvpull_scheduler *scheduler,
			       const void *bytes, size_t byte_count,
			       uint64_t now_ns);
int kvpull_scheduler_ranks_missing(const struct kvpull_scheduler *scheduler);
int kvpull_scheduler_request_new(struct kvpull_scheduler *scheduler,
				 const struct kvpull_request *request,
				 uint64_t now_ns);
int kvpull_scheduler_matched_tokens(struct kvpull_scheduler *scheduler,
				    uint64_t key, uint32_t local_tokens,
				    uint32_t *tokens, uint64_t now_ns);
int kvpull_scheduler_match_failure(struct kvpull_scheduler *scheduler,
				   uint64_t key);
int kvpull_scheduler_allocated(struct kvpull_scheduler *scheduler,
			       const struct kvpull_allocation *allocation,
			       uint64_t now_ns);
int kvpull_scheduler_request_finished(struct kvpull_scheduler *scheduler,
				      struct kvpull_finish *finish,
				      uint64_t now_ns);
int kvpull_scheduler_request_rejected(struct kvpull_scheduler *scheduler,
				      const void *ticket, size_t ticket_bytes,
				      uint64_t now_ns);
int kvpull_scheduler_ticket_get(struct kvpull_scheduler *scheduler,
				uint64_t key, void *ticket, size_t capacity,
				size_t *ticket_bytes);
int kvpull_scheduler_payload_get(struct kvpull_scheduler *scheduler,
				 uint64_t key, void *payload, size_t capacity,
				 size_t *payload_bytes);
/* step: the function by which the worker is told. */
int kvpull_scheduler_worker_attach(struct kvpull_scheduler *scheduler,
				   struct kvpull_worker *worker,
				   kvpull_step_fn *step);
/*
 * Gives an attached worker all commands that it has not taken; else does
 * nothing.
 */
int kvpull_scheduler_say(struct kvpull_scheduler *scheduler, uint64_t now_ns);
int kvpull_scheduler_step_build(struct kvpull_scheduler *scheduler, void *bytes,
				size_t capacity, size_t *byte_count,
				uint64_t now_ns);
int kvpull_scheduler_result_take(struct kvpull_scheduler *scheduler,
				 const void *bytes, size_t byte_count,
				 uint64_t now_ns);
int kvpull_scheduler_has_pending(struct kvpull_scheduler *scheduler,
				 uint64_t now_ns);
int kvpull_scheduler_reset(struct kvpull_scheduler *scheduler, uint32_t flags,
			   uint64_t now_ns);
int kvpull_scheduler_changed(struct kvpull_scheduler *scheduler,
			     uint64_t adapter, uint64_t now_ns);
int kvpull_scheduler_loaded(struct kvpull_scheduler *scheduler, uint64_t key);
int kvpull_scheduler_drain(struct kvpull_scheduler *scheduler, uint32_t on);
void kvpull_scheduler_counts(struct kvpull_scheduler *scheduler,
			     union kvpull_scheduler_counts *counts);

#endif /* KVPULL_PLUGIN_SCHEDULER_H */
