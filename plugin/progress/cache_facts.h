/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine's words about its own caches, held against its words about its
 * model and against one another. Two ends that describe themselves wrongly
 * alike would believe each other, so this is judged at registration. Pure.
 */
#ifndef KVPULL_PLUGIN_CACHE_FACTS_H
#define KVPULL_PLUGIN_CACHE_FACTS_H

#include "plugin/bytes/handshake.h"
#include "plugin/progress/plan.h"

/* Pairs of caches take a handful of steps each; all together at most these. */
#define KVPULL_OVERLAP_STEPS_MAX (UINT64_C(1) << 26)

/* Where a region begins in its address space: memory's, or that of a file. */
struct kvpull_place {
	uint64_t device; /* 0: memory */
	uint64_t inode;
	uint64_t begin;
};

/*
 * Caches that kvpull_plan_check() has passed.
 * - Every layer of the model, or of the side's pp_rank, is in one of its groups, in
 *   one cache or (planes) in several, and there is nothing else. Those of a pp_rank
 *   are a range; the first one's begins with the model, the last one's ends with it.
 * - row_count x head_bytes of a layer's caches are the bytes that a head has in a
 *   block: block_tokens x the model's head_bytes, or each cache's token_bytes.
 * - No two caches of a group share a byte. Caches of different groups may: an
 *   engine gives a block to one group at a time.
 * places: [side->region_count].
 * Return: 0, or KVPULL_EINVAL; detail names the cache or the layer, and both
 * numbers. KVPULL_EUNSUPPORTED: KVPULL_OVERLAP_STEPS_MAX.
 */
int KVPULL_MUST_CHECK kvpull_cache_facts_check(
	const struct kvpull_plan_side *side, const struct kvpull_place *places,
	const struct kvpull_compat *compat, struct kvpull_error_detail *detail);

#endif /* KVPULL_PLUGIN_CACHE_FACTS_H */
