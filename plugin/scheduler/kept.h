/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A consumer keeps a ticket's body as it came, among the texts, until it has
 * local blocks. So its ids are decoded once. A request that shows a ticket of
 * the same name shows the same bytes, or it is another ticket. Pure.
 */
#ifndef KVPULL_PLUGIN_KEPT_H
#define KVPULL_PLUGIN_KEPT_H

#include "plugin/bytes/ticket.h"
#include "plugin/scheduler/text.h"

/*
 * Reads the groups again; the ids stay where the body is kept, or in
 * body[KVPULL_TICKET_BYTES_MAX]. 0; any error: these are no ticket's bytes.
 */
int KVPULL_MUST_CHECK kvpull_kept_get(const struct kvpull_texts *texts,
				      uint32_t index, uint8_t *body,
				      struct kvpull_ticket *ticket);

/*
 * The ids of the blocks with the logical indices of `wanted`, into
 * ids[wanted->block_count]; NULL: they are looked at only. 0;
 * KVPULL_ETRUNCATED: the group lacks some.
 */
int KVPULL_MUST_CHECK kvpull_kept_ids(const struct kvpull_ticket *ticket,
				      uint32_t group_index,
				      const struct kvpull_blocks *wanted,
				      uint32_t *ids);

/* Blocks of all groups that an allocation wants; at most UINT32_MAX. */
uint32_t kvpull_kept_wanted(const struct kvpull_allocation *allocation);

/*
 * A payload: the producer's engine put it into a ticket for the consumer's. It is
 * kept for the request whose pull of that ticket ended well, and for no other:
 * the bytes of a ticket that was not read are those of whoever made it.
 */
struct kvpull_payload {
	uint32_t byte_count; /* 0: none */
	uint32_t text;       /* among the texts; KVPULL_NONE: no room */
};

/*
 * Keeps the payload of the ticket whose body is kept among the texts. ticket and
 * body[KVPULL_TICKET_BYTES_MAX] are scratch.
 */
void kvpull_payload_keep(struct kvpull_payload *payload,
			 struct kvpull_texts *texts, uint32_t kept,
			 struct kvpull_ticket *ticket, uint8_t *body);

/* 0; KVPULL_ETOOSMALL: *byte_count is what it takes; KVPULL_EFULL: no room. */
int KVPULL_MUST_CHECK kvpull_payload_get(const struct kvpull_payload *payload,
					 const struct kvpull_texts *texts,
					 void *bytes, size_t capacity,
					 size_t *byte_count);

void kvpull_payload_drop(struct kvpull_payload *payload,
			 struct kvpull_texts *texts);

#endif /* KVPULL_PLUGIN_KEPT_H */
