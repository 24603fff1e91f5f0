/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Little-endian encoding with bounds. A writer that ran out of room goes on
 * counting, so that one pass tells the bytes needed; a reader that ran out
 * returns zeros and stays bad: check once, at the end, before use.
 */
#ifndef KVPULL_BASE_WIRE_H
#define KVPULL_BASE_WIRE_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct kvpull_wire_writer {
	uint8_t *data;
	size_t capacity;
	size_t used; /* needed so far; > capacity: too small */
};

struct kvpull_wire_reader {
	const uint8_t *data;
	size_t byte_count;
	size_t at;
	int bad;
};

static inline void kvpull_wire_put(struct kvpull_wire_writer *writer,
				   const void *bytes, size_t byte_count)
{
	if (byte_count && writer->used <= writer->capacity &&
	    byte_count <= writer->capacity - writer->used)
		memcpy(writer->data + writer->used, bytes, byte_count);
	writer->used += byte_count;
}

static inline void kvpull_wire_put_u8(struct kvpull_wire_writer *writer,
				      uint8_t value)
{
	kvpull_wire_put(writer, &value, 1);
}

static inline void kvpull_wire_put_u16(struct kvpull_wire_writer *writer,
				       uint16_t value)
{
	const uint8_t bytes[2] = { (uint8_t)value, (uint8_t)(value >> 8) };

	kvpull_wire_put(writer, bytes, sizeof(bytes));
}

static inline void kvpull_wire_put_u32(struct kvpull_wire_writer *writer,
				       uint32_t value)
{
	const uint32_t bytes = htole32(value);

	kvpull_wire_put(writer, &bytes, sizeof(bytes));
}

static inline void kvpull_wire_put_u64(struct kvpull_wire_writer *writer,
				       uint64_t value)
{
	const uint64_t bytes = htole64(value);

	kvpull_wire_put(writer, &bytes, sizeof(bytes));
}

/* Seven bits a byte, low first; 1 to 10 bytes. */
static inline void kvpull_wire_put_varint(struct kvpull_wire_writer *writer,
					  uint64_t value)
{
	while (value >= 0x80) {
		kvpull_wire_put_u8(writer, (uint8_t)(value | 0x80));
		value >>= 7;
	}
	kvpull_wire_put_u8(writer, (uint8_t)value);
}

/* u16 length, then the bytes without a NUL; text_bytes < 65536. */
static inline void kvpull_wire_put_text(struct kvpull_wire_writer *writer,
					const char *text)
{
	const size_t text_bytes = strlen(text);

	kvpull_wire_put_u16(writer, (uint16_t)text_bytes);
	kvpull_wire_put(writer, text, text_bytes);
}

static inline int kvpull_wire_fits(const struct kvpull_wire_writer *writer)
{
	return writer->used <= writer->capacity;
}

/* A pointer to byte_count bytes inside the message, or NULL and bad. */
static inline const uint8_t *kvpull_wire_get(struct kvpull_wire_reader *reader,
					     size_t byte_count)
{
	const uint8_t *bytes;

	if (reader->bad || byte_count > reader->byte_count - reader->at) {
		reader->bad = 1;
		return NULL;
	}
	bytes = reader->data + reader->at;
	reader->at += byte_count;
	return bytes;
}

static inline uint8_t kvpull_wire_get_u8(struct kvpull_wire_reader *reader)
{
	const uint8_t *bytes = kvpull_wire_get(reader, 1);

	return bytes ? bytes[0] : 0;
}

static inline uint16_t kvpull_wire_get_u16(struct kvpull_wire_reader *reader)
{
	const uint8_t *bytes = kvpull_wire_get(reader, 2);

	return bytes ? (uint16_t)((uint32_t)bytes[0] | (uint32_t)bytes[1]
							       << 8) :
		       0;
}

static inline uint32_t kvpull_wire_get_u32(struct kvpull_wire_reader *reader)
{
	const uint8_t *bytes = kvpull_wire_get(reader, 4);

	return bytes ? (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 |
			       (uint32_t)bytes[2] << 16 |
			       (uint32_t)bytes[3] << 24 :
		       0;
}

static inline uint64_t kvpull_wire_get_u64(struct kvpull_wire_reader *reader)
{
	const uint64_t low = kvpull_wire_get_u32(reader);

	return low | (uint64_t)kvpull_wire_get_u32(reader) << 32;
}

static inline uint64_t kvpull_wire_get_varint(struct kvpull_wire_reader *reader)
{
	const size_t left = reader->bad ? 0 : reader->byte_count - reader->at;
	uint64_t value = 0;
	uint32_t at;

	/* Most numbers are small. */
	if (left && reader->data[reader->at] < 0x80)
		return reader->data[reader->at++];
	for (at = 0; at < 10 && at < left; at++) {
		const uint8_t byte = reader->data[reader->at + at];

		if (at == 9 && byte > 1)
			break;
		value |= (uint64_t)(byte & 0x7f) << (7 * at);
		if (!(byte & 0x80)) {
			reader->at += at + 1;
			return value;
		}
	}
	reader->bad = 1;
	return 0;
}

/* Into text[capacity], NUL-terminated; too long or with a NUL inside: bad. */
static inline void kvpull_wire_get_chars(struct kvpull_wire_reader *reader,
					 size_t text_bytes, char *text,
					 size_t capacity)
{
	const uint8_t *bytes = kvpull_wire_get(reader, text_bytes);

	text[0] = '\0';
	if (!bytes || text_bytes >= capacity ||
	    memchr(bytes, 0, text_bytes) != NULL) {
		reader->bad = 1;
		return;
	}
	memcpy(text, bytes, text_bytes);
	text[text_bytes] = '\0';
}

static inline void kvpull_wire_get_text(struct kvpull_wire_reader *reader,
					char *text, size_t capacity)
{
	kvpull_wire_get_chars(reader, kvpull_wire_get_u16(reader), text,
			      capacity);
}

/* All was read, and nothing was left over. */
static inline int kvpull_wire_done(const struct kvpull_wire_reader *reader)
{
	return !reader->bad && reader->at == reader->byte_count;
}

#endif /* KVPULL_BASE_WIRE_H */
