/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Golden bytes, as in test_golden.c, of what is made of records: steps, results,
 * frames, and the memory that processes share.
 */
#include "base/ring.h"
#include "plugin/bytes/step.h"
#include "tests/lib/step.h"
#include "tests/unit/bytes/golden.h"
#include "verbs/endpoint.h"
#include "verbs/frame.h"

/* ---- step and result ---- */

static const struct golden_member ticket_rank_members[] = {
	GOLDEN(GOLDEN_U64, struct kvpull_ticket_rank, incarnation),
	GOLDEN(GOLDEN_U64, struct kvpull_ticket_rank, tag),
	GOLDEN(GOLDEN_TEXT, struct kvpull_ticket_rank, address), GOLDEN_END
};

struct ack {
	uint64_t ack;
	uint64_t incarnation;
};

struct step_values {
	struct kvpull_step_header header;
	struct ack acks[KVPULL_RANKS_MAX];
	struct kvpull_command command;
	struct kvpull_ticket_rank ranks[KVPULL_RANKS_MAX];
	uint32_t pair_count;
	uint32_t id_count; /* local ones; as many */
	uint32_t remote_ids[KVPULL_TICKET_BLOCKS_MAX];
	uint32_t local_ids[KVPULL_TICKET_BLOCKS_MAX];
	uint32_t group_ends[KVPULL_GROUPS_MAX];
};

#define HEADER(kind, field) GOLDEN_OF(kind, struct step_values, header, field)
#define COMMAND(kind, field) GOLDEN_OF(kind, struct step_values, command, field)

static const struct golden_member ack_members[] = {
	GOLDEN(GOLDEN_U64, struct ack, ack),
	GOLDEN(GOLDEN_U64, struct ack, incarnation), GOLDEN_END
};

static const struct golden_member step_members[] = {
	HEADER(GOLDEN_U64, incarnation),
	HEADER(GOLDEN_U64, first_sequence),
	HEADER(GOLDEN_U32, record_count),
	GOLDEN_ROWS_AT(struct step_values, acks, header.rank_count,
		       ack_members),
	COMMAND(GOLDEN_U32, kind),
	COMMAND(GOLDEN_U32, slot),
	COMMAND(GOLDEN_U64, key),
	COMMAND(GOLDEN_U64, generation),
	COMMAND(GOLDEN_U32, flags),
	COMMAND(GOLDEN_I32, reason),
	COMMAND(GOLDEN_U64, ticket_serial),
	COMMAND(GOLDEN_U64, reported),
	COMMAND(GOLDEN_U32, blocks),
	COMMAND(GOLDEN_I32, priority),
	COMMAND(GOLDEN_TEXT, label),
	GOLDEN_ROWS_AT(struct step_values, ranks, command.rank_count,
		       ticket_rank_members),
	GOLDEN_IDS_OF(struct step_values, group_ends, command.group_count),
	GOLDEN_IDS_OF(struct step_values, remote_ids, pair_count),
	GOLDEN_IDS_OF(struct step_values, local_ids, id_count),
	GOLDEN_END
};

static struct step_values step_values;

static size_t step_encode(uint8_t *bytes)
{
	struct kvpull_wire_writer writer = { bytes, GOLDEN_BYTES_MAX, 0 };
	struct step_values *values = &step_values;
	struct kvpull_command *command = &values->command;
	uint32_t i;

	for (i = 0; i < values->header.rank_count; i++) {
		values->header.acks[i] = values->acks[i].ack;
		values->header.ack_incarnations[i] =
			values->acks[i].incarnation;
	}
	for (i = 0; i < command->group_count; i++)
		command->group_first[i + 1] = values->group_ends[i];
	command->ranks = values->ranks;
	command->remote_ids = values->remote_ids;
	command->local_ids = values->local_ids;
	kvpull_step_put_header(&writer, &values->header);
	if (values->header.record_count)
		kvpull_step_put_command(&writer, command);
	assert_true(kvpull_wire_fits(&writer));
	return writer.used;
}

static int step_decode(const uint8_t *bytes, size_t byte_count)
{
	struct kvpull_wire_reader reader = { bytes, byte_count, 0, 0 };
	static struct kvpull_step_scratch decoded;
	struct step_values *values = &step_values;
	struct kvpull_command *command = &values->command;
	int code;
	uint32_t i;

	decoded.remote_ids = values->remote_ids;
	decoded.local_ids = values->local_ids;
	code = step_check(bytes, byte_count, &decoded);
	if (!code)
		code = step_get_header(&reader, &values->header);
	if (!code && values->header.record_count)
		code = step_get_command(&reader, &decoded, command);
	if (code)
		return code;
	for (i = 0; i < values->header.rank_count; i++)
		values->acks[i] =
			(struct ack){ values->header.acks[i],
				      values->header.ack_incarnations[i] };
	for (i = 0; i < command->group_count; i++)
		values->group_ends[i] = command->group_first[i + 1];
	values->pair_count = command->group_first[command->group_count];
	values->id_count = values->pair_count;
	memcpy(values->ranks, decoded.ranks,
	       command->rank_count * sizeof(*values->ranks));
	return 0;
}

struct result_values {
	struct kvpull_result_header header;
	struct kvpull_result result;
};

#define RESULT_HEADER(kind, field)                                             \
	GOLDEN_OF(kind, struct result_values, header, field)
#define RESULT(kind, field) GOLDEN_OF(kind, struct result_values, result, field)
#define RANK(kind, field)                                                      \
	GOLDEN_OF(kind, struct result_values, result.rank, field)
#define RANK_BLOCKS                                                            \
	{                                                                      \
		.name = "block_counts", .kind = GOLDEN_IDS,                    \
		.offset = offsetof(struct result_values,                       \
				   result.rank.block_counts),                  \
		.count = offsetof(struct result_values,                        \
				  result.rank.group_count),                    \
	}
/* All of a rank's but its incarnation, which a result's header has, too. */
#define RANK_MEMBERS                                                           \
	RANK(GOLDEN_U64, generation_floor), RANK(GOLDEN_U32, stage.rank),      \
		RANK(GOLDEN_U32, stage.rank_count),                            \
		RANK(GOLDEN_U32, stage.pp_size),                               \
		RANK(GOLDEN_U32, stage.layer_first),                           \
		RANK(GOLDEN_U32, stage.layer_end),                             \
		RANK(GOLDEN_U32, slot_count), RANK_BLOCKS,                     \
		RANK(GOLDEN_BYTES, secret), RANK(GOLDEN_BYTES, compat),        \
		RANK(GOLDEN_TEXT, address)

static const struct golden_member result_members[] = {
	RESULT_HEADER(GOLDEN_U64, incarnation),
	RESULT_HEADER(GOLDEN_U64, first_sequence),
	RESULT_HEADER(GOLDEN_U32, record_count),
	{ "header_rank", GOLDEN_U32,
	  offsetof(struct result_values, header.rank), 4, 0, NULL },
	RESULT_HEADER(GOLDEN_U64, step_incarnation),
	RESULT_HEADER(GOLDEN_U64, step_sequence),
	RESULT_HEADER(GOLDEN_U32, gap),
	RESULT(GOLDEN_U32, kind),
	RESULT(GOLDEN_U32, slot),
	RESULT(GOLDEN_U64, key),
	RESULT(GOLDEN_U64, generation),
	RESULT(GOLDEN_U64, bytes),
	RESULT(GOLDEN_I32, reason),
	{ "rank_incarnation", GOLDEN_U64,
	  offsetof(struct result_values, result.rank.incarnation), 8, 0, NULL },
	RANK_MEMBERS,
	GOLDEN_END
};

static const struct golden_member rank_members[] = {
	RANK(GOLDEN_U64, incarnation), RANK_MEMBERS, GOLDEN_END
};

static struct result_values result_values;

static size_t result_encode(uint8_t *bytes)
{
	struct kvpull_wire_writer writer = { bytes, GOLDEN_BYTES_MAX, 0 };

	kvpull_step_put_result_header(&writer, &result_values.header);
	if (result_values.header.record_count)
		kvpull_step_put_result(&writer, &result_values.result);
	return writer.used;
}

static int result_decode(const uint8_t *bytes, size_t byte_count)
{
	struct kvpull_wire_reader reader = { bytes, byte_count, 0, 0 };
	int code = kvpull_step_check_result(bytes, byte_count);

	if (!code)
		code = kvpull_step_get_result_header(&reader,
						     &result_values.header);
	if (!code && result_values.header.record_count)
		code = kvpull_step_get_result(&reader, &result_values.result);
	return code;
}

static size_t rank_encode(uint8_t *bytes)
{
	struct kvpull_wire_writer writer = { bytes, GOLDEN_BYTES_MAX, 0 };

	kvpull_step_put_rank_info(&writer, &result_values.result.rank);
	return writer.used;
}

static int rank_decode(const uint8_t *bytes, size_t byte_count)
{
	return kvpull_step_get_rank_info(bytes, byte_count,
					 &result_values.result.rank);
}

/* ---- frames over the fabric ---- */

struct frame_values {
	struct kvpull_frame frame;
	uint8_t payload[KVPULL_FRAME_PAYLOAD_BYTES];
	struct kvpull_record record;
	struct kvpull_keys keys;
	struct kvpull_verbs_greeting greeting;
};

static const struct golden_member frame_members[] = {
	GOLDEN_OF(GOLDEN_U32, struct frame_values, frame, kind),
	GOLDEN_OF(GOLDEN_U32, struct frame_values, frame, acked),
	GOLDEN_OF(GOLDEN_U32, struct frame_values, frame, total),
	GOLDEN_OF(GOLDEN_U32, struct frame_values, frame, offset),
	{ "payload", GOLDEN_BYTES, offsetof(struct frame_values, payload),
	  KVPULL_FRAME_PAYLOAD_BYTES,
	  offsetof(struct frame_values, frame.payload_bytes), NULL },
	GOLDEN_END
};

static const struct golden_member record_members[] = {
	GOLDEN(GOLDEN_U32, struct kvpull_record, kind),
	GOLDEN(GOLDEN_U32, struct kvpull_record, slot),
	GOLDEN(GOLDEN_U64, struct kvpull_record, generation),
	GOLDEN(GOLDEN_U64, struct kvpull_record, tag),
	GOLDEN(GOLDEN_U64, struct kvpull_record, extra),
	GOLDEN_END
};

static const struct golden_member range_members[] = {
	GOLDEN(GOLDEN_U64, struct kvpull_range, address),
	GOLDEN(GOLDEN_U64, struct kvpull_range, bytes), GOLDEN_END
};

static const struct golden_member keys_members[] = {
	GOLDEN_OF(GOLDEN_U32, struct frame_values, keys, slot_count),
	GOLDEN_OF(GOLDEN_BYTES, struct frame_values, keys, token),
	{ "entries_address", GOLDEN_U64,
	  offsetof(struct frame_values, keys.entries.address), 8, 0, NULL },
	{ "entries_bytes", GOLDEN_U64,
	  offsetof(struct frame_values, keys.entries.bytes), 8, 0, NULL },
	GOLDEN_OF(GOLDEN_U32, struct frame_values, keys, entries_key),
	GOLDEN_OF(GOLDEN_U32, struct frame_values, keys, mr_shift),
	GOLDEN_OF(GOLDEN_U32, struct frame_values, keys, qps),
	GOLDEN_ROWS_OF(struct frame_values, keys, regions, keys.region_count,
		       range_members),
	GOLDEN_IDS_OF(struct frame_values, keys.mr_keys, keys.mr_count),
	GOLDEN_END
};

static const struct golden_member greeting_members[] = {
	GOLDEN_OF(GOLDEN_U32, struct frame_values, greeting, kind),
	GOLDEN_OF(GOLDEN_U32, struct frame_values, greeting, credits),
	GOLDEN_OF(GOLDEN_U32, struct frame_values, greeting, rail),
	GOLDEN_OF(GOLDEN_U32, struct frame_values, greeting, lane),
	GOLDEN_OF(GOLDEN_U32, struct frame_values, greeting, mtu),
	GOLDEN_OF(GOLDEN_BYTES, struct frame_values, greeting, token),
	GOLDEN_END
};

static struct frame_values frame_values;

static size_t frame_encode(uint8_t *bytes)
{
	frame_values.frame.payload = frame_values.payload;
	return kvpull_frame_put(bytes, &frame_values.frame);
}

static int frame_decode(const uint8_t *bytes, size_t byte_count)
{
	const int code =
		kvpull_frame_get(bytes, byte_count, &frame_values.frame);

	if (!code)
		memcpy(frame_values.payload, frame_values.frame.payload,
		       frame_values.frame.payload_bytes);
	return code;
}

static size_t note_encode(uint8_t *bytes)
{
	kvpull_frame_put_record(bytes, &frame_values.record);
	return KVPULL_FRAME_RECORD_BYTES;
}

static int note_decode(const uint8_t *bytes, size_t byte_count)
{
	const struct kvpull_frame frame = {
		.kind = KVPULL_FRAME_NOTE,
		.payload = bytes,
		.payload_bytes = (uint32_t)byte_count,
	};

	return kvpull_frame_get_record(&frame, &frame_values.record);
}

static size_t keys_encode(uint8_t *bytes)
{
	return kvpull_keys_put(bytes, &frame_values.keys);
}

static int keys_decode(const uint8_t *bytes, size_t byte_count)
{
	return kvpull_keys_get(bytes, byte_count, &frame_values.keys);
}

static size_t greeting_encode(uint8_t *bytes)
{
	kvpull_verbs_greeting_put(bytes, &frame_values.greeting);
	return KVPULL_VERBS_PRIVATE_BYTES;
}

static int greeting_decode(const uint8_t *bytes, size_t byte_count)
{
	return kvpull_verbs_greeting_get(bytes, byte_count,
					 &frame_values.greeting);
}

/* ---- shared memory ---- */

struct ring_values {
	uint32_t capacity;
	uint32_t record_count;
	uint32_t popped;
	uint32_t is_armed;
	uint32_t beats;
	struct kvpull_record records[4];
	struct kvpull_revocation_entry entry;
};

static const struct golden_member ring_members[] = {
	GOLDEN(GOLDEN_U32, struct ring_values, capacity),
	GOLDEN(GOLDEN_U32, struct ring_values, popped),
	GOLDEN(GOLDEN_U32, struct ring_values, is_armed),
	GOLDEN(GOLDEN_U32, struct ring_values, beats),
	GOLDEN_ROWS_AT(struct ring_values, records, record_count,
		       record_members),
	GOLDEN_END
};

static const struct golden_member entry_members[] = {
	GOLDEN_OF(GOLDEN_U64, struct ring_values, entry, incarnation),
	GOLDEN_OF(GOLDEN_U64, struct ring_values, entry, revoked),
	GOLDEN_OF(GOLDEN_U64, struct ring_values, entry, ready), GOLDEN_END
};

static struct ring_values ring_values;
static _Alignas(64) uint8_t ring_memory[GOLDEN_BYTES_MAX];

/* All records are pushed, some popped, and the reader sleeps after them. */
static size_t ring_encode(uint8_t *bytes)
{
	const struct ring_values *values = &ring_values;
	const size_t byte_count = kvpull_ring_bytes(values->capacity);
	struct kvpull_ring_writer writer;
	struct kvpull_record record;
	struct kvpull_ring ring;
	uint32_t i;

	memset(ring_memory, 0, sizeof(ring_memory));
	assert_true(byte_count && byte_count <= sizeof(ring_memory));
	assert_int_equal(kvpull_ring_init(&ring, ring_memory, values->capacity),
			 0);
	assert_int_equal(
		kvpull_ring_writer_init(&writer, ring_memory, byte_count), 0);
	for (i = 0; i < values->record_count; i++)
		assert_int_equal(kvpull_ring_push(&writer, &values->records[i]),
				 0);
	for (i = 0; i < values->beats; i++)
		kvpull_ring_beat(&writer);
	assert_int_equal(kvpull_ring_ready(&ring), values->record_count);
	for (i = 0; i < values->popped; i++)
		kvpull_ring_pop(&ring, &record);
	kvpull_ring_pop_end(&ring);
	if (values->is_armed)
		assert_int_equal(kvpull_ring_arm(&ring), 0);
	memcpy(bytes, ring_memory, byte_count);
	return byte_count;
}

/* A writer that opens these bytes knows them, and a reader takes from them. */
static int ring_decode(const uint8_t *bytes, size_t byte_count)
{
	struct ring_values *values = &ring_values;
	struct kvpull_ring_writer writer;
	int code;

	memcpy(ring_memory, bytes, byte_count);
	code = kvpull_ring_writer_init(&writer, ring_memory, byte_count);
	if (code)
		return code;
	values->capacity = writer.record_count;
	values->record_count = (uint32_t)writer.tail;
	values->popped = values->record_count - kvpull_ring_open_count(&writer);
	memcpy(&values->beats, ring_memory + KVPULL_RING_BEAT_OFFSET,
	       sizeof(values->beats));
	memcpy(values->records, ring_memory + KVPULL_RING_SLOTS_OFFSET,
	       values->record_count * sizeof(*values->records));
	/* The next one is told that the reader sleeps. */
	values->is_armed = kvpull_ring_push(&writer, &values->records[0]) == 1;
	return 0;
}

static size_t entry_encode(uint8_t *bytes)
{
	memcpy(bytes, &ring_values.entry, sizeof(ring_values.entry));
	return sizeof(ring_values.entry);
}

static int entry_decode(const uint8_t *bytes, size_t byte_count)
{
	assert_int_equal(byte_count, sizeof(ring_values.entry));
	memcpy(&ring_values.entry, bytes, byte_count);
	return 0;
}

/* ---- the files ---- */

static const struct golden_message messages[] = {
	GOLDEN_MESSAGE(step, step_values, KVPULL_WIRE_VERSION),
	GOLDEN_MESSAGE(result, result_values, KVPULL_WIRE_VERSION),
	GOLDEN_MESSAGE(rank, result_values, KVPULL_WIRE_VERSION),
	GOLDEN_MESSAGE(frame, frame_values, KVPULL_FRAME_VERSION),
	{ "note", record_members, &frame_values.record,
	  sizeof(frame_values.record), note_encode, note_decode,
	  KVPULL_FRAME_VERSION, 0 },
	GOLDEN_MESSAGE(keys, frame_values, KVPULL_FRAME_VERSION),
	GOLDEN_MESSAGE(greeting, frame_values, KVPULL_FRAME_VERSION),
	GOLDEN_MESSAGE(ring, ring_values, KVPULL_RING_VERSION),
	GOLDEN_MESSAGE(entry, ring_values, KVPULL_RING_VERSION),
	GOLDEN_END
};

UNIT_TEST(steps_are_as_committed)
{
	golden_check_file("step.txt", 10, messages);
}

UNIT_TEST(results_are_as_committed)
{
	golden_check_file("result.txt", 5, messages);
}

UNIT_TEST(frames_are_as_committed)
{
	golden_check_file("frame.txt", 8, messages);
}

UNIT_TEST(shared_memory_is_as_committed)
{
	golden_check_file("shared.txt", 3, messages);
}
