/* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

#include "plugin/bytes/handshake.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"
#include "tests/unit/bytes/making.h"

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

static int setup(void **state)
{
	(void)state;
	memset(&hello, 0, sizeof(hello));
	memset(&welcome, 0, sizeof(welcome));
	hello.sealed.version = welcome.sealed.version = KVPULL_WIRE_VERSION;
	hello.wire_layout = kvpull_handshake_layout(KVPULL_WIRE_VERSION);
	hello.compat = compat_make();
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

/* A message that is sealed: the test's one, and what came of it. */
struct way {
	size_t (*put)(size_t capacity, const uint8_t *with_key);
	int (*get)(const uint8_t *with_key, const uint8_t *with_nonce);
	const void *sent;
	void *got;
	size_t bytes;
	uint32_t kind;
	const char *use; /* of its checksum */
};

static size_t hello_put(size_t capacity, const uint8_t *with_key)
{
	return kvpull_handshake_put_hello(bytes, capacity, &hello, with_key,
					  nonce);
}

static int hello_get(const uint8_t *with_key, const uint8_t *with_nonce)
{
	return kvpull_handshake_get_hello(bytes, byte_count, with_key,
					  with_nonce, &got_hello);
}

static size_t welcome_put(size_t capacity, const uint8_t *with_key)
{
	return kvpull_handshake_put_welcome(bytes, capacity, &welcome, with_key,
					    nonce);
}

static int welcome_get(const uint8_t *with_key, const uint8_t *with_nonce)
{
	return kvpull_handshake_get_welcome(bytes, byte_count, with_key,
					    with_nonce, &got_welcome);
}

static const struct way hellos = {
	hello_put,          hello_get,     &hello,
	&got_hello,         sizeof(hello), KVPULL_MESSAGE_HELLO,
	"kvpull.hello.v01",
};
static const struct way welcomes = {
	welcome_put,        welcome_get,     &welcome,
	&got_welcome,       sizeof(welcome), KVPULL_MESSAGE_WELCOME,
	"kvpull.welcome.1",
};

static int is_made(const struct way *way)
{
	return way->put(KVPULL_MESSAGE_BYTES_MAX, NULL) != 0;
}

static void put(const struct way *way, const uint8_t *with_key)
{
	byte_count = way->put(KVPULL_MESSAGE_BYTES_MAX, with_key);
	assert_true(byte_count != 0);
}

static int get(const struct way *way, const uint8_t *with_key)
{
	return way->get(with_key, nonce);
}

static void round_trips(const struct way *way, const uint8_t *with_key)
{
	put(way, with_key);
	assert_int_equal(kvpull_handshake_kind(bytes, byte_count), way->kind);
	memset(way->got, 0, way->bytes);
	assert_int_equal(get(way, with_key), 0);
	assert_memory_equal(way->got, way->sent, way->bytes);
}

static int get_refusal(size_t count, struct kvpull_refusal *refusal)
{
	return kvpull_handshake_get_refusal(bytes, count, refusal);
}

static int get_challenge(size_t count)
{
	uint8_t got[KVPULL_NONCE_BYTES];

	return kvpull_handshake_get_challenge(bytes, count, got);
}

#define TEST(name) UNIT_TEST_WITH(name, setup, NULL)

TEST(hello_round_trips_with_and_without_key)
{
	round_trips(&hellos, NULL);
	round_trips(&hellos, key);
}

TEST(welcome_round_trips_with_and_without_key)
{
	round_trips(&welcomes, NULL);
	round_trips(&welcomes, key);
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
	round_trips(&welcomes, key);
	print_message("largest welcome: %zu bytes, bound %d\n", byte_count,
		      KVPULL_MESSAGE_BYTES_MAX);

	memset(hello.compat.model, 'm', KVPULL_TEXT_BYTES_MAX - 1);
	memset(hello.compat.attention, 'a', KVPULL_TEXT_BYTES_MAX - 1);
	hello.compat.group_count = KVPULL_GROUPS_MAX;
	for (i = 0; i < KVPULL_GROUPS_MAX; i++)
		hello.compat.groups[i] =
			(struct kvpull_group){ UINT32_MAX, 2, 0, 0 };
	hello.rank = KVPULL_RANKS_MAX - 1;
	hello.rank_count = KVPULL_RANKS_MAX;
	round_trips(&hellos, key);
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
	assert_int_equal(get_refusal(byte_count, &got_refusal), 0);
	assert_memory_equal(&got_refusal, &refusal, sizeof(refusal));
}

TEST(key_against_no_key_is_told_at_either_side)
{
	const struct way *const ways[] = { &hellos, &welcomes };
	size_t i;

	for (i = 0; i < 2; i++) {
		put(ways[i], key);
		assert_int_equal(get(ways[i], NULL), KVPULL_EAUTH);
		assert_int_equal(get(ways[i], other_key), KVPULL_EAUTH);
		put(ways[i], NULL);
		assert_int_equal(get(ways[i], key), KVPULL_EAUTH);
	}
}

TEST(message_for_another_nonce_is_refused)
{
	put(&hellos, key);
	assert_int_equal(hello_get(key, other_nonce), KVPULL_EAUTH);
	put(&welcomes, key);
	assert_int_equal(welcome_get(key, other_nonce), KVPULL_EAUTH);
	put(&welcomes, NULL);
	assert_int_equal(welcome_get(NULL, other_nonce), KVPULL_EPROTO);
}

TEST(messages_are_not_taken_for_one_another)
{
	struct kvpull_refusal refusal;

	put(&hellos, key);
	assert_int_equal(get(&welcomes, key), KVPULL_EPROTO);
	assert_int_equal(get_challenge(byte_count), KVPULL_EPROTO);
	assert_int_equal(get_refusal(byte_count, &refusal), KVPULL_EPROTO);
	/* A kind changed on the way: the MAC has another use, too. */
	bytes[4] = KVPULL_MESSAGE_WELCOME;
	assert_int_equal(get(&welcomes, key), KVPULL_EAUTH);
}

TEST(every_truncation_is_refused)
{
	const size_t covered = 8;
	struct kvpull_refusal refusal = { .code = KVPULL_EFULL };
	size_t cut;
	size_t whole;

	put(&hellos, key);
	for (whole = byte_count, cut = 0; cut < whole; cut++) {
		byte_count = cut;
		assert_int_equal(get(&hellos, key),
				 cut < covered + KVPULL_CHECKSUM_BYTES ?
					 KVPULL_EPROTO :
					 KVPULL_EAUTH);
	}
	put(&welcomes, NULL);
	for (whole = byte_count, cut = 0; cut < whole; cut++) {
		byte_count = cut;
		assert_int_equal(get(&welcomes, NULL), KVPULL_EPROTO);
	}
	whole = kvpull_handshake_put_challenge(bytes, 64, nonce);
	for (cut = 0; cut <= whole + 1; cut++)
		assert_int_equal(get_challenge(cut),
				 cut == whole ? 0 : KVPULL_EPROTO);
	whole = kvpull_handshake_put_refusal(bytes, 64, &refusal);
	for (cut = 0; cut <= whole + 1; cut++)
		assert_int_equal(get_refusal(cut, &refusal),
				 cut == whole ? 0 : KVPULL_EPROTO);
}

static void flips_are_refused(const struct way *way, const uint8_t *with_key)
{
	size_t bit;

	put(way, with_key);
	for (bit = 0; bit < byte_count * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_not_equal(get(way, with_key), 0);
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

TEST(every_bit_flip_is_refused)
{
	flips_are_refused(&hellos, key);
	flips_are_refused(&welcomes, NULL);
}

/* Truncated, extended or damaged below a good checksum. */
static void other_lengths_are_refused(const struct way *way)
{
	static uint8_t copy[4096];
	size_t whole;
	size_t cut;

	put(way, NULL);
	whole = byte_count;
	memcpy(copy, bytes, whole);
	for (cut = 8; cut <= whole - KVPULL_CHECKSUM_BYTES + 1; cut++) {
		byte_count = cut + KVPULL_CHECKSUM_BYTES;
		checksum_put(bytes, byte_count, nonce, way->use);
		assert_int_equal(get(way, NULL),
				 byte_count == whole ? 0 : KVPULL_EPROTO);
		memcpy(bytes, copy, whole);
	}
}

TEST(bad_bodies_with_good_checksums_are_refused)
{
	other_lengths_are_refused(&hellos);
	other_lengths_are_refused(&welcomes);
}

static void small_buffer_gets_nothing(const struct way *way)
{
	size_t capacity;

	put(way, key);
	for (capacity = 0; capacity < byte_count; capacity++) {
		bytes[capacity] = 0xee;
		assert_int_equal(way->put(capacity, key), 0);
		assert_int_equal(bytes[capacity], 0xee);
	}
}

TEST(small_buffers_get_nothing)
{
	struct kvpull_refusal refusal = { .code = KVPULL_EAUTH, .ours = "a" };
	size_t whole;

	small_buffer_gets_nothing(&hellos);
	small_buffer_gets_nothing(&welcomes);
	whole = kvpull_handshake_put_refusal(bytes, 64, &refusal);
	assert_int_equal(
		kvpull_handshake_put_refusal(bytes, whole - 1, &refusal), 0);
	whole = kvpull_handshake_put_challenge(bytes, 64, nonce);
	assert_int_equal(
		kvpull_handshake_put_challenge(bytes, whole - 1, nonce), 0);
}

static int kind(void)
{
	return kvpull_handshake_kind(bytes, byte_count);
}

TEST(other_versions_are_told)
{
	struct kvpull_refusal refusal = { .code = KVPULL_EVERSION };

	/* A newer peer that says nothing that we do not know. */
	hello.sealed.version = 9;
	put(&hellos, NULL);
	assert_int_equal(kind(), KVPULL_MESSAGE_HELLO);
	assert_int_equal(get(&hellos, NULL), 0);
	assert_int_equal(got_hello.sealed.version, 9);
	/* Kinds that we do not know: of a newer version, and of ours. */
	bytes[4] = 99;
	assert_int_equal(kind(), KVPULL_EVERSION);
	bytes[5] = KVPULL_WIRE_VERSION;
	assert_int_equal(kind(), KVPULL_EPROTO);
	bytes[0]++;
	assert_int_equal(kind(), KVPULL_EPROTO);
	/* None at all. */
	put(&hellos, NULL);
	bytes[5] = 0;
	assert_int_equal(kind(), KVPULL_EPROTO);
	byte_count = kvpull_handshake_put_challenge(bytes, 64, nonce);
	bytes[5] = 9;
	assert_int_equal(get_challenge(byte_count), 0);
	/* A refusal is read whatever its sender's version. */
	byte_count = kvpull_handshake_put_refusal(bytes, 64, &refusal);
	bytes[5] = 9;
	assert_int_equal(get_refusal(byte_count, &refusal), 0);
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
		assert_int_equal(get_refusal(byte_count, &got), 0);
		assert_int_equal(got.code, rows[at].code);
		assert_string_equal(got.field, rows[at].field);
		assert_string_equal(got.ours, "1");
		assert_string_equal(got.theirs, rows[at].theirs);
	}
}

/* Changes one thing of a good message: the encoder says no. */
#define REFUSED(way, change)                                                   \
	do {                                                                   \
		setup(state);                                                  \
		change;                                                        \
		assert_false(is_made(way));                                    \
	} while (0)

TEST(hellos_out_of_bounds_are_not_made)
{
	REFUSED(&hellos, hello.instance = 0);
	REFUSED(&hellos, hello.incarnation = 0);
	REFUSED(&hellos, hello.wanted = 0);
	REFUSED(&hellos, hello.rank_count = 0);
	REFUSED(&hellos, hello.rank_count = KVPULL_RANKS_MAX + 1);
	REFUSED(&hellos, hello.rank = 2);
	REFUSED(&hellos, hello.engine_id[2] = '\n');
	REFUSED(&hellos, memset(hello.engine_id, 'a', sizeof(hello.engine_id)));
	REFUSED(&hellos, hello.compat.replicated = 2);
	REFUSED(&hellos, hello.compat.group_count = 0);
	REFUSED(&hellos, hello.compat.group_count = KVPULL_GROUPS_MAX + 1);
	REFUSED(&hellos, hello.compat.groups[1].block_tokens = 0);
	REFUSED(&hellos, hello.compat.groups[1].kind = 3);
	REFUSED(&hellos, hello.compat.layout[0] = '\r');
	REFUSED(&hellos,
		memset(hello.compat.model, 'a', KVPULL_TEXT_BYTES_MAX));
}

TEST(welcomes_out_of_bounds_are_not_made)
{
	REFUSED(&welcomes, welcome.incarnation = 0);
	REFUSED(&welcomes, welcome.lease_ns = 0);
	REFUSED(&welcomes, welcome.lease_ns = 9999999);
	REFUSED(&welcomes, welcome.slot_count = 0);
	REFUSED(&welcomes, welcome.slot_count = KVPULL_TICKET_SLOTS_MAX + 1);
	REFUSED(&welcomes, welcome.tp_size = 0);
	REFUSED(&welcomes, welcome.tp_size = KVPULL_RANKS_MAX + 1);
	REFUSED(&welcomes, welcome.tp_rank = 1);
	REFUSED(&welcomes, welcome.pp_rank = 1);
	REFUSED(&welcomes, welcome.pp_rank = welcome.pp_size = 2);
	REFUSED(&welcomes, welcome.pp_size = KVPULL_RANKS_MAX + 1);
	REFUSED(&welcomes, {
		welcome.tp_size = 2;
		welcome.pp_size = KVPULL_RANKS_MAX / 2 + 1;
	});
	REFUSED(&welcomes, welcome.engine_id[0] = 0x1b);
	REFUSED(&welcomes, welcome.region_count = 0);
	REFUSED(&welcomes, welcome.region_count = KVPULL_REGIONS_MAX + 1);
	REFUSED(&welcomes, welcome.regions[0].kind = KVPULL_REGION_DEVICE + 1);
	REFUSED(&welcomes, welcome.regions[0].bytes = 0);
	REFUSED(&welcomes, welcome.regions[0].bytes = UINT64_MAX);
	REFUSED(&welcomes, welcome.cache_count = 0);
	REFUSED(&welcomes, welcome.cache_count = KVPULL_CACHES_MAX + 1);
	REFUSED(&welcomes, welcome.caches[0].region_index = 1);
	REFUSED(&welcomes, welcome.caches[0].group_index = KVPULL_GROUPS_MAX);
	REFUSED(&welcomes, welcome.caches[0].layer_count = 0);
	REFUSED(&welcomes, welcome.caches[0].layer_count = UINT32_MAX);
	REFUSED(&welcomes, welcome.caches[0].block_count = 0);
	REFUSED(&welcomes, welcome.caches[0].row_count = 0);
	REFUSED(&welcomes, welcome.caches[0].head_count = 0);
	REFUSED(&welcomes, welcome.caches[0].head_count = UINT32_MAX);
	REFUSED(&welcomes, welcome.caches[0].head_bytes = 0);
}

/* The last byte of a hello's record, and a welcome's counts, by hand. */
static int welcome_with(size_t at, uint64_t value, size_t value_bytes)
{

	put(&welcomes, NULL);
	value_put(bytes + at, value, value_bytes);
	checksum_put(bytes, byte_count, nonce, "kvpull.welcome.1");
	return get(&welcomes, NULL);
}

static void welcome_refused(size_t at, uint64_t value, size_t value_bytes)
{
	assert_int_equal(welcome_with(at, value, value_bytes), KVPULL_EPROTO);
}

TEST(welcomes_out_of_bounds_are_not_taken)
{
	/* Fixed members, then engine_id: 2 + 9 bytes, then the counts. */
	const size_t regions = 8 + 8 + 8 + 16 + 8 + 11;
	const size_t caches = regions + 2 + 32;

	assert_int_equal(welcome_with(8, 3, 8), 0);
	assert_int_equal(welcome_with(regions, 1, 2), 0);
	assert_int_equal(welcome_with(caches, 1, 2), 0);
	welcome_refused(8, 0, 8);
	/*
	 * The consumer beats each third of the lease: that is less than a peer
	 * can configure.
	 */
	assert_int_equal(welcome_with(16, 10000000, 8), 0);
	welcome_refused(16, 9999999, 8);
	welcome_refused(16, 1, 8);
	welcome_refused(28, 1, 4);
	welcome_refused(regions, 0, 2);
	welcome_refused(regions, KVPULL_REGIONS_MAX + 1, 2);
	welcome_refused(regions, UINT16_MAX, 2);
	welcome_refused(regions + 2, KVPULL_REGION_DEVICE, 4);
	welcome_refused(regions + 2, KVPULL_REGION_DEVICE + 1, 4);
	welcome_refused(regions + 6, KVPULL_REGIONS_MAX, 4);
	welcome_refused(regions + 18, UINT64_MAX, 8);
	welcome_refused(regions + 26, UINT64_MAX, 8);
	welcome_refused(caches, 0, 2);
	welcome_refused(caches, KVPULL_CACHES_MAX + 1, 2);
	welcome_refused(caches, UINT16_MAX, 2);
	welcome_refused(caches + 2, 1, 4);
}

/* All its bytes are there: only the count is over the bound. */
TEST(welcome_of_one_cache_too_many_is_not_taken)
{
	const size_t counts = 8 + 8 + 8 + 16 + 8 + 11;
	size_t cache_bytes;

	put(&welcomes, NULL);
	cache_bytes = byte_count - KVPULL_CHECKSUM_BYTES - counts - 2 - 32 - 2;
	for (byte_count = counts + 2 + 32 + 2 + cache_bytes;
	     byte_count < counts + 36 + (KVPULL_CACHES_MAX + 1) * cache_bytes;
	     byte_count += cache_bytes)
		memcpy(bytes + byte_count, bytes + counts + 36, cache_bytes);
	bytes[counts + 34] = (uint8_t)(KVPULL_CACHES_MAX + 1);
	bytes[counts + 35] = (KVPULL_CACHES_MAX + 1) >> 8;
	byte_count += KVPULL_CHECKSUM_BYTES;
	checksum_put(bytes, byte_count, nonce, "kvpull.welcome.1");
	assert_int_equal(get(&welcomes, NULL), KVPULL_EPROTO);
	/* A welcome with one cache less is good. */
	byte_count -= cache_bytes;
	bytes[counts + 34] = (uint8_t)KVPULL_CACHES_MAX;
	checksum_put(bytes, byte_count, nonce, "kvpull.welcome.1");
	assert_int_equal(get(&welcomes, NULL), 0);
}

TEST(unknown_refusals_are_not_made_or_taken)
{
	struct kvpull_refusal refusal = { .code = KVPULL_EINVAL };

	assert_int_equal(kvpull_handshake_put_refusal(bytes, 64, &refusal), 0);
	refusal.code = KVPULL_EPEER;
	byte_count = kvpull_handshake_put_refusal(bytes, 64, &refusal);
	bytes[7] ^= 1;
	assert_int_equal(get_refusal(byte_count, &refusal), KVPULL_EPROTO);
	text_set(refusal.field, "a\nb");
	assert_int_equal(kvpull_handshake_put_refusal(bytes, 64, &refusal), 0);
}

TEST(oversize_message_is_refused)
{
	put(&hellos, NULL);
	assert_int_equal(
		kvpull_handshake_kind(bytes, KVPULL_MESSAGE_BYTES_MAX + 1),
		KVPULL_EPROTO);
}

TEST(random_bytes_are_refused)
{
	uint64_t seed = 8;
	uint32_t i;

	put(&hellos, NULL);
	for (i = 0; i < 100000; i++) {
		size_t at;

		byte_count = (size_t)(random_next(&seed) % 128);
		/* The start is good, to come further than the magic. */
		for (at = i & 1 ? 8 : 0; at < byte_count; at++)
			bytes[at] = (uint8_t)(random_next(&seed) >> 20);
		assert_true(get(&hellos, NULL) < 0);
		assert_true(get(&welcomes, NULL) < 0);
		put(&hellos, NULL);
	}
}
