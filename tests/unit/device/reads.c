/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/device/reads.h"

enum reads_shape reads_shape;

void reads_make(struct reads_read *made, uint32_t index, uint32_t blocks,
		uint64_t bytes)
{
	uint32_t at;

	for (at = 0; at < blocks; at++)
		made->ids[at] = at;
	for (at = 1; at <= KVPULL_GROUPS_MAX; at++)
		made->group_first[at] = blocks;
	made->strip = (struct kvpull_strip){
		.local = (uint8_t *)(uintptr_t)READS_LOCAL,
		.remote_block_stride =
			reads_shape == READS_APART_THERE ? 2 * bytes : bytes,
		.local_block_stride =
			reads_shape == READS_APART_HERE ? 2 * bytes : bytes,
		.row_bytes = bytes,
		.row_count = 1,
	};
	made->read = (struct kvpull_read){
		.index = index,
		.strip_count = 1,
		.strips = &made->strip,
		.remote_ids = made->ids,
		.local_ids = made->ids,
		.group_first = made->group_first,
		.byte_count = blocks * bytes,
	};
}
