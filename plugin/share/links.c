/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers whose share we read: one connection each, made in the background when
 * the peer is added, and made again after a fault. An address is of one
 * incarnation of its owner: one that started again has another.
 *
 * state       leaves by
 * WAIT        retry.at_ns: connect() -> CONNECTING, or WAIT again, at last GONE
 * CONNECTING  challenge -> GREETED; down or connect_ms -> WAIT or GONE
 * GREETED     share -> UP; refusal or a wrong share -> GONE
 * UP          down -> LOST
 * LOST        all ends of its reads are told -> WAIT or GONE
 * GONE        removed
 *
 * A link that is removed is FREE as soon as no connection and no read of its is
 * left.
 */
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/params.h"
#include "plugin/share/share_state.h"

static struct kvpull_share_link *link_at(const struct kvpull_reader *share,
					 uint32_t peer)
{
	struct kvpull_share_link *link;

	if (peer >= share->links_max)
		return NULL;
	link = &share->links[peer];
	return link->state == KVPULL_LINK_FREE || link->is_removed ? NULL :
								     link;
}

/* Sets the state and shows it in the status file. */
static void turn(struct kvpull_reader *share, struct kvpull_share_link *link,
		 enum kvpull_share_link_state state)
{
	link->state = state;
	kvpull_share_show_link(share, link);
}

int kvpull_share_link_find(const struct kvpull_reader *share, uint32_t peer,
			   uint32_t *reader)
{
	const struct kvpull_share_link *link = link_at(share, peer);

	if (!link)
		return KVPULL_EINVAL;
	if (link->state == KVPULL_LINK_GONE)
		return link->code;
	if (link->state != KVPULL_LINK_UP)
		return KVPULL_EAGAIN;
	*reader = link->reader;
	return 0;
}

int kvpull_share_peer_add(struct kvpull_reader *share, const char *address,
			  uint32_t *peer)
{
	struct kvpull_route_choice choice;
	struct kvpull_share_link *link;
	uint32_t at = 0;
	int code;

	/* The address is a foreign text, and goes into lines of the log. */
	if (!kvpull_ticket_address_is_good(address)) {
		kvpull_warn(
			&share->log,
			"a peer's address is refused: it is not a text that address() gives");
		return KVPULL_EINVAL;
	}
	code = kvpull_routes_choose(&share->routes, address, &choice);
	if (code == KVPULL_EROUTE)
		kvpull_warn(
			&share->log,
			"no allowed route to %s: a peer's address is of the configured socket folder, or of the networks",
			address);
	if (code)
		return code;
	while (at < share->links_max &&
	       share->links[at].state != KVPULL_LINK_FREE)
		at++;
	if (at == share->links_max)
		return KVPULL_EFULL;
	link = &share->links[at];
	*link = (struct kvpull_share_link){ .state = KVPULL_LINK_WAIT,
					    .route = choice.route,
					    .why = choice.why,
					    .shown = { .peer = at } };
	memcpy(link->shown.address, choice.address,
	       sizeof(link->shown.address));
	(void)snprintf(link->shown.route, sizeof(link->shown.route), "%s",
		       choice.route->transport->ops->name);
	kvpull_share_show_link_new(share, link);
	*peer = at;
	kvpull_share_wake(share);
	return 0;
}

static void link_disconnect(const struct kvpull_share_link *link)
{
	struct kvpull_transport *transport = link->route->transport;

	transport->ops->disconnect(transport, link->handle);
}

int kvpull_share_peer_remove(struct kvpull_reader *share, uint32_t peer)
{
	struct kvpull_share_link *link = link_at(share, peer);

	if (!link)
		return KVPULL_EINVAL;
	link->is_removed = 1;
	if (link->state == KVPULL_LINK_WAIT || link->state == KVPULL_LINK_GONE)
		turn(share, link, KVPULL_LINK_FREE);
	else if (link->state != KVPULL_LINK_LOST)
		link_disconnect(link);
	kvpull_share_wake(share);
	return 0;
}

int kvpull_share_peers(struct kvpull_reader *share,
		       struct kvpull_reader_peer *peers, uint32_t capacity,
		       size_t peer_bytes)
{
	uint8_t *to = (uint8_t *)peers;
	uint32_t count = 0;
	uint32_t at;

	for (at = 0; at < share->links_max; at++) {
		struct kvpull_share_link *link = link_at(share, at);

		if (!link || count++ >= capacity)
			continue;
		link->shown.code =
			link->state == KVPULL_LINK_UP   ? 0 :
			link->state == KVPULL_LINK_GONE ? link->code :
							  KVPULL_EAGAIN;
		kvpull_element_give(to, peer_bytes, &link->shown,
				    sizeof(link->shown));
		to += peer_bytes;
	}
	return (int)count;
}

static void give_up(struct kvpull_reader *share, struct kvpull_share_link *link,
		    int32_t code)
{
	link->code = link->error = code;
	turn(share, link, KVPULL_LINK_GONE);
	kvpull_warn(&share->log, "peer %s is given up: %s", link->shown.address,
		    kvpull_error_name(code));
}

static void try_later(struct kvpull_reader *share,
		      struct kvpull_share_link *link, int32_t code,
		      uint64_t now_ns)
{
	if (kvpull_retry_failed(&link->retry, code, now_ns))
		give_up(share, link, code);
	else
		turn(share, link, KVPULL_LINK_WAIT);
}

static uint64_t connect_ns(const struct kvpull_reader *share)
{
	return share->config.connect_ms * KVPULL_NS_PER_MS;
}

static void try_connect(struct kvpull_reader *share,
			struct kvpull_share_link *link, uint64_t now_ns)
{
	struct kvpull_transport *transport = link->route->transport;
	uint32_t handle;
	int code;

	code = transport->ops->connect(transport, link->shown.address, &handle);
	if (code) {
		share->counts.peer_failures++;
		link->error = code;
		kvpull_share_show_link_down(share, link, code);
		try_later(share, link, code, now_ns);
		return;
	}
	link->handle = handle;
	link->code = 0;
	share->link_of[link->route->peer_first + handle] = link;
	link->greeted_ns = now_ns + connect_ns(share);
	turn(share, link, KVPULL_LINK_CONNECTING);
}

static int greet(struct kvpull_reader *share, struct kvpull_share_link *link,
		 const struct kvpull_event *event)
{
	struct kvpull_transport *transport = link->route->transport;
	struct kvpull_reader_hello *hello = share->hello;
	uint8_t nonce[KVPULL_NONCE_BYTES];
	struct kvpull_users users;
	int code;

	if (!kvpull_route_trusts(link->route, &share->config, event->uid)) {
		users = kvpull_config_users(&share->config);
		kvpull_warn(&share->log, "peer %s is not asked: its user %u %s",
			    link->shown.address, event->uid,
			    kvpull_users_doubt(&users, event->uid));
		return KVPULL_EAUTH;
	}
	code = kvpull_handshake_get_challenge(event->data, event->data_bytes,
					      nonce);
	if (code)
		return code;
	memset(hello, 0, sizeof(*hello));
	hello->sealed.version = share->config.wire_emit;
	hello->naming = share->naming;
	hello->incarnation = share->incarnation;
	hello->pid = (uint32_t)share->pid;
	memcpy(hello->engine_id, share->engine_id, sizeof(hello->engine_id));
	randombytes_buf(link->nonce, sizeof(link->nonce));
	memcpy(hello->nonce, link->nonce, sizeof(hello->nonce));
	turn(share, link, KVPULL_LINK_GREETED);
	code = transport->ops->peer_send(
		transport, link->handle, share->message,
		kvpull_share_put_hello(share->message, KVPULL_MESSAGE_BYTES_MAX,
				       hello, kvpull_config_key(&share->config),
				       nonce));
	return code == KVPULL_EPEER ? KVPULL_EAGAIN :
				      code; /* as share_take() */
}

/* We do not take what it tells: both sides are told why. */
static void refuse_back(struct kvpull_reader *share,
			const struct kvpull_share_link *link,
			const struct kvpull_refusal *refusal)
{
	struct kvpull_transport *transport = link->route->transport;

	kvpull_warn(&share->log, "peer %s refused: %s is %s here and %s there",
		    link->shown.address, refusal->field, refusal->ours,
		    refusal->theirs);
	kvpull_share_show_refusal(share, link, refusal->field, refusal->theirs,
				  refusal->ours);
	(void)transport->ops->peer_send(
		transport, link->handle, share->message,
		kvpull_handshake_put_refusal(
			share->message, KVPULL_MESSAGE_BYTES_MAX, refusal));
}

static int share_check(struct kvpull_reader *share,
		       struct kvpull_share_link *link,
		       const struct kvpull_event *event)
{
	struct kvpull_share_welcome *welcome = share->welcome;
	struct kvpull_refusal refusal;
	int code;

	code = kvpull_share_get_welcome(event->data, event->data_bytes,
					kvpull_config_key(&share->config),
					link->nonce, welcome);
	if (code == KVPULL_EVERSION)
		kvpull_refusal_version(&refusal, &welcome->sealed);
	else if (!code)
		code = kvpull_share_namespace_compare(
			share->namespace_digest.bytes,
			welcome->namespace_digest, &refusal);
	else
		return code;
	if (code)
		refuse_back(share, link, &refusal);
	return code;
}

/* Nothing that it said is trusted. */
static int share_take(struct kvpull_reader *share,
		      struct kvpull_share_link *link,
		      const struct kvpull_event *event)
{
	const struct kvpull_share_welcome *welcome = share->welcome;
	struct kvpull_transport *transport = link->route->transport;
	struct kvpull_share_reader_peer peer = {
		.transport = transport,
		.handle = link->handle,
		.namespace_digest = share->namespace_digest,
	};
	int code;

	code = share_check(share, link, event);
	if (code)
		return code;
	peer.chunk_bytes = welcome->chunk_bytes;
	peer.share = (struct kvpull_pool_share){
		.incarnation = welcome->incarnation,
		.chunk_count = welcome->chunk_count,
		.slot_count = welcome->slot_count,
		.entry_count = welcome->entry_count,
	};
	memcpy(peer.share.secret, welcome->secret, sizeof(peer.share.secret));
	/* The route and the reader check the extents of the regions. */
	kvpull_welcome_view(welcome->regions, welcome->region_count,
			    welcome->guards_address,
			    welcome->chunk_count + welcome->slot_count,
			    share->view);
	code = transport->ops->attach(transport, link->handle, share->view);
	if (!code)
		code = kvpull_share_reader_peer_add(share->reader, &peer,
						    share->view, &link->reader);
	if (code) /* lost meanwhile: no refusal */
		return code == KVPULL_EPEER ? KVPULL_EAGAIN : code;
	share->counts.peers_live++;
	share->counts.peer_connects++;
	link->shown.incarnation = welcome->incarnation;
	link->shown.chunk_bytes = welcome->chunk_bytes;
	link->shown.chunk_count = welcome->chunk_count;
	link->shown.slot_count =
		welcome->region_count > KVPULL_SHARE_REGION_COUNT ?
			welcome->slot_count :
			0;
	memcpy(link->shown.engine_id, welcome->engine_id,
	       sizeof(link->shown.engine_id));
	link->error = 0;
	link->retry.up_ns = share->run_ns;
	kvpull_share_show_link_up(share, link, welcome->pid);
	turn(share, link, KVPULL_LINK_UP);
	kvpull_info(&share->log,
		    "peer %s of %s connected by %s: %u chunks of %llu bytes",
		    link->shown.address, link->shown.engine_id,
		    transport->ops->name, welcome->chunk_count,
		    (unsigned long long)welcome->chunk_bytes);
	return 0;
}

static int refused(struct kvpull_reader *share,
		   const struct kvpull_share_link *link,
		   const struct kvpull_event *event)
{
	struct kvpull_refusal refusal;
	const int code = kvpull_handshake_get_refusal(
		event->data, event->data_bytes, &refusal);

	if (code)
		return code;
	/* An owner without room is called on: log its first refusal alone. */
	if (!kvpull_retry_is_shortage(refusal.code) || !link->retry.wait_ns)
		kvpull_warn(
			&share->log,
			"peer %s refused us: %s is %s there and %s here (%s)",
			link->shown.address, refusal.field, refusal.ours,
			refusal.theirs, kvpull_error_name(refusal.code));
	kvpull_share_show_refusal(share, link, refusal.field, refusal.ours,
				  refusal.theirs);
	return refusal.code < 0 ? refusal.code : KVPULL_EPROTO;
}

static void message(struct kvpull_reader *share, struct kvpull_share_link *link,
		    const struct kvpull_event *event)
{
	const int kind = kvpull_handshake_kind(event->data, event->data_bytes);

	/*
	 * A link that is removed, or was cut for its message, is not heard any
	 * more.
	 */
	if (link->is_removed || link->code)
		return;
	if (kind == KVPULL_MESSAGE_CHALLENGE &&
	    link->state == KVPULL_LINK_CONNECTING)
		link->code = greet(share, link, event);
	else if (kind == KVPULL_MESSAGE_SHARE &&
		 link->state == KVPULL_LINK_GREETED)
		link->code = share_take(share, link, event);
	else if (kind == KVPULL_MESSAGE_REFUSAL)
		link->code = refused(share, link, event);
	else
		link->code = kind < 0 ? kind : KVPULL_EPROTO;
	if (link->code)
		link_disconnect(link);
}

static void down(struct kvpull_reader *share, struct kvpull_share_link *link,
		 const struct kvpull_event *event, uint64_t now_ns)
{
	const int32_t code = link->code  ? link->code :
			     event->code ? event->code :
					   KVPULL_EPEER;

	share->link_of[link->route->peer_first + link->handle] = NULL;
	if (!link->is_removed) {
		share->counts.peer_failures++;
		link->error = code;
		kvpull_share_show_link_down(share, link, code);
	}
	if (link->state == KVPULL_LINK_UP) {
		kvpull_info(&share->log, "peer %s is lost (%s)",
			    link->shown.address, kvpull_error_name(code));
		share->counts.peers_live--;
		link->code = kvpull_retry_lost(&link->retry, event->code,
					       connect_ns(share), now_ns);
		link->shown.incarnation = 0;
		turn(share, link, KVPULL_LINK_LOST);
	} else if (link->is_removed) {
		turn(share, link, KVPULL_LINK_FREE);
	} else if (link->code && !kvpull_retry_is_shortage(link->code)) {
		/* A refusal is final, unless it names a shortage. */
		give_up(share, link, code);
	} else {
		try_later(share, link, code, now_ns);
	}
}

void kvpull_share_link_event(struct kvpull_reader *share,
			     const struct kvpull_route *route,
			     const struct kvpull_event *event, uint64_t now_ns)
{
	struct kvpull_share_link *link;

	kvpull_check(&share->log,
		     event->index < route->transport->peer_count_max);
	link = share->link_of[route->peer_first + event->index];
	if (!link)
		return;
	if (event->kind == KVPULL_EVENT_PEER_MESSAGE)
		message(share, link, event);
	else
		down(share, link, event, now_ns);
}

static void run_one(struct kvpull_reader *share, struct kvpull_share_link *link,
		    uint64_t now_ns)
{
	if (link->state == KVPULL_LINK_WAIT && now_ns >= link->retry.at_ns) {
		try_connect(share, link, now_ns);
	} else if ((link->state == KVPULL_LINK_CONNECTING ||
		    link->state == KVPULL_LINK_GREETED) &&
		   now_ns >= link->greeted_ns) {
		link_disconnect(link);
	} else if (link->state == KVPULL_LINK_LOST &&
		   !kvpull_share_reader_peer_remove(share->reader,
						    link->reader)) {
		if (link->is_removed)
			turn(share, link, KVPULL_LINK_FREE);
		else if (link->code)
			give_up(share, link, link->code);
		else
			turn(share, link, KVPULL_LINK_WAIT);
	}
}

void kvpull_share_links_run(struct kvpull_reader *share, uint64_t now_ns)
{
	uint32_t at;

	for (at = 0; at < share->links_max; at++)
		run_one(share, &share->links[at], now_ns);
}

uint64_t kvpull_share_links_due_ns(const struct kvpull_reader *share)
{
	uint64_t due_ns = UINT64_MAX;
	uint32_t at;

	for (at = 0; at < share->links_max; at++) {
		const struct kvpull_share_link *link = &share->links[at];
		uint64_t at_ns = UINT64_MAX;

		if (link->state == KVPULL_LINK_WAIT)
			at_ns = link->retry.at_ns;
		else if (link->state == KVPULL_LINK_CONNECTING ||
			 link->state == KVPULL_LINK_GREETED)
			at_ns = link->greeted_ns;
		if (at_ns < due_ns)
			due_ns = at_ns;
	}
	return due_ns;
}
