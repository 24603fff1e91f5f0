/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules for ranks of a consumer (semantics B.3, B.6) as questions about the
 * past: a list of events, and functions that look back through it. Nothing here
 * keeps a state and nothing is shared with the code, which keeps nothing but
 * states.
 *
 * One instance of up to three ranks and one consumer of a single rank claim one
 * hold. A hold that ends is followed by a new one at once.
 */
#ifndef KVPULL_TESTS_UNIT_HOLD_HISTORY
#define KVPULL_TESTS_UNIT_HOLD_HISTORY

#include <stdint.h>

#define HISTORY_MAX 48u
#define HISTORY_RANKS 3u

enum past_event {
	PAST_JOIN,    /* the worker that joined last */
	PAST_CALL,    /* another worker of the rank */
	PAST_GO,      /* it said that it goes, and is lost */
	PAST_LOSE,    /* lost without a word */
	PAST_HANG_UP, /* a caller that waits is lost */
	PAST_CLAIM,
	PAST_RELEASE,
	PAST_RANK_EVENTS,
	PAST_OTHERS_CLAIM = PAST_RANK_EVENTS,
	PAST_OTHERS_RELEASE,
	PAST_TICK, /* time passes; a grace has `grace` of these */
	PAST_POLL, /* a sweep, and the next poll begins */
	PAST_EVENTS
};

enum past_answer {
	PAST_LET_IN,
	PAST_WAITS,
	PAST_REFUSED
};

enum past_state {
	PAST_NEVER,
	PAST_HERE,
	PAST_GRACE,
	PAST_AWAY,
	PAST_CALLED,
	PAST_DEAD
};

struct past_entry {
	uint8_t event;
	uint8_t rank;
	uint8_t answer;    /* to a join or a call */
	uint8_t died;      /* a poll: ranks whose own death it judged */
	uint8_t is_over;   /* a poll: the instance is over */
	uint8_t ended;     /* the hold ended as released */
	uint8_t forgotten; /* nobody is there, and nobody claims */
	uint8_t life;      /* behind it: where the instance's life began */
	uint8_t hold;      /* likewise the hold */
	uint8_t polls;     /* until here */
	uint8_t ticks;
};

struct history {
	uint32_t count;
	uint32_t rank_count;
	uint32_t grace;
	struct past_entry at[HISTORY_MAX];
};

/* May the event happen now? A rank speaks, goes and is lost while it is here. */
int past_is_possible(const struct history *past, enum past_event event,
		     uint32_t rank);
/* The event happens; its entry notes what was answered, judged and ended. */
void past_add(struct history *past, enum past_event event, uint32_t rank);
/* The state of a rank before the entry `now`. */
enum past_state past_state(const struct history *past, uint32_t rank,
			   uint32_t now);
/* Does the rank owe a word on the hold? */
int past_owes(const struct history *past, uint32_t rank);
/* Lives of the instance that have spoken of the hold, and the other consumer. */
uint32_t past_speakers(const struct history *past, uint32_t now);
/* A number of all that decides what comes. */
uint64_t past_digest(const struct history *past);

#endif /* KVPULL_TESTS_UNIT_HOLD_HISTORY */
