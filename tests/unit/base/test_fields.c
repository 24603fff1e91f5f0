/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a message grows: a version 2 that only this test knows, with one optional
 * and one required field more, beside the version 1 that the others know.
 */

#include <string.h>

#include "base/fields.h"
#include "plugin/bytes/handshake.h"
#include "tests/lib/unit.h"

struct row {
	uint32_t value;
};

struct message {
	uint32_t kind;
	uint32_t count;
	uint64_t wide;
	int32_t signed_one;
	uint32_t row_count;
	char text[8];
	struct row rows[3];
	uint32_t colour; /* version 2, optional */
	uint32_t shape;  /* version 2, required */
};

/* clang-format off */
static const struct kvpull_field row_fields[] = {
	KVPULL_FIELD_OF(U16, struct row, value, .max = 1000),
};
static const struct kvpull_table row_table =
	KVPULL_TABLE("row", row_fields, .is_good = NULL);

#define BODY                                                                   \
	KVPULL_FIELD_OF(U8, struct message, kind, .min = 1, .max = 3),         \
	KVPULL_FIELD_OF(VARINT, struct message, count, .kinds = 1u << 2),      \
	KVPULL_FIELD_OF(U64, struct message, wide, .min = 5),                  \
	KVPULL_FIELD_OF(ZIGZAG, struct message, signed_one, .min = 0),         \
	KVPULL_FIELD_OF(TEXT, struct message, text, .min = 1),                 \
	KVPULL_ROWS_OF(ROWS, struct message, rows, row_count, &row_table,      \
		       .min = 1, .max = 3)

static const struct kvpull_field fields_1[] = { BODY };
/* Rows of later versions stand where they belong, not at the end alone. */
static const struct kvpull_field fields_2[] = {
	KVPULL_FIELD_OF(U32, struct message, colour, .since = 2, .id = 1,
			.max = 7),
	KVPULL_FIELD_OF(U32, struct message, shape, .since = 2, .id = 2,
			.is_required = 1),
	BODY,
};
static const struct kvpull_field fields_optional[] = {
	BODY,
	KVPULL_FIELD_OF(U32, struct message, colour, .since = 2, .id = 1),
};
/* clang-format on */

#define TABLE(fields)                                                          \
	KVPULL_TABLE("message", fields,                                        \
		     .kind_offset = offsetof(struct message, kind))
static const struct kvpull_table table_1 = TABLE(fields_1);
static const struct kvpull_table table_2 = TABLE(fields_2);
static const struct kvpull_table table_optional = TABLE(fields_optional);

static struct message message;
static struct message got;
static uint8_t bytes[256];
static size_t byte_count;
static char unknown[KVPULL_FIELD_NAME_BYTES_MAX];

static int setup(void **state)
{
	(void)state;
	memset(&message, 0, sizeof(message));
	memset(&got, 0xa5, sizeof(got));
	message.kind = 2;
	message.count = 300;
	message.wide = UINT64_MAX;
	message.signed_one = INT32_MIN;
	memcpy(message.text, "hello", 6);
	message.row_count = 2;
	message.rows[0].value = 1000;
	message.rows[1].value = 1;
	message.colour = 3;
	message.shape = 9;
	return 0;
}

static void put(const struct kvpull_table *table, uint32_t version)
{
	struct kvpull_wire_writer writer = { bytes, sizeof(bytes), 0 };

	assert_int_equal(kvpull_fields_check(table, &message), 0);
	kvpull_fields_put(&writer, table, version, &message);
	assert_true(kvpull_wire_fits(&writer));
	byte_count = writer.used;
}

static void put_takes(const struct kvpull_table *table, uint32_t version,
		      size_t bytes_taken)
{
	put(table, version);
	assert_int_equal(byte_count, bytes_taken);
}

static int get(const struct kvpull_table *table)
{
	/* Beyond its end lies nothing that a reader may touch. */
	uint8_t copy[sizeof(bytes)];
	struct kvpull_wire_reader reader = { copy, byte_count, 0, 0 };

	memset(copy, 0xff, sizeof(copy));
	memcpy(copy, bytes, byte_count);
	return kvpull_fields_get(&reader, table, &got, unknown);
}

static void assert_body(void)
{
	assert_int_equal(got.kind, 2);
	assert_int_equal(got.count, 300);
	assert_true(got.wide == UINT64_MAX);
	assert_int_equal(got.signed_one, INT32_MIN);
	assert_string_equal(got.text, "hello");
	assert_int_equal(got.row_count, 2);
	assert_int_equal(got.rows[0].value, 1000);
	assert_int_equal(got.rows[1].value, 1);
}

/* The message of setup() is read by that table. */
static void comes_by(const struct kvpull_table *table)
{
	assert_int_equal(get(table), 0);
	assert_body();
}

#define TEST(name) UNIT_TEST_WITH(name, setup, NULL)

TEST(newer_optional_field_is_skipped)
{
	put(&table_optional, 2);
	comes_by(&table_1);
	comes_by(&table_optional);
	assert_int_equal(got.colour, 3);
}

TEST(newer_required_field_is_refused_by_its_name)
{
	put(&table_2, 2);
	assert_int_equal(get(&table_1), KVPULL_EVERSION);
	assert_string_equal(unknown, "shape");
	assert_int_equal(get(&table_2), 0);
	assert_string_equal(unknown, "");
	assert_body();
	assert_int_equal(got.colour, 3);
	assert_int_equal(got.shape, 9);
}

/* With wire_emit a newer build writes the bytes of the older one. */
TEST(older_version_is_written_byte_for_byte)
{
	uint8_t older[sizeof(bytes)];
	size_t older_bytes;

	put(&table_1, 1);
	older_bytes = byte_count;
	memcpy(older, bytes, byte_count);
	put_takes(&table_2, 1, older_bytes);
	assert_memory_equal(bytes, older, older_bytes);
	/* And the newer one reads it: what is not there is zero. */
	comes_by(&table_2);
	assert_int_equal(got.colour, 0);
	assert_int_equal(got.shape, 0);
}

TEST(every_cut_is_refused_or_ends_a_field)
{
	size_t whole;
	size_t body;

	put(&table_2, 1);
	body = byte_count;
	put(&table_2, 2);
	for (whole = byte_count, byte_count = 0; byte_count < whole;
	     byte_count++)
		assert_int_equal(get(&table_2),
				 byte_count == body || byte_count == body + 8 ?
					 0 :
					 KVPULL_EPROTO);
}

/* An extension's id, size and value as somebody else may write them. */
static int get_with(uint16_t tag, uint16_t value_bytes, const char *value,
		    size_t given)
{
	struct kvpull_wire_writer writer = { bytes, sizeof(bytes), 0 };

	kvpull_fields_put(&writer, &table_1, 1, &message);
	kvpull_wire_put_u16(&writer, tag);
	kvpull_wire_put_u16(&writer, value_bytes);
	kvpull_wire_put(&writer, value, given);
	byte_count = writer.used;
	return get(&table_2);
}

static void broken(uint16_t tag, uint16_t value_bytes, const char *value,
		   size_t given)
{
	assert_int_equal(get_with(tag, value_bytes, value, given),
			 KVPULL_EPROTO);
}

static void not_known(uint16_t tag, uint16_t value_bytes, const char *value,
		      size_t given, const char *name)
{
	assert_int_equal(get_with(tag, value_bytes, value, given),
			 KVPULL_EVERSION);
	assert_string_equal(unknown, name);
}

TEST(broken_extensions_are_refused)
{
	const uint16_t required = KVPULL_FIELD_REQUIRED;

	assert_int_equal(get_with(1, 4, "\7\0\0\0", 4), 0);
	assert_int_equal(got.colour, 7);
	/* Over its bound; too short, too long, beyond the end; no id. */
	broken(1, 4, "\10\0\0\0", 4);
	broken(1, 3, "\7\0\0", 3);
	broken(1, 5, "\7\0\0\0\0", 5);
	broken(1, 4, "\7\0\0", 3);
	broken(0, 0, "", 0);
	/* Twice; and out of order. */
	broken(1, 4, "\7\0\0\0\1\0\4\0\7\0\0\0", 12);
	broken(9, 0, "\1\0\4\0\7\0\0\0", 8);
	/* Names: unknown, none, without end, one that would break a line. */
	not_known(required | 7, 4, "\3new", 4, "new");
	broken(required | 7, 1, "\0", 1);
	broken(required | 7, 4, "\4new", 4);
	broken(required | 7, 4, "\3n\nw", 4);
	broken(required | 7, 0, "", 0);
	/* The known one by another name is another one. */
	not_known(required | 2, 10, "\5colorAAAA", 10, "color");
	/* A name with an end inside of it. */
	broken(required | 7, 5, "\4ne\0w", 5);
	/* Two unknown names: the first is told. */
	not_known(required | 7, 4, "\3one\x08\x80\4\0\3two", 12, "one");
}

/* A field that the other side requires, or does not, is not the one we know. */
TEST(extension_of_another_need_is_another_one)
{
	const uint16_t required = KVPULL_FIELD_REQUIRED;

	not_known(required | 1, 11, "\6colour\7\0\0\0", 11, "colour");
	assert_int_equal(got.colour, 0);
	assert_int_equal(get_with(2, 4, "\7\0\0\0", 4), 0);
	assert_int_equal(got.shape, 0);
	/* The one that we know. */
	assert_int_equal(get_with(required | 2, 10, "\5shape\7\0\0\0", 10), 0);
	assert_int_equal(got.shape, 7);
}

TEST(message_without_room_is_counted_and_not_written_behind_its_end)
{
	size_t capacity;
	size_t whole;

	put(&table_2, 2);
	whole = byte_count;
	for (capacity = 0; capacity < whole; capacity++) {
		uint8_t copy[sizeof(bytes)];
		struct kvpull_wire_writer writer = { copy, capacity, 0 };

		memset(copy, 0xee, sizeof(copy));
		kvpull_fields_put(&writer, &table_2, 2, &message);
		assert_int_equal(writer.used, whole);
		assert_false(kvpull_wire_fits(&writer));
		assert_int_equal(copy[capacity], 0xee);
	}
}

/* A later field, too, is of some kinds of message alone; zero is not written. */
TEST(later_field_is_written_for_its_kinds_and_where_it_is_not_zero)
{
	struct kvpull_field
		fields[sizeof(fields_optional) / sizeof(*fields_optional)];
	struct kvpull_table table = TABLE(fields);
	size_t without;

	memcpy(fields, fields_optional, sizeof(fields));
	put(&table_1, 1);
	without = byte_count;
	put_takes(&table, 1, without);
	put_takes(&table, 2, without + 8);
	message.colour = 0;
	put_takes(&table, 2, without);
	message.colour = 3u << 24; /* its last byte alone */
	put_takes(&table, 2, without + 8);
	fields[sizeof(fields) / sizeof(*fields) - 1].kinds = 1u << 3;
	put_takes(&table, 2, without);
}

struct parcel {
	uint32_t byte_count;
	uint32_t row_count;
	uint8_t blob[4];
	uint32_t behind_blob;
	struct row rows[2];
	uint32_t behind_rows;
};

/* clang-format off */
static const struct kvpull_field parcel_fields[] = {
	KVPULL_FIELD_OF(BLOB, struct parcel, blob,
			.count_offset = offsetof(struct parcel, byte_count)),
	KVPULL_ROWS_OF(ROWS, struct parcel, rows, row_count, &row_table,
		       .max = 2),
};
/* clang-format on */
static const struct kvpull_table parcel_table =
	KVPULL_TABLE("parcel", parcel_fields, .is_good = NULL);

/* A parcel of so many bytes and rows, all of which are there. */
static int parcel_get(uint16_t blob_bytes, uint8_t row_count,
		      struct parcel *parcel)
{
	struct kvpull_wire_writer writer = { bytes, sizeof(bytes), 0 };
	struct kvpull_wire_reader reader = { bytes, 0, 0, 0 };
	uint32_t i;

	kvpull_wire_put_u16(&writer, blob_bytes);
	for (i = 0; i < blob_bytes; i++)
		kvpull_wire_put_u8(&writer, 1);
	kvpull_wire_put_u8(&writer, row_count);
	for (i = 0; i < row_count; i++)
		kvpull_wire_put_u16(&writer, 1);
	assert_true(kvpull_wire_fits(&writer));
	reader.byte_count = writer.used;
	memset(parcel, 0xa5, sizeof(*parcel));
	return kvpull_fields_get(&reader, &parcel_table, parcel, unknown);
}

/* A refusal comes too late if bytes were written behind the place before. */
TEST(what_is_too_long_is_not_written_behind_its_place)
{
	struct parcel parcel;

	assert_int_equal(parcel_get(4, 2, &parcel), 0);
	assert_int_equal(parcel.byte_count, 4);
	assert_int_equal(parcel.row_count, 2);
	assert_int_equal(parcel_get(4, 3, &parcel), KVPULL_EPROTO);
	assert_int_equal(parcel.behind_rows, 0xa5a5a5a5);
	assert_int_equal(parcel_get(5, 2, &parcel), KVPULL_EPROTO);
	assert_int_equal(parcel.behind_blob, 0xa5a5a5a5);
}

#define REFUSED(change)                                                        \
	do {                                                                   \
		setup(state);                                                  \
		change;                                                        \
		assert_int_equal(kvpull_fields_check(&table_2, &message),      \
				 KVPULL_EINVAL);                               \
	} while (0)

TEST(writer_is_held_to_the_bounds_too)
{
	REFUSED(message.kind = 0);
	REFUSED(message.kind = 4);
	REFUSED(message.wide = 4);
	REFUSED(message.text[0] = '\0');
	REFUSED(message.text[2] = '\t');
	REFUSED(memset(message.text, 'a', sizeof(message.text)));
	REFUSED(message.row_count = 0);
	REFUSED(message.row_count = 4);
	REFUSED(message.rows[1].value = 1001);
	REFUSED(message.colour = 8);
}

/* A field that its kind does not have is not there, and reads as zero. */
TEST(kinds_have_fields_of_their_own)
{
	size_t with;

	put(&table_1, 1);
	with = byte_count;
	message.kind = 1;
	put_takes(&table_1, 1, with - 2);
	assert_int_equal(get(&table_1), 0);
	assert_int_equal(got.count, 0);
}

static size_t layout_of(const struct kvpull_table *table, uint32_t version,
			uint8_t *to)
{
	struct kvpull_wire_writer writer = { to, sizeof(bytes), 0 };

	kvpull_fields_layout(&writer, table, version);
	assert_true(kvpull_wire_fits(&writer));
	return writer.used;
}

TEST(layout_differs_with_the_version_alone)
{
	uint8_t one[sizeof(bytes)];
	uint8_t two[sizeof(bytes)];
	const size_t one_bytes = layout_of(&table_1, 1, one);

	assert_int_equal(layout_of(&table_2, 1, two), one_bytes);
	assert_memory_equal(one, two, one_bytes);
	assert_true(layout_of(&table_2, 2, two) > one_bytes);
	assert_true(kvpull_handshake_layout(1) != 0);
}
