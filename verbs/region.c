/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: memory[i] is registered for i < count and for no other, entries
 * exactly when count is not 0.
 */
#include "verbs/region.h"

#include <errno.h>
#include <string.h>

static int memory_register(const struct kvpull_verbs_device *device, void *base,
			   uint64_t bytes, int access, struct ibv_mr **memory)
{
	const struct kvpull_fabric *fabric = device->fabric;

	*memory = fabric->ibv.reg_mr(device->pd, base, bytes, access);
	/* Libraries before rdma-core 28 hand the flag on to who refuses it. */
	if (!*memory && errno == EINVAL && access & IBV_ACCESS_RELAXED_ORDERING)
		*memory = fabric->ibv.reg_mr(
			device->pd, base, bytes,
			access & ~IBV_ACCESS_RELAXED_ORDERING);
	if (*memory)
		return 0;
	kvpull_error(
		device->log,
		"verbs: registering %llu bytes: %s; memlock (ulimit -l) must hold all KV memory",
		(unsigned long long)bytes, strerror(errno));
	return KVPULL_ENOMEM;
}

/* Peers and we name its bytes by the device's own addresses, as the caches do. */
static int dmabuf_register(const struct kvpull_verbs_device *device,
			   const struct kvpull_region_view *view, int access,
			   struct ibv_mr **memory)
{
	const struct kvpull_fabric *fabric = device->fabric;
	int why;

	errno = EOPNOTSUPP;
	*memory = NULL;
	if (fabric->ibv.reg_dmabuf_mr)
		*memory = fabric->ibv.reg_dmabuf_mr(
			device->pd, view->fd_offset, view->bytes,
			(uint64_t)(uintptr_t)view->base, view->fd, access);
	if (*memory)
		return 0;
	why = errno;
	kvpull_error(
		device->log,
		"verbs: %s cannot register device memory (dmabuf of %llu bytes): %s; use host memory, or a device and drivers with dmabuf (kvpull_doctor)",
		fabric->ibv.get_device_name(device->context->device),
		(unsigned long long)view->bytes, strerror(why));
	return why == ENOMEM ? KVPULL_ENOMEM : KVPULL_EUNSUPPORTED;
}

static int region_check(const struct kvpull_verbs_device *device,
			const struct kvpull_region_view *view, uint32_t index)
{
	if (view->kind != KVPULL_REGION_PROVIDED &&
	    view->kind != KVPULL_REGION_FOREIGN &&
	    view->kind != KVPULL_REGION_DMABUF) {
		kvpull_error(device->log,
			     "verbs: region %u of kind %u: not on this route",
			     index, view->kind);
		return KVPULL_EUNSUPPORTED;
	}
	if (!view->base || !view->bytes ||
	    (view->kind == KVPULL_REGION_DMABUF && view->fd < 0))
		return KVPULL_EINVAL;
	if (view->bytes > device->region_bytes_max) {
		kvpull_error(device->log,
			     "verbs: region %u is larger than the device takes",
			     index);
		return KVPULL_EUNSUPPORTED;
	}
	return 0;
}

/* How many of those in order begin at this address or before. */
static uint32_t order_until(const struct kvpull_verbs_regions *regions,
			    const uint8_t *address)
{
	uint32_t first = 0;
	uint32_t end = regions->count;

	while (first < end) {
		const uint32_t middle = first + (end - first) / 2;

		if (regions->base[regions->order[middle]] <= address)
			first = middle + 1;
		else
			end = middle;
	}
	return first;
}

static int region_register(struct kvpull_verbs_regions *regions,
			   const struct kvpull_region_view *view)
{
	/*
	 * Bytes of a read may arrive in any order: nobody looks before its
	 * completion, which the bus keeps behind them. Entries never may.
	 */
	const int access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE;
	const uint32_t at = regions->count;
	const uint32_t place = order_until(regions, view->base);
	const int code =
		view->kind == KVPULL_REGION_DMABUF ?
			dmabuf_register(regions->device, view, access,
					&regions->memory[at]) :
			memory_register(regions->device, view->base,
					view->bytes,
					access | IBV_ACCESS_RELAXED_ORDERING,
					&regions->memory[at]);

	if (code)
		return code;
	regions->base[at] = view->base;
	regions->bytes[at] = view->bytes;
	memmove(&regions->order[place + 1], &regions->order[place],
		(at - place) * sizeof(*regions->order));
	regions->order[place] = at;
	regions->count++;
	return 0;
}

int kvpull_verbs_regions_register(struct kvpull_verbs_regions *regions,
				  const struct kvpull_verbs_device *device,
				  const struct kvpull_serve *serve)
{
	uint32_t i;
	int code = 0;

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
	for (i = 0; !code && i < serve->region_count; i++)
		code = region_register(regions, &serve->regions[i]);
	if (!code)
		code = memory_register(
			device, serve->entries,
			(uint64_t)serve->slot_count * sizeof(*serve->entries),
			IBV_ACCESS_REMOTE_READ, &regions->entries);
	if (code)
		kvpull_verbs_regions_deregister(regions);
	else
		regions->slot_count = serve->slot_count;
	return code;
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
	uint32_t place = order_until(regions, local);

	/* The one before it, but where an engine's regions overlap. */
	while (place) {
		const uint32_t i = regions->order[--place];
		const uint64_t at = (uint64_t)((uintptr_t)local -
					       (uintptr_t)regions->base[i]);

		if (at < regions->bytes[i] && bytes <= regions->bytes[i] - at)
			return i;
	}
	return KVPULL_NONE;
}
