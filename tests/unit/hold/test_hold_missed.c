/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time that a producer missed (semantics B.4), with and without a progress
 * thread, at steady and at single gaps between polls.
 */
#include "plugin/hold/missed.h"
#include "tests/unit/hold/world.h"

#define TENTH (LEASE / 10)

/* One poll, whenever the last one was. */
static void poll_beside(struct fixture *f, uint64_t now_ns, uint64_t stopped_ns)
{
	f->now_ns = now_ns;
	kvpull_holds_tick(f->holds, now_ns, stopped_ns);
	while (kvpull_holds_sweep(f->holds, now_ns))
		;
	kvpull_holds_publish(f->holds);
}

static void poll_alone(struct fixture *f, uint64_t now_ns)
{
	poll_beside(f, now_ns, KVPULL_NO_THREAD);
}

/* The hold 1 of slot 0 expires at this time, at the poll after the last look. */
static void expires_beside(struct fixture *f, uint64_t now_ns,
			   uint64_t stopped_ns)
{
	poll_beside(f, now_ns - 1, stopped_ns);
	expect_nothing(f);
	poll_beside(f, now_ns, stopped_ns);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

/* A hold that is polled at this pace ends at the first poll at or after due. */
static void expect_end_at_pace(struct fixture *f, uint64_t pace_ns,
			       uint64_t stopped_ns, uint64_t due_ns)
{
	const uint64_t begin_ns = f->now_ns;
	const uint64_t generation = counts_of(f).taken + 1;

	take(f, 0, generation);
	while (counts_of(f).live)
		poll_beside(f, f->now_ns + pace_ns, stopped_ns);
	assert_int_equal(f->now_ns - begin_ns,
			 (due_ns + pace_ns - 1) / pace_ns * pace_ns);
	expect_report(f, 0, generation, KVPULL_END_EXPIRED);
}

/* Not at hold_max: each gap had moved the lease by all of it. */
TEST(unclaimed_hold_ends_at_the_first_poll_after_its_lease)
{
	static const uint64_t tenths[] = { 1, 3, 4, 7, 9, 10, 11, 25, 60 };
	uint32_t i;

	for (i = 0; i < sizeof(tenths) / sizeof(*tenths); i++)
		expect_end_at_pace(f, tenths[i] * TENTH, 0, LEASE);
}

ONE_TEST(stop_of_poll_and_thread_moves_the_lease)
{
	const uint64_t stop = 5 * LEASE;

	take_claimed(f, a, 0, 1);
	poll_beside(f, START + 3 * TENTH, 0);
	poll_beside(f, START + 3 * TENTH + stop, stop);
	expect_nothing(f);
	expires_beside(f, START + LEASE + stop, stop);
}

/* The thread ran for half of a long gap: only the rest was missed. */
TEST(gap_in_which_the_thread_ran_moves_the_lease_by_its_stop)
{
	take(f, 0, 1);
	poll_beside(f, START + 8 * TENTH, 4 * TENTH);
	expires_beside(f, START + LEASE + 4 * TENTH, 4 * TENTH);
}

TEST(thread_that_stops_while_polls_go_on_moves_nothing)
{
	uint64_t now_ns = START;

	take(f, 0, 1);
	while (now_ns < START + LEASE - TENTH) {
		now_ns += TENTH;
		poll_beside(f, now_ns, 2 * (now_ns - START));
	}
	/* The stop that ends now is older than this gap. */
	poll_beside(f, now_ns + 4 * TENTH, 2 * (now_ns - START));
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

TEST(stop_longer_than_the_gap_moves_the_lease_by_the_gap)
{
	take(f, 0, 1);
	poll_beside(f, START + 4 * TENTH, 9 * LEASE);
	expires_beside(f, START + LEASE + 4 * TENTH, 9 * LEASE);
}

/* The sum may be less than at the last look: a stop's end was counted twice. */
TEST(stops_that_were_counted_twice_hide_no_later_one)
{
	poll_beside(f, START + TENTH, 2 * LEASE);
	poll_beside(f, START + 2 * TENTH, LEASE);
	take(f, 0, 1);
	poll_beside(f, START + 2 * TENTH + LEASE, 2 * LEASE);
	expect_nothing(f);
}

TEST(gap_of_more_than_a_lease_moves_the_lease_by_all_of_it)
{
	const uint64_t gap = LEASE + 1;

	take(f, 0, 1);
	poll_alone(f, START + gap);
	expect_nothing(f);
	expires_at(f, START + gap + LEASE, 0, 1);
}

/* At the first poll that is a gap after its lease. */
TEST(steady_gaps_without_a_thread_judge_a_lease_one_gap_later)
{
	static const uint64_t tenths[] = { 4, 7, 9, 10 };
	uint32_t i;

	/* A third of a lease is no gap. */
	expect_end_at_pace(f, LEASE / 3, KVPULL_NO_THREAD, LEASE);
	for (i = 0; i < sizeof(tenths) / sizeof(*tenths); i++)
		expect_end_at_pace(f, tenths[i] * TENTH, KVPULL_NO_THREAD,
				   LEASE + tenths[i] * TENTH);
}

TEST(longest_gap_of_a_lease_counts_and_not_their_sum)
{
	poll_alone(f, START + 4 * TENTH);
	poll_alone(f, START + 9 * TENTH);
	take(f, 0, 1);
	poll_alone(f, START + 13 * TENTH);
	/* The lease ends at 19, and is judged five tenths later. */
	poll_alone(f, START + 19 * TENTH - 1);
	nothing_at(f, START + 19 * TENTH);
	/* The gap of five tenths ended at 9, its lease at 19; six since then. */
	nothing_at(f, START + 25 * TENTH - 2);
	report_at(f, START + 25 * TENTH - 1, 0, 1, KVPULL_END_EXPIRED);
}

TEST(gap_counts_for_one_lease_after_it)
{
	poll_alone(f, START + 9 * TENTH);
	take(f, 0, 1);
	/* The lease ends with the time for which the gap counts. */
	expires_at(f, START + 9 * TENTH + LEASE, 0, 1);
}

TEST(short_gap_counts_when_a_longer_one_is_past)
{
	take(f, 0, 1);
	poll_alone(f, START + 9 * TENTH);
	poll_alone(f, START + 13 * TENTH);
	expect_nothing(f);
	/* Late by nine tenths until 19, then by four: due since 14. */
	expires_at(f, START + 19 * TENTH, 0, 1);
}

TEST(step_between_two_polls_ends_no_gap)
{
	take(f, 0, 1);
	kvpull_holds_stamp(f->holds, START + 2 * TENTH, KVPULL_NO_THREAD);
	poll_alone(f, START + 4 * TENTH);
	expires_at(f, START + 14 * TENTH, 0, 1);
}

ONE_TEST(gap_judges_no_hold_max_later)
{
	uint64_t now_ns = START;

	take_claimed(f, a, 0, 1);
	while (now_ns < START + HOLD_MAX) {
		now_ns += HOLD_MAX / 10;
		kvpull_holds_beat(f->holds, a.instance, 0, now_ns);
		expect_nothing(f);
		poll_alone(f, now_ns);
	}
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

GRACE_ONE_TEST(gap_judges_a_grace_later)
{
	take_claimed(f, a, 0, 1);
	poll_alone(f, START + 4 * TENTH);
	leave(f, a);
	nothing_at(f, f->now_ns + LEASE / 2 + 4 * TENTH - 1);
	assert_int_equal(kvpull_holds_deadline(f->holds), f->now_ns + 1);
	report_at(f, f->now_ns + 1, 0, 1, KVPULL_END_RELEASED);
}

/* An engine that sleeps until the deadline must not be told of a past one. */
TEST(deadline_of_a_lease_that_is_judged_later_is_ahead)
{
	take(f, 0, 1);
	poll_alone(f, START + 9 * TENTH);
	nothing_at(f, START + 11 * TENTH);
	assert_true(kvpull_holds_deadline(f->holds) > f->now_ns);
}
