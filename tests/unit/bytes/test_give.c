/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets that are given back: strangers say so, in a form that never changes. */
#include <string.h>

#include "plugin/bytes/give.h"
#include "tests/lib/unit.h"

#define WORDS 3u
#define BYTES (KVPULL_GIVE_HEAD_BYTES + WORDS * KVPULL_GIVE_WORD_BYTES)
#define BYTES_MAX                                                              \
	(KVPULL_GIVE_HEAD_BYTES +                                              \
	 (KVPULL_GIVE_WORDS_MAX + 1) * KVPULL_GIVE_WORD_BYTES)

static struct kvpull_give give;
static struct kvpull_give got;
static uint8_t bytes[BYTES_MAX];

static int setup(void **state)
{
	uint32_t at;

	(void)state;
	memset(&give, 0, sizeof(give));
	memset(&got, 0xa5, sizeof(got));
	give.magic = KVPULL_GIVE_MAGIC;
	give.word_count = WORDS;
	for (at = 0; at < KVPULL_GIVE_WORDS_MAX; at++)
		give.words[at] = (struct kvpull_give_word){
			.slot = at,
			.generation = UINT64_MAX - at,
			.tag = (uint64_t)at << 40,
		};
	return 0;
}

#define TEST(name) UNIT_TEST_WITH(name, setup, NULL)

static void words_are_equal(void)
{
	uint32_t at;

	assert_int_equal(got.word_count, give.word_count);
	for (at = 0; at < give.word_count; at++) {
		assert_int_equal(got.words[at].slot, give.words[at].slot);
		assert_true(got.words[at].generation ==
			    give.words[at].generation);
		assert_true(got.words[at].tag == give.words[at].tag);
	}
}

TEST(words_round_trip_and_padding_is_ignored)
{
	size_t padding;

	assert_int_equal(kvpull_give_put(bytes, sizeof(bytes), &give), BYTES);
	for (padding = 0; padding < 60; padding++) {
		memset(bytes + BYTES, 0xff, padding);
		assert_int_equal(kvpull_give_get(bytes, BYTES + padding, &got),
				 0);
		words_are_equal();
	}
}

TEST(words_that_are_cut_are_refused)
{
	size_t cut;

	assert_int_equal(kvpull_give_put(bytes, sizeof(bytes), &give), BYTES);
	for (cut = 0; cut < BYTES; cut++)
		assert_int_equal(kvpull_give_get(bytes, cut, &got),
				 KVPULL_EPROTO);
}

TEST(message_of_another_magic_gives_nothing)
{
	size_t at;

	assert_int_equal(kvpull_give_put(bytes, sizeof(bytes), &give), BYTES);
	for (at = 0; at < 4; at++) {
		bytes[at] ^= 1;
		assert_int_equal(kvpull_give_get(bytes, BYTES, &got),
				 KVPULL_EPROTO);
		bytes[at] ^= 1;
	}
	assert_int_equal(kvpull_give_get(bytes, BYTES, &got), 0);
}

/* The most there can be, one more, and none. */
TEST(words_are_as_many_as_there_is_place_for)
{
	give.word_count = KVPULL_GIVE_WORDS_MAX;
	assert_int_equal(kvpull_give_put(bytes, sizeof(bytes), &give),
			 BYTES_MAX - KVPULL_GIVE_WORD_BYTES);
	assert_int_equal(kvpull_give_get(bytes, sizeof(bytes), &got), 0);
	words_are_equal();
	/* The count lies behind the magic. */
	bytes[4]++;
	assert_int_equal(kvpull_give_get(bytes, sizeof(bytes), &got),
			 KVPULL_EPROTO);
	bytes[4] = bytes[5] = 0;
	assert_int_equal(kvpull_give_get(bytes, sizeof(bytes), &got),
			 KVPULL_EPROTO);
	give.word_count++;
	assert_int_equal(kvpull_give_put(bytes, sizeof(bytes), &give), 0);
	give.word_count = 0;
	assert_int_equal(kvpull_give_put(bytes, sizeof(bytes), &give), 0);
}

TEST(message_without_room_is_not_written)
{
	size_t capacity;

	for (capacity = 0; capacity < BYTES; capacity++) {
		bytes[capacity] = 0xee;
		assert_int_equal(kvpull_give_put(bytes, capacity, &give), 0);
		assert_int_equal(bytes[capacity], 0xee);
	}
	assert_int_equal(kvpull_give_put(bytes, BYTES, &give), BYTES);
	give.magic++;
	assert_int_equal(kvpull_give_put(bytes, BYTES, &give), 0);
}

UNIT_TEST(room_is_in_whole_words)
{
	static const struct {
		size_t byte_count;
		uint32_t words;
	} rows[] = {
		{ 0, 0 },
		{ KVPULL_GIVE_HEAD_BYTES - 1, 0 },
		{ KVPULL_GIVE_HEAD_BYTES, 0 },
		{ BYTES - 1, WORDS - 1 },
		{ BYTES, WORDS },
		{ BYTES_MAX, KVPULL_GIVE_WORDS_MAX },
		{ BYTES_MAX - KVPULL_GIVE_WORD_BYTES, KVPULL_GIVE_WORDS_MAX },
		{ BYTES_MAX - KVPULL_GIVE_WORD_BYTES - 1,
		  KVPULL_GIVE_WORDS_MAX - 1 },
		{ SIZE_MAX, KVPULL_GIVE_WORDS_MAX },
	};
	size_t at;

	for (at = 0; at < sizeof(rows) / sizeof(*rows); at++)
		assert_int_equal(kvpull_give_room(rows[at].byte_count),
				 rows[at].words);
}
