// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/copy_plan.h"
#include "tests/lib/gate.h"
#include "tests/unit/shm/copies.h"

UNIT_TEST(jobs_are_byte_exact_with_every_routine)
{
	uint32_t routine_count;
	const struct kvpull_copy_routine *routines =
		kvpull_copy_routines(&routine_count);
	struct work *work = work_mixed(0);
	struct pool pool;
	uint32_t r;

	for (r = 0; r < routine_count; r++) {
		if (!kvpull_copy_usable(&routines[r]))
			continue;
		memset(work->to, GUARD, work->side_bytes);
		work->job.code = 1;
		assert_int_equal(pool_open_by(&pool, 0, 1, routines[r].name),
				 0);
		kvpull_copy_inline(pool.copy, &work->job);
		pool_close(&pool);
		work_check(work);
	}
	work_free(work);
}

UNIT_TEST(shares_copy_each_byte_once_in_any_order)
{
	struct work *work = work_mixed(0);
	struct kvpull_copy_choices choices;
	struct kvpull_copy_plan plan;
	uint32_t count, lane_routine, i, k, lanes = 0;
	const struct kvpull_copy_routine *routines =
		kvpull_copy_routines(&count);

	for (lane_routine = 0; lane_routine < count; lane_routine++) {
		struct kvpull_copy_cursor cursor = { 0 };

		/* The plan needs a routine of each number of lanes. */
		if (!kvpull_copy_usable(&routines[lane_routine]) ||
		    routines[lane_routine].lanes <= lanes)
			continue;
		lanes = routines[lane_routine].lanes;
		for (k = 0; k < KVPULL_COPY_CLASSES; k++)
			choices.routines[k] = &routines[lane_routine];
		kvpull_copy_plan_init(&plan, &work->job, &choices, 1);
		assert_true(plan.share_count >= 8);
		memset(work->to, GUARD, work->side_bytes);
		/* Backwards, then the other half forwards: cursor is a hint. */
		for (i = plan.share_count; i > plan.share_count / 2; i--)
			kvpull_copy_share(&plan, i - 1, &cursor);
		for (i = 0; i < plan.share_count / 2; i++)
			kvpull_copy_share(&plan, i, &cursor);
		assert_memory_equal(work->to, work->expected, work->side_bytes);
		/* Leave one out, and its bytes are missing: none is twice. */
		memset(work->to, GUARD, work->side_bytes);
		for (i = 0; i < plan.share_count; i++)
			if (i != plan.share_count / 2)
				kvpull_copy_share(&plan, i, &cursor);
		assert_memory_not_equal(work->to, work->expected,
					work->side_bytes);
	}
	work_free(work);
}

/* A worker has one for all copies: its place in another one says nothing. */
UNIT_TEST(cursor_of_another_copy_is_not_believed)
{
	struct work *before = work_mixed(0);
	struct work *work = work_simple(0, 64, 65536);
	struct kvpull_copy_cursor cursor = { 0 };
	struct kvpull_copy_choices choices;
	struct kvpull_copy_plan plan;
	uint32_t count, i;

	kvpull_copy_choices_set(&choices, &kvpull_copy_routines(&count)[0]);
	kvpull_copy_plan_init(&plan, &before->job, &choices, 1);
	for (i = 0; i < plan.share_count / 2; i++)
		kvpull_copy_share(&plan, i, &cursor);
	/* The next strip of so many has a single granule. */
	assert_true(cursor.strip_index > 0);
	kvpull_copy_plan_init(&plan, &work->job, &choices, 2);
	for (i = plan.share_count; i > 0; i--)
		kvpull_copy_share(&plan, i - 1, &cursor);
	assert_memory_equal(work->to, work->expected, work->side_bytes);
	work_free(before);
	work_free(work);
}

static uint32_t short_count;
static size_t short_max;

static void short_copy(const struct kvpull_span *spans, uint32_t count,
		       size_t bytes)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		memcpy(spans[i].to, spans[i].from, bytes);
	short_count += count;
	short_max = short_max > bytes ? short_max : bytes;
}

/* Rows of 1000 and 64 bytes are; those of 2048 and more are not. */
UNIT_TEST(short_spans_have_a_routine_of_their_own)
{
	static const struct kvpull_copy_routine routine = { "short", short_copy,
							    1, 1, 0 };
	struct work *work = work_mixed(0);
	struct kvpull_copy_cursor cursor = { 0 };
	struct kvpull_copy_choices choices;
	struct kvpull_copy_plan plan;
	uint32_t count, i;

	kvpull_copy_choices_set(&choices, kvpull_copy_routines(&count));
	choices.routines[KVPULL_COPY_1K] = &routine;
	kvpull_copy_plan_init(&plan, &work->job, &choices, 1);
	for (i = 0; i < plan.share_count; i++)
		kvpull_copy_share(&plan, i, &cursor);
	assert_memory_equal(work->to, work->expected, work->side_bytes);
	assert_int_equal(short_count, 33 * 4 + 70 * 16);
	assert_int_equal(short_max, 1000);
	work_free(work);
}

UNIT_TEST(jobs_are_byte_exact_with_1_2_4_threads)
{
	static const uint32_t thread_counts[] = { 1, 2, 4 };
	struct work *work = work_mixed(0);
	uint32_t t, round;

	for (t = 0; t < 3; t++) {
		struct pool pool;

		pool_open(&pool, thread_counts[t], 1);
		for (round = 0; round < 3; round++) {
			memset(work->to, GUARD, work->side_bytes);
			work->job.code = 1;
			assert_int_equal(
				kvpull_copy_start(pool.copy, &work->job), 0);
			assert_ptr_equal(pool_wait(&pool), &work->job);
			work_check(work);
		}
		pool_close(&pool);
	}
	work_free(work);
}

UNIT_TEST(job_without_bytes_ends_at_once)
{
	struct work *work = work_simple(0, 0, 4096);
	struct kvpull_copy_job *job;
	struct pool pool;

	pool_open(&pool, 1, 2);
	assert_int_equal(kvpull_copy_start(pool.copy, &work->job), 0);
	assert_int_equal(kvpull_copy_arm(pool.copy), 1);
	assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 1);
	assert_ptr_equal(job, &work->job);
	work_check(work);
	work->read.strip_count = 0;
	assert_int_equal(kvpull_copy_start(pool.copy, &work->job), 0);
	assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 1);
	assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 0);
	assert_int_equal(kvpull_copy_arm(pool.copy), 0);
	pool_close(&pool);
	work_free(work);
}

UNIT_TEST(index_in_flight_is_refused)
{
	struct work *work = work_simple(0, 64, 65536);
	struct pool pool;

	pool_open(&pool, 1, 1);
	assert_int_equal(kvpull_copy_start(pool.copy, &work->job), 0);
	assert_int_equal(kvpull_copy_start(pool.copy, &work->job),
			 KVPULL_EAGAIN);
	assert_ptr_equal(pool_wait(&pool), &work->job);
	work_check(work);
	pool_close(&pool);
	work_free(work);
}

UNIT_TEST(owner_copies_alone_where_there_are_no_workers)
{
	struct work *work = work_mixed(0);
	struct kvpull_copy_job *job;
	struct pool pool;
	uint32_t shares = 0;

	pool_open(&pool, 0, 1);
	assert_int_equal(kvpull_copy_has_share(pool.copy), 0);
	assert_int_equal(kvpull_copy_help(pool.copy), 0);
	pool_start(&pool, work);
	while (kvpull_copy_has_share(pool.copy)) {
		assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 0);
		assert_true(kvpull_copy_help(pool.copy) > 0);
		shares++;
	}
	assert_true(shares >= 8);
	assert_int_equal(kvpull_copy_help(pool.copy), 0);
	/*
	 * The job has ended before the owner wants to sleep: no event would
	 * wake it.
	 */
	assert_true(kvpull_copy_arm(pool.copy));
	kvpull_copy_disarm(pool.copy);
	assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 1);
	work_check(work);
	/* Shares of a cancelled job are not copied. */
	assert_int_equal(kvpull_copy_start(pool.copy, &work->job), 0);
	assert_true(kvpull_copy_help(pool.copy) > 0);
	kvpull_copy_cancel(pool.copy, &work->job);
	assert_int_equal(kvpull_copy_has_share(pool.copy), 0);
	assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 1);
	assert_int_equal(job->code, KVPULL_EABORTED);
	pool_close(&pool);
	work_free(work);
}

/* However many come and are cancelled behind it before it is begun. */
UNIT_TEST(job_is_not_forgotten_behind_cancelled_ones)
{
	struct work *first = work_mixed(0);
	struct work *other = work_mixed(1);
	struct kvpull_copy_job *job;
	struct pool pool;
	uint32_t refused = 0;
	uint32_t round;

	pool_open(&pool, 0, 2);
	pool_start(&pool, first);
	for (round = 0; round < 100; round++) {
		const int code = kvpull_copy_start(pool.copy, &other->job);

		refused += code == KVPULL_EAGAIN;
		if (code == KVPULL_EAGAIN)
			continue;
		assert_int_equal(code, 0);
		kvpull_copy_cancel(pool.copy, &other->job);
		assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 1);
		assert_ptr_equal(job, &other->job);
	}
	assert_true(refused > 0);
	assert_ptr_equal(pool_finish(&pool), &first->job);
	work_check(first);
	/* Now there is room again. */
	assert_int_equal(kvpull_copy_start(pool.copy, &other->job), 0);
	kvpull_copy_cancel(pool.copy, &other->job);
	pool_close(&pool);
	work_free(first);
	work_free(other);
}

UNIT_TEST(owner_and_workers_share_jobs)
{
	struct work *works[2] = { work_mixed(0), work_mixed(1) };
	struct pool pool;
	uint32_t round;

	pool_open(&pool, 2, 2);
	for (round = 0; round < 50; round++) {
		struct kvpull_copy_job *jobs[2];
		uint32_t ended = 0;
		uint32_t i;

		for (i = 0; i < 2; i++)
			pool_start(&pool, works[i]);
		while (kvpull_copy_help(pool.copy))
			;
		while (ended < 2)
			ended += kvpull_copy_poll(pool.copy, jobs, 2);
		for (i = 0; i < 2; i++)
			work_check(works[i]);
	}
	pool_close(&pool);
	work_free(works[0]);
	work_free(works[1]);
}

#define MANY 24u

UNIT_TEST(many_jobs_in_flight_end_in_order_of_start)
{
	struct work *works[MANY];
	struct pool pool;
	uint32_t i, round;

	for (i = 0; i < MANY; i++)
		works[i] = i % 3 ? work_simple(i, 3 + i, 4096) :
				   work_simple(i, 5, 200000);
	pool_open(&pool, 1, MANY);
	for (round = 0; round < 4; round++) {
		/*
		 * A worker that has not slept since may find the last job
		 * again, first.
		 */
		gate_close(1);
		for (i = 0; i < MANY; i++)
			pool_start(&pool, works[i]);
		gate_open();
		/*
		 * With a single worker jobs end exactly in order, whatever
		 * poll's capacity.
		 */
		for (i = 0; i < MANY; i++) {
			assert_ptr_equal(pool_wait(&pool), &works[i]->job);
			work_check(works[i]);
		}
	}
	pool_close(&pool);
	for (i = 0; i < MANY; i++)
		work_free(works[i]);
}

UNIT_TEST(slots_are_reused_while_workers_lag)
{
	struct work *works[3];
	uint32_t is_idle[3] = { 1, 1, 1 };
	struct pool pool;
	uint32_t started = 0, ended = 0, i;

	for (i = 0; i < 3; i++)
		works[i] = work_simple(i, 40 + i, 16384);
	pool_open(&pool, 4, 3);
	while (ended < 150) {
		struct kvpull_copy_job *job;
		int code;

		for (i = 0; i < 3 && started < 150; i++) {
			if (!is_idle[i])
				continue;
			memset(works[i]->to, GUARD, works[i]->side_bytes);
			/* Far behind, they leave it no room: after the next. */
			code = kvpull_copy_start(pool.copy, &works[i]->job);
			if (code == KVPULL_EAGAIN)
				continue;
			assert_int_equal(code, 0);
			is_idle[i] = 0;
			started++;
		}
		job = pool_wait(&pool);
		i = job->read->index;
		assert_ptr_equal(job, &works[i]->job);
		work_check(works[i]);
		is_idle[i] = 1;
		ended++;
	}
	assert_int_equal(started, ended);
	pool_close(&pool);
	for (i = 0; i < 3; i++)
		work_free(works[i]);
}

/* Share by share: a worker may be stopped in its last one for any time. */
UNIT_TEST(first_job_is_done_before_the_last)
{
	struct work *first = work_simple(0, 8, 4096);
	struct work *last = work_simple(1, 128, 131072);
	struct kvpull_copy_job *job;
	struct pool pool;
	uint32_t helped = 0;

	pool_open(&pool, 0, 2);
	assert_int_equal(kvpull_copy_start(pool.copy, &first->job), 0);
	assert_int_equal(kvpull_copy_start(pool.copy, &last->job), 0);
	while (!kvpull_copy_poll(pool.copy, &job, 1)) {
		assert_true(helped < first->side_bytes);
		helped += kvpull_copy_help(pool.copy);
	}
	assert_ptr_equal(job, &first->job);
	work_check(first);
	assert_true(kvpull_copy_has_share(pool.copy));
	assert_ptr_equal(pool_finish(&pool), &last->job);
	work_check(last);
	pool_close(&pool);
	work_free(first);
	work_free(last);
}

/* Two are started, and the second one cancelled; 1: before it was whole. */
static int second_is_aborted(struct pool *pool, struct work *first,
			     struct work *second, int is_held)
{
	int is_aborted = 0;
	uint32_t i;

	memset(second->to, GUARD, second->side_bytes);
	if (is_held)
		gate_close(2);
	assert_int_equal(kvpull_copy_start(pool->copy, &first->job), 0);
	assert_int_equal(kvpull_copy_start(pool->copy, &second->job), 0);
	kvpull_copy_cancel(pool->copy, &second->job);
	kvpull_copy_cancel(pool->copy, &second->job);
	gate_open();
	for (i = 0; i < 2; i++) {
		struct kvpull_copy_job *job = pool_wait(pool);

		if (job == &first->job) {
			work_check(first);
			continue;
		}
		assert_ptr_equal(job, &second->job);
		is_aborted = job->code == KVPULL_EABORTED;
		if (!is_aborted)
			work_check(second);
		/* Quiet: nobody writes any more. */
		memset(second->to, GUARD, second->side_bytes);
	}
	for (size_t at = 0; at < 4096; at++)
		assert_int_equal(second->to[second->side_bytes - 1 - at],
				 GUARD);
	return is_aborted;
}

UNIT_TEST(cancelled_job_is_aborted_and_then_quiet)
{
	struct work *first = work_simple(0, 64, 131072);
	struct work *second = work_simple(1, 64, 131072);
	struct pool pool;
	uint32_t round;

	pool_open(&pool, 2, 2);
	/* Workers may be done before a cancel, but not those that wait. */
	for (round = 0; round < 20; round++)
		(void)second_is_aborted(&pool, first, second, 0);
	assert_true(second_is_aborted(&pool, first, second, 1));
	pool_close(&pool);
	work_free(first);
	work_free(second);
}

UNIT_TEST(close_stops_workers_with_jobs_in_flight)
{
	struct work *work = work_simple(0, 128, 65536);
	struct pool pool;
	uint32_t round;

	for (round = 0; round < 10; round++) {
		pool_open(&pool, 4, 1);
		assert_int_equal(kvpull_copy_start(pool.copy, &work->job), 0);
		pool_close(&pool);
	}
	work_free(work);
}
