/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step's bytes. What passes the check is decoded and encoded, twice: ours is
 * the shortest spelling, so it is not longer and does not change any more. Ids
 * that are taken later, as a worker takes them, are the same.
 */
#include <string.h>

#include "plugin/bytes/step.h"
#include "tests/fuzz/fuzz.h"
#include "tests/lib/step.h"

#define COPY_BYTES_MAX 65536u

static uint32_t ids[2][KVPULL_TICKET_BLOCKS_MAX];
static uint32_t later[2][KVPULL_TICKET_BLOCKS_MAX];
static struct kvpull_step_scratch scratch;
static uint8_t copies[2][COPY_BYTES_MAX];

/* The same command again, in a worker's two steps. */
static void take_later(struct kvpull_wire_reader reader,
		       const struct kvpull_command *command)
{
	const size_t id_bytes = command->remote.count * sizeof(uint32_t);
	struct kvpull_command peeked;

	expect(!kvpull_step_peek_command(&reader, &scratch, &peeked));
	kvpull_ids_copy(&peeked.remote, 0, peeked.remote.count, later[0]);
	kvpull_ids_copy(&peeked.local, 0, peeked.local.count, later[1]);
	expect(!memcmp(later[0], ids[0], id_bytes));
	expect(!memcmp(later[1], ids[1], id_bytes));
}

/* Decode, encode: bytes of the copy. */
static size_t recode(const void *from, size_t from_bytes, uint8_t *to)
{
	struct kvpull_wire_reader reader = { from, from_bytes, 0, 0 };
	struct kvpull_wire_writer writer = { to, COPY_BYTES_MAX, 0 };
	struct kvpull_step_header header;
	uint32_t i;

	expect(!step_get_header(&reader, &header));
	kvpull_step_put_header(&writer, &header);
	for (i = 0; i < header.record_count; i++) {
		const struct kvpull_wire_reader before = reader;
		struct kvpull_command command;

		expect(!step_get_command(&reader, &scratch, &command));
		take_later(before, &command);
		kvpull_step_put_command(&writer, &command);
	}
	expect(kvpull_wire_done(&reader));
	expect(kvpull_wire_fits(&writer));
	return writer.used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
	size_t first_bytes;
	size_t second_bytes;

	scratch.remote_ids = ids[0];
	scratch.local_ids = ids[1];
	if (data_bytes > COPY_BYTES_MAX ||
	    step_check(data, data_bytes, &scratch))
		return 0;
	first_bytes = recode(data, data_bytes, copies[0]);
	second_bytes = recode(copies[0], first_bytes, copies[1]);
	expect(first_bytes <= data_bytes && first_bytes == second_bytes);
	expect(!memcmp(copies[0], copies[1], first_bytes));
	return 0;
}
