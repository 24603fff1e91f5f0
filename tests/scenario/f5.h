/* SPDX-License-Identifier: Apache-2.0 */
/*
 * F5: clients disconnect around the finish. P and D run freely in processes of
 * their own; P's tickets go to D by shared memory, as by a router. f5.c has
 * what both share, f5_producer.c and f5_consumer.c one side each.
 */
#ifndef KVPULL_TESTS_F5_H
#define KVPULL_TESTS_F5_H

#include <stdatomic.h>

#include "tests/scenario/scenario.h"

#define F5_TICKETS 64u /* power of two; on their way */
#define F5_BLOCKS 4u   /* of a request */
#define F5_BLOCK_BYTES 1024u
#define F5_LAYERS 2u
#define F5_ACTS 8u /* requests looked at in a turn */

struct f5_ticket {
	uint64_t seed;
	uint32_t bytes;
	uint32_t reserved;
	char text[4080];
};

/* Written by one side, read by the driver. */
struct f5_counts {
	/* Requests whose client went away; the interleavings. */
	_Atomic uint64_t disconnects;
	_Atomic uint32_t idle; /* all is over, tables are empty */
	uint32_t open;         /* requests */
	uint64_t requests;
	uint64_t before, around, after; /* the finish, or the load */
	uint64_t loaded, failed, nothing, rejected;
	uint64_t released, expired, aborted;
};

struct f5_arena {
	_Atomic uint64_t pushed;
	_Atomic uint64_t popped;
	_Atomic uint32_t opened; /* sides */
	_Atomic uint32_t ending; /* nothing new at P */
	_Atomic uint32_t stop;
	struct f5_counts p, d;
	struct f5_ticket tickets[F5_TICKETS];
};

struct f5_setup {
	const char *config;
	uint32_t tp_size;
	uint32_t abort_revokes; /* as the config says */
	uint64_t disconnects;
};

/* State that both sides have. */
struct f5_side {
	struct engine engine;
	struct f5_arena *arena;
	const struct f5_setup *setup;
	struct f5_counts *counts;
	uint64_t random;
};

/* Is true in so many of a hundred cases. */
uint32_t f5_chance(struct f5_side *side, uint32_t percent);
void f5_open(struct f5_side *side, const struct scenario *scenario,
	     const char *id, uint32_t block_count);
/* Tell the scheduler half; its answer, and the ticket in finish. */
int f5_finish(struct f5_side *side, struct kvpull_finish *finish, uint64_t key,
	      uint32_t reason);
/* Nothing of the library's tables is in use, and the pool is full. */
uint32_t f5_tables_are_empty(struct f5_side *side);
uint64_t f5_block_seed(uint64_t seed, uint32_t index);

/* Both run until arena->stop is set. */
void f5_producer_run(struct f5_side *side);
void f5_consumer_run(struct f5_side *side);

#endif /* KVPULL_TESTS_F5_H */
