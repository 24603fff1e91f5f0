// SPDX-License-Identifier: Apache-2.0
/*
 * Benchmark of the fast copy: every routine on one thread, then the pool, over
 * cold memory (two regions of 512 MiB, new scattered ids each time).
 *
 * All ways are taken in turns within a repetition, so a ratio compares what ran
 * side by side. The limit of a shape is the best routine's median; the pool has
 * to come near it.
 *
 * copy_bench [-r repetitions] [-s shapes, as ACE] [-p small] [-m: minima, on a
 * busy machine] [-R, -P: only routines, only the pool and memcpy]
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "shm/copy.h"
#include "tests/lib/random.h"

#define REGION_BYTES ((size_t)512 << 20)
#define HUGE_BYTES ((size_t)2 << 20)
#define BLOCKS_MAX (REGION_BYTES / 4096)
#define COUNT_MAX 8192u
#define REPETITIONS_MAX 64u
#define ROUTINES_MAX 24u
#define POOLS 3u
#define WAYS_MAX (ROUTINES_MAX + POOLS)
#define BATCH_SPANS 64u
#define STARTS_MAX 1024u

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

struct shape {
	char name;
	uint32_t block_count;
	uint32_t block_bytes;
};

static const struct shape shapes[] = { { 'A', 2048, 4096 },
				       { 'B', 1024, 32768 },
				       { 'C', 512, 262144 },
				       { 'D', 128, 1048576 },
				       { 'E', 8192, 16384 } };
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static const char *const pool_names[POOLS] = { "inline", "pool, 1 thread",
					       "pool, 2 threads" };

struct bench {
	uint8_t *regions[2];
	struct kvpull_copy *pools[POOLS];
	uint32_t repetitions;
	uint32_t routines_only;
	uint32_t pool_only;
	uint32_t minimum;
	int wake_fd;
	uint32_t start_count;
	double start_us[STARTS_MAX];
	double took_ms[SHAPES][WAYS_MAX][REPETITIONS_MAX];
	uint32_t all[BLOCKS_MAX];
	uint32_t ids[2][COUNT_MAX];
	struct kvpull_span spans[COUNT_MAX];
};

static struct bench bench;

static uint32_t random_u32(void)
{
	static uint64_t state = UINT64_C(88172645463325252);

	return (uint32_t)(random_next(&state) >> 32);
}

static uint8_t *region_make(uint8_t fill, const char *pages)
{
	const int fd = memfd_create("copy_bench", MFD_CLOEXEC);
	uintptr_t space;
	uint8_t *base;
	size_t at;

	if (fd < 0 || ftruncate(fd, (off_t)REGION_BYTES))
		return NULL;
	base = mmap(NULL, REGION_BYTES + HUGE_BYTES, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return NULL;
	space = ((uintptr_t)base + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
	base = mmap((void *)space, REGION_BYTES, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_FIXED, fd, 0);
	if (base == MAP_FAILED)
		return NULL;
	for (at = 0; strcmp(pages, "small") && at < REGION_BYTES;
	     at += HUGE_BYTES)
		base[at] = 1;
	if (strcmp(pages, "small") &&
	    madvise(base, REGION_BYTES, MADV_COLLAPSE))
		printf("no huge pages for a region\n");
	for (at = 0; at < REGION_BYTES; at += 4)
		*(uint32_t *)(void *)(base + at) =
			(uint32_t)at * 2654435761u + fill;
	(void)close(fd);
	return base;
}

static void scatter(uint32_t *ids, uint32_t count, uint32_t block_count)
{
	uint32_t i;

	for (i = 0; i < block_count; i++)
		bench.all[i] = i;
	for (i = 0; i < count; i++) {
		const uint32_t other = i + random_u32() % (block_count - i);

		ids[i] = bench.all[other];
		bench.all[other] = bench.all[i];
	}
}

static void prepare(const struct shape *shape)
{
	const uint32_t total = (uint32_t)(REGION_BYTES / shape->block_bytes);
	uint32_t i;

	scatter(bench.ids[0], shape->block_count, total);
	scatter(bench.ids[1], shape->block_count, total);
	for (i = 0; i < shape->block_count; i++) {
		bench.spans[i].from =
			bench.regions[0] +
			(size_t)bench.ids[0][i] * shape->block_bytes;
		bench.spans[i].to =
			bench.regions[1] +
			(size_t)bench.ids[1][i] * shape->block_bytes;
	}
}

static void verify(const struct shape *shape, const char *name)
{
	uint32_t i;

	for (i = 0; i < shape->block_count; i++)
		if (memcmp(bench.spans[i].from, bench.spans[i].to,
			   shape->block_bytes)) {
			printf("%s: shape %c: wrong bytes\n", name,
			       shape->name);
			exit(1);
		}
}

static void routine_run(const struct kvpull_copy_routine *routine,
			const struct shape *shape)
{
	uint32_t i;

	for (i = 0; i < shape->block_count; i += BATCH_SPANS)
		routine->copy(bench.spans + i, BATCH_SPANS, shape->block_bytes);
}

/* Spin where there is a core for it, else leave the cores to the workers. */
static void pool_wait(struct kvpull_copy *pool, uint32_t threads)
{
	const int spins = sysconf(_SC_NPROCESSORS_ONLN) > (long)threads;
	struct pollfd waited = { .fd = bench.wake_fd, .events = POLLIN };
	struct kvpull_copy_job *ended;
	uint64_t count;

	while (!kvpull_copy_poll(pool, &ended, 1)) {
		if (spins)
			continue;
		if (!kvpull_copy_arm(pool) && poll(&waited, 1, -1) == 1)
			(void)!read(bench.wake_fd, &count, sizeof(count));
		kvpull_copy_disarm(pool);
	}
}

static void pool_run(struct kvpull_copy *pool, uint32_t threads,
		     const struct shape *shape)
{
	const uint32_t group_first[] = { 0, shape->block_count };
	const uint8_t *region = bench.regions[0];
	const struct kvpull_strip strip = { .remote_block_stride =
						    shape->block_bytes,
					    .local = bench.regions[1],
					    .local_block_stride =
						    shape->block_bytes,
					    .row_bytes = shape->block_bytes,
					    .row_count = 1 };
	const struct kvpull_read read = { .strip_count = 1,
					  .strips = &strip,
					  .remote_ids = bench.ids[0],
					  .local_ids = bench.ids[1],
					  .group_first = group_first };
	struct kvpull_copy_job job = { .read = &read, .regions = &region };
	uint64_t start_ns = kvpull_clock_ns();

	if (!threads) {
		kvpull_copy_inline(pool, &job);
		return;
	}
	if (kvpull_copy_start(pool, &job))
		exit(1);
	start_ns = kvpull_clock_ns() - start_ns;
	bench.start_us[bench.start_count++ % STARTS_MAX] =
		(double)start_ns / 1e3;
	pool_wait(pool, threads);
}

static void repetition(uint32_t number, uint32_t shape_index)
{
	const struct shape *shape = &shapes[shape_index];
	uint32_t count;
	const struct kvpull_copy_routine *all = kvpull_copy_routines(&count);
	uint32_t i;

	for (i = 0; i < count + POOLS; i++) {
		uint64_t start_ns;

		if (i < count &&
		    (!kvpull_copy_usable(&all[i]) || (bench.pool_only && i)))
			continue;
		if (i >= count && bench.routines_only)
			continue;
		prepare(shape);
		start_ns = kvpull_clock_ns();
		if (i < count)
			routine_run(&all[i], shape);
		else
			pool_run(bench.pools[i - count], i - count, shape);
		bench.took_ms[shape_index][i][number] =
			(double)(kvpull_clock_ns() - start_ns) / 1e6;
		if (!number)
			verify(shape,
			       i < count ? all[i].name : pool_names[i - count]);
	}
}

static int double_compare(const void *a, const void *b)
{
	const double x = *(const double *)a;
	const double y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts the times. */
static double typical(double *times)
{
	qsort(times, bench.repetitions, sizeof(*times), double_compare);
	return times[bench.minimum ? 0 : bench.repetitions / 2];
}

static int was_run(uint32_t way)
{
	uint32_t k;

	for (k = 0; k < SHAPES; k++)
		if (bench.took_ms[k][way][bench.repetitions - 1] > 0)
			return 1;
	return 0;
}

static void print(const char *chosen_shapes)
{
	uint32_t count;
	const struct kvpull_copy_routine *all = kvpull_copy_routines(&count);
	double limits[SHAPES];
	uint32_t i, k;

	for (k = 0; k < SHAPES; k++) {
		limits[k] = 1e30;
		for (i = 0; i < count + POOLS; i++) {
			const double time = typical(bench.took_ms[k][i]);

			if (i < count && time > 0 && time < limits[k])
				limits[k] = time;
		}
	}
	printf("%-20s", "ms, x limit");
	for (k = 0; k < SHAPES; k++)
		if (strchr(chosen_shapes, shapes[k].name))
			printf("  %c %5u x %4u KiB", shapes[k].name,
			       shapes[k].block_count,
			       shapes[k].block_bytes / 1024);
	printf("\n");
	for (i = 0; i < count + POOLS; i++) {
		if (!was_run(i))
			continue;
		printf("%-20s",
		       i < count ? all[i].name : pool_names[i - count]);
		for (k = 0; k < SHAPES; k++) {
			const double time = typical(bench.took_ms[k][i]);

			if (strchr(chosen_shapes, shapes[k].name))
				printf("  %8.3f x %5.2f  ", time,
				       time / limits[k]);
		}
		printf("\n");
	}
	count = bench.start_count < STARTS_MAX ? bench.start_count : STARTS_MAX;
	qsort(bench.start_us, count, sizeof(bench.start_us[0]), double_compare);
	printf("start() took %.2f us at best, median %.2f\n", bench.start_us[0],
	       bench.start_us[count / 2]);
}

static int open_all(struct kvpull_arena *arena)
{
	uint32_t i;

	kvpull_arena_init(arena, NULL);
	bench.wake_fd = eventfd(0, EFD_CLOEXEC);
	if (bench.wake_fd < 0)
		return 1;
	for (i = 0; i < POOLS; i++) {
		const struct kvpull_copy_params params = {
			.thread_count = i,
			.job_max = 4,
			.wake_fd = bench.wake_fd,
		};

		if (kvpull_copy_open(&bench.pools[i], &params, arena, NULL))
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *chosen_shapes = "ABCDE";
	const char *pages = "huge";
	struct kvpull_arena arena;
	uint32_t i, k;
	int option;

	bench.repetitions = 7;
	while ((option = getopt(argc, argv, "r:s:p:RPm")) != -1) {
		if (option == 'r')
			bench.repetitions = (uint32_t)strtoul(optarg, NULL, 10);
		else if (option == 's')
			chosen_shapes = optarg;
		else if (option == 'p')
			pages = optarg;
		else if (option == 'R')
			bench.routines_only = 1;
		else if (option == 'm')
			bench.minimum = 1;
		else if (option == 'P')
			bench.pool_only = 1;
		else
			return 2;
	}
	if (!bench.repetitions || bench.repetitions > REPETITIONS_MAX)
		return 2;
	if (open_all(&arena))
		return 1;
	bench.regions[0] = region_make(1, pages);
	bench.regions[1] = region_make(2, pages);
	if (!bench.regions[0] || !bench.regions[1])
		return 1;
	for (i = 0; i < bench.repetitions; i++)
		for (k = 0; k < SHAPES; k++)
			if (strchr(chosen_shapes, shapes[k].name))
				repetition(i, k);
	print(chosen_shapes);
	for (i = 0; i < POOLS; i++)
		kvpull_copy_close(bench.pools[i]);
	kvpull_arena_fini(&arena);
	return 0;
}
