/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler half as a producer: holds, slots, ranks. */
#include "tests/unit/scheduler/world.h"

static struct world *opened(uint32_t tp_size)
{
	const struct kvpull_config config = world_config();

	return world_open(&config, tp_size, 7);
}

static void end_on_all(struct world *world, uint64_t key, int32_t reason)
{
	uint32_t rank;

	for (rank = 0; rank < world->rank_count; rank++)
		world_hold_ended(world, rank, key, reason);
	world_take_all(world);
}

UNIT_TEST(hold_is_commanded_and_ends_when_every_rank_reported)
{
	struct world *world = opened(2);
	const uint64_t fresh = kvpull_scheduler_digest(world->scheduler);
	struct world_ticket ticket;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	assert_true(ticket.bytes > 0);
	assert_int_equal(
		kvpull_scheduler_has_pending(world->scheduler, world->now_ns),
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
	assert_int_equal(
		kvpull_scheduler_has_pending(world->scheduler, world->now_ns),
		0);
	assert_true(kvpull_scheduler_digest(world->scheduler) == fresh);
	world_close(world);
}

UNIT_TEST(ticket_names_every_rank_and_its_tag)
{
	struct world *world = opened(2);
	static uint8_t scratch[KVPULL_TICKET_BYTES_MAX];
	static uint32_t ids[KVPULL_TICKET_BLOCKS_MAX];
	static struct kvpull_ticket ticket;
	struct world_ticket text;
	uint32_t rank;

	world->ranks[1].floor = 41;
	world_tell_rank(world, 1);
	assert_int_equal(world_hold(world, 1, &text), KVPULL_FINISH_HELD);
	assert_int_equal(kvpull_ticket_decode(text.text, text.bytes, NULL,
					      scratch, &ticket),
			 0);
	kvpull_ids_copy(&ticket.ids, 0, ticket.ids.count, ids);
	assert_int_equal(ticket.rank_count, 2);
	assert_int_equal(ticket.generation, 42);
	assert_int_equal(ticket.prompt_tokens, 64);
	assert_int_equal(ticket.groups[0].block_count, 4);
	assert_memory_equal(ids, world_blocks, sizeof(world_blocks));
	for (rank = 0; rank < 2; rank++) {
		const struct kvpull_rank_info info =
			world_rank_info(world, rank);

		assert_int_equal(ticket.ranks[rank].incarnation, 700 + rank);
		assert_int_equal(ticket.ranks[rank].tag,
				 kvpull_ticket_tag(info.secret, ticket.slot,
						   ticket.generation));
		assert_string_equal(ticket.ranks[rank].address, info.address);
	}
	world_close(world);
}

/* So no half that comes after it gives one out again, whatever ranks say. */
UNIT_TEST(generations_are_above_the_time_of_opening)
{
	const struct kvpull_config config = world_config();
	struct world *world =
		world_open(&config, 1, kvpull_half_incarnation(77u << 20, 9));
	static uint8_t scratch[KVPULL_TICKET_BYTES_MAX];
	static struct kvpull_ticket ticket;
	struct world_ticket text;

	world->ranks[0].floor = 41;
	world_tell_rank(world, 0);
	assert_int_equal(world_hold(world, 1, &text), KVPULL_FINISH_HELD);
	assert_int_equal(kvpull_ticket_decode(text.text, text.bytes, NULL,
					      scratch, &ticket),
			 0);
	assert_int_equal(ticket.generation, 78);
	world_close(world);
}

/* Holds and tickets that there are stay; those to come name the new one. */
UNIT_TEST(worker_at_another_address_is_the_same_worker)
{
	struct world *world = opened(1);
	static struct kvpull_ticket ticket;
	static uint8_t scratch[KVPULL_TICKET_BYTES_MAX];
	struct world_ticket text;

	assert_int_equal(world_hold(world, 1, &text), KVPULL_FINISH_HELD);
	world->ranks[0].address = "verbs:10.0.0.9:7";
	world_tell_rank(world, 0);
	assert_int_equal(world_counts(world).holds_live, 1);
	assert_int_equal(world_hold(world, 2, &text), KVPULL_FINISH_HELD);
	assert_int_equal(kvpull_ticket_decode(text.text, text.bytes, NULL,
					      scratch, &ticket),
			 0);
	assert_string_equal(ticket.ranks[0].address, "verbs:10.0.0.9:7");
	world_close(world);
}

UNIT_TEST(small_buffer_changes_nothing)
{
	struct world *world = opened(1);
	const struct kvpull_blocks group = { .block_count = 4,
					     .block_ids = world_blocks };
	struct kvpull_finish finish = { .key = 1,
					.computed_tokens = 64,
					.group_count = 1,
					.groups = &group };
	struct world_ticket ticket;
	uint64_t before;
	size_t bytes;

	world_enter(world, 1, 5, 1);
	before = kvpull_scheduler_digest(world->scheduler);
	assert_int_equal(kvpull_scheduler_request_finished(
				 world->scheduler, &finish, world->now_ns),
			 KVPULL_ETOOSMALL);
	assert_true(finish.ticket_bytes > 0);
	assert_true(kvpull_scheduler_digest(world->scheduler) == before);
	assert_int_equal(world_build(world) ? world->seen_count : 0, 0);
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_LENGTH, &ticket),
			 KVPULL_FINISH_HELD);
	assert_int_equal(ticket.bytes, finish.ticket_bytes);
	assert_int_equal(kvpull_scheduler_step_build(world->scheduler,
						     world->bytes, 4, &bytes,
						     world->now_ns),
			 KVPULL_ETOOSMALL);
	assert_int_equal(world_build(world), bytes);
	world_close(world);
}

UNIT_TEST(reasons_other_than_a_good_end_hold_nothing)
{
	static const uint32_t reasons[] = { KVPULL_FINISH_ABORT,
					    KVPULL_FINISH_ERROR,
					    KVPULL_FINISH_REJECT };
	struct world *world = opened(1);
	const uint64_t fresh = kvpull_scheduler_digest(world->scheduler);
	struct world_ticket ticket;
	uint64_t key;

	for (key = 1; key <= 3; key++) {
		world_enter(world, key, 0, 1);
		assert_int_equal(
			world_finish(world, key, reasons[key - 1], &ticket),
			KVPULL_FINISH_FREE);
		assert_int_equal(ticket.bytes, 0);
	}
	assert_true(kvpull_scheduler_digest(world->scheduler) == fresh);
	world_close(world);
}

UNIT_TEST(nothing_is_held_before_all_ranks_are_known)
{
	const struct kvpull_config config = world_config();
	struct world *world = world_open_silent(&config, 2, 7);
	struct world_ticket ticket;

	world_tell_rank(world, 0);
	assert_int_equal(kvpull_scheduler_ranks_missing(world->scheduler), 1);
	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_FREE);
	assert_int_equal(ticket.bytes, 0);
	assert_int_equal(world_counts(world).not_ready, 1);
	world_tell_rank(world, 1);
	assert_int_equal(world_hold(world, 2, &ticket), KVPULL_FINISH_HELD);
	world_close(world);
}

UNIT_TEST(slots_run_out_and_come_back)
{
	struct kvpull_config config = world_config();
	struct world_ticket ticket;
	struct world *world;
	uint64_t key;

	config.max_holds = 3;
	world = world_open(&config, 1, 7);
	for (key = 1; key <= 3; key++)
		assert_int_equal(world_hold(world, key, &ticket),
				 KVPULL_FINISH_HELD);
	assert_int_equal(world_hold(world, 4, &ticket), KVPULL_FINISH_FREE);
	assert_int_equal(ticket.bytes, 0);
	assert_int_equal(world_counts(world).no_slot, 1);
	world_step(world);
	end_on_all(world, 2, KVPULL_END_RELEASED);
	assert_int_equal(world_hold(world, 5, &ticket), KVPULL_FINISH_HELD);
	world_step(world);
	assert_int_equal(world_last(world, KVPULL_COMMAND_HOLD)->command.slot,
			 1);
	assert_int_equal(
		world_last(world, KVPULL_COMMAND_HOLD)->command.generation, 2);
	world_close(world);
}

UNIT_TEST(fewest_slots_of_a_rank_are_the_limit)
{
	struct world *world = opened(2);
	struct world_ticket ticket;

	world->ranks[1].slot_count = 1;
	world_tell_rank(world, 1);
	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	assert_int_equal(world_hold(world, 2, &ticket), KVPULL_FINISH_FREE);
	assert_int_equal(world_counts(world).no_slot, 1);
	world_close(world);
}

UNIT_TEST(drain_holds_nothing_more_and_says_what_is_left)
{
	struct world *world = opened(1);
	struct world_ticket ticket;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	assert_int_equal(kvpull_scheduler_drain(world->scheduler, 1), 1);
	assert_int_equal(world_hold(world, 2, &ticket), KVPULL_FINISH_FREE);
	world_step(world);
	end_on_all(world, 1, KVPULL_END_RELEASED);
	assert_int_equal(kvpull_scheduler_drain(world->scheduler, 0), 0);
	assert_int_equal(world_hold(world, 3, &ticket), KVPULL_FINISH_HELD);
	world_close(world);
}

UNIT_TEST(one_rank_reporting_twice_frees_nothing)
{
	struct world *world = opened(2);
	struct world_ticket ticket;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	world_step(world);
	world_hold_ended(world, 0, 1, KVPULL_END_RELEASED);
	world_hold_ended(world, 0, 1, KVPULL_END_RELEASED);
	world_take_all(world);
	assert_int_equal(world_counts(world).holds_live, 1);
	assert_int_equal(world_counts(world).unknown_keys, 1);
	world_close(world);
}

/* A.8: what a slot had before is not what it has now. */
UNIT_TEST(report_of_another_hold_of_the_slot_frees_nothing)
{
	struct world *world = opened(1);
	struct kvpull_result result = { .kind = KVPULL_RESULT_HOLD_ENDED,
					.key = 1 };
	const struct world_seen *held;
	struct world_ticket ticket;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	world_step(world);
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
	world_close(world);
}

UNIT_TEST(hold_that_expired_on_one_rank_ends_on_all_once)
{
	struct world *world = opened(3);
	struct world_ticket ticket;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	world_step(world);
	world_hold_ended(world, 0, 1, KVPULL_END_EXPIRED);
	world_hold_ended(world, 1, 1, KVPULL_END_EXPIRED);
	world_take_all(world);
	assert_true(
		kvpull_scheduler_has_pending(world->scheduler, world->now_ns) &
		(int)KVPULL_PENDING_STEP);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), 1);
	assert_int_equal(world_last(world, KVPULL_COMMAND_END)->command.reason,
			 KVPULL_END_RANK);
	world_hold_ended(world, 2, 1, KVPULL_END_RANK);
	world_settle(world);
	assert_int_equal(world_counts(world).holds_live, 0);
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), 1);
	world_close(world);
}

/* A mark: a rank whose consumer still reads may report another end later. */
UNIT_TEST(hold_given_back_on_one_rank_is_a_mark_on_all)
{
	struct world *world = opened(3);
	struct world_ticket ticket;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	world_step(world);
	world_hold_ended(world, 0, 1, KVPULL_END_GIVEN_BACK);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), 1);
	assert_int_equal(world_last(world, KVPULL_COMMAND_END)->command.reason,
			 KVPULL_END_GIVEN_BACK);
	world_hold_ended(world, 1, 1, KVPULL_END_GIVEN_BACK);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), 1);
	/* The engine revokes: that ends it on whichever rank is left. */
	assert_int_equal(kvpull_scheduler_reset(world->scheduler,
						KVPULL_RESET_REVOKE,
						world->now_ns),
			 0);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), 2);
	assert_int_equal(world_last(world, KVPULL_COMMAND_END)->command.reason,
			 KVPULL_END_REVOKED);
	world_hold_ended(world, 2, 1, KVPULL_END_REVOKED);
	world_settle(world);
	assert_int_equal(world_counts(world).holds_live, 0);
	world_close(world);
}

UNIT_TEST(abort_after_the_finish_changes_nothing)
{
	struct world *world = opened(1);
	struct world_ticket ticket;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_ABORT, &ticket),
			 KVPULL_FINISH_HELD);
	assert_int_equal(world_counts(world).unknown_keys, 1);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), 0);
	end_on_all(world, 1, KVPULL_END_RELEASED);
	/* And after the report. */
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_ABORT, &ticket),
			 KVPULL_FINISH_FREE);
	assert_int_equal(world_counts(world).unknown_keys, 2);
	world_close(world);
}

UNIT_TEST(abort_after_the_finish_revokes_by_config)
{
	struct kvpull_config config = world_config();
	struct world_ticket ticket;
	struct world *world;

	config.abort_revokes = 1;
	world = world_open(&config, 1, 7);
	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	assert_int_equal(world_finish(world, 1, KVPULL_FINISH_ABORT, &ticket),
			 KVPULL_FINISH_HELD);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), 1);
	assert_int_equal(world_last(world, KVPULL_COMMAND_END)->command.reason,
			 KVPULL_END_ABORTED);
	world_close(world);
}

UNIT_TEST(ticket_can_be_asked_for_while_held)
{
	struct world *world = opened(1);
	struct world_ticket ticket;
	char text[WORLD_TICKET_BYTES];
	size_t bytes = 0;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	assert_int_equal(kvpull_scheduler_ticket_get(world->scheduler, 1, text,
						     ticket.bytes - 1, &bytes),
			 KVPULL_ETOOSMALL);
	assert_int_equal(bytes, ticket.bytes);
	assert_int_equal(kvpull_scheduler_ticket_get(world->scheduler, 1, text,
						     sizeof(text), &bytes),
			 0);
	assert_memory_equal(text, ticket.text, bytes);
	world_step(world);
	end_on_all(world, 1, KVPULL_END_RELEASED);
	assert_int_equal(kvpull_scheduler_ticket_get(world->scheduler, 1, text,
						     sizeof(text), &bytes),
			 KVPULL_ENOKEY);
	world_close(world);
}

UNIT_TEST(silent_rank_is_named_once)
{
	struct world *world = opened(2);
	struct world_ticket ticket;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	world_step(world);
	world_hold_ended(world, 0, 1, KVPULL_END_RELEASED);
	world_take_all(world);
	world->now_ns += 490000 * KVPULL_NS_PER_MS;
	assert_true(kvpull_scheduler_has_pending(world->scheduler,
						 world->now_ns) >= 0);
	world->now_ns += 1;
	assert_int_equal(
		kvpull_scheduler_has_pending(world->scheduler, world->now_ns),
		KVPULL_ERANK);
	assert_int_equal(
		kvpull_scheduler_has_pending(world->scheduler, world->now_ns),
		KVPULL_ERANK);
	assert_int_equal(world->lines.counts[KVPULL_LOG_ERROR], 1);
	assert_non_null(strstr(world->lines.of[KVPULL_LOG_ERROR], "rank 1"));
	assert_non_null(strstr(world->lines.of[KVPULL_LOG_ERROR], "request-a"));
	world_hold_ended(world, 1, 1, KVPULL_END_EXPIRED);
	world_settle(world);
	assert_true(kvpull_scheduler_has_pending(world->scheduler,
						 world->now_ns) >= 0);
	world_close(world);
}

/* B.7: of many, the oldest is the first to be silent for so long. */
UNIT_TEST(silence_of_an_old_hold_is_seen_behind_newer_ones)
{
	struct world *world = opened(2);
	struct world_ticket ticket;
	uint64_t key;

	for (key = 1; key <= 3; key++) {
		assert_int_equal(world_hold(world, key, &ticket),
				 KVPULL_FINISH_HELD);
		world_step(world);
		world->now_ns += 1000 * KVPULL_NS_PER_MS;
	}
	world->now_ns += 487000 * KVPULL_NS_PER_MS;
	assert_true(kvpull_scheduler_has_pending(world->scheduler,
						 world->now_ns) >= 0);
	world->now_ns++;
	assert_int_equal(
		kvpull_scheduler_has_pending(world->scheduler, world->now_ns),
		KVPULL_ERANK);
	assert_non_null(strstr(world->lines.of[KVPULL_LOG_ERROR], "key 1 "));
	world_close(world);
}

UNIT_TEST(reset_revokes_every_hold)
{
	struct world *world = opened(1);
	struct world_ticket ticket;
	uint64_t key;

	for (key = 1; key <= 5; key++)
		assert_int_equal(world_hold(world, key, &ticket),
				 KVPULL_FINISH_HELD);
	assert_int_equal(kvpull_scheduler_reset(world->scheduler,
						KVPULL_RESET_REVOKE,
						world->now_ns),
			 0);
	assert_int_equal(
		kvpull_scheduler_reset(world->scheduler, 8, world->now_ns),
		KVPULL_EINVAL);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), 5);
	world_close(world);
}

UNIT_TEST(restarted_worker_is_told_to_end_what_it_never_held)
{
	struct world *world = opened(2);
	struct kvpull_result result = { .kind = KVPULL_RESULT_RANK };
	struct world_ticket ticket;
	uint8_t late[4096];
	size_t late_bytes;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	world_settle(world);
	result.rank = world_rank_info(world, 1);
	world_add(world, 1, &result);
	world_hold_ended(world, 1, 1, KVPULL_END_RELEASED);
	late_bytes = world_result(world, 1, late, sizeof(late));
	world_worker_replace(world, 1, 999);
	/* The dead worker's words come late: they count no more. */
	assert_int_equal(kvpull_scheduler_result_take(world->scheduler, late,
						      late_bytes,
						      world->now_ns),
			 0);
	assert_int_equal(world_counts(world).results_replayed, 1);
	world_settle(world);
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), 1);
	world_hold_ended(world, 0, 1, KVPULL_END_RANK);
	world_hold_ended(world, 1, 1, KVPULL_END_RANK);
	world_settle(world);
	assert_int_equal(world_counts(world).holds_live, 0);
	world_close(world);
}

UNIT_TEST(restarted_worker_reports_no_hold_twice)
{
	struct world *world = opened(2);
	struct world_ticket ticket;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	world_settle(world);
	world_hold_ended(world, 1, 1, KVPULL_END_RELEASED);
	world_take_all(world);
	world_worker_replace(world, 1, 999);
	assert_int_equal(kvpull_scheduler_reset(world->scheduler,
						KVPULL_RESET_REVOKE,
						world->now_ns),
			 0);
	world_settle(world);
	/* For the other rank: the new worker knows that its rank is done. */
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), 1);
	assert_true(world_last(world, KVPULL_COMMAND_END)->command.reported ==
		    2);
	world_hold_ended(world, 0, 1, KVPULL_END_REVOKED);
	world_settle(world);
	assert_int_equal(world_counts(world).holds_live, 0);
	world_close(world);
}

UNIT_TEST(worker_is_known_by_its_first_results)
{
	const struct kvpull_config config = world_config();
	struct world *world = world_open_silent(&config, 1, 7);
	struct kvpull_result result = { .kind = KVPULL_RESULT_RANK };

	world_take(world, 0); /* no RANK in it: dropped */
	assert_int_equal(kvpull_scheduler_ranks_missing(world->scheduler), 1);
	result.rank = world_rank_info(world, 0);
	world_add(world, 0, &result);
	world_take(world, 0);
	assert_int_equal(kvpull_scheduler_ranks_missing(world->scheduler), 0);
	world_close(world);
}

UNIT_TEST(rank_of_another_model_or_size_is_refused)
{
	struct world *world = opened(1);
	struct kvpull_rank_info info = world_rank_info(world, 0);
	uint8_t bytes[1024];
	struct kvpull_wire_writer writer = { bytes, sizeof(bytes), 0 };

	info.compat[0] ^= 1;
	kvpull_step_put_rank_info(&writer, &info);
	assert_int_equal(kvpull_scheduler_rank_info(world->scheduler, bytes,
						    writer.used, world->now_ns),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_scheduler_rank_info(world->scheduler, "x", 1,
						    world->now_ns),
			 KVPULL_ENOTMINE);
	info = world_rank_info(world, 0);
	info.stage.rank_count++;
	writer.used = 0;
	kvpull_step_put_rank_info(&writer, &info);
	assert_int_equal(kvpull_scheduler_rank_info(world->scheduler, bytes,
						    writer.used, world->now_ns),
			 KVPULL_EINVAL);
	world_close(world);
}

UNIT_TEST(damaged_results_apply_nothing)
{
	struct world *world = opened(1);
	struct world_ticket ticket;
	uint8_t bytes[4096];
	size_t used;

	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	world_step(world);
	world_hold_ended(world, 0, 1, KVPULL_END_RELEASED);
	world_hold_ended(world, 0, 1, KVPULL_END_RELEASED);
	used = world_result(world, 0, bytes, sizeof(bytes));
	assert_int_equal(kvpull_scheduler_result_take(world->scheduler, bytes,
						      used - 1, world->now_ns),
			 KVPULL_EINVAL);
	assert_int_equal(world_counts(world).results_bad, 1);
	assert_int_equal(world_counts(world).holds_live, 1);
	world->ranks[0].applied = 50; /* never commanded */
	used = world_result(world, 0, bytes, sizeof(bytes));
	assert_int_equal(kvpull_scheduler_result_take(world->scheduler, bytes,
						      used, world->now_ns),
			 KVPULL_EINVAL);
	assert_int_equal(world_counts(world).holds_live, 1);
	world_close(world);
}

UNIT_TEST(full_request_table_is_an_answer)
{
	struct kvpull_config config = world_config();
	struct kvpull_request request = { .key = 2,
					  .flags = KVPULL_REQUEST_WANTS_HOLD };
	struct world_ticket ticket;
	struct world *world;

	config.requests_max = 1;
	world = world_open(&config, 1, 7);
	world_enter(world, 1, 0, 1);
	world_enter(world, 1, 0, 1); /* a second call is a no-op */
	assert_int_equal(kvpull_scheduler_request_new(world->scheduler,
						      &request, world->now_ns),
			 KVPULL_EFULL);
	assert_int_equal(world_finish(world, 2, KVPULL_FINISH_STOP, &ticket),
			 KVPULL_FINISH_FREE);
	assert_int_equal(world_counts(world).unknown_keys, 1);
	world_close(world);
}

/* Ids that make no runs: a quarter of a MiB of text each. */
UNIT_TEST(exhausted_ticket_texts_hold_nothing)
{
	static uint32_t ids[KVPULL_TICKET_BLOCKS_MAX];
	static char text[KVPULL_TICKET_BYTES_MAX];
	struct world *world = opened(1);
	const uint64_t fresh = kvpull_scheduler_digest(world->scheduler);
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
	} while (kvpull_scheduler_request_finished(world->scheduler, &finish,
						   world->now_ns) ==
			 KVPULL_FINISH_HELD &&
		 key < 60);
	assert_true(key > 1);
	assert_true(key < 60);
	assert_int_equal(finish.ticket_bytes, 0);
	assert_int_equal(world_counts(world).no_slot, 1);
	held = key - 1;
	world_step(world);
	for (key = 1; key <= held; key++)
		end_on_all(world, key, KVPULL_END_RELEASED);
	world->now_ns += WORLD_LEASE_NS;
	world_settle(world);
	assert_true(kvpull_scheduler_digest(world->scheduler) == fresh);
	world_close(world);
}

/* 1 MiB of commands that nobody acknowledges. */
UNIT_TEST(full_log_holds_nothing_but_still_ends)
{
	struct kvpull_config config = world_config();
	struct world_ticket ticket;
	struct world *world;
	uint64_t key = 0;
	uint32_t round;

	config.max_holds = 131072;
	world = world_open(&config, 1, 7);
	do {
		key++;
		world_enter(world, key, 0, 1);
	} while (world_finish(world, key, KVPULL_FINISH_LENGTH, &ticket) ==
			 KVPULL_FINISH_HELD &&
		 key < 131072);
	assert_true(key < 131072);
	assert_int_equal(world_counts(world).no_slot, 1);
	assert_int_equal(kvpull_scheduler_reset(world->scheduler,
						KVPULL_RESET_REVOKE,
						world->now_ns),
			 0);
	/* The worker applies and says so: the ENDs find room, all of them. */
	world->blind = 1;
	for (round = 0; round < 4; round++)
		world_settle(world);
	assert_int_equal(world->ranks[0].applied, 2 * (key - 1));
	world_close(world);
}
