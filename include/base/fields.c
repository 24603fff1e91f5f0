/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept: a reader writes nothing past a member, a count is compared with its
 * bound before it ends a loop, and what is read passed the same check as what
 * is written. Extensions come once each and in the order of their ids, so a
 * message has one spelling.
 */
#include "base/fields.h"

#define KVPULL_FIELDS_UNROLL

#include <string.h>

#include "base/ids.h"

#include "base/fields_inline.h"

/*
 * The kinds of message that a layout's digest tells. A kind that comes later is
 * not told, so that a build that has it and one that has not still agree.
 */
#define LAYOUT_KINDS UINT32_C(0x7e)

uint64_t kvpull_fields_number(const struct kvpull_field *field,
			      const void *message)
{
	return number_of(field, message);
}

int kvpull_fields_text_is_good(const char *text, size_t capacity)
{
	size_t at;

	for (at = 0; at < capacity && text[at]; at++)
		if ((uint8_t)text[at] < 0x20 || text[at] == 0x7f)
			return 0;
	return at < capacity;
}

/* NOLINTBEGIN(misc-no-recursion): as deep as our own tables nest, by two. */

int kvpull_fields_check(const struct kvpull_table *table, const void *message)
{
	return kvpull_fields_check_here(table, message);
}

void kvpull_fields_put_body(struct kvpull_wire_writer *writer,
			    const struct kvpull_table *table,
			    const void *message)
{
	kvpull_fields_put_body_here(writer, table, message);
}

void kvpull_fields_get_body(struct kvpull_wire_reader *reader,
			    const struct kvpull_table *table, void *message)
{
	kvpull_fields_get_body_here(reader, table, message);
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

void kvpull_fields_put_extensions(struct kvpull_wire_writer *writer,
				  const struct kvpull_table *table,
				  uint32_t version, const void *message)
{
	uint32_t i;

	for (i = 0; i < table->field_count; i++)
		if (is_later(&table->fields[i]) &&
		    table->fields[i].since <= version &&
		    is_there(table, &table->fields[i], message) &&
		    (table->fields[i].is_required ||
		     !is_zero(&table->fields[i], message)))
			put_extension(writer, &table->fields[i], message);
}

void kvpull_fields_put(struct kvpull_wire_writer *writer,
		       const struct kvpull_table *table, uint32_t version,
		       const void *message)
{
	kvpull_fields_put_here(writer, table, version, message);
}

/* ---- reading ---- */

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
	kvpull_wire_get_chars(reader, kvpull_wire_get_u8(reader), name,
			      KVPULL_FIELD_NAME_BYTES_MAX);
	if (!name[0] ||
	    !kvpull_fields_text_is_good(name, KVPULL_FIELD_NAME_BYTES_MAX))
		reader->bad = 1;
}

/*
 * Reads one extension. Sets unknown if the extension is required and not known.
 */
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

void kvpull_fields_get_extensions(struct kvpull_wire_reader *reader,
				  const struct kvpull_table *table,
				  void *message,
				  char unknown[KVPULL_FIELD_NAME_BYTES_MAX])
{
	uint32_t last = 0;

	while (!reader->bad && reader->at < reader->byte_count) {
		const uint32_t tag = kvpull_wire_get_u16(reader);
		const uint32_t id = tag & ~KVPULL_FIELD_REQUIRED;

		if (id <= last)
			reader->bad = 1;
		last = id;
		if (!reader->bad)
			get_extension(reader, table, tag, message, unknown);
	}
}

int kvpull_fields_get(struct kvpull_wire_reader *reader,
		      const struct kvpull_table *table, void *message,
		      char unknown[KVPULL_FIELD_NAME_BYTES_MAX])
{
	return kvpull_fields_get_here(reader, table, message, unknown);
}

void kvpull_fields_layout(struct kvpull_wire_writer *writer,
			  const struct kvpull_table *table, uint32_t version)
{
	uint32_t i;

	kvpull_wire_put_text(writer, table->name);
	for (i = 0; i < table->field_count; i++) {
		const struct kvpull_field *field = &table->fields[i];

		/*
		 * Builds that lack an optional field skip it, so it is no part
		 * of the layout.
		 */
		if (field->since > version ||
		    (is_later(field) && !field->is_required))
			continue;
		kvpull_wire_put_text(writer, field->name);
		kvpull_wire_put_u8(writer, (uint8_t)field->type);
		kvpull_wire_put_u8(writer, field->id);
		kvpull_wire_put_u8(writer, field->is_required);
		kvpull_wire_put_u32(writer, field->kinds & LAYOUT_KINDS);
		if (field->type == KVPULL_FIELD_BYTES)
			kvpull_wire_put_u32(writer, field->size);
		if (field->rows)
			kvpull_fields_layout(writer, field->rows, version);
	}
}

/* NOLINTEND(misc-no-recursion) */
