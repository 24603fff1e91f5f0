/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's world, other side: peers that greet, end reads and go down when
 * the test says so.
 */
#ifndef KVPULL_TESTS_UNIT_WORKER_PEER
#define KVPULL_TESTS_UNIT_WORKER_PEER

#include "tests/unit/worker/world.h"

uint32_t world_peer_at(const struct world *world, const char *address);
/* 1: there is a connection to that address, whatever its state. */
int world_is_connected(const struct world *world, const char *address);
void world_challenge(struct world *world, uint32_t peer);

/* The welcome of an honest rank of `size`; tests change it. */
void world_welcome_fill(const struct world *world, uint32_t peer, uint32_t rank,
			uint32_t size, struct kvpull_welcome *welcome);
void world_welcome_send(struct world *world, uint32_t peer,
			const struct kvpull_welcome *welcome);
void world_refuse(struct world *world, uint32_t peer, int code);

/* The whole of an honest handshake. */
uint32_t world_up(struct world *world, const char *address, uint32_t rank,
		  uint32_t size);
void world_done_queue(struct world *world, uint32_t index, int code);

/* End the open read, or check, of this index. */
void world_done(struct world *world, uint32_t index, int code);

/*
 * Ends the peer's reads, then its connection, all with this code. The worker hears
 * what was queued at the next poll.
 */
void world_lost_queue(struct world *world, uint32_t peer, int code);
void world_lost(struct world *world, uint32_t peer, int code);
void world_down(struct world *world, uint32_t peer);

/* A caller, as the one rank of an instance, comes up and says hello. */
struct world_hello {
	uint64_t instance;
	uint64_t incarnation;
	uint32_t uid; /* 0: ours */
	uint32_t rank;
	uint32_t rank_count;                /* 0: 1 */
	uint64_t wanted;                    /* 0: ours */
	uint64_t wire_layout;               /* 0: ours */
	const struct kvpull_compat *compat; /* NULL: ours */
};

struct world_caller *world_hello(struct world *world, uint32_t index,
				 const struct world_hello *who);
/* Likewise, and it is let in. */
struct world_caller *world_let_in(struct world *world, uint32_t index,
				  const struct world_hello *who);
/* Likewise, and its hello waits for the next poll. */
struct world_caller *world_hello_put(struct world *world, uint32_t index,
				     const struct world_hello *who);
/* A caller comes up and says something: the event that the next poll sees. */
struct kvpull_event *world_word(struct world *world, uint32_t index);
void caller_down(struct world *world, uint32_t index, uint32_t polls);

/* The scheduler half has the worker hold a request's blocks. */
void world_hold(struct world *world, uint64_t key, uint32_t slot,
		uint64_t generation);
/* The caller writes a note on a hold of this worker's into its ring. */
void world_say(struct world *world, struct world_caller *caller, uint32_t kind,
	       uint32_t slot, uint64_t generation);

/* ---- what tests begin with, and end with ---- */

/* A claim, and the poll that calls its producer's ranks. */
void claim(struct world *world, uint64_t serial, uint32_t ranks);
/* A claim of a ticket of one rank, which comes up. Return: its peer. */
uint32_t claim_up(struct world *world, uint64_t serial);
/* A pull, and the poll that begins it. */
void pull(struct world *world, uint64_t key, uint64_t serial, uint32_t flags);
/* A claim, a pull of it, and the poll that begins both. */
void claim_pull(struct world *world, uint64_t key, uint64_t serial,
		uint32_t ranks, uint32_t flags);
/* A release, and the polls that tell the peer. */
void release(struct world *world, uint64_t serial);
void abort_pull(struct world *world, uint64_t key);

/* The peer at that address has our hello: its honest welcome, to be sent. */
uint32_t greeted(struct world *world, const char *address, uint32_t rank,
		 uint32_t size, struct kvpull_welcome *welcome);
/* The reads, or checks, of a pull of two ranks end. */
void both_done(struct world *world);

/* world_reported() of a pull, and of a hold. */
void loaded(const struct world *world, uint64_t key);
void failed(const struct world *world, uint64_t key, int32_t reason);
void sent(const struct world *world, uint64_t key, int32_t reason);
/* The last warning has this text. */
void warned(const struct world *world, const char *text);

#endif /* KVPULL_TESTS_UNIT_WORKER_PEER */
