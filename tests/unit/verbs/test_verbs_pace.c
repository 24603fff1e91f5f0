/* SPDX-License-Identifier: Apache-2.0 */
/* Which rail takes the next batch, and when one is late. */
#include <string.h>

#include "tests/lib/unit.h"

#include "base/arena.h"
#include "verbs/pace.h"

#define RAILS 3u
#define MS KVPULL_NS_PER_MS
#define UNIT KVPULL_PACE_BYTES
#define MIB (UINT64_C(1) << 20)

static struct kvpull_pace paces[RAILS];
static struct kvpull_pace_rail each[RAILS];
static struct kvpull_pace_rails rails;

UNIT_FIXTURE(begin)
{
	uint32_t at;

	memset(paces, 0, sizeof(paces));
	memset(each, 0, sizeof(each));
	rails = (struct kvpull_pace_rails){ .now_ns = KVPULL_NS_PER_S,
					    .count = 2,
					    .rails = each };
	for (at = 0; at < 2; at++)
		each[at] = (struct kvpull_pace_rail){ .pace = &paces[at],
						      .has_room = 1 };
}

/* The rail reads so many bytes, with nothing else on it. */
static void reads(uint32_t at, uint64_t bytes, uint64_t took_ns)
{
	kvpull_pace_post(&paces[at], 0, rails.now_ns);
	kvpull_pace_done(&paces[at], bytes, 0, rails.now_ns + took_ns);
}

/* Both are known: the second one is so many times as slow, in all sizes. */
static void known(uint64_t times)
{
	uint32_t at;

	for (at = 0; at < 2; at++) {
		reads(at, UNIT, at ? times * MS : MS);
		reads(at, 8, at ? times * MS : MS);
	}
}

static void posts(uint32_t at, uint64_t bytes)
{
	kvpull_pace_post(&paces[at], each[at].open_count, rails.now_ns);
	each[at].open_count++;
	each[at].open_bytes += bytes;
}

/* Batches of so many bytes are posted as they are picked: how many by each. */
static void spread(uint32_t batches, uint64_t bytes, uint32_t *by)
{
	by[0] = by[1] = 0;
	for (; batches; batches--) {
		const uint32_t at = kvpull_pace_pick(&rails, bytes);

		assert_in_range(at, 0, 1);
		posts(at, bytes);
		by[at]++;
		rails.turn = (at + 1) % 2;
	}
}

UNIT_TEST_WITH(rails_that_were_never_used_share_alike, begin, NULL)
{
	uint32_t by[2];

	spread(16, UNIT, by);
	assert_int_equal(by[0], 8);
	assert_int_equal(by[1], 8);
}

UNIT_TEST_WITH(rails_within_the_band_share_alike, begin, NULL)
{
	uint32_t by[2];

	known(KVPULL_PACE_BAND);
	spread(16, UNIT, by);
	assert_int_equal(by[0], 8);
	assert_int_equal(by[1], 8);
}

/*
 * A rail that hung once is as slow as the other one always is. It is measured
 * again because it is used.
 */
UNIT_TEST_WITH(equally_busy_rails_are_used_by_their_paces, begin, NULL)
{
	known(30);
	reads(0, 8, 20 * MS);
	rails.turn = 1;
	assert_false(kvpull_pace_is_slow(&rails, 1, 8));
	assert_int_equal(kvpull_pace_pick(&rails, 8), 0);
	reads(0, 8, MS);
	reads(0, 8, MS);
	assert_true(kvpull_pace_is_slow(&rails, 1, 8));
}

UNIT_TEST_WITH(slower_rail_takes_what_it_ends_in_half_the_time, begin, NULL)
{
	uint32_t by[2];

	known(4);
	/* 1 ms each by the fast one: behind eight of them goes one of 4 ms. */
	spread(8, UNIT, by);
	assert_int_equal(by[1], 0);
	spread(1, UNIT, by);
	assert_int_equal(by[1], 1);
	/* The next one there would need 8 ms. */
	spread(7, UNIT, by);
	assert_int_equal(by[1], 0);
}

UNIT_TEST_WITH(rail_that_is_far_behind_takes_nothing, begin, NULL)
{
	uint32_t by[2];

	known(150);
	spread(64, UNIT, by);
	assert_int_equal(by[1], 0);
	spread(3, 0, by);
	assert_int_equal(by[1], 0);
}

/* Latency says nothing of the rate, nor the other way round. */
UNIT_TEST_WITH(small_and_large_reads_have_paces_of_their_own, begin, NULL)
{
	reads(0, 8, MS);
	reads(0, MIB, 20 * MS);
	reads(1, 8, 9 * MS);
	reads(1, MIB, 20 * MS);
	assert_true(kvpull_pace_is_slow(&rails, 1, 8));
	assert_true(kvpull_pace_is_slow(&rails, 1, UNIT - 1));
	assert_false(kvpull_pace_is_slow(&rails, 1, UNIT));
}

UNIT_TEST_WITH(full_fast_rail_is_waited_for, begin, NULL)
{
	known(150);
	posts(0, UNIT);
	each[0].has_room = 0;
	assert_int_equal(kvpull_pace_pick(&rails, UNIT), KVPULL_NONE);
	/* Equal rails stand in for each other. */
	begin(NULL);
	posts(0, UNIT);
	each[0].has_room = 0;
	assert_int_equal(kvpull_pace_pick(&rails, UNIT), 1);
	each[1].pace = NULL;
	assert_int_equal(kvpull_pace_pick(&rails, UNIT), KVPULL_NONE);
}

UNIT_TEST_WITH(rail_that_stops_in_mid_read_is_slow_without_a_completion, begin,
	       NULL)
{
	known(1);
	posts(1, UNIT);
	rails.now_ns += 2 * MS;
	assert_false(kvpull_pace_is_slow(&rails, 1, UNIT));
	rails.now_ns += MS;
	assert_true(kvpull_pace_is_slow(&rails, 1, UNIT));
}

UNIT_TEST_WITH(rail_that_is_not_known_is_tried_first, begin, NULL)
{
	reads(0, UNIT, MS);
	assert_int_equal(kvpull_pace_pick(&rails, UNIT), 1);
	posts(1, UNIT);
	assert_int_equal(kvpull_pace_pick(&rails, UNIT), 0);
}

UNIT_TEST_WITH(slow_rail_is_tried_once_after_its_rest, begin, NULL)
{
	const uint64_t rest_ns = 150 * MS * KVPULL_PACE_REST_TIMES;

	known(150);
	rails.now_ns += 150 * MS + rest_ns - 1;
	assert_int_equal(kvpull_pace_pick(&rails, UNIT), 0);
	rails.now_ns++;
	each[1].has_room = 0;
	assert_int_equal(kvpull_pace_pick(&rails, UNIT), 0);
	each[1].has_room = 1;
	assert_int_equal(kvpull_pace_pick(&rails, UNIT), 1);
	posts(1, UNIT);
	assert_int_equal(kvpull_pace_pick(&rails, UNIT), 0);
	/* A rest has a bound. */
	begin(NULL);
	known(100000);
	rails.now_ns += 100000 * MS + KVPULL_PACE_REST_NS_MAX;
	assert_int_equal(kvpull_pace_pick(&rails, UNIT), 1);
}

/* A lossy rail is quick now and then. */
UNIT_TEST_WITH(good_trials_end_an_exclusion_by_halves, begin, NULL)
{
	uint32_t trials = 0;

	known(150);
	reads(1, UNIT, MS);
	assert_int_equal(paces[1].ns[KVPULL_PACE_LARGE], 75 * MS);
	assert_true(paces[1].rest_ns[KVPULL_PACE_LARGE] <=
		    rails.now_ns + MS + KVPULL_PACE_REST_TIMES * MS);
	while (kvpull_pace_is_slow(&rails, 1, UNIT) && trials++ < 20)
		reads(1, UNIT, MS);
	assert_in_range(trials, 3, 7);
}

UNIT_TEST_WITH(lesser_change_counts_by_a_quarter, begin, NULL)
{
	known(1);
	reads(1, UNIT, 4 * MS);
	assert_int_equal(paces[1].ns[KVPULL_PACE_LARGE], MS + 3 * MS / 4);
	reads(1, UNIT, 100 * MS);
	assert_int_equal(paces[1].ns[KVPULL_PACE_LARGE], 100 * MS);
}

UNIT_TEST_WITH(long_period_is_measured_in_parts, begin, NULL)
{
	kvpull_pace_post(&paces[0], 0, rails.now_ns);
	kvpull_pace_done(&paces[0], KVPULL_PACE_PERIOD_BYTES - 1, 1,
			 rails.now_ns + MS);
	assert_int_equal(paces[0].ns[KVPULL_PACE_LARGE], 0);
	kvpull_pace_done(&paces[0], 1, 1, rails.now_ns + 256 * MS);
	assert_int_equal(paces[0].ns[KVPULL_PACE_LARGE], MS);
	assert_int_equal(paces[0].since_ns, rails.now_ns + 256 * MS);
}

UNIT_TEST_WITH(rail_is_late_only_beside_an_idle_one, begin, NULL)
{
	const uint64_t posted_ns = rails.now_ns;

	known(1);
	assert_true(kvpull_pace_late_ns(&rails, 1) == UINT64_MAX);
	posts(1, UNIT);
	assert_int_equal(kvpull_pace_late_ns(&rails, 1),
			 posted_ns + KVPULL_PACE_LATE_NS);
	/* Large reads have the time that they take. */
	posts(1, 99 * UNIT);
	assert_int_equal(kvpull_pace_late_ns(&rails, 1),
			 posted_ns + KVPULL_PACE_LATE_TIMES * 100 * MS);
	posts(0, 8);
	assert_true(kvpull_pace_late_ns(&rails, 1) == UINT64_MAX);
	/* Nothing is known of the idle one, or nothing can go by it. */
	begin(NULL);
	posts(1, UNIT);
	assert_true(kvpull_pace_late_ns(&rails, 1) == UINT64_MAX);
	reads(0, UNIT, MS);
	each[0].pace = NULL;
	assert_true(kvpull_pace_late_ns(&rails, 1) == UINT64_MAX);
}

UNIT_TEST_WITH(lost_rail_is_as_slow_as_its_age, begin, NULL)
{
	known(1);
	posts(1, UNIT);
	kvpull_pace_lost(&paces[1], UNIT, rails.now_ns + 250 * MS);
	each[1].open_count = 0;
	each[1].open_bytes = 0;
	assert_int_equal(paces[1].ns[KVPULL_PACE_LARGE], 250 * MS);
	assert_true(kvpull_pace_is_slow(&rails, 1, UNIT));
}

/* Periods and windows of any length make no product overflow. */
UNIT_TEST_WITH(hours_and_gigabytes_are_compared, begin, NULL)
{
	reads(0, UNIT, MS);
	reads(1, UNIT, 7200 * KVPULL_NS_PER_S);
	posts(1, MIB << 10);
	rails.now_ns += 86400 * KVPULL_NS_PER_S;
	assert_true(kvpull_pace_is_slow(&rails, 1, UNIT));
	assert_int_equal(kvpull_pace_pick(&rails, UNIT), 0);
}

/* A clock that stands still measures the least that there is, and no zero. */
UNIT_TEST_WITH(period_of_no_time_counts_as_measured, begin, NULL)
{
	reads(0, UNIT, 0);
	assert_int_equal(paces[0].ns[KVPULL_PACE_LARGE], 1);
}
