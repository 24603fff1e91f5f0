/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages as tables: one row a field drives writing, reading, bounds, the page
 * of messages and the digest of the layout. Pure.
 *
 * A message is its fields of version 1 in the order of the table, which never
 * changes again, and then extensions: fields that later versions brought, in
 * the order of their ids, each
 *
 *   u16 id, with the highest bit if it is required · u16 bytes · value
 *
 * where the value of a required one begins with u8 bytes and its name. Who does
 * not know an optional field skips it; who does not know a required one refuses
 * the message, by that name. A field that is not there reads as zero, and so an
 * optional one of zeros is not written. Rows of an array have no extensions.
 *
 * Numbers are little-endian. All that is read is hostile: nothing is written
 * past a member, and a message is good only if every bound of its table holds.
 */
#ifndef KVPULL_BASE_FIELDS_H
#define KVPULL_BASE_FIELDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "base/wire.h"

#define KVPULL_WIRE_VERSION 1u          /* the newest that tables know */
#define KVPULL_FIELD_NAME_BYTES_MAX 40u /* with NUL */
#define KVPULL_FIELD_REQUIRED 0x8000u

enum kvpull_field_type {
	KVPULL_FIELD_U8 = 1, /* numbers; the member has 4 or 8 bytes */
	KVPULL_FIELD_U16,
	KVPULL_FIELD_U32,
	KVPULL_FIELD_U64,
	KVPULL_FIELD_VARINT,
	KVPULL_FIELD_ZIGZAG, /* int32_t, as varint */
	KVPULL_FIELD_BYTES,  /* as many as the member has */
	KVPULL_FIELD_TEXT,   /* u16 bytes, then they: no control characters */
	KVPULL_FIELD_BLOB,   /* u16 bytes, then they */
	KVPULL_FIELD_ONE,    /* a struct: the fields of `rows` */
	KVPULL_FIELD_ROWS,   /* u8 rows, each the fields of `rows` */
	KVPULL_FIELD_ROWS16, /* u16 rows */
	KVPULL_FIELD_IDS     /* struct kvpull_ids: base/ids.h */
};

struct kvpull_table;

struct kvpull_field {
	const char *name;
	enum kvpull_field_type type;
	uint8_t since;       /* version that brought it; 0: the first */
	uint8_t is_required; /* of later versions */
	uint8_t id;          /* of an extension, else 0; rising in the table */
	uint8_t is_pointer;  /* ROWS: the member points to them */
	uint32_t kinds;      /* bit a kind of message that has it; 0: all */
	uint32_t offset;
	uint32_t size;         /* of the member; ROWS: of a row */
	uint32_t count_offset; /* BLOB, ROWS: of the uint32_t that counts it */
	uint64_t min; /* number, bytes of text or blob, count of rows, ids */
	uint64_t max; /* 0: what the member can hold */
	const struct kvpull_table *rows;
	int (*is_good)(const void *member); /* what min and max cannot say */
};

struct kvpull_table {
	const char *name;
	const struct kvpull_field *fields;
	uint32_t field_count;
	uint32_t kind_offset; /* of the uint32_t that `kinds` looks at */
	/* Checks that the bounds of single fields cannot express. */
	int (*is_good)(const void *message);
};

/* clang-format off */
#define KVPULL_FIELD_OF(type_, struct_, member, ...) \
	{ .name = #member, .type = KVPULL_FIELD_##type_, \
	  .offset = offsetof(struct_, member), \
	  .size = sizeof(((struct_ *)NULL)->member), __VA_ARGS__ }
#define KVPULL_ROWS_OF(type_, struct_, member, count, rows_, ...) \
	{ .name = #member, .type = KVPULL_FIELD_##type_, \
	  .offset = offsetof(struct_, member), \
	  .size = sizeof(((struct_ *)NULL)->member[0]), \
	  .count_offset = offsetof(struct_, count), .rows = (rows_), \
	  __VA_ARGS__ }
#define KVPULL_TABLE(name_, fields_, ...) \
	{ .name = (name_), .fields = (fields_), \
	  .field_count = sizeof(fields_) / sizeof((fields_)[0]), __VA_ARGS__ }
/* clang-format on */

/* 0, or KVPULL_EINVAL: what no reader would take. */
int KVPULL_MUST_CHECK kvpull_fields_check(const struct kvpull_table *table,
					  const void *message);

/* The message was checked. version: no field of a later one is written. */
void kvpull_fields_put(struct kvpull_wire_writer *writer,
		       const struct kvpull_table *table, uint32_t version,
		       const void *message);

/*
 * Read up to the reader's end. unknown: the name where one is required and not
 * known, else empty.
 *
 * Return: 0; KVPULL_EPROTO; KVPULL_EVERSION (see unknown). On error what
 * message holds must not be used.
 */
int KVPULL_MUST_CHECK
kvpull_fields_get(struct kvpull_wire_reader *reader,
		  const struct kvpull_table *table, void *message,
		  char unknown[KVPULL_FIELD_NAME_BYTES_MAX]);

/* The fields of version 1 alone; the reader is bad where they are. */
void kvpull_fields_put_body(struct kvpull_wire_writer *writer,
			    const struct kvpull_table *table,
			    const void *message);
void kvpull_fields_get_body(struct kvpull_wire_reader *reader,
			    const struct kvpull_table *table, void *message);

/* And those of later versions, which come behind them. */
void kvpull_fields_put_extensions(struct kvpull_wire_writer *writer,
				  const struct kvpull_table *table,
				  uint32_t version, const void *message);
void kvpull_fields_get_extensions(struct kvpull_wire_reader *reader,
				  const struct kvpull_table *table,
				  void *message,
				  char unknown[KVPULL_FIELD_NAME_BYTES_MAX]);

/* The first field that differs; numbers as their texts. */
struct kvpull_fields_difference {
	char name[64];
	char ours[KVPULL_TEXT_BYTES_MAX];
	char theirs[KVPULL_TEXT_BYTES_MAX];
};

/* Numbers, texts and rows of both are compared. 0: they are equal; else 1. */
int kvpull_fields_differ(const struct kvpull_table *table, const void *ours,
			 const void *theirs,
			 struct kvpull_fields_difference *difference);

/*
 * Writes the parts of a table on which two builds must agree to understand each
 * other at a version. Their digest is the layout that a hello shows.
 */
void kvpull_fields_layout(struct kvpull_wire_writer *writer,
			  const struct kvpull_table *table, uint32_t version);

/* The member of a field that is a number. */
uint64_t kvpull_fields_number(const struct kvpull_field *field,
			      const void *message);

/* 1: it ends within its capacity, and no byte could break a log line. */
int kvpull_fields_text_is_good(const char *text, size_t capacity);

#endif /* KVPULL_BASE_FIELDS_H */
