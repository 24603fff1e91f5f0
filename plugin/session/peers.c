/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/session/peers.h"

#include <string.h>

#include <sodium.h>

#include "base/params.h"

static uint64_t connect_ns(const struct kvpull_peers *peers)
{
	return peers->config->connect_ms * KVPULL_NS_PER_MS;
}

void kvpull_peer_begin(struct kvpull_peer *peer,
		       const struct kvpull_route_choice *choice, uint64_t at_ns)
{
	*peer = (struct kvpull_peer){
		.state = KVPULL_PEER_WAIT,
		.retry.at_ns = at_ns,
		.route = choice->route,
		.why = choice->why,
	};
	memcpy(peer->address, choice->address, sizeof(peer->address));
}

void kvpull_peer_again(struct kvpull_peer *peer)
{
	peer->state = KVPULL_PEER_WAIT;
	peer->code = 0;
	peer->retry = (struct kvpull_retry){ .at_ns = peer->retry.at_ns,
					     .breaks = peer->retry.breaks };
}

void kvpull_peer_disconnect(const struct kvpull_peer *peer)
{
	struct kvpull_transport *transport = peer->route->transport;

	transport->ops->disconnect(transport, peer->handle);
}

void kvpull_peer_leave(struct kvpull_peer *peer)
{
	peer->is_left = 1;
	kvpull_peer_disconnect(peer);
}

struct kvpull_peer **kvpull_peer_of(const struct kvpull_peers *peers,
				    const struct kvpull_route *route,
				    uint32_t handle)
{
	kvpull_check(peers->log, handle < route->transport->peer_count_max);
	return &peers->of_handle[route->peer_first + handle];
}

static void turn(const struct kvpull_peers *peers, struct kvpull_peer *peer,
		 enum kvpull_peer_state state, int32_t code)
{
	const enum kvpull_peer_state was = peer->state;

	peer->state = state;
	peers->owner->changed(peers->own, peer, was, code);
}

void kvpull_peer_remove(const struct kvpull_peers *peers,
			struct kvpull_peer *peer)
{
	peer->is_removed = 1;
	if (peer->state == KVPULL_PEER_WAIT || peer->state == KVPULL_PEER_GONE)
		turn(peers, peer, KVPULL_PEER_FREE, 0);
	else
		kvpull_peer_disconnect(peer);
}

static void give_up(const struct kvpull_peers *peers, struct kvpull_peer *peer,
		    int32_t code, int32_t why)
{
	peer->code = code;
	kvpull_warn(peers->log, "peer %s is given up: %s", peer->address,
		    kvpull_error_name(why));
	turn(peers, peer, KVPULL_PEER_GONE, why);
}

static void call_failed(const struct kvpull_peers *peers,
			struct kvpull_peer *peer, int32_t code, uint64_t now_ns)
{
	if (kvpull_retry_failed(&peer->retry, code, now_ns)) {
		give_up(peers, peer, code, code);
		return;
	}
	peer->code = code;
	turn(peers, peer, KVPULL_PEER_WAIT, code);
}

static void call(const struct kvpull_peers *peers, struct kvpull_peer *peer,
		 uint64_t now_ns)
{
	struct kvpull_transport *transport = peer->route->transport;
	uint32_t handle;
	const int code =
		transport->ops->connect(transport, peer->address, &handle);

	if (code) {
		call_failed(peers, peer, code, now_ns);
		return;
	}
	*kvpull_peer_of(peers, peer->route, handle) = peer;
	peer->handle = handle;
	peer->code = 0;
	peer->is_left = 0;
	peer->greeted_ns = now_ns + connect_ns(peers);
	turn(peers, peer, KVPULL_PEER_CONNECTING, 0);
}

/* The peer is trusted before it is told who we are. */
static int challenge_take(const struct kvpull_peers *peers,
			  struct kvpull_peer *peer,
			  const struct kvpull_event *event)
{
	struct kvpull_transport *transport = peer->route->transport;
	uint8_t theirs[KVPULL_NONCE_BYTES];
	struct kvpull_users users;
	size_t byte_count;
	int code;

	if (!kvpull_route_trusts(peer->route, peers->config, event->uid)) {
		users = kvpull_config_users(peers->config);
		kvpull_warn(peers->log, "peer %s is not asked: its user %u %s",
			    peer->address, event->uid,
			    kvpull_users_doubt(&users, event->uid));
		return KVPULL_EAUTH;
	}
	code = kvpull_handshake_get_challenge(event->data, event->data_bytes,
					      theirs);
	if (code)
		return code;
	randombytes_buf(peer->nonce, sizeof(peer->nonce));
	byte_count = peers->owner->hello_put(peers->own, peer, theirs,
					     peers->message);
	turn(peers, peer, KVPULL_PEER_GREETED, 0);
	return transport->ops->peer_send(transport, peer->handle,
					 peers->message, byte_count) ?
		       KVPULL_PEER_LOST :
		       0;
}

/* Both sides are told why we do not read the peer. */
static void refuse(const struct kvpull_peers *peers,
		   const struct kvpull_peer *peer,
		   const struct kvpull_refusal *refusal)
{
	struct kvpull_transport *transport = peer->route->transport;

	kvpull_warn(peers->log, "peer %s refused: %s is %s here and %s there",
		    peer->address, refusal->field, refusal->ours,
		    refusal->theirs);
	if (peers->owner->refused)
		peers->owner->refused(peers->own, peer, refusal->field,
				      refusal->theirs, refusal->ours);
	(void)transport->ops->peer_send(
		transport, peer->handle, peers->message,
		kvpull_handshake_put_refusal(
			peers->message, KVPULL_MESSAGE_BYTES_MAX, refusal));
}

static int welcome_take(const struct kvpull_peers *peers,
			struct kvpull_peer *peer,
			const struct kvpull_event *event, uint64_t now_ns)
{
	struct kvpull_refusal refusal = { .code = 0 };
	const int code =
		peers->owner->welcome_take(peers->own, peer, event, &refusal);

	if (refusal.code)
		refuse(peers, peer, &refusal);
	if (!code) {
		peer->retry.up_ns = now_ns;
		turn(peers, peer, KVPULL_PEER_UP, 0);
	}
	return code;
}

/*
 * Rate limit: a peer without room is called on, and its first refusal in a row
 * is logged alone.
 */
static int refusal_take(const struct kvpull_peers *peers,
			const struct kvpull_peer *peer,
			const struct kvpull_event *event)
{
	struct kvpull_refusal refusal;
	const int code = kvpull_handshake_get_refusal(
		event->data, event->data_bytes, &refusal);

	if (code)
		return code;
	if (!kvpull_retry_is_shortage(refusal.code) || !peer->retry.wait_ns)
		kvpull_log(
			peers->log,
			refusal.code == KVPULL_EAGAIN ? KVPULL_LOG_INFO :
							KVPULL_LOG_WARN,
			"peer %s refused us: %s is %s there and %s here (%s)",
			peer->address, refusal.field, refusal.ours,
			refusal.theirs, kvpull_error_name(refusal.code));
	if (peers->owner->refused)
		peers->owner->refused(peers->own, peer, refusal.field,
				      refusal.ours, refusal.theirs);
	return refusal.code;
}

static int message_take(const struct kvpull_peers *peers,
			struct kvpull_peer *peer,
			const struct kvpull_event *event, uint64_t now_ns)
{
	const int kind = kvpull_handshake_kind(event->data, event->data_bytes);

	if (kind == KVPULL_MESSAGE_REFUSAL)
		return refusal_take(peers, peer, event);
	if (kind == KVPULL_MESSAGE_CHALLENGE &&
	    peer->state == KVPULL_PEER_CONNECTING)
		return challenge_take(peers, peer, event);
	if (kind != KVPULL_MESSAGE_CHALLENGE &&
	    peer->state == KVPULL_PEER_GREETED)
		return welcome_take(peers, peer, event, now_ns);
	return kind < 0 ? kind : KVPULL_EPROTO;
}

/* A peer that was removed, or is being cut for its message, is not heard. */
static void message(const struct kvpull_peers *peers, struct kvpull_peer *peer,
		    const struct kvpull_event *event, uint64_t now_ns)
{
	int code;

	if (peer->is_removed || peer->code)
		return;
	code = message_take(peers, peer, event, now_ns);
	if (!code)
		return;
	peer->code = code == KVPULL_PEER_LOST ? 0 : code;
	kvpull_peer_disconnect(peer);
}

static void lost(const struct kvpull_peers *peers, struct kvpull_peer *peer,
		 int32_t event_code, int32_t why, uint64_t now_ns)
{
	kvpull_info(peers->log, "the connection to peer %s has ended (%s)",
		    peer->address, kvpull_error_name(why));
	/* The peer's memory cannot be mapped, now or later. */
	if (event_code == KVPULL_EROUTE) {
		give_up(peers, peer, KVPULL_EROUTE, why);
		return;
	}
	if (kvpull_retry_lost(&peer->retry,
			      peer->is_left ? KVPULL_EABORTED : event_code,
			      connect_ns(peers), now_ns)) {
		give_up(peers, peer, KVPULL_EPEER, why);
		return;
	}
	peer->code = 0;
	turn(peers, peer, KVPULL_PEER_WAIT, why);
}

static void down(const struct kvpull_peers *peers, struct kvpull_peer *peer,
		 int32_t event_code, uint64_t now_ns)
{
	const int32_t code = peer->code ? peer->code :
			     event_code ? event_code :
					  KVPULL_EPEER;

	if (peer->is_removed)
		turn(peers, peer, KVPULL_PEER_FREE, code);
	else if (peer->state == KVPULL_PEER_UP)
		lost(peers, peer, event_code, code, now_ns);
	/* Networks and versions of a producer do not change by waiting. */
	else if ((peer->code && !kvpull_retry_is_shortage(peer->code)) ||
		 event_code == KVPULL_EREJECTED)
		give_up(peers, peer, code, code);
	else
		call_failed(peers, peer, code, now_ns);
}

void kvpull_peers_event(const struct kvpull_peers *peers,
			const struct kvpull_route *route,
			const struct kvpull_event *event, uint64_t now_ns)
{
	struct kvpull_peer **of_handle =
		kvpull_peer_of(peers, route, event->index);
	struct kvpull_peer *peer = *of_handle;

	if (peer && event->kind == KVPULL_EVENT_PEER_MESSAGE) {
		message(peers, peer, event, now_ns);
	} else if (peer) {
		*of_handle = NULL;
		down(peers, peer, event->code, now_ns);
	}
}

uint64_t kvpull_peer_run(const struct kvpull_peers *peers,
			 struct kvpull_peer *peer, uint64_t now_ns)
{
	if (peer->state == KVPULL_PEER_WAIT &&
	    !peers->owner->is_wanted(peers->own, peer))
		return UINT64_MAX;
	if (peer->state == KVPULL_PEER_WAIT && now_ns >= peer->retry.at_ns)
		call(peers, peer, now_ns);
	if (peer->state == KVPULL_PEER_WAIT)
		return peer->retry.at_ns;
	if (peer->state != KVPULL_PEER_CONNECTING &&
	    peer->state != KVPULL_PEER_GREETED)
		return UINT64_MAX;
	if (now_ns < peer->greeted_ns)
		return peer->greeted_ns;
	kvpull_peer_disconnect(peer);
	return UINT64_MAX;
}
