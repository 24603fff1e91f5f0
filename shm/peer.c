/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/peer.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/least.h"
#include "base/mapping.h"
#include "base/wrap.h"

/* Between looks at a lost peer that the engine's thread reads. */
#define PINNED_NS UINT64_C(100000)

static void peer_clear(struct kvpull_shm_peer *peer)
{
	*peer = (struct kvpull_shm_peer){
		.generation = peer->generation,
		.socket = -1,
		.identity.pidfd = -1,
		.welcome.bytes = peer->welcome.bytes,
		.welcome.fds = peer->welcome.fds,
		.memory.tables = peer->memory.tables,
		.memory.doorbell = -1,
	};
}

static int tables_take(struct kvpull_shm_peer *peer, struct kvpull_arena *arena)
{
	struct kvpull_shm_tables *tables = &peer->memory.tables;

	KVPULL_ARENA_TAKE(arena, peer->welcome.bytes, KVPULL_MESSAGE_BYTES_MAX);
	KVPULL_ARENA_TAKE(arena, peer->welcome.fds, KVPULL_ENDPOINT_FDS_MAX);
	KVPULL_ARENA_TAKE(arena, tables->mappings, KVPULL_REGIONS_MAX);
	KVPULL_ARENA_TAKE(arena, tables->regions, KVPULL_REGIONS_MAX);
	KVPULL_ARENA_TAKE(arena, tables->remote_address, KVPULL_REGIONS_MAX);
	KVPULL_ARENA_TAKE(arena, tables->files, KVPULL_REGIONS_MAX);
	KVPULL_ARENA_TAKE(arena, tables->devices, KVPULL_REGIONS_MAX);
	return kvpull_arena_ok(arena) ? 0 : KVPULL_ENOMEM;
}

int kvpull_shm_peers_init(struct kvpull_shm_peers *peers,
			  const struct kvpull_shm_params *params,
			  struct kvpull_arena *arena)
{
	uint32_t i;

	*peers = (struct kvpull_shm_peers){
		.log = params->log,
		.wait = peers->wait,
		.folder = peers->folder,
		.shortage = peers->shortage,
		.device = peers->device,
		.own = peers->own,
		.peer_max = params->peers_max,
		.file_direct = params->file_direct,
		.connect_ns = params->connect_ns,
	};
	KVPULL_ARENA_TAKE(arena, peers->peers, params->peers_max);
	if (!peers->peers)
		return KVPULL_ENOMEM;
	for (i = 0; i < peers->peer_max; i++) {
		peers->peers[i].generation = KVPULL_WRAP_START;
		peer_clear(&peers->peers[i]);
		if (tables_take(&peers->peers[i], arena))
			return KVPULL_ENOMEM;
	}
	return 0;
}

static void fds_close(struct kvpull_shm_peer *peer)
{
	struct kvpull_parts *welcome = &peer->welcome;

	while (welcome->fd_count)
		kvpull_fd_close(&welcome->fds[--welcome->fd_count]);
}

static void peer_hang_up(struct kvpull_shm_peers *peers,
			 struct kvpull_shm_peer *peer)
{
	kvpull_wait_end(peers->wait, &peer->socket);
	kvpull_wait_end(peers->wait, &peer->identity.pidfd);
	fds_close(peer);
}

void kvpull_shm_peers_fini(struct kvpull_shm_peers *peers, uint64_t close_by_ns)
{
	uint32_t i;

	for (i = 0; i < peers->peer_max; i++) {
		peer_hang_up(peers, &peers->peers[i]);
		kvpull_shm_detach(&peers->peers[i].memory, &peers->unmaps,
				  peers->device);
	}
	kvpull_unmaps_close(&peers->unmaps, close_by_ns);
}

void kvpull_shm_peer_lose(struct kvpull_shm_peers *peers,
			  struct kvpull_shm_peer *peer, int code)
{
	if (peer->state != KVPULL_SHM_PEER_GREETING &&
	    peer->state != KVPULL_SHM_PEER_ATTACHED)
		return;
	if (peer->state == KVPULL_SHM_PEER_GREETING)
		peers->greeting_count--;
	peer_hang_up(peers, peer);
	if (peer->lent)
		kvpull_mapping_close(peer->lent);
	peer->state = KVPULL_SHM_PEER_LOST;
	peer->code = code;
	peers->lost_count++;
}

_Static_assert(sizeof(KVPULL_ENDPOINT_FULL) == sizeof(KVPULL_ENDPOINT_USER),
	       "told apart by their texts");

/* The error, if the message is that of a producer who turns us away; or 0. */
static int is_turned_away(struct kvpull_shm_peers *peers, const uint8_t *bytes,
			  int byte_count, uint64_t now_ns)
{
	const char *why = NULL;
	int code = 0;

	if (byte_count != (int)sizeof(KVPULL_ENDPOINT_FULL))
		return 0;
	if (!memcmp(bytes, KVPULL_ENDPOINT_FULL, (size_t)byte_count)) {
		why = "has no room: raise its consumers_max, or ulimit -n";
		code = KVPULL_EFULL;
	} else if (!memcmp(bytes, KVPULL_ENDPOINT_USER, (size_t)byte_count)) {
		why = "does not let our user in: add it to its uids, or, from another user namespace, set key_file at both ends";
		code = KVPULL_EAUTH;
	}
	if (code && kvpull_second_passed(&peers->full_said_ns, now_ns))
		kvpull_warn(peers->log, "a producer %s", why);
	return code;
}

static void peer_receive(struct kvpull_shm_peers *peers, uint32_t index,
			 struct kvpull_shm_batch *batch)
{
	struct kvpull_shm_peer *peer = &peers->peers[index];
	uint8_t *bytes = kvpull_shm_batch_buffer(batch);
	/* Descriptors come once, with the welcome message. */
	int received =
		kvpull_parts_receive(&peer->welcome, peer->socket, bytes);
	int code = 0;

	if (received == KVPULL_EAGAIN) {
		errno = EMFILE; /* the kernel cuts them off and says no more */
		(void)kvpull_shortage(peers->shortage,
				      "a producer's descriptors",
				      KVPULL_CALL_OTHER);
	}
	if (received > 0 && peer->state == KVPULL_SHM_PEER_GREETING)
		code = is_turned_away(peers, bytes, received, batch->now_ns);
	if (code)
		received = code;
	if (received < 0)
		kvpull_shm_peer_lose(peers, peer, received);
	if (received > 0)
		kvpull_shm_batch_message(batch, KVPULL_EVENT_PEER_MESSAGE,
					 index, peer->identity.uid,
					 (size_t)received);
}

/* A call that gives tickets back: only how the producer ends it counts. */
static void peer_hear(struct kvpull_shm_peers *peers,
		      struct kvpull_shm_peer *peer)
{
	const int code = kvpull_endpoint_closed(peer->socket);

	if (code <= 0)
		kvpull_shm_peer_lose(peers, peer, code);
}

void kvpull_shm_peers_ready(struct kvpull_shm_peers *peers,
			    const struct kvpull_wait_token *token,
			    struct kvpull_shm_batch *batch)
{
	struct kvpull_shm_peer *peer = kvpull_shm_peer_at(peers, token->index);

	/* Something before it in the same batch may have ended it. */
	if (peer->socket < 0 ||
	    ((peer->generation ^ token->generation) & 0xffffff))
		return;
	if (token->kind == KVPULL_WAIT_PEER_DEATH)
		kvpull_shm_peer_lose(peers, peer, KVPULL_EPEER);
	else if (peer->gives)
		peer_hear(peers, peer);
	else
		peer_receive(peers, token->index, batch);
}

void kvpull_shm_peers_expire(struct kvpull_shm_peers *peers, uint64_t now_ns)
{
	uint32_t i;

	for (i = 0; peers->greeting_count && i < peers->peer_max; i++) {
		struct kvpull_shm_peer *peer = &peers->peers[i];

		if (peer->state != KVPULL_SHM_PEER_GREETING)
			continue;
		/* connect() is not told the time: count from the next poll. */
		if (!peer->deadline_ns)
			peer->deadline_ns = now_ns + peers->connect_ns;
		else if (now_ns >= peer->deadline_ns)
			kvpull_shm_peer_lose(peers, peer, KVPULL_EPEER);
	}
}

static int is_pinned(const struct kvpull_shm_peer *peer)
{
	return peer->lent && !kvpull_mapping_is_free(peer->lent);
}

/* When it is due by itself; no event tells when a pin ends. */
static uint64_t peer_due_ns(const struct kvpull_shm_peers *peers,
			    const struct kvpull_shm_peer *peer)
{
	const uint64_t now_ns = peers->shortage->now_ns;

	if (peer->state == KVPULL_SHM_PEER_GREETING)
		return peer->deadline_ns ? peer->deadline_ns :
					   now_ns + peers->connect_ns;
	if (peer->state == KVPULL_SHM_PEER_LOST && is_pinned(peer))
		return now_ns + PINNED_NS;
	return UINT64_MAX;
}

uint64_t kvpull_shm_peers_due_ns(const struct kvpull_shm_peers *peers)
{
	const uint32_t any = peers->greeting_count + peers->lost_count;
	uint64_t due_ns = UINT64_MAX;
	uint32_t i;

	for (i = 0; any && i < peers->peer_max; i++)
		due_ns = kvpull_least(due_ns,
				      peer_due_ns(peers, &peers->peers[i]));
	return due_ns;
}

void kvpull_shm_peers_report(struct kvpull_shm_peers *peers,
			     struct kvpull_shm_batch *batch)
{
	uint32_t i;

	for (i = 0; peers->lost_count && kvpull_events_room(&batch->told) &&
		    i < peers->peer_max;
	     i++) {
		struct kvpull_shm_peer *peer = &peers->peers[i];

		if (peer->state != KVPULL_SHM_PEER_LOST || peer->reads_open ||
		    is_pinned(peer))
			continue;
		kvpull_shm_detach(&peer->memory, &peers->unmaps, peers->device);
		if (peer->memory.device_leaving)
			continue;
		kvpull_events_add(&batch->told, KVPULL_EVENT_PEER_DOWN, i)
			->code = peer->code;
		peer_clear(peer);
		peers->lost_count--;
	}
}

int kvpull_shm_peers_are_due(const struct kvpull_shm_peers *peers)
{
	uint32_t i;

	for (i = 0; peers->lost_count && i < peers->peer_max; i++) {
		const struct kvpull_shm_peer *peer = &peers->peers[i];

		if (peer->state == KVPULL_SHM_PEER_LOST &&
		    (!peer->reads_cancelled ||
		     (!peer->reads_open && !is_pinned(peer) &&
		      !peer->memory.device_leaving)))
			return 1;
	}
	return 0;
}

static int peer_wait(struct kvpull_shm_peers *peers, uint32_t index)
{
	const struct kvpull_shm_peer *peer = &peers->peers[index];
	struct kvpull_wait_token token = { .kind = KVPULL_WAIT_PEER_SOCKET,
					   .index = index,
					   .generation = peer->generation };
	int code = kvpull_wait_add(peers->wait, peer->socket, token);

	token.kind = KVPULL_WAIT_PEER_DEATH;
	if (!code && peer->identity.pidfd >= 0)
		code = kvpull_wait_add(peers->wait, peer->identity.pidfd,
				       token);
	return code;
}

/* The folder is there and safe; log NULL: whoever asks says what it means. */
static int folder_open(const struct kvpull_shm_peers *peers,
		       const struct kvpull_log *log)
{
	const int code = kvpull_folder_open(peers->folder, log);

	return code == KVPULL_EAGAIN ?
		       kvpull_shortage(peers->shortage, "socket folder",
				       KVPULL_CALL_FOLDER) :
		       code;
}

int kvpull_shm_peers_reach(const struct kvpull_transport *transport,
			   const char *address)
{
	const struct kvpull_shm_peers *peers =
		&kvpull_shm_of_const(transport)->peers;
	const int code = folder_open(peers, NULL);

	return code ? code : kvpull_endpoint_find(peers->folder->fd, address);
}

/* Connect, learn who is there, and wait on it; after an error all is closed. */
static int peer_call(struct kvpull_shm_peers *peers, uint32_t index,
		     const char *address)
{
	struct kvpull_shm_peer *peer = &peers->peers[index];
	int code = kvpull_endpoint_connect(peers->folder->fd, address,
					   peers->log, &peer->socket);

	/* A full backlog is not logged: it passes. */
	if (code == KVPULL_EAGAIN && kvpull_errno_is_shortage(errno))
		(void)kvpull_shortage(peers->shortage, "connect",
				      KVPULL_CALL_WATCH);
	if (code)
		return code;
	peer->generation++;
	code = kvpull_identity_get(&peer->identity, peer->socket);
	/* Anybody can take a dead producer's name, and fill our table of them. */
	peer->welcome.fds_ended =
		code ||
		!kvpull_folder_trusts(peers->folder, peer->identity.uid);
	/* A good one sends them after our hello. */
	if (!peer->welcome.fds_ended)
		kvpull_endpoint_trust(peer->socket);
	if (!code)
		code = kvpull_identity_watch(&peer->identity, peer->socket);
	if (!code)
		code = peer_wait(peers, index) ? KVPULL_EAGAIN : 0;
	if (code == KVPULL_EAGAIN)
		(void)kvpull_shortage(peers->shortage, "connect",
				      KVPULL_CALL_WATCH);
	if (code)
		peer_hang_up(peers, peer);
	return code;
}

int kvpull_shm_peer_connect(struct kvpull_transport *transport,
			    const char *address, uint32_t *index)
{
	struct kvpull_shm_peers *peers = &kvpull_shm_of(transport)->peers;
	uint32_t i = 0;
	int code;

	while (i < peers->peer_max &&
	       peers->peers[i].state != KVPULL_SHM_PEER_FREE)
		i++;
	if (i == peers->peer_max)
		return KVPULL_EFULL;
	code = folder_open(peers, peers->log);
	if (!code)
		code = peer_call(peers, i, address);
	if (code)
		return code;
	peers->peers[i].state = KVPULL_SHM_PEER_GREETING;
	peers->greeting_count++;
	*index = i;
	return 0;
}

int kvpull_shm_peer_send(struct kvpull_transport *transport, uint32_t index,
			 const void *bytes, size_t byte_count)
{
	struct kvpull_shm_peers *peers = &kvpull_shm_of(transport)->peers;
	const struct kvpull_shm_peer *peer = kvpull_shm_peer_at(peers, index);
	const struct kvpull_message message = { .bytes = bytes,
						.byte_count = byte_count };

	if (peer->socket < 0)
		return KVPULL_EPEER;
	return kvpull_endpoint_send(peer->socket, &message, peers->log);
}

int kvpull_shm_peer_attach(struct kvpull_shm_peers *peers, uint32_t index,
			   const struct kvpull_serve *remote)
{
	struct kvpull_shm_peer *peer = kvpull_shm_peer_at(peers, index);
	const struct kvpull_shm_handed handed = {
		.log = peers->log,
		.device = peers->device,
		.own = peers->own,
		.device_first = index * KVPULL_DEVICE_MEMORIES_MAX,
		.identity = &peer->identity,
		.welcome = &peer->welcome,
		.file_direct = peers->file_direct,
	};
	int code;

	if (peer->state != KVPULL_SHM_PEER_GREETING)
		return KVPULL_EPEER;
	code = kvpull_shm_attach(&peer->memory, &handed, remote);
	if (code == KVPULL_ENOMEM)
		code = kvpull_shortage(peers->shortage, "a producer's memory",
				       KVPULL_CALL_SHARE);
	fds_close(peer);
	if (code) {
		kvpull_shm_detach(&peer->memory, &peers->unmaps, peers->device);
		return code;
	}
	peer->state = KVPULL_SHM_PEER_ATTACHED;
	peers->greeting_count--;
	return 0;
}

void kvpull_shm_peers_device_end(struct kvpull_shm_peers *peers,
				 struct kvpull_shm_batch *batch,
				 const struct kvpull_device_end *end)
{
	const uint32_t index = end->index / KVPULL_DEVICE_MEMORIES_MAX;
	struct kvpull_shm_peer *peer = kvpull_shm_peer_at(peers, index);

	if (end->kind != KVPULL_DEVICE_UNMAP) {
		if (end->code)
			kvpull_shm_peer_lose(peers, peer, end->code);
		else if (end->bytes_per_us &&
			 peer->state == KVPULL_SHM_PEER_ATTACHED)
			kvpull_events_add(&batch->told, KVPULL_EVENT_PEER_RATE,
					  index)
				->code = (int32_t)end->bytes_per_us;
		return;
	}
	kvpull_check(peers->log, peer->memory.device_leaving > 0);
	peer->memory.device_leaving--;
}

int kvpull_shm_peer_lend(struct kvpull_shm_peers *peers, uint32_t index,
			 struct kvpull_mapping *mapping)
{
	struct kvpull_shm_peer *peer = kvpull_shm_peer_at(peers, index);

	if (peer->state != KVPULL_SHM_PEER_ATTACHED)
		return KVPULL_EPEER;
	if (peer->memory.foreign_count || peer->memory.file_count ||
	    peer->memory.device_count)
		return KVPULL_EUNSUPPORTED;
	mapping->slot_count = peer->memory.slot_count;
	mapping->entries = (const void *)peer->memory.entries_memory;
	mapping->regions = peer->memory.tables.regions;
	peer->lent = mapping;
	return 0;
}
