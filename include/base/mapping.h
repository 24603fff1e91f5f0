/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer's memory that a route has mapped, lent to the engine's thread: what it
 * copies itself need wake no other thread. The owner of the route unmaps it when
 * the peer is lost, unless the engine's thread has pinned it; then after that.
 *
 * field     written by    order    read by       order    pair   why
 * pin       owner, open   release  engine, take  acquire  M0/M1  the other fields come before they may be used
 * pin       engine, give  release  owner         acquire  M2/M3  all copies come before the memory is unmapped
 * others    owner         plain    engine        plain    -      while pinned, ordered by the two pairs above
 *
 * One word says both, so that neither side can miss the other: who closes it
 * sees a pin that was taken before, and no pin is taken after. Neither waits.
 */
#ifndef KVPULL_BASE_MAPPING_H
#define KVPULL_BASE_MAPPING_H

#include <stdatomic.h>

#include "base/transport.h"

#define KVPULL_PIN_OPEN 1u  /* may be pinned */
#define KVPULL_PIN_TAKEN 2u /* is pinned: by one thread, the engine's */

struct kvpull_mapping {
	_Atomic uint32_t pin;
	uint32_t slot_count;
	const struct kvpull_revocation_entry *entries; /* [slot_count] */
	const uint8_t *const *regions; /* [KVPULL_REGIONS_MAX], all mapped */
	/* All of a read, while pinned. 0; KVPULL_EPEER: it is not there. */
	int (*copy)(const struct kvpull_mapping *mapping,
		    const struct kvpull_read *read);
	void *context; /* the route's */
};

/* The owner calls this once all fields are set. */
static inline void kvpull_mapping_open(struct kvpull_mapping *mapping)
{
	/* M0 */
	atomic_store_explicit(&mapping->pin, KVPULL_PIN_OPEN,
			      memory_order_release);
}

/* Owner: the peer is lost; no pin is taken from now on. */
static inline void kvpull_mapping_close(struct kvpull_mapping *mapping)
{
	/* Reads under a pin need no ordering here: is_free() waits for them. */
	(void)atomic_fetch_and_explicit(&mapping->pin, ~KVPULL_PIN_OPEN,
					memory_order_relaxed);
}

/* Owner, once it is closed: 1: nobody reads it any more. */
static inline int kvpull_mapping_is_free(const struct kvpull_mapping *mapping)
{
	/* M3 */
	return !atomic_load_explicit(&mapping->pin, memory_order_acquire);
}

/* Engine: may it be pinned now? A hint; take() decides. */
static inline int kvpull_mapping_is_open(const struct kvpull_mapping *mapping)
{
	return (int)(atomic_load_explicit(&mapping->pin, memory_order_relaxed) &
		     KVPULL_PIN_OPEN);
}

/* The engine's thread: 1: the mapping is pinned until give(). */
static inline int kvpull_mapping_take(struct kvpull_mapping *mapping)
{
	uint32_t expected = KVPULL_PIN_OPEN;

	/* M1 */
	return atomic_compare_exchange_strong_explicit(
		&mapping->pin, &expected, KVPULL_PIN_OPEN | KVPULL_PIN_TAKEN,
		memory_order_acquire, memory_order_relaxed);
}

static inline void kvpull_mapping_give(struct kvpull_mapping *mapping)
{
	/* M2 */
	(void)atomic_fetch_and_explicit(&mapping->pin, ~KVPULL_PIN_TAKEN,
					memory_order_release);
}

#endif /* KVPULL_BASE_MAPPING_H */
