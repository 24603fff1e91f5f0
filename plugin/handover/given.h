/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks: the newest generation of each slot that was given back by its tag.
 * Progress writes a mark after it checked the word's tag; the engine's thread
 * judges the slot in its next poll. A mark is never cleared, only replaced by a
 * newer generation, so a word costs one hash, whatever it names.
 *
 * field   written by  order    read by   order    pair   why
 * newest  progress    relaxed  engine    relaxed  -      ordered by the other two
 * told    progress    release  engine    acquire  T0/T1  newest is written before its bit
 * is_told both        acq_rel  both      acq_rel  I0/I1  a bit set before I0 is seen after I1
 */
#ifndef KVPULL_PLUGIN_GIVEN_H
#define KVPULL_PLUGIN_GIVEN_H

#include <stdatomic.h>

#include "base/arena.h"
#include "plugin/bytes/give.h"
#include "plugin/bytes/ticket.h"

struct kvpull_given {
	uint8_t secret[KVPULL_SECRET_BYTES]; /* the worker's: of its tags */
	uint32_t slot_count;
	_Atomic uint32_t is_told; /* a record for the engine is on its way */
	_Atomic uint64_t *newest; /* [slot_count] generations; 0: none */
	_Atomic uint64_t *told;   /* a bit a slot, 64 slots a word */
};

enum kvpull_given_verdict {
	KVPULL_GIVEN_NEW = 0,
	KVPULL_GIVEN_OLD, /* this generation, or a newer one, was given back */
	KVPULL_GIVEN_BAD  /* no such slot, or a wrong tag */
};

/* kvpull_arena_ok() says whether there was memory. */
void kvpull_given_init(struct kvpull_given *given,
		       const uint8_t secret[KVPULL_SECRET_BYTES],
		       uint32_t slot_count, struct kvpull_arena *arena);

/* Progress: judge a word, and keep its mark. */
enum kvpull_given_verdict
kvpull_given_take(struct kvpull_given *given,
		  const struct kvpull_give_word *word);
/* Progress, after some: 1 if the engine has to be told. */
int kvpull_given_tell(struct kvpull_given *given);

/* Engine, before it looks at what was told. */
void kvpull_given_begin(struct kvpull_given *given);
/*
 * Engine: the next slot, from *slot on, whose mark is new since the last look,
 * and its generation. 0: there is none.
 */
int kvpull_given_next(struct kvpull_given *given, uint32_t *slot,
		      uint64_t *generation);

#endif /* KVPULL_PLUGIN_GIVEN_H */
