/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ticket: one opaque text that P hands out with a finished prefill and D
 * must show. Pure: bytes in, bytes out.
 *
 * Text: "kvp2." then base64url (no padding) of the body. 16 bytes of
 * SipHash-2-4 over it follow, under a key that is known to all: it tells damage,
 * not malice. Where a key is set, 16 more are over all before them, whose
 * SipHash's key is derived from it by keyed BLAKE2b: who lacks it can make no
 * such ticket, but can read it and give it back. Decoding is of hostile bytes:
 * nothing is used before the checksum and every bound held.
 */
#ifndef KVPULL_PLUGIN_TICKET_H
#define KVPULL_PLUGIN_TICKET_H

#include "base/fields.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/transport.h"
#include "base/wire.h"

#define KVPULL_TICKET_VERSION 1u /* of the fields in the body */
#define KVPULL_KEY_BYTES 32u
#define KVPULL_ENGINE_ID_BYTES_MAX 64u /* with NUL */
#define KVPULL_TICKET_ADDRESS_BYTES_MAX                                        \
	384u /* all routes of a rank, with NUL */
#define KVPULL_TICKET_READY_NEEDED 1u
#define KVPULL_COMPAT_BYTES 16u
#define KVPULL_SECRET_BYTES 16u
#define KVPULL_TICKET_SLOTS_MAX 1048576u /* slots are below; as max_holds */
#define KVPULL_CHECKSUM_BYTES 16u        /* SipHash-2-4, keyed or not */

struct kvpull_ticket_rank {
	uint64_t incarnation;
	uint64_t tag;
	char address[KVPULL_TICKET_ADDRESS_BYTES_MAX]; /* "route:text;route:text" */
};

struct kvpull_ticket_group {
	uint32_t block_tokens;
	uint32_t first_index;
	uint32_t block_count;
	uint32_t first_id; /* where its ids begin: after the last's */
};

struct kvpull_ticket {
	uint64_t generation;
	uint32_t slot;
	uint32_t flags; /* KVPULL_TICKET_* */
	uint32_t prompt_tokens;
	uint32_t last_block_bytes;
	uint32_t rank_count;
	uint32_t group_count;
	uint32_t payload_bytes;
	uint32_t version;    /* to write: 0 is the newest */
	uint32_t body_bytes; /* decode()'s: in scratch, without the checksum */
	uint32_t reserved;
	char engine_id[KVPULL_ENGINE_ID_BYTES_MAX];
	uint8_t compat[KVPULL_COMPAT_BYTES];
	uint8_t digest[KVPULL_DIGEST_BYTES];
	uint8_t trace[KVPULL_TRACE_BYTES]; /* zeros: none */
	struct kvpull_ticket_group groups[KVPULL_GROUPS_MAX];
	struct kvpull_ticket_rank ranks[KVPULL_RANKS_MAX];
	uint8_t payload[KVPULL_PAYLOAD_BYTES_MAX];
	/* With KVPULL_EVERSION: a field that we do not know. */
	char unknown[KVPULL_FIELD_NAME_BYTES_MAX];
	struct kvpull_ids ids; /* as they travel; encode() and decode() set it */
	const uint32_t *block_ids; /* encode()'s: of all groups */
};

/**
 * Encode as text, not NUL-terminated. What decode() would refuse is refused
 * here: ranks and groups 1.., a tag, incarnation or generation of 0, an address
 * that is empty or not "route:text;route:text", control bytes in the engine's
 * id, flags not named above; and groups whose ids do not lie behind each other.
 *
 * @key         KVPULL_KEY_BYTES, or NULL.
 * @scratch     [KVPULL_TICKET_BYTES_MAX], contents lost.
 * @text_bytes  out, also with KVPULL_ETOOSMALL: bytes needed.
 * Return: 0, KVPULL_ETOOSMALL, KVPULL_EINVAL (a bound is broken).
 */
int KVPULL_MUST_CHECK kvpull_ticket_encode(struct kvpull_ticket *ticket,
					   const uint8_t *key, uint8_t *scratch,
					   char *text, size_t capacity,
					   size_t *text_bytes);

/**
 * Decode and check. The ids stay in scratch: ticket->ids.
 *
 * Return: 0; KVPULL_ENOTMINE (no "kvp" prefix); KVPULL_EVERSION; KVPULL_EAUTH
 * (whole, but made with another key, with one where we have none, or without):
 * *ticket says what anybody could have made; KVPULL_ENOTICKET (anything else is
 * wrong). On all other errors *ticket is undefined and must not be used.
 */
int KVPULL_MUST_CHECK kvpull_ticket_decode(const char *text, size_t text_bytes,
					   const uint8_t *key, uint8_t *scratch,
					   struct kvpull_ticket *ticket);

/*
 * A body that decode() left in scratch, of ticket->body_bytes, again: its
 * checksum is not looked at. 0, or as kvpull_ticket_decode().
 */
int KVPULL_MUST_CHECK kvpull_ticket_read(const uint8_t *body, size_t body_bytes,
					 struct kvpull_ticket *ticket);

/*
 * Reads the groups and ids, which a pull needs, of a body that decode() found
 * good. 0; KVPULL_ENOTICKET: these are no ticket's bytes.
 */
int KVPULL_MUST_CHECK kvpull_ticket_read_blocks(const uint8_t *body,
						size_t body_bytes,
						struct kvpull_ticket *ticket);

/* Scratch memory of a peek, too large for a stack; needs no initial value. */
struct kvpull_ticket_scratch {
	struct kvpull_ticket ticket;
	uint8_t body[KVPULL_TICKET_BYTES_MAX];
};

/**
 * Reads a ticket without a handle and without a key: who made it is not
 * verified.
 * Return: as kvpull_ticket_decode(), and KVPULL_EINVAL.
 */
int KVPULL_MUST_CHECK kvpull_ticket_peek(const void *text, size_t text_bytes,
					 struct kvpull_ticket_scratch *scratch,
					 struct kvpull_ticket_info *info);

/**
 * The tag that notifications for (slot, generation) carry: SipHash-2-4 of a
 * worker's secret. Never 0.
 */
uint64_t kvpull_ticket_tag(const uint8_t secret[KVPULL_SECRET_BYTES],
			   uint32_t slot, uint64_t generation);

/**
 * Find one route's part of a rank's address: "shm:NAME;verbs:IP:PORT".
 * Return: 0 and the part without "route:" in text[KVPULL_ADDRESS_BYTES_MAX],
 * or KVPULL_EROUTE.
 */
int KVPULL_MUST_CHECK kvpull_ticket_address(const char *address,
					    const char *route, char *text);

/*
 * 0: empty, no NUL within KVPULL_TICKET_ADDRESS_BYTES_MAX, or not parts
 * "route:text" joined by ';', where route is a-z0-9 and text is printable ASCII
 * shorter than KVPULL_ADDRESS_BYTES_MAX.
 */
int kvpull_ticket_address_is_good(const char *address);

extern const struct kvpull_table kvpull_ticket_table;
extern const struct kvpull_table kvpull_ticket_rank_table; /* of one of ranks */

#endif /* KVPULL_PLUGIN_TICKET_H */
