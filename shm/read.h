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

#include "base/arena.h"
#include "base/transport.h"
#include "base/turns.h"
#include "shm/batch.h"
#include "shm/copy.h"
#include "shm/file_read.h"
#include "shm/foreign.h"
#include "shm/peer.h"
#include "shm/shm.h"

/*
 * Bytes that the owner's thread copies by itself between the begin of one run
 * and the next: small reads, and slices of foreign ones. A poll, which may be
 * the same one, copies as much again from lent memory.
 */
#define KVPULL_SHM_POLL_BYTES 131072u

enum kvpull_shm_read_state {
	KVPULL_SHM_READ_IDLE = 0,
	KVPULL_SHM_READ_COPYING, /* the copy pool's */
	KVPULL_SHM_READ_DEVICE,  /* the device's thread's */
	KVPULL_SHM_READ_FOREIGN, /* in the queue */
	KVPULL_SHM_READ_SMALL,   /* likewise, to be copied in one go */
	KVPULL_SHM_READ_FILES    /* memory is done, files are not */
};

struct kvpull_shm_read {
	struct kvpull_copy_job job; /* first: the pool gives back its address */
	enum kvpull_shm_read_state state;
	uint32_t peer_index;
	struct kvpull_read *read;
	const struct kvpull_read *part; /* in memory: what the cursor is in */
	int32_t cancelled; /* 0, or the code that it will end with */
	int32_t code;      /* of the part that has ended first */
	struct kvpull_rows_cursor cursor;
	/* State of a read from a peer with files. */
	struct kvpull_read run;          /* a run of strips in memory */
	uint32_t run_end;                /* the strip behind it */
	uint32_t is_split;               /* it has a part in files */
	struct kvpull_file_read file;    /* .read NULL: no part in files */
	struct kvpull_device_job device; /* of a peer with such memory */
};

struct kvpull_shm_reads {
	const struct kvpull_log *log;
	struct kvpull_copy *copy;
	struct kvpull_shm_device *device;
	struct kvpull_shm_peers *peers;
	struct kvpull_files files;
	struct kvpull_shm_read *reads; /* [read_max] */
	struct kvpull_turns queue;
	uint32_t read_max;
	uint32_t poll_copies;
	uint32_t inline_bytes;
	uint32_t early_bytes; /* may still be copied before the next poll */
};

int KVPULL_MUST_CHECK kvpull_shm_reads_init(
	struct kvpull_shm_reads *reads, const struct kvpull_shm_params *params,
	struct kvpull_shm_peers *peers, struct kvpull_arena *arena);
/* Before the peers' and the arena's end. */
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
