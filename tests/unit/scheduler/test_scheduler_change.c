/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler half when weights, or an adapter, change while requests run. */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/unit/scheduler/world.h"

#define ADAPTER 5u

/* A request of an adapter that wants a hold. */
static void enter(struct world *world, uint64_t key, uint64_t adapter)
{
	const struct kvpull_request request = {
		.key = key,
		.prompt_tokens = 64,
		.flags = KVPULL_REQUEST_WANTS_HOLD,
		.adapter = adapter,
	};

	assert_int_equal(world_ask(world, &request), 0);
}

static int is_held(struct world *world, uint64_t key)
{
	struct world_ticket ticket;
	const int held = world_finish(world, key, KVPULL_FINISH_LENGTH,
				      &ticket) == KVPULL_FINISH_HELD;

	assert_int_equal(ticket.bytes != 0, held);
	return held;
}

PRODUCER_TEST(requests_that_run_over_a_change_are_never_held, 1)
{
	enter(world, 1, 0);
	world_change(world, 0);
	enter(world, 2, 0);
	assert_false(is_held(world, 1));
	assert_true(is_held(world, 2));
	assert_int_equal(world_counts(world).changed, 1);
}

PRODUCER_TEST(holds_of_before_a_change_stay, 1)
{
	hold(world, 1);
	world_change(world, 0);
	world_settle(world);
	assert_int_equal(world_counts(world).holds_live, 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), 0);
}

PRODUCER_TEST(sibling_that_ran_over_a_change_gets_no_ticket, 1)
{
	world_enter(world, 1, 3, 1);
	world_enter(world, 2, 3, 1);
	assert_true(is_held(world, 1));
	world_change(world, 0);
	assert_false(is_held(world, 2));
	assert_int_equal(world_counts(world).family_members, 0);
}

PRODUCER_TEST(change_of_an_adapter_is_of_its_requests_alone, 1)
{
	enter(world, 1, ADAPTER);
	enter(world, 2, ADAPTER + 1);
	enter(world, 3, 0);
	world_change(world, ADAPTER);
	assert_false(is_held(world, 1));
	assert_true(is_held(world, 2));
	assert_true(is_held(world, 3));
}

PRODUCER_TEST(hit_of_a_cache_of_before_is_never_held, 1)
{
	world_change(world, 0);
	enter(world, 1, 0);
	enter(world, 2, 0);
	assert_int_equal(world_match(world, 1, 16), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	/* Judged at the hit: by the finish the cache is clean again. */
	world_reset(world, KVPULL_RESET_CLEARED);
	assert_false(is_held(world, 1));
	assert_true(is_held(world, 2));
	enter(world, 3, ADAPTER);
	assert_int_equal(world_match(world, 3, 16), KVPULL_MATCH_NOTHING);
	assert_true(is_held(world, 3));
}

PRODUCER_TEST(cached_kv_of_a_changed_adapter_is_suspect_alone, 1)
{
	uint64_t key;

	world_change(world, ADAPTER);
	world_change(world, ADAPTER);
	for (key = 1; key <= 3; key++) {
		const uint64_t adapters[] = { 0, ADAPTER, ADAPTER + 1 };

		enter(world, key, adapters[key - 1]);
		(void)world_match(world, key, 16);
		assert_int_equal(is_held(world, key),
				 adapters[key - 1] != ADAPTER);
	}
}

PRODUCER_TEST(too_many_changed_adapters_make_all_suspect, 1)
{
	uint64_t adapter;

	for (adapter = 1; adapter <= KVPULL_SUSPECTS_MAX; adapter++)
		world_change(world, adapter);
	enter(world, 1, 0);
	(void)world_match(world, 1, 16);
	assert_true(is_held(world, 1));
	world_change(world, adapter);
	enter(world, 2, 0);
	(void)world_match(world, 2, 16);
	assert_false(is_held(world, 2));
	world_reset(world, KVPULL_RESET_CLEARED);
	enter(world, 3, 1);
	(void)world_match(world, 3, 16);
	assert_true(is_held(world, 3));
}

/* The consumer. */

static int loaded(struct world *world, uint64_t key)
{
	return kvpull_scheduler_loaded(world->scheduler, key);
}

/* Nothing is left of the request and its ticket but the memory of a lease. */
static void expect_nothing_left(struct world *world, uint64_t key)
{
	assert_false(is_held(world, key));
	assert_int_equal(loaded(world, key), KVPULL_ENOKEY);
	world_settle(world);
	assert_int_equal(world_counts(world).tickets_live, 0);
	forget_all(world);
	expect_fresh(world);
}

CONSUMER_TEST(ticket_that_waits_over_a_change_is_given_back, 1)
{
	want(world, 1, ticket);
	world_change(world, 0);
	expect_settled(world, KVPULL_COMMAND_RELEASE, 1);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_counts(world).changed, 1);
	expect_nothing_left(world, 1);
}

CONSUMER_TEST(blocks_that_are_taken_after_a_change_load_nothing, 1)
{
	want_offered(world, 1, ticket);
	world_change(world, 0);
	assert_int_equal(world_allocate(world, 1, 0, 4), KVPULL_EMISMATCH);
	expect_warning(world, "weights or its adapter");
	world_step(world);
	assert_int_equal(world_command(world, KVPULL_COMMAND_PULL)->reason,
			 KVPULL_EMISMATCH);
	pull_ended(world, 0, 1, KVPULL_EMISMATCH);
	assert_int_equal(world_counts(world).pulls_failed, 1);
	expect_nothing_left(world, 1);
}

CONSUMER_TEST(offer_of_before_a_change_is_not_made_again, 1)
{
	want_offered(world, 1, ticket);
	world_change(world, 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	expect_settled(world, KVPULL_COMMAND_RELEASE, 1);
	assert_int_equal(world_counts(world).changed, 1);
}

CONSUMER_TEST(pull_that_runs_over_a_change_is_no_success, 1)
{
	want(world, 1, ticket);
	load(world, 1);
	world_step(world);
	world_change(world, 0);
	assert_int_equal(loaded(world, 1), KVPULL_EMISMATCH);
	end_pull(world, 1, 0);
	assert_int_equal(loaded(world, 1), KVPULL_EMISMATCH);
	assert_int_equal(world_counts(world).pulls_done, 0);
	assert_int_equal(world_counts(world).pulls_failed, 1);
	assert_int_equal(world_counts(world).changed, 1);
	expect_nothing_left(world, 1);
}

/* The engine's question ends a pull, not the workers' reports. */
CONSUMER_TEST(change_between_the_reports_and_the_question_counts, 1)
{
	want(world, 1, ticket);
	load(world, 1);
	world_step(world);
	end_pull(world, 1, 0);
	world_change(world, 0);
	assert_int_equal(loaded(world, 1), KVPULL_EMISMATCH);
}

CONSUMER_TEST(what_is_used_before_a_change_stays_loaded, 1)
{
	want(world, 1, ticket);
	load(world, 1);
	world_step(world);
	assert_int_equal(loaded(world, 1), 0);
	world_change(world, 0);
	assert_int_equal(loaded(world, 1), 0);
	end_pull(world, 1, 0);
	assert_int_equal(world_counts(world).pulls_done, 1);
	assert_int_equal(world_counts(world).changed, 0);
}

CONSUMER_TEST(siblings_that_wait_over_a_change_load_nothing, 1)
{
	want_offered(world, 2, ticket);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_WAIT);
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
	world_step(world);
	world_change(world, 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	end_pull(world, 1, 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_counts(world).tickets_live, 0);
}
