/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Producer's side: who calls at our socket, and what an admitted one gets.
 *
 * state     entered by                  left by
 * FREE      forget, refuse              accept -> OPEN
 * OPEN      accept: CALLER_UP           admit -> ADMITTED; refuse -> FREE;
 *                                       end, drop, connect_ns -> LOST;
 *                                       its place is needed -> LOST
 * ADMITTED  admit: ring and doorbell    end, drop -> LOST
 * LOST      the end was seen            report: CALLER_DOWN -> DOWN
 * DOWN      reported; a ring is kept    forget -> FREE
 *
 * So each caller of a CALLER_UP that is not refused gets one CALLER_DOWN.
 *
 * Places for callers that wait to be let in (OPEN) are not those of consumers:
 * there are KVPULL_CALLERS_MORE beside callers_max, of which
 * KVPULL_GATE_WAITING_MAX may wait; the others are for ends not told yet.
 */
#ifndef KVPULL_SHM_CALLER_H
#define KVPULL_SHM_CALLER_H

#include "shm/state.h"

/* callers->wait, ->folder and ->shortage are set. */
int KVPULL_MUST_CHECK
kvpull_shm_callers_init(struct kvpull_shm_callers *callers,
			const struct kvpull_shm_params *params,
			struct kvpull_arena *arena);
void kvpull_shm_callers_fini(struct kvpull_shm_callers *callers);

/* Begin to listen. 0, KVPULL_EINVAL, KVPULL_EUNSUPPORTED, KVPULL_EDEVICE. */
int KVPULL_MUST_CHECK
kvpull_shm_callers_serve(struct kvpull_transport *transport,
			 const struct kvpull_serve *serve);

/* The parts of a poll, in this order. */
/* accept_max: events that the listener may use. */
void kvpull_shm_callers_accept(struct kvpull_shm_callers *callers,
			       struct kvpull_shm_batch *batch,
			       uint32_t accept_max);
/* A token of one caller is ready; at most one event. */
void kvpull_shm_callers_ready(struct kvpull_shm_callers *callers,
			      const struct kvpull_wait_token *token,
			      struct kvpull_shm_batch *batch);
/*
 * Ends callers that were not admitted in time; wakes a listener that rested, or
 * lost its name.
 */
void kvpull_shm_callers_expire(struct kvpull_shm_callers *callers,
			       uint64_t now_ns);
/* When the next one of them is due; UINT64_MAX: none. */
uint64_t kvpull_shm_callers_due_ns(const struct kvpull_shm_callers *callers);
void kvpull_shm_callers_report(struct kvpull_shm_callers *callers,
			       struct kvpull_shm_batch *batch);

/* These are calls of struct kvpull_transport_ops. */
int KVPULL_MUST_CHECK kvpull_shm_caller_send(struct kvpull_transport *transport,
					     uint32_t index, const void *bytes,
					     size_t byte_count);
int KVPULL_MUST_CHECK
kvpull_shm_caller_admit(struct kvpull_transport *transport, uint32_t index,
			const void *welcome, size_t welcome_bytes,
			struct kvpull_ring **ring);
void kvpull_shm_caller_refuse(struct kvpull_transport *transport,
			      uint32_t index, const void *refusal,
			      size_t refusal_bytes);
void kvpull_shm_caller_drop(struct kvpull_transport *transport, uint32_t index);
void kvpull_shm_caller_forget(struct kvpull_transport *transport,
			      uint32_t index);

#endif /* KVPULL_SHM_CALLER_H */
