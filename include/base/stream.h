/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy past the caches, for a few KiB that somebody else will read later:
 * lines that are written whole need not be fetched first, which is most of what
 * a write to cold memory costs.
 */
#ifndef KVPULL_BASE_STREAM_H
#define KVPULL_BASE_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define KVPULL_STREAM_BYTES_MIN 1024u
#define KVPULL_STREAM_LINE 64u

#if defined(__x86_64__)
static inline void kvpull_stream_lines(uint8_t *to, const uint8_t *from,
				       size_t line_count)
{
	for (; line_count--;
	     to += KVPULL_STREAM_LINE, from += KVPULL_STREAM_LINE) {
		const __m128i *line = (const __m128i *)(const void *)from;
		__m128i *lines = (__m128i *)(void *)to;
		const __m128i a = _mm_loadu_si128(line);
		const __m128i b = _mm_loadu_si128(line + 1);
		const __m128i c = _mm_loadu_si128(line + 2);
		const __m128i d = _mm_loadu_si128(line + 3);

		_mm_stream_si128(lines, a);
		_mm_stream_si128(lines + 1, b);
		_mm_stream_si128(lines + 2, c);
		_mm_stream_si128(lines + 3, d);
	}
}

/* Takes three quarters of the time where it is there. */
__attribute__((target("avx2"))) static inline void
kvpull_stream_lines_avx2(uint8_t *to, const uint8_t *from, size_t line_count)
{
	for (; line_count--;
	     to += KVPULL_STREAM_LINE, from += KVPULL_STREAM_LINE) {
		const __m256i *line = (const __m256i *)(const void *)from;
		__m256i *lines = (__m256i *)(void *)to;
		const __m256i a = _mm256_loadu_si256(line);
		const __m256i b = _mm256_loadu_si256(line + 1);

		_mm256_stream_si256(lines, a);
		_mm256_stream_si256(lines + 1, b);
	}
}
#endif

/* As memcpy(); a later release store publishes it as it would memcpy()'s. */
static inline void kvpull_stream_copy(void *to, const void *from,
				      size_t byte_count)
{
#if defined(__x86_64__)
	const uint8_t *source = (const uint8_t *)from;
	uint8_t *target = (uint8_t *)to;
	const size_t head = -(uintptr_t)target & (KVPULL_STREAM_LINE - 1);
	size_t lines, done;

	if (byte_count < KVPULL_STREAM_BYTES_MIN) {
		memcpy(to, from, byte_count);
		return;
	}
	lines = (byte_count - head) / KVPULL_STREAM_LINE;
	done = head + lines * KVPULL_STREAM_LINE;
	memcpy(target, source, head);
	if (__builtin_cpu_supports("avx2"))
		kvpull_stream_lines_avx2(target + head, source + head, lines);
	else
		kvpull_stream_lines(target + head, source + head, lines);
	memcpy(target + done, source + done, byte_count - done);
	/* Such stores are not ordered with later ones. */
	_mm_sfence();
#else
	memcpy(to, from, byte_count);
#endif
}

#endif /* KVPULL_BASE_STREAM_H */
