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

/* Another worker of the rank calls: it waits for a sweep. */
static void join_waits(struct fixture *f, uint32_t rank, uint64_t worker)
{
	uint32_t instance;

	assert_int_equal(try_join(f, rank, worker, &instance), KVPULL_EAGAIN);
}

/* Both ranks, r0 and r1, of the instance. */
#define PAIR_OF(test, name)                                                    \
	TEST_OF_TWO(test, name, r0, join_as(f, 0, 0xa0), r1,                   \
		    join_as(f, 1, WORKER))
#define RETURN_TEST(name) PAIR_OF(TEST, name)
#define GRACE_RETURN_TEST(name) PAIR_OF(GRACE_TEST, name)

/* The next poll, at the same time. */
static void poll_again(struct fixture *f)
{
	tick(f);
	poll_at(f, f->now_ns);
}

/* Another worker of the rank calls, and a sweep sees it. */
static void call(struct fixture *f, uint32_t rank, uint64_t worker)
{
	join_waits(f, rank, worker);
	poll_again(f);
}

/* The rank claims the hold, and its release is the last word. */
static void read_ends(struct fixture *f, struct who who, uint32_t slot,
		      uint64_t generation)
{
	claim(f, who, slot, generation);
	release_ends(f, who, slot, generation);
}

/* Says that it closes its connection to make room, and closes it. */
static void say_and_leave(struct fixture *f, struct who who)
{
	note(f, who, (struct kvpull_record){ .kind = KVPULL_NOTE_AWAY });
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

RETURN_TEST(successor_of_a_gone_rank_owes_nothing_on_what_was_claimed_meanwhile)
{
	go(f, r1);
	take_claimed(f, r0, 0, 1);
	poll_again(f);
	/* The join and the release in one poll. */
	(void)join_as(f, 1, SUCCESSOR);
	expect_nothing(f);
	release_ends(f, r0, 0, 1);
}

RETURN_TEST(what_lies_in_a_ring_when_a_rank_returns_is_not_owed)
{
	go(f, r1);
	take(f, 0, 1);
	take(f, 1, 1);
	poll_again(f);
	(void)join_as(f, 1, SUCCESSOR);
	read_ends(f, r0, 0, 1);
	/* From the next poll on it is there like any other. */
	poll_again(f);
	claim(f, r0, 1, 1);
	release_waits(f, r0, 1, 1);
	release_ends(f, r1, 1, 1);
}

RETURN_TEST(staged_claim_is_not_owed_by_a_gone_rank)
{
	go(f, r1);
	claim(f, r0, 0, 1);
	poll_again(f);
	(void)join_as(f, 1, SUCCESSOR);
	take(f, 0, 1);
	release_ends(f, r0, 0, 1);
}

RETURN_TEST(successor_that_claims_is_waited_for)
{
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
	release_waits(f, r0, 1, 1);
	release_ends(f, r1, 0, 1);
	/* Or for its death. */
	leave(f, r1);
	poll_again(f);
	expect_report(f, 1, 1, KVPULL_END_RELEASED);
}

RETURN_TEST(rank_that_claims_after_its_release_owes_another)
{
	take_claimed(f, r0, 0, 1);
	release(f, r0, 0, 1);
	claim(f, r0, 0, 1);
	release_waits(f, r1, 0, 1);
	release_ends(f, r0, 0, 1);
	assert_int_equal(counts_of(f).duplicates, 0);
}

RETURN_TEST(first_release_of_a_rank_that_returns_is_no_duplicate)
{
	go(f, r1);
	take(f, 0, 1);
	(void)join_as(f, 1, SUCCESSOR);
	release_waits(f, r1, 0, 1);
	release_ends(f, r0, 0, 1);
	assert_int_equal(counts_of(f).releases, 2);
	assert_int_equal(counts_of(f).duplicates, 0);
}

GRACE_RETURN_TEST(successors_within_a_grace_owe_nothing_older)
{
	take(f, 0, 1);
	take(f, 1, 1);
	take(f, 2, 1);
	claim(f, r0, 0, 1);
	claim(f, r1, 0, 1);
	leave(f, r1);
	claim(f, r0, 1, 1);
	call(f, 1, SUCCESSOR);
	/*
	 * The successor waits: this claim comes after the scan, and before it
	 * is let in.
	 */
	claim(f, r0, 2, 1);
	(void)join_as(f, 1, SUCCESSOR);
	/* The rank dies, too, and so does its successor. */
	leave(f, r1);
	call(f, 1, SECOND_SUCCESSOR);
	(void)join_as(f, 1, SECOND_SUCCESSOR);
	release_ends(f, r0, 0, 1);
	release_ends(f, r0, 1, 1);
	release_ends(f, r0, 2, 1);
}

/* The same worker: what it has claimed it still owes. */
GRACE_RETURN_TEST(return_within_the_grace_keeps_what_was_claimed)
{
	take(f, 0, 1);
	leave(f, r1);
	claim(f, r0, 0, 1);
	(void)join_as(f, 1, WORKER);
	release_waits(f, r0, 0, 1);
	release_ends(f, r1, 0, 1);
}

RETURN_TEST(successor_of_another_size_waits_for_the_instances_end)
{
	uint32_t instance;

	take_claimed(f, r0, 0, 1);
	go(f, r1);
	assert_int_equal(join_ids(f->holds, 1, 1, 3, f->now_ns, &instance),
			 KVPULL_EREJECTED);
	go(f, r0);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	(void)join(f, 1, 1, 3);
}

/* Both ranks' connections are lost; one had said its last word before. */
RETURN_TEST(release_said_again_to_the_next_life_ends_the_claim)
{
	const struct who other = rank_of(f, 2, 0, 1);
	struct who again;

	take_claimed(f, other, 0, 1);
	claim(f, r0, 0, 1);
	claim(f, r1, 0, 1);
	release(f, r1, 0, 1);
	leave(f, r0);
	go(f, r1);
	again = join_as(f, 0, 0xa0);
	release(f, again, 0, 1);
	(void)join_as(f, 1, WORKER);
	expect_nothing(f);
	release_ends(f, other, 0, 1);
}

GRACE_RETURN_TEST(join_of_another_size_ends_no_grace)
{
	struct kvpull_join other = { .instance_id = 1,
				     .worker = SUCCESSOR,
				     .rank = 1,
				     .rank_count = 3 };
	uint32_t instance;

	take_claimed(f, r1, 0, 1);
	leave(f, r1);
	assert_int_equal(
		kvpull_holds_join(f->holds, &other, f->now_ns, &instance),
		KVPULL_EREJECTED);
	poll_again(f);
	(void)join_as(f, 1, WORKER);
	release_waits(f, r0, 0, 1);
}

RETURN_TEST(rank_that_is_away_is_waited_for)
{
	part(f, r1);
	/* For long: its instance is there. */
	poll_at(f, f->now_ns + 5 * LEASE);
	take_claimed(f, r0, 0, 1);
	release(f, r0, 0, 1);
	poll_again(f);
	expect_nothing(f);
	(void)join_as(f, 1, WORKER);
	read_ends(f, r1, 0, 1);
	/* The word was for that time alone. */
	take_claimed(f, r0, 0, 2);
	claim(f, r1, 0, 2);
	go(f, r1);
	release_ends(f, r0, 0, 2);
}

RETURN_TEST(rank_that_stays_away_costs_a_lease)
{
	part(f, r1);
	take_claimed(f, r0, 0, 1);
	release(f, r0, 0, 1);
	nothing_at(f, f->now_ns + LEASE - 1);
	report_at(f, f->now_ns + 1, 0, 1, KVPULL_END_EXPIRED);
}

RETURN_TEST(ranks_away_end_with_the_last_that_is_there)
{
	part(f, r1);
	take_claimed(f, r0, 0, 1);
	go(f, r0);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	expect_fresh(f);
}

/* Both are away for a moment, and one is back before that was looked at. */
RETURN_TEST(rank_that_went_last_is_waited_for_when_its_sibling_is_back)
{
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
	read_ends(f, r1, 0, 1);
}

/* The rank had no room for us yet when its sibling made room again. */
TEST(rank_that_never_came_is_waited_for_when_all_others_are_away)
{
	const struct who r0 = join_as(f, 0, 0xa0);
	struct who r1;

	take_claimed(f, r0, 0, 1);
	release(f, r0, 0, 1);
	part(f, r0);
	expect_nothing(f);
	r1 = join_as(f, 1, WORKER);
	read_ends(f, r1, 0, 1);
	go(f, r1);
	expect_fresh(f);
}

RETURN_TEST(last_rank_that_goes_ends_its_instance)
{
	part(f, r1);
	part(f, r0);
	expect_fresh(f);
}

RETURN_TEST(successor_of_a_rank_away_owes_nothing_older)
{
	take_claimed(f, r0, 0, 1);
	claim(f, r1, 0, 1);
	part(f, r1);
	call(f, 1, SUCCESSOR);
	(void)join_as(f, 1, SUCCESSOR);
	release_ends(f, r0, 0, 1);
}

/* The siblings are alive, and will still claim. */
RETURN_TEST(successor_of_a_rank_away_ends_no_sibling)
{
	take_claimed(f, r1, 0, 1);
	release(f, r1, 0, 1);
	part(f, r1);
	part(f, r0);
	call(f, 1, SUCCESSOR);
	expect_nothing(f);
	(void)join_as(f, 1, SUCCESSOR);
	(void)join_as(f, 0, 0xa0);
	read_ends(f, r0, 0, 1);
}

/* Simulation seed 77101192: a replacement was taken for the last death. */
GRACE_RETURN_TEST(successor_of_a_rank_in_grace_ends_no_sibling_that_is_away)
{
	take_claimed(f, r0, 0, 1);
	claim(f, r1, 0, 1);
	part(f, r1);
	leave(f, r0);
	call(f, 0, SUCCESSOR);
	expect_nothing(f);
	(void)join_as(f, 0, SUCCESSOR);
	(void)join_as(f, 1, WORKER);
	release_ends(f, r1, 0, 1);
}

/* The sweep sees nobody here, and must not forget the caller that waits. */
GRACE_TEST(instance_lives_while_a_successor_waits)
{
	const struct who r0 = join_as(f, 0, 0xa0);
	struct who r1;

	take_claimed(f, r0, 0, 1);
	leave(f, r0);
	call(f, 0, SUCCESSOR);
	expect_nothing(f);
	/* Rank 1 was told of the ticket, and had no room to come before. */
	r1 = join_as(f, 1, WORKER);
	read_ends(f, r1, 0, 1);
	assert_int_equal(join_as(f, 0, SUCCESSOR).instance, r1.instance);
}

/*
 * Simulation seed 16078: two successors are let in by one poll, which takes in
 * all that the first of them said before it lets the other in.
 */
GRACE_RETURN_TEST(successor_that_claims_after_its_siblings_release_finds_the_end)
{
	leave(f, r0);
	leave(f, r1);
	join_waits(f, 0, 0xb0);
	call(f, 1, SUCCESSOR);
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
	release_ends(f, r1, 1, 1);
}

static void call_lost(struct fixture *f, uint32_t rank, uint64_t worker)
{
	const struct kvpull_join join = { .instance_id = 1,
					  .worker = worker,
					  .rank = rank,
					  .rank_count = 2 };

	kvpull_holds_call_lost(f->holds, &join);
}

GRACE_RETURN_TEST(successor_that_is_lost_before_it_is_let_in_is_a_death)
{
	take_claimed(f, r1, 0, 1);
	part(f, r1);
	leave(f, r0);
	join_waits(f, 0, SUCCESSOR);
	/* The replaced worker is not the caller that waits. */
	call_lost(f, 0, 0xa0);
	poll_again(f);
	expect_nothing(f);
	call_lost(f, 0, SUCCESSOR);
	poll_again(f);
	expect_report(f, 0, 1, KVPULL_END_RELEASED);
	expect_fresh(f);
}

GRACE_TEST(second_successor_waits_for_another_sweep)
{
	const struct who r0 = join_as(f, 0, 0xa0);

	leave(f, r0);
	call(f, 0, SUCCESSOR);
	call_lost(f, 0, SUCCESSOR);
	call(f, 0, SECOND_SUCCESSOR);
	assert_int_equal(counts_of(f).consumers_died, 2);
	(void)join_as(f, 0, SECOND_SUCCESSOR);
}

/* The death of one rank and the call of another, in either order. */
TEST(death_and_call_of_one_sweep_are_judged_together)
{
	uint32_t order;

	for (order = 0; order < 2; order++) {
		const struct who r0 = join_as(f, 0, 0xa0);
		const struct who r1 = join_as(f, 1, WORKER);

		take_claimed(f, r1, order, 1);
		say_and_leave(f, r1);
		if (order)
			leave(f, r0);
		join_waits(f, 1, SUCCESSOR);
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
GRACE_RETURN_TEST(word_of_a_rank_in_its_grace_says_nothing)
{
	take_claimed(f, r0, 0, 1);
	leave(f, r1);
	part(f, r1);
	release(f, r0, 0, 1);
	report_at(f, f->now_ns + f->params.grace_ns, 0, 1, KVPULL_END_RELEASED);
}

RETURN_TEST(table_is_as_new_after_returns)
{
	go(f, r1);
	(void)join_as(f, 1, SUCCESSOR);
	/* In the poll of its return, too. */
	leave(f, r1);
	leave(f, r0);
	expect_fresh(f);
}
