/* SPDX-License-Identifier: Apache-2.0 */
/* The route's state: types alone, for all its parts. */
#ifndef KVPULL_VERBS_STATE_H
#define KVPULL_VERBS_STATE_H

#include "base/ring.h"
#include "base/turns.h"
#include "verbs/cursor.h"
#include "verbs/device.h"
#include "verbs/frame.h"
#include "verbs/loop.h"
#include "verbs/pace.h"
#include "verbs/region.h"

/* ---- endpoints: see endpoint.h ---- */

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

/* ---- bundles: see bundle.h ---- */

enum kvpull_verbs_bundle_state {
	KVPULL_BUNDLE_FREE = 0,
	KVPULL_BUNDLE_MEETING,
	KVPULL_BUNDLE_IN,
	KVPULL_BUNDLE_ENDING,
	KVPULL_BUNDLE_DOWN,
	KVPULL_BUNDLE_GONE
};

/* Where the other side is reached by one of the own rails. */
struct kvpull_verbs_way {
	struct kvpull_verbs_address address;
	uint32_t known;
};

struct kvpull_verbs_bundle {
	struct kvpull_verbs_shared *shared;
	enum kvpull_verbs_role role;
	uint32_t index;                /* the seam's handle */
	struct kvpull_verbs_end *ends; /* [shared->lane_count] */
	struct kvpull_record *notes;   /* peers: [notify_credits] */
	void *ring_memory;             /* callers */
	struct kvpull_turns turns;     /* peers: reads with something to post */

	/* From here on all is of one connection, and zero while it is FREE. */
	enum kvpull_verbs_bundle_state state;
	int32_t code;  /* ENDING: why */
	uint32_t told; /* the owner knows of it and is told its end */
	struct kvpull_verbs_give give; /* peers: what its only call is for */
	uint32_t greeted;   /* peers: the other side said something */
	uint32_t active_at; /* position among the active ones */
	uint32_t first;     /* place of the lane that frames go by */
	struct kvpull_verbs_way ways[KVPULL_VERBS_RAILS_MAX]; /* peers */
	struct kvpull_verbs_addresses addresses; /* peers: the other side's */
	uint64_t token[2]; /* callers: drawn; peers: as it was told */
	uint32_t qps; /* peers: lanes that it has places for, a rail of ours */
	/* callers: where they call from, and since when */
	struct kvpull_verbs_address from;
	uint64_t since_ns;
	/*
	 * callers: their notifications, which the engine's thread drains; the
	 * end that is written to is NULL until admit() let them in
	 */
	struct kvpull_ring_writer *ring;
	struct kvpull_ring ring_reader;
	struct kvpull_ring_writer ring_writer;

	/* notifications; numbers are free-running */
	uint32_t note_at;     /* the oldest that is not acknowledged */
	uint32_t note_number; /* its number */
	uint32_t note_count;
	uint32_t note_posted; /* of them, by the first lane */
	uint32_t note_next;   /* callers: the next one to take */

	/* peers: reads */
	uint32_t reads_open; /* not reported yet */
	uint32_t turn_place; /* of the lane that may post next */
	uint32_t gpu_waits;  /* of these, for the GPU's thread and for loops */
	uint32_t redo_open;  /* batches of lost lanes, to be posted by others */
};

/* ---- connecting: see connect.h ---- */

struct kvpull_verbs_connect {
	struct kvpull_verbs_shared *shared;
	struct kvpull_verbs_bundle *bundles; /* peers, then callers */
	uint32_t *active; /* indices of bundles that are not FREE */
	uint32_t active_count;
	uint32_t bundle_count;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listeners[KVPULL_VERBS_RAILS_MAX];
	uint16_t ports[KVPULL_VERBS_RAILS_MAX]; /* of listeners; 0: none yet */
	uint64_t said_ns; /* when a refusal was logged last */
	char address[KVPULL_ADDRESS_BYTES_MAX]; /* own; "": not listening */
	uint32_t address_is_new; /* the owner was not told of it */
};

#endif /* KVPULL_VERBS_STATE_H */
