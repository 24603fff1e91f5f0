/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler half as a consumer: tickets, their users, the last word. */
#include "tests/unit/scheduler/world.h"

CONSUMER_TEST(one_user_claims_pulls_and_the_worker_releases, 1)
{
	const struct world_seen *pull;

	want(world, 1, ticket);
	want(world, 1, ticket);
	expect_settled(world, KVPULL_COMMAND_CLAIM, 1);
	assert_string_equal(world_command(world, KVPULL_COMMAND_CLAIM)->label,
			    "request-b");
	load(world, 1);
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
	expect_settled(world, KVPULL_COMMAND_PULL, 1);
	pull = world_last(world, KVPULL_COMMAND_PULL);
	assert_string_equal(pull->command.label, "request-b");
	assert_int_equal(pull->command.flags, KVPULL_FLAG_RELEASE);
	assert_int_equal(pull->pair_count, 4);
	assert_memory_equal(pull->remote, world_blocks, sizeof(world_blocks));
	assert_memory_equal(pull->local, world_local_blocks,
			    sizeof(world_local_blocks));
	assert_int_equal(world_pending(world), KVPULL_PENDING_PULLS);
	end_pull(world, 1, 0);
	assert_int_equal(world_pending(world), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	finish(world, 1, KVPULL_FINISH_STOP);
	expect_settled(world, KVPULL_COMMAND_RELEASE, 0);
	assert_int_equal(world_counts(world).pulls_done, 1);
	assert_int_equal(world_counts(world).tickets_live, 0);
	forget_all(world);
	expect_fresh(world);
}

WORLD_TEST(ready_is_waited_for_when_the_ticket_says_so, world_of_consumer(1))
{
	struct world *producer = world_of_producer(1);
	struct world_ticket ticket;
	struct kvpull_finish finish = world_finish_of(1, &ticket);

	finish.flags = KVPULL_FINISH_READY_NEEDED;
	world_enter(producer, 1, 0, 1);
	assert_int_equal(world_finish_with(producer, &finish),
			 KVPULL_FINISH_HELD);
	ticket.bytes = finish.ticket_bytes;
	want(world, 1, &ticket);
	load(world, 1);
	world_step(world);
	assert_int_equal(world_command(world, KVPULL_COMMAND_PULL)->flags,
			 KVPULL_FLAG_RELEASE | KVPULL_FLAG_READY);
	world_close(producer);
}

TICKET_TEST(ticket_without_our_key_is_refused, world_of_key(3))
{
	assert_int_equal(world_want(world, 1, ticket, 1), KVPULL_ENOTICKET);
	assert_int_equal(world_counts(world).bad_tickets, 1);
}

CONSUMER_TEST(blocks_are_mapped_by_logical_index, 1)
{
	const struct world_seen *pull;

	want(world, 1, ticket);
	assert_int_equal(world_match(world, 1, 32), KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate(world, 1, 2, 2), 0);
	world_step(world);
	pull = world_last(world, KVPULL_COMMAND_PULL);
	assert_int_equal(pull->pair_count, 2);
	assert_memory_equal(pull->remote, world_blocks + 2, 8);
}

WORLD_TEST(blocks_beyond_the_ticket_are_refused_and_reported_once,
	   world_of_consumer(2))
{
	const struct world_ticket ticket = world_make_short_ticket(7, 1);
	const struct world_seen *pull;

	want(world, 1, &ticket);
	load_refused(world, 1, KVPULL_ETRUNCATED);
	expect_settled(world, KVPULL_COMMAND_PULL, 1);
	pull = world_last(world, KVPULL_COMMAND_PULL);
	assert_int_equal(pull->command.reason, KVPULL_ETRUNCATED);
	assert_int_equal(pull->command.key, 1);
	assert_int_equal(pull->pair_count, 0);
	end_pull(world, 1, KVPULL_ETRUNCATED);
	assert_int_equal(world_counts(world).pulls_failed, 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
}

CONSUMER_TEST_WITH(pull_over_the_limit_is_refused, 1, pull_blocks_max = 3)
{
	want(world, 1, ticket);
	load_refused(world, 1, KVPULL_EFULL);
	world_settle(world);
	assert_int_equal(world_command(world, KVPULL_COMMAND_PULL)->reason,
			 KVPULL_EFULL);
}

/* Pulls of ranks that have not reported yet count, and so do promised pulls. */
CONSUMER_TEST_WITH(pulls_over_the_limit_wait, 2, pulls_max = 2)
{
	uint64_t key;

	want(world, 1, ticket);
	for (key = 2; key <= 5; key++) {
		const struct world_ticket other = world_make_ticket(6 + key);

		assert_int_equal(world_want(world, key, &other, 1), 0);
	}
	load(world, 1);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_WAIT);
	/*
	 * A request that was promised a place keeps it, however often it asks.
	 */
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_LOAD);
	load(world, 2);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_WAIT);
	world_settle(world);
	pull_ended(world, 0, 1, 0);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_WAIT);
	pull_ended(world, 1, 1, 0);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_LOAD);
	/* Neither this request nor the next wants its place any more. */
	assert_int_equal(world_match(world, 4, 0), KVPULL_MATCH_WAIT);
	finish(world, 3, KVPULL_FINISH_ABORT);
	assert_int_equal(world_match(world, 4, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_match(world, 4, 64), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_match(world, 5, 0), KVPULL_MATCH_LOAD);
}

CONSUMER_TEST(eight_users_pull_once_and_release_once, 2)
{
	uint64_t key;

	want(world, 8, ticket);
	/* The fourth was refused by the engine's front: it says nothing. */
	finish(world, 4, KVPULL_FINISH_REJECT);
	load(world, 1);
	for (key = 2; key <= 8; key++)
		assert_int_equal(world_match(world, key, 0),
				 key == 4 ? KVPULL_MATCH_NOTHING :
					    KVPULL_MATCH_WAIT);
	expect_settled(world, KVPULL_COMMAND_RELEASE, 0);
	pull_ended(world, 0, 1, 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_WAIT);
	pull_ended(world, 1, 1, 0);
	for (key = 2; key <= 8; key++)
		assert_int_equal(world_match(world, key, 0),
				 KVPULL_MATCH_NOTHING);
	for (key = 1; key <= 8; key++)
		if (key != 4)
			finish(world, key, KVPULL_FINISH_STOP);
	expect_settled(world, KVPULL_COMMAND_CLAIM, 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_PULL), 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	assert_int_equal(world_counts(world).rejects, 1);
	assert_int_equal(world_counts(world).tickets_live, 0);
}

CONSUMER_TEST(release_follows_the_last_user, 1)
{
	want(world, 3, ticket);
	finish(world, 2, KVPULL_FINISH_ABORT);
	expect_settled(world, KVPULL_COMMAND_RELEASE, 0);
	finish(world, 1, KVPULL_FINISH_REJECT);
	expect_settled(world, KVPULL_COMMAND_RELEASE, 0);
	finish(world, 3, KVPULL_FINISH_REJECT);
	assert_true(world_has_step(world));
	expect_settled(world, KVPULL_COMMAND_RELEASE, 1);
}

CONSUMER_TEST(full_local_hit_gives_the_ticket_back, 1)
{
	want(world, 1, ticket);
	assert_int_equal(world_match(world, 1, 64), KVPULL_MATCH_NOTHING);
	expect_settled(world, KVPULL_COMMAND_RELEASE, 0);
	assert_int_equal(world_allocate(world, 1, 0, 0), 0);
	assert_int_equal(world_allocate(world, 1, 0, 0), 0);
	expect_settled(world, KVPULL_COMMAND_RELEASE, 1);
}

CONSUMER_TEST_WITH(without_sharing_each_pulls_and_the_release_follows, 1,
		   share_prefix = 0)
{
	uint64_t key;

	want(world, 3, ticket);
	for (key = 1; key <= 3; key++)
		load(world, key);
	expect_settled(world, KVPULL_COMMAND_PULL, 3);
	assert_int_equal(world_command(world, KVPULL_COMMAND_PULL)->flags, 0);
	end_pull(world, 1, 0);
	end_pull(world, 2, 0);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	end_pull(world, 3, 0);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
}

CONSUMER_TEST_WITH(late_user_of_a_releasing_pull_waits, 1, share_prefix = 0)
{
	pull(world, 1, ticket);
	assert_int_equal(world_want(world, 2, ticket, 1), 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_WAIT);
	end_pull(world, 1, 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
}

CONSUMER_TEST(nobody_retries_after_expiry, 2)
{
	pull(world, 2, ticket);
	end_pull(world, 1, KVPULL_EEXPIRED);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	expect_settled(world, KVPULL_COMMAND_PULL, 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	assert_int_equal(world_counts(world).tickets_live, 0);
}

CONSUMER_TEST(next_user_retries_after_another_failure, 2)
{
	pull(world, 2, ticket);
	end_pull(world, 1, KVPULL_EPEER);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	load(world, 2);
	world_settle(world);
	end_pull(world, 2, KVPULL_EREAD);
	assert_int_equal(world_count(world, KVPULL_COMMAND_PULL), 2);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
}

CONSUMER_TEST(half_released_ticket_is_not_pulled_again, 2)
{
	pull(world, 2, ticket);
	world_pull_ended(world, 0, 1, 0);
	world_pull_ended(world, 1, 1, KVPULL_EREAD);
	world_settle(world);
	/* Rank 1 has not released: the word goes out at once. */
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_counts(world).pulls_failed, 1);
}

CONSUMER_TEST(one_rank_reporting_twice_ends_no_pull, 2)
{
	pull(world, 1, ticket);
	world_pull_ended(world, 0, 1, 0);
	world_pull_ended(world, 0, 1, 0);
	world_settle(world);
	assert_int_equal(world_counts(world).pulls_done, 0);
	assert_int_equal(world_counts(world).unknown_keys, 1);
}

CONSUMER_TEST(loader_that_left_hands_over, 1)
{
	want_offered(world, 3, ticket);
	assert_int_equal(world_match(world, 1, 16), KVPULL_MATCH_LOAD);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_WAIT);
	finish(world, 1, KVPULL_FINISH_ABORT);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_LOAD);
	/* A request that finds all blocks locally loads nothing. */
	assert_int_equal(world_match(world, 2, 64), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_LOAD);
}

CONSUMER_TEST(aborted_pull_is_still_reported_by_every_rank, 2)
{
	pull(world, 1, ticket);
	finish(world, 1, KVPULL_FINISH_ABORT);
	expect_settled(world, KVPULL_COMMAND_ABORT, 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	pull_ended(world, 0, 1, KVPULL_EABORTED);
	assert_true(world_pending(world) & (int)KVPULL_PENDING_PULLS);
	world_pull_ended(world, 1, 1, KVPULL_EABORTED);
	expect_settled(world, KVPULL_COMMAND_RELEASE, 1);
	forget_all(world);
	expect_fresh(world);
}

CONSUMER_TEST(abort_before_blocks_commands_no_pull, 1)
{
	want_offered(world, 1, ticket);
	finish(world, 1, KVPULL_FINISH_ABORT);
	assert_int_equal(world_allocate(world, 1, 0, 4), KVPULL_ENOKEY);
	expect_settled(world, KVPULL_COMMAND_ABORT, 0);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
}

CONSUMER_TEST(rejected_ticket_is_claimed_and_released, 1)
{
	uint32_t i;

	for (i = 0; i < 3; i++)
		assert_int_equal(world_reject(world, ticket), 0);
	assert_true(world_has_step(world));
	world_settle(world);
	assert_int_equal(world->seen_count, 2);
	assert_int_equal(world->seen[0].command.kind, KVPULL_COMMAND_CLAIM);
	assert_int_equal(world->seen[1].command.kind, KVPULL_COMMAND_RELEASE);
	assert_int_equal(world->seen[0].command.ticket_serial,
			 world->seen[1].command.ticket_serial);
}

CONSUMER_TEST(rejection_of_a_ticket_in_use_sends_nothing, 1)
{
	want(world, 1, ticket);
	assert_int_equal(world_reject(world, ticket), 0);
	expect_settled(world, KVPULL_COMMAND_RELEASE, 0);
	load(world, 1);
}

CONSUMER_TEST(released_ticket_is_remembered_for_a_lease, 1)
{
	want(world, 1, ticket);
	finish(world, 1, KVPULL_FINISH_REJECT);
	world_settle(world);
	world->now_ns += WORLD_LEASE_NS - 1;
	assert_int_equal(world_want(world, 2, ticket, 1), 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_allocate(world, 2, 0, 4), KVPULL_EINVAL);
	assert_int_equal(world_allocate(world, 2, 0, 0), 0);
	expect_settled(world, KVPULL_COMMAND_CLAIM, 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	world->now_ns += 1;
	assert_int_equal(world_want(world, 3, ticket, 1), 0);
	expect_settled(world, KVPULL_COMMAND_CLAIM, 2);
}

CONSUMER_TEST(other_prompt_loads_nothing_and_still_releases, 1)
{
	assert_int_equal(world_want(world, 1, ticket, 2), 0);
	assert_int_equal(world_want(world, 2, ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_counts(world).mismatches, 1);
	expect_settled(world, KVPULL_COMMAND_RELEASE, 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_LOAD);
	finish(world, 2, KVPULL_FINISH_ABORT);
	expect_settled(world, KVPULL_COMMAND_RELEASE, 1);
}

WORLD_TEST(other_model_loads_nothing_and_still_releases, world_of_consumer(1))
{
	struct world_ticket ticket;
	struct world *producer;
	struct kvpull_scheduler_setup setup = { .rank_count = 1,
						.pp_size = 1,
						.engine_id = "other",
						.incarnation = 8 };

	producer = world_of_consumer(1);
	kvpull_scheduler_destroy(producer->scheduler);
	producer->compat.head_count = 12;
	setup.log = &producer->log;
	setup.config = &producer->config;
	setup.compat = &producer->compat;
	assert_int_equal(kvpull_scheduler_create(&setup, &producer->scheduler),
			 0);
	world_tell_rank(producer, 0);
	assert_int_equal(world_hold(producer, 1, &ticket), KVPULL_FINISH_HELD);
	want(world, 1, &ticket);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	world_settle(world);
	assert_int_equal(world_counts(world).mismatches, 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	world_close(producer);
}

WORLD_TEST(incomplete_tickets_change_nothing, world_of_consumer(1))
{
	struct world_ticket ticket = world_make_ticket(7);
	struct world_ticket foreign = { .text = "nixl", .bytes = 4 };
	struct world_ticket none = { .bytes = 0 };

	assert_int_equal(world_want(world, 1, &none, 1), KVPULL_ENOTICKET);
	assert_int_equal(world_want(world, 2, &foreign, 1), KVPULL_ENOTMINE);
	ticket.text[40] ^= 1;
	assert_int_equal(world_want(world, 3, &ticket, 1), KVPULL_ENOTICKET);
	assert_int_equal(world_reject(world, &ticket), KVPULL_ENOTICKET);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_allocate(world, 3, 0, 4), KVPULL_EINVAL);
	finish(world, 3, KVPULL_FINISH_STOP);
	world_settle(world);
	assert_int_equal(world->seen_count, 0);
	assert_int_equal(world_counts(world).bad_tickets, 3);
	assert_int_equal(world_counts(world).tickets_seen, 0);
}

CONSUMER_TEST(restarted_consumer_worker_fails_its_pulls, 2)
{
	pull(world, 2, ticket);
	world_worker_replace(world, 1, 999);
	pull_ended(world, 0, 1, 0);
	assert_int_equal(world_counts(world).pulls_failed, 1);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	finish(world, 1, KVPULL_FINISH_ERROR);
	finish(world, 2, KVPULL_FINISH_STOP);
	expect_settled(world, KVPULL_COMMAND_RELEASE, 1);
	forget_all(world);
	expect_fresh(world);
}

/*
 * The siblings' releases alone would end the hold: to P the restarted rank is
 * gone.
 */
CONSUMER_TEST(restarted_consumer_worker_reads_before_the_release, 2)
{
	world_worker_replace(world, 1, 999);
	pull(world, 2, ticket);
	assert_int_equal(world_command(world, KVPULL_COMMAND_PULL)->flags, 0);
	pull_ended(world, 0, 1, 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_WAIT);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	world_pull_ended(world, 1, 1, 0);
	expect_settled(world, KVPULL_COMMAND_RELEASE, 1);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_counts(world).pulls_done, 1);
	assert_int_equal(world_counts(world).tickets_live, 0);
}

CONSUMER_TEST(reset_forgets_pulled_tickets, 1)
{
	pull(world, 1, ticket);
	end_pull(world, 1, 0);
	finish(world, 1, KVPULL_FINISH_STOP);
	world_reset(world, KVPULL_RESET_FORGET);
	assert_int_equal(world_want(world, 2, ticket, 1), 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_LOAD);
}
