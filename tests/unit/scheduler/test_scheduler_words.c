/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines of the scheduler half about requests. */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/unit/scheduler/world.h"

static void line_forget(struct world *world)
{
	world->lines.of[KVPULL_LOG_WARN][0] = '\0';
}

CONSUMER_TEST_WITH(refused_pull_names_its_limit, 1, pull_blocks_max = 3)
{
	want(world, 1, ticket);
	load_refused(world, 1, KVPULL_EFULL);
	expect_line(
		world,
		"request request-b key 1 cannot be pulled: 4 blocks, pull_blocks_max is 3 (EFULL)");
}

/*
 * With full attention, tokens of a block that is left out would be loaded
 * nowhere.
 */
CONSUMER_TEST(pull_that_leaves_out_a_block_is_refused, 1)
{
	struct kvpull_blocks group = { .block_ids = world_local_blocks };
	const struct kvpull_allocation allocation =
		world_allocation_of(1, 1, &group);
	uint32_t first;
	uint32_t count;

	want_offered(world, 1, ticket);
	for (first = 0; first < 4; first++)
		for (count = 1; count < 4 && first + count <= 4; count++) {
			group.first_index = first;
			group.block_count = count;
			line_forget(world);
			assert_int_equal(
				world_allocate_with(world, &allocation),
				KVPULL_EINVAL);
			expect_warning(world, "than those of its tokens");
		}
	assert_int_equal(world_allocate(world, 1, 0, 4), 0);
}

/* The engine's registration was refused, and the engine goes on. */
TICKET_TEST(nothing_is_pulled_for_ranks_that_stay_unknown, world_of_rank_1())
{
	want(world, 2, ticket);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_WAIT);
	world->now_ns += WORLD_LEASE_NS - 1;
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_WAIT);
	expect_line(world, "");
	world->now_ns++;
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	expect_warning(world, "1 of 2 ranks are unknown");
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_WAIT);
	world_tell_rank(world, 0);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_match(world, 2, 0), KVPULL_MATCH_LOAD);
}

WORLD_TEST(hold_that_waits_for_a_rank_is_told, world_of_rank_1())
{
	struct world_ticket own;

	hold_refused(world, 1);
	expect_line(
		world,
		"request request-a key 1 is not held: 1 of 2 ranks are unknown: their workers registered no regions, or rank_info() was not told");
	/* A line a second at most. */
	line_forget(world);
	hold_refused(world, 2);
	expect_line(world, "");
	world_tell_rank(world, 0);
	assert_int_equal(world_hold(world, 3, &own), KVPULL_FINISH_HELD);
}

/* The line on a request for this ticket whose digest is of such bytes. */
static void digest_shown(const struct world_ticket *ticket, uint8_t byte,
			 const char *words)
{
	struct world *world = world_of_consumer(1);

	assert_int_equal(world_want(world, 1, ticket, byte), 0);
	line_forget(world);
	assert_int_equal(world_match(world, 1, 0), KVPULL_MATCH_NOTHING);
	assert_int_equal(world_counts(world).mismatches, 1);
	expect_warning(world, words);
	world_close(world);
}

/* An engine that forgot its digest has no other prompt. */
UNIT_TEST(digest_at_one_end_alone_is_told)
{
	const struct world_ticket with = world_make_ticket(7);
	struct world *producer = world_of(1, 8);
	struct world_ticket without;

	world_enter(producer, 1, 0, 0);
	finish_held(producer, 1, KVPULL_FINISH_LENGTH, &without);
	world_close(producer);
	digest_shown(&with, 2, " is for another prompt than request key 1: ");
	digest_shown(&with, 0,
		     " has a prompt_digest, which both engines set or neither "
		     "does, unlike request key 1: nothing is loaded");
	digest_shown(&without, 1,
		     " has no prompt_digest, which both engines set or "
		     "neither does, unlike request key 1: nothing is loaded");
}

/* A log that nobody acknowledges takes holds until it takes no pull, either. */
CONSUMER_TEST_WITH(refused_pull_names_the_log, 1, max_holds = 131072)
{
	want_offered(world, 1, ticket);
	(void)world_hold_all(world, 2);
	assert_int_equal(world_allocate(world, 1, 0, 4), KVPULL_EFULL);
	expect_warning(world, "cannot be pulled: step_log_mib 1 is reached");
}

/* Slots are free, so that no other line says why. */
PRODUCER_TEST_WITH(refused_hold_names_the_log, 1, max_holds = 131072)
{
	uint64_t key = world_hold_all(world, 1);
	uint32_t texts;

	expect_warning(
		world,
		" is not held: step_log_mib 1 is reached: raise it, or look for a rank that takes no steps or whose results are not taken");
	/* A request that is not held keeps no text, either. */
	texts = kvpull_index_pool_used(&world->scheduler->texts.pool);
	world_enter(world, ++key, 0, 1);
	finish_free(world, key, KVPULL_FINISH_LENGTH, NULL);
	assert_int_equal(kvpull_index_pool_used(&world->scheduler->texts.pool),
			 texts);
}

WORLD_TEST(refused_pull_tells_of_its_ticket, world_of_consumer(1))
{
	const struct world_ticket ticket = world_make_short_ticket(7, 1);

	want(world, 1, &ticket);
	load_refused(world, 1, KVPULL_ETRUNCATED);
	expect_warning(world, "its ticket lacks the blocks asked for (ETRUNC");
}

/* Clients choose it where an engine passes theirs on. */
CONSUMER_TEST_WITH(label_is_one_line_of_a_log, 1, pull_blocks_max = 3)
{
	struct kvpull_request request = world_request_of(1, ticket);

	request.label = "a\nerror: all is lost\x1b[2J";
	assert_int_equal(world_ask(world, &request), 0);
	load_refused(world, 1, KVPULL_EFULL);
	expect_warning(world, "a?error: all is lost?[2J key 1");
	assert_null(strchr(world->lines.of[KVPULL_LOG_WARN], '\n'));
}

static void refuses(const struct kvpull_config *config,
		    const struct world_ticket *ticket, const char *why)
{
	struct world *world = world_open(config, 1, 9);

	assert_int_equal(world_want(world, 1, ticket, 1), KVPULL_ENOTICKET);
	expect_warning(world, why);
	world_close(world);
}

UNIT_TEST(refused_ticket_is_damaged_or_of_another_key)
{
	const struct world_ticket ticket = world_make_ticket(7);
	const struct kvpull_config keyless = world_config();
	struct kvpull_config keyed = keyless;
	struct world_ticket damaged = ticket;
	struct world_ticket theirs;
	struct world *producer;

	keyed.key_set = 1;
	producer = world_open(&keyed, 1, 9);
	assert_int_equal(world_hold(producer, 1, &theirs), KVPULL_FINISH_HELD);
	world_close(producer);
	damaged.text[damaged.bytes / 2] ^= 1;
	refuses(&keyless, &damaged, "incomplete or damaged");
	refuses(&keyed, &damaged, "incomplete or damaged");
	refuses(&keyless, &theirs, "which this side lacks");
	refuses(&keyed, &ticket, "not made with our key");
}

/*
 * A worker of another engine, or of a restarted half, replaces no worker of
 * ours, whatever it reports. The rank goes on with the worker that it has.
 */
PRODUCER_TEST(worker_of_another_half_replaces_nobody, 1)
{
	struct world *other = world_of(1, 8);
	struct world_said said;

	hold_settled(world, 1);
	hold(other, 9);
	world_settle(other);
	assert_int_not_equal(other->ranks[0].step_incarnation, 0);
	world_add_rank(other, 0);
	said = world_say(other, 0);
	world_hears(world, &said);
	assert_int_equal(world_counts(world).results_replayed, 1);
	/* The rank's own worker is heard as before. */
	world_end_hold(world, 1, KVPULL_END_RELEASED);
	assert_int_equal(world_counts(world).holds_live, 0);
	world_close(other);
}

/*
 * The worker may be dead, and its result late. Only a worker that has heard
 * this half replaces a known one; the other worker hears this half now.
 */
PRODUCER_TEST(worker_that_heard_no_half_replaces_nobody, 1)
{
	struct world *other = world_of(1, 8);
	struct world_said said;
	size_t byte_count;
	int round;

	hold_settled(world, 1);
	world_worker_start(other, 0, 99);
	world_add_rank(other, 0);
	for (round = 0; round < 2; round++) {
		world->now_ns++;
		said = world_say(other, 0);
		world_hears(world, &said);
		assert_int_equal(world_counts(world).results_replayed, 1);
		byte_count = world_build(world);
		assert_int_not_equal(byte_count, 0);
		world_deliver_to(other, 0, world->bytes, byte_count);
	}
	world_close(other);
}

/*
 * Makes a request more than there is room for; 1 if a log line named the limit.
 */
static int is_said(struct world *world, uint64_t key, const char *limit)
{
	struct world_ticket ticket;

	line_forget(world);
	assert_int_equal(world_hold(world, key, &ticket), KVPULL_FINISH_FREE);
	return strstr(world->lines.of[KVPULL_LOG_WARN], limit) != NULL;
}

PRODUCER_TEST_WITH(full_table_says_so_once_a_second, 1, max_holds = 1)
{
	hold(world, 1);
	assert_true(is_said(world, 2, "max_holds"));
	assert_false(is_said(world, 3, "max_holds"));
	world->now_ns += KVPULL_NS_PER_S - 1;
	assert_false(is_said(world, 4, "max_holds"));
	world->now_ns++;
	assert_true(is_said(world, 5, "max_holds"));
	assert_false(is_said(world, 6, "max_holds"));
}

/* As D: one that comes, and one that is rejected before it comes. */
static int ticket_is_said(struct world *world, uint64_t key, int rejected)
{
	const struct world_ticket ticket = world_make_ticket(key);

	line_forget(world);
	assert_int_equal(rejected ? world_reject(world, &ticket) :
				    world_want(world, key, &ticket, 1),
			 KVPULL_EFULL);
	return strncmp(world->lines.of[KVPULL_LOG_WARN],
		       "no room for the ticket", 22) == 0;
}

UNIT_TEST(full_tables_of_a_consumer_say_so_once_a_second)
{
	struct kvpull_config config = world_config();
	struct world_ticket ticket = world_make_ticket(1);
	struct world *world;

	config.tickets_max = 1;
	config.requests_max = 4;
	world = world_open(&config, 1, 9);
	want(world, 1, &ticket);
	assert_true(ticket_is_said(world, 2, 0));
	assert_false(ticket_is_said(world, 3, 1));
	world->now_ns += KVPULL_NS_PER_S;
	assert_true(ticket_is_said(world, 3, 1));
	expect_warning(world, "tickets_max 1");
	assert_false(ticket_is_said(world, 4, 0));
	/* Requests: 1, 2 and 4 are known, though without a ticket. */
	assert_false(ticket_is_said(world, 5, 0));
	ticket = world_make_ticket(6);
	assert_int_equal(world_want(world, 6, &ticket, 1), KVPULL_EFULL);
	expect_warning(world, "requests_max 4");
	line_forget(world);
	assert_int_equal(world_want(world, 7, &ticket, 1), KVPULL_EFULL);
	expect_line(world, "");
	world_close(world);
}

/* An unknown flag may ask for a feature of a newer library. */
WORLD_TEST(request_with_an_unknown_flag_is_refused, world_of_consumer(1))
{
	struct kvpull_request request = { .key = 1,
					  .flags = UINT32_C(1) << 31 };

	assert_int_equal(world_ask(world, &request), KVPULL_EINVAL);
	request.flags = 0;
	assert_int_equal(world_ask(world, &request), 0);
	request.key = 0;
	assert_int_equal(world_ask(world, &request), KVPULL_EINVAL);
}

/* A host that numbers its requests anew meets the keys of open holds. */
WORLD_TEST(key_that_is_held_is_no_new_request, world_of_consumer(1))
{
	hold(world, 7);
	world_enter(world, 7, 0, 1);
	expect_line(
		world,
		"request request-a is neither held nor pulled: its key 7 is still that of a hold: use a key again after its SENT");
	line_forget(world);
	world_enter(world, 7, 0, 1);
	expect_line(world, "");
	world->now_ns += 1000 * KVPULL_NS_PER_MS;
	world_enter(world, 7, 0, 1);
	assert_string_not_equal(world->lines.of[KVPULL_LOG_WARN], "");
	line_forget(world);
	/* A request that is known is no mistake. */
	world->now_ns += 1000 * KVPULL_NS_PER_MS;
	world_enter(world, 8, 0, 1);
	world_enter(world, 8, 0, 1);
	expect_line(world, "");
}
