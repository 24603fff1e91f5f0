/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A consumer's prefix cache, as an engine has one: blocks of chunks that were
 * pulled stay in the pool until their room is needed, and a request whose
 * prompt begins with them pulls only what follows. A chunk is a number of whole
 * blocks in each group, named by a hash that stands for all tokens before it,
 * too, as a trace's hash_ids do.
 */
#ifndef KVPULL_TOOLS_IB_PULL_PREFIX_H
#define KVPULL_TOOLS_IB_PULL_PREFIX_H

#include "base/index.h"
#include "base/map.h"
#include "tools/ib_pull_engine.h"

struct ib_chunk {
	uint64_t hash;
	uint32_t pin_count; /* requests that use it; 0: it may be evicted */
};

struct ib_prefix {
	struct engine *engine;
	uint32_t chunk_blocks;   /* a group */
	uint32_t chunk_ids;      /* of all groups */
	struct ib_chunk *chunks; /* one more than the pool can hold */
	uint32_t *ids; /* [chunks][chunk_ids], one group after another */
	struct kvpull_index_pool free; /* of chunks */
	struct kvpull_index_list idle; /* not pinned, unused for longest first */
	struct kvpull_map chunk_of;    /* hash + 1: its place in chunks */
	struct kvpull_arena arena;     /* of these five */
};

/* 0, or KVPULL_ENOMEM. Closed either way. */
int ib_prefix_open(struct ib_prefix *prefix, struct engine *engine,
		   uint32_t chunk_blocks);
/* Gives every block back to the engine. */
void ib_prefix_close(struct ib_prefix *prefix);
/*
 * The first chunks of a prompt that are here, pinned until ib_prefix_unpin()
 * of as many. Return: how many of count.
 */
uint32_t ib_prefix_pin(struct ib_prefix *prefix, const uint64_t *hashes,
		       uint32_t count);
void ib_prefix_unpin(struct ib_prefix *prefix, const uint64_t *hashes,
		     uint32_t count);
/* Blocks of the pool; chunks that nobody uses make room. 0, or KVPULL_EFULL. */
int ib_prefix_take(struct ib_prefix *prefix, uint32_t *ids, uint32_t count);
/*
 * Blocks that were pulled and are free to go: those of whole chunks stay, the
 * rest is the engine's again. ids: [group_count][blocks], the first ones are
 * those of hashes[0].
 */
void ib_prefix_give(struct ib_prefix *prefix, const uint32_t *ids,
		    uint32_t blocks, const uint64_t *hashes, uint32_t count);

#endif /* KVPULL_TOOLS_IB_PULL_PREFIX_H */
