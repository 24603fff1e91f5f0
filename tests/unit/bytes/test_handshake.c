/* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

#include <sodium.h>

#include "plugin/bytes/handshake.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"

static const uint8_t key[KVPULL_KEY_BYTES] = { 1, 2, 3 };
static const uint8_t other_key[KVPULL_KEY_BYTES] = { 1, 2, 4 };
static const uint8_t nonce[KVPULL_NONCE_BYTES] = { 5, 6, 7 };
static const uint8_t other_nonce[KVPULL_NONCE_BYTES] = { 5, 6, 8 };

static uint8_t bytes[KVPULL_MESSAGE_BYTES_MAX + 1];
static size_t byte_count;
static struct kvpull_hello hello;
static struct kvpull_hello got_hello;
static struct kvpull_welcome welcome;
static struct kvpull_welcome got_welcome;

static void text_set(char *to, const char *value)
{
	memcpy(to, value, strlen(value) + 1);
}

static int setup(void **state)
{
	(void)state;
	memset(&hello, 0, sizeof(hello));
	memset(&welcome, 0, sizeof(welcome));
	hello.sealed.version = welcome.sealed.version = KVPULL_WIRE_VERSION;
	hello.wire_layout = kvpull_handshake_layout(KVPULL_WIRE_VERSION);
	text_set(hello.compat.model, "acme/tiny-7b");
	text_set(hello.compat.dtype, "float16");
	text_set(hello.compat.layout, "LBHNC");
	hello.compat.layer_count = 32;
	hello.compat.head_count = 8;
	hello.compat.head_bytes = 256;
	hello.compat.group_count = 2;
	hello.compat.groups[0] = (struct kvpull_group){ 16, 0, 0, 0 };
	hello.compat.groups[1] = (struct kvpull_group){ 32, 1, 0, 0 };
	hello.instance = 1;
	hello.incarnation = 2;
	hello.wanted = 3;
	hello.rank = 1;
	hello.rank_count = 2;
	text_set(hello.engine_id, "decode-0");
	memset(hello.nonce, 0x41, sizeof(hello.nonce));

	welcome.incarnation = 3;
	welcome.lease_ns = 30000000000;
	welcome.slot_count = 65536;
	welcome.tp_rank = 0;
	welcome.tp_size = 1;
	welcome.pid = 4242;
	welcome.entries_address = 0x7f0000000000;
	text_set(welcome.engine_id, "prefill-0");
	welcome.region_count = 1;
	welcome.regions[0].address = 0x7f1000000000;
	welcome.regions[0].bytes = 1 << 20;
	welcome.cache_count = 1;
	welcome.caches[0] = (struct kvpull_cache){
		.struct_size = sizeof(struct kvpull_cache),
		.layer_first = 1,
		.layer_count = 2,
		.offset = 3,
		.layer_stride = 4,
		.block_stride = 5,
		.row_stride = 6,
		.head_stride = 7,
		.block_count = 8,
		.row_count = 9,
		.head_first = 10,
		.head_count = 11,
		.head_bytes = 12,
	};
	return 0;
}

static int put_hello(const uint8_t *with_key)
{
	byte_count = kvpull_handshake_put_hello(bytes, KVPULL_MESSAGE_BYTES_MAX,
						&hello, with_key, nonce);
	return byte_count != 0;
}

static int get_hello(const uint8_t *with_key)
{
	return kvpull_handshake_get_hello(bytes, byte_count, with_key, nonce,
					  &got_hello);
}

static int put_welcome(const uint8_t *with_key)
{
	byte_count = kvpull_handshake_put_welcome(
		bytes, KVPULL_MESSAGE_BYTES_MAX, &welcome, with_key, nonce);
	return byte_count != 0;
}

static int get_welcome(const uint8_t *with_key)
{
	return kvpull_handshake_get_welcome(bytes, byte_count, with_key, nonce,
					    &got_welcome);
}

/* The checksum that a message of the test's own making needs. */
static void add_checksum(const char *use)
{
	crypto_generichash_blake2b_state hash;
	const size_t covered = byte_count - KVPULL_CHECKSUM_BYTES;

	assert_int_equal(crypto_generichash_blake2b_init_salt_personal(
				 &hash, NULL, 0, KVPULL_CHECKSUM_BYTES, NULL,
				 (const uint8_t *)use),
			 0);
	crypto_generichash_blake2b_update(&hash, nonce, sizeof(nonce));
	crypto_generichash_blake2b_update(&hash, bytes, covered);
	crypto_generichash_blake2b_final(&hash, bytes + covered,
					 KVPULL_CHECKSUM_BYTES);
}

#define TEST(name) UNIT_TEST_WITH(name, setup, NULL)

TEST(hello_round_trips_with_and_without_key)
{
	assert_true(put_hello(NULL));
	assert_int_equal(kvpull_handshake_kind(bytes, byte_count),
			 KVPULL_MESSAGE_HELLO);
	assert_int_equal(get_hello(NULL), 0);
	assert_memory_equal(&got_hello, &hello, sizeof(hello));
	assert_true(put_hello(key));
	memset(&got_hello, 0, sizeof(got_hello));
	assert_int_equal(get_hello(key), 0);
	assert_memory_equal(&got_hello, &hello, sizeof(hello));
}

TEST(welcome_round_trips_with_and_without_key)
{
	assert_true(put_welcome(NULL));
	assert_int_equal(kvpull_handshake_kind(bytes, byte_count),
			 KVPULL_MESSAGE_WELCOME);
	assert_int_equal(get_welcome(NULL), 0);
	assert_memory_equal(&got_welcome, &welcome, sizeof(welcome));
	assert_true(put_welcome(key));
	memset(&got_welcome, 0, sizeof(got_welcome));
	assert_int_equal(get_welcome(key), 0);
	assert_memory_equal(&got_welcome, &welcome, sizeof(welcome));
}

TEST(largest_messages_fit_the_bound)
{
	uint32_t i;

	welcome.region_count = KVPULL_REGIONS_MAX;
	for (i = 0; i < KVPULL_REGIONS_MAX; i++) {
		welcome.regions[i].kind = KVPULL_REGION_FILE;
		welcome.regions[i].bytes = UINT64_MAX;
		welcome.regions[i].address = 0;
	}
	welcome.device_count = KVPULL_DEVICE_MEMORIES_MAX;
	for (i = 0; i < KVPULL_DEVICE_MEMORIES_MAX; i++) {
		welcome.regions[i].kind = KVPULL_REGION_DEVICE;
		welcome.regions[i].fd_index = i;
		welcome.regions[i].bytes = UINT64_MAX - 4095;
		welcome.devices[i] = (struct kvpull_device_view){
			.granularity = 4096,
			.part_bytes = UINT64_MAX - 4095,
			.part_count = 1,
			.fd_index = i,
		};
	}
	welcome.cache_count = KVPULL_CACHES_MAX;
	for (i = 1; i < KVPULL_CACHES_MAX; i++) {
		welcome.caches[i] = welcome.caches[0];
		welcome.caches[i].region_index = i % KVPULL_REGIONS_MAX;
	}
	memset(welcome.engine_id, 'e', sizeof(welcome.engine_id) - 1);
	assert_true(put_welcome(key));
	print_message("largest welcome: %zu bytes, bound %d\n", byte_count,
		      KVPULL_MESSAGE_BYTES_MAX);
	assert_int_equal(get_welcome(key), 0);
	assert_memory_equal(&got_welcome, &welcome, sizeof(welcome));

	memset(hello.compat.model, 'm', KVPULL_TEXT_BYTES_MAX - 1);
	memset(hello.compat.attention, 'a', KVPULL_TEXT_BYTES_MAX - 1);
	hello.compat.group_count = KVPULL_GROUPS_MAX;
	for (i = 0; i < KVPULL_GROUPS_MAX; i++)
		hello.compat.groups[i] =
			(struct kvpull_group){ UINT32_MAX, 2, 0, 0 };
	hello.rank = KVPULL_RANKS_MAX - 1;
	hello.rank_count = KVPULL_RANKS_MAX;
	assert_true(put_hello(key));
	assert_int_equal(get_hello(key), 0);
	assert_memory_equal(&got_hello, &hello, sizeof(hello));
}

TEST(challenge_and_refusal_round_trip)
{
	struct kvpull_refusal refusal = { .code = KVPULL_EREJECTED,
					  .field = "dtype",
					  .ours = "float16",
					  .theirs = "bfloat16" };
	struct kvpull_refusal got_refusal;
	uint8_t got[KVPULL_NONCE_BYTES] = { 0 };

	byte_count = kvpull_handshake_put_challenge(bytes, 64, nonce);
	assert_true(byte_count != 0);
	assert_int_equal(kvpull_handshake_kind(bytes, byte_count),
			 KVPULL_MESSAGE_CHALLENGE);
	assert_int_equal(kvpull_handshake_get_challenge(bytes, byte_count, got),
			 0);
	assert_memory_equal(got, nonce, sizeof(got));
	byte_count = kvpull_handshake_put_refusal(bytes, 512, &refusal);
	assert_true(byte_count != 0);
	assert_int_equal(kvpull_handshake_kind(bytes, byte_count),
			 KVPULL_MESSAGE_REFUSAL);
	assert_int_equal(
		kvpull_handshake_get_refusal(bytes, byte_count, &got_refusal),
		0);
	assert_memory_equal(&got_refusal, &refusal, sizeof(refusal));
}

TEST(key_against_no_key_is_told_at_either_side)
{
	assert_true(put_hello(key));
	assert_int_equal(get_hello(NULL), KVPULL_EAUTH);
	assert_int_equal(get_hello(other_key), KVPULL_EAUTH);
	assert_true(put_hello(NULL));
	assert_int_equal(get_hello(key), KVPULL_EAUTH);
	assert_true(put_welcome(key));
	assert_int_equal(get_welcome(NULL), KVPULL_EAUTH);
	assert_int_equal(get_welcome(other_key), KVPULL_EAUTH);
	assert_true(put_welcome(NULL));
	assert_int_equal(get_welcome(key), KVPULL_EAUTH);
}

TEST(message_for_another_nonce_is_refused)
{
	assert_true(put_hello(key));
	assert_int_equal(kvpull_handshake_get_hello(bytes, byte_count, key,
						    other_nonce, &got_hello),
			 KVPULL_EAUTH);
	assert_true(put_welcome(key));
	assert_int_equal(kvpull_handshake_get_welcome(bytes, byte_count, key,
						      other_nonce,
						      &got_welcome),
			 KVPULL_EAUTH);
	assert_true(put_welcome(NULL));
	assert_int_equal(kvpull_handshake_get_welcome(bytes, byte_count, NULL,
						      other_nonce,
						      &got_welcome),
			 KVPULL_EPROTO);
}

TEST(messages_are_not_taken_for_one_another)
{
	uint8_t got[KVPULL_NONCE_BYTES];
	struct kvpull_refusal refusal;

	assert_true(put_hello(key));
	assert_int_equal(get_welcome(key), KVPULL_EPROTO);
	assert_int_equal(kvpull_handshake_get_challenge(bytes, byte_count, got),
			 KVPULL_EPROTO);
	assert_int_equal(
		kvpull_handshake_get_refusal(bytes, byte_count, &refusal),
		KVPULL_EPROTO);
	/* A kind changed on the way: the MAC has another use, too. */
	bytes[4] = KVPULL_MESSAGE_WELCOME;
	assert_int_equal(get_welcome(key), KVPULL_EAUTH);
}

TEST(every_truncation_is_refused)
{
	const size_t covered = 8;
	struct kvpull_refusal refusal = { .code = KVPULL_EFULL };
	uint8_t got[KVPULL_NONCE_BYTES];
	size_t cut;
	size_t whole;

	assert_true(put_hello(key));
	for (whole = byte_count, cut = 0; cut < whole; cut++) {
		byte_count = cut;
		assert_int_equal(get_hello(key),
				 cut < covered + KVPULL_CHECKSUM_BYTES ?
					 KVPULL_EPROTO :
					 KVPULL_EAUTH);
	}
	assert_true(put_welcome(NULL));
	for (whole = byte_count, cut = 0; cut < whole; cut++) {
		byte_count = cut;
		assert_int_equal(get_welcome(NULL), KVPULL_EPROTO);
	}
	byte_count = kvpull_handshake_put_challenge(bytes, 64, nonce);
	for (cut = 0; cut < byte_count; cut++)
		assert_int_equal(
			kvpull_handshake_get_challenge(bytes, cut, got),
			KVPULL_EPROTO);
	assert_int_equal(
		kvpull_handshake_get_challenge(bytes, byte_count + 1, got),
		KVPULL_EPROTO);
	byte_count = kvpull_handshake_put_refusal(bytes, 64, &refusal);
	for (cut = 0; cut < byte_count; cut++)
		assert_int_equal(
			kvpull_handshake_get_refusal(bytes, cut, &refusal),
			KVPULL_EPROTO);
	assert_int_equal(
		kvpull_handshake_get_refusal(bytes, byte_count + 1, &refusal),
		KVPULL_EPROTO);
}

TEST(every_bit_flip_is_refused)
{
	size_t bit;

	assert_true(put_hello(key));
	for (bit = 0; bit < byte_count * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_not_equal(get_hello(key), 0);
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_true(put_welcome(NULL));
	for (bit = 0; bit < byte_count * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_not_equal(get_welcome(NULL), 0);
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

/* Truncated, extended or damaged below a good checksum. */
TEST(bad_bodies_with_good_checksums_are_refused)
{
	static uint8_t copy[4096];
	size_t whole;
	size_t cut;

	assert_true(put_hello(NULL));
	whole = byte_count;
	memcpy(copy, bytes, whole);
	for (cut = 8; cut <= whole - KVPULL_CHECKSUM_BYTES + 1; cut++) {
		byte_count = cut + KVPULL_CHECKSUM_BYTES;
		add_checksum("kvpull.hello.v01");
		assert_int_equal(get_hello(NULL),
				 byte_count == whole ? 0 : KVPULL_EPROTO);
		memcpy(bytes, copy, whole);
	}
	assert_true(put_welcome(NULL));
	whole = byte_count;
	memcpy(copy, bytes, whole);
	for (cut = 8; cut <= whole - KVPULL_CHECKSUM_BYTES + 1; cut++) {
		byte_count = cut + KVPULL_CHECKSUM_BYTES;
		add_checksum("kvpull.welcome.1");
		assert_int_equal(get_welcome(NULL),
				 byte_count == whole ? 0 : KVPULL_EPROTO);
		memcpy(bytes, copy, whole);
	}
}

TEST(small_buffers_get_nothing)
{
	struct kvpull_refusal refusal = { .code = KVPULL_EAUTH, .ours = "a" };
	size_t whole;
	size_t capacity;

	assert_true(put_hello(key));
	for (whole = byte_count, capacity = 0; capacity < whole; capacity++) {
		bytes[capacity] = 0xee;
		assert_int_equal(kvpull_handshake_put_hello(bytes, capacity,
							    &hello, key, nonce),
				 0);
		assert_int_equal(bytes[capacity], 0xee);
	}
	assert_true(put_welcome(key));
	for (whole = byte_count, capacity = 0; capacity < whole; capacity++) {
		bytes[capacity] = 0xee;
		assert_int_equal(kvpull_handshake_put_welcome(
					 bytes, capacity, &welcome, key, nonce),
				 0);
		assert_int_equal(bytes[capacity], 0xee);
	}
	whole = kvpull_handshake_put_refusal(bytes, 64, &refusal);
	assert_int_equal(
		kvpull_handshake_put_refusal(bytes, whole - 1, &refusal), 0);
	whole = kvpull_handshake_put_challenge(bytes, 64, nonce);
	assert_int_equal(
		kvpull_handshake_put_challenge(bytes, whole - 1, nonce), 0);
}

TEST(other_versions_are_told)
{
	uint8_t got[KVPULL_NONCE_BYTES];
	struct kvpull_refusal refusal = { .code = KVPULL_EVERSION };

	/* A newer peer that says nothing that we do not know. */
	hello.sealed.version = 9;
	assert_true(put_hello(NULL));
	assert_int_equal(kvpull_handshake_kind(bytes, byte_count),
			 KVPULL_MESSAGE_HELLO);
	assert_int_equal(get_hello(NULL), 0);
	assert_int_equal(got_hello.sealed.version, 9);
	/* Kinds that we do not know: of a newer version, and of ours. */
	bytes[4] = 99;
	assert_int_equal(kvpull_handshake_kind(bytes, byte_count),
			 KVPULL_EVERSION);
	bytes[5] = KVPULL_WIRE_VERSION;
	assert_int_equal(kvpull_handshake_kind(bytes, byte_count),
			 KVPULL_EPROTO);
	bytes[0]++;
	assert_int_equal(kvpull_handshake_kind(bytes, byte_count),
			 KVPULL_EPROTO);
	/* None at all. */
	assert_true(put_hello(NULL));
	bytes[5] = 0;
	assert_int_equal(kvpull_handshake_kind(bytes, byte_count),
			 KVPULL_EPROTO);
	byte_count = kvpull_handshake_put_challenge(bytes, 64, nonce);
	bytes[5] = 9;
	assert_int_equal(kvpull_handshake_get_challenge(bytes, byte_count, got),
			 0);
	/* A refusal is read whatever its sender's version. */
	byte_count = kvpull_handshake_put_refusal(bytes, 64, &refusal);
	bytes[5] = 9;
	assert_int_equal(
		kvpull_handshake_get_refusal(bytes, byte_count, &refusal), 0);
}

/* Why a hello was refused, as its sender is told: the texts are for people. */
TEST(refused_hello_says_what_differs)
{
	const struct kvpull_sealed sealed = { .version = 9, .unknown = "tint" };
	static const struct {
		int32_t code;
		const char *field;
		const char *theirs;
	} rows[] = {
		{ KVPULL_EVERSION, "wire version (by tint)", "9" },
		{ KVPULL_EAUTH, "key_file", "0" },
		{ KVPULL_EPROTO, "hello", "0" },
	};
	size_t at;

	for (at = 0; at < sizeof(rows) / sizeof(*rows); at++) {
		struct kvpull_refusal refusal;
		struct kvpull_refusal got;

		memset(&refusal, 0xa5, sizeof(refusal));
		kvpull_refusal_hello(&refusal, rows[at].code, &sealed);
		byte_count = kvpull_handshake_put_refusal(bytes, sizeof(bytes),
							  &refusal);
		assert_int_equal(
			kvpull_handshake_get_refusal(bytes, byte_count, &got),
			0);
		assert_int_equal(got.code, rows[at].code);
		assert_string_equal(got.field, rows[at].field);
		assert_string_equal(got.ours, "1");
		assert_string_equal(got.theirs, rows[at].theirs);
	}
}

/* Changes one thing of a good message: the encoder says no. */
#define REFUSED(put, change)                                                   \
	do {                                                                   \
		setup(state);                                                  \
		change;                                                        \
		assert_false(put(NULL));                                       \
	} while (0)

TEST(hellos_out_of_bounds_are_not_made)
{
	REFUSED(put_hello, hello.instance = 0);
	REFUSED(put_hello, hello.incarnation = 0);
	REFUSED(put_hello, hello.wanted = 0);
	REFUSED(put_hello, hello.rank_count = 0);
	REFUSED(put_hello, hello.rank_count = KVPULL_RANKS_MAX + 1);
	REFUSED(put_hello, hello.rank = 2);
	REFUSED(put_hello, hello.engine_id[2] = '\n');
	REFUSED(put_hello,
		memset(hello.engine_id, 'a', sizeof(hello.engine_id)));
	REFUSED(put_hello, hello.compat.replicated = 2);
	REFUSED(put_hello, hello.compat.group_count = 0);
	REFUSED(put_hello, hello.compat.group_count = KVPULL_GROUPS_MAX + 1);
	REFUSED(put_hello, hello.compat.groups[1].block_tokens = 0);
	REFUSED(put_hello, hello.compat.groups[1].kind = 3);
	REFUSED(put_hello, hello.compat.layout[0] = '\r');
	REFUSED(put_hello,
		memset(hello.compat.model, 'a', KVPULL_TEXT_BYTES_MAX));
}

TEST(welcomes_out_of_bounds_are_not_made)
{
	REFUSED(put_welcome, welcome.incarnation = 0);
	REFUSED(put_welcome, welcome.lease_ns = 0);
	REFUSED(put_welcome, welcome.lease_ns = 9999999);
	REFUSED(put_welcome, welcome.slot_count = 0);
	REFUSED(put_welcome, welcome.slot_count = KVPULL_TICKET_SLOTS_MAX + 1);
	REFUSED(put_welcome, welcome.tp_size = 0);
	REFUSED(put_welcome, welcome.tp_size = KVPULL_RANKS_MAX + 1);
	REFUSED(put_welcome, welcome.tp_rank = 1);
	REFUSED(put_welcome, welcome.pp_rank = 1);
	REFUSED(put_welcome, welcome.pp_rank = welcome.pp_size = 2);
	REFUSED(put_welcome, welcome.pp_size = KVPULL_RANKS_MAX + 1);
	REFUSED(put_welcome, {
		welcome.tp_size = 2;
		welcome.pp_size = KVPULL_RANKS_MAX / 2 + 1;
	});
	REFUSED(put_welcome, welcome.engine_id[0] = 0x1b);
	REFUSED(put_welcome, welcome.region_count = 0);
	REFUSED(put_welcome, welcome.region_count = KVPULL_REGIONS_MAX + 1);
	REFUSED(put_welcome,
		welcome.regions[0].kind = KVPULL_REGION_DEVICE + 1);
	REFUSED(put_welcome, welcome.regions[0].bytes = 0);
	REFUSED(put_welcome, welcome.regions[0].bytes = UINT64_MAX);
	REFUSED(put_welcome, welcome.cache_count = 0);
	REFUSED(put_welcome, welcome.cache_count = KVPULL_CACHES_MAX + 1);
	REFUSED(put_welcome, welcome.caches[0].region_index = 1);
	REFUSED(put_welcome, welcome.caches[0].group_index = KVPULL_GROUPS_MAX);
	REFUSED(put_welcome, welcome.caches[0].layer_count = 0);
	REFUSED(put_welcome, welcome.caches[0].layer_count = UINT32_MAX);
	REFUSED(put_welcome, welcome.caches[0].block_count = 0);
	REFUSED(put_welcome, welcome.caches[0].row_count = 0);
	REFUSED(put_welcome, welcome.caches[0].head_count = 0);
	REFUSED(put_welcome, welcome.caches[0].head_count = UINT32_MAX);
	REFUSED(put_welcome, welcome.caches[0].head_bytes = 0);
}

/* The last byte of a hello's record, and a welcome's counts, by hand. */
static int welcome_with(size_t at, uint64_t value, size_t value_bytes)
{
	size_t i;

	assert_true(put_welcome(NULL));
	for (i = 0; i < value_bytes; i++)
		bytes[at + i] = (uint8_t)(value >> 8 * i);
	add_checksum("kvpull.welcome.1");
	return get_welcome(NULL);
}

TEST(welcomes_out_of_bounds_are_not_taken)
{
	/* Fixed members, then engine_id: 2 + 9 bytes, then the counts. */
	const size_t regions = 8 + 8 + 8 + 16 + 8 + 11;
	const size_t caches = regions + 2 + 32;

	assert_int_equal(welcome_with(8, 3, 8), 0);
	assert_int_equal(welcome_with(regions, 1, 2), 0);
	assert_int_equal(welcome_with(caches, 1, 2), 0);
	assert_int_equal(welcome_with(8, 0, 8), KVPULL_EPROTO);
	/*
	 * The consumer beats each third of the lease: that is less than a peer
	 * can configure.
	 */
	assert_int_equal(welcome_with(16, 10000000, 8), 0);
	assert_int_equal(welcome_with(16, 9999999, 8), KVPULL_EPROTO);
	assert_int_equal(welcome_with(16, 1, 8), KVPULL_EPROTO);
	assert_int_equal(welcome_with(28, 1, 4), KVPULL_EPROTO);
	assert_int_equal(welcome_with(regions, 0, 2), KVPULL_EPROTO);
	assert_int_equal(welcome_with(regions, KVPULL_REGIONS_MAX + 1, 2),
			 KVPULL_EPROTO);
	assert_int_equal(welcome_with(regions, UINT16_MAX, 2), KVPULL_EPROTO);
	assert_int_equal(welcome_with(regions + 2, KVPULL_REGION_DEVICE, 4),
			 KVPULL_EPROTO);
	assert_int_equal(welcome_with(regions + 2, KVPULL_REGION_DEVICE + 1, 4),
			 KVPULL_EPROTO);
	assert_int_equal(welcome_with(regions + 6, KVPULL_REGIONS_MAX, 4),
			 KVPULL_EPROTO);
	assert_int_equal(welcome_with(regions + 18, UINT64_MAX, 8),
			 KVPULL_EPROTO);
	assert_int_equal(welcome_with(regions + 26, UINT64_MAX, 8),
			 KVPULL_EPROTO);
	assert_int_equal(welcome_with(caches, 0, 2), KVPULL_EPROTO);
	assert_int_equal(welcome_with(caches, KVPULL_CACHES_MAX + 1, 2),
			 KVPULL_EPROTO);
	assert_int_equal(welcome_with(caches, UINT16_MAX, 2), KVPULL_EPROTO);
	assert_int_equal(welcome_with(caches + 2, 1, 4), KVPULL_EPROTO);
}

/* All its bytes are there: only the count is over the bound. */
TEST(welcome_of_one_cache_too_many_is_not_taken)
{
	const size_t counts = 8 + 8 + 8 + 16 + 8 + 11;
	size_t cache_bytes;

	assert_true(put_welcome(NULL));
	cache_bytes = byte_count - KVPULL_CHECKSUM_BYTES - counts - 2 - 32 - 2;
	for (byte_count = counts + 2 + 32 + 2 + cache_bytes;
	     byte_count < counts + 36 + (KVPULL_CACHES_MAX + 1) * cache_bytes;
	     byte_count += cache_bytes)
		memcpy(bytes + byte_count, bytes + counts + 36, cache_bytes);
	bytes[counts + 34] = (uint8_t)(KVPULL_CACHES_MAX + 1);
	bytes[counts + 35] = (KVPULL_CACHES_MAX + 1) >> 8;
	byte_count += KVPULL_CHECKSUM_BYTES;
	add_checksum("kvpull.welcome.1");
	assert_int_equal(get_welcome(NULL), KVPULL_EPROTO);
	/* A welcome with one cache less is good. */
	byte_count -= cache_bytes;
	bytes[counts + 34] = (uint8_t)KVPULL_CACHES_MAX;
	add_checksum("kvpull.welcome.1");
	assert_int_equal(get_welcome(NULL), 0);
}

TEST(unknown_refusals_are_not_made_or_taken)
{
	struct kvpull_refusal refusal = { .code = KVPULL_EINVAL };

	assert_int_equal(kvpull_handshake_put_refusal(bytes, 64, &refusal), 0);
	refusal.code = KVPULL_EPEER;
	byte_count = kvpull_handshake_put_refusal(bytes, 64, &refusal);
	bytes[7] ^= 1;
	assert_int_equal(
		kvpull_handshake_get_refusal(bytes, byte_count, &refusal),
		KVPULL_EPROTO);
	text_set(refusal.field, "a\nb");
	assert_int_equal(kvpull_handshake_put_refusal(bytes, 64, &refusal), 0);
}

TEST(oversize_message_is_refused)
{
	assert_true(put_hello(NULL));
	assert_int_equal(
		kvpull_handshake_kind(bytes, KVPULL_MESSAGE_BYTES_MAX + 1),
		KVPULL_EPROTO);
}

TEST(random_bytes_are_refused)
{
	uint64_t seed = 8;
	uint32_t i;

	assert_true(put_hello(NULL));
	for (i = 0; i < 100000; i++) {
		size_t at;

		byte_count = (size_t)(random_next(&seed) % 128);
		/* The start is good, to come further than the magic. */
		for (at = i & 1 ? 8 : 0; at < byte_count; at++)
			bytes[at] = (uint8_t)(random_next(&seed) >> 20);
		assert_true(get_hello(NULL) < 0);
		assert_true(get_welcome(NULL) < 0);
		(void)put_hello(NULL);
	}
}
