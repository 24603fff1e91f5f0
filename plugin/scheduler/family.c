/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: by_parent has exactly the families in use; a family is in the
 * ended list exactly when its hold is over. A lease is the same for all, so
 * that list is in the order of expiry.
 */
#include <string.h>

#include "plugin/scheduler/family.h"

void kvpull_families_init(struct kvpull_families *families, uint32_t count_max,
			  struct kvpull_arena *arena)
{
	kvpull_map_init(&families->by_parent, count_max, arena);
	kvpull_index_pool_init(&families->pool, count_max, arena);
	kvpull_index_list_init(&families->ended, count_max, arena);
	KVPULL_ARENA_TAKE(arena, families->families, count_max);
}

static void remove_family(struct kvpull_families *families, uint32_t index)
{
	struct kvpull_family *family = &families->families[index];

	kvpull_map_remove(&families->by_parent, family->parent_key);
	kvpull_index_list_remove(&families->ended, index);
	kvpull_texts_release(families->texts, family->text);
	family->parent_key = 0;
	kvpull_index_pool_give(&families->pool, index);
}

uint32_t kvpull_families_find(const struct kvpull_families *families,
			      uint64_t parent_key, const uint8_t *digest)
{
	const uint32_t index = kvpull_map_get(&families->by_parent, parent_key);
	const struct kvpull_family *family;

	if (index == KVPULL_NONE)
		return KVPULL_NONE;
	family = &families->families[index];
	return memcmp(family->digest, digest, KVPULL_DIGEST_BYTES) == 0 ?
		       family->text :
		       KVPULL_NONE;
}

void kvpull_families_add(struct kvpull_families *families, uint64_t parent_key,
			 const uint8_t *digest, uint32_t text)
{
	struct kvpull_family *family;
	uint32_t index;

	if (kvpull_map_get(&families->by_parent, parent_key) != KVPULL_NONE)
		return;
	if (kvpull_index_pool_peek(&families->pool) == KVPULL_NONE &&
	    families->ended.count)
		remove_family(families, families->ended.first);
	index = kvpull_index_pool_peek(&families->pool);
	if (index == KVPULL_NONE ||
	    kvpull_map_set(&families->by_parent, parent_key, index) != 0)
		return;
	(void)kvpull_index_pool_take(&families->pool);
	kvpull_texts_acquire(families->texts, text);
	family = &families->families[index];
	*family = (struct kvpull_family){ .parent_key = parent_key,
					  .text = text };
	memcpy(family->digest, digest, sizeof(family->digest));
}

void kvpull_families_end(struct kvpull_families *families, uint64_t parent_key,
			 uint32_t text, uint64_t now_ns)
{
	const uint32_t index = kvpull_map_get(&families->by_parent, parent_key);

	/* Another text: this hold had no place here, or it was forgotten. */
	if (index == KVPULL_NONE || families->families[index].text != text)
		return;
	families->families[index].ended_ns = now_ns;
	kvpull_index_list_push(&families->ended, index);
}

void kvpull_families_expire(struct kvpull_families *families, uint64_t now_ns)
{
	while (families->ended.count) {
		const uint32_t index = families->ended.first;
		const uint64_t ended_ns = families->families[index].ended_ns;

		if (now_ns < ended_ns || now_ns - ended_ns < families->lease_ns)
			return;
		remove_family(families, index);
	}
}

void kvpull_families_forget(struct kvpull_families *families)
{
	uint32_t index;

	for (index = 0; index < families->pool.touched; index++)
		if (families->families[index].parent_key)
			remove_family(families, index);
}
