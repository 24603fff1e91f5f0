/* SPDX-License-Identifier: Apache-2.0 */
/* A process with as many mappings as vm.max_map_count allows. */
#ifndef KVPULL_TESTS_LIB_MAPS_H
#define KVPULL_TESTS_LIB_MAPS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MAPS_PAGE ((size_t)4096)
#define MAPS_LIMIT_MAX 1100000u /* of a machine that this is worth trying on */

#define MAPS_MORE 4u

struct maps {
	uint8_t *base;
	size_t bytes;
	void *more[MAPS_MORE];
};

/*
 * Uses up the mappings of this process, all but `left`. Return 0: the machine
 * allows so many that it would take too long, or something else in this process
 * ends it when no mapping is left for its own tables: the thread sanitizer, or
 * an emulator (TEST_EMULATED, from the Makefile).
 */
static inline int maps_exhaust(struct maps *maps, uint32_t left)
{
	unsigned int limit = 0;
	FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
	size_t at;
	uint32_t i;

	if (!file || fscanf(file, "%u", &limit) != 1)
		limit = UINT32_MAX;
	if (file)
		(void)fclose(file);
	maps->bytes = 0;
#ifdef __SANITIZE_THREAD__
	limit = UINT32_MAX;
#endif
	if (limit > MAPS_LIMIT_MAX || getenv("TEST_EMULATED"))
		return 0;
	maps->bytes = (limit + 2) * MAPS_PAGE;
	maps->base = mmap(NULL, maps->bytes, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (maps->base == MAP_FAILED)
		return 0;
	/* Every second page is another mapping, and so is what is between. */
	for (at = MAPS_PAGE; at < maps->bytes - MAPS_PAGE; at += 2 * MAPS_PAGE)
		if (mprotect(maps->base + at, MAPS_PAGE, PROT_READ))
			break;
	/* mmap() takes one more than what splits a mapping may leave. */
	for (i = 0; i < MAPS_MORE; i++)
		maps->more[i] = mmap(NULL, MAPS_PAGE, PROT_NONE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	/* Joined again with both neighbours: two mappings less. */
	for (; left > 1 && at > 2 * MAPS_PAGE; left -= 2) {
		at -= 2 * MAPS_PAGE;
		(void)mprotect(maps->base + at, MAPS_PAGE, PROT_NONE);
	}
	return 1;
}

static inline void maps_restore(struct maps *maps)
{
	uint32_t i;

	(void)munmap(maps->base, maps->bytes);
	for (i = 0; i < MAPS_MORE; i++)
		if (maps->more[i] != MAP_FAILED)
			(void)munmap(maps->more[i], MAPS_PAGE);
}

#endif /* KVPULL_TESTS_LIB_MAPS_H */
