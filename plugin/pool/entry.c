// SPDX-License-Identifier: Apache-2.0
#include "plugin/pool/entry.h"

#include <string.h>

#include <sodium.h>

#include "base/transport.h"

uint32_t kvpull_pool_window(const struct kvpull_pool_share *share,
			    const struct kvpull_pool_key *key)
{
	const uint64_t starts = share->entry_count - KVPULL_POOL_WINDOW + 1;

	return (uint32_t)(((key->words[0] >> 32) * starts) >> 32);
}

uint64_t kvpull_pool_seal(const uint64_t words[KVPULL_POOL_WORDS],
			  const uint8_t secret[KVPULL_POOL_SECRET_BYTES])
{
	uint64_t seal;

	_Static_assert(crypto_shorthash_BYTES == sizeof(seal) &&
			       crypto_shorthash_KEYBYTES ==
				       KVPULL_POOL_SECRET_BYTES,
		       "SipHash takes the whole secret and fills a word");
	(void)crypto_shorthash(
		(unsigned char *)&seal, (const unsigned char *)words,
		(KVPULL_POOL_WORDS - 1) * sizeof(words[0]), secret);
	return seal;
}

static uint64_t word_of(const struct kvpull_pool_entry *entry, uint32_t at)
{
	return atomic_load_explicit(&entry->words[at], memory_order_relaxed);
}

uint32_t
kvpull_pool_judge(const struct kvpull_pool_share *share,
		  const struct kvpull_pool_key *key,
		  const struct kvpull_pool_entry window[KVPULL_POOL_WINDOW],
		  struct kvpull_pool_found *found)
{
	const uint64_t places =
		(uint64_t)share->chunk_count + share->slot_count;
	const struct kvpull_pool_place none = { .index = KVPULL_NONE };
	uint32_t count = 0;
	uint32_t at, word;

	found->memory = none;
	found->file = none;
	for (at = 0; at < KVPULL_POOL_WINDOW; at++) {
		uint64_t words[KVPULL_POOL_WORDS];
		struct kvpull_pool_place *place;

		/* Most entries of a window are others': one word tells. */
		if (word_of(&window[at], 0) != key->words[0])
			continue;
		/*
		 * Copy the words first: the owner may write them meanwhile, and
		 * only these are judged and believed.
		 */
		for (word = 0; word < KVPULL_POOL_WORDS; word++)
			words[word] = word_of(&window[at], word);
		if (memcmp(words, key->words, sizeof(key->words)) != 0 ||
		    words[7] != kvpull_pool_seal(words, share->secret) ||
		    words[4] >= places || words[5] != share->incarnation)
			continue;
		place = words[4] < share->chunk_count ? &found->memory :
							&found->file;
		if (place->index != KVPULL_NONE)
			continue;
		place->index = (uint32_t)words[4];
		place->generation = words[6];
		count++;
	}
	return count;
}
