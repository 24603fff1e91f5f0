/* SPDX-License-Identifier: Apache-2.0 */
/* The ids of a PULL: to the engine's thread as they came, then spread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "plugin/bytes/step.h"

#define IDS_MAX 2048u
#define BYTES_MAX (16u * IDS_MAX)
#define UNTOUCHED 0xeeeeeeeeu

static uint32_t remote_ids[IDS_MAX];
static uint32_t local_ids[IDS_MAX];
static uint32_t remote_got[IDS_MAX + 1]; /* one more: nobody's */
static uint32_t local_got[IDS_MAX + 1];
static uint8_t bytes[BYTES_MAX];

static int setup(void **state)
{
	uint32_t i;

	(void)state;
	for (i = 0; i < IDS_MAX; i++) {
		remote_ids[i] = (i * 40503u + 7) & UINT16_MAX;
		local_ids[i] = (i * 30011u + 1) & UINT16_MAX;
	}
	memset(remote_got, 0xee, sizeof(remote_got));
	memset(local_got, 0xee, sizeof(local_got));
	return 0;
}

/* A PULL of `count` pairs in one group. */
static struct kvpull_command pull_of(uint32_t count)
{
	return (struct kvpull_command){
		.kind = KVPULL_COMMAND_PULL,
		.key = 8,
		.group_count = 1,
		.group_first = { 0, count },
		.remote_ids = remote_ids,
		.local_ids = local_ids,
	};
}

/* Its record's bytes; the command as it is peeked from them. */
static size_t peek(const struct kvpull_command *command,
		   struct kvpull_command *got)
{
	static struct kvpull_step_scratch scratch;
	struct kvpull_wire_writer writer = { bytes, sizeof(bytes), 0 };
	struct kvpull_wire_reader reader = { bytes, 0, 0, 0 };

	kvpull_step_put_command(&writer, command);
	assert_true(kvpull_wire_fits(&writer));
	reader.byte_count = writer.used;
	assert_int_equal(kvpull_step_peek_command(&reader, &scratch, got), 0);
	assert_true(kvpull_wire_done(&reader));
	return writer.used;
}

static void assert_ids(uint32_t count)
{
	assert_memory_equal(remote_got, remote_ids, count * sizeof(uint32_t));
	assert_memory_equal(local_got, local_ids, count * sizeof(uint32_t));
	assert_int_equal(remote_got[count], UNTOUCHED);
	assert_int_equal(local_got[count], UNTOUCHED);
}

static void ids_of_any_count_are_spread(void **state)
{
	static const uint32_t counts[] = { 1,  2,  31,  32,   33,   63,
					   64, 65, 511, 1000, 1023, IDS_MAX };
	uint32_t i;

	for (i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		const struct kvpull_command command = pull_of(counts[i]);
		struct kvpull_command got;
		uint32_t narrow;

		setup(state);
		peek(&command, &got);
		narrow = kvpull_step_get_ids(&got, remote_got, local_got);
		assert_int_equal(narrow, 1);
		/* The lower halves are written later, by another thread. */
		if (counts[i] > 1)
			assert_int_equal(remote_got[0], UNTOUCHED);
		kvpull_step_widen_ids(narrow, got.group_first, remote_got,
				      local_got);
		assert_ids(counts[i]);
	}
}

static void one_wide_id_makes_its_group_wide(void **state)
{
	const struct kvpull_command command = pull_of(100);
	struct kvpull_command got;
	const size_t narrow_bytes = peek(&command, &got);

	(void)state;
	remote_ids[50] = UINT16_MAX;
	assert_int_equal(peek(&command, &got), narrow_bytes);
	remote_ids[50]++;
	assert_int_equal(peek(&command, &got), narrow_bytes + 100 * 4);
	assert_int_equal(kvpull_step_get_ids(&got, remote_got, local_got), 0);
	assert_ids(100);
	setup(state);
	local_ids[99] = UINT16_MAX + 1;
	assert_int_equal(peek(&command, &got), narrow_bytes + 100 * 4);
	assert_int_equal(kvpull_step_get_ids(&got, remote_got, local_got), 0);
	assert_ids(100);
}

/* Narrow, none, runs, wide, narrow: each keeps to its own part of the room. */
static void groups_of_each_form_stand_side_by_side(void **state)
{
	static const uint32_t first[] = { 0, 77, 77, 277, 1000, 1301 };
	struct kvpull_step_scratch scratch = { .remote_ids = remote_got,
					       .local_ids = local_got };
	struct kvpull_wire_reader reader = { bytes, 0, 0, 0 };
	struct kvpull_command command = pull_of(1301);
	struct kvpull_command got;
	size_t byte_count;
	uint32_t narrow, i;

	(void)state;
	command.group_count = 5;
	memcpy(command.group_first, first, sizeof(first));
	for (i = 77; i < 277; i++)
		remote_ids[i] = local_ids[i] = i;
	local_ids[500] = UINT32_MAX;
	byte_count = peek(&command, &got);
	narrow = kvpull_step_get_ids(&got, remote_got, local_got);
	assert_int_equal(narrow, 1 | 1 << 4);
	kvpull_step_widen_ids(narrow, got.group_first, remote_got, local_got);
	assert_ids(1301);
	memset(remote_got, 0xee, sizeof(remote_got));
	memset(local_got, 0xee, sizeof(local_got));
	reader.byte_count = byte_count;
	assert_int_equal(kvpull_step_get_command(&reader, &scratch, &got), 0);
	assert_ids(1301);
}

static void more_ids_than_were_peeked_are_not_written(void **state)
{
	const struct kvpull_command command = pull_of(300);
	struct kvpull_command got;

	(void)state;
	peek(&command, &got);
	got.group_first[1] = 100;
	assert_int_equal(kvpull_step_get_ids(&got, remote_got, local_got), 0);
	assert_int_equal(remote_got[0], UNTOUCHED);
	assert_int_equal(remote_got[50], UNTOUCHED);
	assert_int_equal(local_got[100], UNTOUCHED);
}

/* What ends within the ids, or has no known form, is refused when peeked. */
static void cut_ids_are_refused(void **state)
{
	static struct kvpull_step_scratch scratch;
	const struct kvpull_command command = pull_of(40);
	struct kvpull_command got;
	const size_t byte_count = peek(&command, &got);
	const size_t form_at = byte_count - 40 * 4 - 1;
	uint8_t form;

	(void)state;
	assert_int_equal(bytes[form_at], 2);
	for (form = 0; form < 5; form++) {
		struct kvpull_wire_reader reader = { bytes, byte_count, 0, 0 };

		bytes[form_at] = form;
		assert_int_equal(
			kvpull_step_peek_command(&reader, &scratch, &got),
			form == 2 ? 0 : KVPULL_EINVAL);
	}
	bytes[form_at] = 2;
	bytes[0] -= 1; /* of the record's bytes */
	assert_int_equal(
		kvpull_step_peek_command(
			&(struct kvpull_wire_reader){ bytes, byte_count, 0, 0 },
			&scratch, &got),
		KVPULL_EINVAL);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(ids_of_any_count_are_spread),
		TEST(one_wide_id_makes_its_group_wide),
		TEST(groups_of_each_form_stand_side_by_side),
		TEST(more_ids_than_were_peeked_are_not_written),
		TEST(cut_ids_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
