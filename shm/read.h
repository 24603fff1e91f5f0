/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of a peer's blocks: given to the copy workers, copied at once when
 * small, or taken from foreign memory in slices, a slice a poll.
 */
#ifndef KVPULL_SHM_READ_H
#define KVPULL_SHM_READ_H

#include "base/arena.h"
#include "base/transport.h"
#include "shm/batch.h"
#include "shm/copy.h"
#include "shm/foreign.h"
#include "shm/peer.h"
#include "shm/shm.h"

/* Foreign bytes a poll: about a millisecond of the owner's thread. */
#define KVPULL_SHM_FOREIGN_SLICE_BYTES (UINT64_C(4) << 20)

enum kvpull_shm_read_state {
	KVPULL_SHM_READ_IDLE = 0,
	KVPULL_SHM_READ_COPYING, /* the copy pool's */
	KVPULL_SHM_READ_FOREIGN  /* in the queue */
};

struct kvpull_shm_read {
	struct kvpull_copy_job job; /* first: the pool gives back its address */
	enum kvpull_shm_read_state state;
	uint32_t peer_index;
	struct kvpull_read *read;
	int32_t cancelled; /* 0, or the code that it will end with */
	int32_t reserved;
	struct kvpull_rows_cursor cursor;
};

struct kvpull_shm_reads {
	const struct kvpull_log *log;
	struct kvpull_copy *copy;
	struct kvpull_shm_peers *peers;
	struct kvpull_shm_read *reads; /* [read_max] */
	uint32_t *queue;               /* [read_max], foreign reads, a ring */
	uint32_t queue_first;
	uint32_t queue_count;
	uint32_t read_max;
	uint32_t copy_threads;
	uint32_t inline_bytes;
	uint32_t reserved;
};

size_t kvpull_shm_reads_bytes(uint32_t read_max);
int KVPULL_MUST_CHECK kvpull_shm_reads_init(
	struct kvpull_shm_reads *reads, const struct kvpull_shm_params *params,
	struct kvpull_shm_peers *peers, struct kvpull_arena *arena);

/* As in the seam. */
int KVPULL_MUST_CHECK kvpull_shm_read_start(struct kvpull_shm_reads *reads,
					    uint32_t peer_index,
					    struct kvpull_read *read);
void kvpull_shm_read_cancel(struct kvpull_shm_reads *reads,
			    const struct kvpull_read *read);
int KVPULL_MUST_CHECK kvpull_shm_read_check(struct kvpull_shm_reads *reads,
					    uint32_t peer_index,
					    struct kvpull_read *read);

/* READ_DONE of what has ended; a slice of foreign memory. */
void kvpull_shm_reads_poll(struct kvpull_shm_reads *reads,
			   struct kvpull_shm_batch *batch);
/* Cancel the reads of peers that were lost since. */
void kvpull_shm_reads_lose(struct kvpull_shm_reads *reads);

#endif /* KVPULL_SHM_READ_H */
