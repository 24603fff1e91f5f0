/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From two sides' caches to strips.
 *
 * Invariants
 * - A side that passed kvpull_plan_check() names only bytes inside its
 *   regions, whatever ids below block_count are used, and no byte twice in one
 *   cache. A peer's caches are hostile until then.
 * - Heads are split over ranks in one way only, which follows from tp_size and
 *   head_total: a peer cannot leave a hole between its ranks' heads.
 * - A strip's bytes are the bytes of its two caches: its addresses are sums
 *   that the check has done before, so they cannot wrap.
 *
 * A block's bytes in one run of layers are a box of three axes (layer, row,
 * head) around head_bytes. An axis whose stride on both sides is the length of
 * what it repeats is folded into that length, so equal layouts give one row a
 * block. Of the axes left, one becomes the strip's rows, the others become
 * strips of their own.
 */
#include "plugin/progress/plan.h"

#include <sodium.h>
#include <string.h>

#include "base/ids.h"
#include "base/least.h"
#include "base/params.h"
#include "plugin/progress/layers.h"

enum axis_kind {
	AXIS_LAYER,
	AXIS_ROW,
	AXIS_HEAD,
	AXES
};

struct axis {
	uint64_t count;
	uint64_t remote_stride;
	uint64_t local_stride;
};

/* A run of layers that one local and one remote cache share. */
struct pair {
	const struct kvpull_cache *local;
	const struct kvpull_cache *remote;
	uint32_t layer_first; /* in the model */
	uint32_t layer_count;
};

/* The sides and tables that pairing looks at. */
struct plan_context {
	struct kvpull_plan *plan;
	const struct kvpull_plan_side *local;
	const struct kvpull_plan_side *remote;
	struct kvpull_error_detail *detail;
	struct kvpull_layers here;
	struct kvpull_layers there;
	uint32_t layer_first; /* of those that both sides have */
	uint32_t layer_end;
};

int kvpull_cache_refuse(struct kvpull_error_detail *detail,
			uint32_t cache_index, const char *member,
			const char *format, ...)
{
	char field[64];
	char reason[160];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	(void)snprintf(field, sizeof(field), "caches[%u].%s", cache_index,
		       member);
	return kvpull_detail_set(detail, KVPULL_EINVAL, field, "%s %s", field,
				 reason);
}

/* *extent += (count - 1) * stride; 1 if it does not fit into 64 bits. */
static int extent_grow(uint64_t *extent, uint64_t count, uint64_t stride)
{
	uint64_t reach;

	return __builtin_mul_overflow(count - 1, stride, &reach) ||
	       __builtin_add_overflow(*extent, reach, extent);
}

/*
 * Do inner_count items of item_bytes, inner_stride apart, repeated outer_count
 * times outer_stride apart, keep clear of each other? Strides of an axis of
 * one do not count.
 */
static int is_nested(uint64_t item_bytes, const struct axis *inner,
		     const struct axis *outer)
{
	if (inner->count > 1 && inner->local_stride < item_bytes)
		return 0;
	if (extent_grow(&item_bytes, inner->count, inner->local_stride))
		return 0;
	return outer->count == 1 || outer->local_stride >= item_bytes;
}

static int is_disjoint(uint64_t item_bytes, const struct axis *one,
		       const struct axis *other)
{
	return is_nested(item_bytes, one, other) ||
	       is_nested(item_bytes, other, one);
}

static int check_counts(const struct kvpull_plan_side *side, uint32_t index,
			struct kvpull_error_detail *detail)
{
	const struct kvpull_cache *cache = &side->caches[index];

	if (cache->region_index >= side->region_count)
		return kvpull_cache_refuse(detail, index, "region_index",
					   "%u: there are %u regions",
					   cache->region_index,
					   side->region_count);
	if (cache->group_index >= KVPULL_GROUPS_MAX)
		return kvpull_cache_refuse(
			detail, index, "group_index", "%u: at most %u groups",
			cache->group_index, KVPULL_GROUPS_MAX);
	if (!cache->layer_count ||
	    cache->layer_count > UINT32_MAX - cache->layer_first)
		return kvpull_cache_refuse(detail, index, "layer_count",
					   "%u from layer %u on: not a range",
					   cache->layer_count,
					   cache->layer_first);
	if (!cache->block_count)
		return kvpull_cache_refuse(detail, index, "block_count",
					   "is 0");
	if (!cache->row_count)
		return kvpull_cache_refuse(detail, index, "row_count", "is 0");
	if (!cache->head_bytes)
		return kvpull_cache_refuse(detail, index, "head_bytes", "is 0");
	return 0;
}

/* Heads that a group has of its own; 0: none. */
static uint32_t own_heads_of(const struct kvpull_plan_side *side,
			     uint32_t group)
{
	return group < side->group_count ? side->groups[group].head_count : 0;
}

/* Heads of the whole model in that group's layers. */
static uint32_t heads_of(const struct kvpull_plan_side *side, uint32_t group)
{
	const uint32_t own = own_heads_of(side, group);

	return own ? own : side->head_total;
}

/* Heads that a group has of its own are split, whatever the model's are. */
static int is_replicated(const struct kvpull_plan_side *side, uint32_t group)
{
	return side->replicated && !own_heads_of(side, group);
}

/*
 * Ranks that hold the same heads, where heads are not replicated; 1 unless there
 * are more ranks than heads.
 */
static uint32_t copies_of(const struct kvpull_plan_side *side, uint32_t group)
{
	const uint32_t heads = heads_of(side, group);

	return side->tp_size > heads ? side->tp_size / heads : 1;
}

/*
 * The heads of a rank follow from tp_size and the heads of its group: all of
 * them with replicated heads; an equal share in rank order; with more ranks than heads
 * one, each held by as many neighbouring ranks.
 */
static int check_heads(const struct kvpull_plan_side *side, uint32_t index,
		       struct kvpull_error_detail *detail)
{
	const struct kvpull_cache *cache = &side->caches[index];
	const uint32_t group = cache->group_index;
	uint32_t count = heads_of(side, group);
	uint32_t first = 0;

	if (!is_replicated(side, group)) {
		count = side->tp_size > count ? 1 : count / side->tp_size;
		first = side->tp_rank / copies_of(side, group) * count;
	}
	if (cache->head_count != count)
		return kvpull_cache_refuse(
			detail, index, "head_count",
			"is %u: rank %u of %u has %u of the %u heads",
			cache->head_count, side->tp_rank, side->tp_size, count,
			heads_of(side, group));
	if (cache->head_first != first)
		return kvpull_cache_refuse(
			detail, index, "head_first",
			"is %u: the heads of rank %u of %u begin at %u",
			cache->head_first, side->tp_rank, side->tp_size, first);
	return 0;
}

static int check_strides(const struct kvpull_plan_side *side, uint32_t index,
			 struct kvpull_error_detail *detail)
{
	const struct kvpull_cache *cache = &side->caches[index];
	const struct axis head = { .count = cache->head_count,
				   .local_stride = cache->head_stride };
	const struct axis row = { .count = cache->row_count,
				  .local_stride = cache->row_stride };
	const struct axis block = { .count = cache->block_count,
				    .local_stride = cache->block_stride };
	const struct axis layer = { .count = cache->layer_count,
				    .local_stride = cache->layer_stride };
	const uint64_t bytes = side->regions[cache->region_index].bytes;
	uint64_t extent = cache->head_bytes;

	if (!is_disjoint(extent, &head, &row))
		return kvpull_cache_refuse(
			detail, index, "row_stride",
			"%llu with head_stride %llu: rows overlap",
			(unsigned long long)cache->row_stride,
			(unsigned long long)cache->head_stride);
	if (extent_grow(&extent, head.count, head.local_stride) ||
	    extent_grow(&extent, row.count, row.local_stride))
		return kvpull_cache_refuse(detail, index, "row_stride",
					   "a block is larger than memory");
	if (block.count > 1 && block.local_stride < extent)
		return kvpull_cache_refuse(
			detail, index, "block_stride",
			"is %llu: a block spans %llu bytes",
			(unsigned long long)cache->block_stride,
			(unsigned long long)extent);
	if (!is_disjoint(extent, &block, &layer))
		return kvpull_cache_refuse(
			detail, index, "layer_stride",
			"%llu with block_stride %llu: layers overlap",
			(unsigned long long)cache->layer_stride,
			(unsigned long long)cache->block_stride);
	if (extent_grow(&extent, block.count, block.local_stride) ||
	    extent_grow(&extent, layer.count, layer.local_stride) ||
	    __builtin_add_overflow(extent, cache->offset, &extent) ||
	    extent > bytes)
		return kvpull_cache_refuse(
			detail, index, "offset",
			"is %llu: blocks end after the %llu bytes of region %u",
			(unsigned long long)cache->offset,
			(unsigned long long)bytes, cache->region_index);
	return 0;
}

static int side_refuse(struct kvpull_error_detail *detail, const char *member,
		       uint32_t value, uint32_t bound)
{
	/* Not by the call's return: clang's analyzer does not see that it is not 0. */
	(void)kvpull_detail_set(detail, KVPULL_EINVAL, member,
				"%s is %u, not allowed with %u", member, value,
				bound);
	return KVPULL_EINVAL;
}

static int is_split(uint32_t heads, uint32_t ranks)
{
	return heads % ranks == 0 || ranks % heads == 0;
}

static int check_side(const struct kvpull_plan_side *side,
		      struct kvpull_error_detail *detail)
{
	uint32_t i;

	if (!side->region_count || side->region_count > KVPULL_REGIONS_MAX)
		return side_refuse(detail, "region_count", side->region_count,
				   KVPULL_REGIONS_MAX);
	if (!side->cache_count || side->cache_count > KVPULL_CACHES_MAX)
		return side_refuse(detail, "cache_count", side->cache_count,
				   KVPULL_CACHES_MAX);
	if (!side->tp_size || side->tp_size > KVPULL_RANKS_MAX)
		return side_refuse(detail, "tp_size", side->tp_size,
				   KVPULL_RANKS_MAX);
	if (side->tp_rank >= side->tp_size)
		return side_refuse(detail, "tp_rank", side->tp_rank,
				   side->tp_size);
	if (side->replicated > 1)
		return side_refuse(detail, "replicated", side->replicated, 1);
	if (!side->head_total)
		return side_refuse(detail, "head_total", 0, side->tp_size);
	if (!side->replicated && !is_split(side->head_total, side->tp_size))
		return side_refuse(detail, "head_total", side->head_total,
				   side->tp_size);
	for (i = 0; i < side->group_count; i++)
		if (!is_replicated(side, i) &&
		    !is_split(heads_of(side, i), side->tp_size))
			return side_refuse(detail, "groups.head_count",
					   heads_of(side, i), side->tp_size);
	return 0;
}

int kvpull_plan_check(const struct kvpull_plan_side *side,
		      struct kvpull_error_detail *detail)
{
	uint32_t i;
	int rc = check_side(side, detail);

	for (i = 0; !rc && i < side->cache_count; i++) {
		rc = check_counts(side, i, detail);
		if (!rc)
			rc = check_heads(side, i, detail);
		if (!rc)
			rc = check_strides(side, i, detail);
	}
	return rc;
}

/* Fold what is contiguous on both sides; returns the bytes of a row. */
static uint64_t axes_fold(struct axis axes[AXES], uint64_t row_bytes)
{
	uint32_t i = 0;

	while (i < AXES) {
		if (axes[i].count == 1 || axes[i].remote_stride != row_bytes ||
		    axes[i].local_stride != row_bytes) {
			i++;
			continue;
		}
		row_bytes *= axes[i].count;
		axes[i].count = 1;
		i = 0; /* what did not fit before may fit now */
	}
	return row_bytes;
}

/* Puts a strip for each item of the two axes that are not its rows. */
static int strips_put(struct kvpull_plan *plan, const struct kvpull_strip *base,
		      const struct axis *outer, const struct axis *inner)
{
	uint64_t i;
	uint64_t k;

	if (outer->count > UINT32_MAX || inner->count > UINT32_MAX ||
	    outer->count * inner->count >
		    plan->strip_count_max - plan->strip_count)
		return KVPULL_EFULL;
	for (i = 0; i < outer->count; i++)
		for (k = 0; k < inner->count; k++) {
			struct kvpull_strip *strip =
				&plan->strips[plan->strip_count++];

			*strip = *base;
			strip->remote_offset += i * outer->remote_stride +
						k * inner->remote_stride;
			strip->local += i * outer->local_stride +
					k * inner->local_stride;
		}
	return 0;
}

/* Heads [head_first, head_end) of a pair's layers as strips. */
static int pair_emit(const struct plan_context *context,
		     const struct pair *pair, uint32_t head_first,
		     uint32_t head_end)
{
	const struct kvpull_cache *local = pair->local;
	const struct kvpull_cache *remote = pair->remote;
	struct kvpull_plan *plan = context->plan;
	struct axis axes[AXES] = {
		[AXIS_LAYER] = { pair->layer_count, remote->layer_stride,
				 local->layer_stride },
		[AXIS_ROW] = { local->row_count, remote->row_stride,
			       local->row_stride },
		[AXIS_HEAD] = { head_end - head_first, remote->head_stride,
				local->head_stride },
	};
	const uint64_t block_bytes = axes[AXIS_LAYER].count *
				     axes[AXIS_ROW].count *
				     axes[AXIS_HEAD].count * local->head_bytes;
	const struct axis *rows = &axes[AXIS_ROW];
	const struct axis *rest = &axes[AXIS_HEAD];
	uint64_t layer;
	struct kvpull_strip strip = {
		.region_index = remote->region_index,
		.group_index = local->group_index,
		.remote_offset = remote->offset,
		.remote_block_stride = remote->block_stride,
		.local = context->local->regions[local->region_index].base,
		.local_block_stride = local->block_stride,
	};

	layer = pair->layer_first - remote->layer_first;
	strip.remote_offset += layer * remote->layer_stride +
			       (uint64_t)(head_first - remote->head_first) *
				       remote->head_stride;
	layer = pair->layer_first - local->layer_first;
	strip.local +=
		local->offset + layer * local->layer_stride +
		(uint64_t)(head_first - local->head_first) * local->head_stride;
	strip.row_bytes = axes_fold(axes, local->head_bytes);
	if (rest->count > rows->count) {
		rows = &axes[AXIS_HEAD];
		rest = &axes[AXIS_ROW];
	}
	strip.row_count = (uint32_t)rows->count;
	if (rows->count > 1) {
		strip.remote_row_stride = rows->remote_stride;
		strip.local_row_stride = rows->local_stride;
	}
	plan->group_block_bytes[local->group_index] += block_bytes;
	return strips_put(plan, &strip, &axes[AXIS_LAYER], rest);
}

/*
 * Does this rank read from that one at all? With replicated heads from one
 * rank; where several ranks hold the same heads, from the lowest of them.
 */
static int is_source(const struct kvpull_plan_side *local,
		     const struct kvpull_plan_side *remote, uint32_t group)
{
	if (is_replicated(remote, group))
		return remote->tp_rank == local->tp_rank % remote->tp_size;
	return remote->tp_rank % copies_of(remote, group) == 0;
}

static int pair_plan(const struct plan_context *context,
		     const struct pair *pair)
{
	const struct kvpull_cache *local = pair->local;
	const struct kvpull_cache *remote = pair->remote;
	uint32_t first = local->head_first;
	uint32_t end = local->head_first + local->head_count;

	if (local->row_count != remote->row_count)
		return kvpull_detail_set(
			context->detail, KVPULL_EREJECTED, "row_count",
			"group %u layer %u: row_count %u here, %u at the peer",
			local->group_index, pair->layer_first, local->row_count,
			remote->row_count);
	if (local->head_bytes != remote->head_bytes)
		return kvpull_detail_set(
			context->detail, KVPULL_EREJECTED, "head_bytes",
			"group %u layer %u: head_bytes %u here, %u at the peer",
			local->group_index, pair->layer_first,
			local->head_bytes, remote->head_bytes);
	if (!is_source(context->local, context->remote, local->group_index))
		return 0;
	if (first < remote->head_first)
		first = remote->head_first;
	if (end > remote->head_first + remote->head_count)
		end = remote->head_first + remote->head_count;
	return first < end ? pair_emit(context, pair, first, end) : 0;
}

/* Return: how many layers of a cache both sides have, from *first on. */
static uint32_t layers_shared(const struct plan_context *context,
			      const struct kvpull_cache *cache, uint32_t *first)
{
	const uint32_t end = kvpull_least_u32(
		cache->layer_first + cache->layer_count, context->layer_end);

	*first = cache->layer_first > context->layer_first ?
			 cache->layer_first :
			 context->layer_first;
	return end > *first ? end - *first : 0;
}

/* Pair the layers of one local cache, as long runs as the peer's allow. */
static int cache_plan(const struct plan_context *context, uint32_t index)
{
	const struct kvpull_cache *local = &context->local->caches[index];
	const uint32_t group = local->group_index;
	const struct kvpull_cache *next = NULL;
	struct pair pair = { .local = local };
	const uint32_t count = layers_shared(context, local, &pair.layer_first);
	const uint32_t first = pair.layer_first;
	uint32_t layer;
	int rc;

	for (layer = first; layer - first < count; layer++) {
		next = kvpull_layers_find(
			&context->there, group, layer,
			kvpull_layers_plane(&context->here, index, layer));
		if (!next)
			return kvpull_detail_set(
				context->detail, KVPULL_EREJECTED,
				"layer_first",
				"group %u layer %u: the peer has no cache for it",
				group, layer);
		if (pair.remote && pair.remote != next) {
			rc = pair_plan(context, &pair);
			if (rc)
				return rc;
			pair.layer_first = layer;
			pair.layer_count = 0;
		}
		pair.remote = next;
		pair.layer_count++;
	}
	/* If the peer has one of its layers there is a last run. */
	return pair.remote ? pair_plan(context, &pair) : 0;
}

/*
 * Each group's smallest table, and its layers of those that both sides have,
 * planes counted one by one.
 */
static void groups_count(const struct plan_context *context,
			 const struct kvpull_plan_side *side,
			 uint64_t layer_counts[KVPULL_GROUPS_MAX],
			 uint32_t block_counts[KVPULL_GROUPS_MAX])
{
	uint32_t i;

	for (i = 0; i < KVPULL_GROUPS_MAX; i++)
		block_counts[i] = UINT32_MAX;
	for (i = 0; i < side->cache_count; i++) {
		const struct kvpull_cache *cache = &side->caches[i];
		const uint32_t group = cache->group_index;
		uint32_t first;

		block_counts[group] = kvpull_least_u32(block_counts[group],
						       cache->block_count);
		layer_counts[group] += layers_shared(context, cache, &first);
	}
}

static int sides_compare(const struct plan_context *context)
{
	const struct kvpull_plan_side *local = context->local;
	const struct kvpull_plan_side *remote = context->remote;
	uint64_t here[KVPULL_GROUPS_MAX] = { 0 };
	uint64_t there[KVPULL_GROUPS_MAX] = { 0 };
	uint32_t i;

	if (local->replicated != remote->replicated)
		return kvpull_detail_set(
			context->detail, KVPULL_EREJECTED, "replicated",
			"replicated is %u here, %u at the peer",
			local->replicated, remote->replicated);
	if (local->head_total != remote->head_total)
		return kvpull_detail_set(
			context->detail, KVPULL_EREJECTED, "head_count",
			"the model has %u heads here, %u at the peer",
			local->head_total, remote->head_total);
	for (i = 0; i < local->cache_count; i++)
		if (!local->regions[local->caches[i].region_index].base)
			return kvpull_detail_set(
				context->detail, KVPULL_EREJECTED,
				"region_index",
				"cache %u is not in memory: nothing can be read into it",
				i);
	groups_count(context, local, here, context->plan->local_block_count);
	groups_count(context, remote, there, context->plan->remote_block_count);
	for (i = 0; i < KVPULL_GROUPS_MAX; i++)
		if (here[i] != there[i])
			return kvpull_detail_set(
				context->detail, KVPULL_EREJECTED,
				"layer_count",
				"group %u, layers %u to %u: %llu here, %llu at the peer",
				i, context->layer_first, context->layer_end - 1,
				(unsigned long long)here[i],
				(unsigned long long)there[i]);
	return 0;
}

/* A digest of all members, none of which is padding; no secret. */
static uint64_t digest_of(const struct kvpull_plan *plan)
{
	static const uint8_t key[crypto_shorthash_KEYBYTES];
	uint64_t digest;

	_Static_assert(sizeof(digest) == crypto_shorthash_BYTES, "a word");
	(void)crypto_shorthash((unsigned char *)&digest,
			       (const unsigned char *)plan->strips,
			       plan->strip_count * sizeof(*plan->strips), key);
	return digest;
}

void kvpull_plan_layers(const struct kvpull_plan_side *side,
			struct kvpull_stage *stage)
{
	uint32_t i;

	stage->layer_first = UINT32_MAX;
	stage->layer_end = 0;
	for (i = 0; i < side->cache_count; i++) {
		const struct kvpull_cache *cache = &side->caches[i];
		const uint32_t end = cache->layer_first + cache->layer_count;

		stage->layer_first = kvpull_least_u32(stage->layer_first,
						      cache->layer_first);
		if (end > stage->layer_end)
			stage->layer_end = end;
	}
}

/* The layers that both sides have; none: the end is not behind the first. */
static void layers_meet(struct plan_context *context)
{
	struct kvpull_stage here;
	struct kvpull_stage there;

	kvpull_plan_layers(context->local, &here);
	kvpull_plan_layers(context->remote, &there);
	context->layer_first = here.layer_first > there.layer_first ?
				       here.layer_first :
				       there.layer_first;
	context->layer_end = kvpull_least_u32(here.layer_end, there.layer_end);
}

int kvpull_plan_make(struct kvpull_plan *plan,
		     const struct kvpull_plan_side *local,
		     const struct kvpull_plan_side *remote,
		     struct kvpull_error_detail *detail)
{
	struct plan_context context;
	uint32_t i;
	int rc;

	context.plan = plan;
	context.local = local;
	context.remote = remote;
	context.detail = detail;
	kvpull_layers_index(&context.here, local->caches, local->cache_count);
	kvpull_layers_index(&context.there, remote->caches,
			    remote->cache_count);
	plan->strip_count = 0;
	memset(plan->group_block_bytes, 0, sizeof(plan->group_block_bytes));
	layers_meet(&context);
	rc = sides_compare(&context);
	for (i = 0; !rc && i < local->cache_count; i++)
		rc = cache_plan(&context, i);
	if (rc == KVPULL_EFULL)
		kvpull_detail_set(
			detail, rc, "caches",
			"more than %u strips: blocks are too scattered",
			plan->strip_count_max);
	if (rc)
		plan->strip_count = 0;
	plan->digest = digest_of(plan);
	return rc;
}

int kvpull_plan_check_ids(const struct kvpull_plan *plan,
			  const struct kvpull_read *read, uint64_t *byte_count)
{
	uint64_t total = 0;
	uint32_t g;

	for (g = 0; g < KVPULL_GROUPS_MAX; g++) {
		const uint32_t first = read->group_first[g];
		const uint32_t end = read->group_first[g + 1];
		uint64_t bytes;

		if (first > end ||
		    !kvpull_ids_are_below(read->remote_ids + first, end - first,
					  plan->remote_block_count[g]) ||
		    !kvpull_ids_are_below(read->local_ids + first, end - first,
					  plan->local_block_count[g]))
			return KVPULL_ETRUNCATED;
		if (__builtin_mul_overflow((uint64_t)(end - first),
					   plan->group_block_bytes[g],
					   &bytes) ||
		    __builtin_add_overflow(total, bytes, &total))
			return KVPULL_ETRUNCATED;
	}
	*byte_count = total;
	return 0;
}
