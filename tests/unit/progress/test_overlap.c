/* SPDX-License-Identifier: Apache-2.0 */
/* Overlaps of two caches, against a map of every byte that each of them has. */
#include <string.h>

#include "plugin/progress/overlap.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"

#define BYTES 8192u
#define STEPS (UINT64_C(1) << 26)

static uint64_t random_state = 1;

static uint32_t random_below(uint32_t bound)
{
	return (uint32_t)(random_next(&random_state) >> 33) % bound;
}

static uint64_t start_of(const struct kvpull_cache *cache, uint32_t layer,
			 uint32_t block, uint32_t row, uint32_t head)
{
	return layer * cache->layer_stride + block * cache->block_stride +
	       row * cache->row_stride + head * cache->head_stride;
}

/* Every byte of a cache; 1: another one had one of them. */
static int bytes_mark(uint8_t map[BYTES], const struct kvpull_cache *cache,
		      uint64_t start)
{
	const uint32_t count = cache->layer_count * cache->block_count *
			       cache->row_count * cache->head_count;
	int met = 0;
	uint32_t i;

	for (i = 0; i < count; i++) {
		uint32_t left = i;
		const uint32_t head = left % cache->head_count;
		const uint32_t row =
			(left /= cache->head_count) % cache->row_count;
		const uint32_t block =
			(left /= cache->row_count) % cache->block_count;
		const uint32_t layer = left / cache->block_count;
		const uint64_t at =
			start + start_of(cache, layer, block, row, head);
		uint32_t byte;

		for (byte = 0; byte < cache->head_bytes; byte++) {
			assert_true(at + byte < BYTES);
			met |= map[at + byte];
		}
		memset(map + at, 2, cache->head_bytes);
	}
	return met & 1;
}

static int meets_by_bytes(const struct kvpull_cache *caches[2],
			  const uint64_t starts[2])
{
	static uint8_t map[BYTES];
	uint32_t i;

	memset(map, 0, sizeof(map));
	(void)bytes_mark(map, caches[0], starts[0]);
	for (i = 0; i < BYTES; i++)
		map[i] = map[i] ? 1 : 0;
	return bytes_mark(map, caches[1], starts[1]);
}

/* Two axes, one in the other, with gaps here and there; the span of both. */
static uint64_t nest(uint64_t item, const uint32_t counts[2],
		     uint64_t *strides[2])
{
	const uint32_t inner = random_below(2);
	const uint32_t outer = 1 - inner;

	*strides[inner] = item + (random_below(3) ? 0 : random_below(9));
	*strides[outer] = *strides[inner] * counts[inner] +
			  (random_below(3) ? 0 : random_below(33));
	return (counts[0] - 1) * *strides[0] + (counts[1] - 1) * *strides[1] +
	       item;
}

static uint64_t cache_draw(struct kvpull_cache *cache)
{
	uint64_t *inner[2] = { &cache->head_stride, &cache->row_stride };
	uint64_t *outer[2] = { &cache->block_stride, &cache->layer_stride };
	const uint32_t inner_counts[2] = { 1 + random_below(3),
					   1 + random_below(3) };
	const uint32_t outer_counts[2] = { 1 + random_below(5),
					   1 + random_below(3) };

	*cache = (struct kvpull_cache){ .head_bytes = 1 + random_below(6),
					.head_count = inner_counts[0],
					.row_count = inner_counts[1],
					.block_count = outer_counts[0],
					.layer_count = outer_counts[1] };
	return nest(nest(cache->head_bytes, inner_counts, inner), outer_counts,
		    outer);
}

UNIT_TEST(overlap_is_what_a_map_of_bytes_says)
{
	struct kvpull_cache drawn[2];
	const struct kvpull_cache *caches[2] = { &drawn[0], &drawn[1] };
	uint32_t met = 0;
	uint32_t apart = 0;
	uint32_t round;

	for (round = 0; round < 60000; round++) {
		const uint64_t extent = cache_draw(&drawn[0]);
		uint64_t steps = STEPS;
		uint64_t starts[2];
		int is_met;

		(void)cache_draw(&drawn[1]);
		if (random_below(
			    2)) { /* K and V: alike, one between the other */
			drawn[1] = drawn[0];
			drawn[1].head_bytes =
				1 + random_below(drawn[0].head_bytes);
		}
		starts[0] = random_below(64);
		starts[1] = random_below((uint32_t)extent + 64);
		is_met = meets_by_bytes(caches, starts);
		assert_int_equal(kvpull_overlap_find(caches, starts, &steps),
				 is_met ? KVPULL_OVERLAP_FOUND :
					  KVPULL_OVERLAP_NONE);
		met += is_met != 0;
		apart += !is_met && starts[1] < starts[0] + extent;
	}
	/* Both answers were asked for, also where one lies in the other's gaps. */
	assert_true(met > 10000);
	assert_true(apart > 1000);
}

UNIT_TEST(caches_of_engines_take_a_handful_of_steps)
{
	/* FlashInfer's [blocks][2][T][H][E]: V lies behind K in each block. */
	const struct kvpull_cache planes = { .head_bytes = 256,
					     .head_count = 8,
					     .head_stride = 256,
					     .row_count = 16,
					     .row_stride = 2048,
					     .block_count = 1u << 20,
					     .block_stride = 65536,
					     .layer_count = 1 };
	const struct kvpull_cache *caches[2] = { &planes, &planes };
	uint64_t starts[2] = { 0, 32768 };
	uint64_t steps = 64;

	assert_int_equal(kvpull_overlap_find(caches, starts, &steps),
			 KVPULL_OVERLAP_NONE);
	starts[1]--;
	assert_int_equal(kvpull_overlap_find(caches, starts, &steps),
			 KVPULL_OVERLAP_FOUND);
}

UNIT_TEST(overlap_that_takes_too_many_steps_is_unknown)
{
	const struct kvpull_cache one = { .head_bytes = 1,
					  .head_count = 1,
					  .row_count = 1,
					  .layer_count = 1,
					  .block_count = 1u << 20,
					  .block_stride = 1024 };
	struct kvpull_cache other = one;
	const struct kvpull_cache *caches[2] = { &one, &other };
	const uint64_t starts[2] = { 0, 1 };
	uint64_t steps = 100;

	other.block_stride = 1026; /* at odd places, where the one has none */
	assert_int_equal(kvpull_overlap_find(caches, starts, &steps),
			 KVPULL_OVERLAP_UNKNOWN);
	steps = STEPS;
	assert_int_equal(kvpull_overlap_find(caches, starts, &steps),
			 KVPULL_OVERLAP_NONE);
}
