/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: memory[i] is registered for i < count and for no other, entries
 * exactly when count is not 0.
 */
#include "verbs/region.h"

#include <errno.h>
#include <string.h>

static struct ibv_mr *memory_register(const struct kvpull_verbs_device *device,
				      void *base, uint64_t bytes, int access)
{
	struct ibv_mr *memory =
		device->fabric->ibv.reg_mr(device->pd, base, bytes, access);

	if (!memory)
		kvpull_error(
			device->log,
			"verbs: registering %llu bytes: %s; memlock (ulimit -l) must hold all KV memory",
			(unsigned long long)bytes, strerror(errno));
	return memory;
}

static int region_check(const struct kvpull_verbs_device *device,
			const struct kvpull_region_view *view, uint32_t index)
{
	if (view->kind != KVPULL_REGION_PROVIDED &&
	    view->kind != KVPULL_REGION_FOREIGN) {
		kvpull_error(device->log,
			     "verbs: region %u of kind %u: not on this route",
			     index, view->kind);
		return KVPULL_EUNSUPPORTED;
	}
	if (!view->base || !view->bytes)
		return KVPULL_EINVAL;
	if (view->bytes > device->region_bytes_max) {
		kvpull_error(device->log,
			     "verbs: region %u is larger than the device takes",
			     index);
		return KVPULL_EUNSUPPORTED;
	}
	return 0;
}

int kvpull_verbs_regions_register(struct kvpull_verbs_regions *regions,
				  const struct kvpull_verbs_device *device,
				  const struct kvpull_serve *serve)
{
	uint32_t i;
	int code;

	memset(regions, 0, sizeof(*regions));
	regions->device = device;
	if (!serve->region_count || serve->region_count > KVPULL_REGIONS_MAX ||
	    !serve->slot_count || !serve->entries)
		return KVPULL_EINVAL;
	for (i = 0; i < serve->region_count; i++) {
		code = region_check(device, &serve->regions[i], i);
		if (code)
			return code;
	}
	for (i = 0; i < serve->region_count; i++) {
		const struct kvpull_region_view *view = &serve->regions[i];

		regions->memory[i] = memory_register(
			device, view->base, view->bytes,
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE);
		if (!regions->memory[i])
			goto err_memory;
		regions->base[i] = view->base;
		regions->bytes[i] = view->bytes;
		regions->count++;
	}
	regions->entries = memory_register(device, serve->entries,
					   (uint64_t)serve->slot_count *
						   sizeof(*serve->entries),
					   IBV_ACCESS_REMOTE_READ);
	if (!regions->entries)
		goto err_memory;
	regions->slot_count = serve->slot_count;
	return 0;
err_memory:
	kvpull_verbs_regions_deregister(regions);
	return KVPULL_ENOMEM;
}

static void memory_deregister(const struct kvpull_verbs_device *device,
			      struct ibv_mr *memory)
{
	if (memory && device->fabric->ibv.dereg_mr(memory))
		kvpull_warn(device->log, "verbs: deregistering: %s",
			    strerror(errno));
}

void kvpull_verbs_regions_deregister(struct kvpull_verbs_regions *regions)
{
	while (regions->count)
		memory_deregister(regions->device,
				  regions->memory[--regions->count]);
	memory_deregister(regions->device, regions->entries);
	regions->entries = NULL;
}

void kvpull_verbs_regions_keys(const struct kvpull_verbs_regions *regions,
			       struct kvpull_keys *keys)
{
	uint32_t i;

	memset(keys, 0, sizeof(*keys));
	keys->region_count = regions->count;
	keys->slot_count = regions->slot_count;
	keys->entries.address = (uint64_t)(uintptr_t)regions->entries->addr;
	keys->entries.bytes = regions->entries->length;
	keys->entries.remote_key = regions->entries->rkey;
	for (i = 0; i < regions->count; i++) {
		keys->regions[i].address =
			(uint64_t)(uintptr_t)regions->base[i];
		keys->regions[i].bytes = regions->bytes[i];
		keys->regions[i].remote_key = regions->memory[i]->rkey;
	}
}

uint32_t kvpull_verbs_regions_find(const struct kvpull_verbs_regions *regions,
				   const uint8_t *local, uint64_t bytes)
{
	uint32_t i;

	for (i = 0; i < regions->count; i++) {
		const uint64_t at = (uint64_t)((uintptr_t)local -
					       (uintptr_t)regions->base[i]);

		if (at < regions->bytes[i] && bytes <= regions->bytes[i] - at)
			return i;
	}
	return KVPULL_NONE;
}
