/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers: processes whose memory we read. Each has one connection, which is made
 * in the background, kept, and made again after a fault. One thread: the one that
 * polls the routes.
 *
 * state       left by
 * FREE        begin() -> WAIT
 * WAIT        retry.at_ns, if it is wanted: connect() -> CONNECTING, WAIT or GONE
 * CONNECTING  challenge: the hello is sent -> GREETED; down -> WAIT or GONE
 * GREETED     welcome -> UP; down -> WAIT or GONE
 * UP          down -> WAIT or GONE
 * GONE        its owner calls it again -> WAIT
 *
 * A refusal by either side is final (GONE), unless it names a shortage. All other
 * ends are faults, and plugin/session/retry.h says when the peer is called again.
 * A handshake that takes longer than connect_ms is a fault. A removed peer is FREE
 * as soon as it has no connection, and is neither heard nor logged until then.
 */
#ifndef KVPULL_PLUGIN_SESSION_PEERS_H
#define KVPULL_PLUGIN_SESSION_PEERS_H

#include "plugin/bytes/handshake.h"
#include "plugin/route/route.h"
#include "plugin/session/retry.h"

/* welcome_take(): the connection was lost meanwhile, which is a fault. */
#define KVPULL_PEER_LOST 1

enum kvpull_peer_state {
	KVPULL_PEER_FREE = 0,
	KVPULL_PEER_CONNECTING, /* the hello is not sent yet */
	KVPULL_PEER_GREETED,    /* the hello is sent */
	KVPULL_PEER_UP,
	KVPULL_PEER_WAIT, /* called at retry.at_ns */
	KVPULL_PEER_GONE  /* given up */
};

/* The first member of an owner's record. */
struct kvpull_peer {
	enum kvpull_peer_state state;
	int32_t code;        /* why WAIT or GONE; else why it is being cut */
	uint32_t handle;     /* route's peer index, CONNECTING to UP */
	uint32_t is_removed; /* FREE once it has no connection */
	uint32_t is_left;    /* by kvpull_peer_leave(), until the next call */
	struct kvpull_retry retry;
	uint64_t greeted_ns; /* the handshake ends by then */
	const struct kvpull_route *route;
	const char *why; /* that route: static text */
	uint8_t nonce[KVPULL_NONCE_BYTES];
	char address[KVPULL_ADDRESS_BYTES_MAX];
};

/* Calls of the owner, which says what hello and welcome carry, and whom to call. */
struct kvpull_peers_owner {
	/*
	 * Bytes of our hello, of MESSAGE_BYTES_MAX: it carries peer->nonce, and
	 * is sealed for the peer's.
	 */
	size_t (*hello_put)(void *own, const struct kvpull_peer *peer,
			    const uint8_t theirs[KVPULL_NONCE_BYTES],
			    uint8_t *bytes);
	/*
	 * Check a welcome, which answers peer->nonce, and attach the peer's
	 * memory. 0; KVPULL_PEER_LOST; else why it is not taken, and if *refusal
	 * has a code it is logged and sent to the peer.
	 */
	int (*welcome_take)(void *own, struct kvpull_peer *peer,
			    const struct kvpull_event *event,
			    struct kvpull_refusal *refusal);
	/* 0: a peer that waits is not called for now. */
	int (*is_wanted)(void *own, const struct kvpull_peer *peer);
	/*
	 * peer->state was another one, or a call failed (WAIT to WAIT). code: why
	 * the call or the connection ended.
	 */
	void (*changed)(void *own, struct kvpull_peer *peer,
			enum kvpull_peer_state was, int32_t code);
	/* Optional: either side refused the other for these values of a field. */
	void (*refused)(void *own, const struct kvpull_peer *peer,
			const char *field, const char *there, const char *here);
};

struct kvpull_peers {
	const struct kvpull_peers_owner *owner;
	void *own;
	const struct kvpull_log *log;
	const struct kvpull_config *config;
	struct kvpull_peer **of_handle; /* [peer_first + handle]; NULL: none */
	uint8_t *message;               /* scratch, KVPULL_MESSAGE_BYTES_MAX */
};

/* A FREE peer, or one whose record is another's now, is called from at_ns on. */
void kvpull_peer_begin(struct kvpull_peer *peer,
		       const struct kvpull_route_choice *choice,
		       uint64_t at_ns);
/* Whatever failed before does not count any more. WAIT or GONE -> WAIT. */
void kvpull_peer_again(struct kvpull_peer *peer);
/* A peer that has a connection: PEER_DOWN follows. */
void kvpull_peer_disconnect(const struct kvpull_peer *peer);
/* Likewise, and no fault of the peer's: it may be called again at once. */
void kvpull_peer_leave(struct kvpull_peer *peer);
void kvpull_peer_remove(const struct kvpull_peers *peers,
			struct kvpull_peer *peer);
/* The place that says whose a handle of the route is. */
struct kvpull_peer **kvpull_peer_of(const struct kvpull_peers *peers,
				    const struct kvpull_route *route,
				    uint32_t handle);
/* PEER_MESSAGE, PEER_DOWN. */
void kvpull_peers_event(const struct kvpull_peers *peers,
			const struct kvpull_route *route,
			const struct kvpull_event *event, uint64_t now_ns);
/* Do what is due. Return: when the next is; UINT64_MAX: an event comes first. */
uint64_t kvpull_peer_run(const struct kvpull_peers *peers,
			 struct kvpull_peer *peer, uint64_t now_ns);

#endif /* KVPULL_PLUGIN_SESSION_PEERS_H */
