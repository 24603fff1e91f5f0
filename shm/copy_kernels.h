/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routines copy spans. Their parts are line kernels of each instruction set;
 * copy_routines.c puts those into its two frames.
 *
 * A kernel copies whole 64-byte lines of several streams in step: first line of
 * every stream, second line of every stream, ... So as many cache misses and
 * write-combining buffers are in flight as there are streams.
 */
#ifndef KVPULL_SHM_COPY_KERNELS_H
#define KVPULL_SHM_COPY_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* A routine that copies `count` spans of `bytes` each. */
struct kvpull_span {
	const uint8_t *from;
	uint8_t *to;
};
typedef void (*kvpull_copy_fn)(const struct kvpull_span *spans, uint32_t count,
			       size_t bytes);

struct kvpull_copy_routine {
	const char *name; /* "memcpy", "movsb", "avx2-nt-4", "neon-nt-4"... */
	kvpull_copy_fn copy;
	uint32_t streams; /* worked on at once */
	uint32_t lanes;   /* spans side by side; 1: streams are inside one */
	uint32_t needs;   /* cpu features: kvpull_copy_usable() */
};

#define KVPULL_LINE_BYTES 64u
#define KVPULL_STREAMS_MAX 8u

/*
 * The peer may overwrite what we read, by design (its revocation entry decides
 * afterwards whether the bytes count): the one race that is no bug. Everything
 * that touches the peer's bytes carries this.
 */
#define KVPULL_RACES_BY_DESIGN __attribute__((no_sanitize("thread")))

/* Every `to` is aligned to a line; `from` need not be. */
struct kvpull_streams {
	const uint8_t *from[KVPULL_STREAMS_MAX];
	uint8_t *to[KVPULL_STREAMS_MAX];
};

typedef void (*kvpull_lines_fn)(const struct kvpull_streams *streams,
				size_t line_count);

#if defined(__x86_64__)
/* Non-temporal stores: a kernel's name, its streams, and if it prefetches. */
#define KVPULL_KERNELS(X, isa)                                                 \
	X(isa, 1, 1, 0)                                                        \
	X(isa, 2, 2, 0)                                                        \
	X(isa, 4, 4, 0)                                                        \
	X(isa, 8, 8, 0)                                                        \
	X(isa, 2_ahead, 2, 1)                                                  \
	X(isa, 4_ahead, 4, 1)                                                  \
	X(isa, 8_ahead, 8, 1)
#define KVPULL_KERNEL_DECLARE(isa, name, streams, is_ahead)                    \
	void kvpull_##isa##_lines_##name(const struct kvpull_streams *from_to, \
					 size_t line_count);
KVPULL_KERNELS(KVPULL_KERNEL_DECLARE, avx2)
KVPULL_KERNELS(KVPULL_KERNEL_DECLARE, avx512)
/* rep movsb: not seen by sanitizers, any size. */
void kvpull_movsb(uint8_t *to, const uint8_t *from, size_t bytes);
#elif defined(__aarch64__)
void kvpull_neon_lines_1(const struct kvpull_streams *streams,
			 size_t line_count);
void kvpull_neon_lines_2(const struct kvpull_streams *streams,
			 size_t line_count);
void kvpull_neon_lines_4(const struct kvpull_streams *streams,
			 size_t line_count);
#endif

/* Earlier non-temporal stores come before every later store. */
void kvpull_stores_fence(void);

/* copy_routines.c: all routines, and whether this CPU can run one. */
const struct kvpull_copy_routine *kvpull_copy_routines(uint32_t *count);
int kvpull_copy_usable(const struct kvpull_copy_routine *routine);

#endif /* KVPULL_SHM_COPY_KERNELS_H */
