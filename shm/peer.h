/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Consumer's side: connections to producers and what is mapped of them.
 *
 * state     entered by                   left by
 * FREE      all closed: PEER_DOWN        connect -> GREETING
 * GREETING  connect                      attach -> ATTACHED;
 *                                        end, connect_ns, disconnect -> LOST
 * ATTACHED  attach: memory, ring         end, disconnect -> LOST
 * LOST      the end was seen             its last read ended, and its device
 *                                        memory is unmapped -> FREE
 *
 * Memory stays mapped in LOST as long as a copy of it runs, or it is pinned.
 */
#ifndef KVPULL_SHM_PEER_H
#define KVPULL_SHM_PEER_H

#include "shm/state.h"

/* peers->wait, ->folder, ->shortage, ->device and ->own are set. */
int KVPULL_MUST_CHECK
kvpull_shm_peers_init(struct kvpull_shm_peers *peers,
		      const struct kvpull_shm_params *params,
		      struct kvpull_arena *arena);
/* No copy may run any more. */
void kvpull_shm_peers_fini(struct kvpull_shm_peers *peers,
			   uint64_t close_by_ns);

/* Bounds-checked: an index of the owner's. */
static inline struct kvpull_shm_peer *
kvpull_shm_peer_at(const struct kvpull_shm_peers *peers, uint32_t index)
{
	kvpull_check(peers->log, index < peers->peer_max);
	return &peers->peers[index];
}

/* Parts of a poll. */
void kvpull_shm_peers_ready(struct kvpull_shm_peers *peers,
			    const struct kvpull_wait_token *token,
			    struct kvpull_shm_batch *batch);
void kvpull_shm_peers_expire(struct kvpull_shm_peers *peers, uint64_t now_ns);
/* When the next one is due for it; UINT64_MAX: none. */
uint64_t kvpull_shm_peers_due_ns(const struct kvpull_shm_peers *peers);
/* PEER_DOWN of the lost ones whose reads have ended. */
void kvpull_shm_peers_report(struct kvpull_shm_peers *peers,
			     struct kvpull_shm_batch *batch);
/* 1: a poll now would get on with a lost one; 0: they wait for copies. */
int kvpull_shm_peers_are_due(const struct kvpull_shm_peers *peers);

/* As in the seam. */
int KVPULL_MUST_CHECK
kvpull_shm_peers_reach(const struct kvpull_transport *transport,
		       const char *address);
int KVPULL_MUST_CHECK
kvpull_shm_peer_connect(struct kvpull_transport *transport, const char *address,
			uint32_t *index);
int KVPULL_MUST_CHECK kvpull_shm_peer_send(struct kvpull_transport *transport,
					   uint32_t index, const void *bytes,
					   size_t byte_count);
int KVPULL_MUST_CHECK kvpull_shm_peer_attach(struct kvpull_shm_peers *peers,
					     uint32_t index,
					     const struct kvpull_serve *remote);
/* Lends all that a small pull needs but the way to copy. */
int KVPULL_MUST_CHECK kvpull_shm_peer_lend(struct kvpull_shm_peers *peers,
					   uint32_t index,
					   struct kvpull_mapping *mapping);
/*
 * Has an end of the device's thread: of an import or an unmap of a peer's. The batch
 * has room for an event.
 */
void kvpull_shm_peers_device_end(struct kvpull_shm_peers *peers,
				 struct kvpull_shm_batch *batch,
				 const struct kvpull_device_end *end);
/* Ends the peer; the first reason counts. */
void kvpull_shm_peer_lose(struct kvpull_shm_peers *peers,
			  struct kvpull_shm_peer *peer, int code);

#endif /* KVPULL_SHM_PEER_H */
