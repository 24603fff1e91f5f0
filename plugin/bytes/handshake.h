/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handshake messages between a consumer's worker (D) and a producer's (P).
 * Pure: bytes in, bytes out. All that is decoded is hostile until checked.
 *
 *   P -> D challenge { versions, nonce }
 *   D -> P hello { version, compatibility record, instance, rank, N,
 *                  incarnation it wants, nonce, layout, MAC }
 *   P -> D welcome { version, incarnation, caches, regions, MAC } or
 *          refusal { code, field, both values }
 *   D -> P refusal, where D does not understand P
 *
 * With a key, the hello's MAC covers P's nonce and the whole hello, and the
 * welcome's MAC covers D's nonce and the whole welcome. Without one, the same
 * bytes are a checksum. A message says whether it is keyed: one peer with a key
 * and one without are KVPULL_EAUTH at either.
 *
 * Challenge and refusal keep their layout for ever, so that peers of different
 * versions can tell each other so. A refusal is not authenticated: whoever can
 * forge one can cut the connection too.
 */
#ifndef KVPULL_PLUGIN_HANDSHAKE_H
#define KVPULL_PLUGIN_HANDSHAKE_H

#include "base/fields.h"
#include "base/transport.h"
#include "base/wire.h"
#include "plugin/bytes/ticket.h"

#define KVPULL_LEASE_MS_MIN 10u /* that anybody can configure */
/*
 * A consumer's heartbeats. A producer that did nothing for longer than from one
 * to the next may not have heard one that came.
 */
#define KVPULL_BEATS_A_LEASE 3u
#define KVPULL_NONCE_BYTES 32u

/*
 * Members that must be equal at both ends. They are compared one by one, and
 * each mismatch is named.
 */
struct kvpull_compat {
	char model[KVPULL_TEXT_BYTES_MAX];
	char revision[KVPULL_TEXT_BYTES_MAX];
	char weights[KVPULL_TEXT_BYTES_MAX];
	char dtype[KVPULL_TEXT_BYTES_MAX];
	char layout[KVPULL_TEXT_BYTES_MAX];
	char attention[KVPULL_TEXT_BYTES_MAX];
	char config[KVPULL_TEXT_BYTES_MAX];
	char engine[KVPULL_TEXT_BYTES_MAX];
	uint32_t layer_count;
	uint32_t head_count;
	uint32_t head_bytes;
	uint32_t replicated;
	uint32_t group_count;
	struct kvpull_group groups[KVPULL_GROUPS_MAX];
};

/*
 * The version that a hello or welcome is written in, and the field that was not
 * understood.
 */
struct kvpull_sealed {
	uint32_t version; /* to write: 0 is the newest */
	uint32_t reserved;
	char unknown[KVPULL_FIELD_NAME_BYTES_MAX]; /* with KVPULL_EVERSION */
};

struct kvpull_hello {
	struct kvpull_sealed sealed;
	struct kvpull_compat compat;
	uint64_t instance; /* incarnation of D's scheduler half, not 0 */
	uint64_t incarnation; /* of D's worker and its life at P: KVPULL_SELF_BITS */
	uint64_t wanted;      /* P's incarnation in the ticket */
	uint32_t rank;
	uint32_t rank_count; /* 1 .. KVPULL_RANKS_MAX */
	char engine_id[KVPULL_ENGINE_ID_BYTES_MAX];
	uint8_t nonce[KVPULL_NONCE_BYTES];
	uint64_t wire_layout; /* 0, to write: kvpull_handshake_layout() */
	uint32_t pid;         /* in D's own namespace: who it is, in P's logs */
	uint32_t reserved;
};

struct kvpull_welcome_region {
	uint32_t kind;
	uint32_t fd_index;  /* of one that is read by its descriptor */
	uint64_t address;   /* P's own; of a file: 0; of a device: for it */
	uint64_t fd_offset; /* where it begins in its descriptor */
	uint64_t bytes;
};

struct kvpull_welcome {
	struct kvpull_sealed sealed;
	uint64_t incarnation;
	uint64_t lease_ns; /* the consumer beats every third of it */
	uint32_t slot_count;
	uint32_t tp_rank;
	uint32_t tp_size;
	uint32_t pid;             /* in P's own namespace; for foreign memory */
	uint64_t entries_address; /* P's own address of the revocation table */
	uint32_t region_count;
	uint32_t cache_count;
	uint32_t device_count;
	uint32_t pp_rank;
	uint32_t pp_size; /* 0: 1 */
	uint32_t reserved;
	char engine_id[KVPULL_ENGINE_ID_BYTES_MAX];
	struct kvpull_welcome_region regions[KVPULL_REGIONS_MAX];
	struct kvpull_cache caches[KVPULL_CACHES_MAX];
	struct kvpull_device_view devices[KVPULL_DEVICE_MEMORIES_MAX];
};

struct kvpull_refusal {
	int32_t code; /* KVPULL_EREJECTED, _EVERSION, _EAUTH, _EFULL, _EPEER */
	char field[64];
	char ours[KVPULL_TEXT_BYTES_MAX];   /* P's value */
	char theirs[KVPULL_TEXT_BYTES_MAX]; /* D's value */
};

enum kvpull_message_kind {
	KVPULL_MESSAGE_CHALLENGE = 1,
	KVPULL_MESSAGE_HELLO,
	KVPULL_MESSAGE_WELCOME,
	KVPULL_MESSAGE_REFUSAL,
	KVPULL_MESSAGE_READER, /* share.h: instead of a hello */
	KVPULL_MESSAGE_SHARE,  /* and of a welcome */
	KVPULL_MESSAGE_KINDS   /* above them all */
};

/* Inputs of a MAC beside the bytes that it covers. */
struct kvpull_seal {
	const uint8_t *key;   /* NULL: a checksum */
	const uint8_t *nonce; /* the receiver's; NULL: none */
	const char *use; /* each its own: no MAC can be shown as another's */
};

struct kvpull_sealed_kind {
	enum kvpull_message_kind kind;
	const struct kvpull_table *table;
};

/* A whole message that is sealed; 0: it breaks a bound, or there is no room. */
size_t kvpull_sealed_put(struct kvpull_wire_writer *writer,
			 const struct kvpull_sealed_kind *kind,
			 const struct kvpull_seal *seal, uint32_t version,
			 const void *message);
/*
 * Kind, key and MAC of a message, then its fields. What it is called by who does
 * not know it all is told as well.
 */
int KVPULL_MUST_CHECK kvpull_sealed_get(struct kvpull_wire_reader *reader,
					const struct kvpull_sealed_kind *wanted,
					const struct kvpull_seal *seal,
					struct kvpull_sealed *sealed,
					void *message);
/* 0, or KVPULL_EREJECTED and the first field of a table that differs. */
int KVPULL_MUST_CHECK kvpull_refusal_compare(const struct kvpull_table *table,
					     const void *ours,
					     const void *theirs,
					     struct kvpull_refusal *refusal);

/* compat.c */
/*
 * 0, or KVPULL_EINVAL: what kvpull_compat_init() would refuse in the record;
 * detail (may be NULL) names it. The groups' number and kinds are the caller's.
 */
int KVPULL_MUST_CHECK
kvpull_compat_check(const struct kvpull_open_params *params,
		    struct kvpull_error_detail *detail);
/*
 * From the ABI's record. KVPULL_EINVAL: no model, a required member is 0 or "",
 * texts too long or with control bytes, replicated above 1, groups 0 or too many,
 * block_tokens 0, kind unknown.
 */
int KVPULL_MUST_CHECK
kvpull_compat_init(struct kvpull_compat *compat,
		   const struct kvpull_open_params *params);
/* 16-byte digest of the record, for tickets. */
void kvpull_compat_digest(const struct kvpull_compat *compat,
			  uint8_t digest[KVPULL_COMPAT_BYTES]);
/* 0, or KVPULL_EREJECTED and the first field that differs, both values. */
int KVPULL_MUST_CHECK kvpull_compat_compare(const struct kvpull_compat *ours,
					    const struct kvpull_compat *theirs,
					    struct kvpull_refusal *refusal);

/* The messages' tables: see plugin/bytes/MESSAGES.md. */
extern const struct kvpull_table kvpull_head_table;
extern const struct kvpull_table kvpull_challenge_table;
extern const struct kvpull_table kvpull_hello_table;
extern const struct kvpull_table kvpull_compat_table; /* in a hello */
extern const struct kvpull_table kvpull_welcome_table;
extern const struct kvpull_table kvpull_refusal_table;
extern const struct kvpull_table kvpull_region_table; /* rows of a welcome */

/*
 * A digest of all that two builds must agree on at a version: two of the same
 * version that differ in it do not understand each other.
 */
uint64_t kvpull_handshake_layout(uint32_t version);

/* Kind of a message after its head was checked, or negative. */
int kvpull_handshake_kind(const void *bytes, size_t byte_count);

/*
 * Encoders return the bytes written, or 0 if capacity does not suffice or a
 * count or text of the message is over its bound. KVPULL_MESSAGE_BYTES_MAX
 * always suffices.
 */
size_t kvpull_handshake_put_challenge(uint8_t *bytes, size_t capacity,
				      const uint8_t nonce[KVPULL_NONCE_BYTES]);
size_t kvpull_handshake_put_hello(uint8_t *bytes, size_t capacity,
				  const struct kvpull_hello *hello,
				  const uint8_t *key,
				  const uint8_t nonce[KVPULL_NONCE_BYTES]);
size_t kvpull_handshake_put_welcome(uint8_t *bytes, size_t capacity,
				    const struct kvpull_welcome *welcome,
				    const uint8_t *key,
				    const uint8_t nonce[KVPULL_NONCE_BYTES]);
/*
 * Fills in the served regions as a welcome carries them, [serve->region_count].
 */
void kvpull_welcome_regions_put(struct kvpull_welcome_region *regions,
				const struct kvpull_serve *serve);
/*
 * And as a route takes it: addresses are the peer's own, only for reads of
 * foreign memory; descriptors come later.
 */
void kvpull_welcome_view(const struct kvpull_welcome_region *regions,
			 uint32_t region_count, uint64_t entries_address,
			 uint32_t slot_count, struct kvpull_serve *view);

/* refusal.c */
/* Why, in P's words; ours is P's value. */
void kvpull_refusal_texts(struct kvpull_refusal *refusal, int32_t code,
			  const char *field, const char *ours,
			  const char *theirs);
void kvpull_refusal_numbers(struct kvpull_refusal *refusal, int32_t code,
			    const char *field, uint64_t ours, uint64_t theirs);
/*
 * A refusal of builds that do not understand each other: both versions, and the
 * unknown field.
 */
void kvpull_refusal_version(struct kvpull_refusal *refusal,
			    const struct kvpull_sealed *sealed);
/*
 * A refusal of a hello that could not be read; code is the error of the
 * reading.
 */
void kvpull_refusal_hello(struct kvpull_refusal *refusal, int32_t code,
			  const struct kvpull_sealed *sealed);
size_t kvpull_handshake_put_refusal(uint8_t *bytes, size_t capacity,
				    const struct kvpull_refusal *refusal);

/*
 * Decoders: 0, KVPULL_EPROTO, KVPULL_EVERSION, KVPULL_EAUTH; then what they fill
 * in is undefined but for what is sealed. A welcome's counts,
 * indices and sums are checked here, its extents by kvpull_plan_check(): a cache
 * may still name bytes outside its region.
 */
int KVPULL_MUST_CHECK
kvpull_handshake_get_challenge(const void *bytes, size_t byte_count,
			       uint8_t nonce[KVPULL_NONCE_BYTES]);
int KVPULL_MUST_CHECK kvpull_handshake_get_hello(
	const void *bytes, size_t byte_count, const uint8_t *key,
	const uint8_t nonce[KVPULL_NONCE_BYTES], struct kvpull_hello *hello);
int KVPULL_MUST_CHECK
kvpull_handshake_get_welcome(const void *bytes, size_t byte_count,
			     const uint8_t *key,
			     const uint8_t nonce[KVPULL_NONCE_BYTES],
			     struct kvpull_welcome *welcome);
int KVPULL_MUST_CHECK
kvpull_handshake_get_refusal(const void *bytes, size_t byte_count,
			     struct kvpull_refusal *refusal);

#endif /* KVPULL_PLUGIN_HANDSHAKE_H */
