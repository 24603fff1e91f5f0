/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An endpoint is a queue pair to one other process, on either side: its objects,
 * its send queue, its frames and their credits. It is a lane of a rail of a
 * bundle (bundle.h).
 *
 * state       peer (consumer's side)            caller (producer's side)
 * FREE        -                                 -
 * CONNECTING  CM is at work                     a request was accepted
 * OPEN        established: handshake, or the    likewise; CALLER_UP
 *             keys of one more lane
 * IN          attach(), or its keys came        admit(), or it joined
 * LINGER      disconnect(): why is on its way   refuse(): likewise
 * LOST        the end was seen; the queue pair is in ERR and its completions
 *             are polled, for at most flush_ns
 * QUIET       the queue pair is destroyed: nothing can land any more; what it
 *             had not read goes by other lanes, or its reads end
 *
 * Work requests are numbered; the completion of one means the end of all
 * before it, which is how a send queue works. Each post (a batch) asks for the
 * completion of its last one. All frames but ACK take a credit, and the other
 * side has receives for all of them and for one ACK each: so a SEND never meets
 * an empty receive queue, however rarely the other side polls, and READs
 * behind it are never stalled.
 */
#ifndef KVPULL_VERBS_ENDPOINT_H
#define KVPULL_VERBS_ENDPOINT_H

#include "verbs/state.h"

enum kvpull_verbs_seen {
	KVPULL_VERBS_NOTHING = 0,
	KVPULL_VERBS_SENT, /* batches may have ended: see pop */
	KVPULL_VERBS_FRAME
};

/*
 * Takes the endpoint's memory, once; shared and role are set. 0 or
 * KVPULL_ENOMEM.
 */
int KVPULL_MUST_CHECK kvpull_verbs_end_init(struct kvpull_verbs_end *end,
					    struct kvpull_arena *arena);

/* Makes the endpoint CONNECTING: its time begins. */
void kvpull_verbs_end_begin(struct kvpull_verbs_end *end);
/* For an id that knows its device: CQ, QP, receives. 0, or why not. */
int KVPULL_MUST_CHECK kvpull_verbs_end_make(struct kvpull_verbs_end *end);
/* All its objects; it is FREE after. */
void kvpull_verbs_end_unmake(struct kvpull_verbs_end *end);
/* Ends the endpoint; the first reason counts. why NULL: no log line. */
void kvpull_verbs_end_lose(struct kvpull_verbs_end *end, int code,
			   const char *why);
/* LOST: quiet by now? Then its queue pair is destroyed: QUIET. */
void kvpull_verbs_end_settle(struct kvpull_verbs_end *end);

/* Takes one completion. A frame is valid until the next call. */
enum kvpull_verbs_seen kvpull_verbs_end_poll(struct kvpull_verbs_end *end,
					     struct kvpull_frame *frame);
/* 1: a batch of READ or CHECK that is over, and good; 0: none. */
int kvpull_verbs_end_pop(struct kvpull_verbs_end *end,
			 struct kvpull_verbs_batch *batch);
uint32_t kvpull_verbs_end_room(const struct kvpull_verbs_end *end);
/*
 * Post count work requests as one batch. *posted_count of them were taken; 0:
 * all; KVPULL_EAGAIN: the queue is full for now; KVPULL_EPEER: end is lost.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_end_post(struct kvpull_verbs_end *end,
		      struct ibv_send_wr *requests, uint32_t count,
		      const struct kvpull_verbs_batch *batch,
		      uint32_t *posted_count);

/* A message goes out as credits allow. 0, KVPULL_EAGAIN, KVPULL_EPEER. */
int KVPULL_MUST_CHECK kvpull_verbs_end_say(struct kvpull_verbs_end *end,
					   struct kvpull_verbs_outbox *outbox,
					   const void *bytes,
					   size_t byte_count);
/* Numbered by the bundle. 0, KVPULL_EAGAIN, KVPULL_EPEER. */
int KVPULL_MUST_CHECK kvpull_verbs_end_note(struct kvpull_verbs_end *end,
					    const struct kvpull_record *record,
					    uint32_t number);
#define KVPULL_VERBS_LANE_BYTES 48u
/* "rail 1" or, of a further lane, "queue pair 2 of rail 1". Returns text. */
const char *kvpull_verbs_lane_print(uint32_t rail, uint32_t lane,
				    char text[KVPULL_VERBS_LANE_BYTES]);
/* Send what waits: pieces, a heartbeat, an acknowledgement. */
void kvpull_verbs_end_pump(struct kvpull_verbs_end *end);

/* An end's or a listener's; NULL: there is none. */
void kvpull_verbs_id_destroy(const struct kvpull_verbs_shared *shared,
			     struct rdma_cm_id *id);

/*
 * Credited frames that the other side may forget. A notification that waits for
 * room is not one of them: it is to come by another lane, too, if this one is
 * lost, for what follows it would have a gap before it there.
 */
static inline uint32_t
kvpull_verbs_end_taken(const struct kvpull_verbs_end *end)
{
	return end->received - end->stalled;
}

static inline int kvpull_verbs_end_is_up(const struct kvpull_verbs_end *end)
{
	return end->state >= KVPULL_VERBS_OPEN &&
	       end->state <= KVPULL_VERBS_LINGER;
}

#endif /* KVPULL_VERBS_ENDPOINT_H */
