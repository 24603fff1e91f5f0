/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that have other heads than the model: each is split by its own. */
#include <string.h>

#include "plugin/progress/plan.h"
#include "tests/lib/unit.h"

#define KV_HEADS 2u
#define STATE_HEADS 8u
#define KV_BYTES 8u     /* of a head in a block of one row */
#define STATE_BYTES 32u /* of a head in a slot */
#define BLOCKS 4u

/* A rank with a cache of attention, and one of states behind it. */
struct rank {
	struct kvpull_cache caches[2];
	struct kvpull_region_view region;
	struct kvpull_group groups[2];
	struct kvpull_plan_side side;
};

static uint8_t memory[1u << 16];
static struct kvpull_strip strips[16];

static void cache_fill(struct kvpull_cache *cache, uint32_t group,
		       uint32_t head_bytes, uint32_t first, uint32_t count)
{
	*cache = (struct kvpull_cache){
		.group_index = group,
		.layer_first = group,
		.layer_count = 1,
		.offset = group * (UINT64_C(1) << 15),
		.block_stride = (uint64_t)count * head_bytes,
		.row_stride = 0,
		.head_stride = head_bytes,
		.block_count = BLOCKS,
		.row_count = 1,
		.head_first = first,
		.head_count = count,
		.head_bytes = head_bytes,
	};
}

/* The KV head that a rank has begins there. */
static uint32_t kv_first(uint32_t rank, uint32_t ranks)
{
	return ranks > KV_HEADS ? rank / (ranks / KV_HEADS) :
				  rank * (KV_HEADS / ranks);
}

static void rank_fill(struct rank *rank, uint32_t index, uint32_t ranks,
		      uint32_t replicated)
{
	const uint32_t kv = ranks > KV_HEADS ? 1 : KV_HEADS / ranks;
	const uint32_t states = STATE_HEADS / ranks;

	*rank = (struct rank){
		.region = { .base = memory, .bytes = sizeof(memory) },
		.groups = { { 16, KVPULL_GROUP_FULL, 0, 0 },
			    { 16, KVPULL_GROUP_STATE, STATE_HEADS, 0 } },
		.side = { .cache_count = 2,
			  .region_count = 1,
			  .tp_rank = index,
			  .tp_size = ranks,
			  .replicated = replicated,
			  .head_total = KV_HEADS,
			  .group_count = 2 },
	};
	cache_fill(&rank->caches[0], 0, KV_BYTES,
		   replicated ? 0 : kv_first(index, ranks),
		   replicated ? KV_HEADS : kv);
	cache_fill(&rank->caches[1], 1, STATE_BYTES, index * states, states);
	rank->side.caches = rank->caches;
	rank->side.regions = &rank->region;
	rank->side.groups = rank->groups;
}

/* Adds to each head that the strips of one group fill here how often they do. */
static void heads_count(const struct rank *here, const struct kvpull_plan *plan,
			uint32_t group, uint32_t filled[STATE_HEADS])
{
	const struct kvpull_cache *cache = &here->caches[group];
	uint32_t at;

	for (at = 0; at < plan->strip_count; at++) {
		const struct kvpull_strip *strip = &strips[at];
		const uint64_t from = (uint64_t)(strip->local - memory);
		const uint64_t bytes = strip->row_bytes * strip->row_count;
		uint64_t head;

		if (strip->group_index != group)
			continue;
		assert_true(from >= cache->offset);
		for (head = 0; head < bytes / cache->head_bytes; head++)
			filled[(from - cache->offset) / cache->head_bytes +
			       head]++;
	}
}

static struct kvpull_plan plan_of(const struct rank *here,
				  const struct rank *there)
{
	struct kvpull_plan plan = { .strips = strips, .strip_count_max = 16 };

	assert_int_equal(kvpull_plan_check(&here->side, NULL), 0);
	assert_int_equal(kvpull_plan_check(&there->side, NULL), 0);
	assert_int_equal(
		kvpull_plan_make(&plan, &here->side, &there->side, NULL), 0);
	return plan;
}

/* Each head that a rank has is read once, over all ranks of the peer. */
static void each_head_once(uint32_t index, uint32_t ranks, uint32_t peers,
			   uint32_t replicated)
{
	uint32_t filled[2][STATE_HEADS] = { { 0 } };
	struct rank here;
	struct rank there;
	uint32_t peer;
	uint32_t head;

	rank_fill(&here, index, ranks, replicated);
	for (peer = 0; peer < peers; peer++) {
		struct kvpull_plan plan;

		rank_fill(&there, peer, peers, replicated);
		plan = plan_of(&here, &there);
		heads_count(&here, &plan, 0, filled[0]);
		heads_count(&here, &plan, 1, filled[1]);
	}
	for (head = 0; head < STATE_HEADS; head++) {
		assert_int_equal(filled[0][head],
				 head < here.caches[0].head_count);
		assert_int_equal(filled[1][head],
				 head < here.caches[1].head_count);
	}
}

UNIT_TEST(each_head_of_each_group_is_read_once)
{
	uint32_t ranks;
	uint32_t peers;
	uint32_t index;

	for (ranks = 1; ranks <= 8; ranks *= 2)
		for (peers = 1; peers <= 8; peers *= 2)
			for (index = 0; index < ranks; index++) {
				each_head_once(index, ranks, peers, 0);
				each_head_once(index, ranks, peers, 1);
			}
}

/* Where the slices lie: heads 2 and 3 of a peer that has four. */
UNIT_TEST(heads_of_a_state_come_from_where_the_peer_has_them)
{
	struct kvpull_plan plan;
	struct rank here;
	struct rank there;

	rank_fill(&here, 1, 4, 0);
	rank_fill(&there, 0, 2, 0);
	plan = plan_of(&here, &there);
	assert_int_equal(plan.strip_count, 2);
	assert_int_equal(strips[1].group_index, 1);
	assert_int_equal(strips[1].remote_offset, (1u << 15) + 2 * STATE_BYTES);
	assert_int_equal(strips[1].row_bytes, 2 * STATE_BYTES);
	assert_int_equal(plan.group_block_bytes[1], 2 * STATE_BYTES);
}

static void is_refused(const struct rank *rank, const char *field,
		       const char *words)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	assert_int_equal(kvpull_plan_check(&rank->side, &detail),
			 KVPULL_EINVAL);
	assert_string_equal(detail.field, field);
	if (!strstr(detail.message, words))
		fail_msg("\"%s\" is not in: %s", words, detail.message);
}

UNIT_TEST(heads_that_no_rank_can_have_are_refused)
{
	struct rank rank;

	rank_fill(&rank, 1, 4, 0);
	rank.groups[1].head_count = 6;
	is_refused(&rank, "groups.head_count", "6, not allowed with 4");
	/* The same holds of a model whose KV heads are not split. */
	rank_fill(&rank, 1, 4, 1);
	rank.groups[1].head_count = 6;
	is_refused(&rank, "groups.head_count", "6, not allowed with 4");
	rank_fill(&rank, 1, 4, 0);
	rank.caches[1].head_count = 1;
	is_refused(&rank, "caches[1].head_count",
		   "is 1: rank 1 of 4 has 2 of the 8 heads");
	rank_fill(&rank, 1, 4, 0);
	rank.caches[1].head_first = 0;
	is_refused(&rank, "caches[1].head_first",
		   "is 0: the heads of rank 1 of 4 begin at 2");
	/* A group without heads of its own has the model's. */
	rank_fill(&rank, 1, 4, 0);
	rank.groups[1].head_count = 0;
	is_refused(&rank, "caches[1].head_count",
		   "is 2: rank 1 of 4 has 1 of the 2 heads");
}

/* A state that nobody can split is one head a rank: each reads its own peer. */
UNIT_TEST(state_of_a_rank_is_read_from_the_same_rank)
{
	uint32_t index;
	uint32_t peer;

	for (index = 0; index < 4; index++)
		for (peer = 0; peer < 4; peer++) {
			struct rank ranks[2];
			uint32_t at;

			for (at = 0; at < 2; at++) {
				rank_fill(&ranks[at], at ? peer : index, 4, 0);
				ranks[at].groups[1].head_count = 4;
				cache_fill(&ranks[at].caches[1], 1, STATE_BYTES,
					   at ? peer : index, 1);
			}
			assert_int_equal(plan_of(&ranks[0], &ranks[1])
						 .group_block_bytes[1],
					 index == peer ? STATE_BYTES : 0);
		}
}
