/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory's owner: open addressing over the entries of entry.h.
 *
 * A key's window is looked through as a whole, so an entry that was withdrawn
 * is simply free again. Which free entry of a window a key takes decides how
 * soon a window is full: it is the one that leaves the shortest run of taken
 * entries around it.
 */
#ifndef KVPULL_PLUGIN_POOL_DIRECTORY_H
#define KVPULL_PLUGIN_POOL_DIRECTORY_H

#include "base/arena.h"
#include "plugin/pool/entry.h"

struct kvpull_pool_directory {
	struct kvpull_pool_share share;
	struct kvpull_pool_entry *entries; /* [share.entry_count], not owned */
	/*
	 * Tag of each entry, 0: free; with a window of free ones on either
	 * side.
	 */
	uint8_t *tags;
};

/* The entries are zero. -1: the arena is too small. */
int KVPULL_MUST_CHECK
kvpull_pool_directory_init(struct kvpull_pool_directory *directory,
			   const struct kvpull_pool_share *share,
			   struct kvpull_pool_entry *entries,
			   struct kvpull_arena *arena);

/* The key's entry whose place is of the kind of this one, or KVPULL_NONE. */
uint32_t
kvpull_pool_directory_find(const struct kvpull_pool_directory *directory,
			   const struct kvpull_pool_key *key, uint32_t place);

/* A free entry in the key's window, or KVPULL_NONE. */
uint32_t
kvpull_pool_directory_free(const struct kvpull_pool_directory *directory,
			   const struct kvpull_pool_key *key);

uint32_t
kvpull_pool_directory_place(const struct kvpull_pool_directory *directory,
			    uint32_t index);

/* The bytes at the place must be complete and visible. */
void kvpull_pool_directory_write(struct kvpull_pool_directory *directory,
				 uint32_t index,
				 const struct kvpull_pool_key *key,
				 const struct kvpull_pool_place *place);

void kvpull_pool_directory_clear(struct kvpull_pool_directory *directory,
				 uint32_t index);

#endif /* KVPULL_PLUGIN_POOL_DIRECTORY_H */
