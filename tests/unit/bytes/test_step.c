/* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

#include "plugin/bytes/step.h"
#include "tests/lib/random.h"
#include "tests/lib/step.h"
#include "tests/lib/unit.h"
#include "tests/unit/bytes/making.h"

#define BYTES_MAX (1u << 20)
#define COMMANDS ((uint32_t)KVPULL_COMMAND_LAST)
/* Where things are; see step.c. */
#define AT_INCARNATION 9 /* behind magic, version and the header's bytes */
#define AT_FIRST 17
#define AT_COUNT 25
#define AT_RANKS 29
#define STEP_HEADER_BYTES (30 + 2 * 16)

static uint32_t remote_ids[KVPULL_TICKET_BLOCKS_MAX];
static uint32_t local_ids[KVPULL_TICKET_BLOCKS_MAX];
static uint32_t got_ids[2][KVPULL_TICKET_BLOCKS_MAX];
static struct kvpull_step_scratch scratch;
static struct kvpull_ticket_rank ranks[KVPULL_RANKS_MAX];
static uint8_t bytes[BYTES_MAX];
static struct kvpull_wire_writer writer;

static struct kvpull_wire_reader reader_of(size_t byte_count)
{
	return (struct kvpull_wire_reader){ bytes, byte_count, 0, 0 };
}

static int setup(void **state)
{
	uint32_t i;

	(void)state;
	scratch.remote_ids = got_ids[0];
	scratch.local_ids = got_ids[1];
	memset(bytes, 0, sizeof(bytes));
	writer = (struct kvpull_wire_writer){ bytes, sizeof(bytes), 0 };
	for (i = 0; i < KVPULL_TICKET_BLOCKS_MAX; i++) {
		remote_ids[i] = 5000 + i;
		local_ids[i] = 70 + i;
	}
	for (i = 0; i < KVPULL_RANKS_MAX; i++) {
		ranks[i] = (struct kvpull_ticket_rank){ i + 1, i + 2, "" };
		text_set(ranks[i].address, "shm:/tmp/kvpull-0/abcdef");
	}
	return 0;
}

static struct kvpull_step_header header_of(uint32_t record_count)
{
	return (struct kvpull_step_header){
		.incarnation = 11,
		.first_sequence = 1,
		.record_count = record_count,
		.rank_count = 2,
		.acks = { 3, UINT64_MAX },
		.ack_incarnations = { 5, 6 },
	};
}

static struct kvpull_command pull_of(uint32_t count)
{
	return (struct kvpull_command){
		.kind = KVPULL_COMMAND_PULL,
		.key = 8,
		.flags = KVPULL_FLAG_RELEASE | KVPULL_FLAG_READY,
		.priority = INT32_MAX,
		.ticket_serial = UINT64_MAX,
		.group_count = 1,
		.group_first = { 0, count },
		.remote_ids = remote_ids,
		.local_ids = local_ids,
	};
}

static struct kvpull_command command_of(enum kvpull_command_kind kind)
{
	struct kvpull_command command = { .kind = kind, .key = 8 };

	if (kind == KVPULL_COMMAND_PULL)
		return pull_of(40);
	if (kind <= KVPULL_COMMAND_CLAIM) {
		command.slot = 7;
		command.generation = 6;
	}
	if (kind == KVPULL_COMMAND_HOLD)
		command.flags = KVPULL_TICKET_READY_NEEDED;
	if (kind == KVPULL_COMMAND_END) {
		command.reason = KVPULL_END_RANK;
		command.reported = UINT64_MAX - 1;
	}
	if (kind == KVPULL_COMMAND_CLAIM) {
		command.ticket_serial = 12;
		command.priority = INT32_MIN;
		command.rank_count = 2;
		command.ranks = ranks;
	}
	return command;
}

/* A message of every kind; bytes that it takes. */
static size_t put_all_into(size_t capacity)
{
	const struct kvpull_step_header header = header_of(COMMANDS);
	uint32_t kind;

	writer = (struct kvpull_wire_writer){ bytes, capacity, 0 };
	kvpull_step_put_header(&writer, &header);
	for (kind = 1; kind <= COMMANDS; kind++) {
		const struct kvpull_command command =
			command_of((enum kvpull_command_kind)kind);

		kvpull_step_put_command(&writer, &command);
	}
	return writer.used;
}

static size_t put_all(void)
{
	return put_all_into(sizeof(bytes));
}

static void assert_command(const struct kvpull_command *got,
			   const struct kvpull_command *wanted)
{
	uint32_t i;

	assert_int_equal(got->kind, wanted->kind);
	assert_int_equal(got->slot, wanted->slot);
	assert_true(got->key == wanted->key);
	assert_true(got->generation == wanted->generation);
	assert_int_equal(got->flags, wanted->flags);
	assert_int_equal(got->reason, wanted->reason);
	assert_int_equal(got->priority, wanted->priority);
	assert_true(got->ticket_serial == wanted->ticket_serial);
	assert_true(got->reported == wanted->reported);
	assert_int_equal(got->rank_count, wanted->rank_count);
	for (i = 0; i < wanted->rank_count; i++)
		assert_memory_equal(&got->ranks[i], &wanted->ranks[i], 41);
	assert_int_equal(got->group_count, wanted->group_count);
	for (i = 0; i < wanted->group_count; i++) {
		const uint32_t first = wanted->group_first[i];
		const size_t id_bytes =
			(wanted->group_first[i + 1] - first) * sizeof(uint32_t);

		assert_int_equal(got->group_first[i + 1],
				 wanted->group_first[i + 1]);
		assert_memory_equal(got->remote_ids + first,
				    wanted->remote_ids + first, id_bytes);
		assert_memory_equal(got->local_ids + first,
				    wanted->local_ids + first, id_bytes);
	}
}

#define TEST(name) UNIT_TEST_WITH(name, setup, NULL)

TEST(every_command_round_trips)
{
	const size_t byte_count = put_all();
	struct kvpull_wire_reader reader = reader_of(byte_count);
	struct kvpull_step_header header;
	uint32_t kind;

	assert_int_equal(step_check(bytes, byte_count, &scratch), 0);
	assert_int_equal(step_get_header(&reader, &header), 0);
	assert_true(header.incarnation == 11);
	assert_true(header.first_sequence == 1);
	assert_int_equal(header.rank_count, 2);
	assert_true(header.acks[1] == UINT64_MAX);
	assert_true(header.ack_incarnations[0] == 5);
	assert_int_equal(reader.at, STEP_HEADER_BYTES);
	for (kind = 1; kind <= COMMANDS; kind++) {
		const struct kvpull_command wanted =
			command_of((enum kvpull_command_kind)kind);
		struct kvpull_command got;

		assert_int_equal(step_get_command(&reader, &scratch, &got), 0);
		assert_command(&got, &wanted);
	}
	assert_true(kvpull_wire_done(&reader));
}

/* A checked message reads the same without the checks. */
TEST(command_that_was_good_is_read_again)
{
	const size_t byte_count = put_all();
	struct kvpull_wire_reader first = reader_of(byte_count);
	struct kvpull_wire_reader again = first;
	struct kvpull_step_header header;
	uint32_t kind;

	assert_int_equal(step_get_header(&first, &header), 0);
	assert_int_equal(step_get_header(&again, &header), 0);
	for (kind = 1; kind <= COMMANDS; kind++) {
		struct kvpull_command wanted;
		struct kvpull_command got;

		assert_int_equal(
			kvpull_step_peek_command(&first, &scratch, &wanted), 0);
		memset(&got, 0xee, sizeof(got));
		assert_int_equal(kvpull_step_peek_again(&again, &scratch, &got),
				 0);
		assert_memory_equal(&got, &wanted, sizeof(got));
	}
	assert_true(kvpull_wire_done(&again));
	/* Nothing is read past the end, whatever the bytes say by now. */
	assert_int_equal(kvpull_step_peek_again(&again, &scratch,
						&(struct kvpull_command){ 0 }),
			 KVPULL_EINVAL);
}

/* Sends a command through the wire; returns the bytes of its record. */
static size_t round_trip(const struct kvpull_command *wanted)
{
	struct kvpull_command got;
	struct kvpull_wire_reader reader;

	writer.used = 0;
	kvpull_step_put_command(&writer, wanted);
	assert_true(kvpull_wire_fits(&writer));
	reader = reader_of(writer.used);
	assert_int_equal(step_get_command(&reader, &scratch, &got), 0);
	assert_true(kvpull_wire_done(&reader));
	assert_command(&got, wanted);
	return writer.used;
}

TEST(largest_values_round_trip)
{
	struct kvpull_command command = {
		.kind = KVPULL_COMMAND_HOLD,
		.key = UINT64_MAX,
		.generation = UINT64_MAX,
		.slot = KVPULL_TICKET_SLOTS_MAX - 1,
		.ticket_serial = UINT64_MAX,
	};

	(void)round_trip(&command);
	command.kind = KVPULL_COMMAND_CLAIM;
	command.rank_count = KVPULL_RANKS_MAX;
	command.ranks = ranks;
	(void)round_trip(&command);
}

TEST(pairs_in_any_order_round_trip)
{
	struct kvpull_command command = pull_of(0);
	uint32_t i;

	for (i = 0; i < KVPULL_TICKET_BLOCKS_MAX; i++) {
		remote_ids[i] = i % 3 ? UINT32_MAX - i : i;
		local_ids[i] = i % 5 ? i : UINT32_MAX - i;
	}
	command.group_count = KVPULL_GROUPS_MAX;
	for (i = 0; i <= KVPULL_GROUPS_MAX; i++)
		command.group_first[i] =
			KVPULL_TICKET_BLOCKS_MAX / KVPULL_GROUPS_MAX * i;
	assert_true(round_trip(&command) <=
		    KVPULL_TICKET_BLOCKS_MAX * 11 + 128);
	/* Contiguous at one side alone: no run. */
	for (i = 0; i < KVPULL_TICKET_BLOCKS_MAX; i++)
		remote_ids[i] = i;
	(void)round_trip(&command);
	command.group_count = 3;
	command.group_first[1] = 10;
	command.group_first[2] = 10;
	command.group_first[3] = 17;
	(void)round_trip(&command);
}

TEST(groups_that_are_not_there_are_empty)
{
	const struct kvpull_command command = pull_of(40);
	struct kvpull_command got;
	struct kvpull_wire_reader reader;
	uint32_t i;

	kvpull_step_put_command(&writer, &command);
	reader = reader_of(writer.used);
	assert_int_equal(step_get_command(&reader, &scratch, &got), 0);
	assert_int_equal(got.group_first[0], 0);
	for (i = 1; i <= KVPULL_GROUPS_MAX; i++)
		assert_int_equal(got.group_first[i], 40);
}

TEST(contiguous_blocks_make_a_small_pull)
{
	struct kvpull_command command = pull_of(8192);
	uint64_t seed = 5;
	uint32_t i;

	assert_true(round_trip(&command) < 56);
	for (i = 0; i < 8192; i++)
		remote_ids[i] = (uint32_t)random_next(&seed) % 100000;
	print_message("pull of 8192 scattered blocks: %zu bytes\n",
		      round_trip(&command));
}

TEST(writer_without_room_counts_what_it_takes)
{
	const size_t needed = put_all();
	size_t capacity;

	for (capacity = 0; capacity <= needed; capacity++) {
		memset(bytes, 0xee, needed + 1);
		assert_int_equal(put_all_into(capacity), needed);
		assert_int_equal(bytes[capacity], 0xee);
	}
}

TEST(every_truncated_step_is_refused)
{
	const size_t byte_count = put_all();
	size_t cut;

	for (cut = 0; cut < byte_count; cut++)
		assert_int_equal(step_check(bytes, cut, &scratch),
				 KVPULL_EINVAL);
	bytes[byte_count] = 0;
	assert_int_equal(step_check(bytes, byte_count + 1, &scratch),
			 KVPULL_EINVAL);
}

/* Check the message of all kinds with value put in at an offset. */
static int check_with(size_t at, uint64_t value, size_t value_bytes)
{
	const size_t byte_count = put_all();

	value_put(bytes + at, value, value_bytes);
	return step_check(bytes, byte_count, &scratch);
}

TEST(broken_step_headers_are_refused)
{
	assert_int_equal(check_with(AT_FIRST, 1, 8), 0);
	assert_int_equal(check_with(AT_COUNT, COMMANDS, 4), 0);
	assert_int_equal(check_with(AT_RANKS, 2, 1), 0);
	assert_int_equal(check_with(0, 0, 1), KVPULL_EINVAL);
	assert_int_equal(check_with(4, 0, 1), KVPULL_EINVAL);
	assert_int_equal(check_with(AT_INCARNATION, 0, 8), KVPULL_EINVAL);
	assert_int_equal(check_with(AT_FIRST, 0, 8), KVPULL_EINVAL);
	assert_int_equal(check_with(AT_FIRST, UINT64_MAX - COMMANDS, 8), 0);
	assert_int_equal(check_with(AT_FIRST, UINT64_MAX - COMMANDS + 1, 8),
			 KVPULL_EINVAL);
	assert_int_equal(check_with(AT_COUNT, COMMANDS + 1, 4), KVPULL_EINVAL);
	assert_int_equal(check_with(AT_COUNT, COMMANDS - 1, 4), KVPULL_EINVAL);
	assert_int_equal(check_with(AT_COUNT, UINT32_MAX, 4), KVPULL_EINVAL);
	assert_int_equal(check_with(AT_RANKS, 0, 1), KVPULL_EINVAL);
	assert_int_equal(check_with(AT_RANKS, 65, 1), KVPULL_EINVAL);
}

/* A count that the bytes left cannot hold is refused with the header. */
TEST(impossible_record_count_is_refused_early)
{
	const struct kvpull_step_header header = header_of(1);
	struct kvpull_step_header got;
	struct kvpull_wire_reader reader;

	kvpull_step_put_header(&writer, &header);
	reader = reader_of(writer.used + 8);
	assert_int_equal(step_get_header(&reader, &got), KVPULL_EINVAL);
	reader = reader_of(writer.used + 9);
	assert_int_equal(step_get_header(&reader, &got), 0);
}

/* A record of the given payload, decoded. */
static int get_payload(const void *payload, size_t payload_bytes)
{
	struct kvpull_command got;
	struct kvpull_wire_reader reader;

	writer.used = 0;
	kvpull_wire_put_u32(&writer, (uint32_t)payload_bytes);
	kvpull_wire_put(&writer, payload, payload_bytes);
	reader = reader_of(writer.used);
	return step_get_command(&reader, &scratch, &got);
}

/* kind, (slot,) key, (generation,) flags, reason, serial, ... */
#define ASSERT_PAYLOAD(code, ...)                                              \
	do {                                                                   \
		const uint8_t payload[] = { __VA_ARGS__ };                     \
		assert_int_equal(get_payload(payload, sizeof(payload)), code); \
	} while (0)

#define GOOD(...) ASSERT_PAYLOAD(0, __VA_ARGS__)
#define BAD(...) ASSERT_PAYLOAD(KVPULL_EINVAL, __VA_ARGS__)

TEST(broken_commands_are_refused)
{
	GOOD(1, 0, 1, 1, 1, 0, 0, 0, 0, 0);
	GOOD(5, 1, 0, 0, 0);
	BAD(0, 1, 0, 0, 0);
	BAD(COMMANDS + 1, 1, 0, 0, 0);
	BAD(255, 1, 0, 0, 0);
	/* HOLD: slot 2^20, key 0, generation 0, flags 2, a reason. */
	BAD(1, 0x80, 0x80, 0x40, 1, 1, 0, 0, 0, 0, 0, 0);
	BAD(1, 0, 0, 1, 0, 0, 0, 0, 0, 0);
	BAD(1, 0, 1, 0, 0, 0, 0, 0, 0, 0);
	BAD(1, 0, 1, 1, 2, 0, 0, 0, 0, 0);
	BAD(1, 0, 1, 1, 0, 2, 0, 0, 0, 0);
	/* END: reasons 0 .. 5; CLAIM: generation; ABORT: key. */
	GOOD(2, 0, 1, 1, 0, 8, 0, 3);
	BAD(2, 0, 1, 1, 0, 8, 0);
	GOOD(2, 0, 1, 1, 0, 10, 0, 0);
	BAD(2, 0, 1, 1, 0, 12, 0, 0);
	BAD(2, 0, 1, 1, 0, 1, 0, 0);
	BAD(3, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0);
	BAD(3, 0, 1, 1, 0, 0, 0, 0, 0, 0, 65);
	BAD(5, 0, 0, 0, 0);
	/* A byte too many, a varint of 33 bits. */
	BAD(5, 1, 0, 0, 0, 0);
	BAD(5, 1, 0x80, 0x80, 0x80, 0x80, 0x10, 0, 0);
}

TEST(broken_pulls_are_refused)
{
#define PULL 4, 1, 3, 0, 0, 0, 0, 0
#define GOOD_PULL(...) GOOD(PULL, __VA_ARGS__)
#define BAD_PULL(...) BAD(PULL, __VA_ARGS__)
#define OF_64 1, 64, RUN_OF_64 /* one group, and its remote ids */
#define U32(low) low, 0, 0, 0
#define RUN_OF_64 U32(64), U32(1), 2, 2, 0, 63, 0
#define TWO(a, b) U32(2), U32(2), 2, a, 0, b, 0
	/* groups, their ends, then both lists: ids, runs, bytes an id, the ids */
	GOOD_PULL(OF_64, RUN_OF_64);
	GOOD_PULL(1, 0, U32(0), U32(0));
	GOOD_PULL(2, 1, 2, TWO(1, 2), TWO(9, 8));
	BAD_PULL(0, U32(0), U32(0));
	BAD_PULL(9, 0, 0, 0, 0, 0, 0, 0, 0, 0, U32(0), U32(0));
	BAD_PULL(1, 0, U32(0), U32(0), 0);
	/* Groups that end before they begin, or not where the lists do. */
	BAD_PULL(2, 3, 2, TWO(1, 2), TWO(9, 8));
	BAD_PULL(1, 63, RUN_OF_64, RUN_OF_64);
	BAD_PULL(OF_64, U32(0));
	BAD_PULL(1, 64, U32(0), RUN_OF_64);
	BAD_PULL(1, 0x81, 0x80, 4, U32(0), U32(0));
	/* Ids of no known width; runs of more, of fewer, of none. */
	BAD_PULL(OF_64, U32(64), U32(1), 1, 2, 63, 0);
	BAD_PULL(OF_64, U32(64), U32(1), 5, 2, 0, 0, 0, 0, 63, 0);
	BAD_PULL(OF_64, U32(64), U32(1), 2, 2, 0, 64, 0);
	BAD_PULL(OF_64, U32(64), U32(1), 2, 2, 0, 62, 0);
	BAD_PULL(OF_64, U32(64), U32(0), 2);
	/* More runs than ids or bytes, and 65536 pairs out of a few. */
	BAD_PULL(OF_64, U32(64), U32(65), 2, 2, 0, 63, 0);
	BAD_PULL(OF_64, U32(64), U32(60), 2, 2, 0, 63, 0);
#define RUN_OF_ALL 0, 0, 1, 0, U32(1), 4, U32(0), 0xff, 0xff
	GOOD_PULL(1, 0x80, 0x80, 4, RUN_OF_ALL, RUN_OF_ALL);
	BAD_PULL(1, 0x81, 0x80, 4, 1, 0, 1, 0, U32(2), 4, U32(0), U32(0), 0xff,
		 0xff, 0, 0, RUN_OF_ALL);
	/* A run that goes beyond UINT32_MAX. */
	GOOD_PULL(1, 2, U32(2), U32(1), 4, 0xfe, 0xff, 0xff, 0xff, 1, 0,
		  TWO(1, 2));
	BAD_PULL(1, 2, U32(2), U32(1), 4, 0xff, 0xff, 0xff, 0xff, 1, 0,
		 TWO(1, 2));
	/* Lists that end too early. */
#define ONE U32(1), U32(1), 4
	GOOD_PULL(1, 1, ONE, 0xff, 0xff, 0xff, 0xff, ONE, 9, 0, 0, 0);
	BAD_PULL(1, 1, ONE, 0xff, 0xff, 0xff, 0xff, ONE, 9, 0, 0);
	BAD_PULL(1, 1, ONE, 1, 0, 0, 0, ONE, 9, 0, 0, 0, 0);
	BAD(4, 0, 1, 0, 4, 0, 0, 0, 1, 0, U32(0), U32(0));
}

TEST(record_shorter_or_longer_than_it_says_is_refused)
{
	const struct kvpull_command command = command_of(KVPULL_COMMAND_ABORT);
	struct kvpull_command got;
	struct kvpull_wire_reader reader;
	size_t used;
	int step;

	kvpull_step_put_command(&writer, &command);
	used = writer.used;
	for (step = -1; step <= 1; step += 2) {
		bytes[0] = (uint8_t)((int)used - 4 + step);
		reader = reader_of(used + 8);
		assert_int_equal(step_get_command(&reader, &scratch, &got),
				 KVPULL_EINVAL);
	}
	memset(bytes, 0xff, 4);
	reader = reader_of(used);
	assert_int_equal(step_get_command(&reader, &scratch, &got),
			 KVPULL_EINVAL);
}

TEST(steps_are_not_taken_for_results)
{
	const size_t byte_count = put_all();
	struct kvpull_rank_info rank;

	assert_int_equal(kvpull_step_check_result(bytes, byte_count),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_step_get_rank_info(bytes, byte_count, &rank),
			 KVPULL_ENOTMINE);
}

TEST(random_bytes_are_refused)
{
	uint64_t seed = 3;
	uint32_t i;

	for (i = 0; i < 100000; i++) {
		const size_t count = (size_t)(random_next(&seed) % 96);
		struct kvpull_rank_info rank;
		size_t at;

		for (at = 0; at < count; at++)
			bytes[at] = (uint8_t)(random_next(&seed) >> 20);
		assert_int_equal(step_check(bytes, count, &scratch),
				 KVPULL_EINVAL);
		assert_int_equal(kvpull_step_check_result(bytes, count),
				 KVPULL_EINVAL);
		assert_int_equal(kvpull_step_get_rank_info(bytes, count, &rank),
				 KVPULL_ENOTMINE);
	}
}

TEST(damaged_steps_do_no_harm)
{
	uint64_t seed = 4;
	uint32_t refused = 0;
	uint32_t i;

	for (i = 0; i < 10000; i++) {
		const size_t byte_count = put_all();
		const uint64_t random = random_next(&seed);

		bytes[(random >> 32) % byte_count] = (uint8_t)random;
		refused += step_check(bytes, byte_count, &scratch) != 0;
	}
	assert_in_range(refused, 1000, 9500);
}
