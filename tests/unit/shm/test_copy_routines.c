// SPDX-License-Identifier: Apache-2.0
/* The routines that copy spans, whatever their sizes and places. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/random.h"
#include "tests/unit/shm/copies.h"

#define GUARD 0xa5

static uint64_t random_state = UINT64_C(0x2545f4914f6cdd1d);

static uint32_t random_u32(void)
{
	return (uint32_t)(random_next(&random_state) >> 32);
}

struct routine_case {
	uint32_t count;
	size_t bytes;
	size_t from_skew;
	size_t to_skew;
	size_t gap; /* between spans */
};

/* Spans lie at odd places and guard bytes are all around them. */
static void routine_check(const struct kvpull_copy_routine *routine,
			  const struct routine_case *at)
{
	const size_t pitch = at->bytes + at->gap;
	const size_t total = pitch * at->count + 8192;
	uint8_t *from = malloc(total);
	uint8_t *to = malloc(total);
	uint8_t *expected = malloc(total);
	struct kvpull_span spans[64];
	uint32_t i;

	assert_true(from && to && expected && at->count <= 64);
	random_fill(&random_state, from, total);
	memset(to, GUARD, total);
	memset(expected, GUARD, total);
	for (i = 0; i < at->count; i++) {
		/* Another order at the destination. */
		const size_t to_at =
			at->to_skew + (at->count - 1 - i) * pitch + 4096;

		spans[i].from = from + at->from_skew + i * pitch;
		spans[i].to = to + to_at;
		memcpy(expected + to_at, spans[i].from, at->bytes);
	}
	routine->copy(spans, at->count, at->bytes);
	if (memcmp(to, expected, total))
		fail_msg("%s: %u spans of %zu bytes, skew %zu to %zu",
			 routine->name, at->count, at->bytes, at->from_skew,
			 at->to_skew);
	free(from);
	free(to);
	free(expected);
}

UNIT_TEST(every_routine_copies_any_size_and_alignment)
{
	static const size_t sizes[] = { 0,    1,    7,    63,    64,   65,
					127,  128,  511,  641,   1000, 4095,
					4096, 4097, 8192, 12352, 16385 };
	static const uint32_t counts[] = { 1, 2, 3, 5, 7, 8, 17 };
	uint32_t routine_count;
	const struct kvpull_copy_routine *routines =
		kvpull_copy_routines(&routine_count);
	uint32_t r, s, c;

	for (r = 0; r < routine_count; r++) {
		if (!kvpull_copy_usable(&routines[r]))
			continue;
		for (s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
			for (c = 0; c < sizeof(counts) / sizeof(counts[0]);
			     c++) {
				struct routine_case at = { counts[c], sizes[s],
							   random_u32() % 64,
							   random_u32() % 64,
							   random_u32() % 130 };

				if (sizes[s] > 4097 && counts[c] > 7)
					continue;
				routine_check(&routines[r], &at);
				at.from_skew = 0;
				at.to_skew = c % 2 ? 0 : 63;
				at.gap = 0; /* neighbours on both sides */
				routine_check(&routines[r], &at);
			}
	}
}

UNIT_TEST(every_size_up_to_a_few_lines_is_copied)
{
	uint32_t routine_count;
	const struct kvpull_copy_routine *routines =
		kvpull_copy_routines(&routine_count);
	uint32_t r;
	size_t bytes;

	for (r = 0; r < routine_count; r++)
		for (bytes = 0; kvpull_copy_usable(&routines[r]) && bytes < 330;
		     bytes++) {
			const struct routine_case at = { 3, bytes,
							 random_u32() % 64,
							 random_u32() % 64,
							 random_u32() % 8 };

			routine_check(&routines[r], &at);
		}
}

UNIT_TEST(unknown_routine_cannot_be_forced)
{
	struct pool pool;

	assert_int_equal(pool_open_by(&pool, 0, 1, "no-such"), KVPULL_EINVAL);
	assert_int_equal(pool_open_by(&pool, 0, 1, "memcpy"), 0);
	pool_close(&pool);
	assert_int_equal(pool_open_by(&pool, 0, 1, NULL), 0);
	pool_close(&pool);
}
