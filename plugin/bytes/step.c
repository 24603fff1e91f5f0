/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codec of the bytes between the halves: its tables, and what frames them.
 *
 * Kept: a decoder writes nothing past a bound; a count is compared with the
 * bytes that are left before it is a loop's end; time is linear in the message
 * plus KVPULL_TICKET_BLOCKS_MAX a PULL.
 *
 * Message: u32 magic, u8 version, then the header and each record: u32 bytes
 * after it, and its table's fields. A record's scalars are varints: they are
 * small or 0 mostly. The halves of an engine are of one build: what they write
 * is the newest version.
 */
#include "plugin/bytes/step.h"

#include <string.h>

#include "base/fields_inline.h"

#define STEP_MAGIC UINT32_C(0x5453564b)      /* "KVST" */
#define RESULT_MAGIC UINT32_C(0x5352564b)    /* "KVRS" */
#define RANK_INFO_MAGIC UINT32_C(0x4952564b) /* "KVRI" */

/* Smallest records: their byte count, kind and scalars of a byte each. */
#define COMMAND_BYTES_MIN 9u
#define RESULT_BYTES_MIN 10u

#define COMMAND(kind) (1u << KVPULL_COMMAND_##kind)
#define RESULT(kind) (1u << KVPULL_RESULT_##kind)

_Static_assert(KVPULL_RANKS_MAX <= UINT8_MAX && KVPULL_GROUPS_MAX <= UINT8_MAX,
	       "counts are one byte on the wire");

/* ---- what tables cannot say ---- */

/* Reasons that a report may carry: 0 or an error that we know. */
static int error_is_good(int32_t reason)
{
	switch (reason) {
#define CASE(name, value, text) case value:
		KVPULL_ERRORS(CASE)
#undef CASE
	case KVPULL_OK:
		return 1;
	}
	return 0;
}

static int end_is_good(int32_t reason)
{
	return reason >= KVPULL_END_RELEASED && reason <= KVPULL_END_GIVEN_BACK;
}

/* A first sequence and a count that do not wrap. */
static int step_header_is_good(const void *message)
{
	const struct kvpull_step_header *header = message;

	return header->record_count <= UINT64_MAX - header->first_sequence;
}

static int result_header_is_good(const void *message)
{
	const struct kvpull_result_header *header = message;

	return header->record_count <= UINT64_MAX - header->first_sequence;
}

/* Groups end in order, and their pairs are all that there are. */
static int groups_are_good(const struct kvpull_command *command)
{
	uint32_t i;

	for (i = 0; i < command->group_count; i++)
		if (command->group_first[i] > command->group_first[i + 1])
			return 0;
	return command->remote.count == command->group_first[i] &&
	       command->local.count == command->group_first[i];
}

static int command_is_good(const void *message)
{
	const struct kvpull_command *command = message;
	uint32_t flags = 0;

	if (command->kind == KVPULL_COMMAND_HOLD)
		flags = KVPULL_TICKET_READY_NEEDED;
	if (command->kind == KVPULL_COMMAND_PULL)
		flags = KVPULL_FLAG_RELEASE | KVPULL_FLAG_READY;
	if (command->flags & ~flags)
		return 0;
	if (command->kind != KVPULL_COMMAND_END &&
	    command->kind != KVPULL_COMMAND_PULL && command->reason)
		return 0;
	switch (command->kind) {
	case KVPULL_COMMAND_HOLD:
	case KVPULL_COMMAND_END:
		return command->key && command->generation &&
		       end_is_good(command->reason);
	case KVPULL_COMMAND_CLAIM:
		return command->generation != 0;
	case KVPULL_COMMAND_PULL:
		/* With a reason: refused already, to be reported as failed. */
		return command->key && error_is_good(command->reason) &&
		       groups_are_good(command);
	case KVPULL_COMMAND_ABORT:
		return command->key != 0;
	case KVPULL_COMMAND_RELEASE:
		return 1;
	}
	return 0;
}

static int rank_is_good(const void *message)
{
	const struct kvpull_rank_info *rank = message;

	/* An empty address: its memory is not registered yet. */
	return kvpull_stage_is_good(&rank->stage) &&
	       (!rank->address[0] ||
		kvpull_ticket_address_is_good(rank->address));
}

static int result_is_good(const void *message)
{
	const struct kvpull_result *result = message;

	switch (result->kind) {
	case KVPULL_RESULT_RANK:
		return !result->reason;
	case KVPULL_RESULT_HOLD_ENDED:
		return result->key && result->generation &&
		       end_is_good(result->reason);
	case KVPULL_RESULT_PULL_ENDED:
		return result->key && error_is_good(result->reason);
	}
	return 0;
}

/* ---- tables ---- */

/* clang-format off */
/* Rows of two arrays beside each other. */
static const struct kvpull_field ack_fields[] = {
	{ .name = "taken", .type = KVPULL_FIELD_U64, .size = 8 },
	{ .name = "incarnation", .type = KVPULL_FIELD_U64, .size = 8,
	  .offset = offsetof(struct kvpull_step_header, ack_incarnations) -
		    offsetof(struct kvpull_step_header, acks) },
};
static const struct kvpull_table ack_table =
	KVPULL_TABLE("ack", ack_fields, .is_good = NULL);

static const struct kvpull_field step_fields[] = {
	KVPULL_FIELD_OF(U64, struct kvpull_step_header, incarnation, .min = 1),
	KVPULL_FIELD_OF(U64, struct kvpull_step_header, first_sequence,
			.min = 1),
	KVPULL_FIELD_OF(U32, struct kvpull_step_header, record_count,
			.min = 0),
	KVPULL_ROWS_OF(ROWS, struct kvpull_step_header, acks, rank_count,
		       &ack_table, .min = 1, .max = KVPULL_RANKS_MAX),
};
const struct kvpull_table kvpull_step_table =
	KVPULL_TABLE("step", step_fields, .is_good = step_header_is_good);

static const struct kvpull_field end_fields[] = {
	{ .name = "pairs", .type = KVPULL_FIELD_VARINT, .size = 4,
	  .max = KVPULL_TICKET_BLOCKS_MAX },
};
static const struct kvpull_table end_table =
	KVPULL_TABLE("group end", end_fields, .is_good = NULL);

static const struct kvpull_field command_fields[] = {
	KVPULL_FIELD_OF(U8, struct kvpull_command, kind, .min = 1,
			.max = KVPULL_COMMAND_LAST),
	KVPULL_FIELD_OF(VARINT, struct kvpull_command, slot,
			.kinds = COMMAND(HOLD) | COMMAND(END) | COMMAND(CLAIM),
			.max = KVPULL_TICKET_SLOTS_MAX - 1),
	KVPULL_FIELD_OF(VARINT, struct kvpull_command, key, .min = 0),
	KVPULL_FIELD_OF(VARINT, struct kvpull_command, generation,
			.kinds = COMMAND(HOLD) | COMMAND(END) | COMMAND(CLAIM)),
	KVPULL_FIELD_OF(VARINT, struct kvpull_command, flags, .min = 0),
	KVPULL_FIELD_OF(ZIGZAG, struct kvpull_command, reason, .min = 0),
	KVPULL_FIELD_OF(VARINT, struct kvpull_command, ticket_serial,
			.min = 0),
	KVPULL_FIELD_OF(VARINT, struct kvpull_command, reported,
			.kinds = COMMAND(END)),
	KVPULL_FIELD_OF(VARINT, struct kvpull_command, blocks,
			.kinds = COMMAND(HOLD)),
	KVPULL_FIELD_OF(ZIGZAG, struct kvpull_command, priority,
			.kinds = COMMAND(CLAIM) | COMMAND(PULL)),
	KVPULL_FIELD_OF(TEXT, struct kvpull_command, label,
			.kinds = COMMAND(HOLD) | COMMAND(CLAIM) | COMMAND(PULL)),
	{ .name = "ranks", .type = KVPULL_FIELD_ROWS, .is_pointer = 1,
	  .kinds = COMMAND(CLAIM), .min = 1, .max = KVPULL_RANKS_MAX,
	  .offset = offsetof(struct kvpull_command, ranks),
	  .count_offset = offsetof(struct kvpull_command, rank_count),
	  .size = sizeof(struct kvpull_ticket_rank),
	  .rows = &kvpull_ticket_rank_table },
	{ .name = "group_ends", .type = KVPULL_FIELD_ROWS,
	  .kinds = COMMAND(PULL), .min = 1, .max = KVPULL_GROUPS_MAX,
	  .offset = offsetof(struct kvpull_command, group_first[1]),
	  .count_offset = offsetof(struct kvpull_command, group_count),
	  .size = sizeof(uint32_t), .rows = &end_table },
	KVPULL_FIELD_OF(IDS, struct kvpull_command, remote,
			.kinds = COMMAND(PULL),
			.max = KVPULL_TICKET_BLOCKS_MAX),
	KVPULL_FIELD_OF(IDS, struct kvpull_command, local,
			.kinds = COMMAND(PULL),
			.max = KVPULL_TICKET_BLOCKS_MAX),
};
const struct kvpull_table kvpull_command_table =
	KVPULL_TABLE("command", command_fields, .is_good = command_is_good,
		     .kind_offset = offsetof(struct kvpull_command, kind));

static const struct kvpull_field result_header_fields[] = {
	KVPULL_FIELD_OF(U64, struct kvpull_result_header, incarnation,
			.min = 1),
	KVPULL_FIELD_OF(U64, struct kvpull_result_header, first_sequence,
			.min = 1),
	KVPULL_FIELD_OF(U32, struct kvpull_result_header, record_count,
			.min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_result_header, rank,
			.max = KVPULL_RANKS_MAX - 1),
	KVPULL_FIELD_OF(U64, struct kvpull_result_header, step_incarnation,
			.min = 0),
	KVPULL_FIELD_OF(U64, struct kvpull_result_header, step_sequence,
			.min = 0),
	KVPULL_FIELD_OF(U8, struct kvpull_result_header, gap, .max = 1),
};
const struct kvpull_table kvpull_result_header_table =
	KVPULL_TABLE("results", result_header_fields,
		     .is_good = result_header_is_good);

static const struct kvpull_field block_count_fields[] = {
	{ .name = "blocks", .type = KVPULL_FIELD_U32, .size = 4 },
};
static const struct kvpull_table block_count_table =
	KVPULL_TABLE("group blocks", block_count_fields, .is_good = NULL);

static const struct kvpull_field rank_fields[] = {
	KVPULL_FIELD_OF(U64, struct kvpull_rank_info, incarnation, .min = 1),
	KVPULL_FIELD_OF(U64, struct kvpull_rank_info, generation_floor,
			.min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_rank_info, stage.rank, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_rank_info, stage.rank_count,
			.min = 1, .max = KVPULL_RANKS_MAX),
	KVPULL_FIELD_OF(U32, struct kvpull_rank_info, stage.pp_size, .min = 1,
			.max = KVPULL_RANKS_MAX),
	KVPULL_FIELD_OF(U32, struct kvpull_rank_info, stage.layer_first,
			.min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_rank_info, stage.layer_end,
			.min = 1),
	KVPULL_FIELD_OF(U32, struct kvpull_rank_info, slot_count, .min = 1,
			.max = KVPULL_TICKET_SLOTS_MAX),
	KVPULL_ROWS_OF(ROWS, struct kvpull_rank_info, block_counts, group_count,
		       &block_count_table, .max = KVPULL_GROUPS_MAX),
	KVPULL_FIELD_OF(BYTES, struct kvpull_rank_info, secret, .min = 0),
	KVPULL_FIELD_OF(BYTES, struct kvpull_rank_info, compat, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_rank_info, address, .min = 0),
};
const struct kvpull_table kvpull_rank_info_table =
	KVPULL_TABLE("rank", rank_fields, .is_good = rank_is_good);

static const struct kvpull_field result_fields[] = {
	KVPULL_FIELD_OF(U8, struct kvpull_result, kind, .min = 1,
			.max = KVPULL_RESULT_PULL_ENDED),
	KVPULL_FIELD_OF(VARINT, struct kvpull_result, slot,
			.max = KVPULL_TICKET_SLOTS_MAX - 1),
	KVPULL_FIELD_OF(VARINT, struct kvpull_result, key, .min = 0),
	KVPULL_FIELD_OF(VARINT, struct kvpull_result, generation, .min = 0),
	KVPULL_FIELD_OF(VARINT, struct kvpull_result, bytes, .min = 0),
	KVPULL_FIELD_OF(ZIGZAG, struct kvpull_result, reason, .min = 0),
	KVPULL_FIELD_OF(ONE, struct kvpull_result, rank,
			.kinds = RESULT(RANK), .rows = &kvpull_rank_info_table),
};
const struct kvpull_table kvpull_result_table =
	KVPULL_TABLE("result", result_fields, .is_good = result_is_good,
		     .kind_offset = offsetof(struct kvpull_result, kind));
/* clang-format on */

/* ---- frames ---- */

static void put_start(struct kvpull_wire_writer *writer, uint32_t magic)
{
	kvpull_wire_put_u32(writer, magic);
	kvpull_wire_put_u8(writer, KVPULL_WIRE_VERSION);
}

KVPULL_FIELDS_INLINE void put_record(struct kvpull_wire_writer *writer,
				     const struct kvpull_table *table,
				     const void *record)
{
	struct kvpull_wire_writer patch = *writer;

	kvpull_assert(!kvpull_fields_check(table, record));
	kvpull_wire_put_u32(writer, 0);
	kvpull_fields_put_here(writer, table, KVPULL_WIRE_VERSION, record);
	if (kvpull_wire_fits(writer))
		kvpull_wire_put_u32(&patch,
				    (uint32_t)(writer->used - patch.used - 4));
}

/* Takes the bytes of the next record. */
static struct kvpull_wire_reader record_of(struct kvpull_wire_reader *reader)
{
	const size_t byte_count = kvpull_wire_get_u32(reader);
	const uint8_t *bytes = kvpull_wire_get(reader, byte_count);

	return (struct kvpull_wire_reader){ bytes, bytes ? byte_count : 0, 0,
					    bytes ? 0 : 1 };
}

KVPULL_FIELDS_INLINE int get_record(struct kvpull_wire_reader *reader,
				    const struct kvpull_table *table,
				    void *record,
				    char unknown[KVPULL_FIELD_NAME_BYTES_MAX])
{
	struct kvpull_wire_reader inner = record_of(reader);
	const int code = kvpull_fields_get_here(&inner, table, record, unknown);

	return code == KVPULL_EPROTO ? KVPULL_EINVAL : code;
}

/* Magic, version and header; record_count is held to the bytes that follow. */
KVPULL_FIELDS_INLINE int get_start(struct kvpull_wire_reader *reader,
				   uint32_t magic,
				   const struct kvpull_table *table,
				   void *header,
				   char unknown[KVPULL_FIELD_NAME_BYTES_MAX])
{
	unknown[0] = '\0';
	if (kvpull_wire_get_u32(reader) != magic || !kvpull_wire_get_u8(reader))
		return KVPULL_EINVAL;
	return get_record(reader, table, header, unknown);
}

static int fits(const struct kvpull_wire_reader *reader, uint32_t record_count,
		uint32_t record_bytes_min)
{
	return record_count <=
	       (reader->byte_count - reader->at) / record_bytes_min;
}

/* ---- steps ---- */

void kvpull_step_label(char own[KVPULL_STEP_LABEL_BYTES], const char *label)
{
	const size_t room = KVPULL_STEP_LABEL_BYTES - 1;
	const size_t bytes = label ? strlen(label) : 0;
	const size_t cut = bytes > room ? bytes - room : 0;

	memset(own, 0, KVPULL_STEP_LABEL_BYTES);
	if (bytes)
		memcpy(own, label + cut, bytes - cut);
}

void kvpull_step_put_header(struct kvpull_wire_writer *writer,
			    const struct kvpull_step_header *header)
{
	put_start(writer, STEP_MAGIC);
	put_record(writer, &kvpull_step_table, header);
}

int kvpull_step_get_header(struct kvpull_wire_reader *reader,
			   struct kvpull_step_header *header,
			   char unknown[KVPULL_FIELD_NAME_BYTES_MAX])
{
	const int code = get_start(reader, STEP_MAGIC, &kvpull_step_table,
				   header, unknown);

	if (code)
		return code;
	return fits(reader, header->record_count, COMMAND_BYTES_MIN) ?
		       0 :
		       KVPULL_EINVAL;
}

void kvpull_step_put_command(struct kvpull_wire_writer *writer,
			     const struct kvpull_command *command)
{
	struct kvpull_command own = *command;

	if (own.kind == KVPULL_COMMAND_PULL) {
		const uint32_t pairs = own.group_first[own.group_count];

		if (!own.remote.bytes)
			own.remote =
				(struct kvpull_ids){ .list = own.remote_ids,
						     .count = pairs };
		own.local = (struct kvpull_ids){ .list = own.local_ids,
						 .count = pairs };
	}
	put_record(writer, &kvpull_command_table, &own);
}

static void command_clear(struct kvpull_command *command,
			  struct kvpull_step_scratch *scratch)
{
	memset(command, 0, sizeof(*command));
	command->ranks = scratch->ranks;
}

/* The groups that were not sent are empty ones. */
static void groups_end(struct kvpull_command *command)
{
	uint32_t i;

	for (i = command->group_count; i < KVPULL_GROUPS_MAX; i++)
		command->group_first[i + 1] = command->group_first[i];
}

int kvpull_step_peek_command(struct kvpull_wire_reader *reader,
			     struct kvpull_step_scratch *scratch,
			     struct kvpull_command *command)
{
	int code;

	command_clear(command, scratch);
	code = get_record(reader, &kvpull_command_table, command,
			  scratch->unknown);
	if (code)
		return code;
	groups_end(command);
	return 0;
}

int kvpull_step_peek_again(struct kvpull_wire_reader *reader,
			   struct kvpull_step_scratch *scratch,
			   struct kvpull_command *command)
{
	struct kvpull_wire_reader inner = record_of(reader);

	command_clear(command, scratch);
	if (kvpull_fields_get_again_here(&inner, &kvpull_command_table, command,
					 scratch->unknown))
		return KVPULL_EINVAL;
	groups_end(command);
	return 0;
}

int kvpull_step_begin(struct kvpull_wire_reader *reader,
		      struct kvpull_step_scratch *scratch,
		      struct kvpull_step_header *header)
{
	struct kvpull_wire_reader ahead;
	struct kvpull_command command;
	int code = kvpull_step_get_header(reader, header, scratch->unknown);
	uint32_t i;

	ahead = *reader;
	for (i = 0; !code && i < header->record_count; i++)
		code = kvpull_step_peek_command(&ahead, scratch, &command);
	if (code)
		return code;
	return kvpull_wire_done(&ahead) ? 0 : KVPULL_EINVAL;
}

/* ---- results ---- */

void kvpull_step_put_result_header(struct kvpull_wire_writer *writer,
				   const struct kvpull_result_header *header)
{
	put_start(writer, RESULT_MAGIC);
	put_record(writer, &kvpull_result_header_table, header);
}

int kvpull_step_get_result_header(struct kvpull_wire_reader *reader,
				  struct kvpull_result_header *header)
{
	char unknown[KVPULL_FIELD_NAME_BYTES_MAX];
	const int code =
		get_start(reader, RESULT_MAGIC, &kvpull_result_header_table,
			  header, unknown);

	if (code)
		return code;
	return fits(reader, header->record_count, RESULT_BYTES_MIN) ?
		       0 :
		       KVPULL_EINVAL;
}

void kvpull_step_put_result(struct kvpull_wire_writer *writer,
			    const struct kvpull_result *result)
{
	put_record(writer, &kvpull_result_table, result);
}

int kvpull_step_get_result(struct kvpull_wire_reader *reader,
			   struct kvpull_result *result)
{
	char unknown[KVPULL_FIELD_NAME_BYTES_MAX];

	memset(result, 0, sizeof(*result));
	return get_record(reader, &kvpull_result_table, result, unknown);
}

int kvpull_step_check_result(const void *bytes, size_t byte_count)
{
	struct kvpull_wire_reader reader = { bytes, byte_count, 0, 0 };
	struct kvpull_result_header header = { 0 };
	struct kvpull_result result;
	int code = kvpull_step_get_result_header(&reader, &header);
	uint32_t i;

	for (i = 0; !code && i < header.record_count; i++)
		code = kvpull_step_get_result(&reader, &result);
	if (code)
		return code;
	return kvpull_wire_done(&reader) ? 0 : KVPULL_EINVAL;
}

void kvpull_step_put_rank_info(struct kvpull_wire_writer *writer,
			       const struct kvpull_rank_info *rank)
{
	put_start(writer, RANK_INFO_MAGIC);
	put_record(writer, &kvpull_rank_info_table, rank);
}

int kvpull_step_get_rank_info(const void *bytes, size_t byte_count,
			      struct kvpull_rank_info *rank)
{
	struct kvpull_wire_reader reader = { bytes, byte_count, 0, 0 };
	char unknown[KVPULL_FIELD_NAME_BYTES_MAX];
	int code;

	if (kvpull_wire_get_u32(&reader) != RANK_INFO_MAGIC)
		return KVPULL_ENOTMINE;
	memset(rank, 0, sizeof(*rank));
	reader.at = 0;
	code = get_start(&reader, RANK_INFO_MAGIC, &kvpull_rank_info_table,
			 rank, unknown);
	if (code)
		return code;
	return kvpull_wire_done(&reader) ? 0 : KVPULL_EINVAL;
}
