/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notification ring: one writer, one reader, 32-byte records (struct
 * kvpull_record), in memory that two processes, or two threads, share.
 *
 * The reader is the producer's engine thread, and the writer may be hostile:
 * the reader keeps its head privately and trusts nothing but
 * tail - head <= capacity. The same ring carries records between the threads
 * of one worker. Beside the records the writer has a liveness word (beat) that
 * it overwrites, so heartbeats never queue.
 */
#ifndef KVPULL_BASE_RING_H
#define KVPULL_BASE_RING_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/log.h"
#include "base/transport.h"

#define KVPULL_RING_MAGIC UINT32_C(0x4b565231) /* "KVR1" */
#define KVPULL_RING_VERSION 1u
#define KVPULL_RING_RECORDS_MIN 2u
#define KVPULL_RING_RECORDS_MAX 1048576u

struct kvpull_ring_shared; /* layout and table of orderings: ring.c */

/*
 * Where the words lie: each on a pair of cache lines of its own, since the
 * adjacent-line prefetcher fetches pairs. Tests play a hostile peer with them.
 */
#define KVPULL_RING_TAIL_OFFSET 128u
#define KVPULL_RING_HEAD_OFFSET 256u
#define KVPULL_RING_SLEEPING_OFFSET 384u
#define KVPULL_RING_BEAT_OFFSET 512u
#define KVPULL_RING_SLOTS_OFFSET 640u

/* The reader's end of a ring. */
struct kvpull_ring {
	struct kvpull_ring_shared *shared;
	uint64_t head;         /* private; the shared one is for the writer */
	uint64_t tail;         /* as ready() saw it: pops stop there */
	uint64_t beat_seen;    /* last liveness word */
	uint32_t record_count; /* capacity, power of two; never re-read */
	uint32_t armed; /* `sleeping` was set by us and not yet seen cleared */
};

/* The writer's end of a ring. */
struct kvpull_ring_writer {
	struct kvpull_ring_shared *shared;
	uint64_t tail;
	uint64_t head_cached;
	uint32_t record_count;
};

/* Bytes of the shared part; record_count is a power of two, 2 .. 2^20; else 0. */
size_t kvpull_ring_bytes(uint32_t record_count);

/* The record_count of a ring with room for at least so many, at most 2^20. */
uint32_t kvpull_ring_records(uint32_t least);

/*
 * Fresh, zeroed memory, cache-line aligned: lay out and open the reader.
 * 0 or KVPULL_EINVAL (count, alignment).
 */
int KVPULL_MUST_CHECK kvpull_ring_init(struct kvpull_ring *ring, void *memory,
				       uint32_t record_count);

/*
 * Open the writer, at the tail that is there; 0 or KVPULL_EPROTO (magic,
 * version, sizes or counters are wrong).
 */
int KVPULL_MUST_CHECK kvpull_ring_writer_init(struct kvpull_ring_writer *writer,
					      void *memory, size_t byte_count);

/* Both ends in one process, over fresh memory as above. 0 or an error as above. */
int KVPULL_MUST_CHECK kvpull_ring_pair(struct kvpull_ring *ring,
				       struct kvpull_ring_writer *writer,
				       void *memory, uint32_t record_count);

/**
 * Writer: push one record. Wait-free.
 * Return: 0; 1: pushed, and the reader sleeps: ring its doorbell;
 * KVPULL_EAGAIN: full, nothing lost.
 */
int KVPULL_MUST_CHECK kvpull_ring_push(struct kvpull_ring_writer *writer,
				       const struct kvpull_record *record);

/* The writer gives a sign of life. */
void kvpull_ring_beat(struct kvpull_ring_writer *writer);

/*
 * Writer: records that the reader has not taken; <= record_count. A head that
 * cannot be is not believed: all of them.
 */
uint32_t kvpull_ring_open_count(const struct kvpull_ring_writer *writer);

/**
 * Reader: the number of records to take now, at most record_count; 0: empty;
 * KVPULL_EPROTO: the writer broke the ring, use it no more. Read once a poll,
 * so that a busy writer cannot keep a poll going.
 */
int KVPULL_MUST_CHECK kvpull_ring_ready(struct kvpull_ring *ring);

/* Reader: copy the next record (ready() said that it is there). */
void kvpull_ring_pop(struct kvpull_ring *ring, struct kvpull_record *record);

/*
 * Reader: the slot named by the record that `ahead` pops from now would give,
 * ahead < what is left of ready(). A hint for prefetching, not a record: what
 * is popped later is another copy.
 */
uint32_t kvpull_ring_peek_slot(const struct kvpull_ring *ring, uint32_t ahead);

/* Reader: give the popped slots back to the writer. After a batch of pops. */
void kvpull_ring_pop_end(struct kvpull_ring *ring);

/* Reader: 1 if the liveness word moved since the last call. */
int kvpull_ring_beat_seen(struct kvpull_ring *ring);

/*
 * Reader: ask for a doorbell at the next push. Return 1 if records are there
 * already (do not sleep; it is disarmed again). disarm() when awake; both may
 * be called at any time. The writer that rings has disarmed it, so one sleep
 * costs one doorbell; a doorbell without a record may come.
 */
int KVPULL_MUST_CHECK kvpull_ring_arm(struct kvpull_ring *ring);
void kvpull_ring_disarm(struct kvpull_ring *ring);

#endif /* KVPULL_BASE_RING_H */
