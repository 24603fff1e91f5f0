/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, progress side, producer's role: callers and their handshake.
 *
 * A caller sees nothing of our memory before its hello was checked: uid, key,
 * versions, model, the incarnation it wants. Then it gets read-only
 * descriptors and a ring of its own, and the engine's thread is told.
 */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include <sodium.h>

#include "base/params.h"
#include "plugin/route/route.h"
#include "plugin/worker/worker.h"

static void refusal_set_text(struct kvpull_refusal *refusal, int32_t code,
			     const char *field, const char *ours,
			     const char *theirs)
{
	memset(refusal, 0, sizeof(*refusal));
	refusal->code = code;
	(void)snprintf(refusal->field, sizeof(refusal->field), "%s", field);
	(void)snprintf(refusal->ours, sizeof(refusal->ours), "%s", ours);
	(void)snprintf(refusal->theirs, sizeof(refusal->theirs), "%s", theirs);
}

static void refusal_set(struct kvpull_refusal *refusal, int32_t code,
			const char *field, uint64_t ours, uint64_t theirs)
{
	char our_text[24];
	char their_text[24];

	(void)snprintf(our_text, sizeof(our_text), "%" PRIu64, ours);
	(void)snprintf(their_text, sizeof(their_text), "%" PRIu64, theirs);
	refusal_set_text(refusal, code, field, our_text, their_text);
}

static void caller_up(struct kvpull_worker *worker, uint32_t index,
		      uint32_t uid)
{
	struct kvpull_transport *transport = worker->progress.transport;
	struct kvpull_caller *caller = &worker->callers[index];
	size_t byte_count;

	kvpull_check(&worker->log, caller->state == KVPULL_CALLER_FREE);
	caller->state = KVPULL_CALLER_CHALLENGED;
	caller->is_remote = uid == KVPULL_ROUTE_UID_NONE;
	randombytes_buf(caller->nonce, sizeof(caller->nonce));
	byte_count = kvpull_handshake_put_challenge(worker->progress.message,
						    KVPULL_MESSAGE_BYTES_MAX,
						    caller->nonce);
	/* A failure shows as CALLER_DOWN. */
	(void)transport->ops->caller_send(transport, index,
					  worker->progress.message, byte_count);
}

int kvpull_uid_is_allowed(const struct kvpull_worker *worker, uint32_t uid)
{
	uint32_t at;

	/* Over the network nobody vouches for a uid: networks and key decide. */
	if (uid == KVPULL_ROUTE_UID_NONE)
		return 1;
	for (at = 0; at < worker->config.uid_count; at++)
		if (worker->config.uids[at] == uid)
			return 1;
	return 0;
}

/*
 * A process has one connection: when it calls again, the end of the one before
 * was lost on the way. It may call once more when that is worked off.
 */
static void predecessor_drop(struct kvpull_worker *worker, uint32_t index,
			     const struct kvpull_hello *hello)
{
	struct kvpull_transport *transport = worker->progress.transport;
	const struct kvpull_caller *caller = &worker->callers[index];

	if (caller->state == KVPULL_CALLER_IN &&
	    (caller->incarnation ^ hello->incarnation) >> KVPULL_SELF_BITS == 0)
		transport->ops->drop(transport, index);
}

/* One connection for each consumer rank at a time; N is the same for all. */
static int place_check(struct kvpull_worker *worker,
		       const struct kvpull_hello *hello,
		       struct kvpull_refusal *refusal)
{
	uint32_t index;

	for (index = 0; index < worker->config.consumers_max; index++) {
		const struct kvpull_caller *caller = &worker->callers[index];

		if (caller->state < KVPULL_CALLER_IN ||
		    caller->instance_id != hello->instance)
			continue;
		if (caller->rank_count != hello->rank_count) {
			refusal_set(refusal, KVPULL_EREJECTED, "rank_count",
				    caller->rank_count, hello->rank_count);
			return KVPULL_EREJECTED;
		}
		if (caller->rank == hello->rank) {
			refusal_set(refusal, KVPULL_EAGAIN, "rank",
				    caller->rank, hello->rank);
			predecessor_drop(worker, index, hello);
			return KVPULL_EAGAIN;
		}
	}
	return 0;
}

static int hello_check(struct kvpull_worker *worker, uint32_t index,
		       const struct kvpull_event *event,
		       struct kvpull_refusal *refusal)
{
	struct kvpull_hello *hello = worker->progress.hello;
	const uint8_t *key = worker->config.key_set ? worker->config.key : NULL;
	int code;

	if (!kvpull_uid_is_allowed(worker, event->uid)) {
		refusal_set(refusal, KVPULL_EAUTH, "uid",
			    worker->config.uids[0], event->uid);
		return KVPULL_EAUTH;
	}
	code = kvpull_handshake_get_hello(event->data, event->data_bytes, key,
					  worker->callers[index].nonce, hello);
	if (code) {
		refusal_set(refusal, code,
			    code == KVPULL_EAUTH    ? "key_file" :
			    code == KVPULL_EVERSION ? "wire version" :
						      "hello",
			    KVPULL_WIRE_VERSION, 0);
		return code;
	}
	if (hello->wanted != worker->incarnation) {
		refusal_set(refusal, KVPULL_EPEER, "incarnation",
			    worker->incarnation, hello->wanted);
		return KVPULL_EPEER;
	}
	if (atomic_load_explicit(&worker->closing, memory_order_relaxed)) {
		refusal_set_text(refusal, KVPULL_EPEER, "state", "closing",
				 "open");
		return KVPULL_EPEER;
	}
	code = kvpull_compat_compare(&worker->compat, &hello->compat, refusal);
	return code ? code : place_check(worker, hello, refusal);
}

static void welcome_fill(struct kvpull_worker *worker)
{
	struct kvpull_welcome *welcome = worker->progress.welcome;
	uint32_t index;

	memset(welcome, 0, sizeof(*welcome));
	welcome->incarnation = worker->incarnation;
	welcome->lease_ns = worker->config.lease_ms * KVPULL_NS_PER_MS;
	welcome->slot_count = worker->config.max_holds;
	welcome->tp_rank = worker->tp_rank;
	welcome->tp_size = worker->tp_size;
	welcome->pid = (uint32_t)getpid();
	welcome->entries_address = (uint64_t)(uintptr_t)worker->entries.base;
	welcome->region_count = worker->serve.region_count;
	welcome->cache_count = worker->cache_count;
	memcpy(welcome->engine_id, worker->engine_id,
	       sizeof(welcome->engine_id));
	for (index = 0; index < worker->serve.region_count; index++) {
		const struct kvpull_region_view *view =
			&worker->serve.regions[index];

		welcome->regions[index].kind = view->kind;
		welcome->regions[index].address =
			view->kind == KVPULL_REGION_FILE ?
				view->fd_offset :
				(uint64_t)(uintptr_t)view->base;
		welcome->regions[index].bytes = view->bytes;
	}
	memcpy(welcome->caches, worker->caches,
	       worker->cache_count * sizeof(*worker->caches));
}

static void caller_refuse(struct kvpull_worker *worker, uint32_t index,
			  const struct kvpull_refusal *refusal)
{
	struct kvpull_transport *transport = worker->progress.transport;
	size_t byte_count;

	kvpull_warn(&worker->log,
		    "consumer refused: %s is %s here and %s there (%s)",
		    refusal->field, refusal->ours, refusal->theirs,
		    kvpull_error_name(refusal->code));
	kvpull_count_add(&worker->progress.counts.consumers_refused, 1);
	byte_count = kvpull_handshake_put_refusal(
		worker->progress.message, KVPULL_MESSAGE_BYTES_MAX, refusal);
	worker->callers[index].state = KVPULL_CALLER_FREE;
	transport->ops->refuse(transport, index, worker->progress.message,
			       byte_count);
}

static void caller_admit(struct kvpull_worker *worker, uint32_t index)
{
	struct kvpull_transport *transport = worker->progress.transport;
	struct kvpull_caller *caller = &worker->callers[index];
	const struct kvpull_hello *hello = worker->progress.hello;
	const uint8_t *key = worker->config.key_set ? worker->config.key : NULL;
	struct kvpull_refusal refusal;
	size_t byte_count;
	int code;

	welcome_fill(worker);
	byte_count = kvpull_handshake_put_welcome(
		worker->progress.message, KVPULL_MESSAGE_BYTES_MAX,
		worker->progress.welcome, key, hello->nonce);
	code = byte_count ? transport->ops->admit(transport, index,
						  worker->progress.message,
						  byte_count, &caller->ring) :
			    KVPULL_EFULL;
	if (code) {
		refusal_set(&refusal, code, "admission", 0, 0);
		caller_refuse(worker, index, &refusal);
		return;
	}
	caller->state = KVPULL_CALLER_IN;
	caller->instance_id = hello->instance;
	caller->incarnation = hello->incarnation;
	caller->rank = hello->rank;
	caller->rank_count = hello->rank_count;
	memcpy(caller->engine_id, hello->engine_id, sizeof(caller->engine_id));
	kvpull_info(&worker->log,
		    "consumer rank %u of %u of %s connected by %s",
		    caller->rank, caller->rank_count, caller->engine_id,
		    transport->ops->name);
	kvpull_progress_tell(worker, KVPULL_FROM_CALLER_UP, index);
}

static void caller_message(struct kvpull_worker *worker,
			   const struct kvpull_event *event)
{
	struct kvpull_caller *caller = &worker->callers[event->index];
	struct kvpull_refusal refusal;

	/* Once admitted, a consumer has nothing more to say here. */
	if (caller->state != KVPULL_CALLER_CHALLENGED)
		return;
	if (hello_check(worker, event->index, event, &refusal))
		caller_refuse(worker, event->index, &refusal);
	else
		caller_admit(worker, event->index);
}

static void caller_down(struct kvpull_worker *worker, uint32_t index)
{
	struct kvpull_transport *transport = worker->progress.transport;
	struct kvpull_caller *caller = &worker->callers[index];

	if (caller->state == KVPULL_CALLER_IN) {
		kvpull_info(&worker->log, "consumer rank %u of %s is gone",
			    caller->rank, caller->engine_id);
		caller->state = KVPULL_CALLER_OUT;
		kvpull_progress_tell(worker, KVPULL_FROM_CALLER_DOWN, index);
		return;
	}
	caller->state = KVPULL_CALLER_FREE;
	transport->ops->forget(transport, index);
}

void kvpull_serve_event(struct kvpull_worker *worker,
			const struct kvpull_event *event)
{
	kvpull_check(&worker->log, event->index < worker->config.consumers_max);
	if (event->kind == KVPULL_EVENT_CALLER_UP)
		caller_up(worker, event->index, event->uid);
	else if (event->kind == KVPULL_EVENT_CALLER_MESSAGE)
		caller_message(worker, event);
	else
		caller_down(worker, event->index);
}
