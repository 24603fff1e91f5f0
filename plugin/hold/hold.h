/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hold table of a producer rank: what it promised to keep, for whom, and
 * until when. Pure: no I/O, no clock, no thread, no allocation after init.
 *
 * Owned by the thread that calls poll. Order within a poll (plugin/worker/worker.c
 * keeps it): tick, leave/join, note (every ring drained), sweep (deaths, then
 * expiry), publish (fence), report.
 *
 * Consumers are (instance, rank). A hold keeps up to KVPULL_CLAIMS_MAX
 * instances, each with a bitmap of the ranks that have released or died. It
 * ends when at least one instance is complete and no claimed one is
 * incomplete; at the end of its lease; at hold_max; or when told to.
 * A rank that is dead, or that another worker is about to replace, counts as
 * having released what its instance had claimed by then (instance.h). A rank
 * that claims again after its release, or after its death, owes another release.
 * A hold's lease runs from the last word on it, and is renewed by the ranks
 * that have claimed it themselves and owe a release. A rank that never claimed
 * renews nothing: whether it was ever told of the ticket nobody can say, so it
 * is waited for a lease, in whatever order it and its siblings come and go.
 * A hold whose ticket was given back ends at the first sweep at which no rank
 * that claimed it itself owes a word.
 * A notification whose generation is newer than the slot's is *staged* in the
 * slot itself, once its tag matched, and settled when the hold is taken.
 */
#ifndef KVPULL_PLUGIN_HOLD_H
#define KVPULL_PLUGIN_HOLD_H

#include "base/arena.h"
#include "base/log.h"
#include "base/transport.h"
#include "plugin/bytes/ticket.h"
#include "plugin/hold/hold_view.h"
#include "plugin/hold/instance.h"
#include "plugin/hold/missed.h"
#include "plugin/shown/record.h"

#define KVPULL_EXPIRE_MAX 64u /* due heap roots a sweep handles */
#define KVPULL_SCAN_MAX 4096u /* holds a sweep scans for the dead */
#define KVPULL_GIVEN_MAX 256u /* holds given back that a sweep judges */

struct kvpull_hold_params {
	const struct kvpull_log *log;
	struct kvpull_revocation_entry *entries; /* [hold_count_max], not owned */
	uint64_t incarnation;
	uint64_t lease_ns;
	uint64_t hold_max_ns;
	uint64_t grace_ns; /* between a death and what it releases */
	uint32_t hold_count_max;
	uint32_t instance_count_max; /* instances known at once */
	uint8_t secret[KVPULL_SECRET_BYTES];
	/* [hold_count_max] the newest generation given back; NULL: none is. */
	const _Atomic uint64_t *given;
	/* Where it shows what it does; the side of the thread that owns it. */
	struct kvpull_status_holds shown;
};

struct kvpull_hold_end {
	uint64_t key;
	uint64_t generation;
	uint32_t slot;
	int32_t reason; /* KVPULL_END_* */
};

/* NULL if the arena is too small. Writes the incarnation into every entry. */
struct kvpull_holds *kvpull_holds_open(const struct kvpull_hold_params *params,
				       struct kvpull_arena *arena);

/**
 * A poll begins. Time that was missed since the last one moves leases and
 * graces, never hold_max (missed.h).
 *
 * @stopped_ns  sum of the progress thread's stops so far; KVPULL_NO_THREAD
 *              where polls do its work
 */
void kvpull_holds_tick(struct kvpull_holds *holds, uint64_t now_ns,
		       uint64_t stopped_ns);

/*
 * The time of what follows: of takes, outside of a poll (else the last tick's,
 * which may be long ago in an engine that was idle; a step calls it first), and
 * of a ring's records, in a poll.
 */
void kvpull_holds_stamp(struct kvpull_holds *holds, uint64_t now_ns,
			uint64_t stopped_ns);

/*
 * Once, before the first take: the half that takes gives out generations above
 * floor. What others before it gave out, and told nobody of, is dead from here
 * on: every entry is written, and fenced.
 */
void kvpull_holds_begin(struct kvpull_holds *holds, uint64_t floor);

/**
 * The scheduler half took a hold. Settles what was staged: it may end at once.
 * Return: 0; KVPULL_EINVAL (slot out of range, slot busy, generation not newer
 * than the slot's and the floor, key 0 or held already): a broken step, nothing
 * changed. A generation that revoke_all() met while it was staged ends at once.
 */
int KVPULL_MUST_CHECK kvpull_holds_take(struct kvpull_holds *holds,
					uint32_t slot, uint64_t generation,
					uint64_t key);

/**
 * End a hold, whoever still reads. A hold that this rank was never told of
 * (its generation is newer than the slot's: a worker restarted alone) is taken
 * and ended, so that its report is made; one that ended already: nothing.
 * Return: 0; KVPULL_EINVAL (slot or reason out of range; or unknown here and
 * the slot is busy, the generation not above the floor, or the key 0 or held
 * already): nothing changed.
 */
int KVPULL_MUST_CHECK kvpull_holds_end(struct kvpull_holds *holds,
				       uint32_t slot, uint64_t generation,
				       uint64_t key, int32_t reason);

/*
 * The ticket of this generation was given back by its tag. A hold that this
 * rank was not told of yet finds the mark when it is taken; others: nothing.
 */
void kvpull_holds_give(struct kvpull_holds *holds, uint32_t slot,
		       uint64_t generation);

/* End every live hold and fence: no later read is believed. Return: how many. */
uint32_t kvpull_holds_revoke_all(struct kvpull_holds *holds, int32_t reason);
/**
 * Likewise, for good: no ticket of this incarnation is live from here on, also
 * of a hold that was promised and never told.
 */
uint32_t kvpull_holds_revoke_full(struct kvpull_holds *holds, int32_t reason);

/* READY_NEEDED: all writes are visible. KVPULL_ENOKEY if key holds nothing. */
int KVPULL_MUST_CHECK kvpull_holds_ready(struct kvpull_holds *holds,
					 uint64_t key);
/**
 * A consumer connected. rank < rank_count <= KVPULL_RANKS_MAX; lease_now_ns is
 * set here.
 * Return: 0 and *instance (an index); KVPULL_EREJECTED (another rank_count for
 * this instance, or the rank is connected already); KVPULL_EAGAIN (a sweep has
 * to release first what the rank's last worker owes); KVPULL_EFULL.
 */
int KVPULL_MUST_CHECK kvpull_holds_join(struct kvpull_holds *holds,
					struct kvpull_join *join,
					uint64_t now_ns, uint32_t *instance);

/* A caller that was told KVPULL_EAGAIN is lost before it was let in. */
void kvpull_holds_call_lost(struct kvpull_holds *holds,
			    const struct kvpull_join *join);

/*
 * A consumer's connection ended (its ring was drained before). The first sweep
 * after the grace releases for its rank every hold that its instance claimed; a
 * join of the same worker before that sweep cancels it.
 */
void kvpull_holds_leave(struct kvpull_holds *holds, uint32_t instance,
			uint32_t rank, uint64_t now_ns);

/*
 * The same over a network, where a connection that is lost is no death yet:
 * the grace is a lease at least.
 */
void kvpull_holds_lose(struct kvpull_holds *holds, uint32_t instance,
		       uint32_t rank, uint64_t now_ns);

/*
 * Sign of life of (instance, rank), for what this rank has claimed: O(1),
 * however much that is.
 */
void kvpull_holds_beat(struct kvpull_holds *holds, uint32_t instance,
		       uint32_t rank, uint64_t now_ns);

/*
 * A claim or release from (instance, rank), also a sign of life; or its word that
 * it goes. Hostile bytes: of wrong kinds, slots, tags and old generations there is
 * a counter, and nothing else is touched.
 */
void kvpull_holds_note(struct kvpull_holds *holds, uint32_t instance,
		       uint32_t rank, const struct kvpull_record *record,
		       uint64_t now_ns);

/**
 * Work off deaths, then holds that were given back, then expire what is due;
 * bounded by KVPULL_SCAN_MAX, KVPULL_GIVEN_MAX and KVPULL_EXPIRE_MAX. Return: 1 if more is due now, else 0.
 */
int kvpull_holds_sweep(struct kvpull_holds *holds, uint64_t now_ns);

/*
 * Earliest time at which a sweep may have work; UINT64_MAX: none. While leases
 * run never more than a sixth of one after the last tick: a producer without a
 * progress thread that slept longer than a third would judge its leases later.
 */
uint64_t kvpull_holds_deadline(const struct kvpull_holds *holds);

/* The fence, if entries were written since the last one. Before report. */
void kvpull_holds_publish(struct kvpull_holds *holds);

/*
 * Take ended holds, oldest first, each once for ever; only those published.
 * The slot is free for a newer generation from then on. Return: how many.
 */
uint32_t kvpull_holds_report(struct kvpull_holds *holds,
			     struct kvpull_hold_end *ends, uint32_t capacity);

#endif /* KVPULL_PLUGIN_HOLD_H */
