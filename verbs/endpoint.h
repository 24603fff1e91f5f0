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

#include "verbs/cursor.h"
#include "verbs/device.h"
#include "verbs/frame.h"
#include "verbs/loop.h"
#include "verbs/pace.h"
#include "verbs/region.h"

enum kvpull_verbs_role {
	KVPULL_VERBS_PEER = 0,
	KVPULL_VERBS_CALLER
};

enum kvpull_verbs_end_state {
	KVPULL_VERBS_FREE = 0,
	KVPULL_VERBS_CONNECTING,
	KVPULL_VERBS_OPEN,
	KVPULL_VERBS_IN,
	KVPULL_VERBS_LINGER,
	KVPULL_VERBS_LOST,
	KVPULL_VERBS_QUIET
};

enum kvpull_verbs_batch_kind {
	KVPULL_VERBS_SEND = 0,
	KVPULL_VERBS_READ,
	KVPULL_VERBS_CHECK
};

/* Work requests of one post. */
struct kvpull_verbs_batch {
	uint64_t last;  /* its last one's number */
	uint64_t bytes; /* that it reads */
	uint32_t kind;
	uint32_t read;  /* index; READ and CHECK */
	uint32_t count; /* work requests */
	uint32_t slots; /* of the queue: these, and one that ends them */
	struct kvpull_cursor begin; /* of its first one */
};

/* A message on its way out, in pieces. */
struct kvpull_verbs_outbox {
	uint8_t *data;
	uint32_t capacity;
	uint32_t total;
	uint32_t sent; /* == total: empty */
	uint32_t reserved;
};

/* How what was read into memory of the GPU comes to be seen. */
enum kvpull_verbs_flushes_by {
	KVPULL_VERBS_FLUSHES_NOT =
		0, /* memory of the host, or a GPU in order */
	KVPULL_VERBS_FLUSHES_BY_LOOPS,
	KVPULL_VERBS_FLUSHES_BY_DRIVER
};

/* State that all endpoints share. */
struct kvpull_verbs_shared {
	const struct kvpull_log *log;
	const struct kvpull_fabric *fabric;
	struct kvpull_verbs_params params; /* defaults are filled in */
	char devices_named[KVPULL_VERBS_NAMES_BYTES];   /* of our local rank */
	char addresses_named[KVPULL_VERBS_NAMES_BYTES]; /* likewise */
	/* Own rails: each its device, and all memory registered with it. */
	struct kvpull_verbs_device devices[KVPULL_VERBS_RAILS_MAX];
	struct kvpull_verbs_regions regions[KVPULL_VERBS_RAILS_MAX];
	/* Where reads land beside that; no peer is told of it. */
	struct kvpull_verbs_regions locals[KVPULL_VERBS_RAILS_MAX];
	struct kvpull_verbs_loop loops[KVPULL_VERBS_RAILS_MAX];
	uint32_t is_gpu; /* reads land in memory of the GPU */
	uint32_t flush;  /* enum kvpull_verbs_flushes_by */
	uint32_t rail_count;
	uint32_t lane_count; /* of a bundle: params.qps a rail */
	struct kvpull_networks networks;
	struct kvpull_verbs_counts counts;
	uint64_t now_ns; /* of the last poll */
	uint64_t said_ns; /* of who was not let in: when an end was logged last */
	uint32_t was_there;   /* devices that could be used so far */
	uint32_t less_said;   /* by device: that it takes less was logged */
	uint32_t listen_said; /* likewise: that its port is not to be had */
};

struct kvpull_verbs_bundle;

/* Does a completion queue say when something comes? */
enum kvpull_verbs_bell {
	KVPULL_BELL_OFF = 0,
	KVPULL_BELL_ARMED, /* what was there before may make no event */
	KVPULL_BELL_EMPTY, /* and polled empty since: the next one makes an event */
	KVPULL_BELL_RANG /* something came: its event is unread */
};

struct kvpull_verbs_end {
	struct kvpull_verbs_shared *shared;
	struct kvpull_verbs_bundle *bundle;
	enum kvpull_verbs_role role;
	uint32_t index; /* the bundle's */
	uint32_t place; /* in the bundle; lanes 0 of all rails come first */
	uint32_t rail;  /* of the own ones; peers go by it */
	uint32_t lane;  /* of that rail: below params.qps */
	uint32_t queue_max;
	uint32_t frame_max; /* receives, and sends: 2 x notify_credits */
	uint32_t note_mask; /* a power of two, less 1: numbers wrap */
	uint8_t *buffers;   /* frames: receives, then sends */
	uint8_t *is_note;   /* [note_mask + 1], by credited number */
	struct kvpull_verbs_batch *batches; /* [queue_max] */
	struct kvpull_inbox inbox;
	struct kvpull_verbs_outbox message;
	struct kvpull_verbs_outbox keys_out;
	struct kvpull_keys keys; /* peers: the other side's memory */

	/* peers: of the bundle's connection, so they outlive a lost lane */
	uint32_t attempts; /* to join, since it was in for long */
	uint64_t retry_ns;
	uint64_t in_ns;          /* when it came in; 0: never */
	struct kvpull_pace pace; /* of reads */

	/* From here on all is of one connection, and zero while it is FREE. */
	enum kvpull_verbs_end_state state;
	uint32_t rail_there; /* callers: the consumer's own; NONE */
	uint32_t lane_there; /* callers: of that rail */
	uint32_t device;     /* index of the own one: of the rail while FREE */
	uint32_t joins;      /* one more lane: its bundle is in already */
	int32_t code;        /* LOST, QUIET: why */
	uint32_t hung_up;    /* by the other side, and not LOST yet */
	uint32_t connected;  /* CM has told us so, and nothing else since */
	uint32_t mtu; /* enum ibv_mtu: own port's, then the smaller one */
	enum kvpull_verbs_bell bell; /* of its CQ */
	uint32_t keys_known;
	uint64_t heard_ns;    /* when it last said something, or was asked to */
	uint64_t deadline_ns; /* of the handshake, or of LOST; 0: not set yet */
	uint64_t stall_ns;    /* LOST: `note` is given up then; 0: not set */
	char name[KVPULL_ADDRESS_BYTES_MAX]; /* the other side's, for logs */

	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *memory; /* of buffers */

	/* send queue */
	uint64_t posted;    /* number of the next one */
	uint64_t done;      /* all below are complete */
	uint64_t good;      /* all below are complete, and succeeded */
	uint64_t signalled; /* all below are told of, sooner or later */
	uint32_t failed;    /* one did not: none behind it is good */
	uint32_t batch_first;
	uint32_t batch_count;

	/* frames; counts are free-running */
	uint32_t credits;   /* the smaller of both sides' */
	uint32_t send_next; /* buffer */
	uint32_t send_open; /* buffers in use */
	uint32_t sent;      /* credited */
	uint32_t acked;     /* of them, by the other side */
	/* Since then none was acknowledged, while some are open. */
	uint64_t unanswered_ns;
	uint32_t received;     /* credited */
	uint32_t told_acked;   /* of them, told to the other side */
	uint32_t receive_open; /* posted receives */
	uint32_t held;         /* receive buffer in use; NONE */
	uint32_t beat_wanted;
	uint32_t ask_wanted; /* a beat that only asks for an answer */
	uint32_t beat_sent;  /* `sent` after the last one */
	uint32_t note_open;  /* notes not acknowledged */
	uint32_t inbox_kind;
	uint32_t stalled; /* `note` is here, and nothing behind it is looked at */
	uint32_t note_number;
	struct kvpull_record note;

	/* peers: what is read of the other side */
	uint64_t empty_ns;      /* the poll that last found the CQ empty */
	uint64_t bytes_open;    /* in flight */
	uint32_t requests_open; /* slots of READs in flight */
	uint32_t cancels_open;  /* cancelled, and still in flight */
	uint64_t cancel_ns;     /* cut off then, unless something was done */
	uint64_t cancel_max_ns; /* cut off then whatever was done */
	uint64_t cancel_done;   /* `done` when cancel_ns was set */
	uint32_t large_came;    /* a READ whose answer filled a frame */
	uint32_t paused; /* a message was reported: no more in this poll */
	uint32_t noted; /* a notification was taken: nothing is sent in this poll */
};

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

/* CONNECTING: its time begins. */
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
