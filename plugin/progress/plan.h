/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From blocks to strips. Pure.
 *
 * Made once a peer, from the two sides' caches: for each layer of each group,
 * the heads that this rank needs and that peer has, as strips whose addresses
 * are computed from block ids while they are read. Strides are not lengths,
 * heads may be a part of a block at either side.
 *
 * Which heads a rank has follows from tp_size and head_total alone (equal
 * shares in rank order; with more ranks than heads, neighbouring ranks share
 * one) and caches that say otherwise are refused: so no peer can leave a hole.
 * A layer may be in several cache entries of a group (K and V apart): the n-th
 * entry here is read from the n-th there.
 * Ranks of different stages have different layers. Only those layers are looked
 * at that both sides have; kvpull_stages_compare() says whether all of a peer's
 * ranks together have each layer once.
 */
#ifndef KVPULL_PLUGIN_PLAN_H
#define KVPULL_PLUGIN_PLAN_H

#include "base/transport.h"
#include "plugin/bytes/stage.h"

struct kvpull_plan_side {
	const struct kvpull_cache *caches; /* [cache_count] */
	uint32_t cache_count;
	uint32_t region_count;
	/* Sizes of the regions, and for the local side their addresses. */
	const struct kvpull_region_view *regions;
	uint32_t tp_rank;
	uint32_t tp_size;
	uint32_t pp_rank;
	uint32_t pp_size;    /* 0: 1 */
	uint32_t replicated; /* 1: every rank has all heads */
	uint32_t head_total; /* KV heads of the model: compat.head_count */
	uint32_t group_count;
	const struct kvpull_group *groups; /* [group_count], of the record */
};

struct kvpull_plan {
	struct kvpull_strip *strips; /* [strip_count_max] */
	uint32_t strip_count;
	uint32_t strip_count_max;
	uint64_t digest; /* of the strips: what is alike reads the same bytes */
	uint64_t group_block_bytes
		[KVPULL_GROUPS_MAX]; /* bytes a block of the group moves */
	/* ids are below this; UINT32_MAX: that side has no layer of the group */
	uint32_t remote_block_count[KVPULL_GROUPS_MAX];
	uint32_t local_block_count[KVPULL_GROUPS_MAX];
};

/**
 * Check a side's caches against its regions: every byte that any block id
 * below block_count can name lies inside. Used on the engine's own at
 * registration and on the peer's at the handshake.
 * Return: 0, or KVPULL_EINVAL; detail names the cache and the member.
 */
int KVPULL_MUST_CHECK kvpull_plan_check(const struct kvpull_plan_side *side,
					struct kvpull_error_detail *detail);

/* KVPULL_EINVAL; the text begins with the cache's index and the member. */
int __attribute__((format(printf, 4, 5)))
kvpull_cache_refuse(struct kvpull_error_detail *detail, uint32_t cache_index,
		    const char *member, const char *format, ...);

/* Fills in the layers that the caches span; the side was checked. */
void kvpull_plan_layers(const struct kvpull_plan_side *side,
			struct kvpull_stage *stage);

/**
 * Make the strips by which this rank reads from that peer; none (strip_count
 * 0, success) when it needs nothing from it: layers of other stages, heads of
 * other ranks, or with replicated heads a peer other than remote rank (local rank
 * % remote size) of its stage. Sides were checked. All remote ranks' strips
 * together cover each local byte exactly once, if each layer is in one of their
 * stages.
 *
 * Return: 0; KVPULL_EREJECTED (layers, rows, head bytes or groups do not
 * match; detail says which); KVPULL_EFULL (strip_count_max).
 */
int KVPULL_MUST_CHECK kvpull_plan_make(struct kvpull_plan *plan,
				       const struct kvpull_plan_side *local,
				       const struct kvpull_plan_side *remote,
				       struct kvpull_error_detail *detail);

/**
 * Check a read's ids against the plan and count its bytes.
 * Return: 0 and *byte_count, or KVPULL_ETRUNCATED.
 */
int KVPULL_MUST_CHECK kvpull_plan_check_ids(const struct kvpull_plan *plan,
					    const struct kvpull_read *read,
					    uint64_t *byte_count);

#endif /* KVPULL_PLUGIN_PLAN_H */
