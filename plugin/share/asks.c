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

/* now_ns: 0: it was not asked for yet. */
static uint64_t deadline_of(const struct kvpull_reader *share,
			    uint64_t deadline_ns, uint64_t now_ns)
{
	const uint64_t ms = share->config.deadline_ms ?
				    share->config.deadline_ms :
				    share->config.lease_ms;

	return deadline_ns ? deadline_ns :
			     (now_ns ? now_ns : kvpull_clock_ns()) +
				     ms * KVPULL_NS_PER_MS;
}

static void ask_begun(struct kvpull_reader *share, uint64_t id,
		      const struct kvpull_share_ask *ask)
{
	share->asks[(uint32_t)id] = *ask;
	share->counts.asks_live++;
	kvpull_share_show_asked(share);
	kvpull_share_wake(share);
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
		.deadline_ns = deadline_of(share, probe->deadline_ns, 0),
	};
	int code;

	code = kvpull_share_link_find(share, probe->peer, &params.peer);
	if (!code)
		code = kvpull_pool_keys_make(&share->namespace_digest, keys,
					     probe->key_count, own);
	if (!code)
		code = kvpull_share_reader_probe(share->reader, &params, id);
	if (!code)
		ask_begun(share, *id,
			  &(struct kvpull_share_ask){
				  .places = probe->places,
				  .place_bytes = probe->place_bytes,
				  .place_end = share->links[probe->peer]
						       .shown.chunk_count +
					       share->links[probe->peer]
						       .shown.slot_count,
			  });
	return code;
}

int kvpull_share_read(struct kvpull_reader *share,
		      const struct kvpull_reader_read *read, uint64_t *id)
{
	const uint64_t begun_ns = kvpull_share_show_clock(share);
	struct kvpull_reader_read own = *read;
	int code = kvpull_share_link_find(share, read->peer, &own.peer);

	own.deadline_ns = deadline_of(share, read->deadline_ns, begun_ns);
	if (!code)
		code = kvpull_share_reader_read(share->reader, &own, id);
	if (!code)
		ask_begun(share, *id,
			  &(struct kvpull_share_ask){
				  .codes = read->codes,
				  .peer = read->peer,
				  .begun_ns = begun_ns,
				  .chunk_bytes = share->links[read->peer]
							 .shown.chunk_bytes,
			  });
	return code;
}

int kvpull_share_spill(
	struct kvpull_reader *share, const struct kvpull_reader_spill *spill,
	const struct kvpull_pool_put puts[KVPULL_READER_ITEMS_MAX],
	uint64_t *id)
{
	const int code =
		share->pool && !share->is_ended ?
			kvpull_share_spill_begin(
				&share->spills, puts, spill->put_count,
				spill->codes,
				deadline_of(share, spill->deadline_ns, 0), id) :
			KVPULL_EINVAL;

	if (!code)
		kvpull_share_wake(share);
	return code;
}

int kvpull_share_cancel(struct kvpull_reader *share, uint64_t id)
{
	const int code = (uint32_t)id < KVPULL_SHARE_SPILL_ID_FIRST ?
				 kvpull_share_reader_cancel(share->reader, id) :
				 kvpull_share_spill_cancel(&share->spills, id);

	if (!code)
		kvpull_share_wake(share);
	return code;
}

/* Memory before the file: it is faster, and read from everywhere. */
static void place_fill(const struct kvpull_pool_found *found,
		       uint32_t place_end, struct kvpull_reader_place *place)
{
	const struct kvpull_pool_place *best = &found->memory;

	if (best->index == KVPULL_NONE)
		best = &found->file;
	place->in_file = best->index != KVPULL_NONE && best == &found->file;
	if (best->index >= place_end)
		return;
	place->chunk = best->index;
	place->generation = best->generation;
}

/* Return: keys that were found. */
static uint32_t places_give(struct kvpull_reader *share,
			    const struct kvpull_share_ask *ask,
			    const struct kvpull_share_reader_end *end)
{
	uint8_t *to = (uint8_t *)ask->places;
	uint32_t found = 0;
	uint32_t at;

	for (at = 0; at < end->count; at++, to += ask->place_bytes) {
		struct kvpull_reader_place place = {
			.chunk = KVPULL_READER_NONE
		};

		if (!end->code)
			place_fill(&end->found[at], ask->place_end, &place);
		found += place.chunk != KVPULL_READER_NONE;
		kvpull_element_give(to, ask->place_bytes, &place,
				    sizeof(place));
	}
	share->counts.probes++;
	share->counts.probes_failed += end->code != 0;
	share->counts.keys_found += found;
	share->counts.keys_missed += end->code ? 0 : end->count - found;
	return found;
}

static uint32_t codes_give(struct kvpull_reader *share,
			   const struct kvpull_share_ask *ask,
			   const struct kvpull_share_reader_end *end)
{
	uint32_t good = 0;
	uint32_t stale = 0;
	uint32_t at;

	for (at = 0; at < end->count; at++) {
		ask->codes[at] = end->codes[at];
		good += !end->codes[at];
		stale += end->codes[at] == KVPULL_ESTALE;
	}
	share->counts.reads++;
	share->counts.pieces_good += good;
	share->counts.pieces_stale += stale;
	share->counts.pieces_failed += end->count - good - stale;
	share->counts.bytes_read += good * ask->chunk_bytes;
	kvpull_share_show_read(share, ask, end, good * ask->chunk_bytes);
	return good;
}

uint32_t kvpull_share_ends(struct kvpull_reader *share,
			   struct kvpull_reader_record *records,
			   uint32_t capacity, size_t record_bytes)
{
	uint8_t *to = (uint8_t *)records;
	struct kvpull_share_spill_end spilled;
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
			.count = ask->places ? places_give(share, ask, &end) :
					       codes_give(share, ask, &end),
		};

		share->counts.asks_live--;

		kvpull_element_give(to, record_bytes, &record, sizeof(record));
	}
	for (; count < capacity &&
	       kvpull_share_spills_end(&share->spills, &spilled);
	     count++, to += record_bytes) {
		const struct kvpull_reader_record record = {
			.id = spilled.id,
			.incarnation = share->incarnation,
			.code = spilled.code,
			.count = spilled.count,
		};

		kvpull_element_give(to, record_bytes, &record, sizeof(record));
	}
	return count;
}
