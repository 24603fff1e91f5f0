/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes and reads of an engine: its keys are hashed, and what ended is written
 * into its own arrays, which are there until then.
 */
#include "base/params.h"
#include "plugin/share/share_state.h"

/* Element sizes of arrays in the first version; no caller's are smaller. */
#define KEY_BYTES_FIRST 16u
#define PLACE_BYTES_FIRST 16u
#define PIECE_BYTES_FIRST 16u
#define PUT_BYTES_FIRST 48u

_Static_assert(sizeof(struct kvpull_reader_key) == KEY_BYTES_FIRST &&
		       sizeof(struct kvpull_reader_place) ==
			       PLACE_BYTES_FIRST &&
		       sizeof(struct kvpull_reader_piece) ==
			       PIECE_BYTES_FIRST &&
		       sizeof(struct kvpull_reader_put) == PUT_BYTES_FIRST,
	       "this is the first version");

static int put_take(const struct kvpull_reader *share,
		    const struct kvpull_reader_put *put,
		    struct kvpull_pool_put *listed)
{
	struct kvpull_reader_put own;

	if (kvpull_params_take(&own, sizeof(own), put) || own.reserved ||
	    !own.key.bytes ||
	    kvpull_pool_key_make(&share->namespace_digest, own.key.bytes,
				 own.key.byte_count, &listed->key))
		return KVPULL_EINVAL;
	listed->place = own.chunk;
	listed->reserved = 0;
	listed->generation = own.generation;
	listed->epoch = own.epoch;
	return 0;
}

int kvpull_share_put(struct kvpull_reader *share,
		     const struct kvpull_reader_put *put)
{
	struct kvpull_pool_put listed;
	struct kvpull_pool *pool;
	int code;

	if (!share || put_take(share, put, &listed))
		return KVPULL_EINVAL;
	pool = kvpull_share_pool_of(share, listed.place);
	code = pool ? kvpull_pool_put(pool, &listed) : KVPULL_EINVAL;
	share->counts.puts += !code;
	share->counts.puts_stale += code == KVPULL_ESTALE;
	share->counts.puts_full += code == KVPULL_EFULL;
	return code;
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

int kvpull_share_probe(struct kvpull_reader *share,
		       const struct kvpull_reader_probe *theirs, uint64_t *id)
{
	struct kvpull_reader_key keys[KVPULL_READER_ITEMS_MAX];
	struct kvpull_pool_key hashed[KVPULL_READER_ITEMS_MAX];
	struct kvpull_share_reader_probe params = { .keys = hashed };
	const struct kvpull_reader_peer *shown;
	struct kvpull_reader_probe own;
	int code;

	if (!share || !id || kvpull_params_take(&own, sizeof(own), theirs) ||
	    !own.keys || !own.places || !own.key_count ||
	    own.key_count > KVPULL_READER_ITEMS_MAX ||
	    kvpull_element_check(own.place_bytes, PLACE_BYTES_FIRST) ||
	    kvpull_elements_take(keys, sizeof(*keys), own.key_count, own.keys,
				 own.key_bytes, KEY_BYTES_FIRST))
		return KVPULL_EINVAL;
	params.key_count = own.key_count;
	params.deadline_ns = deadline_of(share, own.deadline_ns, 0);
	code = kvpull_share_link_find(share, own.peer, &params.peer);
	if (!code)
		code = kvpull_pool_keys_make(&share->namespace_digest, keys,
					     own.key_count, hashed);
	if (!code)
		code = kvpull_share_reader_probe(share->reader, &params, id);
	if (code)
		return code;
	shown = &share->links[own.peer].shown;
	ask_begun(share, *id,
		  &(struct kvpull_share_ask){
			  .places = own.places,
			  .place_bytes = own.place_bytes,
			  .place_end = shown->chunk_count + shown->slot_count,
		  });
	return 0;
}

int kvpull_share_read(struct kvpull_reader *share,
		      const struct kvpull_reader_read *theirs, uint64_t *id)
{
	struct kvpull_reader_piece pieces[KVPULL_READER_ITEMS_MAX];
	struct kvpull_reader_read own;
	uint64_t begun_ns;
	uint32_t peer;
	int code;

	if (!share || !id || kvpull_params_take(&own, sizeof(own), theirs) ||
	    !own.pieces || !own.codes || own.reserved || !own.piece_count ||
	    own.piece_count > KVPULL_READER_ITEMS_MAX ||
	    kvpull_elements_take(pieces, sizeof(*pieces), own.piece_count,
				 own.pieces, own.piece_bytes,
				 PIECE_BYTES_FIRST))
		return KVPULL_EINVAL;
	begun_ns = kvpull_share_show_clock(share);
	own.pieces = pieces;
	own.deadline_ns = deadline_of(share, own.deadline_ns, begun_ns);
	peer = own.peer;
	code = kvpull_share_link_find(share, peer, &own.peer);
	if (!code)
		code = kvpull_share_reader_read(share->reader, &own, id);
	if (code)
		return code;
	ask_begun(share, *id,
		  &(struct kvpull_share_ask){
			  .codes = own.codes,
			  .peer = peer,
			  .begun_ns = begun_ns,
			  .chunk_bytes = share->links[peer].shown.chunk_bytes,
		  });
	return 0;
}

int kvpull_share_spill(struct kvpull_reader *share,
		       const struct kvpull_reader_spill *theirs, uint64_t *id)
{
	struct kvpull_pool_put listed[KVPULL_READER_ITEMS_MAX];
	struct kvpull_reader_spill own;
	const uint8_t *from;
	uint32_t at;
	int code;

	if (!share || !id || kvpull_params_take(&own, sizeof(own), theirs) ||
	    !own.puts || !own.codes || own.reserved || !own.put_count ||
	    own.put_count > KVPULL_READER_ITEMS_MAX ||
	    kvpull_element_check(own.put_bytes, PUT_BYTES_FIRST))
		return KVPULL_EINVAL;
	from = (const uint8_t *)own.puts;
	for (at = 0; at < own.put_count; at++, from += own.put_bytes) {
		/* Aligned as the caller's own type is: a multiple of 8. */
		const struct kvpull_reader_put *put = (const void *)from;

		if (put->struct_size != own.put_bytes ||
		    put_take(share, put, &listed[at]))
			return KVPULL_EINVAL;
	}
	if (!kvpull_share_pool(share))
		return KVPULL_EINVAL;
	code = kvpull_share_spill_begin(
		&share->spills, listed, own.put_count, own.codes,
		deadline_of(share, own.deadline_ns, 0), id);
	if (!code)
		kvpull_share_wake(share);
	return code;
}

int kvpull_share_cancel(struct kvpull_reader *share, uint64_t id)
{
	const int code = !share ?
				 KVPULL_EINVAL :
			 (uint32_t)id < KVPULL_SHARE_SPILL_ID_FIRST ?
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
