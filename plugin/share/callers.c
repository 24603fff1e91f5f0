/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers of our share. A caller sees nothing of the share before its hello was
 * checked: user, key, version, and by name every part of the namespace. Then it
 * gets read-only descriptors, and no further message goes either way.
 */
#include <sodium.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/params.h"
#include "plugin/share/share_state.h"

enum caller_state {
	FREE = 0,
	CHALLENGED,
	IN
};

static void caller_up(struct kvpull_reader *share,
		      const struct kvpull_route *route,
		      struct kvpull_share_caller *caller, uint32_t handle)
{
	struct kvpull_transport *transport = route->transport;

	kvpull_check(&share->log, caller->state == FREE);
	caller->state = CHALLENGED;
	caller->route = route;
	caller->handle = handle;
	randombytes_buf(caller->nonce, sizeof(caller->nonce));
	/* A failure shows as CALLER_DOWN. */
	(void)transport->ops->caller_send(
		transport, handle, share->message,
		kvpull_handshake_put_challenge(share->message,
					       KVPULL_MESSAGE_BYTES_MAX,
					       caller->nonce));
}

/* 0: the hello is whole and was made with our key, so it tells who calls. */
static int hello_read(struct kvpull_reader *share,
		      const struct kvpull_share_caller *caller,
		      const struct kvpull_event *event,
		      struct kvpull_refusal *refusal)
{
	const struct kvpull_config *config = &share->config;
	struct kvpull_reader_hello *hello = share->hello;
	int code;

	if (!kvpull_route_trusts(caller->route, config, event->uid)) {
		kvpull_refusal_numbers(refusal, KVPULL_EAUTH, "uid",
				       config->uids[0], event->uid);
		return KVPULL_EAUTH;
	}
	code = kvpull_share_get_hello(event->data, event->data_bytes,
				      kvpull_config_key(config), caller->nonce,
				      hello);
	if (code)
		kvpull_refusal_hello(refusal, code, &hello->sealed);
	return code;
}

static int hello_check(struct kvpull_reader *share,
		       struct kvpull_refusal *refusal)
{
	const struct kvpull_config *config = &share->config;
	int code;

	if (share->is_ended) {
		kvpull_refusal_texts(refusal, KVPULL_EPEER, "share", "ended",
				     "wanted");
		return KVPULL_EPEER;
	}
	code = kvpull_share_naming_compare(&share->naming,
					   &share->hello->naming, refusal);
	if (!code && share->callers_in >= config->consumers_max) {
		kvpull_refusal_numbers(refusal, KVPULL_EFULL, "consumers_max",
				       share->callers_in,
				       share->callers_in + 1);
		code = KVPULL_EFULL;
	}
	return code;
}

/* hello: NULL, it could not be read. */
static void caller_refuse(struct kvpull_reader *share,
			  struct kvpull_share_caller *caller,
			  const struct kvpull_reader_hello *hello,
			  const struct kvpull_refusal *refusal)
{
	struct kvpull_transport *transport = caller->route->transport;

	kvpull_warn(
		&share->log,
		"reader refused: %s is %s here and %s there (%s); it is %s pid %u",
		refusal->field, refusal->ours, refusal->theirs,
		kvpull_error_name(refusal->code),
		hello ? hello->engine_id : "of an unknown engine,",
		hello ? hello->pid : 0);
	caller->state = FREE;
	atomic_fetch_add_explicit(&share->refused, 1, memory_order_relaxed);
	transport->ops->refuse(
		transport, caller->handle, share->message,
		kvpull_handshake_put_refusal(
			share->message, KVPULL_MESSAGE_BYTES_MAX, refusal));
}

static void welcome_fill(struct kvpull_reader *share,
			 const struct kvpull_transport *transport)
{
	struct kvpull_share_welcome *welcome = share->welcome;

	memset(welcome, 0, sizeof(*welcome));
	welcome->sealed.version = share->config.wire_emit;
	welcome->incarnation = share->incarnation;
	welcome->chunk_bytes = share->chunk_bytes;
	welcome->guards_address = (uint64_t)(uintptr_t)share->guards.base;
	welcome->entry_count = share->terms.entry_count;
	welcome->chunk_count = share->terms.chunk_count;
	welcome->slot_count = share->terms.slot_count;
	welcome->pid = (uint32_t)share->pid;
	welcome->region_count = transport->ops->reads_files ?
					share->serve->region_count :
					kvpull_serve_memory_count(share->serve);
	memcpy(welcome->namespace_digest, share->namespace_digest.bytes,
	       sizeof(welcome->namespace_digest));
	memcpy(welcome->secret, share->terms.secret, sizeof(welcome->secret));
	memcpy(welcome->engine_id, share->engine_id,
	       sizeof(welcome->engine_id));
	kvpull_welcome_regions_put(welcome->regions, share->serve);
}

static void caller_admit(struct kvpull_reader *share,
			 struct kvpull_share_caller *caller, uint32_t uid)
{
	struct kvpull_transport *transport = caller->route->transport;
	struct kvpull_refusal refusal;
	struct kvpull_ring *ring; /* a reader has nothing to say by it */
	size_t byte_count;
	int code = KVPULL_EFULL;

	welcome_fill(share, transport);
	byte_count = kvpull_share_put_welcome(
		share->message, KVPULL_MESSAGE_BYTES_MAX, share->welcome,
		kvpull_config_key(&share->config), share->hello->nonce);
	if (byte_count)
		code = transport->ops->admit(transport, caller->handle,
					     share->message, byte_count, &ring);
	if (code) {
		kvpull_refusal_texts(&refusal, code, "welcome",
				     kvpull_error_name(code), "not come");
		caller_refuse(share, caller, share->hello, &refusal);
		return;
	}
	caller->state = IN;
	share->callers_in++;
	memcpy(caller->engine_id, share->hello->engine_id,
	       sizeof(caller->engine_id));
	kvpull_share_show_caller(share, (uint32_t)(caller - share->callers),
				 uid);
	kvpull_info(&share->log, "reader %s pid %u connected by %s",
		    caller->engine_id, share->hello->pid, transport->ops->name);
}

/* Once it is in, a reader can say only why it goes: whatever it says, it does. */
static void caller_leaves(struct kvpull_reader *share,
			  const struct kvpull_share_caller *caller,
			  const struct kvpull_event *event)
{
	struct kvpull_transport *transport = caller->route->transport;
	struct kvpull_refusal refusal;

	if (!kvpull_handshake_get_refusal(event->data, event->data_bytes,
					  &refusal))
		kvpull_warn(
			&share->log,
			"reader %s refused us: %s is %s there and %s here (%s)",
			caller->engine_id, refusal.field, refusal.ours,
			refusal.theirs, kvpull_error_name(refusal.code));
	else
		kvpull_warn(&share->log,
			    "reader %s is let go: it said what none says",
			    caller->engine_id);
	transport->ops->drop(transport, caller->handle);
}

static void caller_message(struct kvpull_reader *share,
			   struct kvpull_share_caller *caller,
			   const struct kvpull_event *event)
{
	struct kvpull_refusal refusal;

	if (caller->state == IN)
		caller_leaves(share, caller, event);
	if (caller->state != CHALLENGED)
		return;
	if (hello_read(share, caller, event, &refusal))
		caller_refuse(share, caller, NULL, &refusal);
	else if (hello_check(share, &refusal))
		caller_refuse(share, caller, share->hello, &refusal);
	else
		caller_admit(share, caller, event->uid);
}

static void caller_down(struct kvpull_reader *share,
			const struct kvpull_route *route,
			struct kvpull_share_caller *caller, uint32_t handle)
{
	if (caller->state == IN) {
		share->callers_in--;
		kvpull_share_show_caller_gone(
			share, (uint32_t)(caller - share->callers));
		kvpull_info(&share->log, "reader %s is gone",
			    caller->engine_id);
	}
	caller->state = FREE;
	route->transport->ops->forget(route->transport, handle);
}

void kvpull_share_caller_event(struct kvpull_reader *share,
			       const struct kvpull_route *route,
			       const struct kvpull_event *event)
{
	struct kvpull_share_caller *caller;

	kvpull_check(&share->log,
		     event->index < route->transport->caller_count_max);
	caller = &share->callers[route->caller_first + event->index];
	if (event->kind == KVPULL_EVENT_CALLER_UP)
		caller_up(share, route, caller, event->index);
	else if (event->kind == KVPULL_EVENT_CALLER_MESSAGE)
		caller_message(share, caller, event);
	else
		caller_down(share, route, caller, event->index);
}

void kvpull_share_callers_drop(struct kvpull_reader *share)
{
	uint32_t at;

	for (at = 0; share->callers_in && at < share->routes.caller_count;
	     at++) {
		const struct kvpull_share_caller *caller = &share->callers[at];

		if (caller->state == IN)
			caller->route->transport->ops->drop(
				caller->route->transport, caller->handle);
	}
}
