/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The deterministic simulation: instances of real halves over a simulated
 * network and virtual time, and an oracle that keeps its own books. One seed
 * decides everything. README.md says what is modelled and what is promised.
 */
#ifndef KVPULL_SIM_H
#define KVPULL_SIM_H

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "plugin/scheduler/scheduler.h"
#include "plugin/worker/worker.h"
#include "shm/device.h"
#include "tests/sim/queue.h"
#include "tests/sim/shape.h"
#include "tests/sim/turns.h"

#define SIM_PROCS_MAX 160u /* processes of a small world, dead ones too */
#define SIM_CONNS_MAX 512u
#define SIM_INSTANCES_MAX 5u
#define SIM_BLOCKS 24u /* of an instance's pool, in a small world */
#define SIM_HEAD_BYTES 32u
#define SIM_BLOCK_TOKENS 16u
#define SIM_REQUEST_BLOCKS 4u /* of one request, at most */
#define SIM_REQUESTS 32u /* open in one engine, of those an engine looks at */
#define SIM_HOLDS 4096u  /* of one seed, in a small world */
#define SIM_CLAIMERS 16u /* instances that speak of one hold, noted */
#define SIM_CALLERS 64u  /* of one process, at most */
#define SIM_PEERS 32u
#define SIM_READS 64u
#define SIM_GROUPS 2u
#define SIM_RECORDS 64u
#define SIM_GAPS 8u /* more than can end in one lease, and be long */
#define SIM_TICKET_BYTES 1024u
#define SIM_STEP_BYTES (1u << 20)
#define SIM_NONE UINT32_MAX

struct sim_world;
struct sim_proc;
struct sim_device;

/* random.c */
uint64_t sim_random(struct sim_world *world);
uint64_t sim_below(struct sim_world *world,
		   uint64_t bound); /* 0 .. bound - 1 */
int sim_chance(struct sim_world *world, uint32_t per_mille);
/* As sim_chance(), if this world knows that fault. */
int sim_fault(struct sim_world *world, enum sim_fault fault,
	      uint32_t per_mille);
/*
 * The library's secrets and nonces are of the seed, too: a ticket's text has
 * them, so that what becomes of a damaged one does not vary.
 */
void sim_secrets_begin(uint64_t seed);
/* Adds to world->story: events, and the bytes of tickets. */
void sim_story_add(struct sim_world *world, const void *bytes,
		   size_t byte_count);
/* Return: the right value of word `word` of a block's head. */
uint64_t sim_stamp(uint64_t content, uint32_t block, uint32_t row);

/* index.c: numbers in no order */
struct sim_list {
	uint32_t *at;
	uint32_t count;
	uint32_t capacity;
};

/* A connection of a consumer's process to a producer's. */
struct sim_conn {
	uint32_t used;
	uint32_t peer;   /* the client's index */
	uint32_t caller; /* the server's index, SIM_NONE before it knew */
	uint32_t attached;
	uint32_t lost;       /* packets that are put now go nowhere */
	uint32_t closing;    /* by the client */
	uint32_t cut;        /* by the client, to end a cancelled read */
	uint32_t parts;      /* the client, which lives, made room for others */
	uint32_t parts_said; /* and the server's engine has heard of it */
	uint32_t client_done; /* PEER_DOWN was told, or it is dead */
	uint32_t server_done; /* forgotten there, or refused, or it is dead */
	uint32_t server_down; /* CALLER_DOWN was told */
	uint32_t full;        /* the server had no room for it */
	uint32_t drained;     /* the oracle was told of this connection's end */
	uint32_t gives;       /* it gives tickets back, and ends */
	uint32_t taken;       /* and its message was taken */
	uint32_t sent_away;   /* the server's engine had it make room */
	uint32_t beats;       /* since the server's last poll */
	uint32_t note_count;
	uint32_t unread;      /* notes that were said after it was lost */
	uint32_t mapping;     /* enum sim_mapping: the server's device memory */
	uint64_t instance_id; /* of the client when it was admitted */
	uint32_t client_rank;
	uint32_t client_ranks;
	uint64_t called_ns; /* by the client */
	uint64_t joined_ns; /* the server's hold table knows it since */
	struct sim_proc *client;
	struct sim_proc *server;
	struct sim_conn *next; /* of its server's, by their place in the world */
	struct sim_queue to_server;
	struct sim_queue to_client;
	struct kvpull_ring ring;
	struct kvpull_ring_writer writer;
	void *ring_memory;
	struct kvpull_mapping *lent; /* to the client's engine; NULL: not */
	struct kvpull_record notes[SIM_RECORDS]; /* in the ring, not polled */
};

struct sim_read {
	uint32_t active;
	uint32_t done; /* READ_DONE is to be told, with code */
	uint32_t checking;
	uint32_t cancelled;
	int32_t code;
	struct kvpull_read *read;
	struct sim_conn *conn;
	uint64_t at_ns;  /* next piece, or the check */
	uint32_t first;  /* piece that no earlier connection read */
	uint32_t cursor; /* pieces done, of those from the first on */
	uint32_t offset; /* where their order begins */
	uint32_t piece_count;
	uint32_t blocks;    /* copied a piece */
	uint64_t key;       /* whose blocks it may write */
	uint32_t on_device; /* its data come by the device's thread */
	struct kvpull_device_job job;
};

/* struct kvpull_transport comes first. */
struct sim_transport {
	struct kvpull_transport base;
	struct sim_proc *proc;
	const struct kvpull_serve *serve;
	struct sim_conn *peers[SIM_PEERS];
	uint32_t was_cut[SIM_PEERS]; /* the last one of this index */
	struct sim_conn *callers[SIM_CALLERS];
	struct sim_conn *conns; /* to it, accepted or not */
	struct sim_read reads[SIM_READS];
	struct sim_packet *told; /* its bytes live until the next poll */
	struct kvpull_shm_device device;
	uint32_t closed;
	char address[32];
};

/* A gap between two polls of a process. */
struct sim_gap {
	uint64_t gap_ns;
	uint64_t ended_ns;
};

/* The time that a process missed, as the rules of its mode have it. */
struct sim_missed {
	uint64_t looked_ns; /* the last poll, or a step that counts */
	struct sim_gap gaps[SIM_GAPS];
	uint32_t gap_count;
	uint64_t ran_ns;   /* the thread's last run; 0: none */
	uint64_t told_ns;  /* the last that its engine knows of */
	uint64_t stops_ns; /* sum of the thread's gaps over lease/3 */
	uint64_t seen_ns;  /* of these at looked_ns */
};

/* A worker's process. */
struct sim_output {
	struct sim_output *next;
	uint64_t at_ns;
	uint32_t record_count;
	uint32_t lost; /* the bytes, not the records */
	struct kvpull_poll_record records[SIM_RECORDS];
	size_t byte_count;
	uint8_t bytes[];
};

struct sim_proc {
	struct sim_world *world;
	struct sim_instance *instance;
	struct kvpull_worker *worker;
	struct sim_transport transport;
	uint32_t index;
	uint32_t rank;
	uint32_t layer_first, layer_end; /* of its stage */
	uint32_t alive;
	uint32_t readable; /* its memory, after its death */
	uint32_t poll_count;
	uint32_t closing; /* the clock runs in its calls */
	uint64_t clock_extra_ns;
	uint64_t incarnation;
	uint64_t digest;   /* of its fresh hold table */
	uint64_t stall_ns; /* sum of the gaps between polls over lease/3 */
	uint64_t awake_ns; /* when the last such gap could begin */
	struct sim_missed missed;
	struct sim_turns turns;
	uint64_t missed_ns; /* sum of what moved its leases */
	uint64_t run_ns;    /* last run of its progress */
	uint64_t lag_ns;    /* last time that a long gap between runs ended */
	uint64_t frozen_ns; /* it does nothing before */
	uint64_t step_ns;   /* last word of its scheduler half */
	uint64_t mute_ns;   /* last time that two leases without one ended */
	uint64_t block_key[SIM_BLOCKS]; /* consumer: whose pull may write */
	uint32_t known;                 /* to its scheduler half */
	uint64_t unanswered;  /* bit a rank: silent for connect_ms, last */
	uint64_t turned_away; /* bit a rank: refused this process for good */
	uint64_t went_ns;     /* it learned last that it had to make room */
	uint32_t unsaid;      /* result bytes were lost, records were not */
	struct sim_queue steps;
	struct sim_queue strays; /* steps that come again, late */
	struct sim_queue gifts;  /* give-back messages of anybody */
	uint64_t refuses;        /* bit a producer's rank that it cannot read */
	uint32_t misfit;         /* its memory fits no producer's */
	uint32_t crowded;        /* it had no place for a consumer, lately */
	uint64_t away_event;     /* in this poll consumers were sent away */
	struct sim_output *out_first;
	struct sim_output *out_last;
	uint64_t out_ns;
	struct sim_list untaken;     /* holds that it was not told of yet */
	struct sim_seen **seen;      /* by instance_id, seen_count of them */
	struct sim_seen *seen_first; /* of those that are there, or were */
	uint64_t event_count; /* of what it was told by consumers, from 1 on */
	uint64_t poll_event;  /* the last one before this poll */
	uint64_t call_event;  /* likewise, where a poll takes several calls */
	uint64_t sweep_event; /* likewise, at the end of the first one */
	uint32_t judged_poll; /* the one that poll_event is of */
	uint64_t seen_count;
	uint64_t heads;      /* a block has */
	uint64_t head_first; /* in the model */
	size_t block_bytes;
	uint8_t *memory;
	struct sim_device *device; /* whose memory that is; NULL: the host's */
};

enum sim_request_state {
	SIM_IDLE, /* the slot is free */
	SIM_RUNNING,
	SIM_HELD,
	SIM_WAITING, /* consumer: asks at each step */
	SIM_PULLING,
	SIM_LOCAL
};

struct sim_request {
	enum sim_request_state state;
	uint64_t key;
	uint64_t parent;
	uint64_t content; /* what its blocks hold */
	uint32_t hold;    /* index in world->holds */
	uint32_t tokens;
	uint32_t computed; /* producer: of these */
	uint32_t local_tokens;
	uint32_t first_index;
	uint32_t block_count;
	uint32_t blocks[SIM_REQUEST_BLOCKS];
	uint64_t reported; /* bit a rank */
	uint64_t good;     /* of these: LOADED */
	uint64_t written;  /* READY_NEEDED: bit a rank */
	uint64_t ready;
	uint64_t zeroed;                   /* on a device: bit a rank */
	uint64_t filled[SIM_RANKS_MAX];    /* producer: kernels that write it */
	int64_t marks[SIM_RANKS_MAX];      /* and a mark behind them */
	uint64_t marked_by[SIM_RANKS_MAX]; /* the worker that took it */
	uint32_t flags;
	uint32_t failed;
	uint32_t finished;
	uint32_t wrong;     /* a digest that is not its ticket's */
	uint32_t expired;   /* a rank said so */
	uint32_t shown;     /* its ticket was taken */
	uint32_t fresh;     /* and cannot be released yet */
	uint32_t changed;   /* weights or adapter, since it entered */
	uint64_t queued_ns; /* the engine has no time for it before */
	uint64_t since_ns;
	uint64_t stall_ns[SIM_RANKS_MAX];
	uint8_t digest[KVPULL_DIGEST_BYTES];
};

struct sim_instance {
	struct sim_world *world;
	uint32_t index;
	uint32_t produces;
	uint32_t ranks; /* of all stages */
	struct sim_stages stages;
	uint32_t alive;
	uint32_t one_process; /* reports are handled in the poll that made them */
	uint32_t share_prefix;
	uint32_t splits;   /* progress runs on its own too */
	uint32_t revoked;  /* the engine ended all holds once */
	uint32_t draining; /* it holds nothing new */
	uint32_t stranger; /* SIM_STRANGER_*: each producer refuses it */
	uint32_t suspects; /* bit an adapter: its cache has KV of before */
	uint32_t abort_revokes;
	uint32_t restarts; /* of single workers */
	uint32_t lost;     /* a device is, and its worker has said so */
	uint64_t incarnation;
	uint64_t digest; /* of its fresh scheduler half */
	uint64_t stalled_ns;
	uint32_t abandoned; /* its engine steps no more; its workers live */
	uint64_t stepped_ns;
	uint64_t restart_ns; /* when dead */
	uint64_t rank_restart_ns[SIM_RANKS_MAX];
	struct kvpull_scheduler *scheduler;
	struct sim_queue strays; /* results that come again, late */
	struct sim_queue late[SIM_RANKS_MAX]; /* steps for who died there */
	struct sim_queue unheard;             /* results of who died */
	struct sim_queue past; /* those that come in its next life */
	struct sim_proc *procs[SIM_RANKS_MAX];
	struct kvpull_config config;
	struct kvpull_log log;
	uint32_t *free_blocks;
	uint32_t free_count;
	uint32_t block_count;
	struct sim_request *requests;
	uint32_t request_count;
	uint32_t window;      /* of SIM_REQUESTS that its engine looks at now */
	struct sim_list open; /* holds that some rank has to report */
	uint32_t open_at;     /* the one that the oracle looks at next */
	uint32_t newest;      /* hold, + 1; the others follow by `older` */
	uint32_t *slots;      /* the newest of each slot, + 1 */
};

/*
 * The past of a consumer's rank and one hold: when the process was told, as
 * numbers of its events; 0: never. The rank owes a word while the last reason
 * for one is younger than the last payment.
 */
struct sim_debt {
	uint64_t claimed; /* by itself; the first one that is not paid */
	uint64_t waited; /* by a sibling first, while the rank was not absent */
	uint64_t paid;   /* released, died, or replaced by another worker */
	uint64_t spoke_ns;
};

/* The past of a consumer instance and one hold. */
struct sim_claimer {
	uint64_t instance_id;
	uint64_t life;  /* of the instance, in the eyes of this process */
	uint64_t first; /* its first word */
	uint64_t known; /* ranks that the process cannot have forgotten then */
	/* ranks that owe nothing for a first word of another rank */
	uint64_t exempt;
	uint64_t released; /* the last word that was a release */
	struct sim_debt debts[SIM_RANKS_MAX];
};

struct sim_hold_rank {
	uint64_t taken_ns;
	uint64_t taken_missed_ns;
	uint64_t taken_by; /* the worker that was told; 0: none yet */
	uint64_t sent_by;  /* the worker that reported; 0: none yet */
	uint64_t heard_by; /* the last whose report reached the engine */
	int32_t reason;    /* of its report */
	uint32_t excused;  /* a second worker may report it again */
	uint32_t complete_polls;
	uint32_t overdue_polls;
	uint32_t alone_polls; /* since the others must have ended it */
	uint32_t given_polls; /* since nobody owes what was given back */
	uint64_t given_by;    /* the worker that was shown its tag; 0: none */
	uint64_t word_ns;     /* the last claim, release or death */
	uint64_t word_missed_ns;
	uint32_t claimer_count;
	struct sim_claimer *claimers;
};

/* A consumer instance's use of a hold, and in which of its lives. */
struct sim_user {
	uint32_t instance;
	uint64_t used_life;    /* it saw the ticket */
	uint64_t ended_life;   /* a pull of it is over */
	uint64_t copied_life;  /* a copy of it was refused */
	uint64_t used_ns;      /* a request of that life first showed it */
	uint64_t left_ns;      /* its last request ended, or was rejected */
	uint64_t expired_life; /* it knows of its expiry, and since when */
	uint64_t expired_ns;
};

struct sim_hold {
	uint64_t key;
	uint64_t content;
	uint64_t generation;
	uint64_t life; /* the instance's incarnation */
	uint64_t created_ns;
	uint32_t slot;
	uint32_t instance;
	uint32_t tokens;
	uint32_t computed;
	uint32_t block_count;
	uint32_t aborted; /* after its finish */
	uint64_t told_ns; /* the engine heard of an end that all ranks follow */
	uint64_t spread_ns; /* and has told its ranks */
	uint64_t marked_ns; /* likewise: that it was given back */
	uint64_t marks_ns;  /* and has told its ranks */
	uint64_t tags[SIM_RANKS_MAX];
	uint64_t workers[SIM_RANKS_MAX]; /* incarnations in the ticket */
	uint32_t older;                  /* of its instance, + 1; 0: none */
	uint32_t slot_older;             /* of its slot */
	uint32_t user_count;
	struct sim_user *users;
	uint8_t digest[KVPULL_DIGEST_BYTES];
	struct sim_hold_rank ranks[SIM_RANKS_MAX];
	size_t ticket_bytes;
	char ticket[SIM_TICKET_BYTES];
};

enum sim_rank_state {
	SIM_RANK_NEVER,
	SIM_RANK_HERE,
	SIM_RANK_GRACE,
	SIM_RANK_AWAY,
	SIM_RANK_CALLED,
	SIM_RANK_DEAD
};

/*
 * The past of a consumer's rank, in one life of its instance: numbers of the
 * process's events at which each of these happened last; 0: never.
 */
struct sim_rank {
	uint64_t came;
	uint64_t left;
	uint64_t called; /* another worker called, and had to wait */
	uint64_t died;
	uint64_t worker; /* incarnation that came last */
	uint64_t left_ns;
	uint64_t left_missed_ns;
	uint64_t heard_ns;
	uint64_t heard_missed_ns;
	uint32_t said;  /* that it goes, when it left */
	uint32_t waits; /* a caller does, at the end of this poll */
};

/* How a consumer instance is seen by one producer process. */
struct sim_seen {
	struct sim_seen *next;
	uint32_t listed;
	uint32_t rank_count;
	uint64_t instance_id;
	uint64_t life;   /* it was over, and came again, so often */
	uint64_t absent; /* ranks that were dead or called before this poll */
	uint64_t served; /* ranks that were here, in grace or called */
	uint64_t forgotten; /* ranks whose past the process may not know */
	struct sim_rank ranks[SIM_RANKS_MAX];
};

/* Where the bearer of a key is found; keys are given out from 1 on. */
struct sim_key {
	uint32_t hold;    /* + 1; 0: none */
	uint32_t request; /* of its instance's */
	uint32_t sibling; /* a parent's: request that is held for the family */
};

struct sim_event {
	uint64_t at_ns;
	const char *format;
	uint64_t values[4];
};

struct sim_counts {
	uint64_t turns, holds, released, expired, ended, frees, siblings;
	uint64_t loaded, failed, eexpired, rejects, kills, losses, cuts, polls;
	uint64_t payloads, resumed, small, digests_wrong, corrupt, aborts;
	uint64_t refused, gives, shown, given_back, sent_away, judged, changes;
	/* The members from here on count events of devices. */
	uint64_t slices, unmaps, kernels, uses, marks, waits, captures, ready;
	uint64_t stopped, lost_devices, copied, outdated;
};

struct sim_world {
	uint64_t seed;
	uint64_t steps;
	uint64_t turn;
	uint64_t state;       /* of the random generator */
	uint64_t shape_state; /* of another, for the shape alone */
	struct sim_shape shape;
	uint64_t now_ns;
	uint64_t key_next;
	uint64_t incarnation_next;
	uint64_t lease_ns;
	uint64_t hold_max_ns;
	uint64_t deadline_ns;
	uint64_t grace_ns;
	uint32_t verbose;
	uint32_t quiet;        /* no new work, no faults */
	uint64_t quiet_ns;     /* since then */
	uint32_t bytes_faulty; /* per mille of lost or doubled messages */
	uint32_t kills;        /* per mille a turn */
	uint32_t abandons;     /* 1: some consumers' engines step no more */
	uint32_t losses;
	uint32_t smooth; /* nothing goes wrong: each pull comes */
	uint32_t tidy;   /* nothing but refusals does */
	uint32_t cuts;   /* per mille of a cancelled read's pieces */
	uint32_t delay_us;
	uint32_t instance_count, proc_count;
	uint32_t hold_count, hold_capacity;
	uint32_t conn_low; /* where the search for a free one begins */
	/* Holds that a big world gives out; 0: it is a small one. */
	uint32_t big, big_instances;
	uint32_t pool, pool_chunks; /* a pool's story, and a big one's chunks */
	struct sim_instance *instances;
	struct sim_proc *procs;
	struct sim_conn *conns;
	struct sim_hold *holds;
	struct sim_key *keys;
	uint64_t key_capacity;
	struct sim_event events[64];
	uint64_t event_count;
	uint64_t story; /* digest of all that happened */
	struct sim_counts counts;
	uint8_t scratch[SIM_STEP_BYTES];
};

/* report.c */
void sim_trace(struct sim_world *world, const char *format, uint64_t a,
	       uint64_t b, uint64_t c);
/* Prints what, the last events and how to replay; exits. */
void __attribute__((noreturn, format(printf, 2, 3)))
sim_fail(struct sim_world *world, const char *format, ...);
void sim_report_open(void);

/* net.c */
struct kvpull_transport *
sim_transport_make(void *context, const struct kvpull_log *log, uint32_t at);
/* Before an instance's turn: reads go on. */
void sim_net_run(struct sim_world *world, const struct sim_instance *instance);
/* The process died: what it sent may be lost, the others see it later. */
void sim_net_kill(struct sim_proc *proc);
void sim_net_lose(struct sim_world *world);
/* By its client, to end a cancelled read: all its reads end now. */
void sim_net_cut(struct sim_conn *conn);
void sim_net_close(struct sim_world *world);

/* index.c */
/* realloc() for so many; it does not fail. */
void *sim_grown(void *memory, uint64_t count, size_t bytes);
void sim_list_add(struct sim_list *list, uint32_t number);
void sim_list_drop(struct sim_list *list, uint32_t at);
/* The next key, for a request of that place in its instance. */
uint64_t sim_key_next(struct sim_world *world, uint32_t request);
/* The entry of a key; never NULL. */
struct sim_key *sim_key_find(struct sim_world *world, uint64_t key);
struct sim_user *sim_user_of(struct sim_hold *hold,
			     const struct sim_instance *instance);
/* Among those to its server, by their place in the world. */
void sim_conn_link(struct sim_conn *conn);
/* Frees the connection if nobody knows it any more. */
void sim_conn_free(struct sim_conn *conn);
/* The first that is free, in a big world the next one; or NULL. */
struct sim_conn *sim_conn_find(struct sim_world *world);
void sim_index_open(struct sim_world *world);
void sim_index_close(struct sim_world *world);

static inline uint32_t sim_rank_bit(const struct sim_proc *proc)
{
	/* A big world has more than bits: there somebody always dies. */
	return (proc->instance->index * SIM_RANKS_MAX + proc->rank) % 64;
}

/* read.c */
int sim_read_start(struct kvpull_transport *transport, uint32_t peer,
		   struct kvpull_read *read);
void sim_read_cancel(struct kvpull_transport *transport, uint32_t peer,
		     struct kvpull_read *read);
int sim_check_start(struct kvpull_transport *transport, uint32_t peer,
		    struct kvpull_read *read);
void sim_reads_run(struct sim_proc *proc);
/* As in the seam: a small pull, by the consumer's engine. */
int sim_lent_copy(const struct kvpull_mapping *mapping,
		  const struct kvpull_read *read);
/* Ends the reads of a connection now; READ_DONE comes at the next poll. */
void sim_reads_end(struct sim_conn *conn, int32_t code);
uint32_t sim_reads_told(struct sim_transport *transport,
			struct kvpull_event *events, uint32_t capacity);
int sim_reads_open(const struct sim_conn *conn);

/* world.c */
void sim_world_run(struct sim_world *world);
void sim_instance_open(struct sim_instance *instance);
void sim_instance_kill(struct sim_instance *instance);
void sim_instance_close(struct sim_instance *instance);
void sim_rank_kill(struct sim_instance *instance, uint32_t rank);
void sim_rank_open(struct sim_instance *instance, uint32_t rank);

/* memory.c */
void sim_regions_register(struct sim_proc *proc);

/* engine.c: the steps between the halves, for both roles */
void sim_engine_step(struct sim_instance *instance);
void sim_engine_results(struct sim_instance *instance);
/* Each has told its scheduler half of itself. */
int sim_ranks_are_known(const struct sim_instance *instance);
void sim_proc_turn(struct sim_proc *proc);
/* A producer goes on while a consumer copies. */
void sim_producer_meanwhile(struct sim_proc *proc);
/* The engine beats now: may it? */
void sim_engine_beats(const struct sim_proc *proc);
void sim_engine_record(struct sim_proc *proc,
		       const struct kvpull_poll_record *record);
int sim_blocks_take(struct sim_instance *instance, struct sim_request *request,
		    uint32_t count);
void sim_blocks_give(struct sim_instance *instance,
		     struct sim_request *request);
struct sim_request *sim_request_find(struct sim_instance *instance,
				     uint64_t key);
struct sim_request *sim_request_slot(struct sim_instance *instance);
/*
 * Fills a block of a request, on one rank. Where there are two groups the
 * second has its blocks in the other order, and the trailing ones of the prompt
 * alone.
 */
void sim_fill(struct sim_proc *proc, const struct sim_request *request,
	      uint32_t at, uint64_t content);
struct sim_group {
	uint32_t first; /* logical index of its first block */
	uint32_t count;
	uint32_t ids[SIM_REQUEST_BLOCKS];
};
/*
 * The group's part of a request's blocks, where the whole prompt has so many.
 */
void sim_group_fill(const struct sim_world *world,
		    const struct sim_request *request, uint32_t prompt_blocks,
		    uint32_t index, struct sim_group *group);
/* As calls want them; returns how many. */
uint32_t sim_groups_fill(const struct sim_world *world,
			 const struct sim_request *request,
			 uint32_t prompt_blocks, struct sim_group *groups,
			 struct kvpull_blocks *blocks);

/* missed.c: what moves a process's leases, and has them judged later */
void sim_missed_look(struct sim_proc *proc, int is_poll);
void sim_missed_thread_ran(struct sim_proc *proc);
uint64_t sim_missed_late(const struct sim_proc *proc);

/* producer.c, consumer.c */
void sim_producer_turn(struct sim_instance *instance);
void sim_producer_sent(struct sim_proc *proc,
		       const struct kvpull_poll_record *record);
void sim_consumer_turn(struct sim_instance *instance);
void sim_consumer_ended(struct sim_proc *proc,
			const struct kvpull_poll_record *record);
/* The engine itself fails what a lost worker was to report. */
void sim_consumer_rank_lost(struct sim_instance *instance, uint32_t rank);

/* give.c */
enum sim_stranger {
	SIM_STRANGER_NOT,
	SIM_STRANGER_MODEL,
	SIM_STRANGER_KEY
};

/* Draws why a consumer's instance, or one worker of it, is refused. */
void sim_stranger_draw(struct sim_instance *instance);
void sim_misfit_draw(struct sim_proc *proc);
/* A stranger shows words to the ranks of a producer. */
void sim_give_turn(struct sim_world *world);

/* oracle_crowd.c: the process refuses a caller. */
void sim_refusal_note(struct sim_proc *proc, const struct sim_conn *conn,
		      const void *refusal, size_t refusal_bytes);

/* oracle.c */
void sim_oracle_held(struct sim_instance *instance,
		     const struct sim_request *request, const char *ticket,
		     size_t ticket_bytes);
/* Return: the instance's hold that the ticket is of, or SIM_NONE. */
uint32_t sim_oracle_ticket(const struct sim_instance *instance,
			   const char *ticket, size_t ticket_bytes);
void sim_oracle_told(struct sim_proc *proc);    /* after a step */
void sim_oracle_drained(struct sim_proc *proc); /* before its reports */
void sim_oracle_sent(struct sim_proc *proc,
		     const struct kvpull_poll_record *record);
void sim_oracle_polled(struct sim_proc *proc);
/* Was this process told of the hold, by its engine or by a consumer? */
int sim_oracle_is_known(struct sim_proc *proc, uint64_t key);
void sim_oracle_proc_dead(struct sim_proc *proc);
void sim_oracle_heard(struct sim_proc *proc,
		      const struct kvpull_poll_record *record);
void sim_oracle_aborted(struct sim_instance *instance, uint64_t key);

/* oracle_loaded.c */
void sim_oracle_loaded(struct sim_proc *proc,
		       const struct sim_request *request);

/* oracle_end.c */
void sim_oracle_end(struct sim_world *world); /* before anything closes */

/* oracle_owes.c */
/* A process that owes a word on the hold must know that, or have said it. */
void sim_oracle_owes(struct sim_proc *proc, const struct sim_hold *hold);

#endif /* KVPULL_SIM_H */
