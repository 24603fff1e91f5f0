/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of peers that are gone, given back by threads of its own. Whoever lets
 * go of it last frees all its pages, which takes a second for some gigabytes:
 * neither an engine's poll nor the heartbeats of others wait for that.
 */
#ifndef KVPULL_SHM_UNMAP_H
#define KVPULL_SHM_UNMAP_H

#include <pthread.h>
#include <stdint.h>

#define KVPULL_UNMAPS_MAX 8u
/* Less than that is unmapped at once: a thread costs more. */
#define KVPULL_UNMAP_BYTES (UINT64_C(64) << 20)

/* A mapping of a descriptor. */
struct kvpull_shm_mapping {
	uint8_t *base; /* NULL: nothing, as of a file */
	uint64_t bytes;
};

struct kvpull_unmap_work;

/* State of one thread, which starts the others and looks for their end. */
struct kvpull_unmaps {
	struct {
		pthread_t thread;
		struct kvpull_unmap_work *work;
	} list[KVPULL_UNMAPS_MAX];
	uint32_t count;
};

/* Unmaps all of them, now or soon. The table is the caller's again. */
void kvpull_unmap(struct kvpull_unmaps *unmaps,
		  const struct kvpull_shm_mapping *mappings, uint32_t count);
/*
 * Waits until close_by_ns. Threads that go on are left behind, and the library
 * then stays loaded.
 */
void kvpull_unmaps_close(struct kvpull_unmaps *unmaps, uint64_t close_by_ns);

#endif /* KVPULL_SHM_UNMAP_H */
