/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a step message whole, as the product does piece by piece. */
#ifndef KVPULL_TESTS_LIB_STEP_H
#define KVPULL_TESTS_LIB_STEP_H

#include "plugin/bytes/step.h"

static inline int step_get_header(struct kvpull_wire_reader *reader,
				  struct kvpull_step_header *header)
{
	char unknown[KVPULL_FIELD_NAME_BYTES_MAX];

	return kvpull_step_get_header(reader, header, unknown);
}

/* The command with its ids, in the scratch. */
static inline int step_get_command(struct kvpull_wire_reader *reader,
				   struct kvpull_step_scratch *scratch,
				   struct kvpull_command *command)
{
	const int code = kvpull_step_peek_command(reader, scratch, command);

	if (code)
		return code;
	command->remote_ids = scratch->remote_ids;
	command->local_ids = scratch->local_ids;
	kvpull_ids_copy(&command->remote, 0, command->remote.count,
			scratch->remote_ids);
	kvpull_ids_copy(&command->local, 0, command->local.count,
			scratch->local_ids);
	return 0;
}

static inline int step_check(const void *bytes, size_t byte_count,
			     struct kvpull_step_scratch *scratch)
{
	struct kvpull_wire_reader reader = { bytes, byte_count, 0, 0 };
	struct kvpull_step_header header = { 0 };

	return kvpull_step_begin(&reader, scratch, &header);
}

#endif /* KVPULL_TESTS_LIB_STEP_H */
