/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/unmap.h"

#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/thread.h"
#include "shm/disk.h"

struct kvpull_unmap_work {
	size_t bytes; /* of this */
	uint32_t count;
	struct kvpull_shm_mapping mappings[];
};

static void mappings_end(const struct kvpull_shm_mapping *mappings,
			 uint32_t count)
{
	uint32_t at;

	for (at = 0; at < count; at++)
		if (mappings[at].base)
			(void)munmap(mappings[at].base, mappings[at].bytes);
}

static void *unmap_main(void *argument)
{
	const struct kvpull_unmap_work *work = argument;

	mappings_end(work->mappings, work->count);
	return NULL;
}

/* Joins threads that have ended. */
static void reap(struct kvpull_unmaps *unmaps)
{
	struct kvpull_unmap_work *work;
	uint32_t at = unmaps->count;

	while (at--) {
		work = unmaps->list[at].work;
		if (pthread_tryjoin_np(unmaps->list[at].thread, NULL))
			continue;
		(void)munmap(work, work->bytes);
		unmaps->list[at] = unmaps->list[--unmaps->count];
	}
}

static int start(struct kvpull_unmaps *unmaps,
		 const struct kvpull_shm_mapping *mappings, uint32_t count)
{
	const size_t bytes =
		sizeof(struct kvpull_unmap_work) + count * sizeof(*mappings);
	struct kvpull_unmap_work *work;

	if (unmaps->count == KVPULL_UNMAPS_MAX)
		return -1;
	work = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (work == MAP_FAILED)
		return -1;
	work->bytes = bytes;
	work->count = count;
	memcpy(work->mappings, mappings, count * sizeof(*mappings));
	if (kvpull_thread_start(&unmaps->list[unmaps->count].thread,
				"kvpull-unmap", unmap_main, work)) {
		(void)munmap(work, bytes);
		return -1;
	}
	unmaps->list[unmaps->count++].work = work;
	return 0;
}

void kvpull_unmap(struct kvpull_unmaps *unmaps,
		  const struct kvpull_shm_mapping *mappings, uint32_t count)
{
	uint64_t bytes = 0;
	uint32_t at;

	reap(unmaps);
	for (at = 0; at < count; at++)
		bytes += mappings[at].base ? mappings[at].bytes : 0;
	if (bytes < KVPULL_UNMAP_BYTES || start(unmaps, mappings, count))
		mappings_end(mappings, count);
}

void kvpull_unmaps_close(struct kvpull_unmaps *unmaps, uint64_t close_by_ns)
{
	/* By looks, not pthread_clockjoin_np(): TSan does not know that one. */
	for (reap(unmaps); unmaps->count && kvpull_clock_ns() < close_by_ns;
	     reap(unmaps))
		kvpull_clock_nap();
	if (!unmaps->count)
		return;
	kvpull_library_keep();
	while (unmaps->count)
		(void)pthread_detach(unmaps->list[--unmaps->count].thread);
}
