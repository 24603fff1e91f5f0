/* SPDX-License-Identifier: Apache-2.0 */
/* Do two caches share a byte? Exact, from their strides alone. Pure. */
#ifndef KVPULL_PLUGIN_OVERLAP_H
#define KVPULL_PLUGIN_OVERLAP_H

#include <stdint.h>

#include "kvpull/connector.h"

/* Positions end below it: sums and differences of two fit into 64 bits. */
#define KVPULL_OVERLAP_END_MAX (UINT64_C(1) << 61)

enum kvpull_overlap {
	KVPULL_OVERLAP_NONE,
	KVPULL_OVERLAP_FOUND,
	KVPULL_OVERLAP_UNKNOWN /* the steps are used up */
};

/*
 * Caches that kvpull_plan_check() has passed; starts: of block 0, layer 0, row
 * 0, head 0 of each, in one space. steps: what may still be looked at, counted
 * down; layouts of engines take a handful a pair.
 */
enum kvpull_overlap kvpull_overlap_find(const struct kvpull_cache *caches[2],
					const uint64_t starts[2],
					uint64_t *steps);

#endif /* KVPULL_PLUGIN_OVERLAP_H */
