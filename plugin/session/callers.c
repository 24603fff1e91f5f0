/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/session/callers.h"

#include <stdatomic.h>
#include <stdio.h>

#include <sodium.h>

#include "base/clock.h"
#include "base/params.h"

#define REFUSALS_SAID_MAX 8u /* a second; ranks of one engine, at the least */

static void challenge(struct kvpull_callers *callers,
		      const struct kvpull_route *route,
		      struct kvpull_caller *caller, uint32_t handle)
{
	struct kvpull_transport *transport = route->transport;

	kvpull_check(callers->log, caller->state == KVPULL_CALLER_FREE);
	caller->state = KVPULL_CALLER_CHALLENGED;
	caller->route = route;
	caller->handle = handle;
	caller->name[0] = '\0';
	randombytes_buf(caller->nonce, sizeof(caller->nonce));
	/* A failure shows as CALLER_DOWN. */
	(void)transport->ops->caller_send(
		transport, handle, callers->message,
		kvpull_handshake_put_challenge(callers->message,
					       KVPULL_MESSAGE_BYTES_MAX,
					       caller->nonce));
}

/*
 * Rate limit: whoever may call may say nonsense, and call again, as often. A
 * caller that waits for room calls again for long.
 */
static int may_say(struct kvpull_callers *callers,
		   const struct kvpull_refusal *refusal, uint64_t now_ns)
{
	if (refusal->code == KVPULL_EFULL)
		return kvpull_second_passed(&callers->full_said_ns, now_ns);
	if (now_ns >= callers->said_ns) {
		callers->said_ns = now_ns + KVPULL_NS_PER_S;
		callers->said = 0;
	}
	return callers->said++ < REFUSALS_SAID_MAX;
}

/* refusal NULL: the caller gets no answer. */
static void turn_away(const struct kvpull_callers *callers,
		      struct kvpull_caller *caller,
		      const struct kvpull_refusal *refusal)
{
	struct kvpull_transport *transport = caller->route->transport;
	size_t byte_count = 0;

	if (refusal)
		byte_count = kvpull_handshake_put_refusal(
			callers->message, KVPULL_MESSAGE_BYTES_MAX, refusal);
	caller->state = KVPULL_CALLER_FREE;
	transport->ops->refuse(transport, caller->handle, callers->message,
			       byte_count);
}

/* uid: the caller's, as the kernel says; KVPULL_UID_NONE: another machine's. */
static void refusal_log(const struct kvpull_callers *callers,
			const struct kvpull_caller *caller, uint32_t uid,
			const struct kvpull_refusal *refusal)
{
	char user[32] = "";

	if (uid != KVPULL_UID_NONE)
		(void)snprintf(user, sizeof(user), " of user %u", uid);
	kvpull_warn(callers->log,
		    "%s refused: %s is %s here and %s there (%s); it is %s%s",
		    callers->owner->role, refusal->field, refusal->ours,
		    refusal->theirs, kvpull_error_name(refusal->code),
		    caller->name[0] ? caller->name : "of an unknown engine",
		    user);
}

static void refuse(struct kvpull_callers *callers, struct kvpull_caller *caller,
		   uint32_t uid, const struct kvpull_refusal *refusal,
		   uint64_t now_ns)
{
	if (may_say(callers, refusal, now_ns))
		refusal_log(callers, caller, uid, refusal);
	atomic_fetch_add_explicit(callers->refused, 1, memory_order_relaxed);
	turn_away(callers, caller, refusal);
}

/* 0 and *ring; else *refusal says what was missing. */
static int admit(const struct kvpull_callers *callers,
		 const struct kvpull_caller *caller, struct kvpull_ring **ring,
		 struct kvpull_refusal *refusal)
{
	struct kvpull_transport *transport = caller->route->transport;
	const size_t byte_count = callers->owner->welcome_put(
		callers->own, caller, callers->message);
	int code = KVPULL_EFULL;

	if (byte_count)
		code = transport->ops->admit(transport, caller->handle,
					     callers->message, byte_count,
					     ring);
	if (code == KVPULL_EAGAIN)
		kvpull_refusal_texts(refusal, code,
				     "room for descriptors (ulimit -n)",
				     "used up", "needed");
	else if (code)
		kvpull_refusal_texts(refusal, code, "welcome",
				     kvpull_error_name(code), "not come");
	return code;
}

static int hello_check(const struct kvpull_callers *callers,
		       struct kvpull_caller *caller,
		       const struct kvpull_event *event,
		       struct kvpull_refusal *refusal)
{
	if (kvpull_route_trusts(caller->route, callers->config, event->uid))
		return callers->owner->hello_check(callers->own, caller, event,
						   refusal);
	kvpull_refusal_numbers(refusal, KVPULL_EAUTH, "uid",
			       callers->config->uids[0], event->uid);
	return KVPULL_EAUTH;
}

static void hello_take(struct kvpull_callers *callers,
		       struct kvpull_caller *caller,
		       const struct kvpull_event *event, uint64_t now_ns)
{
	struct kvpull_refusal refusal;
	struct kvpull_ring *ring;
	int code = hello_check(callers, caller, event, &refusal);

	if (!code)
		code = admit(callers, caller, &ring, &refusal);
	if (code == KVPULL_CALLER_COMES_EARLY) {
		turn_away(callers, caller, &refusal);
	} else if (code) {
		refuse(callers, caller, event->uid, &refusal, now_ns);
	} else {
		caller->state = KVPULL_CALLER_IN;
		callers->in_count++;
		callers->owner->came(callers->own, caller, ring, event->uid);
	}
}

/* An admitted caller is closed for any message. */
static void leave(const struct kvpull_callers *callers,
		  const struct kvpull_caller *caller,
		  const struct kvpull_event *event)
{
	struct kvpull_refusal refusal;

	if (!kvpull_handshake_get_refusal(event->data, event->data_bytes,
					  &refusal))
		kvpull_warn(callers->log,
			    "%s %s refused us: %s is %s there and %s here (%s)",
			    callers->owner->role, caller->name, refusal.field,
			    refusal.ours, refusal.theirs,
			    kvpull_error_name(refusal.code));
	else
		kvpull_warn(
			callers->log,
			"%s %s is closed: after its welcome it sent a message that is no refusal",
			callers->owner->role, caller->name);
	kvpull_callers_drop(callers, kvpull_caller_index(callers, caller));
}

static void message(struct kvpull_callers *callers,
		    struct kvpull_caller *caller,
		    const struct kvpull_event *event, uint64_t now_ns)
{
	if (caller->state == KVPULL_CALLER_IN) {
		leave(callers, caller, event);
	} else if (caller->state == KVPULL_CALLER_CHALLENGED &&
		   kvpull_is_give(event->data, event->data_bytes)) {
		/* The close tells the caller that its message was taken. */
		kvpull_give_sink_take(&callers->given, event->data,
				      event->data_bytes);
		turn_away(callers, caller, NULL);
	} else if (caller->state == KVPULL_CALLER_CHALLENGED) {
		hello_take(callers, caller, event, now_ns);
	}
}

static void down(struct kvpull_callers *callers, struct kvpull_caller *caller)
{
	if (caller->state == KVPULL_CALLER_IN) {
		caller->state = KVPULL_CALLER_OUT;
		callers->in_count--;
		if (callers->owner->went(callers->own, caller))
			return;
	}
	/* A refused caller, which is FREE, may end before it is over, too. */
	kvpull_callers_forget(callers, kvpull_caller_index(callers, caller));
}

void kvpull_callers_event(struct kvpull_callers *callers,
			  const struct kvpull_route *route,
			  const struct kvpull_event *event, uint64_t now_ns)
{
	struct kvpull_caller *caller;

	kvpull_check(callers->log,
		     event->index < route->transport->caller_count_max);
	caller = &callers->all[route->caller_first + event->index];
	if (event->kind == KVPULL_EVENT_CALLER_UP)
		challenge(callers, route, caller, event->index);
	else if (event->kind == KVPULL_EVENT_CALLER_MESSAGE)
		message(callers, caller, event, now_ns);
	else
		down(callers, caller);
}

void kvpull_callers_drop(const struct kvpull_callers *callers, uint32_t index)
{
	const struct kvpull_caller *caller = &callers->all[index];
	struct kvpull_transport *transport = caller->route->transport;

	if (caller->state == KVPULL_CALLER_IN)
		transport->ops->drop(transport, caller->handle);
}

void kvpull_callers_forget(struct kvpull_callers *callers, uint32_t index)
{
	struct kvpull_caller *caller = &callers->all[index];
	struct kvpull_transport *transport = caller->route->transport;

	caller->state = KVPULL_CALLER_FREE;
	transport->ops->forget(transport, caller->handle);
}
