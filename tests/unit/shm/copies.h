/* SPDX-License-Identifier: Apache-2.0 */
/* Reads with all that belongs to them, and a pool that copies them. */
#ifndef KVPULL_TESTS_UNIT_SHM_COPIES
#define KVPULL_TESTS_UNIT_SHM_COPIES

#include <string.h>

#include "shm/copy.h"
#include "tests/lib/unit.h"

#define GUARD 0xa5
#define IDS_MAX 1024u
#define STRIPS_MAX 16u

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

struct pool {
	struct kvpull_arena arena;
	struct kvpull_copy *copy;
	int wake_fd;
};

void work_free(struct work *work);
void work_check(const struct work *work);
/* Work of a single strip of whole blocks in one group. */
struct work *work_simple(uint32_t index, uint32_t block_count,
			 uint32_t block_bytes);
/* Strips of different groups, rows and sizes. */
struct work *work_mixed(uint32_t index);
void pool_open(struct pool *pool, uint32_t thread_count, uint32_t job_max);
/* With that routine for every size. Return: 0, or the open's error. */
int pool_open_by(struct pool *pool, uint32_t thread_count, uint32_t job_max,
		 const char *routine);
void pool_close(struct pool *pool);
/* The job is started, with guard bytes where its bytes shall be. */
void pool_start(struct pool *pool, struct work *work);
/* The owner copies all that nobody has begun. Return: the one job that ended. */
struct kvpull_copy_job *pool_finish(struct pool *pool);
/* As an owner does it: arm, look, sleep on the eventfd. */
struct kvpull_copy_job *pool_wait(struct pool *pool);

#endif /* KVPULL_TESTS_UNIT_SHM_COPIES */
