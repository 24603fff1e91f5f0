/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of reads alone: a toy owner whose requests have two parts, over a
 * route that does nothing until the test ends what it began.
 */
#include <string.h>

#include "plugin/reads/reads.h"
#include "tests/lib/unit.h"

#define REQUESTS 600u
#define PARTS 1200u
#define TOY_PARTS_MAX 4u
#define LATE UINT64_C(1000000)

static const enum kvpull_reads_state with_guards[] = { KVPULL_READS_DATA,
						       KVPULL_READS_GUARDS,
						       KVPULL_READS_FREE };
static const enum kvpull_reads_state data_alone[] = { KVPULL_READS_DATA,
						      KVPULL_READS_FREE };

struct toy {
	struct kvpull_transport route; /* first: the engine's handle */
	struct kvpull_arena arena;
	struct kvpull_reads reads;
	int ready;
	int lost;
	int judged;
	uint32_t part_count; /* of a request */
	uint32_t begun[2];   /* reads, checks */
	uint32_t cancelled;
	uint64_t unseen; /* reads, by index, whose bytes are on their way */
	uint32_t again;
	uint32_t ended;
	int32_t code; /* of the last end */
	/* Requests whose parts were made, in order, and of what priority. */
	uint32_t made[REQUESTS];
	uint32_t made_count;
};

static struct toy toy;

static int toy_read(struct kvpull_transport *route, uint32_t peer,
		    struct kvpull_read *read)
{
	assert_ptr_equal(route, &toy.route);
	assert_int_equal(peer, 7);
	assert_int_equal(read->byte_count, 100);
	toy.begun[0]++;
	return 0;
}

static int toy_check(struct kvpull_transport *route, uint32_t peer,
		     struct kvpull_read *read)
{
	assert_ptr_equal(route, &toy.route);
	assert_int_equal(peer, 7);
	assert_int_equal(read->done_bytes, 100);
	toy.begun[1]++;
	return 0;
}

static void toy_cancel(struct kvpull_transport *route, uint32_t peer,
		       struct kvpull_read *read)
{
	(void)route;
	(void)peer;
	(void)read;
	toy.cancelled++;
}

static int toy_leave(struct kvpull_transport *route, uint32_t peer,
		     struct kvpull_read *read)
{
	const uint64_t bit = UINT64_C(1) << read->index % 64;
	const int is_unseen = (toy.unseen & bit) != 0;

	assert_ptr_equal(route, &toy.route);
	assert_int_equal(peer, 7);
	toy.unseen &= ~bit;
	return is_unseen;
}

static const struct kvpull_transport_ops route_ops = {
	.read_start = toy_read,
	.check_start = toy_check,
	.read_cancel = toy_cancel,
	.read_leave = toy_leave,
};

static int ready(void *own, uint32_t request)
{
	(void)request;
	return ((const struct toy *)own)->ready;
}

static int parts_make(void *own, uint32_t request)
{
	uint32_t at;

	toy.made[toy.made_count++ % REQUESTS] = request;
	for (at = 0; at < ((const struct toy *)own)->part_count; at++) {
		struct kvpull_reads_part *part =
			kvpull_reads_part_add(&toy.reads, request);

		part->transport = &toy.route;
		assert_int_equal(part->read.priority,
				 toy.reads.requests[request].priority);
		part->handle = 7;
		part->read.byte_count = 100;
	}
	return 0;
}

static int lost(void *own, const struct kvpull_reads_part *part)
{
	(void)part;
	return ((const struct toy *)own)->lost;
}

static int judge(void *own, const struct kvpull_reads_part *part,
		 enum kvpull_reads_state phase)
{
	(void)part;
	return phase == KVPULL_READS_DATA ? 0 :
					    ((const struct toy *)own)->judged;
}

static void again(void *own, uint32_t request)
{
	(void)own;
	(void)request;
	toy.again++;
}

static void ended(void *own, uint32_t request)
{
	(void)own;
	toy.ended++;
	toy.code = toy.reads.requests[request].code;
}

static const struct kvpull_reads_owner patient = {
	.ready = ready,
	.parts_make = parts_make,
	.lost = lost,
	.judge = judge,
	.again = again,
	.ended = ended,
};
static const struct kvpull_reads_owner impatient = {
	.ready = ready,
	.parts_make = parts_make,
	.lost = lost,
	.judge = judge,
	.ended = ended,
};

static int setup(void **state)
{
	static const struct kvpull_log silent;

	(void)state;
	toy = (struct toy){ .route.ops = &route_ops, .part_count = 2 };
	kvpull_arena_init(&toy.arena, &silent);
	toy.reads.owner = &patient;
	toy.reads.own = &toy;
	toy.reads.log = &silent;
	kvpull_reads_init(&toy.reads, REQUESTS, PARTS, &toy.arena);
	return !kvpull_arena_ok(&toy.arena);
}

static int teardown(void **state)
{
	(void)state;
	assert_int_equal(kvpull_index_pool_used(&toy.reads.part_pool), 0);
	assert_int_equal(toy.reads.live.count, 0);
	assert_int_equal(toy.reads.parts_waits.arrival.count, 0);
	assert_int_equal(toy.reads.again_waits.count, 0);
	kvpull_arena_fini(&toy.arena);
	return 0;
}

#define TEST(name) UNIT_TEST_WITH(name, setup, teardown)

static void begin(uint32_t request, const enum kvpull_reads_state *phases)
{
	kvpull_reads_begin(&toy.reads, request, phases, toy.part_count, LATE);
	kvpull_reads_step(&toy.reads, request);
}

/* The route ends what it does for a part of request 0. */
static void done(uint32_t at, int32_t code)
{
	const struct kvpull_reads_request *request = &toy.reads.requests[0];
	const struct kvpull_event event = {
		.kind = toy.begun[1] ? KVPULL_EVENT_CHECK_DONE :
				       KVPULL_EVENT_READ_DONE,
		.code = code,
		.read = &toy.reads.parts[request->parts[at]].read,
	};

	kvpull_reads_event(&toy.reads, &event);
}

TEST(guards_are_read_after_the_data_of_all_parts)
{
	begin(0, with_guards);
	assert_int_equal(toy.begun[0], 2);
	done(1, 0);
	assert_int_equal(toy.begun[1], 0);
	done(0, 0);
	assert_int_equal(toy.begun[1], 2);
	done(0, 0);
	assert_int_equal(toy.ended, 0);
	done(1, 0);
	assert_int_equal(toy.ended, 1);
	assert_int_equal(toy.code, 0);
}

TEST(request_without_guards_ends_with_its_data)
{
	begin(0, data_alone);
	done(0, 0);
	assert_int_equal(toy.ended, 0);
	done(1, 0);
	assert_int_equal(toy.ended, 1);
	assert_int_equal(toy.begun[1], 0);
}

TEST(guard_that_is_not_believed_fails_the_request_when_all_is_quiet)
{
	begin(0, with_guards);
	done(0, 0);
	done(1, 0);
	toy.judged = KVPULL_EEXPIRED;
	done(0, 0);
	assert_int_equal(toy.cancelled, 1);
	assert_int_equal(toy.ended, 0);
	done(1, 0);
	assert_int_equal(toy.ended, 1);
	assert_int_equal(toy.code, KVPULL_EEXPIRED);
}

TEST(request_that_is_cancelled_ends_when_each_of_its_reads_has)
{
	begin(0, with_guards);
	kvpull_reads_fail(&toy.reads, 0, KVPULL_EDEADLINE);
	kvpull_reads_fail(&toy.reads, 0, KVPULL_EABORTED);
	assert_int_equal(toy.cancelled, 2);
	done(0, 0);
	assert_int_equal(toy.ended, 0);
	done(1, KVPULL_EABORTED);
	assert_int_equal(toy.ended, 1);
	assert_int_equal(toy.code, KVPULL_EDEADLINE);
	assert_int_equal(toy.begun[1], 0);
}

/* Bytes of a part of request 0 are on their way. */
static void unseen_mark(uint32_t at)
{
	const uint32_t part = toy.reads.requests[0].parts[at];

	toy.unseen |= UINT64_C(1) << toy.reads.parts[part].read.index;
}

/* A read of request 0 has ended, with bytes on their way. */
static void unseen(uint32_t at)
{
	done(at, 0);
	unseen_mark(at);
}

/* The bytes of a part that was left have come, or never will. */
static void left(uint32_t at)
{
	toy.begun[1] = 0;
	done(at, KVPULL_EABORTED);
}

TEST(request_that_fails_waits_for_bytes_that_are_on_their_way)
{
	begin(0, with_guards);
	unseen(0);
	done(1, KVPULL_EPEER);
	assert_int_equal(toy.cancelled, 0);
	assert_int_equal(toy.unseen, 0);
	assert_int_equal(toy.ended, 0);
	left(0);
	assert_int_equal(toy.ended, 1);
	assert_int_equal(toy.code, KVPULL_EPEER);
}

TEST(request_that_is_not_checked_waits_for_bytes_that_are_on_their_way)
{
	begin(0, with_guards);
	unseen(0);
	toy.lost = KVPULL_EPEER;
	unseen_mark(1);
	done(1, 0);
	assert_int_equal(toy.begun[1], 0);
	assert_int_equal(toy.unseen, 0);
	left(1);
	assert_int_equal(toy.ended, 0);
	left(0);
	assert_int_equal(toy.ended, 1);
	assert_int_equal(toy.code, KVPULL_EPEER);
}

TEST(request_begins_again_behind_bytes_that_are_on_their_way)
{
	begin(0, with_guards);
	unseen(0);
	done(1, KVPULL_EABORTED);
	assert_int_equal(toy.unseen, 0);
	assert_int_equal(toy.again, 0);
	left(0);
	assert_int_equal(toy.again, 1);
	(void)kvpull_reads_run(&toy.reads, 1);
	assert_int_equal(toy.begun[0], 4);
	kvpull_reads_fail(&toy.reads, 0, KVPULL_EDEADLINE);
	left(0);
	left(1);
	assert_int_equal(toy.ended, 1);
}

TEST(request_that_was_cut_begins_again_when_all_is_quiet)
{
	begin(0, with_guards);
	done(0, KVPULL_EABORTED);
	assert_int_equal(toy.again, 0);
	done(1, 0);
	assert_int_equal(toy.again, 1);
	assert_int_equal(toy.begun[0], 2);
	(void)kvpull_reads_run(&toy.reads, 1);
	assert_int_equal(toy.begun[0], 4);
	done(0, KVPULL_EPEER);
	done(1, 0);
	assert_int_equal(toy.code, KVPULL_EPEER);
}

TEST(cut_is_an_error_of_an_owner_that_does_not_begin_again)
{
	toy.reads.owner = &impatient;
	begin(0, data_alone);
	done(0, KVPULL_EABORTED);
	assert_int_equal(toy.cancelled, 1);
	done(1, 0);
	assert_int_equal(toy.ended, 1);
	assert_int_equal(toy.code, KVPULL_EABORTED);
}

TEST(nothing_begins_over_a_connection_that_was_lost)
{
	toy.lost = KVPULL_EPEER;
	begin(0, with_guards);
	assert_int_equal(toy.begun[0], 0);
	assert_int_equal(toy.code, KVPULL_EPEER);
	toy.lost = 0;
	begin(0, with_guards);
	done(0, 0);
	toy.lost = KVPULL_EPEER;
	done(1, 0);
	assert_int_equal(toy.begun[1], 0);
	assert_int_equal(toy.ended, 2);
	assert_int_equal(toy.code, KVPULL_EPEER);
}

TEST(run_looks_at_so_many_deadlines_and_no_more)
{
	uint32_t at;

	toy.ready = KVPULL_EAGAIN;
	for (at = 0; at < REQUESTS; at++)
		begin(at, with_guards);
	assert_int_equal(kvpull_reads_run(&toy.reads, 1), 1);
	assert_true(kvpull_reads_run(&toy.reads, 1) > 1);
	assert_int_equal(toy.ended, 0);
	assert_int_equal(kvpull_reads_run(&toy.reads, 3 * LATE), 3 * LATE);
	assert_int_equal(toy.ended, 512);
	(void)kvpull_reads_run(&toy.reads, 3 * LATE);
	assert_int_equal(toy.ended, REQUESTS);
	assert_int_equal(kvpull_reads_run(&toy.reads, 3 * LATE), UINT64_MAX);
	assert_int_equal(toy.code, KVPULL_EDEADLINE);
}

TEST(run_goes_on_with_so_many_that_waited_and_no_more)
{
	uint32_t at;

	toy.ready = KVPULL_EAGAIN;
	for (at = 0; at < 100; at++)
		begin(at, with_guards);
	toy.ready = 0;
	(void)kvpull_reads_run(&toy.reads, 1);
	assert_int_equal(toy.begun[0], 0); /* nothing has changed */
	toy.reads.has_changed = 1;
	assert_int_equal(kvpull_reads_run(&toy.reads, 1), 1);
	assert_int_equal(toy.begun[0], 2 * 64);
	(void)kvpull_reads_run(&toy.reads, 1);
	assert_int_equal(toy.begun[0], 2 * 100);
	for (at = 0; at < 100; at++) {
		const struct kvpull_reads_request *request =
			&toy.reads.requests[at];
		struct kvpull_event event = { .kind = KVPULL_EVENT_READ_DONE };
		uint32_t part;

		kvpull_reads_fail(&toy.reads, at, KVPULL_EABORTED);
		for (part = 0; part < 2; part++) {
			event.read =
				&toy.reads.parts[request->parts[part]].read;
			kvpull_reads_event(&toy.reads, &event);
		}
	}
}

/* The look at deadlines stands between two requests when the next one ends. */
TEST(look_at_deadlines_goes_on_behind_a_request_that_ended)
{
	uint32_t at;

	toy.ready = KVPULL_EAGAIN;
	for (at = 0; at < REQUESTS; at++)
		begin(at, with_guards);
	assert_int_equal(kvpull_reads_run(&toy.reads, 1), 1);
	kvpull_reads_fail(&toy.reads, 512, KVPULL_EABORTED);
	assert_int_equal(toy.ended, 1);
	assert_int_equal(toy.code, KVPULL_EABORTED);
	/* 513 and later are looked at; then all that are left, from the first. */
	(void)kvpull_reads_run(&toy.reads, LATE);
	assert_int_equal(toy.ended, REQUESTS - 512);
	assert_int_equal(toy.code, KVPULL_EDEADLINE);
	(void)kvpull_reads_run(&toy.reads, UINT64_MAX);
	assert_int_equal(toy.ended, REQUESTS);
}

/* All reads of a request end. */
static void all_done(uint32_t index, int32_t code)
{
	const struct kvpull_reads_request *request = &toy.reads.requests[index];
	uint32_t parts[TOY_PARTS_MAX];
	uint32_t at;

	for (at = 0; at < toy.part_count; at++)
		parts[at] = request->parts[at];
	for (at = 0; at < toy.part_count; at++) {
		const struct kvpull_event event = {
			.kind = KVPULL_EVENT_READ_DONE,
			.code = code,
			.read = &toy.reads.parts[parts[at]].read,
		};

		kvpull_reads_event(&toy.reads, &event);
	}
}

TEST(run_gives_parts_to_so_many_that_waited_and_no_more)
{
	uint32_t at;

	toy.part_count = TOY_PARTS_MAX;
	for (at = 0; at < 400; at++)
		begin(at, data_alone);
	/* All parts are in use, 100 requests wait for some. */
	assert_int_equal(toy.begun[0], PARTS);
	for (at = 0; at < 100; at++)
		all_done(at, 0);
	assert_int_equal(toy.ended, 100);
	assert_int_equal(toy.begun[0], PARTS);
	assert_int_equal(kvpull_reads_run(&toy.reads, 1), 1);
	assert_int_equal(toy.begun[0], PARTS + 64 * TOY_PARTS_MAX);
	assert_true(kvpull_reads_run(&toy.reads, 1) > 1);
	assert_int_equal(toy.begun[0], PARTS + 100 * TOY_PARTS_MAX);
	for (at = 100; at < 400; at++)
		all_done(at, 0);
	assert_int_equal(toy.ended, 400);
	assert_int_equal(toy.code, 0);
}

/* A change in the middle of a turn is for the next turn. */
TEST(turn_looks_at_each_that_waits_once)
{
	uint64_t steps;
	uint32_t at;

	toy.ready = KVPULL_EAGAIN;
	for (at = 0; at < 100; at++)
		begin(at, with_guards);
	steps = toy.reads.steps;
	toy.reads.has_changed = 1;
	assert_int_equal(kvpull_reads_run(&toy.reads, 1), 1);
	assert_int_equal(toy.reads.steps, steps + 64);
	toy.reads.has_changed = 1;
	assert_true(kvpull_reads_run(&toy.reads, 1) > 1);
	assert_int_equal(toy.reads.steps, steps + 100);
	assert_int_equal(kvpull_reads_run(&toy.reads, 1), 1);
	assert_int_equal(toy.reads.steps, steps + 164);
	for (at = 0; at < 100; at++)
		kvpull_reads_fail(&toy.reads, at, KVPULL_EABORTED);
	assert_int_equal(toy.ended, 100);
}

static void begin_urgent(uint32_t request, int32_t priority)
{
	kvpull_reads_begin(&toy.reads, request, data_alone, toy.part_count,
			   LATE);
	assert_int_equal(toy.reads.requests[request].priority, 0);
	toy.reads.requests[request].priority = priority;
	kvpull_reads_step(&toy.reads, request);
}

/* All parts are in use by 300 requests, which end one by one. */
static void crowd_begin(void)
{
	uint32_t at;

	toy.part_count = TOY_PARTS_MAX;
	for (at = 0; at < 300; at++)
		begin(at, data_alone);
	assert_int_equal(toy.begun[0], PARTS);
	toy.made_count = 0;
}

TEST(parts_go_to_the_most_urgent_that_waits)
{
	static const int32_t priorities[] = { 2, 0, -7, 0, INT32_MIN };
	static const uint32_t order[] = { 304, 302, 301, 303, 300 };
	uint32_t at;

	crowd_begin();
	for (at = 0; at < 5; at++)
		begin_urgent(300 + at, priorities[at]);
	assert_int_equal(toy.made_count, 0);
	for (at = 0; at < 5; at++) {
		all_done(at, 0);
		(void)kvpull_reads_run(&toy.reads, 1);
		assert_int_equal(toy.made_count, at + 1);
		assert_int_equal(toy.made[at], order[at]);
	}
	for (at = 5; at < 305; at++)
		all_done(at, 0);
	assert_int_equal(toy.ended, 305);
	/* Another request in that place has a priority of its own. */
	begin_urgent(302, 0);
	all_done(302, 0);
}

/* Whatever comes behind it, the eighth request that gets parts is the oldest. */
TEST(request_behind_urgent_ones_has_parts_within_a_round)
{
	uint32_t at;

	crowd_begin();
	begin_urgent(300, 1);
	for (at = 0; at < KVPULL_TURNS_A_ROUND; at++) {
		begin_urgent(301 + at, 0);
		all_done(at, 0);
		(void)kvpull_reads_run(&toy.reads, 1);
		assert_int_equal(toy.made_count, at + 1);
	}
	assert_int_equal(toy.made[KVPULL_TURNS_A_ROUND - 1], 300);
	/* The last one waits still. */
	all_done(at, 0);
	(void)kvpull_reads_run(&toy.reads, 1);
	assert_int_equal(toy.made[KVPULL_TURNS_A_ROUND], 308);
	for (at++; at < 309; at++)
		all_done(at, 0);
	assert_int_equal(toy.ended, 309);
}
