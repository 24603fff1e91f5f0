// SPDX-License-Identifier: Apache-2.0
/*
 * Line kernels for aarch64, as copy_x86.c has them for x86-64; all of its CPUs
 * have NEON. Four streams are sixteen registers, half of what there is. The
 * compilers have no common name for stores that leave the caches alone, so it
 * is written out.
 */
#if defined(__aarch64__)

#include <arm_neon.h>

#include "shm/copy_kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define NEON_STREAMS_MAX 4u

INLINE void pair_store(uint8_t *to, uint8x16_t low, uint8x16_t high)
{
	__asm__ __volatile__("stnp %q1, %q2, [%0]"
			     :
			     : "r"(to), "w"(low), "w"(high)
			     : "memory");
}

INLINE KVPULL_RACES_BY_DESIGN void
neon_lines(const struct kvpull_streams *streams, size_t line_count,
	   const uint32_t stream_count)
{
	const size_t end = line_count * KVPULL_LINE_BYTES;
	uint8x16x4_t lines[NEON_STREAMS_MAX];
	size_t at;
	uint32_t k;

	for (at = 0; at < end; at += KVPULL_LINE_BYTES) {
#pragma GCC unroll 4
		for (k = 0; k < stream_count; k++)
			lines[k] = vld1q_u8_x4(streams->from[k] + at);
#pragma GCC unroll 4
		for (k = 0; k < stream_count; k++) {
			uint8_t *to = streams->to[k] + at;

			pair_store(to, lines[k].val[0], lines[k].val[1]);
			pair_store(to + 32, lines[k].val[2], lines[k].val[3]);
		}
	}
}

#define KERNEL(stream_count)                                                   \
	KVPULL_RACES_BY_DESIGN void kvpull_neon_lines_##stream_count(          \
		const struct kvpull_streams *streams, size_t line_count)       \
	{                                                                      \
		const struct kvpull_streams local = *streams;                  \
                                                                               \
		neon_lines(&local, line_count, stream_count);                  \
	}

KERNEL(1)
KERNEL(2)
KERNEL(4)

/* Loads too: what was read of a peer is read before its revocation entry. */
void kvpull_stores_fence(void)
{
	__asm__ __volatile__("dmb ish" : : : "memory");
}

#else

/* ISO C wants a declaration in every file. */
typedef int kvpull_no_neon;

#endif
