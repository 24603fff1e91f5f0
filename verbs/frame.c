/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A piece is taken only where the last one ended, so nothing is ever missing
 * or written twice; a message's total is fixed by its first piece.
 */
#include "verbs/frame.h"

#include "base/wire.h"

#define FRAME_MAGIC 0x564bu

uint32_t kvpull_frame_put(uint8_t *bytes, const struct kvpull_frame *frame)
{
	struct kvpull_wire_writer writer = { .data = bytes,
					     .capacity = KVPULL_FRAME_BYTES };

	kvpull_wire_put_u16(&writer, FRAME_MAGIC);
	kvpull_wire_put_u8(&writer, KVPULL_FRAME_VERSION);
	kvpull_wire_put_u8(&writer, (uint8_t)frame->kind);
	kvpull_wire_put_u32(&writer, frame->acked);
	kvpull_wire_put_u32(&writer, frame->total);
	kvpull_wire_put_u32(&writer, frame->offset);
	kvpull_wire_put(&writer, frame->payload, frame->payload_bytes);
	return (uint32_t)writer.used;
}

int kvpull_frame_get(const uint8_t *bytes, size_t byte_count,
		     struct kvpull_frame *frame)
{
	struct kvpull_wire_reader reader = { .data = bytes,
					     .byte_count = byte_count };
	const uint32_t magic = kvpull_wire_get_u16(&reader);
	const uint32_t version = kvpull_wire_get_u8(&reader);
	struct kvpull_frame parsed = { 0 };

	parsed.kind = kvpull_wire_get_u8(&reader);
	parsed.acked = kvpull_wire_get_u32(&reader);
	parsed.total = kvpull_wire_get_u32(&reader);
	parsed.offset = kvpull_wire_get_u32(&reader);
	if (reader.bad || byte_count > KVPULL_FRAME_BYTES ||
	    magic != FRAME_MAGIC)
		return KVPULL_EPROTO;
	if (version != KVPULL_FRAME_VERSION)
		return KVPULL_EVERSION;
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
	wanted = inbox->total - inbox->used;
	if (wanted > KVPULL_FRAME_PAYLOAD_BYTES)
		wanted = KVPULL_FRAME_PAYLOAD_BYTES;
	if (frame->total != inbox->total || frame->offset != inbox->used ||
	    frame->payload_bytes != wanted || !wanted)
		return KVPULL_EPROTO;
	memcpy(inbox->data + inbox->used, frame->payload, wanted);
	inbox->used += wanted;
	return inbox->used == inbox->total;
}

void kvpull_frame_put_record(uint8_t bytes[32],
			     const struct kvpull_record *record)
{
	struct kvpull_wire_writer writer = { .data = bytes, .capacity = 32 };

	kvpull_wire_put_u32(&writer, record->kind);
	kvpull_wire_put_u32(&writer, record->slot);
	kvpull_wire_put_u64(&writer, record->generation);
	kvpull_wire_put_u64(&writer, record->tag);
	kvpull_wire_put_u64(&writer, record->extra);
}

int kvpull_frame_get_record(const struct kvpull_frame *frame,
			    struct kvpull_record *record)
{
	struct kvpull_wire_reader reader = { .data = frame->payload,
					     .byte_count =
						     frame->payload_bytes };
	struct kvpull_record parsed;

	parsed.kind = kvpull_wire_get_u32(&reader);
	parsed.slot = kvpull_wire_get_u32(&reader);
	parsed.generation = kvpull_wire_get_u64(&reader);
	parsed.tag = kvpull_wire_get_u64(&reader);
	parsed.extra = kvpull_wire_get_u64(&reader);
	/* Slot, generation and tag are judged by the hold table. */
	if (!kvpull_wire_done(&reader) || (parsed.kind != KVPULL_NOTE_CLAIM &&
					   parsed.kind != KVPULL_NOTE_RELEASE))
		return KVPULL_EPROTO;
	*record = parsed;
	return 0;
}

static void key_put(struct kvpull_wire_writer *writer,
		    const struct kvpull_key *key)
{
	kvpull_wire_put_u64(writer, key->address);
	kvpull_wire_put_u64(writer, key->bytes);
	kvpull_wire_put_u32(writer, key->remote_key);
}

static int key_get(struct kvpull_wire_reader *reader, struct kvpull_key *key)
{
	key->address = kvpull_wire_get_u64(reader);
	key->bytes = kvpull_wire_get_u64(reader);
	key->remote_key = kvpull_wire_get_u32(reader);
	key->reserved = 0;
	return key->bytes && key->address <= UINT64_MAX - key->bytes;
}

uint32_t kvpull_keys_put(uint8_t *bytes, const struct kvpull_keys *keys)
{
	struct kvpull_wire_writer writer = { .data = bytes,
					     .capacity =
						     KVPULL_KEYS_BYTES_MAX };
	uint32_t i;

	kvpull_wire_put_u32(&writer, keys->region_count);
	kvpull_wire_put_u32(&writer, keys->slot_count);
	kvpull_wire_put_u64(&writer, keys->token[0]);
	kvpull_wire_put_u64(&writer, keys->token[1]);
	key_put(&writer, &keys->entries);
	for (i = 0; i < keys->region_count; i++)
		key_put(&writer, &keys->regions[i]);
	return (uint32_t)writer.used;
}

int kvpull_keys_get(const uint8_t *bytes, size_t byte_count,
		    struct kvpull_keys *keys)
{
	struct kvpull_wire_reader reader = { .data = bytes,
					     .byte_count = byte_count };
	struct kvpull_keys parsed = { 0 };
	int good;
	uint32_t i;

	parsed.region_count = kvpull_wire_get_u32(&reader);
	parsed.slot_count = kvpull_wire_get_u32(&reader);
	parsed.token[0] = kvpull_wire_get_u64(&reader);
	parsed.token[1] = kvpull_wire_get_u64(&reader);
	good = key_get(&reader, &parsed.entries);
	if (!parsed.region_count || parsed.region_count > KVPULL_REGIONS_MAX)
		return KVPULL_EPROTO;
	for (i = 0; i < parsed.region_count; i++)
		good &= key_get(&reader, &parsed.regions[i]);
	if (!good || !kvpull_wire_done(&reader) || !parsed.slot_count ||
	    parsed.entries.bytes !=
		    (uint64_t)parsed.slot_count *
			    sizeof(struct kvpull_revocation_entry))
		return KVPULL_EPROTO;
	*keys = parsed;
	return 0;
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

static int key_is_alike(const struct kvpull_key *one,
			const struct kvpull_key *other)
{
	return one->address == other->address && one->bytes == other->bytes;
}

int kvpull_keys_alike(const struct kvpull_keys *one,
		      const struct kvpull_keys *other)
{
	uint32_t i;

	if (one->region_count != other->region_count ||
	    one->slot_count != other->slot_count ||
	    one->token[0] != other->token[0] ||
	    one->token[1] != other->token[1] ||
	    !key_is_alike(&one->entries, &other->entries))
		return 0;
	for (i = 0; i < one->region_count; i++)
		if (!key_is_alike(&one->regions[i], &other->regions[i]))
			return 0;
	return 1;
}
