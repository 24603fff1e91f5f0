/* SPDX-License-Identifier: Apache-2.0 */
/* Out of every cache, as the KV of a request that was computed a while ago. */
#ifndef KVPULL_TESTS_BENCH_EVICT_H
#define KVPULL_TESTS_BENCH_EVICT_H

#include <stddef.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#define BENCH_LINE_BYTES 64u

#if defined(__x86_64__)
/* CLFLUSHOPT, unlike CLFLUSH, waits for no flush of another line. */
static inline int bench_has_clflushopt(void)
{
	static int known = -1;
	unsigned a, b = 0, c, d;

	if (known < 0)
		known = __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
			(b & bit_CLFLUSHOPT);
	return known;
}
#endif

static inline void bench_evict(const uint8_t *memory, size_t bytes)
{
	size_t at;

	for (at = 0; at < bytes; at += BENCH_LINE_BYTES)
#if defined(__x86_64__)
		if (bench_has_clflushopt())
			__asm__("clflushopt %0" ::"m"(memory[at]) : "memory");
		else
			_mm_clflush(memory + at);
#elif defined(__aarch64__)
		__asm__("dc civac, %0" ::"r"(memory + at) : "memory");
#endif
}

static inline void bench_evict_end(void)
{
#if defined(__x86_64__)
	_mm_mfence();
#elif defined(__aarch64__)
	__asm__("dsb sy" ::: "memory");
#endif
}

#endif /* KVPULL_TESTS_BENCH_EVICT_H */
