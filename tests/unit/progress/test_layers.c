/* SPDX-License-Identifier: Apache-2.0 */
/* The index of caches by layer says what a look at every cache would. */

#include "plugin/progress/layers.h"
#include "tests/lib/unit.h"

#define LAYERS 12u
#define GROUPS 3u

static struct kvpull_layers layers;
static struct kvpull_cache caches[KVPULL_CACHES_MAX];
static uint32_t random_state = 4711;

static uint32_t below(uint32_t most)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (random_state >> 8) % most;
}

static int has_layer(const struct kvpull_cache *cache, uint32_t group,
		     uint32_t layer)
{
	return cache->group_index == group && layer >= cache->layer_first &&
	       layer < cache->layer_first + cache->layer_count;
}

static void caches_draw(uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		caches[i] = (struct kvpull_cache){
			.group_index = below(GROUPS),
			.layer_first = below(LAYERS),
			.layer_count = 1 + below(4),
		};
	kvpull_layers_index(&layers, caches, count);
}

static void layer_is_right(uint32_t count, uint32_t group, uint32_t layer)
{
	uint32_t plane = 0;
	uint32_t i;

	for (i = 0; i < count; i++) {
		if (!has_layer(&caches[i], group, layer))
			continue;
		assert_int_equal(kvpull_layers_plane(&layers, i, layer), plane);
		assert_ptr_equal(
			kvpull_layers_find(&layers, group, layer, plane),
			&caches[i]);
		plane++;
	}
	assert_null(kvpull_layers_find(&layers, group, layer, plane));
}

UNIT_TEST(index_agrees_with_a_look_at_all)
{
	uint32_t turn;
	uint32_t group;
	uint32_t layer;

	for (turn = 0; turn < 300; turn++) {
		const uint32_t count = 1 + below(turn % 10 ? 30 : 200);

		caches_draw(count);
		for (group = 0; group <= GROUPS; group++)
			for (layer = 0; layer < LAYERS + 5; layer++)
				layer_is_right(count, group, layer);
	}
}

UNIT_TEST(index_takes_all_caches)
{
	uint32_t i;

	/* Backwards, which is the most work, and up to the last number. */
	for (i = 0; i < KVPULL_CACHES_MAX; i++)
		caches[i] = (struct kvpull_cache){
			.layer_first = UINT32_MAX - 1 - i,
			.layer_count = 1,
		};
	kvpull_layers_index(&layers, caches, KVPULL_CACHES_MAX);
	for (i = 0; i < KVPULL_CACHES_MAX; i++) {
		assert_ptr_equal(
			kvpull_layers_find(&layers, 0, UINT32_MAX - 1 - i, 0),
			&caches[i]);
		assert_null(
			kvpull_layers_find(&layers, 0, UINT32_MAX - 1 - i, 1));
	}
	/* All caches are planes of one layer. */
	for (i = 0; i < KVPULL_CACHES_MAX; i++)
		caches[i].layer_first = 7;
	kvpull_layers_index(&layers, caches, KVPULL_CACHES_MAX);
	for (i = 0; i < KVPULL_CACHES_MAX; i++)
		assert_int_equal(kvpull_layers_plane(&layers, i, 7), i);
	assert_ptr_equal(
		kvpull_layers_find(&layers, 0, 7, KVPULL_CACHES_MAX - 1),
		&caches[KVPULL_CACHES_MAX - 1]);
}
