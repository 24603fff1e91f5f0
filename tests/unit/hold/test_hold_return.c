/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of a consumer that die, and what their instance claims until another
 * worker of the rank, or the same one, is there: semantics B.3, B.6.
 */
#include "tests/unit/hold/world.h"

#include "plugin/hold/instance.h"

#define WORKER 0xa1u
#define SUCCESSOR 0xb1u
#define SECOND_SUCCESSOR 0xc1u

static int try_join(struct fixture *f, uint32_t rank, uint64_t worker,
		    uint32_t *instance)
{
	struct kvpull_join join = { .instance_id = 1,
				    .worker = worker,
				    .rank = rank,
				    .rank_count = 2 };

	return kvpull_holds_join(f->holds, &join, f->now_ns, instance);
}

/* Joins as a rank of an instance of two ranks. */
static struct who join_as(struct fixture *f, uint32_t rank, uint64_t worker)
{
	struct who who = { .instance = KVPULL_NONE, .rank = rank };

	assert_int_equal(try_join(f, rank, worker, &who.instance), 0);
	return who;
}

/* The next poll, at the same time. */
static void poll_again(struct fixture *f)
{
	kvpull_holds_tick(f->holds, f->now_ns, KVPULL_NO_THREAD);
	poll_at(f, f->now_ns);
}

/* Says that it closes its connection to make room, and closes it. */
static void say_and_leave(struct fixture *f, struct who who)
{
	const struct kvpull_record record = { .kind = KVPULL_NOTE_AWAY };

	kvpull_holds_note(f->holds, who.instance, who.rank, &record, f->now_ns);
	leave(f, who);
}

static void part(struct fixture *f, struct who who)
{
	say_and_leave(f, who);
	poll_again(f);
}

static void go(struct fixture *f, struct who who)
{
	leave(f, who);
	poll_again(f);
}

TEST(successor_of_a_gone_rank_owes_nothing_on_what_was_claimed_meanwhile)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);

	go(f, r1);
	take(f, 0, 1);
	claim(f, r0, 0, 1);
	poll_again(f);
	/* The join and the release in one poll. */
	(void)join_as(f, 1, SUCCESSOR);
	expect_nothing(f);
	release(f, r0, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
}

TEST(what_lies_in_a_ring_when_a_rank_returns_is_not_owed)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);

	go(f, r1);
	take(f, 0, 1);
	take(f, 1, 1);
	poll_again(f);
	(void)join_as(f, 1, SUCCESSOR);
	claim(f, r0, 0, 1);
	release(f, r0, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	/* From the next poll on it is there like any other. */
	poll_again(f);
	claim(f, r0, 1, 1);
	release(f, r0, 1, 1);
	expect_nothing(f);
	release(f, r1, 1, 1);
	expect_report(f, 1, 1, KVPULL_END_RELEASED);
}

TEST(staged_claim_is_not_owed_by_a_gone_rank)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);

	go(f, r1);
	claim(f, r0, 0, 1);
	poll_again(f);
	(void)join_as(f, 1, SUCCESSOR);
	take(f, 0, 1);
	release(f, r0, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
}

TEST(successor_that_claims_is_waited_for)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);

	take(f, 0, 1);
	take(f, 1, 1);
	claim(f, r0, 0, 1);
	go(f, r1);
	claim(f, r0, 1, 1);
	poll_again(f);
	(void)join_as(f, 1, SUCCESSOR);
	/*
	 * A hold that was claimed before the predecessor's death, and one after
	 * it.
	 */
	claim(f, r1, 0, 1);
	claim(f, r1, 1, 1);
	release(f, r0, 0, 1);
	release(f, r0, 1, 1);
	expect_nothing(f);
	release(f, r1, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	/* Or for its death. */
	leave(f, r1);
	poll_again(f);
	expect_report(f, 1, 1, KVPULL_END_RELEASED);
}

TEST(rank_that_claims_after_its_release_owes_another)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);

	take(f, 0, 1);
	claim(f, r0, 0, 1);
	release(f, r0, 0, 1);
	claim(f, r0, 0, 1);
	release(f, r1, 0, 1);
	expect_nothing(f);
	release(f, r0, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	assert_int_equal(counts_of(f).duplicates, 0);
}

TEST(first_release_of_a_rank_that_returns_is_no_duplicate)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);

	go(f, r1);
	take(f, 0, 1);
	(void)join_as(f, 1, SUCCESSOR);
	release(f, r1, 0, 1);
	expect_nothing(f);
	release(f, r0, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	assert_int_equal(counts_of(f).releases, 2);
	assert_int_equal(counts_of(f).duplicates, 0);
}

UNIT_TEST_WITH(successors_within_a_grace_owe_nothing_older, setup_with_grace,
	       teardown)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);
	uint32_t instance;

	take(f, 0, 1);
	take(f, 1, 1);
	take(f, 2, 1);
	claim(f, r0, 0, 1);
	claim(f, r1, 0, 1);
	leave(f, r1);
	claim(f, r0, 1, 1);
	assert_int_equal(try_join(f, 1, SUCCESSOR, &instance), KVPULL_EAGAIN);
	poll_again(f);
	/*
	 * The successor waits: this claim comes after the scan, and before it
	 * is let in.
	 */
	claim(f, r0, 2, 1);
	(void)join_as(f, 1, SUCCESSOR);
	/* The rank dies, too, and so does its successor. */
	leave(f, r1);
	assert_int_equal(try_join(f, 1, SECOND_SUCCESSOR, &instance),
			 KVPULL_EAGAIN);
	poll_again(f);
	(void)join_as(f, 1, SECOND_SUCCESSOR);
	release(f, r0, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	release(f, r0, 1, 1);
	expect_report(f, 1, 1, KVPULL_END_RELEASED);
	release(f, r0, 2, 1);
	expect_report(f, 2, 1, KVPULL_END_RELEASED);
}

/* The same worker: what it has claimed it still owes. */
UNIT_TEST_WITH(return_within_the_grace_keeps_what_was_claimed, setup_with_grace,
	       teardown)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);

	take(f, 0, 1);
	leave(f, r1);
	claim(f, r0, 0, 1);
	(void)join_as(f, 1, WORKER);
	release(f, r0, 0, 1);
	expect_nothing(f);
	release(f, r1, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
}

TEST(successor_of_another_size_waits_for_the_instances_end)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);
	uint32_t instance;

	take(f, 0, 1);
	claim(f, r0, 0, 1);
	go(f, r1);
	assert_int_equal(join_ids(f->holds, 1, 1, 3, f->now_ns, &instance),
			 KVPULL_EREJECTED);
	go(f, r0);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	(void)join(f, 1, 1, 3);
}

/* Both ranks' connections are lost; one had said its last word before. */
TEST(release_said_again_to_the_next_life_ends_the_claim)
{
	struct fixture *f = fixture_of(state);
	const struct who other = { join(f, 2, 0, 1), 0 };
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);
	struct who again;

	take(f, 0, 1);
	claim(f, other, 0, 1);
	claim(f, r0, 0, 1);
	claim(f, r1, 0, 1);
	release(f, r1, 0, 1);
	leave(f, r0);
	go(f, r1);
	again = join_as(f, 0, 0xa0);
	release(f, again, 0, 1);
	(void)join_as(f, 1, WORKER);
	expect_nothing(f);
	release(f, other, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
}

UNIT_TEST_WITH(join_of_another_size_ends_no_grace, setup_with_grace, teardown)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);
	struct kvpull_join other = { .instance_id = 1,
				     .worker = SUCCESSOR,
				     .rank = 1,
				     .rank_count = 3 };
	uint32_t instance;

	take(f, 0, 1);
	claim(f, r1, 0, 1);
	leave(f, r1);
	assert_int_equal(
		kvpull_holds_join(f->holds, &other, f->now_ns, &instance),
		KVPULL_EREJECTED);
	poll_again(f);
	(void)join_as(f, 1, WORKER);
	release(f, r0, 0, 1);
	expect_nothing(f);
}

TEST(rank_that_is_away_is_waited_for)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);

	part(f, r1);
	/* For long: its instance is there. */
	poll_at(f, f->now_ns + 5 * LEASE);
	take(f, 0, 1);
	claim(f, r0, 0, 1);
	release(f, r0, 0, 1);
	poll_again(f);
	expect_nothing(f);
	(void)join_as(f, 1, WORKER);
	claim(f, r1, 0, 1);
	release(f, r1, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	/* The word was for that time alone. */
	take(f, 0, 2);
	claim(f, r0, 0, 2);
	claim(f, r1, 0, 2);
	go(f, r1);
	release(f, r0, 0, 2);
	expect_report(f, 0, 2, KVPULL_END_RELEASED);
}

TEST(rank_that_stays_away_costs_a_lease)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);

	part(f, r1);
	take(f, 0, 1);
	claim(f, r0, 0, 1);
	release(f, r0, 0, 1);
	poll_at(f, f->now_ns + LEASE - 1);
	expect_nothing(f);
	poll_at(f, f->now_ns + 1);
	expect_report(f, 0, 1, KVPULL_END_EXPIRED);
}

TEST(ranks_away_end_with_the_last_that_is_there)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);

	part(f, r1);
	take(f, 0, 1);
	claim(f, r0, 0, 1);
	go(f, r0);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	expect_fresh(f);
}

/* Both are away for a moment, and one is back before that was looked at. */
TEST(rank_that_went_last_is_waited_for_when_its_sibling_is_back)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);

	take(f, 0, 1);
	part(f, r0);
	say_and_leave(f, r1);
	(void)join_as(f, 0, 0xa0);
	claim(f, r0, 0, 1);
	poll_again(f);
	release(f, r0, 0, 1);
	poll_again(f);
	expect_nothing(f);
	(void)join_as(f, 1, WORKER);
	claim(f, r1, 0, 1);
	release(f, r1, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
}

/* The rank had no room for us yet when its sibling made room again. */
TEST(rank_that_never_came_is_waited_for_when_all_others_are_away)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	struct who r1;

	take(f, 0, 1);
	claim(f, r0, 0, 1);
	release(f, r0, 0, 1);
	part(f, r0);
	expect_nothing(f);
	r1 = join_as(f, 1, WORKER);
	claim(f, r1, 0, 1);
	release(f, r1, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	go(f, r1);
	expect_fresh(f);
}

TEST(last_rank_that_goes_ends_its_instance)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);

	part(f, r1);
	part(f, r0);
	expect_fresh(f);
}

TEST(successor_of_a_rank_away_owes_nothing_older)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);
	uint32_t instance;

	take(f, 0, 1);
	claim(f, r0, 0, 1);
	claim(f, r1, 0, 1);
	part(f, r1);
	assert_int_equal(try_join(f, 1, SUCCESSOR, &instance), KVPULL_EAGAIN);
	poll_again(f);
	(void)join_as(f, 1, SUCCESSOR);
	release(f, r0, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
}

/* The siblings are alive, and will still claim. */
TEST(successor_of_a_rank_away_ends_no_sibling)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);
	uint32_t instance;

	take(f, 0, 1);
	claim(f, r1, 0, 1);
	release(f, r1, 0, 1);
	part(f, r1);
	part(f, r0);
	assert_int_equal(try_join(f, 1, SUCCESSOR, &instance), KVPULL_EAGAIN);
	poll_again(f);
	expect_nothing(f);
	(void)join_as(f, 1, SUCCESSOR);
	(void)join_as(f, 0, 0xa0);
	claim(f, r0, 0, 1);
	release(f, r0, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
}

/* Simulation seed 77101192: a replacement was taken for the last death. */
UNIT_TEST_WITH(successor_of_a_rank_in_grace_ends_no_sibling_that_is_away,
	       setup_with_grace, teardown)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);
	uint32_t instance;

	take(f, 0, 1);
	claim(f, r0, 0, 1);
	claim(f, r1, 0, 1);
	part(f, r1);
	leave(f, r0);
	assert_int_equal(try_join(f, 0, SUCCESSOR, &instance), KVPULL_EAGAIN);
	poll_again(f);
	expect_nothing(f);
	(void)join_as(f, 0, SUCCESSOR);
	(void)join_as(f, 1, WORKER);
	release(f, r1, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
}

/* The sweep sees nobody here, and must not forget the caller that waits. */
UNIT_TEST_WITH(instance_lives_while_a_successor_waits, setup_with_grace,
	       teardown)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	uint32_t instance;
	struct who r1;

	take(f, 0, 1);
	claim(f, r0, 0, 1);
	leave(f, r0);
	assert_int_equal(try_join(f, 0, SUCCESSOR, &instance), KVPULL_EAGAIN);
	poll_again(f);
	expect_nothing(f);
	/* Rank 1 was told of the ticket, and had no room to come before. */
	r1 = join_as(f, 1, WORKER);
	claim(f, r1, 0, 1);
	release(f, r1, 0, 1);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	assert_int_equal(join_as(f, 0, SUCCESSOR).instance, r1.instance);
}

/*
 * Simulation seed 16078: two successors are let in by one poll, which takes in
 * all that the first of them said before it lets the other in.
 */
UNIT_TEST_WITH(successor_that_claims_after_its_siblings_release_finds_the_end,
	       setup_with_grace, teardown)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);
	uint32_t instance;

	leave(f, r0);
	leave(f, r1);
	assert_int_equal(try_join(f, 0, 0xb0, &instance), KVPULL_EAGAIN);
	assert_int_equal(try_join(f, 1, SUCCESSOR, &instance), KVPULL_EAGAIN);
	poll_again(f);
	take(f, 0, 1);
	take(f, 1, 1);
	(void)join_as(f, 0, 0xb0);
	claim(f, r0, 0, 1);
	claim(f, r0, 1, 1);
	release(f, r0, 0, 1);
	(void)join_as(f, 1, SUCCESSOR);
	claim(f, r1, 0, 1);
	claim(f, r1, 1, 1);
	release(f, r0, 1, 1);
	/* Of the one hold its claim came too late, the other waits for it. */
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	expect_nothing(f);
	release(f, r1, 1, 1);
	expect_report(f, 1, 1, KVPULL_END_RELEASED);
}

static void call_lost(struct fixture *f, uint32_t rank, uint64_t worker)
{
	const struct kvpull_join join = { .instance_id = 1,
					  .worker = worker,
					  .rank = rank,
					  .rank_count = 2 };

	kvpull_holds_call_lost(f->holds, &join);
}

UNIT_TEST_WITH(successor_that_is_lost_before_it_is_let_in_is_a_death,
	       setup_with_grace, teardown)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);
	uint32_t instance;

	take(f, 0, 1);
	claim(f, r1, 0, 1);
	part(f, r1);
	leave(f, r0);
	assert_int_equal(try_join(f, 0, SUCCESSOR, &instance), KVPULL_EAGAIN);
	/* The replaced worker is not the caller that waits. */
	call_lost(f, 0, 0xa0);
	poll_again(f);
	expect_nothing(f);
	call_lost(f, 0, SUCCESSOR);
	poll_again(f);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	expect_fresh(f);
}

UNIT_TEST_WITH(second_successor_waits_for_another_sweep, setup_with_grace,
	       teardown)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	uint32_t instance;

	leave(f, r0);
	assert_int_equal(try_join(f, 0, SUCCESSOR, &instance), KVPULL_EAGAIN);
	poll_again(f);
	call_lost(f, 0, SUCCESSOR);
	assert_int_equal(try_join(f, 0, SECOND_SUCCESSOR, &instance),
			 KVPULL_EAGAIN);
	poll_again(f);
	assert_int_equal(counts_of(f).consumers_died, 2);
	(void)join_as(f, 0, SECOND_SUCCESSOR);
}

/* The death of one rank and the call of another, in either order. */
TEST(death_and_call_of_one_sweep_are_judged_together)
{
	struct fixture *f = fixture_of(state);
	uint32_t order, instance;

	for (order = 0; order < 2; order++) {
		const struct who r0 = join_as(f, 0, 0xa0);
		const struct who r1 = join_as(f, 1, WORKER);

		take(f, order, 1);
		claim(f, r1, order, 1);
		say_and_leave(f, r1);
		if (order)
			leave(f, r0);
		assert_int_equal(try_join(f, 1, SUCCESSOR, &instance),
				 KVPULL_EAGAIN);
		if (!order)
			leave(f, r0);
		poll_again(f);
		expect_report(f, order, 1, KVPULL_END_RELEASED);
		/* The instance is not over: its next worker joins it. */
		assert_int_equal(join_as(f, 1, SUCCESSOR).instance,
				 r1.instance);
		leave(f, r1);
		poll_again(f);
	}
	expect_fresh(f);
}

/* A rank that is not connected says nothing, and twice is as once. */
UNIT_TEST_WITH(word_of_a_rank_in_its_grace_says_nothing, setup_with_grace,
	       teardown)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);

	take(f, 0, 1);
	claim(f, r0, 0, 1);
	leave(f, r1);
	part(f, r1);
	release(f, r0, 0, 1);
	poll_at(f, f->now_ns + f->params.grace_ns);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
}

TEST(table_is_as_new_after_returns)
{
	struct fixture *f = fixture_of(state);
	const struct who r0 = join_as(f, 0, 0xa0);
	const struct who r1 = join_as(f, 1, WORKER);

	go(f, r1);
	(void)join_as(f, 1, SUCCESSOR);
	/* In the poll of its return, too. */
	leave(f, r1);
	leave(f, r0);
	expect_fresh(f);
}
