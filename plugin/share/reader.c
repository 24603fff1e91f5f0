// SPDX-License-Identifier: Apache-2.0
/*
 * Invariants: a destination is taken from the call until its end is told; a piece
 * is good only by a guard that was read in GUARDS. plugin/reads/reads.h has the
 * states; each probe and read is a request of it with one part, by the same index.
 * A probe of a mapped directory is judged in place, and has no phase.
 */
#include "plugin/share/reader.h"

#include <string.h>

#include "plugin/reads/judge.h"
#include "plugin/reads/reads.h"

#define WINDOWS ((size_t)KVPULL_READER_OPEN_MAX * KVPULL_READER_ITEMS_MAX)

#define KEYS_AHEAD 4u /* whose windows are on their way while one is judged */

struct read {
	struct kvpull_strip strip;
	uint32_t group_first[KVPULL_GROUPS_MAX + 1];
	uint32_t serial;
	uint32_t peer;
	uint32_t local; /* KVPULL_NONE: it is a probe */
	uint32_t count;
	int32_t given_up; /* before it was told: why it is not wanted, or 0 */
	int32_t code;
	uint64_t incarnation;
	uint8_t *windows; /* KVPULL_POOL_WINDOW_BYTES each */
	uint32_t places[KVPULL_READER_ITEMS_MAX]; /* whose guards are read */
	uint32_t remote_ids[KVPULL_READER_ITEMS_MAX];
	uint32_t local_ids[KVPULL_READER_ITEMS_MAX];
	uint64_t generations[KVPULL_READER_ITEMS_MAX];
	struct kvpull_revocation_value guards[KVPULL_READER_ITEMS_MAX];
	struct kvpull_pool_key keys[KVPULL_READER_ITEMS_MAX];
	struct kvpull_pool_found found[KVPULL_READER_ITEMS_MAX];
	int32_t codes[KVPULL_READER_ITEMS_MAX];
	int32_t block_codes[KVPULL_READER_ITEMS_MAX]; /* by the route */
};

struct peer {
	struct kvpull_share_reader_peer is;
	uint32_t is_used;
	uint32_t is_down;
	uint32_t reads;     /* whose end was not told */
	uint32_t place_end; /* places that can be read from here */
};

struct local {
	uint8_t *base;
	uint64_t block_bytes;
	uint32_t block_count;
	uint32_t first_bit; /* of its blocks, in taken */
};

struct kvpull_share_reader {
	struct kvpull_pool_namespace namespace_digest;
	struct peer peers[KVPULL_READER_PEERS_MAX];
	struct local locals[KVPULL_READER_LOCALS_MAX];
	uint32_t local_count;
	uint32_t block_count; /* of all locals */
	uint64_t *taken;      /* a bit a block: a read in flight writes it */
	struct kvpull_reads engine;
	struct read *reads; /* by the engine's request */
	struct kvpull_index_pool free;
	struct kvpull_index_list ended;
	uint32_t serial;
};

int kvpull_share_reader_local_add(struct kvpull_share_reader *reader,
				  uint8_t *base, uint64_t block_bytes,
				  uint32_t block_count, uint32_t *local)
{
	const uintptr_t first = (uintptr_t)base;
	uint32_t at;

	if (!base || !block_bytes || !block_count ||
	    block_bytes > (UINTPTR_MAX - first) / block_count)
		return KVPULL_EINVAL;
	for (at = 0; at < reader->local_count; at++) {
		const struct local *other = &reader->locals[at];
		const uintptr_t other_first = (uintptr_t)other->base;

		if (first < other_first +
				    other->block_bytes * other->block_count &&
		    other_first < first + block_bytes * block_count)
			return KVPULL_EINVAL;
	}
	if (reader->local_count == KVPULL_READER_LOCALS_MAX ||
	    block_count > KVPULL_READER_BLOCKS_MAX - reader->block_count)
		return KVPULL_EFULL;
	reader->locals[reader->local_count] =
		(struct local){ base, block_bytes, block_count,
				reader->block_count };
	reader->block_count += block_count;
	*local = reader->local_count++;
	return 0;
}

void kvpull_share_reader_local_undo(struct kvpull_share_reader *reader)
{
	reader->block_count -=
		reader->locals[--reader->local_count].block_count;
}

uint8_t *kvpull_share_reader_windows(const struct kvpull_share_reader *reader,
				     uint64_t *byte_count)
{
	*byte_count = WINDOWS * KVPULL_POOL_WINDOW_BYTES;
	return reader->reads[0].windows;
}

/* Each offset of a probe or a read lies in what was attached. */
static int peer_is_sound(const struct kvpull_share_reader_peer *peer,
			 const struct kvpull_serve *remote)
{
	const struct kvpull_pool_share *share = &peer->share;
	const uint64_t places =
		(uint64_t)share->chunk_count + share->slot_count;

	if (remote->region_count > KVPULL_SHARE_REGION_COUNT &&
	    (!share->slot_count ||
	     remote->regions[KVPULL_SHARE_REGION_SLOTS].bytes /
			     share->slot_count <
		     peer->chunk_bytes))
		return 0;
	return share->incarnation && share->chunk_count && peer->chunk_bytes &&
	       share->entry_count >= KVPULL_POOL_WINDOW &&
	       places < KVPULL_NONE && remote->slot_count >= places &&
	       remote->region_count >= KVPULL_SHARE_REGION_COUNT &&
	       remote->region_count <= KVPULL_SHARE_REGION_SLOTS + 1 &&
	       remote->regions[KVPULL_SHARE_REGION_DIRECTORY].bytes /
			       sizeof(struct kvpull_pool_entry) >=
		       share->entry_count &&
	       remote->regions[KVPULL_SHARE_REGION_CHUNKS].bytes /
			       share->chunk_count >=
		       peer->chunk_bytes;
}

int kvpull_share_reader_peer_add(struct kvpull_share_reader *reader,
				 const struct kvpull_share_reader_peer *params,
				 const struct kvpull_serve *remote,
				 uint32_t *peer)
{
	uint32_t at = 0;

	if (!peer_is_sound(params, remote))
		return KVPULL_EPROTO;
	while (at < KVPULL_READER_PEERS_MAX && reader->peers[at].is_used)
		at++;
	if (at == KVPULL_READER_PEERS_MAX)
		return KVPULL_EFULL;
	reader->peers[at] = (struct peer){
		.is = *params,
		.is_used = 1,
		.place_end = params->share.chunk_count,
	};
	if (remote->region_count > KVPULL_SHARE_REGION_COUNT)
		reader->peers[at].place_end += params->share.slot_count;
	*peer = at;
	return 0;
}

int kvpull_share_reader_peer_remove(struct kvpull_share_reader *reader,
				    uint32_t peer)
{
	if (peer >= KVPULL_READER_PEERS_MAX || !reader->peers[peer].is_used)
		return KVPULL_EINVAL;
	if (!reader->peers[peer].is_down || reader->peers[peer].reads)
		return KVPULL_EAGAIN;
	reader->peers[peer].is_used = 0;
	return 0;
}

/* Own blocks to which reads in flight write. */

static uint64_t *taken_word(struct kvpull_share_reader *reader, uint32_t local,
			    uint32_t block, uint64_t *mask)
{
	const uint32_t bit = reader->locals[local].first_bit + block;

	*mask = UINT64_C(1) << bit % 64;
	return &reader->taken[bit / 64];
}

static int block_take(struct kvpull_share_reader *reader, uint32_t local,
		      uint32_t block)
{
	uint64_t mask;
	uint64_t *word = taken_word(reader, local, block, &mask);

	if (*word & mask)
		return KVPULL_EINVAL;
	*word |= mask;
	return 0;
}

static void blocks_give(struct kvpull_share_reader *reader,
			const struct read *read, uint32_t count)
{
	uint32_t at;

	for (at = 0; at < count; at++) {
		uint64_t mask;
		uint64_t *word = taken_word(reader, read->local,
					    read->local_ids[at], &mask);

		*word &= ~mask;
	}
}

/* The states of a read. */

static void codes_set(struct read *read, int32_t code)
{
	uint32_t at;

	read->code = code;
	for (at = 0; at < read->count; at++)
		read->codes[at] = code;
}

static void read_ended(void *own, uint32_t index)
{
	struct kvpull_share_reader *reader = own;
	struct read *read = &reader->reads[index];
	const int32_t code = reader->engine.requests[index].code;
	uint32_t at;

	/*
	 * EABORTED: the connection was cut to cancel a read. If this read was
	 * the one cancelled, given_up overrides the code below.
	 */
	codes_set(read, code == KVPULL_EABORTED ? KVPULL_EAGAIN : code);
	for (at = 0; !code && read->local != KVPULL_NONE && at < read->count;
	     at++) {
		read->codes[at] = kvpull_guard_judge(
			KVPULL_GUARD_CHUNK, &read->guards[at],
			read->incarnation, read->generations[at]);
		if (!read->codes[at])
			read->codes[at] = read->block_codes[at];
		if (!read->code)
			read->code = read->codes[at];
	}
	kvpull_index_list_push(&reader->ended, index);
}

/*
 * The window of each key begins at entry scale * firsts[key]. It is a cold line
 * an entry, and which one is the key's is not foreseen: without the prefetch
 * each key waits for memory by itself.
 */
static void windows_judge(const struct kvpull_share_reader *reader,
			  struct read *read,
			  const struct kvpull_pool_entry *entries,
			  const uint32_t *firsts, uint32_t scale)
{
	uint32_t at, entry;

	for (at = 0; at < read->count; at++) {
		for (entry = 0; at + KEYS_AHEAD < read->count &&
				entry < KVPULL_POOL_WINDOW;
		     entry++)
			__builtin_prefetch(entries +
					   (size_t)firsts[at + KEYS_AHEAD] *
						   scale +
					   entry);
		(void)kvpull_pool_judge(
			&reader->peers[read->peer].is.share, &read->keys[at],
			entries + (size_t)firsts[at] * scale, &read->found[at]);
	}
	kvpull_revocation_seen();
}

/* Guards are judged when it has ended: some of its pieces may be good. */
static int read_judge(void *own, const struct kvpull_reads_part *part,
		      enum kvpull_reads_state phase)
{
	struct kvpull_share_reader *reader = own;
	struct read *read = &reader->reads[part->request];

	if (read->given_up)
		return read->given_up;
	if (phase == KVPULL_READS_DATA && read->local == KVPULL_NONE)
		windows_judge(reader, read, (const void *)read->windows,
			      read->local_ids, KVPULL_POOL_WINDOW);
	return 0;
}

static int read_ready(void *own, uint32_t index)
{
	const struct kvpull_share_reader *reader = own;

	return reader->peers[reader->reads[index].peer].is_down ? KVPULL_EPEER :
								  0;
}

static int read_lost(void *own, const struct kvpull_reads_part *part)
{
	return read_ready(own, part->request);
}

static int read_make(void *own, uint32_t index)
{
	struct kvpull_share_reader *reader = own;
	struct read *read = &reader->reads[index];
	const struct peer *peer = &reader->peers[read->peer];
	struct kvpull_reads_part *part =
		kvpull_reads_part_add(&reader->engine, index);

	part->transport = peer->is.transport;
	part->handle = peer->is.handle;
	part->read.strip_count = 1;
	part->read.strips = &read->strip;
	part->read.remote_ids = read->remote_ids;
	part->read.local_ids = read->local_ids;
	part->read.group_first = read->group_first;
	part->read.byte_count = read->strip.row_bytes * read->count;
	part->read.slots = read->places;
	part->read.entries = read->guards;
	part->read.slot_count = read->count;
	part->read.codes =
		read->local == KVPULL_NONE ? NULL : read->block_codes;
	return 0;
}

static const struct kvpull_reads_owner reader_owner = {
	.ready = read_ready,
	.parts_make = read_make,
	.lost = read_lost,
	.judge = read_judge,
	.ended = read_ended,
};

/* The peer's directory, where it is mapped: nothing is copied of it. */
static const struct kvpull_pool_entry *directory_of(const struct peer *peer)
{
	struct kvpull_transport *transport = peer->is.transport;

	return transport->ops->mapped && !peer->is_down ?
		       (const void *)transport->ops->mapped(
			       transport, peer->is.handle,
			       KVPULL_SHARE_REGION_DIRECTORY) :
		       NULL;
}

struct kvpull_share_reader *
kvpull_share_reader_open(const struct kvpull_pool_namespace *namespace_digest,
			 struct kvpull_arena *arena)
{
	struct kvpull_share_reader *reader =
		kvpull_arena_take(arena, 1, sizeof(*reader));
	uint8_t *windows;
	uint32_t at;

	if (!reader)
		return NULL;
	reader->namespace_digest = *namespace_digest;
	KVPULL_ARENA_TAKE(arena, reader->taken, KVPULL_READER_BLOCKS_MAX / 64);
	KVPULL_ARENA_TAKE(arena, reader->reads, KVPULL_READER_OPEN_MAX);
	windows = kvpull_arena_take(arena, WINDOWS, KVPULL_POOL_WINDOW_BYTES);
	kvpull_index_pool_init(&reader->free, KVPULL_READER_OPEN_MAX, arena);
	kvpull_index_list_init(&reader->ended, KVPULL_READER_OPEN_MAX, arena);
	reader->engine.owner = &reader_owner;
	reader->engine.own = reader;
	kvpull_reads_init(&reader->engine, KVPULL_READER_OPEN_MAX,
			  KVPULL_READER_OPEN_MAX, arena);
	if (!kvpull_arena_ok(arena))
		return NULL;
	for (at = 0; at < KVPULL_READER_OPEN_MAX; at++)
		reader->reads[at].windows =
			windows + (size_t)at * KVPULL_READER_ITEMS_MAX *
					  KVPULL_POOL_WINDOW_BYTES;
	return reader;
}

/* Why the read is not wanted: the first reason counts. */
static void read_unwant(struct kvpull_share_reader *reader, uint32_t index,
			int32_t code)
{
	if (!reader->reads[index].given_up &&
	    reader->engine.requests[index].state != KVPULL_READS_DRAIN)
		reader->reads[index].given_up = code;
}

void kvpull_share_reader_set_namespace(
	struct kvpull_share_reader *reader,
	const struct kvpull_pool_namespace *namespace_digest)
{
	uint32_t at;

	reader->namespace_digest = *namespace_digest;
	/* Not cancelled: that may cut a connection, and others' reads with it. */
	for (at = 0; at < KVPULL_READER_OPEN_MAX; at++)
		read_unwant(reader, at, KVPULL_ESTALE);
}

/* Calls that begin a probe or a read. */

static int peer_code(const struct kvpull_share_reader *reader, uint32_t peer)
{
	if (peer >= KVPULL_READER_PEERS_MAX || !reader->peers[peer].is_used)
		return KVPULL_EINVAL;
	if (reader->peers[peer].is_down)
		return KVPULL_EPEER;
	return memcmp(&reader->peers[peer].is.namespace_digest,
		      &reader->namespace_digest,
		      sizeof(reader->namespace_digest)) == 0 ?
		       0 :
		       KVPULL_ESTALE;
}

/* Takes a free read, for so many blocks of one strip; NULL: none is free. */
static struct read *read_take(struct kvpull_share_reader *reader, uint32_t peer,
			      uint32_t count)
{
	const uint32_t index = kvpull_index_pool_peek(&reader->free);
	struct read *read;
	uint32_t group;

	if (index == KVPULL_NONE)
		return NULL;
	read = &reader->reads[index];
	read->peer = peer;
	read->count = count;
	read->given_up = 0;
	read->incarnation = reader->peers[peer].is.share.incarnation;
	for (group = 1; group <= KVPULL_GROUPS_MAX; group++)
		read->group_first[group] = count;
	return read;
}

static void read_begin(struct kvpull_share_reader *reader, struct read *read,
		       uint64_t deadline_ns, uint64_t *id)
{
	static const enum kvpull_reads_state phases[] = { KVPULL_READS_DATA,
							  KVPULL_READS_GUARDS,
							  KVPULL_READS_FREE };
	static const enum kvpull_reads_state data_alone[] = {
		KVPULL_READS_DATA, KVPULL_READS_FREE
	};
	const uint32_t index = kvpull_index_pool_take(&reader->free);
	const int is_probe = read->local == KVPULL_NONE;
	const struct kvpull_pool_entry *directory =
		is_probe ? directory_of(&reader->peers[read->peer]) : NULL;

	reader->peers[read->peer].reads++;
	read->serial = ++reader->serial;
	read->strip.row_count = 1;
	*id = (uint64_t)read->serial << 32 | index;
	kvpull_reads_begin(&reader->engine, index,
			   directory ? data_alone + 1 :
			   is_probe  ? data_alone :
				       phases,
			   1, deadline_ns ? deadline_ns : UINT64_MAX);
	if (directory)
		windows_judge(reader, read, directory, read->remote_ids, 1);
	kvpull_reads_step(&reader->engine, index);
}

int kvpull_share_reader_probe(struct kvpull_share_reader *reader,
			      const struct kvpull_share_reader_probe *probe,
			      uint64_t *id)
{
	const int code = peer_code(reader, probe->peer);
	struct read *read;
	uint32_t at;

	if (code)
		return code;
	if (!probe->key_count || probe->key_count > KVPULL_READER_ITEMS_MAX)
		return KVPULL_EINVAL;
	read = read_take(reader, probe->peer, probe->key_count);
	if (!read)
		return KVPULL_EFULL;
	read->local = KVPULL_NONE;
	for (at = 0; at < read->count; at++) {
		read->keys[at] = probe->keys[at];
		read->remote_ids[at] = kvpull_pool_window(
			&reader->peers[read->peer].is.share, &read->keys[at]);
		read->local_ids[at] = at;
	}
	read->strip = (struct kvpull_strip){
		.region_index = KVPULL_SHARE_REGION_DIRECTORY,
		.remote_block_stride = sizeof(struct kvpull_pool_entry),
		.local = read->windows,
		.local_block_stride = KVPULL_POOL_WINDOW_BYTES,
		.row_bytes = KVPULL_POOL_WINDOW_BYTES,
	};
	read_begin(reader, read, probe->deadline_ns, id);
	return 0;
}

/* Takes the pieces and their blocks. KVPULL_EINVAL: nothing was taken. */
static int pieces_take(struct kvpull_share_reader *reader, struct read *read,
		       const struct kvpull_reader_piece *pieces)
{
	const struct peer *peer = &reader->peers[read->peer];
	const uint32_t chunk_count = peer->is.share.chunk_count;
	const uint32_t in_file = pieces[0].chunk >= chunk_count;
	uint32_t at;

	read->strip.region_index = in_file ? KVPULL_SHARE_REGION_SLOTS :
					     KVPULL_SHARE_REGION_CHUNKS;
	for (at = 0; at < read->count; at++) {
		const struct kvpull_reader_piece *piece = &pieces[at];

		if (piece->chunk >= peer->place_end ||
		    (piece->chunk >= chunk_count) != in_file ||
		    piece->block >= reader->locals[read->local].block_count ||
		    block_take(reader, read->local, piece->block)) {
			blocks_give(reader, read, at);
			return KVPULL_EINVAL;
		}
		read->places[at] = piece->chunk;
		read->remote_ids[at] =
			in_file ? piece->chunk - chunk_count : piece->chunk;
		read->local_ids[at] = piece->block;
		read->generations[at] = piece->generation;
	}
	return 0;
}

int kvpull_share_reader_read(struct kvpull_share_reader *reader,
			     const struct kvpull_reader_read *params,
			     uint64_t *id)
{
	int code = peer_code(reader, params->peer);
	const struct kvpull_share_reader_peer *peer;
	const struct local *local;
	struct read *read;

	if (code)
		return code;
	if (!params->piece_count ||
	    params->piece_count > KVPULL_READER_ITEMS_MAX ||
	    params->local >= reader->local_count)
		return KVPULL_EINVAL;
	peer = &reader->peers[params->peer].is;
	local = &reader->locals[params->local];
	if (local->block_bytes != peer->chunk_bytes)
		return KVPULL_EINVAL;
	if (params->incarnation != peer->share.incarnation)
		return KVPULL_ESTALE;
	read = read_take(reader, params->peer, params->piece_count);
	if (!read)
		return KVPULL_EFULL;
	read->local = params->local;
	memset(read->block_codes, 0,
	       params->piece_count * sizeof(read->block_codes[0]));
	read->strip = (struct kvpull_strip){
		.remote_block_stride = peer->chunk_bytes,
		.local = local->base,
		.local_block_stride = local->block_bytes,
		.row_bytes = peer->chunk_bytes,
	};
	code = pieces_take(reader, read, params->pieces);
	if (code)
		return code;
	read_begin(reader, read, params->deadline_ns, id);
	return 0;
}

int kvpull_share_reader_cancel(struct kvpull_share_reader *reader, uint64_t id)
{
	const uint32_t index = (uint32_t)id;

	if (index >= KVPULL_READER_OPEN_MAX ||
	    reader->reads[index].serial != id >> 32 ||
	    !reader->engine.requests[index].state)
		return KVPULL_EINVAL;
	read_unwant(reader, index, KVPULL_EABORTED);
	/* The read's destinations are free when the route reports its end. */
	kvpull_reads_fail(&reader->engine, index, KVPULL_EABORTED);
	return 0;
}

void kvpull_share_reader_take(struct kvpull_share_reader *reader,
			      const struct kvpull_transport *transport,
			      const struct kvpull_event *event)
{
	uint32_t at;

	if (event->kind == KVPULL_EVENT_READ_DONE ||
	    event->kind == KVPULL_EVENT_CHECK_DONE)
		kvpull_reads_event(&reader->engine, event);
	if (event->kind != KVPULL_EVENT_PEER_DOWN)
		return;
	for (at = 0; at < KVPULL_READER_PEERS_MAX; at++)
		if (reader->peers[at].is_used &&
		    reader->peers[at].is.transport == transport &&
		    reader->peers[at].is.handle == event->index)
			reader->peers[at].is_down = 1;
}

void kvpull_share_reader_work(struct kvpull_share_reader *reader,
			      uint64_t now_ns)
{
	(void)kvpull_reads_run(&reader->engine, now_ns);
}

uint64_t kvpull_share_reader_due_ns(const struct kvpull_share_reader *reader)
{
	const struct kvpull_index_list *live = &reader->engine.live;
	uint64_t due_ns = UINT64_MAX;
	uint32_t at;

	for (at = live->first; at != KVPULL_NONE; at = live->links[at].next) {
		const struct kvpull_reads_request *request =
			&reader->engine.requests[at];

		/* A cancelled read ends when its route reports that. */
		if (request->state != KVPULL_READS_DRAIN &&
		    request->deadline_ns < due_ns)
			due_ns = request->deadline_ns;
	}
	return due_ns < reader->engine.look_ns ? reader->engine.look_ns :
						 due_ns;
}

int kvpull_share_reader_has_end(const struct kvpull_share_reader *reader)
{
	return reader->ended.first != KVPULL_NONE;
}

int kvpull_share_reader_end(struct kvpull_share_reader *reader,
			    struct kvpull_share_reader_end *end)
{
	const uint32_t index = reader->ended.first;
	struct read *read;
	int is_probe;

	if (index == KVPULL_NONE)
		return 0;
	read = &reader->reads[index];
	is_probe = read->local == KVPULL_NONE;
	if (read->given_up)
		codes_set(read, read->given_up);
	*end = (struct kvpull_share_reader_end){
		.id = (uint64_t)read->serial << 32 | index,
		.count = read->count,
		.code = read->code,
		.found = is_probe ? read->found : NULL,
		.codes = is_probe ? NULL : read->codes,
		.incarnation = read->incarnation,
	};
	if (!is_probe)
		blocks_give(reader, read, read->count);
	kvpull_index_list_remove(&reader->ended, index);
	kvpull_index_pool_give(&reader->free, index);
	reader->peers[read->peer].reads--;
	return 1;
}
