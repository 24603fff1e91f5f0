/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: next and left lie in the last piece; what is behind the last take
 * of an earlier piece is unmapped, but for its last page.
 */
#include "base/arena.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/cause.h"
#include "base/least.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define PAGE_BYTES ((uintptr_t)4096)

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(base, byte_count)                            \
	((void)(base), (void)(byte_count))
#define ASAN_UNPOISON_MEMORY_REGION(base, byte_count)                          \
	((void)(base), (void)(byte_count))
#endif

static uintptr_t round_up(uintptr_t value, uintptr_t unit)
{
	return (value + unit - 1) & ~(unit - 1);
}

void kvpull_arena_init(struct kvpull_arena *arena, const struct kvpull_log *log)
{
	*arena = (struct kvpull_arena){ .log = log,
					.bytes_max = KVPULL_ARENA_BYTES_MAX };
}

void kvpull_arena_init_hot(struct kvpull_arena *arena,
			   const struct kvpull_log *log)
{
	kvpull_arena_init(arena, log);
	arena->is_hot = 1;
}

void kvpull_arena_fini(struct kvpull_arena *arena)
{
	while (arena->piece_count) {
		const struct kvpull_arena_piece *piece =
			&arena->pieces[--arena->piece_count];

		ASAN_UNPOISON_MEMORY_REGION(piece->base, piece->bytes);
		(void)munmap(piece->base, piece->bytes);
	}
	arena->next = NULL;
	arena->left = 0;
}

/*
 * With small pages each look-up of a large table that is used at random misses
 * the TLB too, which is dear in a virtual machine (measured: a tenth of a
 * release, a fifth of a step with a long pull). Not granted, it is as without.
 */
static void make_huge(const void *base, size_t byte_count)
{
	const uintptr_t page = KVPULL_ARENA_HUGE_BYTES;
	const uintptr_t first = round_up((uintptr_t)base, page);
	const uintptr_t end = ((uintptr_t)base + byte_count) & ~(page - 1);

	if (end > first)
		(void)madvise((void *)first, end - first, MADV_HUGEPAGE);
}

/* The first touch of a huge page clears it: of a hot arena's first, now. */
static void make_hot(const struct kvpull_arena *arena, uint8_t *base,
		     size_t byte_count)
{
	size_t touched = 0;

	make_huge(base, byte_count);
	if (arena->used < KVPULL_ARENA_TOUCHED_MAX)
		touched = KVPULL_ARENA_TOUCHED_MAX - arena->used;
	touched = kvpull_least(touched, byte_count);
	if (touched)
		(void)madvise(base, touched, MADV_POPULATE_WRITE);
}

/* The end of the last piece, where nothing was taken. */
static void give_back(struct kvpull_arena *arena)
{
	struct kvpull_arena_piece *piece;
	size_t kept;

	if (!arena->piece_count)
		return;
	piece = &arena->pieces[arena->piece_count - 1];
	kept = round_up((uintptr_t)(arena->next - piece->base), PAGE_BYTES);
	/* A hot piece's last huge page stays whole. */
	if (arena->is_hot)
		kept = round_up(kept, KVPULL_ARENA_HUGE_BYTES);
	if (kept < piece->bytes &&
	    !munmap(piece->base + kept, piece->bytes - kept))
		piece->bytes = kept;
	arena->left = 0;
}

/*
 * The mapping begins at a huge page boundary. Some kernels align it so by
 * themselves, others do not.
 */
static uint8_t *map(size_t bytes)
{
	const size_t mapped = bytes + KVPULL_ARENA_HUGE_BYTES;
	uint8_t *base = (uint8_t *)mmap(
		NULL, mapped, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t before;

	if (base == (uint8_t *)MAP_FAILED)
		return NULL;
	before = -(uintptr_t)base & (KVPULL_ARENA_HUGE_BYTES - 1);
	if (before)
		(void)munmap(base, before);
	(void)munmap(base + before + bytes, mapped - before - bytes);
	return base + before;
}

static int grow(struct kvpull_arena *arena, size_t least)
{
	size_t bytes = KVPULL_ARENA_PIECE_BYTES;
	struct kvpull_cause cause;
	uint8_t *base;

	if (bytes < arena->used / 2)
		bytes = arena->used / 2;
	if (bytes < least)
		bytes = least;
	bytes = round_up(bytes, KVPULL_ARENA_PIECE_BYTES);
	kvpull_check(arena->log, arena->piece_count < KVPULL_ARENA_PIECES_MAX);
	base = map(bytes);
	if (!base) {
		if (!arena->failed)
			kvpull_error(
				arena->log,
				"tables: %zu bytes more cannot be mapped: %s",
				bytes,
				kvpull_cause_of_map(&cause, KVPULL_CALL_MAP,
						    errno, bytes));
		return KVPULL_ENOMEM;
	}
	give_back(arena);
	/* Some hosts give huge pages unasked: a byte would cost 2 MiB. */
	if (arena->is_hot)
		make_hot(arena, base, bytes);
	else
		(void)madvise(base, bytes, MADV_NOHUGEPAGE);
	arena->pieces[arena->piece_count++] =
		(struct kvpull_arena_piece){ .base = base, .bytes = bytes };
	arena->next = base;
	arena->left = bytes;
	return 0;
}

void *kvpull_arena_take(struct kvpull_arena *arena, size_t count,
			size_t item_bytes)
{
	size_t table_bytes;
	size_t bytes;
	uint8_t *taken;

	kvpull_check(arena->log, !arena->sealed);
	if (__builtin_mul_overflow(count, item_bytes, &table_bytes) ||
	    table_bytes >
		    SIZE_MAX - KVPULL_ARENA_FENCE_BYTES - KVPULL_CACHE_LINE)
		goto err_large;
	bytes = round_up(table_bytes + KVPULL_ARENA_FENCE_BYTES,
			 KVPULL_CACHE_LINE);
	if (bytes > arena->bytes_max - arena->used)
		goto err_large;
	if (bytes > arena->left && grow(arena, bytes))
		goto err_failed;
	taken = arena->next;
	ASAN_POISON_MEMORY_REGION(taken + table_bytes, bytes - table_bytes);
	arena->next += bytes;
	arena->left -= bytes;
	arena->used += bytes;
	return taken;
err_large:
	if (!arena->failed)
		kvpull_error(
			arena->log,
			"tables of more than %zu GiB: lower the keys *_max or max_holds",
			arena->bytes_max >> 30);
err_failed:
	arena->failed = 1;
	return NULL;
}

void *kvpull_arena_take_table(struct kvpull_arena *arena, size_t count,
			      size_t item_bytes)
{
	void *taken = kvpull_arena_take(arena, count, item_bytes);

	if (taken)
		make_huge(taken, count * item_bytes);
	return taken;
}

void kvpull_arena_seal(struct kvpull_arena *arena)
{
	give_back(arena);
	arena->sealed = 1;
}
