/* SPDX-License-Identifier: Apache-2.0 */
/* Read-only views of the hold table: counters, a line for logs. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "plugin/hold/hold_state.h"
#include "plugin/hold/hold_view.h"

void kvpull_holds_counts(const struct kvpull_holds *holds,
			 struct kvpull_hold_counts *counts)
{
	*counts = holds->counts;
	counts->live = holds->state_counts[HOLD_HELD];
	counts->staged = holds->state_counts[HOLD_STAGED];
	counts->ended = holds->state_counts[HOLD_ENDED];
}

uint64_t kvpull_holds_generation_max(const struct kvpull_holds *holds)
{
	return holds->generation_max;
}

int kvpull_holds_is_claimed(const struct kvpull_holds *holds, uint32_t instance)
{
	return holds->instances.all[instance].refs != 0;
}

/* Lines of the keys' map that a removal usually touches. */
#define KEY_LINES 3u
#define KEYS_A_LINE (KVPULL_CACHE_LINE / sizeof(struct kvpull_map_entry))

void kvpull_holds_prefetch(const struct kvpull_holds *holds, uint32_t slot)
{
	if (slot >= holds->slot_count)
		return;
	__builtin_prefetch(&holds->holds[slot], 1);
	__builtin_prefetch((const void *)&holds->entries[slot], 1);
}

void kvpull_holds_prefetch_rest(const struct kvpull_holds *holds, uint32_t slot)
{
	const struct kvpull_map *keys = &holds->keys;
	const struct hold *hold;
	uint32_t home;
	uint32_t i;

	if (slot >= holds->slot_count)
		return;
	hold = &holds->holds[slot];
	if (hold->state != HOLD_HELD)
		return;
	/*
	 * The hold's first word will be a claim, which is shown and removes
	 * nothing.
	 */
	if (!hold->claim_count) {
		if (holds->shown.side)
			__builtin_prefetch(
				(const void *)&holds->shown.now[slot], 1);
		return;
	}
	home = kvpull_map_home(keys, hold->key);
	/* A removal looks at all that follow, up to an empty place. */
	for (i = 0; i < KEY_LINES; i++)
		__builtin_prefetch(
			&keys->entries[(home + i * KEYS_A_LINE) & keys->mask],
			1);
}

uint64_t hold_heard_ns(const struct kvpull_holds *holds,
		       const struct hold *hold, uint32_t at, uint64_t ranks)
{
	const struct kvpull_instance *instance =
		&holds->instances.all[hold->claims[at].instance];
	uint64_t owing = hold_owing(hold, at) & ranks;
	uint64_t heard_ns = 0;

	for (; owing; owing &= owing - 1) {
		const uint64_t rank_ns =
			instance->heard_ns[__builtin_ctzll(owing)];

		if (rank_ns > heard_ns)
			heard_ns = rank_ns;
	}
	return heard_ns;
}

/*
 * A rank that has claimed a hold and owes its last word renews it; no sibling
 * of it does. A rank that never claimed may never have been told (its worker
 * was restarted, or had no room for the ticket), and nobody can say so: a lease
 * from the last word on is what a hold waits for it.
 * Words, signs of life and missed time can only make this later.
 */
uint64_t hold_deadline_ns(const struct kvpull_holds *holds,
			  const struct hold *hold, uint64_t now_ns)
{
	uint64_t heard_ns = hold->word_ns;
	uint64_t lease_end_ns, hold_end_ns;
	uint32_t i;

	for (i = 0; i < hold->claim_count; i++) {
		const uint64_t claim_ns =
			hold_heard_ns(holds, hold, i, UINT64_MAX);

		if (claim_ns > heard_ns)
			heard_ns = claim_ns;
	}
	lease_end_ns = hold_add(hold_add(heard_ns, holds->lease_ns),
				holds->missed.shift_ns);
	lease_end_ns =
		kvpull_missed_judged_ns(&holds->missed, lease_end_ns, now_ns);
	hold_end_ns = hold_add(hold->taken_ns, holds->hold_max_ns);
	return lease_end_ns < hold_end_ns ? lease_end_ns : hold_end_ns;
}

static uint64_t ms_since(uint64_t then_ns, uint64_t now_ns)
{
	return now_ns > then_ns ? (now_ns - then_ns) / KVPULL_NS_PER_MS : 0;
}

/* Last sign of life of any rank, also of one that owes nothing. */
static uint64_t last_heard_ns(const struct kvpull_instance *instance)
{
	uint64_t last_ns = 0;
	uint32_t rank;

	for (rank = 0; rank < instance->rank_count; rank++)
		if (instance->heard_ns[rank] > last_ns)
			last_ns = instance->heard_ns[rank];
	return last_ns;
}

void kvpull_holds_describe(const struct kvpull_holds *holds, uint32_t slot,
			   uint64_t now_ns, char *text, size_t capacity)
{
	static const char *const names[HOLD_STATES] = { "free", "staged",
							"held", "ended" };
	const struct hold *hold;
	size_t used;
	uint32_t i;

	if (!capacity)
		return;
	if (slot >= holds->slot_count) {
		(void)snprintf(text, capacity, "slot %" PRIu32 " unknown",
			       slot);
		return;
	}
	hold = &holds->holds[slot];
	(void)snprintf(
		text, capacity,
		"slot %" PRIu32 " generation %" PRIu64 " key %" PRIu64
		" %s %" PRIu64 " ms, claimed by %s",
		slot,
		hold->state == HOLD_STAGED ? hold->staged : hold->generation,
		hold->key, names[hold->state],
		hold->state == HOLD_HELD ? ms_since(hold->taken_ns, now_ns) : 0,
		hold->claim_count ? "" : "nobody");
	for (i = 0; i < hold->claim_count; i++) {
		const struct claim *claim = &hold->claims[i];
		const struct kvpull_instance *instance =
			&holds->instances.all[claim->instance];

		used = strlen(text);
		(void)snprintf(text + used, capacity - used,
			       "%sinstance %#" PRIx64 " released %d of %" PRIu32
			       " owing %d heard %" PRIu64 " ms ago",
			       i ? ", " : "", instance->id,
			       __builtin_popcountll(claim->released),
			       instance->rank_count,
			       __builtin_popcountll(hold_owing(hold, i)),
			       ms_since(last_heard_ns(instance),
					hold_lease_clock(holds, now_ns)));
	}
}

uint64_t kvpull_holds_generation(const struct kvpull_holds *holds, uint64_t key)
{
	const uint32_t slot = kvpull_map_get(&holds->keys, key);

	return slot == KVPULL_NONE ? 0 : holds->holds[slot].generation;
}
