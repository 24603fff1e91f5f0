/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/hold/history.h"

#include "base/index.h"

/* Where the instance's life of the time `now` began. */
static uint32_t life_begin(const struct history *past, uint32_t now)
{
	return now ? past->at[now - 1].life : 0;
}

/* Where the hold of the time `now` was taken. */
static uint32_t hold_begin(const struct history *past, uint32_t now)
{
	return now ? past->at[now - 1].hold : 0;
}

static uint32_t polls(const struct history *past, uint32_t from, uint32_t now)
{
	return (now ? past->at[now - 1].polls : 0u) -
	       (from ? past->at[from - 1].polls : 0u);
}

static uint32_t ticks(const struct history *past, uint32_t from, uint32_t now)
{
	return (now ? past->at[now - 1].ticks : 0u) -
	       (from ? past->at[from - 1].ticks : 0u);
}

static int is_of(const struct past_entry *entry, enum past_event event,
		 uint32_t rank)
{
	return entry->event == event && entry->rank == rank;
}

static int is_entry(const struct past_entry *entry, uint32_t rank)
{
	return (is_of(entry, PAST_JOIN, rank) ||
		is_of(entry, PAST_CALL, rank)) &&
	       entry->answer == PAST_LET_IN;
}

static int is_call_that_waits(const struct past_entry *entry, uint32_t rank)
{
	return is_of(entry, PAST_CALL, rank) && entry->answer == PAST_WAITS;
}

static int is_word(const struct past_entry *entry)
{
	return entry->event == PAST_CLAIM || entry->event == PAST_RELEASE;
}

/* + 1, so that 0 is never: when the rank was let in last, in this life. */
static uint32_t entered(const struct history *past, uint32_t rank, uint32_t now)
{
	const uint32_t begin = life_begin(past, now);

	for (; now > begin; now--)
		if (is_entry(&past->at[now - 1], rank))
			return now;
	return 0;
}

/* + 1: the last between these two times that was a call, or the end of one. */
static uint32_t called(const struct history *past, uint32_t rank, uint32_t from,
		       uint32_t now)
{
	for (; now > from; now--)
		if (is_call_that_waits(&past->at[now - 1], rank) ||
		    is_of(&past->at[now - 1], PAST_HANG_UP, rank))
			return now;
	return 0;
}

static int has_died(const struct history *past, uint32_t rank, uint32_t from,
		    uint32_t now)
{
	for (; from < now; from++)
		if (past->at[from].died >> rank & 1)
			return 1;
	return 0;
}

/* + 1: when the rank that was let in then went or was lost; 0: it is here. */
static uint32_t left(const struct history *past, uint32_t rank, uint32_t from,
		     uint32_t now)
{
	for (; from < now; from++)
		if (is_of(&past->at[from], PAST_GO, rank) ||
		    is_of(&past->at[from], PAST_LOSE, rank))
			return from + 1;
	return 0;
}

enum past_state past_state(const struct history *past, uint32_t rank,
			   uint32_t now)
{
	const uint32_t came = entered(past, rank, now);
	const uint32_t went = came ? left(past, rank, came, now) : 0;

	if (!came)
		return PAST_NEVER;
	if (!went)
		return PAST_HERE;
	if (has_died(past, rank, went, now))
		return PAST_DEAD;
	if (called(past, rank, went, now))
		return PAST_CALLED;
	return past->at[went - 1].event == PAST_GO ? PAST_AWAY : PAST_GRACE;
}

/* Is the caller of a called rank lost? */
static int is_forsaken(const struct history *past, uint32_t rank, uint32_t now)
{
	const uint32_t last = called(past, rank, 0, now);

	return past->at[last - 1].event == PAST_HANG_UP;
}

/* Did a poll pass since the caller of a called rank came? */
static int is_judged(const struct history *past, uint32_t rank, uint32_t now)
{
	uint32_t first = called(past, rank, 0, now);
	uint32_t at;

	for (at = first; at; at--) {
		if (is_of(&past->at[at - 1], PAST_HANG_UP, rank) ||
		    is_entry(&past->at[at - 1], rank))
			break;
		if (is_call_that_waits(&past->at[at - 1], rank))
			first = at;
	}
	return polls(past, first, now) > 0;
}

/* Is the grace of a rank over at this time? */
static int is_grace_over(const struct history *past, uint32_t rank,
			 uint32_t now)
{
	const uint32_t came = entered(past, rank, now);

	return ticks(past, left(past, rank, came, now), now) >= past->grace;
}

static int dies(const struct history *past, uint32_t rank, uint32_t now)
{
	const enum past_state state = past_state(past, rank, now);

	return (state == PAST_GRACE && is_grace_over(past, rank, now)) ||
	       (state == PAST_CALLED && is_forsaken(past, rank, now));
}

/* Is no rank here, in grace or called, but for those of `but`? */
static int is_deserted(const struct history *past, uint32_t but, uint32_t now)
{
	uint32_t rank;

	for (rank = 0; rank < past->rank_count; rank++) {
		const enum past_state state = past_state(past, rank, now);

		if (!(but >> rank & 1) &&
		    (state == PAST_HERE || state == PAST_GRACE ||
		     state == PAST_CALLED))
			return 0;
	}
	return 1;
}

/* + 1: the first word of this life on the hold. */
static uint32_t first_word(const struct history *past, uint32_t now)
{
	const uint32_t life = life_begin(past, now);
	uint32_t at = hold_begin(past, now);

	for (at = at > life ? at : life; at < now; at++)
		if (is_word(&past->at[at]))
			return at + 1;
	return 0;
}

uint32_t past_speakers(const struct history *past, uint32_t now)
{
	uint32_t count = 0, at;
	int is_new = 1, is_others = 0;

	for (at = hold_begin(past, now); at < now; at++) {
		if (is_word(&past->at[at])) {
			count += (uint32_t)is_new;
			is_new = 0;
		}
		if (past->at[at].event == PAST_OTHERS_CLAIM)
			is_others = 1;
		if (past->at[at].is_over || past->at[at].forgotten)
			is_new = 1;
	}
	return count + (uint32_t)is_others;
}

static int other_owes(const struct history *past, uint32_t now)
{
	const uint32_t from = hold_begin(past, now);

	for (; now > from; now--) {
		if (past->at[now - 1].event == PAST_OTHERS_RELEASE)
			return 0;
		if (past->at[now - 1].event == PAST_OTHERS_CLAIM)
			return 1;
	}
	return 0;
}

/* Was it dead or called, and let in since the last poll? */
static int is_back(const struct history *past, uint32_t rank, uint32_t now)
{
	const uint32_t life = life_begin(past, now);
	enum past_state before;

	for (; now > life && past->at[now - 1].event != PAST_POLL; now--) {
		if (!is_entry(&past->at[now - 1], rank))
			continue;
		before = past_state(past, rank, now - 1);
		if (before == PAST_DEAD || before == PAST_CALLED)
			return 1;
	}
	return 0;
}

/*
 * Does the instance's first word on a hold, by another rank, put this one into
 * debt? An earlier life that had spoken of the hold spoke for all of its ranks.
 */
static int is_indebted(const struct history *past, uint32_t rank,
		       uint32_t first)
{
	const enum past_state state = past_state(past, rank, first);
	uint32_t at;

	for (at = hold_begin(past, first); at < life_begin(past, first); at++)
		if (is_word(&past->at[at]))
			return 0;
	return state != PAST_DEAD && state != PAST_CALLED &&
	       !is_back(past, rank, first) && past->at[first].rank != rank;
}

static int owes(const struct history *past, uint32_t rank, uint32_t now)
{
	const uint32_t first = first_word(past, now);
	int is_owed;
	uint32_t at;

	if (!first)
		return 0;
	is_owed = is_indebted(past, rank, first - 1);
	for (at = first - 1; at < now; at++) {
		const struct past_entry *entry = &past->at[at];

		if (is_of(entry, PAST_CLAIM, rank))
			is_owed = 1;
		if (is_of(entry, PAST_RELEASE, rank) ||
		    is_call_that_waits(entry, rank) || entry->died >> rank & 1)
			is_owed = 0;
	}
	return is_owed;
}

int past_owes(const struct history *past, uint32_t rank)
{
	return owes(past, rank, past->count);
}

/* Has an instance spoken of the hold, and does no rank owe a word? */
static int is_complete(const struct history *past, uint32_t now)
{
	uint32_t rank;

	for (rank = 0; rank < past->rank_count; rank++)
		if (owes(past, rank, now))
			return 0;
	return past_speakers(past, now) && !other_owes(past, now);
}

static enum past_answer answer(const struct history *past,
			       enum past_event event, uint32_t rank)
{
	const uint32_t now = past->count;

	switch (past_state(past, rank, now)) {
	case PAST_HERE:
		return PAST_REFUSED;
	case PAST_GRACE:
	case PAST_AWAY:
		return event == PAST_JOIN ? PAST_LET_IN : PAST_WAITS;
	case PAST_CALLED:
		return event == PAST_CALL && !is_forsaken(past, rank, now) &&
				       is_judged(past, rank, now) ?
			       PAST_LET_IN :
			       PAST_WAITS;
	case PAST_NEVER:
	case PAST_DEAD:
		break;
	}
	return PAST_LET_IN;
}

int past_is_possible(const struct history *past, enum past_event event,
		     uint32_t rank)
{
	const enum past_state state = past_state(past, rank, past->count);

	switch (event) {
	case PAST_GO:
	case PAST_LOSE:
	case PAST_CLAIM:
	case PAST_RELEASE:
		return state == PAST_HERE;
	case PAST_HANG_UP:
		return state == PAST_CALLED &&
		       !is_forsaken(past, rank, past->count);
	case PAST_OTHERS_CLAIM:
		return !other_owes(past, past->count);
	case PAST_OTHERS_RELEASE:
		return other_owes(past, past->count);
	default:
		return 1;
	}
}

static void judge(const struct history *past, struct past_entry *entry)
{
	uint32_t rank;

	for (rank = 0; rank < past->rank_count; rank++)
		if (dies(past, rank, past->count))
			entry->died |= (uint8_t)(1u << rank);
	entry->is_over =
		entry->died && is_deserted(past, entry->died, past->count);
}

/* The last entry may end the hold, and let the instance be forgotten. */
static void conclude(struct history *past)
{
	const uint32_t now = past->count;
	struct past_entry *last = &past->at[now - 1];

	if (last->event == PAST_RELEASE || last->event == PAST_OTHERS_RELEASE ||
	    last->event == PAST_POLL)
		last->ended = (uint8_t)is_complete(past, now);
	if (last->ended)
		last->hold = (uint8_t)now;
	last->forgotten =
		(uint8_t)(is_deserted(past, 0, now) && !first_word(past, now));
	if (last->forgotten)
		last->life = (uint8_t)now;
}

void past_add(struct history *past, enum past_event event, uint32_t rank)
{
	const uint32_t now = past->count;
	struct past_entry entry = { .event = (uint8_t)event,
				    .rank = (uint8_t)rank };

	if (event == PAST_JOIN || event == PAST_CALL)
		entry.answer = (uint8_t)answer(past, event, rank);
	if (event == PAST_POLL)
		judge(past, &entry);
	entry.life = (uint8_t)(entry.is_over ? now + 1 : life_begin(past, now));
	entry.hold = (uint8_t)hold_begin(past, now);
	entry.polls = (uint8_t)(polls(past, 0, now) + (event == PAST_POLL));
	entry.ticks = (uint8_t)(ticks(past, 0, now) + (event == PAST_TICK));
	past->at[past->count++] = entry;
	conclude(past);
}

static uint64_t rank_digest(const struct history *past, uint32_t rank,
			    uint64_t digest)
{
	const uint32_t now = past->count;
	const enum past_state state = past_state(past, rank, now);
	uint32_t age = 0;

	if (state == PAST_GRACE)
		age = ticks(past,
			    left(past, rank, entered(past, rank, now), now),
			    now);
	digest = kvpull_index_mix(digest, state);
	digest =
		kvpull_index_mix(digest, age < past->grace ? age : past->grace);
	digest = kvpull_index_mix(digest,
				  (uint64_t)is_back(past, rank, now) << 1 |
					  (uint64_t)owes(past, rank, now));
	if (state == PAST_CALLED)
		digest = kvpull_index_mix(
			digest, (uint64_t)is_forsaken(past, rank, now) << 1 |
					(uint64_t)is_judged(past, rank, now));
	return digest;
}

uint64_t past_digest(const struct history *past)
{
	const uint32_t now = past->count;
	uint64_t digest = past_speakers(past, now);
	uint32_t rank;

	digest = kvpull_index_mix(digest, first_word(past, now) != 0);
	digest = kvpull_index_mix(digest, (uint64_t)other_owes(past, now));
	for (rank = 0; rank < past->rank_count; rank++)
		digest = rank_digest(past, rank, digest);
	return digest;
}
