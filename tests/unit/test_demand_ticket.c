/* SPDX-License-Identifier: Apache-2.0 */
/* A consumer believes of its tickets what they say, and no twin of one. */
#include "tests/unit/scheduler_world.h"

static struct world *consumer(void)
{
	const struct kvpull_config config = world_config();

	return world_open(&config, 1, 5);
}

static int want(struct world *world, uint64_t key,
		const struct world_ticket *ticket, uint32_t prompt_tokens)
{
	struct kvpull_request request = {
		.key = key,
		.ticket = ticket->text,
		.ticket_bytes = ticket->bytes,
		.prompt_tokens = prompt_tokens,
		.flags = KVPULL_REQUEST_PULL,
	};

	memset(request.prompt_digest, 1, sizeof(request.prompt_digest));
	return kvpull_scheduler_request_new(world->scheduler, &request,
					    world->now_ns);
}

/* The ticket has 64 tokens; the request may have more, or fewer. */
static void no_more_is_loaded_than_the_ticket_has(void **state)
{
	static const struct {
		uint32_t prompt;
		uint32_t local;
		uint32_t loaded;
	} cases[] = { { 64, 0, 64 },  { 100, 0, 64 }, { 100, 16, 48 },
		      { 48, 0, 48 },  { 48, 16, 32 }, { 100, 64, 0 },
		      { 100, 80, 0 }, { 48, 48, 0 } };
	const struct world_ticket ticket = world_make_ticket(9);
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct world *world = consumer();
		uint32_t tokens = 0;

		assert_int_equal(want(world, 1, &ticket, cases[i].prompt), 0);
		assert_int_equal(kvpull_scheduler_matched_tokens(
					 world->scheduler, 1, cases[i].local,
					 &tokens, world->now_ns),
				 cases[i].loaded ? KVPULL_MATCH_LOAD :
						   KVPULL_MATCH_NOTHING);
		assert_int_equal(tokens, cases[i].loaded);
		world_close(world);
	}
}

/* Of the same worker, slot and generation: only one of them can be real. */
static struct world_ticket twin_of(uint64_t incarnation)
{
	const struct kvpull_config config = world_config();
	struct world *producer = world_open(&config, 1, incarnation);
	struct world_ticket twin;

	world_enter(producer, 1, 0, 2); /* another prompt */
	assert_int_equal(world_finish(producer, 1, KVPULL_FINISH_LENGTH, &twin),
			 KVPULL_FINISH_HELD);
	world_close(producer);
	return twin;
}

static void twin_of_a_ticket_in_use_is_refused(void **state)
{
	const struct world_ticket ticket = world_make_ticket(9);
	const struct world_ticket twin = twin_of(9);
	struct world *world = consumer();

	(void)state;
	assert_int_equal(want(world, 1, &ticket, 64), 0);
	assert_int_equal(want(world, 2, &twin, 64), KVPULL_ENOTICKET);
	assert_int_equal(want(world, 3, &ticket, 64), 0);
	assert_int_equal(world_stats(world).bad_tickets, 1);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_LOAD);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_match(world, 3, 0), KVPULL_MATCH_WAIT);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_CLAIM), 1);
	world_close(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_more_is_loaded_than_the_ticket_has),
		cmocka_unit_test(twin_of_a_ticket_in_use_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
