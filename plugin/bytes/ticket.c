/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ticket's codec: its table, the checksum over its body, and base64url.
 *
 * Kept: decode() uses no byte before the checksum over all of them matched,
 * writes nothing past a bound whatever they say, and takes time linear in the
 * text plus KVPULL_TICKET_BLOCKS_MAX. There is one text a body: another
 * spelling of the same bytes is refused. encode() refuses what decode() would,
 * and never needs more than KVPULL_TICKET_BYTES_MAX.
 *
 * Body: the table's fields, then 16 bytes of checksum; with a key, then 16
 * bytes of MAC over all before them.
 */
#include "plugin/bytes/ticket.h"

#include <string.h>

#include <sodium.h>

#include "base/fields_inline.h"
#include "base/params.h"
#include "plugin/bytes/base64.h"

#define HEAD_BYTES 5u
#define PREFIX_BYTES 3u /* "kvp": ours, whatever the version */
#define ROUTE_BYTES_MAX 16u

/* No text: there is no zero at its end. */
static const char ticket_head[HEAD_BYTES] = { 'k', 'v', 'p', '2', '.' };

#define FIXED_BYTES_MAX                                                        \
	(4u + 8u + 4u + 4u + 4u + 2u + KVPULL_ENGINE_ID_BYTES_MAX +            \
	 KVPULL_COMPAT_BYTES + KVPULL_DIGEST_BYTES + 1u + 1u + 2u +            \
	 KVPULL_PAYLOAD_BYTES_MAX + 4u + KVPULL_TRACE_BYTES +                  \
	 2u * KVPULL_CHECKSUM_BYTES)
#define BODY_BYTES_MAX                                                         \
	(FIXED_BYTES_MAX + KVPULL_GROUPS_MAX * 12u + 4u +                      \
	 KVPULL_IDS_BYTES(KVPULL_TICKET_BLOCKS_MAX) +                          \
	 KVPULL_RANKS_MAX * (18u + KVPULL_TICKET_ADDRESS_BYTES_MAX))

_Static_assert(HEAD_BYTES + (BODY_BYTES_MAX * 4u + 2u) / 3u <=
		       KVPULL_TICKET_BYTES_MAX,
	       "the largest ticket fits into the bound that the ABI tells");
_Static_assert(KVPULL_RANKS_MAX <= UINT8_MAX && KVPULL_GROUPS_MAX <= UINT8_MAX,
	       "counts are one byte on the wire");

/*
 * SipHash, since BLAKE2b takes 1.2 ns a byte, and a scattered ticket's ids are
 * thousands of them; a key of its own, since no other message's MAC may be a
 * ticket's.
 */
static void checksum(const uint8_t *body, size_t body_bytes, const uint8_t *key,
		     uint8_t sum[KVPULL_CHECKSUM_BYTES])
{
	static const uint8_t use[crypto_generichash_blake2b_PERSONALBYTES + 1] =
		"kvpull.ticket.v1";
	uint8_t derived[crypto_shorthash_siphashx24_KEYBYTES];

	_Static_assert(crypto_shorthash_siphashx24_BYTES ==
			       KVPULL_CHECKSUM_BYTES,
		       "SipHash fills the checksum");
	(void)crypto_generichash_blake2b_salt_personal(
		derived, sizeof(derived), NULL, 0, key,
		key ? KVPULL_KEY_BYTES : 0, NULL, use);
	(void)crypto_shorthash_siphashx24(sum, body, body_bytes, derived);
	sodium_memzero(derived, sizeof(derived));
}

/* Bytes of the route's name before its ':', or 0. */
static size_t route_bytes(const char *part)
{
	size_t at;

	for (at = 0; at < ROUTE_BYTES_MAX; at++) {
		const char c = part[at];

		if (c == ':')
			return at;
		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')))
			return 0;
	}
	return 0;
}

/* Bytes of a part's text up to ';' or NUL; 0 if it is no good. */
static size_t part_bytes(const char *part)
{
	size_t at;

	for (at = 0; at < KVPULL_ADDRESS_BYTES_MAX; at++) {
		if (!part[at] || part[at] == ';')
			return at;
		if ((uint8_t)part[at] < 0x20 || (uint8_t)part[at] > 0x7e)
			return 0;
	}
	return 0;
}

static int address_is_good(const void *member)
{
	const char *address = member;

	for (;;) {
		const size_t name_bytes = route_bytes(address);
		size_t text_bytes;

		if (!name_bytes)
			return 0;
		address += name_bytes + 1;
		text_bytes = part_bytes(address);
		if (!text_bytes)
			return 0;
		address += text_bytes;
		if (!*address)
			return 1;
		address++;
	}
}

int kvpull_ticket_address_is_good(const char *address)
{
	return strnlen(address, KVPULL_TICKET_ADDRESS_BYTES_MAX) <
		       KVPULL_TICKET_ADDRESS_BYTES_MAX &&
	       address_is_good(address);
}

int kvpull_ticket_address(const char *address, const char *route, char *text)
{
	const size_t wanted_bytes = strlen(route);

	for (;;) {
		const char *end = strchrnul(address, ';');
		const char *colon =
			memchr(address, ':', (size_t)(end - address));

		if (colon && (size_t)(colon - address) == wanted_bytes &&
		    !memcmp(address, route, wanted_bytes) &&
		    end - colon - 1 < KVPULL_ADDRESS_BYTES_MAX) {
			const size_t text_bytes = (size_t)(end - colon) - 1;

			memcpy(text, colon + 1, text_bytes);
			text[text_bytes] = '\0';
			return 0;
		}
		if (!*end)
			return KVPULL_EROUTE;
		address = end + 1;
	}
}

static int group_is_good(const void *message)
{
	const struct kvpull_ticket_group *group = message;

	return group->block_count <= UINT32_MAX - group->first_index;
}

/* clang-format off */
static const struct kvpull_field group_fields[] = {
	KVPULL_FIELD_OF(U32, struct kvpull_ticket_group, block_tokens,
			.min = 1),
	KVPULL_FIELD_OF(U32, struct kvpull_ticket_group, first_index, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_ticket_group, block_count,
			.max = KVPULL_TICKET_BLOCKS_MAX),
};
static const struct kvpull_table group_table =
	KVPULL_TABLE("group", group_fields, .is_good = group_is_good);

static const struct kvpull_field rank_fields[] = {
	KVPULL_FIELD_OF(U64, struct kvpull_ticket_rank, incarnation, .min = 1),
	KVPULL_FIELD_OF(U64, struct kvpull_ticket_rank, tag, .min = 1),
	KVPULL_FIELD_OF(TEXT, struct kvpull_ticket_rank, address, .min = 1,
			.is_good = address_is_good),
};
const struct kvpull_table kvpull_ticket_rank_table =
	KVPULL_TABLE("rank", rank_fields, .is_good = NULL);

static const struct kvpull_field ticket_fields[] = {
	KVPULL_FIELD_OF(U32, struct kvpull_ticket, flags,
			.max = KVPULL_TICKET_READY_NEEDED),
	KVPULL_FIELD_OF(U64, struct kvpull_ticket, generation, .min = 1),
	KVPULL_FIELD_OF(U32, struct kvpull_ticket, slot,
			.max = KVPULL_TICKET_SLOTS_MAX - 1),
	KVPULL_FIELD_OF(U32, struct kvpull_ticket, prompt_tokens, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_ticket, last_block_bytes, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_ticket, engine_id, .min = 0),
	KVPULL_FIELD_OF(BYTES, struct kvpull_ticket, compat, .min = 0),
	KVPULL_FIELD_OF(BYTES, struct kvpull_ticket, digest, .min = 0),
	KVPULL_ROWS_OF(ROWS, struct kvpull_ticket, groups, group_count,
		       &group_table, .min = 1, .max = KVPULL_GROUPS_MAX),
	KVPULL_FIELD_OF(IDS, struct kvpull_ticket, ids,
			.max = KVPULL_TICKET_BLOCKS_MAX),
	KVPULL_ROWS_OF(ROWS, struct kvpull_ticket, ranks, rank_count,
		       &kvpull_ticket_rank_table, .min = 1,
		       .max = KVPULL_RANKS_MAX),
	KVPULL_FIELD_OF(BLOB, struct kvpull_ticket, payload,
			.count_offset = offsetof(struct kvpull_ticket,
						 payload_bytes)),
	KVPULL_FIELD_OF(BYTES, struct kvpull_ticket, trace, .id = 1, .min = 0),
};
/* clang-format on */

/* Groups and ids alone, which lie behind the name and two digests. */
#define NAME_AT (4u + 8u + 4u + 4u + 4u)
#define GROUPS_ROW 8u
static const struct kvpull_table blocks_table = {
	.name = "blocks", .fields = &ticket_fields[GROUPS_ROW], .field_count = 2
};

/* Counts the ids of all groups. */
static uint64_t id_count(const struct kvpull_ticket *ticket)
{
	uint64_t count = 0;
	uint32_t i;

	for (i = 0; i < ticket->group_count; i++)
		count += ticket->groups[i].block_count;
	return count;
}

static int ticket_is_good(const void *message)
{
	const struct kvpull_ticket *ticket = message;

	return ticket->ids.count == id_count(ticket);
}

const struct kvpull_table kvpull_ticket_table =
	KVPULL_TABLE("ticket", ticket_fields, .is_good = ticket_is_good);

/* Where each group's ids begin; 0: they do not lie behind one another. */
static int groups_follow(const struct kvpull_ticket *ticket)
{
	uint32_t first_id = 0;
	uint32_t i;

	for (i = 0; i < ticket->group_count; i++) {
		if (ticket->groups[i].first_id != first_id)
			return 0;
		first_id += ticket->groups[i].block_count;
	}
	return 1;
}

/* Groups' ids lie behind one another. */
static void groups_place(struct kvpull_ticket *ticket)
{
	uint32_t first_id = 0;
	uint32_t i;

	for (i = 0; i < ticket->group_count; i++) {
		ticket->groups[i].first_id = first_id;
		first_id += ticket->groups[i].block_count;
	}
}

int kvpull_ticket_read(const uint8_t *body, size_t body_bytes,
		       struct kvpull_ticket *ticket)
{
	struct kvpull_wire_reader reader = { body, body_bytes, 0, 0 };
	const int code = kvpull_fields_get(&reader, &kvpull_ticket_table,
					   ticket, ticket->unknown);

	if (code)
		return code == KVPULL_EVERSION ? code : KVPULL_ENOTICKET;
	groups_place(ticket);
	ticket->body_bytes = (uint32_t)body_bytes;
	return 0;
}

int kvpull_ticket_read_blocks(const uint8_t *body, size_t body_bytes,
			      struct kvpull_ticket *ticket)
{
	struct kvpull_wire_reader reader = { body, body_bytes, NAME_AT, 0 };

	(void)kvpull_wire_get(&reader, kvpull_wire_get_u16(&reader));
	(void)kvpull_wire_get(&reader,
			      KVPULL_COMPAT_BYTES + KVPULL_DIGEST_BYTES);
	kvpull_fields_get_body_here(&reader, &blocks_table, ticket);
	if (reader.bad)
		return KVPULL_ENOTICKET;
	groups_place(ticket);
	ticket->body_bytes = (uint32_t)body_bytes;
	return 0;
}

static void put_checksum(struct kvpull_wire_writer *writer, const uint8_t *key)
{
	uint8_t sum[KVPULL_CHECKSUM_BYTES];

	checksum(writer->data, writer->used, key, sum);
	kvpull_wire_put(writer, sum, sizeof(sum));
}

int kvpull_ticket_encode(struct kvpull_ticket *ticket, const uint8_t *key,
			 uint8_t *scratch, char *text, size_t capacity,
			 size_t *text_bytes)
{
	struct kvpull_wire_writer writer = { scratch, KVPULL_TICKET_BYTES_MAX,
					     0 };
	const uint32_t version =
		ticket->version ? ticket->version : KVPULL_TICKET_VERSION;

	if (ticket->group_count > KVPULL_GROUPS_MAX || !ticket->block_ids ||
	    id_count(ticket) > KVPULL_TICKET_BLOCKS_MAX ||
	    !groups_follow(ticket))
		return KVPULL_EINVAL;
	ticket->ids = (struct kvpull_ids){ .list = ticket->block_ids };
	ticket->ids.count = (uint32_t)id_count(ticket);
	if (kvpull_fields_check(&kvpull_ticket_table, ticket))
		return KVPULL_EINVAL;
	kvpull_fields_put(&writer, &kvpull_ticket_table, version, ticket);
	kvpull_assert(writer.used + 2 * KVPULL_CHECKSUM_BYTES <=
		      BODY_BYTES_MAX);
	put_checksum(&writer, NULL);
	if (key)
		put_checksum(&writer, key);
	*text_bytes = HEAD_BYTES + (writer.used * 4 + 2) / 3;
	if (*text_bytes > capacity)
		return KVPULL_ETOOSMALL;
	memcpy(text, ticket_head, HEAD_BYTES);
	kvpull_base64_put(scratch, writer.used, text + HEAD_BYTES);
	return 0;
}

/* Ours, and of this version? "kvp", digits and a dot: of some version. */
static int check_head(const char *text, size_t text_bytes)
{
	size_t at = PREFIX_BYTES;

	if (text_bytes < PREFIX_BYTES ||
	    memcmp(text, ticket_head, PREFIX_BYTES) != 0)
		return KVPULL_ENOTMINE;
	if (text_bytes > KVPULL_TICKET_BYTES_MAX)
		return KVPULL_ENOTICKET;
	if (text_bytes >= HEAD_BYTES && !memcmp(text, ticket_head, HEAD_BYTES))
		return 0;
	while (at < text_bytes && text[at] >= '0' && text[at] <= '9')
		at++;
	if (at > PREFIX_BYTES && at < text_bytes && text[at] == '.')
		return KVPULL_EVERSION;
	return KVPULL_ENOTICKET;
}

static int checksum_is_good(const uint8_t *bytes, size_t covered_bytes,
			    const uint8_t *key)
{
	uint8_t sum[KVPULL_CHECKSUM_BYTES];

	checksum(bytes, covered_bytes, key, sum);
	return crypto_verify_16(sum, bytes + covered_bytes) == 0;
}

/* Bytes of the fields before the checksum, made with a key or without. 0: damaged. */
static size_t whole_bytes(const uint8_t *bytes, size_t byte_count)
{
	uint32_t sums;

	for (sums = 1; sums <= 2; sums++) {
		const size_t sum_bytes = sums * (size_t)KVPULL_CHECKSUM_BYTES;

		if (byte_count > sum_bytes &&
		    checksum_is_good(bytes, byte_count - sum_bytes, NULL))
			return byte_count - sum_bytes;
	}
	return 0;
}

/* A whole ticket was made with this key, or, where it is NULL, without any. */
static int is_ours(const uint8_t *bytes, size_t byte_count, size_t body_bytes,
		   const uint8_t *key)
{
	const size_t covered_bytes = byte_count - KVPULL_CHECKSUM_BYTES;
	const int has_mac = covered_bytes != body_bytes;

	return key ? has_mac && checksum_is_good(bytes, covered_bytes, key) :
		     !has_mac;
}

int kvpull_ticket_decode(const char *text, size_t text_bytes,
			 const uint8_t *key, uint8_t *scratch,
			 struct kvpull_ticket *ticket)
{
	int code = check_head(text, text_bytes);
	size_t body_bytes;
	size_t bytes;

	ticket->unknown[0] = '\0';
	if (code)
		return code;
	/* Copies the text, once: what is checked is what is used. */
	bytes = kvpull_base64_get(text + HEAD_BYTES, text_bytes - HEAD_BYTES,
				  scratch);
	body_bytes = whole_bytes(scratch, bytes);
	if (!body_bytes)
		return KVPULL_ENOTICKET;
	code = kvpull_ticket_read(scratch, body_bytes, ticket);
	if (!code && !is_ours(scratch, bytes, body_bytes, key))
		return KVPULL_EAUTH;
	return code;
}

static void peek_fill(const struct kvpull_ticket *ticket,
		      struct kvpull_ticket_info *info)
{
	info->version = KVPULL_TICKET_VERSION;
	info->rank_count = ticket->rank_count;
	info->prompt_tokens = ticket->prompt_tokens;
	info->payload_bytes = ticket->payload_bytes;
	info->generation = ticket->generation;
	info->slot = ticket->slot;
	info->block_count = ticket->ids.count;
	memcpy(info->trace, ticket->trace, sizeof(info->trace));
}

int kvpull_ticket_peek(const void *text, size_t text_bytes,
		       struct kvpull_ticket_scratch *scratch,
		       struct kvpull_ticket_info *info)
{
	struct kvpull_ticket_info own = { .struct_size = sizeof(own) };
	const char *at = text;
	size_t bytes;
	int code = text ? check_head(at, text_bytes) : KVPULL_EINVAL;

	if (code)
		return code;
	bytes = kvpull_base64_get(at + HEAD_BYTES, text_bytes - HEAD_BYTES,
				  scratch->body);
	code = kvpull_ticket_read(scratch->body,
				  whole_bytes(scratch->body, bytes),
				  &scratch->ticket);
	if (!code)
		peek_fill(&scratch->ticket, &own);
	return code ? code : kvpull_params_give(info, &own, sizeof(own));
}

uint64_t kvpull_ticket_tag(const uint8_t secret[KVPULL_SECRET_BYTES],
			   uint32_t slot, uint64_t generation)
{
	uint8_t message[12];
	uint8_t hash[crypto_shorthash_BYTES];
	struct kvpull_wire_writer writer = { message, sizeof(message), 0 };
	struct kvpull_wire_reader reader = { hash, sizeof(hash), 0, 0 };
	uint64_t tag;

	_Static_assert(crypto_shorthash_KEYBYTES == KVPULL_SECRET_BYTES,
		       "SipHash takes the whole secret");
	kvpull_wire_put_u32(&writer, slot);
	kvpull_wire_put_u64(&writer, generation);
	(void)crypto_shorthash(hash, message, sizeof(message), secret);
	tag = kvpull_wire_get_u64(&reader);
	return tag ? tag : 1;
}
