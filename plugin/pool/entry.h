/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory as both ends see it: sealed entries of 64 bytes in memory that
 * the owner writes and every reader can only read, one-sidedly.
 *
 * word  written by  order    read by                   why
 * 0-3   owner       relaxed  reader, 8 bytes at once   the key
 * 4     owner       relaxed  likewise                  the place
 * 5, 6  owner       relaxed  likewise                  its guard: incarnation, generation
 * 7     owner       release  likewise                  the seal of words 0 to 6; the place's
 *                                                      bytes are written before it
 *
 * A reader has the words in any order, of any writes: it believes seven words
 * only with their seal, so a mix of two writes is a miss. A key lies in one of
 * the KVPULL_POOL_WINDOW entries from kvpull_pool_window() on, which one read
 * of KVPULL_POOL_WINDOW_BYTES brings, and never moves.
 */
#ifndef KVPULL_PLUGIN_POOL_ENTRY_H
#define KVPULL_PLUGIN_POOL_ENTRY_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/revocation.h"
#include "plugin/pool/key.h"

#define KVPULL_POOL_WINDOW 8u /* entries that are looked at for a key */
#define KVPULL_POOL_WORDS 8u  /* of an entry */
#define KVPULL_POOL_WINDOW_BYTES 512u
#define KVPULL_POOL_SECRET_BYTES 16u

struct kvpull_pool_entry {
	_Atomic uint64_t words[KVPULL_POOL_WORDS];
};

_Static_assert(sizeof(struct kvpull_pool_entry) * KVPULL_POOL_WINDOW ==
		       KVPULL_POOL_WINDOW_BYTES,
	       "shared between processes and over the fabric");

/* Facts of a directory that its readers need. */
struct kvpull_pool_share {
	uint64_t incarnation; /* of its owner, never 0 */
	uint32_t chunk_count; /* places in memory: 0 .. chunk_count - 1 */
	uint32_t slot_count;  /* places in the file: behind those */
	uint32_t entry_count; /* KVPULL_POOL_WINDOW at least */
	uint32_t reserved;
	uint8_t secret[KVPULL_POOL_SECRET_BYTES];
};

/* A key's place, and the generation of its bytes. */
struct kvpull_pool_place {
	uint32_t index; /* KVPULL_NONE: no such place */
	uint32_t reserved;
	uint64_t generation;
};

struct kvpull_pool_found {
	struct kvpull_pool_place memory;
	struct kvpull_pool_place file;
};

/* The first entry of the key's window. */
uint32_t kvpull_pool_window(const struct kvpull_pool_share *share,
			    const struct kvpull_pool_key *key);

uint64_t kvpull_pool_seal(const uint64_t words[KVPULL_POOL_WORDS],
			  const uint8_t secret[KVPULL_POOL_SECRET_BYTES]);

/*
 * Reader: where a window says the key is, whoever wrote it and however much of
 * it is torn; a copy of it, or the owner's own, which may change meanwhile.
 * Return: the number of places, 0: a miss.
 */
uint32_t
kvpull_pool_judge(const struct kvpull_pool_share *share,
		  const struct kvpull_pool_key *key,
		  const struct kvpull_pool_entry window[KVPULL_POOL_WINDOW],
		  struct kvpull_pool_found *found);

#endif /* KVPULL_PLUGIN_POOL_ENTRY_H */
