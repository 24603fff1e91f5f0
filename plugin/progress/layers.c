/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A binary search finds the last cache that begins at a layer or before it.
 * From there the search goes backwards, and ends where reach says that no
 * earlier cache extends to that layer.
 */
#include "plugin/progress/layers.h"

#include <string.h>

#define WORDS (KVPULL_CACHES_MAX / 64)

/* A set of caches, a bit for each number. */
struct cache_set {
	uint64_t words[WORDS];
};

_Static_assert(KVPULL_CACHES_MAX % 64 == 0 && KVPULL_CACHES_MAX <= UINT16_MAX,
	       "whole words, and a number fits its place in the order");

static const struct kvpull_cache *cache_at(const struct kvpull_layers *layers,
					   uint32_t place)
{
	return &layers->caches[layers->order[place]];
}

static int begins_after(const struct kvpull_cache *cache, uint32_t group,
			uint32_t layer)
{
	return cache->group_index != group ? cache->group_index > group :
					     cache->layer_first > layer;
}

/* Caches mostly come in this order: then nothing moves. */
static void order_make(struct kvpull_layers *layers)
{
	uint32_t i;

	for (i = 0; i < layers->count; i++) {
		const struct kvpull_cache *cache = &layers->caches[i];
		uint32_t at = i;

		while (at &&
		       begins_after(cache_at(layers, at - 1),
				    cache->group_index, cache->layer_first)) {
			layers->order[at] = layers->order[at - 1];
			at--;
		}
		layers->order[at] = (uint16_t)i;
	}
}

void kvpull_layers_index(struct kvpull_layers *layers,
			 const struct kvpull_cache *caches, uint32_t count)
{
	uint32_t i;

	layers->caches = caches;
	layers->count = count;
	order_make(layers);
	for (i = 0; i < count; i++) {
		const struct kvpull_cache *cache = cache_at(layers, i);
		uint32_t end = cache->layer_first + cache->layer_count;

		if (i &&
		    cache_at(layers, i - 1)->group_index ==
			    cache->group_index &&
		    layers->reach[i - 1] > end)
			end = layers->reach[i - 1];
		layers->reach[i] = end;
	}
}

/* How many places in order begin at this layer of the group or before. */
static uint32_t places_until(const struct kvpull_layers *layers, uint32_t group,
			     uint32_t layer)
{
	uint32_t first = 0;
	uint32_t end = layers->count;

	while (first < end) {
		const uint32_t middle = first + (end - first) / 2;

		if (begins_after(cache_at(layers, middle), group, layer))
			end = middle;
		else
			first = middle + 1;
	}
	return first;
}

/* The caches that have this layer. */
static void set_fill(struct cache_set *set, const struct kvpull_layers *layers,
		     uint32_t group, uint32_t layer)
{
	uint32_t place = places_until(layers, group, layer);

	memset(set, 0, sizeof(*set));
	while (place-- && layers->reach[place] > layer &&
	       cache_at(layers, place)->group_index == group) {
		const struct kvpull_cache *cache = cache_at(layers, place);
		const uint32_t index = layers->order[place];

		if (layer - cache->layer_first < cache->layer_count)
			set->words[index / 64] |= UINT64_C(1) << index % 64;
	}
}

uint32_t kvpull_layers_plane(const struct kvpull_layers *layers,
			     uint32_t cache_index, uint32_t layer)
{
	const uint64_t before = (UINT64_C(1) << cache_index % 64) - 1;
	struct cache_set set;
	uint32_t plane;
	uint32_t i;

	set_fill(&set, layers, layers->caches[cache_index].group_index, layer);
	plane = (uint32_t)__builtin_popcountll(set.words[cache_index / 64] &
					       before);
	for (i = 0; i < cache_index / 64; i++)
		plane += (uint32_t)__builtin_popcountll(set.words[i]);
	return plane;
}

const struct kvpull_cache *
kvpull_layers_find(const struct kvpull_layers *layers, uint32_t group,
		   uint32_t layer, uint32_t plane)
{
	struct cache_set set;
	uint32_t i;

	set_fill(&set, layers, group, layer);
	for (i = 0; i < WORDS; i++) {
		uint64_t word = set.words[i];

		for (; word; word &= word - 1)
			if (!plane--)
				return &layers->caches[i * 64 +
						       (uint32_t)__builtin_ctzll(
							       word)];
	}
	return NULL;
}
