/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered memory. KV regions are registered once, for both roles: peers may
 * read them (REMOTE_READ), this process's own reads land in them
 * (LOCAL_WRITE, which gives nothing to peers). The revocation table may be read.
 * Nothing is ever registered for remote writing.
 */
#ifndef KVPULL_VERBS_REGION_H
#define KVPULL_VERBS_REGION_H

#include "verbs/device.h"
#include "verbs/frame.h"

struct kvpull_verbs_regions {
	const struct kvpull_verbs_device *device;
	uint32_t count;
	uint32_t slot_count;
	uint8_t *base[KVPULL_REGIONS_MAX];
	uint64_t bytes[KVPULL_REGIONS_MAX];
	struct ibv_mr *memory[KVPULL_REGIONS_MAX];
	uint32_t order[KVPULL_REGIONS_MAX]; /* indices, by rising base */
	struct ibv_mr *entries;
};

/*
 * 0, KVPULL_EINVAL, KVPULL_EUNSUPPORTED (a kind, or the device takes no dmabuf),
 * KVPULL_ENOMEM (memlock).
 */
int KVPULL_MUST_CHECK
kvpull_verbs_regions_register(struct kvpull_verbs_regions *regions,
			      const struct kvpull_verbs_device *device,
			      const struct kvpull_serve *serve);
void kvpull_verbs_regions_deregister(struct kvpull_verbs_regions *regions);
void kvpull_verbs_regions_keys(const struct kvpull_verbs_regions *regions,
			       struct kvpull_keys *keys);
/* The region that [local, local + bytes) lies in; KVPULL_NONE: none. */
uint32_t kvpull_verbs_regions_find(const struct kvpull_verbs_regions *regions,
				   const uint8_t *local, uint64_t bytes);

#endif /* KVPULL_VERBS_REGION_H */
