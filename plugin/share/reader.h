/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of shares: probes of directories and reads of chunks at peers whose
 * memory is attached, one-sidedly. Nobody at the owner is asked.
 *
 * A probe reads the windows of its keys and judges each entry in them. A read
 * reads chunks and, after the last byte of all of them, the guards of exactly
 * those places from the same peer: a piece is good where its guard is unchanged.
 *
 * Pure: the routes are called through their tables, time is told. One thread's,
 * the one that polls the routes: each event of theirs goes to _take(), then
 * _work(), then _end() until there is none. No allocation after open.
 */
#ifndef KVPULL_PLUGIN_SHARE_READER_H
#define KVPULL_PLUGIN_SHARE_READER_H

#include "base/arena.h"
#include "base/transport.h"
#include "kvpull/reader.h"
#include "plugin/pool/entry.h"

/*
 * Bounds are the table's: a route is opened for KVPULL_READER_OPEN_MAX reads, and
 * checks KVPULL_READER_ITEMS_MAX guards at once.
 *
 * Regions that an owner serves; its guards are served as revocation entries.
 */
#define KVPULL_SHARE_REGION_DIRECTORY 0u
#define KVPULL_SHARE_REGION_CHUNKS 1u
#define KVPULL_SHARE_REGION_COUNT 2u
#define KVPULL_SHARE_REGION_SLOTS 2u /* where there are any, on their node */

struct kvpull_share_reader; /* reader.c */

/* A peer that said welcome and is attached; nothing that it said is trusted. */
struct kvpull_share_reader_peer {
	struct kvpull_transport *transport;
	uint32_t handle; /* the transport's */
	uint32_t reserved;
	struct kvpull_pool_share share;
	struct kvpull_pool_namespace namespace_digest;
	uint64_t chunk_bytes;
};

struct kvpull_share_reader_probe {
	uint32_t peer;
	uint32_t key_count;                 /* 1 .. KVPULL_READER_ITEMS_MAX */
	const struct kvpull_pool_key *keys; /* copied; of the own namespace */
	uint64_t deadline_ns;               /* 0: none */
};

/* How a probe or a read ended. The tables live until the next one begins. */
struct kvpull_share_reader_end {
	uint64_t id;
	uint32_t count; /* keys or pieces */
	/*
	 * 0: a probe was answered, each piece of a read is good. Else the first
	 * code of a piece, and of a probe:
	 *   KVPULL_ESTALE     bumped since, or another namespace is set: probe again
	 *   KVPULL_EREAD      of a share in a file: it is shorter now, or its disk failed
	 *   KVPULL_EAGAIN     its connection was cut for another read: read again
	 *   KVPULL_EDEADLINE, KVPULL_EABORTED  no byte can land any more
	 *   KVPULL_EPEER, or what else the route says of the peer
	 */
	int32_t code;
	const struct kvpull_pool_found *found; /* probe: [count]; else NULL */
	const int32_t *codes; /* read: [count], one a piece; else NULL */
	uint64_t incarnation; /* that its places and generations are of */
};

/* NULL: the arena is too small. Once for a handle; there is no close. */
struct kvpull_share_reader *
kvpull_share_reader_open(const struct kvpull_pool_namespace *namespace_digest,
			 struct kvpull_arena *arena);

/*
 * Sets the namespace, for other weights. Reads in flight end with
 * KVPULL_ESTALE, and peers of another namespace get no probe or read.
 */
void kvpull_share_reader_set_namespace(
	struct kvpull_share_reader *reader,
	const struct kvpull_pool_namespace *namespace_digest);

/*
 * Own memory that pieces are read into: equal blocks. Return: 0; KVPULL_EFULL:
 * more than _LOCALS_MAX, or all have more than _BLOCKS_MAX blocks; KVPULL_EINVAL:
 * it is none, or is in part another's.
 */
int KVPULL_MUST_CHECK
kvpull_share_reader_local_add(struct kvpull_share_reader *reader, uint8_t *base,
			      uint64_t block_bytes, uint32_t block_count,
			      uint32_t *local);

/* The last one, which no route can reach: nothing was read into it. */
void kvpull_share_reader_local_undo(struct kvpull_share_reader *reader);

/* Where probes read to: memory that the routes have to reach. */
uint8_t *kvpull_share_reader_windows(const struct kvpull_share_reader *reader,
				     uint64_t *byte_count);

/*
 * remote: what was attached. Return: 0; KVPULL_EFULL; KVPULL_EPROTO: what it
 * serves is not what its share says.
 */
int KVPULL_MUST_CHECK
kvpull_share_reader_peer_add(struct kvpull_share_reader *reader,
			     const struct kvpull_share_reader_peer *params,
			     const struct kvpull_serve *remote, uint32_t *peer);

/* After its PEER_DOWN was taken. KVPULL_EAGAIN: ends of its reads are not told. */
int KVPULL_MUST_CHECK
kvpull_share_reader_peer_remove(struct kvpull_share_reader *reader,
				uint32_t peer);

/*
 * Return: 0: an end with this id will come; nothing was begun:
 *   KVPULL_EFULL   KVPULL_READER_OPEN_MAX are in flight: take their ends
 *   KVPULL_EPEER   the peer is lost
 *   KVPULL_ESTALE  its namespace is not ours, or the incarnation not its own
 *   KVPULL_EINVAL  no such peer, local, place or block; the local's blocks are
 *                  no chunks of this peer; a destination is named twice in all
 *                  that is in flight
 */
int KVPULL_MUST_CHECK
kvpull_share_reader_probe(struct kvpull_share_reader *reader,
			  const struct kvpull_share_reader_probe *probe,
			  uint64_t *id);
/* read: its peer is the reader's; its pieces are all in memory, or all in the file. */
int KVPULL_MUST_CHECK
kvpull_share_reader_read(struct kvpull_share_reader *reader,
			 const struct kvpull_reader_read *read, uint64_t *id);

/*
 * Cancels; the end comes when no byte can land any more. KVPULL_EINVAL: it has
 * ended.
 */
int KVPULL_MUST_CHECK
kvpull_share_reader_cancel(struct kvpull_share_reader *reader, uint64_t id);

/* An event of a peer's route: ends of reads and checks, PEER_DOWN. */
void kvpull_share_reader_take(struct kvpull_share_reader *reader,
			      const struct kvpull_transport *transport,
			      const struct kvpull_event *event);

/* Begin what could not begin yet, and give up what is late. */
void kvpull_share_reader_work(struct kvpull_share_reader *reader,
			      uint64_t now_ns);

/* The next deadline of what is in flight; UINT64_MAX: none. */
uint64_t kvpull_share_reader_due_ns(const struct kvpull_share_reader *reader);
/* Returns 1 if _end() has something to tell. */
int kvpull_share_reader_has_end(const struct kvpull_share_reader *reader);

/* Return: 1: *end is the oldest one that was not told; 0: there is none. */
int kvpull_share_reader_end(struct kvpull_share_reader *reader,
			    struct kvpull_share_reader_end *end);

#endif /* KVPULL_PLUGIN_SHARE_READER_H */
