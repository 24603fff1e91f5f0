/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Golden bytes: what travels between processes, byte for byte as committed in
 * tests/golden/. The values of a file are encoded and must give its bytes; its
 * bytes are decoded and must give its values. So no field can move, in writer
 * and reader at once too, without a change of these files.
 */
#include <sodium.h>

#include "plugin/bytes/give.h"
#include "plugin/bytes/share.h"
#include "plugin/bytes/ticket.h"
#include "tests/unit/bytes/golden.h"

/* ---- the ticket ---- */

struct ticket_values {
	uint8_t key[KVPULL_KEY_BYTES];
	uint32_t key_bytes;
	struct kvpull_ticket ticket;
	uint32_t id_count;
	uint32_t block_ids[KVPULL_TICKET_BLOCKS_MAX];
	char text[4096]; /* all of it, as it travels */
};

static const struct golden_member ticket_group_members[] = {
	GOLDEN(GOLDEN_U32, struct kvpull_ticket_group, block_tokens),
	GOLDEN(GOLDEN_U32, struct kvpull_ticket_group, first_index),
	GOLDEN(GOLDEN_U32, struct kvpull_ticket_group, block_count),
	GOLDEN(GOLDEN_U32, struct kvpull_ticket_group, first_id), GOLDEN_END
};

static const struct golden_member ticket_rank_members[] = {
	GOLDEN(GOLDEN_U64, struct kvpull_ticket_rank, incarnation),
	GOLDEN(GOLDEN_U64, struct kvpull_ticket_rank, tag),
	GOLDEN(GOLDEN_TEXT, struct kvpull_ticket_rank, address), GOLDEN_END
};

static const struct golden_member ticket_members[] = {
	GOLDEN_KEY(struct ticket_values),
	GOLDEN_OF(GOLDEN_U32, struct ticket_values, ticket, flags),
	GOLDEN_OF(GOLDEN_U64, struct ticket_values, ticket, generation),
	GOLDEN_OF(GOLDEN_U32, struct ticket_values, ticket, slot),
	GOLDEN_OF(GOLDEN_U32, struct ticket_values, ticket, prompt_tokens),
	GOLDEN_OF(GOLDEN_U32, struct ticket_values, ticket, last_block_bytes),
	GOLDEN_OF(GOLDEN_TEXT, struct ticket_values, ticket, engine_id),
	GOLDEN_OF(GOLDEN_BYTES, struct ticket_values, ticket, compat),
	GOLDEN_OF(GOLDEN_BYTES, struct ticket_values, ticket, digest),
	GOLDEN_OF(GOLDEN_BYTES, struct ticket_values, ticket, trace),
	GOLDEN_ROWS_OF(struct ticket_values, ticket, groups, ticket.group_count,
		       ticket_group_members),
	GOLDEN_IDS_OF(struct ticket_values, block_ids, id_count),
	GOLDEN_ROWS_OF(struct ticket_values, ticket, ranks, ticket.rank_count,
		       ticket_rank_members),
	{ "payload", GOLDEN_BYTES,
	  offsetof(struct ticket_values, ticket.payload),
	  KVPULL_PAYLOAD_BYTES_MAX,
	  offsetof(struct ticket_values, ticket.payload_bytes), NULL },
	GOLDEN(GOLDEN_TEXT, struct ticket_values, text),
	GOLDEN_END
};

static struct ticket_values ticket_values;
static uint8_t scratch[KVPULL_TICKET_BYTES_MAX];

static size_t ticket_encode(uint8_t *bytes)
{
	struct ticket_values *values = &ticket_values;
	char *text = values->text;
	size_t text_bytes;
	size_t byte_count;

	values->ticket.block_ids = values->block_ids;
	memset(text, 0, sizeof(values->text));
	assert_int_equal(
		kvpull_ticket_encode(
			&values->ticket, values->key_bytes ? values->key : NULL,
			scratch, text, sizeof(values->text) - 1, &text_bytes),
		0);
	assert_int_equal(
		sodium_base642bin(bytes, GOLDEN_BYTES_MAX, text + 5,
				  text_bytes - 5, NULL, &byte_count, NULL,
				  sodium_base64_VARIANT_URLSAFE_NO_PADDING),
		0);
	return byte_count;
}

static int ticket_decode(const uint8_t *bytes, size_t byte_count)
{
	struct ticket_values *values = &ticket_values;
	const struct kvpull_ticket *ticket = &values->ticket;
	int code;

	memcpy(values->text, "kvp2.", 5);
	assert_non_null(sodium_bin2base64(
		values->text + 5, sizeof(values->text) - 5, bytes, byte_count,
		sodium_base64_VARIANT_URLSAFE_NO_PADDING));
	code = kvpull_ticket_decode(values->text, strlen(values->text),
				    values->key_bytes ? values->key : NULL,
				    scratch, &values->ticket);
	if (code)
		return code;
	values->id_count = ticket->ids.count;
	kvpull_ids_copy(&ticket->ids, 0, ticket->ids.count, values->block_ids);
	return 0;
}

/* ---- the handshake ---- */

struct handshake_values {
	uint8_t key[KVPULL_KEY_BYTES];
	uint32_t key_bytes;
	uint8_t their_nonce[KVPULL_NONCE_BYTES]; /* the receiver's */
	union {
		uint8_t nonce[KVPULL_NONCE_BYTES];
		struct kvpull_hello hello;
		struct kvpull_welcome welcome;
		struct kvpull_refusal refusal;
		struct kvpull_reader_hello reader;
		struct kvpull_share_welcome share;
	};
};

static struct handshake_values handshake_values;

static const uint8_t *handshake_key(void)
{
	return handshake_values.key_bytes ? handshake_values.key : NULL;
}

static const struct golden_member challenge_members[] = {
	GOLDEN(GOLDEN_BYTES, struct handshake_values, nonce), GOLDEN_END
};

static size_t challenge_encode(uint8_t *bytes)
{
	return kvpull_handshake_put_challenge(bytes, GOLDEN_BYTES_MAX,
					      handshake_values.nonce);
}

static int challenge_decode(const uint8_t *bytes, size_t byte_count)
{
	return kvpull_handshake_get_challenge(bytes, byte_count,
					      handshake_values.nonce);
}

/* How a sealed message of the handshake becomes bytes, and back. */
#define HANDSHAKE(name, module, message, encode)                               \
	static size_t encode(uint8_t *bytes)                                   \
	{                                                                      \
		return module##_put_##message(                                 \
			bytes, GOLDEN_BYTES_MAX, &handshake_values.name,       \
			handshake_key(), handshake_values.their_nonce);        \
	}                                                                      \
	static int name##_decode(const uint8_t *bytes, size_t byte_count)      \
	{                                                                      \
		return module##_get_##message(                                 \
			bytes, byte_count, handshake_key(),                    \
			handshake_values.their_nonce, &handshake_values.name); \
	}

static const struct golden_member group_members[] = {
	GOLDEN(GOLDEN_U32, struct kvpull_group, block_tokens),
	GOLDEN(GOLDEN_U32, struct kvpull_group, kind),
	GOLDEN(GOLDEN_U32, struct kvpull_group, head_count), GOLDEN_END
};

#define HELLO(kind, field)                                                     \
	GOLDEN_OF(kind, struct handshake_values, hello, field)
#define COMPAT(kind, field)                                                    \
	GOLDEN_OF(kind, struct handshake_values, hello.compat, field)
#define WELCOME(kind, field)                                                   \
	GOLDEN_OF(kind, struct handshake_values, welcome, field)

static const struct golden_member hello_members[] = {
	GOLDEN_KEY(struct handshake_values),
	GOLDEN(GOLDEN_BYTES, struct handshake_values, their_nonce),
	HELLO(GOLDEN_U64, instance),
	HELLO(GOLDEN_U64, incarnation),
	HELLO(GOLDEN_U64, wanted),
	HELLO(GOLDEN_U32, rank),
	HELLO(GOLDEN_U32, rank_count),
	HELLO(GOLDEN_TEXT, engine_id),
	HELLO(GOLDEN_BYTES, nonce),
	HELLO(GOLDEN_U64, wire_layout),
	HELLO(GOLDEN_U32, pid),
	COMPAT(GOLDEN_TEXT, model),
	COMPAT(GOLDEN_TEXT, revision),
	COMPAT(GOLDEN_TEXT, weights),
	COMPAT(GOLDEN_TEXT, dtype),
	COMPAT(GOLDEN_TEXT, layout),
	COMPAT(GOLDEN_TEXT, attention),
	COMPAT(GOLDEN_TEXT, config),
	COMPAT(GOLDEN_TEXT, engine),
	COMPAT(GOLDEN_U32, layer_count),
	COMPAT(GOLDEN_U32, head_count),
	COMPAT(GOLDEN_U32, head_bytes),
	COMPAT(GOLDEN_U32, replicated),
	GOLDEN_ROWS_OF(struct handshake_values, hello.compat, groups,
		       hello.compat.group_count, group_members),
	GOLDEN_END
};

HANDSHAKE(hello, kvpull_handshake, hello, hello_put)

/* The layout is ours: it changes with any table, and with the ring. */
static size_t hello_encode(uint8_t *bytes)
{
	handshake_values.hello.wire_layout =
		kvpull_handshake_layout(KVPULL_WIRE_VERSION);
	return hello_put(bytes);
}

/* The bytes that tickets carry as `compat`. */
static size_t record_encode(uint8_t *bytes)
{
	kvpull_compat_digest(&handshake_values.hello.compat, bytes);
	return KVPULL_COMPAT_BYTES;
}

#define REGION(kind_, field)                                                   \
	{                                                                      \
#field, kind_,                                                 \
			offsetof(struct kvpull_welcome, regions[0].field) -    \
				offsetof(struct kvpull_welcome, regions),      \
			8, 0, NULL                                             \
	}

static const struct golden_member region_members[] = {
	REGION(GOLDEN_U32, kind),    REGION(GOLDEN_U32, fd_index),
	REGION(GOLDEN_U64, address), REGION(GOLDEN_U64, fd_offset),
	REGION(GOLDEN_U64, bytes),   GOLDEN_END
};

static const struct golden_member cache_members[] = {
	GOLDEN(GOLDEN_U32, struct kvpull_cache, region_index),
	GOLDEN(GOLDEN_U32, struct kvpull_cache, group_index),
	GOLDEN(GOLDEN_U32, struct kvpull_cache, layer_first),
	GOLDEN(GOLDEN_U32, struct kvpull_cache, layer_count),
	GOLDEN(GOLDEN_U64, struct kvpull_cache, offset),
	GOLDEN(GOLDEN_U64, struct kvpull_cache, layer_stride),
	GOLDEN(GOLDEN_U64, struct kvpull_cache, block_stride),
	GOLDEN(GOLDEN_U64, struct kvpull_cache, row_stride),
	GOLDEN(GOLDEN_U64, struct kvpull_cache, head_stride),
	GOLDEN(GOLDEN_U32, struct kvpull_cache, block_count),
	GOLDEN(GOLDEN_U32, struct kvpull_cache, row_count),
	GOLDEN(GOLDEN_U32, struct kvpull_cache, head_first),
	GOLDEN(GOLDEN_U32, struct kvpull_cache, head_count),
	GOLDEN(GOLDEN_U32, struct kvpull_cache, head_bytes),
	GOLDEN_END
};

static const struct golden_member device_members[] = {
	GOLDEN(GOLDEN_BYTES, struct kvpull_device_view, uuid),
	GOLDEN(GOLDEN_U64, struct kvpull_device_view, granularity),
	GOLDEN(GOLDEN_U64, struct kvpull_device_view, part_bytes),
	GOLDEN(GOLDEN_U32, struct kvpull_device_view, part_count),
	GOLDEN(GOLDEN_U32, struct kvpull_device_view, fd_index),
	GOLDEN_END
};

static const struct golden_member welcome_members[] = {
	GOLDEN_KEY(struct handshake_values),
	GOLDEN(GOLDEN_BYTES, struct handshake_values, their_nonce),
	WELCOME(GOLDEN_U64, incarnation),
	WELCOME(GOLDEN_U64, lease_ns),
	WELCOME(GOLDEN_U32, slot_count),
	WELCOME(GOLDEN_U32, tp_rank),
	WELCOME(GOLDEN_U32, tp_size),
	WELCOME(GOLDEN_U32, pp_rank),
	WELCOME(GOLDEN_U32, pp_size),
	WELCOME(GOLDEN_U32, pid),
	WELCOME(GOLDEN_U64, entries_address),
	WELCOME(GOLDEN_TEXT, engine_id),
	GOLDEN_ROWS_OF(struct handshake_values, welcome, regions,
		       welcome.region_count, region_members),
	GOLDEN_ROWS_OF(struct handshake_values, welcome, caches,
		       welcome.cache_count, cache_members),
	GOLDEN_ROWS_OF(struct handshake_values, welcome, devices,
		       welcome.device_count, device_members),
	GOLDEN_END
};

HANDSHAKE(welcome, kvpull_handshake, welcome, welcome_encode)

#define READER(kind, field)                                                    \
	GOLDEN_OF(kind, struct handshake_values, reader, field)
#define NAMING(kind, field)                                                    \
	GOLDEN_OF(kind, struct handshake_values, reader.naming, field)
#define SHARE(kind, field)                                                     \
	GOLDEN_OF(kind, struct handshake_values, share, field)

static const struct golden_member reader_members[] = {
	GOLDEN_KEY(struct handshake_values),
	GOLDEN(GOLDEN_BYTES, struct handshake_values, their_nonce),
	READER(GOLDEN_U64, incarnation),
	READER(GOLDEN_TEXT, engine_id),
	READER(GOLDEN_BYTES, nonce),
	READER(GOLDEN_U32, pid),
	NAMING(GOLDEN_TEXT, model),
	NAMING(GOLDEN_TEXT, revision),
	NAMING(GOLDEN_TEXT, weights),
	NAMING(GOLDEN_TEXT, dtype),
	NAMING(GOLDEN_TEXT, layout),
	NAMING(GOLDEN_TEXT, attention),
	NAMING(GOLDEN_TEXT, config),
	NAMING(GOLDEN_TEXT, engine),
	NAMING(GOLDEN_TEXT, hash),
	NAMING(GOLDEN_TEXT, seed),
	NAMING(GOLDEN_U32, layer_count),
	NAMING(GOLDEN_U32, head_count),
	NAMING(GOLDEN_U32, head_bytes),
	NAMING(GOLDEN_U32, replicated),
	NAMING(GOLDEN_U32, tp_size),
	GOLDEN_END
};

HANDSHAKE(reader, kvpull_share, hello, reader_encode)

static const struct golden_member share_members[] = {
	GOLDEN_KEY(struct handshake_values),
	GOLDEN(GOLDEN_BYTES, struct handshake_values, their_nonce),
	SHARE(GOLDEN_U64, incarnation),
	SHARE(GOLDEN_U64, chunk_bytes),
	SHARE(GOLDEN_U64, guards_address),
	SHARE(GOLDEN_U32, entry_count),
	SHARE(GOLDEN_U32, chunk_count),
	SHARE(GOLDEN_U32, slot_count),
	SHARE(GOLDEN_U32, pid),
	SHARE(GOLDEN_BYTES, namespace_digest),
	SHARE(GOLDEN_BYTES, secret),
	SHARE(GOLDEN_TEXT, engine_id),
	GOLDEN_ROWS_OF(struct handshake_values, share, regions,
		       share.region_count, region_members),
	GOLDEN_END
};

HANDSHAKE(share, kvpull_share, welcome, share_encode)

static const struct golden_member refusal_members[] = {
	GOLDEN_OF(GOLDEN_I32, struct handshake_values, refusal, code),
	GOLDEN_OF(GOLDEN_TEXT, struct handshake_values, refusal, field),
	GOLDEN_OF(GOLDEN_TEXT, struct handshake_values, refusal, ours),
	GOLDEN_OF(GOLDEN_TEXT, struct handshake_values, refusal, theirs),
	GOLDEN_END
};

static size_t refusal_encode(uint8_t *bytes)
{
	return kvpull_handshake_put_refusal(bytes, GOLDEN_BYTES_MAX,
					    &handshake_values.refusal);
}

static int refusal_decode(const uint8_t *bytes, size_t byte_count)
{
	return kvpull_handshake_get_refusal(bytes, byte_count,
					    &handshake_values.refusal);
}

/* ---- tickets given back ---- */

struct give_values {
	struct kvpull_give give;
};

static struct give_values give_values;

static const struct golden_member give_words[] = {
	GOLDEN(GOLDEN_U32, struct kvpull_give_word, slot),
	GOLDEN(GOLDEN_U64, struct kvpull_give_word, generation),
	GOLDEN(GOLDEN_U64, struct kvpull_give_word, tag), GOLDEN_END
};

static const struct golden_member give_members[] = {
	GOLDEN_ROWS_OF(struct give_values, give, words, give.word_count,
		       give_words),
	GOLDEN_END
};

static size_t give_encode(uint8_t *bytes)
{
	give_values.give.magic = KVPULL_GIVE_MAGIC;
	return kvpull_give_put(bytes, GOLDEN_BYTES_MAX, &give_values.give);
}

static int give_decode(const uint8_t *bytes, size_t byte_count)
{
	return kvpull_give_get(bytes, byte_count, &give_values.give);
}

/* ---- the files ---- */

static const struct golden_message messages[] = {
	GOLDEN_SEALED(ticket, ticket_values, KVPULL_TICKET_VERSION,
		      offsetof(struct ticket_values, ticket)),
	GOLDEN_MESSAGE(challenge, handshake_values, KVPULL_WIRE_VERSION),
	GOLDEN_SEALED(hello, handshake_values, KVPULL_WIRE_VERSION,
		      offsetof(struct handshake_values, hello)),
	{ "record", hello_members, &handshake_values, sizeof(handshake_values),
	  record_encode, NULL, KVPULL_WIRE_VERSION, 0 },
	GOLDEN_SEALED(welcome, handshake_values, KVPULL_WIRE_VERSION,
		      offsetof(struct handshake_values, welcome)),
	GOLDEN_MESSAGE(refusal, handshake_values, KVPULL_WIRE_VERSION),
	GOLDEN_SEALED(reader, handshake_values, KVPULL_WIRE_VERSION,
		      offsetof(struct handshake_values, reader)),
	GOLDEN_SEALED(share, handshake_values, KVPULL_WIRE_VERSION,
		      offsetof(struct handshake_values, share)),
	GOLDEN_MESSAGE(give, give_values, 1),
	GOLDEN_END
};

UNIT_TEST(tickets_are_as_committed)
{
	golden_check_file("ticket.txt", 3, messages);
}

UNIT_TEST(shares_are_as_committed)
{
	golden_check_file("share.txt", 3, messages);
}

UNIT_TEST(handshakes_are_as_committed)
{
	golden_check_file("handshake.txt", 8, messages);
}

UNIT_TEST(give_backs_are_as_committed_for_ever)
{
	golden_check_file("give.txt", 1, messages);
}
