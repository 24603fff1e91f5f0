/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "base/arena.h"
#include "tests/lib/unit.h"

#define MIB ((size_t)1 << 20)
#define PAGE_BYTES ((size_t)4096)
#define TAKES 24u
#define FENCE_BYTES KVPULL_ARENA_FENCE_BYTES

static struct kvpull_arena arena;

static int up(void **state)
{
	(void)state;
	kvpull_arena_init(&arena, NULL);
	return 0;
}

static int down(void **state)
{
	(void)state;
	kvpull_arena_fini(&arena);
	return 0;
}

static int is_mapped(const void *at)
{
	const uintptr_t page = (uintptr_t)at & ~(PAGE_BYTES - 1);

	return !msync((void *)page, PAGE_BYTES, MS_ASYNC);
}

static size_t mapped_bytes(void)
{
	size_t bytes = 0;
	uint32_t i;

	for (i = 0; i < arena.piece_count; i++)
		bytes += arena.pieces[i].bytes;
	return bytes;
}

#define TEST(name) UNIT_TEST_WITH(name, up, down)

TEST(items_are_zero_and_begin_with_a_line)
{
	uint8_t *first = kvpull_arena_take(&arena, 3, 5);
	uint8_t *second = kvpull_arena_take(&arena, 1, 1);

	assert_non_null(first);
	assert_non_null(second);
	assert_int_equal((uintptr_t)first % KVPULL_CACHE_LINE, 0);
	assert_int_equal(second - first, KVPULL_CACHE_LINE + FENCE_BYTES);
	assert_int_equal(first ? first[14] : 1, 0);
	assert_int_equal(second ? *second : 1, 0);
}

TEST(nothing_is_mapped_before_the_first_take)
{
	assert_int_equal(arena.piece_count, 0);
	assert_true(kvpull_arena_ok(&arena));
	kvpull_arena_seal(&arena);
	assert_int_equal(arena.piece_count, 0);
}

/* Sizes around a piece's: all of them zero, and none in another. */
TEST(takes_beyond_a_piece_are_whole_and_apart)
{
	uint8_t *taken[TAKES];
	size_t bytes[TAKES];
	size_t at;
	uint32_t i;

	for (i = 0; i < TAKES; i++) {
		bytes[i] = (size_t)(i * 7919 % 97 + 1) * 40000 + i;
		taken[i] = kvpull_arena_take(&arena, 1, bytes[i]);
		assert_non_null(taken[i]);
		for (at = 0; at < bytes[i]; at += PAGE_BYTES)
			assert_int_equal(taken[i][at], 0);
		assert_int_equal(taken[i][bytes[i] - 1], 0);
		memset(taken[i], (int)i + 1, bytes[i]);
	}
	assert_true(arena.piece_count > 4);
	for (i = 0; i < TAKES; i++)
		for (at = 0; at < bytes[i]; at++)
			if (taken[i][at] != i + 1)
				fail_msg("take %u was overwritten", i);
}

/* With the worst of orders there are places for all pieces. */
TEST(pieces_are_few_and_mostly_used)
{
	size_t bytes;

	while (arena.used < (size_t)1 << 36) {
		assert_non_null(kvpull_arena_take(&arena, 1, 1));
		bytes = arena.left + KVPULL_CACHE_LINE;
		assert_non_null(kvpull_arena_take(&arena, 1, bytes));
	}
	/* Half as much again with each two: 2^14 of the first ones. */
	assert_true(arena.piece_count < 56);
	kvpull_arena_seal(&arena);
	assert_true(mapped_bytes() <=
		    arena.used + arena.piece_count * PAGE_BYTES);
}

TEST(what_does_not_fit_is_told_at_the_end)
{
	arena.bytes_max = 16 * MIB;
	assert_null(kvpull_arena_take(&arena, 16 * MIB + 1, 1));
	assert_false(kvpull_arena_ok(&arena));
	/* Nothing was taken by it. */
	assert_non_null(kvpull_arena_take(&arena, 1, 16 * MIB - FENCE_BYTES));
	assert_null(kvpull_arena_take_table(&arena, 1, 1));
	assert_null(kvpull_arena_take(&arena, SIZE_MAX / 2, 3));
	assert_null(kvpull_arena_take(&arena, SIZE_MAX - 1, 1));
}

TEST(more_than_the_most_is_refused)
{
	assert_null(kvpull_arena_take(&arena, 1, KVPULL_ARENA_BYTES_MAX + 1));
	/* The product wraps around to 2. */
	assert_null(kvpull_arena_take(&arena, SIZE_MAX / 2 + 2, 2));
	assert_false(kvpull_arena_ok(&arena));
	assert_int_equal(arena.piece_count, 0);
}

static size_t address_space_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long pages = 0;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%lu", &pages), 1);
	(void)fclose(file);
	return pages * PAGE_BYTES;
}

/* Sanitizers need address space of their own at any time. */
TEST(without_address_space_nothing_is_lost)
{
	struct rlimit before, small;
	uint8_t *first = kvpull_arena_take(&arena, 1, MIB);
	uint8_t *second = NULL;

	assert_non_null(first);
	memset(first, 7, MIB);
	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	small = before;
	small.rlim_cur = address_space_bytes() + 16 * MIB;
	assert_int_equal(setrlimit(RLIMIT_AS, &small), 0);
	second = kvpull_arena_take(&arena, 1, 64 * MIB);
	assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
	assert_null(second);
	assert_false(kvpull_arena_ok(&arena));
	/* The piece in use stayed. */
	assert_ptr_equal(kvpull_arena_take(&arena, 1, 1),
			 first + MIB + FENCE_BYTES);
	assert_int_equal(first[MIB - 1], 7);
}

TEST(hot_takes_lie_together_in_huge_pages)
{
	uint8_t *first, *second;

	kvpull_arena_init_hot(&arena, NULL);
	first = kvpull_arena_take(&arena, 1, 3 * MIB / 2 - FENCE_BYTES);
	second = kvpull_arena_take(&arena, 1, MIB / 2 - FENCE_BYTES);
	assert_non_null(first);
	assert_int_equal((uintptr_t)first % KVPULL_ARENA_HUGE_BYTES, 0);
	assert_ptr_equal(second, first + 3 * MIB / 2);
	assert_non_null(kvpull_arena_take(&arena, 1, 1));
	kvpull_arena_seal(&arena);
	/* The last huge page of the mapping stays whole. */
	assert_int_equal(mapped_bytes() % KVPULL_ARENA_HUGE_BYTES, 0);
}

static size_t resident_bytes(uint8_t *at, size_t bytes)
{
	static unsigned char pages[16 * MIB / PAGE_BYTES];
	size_t resident = 0;
	size_t i;

	assert_true(bytes <= sizeof(pages) * PAGE_BYTES);
	assert_int_equal(mincore(at, bytes, pages), 0);
	for (i = 0; i < bytes / PAGE_BYTES; i++)
		resident += pages[i] & 1 ? PAGE_BYTES : 0;
	return resident;
}

TEST(tables_are_not_touched_before_their_use)
{
	uint8_t *table = kvpull_arena_take_table(&arena, 1, 16 * MIB);

	assert_int_equal(resident_bytes(table, 16 * MIB), 0);
}

TEST(of_a_hot_arena_the_first_part_is_touched)
{
	uint8_t *first, *second;

	kvpull_arena_init_hot(&arena, NULL);
	first = kvpull_arena_take(&arena, 1, 2 * MIB);
	second = kvpull_arena_take(&arena, 1, 16 * MIB);
	assert_int_equal(resident_bytes(first, 2 * MIB), 2 * MIB);
	assert_int_equal(resident_bytes(second, 16 * MIB),
			 KVPULL_ARENA_TOUCHED_MAX - 2 * MIB);
}

/* Does the mapping at this address have the flag that the kernel prints? */
static int has_flag(const void *at, const char *flag)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	char line[512];
	unsigned long long first, end;
	int is_there = 0;
	int found = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%llx-%llx ", &first, &end) == 2)
			is_there =
				first <= (uintptr_t)at && (uintptr_t)at < end;
		else if (is_there && !strncmp(line, "VmFlags:", 8))
			found = strstr(line, flag) != NULL;
	}
	(void)fclose(file);
	return found;
}

TEST(huge_pages_are_only_where_they_were_asked_for)
{
	uint8_t *table = kvpull_arena_take_table(&arena, 1, 4 * MIB);
	uint8_t *plain = kvpull_arena_take(&arena, 1, 1);

	/* A kernel without them knows neither flag. */
	assert_int_equal(has_flag(plain, " nh"), has_flag(table, " hg"));
	assert_false(has_flag(plain, " hg"));
	if (!access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK))
		assert_true(has_flag(plain, " nh"));
}

TEST(sealed_it_keeps_no_more_than_was_taken)
{
	uint8_t *taken = kvpull_arena_take(&arena, 1, PAGE_BYTES + 1);

	assert_non_null(taken);
	assert_true(is_mapped(taken + 3 * PAGE_BYTES));
	kvpull_arena_seal(&arena);
	assert_true(is_mapped(taken + PAGE_BYTES));
	assert_false(is_mapped(taken + 3 * PAGE_BYTES));
}

struct sink {
	jmp_buf out;
	uint32_t fatals;
};

static void fatal_take(void *context, const char *message)
{
	struct sink *sink = context;

	(void)message;
	sink->fatals++;
	longjmp(sink->out, 1);
}

TEST(take_after_the_seal_is_a_bug)
{
	static struct sink sink;
	const struct kvpull_log log = { .fatal = fatal_take, .context = &sink };

	kvpull_arena_init(&arena, &log);
	assert_non_null(kvpull_arena_take(&arena, 1, 1));
	kvpull_arena_seal(&arena);
	if (!setjmp(sink.out))
		(void)kvpull_arena_take(&arena, 1, 1);
	assert_int_equal(sink.fatals, 1);
}

TEST(after_the_end_nothing_is_mapped)
{
	uint8_t *first = kvpull_arena_take(&arena, 1, MIB);
	uint8_t *second = kvpull_arena_take(&arena, 1, 8 * MIB);

	assert_true(is_mapped(first) && is_mapped(second));
	kvpull_arena_fini(&arena);
	assert_false(is_mapped(first) || is_mapped(second));
	kvpull_arena_fini(&arena);
}

#ifdef __SANITIZE_ADDRESS__
TEST(line_behind_a_table_is_fenced)
{
	const uint8_t *table = kvpull_arena_take(&arena, 3, 8);

	assert_non_null(kvpull_arena_take(&arena, 1, 1));
	assert_false(__asan_address_is_poisoned(table + 23));
	assert_true(__asan_address_is_poisoned(table + 24));
	assert_true(__asan_address_is_poisoned(table + 127));
	assert_false(__asan_address_is_poisoned(table + 128));
}
#endif
