/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest engine: a group, a model of one layer, four blocks in a region. */
#ifndef KVPULL_TESTS_UNIT_ABI_WORLD_H
#define KVPULL_TESTS_UNIT_ABI_WORLD_H

#include "kvpull/connector.h"
#include "tests/lib/unit.h"

struct kvpull_open_params open_params(const char *engine_id);
struct kvpull_worker *worker_open(void);

/* Both halves refuse to open so, with that code, and name the same member. */
void both_refuse(const struct kvpull_open_params *params, int code,
		 const char *field, const char *words);
/* both_refuse() with KVPULL_EINVAL. */
void refused_with(const struct kvpull_open_params *params, const char *field,
		  const char *words);

/* Four blocks of 1,024 bytes each. */
extern const struct kvpull_cache four_blocks;
struct kvpull_regions four_blocks_in(const struct kvpull_region *region);
/* 4,096 bytes that the worker allocates: room for the four blocks. */
struct kvpull_region region_alloc(struct kvpull_worker *worker);
/* The worker refuses them with KVPULL_EINVAL, in these words. */
void regions_refused(struct kvpull_worker *worker,
		     const struct kvpull_regions *regions, const char *words);

#endif
