/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of a device's thread: it takes orders from a ring, makes calls of the
 * device's table, pushes ends to another ring. No thread and no clock is in it.
 *
 * A job is copied in slices, of which two are queued on the device's stream: one
 * call of copy() or gather() and one event each. Jobs take turns, a slice each. The event of a
 * job's last slice was seen before the job ends; all jobs of a mapping have ended
 * before it is unmapped; an event was seen before its slice is used again.
 */
#ifndef KVPULL_DEVICE_FEED_H
#define KVPULL_DEVICE_FEED_H

#include <stdatomic.h>

#include "base/device_gate.h"
#include "base/device_rows.h"
#include "base/ring.h"
#include "base/turns.h"

/* An import's code in the ring: the memory is mapped for stores, too. */
#define KVPULL_DEVICE_FOR_STORES 1

/* Queued on the stream at once: a cancelled job ends within two slices. */
#define KVPULL_DEVICE_SLICES_MAX KVPULL_DEVICE_SLOTS

struct kvpull_device_slice {
	struct kvpull_device_event *event;
	struct kvpull_device_event *mark; /* that it waits for; NULL: none */
	uint64_t bytes;
	uint32_t job;
};

/* A job that was taken from the ring. */
struct kvpull_device_copy {
	struct kvpull_device_job *job; /* set by the owner, before its order */
	struct kvpull_rows_cursor cursor; /* the first row that is not queued */
	uint32_t is_open;                 /* taken, and not ended */
	uint32_t has_begun;               /* its mark is waited for */
	uint32_t is_fed;                  /* no slice of it follows */
	uint32_t gathers;                 /* by gather(), not by copy() */
	uint32_t slices;                  /* queued, and not seen */
	int32_t code;
};

struct kvpull_device_feed {
	struct kvpull_device_gate gate;
	struct kvpull_device *device;
	const struct kvpull_log *log;
	struct kvpull_device_copy *copies;      /* [job_max] */
	struct kvpull_device_mapping *mappings; /* [mapping_max] */
	struct kvpull_turns turns; /* jobs with rows left, by their priority */
	struct kvpull_device_slice slices[KVPULL_DEVICE_SLICES_MAX];
	struct kvpull_device_event **marks; /* [mark_max]; NULL: not open */
	struct kvpull_device_rows rows;     /* of one slice */
	struct kvpull_ring orders;
	struct kvpull_ring_writer ends;
	struct kvpull_device_limits limits;
	uint64_t slice_bytes; /* that the device copies in 1 ms, as it was seen */
	uint64_t now_ns;
	uint64_t seen_ns; /* the last event, or the first slice after none */
	int wake_fd;
	uint32_t slice_first; /* free-running */
	uint32_t slice_count;
	uint32_t leaving_count; /* mappings that are leaving */
	uint32_t importing;     /* a mapping, in the call that makes it */
	uint32_t has_failed; /* the device was lost in this step, by a call */
	uint32_t is_lost;    /* all that is ordered ends with KVPULL_EDEVICE */
	_Atomic uint32_t
		is_over; /* the same, for the engine's thread: relaxed */
};

enum kvpull_device_next {
	KVPULL_DEVICE_AGAIN = 0, /* something was done */
	KVPULL_DEVICE_SOON,      /* the next event is not reached */
	KVPULL_DEVICE_IDLE       /* nothing is queued, nothing is ordered */
};

/*
 * Take tables and rings for so many jobs and mappings. log and wake_fd are set.
 * *orders and *ends are the owner's sides. 0, KVPULL_ENOMEM.
 */
int KVPULL_MUST_CHECK
kvpull_device_feed_init(struct kvpull_device_feed *feed,
			const struct kvpull_device_limits *limits,
			struct kvpull_ring_writer *orders,
			struct kvpull_ring *ends, struct kvpull_arena *arena);

/* The device's events. On an error there are none. 0, or the table's error. */
int KVPULL_MUST_CHECK kvpull_device_feed_open(struct kvpull_device_feed *feed,
					      uint64_t now_ns);

/* Look for one event, take one order, queue one slice. */
enum kvpull_device_next kvpull_device_feed_step(struct kvpull_device_feed *feed,
						uint64_t now_ns);

/* Look for one event alone: 1: it was reached, or the device is lost. */
int kvpull_device_feed_see(struct kvpull_device_feed *feed, uint64_t now_ns);

/*
 * Owner: take over what an abandoned thread had. Jobs that may still be written
 * for never end. All others do, and all orders: call it after each.
 */
void kvpull_device_feed_abandon(struct kvpull_device_feed *feed);

/*
 * Unmap all memory, and close events and device. 0; 1: all of it is left to the
 * process, since a copy is queued or the device is lost.
 */
int kvpull_device_feed_close(struct kvpull_device_feed *feed, uint64_t now_ns);

#endif /* KVPULL_DEVICE_FEED_H */
