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

UNIT_TEST_WITH(release_is_fenced_before_its_report, setup_hook, teardown_hook)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 1, 0, 1), 0 };

	take(f, 2, 1);
	release(f, a, 2, 1);
	assert_int_equal(writes, 1);
	expect_fenced_report(f, 2, KVPULL_END_RELEASED);
}

UNIT_TEST_WITH(early_release_is_fenced_before_its_report, setup_hook,
	       teardown_hook)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 1, 0, 1), 0 };

	release(f, a, 2, 1);
	assert_int_equal(writes, 0);
	take(f, 2, 1);
	expect_fenced_report(f, 2, KVPULL_END_RELEASED);
}

UNIT_TEST_WITH(expiry_is_fenced_before_its_report, setup_hook, teardown_hook)
{
	struct fixture *f = fixture_of(state);

	take(f, 2, 1);
	while (f->now_ns < START + LEASE) {
		f->now_ns += LEASE / 3;
		kvpull_holds_tick(f->holds, f->now_ns, KVPULL_NO_THREAD);
	}
	(void)kvpull_holds_sweep(f->holds, f->now_ns);
	expect_fenced_report(f, 2, KVPULL_END_EXPIRED);
}

UNIT_TEST_WITH(end_is_fenced_before_its_report, setup_hook, teardown_hook)
{
	struct fixture *f = fixture_of(state);

	take(f, 2, 1);
	assert_int_equal(kvpull_holds_end(f->holds, 2, 1, 102, KVPULL_END_RANK),
			 0);
	expect_fenced_report(f, 2, KVPULL_END_RANK);
}

/* A.9: its caller may overwrite the blocks when it returns. */
UNIT_TEST_WITH(revoke_all_fences_before_it_returns, setup_hook, teardown_hook)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 1, 0, 1), 0 };

	take(f, 2, 1);
	claim(f, a, 3, 1); /* staged: revoked as well */
	assert_int_equal(kvpull_holds_revoke_all(f->holds, KVPULL_END_REVOKED),
			 1);
	assert_int_equal(writes, 2);
	assert_int_equal(unfenced, 0);
	assert_int_equal(fences, 1);
}

UNIT_TEST_WITH(revoke_full_fences_before_it_returns, setup_hook, teardown_hook)
{
	struct fixture *f = fixture_of(state);

	take(f, 2, 1);
	assert_int_equal(kvpull_holds_revoke_full(f->holds, KVPULL_END_REVOKED),
			 1);
	assert_int_equal(writes, 1 + SLOTS);
	assert_int_equal(unfenced, 0);
}

/* No report follows: the step that begins the half may give the blocks away. */
UNIT_TEST_WITH(begin_fences_before_it_returns, setup_hook, teardown_hook)
{
	struct fixture *f = fixture_of(state);

	kvpull_holds_begin(f->holds, 40);
	assert_int_equal(writes, SLOTS);
	assert_int_equal(unfenced, 0);
}

UNIT_TEST_WITH(one_fence_serves_all_ends_of_a_poll, setup_hook, teardown_hook)
{
	struct fixture *f = fixture_of(state);
	struct kvpull_hold_end ends[SLOTS];
	uint32_t slot;

	for (slot = 0; slot < SLOTS; slot++)
		take(f, slot, 1);
	for (slot = 0; slot < SLOTS; slot++)
		assert_int_equal(kvpull_holds_end(f->holds, slot, 1, 1,
						  KVPULL_END_ABORTED),
				 0);
	assert_int_equal(unfenced, SLOTS);
	kvpull_holds_publish(f->holds);
	assert_int_equal(fences, 1);
	assert_int_equal(kvpull_holds_report(f->holds, ends, SLOTS), SLOTS);
	kvpull_holds_publish(f->holds);
	assert_int_equal(fences, 1); /* and a poll without an end costs none */
}

#define TEST_HOOK(name) UNIT_TEST_WITH(name, setup_hook, teardown_hook)
