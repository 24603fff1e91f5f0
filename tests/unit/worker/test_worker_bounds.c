/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables and buffers of a worker, full: the last that is taken, the first that
 * is not, who is told, and that nothing of it stays.
 */
#include "tests/unit/worker/peer.h"

#define REQUESTS_MAX 8u /* requests_max of the world */
#define HOT KVPULL_PULLS_HOT
#define MANY (HOT + 4u) /* pulls, some of them beyond the hot ones */
#define PAIRS_MAX 40u
#define GENERATION 1000u

uint32_t world_pull_blocks = PAIRS_MAX;

static uint32_t commands_make(struct kvpull_command *commands, uint32_t count,
			      uint64_t serial)
{
	static const uint32_t none = 0;
	uint32_t at;

	for (at = 0; at < count; at++)
		commands[at] = world_pull_of(at + 1, serial, &none, &none, 0);
	return count;
}

/* Polls with no room tell nothing, those with room for one the keys 1 to 3. */
static void poll_by_ones(struct world *world, uint32_t kind, int32_t reason)
{
	struct kvpull_poll_record record;
	uint64_t key;
	int told;

	assert_int_equal(
		kvpull_worker_poll(world->worker, NULL, 0, sizeof(record)), 0);
	for (key = 1; key <= 4; key++) {
		told = kvpull_worker_poll(world->worker, &record, 1,
					  sizeof(record));
		assert_int_equal(told, key <= 3);
		if (!told)
			break;
		assert_int_equal(record.key, key);
		assert_int_equal(record.kind, kind);
		assert_int_equal(record.reason, reason);
	}
}

/* So many commands were bad, and said to be. */
static void bad(const struct world *world, uint32_t count)
{
	assert_int_equal(world->lines.counts[KVPULL_LOG_ERROR], count);
	assert_int_equal(world->worker->counts.step_bad, count);
}

WORLD_TEST(refused_pulls_beyond_requests_max_are_counted_and_said)
{
	struct kvpull_command commands[REQUESTS_MAX + 1];
	uint32_t at;

	world_send(world, commands, commands_make(commands, REQUESTS_MAX, 999));
	assert_int_equal(world->lines.counts[KVPULL_LOG_ERROR], 0);
	commands[REQUESTS_MAX] = commands[0];
	commands[REQUESTS_MAX].key = REQUESTS_MAX + 1;
	world_send(world, &commands[REQUESTS_MAX], 1);
	bad(world, 1);
	world_poll(world, 2);
	assert_int_equal(world->record_count, REQUESTS_MAX);
	for (at = 1; at <= REQUESTS_MAX; at++)
		failed(world, at, KVPULL_EEXPIRED);
	world_silent(world, REQUESTS_MAX + 1);
	/* Refused pulls have room again. */
	commands[0].key = REQUESTS_MAX + 2;
	world_send(world, commands, 1);
	world_poll(world, 1);
	failed(world, REQUESTS_MAX + 2, KVPULL_EEXPIRED);
	assert_int_equal(world->lines.counts[KVPULL_LOG_ERROR], 1);
}

WORLD_TEST(poll_tells_as_many_refused_pulls_as_it_has_room_for)
{
	struct kvpull_command commands[3];

	world_send(world, commands, commands_make(commands, 3, 999));
	poll_by_ones(world, KVPULL_POLL_FAILED, KVPULL_EEXPIRED);
}

WORLD_TEST(poll_tells_as_many_ended_pulls_as_it_has_room_for)
{
	uint64_t key;

	world->read_code = 1;
	(void)claim_up(world, 101);
	for (key = 1; key <= 3; key++)
		world_pull(world, key, 101, 0);
	poll_by_ones(world, KVPULL_POLL_LOADED, 0);
	assert_int_equal(kvpull_index_pool_used(&world->worker->pulls.pool), 0);
}

static void pull_of(struct world *world, uint64_t key,
		    const uint32_t *remote_ids, const uint32_t *local_ids,
		    uint32_t pairs)
{
	const struct kvpull_command command =
		world_pull_of(key, 101, remote_ids, local_ids, pairs);

	world_send(world, &command, 1);
}

/* Also for pulls behind those whose ids lie in huge pages. */
WORLD_TEST_WITH(each_pull_keeps_as_many_ids_as_pull_blocks_max,
		",\"pulls_max\":12,\"tickets_max\":4")
{
	const struct kvpull_worker *worker = world->worker;
	uint32_t remote[PAIRS_MAX + 1];
	uint32_t local[PAIRS_MAX + 1];
	uint64_t key;
	uint32_t at;

	world_claim(world, 101, 1);
	for (key = 1; key <= MANY; key++) {
		for (at = 0; at <= PAIRS_MAX; at++) {
			remote[at] = (uint32_t)key * 1000 + at;
			local[at] = (uint32_t)key * 2000 + at;
		}
		pull_of(world, key, remote, local,
			key % 2 ? PAIRS_MAX : KVPULL_PAIRS_FEW);
	}
	for (key = 1; key <= MANY; key++) {
		const struct kvpull_pull_order *pull =
			&worker->handover.pulls[kvpull_map_get(
				&worker->pulls.map, key)];
		const uint32_t pairs = key % 2 ? PAIRS_MAX : KVPULL_PAIRS_FEW;

		assert_int_equal(pull->group_first[1], pairs);
		assert_int_equal(pull->group_first[KVPULL_GROUPS_MAX], pairs);
		for (at = 0; at < pairs; at++) {
			assert_int_equal(pull->remote_ids[at], key * 1000 + at);
			assert_int_equal(pull->local_ids[at], key * 2000 + at);
		}
	}
	/* No place is left; and one that comes free takes no longer pull. */
	pull_of(world, MANY + 1, remote, local, 1);
	world_command(world, KVPULL_COMMAND_ABORT, 1, 0);
	world_poll(world, 2);
	failed(world, MANY + 1, KVPULL_EFULL);
	failed(world, 1, KVPULL_EABORTED);
	pull_of(world, MANY + 2, remote, local, PAIRS_MAX + 1);
	world_poll(world, 1);
	failed(world, MANY + 2, KVPULL_EFULL);
	pull_of(world, MANY + 3, remote, local, PAIRS_MAX);
	world_poll(world, 1);
	world_silent(world, MANY + 3);
}

/* 0 is the serial of a pull that never was. */
WORLD_TEST(serial_of_a_pull_goes_from_the_last_to_1)
{
	struct kvpull_pull_note *notes = world->worker->pulls.notes;
	uint32_t index;

	world_claim(world, 101, 1);
	for (index = 0; index < 4; index++)
		notes[index].serial = UINT32_MAX - 1;
	world_pull_command(world, 1, 101, 0);
	index = kvpull_map_get(&world->worker->pulls.map, 1);
	assert_int_equal(notes[index].serial, UINT32_MAX);
	world_command(world, KVPULL_COMMAND_ABORT, 1, 0);
	world_poll(world, 2);
	failed(world, 1, KVPULL_EABORTED);
	notes[index].serial = UINT32_MAX;
	world_pull_command(world, 2, 101, 0);
	assert_int_equal(kvpull_map_get(&world->worker->pulls.map, 2), index);
	assert_int_equal(notes[index].serial, 1);
	world_command(world, KVPULL_COMMAND_ABORT, 2, 0);
	world_poll(world, 2);
	failed(world, 2, KVPULL_EABORTED);
}

WORLD_TEST(each_of_several_failed_pulls_tells_its_own_blocks)
{
	static const uint32_t remote[2] = { 1, 2 };
	uint64_t key;

	/* None has failed, also not of the key that no request has. */
	(void)world_failed_blocks(world, 0, 2, KVPULL_ENOKEY);
	world_claim(world, 101, 1);
	for (key = 1; key <= 3; key++) {
		const uint32_t local[2] = { (uint32_t)key * 4,
					    (uint32_t)key * 4 + 1 };

		pull_of(world, key, remote, local, 2);
	}
	for (key = 1; key <= 3; key++)
		world_command(world, KVPULL_COMMAND_ABORT, key, 0);
	world_poll(world, 1);
	assert_int_equal(world->record_count, 3);
	for (key = 1; key <= 3; key++)
		assert_int_equal(world_failed_blocks(world, key, 2, 0),
				 key * 4);
	(void)world_failed_blocks(world, 4, 2, KVPULL_ENOKEY);
	(void)world_failed_blocks(world, 2, 1, KVPULL_ETOOSMALL);
	assert_int_equal(kvpull_index_pool_used(&world->worker->pulls.pool), 3);
	world_poll(world, 1);
	(void)world_failed_blocks(world, 2, 2, KVPULL_ENOKEY);
	assert_int_equal(kvpull_index_pool_used(&world->worker->pulls.pool), 0);
}

WORLD_TEST(hold_that_does_not_fit_the_table_is_refused_and_said)
{
	struct kvpull_command end = { .kind = KVPULL_COMMAND_END,
				      .slot = world_holds,
				      .generation = GENERATION,
				      .key = 1,
				      .reason = KVPULL_END_REVOKED };

	world_hold(world, 1, world_holds, GENERATION);
	bad(world, 1);
	world_hold(world, 1, world_holds - 1, GENERATION);
	assert_int_equal(world->worker->counts.step_bad, 1);
	/* The slot has had this generation. */
	world_hold(world, 2, world_holds - 1, GENERATION);
	bad(world, 2);
	/* An end of no slot is counted, the hold's own is not. */
	world_send(world, &end, 1);
	assert_int_equal(world->worker->counts.step_bad, 3);
	world_poll(world, 1);
	world_silent(world, 1);
	end.slot--;
	world_send(world, &end, 1);
	assert_int_equal(world->worker->counts.step_bad, 3);
	world_poll(world, 1);
	sent(world, 1, KVPULL_END_REVOKED);
}

/* A ticket whose claim lies in this place of an empty map. */
static uint64_t serial_at(const struct kvpull_map *map, uint32_t place)
{
	uint64_t serial = 101;

	while (kvpull_map_home(map, serial) != place)
		serial++;
	return serial;
}

WORLD_TEST(another_half_ends_the_claims_at_both_ends_of_the_map)
{
	const struct kvpull_worker *worker = world->worker;
	const struct kvpull_map *map = &worker->claims.map;
	uint32_t at;

	world_claim(world, serial_at(map, 0), 1);
	world_claim(world, serial_at(map, map->mask), 1);
	assert_true(map->entries[0].key && map->entries[map->mask].key);
	for (at = 0; at < 2; at++)
		assert_int_equal(worker->claims.notes[at].release_told, 0);
	world->incarnation++;
	assert_int_equal(world_send_code(world, NULL, 0), KVPULL_ECLOSED);
	for (at = 0; at < 2; at++)
		assert_int_equal(worker->claims.notes[at].release_told, 1);
}

/* Slot and generation are a consumer's words: maybe of no slot at all. */
WORLD_TEST(claim_of_what_is_not_held_names_no_request)
{
	static const struct {
		uint32_t slot;
		uint64_t generation;
		const char *words;
	} rows[] = {
		{ 7, GENERATION,
		  "claim of request cmpl-3 by consumer rank 0 " },
		{ 7, GENERATION + 1, "claim of request unknown yet by " },
		{ 6, GENERATION, "claim of request unknown yet by " },
		{ 8, GENERATION, "claim of request unknown yet by " },
		{ UINT32_MAX, GENERATION, "claim of request unknown yet by " },
	};
	const struct kvpull_command hold = { .kind = KVPULL_COMMAND_HOLD,
					     .slot = 7,
					     .key = 3,
					     .generation = GENERATION,
					     .label = "cmpl-3" };
	const struct world_hello who = { .instance = 1,
					 .incarnation = UINT64_C(1) << 32 };
	struct world_caller *caller = world_let_in(world, 0, &who);
	char text[64];
	uint32_t at;

	world_send(world, &hold, 1);
	for (at = 0; at < sizeof(rows) / sizeof(rows[0]); at++) {
		world->lines = (struct lines){ 0 };
		world_say(world, caller, KVPULL_NOTE_CLAIM, rows[at].slot,
			  rows[at].generation);
		world_poll(world, 1);
		assert_non_null(strstr(world->lines.all, rows[at].words));
		(void)snprintf(text, sizeof(text), "slot %u generation %llu of",
			       rows[at].slot,
			       (unsigned long long)rows[at].generation);
		assert_non_null(strstr(world->lines.all, text));
	}
}

static int rank_info(const struct world *world, size_t room, size_t *count)
{
	static uint8_t bytes[4096];

	return kvpull_worker_rank_info(world->worker, bytes, room, count);
}

static int result(const struct world *world, size_t room, size_t *count)
{
	static uint8_t bytes[4096];

	return kvpull_worker_result_build(world->worker, bytes, room, count);
}

WORLD_TEST(rank_info_and_result_say_what_room_they_need)
{
	struct kvpull_command command;
	size_t needed = 0;
	size_t count = 0;

	assert_int_equal(rank_info(world, 4096, &needed), 0);
	assert_int_equal(rank_info(world, needed - 1, &count),
			 KVPULL_ETOOSMALL);
	assert_int_equal(count, needed);
	assert_int_equal(rank_info(world, needed, &count), 0);
	world_send(world, &command, commands_make(&command, 1, 999));
	world_poll(world, 1);
	assert_int_equal(result(world, 0, &needed), KVPULL_ETOOSMALL);
	assert_true(needed > 0);
	assert_int_equal(result(world, needed - 1, &count), KVPULL_ETOOSMALL);
	assert_int_equal(result(world, needed, &count), 0);
	assert_int_equal(count, needed);
}

/* A block id is good for each cache of its group. */
WORLD_TEST(rank_info_says_the_fewest_blocks_of_any_cache)
{
	struct kvpull_cache *caches = world->worker->facts.caches;
	struct kvpull_rank_info rank;
	uint8_t bytes[4096];
	size_t count;
	uint32_t at;

	world->worker->facts.cache_count = 3;
	for (at = 0; at < 3; at++) {
		caches[0].block_count = caches[1].block_count =
			caches[2].block_count = WORLD_BLOCKS;
		caches[at].block_count = 5;
		assert_int_equal(kvpull_worker_rank_info(world->worker, bytes,
							 sizeof(bytes), &count),
				 0);
		assert_int_equal(kvpull_step_get_rank_info(bytes, count, &rank),
				 0);
		assert_int_equal(rank.block_counts[0], 5);
	}
	world->worker->facts.cache_count = 1;
}

UNIT_TEST_OF(rank_info_waits_for_the_registration, struct world, world,
	     world_setup_bare, world_teardown)
{
	size_t count = 77;

	assert_int_equal(rank_info(world, 4096, &count), KVPULL_EAGAIN);
	assert_int_equal(count, 77);
	world_register(world);
	assert_int_equal(rank_info(world, 4096, &count), 0);
}

/* Results that were not made yet cannot have been taken. */
WORLD_TEST(ack_of_a_result_that_is_not_there_takes_none_away)
{
	struct kvpull_worker *worker = world->worker;
	struct kvpull_command command;

	world_send(world, &command, commands_make(&command, 1, 999));
	world_poll(world, 1);
	assert_true(worker->results.next > worker->results.first);
	world->ack = worker->results.next;
	world_send(world, NULL, 0);
	assert_true(worker->results.next > worker->results.first);
	world->ack = worker->results.next - 1;
	world_send(world, NULL, 0);
	assert_int_equal(worker->results.first, worker->results.next);
	/* And one that was taken before gives none back. */
	world->ack = 1;
	world_send(world, NULL, 0);
	assert_int_equal(worker->results.first, worker->results.next);
}

/* A refused consumer is not joined again, also as its connection ends. */
static void closed_caller_goes(struct world *world,
			       const struct world_caller *caller)
{
	const uint32_t warnings = world->lines.counts[KVPULL_LOG_WARN];
	const uint32_t forgotten = caller->forgotten;

	world_poll(world, 3);
	assert_int_equal(world->lines.counts[KVPULL_LOG_WARN], warnings);
	assert_int_equal(world->worker->crowd.active_count, 1);
	caller_down(world, 0, 3);
	assert_int_equal(world->lines.counts[KVPULL_LOG_WARN], warnings);
	assert_int_equal(caller->forgotten, forgotten + 1);
	assert_int_equal(world->worker->crowd.active_count, 0);
}

/*
 * Instances over a network are waited for a lease: as many as there is room for,
 * and the next is closed by name.
 */
WORLD_TEST(consumer_that_the_table_of_holds_has_no_room_for_is_closed)
{
	struct world_hello who = { .uid = world->peer_uid };
	const struct world_caller *caller = NULL;
	uint32_t at;

	world_far(world);
	/* Twice consumers_max. */
	for (at = 0; at <= 2 * world->config.consumers_max; at++) {
		who.instance = 100 + at;
		who.incarnation = (UINT64_C(1) << 32) * (at + 1);
		caller = world_let_in(world, 0, &who);
		world_poll(world, 1);
		if (at == 2 * world->config.consumers_max)
			break;
		assert_int_equal(caller->dropped, 0);
		caller_down(world, 0, 3);
	}
	assert_int_equal(caller->dropped, 1);
	assert_string_equal(
		world->lines.of[KVPULL_LOG_WARN],
		"consumer rank 0 of consumer refused by the hold table: raise consumers_max");
	closed_caller_goes(world, caller);
	/* The first that were waited for are given up. */
	for (at = 0; at < 200; at++)
		world_pass(world, 100 * WORLD_MS);
	who.instance++;
	who.incarnation += UINT64_C(1) << 32;
	world->callers[0].dropped = 0;
	assert_int_equal(world_hello(world, 0, &who)->state, 2);
	world_poll(world, 1);
	assert_int_equal(world->callers[0].dropped, 0);
}
