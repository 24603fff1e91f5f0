/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An owner and a caller that keep to no rule: right messages at wrong times,
 * twice, with members that do not fit, with bytes changed, or garbage. Their
 * memory is real, and its directory is forged with the share's own secret.
 */
#include <stdlib.h>
#include <string.h>

#include "plugin/bytes/share.h"
#include "plugin/pool/entry.h"
#include "shm/segment.h"
#include "shm/shm.h"
#include "tests/fuzz/pool.h"

#define ENTRIES 32u
#define INCARNATION 77u
#define CALLERS_MAX 8u
#define PEERS_MAX 4u

struct party { /* a caller of the false owner, or a peer of the false caller */
	uint32_t is_used;
	uint32_t is_met;
	uint8_t nonce[KVPULL_NONCE_BYTES];
};

static struct {
	struct kvpull_log log;
	struct kvpull_arena arena;
	struct kvpull_transport *route;
	struct kvpull_shared chunks, guards, directory;
	struct kvpull_serve serve;
	struct kvpull_pool_share share;
	struct party callers[CALLERS_MAX + KVPULL_CALLERS_MORE];
	struct party peers[PEERS_MAX];
} false_one;

static uint8_t message[8192];

static void segment_make(struct kvpull_shared *segment, size_t byte_count)
{
	api_expect(!kvpull_segment_make(segment, "api-fuzz", byte_count,
					KVPULL_SEGMENT_READ_ONLY, 0,
					&false_one.log));
}

static struct kvpull_region_view region_of(const struct kvpull_shared *memory)
{
	return (struct kvpull_region_view){ .kind = KVPULL_REGION_PROVIDED,
					    .fd = memory->fd,
					    .base = memory->base,
					    .bytes = memory->bytes };
}

void pool_false_open(void)
{
	const struct kvpull_shm_params params = {
		.log = &false_one.log,
		.socket_dir = pool_world->folder,
		.name = "false",
		.peers_max = PEERS_MAX,
		.callers_max = CALLERS_MAX,
		.ring_records = 16,
		.reads_max = 1,
		.connect_ns = 20 * API_NS_PER_MS,
		.file_thread = KVPULL_FILE_THREAD_YES,
	};

	memset(&false_one, 0, sizeof(false_one));
	segment_make(&false_one.chunks, POOL_CHUNKS * POOL_CHUNK_BYTES);
	segment_make(&false_one.guards,
		     POOL_CHUNKS * sizeof(struct kvpull_revocation_entry));
	segment_make(&false_one.directory,
		     ENTRIES * sizeof(struct kvpull_pool_entry));
	false_one.serve = (struct kvpull_serve){
		.regions = { region_of(&false_one.directory),
			     region_of(&false_one.chunks) },
		.region_count = 2,
		.slot_count = POOL_CHUNKS,
		.entries = (void *)false_one.guards.base,
		.entries_fd = false_one.guards.fd,
	};
	false_one.share = (struct kvpull_pool_share){
		.incarnation = INCARNATION,
		.chunk_count = POOL_CHUNKS,
		.entry_count = ENTRIES,
		.secret = { 9 },
	};
	(void)kvpull_serve_number_fds(&false_one.serve);
	kvpull_arena_init(&false_one.arena, &false_one.log);
	api_expect(
		!kvpull_shm_open(&params, &false_one.arena, &false_one.route));
	kvpull_arena_seal(&false_one.arena);
	api_expect(!false_one.route->ops->serve(false_one.route,
						&false_one.serve));
}

void pool_false_close(void)
{
	false_one.route->ops->close(false_one.route, kvpull_clock_close_by());
	kvpull_arena_fini(&false_one.arena);
	kvpull_segment_unmake(&false_one.chunks);
	kvpull_segment_unmake(&false_one.guards);
	kvpull_segment_unmake(&false_one.directory);
}

const char *pool_false_address(void)
{
	return "shm:false";
}

/* ---- its messages ---- */

static void naming_draw(struct kvpull_share_naming *naming,
			struct kvpull_pool_namespace *digest)
{
	const uint32_t weights = (uint32_t)api_below(POOL_WEIGHTS);
	struct kvpull_model model;
	const struct kvpull_reader_naming own = pool_naming_of(&model, weights);
	const struct kvpull_reader_naming pool = { .model = &model,
						   .hash = own.hash,
						   .seed = own.seed,
						   .tp_size = own.tp_size };
	const char *const texts[KVPULL_SHARE_TEXTS] = {
		model.model,  model.revision,  model.weights, model.dtype,
		model.layout, model.attention, model.config,  model.engine,
		own.hash,     own.seed,
	};

	memset(naming, 0, sizeof(*naming));
	naming->tp_size = own.tp_size;
	api_expect(!kvpull_share_naming_texts(naming, texts, NULL));
	api_expect(!kvpull_pool_namespace_make(&pool, digest));
}

/* Any bytes; seldom so long that it does not fit a packet. */
static size_t garbage(void)
{
	const size_t count = 1 + api_below(api_chance(900) ? 64 : 8000);
	size_t at;

	for (at = 0; at < count; at++)
		message[at] = (uint8_t)api_below(256);
	return count;
}

static size_t refusal(void)
{
	static const int32_t codes[] = {
		KVPULL_EAGAIN, KVPULL_ENOMEM,    KVPULL_EPROTO,
		KVPULL_EROUTE, KVPULL_EREJECTED, KVPULL_EVERSION,
		KVPULL_EAUTH,  KVPULL_EFULL,     KVPULL_EPEER,
	};
	struct kvpull_refusal own;

	kvpull_refusal_texts(&own,
			     codes[api_below(sizeof(codes) / sizeof(codes[0]))],
			     "false", "%s%n", "\\");
	return kvpull_handshake_put_refusal(message, sizeof(message), &own);
}

static size_t challenge(uint8_t nonce[KVPULL_NONCE_BYTES])
{
	nonce[0]++;
	return kvpull_handshake_put_challenge(message, sizeof(message), nonce);
}

static size_t hello(const uint8_t nonce[KVPULL_NONCE_BYTES])
{
	struct kvpull_reader_hello own = { .incarnation = 5,
					   .engine_id = "false" };
	struct kvpull_pool_namespace unused;

	naming_draw(&own.naming, &unused);
	return kvpull_share_put_hello(message, sizeof(message), &own, NULL,
				      nonce);
}

static void welcome_change(struct kvpull_share_welcome *own)
{
	struct kvpull_welcome_region *region = &own->regions[api_below(2)];

	switch (api_below(9)) {
	case 0:
		own->chunk_count = api_odd_u32();
		break;
	case 1:
		own->slot_count = api_odd_u32();
		break;
	case 2:
		own->entry_count = api_odd_u32();
		break;
	case 3:
		own->chunk_bytes = (uint64_t)api_odd_u32() << api_below(32);
		break;
	case 4:
		region->bytes = (uint64_t)api_odd_u32() << api_below(32);
		break;
	case 5:
		region->fd_offset = (uint64_t)api_odd_u32() << api_below(32);
		break;
	case 6:
		region->fd_index = api_odd_u32();
		break;
	case 7:
		region->kind = (uint32_t)api_below(6);
		break;
	default:
		own->guards_address = api_odd_u32();
		break;
	}
}

/* 0: what was drawn cannot be written. */
static size_t welcome(const uint8_t nonce[KVPULL_NONCE_BYTES])
{
	struct kvpull_pool_namespace digest;
	struct kvpull_share_naming unused;
	struct kvpull_share_welcome own = {
		.incarnation = INCARNATION,
		.chunk_bytes = POOL_CHUNK_BYTES,
		.guards_address = (uintptr_t)false_one.guards.base,
		.entry_count = ENTRIES,
		.chunk_count = POOL_CHUNKS,
		.region_count = KVPULL_SHARE_REGIONS,
		.engine_id = "false",
	};

	naming_draw(&unused, &digest);
	memcpy(own.namespace_digest, digest.bytes,
	       sizeof(own.namespace_digest));
	memcpy(own.secret, false_one.share.secret, sizeof(own.secret));
	kvpull_welcome_regions_put(own.regions, &false_one.serve);
	/* api_chance() is always true after the end of the draw. */
	while (!api_draw_over() && api_chance(300))
		welcome_change(&own);
	return kvpull_share_put_welcome(message, sizeof(message), &own, NULL,
					nonce);
}

/* A bit of it is another, seldom. */
static size_t damaged(size_t count)
{
	if (count && api_chance(100))
		message[api_below(count)] ^= (uint8_t)(1u << api_below(8));
	if (count > 1 && api_chance(50))
		count -= api_below(count);
	return count;
}

/* ---- the owner ---- */

static void owner_says(uint32_t caller, size_t count)
{
	count = damaged(count);
	if (count)
		(void)!false_one.route->ops->caller_send(
			false_one.route, caller, message, count);
	pool_counts.messages++;
}

static void owner_answers(uint32_t caller)
{
	struct party *party = &false_one.callers[caller];
	struct kvpull_transport *route = false_one.route;
	struct kvpull_ring *ring;
	size_t count;

	switch (api_below(10)) {
	case 0:
		owner_says(caller, refusal());
		break;
	case 1:
		owner_says(caller, garbage());
		break;
	case 2:
		owner_says(caller, challenge(party->nonce));
		break;
	case 3: /* without descriptors */
		owner_says(caller, welcome(party->nonce));
		break;
	case 4:
		route->ops->drop(route, caller);
		break;
	default:
		count = damaged(welcome(party->nonce));
		if (count)
			(void)!route->ops->admit(route, caller, message, count,
						 &ring);
		break;
	}
}

static void owner_event(const struct kvpull_event *event)
{
	struct party *party = &false_one.callers[event->index];
	struct kvpull_reader_hello theirs;

	if (event->kind == KVPULL_EVENT_CALLER_DOWN) {
		false_one.route->ops->forget(false_one.route, event->index);
		memset(party, 0, sizeof(*party));
	} else if (event->kind == KVPULL_EVENT_CALLER_UP) {
		party->is_used = 1;
		if (api_chance(900))
			owner_says(event->index, challenge(party->nonce));
		else
			owner_answers(event->index);
	} else if (event->kind == KVPULL_EVENT_CALLER_MESSAGE) {
		if (!kvpull_share_get_hello(event->data, event->data_bytes,
					    NULL, party->nonce, &theirs))
			memcpy(party->nonce, theirs.nonce,
			       sizeof(party->nonce));
		owner_answers(event->index);
	}
}

/* ---- the caller ---- */

void pool_false_call(struct pool_handle *handle)
{
	char name[KVPULL_ADDRESS_BYTES_MAX];
	uint32_t peer;

	if (!*handle->address ||
	    kvpull_ticket_address(handle->address, "shm", name) ||
	    false_one.route->ops->connect(false_one.route, name, &peer))
		return;
	memset(&false_one.peers[peer], 0, sizeof(false_one.peers[peer]));
	false_one.peers[peer].is_used = 1;
	if (api_chance(100))
		(void)!false_one.route->ops->peer_send(false_one.route, peer,
						       message, garbage());
}

static void caller_says(uint32_t peer)
{
	struct party *party = &false_one.peers[peer];
	size_t count;

	if (!party->is_used)
		return;
	switch (api_below(8)) {
	case 0:
		count = garbage();
		break;
	case 1:
		count = refusal();
		break;
	case 2:
		count = welcome(party->nonce);
		break;
	case 3:
		false_one.route->ops->disconnect(false_one.route, peer);
		return;
	default:
		count = hello(party->nonce);
		break;
	}
	count = damaged(count);
	if (count)
		(void)!false_one.route->ops->peer_send(false_one.route, peer,
						       message, count);
	pool_counts.messages++;
}

static void caller_event(const struct kvpull_event *event)
{
	struct party *party = &false_one.peers[event->index];

	if (event->kind == KVPULL_EVENT_PEER_DOWN) {
		party->is_used = 0;
		return;
	}
	if (!kvpull_handshake_get_challenge(event->data, event->data_bytes,
					    party->nonce) ||
	    api_chance(200))
		caller_says(event->index);
}

/* ---- and their turns ---- */

/* Puts some key to any place, or to none. */
static void forge(void)
{
	const uint64_t number = 1 + api_below(POOL_KEYS);
	struct kvpull_pool_namespace digest;
	struct kvpull_share_naming unused;
	uint64_t words[KVPULL_POOL_WORDS];
	struct kvpull_pool_key key;
	uint32_t entry;

	naming_draw(&unused, &digest);
	api_expect(
		!kvpull_pool_key_make(&digest, &number, sizeof(number), &key));
	memcpy(words, key.words, sizeof(key.words));
	words[4] = api_chance(700) ? api_below(POOL_CHUNKS) : api_odd_u32();
	words[5] = api_chance(900) ? INCARNATION : api_odd_u32();
	words[6] = api_below(3);
	words[7] = kvpull_pool_seal(words, false_one.share.secret);
	entry = kvpull_pool_window(&false_one.share, &key) +
		(uint32_t)api_below(KVPULL_POOL_WINDOW);
	memcpy(false_one.directory.base + (size_t)entry * sizeof(words), words,
	       sizeof(words));
	entry = (uint32_t)api_below(POOL_CHUNKS);
	atomic_store_explicit(&false_one.serve.entries[entry].incarnation,
			      INCARNATION, memory_order_relaxed);
}

void pool_false_turn(struct pool_handle *handle)
{
	struct kvpull_transport *route = false_one.route;
	struct kvpull_event event;
	uint32_t events = 1 + (uint32_t)api_below(8);

	(void)handle;
	if (api_chance(300))
		forge();
	if (api_chance(50)) {
		const uint32_t caller = (uint32_t)api_below(CALLERS_MAX);

		if (false_one.callers[caller].is_used)
			owner_answers(caller);
	}
	if (api_chance(50))
		caller_says((uint32_t)api_below(PEERS_MAX));
	route->ops->disarm(route); /* look at once */
	while (events-- && route->ops->poll(route, api_now_ns(), &event, 1))
		if (event.kind == KVPULL_EVENT_PEER_MESSAGE ||
		    event.kind == KVPULL_EVENT_PEER_DOWN)
			caller_event(&event);
		else if (event.kind != KVPULL_EVENT_NONE)
			owner_event(&event);
}
