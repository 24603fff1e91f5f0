/* SPDX-License-Identifier: Apache-2.0 */
/* Leases, stalls and deaths of the hold table: semantics B.4, B.5, B.6. */
#include "tests/unit/hold/world.h"

/* B.4 */
TEST(unclaimed_hold_ends_at_its_lease)
{
	struct fixture *f = fixture_of(state);

	take(f, 2, 1);
	poll_at(f, START + LEASE - 1);
	expect_nothing(f);
	poll_at(f, START + LEASE);
	expect_report(f, 2, 1, KVPULL_END_EXPIRED);
	assert_int_equal(counts_of(f).expired, 1);
	assert_int_equal(lines.counts[KVPULL_LOG_DEBUG], 1);
	assert_non_null(strstr(lines.last, "lease"));
	assert_non_null(strstr(lines.last, "nobody"));
	expect_fresh(f);
}

TEST(claimed_hold_ends_a_lease_after_the_last_sign)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 0xa1, 0, 2), 0 };

	take(f, 2, 1);
	claim(f, a, 2, 1);
	poll_at(f, START + 2000);
	kvpull_holds_beat(f->holds, a.instance, a.rank, f->now_ns);
	poll_at(f, START + 2000 + LEASE - 1);
	expect_nothing(f);
	poll_at(f, START + 2000 + LEASE);
	expect_report(f, 2, 1, KVPULL_END_EXPIRED);
	assert_non_null(strstr(lines.last, "0xa1"));
}

/*
 * A worker that was restarted alone, or had no room for the ticket, never says
 * a word on it: its siblings' heartbeats, for other tickets, kept the hold
 * until hold_max.
 */
TEST(rank_that_never_claims_is_waited_for_a_lease)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = { join(f, 1, 0, 2), 0 };
	const struct who r1 = { join(f, 1, 1, 2), 1 };

	take(f, 0, 1);
	claim(f, r0, 0, 1);
	poll_at(f, START + 1000);
	release(f, r0, 0, 1);
	poll_at(f, START + 3000);
	kvpull_holds_beat(f->holds, r0.instance, r0.rank, f->now_ns);
	kvpull_holds_beat(f->holds, r1.instance, r1.rank, f->now_ns);
	poll_at(f, START + 1000 + LEASE - 1);
	expect_nothing(f);
	poll_at(f, START + 1000 + LEASE);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
	assert_non_null(strstr(lines.last, "released 1 of 2 owing 0"));
}

TEST(rank_that_claimed_is_waited_for_while_it_beats)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = { join(f, 1, 0, 64), 0 };
	const struct who r40 = { join(f, 1, 40, 64), 40 };
	uint64_t at_ns;

	take(f, 0, 1);
	claim(f, r0, 0, 1);
	claim(f, r40, 0, 1);
	release(f, r0, 0, 1);
	for (at_ns = START; at_ns < START + 4 * LEASE; at_ns += LEASE / 3) {
		poll_at(f, at_ns);
		kvpull_holds_beat(f->holds, r40.instance, 40, f->now_ns);
		expect_nothing(f);
	}
	release(f, r40, 0, 1);
	poll_at(f, f->now_ns + LEASE);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

/*
 * The siblings may still come: a long silence of another rank does not cut them
 * off.
 */
TEST(death_of_who_owed_a_word_is_the_last_one)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = { join(f, 1, 0, 2), 0 };
	const struct who r1 = { join(f, 1, 1, 2), 1 };

	take(f, 0, 1);
	claim(f, r0, 0, 1);
	poll_at(f, START + 2000);
	leave(f, r0);
	poll_at(f, START + 2000 + LEASE - 1);
	expect_nothing(f);
	claim(f, r1, 0, 1);
	release(f, r1, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
}

TEST(stranger_does_not_renew)
{
	struct fixture *f = fixture_of(state);
	const struct who b = { join(f, 2, 0, 1), 0 };

	take(f, 0, 1);
	poll_at(f, START + 2000);
	kvpull_holds_beat(f->holds, b.instance, b.rank, f->now_ns);
	poll_at(f, START + LEASE);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

/* vllm #58222 */
TEST(renewed_hold_hides_nothing_behind_it)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 1, 0, 1), 0 };

	take(f, 0, 1);
	claim(f, a, 0, 1);
	poll_at(f, START + 500);
	take(f, 1, 1);
	poll_at(f, START + 2500);
	kvpull_holds_beat(f->holds, a.instance, a.rank, f->now_ns);
	poll_at(f, START + 500 + LEASE);
	expect_report(f, 1, 1, KVPULL_END_EXPIRED);
	expect_nothing(f);
	assert_int_equal(counts_of(f).live, 1);
}

/* B.5; vllm #35764, #41383 */
TEST(heartbeats_do_not_move_hold_max)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 1, 0, 1), 0 };
	uint64_t at;

	take(f, 0, 1);
	claim(f, a, 0, 1);
	for (at = 500; at < HOLD_MAX; at += 500) {
		poll_at(f, START + at);
		kvpull_holds_beat(f->holds, a.instance, 0, f->now_ns);
		expect_nothing(f);
	}
	poll_at(f, START + HOLD_MAX);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
	assert_non_null(strstr(lines.last, "hold_max"));
}

TEST(stall_moves_leases_and_not_hold_max)
{
	struct fixture *f = fixture_of(state);
	const uint64_t stall = HOLD_MAX - 2 * LEASE;

	take(f, 0, 1);
	f->now_ns += stall; /* one tick: the producer did not poll */
	kvpull_holds_tick(f->holds, f->now_ns, KVPULL_NO_THREAD);
	poll_at(f, f->now_ns);
	expect_nothing(f);
	poll_at(f, START + stall + LEASE - 1);
	expect_nothing(f);
	poll_at(f, START + stall + LEASE);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);

	take(f, 1, 1);
	f->now_ns += HOLD_MAX;
	kvpull_holds_tick(f->holds, f->now_ns, KVPULL_NO_THREAD);
	poll_at(f, f->now_ns);
	expect_report(f, 1, 1, KVPULL_END_EXPIRED);
}

TEST(third_of_a_lease_is_no_stall)
{
	struct fixture *f = fixture_of(state);

	take(f, 0, 1);
	for (; f->now_ns < START + LEASE;) {
		f->now_ns += LEASE / 3;
		kvpull_holds_tick(f->holds, f->now_ns, KVPULL_NO_THREAD);
	}
	poll_at(f, f->now_ns);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

TEST(sleeper_until_each_deadline_still_expires)
{
	struct fixture *f = fixture_of(state);
	uint32_t polls = 0;

	take(f, 0, 1);
	while (counts_of(f).live) {
		f->now_ns = kvpull_holds_deadline(f->holds);
		kvpull_holds_tick(f->holds, f->now_ns, KVPULL_NO_THREAD);
		while (kvpull_holds_sweep(f->holds, f->now_ns))
			;
		assert_true(++polls < 10);
	}
	assert_int_equal(f->now_ns, START + LEASE);
}

TEST(take_in_a_step_is_dated_by_its_stamp)
{
	struct fixture *f = fixture_of(state);

	f->now_ns += 10 * HOLD_MAX; /* idle: nobody polled */
	kvpull_holds_stamp(f->holds, f->now_ns, KVPULL_NO_THREAD);
	take(f, 0, 1);
	kvpull_holds_tick(f->holds, f->now_ns + 1, KVPULL_NO_THREAD);
	poll_at(f, START + 10 * HOLD_MAX + LEASE - 1);
	expect_nothing(f);
	poll_at(f, START + 10 * HOLD_MAX + LEASE);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

TEST(take_before_the_first_poll_is_dated_by_it)
{
	struct fixture *f = fixture_of(state);
	struct kvpull_revocation_entry entries[SLOTS] = { 0 };
	struct kvpull_hold_params params = f->params;
	struct kvpull_arena arena;
	struct kvpull_holds *holds;

	params.entries = entries;
	kvpull_arena_init(&arena, NULL);
	holds = kvpull_holds_open(&params, &arena);
	assert_non_null(holds);
	assert_int_equal(kvpull_holds_take(holds, 0, 1, 1), 0);
	kvpull_holds_tick(holds, START, KVPULL_NO_THREAD);
	assert_int_equal(kvpull_holds_sweep(holds, START), 0);
	assert_int_equal(entries[0].revoked, 0);
	kvpull_arena_fini(&arena);
}

TEST(sweep_expires_a_bounded_number)
{
	struct fixture *f = fixture_of(state);
	struct kvpull_hold_params params = f->params;
	static struct kvpull_revocation_entry entries[200];
	struct kvpull_arena arena;
	struct kvpull_holds *holds;
	struct kvpull_hold_counts counts;
	uint32_t slot;

	params.entries = entries;
	params.hold_count_max = 200;
	params.shown = (struct kvpull_status_holds){ 0 };
	kvpull_arena_init(&arena, NULL);
	holds = kvpull_holds_open(&params, &arena);
	assert_non_null(holds);
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
TEST(dead_instance_releases_all_it_claimed)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 1, 0, 1), 0 };
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

TEST(dead_rank_counts_for_claims_of_its_instance)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = { join(f, 1, 0, 2), 0 };
	const struct who r1 = { join(f, 1, 1, 2), 1 };

	take(f, 0, 1);
	claim(f, r0, 0, 1);
	leave(f, r1);
	poll_at(f, f->now_ns);
	expect_nothing(f);
	/*
	 * The rank's next life owes nothing on holds that were claimed before.
	 */
	(void)join(f, 1, 1, 2);
	release(f, r0, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);

	/* But it does on what is claimed from the next poll on. */
	kvpull_holds_tick(f->holds, f->now_ns, KVPULL_NO_THREAD);
	take(f, 1, 1);
	release(f, r0, 1, 1);
	expect_nothing(f);
	release(f, r1, 1, 1);
	expect_report(f, 1, 1, KVPULL_END_RELEASED);
}

TEST(rank_that_is_gone_strands_nothing_new)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = { join(f, 1, 0, 2), 0 };
	const struct who r1 = { join(f, 1, 1, 2), 1 };

	leave(f, r1);
	poll_at(f, f->now_ns);
	take(f, 0, 1);
	claim(f, r0, 0, 1);
	expect_nothing(f);
	release(f, r0, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	leave(f, r0);
	expect_fresh(f);
}

TEST(instance_dies_with_ranks_that_never_came)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = { join(f, 1, 0, 4), 0 };
	const struct who r1 = { join(f, 1, 1, 4), 1 };

	take(f, 0, 1);
	claim(f, r0, 0, 1);
	leave(f, r0);
	poll_at(f, f->now_ns);
	expect_nothing(f);
	leave(f, r1);
	poll_at(f, f->now_ns);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	expect_fresh(f);
}

UNIT_TEST_WITH(join_within_the_grace_cancels_the_death, setup_with_grace,
	       teardown)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 1, 0, 1), 0 };

	take(f, 0, 1);
	claim(f, a, 0, 1);
	leave(f, a);
	poll_at(f, START + LEASE / 2 - 1);
	expect_nothing(f);
	assert_int_equal(join(f, 1, 0, 1), a.instance);
	poll_at(f, START + LEASE / 2);
	expect_nothing(f);
	assert_int_equal(counts_of(f).consumers_died, 0);
	leave(f, a);
	poll_at(f, START + LEASE - 1);
	expect_nothing(f);
	poll_at(f, START + LEASE);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	expect_fresh(f);
}

TEST(loss_over_a_network_has_a_lease_of_grace)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 1, 0, 1), 0 };

	take(f, 0, 1);
	claim(f, a, 0, 1);
	kvpull_holds_lose(f->holds, a.instance, 0, f->now_ns);
	poll_at(f, START + LEASE / 2);
	expect_nothing(f);
	assert_int_equal(join(f, 1, 0, 1), a.instance);
	kvpull_holds_beat(f->holds, a.instance, 0, f->now_ns);
	poll_at(f, START + LEASE);
	expect_nothing(f);
	kvpull_holds_lose(f->holds, a.instance, 0, f->now_ns);
	poll_at(f, START + 2 * LEASE);
	assert_int_equal(counts_of(f).consumers_died, 1);
}

/* A sweep makes ranks dead, and nothing else does. */
TEST(worker_that_is_back_before_the_sweep_is_not_dead)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 1, 0, 1), 0 };

	take(f, 0, 1);
	claim(f, a, 0, 1);
	leave(f, a);
	assert_int_equal(join(f, 1, 0, 1), a.instance);
	poll_at(f, f->now_ns);
	expect_nothing(f);
	assert_int_equal(counts_of(f).consumers_died, 0);
}

#define MANY 10000u

/* A table of many holds, all of them claimed by rank 0 of an instance. */
static struct kvpull_holds *many_open(struct fixture *f,
				      struct kvpull_arena *arena,
				      uint32_t rank_count, uint32_t *instance)
{
	static struct kvpull_revocation_entry entries[MANY];
	struct kvpull_hold_params params = f->params;
	struct kvpull_holds *holds;
	uint32_t slot;

	memset(entries, 0, sizeof(entries));
	params.entries = entries;
	params.hold_count_max = MANY;
	params.shown = (struct kvpull_status_holds){ 0 };
	kvpull_arena_init(arena, NULL);
	holds = kvpull_holds_open(&params, arena);
	assert_non_null(holds);
	kvpull_holds_tick(holds, START, KVPULL_NO_THREAD);
	assert_int_equal(join_ids(holds, 1, 0, rank_count, START, instance), 0);
	for (slot = 0; slot < MANY; slot++) {
		const struct kvpull_record record =
			record_of(f, KVPULL_NOTE_CLAIM, slot, 1);

		assert_int_equal(kvpull_holds_take(holds, slot, 1, slot + 1),
				 0);
		kvpull_holds_note(holds, *instance, 0, &record, START);
	}
	return holds;
}

TEST(deaths_are_worked_off_in_bounded_scans)
{
	struct fixture *f = fixture_of(state);
	struct kvpull_hold_counts counts;
	struct kvpull_arena arena;
	struct kvpull_holds *holds;
	uint32_t d, again, sweeps = 1;

	holds = many_open(f, &arena, 1, &d);
	kvpull_holds_leave(holds, d, 0, START);
	assert_int_equal(kvpull_holds_sweep(holds, START), 1);
	kvpull_holds_counts(holds, &counts);
	assert_int_equal(counts.released, KVPULL_SCAN_MAX);
	assert_int_equal(kvpull_holds_deadline(holds), START);
	assert_int_equal(join_ids(holds, 1, 0, 1, START, &again),
			 KVPULL_EAGAIN);
	while (kvpull_holds_sweep(holds, START))
		sweeps++;
	assert_int_equal(sweeps, 2);
	kvpull_holds_counts(holds, &counts);
	assert_int_equal(counts.released, MANY);
	kvpull_arena_fini(&arena);
}

/* Rank 1 is dead and looked through; with rank 0 the instance is over. */
TEST(no_rank_joins_an_instance_that_is_being_looked_through)
{
	struct fixture *f = fixture_of(state);
	struct kvpull_arena arena;
	struct kvpull_holds *holds;
	uint32_t d, again;

	holds = many_open(f, &arena, 2, &d);
	assert_int_equal(join_ids(holds, 1, 1, 2, START, &again), 0);
	kvpull_holds_leave(holds, d, 1, START);
	while (kvpull_holds_sweep(holds, START))
		;
	kvpull_holds_leave(holds, d, 0, START);
	assert_int_equal(kvpull_holds_sweep(holds, START), 1);
	assert_int_equal(join_ids(holds, 1, 1, 2, START, &again),
			 KVPULL_EAGAIN);
	while (kvpull_holds_sweep(holds, START))
		;
	assert_int_equal(join_ids(holds, 1, 1, 2, START, &again), 0);
	kvpull_arena_fini(&arena);
}

TEST(rank_joins_after_all_that_its_death_releases)
{
	struct fixture *f = fixture_of(state);
	struct kvpull_arena arena;
	struct kvpull_holds *holds;
	uint32_t d, again;

	holds = many_open(f, &arena, 2, &d);
	assert_int_equal(join_ids(holds, 1, 1, 2, START, &again), 0);
	kvpull_holds_leave(holds, d, 0, START);
	assert_int_equal(kvpull_holds_sweep(holds, START), 1);
	assert_int_equal(join_ids(holds, 1, 0, 2, START, &again),
			 KVPULL_EAGAIN);
	while (kvpull_holds_sweep(holds, START))
		;
	assert_int_equal(join_ids(holds, 1, 0, 2, START, &again), 0);
	assert_int_equal(again, d);
	kvpull_arena_fini(&arena);
}

TEST(join_checks_what_it_is_told)
{
	struct fixture *f = fixture_of(state);
	uint32_t instance = 77;
	uint32_t i;

	(void)join(f, 1, 0, 2);
	assert_int_equal(join_ids(f->holds, 1, 0, 2, START, &instance),
			 KVPULL_EREJECTED);
	assert_int_equal(join_ids(f->holds, 1, 1, 3, START, &instance),
			 KVPULL_EREJECTED);
	assert_int_equal(join_ids(f->holds, 2, 2, 2, START, &instance),
			 KVPULL_EREJECTED);
	assert_int_equal(join_ids(f->holds, 2, 0, 65, START, &instance),
			 KVPULL_EREJECTED);
	for (i = 1; i < INSTANCES; i++)
		(void)join(f, 100 + i, 0, 1);
	assert_int_equal(join_ids(f->holds, 2, 0, 1, START, &instance),
			 KVPULL_EFULL);
	assert_int_equal(instance, 77);
}

/* A restarted engine with its old id is another instance. */
TEST(dead_instance_may_come_back_with_other_ranks)
{
	struct fixture *f = fixture_of(state);
	const struct who a = { join(f, 1, 0, 1), 0 };
	const struct who b = { join(f, 2, 0, 1), 0 };
	struct who again;

	take(f, 0, 1);
	claim(f, a, 0, 1);
	claim(f, b, 0, 1);
	leave(f, a);
	poll_at(f, f->now_ns);
	again = (struct who){ join(f, 1, 0, 2), 0 };
	assert_int_not_equal(again.instance, a.instance);
	claim(f, again, 0, 1);
	release(f, b, 0, 1);
	expect_nothing(f);
	leave(f, again);
	poll_at(f, f->now_ns);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	leave(f, b);
	expect_fresh(f);
}
