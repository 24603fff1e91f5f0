/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of messages, plugin/bytes/MESSAGES.md, is made from the tables that
 * write and read them. TEST_GOLDEN_SHOW=1 writes what it has to say to
 * build/MESSAGES.md instead.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/bytes/give.h"
#include "plugin/bytes/share.h"
#include "plugin/bytes/step.h"
#include "plugin/bytes/ticket.h"
#include "tests/lib/unit.h"
#include "verbs/frame.h"

#define PAGE_BYTES_MAX 65536u
#define PAGE "plugin/bytes/MESSAGES.md"

static const char *const type_names[] = {
	[KVPULL_FIELD_U8] = "u8",         [KVPULL_FIELD_U16] = "u16",
	[KVPULL_FIELD_U32] = "u32",       [KVPULL_FIELD_U64] = "u64",
	[KVPULL_FIELD_VARINT] = "varint", [KVPULL_FIELD_ZIGZAG] = "zigzag",
	[KVPULL_FIELD_BYTES] = "bytes",   [KVPULL_FIELD_TEXT] = "text",
	[KVPULL_FIELD_BLOB] = "blob",     [KVPULL_FIELD_ONE] = "struct",
	[KVPULL_FIELD_ROWS] = "u8 rows",  [KVPULL_FIELD_ROWS16] = "u16 rows",
	[KVPULL_FIELD_IDS] = "ids",
};

static const struct {
	const struct kvpull_table *table;
	const char *text;
} chapters[] = {
	{ &kvpull_ticket_table,
	  "`kvp2.` and base64url of it and 16 bytes of checksum; with a key, 16 bytes of MAC follow." },
	{ &kvpull_head_table,
	  "Before each message of the handshake. Kind 1 is a challenge, 2 a hello, 3 a welcome, 4 a refusal, 5 a reader, 6 a share." },
	{ &kvpull_challenge_table, "P to D, when D has connected." },
	{ &kvpull_hello_table, "D to P; 16 bytes of MAC end it." },
	{ &kvpull_welcome_table, "P to D; 16 bytes of MAC end it." },
	{ &kvpull_refusal_table,
	  "Instead of a welcome; or D's answer to one." },
	{ &kvpull_reader_hello_table,
	  "D to P, instead of a hello: reads by content; 16 bytes of MAC end it." },
	{ &kvpull_share_welcome_table,
	  "P to D, instead of a welcome: regions[0] is the directory, regions[1] the chunks; 16 bytes of MAC end it." },
	{ &kvpull_give_table,
	  "D to P, by a consumer that is not let in: slot, generation and tag of each ticket that it gives back. Alone on its call, instead of a hello, or as private data of the CM. It never changes; what follows it is padding." },
	{ &kvpull_step_table,
	  "Scheduler half to workers: u32 magic, u8 version, then this and each command behind u32 bytes of its own." },
	{ &kvpull_command_table,
	  "Kinds: 1 hold, 2 end, 3 claim, 4 pull, 5 abort, 6 release." },
	{ &kvpull_result_header_table,
	  "Worker to the scheduler half, likewise, before its results." },
	{ &kvpull_result_table, "Kinds: 1 rank, 2 hold ended, 3 pull ended." },
	{ &kvpull_greeting_table,
	  "Over a fabric: private data of the CM, either side to the other. Kind 1 is a call and its answer, 2 one more queue pair: lane counts those of the rail. Kinds 3 to 6 refuse: the token is unknown, there is no room, the caller is in none of the networks, its greeting is of another version or none." },
	{ &kvpull_frame_table,
	  "Before each payload of a SEND. Kinds: 1 a piece of the handshake, 2 of keys, 3 a note, 4 a heartbeat, 5 an acknowledgement alone. A note's offset is its number." },
	{ &kvpull_record_table,
	  "Payload of one frame. Kind 1 is a claim, 2 a release, 3 says that its sender makes room for others." },
	{ &kvpull_keys_table,
	  "P to D that was let in, by each queue pair: where it may read, and how many queue pairs it may have by each of its rails. A key is of one slice, which ends where an address is a multiple of 1 << mr_shift; slices follow each other as the regions do." },
};

static char page[PAGE_BYTES_MAX];
static char committed[PAGE_BYTES_MAX];
static size_t used;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list arguments;
	int printed;

	va_start(arguments, format);
	printed =
		vsnprintf(page + used, sizeof(page) - used, format, arguments);
	va_end(arguments);
	assert_true(printed >= 0 && used + (size_t)printed < sizeof(page));
	used += (size_t)printed;
}

/* Bytes of text and blobs, the number itself, rows, ids. */
static void say_bounds(const struct kvpull_field *field)
{
	uint64_t max = field->max;

	if (field->type == KVPULL_FIELD_BYTES) {
		say("%" PRIu32 " bytes", field->size);
		return;
	}
	if (field->type == KVPULL_FIELD_TEXT)
		max = field->size - 1;
	if (field->type == KVPULL_FIELD_BLOB)
		max = field->size;
	if (field->min && max)
		say("%" PRIu64 " .. %" PRIu64, field->min, max);
	else if (max)
		say("at most %" PRIu64, max);
	else if (field->min)
		say("at least %" PRIu64, field->min);
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as our own tables nest. */
static void say_table(const struct kvpull_table *table, const char *prefix)
{
	char inner[96];
	uint32_t i;
	uint32_t kind;

	for (i = 0; i < table->field_count; i++) {
		const struct kvpull_field *field = &table->fields[i];

		say("| `%s%s` | %s | ", prefix, field->name,
		    type_names[field->type]);
		say_bounds(field);
		say(" |");
		for (kind = 0; kind < 32; kind++)
			if (field->kinds >> kind & 1)
				say(" kind %" PRIu32, kind);
		if (field->since > 1)
			say(" since version %u,", field->since);
		if (field->id)
			say(" %s, id %u",
			    field->is_required ? "required" : "optional",
			    field->id);
		say(" |\n");
		if (!field->rows)
			continue;
		(void)snprintf(inner, sizeof(inner), "%s%s%s.", prefix,
			       field->name,
			       field->type == KVPULL_FIELD_ONE ? "" : "[]");
		say_table(field->rows, inner);
	}
}

static void page_make(void)
{
	size_t i;

	used = 0;
	say("# Messages\n\nMade from their tables; `tests/unit/bytes/test_messages.c` holds this page to them. Numbers are little-endian; a text is u16 bytes and the bytes, a blob likewise; ids are those of `include/base/ids.h`. Fields of later versions follow as `include/base/fields.h` says. This is version %u.\n",
	    KVPULL_WIRE_VERSION);
	for (i = 0; i < sizeof(chapters) / sizeof(chapters[0]); i++) {
		say("\n## %s\n\n%s\n\n| field | type | bounds | where |\n| --- | --- | --- | --- |\n",
		    chapters[i].table->name, chapters[i].text);
		say_table(chapters[i].table, "");
	}
}

UNIT_TEST(page_is_what_the_tables_say)
{
	const char *path =
		getenv("TEST_GOLDEN_SHOW") ? "build/MESSAGES.md" : NULL;
	FILE *file = fopen(path ? path : PAGE, path ? "we" : "re");

	page_make();
	assert_non_null(file);
	if (path) {
		assert_int_equal(fwrite(page, 1, used, file), used);
	} else {
		const size_t bytes =
			fread(committed, 1, sizeof(committed) - 1, file);

		committed[bytes] = '\0';
	}
	assert_int_equal(fclose(file), 0);
	if (!path)
		assert_string_equal(committed, page);
}
