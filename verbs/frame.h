/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SENDs carry frames of at most KVPULL_FRAME_BYTES, each a header and a payload.
 * The greeting goes as private data of the CM. Their fields are tables
 * (base/fields.h), which plugin/bytes/MESSAGES.md shows.
 *
 * A message (handshake, or the memory keys) goes in full frames but for the
 * last, in order. All of it is hostile until checked. Pure.
 */
#ifndef KVPULL_VERBS_FRAME_H
#define KVPULL_VERBS_FRAME_H

#include "base/fields.h"
#include "base/transport.h"

#define KVPULL_FRAME_BYTES 1024u
#define KVPULL_FRAME_HEADER_BYTES 16u
#define KVPULL_FRAME_PAYLOAD_BYTES                                             \
	(KVPULL_FRAME_BYTES - KVPULL_FRAME_HEADER_BYTES)
#define KVPULL_FRAME_VERSION 4u

enum kvpull_frame_kind {
	KVPULL_FRAME_MESSAGE = 1, /* of the handshake; the plugin's */
	KVPULL_FRAME_KEYS, /* memory keys; producer to admitted consumer */
	KVPULL_FRAME_NOTE, /* one record */
	KVPULL_FRAME_BEAT,
	KVPULL_FRAME_ACK /* only its header; takes no credit */
};

extern const struct kvpull_table kvpull_frame_table;
extern const struct kvpull_table kvpull_record_table;
extern const struct kvpull_table kvpull_keys_table;
extern const struct kvpull_table kvpull_greeting_table;

/* Callers of put() leave magic and version to it. */
struct kvpull_frame {
	uint32_t magic;
	uint32_t version;
	uint32_t kind;
	uint32_t acked; /* credited frames that the sender has taken so far */
	uint32_t total; /* bytes of the whole message (MESSAGE, KEYS), else 0 */
	/*
	 * MESSAGE, KEYS: where this piece begins in the message. NOTE: the
	 * note's number. BEAT: 1 if it only asks for an answer, and renews no
	 * lease.
	 */
	uint32_t offset;
	const uint8_t *payload;
	uint32_t payload_bytes;
};

/* Writes into bytes[KVPULL_FRAME_BYTES]; returns how many. */
uint32_t kvpull_frame_put(uint8_t *bytes, const struct kvpull_frame *frame);
/* 0, KVPULL_EPROTO, KVPULL_EVERSION. The payload stays where it is. */
int KVPULL_MUST_CHECK kvpull_frame_get(const uint8_t *bytes, size_t byte_count,
				       struct kvpull_frame *frame);

/* A message that comes in pieces. */
struct kvpull_inbox {
	uint8_t *data;
	uint32_t capacity;
	uint32_t total; /* 0: between messages */
	uint32_t used;
};

/* 1: the message is whole: [total] bytes. 0: more to come. KVPULL_EPROTO. */
int KVPULL_MUST_CHECK kvpull_inbox_add(struct kvpull_inbox *inbox,
				       const struct kvpull_frame *frame);

#define KVPULL_FRAME_RECORD_BYTES 32u

void kvpull_frame_put_record(uint8_t bytes[KVPULL_FRAME_RECORD_BYTES],
			     const struct kvpull_record *record);
/* 0 or KVPULL_EPROTO: only a claim or a release. */
int KVPULL_MUST_CHECK kvpull_frame_get_record(const struct kvpull_frame *frame,
					      struct kvpull_record *record);

/*
 * Where an admitted consumer may read. Memory is registered in MRs, which end
 * where an address is a multiple of 1 << mr_shift: so both sides know from the
 * address alone where one ends, and no work request reaches over that.
 */
#define KVPULL_MR_SHIFT_MIN 12u
#define KVPULL_MR_SHIFT_MAX 40u
/* MRs of all regions of a process: enough for 2 TiB of memory. */
#define KVPULL_MRS_MAX (KVPULL_REGIONS_MAX + 2048u)

struct kvpull_range {
	uint64_t address;
	uint64_t bytes;
};

struct kvpull_keys {
	/* Each rail and lane sends the same values. */
	uint32_t region_count;
	uint32_t slot_count;
	/* A caller that shows it may add rails and lanes; zero: none may. */
	uint64_t token[2];
	uint32_t mr_shift;
	uint32_t qps; /* lanes that a caller may have by each of its rails */
	struct kvpull_range entries;
	struct kvpull_range regions[KVPULL_REGIONS_MAX];
	/* Each rail has its own values. */
	uint32_t entries_key;
	uint32_t mr_count;
	uint32_t mr_keys[KVPULL_MRS_MAX];
	/* First MR of regions[i]; not sent, but computed by layout(). */
	uint32_t mr_first[KVPULL_REGIONS_MAX];
};

#define KVPULL_KEYS_BYTES_MAX                                                  \
	(48u + 16u * KVPULL_REGIONS_MAX + 4u * KVPULL_MRS_MAX)
_Static_assert(KVPULL_KEYS_BYTES_MAX <= KVPULL_MESSAGE_BYTES_MAX,
	       "keys fit into an inbox");

/* Bytes from this address to the end of its MR. */
static inline uint64_t kvpull_mr_left(uint64_t address, uint32_t mr_shift)
{
	const uint64_t mr_bytes = UINT64_C(1) << mr_shift;

	return mr_bytes - (address & (mr_bytes - 1));
}

/* The MR, of all regions', that an address of a region lies in. */
static inline uint32_t kvpull_keys_mr(const struct kvpull_keys *keys,
				      uint32_t region, uint64_t address)
{
	const uint64_t first = keys->regions[region].address >> keys->mr_shift;

	return keys->mr_first[region] +
	       (uint32_t)((address >> keys->mr_shift) - first);
}

/* Computes the MRs of the regions; returns their count. */
uint64_t kvpull_keys_layout(struct kvpull_keys *keys);

/* Into bytes[KVPULL_KEYS_BYTES_MAX]; returns how many. */
uint32_t kvpull_keys_put(uint8_t *bytes, const struct kvpull_keys *keys);
/*
 * Counts in range, no range that wraps. 0, or KVPULL_EPROTO: what keys holds
 * then must not be used.
 */
int KVPULL_MUST_CHECK kvpull_keys_get(const uint8_t *bytes, size_t byte_count,
				      struct kvpull_keys *keys);
/* Do they say the same as the welcome did? 0 or KVPULL_EPROTO. */
int KVPULL_MUST_CHECK kvpull_keys_check(const struct kvpull_keys *keys,
					const struct kvpull_serve *welcome);

/* The same memory by another lane: all is alike but the keys. */
int kvpull_keys_alike(const struct kvpull_keys *one,
		      const struct kvpull_keys *other);

/* Private data of the CM: who calls, what it takes and what its port carries. */
#define KVPULL_VERBS_PRIVATE_BYTES 30u

enum kvpull_verbs_greeting_kind {
	KVPULL_VERBS_CALL = 1, /* a first lane, and the answer to any */
	KVPULL_VERBS_JOIN,     /* one more lane, with the token of its bundle */
	KVPULL_VERBS_UNKNOWN,  /* refused: no bundle has that token */
	KVPULL_VERBS_FULL,     /* refused: no room, which passes */
	KVPULL_VERBS_OUTSIDE,  /* refused: its address is in none of networks */
	KVPULL_VERBS_OTHER /* refused: it speaks another version, or noise */
};

struct kvpull_verbs_greeting {
	uint32_t magic; /* likewise */
	uint32_t version;
	uint32_t kind;
	uint32_t credits;
	uint32_t rail; /* the caller's own */
	uint32_t lane; /* of that rail */
	uint32_t mtu;  /* enum ibv_mtu */
	uint32_t reserved;
	uint64_t token[2]; /* of the bundle */
};

/*
 * A call that gives tickets back has a give-back message as its private data, and
 * no greeting. The producer rejects it with KVPULL_GIVE_MAGIC when it was taken.
 * The CM leaves 56 bytes of its request to us.
 */
#define KVPULL_VERBS_GIVE_BYTES_MAX 56u

struct kvpull_verbs_give {
	uint32_t byte_count; /* 0: the call is another one */
	uint8_t bytes[KVPULL_VERBS_GIVE_BYTES_MAX];
};

void kvpull_verbs_greeting_put(uint8_t bytes[KVPULL_VERBS_PRIVATE_BYTES],
			       const struct kvpull_verbs_greeting *greeting);
/* 0, KVPULL_EPROTO, KVPULL_EVERSION. */
int KVPULL_MUST_CHECK
kvpull_verbs_greeting_get(const void *bytes, size_t byte_count,
			  struct kvpull_verbs_greeting *greeting);

#endif /* KVPULL_VERBS_FRAME_H */
