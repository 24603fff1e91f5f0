/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that look at the hold table and change nothing: a part of hold.h. */
#ifndef KVPULL_PLUGIN_HOLD_VIEW_H
#define KVPULL_PLUGIN_HOLD_VIEW_H

#include "plugin/counters/counters.h"

struct kvpull_holds; /* hold_state.h */

/* The generation of a key's hold; 0: there is none. */
uint64_t kvpull_holds_generation(const struct kvpull_holds *holds,
				 uint64_t key);

/* 1: some hold has a claim of this instance, of whichever rank. */
int kvpull_holds_is_claimed(const struct kvpull_holds *holds,
			    uint32_t instance);

/*
 * Hints that a note for this slot comes soon; any slot. First its hold, then,
 * when that is in the cache, what the note would touch.
 */
void kvpull_holds_prefetch(const struct kvpull_holds *holds, uint32_t slot);
void kvpull_holds_prefetch_rest(const struct kvpull_holds *holds,
				uint32_t slot);

void kvpull_holds_counts(const struct kvpull_holds *holds,
			 struct kvpull_hold_counts *counts);

/* Largest generation ever seen: rank_info's floor. */
uint64_t kvpull_holds_generation_max(const struct kvpull_holds *holds);

/* A line for logs: the claimants of a hold and their last signs of life. */
void kvpull_holds_describe(const struct kvpull_holds *holds, uint32_t slot,
			   uint64_t now_ns, char *text, size_t capacity);

#endif /* KVPULL_PLUGIN_HOLD_VIEW_H */
