/* SPDX-License-Identifier: Apache-2.0 */
/* The judge of all reads, over every order of its numbers. */
#include "kvpull/connector.h"
#include "plugin/reads/judge.h"
#include "tests/lib/unit.h"

#define OWNER UINT64_C(5)
#define TOP UINT64_MAX

/* incarnation, revoked, ready of an entry; a generation; what is judged of it */
#define JUDGED(kind, incarnation, revoked, ready, generation, code)            \
	assert_int_equal(                                                      \
		kvpull_guard_judge(kind,                                       \
				   &(const struct kvpull_revocation_value){    \
					   incarnation, revoked, ready },      \
				   OWNER, generation),                         \
		code)
#define HOLD(...) JUDGED(KVPULL_GUARD_HOLD, __VA_ARGS__)
#define WRITTEN(...) JUDGED(KVPULL_GUARD_WRITTEN, __VA_ARGS__)
#define CHUNK(...) JUDGED(KVPULL_GUARD_CHUNK, __VA_ARGS__)

UNIT_TEST(a_hold_is_believed_until_its_generation_is_revoked)
{
	HOLD(OWNER, 3, 0, 4, 0);
	/* Generations may begin anywhere above the last one. */
	HOLD(OWNER, 3, 0, 9, 0);
	HOLD(OWNER, 0, 0, TOP, 0);
	HOLD(OWNER, 4, 4, 4, KVPULL_EEXPIRED);
	HOLD(OWNER, 5, 9, 4, KVPULL_EEXPIRED);
	HOLD(OWNER, TOP, 0, TOP, KVPULL_EEXPIRED);
}

UNIT_TEST(a_hold_that_must_be_written_is_waited_for)
{
	WRITTEN(OWNER, 3, 3, 4, KVPULL_EAGAIN);
	WRITTEN(OWNER, 3, 4, 4, 0);
	WRITTEN(OWNER, 3, 9, 4, 0);
	/* The end of a hold is final, written or not. */
	WRITTEN(OWNER, 4, 3, 4, KVPULL_EEXPIRED);
	WRITTEN(OWNER, 4, 4, 4, KVPULL_EEXPIRED);
}

UNIT_TEST(a_chunk_is_believed_under_its_own_generation_alone)
{
	CHUNK(OWNER, 3, 0, 4, 0);
	CHUNK(OWNER, 4, 0, 4, KVPULL_ESTALE);
	CHUNK(OWNER, 3, 0, 3, KVPULL_ESTALE);
	/* A generation that has not begun: the guard is older than the entry. */
	CHUNK(OWNER, 3, 0, 5, KVPULL_ESTALE);
	CHUNK(OWNER, TOP, 0, TOP, KVPULL_ESTALE);
}

UNIT_TEST(a_guard_counts_with_its_incarnation)
{
	HOLD(OWNER + 1, 3, 9, 4, KVPULL_EEXPIRED);
	WRITTEN(OWNER + 1, 3, 9, 4, KVPULL_EEXPIRED);
	/* A worker that was closed clears it. */
	HOLD(0, 0, 9, 4, KVPULL_EEXPIRED);
	CHUNK(OWNER + 1, 3, 9, 4, KVPULL_ESTALE);
}
