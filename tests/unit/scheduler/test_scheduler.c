/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler half as a producer: holds, slots, ranks. */
#include "tests/unit/scheduler/world.h"

PRODUCER_TEST(hold_is_commanded_and_ends_when_every_rank_reported, 2)
{
	struct world_ticket ticket;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	assert_true(ticket.bytes > 0);
	assert_int_equal(world_pending(world),
			 KVPULL_PENDING_STEP | KVPULL_PENDING_HOLDS);
	world_step(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_HOLD), 1);
	world_hold_ended(world, 0, 1, KVPULL_END_RELEASED);
	world_take_all(world);
	assert_int_equal(world_counts(world).holds_live, 1);
	world_hold_ended(world, 1, 1, KVPULL_END_RELEASED);
	world_take_all(world);
	world_settle(world);
	assert_int_equal(world_counts(world).holds_live, 0);
	assert_int_equal(world_counts(world).holds_ended, 1);
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), 0);
	assert_int_equal(world_pending(world), 0);
	expect_fresh(world);
}

PRODUCER_TEST(ticket_names_every_rank_and_its_tag, 2)
{
	static uint32_t ids[KVPULL_TICKET_BLOCKS_MAX];
	const struct kvpull_ticket *ticket;
	struct world_ticket text;
	uint32_t rank;

	world->ranks[1].floor = 41;
	world_tell_rank(world, 1);
	assert_int_equal(world_hold(world, 1, &text), KVPULL_FINISH_HELD);
	ticket = world_decode(&text);
	kvpull_ids_copy(&ticket->ids, 0, ticket->ids.count, ids);
	assert_int_equal(ticket->rank_count, 2);
	assert_int_equal(ticket->generation, 42);
	assert_int_equal(ticket->prompt_tokens, 64);
	assert_int_equal(ticket->groups[0].block_count, 4);
	assert_memory_equal(ids, world_blocks, sizeof(world_blocks));
	for (rank = 0; rank < 2; rank++) {
		const struct kvpull_rank_info info =
			world_rank_info(world, rank);

		assert_int_equal(ticket->ranks[rank].incarnation, 700 + rank);
		assert_int_equal(ticket->ranks[rank].tag,
				 kvpull_ticket_tag(info.secret, ticket->slot,
						   ticket->generation));
		assert_string_equal(ticket->ranks[rank].address, info.address);
	}
}

/* So no half that comes after it gives one out again, whatever ranks say. */
WORLD_TEST(generations_are_above_the_time_of_opening,
	   world_of(1, kvpull_half_incarnation(77u << 20, 9)))
{
	struct world_ticket text;

	world->ranks[0].floor = 41;
	world_tell_rank(world, 0);
	assert_int_equal(world_hold(world, 1, &text), KVPULL_FINISH_HELD);
	assert_int_equal(world_decode(&text)->generation, 78);
}

/* Holds and tickets that there are stay; those to come name the new one. */
PRODUCER_TEST(worker_at_another_address_is_the_same_worker, 1)
{
	struct world_ticket text;

	assert_int_equal(world_hold(world, 1, &text), KVPULL_FINISH_HELD);
	world->ranks[0].address = "verbs:10.0.0.9:7";
	world_tell_rank(world, 0);
	assert_int_equal(world_counts(world).holds_live, 1);
	assert_int_equal(world_hold(world, 2, &text), KVPULL_FINISH_HELD);
	assert_string_equal(world_decode(&text)->ranks[0].address,
			    "verbs:10.0.0.9:7");
}

PRODUCER_TEST(small_buffer_changes_nothing, 1)
{
	struct kvpull_finish finish = world_finish_of(1, NULL);
	struct world_ticket ticket;
	uint64_t before;
	size_t bytes;

	world_enter(world, 1, 5, 1);
	before = kvpull_scheduler_digest(world->scheduler);
	assert_int_equal(world_finish_with(world, &finish), KVPULL_ETOOSMALL);
	assert_true(finish.ticket_bytes > 0);
	assert_true(kvpull_scheduler_digest(world->scheduler) == before);
	assert_int_equal(world_build(world) ? world->seen_count : 0, 0);
	finish_held(world, 1, KVPULL_FINISH_LENGTH, &ticket);
	assert_int_equal(ticket.bytes, finish.ticket_bytes);
	assert_int_equal(kvpull_scheduler_step_build(world->scheduler,
						     world->bytes, 4, &bytes,
						     world->now_ns),
			 KVPULL_ETOOSMALL);
	assert_int_equal(world_build(world), bytes);
}

PRODUCER_TEST(reasons_other_than_a_good_end_hold_nothing, 1)
{
	static const uint32_t reasons[] = { KVPULL_FINISH_ABORT,
					    KVPULL_FINISH_ERROR,
					    KVPULL_FINISH_REJECT };
	struct world_ticket ticket;
	uint64_t key;

	for (key = 1; key <= 3; key++) {
		world_enter(world, key, 0, 1);
		finish_free(world, key, reasons[key - 1], &ticket);
		assert_int_equal(ticket.bytes, 0);
	}
	expect_fresh(world);
}

WORLD_TEST(nothing_is_held_before_all_ranks_are_known, world_of_silent(2))
{
	struct world_ticket ticket;

	world_tell_rank(world, 0);
	assert_int_equal(kvpull_scheduler_ranks_missing(world->scheduler), 1);
	hold_refused(world, 1);
	assert_int_equal(world_counts(world).not_ready, 1);
	world_tell_rank(world, 1);
	assert_int_equal(world_hold(world, 2, &ticket), KVPULL_FINISH_HELD);
}

PRODUCER_TEST_WITH(slots_run_out_and_come_back, 1, max_holds = 3)
{
	uint64_t key;

	for (key = 1; key <= 3; key++)
		hold(world, key);
	hold_refused(world, 4);
	assert_int_equal(world_counts(world).no_slot, 1);
	world_step(world);
	world_end_hold(world, 2, KVPULL_END_RELEASED);
	hold_told(world, 5);
	assert_int_equal(world_command(world, KVPULL_COMMAND_HOLD)->slot, 1);
	assert_int_equal(world_command(world, KVPULL_COMMAND_HOLD)->generation,
			 2);
}

PRODUCER_TEST(fewest_slots_of_a_rank_are_the_limit, 2)
{
	world->ranks[1].slot_count = 1;
	world_tell_rank(world, 1);
	hold(world, 1);
	hold_refused(world, 2);
	assert_int_equal(world_counts(world).no_slot, 1);
}

PRODUCER_TEST(drain_holds_nothing_more_and_says_what_is_left, 1)
{
	hold(world, 1);
	assert_int_equal(kvpull_scheduler_drain(world->scheduler, 1), 1);
	hold_refused(world, 2);
	world_step(world);
	world_end_hold(world, 1, KVPULL_END_RELEASED);
	assert_int_equal(kvpull_scheduler_drain(world->scheduler, 0), 0);
	hold(world, 3);
}

PRODUCER_TEST(one_rank_reporting_twice_frees_nothing, 2)
{
	hold_told(world, 1);
	world_hold_ended(world, 0, 1, KVPULL_END_RELEASED);
	world_hold_ended(world, 0, 1, KVPULL_END_RELEASED);
	world_take_all(world);
	assert_int_equal(world_counts(world).holds_live, 1);
	assert_int_equal(world_counts(world).unknown_keys, 1);
}

/* A.8: what a slot had before is not what it has now. */
PRODUCER_TEST(report_of_another_hold_of_the_slot_frees_nothing, 1)
{
	struct kvpull_result result = { .kind = KVPULL_RESULT_HOLD_ENDED,
					.key = 1 };
	const struct world_seen *held;

	hold_told(world, 1);
	held = world_last(world, KVPULL_COMMAND_HOLD);
	result.slot = held->command.slot;
	result.generation = held->command.generation + 1;
	world_add(world, 0, &result);
	result.generation = held->command.generation;
	result.key = 2;
	world_add(world, 0, &result);
	result.key = 1;
	result.slot++;
	world_add(world, 0, &result);
	/* Behind the table. */
	result.slot = KVPULL_TICKET_SLOTS_MAX - 1;
	world_add(world, 0, &result);
	world_take_all(world);
	assert_int_equal(world_counts(world).holds_live, 1);
	assert_int_equal(world_counts(world).unknown_keys, 4);
	result.slot = held->command.slot;
	world_add(world, 0, &result);
	world_take_all(world);
	assert_int_equal(world_counts(world).holds_live, 0);
}

PRODUCER_TEST(hold_that_expired_on_one_rank_ends_on_all_once, 3)
{
	hold_told(world, 1);
	world_hold_ended(world, 0, 1, KVPULL_END_EXPIRED);
	world_hold_ended(world, 1, 1, KVPULL_END_EXPIRED);
	world_take_all(world);
	assert_true(world_has_step(world));
	world_settle(world);
	expect_ends(world, 1, KVPULL_END_RANK);
	hold_ended(world, 2, 1, KVPULL_END_RANK);
	assert_int_equal(world_counts(world).holds_live, 0);
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), 1);
}

/* A mark: a rank whose consumer still reads may report another end later. */
PRODUCER_TEST(hold_given_back_on_one_rank_is_a_mark_on_all, 3)
{
	hold_told(world, 1);
	hold_ended(world, 0, 1, KVPULL_END_GIVEN_BACK);
	expect_ends(world, 1, KVPULL_END_GIVEN_BACK);
	world_hold_ended(world, 1, 1, KVPULL_END_GIVEN_BACK);
	expect_settled(world, KVPULL_COMMAND_END, 1);
	/* The engine revokes: that ends it on whichever rank is left. */
	world_reset(world, KVPULL_RESET_REVOKE);
	world_settle(world);
	expect_ends(world, 2, KVPULL_END_REVOKED);
	hold_ended(world, 2, 1, KVPULL_END_REVOKED);
	assert_int_equal(world_counts(world).holds_live, 0);
}

PRODUCER_TEST(abort_after_the_finish_changes_nothing, 1)
{
	struct world_ticket ticket;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	finish_held(world, 1, KVPULL_FINISH_ABORT, &ticket);
	assert_int_equal(world_counts(world).unknown_keys, 1);
	expect_settled(world, KVPULL_COMMAND_END, 0);
	world_end_hold(world, 1, KVPULL_END_RELEASED);
	/* And after the report. */
	finish_free(world, 1, KVPULL_FINISH_ABORT, &ticket);
	assert_int_equal(world_counts(world).unknown_keys, 2);
}

PRODUCER_TEST_WITH(abort_after_the_finish_revokes_by_config, 1,
		   abort_revokes = 1)
{
	struct world_ticket ticket;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	finish_held(world, 1, KVPULL_FINISH_ABORT, &ticket);
	world_settle(world);
	expect_ends(world, 1, KVPULL_END_ABORTED);
}

/* The ticket of request 1, in so many bytes. */
static int ticket_get(struct world *world, size_t capacity,
		      struct world_ticket *ticket)
{
	return kvpull_scheduler_ticket_get(world->scheduler, 1, ticket->text,
					   capacity, &ticket->bytes);
}

PRODUCER_TEST(ticket_can_be_asked_for_while_held, 1)
{
	struct world_ticket ticket;
	struct world_ticket again;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	assert_int_equal(ticket_get(world, ticket.bytes - 1, &again),
			 KVPULL_ETOOSMALL);
	assert_int_equal(again.bytes, ticket.bytes);
	assert_int_equal(ticket_get(world, WORLD_TICKET_BYTES, &again), 0);
	assert_memory_equal(again.text, ticket.text, again.bytes);
	world_step(world);
	world_end_hold(world, 1, KVPULL_END_RELEASED);
	assert_int_equal(ticket_get(world, WORLD_TICKET_BYTES, &again),
			 KVPULL_ENOKEY);
}

PRODUCER_TEST(silent_rank_is_named_once, 2)
{
	hold_told(world, 1);
	world_hold_ended(world, 0, 1, KVPULL_END_RELEASED);
	world_take_all(world);
	world->now_ns += 490000 * KVPULL_NS_PER_MS;
	assert_true(world_pending(world) >= 0);
	world->now_ns += 1;
	assert_int_equal(world_pending(world), KVPULL_ERANK);
	assert_int_equal(world_pending(world), KVPULL_ERANK);
	assert_int_equal(world->lines.counts[KVPULL_LOG_ERROR], 1);
	expect_error(world, "rank 1");
	expect_error(world, "request-a");
	hold_ended(world, 1, 1, KVPULL_END_EXPIRED);
	assert_true(world_pending(world) >= 0);
}

/* B.7: of many, the oldest is the first to be silent for so long. */
PRODUCER_TEST(silence_of_an_old_hold_is_seen_behind_newer_ones, 2)
{
	uint64_t key;

	for (key = 1; key <= 3; key++) {
		hold_told(world, key);
		world->now_ns += 1000 * KVPULL_NS_PER_MS;
	}
	world->now_ns += 487000 * KVPULL_NS_PER_MS;
	assert_true(world_pending(world) >= 0);
	world->now_ns++;
	assert_int_equal(world_pending(world), KVPULL_ERANK);
	expect_error(world, "key 1 ");
}

PRODUCER_TEST(reset_revokes_every_hold, 1)
{
	uint64_t key;

	for (key = 1; key <= 5; key++)
		hold(world, key);
	world_reset(world, KVPULL_RESET_REVOKE);
	assert_int_equal(
		kvpull_scheduler_reset(world->scheduler, 8, world->now_ns),
		KVPULL_EINVAL);
	expect_settled(world, KVPULL_COMMAND_END, 5);
}

PRODUCER_TEST(restarted_worker_is_told_to_end_what_it_never_held, 2)
{
	struct world_said said;

	hold_settled(world, 1);
	world_add_rank(world, 1);
	world_hold_ended(world, 1, 1, KVPULL_END_RELEASED);
	said = world_say(world, 1);
	world_worker_replace(world, 1, 999);
	/* The dead worker's words come late: they count no more. */
	world_hears(world, &said);
	assert_int_equal(world_counts(world).results_replayed, 1);
	expect_settled(world, KVPULL_COMMAND_END, 1);
	world_hold_ended(world, 0, 1, KVPULL_END_RANK);
	world_hold_ended(world, 1, 1, KVPULL_END_RANK);
	world_settle(world);
	assert_int_equal(world_counts(world).holds_live, 0);
}

PRODUCER_TEST(restarted_worker_reports_no_hold_twice, 2)
{
	hold_settled(world, 1);
	world_hold_ended(world, 1, 1, KVPULL_END_RELEASED);
	world_take_all(world);
	world_worker_replace(world, 1, 999);
	world_reset(world, KVPULL_RESET_REVOKE);
	world_settle(world);
	/* For the other rank: the new worker knows that its rank is done. */
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), 1);
	assert_true(world_command(world, KVPULL_COMMAND_END)->reported == 2);
	hold_ended(world, 0, 1, KVPULL_END_REVOKED);
	assert_int_equal(world_counts(world).holds_live, 0);
}

WORLD_TEST(worker_is_known_by_its_first_results, world_of_silent(1))
{
	world_take(world, 0); /* no RANK in it: dropped */
	assert_int_equal(kvpull_scheduler_ranks_missing(world->scheduler), 1);
	world_add_rank(world, 0);
	world_take(world, 0);
	assert_int_equal(kvpull_scheduler_ranks_missing(world->scheduler), 0);
}

PRODUCER_TEST(rank_of_another_model_or_size_is_refused, 1)
{
	struct kvpull_rank_info info = world_rank_info(world, 0);

	info.compat[0] ^= 1;
	assert_int_equal(world_tell_info(world, &info), KVPULL_EINVAL);
	assert_int_equal(kvpull_scheduler_rank_info(world->scheduler, "x", 1,
						    world->now_ns),
			 KVPULL_ENOTMINE);
	info = world_rank_info(world, 0);
	info.stage.rank_count++;
	assert_int_equal(world_tell_info(world, &info), KVPULL_EINVAL);
}

PRODUCER_TEST(damaged_results_apply_nothing, 1)
{
	struct world_said said;

	hold_told(world, 1);
	world_hold_ended(world, 0, 1, KVPULL_END_RELEASED);
	world_hold_ended(world, 0, 1, KVPULL_END_RELEASED);
	said = world_say(world, 0);
	assert_int_equal(world_hear(world, said.bytes, said.byte_count - 1),
			 KVPULL_EINVAL);
	assert_int_equal(world_counts(world).results_bad, 1);
	assert_int_equal(world_counts(world).holds_live, 1);
	world->ranks[0].applied = 50; /* never commanded */
	said = world_say(world, 0);
	assert_int_equal(world_hear(world, said.bytes, said.byte_count),
			 KVPULL_EINVAL);
	assert_int_equal(world_counts(world).holds_live, 1);
}

PRODUCER_TEST_WITH(full_request_table_is_an_answer, 1, requests_max = 1)
{
	struct kvpull_request request = { .key = 2,
					  .flags = KVPULL_REQUEST_WANTS_HOLD };

	world_enter(world, 1, 0, 1);
	world_enter(world, 1, 0, 1); /* a second call is a no-op */
	assert_int_equal(world_ask(world, &request), KVPULL_EFULL);
	finish_free(world, 2, KVPULL_FINISH_STOP, NULL);
	assert_int_equal(world_counts(world).unknown_keys, 1);
}

/* Ids that make no runs: a quarter of a MiB of text each. */
PRODUCER_TEST(exhausted_ticket_texts_hold_nothing, 1)
{
	static uint32_t ids[KVPULL_TICKET_BLOCKS_MAX];
	static char text[KVPULL_TICKET_BYTES_MAX];
	const struct kvpull_blocks group = { .block_count =
						     KVPULL_TICKET_BLOCKS_MAX,
					     .block_ids = ids };
	struct kvpull_finish finish = { .computed_tokens = 64,
					.group_count = 1,
					.groups = &group,
					.ticket = text,
					.ticket_capacity = sizeof(text) };
	uint64_t key = 0;
	uint64_t held;
	uint32_t i;

	for (i = 0; i < KVPULL_TICKET_BLOCKS_MAX; i++)
		ids[i] = i * 7919;
	do {
		finish.key = ++key;
		world_enter(world, key, key, 1);
	} while (world_finish_with(world, &finish) == KVPULL_FINISH_HELD &&
		 key < 60);
	assert_true(key > 1);
	assert_true(key < 60);
	assert_int_equal(finish.ticket_bytes, 0);
	assert_int_equal(world_counts(world).no_slot, 1);
	held = key - 1;
	world_step(world);
	for (key = 1; key <= held; key++)
		world_end_hold(world, key, KVPULL_END_RELEASED);
	world->now_ns += WORLD_LEASE_NS;
	world_settle(world);
	expect_fresh(world);
}

/* 1 MiB of commands that nobody acknowledges. */
PRODUCER_TEST_WITH(full_log_holds_nothing_but_still_ends, 1, max_holds = 131072)
{
	const uint64_t key = world_hold_all(world, 1);
	uint32_t round;

	assert_int_equal(world_counts(world).no_slot, 1);
	world_reset(world, KVPULL_RESET_REVOKE);
	/* The worker applies and says so: the ENDs find room, all of them. */
	world->blind = 1;
	for (round = 0; round < 4; round++)
		world_settle(world);
	assert_int_equal(world->ranks[0].applied, 2 * (key - 1));
}
