/* SPDX-License-Identifier: Apache-2.0 */
/* Why nothing is loaded for a request: what match_failure() returns. */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/unit/scheduler/world.h"

static struct world *opened(uint32_t tp_size)
{
	const struct kvpull_config config = world_config();

	return world_open(&config, tp_size, 9);
}

static void load(struct world *world, uint64_t key)
{
	assert_int_equal(world_match(world, key, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate(world, key, 0, 4), 0);
	world_settle(world);
}

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

UNIT_TEST(ticket_of_another_prompt_is_a_mismatch)
{
	struct world *world = opened(1);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 2), 0);
	assert_int_equal(failure(world, 1), 0);
	nothing(world, 1, KVPULL_EMISMATCH);
	nothing(world, 1, KVPULL_EMISMATCH);
	assert_int_equal(failure(world, 99), KVPULL_ENOKEY);
	world_close(world);
}

UNIT_TEST(ticket_of_another_model_is_rejected)
{
	struct world *world = opened(1);
	const struct world_ticket ticket = world_make_ticket(7);

	world->scheduler->demand.compat[0] ^= 1;
	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	nothing(world, 1, KVPULL_EREJECTED);
	world_close(world);
}

UNIT_TEST(damaged_ticket_is_no_ticket)
{
	struct world *world = opened(1);
	struct world_ticket ticket = world_make_ticket(7);

	ticket.bytes--;
	assert_int_equal(world_want(world, 1, &ticket, 1), KVPULL_ENOTICKET);
	nothing(world, 1, KVPULL_ENOTICKET);
	ticket.text[0] = 'x';
	assert_int_equal(world_want(world, 2, &ticket, 1), KVPULL_ENOTMINE);
	nothing(world, 2, KVPULL_ENOTMINE);
	world_close(world);
}

UNIT_TEST(failed_pull_says_how_it_failed)
{
	struct world *world = opened(2);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	load(world, 1);
	assert_int_equal(failure(world, 1), 0);
	world_pull_ended(world, 0, 1, 0);
	world_pull_ended(world, 1, 1, KVPULL_EPEER);
	world_settle(world);
	nothing(world, 1, KVPULL_EPEER);
	world_close(world);
}

/* Siblings that waited for the pull, and those that come within a lease. */
UNIT_TEST(siblings_of_an_expired_pull_say_that_it_expired)
{
	struct world *world = opened(1);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_want(world, 2, &ticket, 1), 0);
	load(world, 1);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_WAIT);
	world_pull_ended(world, 0, 1, KVPULL_EEXPIRED);
	world_settle(world);
	nothing(world, 2, KVPULL_EEXPIRED);
	assert_int_equal(world_want(world, 3, &ticket, 1), 0);
	nothing(world, 3, KVPULL_EEXPIRED);
	world_close(world);
}

/*
 * The siblings' tokens are in the prefix cache, as far as the engine keeps it.
 */
UNIT_TEST(siblings_of_a_pull_have_no_failure)
{
	struct world *world = opened(1);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_want(world, 2, &ticket, 1), 0);
	load(world, 1);
	world_pull_ended(world, 0, 1, 0);
	world_settle(world);
	nothing(world, 1, 0);
	nothing(world, 2, 0);
	assert_int_equal(world_want(world, 3, &ticket, 1), 0);
	nothing(world, 3, 0);
	world_close(world);
}

UNIT_TEST(local_tokens_are_no_failure)
{
	struct world *world = opened(1);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 64), KVPULL_MATCH_NOTHING);
	assert_int_equal(failure(world, 1), 0);
	world_close(world);
}

UNIT_TEST(tickets_of_before_a_workers_restart_are_aborted)
{
	struct world *world = opened(2);
	const struct world_ticket ticket = world_make_ticket(7);

	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	world_settle(world);
	world_worker_replace(world, 1, 77);
	world_settle(world);
	nothing(world, 1, KVPULL_EABORTED);
	world_close(world);
}

UNIT_TEST(ticket_of_before_a_change_of_weights_is_a_mismatch)
{
	struct world *world = opened(1);
	const struct world_ticket ticket = world_make_ticket(7);
	uint64_t key;

	for (key = 1; key <= 3; key++)
		assert_int_equal(world_want(world, key, &ticket, 1), 0);
	load(world, 1);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_WAIT);
	assert_int_equal(
		kvpull_scheduler_changed(world->scheduler, 0, world->now_ns),
		0);
	nothing(world, 2, KVPULL_EMISMATCH);
	nothing(world, 3, KVPULL_EMISMATCH);
	world_pull_ended(world, 0, 1, 0);
	world_settle(world);
	nothing(world, 1, KVPULL_EMISMATCH);
	world_close(world);
}

UNIT_TEST(unknown_rank_is_the_failure_after_a_lease)
{
	const struct kvpull_config config = world_config();
	const struct world_ticket ticket = world_make_ticket(7);
	struct world *world = world_open_silent(&config, 2, 9);

	world_tell_rank(world, 1);
	assert_int_equal(world_want(world, 1, &ticket, 1), 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_WAIT);
	assert_int_equal(failure(world, 1), 0);
	world->now_ns += WORLD_LEASE_NS;
	nothing(world, 1, KVPULL_ERANK);
	world_close(world);
}
