/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hold table's states and memory: private to hold.c, which changes it,
 * hold_sweep.c, which sees to what is due, hold_view.c, which looks at it, and
 * hold_show.c, which shows it.
 *
 * Staged notifications lie in their slot's own entry, under the generation
 * that they are for.
 */
#ifndef KVPULL_PLUGIN_HOLD_STATE_H
#define KVPULL_PLUGIN_HOLD_STATE_H

#include "base/log.h"
#include "base/map.h"
#include "base/transport.h"
#include "plugin/bytes/ticket.h"
#include "plugin/counters/counters.h"
#include "plugin/hold/instance.h"
#include "plugin/hold/lease.h"
#include "plugin/hold/missed.h"
#include "plugin/shown/record.h"

enum hold_state {
	HOLD_FREE,
	HOLD_STAGED,
	HOLD_HELD,
	HOLD_ENDED,
	HOLD_STATES
};

enum hold_event {
	HOLD_EV_TAKE,
	HOLD_EV_NOTE, /* of the generation staged or held, or the last */
	HOLD_EV_NOTE_NEWER,
	HOLD_EV_NOTE_OLDER,
	HOLD_EV_COMPLETE, /* every claimed instance is complete */
	HOLD_EV_DUE,      /* root of the heap */
	HOLD_EV_END,      /* of the generation held, or the last */
	HOLD_EV_END_NEWER,
	HOLD_EV_REVOKE,
	HOLD_EV_REPORT,
	HOLD_EV_FORGET, /* the generation staged is another half's */
	HOLD_EVENTS
};

enum hold_action {
	HOLD_BUG, /* an empty cell: the table or a caller is wrong */
	HOLD_IGNORE,
	HOLD_REFUSE,
	HOLD_UNKNOWN,
	HOLD_TAKE,
	HOLD_STAGE,
	HOLD_COUNT,
	HOLD_END,
	HOLD_TAKE_END,
	HOLD_DOOM, /* staged: revoke it before it was told */
	HOLD_REPORT,
	HOLD_UNSTAGE
};

struct hold_edge {
	uint8_t action;
	uint8_t next;
};

/* Drawn in plugin/README.md. Nothing but hold_apply in hold.c follows an edge. */
static const struct hold_edge hold_edges[HOLD_STATES][HOLD_EVENTS] = {
	[HOLD_FREE] = {
		[HOLD_EV_TAKE] = { HOLD_TAKE, HOLD_HELD },
		[HOLD_EV_NOTE] = { HOLD_UNKNOWN, HOLD_FREE },
		[HOLD_EV_NOTE_NEWER] = { HOLD_STAGE, HOLD_STAGED },
		[HOLD_EV_NOTE_OLDER] = { HOLD_UNKNOWN, HOLD_FREE },
		[HOLD_EV_DUE] = { HOLD_IGNORE, HOLD_FREE },
		[HOLD_EV_END] = { HOLD_IGNORE, HOLD_FREE },
		[HOLD_EV_END_NEWER] = { HOLD_TAKE_END, HOLD_ENDED },
	},
	[HOLD_STAGED] = {
		[HOLD_EV_TAKE] = { HOLD_TAKE, HOLD_HELD },
		[HOLD_EV_NOTE] = { HOLD_COUNT, HOLD_STAGED },
		[HOLD_EV_NOTE_NEWER] = { HOLD_STAGE, HOLD_STAGED },
		[HOLD_EV_NOTE_OLDER] = { HOLD_UNKNOWN, HOLD_STAGED },
		[HOLD_EV_COMPLETE] = { HOLD_IGNORE, HOLD_STAGED },
		[HOLD_EV_DUE] = { HOLD_IGNORE, HOLD_STAGED },
		[HOLD_EV_END] = { HOLD_IGNORE, HOLD_STAGED },
		[HOLD_EV_END_NEWER] = { HOLD_TAKE_END, HOLD_ENDED },
		[HOLD_EV_REVOKE] = { HOLD_DOOM, HOLD_STAGED },
		[HOLD_EV_FORGET] = { HOLD_UNSTAGE, HOLD_FREE },
	},
	[HOLD_HELD] = {
		[HOLD_EV_TAKE] = { HOLD_REFUSE, HOLD_HELD },
		[HOLD_EV_NOTE] = { HOLD_COUNT, HOLD_HELD },
		[HOLD_EV_NOTE_NEWER] = { HOLD_UNKNOWN, HOLD_HELD },
		[HOLD_EV_NOTE_OLDER] = { HOLD_UNKNOWN, HOLD_HELD },
		[HOLD_EV_COMPLETE] = { HOLD_END, HOLD_ENDED },
		[HOLD_EV_DUE] = { HOLD_END, HOLD_ENDED },
		[HOLD_EV_END] = { HOLD_END, HOLD_ENDED },
		[HOLD_EV_END_NEWER] = { HOLD_REFUSE, HOLD_HELD },
		[HOLD_EV_REVOKE] = { HOLD_END, HOLD_ENDED },
	},
	[HOLD_ENDED] = {
		[HOLD_EV_TAKE] = { HOLD_REFUSE, HOLD_ENDED },
		[HOLD_EV_NOTE] = { HOLD_UNKNOWN, HOLD_ENDED },
		[HOLD_EV_NOTE_NEWER] = { HOLD_UNKNOWN, HOLD_ENDED },
		[HOLD_EV_NOTE_OLDER] = { HOLD_UNKNOWN, HOLD_ENDED },
		[HOLD_EV_DUE] = { HOLD_IGNORE, HOLD_ENDED },
		[HOLD_EV_END] = { HOLD_IGNORE, HOLD_ENDED },
		[HOLD_EV_END_NEWER] = { HOLD_REFUSE, HOLD_ENDED },
		[HOLD_EV_REPORT] = { HOLD_REPORT, HOLD_FREE },
	},
};

struct claim {
	uint64_t released; /* ranks that released, died or were not there */
	uint32_t instance;
	uint32_t claimed; /* ranks below 32 that have said so themselves */
};

/* With one consumer instance all of a hold's life is in its first line. */
struct hold {
	uint64_t generation; /* last one told; its entry's while HELD, ENDED */
	union {
		uint64_t staged; /* STAGED: generation of the claims */
		uint64_t tag;    /* HELD: what notes for it carry */
	};
	uint64_t key;
	uint64_t taken_ns;
	uint64_t word_ns; /* lease clock: the take, or the last word since */
	int32_t reason;
	uint8_t claim_count;
	uint8_t is_given; /* HELD: its ticket was given back */
	uint8_t state;
	uint8_t is_wide; /* ranks from 32 on have claimed it */
	struct claim claims[KVPULL_CLAIMS_MAX];
	uint32_t claimed_high[KVPULL_CLAIMS_MAX]; /* those, where is_wide */
};

_Static_assert(sizeof(struct hold) == 2 * KVPULL_CACHE_LINE &&
		       offsetof(struct hold, claims[1]) == KVPULL_CACHE_LINE,
	       "no padding, and the first claim in the first line");

struct kvpull_holds {
	const struct kvpull_log *log;
	struct hold *holds;                      /* [slot_count] */
	struct kvpull_revocation_entry *entries; /* [slot_count] */
	uint64_t *live; /* a bit a slot, 64 slots a word: STAGED or HELD */
	const _Atomic uint64_t *given; /* [slot_count] or NULL: see hold.h */
	uint64_t *given_due; /* a bit a slot likewise: to be judged by a sweep */
	uint32_t given_any;  /* a bit of them is set */
	uint32_t *ended;     /* [slot_count]; see hold_ended */
	struct kvpull_instances instances;
	struct kvpull_leases leases;
	struct kvpull_missed missed;
	struct kvpull_map keys; /* of HELD holds */
	uint64_t lease_ns;
	uint64_t hold_max_ns;
	uint64_t now_ns;
	uint64_t generation_max;
	uint64_t floor; /* generations up to this one are another half's */
	uint32_t slot_count;
	uint32_t state_counts[HOLD_STATES];
	uint32_t live_count;
	uint32_t scan_open; /* a pass for the dead is under way */
	uint32_t scan_left; /* slots below it are still to be looked at */
	uint32_t ended_first;
	uint32_t published;   /* of the ended, oldest first */
	uint32_t ended_shown; /* likewise: in the status file as such */
	uint32_t unfenced;    /* entries were written since the last fence */
	struct kvpull_status_holds shown;
	struct kvpull_hold_counts counts;
	uint8_t secret[KVPULL_SECRET_BYTES];
};

/* The lease clock stands still for the time that the producer missed. */
static inline uint64_t hold_lease_clock(const struct kvpull_holds *holds,
					uint64_t now_ns)
{
	return kvpull_missed_clock(&holds->missed, now_ns);
}

static inline uint64_t hold_add(uint64_t left, uint64_t right)
{
	return left > UINT64_MAX - right ? UINT64_MAX : left + right;
}

/* Ranks that have claimed it, and have neither released nor died since. */
static inline uint64_t hold_owing(const struct hold *hold, uint32_t at)
{
	const struct claim *claim = &hold->claims[at];

	return ((uint64_t)(hold->is_wide ? hold->claimed_high[at] : 0) << 32 |
		claim->claimed) &
	       ~claim->released;
}

/* The highest slot below this one that is staged or held; or KVPULL_NONE. */
static inline uint32_t hold_live_below(const struct kvpull_holds *holds,
				       uint32_t slot)
{
	uint32_t at = slot / 64;
	uint64_t word =
		slot % 64 ? holds->live[at] & ((UINT64_C(1) << slot % 64) - 1) :
			    0;

	while (!word && at)
		word = holds->live[--at];
	return word ? at * 64 + 63 - (uint32_t)__builtin_clzll(word) :
		      KVPULL_NONE;
}

/*
 * A ring of the slots that are ENDED, as they ended. A list through the holds
 * would do, but a report could not fetch what it does not know yet.
 */
static inline uint32_t *hold_ended(const struct kvpull_holds *holds,
				   uint32_t index)
{
	const uint32_t at = holds->ended_first + index;

	return &holds->ended[at < holds->slot_count ? at :
						      at - holds->slot_count];
}

/* The values that come with an event. */
struct hold_input {
	uint64_t generation;
	uint64_t key;
	uint32_t instance;
	uint32_t rank;
	uint32_t kind; /* KVPULL_NOTE_* */
	int32_t reason;
};

/* The next sweep judges the hold, if it was given back. */
static inline void hold_given_due(struct kvpull_holds *holds, uint32_t slot)
{
	if (!holds->holds[slot].is_given)
		return;
	holds->given_due[slot / 64] |= UINT64_C(1) << slot % 64;
	holds->given_any = 1;
}

/* The lease runs from the last word on, whoever said it. */
static inline void hold_word_said(struct hold *hold, uint64_t lease_now_ns)
{
	if (lease_now_ns > hold->word_ns)
		hold->word_ns = lease_now_ns;
}

/* hold.c: follow the edge of an event. 0, or KVPULL_EINVAL: it is refused. */
int hold_apply(struct kvpull_holds *holds, uint32_t slot, enum hold_event event,
	       const struct hold_input *input);
/* hold.c: it ends if everybody who claimed it has released it. */
void hold_settle(struct kvpull_holds *holds, uint32_t slot);

/*
 * hold_view.c: the last sign of life of those of one claim, and of these ranks,
 * that owe a word; 0: of nobody.
 */
uint64_t hold_heard_ns(const struct kvpull_holds *holds,
		       const struct hold *hold, uint32_t at, uint64_t ranks);
/* A hold ends then, as far as is known at now_ns: its lease, or hold_max. */
uint64_t hold_deadline_ns(const struct kvpull_holds *holds,
			  const struct hold *hold, uint64_t now_ns);

/* hold_show.c */
void hold_show_staged(struct kvpull_holds *holds, const struct hold *hold);
void hold_show_unstaged(struct kvpull_holds *holds, uint32_t slot);
void hold_show_take(struct kvpull_holds *holds, uint32_t slot);
void hold_show_claim(struct kvpull_holds *holds, const struct hold *hold,
		     const struct hold_input *input);
/* Must be called while the claims of the hold are known. */
void hold_show_end(struct kvpull_holds *holds, uint32_t slot, int32_t reason);
/* Before a report of it; an event only where the next call has shown it. */
void hold_show_report(struct kvpull_holds *holds, uint32_t slot);
/* After a poll that could tell none, and a step's word: what waits for a report. */
void hold_show_unreported(struct kvpull_holds *holds);

#endif /* KVPULL_PLUGIN_HOLD_STATE_H */
