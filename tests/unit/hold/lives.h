/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of semantics B.6, event by event: the rank states of one life of a
 * consumer instance. A naive model: arrays, no bitmaps.
 */
#ifndef KVPULL_TESTS_UNIT_HOLD_LIVES
#define KVPULL_TESTS_UNIT_HOLD_LIVES

#include <stdint.h>

#define RANKS 3u

enum rank_state {
	NEVER,
	HERE,
	GRACE,
	AWAY,
	CALLED,
	DEAD
};

struct life {
	uint64_t heard_ns[RANKS];
	uint64_t due_ns[RANKS];
	enum rank_state ranks[RANKS];
	uint32_t workers[RANKS];     /* who joined last; 0: unknown */
	uint32_t is_back[RANKS];     /* was dead or called before this poll */
	uint32_t parts[RANKS];       /* has said that it goes */
	uint32_t is_judged[RANKS];   /* called: a sweep has seen it */
	uint32_t is_forsaken[RANKS]; /* called: the caller is lost */
	uint32_t id;
	uint32_t rank_count;
	uint32_t is_dead;
};

/* Is a rank here, in grace or called? */
int life_is_served(const struct life *life);
/* Would the table listen to this rank? life may be NULL. */
int rank_speaks(const struct life *life, uint32_t rank);
/* Does the rank count as having released whatever its instance claims? */
int rank_is_absent(const struct life *life, uint32_t rank);
/* A worker joins: 0, KVPULL_EREJECTED or KVPULL_EAGAIN. */
int life_enter(struct life *life, uint32_t rank, uint32_t worker);
/*
 * A sweep: judged[] are the ranks that become dead or called, but for those
 * that never came.
 */
void life_judge(struct life *life, uint64_t now_ns, int judged[RANKS]);

#endif /* KVPULL_TESTS_UNIT_HOLD_LIVES */
