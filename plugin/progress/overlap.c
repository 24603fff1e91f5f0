/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache is spans of head_bytes whose starts are sums of four strides. The
 * distance from a span of one cache to a span of the other is a sum of at most
 * eight, and the two share a byte where that distance is smaller than a span.
 *
 * Strides are tried from the largest down. Only so many steps of a stride can
 * matter as the smaller ones together can make up for: one to three where both
 * caches repeat alike, as K and V do.
 */
#include "plugin/progress/overlap.h"

#define AXES 4u /* of a cache: block, layer, row, head */
#define LINES (2 * AXES)

/* From low to high steps of a stride. */
struct line {
	int64_t stride;
	int64_t low;
	int64_t high;
};

/* All distances between a span of one cache and a span of the other. */
struct distances {
	int64_t begin;
	int64_t above; /* spans meet at distances above this ... */
	int64_t below; /* ... and below this */
	uint32_t count;
	struct line lines[LINES];
	int64_t rest_low[LINES]; /* what the lines behind this one can add */
	int64_t rest_high[LINES];
};

static uint64_t reach_of(const struct kvpull_cache *cache)
{
	return cache->head_bytes +
	       (cache->layer_count - UINT64_C(1)) * cache->layer_stride +
	       (cache->block_count - UINT64_C(1)) * cache->block_stride +
	       (cache->row_count - UINT64_C(1)) * cache->row_stride +
	       (cache->head_count - UINT64_C(1)) * cache->head_stride;
}

/* Equal strides are one line: only their difference counts. */
static void line_add(struct distances *all, uint64_t stride, int64_t low,
		     int64_t high)
{
	uint32_t at = 0;
	uint32_t i;

	if (!stride || low == high)
		return;
	while (at < all->count && all->lines[at].stride > (int64_t)stride)
		at++;
	if (at == all->count || all->lines[at].stride != (int64_t)stride) {
		for (i = all->count++; i > at; i--)
			all->lines[i] = all->lines[i - 1];
		all->lines[at] = (struct line){ .stride = (int64_t)stride };
	}
	all->lines[at].low += low;
	all->lines[at].high += high;
}

static void cache_add(struct distances *all, const struct kvpull_cache *cache,
		      int64_t sign)
{
	const uint64_t strides[AXES] = { cache->layer_stride,
					 cache->block_stride, cache->row_stride,
					 cache->head_stride };
	const uint32_t counts[AXES] = { cache->layer_count, cache->block_count,
					cache->row_count, cache->head_count };
	uint32_t i;

	for (i = 0; i < AXES; i++) {
		const int64_t last = (int64_t)counts[i] - 1;

		line_add(all, strides[i], sign < 0 ? -last : 0,
			 sign < 0 ? 0 : last);
	}
}

static void rests_sum(struct distances *all)
{
	int64_t low = 0;
	int64_t high = 0;
	uint32_t i;

	for (i = all->count; i--;) {
		all->rest_low[i] = low;
		all->rest_high[i] = high;
		low += all->lines[i].low * all->lines[i].stride;
		high += all->lines[i].high * all->lines[i].stride;
	}
}

static int64_t floor_divide(int64_t value, int64_t by)
{
	return value / by - (value % by < 0);
}

/* Steps of a line after which the lines behind it can still meet. */
static struct line steps_of(const struct distances *all, uint32_t at,
			    int64_t distance)
{
	struct line steps = all->lines[at];
	const int64_t from = all->above - distance - all->rest_high[at];
	const int64_t to = all->below - distance - all->rest_low[at];
	const int64_t low = floor_divide(from, steps.stride) + 1;
	const int64_t high = floor_divide(to - 1, steps.stride);

	if (low > steps.low)
		steps.low = low;
	if (high < steps.high)
		steps.high = high;
	return steps;
}

/* A distance at which spans meet: the last line's steps are all that meet. */
static enum kvpull_overlap meeting_find(const struct distances *all,
					uint64_t *steps)
{
	struct line lines[LINES];
	int64_t distances[LINES];
	uint32_t at = 0;

	distances[0] = all->begin;
	lines[0] = steps_of(all, 0, all->begin);
	for (;;) {
		if (lines[at].low > lines[at].high) {
			if (!at)
				return KVPULL_OVERLAP_NONE;
			lines[--at].low++;
			continue;
		}
		if (at + 1 == all->count)
			return KVPULL_OVERLAP_FOUND;
		if (!*steps)
			return KVPULL_OVERLAP_UNKNOWN;
		--*steps;
		distances[at + 1] =
			distances[at] + lines[at].low * lines[at].stride;
		lines[at + 1] = steps_of(all, at + 1, distances[at + 1]);
		at++;
	}
}

enum kvpull_overlap kvpull_overlap_find(const struct kvpull_cache *caches[2],
					const uint64_t starts[2],
					uint64_t *steps)
{
	struct distances all = {
		.begin = (int64_t)starts[0] - (int64_t)starts[1],
		.above = -(int64_t)caches[0]->head_bytes,
		.below = (int64_t)caches[1]->head_bytes,
	};

	if (starts[0] + reach_of(caches[0]) <= starts[1] ||
	    starts[1] + reach_of(caches[1]) <= starts[0])
		return KVPULL_OVERLAP_NONE;
	cache_add(&all, caches[0], 1);
	cache_add(&all, caches[1], -1);
	if (!all.count)
		return KVPULL_OVERLAP_FOUND; /* a span each, side by side */
	rests_sum(&all);
	return meeting_find(&all, steps);
}
