/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of the engine's prefix cache that may be older than a change of
 * weights or of an adapter: the ABI's changed() and reset(CLEARED). Pure.
 */
#ifndef KVPULL_PLUGIN_SUSPECTS_H
#define KVPULL_PLUGIN_SUSPECTS_H

#include <stdint.h>

/* Adapters that changed. One more makes all cached KV suspect. */
#define KVPULL_SUSPECTS_MAX 64u

struct kvpull_suspects {
	uint64_t adapters[KVPULL_SUSPECTS_MAX];
	uint32_t count;
	uint32_t all; /* the weights changed, or too many adapters */
};

/* Adds an adapter whose KV is suspect; adapter 0: the weights are. */
void kvpull_suspects_add(struct kvpull_suspects *suspects, uint64_t adapter);

/* 1: cached KV of this adapter (0: of none) may be of before. */
int kvpull_suspects_has(const struct kvpull_suspects *suspects,
			uint64_t adapter);

void kvpull_suspects_clear(struct kvpull_suspects *suspects);

#endif /* KVPULL_PLUGIN_SUSPECTS_H */
