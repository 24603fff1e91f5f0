/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers whose share we read. plugin/session/peers.h has their connections, which
 * begin when a peer is added. An address is of one incarnation of its owner: one
 * that started again has another.
 *
 * A link that lost its connection has reads whose ends are to be told. It is not
 * called before, and its number is not free before, though it was removed.
 */
#include <stdio.h>
#include <string.h>

#include "base/params.h"
#include "plugin/share/share_state.h"

#define PEER_BYTES_FIRST 240u

_Static_assert(sizeof(struct kvpull_reader_peer) == PEER_BYTES_FIRST,
	       "this is the first version");
_Static_assert(!offsetof(struct kvpull_share_link, peer),
	       "begins with its peer");

static struct kvpull_share_link *link_at(const struct kvpull_reader *share,
					 uint32_t peer)
{
	struct kvpull_share_link *link;

	if (!share || peer >= share->links_max)
		return NULL;
	link = &share->links[peer];
	return link->peer.is_removed || link->peer.state == KVPULL_PEER_FREE ?
		       NULL :
		       link;
}

/* Returns 0 if the peer can be asked. */
static int32_t link_code(const struct kvpull_share_link *link)
{
	return link->peer.state == KVPULL_PEER_UP   ? 0 :
	       link->peer.state == KVPULL_PEER_GONE ? link->peer.code :
						      KVPULL_EAGAIN;
}

int kvpull_share_link_find(const struct kvpull_reader *share, uint32_t peer,
			   uint32_t *reader)
{
	const struct kvpull_share_link *link = link_at(share, peer);

	if (!link)
		return KVPULL_EINVAL;
	*reader = link->reader;
	return link_code(link);
}

int kvpull_share_peer_add(struct kvpull_reader *share, const char *address,
			  uint32_t *peer)
{
	struct kvpull_route_choice choice;
	struct kvpull_share_link *link;
	uint32_t at = 0;
	int code;

	if (!share || !address || !peer)
		return KVPULL_EINVAL;
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
	       (share->links[at].peer.state != KVPULL_PEER_FREE ||
		share->links[at].has_reads))
		at++;
	if (at == share->links_max)
		return KVPULL_EFULL;
	link = &share->links[at];
	*link = (struct kvpull_share_link){ .shown.peer = at };
	kvpull_peer_begin(&link->peer, &choice, 0);
	memcpy(link->shown.address, choice.address,
	       sizeof(link->shown.address));
	(void)snprintf(link->shown.route, sizeof(link->shown.route), "%s",
		       choice.route->transport->ops->name);
	kvpull_share_show_link_new(share, link);
	*peer = at;
	kvpull_share_wake(share);
	return 0;
}

int kvpull_share_peer_remove(struct kvpull_reader *share, uint32_t peer)
{
	struct kvpull_share_link *link = link_at(share, peer);

	if (!link)
		return KVPULL_EINVAL;
	kvpull_peer_remove(&share->peers, &link->peer);
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

	if (!share || (!peers && capacity) ||
	    kvpull_element_check(peer_bytes, PEER_BYTES_FIRST))
		return KVPULL_EINVAL;
	for (at = 0; at < share->links_max; at++) {
		struct kvpull_share_link *link = link_at(share, at);

		if (!link || count++ >= capacity)
			continue;
		link->shown.code = link_code(link);
		kvpull_element_give(to, peer_bytes, &link->shown,
				    sizeof(link->shown));
		to += peer_bytes;
	}
	return (int)count;
}

static size_t hello_put(void *own, const struct kvpull_peer *peer,
			const uint8_t theirs[KVPULL_NONCE_BYTES],
			uint8_t *bytes)
{
	const struct kvpull_reader *share = own;
	struct kvpull_reader_hello *hello = share->hello;

	memset(hello, 0, sizeof(*hello));
	hello->sealed.version = share->config.wire_emit;
	hello->naming = share->naming;
	hello->incarnation = share->incarnation;
	hello->pid = (uint32_t)share->pid;
	memcpy(hello->engine_id, share->engine_id, sizeof(hello->engine_id));
	memcpy(hello->nonce, peer->nonce, sizeof(hello->nonce));
	return kvpull_share_put_hello(bytes, KVPULL_MESSAGE_BYTES_MAX, hello,
				      kvpull_config_key(&share->config),
				      theirs);
}

static int welcome_check(const struct kvpull_reader *share,
			 const struct kvpull_peer *peer,
			 const struct kvpull_event *event,
			 struct kvpull_refusal *refusal)
{
	struct kvpull_share_welcome *welcome = share->welcome;
	const int code = kvpull_share_get_welcome(
		event->data, event->data_bytes,
		kvpull_config_key(&share->config), peer->nonce, welcome);

	if (code == KVPULL_EVERSION)
		kvpull_refusal_version(refusal, &welcome->sealed);
	return code ? code :
		      kvpull_share_namespace_compare(
			      share->namespace_digest.bytes,
			      welcome->namespace_digest, refusal);
}

/* Nothing that the welcome says is trusted: the route and the reader check it. */
static int attach(const struct kvpull_reader *share,
		  struct kvpull_share_link *link)
{
	const struct kvpull_share_welcome *welcome = share->welcome;
	struct kvpull_transport *transport = link->peer.route->transport;
	struct kvpull_share_reader_peer peer = {
		.transport = transport,
		.handle = link->peer.handle,
		.namespace_digest = share->namespace_digest,
		.chunk_bytes = welcome->chunk_bytes,
		.share = {
			.incarnation = welcome->incarnation,
			.chunk_count = welcome->chunk_count,
			.slot_count = welcome->slot_count,
			.entry_count = welcome->entry_count,
		},
	};
	int code;

	memcpy(peer.share.secret, welcome->secret, sizeof(peer.share.secret));
	kvpull_welcome_view(welcome->regions, welcome->region_count,
			    welcome->guards_address,
			    welcome->chunk_count + welcome->slot_count,
			    share->view);
	code = transport->ops->attach(transport, link->peer.handle,
				      share->view);
	if (!code)
		code = kvpull_share_reader_peer_add(share->reader, &peer,
						    share->view, &link->reader);
	return code == KVPULL_EPEER ? KVPULL_PEER_LOST : code;
}

static int welcome_take(void *own, struct kvpull_peer *peer,
			const struct kvpull_event *event,
			struct kvpull_refusal *refusal)
{
	struct kvpull_reader *share = own;
	struct kvpull_share_link *link = (struct kvpull_share_link *)peer;
	const struct kvpull_share_welcome *welcome = share->welcome;
	int code = welcome_check(share, peer, event, refusal);

	if (!code)
		code = attach(share, link);
	if (code)
		return code;
	link->shown.incarnation = welcome->incarnation;
	link->shown.chunk_bytes = welcome->chunk_bytes;
	link->shown.chunk_count = welcome->chunk_count;
	link->shown.slot_count =
		welcome->region_count > KVPULL_SHARE_REGION_COUNT ?
			welcome->slot_count :
			0;
	memcpy(link->shown.engine_id, welcome->engine_id,
	       sizeof(link->shown.engine_id));
	return 0;
}

static void came_up(struct kvpull_reader *share, struct kvpull_share_link *link)
{
	share->counts.peers_live++;
	share->counts.peer_connects++;
	link->error = 0;
	link->has_reads = 1;
	kvpull_share_show_link_up(share, link, share->welcome->pid);
	kvpull_info(&share->log,
		    "peer %s of %s connected by %s: %u chunks of %llu bytes",
		    link->peer.address, link->shown.engine_id,
		    link->shown.route, link->shown.chunk_count,
		    (unsigned long long)link->shown.chunk_bytes);
}

static void changed(void *own, struct kvpull_peer *peer,
		    enum kvpull_peer_state was, int32_t code)
{
	struct kvpull_reader *share = own;
	struct kvpull_share_link *link = (struct kvpull_share_link *)peer;

	if (peer->state == KVPULL_PEER_UP)
		came_up(share, link);
	if (was == KVPULL_PEER_UP) {
		share->counts.peers_live--;
		link->shown.incarnation = 0;
	}
	if (peer->state == KVPULL_PEER_WAIT ||
	    peer->state == KVPULL_PEER_GONE) {
		share->counts.peer_failures++;
		link->error = code;
		kvpull_share_show_link_down(share, link, code);
	}
	kvpull_share_show_link(share, link);
}

static int is_wanted(void *own, const struct kvpull_peer *peer)
{
	(void)own;
	return !((const struct kvpull_share_link *)peer)->has_reads;
}

static void refused(void *own, const struct kvpull_peer *peer,
		    const char *field, const char *there, const char *here)
{
	kvpull_share_show_refusal(own, (const struct kvpull_share_link *)peer,
				  field, there, here);
}

const struct kvpull_peers_owner kvpull_share_peers_owner = {
	.hello_put = hello_put,
	.welcome_take = welcome_take,
	.is_wanted = is_wanted,
	.changed = changed,
	.refused = refused,
};

uint64_t kvpull_share_links_run(struct kvpull_reader *share, uint64_t now_ns)
{
	uint64_t due_ns = UINT64_MAX;
	uint64_t at_ns;
	uint32_t at;

	for (at = 0; at < share->links_max; at++) {
		struct kvpull_share_link *link = &share->links[at];

		if (link->has_reads && link->peer.state != KVPULL_PEER_UP)
			link->has_reads =
				kvpull_share_reader_peer_remove(
					share->reader, link->reader) != 0;
		at_ns = kvpull_peer_run(&share->peers, &link->peer, now_ns);
		if (at_ns < due_ns)
			due_ns = at_ns;
	}
	return due_ns;
}
