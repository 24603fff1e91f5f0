/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A result's bytes, or rank_info's. What passes the check is decoded and encoded, twice: ours is
 * the shortest spelling, so it is not longer and does not change any more.
 */
#include <string.h>

#include "plugin/bytes/step.h"
#include "tests/fuzz/fuzz.h"

#define COPY_BYTES_MAX 65536u

static uint8_t copies[2][COPY_BYTES_MAX];

/* Decode, encode: bytes of the copy. */
static size_t recode(const void *from, size_t from_bytes, uint8_t *to)
{
	struct kvpull_wire_reader reader = { from, from_bytes, 0, 0 };
	struct kvpull_wire_writer writer = { to, COPY_BYTES_MAX, 0 };
	struct kvpull_result_header header;
	uint32_t i;

	expect(!kvpull_step_get_result_header(&reader, &header));
	kvpull_step_put_result_header(&writer, &header);
	for (i = 0; i < header.record_count; i++) {
		struct kvpull_result result;

		expect(!kvpull_step_get_result(&reader, &result));
		kvpull_step_put_result(&writer, &result);
	}
	expect(kvpull_wire_done(&reader));
	expect(kvpull_wire_fits(&writer));
	return writer.used;
}

static void fuzz_rank_info(const uint8_t *data, size_t data_bytes)
{
	struct kvpull_wire_writer writer = { copies[0], COPY_BYTES_MAX, 0 };
	struct kvpull_rank_info rank;

	if (kvpull_step_get_rank_info(data, data_bytes, &rank))
		return;
	kvpull_step_put_rank_info(&writer, &rank);
	/* Shorter where it said more than we know; the version is ours. */
	expect(writer.used <= data_bytes);
	if (writer.used == data_bytes)
		expect(!memcmp(copies[0] + 5, data + 5, data_bytes - 5));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
	size_t first_bytes;
	size_t second_bytes;

	fuzz_rank_info(data, data_bytes);
	if (data_bytes > COPY_BYTES_MAX ||
	    kvpull_step_check_result(data, data_bytes))
		return 0;
	first_bytes = recode(data, data_bytes, copies[0]);
	second_bytes = recode(copies[0], first_bytes, copies[1]);
	expect(first_bytes <= data_bytes && first_bytes == second_bytes);
	expect(!memcmp(copies[0], copies[1], first_bytes));
	return 0;
}
