/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel that copies scattered rows of device memory. The same source is
 * CUDA, from which gather.ptx is made (make gpu-ptx), and C, by which the fake
 * driver runs it and tests compare it.
 *
 * A block of 256 threads takes units by grid stride and finds a unit's strip by
 * binary search in the prefix sums. Each thread has up to four loads of 16 bytes
 * in flight. Loads are relaxed and of system scope: the source is another
 * process's memory, which may be written meanwhile. Nothing is checked in here;
 * the CPU checked all of it before.
 */
#ifndef KVPULL_CUDA_GATHER_CU
#define KVPULL_CUDA_GATHER_CU

#include "cuda/gather.h"

struct gather_piece {
	uint32_t word[4];
};

#ifdef __CUDACC__
#define GATHER_KERNEL extern "C" __global__ void
#define GATHER_INLINE static __device__ __forceinline__
#define GATHER_BLOCK blockIdx.x
#define GATHER_BLOCKS gridDim.x
#define GATHER_LANE threadIdx.x
#define GATHER_UNROLL _Pragma("unroll")

GATHER_INLINE struct gather_piece gather_load(uint64_t address)
{
	struct gather_piece piece;

	asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(piece.word[0]), "=r"(piece.word[1]),
		       "=r"(piece.word[2]), "=r"(piece.word[3])
		     : "l"(address)
		     : "memory");
	return piece;
}

GATHER_INLINE void gather_store(uint64_t address, struct gather_piece piece)
{
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
		     :
		     : "l"(address), "r"(piece.word[0]), "r"(piece.word[1]),
		       "r"(piece.word[2]), "r"(piece.word[3])
		     : "memory");
}

/* The strips and ids of a job lie in pinned memory, or on the device. */
GATHER_INLINE const struct gather_strip *
gather_strip_at(const struct gather_job *job, uint64_t at)
{
	return &job->strips[at];
}

GATHER_INLINE uint32_t gather_id_at(const uint32_t *ids, uint64_t at)
{
	return ids[at];
}

#else
/* A caller in C sets the thread that it runs as, and where addresses lie. */
struct gather_thread {
	uint32_t block;
	uint32_t blocks;
	uint32_t lane;
	void *(*memory)(uint64_t address, uint64_t bytes, int is_store);
};
static _Thread_local struct gather_thread gather_thread;

#define GATHER_KERNEL static inline void
#define GATHER_INLINE static inline
#define GATHER_BLOCK gather_thread.block
#define GATHER_BLOCKS gather_thread.blocks
#define GATHER_LANE gather_thread.lane
#define GATHER_UNROLL
GATHER_INLINE struct gather_piece gather_load(uint64_t address)
{
	return *(const struct gather_piece *)gather_thread.memory(
		address, GATHER_PIECE_BYTES, 0);
}

GATHER_INLINE void gather_store(uint64_t address, struct gather_piece piece)
{
	*(struct gather_piece *)gather_thread.memory(
		address, GATHER_PIECE_BYTES, 1) = piece;
}

GATHER_INLINE const struct gather_strip *
gather_strip_at(const struct gather_job *job, uint64_t at)
{
	return gather_thread.memory((uint64_t)(uintptr_t)&job->strips[at],
				    sizeof(struct gather_strip), 0);
}

GATHER_INLINE uint32_t gather_id_at(const uint32_t *ids, uint64_t at)
{
	return *(const uint32_t *)gather_thread.memory(
		(uint64_t)(uintptr_t)&ids[at], sizeof(ids[at]), 0);
}
#endif

/* The last strip that begins at or before the unit. */
GATHER_INLINE const struct gather_strip *
gather_strip_of(const struct gather_job *job, uint64_t unit)
{
	uint64_t low = 0;
	uint64_t high = job->strip_count;

	while (high - low > 1) {
		const uint64_t middle = low + (high - low) / 2;

		if (gather_strip_at(job, middle)->unit_first <= unit)
			low = middle;
		else
			high = middle;
	}
	return gather_strip_at(job, low);
}

GATHER_INLINE void gather_unit(uint64_t target, uint64_t source, uint64_t bytes)
{
	struct gather_piece pieces[GATHER_LOADS];
	const uint64_t first = (uint64_t)GATHER_LANE * GATHER_PIECE_BYTES;
	const uint64_t step = GATHER_LANES * GATHER_PIECE_BYTES;
	uint32_t i;

	GATHER_UNROLL
	for (i = 0; i < GATHER_LOADS; i++)
		if (first + i * step < bytes)
			pieces[i] = gather_load(source + first + i * step);
	GATHER_UNROLL
	for (i = 0; i < GATHER_LOADS; i++)
		if (first + i * step < bytes)
			gather_store(target + first + i * step, pieces[i]);
}

/* Where a unit of a job is read and written, and how long it is. */
struct gather_place {
	uint64_t source;
	uint64_t target;
	uint64_t bytes;
};

GATHER_INLINE struct gather_place gather_place_of(const struct gather_job *job,
						  uint64_t unit)
{
	const struct gather_strip *strip = gather_strip_of(job, unit);
	const uint64_t row_units =
		(strip->row_bytes + GATHER_UNIT_BYTES - 1) / GATHER_UNIT_BYTES;
	const uint64_t at = unit - strip->unit_first;
	const uint64_t id = strip->id_first + at / row_units;
	const uint64_t offset = at % row_units * GATHER_UNIT_BYTES;
	const uint64_t left = strip->row_bytes - offset;
	struct gather_place place;

	place.source = strip->source + offset +
		       gather_id_at(job->source_ids, id) *
			       strip->source_stride;
	place.target = strip->target + offset +
		       gather_id_at(job->target_ids, id) *
			       strip->target_stride;
	place.bytes = left < GATHER_UNIT_BYTES ? left : GATHER_UNIT_BYTES;
	return place;
}

/* The units from first to end of a job: a slice of it. */
GATHER_KERNEL gather(struct gather_job job, uint64_t first, uint64_t end)
{
	uint64_t unit;

	for (unit = first + GATHER_BLOCK; unit < end; unit += GATHER_BLOCKS) {
		const struct gather_place place = gather_place_of(&job, unit);

		gather_unit(place.target, place.source, place.bytes);
	}
}

#endif
