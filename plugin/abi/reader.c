/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader's table. Like the connector's it takes structs of any size,
 * refuses pointers that are not there, and decides nothing.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/params.h"
#include "kvpull/reader.h"
#include "plugin/abi/opening.h"
#include "plugin/share/share.h"

/* Element sizes of arrays in the first version; no caller's are smaller. */
#define KEY_BYTES_FIRST 16u
#define PLACE_BYTES_FIRST 16u
#define PIECE_BYTES_FIRST 16u
#define PUT_BYTES_FIRST 48u
#define RECORD_BYTES_FIRST 24u
#define PEER_BYTES_FIRST 240u

_Static_assert(
	sizeof(struct kvpull_reader_key) == KEY_BYTES_FIRST &&
		sizeof(struct kvpull_reader_place) == PLACE_BYTES_FIRST &&
		sizeof(struct kvpull_reader_piece) == PIECE_BYTES_FIRST &&
		sizeof(struct kvpull_reader_put) == PUT_BYTES_FIRST &&
		sizeof(struct kvpull_reader_record) == RECORD_BYTES_FIRST &&
		sizeof(struct kvpull_reader_peer) == PEER_BYTES_FIRST,
	"this is the first version");

static int names_take(struct kvpull_share_names *own,
		      const struct kvpull_reader_naming *theirs,
		      struct kvpull_error_detail *detail)
{
	struct kvpull_reader_naming naming;
	int code;

	code = kvpull_params_take_named(&naming, sizeof(naming), theirs,
					"naming", detail);
	if (!code)
		code = kvpull_params_take_named(&own->model, sizeof(own->model),
						naming.model, "model", detail);
	if (!code && naming.reserved) {
		kvpull_detail_set(detail, KVPULL_EINVAL, "reserved",
				  "a reserved member is not 0");
		code = KVPULL_EINVAL;
	}
	if (code)
		return code;
	own->hash = naming.hash;
	own->seed = naming.seed;
	own->tp_size = naming.tp_size;
	own->reserved = 0;
	return 0;
}

static int reader_open(const struct kvpull_reader_params *params,
		       struct kvpull_reader **reader,
		       struct kvpull_error_detail *detail)
{
	struct kvpull_share_setup setup = { .log = { 0 } };
	struct kvpull_reader_params own;
	struct kvpull_share_names names;
	struct kvpull_config config;
	struct kvpull_host host;
	int code;

	code = kvpull_params_take_named(&own, sizeof(own), params, "params",
					detail);
	if (!code)
		code = kvpull_opening_host(&host, own.host, reader, detail);
	if (!code)
		code = names_take(&names, own.naming, detail);
	if (!code)
		code = kvpull_opening_config(&config, &setup.log, &host,
					     own.config_json, detail);
	if (code)
		return code;
	setup.config = &config;
	setup.names = &names;
	setup.engine_id = own.engine_id;
	return kvpull_share_open(&setup, reader, detail);
}

static int reader_share(struct kvpull_reader *reader,
			const struct kvpull_reader_share *params,
			struct kvpull_memory *memory,
			struct kvpull_error_detail *detail)
{
	struct kvpull_reader_share own;

	if (!reader || kvpull_params_check_output(memory) ||
	    kvpull_params_take_named(&own, sizeof(own), params, "share",
				     detail))
		return KVPULL_EINVAL;
	return kvpull_share_begin(reader, &own, memory, detail);
}

static int reader_unshare(struct kvpull_reader *reader)
{
	return reader ? kvpull_share_end(reader) : KVPULL_EINVAL;
}

static int reader_address(struct kvpull_reader *reader, char *text,
			  size_t capacity, size_t *byte_count)
{
	char own[KVPULL_TICKET_ADDRESS_BYTES_MAX];

	if (!reader || !byte_count || (!text && capacity))
		return KVPULL_EINVAL;
	kvpull_share_address(reader, own);
	if (!own[0])
		return KVPULL_EINVAL;
	*byte_count = strlen(own) + 1;
	if (capacity < *byte_count)
		return KVPULL_ETOOSMALL;
	memcpy(text, own, *byte_count);
	return 0;
}

/* NULL: no handle, or nothing is shared. */
static struct kvpull_pool *pool_of(struct kvpull_reader *reader)
{
	return reader ? kvpull_share_pool(reader) : NULL;
}

/* NULL: or it is no chunk. */
static struct kvpull_pool *pool_of_chunk(struct kvpull_reader *reader,
					 uint32_t chunk)
{
	return reader ? kvpull_share_pool_of(reader, chunk) : NULL;
}

static int reader_guard_bump(struct kvpull_reader *reader,
			     const uint32_t *chunks, uint32_t count,
			     uint64_t *generations)
{
	if (!reader || (!chunks && count))
		return KVPULL_EINVAL;
	return kvpull_share_bump(reader, chunks, count, generations);
}

static int reader_guard_bump_all(struct kvpull_reader *reader,
				 const struct kvpull_reader_naming *naming,
				 struct kvpull_error_detail *detail)
{
	struct kvpull_share_names names;

	if (!reader || (naming && names_take(&names, naming, detail)))
		return KVPULL_EINVAL;
	return kvpull_share_bump_all(reader, naming ? &names : NULL, detail);
}

static int reader_generation(struct kvpull_reader *reader, uint32_t chunk,
			     uint64_t *generation)
{
	const struct kvpull_pool *pool = pool_of_chunk(reader, chunk);

	if (!pool || !generation)
		return KVPULL_EINVAL;
	*generation = kvpull_pool_generation(pool, chunk);
	return 0;
}

static int reader_epoch(struct kvpull_reader *reader, uint64_t *epoch)
{
	const struct kvpull_pool *pool = pool_of(reader);

	if (!pool || !epoch)
		return KVPULL_EINVAL;
	*epoch = kvpull_pool_epoch(pool);
	return 0;
}

static int reader_write_begin(struct kvpull_reader *reader, uint32_t chunk)
{
	struct kvpull_pool *pool = pool_of_chunk(reader, chunk);

	return pool ? kvpull_pool_write_begin(pool, chunk) : KVPULL_EINVAL;
}

static int reader_write_end(struct kvpull_reader *reader, uint32_t chunk)
{
	struct kvpull_pool *pool = pool_of_chunk(reader, chunk);

	return pool ? kvpull_pool_write_end(pool, chunk) : KVPULL_EINVAL;
}

static int put_take(const struct kvpull_reader *reader,
		    const struct kvpull_reader_put *put,
		    struct kvpull_pool_put *listed)
{
	struct kvpull_reader_put own;

	if (kvpull_params_take(&own, sizeof(own), put) || own.reserved ||
	    kvpull_share_key(reader, &own.key, &listed->key))
		return KVPULL_EINVAL;
	listed->place = own.chunk;
	listed->reserved = 0;
	listed->generation = own.generation;
	listed->epoch = own.epoch;
	return 0;
}

static int reader_put(struct kvpull_reader *reader,
		      const struct kvpull_reader_put *put)
{
	struct kvpull_pool_put listed;

	if (!reader || put_take(reader, put, &listed))
		return KVPULL_EINVAL;
	return kvpull_share_put(reader, &listed);
}

static int reader_spill(struct kvpull_reader *reader,
			const struct kvpull_reader_spill *spill, uint64_t *id)
{
	struct kvpull_pool_put listed[KVPULL_READER_ITEMS_MAX];
	struct kvpull_reader_spill own;
	const uint8_t *from;
	uint32_t at;

	if (!reader || !id || kvpull_params_take(&own, sizeof(own), spill) ||
	    !own.puts || !own.codes || own.reserved || !own.put_count ||
	    own.put_count > KVPULL_READER_ITEMS_MAX ||
	    kvpull_element_check(own.put_bytes, PUT_BYTES_FIRST))
		return KVPULL_EINVAL;
	from = (const uint8_t *)own.puts;
	for (at = 0; at < own.put_count; at++, from += own.put_bytes) {
		/* Aligned as the caller's own type is: a multiple of 8. */
		const struct kvpull_reader_put *put = (const void *)from;

		if (put->struct_size != own.put_bytes ||
		    put_take(reader, put, &listed[at]))
			return KVPULL_EINVAL;
	}
	return kvpull_share_spill(reader, &own, listed, id);
}

static int reader_local_add(struct kvpull_reader *reader, void *base,
			    uint64_t block_bytes, uint32_t block_count,
			    uint32_t *local)
{
	if (!reader || !local)
		return KVPULL_EINVAL;
	return kvpull_share_local_add(reader, base, block_bytes, block_count,
				      local);
}

static int reader_peer_add(struct kvpull_reader *reader, const char *address,
			   uint32_t *peer)
{
	return reader && address && peer ?
		       kvpull_share_peer_add(reader, address, peer) :
		       KVPULL_EINVAL;
}

static int reader_peer_remove(struct kvpull_reader *reader, uint32_t peer)
{
	return reader ? kvpull_share_peer_remove(reader, peer) : KVPULL_EINVAL;
}

static int reader_peers(struct kvpull_reader *reader,
			struct kvpull_reader_peer *peers, uint32_t capacity,
			size_t peer_bytes)
{
	if (!reader || (!peers && capacity) ||
	    kvpull_element_check(peer_bytes, PEER_BYTES_FIRST))
		return KVPULL_EINVAL;
	return kvpull_share_peers(reader, peers, capacity, peer_bytes);
}

static int reader_probe(struct kvpull_reader *reader,
			const struct kvpull_reader_probe *probe, uint64_t *id)
{
	struct kvpull_reader_key keys[KVPULL_READER_ITEMS_MAX];
	struct kvpull_reader_probe own;

	if (!reader || !id || kvpull_params_take(&own, sizeof(own), probe) ||
	    !own.keys || !own.places || !own.key_count ||
	    own.key_count > KVPULL_READER_ITEMS_MAX ||
	    kvpull_element_check(own.place_bytes, PLACE_BYTES_FIRST) ||
	    kvpull_elements_take(keys, sizeof(*keys), own.key_count, own.keys,
				 own.key_bytes, KEY_BYTES_FIRST))
		return KVPULL_EINVAL;
	return kvpull_share_probe(reader, &own, keys, id);
}

static int reader_read(struct kvpull_reader *reader,
		       const struct kvpull_reader_read *read, uint64_t *id)
{
	struct kvpull_reader_piece pieces[KVPULL_READER_ITEMS_MAX];
	struct kvpull_reader_read own;

	if (!reader || !id || kvpull_params_take(&own, sizeof(own), read) ||
	    !own.pieces || !own.codes || own.reserved || !own.piece_count ||
	    own.piece_count > KVPULL_READER_ITEMS_MAX ||
	    kvpull_elements_take(pieces, sizeof(*pieces), own.piece_count,
				 own.pieces, own.piece_bytes,
				 PIECE_BYTES_FIRST))
		return KVPULL_EINVAL;
	own.pieces = pieces;
	return kvpull_share_read(reader, &own, id);
}

static int reader_cancel(struct kvpull_reader *reader, uint64_t id)
{
	return reader ? kvpull_share_cancel(reader, id) : KVPULL_EINVAL;
}

static int reader_poll(struct kvpull_reader *reader,
		       struct kvpull_reader_record *records, uint32_t capacity,
		       size_t record_bytes)
{
	if (!reader || (!records && capacity) ||
	    kvpull_element_check(record_bytes, RECORD_BYTES_FIRST))
		return KVPULL_EINVAL;
	return kvpull_share_poll(reader, records, capacity, record_bytes);
}

static int reader_event_fd(struct kvpull_reader *reader)
{
	return reader ? kvpull_share_event_fd(reader) : KVPULL_EINVAL;
}

static int reader_counters(struct kvpull_reader *reader,
			   struct kvpull_counter *counters, uint32_t capacity,
			   size_t counter_bytes)
{
	union kvpull_reader_counts counts;

	if (reader)
		kvpull_share_counts_get(reader, &counts);
	return kvpull_counters_list(&kvpull_reader_counters,
				    reader ? counts.values : NULL, counters,
				    capacity, counter_bytes);
}

static const struct kvpull_reader_ops reader_ops = {
	.struct_size = sizeof(reader_ops),
	.abi_major = KVPULL_READER_ABI_MAJOR,
	.abi_minor = KVPULL_READER_ABI_MINOR,
	.version = KVPULL_VERSION,
	.error_text = kvpull_error_text,
	.open = reader_open,
	.close = kvpull_share_close,
	.share = reader_share,
	.unshare = reader_unshare,
	.address = reader_address,
	.guard_bump = reader_guard_bump,
	.guard_bump_all = reader_guard_bump_all,
	.generation = reader_generation,
	.epoch = reader_epoch,
	.write_begin = reader_write_begin,
	.write_end = reader_write_end,
	.put = reader_put,
	.spill = reader_spill,
	.local_add = reader_local_add,
	.peer_add = reader_peer_add,
	.peer_remove = reader_peer_remove,
	.peers = reader_peers,
	.probe = reader_probe,
	.read = reader_read,
	.cancel = reader_cancel,
	.poll = reader_poll,
	.event_fd = reader_event_fd,
	.counters = reader_counters,
};

__attribute__((visibility("default"))) const struct kvpull_reader_ops *
kvpull_reader_v1(void)
{
	return &reader_ops;
}
