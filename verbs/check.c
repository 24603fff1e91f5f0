/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/check.h"

#include <string.h>

/* Where the entries of this read come to. */
static struct kvpull_revocation_value *
entries_of(const struct kvpull_verbs_reads *reads, uint32_t index)
{
	return &reads->entries[(size_t)index * reads->shared->params.slots_max];
}

void kvpull_verbs_check_init(struct kvpull_verbs_reads *reads,
			     struct kvpull_arena *arena)
{
	const struct kvpull_verbs_params *params = &reads->shared->params;

	KVPULL_ARENA_TAKE(arena, reads->entries,
			  (size_t)params->reads_max * params->slots_max);
}

int kvpull_verbs_check_register(struct kvpull_verbs_reads *reads,
				uint32_t device)
{
	reads->memory[device] = kvpull_verbs_device_register(
		&reads->shared->devices[device], reads->entries,
		(size_t)reads->shared->params.reads_max *
			reads->shared->params.slots_max *
			sizeof(*reads->entries),
		IBV_ACCESS_LOCAL_WRITE);
	return reads->memory[device] ? 0 : KVPULL_ENOMEM;
}

void kvpull_verbs_check_deregister(struct kvpull_verbs_reads *reads,
				   uint32_t device)
{
	kvpull_verbs_device_deregister(&reads->shared->devices[device],
				       reads->memory[device]);
	reads->memory[device] = NULL;
}

void kvpull_verbs_check_fill(struct kvpull_verbs_reads *reads,
			     const struct kvpull_verbs_end *end,
			     const struct kvpull_read *read, uint32_t number,
			     uint32_t at)
{
	struct kvpull_revocation_value *entry =
		&entries_of(reads, read->index)[number];

	/* Again, too, if a lost lane was at it. */
	*entry = (struct kvpull_revocation_value){ .revoked = UINT64_MAX };
	reads->parts[at][0] = (struct ibv_sge){
		.addr = (uintptr_t)entry,
		.length = sizeof(*entry),
		.lkey = reads->memory[end->device]->lkey,
	};
	reads->requests[at] = (struct ibv_send_wr){
		.sg_list = reads->parts[at],
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.wr.rdma = { .remote_addr =
				     end->keys.entries.address +
				     (uint64_t)read->slots[number] *
					     sizeof(struct kvpull_revocation_entry),
			     .rkey = end->keys.entries_key },
	};
}

void kvpull_verbs_check_give(const struct kvpull_verbs_reads *reads,
			     const struct kvpull_read *read)
{
	memcpy(read->entries, entries_of(reads, read->index),
	       read->slot_count * sizeof(*reads->entries));
}
