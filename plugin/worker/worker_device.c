/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half: memory of the device, as the engine takes it. The engine's thread
 * calls the driver for it as long as nothing is registered; from then on the memory
 * is the device's thread's, which gives it back when it closes.
 */
#include "plugin/worker/worker_state.h"

#include <unistd.h>

#include "base/device_thread.h"
#include "base/params.h"

/* NULL: there is no device, and a line says why. */
static struct kvpull_device *device_of(const struct kvpull_worker *worker)
{
	const struct kvpull_device_thread *const thread =
		kvpull_progress_device(worker->progress);
	const char *why = "its driver did not open: see the line at open()";

	if (thread)
		return kvpull_device_thread_device(thread);
	if (!worker->facts.device_kind)
		why = "open() was told of none: set device_kind";
	else if (worker->facts.config.device == KVPULL_DEVICE_OFF)
		why = "the key device is off: set device=auto";
	kvpull_error(&worker->facts.log, "no memory of a device: %s", why);
	return NULL;
}

/* The device that was there when the engine took memory of it. */
static struct kvpull_device *device_known(const struct kvpull_worker *worker)
{
	return kvpull_device_thread_device(
		kvpull_progress_device(worker->progress));
}

static uint32_t
device_memory_count(const struct kvpull_worker_memories *memories)
{
	uint32_t count = 0;
	uint32_t at;

	for (at = 0; at < memories->count; at++)
		count += memories->all[at].device.address != 0;
	return count;
}

int kvpull_worker_device_alloc(struct kvpull_worker *worker, uint64_t bytes,
			       struct kvpull_worker_memory *memory)
{
	const uint64_t began_ns = kvpull_clock_ns();
	struct kvpull_device *const device = device_of(worker);
	struct kvpull_shared *const shared = &memory->shared;
	int code;

	if (!device)
		return KVPULL_EUNSUPPORTED;
	if (device_memory_count(&worker->memories) ==
	    KVPULL_DEVICE_MEMORIES_MAX)
		return KVPULL_EFULL;
	code = device->ops->alloc(device, bytes, &memory->device);
	if (code)
		return code;
	code = device->ops->export_fd(device, &memory->device, &shared->fd);
	if (code) {
		device->ops->unmap(device, &memory->device);
		return code;
	}
	shared->base = (uint8_t *)(uintptr_t)memory->device.address;
	shared->bytes = memory->device.bytes;
	shared->huge_bytes = 0;
	shared->took_ns = kvpull_clock_ns() - began_ns;
	return 0;
}

/* Are all rows of a cache made of units that can be gathered? */
static int is_of_units(const struct kvpull_worker *worker,
		       const struct kvpull_cache *cache)
{
	const struct kvpull_region_view *const region =
		&worker->facts.serve.regions[cache->region_index];
	uint64_t all = (uint64_t)(uintptr_t)region->base | cache->offset |
		       cache->block_stride | cache->head_bytes;

	if (cache->layer_count > 1)
		all |= cache->layer_stride;
	if (cache->row_count > 1)
		all |= cache->row_stride;
	if (cache->head_count > 1)
		all |= cache->head_stride;
	return !(all % KVPULL_DEVICE_UNIT);
}

int kvpull_worker_device_caches_check(const struct kvpull_worker *worker,
				      uint32_t cache_count,
				      struct kvpull_error_detail *detail)
{
	uint32_t at;

	if (worker->facts.serve.regions[0].kind != KVPULL_REGION_DEVICE ||
	    device_known(worker)->has_batch)
		return 0;
	for (at = 0; at < cache_count; at++) {
		if (is_of_units(worker, &worker->facts.caches[at]))
			continue;
		return kvpull_detail_set(
			detail, KVPULL_EUNSUPPORTED, "caches",
			"caches[%u]: rows, strides or offset are no multiples of %u bytes, and this driver copies such rows one by one: update it to CUDA 12.8 or newer, or choose another layout",
			at, KVPULL_DEVICE_UNIT);
	}
	return 0;
}

void kvpull_worker_device_look(struct kvpull_worker *worker)
{
	const struct kvpull_device_thread *thread;

	if (worker->stream.retired ||
	    !kvpull_serve_has_devices(&worker->facts.serve))
		return;
	thread = kvpull_progress_device(worker->progress);
	if (!kvpull_device_thread_is_lost(thread))
		return;
	kvpull_error(
		&worker->facts.log,
		"the device is lost: all holds and pulls end, and no ticket of this worker is live; restart the engine");
	worker->counts.devices_lost++;
	kvpull_worker_retire(worker);
}

void kvpull_worker_device_free(struct kvpull_worker *worker,
			       struct kvpull_worker_memory *memory)
{
	struct kvpull_device *device;

	(void)close(memory->shared.fd);
	/* Once it is registered the device's thread has unmapped it. */
	if (worker->memories.registered)
		return;
	device = device_known(worker);
	device->ops->unmap(device, &memory->device);
}

void kvpull_worker_devices_adopt(struct kvpull_worker *worker)
{
	struct kvpull_worker_memories *memories = &worker->memories;
	uint32_t at;

	for (at = 0; at < memories->count; at++)
		if (memories->all[at].device.address)
			kvpull_device_thread_adopt(
				kvpull_progress_device(worker->progress),
				&memories->all[at].device);
}

/* Bytes of the memory that has been given out by that descriptor. */
static uint64_t bytes_by_fd(const struct kvpull_worker_memories *memories,
			    int fd)
{
	const struct kvpull_worker_memory *memory = memories->all;

	while (memory->shared.fd != fd || !memory->device.address)
		memory++;
	return memory->device.bytes;
}

/* Regions have their numbers of descriptors, which rise. */
void kvpull_worker_devices_tell(struct kvpull_worker *worker)
{
	struct kvpull_serve *const serve = &worker->facts.serve;
	const struct kvpull_device *device;
	uint32_t at;

	serve->device_count = 0;
	if (!kvpull_serve_has_devices(serve))
		return;
	device = device_known(worker);
	for (at = 0; at < serve->region_count; at++) {
		const struct kvpull_region_view *region = &serve->regions[at];
		struct kvpull_device_view *view;

		if (region->fd_index < serve->device_count)
			continue;
		view = &serve->devices[serve->device_count++];
		*view = (struct kvpull_device_view){
			.granularity = device->granularity,
			.part_bytes =
				bytes_by_fd(&worker->memories, region->fd),
			.part_count = 1,
			.fd_index = region->fd_index,
		};
		memcpy(view->uuid, device->uuid, sizeof(view->uuid));
	}
}
