/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Consumer's side: what a producer's welcome hands over, from the first check to
 * the last unmapping.
 */
#ifndef KVPULL_SHM_ATTACH_H
#define KVPULL_SHM_ATTACH_H

#include "base/ring.h"
#include "base/transport.h"
#include "shm/device.h"
#include "shm/file.h"
#include "shm/foreign.h"
#include "shm/parts.h"
#include "shm/unmap.h"

/*
 * Tables of a peer, in the arena for good; only what its regions fill of them
 * takes memory. What is behind region_count is zero.
 */
struct kvpull_shm_tables {
	struct kvpull_shm_mapping *mappings;  /* by fd_index */
	const uint8_t **regions;              /* NULL: foreign, file */
	uint64_t *remote_address;             /* foreign reads */
	struct kvpull_file *files;            /* zeroed: none */
	struct kvpull_device_region *devices; /* of a peer with such memory */
};

/* Mappings and open files of a peer. */
struct kvpull_shm_memory {
	struct kvpull_shm_tables tables;
	uint32_t region_count;
	uint32_t foreign_count;
	uint32_t file_count;
	uint32_t slot_count;
	uint32_t must_live; /* what some region has is its own only while it lives */
	uint32_t device_first;   /* the device's thread's mappings */
	uint32_t device_count;   /* of them, imported or ordered */
	uint32_t device_leaving; /* whose unmap has been ordered */
	int doorbell;            /* -1: none */
	uint8_t *entries_memory;
	uint64_t entries_remote; /* address in the peer; foreign reads only */
	uint8_t *ring_memory;
	size_t ring_bytes;
	struct kvpull_ring_writer writer;
};

/* The peer and its descriptors; descriptors that were taken become -1. */
struct kvpull_shm_handed {
	struct kvpull_shm_device *device;
	const struct kvpull_serve *own; /* what reads land in */
	uint32_t device_first; /* mappings that are this peer's alone */
	const struct kvpull_log *log;
	const struct kvpull_identity *identity;
	struct kvpull_parts *welcome;
	enum kvpull_file_direct file_direct;
};

/*
 * Check it, and map it lazily. 0; KVPULL_EPROTO, KVPULL_EROUTE;
 * KVPULL_EUNSUPPORTED: a kind of later versions, or more than this node or this
 * process can map (logged); KVPULL_ENOMEM: errno, a shortage. After an error
 * detach it.
 */
int KVPULL_MUST_CHECK kvpull_shm_attach(struct kvpull_shm_memory *memory,
					const struct kvpull_shm_handed *handed,
					const struct kvpull_serve *remote);
/*
 * No copy of it runs any more. A thread gives much memory back; the device's
 * thread does, and memory->device_leaving counts what it still has.
 */
void kvpull_shm_detach(struct kvpull_shm_memory *memory,
		       struct kvpull_unmaps *unmaps,
		       struct kvpull_shm_device *device);

#endif /* KVPULL_SHM_ATTACH_H */
