/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of fields.c as inline code: in a file that has the table's
 * rows, the compiler unrolls the loop over them into straight code, with a
 * third of the instructions. For messages that come in thousands.
 */
#ifndef KVPULL_BASE_FIELDS_INLINE_H
#define KVPULL_BASE_FIELDS_INLINE_H

#include <string.h>

#include "base/fields.h"
#include "base/ids.h"

#define KVPULL_FIELDS_INLINE static inline __attribute__((always_inline))
/* fields.c keeps the loops, since it knows no table. */
#ifndef KVPULL_FIELDS_UNROLL
#define KVPULL_FIELDS_UNROLL _Pragma("GCC unroll 32")
#endif

KVPULL_FIELDS_INLINE const void *member_of(const struct kvpull_field *field,
					   const void *message)
{
	return (const uint8_t *)message + field->offset;
}

KVPULL_FIELDS_INLINE uint32_t u32_at(const void *message, uint32_t offset)
{
	uint32_t value;

	memcpy(&value, (const uint8_t *)message + offset, sizeof(value));
	return value;
}

KVPULL_FIELDS_INLINE int is_number(const struct kvpull_field *field)
{
	return field->type <= KVPULL_FIELD_ZIGZAG;
}

KVPULL_FIELDS_INLINE int is_rows(const struct kvpull_field *field)
{
	return field->type >= KVPULL_FIELD_ONE &&
	       field->type <= KVPULL_FIELD_ROWS16;
}

KVPULL_FIELDS_INLINE uint32_t row_count(const struct kvpull_field *field,
					const void *message)
{
	return field->type == KVPULL_FIELD_ONE ?
		       1 :
		       u32_at(message, field->count_offset);
}

KVPULL_FIELDS_INLINE const uint8_t *rows_of(const struct kvpull_field *field,
					    const void *message)
{
	const void *rows = member_of(field, message);

	if (field->is_pointer)
		memcpy(&rows, member_of(field, message), sizeof(void *));
	return rows;
}

/* Is it a field of the first version, in this kind of message? */
KVPULL_FIELDS_INLINE int is_there(const struct kvpull_table *table,
				  const struct kvpull_field *field,
				  const void *message)
{
	return !field->kinds ||
	       (field->kinds >> (u32_at(message, table->kind_offset) & 31) & 1);
}

KVPULL_FIELDS_INLINE int is_later(const struct kvpull_field *field)
{
	return field->id != 0;
}

/* Later fields may stand anywhere among the others. */
KVPULL_FIELDS_INLINE int has_later(const struct kvpull_table *table)
{
	int has = 0;
	uint32_t i;

	KVPULL_FIELDS_UNROLL
	for (i = 0; i < table->field_count; i++)
		has |= is_later(&table->fields[i]);
	return has;
}

KVPULL_FIELDS_INLINE uint64_t number_of(const struct kvpull_field *field,
					const void *message)
{
	uint64_t wide;

	if (field->size != sizeof(wide))
		return u32_at(message, field->offset);
	memcpy(&wide, member_of(field, message), sizeof(wide));
	return wide;
}

/* NOLINTBEGIN(misc-no-recursion): as deep as our own tables nest, by two. */

/* ---- what is good ---- */

/* The number that min and max are about. */
KVPULL_FIELDS_INLINE uint64_t measure_of(const struct kvpull_field *field,
					 const void *message)
{
	const struct kvpull_ids *ids = member_of(field, message);

	if (is_number(field))
		return number_of(field, message);
	if (is_rows(field))
		return row_count(field, message);
	if (field->type == KVPULL_FIELD_TEXT)
		return strnlen(member_of(field, message), field->size);
	if (field->type == KVPULL_FIELD_BLOB)
		return u32_at(message, field->count_offset);
	return field->type == KVPULL_FIELD_IDS ? ids->count : field->size;
}

/* Largest value that both the wire and the member can hold. */
KVPULL_FIELDS_INLINE uint64_t room_of(const struct kvpull_field *field)
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

KVPULL_FIELDS_INLINE int field_is_good(const struct kvpull_field *field,
				       const void *message)
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

KVPULL_FIELDS_INLINE int
kvpull_fields_check_here(const struct kvpull_table *table, const void *message)
{
	uint32_t i;

	KVPULL_FIELDS_UNROLL
	for (i = 0; i < table->field_count; i++)
		if (is_there(table, &table->fields[i], message) &&
		    !field_is_good(&table->fields[i], message))
			return KVPULL_EINVAL;
	return !table->is_good || table->is_good(message) ? 0 : KVPULL_EINVAL;
}

/* ---- writing ---- */

KVPULL_FIELDS_INLINE void put_number(struct kvpull_wire_writer *writer,
				     const struct kvpull_field *field,
				     uint64_t value)
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

KVPULL_FIELDS_INLINE void put_rows(struct kvpull_wire_writer *writer,
				   const struct kvpull_field *field,
				   const void *message)
{
	const uint8_t *rows = rows_of(field, message);
	const uint32_t count = row_count(field, message);
	uint32_t i;

	if (field->type == KVPULL_FIELD_ROWS)
		kvpull_wire_put_u8(writer, (uint8_t)count);
	if (field->type == KVPULL_FIELD_ROWS16)
		kvpull_wire_put_u16(writer, (uint16_t)count);
	for (i = 0; i < count; i++)
		kvpull_fields_put_body(writer, field->rows,
				       rows + (size_t)i * field->size);
}

KVPULL_FIELDS_INLINE void put_field(struct kvpull_wire_writer *writer,
				    const struct kvpull_field *field,
				    const void *message)
{
	const void *member = member_of(field, message);

	if (is_number(field)) {
		put_number(writer, field, number_of(field, message));
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

KVPULL_FIELDS_INLINE void
kvpull_fields_put_body_here(struct kvpull_wire_writer *writer,
			    const struct kvpull_table *table,
			    const void *message)
{
	uint32_t i;

	KVPULL_FIELDS_UNROLL
	for (i = 0; i < table->field_count; i++)
		if (!is_later(&table->fields[i]) &&
		    is_there(table, &table->fields[i], message))
			put_field(writer, &table->fields[i], message);
}

/* ---- reading ---- */

KVPULL_FIELDS_INLINE void set_u32(void *message, uint32_t offset,
				  uint32_t value)
{
	memcpy((uint8_t *)message + offset, &value, sizeof(value));
}

KVPULL_FIELDS_INLINE void get_number(struct kvpull_wire_reader *reader,
				     const struct kvpull_field *field,
				     void *message)
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

KVPULL_FIELDS_INLINE void get_rows(struct kvpull_wire_reader *reader,
				   const struct kvpull_field *field,
				   void *message)
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

KVPULL_FIELDS_INLINE void get_bytes(struct kvpull_wire_reader *reader,
				    uint8_t *to, size_t byte_count)
{
	const uint8_t *bytes = kvpull_wire_get(reader, byte_count);

	if (bytes)
		memcpy(to, bytes, byte_count);
}

KVPULL_FIELDS_INLINE void get_field(struct kvpull_wire_reader *reader,
				    const struct kvpull_field *field,
				    void *message)
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

/* Sets the value that a message without this field means. */
KVPULL_FIELDS_INLINE void clear_field(const struct kvpull_field *field,
				      void *message)
{
	if (field->type == KVPULL_FIELD_BLOB ||
	    (is_rows(field) && field->type != KVPULL_FIELD_ONE))
		set_u32(message, field->count_offset, 0);
	else
		memset((uint8_t *)message + field->offset, 0, field->size);
}

KVPULL_FIELDS_INLINE void
kvpull_fields_get_body_here(struct kvpull_wire_reader *reader,
			    const struct kvpull_table *table, void *message)
{
	uint32_t i;

	KVPULL_FIELDS_UNROLL
	for (i = 0; i < table->field_count; i++) {
		const struct kvpull_field *field = &table->fields[i];

		if (is_later(field) || !is_there(table, field, message))
			clear_field(field, message);
		else
			get_field(reader, field, message);
	}
}

KVPULL_FIELDS_INLINE void
kvpull_fields_put_here(struct kvpull_wire_writer *writer,
		       const struct kvpull_table *table, uint32_t version,
		       const void *message)
{
	kvpull_fields_put_body_here(writer, table, message);
	if (has_later(table))
		kvpull_fields_put_extensions(writer, table, version, message);
}

/* As get(), of bytes that get() found good: bounds of values are not checked. */
KVPULL_FIELDS_INLINE int
kvpull_fields_get_again_here(struct kvpull_wire_reader *reader,
			     const struct kvpull_table *table, void *message,
			     char unknown[KVPULL_FIELD_NAME_BYTES_MAX])
{
	unknown[0] = '\0';
	kvpull_fields_get_body_here(reader, table, message);
	if (!reader->bad && reader->at < reader->byte_count)
		kvpull_fields_get_extensions(reader, table, message, unknown);
	if (reader->bad)
		return KVPULL_EPROTO;
	return unknown[0] ? KVPULL_EVERSION : 0;
}

KVPULL_FIELDS_INLINE int
kvpull_fields_get_here(struct kvpull_wire_reader *reader,
		       const struct kvpull_table *table, void *message,
		       char unknown[KVPULL_FIELD_NAME_BYTES_MAX])
{
	const int code =
		kvpull_fields_get_again_here(reader, table, message, unknown);

	if (code)
		return code;
	return kvpull_fields_check_here(table, message) ? KVPULL_EPROTO : 0;
}

/* NOLINTEND(misc-no-recursion) */

#endif /* KVPULL_BASE_FIELDS_INLINE_H */
