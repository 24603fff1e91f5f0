/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler half when weights, or an adapter, change while requests run. */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/unit/scheduler/world.h"

#define ADAPTER 5u

static struct world *opened(uint64_t incarnation)
{
	const struct kvpull_config config = world_config();

	return world_open(&config, 1, incarnation);
}

static void change(struct world *world, uint64_t adapter)
{
	assert_int_equal(kvpull_scheduler_changed(world->scheduler, adapter,
						  world->now_ns),
			 0);
}

static void clear(struct world *world)
{
	assert_int_equal(kvpull_scheduler_reset(world->scheduler,
						KVPULL_RESET_CLEARED,
						world->now_ns),
			 0);
}

/* A request of an adapter that wants a hold. */
static void enter(struct world *world, uint64_t key, uint64_t adapter)
{
	const struct kvpull_request request = {
		.key = key,
		.prompt_tokens = 64,
		.flags = KVPULL_REQUEST_WANTS_HOLD,
		.adapter = adapter,
	};

	assert_int_equal(kvpull_scheduler_request_new(world->scheduler,
						      &request, world->now_ns),
			 0);
}

static int finished(struct world *world, uint64_t key)
{
	struct world_ticket ticket;
	const int answer =
		world_finish(world, key, KVPULL_FINISH_LENGTH, &ticket);

	assert_int_equal(ticket.bytes != 0, answer == KVPULL_FINISH_HELD);
	return answer;
}

static int is_held(struct world *world, uint64_t key)
{
	return finished(world, key) == KVPULL_FINISH_HELD;
}

UNIT_TEST(requests_that_run_over_a_change_are_never_held)
{
	struct world *world = opened(7);

	enter(world, 1, 0);
	change(world, 0);
	enter(world, 2, 0);
	assert_false(is_held(world, 1));
	assert_true(is_held(world, 2));
	assert_int_equal(world_counts(world).changed, 1);
	world_close(world);
}

UNIT_TEST(holds_of_before_a_change_stay)
{
	struct world *world = opened(7);
	struct world_ticket ticket;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	change(world, 0);
	world_settle(world);
	assert_int_equal(world_counts(world).holds_live, 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), 0);
	world_close(world);
}

UNIT_TEST(sibling_that_ran_over_a_change_gets_no_ticket)
{
	struct world *world = opened(7);
	struct world_ticket ticket;

	world_enter(world, 1, 3, 1);
	world_enter(world, 2, 3, 1);
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_LENGTH, &ticket),
			 KVPULL_FINISH_HELD);
	change(world, 0);
	assert_false(is_held(world, 2));
	assert_int_equal(world_counts(world).family_members, 0);
	world_close(world);
}

UNIT_TEST(change_of_an_adapter_is_of_its_requests_alone)
{
	struct world *world = opened(7);

	enter(world, 1, ADAPTER);
	enter(world, 2, ADAPTER + 1);
	enter(world, 3, 0);
	change(world, ADAPTER);
	assert_false(is_held(world, 1));
	assert_true(is_held(world, 2));
	assert_true(is_held(world, 3));
	world_close(world);
}

UNIT_TEST(hit_of_a_cache_of_before_is_never_held)
{
	struct world *world = opened(7);

	change(world, 0);
	enter(world, 1, 0);
	enter(world, 2, 0);
	assert_int_equal(world_match(world, 1, 16), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	/* Judged at the hit: by the finish the cache is clean again. */
	clear(world);
	assert_false(is_held(world, 1));
	assert_true(is_held(world, 2));
	enter(world, 3, ADAPTER);
	assert_int_equal(world_match(world, 3, 16), KVPULL_MATCH_NOTHING);
	assert_true(is_held(world, 3));
	world_close(world);
}

UNIT_TEST(cached_kv_of_a_changed_adapter_is_suspect_alone)
{
	struct world *world = opened(7);
	uint64_t key;

	change(world, ADAPTER);
	change(world, ADAPTER);
	for (key = 1; key <= 3; key++) {
		const uint64_t adapters[] = { 0, ADAPTER, ADAPTER + 1 };

		enter(world, key, adapters[key - 1]);
		(void)world_match(world, key, 16);
		assert_int_equal(is_held(world, key),
				 adapters[key - 1] != ADAPTER);
	}
	world_close(world);
}

UNIT_TEST(too_many_changed_adapters_make_all_suspect)
{
	struct world *world = opened(7);
	uint64_t adapter;

	for (adapter = 1; adapter <= KVPULL_SUSPECTS_MAX; adapter++)
		change(world, adapter);
	enter(world, 1, 0);
	(void)world_match(world, 1, 16);
	assert_true(is_held(world, 1));
	change(world, adapter);
	enter(world, 2, 0);
	(void)world_match(world, 2, 16);
	assert_false(is_held(world, 2));
	clear(world);
	enter(world, 3, 1);
	(void)world_match(world, 3, 16);
	assert_true(is_held(world, 3));
	world_close(world);
}

/* The consumer. */

static void end_pull(struct world *world, uint64_t key)
{
	world_pull_ended(world, 0, key, 0);
	world_settle(world);
}

static int loaded(struct world *world, uint64_t key)
{
	return kvpull_scheduler_loaded(world->scheduler, key);
}

/* Nothing is left of the request and its ticket but the memory of a lease. */
static void check_nothing_left(struct world *world, uint64_t key,
			       uint64_t fresh)
{
	assert_false(is_held(world, key));
	assert_int_equal(loaded(world, key), KVPULL_ENOKEY);
	world_settle(world);
	assert_int_equal(world_counts(world).tickets_live, 0);
	world->now_ns += WORLD_LEASE_NS;
	world_settle(world);
	assert_true(kvpull_scheduler_digest(world->scheduler) == fresh);
}

UNIT_TEST(ticket_that_waits_over_a_change_is_given_back)
{
	const struct world_ticket ticket = world_make_ticket(7);
	struct world *world = opened(9);
	const uint64_t fresh = kvpull_scheduler_digest(world->scheduler);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	change(world, 0);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_counts(world).changed, 1);
	check_nothing_left(world, 1, fresh);
	world_close(world);
}

UNIT_TEST(blocks_that_are_taken_after_a_change_load_nothing)
{
	const struct world_ticket ticket = world_make_ticket(7);
	struct world *world = opened(9);
	const uint64_t fresh = kvpull_scheduler_digest(world->scheduler);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	change(world, 0);
	assert_int_equal(world_allocate(world, 1, 0, 4), KVPULL_EMISMATCH);
	assert_non_null(strstr(world->lines.of[KVPULL_LOG_WARN],
			       "weights or its adapter"));
	world_step(world);
	assert_int_equal(world_last(world, KVPULL_COMMAND_PULL)->command.reason,
			 KVPULL_EMISMATCH);
	world_pull_ended(world, 0, 1, KVPULL_EMISMATCH);
	world_settle(world);
	assert_int_equal(world_counts(world).pulls_failed, 1);
	check_nothing_left(world, 1, fresh);
	world_close(world);
}

UNIT_TEST(offer_of_before_a_change_is_not_made_again)
{
	const struct world_ticket ticket = world_make_ticket(7);
	struct world *world = opened(9);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	change(world, 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_RELEASE), 1);
	assert_int_equal(world_counts(world).changed, 1);
	world_close(world);
}

UNIT_TEST(pull_that_runs_over_a_change_is_no_success)
{
	const struct world_ticket ticket = world_make_ticket(7);
	struct world *world = opened(9);
	const uint64_t fresh = kvpull_scheduler_digest(world->scheduler);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
	world_step(world);
	change(world, 0);
	assert_int_equal(loaded(world, 1), KVPULL_EMISMATCH);
	end_pull(world, 1);
	assert_int_equal(loaded(world, 1), KVPULL_EMISMATCH);
	assert_int_equal(world_counts(world).pulls_done, 0);
	assert_int_equal(world_counts(world).pulls_failed, 1);
	assert_int_equal(world_counts(world).changed, 1);
	check_nothing_left(world, 1, fresh);
	world_close(world);
}

/* The engine's question ends a pull, not the workers' reports. */
UNIT_TEST(change_between_the_reports_and_the_question_counts)
{
	const struct world_ticket ticket = world_make_ticket(7);
	struct world *world = opened(9);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
	world_step(world);
	end_pull(world, 1);
	change(world, 0);
	assert_int_equal(loaded(world, 1), KVPULL_EMISMATCH);
	world_close(world);
}

UNIT_TEST(what_is_used_before_a_change_stays_loaded)
{
	const struct world_ticket ticket = world_make_ticket(7);
	struct world *world = opened(9);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
	world_step(world);
	assert_int_equal(loaded(world, 1), 0);
	change(world, 0);
	assert_int_equal(loaded(world, 1), 0);
	end_pull(world, 1);
	assert_int_equal(world_counts(world).pulls_done, 1);
	assert_int_equal(world_counts(world).changed, 0);
	world_close(world);
}

UNIT_TEST(siblings_that_wait_over_a_change_load_nothing)
{
	const struct world_ticket ticket = world_make_ticket(7);
	struct world *world = opened(9);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_want(world, 2, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_WAIT);
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
	world_step(world);
	change(world, 0);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	end_pull(world, 1);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_counts(world).tickets_live, 0);
	world_close(world);
}
