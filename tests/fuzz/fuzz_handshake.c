/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handshake message. First byte odd: its last 16 bytes are replaced by the
 * right checksum, since no mutation would find it. What a sealed message or
 * refusal says is encoded again and must give the same bytes, but for extensions
 * that we do not know.
 */
#include <string.h>

#include <sodium.h>

#include "plugin/bytes/share.h"
#include "tests/fuzz/fuzz.h"

static const uint8_t nonce[KVPULL_NONCE_BYTES] = { 1, 2, 3 };
static uint8_t message[KVPULL_MESSAGE_BYTES_MAX];
static uint8_t copy[KVPULL_MESSAGE_BYTES_MAX];

static void add_checksum(size_t byte_count, const char *use)
{
	crypto_generichash_blake2b_state state;

	if (byte_count < KVPULL_CHECKSUM_BYTES)
		return;
	byte_count -= KVPULL_CHECKSUM_BYTES;
	(void)crypto_generichash_blake2b_init_salt_personal(
		&state, NULL, 0, KVPULL_CHECKSUM_BYTES, NULL,
		(const uint8_t *)use);
	(void)crypto_generichash_blake2b_update(&state, nonce, sizeof(nonce));
	(void)crypto_generichash_blake2b_update(&state, message, byte_count);
	(void)crypto_generichash_blake2b_final(&state, message + byte_count,
					       KVPULL_CHECKSUM_BYTES);
}

/* Shorter where it said more than we know. */
static void expect_same(size_t copy_bytes, size_t byte_count)
{
	expect(copy_bytes && copy_bytes <= byte_count);
	if (copy_bytes == byte_count)
		expect(!memcmp(copy, message, byte_count));
}

static void fuzz_hello(size_t byte_count)
{
	struct kvpull_hello hello;
	struct kvpull_refusal refusal;
	uint8_t digest[KVPULL_COMPAT_BYTES];

	if (kvpull_handshake_get_hello(message, byte_count, NULL, nonce,
				       &hello))
		return;
	/* Where it is 0 the encoder writes its own. */
	if (hello.wire_layout)
		expect_same(kvpull_handshake_put_hello(copy, sizeof(copy),
						       &hello, NULL, nonce),
			    byte_count);
	kvpull_compat_digest(&hello.compat, digest);
	expect(!kvpull_compat_compare(&hello.compat, &hello.compat, &refusal));
}

static void fuzz_welcome(size_t byte_count)
{
	static struct kvpull_welcome welcome;

	if (kvpull_handshake_get_welcome(message, byte_count, NULL, nonce,
					 &welcome))
		return;
	expect_same(kvpull_handshake_put_welcome(copy, sizeof(copy), &welcome,
						 NULL, nonce),
		    byte_count);
}

static void fuzz_share(size_t byte_count)
{
	struct kvpull_reader_hello hello;
	struct kvpull_share_welcome welcome;
	struct kvpull_refusal refusal;

	if (!kvpull_share_get_hello(message, byte_count, NULL, nonce, &hello)) {
		expect_same(kvpull_share_put_hello(copy, sizeof(copy), &hello,
						   NULL, nonce),
			    byte_count);
		expect(!kvpull_share_naming_compare(&hello.naming,
						    &hello.naming, &refusal));
	}
	if (!kvpull_share_get_welcome(message, byte_count, NULL, nonce,
				      &welcome))
		expect_same(kvpull_share_put_welcome(copy, sizeof(copy),
						     &welcome, NULL, nonce),
			    byte_count);
}

static void fuzz_refusal(size_t byte_count)
{
	struct kvpull_refusal refusal;
	size_t copy_bytes;

	if (kvpull_handshake_get_refusal(message, byte_count, &refusal))
		return;
	/* A refusal may have any version: nothing compares it. */
	copy_bytes = kvpull_handshake_put_refusal(copy, sizeof(copy), &refusal);
	expect(copy_bytes && copy_bytes <= byte_count);
	if (copy_bytes == byte_count)
		expect(!memcmp(copy + 7, message + 7, byte_count - 7));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
	uint8_t theirs[KVPULL_NONCE_BYTES];
	int kind;

	if (!data_bytes || data_bytes - 1 > sizeof(message))
		return 0;
	memcpy(message, data + 1, data_bytes - 1);
	data_bytes--;
	kind = kvpull_handshake_kind(message, data_bytes);
	if ((data[0] & 1) && kind == KVPULL_MESSAGE_HELLO)
		add_checksum(data_bytes, "kvpull.hello.v01");
	if ((data[0] & 1) && kind == KVPULL_MESSAGE_WELCOME)
		add_checksum(data_bytes, "kvpull.welcome.1");
	if ((data[0] & 1) && kind == KVPULL_MESSAGE_READER)
		add_checksum(data_bytes, "kvpull.reader.v1");
	if ((data[0] & 1) && kind == KVPULL_MESSAGE_SHARE)
		add_checksum(data_bytes, "kvpull.share.v01");
	fuzz_hello(data_bytes);
	fuzz_welcome(data_bytes);
	fuzz_share(data_bytes);
	fuzz_refusal(data_bytes);
	(void)!kvpull_handshake_get_challenge(message, data_bytes, theirs);
	return 0;
}
