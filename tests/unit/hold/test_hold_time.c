/* SPDX-License-Identifier: Apache-2.0 */
/* Leases, stalls and deaths of the hold table: semantics B.4, B.5, B.6. */
#include "tests/unit/hold/world.h"

/* B.4 */
TEST(unclaimed_hold_ends_at_its_lease)
{
	take(f, 2, 1);
	expires_at(f, START + LEASE, 2, 1);
	assert_int_equal(counts_of(f).expired, 1);
	assert_int_equal(lines.counts[KVPULL_LOG_DEBUG], 1);
	assert_non_null(strstr(lines.last, "lease"));
	assert_non_null(strstr(lines.last, "nobody"));
	expect_fresh(f);
}

TEST(claimed_hold_ends_a_lease_after_the_last_sign)
{
	const struct who a = rank_of(f, 0xa1, 0, 2);

	take_claimed(f, a, 2, 1);
	poll_at(f, START + 2000);
	beat(f, a);
	expires_at(f, START + 2000 + LEASE, 2, 1);
	assert_non_null(strstr(lines.last, "0xa1"));
}

/*
 * A worker that was restarted alone, or had no room for the ticket, never says
 * a word on it: its siblings' heartbeats, for other tickets, kept the hold
 * until hold_max.
 */
PAIR_TEST(rank_that_never_claims_is_waited_for_a_lease)
{
	take_claimed(f, r0, 0, 1);
	poll_at(f, START + 1000);
	release(f, r0, 0, 1);
	poll_at(f, START + 3000);
	beat(f, r0);
	beat(f, r1);
	expires_at(f, START + 1000 + LEASE, 0, 1);
	assert_non_null(strstr(lines.last, "released 1 of 2 owing 0"));
}

TEST(rank_that_claimed_is_waited_for_while_it_beats)
{
	const struct who r0 = rank_of(f, 1, 0, 64);
	const struct who r40 = rank_of(f, 1, 40, 64);
	uint64_t at_ns;

	take_claimed(f, r0, 0, 1);
	claim(f, r40, 0, 1);
	release(f, r0, 0, 1);
	for (at_ns = START; at_ns < START + 4 * LEASE; at_ns += LEASE / 3) {
		poll_at(f, at_ns);
		beat(f, r40);
		expect_nothing(f);
	}
	release(f, r40, 0, 1);
	report_at(f, f->now_ns + LEASE, 0, 1, KVPULL_END_EXPIRED);
}

/*
 * The siblings may still come: a long silence of another rank does not cut them
 * off.
 */
PAIR_TEST(death_of_who_owed_a_word_is_the_last_one)
{
	take_claimed(f, r0, 0, 1);
	poll_at(f, START + 2000);
	leave(f, r0);
	nothing_at(f, START + 2000 + LEASE - 1);
	claim(f, r1, 0, 1);
	release_ends(f, r1, 0, 1);
}

TEST(stranger_does_not_renew)
{
	const struct who b = rank_of(f, 2, 0, 1);

	take(f, 0, 1);
	poll_at(f, START + 2000);
	beat(f, b);
	report_at(f, START + LEASE, 0, 1, KVPULL_END_EXPIRED);
}

/* vllm #58222 */
ONE_TEST(renewed_hold_hides_nothing_behind_it)
{
	take_claimed(f, a, 0, 1);
	poll_at(f, START + 500);
	take(f, 1, 1);
	poll_at(f, START + 2500);
	beat(f, a);
	report_at(f, START + 500 + LEASE, 1, 1, KVPULL_END_EXPIRED);
	expect_nothing(f);
	assert_int_equal(counts_of(f).live, 1);
}

/* B.5; vllm #35764, #41383 */
ONE_TEST(heartbeats_do_not_move_hold_max)
{
	uint64_t at;

	take_claimed(f, a, 0, 1);
	for (at = 500; at < HOLD_MAX; at += 500) {
		poll_at(f, START + at);
		beat(f, a);
		expect_nothing(f);
	}
	report_at(f, START + HOLD_MAX, 0, 1, KVPULL_END_EXPIRED);
	assert_non_null(strstr(lines.last, "hold_max"));
}

TEST(stall_moves_leases_and_not_hold_max)
{
	const uint64_t stall = HOLD_MAX - 2 * LEASE;

	take(f, 0, 1);
	f->now_ns += stall; /* one tick: the producer did not poll */
	tick(f);
	nothing_at(f, f->now_ns);
	expires_at(f, START + stall + LEASE, 0, 1);

	take(f, 1, 1);
	f->now_ns += HOLD_MAX;
	tick(f);
	report_at(f, f->now_ns, 1, 1, KVPULL_END_EXPIRED);
}

TEST(third_of_a_lease_is_no_stall)
{
	take(f, 0, 1);
	for (; f->now_ns < START + LEASE;) {
		f->now_ns += LEASE / 3;
		tick(f);
	}
	report_at(f, f->now_ns, 0, 1, KVPULL_END_EXPIRED);
}

TEST(sleeper_until_each_deadline_still_expires)
{
	uint32_t polls = 0;

	take(f, 0, 1);
	while (counts_of(f).live) {
		f->now_ns = kvpull_holds_deadline(f->holds);
		tick(f);
		while (kvpull_holds_sweep(f->holds, f->now_ns))
			;
		assert_true(++polls < 10);
	}
	assert_int_equal(f->now_ns, START + LEASE);
}

TEST(take_in_a_step_is_dated_by_its_stamp)
{
	f->now_ns += 10 * HOLD_MAX; /* idle: nobody polled */
	kvpull_holds_stamp(f->holds, f->now_ns, KVPULL_NO_THREAD);
	take(f, 0, 1);
	kvpull_holds_tick(f->holds, f->now_ns + 1, KVPULL_NO_THREAD);
	expires_at(f, START + 10 * HOLD_MAX + LEASE, 0, 1);
}

/* Another table, of so many slots. */
static struct kvpull_holds *table_open(struct fixture *f,
				       struct kvpull_arena *arena,
				       struct kvpull_revocation_entry *entries,
				       uint32_t slot_count)
{
	struct kvpull_hold_params params = f->params;
	struct kvpull_holds *holds;

	params.entries = entries;
	params.hold_count_max = slot_count;
	params.shown = (struct kvpull_status_holds){ 0 };
	kvpull_arena_init(arena, NULL);
	holds = kvpull_holds_open(&params, arena);
	assert_non_null(holds);
	return holds;
}

TEST(take_before_the_first_poll_is_dated_by_it)
{
	struct kvpull_revocation_entry entries[SLOTS] = { 0 };
	struct kvpull_arena arena;
	struct kvpull_holds *holds = table_open(f, &arena, entries, SLOTS);

	assert_int_equal(kvpull_holds_take(holds, 0, 1, 1), 0);
	kvpull_holds_tick(holds, START, KVPULL_NO_THREAD);
	assert_int_equal(kvpull_holds_sweep(holds, START), 0);
	assert_int_equal(entries[0].revoked, 0);
	kvpull_arena_fini(&arena);
}

TEST(sweep_expires_a_bounded_number)
{
	static struct kvpull_revocation_entry entries[200];
	struct kvpull_arena arena;
	struct kvpull_holds *holds = table_open(f, &arena, entries, 200);
	struct kvpull_hold_counts counts;
	uint32_t slot;

	kvpull_holds_tick(holds, START, KVPULL_NO_THREAD);
	for (slot = 0; slot < 200; slot++)
		assert_int_equal(kvpull_holds_take(holds, slot, 1, slot + 1),
				 0);
	assert_int_equal(kvpull_holds_sweep(holds, START + LEASE), 1);
	kvpull_holds_counts(holds, &counts);
	assert_int_equal(counts.expired, KVPULL_EXPIRE_MAX);
	assert_int_equal(kvpull_holds_sweep(holds, START + LEASE), 1);
	assert_int_equal(kvpull_holds_sweep(holds, START + LEASE), 1);
	assert_int_equal(kvpull_holds_sweep(holds, START + LEASE), 0);
	kvpull_holds_counts(holds, &counts);
	assert_int_equal(counts.expired, 200);
	kvpull_arena_fini(&arena);
}

/* B.6 */
ONE_TEST(dead_instance_releases_all_it_claimed)
{
	struct kvpull_hold_end ends[SLOTS];

	take(f, 0, 1);
	take(f, 1, 1);
	take(f, 2, 1);
	claim(f, a, 0, 1);
	claim(f, a, 2, 1);
	leave(f, a);
	assert_true(kvpull_holds_deadline(f->holds) <= f->now_ns);
	poll_at(f, f->now_ns);
	assert_int_equal(kvpull_holds_report(f->holds, ends, SLOTS), 2);
	assert_int_equal(ends[0].reason, KVPULL_END_RELEASED);
	assert_false(is_revoked(f, 1, 1));
	assert_int_equal(counts_of(f).consumers_died, 1);
}

PAIR_TEST(dead_rank_counts_for_claims_of_its_instance)
{
	take_claimed(f, r0, 0, 1);
	leave_and_poll(f, r1);
	expect_nothing(f);
	/*
	 * The rank's next life owes nothing on holds that were claimed before.
	 */
	(void)join(f, 1, 1, 2);
	release_ends(f, r0, 0, 1);

	/* But it does on what is claimed from the next poll on. */
	tick(f);
	take(f, 1, 1);
	release_waits(f, r0, 1, 1);
	release_ends(f, r1, 1, 1);
}

PAIR_TEST(rank_that_is_gone_strands_nothing_new)
{
	leave_and_poll(f, r1);
	take_claimed(f, r0, 0, 1);
	expect_nothing(f);
	release_ends(f, r0, 0, 1);
	leave(f, r0);
	expect_fresh(f);
}

TEST(instance_dies_with_ranks_that_never_came)
{
	const struct who r0 = rank_of(f, 1, 0, 4);
	const struct who r1 = rank_of(f, 1, 1, 4);

	take_claimed(f, r0, 0, 1);
	leave_and_poll(f, r0);
	expect_nothing(f);
	leave(f, r1);
	report_at(f, f->now_ns, 0, 1, KVPULL_END_RELEASED);
	expect_fresh(f);
}

GRACE_ONE_TEST(join_within_the_grace_cancels_the_death)
{
	take_claimed(f, a, 0, 1);
	leave(f, a);
	nothing_at(f, START + LEASE / 2 - 1);
	assert_int_equal(join(f, 0xa1, 0, 1), a.instance);
	nothing_at(f, START + LEASE / 2);
	assert_int_equal(counts_of(f).consumers_died, 0);
	leave(f, a);
	nothing_at(f, START + LEASE - 1);
	report_at(f, START + LEASE, 0, 1, KVPULL_END_RELEASED);
	expect_fresh(f);
}

ONE_TEST(loss_over_a_network_has_a_lease_of_grace)
{
	take_claimed(f, a, 0, 1);
	kvpull_holds_lose(f->holds, a.instance, 0, f->now_ns);
	nothing_at(f, START + LEASE / 2);
	assert_int_equal(join(f, 0xa1, 0, 1), a.instance);
	beat(f, a);
	nothing_at(f, START + LEASE);
	kvpull_holds_lose(f->holds, a.instance, 0, f->now_ns);
	poll_at(f, START + 2 * LEASE);
	assert_int_equal(counts_of(f).consumers_died, 1);
}

/* A sweep makes ranks dead, and nothing else does. */
ONE_TEST(worker_that_is_back_before_the_sweep_is_not_dead)
{
	take_claimed(f, a, 0, 1);
	leave(f, a);
	assert_int_equal(join(f, 0xa1, 0, 1), a.instance);
	nothing_at(f, f->now_ns);
	assert_int_equal(counts_of(f).consumers_died, 0);
}

#define MANY 10000u

/* A table of many holds, all of them claimed by rank 0 of an instance. */
struct many {
	struct kvpull_arena arena;
	struct kvpull_holds *holds;
	uint32_t instance;
	uint32_t rank_count;
};

static int many_join(struct many *many, uint32_t rank)
{
	return join_ids(many->holds, 1, rank, many->rank_count, START,
			&many->instance);
}

static void many_open(struct many *many, struct fixture *f, uint32_t rank_count)
{
	static struct kvpull_revocation_entry entries[MANY];
	uint32_t slot;

	memset(entries, 0, sizeof(entries));
	many->rank_count = rank_count;
	many->holds = table_open(f, &many->arena, entries, MANY);
	kvpull_holds_tick(many->holds, START, KVPULL_NO_THREAD);
	assert_int_equal(many_join(many, 0), 0);
	for (slot = 0; slot < MANY; slot++) {
		const struct kvpull_record record =
			record_of(f, KVPULL_NOTE_CLAIM, slot, 1);

		assert_int_equal(
			kvpull_holds_take(many->holds, slot, 1, slot + 1), 0);
		kvpull_holds_note(many->holds, many->instance, 0, &record,
				  START);
	}
}

static void many_leave(struct many *many, uint32_t rank)
{
	kvpull_holds_leave(many->holds, many->instance, rank, START);
}

static uint32_t many_sweep(struct many *many)
{
	uint32_t sweeps = 1;

	while (kvpull_holds_sweep(many->holds, START))
		sweeps++;
	return sweeps;
}

static uint64_t many_released(const struct many *many)
{
	struct kvpull_hold_counts counts;

	kvpull_holds_counts(many->holds, &counts);
	return counts.released;
}

TEST(deaths_are_worked_off_in_bounded_scans)
{
	struct many many;

	many_open(&many, f, 1);
	many_leave(&many, 0);
	assert_int_equal(kvpull_holds_sweep(many.holds, START), 1);
	assert_int_equal(many_released(&many), KVPULL_SCAN_MAX);
	assert_int_equal(kvpull_holds_deadline(many.holds), START);
	assert_int_equal(many_join(&many, 0), KVPULL_EAGAIN);
	assert_int_equal(many_sweep(&many), 2);
	assert_int_equal(many_released(&many), MANY);
	kvpull_arena_fini(&many.arena);
}

/* Rank 1 is dead and looked through; with rank 0 the instance is over. */
TEST(no_rank_joins_an_instance_that_is_being_looked_through)
{
	struct many many;

	many_open(&many, f, 2);
	assert_int_equal(many_join(&many, 1), 0);
	many_leave(&many, 1);
	(void)many_sweep(&many);
	many_leave(&many, 0);
	assert_int_equal(kvpull_holds_sweep(many.holds, START), 1);
	assert_int_equal(many_join(&many, 1), KVPULL_EAGAIN);
	(void)many_sweep(&many);
	assert_int_equal(many_join(&many, 1), 0);
	kvpull_arena_fini(&many.arena);
}

TEST(rank_joins_after_all_that_its_death_releases)
{
	struct many many;
	uint32_t before;

	many_open(&many, f, 2);
	before = many.instance;
	assert_int_equal(many_join(&many, 1), 0);
	many_leave(&many, 0);
	assert_int_equal(kvpull_holds_sweep(many.holds, START), 1);
	assert_int_equal(many_join(&many, 0), KVPULL_EAGAIN);
	(void)many_sweep(&many);
	assert_int_equal(many_join(&many, 0), 0);
	assert_int_equal(many.instance, before);
	kvpull_arena_fini(&many.arena);
}

TEST(join_checks_what_it_is_told)
{
	static struct kvpull_join wrong[] = {
		{ .instance_id = 1, .rank = 0, .rank_count = 2 },
		{ .instance_id = 1, .rank = 1, .rank_count = 3 },
		{ .instance_id = 2, .rank = 2, .rank_count = 2 },
		{ .instance_id = 2, .rank = 0, .rank_count = 65 },
	};
	uint32_t instance = 77;
	uint32_t i;

	(void)join(f, 1, 0, 2);
	for (i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(kvpull_holds_join(f->holds, &wrong[i], START,
						   &instance),
				 KVPULL_EREJECTED);
	for (i = 1; i < INSTANCES; i++)
		(void)join(f, 100 + i, 0, 1);
	assert_int_equal(join_ids(f->holds, 2, 0, 1, START, &instance),
			 KVPULL_EFULL);
	assert_int_equal(instance, 77);
}

/* A restarted engine with its old id is another instance. */
APART_TEST(dead_instance_may_come_back_with_other_ranks)
{
	struct who again;

	take_claimed(f, a, 0, 1);
	claim(f, b, 0, 1);
	leave_and_poll(f, a);
	again = rank_of(f, 0xa1, 0, 2);
	assert_int_not_equal(again.instance, a.instance);
	claim(f, again, 0, 1);
	release_waits(f, b, 0, 1);
	leave(f, again);
	report_at(f, f->now_ns, 0, 1, KVPULL_END_RELEASED);
	leave(f, b);
	expect_fresh(f);
}
