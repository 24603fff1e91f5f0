/* SPDX-License-Identifier: Apache-2.0 */
/* Results of a worker, and what it says of itself. */

#include <string.h>

#include "plugin/bytes/step.h"
#include "tests/lib/random.h"
#include "tests/lib/step.h"
#include "tests/lib/unit.h"
#include "tests/unit/bytes/making.h"

#define BYTES_MAX (1u << 16)
#define RESULTS 4u
/* Where things are; see step.c. */
#define RESULT_HEADER_BYTES 50

static uint8_t bytes[BYTES_MAX];
static struct kvpull_wire_writer writer;

static struct kvpull_wire_reader reader_of(size_t byte_count)
{
	return (struct kvpull_wire_reader){ bytes, byte_count, 0, 0 };
}

static int setup(void **state)
{
	(void)state;
	memset(bytes, 0, sizeof(bytes));
	writer = (struct kvpull_wire_writer){ bytes, sizeof(bytes), 0 };
	return 0;
}

#define TEST(name) UNIT_TEST_WITH(name, setup, NULL)

static struct kvpull_rank_info rank_of(void)
{
	struct kvpull_rank_info rank = { .incarnation = 3,
					 .generation_floor = 4,
					 .stage = { .rank = 63,
						    .rank_count = 64,
						    .pp_size = 8,
						    .layer_first = 21,
						    .layer_end = 24 },
					 .slot_count = KVPULL_TICKET_SLOTS_MAX,
					 .group_count = KVPULL_GROUPS_MAX };

	memset(rank.block_counts, 0x33, sizeof(rank.block_counts));
	memset(rank.secret, 0x31, sizeof(rank.secret));
	memset(rank.compat, 0x32, sizeof(rank.compat));
	text_set(rank.address, "shm:/tmp/kvpull-0/abcdef");
	return rank;
}

static struct kvpull_result result_of(uint32_t at)
{
	const struct kvpull_result results[RESULTS] = {
		{ .kind = KVPULL_RESULT_RANK, .rank = rank_of() },
		{ .kind = KVPULL_RESULT_HOLD_ENDED,
		  .key = 1,
		  .slot = 2,
		  .generation = 3,
		  .reason = KVPULL_END_RANK },
		{ .kind = KVPULL_RESULT_PULL_ENDED,
		  .key = UINT64_MAX,
		  .bytes = UINT64_MAX },
		{ .kind = KVPULL_RESULT_PULL_ENDED,
		  .key = 5,
		  .reason = KVPULL_ECLOSED },
	};

	return results[at];
}

static size_t put_results(void)
{
	const struct kvpull_result_header header = {
		.incarnation = 1,
		.first_sequence = 2,
		.record_count = RESULTS,
		.rank = KVPULL_RANKS_MAX - 1,
		.step_incarnation = 0,
		.step_sequence = 9,
		.gap = 1,
	};
	uint32_t i;

	writer.used = 0;
	kvpull_step_put_result_header(&writer, &header);
	for (i = 0; i < RESULTS; i++) {
		const struct kvpull_result result = result_of(i);

		kvpull_step_put_result(&writer, &result);
	}
	assert_true(kvpull_wire_fits(&writer));
	return writer.used;
}

TEST(every_result_round_trips)
{
	const size_t byte_count = put_results();
	struct kvpull_wire_reader reader = reader_of(byte_count);
	struct kvpull_result_header header;
	uint32_t i;

	assert_int_equal(kvpull_step_check_result(bytes, byte_count), 0);
	assert_int_equal(kvpull_step_get_result_header(&reader, &header), 0);
	assert_true(header.incarnation == 1);
	assert_true(header.first_sequence == 2);
	assert_int_equal(header.rank, KVPULL_RANKS_MAX - 1);
	assert_true(header.step_sequence == 9);
	assert_int_equal(header.gap, 1);
	for (i = 0; i < RESULTS; i++) {
		const struct kvpull_result wanted = result_of(i);
		struct kvpull_result got;

		assert_int_equal(kvpull_step_get_result(&reader, &got), 0);
		assert_memory_equal(&got, &wanted, sizeof(got));
	}
	assert_true(kvpull_wire_done(&reader));
}

TEST(every_truncated_result_is_refused)
{
	const size_t byte_count = put_results();
	size_t cut;

	for (cut = 0; cut < byte_count; cut++)
		assert_int_equal(kvpull_step_check_result(bytes, cut),
				 KVPULL_EINVAL);
	assert_int_equal(kvpull_step_check_result(bytes, byte_count + 1),
			 KVPULL_EINVAL);
}

static int check_result_with(size_t at, uint64_t value, size_t value_bytes)
{
	const size_t byte_count = put_results();

	value_put(bytes + at, value, value_bytes);
	return kvpull_step_check_result(bytes, byte_count);
}

TEST(broken_results_are_refused)
{
	const size_t rank = RESULT_HEADER_BYTES + 4 + 6;

	assert_int_equal(check_result_with(4, 0, 1), KVPULL_EINVAL);
	assert_int_equal(check_result_with(9, 0, 8), KVPULL_EINVAL);
	assert_int_equal(check_result_with(17, 0, 8), KVPULL_EINVAL);
	/*
	 * The results' sequence numbers end with the largest number, or wrap.
	 */
	assert_int_equal(check_result_with(17, UINT64_MAX - RESULTS, 8), 0);
	assert_int_equal(check_result_with(17, UINT64_MAX - RESULTS + 1, 8),
			 KVPULL_EINVAL);
	assert_int_equal(check_result_with(25, UINT32_MAX, 4), KVPULL_EINVAL);
	assert_int_equal(check_result_with(29, 64, 4), KVPULL_EINVAL);
	assert_int_equal(check_result_with(49, 2, 1), KVPULL_EINVAL);
	/* The rank: kind, incarnation, stage, slots, address. */
	assert_int_equal(check_result_with(rank - 6, 1, 1), 0);
	assert_int_equal(check_result_with(rank - 6, 4, 1), KVPULL_EINVAL);
	assert_int_equal(check_result_with(rank, 0, 8), KVPULL_EINVAL);
	assert_int_equal(check_result_with(rank + 16, 64, 4), KVPULL_EINVAL);
	assert_int_equal(check_result_with(rank + 20, 65, 4), KVPULL_EINVAL);
	assert_int_equal(check_result_with(rank + 20, 0, 4), KVPULL_EINVAL);
	assert_int_equal(check_result_with(rank + 24, 0, 4), KVPULL_EINVAL);
	assert_int_equal(check_result_with(rank + 24, 3, 4), KVPULL_EINVAL);
	assert_int_equal(check_result_with(rank + 28, 24, 4), KVPULL_EINVAL);
	assert_int_equal(check_result_with(rank + 32, 21, 4), KVPULL_EINVAL);
	assert_int_equal(check_result_with(rank + 36, 0, 4), KVPULL_EINVAL);
	assert_int_equal(
		check_result_with(rank + 36, KVPULL_TICKET_SLOTS_MAX + 1, 4),
		KVPULL_EINVAL);
	assert_int_equal(
		check_result_with(rank + 74 + 4 * KVPULL_GROUPS_MAX, 'S', 1),
		KVPULL_EINVAL);
}

static int get_result_payload(const void *payload, size_t payload_bytes)
{
	struct kvpull_result got;
	struct kvpull_wire_reader reader;

	writer.used = 0;
	kvpull_wire_put_u32(&writer, (uint32_t)payload_bytes);
	kvpull_wire_put(&writer, payload, payload_bytes);
	reader = reader_of(writer.used);
	return kvpull_step_get_result(&reader, &got);
}

TEST(results_with_unknown_reasons_are_refused)
{
	/* kind, slot, key, generation, bytes, zigzag reason */
	static const struct {
		uint8_t payload[6];
		int code;
	} cases[] = {
		{ { 2, 0, 1, 1, 0, 8 }, 0 },
		{ { 2, 0, 1, 1, 0, 10 }, 0 },
		{ { 2, 0, 1, 1, 0, 12 }, KVPULL_EINVAL },
		{ { 2, 0, 1, 1, 0, 1 }, KVPULL_EINVAL },
		{ { 2, 0, 0, 1, 0, 0 }, KVPULL_EINVAL },
		{ { 2, 0, 1, 0, 0, 0 }, KVPULL_EINVAL },
		{ { 3, 0, 1, 0, 0, 39 }, 0 },             /* -20 */
		{ { 3, 0, 1, 0, 0, 23 }, KVPULL_EINVAL }, /* -12 */
		{ { 3, 0, 1, 0, 0, 2 }, KVPULL_EINVAL },  /* 1 */
		{ { 3, 0, 0, 0, 0, 0 }, KVPULL_EINVAL },
		{ { 0, 0, 1, 1, 0, 0 }, KVPULL_EINVAL },
	};
	uint32_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(get_result_payload(cases[i].payload, 6),
				 cases[i].code);
}

TEST(rank_info_round_trips_and_is_checked)
{
	struct kvpull_rank_info rank = rank_of();
	struct kvpull_rank_info got;
	size_t cut;

	kvpull_step_put_rank_info(&writer, &rank);
	for (cut = 0; cut < writer.used; cut++)
		assert_int_equal(kvpull_step_get_rank_info(bytes, cut, &got),
				 cut < 4 ? KVPULL_ENOTMINE : KVPULL_EINVAL);
	assert_int_equal(
		kvpull_step_get_rank_info(bytes, writer.used + 1, &got),
		KVPULL_EINVAL);
	assert_int_equal(kvpull_step_get_rank_info(bytes, writer.used, &got),
			 0);
	assert_memory_equal(&got, &rank, sizeof(got));
	bytes[4] = 0;
	assert_int_equal(kvpull_step_get_rank_info(bytes, writer.used, &got),
			 KVPULL_EINVAL);
	bytes[0]++;
	assert_int_equal(kvpull_step_get_rank_info(bytes, writer.used, &got),
			 KVPULL_ENOTMINE);
	/* A worker that has not registered memory has no address yet. */
	rank.address[0] = '\0';
	writer.used = 0;
	kvpull_step_put_rank_info(&writer, &rank);
	assert_int_equal(kvpull_step_get_rank_info(bytes, writer.used, &got),
			 0);
}

TEST(results_are_not_taken_for_steps)
{
	static struct kvpull_step_scratch scratch;
	const size_t byte_count = put_results();
	struct kvpull_rank_info rank;

	assert_int_equal(step_check(bytes, byte_count, &scratch),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_step_get_rank_info(bytes, byte_count, &rank),
			 KVPULL_ENOTMINE);
}

TEST(damaged_results_do_no_harm)
{
	uint64_t seed = 4;
	uint32_t refused = 0;
	uint32_t i;

	for (i = 0; i < 10000; i++) {
		const size_t byte_count = put_results();
		const uint64_t random = random_next(&seed);

		bytes[(random >> 32) % byte_count] = (uint8_t)random;
		refused += kvpull_step_check_result(bytes, byte_count) != 0;
	}
	assert_in_range(refused, 1000, 9500);
}
