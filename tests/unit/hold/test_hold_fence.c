/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A.2: write, fence, report, in this order, whatever ends a hold. The table is
 * compiled here once more, with the hook that tells of writes and fences: the
 * release build's own has none.
 */
#ifndef KVPULL_DEBUG
#define KVPULL_DEBUG 1
#endif
/* NOLINTNEXTLINE(bugprone-suspicious-include): with the hook, see above. */
#include "plugin/hold/hold.c"

#include "tests/unit/hold/world.h"

static uint32_t writes;   /* all of them */
static uint32_t unfenced; /* since the last fence */
static uint32_t fences;

static void look(enum kvpull_revocation_act act)
{
	if (act == KVPULL_REVOCATION_FENCED) {
		fences++;
		unfenced = 0;
	} else {
		writes++;
		unfenced++;
	}
}

static int setup_hook(void **state)
{
	writes = unfenced = fences = 0;
	kvpull_revocation_hook = look;
	return setup(state);
}

static int teardown_hook(void **state)
{
	kvpull_revocation_hook = NULL;
	return teardown(state);
}

#define FENCE_TEST(name)                                                       \
	UNIT_TEST_OF(name, struct fixture, f, setup_hook, teardown_hook)
#define FENCE_ONE_TEST(name) ONE_TEST_OF(FENCE_TEST, name)

/* Reports as a poll does after its sweep: no report may precede the fence. */
static void expect_fenced_report(struct fixture *f, uint32_t slot,
				 int32_t reason)
{
	const uint32_t before = fences;
	struct kvpull_hold_end end;

	assert_int_equal(unfenced, 1);
	assert_int_equal(kvpull_holds_report(f->holds, &end, 1), 0);
	kvpull_holds_publish(f->holds);
	assert_int_equal(fences, before + 1);
	assert_int_equal(unfenced, 0);
	assert_int_equal(kvpull_holds_report(f->holds, &end, 1), 1);
	assert_int_equal(end.slot, slot);
	assert_int_equal(end.reason, reason);
	assert_int_equal(unfenced, 0);
}

FENCE_ONE_TEST(release_is_fenced_before_its_report)
{
	take(f, 2, 1);
	release(f, a, 2, 1);
	assert_int_equal(writes, 1);
	expect_fenced_report(f, 2, KVPULL_END_RELEASED);
}

FENCE_ONE_TEST(early_release_is_fenced_before_its_report)
{
	release(f, a, 2, 1);
	assert_int_equal(writes, 0);
	take(f, 2, 1);
	expect_fenced_report(f, 2, KVPULL_END_RELEASED);
}

FENCE_TEST(expiry_is_fenced_before_its_report)
{
	take(f, 2, 1);
	while (f->now_ns < START + LEASE) {
		f->now_ns += LEASE / 3;
		tick(f);
	}
	(void)kvpull_holds_sweep(f->holds, f->now_ns);
	expect_fenced_report(f, 2, KVPULL_END_EXPIRED);
}

FENCE_TEST(end_is_fenced_before_its_report)
{
	take(f, 2, 1);
	end_hold(f, 2, 1, 102, KVPULL_END_RANK);
	expect_fenced_report(f, 2, KVPULL_END_RANK);
}

/* A.9: its caller may overwrite the blocks when it returns. */
FENCE_ONE_TEST(revoke_all_fences_before_it_returns)
{
	take(f, 2, 1);
	claim(f, a, 3, 1); /* staged: revoked as well */
	assert_int_equal(kvpull_holds_revoke_all(f->holds, KVPULL_END_REVOKED),
			 1);
	assert_int_equal(writes, 2);
	assert_int_equal(unfenced, 0);
	assert_int_equal(fences, 1);
}

FENCE_TEST(revoke_full_fences_before_it_returns)
{
	take(f, 2, 1);
	assert_int_equal(kvpull_holds_revoke_full(f->holds, KVPULL_END_REVOKED),
			 1);
	assert_int_equal(writes, 1 + SLOTS);
	assert_int_equal(unfenced, 0);
}

/* No report follows: the step that begins the half may give the blocks away. */
FENCE_TEST(begin_fences_before_it_returns)
{
	kvpull_holds_begin(f->holds, 40);
	assert_int_equal(writes, SLOTS);
	assert_int_equal(unfenced, 0);
}

FENCE_TEST(one_fence_serves_all_ends_of_a_poll)
{
	struct kvpull_hold_end ends[SLOTS];
	uint32_t slot;

	for (slot = 0; slot < SLOTS; slot++)
		take(f, slot, 1);
	for (slot = 0; slot < SLOTS; slot++)
		end_hold(f, slot, 1, 1, KVPULL_END_ABORTED);
	assert_int_equal(unfenced, SLOTS);
	kvpull_holds_publish(f->holds);
	assert_int_equal(fences, 1);
	assert_int_equal(kvpull_holds_report(f->holds, ends, SLOTS), SLOTS);
	kvpull_holds_publish(f->holds);
	assert_int_equal(fences, 1); /* and a poll without an end costs none */
}
