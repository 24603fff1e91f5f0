/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/fill.h"

#include "base/least.h"
#include "verbs/spread.h"

/*
 * Local key of the MR that the part lands in: a served region, or added memory.
 */
static uint32_t local_key(const struct kvpull_verbs_shared *shared,
			  uint32_t device, const struct kvpull_slice_part *part)
{
	const struct kvpull_verbs_regions *regions = &shared->regions[device];
	uint32_t region =
		kvpull_verbs_regions_find(regions, part->local, part->bytes);

	if (region == KVPULL_NONE) {
		regions = &shared->locals[device];
		region = kvpull_verbs_regions_find(regions, part->local,
						   part->bytes);
	}
	/* The plan checked both ends against the regions. */
	kvpull_check(shared->log, region != KVPULL_NONE);
	return regions
		->memory[kvpull_keys_mr(&regions->keys, region,
					(uintptr_t)part->local)]
		->lkey;
}

static void request_fill(struct kvpull_verbs_reads *reads,
			 const struct kvpull_verbs_end *end, uint32_t at,
			 const struct kvpull_slice *slice)
{
	const uint64_t remote = end->keys.regions[slice->region_index].address +
				slice->remote_offset;
	uint32_t i;

	for (i = 0; i < slice->part_count; i++) {
		const struct kvpull_slice_part *part = &slice->parts[i];

		reads->parts[at][i] = (struct ibv_sge){
			.addr = (uintptr_t)part->local,
			.length = (uint32_t)part->bytes,
			.lkey = local_key(reads->shared, end->device, part),
		};
	}
	reads->requests[at] = (struct ibv_send_wr){
		.sg_list = reads->parts[at],
		.num_sge = (int)slice->part_count,
		.opcode = IBV_WR_RDMA_READ,
		.wr.rdma = { .remote_addr = remote,
			     .rkey = end->keys.mr_keys[kvpull_keys_mr(
				     &end->keys, slice->region_index, remote)] },
	};
}

struct kvpull_slice_limits
kvpull_verbs_fill_limits(const struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_params *params = &end->shared->params;

	return (struct kvpull_slice_limits){
		.bytes_max = params->slice_bytes,
		.parts_max = params->parts_max,
		.mr_shift = params->mr_shift,
		.keys = &end->keys,
	};
}

uint32_t kvpull_verbs_fill(struct kvpull_verbs_reads *reads,
			   const struct kvpull_verbs_end *end,
			   const struct kvpull_verbs_read *own,
			   struct kvpull_cursor *cursor, uint32_t count_max)
{
	const struct kvpull_verbs_params *params = &reads->shared->params;
	const struct kvpull_slice_limits limits = kvpull_verbs_fill_limits(end);
	const uint64_t bytes_max = kvpull_verbs_spread_share(
		end->bundle, end, own->read->byte_count);
	struct kvpull_slice slice;
	uint64_t bytes = 0;
	uint32_t count = 0;

	count_max =
		kvpull_least_u32(count_max, params->depth - end->requests_open);
	count_max = kvpull_least_u32(count_max, params->batch);
	while (count < count_max && bytes < bytes_max &&
	       !kvpull_cursor_is_done(cursor, own->read)) {
		kvpull_cursor_next(cursor, own->read, &limits, &slice);
		request_fill(reads, end, count++, &slice);
		bytes += slice.bytes;
	}
	return count;
}
