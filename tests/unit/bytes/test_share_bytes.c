/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake of a reader: what is refused, by name, and what is not taken. */
#include <stdio.h>
#include <string.h>

#include "plugin/bytes/share.h"
#include "tests/lib/unit.h"

static const uint8_t key[KVPULL_KEY_BYTES] = { 1, 2, 3 };
static const uint8_t other_key[KVPULL_KEY_BYTES] = { 1, 2, 4 };
static const uint8_t nonce[KVPULL_NONCE_BYTES] = { 5, 6, 7 };
static const uint8_t other_nonce[KVPULL_NONCE_BYTES] = { 5, 6, 8 };

static uint8_t bytes[4096];

static struct kvpull_reader_hello hello_make(void)
{
	return (struct kvpull_reader_hello){
		.sealed.version = KVPULL_WIRE_VERSION,
		.naming = { .model = "llama",
			    .weights = "1",
			    .dtype = "float16",
			    .layout = "LBHNC",
			    .hash = "sha256",
			    .layer_count = 2,
			    .tp_size = 1 },
		.incarnation = 7,
		.engine_id = "decode-0",
		.pid = 42,
	};
}

static struct kvpull_share_welcome welcome_make(void)
{
	return (struct kvpull_share_welcome){
		.sealed.version = KVPULL_WIRE_VERSION,
		.incarnation = 7,
		.chunk_bytes = 4096,
		.entry_count = 64,
		.chunk_count = 16,
		.slot_count = 2,
		.region_count = KVPULL_SHARE_REGIONS,
		.secret = { 1, 2, 3 },
		.namespace_digest = { 4, 5, 6 },
		.engine_id = "prefill-0",
		.regions = { { .address = 4096, .bytes = 4096 },
			     { .address = 65536, .bytes = 65536 } },
	};
}

static size_t put_hello(const struct kvpull_reader_hello *hello,
			const uint8_t *with_key)
{
	return kvpull_share_put_hello(bytes, sizeof(bytes), hello, with_key,
				      nonce);
}

static size_t put_welcome(const struct kvpull_share_welcome *welcome,
			  const uint8_t *with_key)
{
	return kvpull_share_put_welcome(bytes, sizeof(bytes), welcome, with_key,
					nonce);
}

UNIT_TEST(both_messages_round_trip_with_and_without_key)
{
	const struct kvpull_reader_hello hello = hello_make();
	const struct kvpull_share_welcome welcome = welcome_make();
	const uint8_t *const keys[] = { NULL, key };
	struct kvpull_reader_hello got_hello;
	struct kvpull_share_welcome got_welcome;
	size_t byte_count;
	int at;

	for (at = 0; at < 2; at++) {
		byte_count = put_hello(&hello, keys[at]);
		assert_int_equal(kvpull_handshake_kind(bytes, byte_count),
				 KVPULL_MESSAGE_READER);
		assert_int_equal(kvpull_share_get_hello(bytes, byte_count,
							keys[at], nonce,
							&got_hello),
				 0);
		assert_memory_equal(&got_hello, &hello, sizeof(hello));
		byte_count = put_welcome(&welcome, keys[at]);
		assert_int_equal(kvpull_handshake_kind(bytes, byte_count),
				 KVPULL_MESSAGE_SHARE);
		assert_int_equal(kvpull_share_get_welcome(bytes, byte_count,
							  keys[at], nonce,
							  &got_welcome),
				 0);
		assert_memory_equal(&got_welcome, &welcome, sizeof(welcome));
	}
}

UNIT_TEST(another_key_nonce_or_message_is_not_taken)
{
	static const struct {
		const uint8_t *key;
		const uint8_t *nonce;
	} others[] = { { other_key, nonce },
		       { NULL, nonce },
		       { key, other_nonce } };
	const struct kvpull_reader_hello hello = hello_make();
	struct kvpull_reader_hello got;
	struct kvpull_share_welcome welcome;
	struct kvpull_hello connectors;
	const size_t byte_count = put_hello(&hello, key);
	size_t at;

	for (at = 0; at < 3; at++)
		assert_int_equal(kvpull_share_get_hello(bytes, byte_count,
							others[at].key,
							others[at].nonce, &got),
				 KVPULL_EAUTH);
	assert_int_equal(kvpull_share_get_welcome(bytes, byte_count, key, nonce,
						  &welcome),
			 KVPULL_EPROTO);
	assert_int_equal(kvpull_handshake_get_hello(bytes, byte_count, key,
						    nonce, &connectors),
			 KVPULL_EPROTO);
	for (at = 0; at < byte_count; at++) {
		bytes[at] ^= 1;
		assert_int_not_equal(kvpull_share_get_hello(bytes, byte_count,
							    key, nonce, &got),
				     0);
		bytes[at] ^= 1;
		assert_int_not_equal(
			kvpull_share_get_hello(bytes, at, key, nonce, &got), 0);
	}
}

/* Changes one thing of a good welcome: the encoder says no. */
#define REFUSED(change)                                                        \
	do {                                                                   \
		struct kvpull_share_welcome welcome = welcome_make();          \
                                                                               \
		change;                                                        \
		assert_int_equal(put_welcome(&welcome, NULL), 0);              \
	} while (0)

UNIT_TEST(a_share_out_of_bounds_is_not_written)
{
	REFUSED(welcome.incarnation = 0);
	REFUSED(welcome.chunk_bytes = 0);
	REFUSED(welcome.chunk_count = 0);
	REFUSED(welcome.chunk_count = KVPULL_SHARE_PLACES_MAX + 1);
	REFUSED(welcome.entry_count = KVPULL_SHARE_ENTRIES_MAX + 1);
	REFUSED(welcome.region_count = 1);
	REFUSED(welcome.regions[1].kind = KVPULL_REGION_DEVICE);
	REFUSED(welcome.regions[1].address = UINT64_MAX);
}

UNIT_TEST(another_namespace_is_refused_by_the_name_of_what_differs)
{
	const struct kvpull_share_naming ours = hello_make().naming;
	struct kvpull_share_naming theirs = ours;
	struct kvpull_refusal refusal;

	assert_int_equal(kvpull_share_naming_compare(&ours, &theirs, &refusal),
			 0);
	theirs.weights[0] = '2';
	assert_int_equal(kvpull_share_naming_compare(&ours, &theirs, &refusal),
			 KVPULL_EREJECTED);
	assert_int_equal(refusal.code, KVPULL_EREJECTED);
	assert_string_equal(refusal.field, "weights");
	assert_string_equal(refusal.ours, "1");
	assert_string_equal(refusal.theirs, "2");
	theirs = ours;
	theirs.tp_size = 4;
	assert_int_equal(kvpull_share_naming_compare(&ours, &theirs, &refusal),
			 KVPULL_EREJECTED);
	assert_string_equal(refusal.field, "tp_size");
	assert_string_equal(refusal.theirs, "4");
}

UNIT_TEST(digests_that_differ_are_refused_and_shown)
{
	uint8_t ours[KVPULL_SHARE_NAMESPACE_BYTES] = { 0xab };
	uint8_t theirs[KVPULL_SHARE_NAMESPACE_BYTES] = { 0xab };
	struct kvpull_refusal refusal;

	assert_int_equal(kvpull_share_namespace_compare(ours, theirs, &refusal),
			 0);
	theirs[31] = 1;
	assert_int_equal(kvpull_share_namespace_compare(ours, theirs, &refusal),
			 KVPULL_EREJECTED);
	assert_string_equal(refusal.field, "namespace");
	assert_string_equal(
		refusal.ours,
		"ab00000000000000000000000000000000000000000000000000000000000000");
	assert_string_equal(
		refusal.theirs,
		"ab00000000000000000000000000000000000000000000000000000000000001");
	/* A refusal fits into its message. */
	assert_true(kvpull_handshake_put_refusal(bytes, sizeof(bytes),
						 &refusal) > 0);
}

/* Texts in the order of the naming's members; some may be left out. */
UNIT_TEST(namespace_without_a_text_that_it_needs_is_refused_by_its_name)
{
	static const struct {
		const char *name;
		int is_needed;
	} rows[KVPULL_SHARE_TEXTS] = {
		{ "model", 1 },  { "revision", 0 }, { "weights", 1 },
		{ "dtype", 1 },  { "layout", 1 },   { "attention", 0 },
		{ "config", 0 }, { "engine", 0 },   { "hash", 1 },
		{ "seed", 0 },
	};
	const char *texts[KVPULL_SHARE_TEXTS];
	struct kvpull_share_naming naming = { 0 };
	char longest[KVPULL_TEXT_BYTES_MAX + 1];
	char line[256];
	uint32_t at;
	uint32_t how;

	memset(longest, 'x', sizeof(longest));
	for (at = 0; at < KVPULL_SHARE_TEXTS; at++)
		texts[at] = rows[at].name;
	for (at = 0; at < KVPULL_SHARE_TEXTS; at++) {
		const char *const ways[] = { NULL, "", "a\nb", longest };

		(void)snprintf(
			line, sizeof(line),
			"%s is needed, or too long: at most %u bytes without control characters",
			rows[at].name, KVPULL_TEXT_BYTES_MAX - 1);
		for (how = 0; how < 4; how++) {
			struct kvpull_error_detail detail = {
				.struct_size = sizeof(detail)
			};
			const int is_good = how < 2 && !rows[at].is_needed;

			texts[at] = ways[how];
			assert_int_equal(kvpull_share_naming_texts(
						 &naming, texts, &detail),
					 is_good ? 0 : KVPULL_EINVAL);
			assert_string_equal(detail.field,
					    is_good ? "" : rows[at].name);
			assert_string_equal(detail.message,
					    is_good ? "" : line);
		}
		texts[at] = rows[at].name;
	}
	longest[KVPULL_TEXT_BYTES_MAX - 1] = '\0';
	texts[9] = longest;
	assert_int_equal(kvpull_share_naming_texts(&naming, texts, NULL), 0);
	assert_string_equal(naming.model, "model");
	assert_string_equal(naming.hash, "hash");
	assert_string_equal(naming.seed, longest);
}
