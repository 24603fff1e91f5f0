/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First byte even: the rest is a text, as a router may hand it out. Odd: the
 * rest is a body, to which the right checksum is added, since no mutation
 * would find it. What is decoded is encoded again and must come back. With the
 * fourth bit set it is peeked into as well (which maps memory, so it is slow).
 */
#include <string.h>

#include <sodium.h>

#include "plugin/bytes/ticket.h"
#include "tests/fuzz/fuzz.h"

#define BODY_BYTES_MAX 65536u

static uint32_t ids[2][KVPULL_TICKET_BLOCKS_MAX];
static uint8_t scratch[KVPULL_TICKET_BYTES_MAX];
static struct kvpull_ticket tickets[2];
static char text[KVPULL_TICKET_BYTES_MAX + 1];
static int is_peeked;

static void check_ids(const struct kvpull_ticket *first,
		      const struct kvpull_ticket *second)
{
	uint32_t i;

	for (i = 0; i < first->group_count; i++) {
		const struct kvpull_ticket_group *group = &first->groups[i];

		expect(!memcmp(group, &second->groups[i], sizeof(*group)));
	}
	expect(first->ids.count == second->ids.count);
	expect(!memcmp(ids[0], ids[1], first->ids.count * sizeof(uint32_t)));
}

/* As who shows a ticket: the ids are where the body is, until it is lost. */
static void ids_take(uint32_t index)
{
	const struct kvpull_ids *from = &tickets[index].ids;

	kvpull_ids_copy(from, 0, from->count, ids[index]);
	tickets[index].block_ids = ids[index];
}

/* Looks without a key, so it may take what decode() does not. */
static void peek(const char *from, size_t from_bytes, int is_ticket)
{
	static struct kvpull_ticket_scratch peeked;
	struct kvpull_ticket_info info = { .struct_size = sizeof(info) };
	const int code = kvpull_ticket_peek(from, from_bytes, &peeked, &info);

	if (!is_ticket)
		return;
	expect(!code);
	expect(info.generation == tickets[0].generation);
	expect(info.slot == tickets[0].slot);
	expect(info.rank_count == tickets[0].rank_count);
}

static void decode(const char *from, size_t from_bytes)
{
	size_t text_bytes;
	uint32_t i;
	const int code = kvpull_ticket_decode(from, from_bytes, NULL, scratch,
					      &tickets[0]);

	if (is_peeked)
		peek(from, from_bytes, !code);
	if (code)
		return;
	ids_take(0);
	expect(!kvpull_ticket_encode(&tickets[0], NULL, scratch, text,
				     sizeof(text), &text_bytes));
	expect(!kvpull_ticket_decode(text, text_bytes, NULL, scratch,
				     &tickets[1]));
	ids_take(1);
	expect(tickets[0].generation == tickets[1].generation);
	expect(tickets[0].slot == tickets[1].slot);
	expect(tickets[0].rank_count == tickets[1].rank_count);
	expect(tickets[0].group_count == tickets[1].group_count);
	expect(tickets[0].payload_bytes == tickets[1].payload_bytes);
	expect(!memcmp(tickets[0].payload, tickets[1].payload,
		       tickets[0].payload_bytes));
	check_ids(&tickets[0], &tickets[1]);
	for (i = 0; i < tickets[0].rank_count; i++) {
		char part[KVPULL_ADDRESS_BYTES_MAX];

		expect(!strcmp(tickets[0].ranks[i].address,
			       tickets[1].ranks[i].address));
		(void)!kvpull_ticket_address(tickets[0].ranks[i].address, "shm",
					     part);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
	static const uint8_t use[] = "kvpull.ticket.v1";
	static uint8_t body[BODY_BYTES_MAX + KVPULL_CHECKSUM_BYTES];
	uint8_t derived[crypto_shorthash_siphashx24_KEYBYTES];

	if (!data_bytes || data_bytes > BODY_BYTES_MAX)
		return 0;
	is_peeked = data[0] & 8;
	if (!(data[0] & 1)) {
		decode((const char *)data + 1, data_bytes - 1);
		return 0;
	}
	data++;
	data_bytes--;
	memcpy(body, data, data_bytes);
	(void)crypto_generichash_blake2b_salt_personal(
		derived, sizeof(derived), NULL, 0, NULL, 0, NULL, use);
	(void)crypto_shorthash_siphashx24(body + data_bytes, body, data_bytes,
					  derived);
	memcpy(text, "kvp2.", 5);
	(void)sodium_bin2base64(text + 5, sizeof(text) - 5, body,
				data_bytes + KVPULL_CHECKSUM_BYTES,
				sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	decode(text, strlen(text));
	return 0;
}
