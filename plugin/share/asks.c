/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes and reads of an engine: its keys are hashed, and what ended is written
 * into its own arrays, which are there until then.
 */
#include "base/params.h"
#include "plugin/share/share_state.h"

int kvpull_share_key(const struct kvpull_reader *share,
		     const struct kvpull_reader_key *own,
		     struct kvpull_pool_key *key)
{
	return own->bytes ?
		       kvpull_pool_key_make(&share->namespace_digest,
					    own->bytes, own->byte_count, key) :
		       KVPULL_EINVAL;
}

static uint64_t deadline_of(const struct kvpull_reader *share,
			    uint64_t deadline_ns)
{
	const uint64_t ms = share->config.deadline_ms ?
				    share->config.deadline_ms :
				    share->config.lease_ms;

	return deadline_ns ? deadline_ns :
			     kvpull_clock_ns() + ms * KVPULL_NS_PER_MS;
}

int kvpull_share_probe(
	struct kvpull_reader *share, const struct kvpull_reader_probe *probe,
	const struct kvpull_reader_key keys[KVPULL_READER_ITEMS_MAX],
	uint64_t *id)
{
	struct kvpull_pool_key own[KVPULL_READER_ITEMS_MAX];
	struct kvpull_share_reader_probe params = {
		.key_count = probe->key_count,
		.keys = own,
		.deadline_ns = deadline_of(share, probe->deadline_ns),
	};
	uint32_t at;
	int code;

	code = kvpull_share_link_find(share, probe->peer, &params.peer);
	for (at = 0; !code && at < probe->key_count; at++)
		code = kvpull_share_key(share, &keys[at], &own[at]);
	if (!code)
		code = kvpull_share_reader_probe(share->reader, &params, id);
	if (!code)
		share->asks[(uint32_t)*id] = (struct kvpull_share_ask){
			.places = probe->places,
			.place_bytes = probe->place_bytes,
		};
	return code;
}

int kvpull_share_read(
	struct kvpull_reader *share, const struct kvpull_reader_read *read,
	const struct kvpull_reader_piece pieces[KVPULL_READER_ITEMS_MAX],
	uint64_t *id)
{
	struct kvpull_share_reader_piece own[KVPULL_READER_ITEMS_MAX];
	struct kvpull_share_reader_read params = {
		.local = read->local,
		.piece_count = read->piece_count,
		.pieces = own,
		.incarnation = read->incarnation,
		.deadline_ns = deadline_of(share, read->deadline_ns),
	};
	uint32_t at;
	int code;

	code = kvpull_share_link_find(share, read->peer, &params.peer);
	if (code)
		return code;
	for (at = 0; at < read->piece_count; at++)
		own[at] = (struct kvpull_share_reader_piece){
			.place = pieces[at].chunk,
			.destination = pieces[at].block,
			.generation = pieces[at].generation,
		};
	code = kvpull_share_reader_read(share->reader, &params, id);
	if (!code)
		share->asks[(uint32_t)*id] =
			(struct kvpull_share_ask){ .codes = read->codes };
	return code;
}

int kvpull_share_cancel(struct kvpull_reader *share, uint64_t id)
{
	return kvpull_share_reader_cancel(share->reader, id);
}

/* Return: keys that were found. */
static uint32_t places_give(const struct kvpull_share_ask *ask,
			    const struct kvpull_share_reader_end *end)
{
	uint8_t *to = (uint8_t *)ask->places;
	uint32_t found = 0;
	uint32_t at;

	for (at = 0; at < end->count; at++, to += ask->place_bytes) {
		struct kvpull_reader_place place = {
			.chunk = KVPULL_READER_NONE
		};

		if (!end->code) {
			place.chunk = end->found[at].memory.index;
			place.generation = end->found[at].memory.generation;
		}
		found += place.chunk != KVPULL_READER_NONE;
		kvpull_element_give(to, ask->place_bytes, &place,
				    sizeof(place));
	}
	return found;
}

static uint32_t codes_give(const struct kvpull_share_ask *ask,
			   const struct kvpull_share_reader_end *end)
{
	uint32_t good = 0;
	uint32_t at;

	for (at = 0; at < end->count; at++) {
		ask->codes[at] = end->codes[at];
		good += !end->codes[at];
	}
	return good;
}

uint32_t kvpull_share_ends(struct kvpull_reader *share,
			   struct kvpull_reader_record *records,
			   uint32_t capacity, size_t record_bytes)
{
	uint8_t *to = (uint8_t *)records;
	struct kvpull_share_reader_end end;
	uint32_t count;

	for (count = 0;
	     count < capacity && kvpull_share_reader_end(share->reader, &end);
	     count++, to += record_bytes) {
		const struct kvpull_share_ask *ask =
			&share->asks[(uint32_t)end.id];
		const struct kvpull_reader_record record = {
			.id = end.id,
			.incarnation = end.incarnation,
			.code = end.code,
			.count = ask->places ? places_give(ask, &end) :
					       codes_give(ask, &end),
		};

		kvpull_element_give(to, record_bytes, &record, sizeof(record));
	}
	return count;
}
