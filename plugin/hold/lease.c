/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The expiry heap. Invariants: a parent's key is not above its children's; a
 * slot has at most one entry; positions[slot] is that entry's index.
 *
 * The timers of a hold, all of them kept by this one entry:
 *   lease     starts at the take, and again at each word on it (a claim, a
 *             release, the death of a rank that owed one); renewed by the signs
 *             of life of the ranks that have claimed it and owe a release, by
 *             no sibling's; moved by the gap when the producer stalled;
 *             fires: expired.
 *   hold_max  starts at the take; never renewed, never moved; fires: expired.
 *   Both are cancelled by the hold's end, which leaves the entry to be dropped
 *   when it comes to the root, or taken over by the slot's next hold.
 * The grace of a death is not here: deaths are few and kept by their instance.
 *
 * Measured against an indexed heap, FIFO lists and a timing wheel: nothing a
 * heartbeat, nothing a release, right in any order (vllm #58222 was a queue
 * whose renewed head hid what was due behind it).
 */
#include "plugin/hold/lease.h"

#define CHILDREN 4u

/*
 * positions is never cleared: a stale one points past the end or at an entry
 * of another slot, and so says no. That makes _clear O(1).
 */
static int has_entry(const struct kvpull_leases *leases, uint32_t slot)
{
	const uint32_t at = leases->positions[slot];

	return at < leases->count && leases->entries[at].slot == slot;
}

static void place(struct kvpull_leases *leases, uint32_t at,
		  struct kvpull_lease entry)
{
	leases->entries[at] = entry;
	leases->positions[entry.slot] = at;
}

static void sift_up(struct kvpull_leases *leases, uint32_t at,
		    struct kvpull_lease entry)
{
	while (at) {
		const uint32_t parent = (at - 1) / CHILDREN;

		if (leases->entries[parent].key_ns <= entry.key_ns)
			break;
		place(leases, at, leases->entries[parent]);
		at = parent;
	}
	place(leases, at, entry);
}

/* Index of the smallest child, or count if there is none. */
static uint32_t least_child(const struct kvpull_leases *leases, uint32_t at)
{
	const uint32_t first = at * CHILDREN + 1;
	uint32_t least = first;
	uint32_t child;

	if (first >= leases->count)
		return leases->count;
	for (child = first + 1;
	     child < first + CHILDREN && child < leases->count; child++)
		if (leases->entries[child].key_ns <
		    leases->entries[least].key_ns)
			least = child;
	return least;
}

static void sift_down(struct kvpull_leases *leases, struct kvpull_lease entry)
{
	uint32_t at = 0;

	for (;;) {
		const uint32_t child = least_child(leases, at);

		if (child == leases->count ||
		    leases->entries[child].key_ns >= entry.key_ns)
			break;
		place(leases, at, leases->entries[child]);
		at = child;
	}
	place(leases, at, entry);
}

void kvpull_leases_init(struct kvpull_leases *leases, uint32_t slot_count,
			struct kvpull_arena *arena)
{
	leases->log = arena->log;
	leases->slot_count = slot_count;
	leases->count = 0;
	leases->entries = kvpull_arena_take_table(arena, slot_count,
						  sizeof(*leases->entries));
	KVPULL_ARENA_TAKE(arena, leases->positions, slot_count);
}

void kvpull_leases_arm(struct kvpull_leases *leases, uint32_t slot,
		       uint64_t key_ns)
{
	const struct kvpull_lease entry = { .key_ns = key_ns, .slot = slot };

	kvpull_check(leases->log, slot < leases->slot_count);
	if (!has_entry(leases, slot)) {
		kvpull_check(leases->log, leases->count < leases->slot_count);
		sift_up(leases, leases->count++, entry);
		return;
	}
	if (key_ns < leases->entries[leases->positions[slot]].key_ns)
		sift_up(leases, leases->positions[slot], entry);
}

uint32_t kvpull_leases_root(const struct kvpull_leases *leases)
{
	kvpull_check(leases->log, leases->count > 0);
	return leases->entries[0].slot;
}

void kvpull_leases_rekey(struct kvpull_leases *leases, uint64_t key_ns)
{
	struct kvpull_lease entry;

	kvpull_check(leases->log, leases->count > 0);
	kvpull_check(leases->log, key_ns >= leases->entries[0].key_ns);
	entry = leases->entries[0];
	entry.key_ns = key_ns;
	sift_down(leases, entry);
}

void kvpull_leases_drop(struct kvpull_leases *leases)
{
	kvpull_check(leases->log, leases->count > 0);
	leases->count--;
	if (leases->count)
		sift_down(leases, leases->entries[leases->count]);
}

void kvpull_leases_clear(struct kvpull_leases *leases)
{
	leases->count = 0;
}
