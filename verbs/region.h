/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered memory, in MRs: frame.h says where they end. KV regions are registered once, for both roles: peers may
 * read them (REMOTE_READ), this process's own reads land in them
 * (LOCAL_WRITE, which gives nothing to peers). The revocation table may be read.
 * The memory of a GPU is registered by its dmabuf, which stands in the view's fd.
 * Memory that reads alone land in is registered likewise, without a table and
 * for nobody else. Nothing is ever registered for remote writing.
 */
#ifndef KVPULL_VERBS_REGION_H
#define KVPULL_VERBS_REGION_H

#include "verbs/device.h"
#include "verbs/frame.h"

struct kvpull_verbs_regions {
	const struct kvpull_verbs_device *device;
	/* mr_count of the MRs are registered: those of the first regions. */
	struct kvpull_keys keys;
	uint32_t order[KVPULL_REGIONS_MAX]; /* indices, by rising base */
	struct ibv_mr *memory[KVPULL_MRS_MAX];
	struct ibv_mr *entries; /* last; NULL: not all is registered */
	uint32_t is_for_loop; /* read by loop.h's queue pair alone: no table */
};

/*
 * Begins a device's regions. serve->entries NULL: peers may read none of them.
 */
void kvpull_verbs_regions_begin(struct kvpull_verbs_regions *regions,
				const struct kvpull_verbs_device *device,
				const struct kvpull_serve *serve,
				uint32_t mr_shift);
/*
 * Adds the regions that serve has beyond the present ones. 0, or KVPULL_EINVAL,
 * KVPULL_EUNSUPPORTED (a kind, a size): none was added.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_regions_grow(struct kvpull_verbs_regions *regions,
			  const struct kvpull_serve *serve);
/* The first so many are left, and nothing of the others. */
void kvpull_verbs_regions_shrink(struct kvpull_verbs_regions *regions,
				 uint32_t region_count);
/*
 * Registers one MR, or at last the entries. Returns 1: more are left; 0: all
 * are registered; KVPULL_EUNSUPPORTED (the device takes no dmabuf),
 * KVPULL_ENOMEM (memlock).
 */
int KVPULL_MUST_CHECK
kvpull_verbs_regions_register(struct kvpull_verbs_regions *regions,
			      const struct kvpull_serve *serve);
/* Deregisters one MR. Returns 1 if more are left. */
int kvpull_verbs_regions_deregister(struct kvpull_verbs_regions *regions);
/* The region that [local, local + bytes) lies in; KVPULL_NONE: none. */
uint32_t kvpull_verbs_regions_find(const struct kvpull_verbs_regions *regions,
				   const uint8_t *local, uint64_t bytes);

#endif /* KVPULL_VERBS_REGION_H */
