/* SPDX-License-Identifier: Apache-2.0 */
/* Caches against the model: each bound from both of its sides. */
#include <string.h>

#include "plugin/progress/cache_facts.h"
#include "plugin/progress/overlap.h"
#include "tests/lib/unit.h"

#define LAYERS 4u
#define BLOCKS 2u
#define TOKENS 4u
#define HEAD_BYTES 8u
#define CACHE_BYTES (2u * BLOCKS * TOKENS * HEAD_BYTES) /* of two layers */

/* A model of four layers, and a cache for each two of them. */
struct model {
	struct kvpull_cache caches[4];
	struct kvpull_region_view regions[2];
	struct kvpull_place places[2];
	struct kvpull_plan_side side;
	struct kvpull_compat compat;
	struct kvpull_error_detail detail;
};

static struct model model;

static int setup(void **state)
{
	uint32_t at;

	(void)state;
	model = (struct model){
		.side = { .cache_count = 2, .region_count = 2 },
		.compat = { .layer_count = LAYERS,
			    .head_bytes = HEAD_BYTES,
			    .group_count = 1 },
		.detail = { .struct_size = sizeof(model.detail) },
	};
	model.side.caches = model.caches;
	model.side.regions = model.regions;
	for (at = 0; at < 2; at++) {
		model.regions[at].bytes = CACHE_BYTES;
		model.places[at].begin = UINT64_C(1) << 20;
		model.compat.groups[at].block_tokens = TOKENS;
		model.caches[at] = (struct kvpull_cache){
			.region_index = at,
			.layer_first = 2 * at,
			.layer_count = 2,
			.layer_stride = CACHE_BYTES / 2,
			.block_stride = TOKENS * HEAD_BYTES,
			.row_stride = HEAD_BYTES,
			.head_stride = HEAD_BYTES,
			.block_count = BLOCKS,
			.row_count = TOKENS,
			.head_count = 1,
			.head_bytes = HEAD_BYTES,
		};
	}
	model.places[1].begin += CACHE_BYTES;
	return 0;
}

#define TEST(name) UNIT_TEST_WITH(name, setup, NULL)

static int check(void)
{
	return kvpull_cache_facts_check(&model.side, model.places,
					&model.compat, &model.detail);
}

static void is_good(void)
{
	if (check())
		fail_msg("%s", model.detail.message);
}

static void is_refused(const char *words)
{
	assert_int_equal(check(), KVPULL_EINVAL);
	assert_int_equal(model.detail.code, KVPULL_EINVAL);
	if (!strstr(model.detail.message, words))
		fail_msg("\"%s\" is not in: %s", words, model.detail.message);
}

TEST(region_ends_where_memory_can)
{
	const uint64_t most = KVPULL_OVERLAP_END_MAX;

	is_good();
	model.places[1].begin = most - CACHE_BYTES;
	is_good();
	model.places[1].begin++;
	is_refused(
		"regions[1] begins at 2305843009213693825 and has 128 bytes: no memory and no file ends there");
	model.places[1].begin = 0;
	model.places[0].begin = CACHE_BYTES;
	model.regions[1].bytes = most;
	is_good();
	model.regions[1].bytes++;
	is_refused("regions[1] begins at 0 and has 2305843009213693953 bytes");
	model.regions[1].bytes = UINT64_MAX;
	is_refused("no memory and no file ends there");
}

/* A file has an inode and a device; memory has neither. */
TEST(caches_of_one_place_alone_can_share_bytes)
{
	static const struct {
		uint64_t devices[2];
		uint64_t inodes[2];
		int is_one;
	} rows[] = {
		{ { 0, 0 }, { 0, 0 }, 1 }, { { 3, 3 }, { 4, 4 }, 1 },
		{ { 3, 3 }, { 4, 5 }, 0 }, { { 3, 2 }, { 4, 4 }, 0 },
		{ { 0, 3 }, { 0, 0 }, 0 },
	};
	size_t at;
	uint32_t side;

	model.places[1].begin = model.places[0].begin + CACHE_BYTES - 1;
	for (at = 0; at < sizeof(rows) / sizeof(*rows); at++) {
		for (side = 0; side < 2; side++) {
			model.places[side].device = rows[at].devices[side];
			model.places[side].inode = rows[at].inodes[side];
		}
		if (rows[at].is_one)
			is_refused(
				"caches[1].offset 0 in region 1: blocks share bytes with those of caches[0], offset 0 in region 0");
		else
			is_good();
	}
	/* Side by side in one file. */
	model.places[1].begin++;
	model.places[0].device = model.places[1].device = 3;
	is_good();
}

TEST(layer_has_one_group)
{
	model.compat.group_count = 2;
	model.caches[1].group_index = 1;
	is_good();
	/* The second begins with the last layer of the first. */
	model.caches[1].layer_first = 1;
	is_refused(
		"caches[1].group_index 1: another cache has its layers in another group");
	model.caches[1].layer_first = 2;
	/* The first ends with the first layer of the second. */
	model.caches[0].layer_count = 3;
	is_refused(
		"caches[1].group_index 1: another cache has its layers in another group");
	model.caches[0].layer_count = 2;
	model.compat.group_count = 1;
	is_refused("caches[1].group_index 1: the engine has 1 groups");
}

TEST(layers_are_those_of_the_model)
{
	model.compat.layer_count = LAYERS - 1;
	is_refused(
		"caches[1].layer_count 2 from layer 2 on: the model has 3 layers");
	model.compat.layer_count = LAYERS + 1;
	is_refused(
		"layer 4 is in no cache: the model has 5 layers, register all of them");
	model.compat.layer_count = LAYERS;
	model.caches[0].layer_first = 1;
	is_refused("layer 0 is in no cache");
	model.caches[0].layer_first = 0;
	model.caches[0].layer_count = 1;
	is_refused("layer 1 is in no cache");
}

/* The caches are of layers 0 to 3. */
TEST(layers_of_a_stage_are_a_range)
{
	model.side.pp_size = 2;
	model.compat.layer_count = 6;
	is_good(); /* the first of two: 4 and 5 are the other's */
	model.caches[1].layer_first = 3;
	is_refused(
		"layer 2 is in no cache: the model has 6 layers, register all of this pp_rank's, which are one range");
	model.caches[1].layer_first = 2;
	model.caches[0].layer_first = 1;
	is_refused("layer 0 is in no cache");
	model.side.pp_rank = 1;
	model.caches[0].layer_first = 2;
	model.caches[1].layer_first = 4;
	is_good(); /* and the last one */
	model.compat.layer_count = 7;
	is_refused("layer 6 is in no cache");
	model.compat.layer_count = 6;
	model.caches[0].layer_first = 1;
	is_refused("layer 3 is in no cache");
	/* One in the middle has neither of the model's edges. */
	model.side.pp_size = 3;
	model.compat.layer_count = 9;
	model.caches[0].layer_first = 2;
	is_good();
	model.caches[1].row_count = TOKENS + 1;
	is_refused("layer 4: row_count x head_bytes");
}

/* Each plane is a cache: together they have the bytes of a head. */
TEST(bytes_of_a_layer_are_the_models)
{
	model.caches[0].row_count = TOKENS - 1;
	is_refused(
		"layer 0: row_count x head_bytes of its caches is 24 bytes a block, block_tokens 4 x the model's head_bytes 8 is 32: register all of its rows, K and V");
	model.caches[0].row_count = TOKENS;
	model.caches[1].row_count = TOKENS + 1;
	is_refused(
		"layer 2: row_count x head_bytes of its caches is 40 bytes a block, block_tokens 4 x the model's head_bytes 8 is 32: a cache has too many rows or bytes, or is registered twice");
	model.caches[1].row_count = TOKENS;
	/* A layer more than its cache says: no cache begins there. */
	model.caches[2] = model.caches[0];
	model.caches[2].layer_count = 1;
	model.caches[2].row_count = 1;
	model.caches[0].row_count = TOKENS - 1;
	model.caches[0].block_stride = model.caches[0].row_count * HEAD_BYTES;
	model.caches[2].offset = CACHE_BYTES;
	model.side.cache_count = 3;
	model.regions[0].bytes += CACHE_BYTES;
	model.places[1].begin += CACHE_BYTES;
	is_refused("layer 1: row_count x head_bytes of its caches is 24");
	model.caches[2].layer_count = 2;
	is_good();
}

/* Both are hostile: a sum that wraps around would be the model's. */
TEST(bytes_of_a_layer_beyond_64_bits_are_too_many)
{
	uint32_t at;

	model.compat.head_bytes = UINT32_MAX;
	model.compat.groups[0].block_tokens = UINT32_MAX;
	for (at = 0; at < 3; at++) {
		model.caches[at] = model.caches[0];
		model.caches[at].layer_count = LAYERS;
		model.caches[at].row_count = UINT32_MAX;
		model.caches[at].head_bytes = UINT32_MAX;
	}
	/* (2^32 - 1)^2 + 2^33 - 2 is 2^64 - 1; one more byte is none. */
	model.caches[1].row_count = UINT32_C(1) << 31;
	model.caches[1].head_bytes = 4;
	model.side.cache_count = 2;
	is_refused(
		"layer 0: row_count x head_bytes of its caches is 18446744073709551615 bytes a block");
	model.caches[1].row_count = 1;
	model.caches[1].head_bytes = 1;
	is_refused(
		"layer 0: row_count x head_bytes of its caches is 18446744065119617026 bytes a block");
}

TEST(bytes_of_a_token_are_said_where_the_model_has_none)
{
	model.compat.head_bytes = 0;
	is_refused(
		"caches[0].token_bytes is 0, and so is the model's head_bytes: say the bytes of a head of a token in each cache");
	model.caches[0].token_bytes = HEAD_BYTES;
	is_refused("token_bytes");
	model.caches[1].token_bytes = HEAD_BYTES + 1;
	is_refused(
		"caches[1].token_bytes is 9, 36 bytes in a block of 4 tokens: row_count 4 x head_bytes 8 is 32");
	model.caches[1].token_bytes = HEAD_BYTES;
	is_good();
}

/* A state's bytes follow from no tokens, nor from the model's head_bytes. */
TEST(state_has_no_bytes_a_token)
{
	model.compat.group_count = 2;
	model.caches[1].group_index = 1;
	model.caches[1].row_count = 1;
	model.caches[1].row_stride = 0;
	model.caches[1].head_bytes = TOKENS * HEAD_BYTES - 3;
	is_refused("layer 2: row_count x head_bytes");
	model.compat.groups[1].kind = KVPULL_GROUP_STATE;
	is_good();
	model.caches[1].token_bytes = HEAD_BYTES;
	is_refused(
		"is 8: the caches of group 1 are a state, which has no bytes a token: say 0");
	model.caches[1].token_bytes = 0;
	/* Caches of attention beside it are still looked at. */
	model.caches[0].row_count--;
	is_refused("layer 0: row_count x head_bytes");
	model.caches[0].row_count++;
	model.compat.head_bytes = 0;
	is_refused("caches[0].token_bytes is 0");
	model.caches[0].token_bytes = HEAD_BYTES;
	is_good();
}
