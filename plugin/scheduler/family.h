/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Families: parent -> ticket. The first sibling that finishes is held; the
 * others are free at once and carry the same bytes, also after the hold ended,
 * until a lease has passed. Kept in the scheduler half only.
 */
#ifndef KVPULL_PLUGIN_FAMILY_H
#define KVPULL_PLUGIN_FAMILY_H

#include "base/map.h"
#include "plugin/scheduler/text.h"

struct kvpull_family {
	uint64_t parent_key; /* 0: free */
	uint64_t ended_ns;
	uint32_t text; /* referred to */
	uint32_t reserved;
	uint8_t digest[KVPULL_DIGEST_BYTES];
};

struct kvpull_families {
	struct kvpull_map by_parent;
	struct kvpull_index_pool pool;
	struct kvpull_index_list ended; /* oldest end first */
	struct kvpull_family *families;
	struct kvpull_texts *texts;
	uint64_t lease_ns;
};

void kvpull_families_init(struct kvpull_families *families, uint32_t count_max,
			  struct kvpull_arena *arena);

/* The ticket's text, or KVPULL_NONE: no family, or another prompt. */
uint32_t kvpull_families_find(const struct kvpull_families *families,
			      uint64_t parent_key, const uint8_t *digest);

/*
 * A sibling was held. When all places are taken the oldest ended family is
 * forgotten; if all live, or the parent has a family with another prompt, none
 * is made: its siblings get a hold each.
 */
void kvpull_families_add(struct kvpull_families *families, uint64_t parent_key,
			 const uint8_t *digest, uint32_t text);

/* The hold with this ticket ended: remembered for a lease from now. */
void kvpull_families_end(struct kvpull_families *families, uint64_t parent_key,
			 uint32_t text, uint64_t now_ns);

void kvpull_families_expire(struct kvpull_families *families, uint64_t now_ns);
void kvpull_families_forget(struct kvpull_families *families);

#endif /* KVPULL_PLUGIN_FAMILY_H */
