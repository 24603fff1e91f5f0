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

static int plain_make(struct plain *local, struct plain *remote,
		      struct kvpull_plan *plan,
		      struct kvpull_error_detail *detail)
{
	*plan = (struct kvpull_plan){ .strips = strips,
				      .strip_count_max = STRIPS };
	assert_int_equal(kvpull_plan_check(&local->side, NULL), 0);
	assert_int_equal(kvpull_plan_check(&remote->side, NULL), 0);
	return kvpull_plan_make(plan, &local->side, &remote->side, detail);
}

UNIT_TEST(equal_layout_gives_one_row_a_block_and_layer)
{
	struct plain local;
	struct plain remote;
	struct kvpull_plan plan;

	plain_init(&local);
	plain_init(&remote);
	remote.caches[0].offset = 64; /* elsewhere, but alike */
	assert_int_equal(plain_make(&local, &remote, &plan, NULL), 0);
	assert_int_equal(plan.strip_count, 2);
	assert_int_equal(strips[1].row_count, 1);
	assert_int_equal(strips[1].row_bytes, 128);
	assert_int_equal(strips[1].remote_offset, 64 + 1024);
	assert_ptr_equal(strips[1].local, plain_memory + 1024);
	assert_int_equal(plan.group_block_bytes[0], 256);
}

UNIT_TEST(layers_contiguous_in_a_block_become_one_row)
{
	struct plain local;
	struct plain remote;
	struct kvpull_plan plan;

	plain_init(&local);
	plain_init(&remote);
	local.caches[0].layer_stride = 128;
	local.caches[0].block_stride = 256;
	remote.caches[0].layer_stride = 128;
	remote.caches[0].block_stride = 300;
	assert_int_equal(plain_make(&local, &remote, &plan, NULL), 0);
	assert_int_equal(plan.strip_count, 1);
	assert_int_equal(strips[0].row_count, 1);
	assert_int_equal(strips[0].row_bytes, 256);
	assert_int_equal(strips[0].remote_block_stride, 300);
}

UNIT_TEST(rows_are_merged_only_where_both_sides_are_contiguous)
{
	struct plain local;
	struct plain remote;
	struct kvpull_plan plan;

	plain_init(&local);
	plain_init(&remote);
	remote.caches[0].row_stride = 36;
	remote.caches[0].block_stride = 150;
	remote.caches[0].layer_stride = 8 * 150;
	assert_int_equal(plain_make(&local, &remote, &plan, NULL), 0);
	assert_int_equal(plan.strip_count, 2);
	assert_int_equal(strips[0].row_count, 4);
	assert_int_equal(strips[0].row_bytes, 32);
	assert_int_equal(strips[0].remote_row_stride, 36);
	assert_int_equal(strips[0].local_row_stride, 32);
}

UNIT_TEST(head_slice_of_token_rows_is_a_row_a_token)
{
	struct plain local;
	struct plain remote;
	struct kvpull_plan plan;

	plain_init(&local);
	plain_init(&remote);
	local.side.tp_size = 2;
	local.side.tp_rank = 1;
	local.caches[0].head_first = 2;
	local.caches[0].head_count = 2;
	local.caches[0].row_stride = 16;
	assert_int_equal(plain_make(&local, &remote, &plan, NULL), 0);
	assert_int_equal(plan.strip_count, 2);
	assert_int_equal(strips[0].row_count, 4);
	assert_int_equal(strips[0].row_bytes, 16);
	assert_int_equal(strips[0].remote_offset, 16);
	assert_int_equal(plan.group_block_bytes[0], 2 * 4 * 16);
}

UNIT_TEST(strips_beyond_the_table_are_refused)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_plan plan = { .strips = strips, .strip_count_max = 1 };
	struct plain side;

	plain_init(&side);
	assert_int_equal(
		kvpull_plan_make(&plan, &side.side, &side.side, &detail),
		KVPULL_EFULL);
	assert_int_equal(plan.strip_count, 0);
	assert_int_equal(detail.code, KVPULL_EFULL);
	plan.strip_count_max = 2;
	assert_int_equal(
		kvpull_plan_make(&plan, &side.side, &side.side, &detail), 0);
}

UNIT_TEST(failure_after_some_strips_leaves_none)
{
	struct kvpull_plan plan = { .strips = strips, .strip_count_max = 3 };
	struct plain side;

	plain_init(&side);
	side.caches[1] = side.caches[0];
	side.caches[1].group_index = 1;
	side.side.cache_count = 2;
	assert_int_equal(kvpull_plan_make(&plan, &side.side, &side.side, NULL),
			 KVPULL_EFULL);
	assert_int_equal(plan.strip_count, 0);
	plan.strip_count_max = 4;
	assert_int_equal(kvpull_plan_make(&plan, &side.side, &side.side, NULL),
			 0);
	assert_int_equal(plan.strip_count, 4);
}

UNIT_TEST(padded_heads_become_the_rows_of_one_strip)
{
	struct plain local;
	struct plain remote;
	struct kvpull_plan plan;

	plain_init(&local);
	plain_init(&remote);
	local.caches[0].row_count = 1;
	remote.caches[0].row_count = 1;
	remote.caches[0].head_stride = 16;
	assert_int_equal(plain_make(&local, &remote, &plan, NULL), 0);
	assert_int_equal(plan.strip_count, 2);
	assert_int_equal(strips[0].row_count, 4);
	assert_int_equal(strips[0].row_bytes, 8);
	assert_int_equal(strips[0].remote_row_stride, 16);
	assert_int_equal(strips[0].local_row_stride, 8);
}

UNIT_TEST(smallest_cache_of_a_group_bounds_its_ids)
{
	static const uint32_t counts[][2] = { { 8, 6 }, { 6, 8 } };
	struct plain local;
	struct plain remote;
	struct kvpull_plan plan;
	uint32_t i;

	for (i = 0; i < 2; i++) {
		plain_init(&local);
		plain_init(&remote);
		local.caches[0].layer_count = 1;
		local.caches[1] = local.caches[0];
		local.caches[1].layer_first = 1;
		local.side.cache_count = 2;
		local.caches[0].block_count = counts[i][0];
		local.caches[1].block_count = counts[i][1];
		assert_int_equal(plain_make(&local, &remote, &plan, NULL), 0);
		assert_int_equal(plan.local_block_count[0], 6);
		assert_int_equal(plan.remote_block_count[0], 8);
		assert_true(plan.local_block_count[1] == UINT32_MAX);
	}
}

/* How one side of a pair may differ, and what must then be named. */
static void differ_rows(struct plain *plain)
{
	plain->caches[0].row_count = 3;
}

static void differ_head_bytes(struct plain *plain)
{
	plain->caches[0].head_bytes = 7;
}

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

static void differ_group(struct plain *plain)
{
	plain->caches[0].group_index = 1;
}

static void differ_replicated(struct plain *plain)
{
	plain->side.replicated = 1;
}

static void differ_head_total(struct plain *plain)
{
	plain->side.head_total = 2;
	plain->caches[0].head_count = 2;
}

UNIT_TEST(sides_that_differ_are_rejected_by_name)
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
		struct kvpull_error_detail detail = { .struct_size =
							      sizeof(detail) };
		struct kvpull_plan plan;
		struct plain local;
		struct plain remote;

		plain_init(&local);
		plain_init(&remote);
		cases[i / 2].differ(i % 2 ? &local : &remote);
		assert_int_equal(plain_make(&local, &remote, &plan, &detail),
				 KVPULL_EREJECTED);
		assert_string_equal(detail.field, cases[i / 2].field);
		assert_string_equal(detail.message,
				    cases[i / 2].message[i % 2]);
		assert_int_equal(detail.code, KVPULL_EREJECTED);
		assert_int_equal(plan.strip_count, 0);
	}
}

UNIT_TEST(memory_that_cannot_be_written_is_not_read_into)
{
	struct kvpull_plan plan;
	struct plain local;
	struct plain remote;

	plain_init(&local);
	plain_init(&remote);
	remote.regions[0].base = NULL;
	assert_int_equal(plain_make(&local, &remote, &plan, NULL), 0);
	assert_int_equal(plain_make(&remote, &local, &plan, NULL),
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

static const struct {
	const char *field; /* that must be named */
	const char *why;
	struct change changes[2];
} bad_caches[] = {
	{ "region_index", "1: there are 1 regions", { SET(region_index, 1) } },
	{ "region_index",
	  "4294967295: there are 1 regions",
	  { SET(region_index, UINT32_MAX) } },
	{ "group_index",
	  "8: at most 8 groups",
	  { SET(group_index, KVPULL_GROUPS_MAX) } },
	{ "layer_count",
	  "0 from layer 0 on: not a range",
	  { SET(layer_count, 0) } },
	{ "layer_count",
	  "4294967295 from layer 1 on: not a range",
	  { SET(layer_count, UINT32_MAX), SET(layer_first, 1) } },
	{ "block_count", "is 0", { SET(block_count, 0) } },
	{ "row_count", "is 0", { SET(row_count, 0) } },
	{ "head_bytes", "is 0", { SET(head_bytes, 0) } },
	{ "head_count",
	  "is 0: rank 0 of 1 has 4 of the 4 heads",
	  { SET(head_count, 0) } },
	{ "head_count",
	  "is 3: rank 0 of 1 has 4 of the 4 heads",
	  { SET(head_count, 3) } },
	{ "head_count",
	  "is 4294967295: rank 0 of 1 has 4 of the 4 heads",
	  { SET(head_count, UINT32_MAX) } },
	{ "head_first",
	  "is 1: the heads of rank 0 of 1 begin at 0",
	  { SET(head_first, 1) } },
	{ "head_first",
	  "is 4294967295: the heads of rank 0 of 1 begin at 0",
	  { SET(head_first, UINT32_MAX) } },
	{ "row_stride",
	  "31 with head_stride 8: rows overlap",
	  { SET(row_stride, 31) } },
	{ "row_stride",
	  "0 with head_stride 8: rows overlap",
	  { SET(row_stride, 0) } },
	{ "row_stride",
	  "32 with head_stride 7: rows overlap",
	  { SET(head_stride, 7) } },
	{ "row_stride",
	  "a block is larger than memory",
	  { SET(head_stride, UINT64_MAX) } },
	{ "block_stride",
	  "is 127: a block spans 128 bytes",
	  { SET(block_stride, 127) } },
	{ "block_stride",
	  "is 0: a block spans 128 bytes",
	  { SET(block_stride, 0) } },
	{ "layer_stride",
	  "1023 with block_stride 128: layers overlap",
	  { SET(layer_stride, 1023) } },
	{ "layer_stride",
	  "0 with block_stride 128: layers overlap",
	  { SET(layer_stride, 0) } },
	{ "layer_stride",
	  "128 with block_stride 255: layers overlap",
	  { SET(layer_stride, 128), SET(block_stride, 255) } },
	{ "offset",
	  "is 2049: blocks end after the 4096 bytes of region 0",
	  { SET(offset, 4096 - 2048 + 1) } },
	{ "offset",
	  "is 18446744073709551615: blocks end after the 4096 bytes of region 0",
	  { SET(offset, UINT64_MAX) } },
	{ "offset",
	  "is 0: blocks end after the 4096 bytes of region 0",
	  { SET(layer_stride, 4096 - 1024 + 1) } },
	{ "offset",
	  "is 0: blocks end after the 4096 bytes of region 0",
	  { SET(layer_stride, UINT64_MAX) } },
	{ "offset",
	  "is 0: blocks end after the 4096 bytes of region 0",
	  { SET(block_count, 33), SET(layer_count, 1) } },
	{ "offset",
	  "is 0: blocks end after the 4096 bytes of region 0",
	  { SET(block_count, UINT32_MAX), SET(layer_count, 1) } },
	{ "offset",
	  "is 0: blocks end after the 4096 bytes of region 0",
	  { SET(block_stride, UINT64_MAX), SET(layer_count, 1) } },
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
	struct plain plain;

	plain_init(&plain);
	plain.caches[0].offset = 4096 - 2048;
	assert_int_equal(kvpull_plan_check(&plain.side, NULL), 0);
	plain_init(&plain);
	plain.caches[0].layer_stride = 4096 - 1024;
	assert_int_equal(kvpull_plan_check(&plain.side, NULL), 0);
	plain_init(&plain);
	plain.caches[0].layer_stride = 128; /* [block][layer] */
	plain.caches[0].block_stride = 256;
	assert_int_equal(kvpull_plan_check(&plain.side, NULL), 0);
	plain_init(&plain);
	plain.caches[0].row_stride = 8; /* [head][row] */
	plain.caches[0].head_stride = 32;
	assert_int_equal(kvpull_plan_check(&plain.side, NULL), 0);
}

UNIT_TEST(bad_sides_are_refused_by_member)
{
	static const struct {
		const char *field;
		struct kvpull_plan_side side;
	} cases[] = {
		{ "region_count", { .region_count = 0 } },
		{ "region_count", { .region_count = KVPULL_REGIONS_MAX + 1 } },
		{ "cache_count", { .region_count = 1, .cache_count = 0 } },
		{ "cache_count",
		  { .region_count = 1, .cache_count = KVPULL_CACHES_MAX + 1 } },
		{ "tp_size", { .region_count = 1, .cache_count = 1 } },
		{ "tp_size",
		  { .region_count = 1,
		    .cache_count = 1,
		    .tp_size = KVPULL_RANKS_MAX + 1 } },
		{ "tp_rank",
		  { .region_count = 1,
		    .cache_count = 1,
		    .tp_size = 2,
		    .tp_rank = 2 } },
		{ "replicated",
		  { .region_count = 1,
		    .cache_count = 1,
		    .tp_size = 1,
		    .replicated = 2 } },
		{ "head_total",
		  { .region_count = 1, .cache_count = 1, .tp_size = 1 } },
		{ "head_total",
		  { .region_count = 1,
		    .cache_count = 1,
		    .tp_size = 4,
		    .head_total = 6 } },
	};
	uint32_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvpull_error_detail detail = { .struct_size =
							      sizeof(detail) };
		struct kvpull_plan_side side = cases[i].side;

		/* No caches behind it: it must be refused before they count. */
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

UNIT_TEST(ids_are_checked_against_both_sides)
{
	const uint32_t first[KVPULL_GROUPS_MAX + 1] = { 0, 2, 3, 3, 3,
							3, 3, 3, 3 };
	uint32_t far[] = { 9, 0, 3 };
	uint32_t near[] = { 0, 4, 1 };
	const struct kvpull_read read = { .remote_ids = far,
					  .local_ids = near,
					  .group_first = first };
	const struct kvpull_plan plan = { .group_block_bytes = { 100, 7 },
					  .remote_block_count = { 10, 4 },
					  .local_block_count = { 5, 2 } };
	uint64_t byte_count = 1;
	uint32_t i;

	assert_int_equal(kvpull_plan_check_ids(&plan, &read, &byte_count), 0);
	assert_int_equal(byte_count, 207);
	for (i = 0; i < 3; i++) {
		const uint32_t keep[] = { far[i], near[i] };

		byte_count = 1;
		far[i] = plan.remote_block_count[i / 2];
		assert_int_equal(
			kvpull_plan_check_ids(&plan, &read, &byte_count),
			KVPULL_ETRUNCATED);
		far[i] = keep[0];
		near[i] = plan.local_block_count[i / 2];
		assert_int_equal(
			kvpull_plan_check_ids(&plan, &read, &byte_count),
			KVPULL_ETRUNCATED);
		near[i] = keep[1];
		assert_int_equal(byte_count, 1);
	}
}

UNIT_TEST(ids_of_an_unknown_group_are_truncated)
{
	const uint32_t first[KVPULL_GROUPS_MAX + 1] = { 0, 0, 0, 1, 1,
							1, 1, 1, 1 };
	const uint32_t id = 0;
	const struct kvpull_read read = { .remote_ids = &id,
					  .local_ids = &id,
					  .group_first = first };
	const struct kvpull_plan plan = { .remote_block_count = { 10 },
					  .local_block_count = { 5 } };
	uint64_t byte_count;

	assert_int_equal(kvpull_plan_check_ids(&plan, &read, &byte_count),
			 KVPULL_ETRUNCATED);
}

UNIT_TEST(group_bounds_that_fall_are_truncated)
{
	const uint32_t first[KVPULL_GROUPS_MAX + 1] = { 1, 0 };
	const uint32_t id = 0;
	const struct kvpull_read read = { .remote_ids = &id,
					  .local_ids = &id,
					  .group_first = first };
	const struct kvpull_plan plan = { .remote_block_count = { 10 },
					  .local_block_count = { 5 } };
	uint64_t byte_count;

	assert_int_equal(kvpull_plan_check_ids(&plan, &read, &byte_count),
			 KVPULL_ETRUNCATED);
}

UNIT_TEST(bytes_beyond_64_bits_are_truncated)
{
	const uint32_t first[KVPULL_GROUPS_MAX + 1] = { 0, 2, 4, 4, 4,
							4, 4, 4, 4 };
	const uint32_t ids[4] = { 0 };
	const struct kvpull_read read = { .remote_ids = ids,
					  .local_ids = ids,
					  .group_first = first };
	struct kvpull_plan plan = { .group_block_bytes = { UINT64_C(1) << 62,
							   UINT64_C(1) << 62 },
				    .remote_block_count = { 1, 1 },
				    .local_block_count = { 1, 1 } };
	uint64_t byte_count;

	assert_int_equal(kvpull_plan_check_ids(&plan, &read, &byte_count),
			 KVPULL_ETRUNCATED);
	plan.group_block_bytes[0] = UINT64_C(1) << 63;
	plan.group_block_bytes[1] = 0;
	assert_int_equal(kvpull_plan_check_ids(&plan, &read, &byte_count),
			 KVPULL_ETRUNCATED);
}
