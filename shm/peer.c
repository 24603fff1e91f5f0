/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that the peer hands over is checked before it is used: descriptors by
 * kvpull_segment_map() (seals, size), the doorbell by its kind, foreign memory
 * by reading from it once.
 *
 * Its descriptors' flags are the peer's too, so nothing is done with one that
 * could block without O_NONBLOCK.
 */
#include "shm/peer.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/wrap.h"
#include "shm/segment.h"
#include "shm/state.h"

/* Descriptors of a welcome, in this order; then one a region. */
enum welcome_fd {
	FD_ENTRIES = 0,
	FD_RING,
	FD_DOORBELL,
	FD_REGIONS
};

/* Between looks at a lost peer that the engine's thread reads. */
#define PINNED_NS UINT64_C(100000)
/* The largest ring that ring.h knows. */
#define RING_RECORDS_MAX (UINT32_C(1) << 20)

static void peer_clear(struct kvpull_shm_peer *peer)
{
	*peer = (struct kvpull_shm_peer){
		.generation = peer->generation,
		.socket = -1,
		.doorbell = -1,
		.identity.pidfd = -1,
		.welcome.bytes = peer->welcome.bytes,
		.welcome.fds = peer->welcome.fds,
		.tables = peer->tables,
	};
}

static int tables_take(struct kvpull_shm_peer *peer, struct kvpull_arena *arena)
{
	struct kvpull_shm_tables *tables = &peer->tables;

	peer->welcome.bytes = (uint8_t *)kvpull_arena_take(
		arena, KVPULL_MESSAGE_BYTES_MAX, 1);
	peer->welcome.fds = (int *)kvpull_arena_take(
		arena, KVPULL_ENDPOINT_FDS_MAX, sizeof(*peer->welcome.fds));
	tables->mappings = (struct kvpull_shm_mapping *)kvpull_arena_take(
		arena, KVPULL_REGIONS_MAX, sizeof(*tables->mappings));
	tables->regions = (const uint8_t **)kvpull_arena_take(
		arena, KVPULL_REGIONS_MAX, sizeof(*tables->regions));
	tables->remote_address = (uint64_t *)kvpull_arena_take(
		arena, KVPULL_REGIONS_MAX, sizeof(*tables->remote_address));
	tables->files = (struct kvpull_file *)kvpull_arena_take(
		arena, KVPULL_REGIONS_MAX, sizeof(*tables->files));
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
		.peer_max = params->peers_max,
		.file_direct = params->file_direct,
		.connect_ns = params->connect_ns,
	};
	peers->peers = (struct kvpull_shm_peer *)kvpull_arena_take(
		arena, params->peers_max, sizeof(*peers->peers));
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

struct kvpull_shm_peer *kvpull_shm_peer_at(const struct kvpull_shm_peers *peers,
					   uint32_t index)
{
	kvpull_check(peers->log, index < peers->peer_max);
	return &peers->peers[index];
}

struct kvpull_foreign
kvpull_shm_peer_foreign(const struct kvpull_shm_peer *peer)
{
	return (struct kvpull_foreign){
		.pid = peer->identity.pid,
		.mapped = peer->tables.regions,
		.remote_address = peer->tables.remote_address,
	};
}

static void fds_close(struct kvpull_shm_peer *peer)
{
	struct kvpull_parts *welcome = &peer->welcome;

	while (welcome->fd_count)
		if (welcome->fds[--welcome->fd_count] >= 0)
			(void)close(welcome->fds[welcome->fd_count]);
}

static void peer_unmap(struct kvpull_shm_peers *peers,
		       struct kvpull_shm_peer *peer)
{
	const struct kvpull_shm_tables *tables = &peer->tables;
	uint32_t i;

	kvpull_unmap(&peers->unmaps, tables->mappings, peer->region_count);
	for (i = 0; i < peer->region_count; i++) {
		tables->mappings[i] = (struct kvpull_shm_mapping){ 0 };
		tables->regions[i] = NULL;
		kvpull_file_close(&tables->files[i]);
	}
	peer->region_count = 0;
	if (peer->entries_memory)
		kvpull_segment_unmap(
			peer->entries_memory,
			(size_t)peer->slot_count *
				sizeof(struct kvpull_revocation_entry));
	if (peer->ring_memory)
		kvpull_segment_unmap(peer->ring_memory, peer->ring_bytes);
	if (peer->doorbell >= 0)
		(void)close(peer->doorbell);
	peer->entries_memory = NULL;
	peer->ring_memory = NULL;
	peer->doorbell = -1;
}

static void peer_hang_up(struct kvpull_shm_peers *peers,
			 struct kvpull_shm_peer *peer)
{
	kvpull_wait_end(peers->wait, &peer->socket);
	kvpull_wait_end(peers->wait, &peer->identity.pidfd);
	fds_close(peer);
}

void kvpull_shm_peers_fini(struct kvpull_shm_peers *peers)
{
	uint32_t i;

	for (i = 0; i < peers->peer_max; i++) {
		peer_hang_up(peers, &peers->peers[i]);
		peer_unmap(peers, &peers->peers[i]);
	}
	kvpull_unmaps_close(&peers->unmaps);
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
		why = "does not let our user in: add it to its uids";
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
	/* Descriptors come once, with the welcome. */
	int received =
		kvpull_parts_receive(&peer->welcome, peer->socket, bytes);
	int code = 0;

	if (received == KVPULL_EAGAIN)
		(void)kvpull_shortage(peers->shortage,
				      "a producer's descriptors", EMFILE);
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

	for (i = 0; any && i < peers->peer_max; i++) {
		const uint64_t at_ns = peer_due_ns(peers, &peers->peers[i]);

		if (at_ns < due_ns)
			due_ns = at_ns;
	}
	return due_ns;
}

void kvpull_shm_peers_report(struct kvpull_shm_peers *peers,
			     struct kvpull_shm_batch *batch)
{
	uint32_t i;

	for (i = 0; peers->lost_count && kvpull_shm_batch_room(batch) &&
		    i < peers->peer_max;
	     i++) {
		struct kvpull_shm_peer *peer = &peers->peers[i];

		if (peer->state != KVPULL_SHM_PEER_LOST || peer->reads_open ||
		    is_pinned(peer))
			continue;
		kvpull_shm_batch_add(batch, KVPULL_EVENT_PEER_DOWN, i)->code =
			peer->code;
		peer_unmap(peers, peer);
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
		     (!peer->reads_open && !is_pinned(peer))))
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

	return code == KVPULL_EAGAIN ? kvpull_shortage(peers->shortage,
						       "socket folder", errno) :
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
		(void)kvpull_shortage(peers->shortage, "connect", errno);
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
		(void)kvpull_shortage(peers->shortage, "connect", errno);
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

/* Kinds, sizes and the number of descriptors, before anything is mapped. */
static int remote_check(const struct kvpull_shm_peer *peer,
			const struct kvpull_serve *remote,
			const struct kvpull_log *log)
{
	uint32_t fd_count = FD_REGIONS;
	uint32_t i;

	if (!remote->region_count ||
	    remote->region_count > KVPULL_REGIONS_MAX || !remote->slot_count)
		return KVPULL_EPROTO;
	for (i = 0; i < remote->region_count; i++) {
		const struct kvpull_region_view *region = &remote->regions[i];

		if (!region->bytes || region->bytes > SIZE_MAX / 2 ||
		    region->fd_offset > SIZE_MAX / 2 ||
		    region->fd_index >= remote->region_count)
			return KVPULL_EPROTO;
		if (region->kind == KVPULL_REGION_FOREIGN)
			continue;
		if (!kvpull_region_has_fd(region)) {
			kvpull_warn(
				log,
				"peer's region %u is of kind %u: this version cannot read it",
				i, region->kind);
			return KVPULL_EUNSUPPORTED;
		}
		if (fd_count <= FD_REGIONS + region->fd_index)
			fd_count = FD_REGIONS + region->fd_index + 1;
	}
	if (fd_count != peer->welcome.fd_count) {
		kvpull_warn(log,
			    "welcome came with %u descriptors, %u expected",
			    peer->welcome.fd_count, fd_count);
		return KVPULL_EPROTO;
	}
	return 0;
}

/* Each descriptor of memory once, as far as its regions go. */
static int memory_map(const struct kvpull_shm_peers *peers,
		      const struct kvpull_shm_peer *peer,
		      const struct kvpull_serve *remote)
{
	struct kvpull_shm_mapping *mappings = peer->tables.mappings;
	uint32_t i;
	int code = 0;

	for (i = 0; i < remote->region_count; i++) {
		const struct kvpull_region_view *region = &remote->regions[i];
		uint64_t *bytes = &mappings[region->fd_index].bytes;

		if (region->kind == KVPULL_REGION_PROVIDED &&
		    *bytes < region->fd_offset + region->bytes)
			*bytes = region->fd_offset + region->bytes;
	}
	for (i = 0; !code && i < remote->region_count; i++)
		if (mappings[i].bytes)
			code = kvpull_segment_map(
				peer->welcome.fds[FD_REGIONS + i],
				mappings[i].bytes, KVPULL_SEGMENT_READ_ONLY,
				peers->log, &mappings[i].base);
	return code;
}

/* Its memory is mapped; a file is opened. */
static int region_take(struct kvpull_shm_peers *peers,
		       struct kvpull_shm_peer *peer, uint32_t index,
		       const struct kvpull_region_view *region)
{
	const struct kvpull_shm_tables *tables = &peer->tables;
	const uint32_t is_unsealed = region->kind == KVPULL_REGION_UNSEALED;

	if (region->kind == KVPULL_REGION_PROVIDED) {
		tables->regions[index] =
			tables->mappings[region->fd_index].base +
			region->fd_offset;
		return 0;
	}
	if (region->kind == KVPULL_REGION_FOREIGN) {
		tables->remote_address[index] = (uintptr_t)region->base;
		peer->foreign_count++;
		peer->must_live = 1;
		return 0;
	}
	tables->files[index] =
		(struct kvpull_file){ .bytes = region->bytes,
				      .offset = region->fd_offset };
	peer->file_count++;
	peer->must_live |= is_unsealed;
	return kvpull_file_open(
		&tables->files[index],
		peer->welcome.fds[FD_REGIONS + region->fd_index],
		/* Its owner writes it through the page cache. */
		is_unsealed ? KVPULL_FILE_DIRECT_NO :
		region->kind == KVPULL_REGION_SLOTS ?
			      KVPULL_FILE_DIRECT_STRICT :
			      peers->file_direct,
		peers->log);
}

static int regions_take(struct kvpull_shm_peers *peers,
			struct kvpull_shm_peer *peer,
			const struct kvpull_serve *remote)
{
	uint32_t i;
	int code;

	peer->region_count = remote->region_count;
	peer->foreign_count = 0;
	peer->file_count = 0;
	peer->must_live = 0;
	code = memory_map(peers, peer, remote);
	for (i = 0; !code && i < remote->region_count; i++)
		code = region_take(peers, peer, i, &remote->regions[i]);
	if (code)
		return code;
	peer->slot_count = remote->slot_count;
	peer->entries_remote = (uintptr_t)remote->entries;
	return kvpull_segment_map(
		peer->welcome.fds[FD_ENTRIES],
		(size_t)remote->slot_count *
			sizeof(struct kvpull_revocation_entry),
		KVPULL_SEGMENT_READ_ONLY, peers->log, &peer->entries_memory);
}

/* A stream socket of this node: shutting it down does not block. */
static int doorbell_take(struct kvpull_shm_peer *peer)
{
	int *fd = &peer->welcome.fds[FD_DOORBELL];
	socklen_t option_bytes = sizeof(int);
	int domain = 0;
	int type = 0;

	if (getsockopt(*fd, SOL_SOCKET, SO_DOMAIN, &domain, &option_bytes) ||
	    getsockopt(*fd, SOL_SOCKET, SO_TYPE, &type, &option_bytes) ||
	    domain != AF_UNIX || type != SOCK_STREAM)
		return KVPULL_EPROTO;
	peer->doorbell = *fd;
	*fd = -1;
	return 0;
}

static int ring_attach(struct kvpull_shm_peer *peer,
		       const struct kvpull_log *log)
{
	uint64_t bytes;
	const int fd = peer->welcome.fds[FD_RING];
	int code = kvpull_segment_bytes(fd, &bytes);

	if (code || !bytes ||
	    bytes > kvpull_ring_bytes(RING_RECORDS_MAX) + KVPULL_HUGE_BYTES)
		return KVPULL_EPROTO;
	peer->ring_bytes = (size_t)bytes;
	code = kvpull_segment_map(fd, peer->ring_bytes, KVPULL_SEGMENT_SHARED,
				  log, &peer->ring_memory);
	if (!code)
		code = kvpull_ring_writer_init(&peer->writer, peer->ring_memory,
					       peer->ring_bytes);
	return code ? code : doorbell_take(peer);
}

/*
 * Memory that is its own only while it lives: can that be seen? Of foreign
 * memory the pid is the kernel's word, not the welcome's. That it is the
 * process of the revocation table is seen by reading the table both ways.
 */
static int life_probe(const struct kvpull_shm_peer *peer,
		      const struct kvpull_log *log)
{
	const struct kvpull_revocation_entry *entries =
		(const void *)peer->entries_memory;
	struct kvpull_revocation_value value;
	const char *why = NULL;

	if (!peer->must_live)
		return 0;
	if (peer->identity.pidfd < 0)
		why = "the peer's death could not be seen (no pidfd)";
	else if (!peer->foreign_count)
		return 0;
	else if (peer->identity.pid <= 0)
		why = "the peer is in another PID namespace";
	else if (kvpull_foreign_entry(peer->identity.pid, peer->entries_remote,
				      &value))
		why = strerror(errno);
	else if (value.incarnation !=
		 kvpull_revocation_read(&entries[0]).incarnation)
		why = "another process answers at that address";
	if (!why)
		return 0;
	kvpull_warn(log, "peer's own memory cannot be read from pid %d: %s",
		    peer->identity.pid, why);
	return KVPULL_EROUTE;
}

int kvpull_shm_peer_attach(struct kvpull_shm_peers *peers, uint32_t index,
			   const struct kvpull_serve *remote)
{
	struct kvpull_shm_peer *peer = kvpull_shm_peer_at(peers, index);
	int code;

	if (peer->state != KVPULL_SHM_PEER_GREETING)
		return KVPULL_EPEER;
	code = remote_check(peer, remote, peers->log);
	if (!code)
		code = regions_take(peers, peer, remote);
	if (!code)
		code = ring_attach(peer, peers->log);
	if (!code)
		code = life_probe(peer, peers->log);
	if (code == KVPULL_ENOMEM)
		code = kvpull_shortage(peers->shortage, "a producer's memory",
				       errno);
	fds_close(peer);
	if (code) {
		peer_unmap(peers, peer);
		return code;
	}
	peer->state = KVPULL_SHM_PEER_ATTACHED;
	peers->greeting_count--;
	return 0;
}

int kvpull_shm_peer_lend(struct kvpull_shm_peers *peers, uint32_t index,
			 struct kvpull_mapping *mapping)
{
	struct kvpull_shm_peer *peer = kvpull_shm_peer_at(peers, index);

	if (peer->state != KVPULL_SHM_PEER_ATTACHED)
		return KVPULL_EPEER;
	if (peer->foreign_count || peer->file_count)
		return KVPULL_EUNSUPPORTED;
	mapping->slot_count = peer->slot_count;
	mapping->entries = (const void *)peer->entries_memory;
	mapping->regions = peer->tables.regions;
	peer->lent = mapping;
	return 0;
}

int kvpull_shm_peer_notify(struct kvpull_transport *transport, uint32_t index,
			   const struct kvpull_record *record)
{
	struct kvpull_shm_peers *peers = &kvpull_shm_of(transport)->peers;
	struct kvpull_shm_peer *peer = kvpull_shm_peer_at(peers, index);
	int code;

	if (peer->state != KVPULL_SHM_PEER_ATTACHED)
		return KVPULL_EPEER;
	code = kvpull_ring_push(&peer->writer, record);
	if (code != 1)
		return code;
	/* How it rings: caller.c. */
	if (shutdown(peer->doorbell, SHUT_WR))
		kvpull_debug(peers->log, "doorbell: %s", strerror(errno));
	return 0;
}
