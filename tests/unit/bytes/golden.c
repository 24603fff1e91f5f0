/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/bytes/golden.h"

__attribute__((format(printf, 2, 3))) static void
golden_print(struct golden_text *text, const char *format, ...)
{
	va_list arguments;
	int printed;

	va_start(arguments, format);
	printed = vsnprintf(text->text + text->used,
			    GOLDEN_TEXT_MAX - text->used, format, arguments);
	va_end(arguments);
	assert_true(printed >= 0 &&
		    text->used + (size_t)printed < GOLDEN_TEXT_MAX);
	text->used += (size_t)printed;
}

static uint32_t golden_count(const struct golden_member *member,
			     const uint8_t *base)
{
	uint32_t count;

	if (!member->count)
		return (uint32_t)member->bytes;
	memcpy(&count, base + member->count, sizeof(count));
	return count;
}

static void golden_print_number(struct golden_text *text, uint64_t value)
{
	golden_print(text, value < 65536 ? "%" PRIu64 : "0x%" PRIx64, value);
}

/* Three and more that follow one another are FIRST..LAST. */
static void golden_print_ids(struct golden_text *text, const uint32_t *ids,
			     uint32_t count)
{
	uint32_t at = 0;

	if (!count)
		golden_print(text, "-");
	while (at < count) {
		uint32_t run = 1;

		while (at + run < count && ids[at + run] == ids[at] + run)
			run++;
		golden_print(text, at ? " %" PRIu32 : "%" PRIu32, ids[at]);
		if (run >= 3)
			golden_print(text, "..%" PRIu32, ids[at] + run - 1);
		at += run >= 3 ? run : 1;
	}
}

static void golden_print_bytes(struct golden_text *text, const uint8_t *bytes,
			       size_t byte_count)
{
	size_t i;

	if (!byte_count)
		golden_print(text, "-");
	for (i = 0; i < byte_count; i++)
		golden_print(text, "%02x", bytes[i]);
}

static void golden_print_value(struct golden_text *text,
			       const struct golden_member *member,
			       const uint8_t *base)
{
	const uint8_t *at = base + member->offset;
	uint64_t wide = 0;
	uint32_t narrow = 0;

	if (member->kind == GOLDEN_U64)
		memcpy(&wide, at, sizeof(wide));
	if (member->kind == GOLDEN_U32 || member->kind == GOLDEN_I32)
		memcpy(&narrow, at, sizeof(narrow));
	switch (member->kind) {
	case GOLDEN_U32:
		golden_print_number(text, narrow);
		break;
	case GOLDEN_U64:
		golden_print_number(text, wide);
		break;
	case GOLDEN_I32:
		golden_print(text, "%" PRId32, (int32_t)narrow);
		break;
	case GOLDEN_TEXT:
		golden_print(text, "\"%s\"", (const char *)at);
		break;
	case GOLDEN_BYTES:
		golden_print_bytes(text, at, golden_count(member, base));
		break;
	case GOLDEN_IDS:
		golden_print_ids(text, (const uint32_t *)(const void *)at,
				 golden_count(member, base));
		break;
	case GOLDEN_ROWS:
		break;
	}
}

/* NOLINTBEGIN(misc-no-recursion): rows nest as deep as tables do. */

/* The values as a file has them, "name value" a line. */
static void golden_print_all(struct golden_text *text,
			     const struct golden_member *members,
			     const char *prefix, const uint8_t *base)
{
	char row_prefix[64];
	uint32_t i;

	for (; members->name; members++) {
		if (members->kind != GOLDEN_ROWS) {
			golden_print(text, "%s%s ", prefix, members->name);
			golden_print_value(text, members, base);
			golden_print(text, "\n");
			continue;
		}
		for (i = 0; i < golden_count(members, base); i++) {
			(void)snprintf(row_prefix, sizeof(row_prefix),
				       "%s[%" PRIu32 "].", members->name, i);
			golden_print_all(text, members->members, row_prefix,
					 base + members->offset +
						 i * members->bytes);
		}
	}
}

static void golden_read_ids(uint32_t *ids, uint32_t *count, const char *value)
{
	char *end = NULL;

	*count = 0;
	value += strspn(value, "-");
	while (*value) {
		uint32_t first = (uint32_t)strtoul(value, &end, 0);
		uint32_t last = first;

		assert_ptr_not_equal(end, value);
		if (!strncmp(end, "..", 2))
			last = (uint32_t)strtoul(end + 2, &end, 0);
		while (first <= last)
			ids[(*count)++] = first++;
		value = end + strspn(end, " ");
	}
}

static size_t golden_read_bytes(uint8_t *bytes, size_t capacity,
				const char *text)
{
	size_t used = 0;
	unsigned int byte;
	int taken;

	text += strspn(text, "-");
	while (sscanf(text, " %2x%n", &byte, &taken) == 1) {
		assert_true(used < capacity);
		bytes[used++] = (uint8_t)byte;
		text += taken;
	}
	assert_int_equal(text[strspn(text, " ")], '\0');
	return used;
}

static void golden_read_value(const struct golden_member *member, uint8_t *base,
			      const char *value)
{
	uint8_t *at = base + member->offset;
	const uint64_t wide = strtoull(value, NULL, 0);
	const uint32_t narrow = member->kind == GOLDEN_I32 ?
					(uint32_t)strtol(value, NULL, 10) :
					(uint32_t)wide;
	uint32_t count = 0;

	if (member->kind == GOLDEN_U64)
		memcpy(at, &wide, sizeof(wide));
	if (member->kind == GOLDEN_U32 || member->kind == GOLDEN_I32)
		memcpy(at, &narrow, sizeof(narrow));
	if (member->kind == GOLDEN_TEXT) {
		const size_t text_bytes = strlen(value);

		assert_true(text_bytes >= 2 && text_bytes - 2 < member->bytes);
		memcpy(at, value + 1, text_bytes - 2);
	}
	if (member->kind == GOLDEN_BYTES)
		count = (uint32_t)golden_read_bytes(at, member->bytes, value);
	if (member->kind == GOLDEN_IDS)
		golden_read_ids((uint32_t *)(void *)at, &count, value);
	if (member->count)
		memcpy(base + member->count, &count, sizeof(count));
}

/* Reads a line into the member that it names; an unknown name fails. */
static void golden_read_line(const struct golden_member *members, uint8_t *base,
			     const char *name, const char *value)
{
	const size_t name_bytes = strcspn(name, "[");
	char *end = NULL;
	uint32_t row;
	uint32_t count;

	while (members->name && (strlen(members->name) != name_bytes ||
				 memcmp(members->name, name, name_bytes) != 0))
		members++;
	if (!members->name)
		fail_msg("a golden file has a member %s that no list names",
			 name);
	if (members->kind != GOLDEN_ROWS) {
		golden_read_value(members, base, value);
		return;
	}
	row = (uint32_t)strtoul(name + name_bytes + 1, &end, 10);
	assert_memory_equal(end, "].", 2);
	golden_read_line(members->members,
			 base + members->offset + row * members->bytes, end + 2,
			 value);
	count = row + 1;
	memcpy(base + members->count, &count, sizeof(count));
}

/* NOLINTEND(misc-no-recursion) */

static void golden_read_all(const struct golden_member *members, void *base,
			    const struct golden *golden)
{
	const char *line = golden->values;

	while (*line) {
		const size_t line_bytes = strcspn(line, "\n");
		char copy[GOLDEN_TEXT_MAX];
		char *value;

		memcpy(copy, line, line_bytes);
		copy[line_bytes] = '\0';
		value = strchr(copy, ' ');
		assert_non_null(value);
		*value++ = '\0';
		golden_read_line(members, base, copy, value);
		line += line_bytes + 1;
	}
}

static FILE *golden_open(const char *name)
{
	char path[128];
	FILE *file;

	(void)snprintf(path, sizeof(path), "tests/golden/%s", name);
	file = fopen(path, "re");
	if (!file)
		fail_msg("%s: run me from the top of the tree", path);
	return file;
}

/* The next message of a file; 0: there is none. *at: what fgets() is at. */
static int golden_next(FILE *file, struct golden *golden, uint32_t *at)
{
	static char line[GOLDEN_TEXT_MAX];
	struct golden_text values = { golden->values, 0 };
	unsigned int offset;
	long before = ftell(file);

	memset(golden, 0, sizeof(*golden));
	while (fgets(line, sizeof(line), file)) {
		const int is_start = !strncmp(line, "message ", 8);

		if (is_start && golden->name[0]) {
			(void)fseek(file, before, SEEK_SET);
			return 1;
		}
		before = ftell(file);
		(*at)++;
		line[strcspn(line, "\n")] = '\0';
		if (is_start) {
			assert_int_equal(sscanf(line, "message %63s %" SCNu32,
						golden->name, &golden->version),
					 2);
			golden->line = *at;
		} else if (golden->name[0] && line[0] && line[0] != '#' &&
			   sscanf(line, "%4x:", &offset) == 1 &&
			   line[4] == ':') {
			assert_int_equal(offset, golden->byte_count);
			golden->byte_count += golden_read_bytes(
				golden->bytes + golden->byte_count,
				GOLDEN_BYTES_MAX - golden->byte_count,
				line + 5);
		} else if (golden->name[0] && line[0] && line[0] != '#') {
			golden_print(&values, "%s\n", line);
		}
	}
	return golden->name[0] != '\0';
}

/* Prints the lines that the file should have. */
static void golden_show(const struct golden *golden, const char *values,
			const uint8_t *bytes, size_t byte_count)
{
	size_t at;

	printf("message %s %" PRIu32 "\n%s", golden->name, golden->version,
	       values);
	for (at = 0; at < byte_count; at++) {
		if (at % 16 == 0)
			printf("%s%04zx:", at ? "\n" : "", at);
		printf(" %02x", bytes[at]);
	}
	printf("\n\n");
}

static void golden_check_bytes(const struct golden *golden,
			       const uint8_t *bytes, size_t byte_count)
{
	if (byte_count == golden->byte_count &&
	    !memcmp(bytes, golden->bytes, byte_count))
		return;
	golden_show(golden, golden->values, bytes, byte_count);
	fail_msg("line %" PRIu32 ": %s is written in other bytes, see above",
		 golden->line, golden->name);
}

/* The values that the message has now, in the words of a file. */
static const char *golden_values(const struct golden_message *message)
{
	static char values[GOLDEN_TEXT_MAX];
	struct golden_text text = { values, 0 };

	values[0] = '\0';
	golden_print_all(&text, message->members, "", message->values);
	return values;
}

static void golden_check_values(const struct golden *golden,
				const struct golden_message *message)
{
	const char *values = golden_values(message);

	if (!strcmp(values, golden->values))
		return;
	golden_show(golden, values, golden->bytes, golden->byte_count);
	fail_msg("line %" PRIu32 ": %s is read as other values, see above",
		 golden->line, golden->name);
}

static void golden_check(const struct golden_message *message,
			 const struct golden *golden)
{
	uint8_t bytes[GOLDEN_BYTES_MAX];
	size_t byte_count;

	memset(message->values, 0, message->values_bytes);
	golden_read_all(message->members, message->values, golden);
	byte_count = message->encode(bytes);
	assert_true(byte_count > 0);
	if (getenv("TEST_GOLDEN_SHOW")) {
		golden_show(golden, golden_values(message), bytes, byte_count);
		return;
	}
	golden_check_bytes(golden, bytes, byte_count);
	golden_check_values(golden, message);
	if (golden->version != message->version)
		fail_msg("line %" PRIu32 ": %s has version %" PRIu32 " now",
			 golden->line, golden->name, message->version);
	if (!message->decode)
		return;
	/* All but what the receiver has of its own: key and nonce. */
	memset((uint8_t *)message->values + message->kept_bytes, 0,
	       message->values_bytes - message->kept_bytes);
	assert_int_equal(message->decode(golden->bytes, golden->byte_count), 0);
	golden_check_values(golden, message);
}

void golden_check_file(const char *name, uint32_t count,
		       const struct golden_message *messages)
{
	static struct golden golden;
	FILE *file = golden_open(name);
	uint32_t line = 0;
	uint32_t found = 0;

	while (golden_next(file, &golden, &line)) {
		const struct golden_message *message = messages;

		while (message->name && strcmp(message->name, golden.name) != 0)
			message++;
		if (!message->name)
			fail_msg("%s, line %" PRIu32 ": what is a %s?", name,
				 golden.line, golden.name);
		golden_check(message, &golden);
		found++;
	}
	(void)fclose(file);
	assert_int_equal(found, count);
}
