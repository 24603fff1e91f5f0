/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of a peer's blocks and of its revocation entries: work requests made
 * on the fly, posted in batches with one doorbell each, the last of a batch
 * signalled, as many as the windows allow. Reads of one peer take turns, a
 * batch each, by their priority; the lane of each is picked by pace (spread.h).
 *
 * Another lane reads again what a lost one had not read, once nothing can
 * land through the lost one any more; its batches wait in it until then.
 *
 * state   goes on when
 * IDLE    start() -> DATA
 * DATA    all is posted and complete on all lanes, or cancelled and quiet, or
 *         its bundle is no more -> ENDED
 * ENDED   reported: READ_DONE -> IDLE
 * CHECK   the entries came, or the bundle is no more: CHECK_DONE -> IDLE
 */
#ifndef KVPULL_VERBS_READ_H
#define KVPULL_VERBS_READ_H

#include "base/arena.h"
#include "verbs/bundle.h"
#include "verbs/cursor.h"
#include "verbs/events.h"

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
	KVPULL_VERBS_READ_DATA,
	KVPULL_VERBS_READ_CHECK,
	KVPULL_VERBS_READ_ENDED
};

struct kvpull_verbs_read {
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
	uint32_t reserved;
	struct ibv_send_wr requests[KVPULL_VERBS_BATCH_MAX];
	struct ibv_sge parts[KVPULL_VERBS_BATCH_MAX][KVPULL_SLICE_PARTS_MAX];
};

int KVPULL_MUST_CHECK kvpull_verbs_reads_init(
	struct kvpull_verbs_reads *reads, struct kvpull_verbs_shared *shared,
	struct kvpull_verbs_bundle *peers, struct kvpull_arena *arena);

/* As in the seam. */
int KVPULL_MUST_CHECK kvpull_verbs_read_start(struct kvpull_verbs_reads *reads,
					      uint32_t peer,
					      struct kvpull_read *read);
void kvpull_verbs_read_cancel(struct kvpull_verbs_reads *reads,
			      struct kvpull_read *read);
int KVPULL_MUST_CHECK kvpull_verbs_read_check(struct kvpull_verbs_reads *reads,
					      uint32_t peer,
					      struct kvpull_read *read);

/* Parts of a poll. */
/* A batch of READ or CHECK that is over, and good. */
void kvpull_verbs_read_over(struct kvpull_verbs_reads *reads,
			    struct kvpull_verbs_end *end,
			    const struct kvpull_verbs_batch *batch);
/* Post what is to be posted to this peer. */
void kvpull_verbs_reads_pump(struct kvpull_verbs_reads *reads,
			     struct kvpull_verbs_bundle *bundle);
/* A lane that is QUIET while its bundle is in: what it owes goes by others. */
void kvpull_verbs_reads_move(struct kvpull_verbs_reads *reads,
			     struct kvpull_verbs_end *end);
/* A lane that is QUIET has nothing left for others. */
int kvpull_verbs_reads_moved(struct kvpull_verbs_end *end);
/* A peer that is quiet: all of its reads are over. */
void kvpull_verbs_reads_lose(struct kvpull_verbs_reads *reads,
			     struct kvpull_verbs_bundle *bundle);
/* Tell the owner of those that are over. */
void kvpull_verbs_reads_report(struct kvpull_verbs_reads *reads,
			       struct kvpull_verbs_events *events);

#endif /* KVPULL_VERBS_READ_H */
