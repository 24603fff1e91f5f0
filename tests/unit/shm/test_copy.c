// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shm/copy.h"
#include "shm/copy_plan.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"

#define GUARD 0xa5
#define ARENA_BYTES ((size_t)4 << 20)
#define IDS_MAX 1024u
#define STRIPS_MAX 16u

static uint64_t random_state = UINT64_C(0x2545f4914f6cdd1d);

static uint32_t random_u32(void)
{
	return (uint32_t)(random_next(&random_state) >> 32);
}

/* A read with everything that belongs to it. */
struct work {
	struct kvpull_copy_job job;
	struct kvpull_read read;
	struct kvpull_strip strips[STRIPS_MAX];
	const uint8_t *regions[KVPULL_REGIONS_MAX];
	uint32_t group_first[KVPULL_GROUPS_MAX + 1];
	uint32_t remote_ids[IDS_MAX];
	uint32_t local_ids[IDS_MAX];
	uint8_t *from;
	uint8_t *to;
	uint8_t *expected;
	size_t side_bytes;
};

static struct work *work_make(uint32_t index, size_t side_bytes)
{
	struct work *work = calloc(1, sizeof(*work));

	assert_non_null(work);
	work->side_bytes = side_bytes;
	work->from = malloc(side_bytes);
	work->to = malloc(side_bytes);
	work->expected = malloc(side_bytes);
	assert_true(work->from && work->to && work->expected);
	memset(work->to, GUARD, side_bytes);
	memset(work->expected, GUARD, side_bytes);
	random_fill(&random_state, work->from,
		    side_bytes > 65536 ? 65536 : side_bytes);
	/* The rest by doubling, each time a little different. */
	for (size_t at = 65536; at < side_bytes; at++)
		work->from[at] = (uint8_t)(work->from[at - 65536] + 17);
	work->read.index = index;
	work->read.strips = work->strips;
	work->read.remote_ids = work->remote_ids;
	work->read.local_ids = work->local_ids;
	work->read.group_first = work->group_first;
	work->job.read = &work->read;
	work->job.regions = work->regions;
	work->job.code = 1;
	return work;
}

static void work_free(struct work *work)
{
	free(work->from);
	free(work->to);
	free(work->expected);
	free(work);
}

static void ids_shuffled(uint32_t *ids, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		ids[i] = i;
	for (i = count; i > 1; i--) {
		const uint32_t other = random_u32() % i;
		const uint32_t kept = ids[i - 1];

		ids[i - 1] = ids[other];
		ids[other] = kept;
	}
}

/* What the definition in base/transport.h says, word for word. */
static void work_expect(struct work *work)
{
	uint32_t s, i, row;

	work->read.byte_count = 0;
	for (s = 0; s < work->read.strip_count; s++) {
		const struct kvpull_strip *strip = &work->strips[s];

		for (i = work->group_first[strip->group_index];
		     i < work->group_first[strip->group_index + 1]; i++)
			for (row = 0; row < strip->row_count; row++) {
				const uint8_t *from =
					work->regions[strip->region_index] +
					strip->remote_offset +
					work->remote_ids[i] *
						strip->remote_block_stride +
					row * strip->remote_row_stride;
				const size_t to =
					(size_t)(strip->local - work->to) +
					work->local_ids[i] *
						strip->local_block_stride +
					row * strip->local_row_stride;

				memcpy(work->expected + to, from,
				       strip->row_bytes);
				work->read.byte_count += strip->row_bytes;
			}
	}
}

static void work_check(const struct work *work)
{
	assert_int_equal(work->job.code, 0);
	assert_memory_equal(work->to, work->expected, work->side_bytes);
}

/* One strip of whole blocks in one group. */
static struct work *work_simple(uint32_t index, uint32_t block_count,
				uint32_t block_bytes)
{
	struct work *work =
		work_make(index, (size_t)block_count * block_bytes + 4096);

	assert_true(block_count <= IDS_MAX);
	work->regions[0] = work->from;
	for (uint32_t g = 1; g <= KVPULL_GROUPS_MAX; g++)
		work->group_first[g] = block_count;
	ids_shuffled(work->remote_ids, block_count);
	ids_shuffled(work->local_ids, block_count);
	work->strips[0] =
		(struct kvpull_strip){ .remote_block_stride = block_bytes,
				       .remote_row_stride = block_bytes,
				       .local = work->to,
				       .local_block_stride = block_bytes,
				       .local_row_stride = block_bytes,
				       .row_bytes = block_bytes,
				       .row_count = 1 };
	work->read.strip_count = 1;
	work_expect(work);
	return work;
}

/*
 * Strips of different groups, rows and sizes, each in its own part of memory;
 * one of them in another region, some without blocks or rows.
 */
static struct work *work_mixed(uint32_t index)
{
	static const struct {
		uint32_t group, rows, row_bytes, remote_pad, local_pad;
	} parts[] = {
		{ 0, 1, 4096, 0, 0 },        { 0, 1, 4096, 0, 0 },
		{ 1, 2, 2048, 64, 0 },       { 1, 4, 1000, 24, 8 },
		{ 2, 1, 70000, 0, 0 },       { 3, 1, 4096, 0, 0 },
		{ 0, 0, 512, 0, 0 },         { 4, 2, 200000, 64, 128 },
		{ 1, 3, 4096, 0, 0 },        { 5, 1, 786432, 0, 0 },
		{ 0, 16, 64, 64, 192 },      { 2, 2, 4096, 0, 64 },
		{ 4, 1, 131072 + 64, 0, 0 },
	};
	/* Group 3 has no blocks. */
	static const uint32_t counts[KVPULL_GROUPS_MAX] = { 70, 33, 5, 0,
							    3,  2,  0, 0 };
	struct work *work = work_make(index, (size_t)6 << 20);
	size_t at = 3;
	uint32_t g, s;

	for (g = 0; g < KVPULL_GROUPS_MAX; g++) {
		const uint32_t first = work->group_first[g];

		work->group_first[g + 1] = first + counts[g];
		ids_shuffled(work->remote_ids + first, counts[g]);
		ids_shuffled(work->local_ids + first, counts[g]);
	}
	work->regions[0] = work->from;
	work->regions[5] = work->from + 1;
	work->read.strip_count = sizeof(parts) / sizeof(parts[0]);
	for (s = 0; s < work->read.strip_count; s++) {
		struct kvpull_strip *strip = &work->strips[s];
		const uint32_t widest =
			parts[s].remote_pad > parts[s].local_pad ?
				parts[s].remote_pad :
				parts[s].local_pad;

		strip->region_index = s % 2 ? 5 : 0;
		strip->group_index = parts[s].group;
		strip->remote_offset = at;
		strip->local = work->to + at;
		strip->row_bytes = parts[s].row_bytes;
		strip->row_count = parts[s].rows;
		strip->remote_row_stride =
			parts[s].row_bytes + parts[s].remote_pad;
		strip->local_row_stride =
			parts[s].row_bytes + parts[s].local_pad;
		strip->remote_block_stride =
			parts[s].rows * strip->remote_row_stride;
		strip->local_block_stride =
			parts[s].rows * strip->local_row_stride;
		at += (size_t)counts[parts[s].group] * parts[s].rows *
			      (parts[s].row_bytes + widest) +
		      5;
	}
	assert_true(at < work->side_bytes);
	work_expect(work);
	return work;
}

struct pool {
	struct kvpull_arena arena;
	struct kvpull_copy *copy;
	int wake_fd;
};

static void pool_open(struct pool *pool, uint32_t thread_count,
		      uint32_t job_max)
{
	struct kvpull_copy_params params = { .thread_count = thread_count,
					     .job_max = job_max };

	pool->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_true(pool->wake_fd >= 0);
	kvpull_arena_init(&pool->arena, NULL);
	params.wake_fd = pool->wake_fd;
	assert_int_equal(
		kvpull_copy_open(&pool->copy, &params, &pool->arena, NULL), 0);
	kvpull_arena_seal(&pool->arena);
	assert_true(kvpull_arena_ok(&pool->arena));
}

static void pool_close(struct pool *pool)
{
	kvpull_copy_close(pool->copy);
	kvpull_arena_fini(&pool->arena);
	(void)close(pool->wake_fd);
}

/* As an owner does it: arm, look, sleep on the eventfd. */
static struct kvpull_copy_job *pool_wait(struct pool *pool)
{
	struct kvpull_copy_job *job;
	struct pollfd waited = { .fd = pool->wake_fd, .events = POLLIN };
	uint64_t count;

	while (!kvpull_copy_poll(pool->copy, &job, 1)) {
		if (!kvpull_copy_arm(pool->copy)) {
			assert_int_equal(poll(&waited, 1, 20000), 1);
			assert_int_equal(
				read(pool->wake_fd, &count, sizeof(count)),
				sizeof(count));
		}
		kvpull_copy_disarm(pool->copy);
	}
	return job;
}

UNIT_TEST(jobs_are_byte_exact_with_every_routine)
{
	uint32_t routine_count;
	const struct kvpull_copy_routine *routines =
		kvpull_copy_routines(&routine_count);
	struct work *work = work_mixed(0);
	struct pool pool;
	uint32_t r;

	pool_open(&pool, 0, 1);
	for (r = 0; r < routine_count; r++) {
		if (!kvpull_copy_usable(&routines[r]))
			continue;
		memset(work->to, GUARD, work->side_bytes);
		work->job.code = 1;
		assert_int_equal(kvpull_copy_force(routines[r].name), 0);
		kvpull_copy_inline(pool.copy, &work->job);
		work_check(work);
	}
	assert_int_equal(kvpull_copy_force(NULL), 0);
	pool_close(&pool);
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

		/* One of each number of lanes is enough for the plan. */
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
	memset(work->to, GUARD, work->side_bytes);
	assert_int_equal(kvpull_copy_start(pool.copy, &work->job), 0);
	while (kvpull_copy_has_share(pool.copy)) {
		assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 0);
		assert_true(kvpull_copy_help(pool.copy) > 0);
		shares++;
	}
	assert_true(shares >= 8);
	assert_int_equal(kvpull_copy_help(pool.copy), 0);
	assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 1);
	work_check(work);
	/* What is left of a cancelled one is nobody's. */
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
	memset(first->to, GUARD, first->side_bytes);
	assert_int_equal(kvpull_copy_start(pool.copy, &first->job), 0);
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
	while (kvpull_copy_help(pool.copy))
		;
	assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 1);
	assert_ptr_equal(job, &first->job);
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

		for (i = 0; i < 2; i++) {
			memset(works[i]->to, GUARD, works[i]->side_bytes);
			assert_int_equal(
				kvpull_copy_start(pool.copy, &works[i]->job),
				0);
		}
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

	pool_open(&pool, 0, 2);
	assert_int_equal(kvpull_copy_guest_help(pool.copy), 0);
	assert_int_equal(kvpull_copy_force("memcpy"), 0);
	for (i = 0; i < 2; i++) {
		memset(works[i]->to, GUARD, works[i]->side_bytes);
		assert_int_equal(kvpull_copy_start(pool.copy, &works[i]->job),
				 0);
	}
	assert_int_equal(kvpull_copy_force(NULL), 0);
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
	while (kvpull_copy_help(pool.copy))
		;
	assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 1);
	work_check(works[0]);
	pool_close(&pool);
	work_free(works[0]);
	work_free(works[1]);
}

/* What begins in a share of these ends after it: too much for a poll. */
UNIT_TEST(guest_leaves_uneven_shares_to_others)
{
	struct work *work = work_simple(0, 64, 18432);
	struct kvpull_copy_job *job;
	struct pool pool;

	pool_open(&pool, 0, 1);
	memset(work->to, GUARD, work->side_bytes);
	assert_int_equal(kvpull_copy_force("memcpy"), 0);
	assert_int_equal(kvpull_copy_start(pool.copy, &work->job), 0);
	assert_int_equal(kvpull_copy_force(NULL), 0);
	assert_int_equal(kvpull_copy_guest_help(pool.copy), 0);
	while (kvpull_copy_help(pool.copy))
		;
	assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 1);
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
	pool_open(&pool, 0, 1);
	assert_int_equal(kvpull_copy_force("memcpy"), 0);
	assert_int_equal(kvpull_copy_start(pool.copy, &work->job), 0);
	assert_int_equal(kvpull_copy_force(NULL), 0);
	assert_int_equal(kvpull_copy_guest_help(pool.copy),
			 KVPULL_COPY_SHARE_BYTES_MIN);
	pool_close(&pool);
	work_free(work);
}

/* It was away for longer than the pool remembers, and finds what is there. */
UNIT_TEST(guest_that_was_away_finds_the_newest_job)
{
	struct work *work = work_simple(0, 16, 32768);
	struct kvpull_copy_job *job;
	struct pool pool;
	uint32_t round;

	pool_open(&pool, 0, 1);
	for (round = 0; round < 1000; round++) {
		assert_int_equal(kvpull_copy_start(pool.copy, &work->job), 0);
		while (kvpull_copy_help(pool.copy))
			;
		assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 1);
	}
	memset(work->to, GUARD, work->side_bytes);
	assert_int_equal(kvpull_copy_start(pool.copy, &work->job), 0);
	assert_true(kvpull_copy_guest_help(pool.copy) > 0);
	while (kvpull_copy_help(pool.copy))
		;
	assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 1);
	work_check(work);
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

		memset(work->to, GUARD, work->side_bytes);
		assert_int_equal(kvpull_copy_start(pool.copy, &work->job), 0);
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
		for (i = 0; i < MANY; i++) {
			memset(works[i]->to, GUARD, works[i]->side_bytes);
			assert_int_equal(
				kvpull_copy_start(pool.copy, &works[i]->job),
				0);
		}
		/* One worker: exactly in order, whatever poll's capacity. */
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
	struct pool pool;
	uint32_t started = 0, ended = 0, i;

	for (i = 0; i < 3; i++)
		works[i] = work_simple(i, 40 + i, 16384);
	pool_open(&pool, 4, 3);
	for (i = 0; i < 3; i++, started++)
		assert_int_equal(kvpull_copy_start(pool.copy, &works[i]->job),
				 0);
	while (ended < 150) {
		struct kvpull_copy_job *job = pool_wait(&pool);
		struct work *work = works[job->read->index];

		ended++;
		assert_ptr_equal(job, &work->job);
		work_check(work);
		if (started == 150)
			continue;
		memset(work->to, GUARD, work->side_bytes);
		assert_int_equal(kvpull_copy_start(pool.copy, job), 0);
		started++;
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
	while (kvpull_copy_help(pool.copy))
		;
	assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 1);
	assert_ptr_equal(job, &last->job);
	work_check(last);
	pool_close(&pool);
	work_free(first);
	work_free(last);
}

UNIT_TEST(cancelled_job_is_aborted_and_then_quiet)
{
	struct work *first = work_simple(0, 64, 131072);
	struct work *second = work_simple(1, 64, 131072);
	struct pool pool;
	uint32_t round, aborted = 0;

	pool_open(&pool, 2, 2);
	/* A busy machine may be done before each cancel. */
	for (round = 0; round < 20 || (!aborted && round < 500); round++) {
		const uint32_t before = aborted;
		uint32_t i;

		memset(second->to, GUARD, second->side_bytes);
		assert_int_equal(kvpull_copy_start(pool.copy, &first->job), 0);
		assert_int_equal(kvpull_copy_start(pool.copy, &second->job), 0);
		kvpull_copy_cancel(pool.copy, &second->job);
		kvpull_copy_cancel(pool.copy, &second->job);
		for (i = 0; i < 2; i++) {
			struct kvpull_copy_job *job = pool_wait(&pool);

			if (job == &first->job) {
				work_check(first);
				continue;
			}
			assert_ptr_equal(job, &second->job);
			if (job->code == KVPULL_EABORTED) {
				aborted++;
				/* Quiet: nobody writes any more. */
				memset(second->to, GUARD, second->side_bytes);
				continue;
			}
			work_check(second);
		}
		for (size_t at = 0; aborted > before && at < 4096; at++)
			assert_int_equal(
				second->to[second->side_bytes - 1 - at], GUARD);
	}
	assert_true(aborted > 0);
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
