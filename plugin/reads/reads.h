/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of reads: data, then guards, then belief. A request reads parts, each
 * from one peer, in the phases that its owner lists. No part begins a phase before
 * all have ended the one before it. So a guard is read after the last byte of the
 * data of *all* parts.
 *
 * state    goes on when                               to
 * CONNECT  its peers are up, and parts are free       its first phase
 * WRITTEN  the judge takes each guard: data is there  the next phase
 * DATA     all bytes came                             the next phase
 * GUARDS   the judge takes each guard                 the next phase
 * (after the last phase)                              the end (0)
 * DRAIN    nothing of it runs any more                the end (its error)
 * AGAIN    likewise                                   CONNECT, to read the rest
 *
 * An error, a cancel and the deadline lead to DRAIN from anywhere. So a request
 * ends once, and when it ends, nothing writes into its memory any more.
 * A connection that a route cuts to end one request's reads is no fault of its
 * peer: others go to AGAIN, and their deadlines bound how often.
 *
 * Pure: routes are called through their tables, time is told. One thread: the one
 * that polls the routes. The engine knows no ticket, no chunk, and no peer but by
 * its route's handle.
 */
#ifndef KVPULL_PLUGIN_READS_READS_H
#define KVPULL_PLUGIN_READS_READS_H

#include "base/log.h"
#include "base/transport.h"
#include "base/turns.h"

#define KVPULL_READS_PARTS_MAX KVPULL_RANKS_MAX /* of a request */

/* The status file shows these numbers. */
enum kvpull_reads_state {
	KVPULL_READS_FREE = 0, /* also ends a list of phases */
	KVPULL_READS_CONNECT,
	KVPULL_READS_WRITTEN,
	KVPULL_READS_DATA,
	KVPULL_READS_GUARDS,
	KVPULL_READS_DRAIN,
	KVPULL_READS_AGAIN
};

/* A peer's part of a request. */
struct kvpull_reads_part {
	struct kvpull_read read; /* the owner's, but for its index */
	struct kvpull_transport *transport;
	uint32_t handle; /* the transport's, of the peer */
	uint32_t request;
	uint32_t state; /* enum in reads.c */
	/* The owner's, which the engine does not look at. */
	uint32_t peer;
	uint32_t rank;
	uint32_t slot; /* read.slots and read.entries of who has one */
	uint32_t reserved;
	uint64_t life;
	uint64_t digest;
	struct kvpull_revocation_value entry;
};

struct kvpull_reads_request {
	enum kvpull_reads_state state;
	int32_t code; /* why it failed */
	const enum kvpull_reads_state *phases;
	uint32_t phase;     /* the next one in that list */
	uint32_t part_most; /* parts that it needs to begin */
	uint32_t part_count;
	uint32_t parts_open; /* started and not ended */
	/* 0 from begin() on; an owner may set another one before the first step. */
	int32_t priority;
	uint32_t reserved;
	uint64_t deadline_ns;
	uint32_t parts[KVPULL_READS_PARTS_MAX];
};

/* The owner's side. A request has the same index in a table of the owner's. */
struct kvpull_reads_owner {
	/*
	 * Are all peers of the request up? 0; KVPULL_EAGAIN: not yet, and the
	 * owner sets has_changed when they may be; else the error.
	 */
	int (*ready)(void *own, uint32_t request);
	/* Add part_most parts at the most, and fill them in. 0, or the error. */
	int (*parts_make)(void *own, uint32_t request);
	/* Is the part's connection still the one it was made for? 0, or why not. */
	int (*lost)(void *own, const struct kvpull_reads_part *part);
	/* Optional: the request began a phase, which is its state. */
	void (*entered)(void *own, uint32_t request);
	/*
	 * Judge what a part has got: its data in DATA, its guards in WRITTEN and
	 * GUARDS. 0; KVPULL_EAGAIN: read them again; else the error.
	 */
	int (*judge)(void *own, const struct kvpull_reads_part *part,
		     enum kvpull_reads_state phase);
	/*
	 * Keep how many bytes of each part came (done_bytes): other parts will be
	 * made. NULL: KVPULL_EABORTED is an error as any.
	 */
	void (*again)(void *own, uint32_t request);
	/* The request ended, with its code. Its parts are there until this returns. */
	void (*ended)(void *own, uint32_t request);
};

struct kvpull_reads {
	const struct kvpull_reads_owner *owner;
	void *own;
	const struct kvpull_log *log;
	struct kvpull_reads_request *requests;
	struct kvpull_reads_part *parts;
	struct kvpull_index_pool part_pool;
	struct kvpull_index_list live; /* requests that have not ended */
	/*
	 * Requests that wait for what no event of their own ends: for room for
	 * their parts, by priority; and in order for a peer, a writer or a route,
	 * where each is looked at once a round.
	 */
	struct kvpull_turns parts_waits;
	struct kvpull_index_list again_waits;
	/* A request in again_waits may be able to go on. An owner sets it, too. */
	uint32_t has_changed;
	uint32_t again_left;  /* of again_waits, to be tried in this round */
	uint32_t deadline_at; /* of live, the next to be looked at, or NONE */
	uint32_t parts_turn;  /* whose turn it is for parts */
	uint64_t look_ns;     /* next look at the deadlines */
	uint64_t steps;       /* statistic for tests */
};

/* The owner has set owner, own and log. The arena says whether there was memory. */
void kvpull_reads_init(struct kvpull_reads *reads, uint32_t request_count,
		       uint32_t part_count, struct kvpull_arena *arena);

/* Begin a FREE request. Step or fail it next; it may end within that call. */
void kvpull_reads_begin(struct kvpull_reads *reads, uint32_t index,
			const enum kvpull_reads_state *phases,
			uint32_t part_most, uint64_t deadline_ns);
/* Goes on as far as it can now. */
void kvpull_reads_step(struct kvpull_reads *reads, uint32_t index);
/* Fail or cancel: it ends with the code when nothing of it runs any more. */
void kvpull_reads_fail(struct kvpull_reads *reads, uint32_t index,
		       int32_t code);

/*
 * Add a part, in parts_make(): all 0 but request, read.index and read.priority.
 */
struct kvpull_reads_part *kvpull_reads_part_add(struct kvpull_reads *reads,
						uint32_t index);

/* READ_DONE, CHECK_DONE. */
void kvpull_reads_event(struct kvpull_reads *reads,
			const struct kvpull_event *event);

/*
 * Fail what is late, and go on with what waited. What a run costs does not grow
 * with the number of requests. Return: when the next is due; UINT64_MAX: never.
 */
uint64_t kvpull_reads_run(struct kvpull_reads *reads, uint64_t now_ns);

#endif /* KVPULL_PLUGIN_READS_READS_H */
