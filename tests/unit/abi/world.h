/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest engine: a group, a model of one layer, four blocks in a region. */
#ifndef KVPULL_TESTS_UNIT_ABI_WORLD_H
#define KVPULL_TESTS_UNIT_ABI_WORLD_H

#include "kvpull/connector.h"
#include "tests/lib/unit.h"

struct kvpull_open_params open_params(const char *engine_id);
struct kvpull_worker *worker_open(void);

/* Four blocks of 1,024 bytes each. */
extern const struct kvpull_cache four_blocks;
struct kvpull_regions four_blocks_in(const struct kvpull_region *region);

#endif
