/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One arena a handle: all memory is taken in open() and sealed before it
 * returns; an allocation after that is a bug. Pages are taken from the kernel
 * on first touch, so large tables cost what is used of them.
 */
#ifndef KVPULL_BASE_ARENA_H
#define KVPULL_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/log.h"

#define KVPULL_CACHE_LINE 64
#define KVPULL_ARENA_HUGE_BYTES ((uintptr_t)2 << 20)
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

struct kvpull_arena {
	const struct kvpull_log *log;
	uint8_t *base;
	size_t capacity;
	size_t used;
	uint32_t sealed;
	uint32_t failed; /* an allocation did not fit: see _ok */
};

/* Reserve address space for everything; 0 or KVPULL_ENOMEM. */
static inline int kvpull_arena_open(struct kvpull_arena *arena, size_t capacity,
				    const struct kvpull_log *log)
{
	void *base = mmap(NULL, capacity, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED)
		return KVPULL_ENOMEM;
	*arena = (struct kvpull_arena){ .log = log,
					.base = base,
					.capacity = capacity };
	return 0;
}

static inline void kvpull_arena_close(struct kvpull_arena *arena)
{
	if (arena->base)
		(void)munmap(arena->base, arena->capacity);
	arena->base = NULL;
}

/*
 * count zeroed items of item_bytes, aligned to a cache line. NULL when they do
 * not fit, and then _ok() says so: a caller may check once, at the end.
 */
static inline void *kvpull_arena_take(struct kvpull_arena *arena, size_t count,
				      size_t item_bytes)
{
	size_t bytes;
	void *taken;

	kvpull_check(arena->log, !arena->sealed);
	if (__builtin_mul_overflow(count, item_bytes, &bytes) ||
	    bytes > SIZE_MAX - KVPULL_CACHE_LINE) {
		arena->failed = 1;
		return NULL;
	}
	bytes = (bytes + KVPULL_CACHE_LINE - 1) &
		~(size_t)(KVPULL_CACHE_LINE - 1);
	if (bytes > arena->capacity - arena->used) {
		arena->failed = 1;
		return NULL;
	}
	taken = arena->base + arena->used;
	arena->used += bytes;
	return taken;
}

/*
 * With small pages each look-up of a large table that is used at random misses
 * the TLB too, which is dear in a virtual machine (measured: a tenth of a
 * release, a fifth of a step with a long pull). All of it is touched now: the
 * first touch of a huge page clears 2 MiB, and that is better at open than in a
 * poll. Not granted, it is as without.
 */
static inline void kvpull_arena_make_huge(const void *base, size_t byte_count)
{
	const uintptr_t page = KVPULL_ARENA_HUGE_BYTES;
	const uintptr_t first = ((uintptr_t)base + page - 1) & ~(page - 1);
	const uintptr_t end = ((uintptr_t)base + byte_count) & ~(page - 1);

	if (end > first && !madvise((void *)first, end - first, MADV_HUGEPAGE))
		(void)madvise((void *)first, end - first, MADV_POPULATE_WRITE);
}

/* As take, in huge pages as far as the table has whole ones. */
static inline void *kvpull_arena_take_table(struct kvpull_arena *arena,
					    size_t count, size_t item_bytes)
{
	void *taken = kvpull_arena_take(arena, count, item_bytes);

	if (taken)
		kvpull_arena_make_huge(taken, count * item_bytes);
	return taken;
}

/*
 * An arena within this one, for what is used together: in huge pages if it has
 * one's bytes. It needs no close; ask both with _ok().
 */
static inline void kvpull_arena_take_part(struct kvpull_arena *arena,
					  struct kvpull_arena *part,
					  size_t capacity)
{
	const uintptr_t page = KVPULL_ARENA_HUGE_BYTES;
	uint8_t *taken = (uint8_t *)kvpull_arena_take(
		arena, 1, capacity + 2 * (size_t)page);

	*part = (struct kvpull_arena){ .log = arena->log };
	if (!taken)
		return;
	part->base = taken + (-(uintptr_t)taken & (page - 1));
	part->capacity = capacity;
	if (capacity >= page)
		kvpull_arena_make_huge(part->base, capacity + page - 1);
}

static inline int kvpull_arena_ok(const struct kvpull_arena *arena)
{
	return !arena->failed;
}

static inline void kvpull_arena_seal(struct kvpull_arena *arena)
{
	arena->sealed = 1;
}

#endif /* KVPULL_BASE_ARENA_H */
