/* SPDX-License-Identifier: Apache-2.0 */
/* The pure parts of the verbs route: addresses, frames, keys, slices. */

#include <string.h>

#include "tests/lib/unit.h"
#include "verbs/address.h"
#include "verbs/cursor.h"
#include "verbs/endpoint.h"
#include "verbs/frame.h"

UNIT_TEST(address_is_printed_as_it_was_read)
{
	static const char *const texts[] = { "10.0.0.1:1", "192.168.7.9:65535",
					     "[fd00::5]:7471", "[::1]:80" };
	struct kvpull_verbs_address address;
	char text[KVPULL_ADDRESS_BYTES_MAX];
	size_t i;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		assert_int_equal(kvpull_verbs_address_parse(texts[i], &address),
				 0);
		kvpull_verbs_address_print(&address, text);
		assert_string_equal(text, texts[i]);
	}
}

/* A device's GID has an IPv4 address mapped into it. */
UNIT_TEST(gid_is_the_address_that_it_stands_for)
{
	static const uint8_t four[16] = { [10] = 0xff, 0xff, 10, 0, 0, 1 };
	static const uint8_t six[16] = { 0xfd, [15] = 5 };
	struct kvpull_verbs_address address;
	char text[KVPULL_ADDRESS_BYTES_MAX];

	kvpull_verbs_address_of_gid(four, &address);
	kvpull_verbs_address_set_port(&address, 1);
	kvpull_verbs_address_print(&address, text);
	assert_string_equal(text, "10.0.0.1:1");
	kvpull_verbs_address_of_gid(six, &address);
	kvpull_verbs_address_set_port(&address, 2);
	kvpull_verbs_address_print(&address, text);
	assert_string_equal(text, "[fd00::5]:2");
}

UNIT_TEST(text_that_is_no_address_is_refused)
{
	static const char *const texts[] = {
		"",
		"10.0.0.1",
		"10.0.0.1:",
		"10.0.0.1:0",
		"10.0.0.1:65536",
		"10.0.0.1:5x",
		"host:5",
		"fd00::5:7471",
		"[10.0.0.1]:5",
		"[fd00::5]",
		"[fd00::5]5",
		"[]:5",
		"[fd00::5:5",
		"[::ffff:10.0.0.1]:5",
		" 10.0.0.1:5",
	};
	struct kvpull_verbs_address address;
	size_t i;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(kvpull_verbs_address_parse(texts[i], &address),
				 KVPULL_EINVAL);
}

UNIT_TEST(addresses_of_rails_are_a_list)
{
	static const char *const good[] = {
		"10.0.0.1:1", "10.0.0.1:1,10.1.0.1:2",
		"[fd00::5]:7,10.0.0.1:1,10.0.0.2:2,10.0.0.3:3"
	};
	static const char *const bad[] = {
		"",
		",",
		"10.0.0.1:1,",
		",10.0.0.1:1",
		"10.0.0.1:1,,10.0.0.2:2",
		"10.0.0.1:1, 10.0.0.2:2",
		"10.0.0.1:1,10.0.0.2",
		("1.1.1.1:1,1.1.1.1:1,1.1.1.1:1,1.1.1.1:1,1.1.1.1:1,"
		 "1.1.1.1:1,1.1.1.1:1,1.1.1.1:1,1.1.1.1:1"),
	};
	struct kvpull_verbs_addresses addresses;
	char text[KVPULL_ADDRESS_BYTES_MAX];
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(
			kvpull_verbs_addresses_parse(good[i], &addresses), 0);
		assert_int_equal(addresses.count, i < 2 ? i + 1 : 4);
		kvpull_verbs_address_print(&addresses.list[0], text);
		assert_memory_equal(text, good[i], strlen(text));
	}
	kvpull_verbs_address_print(&addresses.list[3], text);
	assert_string_equal(text, "10.0.0.3:3");
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(
			kvpull_verbs_addresses_parse(bad[i], &addresses),
			KVPULL_EINVAL);
}

/* Part `rank` of a list is this, or does not fit into 8 bytes: NULL. */
static void part_is(const char *list, uint32_t rank, const char *part)
{
	char out[8];

	if (!part) {
		assert_int_equal(
			kvpull_verbs_rank_list(list, rank, out, sizeof(out)),
			KVPULL_EINVAL);
		return;
	}
	assert_int_equal(kvpull_verbs_rank_list(list, rank, out, sizeof(out)),
			 0);
	assert_string_equal(out, part);
}

UNIT_TEST(rank_has_its_part_of_a_list)
{
	part_is("", 0, "");
	part_is("", 7, "");
	part_is("a,b", 0, "a,b");
	part_is("a,b", 3, "a,b");
	part_is("a,b;c;d,e", 0, "a,b");
	part_is("a,b;c;d,e", 1, "c");
	part_is("a,b;c;d,e", 2, "d,e");
	part_is("a,b;c;d,e", 3, "a,b");
	part_is("a,b;c;d,e", UINT32_MAX, "a,b");
	part_is("a, b ; c", 0, "a,b");
	part_is("a, b ; c", 1, "c");
	part_is("a;1234567", 1, "1234567");
	part_is("a;12345678", 1, NULL);
}

UNIT_TEST(item_of_a_list_has_room_for_its_end)
{
	const char *list = "abc,defg,h";
	char item[4];

	assert_int_equal(kvpull_verbs_item_next(&list, item, sizeof(item)), 1);
	assert_string_equal(item, "abc");
	assert_int_equal(kvpull_verbs_item_next(&list, item, sizeof(item)),
			 KVPULL_EINVAL);
}

UNIT_TEST(greeting_comes_back_as_it_went)
{
	const struct kvpull_verbs_greeting sent = { .kind = KVPULL_VERBS_JOIN,
						    .credits = 32,
						    .rail = 3,
						    .lane = 2,
						    .mtu = IBV_MTU_1024,
						    .token = { 5,
							       1ull << 63 } };
	uint8_t bytes[56] = { 0 }; /* the CM pads */
	struct kvpull_verbs_greeting got;

	kvpull_verbs_greeting_put(bytes, &sent);
	assert_int_equal(kvpull_verbs_greeting_get(bytes, sizeof(bytes), &got),
			 0);
	assert_int_equal(got.kind, sent.kind);
	assert_int_equal(got.credits, sent.credits);
	assert_int_equal(got.rail, sent.rail);
	assert_int_equal(got.lane, sent.lane);
	assert_int_equal(got.mtu, sent.mtu);
	assert_memory_equal(got.token, sent.token, sizeof(got.token));
}

UNIT_TEST(greeting_that_is_none_is_refused)
{
	const struct kvpull_verbs_greeting sent = { .kind = KVPULL_VERBS_CALL,
						    .credits = 32,
						    .mtu = IBV_MTU_1024 };
	uint8_t bytes[KVPULL_VERBS_PRIVATE_BYTES];
	struct kvpull_verbs_greeting got;
	uint32_t at;

	assert_int_equal(kvpull_verbs_greeting_get(NULL, 0, &got),
			 KVPULL_EPROTO);
	kvpull_verbs_greeting_put(bytes, &sent);
	for (at = 0; at < sizeof(bytes); at++)
		assert_int_equal(kvpull_verbs_greeting_get(bytes, at, &got),
				 KVPULL_EPROTO);
	/* magic, version, credits, kind */
	bytes[0]++;
	assert_int_equal(kvpull_verbs_greeting_get(bytes, sizeof(bytes), &got),
			 KVPULL_EPROTO);
	kvpull_verbs_greeting_put(bytes, &sent);
	bytes[4]++;
	assert_int_equal(kvpull_verbs_greeting_get(bytes, sizeof(bytes), &got),
			 KVPULL_EVERSION);
	kvpull_verbs_greeting_put(bytes, &sent);
	bytes[6] = 0;
	assert_int_equal(kvpull_verbs_greeting_get(bytes, sizeof(bytes), &got),
			 KVPULL_EPROTO);
	kvpull_verbs_greeting_put(bytes, &sent);
	bytes[12] = 0; /* its MTU */
	assert_int_equal(kvpull_verbs_greeting_get(bytes, sizeof(bytes), &got),
			 KVPULL_EPROTO);
	for (at = 0; at < 256; at++) {
		kvpull_verbs_greeting_put(bytes, &sent);
		bytes[8] = (uint8_t)at;
		assert_int_equal(
			kvpull_verbs_greeting_get(bytes, sizeof(bytes), &got),
			at >= KVPULL_VERBS_CALL && at <= KVPULL_VERBS_OTHER ?
				0 :
				KVPULL_EPROTO);
	}
}

UNIT_TEST(rails_are_counted_by_what_names_them)
{
	static const struct {
		const char *device, *address;
		uint32_t rails, wanted;
	} cases[] = {
		{ NULL, NULL, 0, 1 },
		{ "", "", 0, 1 },
		{ "a", "", 0, 1 },
		{ "a,b", "", 0, 2 },
		{ "a", "1.1.1.1,2", 0, 2 },
		{ "a,b,c", "x,y", 0, 3 },
		{ "", "", 3, 3 },
		{ "a,b", "", 1, 1 },
		{ "a", "", 2, 2 },
		{ "a,b,c,d,e,f", "", 0, 6 },
		{ "a,b,c,d,e,f,g,h,i", "", 0, 8 },
	};
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct kvpull_verbs_params params = {
			.device = cases[i].device,
			.address = cases[i].address,
			.rails = cases[i].rails,
		};

		assert_int_equal(kvpull_verbs_rails_wanted(&params),
				 cases[i].wanted);
	}
}

static int allowed(const char *networks, const char *text)
{
	struct kvpull_verbs_address address;
	struct kvpull_networks list;

	assert_int_equal(kvpull_verbs_networks_parse(networks, &list), 0);
	assert_int_equal(kvpull_verbs_address_parse(text, &address), 0);
	return kvpull_verbs_networks_allow(&list, &address);
}

UNIT_TEST(network_ends_at_its_last_bit)
{
	assert_true(allowed("10.1.0.0/15", "10.0.255.255:5"));
	assert_false(allowed("10.1.0.0/15", "10.2.0.0:5"));
	assert_true(allowed("1.2.3.4/32,10.0.0.0/8", "10.9.9.9:5"));
	assert_true(allowed(" 1.2.3.4/32,  10.0.0.0/8", "10.9.9.9:5"));
	assert_false(allowed("1.2.3.4/32", "1.2.3.5:5"));
	assert_true(allowed("0.0.0.0/0", "8.8.8.8:5"));
	assert_false(allowed("0.0.0.0/0", "[fd00::1]:5"));
	assert_true(allowed("fd00::/9", "[fd7f::1]:5"));
	assert_false(allowed("fd00::/9", "[fd80::1]:5"));
	assert_false(allowed("", "10.0.0.1:5"));
}

UNIT_TEST(list_that_is_no_networks_is_refused)
{
	static const char *const texts[] = { "10.0.0.0",   "10.0.0.0/33",
					     "fd00::/129", "10.0.0.0/8,,",
					     "x/8",        "/8",
					     "10.0.0.0/",  "10.0.0.0/8x",
					     "fd00::/-1",  "10.0.0.0/ 8" };
	struct kvpull_networks list;
	size_t i;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(kvpull_verbs_networks_parse(texts[i], &list),
				 KVPULL_ECONFIG);
}

UNIT_TEST(subnet_is_address_and_netmask)
{
	struct kvpull_verbs_address address;
	struct kvpull_verbs_address mask;
	struct kvpull_networks list = { .count = 1 };

	assert_int_equal(kvpull_verbs_address_parse_ip("10.66.3.9", &address),
			 0);
	assert_int_equal(kvpull_verbs_address_parse_ip("255.255.254.0", &mask),
			 0);
	kvpull_verbs_network_of(&address, &mask, &list.list[0]);
	assert_int_equal(list.list[0].prefix_bits, 23);
	assert_int_equal(kvpull_verbs_address_parse("10.66.2.1:5", &address),
			 0);
	assert_true(kvpull_verbs_networks_allow(&list, &address));
	assert_int_equal(kvpull_verbs_address_parse("10.66.4.1:5", &address),
			 0);
	assert_false(kvpull_verbs_networks_allow(&list, &address));
}

UNIT_TEST(frame_comes_back_as_it_went)
{
	const struct kvpull_frame sent = { .kind = KVPULL_FRAME_MESSAGE,
					   .acked = 0xfffffff0u,
					   .total = 5000,
					   .offset = 1008,
					   .payload = (const uint8_t *)"abc",
					   .payload_bytes = 3 };
	struct kvpull_frame got;
	uint8_t bytes[KVPULL_FRAME_BYTES];
	uint32_t count = kvpull_frame_put(bytes, &sent);

	assert_int_equal(kvpull_frame_get(bytes, count, &got), 0);
	assert_int_equal(got.kind, sent.kind);
	assert_int_equal(got.acked, sent.acked);
	assert_int_equal(got.total, sent.total);
	assert_int_equal(got.offset, sent.offset);
	assert_int_equal(got.payload_bytes, 3);
	assert_memory_equal(got.payload, "abc", 3);
	assert_int_equal(kvpull_frame_get(bytes, 15, &got), KVPULL_EPROTO);
	assert_int_equal(kvpull_frame_get(bytes, KVPULL_FRAME_BYTES + 1, &got),
			 KVPULL_EPROTO);
	bytes[2]++;
	assert_int_equal(kvpull_frame_get(bytes, 19, &got), KVPULL_EVERSION);
	bytes[0]++;
	assert_int_equal(kvpull_frame_get(bytes, 19, &got), KVPULL_EPROTO);
}

/* A piece of a message of `total` bytes. */
static int piece(struct kvpull_inbox *inbox, uint32_t total, uint32_t offset,
		 uint32_t bytes)
{
	static const uint8_t payload[KVPULL_FRAME_BYTES];
	const struct kvpull_frame frame = { .kind = KVPULL_FRAME_MESSAGE,
					    .total = total,
					    .offset = offset,
					    .payload = payload,
					    .payload_bytes = bytes };

	return kvpull_inbox_add(inbox, &frame);
}

UNIT_TEST(message_is_whole_after_its_last_piece)
{
	uint8_t data[3000];
	struct kvpull_inbox inbox = { .data = data, .capacity = sizeof(data) };

	assert_int_equal(piece(&inbox, 2100, 0, 1008), 0);
	assert_int_equal(piece(&inbox, 2100, 1008, 1008), 0);
	assert_int_equal(piece(&inbox, 2100, 2016, 84), 1);
	assert_int_equal(piece(&inbox, 10, 0, 10), 1);
	assert_int_equal(piece(&inbox, 3000, 0, 1008), 0);
}

UNIT_TEST(pieces_that_do_not_fit_are_refused)
{
	static const uint32_t bad[][3] = {
		{ 3001, 0, 1008 },       { 0, 0, 0 },     { 2100, 1008, 1008 },
		{ 2100, 0, 1007 },       { 2100, 0, 10 }, { 10, 0, 11 },
		{ UINT32_MAX, 0, 1008 },
	};
	uint8_t data[3000];
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct kvpull_inbox inbox = { .data = data,
					      .capacity = sizeof(data) };

		assert_int_equal(piece(&inbox, bad[i][0], bad[i][1], bad[i][2]),
				 KVPULL_EPROTO);
	}
	for (i = 0; i < 4; i++) {
		struct kvpull_inbox inbox = { .data = data,
					      .capacity = sizeof(data) };

		assert_int_equal(piece(&inbox, 2100, 0, 1008), 0);
		assert_int_equal(piece(&inbox, i == 1 ? 2200 : 2100,
				       i == 0 ? 0 :
				       i == 2 ? 2016 :
						1008,
				       i == 3 ? 1007 : 1008),
				 KVPULL_EPROTO);
	}
}

static int keys_code(const struct kvpull_keys *keys)
{
	static struct kvpull_keys got;
	uint8_t bytes[KVPULL_KEYS_BYTES_MAX];

	return kvpull_keys_get(bytes, kvpull_keys_put(bytes, keys), &got);
}

static const struct kvpull_keys keys_good = {
	.region_count = 2,
	.slot_count = 4,
	.mr_shift = 12,
	.qps = KVPULL_VERBS_QPS_MAX,
	.entries = { 4096, 128 },
	.entries_key = 7,
	.regions = { { 8192, 100 }, { 16380, 4100 } },
	.mr_count = 3,
	.mr_keys = { 8, 9, 10 },
	.mr_first = { 0, 1 },
};

UNIT_TEST(keys_that_do_not_add_up_are_refused)
{
	static struct kvpull_serve serve = { .region_count = 2,
					     .slot_count = 4 };
	static struct kvpull_keys got;
	static struct kvpull_keys bad;
	uint8_t bytes[KVPULL_KEYS_BYTES_MAX];
	uint32_t count;

	serve.regions[0].bytes = 100;
	serve.regions[1].bytes = 4100;
	count = kvpull_keys_put(bytes, &keys_good);
	assert_int_equal(kvpull_keys_get(bytes, count, &got), 0);
	assert_memory_equal(&got, &keys_good, sizeof(keys_good));
	assert_int_equal(kvpull_keys_check(&got, &serve), 0);
	serve.regions[1].bytes = 4101;
	assert_int_equal(kvpull_keys_check(&got, &serve), KVPULL_EPROTO);
	/* A region more than there are keys of. */
	serve.regions[1].bytes = 4100;
	serve.region_count = 3;
	assert_int_equal(kvpull_keys_check(&got, &serve), KVPULL_EPROTO);
	assert_int_equal(kvpull_keys_get(bytes, count - 1, &got),
			 KVPULL_EPROTO);
	assert_int_equal(kvpull_keys_get(bytes, count + 1, &got),
			 KVPULL_EPROTO);
	bad = keys_good;
	bad.entries.bytes = 127;
	assert_int_equal(keys_code(&bad), KVPULL_EPROTO);
	bad = keys_good;
	bad.entries.address = UINT64_MAX - 127;
	assert_int_equal(keys_code(&bad), KVPULL_EPROTO);
	bad = keys_good;
	bad.regions[1].address = UINT64_MAX - 100;
	assert_int_equal(keys_code(&bad), KVPULL_EPROTO);
	bad = keys_good;
	bad.mr_count = 2;
	assert_int_equal(keys_code(&bad), KVPULL_EPROTO);
	bad = keys_good;
	bad.regions[0].bytes = UINT64_MAX - 8192;
	assert_int_equal(keys_code(&bad), KVPULL_EPROTO);
	bad = keys_good;
	bad.mr_shift = KVPULL_MR_SHIFT_MIN - 1;
	assert_int_equal(keys_code(&bad), KVPULL_EPROTO);
	bad.mr_shift = KVPULL_MR_SHIFT_MAX + 1;
	assert_int_equal(keys_code(&bad), KVPULL_EPROTO);
}

UNIT_TEST(keys_of_too_few_or_too_many_queue_pairs_are_refused)
{
	static struct kvpull_keys bad;

	bad = keys_good;
	assert_int_equal(keys_code(&bad), 0);
	bad.qps = 0;
	assert_int_equal(keys_code(&bad), KVPULL_EPROTO);
	bad.qps = KVPULL_VERBS_QPS_MAX + 1;
	assert_int_equal(keys_code(&bad), KVPULL_EPROTO);
}

/* The key of an address is that of the slice that it lies in. */
UNIT_TEST(keys_of_slices_are_found_by_address)
{
	static struct kvpull_keys keys = {
		.region_count = 3,
		.mr_shift = 12,
		.regions = { { 4000, 200 }, { 8192, 8192 }, { 100, 1 } },
	};

	assert_int_equal(kvpull_keys_layout(&keys), 5);
	assert_int_equal(kvpull_keys_mr(&keys, 0, 4000), 0);
	assert_int_equal(kvpull_keys_mr(&keys, 0, 4095), 0);
	assert_int_equal(kvpull_keys_mr(&keys, 0, 4096), 1);
	assert_int_equal(kvpull_keys_mr(&keys, 1, 8192), 2);
	assert_int_equal(kvpull_keys_mr(&keys, 1, 12288), 3);
	assert_int_equal(kvpull_keys_mr(&keys, 2, 100), 4);
	assert_int_equal(kvpull_mr_left(4095, 12), 1);
	assert_int_equal(kvpull_mr_left(4096, 12), 4096);
}

#define BLOCKS 40u
#define BLOCK 48u

/* Random strips and ids: slices, carried out, are the plain loops' copy. */
struct copy_case {
	uint8_t remote[2][4 * BLOCKS * BLOCK];
	uint8_t local[4 * BLOCKS * BLOCK];
	uint8_t wanted[4 * BLOCKS * BLOCK];
	struct kvpull_strip strips[4];
	uint32_t remote_ids[2 * BLOCKS], local_ids[2 * BLOCKS];
	uint32_t group_first[KVPULL_GROUPS_MAX + 1];
	struct kvpull_read read;
};

static uint32_t random_state = 12345;

static uint32_t below(uint32_t most)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (random_state >> 8) % most;
}

static void case_make(struct copy_case *own)
{
	uint32_t i;

	memset(own, 0, sizeof(*own));
	for (i = 0; i < sizeof(own->remote); i++)
		own->remote[i / sizeof(own->remote[0])]
			   [i % sizeof(own->remote[0])] = (uint8_t)below(256);
	own->group_first[1] = below(BLOCKS);
	for (i = 2; i <= KVPULL_GROUPS_MAX; i++)
		own->group_first[i] = own->group_first[1] + BLOCKS;
	for (i = 0; i < 2 * BLOCKS; i++) {
		const int runs = i % BLOCKS && below(3);

		own->remote_ids[i] =
			runs ? (own->remote_ids[i - 1] + 1) % BLOCKS :
			       below(BLOCKS);
		/* Each local block once: the order must not matter. */
		own->local_ids[i] = i % BLOCKS;
	}
	for (i = 0; i < 4; i++) {
		const uint32_t rows = 1 + below(3);
		const uint64_t row = BLOCK / rows / (1 + below(2));

		own->strips[i] = (struct kvpull_strip){
			.region_index = below(2),
			.group_index = below(2),
			.remote_offset = below(4) * BLOCKS * BLOCK,
			.remote_block_stride = BLOCK,
			.remote_row_stride = below(2) ? row : BLOCK / rows,
			.local = own->local + i * BLOCKS * BLOCK,
			.local_block_stride = BLOCK,
			.local_row_stride = below(2) ? row : BLOCK / rows,
			.row_bytes = row,
			.row_count = rows,
		};
	}
	own->read = (struct kvpull_read){ .strip_count = 4,
					  .strips = own->strips,
					  .remote_ids = own->remote_ids,
					  .local_ids = own->local_ids,
					  .group_first = own->group_first };
}

static void plain_copy(struct copy_case *own, const struct kvpull_strip *strip)
{
	uint32_t id;
	uint32_t row;

	for (id = own->group_first[strip->group_index];
	     id < own->group_first[strip->group_index + 1]; id++)
		for (row = 0; row < strip->row_count; row++)
			memcpy(own->wanted + (strip->local - own->local) +
				       own->local_ids[id] *
					       strip->local_block_stride +
				       row * strip->local_row_stride,
			       own->remote[strip->region_index] +
				       strip->remote_offset +
				       own->remote_ids[id] *
					       strip->remote_block_stride +
				       row * strip->remote_row_stride,
			       strip->row_bytes);
}

static void segments_copy(struct copy_case *own,
			  const struct kvpull_slice_limits *limits)
{
	struct kvpull_slice slice;
	struct kvpull_cursor cursor;
	struct kvpull_cursor sought;
	uint64_t total = 0;
	uint32_t i;

	kvpull_cursor_seek(&cursor, &own->read, 0);
	while (!kvpull_cursor_is_done(&cursor, &own->read)) {
		uint64_t at = 0;

		/* The same place, found by its bytes. */
		assert_int_equal(kvpull_cursor_tell(&cursor, &own->read),
				 total);
		kvpull_cursor_seek(&sought, &own->read, total);
		assert_memory_equal(&cursor, &sought, sizeof(cursor));
		kvpull_cursor_next(&cursor, &own->read, limits, &slice);
		assert_in_range(slice.bytes, 1, limits->bytes_max);
		assert_in_range(slice.part_count, 1, limits->parts_max);
		assert_in_range(
			slice.bytes, 1,
			kvpull_mr_left(limits->keys->regions[slice.region_index]
						       .address +
					       slice.remote_offset,
				       limits->keys->mr_shift));
		for (i = 0; i < slice.part_count; i++) {
			assert_in_range(
				slice.parts[i].bytes, 1,
				kvpull_mr_left((uintptr_t)slice.parts[i].local,
					       limits->mr_shift));
			memcpy(slice.parts[i].local,
			       own->remote[slice.region_index] +
				       slice.remote_offset + at,
			       slice.parts[i].bytes);
			at += slice.parts[i].bytes;
		}
		assert_int_equal(at, slice.bytes);
		total += at;
	}
	assert_int_equal(kvpull_cursor_tell(&cursor, &own->read), total);
	kvpull_cursor_seek(&sought, &own->read, total);
	assert_true(kvpull_cursor_is_done(&sought, &own->read));
}

UNIT_TEST(segments_are_the_strips_bytes)
{
	static struct copy_case own;
	static struct kvpull_keys keys;
	uint32_t round;
	uint32_t i;

	for (round = 0; round < 3000; round++) {
		const struct kvpull_slice_limits limits = {
			.bytes_max = 1 + below(round % 2 ? 100 : 5000),
			.parts_max = 1 + below(KVPULL_SLICE_PARTS_MAX),
			/* Slices as small as a row, and none at all. */
			.mr_shift = round % 3 ? 5 + below(5) : 40,
			.keys = &keys,
		};

		keys.mr_shift = round % 5 ? 5 + below(5) : 40;
		keys.regions[0].address = below(1000);
		keys.regions[1].address = below(1000);

		case_make(&own);
		for (i = 0; i < 4; i++)
			plain_copy(&own, &own.strips[i]);
		segments_copy(&own, &limits);
		assert_memory_equal(own.local, own.wanted, sizeof(own.local));
	}
}

UNIT_TEST(part_never_reaches_into_another_strip)
{
	static struct copy_case own;
	static const struct kvpull_keys keys = { .mr_shift = 40 };
	const struct kvpull_slice_limits limits = { .bytes_max = 1 << 20,
						    .parts_max = 8,
						    .mr_shift = 40,
						    .keys = &keys };
	struct kvpull_slice slice;
	struct kvpull_cursor cursor;
	uint32_t i;

	case_make(&own);
	own.read.strip_count = 2;
	own.group_first[1] = 0;
	own.group_first[2] = BLOCKS;
	for (i = 0; i < BLOCKS; i++)
		own.remote_ids[i] = i;
	for (i = 0; i < 2; i++) {
		own.strips[i] = (struct kvpull_strip){
			.group_index = 1,
			.remote_offset = i * BLOCKS * BLOCK,
			.remote_block_stride = BLOCK,
			.local = own.local + i * BLOCKS * BLOCK,
			.local_block_stride = BLOCK,
			.row_bytes = BLOCK,
			.row_count = 1,
		};
	}
	kvpull_cursor_seek(&cursor, &own.read, 0);
	kvpull_cursor_next(&cursor, &own.read, &limits, &slice);
	assert_true(kvpull_cursor_is_done(&cursor, &own.read));
	assert_int_equal(slice.part_count, 2);
	assert_int_equal(slice.parts[0].bytes, BLOCKS * BLOCK);
}
