// SPDX-License-Identifier: Apache-2.0
#include "plugin/bytes/share.h"

#include <string.h>

#include <sodium.h>

#include "base/params.h"

#define USE_READER "kvpull.reader.v1"
#define USE_SHARE "kvpull.share.v01"

_Static_assert(sizeof(USE_READER) ==
			       crypto_generichash_blake2b_PERSONALBYTES + 1 &&
		       sizeof(USE_SHARE) == sizeof(USE_READER),
	       "BLAKE2b takes all of it");
_Static_assert(2 * KVPULL_SHARE_NAMESPACE_BYTES + 1 <= KVPULL_TEXT_BYTES_MAX,
	       "a namespace in hex fits a refusal");

/* clang-format off */
/* A namespace needs the fields with min 1; the others may be "". */
static const struct kvpull_field naming_fields[] = {
	KVPULL_FIELD_OF(TEXT, struct kvpull_share_naming, model, .min = 1),
	KVPULL_FIELD_OF(TEXT, struct kvpull_share_naming, revision, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_share_naming, weights, .min = 1),
	KVPULL_FIELD_OF(TEXT, struct kvpull_share_naming, dtype, .min = 1),
	KVPULL_FIELD_OF(TEXT, struct kvpull_share_naming, layout, .min = 1),
	KVPULL_FIELD_OF(TEXT, struct kvpull_share_naming, attention, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_share_naming, config, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_share_naming, engine, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_share_naming, hash, .min = 1),
	KVPULL_FIELD_OF(TEXT, struct kvpull_share_naming, seed, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_share_naming, layer_count, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_share_naming, head_count, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_share_naming, head_bytes, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_share_naming, replicated, .max = 1),
	KVPULL_FIELD_OF(U32, struct kvpull_share_naming, tp_size, .min = 0),
};
static const struct kvpull_table naming_table =
	KVPULL_TABLE("naming", naming_fields, .is_good = NULL);

static const struct kvpull_field hello_fields[] = {
	KVPULL_FIELD_OF(U64, struct kvpull_reader_hello, incarnation, .min = 1),
	KVPULL_FIELD_OF(TEXT, struct kvpull_reader_hello, engine_id, .min = 0),
	KVPULL_FIELD_OF(BYTES, struct kvpull_reader_hello, nonce, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_reader_hello, pid, .min = 0),
	KVPULL_FIELD_OF(ONE, struct kvpull_reader_hello, naming,
			.rows = &naming_table),
};

static const struct kvpull_field welcome_fields[] = {
	KVPULL_FIELD_OF(U64, struct kvpull_share_welcome, incarnation,
			.min = 1),
	KVPULL_FIELD_OF(U64, struct kvpull_share_welcome, chunk_bytes,
			.min = 1),
	KVPULL_FIELD_OF(U64, struct kvpull_share_welcome, guards_address,
			.min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_share_welcome, entry_count,
			.min = 1, .max = KVPULL_SHARE_ENTRIES_MAX),
	KVPULL_FIELD_OF(U32, struct kvpull_share_welcome, chunk_count,
			.min = 1, .max = KVPULL_SHARE_PLACES_MAX),
	KVPULL_FIELD_OF(U32, struct kvpull_share_welcome, slot_count,
			.max = KVPULL_SHARE_PLACES_MAX),
	KVPULL_FIELD_OF(U32, struct kvpull_share_welcome, pid, .min = 0),
	KVPULL_FIELD_OF(BYTES, struct kvpull_share_welcome, namespace_digest,
			.min = 0),
	KVPULL_FIELD_OF(BYTES, struct kvpull_share_welcome, secret, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_share_welcome, engine_id, .min = 0),
	KVPULL_ROWS_OF(ROWS, struct kvpull_share_welcome, regions, region_count,
		       &kvpull_region_table, .min = KVPULL_SHARE_REGIONS,
		       .max = KVPULL_SHARE_REGIONS_MAX),
};
/* clang-format on */

/* Chunks are read by the CPU, and a welcome of a share tells no device memory. */
static int welcome_is_good(const void *message)
{
	const struct kvpull_share_welcome *welcome = message;
	uint32_t i;

	for (i = 0; i < welcome->region_count; i++)
		if (welcome->regions[i].kind == KVPULL_REGION_DEVICE)
			return 0;
	return 1;
}

const struct kvpull_table kvpull_reader_hello_table =
	KVPULL_TABLE("reader", hello_fields, .is_good = NULL);
const struct kvpull_table kvpull_share_welcome_table =
	KVPULL_TABLE("share", welcome_fields, .is_good = welcome_is_good);

static const struct kvpull_sealed_kind hello_kind = {
	KVPULL_MESSAGE_READER, &kvpull_reader_hello_table
};
static const struct kvpull_sealed_kind welcome_kind = {
	KVPULL_MESSAGE_SHARE, &kvpull_share_welcome_table
};

int kvpull_share_naming_texts(struct kvpull_share_naming *naming,
			      const char *const texts[KVPULL_SHARE_TEXTS],
			      struct kvpull_error_detail *detail)
{
	uint32_t at;

	for (at = 0; at < KVPULL_SHARE_TEXTS; at++) {
		const struct kvpull_field *field = &naming_fields[at];
		const char *text = texts[at] ? texts[at] : "";
		const size_t bytes = strnlen(text, KVPULL_TEXT_BYTES_MAX);

		if (bytes < field->min ||
		    !kvpull_fields_text_is_good(text, KVPULL_TEXT_BYTES_MAX))
			return kvpull_detail_set(
				detail, KVPULL_EINVAL, field->name,
				"%s is needed, or too long: at most %u bytes without control characters",
				field->name, KVPULL_TEXT_BYTES_MAX - 1);
		memcpy((char *)naming + field->offset, text, bytes + 1);
	}
	return 0;
}

int kvpull_share_naming_compare(const struct kvpull_share_naming *ours,
				const struct kvpull_share_naming *theirs,
				struct kvpull_refusal *refusal)
{
	return kvpull_refusal_compare(&naming_table, ours, theirs, refusal);
}

int kvpull_share_namespace_compare(
	const uint8_t ours[KVPULL_SHARE_NAMESPACE_BYTES],
	const uint8_t theirs[KVPULL_SHARE_NAMESPACE_BYTES],
	struct kvpull_refusal *refusal)
{
	if (memcmp(ours, theirs, KVPULL_SHARE_NAMESPACE_BYTES) == 0)
		return 0;
	*refusal = (struct kvpull_refusal){ .code = KVPULL_EREJECTED,
					    .field = "namespace" };
	(void)sodium_bin2hex(refusal->ours, sizeof(refusal->ours), ours,
			     KVPULL_SHARE_NAMESPACE_BYTES);
	(void)sodium_bin2hex(refusal->theirs, sizeof(refusal->theirs), theirs,
			     KVPULL_SHARE_NAMESPACE_BYTES);
	return KVPULL_EREJECTED;
}

size_t kvpull_share_put_hello(uint8_t *bytes, size_t capacity,
			      const struct kvpull_reader_hello *hello,
			      const uint8_t *key,
			      const uint8_t nonce[KVPULL_NONCE_BYTES])
{
	struct kvpull_wire_writer writer = { bytes, capacity, 0 };
	const struct kvpull_seal seal = { key, nonce, USE_READER };

	return kvpull_sealed_put(&writer, &hello_kind, &seal,
				 hello->sealed.version, hello);
}

int kvpull_share_get_hello(const void *bytes, size_t byte_count,
			   const uint8_t *key,
			   const uint8_t nonce[KVPULL_NONCE_BYTES],
			   struct kvpull_reader_hello *hello)
{
	struct kvpull_wire_reader reader = { bytes, byte_count, 0, 0 };
	const struct kvpull_seal seal = { key, nonce, USE_READER };

	memset(hello, 0, sizeof(*hello));
	return kvpull_sealed_get(&reader, &hello_kind, &seal, &hello->sealed,
				 hello);
}

size_t kvpull_share_put_welcome(uint8_t *bytes, size_t capacity,
				const struct kvpull_share_welcome *welcome,
				const uint8_t *key,
				const uint8_t nonce[KVPULL_NONCE_BYTES])
{
	struct kvpull_wire_writer writer = { bytes, capacity, 0 };
	const struct kvpull_seal seal = { key, nonce, USE_SHARE };

	return kvpull_sealed_put(&writer, &welcome_kind, &seal,
				 welcome->sealed.version, welcome);
}

int kvpull_share_get_welcome(const void *bytes, size_t byte_count,
			     const uint8_t *key,
			     const uint8_t nonce[KVPULL_NONCE_BYTES],
			     struct kvpull_share_welcome *welcome)
{
	struct kvpull_wire_reader reader = { bytes, byte_count, 0, 0 };
	const struct kvpull_seal seal = { key, nonce, USE_SHARE };

	memset(welcome, 0, sizeof(*welcome));
	return kvpull_sealed_get(&reader, &welcome_kind, &seal,
				 &welcome->sealed, welcome);
}
