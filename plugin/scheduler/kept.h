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

/* 1: the body that was kept is the one that was decoded into `body`. */
int kvpull_kept_is(const struct kvpull_texts *texts, uint32_t index,
		   const struct kvpull_ticket *ticket, const uint8_t *body);

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

#endif /* KVPULL_PLUGIN_KEPT_H */
