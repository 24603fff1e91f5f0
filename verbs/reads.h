/* SPDX-License-Identifier: Apache-2.0 */
/* State of reads that their parts share: read.h, check.h, fill.h, gpu.h. */
#ifndef KVPULL_VERBS_READS_H
#define KVPULL_VERBS_READS_H

#include "base/device_job.h"
#include "verbs/state.h"

/*
 * Work requests a doorbell: all windows of a probe of 100 keys, and half of
 * what may be in flight.
 */
#define KVPULL_VERBS_BATCH_MAX 128u
/*
 * A cancelled read breaks its queue pair, and with it all reads of the peer,
 * when nothing was completed for flush_ns; and after so many of them though
 * something was: a slow wire is not a dead one.
 */
#define KVPULL_VERBS_FLUSH_TIMES 10u

enum kvpull_verbs_read_state {
	KVPULL_VERBS_READ_IDLE = 0,
	KVPULL_VERBS_READ_MARK,
	KVPULL_VERBS_READ_DATA,
	KVPULL_VERBS_READ_CHECK,
	KVPULL_VERBS_READ_ENDED
};

/* What a read has written into memory of the GPU: see gpu.h. */
struct kvpull_verbs_flushes {
	/* By rail: its last byte that was asked for; 0: it wrote none. */
	uint64_t at[KVPULL_VERBS_RAILS_MAX];
	uint32_t open; /* that the check waits for */
	int32_t code;  /* of one that failed */
};

struct kvpull_verbs_read {
	/* First. Of the GPU's thread: the mark, or a flush by its driver. */
	struct kvpull_device_job job;
	struct kvpull_read none; /* the job's: without rows */
	struct kvpull_verbs_reads *reads;
	struct kvpull_verbs_flushes flushes; /* until the check */
	uint32_t job_open;
	int32_t lost; /* its bundle's end, while the job is open; 0 */
	struct kvpull_read *read;
	enum kvpull_verbs_read_state state;
	uint32_t peer;
	uint32_t batch_open; /* posts that are not complete and good */
	uint32_t lane_open[KVPULL_VERBS_LANES_MAX]; /* of them, in flight */
	uint32_t next;                              /* among the ended */
	uint32_t cancelled;                         /* nothing more is posted */
	uint32_t dropped;  /* cancelled, and a lost lane's part was not read */
	uint32_t is_check; /* ENDED */
	int32_t code;      /* ENDED */
	struct kvpull_cursor cursor; /* CHECK: id is the next of its slots */
};

struct kvpull_verbs_reads {
	struct kvpull_verbs_shared *shared;
	struct kvpull_verbs_bundle *peers; /* [peers_max] */
	struct kvpull_verbs_read *reads;   /* [reads_max] */
	/* [reads_max][slots_max], registered */
	struct kvpull_revocation_value *entries;
	/* MRs of entries, by device. */
	struct ibv_mr *memory[KVPULL_VERBS_RAILS_MAX];
	/* Links of the peers' turns: a read is in one of those at most. */
	struct kvpull_turns turns;
	uint32_t ended; /* list head */
	/* The GPU has reached a read's mark, or why it never does: see gpu.h. */
	void (*begun)(struct kvpull_verbs_reads *reads,
		      struct kvpull_verbs_read *own, int code);
	/* A flush for this read has ended. */
	void (*flushed)(struct kvpull_verbs_reads *reads,
			struct kvpull_verbs_read *own, int code);
	struct ibv_send_wr requests[KVPULL_VERBS_BATCH_MAX];
	struct ibv_sge parts[KVPULL_VERBS_BATCH_MAX][KVPULL_SLICE_PARTS_MAX];
};

#endif /* KVPULL_VERBS_READS_H */
