/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/progress/cache_facts.h"

#include "base/params.h"
#include "plugin/progress/overlap.h"

/* ---- layers ---- */

static int has_layer(const struct kvpull_cache *cache, uint32_t layer)
{
	return layer >= cache->layer_first &&
	       layer - cache->layer_first < cache->layer_count;
}

/* The first layer from this one on that no entry has; or end. */
static uint32_t layer_missing(const struct kvpull_plan_side *side,
			      uint32_t layer, uint32_t end)
{
	uint32_t before;
	uint32_t i;

	do {
		before = layer;
		for (i = 0; i < side->cache_count; i++) {
			const struct kvpull_cache *cache = &side->caches[i];

			if (has_layer(cache, layer))
				layer = cache->layer_first + cache->layer_count;
		}
	} while (layer != before && layer < end);
	return layer;
}

/* An entry before this one that has one of its layers in another group. */
static int is_in_two_groups(const struct kvpull_plan_side *side, uint32_t index)
{
	const struct kvpull_cache *cache = &side->caches[index];
	uint32_t i;

	for (i = 0; i < index; i++) {
		const struct kvpull_cache *other = &side->caches[i];

		if (other->group_index != cache->group_index &&
		    other->layer_first <
			    cache->layer_first + cache->layer_count &&
		    cache->layer_first <
			    other->layer_first + other->layer_count)
			return 1;
	}
	return 0;
}

/* The layers of a stage are a range: from the first one to the last in a cache. */
static int range_check(const struct kvpull_plan_side *side,
		       const struct kvpull_compat *compat,
		       struct kvpull_error_detail *detail)
{
	const int is_last = side->pp_rank + 1 >= side->pp_size;
	struct kvpull_stage stage;
	uint32_t layer;
	uint32_t end;

	kvpull_plan_layers(side, &stage);
	end = is_last ? compat->layer_count : stage.layer_end;
	layer = layer_missing(side, side->pp_rank ? stage.layer_first : 0, end);
	if (layer == end)
		return 0;
	return kvpull_detail_set(
		detail, KVPULL_EINVAL, "caches",
		"layer %u is in no cache: the model has %u layers, register all of %s",
		layer, compat->layer_count,
		side->pp_size > 1 ? "this pp_rank's, which are one range" :
				    "them");
}

static int layers_check(const struct kvpull_plan_side *side,
			const struct kvpull_compat *compat,
			struct kvpull_error_detail *detail)
{
	uint32_t i;

	for (i = 0; i < side->cache_count; i++) {
		const struct kvpull_cache *cache = &side->caches[i];

		if (cache->group_index >= compat->group_count)
			return kvpull_cache_refuse(
				detail, i, "group_index",
				"%u: the engine has %u groups",
				cache->group_index, compat->group_count);
		if (cache->layer_first + cache->layer_count >
		    compat->layer_count)
			return kvpull_cache_refuse(
				detail, i, "layer_count",
				"%u from layer %u on: the model has %u layers",
				cache->layer_count, cache->layer_first,
				compat->layer_count);
		if (is_in_two_groups(side, i))
			return kvpull_cache_refuse(
				detail, i, "group_index",
				"%u: another cache has its layers in another group",
				cache->group_index);
	}
	return range_check(side, compat, detail);
}

/* ---- bytes of a head in a block ---- */

/* Fits: the cache's extent does, which is checked. */
static uint64_t bytes_of(const struct kvpull_cache *cache)
{
	return (uint64_t)cache->row_count * cache->head_bytes;
}

/* A state's bytes do not follow from tokens: each end compares its peer's. */
static int is_state(const struct kvpull_compat *compat,
		    const struct kvpull_cache *cache)
{
	return compat->groups[cache->group_index].kind == KVPULL_GROUP_STATE;
}

static int own_bytes_check(const struct kvpull_plan_side *side, uint32_t index,
			   const struct kvpull_compat *compat,
			   struct kvpull_error_detail *detail)
{
	const struct kvpull_cache *cache = &side->caches[index];
	const uint32_t tokens = compat->groups[cache->group_index].block_tokens;
	const uint64_t wanted = (uint64_t)tokens * cache->token_bytes;

	if (is_state(compat, cache) && cache->token_bytes)
		return kvpull_cache_refuse(
			detail, index, "token_bytes",
			"is %u: the caches of group %u are a state, which has no bytes a token: say 0",
			cache->token_bytes, cache->group_index);
	if (is_state(compat, cache))
		return 0;
	if (!cache->token_bytes && compat->head_bytes)
		return 0;
	if (!cache->token_bytes)
		return kvpull_cache_refuse(
			detail, index, "token_bytes",
			"is 0, and so is the model's head_bytes: say the bytes of a head of a token in each cache");
	if (bytes_of(cache) == wanted)
		return 0;
	return kvpull_cache_refuse(
		detail, index, "token_bytes",
		"is %u, %llu bytes in a block of %u tokens: row_count %u x head_bytes %u is %llu",
		cache->token_bytes, (unsigned long long)wanted, tokens,
		cache->row_count, cache->head_bytes,
		(unsigned long long)bytes_of(cache));
}

static int layer_sum_check(const struct kvpull_plan_side *side, uint32_t layer,
			   const struct kvpull_compat *compat,
			   struct kvpull_error_detail *detail)
{
	uint64_t wanted = 0;
	uint64_t sum = 0;
	uint32_t tokens = 0;
	uint32_t i;

	for (i = 0; i < side->cache_count && sum <= wanted; i++) {
		const struct kvpull_cache *cache = &side->caches[i];

		if (!has_layer(cache, layer))
			continue;
		if (is_state(compat, cache))
			return 0;
		tokens = compat->groups[cache->group_index].block_tokens;
		wanted = (uint64_t)tokens * compat->head_bytes;
		if (__builtin_add_overflow(sum, bytes_of(cache), &sum))
			sum = UINT64_MAX;
	}
	if (sum == wanted)
		return 0;
	return kvpull_detail_set(
		detail, KVPULL_EINVAL, "caches",
		"layer %u: row_count x head_bytes of its caches is %llu bytes a block, block_tokens %u x the model's head_bytes %u is %llu: %s",
		layer, (unsigned long long)sum, tokens, compat->head_bytes,
		(unsigned long long)wanted,
		sum < wanted ?
			"register all of its rows, K and V" :
			"a cache has too many rows or bytes, or is registered twice");
}

/* A layer's caches change only where one of them begins or ends. */
static int bytes_check(const struct kvpull_plan_side *side,
		       const struct kvpull_compat *compat,
		       struct kvpull_error_detail *detail)
{
	uint32_t i;
	int code;

	for (i = 0; i < side->cache_count; i++) {
		code = own_bytes_check(side, i, compat, detail);
		if (code)
			return code;
	}
	for (i = 0; compat->head_bytes && i < side->cache_count; i++) {
		const struct kvpull_cache *cache = &side->caches[i];
		const uint32_t end = cache->layer_first + cache->layer_count;

		code = layer_sum_check(side, cache->layer_first, compat,
				       detail);
		if (!code && end < compat->layer_count)
			code = layer_sum_check(side, end, compat, detail);
		if (code)
			return code;
	}
	return 0;
}

/* ---- bytes of two caches ---- */

static int places_check(const struct kvpull_plan_side *side,
			const struct kvpull_place *places,
			struct kvpull_error_detail *detail)
{
	uint32_t i;

	for (i = 0; i < side->region_count; i++) {
		const uint64_t bytes = side->regions[i].bytes;

		if (bytes <= KVPULL_OVERLAP_END_MAX &&
		    places[i].begin <= KVPULL_OVERLAP_END_MAX - bytes)
			continue;
		return kvpull_detail_set(
			detail, KVPULL_EINVAL, "regions",
			"regions[%u] begins at %llu and has %llu bytes: no memory and no file ends there",
			i, (unsigned long long)places[i].begin,
			(unsigned long long)bytes);
	}
	return 0;
}

static int pair_check(const struct kvpull_plan_side *side,
		      const struct kvpull_place *places, const uint32_t pair[2],
		      uint64_t *steps, struct kvpull_error_detail *detail)
{
	const struct kvpull_cache *caches[2] = { &side->caches[pair[0]],
						 &side->caches[pair[1]] };
	const struct kvpull_place *one = &places[caches[0]->region_index];
	const struct kvpull_place *other = &places[caches[1]->region_index];
	const uint64_t starts[2] = { one->begin + caches[0]->offset,
				     other->begin + caches[1]->offset };
	enum kvpull_overlap overlap;

	if (caches[0]->group_index != caches[1]->group_index ||
	    one->device != other->device || one->inode != other->inode)
		return 0;
	overlap = kvpull_overlap_find(caches, starts, steps);
	if (overlap == KVPULL_OVERLAP_NONE)
		return 0;
	if (overlap == KVPULL_OVERLAP_FOUND)
		return kvpull_cache_refuse(
			detail, pair[1], "offset",
			"%llu in region %u: blocks share bytes with those of caches[%u], offset %llu in region %u",
			(unsigned long long)caches[1]->offset,
			caches[1]->region_index, pair[0],
			(unsigned long long)caches[0]->offset,
			caches[0]->region_index);
	return kvpull_detail_set(
		detail, KVPULL_EUNSUPPORTED, "caches",
		"caches[%u] lies between the blocks of caches[%u] at other strides: too many to compare; lay them out apart, or alike",
		pair[1], pair[0]);
}

static int overlaps_check(const struct kvpull_plan_side *side,
			  const struct kvpull_place *places,
			  struct kvpull_error_detail *detail)
{
	uint64_t steps = KVPULL_OVERLAP_STEPS_MAX;
	uint32_t pair[2];
	int code = places_check(side, places, detail);

	for (pair[1] = 1; !code && pair[1] < side->cache_count; pair[1]++)
		for (pair[0] = 0; !code && pair[0] < pair[1]; pair[0]++)
			code = pair_check(side, places, pair, &steps, detail);
	return code;
}

int kvpull_cache_facts_check(const struct kvpull_plan_side *side,
			     const struct kvpull_place *places,
			     const struct kvpull_compat *compat,
			     struct kvpull_error_detail *detail)
{
	int code = layers_check(side, compat, detail);

	if (!code)
		code = bytes_check(side, compat, detail);
	return code ? code : overlaps_check(side, places, detail);
}
