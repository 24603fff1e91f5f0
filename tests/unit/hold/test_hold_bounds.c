/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds of a sweep, times that have no end, and words for each state. */
#include <stdlib.h>

#include "plugin/hold/hold_state.h"
#include "tests/lib/fence.h"
#include "tests/unit/hold/world.h"

#define MANY (KVPULL_GIVEN_MAX + 2u)

/* A table of its own, with these times. */
struct table {
	struct kvpull_arena arena;
	struct kvpull_revocation_entry entries[MANY];
	struct kvpull_holds *holds;
};

static struct table *opened(uint64_t lease_ns, uint64_t hold_max_ns)
{
	struct table *table = calloc(1, sizeof(*table));
	const struct kvpull_hold_params params = {
		.entries = table->entries,
		.incarnation = INCARNATION,
		.lease_ns = lease_ns,
		.hold_max_ns = hold_max_ns,
		.hold_count_max = MANY,
		.instance_count_max = 2,
	};

	kvpull_arena_init(&table->arena, NULL);
	table->holds = kvpull_holds_open(&params, &table->arena);
	assert_non_null(table->holds);
	kvpull_holds_tick(table->holds, START, KVPULL_NO_THREAD);
	return table;
}

static void closed(struct table *table)
{
	kvpull_arena_fini(&table->arena);
	free(table);
}

static uint32_t live(const struct table *table)
{
	struct kvpull_hold_counts counts;

	kvpull_holds_counts(table->holds, &counts);
	return (uint32_t)counts.live;
}

UNIT_TEST(marks_beyond_a_sweep_are_judged_by_the_next)
{
	struct table *table = opened(LEASE, HOLD_MAX);
	uint32_t slot;

	for (slot = 0; slot < MANY; slot++)
		assert_int_equal(
			kvpull_holds_take(table->holds, slot, 1, slot + 1), 0);
	for (slot = 0; slot < MANY; slot++)
		kvpull_holds_give(table->holds, slot, 1);
	assert_int_equal(live(table), MANY);
	assert_int_equal(kvpull_holds_sweep(table->holds, START), 1);
	assert_int_equal(live(table), MANY - KVPULL_GIVEN_MAX);
	assert_int_equal(kvpull_holds_deadline(table->holds), START);
	assert_int_equal(kvpull_holds_sweep(table->holds, START), 0);
	assert_int_equal(live(table), 0);
	closed(table);
}

/* A mark is judged in a sweep; until then the slot may be another hold's. */
UNIT_TEST(mark_on_a_hold_that_ended_meanwhile_ends_no_other)
{
	struct table *table = opened(LEASE, HOLD_MAX);
	struct kvpull_hold_counts counts;
	struct kvpull_hold_end ends[3];

	assert_int_equal(kvpull_holds_take(table->holds, 0, 1, 10), 0);
	assert_int_equal(kvpull_holds_take(table->holds, 1, 1, 11), 0);
	kvpull_holds_give(table->holds, 0, 1);
	assert_int_equal(
		kvpull_holds_end(table->holds, 0, 1, 10, KVPULL_END_ABORTED),
		0);
	kvpull_holds_publish(table->holds);
	assert_int_equal(kvpull_holds_report(table->holds, ends, 3), 1);
	assert_int_equal(ends[0].reason, KVPULL_END_ABORTED);
	assert_int_equal(kvpull_holds_take(table->holds, 0, 2, 20), 0);
	kvpull_holds_give(table->holds, 1, 1);
	assert_int_equal(kvpull_holds_sweep(table->holds, START), 0);
	kvpull_holds_publish(table->holds);
	assert_int_equal(kvpull_holds_report(table->holds, ends, 3), 1);
	assert_int_equal(ends[0].key, 11);
	assert_int_equal(ends[0].reason, KVPULL_END_GIVEN_BACK);
	kvpull_holds_counts(table->holds, &counts);
	assert_int_equal(counts.given_back, 1);
	assert_int_equal(counts.live, 1);
	closed(table);
}

/* A sum beyond the clock's end would lie in the past, and end it at once. */
UNIT_TEST(hold_without_a_longest_time_ends_at_its_lease)
{
	struct table *table = opened(LEASE, UINT64_MAX);

	assert_int_equal(kvpull_holds_take(table->holds, 0, 1, 10), 0);
	assert_int_equal(kvpull_holds_sweep(table->holds, START + LEASE - 1),
			 0);
	assert_int_equal(live(table), 1);
	assert_int_equal(kvpull_holds_sweep(table->holds, START + LEASE), 0);
	assert_int_equal(live(table), 0);
	closed(table);
}

UNIT_TEST(lease_without_an_end_keeps_claims_of_the_lost)
{
	struct table *table = opened(UINT64_MAX, UINT64_MAX - 1);
	struct kvpull_join join = { .instance_id = 1, .rank_count = 1 };
	struct kvpull_hold_counts counts;
	uint32_t instance;

	assert_int_equal(
		kvpull_holds_join(table->holds, &join, START, &instance), 0);
	assert_int_equal(kvpull_holds_take(table->holds, 0, 1, 10), 0);
	kvpull_holds_lose(table->holds, instance, 0, START);
	assert_int_equal(kvpull_holds_sweep(table->holds, UINT64_MAX / 2), 0);
	kvpull_holds_counts(table->holds, &counts);
	assert_int_equal(counts.consumers_died, 0);
	assert_int_equal(live(table), 1);
	assert_int_equal(kvpull_holds_deadline(table->holds), UINT64_MAX);
	closed(table);
}

static void is_described(const struct fixture *f, uint32_t slot,
			 const char *wanted)
{
	char text[400];

	kvpull_holds_describe(f->holds, slot, f->now_ns, text, sizeof(text));
	assert_string_equal(text, wanted);
}

TEST(each_state_has_its_words)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 0xa1, 1, 2), 1 };
	const struct who b = { join(f, 0xb1, 0, 1), 0 };

	is_described(f, 2,
		     "slot 2 generation 0 key 0 free 0 ms, claimed by nobody");
	claim(f, a, 2, 7);
	is_described(
		f, 2,
		"slot 2 generation 7 key 0 staged 0 ms, claimed by instance 0xa1 released 0 of 2 owing 1 heard 0 ms ago");
	take(f, 3, 8);
	claim(f, b, 3, 8);
	claim(f, a, 3, 8);
	release(f, b, 3, 8);
	f->now_ns += 2 * KVPULL_NS_PER_MS - 1;
	is_described(
		f, 3,
		"slot 3 generation 8 key 803 held 1 ms, claimed by instance 0xb1 released 1 of 1 owing 0 heard 1 ms ago, instance 0xa1 released 0 of 2 owing 1 heard 1 ms ago");
	assert_int_equal(
		kvpull_holds_end(f->holds, 3, 8, 803, KVPULL_END_ABORTED), 0);
	is_described(
		f, 3,
		"slot 3 generation 8 key 803 ended 0 ms, claimed by nobody");
	is_described(f, SLOTS, "slot 8 unknown");
}

/* A half that ended leaves a floor: generations of the next are above it. */
TEST(early_claim_of_an_earlier_half_is_dropped_and_shown_no_more)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 0xa1, 0, 1), 0 };

	claim(f, a, 2, 7);
	claim(f, a, 3, 8);
	assert_int_equal(kvpull_status_get(&f->now[2].state),
			 KVPULL_SHOWN_STAGED);
	kvpull_holds_begin(f->holds, 7);
	assert_int_equal(f->holds->holds[2].state, HOLD_FREE);
	assert_int_equal(kvpull_status_get(&f->now[2].state),
			 KVPULL_SHOWN_FREE);
	assert_int_equal(f->holds->holds[3].state, HOLD_STAGED);
	assert_int_equal(kvpull_status_get(&f->now[3].state),
			 KVPULL_SHOWN_STAGED);
}

TEST(early_claim_where_nobody_looks_is_kept_and_not_shown)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 0xa1, 0, 1), 0 };

	f->holds->shown.side = NULL;
	claim(f, a, 2, 7);
	assert_int_equal(f->holds->holds[2].state, HOLD_STAGED);
	assert_int_equal(kvpull_status_get(&f->now[2].state), 0);
	kvpull_status_set(&f->now[2].state, KVPULL_SHOWN_ENDED);
	kvpull_holds_begin(f->holds, 7);
	assert_int_equal(f->holds->holds[2].state, HOLD_FREE);
	assert_int_equal(kvpull_status_get(&f->now[2].state),
			 KVPULL_SHOWN_ENDED);
	/* An end that nobody claimed names nobody. */
	kvpull_status_set(&f->now[3].joined, 5);
	take(f, 3, 8);
	poll_at(f, f->now_ns + LEASE);
	expect_report(f, 3, 8, KVPULL_END_EXPIRED);
	assert_int_equal(kvpull_status_get(&f->now[3].joined), 0);
	assert_int_equal(f->side.event_next, 0);
}

/* Age and last word begin with the take; a ring may be given up after claims. */
TEST(hold_is_shown_from_its_take_on_and_claimed_until_its_release)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 0xa1, 0, 1), 0 };
	const struct who b = { join(f, 0xb1, 0, 1), 0 };

	poll_at(f, START + 5);
	take(f, 2, 7);
	assert_int_equal(kvpull_status_get(&f->rows[2].taken_ns), START + 5);
	assert_int_equal(kvpull_status_get(&f->now[2].word_ns), START + 5);
	assert_false(kvpull_holds_is_claimed(f->holds, a.instance));
	claim(f, a, 2, 7);
	assert_true(kvpull_holds_is_claimed(f->holds, a.instance));
	assert_false(kvpull_holds_is_claimed(f->holds, b.instance));
	release(f, a, 2, 7);
	poll_at(f, START + 6);
	expect_report(f, 2, 7, KVPULL_END_RELEASED);
	assert_false(kvpull_holds_is_claimed(f->holds, a.instance));
}

/* Memory behind the table looks like an instance that is here. */
TEST(words_of_an_instance_beyond_the_table_are_unknown)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 0xa1, 0, 1), 0 };
	struct kvpull_instance *beyond = &f->holds->instances.all[INSTANCES];
	struct kvpull_instance before;
	struct kvpull_instance after;

	fence_open(beyond, sizeof(*beyond));
	before = *beyond;
	*beyond = f->holds->instances.all[a.instance];
	claim(f, (struct who){ INSTANCES, 0 }, 2, 7);
	kvpull_holds_beat(f->holds, INSTANCES, 0, f->now_ns + 9);
	kvpull_holds_leave(f->holds, INSTANCES, 0, f->now_ns);
	after = *beyond;
	*beyond = before;
	assert_memory_equal(&after, &f->holds->instances.all[a.instance],
			    sizeof(after));
	assert_int_equal(counts_of(f).unknown, 1);
	assert_int_equal(f->holds->holds[2].state, HOLD_FREE);
}
