/* SPDX-License-Identifier: Apache-2.0 */
/* The one thread more that helps: in short shares, between its own work. */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/lib/gate.h"
#include "tests/unit/shm/copies.h"

/* Beside the owner: in spans that are long its shares would be, too. */
UNIT_TEST(guest_copies_short_shares_alone)
{
	struct work *works[2] = { work_simple(0, 16, 1048576),
				  work_simple(1, 256, 32768) };
	struct kvpull_copy_job *job;
	struct pool pool;
	uint64_t copied = 0;
	uint32_t bytes;
	uint32_t i;

	assert_int_equal(pool_open_by(&pool, 0, 2, "memcpy"), 0);
	assert_int_equal(kvpull_copy_guest_help(pool.copy), 0);
	for (i = 0; i < 2; i++)
		pool_start(&pool, works[i]);
	do {
		bytes = kvpull_copy_guest_help(pool.copy);
		assert_true(bytes <= KVPULL_COPY_SHARE_BYTES_MIN);
		copied += bytes;
	} while (bytes);
	assert_int_equal(copied, works[1]->read.byte_count);
	assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 1);
	assert_ptr_equal(job, &works[1]->job);
	work_check(works[1]);
	/* The owner's next is the first one still. */
	(void)pool_finish(&pool);
	work_check(works[0]);
	pool_close(&pool);
	work_free(works[0]);
	work_free(works[1]);
}

/* Spans that begin in a share of these end after it: too much for a poll. */
UNIT_TEST(guest_leaves_uneven_shares_to_others)
{
	struct work *work = work_simple(0, 64, 18432);
	struct pool pool;

	assert_int_equal(pool_open_by(&pool, 0, 1, "memcpy"), 0);
	pool_start(&pool, work);
	assert_int_equal(kvpull_copy_guest_help(pool.copy), 0);
	(void)pool_finish(&pool);
	work_check(work);
	pool_close(&pool);
	work_free(work);
}

/* Nothing is copied of a group without blocks, however long its spans are. */
UNIT_TEST(empty_group_makes_no_share_long)
{
	struct work *work = work_simple(0, 256, 32768);
	struct pool pool;

	work->strips[1] = work->strips[0];
	work->strips[1].group_index = KVPULL_GROUPS_MAX - 1;
	work->strips[1].row_bytes = 1048576;
	work->read.strip_count = 2;
	assert_int_equal(pool_open_by(&pool, 0, 1, "memcpy"), 0);
	assert_int_equal(kvpull_copy_start(pool.copy, &work->job), 0);
	assert_int_equal(kvpull_copy_guest_help(pool.copy),
			 KVPULL_COPY_SHARE_BYTES_MIN);
	pool_close(&pool);
	work_free(work);
}

/*
 * The guest was away for longer than the pool remembers, and finds the present
 * jobs.
 */
UNIT_TEST(guest_that_was_away_finds_the_newest_job)
{
	struct work *work = work_simple(0, 16, 32768);
	struct pool pool;
	uint32_t round;

	pool_open(&pool, 0, 1);
	for (round = 0; round < 1000; round++) {
		assert_int_equal(kvpull_copy_start(pool.copy, &work->job), 0);
		(void)pool_finish(&pool);
	}
	pool_start(&pool, work);
	assert_true(kvpull_copy_guest_help(pool.copy) > 0);
	(void)pool_finish(&pool);
	work_check(work);
	pool_close(&pool);
	work_free(work);
}

/* However many jobs are over, a poll of the engine looks at 64 of them. */
UNIT_TEST(guest_looks_at_64_jobs_in_a_call)
{
	struct work *works[2] = { work_simple(0, 1, 32768),
				  work_simple(1, 16, 32768) };
	struct pool pool;
	uint32_t round;

	pool_open(&pool, 0, 100);
	for (round = 0; round < 64; round++) {
		assert_int_equal(kvpull_copy_start(pool.copy, &works[0]->job),
				 0);
		(void)pool_finish(&pool);
	}
	assert_int_equal(kvpull_copy_start(pool.copy, &works[1]->job), 0);
	assert_int_equal(kvpull_copy_guest_help(pool.copy), 0);
	assert_true(kvpull_copy_guest_help(pool.copy) > 0);
	(void)pool_finish(&pool);
	pool_close(&pool);
	work_free(works[0]);
	work_free(works[1]);
}

/* start() wakes two of three threads, and those wake the third. */
UNIT_TEST(guest_wakes_no_thread)
{
	struct work *work = work_simple(0, 256, 32768);
	struct pool pool;
	uint32_t bytes;
	uint32_t wakes[2];

	assert_int_equal(pool_open_by(&pool, 3, 1, "memcpy"), 0);
	gate_close(3);
	assert_int_equal(kvpull_copy_start(pool.copy, &work->job), 0);
	wakes[0] = gate_wakes;
	bytes = kvpull_copy_guest_help(pool.copy);
	wakes[1] = gate_wakes;
	gate_open();
	assert_ptr_equal(pool_wait(&pool), &work->job);
	assert_true(bytes > 0);
	assert_int_equal(wakes[0], 2);
	assert_int_equal(wakes[1], 2);
	/* A thread that slept again before the last share was woken twice. */
	assert_in_range(gate_wakes, 3, 16);
	pool_close(&pool);
	work_free(work);
}

struct guest {
	struct kvpull_copy *copy;
	_Atomic uint32_t stop;
	uint64_t copied;
};

static void *guest_main(void *argument)
{
	struct guest *guest = argument;

	while (!atomic_load_explicit(&guest->stop, memory_order_relaxed))
		guest->copied += kvpull_copy_guest_help(guest->copy);
	return NULL;
}

UNIT_TEST(owner_workers_and_a_guest_share_jobs)
{
	struct work *works[2] = { work_mixed(0), work_simple(1, 64, 32768) };
	struct guest guest = { 0 };
	struct pool pool;
	pthread_t thread;
	uint32_t round;

	pool_open(&pool, 1, 2);
	guest.copy = pool.copy;
	assert_int_equal(pthread_create(&thread, NULL, guest_main, &guest), 0);
	for (round = 0; round < 100; round++) {
		struct work *work = works[round % 2];
		struct kvpull_copy_job *job;

		pool_start(&pool, work);
		while (!kvpull_copy_poll(pool.copy, &job, 1))
			(void)kvpull_copy_help(pool.copy);
		work_check(work);
	}
	atomic_store_explicit(&guest.stop, 1, memory_order_relaxed);
	assert_int_equal(pthread_join(thread, NULL), 0);
	pool_close(&pool);
	work_free(works[0]);
	work_free(works[1]);
}
