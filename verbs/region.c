/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: memory[i] is registered for i < keys.mr_count and for no other, and
 * entries, where there are any, only after all of them.
 */
#include "verbs/region.h"

#include <errno.h>
#include <string.h>

#include "base/cause.h"
#include "base/least.h"

static int memory_register(const struct kvpull_verbs_device *device, void *base,
			   uint64_t bytes, int access, struct ibv_mr **memory)
{
	*memory = kvpull_verbs_device_register(device, base, bytes, access);
	return *memory ? 0 : KVPULL_ENOMEM;
}

/* Peers and we name its bytes by the device's own addresses, as the caches do. */
static int dmabuf_register(const struct kvpull_verbs_device *device,
			   const struct kvpull_region_view *view,
			   uint32_t region, uint64_t at, uint64_t bytes,
			   int access, struct ibv_mr **memory)
{
	const struct kvpull_fabric *fabric = device->fabric;
	int why;

	errno = EOPNOTSUPP;
	*memory = NULL;
	if (fabric->ibv.reg_dmabuf_mr)
		*memory = fabric->ibv.reg_dmabuf_mr(
			device->pd, view->fd_offset + at, bytes,
			(uint64_t)(uintptr_t)view->base + at, view->fd, access);
	if (*memory)
		return 0;
	why = errno;
	kvpull_error(
		device->log,
		"verbs: %s cannot register region %u, memory of a GPU (dmabuf of %llu bytes): %s: peers on this node alone are reached; use an RDMA device and drivers with dmabuf (kvpull_doctor)",
		fabric->ibv.get_device_name(device->context->device), region,
		(unsigned long long)bytes, kvpull_why(LOCK, why));
	return why == ENOMEM ? KVPULL_ENOMEM : KVPULL_EUNSUPPORTED;
}

static int region_check(const struct kvpull_verbs_device *device,
			const struct kvpull_region_view *view, uint32_t index)
{
	if (view->kind != KVPULL_REGION_PROVIDED &&
	    view->kind != KVPULL_REGION_FOREIGN &&
	    view->kind != KVPULL_REGION_DEVICE &&
	    view->kind != KVPULL_REGION_UNSEALED) {
		kvpull_error(device->log,
			     "verbs: region %u of kind %u: not on this route",
			     index, view->kind);
		return KVPULL_EUNSUPPORTED;
	}
	if (view->kind == KVPULL_REGION_UNSEALED && !view->base) {
		kvpull_error(
			device->log,
			"verbs: a shared file is registered where it is mapped: base says where, or route is shm");
		return KVPULL_EUNSUPPORTED;
	}
	if (!view->base || !view->bytes ||
	    (view->kind == KVPULL_REGION_DEVICE && view->fd < 0))
		return KVPULL_EINVAL;
	return 0;
}

/* How many of the first `end` in order begin at this address or before. */
static uint32_t order_until(const struct kvpull_verbs_regions *regions,
			    uint32_t end, uint64_t address)
{
	uint32_t first = 0;

	while (first < end) {
		const uint32_t middle = first + (end - first) / 2;

		if (regions->keys.regions[regions->order[middle]].address <=
		    address)
			first = middle + 1;
		else
			end = middle;
	}
	return first;
}

static void region_add(struct kvpull_verbs_regions *regions,
		       const struct kvpull_region_view *view, uint32_t at)
{
	const uint64_t address = (uintptr_t)view->base;
	const uint32_t place = order_until(regions, at, address);

	regions->keys.regions[at] =
		(struct kvpull_range){ address, view->bytes };
	memmove(&regions->order[place + 1], &regions->order[place],
		(at - place) * sizeof(*regions->order));
	regions->order[place] = at;
}

void kvpull_verbs_regions_begin(struct kvpull_verbs_regions *regions,
				const struct kvpull_verbs_device *device,
				const struct kvpull_serve *serve,
				uint32_t mr_shift)
{
	regions->device = device;
	regions->keys = (struct kvpull_keys){
		.slot_count = serve->slot_count,
		.mr_shift = mr_shift,
		.entries = { (uintptr_t)serve->entries,
			     serve->slot_count * sizeof(*serve->entries) },
	};
}

int kvpull_verbs_regions_grow(struct kvpull_verbs_regions *regions,
			      const struct kvpull_serve *serve)
{
	const struct kvpull_verbs_device *device = regions->device;
	struct kvpull_keys *keys = &regions->keys;
	const uint32_t before = keys->region_count;
	uint32_t i;
	int code = 0;

	if (serve->region_count > KVPULL_REGIONS_MAX)
		return KVPULL_EINVAL;
	if (serve->region_count == before)
		return 0;
	for (i = before; !code && i < serve->region_count; i++)
		code = region_check(device, &serve->regions[i], i);
	if (code)
		return code;
	for (i = before; i < serve->region_count; i++)
		region_add(regions, &serve->regions[i], i);
	keys->region_count = serve->region_count;
	if (kvpull_keys_layout(keys) <= KVPULL_MRS_MAX &&
	    UINT64_C(1) << keys->mr_shift <= device->limits.max_mr_size)
		return 0;
	kvpull_error(
		device->log,
		"verbs: the regions are larger than %u MRs of %llu bytes, or the device takes less at once",
		KVPULL_MRS_MAX, (unsigned long long)1 << keys->mr_shift);
	kvpull_verbs_regions_shrink(regions, before);
	return KVPULL_EUNSUPPORTED;
}

void kvpull_verbs_regions_shrink(struct kvpull_verbs_regions *regions,
				 uint32_t region_count)
{
	struct kvpull_keys *keys = &regions->keys;
	uint32_t kept = 0;
	uint32_t i;

	while (region_count < keys->region_count &&
	       keys->mr_count > keys->mr_first[region_count])
		(void)kvpull_verbs_regions_deregister(regions);
	for (i = 0; i < keys->region_count; i++)
		if (regions->order[i] < region_count)
			regions->order[kept++] = regions->order[i];
	keys->region_count = kept;
}

/* Registers the next MR of this region. */
static int mr_register(struct kvpull_verbs_regions *regions,
		       const struct kvpull_region_view *view, uint32_t region)
{
	/*
	 * Bytes of a read may arrive in any order: nobody looks before its
	 * completion, which the bus keeps behind them. Entries never may.
	 */
	struct kvpull_keys *keys = &regions->keys;
	const int access =
		regions->is_for_loop ?
			(int)IBV_ACCESS_REMOTE_READ :
			IBV_ACCESS_LOCAL_WRITE |
				(keys->slot_count ?
					 (int)IBV_ACCESS_REMOTE_READ :
					 0);
	const uint32_t index = keys->mr_count - keys->mr_first[region];
	const uint64_t first =
		kvpull_mr_left((uintptr_t)view->base, keys->mr_shift);
	const uint64_t at =
		index ? first + ((index - 1ull) << keys->mr_shift) : 0;
	const uint64_t bytes =
		kvpull_least(index ? UINT64_C(1) << keys->mr_shift : first,
			     view->bytes - at);
	struct ibv_mr **memory = &regions->memory[keys->mr_count];
	int code;

	if (view->kind == KVPULL_REGION_DEVICE)
		code = dmabuf_register(regions->device, view, region, at, bytes,
				       access, memory);
	else
		code = memory_register(regions->device, view->base + at, bytes,
				       access | IBV_ACCESS_RELAXED_ORDERING,
				       memory);
	if (!code)
		keys->mr_keys[keys->mr_count++] = (*memory)->rkey;
	return code;
}

int kvpull_verbs_regions_register(struct kvpull_verbs_regions *regions,
				  const struct kvpull_serve *serve)
{
	struct kvpull_keys *keys = &regions->keys;
	uint32_t region = keys->region_count - 1;
	uint64_t end;
	int code;

	if (!keys->region_count || regions->entries)
		return 0;
	end = keys->regions[region].address + keys->regions[region].bytes - 1;
	if (keys->mr_count > kvpull_keys_mr(keys, region, end)) {
		if (!serve->entries || regions->is_for_loop)
			return 0;
		code = memory_register(
			regions->device, serve->entries, keys->entries.bytes,
			IBV_ACCESS_REMOTE_READ, &regions->entries);
		if (!code)
			keys->entries_key = regions->entries->rkey;
		return code;
	}
	while (keys->mr_first[region] > keys->mr_count)
		region--;
	code = mr_register(regions, &serve->regions[region], region);
	return code ? code : 1;
}

int kvpull_verbs_regions_deregister(struct kvpull_verbs_regions *regions)
{
	struct ibv_mr *memory = regions->entries;

	regions->entries = NULL;
	if (!memory && regions->keys.mr_count)
		memory = regions->memory[--regions->keys.mr_count];
	kvpull_verbs_device_deregister(regions->device, memory);
	return regions->keys.mr_count != 0;
}

uint32_t kvpull_verbs_regions_find(const struct kvpull_verbs_regions *regions,
				   const uint8_t *local, uint64_t bytes)
{
	uint32_t place = order_until(regions, regions->keys.region_count,
				     (uintptr_t)local);

	/* The one before it, but where an engine's regions overlap. */
	while (place) {
		const uint32_t i = regions->order[--place];
		const struct kvpull_range *range = &regions->keys.regions[i];
		const uint64_t at = (uintptr_t)local - range->address;

		if (at < range->bytes && bytes <= range->bytes - at)
			return i;
	}
	return KVPULL_NONE;
}
