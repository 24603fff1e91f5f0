/* SPDX-License-Identifier: Apache-2.0 */
/* Why nothing is loaded for a request: what match_failure() returns. */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/unit/scheduler/world.h"

static int failure(struct world *world, uint64_t key)
{
	return kvpull_scheduler_match_failure(world->scheduler, key);
}

/* The next question of this request is answered so, for this reason. */
static void nothing(struct world *world, uint64_t key, int code)
{
	assert_int_equal(world_match(world, key, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(failure(world, key), code);
}

CONSUMER_TEST(ticket_of_another_prompt_is_a_mismatch, 1)
{
	assert_int_equal(world_want(world, 1, ticket, 2), 0);
	assert_int_equal(failure(world, 1), 0);
	nothing(world, 1, KVPULL_EMISMATCH);
	nothing(world, 1, KVPULL_EMISMATCH);
	assert_int_equal(failure(world, 99), KVPULL_ENOKEY);
}

CONSUMER_TEST(ticket_of_another_model_is_rejected, 1)
{
	world->scheduler->demand.compat[0] ^= 1;
	want(world, 1, ticket);
	nothing(world, 1, KVPULL_EREJECTED);
}

WORLD_TEST(damaged_ticket_is_no_ticket, world_of_consumer(1))
{
	struct world_ticket ticket = world_make_ticket(7);

	ticket.bytes--;
	assert_int_equal(world_want(world, 1, &ticket, 1), KVPULL_ENOTICKET);
	nothing(world, 1, KVPULL_ENOTICKET);
	ticket.text[0] = 'x';
	assert_int_equal(world_want(world, 2, &ticket, 1), KVPULL_ENOTMINE);
	nothing(world, 2, KVPULL_ENOTMINE);
}

CONSUMER_TEST(failed_pull_says_how_it_failed, 2)
{
	pull(world, 1, ticket);
	assert_int_equal(failure(world, 1), 0);
	world_pull_ended(world, 0, 1, 0);
	world_pull_ended(world, 1, 1, KVPULL_EPEER);
	world_settle(world);
	nothing(world, 1, KVPULL_EPEER);
}

/* Siblings that waited for the pull, and those that come within a lease. */
CONSUMER_TEST(siblings_of_an_expired_pull_say_that_it_expired, 1)
{
	pull(world, 2, ticket);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_WAIT);
	pull_ended(world, 0, 1, KVPULL_EEXPIRED);
	nothing(world, 2, KVPULL_EEXPIRED);
	assert_int_equal(world_want(world, 3, ticket, 1), 0);
	nothing(world, 3, KVPULL_EEXPIRED);
}

/*
 * The siblings' tokens are in the prefix cache, as far as the engine keeps it.
 */
CONSUMER_TEST(siblings_of_a_pull_have_no_failure, 1)
{
	pull(world, 2, ticket);
	pull_ended(world, 0, 1, 0);
	nothing(world, 1, 0);
	nothing(world, 2, 0);
	assert_int_equal(world_want(world, 3, ticket, 1), 0);
	nothing(world, 3, 0);
}

CONSUMER_TEST(local_tokens_are_no_failure, 1)
{
	want(world, 1, ticket);
	assert_int_equal(world_match(world, 1, 64), KVPULL_MATCH_NOTHING);
	assert_int_equal(failure(world, 1), 0);
}

CONSUMER_TEST(tickets_of_before_a_workers_restart_are_aborted, 2)
{
	want(world, 1, ticket);
	world_settle(world);
	world_worker_replace(world, 1, 77);
	world_settle(world);
	nothing(world, 1, KVPULL_EABORTED);
}

CONSUMER_TEST(ticket_of_before_a_change_of_weights_is_a_mismatch, 1)
{
	pull(world, 3, ticket);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_WAIT);
	world_change(world, 0);
	nothing(world, 2, KVPULL_EMISMATCH);
	nothing(world, 3, KVPULL_EMISMATCH);
	pull_ended(world, 0, 1, 0);
	nothing(world, 1, KVPULL_EMISMATCH);
}

TICKET_TEST(unknown_rank_is_the_failure_after_a_lease, world_of_rank_1())
{
	want(world, 1, ticket);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_WAIT);
	assert_int_equal(failure(world, 1), 0);
	world->now_ns += WORLD_LEASE_NS;
	nothing(world, 1, KVPULL_ERANK);
}
