/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages of unlike numbers and lengths: each row of each layer that a rank has is
 * read once, from a rank of the peer's that has it, over all of its ranks.
 */
#include <string.h>

#include "plugin/progress/plan.h"
#include "tests/lib/unit.h"

#define LAYERS 7u
#define HEADS 4u
#define PLANES 2u /* K and V of group 0; group 1 has one */
#define HEAD_BYTES 16u
#define BLOCKS 3u
#define SPLIT 4u /* layers from here on are of group 1 */
#define CACHES (LAYERS * PLANES)
#define BYTES (CACHES * BLOCKS * HEADS * HEAD_BYTES)

/* Where the stages of an engine end; the last of them with the model. */
struct split {
	uint32_t pp_size;
	uint32_t ends[4];
};

static const struct split splits[] = {
	{ 1, { 7 } },          { 2, { 3, 7 } },    { 2, { 6, 7 } },
	{ 2, { 4, 7 } },       { 3, { 1, 5, 7 } }, { 4, { 1, 2, 5, 7 } },
	{ 4, { 2, 4, 6, 7 } },
};
#define SPLITS (sizeof(splits) / sizeof(*splits))

struct rank {
	struct kvpull_cache caches[CACHES];
	struct kvpull_region_view region;
	struct kvpull_group groups[2];
	struct kvpull_plan_side side;
	struct kvpull_stage stage;
};

static uint8_t memory[2][BYTES];
static struct kvpull_strip strips[2 * CACHES * HEADS];

static int plan_make(struct kvpull_plan *plan, const struct rank *here,
		     const struct rank *there,
		     struct kvpull_error_detail *detail)
{
	*plan = (struct kvpull_plan){ .strips = strips,
				      .strip_count_max = 2 * CACHES * HEADS };
	return kvpull_plan_make(plan, &here->side, &there->side, detail);
}

/* One cache a layer and plane, in the order of layers. */
static void caches_fill(struct rank *rank, uint32_t heads, uint32_t head_first)
{
	uint32_t layer;
	uint32_t plane;

	for (layer = rank->stage.layer_first; layer < rank->stage.layer_end;
	     layer++)
		for (plane = 0; plane < (layer < SPLIT ? PLANES : 1); plane++) {
			const uint32_t at = rank->side.cache_count++;

			rank->caches[at] = (struct kvpull_cache){
				.group_index = layer >= SPLIT,
				.layer_first = layer,
				.layer_count = 1,
				.offset = (uint64_t)at * BLOCKS * HEADS *
					  HEAD_BYTES,
				.block_stride = (uint64_t)heads * HEAD_BYTES,
				.head_stride = HEAD_BYTES,
				.block_count = BLOCKS,
				.row_count = 1,
				.head_first = head_first,
				.head_count = heads,
				.head_bytes = HEAD_BYTES,
			};
		}
}

static void rank_fill(struct rank *rank, const struct split *split,
		      uint32_t tp_size, uint32_t index, uint8_t *base,
		      uint32_t replicated)
{
	const uint32_t pp_rank = index / tp_size;
	const uint32_t heads = replicated ? HEADS : HEADS / tp_size;

	*rank = (struct rank){
		.region = { .base = base, .bytes = BYTES },
		.groups = { { 16, KVPULL_GROUP_FULL, 0, 0 },
			    { 16, KVPULL_GROUP_SLIDING, 0, 0 } },
		.stage = { .rank = index,
			   .rank_count = tp_size * split->pp_size,
			   .pp_size = split->pp_size,
			   .layer_first =
				   pp_rank ? split->ends[pp_rank - 1] : 0,
			   .layer_end = split->ends[pp_rank] },
		.side = { .region_count = 1,
			  .tp_rank = index % tp_size,
			  .tp_size = tp_size,
			  .replicated = replicated,
			  .head_total = HEADS,
			  .group_count = 2 },
	};
	rank->side.caches = rank->caches;
	rank->side.regions = &rank->region;
	rank->side.groups = rank->groups;
	caches_fill(rank, heads, replicated ? 0 : rank->side.tp_rank * heads);
}

/* What a head of block 0 has: its layer, plane and head in the model. */
static uint8_t stamp(const struct kvpull_cache *cache, uint32_t plane,
		     uint32_t head)
{
	return (uint8_t)(1 + (cache->layer_first * PLANES + plane) * HEADS +
			 cache->head_first + head);
}

static uint32_t plane_of(const struct rank *rank, uint32_t at)
{
	return at &&
	       rank->caches[at - 1].layer_first == rank->caches[at].layer_first;
}

static void memory_stamp(const struct rank *rank)
{
	uint32_t at;
	uint32_t head;

	memset(rank->region.base, 0, BYTES);
	for (at = 0; at < rank->side.cache_count; at++)
		for (head = 0; head < rank->caches[at].head_count; head++)
			memset(rank->region.base + rank->caches[at].offset +
				       (size_t)head * HEAD_BYTES,
			       stamp(&rank->caches[at], plane_of(rank, at),
				     head),
			       HEAD_BYTES);
}

/* Copies block 0; counts in the block how often each byte came. */
static void strips_copy(const struct kvpull_plan *plan,
			const struct rank *there, uint8_t counts[BYTES])
{
	uint32_t at;
	uint32_t row;
	uint64_t i;

	for (at = 0; at < plan->strip_count; at++)
		for (row = 0; row < plan->strips[at].row_count; row++)
			for (i = 0; i < plan->strips[at].row_bytes; i++) {
				const struct kvpull_strip *strip =
					&plan->strips[at];
				uint8_t *to = strip->local + i +
					      row * strip->local_row_stride;

				*to = there->region.base
					      [strip->remote_offset + i +
					       row * strip->remote_row_stride];
				counts[to - memory[0]]++;
			}
}

/* Each byte of block 0 of each cache came once, and is the right one. */
static void rank_is_whole(const struct rank *here, const uint8_t counts[BYTES])
{
	uint32_t at;
	uint32_t head;
	uint32_t i;

	for (at = 0; at < here->side.cache_count; at++)
		for (head = 0; head < here->caches[at].head_count; head++)
			for (i = 0; i < HEAD_BYTES; i++) {
				const size_t byte = here->caches[at].offset +
						    (size_t)head * HEAD_BYTES +
						    i;

				assert_int_equal(counts[byte], 1);
				assert_int_equal(memory[0][byte],
						 stamp(&here->caches[at],
						       plane_of(here, at),
						       head));
			}
}

static void ids_fit(const struct kvpull_plan *plan)
{
	const uint32_t first[KVPULL_GROUPS_MAX + 1] = { 0, 1, 2, 2, 2,
							2, 2, 2, 2 };
	const uint32_t ids[2] = { BLOCKS - 1, BLOCKS - 1 };
	const struct kvpull_read read = { .remote_ids = ids,
					  .local_ids = ids,
					  .group_first = first };
	uint64_t byte_count;

	assert_int_equal(kvpull_plan_check_ids(plan, &read, &byte_count), 0);
	assert_int_equal(byte_count, plan->group_block_bytes[0] +
					     plan->group_block_bytes[1]);
}

static void pull_is_whole(const struct split *ours, uint32_t our_tp,
			  const struct split *theirs, uint32_t their_tp,
			  uint32_t replicated)
{
	static uint8_t counts[BYTES];
	struct rank here;
	struct rank there;
	uint32_t index;
	uint32_t peer;

	for (index = 0; index < ours->pp_size * our_tp; index++) {
		memset(memory[0], 0, BYTES);
		memset(counts, 0, sizeof(counts));
		rank_fill(&here, ours, our_tp, index, memory[0], replicated);
		assert_int_equal(kvpull_plan_check(&here.side, NULL), 0);
		for (peer = 0; peer < theirs->pp_size * their_tp; peer++) {
			struct kvpull_plan plan;

			rank_fill(&there, theirs, their_tp, peer, memory[1],
				  replicated);
			memory_stamp(&there);
			assert_int_equal(kvpull_plan_check(&there.side, NULL),
					 0);
			assert_int_equal(plan_make(&plan, &here, &there, NULL),
					 0);
			if (plan.strip_count)
				ids_fit(&plan);
			strips_copy(&plan, &there, counts);
		}
		rank_is_whole(&here, counts);
	}
}

UNIT_TEST(each_layer_is_read_once_at_any_stages)
{
	uint32_t ours;
	uint32_t theirs;
	uint32_t tp;

	for (ours = 0; ours < SPLITS; ours++)
		for (theirs = 0; theirs < SPLITS; theirs++)
			for (tp = 0; tp < 4; tp++) {
				pull_is_whole(&splits[ours], 1 + tp % 2,
					      &splits[theirs], 1 + tp / 2, 0);
				pull_is_whole(&splits[ours], 1 + tp % 2,
					      &splits[theirs], 1 + tp / 2, 1);
			}
}

/* Nothing is read from a rank that has none of our layers. */
UNIT_TEST(stages_that_do_not_meet_read_nothing)
{
	struct kvpull_plan plan;
	struct rank here;
	struct rank there;

	rank_fill(&here, &splits[1], 1, 0, memory[0], 0);
	rank_fill(&there, &splits[1], 1, 1, memory[1], 0);
	assert_int_equal(plan_make(&plan, &here, &there, NULL), 0);
	assert_int_equal(plan.strip_count, 0);
}

UNIT_TEST(layers_that_caches_span_are_the_stage)
{
	struct kvpull_stage stage = { .rank = 5 };
	struct rank rank;

	rank_fill(&rank, &splits[4], 1, 1, memory[0], 0);
	/* In any order. */
	rank.caches[CACHES - 1] = rank.caches[0];
	rank.caches[0] = rank.caches[rank.side.cache_count - 1];
	rank.caches[rank.side.cache_count - 1] = rank.caches[CACHES - 1];
	kvpull_plan_layers(&rank.side, &stage);
	assert_int_equal(stage.layer_first, 1);
	assert_int_equal(stage.layer_end, 5);
	assert_int_equal(stage.rank, 5);
}

/* In the layers that both have, too, each has to be there. */
UNIT_TEST(hole_in_a_stage_of_the_peer_is_rejected)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_plan plan;
	struct rank here;
	struct rank there;

	rank_fill(&here, &splits[0], 1, 0, memory[0], 0);
	rank_fill(&there, &splits[4], 1, 1, memory[1], 0);
	/* Layers 1 to 4: layer 2 is another layer 1. */
	there.caches[2].layer_first = there.caches[3].layer_first = 1;
	assert_int_equal(plan_make(&plan, &here, &there, &detail),
			 KVPULL_EREJECTED);
	assert_string_equal(detail.message,
			    "group 0 layer 2: the peer has no cache for it");
}
