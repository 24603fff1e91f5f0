/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept: a reader writes nothing past a member, a count is compared with its
 * bound before it ends a loop, and what is read passed the same check as what
 * is written. Extensions come once each and in the order of their ids, so a
 * message has one spelling.
 */
#include "base/fields.h"

#include <string.h>

#include "base/ids.h"

static const void *member_of(const struct kvpull_field *field,
			     const void *message)
{
	return (const uint8_t *)message + field->offset;
}

static uint32_t u32_at(const void *message, uint32_t offset)
{
	uint32_t value;

	memcpy(&value, (const uint8_t *)message + offset, sizeof(value));
	return value;
}

uint64_t kvpull_fields_number(const struct kvpull_field *field,
			      const void *message)
{
	uint64_t wide;

	if (field->size != sizeof(wide))
		return u32_at(message, field->offset);
	memcpy(&wide, member_of(field, message), sizeof(wide));
	return wide;
}

static int is_number(const struct kvpull_field *field)
{
	return field->type <= KVPULL_FIELD_ZIGZAG;
}

static int is_rows(const struct kvpull_field *field)
{
	return field->type >= KVPULL_FIELD_ONE &&
	       field->type <= KVPULL_FIELD_ROWS16;
}

static uint32_t row_count(const struct kvpull_field *field, const void *message)
{
	return field->type == KVPULL_FIELD_ONE ?
		       1 :
		       u32_at(message, field->count_offset);
}

static const uint8_t *rows_of(const struct kvpull_field *field,
			      const void *message)
{
	const void *rows = member_of(field, message);

	if (field->is_pointer)
		memcpy(&rows, member_of(field, message), sizeof(void *));
	return rows;
}

/* Is it a field of the first version, in this kind of message? */
static int is_there(const struct kvpull_table *table,
		    const struct kvpull_field *field, const void *message)
{
	return !field->kinds ||
	       (field->kinds >> (u32_at(message, table->kind_offset) & 31) & 1);
}

static int is_later(const struct kvpull_field *field)
{
	return field->id != 0;
}

/* ---- what is good ---- */

int kvpull_fields_text_is_good(const char *text, size_t capacity)
{
	size_t at;

	for (at = 0; at < capacity && text[at]; at++)
		if ((uint8_t)text[at] < 0x20 || text[at] == 0x7f)
			return 0;
	return at < capacity;
}

/* The number that min and max are about. */
static uint64_t measure_of(const struct kvpull_field *field,
			   const void *message)
{
	const struct kvpull_ids *ids = member_of(field, message);

	if (is_number(field))
		return kvpull_fields_number(field, message);
	if (is_rows(field))
		return row_count(field, message);
	if (field->type == KVPULL_FIELD_TEXT)
		return strnlen(member_of(field, message), field->size);
	if (field->type == KVPULL_FIELD_BLOB)
		return u32_at(message, field->count_offset);
	return field->type == KVPULL_FIELD_IDS ? ids->count : field->size;
}

/* What the wire, or the member, can hold of it. */
static uint64_t room_of(const struct kvpull_field *field)
{
	if (field->type == KVPULL_FIELD_BLOB)
		return field->size;
	if (field->type == KVPULL_FIELD_U8 || field->type == KVPULL_FIELD_ROWS)
		return UINT8_MAX;
	if (field->type == KVPULL_FIELD_U16 ||
	    field->type == KVPULL_FIELD_ROWS16)
		return UINT16_MAX;
	return UINT64_MAX;
}

/* NOLINTBEGIN(misc-no-recursion): as deep as our own tables nest, by two. */

static int field_is_good(const struct kvpull_field *field, const void *message)
{
	const uint64_t measure = measure_of(field, message);
	const uint8_t *rows;
	uint64_t i;

	if (measure < field->min || measure > room_of(field) ||
	    (field->max && measure > field->max))
		return 0;
	if (field->type == KVPULL_FIELD_TEXT &&
	    !kvpull_fields_text_is_good(member_of(field, message), field->size))
		return 0;
	if (is_rows(field)) {
		rows = rows_of(field, message);
		for (i = 0; i < measure; i++)
			if (kvpull_fields_check(field->rows,
						rows + i * field->size))
				return 0;
	}
	return !field->is_good || field->is_good(member_of(field, message));
}

int kvpull_fields_check(const struct kvpull_table *table, const void *message)
{
	uint32_t i;

	for (i = 0; i < table->field_count; i++)
		if (is_there(table, &table->fields[i], message) &&
		    !field_is_good(&table->fields[i], message))
			return KVPULL_EINVAL;
	return !table->is_good || table->is_good(message) ? 0 : KVPULL_EINVAL;
}

/* ---- writing ---- */

static void put_body(struct kvpull_wire_writer *writer,
		     const struct kvpull_table *table, const void *message);

static void put_number(struct kvpull_wire_writer *writer,
		       const struct kvpull_field *field, uint64_t value)
{
	const int64_t number = (int32_t)value;

	switch (field->type) {
	case KVPULL_FIELD_U8:
		kvpull_wire_put_u8(writer, (uint8_t)value);
		break;
	case KVPULL_FIELD_U16:
		kvpull_wire_put_u16(writer, (uint16_t)value);
		break;
	case KVPULL_FIELD_U32:
		kvpull_wire_put_u32(writer, (uint32_t)value);
		break;
	case KVPULL_FIELD_U64:
		kvpull_wire_put_u64(writer, value);
		break;
	case KVPULL_FIELD_ZIGZAG:
		value = (uint64_t)(number < 0 ? -2 * number - 1 : 2 * number);
		kvpull_wire_put_varint(writer, value);
		break;
	default:
		kvpull_wire_put_varint(writer, value);
	}
}

static void put_rows(struct kvpull_wire_writer *writer,
		     const struct kvpull_field *field, const void *message)
{
	const uint8_t *rows = rows_of(field, message);
	const uint32_t count = row_count(field, message);
	uint32_t i;

	if (field->type == KVPULL_FIELD_ROWS)
		kvpull_wire_put_u8(writer, (uint8_t)count);
	if (field->type == KVPULL_FIELD_ROWS16)
		kvpull_wire_put_u16(writer, (uint16_t)count);
	for (i = 0; i < count; i++)
		put_body(writer, field->rows, rows + (size_t)i * field->size);
}

static void put_field(struct kvpull_wire_writer *writer,
		      const struct kvpull_field *field, const void *message)
{
	const void *member = member_of(field, message);

	if (is_number(field)) {
		put_number(writer, field, kvpull_fields_number(field, message));
	} else if (is_rows(field)) {
		put_rows(writer, field, message);
	} else if (field->type == KVPULL_FIELD_BYTES) {
		kvpull_wire_put(writer, member, field->size);
	} else if (field->type == KVPULL_FIELD_TEXT) {
		kvpull_wire_put_text(writer, member);
	} else if (field->type == KVPULL_FIELD_BLOB) {
		const uint32_t count = u32_at(message, field->count_offset);

		kvpull_wire_put_u16(writer, (uint16_t)count);
		kvpull_wire_put(writer, member, count);
	} else {
		kvpull_ids_put(writer, member);
	}
}

static void put_body(struct kvpull_wire_writer *writer,
		     const struct kvpull_table *table, const void *message)
{
	uint32_t i;

	for (i = 0; i < table->field_count; i++)
		if (!is_later(&table->fields[i]) &&
		    is_there(table, &table->fields[i], message))
			put_field(writer, &table->fields[i], message);
}

static void put_extension(struct kvpull_wire_writer *writer,
			  const struct kvpull_field *field, const void *message)
{
	const size_t name_bytes = strlen(field->name);
	struct kvpull_wire_writer patch = *writer;

	kvpull_wire_put_u16(
		writer,
		(uint16_t)(field->id |
			   (field->is_required ? KVPULL_FIELD_REQUIRED : 0u)));
	kvpull_wire_put_u16(writer, 0);
	patch.used = writer->used;
	if (field->is_required) {
		kvpull_wire_put_u8(writer, (uint8_t)name_bytes);
		kvpull_wire_put(writer, field->name, name_bytes);
	}
	put_field(writer, field, message);
	if (!kvpull_wire_fits(writer))
		return;
	patch.used -= 2;
	kvpull_wire_put_u16(&patch, (uint16_t)(writer->used - patch.used - 2));
}

static int is_zero(const struct kvpull_field *field, const void *message)
{
	const uint8_t *member = (const uint8_t *)message + field->offset;
	uint32_t at = 0;

	while (at < field->size && !member[at])
		at++;
	return at == field->size;
}

void kvpull_fields_put(struct kvpull_wire_writer *writer,
		       const struct kvpull_table *table, uint32_t version,
		       const void *message)
{
	uint32_t i;

	put_body(writer, table, message);
	for (i = 0; i < table->field_count; i++)
		if (is_later(&table->fields[i]) &&
		    table->fields[i].since <= version &&
		    is_there(table, &table->fields[i], message) &&
		    (table->fields[i].is_required ||
		     !is_zero(&table->fields[i], message)))
			put_extension(writer, &table->fields[i], message);
}

/* ---- reading ---- */

static void set_u32(void *message, uint32_t offset, uint32_t value)
{
	memcpy((uint8_t *)message + offset, &value, sizeof(value));
}

static void get_number(struct kvpull_wire_reader *reader,
		       const struct kvpull_field *field, void *message)
{
	uint64_t value;

	switch (field->type) {
	case KVPULL_FIELD_U8:
		value = kvpull_wire_get_u8(reader);
		break;
	case KVPULL_FIELD_U16:
		value = kvpull_wire_get_u16(reader);
		break;
	case KVPULL_FIELD_U32:
		value = kvpull_wire_get_u32(reader);
		break;
	case KVPULL_FIELD_U64:
		value = kvpull_wire_get_u64(reader);
		break;
	default:
		value = kvpull_wire_get_varint(reader);
	}
	if (field->size != sizeof(value) && value > UINT32_MAX) {
		reader->bad = 1;
		value = 0;
	}
	if (field->type == KVPULL_FIELD_ZIGZAG)
		value = (value >> 1) ^ (0 - (value & 1));
	if (field->size == sizeof(value))
		memcpy((uint8_t *)message + field->offset, &value,
		       sizeof(value));
	else
		set_u32(message, field->offset, (uint32_t)value);
}

static void get_rows(struct kvpull_wire_reader *reader,
		     const struct kvpull_field *field, void *message)
{
	uint8_t *const member = (uint8_t *)message + field->offset;
	uint8_t *rows = member;
	uint32_t count = 1;
	uint32_t i;

	if (field->is_pointer)
		/* cppcheck-suppress pointerSize ; the member is a pointer */
		memcpy(&rows, member, sizeof(void *));
	if (field->type == KVPULL_FIELD_ROWS)
		count = kvpull_wire_get_u8(reader);
	if (field->type == KVPULL_FIELD_ROWS16)
		count = kvpull_wire_get_u16(reader);
	if (field->max && count > field->max) {
		reader->bad = 1;
		count = 0;
	}
	if (field->type != KVPULL_FIELD_ONE)
		set_u32(message, field->count_offset, count);
	for (i = 0; i < count && !reader->bad; i++)
		kvpull_fields_get_body(reader, field->rows,
				       rows + (size_t)i * field->size);
}

static void get_bytes(struct kvpull_wire_reader *reader, uint8_t *to,
		      size_t byte_count)
{
	const uint8_t *bytes = kvpull_wire_get(reader, byte_count);

	if (bytes)
		memcpy(to, bytes, byte_count);
}

static void get_field(struct kvpull_wire_reader *reader,
		      const struct kvpull_field *field, void *message)
{
	void *member = (uint8_t *)message + field->offset;

	if (is_number(field)) {
		get_number(reader, field, message);
	} else if (is_rows(field)) {
		get_rows(reader, field, message);
	} else if (field->type == KVPULL_FIELD_BYTES) {
		get_bytes(reader, member, field->size);
	} else if (field->type == KVPULL_FIELD_TEXT) {
		kvpull_wire_get_text(reader, member, field->size);
	} else if (field->type == KVPULL_FIELD_BLOB) {
		const uint32_t count = kvpull_wire_get_u16(reader);

		if (count > field->size)
			reader->bad = 1;
		get_bytes(reader, member, count);
		set_u32(message, field->count_offset, count);
	} else {
		kvpull_ids_get(reader, (uint32_t)field->max, member);
	}
}

/* What a message without it says. */
static void clear_field(const struct kvpull_field *field, void *message)
{
	if (field->type == KVPULL_FIELD_BLOB ||
	    (is_rows(field) && field->type != KVPULL_FIELD_ONE))
		set_u32(message, field->count_offset, 0);
	else
		memset((uint8_t *)message + field->offset, 0, field->size);
}

void kvpull_fields_get_body(struct kvpull_wire_reader *reader,
			    const struct kvpull_table *table, void *message)
{
	uint32_t i;

	for (i = 0; i < table->field_count && !reader->bad; i++) {
		const struct kvpull_field *field = &table->fields[i];

		if (is_later(field) || !is_there(table, field, message))
			clear_field(field, message);
		else
			get_field(reader, field, message);
	}
}

static const struct kvpull_field *field_of(const struct kvpull_table *table,
					   uint32_t id)
{
	uint32_t i;

	for (i = 0; i < table->field_count; i++)
		if (is_later(&table->fields[i]) && table->fields[i].id == id)
			return &table->fields[i];
	return NULL;
}

/* The name of a required field; not one that could break a log line. */
static void get_name(struct kvpull_wire_reader *reader,
		     char name[KVPULL_FIELD_NAME_BYTES_MAX])
{
	const uint8_t name_bytes = kvpull_wire_get_u8(reader);
	const uint8_t *bytes = kvpull_wire_get(reader, name_bytes);

	name[0] = '\0';
	if (!bytes || name_bytes >= KVPULL_FIELD_NAME_BYTES_MAX ||
	    memchr(bytes, 0, name_bytes)) {
		reader->bad = 1;
		return;
	}
	memcpy(name, bytes, name_bytes);
	name[name_bytes] = '\0';
	if (!name_bytes ||
	    !kvpull_fields_text_is_good(name, KVPULL_FIELD_NAME_BYTES_MAX))
		reader->bad = 1;
}

/* One extension; unknown is set where it is required and not known. */
static void get_extension(struct kvpull_wire_reader *reader,
			  const struct kvpull_table *table, uint32_t tag,
			  void *message,
			  char unknown[KVPULL_FIELD_NAME_BYTES_MAX])
{
	const struct kvpull_field *field =
		field_of(table, tag & ~KVPULL_FIELD_REQUIRED);
	const int is_required = tag & KVPULL_FIELD_REQUIRED ? 1 : 0;
	const uint32_t byte_count = kvpull_wire_get_u16(reader);
	const uint8_t *bytes = kvpull_wire_get(reader, byte_count);
	char name[KVPULL_FIELD_NAME_BYTES_MAX] = "";
	struct kvpull_wire_reader value = { bytes, bytes ? byte_count : 0, 0,
					    bytes ? 0 : 1 };

	if (is_required)
		get_name(&value, name);
	if (field && (is_required != field->is_required ||
		      (is_required && strcmp(name, field->name) != 0)))
		field = NULL;
	if (field) {
		get_field(&value, field, message);
		if (!kvpull_wire_done(&value))
			reader->bad = 1;
	} else if (value.bad) {
		reader->bad = 1;
	} else if (is_required && !unknown[0]) {
		memcpy(unknown, name, sizeof(name));
	}
}

int kvpull_fields_get_again(struct kvpull_wire_reader *reader,
			    const struct kvpull_table *table, void *message,
			    char unknown[KVPULL_FIELD_NAME_BYTES_MAX])
{
	uint32_t last = 0;

	unknown[0] = '\0';
	kvpull_fields_get_body(reader, table, message);
	while (!reader->bad && reader->at < reader->byte_count) {
		const uint32_t tag = kvpull_wire_get_u16(reader);
		const uint32_t id = tag & ~KVPULL_FIELD_REQUIRED;

		if (id <= last)
			reader->bad = 1;
		last = id;
		if (!reader->bad)
			get_extension(reader, table, tag, message, unknown);
	}
	if (reader->bad)
		return KVPULL_EPROTO;
	return unknown[0] ? KVPULL_EVERSION : 0;
}

int kvpull_fields_get(struct kvpull_wire_reader *reader,
		      const struct kvpull_table *table, void *message,
		      char unknown[KVPULL_FIELD_NAME_BYTES_MAX])
{
	const int code =
		kvpull_fields_get_again(reader, table, message, unknown);

	if (code)
		return code;
	return kvpull_fields_check(table, message) ? KVPULL_EPROTO : 0;
}

void kvpull_fields_layout(struct kvpull_wire_writer *writer,
			  const struct kvpull_table *table, uint32_t version)
{
	uint32_t i;

	kvpull_wire_put_text(writer, table->name);
	for (i = 0; i < table->field_count; i++) {
		const struct kvpull_field *field = &table->fields[i];

		/* What is optional is skipped by those who lack it. */
		if (field->since > version ||
		    (is_later(field) && !field->is_required))
			continue;
		kvpull_wire_put_text(writer, field->name);
		kvpull_wire_put_u8(writer, (uint8_t)field->type);
		kvpull_wire_put_u8(writer, field->id);
		kvpull_wire_put_u8(writer, field->is_required);
		kvpull_wire_put_u32(writer, field->kinds);
		if (field->type == KVPULL_FIELD_BYTES)
			kvpull_wire_put_u32(writer, field->size);
		if (field->rows)
			kvpull_fields_layout(writer, field->rows, version);
	}
}

/* NOLINTEND(misc-no-recursion) */
