/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The expiry heap: which hold may be due next. Pure: no clock, no policy.
 *
 * At most one entry a slot; its key is only a lower bound of the slot's
 * deadline, so whatever prolongs or ends a hold never touches the heap. Who
 * finds a due root asks the hold: dead is dropped, later is re-keyed, due is
 * expired and dropped.
 */
#ifndef KVPULL_PLUGIN_LEASE_H
#define KVPULL_PLUGIN_LEASE_H

#include "base/arena.h"

struct kvpull_lease {
	uint64_t key_ns;
	uint32_t slot;
	uint32_t reserved;
};

struct kvpull_leases {
	const struct kvpull_log *log;
	struct kvpull_lease *entries; /* [slot_count] heap of four children */
	uint32_t *positions; /* [slot_count]; see has_entry in lease.c */
	uint32_t slot_count;
	uint32_t count;
};

/* kvpull_arena_ok() says whether there was memory. */
void kvpull_leases_init(struct kvpull_leases *leases, uint32_t slot_count,
			struct kvpull_arena *arena);

/* The slot is not due before key_ns. An entry it has keeps a lower key. */
void kvpull_leases_arm(struct kvpull_leases *leases, uint32_t slot,
		       uint64_t key_ns);

/* Returns the key of the root; UINT64_MAX: there is no entry. */
static inline uint64_t kvpull_leases_next(const struct kvpull_leases *leases)
{
	return leases->count ? leases->entries[0].key_ns : UINT64_MAX;
}

/* Returns the slot of the root; there must be an entry. */
uint32_t kvpull_leases_root(const struct kvpull_leases *leases);

/* The root is not due before key_ns, which is not below its key. */
void kvpull_leases_rekey(struct kvpull_leases *leases, uint64_t key_ns);

/* Removes the root. */
void kvpull_leases_drop(struct kvpull_leases *leases);

/* Removes all entries, in O(1). */
void kvpull_leases_clear(struct kvpull_leases *leases);

#endif /* KVPULL_PLUGIN_LEASE_H */
