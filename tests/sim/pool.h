/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulation of the pool: processes that share chunks and read each other's,
 * over a route that brings eight bytes at a time in any order, and books of our
 * own of what each key's bytes must be. README.md says what is promised.
 */
#ifndef KVPULL_SIM_POOL_H
#define KVPULL_SIM_POOL_H

#include "plugin/pool/pool.h"
#include "plugin/share/reader.h"
#include "tests/sim/sim.h"

#define POOL_PROCS 4u
#define POOL_HOMES 40u    /* incarnations of owners, in one world */
#define POOL_WEIGHTS 3u   /* each a namespace; a process may come back to one */
#define POOL_CONNS 6u     /* of one process */
#define POOL_BLOCKS 48u   /* that a process reads into, beside its own chunks */
#define POOL_TASKS 72u    /* probes and reads of one process: more than fit */
#define POOL_PIECES 24u   /* of one read */
#define POOL_JOBS 6u      /* writes under way in one owner */
#define POOL_QUIET 16u    /* turns: a cancelled read is over by then */
#define POOL_PATIENCE 40u /* own turns after a deadline: the end was told */
#define POOL_STEP_NS 100000u /* of a turn */

/* Numbers 0 .. count - 1 in an order of their own. */
struct pool_order {
	uint32_t count, next, first, stride;
};

/* A put that was accepted. Ticks order what happens to shared memory. */
struct pool_listing {
	uint64_t generation, from, until;
	uint32_t weights, key, place;
	uint32_t before; /* the place's last one */
};

struct pool_place {
	uint64_t generation; /* by our own count of bumps */
	uint32_t listing;    /* that a probe must find, or SIM_NONE */
	uint32_t last;       /* listing */
	uint32_t job;        /* whose write has not ended, or SIM_NONE */
	uint32_t is_used;    /* written or put under this generation */
	uint64_t bumped;     /* tick of the last one */
};

enum pool_job_state {
	POOL_JOB_FREE,
	POOL_JOB_COMPUTES,
	POOL_JOB_WRITES,
	POOL_JOB_WRITTEN
};

/* Bytes on their way into a place, and their put. */
struct pool_job {
	enum pool_job_state state;
	uint32_t weights, key;
	uint64_t epoch; /* in which it began */
	uint32_t place;
	uint32_t from; /* own place that is copied, or SIM_NONE */
	uint64_t generation, from_generation;
	uint32_t is_forgotten; /* by the engine: its bytes still land */
	uint32_t is_read;      /* by the reader, from a peer */
	uint64_t due;
	struct pool_order order;
};

enum pool_home_state {
	POOL_LIVE,
	POOL_CLOSED, /* in order: its memory is used for something else */
	POOL_KILLED
};

/* An incarnation of an owner, and what is left of it. */
struct pool_home {
	struct pool_world *world;
	struct pool_proc *proc;
	enum pool_home_state state;
	uint32_t index;
	uint32_t weights;
	uint32_t is_sealed;  /* its memory is nobody else's when it is dead */
	uint32_t is_hostile; /* its directory and guards say anything */
	uint32_t owns_memory;
	uint64_t taken; /* tick: another incarnation has its memory since; or 0 */
	uint64_t epoch;
	struct kvpull_pool_share share;
	struct kvpull_pool *pool;
	struct kvpull_arena arena;
	struct kvpull_pool_entry *entries;
	struct kvpull_revocation_entry *guards;
	uint64_t *words; /* of all places, chunks first */
	struct pool_place *places;
	uint32_t *listed; /* listing of a kind, weights and key, or SIM_NONE */
	struct pool_listing *listings;
	uint32_t listing_count;
	uint32_t listing_capacity;
	struct pool_job jobs[POOL_JOBS];
};

enum pool_conn_state {
	POOL_CONN_FREE,
	POOL_CONN_CALLS,
	POOL_CONN_UP,
	POOL_CONN_LOST, /* its reads end, then PEER_DOWN */
	POOL_CONN_CUT,  /* likewise, to end a cancelled one */
	POOL_CONN_DOWN
};

struct pool_conn {
	enum pool_conn_state state;
	uint32_t peer;    /* the reader's */
	uint32_t weights; /* as the welcome told */
	uint32_t is_far;  /* a dead peer's memory cannot be read */
	uint32_t is_hung;
	uint64_t due;
	struct pool_home *home;
};

/* The route's, of one probe's or read's data or check. */
struct pool_read {
	struct kvpull_read *read; /* NULL: there is none */
	struct pool_conn *conn;
	struct pool_order order;
	uint32_t is_check, is_cancelled, is_done, burst;
	int32_t code;
	uint64_t due;
	uint64_t quiet; /* by then it is over, where it is cancelled */
};

/* When the data of one in flight began and had come, and the route's last code. */
struct pool_mark {
	uint64_t begun, came, checked;
	int32_t code;
	uint32_t is_open; /* its task is in flight */
};

enum pool_task_state {
	POOL_TASK_FREE,
	POOL_TASK_PROBES,
	POOL_TASK_FOUND, /* the engine takes its time */
	POOL_TASK_READS
};

struct pool_piece {
	uint32_t key;
	uint32_t place;
	uint32_t destination;
	uint32_t is_wrong; /* it was asked for a generation that never was */
	uint64_t generation;
};

struct pool_task {
	enum pool_task_state state;
	uint64_t id;
	uint32_t weights;
	uint32_t name; /* the process's when it began */
	struct pool_conn *conn;
	struct pool_home *home; /* asked */
	uint32_t count;         /* keys or pieces */
	uint32_t local;
	uint32_t is_cancelled;
	uint32_t late; /* own turns since its deadline */
	uint32_t job;  /* own chunks' that it fills, or SIM_NONE */
	uint64_t deadline_ns;
	uint64_t incarnation;
	uint64_t due;
	uint32_t keys[KVPULL_READER_ITEMS_MAX];
	struct pool_piece pieces[POOL_PIECES];
};

/* An engine, its shared memory and its reader: they live and die as one. */
struct pool_proc {
	struct kvpull_transport transport; /* first: it is our route */
	struct pool_world *world;
	uint32_t index;
	uint32_t is_alive;
	uint32_t weights;
	uint32_t name;         /* counts the changes of namespace */
	uint32_t is_beginning; /* a call of the reader's is on the stack */
	uint64_t asleep;       /* until this turn */
	struct pool_home *home;
	struct kvpull_share_reader *reader;
	struct kvpull_arena arena;
	uint64_t *blocks;
	uint32_t locals[2];  /* blocks, own chunks */
	uint32_t *owners[2]; /* of each block: task + 1 */
	struct pool_conn conns[POOL_CONNS];
	struct pool_read reads[KVPULL_READER_OPEN_MAX];
	struct pool_mark marks[POOL_TASKS + 1];    /* by the task, + 1 */
	uint32_t tasks_of[KVPULL_READER_OPEN_MAX]; /* + 1, by read */
	struct pool_task tasks[POOL_TASKS];
};

/* Each of them happens in 200 seeds, or the simulation has gone blind. */
/* clang-format off */
#define POOL_COUNTS(_) \
	_(good) _(stale) _(found) _(missed) _(torn) _(promoted) _(copied) \
	_(full) _(old_put) _(quarantined) _(unbumped) _(twice) _(cancelled) \
	_(deadlines) _(renamed) _(kills) _(closed) _(memory_again) _(cuts) \
	_(losses) _(dead_checks) _(busy) _(hostile) _(other_incarnation)
/* clang-format on */

struct pool_counts {
#define POOL_COUNT(name) uint64_t name;
	POOL_COUNTS(POOL_COUNT)
#undef POOL_COUNT
};

struct pool_world {
	struct sim_world *sim; /* its seed, chance, time and last events */
	uint64_t tick;
	uint32_t chunks, slots, entries, words, keys; /* of each owner */
	uint32_t proc_count;
	uint32_t home_count;
	uint32_t big;
	uint32_t quiet; /* no new work, no faults */
	/* Per mille. */
	uint32_t evictions, deaths, losses, renames, resets, sleeps, careless;
	uint32_t fills, asks;
	uint32_t bursts; /* words that are written at once, at most */
	uint32_t haste;  /* so many steps take a read, at least */
	struct pool_proc procs[POOL_PROCS];
	struct pool_home homes[POOL_HOMES];
	struct kvpull_pool_namespace namespaces[POOL_WEIGHTS];
	struct kvpull_pool_key *digests; /* [POOL_WEIGHTS * keys] */
	struct pool_counts counts;
};

/* pool_world.c */
void sim_pool_run(struct sim_world *sim, uint32_t chunks,
		  struct pool_counts *total);
/* 1: each of them happened; else it is said which did not. */
int sim_pool_saw_all(const struct pool_counts *total);
struct pool_order sim_pool_order(struct pool_world *world, uint32_t count);
uint32_t sim_pool_order_next(struct pool_order *order);
uint32_t sim_pool_pick(const struct pool_world *world, uint64_t bound);
int sim_pool_chance(const struct pool_world *world, uint32_t per_mille);
const struct kvpull_pool_key *sim_pool_key(const struct pool_world *world,
					   uint32_t weights, uint32_t key);

/* pool_owner.c */
struct pool_home *sim_pool_home_open(struct pool_proc *proc,
				     struct pool_home *predecessor);
void sim_pool_home_end(struct pool_home *home, enum pool_home_state state);
void sim_pool_home_free(struct pool_home *home);
void sim_pool_home_turn(struct pool_home *home);
/* Each place is put, and then as many at random, under keys at random. */
void sim_pool_home_fill(struct pool_home *home);
/* New weights, or a reset. */
void sim_pool_home_bump_all(struct pool_home *home, uint32_t weights);
/* A place to write for this job; 1: it is in JOB_WRITES. */
int sim_pool_job_place(struct pool_home *home, struct pool_job *job,
		       uint32_t places);
/* No byte of it can land any more. */
void sim_pool_job_written(struct pool_home *home, struct pool_job *job);
struct pool_job *sim_pool_job_free(struct pool_home *home);

/* pool_route.c */
extern const struct kvpull_transport_ops sim_pool_ops;
void sim_pool_route_run(struct pool_proc *proc);
void sim_pool_route_poll(struct pool_proc *proc);
void sim_pool_conn_lose(struct pool_conn *conn, enum pool_conn_state state);

/* pool_reader.c */
void sim_pool_reader_open(struct pool_proc *proc);
void sim_pool_reader_close(struct pool_proc *proc);
void sim_pool_reader_turn(struct pool_proc *proc);
void sim_pool_reader_rename(struct pool_proc *proc);
/* All its connections are down: its tables are as at the start. */
void sim_pool_reader_is_empty(struct pool_proc *proc);

/* pool_oracle.c: the books, and what they say of the code's answers. */
void sim_pool_was_bumped(struct pool_home *home, uint32_t place);
void sim_pool_was_put(struct pool_home *home, const struct kvpull_pool_put *put,
		      uint32_t key, int code);
void sim_pool_code_is(const struct pool_world *world, const char *call, int is,
		      int expected);
uint64_t sim_pool_word(uint32_t weights, uint32_t key, uint32_t word);
/* A random listed place has its key's bytes. */
void sim_pool_look(struct pool_home *home);
/* 1: a read or probe that is open has the right to write there. */
void sim_pool_may_write(const struct pool_proc *proc,
			const struct kvpull_read *read, uint32_t item);
void sim_pool_probe_ended(struct pool_proc *proc, struct pool_task *task,
			  const struct kvpull_share_reader_end *end);
void sim_pool_read_ended(struct pool_proc *proc, struct pool_task *task,
			 const struct kvpull_share_reader_end *end);

#endif /* KVPULL_SIM_POOL_H */
