/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/params.h"

struct version_1 {
	size_t struct_size;
	uint64_t first;
};

struct version_2 {
	size_t struct_size;
	uint64_t first;
	uint64_t second;
};

static void shorter_struct_is_taken_with_zeros_behind(void **state)
{
	/* From the heap, so that the address sanitizer sees a read beyond. */
	struct version_1 *theirs = malloc(sizeof(*theirs));
	struct version_2 own = { 1, 2, 3 };

	(void)state;
	assert_non_null(theirs);
	theirs->struct_size = sizeof(*theirs);
	theirs->first = 7;
	assert_int_equal(kvpull_params_take(&own, sizeof(own), theirs), 0);
	assert_int_equal(own.first, 7);
	assert_int_equal(own.second, 0);
	assert_int_equal(own.struct_size, sizeof(own));
	free(theirs);
}

static void longer_struct_is_taken_if_the_extra_is_zero(void **state)
{
	struct version_2 theirs = { sizeof(theirs), 7, 0 };
	struct version_1 own = { 0, 0 };

	(void)state;
	assert_int_equal(kvpull_params_take(&own, sizeof(own), &theirs), 0);
	assert_int_equal(own.first, 7);
	assert_int_equal(own.struct_size, sizeof(own));
}

static void longer_struct_with_an_unknown_member_set_is_refused(void **state)
{
	struct version_2 theirs = { sizeof(theirs), 7, 0 };
	struct version_1 own = { 1, 2 };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(theirs.second); i++) {
		theirs.second = UINT64_C(1) << (8 * i);
		assert_int_equal(kvpull_params_take(&own, sizeof(own), &theirs),
				 KVPULL_EINVAL);
		assert_int_equal(own.struct_size, 1);
		assert_int_equal(own.first, 2);
	}
}

static void struct_size_that_cannot_be_is_refused(void **state)
{
	struct version_1 theirs = { 0, 7 };
	struct version_1 own = { 1, 2 };

	(void)state;
	assert_int_equal(kvpull_params_take(&own, sizeof(own), NULL),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_params_take(&own, sizeof(own), &theirs),
			 KVPULL_EINVAL);
	theirs.struct_size = sizeof(size_t) - 1;
	assert_int_equal(kvpull_params_take(&own, sizeof(own), &theirs),
			 KVPULL_EINVAL);
	theirs.struct_size = KVPULL_PARAMS_BYTES_MAX + 1;
	assert_int_equal(kvpull_params_take(&own, sizeof(own), &theirs),
			 KVPULL_EINVAL);
	theirs.struct_size = SIZE_MAX;
	assert_int_equal(kvpull_params_take(&own, sizeof(own), &theirs),
			 KVPULL_EINVAL);
	assert_int_equal(own.first, 2);
	theirs.struct_size = sizeof(size_t);
	assert_int_equal(kvpull_params_take(&own, sizeof(own), &theirs), 0);
	assert_int_equal(own.first, 0);
}

/* Half of a pointer is a pointer, too: no header's struct ends there. */
static void struct_size_that_cuts_a_member_is_refused(void **state)
{
	struct version_2 theirs = { 0, 7, 8 };
	struct version_2 own = { 1, 2, 3 };
	size_t bytes;

	(void)state;
	for (bytes = sizeof(size_t); bytes <= sizeof(theirs); bytes++) {
		const int is_whole = bytes % sizeof(size_t) == 0;

		theirs.struct_size = bytes;
		assert_int_equal(kvpull_params_take(&own, sizeof(own), &theirs),
				 is_whole ? 0 : KVPULL_EINVAL);
	}
}

static void output_is_cut_to_what_the_caller_has(void **state)
{
	const struct version_2 own = { sizeof(own), 7, 8 };
	struct version_2 theirs = { sizeof(struct version_1), 1, 2 };

	(void)state;
	assert_int_equal(kvpull_params_give(&theirs, &own, sizeof(own)), 0);
	assert_int_equal(theirs.struct_size, sizeof(struct version_1));
	assert_int_equal(theirs.first, 7);
	assert_int_equal(theirs.second, 2);
}

static void output_to_a_newer_caller_leaves_the_rest(void **state)
{
	const struct version_1 own = { sizeof(own), 7 };
	struct version_2 theirs = { sizeof(theirs), 1, 2 };

	(void)state;
	assert_int_equal(kvpull_params_give(&theirs, &own, sizeof(own)), 0);
	assert_int_equal(theirs.struct_size, sizeof(theirs));
	assert_int_equal(theirs.first, 7);
	assert_int_equal(theirs.second, 2);
}

static void output_without_a_struct_size_is_refused(void **state)
{
	const struct version_1 own = { sizeof(own), 7 };
	struct version_1 theirs = { sizeof(size_t) - 1, 1 };

	(void)state;
	assert_int_equal(kvpull_params_give(NULL, &own, sizeof(own)),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_params_give(&theirs, &own, sizeof(own)),
			 KVPULL_EINVAL);
	assert_int_equal(theirs.first, 1);
	theirs.struct_size = sizeof(size_t);
	assert_int_equal(kvpull_params_give(&theirs, &own, sizeof(own)), 0);
	assert_int_equal(theirs.first, 1);
}

static void output_size_that_cuts_a_member_is_refused(void **state)
{
	const struct version_2 own = { sizeof(own), 7, 8 };
	struct version_2 theirs = { 0, 1, 2 };
	size_t bytes;

	(void)state;
	for (bytes = sizeof(size_t); bytes <= sizeof(theirs); bytes++) {
		const int is_whole = bytes % sizeof(size_t) == 0;

		theirs = (struct version_2){ bytes, 1, 2 };
		assert_int_equal(kvpull_params_check_output(&theirs),
				 is_whole ? 0 : KVPULL_EINVAL);
		assert_int_equal(kvpull_params_give(&theirs, &own, sizeof(own)),
				 is_whole ? 0 : KVPULL_EINVAL);
		if (!is_whole)
			assert_int_equal(theirs.first, 1);
	}
}

static void struct_that_is_not_taken_is_named(void **state)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct version_2 theirs = { sizeof(theirs), 7, 0 };
	struct version_1 own = { 1, 2 };

	(void)state;
	assert_int_equal(kvpull_params_take_named(&own, sizeof(own), &theirs,
						  "host", &detail),
			 0);
	assert_int_equal(own.first, 7);
	theirs.second = 1;
	assert_int_equal(kvpull_params_take_named(&own, sizeof(own), &theirs,
						  "host", &detail),
			 KVPULL_EINVAL);
	assert_string_equal(detail.field, "struct_size");
	assert_non_null(strstr(detail.message, "host has 24 bytes"));
	assert_non_null(strstr(detail.message, "newer library"));
	theirs.struct_size = 0;
	assert_int_equal(kvpull_params_take_named(&own, sizeof(own), &theirs,
						  "host", &detail),
			 KVPULL_EINVAL);
	assert_string_equal(detail.field, "struct_size");
	assert_non_null(strstr(detail.message, "host has a struct_size of 0"));
	assert_int_equal(kvpull_params_take_named(&own, sizeof(own), NULL,
						  "host", &detail),
			 KVPULL_EINVAL);
	assert_string_equal(detail.field, "host");
	assert_string_equal(detail.message, "host is NULL");
	assert_int_equal(
		kvpull_params_take_named(&own, sizeof(own), NULL, "host", NULL),
		KVPULL_EINVAL);
}

static void output_is_checked_as_it_is_given(void **state)
{
	struct version_1 theirs = { sizeof(size_t) - 1, 0 };
	const struct version_1 own = { sizeof(own), 3 };

	(void)state;
	assert_int_equal(kvpull_params_check_output(NULL), KVPULL_EINVAL);
	assert_int_equal(kvpull_params_check_output(&theirs), KVPULL_EINVAL);
	assert_int_equal(kvpull_params_give(&theirs, &own, sizeof(own)),
			 KVPULL_EINVAL);
	theirs.struct_size = sizeof(size_t);
	assert_int_equal(kvpull_params_check_output(&theirs), 0);
	assert_int_equal(kvpull_params_give(&theirs, &own, sizeof(own)), 0);
}

static void element_sizes_that_cannot_be_are_refused(void **state)
{
	const size_t bad[] = { 0,           8,  15,
			       17,          20, KVPULL_PARAMS_BYTES_MAX + 8,
			       SIZE_MAX - 7 };
	uint64_t own[4] = { 0 };
	size_t i;

	(void)state;
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
static void elements_of_other_sizes_are_taken(void **state)
{
	const uint64_t older[2] = { 1, 2 };
	uint64_t newer[6] = { 1, 2, 0, 3, 4, 0 };
	uint64_t own[4] = { 9, 9, 9, 9 };

	(void)state;
	assert_int_equal(kvpull_elements_take(own, 16, 2, older, 8, 8), 0);
	assert_memory_equal(own, ((uint64_t[]){ 1, 0, 2, 0 }), sizeof(own));
	assert_int_equal(kvpull_elements_take(own, 16, 2, newer, 24, 8), 0);
	assert_memory_equal(own, ((uint64_t[]){ 1, 2, 3, 4 }), sizeof(own));
	newer[5] = UINT64_C(1) << 63;
	assert_int_equal(kvpull_elements_take(own, 16, 2, newer, 24, 8),
			 KVPULL_EINVAL);
}

static void elements_of_other_sizes_are_given(void **state)
{
	const uint64_t own[2] = { 1, 2 };
	uint64_t theirs[3] = { 9, 9, 9 };

	(void)state;
	kvpull_element_give(theirs, 8, own, 16);
	assert_memory_equal(theirs, ((uint64_t[]){ 1, 9, 9 }), sizeof(theirs));
	kvpull_element_give(theirs, 24, own, 16);
	assert_memory_equal(theirs, ((uint64_t[]){ 1, 2, 0 }), sizeof(theirs));
}

static void errors_have_names(void **state)
{
	(void)state;
	assert_string_equal(kvpull_error_name(KVPULL_EPEER), "EPEER");
	assert_string_equal(kvpull_error_name(KVPULL_EFULL), "EFULL");
	assert_string_equal(kvpull_error_name(1), "?");
}

static void detail_tells_code_field_and_message(void **state)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	(void)state;
	kvpull_detail_set(&detail, KVPULL_ECONFIG, "lease_ms", "%s %d", "is",
			  3);
	assert_int_equal(detail.code, KVPULL_ECONFIG);
	assert_string_equal(detail.field, "lease_ms");
	assert_string_equal(detail.message, "is 3");
	assert_int_equal(detail.struct_size, sizeof(detail));
	kvpull_detail_set(&detail, KVPULL_EINVAL, NULL, "x");
	assert_string_equal(detail.field, "");
}

static void detail_cuts_texts_that_are_too_long(void **state)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	char text[400];

	(void)state;
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	kvpull_detail_set(&detail, KVPULL_EINVAL, text, "%s", text);
	assert_int_equal(strlen(detail.field), sizeof(detail.field) - 1);
	assert_int_equal(strlen(detail.message), sizeof(detail.message) - 1);
}

static void detail_is_one_line(void **state)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	(void)state;
	kvpull_detail_set(&detail, KVPULL_EINVAL, "a\tb", "c\nd\x7f e\xc3\xa9");
	assert_string_equal(detail.field, "a?b");
	assert_string_equal(detail.message, "c?d? e\xc3\xa9");
}

static void detail_of_any_size_is_respected(void **state)
{
	size_t bytes;

	(void)state;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shorter_struct_is_taken_with_zeros_behind),
		cmocka_unit_test(longer_struct_is_taken_if_the_extra_is_zero),
		cmocka_unit_test(
			longer_struct_with_an_unknown_member_set_is_refused),
		cmocka_unit_test(struct_size_that_cannot_be_is_refused),
		cmocka_unit_test(struct_size_that_cuts_a_member_is_refused),
		cmocka_unit_test(output_is_cut_to_what_the_caller_has),
		cmocka_unit_test(output_to_a_newer_caller_leaves_the_rest),
		cmocka_unit_test(output_without_a_struct_size_is_refused),
		cmocka_unit_test(output_size_that_cuts_a_member_is_refused),
		cmocka_unit_test(struct_that_is_not_taken_is_named),
		cmocka_unit_test(output_is_checked_as_it_is_given),
		cmocka_unit_test(errors_have_names),
		cmocka_unit_test(element_sizes_that_cannot_be_are_refused),
		cmocka_unit_test(elements_of_other_sizes_are_taken),
		cmocka_unit_test(elements_of_other_sizes_are_given),
		cmocka_unit_test(detail_tells_code_field_and_message),
		cmocka_unit_test(detail_cuts_texts_that_are_too_long),
		cmocka_unit_test(detail_is_one_line),
		cmocka_unit_test(detail_of_any_size_is_respected),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
