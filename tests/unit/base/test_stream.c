/* SPDX-License-Identifier: Apache-2.0 */
/* A copy past the caches is memcpy(), whatever its places and size. */
#include <string.h>

#include "base/stream.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"

#define LINE KVPULL_STREAM_LINE
#define SIZES (KVPULL_STREAM_BYTES_MIN + 3 * LINE)
#define ROOM (SIZES + 2 * LINE)

static _Alignas(64) uint8_t source[ROOM];
static _Alignas(64) uint8_t target[ROOM];
static uint8_t wanted[ROOM];

static int setup(void **state)
{
	uint64_t seed = 11;

	(void)state;
	random_fill(&seed, source, sizeof(source));
	return 0;
}

static void clear(void)
{
	memset(target, 0xee, sizeof(target));
	memset(wanted, 0xee, sizeof(wanted));
}

/* Both sides of the least size, and each place of the target in a line. */
UNIT_TEST_WITH(copy_past_the_caches_is_a_copy, setup, NULL)
{
	size_t from;
	size_t to;
	size_t bytes;

	for (bytes = KVPULL_STREAM_BYTES_MIN - 2; bytes < SIZES; bytes += 7)
		for (to = 0; to < LINE; to += 3)
			for (from = 0; from < 16; from += 5) {
				clear();
				memcpy(wanted + to, source + from, bytes);
				kvpull_stream_copy(target + to, source + from,
						   bytes);
				assert_memory_equal(target, wanted,
						    sizeof(target));
			}
}

#if defined(__x86_64__)

typedef void lines_fn(uint8_t *to, const uint8_t *from, size_t line_count);

static void copies_lines(lines_fn *copy)
{
	size_t from;
	size_t count;

	for (count = 0; count < 5; count++)
		for (from = 0; from < 16; from += 3) {
			clear();
			memcpy(wanted + LINE, source + from, count * LINE);
			copy(target + LINE, source + from, count);
			_mm_sfence();
			assert_memory_equal(target, wanted, sizeof(target));
		}
}

UNIT_TEST_WITH(lines_are_copied_whole_on_any_cpu, setup, NULL)
{
	copies_lines(kvpull_stream_lines);
	if (__builtin_cpu_supports("avx2"))
		copies_lines(kvpull_stream_lines_avx2);
}

#endif
