/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the hold table in the status file. */
#include "plugin/hold/hold_state.h"
#include "tests/unit/hold/world.h"

static const struct kvpull_status_hold *row_of(const struct fixture *f,
					       uint32_t slot)
{
	return &f->holds->shown.rows[slot];
}

static void expect_row(const struct fixture *f, uint32_t slot, uint32_t state,
		       uint32_t joined, int32_t reason)
{
	const struct kvpull_status_holds *shown = &f->holds->shown;
	const struct kvpull_status_hold_now *now = &shown->now[slot];
	const int is_held =
		kvpull_status_get(&shown->held[slot / 64]) >> slot % 64 & 1;

	assert_int_equal(is_held ? KVPULL_SHOWN_HELD :
				   kvpull_status_get(&now->state),
			 state);
	assert_int_equal(kvpull_status_get(&now->reason), reason);
	assert_int_equal(kvpull_status_get(&now->joined), joined);
}

/* The newest event, or one that many before it. */
static void expect_event(const struct fixture *f, uint32_t before,
			 enum kvpull_status_what what, uint32_t slot,
			 uint64_t generation, uint64_t who)
{
	const struct kvpull_status_side *side = f->holds->shown.side;
	const struct kvpull_status_event *event =
		&side->events[side->event_next - 1 - before];

	assert_int_equal(kvpull_status_get(&side->thread->event_count),
			 side->event_next);
	assert_int_equal(kvpull_status_get(&event->what) & UINT32_MAX, slot);
	assert_int_equal(kvpull_status_get(&event->what) >> 32 & 0xffff, what);
	assert_int_equal(kvpull_status_get(&event->generation), generation);
	assert_int_equal(kvpull_status_get(&event->who), who);
}

ONE_TEST(each_transition_is_shown)
{
	uint64_t key;

	take(f, 2, 7);
	key = kvpull_status_get(&row_of(f, 2)->key);
	expect_row(f, 2, KVPULL_SHOWN_HELD, 0, 0);
	assert_int_equal(kvpull_status_get(&row_of(f, 2)->generation), 7);
	assert_int_equal(
		kvpull_status_get(&f->holds->shown.side->thread->holds_high),
		3);
	expect_event(f, 0, KVPULL_DID_TAKE, 2, 7, key);
	claim(f, a, 2, 7);
	expect_row(f, 2, KVPULL_SHOWN_HELD, a.instance + 1, 0);
	expect_event(f, 0, KVPULL_DID_CLAIM, 2, 7, 0xa1);
	release(f, a, 2, 7);
	/* The end says whose release it was, and that a poll has still to tell. */
	expect_row(f, 2, KVPULL_SHOWN_HELD, a.instance + 1, 0);
	expect_event(f, 0, KVPULL_DID_END, 2, 7, 0xa1);
	expect_event(f, 1, KVPULL_DID_CLAIM, 2, 7, 0xa1);
	report_at(f, f->now_ns + 1, 2, 7, KVPULL_END_RELEASED);
	expect_event(f, 0, KVPULL_DID_END, 2, 7, 0xa1);
	/* Free: but who it was is still to be read. */
	expect_row(f, 2, KVPULL_SHOWN_FREE, a.instance + 1, 0);
	assert_int_equal(kvpull_status_get(&row_of(f, 2)->key), key);
}

ONE_TEST(end_that_waits_for_a_report_is_shown)
{
	struct kvpull_hold_end end;
	uint64_t key;

	take(f, 2, 7);
	take(f, 3, 8);
	key = kvpull_status_get(&row_of(f, 3)->key);
	claim(f, a, 2, 7);
	claim(f, a, 3, 8);
	release(f, a, 2, 7);
	release(f, a, 3, 8);
	kvpull_holds_publish(f->holds);
	assert_int_equal(kvpull_holds_report(f->holds, &end, 1), 1);
	expect_row(f, 2, KVPULL_SHOWN_FREE, a.instance + 1, 0);
	/* The engine has not heard of it; nor do its blocks look free. */
	expect_row(f, 3, KVPULL_SHOWN_HELD, a.instance + 1, 0);
	assert_int_equal(kvpull_holds_report(f->holds, &end, 0), 0);
	expect_row(f, 3, KVPULL_SHOWN_ENDED, a.instance + 1,
		   KVPULL_END_RELEASED);
	assert_int_equal(kvpull_holds_report(f->holds, &end, 1), 1);
	expect_row(f, 3, KVPULL_SHOWN_FREE, a.instance + 1,
		   KVPULL_END_RELEASED);
	expect_event(f, 0, KVPULL_DID_SENT, 3, 8, key);
}

TEST(end_by_the_engine_is_shown_before_its_poll)
{
	uint64_t key;

	take(f, 2, 7);
	key = kvpull_status_get(&row_of(f, 2)->key);
	end_hold(f, 2, 7, key, KVPULL_END_ABORTED);
	expect_row(f, 2, KVPULL_SHOWN_ENDED, 0, KVPULL_END_ABORTED);
	report_at(f, f->now_ns + 1, 2, 7, KVPULL_END_ABORTED);
	expect_row(f, 2, KVPULL_SHOWN_FREE, 0, KVPULL_END_ABORTED);
	expect_event(f, 0, KVPULL_DID_SENT, 2, 7, key);
}

ONE_TEST(end_at_its_take_is_shown_before_its_poll)
{
	claim(f, a, 2, 3);
	release(f, a, 2, 3);
	take(f, 2, 3);
	expect_row(f, 2, KVPULL_SHOWN_ENDED, a.instance + 1,
		   KVPULL_END_RELEASED);
	report_at(f, f->now_ns + 1, 2, 3, KVPULL_END_RELEASED);
	expect_row(f, 2, KVPULL_SHOWN_FREE, a.instance + 1,
		   KVPULL_END_RELEASED);
}

APART_TEST(release_by_one_of_two_is_shown)
{
	take_claimed(f, a, 2, 7);
	claim(f, b, 2, 7);
	release(f, a, 2, 7);
	expect_row(f, 2, KVPULL_SHOWN_HELD, a.instance + 1, 0);
	expect_event(f, 0, KVPULL_DID_RELEASE, 2, 7, 0xa1);
}

ONE_TEST(next_hold_of_a_slot_is_not_the_last_ones)
{
	take_claimed(f, a, 2, 1);
	release(f, a, 2, 1);
	report_at(f, f->now_ns + 1, 2, 1, KVPULL_END_RELEASED);
	take(f, 2, 2);
	expect_row(f, 2, KVPULL_SHOWN_HELD, 0, 0);
}

ONE_TEST(early_claim_is_its_claimants)
{
	claim(f, a, 2, 3);
	expect_row(f, 2, KVPULL_SHOWN_STAGED, a.instance + 1, 0);
	expect_event(f, 0, KVPULL_DID_CLAIM, 2, 3, 0xa1);
	take(f, 2, 3);
	expect_row(f, 2, KVPULL_SHOWN_HELD, a.instance + 1, 0);
}

TEST(age_of_a_hold_is_counted_at_its_end)
{
	const struct kvpull_status_thread *thread;

	take(f, 2, 1);
	report_at(f, START + LEASE, 2, 1, KVPULL_END_EXPIRED);
	thread = f->holds->shown.side->thread;
	assert_int_equal(
		kvpull_status_get(&thread->times[KVPULL_TIMES_HOLD]
						[63 - __builtin_clzll(LEASE)]),
		1);
	assert_int_equal(
		kvpull_status_get(&thread->time_sums[KVPULL_TIMES_HOLD]),
		LEASE);
}

/* But for what the line of an expired one says. */
ONE_TEST(nothing_is_stored_where_nobody_looks)
{
	const uint64_t events = f->side.event_next;

	f->holds->shown.side = NULL;
	take_claimed(f, a, 2, 7);
	expect_row(f, 2, KVPULL_SHOWN_FREE, 0, 0);
	assert_int_equal(kvpull_status_get(&row_of(f, 2)->generation), 0);
	report_at(f, START + LEASE, 2, 7, KVPULL_END_EXPIRED);
	assert_int_equal(kvpull_status_get(&row_of(f, 2)->taken_ns), START);
	expect_row(f, 2, KVPULL_SHOWN_FREE, a.instance + 1, 0);
	assert_int_equal(f->side.event_next, events);
	assert_int_equal(kvpull_status_get(&f->thread.event_count), events);
	assert_int_equal(
		kvpull_status_get(&f->thread.time_sums[KVPULL_TIMES_HOLD]), 0);
}
