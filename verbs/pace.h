/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the rails of a peer finish what is read by them, which rail takes
 * the next batch, and when a rail is late. Pure: time comes as an argument.
 *
 * Each lane of a rail (bundle.h) is a rail here.
 *
 * A rail's pace is the time that KVPULL_PACE_BYTES take. It is measured over a
 * busy period: from the first post to an idle rail until nothing is in flight
 * there. Small periods measure latency and large ones the rate, so each size
 * has a pace of its own. A rail that is busy has at least the pace that follows
 * from its age, so that a rail that stops in mid-read is slow without a
 * completion.
 *
 * Rails within KVPULL_PACE_BAND of the fastest share alike, by bytes in flight.
 * A slower rail takes a batch of KVPULL_PACE_BYTES, and only if it would need
 * less than half (KVPULL_PACE_BAND) of the time in which a fast one finishes the
 * next batch, or to be measured again after a rest.
 */
#ifndef KVPULL_VERBS_PACE_H
#define KVPULL_VERBS_PACE_H

#include <stdint.h>

#include "base/clock.h"

/*
 * Least that is worth a doorbell of another rail; about what a fast wire
 * carries in one round trip (12.5 GB/s x 5 us).
 */
#define KVPULL_PACE_BYTES UINT64_C(65536)
/* Rails that differ by less are equal: noise of a busy host is a factor of 2. */
#define KVPULL_PACE_BAND 2u
/* Lesser changes of a pace may be noise, and count by a quarter. */
#define KVPULL_PACE_TURN 4u
/* A period that does not end by itself is measured after so many bytes. */
#define KVPULL_PACE_PERIOD_BYTES (UINT64_C(16) << 20)
/*
 * A slow rail rests for so many of its last period before it is tried again:
 * so 1/32 of the time is the most that trials of one size can cost.
 */
#define KVPULL_PACE_REST_TIMES 32u
#define KVPULL_PACE_REST_NS_MAX (10 * KVPULL_NS_PER_S)
/*
 * A rail is late when its reads have taken so long, three retransmissions at
 * the default ack_timeout, and so many times what an idle rail needs for them.
 */
#define KVPULL_PACE_LATE_NS (200 * KVPULL_NS_PER_MS)
#define KVPULL_PACE_LATE_TIMES 4u

enum kvpull_pace_size {
	KVPULL_PACE_SMALL = 0, /* less than KVPULL_PACE_BYTES */
	KVPULL_PACE_LARGE,
	KVPULL_PACE_SIZES
};

/* The pace of a rail; zero: nothing was measured. */
struct kvpull_pace {
	uint64_t since_ns;                   /* the busy period's begin */
	uint64_t done_bytes;                 /* complete in it */
	uint64_t ns[KVPULL_PACE_SIZES];      /* 0: not measured */
	uint64_t rest_ns[KVPULL_PACE_SIZES]; /* no trial of a slow rail before */
};

/* A rail as it is now. */
struct kvpull_pace_rail {
	const struct kvpull_pace *pace; /* NULL: reads cannot go by it */
	uint64_t open_bytes;            /* in flight */
	uint32_t open_count;            /* batches in flight */
	uint32_t has_room;
};

struct kvpull_pace_rails {
	uint64_t now_ns;
	uint32_t count;
	uint32_t turn; /* first among equals */
	const struct kvpull_pace_rail *rails;
};

/* A batch is about to be posted while so many are in flight. */
void kvpull_pace_post(struct kvpull_pace *pace, uint32_t open_count,
		      uint64_t now_ns);
/* A batch of so many bytes is complete; so many are still in flight. */
void kvpull_pace_done(struct kvpull_pace *pace, uint64_t bytes,
		      uint32_t open_count, uint64_t now_ns);
/* The rail is given up with so many bytes in flight: it is as slow as its age. */
void kvpull_pace_lost(struct kvpull_pace *pace, uint64_t open_bytes,
		      uint64_t now_ns);

/* Is this rail, which is in, slower than the band for batches of this size? */
int kvpull_pace_is_slow(const struct kvpull_pace_rails *rails, uint32_t index,
			uint64_t bytes);
/*
 * The rail that takes the next batch of this size. KVPULL_NONE: all that are
 * worth it are full, and one of them has something in flight.
 */
uint32_t kvpull_pace_pick(const struct kvpull_pace_rails *rails,
			  uint64_t bytes);
/*
 * When what is in flight on this rail is late, if nothing changes.
 * UINT64_MAX: no other rail is idle, or nothing is in flight.
 */
uint64_t kvpull_pace_late_ns(const struct kvpull_pace_rails *rails,
			     uint32_t index);

#endif /* KVPULL_VERBS_PACE_H */
