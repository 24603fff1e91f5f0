/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake of a reader (D) with who shares memory by content (P). Pure.
 *
 *   P -> D challenge, as in handshake.h
 *   D -> P reader { naming, incarnation, nonce, MAC }
 *   P -> D share { places, chunks, namespace, secret, regions, MAC } or refusal
 *   D -> P refusal, where the namespace that P tells is not D's own
 *
 * Sealed as hello and welcome are. Whose bytes mean something else is refused by
 * the name of what differs; that the digests differ though all names are equal
 * can only be another build's doing, and then the namespace is what is named.
 */
#ifndef KVPULL_PLUGIN_BYTES_SHARE_H
#define KVPULL_PLUGIN_BYTES_SHARE_H

#include "plugin/bytes/handshake.h"

#define KVPULL_SHARE_NAMESPACE_BYTES 32u
#define KVPULL_SHARE_SECRET_BYTES 16u
#define KVPULL_SHARE_REGIONS 2u     /* the directory, the chunks */
#define KVPULL_SHARE_REGIONS_MAX 3u /* and the file of slots, on its node */
#define KVPULL_SHARE_PLACES_MAX (1u << 20)
#define KVPULL_SHARE_ENTRIES_MAX (1u << 24)

/* The fields that the digest of a namespace covers. */
struct kvpull_share_naming {
	char model[KVPULL_TEXT_BYTES_MAX];
	char revision[KVPULL_TEXT_BYTES_MAX];
	char weights[KVPULL_TEXT_BYTES_MAX];
	char dtype[KVPULL_TEXT_BYTES_MAX];
	char layout[KVPULL_TEXT_BYTES_MAX];
	char attention[KVPULL_TEXT_BYTES_MAX];
	char config[KVPULL_TEXT_BYTES_MAX];
	char engine[KVPULL_TEXT_BYTES_MAX];
	char hash[KVPULL_TEXT_BYTES_MAX];
	char seed[KVPULL_TEXT_BYTES_MAX];
	uint32_t layer_count;
	uint32_t head_count;
	uint32_t head_bytes;
	uint32_t replicated;
	uint32_t tp_size;
};

struct kvpull_reader_hello {
	struct kvpull_sealed sealed;
	struct kvpull_share_naming naming;
	uint64_t incarnation; /* of D's reader, not 0 */
	char engine_id[KVPULL_ENGINE_ID_BYTES_MAX];
	uint8_t nonce[KVPULL_NONCE_BYTES];
	uint32_t pid; /* in D's own namespace: who it is, in P's logs */
	uint32_t reserved;
};

/* Whether the regions are as large as it says is for who attaches them. */
struct kvpull_share_welcome {
	struct kvpull_sealed sealed;
	uint64_t incarnation; /* of guards and entries, not 0 */
	uint64_t chunk_bytes;
	uint64_t guards_address; /* P's own */
	uint32_t entry_count;
	uint32_t chunk_count;  /* places in memory, and behind them */
	uint32_t slot_count;   /* those in the file; all have a guard */
	uint32_t pid;          /* in P's own namespace; for foreign memory */
	uint32_t region_count; /* KVPULL_SHARE_REGIONS .. _MAX */
	uint32_t reserved;
	uint8_t namespace_digest[KVPULL_SHARE_NAMESPACE_BYTES];
	uint8_t secret[KVPULL_SHARE_SECRET_BYTES]; /* of the entries' seals */
	char engine_id[KVPULL_ENGINE_ID_BYTES_MAX];
	struct kvpull_welcome_region regions[KVPULL_SHARE_REGIONS_MAX];
};

extern const struct kvpull_table kvpull_reader_hello_table;
extern const struct kvpull_table kvpull_share_welcome_table;

/* The texts of a naming, in the order of its fields; NULL = "". */
#define KVPULL_SHARE_TEXTS 10u

/* KVPULL_EINVAL: one is missing, too long or not clean; the detail names it. */
int KVPULL_MUST_CHECK
kvpull_share_naming_texts(struct kvpull_share_naming *naming,
			  const char *const texts[KVPULL_SHARE_TEXTS],
			  struct kvpull_error_detail *detail);

/* 0, or KVPULL_EREJECTED and the first field that differs, both values. */
int KVPULL_MUST_CHECK
kvpull_share_naming_compare(const struct kvpull_share_naming *ours,
			    const struct kvpull_share_naming *theirs,
			    struct kvpull_refusal *refusal);
/* Compares the digests in the same way: field "namespace". */
int KVPULL_MUST_CHECK kvpull_share_namespace_compare(
	const uint8_t ours[KVPULL_SHARE_NAMESPACE_BYTES],
	const uint8_t theirs[KVPULL_SHARE_NAMESPACE_BYTES],
	struct kvpull_refusal *refusal);

/* These do what their namesakes in handshake.h do. */
size_t kvpull_share_put_hello(uint8_t *bytes, size_t capacity,
			      const struct kvpull_reader_hello *hello,
			      const uint8_t *key,
			      const uint8_t nonce[KVPULL_NONCE_BYTES]);
int KVPULL_MUST_CHECK
kvpull_share_get_hello(const void *bytes, size_t byte_count, const uint8_t *key,
		       const uint8_t nonce[KVPULL_NONCE_BYTES],
		       struct kvpull_reader_hello *hello);
size_t kvpull_share_put_welcome(uint8_t *bytes, size_t capacity,
				const struct kvpull_share_welcome *welcome,
				const uint8_t *key,
				const uint8_t nonce[KVPULL_NONCE_BYTES]);
int KVPULL_MUST_CHECK
kvpull_share_get_welcome(const void *bytes, size_t byte_count,
			 const uint8_t *key,
			 const uint8_t nonce[KVPULL_NONCE_BYTES],
			 struct kvpull_share_welcome *welcome);

#endif /* KVPULL_PLUGIN_BYTES_SHARE_H */
