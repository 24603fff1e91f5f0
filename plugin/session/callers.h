/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callers: processes that connect to us to read our memory, from the challenge
 * to the end of their connection. One thread: the one that polls the routes.
 *
 * state       left by
 * FREE        CALLER_UP: the challenge is sent -> CHALLENGED
 * CHALLENGED  hello -> IN, or refused -> FREE; tickets given back -> FREE
 * IN          any message: dropped; CALLER_DOWN -> OUT or FREE
 * OUT         forget() -> FREE
 *
 * A caller sees nothing of our memory before its hello was judged: first its
 * user, here, then all else, by the owner. Once admitted it can only say why it
 * goes.
 */
#ifndef KVPULL_PLUGIN_SESSION_CALLERS_H
#define KVPULL_PLUGIN_SESSION_CALLERS_H

#include "plugin/bytes/handshake.h"
#include "plugin/route/route.h"

/* hello_check(): nobody is at fault, and the caller's next call succeeds. */
#define KVPULL_CALLER_COMES_EARLY 1

enum kvpull_caller_state {
	KVPULL_CALLER_FREE = 0,
	KVPULL_CALLER_CHALLENGED,
	KVPULL_CALLER_IN,
	KVPULL_CALLER_OUT /* down; its owner still drains its ring */
};

/* An engine's id, its rank and its pid. */
#define KVPULL_CALLER_NAME_BYTES (KVPULL_ENGINE_ID_BYTES_MAX + 32)

struct kvpull_caller {
	enum kvpull_caller_state state;
	uint32_t handle; /* route's caller index */
	const struct kvpull_route *route;
	uint8_t nonce[KVPULL_NONCE_BYTES];
	char name[KVPULL_CALLER_NAME_BYTES]; /* for lines; "": no hello yet */
};

/* Calls of the owner, which says what hello and welcome carry, and whom to let in. */
struct kvpull_callers_owner {
	const char *role; /* of an admitted caller, in lines of the log */
	/*
	 * Judge a hello, which answers caller->nonce, and set caller->name once
	 * it is read. 0: let it in. Else *refusal says why not: an error is logged and counted,
	 * KVPULL_CALLER_COMES_EARLY is not.
	 */
	int (*hello_check)(void *own, struct kvpull_caller *caller,
			   const struct kvpull_event *event,
			   struct kvpull_refusal *refusal);
	/* Bytes of the answer to the hello judged last, of MESSAGE_BYTES_MAX. */
	size_t (*welcome_put)(void *own, const struct kvpull_caller *caller,
			      uint8_t *bytes);
	/* The caller is admitted. */
	void (*came)(void *own, struct kvpull_caller *caller,
		     struct kvpull_ring *ring, uint32_t uid);
	/* The caller is down. Return: 1: its ring stays until forget(). */
	int (*went)(void *own, struct kvpull_caller *caller);
};

struct kvpull_callers {
	const struct kvpull_callers_owner *owner;
	void *own;
	const struct kvpull_log *log;
	const struct kvpull_config *config;
	struct kvpull_caller *all; /* [caller_first + handle] */
	uint8_t *message;          /* scratch, KVPULL_MESSAGE_BYTES_MAX */
	struct kvpull_give_sink given;
	_Atomic uint64_t *refused; /* counts */
	uint32_t in_count;         /* callers that are IN */
	uint32_t said;             /* refusals logged in this second */
	uint64_t said_ns;          /* a new second begins */
	uint64_t full_said_ns; /* the last line of a refusal for want of room */
};

/* CALLER_UP, CALLER_MESSAGE, CALLER_DOWN. */
void kvpull_callers_event(struct kvpull_callers *callers,
			  const struct kvpull_route *route,
			  const struct kvpull_event *event, uint64_t now_ns);
/* Close the connection of an admitted caller; CALLER_DOWN follows. */
void kvpull_callers_drop(const struct kvpull_callers *callers, uint32_t index);
/* The ring of a caller that is OUT is drained. */
void kvpull_callers_forget(struct kvpull_callers *callers, uint32_t index);

static inline uint32_t kvpull_caller_index(const struct kvpull_callers *callers,
					   const struct kvpull_caller *caller)
{
	return (uint32_t)(caller - callers->all);
}

#endif /* KVPULL_PLUGIN_SESSION_CALLERS_H */
