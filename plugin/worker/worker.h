/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker half: one rank's memory, holds, peers and pulls.
 *
 * Two threads, or one that plays both (progress=caller):
 *   engine    hold table, consumers' rings, step and result bytes, reports
 *   progress  transports, peers, callers, claimed tickets, pulls
 * They share nothing but the two rings below and the slots (pulls, tickets,
 * callers) whose indices travel through them: who holds the index owns the
 * slot. Each index travels at most a fixed number of times each way, and the
 * rings are sized for all of them, so that neither is ever full.
 *
 * worker.c       open, close, regions
 * worker_step.c  engine: step and result bytes
 * worker_poll.c  engine: rings, sweep, reports
 * progress.c     progress: the loop, commands, events
 * serve.c        progress: callers (producer's handshake)
 * remote.c       progress: peers (consumer's handshake, reconnects, beats)
 * claim.c        progress: claimed tickets, their notifications
 * pull.c         progress: the pull's state machine
 */
#ifndef KVPULL_PLUGIN_WORKER_H
#define KVPULL_PLUGIN_WORKER_H

#include <pthread.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/map.h"
#include "base/ring.h"
#include "base/transport.h"
#include "plugin/bytes/handshake.h"
#include "plugin/bytes/step.h"
#include "plugin/config/config.h"
#include "plugin/hold/hold.h"
#include "plugin/progress/plan.h"
#include "shm/segment.h"

#define KVPULL_EVENTS_MAX 64u         /* transport events a progress run */
#define KVPULL_STRIPS_MAX 4096u       /* strips of a peer's plan */
#define KVPULL_RESULTS_A_BUILD 1024u  /* results in one message */
#define KVPULL_RECONNECTS_MAX 6u      /* attempts, 10 ms apart, doubling */
#define KVPULL_SPIN_NS UINT64_C(5000) /* progress thread, before it sleeps */

/* Records between the threads: record.kind, .slot = index. */
enum kvpull_message {
	/* engine -> progress */
	KVPULL_TO_CLAIM = 16, /* ticket slot: new, filled in */
	KVPULL_TO_PULL,       /* pull slot: new, filled in */
	KVPULL_TO_ABORT,      /* pull slot; generation = serial */
	KVPULL_TO_RELEASE,    /* ticket slot */
	KVPULL_TO_FORGET,     /* caller: its ring is drained */
	KVPULL_TO_DROP,       /* caller: broke the ring, or no room */
	/* progress -> engine */
	KVPULL_FROM_CALLER_UP,   /* caller slot: joined */
	KVPULL_FROM_CALLER_DOWN, /* caller slot: drain and forget */
	KVPULL_FROM_PULL,        /* pull slot: outcome is in it */
	KVPULL_FROM_TICKET       /* ticket slot: free again */
};

/* A claimed ticket, consumer's side. */
enum kvpull_claim_state {
	KVPULL_RANK_NEW = 0,
	KVPULL_RANK_CLAIMED,
	KVPULL_RANK_SAID, /* released; the peer has not taken it yet */
	KVPULL_RANK_RELEASED,
	KVPULL_RANK_LOST
};

struct kvpull_claim_rank {
	uint64_t incarnation;
	uint64_t tag;
	uint64_t note; /* SAID: the release is the peer's n-th notification */
	uint32_t peer; /* index; KVPULL_NONE: lost, or no room for it yet */
	uint32_t state;
	uint32_t tries; /* to find room */
	uint32_t reserved;
	char address[KVPULL_TICKET_ADDRESS_BYTES_MAX];
};

struct kvpull_claim {
	uint64_t serial;      /* of the scheduler half; 0: free */
	uint64_t instance_id; /* scheduler half's incarnation */
	uint64_t generation;
	uint64_t since_ns;
	uint32_t slot;
	uint32_t rank_count;
	uint32_t pull_count; /* pulls that use it */
	uint32_t releasing;  /* the last word was said */
	uint32_t open_count; /* ranks neither released nor lost */
	uint32_t next_work;  /* work list; KVPULL_NONE = end */
	uint32_t in_work;
	uint32_t next_free;    /* engine */
	uint32_t release_told; /* engine: TO_RELEASE was pushed */
	struct kvpull_claim_rank ranks[KVPULL_RANKS_MAX];
};

enum kvpull_pull_state {
	KVPULL_PULL_FREE = 0,
	KVPULL_PULL_CONNECT, /* waits for the peers of its ticket */
	KVPULL_PULL_WRITTEN, /* waits for ready[slot] */
	KVPULL_PULL_READ,    /* reads are being started or run */
	KVPULL_PULL_CHECK,   /* all bytes came; entries are being read */
	KVPULL_PULL_DRAIN,   /* failed: reads still run */
	KVPULL_PULL_AGAIN,   /* cut off: begins again when no read runs */
	KVPULL_PULL_STATES
};

/* One peer's part of a pull. */
struct kvpull_part {
	struct kvpull_read read;
	uint32_t pull;
	uint32_t rank; /* producer's */
	uint32_t peer;
	uint32_t state; /* enum in pull.c */
	uint32_t next_free;
	uint64_t life;   /* of the connection that its plan is of */
	uint64_t digest; /* of that plan */
};

/* What an earlier connection read of a part: its first bytes, of that plan. */
struct kvpull_part_done {
	uint64_t bytes;
	uint64_t digest;
};

struct kvpull_pull {
	/* set by the engine's thread, then the progress thread's */
	uint64_t key;
	uint64_t started_ns;
	uint64_t deadline_ns;
	uint64_t claim_serial;
	uint32_t claim;      /* ticket slot */
	uint32_t uses_claim; /* counted in the claim's pull_count */
	uint32_t flags;      /* KVPULL_PULL_* of step.h */
	uint32_t group_first[KVPULL_GROUPS_MAX + 1];
	uint32_t *remote_ids; /* [pull_blocks_max] */
	uint32_t *local_ids;
	uint32_t narrow; /* groups whose ids kvpull_pull_new() still widens */
	/* progress */
	enum kvpull_pull_state state;
	int32_t code;
	uint64_t bytes;
	uint64_t ended_ns;
	uint32_t part_count;
	uint32_t parts_open; /* started and not ended */
	uint32_t live_at;    /* position in the live list */
	uint32_t parts[KVPULL_RANKS_MAX];
	uint64_t done_ranks; /* bitmap of producer's ranks: which are in done */
	struct kvpull_part_done done[KVPULL_RANKS_MAX];
	/* engine */
	uint32_t next;       /* in one of the engine's lists */
	uint32_t serial;     /* counts the slot's uses, never 0 */
	uint32_t abort_told; /* TO_ABORT was pushed */
};

enum kvpull_remote_state {
	KVPULL_REMOTE_FREE = 0,
	KVPULL_REMOTE_CONNECTING, /* hello not sent yet */
	KVPULL_REMOTE_GREETED,    /* hello sent */
	KVPULL_REMOTE_UP,
	KVPULL_REMOTE_WAIT, /* lost; tried again at retry_ns */
	KVPULL_REMOTE_GONE  /* refused, or another incarnation is there */
};

/*
 * Low bits of the name by which a consumer's worker greets: they tell its lives
 * at one producer apart, the others are its process's.
 */
#define KVPULL_SELF_BITS 16u

/* A producer rank that we read. */
struct kvpull_remote {
	uint64_t incarnation; /* wanted; 0: free */
	uint64_t self; /* who we are there: another one after a give-up */
	enum kvpull_remote_state state;
	int32_t code;         /* why WAIT or GONE */
	uint32_t handle;      /* transport's peer index */
	uint32_t claim_count; /* open claims on it */
	uint32_t attempts;
	uint32_t waits;   /* in a row, for room at the peer */
	uint32_t closing; /* its entry is wanted by another */
	uint32_t tp_rank;
	uint32_t tp_size;
	uint64_t life;       /* of the last connection that was up */
	uint64_t cut_life;   /* of the last one that was cut on purpose */
	uint64_t notes_said; /* on that connection */
	uint64_t retry_ns;
	uint64_t greeted_ns; /* handshake must end by connect_ms after */
	uint64_t beat_ns;    /* next heartbeat */
	uint64_t beat_every_ns;
	uint64_t used_ns;
	uint8_t nonce[KVPULL_NONCE_BYTES];
	char address[KVPULL_ADDRESS_BYTES_MAX];
	struct kvpull_plan plan;
};

enum kvpull_caller_state {
	KVPULL_CALLER_FREE = 0,
	KVPULL_CALLER_CHALLENGED,
	KVPULL_CALLER_IN,
	KVPULL_CALLER_OUT /* down; the engine's thread drains its ring */
};

/* A consumer rank that reads us. */
struct kvpull_caller {
	/* progress */
	enum kvpull_caller_state state;
	uint32_t is_remote; /* over a network; set before FROM_CALLER_UP */
	uint8_t nonce[KVPULL_NONCE_BYTES];
	/* set before FROM_CALLER_UP */
	uint64_t instance_id;
	uint64_t incarnation;
	uint32_t rank;
	uint32_t rank_count;
	struct kvpull_ring *ring;
	char engine_id[KVPULL_ENGINE_ID_BYTES_MAX];
	/* engine */
	uint32_t joined;    /* 0: not yet, 1: in the hold table */
	uint32_t instance;  /* index in the hold table */
	uint32_t active_at; /* position in the active list */
	uint32_t dropped;
};

/* A pull that never got a slot: reported FAILED all the same. */
struct kvpull_refused {
	uint64_t key;
	int32_t reason;
	uint32_t reserved;
};

struct kvpull_outcome {
	uint64_t key;
	uint64_t generation;
	uint64_t bytes;
	uint32_t kind; /* enum kvpull_result_kind */
	uint32_t slot;
	int32_t reason;
	uint32_t reserved;
};

/* Counters of the progress side, read by stats() (one writer each). */
struct kvpull_progress_counts {
	_Atomic uint64_t pulls_live, pulls_done, pulls_failed, pulls_expired;
	_Atomic uint64_t bytes_pulled, peers_live, peer_connects, peer_failures;
	_Atomic uint64_t releases_queued, consumers_refused;
};

/* UINT64_MAX: one less. A statistic with one writer. */
static inline void kvpull_count_add(_Atomic uint64_t *counter, uint64_t more)
{
	atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

struct kvpull_progress {
	struct kvpull_transport *transport;
	struct kvpull_remote *remotes;    /* [peers_max] */
	struct kvpull_remote **remote_of; /* [peers_max] transport's peer -> */
	struct kvpull_map remote_map;     /* incarnation -> index */
	struct kvpull_part *parts;        /* [part_count_max] */
	struct kvpull_welcome *welcome;   /* scratch */
	struct kvpull_hello *hello;       /* scratch */
	uint8_t *message; /* scratch, KVPULL_MESSAGE_BYTES_MAX */
	uint32_t part_count_max;
	uint32_t part_free;
	uint32_t part_left; /* in the free list */
	uint32_t reserved;
	uint32_t claim_work;     /* list head */
	uint64_t taken_every_ns; /* between looks at what peers took */
	uint32_t *live;          /* [pulls_max] running pulls */
	/* Serial of what a slot is used for here; 0: it is the engine's. */
	uint64_t *claim_serials; /* [claim_count_max] */
	uint32_t *pull_serials;  /* [pulls_max] */
	uint32_t live_count;
	uint32_t pulls_dirty; /* a pull may be able to go on */
	uint32_t serving;     /* regions are known */
	uint32_t wake_wanted; /* the engine sleeps, and was told something */
	uint64_t lives;       /* connections that were up */
	uint64_t selves;      /* that were drawn for peers */
	uint64_t timer_ns;    /* next time something is due */
	uint64_t remote_ns;   /* next time a peer has something due */
	uint64_t pull_ns;     /* next look at the deadlines */
	uint64_t instance_id; /* D's scheduler half; 0: unknown */
	struct kvpull_progress_counts counts;
	/* What peers() tells; the lock is taken when a peer's state changes. */
	pthread_mutex_t peers_lock;
	struct kvpull_peer_info *peers; /* [peers_max] */
	uint32_t peer_count;
	/* thread */
	pthread_t thread;
	uint32_t thread_runs;
	_Atomic uint32_t stop;
	int wake_fd; /* engine -> progress */
	int wait_fd; /* epoll of wake_fd and the transport */
};

struct kvpull_worker {
	struct kvpull_log log;
	struct kvpull_log_budget log_budget;
	struct kvpull_config config;
	struct kvpull_compat compat;
	struct kvpull_arena arena;
	char engine_id[KVPULL_ENGINE_ID_BYTES_MAX];
	uint32_t tp_rank;
	uint32_t tp_size;
	uint64_t incarnation;
	pid_t pid; /* whose it is: a fork()ed child has a copy */
	uint8_t secret[KVPULL_SECRET_BYTES];
	uint8_t compat_digest[KVPULL_COMPAT_BYTES];
	uint64_t (*now_ns)(void *context);
	void *now_context;

	/* memory; written before serving, read by both threads */
	struct kvpull_shared memories[KVPULL_REGIONS_MAX];
	uint32_t memory_count;
	uint32_t file_count;
	int file_fds[KVPULL_REGIONS_MAX]; /* handed out, read-only */
	struct kvpull_shared entries;
	struct kvpull_serve serve;
	struct kvpull_cache *caches; /* [KVPULL_CACHES_MAX] */
	uint32_t cache_count;
	uint32_t registered;

	/* shared slots */
	struct kvpull_pull *pulls;     /* [pulls_max] */
	struct kvpull_claim *claims;   /* [claim_count_max] */
	struct kvpull_caller *callers; /* [consumers_max] */
	uint32_t claim_count_max;

	/* rings: reader's and writer's ends in this process */
	struct kvpull_ring to_reader, from_reader;
	struct kvpull_ring_writer to_writer, from_writer;

	/* engine's thread */
	struct kvpull_holds *holds;
	uint32_t *active; /* [consumers_max] callers in the hold table or joining */
	uint32_t active_count;
	uint32_t pull_free;  /* list heads */
	uint32_t pull_start; /* pulls waiting for start_loads, in order */
	uint32_t pull_start_last;
	uint32_t pull_done; /* outcomes to report, in order */
	uint32_t pull_done_last;
	uint32_t pull_failed; /* reported FAILED in the last poll */
	uint32_t claim_free;
	struct kvpull_refused *refused; /* [requests_max] circular */
	uint32_t refused_first;
	uint32_t refused_count;
	struct kvpull_map pull_map;         /* key -> pull */
	struct kvpull_map claim_map;        /* ticket serial -> claim */
	struct kvpull_step_scratch scratch; /* without ids */
	uint64_t step_incarnation;
	uint64_t step_sequence; /* last applied */
	uint64_t step_told;     /* last told in a result header */
	uint32_t step_gap;
	uint32_t retired; /* nothing new, for good */
	uint32_t step_gap_told;
	struct kvpull_outcome *results; /* [result_count_max] circular */
	uint64_t result_first;          /* sequence of the oldest kept */
	uint64_t result_next;           /* sequence of the next new one */
	uint32_t result_count_max;
	struct kvpull_worker_stats stats; /* the engine side's own counters */
	struct kvpull_worker_stats stats_at_reset;
	int event_fd; /* -1 until asked for */
	int timer_fd;
	int engine_wake_fd;
	uint64_t timer_set_ns;
	uint64_t broken_say_ns; /* next line on a broken ring */
	uint32_t events_wanted;
	uint32_t events_armed; /* whatever comes makes its descriptor readable */
	uint32_t events_kept; /* its descriptor is readable, by our own doing */
	_Atomic uint32_t closing; /* written by the engine's thread */

	struct kvpull_progress progress;
};

/* What open() works from; the simulation brings its own transport and clock. */
struct kvpull_worker_setup {
	const struct kvpull_open_params *params;
	const struct kvpull_config *config;
	struct kvpull_log log;
	uint64_t incarnation; /* 0: drawn */
	/* NULL: the same-node route */
	struct kvpull_transport *(*transport)(void *context,
					      struct kvpull_worker *worker);
	void *transport_context;
	uint64_t (*now_ns)(void *context); /* NULL: CLOCK_MONOTONIC */
	void *now_context;
};

int KVPULL_MUST_CHECK
kvpull_worker_create(const struct kvpull_worker_setup *setup,
		     struct kvpull_worker **worker,
		     struct kvpull_error_detail *detail);
/* What this version refuses by name; also for the scheduler half. */
int KVPULL_MUST_CHECK
kvpull_worker_params_check(const struct kvpull_open_params *params,
			   const struct kvpull_config *config,
			   struct kvpull_error_detail *detail);
void kvpull_worker_destroy(struct kvpull_worker *worker);
int kvpull_worker_memory_alloc(struct kvpull_worker *worker, uint64_t bytes,
			       uint32_t flags, struct kvpull_memory *memory);
int kvpull_worker_memory_free(struct kvpull_worker *worker, void *base);
int kvpull_worker_regions_register(struct kvpull_worker *worker,
				   const struct kvpull_regions *regions,
				   struct kvpull_error_detail *detail);

/* worker_step.c; as the ABI's calls */
int kvpull_worker_rank_info(struct kvpull_worker *worker, void *bytes,
			    size_t capacity, size_t *byte_count);
int kvpull_worker_step(struct kvpull_worker *worker, const void *bytes,
		       size_t byte_count);
int kvpull_worker_start_loads(struct kvpull_worker *worker);
int kvpull_worker_result_build(struct kvpull_worker *worker, void *bytes,
			       size_t capacity, size_t *byte_count);
/* Keep a result for the scheduler half; room was checked by the caller. */
void kvpull_worker_result_add(struct kvpull_worker *worker,
			      const struct kvpull_outcome *outcome);
uint32_t kvpull_worker_result_room(const struct kvpull_worker *worker);
/* Told at most once a pull and a ticket: the ring has room for that. */
void kvpull_worker_pull_abort(struct kvpull_worker *worker, uint32_t index);
void kvpull_worker_claim_release(struct kvpull_worker *worker, uint32_t index);
/* Hand an index to the progress thread and wake it. */
void kvpull_worker_tell(struct kvpull_worker *worker, uint32_t kind,
			uint32_t index, uint64_t serial);

/* Something waits for a poll: event_fd() says so. */
void kvpull_worker_poll_due(struct kvpull_worker *worker);

/* worker_poll.c; as the ABI's calls */
int kvpull_worker_progress(struct kvpull_worker *worker);
int kvpull_worker_poll(struct kvpull_worker *worker,
		       struct kvpull_poll_record *records, uint32_t capacity);
int kvpull_worker_failed_blocks(struct kvpull_worker *worker, uint64_t key,
				uint32_t *blocks, uint32_t capacity,
				uint32_t *block_count);
int kvpull_worker_hold_ready(struct kvpull_worker *worker, uint64_t key);
int kvpull_worker_revoke_all(struct kvpull_worker *worker, int32_t reason);
/* Pulls that were reported FAILED: their places are free, their blocks gone. */
void kvpull_worker_failed_free(struct kvpull_worker *worker);
/* For good: no ticket of ours is live, pulls are aborted, claims released. */
void kvpull_worker_retire(struct kvpull_worker *worker);
int kvpull_worker_event_fd(struct kvpull_worker *worker);
void kvpull_worker_stats_get(struct kvpull_worker *worker,
			     struct kvpull_worker_stats *stats, uint32_t reset);
/* Digest of all state but generations, sequences and counters. */
uint64_t kvpull_worker_digest(const struct kvpull_worker *worker);

/* progress.c */
/* What the routes may take from the arena. */
size_t kvpull_progress_bytes(const struct kvpull_config *config);
int KVPULL_MUST_CHECK
kvpull_progress_open(struct kvpull_worker *worker,
		     const struct kvpull_worker_setup *setup);
void kvpull_progress_close(struct kvpull_worker *worker);
/* One bounded run; returns what was done. progress=caller, or the thread. */
int kvpull_progress_run(struct kvpull_worker *worker, uint64_t now_ns);
int KVPULL_MUST_CHECK kvpull_progress_start(struct kvpull_worker *worker);
/* Hand an index to the engine's thread. */
void kvpull_progress_tell(struct kvpull_worker *worker, uint32_t kind,
			  uint32_t index);
void kvpull_progress_timer(struct kvpull_worker *worker, uint64_t at_ns);

/* serve.c */
/* 1: a process of this user, or over the network of any, is let in. */
int kvpull_uid_is_allowed(const struct kvpull_worker *worker, uint32_t uid);
void kvpull_serve_event(struct kvpull_worker *worker,
			const struct kvpull_event *event);

/* remote.c */
/* Find or make the peer; KVPULL_EROUTE; KVPULL_EFULL: no room now, try again. */
int KVPULL_MUST_CHECK kvpull_remote_find(struct kvpull_worker *worker,
					 const struct kvpull_claim_rank *rank,
					 uint64_t now_ns, uint32_t *peer);
void kvpull_remote_event(struct kvpull_worker *worker,
			 const struct kvpull_event *event, uint64_t now_ns);
void kvpull_remote_run(struct kvpull_worker *worker, uint64_t now_ns);
int kvpull_remote_peers(struct kvpull_worker *worker,
			struct kvpull_peer_info *peers, uint32_t capacity);

/* claim.c */
void kvpull_claim_new(struct kvpull_worker *worker, uint32_t claim,
		      uint64_t now_ns);
void kvpull_claim_release(struct kvpull_worker *worker, uint32_t claim,
			  uint64_t now_ns);
/* A peer came up, or was lost for good: its claims have work. */
void kvpull_claim_peer(struct kvpull_worker *worker, uint32_t peer,
		       uint64_t now_ns);
void kvpull_claim_run(struct kvpull_worker *worker, uint64_t now_ns);
void kvpull_claim_unuse(struct kvpull_worker *worker, uint32_t claim,
			uint64_t now_ns);

/* pull.c */
void kvpull_pull_new(struct kvpull_worker *worker, uint32_t pull,
		     uint64_t now_ns);
void kvpull_pull_abort(struct kvpull_worker *worker, uint32_t pull,
		       int32_t code, uint64_t now_ns);
void kvpull_pull_event(struct kvpull_worker *worker,
		       const struct kvpull_event *event, uint64_t now_ns);
void kvpull_pull_run(struct kvpull_worker *worker, uint64_t now_ns);

#endif /* KVPULL_PLUGIN_WORKER_H */
