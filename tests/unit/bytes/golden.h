/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of golden bytes (tests/golden/): messages with their values as text and
 * their bytes as hex. What a value's name means is said by the test's own list
 * of members, not by the code under test.
 *
 *   message NAME VERSION        begins one
 *   NAME VALUE                  a member; "rows[2].name VALUE" one of a row
 *   0010: 00 01 ...             its bytes, 16 a line
 *
 * With TEST_GOLDEN_SHOW set a test shows what its messages are now, and checks
 * nothing: that is how a file gets the bytes of a new message.
 */
#ifndef KVPULL_TESTS_UNIT_BYTES_GOLDEN
#define KVPULL_TESTS_UNIT_BYTES_GOLDEN

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/unit.h"

/* NOLINTBEGIN(bugprone-macro-parentheses): types and members. */
#define GOLDEN_BYTES_MAX 8192u
#define GOLDEN_TEXT_MAX 32768u

enum golden_kind {
	GOLDEN_U32,
	GOLDEN_I32,
	GOLDEN_U64,
	GOLDEN_TEXT,
	GOLDEN_BYTES, /* `bytes` of them, or as many as count says */
	GOLDEN_IDS,   /* uint32_t[], as many as count says */
	GOLDEN_ROWS   /* as many as count says, of members each */
};

struct golden_member {
	const char *name;
	enum golden_kind kind;
	size_t offset;
	size_t bytes; /* of the member; ROWS: of one row */
	size_t count; /* offset of the uint32_t that counts it, not 0; 0: none */
	const struct golden_member *members; /* ROWS; ends with no name */
};

#define GOLDEN(kind_, type, field)                                             \
	{                                                                      \
		.name = #field, .kind = kind_,                                 \
		.offset = offsetof(type, field),                               \
		.bytes = sizeof(((type *)NULL)->field),                        \
	}

#define GOLDEN_END                                                             \
	{                                                                      \
		.name = NULL                                                   \
	}
/* Members that a sealed message is made with. */
#define GOLDEN_KEY(type)                                                       \
	{                                                                      \
		.name = "key", .kind = GOLDEN_BYTES,                           \
		.offset = offsetof(type, key),                                 \
		.bytes = sizeof(((type *)NULL)->key),                          \
		.count = offsetof(type, key_bytes),                            \
	}
#define GOLDEN_ROWS_AT(type, field, count_, members_)                          \
	{                                                                      \
		.name = #field, .kind = GOLDEN_ROWS,                           \
		.offset = offsetof(type, field),                               \
		.bytes = sizeof(((type *)NULL)->field[0]),                     \
		.count = offsetof(type, count_), .members = members_,          \
	}
#define GOLDEN_ROWS_OF(type, in, field, count_, members_)                      \
	{                                                                      \
		.name = #field, .kind = GOLDEN_ROWS,                           \
		.offset = offsetof(type, in.field),                            \
		.bytes = sizeof(((type *)NULL)->in.field[0]),                  \
		.count = offsetof(type, count_), .members = members_,          \
	}
#define GOLDEN_IDS_OF(type, field, count_)                                     \
	{                                                                      \
		.name = #field, .kind = GOLDEN_IDS,                            \
		.offset = offsetof(type, field),                               \
		.count = offsetof(type, count_),                               \
	}
/* A member of a member: named by itself. */
#define GOLDEN_OF(kind_, type, in, field)                                      \
	{                                                                      \
		.name = #field, .kind = kind_,                                 \
		.offset = offsetof(type, in.field),                            \
		.bytes = sizeof(((type *)NULL)->in.field),                     \
	}

/* A kind of message: how its values become bytes, and back. */
struct golden_message {
	const char *name;
	const struct golden_member *members;
	void *values;
	size_t values_bytes;
	size_t (*encode)(uint8_t *bytes);
	int (*decode)(const uint8_t *bytes, size_t byte_count);
	uint32_t version;
	size_t kept_bytes; /* at the start of values: a decoder needs them */
};

#define GOLDEN_MESSAGE(name, values, version)                                  \
	{                                                                      \
#name, name##_members, &(values), sizeof(values),              \
			name##_encode, name##_decode, version, 0               \
	}
#define GOLDEN_SEALED(name, values, version, kept)                             \
	{                                                                      \
#name, name##_members, &(values), sizeof(values),              \
			name##_encode, name##_decode, version, kept            \
	}

/* A message of a file. */
struct golden {
	char name[64];
	uint32_t version;
	size_t byte_count;
	uint8_t bytes[GOLDEN_BYTES_MAX];
	char values[GOLDEN_TEXT_MAX]; /* its lines, as they stand there */
	uint32_t line;                /* of the file, for who looks for it */
};

struct golden_text {
	char *text; /* [GOLDEN_TEXT_MAX] */
	size_t used;
};

/* Each message of a file; there are so many. messages: ends with no name. */
void golden_check_file(const char *name, uint32_t count,
		       const struct golden_message *messages);

/* NOLINTEND(bugprone-macro-parentheses) */

#endif /* KVPULL_TESTS_UNIT_BYTES_GOLDEN */
