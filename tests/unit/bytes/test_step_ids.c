/* SPDX-License-Identifier: Apache-2.0 */
/* The ids of a PULL: as they came, then spread to where they are wanted. */

#include <string.h>

#include "plugin/bytes/step.h"
#include "tests/lib/step.h"
#include "tests/lib/unit.h"

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

/* Returns the bytes of the record; *got is the command as peeked from them. */
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

static void copy(const struct kvpull_command *got)
{
	kvpull_ids_copy(&got->remote, 0, got->remote.count, remote_got);
	kvpull_ids_copy(&got->local, 0, got->local.count, local_got);
}

#define TEST(name) UNIT_TEST_WITH(name, setup, NULL)

TEST(ids_of_any_count_are_spread)
{
	static const uint32_t counts[] = { 1,  2,  31,  32,   33,   63,
					   64, 65, 511, 1000, 1023, IDS_MAX };
	uint32_t i;

	for (i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		const struct kvpull_command command = pull_of(counts[i]);
		struct kvpull_command got;

		setup(state);
		peek(&command, &got);
		assert_null(got.remote_ids);
		copy(&got);
		assert_ids(counts[i]);
	}
}

TEST(one_wide_id_makes_its_list_wide)
{
	const struct kvpull_command command = pull_of(100);
	struct kvpull_command got;
	const size_t narrow_bytes = peek(&command, &got);

	remote_ids[50] = UINT16_MAX;
	assert_int_equal(peek(&command, &got), narrow_bytes);
	remote_ids[50]++;
	assert_int_equal(peek(&command, &got), narrow_bytes + 100);
	copy(&got);
	assert_ids(100);
	remote_ids[50] = 1u << 24;
	assert_int_equal(peek(&command, &got), narrow_bytes + 200);
	copy(&got);
	assert_ids(100);
	local_ids[99] = UINT16_MAX + 1;
	assert_int_equal(peek(&command, &got), narrow_bytes + 300);
	copy(&got);
	assert_ids(100);
}

/*
 * For lists of each width and for runs, ids before and behind the part stay
 * out.
 */
TEST(any_part_is_spread)
{
	static const uint32_t wide[] = { 0, 1u << 16, 1u << 24 };
	const struct kvpull_command command = pull_of(1000);
	struct kvpull_command got;
	uint32_t form;
	uint32_t first;

	for (form = 0; form < 4; form++) {
		setup(state);
		for (first = 0; form == 3 && first < 1000; first++)
			remote_ids[first] = first + first / 70 * 1000;
		if (form < 3)
			remote_ids[999] = wide[form];
		peek(&command, &got);
		for (first = 0; first < 1000; first += 37) {
			const uint32_t count = (first * 7 + 1) % (1000 - first);

			memset(remote_got, 0xee, sizeof(remote_got));
			kvpull_ids_copy(&got.remote, first, count, remote_got);
			assert_memory_equal(remote_got, remote_ids + first,
					    count * sizeof(uint32_t));
			assert_int_equal(remote_got[count], UNTOUCHED);
		}
	}
}

/* At each place: eight of them are looked at by one instruction. */
static void each_is_held_to(uint32_t bound, uint32_t count)
{
	const uint32_t bad[] = { bound, UINT32_MAX,
				 bound + (UINT32_MAX - bound) / 2 };
	uint32_t at;
	uint32_t i;

	for (at = 0; at < count; at++)
		remote_ids[at] = bound - 1 - at % bound;
	assert_true(kvpull_ids_are_below(remote_ids, count, bound));
	for (at = 0; at < count; at++) {
		const uint32_t good = remote_ids[at];

		for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
			remote_ids[at] = bad[i];
			assert_false(
				kvpull_ids_are_below(remote_ids, count, bound));
		}
		remote_ids[at] = good;
	}
}

TEST(ids_are_held_to_any_bound)
{
	static const uint32_t bounds[] = { 1,         7,        1u << 16,
					   INT32_MAX, 1u << 31, (1u << 31) + 5,
					   UINT32_MAX };
	uint32_t counts;
	uint32_t i;

	for (i = 0; i < sizeof(bounds) / sizeof(*bounds); i++)
		for (counts = 1; counts <= 100; counts += 3)
			each_is_held_to(bounds[i], counts);
	assert_true(kvpull_ids_are_below(remote_ids, 0, 0));
	assert_false(kvpull_ids_are_below(remote_ids, 1, 0));
}

/* Runs of any length, at both ends of the ids, narrow and wide. */
TEST(runs_round_trip)
{
	const struct kvpull_command command = pull_of(1000);
	struct kvpull_command got;
	uint32_t i;

	for (i = 0; i < 1000; i++) {
		remote_ids[i] = i < 600 ? UINT32_MAX - 599 + i : i - 600;
		local_ids[i] = i < 999 ? i : 5;
	}
	assert_true(peek(&command, &got) < 80);
	copy(&got);
	assert_ids(1000);
}

/* Scattered, none, runs, wide: each group keeps to its own part of the room. */
TEST(groups_of_each_form_stand_side_by_side)
{
	static const uint32_t first[] = { 0, 77, 77, 277, 1000, 1301 };
	struct kvpull_step_scratch scratch = { .remote_ids = remote_got,
					       .local_ids = local_got };
	struct kvpull_wire_reader reader = { bytes, 0, 0, 0 };
	struct kvpull_command command = pull_of(1301);
	struct kvpull_command got;
	uint32_t i;

	command.group_count = 5;
	memcpy(command.group_first, first, sizeof(first));
	for (i = 77; i < 277; i++)
		remote_ids[i] = local_ids[i] = i;
	local_ids[500] = UINT32_MAX;
	reader.byte_count = peek(&command, &got);
	assert_int_equal(step_get_command(&reader, &scratch, &got), 0);
	assert_memory_equal(got.group_first, first, sizeof(first));
	assert_ids(1301);
}

/* The room is for the count that was peeked, whatever the bytes say later. */
TEST(more_ids_than_were_peeked_are_not_written)
{
	struct kvpull_command command = pull_of(300);
	struct kvpull_command got;
	uint32_t i;

	peek(&command, &got);
	kvpull_ids_copy(&got.remote, 0, 100, remote_got);
	assert_int_equal(remote_got[99], remote_ids[99]);
	assert_int_equal(remote_got[100], UNTOUCHED);
	for (i = 0; i < 300; i++)
		local_ids[i] = i;
	peek(&command, &got);
	kvpull_ids_copy(&got.local, 0, 100, local_got);
	assert_int_equal(local_got[99], 99);
	assert_int_equal(local_got[100], UNTOUCHED);
	setup(NULL);
	kvpull_ids_copy(&got.local, 1, 300, local_got);
	kvpull_ids_copy(&got.local, 301, 0, local_got);
	kvpull_ids_copy(&got.local, UINT32_MAX, 1, local_got);
	assert_int_equal(local_got[0], UNTOUCHED);
	memset(bytes, 0xff, sizeof(bytes)); /* longer runs, and more of them */
	kvpull_ids_copy(&got.local, 0, 100, local_got);
	assert_int_equal(local_got[100], UNTOUCHED);
	got.local.count = 100; /* fewer than its runs have: what is asked for */
	kvpull_ids_copy(&got.local, 0, 300, local_got);
	assert_int_equal(local_got[100], UNTOUCHED);
}

/* A peek refuses ids that are cut or have no known form. */
TEST(cut_ids_are_refused)
{
	static struct kvpull_step_scratch scratch;
	const struct kvpull_command command = pull_of(40);
	struct kvpull_command got;
	const size_t byte_count = peek(&command, &got);
	const size_t width_at = byte_count - 40 * 2 - 1;
	uint8_t width;

	assert_int_equal(bytes[width_at], 2);
	for (width = 0; width < 6; width++) {
		struct kvpull_wire_reader reader = { bytes, byte_count, 0, 0 };

		bytes[width_at] = width;
		assert_int_equal(
			kvpull_step_peek_command(&reader, &scratch, &got),
			width == 2 ? 0 : KVPULL_EINVAL);
	}
	bytes[width_at] = 2;
	bytes[0] -= 1; /* of the record's bytes */
	assert_int_equal(
		kvpull_step_peek_command(
			&(struct kvpull_wire_reader){ bytes, byte_count, 0, 0 },
			&scratch, &got),
		KVPULL_EINVAL);
}
