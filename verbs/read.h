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
 * IDLE    start() -> DATA, or MARK where memory of the GPU is read into
 * MARK    the GPU has reached the mark -> DATA; or it is lost -> ENDED
 * DATA    all is posted and complete on all lanes -> ENDED; or cancelled and quiet,
 *         or its bundle is no more, and what came is flushed -> ENDED
 * ENDED   reported: READ_DONE -> IDLE
 * CHECK   the entries came, or the bundle is no more, and the data is flushed:
 *         CHECK_DONE -> IDLE
 */
#ifndef KVPULL_VERBS_READ_H
#define KVPULL_VERBS_READ_H

#include "base/arena.h"
#include "base/events.h"
#include "verbs/reads.h"

int KVPULL_MUST_CHECK kvpull_verbs_reads_init(
	struct kvpull_verbs_reads *reads, struct kvpull_verbs_shared *shared,
	struct kvpull_verbs_bundle *peers, struct kvpull_arena *arena);

/* As in the seam. */
int KVPULL_MUST_CHECK kvpull_verbs_read_start(struct kvpull_verbs_reads *reads,
					      uint32_t peer,
					      struct kvpull_read *read);
void kvpull_verbs_read_cancel(struct kvpull_verbs_reads *reads,
			      struct kvpull_read *read);
int KVPULL_MUST_CHECK kvpull_verbs_read_leave(struct kvpull_verbs_reads *reads,
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
			       struct kvpull_events *events);

#endif /* KVPULL_VERBS_READ_H */
