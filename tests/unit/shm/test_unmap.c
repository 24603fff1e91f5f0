/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a peer that is gone is given back: at once, or by a thread. */
#include "shm/unmap.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/lib/refuse.h"

#define PARTS 4u
#define WAITS 20000u
#define SLOW_MS 20u

#define NAME "kvpull-unmap-test"

static struct kvpull_unmaps unmaps;
/* How threads of the library behave at munmap(). */
static _Atomic uint32_t hangs;
static _Atomic uint32_t is_slow;

static void pause_ms(uint32_t ms)
{
	const struct timespec step = { .tv_nsec = (long)ms * 1000000 };

	(void)nanosleep(&step, NULL);
}

/* In the place of libc's, for the library that is linked to this program. */
int munmap(void *base, size_t bytes)
{
	if (gettid() != getpid()) {
		while (atomic_load_explicit(&hangs, memory_order_acquire))
			pause_ms(1);
		if (atomic_load_explicit(&is_slow, memory_order_acquire))
			pause_ms(SLOW_MS);
	}
	return (int)syscall(SYS_munmap, base, bytes);
}

#ifdef REFUSE_IS_PLAIN
/* clang-format off */
REFUSABLE(void *, mmap, MAP_FAILED,
	  (void *at, size_t bytes, int protection, int flags, int fd, off_t offset),
	  (at, bytes, protection, flags, fd, offset))
REFUSABLE(int, pthread_create, errno, (pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument), (thread, how, run, argument))
/* clang-format on */
#endif

static void hang_set(uint32_t value)
{
	atomic_store_explicit(&hangs, value, memory_order_release);
}

/*
 * Parts of so many bytes together, none of which is touched; one is a file's.
 * Between them the file has as much again: neighbours might be one mapping.
 */
static void make(struct kvpull_shm_mapping mappings[PARTS + 1], uint64_t bytes)
{
	const int fd = memfd_create(NAME, MFD_CLOEXEC);
	uint32_t at;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)(2 * bytes)), 0);
	mappings[PARTS] = (struct kvpull_shm_mapping){ 0 };
	for (at = 0; at < PARTS; at++) {
		mappings[at].bytes = bytes / PARTS;
		mappings[at].base =
			mmap(NULL, bytes / PARTS, PROT_READ, MAP_SHARED, fd,
			     (off_t)(at * (2 * bytes / PARTS)));
		assert_true(mappings[at].base != MAP_FAILED);
	}
	(void)close(fd);
}

/* By name: a new thread's stack may lie where something was unmapped. */
static uint32_t mapped(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	uint32_t count = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		count += strstr(line, NAME) != NULL;
	(void)fclose(maps);
	return count;
}

static void await_unmapped(void)
{
	uint32_t left = WAITS;

	while (mapped() && left--)
		pause_ms(1);
	assert_int_equal(mapped(), 0);
}

UNIT_TEST(little_memory_is_unmapped_at_once)
{
	struct kvpull_shm_mapping mappings[PARTS + 1];

	make(mappings, KVPULL_UNMAP_BYTES / 2);
	kvpull_unmap(&unmaps, mappings, PARTS + 1);
	assert_int_equal(mapped(), 0);
	assert_int_equal(unmaps.count, 0);
}

UNIT_TEST(much_memory_is_unmapped_by_a_thread)
{
	struct kvpull_shm_mapping mappings[PARTS + 1];

	hang_set(1);
	make(mappings, KVPULL_UNMAP_BYTES);
	kvpull_unmap(&unmaps, mappings, PARTS + 1);
	assert_int_equal(unmaps.count, 1);
	assert_int_equal(mapped(), PARTS);
	/* The table is its owner's again. */
	memset(mappings, 0, sizeof(mappings));
	hang_set(0);
	await_unmapped();
	kvpull_unmaps_close(&unmaps, kvpull_clock_close_by());
	assert_int_equal(unmaps.count, 0);
}

/* However many peers end at once: beyond the bound it is done at once. */
#ifdef REFUSE_IS_PLAIN
UNIT_TEST(memory_is_unmapped_at_once_where_no_thread_starts)
{
	static const char *const calls[] = { "mmap", "pthread_create" };
	struct kvpull_shm_mapping mappings[PARTS + 1];
	uint64_t before;
	size_t at;

	for (at = 0; at < 2; at++) {
		before = refuse_mapped();
		make(mappings, KVPULL_UNMAP_BYTES);
		refuse(calls[at], 0, EAGAIN);
		kvpull_unmap(&unmaps, mappings, PARTS + 1);
		assert_int_equal(refuse_end(), 1);
		assert_int_equal(unmaps.count, 0);
		assert_int_equal(mapped(), 0);
		assert_int_equal(refuse_mapped(), before);
	}
}
#endif

UNIT_TEST(more_than_there_are_threads_are_unmapped_too)
{
	struct kvpull_shm_mapping mappings[PARTS + 1];
	uint32_t at;
	uint32_t bound;

	hang_set(1);
	for (at = 0; at < 3 * KVPULL_UNMAPS_MAX; at++) {
		make(mappings, KVPULL_UNMAP_BYTES);
		kvpull_unmap(&unmaps, mappings, PARTS + 1);
		bound = at < KVPULL_UNMAPS_MAX ? at + 1 : KVPULL_UNMAPS_MAX;
		assert_int_equal(unmaps.count, bound);
		assert_int_equal(mapped(), bound * PARTS);
	}
	hang_set(0);
	await_unmapped();
	/* The threads' places are free again. */
	make(mappings, KVPULL_UNMAP_BYTES);
	for (at = 0; at < WAITS && unmaps.count; at++) {
		pause_ms(1);
		kvpull_unmap(&unmaps, mappings, 0);
	}
	kvpull_unmap(&unmaps, mappings, PARTS + 1);
	assert_int_equal(unmaps.count, 1);
	kvpull_unmaps_close(&unmaps, kvpull_clock_close_by());
	assert_int_equal(unmaps.count, 0);
	assert_int_equal(mapped(), 0);
}

/* A host that closes has its memory back, as far as that takes no second. */
UNIT_TEST(close_waits_for_threads_that_unmap)
{
	struct kvpull_shm_mapping mappings[PARTS + 1];
	uint32_t round;

	atomic_store_explicit(&is_slow, 1, memory_order_release);
	for (round = 0; round < 4; round++) {
		make(mappings, KVPULL_UNMAP_BYTES);
		kvpull_unmap(&unmaps, mappings, PARTS + 1);
		kvpull_unmaps_close(&unmaps, kvpull_clock_close_by());
		assert_int_equal(mapped(), 0);
	}
	atomic_store_explicit(&is_slow, 0, memory_order_release);
}

/* A thread that takes longer goes on behind close(), and ends. */
UNIT_TEST(close_leaves_a_thread_that_hangs)
{
	struct kvpull_shm_mapping mappings[PARTS + 1];
	uint64_t began_ns;

	hang_set(1);
	make(mappings, KVPULL_UNMAP_BYTES);
	kvpull_unmap(&unmaps, mappings, PARTS + 1);
	began_ns = kvpull_clock_ns();
	kvpull_unmaps_close(&unmaps, began_ns);
	assert_in_range(kvpull_clock_ns() - began_ns, 0, KVPULL_CLOSE_NS / 2);
	assert_int_equal(unmaps.count, 0);
	assert_int_equal(mapped(), PARTS);
	hang_set(0);
	await_unmapped();
}
