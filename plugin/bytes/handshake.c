/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codec of the handshake.
 *
 * Kept: a decoder uses no byte of a hello or welcome before its checksum or MAC
 * over all of it matched, writes its out parameter on success only, and takes
 * no text that could break a log line.
 *
 * Message: u32 magic, u8 kind, u16 version of the sender, then
 *   challenge  u16 smallest version it speaks, 32 nonce
 *   hello      u8 keyed, u64 instance, u64 incarnation, u64 wanted, u32 rank,
 *              u32 ranks, text engine_id, 32 nonce, record, 16 MAC
 *   welcome    u8 keyed, u64 incarnation, u64 lease_ns, u32 slots, u32 tp_rank,
 *              u32 tp_size, u32 pid, u64 entries, text engine_id, u8 regions,
 *              each { u32 kind, u64 address, u64 bytes }, u16 caches, each its
 *              members in order, 16 MAC
 *   refusal    u32 code, text field, text ours, text theirs
 */
#include "plugin/bytes/handshake.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <sodium.h>

#include "base/clock.h"
#include "base/params.h"

#define MAGIC UINT32_C(0x5348564b) /* "KVHS" */
#define TEXT_COUNT 6u
#define REGION_BYTES 20u
#define CACHE_BYTES 76u
#define WELCOME_FIXED_BYTES_MAX 256u

_Static_assert(WELCOME_FIXED_BYTES_MAX + KVPULL_REGIONS_MAX * REGION_BYTES +
			       KVPULL_CACHES_MAX * CACHE_BYTES <=
		       KVPULL_MESSAGE_BYTES_MAX,
	       "the largest welcome fits into a message");
_Static_assert(KVPULL_REGIONS_MAX <= UINT8_MAX &&
		       KVPULL_CACHES_MAX <= UINT16_MAX &&
		       KVPULL_GROUPS_MAX <= UINT8_MAX,
	       "counts fit their place on the wire");

/* What a MAC is made with, beside the bytes that it covers. */
struct seal {
	const uint8_t *key;   /* NULL: a checksum */
	const uint8_t *nonce; /* the receiver's; NULL: none */
	const char *use; /* each its own: no MAC can be shown as another's */
};

#define USE_HELLO "kvpull.hello.v01"
#define USE_WELCOME "kvpull.welcome.1"
#define USE_COMPAT "kvpull.compat.v1"

_Static_assert(sizeof(USE_HELLO) ==
			       crypto_generichash_blake2b_PERSONALBYTES + 1 &&
		       sizeof(USE_WELCOME) == sizeof(USE_HELLO) &&
		       sizeof(USE_COMPAT) == sizeof(USE_HELLO),
	       "BLAKE2b takes all of it");

/* The record's texts, in their order on the wire. */
static const struct {
	const char *name;
	size_t offset;
} compat_texts[TEXT_COUNT] = {
	{ "model", offsetof(struct kvpull_compat, model) },
	{ "revision", offsetof(struct kvpull_compat, revision) },
	{ "weights", offsetof(struct kvpull_compat, weights) },
	{ "dtype", offsetof(struct kvpull_compat, dtype) },
	{ "layout", offsetof(struct kvpull_compat, layout) },
	{ "attention", offsetof(struct kvpull_compat, attention) },
};

static const char *text_of(const struct kvpull_compat *compat, uint32_t i)
{
	return (const char *)compat + compat_texts[i].offset;
}

static void mac(const uint8_t *bytes, size_t byte_count,
		const struct seal *seal, uint8_t sum[KVPULL_CHECKSUM_BYTES])
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
		      const struct seal *seal)
{
	uint8_t sum[KVPULL_CHECKSUM_BYTES];

	if (!kvpull_wire_fits(writer))
		return 0;
	mac(writer->data, writer->used, seal, sum);
	kvpull_wire_put(writer, sum, sizeof(sum));
	return kvpull_wire_fits(writer) ? writer->used : 0;
}

static void put_start(struct kvpull_wire_writer *writer,
		      enum kvpull_message_kind kind)
{
	kvpull_wire_put_u32(writer, MAGIC);
	kvpull_wire_put_u8(writer, (uint8_t)kind);
	kvpull_wire_put_u16(writer, KVPULL_WIRE_VERSION);
}

static struct kvpull_wire_reader reader_of(const void *bytes, size_t byte_count)
{
	return (struct kvpull_wire_reader){ bytes, byte_count, 0, 0 };
}

/* Start of a message, read past; its kind or an error. */
static int get_start(struct kvpull_wire_reader *reader)
{
	const uint32_t magic = kvpull_wire_get_u32(reader);
	const uint8_t kind = kvpull_wire_get_u8(reader);
	const uint16_t version = kvpull_wire_get_u16(reader);
	uint16_t smallest;

	if (reader->bad || reader->byte_count > KVPULL_MESSAGE_BYTES_MAX ||
	    magic != MAGIC)
		return KVPULL_EPROTO;
	switch (kind) {
	case KVPULL_MESSAGE_CHALLENGE:
		smallest = kvpull_wire_get_u16(reader);
		if (reader->bad)
			return KVPULL_EPROTO;
		return smallest > KVPULL_WIRE_VERSION ||
				       version < KVPULL_WIRE_VERSION ?
			       KVPULL_EVERSION :
			       kind;
	case KVPULL_MESSAGE_HELLO:
	case KVPULL_MESSAGE_WELCOME:
		return version != KVPULL_WIRE_VERSION ? KVPULL_EVERSION : kind;
	case KVPULL_MESSAGE_REFUSAL:
		return kind;
	}
	/* Another version may have other kinds. */
	return version != KVPULL_WIRE_VERSION ? KVPULL_EVERSION : KVPULL_EPROTO;
}

int kvpull_handshake_kind(const void *bytes, size_t byte_count)
{
	struct kvpull_wire_reader reader = reader_of(bytes, byte_count);

	return get_start(&reader);
}

/* Start of a message of one kind; 0 or an error. */
static int get_kind(struct kvpull_wire_reader *reader,
		    enum kvpull_message_kind wanted)
{
	const int kind = get_start(reader);

	if (kind < 0)
		return kind;
	return kind == (int)wanted ? 0 : KVPULL_EPROTO;
}

/* Kind, key and MAC of a hello or welcome; the reader then ends before it. */
static int get_sealed(struct kvpull_wire_reader *reader,
		      enum kvpull_message_kind wanted, const struct seal *seal)
{
	const int code = get_kind(reader, wanted);
	const uint8_t keyed = kvpull_wire_get_u8(reader);
	uint8_t sum[KVPULL_CHECKSUM_BYTES];

	if (code)
		return code;
	if (reader->bad || keyed > 1 ||
	    reader->byte_count - reader->at < sizeof(sum))
		return KVPULL_EPROTO;
	if (keyed != (seal->key ? 1 : 0))
		return KVPULL_EAUTH;
	reader->byte_count -= sizeof(sum);
	mac(reader->data, reader->byte_count, seal, sum);
	if (crypto_verify_16(sum, reader->data + reader->byte_count) != 0)
		return seal->key ? KVPULL_EAUTH : KVPULL_EPROTO;
	return 0;
}

static void get_nonce(struct kvpull_wire_reader *reader, uint8_t *nonce)
{
	const uint8_t *bytes = kvpull_wire_get(reader, KVPULL_NONCE_BYTES);

	if (bytes)
		memcpy(nonce, bytes, KVPULL_NONCE_BYTES);
}

static void put_compat(struct kvpull_wire_writer *writer,
		       const struct kvpull_compat *compat)
{
	uint32_t i;

	for (i = 0; i < TEXT_COUNT; i++)
		kvpull_wire_put_text(writer, text_of(compat, i));
	kvpull_wire_put_u32(writer, compat->layer_count);
	kvpull_wire_put_u32(writer, compat->head_count);
	kvpull_wire_put_u32(writer, compat->head_bytes);
	kvpull_wire_put_u32(writer, compat->replicated);
	kvpull_wire_put_u8(writer, (uint8_t)compat->group_count);
	for (i = 0; i < compat->group_count; i++) {
		kvpull_wire_put_u32(writer, compat->groups[i].block_tokens);
		kvpull_wire_put_u32(writer, compat->groups[i].kind);
	}
}

/* 0, or KVPULL_EINVAL: what put_compat() must not be given. */
static int check_compat(const struct kvpull_compat *compat)
{
	uint32_t i;

	for (i = 0; i < TEXT_COUNT; i++)
		if (kvpull_ticket_check_text(text_of(compat, i),
					     KVPULL_TEXT_BYTES_MAX))
			return KVPULL_EINVAL;
	if (compat->replicated > 1 || !compat->group_count ||
	    compat->group_count > KVPULL_GROUPS_MAX)
		return KVPULL_EINVAL;
	for (i = 0; i < compat->group_count; i++)
		if (!compat->groups[i].block_tokens ||
		    compat->groups[i].kind > KVPULL_GROUP_STATE)
			return KVPULL_EINVAL;
	return 0;
}

static void get_compat(struct kvpull_wire_reader *reader,
		       struct kvpull_compat *compat)
{
	uint32_t i;

	for (i = 0; i < TEXT_COUNT; i++)
		kvpull_wire_get_text(reader,
				     (char *)compat + compat_texts[i].offset,
				     KVPULL_TEXT_BYTES_MAX);
	compat->layer_count = kvpull_wire_get_u32(reader);
	compat->head_count = kvpull_wire_get_u32(reader);
	compat->head_bytes = kvpull_wire_get_u32(reader);
	compat->replicated = kvpull_wire_get_u32(reader);
	compat->group_count = kvpull_wire_get_u8(reader);
	if (compat->group_count > KVPULL_GROUPS_MAX)
		reader->bad = 1;
	for (i = 0; !reader->bad && i < compat->group_count; i++) {
		compat->groups[i].block_tokens = kvpull_wire_get_u32(reader);
		compat->groups[i].kind = kvpull_wire_get_u32(reader);
	}
	if (reader->bad || check_compat(compat))
		reader->bad = 1;
}

static void texts_of(const struct kvpull_model *model,
		     const char *texts[TEXT_COUNT])
{
	const char *const given[TEXT_COUNT] = {
		model->model, model->revision, model->weights,
		model->dtype, model->layout,   model->attention,
	};
	uint32_t i;

	for (i = 0; i < TEXT_COUNT; i++)
		texts[i] = given[i] ? given[i] : "";
}

static int refuse_text(struct kvpull_error_detail *detail, uint32_t i,
		       const char *text)
{
	kvpull_detail_set(
		detail, KVPULL_EINVAL, compat_texts[i].name,
		"%s %.60s%s is refused: at most %u bytes without control characters",
		compat_texts[i].name, text,
		strnlen(text, KVPULL_TEXT_BYTES_MAX) > 60 ? "..." : "",
		KVPULL_TEXT_BYTES_MAX - 1);
	return KVPULL_EINVAL;
}

int kvpull_compat_check(const struct kvpull_open_params *params,
			struct kvpull_error_detail *detail)
{
	const char *texts[TEXT_COUNT];
	struct kvpull_model model;
	uint32_t i;
	int code;

	code = kvpull_params_take_named(&model, sizeof(model), params->model,
					"model", detail);
	if (code)
		return code;
	texts_of(&model, texts);
	for (i = 0; i < TEXT_COUNT; i++)
		if (kvpull_ticket_check_text(texts[i], KVPULL_TEXT_BYTES_MAX))
			return refuse_text(detail, i, texts[i]);
	if (model.replicated > 1) {
		kvpull_detail_set(detail, KVPULL_EINVAL, "replicated",
				  "replicated is %u: it is 0 or 1",
				  model.replicated);
		return KVPULL_EINVAL;
	}
	for (i = 0; i < params->group_count; i++)
		if (!params->groups[i].block_tokens) {
			kvpull_detail_set(detail, KVPULL_EINVAL, "groups",
					  "groups[%u].block_tokens is 0", i);
			return KVPULL_EINVAL;
		}
	return 0;
}

int kvpull_compat_init(struct kvpull_compat *compat,
		       const struct kvpull_open_params *params)
{
	struct kvpull_compat own = { 0 };
	const char *texts[TEXT_COUNT];
	struct kvpull_model model;
	uint32_t i;

	if (kvpull_params_take(&model, sizeof(model), params->model) ||
	    !params->groups || params->group_count > KVPULL_GROUPS_MAX ||
	    kvpull_compat_check(params, NULL))
		return KVPULL_EINVAL;
	texts_of(&model, texts);
	for (i = 0; i < TEXT_COUNT; i++)
		memcpy((char *)&own + compat_texts[i].offset, texts[i],
		       strlen(texts[i]) + 1);
	own.layer_count = model.layer_count;
	own.head_count = model.head_count;
	own.head_bytes = model.head_bytes;
	own.replicated = model.replicated;
	own.group_count = params->group_count;
	for (i = 0; i < own.group_count; i++)
		own.groups[i] = params->groups[i];
	if (check_compat(&own))
		return KVPULL_EINVAL;
	*compat = own;
	return 0;
}

void kvpull_compat_digest(const struct kvpull_compat *compat,
			  uint8_t digest[KVPULL_COMPAT_BYTES])
{
	/* Texts with their counts, four numbers, the groups. */
	uint8_t bytes[TEXT_COUNT * (2 + KVPULL_TEXT_BYTES_MAX) + 4 * 4 + 1 +
		      KVPULL_GROUPS_MAX * 8];
	struct kvpull_wire_writer writer = { bytes, sizeof(bytes), 0 };
	const struct seal seal = { NULL, NULL, USE_COMPAT };

	_Static_assert(KVPULL_COMPAT_BYTES == KVPULL_CHECKSUM_BYTES, "digest");
	put_compat(&writer, compat);
	kvpull_assert(kvpull_wire_fits(&writer));
	mac(bytes, writer.used, &seal, digest);
}

/* An empty value would be no word in a line. */
static const char *quoted(const char *value)
{
	return value[0] ? value : "\"\"";
}

/* Fills in a refusal; numbers come as their texts. */
static int refuse(struct kvpull_refusal *refusal, const char *field,
		  const char *ours, const char *theirs)
{
	memset(refusal, 0, sizeof(*refusal));
	refusal->code = KVPULL_EREJECTED;
	(void)snprintf(refusal->field, sizeof(refusal->field), "%s", field);
	(void)snprintf(refusal->ours, sizeof(refusal->ours), "%s",
		       quoted(ours));
	(void)snprintf(refusal->theirs, sizeof(refusal->theirs), "%s",
		       quoted(theirs));
	return KVPULL_EREJECTED;
}

static int compare_number(struct kvpull_refusal *refusal, const char *field,
			  uint32_t ours, uint32_t theirs)
{
	char our_text[16];
	char their_text[16];

	if (ours == theirs)
		return 0;
	(void)snprintf(our_text, sizeof(our_text), "%" PRIu32, ours);
	(void)snprintf(their_text, sizeof(their_text), "%" PRIu32, theirs);
	return refuse(refusal, field, our_text, their_text);
}

static int compare_group(struct kvpull_refusal *refusal, uint32_t index,
			 const struct kvpull_group *ours,
			 const struct kvpull_group *theirs)
{
	char field[sizeof(refusal->field)];
	int code;

	(void)snprintf(field, sizeof(field), "groups[%" PRIu32 "].block_tokens",
		       index);
	code = compare_number(refusal, field, ours->block_tokens,
			      theirs->block_tokens);
	if (code)
		return code;
	(void)snprintf(field, sizeof(field), "groups[%" PRIu32 "].kind", index);
	return compare_number(refusal, field, ours->kind, theirs->kind);
}

int kvpull_compat_compare(const struct kvpull_compat *ours,
			  const struct kvpull_compat *theirs,
			  struct kvpull_refusal *refusal)
{
	const struct {
		const char *name;
		uint32_t ours;
		uint32_t theirs;
	} numbers[] = {
		{ "layer_count", ours->layer_count, theirs->layer_count },
		{ "head_count", ours->head_count, theirs->head_count },
		{ "head_bytes", ours->head_bytes, theirs->head_bytes },
		{ "replicated", ours->replicated, theirs->replicated },
		{ "group_count", ours->group_count, theirs->group_count },
	};
	int code = 0;
	uint32_t i;

	for (i = 0; i < TEXT_COUNT; i++)
		if (strcmp(text_of(ours, i), text_of(theirs, i)) != 0)
			return refuse(refusal, compat_texts[i].name,
				      text_of(ours, i), text_of(theirs, i));
	for (i = 0; !code && i < sizeof(numbers) / sizeof(numbers[0]); i++)
		code = compare_number(refusal, numbers[i].name, numbers[i].ours,
				      numbers[i].theirs);
	for (i = 0; !code && i < ours->group_count; i++)
		code = compare_group(refusal, i, &ours->groups[i],
				     &theirs->groups[i]);
	return code;
}

size_t kvpull_handshake_put_challenge(uint8_t *bytes, size_t capacity,
				      const uint8_t nonce[KVPULL_NONCE_BYTES])
{
	struct kvpull_wire_writer writer = { bytes, capacity, 0 };

	put_start(&writer, KVPULL_MESSAGE_CHALLENGE);
	kvpull_wire_put_u16(&writer, KVPULL_WIRE_VERSION);
	kvpull_wire_put(&writer, nonce, KVPULL_NONCE_BYTES);
	return kvpull_wire_fits(&writer) ? writer.used : 0;
}

int kvpull_handshake_get_challenge(const void *bytes, size_t byte_count,
				   uint8_t nonce[KVPULL_NONCE_BYTES])
{
	struct kvpull_wire_reader reader = reader_of(bytes, byte_count);
	uint8_t got[KVPULL_NONCE_BYTES] = { 0 };
	const int code = get_kind(&reader, KVPULL_MESSAGE_CHALLENGE);

	if (code)
		return code;
	get_nonce(&reader, got);
	if (!kvpull_wire_done(&reader))
		return KVPULL_EPROTO;
	memcpy(nonce, got, sizeof(got));
	return 0;
}

/* 0, or KVPULL_EINVAL: an id that the other side would not take. */
static int check_engine_id(const char *engine_id)
{
	return kvpull_ticket_check_text(engine_id, KVPULL_ENGINE_ID_BYTES_MAX);
}

static int check_hello(const struct kvpull_hello *hello)
{
	if (!hello->instance || !hello->incarnation || !hello->wanted ||
	    !hello->rank_count || hello->rank_count > KVPULL_RANKS_MAX ||
	    hello->rank >= hello->rank_count)
		return KVPULL_EINVAL;
	return check_engine_id(hello->engine_id);
}

size_t kvpull_handshake_put_hello(uint8_t *bytes, size_t capacity,
				  const struct kvpull_hello *hello,
				  const uint8_t *key,
				  const uint8_t nonce[KVPULL_NONCE_BYTES])
{
	struct kvpull_wire_writer writer = { bytes, capacity, 0 };
	const struct seal seal = { key, nonce, USE_HELLO };

	if (check_hello(hello) || check_compat(&hello->compat))
		return 0;
	put_start(&writer, KVPULL_MESSAGE_HELLO);
	kvpull_wire_put_u8(&writer, key ? 1 : 0);
	kvpull_wire_put_u64(&writer, hello->instance);
	kvpull_wire_put_u64(&writer, hello->incarnation);
	kvpull_wire_put_u64(&writer, hello->wanted);
	kvpull_wire_put_u32(&writer, hello->rank);
	kvpull_wire_put_u32(&writer, hello->rank_count);
	kvpull_wire_put_text(&writer, hello->engine_id);
	kvpull_wire_put(&writer, hello->nonce, sizeof(hello->nonce));
	put_compat(&writer, &hello->compat);
	return put_mac(&writer, &seal);
}

int kvpull_handshake_get_hello(const void *bytes, size_t byte_count,
			       const uint8_t *key,
			       const uint8_t nonce[KVPULL_NONCE_BYTES],
			       struct kvpull_hello *hello)
{
	struct kvpull_wire_reader reader = reader_of(bytes, byte_count);
	const struct seal seal = { key, nonce, USE_HELLO };
	const int code = get_sealed(&reader, KVPULL_MESSAGE_HELLO, &seal);
	struct kvpull_hello got = { 0 };

	if (code)
		return code;
	got.instance = kvpull_wire_get_u64(&reader);
	got.incarnation = kvpull_wire_get_u64(&reader);
	got.wanted = kvpull_wire_get_u64(&reader);
	got.rank = kvpull_wire_get_u32(&reader);
	got.rank_count = kvpull_wire_get_u32(&reader);
	kvpull_wire_get_text(&reader, got.engine_id, sizeof(got.engine_id));
	get_nonce(&reader, got.nonce);
	get_compat(&reader, &got.compat);
	if (!kvpull_wire_done(&reader) || check_hello(&got))
		return KVPULL_EPROTO;
	*hello = got;
	return 0;
}

static void put_cache(struct kvpull_wire_writer *writer,
		      const struct kvpull_cache *cache)
{
	kvpull_wire_put_u32(writer, cache->region_index);
	kvpull_wire_put_u32(writer, cache->group_index);
	kvpull_wire_put_u32(writer, cache->layer_first);
	kvpull_wire_put_u32(writer, cache->layer_count);
	kvpull_wire_put_u64(writer, cache->offset);
	kvpull_wire_put_u64(writer, cache->layer_stride);
	kvpull_wire_put_u64(writer, cache->block_stride);
	kvpull_wire_put_u64(writer, cache->row_stride);
	kvpull_wire_put_u64(writer, cache->head_stride);
	kvpull_wire_put_u32(writer, cache->block_count);
	kvpull_wire_put_u32(writer, cache->row_count);
	kvpull_wire_put_u32(writer, cache->head_first);
	kvpull_wire_put_u32(writer, cache->head_count);
	kvpull_wire_put_u32(writer, cache->head_bytes);
}

static void get_cache(struct kvpull_wire_reader *reader,
		      struct kvpull_cache *cache)
{
	cache->struct_size = sizeof(*cache);
	cache->region_index = kvpull_wire_get_u32(reader);
	cache->group_index = kvpull_wire_get_u32(reader);
	cache->layer_first = kvpull_wire_get_u32(reader);
	cache->layer_count = kvpull_wire_get_u32(reader);
	cache->offset = kvpull_wire_get_u64(reader);
	cache->layer_stride = kvpull_wire_get_u64(reader);
	cache->block_stride = kvpull_wire_get_u64(reader);
	cache->row_stride = kvpull_wire_get_u64(reader);
	cache->head_stride = kvpull_wire_get_u64(reader);
	cache->block_count = kvpull_wire_get_u32(reader);
	cache->row_count = kvpull_wire_get_u32(reader);
	cache->head_first = kvpull_wire_get_u32(reader);
	cache->head_count = kvpull_wire_get_u32(reader);
	cache->head_bytes = kvpull_wire_get_u32(reader);
}

static int check_cache(const struct kvpull_cache *cache, uint32_t region_count)
{
	if (cache->region_index >= region_count ||
	    cache->group_index >= KVPULL_GROUPS_MAX)
		return KVPULL_EINVAL;
	if (!cache->layer_count || !cache->block_count || !cache->row_count ||
	    !cache->head_count || !cache->head_bytes)
		return KVPULL_EINVAL;
	if (cache->layer_count > UINT32_MAX - cache->layer_first ||
	    cache->head_count > UINT32_MAX - cache->head_first)
		return KVPULL_EINVAL;
	return 0;
}

static int check_regions(const struct kvpull_welcome *welcome)
{
	uint32_t i;

	if (!welcome->region_count ||
	    welcome->region_count > KVPULL_REGIONS_MAX)
		return KVPULL_EINVAL;
	for (i = 0; i < welcome->region_count; i++)
		if (welcome->regions[i].kind > KVPULL_REGION_FILE ||
		    !welcome->regions[i].bytes ||
		    welcome->regions[i].bytes >
			    UINT64_MAX - welcome->regions[i].address)
			return KVPULL_EINVAL;
	return 0;
}

/* Whoever lets us in sets our pace: a beat each third of its lease. */
static int check_welcome(const struct kvpull_welcome *welcome)
{
	uint32_t i;

	if (!welcome->incarnation || !welcome->slot_count ||
	    welcome->lease_ns < KVPULL_LEASE_MS_MIN * KVPULL_NS_PER_MS ||
	    welcome->slot_count > KVPULL_TICKET_SLOTS_MAX)
		return KVPULL_EINVAL;
	if (!welcome->tp_size || welcome->tp_size > KVPULL_RANKS_MAX ||
	    welcome->tp_rank >= welcome->tp_size ||
	    check_engine_id(welcome->engine_id) || check_regions(welcome))
		return KVPULL_EINVAL;
	if (!welcome->cache_count || welcome->cache_count > KVPULL_CACHES_MAX)
		return KVPULL_EINVAL;
	for (i = 0; i < welcome->cache_count; i++)
		if (check_cache(&welcome->caches[i], welcome->region_count))
			return KVPULL_EINVAL;
	return 0;
}

size_t kvpull_handshake_put_welcome(uint8_t *bytes, size_t capacity,
				    const struct kvpull_welcome *welcome,
				    const uint8_t *key,
				    const uint8_t nonce[KVPULL_NONCE_BYTES])
{
	struct kvpull_wire_writer writer = { bytes, capacity, 0 };
	const struct seal seal = { key, nonce, USE_WELCOME };
	uint32_t i;

	if (check_welcome(welcome))
		return 0;
	put_start(&writer, KVPULL_MESSAGE_WELCOME);
	kvpull_wire_put_u8(&writer, key ? 1 : 0);
	kvpull_wire_put_u64(&writer, welcome->incarnation);
	kvpull_wire_put_u64(&writer, welcome->lease_ns);
	kvpull_wire_put_u32(&writer, welcome->slot_count);
	kvpull_wire_put_u32(&writer, welcome->tp_rank);
	kvpull_wire_put_u32(&writer, welcome->tp_size);
	kvpull_wire_put_u32(&writer, welcome->pid);
	kvpull_wire_put_u64(&writer, welcome->entries_address);
	kvpull_wire_put_text(&writer, welcome->engine_id);
	kvpull_wire_put_u8(&writer, (uint8_t)welcome->region_count);
	for (i = 0; i < welcome->region_count; i++) {
		kvpull_wire_put_u32(&writer, welcome->regions[i].kind);
		kvpull_wire_put_u64(&writer, welcome->regions[i].address);
		kvpull_wire_put_u64(&writer, welcome->regions[i].bytes);
	}
	kvpull_wire_put_u16(&writer, (uint16_t)welcome->cache_count);
	for (i = 0; i < welcome->cache_count; i++)
		put_cache(&writer, &welcome->caches[i]);
	return put_mac(&writer, &seal);
}

/* The welcome's arrays; counts are checked before they end a loop. */
static void get_memory(struct kvpull_wire_reader *reader,
		       struct kvpull_welcome *welcome)
{
	uint32_t i;

	welcome->region_count = kvpull_wire_get_u8(reader);
	if (welcome->region_count > KVPULL_REGIONS_MAX)
		reader->bad = 1;
	for (i = 0; !reader->bad && i < welcome->region_count; i++) {
		welcome->regions[i].kind = kvpull_wire_get_u32(reader);
		welcome->regions[i].reserved = 0;
		welcome->regions[i].address = kvpull_wire_get_u64(reader);
		welcome->regions[i].bytes = kvpull_wire_get_u64(reader);
	}
	welcome->cache_count = kvpull_wire_get_u16(reader);
	if (welcome->cache_count > KVPULL_CACHES_MAX)
		reader->bad = 1;
	for (i = 0; !reader->bad && i < welcome->cache_count; i++)
		get_cache(reader, &welcome->caches[i]);
}

int kvpull_handshake_get_welcome(const void *bytes, size_t byte_count,
				 const uint8_t *key,
				 const uint8_t nonce[KVPULL_NONCE_BYTES],
				 struct kvpull_welcome *welcome)
{
	struct kvpull_wire_reader reader = reader_of(bytes, byte_count);
	const struct seal seal = { key, nonce, USE_WELCOME };
	const int code = get_sealed(&reader, KVPULL_MESSAGE_WELCOME, &seal);
	struct kvpull_welcome got = { 0 };

	if (code)
		return code;
	got.incarnation = kvpull_wire_get_u64(&reader);
	got.lease_ns = kvpull_wire_get_u64(&reader);
	got.slot_count = kvpull_wire_get_u32(&reader);
	got.tp_rank = kvpull_wire_get_u32(&reader);
	got.tp_size = kvpull_wire_get_u32(&reader);
	got.pid = kvpull_wire_get_u32(&reader);
	got.entries_address = kvpull_wire_get_u64(&reader);
	kvpull_wire_get_text(&reader, got.engine_id, sizeof(got.engine_id));
	get_memory(&reader, &got);
	if (!kvpull_wire_done(&reader) || check_welcome(&got))
		return KVPULL_EPROTO;
	*welcome = got;
	return 0;
}

static int check_refusal(const struct kvpull_refusal *refusal)
{
	switch (refusal->code) {
	case KVPULL_EAGAIN: /* its last connection is not worked off yet */
	case KVPULL_ENOMEM:
	case KVPULL_EPROTO:
	case KVPULL_EROUTE:
	case KVPULL_EREJECTED:
	case KVPULL_EVERSION:
	case KVPULL_EAUTH:
	case KVPULL_EFULL:
	case KVPULL_EPEER:
		break;
	default:
		return KVPULL_EINVAL;
	}
	if (kvpull_ticket_check_text(refusal->field, sizeof(refusal->field)) ||
	    kvpull_ticket_check_text(refusal->ours, sizeof(refusal->ours)))
		return KVPULL_EINVAL;
	return kvpull_ticket_check_text(refusal->theirs,
					sizeof(refusal->theirs));
}

size_t kvpull_handshake_put_refusal(uint8_t *bytes, size_t capacity,
				    const struct kvpull_refusal *refusal)
{
	struct kvpull_wire_writer writer = { bytes, capacity, 0 };

	if (check_refusal(refusal))
		return 0;
	put_start(&writer, KVPULL_MESSAGE_REFUSAL);
	kvpull_wire_put_u32(&writer, (uint32_t)refusal->code);
	kvpull_wire_put_text(&writer, refusal->field);
	kvpull_wire_put_text(&writer, refusal->ours);
	kvpull_wire_put_text(&writer, refusal->theirs);
	return kvpull_wire_fits(&writer) ? writer.used : 0;
}

int kvpull_handshake_get_refusal(const void *bytes, size_t byte_count,
				 struct kvpull_refusal *refusal)
{
	struct kvpull_wire_reader reader = reader_of(bytes, byte_count);
	const int code = get_kind(&reader, KVPULL_MESSAGE_REFUSAL);
	struct kvpull_refusal got = { 0 };

	if (code)
		return code;
	got.code = (int32_t)kvpull_wire_get_u32(&reader);
	kvpull_wire_get_text(&reader, got.field, sizeof(got.field));
	kvpull_wire_get_text(&reader, got.ours, sizeof(got.ours));
	kvpull_wire_get_text(&reader, got.theirs, sizeof(got.theirs));
	if (!kvpull_wire_done(&reader) || check_refusal(&got))
		return KVPULL_EPROTO;
	*refusal = got;
	return 0;
}
