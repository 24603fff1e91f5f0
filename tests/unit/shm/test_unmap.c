/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a peer that is gone is given back: at once, or by a thread. */
#include "shm/unmap.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/unit.h"

#define PARTS 4u
#define WAITS 20000u

#define NAME "kvpull-unmap-test"

static struct kvpull_unmaps unmaps;

/* Parts of so many bytes together, none of which is touched; one is a file's. */
static void make(struct kvpull_shm_mapping mappings[PARTS + 1], uint64_t bytes)
{
	const int fd = memfd_create(NAME, MFD_CLOEXEC);
	uint32_t at;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	mappings[PARTS] = (struct kvpull_shm_mapping){ 0 };
	for (at = 0; at < PARTS; at++) {
		mappings[at].bytes = bytes / PARTS;
		mappings[at].base =
			mmap(NULL, bytes / PARTS, PROT_READ, MAP_SHARED, fd,
			     (off_t)(at * (bytes / PARTS)));
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
	const struct timespec step = { .tv_nsec = 1000000 };
	uint32_t left = WAITS;

	while (mapped() && left--)
		(void)nanosleep(&step, NULL);
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

	make(mappings, KVPULL_UNMAP_BYTES);
	kvpull_unmap(&unmaps, mappings, PARTS + 1);
	assert_int_equal(unmaps.count, 1);
	/* The table is its owner's again. */
	memset(mappings, 0, sizeof(mappings));
	await_unmapped();
	kvpull_unmaps_close(&unmaps);
	assert_int_equal(unmaps.count, 0);
}

/* However many peers end at once: beyond the bound it is done at once. */
UNIT_TEST(more_than_there_are_threads_are_unmapped_too)
{
	struct kvpull_shm_mapping mappings[3 * KVPULL_UNMAPS_MAX][PARTS + 1];
	uint32_t at;

	for (at = 0; at < 3 * KVPULL_UNMAPS_MAX; at++) {
		make(mappings[at], KVPULL_UNMAP_BYTES);
		kvpull_unmap(&unmaps, mappings[at], PARTS + 1);
		assert_in_range(unmaps.count, 0, KVPULL_UNMAPS_MAX);
	}
	await_unmapped();
	kvpull_unmaps_close(&unmaps);
	assert_int_equal(unmaps.count, 0);
}

/* A host that closes has its memory back, as far as that takes no second. */
UNIT_TEST(close_waits_for_threads_that_unmap)
{
	struct kvpull_shm_mapping mappings[PARTS + 1];
	uint32_t round;

	for (round = 0; round < 100; round++) {
		make(mappings, KVPULL_UNMAP_BYTES);
		kvpull_unmap(&unmaps, mappings, PARTS + 1);
		kvpull_unmaps_close(&unmaps);
		assert_int_equal(mapped(), 0);
	}
}
