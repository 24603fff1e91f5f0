/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message of a version that nobody has yet: the fields of ours, and behind
 * them a required one. Who does not know it must refuse, and name it.
 */
#ifndef KVPULL_TESTS_LIB_NEWER_H
#define KVPULL_TESTS_LIB_NEWER_H

#include <string.h>

#include <sodium.h>

#include "plugin/bytes/base64.h"
#include "plugin/bytes/handshake.h"
#include "plugin/bytes/ticket.h"
#include "tests/lib/unit.h"

#define NEWER_VERSION 9u
#define NEWER_FIELD "tint"
#define NEWER_FIELDS_MAX 32u
#define NEWER_TICKET_BYTES_MAX 4096u

/* @table with that field; @fields is where its rows lie. */
static inline struct kvpull_table
newer_table(const struct kvpull_table *table,
	    struct kvpull_field fields[NEWER_FIELDS_MAX])
{
	struct kvpull_table newer = *table;

	assert_true(table->field_count < NEWER_FIELDS_MAX);
	memcpy(fields, table->fields, table->field_count * sizeof(*fields));
	/* The new field's value lies where the first field's does. */
	fields[newer.field_count++] = (struct kvpull_field){
		.name = NEWER_FIELD,
		.type = KVPULL_FIELD_U32,
		.since = NEWER_VERSION,
		.is_required = 1,
		.id = 77,
		.size = sizeof(uint32_t),
	};
	newer.fields = fields;
	return newer;
}

/* Encode @message, a struct of @kind's table, without a key: its bytes, or 0. */
static inline size_t newer_put(uint8_t *bytes, size_t capacity,
			       const struct kvpull_sealed_kind *kind,
			       const struct kvpull_seal *seal,
			       const void *message)
{
	struct kvpull_wire_writer writer = { bytes, capacity, 0 };
	struct kvpull_field fields[NEWER_FIELDS_MAX];
	const struct kvpull_table table = newer_table(kind->table, fields);
	const struct kvpull_sealed_kind newer = { kind->kind, &table };

	return kvpull_sealed_put(&writer, &newer, seal, NEWER_VERSION, message);
}

/* Encode a ticket, whose ids are a list, without a key: the bytes of its text. */
static inline size_t newer_ticket(const struct kvpull_ticket *ticket,
				  char *text, size_t capacity)
{
	static const uint8_t use[] = "kvpull.ticket.v1";
	uint8_t body[NEWER_TICKET_BYTES_MAX];
	struct kvpull_wire_writer writer = { body, sizeof(body), 0 };
	struct kvpull_field fields[NEWER_FIELDS_MAX];
	const struct kvpull_table table =
		newer_table(&kvpull_ticket_table, fields);
	uint8_t derived[crypto_shorthash_siphashx24_KEYBYTES];
	uint8_t sum[KVPULL_CHECKSUM_BYTES];

	kvpull_fields_put(&writer, &table, NEWER_VERSION, ticket);
	assert_true(kvpull_wire_fits(&writer));
	assert_int_equal(
		crypto_generichash_blake2b_salt_personal(
			derived, sizeof(derived), NULL, 0, NULL, 0, NULL, use),
		0);
	assert_int_equal(
		crypto_shorthash_siphashx24(sum, body, writer.used, derived),
		0);
	kvpull_wire_put(&writer, sum, sizeof(sum));
	assert_true(5 + (writer.used * 4 + 2) / 3 <= capacity);
	memcpy(text, "kvp2.", 5);
	kvpull_base64_put(body, writer.used, text + 5);
	return 5 + (writer.used * 4 + 2) / 3;
}

#endif /* KVPULL_TESTS_LIB_NEWER_H */
