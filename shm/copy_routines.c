// SPDX-License-Identifier: Apache-2.0
/*
 * The routines: two frames around the line kernels, one for spans side by side
 * and one for short spans in a row.
 *
 * Invariants: a routine writes the bytes of its spans and no others, for any
 * alignment and any size. A non-temporal kernel gets whole lines of the
 * destination only; what is left at both ends of a span is copied plainly.
 * Each call ends with a store fence, so its bytes come before any store that
 * the caller makes afterwards (the release that publishes the share).
 */
#include "shm/copy_kernels.h"

#include <string.h>

#define PAGE_LINES (4096u / KVPULL_LINE_BYTES)
#define NEXT_LINES (8192u / KVPULL_LINE_BYTES)

#define NEEDS_avx2 1u
#define NEEDS_avx512 2u
#define NEEDS_X86 4u
#define NEEDS_neon 0u /* all of them have it */

#if defined(__SANITIZE_THREAD__)
#define KVPULL_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVPULL_TSAN 1
#endif
#endif
#ifndef KVPULL_TSAN
#define KVPULL_TSAN 0
#endif

/*
 * memcpy, except under ThreadSanitizer: there memcpy is intercepted and would
 * report the race that is meant.
 */
static inline KVPULL_RACES_BY_DESIGN void
plain_copy(uint8_t *to, const uint8_t *from, size_t bytes)
{
#if KVPULL_TSAN && defined(__x86_64__)
	kvpull_movsb(to, from, bytes);
#elif KVPULL_TSAN
	while (bytes--)
		*to++ = *from++;
#else
	if (bytes)
		memcpy(to, from, bytes);
#endif
}

static void memcpy_copy(const struct kvpull_span *spans, uint32_t count,
			size_t bytes)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		plain_copy(spans[i].to, spans[i].from, bytes);
}

#if defined(__x86_64__)

static void movsb_copy(const struct kvpull_span *spans, uint32_t count,
		       size_t bytes)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		kvpull_movsb(spans[i].to, spans[i].from, bytes);
	kvpull_stores_fence();
}

#endif

#if defined(__x86_64__) || defined(__aarch64__)

static inline void span_fetch(const struct kvpull_span *span, size_t bytes)
{
	size_t at;

	for (at = 0; at < bytes; at += KVPULL_LINE_BYTES)
		__builtin_prefetch(span->from + at);
}

/* Bytes up to the destination's next line. */
static inline size_t head_of(const struct kvpull_span *span, size_t bytes)
{
	const size_t head =
		(size_t)(-(uintptr_t)span->to & (KVPULL_LINE_BYTES - 1));

	return head < bytes ? head : bytes;
}

static inline void span_copy(kvpull_lines_fn lines,
			     const struct kvpull_span *span, size_t bytes)
{
	const size_t head = head_of(span, bytes);
	const size_t line_count = (bytes - head) / KVPULL_LINE_BYTES;
	const size_t done = head + line_count * KVPULL_LINE_BYTES;
	struct kvpull_streams streams;

	plain_copy(span->to, span->from, head);
	streams.from[0] = span->from + head;
	streams.to[0] = span->to + head;
	lines(&streams, line_count);
	plain_copy(span->to + done, span->from + done, bytes - done);
}

/* How a routine lays its streams. */
struct layout {
	kvpull_lines_fn lines;
	uint32_t streams;
	uint32_t lanes;     /* spans side by side; streams is a multiple */
	size_t apart_lines; /* at most so far apart inside a span */
};

/*
 * Copy lane_count spans in step, each as streams / lane_count streams. Their
 * line counts differ by one at most, where they are aligned differently.
 */
static void lanes_copy(const struct layout *layout,
		       const struct kvpull_span *lanes, uint32_t lane_count,
		       size_t bytes)
{
	const uint32_t parts = layout->streams / lane_count;
	struct kvpull_span body[KVPULL_STREAMS_MAX];
	size_t body_bytes[KVPULL_STREAMS_MAX];
	struct kvpull_streams streams;
	size_t lines = SIZE_MAX;
	size_t done = 0;
	uint32_t i, k;

	for (i = 0; i < lane_count; i++) {
		const size_t head = head_of(&lanes[i], bytes);

		plain_copy(lanes[i].to, lanes[i].from, head);
		body[i].from = lanes[i].from + head;
		body[i].to = lanes[i].to + head;
		body_bytes[i] = bytes - head;
		if (body_bytes[i] / KVPULL_LINE_BYTES < lines)
			lines = body_bytes[i] / KVPULL_LINE_BYTES;
	}
	while (lines - done >= parts) {
		size_t step = (lines - done) / parts;

		if (step > layout->apart_lines)
			step = layout->apart_lines;
		for (k = 0; k < layout->streams; k++) {
			const size_t at =
				(done + k % parts * step) * KVPULL_LINE_BYTES;

			streams.from[k] = body[k / parts].from + at;
			streams.to[k] = body[k / parts].to + at;
		}
		layout->lines(&streams, step);
		done += step * parts;
	}
	done *= KVPULL_LINE_BYTES;
	for (i = 0; i < lane_count; i++)
		plain_copy(body[i].to + done, body[i].from + done,
			   body_bytes[i] - done);
}

/*
 * Lane k takes the spans [k * steps, (k + 1) * steps): where blocks are
 * neighbours, each lane runs through memory in order, and the lanes are far
 * apart, so that the prefetch of one never runs into what another has read.
 */
static void streams_copy(const struct layout *layout,
			 const struct kvpull_span *spans, uint32_t count,
			 size_t bytes)
{
	const uint32_t steps = (count + layout->lanes - 1) / layout->lanes;
	struct kvpull_span lanes[KVPULL_STREAMS_MAX];
	uint32_t step;

	for (step = 0; step < steps; step++) {
		uint32_t lane_count = 0;
		uint32_t at = 0;
		uint32_t i;

		for (i = step; i < count; i += steps)
			lanes[lane_count++] = spans[i];
		/* Too few for all lanes: powers of two, cut into more parts. */
		while (at < lane_count) {
			uint32_t taken = layout->lanes;

			while (taken > lane_count - at)
				taken /= 2;
			lanes_copy(layout, lanes + at, taken, bytes);
			at += taken;
		}
	}
	kvpull_stores_fence();
}

/*
 * Short spans, one after the other, while the bytes of the next ones are
 * fetched: a span ends before the CPU's own prefetch has begun, and the next
 * one lies elsewhere. At 512 bytes this takes half the time of memcpy or of
 * eight streams (measured on Zen 5; half or twice NEXT_LINES took longer).
 */
static void next_copy(kvpull_lines_fn lines, const struct kvpull_span *spans,
		      uint32_t count, size_t bytes)
{
	const size_t span_lines =
		(bytes + KVPULL_LINE_BYTES - 1) / KVPULL_LINE_BYTES;
	/* Spans that are longer than this leave it to the CPU. */
	const uint32_t ahead =
		span_lines ? (uint32_t)(NEXT_LINES / span_lines) : 0;
	uint32_t fetched = 0;
	uint32_t i;

	for (i = 0; i < count; i++) {
		while (fetched < count && fetched < i + ahead)
			span_fetch(&spans[fetched++], bytes);
		span_copy(lines, &spans[i], bytes);
	}
	kvpull_stores_fence();
}

/* Rows: a routine's name, its kernel, streams, lanes, and layout.apart. */
#define ROUTINES(X, isa)                                                       \
	X(isa, "1", 1, 1, 1, SIZE_MAX)                                         \
	X(isa, "2", 2, 2, 2, SIZE_MAX)                                         \
	X(isa, "4", 4, 4, 4, SIZE_MAX)                                         \
	X(isa, "8", 8, 8, 8, SIZE_MAX)                                         \
	X(isa, "2-ahead", 2_ahead, 2, 2, SIZE_MAX)                             \
	X(isa, "4-ahead", 4_ahead, 4, 4, SIZE_MAX)                             \
	X(isa, "8-ahead", 8_ahead, 8, 8, SIZE_MAX)                             \
	X(isa, "2p", 2, 2, 1, PAGE_LINES)                                      \
	X(isa, "4p", 4, 4, 1, PAGE_LINES)                                      \
	X(isa, "8p", 8, 8, 1, PAGE_LINES)

#define NEON(X)                                                                \
	X(neon, "1", 1, 1, 1, SIZE_MAX)                                        \
	X(neon, "2", 2, 2, 2, SIZE_MAX)                                        \
	X(neon, "4", 4, 4, 4, SIZE_MAX)

#define COPY(isa, name, kernel, stream_count, lane_count, apart)               \
	static void isa##_##kernel##_##lane_count##_copy(                      \
		const struct kvpull_span *spans, uint32_t count, size_t bytes) \
	{                                                                      \
		static const struct layout layout = {                          \
			kvpull_##isa##_lines_##kernel, stream_count,           \
			lane_count, apart                                      \
		};                                                             \
                                                                               \
		streams_copy(&layout, spans, count, bytes);                    \
	}
#define NEXT_COPY(isa)                                                         \
	static void isa##_next_copy(const struct kvpull_span *spans,           \
				    uint32_t count, size_t bytes)              \
	{                                                                      \
		next_copy(kvpull_##isa##_lines_1, spans, count, bytes);        \
	}
#define ROW(isa, name, kernel, stream_count, lane_count, apart)                \
	{ #isa "-nt-" name, isa##_##kernel##_##lane_count##_copy,              \
	  stream_count, lane_count, NEEDS_##isa },
#define NEXT_ROW(isa) { #isa "-nt-next", isa##_next_copy, 1, 1, NEEDS_##isa },

#endif

#if defined(__x86_64__)
ROUTINES(COPY, avx2)
ROUTINES(COPY, avx512)
NEXT_COPY(avx2)
NEXT_COPY(avx512)
#elif defined(__aarch64__)
NEON(COPY)
NEXT_COPY(neon)
#endif

/* clang-format off */
static const struct kvpull_copy_routine routines[] = {
	{ "memcpy", memcpy_copy, 1, 1, 0 },
#if defined(__x86_64__)
	{ "movsb", movsb_copy, 1, 1, NEEDS_X86 },
	ROUTINES(ROW, avx2)
	ROUTINES(ROW, avx512)
	NEXT_ROW(avx2)
	NEXT_ROW(avx512)
#elif defined(__aarch64__)
	NEON(ROW)
	NEXT_ROW(neon)
#endif
};
/* clang-format on */

const struct kvpull_copy_routine *kvpull_copy_routines(uint32_t *count)
{
	*count = (uint32_t)(sizeof(routines) / sizeof(routines[0]));
	return routines;
}

int kvpull_copy_usable(const struct kvpull_copy_routine *routine)
{
#if defined(__x86_64__)
	if (routine->needs & NEEDS_avx512)
		return __builtin_cpu_supports("avx512f") != 0;
	if (routine->needs & NEEDS_avx2)
		return __builtin_cpu_supports("avx2") != 0;
	return 1;
#else
	return routine->needs == 0;
#endif
}
