/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a consumer keeps of a ticket until it has local blocks: the ids, ready
 * to be used. Pure. A struct kvpull_kept, then u32 words: of each group its
 * runs { first id, count }, or its ids one by one where that is shorter. So a
 * ticket of scattered blocks is not decoded twice, and one of neighbours stays
 * short. Kept among the texts.
 */
#ifndef KVPULL_PLUGIN_KEPT_H
#define KVPULL_PLUGIN_KEPT_H

#include "plugin/bytes/ticket.h"
#include "plugin/scheduler/text.h"

struct kvpull_kept_group {
	uint32_t first_index; /* logical, of its first block */
	uint32_t block_count;
	uint32_t first_word;
	uint32_t run_count; /* 0: ids */
};

struct kvpull_kept {
	uint32_t group_count;
	struct kvpull_kept_group groups[KVPULL_GROUPS_MAX];
};

/* No group takes more words than it has blocks. */
#define KVPULL_KEPT_BYTES_MAX                                                  \
	(sizeof(struct kvpull_kept) +                                          \
	 KVPULL_TICKET_BLOCKS_MAX * sizeof(uint32_t))

/* Of a ticket that was decoded; bytes[KVPULL_KEPT_BYTES_MAX], as of malloc(). */
size_t kvpull_kept_make(const struct kvpull_ticket *ticket, void *bytes);

/* The head of what kvpull_texts_put() took. */
void kvpull_kept_get(const struct kvpull_texts *texts, uint32_t index,
		     struct kvpull_kept *kept);

/*
 * The ids of the blocks with the logical indices of `wanted`, into
 * ids[wanted->block_count]. 0; KVPULL_ETRUNCATED: the group lacks some.
 */
int KVPULL_MUST_CHECK kvpull_kept_ids(const struct kvpull_texts *texts,
				      uint32_t index,
				      const struct kvpull_kept_group *group,
				      const struct kvpull_blocks *wanted,
				      uint32_t *ids);

#endif /* KVPULL_PLUGIN_KEPT_H */
