/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler half as a consumer: tickets, their users, the last word. */
#include "tests/unit/scheduler/world.h"

static struct kvpull_config apart(void)
{
	struct kvpull_config config = world_config();

	config.share_prefix = 0;
	return config;
}

static struct world *opened(uint32_t tp_size)
{
	const struct kvpull_config config = world_config();

	return world_open(&config, tp_size, 9);
}

/* Every rank says that the pull is over. */
static void end_pull(struct world *world, uint64_t key, int32_t reason)
{
	uint32_t rank;

	for (rank = 0; rank < world->rank_count; rank++)
		world_pull_ended(world, rank, key, reason);
	world_settle(world);
}

static void finish(struct world *world, uint64_t key, uint32_t reason)
{
	struct world_ticket none;

	assert_int_equal(world_finish(world, key, reason, &none),
			 KVPULL_FINISH_FREE);
}

static void load(struct world *world, uint64_t key)
{
	assert_int_equal(world_match(world, key, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate(world, key, 0, 4), 0);
}

static void forget_all(struct world *world)
{
	world_settle(world);
	world->now_ns += WORLD_LEASE_NS;
	world_settle(world);
}

UNIT_TEST(one_user_claims_pulls_and_the_worker_releases)
{
	struct world *world = opened(1);
	const uint64_t fresh = kvpull_scheduler_digest(world->scheduler);
	const struct world_ticket ticket = world_make_ticket(7);
	const struct world_seen *pull;

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_CLAIM), 1);
	assert_string_equal(
		world_last(world, KVPULL_COMMAND_CLAIM)->command.label,
		"request-b");
	load(world, 1);
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_PULL), 1);
	pull = world_last(world, KVPULL_COMMAND_PULL);
	assert_string_equal(pull->command.label, "request-b");
	assert_int_equal(pull->command.flags, KVPULL_FLAG_RELEASE);
	assert_int_equal(pull->pair_count, 4);
	assert_memory_equal(pull->remote, world_blocks, sizeof(world_blocks));
	assert_memory_equal(pull->local, world_local_blocks,
			    sizeof(world_local_blocks));
	assert_int_equal(
		kvpull_scheduler_has_pending(world->scheduler, world->now_ns),
		KVPULL_PENDING_PULLS);
	end_pull(world, 1, 0);
	assert_int_equal(
		kvpull_scheduler_has_pending(world->scheduler, world->now_ns),
		0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	finish(world, 1, KVPULL_FINISH_STOP);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	assert_int_equal(world_counts(world).pulls_done, 1);
	assert_int_equal(world_counts(world).tickets_live, 0);
	forget_all(world);
	assert_true(kvpull_scheduler_digest(world->scheduler) == fresh);
	world_close(world);
}

UNIT_TEST(ready_is_waited_for_when_the_ticket_says_so)
{
	const struct kvpull_config config = world_config();
	struct world *producer = world_open(&config, 1, 7);
	struct world *world = opened(1);
	const struct kvpull_blocks group = { .block_count = 4,
					     .block_ids = world_blocks };
	struct world_ticket ticket;
	struct kvpull_finish finish = {
		.key = 1,
		.flags = KVPULL_FINISH_READY_NEEDED,
		.computed_tokens = 64,
		.group_count = 1,
		.groups = &group,
		.ticket = ticket.text,
		.ticket_capacity = sizeof(ticket.text),
	};

	world_enter(producer, 1, 0, 1);
	assert_int_equal(kvpull_scheduler_request_finished(producer->scheduler,
							   &finish,
							   producer->now_ns),
			 KVPULL_FINISH_HELD);
	ticket.bytes = finish.ticket_bytes;
	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	load(world, 1);
	world_step(world);
	assert_int_equal(world_last(world, KVPULL_COMMAND_PULL)->command.flags,
			 KVPULL_FLAG_RELEASE | KVPULL_FLAG_READY);
	world_close(producer);
	world_close(world);
}

UNIT_TEST(ticket_without_our_key_is_refused)
{
	struct kvpull_config config = world_config();
	const struct world_ticket ticket = world_make_ticket(7);
	struct world *world;

	config.key_set = 1;
	memset(config.key, 3, sizeof(config.key));
	world = world_open(&config, 1, 9);
	assert_int_equal(world_want(world, 1, &ticket, 1), KVPULL_ENOTICKET);
	assert_int_equal(world_counts(world).bad_tickets, 1);
	world_close(world);
}

UNIT_TEST(blocks_are_mapped_by_logical_index)
{
	struct world *world = opened(1);
	const struct world_ticket ticket = world_make_ticket(7);
	const struct world_seen *pull;

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 32), KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate(world, 1, 2, 2), 0);
	world_step(world);
	pull = world_last(world, KVPULL_COMMAND_PULL);
	assert_int_equal(pull->pair_count, 2);
	assert_memory_equal(pull->remote, world_blocks + 2, 8);
	world_close(world);
}

UNIT_TEST(blocks_beyond_the_ticket_are_refused_and_reported_once)
{
	struct world *world = opened(2);
	const struct world_ticket ticket = world_make_short_ticket(7, 1);
	const struct world_seen *pull;

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate(world, 1, 0, 4), KVPULL_ETRUNCATED);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_PULL), 1);
	pull = world_last(world, KVPULL_COMMAND_PULL);
	assert_int_equal(pull->command.reason, KVPULL_ETRUNCATED);
	assert_int_equal(pull->command.key, 1);
	assert_int_equal(pull->pair_count, 0);
	end_pull(world, 1, KVPULL_ETRUNCATED);
	assert_int_equal(world_counts(world).pulls_failed, 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	world_close(world);
}

UNIT_TEST(pull_over_the_limit_is_refused)
{
	struct kvpull_config config = world_config();
	const struct world_ticket ticket = world_make_ticket(7);
	struct world *world;

	config.pull_blocks_max = 3;
	world = world_open(&config, 1, 9);
	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate(world, 1, 0, 4), KVPULL_EFULL);
	world_settle(world);
	assert_int_equal(world_last(world, KVPULL_COMMAND_PULL)->command.reason,
			 KVPULL_EFULL);
	world_close(world);
}

/* Pulls of ranks that have not reported yet count, and so do promised pulls. */
UNIT_TEST(pulls_over_the_limit_wait)
{
	struct kvpull_config config = world_config();
	struct world *world;
	uint64_t key;

	config.pulls_max = 2;
	world = world_open(&config, 2, 9);
	for (key = 1; key <= 5; key++) {
		const struct world_ticket ticket = world_make_ticket(6 + key);

		assert_int_equal(world_want(world, key, &ticket, 1), 0);
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
	world_pull_ended(world, 0, 1, 0);
	world_settle(world);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_WAIT);
	world_pull_ended(world, 1, 1, 0);
	world_settle(world);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_LOAD);
	/* Neither this request nor the next wants its place any more. */
	assert_int_equal(world_match(world, 4, 0), KVPULL_MATCH_WAIT);
	finish(world, 3, KVPULL_FINISH_ABORT);
	assert_int_equal(world_match(world, 4, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_match(world, 4, 64), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_match(world, 5, 0), KVPULL_MATCH_LOAD);
	world_close(world);
}

UNIT_TEST(eight_users_pull_once_and_release_once)
{
	struct world *world = opened(2);
	const struct world_ticket ticket = world_make_ticket(7);
	uint64_t key;

	for (key = 1; key <= 8; key++)
		assert_int_equal(world_want(world, key, &ticket, 1), 0);
	/* The fourth was refused by the engine's front: it says nothing. */
	finish(world, 4, KVPULL_FINISH_REJECT);
	load(world, 1);
	for (key = 2; key <= 8; key++)
		assert_int_equal(world_match(world, key, 0),
				 key == 4 ? KVPULL_MATCH_NOTHING :
					    KVPULL_MATCH_WAIT);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	world_pull_ended(world, 0, 1, 0);
	world_settle(world);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_WAIT);
	world_pull_ended(world, 1, 1, 0);
	world_settle(world);
	for (key = 2; key <= 8; key++) {
		if (key == 4)
			continue;
		assert_int_equal(world_match(world, key, 0),
				 KVPULL_MATCH_NOTHING);
	}
	for (key = 1; key <= 8; key++)
		if (key != 4)
			finish(world, key, KVPULL_FINISH_STOP);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_CLAIM), 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_PULL), 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	assert_int_equal(world_counts(world).rejects, 1);
	assert_int_equal(world_counts(world).tickets_live, 0);
	world_close(world);
}

UNIT_TEST(release_follows_the_last_user)
{
	struct world *world = opened(1);
	const struct world_ticket ticket = world_make_ticket(7);
	uint64_t key;

	for (key = 1; key <= 3; key++)
		assert_int_equal(world_want(world, key, &ticket, 1), 0);
	finish(world, 2, KVPULL_FINISH_ABORT);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	finish(world, 1, KVPULL_FINISH_REJECT);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	finish(world, 3, KVPULL_FINISH_REJECT);
	assert_true(
		kvpull_scheduler_has_pending(world->scheduler, world->now_ns) &
		(int)KVPULL_PENDING_STEP);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	world_close(world);
}

UNIT_TEST(full_local_hit_gives_the_ticket_back)
{
	struct world *world = opened(1);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 64), KVPULL_MATCH_NOTHING);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	assert_int_equal(world_allocate(world, 1, 0, 0), 0);
	assert_int_equal(world_allocate(world, 1, 0, 0), 0);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	world_close(world);
}

UNIT_TEST(without_sharing_each_pulls_and_the_release_follows)
{
	const struct kvpull_config config = apart();
	struct world *world = world_open(&config, 1, 9);
	const struct world_ticket ticket = world_make_ticket(7);
	uint64_t key;

	for (key = 1; key <= 3; key++)
		assert_int_equal(world_want(world, key, &ticket, 1), 0);
	for (key = 1; key <= 3; key++)
		load(world, key);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_PULL), 3);
	assert_int_equal(world_last(world, KVPULL_COMMAND_PULL)->command.flags,
			 0);
	end_pull(world, 1, 0);
	end_pull(world, 2, 0);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	end_pull(world, 3, 0);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	world_close(world);
}

UNIT_TEST(late_user_of_a_releasing_pull_waits)
{
	const struct kvpull_config config = apart();
	struct world *world = world_open(&config, 1, 9);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	load(world, 1);
	world_settle(world);
	assert_int_equal(world_want(world, 2, &ticket, 1), 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_WAIT);
	end_pull(world, 1, 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	world_close(world);
}

UNIT_TEST(nobody_retries_after_expiry)
{
	struct world *world = opened(2);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_want(world, 2, &ticket, 1), 0);
	load(world, 1);
	world_settle(world);
	end_pull(world, 1, KVPULL_EEXPIRED);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_PULL), 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	assert_int_equal(world_counts(world).tickets_live, 0);
	world_close(world);
}

UNIT_TEST(next_user_retries_after_another_failure)
{
	struct world *world = opened(2);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_want(world, 2, &ticket, 1), 0);
	load(world, 1);
	world_settle(world);
	end_pull(world, 1, KVPULL_EPEER);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	load(world, 2);
	world_settle(world);
	end_pull(world, 2, KVPULL_EREAD);
	assert_int_equal(world_count(world, KVPULL_COMMAND_PULL), 2);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	world_close(world);
}

UNIT_TEST(half_released_ticket_is_not_pulled_again)
{
	struct world *world = opened(2);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_want(world, 2, &ticket, 1), 0);
	load(world, 1);
	world_settle(world);
	world_pull_ended(world, 0, 1, 0);
	world_pull_ended(world, 1, 1, KVPULL_EREAD);
	world_settle(world);
	/* Rank 1 has not released: the word goes out at once. */
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_counts(world).pulls_failed, 1);
	world_close(world);
}

UNIT_TEST(one_rank_reporting_twice_ends_no_pull)
{
	struct world *world = opened(2);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	load(world, 1);
	world_settle(world);
	world_pull_ended(world, 0, 1, 0);
	world_pull_ended(world, 0, 1, 0);
	world_settle(world);
	assert_int_equal(world_counts(world).pulls_done, 0);
	assert_int_equal(world_counts(world).unknown_keys, 1);
	world_close(world);
}

UNIT_TEST(loader_that_left_hands_over)
{
	struct world *world = opened(1);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_want(world, 2, &ticket, 1), 0);
	assert_int_equal(world_want(world, 3, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_match(world, 1, 16), KVPULL_MATCH_LOAD);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_WAIT);
	finish(world, 1, KVPULL_FINISH_ABORT);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_LOAD);
	/* A request that finds all blocks locally loads nothing. */
	assert_int_equal(world_match(world, 2, 64), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_LOAD);
	world_close(world);
}

UNIT_TEST(aborted_pull_is_still_reported_by_every_rank)
{
	struct world *world = opened(2);
	const struct world_ticket ticket = world_make_ticket(7);
	const uint64_t fresh = kvpull_scheduler_digest(world->scheduler);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	load(world, 1);
	world_settle(world);
	finish(world, 1, KVPULL_FINISH_ABORT);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_ABORT), 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	world_pull_ended(world, 0, 1, KVPULL_EABORTED);
	world_settle(world);
	assert_true(
		kvpull_scheduler_has_pending(world->scheduler, world->now_ns) &
		(int)KVPULL_PENDING_PULLS);
	world_pull_ended(world, 1, 1, KVPULL_EABORTED);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	forget_all(world);
	assert_true(kvpull_scheduler_digest(world->scheduler) == fresh);
	world_close(world);
}

UNIT_TEST(abort_before_blocks_commands_no_pull)
{
	struct world *world = opened(1);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	finish(world, 1, KVPULL_FINISH_ABORT);
	assert_int_equal(world_allocate(world, 1, 0, 4), KVPULL_ENOKEY);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_ABORT), 0);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	world_close(world);
}

UNIT_TEST(rejected_ticket_is_claimed_and_released)
{
	struct world *world = opened(1);
	const struct world_ticket ticket = world_make_ticket(7);
	uint32_t i;

	for (i = 0; i < 3; i++)
		assert_int_equal(kvpull_scheduler_request_rejected(
					 world->scheduler, ticket.text,
					 ticket.bytes, world->now_ns),
				 0);
	assert_true(
		kvpull_scheduler_has_pending(world->scheduler, world->now_ns) &
		(int)KVPULL_PENDING_STEP);
	world_settle(world);
	assert_int_equal(world->seen_count, 2);
	assert_int_equal(world->seen[0].command.kind, KVPULL_COMMAND_CLAIM);
	assert_int_equal(world->seen[1].command.kind, KVPULL_COMMAND_RELEASE);
	assert_int_equal(world->seen[0].command.ticket_serial,
			 world->seen[1].command.ticket_serial);
	world_close(world);
}

UNIT_TEST(rejection_of_a_ticket_in_use_sends_nothing)
{
	struct world *world = opened(1);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(
		kvpull_scheduler_request_rejected(world->scheduler, ticket.text,
						  ticket.bytes, world->now_ns),
		0);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	load(world, 1);
	world_close(world);
}

UNIT_TEST(released_ticket_is_remembered_for_a_lease)
{
	struct world *world = opened(1);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	finish(world, 1, KVPULL_FINISH_REJECT);
	world_settle(world);
	world->now_ns += WORLD_LEASE_NS - 1;
	assert_int_equal(world_want(world, 2, &ticket, 1), 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_allocate(world, 2, 0, 4), KVPULL_EINVAL);
	assert_int_equal(world_allocate(world, 2, 0, 0), 0);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_CLAIM), 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	world->now_ns += 1;
	assert_int_equal(world_want(world, 3, &ticket, 1), 0);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_CLAIM), 2);
	world_close(world);
}

UNIT_TEST(other_prompt_loads_nothing_and_still_releases)
{
	struct world *world = opened(1);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 2), 0);
	assert_int_equal(world_want(world, 2, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_counts(world).mismatches, 1);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_LOAD);
	finish(world, 2, KVPULL_FINISH_ABORT);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	world_close(world);
}

UNIT_TEST(other_model_loads_nothing_and_still_releases)
{
	struct world *world = opened(1);
	struct world_ticket ticket;
	struct world *producer;
	struct kvpull_scheduler_setup setup = { .rank_count = 1,
						.pp_size = 1,
						.engine_id = "other",
						.incarnation = 8 };

	producer = opened(1);
	kvpull_scheduler_destroy(producer->scheduler);
	producer->compat.head_count = 12;
	setup.log = &producer->log;
	setup.config = &producer->config;
	setup.compat = &producer->compat;
	assert_int_equal(kvpull_scheduler_create(&setup, &producer->scheduler),
			 0);
	world_tell_rank(producer, 0);
	assert_int_equal(world_hold(producer, 1, &ticket), KVPULL_FINISH_HELD);
	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	world_settle(world);
	assert_int_equal(world_counts(world).mismatches, 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	world_close(producer);
	world_close(world);
}

UNIT_TEST(incomplete_tickets_change_nothing)
{
	struct world *world = opened(1);
	struct world_ticket ticket = world_make_ticket(7);
	struct world_ticket foreign = { .text = "nixl", .bytes = 4 };
	struct world_ticket none = { .bytes = 0 };

	assert_int_equal(world_want(world, 1, &none, 1), KVPULL_ENOTICKET);
	assert_int_equal(world_want(world, 2, &foreign, 1), KVPULL_ENOTMINE);
	ticket.text[40] ^= 1;
	assert_int_equal(world_want(world, 3, &ticket, 1), KVPULL_ENOTICKET);
	assert_int_equal(
		kvpull_scheduler_request_rejected(world->scheduler, ticket.text,
						  ticket.bytes, world->now_ns),
		KVPULL_ENOTICKET);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_allocate(world, 3, 0, 4), KVPULL_EINVAL);
	finish(world, 3, KVPULL_FINISH_STOP);
	world_settle(world);
	assert_int_equal(world->seen_count, 0);
	assert_int_equal(world_counts(world).bad_tickets, 3);
	assert_int_equal(world_counts(world).tickets_seen, 0);
	world_close(world);
}

UNIT_TEST(restarted_consumer_worker_fails_its_pulls)
{
	struct world *world = opened(2);
	const struct world_ticket ticket = world_make_ticket(7);
	const uint64_t fresh = kvpull_scheduler_digest(world->scheduler);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_want(world, 2, &ticket, 1), 0);
	load(world, 1);
	world_settle(world);
	world_worker_replace(world, 1, 999);
	world_pull_ended(world, 0, 1, 0);
	world_settle(world);
	assert_int_equal(world_counts(world).pulls_failed, 1);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	finish(world, 1, KVPULL_FINISH_ERROR);
	finish(world, 2, KVPULL_FINISH_STOP);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	forget_all(world);
	assert_true(kvpull_scheduler_digest(world->scheduler) == fresh);
	world_close(world);
}

/*
 * The siblings' releases alone would end the hold: to P the restarted rank is
 * gone.
 */
UNIT_TEST(restarted_consumer_worker_reads_before_the_release)
{
	struct world *world = opened(2);
	const struct world_ticket ticket = world_make_ticket(7);

	world_worker_replace(world, 1, 999);
	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_want(world, 2, &ticket, 1), 0);
	load(world, 1);
	world_settle(world);
	assert_int_equal(world_last(world, KVPULL_COMMAND_PULL)->command.flags,
			 0);
	world_pull_ended(world, 0, 1, 0);
	world_settle(world);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_WAIT);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 0);
	world_pull_ended(world, 1, 1, 0);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_counts(world).pulls_done, 1);
	assert_int_equal(world_counts(world).tickets_live, 0);
	world_close(world);
}

UNIT_TEST(reset_forgets_pulled_tickets)
{
	struct world *world = opened(1);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	load(world, 1);
	world_settle(world);
	end_pull(world, 1, 0);
	finish(world, 1, KVPULL_FINISH_STOP);
	assert_int_equal(kvpull_scheduler_reset(world->scheduler,
						KVPULL_RESET_FORGET,
						world->now_ns),
			 0);
	assert_int_equal(world_want(world, 2, &ticket, 1), 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_LOAD);
	world_close(world);
}
