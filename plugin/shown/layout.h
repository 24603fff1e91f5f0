/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status file as it lies in memory; status/README.md draws it. Written by
 * one worker, or one handle of kvpull_reader_v1(), read by whoever may open the
 * file, alive or after a kill -9.
 *
 * Every word has one writer, one of the worker's two threads, and is stored and
 * loaded relaxed: a row that changes while it is read may be of two moments, and
 * a reader shows it, no more. Only event_count is ordered: an event is whole
 * before it is counted. Nothing here orders the threads themselves.
 *
 * A change of this file's layout is a new KVPULL_STATUS_VERSION.
 */
#ifndef KVPULL_PLUGIN_SHOWN_LAYOUT_H
#define KVPULL_PLUGIN_SHOWN_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define KVPULL_STATUS_MAGIC UINT64_C(0x31535441545356b4)
#define KVPULL_STATUS_VERSION 1u
#define KVPULL_STATUS_SUFFIX ".status"
#define KVPULL_STATUS_EVENTS 4096u       /* a thread; a power of two */
#define KVPULL_STATUS_COUNTERS_MAX 64u   /* rows of the table of counters */
#define KVPULL_STATUS_CODES 64u          /* failures by -code */
#define KVPULL_STATUS_BUCKETS 64u        /* [i]: 2^i .. 2^(i+1) - 1 ns */
#define KVPULL_STATUS_LABEL_BYTES 24u    /* the end of a label, with NUL */
#define KVPULL_STATUS_NAME_BYTES 64u     /* engine, host, route's address.. */
#define KVPULL_STATUS_ADDRESS_BYTES 128u /* of a peer, and why that route */

/*
 * The parts of the file, in their order: name, a row, and how many rows of a
 * worker and of a pool a reader asks for at least.
 */
/* clang-format off */
#define KVPULL_STATUS_TABLE(X)                                                  \
	X(COUNTERS, struct kvpull_status_counter, 0, 0)                         \
	X(ENGINE, struct kvpull_status_thread, 1, 1)                            \
	X(PROGRESS, struct kvpull_status_thread, 1, 1)                          \
	/* the counters of that thread */                                       \
	X(PROGRESS_COUNTS, _Atomic uint64_t, 0, 0)                              \
	X(ENGINE_EVENTS, struct kvpull_status_event,                            \
	  KVPULL_STATUS_EVENTS, KVPULL_STATUS_EVENTS)                           \
	X(PROGRESS_EVENTS, struct kvpull_status_event, KVPULL_STATUS_EVENTS, 0) \
	X(CONSUMERS, struct kvpull_status_consumer, 0, 0)                       \
	X(WORDS, struct kvpull_status_words, 0, 0)                              \
	X(PEERS, struct kvpull_status_peer, 0, 0)                               \
	X(PULLS, struct kvpull_status_pull, 0, 0)                               \
	X(POOL, struct kvpull_status_pool, 0, 1)                                \
	X(HELD, _Atomic uint64_t, 0, 0) /* a bit a slot, set: HELD */           \
	X(HOLDS_NOW, struct kvpull_status_hold_now, 0, 0)                       \
	X(HOLDS, struct kvpull_status_hold, 0, 0)
#define KVPULL_STATUS_NUMBER(name, row, worker_min, pool_min)                   \
	KVPULL_STATUS_##name,
/* clang-format on */

enum kvpull_status_part {
	KVPULL_STATUS_TABLE(KVPULL_STATUS_NUMBER) KVPULL_STATUS_PARTS
};

/* The kind of a file's writer, which decides its counters. */
enum kvpull_status_kind {
	KVPULL_STATUS_OF_WORKER = 0,
	KVPULL_STATUS_OF_POOL, /* a handle of kvpull_reader_v1() */
	KVPULL_STATUS_KINDS
};

struct kvpull_status_place {
	uint64_t offset; /* in the file; a multiple of 64 */
	uint32_t row_bytes;
	uint32_t row_count;
};

/* Written at open, `device` last; afterwards only `closed` changes. */
struct kvpull_status_header {
	uint64_t magic;
	uint32_t version;
	uint32_t part_count; /* KVPULL_STATUS_PARTS */
	uint64_t file_bytes;
	uint64_t incarnation;
	int64_t clock_offset_ns; /* of CLOCK_MONOTONIC, in the time namespace */
	uint64_t opened_ns;      /* CLOCK_MONOTONIC */
	uint64_t opened_utc;     /* CLOCK_REALTIME then, nanoseconds */
	uint64_t start_ticks; /* of the process: field 22 of /proc/PID/stat */
	uint64_t lease_ns;
	uint64_t hold_max_ns;
	uint32_t pid; /* in its own namespace */
	uint32_t uid;
	uint32_t rank;
	uint32_t rank_count;
	uint32_t wire_version;
	uint32_t progress; /* enum kvpull_progress_mode */
	uint32_t max_holds;
	uint32_t tickets_max;
	uint32_t requests_max;
	uint32_t pulls_max;
	uint32_t consumers_max;
	uint32_t peers_max;
	_Atomic uint32_t closed;    /* 1: the engine closed it */
	uint32_t kind;              /* enum kvpull_status_kind */
	_Atomic uint64_t device[2]; /* its UUID; 0: the worker has none */
	char library[32];
	char engine_id[KVPULL_STATUS_NAME_BYTES];
	char host[KVPULL_STATUS_NAME_BYTES];
	struct kvpull_status_place places[KVPULL_STATUS_PARTS];
};

/* A row of plugin/counters, so that a reader of another version knows it. */
struct kvpull_status_counter {
	char name[48];
	uint32_t kind;  /* KVPULL_COUNTER_* */
	uint32_t index; /* in the engine's counters, or the progress counts */
	uint32_t in_progress;
	uint32_t reserved;
};

enum kvpull_status_times {
	KVPULL_TIMES_HOLD = 0, /* from a hold's take to its end */
	KVPULL_TIMES_SENT,     /* from the poll that took the last release */
	KVPULL_TIMES_STEP,
	KVPULL_TIMES_PULL,  /* from its command to its outcome */
	KVPULL_TIMES_FIRST, /* from the claim to the first bytes */
	KVPULL_TIMES_CHECK, /* from the last bytes to the outcome */
	KVPULL_TIMES_READ,  /* of a pool: from its call to the poll's word */
	KVPULL_TIMES_COUNT
};

/* State of one thread. */
struct kvpull_status_thread {
	_Atomic uint64_t ran_ns;  /* its last run began */
	_Atomic uint64_t step_ns; /* engine: the scheduler half's last word */
	_Atomic uint64_t event_count;
	_Atomic uint64_t
		instance; /* engine: of its scheduler half; 0: unknown */
	_Atomic uint64_t holds_high; /* engine: rows of holds ever used */
	_Atomic uint64_t expired;    /* engine: holds that nobody had claimed */
	_Atomic uint64_t expired_blocks;
	_Atomic uint64_t expired_ns; /* the last one */
	_Atomic uint64_t counters[KVPULL_STATUS_COUNTERS_MAX];
	/* Failures by -code: of pulls, or of the pieces of a pool. */
	_Atomic uint64_t failures[KVPULL_STATUS_CODES];
	_Atomic uint64_t time_sums[8]; /* of the histograms */
	_Atomic uint64_t times[KVPULL_TIMES_COUNT][KVPULL_STATUS_BUCKETS];
};

/* Kinds of events. README.md says whom `who` names in each. */
enum kvpull_status_what {
	KVPULL_DID_NOTHING = 0,
	/* engine's thread, producer */
	KVPULL_DID_TAKE,    /* who: the request's key */
	KVPULL_DID_CLAIM,   /* who: the consumer's instance; arg: its rank */
	KVPULL_DID_RELEASE, /* likewise; not one by an only claimant: END */
	KVPULL_DID_END,     /* who: last claimant's instance; arg: the reason */
	KVPULL_DID_SENT,    /* who: the key; where its row said ENDED */
	/* progress thread, producer: slot is the consumer's row */
	KVPULL_DID_JOIN,  /* who: the consumer's instance; arg: its rank */
	KVPULL_DID_LEAVE, /* likewise */
	/*
	 * consumer; who: the producer rank's incarnation. Progress thread, but
	 * for pulls that the engine's thread copies: PULL, LOADED, FAILED.
	 */
	KVPULL_DID_CLAIM_TICKET, /* arg: the producer's rank */
	KVPULL_DID_RELEASE_TICKET,
	KVPULL_DID_PULL,   /* begun; the pull's first rank */
	KVPULL_DID_READ,   /* its peers are there: reads begin */
	KVPULL_DID_CAME,   /* all bytes came */
	KVPULL_DID_LOADED, /* checked, and believed */
	KVPULL_DID_FAILED, /* arg: -code; of a pool a read, slot: as UP */
	KVPULL_DID_UP,     /* slot: the peer's row; a connection */
	KVPULL_DID_DOWN,   /* arg: -code */
	KVPULL_DID_COUNT
};

struct kvpull_status_event {
	_Atomic uint64_t at_ns;
	_Atomic uint64_t generation;
	_Atomic uint64_t who;
	_Atomic uint64_t what; /* slot | what << 32 | arg << 48 */
};

enum kvpull_status_state {
	KVPULL_SHOWN_NONE = 0,
	KVPULL_SHOWN_HERE,
	KVPULL_SHOWN_GONE /* the rest says who it was */
};

/* A consumer rank that was let in: the progress thread's. Or a pool's reader. */
struct kvpull_status_consumer {
	_Atomic uint64_t instance;
	_Atomic uint64_t incarnation;
	_Atomic uint64_t since_ns; /* came, or went */
	_Atomic uint32_t state;    /* enum kvpull_status_state */
	uint32_t pid;              /* as it says, in its own namespace */
	uint32_t uid; /* as the kernel says; KVPULL_UID_NONE: another machine's */
	uint32_t rank;
	uint32_t rank_count;
	uint32_t reserved;
	char route[16];
	char engine_id[KVPULL_STATUS_NAME_BYTES];
	uint64_t reserved2[8];
};

/* Words of the same consumer; the engine's thread writes them. */
struct kvpull_status_words {
	_Atomic uint64_t heard_ns;
	_Atomic uint64_t claims;
	_Atomic uint64_t releases;
	_Atomic uint64_t joined;  /* index in the hold table + 1; 0: not in */
	_Atomic uint64_t expired; /* holds that it had claimed last */
	_Atomic uint64_t expired_blocks;
	_Atomic uint64_t expired_ns;
	uint64_t reserved;
};

/* Equal to enum kvpull_peer_state, which progress_status.c asserts. */
enum kvpull_status_peer_state {
	KVPULL_SHOWN_PEER_FREE = 0,
	KVPULL_SHOWN_PEER_CONNECTING,
	KVPULL_SHOWN_PEER_GREETED,
	KVPULL_SHOWN_PEER_UP,
	KVPULL_SHOWN_PEER_WAIT, /* lost, or not there; tried again */
	KVPULL_SHOWN_PEER_GONE  /* given up */
};

/*
 * A producer rank that is read: the progress thread's, but for what the engine's
 * thread copies by itself, which it counts in a line of its own. Or a pool's
 * owner: a pull is a read that ended, and failed is one with a piece that was
 * not read, which a stale one is not. Its incarnation is 0 until it was up.
 */
struct kvpull_status_peer {
	_Atomic uint64_t incarnation;
	_Atomic uint64_t bytes;
	_Atomic uint64_t pulls;
	_Atomic uint64_t failures;
	_Atomic uint64_t up_ns;   /* of the last connection */
	_Atomic uint32_t state;   /* enum kvpull_status_peer_state */
	_Atomic int32_t error;    /* enum kvpull_error of the last failure */
	_Atomic uint32_t retries; /* since it was up */
	_Atomic uint32_t claims;  /* open on it */
	uint32_t pid;             /* as it says */
	uint32_t rank;
	char route[16];
	char engine_id[KVPULL_STATUS_NAME_BYTES];
	char address[KVPULL_STATUS_ADDRESS_BYTES];
	/* Why that route; of a pool's owner that was refused, what differs. */
	char why[KVPULL_STATUS_ADDRESS_BYTES];
	_Atomic uint64_t since_ns; /* of a pool: it is in this state */
	uint64_t reserved[5];
	_Atomic uint64_t small_bytes;
	_Atomic uint64_t small_pulls;
	uint64_t reserved2[6];
};

/* A pull: the progress thread's. It stays when it has ended. */
struct kvpull_status_pull {
	_Atomic uint64_t key;
	_Atomic uint64_t generation;
	_Atomic uint64_t started_ns;
	_Atomic uint64_t slot_blocks; /* slot | blocks << 32 */
	_Atomic uint64_t state;       /* kvpull_pull_state | peer << 32 */
	_Atomic uint64_t label[KVPULL_STATUS_LABEL_BYTES / 8];
};

/* Facts of a pool's handle. */
struct kvpull_status_pool {
	_Atomic uint64_t chunk_bytes;
	_Atomic uint32_t chunk_count;
	_Atomic uint32_t slot_count; /* of its file */
	_Atomic uint32_t state; /* enum kvpull_status_state; GONE: unshared */
	uint32_t reserved;
	uint64_t reserved2[5];
};

/* The states of a hold, as the hold table has them. */
enum kvpull_status_hold_state {
	KVPULL_SHOWN_FREE = 0,
	KVPULL_SHOWN_STAGED,
	KVPULL_SHOWN_HELD,  /* as HELD's bit says, whatever the row does */
	KVPULL_SHOWN_ENDED, /* by a call, or when a poll had no room */
	KVPULL_SHOWN_STATES
};

/* A hold's slot: the engine's thread's. It stays when it is free. */
struct kvpull_status_hold {
	_Atomic uint64_t generation;
	_Atomic uint64_t key;
	_Atomic uint64_t taken_ns;
	_Atomic uint64_t label[KVPULL_STATUS_LABEL_BYTES / 8];
};

/*
 * A hold's members that change while it lives, kept apart: four slots lie in a
 * cache line.
 */
struct kvpull_status_hold_now {
	_Atomic uint64_t word_ns; /* the last word on it; its end */
	_Atomic uint32_t blocks;
	_Atomic uint16_t joined; /* of the last claimant; 0: nobody */
	_Atomic uint8_t state;   /* enum kvpull_status_hold_state */
	_Atomic uint8_t reason;
};

_Static_assert(sizeof(struct kvpull_status_event) == 32 &&
		       sizeof(struct kvpull_status_hold) == 48 &&
		       sizeof(struct kvpull_status_hold_now) == 16 &&
		       sizeof(struct kvpull_status_pull) == 64 &&
		       sizeof(struct kvpull_status_words) == 64 &&
		       sizeof(struct kvpull_status_consumer) == 192 &&
		       sizeof(struct kvpull_status_peer) == 512 &&
		       sizeof(struct kvpull_status_pool) == 64 &&
		       offsetof(struct kvpull_status_peer, small_bytes) % 64 ==
			       0 &&
		       sizeof(struct kvpull_status_thread) % 64 == 0 &&
		       sizeof(struct kvpull_status_counter) == 64 &&
		       KVPULL_TIMES_COUNT <= 8,
	       "as status/README.md draws them");

#endif /* KVPULL_PLUGIN_SHOWN_LAYOUT_H */
