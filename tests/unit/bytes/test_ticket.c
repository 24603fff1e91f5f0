/* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

#include <sodium.h>

#include "plugin/bytes/ticket.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"
#include "tests/unit/bytes/making.h"

static const uint8_t key[KVPULL_KEY_BYTES] = { 1, 2, 3 };
static const uint8_t other_key[KVPULL_KEY_BYTES] = { 1, 2, 4 };

static uint32_t ids[KVPULL_TICKET_BLOCKS_MAX];
static uint32_t got_ids[KVPULL_TICKET_BLOCKS_MAX];
static uint8_t scratch[KVPULL_TICKET_BYTES_MAX];
static char text[KVPULL_TICKET_BYTES_MAX];
static size_t text_bytes;
static struct kvpull_ticket ticket;
static struct kvpull_ticket got;

/* Makes a ticket of one rank and one group of 40 contiguous blocks. */
static int ticket_make(void **state)
{
	uint32_t i;

	(void)state;
	memset(&ticket, 0, sizeof(ticket));
	memset(&got, 0xa5, sizeof(got));
	for (i = 0; i < KVPULL_TICKET_BLOCKS_MAX; i++)
		ids[i] = 1000 + i;
	ticket.block_ids = ids;
	ticket.generation = 77;
	ticket.slot = 5;
	ticket.prompt_tokens = 640;
	ticket.last_block_bytes = 123;
	text_set(ticket.engine_id, "prefill-0");
	memset(ticket.compat, 0x11, sizeof(ticket.compat));
	memset(ticket.digest, 0x22, sizeof(ticket.digest));
	ticket.group_count = 1;
	ticket.groups[0] = (struct kvpull_ticket_group){ 16, 0, 40, 0 };
	ticket.rank_count = 1;
	ticket.ranks[0].incarnation = 3;
	ticket.ranks[0].tag = 4;
	text_set(ticket.ranks[0].address, "shm:/tmp/kvpull-0/abcdef");
	return 0;
}

static int encode(const uint8_t *with_key)
{
	return kvpull_ticket_encode(&ticket, with_key, scratch, text,
				    sizeof(text), &text_bytes);
}

static int decode(const uint8_t *with_key)
{
	const int code =
		kvpull_ticket_decode(text, text_bytes, with_key, scratch, &got);

	if (!code || code == KVPULL_EAUTH)
		kvpull_ids_copy(&got.ids, 0, got.ids.count, got_ids);
	return code;
}

static void assert_groups_equal(void)
{
	uint32_t first_id = 0;
	uint32_t i;

	assert_int_equal(got.group_count, ticket.group_count);
	for (i = 0; i < ticket.group_count; i++) {
		const struct kvpull_ticket_group *group = &ticket.groups[i];

		assert_int_equal(got.groups[i].block_tokens,
				 group->block_tokens);
		assert_int_equal(got.groups[i].first_index, group->first_index);
		assert_int_equal(got.groups[i].block_count, group->block_count);
		assert_int_equal(got.groups[i].first_id, first_id);
		assert_memory_equal(got_ids + first_id, ids + group->first_id,
				    group->block_count * sizeof(*ids));
		first_id += group->block_count;
	}
}

static void assert_equal(void)
{
	uint32_t i;

	assert_true(got.generation == ticket.generation);
	assert_int_equal(got.slot, ticket.slot);
	assert_int_equal(got.flags, ticket.flags);
	assert_int_equal(got.prompt_tokens, ticket.prompt_tokens);
	assert_int_equal(got.last_block_bytes, ticket.last_block_bytes);
	assert_string_equal(got.engine_id, ticket.engine_id);
	assert_memory_equal(got.compat, ticket.compat, sizeof(got.compat));
	assert_memory_equal(got.digest, ticket.digest, sizeof(got.digest));
	assert_int_equal(got.payload_bytes, ticket.payload_bytes);
	assert_memory_equal(got.payload, ticket.payload, got.payload_bytes);
	assert_int_equal(got.rank_count, ticket.rank_count);
	for (i = 0; i < ticket.rank_count; i++) {
		assert_true(got.ranks[i].incarnation ==
			    ticket.ranks[i].incarnation);
		assert_true(got.ranks[i].tag == ticket.ranks[i].tag);
		assert_string_equal(got.ranks[i].address,
				    ticket.ranks[i].address);
	}
	assert_groups_equal();
}

static void round_trip(const uint8_t *with_key)
{
	assert_int_equal(encode(with_key), 0);
	assert_int_equal(decode(with_key), 0);
	assert_equal();
}

#define TEST(name) UNIT_TEST_WITH(name, ticket_make, NULL)

/* Encode a body of the test's own making, as any text may be. */
static void text_of_body(const uint8_t *body, size_t body_bytes,
			 const uint8_t *with_key)
{
	static const uint8_t use[] = "kvpull.ticket.v1";
	static uint8_t whole[4096];
	uint8_t derived[16];

	assert_true(body_bytes + KVPULL_CHECKSUM_BYTES <= sizeof(whole));
	memcpy(whole, body, body_bytes);
	assert_int_equal(crypto_generichash_blake2b_salt_personal(
				 derived, sizeof(derived), NULL, 0, with_key,
				 with_key ? KVPULL_KEY_BYTES : 0, NULL, use),
			 0);
	assert_int_equal(crypto_shorthash_siphashx24(whole + body_bytes, whole,
						     body_bytes, derived),
			 0);
	memcpy(text, "kvp2.", 5);
	assert_non_null(
		sodium_bin2base64(text + 5, sizeof(text) - 5, whole,
				  body_bytes + KVPULL_CHECKSUM_BYTES,
				  sodium_base64_VARIANT_URLSAFE_NO_PADDING));
	text_bytes = strlen(text);
}

static int decode_body(const uint8_t *of, size_t of_bytes)
{
	text_of_body(of, of_bytes, NULL);
	return decode(NULL);
}

/* The body that the last encode() made, without its checksum. */
static size_t body_bytes_made(void)
{
	return (text_bytes - 5) * 3 / 4 - KVPULL_CHECKSUM_BYTES;
}

TEST(ticket_round_trips_with_and_without_key)
{
	round_trip(NULL);
	assert_memory_equal(text, "kvp2.", 5);
	round_trip(key);
}

TEST(text_is_safe_in_urls_and_json)
{
	size_t i;

	for (ticket.payload_bytes = 0; ticket.payload_bytes < 6;
	     ticket.payload_bytes++) {
		memset(ticket.payload, 0xfb, ticket.payload_bytes);
		round_trip(NULL);
		for (i = 5; i < text_bytes; i++)
			assert_non_null(strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ"
					       "abcdefghijklmnopqrstuvwxyz"
					       "0123456789-_",
					       text[i]));
	}
}

TEST(groups_of_ids_in_any_order_round_trip)
{
	static const uint32_t odd[] = { UINT32_MAX, 0,       UINT32_MAX - 1,
					UINT32_MAX, 7,       7,
					8,          6,       5,
					0,          1u << 31 };
	const uint32_t count = sizeof(odd) / sizeof(odd[0]);

	memcpy(ids + 50, odd, sizeof(odd));
	ticket.flags = KVPULL_TICKET_READY_NEEDED;
	ticket.generation = UINT64_MAX;
	ticket.slot = KVPULL_TICKET_SLOTS_MAX - 1;
	ticket.group_count = 4;
	ticket.groups[0].block_count = 50;
	ticket.groups[1] = (struct kvpull_ticket_group){ 32, 9, count, 50 };
	ticket.groups[2] =
		(struct kvpull_ticket_group){ 1, UINT32_MAX, 0, 50 + count };
	ticket.groups[3] = (struct kvpull_ticket_group){ 16, 2, 3, 50 + count };
	round_trip(key);
}

/* No two ids that a run could join, each as far as can be from the last. */
static void make_worst(void)
{
	uint32_t i;

	ticket.group_count = KVPULL_GROUPS_MAX;
	for (i = 0; i < KVPULL_TICKET_BLOCKS_MAX; i++)
		ids[i] = i & 1 ? UINT32_MAX - i : i;
	for (i = 0; i < KVPULL_GROUPS_MAX; i++)
		ticket.groups[i] = (struct kvpull_ticket_group){
			UINT32_MAX, 0,
			KVPULL_TICKET_BLOCKS_MAX / KVPULL_GROUPS_MAX,
			i * (KVPULL_TICKET_BLOCKS_MAX / KVPULL_GROUPS_MAX)
		};
	ticket.rank_count = KVPULL_RANKS_MAX;
	for (i = 0; i < KVPULL_RANKS_MAX; i++) {
		ticket.ranks[i].incarnation = UINT64_MAX;
		ticket.ranks[i].tag = UINT64_MAX;
		memset(ticket.ranks[i].address, 'a',
		       KVPULL_TICKET_ADDRESS_BYTES_MAX - 1);
		memcpy(ticket.ranks[i].address, "shm:", 4);
		memcpy(ticket.ranks[i].address + 127, ";verbs:", 7);
	}
	ticket.payload_bytes = KVPULL_PAYLOAD_BYTES_MAX;
	memset(ticket.payload, 0x5a, sizeof(ticket.payload));
	memset(ticket.engine_id, 'e', sizeof(ticket.engine_id) - 1);
}

TEST(largest_ticket_fits_the_bound)
{
	make_worst();
	round_trip(key);
	print_message("largest ticket: %zu bytes of text, bound %u\n",
		      text_bytes, KVPULL_TICKET_BYTES_MAX);
	/* This is the worst case: no id took less than four bytes. */
	assert_true(text_bytes > KVPULL_TICKET_BLOCKS_MAX * 4 * 4 / 3);
	assert_true(text_bytes <= KVPULL_TICKET_BYTES_MAX);
}

TEST(contiguous_blocks_make_a_small_ticket)
{
	size_t one_bytes;

	ticket.groups[0].block_count = 3;
	assert_int_equal(encode(NULL), 0);
	one_bytes = text_bytes;
	ticket.groups[0].block_count = 8192;
	round_trip(NULL);
	print_message("8192 contiguous ids: %zu bytes of text\n", text_bytes);
	assert_true(text_bytes <= one_bytes + 4);
	assert_true(text_bytes < 288);
}

TEST(scattered_blocks_take_a_few_bytes_each)
{
	uint64_t seed = 9;
	uint32_t i;

	for (i = 0; i < 8192; i++)
		ids[i] = (uint32_t)random_next(&seed) % 100000;
	ticket.groups[0].block_count = 8192;
	round_trip(NULL);
	print_message("8192 scattered ids: %zu bytes of text\n", text_bytes);
	assert_true(text_bytes < 8192 * 4 * 4 / 3 + 256);
}

TEST(small_buffer_is_told_what_it_takes)
{
	size_t needed = 0;

	assert_int_equal(encode(NULL), 0);
	memset(text, '#', sizeof(text));
	assert_int_equal(kvpull_ticket_encode(&ticket, NULL, scratch, text,
					      text_bytes - 1, &needed),
			 KVPULL_ETOOSMALL);
	assert_int_equal(needed, text_bytes);
	assert_int_equal(text[0], '#');
	assert_int_equal(
		kvpull_ticket_encode(&ticket, NULL, scratch, NULL, 0, &needed),
		KVPULL_ETOOSMALL);
	/* Exactly enough: no NUL is written behind it. */
	assert_int_equal(kvpull_ticket_encode(&ticket, NULL, scratch, text,
					      needed, &needed),
			 0);
	assert_int_equal(text[needed], '#');
	assert_int_equal(decode(NULL), 0);
}

TEST(every_truncation_is_refused)
{
	static char copy[4096];
	size_t cut;

	assert_int_equal(encode(NULL), 0);
	memcpy(copy, text, text_bytes);
	for (cut = 0; cut < text_bytes; cut++)
		assert_int_equal(
			kvpull_ticket_decode(copy, cut, NULL, scratch, &got),
			cut < 3 ? KVPULL_ENOTMINE : KVPULL_ENOTICKET);
	/* Keyed: short base64 that decodes is a wrong MAC. */
	for (cut = 0; cut < text_bytes; cut++)
		assert_int_not_equal(
			kvpull_ticket_decode(copy, cut, key, scratch, &got), 0);
}

static void flips_are_refused(const uint8_t *with_key)
{
	size_t bit;

	assert_int_equal(encode(with_key), 0);
	for (bit = 0; bit < text_bytes * 8; bit++) {
		text[bit / 8] ^= (char)(1 << bit % 8);
		assert_int_not_equal(decode(with_key), 0);
		text[bit / 8] ^= (char)(1 << bit % 8);
	}
	assert_int_equal(decode(with_key), 0);
}

TEST(every_bit_flip_is_refused)
{
	ticket.payload_bytes = 1; /* the last digit has unused bits */
	for (; ticket.payload_bytes < 4; ticket.payload_bytes++) {
		flips_are_refused(NULL);
		flips_are_refused(key);
	}
}

TEST(every_truncated_body_is_refused)
{
	uint8_t body[1024];
	size_t body_bytes;
	size_t cut;

	ticket.payload_bytes = 3;
	assert_int_equal(encode(NULL), 0);
	body_bytes = body_bytes_made();
	memcpy(body, scratch, body_bytes);
	for (cut = 0; cut < body_bytes; cut++) {
		assert_int_equal(decode_body(body, cut), KVPULL_ENOTICKET);
	}
	assert_int_equal(decode_body(body, body_bytes), 0);
	body[body_bytes] = 0;
	assert_int_equal(decode_body(body, body_bytes + 1), KVPULL_ENOTICKET);
}

TEST(wrong_or_missing_key_is_refused)
{
	assert_int_equal(encode(key), 0);
	assert_int_equal(decode(other_key), KVPULL_EAUTH);
	assert_int_equal(decode(NULL), KVPULL_EAUTH);
	assert_equal();
	assert_int_equal(encode(NULL), 0);
	assert_int_equal(decode(key), KVPULL_EAUTH);
	assert_equal();
}

/* A damaged ticket says nothing, whoever made it: the tag in it may be changed. */
TEST(damaged_ticket_is_not_one_of_another_key)
{
	const uint32_t sum_bytes = KVPULL_CHECKSUM_BYTES * 4 / 3;
	size_t at;

	assert_int_equal(encode(key), 0);
	for (at = 5; at < text_bytes - 2 * sum_bytes - 4; at++) {
		text[at] = text[at] == 'A' ? 'B' : 'A';
		assert_int_equal(decode(other_key), KVPULL_ENOTICKET);
		assert_int_equal(decode(NULL), KVPULL_ENOTICKET);
		assert_int_equal(encode(key), 0);
	}
}

static int decode_text(const char *from)
{
	return kvpull_ticket_decode(from, strlen(from), NULL, scratch, &got);
}

TEST(other_texts_are_told_apart)
{
	assert_int_equal(kvpull_ticket_decode(NULL, 0, NULL, scratch, &got),
			 KVPULL_ENOTMINE);
	assert_int_equal(decode_text("kv"), KVPULL_ENOTMINE);
	assert_int_equal(decode_text("{\"remote_host\":1}"), KVPULL_ENOTMINE);
	assert_int_equal(decode_text("KVP1.AAAA"), KVPULL_ENOTMINE);
	assert_int_equal(decode_text("kvp"), KVPULL_ENOTICKET);
	assert_int_equal(decode_text("kvp2"), KVPULL_ENOTICKET);
	assert_int_equal(decode_text("kvp."), KVPULL_ENOTICKET);
	assert_int_equal(decode_text("kvp2."), KVPULL_ENOTICKET);
	assert_int_equal(decode_text("kvpx.AAAA"), KVPULL_ENOTICKET);
	assert_int_equal(decode_text("kvp1.AAAA"), KVPULL_EVERSION);
	assert_int_equal(decode_text("kvp10."), KVPULL_EVERSION);
	assert_int_equal(decode_text("kvp9."), KVPULL_EVERSION);
	assert_int_equal(decode_text("kvp/."), KVPULL_ENOTICKET);
	assert_int_equal(decode_text("kvp:."), KVPULL_ENOTICKET);
	assert_int_equal(decode_text("kvp2.AAAA=\n"), KVPULL_ENOTICKET);
}

TEST(text_over_the_bound_is_refused)
{
	static char large[KVPULL_TICKET_BYTES_MAX + 1];

	memset(large, 'A', sizeof(large));
	memcpy(large, "kvp2.", 5);
	assert_int_equal(
		kvpull_ticket_decode(large, sizeof(large), NULL, scratch, &got),
		KVPULL_ENOTICKET);
	assert_int_equal(kvpull_ticket_decode(large, sizeof(large) - 1, NULL,
					      scratch, &got),
			 KVPULL_ENOTICKET);
}

/*
 * encode() refuses each of these; each case changes one thing of a good ticket.
 */
#define REFUSED(change)                                                        \
	do {                                                                   \
		ticket_make(state);                                            \
		change;                                                        \
		assert_int_equal(encode(NULL), KVPULL_EINVAL);                 \
	} while (0)

TEST(encode_refuses_broken_bounds)
{
	REFUSED(ticket.rank_count = 0);
	REFUSED(ticket.rank_count = KVPULL_RANKS_MAX + 1);
	REFUSED(ticket.group_count = 0);
	REFUSED(ticket.group_count = KVPULL_GROUPS_MAX + 1);
	REFUSED(ticket.payload_bytes = KVPULL_PAYLOAD_BYTES_MAX + 1);
	REFUSED(ticket.flags = 2);
	REFUSED(ticket.generation = 0);
	REFUSED(ticket.slot = KVPULL_TICKET_SLOTS_MAX);
	REFUSED(ticket.groups[0].block_tokens = 0);
	REFUSED(ticket.groups[0].first_index = UINT32_MAX - 39);
	REFUSED(ticket.groups[0].block_count = KVPULL_TICKET_BLOCKS_MAX + 1);
	REFUSED(ticket.groups[0].first_id = KVPULL_TICKET_BLOCKS_MAX - 39);
	REFUSED(ticket.groups[0].first_id = UINT32_MAX);
	REFUSED(ticket.groups[0].first_id = 1);
	REFUSED(ticket.ranks[0].incarnation = 0);
	REFUSED(ticket.ranks[0].tag = 0);
	REFUSED(ticket.ranks[0].address[0] = '\0');
	REFUSED(ticket.ranks[0].address[5] = '\n');
}

TEST(encode_refuses_too_many_blocks_in_total)
{
	REFUSED(ticket.group_count = 2; ticket.groups[1] = ticket.groups[0];
		ticket.groups[1].first_id = 40;
		ticket.groups[1].block_count = KVPULL_TICKET_BLOCKS_MAX - 39);
	ticket.groups[1].block_count--;
	assert_int_equal(encode(NULL), 0);
}

TEST(encode_refuses_texts_without_end_or_with_control_bytes)
{
	REFUSED(memset(ticket.engine_id, 'a', sizeof(ticket.engine_id)));
	REFUSED(ticket.engine_id[1] = '\n');
	REFUSED(ticket.engine_id[1] = 0x7f);
	REFUSED(memset(ticket.ranks[0].address, 'a',
		       sizeof(ticket.ranks[0].address)));
	ticket_make(state);
	ticket.engine_id[0] = '\0';
	assert_int_equal(encode(NULL), 0);
	text_set(ticket.engine_id, "\xc3\xa9ngine");
	assert_int_equal(encode(NULL), 0);
	assert_int_equal(decode(NULL), 0);
}

/* Offsets of the body that ticket_make's ticket has; see ticket.c. */
#define AT_FLAGS 0
#define AT_GENERATION 4
#define AT_SLOT 12
#define AT_ENGINE_ID 24
#define AT_GROUPS (24 + 2 + 9 + 32)
#define AT_IDS (AT_GROUPS + 1 + 12)
#define AT_RUNS (AT_IDS + 4)
#define AT_ID_BYTES (AT_RUNS + 4)
#define AT_FIRST (AT_ID_BYTES + 1) /* u16 */
#define AT_MORE (AT_FIRST + 2)     /* u16 */
#define AT_RANKS (AT_MORE + 2)

static uint8_t body[1024];
static size_t body_bytes;

/* Decode the good body with value put in little-endian at an offset. */
static int decode_with(size_t at, uint64_t value, size_t value_bytes)
{
	uint8_t changed[sizeof(body)];

	ticket_make(NULL);
	assert_int_equal(encode(NULL), 0);
	body_bytes = body_bytes_made();
	memcpy(changed, scratch, body_bytes);
	value_put(changed + at, value, value_bytes);
	return decode_body(changed, body_bytes);
}

static void refused_with(size_t at, uint64_t value, size_t value_bytes)
{
	assert_int_equal(decode_with(at, value, value_bytes), KVPULL_ENOTICKET);
}

TEST(decode_refuses_broken_bounds)
{
	/* The offsets are right: what is there is what was put there. */
	assert_int_equal(decode_with(AT_GENERATION, 77, 8), 0);
	assert_int_equal(decode_with(AT_SLOT, 5, 4), 0);
	assert_int_equal(decode_with(AT_ENGINE_ID, 9, 2), 0);
	assert_int_equal(decode_with(AT_GROUPS, 1, 1), 0);
	assert_int_equal(decode_with(AT_GROUPS + 9, 40, 4), 0);
	assert_int_equal(decode_with(AT_IDS, 40, 4), 0);
	assert_int_equal(decode_with(AT_RUNS, 1, 4), 0);
	assert_int_equal(decode_with(AT_ID_BYTES, 2, 1), 0);
	assert_int_equal(decode_with(AT_FIRST, 1000, 2), 0);
	assert_int_equal(decode_with(AT_MORE, 39, 2), 0);
	assert_int_equal(decode_with(AT_RANKS, 1, 1), 0);

	refused_with(AT_FLAGS, 2, 4);
	refused_with(AT_GENERATION, 0, 8);
	refused_with(AT_SLOT, KVPULL_TICKET_SLOTS_MAX, 4);
	refused_with(AT_ENGINE_ID, 64, 2);
	refused_with(AT_ENGINE_ID + 2, '\n', 1);
	refused_with(AT_GROUPS, 0, 1);
	refused_with(AT_GROUPS, 9, 1);
	refused_with(AT_GROUPS + 1, 0, 4);
	refused_with(AT_GROUPS + 5, UINT32_MAX - 39, 4);
	refused_with(AT_GROUPS + 9, 65537, 4);
	refused_with(AT_GROUPS + 9, UINT32_MAX, 4);
	refused_with(AT_RANKS, 0, 1);
	refused_with(AT_RANKS, 65, 1);
	refused_with(AT_RANKS + 1, 0, 8);
	refused_with(AT_RANKS + 9, 0, 8);
	refused_with(AT_RANKS + 19, 'S', 1);
	refused_with(body_bytes - 2, 4097, 2);
}

/* All its bytes are there: only the count is over the bound. */
TEST(decode_refuses_one_rank_too_many)
{
	static uint8_t large[4096];
	struct kvpull_wire_writer writer = { large, sizeof(large), 0 };
	uint32_t i;

	assert_int_equal(encode(NULL), 0);
	kvpull_wire_put(&writer, scratch, AT_RANKS);
	kvpull_wire_put_u8(&writer, KVPULL_RANKS_MAX + 1);
	for (i = 0; i <= KVPULL_RANKS_MAX; i++)
		kvpull_fields_put(&writer, &kvpull_ticket_rank_table, 1,
				  &ticket.ranks[0]);
	kvpull_wire_put_u16(&writer, 0);
	assert_true(kvpull_wire_fits(&writer));
	text_of_body(large, writer.used, NULL);
	memset(&got, 0, sizeof(got));
	assert_int_equal(decode(NULL), KVPULL_ENOTICKET);
	/* The payload lies behind the ranks. */
	assert_int_equal(got.payload[0], 0);
}

TEST(decode_refuses_runs_that_do_not_fit)
{
	/* Longer and shorter than the group; none; more than there are. */
	refused_with(AT_MORE, 40, 2);
	refused_with(AT_MORE, 38, 2);
	refused_with(AT_RUNS, 0, 4);
	refused_with(AT_RUNS, UINT32_MAX, 4);
	refused_with(AT_RUNS, 41, 4);
	/* As many runs as ids: their ids are not there. */
	refused_with(AT_RUNS, 40, 4);
	refused_with(AT_ID_BYTES, 0, 1);
	refused_with(AT_ID_BYTES, 1, 1);
	refused_with(AT_ID_BYTES, 3, 1);
	refused_with(AT_ID_BYTES, 5, 1);
	/* The ids are not as many as the groups' blocks together. */
	refused_with(AT_IDS, 39, 4);
	refused_with(AT_IDS, UINT32_MAX, 4);
	/* The same, where the ids alone are good: groups of more and of fewer. */
	refused_with(AT_GROUPS + 9, 41, 4);
	refused_with(AT_GROUPS + 9, 39, 4);
}

/* The good ticket, with one run of 40 ids that begins there. */
static int decode_run(uint32_t first)
{
	struct kvpull_wire_writer writer = { body, sizeof(body), 0 };
	size_t tail_bytes;

	assert_int_equal(encode(NULL), 0);
	tail_bytes = body_bytes_made() - AT_RANKS;
	kvpull_wire_put(&writer, scratch, AT_RUNS);
	kvpull_wire_put_u32(&writer, 1);
	kvpull_wire_put_u8(&writer, 4);
	kvpull_wire_put_u32(&writer, first);
	kvpull_wire_put_u16(&writer, 39);
	kvpull_wire_put(&writer, scratch + AT_RANKS, tail_bytes);
	return decode_body(body, writer.used);
}

TEST(decode_refuses_ids_beyond_32_bits)
{
	assert_int_equal(decode_run(UINT32_MAX - 38), KVPULL_ENOTICKET);
	assert_int_equal(decode_run(UINT32_MAX - 39), 0);
	assert_true(got_ids[39] == UINT32_MAX);
}

TEST(random_bytes_are_refused)
{
	uint64_t seed = 42;
	uint32_t i;

	for (i = 0; i < 100000; i++) {
		uint8_t bytes[96];
		const size_t count = (size_t)(random_next(&seed) % 91);
		size_t at;

		memcpy(bytes, "kvp2.", 5);
		for (at = 5; at < 5 + count; at++)
			bytes[at] = (uint8_t)(random_next(&seed) >> 20);
		assert_int_equal(kvpull_ticket_decode((const char *)bytes,
						      5 + count, NULL, scratch,
						      &got),
				 KVPULL_ENOTICKET);
	}
}

TEST(random_bodies_with_good_checksums_are_refused)
{
	uint64_t seed = 43;
	uint32_t refused = 0;
	uint32_t i;

	assert_int_equal(encode(NULL), 0);
	body_bytes = body_bytes_made();
	memcpy(body, scratch, body_bytes);
	for (i = 0; i < 20000; i++) {
		const uint64_t random = random_next(&seed);
		const size_t at = (size_t)(random >> 32) % body_bytes;
		const uint8_t before = body[at];

		body[at] = (uint8_t)random;
		text_of_body(body, body_bytes, NULL);
		refused += decode(NULL) != 0;
		body[at] = before;
	}
	/* Some bytes may be any: ids, digests. The rest have bounds. */
	assert_in_range(refused, 2000, 19000);
}

TEST(tags_differ_and_are_never_zero)
{
	const uint8_t secret[KVPULL_SECRET_BYTES] = { 1 };
	const uint8_t other[KVPULL_SECRET_BYTES] = { 2 };
	const uint64_t tag = kvpull_ticket_tag(secret, 1, 2);

	assert_true(tag != 0);
	assert_true(tag == kvpull_ticket_tag(secret, 1, 2));
	assert_true(tag != kvpull_ticket_tag(secret, 2, 2));
	assert_true(tag != kvpull_ticket_tag(secret, 1, 3));
	assert_true(tag != kvpull_ticket_tag(other, 1, 2));
	assert_true(kvpull_ticket_tag(secret, 1, UINT64_C(1) << 63) !=
		    kvpull_ticket_tag(secret, 1, 0));
}

/* A ticket without a trace has the same bytes as before traces existed. */
TEST(trace_is_told_and_takes_no_byte_where_there_is_none)
{
	struct kvpull_ticket_scratch *peeked = malloc(sizeof(*peeked));
	struct kvpull_ticket_info info = { .struct_size = sizeof(info) };
	const uint8_t none[KVPULL_TRACE_BYTES] = { 0 };
	size_t without;

	assert_non_null(peeked);
	assert_int_equal(encode(NULL), 0);
	without = text_bytes;
	assert_int_equal(decode(NULL), 0);
	assert_memory_equal(got.trace, none, sizeof(none));
	memset(ticket.trace, 0x33, sizeof(ticket.trace));
	assert_int_equal(encode(NULL), 0);
	/* Id, size and 24 bytes, in base64. */
	assert_in_range(text_bytes - without, 37, 38);
	assert_int_equal(decode(NULL), 0);
	assert_memory_equal(got.trace, ticket.trace, sizeof(got.trace));
	assert_int_equal(kvpull_ticket_peek(text, text_bytes, peeked, &info),
			 0);
	assert_memory_equal(info.trace, ticket.trace, sizeof(info.trace));
	free(peeked);
}
