/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of the probe: the library's, and two that write stamps and compare
 * them. CUDA and C, as cuda/gather.cu is.
 */
#ifndef KVPULL_TESTS_GPU_KERNELS_CU
#define KVPULL_TESTS_GPU_KERNELS_CU

#include "cuda/gather.cu"

#ifdef __CUDACC__
GATHER_INLINE void gather_count(uint64_t address)
{
	asm volatile("red.global.add.u64 [%0], 1;" : : "l"(address) : "memory");
}
#else
GATHER_INLINE void gather_count(uint64_t address)
{
	*(uint64_t *)gather_thread.memory(address, sizeof(uint64_t), 1) += 1;
}
#endif

GATHER_INLINE struct gather_piece gather_stamp(uint64_t seed, uint64_t index)
{
	struct gather_piece piece;

	piece.word[0] = (uint32_t)seed;
	piece.word[1] = (uint32_t)(seed >> 32);
	piece.word[2] = (uint32_t)index;
	piece.word[3] = (uint32_t)(index >> 32);
	return piece;
}

/* Each 16 bytes say what was written there last, and where. */
GATHER_KERNEL stamp(uint64_t address, uint64_t piece_count, uint64_t seed)
{
	uint64_t at;

	for (at = (uint64_t)GATHER_BLOCK * GATHER_LANES + GATHER_LANE;
	     at < piece_count; at += (uint64_t)GATHER_BLOCKS * GATHER_LANES)
		gather_store(address + at * GATHER_PIECE_BYTES,
			     gather_stamp(seed, at));
}

GATHER_INLINE int gather_differs(struct gather_piece a, struct gather_piece b)
{
	return a.word[0] != b.word[0] || a.word[1] != b.word[1] ||
	       a.word[2] != b.word[2] || a.word[3] != b.word[3];
}

/* The memory that was stamped, the seed, and the counter of differences. */
struct gather_expected {
	uint64_t origin;
	uint64_t seed;
	uint64_t counter;
};

/* Count the pieces of a job's targets that are not the stamps of its sources. */
GATHER_KERNEL compare(struct gather_job job, uint64_t end,
		      struct gather_expected expected)
{
	uint64_t unit;
	uint64_t at;

	for (unit = GATHER_BLOCK; unit < end; unit += GATHER_BLOCKS) {
		const struct gather_place place = gather_place_of(&job, unit);

		for (at = (uint64_t)GATHER_LANE * GATHER_PIECE_BYTES;
		     at < place.bytes; at += GATHER_LANES * GATHER_PIECE_BYTES)
			if (gather_differs(
				    gather_load(place.target + at),
				    gather_stamp(
					    expected.seed,
					    (place.source + at -
					     expected.origin) /
						    GATHER_PIECE_BYTES)))
				gather_count(expected.counter);
	}
}

#endif
