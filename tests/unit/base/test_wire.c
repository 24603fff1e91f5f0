/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/stream.h"
#include "base/wire.h"
#include "tests/lib/unit.h"

static struct kvpull_wire_reader reader_of(const void *bytes, size_t byte_count)
{
	return (struct kvpull_wire_reader){ bytes, byte_count, 0, 0 };
}

UNIT_TEST(integers_are_little_endian)
{
	static const uint8_t wanted[] = { 1,  3,  2,  7,  6,  5, 4, 15,
					  14, 13, 12, 11, 10, 9, 8 };
	uint8_t bytes[sizeof(wanted)];
	struct kvpull_wire_writer writer = { bytes, sizeof(bytes), 0 };
	struct kvpull_wire_reader reader = reader_of(bytes, sizeof(bytes));

	kvpull_wire_put_u8(&writer, 1);
	kvpull_wire_put_u16(&writer, 0x0203);
	kvpull_wire_put_u32(&writer, 0x04050607);
	kvpull_wire_put_u64(&writer, UINT64_C(0x08090a0b0c0d0e0f));
	assert_int_equal(writer.used, sizeof(wanted));
	assert_true(kvpull_wire_fits(&writer));
	assert_memory_equal(bytes, wanted, sizeof(wanted));
	assert_int_equal(kvpull_wire_get_u8(&reader), 1);
	assert_int_equal(kvpull_wire_get_u16(&reader), 0x0203);
	assert_int_equal(kvpull_wire_get_u32(&reader), 0x04050607);
	assert_true(kvpull_wire_get_u64(&reader) ==
		    UINT64_C(0x08090a0b0c0d0e0f));
	assert_true(kvpull_wire_done(&reader));
}

UNIT_TEST(integers_keep_their_top_bits)
{
	uint8_t bytes[14];
	struct kvpull_wire_writer writer = { bytes, sizeof(bytes), 0 };
	struct kvpull_wire_reader reader = reader_of(bytes, sizeof(bytes));

	kvpull_wire_put_u16(&writer, UINT16_MAX);
	kvpull_wire_put_u32(&writer, UINT32_MAX);
	kvpull_wire_put_u64(&writer, UINT64_MAX);
	assert_int_equal(kvpull_wire_get_u16(&reader), UINT16_MAX);
	assert_true(kvpull_wire_get_u32(&reader) == UINT32_MAX);
	assert_true(kvpull_wire_get_u64(&reader) == UINT64_MAX);
	assert_true(kvpull_wire_done(&reader));
}

UNIT_TEST(full_writer_counts_on_and_writes_nothing_more)
{
	uint8_t bytes[8] = { 0 };
	struct kvpull_wire_writer writer = { bytes, 5, 0 };

	kvpull_wire_put_u32(&writer, UINT32_MAX);
	kvpull_wire_put_u64(&writer, UINT64_MAX);
	assert_false(kvpull_wire_fits(&writer));
	assert_int_equal(writer.used, 12);
	/* A byte was free, but nothing may be written after a gap. */
	kvpull_wire_put_u8(&writer, 1);
	assert_int_equal(writer.used, 13);
	assert_int_equal(bytes[5], 0);
	assert_int_equal(bytes[6], 0);
	assert_int_equal(bytes[7], 0);
}

UNIT_TEST(writer_without_memory_counts)
{
	struct kvpull_wire_writer writer = { NULL, 0, 0 };

	kvpull_wire_put_text(&writer, "text");
	kvpull_wire_put(&writer, NULL, 0);
	assert_int_equal(writer.used, 6);
}

UNIT_TEST(exhausted_reader_stays_bad)
{
	const uint8_t bytes[3] = { 1, 2, 3 };
	struct kvpull_wire_reader reader = reader_of(bytes, sizeof(bytes));

	assert_int_equal(kvpull_wire_get_u32(&reader), 0);
	/* Three bytes are left, but it is bad for good. */
	assert_int_equal(kvpull_wire_get_u8(&reader), 0);
	assert_int_equal(kvpull_wire_get_u16(&reader), 0);
	assert_true(reader.bad);
	assert_false(kvpull_wire_done(&reader));
}

UNIT_TEST(huge_count_does_not_wrap)
{
	const uint8_t bytes[4] = { 0 };
	struct kvpull_wire_reader reader = reader_of(bytes, sizeof(bytes));

	(void)kvpull_wire_get_u16(&reader);
	assert_null(kvpull_wire_get(&reader, SIZE_MAX));
	assert_null(kvpull_wire_get(&reader, 0));
}

UNIT_TEST(bytes_left_over_are_not_done)
{
	const uint8_t bytes[2] = { 0 };
	struct kvpull_wire_reader reader = reader_of(bytes, sizeof(bytes));

	(void)kvpull_wire_get_u8(&reader);
	assert_false(kvpull_wire_done(&reader));
	(void)kvpull_wire_get_u8(&reader);
	assert_true(kvpull_wire_done(&reader));
}

UNIT_TEST(varints_round_trip_at_every_width)
{
	uint32_t bit;

	for (bit = 0; bit <= 64; bit++) {
		const uint64_t top =
			bit == 64 ? UINT64_MAX : UINT64_C(1) << bit;
		uint64_t value;

		for (value = top - 1; value != top + 1; value++) {
			uint8_t bytes[10];
			struct kvpull_wire_writer writer = { bytes, 10, 0 };
			struct kvpull_wire_reader reader;

			kvpull_wire_put_varint(&writer, value);
			assert_in_range(writer.used, 1, 10);
			reader = reader_of(bytes, writer.used);
			assert_true(kvpull_wire_get_varint(&reader) == value);
			assert_true(kvpull_wire_done(&reader));
		}
	}
}

UNIT_TEST(varint_over_64_bits_is_bad)
{
	uint8_t bytes[11] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
			      0xff, 0xff, 0xff, 0x02, 0x00 };
	struct kvpull_wire_reader reader = reader_of(bytes, sizeof(bytes));

	(void)kvpull_wire_get_varint(&reader);
	assert_true(reader.bad);
	bytes[9] = 0x81;
	reader = reader_of(bytes, sizeof(bytes));
	(void)kvpull_wire_get_varint(&reader);
	assert_true(reader.bad);
	bytes[9] = 0x01;
	reader = reader_of(bytes, sizeof(bytes));
	assert_true(kvpull_wire_get_varint(&reader) == UINT64_MAX);
	assert_false(reader.bad);
}

UNIT_TEST(varint_cut_short_is_bad)
{
	const uint8_t bytes[2] = { 0x80, 0x80 };
	struct kvpull_wire_reader reader = reader_of(bytes, sizeof(bytes));

	assert_true(kvpull_wire_get_varint(&reader) == 0);
	assert_true(reader.bad);
}

UNIT_TEST(text_round_trips_up_to_its_room)
{
	uint8_t bytes[16];
	char text[5];
	struct kvpull_wire_writer writer = { bytes, sizeof(bytes), 0 };
	struct kvpull_wire_reader reader;

	kvpull_wire_put_text(&writer, "four");
	kvpull_wire_put_text(&writer, "");
	reader = reader_of(bytes, writer.used);
	kvpull_wire_get_text(&reader, text, sizeof(text));
	assert_string_equal(text, "four");
	kvpull_wire_get_text(&reader, text, sizeof(text));
	assert_string_equal(text, "");
	assert_true(kvpull_wire_done(&reader));
	reader = reader_of(bytes, writer.used);
	kvpull_wire_get_text(&reader, text, 4);
	assert_true(reader.bad);
	assert_string_equal(text, "");
}

UNIT_TEST(text_with_nul_or_cut_short_is_bad)
{
	const uint8_t nul[] = { 3, 0, 'a', 0, 'b' };
	char text[8];
	struct kvpull_wire_reader reader = reader_of(nul, sizeof(nul));

	kvpull_wire_get_text(&reader, text, sizeof(text));
	assert_true(reader.bad);
	reader = reader_of(nul, 4);
	kvpull_wire_get_text(&reader, text, sizeof(text));
	assert_true(reader.bad);
	assert_string_equal(text, "");
}

#define STREAM_BYTES 4096u

/* Any place of both ends within a line, and sizes about whole lines. */
UNIT_TEST(streamed_bytes_are_the_same_bytes)
{
	static uint8_t from[STREAM_BYTES + 64], to[STREAM_BYTES + 128];
	size_t at, byte_count, i;

	for (i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 7 + i / 251);
	for (at = 0; at < 64; at++) {
		for (byte_count = 960; byte_count < 1200; byte_count += 13) {
			memset(to, 0xee, sizeof(to));
			kvpull_stream_copy(to + 1 + at, from + at * 5 % 64,
					   byte_count);
			assert_memory_equal(to + 1 + at, from + at * 5 % 64,
					    byte_count);
			assert_int_equal(to[at], 0xee);
			assert_int_equal(to[1 + at + byte_count], 0xee);
		}
	}
}

#if defined(__x86_64__)
/* Runs the code for machines without AVX2 on a machine with AVX2. */
UNIT_TEST(lines_without_avx2_are_the_same_bytes)
{
	static _Alignas(64) uint8_t from[STREAM_BYTES], to[STREAM_BYTES + 64];
	size_t i;

	for (i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 11 + i / 251);
	memset(to, 0xee, sizeof(to));
	kvpull_stream_lines(to, from + 1, STREAM_BYTES / 64 - 1);
	assert_memory_equal(to, from + 1, STREAM_BYTES - 64);
	assert_int_equal(to[STREAM_BYTES - 64], 0xee);
}
#endif
