/* SPDX-License-Identifier: Apache-2.0 */
/* The judge of all reads, over every order of its numbers. */
#include "kvpull/connector.h"
#include "plugin/reads/judge.h"
#include "tests/lib/unit.h"

#define OWNER UINT64_C(5)
#define TOP UINT64_MAX

static int judge(enum kvpull_guard_kind kind, uint64_t incarnation,
		 uint64_t revoked, uint64_t ready, uint64_t generation)
{
	const struct kvpull_revocation_value guard = {
		.incarnation = incarnation,
		.revoked = revoked,
		.ready = ready,
	};

	return kvpull_guard_judge(kind, &guard, OWNER, generation);
}

UNIT_TEST(a_hold_is_believed_until_its_generation_is_revoked)
{
	assert_int_equal(judge(KVPULL_GUARD_HOLD, OWNER, 3, 0, 4), 0);
	/* Generations may begin anywhere above the last one. */
	assert_int_equal(judge(KVPULL_GUARD_HOLD, OWNER, 3, 0, 9), 0);
	assert_int_equal(judge(KVPULL_GUARD_HOLD, OWNER, 0, 0, TOP), 0);
	assert_int_equal(judge(KVPULL_GUARD_HOLD, OWNER, 4, 4, 4),
			 KVPULL_EEXPIRED);
	assert_int_equal(judge(KVPULL_GUARD_HOLD, OWNER, 5, 9, 4),
			 KVPULL_EEXPIRED);
	assert_int_equal(judge(KVPULL_GUARD_HOLD, OWNER, TOP, 0, TOP),
			 KVPULL_EEXPIRED);
}

UNIT_TEST(a_hold_that_must_be_written_is_waited_for)
{
	assert_int_equal(judge(KVPULL_GUARD_WRITTEN, OWNER, 3, 3, 4),
			 KVPULL_EAGAIN);
	assert_int_equal(judge(KVPULL_GUARD_WRITTEN, OWNER, 3, 4, 4), 0);
	assert_int_equal(judge(KVPULL_GUARD_WRITTEN, OWNER, 3, 9, 4), 0);
	/* The end of a hold is final, written or not. */
	assert_int_equal(judge(KVPULL_GUARD_WRITTEN, OWNER, 4, 3, 4),
			 KVPULL_EEXPIRED);
	assert_int_equal(judge(KVPULL_GUARD_WRITTEN, OWNER, 4, 4, 4),
			 KVPULL_EEXPIRED);
}

UNIT_TEST(a_chunk_is_believed_under_its_own_generation_alone)
{
	assert_int_equal(judge(KVPULL_GUARD_CHUNK, OWNER, 3, 0, 4), 0);
	assert_int_equal(judge(KVPULL_GUARD_CHUNK, OWNER, 4, 0, 4),
			 KVPULL_ESTALE);
	assert_int_equal(judge(KVPULL_GUARD_CHUNK, OWNER, 3, 0, 3),
			 KVPULL_ESTALE);
	/* A generation that has not begun: the guard is older than the entry. */
	assert_int_equal(judge(KVPULL_GUARD_CHUNK, OWNER, 3, 0, 5),
			 KVPULL_ESTALE);
	assert_int_equal(judge(KVPULL_GUARD_CHUNK, OWNER, TOP, 0, TOP),
			 KVPULL_ESTALE);
}

UNIT_TEST(a_guard_counts_with_its_incarnation)
{
	assert_int_equal(judge(KVPULL_GUARD_HOLD, OWNER + 1, 3, 9, 4),
			 KVPULL_EEXPIRED);
	assert_int_equal(judge(KVPULL_GUARD_WRITTEN, OWNER + 1, 3, 9, 4),
			 KVPULL_EEXPIRED);
	/* A worker that was closed clears it. */
	assert_int_equal(judge(KVPULL_GUARD_HOLD, 0, 0, 9, 4), KVPULL_EEXPIRED);
	assert_int_equal(judge(KVPULL_GUARD_CHUNK, OWNER + 1, 3, 9, 4),
			 KVPULL_ESTALE);
}
