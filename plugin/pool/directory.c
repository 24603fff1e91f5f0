// SPDX-License-Identifier: Apache-2.0
#include "plugin/pool/directory.h"

#include <string.h>

#include "base/transport.h"
#include "base/wire.h"

#define TAKEN 0x80u /* of a tag; the rest is seven bits of the key */

static uint8_t tag_of(const struct kvpull_pool_key *key)
{
	return (uint8_t)(TAKEN | (key->words[1] & 0x7f));
}

/* The tag of an entry lies a window behind the first tag. */
static uint8_t *tag_at(const struct kvpull_pool_directory *directory,
		       uint32_t index)
{
	return directory->tags + KVPULL_POOL_WINDOW + index;
}

/* Returns a bit for each of eight entries: 1: it is taken. */
static uint32_t taken_mask(const uint8_t *tags)
{
	uint64_t word;

	_Static_assert(KVPULL_POOL_WINDOW == sizeof(word), "tags of a window");
	memcpy(&word, tags, sizeof(word));
	word = (le64toh(word) & UINT64_C(0x8080808080808080)) >> 7;
	return (uint32_t)((word * UINT64_C(0x0102040810204080)) >> 56);
}

int kvpull_pool_directory_init(struct kvpull_pool_directory *directory,
			       const struct kvpull_pool_share *share,
			       struct kvpull_pool_entry *entries,
			       struct kvpull_arena *arena)
{
	directory->share = *share;
	directory->entries = entries;
	directory->tags = kvpull_arena_take(
		arena, (size_t)share->entry_count + 2 * KVPULL_POOL_WINDOW, 1);
	return directory->tags ? 0 : -1;
}

uint32_t
kvpull_pool_directory_place(const struct kvpull_pool_directory *directory,
			    uint32_t index)
{
	return (uint32_t)atomic_load_explicit(
		&directory->entries[index].words[4], memory_order_relaxed);
}

static int directory_has(const struct kvpull_pool_directory *directory,
			 uint32_t index, const struct kvpull_pool_key *key)
{
	struct kvpull_pool_entry *entry = &directory->entries[index];
	uint32_t at;

	for (at = 0; at < sizeof(key->words) / sizeof(key->words[0]); at++)
		if (atomic_load_explicit(&entry->words[at],
					 memory_order_relaxed) !=
		    key->words[at])
			return 0;
	return 1;
}

uint32_t
kvpull_pool_directory_find(const struct kvpull_pool_directory *directory,
			   const struct kvpull_pool_key *key, uint32_t place)
{
	const uint32_t chunk_count = directory->share.chunk_count;
	const uint32_t first = kvpull_pool_window(&directory->share, key);
	const uint8_t tag = tag_of(key);
	uint32_t at;

	for (at = first; at < first + KVPULL_POOL_WINDOW; at++)
		if (*tag_at(directory, at) == tag &&
		    directory_has(directory, at, key) &&
		    (kvpull_pool_directory_place(directory, at) <
		     chunk_count) == (place < chunk_count))
			return at;
	return KVPULL_NONE;
}

uint32_t
kvpull_pool_directory_free(const struct kvpull_pool_directory *directory,
			   const struct kvpull_pool_key *key)
{
	const uint32_t first = kvpull_pool_window(&directory->share, key);
	const uint8_t *tags = tag_at(directory, first);
	/* Bit 8 is the window's first; there is a window on either side. */
	const uint32_t taken = taken_mask(tags - KVPULL_POOL_WINDOW) |
			       taken_mask(tags) << 8 |
			       taken_mask(tags + KVPULL_POOL_WINDOW) << 16;
	uint32_t best = KVPULL_NONE;
	int best_run = 32;
	int at;

	for (at = 8; at < 16; at++) {
		const int below = __builtin_clz(~(taken << (32 - at)));
		const int above = __builtin_ctz(~(taken >> (at + 1)));

		if (taken >> at & 1u || below + above >= best_run)
			continue;
		best_run = below + above;
		best = first + (uint32_t)at - 8;
	}
	return best;
}

void kvpull_pool_directory_write(struct kvpull_pool_directory *directory,
				 uint32_t index,
				 const struct kvpull_pool_key *key,
				 const struct kvpull_pool_place *place)
{
	const uint64_t words[KVPULL_POOL_WORDS] = {
		key->words[0],    key->words[1], key->words[2],
		key->words[3],    place->index,  directory->share.incarnation,
		place->generation
	};
	const uint64_t seal = kvpull_pool_seal(words, directory->share.secret);
	struct kvpull_pool_entry *entry = &directory->entries[index];
	uint32_t at;

	for (at = 0; at < KVPULL_POOL_WORDS - 1; at++)
		atomic_store_explicit(&entry->words[at], words[at],
				      memory_order_relaxed);
	/* Pairs with the reader's acquire fence before it reads the place. */
	atomic_store_explicit(&entry->words[at], seal, memory_order_release);
	*tag_at(directory, index) = tag_of(key);
}

void kvpull_pool_directory_clear(struct kvpull_pool_directory *directory,
				 uint32_t index)
{
	uint32_t at;

	for (at = 0; at < KVPULL_POOL_WORDS; at++)
		atomic_store_explicit(&directory->entries[index].words[at], 0,
				      memory_order_relaxed);
	*tag_at(directory, index) = 0;
}
