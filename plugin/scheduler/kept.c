/* SPDX-License-Identifier: Apache-2.0 */
/* A consumer keeps of a ticket its body, later its payload. */
#include "plugin/scheduler/kept.h"

int kvpull_kept_get(const struct kvpull_texts *texts, uint32_t index,
		    uint8_t *body, struct kvpull_ticket *ticket)
{
	return kvpull_ticket_read_blocks(kvpull_texts_view(texts, index, body),
					 kvpull_texts_size(texts, index),
					 ticket);
}

int kvpull_kept_ids(const struct kvpull_ticket *ticket, uint32_t group_index,
		    const struct kvpull_blocks *wanted, uint32_t *ids)
{
	const struct kvpull_ticket_group *group = &ticket->groups[group_index];
	const uint32_t count = wanted->block_count;
	uint32_t skip;

	if (!count)
		return 0;
	if (wanted->first_index < group->first_index ||
	    (uint64_t)wanted->first_index + count >
		    (uint64_t)group->first_index + group->block_count)
		return KVPULL_ETRUNCATED;
	skip = wanted->first_index - group->first_index;
	if (ids)
		kvpull_ids_copy(&ticket->ids, group->first_id + skip, count,
				ids);
	return 0;
}

uint32_t kvpull_kept_wanted(const struct kvpull_allocation *allocation)
{
	uint64_t blocks = 0;
	uint32_t group;

	for (group = 0; group < allocation->group_count; group++)
		blocks += allocation->groups[group].block_count;
	return blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
}

void kvpull_payload_keep(struct kvpull_payload *payload,
			 struct kvpull_texts *texts, uint32_t kept,
			 struct kvpull_ticket *ticket, uint8_t *body)
{
	if (kvpull_ticket_read(kvpull_texts_view(texts, kept, body),
			       kvpull_texts_size(texts, kept), ticket))
		return;
	payload->text =
		kvpull_texts_put(texts, ticket->payload, ticket->payload_bytes);
	payload->byte_count = ticket->payload_bytes;
}

int kvpull_payload_get(const struct kvpull_payload *payload,
		       const struct kvpull_texts *texts, void *bytes,
		       size_t capacity, size_t *byte_count)
{
	*byte_count = payload->byte_count;
	if (payload->byte_count > capacity)
		return KVPULL_ETOOSMALL;
	if (!payload->byte_count)
		return 0;
	if (payload->text == KVPULL_NONE)
		return KVPULL_EFULL;
	kvpull_texts_get(texts, payload->text, bytes);
	return 0;
}

void kvpull_payload_drop(struct kvpull_payload *payload,
			 struct kvpull_texts *texts)
{
	if (payload->byte_count && payload->text != KVPULL_NONE)
		kvpull_texts_release(texts, payload->text);
	payload->byte_count = 0;
}
