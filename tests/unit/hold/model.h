/* SPDX-License-Identifier: Apache-2.0 */
/* A hold of the naive model: who claimed it, and how long its lease lasts. */
#ifndef KVPULL_TESTS_UNIT_HOLD_MODEL
#define KVPULL_TESTS_UNIT_HOLD_MODEL

#include "tests/unit/hold/lives.h"
#include "tests/unit/hold/world.h"

struct model_claim {
	struct life *life;
	int released[RANKS];
	int claimed[RANKS];
};

enum model_state {
	M_FREE,
	M_STAGED,
	M_HELD,
	M_ENDED
};

struct model_hold {
	enum model_state state;
	uint64_t last; /* generation told */
	uint64_t staged;
	uint64_t revoked;
	uint64_t taken_ns;
	uint64_t leased_ns;
	uint64_t mark; /* newest generation given back */
	int32_t reason;
	uint32_t is_given;
	uint32_t claim_count;
	struct model_claim claims[4];
};

/* Has the rank itself claimed, and does it owe a word? */
static inline int claims(const struct model_claim *claim, uint32_t rank)
{
	return claim->claimed[rank] && !claim->released[rank];
}

/* A lease is renewed by ranks that claimed and owe a word alone; *owed: there is one. */
static inline uint64_t model_lease(const struct model_hold *h, int *owed)
{
	uint64_t heard_ns = h->leased_ns;
	uint32_t c, r;

	for (c = 0; c < h->claim_count; c++)
		for (r = 0; r < RANKS; r++) {
			const struct model_claim *claim = &h->claims[c];

			if (!claims(claim, r))
				continue;
			*owed = 1;
			if (claim->life->heard_ns[r] > heard_ns)
				heard_ns = claim->life->heard_ns[r];
		}
	return heard_ns + LEASE;
}

#endif /* KVPULL_TESTS_UNIT_HOLD_MODEL */
