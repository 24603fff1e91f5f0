/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half: memory that it provides, and where the blocks lie.
 *
 * Invariant: what is registered was held against the engine's own words first.
 */
#include "plugin/worker/worker_state.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/kept_error.h"
#include "base/params.h"
#include "shm/file.h"

void kvpull_worker_files_close(struct kvpull_worker_memories *memories)
{
	while (memories->file_count)
		(void)close(memories->file_fds[--memories->file_count]);
}

/* A place that was given back, or a new one; NULL: there is none. */
static struct kvpull_worker_memory *
memory_place(struct kvpull_worker_memories *memories)
{
	uint32_t index;

	for (index = 0; index < memories->count; index++)
		if (!memories->all[index].shared.base)
			return &memories->all[index];
	if (memories->count == KVPULL_REGIONS_MAX)
		return NULL;
	/*
	 * The entry counts even without memory: readers of the list look at its
	 * base.
	 */
	return &memories->all[memories->count++];
}

int kvpull_worker_memory_alloc(struct kvpull_worker *worker, uint64_t bytes,
			       uint32_t flags, struct kvpull_memory *memory)
{
	struct kvpull_worker_memory *place;
	struct kvpull_shared *shared;
	struct kvpull_memory own = { .struct_size = sizeof(own) };
	const uint32_t huge = flags & KVPULL_MEMORY_HUGE &&
			      worker->facts.config.huge == KVPULL_AUTO;
	int code;

	if (!bytes ||
	    (flags && flags != KVPULL_MEMORY_HUGE &&
	     flags != KVPULL_MEMORY_DEVICE) ||
	    worker->memories.registered || kvpull_params_check_output(memory))
		return KVPULL_EINVAL;
	place = memory_place(&worker->memories);
	if (!place)
		return KVPULL_EFULL;
	shared = &place->shared;
	if (flags & KVPULL_MEMORY_DEVICE)
		code = kvpull_worker_device_alloc(worker, bytes, place);
	else
		code = kvpull_segment_make(shared, "kvpull-kv", bytes,
					   KVPULL_SEGMENT_READ_ONLY,
					   huge ? 2 : 0, &worker->facts.log);
	if (code)
		return code;
	own.base = shared->base;
	own.bytes = shared->bytes;
	own.huge_bytes = shared->huge_bytes;
	own.took_ns = shared->took_ns;
	own.fd = shared->fd;
	return kvpull_params_give(memory, &own, sizeof(own));
}

static void memory_end(struct kvpull_worker *worker,
		       struct kvpull_worker_memory *memory)
{
	if (memory->device.address)
		kvpull_worker_device_free(worker, memory);
	else
		kvpull_segment_unmake(&memory->shared);
	*memory = (struct kvpull_worker_memory){ 0 };
}

void kvpull_worker_memories_free(struct kvpull_worker *worker)
{
	struct kvpull_worker_memories *memories = &worker->memories;

	while (memories->count)
		memory_end(worker, &memories->all[--memories->count]);
}

int kvpull_worker_memory_free(struct kvpull_worker *worker, void *base)
{
	struct kvpull_worker_memories *memories = &worker->memories;
	uint32_t index = 0;

	/* Mapped by consumers for as long as the worker is open. */
	if (!base || memories->registered)
		return KVPULL_EINVAL;
	while (index < memories->count &&
	       memories->all[index].shared.base != base)
		index++;
	if (index == memories->count)
		return KVPULL_EINVAL;
	memory_end(worker, &memories->all[index]);
	return 0;
}

/* The memory of that kind in which all of the region lies; NULL: none. */
static const struct kvpull_shared *
memory_of(const struct kvpull_worker_memories *memories,
	  const struct kvpull_region *region)
{
	const int is_device = region->kind == KVPULL_REGION_DEVICE;
	uint32_t index;

	for (index = 0; index < memories->count; index++) {
		const struct kvpull_worker_memory *memory =
			&memories->all[index];
		const struct kvpull_shared *shared = &memory->shared;
		const uint64_t at = (uint64_t)((uintptr_t)region->base -
					       (uintptr_t)shared->base);

		if (shared->base &&
		    (memory->device.address != 0) == is_device &&
		    at < shared->bytes && region->bytes <= shared->bytes - at)
			return shared;
	}
	return NULL;
}

/* The engine's descriptor stays its own; ours can only read. */
static int file_take(struct kvpull_worker_memories *memories,
		     const struct kvpull_region *region,
		     struct kvpull_region_view *view,
		     struct kvpull_error_detail *detail)
{
	const char *why;
	int code;

	view->base = NULL;
	view->fd_offset = region->fd_offset;
	code = kvpull_file_serve(region->fd, region->fd_offset, region->bytes,
				 &view->fd, &why);
	if (code)
		return kvpull_detail_set(detail, code, "regions",
					 "the file of a region %s", why);
	memories->file_fds[memories->file_count++] = view->fd;
	return 0;
}

static int region_take(struct kvpull_worker_memories *memories,
		       const struct kvpull_region *region,
		       struct kvpull_region_view *view,
		       struct kvpull_error_detail *detail)
{
	const int is_device = region->kind == KVPULL_REGION_DEVICE;
	const struct kvpull_shared *shared;

	*view = (struct kvpull_region_view){
		.kind = region->kind,
		.fd = -1,
		.base = region->base,
		.bytes = region->bytes,
	};
	if (region->kind == KVPULL_REGION_FILE)
		return file_take(memories, region, view, detail);
	if (!region->bytes || !region->base)
		return kvpull_detail_set(detail, KVPULL_EINVAL, "regions",
					 "a region needs base and bytes");
	if (region->kind == KVPULL_REGION_FOREIGN)
		return 0;
	if (region->kind == KVPULL_REGION_DMABUF)
		return kvpull_detail_set(
			detail, KVPULL_EUNSUPPORTED, "regions",
			"a dmabuf of the engine's is refused: nothing orders pulls into it against its device's work: take the memory by memory_alloc(DEVICE)");
	if (region->kind != KVPULL_REGION_PROVIDED && !is_device)
		return kvpull_detail_set(
			detail, KVPULL_EUNSUPPORTED, "regions",
			"region kind %u is not supported in this version: use memory_alloc(), foreign host memory or a file",
			region->kind);
	shared = memory_of(memories, region);
	if (!shared)
		return kvpull_detail_set(
			detail, KVPULL_EINVAL, "regions",
			"a %s region must lie in memory from one memory_alloc()%s",
			is_device ? "DEVICE" : "PROVIDED",
			is_device ? " of the device" : "");
	view->fd = shared->fd;
	view->fd_offset =
		(uint64_t)((uintptr_t)region->base - (uintptr_t)shared->base);
	return 0;
}

/* The caller's structs may be shorter than ours: its size is the stride. */
static const void *item(const void *items, uint32_t index)
{
	size_t stride;

	memcpy(&stride, items, sizeof(stride));
	return (const uint8_t *)items + index * stride;
}

static int items_take(struct kvpull_worker *worker,
		      const struct kvpull_regions *given,
		      struct kvpull_error_detail *detail)
{
	char name[32];
	uint32_t index;
	int code;

	for (index = 0; index < given->region_count; index++) {
		struct kvpull_region region = { 0 };

		(void)snprintf(name, sizeof(name), "regions[%u]", index);
		code = kvpull_params_take_named(&region, sizeof(region),
						item(given->regions, index),
						name, detail);
		if (!code)
			code = region_take(&worker->memories, &region,
					   &worker->facts.serve.regions[index],
					   detail);
		if (code)
			return code;
	}
	for (index = 0; index < given->cache_count; index++) {
		(void)snprintf(name, sizeof(name), "caches[%u]", index);
		code = kvpull_params_take_named(
			&worker->facts.caches[index],
			sizeof(worker->facts.caches[index]),
			item(given->caches, index), name, detail);
		if (code)
			return code;
	}
	return 0;
}

/* A pull copies by one engine: the device's, or this host's CPUs. */
static int kinds_check(const struct kvpull_serve *serve, uint32_t region_count,
		       struct kvpull_error_detail *detail)
{
	uint32_t devices = 0;
	uint32_t at;

	for (at = 0; at < region_count; at++)
		devices += serve->regions[at].kind == KVPULL_REGION_DEVICE;
	if (!devices || devices == region_count)
		return 0;
	return kvpull_detail_set(
		detail, KVPULL_EUNSUPPORTED, "regions",
		"%u of %u regions are memory of a device: not beside others in this version",
		devices, region_count);
}

/* Once served it is registered: consumers may be there before the thread. */
static int serve_start(struct kvpull_worker *worker,
		       struct kvpull_error_detail *detail)
{
	struct kvpull_kept_error kept;
	int code;

	kvpull_kept_begin(&worker->facts.log, &kept);
	code = kvpull_progress_serve(worker->progress);
	code = kvpull_kept_end(&worker->facts.log, &kept, code, detail);
	if (code)
		return code;
	worker->memories.registered = 1;
	kvpull_worker_devices_adopt(worker);
	kvpull_results_add_rank(&worker->results, &worker->handover);
	if (worker->facts.config.progress != KVPULL_PROGRESS_THREAD)
		return 0;
	code = kvpull_progress_start(worker->progress);
	if (!code)
		return 0;
	return kvpull_detail_set(
		detail, code, "progress",
		"the worker's thread cannot be started: see the log, close the worker and open another");
}

/* Device and inode tell two descriptors of one file; fstat() of ours works. */
static void place_take(const struct kvpull_region_view *view,
		       struct kvpull_place *place)
{
	struct stat status;

	*place = (struct kvpull_place){
		.begin = (uint64_t)(uintptr_t)view->base,
	};
	if (view->kind != KVPULL_REGION_FILE || fstat(view->fd, &status))
		return;
	place->device = status.st_dev;
	place->inode = status.st_ino;
	place->begin = view->fd_offset;
}

static int caches_check(struct kvpull_worker *worker,
			const struct kvpull_regions *given,
			struct kvpull_error_detail *detail)
{
	struct kvpull_stage *stage = &worker->facts.stage;
	const struct kvpull_plan_side side = {
		.caches = worker->facts.caches,
		.cache_count = given->cache_count,
		.region_count = given->region_count,
		.regions = worker->facts.serve.regions,
		.tp_rank = kvpull_stage_tp_rank(stage),
		.tp_size = kvpull_stage_tp_size(stage),
		.pp_rank = kvpull_stage_pp_rank(stage),
		.pp_size = stage->pp_size,
		.replicated = worker->facts.compat.replicated,
		.head_total = worker->facts.compat.head_count,
		.group_count = worker->facts.compat.group_count,
		.groups = worker->facts.compat.groups,
	};
	uint32_t index;
	int code;

	for (index = 0; index < given->region_count; index++)
		place_take(&side.regions[index],
			   &worker->memories.places[index]);
	code = kvpull_plan_check(&side, detail);
	if (!code)
		code = kvpull_cache_facts_check(&side, worker->memories.places,
						&worker->facts.compat, detail);
	if (!code)
		kvpull_plan_layers(&side, stage);
	return code;
}

int kvpull_worker_regions_register(struct kvpull_worker *worker,
				   const struct kvpull_regions *given,
				   struct kvpull_error_detail *detail)
{
	int code;

	if (worker->memories.registered || !given->regions || !given->caches ||
	    !given->region_count || given->region_count > KVPULL_REGIONS_MAX ||
	    !given->cache_count || given->cache_count > KVPULL_CACHES_MAX)
		return kvpull_detail_set(
			detail, KVPULL_EINVAL, "regions",
			"register once, 1 .. %u regions and 1 .. %u caches",
			KVPULL_REGIONS_MAX, KVPULL_CACHES_MAX);
	code = items_take(worker, given, detail);
	if (!code)
		code = kinds_check(&worker->facts.serve, given->region_count,
				   detail);
	if (!code)
		code = caches_check(worker, given, detail);
	if (!code)
		code = kvpull_worker_device_caches_check(
			worker, given->cache_count, detail);
	if (code)
		goto err_files;
	worker->facts.cache_count = given->cache_count;
	kvpull_small_init(worker);
	worker->facts.serve.region_count = given->region_count;
	(void)kvpull_serve_number_fds(&worker->facts.serve);
	kvpull_worker_devices_tell(worker);
	code = serve_start(worker, detail);
	if (!code || worker->memories.registered)
		return code;
err_files:
	kvpull_worker_files_close(&worker->memories);
	return code;
}
