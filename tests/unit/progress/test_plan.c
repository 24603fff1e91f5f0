/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts that the plan accepts, refuses and merges; test_plan_copy.c has the
 * bytes.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/progress/plan.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"

#define STRIPS 64u

static struct kvpull_strip strips[STRIPS];

static uint64_t random_state = 1;

static uint32_t random_below(uint32_t bound)
{
	return (uint32_t)(random_next(&random_state) >> 33) % bound;
}

/*
 * A side of a cache in plain layout, for tests that change one thing. Behind its
 * caches and regions are others, which nothing must look at.
 */
struct plain {
	struct kvpull_cache caches[4];
	struct kvpull_region_view regions[2];
	struct kvpull_plan_side side;
};

static uint8_t plain_memory[4096];

static void plain_init(struct plain *plain)
{
	*plain = (struct plain){
		.caches = { {
			.layer_count = 2,
			.layer_stride = 1024,
			.block_stride = 128,
			.row_stride = 32,
			.head_stride = 8,
			.block_count = 8,
			.row_count = 4,
			.head_count = 4,
			.head_bytes = 8,
		} },
		.regions = { { .base = plain_memory,
			       .bytes = sizeof(plain_memory) } },
		.side = {
			.cache_count = 1,
			.region_count = 1,
			.tp_size = 1,
			.head_total = 4,
		},
	};
	plain->caches[1].region_index = 1;
	plain->side.caches = plain->caches;
	plain->side.regions = plain->regions;
}

/* Two sides in plain layout, and what is made of them. */
struct pair {
	struct plain local;
	struct plain remote;
	struct kvpull_cache *near; /* the first cache of each */
	struct kvpull_cache *far;
	struct kvpull_plan plan;
	struct kvpull_error_detail detail;
};

static int setup(void **state)
{
	static struct pair pair;

	pair = (struct pair){
		.near = pair.local.caches,
		.far = pair.remote.caches,
		.plan = { .strips = strips, .strip_count_max = STRIPS },
		.detail = { .struct_size = sizeof(pair.detail) },
	};
	plain_init(&pair.local);
	plain_init(&pair.remote);
	*state = &pair;
	return 0;
}

#define TEST(name) UNIT_TEST_OF(name, struct pair, pair, setup, NULL)

static int make(struct pair *pair)
{
	assert_int_equal(kvpull_plan_check(&pair->local.side, NULL), 0);
	assert_int_equal(kvpull_plan_check(&pair->remote.side, NULL), 0);
	return kvpull_plan_make(&pair->plan, &pair->local.side,
				&pair->remote.side, &pair->detail);
}

/* The plan has so many strips, of such rows each. */
static void expect_strips(struct pair *pair, uint32_t strip_count,
			  uint32_t row_count, uint64_t row_bytes)
{
	uint32_t i;

	assert_int_equal(make(pair), 0);
	assert_int_equal(pair->plan.strip_count, strip_count);
	for (i = 0; i < strip_count; i++) {
		assert_int_equal(strips[i].row_count, row_count);
		assert_int_equal(strips[i].row_bytes, row_bytes);
	}
}

TEST(equal_layout_gives_one_row_a_block_and_layer)
{
	pair->far->offset = 64; /* elsewhere, but alike */
	expect_strips(pair, 2, 1, 128);
	assert_int_equal(strips[1].remote_offset, 64 + 1024);
	assert_ptr_equal(strips[1].local, plain_memory + 1024);
	assert_int_equal(pair->plan.group_block_bytes[0], 256);
}

TEST(layers_contiguous_in_a_block_become_one_row)
{
	pair->near->layer_stride = pair->far->layer_stride = 128;
	pair->near->block_stride = 256;
	pair->far->block_stride = 300;
	expect_strips(pair, 1, 1, 256);
	assert_int_equal(strips[0].remote_block_stride, 300);
}

TEST(rows_are_merged_only_where_both_sides_are_contiguous)
{
	pair->far->row_stride = 36;
	pair->far->block_stride = 150;
	pair->far->layer_stride = 8 * 150;
	expect_strips(pair, 2, 4, 32);
	assert_int_equal(strips[0].remote_row_stride, 36);
	assert_int_equal(strips[0].local_row_stride, 32);
}

TEST(head_slice_of_token_rows_is_a_row_a_token)
{
	pair->local.side.tp_size = 2;
	pair->local.side.tp_rank = 1;
	pair->near->head_first = 2;
	pair->near->head_count = 2;
	pair->near->row_stride = 16;
	expect_strips(pair, 2, 4, 16);
	assert_int_equal(strips[0].remote_offset, 16);
	assert_int_equal(pair->plan.group_block_bytes[0], 2 * 4 * 16);
}

TEST(strips_beyond_the_table_are_refused)
{
	pair->plan.strip_count_max = 1;
	assert_int_equal(make(pair), KVPULL_EFULL);
	assert_int_equal(pair->plan.strip_count, 0);
	assert_int_equal(pair->detail.code, KVPULL_EFULL);
	pair->plan.strip_count_max = 2;
	assert_int_equal(make(pair), 0);
}

TEST(failure_after_some_strips_leaves_none)
{
	struct plain *side = &pair->local;

	side->caches[1] = side->caches[0];
	side->caches[1].group_index = 1;
	side->side.cache_count = 2;
	pair->plan.strip_count_max = 3;
	assert_int_equal(
		kvpull_plan_make(&pair->plan, &side->side, &side->side, NULL),
		KVPULL_EFULL);
	assert_int_equal(pair->plan.strip_count, 0);
	pair->plan.strip_count_max = 4;
	assert_int_equal(
		kvpull_plan_make(&pair->plan, &side->side, &side->side, NULL),
		0);
	assert_int_equal(pair->plan.strip_count, 4);
}

TEST(padded_heads_become_the_rows_of_one_strip)
{
	pair->near->row_count = 1;
	pair->far->row_count = 1;
	pair->far->head_stride = 16;
	expect_strips(pair, 2, 4, 8);
	assert_int_equal(strips[0].remote_row_stride, 16);
	assert_int_equal(strips[0].local_row_stride, 8);
}

TEST(smallest_cache_of_a_group_bounds_its_ids)
{
	static const uint32_t counts[][2] = { { 8, 6 }, { 6, 8 } };
	uint32_t i;

	pair->near[0].layer_count = 1;
	pair->near[1] = pair->near[0];
	pair->near[1].layer_first = 1;
	pair->local.side.cache_count = 2;
	for (i = 0; i < 2; i++) {
		pair->near[0].block_count = counts[i][0];
		pair->near[1].block_count = counts[i][1];
		assert_int_equal(make(pair), 0);
		assert_int_equal(pair->plan.local_block_count[0], 6);
		assert_int_equal(pair->plan.remote_block_count[0], 8);
		assert_true(pair->plan.local_block_count[1] == UINT32_MAX);
	}
}

/* How one side of a pair may differ, and what must then be named. */
#define DIFFER(name, change)                                                   \
	static void differ_##name(struct plain *plain)                         \
	{                                                                      \
		change;                                                        \
	}

DIFFER(rows, plain->caches[0].row_count = 3)
DIFFER(head_bytes, plain->caches[0].head_bytes = 7)
DIFFER(group, plain->caches[0].group_index = 1)
DIFFER(replicated, plain->side.replicated = 1)
DIFFER(head_total, plain->side.head_total = plain->caches[0].head_count = 2)

static void differ_planes(struct plain *plain)
{
	plain->side.cache_count = 2;
	plain->caches[1] = plain->caches[0];
	plain->caches[1].layer_count = 1;
}

/* Layer 0 twice, no layer 1, and a layer behind it. */
static void differ_hole(struct plain *plain)
{
	plain->side.cache_count = 3;
	plain->caches[0].layer_count = 1;
	plain->caches[1] = plain->caches[2] = plain->caches[0];
	plain->caches[2].layer_first = 2;
}

TEST(sides_that_differ_are_rejected_by_name)
{
	static const struct {
		void (*differ)(struct plain *plain);
		const char *field;
		const char *message[2]; /* the peer differs, we differ */
	} cases[] = {
		{ differ_rows,
		  "row_count",
		  { "group 0 layer 0: row_count 4 here, 3 at the peer",
		    "group 0 layer 0: row_count 3 here, 4 at the peer" } },
		{ differ_head_bytes,
		  "head_bytes",
		  { "group 0 layer 0: head_bytes 8 here, 7 at the peer",
		    "group 0 layer 0: head_bytes 7 here, 8 at the peer" } },
		{ differ_planes,
		  "layer_count",
		  { "group 0, layers 0 to 1: 2 here, 3 at the peer",
		    "group 0, layers 0 to 1: 3 here, 2 at the peer" } },
		{ differ_hole,
		  "layer_first",
		  { "group 0 layer 1: the peer has no cache for it",
		    "group 0 layer 0: the peer has no cache for it" } },
		{ differ_group,
		  "layer_count",
		  { "group 0, layers 0 to 1: 2 here, 0 at the peer",
		    "group 0, layers 0 to 1: 0 here, 2 at the peer" } },
		{ differ_replicated,
		  "replicated",
		  { "replicated is 0 here, 1 at the peer",
		    "replicated is 1 here, 0 at the peer" } },
		{ differ_head_total,
		  "head_count",
		  { "the model has 4 heads here, 2 at the peer",
		    "the model has 2 heads here, 4 at the peer" } },
	};
	uint32_t i;

	/* Either may be the one that has more. */
	for (i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		plain_init(&pair->local);
		plain_init(&pair->remote);
		cases[i / 2].differ(i % 2 ? &pair->local : &pair->remote);
		assert_int_equal(make(pair), KVPULL_EREJECTED);
		assert_string_equal(pair->detail.field, cases[i / 2].field);
		assert_string_equal(pair->detail.message,
				    cases[i / 2].message[i % 2]);
		assert_int_equal(pair->detail.code, KVPULL_EREJECTED);
		assert_int_equal(pair->plan.strip_count, 0);
	}
}

TEST(memory_that_cannot_be_written_is_not_read_into)
{
	pair->remote.regions[0].base = NULL;
	assert_int_equal(make(pair), 0);
	assert_int_equal(kvpull_plan_make(&pair->plan, &pair->remote.side,
					  &pair->local.side, NULL),
			 KVPULL_EREJECTED);
}

/* Set one member of a cache. */
struct change {
	size_t offset;
	size_t bytes; /* 0: nothing */
	uint64_t value;
};

static void change_apply(struct kvpull_cache *cache,
			 const struct change *change)
{
	/* Little-endian, as all machines that this runs on. */
	memcpy((uint8_t *)cache + change->offset, &change->value,
	       change->bytes);
}

#define SET(member, value)                                                     \
	{                                                                      \
		offsetof(struct kvpull_cache, member),                         \
			sizeof(((struct kvpull_cache *)0)->member), value      \
	}

/* A member is bad and is named, or a change makes it so. */
#define BAD(member, value, why)                                                \
	{                                                                      \
#member, why,                                                  \
		{                                                              \
			SET(member, value)                                     \
		}                                                              \
	}
#define BAD_WITH(member, why, ...)                                             \
	{                                                                      \
#member, why,                                                  \
		{                                                              \
			__VA_ARGS__                                            \
		}                                                              \
	}

static const struct {
	const char *field; /* that must be named */
	const char *why;
	struct change changes[2];
} bad_caches[] = {
	BAD(region_index, 1, "1: there are 1 regions"),
	BAD(region_index, UINT32_MAX, "4294967295: there are 1 regions"),
	BAD(group_index, KVPULL_GROUPS_MAX, "8: at most 8 groups"),
	BAD(layer_count, 0, "0 from layer 0 on: not a range"),
	BAD_WITH(layer_count, "4294967295 from layer 1 on: not a range",
		 SET(layer_count, UINT32_MAX), SET(layer_first, 1)),
	BAD(block_count, 0, "is 0"),
	BAD(row_count, 0, "is 0"),
	BAD(head_bytes, 0, "is 0"),
	BAD(head_count, 0, "is 0: rank 0 of 1 has 4 of the 4 heads"),
	BAD(head_count, 3, "is 3: rank 0 of 1 has 4 of the 4 heads"),
	BAD(head_count, UINT32_MAX,
	    "is 4294967295: rank 0 of 1 has 4 of the 4 heads"),
	BAD(head_first, 1, "is 1: the heads of rank 0 of 1 begin at 0"),
	BAD(head_first, UINT32_MAX,
	    "is 4294967295: the heads of rank 0 of 1 begin at 0"),
	BAD(row_stride, 31, "31 with head_stride 8: rows overlap"),
	BAD(row_stride, 0, "0 with head_stride 8: rows overlap"),
	BAD_WITH(row_stride, "32 with head_stride 7: rows overlap",
		 SET(head_stride, 7)),
	BAD_WITH(row_stride, "a block is larger than memory",
		 SET(head_stride, UINT64_MAX)),
	BAD(block_stride, 127, "is 127: a block spans 128 bytes"),
	BAD(block_stride, 0, "is 0: a block spans 128 bytes"),
	BAD(layer_stride, 1023, "1023 with block_stride 128: layers overlap"),
	BAD(layer_stride, 0, "0 with block_stride 128: layers overlap"),
	BAD_WITH(layer_stride, "128 with block_stride 255: layers overlap",
		 SET(layer_stride, 128), SET(block_stride, 255)),
	BAD(offset, 4096 - 2048 + 1,
	    "is 2049: blocks end after the 4096 bytes of region 0"),
	BAD(offset, UINT64_MAX,
	    "is 18446744073709551615: blocks end after the 4096 bytes of region 0"),
	BAD_WITH(offset, "is 0: blocks end after the 4096 bytes of region 0",
		 SET(layer_stride, 4096 - 1024 + 1)),
	BAD_WITH(offset, "is 0: blocks end after the 4096 bytes of region 0",
		 SET(layer_stride, UINT64_MAX)),
	BAD_WITH(offset, "is 0: blocks end after the 4096 bytes of region 0",
		 SET(block_count, 33), SET(layer_count, 1)),
	BAD_WITH(offset, "is 0: blocks end after the 4096 bytes of region 0",
		 SET(block_count, UINT32_MAX), SET(layer_count, 1)),
	BAD_WITH(offset, "is 0: blocks end after the 4096 bytes of region 0",
		 SET(block_stride, UINT64_MAX), SET(layer_count, 1)),
};

UNIT_TEST(bad_caches_are_refused_by_member_with_both_numbers)
{
	uint32_t i;

	for (i = 0; i < sizeof(bad_caches) / sizeof(bad_caches[0]); i++) {
		struct kvpull_error_detail detail = { .struct_size =
							      sizeof(detail) };
		struct plain plain;
		char message[256];
		char field[64];

		plain_init(&plain);
		plain.caches[1] = plain.caches[0];
		plain.side.cache_count = 2;
		assert_int_equal(kvpull_plan_check(&plain.side, NULL), 0);
		change_apply(&plain.caches[1], &bad_caches[i].changes[0]);
		change_apply(&plain.caches[1], &bad_caches[i].changes[1]);
		assert_int_equal(kvpull_plan_check(&plain.side, &detail),
				 KVPULL_EINVAL);
		(void)snprintf(field, sizeof(field), "caches[1].%s",
			       bad_caches[i].field);
		assert_string_equal(detail.field, field);
		(void)snprintf(message, sizeof(message), "%s %s", field,
			       bad_caches[i].why);
		assert_string_equal(detail.message, message);
	}
}

UNIT_TEST(cache_that_just_fits_is_accepted)
{
	static const struct change changes[][2] = {
		{ SET(offset, 4096 - 2048) },
		{ SET(layer_stride, 4096 - 1024) },
		/* [block][layer] */
		{ SET(layer_stride, 128), SET(block_stride, 256) },
		/* [head][row] */
		{ SET(row_stride, 8), SET(head_stride, 32) },
	};
	uint32_t i;

	for (i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		struct plain plain;

		plain_init(&plain);
		change_apply(&plain.caches[0], &changes[i][0]);
		change_apply(&plain.caches[0], &changes[i][1]);
		assert_int_equal(kvpull_plan_check(&plain.side, NULL), 0);
	}
}

UNIT_TEST(bad_sides_are_refused_by_member)
{
	static const struct {
		const char *field;
		uint32_t region_count;
		uint32_t cache_count;
		uint32_t tp_size;
		uint32_t tp_rank;
		uint32_t replicated;
		uint32_t head_total;
	} cases[] = {
		{ "region_count", 0, 0, 0, 0, 0, 0 },
		{ "region_count", KVPULL_REGIONS_MAX + 1, 0, 0, 0, 0, 0 },
		{ "cache_count", 1, 0, 0, 0, 0, 0 },
		{ "cache_count", 1, KVPULL_CACHES_MAX + 1, 0, 0, 0, 0 },
		{ "tp_size", 1, 1, 0, 0, 0, 0 },
		{ "tp_size", 1, 1, KVPULL_RANKS_MAX + 1, 0, 0, 0 },
		{ "tp_rank", 1, 1, 2, 2, 0, 0 },
		{ "replicated", 1, 1, 1, 0, 2, 0 },
		{ "head_total", 1, 1, 1, 0, 0, 0 },
		{ "head_total", 1, 1, 4, 0, 0, 6 },
	};
	uint32_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvpull_error_detail detail = { .struct_size =
							      sizeof(detail) };
		/* No caches behind it: it must be refused before they count. */
		const struct kvpull_plan_side side = {
			.region_count = cases[i].region_count,
			.cache_count = cases[i].cache_count,
			.tp_size = cases[i].tp_size,
			.tp_rank = cases[i].tp_rank,
			.replicated = cases[i].replicated,
			.head_total = cases[i].head_total,
		};

		assert_int_equal(kvpull_plan_check(&side, &detail),
				 KVPULL_EINVAL);
		assert_string_equal(detail.field, cases[i].field);
	}
}

/* Is every address of a cache inside its region? By exact arithmetic. */
static int is_inside(const struct kvpull_cache *cache, uint64_t bytes)
{
	__extension__ typedef unsigned __int128 wide;
	wide end = cache->offset;

	end += (wide)(cache->layer_count - 1) * cache->layer_stride;
	end += (wide)(cache->block_count - 1) * cache->block_stride;
	end += (wide)(cache->row_count - 1) * cache->row_stride;
	end += (wide)(cache->head_count - 1) * cache->head_stride;
	return end + cache->head_bytes <= bytes;
}

UNIT_TEST(hostile_caches_never_pass_with_a_byte_outside)
{
	static const uint64_t values[] = { 0,
					   1,
					   2,
					   7,
					   0x7fffffff,
					   0x80000000,
					   0xffffffff,
					   0x100000000,
					   UINT64_C(1) << 62,
					   UINT64_C(1) << 63,
					   UINT64_MAX - 127,
					   UINT64_MAX };
	uint32_t passed = 0;
	uint32_t round;

	for (round = 0; round < 200000; round++) {
		struct plain plain;
		struct kvpull_cache *cache = &plain.caches[0];
		uint64_t *wides[] = { &cache->offset, &cache->layer_stride,
				      &cache->block_stride, &cache->row_stride,
				      &cache->head_stride };
		uint32_t *narrows[] = { &cache->layer_count,
					&cache->block_count, &cache->row_count,
					&cache->head_count,
					&cache->head_bytes };
		uint32_t changes = 1 + random_below(4);

		plain_init(&plain);
		if (random_below(2))
			plain.regions[0].bytes = values[random_below(12)];
		plain.side.replicated = 1;
		while (changes--) {
			const uint64_t value = values[random_below(12)];

			if (random_below(2))
				*wides[random_below(5)] = value;
			else
				*narrows[random_below(5)] = (uint32_t)value;
		}
		plain.side.head_total = cache->head_count;
		if (kvpull_plan_check(&plain.side, NULL))
			continue;
		passed++;
		assert_true(is_inside(cache, plain.regions[0].bytes));
	}
	assert_true(passed > 1000);
}

/* As check_ids(), for groups that begin there. */
static int ids_checked(const struct kvpull_plan *plan, const uint32_t *first,
		       const uint32_t *far, const uint32_t *near,
		       uint64_t *byte_count)
{
	const struct kvpull_read read = { .remote_ids = far,
					  .local_ids = near,
					  .group_first = first };

	return kvpull_plan_check_ids(plan, &read, byte_count);
}

static void ids_truncated(const struct kvpull_plan *plan, const uint32_t *first,
			  const uint32_t *far, const uint32_t *near)
{
	uint64_t byte_count = 1;

	assert_int_equal(ids_checked(plan, first, far, near, &byte_count),
			 KVPULL_ETRUNCATED);
	assert_int_equal(byte_count, 1);
}

UNIT_TEST(ids_are_checked_against_both_sides)
{
	const uint32_t first[KVPULL_GROUPS_MAX + 1] = { 0, 2, 3, 3, 3,
							3, 3, 3, 3 };
	uint32_t far[] = { 9, 0, 3 };
	uint32_t near[] = { 0, 4, 1 };
	const struct kvpull_plan plan = { .group_block_bytes = { 100, 7 },
					  .remote_block_count = { 10, 4 },
					  .local_block_count = { 5, 2 } };
	uint64_t byte_count = 1;
	uint32_t i;

	assert_int_equal(ids_checked(&plan, first, far, near, &byte_count), 0);
	assert_int_equal(byte_count, 207);
	for (i = 0; i < 3; i++) {
		const uint32_t keep[] = { far[i], near[i] };

		far[i] = plan.remote_block_count[i / 2];
		ids_truncated(&plan, first, far, near);
		far[i] = keep[0];
		near[i] = plan.local_block_count[i / 2];
		ids_truncated(&plan, first, far, near);
		near[i] = keep[1];
	}
}

UNIT_TEST(ids_of_an_unknown_group_are_truncated)
{
	const uint32_t first[KVPULL_GROUPS_MAX + 1] = { 0, 0, 0, 1, 1,
							1, 1, 1, 1 };
	const struct kvpull_plan plan = { .remote_block_count = { 10 },
					  .local_block_count = { 5 } };
	const uint32_t id = 0;

	ids_truncated(&plan, first, &id, &id);
}

UNIT_TEST(group_bounds_that_fall_are_truncated)
{
	const uint32_t first[KVPULL_GROUPS_MAX + 1] = { 1, 0 };
	const struct kvpull_plan plan = { .remote_block_count = { 10 },
					  .local_block_count = { 5 } };
	const uint32_t id = 0;

	ids_truncated(&plan, first, &id, &id);
}

UNIT_TEST(bytes_beyond_64_bits_are_truncated)
{
	const uint32_t first[KVPULL_GROUPS_MAX + 1] = { 0, 2, 4, 4, 4,
							4, 4, 4, 4 };
	const uint32_t ids[4] = { 0 };
	struct kvpull_plan plan = { .group_block_bytes = { UINT64_C(1) << 62,
							   UINT64_C(1) << 62 },
				    .remote_block_count = { 1, 1 },
				    .local_block_count = { 1, 1 } };

	ids_truncated(&plan, first, ids, ids);
	plan.group_block_bytes[0] = UINT64_C(1) << 63;
	plan.group_block_bytes[1] = 0;
	ids_truncated(&plan, first, ids, ids);
}
