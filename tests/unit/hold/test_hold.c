/* SPDX-License-Identifier: Apache-2.0 */
/* The hold table, rule by rule: semantics A.2, A.8, A.9, B.3, B.7, C.1, C.4. */
#include "tests/unit/hold/world.h"

TEST(open_writes_the_incarnation_everywhere)
{
	uint32_t slot;

	for (slot = 0; slot < SLOTS; slot++)
		assert_false(is_revoked(f, slot, 1));
}

TEST(open_refuses_a_small_arena)
{
	struct kvpull_arena arena;
	struct kvpull_holds *holds = NULL;
	size_t bytes;

	/* Whichever of its tables is the first without room. */
	for (bytes = 0; !holds; bytes += KVPULL_CACHE_LINE) {
		kvpull_arena_init(&arena, NULL);
		arena.bytes_max = bytes;
		holds = kvpull_holds_open(&f->params, &arena);
		assert_int_equal(holds != NULL, kvpull_arena_ok(&arena));
		kvpull_arena_fini(&arena);
	}
	assert_true(bytes > 4096);
}

/* A half before the one that is followed may have given out such tickets. */
ONE_TEST(what_another_half_gave_out_is_dead)
{
	uint32_t slot;

	claim(f, a, 2, 40);
	claim(f, a, 3, 41);
	claim(f, a, 4, 42);
	(void)kvpull_holds_revoke_all(f->holds, KVPULL_END_REVOKED);
	claim(f, a, 5, 41);
	kvpull_holds_begin(f->holds, 40);
	for (slot = 0; slot < SLOTS; slot++) {
		assert_true(is_revoked(f, slot, 40));
		/*
		 * Generations of this half are live, but for those revoked
		 * meanwhile.
		 */
		assert_int_equal(is_revoked(f, slot, 41),
				 slot == 3 || slot == 4);
	}
	assert_int_equal(counts_of(f).staged, 3);
	assert_int_equal(kvpull_holds_generation_max(f->holds), 42);
	/* Nor is any staged from now on. */
	claim(f, a, 6, 40);
	release(f, a, 7, 39);
	assert_int_equal(counts_of(f).staged, 3);
	assert_int_equal(counts_of(f).unknown, 2);
	/* And no half that is followed can have them. */
	assert_int_equal(kvpull_holds_take(f->holds, 6, 40, 106),
			 KVPULL_EINVAL);
	assert_int_equal(
		kvpull_holds_end(f->holds, 6, 40, 106, KVPULL_END_ABORTED),
		KVPULL_EINVAL);
	take_claimed(f, a, 6, 41);
	release_ends(f, a, 6, 41);
	take(f, 5, 41);
	release_ends(f, a, 5, 41);
}

PAIR_TEST(hold_is_released_by_last_rank)
{
	assert_int_equal(r1.instance, r0.instance);
	take_claimed(f, r0, 3, 1);
	claim(f, r1, 3, 1);
	release_waits(f, r0, 3, 1);
	assert_false(is_revoked(f, 3, 1));
	release_ends(f, r1, 3, 1);
	expect_nothing(f);
	leave(f, r0);
	leave(f, r1);
	expect_fresh(f);
}

TEST(release_implies_a_claim)
{
	const struct who a = rank_of(f, 1, 0, 1);
	const struct who b = rank_of(f, 2, 0, 2);
	const struct who b1 = rank_of(f, 2, 1, 2);

	take(f, 0, 1);
	release(f, b, 0, 1);
	release_waits(f, a, 0, 1); /* b has claimed and is incomplete */
	release_ends(f, b1, 0, 1);
}

TEST(instances_are_counted_and_not_ranks)
{
	const struct who a = rank_of(f, 1, 0, 2);
	const struct who b = rank_of(f, 2, 0, 2);
	const struct who a1 = rank_of(f, 1, 1, 2);

	take(f, 0, 1);
	release(f, a, 0, 1);
	release(f, b, 0, 1); /* two ranks, of different instances */
	release_waits(f, a1, 0, 1);
	assert_int_equal(counts_of(f).releases, 3);
}

APART_TEST(second_instance_is_not_cut)
{
	take_claimed(f, a, 0, 1);
	claim(f, b, 0, 1);
	release_waits(f, a, 0, 1);
	release_ends(f, b, 0, 1);
}

TEST(duplicate_release_is_counted_once)
{
	const struct who r0 = rank_of(f, 1, 0, 2);

	take(f, 0, 1);
	release(f, r0, 0, 1);
	release(f, r0, 0, 1);
	release_waits(f, r0, 0, 1);
	assert_int_equal(counts_of(f).releases, 1);
	assert_int_equal(counts_of(f).duplicates, 2);
}

TEST(fifth_instance_is_not_counted)
{
	struct who who[5];
	uint32_t i;

	take(f, 0, 1);
	for (i = 0; i < 5; i++) {
		who[i] = rank_of(f, 10 + i, 0, 1);
		claim(f, who[i], 0, 1);
	}
	assert_int_equal(counts_of(f).claims, 4);
	assert_int_equal(counts_of(f).claims_over, 1);
	release(f, who[4], 0, 1);
	for (i = 0; i < 3; i++)
		release_waits(f, who[i], 0, 1);
	release_ends(f, who[3], 0, 1);
	for (i = 0; i < 5; i++)
		leave(f, who[i]);
	expect_fresh(f);
}

TEST(sixty_four_ranks_are_counted)
{
	uint32_t rank;

	take(f, 0, 1);
	for (rank = 0; rank < 64; rank++) {
		const struct who who = rank_of(f, 1, rank, 64);

		expect_nothing(f);
		release(f, who, 0, 1);
	}
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
}

/* Early ones, of a generation that another one replaces. */
TEST(claims_of_high_ranks_end_with_their_generation)
{
	const struct who first = rank_of(f, 1, 40, 64);
	const struct who next = rank_of(f, 1, 41, 64);
	char text[400];

	claim(f, first, 0, 1);
	claim(f, next, 0, 2);
	take(f, 0, 2);
	kvpull_holds_describe(f->holds, 0, f->now_ns, text, sizeof(text));
	assert_non_null(strstr(text, " of 64 owing 1 "));
}

/* A.8, A.2: revoked at the end, reported after the fence, once for ever. */
ONE_TEST(report_waits_for_publish)
{
	struct kvpull_hold_end end;

	take(f, 0, 1);
	release(f, a, 0, 1);
	assert_true(is_revoked(f, 0, 1));
	assert_int_equal(kvpull_holds_report(f->holds, &end, 1), 0);
	assert_int_equal(counts_of(f).ended, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	assert_int_equal(counts_of(f).ended, 0);
}

TEST(reports_come_in_order_and_by_capacity)
{
	const uint32_t order[] = { 4, 1, 6 };
	struct kvpull_hold_end end;
	uint32_t i;

	for (i = 0; i < 3; i++)
		take(f, order[i], 1);
	for (i = 0; i < 3; i++)
		end_hold(f, order[i], 1, 1, KVPULL_END_ABORTED);
	kvpull_holds_publish(f->holds);
	assert_int_equal(kvpull_holds_report(f->holds, &end, 0), 0);
	for (i = 0; i < 3; i++) {
		assert_int_equal(kvpull_holds_report(f->holds, &end, 1), 1);
		assert_int_equal(end.slot, order[i]);
	}
	expect_nothing(f);
	expect_fresh(f);
}

/* C.1; vllm #43509 */
ONE_TEST(early_release_ends_the_hold_when_it_is_taken)
{
	release(f, a, 5, 1);
	assert_int_equal(counts_of(f).staged, 1);
	assert_int_equal(counts_of(f).early, 1);
	expect_nothing(f);
	take(f, 5, 1);
	expect_report(f, 5, 1, KVPULL_END_RELEASED);
	leave(f, a);
	expect_fresh(f);
}

APART_TEST(early_claim_counts_as_one)
{
	claim(f, a, 5, 1);
	take(f, 5, 1);
	release_waits(f, b, 5, 1); /* a has claimed */
	leave(f, a);
	report_at(f, f->now_ns, 5, 1, KVPULL_END_RELEASED);
}

ONE_TEST(early_claim_of_the_dead_is_released)
{
	claim(f, a, 5, 1);
	leave_and_poll(f, a);
	expect_nothing(f);
	take(f, 5, 1);
	expect_report(f, 5, 1, KVPULL_END_RELEASED);
	expect_fresh(f);
}

ONE_TEST(staged_is_not_dropped_by_time)
{
	release(f, a, 5, 1);
	poll_at(f, START + 2 * HOLD_MAX);
	take(f, 5, 1);
	expect_report(f, 5, 1, KVPULL_END_RELEASED);
}

APART_TEST(newer_staged_generation_replaces)
{
	claim(f, a, 5, 1);
	claim(f, b, 5, 2);
	claim(f, a, 5, 1);
	assert_int_equal(counts_of(f).unknown, 1);
	take(f, 5, 2);
	release_ends(f, b, 5, 2);
	leave(f, a);
	leave(f, b);
	expect_fresh(f);
}

/* A.9 */
ONE_TEST(revoked_while_staged_ends_when_it_is_taken)
{
	claim(f, a, 5, 1);
	assert_int_equal(kvpull_holds_revoke_all(f->holds, KVPULL_END_REVOKED),
			 0);
	assert_true(is_revoked(f, 5, 1));
	take(f, 5, 1);
	expect_report(f, 5, 1, KVPULL_END_REVOKED);
}

TEST(notes_that_fit_nothing_touch_nothing)
{
	const struct who a = rank_of(f, 1, 0, 2);
	const struct who absent = { a.instance, 1 };
	const struct who unknown = { INSTANCES, 0 };
	struct kvpull_record record = record_of(f, KVPULL_NOTE_CLAIM, 0, 1);
	const uint64_t digest = kvpull_holds_digest(f->holds);

	f->now_ns += 10;
	tick(f);
	record.tag ^= 1;
	note(f, a, record);
	record = record_of(f, KVPULL_NOTE_RELEASE, 0, UINT64_MAX);
	record.generation = 9;
	note(f, a, record);
	assert_int_equal(counts_of(f).bad_tag, 2);
	release(f, a, SLOTS, 1);
	note(f, a, record_of(f, 4, 0, 1));
	note(f, a, record_of(f, 0, 0, 1));
	claim(f, absent, 0, 1);
	claim(f, unknown, 0, 1);
	claim(f, (struct who){ a.instance, 64 }, 0, 1);
	beat(f, absent);
	beat(f, unknown);
	leave(f, absent);
	assert_int_equal(counts_of(f).unknown, 6);
	assert_int_equal(kvpull_holds_digest(f->holds), digest);
	assert_int_equal(kvpull_holds_generation_max(f->holds), 0);
}

TEST(generations_only_grow)
{
	const uint64_t high = UINT64_MAX / 200;

	take(f, 0, high);
	end_hold(f, 0, high, 1, KVPULL_END_ABORTED);
	expect_report(f, 0, high, KVPULL_END_ABORTED);
	assert_int_equal(kvpull_holds_take(f->holds, 0, high, 7),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_holds_take(f->holds, 0, high - 1, 7),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_holds_generation_max(f->holds), high);
	take(f, 0, high + 1);
	assert_false(is_revoked(f, 0, high + 1));
	assert_int_equal(kvpull_holds_take(f->holds, 1, UINT64_MAX, 8), 0);
	assert_int_equal(kvpull_holds_generation_max(f->holds), UINT64_MAX);
}

TEST(broken_steps_change_nothing)
{
	uint64_t digest;

	take(f, 0, 1);
	digest = kvpull_holds_digest(f->holds);
	assert_int_equal(kvpull_holds_take(f->holds, SLOTS, 1, 1),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_holds_take(f->holds, 1, 0, 1), KVPULL_EINVAL);
	assert_int_equal(kvpull_holds_take(f->holds, 1, 1, 0), KVPULL_EINVAL);
	assert_int_equal(kvpull_holds_take(f->holds, 1, 1, 100), KVPULL_EINVAL);
	assert_int_equal(kvpull_holds_end(f->holds, SLOTS, 1, 1, 0),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_holds_end(f->holds, 0, 1, 100, -1),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_holds_end(f->holds, 0, 1, 100, 5),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_holds_end(f->holds, 1, 1, 100, 0),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_holds_digest(f->holds), digest);
	assert_int_equal(counts_of(f).taken, 1);
}

/* B.7: a worker that restarted alone still makes its report. */
TEST(end_of_a_hold_never_told_is_reported)
{
	end_hold(f, 4, 9, 904, KVPULL_END_RANK);
	expect_report(f, 4, 9, KVPULL_END_RANK);
	end_hold(f, 4, 9, 904, KVPULL_END_RANK);
	expect_nothing(f);
	expect_fresh(f);
}

TEST(revoke_all_ends_every_hold_before_it_returns)
{
	struct kvpull_hold_end ends[SLOTS];
	uint32_t slot;

	for (slot = 0; slot < SLOTS; slot++)
		take(f, slot, 1);
	assert_int_equal(kvpull_holds_revoke_all(f->holds, KVPULL_END_REVOKED),
			 SLOTS);
	for (slot = 0; slot < SLOTS; slot++)
		assert_true(is_revoked(f, slot, 1));
	assert_int_equal(kvpull_holds_report(f->holds, ends, SLOTS), SLOTS);
	assert_int_equal(ends[0].reason, KVPULL_END_REVOKED);
	assert_int_equal(counts_of(f).revoked, SLOTS);
	expect_fresh(f);
}

TEST(ready_says_the_generation_held)
{
	assert_int_equal(kvpull_holds_ready(f->holds, 1007), KVPULL_ENOKEY);
	take(f, 7, 10);
	assert_int_equal(kvpull_revocation_read(&f->entries[7]).ready, 0);
	assert_int_equal(kvpull_holds_ready(f->holds, 1007), 0);
	assert_int_equal(kvpull_revocation_read(&f->entries[7]).ready, 10);
	end_hold(f, 7, 10, 1007, KVPULL_END_ABORTED);
	assert_int_equal(kvpull_holds_ready(f->holds, 1007), KVPULL_ENOKEY);
}

TEST(description_fits_any_capacity)
{
	char text[400];
	size_t capacity;
	uint32_t i;

	take(f, 0, 1);
	for (i = 0; i < 4; i++)
		claim(f, (struct who){ join(f, i, 0, 1), 0 }, 0, 1);
	for (capacity = 0; capacity < sizeof(text); capacity++) {
		memset(text, 'x', sizeof(text));
		kvpull_holds_describe(f->holds, 0, f->now_ns, text, capacity);
		assert_int_equal(text[capacity], 'x');
		if (capacity)
			assert_true(strlen(text) < capacity);
	}
	kvpull_holds_describe(f->holds, SLOTS, f->now_ns, text, sizeof(text));
	assert_non_null(strstr(text, "unknown"));
}
