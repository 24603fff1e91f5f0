/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Effects of time on the hold table: dead consumers release their claims, and
 * expired leases end their holds. Each sweep does a bounded portion of both.
 */
#include "plugin/hold/hold.h"
#include "plugin/hold/hold_state.h"

/*
 * How often deadline() wants a poll while leases run, in parts of a lease: a
 * sleep of more than a third is a gap (missed.h).
 */
#define POLLS_A_LEASE 6u

/* The first grace, or call, that a sweep has to judge; UINT64_MAX: none. */
static uint64_t death_ns(const struct kvpull_holds *holds, uint64_t now_ns)
{
	if (holds->instances.due_ns == UINT64_MAX)
		return UINT64_MAX;
	return kvpull_missed_judged_ns(
		&holds->missed,
		hold_add(holds->instances.due_ns, holds->missed.shift_ns),
		now_ns);
}

/* Deaths. */

/* A single pass serves all ranks that died until now. */
static void scan_begin(struct kvpull_holds *holds, uint64_t lease_now_ns)
{
	const uint32_t died =
		kvpull_instances_scan_begin(&holds->instances, lease_now_ns);

	if (!died)
		return;
	holds->counts.consumers_died += died;
	holds->scan_open = 1;
	holds->scan_left = holds->slot_count;
}

static void scan_slot(struct kvpull_holds *holds, uint32_t slot,
		      uint64_t lease_now_ns)
{
	struct hold *hold = &holds->holds[slot];
	uint32_t i;

	for (i = 0; i < hold->claim_count; i++) {
		struct claim *claim = &hold->claims[i];
		const uint64_t died =
			holds->instances.all[claim->instance].scanning;

		if (hold_owing(hold, i) & died) {
			hold_word_said(hold, lease_now_ns);
			hold_word_said(hold,
				       hold_heard_ns(holds, hold, i, died));
		}
		claim->released |= died;
	}
	hold_settle(holds, slot);
	hold_given_due(holds, slot);
}

/* Claims made during a pass need no look: they count the dead already. */
static void scan_step(struct kvpull_holds *holds, uint64_t lease_now_ns)
{
	uint32_t budget = KVPULL_SCAN_MAX;
	uint32_t slot;

	while ((slot = hold_live_below(holds, holds->scan_left)) !=
	       KVPULL_NONE) {
		if (!budget--)
			return;
		holds->scan_left = slot;
		scan_slot(holds, slot, lease_now_ns);
	}
	holds->scan_open = holds->scan_left = 0;
	kvpull_instances_scan_end(&holds->instances);
}

/* Tickets that were given back. */

/* A rank that claimed it itself owes a word: the hold waits for that one. */
static int is_owed(const struct hold *hold)
{
	uint32_t i;

	for (i = 0; i < hold->claim_count; i++)
		if (hold_owing(hold, i))
			return 1;
	return 0;
}

static void given_judge(struct kvpull_holds *holds, uint32_t slot)
{
	const struct hold_input given = { .reason = KVPULL_END_GIVEN_BACK };
	const struct hold *hold = &holds->holds[slot];

	if (hold->state == HOLD_HELD && hold->is_given && !is_owed(hold))
		(void)hold_apply(holds, slot, HOLD_EV_COMPLETE, &given);
}

static void given_run(struct kvpull_holds *holds)
{
	uint32_t budget = KVPULL_GIVEN_MAX;
	uint32_t at;

	for (at = 0; at <= holds->slot_count / 64; at++)
		for (; holds->given_due[at];
		     holds->given_due[at] &= holds->given_due[at] - 1) {
			if (!budget--)
				return;
			given_judge(holds,
				    at * 64 + (uint32_t)__builtin_ctzll(
						      holds->given_due[at]));
		}
	holds->given_any = 0;
}

/* Leases. */

static void hold_expire(struct kvpull_holds *holds, uint32_t slot,
			uint64_t now_ns)
{
	const struct hold_input expired = { .reason = KVPULL_END_EXPIRED };
	const struct hold *hold = &holds->holds[slot];
	char text[KVPULL_LOG_LINE_BYTES];

	if (hold->state == HOLD_HELD && holds->log && holds->log->write &&
	    holds->log->level >= KVPULL_LOG_DEBUG) {
		kvpull_holds_describe(holds, slot, now_ns, text, sizeof(text));
		kvpull_debug(
			holds->log, "hold expired at its %s: %s",
			now_ns >= hold_add(hold->taken_ns, holds->hold_max_ns) ?
				"hold_max" :
				"lease",
			text);
	}
	(void)hold_apply(holds, slot, HOLD_EV_DUE, &expired);
}

static void expire(struct kvpull_holds *holds, uint64_t now_ns)
{
	uint32_t budget = KVPULL_EXPIRE_MAX;

	while (budget-- && kvpull_leases_next(&holds->leases) <= now_ns) {
		const uint32_t slot = kvpull_leases_root(&holds->leases);
		const struct hold *hold = &holds->holds[slot];
		const uint64_t deadline_ns =
			hold_deadline_ns(holds, hold, now_ns);

		if (hold->state == HOLD_HELD && deadline_ns > now_ns) {
			kvpull_leases_rekey(&holds->leases, deadline_ns);
			continue;
		}
		kvpull_leases_drop(&holds->leases);
		hold_expire(holds, slot, now_ns);
	}
}

static int is_due(const struct kvpull_holds *holds, uint64_t now_ns)
{
	return holds->scan_open || holds->given_any ||
	       death_ns(holds, now_ns) <= now_ns ||
	       kvpull_leases_next(&holds->leases) <= now_ns;
}

int kvpull_holds_sweep(struct kvpull_holds *holds, uint64_t now_ns)
{
	uint64_t until_ns;
	const uint64_t late_ns =
		kvpull_missed_late(&holds->missed, now_ns, &until_ns);

	if (!is_due(holds, now_ns))
		return 0;
	if (!holds->scan_open && death_ns(holds, now_ns) <= now_ns)
		scan_begin(holds, hold_lease_clock(holds, now_ns - late_ns));
	if (holds->scan_open)
		scan_step(holds, hold_lease_clock(holds, now_ns));
	if (holds->given_any)
		given_run(holds);
	expire(holds, now_ns);
	return is_due(holds, now_ns);
}

uint64_t kvpull_holds_deadline(const struct kvpull_holds *holds)
{
	const uint64_t poll_ns = hold_add(holds->missed.looked_ns,
					  holds->lease_ns / POLLS_A_LEASE);
	const uint64_t died_ns = death_ns(holds, holds->now_ns);
	uint64_t due_ns = kvpull_leases_next(&holds->leases);

	if (holds->scan_open || holds->given_any)
		return holds->now_ns;
	due_ns = died_ns < due_ns ? died_ns : due_ns;
	return due_ns < UINT64_MAX && poll_ns < due_ns ? poll_ns : due_ns;
}
