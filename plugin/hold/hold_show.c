/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows the hold table in the status file: two rows a slot, and an event a
 * transition. Without a file nothing is stored, except for the line on an
 * expired hold.
 */
#include "plugin/hold/hold_state.h"

static void show(struct kvpull_holds *holds, uint32_t slot,
		 enum kvpull_status_what what, uint64_t who, int32_t arg)
{
	const struct hold *hold = &holds->holds[slot];
	const struct kvpull_status_note note = {
		.at_ns = holds->now_ns,
		.generation = hold->state == HOLD_STAGED ? hold->staged :
							   hold->generation,
		.who = who,
		.slot = slot,
		.what = what,
		.arg = arg,
	};

	kvpull_status_note(holds->shown.side, &note);
}

void hold_show_claim(struct kvpull_holds *holds, const struct hold *hold,
		     const struct hold_input *input)
{
	const uint32_t slot = (uint32_t)(hold - holds->holds);

	if (!holds->shown.side)
		return;
	kvpull_status_set(&holds->shown.now[slot].joined,
			  (uint16_t)(input->instance + 1));
	kvpull_status_set(&holds->shown.now[slot].word_ns, holds->now_ns);
	show(holds, slot,
	     input->kind == KVPULL_NOTE_CLAIM ? KVPULL_DID_CLAIM :
						KVPULL_DID_RELEASE,
	     holds->instances.all[input->instance].id, (int32_t)input->rank);
}

void hold_show_take(struct kvpull_holds *holds, uint32_t slot)
{
	const struct hold *hold = &holds->holds[slot];
	const struct kvpull_status_holds *shown = &holds->shown;

	if (!shown->side)
		return;
	kvpull_status_set(&shown->rows[slot].generation, hold->generation);
	kvpull_status_set(&shown->rows[slot].key, hold->key);
	kvpull_status_set(&shown->rows[slot].taken_ns, hold->taken_ns);
	kvpull_status_set(&shown->now[slot].word_ns, hold->taken_ns);
	/* Blocks and label come behind it; who claimed it early stays. */
	kvpull_status_set(&shown->now[slot].blocks, 0);
	if (!hold->claim_count)
		kvpull_status_set(&shown->now[slot].joined, 0);
	kvpull_status_set(&shown->now[slot].reason, 0);
	kvpull_status_set(&shown->now[slot].state, KVPULL_SHOWN_FREE);
	kvpull_status_set(&shown->held[slot / 64],
			  kvpull_status_get(&shown->held[slot / 64]) |
				  UINT64_C(1) << slot % 64);
	if (slot >= kvpull_status_get(&shown->side->thread->holds_high))
		kvpull_status_set(&shown->side->thread->holds_high, slot + 1);
	show(holds, slot, KVPULL_DID_TAKE, hold->key, 0);
}

/* The claim that the line of an expiry names: the last one. */
static const struct claim *claim_last(const struct hold *hold)
{
	return hold->claim_count ? &hold->claims[hold->claim_count - 1] : NULL;
}

/* Shows the end of a hold that was not shown before. */
static void unseen_end(struct kvpull_holds *holds, uint32_t slot)
{
	const struct hold *hold = &holds->holds[slot];
	const struct claim *last = claim_last(hold);
	struct kvpull_status_hold_now *now = &holds->shown.now[slot];

	kvpull_status_set(&holds->shown.rows[slot].taken_ns, hold->taken_ns);
	kvpull_status_set(&now->word_ns, holds->now_ns);
	kvpull_status_set(&now->joined,
			  last ? (uint16_t)(last->instance + 1) : 0);
}

static void end_write(struct kvpull_holds *holds, uint32_t slot, int32_t reason)
{
	struct kvpull_status_hold_now *now = &holds->shown.now[slot];

	kvpull_status_set(&now->word_ns, holds->now_ns);
	kvpull_status_set(&now->reason, (uint8_t)reason);
}

static void held_clear(struct kvpull_holds *holds, uint32_t slot)
{
	_Atomic uint64_t *held = &holds->shown.held[slot / 64];

	kvpull_status_set(held, kvpull_status_get(held) &
					~(UINT64_C(1) << slot % 64));
}

void hold_show_end(struct kvpull_holds *holds, uint32_t slot, int32_t reason)
{
	const struct hold *hold = &holds->holds[slot];
	const struct claim *last = claim_last(hold);

	if (!holds->shown.side) {
		if (reason == KVPULL_END_EXPIRED && holds->shown.rows)
			unseen_end(holds, slot);
		return;
	}
	/* The row, of 65,536, is in no cache: a release leaves it alone. */
	if (reason != KVPULL_END_RELEASED)
		end_write(holds, slot, reason);
	kvpull_status_took(holds->shown.side, KVPULL_TIMES_HOLD,
			   holds->now_ns - hold->taken_ns, 1);
	show(holds, slot, KVPULL_DID_END,
	     last ? holds->instances.all[last->instance].id : 0, reason);
}

void hold_show_staged(struct kvpull_holds *holds, const struct hold *hold)
{
	const uint32_t slot = (uint32_t)(hold - holds->holds);

	if (!holds->shown.side)
		return;
	kvpull_status_set(&holds->shown.now[slot].state, KVPULL_SHOWN_STAGED);
	kvpull_status_set(&holds->shown.now[slot].reason, 0);
}

void hold_show_unstaged(struct kvpull_holds *holds, uint32_t slot)
{
	if (holds->shown.side)
		kvpull_status_set(&holds->shown.now[slot].state,
				  KVPULL_SHOWN_FREE);
}

void hold_show_report(struct kvpull_holds *holds, uint32_t slot)
{
	const struct hold *hold = &holds->holds[slot];

	if (!holds->shown.side)
		return;
	if (!holds->ended_shown) {
		held_clear(holds, slot);
		return;
	}
	holds->ended_shown--;
	kvpull_status_set(&holds->shown.now[slot].state, KVPULL_SHOWN_FREE);
	show(holds, slot, KVPULL_DID_SENT, hold->key, hold->reason);
}

void hold_show_unreported(struct kvpull_holds *holds)
{
	if (!holds->shown.side)
		return;
	for (; holds->ended_shown < holds->state_counts[HOLD_ENDED];
	     holds->ended_shown++) {
		const uint32_t slot = *hold_ended(holds, holds->ended_shown);

		held_clear(holds, slot);
		end_write(holds, slot, holds->holds[slot].reason);
		kvpull_status_set(&holds->shown.now[slot].state,
				  KVPULL_SHOWN_ENDED);
	}
}
