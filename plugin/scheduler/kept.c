/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a ticket that a consumer keeps. */
#include "plugin/scheduler/kept.h"

int kvpull_kept_is(const struct kvpull_texts *texts, uint32_t index,
		   const struct kvpull_ticket *ticket, const uint8_t *body)
{
	return kvpull_texts_are(texts, index, body, ticket->body_bytes);
}

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
