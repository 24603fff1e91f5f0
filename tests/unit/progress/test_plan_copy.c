/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan against a reference that knows nothing of strips: memories of all
 * ranks are filled from one global tensor, the strips are copied byte by byte,
 * and every byte of the reader's memory is compared and counted.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/progress/plan.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"

#define CACHES 48u
#define REGIONS 3u
#define STRIPS 4096u
#define GROUPS 2u

static uint64_t random_state = 1;

static uint32_t random_below(uint32_t bound)
{
	return (uint32_t)(random_next(&random_state) >> 33) % bound;
}

/* Facts on which both sides agree. */
struct shape {
	uint32_t layers[GROUPS]; /* 0: no such group */
	uint32_t planes[GROUPS];
	uint32_t rows;
	uint32_t head_bytes;
	uint32_t head_total;
	uint32_t replicated;
	uint32_t padded; /* strides may exceed lengths, in any nesting */
};

/* A rank: its caches, and its memory as it would be registered. */
struct rank {
	struct kvpull_cache caches[CACHES];
	uint32_t planes[CACHES];
	struct kvpull_region_view regions[REGIONS];
	struct kvpull_plan_side side;
	uint8_t *counts[REGIONS]; /* writes to each byte */
};

static uint8_t tensor_byte(const uint32_t at[7])
{
	uint64_t hash = 0x9e3779b97f4a7c15u;
	uint32_t i;

	for (i = 0; i < 7; i++)
		hash = (hash ^ at[i]) * 0x100000001b3u;
	return (uint8_t)(hash >> 29);
}

static uint64_t pad(const struct shape *shape)
{
	return shape->padded && random_below(2) ? random_below(6) : 0;
}

/* Strides of two axes, one in the other; returns what both span. */
static uint64_t nest(const struct shape *shape, uint64_t item,
		     const uint32_t counts[2], uint64_t *strides[2])
{
	const uint32_t inner = shape->padded ? random_below(2) : 0;
	const uint32_t outer = 1 - inner;

	*strides[inner] = item + pad(shape);
	*strides[outer] = *strides[inner] * counts[inner] + pad(shape);
	return (counts[0] - 1) * *strides[0] + (counts[1] - 1) * *strides[1] +
	       item;
}

static void cache_make(struct rank *rank, const struct shape *shape,
		       struct kvpull_cache *cache)
{
	struct kvpull_region_view *region = &rank->regions[cache->region_index];
	uint64_t *inner[2] = { &cache->head_stride, &cache->row_stride };
	uint64_t *outer[2] = { &cache->block_stride, &cache->layer_stride };
	const uint32_t inner_counts[2] = { cache->head_count,
					   cache->row_count };
	const uint32_t outer_counts[2] = { cache->block_count,
					   cache->layer_count };
	uint64_t extent = nest(shape, cache->head_bytes, inner_counts, inner);

	extent = nest(shape, extent, outer_counts, outer);
	cache->offset = region->bytes + pad(shape);
	region->bytes = cache->offset + extent;
}

static void rank_layers(struct rank *rank, const struct shape *shape,
			uint32_t group, uint32_t plane)
{
	const uint32_t size = rank->side.tp_size;
	uint32_t heads = shape->head_total;
	uint32_t first = 0;
	uint32_t layer = 0;

	if (!shape->replicated) {
		first = heads * rank->side.tp_rank / size;
		heads = heads > size ? heads / size : 1;
	}
	while (layer < shape->layers[group]) {
		const uint32_t index = rank->side.cache_count++;
		struct kvpull_cache *cache = &rank->caches[index];
		const uint32_t left = shape->layers[group] - layer;

		assert_true(index < CACHES);
		*cache = (struct kvpull_cache){
			.region_index = random_below(REGIONS),
			.group_index = group,
			.layer_first = 10 * group + layer,
			.layer_count = 1 + random_below(left),
			.block_count = 4 + random_below(3),
			.row_count = shape->rows,
			.head_first = first,
			.head_count = heads,
			.head_bytes = shape->head_bytes,
		};
		rank->planes[index] = plane;
		layer += cache->layer_count;
		cache_make(rank, shape, cache);
	}
}

static void rank_open(struct rank *rank, const struct shape *shape,
		      uint32_t tp_rank, uint32_t tp_size)
{
	uint32_t group;
	uint32_t plane;
	uint32_t i;

	memset(rank, 0, sizeof(*rank));
	rank->side = (struct kvpull_plan_side){
		.caches = rank->caches,
		.regions = rank->regions,
		.region_count = REGIONS,
		.tp_rank = tp_rank,
		.tp_size = tp_size,
		.replicated = shape->replicated,
		.head_total = shape->head_total,
	};
	for (group = 0; group < GROUPS; group++)
		for (plane = 0; plane < shape->planes[group]; plane++)
			rank_layers(rank, shape, group, plane);
	for (i = 0; i < REGIONS; i++) {
		/* Exact, so that the address sanitizer sees one byte beyond. */
		rank->regions[i].base = malloc(rank->regions[i].bytes + 1);
		rank->counts[i] = calloc(rank->regions[i].bytes + 1, 1);
		assert_non_null(rank->regions[i].base);
		assert_non_null(rank->counts[i]);
		memset(rank->regions[i].base, 0xee, rank->regions[i].bytes);
	}
}

static void rank_close(struct rank *rank)
{
	uint32_t i;

	for (i = 0; i < REGIONS; i++) {
		free(rank->regions[i].base);
		free(rank->counts[i]);
	}
}

typedef void (*visit_fn)(struct rank *rank, uint32_t cache, uint64_t offset,
			 const uint32_t at[7]);

static void visit_block(struct rank *rank, uint32_t index, uint32_t layer,
			uint32_t block, visit_fn visit)
{
	const struct kvpull_cache *cache = &rank->caches[index];
	uint32_t w;
	uint32_t h;
	uint32_t b;

	for (w = 0; w < cache->row_count; w++)
		for (h = 0; h < cache->head_count; h++)
			for (b = 0; b < cache->head_bytes; b++) {
				const uint32_t at[7] = { cache->group_index,
							 cache->layer_first +
								 layer,
							 rank->planes[index],
							 block,
							 w,
							 cache->head_first + h,
							 b };

				visit(rank, index,
				      cache->offset +
					      layer * cache->layer_stride +
					      block * cache->block_stride +
					      w * cache->row_stride +
					      h * cache->head_stride + b,
				      at);
			}
}

static void visit_all(struct rank *rank, visit_fn visit)
{
	uint32_t i;
	uint32_t layer;
	uint32_t block;

	for (i = 0; i < rank->side.cache_count; i++)
		for (layer = 0; layer < rank->caches[i].layer_count; layer++)
			for (block = 0; block < rank->caches[i].block_count;
			     block++)
				visit_block(rank, i, layer, block, visit);
}

static void fill_byte(struct rank *rank, uint32_t cache, uint64_t offset,
		      const uint32_t at[7])
{
	const uint32_t region = rank->caches[cache].region_index;

	assert_true(offset < rank->regions[region].bytes);
	rank->regions[region].base[offset] = tensor_byte(at);
}

/* Blocks that the test reads: remote id i lands in local id wanted[i]. */
static const uint32_t remote_ids[] = { 3, 0, 2, 1, 3 };
static const uint32_t local_ids[] = { 1, 2, 0, 3, 0 };
static const uint32_t group_first[KVPULL_GROUPS_MAX + 1] = { 0, 3, 5, 5, 5,
							     5, 5, 5, 5 };

static void expect_byte(struct rank *rank, uint32_t cache, uint64_t offset,
			const uint32_t at[7])
{
	const uint32_t region = rank->caches[cache].region_index;
	uint8_t *count = &rank->counts[region][offset];
	uint32_t from[7];
	uint32_t i;

	memcpy(from, at, sizeof(from));
	for (i = group_first[at[0]]; i < group_first[at[0] + 1]; i++) {
		if (local_ids[i] != at[3])
			continue;
		from[3] = remote_ids[i];
		assert_int_equal(*count, 1);
		assert_int_equal(rank->regions[region].base[offset],
				 tensor_byte(from));
		*count = 0;
	}
}

/* The copy that a transport makes; returns the bytes moved. */
static uint64_t strip_copy(const struct kvpull_strip *strip,
			   struct rank *remote, struct rank *local)
{
	const uint32_t region = strip->region_index;
	uint64_t moved = 0;
	uint32_t i;
	uint32_t row;
	uint32_t r;

	for (i = group_first[strip->group_index];
	     i < group_first[strip->group_index + 1]; i++)
		for (row = 0; row < strip->row_count; row++) {
			const uint64_t from =
				strip->remote_offset +
				remote_ids[i] * strip->remote_block_stride +
				row * strip->remote_row_stride;
			uint8_t *to = strip->local +
				      local_ids[i] * strip->local_block_stride +
				      row * strip->local_row_stride;
			uint64_t b;

			assert_true(from + strip->row_bytes <=
				    remote->regions[region].bytes);
			memcpy(to, remote->regions[region].base + from,
			       strip->row_bytes);
			for (r = 0; r < REGIONS - 1; r++)
				if (to >= local->regions[r].base &&
				    to < local->regions[r].base +
						    local->regions[r].bytes)
					break;
			assert_true(to >= local->regions[r].base &&
				    to < local->regions[r].base +
						    local->regions[r].bytes);
			for (b = 0; b < strip->row_bytes; b++)
				local->counts[r][to - local->regions[r].base +
						 (ptrdiff_t)b]++;
			moved += strip->row_bytes;
		}
	return moved;
}

static struct kvpull_strip strips[STRIPS];

/* Read from one peer; returns the strips used. */
static uint32_t peer_read(struct rank *local, struct rank *remote)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_plan plan = { .strips = strips,
				    .strip_count_max = STRIPS };
	struct kvpull_read read = { .remote_ids = remote_ids,
				    .local_ids = local_ids,
				    .group_first = group_first };
	uint64_t moved = 0;
	uint64_t told = UINT64_MAX;
	uint32_t i;

	if (kvpull_plan_check(&remote->side, &detail) ||
	    kvpull_plan_make(&plan, &local->side, &remote->side, &detail))
		fail_msg("%s", detail.message);
	for (i = 0; i < plan.strip_count; i++)
		moved += strip_copy(&strips[i], remote, local);
	if (plan.local_block_count[1]) {
		assert_int_equal(kvpull_plan_check_ids(&plan, &read, &told), 0);
		assert_int_equal(told, moved);
	}
	return plan.strip_count;
}

static void counts_are_zero(const struct rank *rank)
{
	uint32_t r;
	uint64_t b;

	for (r = 0; r < REGIONS; r++)
		for (b = 0; b < rank->regions[r].bytes; b++)
			if (rank->counts[r][b])
				fail_msg("region %u byte %llu written", r,
					 (unsigned long long)b);
}

/* A region one byte shorter, and one block more, must be refused. */
static void check_is_tight(struct rank *rank)
{
	uint32_t i;

	assert_int_equal(kvpull_plan_check(&rank->side, NULL), 0);
	for (i = 0; i < REGIONS; i++) {
		if (!rank->regions[i].bytes)
			continue;
		rank->regions[i].bytes--;
		assert_int_equal(kvpull_plan_check(&rank->side, NULL),
				 KVPULL_EINVAL);
		rank->regions[i].bytes++;
	}
}

static void transfer(const struct shape *shape, uint32_t local_size,
		     uint32_t remote_size)
{
	static struct rank local;
	static struct rank remote;
	uint32_t i;
	uint32_t sources = 0;

	rank_open(&local, shape, random_below(local_size), local_size);
	check_is_tight(&local);
	for (i = 0; i < remote_size; i++) {
		rank_open(&remote, shape, i, remote_size);
		visit_all(&remote, fill_byte);
		sources += peer_read(&local, &remote) > 0;
		rank_close(&remote);
	}
	visit_all(&local, expect_byte);
	counts_are_zero(&local);
	if (shape->replicated)
		assert_int_equal(sources, 1);
	rank_close(&local);
}

static void all_sizes(struct shape *shape, uint32_t rounds)
{
	static const uint32_t sizes[] = { 1, 2, 4, 8 };
	uint32_t i;
	uint32_t k;
	uint32_t round;

	for (i = 0; i < 4; i++)
		for (k = 0; k < 4; k++)
			for (round = 0; round < rounds; round++) {
				shape->head_total = sizes[random_below(4)];
				shape->layers[0] = 1 + random_below(4);
				shape->layers[1] = 1 + random_below(2);
				shape->padded = random_below(2);
				transfer(shape, sizes[i], sizes[k]);
			}
}

UNIT_TEST(head_major_blocks_arrive_whole_at_any_tp_sizes)
{
	struct shape shape = { .planes = { 1, 1 },
			       .rows = 1,
			       .head_bytes = 24 };

	all_sizes(&shape, 8);
}

UNIT_TEST(token_major_blocks_arrive_whole_at_any_tp_sizes)
{
	struct shape shape = { .planes = { 1, 1 }, .rows = 4, .head_bytes = 6 };

	all_sizes(&shape, 8);
}

UNIT_TEST(key_and_value_rows_in_a_block_arrive_whole)
{
	struct shape shape = { .planes = { 1, 1 }, .rows = 8, .head_bytes = 3 };

	all_sizes(&shape, 8);
}

UNIT_TEST(key_and_value_caches_apart_are_not_mixed_up)
{
	struct shape shape = { .planes = { 2, 1 }, .rows = 4, .head_bytes = 3 };

	all_sizes(&shape, 8);
}

UNIT_TEST(replicated_heads_are_read_from_one_rank)
{
	struct shape shape = {
		.planes = { 1, 1 }, .rows = 4, .head_bytes = 6, .replicated = 1
	};

	all_sizes(&shape, 4);
}

/* Does rank `ours` of our_size read anything from rank `theirs`? */
static int is_read(const struct shape *shape, uint32_t ours, uint32_t our_size,
		   uint32_t theirs, uint32_t their_size)
{
	static struct rank local;
	static struct rank remote;
	int is;

	rank_open(&local, shape, ours, our_size);
	rank_open(&remote, shape, theirs, their_size);
	is = peer_read(&local, &remote) > 0;
	rank_close(&local);
	rank_close(&remote);
	return is;
}

UNIT_TEST(replicated_source_is_local_rank_modulo_remote_size)
{
	const struct shape shape = { .layers = { 1, 1 },
				     .planes = { 1, 1 },
				     .rows = 1,
				     .head_bytes = 8,
				     .head_total = 1,
				     .replicated = 1 };
	uint32_t i;
	uint32_t k;

	for (i = 0; i < 8; i++)
		for (k = 0; k < 2; k++)
			assert_int_equal(is_read(&shape, i, 8, k, 2),
					 i % 2 == k);
}

UNIT_TEST(shared_heads_are_read_from_the_lowest_rank)
{
	const struct shape shape = { .layers = { 1, 1 },
				     .planes = { 1, 1 },
				     .rows = 1,
				     .head_bytes = 8,
				     .head_total = 2 };
	uint32_t i;

	/* Head 1: ranks 4 .. 7. */
	for (i = 0; i < 8; i++)
		assert_int_equal(is_read(&shape, 1, 2, i, 8), i == 4);
}
