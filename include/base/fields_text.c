/* SPDX-License-Identifier: Apache-2.0 */
/* How two messages differ, in words. */
#include "base/fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* An empty value would be no word in a line. */
static void text_set(char *to, size_t capacity, const char *text)
{
	(void)snprintf(to, capacity, "%s", text[0] ? text : "\"\"");
}

static int differ_text(const char *name, const char *ours, const char *theirs,
		       struct kvpull_fields_difference *difference)
{
	if (!strcmp(ours, theirs))
		return 0;
	text_set(difference->name, sizeof(difference->name), name);
	text_set(difference->ours, sizeof(difference->ours), ours);
	text_set(difference->theirs, sizeof(difference->theirs), theirs);
	return 1;
}

static int differ_number(const char *name, uint64_t ours, uint64_t theirs,
			 struct kvpull_fields_difference *difference)
{
	char our_text[24];
	char their_text[24];

	(void)snprintf(our_text, sizeof(our_text), "%" PRIu64, ours);
	(void)snprintf(their_text, sizeof(their_text), "%" PRIu64, theirs);
	return differ_text(name, our_text, their_text, difference);
}

/* NOLINTBEGIN(misc-no-recursion): as deep as our own tables nest, by two. */

/* Rows "groups" are counted by what is called group_count. */
static int differ_rows(const struct kvpull_field *field, const void *ours,
		       const void *theirs,
		       struct kvpull_fields_difference *difference)
{
	const size_t offset = field->count_offset;
	char inner[24];
	char name[KVPULL_FIELD_NAME_BYTES_MAX];
	uint32_t our_count;
	uint32_t their_count;
	uint32_t i;

	memcpy(&our_count, (const uint8_t *)ours + offset, sizeof(our_count));
	memcpy(&their_count, (const uint8_t *)theirs + offset,
	       sizeof(their_count));
	(void)snprintf(name, sizeof(name), "%.*s_count",
		       (int)strlen(field->name) - 1, field->name);
	if (differ_number(name, our_count, their_count, difference))
		return 1;
	for (i = 0; i < our_count; i++) {
		const size_t at = field->offset + (size_t)i * field->size;

		if (!kvpull_fields_differ(
			    field->rows, (const uint8_t *)ours + at,
			    (const uint8_t *)theirs + at, difference))
			continue;
		(void)snprintf(inner, sizeof(inner), "%.23s", difference->name);
		(void)snprintf(difference->name, sizeof(difference->name),
			       "%.16s[%" PRIu32 "].%s", field->name, i, inner);
		return 1;
	}
	return 0;
}

int kvpull_fields_differ(const struct kvpull_table *table, const void *ours,
			 const void *theirs,
			 struct kvpull_fields_difference *difference)
{
	uint32_t i;

	for (i = 0; i < table->field_count; i++) {
		const struct kvpull_field *field = &table->fields[i];
		int differs = 0;

		if (field->type <= KVPULL_FIELD_ZIGZAG)
			differs = differ_number(
				field->name, kvpull_fields_number(field, ours),
				kvpull_fields_number(field, theirs),
				difference);
		if (field->type == KVPULL_FIELD_TEXT)
			differs = differ_text(
				field->name, (const char *)ours + field->offset,
				(const char *)theirs + field->offset,
				difference);
		if (field->type == KVPULL_FIELD_ROWS)
			differs = differ_rows(field, ours, theirs, difference);
		if (differs)
			return 1;
	}
	return 0;
}

/* NOLINTEND(misc-no-recursion) */
