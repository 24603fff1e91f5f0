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

/* A test of a table with these times. */
#define TABLE_TEST(name, lease_ns, hold_max_ns)                                \
	static void name##_in(struct table *table);                            \
	UNIT_TEST(name)                                                        \
	{                                                                      \
		struct table *table = opened(lease_ns, hold_max_ns);           \
                                                                               \
		name##_in(table);                                              \
		closed(table);                                                 \
	}                                                                      \
	static void name##_in(struct table *table)

static void put(struct table *table, uint32_t slot, uint64_t generation,
		uint64_t key)
{
	assert_int_equal(kvpull_holds_take(table->holds, slot, generation, key),
			 0);
}

static int sweep(struct table *table, uint64_t now_ns)
{
	return kvpull_holds_sweep(table->holds, now_ns);
}

static void expect_end(struct table *table, uint64_t key, int32_t reason)
{
	struct kvpull_hold_end ends[3];

	kvpull_holds_publish(table->holds);
	assert_int_equal(kvpull_holds_report(table->holds, ends, 3), 1);
	assert_int_equal(ends[0].key, key);
	assert_int_equal(ends[0].reason, reason);
}

static uint32_t live(const struct table *table)
{
	struct kvpull_hold_counts counts;

	kvpull_holds_counts(table->holds, &counts);
	return (uint32_t)counts.live;
}

TABLE_TEST(marks_beyond_a_sweep_are_judged_by_the_next, LEASE, HOLD_MAX)
{
	uint32_t slot;

	for (slot = 0; slot < MANY; slot++)
		put(table, slot, 1, slot + 1);
	for (slot = 0; slot < MANY; slot++)
		kvpull_holds_give(table->holds, slot, 1);
	assert_int_equal(live(table), MANY);
	assert_int_equal(sweep(table, START), 1);
	assert_int_equal(live(table), MANY - KVPULL_GIVEN_MAX);
	assert_int_equal(kvpull_holds_deadline(table->holds), START);
	assert_int_equal(sweep(table, START), 0);
	assert_int_equal(live(table), 0);
}

/* A mark is judged in a sweep; until then the slot may be another hold's. */
TABLE_TEST(mark_on_a_hold_that_ended_meanwhile_ends_no_other, LEASE, HOLD_MAX)
{
	struct kvpull_hold_counts counts;

	put(table, 0, 1, 10);
	put(table, 1, 1, 11);
	kvpull_holds_give(table->holds, 0, 1);
	assert_int_equal(
		kvpull_holds_end(table->holds, 0, 1, 10, KVPULL_END_ABORTED),
		0);
	expect_end(table, 10, KVPULL_END_ABORTED);
	put(table, 0, 2, 20);
	kvpull_holds_give(table->holds, 1, 1);
	assert_int_equal(sweep(table, START), 0);
	expect_end(table, 11, KVPULL_END_GIVEN_BACK);
	kvpull_holds_counts(table->holds, &counts);
	assert_int_equal(counts.given_back, 1);
	assert_int_equal(counts.live, 1);
}

/* A sum beyond the clock's end would lie in the past, and end it at once. */
TABLE_TEST(hold_without_a_longest_time_ends_at_its_lease, LEASE, UINT64_MAX)
{
	put(table, 0, 1, 10);
	assert_int_equal(sweep(table, START + LEASE - 1), 0);
	assert_int_equal(live(table), 1);
	assert_int_equal(sweep(table, START + LEASE), 0);
	assert_int_equal(live(table), 0);
}

TABLE_TEST(lease_without_an_end_keeps_claims_of_the_lost, UINT64_MAX,
	   UINT64_MAX - 1)
{
	struct kvpull_join join = { .instance_id = 1, .rank_count = 1 };
	struct kvpull_hold_counts counts;
	uint32_t instance;

	assert_int_equal(
		kvpull_holds_join(table->holds, &join, START, &instance), 0);
	put(table, 0, 1, 10);
	kvpull_holds_lose(table->holds, instance, 0, START);
	assert_int_equal(sweep(table, UINT64_MAX / 2), 0);
	kvpull_holds_counts(table->holds, &counts);
	assert_int_equal(counts.consumers_died, 0);
	assert_int_equal(live(table), 1);
	assert_int_equal(kvpull_holds_deadline(table->holds), UINT64_MAX);
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
	const struct who a = rank_of(f, 0xa1, 1, 2);
	const struct who b = rank_of(f, 0xb1, 0, 1);

	is_described(f, 2,
		     "slot 2 generation 0 key 0 free 0 ms, claimed by nobody");
	claim(f, a, 2, 7);
	is_described(
		f, 2,
		"slot 2 generation 7 key 0 staged 0 ms, claimed by instance 0xa1 released 0 of 2 owing 1 heard 0 ms ago");
	take_claimed(f, b, 3, 8);
	claim(f, a, 3, 8);
	release(f, b, 3, 8);
	f->now_ns += 2 * KVPULL_NS_PER_MS - 1;
	is_described(
		f, 3,
		"slot 3 generation 8 key 803 held 1 ms, claimed by instance 0xb1 released 1 of 1 owing 0 heard 1 ms ago, instance 0xa1 released 0 of 2 owing 1 heard 1 ms ago");
	end_hold(f, 3, 8, 803, KVPULL_END_ABORTED);
	is_described(
		f, 3,
		"slot 3 generation 8 key 803 ended 0 ms, claimed by nobody");
	is_described(f, SLOTS, "slot 8 unknown");
}

static void expect_shown(const struct fixture *f, uint32_t slot, uint32_t state)
{
	assert_int_equal(kvpull_status_get(&f->now[slot].state), state);
}

/* A half that ended leaves a floor: generations of the next are above it. */
ONE_TEST(early_claim_of_an_earlier_half_is_dropped_and_shown_no_more)
{
	claim(f, a, 2, 7);
	claim(f, a, 3, 8);
	expect_shown(f, 2, KVPULL_SHOWN_STAGED);
	kvpull_holds_begin(f->holds, 7);
	assert_int_equal(f->holds->holds[2].state, HOLD_FREE);
	expect_shown(f, 2, KVPULL_SHOWN_FREE);
	assert_int_equal(f->holds->holds[3].state, HOLD_STAGED);
	expect_shown(f, 3, KVPULL_SHOWN_STAGED);
}

ONE_TEST(early_claim_where_nobody_looks_is_kept_and_not_shown)
{
	f->holds->shown.side = NULL;
	claim(f, a, 2, 7);
	assert_int_equal(f->holds->holds[2].state, HOLD_STAGED);
	expect_shown(f, 2, 0);
	kvpull_status_set(&f->now[2].state, KVPULL_SHOWN_ENDED);
	kvpull_holds_begin(f->holds, 7);
	assert_int_equal(f->holds->holds[2].state, HOLD_FREE);
	expect_shown(f, 2, KVPULL_SHOWN_ENDED);
	/* An end that nobody claimed names nobody. */
	kvpull_status_set(&f->now[3].joined, 5);
	take(f, 3, 8);
	report_at(f, f->now_ns + LEASE, 3, 8, KVPULL_END_EXPIRED);
	assert_int_equal(kvpull_status_get(&f->now[3].joined), 0);
	assert_int_equal(f->side.event_next, 0);
}

/* Age and last word begin with the take; a ring may be given up after claims. */
APART_TEST(hold_is_shown_from_its_take_on_and_claimed_until_its_release)
{
	poll_at(f, START + 5);
	take(f, 2, 7);
	assert_int_equal(kvpull_status_get(&f->rows[2].taken_ns), START + 5);
	assert_int_equal(kvpull_status_get(&f->now[2].word_ns), START + 5);
	assert_false(kvpull_holds_is_claimed(f->holds, a.instance));
	claim(f, a, 2, 7);
	assert_true(kvpull_holds_is_claimed(f->holds, a.instance));
	assert_false(kvpull_holds_is_claimed(f->holds, b.instance));
	release(f, a, 2, 7);
	report_at(f, START + 6, 2, 7, KVPULL_END_RELEASED);
	assert_false(kvpull_holds_is_claimed(f->holds, a.instance));
}

/* Memory behind the table looks like an instance that is here. */
ONE_TEST(words_of_an_instance_beyond_the_table_are_unknown)
{
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
