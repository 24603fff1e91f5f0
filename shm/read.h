/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of a peer's blocks: given to the copy workers; or, small ones and those
 * of foreign memory, copied by the owner's thread, so many bytes a poll, in turns
 * by their priority; strips in files go to file_read; those of peers with memory of
 * a device to its thread.
 *
 * A read of a peer that has files is split: runs of strips in memory, one
 * after the other, and beside them all strips in files. It is done when both
 * parts are.
 */
#ifndef KVPULL_SHM_READ_H
#define KVPULL_SHM_READ_H

#include "shm/state.h"

/*
 * Bytes that the owner's thread copies by itself between the begin of one run
 * and the next: small reads, and slices of foreign ones. A poll, which may be
 * the same one, copies as much again from lent memory.
 */
#define KVPULL_SHM_POLL_BYTES 131072u

int KVPULL_MUST_CHECK kvpull_shm_reads_init(
	struct kvpull_shm_reads *reads, const struct kvpull_shm_params *params,
	struct kvpull_shm_peers *peers, struct kvpull_arena *arena);
/* Must be called before the end of the peers and of the arena. */
void kvpull_shm_reads_fini(struct kvpull_shm_reads *reads,
			   uint64_t close_by_ns);

/* As in the seam. */
int KVPULL_MUST_CHECK kvpull_shm_read_start(struct kvpull_transport *transport,
					    uint32_t peer_index,
					    struct kvpull_read *read);
void kvpull_shm_read_cancel(struct kvpull_transport *transport,
			    uint32_t peer_index, struct kvpull_read *read);
int KVPULL_MUST_CHECK kvpull_shm_read_check(struct kvpull_transport *transport,
					    uint32_t peer_index,
					    struct kvpull_read *read);

/* READ_DONE of what has ended; a slice of foreign memory. */
void kvpull_shm_reads_poll(struct kvpull_shm_reads *reads,
			   struct kvpull_shm_batch *batch);
/* Before sleeping: 1: the next poll has something to do. */
int kvpull_shm_reads_are_due(struct kvpull_shm_reads *reads);
/* Cancel the reads of peers that were lost since. */
void kvpull_shm_reads_lose(struct kvpull_shm_reads *reads);

#endif /* KVPULL_SHM_READ_H */
