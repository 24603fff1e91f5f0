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

/* Return: when the one hold ended, polled at this pace. */
static uint64_t end_at_pace(struct fixture *f, uint64_t pace_ns,
			    uint64_t stopped_ns)
{
	const uint64_t begin_ns = f->now_ns;

	while (counts_of(f).live)
		poll_beside(f, f->now_ns + pace_ns, stopped_ns);
	return f->now_ns - begin_ns;
}

/* Not at hold_max: each gap had moved the lease by all of it. */
TEST(unclaimed_hold_ends_at_the_first_poll_after_its_lease)
{
	static const uint64_t tenths[] = { 1, 3, 4, 7, 9, 10, 11, 25, 60 };
	struct fixture *f = fixture_of(state);
	uint32_t i;

	for (i = 0; i < sizeof(tenths) / sizeof(*tenths); i++) {
		const uint64_t pace_ns = tenths[i] * TENTH;

		take(f, 0, i + 1);
		assert_int_equal(end_at_pace(f, pace_ns, 0),
				 (LEASE + pace_ns - 1) / pace_ns * pace_ns);
		expect_report(f, 0, i + 1, KVPULL_END_EXPIRED);
	}
}

TEST(stop_of_poll_and_thread_moves_the_lease)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 1, 0, 1), 0 };
	const uint64_t stop = 5 * LEASE;

	take(f, 0, 1);
	claim(f, a, 0, 1);
	poll_beside(f, START + 3 * TENTH, 0);
	poll_beside(f, START + 3 * TENTH + stop, stop);
	expect_nothing(f);
	poll_beside(f, START + LEASE + stop - 1, stop);
	expect_nothing(f);
	poll_beside(f, START + LEASE + stop, stop);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

/* The thread ran for half of a long gap: only the rest was missed. */
TEST(gap_in_which_the_thread_ran_moves_the_lease_by_its_stop)
{
	struct fixture *f = fixture_of(state);

	take(f, 0, 1);
	poll_beside(f, START + 8 * TENTH, 4 * TENTH);
	poll_beside(f, START + LEASE + 4 * TENTH - 1, 4 * TENTH);
	expect_nothing(f);
	poll_beside(f, START + LEASE + 4 * TENTH, 4 * TENTH);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

TEST(thread_that_stops_while_polls_go_on_moves_nothing)
{
	struct fixture *f = fixture_of(state);
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
	struct fixture *f = fixture_of(state);

	take(f, 0, 1);
	poll_beside(f, START + 4 * TENTH, 9 * LEASE);
	poll_beside(f, START + LEASE + 4 * TENTH - 1, 9 * LEASE);
	expect_nothing(f);
	poll_beside(f, START + LEASE + 4 * TENTH, 9 * LEASE);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

/* The sum may be less than at the last look: a stop's end was counted twice. */
TEST(stops_that_were_counted_twice_hide_no_later_one)
{
	struct fixture *f = fixture_of(state);

	poll_beside(f, START + TENTH, 2 * LEASE);
	poll_beside(f, START + 2 * TENTH, LEASE);
	take(f, 0, 1);
	poll_beside(f, START + 2 * TENTH + LEASE, 2 * LEASE);
	expect_nothing(f);
}

TEST(gap_of_more_than_a_lease_moves_the_lease_by_all_of_it)
{
	struct fixture *f = fixture_of(state);
	const uint64_t gap = LEASE + 1;

	take(f, 0, 1);
	poll_alone(f, START + gap);
	expect_nothing(f);
	poll_at(f, START + gap + LEASE - 1);
	expect_nothing(f);
	poll_at(f, START + gap + LEASE);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

/* At the first poll that is a gap after its lease. */
TEST(steady_gaps_without_a_thread_judge_a_lease_one_gap_later)
{
	static const uint64_t tenths[] = { 4, 7, 9, 10 };
	struct fixture *f = fixture_of(state);
	uint32_t i;

	/* A third of a lease is no gap. */
	take(f, 0, 1);
	assert_int_equal(end_at_pace(f, LEASE / 3, KVPULL_NO_THREAD), LEASE);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
	for (i = 0; i < sizeof(tenths) / sizeof(*tenths); i++) {
		const uint64_t pace_ns = tenths[i] * TENTH;

		take(f, 0, i + 2);
		assert_int_equal(end_at_pace(f, pace_ns, KVPULL_NO_THREAD),
				 (LEASE + 2 * pace_ns - 1) / pace_ns * pace_ns);
		expect_report(f, 0, i + 2, KVPULL_END_EXPIRED);
	}
}

TEST(longest_gap_of_a_lease_counts_and_not_their_sum)
{
	struct fixture *f = fixture_of(state);

	poll_alone(f, START + 4 * TENTH);
	poll_alone(f, START + 9 * TENTH);
	take(f, 0, 1);
	poll_alone(f, START + 13 * TENTH);
	/* The lease ends at 19, and is judged five tenths later. */
	poll_alone(f, START + 19 * TENTH - 1);
	poll_at(f, START + 19 * TENTH);
	expect_nothing(f);
	/* The gap of five tenths ended at 9, its lease at 19; six since then. */
	poll_at(f, START + 25 * TENTH - 2);
	expect_nothing(f);
	poll_at(f, START + 25 * TENTH - 1);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

TEST(gap_counts_for_one_lease_after_it)
{
	struct fixture *f = fixture_of(state);

	poll_alone(f, START + 9 * TENTH);
	take(f, 0, 1);
	/* The lease ends with the time for which the gap counts. */
	poll_at(f, START + 9 * TENTH + LEASE - 1);
	expect_nothing(f);
	poll_at(f, START + 9 * TENTH + LEASE);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

TEST(short_gap_counts_when_a_longer_one_is_past)
{
	struct fixture *f = fixture_of(state);

	take(f, 0, 1);
	poll_alone(f, START + 9 * TENTH);
	poll_alone(f, START + 13 * TENTH);
	expect_nothing(f);
	/* Late by nine tenths until 19, then by four: due since 14. */
	poll_at(f, START + 19 * TENTH - 1);
	expect_nothing(f);
	poll_at(f, START + 19 * TENTH);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

TEST(step_between_two_polls_ends_no_gap)
{
	struct fixture *f = fixture_of(state);

	take(f, 0, 1);
	kvpull_holds_stamp(f->holds, START + 2 * TENTH, KVPULL_NO_THREAD);
	poll_alone(f, START + 4 * TENTH);
	poll_at(f, START + 14 * TENTH - 1);
	expect_nothing(f);
	poll_at(f, START + 14 * TENTH);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

TEST(gap_judges_no_hold_max_later)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 1, 0, 1), 0 };
	uint64_t now_ns = START;

	take(f, 0, 1);
	claim(f, a, 0, 1);
	while (now_ns < START + HOLD_MAX) {
		now_ns += HOLD_MAX / 10;
		kvpull_holds_beat(f->holds, a.instance, 0, now_ns);
		expect_nothing(f);
		poll_alone(f, now_ns);
	}
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

UNIT_TEST_WITH(gap_judges_a_grace_later, setup_with_grace, teardown)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 1, 0, 1), 0 };

	take(f, 0, 1);
	claim(f, a, 0, 1);
	poll_alone(f, START + 4 * TENTH);
	leave(f, a);
	poll_at(f, f->now_ns + LEASE / 2 + 4 * TENTH - 1);
	expect_nothing(f);
	assert_int_equal(kvpull_holds_deadline(f->holds), f->now_ns + 1);
	poll_at(f, f->now_ns + 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
}

/* An engine that sleeps until the deadline must not be told of a past one. */
TEST(deadline_of_a_lease_that_is_judged_later_is_ahead)
{
	struct fixture *f = fixture_of(state);

	take(f, 0, 1);
	poll_alone(f, START + 9 * TENTH);
	poll_at(f, START + 11 * TENTH);
	expect_nothing(f);
	assert_true(kvpull_holds_deadline(f->holds) > f->now_ns);
}
