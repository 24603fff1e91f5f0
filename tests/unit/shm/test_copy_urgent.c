/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of unlike priorities: whose share is next. */
#include "base/turns.h"
#include "tests/lib/random.h"
#include "tests/unit/shm/copies.h"

/* A share of short spans: 256 KiB. */
#define SHARE_BLOCKS 8u
#define BLOCK_BYTES 32768u
#define JOBS 12u

static struct work *work_of(uint32_t index, uint32_t shares, int32_t priority)
{
	struct work *work =
		work_simple(index, shares * SHARE_BLOCKS, BLOCK_BYTES);

	work->read.priority = priority;
	return work;
}

/* Shares of these are of that size, whatever this CPU's routine is. */
static void start(struct pool *pool, struct work *work)
{
	assert_int_equal(kvpull_copy_start(pool->copy, &work->job), 0);
}

static void help(struct pool *pool, uint32_t shares)
{
	for (; shares; shares--)
		assert_int_equal(kvpull_copy_help(pool->copy),
				 KVPULL_COPY_SHARE_BYTES_MIN);
}

/* This one has ended, and no other one. */
static void ended(struct pool *pool, struct work *work)
{
	struct kvpull_copy_job *jobs[2];

	assert_int_equal(kvpull_copy_poll(pool->copy, jobs, 2), 1);
	assert_ptr_equal(jobs[0], &work->job);
	work_check(work);
	work_free(work);
}

static void none_ended(struct pool *pool)
{
	struct kvpull_copy_job *job;

	assert_int_equal(kvpull_copy_poll(pool->copy, &job, 1), 0);
}

UNIT_TEST(urgent_job_goes_before_one_that_was_begun)
{
	struct work *late = work_of(0, 8, 5);
	struct work *urgent = work_of(1, 6, -1);
	struct pool pool;

	assert_int_equal(pool_open_by(&pool, 0, 2, "memcpy"), 0);
	start(&pool, late);
	help(&pool, 1);
	start(&pool, urgent);
	help(&pool, 5);
	none_ended(&pool);
	help(&pool, 1);
	ended(&pool, urgent);
	help(&pool, 7);
	ended(&pool, late);
	pool_close(&pool);
}

UNIT_TEST(last_share_of_a_round_is_the_first_jobs)
{
	struct work *late = work_of(0, 2, 5);
	struct work *urgent = work_of(1, 16, -1);
	struct pool pool;

	assert_int_equal(pool_open_by(&pool, 0, 2, "memcpy"), 0);
	start(&pool, late);
	start(&pool, urgent);
	help(&pool, 2 * KVPULL_TURNS_A_ROUND - 1);
	none_ended(&pool);
	help(&pool, 1);
	ended(&pool, late);
	help(&pool, 2);
	ended(&pool, urgent);
	pool_close(&pool);
}

UNIT_TEST(jobs_that_are_alike_go_as_they_came)
{
	struct work *works[2] = { work_of(1, 3, 7), work_of(0, 3, 7) };
	struct pool pool;

	assert_int_equal(pool_open_by(&pool, 0, 2, "memcpy"), 0);
	start(&pool, works[0]);
	start(&pool, works[1]);
	help(&pool, 3);
	ended(&pool, works[0]);
	help(&pool, 3);
	ended(&pool, works[1]);
	pool_close(&pool);
}

/* More of them than workers are told at once: others follow as those end. */
UNIT_TEST(many_jobs_go_by_priority)
{
	static const uint32_t order[JOBS] = { 11, 10, 9, 8, 7, 6,
					      5,  0,  4, 3, 2, 1 };
	struct work *works[JOBS];
	struct pool pool;
	uint32_t at;

	assert_int_equal(pool_open_by(&pool, 0, JOBS, "memcpy"), 0);
	for (at = 0; at < JOBS; at++) {
		works[at] = work_of(at, 1, 100 - (int32_t)at);
		start(&pool, works[at]);
	}
	for (at = 0; at < JOBS; at++) {
		help(&pool, 1);
		ended(&pool, works[order[at]]);
	}
	pool_close(&pool);
}

/* Another job has its place, and is in no hurry. */
UNIT_TEST(job_that_ended_leaves_no_urgency_behind)
{
	struct work *works[2] = { work_of(1, 1, -1), work_of(0, 2, 5) };
	struct pool pool;

	assert_int_equal(pool_open_by(&pool, 0, 2, "memcpy"), 0);
	start(&pool, works[1]);
	start(&pool, works[0]);
	help(&pool, 1);
	ended(&pool, works[0]);
	works[0] = work_of(1, 2, 5);
	start(&pool, works[0]);
	help(&pool, 2);
	ended(&pool, works[1]);
	help(&pool, 2);
	ended(&pool, works[0]);
	pool_close(&pool);
}

/* The engine's thread copies so many shares. */
static void guest_help(struct pool *pool, uint32_t count)
{
	while (count--)
		assert_int_equal(kvpull_copy_guest_help(pool->copy),
				 KVPULL_COPY_SHARE_BYTES_MIN);
}

/* Shares of the urgent job are too long for a poll of the engine's. */
UNIT_TEST(guest_leaves_long_shares_of_urgent_jobs_to_others)
{
	struct work *urgent = work_simple(0, 16, 1048576);
	struct work *late = work_of(1, 4, 1);
	struct pool pool;

	assert_int_equal(pool_open_by(&pool, 0, 2, "memcpy"), 0);
	start(&pool, urgent);
	start(&pool, late);
	guest_help(&pool, 4);
	assert_int_equal(kvpull_copy_guest_help(pool.copy), 0);
	ended(&pool, late);
	while (kvpull_copy_help(pool.copy))
		;
	ended(&pool, urgent);
	pool_close(&pool);
}

UNIT_TEST(guest_takes_short_shares_of_urgent_jobs_first)
{
	struct work *late = work_of(0, 4, 1);
	struct work *urgent = work_of(1, 4, 0);
	struct pool pool;

	assert_int_equal(pool_open_by(&pool, 0, 2, "memcpy"), 0);
	start(&pool, late);
	start(&pool, urgent);
	guest_help(&pool, 4);
	ended(&pool, urgent);
	help(&pool, 4);
	ended(&pool, late);
	pool_close(&pool);
}

/* Workers read which jobs are urgent while the owner says so. */
UNIT_TEST(jobs_of_drawn_priorities_are_byte_exact)
{
	struct work *works[4];
	struct kvpull_copy_job *job;
	struct pool pool;
	uint64_t random = 11;
	uint32_t running = 0;
	uint32_t round;
	uint32_t at;

	assert_int_equal(pool_open_by(&pool, 2, 4, "memcpy"), 0);
	for (at = 0; at < 4; at++)
		works[at] = work_of(at, 1 + at, 0);
	for (round = 0; round < 400; round++) {
		at = round % 4;
		while (works[at]->job.code == 2) {
			if (!kvpull_copy_poll(pool.copy, &job, 1)) {
				(void)kvpull_copy_help(pool.copy);
				continue;
			}
			running--;
			work_check(works[job->read->index]);
		}
		memset(works[at]->to, GUARD, works[at]->side_bytes);
		works[at]->read.priority = (int32_t)(random_next(&random) % 3);
		works[at]->job.code = 2;
		assert_int_equal(kvpull_copy_start(pool.copy, &works[at]->job),
				 0);
		running++;
	}
	for (; running; running--)
		work_check(works[pool_wait(&pool)->read->index]);
	pool_close(&pool);
	for (at = 0; at < 4; at++)
		work_free(works[at]);
}
