/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only data that cross between the two threads of a worker, or between its
 * two halves where one thread plays both (progress=caller):
 *   engine    plugin/worker: hold table, consumers' rings, step bytes, reports
 *   progress  plugin/progress: transports, peers, callers, claims, pulls
 *
 * They share facts that neither changes once regions are served, slots whose
 * indices travel through two rings, and peers' memory that the engine's thread
 * pins while it copies (beside it the routes' help(), through
 * kvpull_progress_help()). The thread that holds a slot's index owns the slot.
 * Each index travels at most a fixed number of times each way, and the rings are
 * sized for all of them: neither is ever full.
 */
#ifndef KVPULL_PLUGIN_HANDOVER_H
#define KVPULL_PLUGIN_HANDOVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/mapping.h"
#include "base/ring.h"
#include "base/transport.h"
#include "plugin/bytes/handshake.h"
#include "plugin/bytes/step.h"
#include "plugin/config/config.h"
#include "plugin/handover/given.h"
#include "plugin/status/status.h"

/* Identity and served memory of a worker; both threads read it. */
struct kvpull_facts {
	struct kvpull_log log;
	struct kvpull_log_budget log_budget;
	struct kvpull_config config;
	struct kvpull_compat compat;
	char engine_id[KVPULL_ENGINE_ID_BYTES_MAX];
	struct kvpull_stage stage; /* its layers: written as serve is */
	uint32_t reserved;
	uint64_t incarnation;
	uint32_t device_kind; /* KVPULL_DEVICE_*, as the engine says */
	int device_index;
	uint32_t caller_count_max; /* of all routes, let in or not */
	uint32_t cache_count;
	uint64_t (*now_ns)(void *context);
	void *now_context;
	/* The worker's memory; written before it is served. */
	struct kvpull_serve serve;
	struct kvpull_cache *caches; /* [KVPULL_CACHES_MAX] */
	/* The status file; its layout names the thread that writes each row. */
	struct kvpull_status *status;
};

static inline uint64_t kvpull_facts_now(const struct kvpull_facts *facts)
{
	return facts->now_ns(facts->now_context);
}

/* Records of the two rings: record.kind, .slot = index, .generation = serial. */
enum kvpull_handover_kind {
	/* engine -> progress */
	KVPULL_TO_CLAIM = 16, /* claim: new, filled in */
	KVPULL_TO_PULL,       /* pull: new, filled in */
	KVPULL_TO_ABORT,      /* pull */
	KVPULL_TO_RELEASE,    /* claim */
	KVPULL_TO_FORGET,     /* consumer: its ring is drained */
	KVPULL_TO_DROP,       /* consumer: broke the ring, or no room */
	/* progress -> engine */
	KVPULL_FROM_CONSUMER_UP,   /* consumer: joined, filled in */
	KVPULL_FROM_CONSUMER_DOWN, /* consumer: drain and forget */
	KVPULL_FROM_PULL,          /* pull: its outcome is there */
	KVPULL_FROM_CLAIM,         /* claim: free again */
	KVPULL_FROM_ROOM,          /* slot: places that a new consumer lacks */
	KVPULL_FROM_GIVEN          /* tickets were given back: see given.h */
};

/* A pull, as the engine's thread orders it. */
struct kvpull_pull_order {
	uint64_t key;
	uint64_t started_ns;
	uint64_t deadline_ns;
	uint64_t claim_serial;
	uint64_t after; /* as kvpull_read's: what its bytes land behind */
	uint32_t claim;
	uint32_t flags;     /* KVPULL_PULL_* of step.h */
	uint32_t unstarted; /* 1: at its deadline start_loads() had not come */
	int32_t priority;   /* smaller goes first */
	uint32_t reserved;
	uint32_t group_first[KVPULL_GROUPS_MAX + 1];
	uint32_t *remote_ids; /* [pull_blocks_max] */
	uint32_t *local_ids;
	char label[KVPULL_STEP_LABEL_BYTES];
};

/* When it reached what connector.h tells of a pull; 0: it did not. */
struct kvpull_pull_phases {
	uint64_t begun_ns;
	uint64_t connected_ns;
	uint64_t asked_ns;
	uint64_t came_ns;
};

/* The end of a pull, as progress tells it. */
struct kvpull_pull_outcome {
	struct kvpull_pull_phases phases;
	uint64_t bytes;
	uint64_t ended_ns;
	int32_t code;
	uint32_t reserved;
};

#define KVPULL_RANKS_FEW 2u /* of tickets whose ranks lie close together */

/* A ticket that the consumer is to claim. */
struct kvpull_claim_order {
	uint64_t serial;      /* of the scheduler half; 0: free */
	uint64_t instance_id; /* scheduler half's incarnation */
	uint64_t generation;
	uint32_t slot;
	uint32_t rank_count;
	int32_t priority; /* of its first request */
	uint32_t reserved;
	struct kvpull_ticket_rank *ranks;    /* in one of the handover's */
	char label[KVPULL_STEP_LABEL_BYTES]; /* of its first request */
};

/* A caller that was let in, producer's side. */
struct kvpull_consumer {
	uint64_t instance_id;
	uint64_t incarnation;
	struct kvpull_ring *ring; /* the engine's to drain until TO_FORGET */
	uint32_t rank;
	uint32_t rank_count;
	uint32_t is_remote; /* over a network */
	uint32_t pid;       /* as it says, in its own namespace */
	char engine_id[KVPULL_ENGINE_ID_BYTES_MAX];
};

struct kvpull_plan; /* plugin/progress/plan.h */

/*
 * A peer's memory, lent to the engine's thread: progress fills it in, and opens
 * the mapping. While that is pinned nothing of it changes.
 */
struct kvpull_lent {
	struct kvpull_mapping mapping;
	/* Incarnation of the mapping's owner, 0: none. Found without a pin. */
	_Atomic uint64_t incarnation;
	const struct kvpull_plan *plan;
	struct kvpull_stage stage;
	uint32_t reserved;
};

struct kvpull_handover {
	struct kvpull_pull_order *pulls;      /* [pulls_max] */
	struct kvpull_pull_outcome *outcomes; /* [pulls_max] */
	struct kvpull_claim_order *claims;    /* [claims_max] */
	struct kvpull_ticket_rank *ranks_few; /* [claims_max][few] */
	struct kvpull_ticket_rank *ranks;  /* [claims_max][KVPULL_RANKS_MAX] */
	struct kvpull_consumer *consumers; /* [caller_count_max] */
	struct kvpull_lent *lent;          /* [kvpull_config_peer_entries()] */
	_Atomic uint32_t lent_end; /* those from here on were never lent */
	struct kvpull_given given; /* kvpull_given_init() is the worker's */
	int engine_wake_fd;   /* eventfd; written for an engine that sleeps */
	int progress_wake_fd; /* likewise */
	/*
	 * The engine's thread sets it: no new caller is let in. Orders nothing.
	 */
	_Atomic uint32_t closing;
	/* FROM_ROOM is on its way: one record at a time. Orders nothing. */
	_Atomic uint32_t room_asked;
	/*
	 * Own addresses as tickets carry them: progress's, under the lock. The
	 * count moves on with each change.
	 */
	pthread_mutex_t address_lock;
	char address[KVPULL_TICKET_ADDRESS_BYTES_MAX];
	_Atomic uint32_t address_count;
	/* The scheduler half's last word; the engine's, orders nothing. */
	_Atomic uint64_t step_ns;
	/* The progress thread's: its last run, and the sum of its stops. */
	_Atomic uint64_t ran_ns;
	_Atomic uint64_t stopped_ns;
};

/* The two rings' ends of one side. */
struct kvpull_handover_end {
	struct kvpull_ring reader;
	struct kvpull_ring_writer writer;
	const struct kvpull_log *log;
};

/*
 * Both ends, and the slots but for the pulls' ids, from the arena.
 * Return: 0, KVPULL_ENOMEM, KVPULL_EDEVICE (no descriptors; logged).
 */
int KVPULL_MUST_CHECK kvpull_handover_open(struct kvpull_handover *handover,
					   const struct kvpull_facts *facts,
					   struct kvpull_handover_end *engine,
					   struct kvpull_handover_end *progress,
					   struct kvpull_arena *arena);
/* Also of one whose open failed, if both descriptors were -1 before. */
void kvpull_handover_close(struct kvpull_handover *handover);

/* Progress has other addresses; the engine takes them. */
void kvpull_handover_address_set(struct kvpull_handover *handover,
				 const char *text);
void kvpull_handover_address_get(struct kvpull_handover *handover, char *text);

/*
 * The progress thread runs; last_ns: its run before, 0: none. A stop is a time
 * of more than a third of a lease between two runs.
 */
void kvpull_handover_ran(struct kvpull_handover *handover, uint64_t last_ns,
			 uint64_t now_ns, uint64_t lease_ns);

/*
 * Sum of the progress thread's stops, with one that goes on. At the moment of a
 * stop's end the engine may count it twice, until it looks again.
 */
uint64_t kvpull_handover_stopped(const struct kvpull_handover *handover,
				 uint64_t now_ns, uint64_t lease_ns);

/* Hand an index to the other side. Return: 1 if that sleeps, else 0. */
int kvpull_handover_push(struct kvpull_handover_end *end, uint32_t kind,
			 uint32_t index, uint64_t serial);

#endif /* KVPULL_PLUGIN_HANDOVER_H */
