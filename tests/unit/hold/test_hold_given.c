/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds whose ticket was given back by a consumer that is not let in: semantics
 * B.3 and D.6. The mark ends a hold when no rank that claimed it owes a word.
 */
#include "tests/unit/hold/world.h"

#include "plugin/hold/hold_state.h"
#include "tests/lib/fence.h"

uint32_t world_has_marks = 1;

static void give(struct fixture *f, uint32_t slot, uint64_t generation)
{
	kvpull_holds_give(f->holds, slot, generation);
}

/* Say what the next poll makes of the marks. */
static void expect_kept(struct fixture *f)
{
	nothing_at(f, f->now_ns);
}

static void expect_given_back(struct fixture *f, uint32_t slot,
			      uint64_t generation)
{
	report_at(f, f->now_ns, slot, generation, KVPULL_END_GIVEN_BACK);
}

TEST(hold_given_back_ends_where_nobody_claimed_it)
{
	take(f, 0, 1);
	take(f, 1, 1);
	expect_kept(f);
	give(f, 0, 1);
	expect_given_back(f, 0, 1);
	expect_nothing(f);
	assert_int_equal(counts_of(f).given_back, 1);
	assert_int_equal(counts_of(f).live, 1);
	assert_int_equal(counts_of(f).revoked, 0);
}

/* A half with more slots names one; memory behind the table looks like a hold. */
TEST(mark_beyond_the_table_changes_nothing)
{
	struct hold *beyond = &f->holds->holds[SLOTS];
	struct hold before;
	struct hold after;

	fence_open(beyond, sizeof(*beyond));
	before = *beyond;
	beyond->state = HOLD_HELD;
	beyond->generation = 5;
	beyond->is_given = 0;
	give(f, SLOTS, 5);
	after = *beyond;
	*beyond = before;
	assert_int_equal(after.is_given, 0);
}

TEST(mark_of_another_generation_or_slot_ends_nothing)
{
	take(f, 0, 5);
	give(f, 0, 4);
	give(f, 0, 6);
	give(f, 1, 5);
	give(f, SLOTS, 5);
	expect_kept(f);
}

PAIR_TEST(hold_given_back_waits_for_each_rank_that_claimed_it)
{
	take_claimed(f, r0, 0, 1);
	give(f, 0, 1);
	expect_kept(f);
	claim(f, r1, 0, 1);
	release(f, r0, 0, 1);
	expect_kept(f);
	release(f, r1, 0, 1);
	poll_at(f, f->now_ns);
	/* All ranks released: that comes first. */
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
}

PAIR_TEST(rank_that_never_claimed_keeps_no_hold_that_was_given_back)
{
	take_claimed(f, r0, 0, 1);
	give(f, 0, 1);
	release(f, r0, 0, 1);
	expect_given_back(f, 0, 1);
}

/* Judged after the rings were drained: one poll brings both words. */
TEST(claim_drained_with_the_last_release_counts)
{
	const struct who a = rank_of(f, 1, 0, 2);
	const struct who b = rank_of(f, 2, 0, 1);

	take_claimed(f, a, 0, 1);
	give(f, 0, 1);
	release(f, a, 0, 1);
	claim(f, b, 0, 1);
	expect_kept(f);
	release(f, b, 0, 1);
	expect_given_back(f, 0, 1);
}

PAIR_TEST(death_of_the_rank_that_owed_a_word_ends_a_hold_that_was_given_back)
{
	take_claimed(f, r0, 0, 1);
	give(f, 0, 1);
	expect_kept(f);
	leave(f, r0);
	expect_given_back(f, 0, 1);
}

TEST(mark_from_before_the_hold_ends_it_when_it_is_taken)
{
	f->given[2] = 7;
	take(f, 2, 7);
	expect_given_back(f, 2, 7);
	/* The mark is of one generation. */
	take(f, 2, 8);
	expect_kept(f);
}

TEST(early_claim_keeps_a_hold_that_was_given_back_before_it_was_taken)
{
	const struct who r0 = rank_of(f, 1, 0, 2);

	f->given[2] = 7;
	claim(f, r0, 2, 7);
	take(f, 2, 7);
	expect_kept(f);
	release(f, r0, 2, 7);
	expect_given_back(f, 2, 7);
}

ONE_TEST(claim_after_the_end_is_unknown)
{
	take(f, 0, 1);
	give(f, 0, 1);
	poll_at(f, f->now_ns);
	claim(f, a, 0, 1);
	assert_int_equal(counts_of(f).unknown, 1);
	expect_report(f, 0, 1, KVPULL_END_GIVEN_BACK);
	assert_true(is_revoked(f, 0, 1));
}

TEST(sweep_is_due_while_a_mark_is_to_be_judged)
{
	take(f, 0, 1);
	poll_at(f, f->now_ns);
	assert_true(kvpull_holds_deadline(f->holds) > f->now_ns);
	give(f, 0, 1);
	assert_int_equal(kvpull_holds_deadline(f->holds), f->now_ns);
	expect_given_back(f, 0, 1);
	expect_fresh(f);
}
