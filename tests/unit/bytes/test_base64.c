/* SPDX-License-Identifier: Apache-2.0 */
/* Against sodium's base64, of every length and every byte. */

#include <string.h>

#include <sodium.h>

#include "plugin/bytes/base64.h"
#include "tests/lib/unit.h"

#define BYTES_MAX 200u
#define TEXT_MAX 400u
#define UNTOUCHED 0xee

static uint8_t bytes[BYTES_MAX];
static uint8_t got[BYTES_MAX + 1]; /* one more: nobody's */
static char text[TEXT_MAX];
static char wanted[TEXT_MAX];

static size_t text_make(size_t byte_count)
{
	size_t i;

	for (i = 0; i < byte_count; i++)
		bytes[i] = (uint8_t)(i * 151 + byte_count * 7 + 250);
	assert_non_null(
		sodium_bin2base64(wanted, sizeof(wanted), bytes, byte_count,
				  sodium_base64_VARIANT_URLSAFE_NO_PADDING));
	memset(text, UNTOUCHED, sizeof(text));
	kvpull_base64_put(bytes, byte_count, text);
	return strlen(wanted);
}

UNIT_TEST(every_length_round_trips)
{
	size_t byte_count;

	for (byte_count = 0; byte_count <= BYTES_MAX; byte_count++) {
		const size_t text_bytes = text_make(byte_count);

		assert_int_equal(text_bytes, (byte_count * 4 + 2) / 3);
		assert_memory_equal(text, wanted, text_bytes);
		assert_int_equal((uint8_t)text[text_bytes], UNTOUCHED);
		memset(got, UNTOUCHED, sizeof(got));
		assert_int_equal(kvpull_base64_get(text, text_bytes, got),
				 byte_count);
		assert_memory_equal(got, bytes, byte_count);
		assert_int_equal(got[byte_count], UNTOUCHED);
	}
}

static int is_digit(int byte)
{
	return byte && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ"
			      "abcdefghijklmnopqrstuvwxyz0123456789-_",
			      byte);
}

UNIT_TEST(no_other_byte_is_a_digit)
{
	const size_t text_bytes = text_make(21); /* of whole groups */
	size_t at;

	for (at = 0; at < text_bytes; at++) {
		const char kept = text[at];
		int byte;

		for (byte = 0; byte <= UINT8_MAX; byte++) {
			text[at] = (char)byte;
			assert_int_equal(
				kvpull_base64_get(text, text_bytes, got),
				is_digit(byte) ? 21 : 0);
		}
		text[at] = kept;
	}
}

/* Each body has one text: what its last digit may not say. */
UNIT_TEST(unused_bits_are_zero)
{
	assert_int_equal(kvpull_base64_get("AA", 2, got), 1);
	assert_int_equal(kvpull_base64_get("AQ", 2, got), 1);
	assert_int_equal(kvpull_base64_get("AB", 2, got), 0);
	assert_int_equal(kvpull_base64_get("AP", 2, got), 0);
	assert_int_equal(kvpull_base64_get("AAE", 3, got), 2);
	assert_int_equal(kvpull_base64_get("AAB", 3, got), 0);
	assert_int_equal(kvpull_base64_get("AAD", 3, got), 0);
	assert_int_equal(kvpull_base64_get("AAAAA", 5, got), 0);
	assert_int_equal(kvpull_base64_get("A", 1, got), 0);
	assert_int_equal(kvpull_base64_get("=A", 2, got), 0);
	assert_int_equal(kvpull_base64_get("AA=", 3, got), 0);
	assert_int_equal(kvpull_base64_get("", 0, got), 0);
}
