/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"

#define CAPACITY ((size_t)16 << 20)

static struct kvpull_arena arena;

static int up(void **state)
{
	(void)state;
	return kvpull_arena_open(&arena, CAPACITY, NULL);
}

static int down(void **state)
{
	(void)state;
	kvpull_arena_close(&arena);
	return 0;
}

static void items_are_zero_and_begin_with_a_line(void **state)
{
	uint8_t *first = kvpull_arena_take(&arena, 3, 5);
	uint8_t *second = kvpull_arena_take(&arena, 1, 1);

	(void)state;
	assert_non_null(first);
	assert_non_null(second);
	assert_int_equal((uintptr_t)first % KVPULL_CACHE_LINE, 0);
	assert_int_equal(second - first, KVPULL_CACHE_LINE);
	assert_int_equal(first ? first[14] : 1, 0);
	assert_int_equal(second ? *second : 1, 0);
}

static void what_does_not_fit_is_told_at_the_end(void **state)
{
	(void)state;
	assert_null(kvpull_arena_take(&arena, CAPACITY + 1, 1));
	assert_false(kvpull_arena_ok(&arena));
	/* Nothing was taken by it. */
	assert_non_null(kvpull_arena_take(&arena, 1, CAPACITY));
	assert_null(kvpull_arena_take_table(&arena, 1, 1));
	assert_null(kvpull_arena_take(&arena, SIZE_MAX / 2, 3));
}

static void part_begins_with_a_huge_page_and_keeps_to_its_room(void **state)
{
	const size_t capacity = (size_t)3 << 20;
	struct kvpull_arena part;
	uint8_t *inside;
	uint8_t *after;

	(void)state;
	(void)kvpull_arena_take(&arena, 1, 100);
	kvpull_arena_take_part(&arena, &part, capacity);
	after = kvpull_arena_take(&arena, 1, 1);
	inside = kvpull_arena_take(&part, 1, capacity);
	assert_non_null(inside);
	assert_int_equal((uintptr_t)inside % KVPULL_ARENA_HUGE_BYTES, 0);
	assert_true(inside + capacity <= after);
	/* What was made huge for its last page is not another's. */
	assert_true((uintptr_t)after >= (((uintptr_t)inside + capacity - 1) |
					 (KVPULL_ARENA_HUGE_BYTES - 1)));
	assert_null(kvpull_arena_take(&part, 1, 1));
	assert_false(kvpull_arena_ok(&part));
	assert_true(kvpull_arena_ok(&arena));
}

static void part_of_a_full_arena_has_no_room(void **state)
{
	struct kvpull_arena part;

	(void)state;
	kvpull_arena_take_part(&arena, &part, CAPACITY);
	assert_false(kvpull_arena_ok(&arena));
	assert_null(kvpull_arena_take(&part, 1, 1));
	assert_false(kvpull_arena_ok(&part));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(items_are_zero_and_begin_with_a_line),
		TEST(what_does_not_fit_is_told_at_the_end),
		TEST(part_begins_with_a_huge_page_and_keeps_to_its_room),
		TEST(part_of_a_full_arena_has_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
