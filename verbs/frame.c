/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A piece is taken only where the last one ended, so nothing is ever missing
 * or written twice; a message's total is fixed by its first piece.
 */
#include "verbs/frame.h"

#include "base/least.h"
#include "verbs/address.h"

#define FRAME_MAGIC 0x564bu
#define GREETING_MAGIC 0x4c50564bu /* "KVPL" */

/* ---- tables ---- */

static int range_is_good(const void *member)
{
	const struct kvpull_range *range = member;

	return range->address <= UINT64_MAX - range->bytes;
}

static uint64_t mrs_of(const struct kvpull_range *range, uint32_t mr_shift)
{
	const uint64_t last = range->address + range->bytes - 1;

	return (last >> mr_shift) - (range->address >> mr_shift) + 1;
}

static int keys_are_good(const void *message)
{
	const struct kvpull_keys *keys = message;
	uint64_t mr_count = 0;
	uint32_t i;

	for (i = 0; i < keys->region_count; i++)
		mr_count += mrs_of(&keys->regions[i], keys->mr_shift);
	return mr_count == keys->mr_count &&
	       keys->entries.bytes ==
		       (uint64_t)keys->slot_count *
			       sizeof(struct kvpull_revocation_entry);
}

/* clang-format off */
/* A frame and a greeting begin with magic and version: see message_get(). */
static const struct kvpull_field frame_fields[] = {
	KVPULL_FIELD_OF(U16, struct kvpull_frame, magic,
			.min = FRAME_MAGIC, .max = FRAME_MAGIC),
	KVPULL_FIELD_OF(U8, struct kvpull_frame, version,
			.min = KVPULL_FRAME_VERSION,
			.max = KVPULL_FRAME_VERSION),
	KVPULL_FIELD_OF(U8, struct kvpull_frame, kind,
			.min = KVPULL_FRAME_MESSAGE, .max = KVPULL_FRAME_ACK),
	KVPULL_FIELD_OF(U32, struct kvpull_frame, acked, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_frame, total, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_frame, offset, .min = 0),
};

/* Slot, generation and tag are judged by the hold table. */
static const struct kvpull_field record_fields[] = {
	KVPULL_FIELD_OF(U32, struct kvpull_record, kind,
			.min = KVPULL_NOTE_CLAIM, .max = KVPULL_NOTE_AWAY),
	KVPULL_FIELD_OF(U32, struct kvpull_record, slot, .min = 0),
	KVPULL_FIELD_OF(U64, struct kvpull_record, generation, .min = 0),
	KVPULL_FIELD_OF(U64, struct kvpull_record, tag, .min = 0),
	KVPULL_FIELD_OF(U64, struct kvpull_record, extra, .min = 0),
};

static const struct kvpull_field range_fields[] = {
	KVPULL_FIELD_OF(U64, struct kvpull_range, address, .min = 0),
	KVPULL_FIELD_OF(U64, struct kvpull_range, bytes, .min = 1),
};
static const struct kvpull_table range_table =
	KVPULL_TABLE("range", range_fields, .is_good = range_is_good);

static const struct kvpull_field key_fields[] = {
	{ .name = "key", .type = KVPULL_FIELD_U32, .size = sizeof(uint32_t) },
};
static const struct kvpull_table key_table =
	KVPULL_TABLE("key", key_fields, .is_good = NULL);

static const struct kvpull_field keys_fields[] = {
	KVPULL_FIELD_OF(U32, struct kvpull_keys, slot_count, .min = 1),
	KVPULL_FIELD_OF(BYTES, struct kvpull_keys, token, .min = 0),
	KVPULL_FIELD_OF(ONE, struct kvpull_keys, entries, .rows = &range_table),
	KVPULL_FIELD_OF(U32, struct kvpull_keys, entries_key, .min = 0),
	KVPULL_FIELD_OF(U8, struct kvpull_keys, mr_shift,
			.min = KVPULL_MR_SHIFT_MIN, .max = KVPULL_MR_SHIFT_MAX),
	KVPULL_FIELD_OF(U8, struct kvpull_keys, qps,
			.min = 1, .max = KVPULL_VERBS_QPS_MAX),
	KVPULL_ROWS_OF(ROWS16, struct kvpull_keys, regions, region_count,
		       &range_table, .min = 1, .max = KVPULL_REGIONS_MAX),
	KVPULL_ROWS_OF(ROWS16, struct kvpull_keys, mr_keys, mr_count,
		       &key_table, .min = 1, .max = KVPULL_MRS_MAX),
};

static const struct kvpull_field greeting_fields[] = {
	KVPULL_FIELD_OF(U32, struct kvpull_verbs_greeting, magic,
			.min = GREETING_MAGIC, .max = GREETING_MAGIC),
	KVPULL_FIELD_OF(U16, struct kvpull_verbs_greeting, version,
			.min = KVPULL_FRAME_VERSION,
			.max = KVPULL_FRAME_VERSION),
	KVPULL_FIELD_OF(U16, struct kvpull_verbs_greeting, credits, .min = 1),
	KVPULL_FIELD_OF(U16, struct kvpull_verbs_greeting, kind,
			.min = KVPULL_VERBS_CALL, .max = KVPULL_VERBS_OTHER),
	KVPULL_FIELD_OF(U8, struct kvpull_verbs_greeting, rail,
			.min = 0, .max = KVPULL_VERBS_RAILS_MAX - 1),
	KVPULL_FIELD_OF(U8, struct kvpull_verbs_greeting, lane,
			.min = 0, .max = KVPULL_VERBS_QPS_MAX - 1),
	KVPULL_FIELD_OF(U16, struct kvpull_verbs_greeting, mtu, .min = 1),
	KVPULL_FIELD_OF(BYTES, struct kvpull_verbs_greeting, token, .min = 0),
};

const struct kvpull_table kvpull_frame_table =
	KVPULL_TABLE("frame", frame_fields, .is_good = NULL);
const struct kvpull_table kvpull_record_table =
	KVPULL_TABLE("note", record_fields, .is_good = NULL);
const struct kvpull_table kvpull_keys_table =
	KVPULL_TABLE("keys", keys_fields, .is_good = keys_are_good);
const struct kvpull_table kvpull_greeting_table =
	KVPULL_TABLE("greeting", greeting_fields, .is_good = NULL);
/* clang-format on */

/* ---- messages ---- */

static uint32_t message_put(uint8_t *bytes, size_t capacity,
			    const struct kvpull_table *table,
			    const void *message)
{
	struct kvpull_wire_writer writer = { .data = bytes,
					     .capacity = capacity };

	kvpull_fields_put(&writer, table, 1, message);
	return (uint32_t)writer.used;
}

/* Another version is told apart from what is no message of ours at all. */
static int message_get(struct kvpull_wire_reader *reader,
		       const struct kvpull_table *table, void *message)
{
	const struct kvpull_field *magic = &table->fields[0];
	const struct kvpull_field *version = &table->fields[1];

	kvpull_fields_get_body(reader, table, message);
	if (reader->bad || kvpull_fields_number(magic, message) != magic->min)
		return KVPULL_EPROTO;
	if (kvpull_fields_number(version, message) != version->min)
		return KVPULL_EVERSION;
	return kvpull_fields_check(table, message) ? KVPULL_EPROTO : 0;
}

/* All of the bytes, and they have no version: the frame around them has. */
static int payload_get(const uint8_t *bytes, size_t byte_count,
		       const struct kvpull_table *table, void *message)
{
	struct kvpull_wire_reader reader = { .data = bytes,
					     .byte_count = byte_count };

	kvpull_fields_get_body(&reader, table, message);
	return !kvpull_wire_done(&reader) ||
			       kvpull_fields_check(table, message) ?
		       KVPULL_EPROTO :
		       0;
}

uint32_t kvpull_frame_put(uint8_t *bytes, const struct kvpull_frame *frame)
{
	struct kvpull_frame head = *frame;
	uint32_t used;

	head.magic = FRAME_MAGIC;
	head.version = KVPULL_FRAME_VERSION;
	used = message_put(bytes, KVPULL_FRAME_HEADER_BYTES,
			   &kvpull_frame_table, &head);
	if (frame->payload_bytes)
		memcpy(bytes + used, frame->payload, frame->payload_bytes);
	return used + frame->payload_bytes;
}

int kvpull_frame_get(const uint8_t *bytes, size_t byte_count,
		     struct kvpull_frame *frame)
{
	struct kvpull_wire_reader reader = { .data = bytes,
					     .byte_count = byte_count };
	struct kvpull_frame parsed = { 0 };
	int code;

	if (byte_count > KVPULL_FRAME_BYTES)
		return KVPULL_EPROTO;
	code = message_get(&reader, &kvpull_frame_table, &parsed);
	if (code)
		return code;
	parsed.payload = bytes + reader.at;
	parsed.payload_bytes = (uint32_t)(byte_count - reader.at);
	*frame = parsed;
	return 0;
}

int kvpull_inbox_add(struct kvpull_inbox *inbox,
		     const struct kvpull_frame *frame)
{
	uint32_t wanted;

	if (!frame->offset) {
		/* A message that begins inside another is no message. */
		if (inbox->used != inbox->total || !frame->total ||
		    frame->total > inbox->capacity)
			return KVPULL_EPROTO;
		inbox->total = frame->total;
		inbox->used = 0;
	}
	wanted = kvpull_least_u32(inbox->total - inbox->used,
				  KVPULL_FRAME_PAYLOAD_BYTES);
	if (frame->total != inbox->total || frame->offset != inbox->used ||
	    frame->payload_bytes != wanted || !wanted)
		return KVPULL_EPROTO;
	memcpy(inbox->data + inbox->used, frame->payload, wanted);
	inbox->used += wanted;
	return inbox->used == inbox->total;
}

void kvpull_frame_put_record(uint8_t bytes[KVPULL_FRAME_RECORD_BYTES],
			     const struct kvpull_record *record)
{
	(void)message_put(bytes, KVPULL_FRAME_RECORD_BYTES,
			  &kvpull_record_table, record);
}

int kvpull_frame_get_record(const struct kvpull_frame *frame,
			    struct kvpull_record *record)
{
	return payload_get(frame->payload, frame->payload_bytes,
			   &kvpull_record_table, record);
}

void kvpull_verbs_greeting_put(uint8_t bytes[KVPULL_VERBS_PRIVATE_BYTES],
			       const struct kvpull_verbs_greeting *greeting)
{
	struct kvpull_verbs_greeting head = *greeting;

	head.magic = GREETING_MAGIC;
	head.version = KVPULL_FRAME_VERSION;
	(void)message_put(bytes, KVPULL_VERBS_PRIVATE_BYTES,
			  &kvpull_greeting_table, &head);
}

int kvpull_verbs_greeting_get(const void *bytes, size_t byte_count,
			      struct kvpull_verbs_greeting *greeting)
{
	struct kvpull_wire_reader reader = { .data = bytes,
					     .byte_count = byte_count };
	struct kvpull_verbs_greeting parsed = { 0 };
	int code;

	if (!bytes)
		return KVPULL_EPROTO;
	/* The CM may pad: what follows does not count. */
	code = message_get(&reader, &kvpull_greeting_table, &parsed);
	if (!code)
		*greeting = parsed;
	return code;
}

uint32_t kvpull_keys_put(uint8_t *bytes, const struct kvpull_keys *keys)
{
	return message_put(bytes, KVPULL_KEYS_BYTES_MAX, &kvpull_keys_table,
			   keys);
}

uint64_t kvpull_keys_layout(struct kvpull_keys *keys)
{
	uint64_t mr_count = 0;
	uint32_t i;

	for (i = 0; i < keys->region_count; i++) {
		keys->mr_first[i] = (uint32_t)mr_count;
		mr_count += mrs_of(&keys->regions[i], keys->mr_shift);
	}
	return mr_count;
}

int kvpull_keys_get(const uint8_t *bytes, size_t byte_count,
		    struct kvpull_keys *keys)
{
	const int code =
		payload_get(bytes, byte_count, &kvpull_keys_table, keys);

	if (!code)
		(void)kvpull_keys_layout(keys);
	return code;
}

int kvpull_keys_check(const struct kvpull_keys *keys,
		      const struct kvpull_serve *welcome)
{
	uint32_t i;

	if (keys->region_count != welcome->region_count ||
	    keys->slot_count != welcome->slot_count)
		return KVPULL_EPROTO;
	/* The plan was made with the welcome's bounds. */
	for (i = 0; i < keys->region_count; i++)
		if (keys->regions[i].bytes != welcome->regions[i].bytes)
			return KVPULL_EPROTO;
	return 0;
}

int kvpull_keys_alike(const struct kvpull_keys *one,
		      const struct kvpull_keys *other)
{
	return one->region_count == other->region_count &&
	       memcmp(one, other,
		      offsetof(struct kvpull_keys, regions) +
			      one->region_count * sizeof(one->regions[0])) == 0;
}
