/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arena holds all memory of one handle. open() takes it and seals the arena
 * before it returns; a later allocation is a bug. The caller does not say how
 * much it needs: until the seal the arena maps another piece whenever the last
 * one is used up. The kernel gives pages on first touch, so a large table costs
 * only the part that is used.
 */
#ifndef KVPULL_BASE_ARENA_H
#define KVPULL_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "base/log.h"

#define KVPULL_NONE UINT32_MAX /* no index, of anything */
#define KVPULL_CACHE_LINE 64
#define KVPULL_ARENA_HUGE_BYTES ((uintptr_t)2 << 20)
/* Behind each table, so that the address sanitizer sees who goes beyond it. */
#ifdef __SANITIZE_ADDRESS__
#define KVPULL_ARENA_FENCE_BYTES KVPULL_CACHE_LINE
#else
#define KVPULL_ARENA_FENCE_BYTES 0
#endif
/* Mapped at once at least, and in multiples of it. */
#define KVPULL_ARENA_PIECE_BYTES ((size_t)2 << 20)
/* A hot arena touches this many bytes at once, and further pages on use. */
#define KVPULL_ARENA_TOUCHED_MAX ((size_t)4 << 20)
/*
 * More than any useful configuration asks for (65,536 pulls with the ids of
 * 32,768 blocks each are half of it); address spaces have 128 TiB.
 */
#define KVPULL_ARENA_BYTES_MAX ((size_t)32 << 40)
/* Two more pieces make it half as much again: 84 are the most there can be. */
#define KVPULL_ARENA_PIECES_MAX 96u

struct kvpull_arena_piece {
	uint8_t *base;
	size_t bytes;
};

struct kvpull_arena {
	const struct kvpull_log *log;
	struct kvpull_arena_piece pieces[KVPULL_ARENA_PIECES_MAX];
	uint8_t *next; /* in the last piece */
	size_t left;   /* behind next */
	size_t used;
	size_t bytes_max; /* of used; tests lower it */
	uint32_t piece_count;
	uint32_t sealed;
	uint32_t failed; /* an allocation did not fit: see _ok */
	uint32_t is_hot;
};

/* Prepares an arena; its first take maps memory. */
void kvpull_arena_init(struct kvpull_arena *arena,
		       const struct kvpull_log *log);

/*
 * An arena in huge pages, for what is used together and at random in each step:
 * what is taken in a row lies together.
 */
void kvpull_arena_init_hot(struct kvpull_arena *arena,
			   const struct kvpull_log *log);

void kvpull_arena_fini(struct kvpull_arena *arena);

/*
 * count zeroed items of item_bytes, aligned to a cache line. NULL when there is
 * no memory for them, and then _ok() says so: a caller may check once, at the
 * end.
 */
void *kvpull_arena_take(struct kvpull_arena *arena, size_t count,
			size_t item_bytes);

/* A table's items, of the size of what it points to. */
#define KVPULL_ARENA_TAKE(arena, table, count)                                 \
	((table) = kvpull_arena_take(arena, count, sizeof(*(table))))

/* As take, in huge pages as far as the table has whole ones. */
void *kvpull_arena_take_table(struct kvpull_arena *arena, size_t count,
			      size_t item_bytes);

/* From here on a take is a bug. What was mapped too much is given back. */
void kvpull_arena_seal(struct kvpull_arena *arena);

static inline int kvpull_arena_ok(const struct kvpull_arena *arena)
{
	return !arena->failed;
}

#endif /* KVPULL_BASE_ARENA_H */
