/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message of a version that nobody has yet: the fields of ours, and behind
 * them a required one. Who does not know it must refuse, and name it.
 */
#ifndef KVPULL_TESTS_LIB_NEWER_H
#define KVPULL_TESTS_LIB_NEWER_H

#include <string.h>

#include "plugin/bytes/handshake.h"

#define NEWER_VERSION 9u
#define NEWER_FIELD "tint"
#define NEWER_FIELDS_MAX 32u

/* Encode @message, a struct of @kind's table, without a key: its bytes, or 0. */
static inline size_t newer_put(uint8_t *bytes, size_t capacity,
			       const struct kvpull_sealed_kind *kind,
			       const struct kvpull_seal *seal,
			       const void *message)
{
	struct kvpull_wire_writer writer = { bytes, capacity, 0 };
	struct kvpull_field fields[NEWER_FIELDS_MAX];
	struct kvpull_table table = *kind->table;
	const struct kvpull_sealed_kind newer = { kind->kind, &table };

	if (table.field_count >= NEWER_FIELDS_MAX)
		return 0;
	memcpy(fields, table.fields, table.field_count * sizeof(*fields));
	/* Its value lies where the first field's does. */
	fields[table.field_count++] = (struct kvpull_field){
		.name = NEWER_FIELD,
		.type = KVPULL_FIELD_U32,
		.since = NEWER_VERSION,
		.is_required = 1,
		.id = 77,
		.size = sizeof(uint32_t),
	};
	table.fields = fields;
	return kvpull_sealed_put(&writer, &newer, seal, NEWER_VERSION, message);
}

#endif /* KVPULL_TESTS_LIB_NEWER_H */
