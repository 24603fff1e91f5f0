/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a worker's process, and what it tells of its caches. */
#include <stdlib.h>

#include "tests/sim/device.h"

/*
 * A rank has all heads, an equal share, or a share that neighbours have too, in the
 * layers of its stage.
 */
static void part_take(struct sim_proc *proc)
{
	const struct sim_shape *shape = &proc->world->shape;
	const struct sim_stages *stages = &proc->instance->stages;
	const uint32_t tp = proc->instance->ranks / stages->count;
	const uint32_t stage = proc->rank / tp;

	proc->heads = shape->replicated ? shape->heads :
		      tp > shape->heads ? 1 :
					  shape->heads / tp;
	proc->head_first =
		shape->replicated ? 0 : proc->rank % tp * shape->heads / tp;
	proc->layer_first = stage ? stages->ends[stage - 1] : 0;
	proc->layer_end = stages->ends[stage];
}

/* There is a cache for all layers, or one a group: layer 0, and those behind it. */
static uint32_t caches_fill(struct sim_proc *proc, struct kvpull_cache *caches)
{
	const uint32_t groups = proc->world->shape.window ? 2 : 1;
	const uint32_t blocks = proc->instance->block_count;
	/* The same bytes, in rows as no producer has them. */
	const uint32_t rows = proc->misfit ? 2 : 1;
	uint32_t count = 0;
	uint32_t group;

	part_take(proc);
	proc->block_bytes = proc->heads * SIM_HEAD_BYTES;
	for (group = 0; group < groups; group++) {
		const uint32_t first =
			group > proc->layer_first ? group : proc->layer_first;
		const uint32_t end =
			group + 1 < groups ? group + 1 : proc->layer_end;

		if (first >= end)
			continue;
		caches[count++] = (struct kvpull_cache){
			.struct_size = sizeof(*caches),
			.group_index = group,
			.layer_first = first,
			.layer_count = end - first,
			.offset = (first - proc->layer_first) * blocks *
				  proc->block_bytes,
			.layer_stride = blocks * proc->block_bytes,
			.block_stride = proc->block_bytes,
			.block_count = blocks,
			.row_count = rows,
			.row_stride = SIM_HEAD_BYTES / rows,
			.head_stride = SIM_HEAD_BYTES,
			.head_first = (uint32_t)proc->head_first,
			.head_count = (uint32_t)proc->heads,
			.head_bytes = SIM_HEAD_BYTES / rows,
		};
	}
	return count;
}

void sim_regions_register(struct sim_proc *proc)
{
	struct kvpull_region region = { .struct_size = sizeof(region),
					.kind = KVPULL_REGION_FOREIGN,
					.fd = -1 };
	struct kvpull_cache caches[SIM_GROUPS];
	const struct kvpull_regions regions = {
		.struct_size = sizeof(regions),
		.regions = &region,
		.caches = caches,
		.region_count = 1,
		.cache_count = caches_fill(proc, caches),
	};
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	region.bytes = (uint64_t)(proc->layer_end - proc->layer_first) *
		       proc->instance->block_count * proc->block_bytes;
	if (proc->device)
		region.kind = KVPULL_REGION_DEVICE;
	proc->memory = proc->device ? sim_device_memory(proc, region.bytes) :
				      calloc(1, region.bytes);
	region.base = proc->memory;
	if (!proc->memory ||
	    kvpull_worker_regions_register(proc->worker, &regions, &detail))
		sim_fail(proc->world, "regions are refused: %s",
			 detail.message);
}
