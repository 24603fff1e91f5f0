/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An index of the caches of a side by layer. A layer of a group may be in
 * several caches (K and V apart): these are its planes, numbered as the caches
 * are. With it a plan costs one look a layer and not one look at every cache of
 * both sides. Pure.
 */
#ifndef KVPULL_PLUGIN_LAYERS_H
#define KVPULL_PLUGIN_LAYERS_H

#include <stdint.h>

#include "kvpull/connector.h"

struct kvpull_layers {
	const struct kvpull_cache *caches;
	uint32_t count;
	/* Caches by group, then by first layer. */
	uint16_t order[KVPULL_CACHES_MAX];
	/*
	 * The layer behind the last one of the caches of that group up to this
	 * place: whoever looks for a later one need not go on backwards.
	 */
	uint32_t reach[KVPULL_CACHES_MAX];
};

/*
 * Indexes caches that kvpull_plan_check() has passed, at most
 * KVPULL_CACHES_MAX.
 */
void kvpull_layers_index(struct kvpull_layers *layers,
			 const struct kvpull_cache *caches, uint32_t count);
/* Return: the cache's plane of that layer, which it has. */
uint32_t kvpull_layers_plane(const struct kvpull_layers *layers,
			     uint32_t cache_index, uint32_t layer);
/* The cache that is this plane of the layer, or NULL. */
const struct kvpull_cache *
kvpull_layers_find(const struct kvpull_layers *layers, uint32_t group,
		   uint32_t layer, uint32_t plane);

#endif /* KVPULL_PLUGIN_LAYERS_H */
