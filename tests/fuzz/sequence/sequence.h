/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences: a world of real workers and strangers, driven by bytes.
 *
 *   P  producer, by both routes      D  consumer, same node first
 *   V  consumer, over verbs alone    strangers of both roles, on both routes
 *
 * A world lives for many sequences. Each sequence takes steps as its bytes say;
 * after it the strangers go, time passes, and D and V each pull from P once more
 * and compare every byte. All time is the world's.
 *
 * world.c     opens and closes all of it, and counts what is left
 * engine.c    one engine: its two halves, its blocks, its requests
 * audit.c     between worker and routes: what must hold of every call and event
 * words.c     messages and frames, right ones and wrong ones
 * stranger.c  hostile ends of the fake fabric
 * raw.c       hostile ends of the sockets
 * steps.c     what a sequence's bytes mean
 */
#ifndef KVPULL_TESTS_SEQUENCE_H
#define KVPULL_TESTS_SEQUENCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/transport.h"
#include "plugin/scheduler/scheduler.h"
#include "plugin/worker/worker.h"
#include "tests/fake/verbs_state.h"
#include "verbs/frame.h"
#include "verbs/verbs.h"

#define SEQ_BLOCKS 16u
#define SEQ_BLOCK_BYTES 128u
#define SEQ_HEADS 4u
#define SEQ_REQUESTS 12u
#define SEQ_REQUEST_BLOCKS_MAX 3u
#define SEQ_TICKETS 12u
#define SEQ_TICKET_BYTES 2048u
#define SEQ_CALLERS 6u
#define SEQ_PLACES (SEQ_CALLERS + KVPULL_CALLERS_MORE)
#define SEQ_PEERS_MAX 2u              /* peers_max */
#define SEQ_PEERS (2 * SEQ_PEERS_MAX) /* entries */
#define SEQ_READS 64u /* parts of pulls that a worker has: a rank each */
#define SEQ_STRANGERS 8u
#define SEQ_RAWS 8u
#define SEQ_FRAMES 16u /* a stranger's receives */
#define SEQ_STEPS_MIN 20u
#define SEQ_BYTES_MAX 1024u

/* The bytes of a sequence; when they are used up, all dice show 0. */
struct seq_dice {
	const uint8_t *bytes;
	size_t count;
	size_t at;
};

uint32_t seq_below(struct seq_dice *dice, uint32_t bound);
/* 1 in so many. */
int seq_one_in(struct seq_dice *dice, uint32_t many);
uint64_t seq_u64(struct seq_dice *dice);

struct seq_world;

enum seq_who {
	SEQ_P = 0,
	SEQ_D,
	SEQ_V,
	SEQ_ENGINES
};

/* audit.c: one route of one worker. */
struct seq_audit {
	struct seq_world *world;
	const char *name;
	struct kvpull_transport *transport;
	uint32_t keeps_rings;
	const struct kvpull_transport_ops *real;
	struct kvpull_transport_ops ops;
	uint8_t caller_up[SEQ_PLACES];
	uint8_t admitted[SEQ_PLACES];
	/* of who was let in, once; to who is not in, nothing is said there */
	struct kvpull_ring *rings[SEQ_PLACES];
	int ready[SEQ_PLACES]; /* in it when its caller was forgotten */
	uint8_t peer_open[SEQ_PEERS];
	struct {
		const struct kvpull_read *read; /* open; NULL: none */
		uint32_t peer;
		uint32_t checks;
	} reads[SEQ_READS];
};

void seq_audit_begin(struct seq_audit *audit, struct seq_world *world,
		     const char *name, struct kvpull_transport *transport);
/* Rings stay until close(), even if their caller was forgotten. */
void seq_audit_keeps_rings(struct seq_audit *audit);
uint32_t seq_audit_reads_open(const struct seq_audit *audit);
uint32_t seq_audit_callers(const struct seq_audit *audit);

enum seq_request_state {
	SEQ_IDLE = 0,
	SEQ_HELD, /* P's: blocks are kept until SENT */
	SEQ_NEW,  /* D's: asks for its tokens */
	SEQ_LOADING
};

struct seq_request {
	enum seq_request_state state;
	uint64_t key;
	uint64_t content; /* its own, or of its ticket; 0: not known */
	uint32_t block_count;
	uint32_t unready; /* hold_ready() is still to be said */
	uint32_t mine;    /* the honest pull at a sequence's end */
	uint32_t blocks[SEQ_REQUEST_BLOCKS_MAX];
};

struct seq_engine {
	struct seq_world *world;
	enum seq_who who;
	struct kvpull_config config;
	struct kvpull_scheduler *scheduler;
	struct kvpull_worker *worker;
	struct kvpull_arena arena; /* of both routes */
	uint64_t incarnation; /* the worker's; the other half's is the next */
	struct seq_audit shm, verbs;
	struct kvpull_log log;
	uint8_t *memory;
	void *own; /* foreign: to be freed */
	uint8_t busy[SEQ_BLOCKS];
	struct seq_request requests[SEQ_REQUESTS];
	uint32_t loaded, failed; /* of those that are `mine` */
	int32_t reason;
};

struct seq_ticket {
	char text[SEQ_TICKET_BYTES];
	size_t bytes;
	uint64_t content; /* 0: a stranger's, or a broken one */
	uint32_t block_count;
	uint32_t slot;
	uint64_t generation;
};

/* A hostile end of a queue pair. */
struct seq_stranger {
	uint32_t used;
	uint32_t serves; /* it accepted a consumer's call */
	uint32_t let_in; /* as a consumer: a welcome came */
	struct seq_engine *of;
	struct rdma_event_channel *channel; /* its own, or the listener's */
	struct ibv_comp_channel *bell;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint32_t established; /* it said so */
	uint32_t received;    /* credited frames */
	uint32_t sends;
	uint32_t note_number;
	uint32_t nonce_known;
	uint8_t nonce[KVPULL_NONCE_BYTES];
	struct kvpull_keys keys;
	uint64_t token[2];
	uint8_t frames[2 * SEQ_FRAMES][KVPULL_FRAME_BYTES];
};

/* A hostile end of a socket. */
struct seq_raw {
	int fd; /* -1: free */
	uint32_t serves;
	struct seq_engine *of;
	uint32_t nonce_known;
	uint8_t nonce[KVPULL_NONCE_BYTES];
	uint8_t *ring; /* of a consumer that was let in, or as a producer */
	size_t ring_bytes;
	int doorbell;
	int ring_fd;
	int entries_fd;
};

struct seq_options {
	uint64_t seed;
	uint32_t rails;
	uint32_t key;
	uint32_t copies_late; /* nothing is copied inside read_start */
	uint32_t grace;       /* the dead count as releasers later */
	uint32_t sleeps;      /* engines ask for a descriptor to sleep on */
	uint32_t foreign;     /* P's blocks are in memory of its own */
};

struct seq_world {
	struct seq_options options;
	struct seq_dice *dice;
	uint64_t now_ns;
	uint64_t pace_ns; /* that the clock goes on by itself, each time it is read */
	uint64_t number; /* last one given out: keys, contents */
	char folder[64];
	struct seq_engine engines[SEQ_ENGINES];
	struct seq_ticket tickets[SEQ_TICKETS];
	uint32_t ticket_next;
	struct seq_stranger strangers[SEQ_STRANGERS];
	struct seq_raw raws[SEQ_RAWS];
	struct rdma_event_channel *listen_channel;
	struct rdma_cm_id *listener; /* hostile */
	int raw_listener;
	uint32_t worn; /* a device is gone: it serves no further sequence */
	uint32_t open_fds, open_objects;   /* before it */
	uint32_t quiet_fds, quiet_objects; /* after the first sequence */
	uint64_t sequences, steps, pulls, welcomes;
};

/* steps.c; the whole of it. */
struct seq_totals {
	uint64_t sequences, steps, pulls, welcomes, worlds;
};

void seq_run(const uint8_t *bytes, size_t byte_count, uint64_t seed,
	     uint32_t steps_max);
/* The next sequence begins in a new world. */
void seq_world_end(void);
const struct seq_totals *seq_totals(void);
/* Says why and where, and aborts. */
void __attribute__((format(printf, 1, 2), noreturn))
seq_fail(const char *format, ...);
/* An engine hears what was said, and answers. */
void seq_talk(struct seq_engine *engine);
/* 1: the next sequence begins in a new world. */
int seq_will_open(void);

/* world.c */
void seq_world_open(struct seq_world *world, const struct seq_options *options);
void seq_world_close(struct seq_world *world);
uint32_t seq_fds(void);
struct kvpull_transport *
seq_world_transport(void *context, const struct kvpull_log *log, uint32_t at);
uint64_t seq_world_now(void *context);
int seq_has_verbs(const struct seq_world *world);

/* engine.c */
void seq_engine_open(struct seq_engine *engine);
void seq_engine_close(struct seq_engine *engine);
/* Bytes from scheduler to worker. */
void seq_engine_step(struct seq_engine *engine);
void seq_engine_poll(struct seq_engine *engine);
void seq_engine_turn(struct seq_engine *engine);
/* A prefill that is held; its ticket, or NULL. */
struct seq_ticket *seq_engine_prefill(struct seq_engine *engine,
				      uint32_t block_count, uint32_t unready);
void seq_engine_ready(struct seq_engine *engine);
/* NULL: no room. */
struct seq_request *seq_engine_pull(struct seq_engine *engine,
				    const struct seq_ticket *ticket);
void seq_engine_abort(struct seq_engine *engine, uint32_t index);
uint32_t seq_engine_open_requests(const struct seq_engine *engine);
extern const struct kvpull_group seq_group;
extern const struct kvpull_model seq_model;
struct kvpull_cache seq_cache(void);

/* words.c; each into bytes[KVPULL_MESSAGE_BYTES_MAX], returns how many. */
size_t seq_hello(struct seq_world *world, const struct seq_engine *to,
		 const uint8_t *nonce, uint8_t *bytes);
size_t seq_challenge(struct seq_world *world, uint8_t *nonce, uint8_t *bytes);
size_t seq_welcome(struct seq_world *world, const struct seq_engine *to,
		   const uint8_t *nonce, uint8_t *bytes, uint32_t *kind);
size_t seq_refusal(struct seq_world *world, uint8_t *bytes);
size_t seq_garbage(struct seq_world *world, uint8_t *bytes);
/* Sometimes a few of its bytes differ, or it is shorter, or longer. */
size_t seq_mutate(struct seq_world *world, uint8_t *bytes, size_t byte_count);
void seq_record(struct seq_world *world, const struct seq_engine *to,
		struct kvpull_record *record);
/* A ticket that leads to a stranger. */
void seq_ticket_forge(struct seq_world *world, const struct seq_engine *of);
const uint8_t *seq_key(const struct seq_world *world);
#define SEQ_STRANGE_INCARNATION UINT64_C(0xbad0000000000001)

/* stranger.c */
void seq_strangers_open(struct seq_world *world);
void seq_strangers_leave(struct seq_world *world);
void seq_strangers_close(struct seq_world *world);
void seq_stranger_step(struct seq_world *world);

/* raw.c */
void seq_raws_open(struct seq_world *world);
void seq_raws_leave(struct seq_world *world);
void seq_raws_close(struct seq_world *world);
void seq_raw_step(struct seq_world *world);

#endif /* KVPULL_TESTS_SEQUENCE_H */
