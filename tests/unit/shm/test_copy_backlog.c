/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs so short that the owner alone does them, when it has the time. */

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shm/copy.h"
#include "tests/lib/unit.h"

#define BLOCK_BYTES 65536u
#define JOBS 2u
#define WAIT_MS 20000

struct work {
	struct kvpull_copy_job job;
	struct kvpull_read read;
	struct kvpull_strip strip;
	const uint8_t *regions[KVPULL_REGIONS_MAX];
	uint32_t group_first[KVPULL_GROUPS_MAX + 1];
};

static uint8_t from[BLOCK_BYTES];
static uint8_t to[JOBS][BLOCK_BYTES];
static const uint32_t ids[1];
static struct work works[JOBS];
static struct kvpull_arena arena;
static struct kvpull_copy *copy;
static int wake_fd;

static void work_make(uint32_t index)
{
	struct work *work = &works[index];
	uint32_t at;

	memset(work, 0, sizeof(*work));
	work->regions[0] = from;
	for (at = 1; at <= KVPULL_GROUPS_MAX; at++)
		work->group_first[at] = 1;
	work->strip = (struct kvpull_strip){ .remote_block_stride = BLOCK_BYTES,
					     .remote_row_stride = BLOCK_BYTES,
					     .local = to[index],
					     .local_block_stride = BLOCK_BYTES,
					     .local_row_stride = BLOCK_BYTES,
					     .row_bytes = BLOCK_BYTES,
					     .row_count = 1 };
	work->read = (struct kvpull_read){ .index = index,
					   .strips = &work->strip,
					   .strip_count = 1,
					   .remote_ids = ids,
					   .local_ids = ids,
					   .group_first = work->group_first };
	work->job = (struct kvpull_copy_job){ .read = &work->read,
					      .regions = work->regions };
}

/* 1: a job came; 0: none, in a time that is far too long. */
static int job_comes(void)
{
	struct kvpull_copy_job *job;
	struct pollfd waited = { .fd = wake_fd, .events = POLLIN };
	eventfd_t ignored;

	while (!kvpull_copy_poll(copy, &job, 1)) {
		if (!kvpull_copy_arm(copy) && poll(&waited, 1, WAIT_MS) != 1)
			return 0;
		(void)eventfd_read(wake_fd, &ignored);
		kvpull_copy_disarm(copy);
	}
	return 1;
}

static int up(void **state)
{
	struct kvpull_copy_params params = { .thread_count = 1,
					     .job_max = JOBS,
					     .owner_helps = 1 };

	(void)state;
	wake_fd = params.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	kvpull_arena_init(&arena, NULL);
	return kvpull_copy_open(&copy, &params, &arena, NULL);
}

static int down(void **state)
{
	(void)state;
	kvpull_copy_close(copy);
	kvpull_arena_fini(&arena);
	return close(wake_fd);
}

UNIT_TEST_WITH(short_jobs_that_pile_up_wake_a_worker, up, down)
{
	uint32_t round;
	uint32_t index;

	for (round = 0; round < 50; round++) {
		for (index = 0; index < JOBS; index++) {
			work_make(index);
			assert_int_equal(
				kvpull_copy_start(copy, &works[index].job), 0);
		}
		/* The owner is busy elsewhere, and still one is done. */
		assert_true(job_comes());
		(void)kvpull_copy_help(copy);
		assert_true(job_comes());
	}
}

#define TEST(name) UNIT_TEST_WITH(name, up, down)
