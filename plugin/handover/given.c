/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/handover/given.h"

#include <string.h>

void kvpull_given_init(struct kvpull_given *given,
		       const uint8_t secret[KVPULL_SECRET_BYTES],
		       uint32_t slot_count, struct kvpull_arena *arena)
{
	memcpy(given->secret, secret, sizeof(given->secret));
	given->slot_count = slot_count;
	KVPULL_ARENA_TAKE(arena, given->newest, slot_count);
	KVPULL_ARENA_TAKE(arena, given->told, slot_count / 64 + 1);
}

enum kvpull_given_verdict kvpull_given_take(struct kvpull_given *given,
					    const struct kvpull_give_word *word)
{
	const uint32_t slot = word->slot;

	if (slot >= given->slot_count ||
	    word->tag !=
		    kvpull_ticket_tag(given->secret, slot, word->generation))
		return KVPULL_GIVEN_BAD;
	/* Progress alone writes it. */
	if (word->generation <=
	    atomic_load_explicit(&given->newest[slot], memory_order_relaxed))
		return KVPULL_GIVEN_OLD;
	atomic_store_explicit(&given->newest[slot], word->generation,
			      memory_order_relaxed);
	/* T0: pairs with T1 in kvpull_given_next. */
	atomic_fetch_or_explicit(&given->told[slot / 64],
				 UINT64_C(1) << slot % 64,
				 memory_order_release);
	return KVPULL_GIVEN_NEW;
}

int kvpull_given_tell(struct kvpull_given *given)
{
	/* I0: pairs with I1. A 1 that is found here has not met I1 yet. */
	return !atomic_exchange_explicit(&given->is_told, 1,
					 memory_order_acq_rel);
}

void kvpull_given_begin(struct kvpull_given *given)
{
	/* I1: pairs with I0. A bit that is set later has a record of its own. */
	(void)atomic_exchange_explicit(&given->is_told, 0,
				       memory_order_acq_rel);
}

int kvpull_given_next(struct kvpull_given *given, uint32_t *slot,
		      uint64_t *generation)
{
	uint32_t at;

	for (at = *slot / 64; at <= given->slot_count / 64; at++) {
		/* T1: pairs with T0; the bit is taken below. */
		const uint64_t bits = atomic_load_explicit(
			&given->told[at], memory_order_acquire);

		if (!bits)
			continue;
		*slot = at * 64 + (uint32_t)__builtin_ctzll(bits);
		(void)atomic_fetch_and_explicit(&given->told[at],
						~(bits & (0 - bits)),
						memory_order_acquire);
		*generation = atomic_load_explicit(&given->newest[*slot],
						   memory_order_relaxed);
		return 1;
	}
	return 0;
}
