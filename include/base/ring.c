/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notification ring, one writer, one reader: two processes or two threads.
 *
 * field     offset  written by  order    read by  order    pair   why
 * header    0       reader      plain    writer   plain    -      laid out before the hand-over; copied once, checked, used
 * tail      128     writer      seq_cst  reader   acquire  R0/A0  a slot is written before it is announced
 * head      256     reader      release  writer   acquire  R1/A1  a slot is read before it is reused
 * sleeping  384     reader      seq_cst  writer   seq_cst  S1/S0  store-load with tail: neither side may miss the other
 * sleeping  384     both        relaxed  -        -        -      cleared: by a writer that rings next, by a reader that is awake
 * beat      512     writer      relaxed  reader   relaxed  B0/B1  a sign of life, orders nothing
 * slots     640     writer      plain    reader   plain    -      ordered by R0/A0 and R1/A1
 *
 * Wake-up: the writer stores tail (R0), then loads sleeping (S0); the reader
 * stores sleeping (S1), then loads tail (S1 too). All four are seq_cst, so at
 * least one side sees the other's store: with release and acquire both loads
 * may pass the stores before them, and the wake-up is lost (the stress sees it
 * within some thousand records; ThreadSanitizer is silent). For A0 alone R0
 * could be release.
 * The writer keeps head_cached: it reads head only when full looks true.
 * Progress: push and pop are wait-free. Full: push returns KVPULL_EAGAIN,
 * nothing is lost.
 * Death: a record whose writer died before R0 was never there.
 * Trust: each side indexes by its own counter, masked by its own record_count.
 * The reader believes tail - head <= record_count, else KVPULL_EPROTO; the
 * writer takes an impossible head for a full ring.
 * Wrap: counters are free-running uint64_t, compared by difference only.
 */
#include "base/ring.h"

#include <string.h>

/*
 * The mutants' handle: tests/ring-mutants.sh weakens one label at a time and
 * tests/stress/ring_stress.c must notice. Nobody else defines these.
 */
#ifndef KVPULL_RING_R0
#define KVPULL_RING_R0                                                         \
	memory_order_seq_cst /* release for A0, the rest for S1 */
#endif
#ifndef KVPULL_RING_A0
#define KVPULL_RING_A0 memory_order_acquire
#endif
#ifndef KVPULL_RING_R1
#define KVPULL_RING_R1 memory_order_release
#endif
#ifndef KVPULL_RING_A1
#define KVPULL_RING_A1 memory_order_acquire
#endif
#ifndef KVPULL_RING_S0
#define KVPULL_RING_S0 memory_order_seq_cst /* load of sleeping, after R0 */
#endif
#ifndef KVPULL_RING_S1
#define KVPULL_RING_S1 memory_order_seq_cst /* store of sleeping */
#endif
#ifndef KVPULL_RING_S1_LOAD
#define KVPULL_RING_S1_LOAD memory_order_seq_cst /* load of tail, after S1 */
#endif

struct ring_header {
	uint32_t magic;
	uint32_t version;
	uint32_t record_count;
	uint32_t record_bytes;
	uint64_t byte_count;
};

struct kvpull_ring_shared {
	struct ring_header header;
	uint8_t reserved_header[104];
	_Atomic uint64_t tail;
	uint8_t reserved_tail[120];
	_Atomic uint64_t head;
	uint8_t reserved_head[120];
	_Atomic uint32_t sleeping;
	uint8_t reserved_sleeping[124];
	_Atomic uint64_t beat;
	uint8_t reserved_beat[120];
	struct kvpull_record slots[];
};

#define RING_AT(field, offset)                                                 \
	_Static_assert(offsetof(struct kvpull_ring_shared, field) == (offset), \
		       "the layout is shared between processes")
RING_AT(header.magic, 0);
RING_AT(header.version, 4);
RING_AT(header.record_count, 8);
RING_AT(header.record_bytes, 12);
RING_AT(header.byte_count, 16);
RING_AT(tail, KVPULL_RING_TAIL_OFFSET);
RING_AT(head, KVPULL_RING_HEAD_OFFSET);
RING_AT(sleeping, KVPULL_RING_SLEEPING_OFFSET);
RING_AT(beat, KVPULL_RING_BEAT_OFFSET);
RING_AT(slots, KVPULL_RING_SLOTS_OFFSET);
_Static_assert(sizeof(struct ring_header) == 24, "no padding is shared");
_Static_assert(sizeof(struct kvpull_ring_shared) == KVPULL_RING_SLOTS_OFFSET,
	       "slots follow the last line");
_Static_assert(sizeof(_Atomic uint64_t) == 8 && sizeof(_Atomic uint32_t) == 4,
	       "atomics are as large as their values");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
	       "a lock would not be shared between processes");

#define RING_ALIGN_BYTES 64u

static int count_is_valid(uint32_t record_count)
{
	return record_count >= KVPULL_RING_RECORDS_MIN &&
	       record_count <= KVPULL_RING_RECORDS_MAX &&
	       (record_count & (record_count - 1)) == 0;
}

size_t kvpull_ring_bytes(uint32_t record_count)
{
	if (!count_is_valid(record_count))
		return 0;
	return sizeof(struct kvpull_ring_shared) +
	       record_count * sizeof(struct kvpull_record);
}

uint32_t kvpull_ring_records(uint32_t least)
{
	uint32_t records = KVPULL_RING_RECORDS_MIN;

	while (records < least)
		records *= 2;
	return records;
}

int kvpull_ring_init(struct kvpull_ring *ring, void *memory,
		     uint32_t record_count)
{
	struct kvpull_ring_shared *shared = memory;

	if (!count_is_valid(record_count) ||
	    (uintptr_t)memory % RING_ALIGN_BYTES)
		return KVPULL_EINVAL;
	shared->header = (struct ring_header){
		.magic = KVPULL_RING_MAGIC,
		.version = KVPULL_RING_VERSION,
		.record_count = record_count,
		.record_bytes = sizeof(struct kvpull_record),
		.byte_count = kvpull_ring_bytes(record_count),
	};
	atomic_init(&shared->tail, 0);
	atomic_init(&shared->head, 0);
	atomic_init(&shared->sleeping, 0);
	atomic_init(&shared->beat, 0);
	*ring = (struct kvpull_ring){ .shared = shared,
				      .record_count = record_count };
	return 0;
}

int kvpull_ring_writer_init(struct kvpull_ring_writer *writer, void *memory,
			    size_t byte_count)
{
	struct kvpull_ring_shared *shared = memory;
	struct ring_header header;
	uint64_t head;
	uint64_t tail;

	if ((uintptr_t)memory % RING_ALIGN_BYTES ||
	    byte_count < sizeof(struct kvpull_ring_shared))
		return KVPULL_EPROTO;
	/* Copy the header once: the reader may write to it meanwhile. */
	memcpy(&header, &shared->header, sizeof(header));
	if (header.magic != KVPULL_RING_MAGIC ||
	    header.version != KVPULL_RING_VERSION ||
	    header.record_bytes != sizeof(struct kvpull_record) ||
	    !count_is_valid(header.record_count) ||
	    header.byte_count != kvpull_ring_bytes(header.record_count) ||
	    header.byte_count > byte_count)
		return KVPULL_EPROTO;
	/* Our own counter, or that of a writer that is gone. */
	tail = atomic_load_explicit(&shared->tail, memory_order_relaxed);
	/* A1: pairs with R1 in pop_end; the slots before it are ours. */
	head = atomic_load_explicit(&shared->head, KVPULL_RING_A1);
	if (tail - head > header.record_count)
		return KVPULL_EPROTO;
	*writer = (struct kvpull_ring_writer){
		.shared = shared,
		.tail = tail,
		.head_cached = head,
		.record_count = header.record_count,
	};
	return 0;
}

int kvpull_ring_pair(struct kvpull_ring *ring,
		     struct kvpull_ring_writer *writer, void *memory,
		     uint32_t record_count)
{
	const int code = kvpull_ring_init(ring, memory, record_count);

	return code ? code :
		      kvpull_ring_writer_init(writer, memory,
					      kvpull_ring_bytes(record_count));
}

int kvpull_ring_push(struct kvpull_ring_writer *writer,
		     const struct kvpull_record *record)
{
	struct kvpull_ring_shared *shared = writer->shared;
	uint64_t head;

	if (writer->tail - writer->head_cached >= writer->record_count) {
		/* A1: pairs with R1 in pop_end. */
		head = atomic_load_explicit(&shared->head, KVPULL_RING_A1);
		/* Also true for a head beyond tail: not believed. */
		if (writer->tail - head >= writer->record_count)
			return KVPULL_EAGAIN;
		writer->head_cached = head;
	}
	kvpull_assert(writer->tail - writer->head_cached <
		      writer->record_count);
	shared->slots[writer->tail & (writer->record_count - 1)] = *record;
	writer->tail++;
	/* R0: pairs with A0 in ready; seq_cst before S0, see the table. */
	atomic_store_explicit(&shared->tail, writer->tail, KVPULL_RING_R0);
	/* S0: pairs with S1 in arm; seq_cst after R0, see the table. */
	if (!atomic_load_explicit(&shared->sleeping, KVPULL_RING_S0))
		return 0;
	/* The doorbell follows, so no sleep goes on over this store. */
	atomic_store_explicit(&shared->sleeping, 0, memory_order_relaxed);
	return 1;
}

void kvpull_ring_beat(struct kvpull_ring_writer *writer)
{
	struct kvpull_ring_shared *shared = writer->shared;
	const uint64_t beat =
		atomic_load_explicit(&shared->beat, memory_order_relaxed);

	/* B0: pairs with B1 in beat_seen. */
	atomic_store_explicit(&shared->beat, beat + 1, memory_order_relaxed);
}

uint32_t kvpull_ring_open_count(const struct kvpull_ring_writer *writer)
{
	/* A1: pairs with R1 in pop_end. */
	const uint64_t head =
		atomic_load_explicit(&writer->shared->head, KVPULL_RING_A1);
	const uint64_t open = writer->tail - head;

	return open > writer->record_count ? writer->record_count :
					     (uint32_t)open;
}

int kvpull_ring_ready(struct kvpull_ring *ring)
{
	/* A0: pairs with R0 in push. */
	const uint64_t tail =
		atomic_load_explicit(&ring->shared->tail, KVPULL_RING_A0);

	if (tail - ring->head > ring->record_count)
		return KVPULL_EPROTO;
	ring->tail = tail;
	return (int)(tail - ring->head);
}

void kvpull_ring_pop(struct kvpull_ring *ring, struct kvpull_record *record)
{
	/* Both counters are private: only our own caller can break this. */
	kvpull_assert(ring->tail != ring->head);
	*record = ring->shared->slots[ring->head & (ring->record_count - 1)];
	ring->head++;
}

uint32_t kvpull_ring_peek_slot(const struct kvpull_ring *ring, uint32_t ahead)
{
	kvpull_assert(ahead < ring->tail - ring->head);
	return ring->shared
		->slots[(ring->head + ahead) & (ring->record_count - 1)]
		.slot;
}

void kvpull_ring_pop_end(struct kvpull_ring *ring)
{
	/* R1: pairs with A1 in push. */
	atomic_store_explicit(&ring->shared->head, ring->head, KVPULL_RING_R1);
}

int kvpull_ring_beat_seen(struct kvpull_ring *ring)
{
	/* B1: pairs with B0 in beat. */
	const uint64_t beat =
		atomic_load_explicit(&ring->shared->beat, memory_order_relaxed);

	if (beat == ring->beat_seen)
		return 0;
	ring->beat_seen = beat;
	return 1;
}

int kvpull_ring_arm(struct kvpull_ring *ring)
{
	struct kvpull_ring_shared *shared = ring->shared;
	uint64_t tail;

	/* S1: pairs with S0 in push; seq_cst before the load, see the table. */
	atomic_store_explicit(&shared->sleeping, 1, KVPULL_RING_S1);
	ring->armed = 1;
	/* S1: pairs with R0 in push; seq_cst after the store. */
	tail = atomic_load_explicit(&shared->tail, KVPULL_RING_S1_LOAD);
	if (tail == ring->head)
		return 0;
	/* There are records, or a broken tail, which ready() tells. */
	kvpull_ring_disarm(ring);
	return 1;
}

void kvpull_ring_disarm(struct kvpull_ring *ring)
{
	if (!ring->armed)
		return;
	ring->armed = 0;
	/* We are awake: a doorbell that is on its way does no harm. */
	atomic_store_explicit(&ring->shared->sleeping, 0, memory_order_relaxed);
}
