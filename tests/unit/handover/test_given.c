/* SPDX-License-Identifier: Apache-2.0 */
/* Marks of tickets that were given back, and how both threads share them. */
#include "plugin/handover/given.h"
#include "tests/lib/unit.h"

#define SLOTS 130u

static const uint8_t secret[KVPULL_SECRET_BYTES] = "fifteen letters";
static struct kvpull_log no_log;
static struct kvpull_arena arena;
static struct kvpull_given given;

static int setup(void **state)
{
	(void)state;
	memset(&given, 0, sizeof(given));
	kvpull_arena_init(&arena, &no_log);
	kvpull_given_init(&given, secret, SLOTS, &arena);
	return !kvpull_arena_ok(&arena);
}

static int teardown(void **state)
{
	(void)state;
	kvpull_arena_fini(&arena);
	return 0;
}

#define TEST(name) UNIT_TEST_WITH(name, setup, teardown)

static enum kvpull_given_verdict give(uint32_t slot, uint64_t generation)
{
	const struct kvpull_give_word word = {
		.slot = slot,
		.generation = generation,
		.tag = kvpull_ticket_tag(secret, slot, generation),
	};

	return kvpull_given_take(&given, &word);
}

static void next_is(uint32_t *at, uint32_t slot, uint64_t generation)
{
	uint64_t found;

	assert_int_equal(kvpull_given_next(&given, at, &found), 1);
	assert_int_equal(*at, slot);
	assert_int_equal(found, generation);
}

static void nothing_is_left(void)
{
	uint64_t found;
	uint32_t at = 0;

	assert_int_equal(kvpull_given_next(&given, &at, &found), 0);
}

TEST(word_with_a_wrong_tag_or_slot_leaves_no_mark)
{
	struct kvpull_give_word word = { .slot = 3, .generation = 5 };

	word.tag = kvpull_ticket_tag(secret, 3, 6);
	assert_int_equal(kvpull_given_take(&given, &word), KVPULL_GIVEN_BAD);
	word.tag = kvpull_ticket_tag(secret, 4, 5);
	assert_int_equal(kvpull_given_take(&given, &word), KVPULL_GIVEN_BAD);
	assert_int_equal(give(SLOTS, 5), KVPULL_GIVEN_BAD);
	assert_int_equal(give(UINT32_MAX, 5), KVPULL_GIVEN_BAD);
	nothing_is_left();
	assert_int_equal(give(SLOTS - 1, 5), KVPULL_GIVEN_NEW);
}

TEST(mark_is_replaced_by_a_newer_generation_alone)
{
	uint32_t at = 0;

	assert_int_equal(give(3, 5), KVPULL_GIVEN_NEW);
	assert_int_equal(give(3, 5), KVPULL_GIVEN_OLD);
	assert_int_equal(give(3, 4), KVPULL_GIVEN_OLD);
	assert_int_equal(give(3, 0), KVPULL_GIVEN_OLD);
	assert_int_equal(give(3, 7), KVPULL_GIVEN_NEW);
	next_is(&at, 3, 7);
	nothing_is_left();
	assert_int_equal(given.newest[3], 7);
}

TEST(each_slot_with_a_new_mark_is_told_once)
{
	uint32_t at = 0;

	assert_int_equal(give(129, 1), KVPULL_GIVEN_NEW);
	assert_int_equal(give(64, 2), KVPULL_GIVEN_NEW);
	assert_int_equal(give(0, 3), KVPULL_GIVEN_NEW);
	assert_int_equal(give(63, 4), KVPULL_GIVEN_NEW);
	next_is(&at, 0, 3);
	next_is(&at, 63, 4);
	next_is(&at, 64, 2);
	next_is(&at, 129, 1);
	nothing_is_left();
}

TEST(engine_is_told_again_only_after_it_began_to_look)
{
	assert_int_equal(kvpull_given_tell(&given), 1);
	assert_int_equal(kvpull_given_tell(&given), 0);
	kvpull_given_begin(&given);
	assert_int_equal(kvpull_given_tell(&given), 1);
}
