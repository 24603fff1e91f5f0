/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets of a newer version, and what a look at any text tells. */
#include <stdlib.h>
#include <string.h>

#include "plugin/bytes/ticket.h"
#include "tests/lib/newer.h"
#include "tests/lib/unit.h"

static const uint32_t ids[2] = { 5, 9 };
static struct kvpull_ticket ticket;
static struct kvpull_ticket_scratch scratch;
static char text[NEWER_TICKET_BYTES_MAX * 2];
static size_t text_bytes;

static int encode(void)
{
	return kvpull_ticket_encode(&ticket, NULL, scratch.body, text,
				    sizeof(text), &text_bytes);
}

static int setup(void **state)
{
	(void)state;
	memset(&ticket, 0, sizeof(ticket));
	ticket.generation = 7;
	ticket.slot = 3;
	ticket.prompt_tokens = 32;
	ticket.group_count = 1;
	ticket.groups[0] = (struct kvpull_ticket_group){ .block_tokens = 16,
							 .block_count = 2 };
	ticket.rank_count = 1;
	ticket.ranks[0] = (struct kvpull_ticket_rank){ .incarnation = 1,
						       .tag = 2,
						       .address = "shm:here" };
	memcpy(ticket.engine_id, "prefill-0", 10);
	ticket.block_ids = ids;
	return encode();
}

#define TEST(name) UNIT_TEST_WITH(name, setup, NULL)

static int decode(void)
{
	return kvpull_ticket_decode(text, text_bytes, NULL, scratch.body,
				    &scratch.ticket);
}

static int peek(struct kvpull_ticket_info *info)
{
	*info = (struct kvpull_ticket_info){ .struct_size = sizeof(*info) };
	return kvpull_ticket_peek(text, text_bytes, &scratch, info);
}

TEST(newer_ticket_is_refused_by_the_name_of_its_field)
{
	struct kvpull_ticket_info info;

	assert_int_equal(decode(), 0);
	assert_string_equal(scratch.ticket.unknown, "");
	text_bytes = newer_ticket(&ticket, text, sizeof(text));
	assert_int_equal(decode(), KVPULL_EVERSION);
	assert_string_equal(scratch.ticket.unknown, NEWER_FIELD);
	assert_int_equal(peek(&info), KVPULL_EVERSION);
	assert_int_equal(info.generation, 0);
	/* Another text's name is not the next one's. */
	memcpy(text, "kvp9.", 5);
	assert_int_equal(decode(), KVPULL_EVERSION);
	assert_string_equal(scratch.ticket.unknown, "");
}

TEST(look_at_a_ticket_tells_what_it_says)
{
	struct kvpull_ticket_info info;

	assert_int_equal(peek(&info), 0);
	assert_int_equal(info.version, KVPULL_TICKET_VERSION);
	assert_int_equal(info.rank_count, 1);
	assert_int_equal(info.prompt_tokens, 32);
	assert_int_equal(info.payload_bytes, 0);
	assert_int_equal(info.generation, 7);
	assert_int_equal(info.slot, 3);
	assert_int_equal(info.block_count, 2);
}

TEST(look_at_another_text_says_what_it_is_not)
{
	struct kvpull_ticket_info info;

	assert_int_equal(kvpull_ticket_peek(NULL, 0, &scratch, &info),
			 KVPULL_EINVAL);
	text[text_bytes / 2] ^= 1;
	assert_int_equal(peek(&info), KVPULL_ENOTICKET);
	assert_int_equal(info.generation, 0);
	text_bytes = 5;
	assert_int_equal(peek(&info), KVPULL_ENOTICKET);
	memcpy(text, "kvp1.", 5);
	assert_int_equal(peek(&info), KVPULL_EVERSION);
	text_bytes = 2;
	assert_int_equal(peek(&info), KVPULL_ENOTMINE);
	text_bytes = 5;
	text[0] = 'x';
	assert_int_equal(peek(&info), KVPULL_ENOTMINE);
}

TEST(ticket_without_blocks_or_of_too_many_groups_is_not_made)
{
	ticket.group_count = KVPULL_GROUPS_MAX + 1;
	assert_int_equal(encode(), KVPULL_EINVAL);
	ticket.group_count = 1;
	ticket.block_ids = NULL;
	assert_int_equal(encode(), KVPULL_EINVAL);
	ticket.block_ids = ids;
	/* Ids of a group that do not begin where the last one's end. */
	ticket.groups[0].first_id = 1;
	assert_int_equal(encode(), KVPULL_EINVAL);
}
