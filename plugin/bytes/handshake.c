/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codec of the handshake: the tables of its messages, and what seals them.
 *
 * Kept: a decoder uses no byte of a hello or welcome before its checksum or MAC
 * over all of it matched, and takes no text that could break a log line.
 *
 * A message is its head, its table's fields, and, in a hello and a welcome, 16
 * bytes of MAC. Challenge and refusal keep their fields for ever.
 */
#include "plugin/bytes/handshake.h"

#include <string.h>

#include <sodium.h>

#include "base/clock.h"
#include "base/params.h"
#include "base/ring.h"

#define MAGIC UINT32_C(0x5348564b) /* "KVHS" */
#define REGION_BYTES 32u
#define CACHE_BYTES 76u
#define DEVICE_BYTES 40u
#define WELCOME_FIXED_BYTES_MAX 256u
#define LAYOUT_BYTES_MAX 8192u
#define KIND(kind) (1u << KVPULL_MESSAGE_##kind)
/* All but 0 and the two that keep their layout for ever. */
#define KINDS_SEALED                                                           \
	((KIND(KINDS) - 1) & ~(1u | KIND(CHALLENGE) | KIND(REFUSAL)))

/* ---- tables ---- */

struct head {
	uint32_t magic;
	uint32_t kind;
	uint32_t version; /* that it is written in */
	uint32_t keyed;
};

/* clang-format off */
static const struct kvpull_field head_fields[] = {
	KVPULL_FIELD_OF(U32, struct head, magic, .min = MAGIC, .max = MAGIC),
	KVPULL_FIELD_OF(U8, struct head, kind, .min = 1),
	KVPULL_FIELD_OF(U16, struct head, version, .min = 1),
	KVPULL_FIELD_OF(U8, struct head, keyed, .max = 1,
			.kinds = KINDS_SEALED),
};

static const struct kvpull_field challenge_fields[] = {
	{ .name = "nonce", .type = KVPULL_FIELD_BYTES,
	  .size = KVPULL_NONCE_BYTES },
};

static const struct kvpull_field hello_fields[] = {
	KVPULL_FIELD_OF(U64, struct kvpull_hello, instance, .min = 1),
	KVPULL_FIELD_OF(U64, struct kvpull_hello, incarnation, .min = 1),
	KVPULL_FIELD_OF(U64, struct kvpull_hello, wanted, .min = 1),
	KVPULL_FIELD_OF(U32, struct kvpull_hello, rank, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_hello, rank_count, .min = 1,
			.max = KVPULL_RANKS_MAX),
	KVPULL_FIELD_OF(TEXT, struct kvpull_hello, engine_id, .min = 0),
	KVPULL_FIELD_OF(BYTES, struct kvpull_hello, nonce, .min = 0),
	KVPULL_FIELD_OF(U64, struct kvpull_hello, wire_layout, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_hello, pid, .min = 0),
	KVPULL_FIELD_OF(ONE, struct kvpull_hello, compat,
			.rows = &kvpull_compat_table),
};

static const struct kvpull_field region_fields[] = {
	KVPULL_FIELD_OF(U32, struct kvpull_welcome_region, kind,
			.max = KVPULL_REGION_DEVICE),
	KVPULL_FIELD_OF(U32, struct kvpull_welcome_region, fd_index,
			.max = KVPULL_REGIONS_MAX - 1),
	KVPULL_FIELD_OF(U64, struct kvpull_welcome_region, address, .min = 0),
	KVPULL_FIELD_OF(U64, struct kvpull_welcome_region, fd_offset, .min = 0),
	KVPULL_FIELD_OF(U64, struct kvpull_welcome_region, bytes, .min = 1),
};

static const struct kvpull_field cache_fields[] = {
	KVPULL_FIELD_OF(U32, struct kvpull_cache, region_index, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_cache, group_index,
			.max = KVPULL_GROUPS_MAX - 1),
	KVPULL_FIELD_OF(U32, struct kvpull_cache, layer_first, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_cache, layer_count, .min = 1),
	KVPULL_FIELD_OF(U64, struct kvpull_cache, offset, .min = 0),
	KVPULL_FIELD_OF(U64, struct kvpull_cache, layer_stride, .min = 0),
	KVPULL_FIELD_OF(U64, struct kvpull_cache, block_stride, .min = 0),
	KVPULL_FIELD_OF(U64, struct kvpull_cache, row_stride, .min = 0),
	KVPULL_FIELD_OF(U64, struct kvpull_cache, head_stride, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_cache, block_count, .min = 1),
	KVPULL_FIELD_OF(U32, struct kvpull_cache, row_count, .min = 1),
	KVPULL_FIELD_OF(U32, struct kvpull_cache, head_first, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_cache, head_count, .min = 1),
	KVPULL_FIELD_OF(U32, struct kvpull_cache, head_bytes, .min = 1),
};

static const struct kvpull_field device_fields[] = {
	KVPULL_FIELD_OF(BYTES, struct kvpull_device_view, uuid, .min = 0),
	KVPULL_FIELD_OF(U64, struct kvpull_device_view, granularity, .min = 1),
	KVPULL_FIELD_OF(U64, struct kvpull_device_view, part_bytes, .min = 1),
	KVPULL_FIELD_OF(U32, struct kvpull_device_view, part_count, .min = 1,
			.max = KVPULL_DEVICE_PARTS_MAX),
	KVPULL_FIELD_OF(U32, struct kvpull_device_view, fd_index,
			.max = KVPULL_REGIONS_MAX - 1),
};
/* clang-format on */

static int region_is_good(const void *message)
{
	const struct kvpull_welcome_region *region = message;

	return region->bytes <= UINT64_MAX - region->address &&
	       region->bytes <= UINT64_MAX - region->fd_offset;
}

static int cache_is_good(const void *message)
{
	const struct kvpull_cache *cache = message;

	return cache->layer_count <= UINT32_MAX - cache->layer_first &&
	       cache->head_count <= UINT32_MAX - cache->head_first;
}

static int device_is_good(const void *message)
{
	const struct kvpull_device_view *device = message;

	return !(device->granularity & (device->granularity - 1)) &&
	       device->part_bytes % device->granularity == 0 &&
	       device->part_bytes <= UINT64_MAX / device->part_count;
}

const struct kvpull_table kvpull_region_table =
	KVPULL_TABLE("region", region_fields, .is_good = region_is_good);
static const struct kvpull_table cache_table =
	KVPULL_TABLE("cache", cache_fields, .is_good = cache_is_good);
static const struct kvpull_table device_table =
	KVPULL_TABLE("device", device_fields, .is_good = device_is_good);

static int refusal_code_is_good(const void *member)
{
	int32_t code;

	memcpy(&code, member, sizeof(code));
	switch (code) {
	case KVPULL_EAGAIN: /* its last connection is not worked off yet */
	case KVPULL_ENOMEM:
	case KVPULL_EPROTO:
	case KVPULL_EROUTE:
	case KVPULL_EREJECTED:
	case KVPULL_EVERSION:
	case KVPULL_EAUTH:
	case KVPULL_EFULL:
	case KVPULL_EPEER:
		return 1;
	default:
		return 0;
	}
}

/* The producer's lease sets the pace: a heartbeat each third of it. */
/* clang-format off */
static const struct kvpull_field welcome_fields[] = {
	KVPULL_FIELD_OF(U64, struct kvpull_welcome, incarnation, .min = 1),
	KVPULL_FIELD_OF(U64, struct kvpull_welcome, lease_ns,
			.min = KVPULL_LEASE_MS_MIN * KVPULL_NS_PER_MS),
	KVPULL_FIELD_OF(U32, struct kvpull_welcome, slot_count, .min = 1,
			.max = KVPULL_TICKET_SLOTS_MAX),
	KVPULL_FIELD_OF(U32, struct kvpull_welcome, tp_rank, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_welcome, tp_size, .min = 1,
			.max = KVPULL_RANKS_MAX),
	KVPULL_FIELD_OF(U32, struct kvpull_welcome, pid, .min = 0),
	KVPULL_FIELD_OF(U64, struct kvpull_welcome, entries_address, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_welcome, engine_id, .min = 0),
	KVPULL_ROWS_OF(ROWS16, struct kvpull_welcome, regions, region_count,
		       &kvpull_region_table, .min = 1, .max = KVPULL_REGIONS_MAX),
	KVPULL_ROWS_OF(ROWS16, struct kvpull_welcome, caches, cache_count,
		       &cache_table, .min = 1, .max = KVPULL_CACHES_MAX),
	KVPULL_ROWS_OF(ROWS, struct kvpull_welcome, devices, device_count,
		       &device_table, .id = 1, .max = KVPULL_DEVICE_MEMORIES_MAX),
	/* A build without these sees fewer layers than the model has, and refuses. */
	KVPULL_FIELD_OF(U32, struct kvpull_welcome, pp_rank, .id = 2),
	KVPULL_FIELD_OF(U32, struct kvpull_welcome, pp_size, .id = 3,
			.max = KVPULL_RANKS_MAX),
};

static const struct kvpull_field refusal_fields[] = {
	KVPULL_FIELD_OF(U32, struct kvpull_refusal, code,
			.is_good = refusal_code_is_good),
	KVPULL_FIELD_OF(TEXT, struct kvpull_refusal, field, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_refusal, ours, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_refusal, theirs, .min = 0),
};
/* clang-format on */

static int hello_is_good(const void *message)
{
	const struct kvpull_hello *hello = message;

	return hello->rank < hello->rank_count;
}

/* 1: it is no device's, or it lies in device memory that is told. */
static int device_region_is_good(const struct kvpull_welcome *welcome,
				 const struct kvpull_welcome_region *region)
{
	const struct kvpull_device_view *device;

	if (region->kind != KVPULL_REGION_DEVICE)
		return 1;
	device = kvpull_device_view_of(welcome->devices, welcome->device_count,
				       region->fd_index);
	return device && region->fd_offset + region->bytes <=
				 device->part_bytes * device->part_count;
}

/* 1: some region lies in the memory. So a descriptor comes for it. */
static int device_has_region(const struct kvpull_welcome *welcome,
			     const struct kvpull_device_view *device)
{
	uint32_t i = 0;

	while (i < welcome->region_count &&
	       (welcome->regions[i].kind != KVPULL_REGION_DEVICE ||
		welcome->regions[i].fd_index != device->fd_index))
		i++;
	return i < welcome->region_count;
}

static int devices_are_good(const struct kvpull_welcome *welcome)
{
	uint32_t at;
	uint32_t i;

	for (at = 1; at < welcome->device_count; at++)
		if (welcome->devices[at].fd_index <=
		    welcome->devices[at - 1].fd_index)
			return 0;
	for (i = 0; i < welcome->region_count; i++)
		if (!device_region_is_good(welcome, &welcome->regions[i]))
			return 0;
	for (at = 0; at < welcome->device_count; at++)
		if (!device_has_region(welcome, &welcome->devices[at]))
			return 0;
	return 1;
}

static int welcome_is_good(const void *message)
{
	const struct kvpull_welcome *welcome = message;
	const uint32_t stages = welcome->pp_size ? welcome->pp_size : 1;
	uint32_t i;

	for (i = 0; i < welcome->cache_count; i++)
		if (welcome->caches[i].region_index >= welcome->region_count)
			return 0;
	return welcome->tp_rank < welcome->tp_size &&
	       welcome->pp_rank < stages &&
	       stages * welcome->tp_size <= KVPULL_RANKS_MAX &&
	       devices_are_good(welcome);
}

const struct kvpull_table kvpull_head_table = KVPULL_TABLE(
	"head", head_fields, .kind_offset = offsetof(struct head, kind));
const struct kvpull_table kvpull_challenge_table =
	KVPULL_TABLE("challenge", challenge_fields, .is_good = NULL);
const struct kvpull_table kvpull_hello_table =
	KVPULL_TABLE("hello", hello_fields, .is_good = hello_is_good);
const struct kvpull_table kvpull_welcome_table =
	KVPULL_TABLE("welcome", welcome_fields, .is_good = welcome_is_good);
const struct kvpull_table kvpull_refusal_table =
	KVPULL_TABLE("refusal", refusal_fields, .is_good = NULL);

_Static_assert(WELCOME_FIXED_BYTES_MAX + KVPULL_REGIONS_MAX * REGION_BYTES +
			       KVPULL_CACHES_MAX * CACHE_BYTES +
			       KVPULL_DEVICE_MEMORIES_MAX * DEVICE_BYTES <=
		       KVPULL_MESSAGE_BYTES_MAX,
	       "the largest welcome fits into a message");
_Static_assert(KVPULL_REGIONS_MAX <= UINT16_MAX &&
		       KVPULL_CACHES_MAX <= UINT16_MAX &&
		       KVPULL_GROUPS_MAX <= UINT8_MAX,
	       "counts fit their place on the wire");

/* ---- seals ---- */

#define USE_HELLO "kvpull.hello.v01"
#define USE_WELCOME "kvpull.welcome.1"
#define USE_LAYOUT "kvpull.layout.v1"

_Static_assert(sizeof(USE_HELLO) ==
			       crypto_generichash_blake2b_PERSONALBYTES + 1 &&
		       sizeof(USE_WELCOME) == sizeof(USE_HELLO) &&
		       sizeof(USE_LAYOUT) == sizeof(USE_HELLO),
	       "BLAKE2b takes all of it");

static void mac(const uint8_t *bytes, size_t byte_count,
		const struct kvpull_seal *seal,
		uint8_t sum[KVPULL_CHECKSUM_BYTES])
{
	crypto_generichash_blake2b_state state;

	(void)crypto_generichash_blake2b_init_salt_personal(
		&state, seal->key, seal->key ? KVPULL_KEY_BYTES : 0,
		KVPULL_CHECKSUM_BYTES, NULL, (const uint8_t *)seal->use);
	if (seal->nonce)
		(void)crypto_generichash_blake2b_update(&state, seal->nonce,
							KVPULL_NONCE_BYTES);
	(void)crypto_generichash_blake2b_update(&state, bytes, byte_count);
	(void)crypto_generichash_blake2b_final(&state, sum,
					       KVPULL_CHECKSUM_BYTES);
}

/* Ends an encoder: the MAC, if what it covers was written. */
static size_t put_mac(struct kvpull_wire_writer *writer,
		      const struct kvpull_seal *seal)
{
	uint8_t sum[KVPULL_CHECKSUM_BYTES];

	if (!kvpull_wire_fits(writer))
		return 0;
	mac(writer->data, writer->used, seal, sum);
	kvpull_wire_put(writer, sum, sizeof(sum));
	return kvpull_wire_fits(writer) ? writer->used : 0;
}

/* ---- messages ---- */

static uint32_t version_of(uint32_t wanted)
{
	return wanted ? wanted : KVPULL_WIRE_VERSION;
}

static void put_head(struct kvpull_wire_writer *writer,
		     enum kvpull_message_kind kind, uint32_t version,
		     const uint8_t *key)
{
	const struct head head = { .magic = MAGIC,
				   .kind = kind,
				   .version = version_of(version),
				   .keyed = key ? 1 : 0 };

	kvpull_fields_put(writer, &kvpull_head_table, 1, &head);
}

static struct kvpull_wire_reader reader_of(const void *bytes, size_t byte_count)
{
	return (struct kvpull_wire_reader){ bytes, byte_count, 0, 0 };
}

/* The head, read past; the message's kind or an error. */
static int get_head(struct kvpull_wire_reader *reader, struct head *head)
{
	memset(head, 0, sizeof(*head));
	kvpull_fields_get_body(reader, &kvpull_head_table, head);
	if (reader->bad || reader->byte_count > KVPULL_MESSAGE_BYTES_MAX ||
	    kvpull_fields_check(&kvpull_head_table, head))
		return KVPULL_EPROTO;
	if (head->kind < KVPULL_MESSAGE_KINDS)
		return (int)head->kind;
	/* Another version may have other kinds. */
	return head->version > KVPULL_WIRE_VERSION ? KVPULL_EVERSION :
						     KVPULL_EPROTO;
}

int kvpull_handshake_kind(const void *bytes, size_t byte_count)
{
	struct kvpull_wire_reader reader = reader_of(bytes, byte_count);
	struct head head;

	return get_head(&reader, &head);
}

/* A message of one kind, up to the end; 0 or an error. */
static int get_message(struct kvpull_wire_reader *reader,
		       enum kvpull_message_kind wanted,
		       const struct kvpull_table *table, void *message)
{
	char unknown[KVPULL_FIELD_NAME_BYTES_MAX];
	struct head head;
	const int kind = get_head(reader, &head);

	if (kind < 0)
		return kind;
	if (kind != (int)wanted)
		return KVPULL_EPROTO;
	return kvpull_fields_get(reader, table, message, unknown);
}

int kvpull_sealed_get(struct kvpull_wire_reader *reader,
		      const struct kvpull_sealed_kind *wanted,
		      const struct kvpull_seal *seal,
		      struct kvpull_sealed *sealed, void *message)
{
	uint8_t sum[KVPULL_CHECKSUM_BYTES];
	struct head head;
	const int kind = get_head(reader, &head);

	sealed->version = head.version;
	if (kind < 0)
		return kind;
	if (kind != (int)wanted->kind ||
	    reader->byte_count - reader->at < sizeof(sum))
		return KVPULL_EPROTO;
	if (head.keyed != (seal->key ? 1u : 0u))
		return KVPULL_EAUTH;
	reader->byte_count -= sizeof(sum);
	mac(reader->data, reader->byte_count, seal, sum);
	if (crypto_verify_16(sum, reader->data + reader->byte_count) != 0)
		return seal->key ? KVPULL_EAUTH : KVPULL_EPROTO;
	return kvpull_fields_get(reader, wanted->table, message,
				 sealed->unknown);
}

uint64_t kvpull_handshake_layout(uint32_t version)
{
	static const struct kvpull_table *const tables[] = {
		&kvpull_head_table,    &kvpull_challenge_table,
		&kvpull_hello_table,   &kvpull_welcome_table,
		&kvpull_refusal_table, &kvpull_ticket_table,
	};
	const struct kvpull_seal seal = { NULL, NULL, USE_LAYOUT };
	uint8_t sum[KVPULL_CHECKSUM_BYTES];
	uint8_t bytes[LAYOUT_BYTES_MAX];
	struct kvpull_wire_writer writer = { bytes, sizeof(bytes), 0 };
	struct kvpull_wire_reader reader = reader_of(sum, sizeof(sum));
	size_t i;

	for (i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		kvpull_fields_layout(&writer, tables[i], version);
	/* The ring that a consumer is given has its layout from ring.h. */
	kvpull_wire_put_u32(&writer, KVPULL_RING_VERSION);
	kvpull_wire_put_u32(&writer, sizeof(struct kvpull_record));
	kvpull_wire_put_u32(&writer, sizeof(struct kvpull_revocation_entry));
	kvpull_assert(kvpull_wire_fits(&writer));
	mac(bytes, writer.used, &seal, sum);
	return kvpull_wire_get_u64(&reader);
}

size_t kvpull_handshake_put_challenge(uint8_t *bytes, size_t capacity,
				      const uint8_t nonce[KVPULL_NONCE_BYTES])
{
	struct kvpull_wire_writer writer = { bytes, capacity, 0 };

	put_head(&writer, KVPULL_MESSAGE_CHALLENGE, 0, NULL);
	kvpull_fields_put(&writer, &kvpull_challenge_table, 1, nonce);
	return kvpull_wire_fits(&writer) ? writer.used : 0;
}

int kvpull_handshake_get_challenge(const void *bytes, size_t byte_count,
				   uint8_t nonce[KVPULL_NONCE_BYTES])
{
	struct kvpull_wire_reader reader = reader_of(bytes, byte_count);

	return get_message(&reader, KVPULL_MESSAGE_CHALLENGE,
			   &kvpull_challenge_table, nonce);
}

size_t kvpull_sealed_put(struct kvpull_wire_writer *writer,
			 const struct kvpull_sealed_kind *kind,
			 const struct kvpull_seal *seal, uint32_t version,
			 const void *message)
{
	if (kvpull_fields_check(kind->table, message))
		return 0;
	put_head(writer, kind->kind, version, seal->key);
	kvpull_fields_put(writer, kind->table, version_of(version), message);
	return put_mac(writer, seal);
}

static const struct kvpull_sealed_kind hello_kind = { KVPULL_MESSAGE_HELLO,
						      &kvpull_hello_table };
static const struct kvpull_sealed_kind welcome_kind = { KVPULL_MESSAGE_WELCOME,
							&kvpull_welcome_table };

size_t kvpull_handshake_put_hello(uint8_t *bytes, size_t capacity,
				  const struct kvpull_hello *hello,
				  const uint8_t *key,
				  const uint8_t nonce[KVPULL_NONCE_BYTES])
{
	struct kvpull_wire_writer writer = { bytes, capacity, 0 };
	const struct kvpull_seal seal = { key, nonce, USE_HELLO };
	struct kvpull_hello own = *hello;

	if (!own.wire_layout)
		own.wire_layout =
			kvpull_handshake_layout(version_of(own.sealed.version));
	return kvpull_sealed_put(&writer, &hello_kind, &seal,
				 own.sealed.version, &own);
}

int kvpull_handshake_get_hello(const void *bytes, size_t byte_count,
			       const uint8_t *key,
			       const uint8_t nonce[KVPULL_NONCE_BYTES],
			       struct kvpull_hello *hello)
{
	struct kvpull_wire_reader reader = reader_of(bytes, byte_count);
	const struct kvpull_seal seal = { key, nonce, USE_HELLO };

	memset(hello, 0, sizeof(*hello));
	return kvpull_sealed_get(&reader, &hello_kind, &seal, &hello->sealed,
				 hello);
}

size_t kvpull_handshake_put_welcome(uint8_t *bytes, size_t capacity,
				    const struct kvpull_welcome *welcome,
				    const uint8_t *key,
				    const uint8_t nonce[KVPULL_NONCE_BYTES])
{
	struct kvpull_wire_writer writer = { bytes, capacity, 0 };
	const struct kvpull_seal seal = { key, nonce, USE_WELCOME };

	return kvpull_sealed_put(&writer, &welcome_kind, &seal,
				 welcome->sealed.version, welcome);
}

int kvpull_handshake_get_welcome(const void *bytes, size_t byte_count,
				 const uint8_t *key,
				 const uint8_t nonce[KVPULL_NONCE_BYTES],
				 struct kvpull_welcome *welcome)
{
	struct kvpull_wire_reader reader = reader_of(bytes, byte_count);
	const struct kvpull_seal seal = { key, nonce, USE_WELCOME };

	uint32_t i;
	int code;

	memset(welcome, 0, sizeof(*welcome));
	code = kvpull_sealed_get(&reader, &welcome_kind, &seal,
				 &welcome->sealed, welcome);
	for (i = 0; !code && i < welcome->cache_count; i++)
		welcome->caches[i].struct_size = sizeof(welcome->caches[i]);
	return code;
}

void kvpull_welcome_regions_put(struct kvpull_welcome_region *regions,
				const struct kvpull_serve *serve)
{
	uint32_t i;

	for (i = 0; i < serve->region_count; i++) {
		const struct kvpull_region_view *view = &serve->regions[i];

		regions[i] = (struct kvpull_welcome_region){
			.kind = view->kind,
			.fd_index = view->fd_index,
			.address = (uint64_t)(uintptr_t)view->base,
			.fd_offset = view->fd_offset,
			.bytes = view->bytes,
		};
	}
}

void kvpull_welcome_view(const struct kvpull_welcome_region *regions,
			 uint32_t region_count, uint64_t entries_address,
			 uint32_t slot_count, struct kvpull_serve *view)
{
	uint32_t i;

	memset(view, 0, sizeof(*view));
	view->slot_count = slot_count;
	view->entries_fd = -1;
	view->entries =
		(struct kvpull_revocation_entry *)(uintptr_t)entries_address;
	view->region_count = region_count;
	for (i = 0; i < region_count; i++)
		view->regions[i] = (struct kvpull_region_view){
			.kind = regions[i].kind,
			.fd = -1,
			.base = (uint8_t *)(uintptr_t)regions[i].address,
			.bytes = regions[i].bytes,
			.fd_offset = regions[i].fd_offset,
			.fd_index = regions[i].fd_index,
		};
}

size_t kvpull_handshake_put_refusal(uint8_t *bytes, size_t capacity,
				    const struct kvpull_refusal *refusal)
{
	struct kvpull_wire_writer writer = { bytes, capacity, 0 };

	if (kvpull_fields_check(&kvpull_refusal_table, refusal))
		return 0;
	put_head(&writer, KVPULL_MESSAGE_REFUSAL, 1, NULL);
	kvpull_fields_put(&writer, &kvpull_refusal_table, 1, refusal);
	return kvpull_wire_fits(&writer) ? writer.used : 0;
}

int kvpull_handshake_get_refusal(const void *bytes, size_t byte_count,
				 struct kvpull_refusal *refusal)
{
	struct kvpull_wire_reader reader = reader_of(bytes, byte_count);

	memset(refusal, 0, sizeof(*refusal));
	return get_message(&reader, KVPULL_MESSAGE_REFUSAL,
			   &kvpull_refusal_table, refusal);
}
