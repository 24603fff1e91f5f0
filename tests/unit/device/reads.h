/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of blocks, for a device that copies none of them. */
#ifndef KVPULL_TESTS_UNIT_DEVICE_READS_H
#define KVPULL_TESTS_UNIT_DEVICE_READS_H

#include "base/transport.h"

#define READS_BLOCKS_MAX 1000u
#define READS_LOCAL ((uint64_t)1 << 46)

struct reads_read {
	struct kvpull_read read;
	struct kvpull_strip strip;
	uint32_t ids[READS_BLOCKS_MAX];
	uint32_t group_first[KVPULL_GROUPS_MAX + 1];
};

/* Blocks lie a block apart from each other there. */
enum reads_shape {
	READS_APART_HERE = 0,
	READS_APART_THERE,
	READS_CLOSE /* nowhere */
};

extern enum reads_shape reads_shape; /* of reads that are made */

/* Blocks 0, 1, ... of @bytes each. */
void reads_make(struct reads_read *made, uint32_t index, uint32_t blocks,
		uint64_t bytes);

#endif
