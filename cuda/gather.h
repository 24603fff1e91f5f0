/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel of gather.cu is given these, by the library and by tests.
 *
 * A job is a list of strips: rows of equal length, one for each pair of ids.
 * Rows are cut into units of 16 KiB, which are counted over all strips.
 */
#ifndef KVPULL_CUDA_GATHER_H
#define KVPULL_CUDA_GATHER_H

#include <stdint.h>

#define GATHER_UNIT_BYTES 16384u
#define GATHER_PIECE_BYTES 16u
#define GATHER_LANES 256u
#define GATHER_LOADS 4u

struct gather_strip {
	uint64_t source; /* of id 0; all of these are multiples of 16 */
	uint64_t target;
	uint64_t source_stride; /* bytes from one id to the next */
	uint64_t target_stride;
	uint64_t row_bytes;
	uint64_t unit_first; /* units of all strips before this one */
	uint64_t id_first;   /* where its ids begin */
};

struct gather_job {
	const struct gather_strip *strips;
	const uint32_t *source_ids;
	const uint32_t *target_ids;
	uint64_t strip_count;
};

#endif /* KVPULL_CUDA_GATHER_H */
