/* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>
#include <string.h>

#include "base/params.h"
#include "tests/lib/unit.h"

struct version_1 {
	size_t struct_size;
	uint64_t first;
};

struct version_2 {
	size_t struct_size;
	uint64_t first;
	uint64_t second;
};

/* The library's copy of `theirs`, a pointer, in `own`; and the reverse. */
#define TAKES(own, theirs, code)                                               \
	assert_int_equal(kvpull_params_take(&(own), sizeof(own), theirs), code)
#define TAKES_NAMED(own, theirs, detail, code)                                 \
	assert_int_equal(kvpull_params_take_named(&(own), sizeof(own), theirs, \
						  "host", detail),             \
			 code)
#define GIVES(theirs, own, code)                                               \
	assert_int_equal(kvpull_params_give(theirs, &(own), sizeof(own)), code)

UNIT_TEST(shorter_struct_is_taken_with_zeros_behind)
{
	/* From the heap, so that the address sanitizer sees a read beyond. */
	struct version_1 *theirs = malloc(sizeof(*theirs));
	struct version_2 own = { 1, 2, 3 };

	assert_non_null(theirs);
	theirs->struct_size = sizeof(*theirs);
	theirs->first = 7;
	TAKES(own, theirs, 0);
	assert_int_equal(own.first, 7);
	assert_int_equal(own.second, 0);
	assert_int_equal(own.struct_size, sizeof(own));
	free(theirs);
}

UNIT_TEST(longer_struct_is_taken_if_the_extra_is_zero)
{
	struct version_2 theirs = { sizeof(theirs), 7, 0 };
	struct version_1 own = { 0, 0 };

	TAKES(own, &theirs, 0);
	assert_int_equal(own.first, 7);
	assert_int_equal(own.struct_size, sizeof(own));
}

UNIT_TEST(longer_struct_with_an_unknown_member_set_is_refused)
{
	struct version_2 theirs = { sizeof(theirs), 7, 0 };
	struct version_1 own = { 1, 2 };
	size_t i;

	for (i = 0; i < sizeof(theirs.second); i++) {
		theirs.second = UINT64_C(1) << (8 * i);
		TAKES(own, &theirs, KVPULL_EINVAL);
		assert_int_equal(own.struct_size, 1);
		assert_int_equal(own.first, 2);
	}
}

UNIT_TEST(struct_size_that_cannot_be_is_refused)
{
	struct version_1 theirs = { 0, 7 };
	struct version_1 own = { 1, 2 };

	TAKES(own, NULL, KVPULL_EINVAL);
	TAKES(own, &theirs, KVPULL_EINVAL);
	theirs.struct_size = sizeof(size_t) - 1;
	TAKES(own, &theirs, KVPULL_EINVAL);
	theirs.struct_size = KVPULL_PARAMS_BYTES_MAX + 1;
	TAKES(own, &theirs, KVPULL_EINVAL);
	theirs.struct_size = SIZE_MAX;
	TAKES(own, &theirs, KVPULL_EINVAL);
	assert_int_equal(own.first, 2);
	theirs.struct_size = sizeof(size_t);
	TAKES(own, &theirs, 0);
	assert_int_equal(own.first, 0);
}

/* Half of a pointer is a pointer, too: no header's struct ends there. */
UNIT_TEST(struct_size_that_cuts_a_member_is_refused)
{
	struct version_2 theirs = { 0, 7, 8 };
	struct version_2 own = { 1, 2, 3 };
	size_t bytes;

	for (bytes = sizeof(size_t); bytes <= sizeof(theirs); bytes++) {
		const int is_whole = bytes % sizeof(size_t) == 0;

		theirs.struct_size = bytes;
		TAKES(own, &theirs, is_whole ? 0 : KVPULL_EINVAL);
	}
}

UNIT_TEST(output_is_cut_to_what_the_caller_has)
{
	const struct version_2 own = { sizeof(own), 7, 8 };
	struct version_2 theirs = { sizeof(struct version_1), 1, 2 };

	GIVES(&theirs, own, 0);
	assert_int_equal(theirs.struct_size, sizeof(struct version_1));
	assert_int_equal(theirs.first, 7);
	assert_int_equal(theirs.second, 2);
}

UNIT_TEST(output_to_a_newer_caller_leaves_the_rest)
{
	const struct version_1 own = { sizeof(own), 7 };
	struct version_2 theirs = { sizeof(theirs), 1, 2 };

	GIVES(&theirs, own, 0);
	assert_int_equal(theirs.struct_size, sizeof(theirs));
	assert_int_equal(theirs.first, 7);
	assert_int_equal(theirs.second, 2);
}

UNIT_TEST(output_without_a_struct_size_is_refused)
{
	const struct version_1 own = { sizeof(own), 7 };
	struct version_1 theirs = { sizeof(size_t) - 1, 1 };

	GIVES(NULL, own, KVPULL_EINVAL);
	GIVES(&theirs, own, KVPULL_EINVAL);
	assert_int_equal(theirs.first, 1);
	theirs.struct_size = sizeof(size_t);
	GIVES(&theirs, own, 0);
	assert_int_equal(theirs.first, 1);
}

UNIT_TEST(output_size_that_cuts_a_member_is_refused)
{
	const struct version_2 own = { sizeof(own), 7, 8 };
	struct version_2 theirs = { 0, 1, 2 };
	size_t bytes;

	for (bytes = sizeof(size_t); bytes <= sizeof(theirs); bytes++) {
		const int is_whole = bytes % sizeof(size_t) == 0;

		theirs = (struct version_2){ bytes, 1, 2 };
		assert_int_equal(kvpull_params_check_output(&theirs),
				 is_whole ? 0 : KVPULL_EINVAL);
		GIVES(&theirs, own, is_whole ? 0 : KVPULL_EINVAL);
		if (!is_whole)
			assert_int_equal(theirs.first, 1);
	}
}

UNIT_TEST(struct_that_is_not_taken_is_named)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct version_2 theirs = { sizeof(theirs), 7, 0 };
	struct version_1 own = { 1, 2 };

	TAKES_NAMED(own, &theirs, &detail, 0);
	assert_int_equal(own.first, 7);
	theirs.second = 1;
	TAKES_NAMED(own, &theirs, &detail, KVPULL_EINVAL);
	assert_string_equal(detail.field, "struct_size");
	assert_non_null(strstr(detail.message, "host has 24 bytes"));
	assert_non_null(strstr(detail.message, "newer library"));
	theirs.struct_size = 0;
	TAKES_NAMED(own, &theirs, &detail, KVPULL_EINVAL);
	assert_string_equal(detail.field, "struct_size");
	assert_non_null(strstr(detail.message, "host has a struct_size of 0"));
	TAKES_NAMED(own, NULL, &detail, KVPULL_EINVAL);
	assert_string_equal(detail.field, "host");
	assert_string_equal(detail.message, "host is NULL");
	TAKES_NAMED(own, NULL, NULL, KVPULL_EINVAL);
}

UNIT_TEST(output_is_checked_as_it_is_given)
{
	struct version_1 theirs = { sizeof(size_t) - 1, 0 };
	const struct version_1 own = { sizeof(own), 3 };

	assert_int_equal(kvpull_params_check_output(NULL), KVPULL_EINVAL);
	assert_int_equal(kvpull_params_check_output(&theirs), KVPULL_EINVAL);
	GIVES(&theirs, own, KVPULL_EINVAL);
	theirs.struct_size = sizeof(size_t);
	assert_int_equal(kvpull_params_check_output(&theirs), 0);
	GIVES(&theirs, own, 0);
}

UNIT_TEST(element_sizes_that_cannot_be_are_refused)
{
	const size_t bad[] = { 0,           8,  15,
			       17,          20, KVPULL_PARAMS_BYTES_MAX + 8,
			       SIZE_MAX - 7 };
	uint64_t own[4] = { 0 };
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(kvpull_element_check(bad[i], 16),
				 KVPULL_EINVAL);
		assert_int_equal(
			kvpull_elements_take(own, 16, 1, own + 2, bad[i], 16),
			KVPULL_EINVAL);
	}
	assert_int_equal(kvpull_element_check(16, 16), 0);
	assert_int_equal(kvpull_element_check(24, 16), 0);
}

/* Elements of 8 (an older caller's), 16 (ours) and 24 bytes (a newer one's). */
UNIT_TEST(elements_of_other_sizes_are_taken)
{
	const uint64_t older[2] = { 1, 2 };
	uint64_t newer[6] = { 1, 2, 0, 3, 4, 0 };
	uint64_t own[4] = { 9, 9, 9, 9 };

	assert_int_equal(kvpull_elements_take(own, 16, 2, older, 8, 8), 0);
	assert_memory_equal(own, ((uint64_t[]){ 1, 0, 2, 0 }), sizeof(own));
	assert_int_equal(kvpull_elements_take(own, 16, 2, newer, 24, 8), 0);
	assert_memory_equal(own, ((uint64_t[]){ 1, 2, 3, 4 }), sizeof(own));
	newer[5] = UINT64_C(1) << 63;
	assert_int_equal(kvpull_elements_take(own, 16, 2, newer, 24, 8),
			 KVPULL_EINVAL);
}

UNIT_TEST(elements_of_other_sizes_are_given)
{
	const uint64_t own[2] = { 1, 2 };
	uint64_t theirs[3] = { 9, 9, 9 };

	kvpull_element_give(theirs, 8, own, 16);
	assert_memory_equal(theirs, ((uint64_t[]){ 1, 9, 9 }), sizeof(theirs));
	kvpull_element_give(theirs, 24, own, 16);
	assert_memory_equal(theirs, ((uint64_t[]){ 1, 2, 0 }), sizeof(theirs));
}

UNIT_TEST(errors_have_names)
{
	assert_string_equal(kvpull_error_name(KVPULL_EPEER), "EPEER");
	assert_string_equal(kvpull_error_name(KVPULL_EFULL), "EFULL");
	assert_string_equal(kvpull_error_name(1), "?");
}

/* Each by its own words, and a code that is none by words for that. */
UNIT_TEST(errors_have_texts)
{
#define TEXT(name, value, text)                                                \
	assert_string_equal(kvpull_error_text(value), text);                   \
	assert_string_equal(kvpull_error_name(value), #name);
	KVPULL_ERRORS(TEXT)
#undef TEXT
	assert_string_equal(kvpull_error_text(0), "success");
	assert_string_equal(
		kvpull_error_text(1),
		"unknown error: the library is newer than its caller");
	assert_string_equal(
		kvpull_error_text(INT32_MIN),
		"unknown error: the library is newer than its caller");
}

UNIT_TEST(detail_tells_code_field_and_message)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	kvpull_detail_set(&detail, KVPULL_ECONFIG, "lease_ms", "%s %d", "is",
			  3);
	assert_int_equal(detail.code, KVPULL_ECONFIG);
	assert_string_equal(detail.field, "lease_ms");
	assert_string_equal(detail.message, "is 3");
	assert_int_equal(detail.struct_size, sizeof(detail));
	kvpull_detail_set(&detail, KVPULL_EINVAL, NULL, "x");
	assert_string_equal(detail.field, "");
}

UNIT_TEST(detail_cuts_texts_that_are_too_long)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	char text[400];

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	kvpull_detail_set(&detail, KVPULL_EINVAL, text, "%s", text);
	assert_int_equal(strlen(detail.field), sizeof(detail.field) - 1);
	assert_int_equal(strlen(detail.message), sizeof(detail.message) - 1);
}

UNIT_TEST(detail_is_one_line)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	kvpull_detail_set(&detail, KVPULL_EINVAL, "a\tb", "c\nd\x7f e\xc3\xa9");
	assert_string_equal(detail.field, "a?b");
	assert_string_equal(detail.message, "c?d? e\xc3\xa9");
}

UNIT_TEST(detail_of_any_size_is_respected)
{
	size_t bytes;

	kvpull_detail_set(NULL, KVPULL_EINVAL, "field", "message");
	for (bytes = 0; bytes <= sizeof(struct kvpull_error_detail); bytes++) {
		struct kvpull_error_detail detail;
		const uint8_t *raw = (const uint8_t *)&detail;
		size_t i;

		memset(&detail, 0xee, sizeof(detail));
		detail.struct_size = bytes;
		kvpull_detail_set(&detail, KVPULL_EINVAL, "0123456789",
				  "the message");
		assert_int_equal(detail.struct_size, bytes);
		i = bytes < sizeof(size_t) || bytes % sizeof(size_t) ?
			    sizeof(size_t) :
			    bytes;
		for (; i < sizeof(detail); i++)
			assert_int_equal(raw[i], 0xee);
		if (bytes % sizeof(size_t))
			continue;
		if (bytes > offsetof(struct kvpull_error_detail, field))
			assert_non_null(memchr(
				detail.field, 0,
				bytes - offsetof(struct kvpull_error_detail,
						 field)));
		if (bytes > offsetof(struct kvpull_error_detail, message))
			assert_non_null(memchr(
				detail.message, 0,
				bytes - offsetof(struct kvpull_error_detail,
						 message)));
	}
}

/* A caller of a later version has members behind what we know. */
UNIT_TEST(detail_of_a_later_version_keeps_its_other_members)
{
	struct {
		struct kvpull_error_detail detail;
		uint64_t later;
	} theirs = { .detail.struct_size = sizeof(theirs),
		     .later = UINT64_MAX };

	kvpull_detail_set(&theirs.detail, KVPULL_EINVAL, "field", "message");
	assert_string_equal(theirs.detail.message, "message");
	assert_true(theirs.later == UINT64_MAX);
}
