/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the hold table shows of itself in the status file: a row a slot, and an
 * event a transition. Stores into memory that it was given, or where nobody
 * looks into its own: each transition does the same.
 */
#include "plugin/hold/hold_state.h"

static struct kvpull_status_side *side_make(struct kvpull_arena *arena)
{
	struct kvpull_status_side *side =
		(struct kvpull_status_side *)kvpull_arena_take(arena, 1,
							       sizeof(*side));

	if (!side)
		return NULL;
	side->thread = (struct kvpull_status_thread *)kvpull_arena_take(
		arena, 1, sizeof(*side->thread));
	side->events = (struct kvpull_status_event *)kvpull_arena_take(
		arena, KVPULL_STATUS_EVENTS, sizeof(*side->events));
	return side->thread && side->events ? side : NULL;
}

int hold_show_open(struct kvpull_holds *holds, struct kvpull_arena *arena)
{
	if (!holds->shown)
		holds->shown = (struct kvpull_status_hold *)kvpull_arena_take(
			arena, holds->slot_count, sizeof(*holds->shown));
	if (!holds->side)
		holds->side = side_make(arena);
	return holds->shown && holds->side ? 0 : KVPULL_ENOMEM;
}

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

	kvpull_status_note(holds->side, &note);
}

void hold_show_claim(struct kvpull_holds *holds, const struct hold *hold,
		     uint32_t instance, uint32_t rank, uint32_t kind)
{
	const uint32_t slot = (uint32_t)(hold - holds->holds);

	kvpull_status_hold_claimed(&holds->shown[slot], instance + 1,
				   holds->now_ns);
	show(holds, slot,
	     kind == KVPULL_NOTE_CLAIM ? KVPULL_DID_CLAIM : KVPULL_DID_RELEASE,
	     holds->instances.all[instance].id, (int32_t)rank);
}

void hold_show_take(struct kvpull_holds *holds, uint32_t slot)
{
	const struct hold *hold = &holds->holds[slot];
	struct kvpull_status_hold *row = &holds->shown[slot];

	kvpull_status_set(&row->generation, hold->generation);
	kvpull_status_set(&row->key, hold->key);
	kvpull_status_set(&row->taken_ns, hold->taken_ns);
	kvpull_status_set(&row->word_ns, hold->taken_ns);
	/* Blocks and label come behind it; who claimed it early stays. */
	if (!hold->claim_count)
		kvpull_status_set(&row->state, 0);
	kvpull_status_hold_state(row, KVPULL_SHOWN_HELD, 0);
	if (slot >= kvpull_status_get(&holds->side->thread->holds_high))
		kvpull_status_set(&holds->side->thread->holds_high, slot + 1);
	show(holds, slot, KVPULL_DID_TAKE, hold->key, 0);
}

void hold_show_end(struct kvpull_holds *holds, uint32_t slot, int32_t reason)
{
	const struct hold *hold = &holds->holds[slot];
	struct kvpull_status_hold *row = &holds->shown[slot];
	const uint32_t last = hold->claim_count ? hold->claim_count - 1u : 0;

	kvpull_status_hold_state(row, KVPULL_SHOWN_ENDED, reason);
	kvpull_status_set(&row->word_ns, holds->now_ns);
	kvpull_status_took(holds->side, KVPULL_TIMES_HOLD,
			   holds->now_ns - hold->taken_ns, 1);
	show(holds, slot, KVPULL_DID_END,
	     hold->claim_count ?
		     holds->instances.all[hold->claims[last].instance].id :
		     0,
	     reason);
}

void hold_show_staged(struct kvpull_holds *holds, const struct hold *hold)
{
	kvpull_status_hold_state(&holds->shown[hold - holds->holds],
				 KVPULL_SHOWN_STAGED, 0);
}

void hold_show_report(struct kvpull_holds *holds, uint32_t slot)
{
	const struct hold *hold = &holds->holds[slot];

	kvpull_status_hold_state(&holds->shown[slot], KVPULL_SHOWN_FREE,
				 hold->reason);
	show(holds, slot, KVPULL_DID_SENT, hold->key, hold->reason);
}
