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

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define KVPULL_STREAM_BYTES_MIN 1024u

/* As memcpy(); a later release store publishes it as it would memcpy()'s. */
static inline void kvpull_stream_copy(void *to, const void *from,
				      size_t byte_count)
{
#if defined(__SSE2__)
	const uint8_t *source = (const uint8_t *)from;
	uint8_t *target = (uint8_t *)to;
	const size_t head = -(uintptr_t)target & 63;
	size_t at;

	if (byte_count < KVPULL_STREAM_BYTES_MIN) {
		memcpy(to, from, byte_count);
		return;
	}
	memcpy(target, source, head);
	for (at = head; byte_count - at >= 64; at += 64) {
		const __m128i *line =
			(const __m128i *)(const void *)(source + at);
		__m128i *lines = (__m128i *)(void *)(target + at);
		const __m128i a = _mm_loadu_si128(line);
		const __m128i b = _mm_loadu_si128(line + 1);
		const __m128i c = _mm_loadu_si128(line + 2);
		const __m128i d = _mm_loadu_si128(line + 3);

		_mm_stream_si128(lines, a);
		_mm_stream_si128(lines + 1, b);
		_mm_stream_si128(lines + 2, c);
		_mm_stream_si128(lines + 3, d);
	}
	memcpy(target + at, source + at, byte_count - at);
	/* Such stores are not ordered with later ones. */
	_mm_sfence();
#else
	memcpy(to, from, byte_count);
#endif
}

#endif /* KVPULL_BASE_STREAM_H */
