/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/shm/copies.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/lib/random.h"

static uint64_t random_state = UINT64_C(0x2545f4914f6cdd1d);

static uint32_t random_u32(void)
{
	return (uint32_t)(random_next(&random_state) >> 32);
}

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

void work_free(struct work *work)
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

/*
 * Computes the expected bytes by the definition in base/transport.h, word for
 * word.
 */
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

void work_check(const struct work *work)
{
	assert_int_equal(work->job.code, 0);
	assert_memory_equal(work->to, work->expected, work->side_bytes);
}

/* A strip of whole blocks in one group. */
struct work *work_simple(uint32_t index, uint32_t block_count,
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
struct work *work_mixed(uint32_t index)
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

int pool_open_by(struct pool *pool, uint32_t thread_count, uint32_t job_max,
		 const char *routine)
{
	struct kvpull_copy_params params = { .thread_count = thread_count,
					     .job_max = job_max,
					     .routine = routine };
	int code;

	pool->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_true(pool->wake_fd >= 0);
	kvpull_arena_init(&pool->arena, NULL);
	params.wake_fd = pool->wake_fd;
	code = kvpull_copy_open(&pool->copy, &params, &pool->arena, NULL);
	if (code) {
		kvpull_arena_fini(&pool->arena);
		(void)close(pool->wake_fd);
		return code;
	}
	kvpull_arena_seal(&pool->arena);
	assert_true(kvpull_arena_ok(&pool->arena));
	return 0;
}

void pool_open(struct pool *pool, uint32_t thread_count, uint32_t job_max)
{
	assert_int_equal(pool_open_by(pool, thread_count, job_max, NULL), 0);
}

void pool_close(struct pool *pool)
{
	kvpull_copy_close(pool->copy);
	kvpull_arena_fini(&pool->arena);
	(void)close(pool->wake_fd);
}

void pool_start(struct pool *pool, struct work *work)
{
	memset(work->to, GUARD, work->side_bytes);
	assert_int_equal(kvpull_copy_start(pool->copy, &work->job), 0);
}

struct kvpull_copy_job *pool_finish(struct pool *pool)
{
	struct kvpull_copy_job *job;

	while (kvpull_copy_help(pool->copy))
		;
	assert_int_equal(kvpull_copy_poll(pool->copy, &job, 1), 1);
	return job;
}

/* As an owner does it: arm, look, sleep on the eventfd. */
struct kvpull_copy_job *pool_wait(struct pool *pool)
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
