/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handle of kvpull_reader_v1(): an owner of shared memory, a reader of
 * others', or both. One thread's: what is begun goes on in _poll().
 *
 * Structs are whole, arrays are of our elements, pointers are there: abi/ sees
 * to that. The calls are as include/kvpull/reader.h tells.
 */
#ifndef KVPULL_PLUGIN_SHARE_SHARE_H
#define KVPULL_PLUGIN_SHARE_SHARE_H

#include "kvpull/reader.h"
#include "plugin/config/config.h"
#include "plugin/counters/counters.h"
#include "plugin/pool/pool.h"

/* The texts of a namespace, with the model's. */
struct kvpull_share_names {
	struct kvpull_model model;
	const char *hash;
	const char *seed;
	uint32_t tp_size;
	uint32_t reserved;
};

struct kvpull_share_setup {
	struct kvpull_log log;
	const struct kvpull_config *config;
	const struct kvpull_share_names *names;
	const char *engine_id;
};

int KVPULL_MUST_CHECK kvpull_share_open(const struct kvpull_share_setup *setup,
					struct kvpull_reader **share,
					struct kvpull_error_detail *detail);
void kvpull_share_close(struct kvpull_reader *share);

/* The owner. */
int KVPULL_MUST_CHECK kvpull_share_begin(
	struct kvpull_reader *share, const struct kvpull_reader_share *params,
	struct kvpull_memory *memory, struct kvpull_error_detail *detail);
int KVPULL_MUST_CHECK kvpull_share_end(struct kvpull_reader *share);
/* NULL: nothing is shared. */
struct kvpull_pool *kvpull_share_pool(struct kvpull_reader *share);
/* NULL: or it is no chunk: slots are the library's own. */
struct kvpull_pool *kvpull_share_pool_of(struct kvpull_reader *share,
					 uint32_t chunk);
/* "" while nothing is shared. */
void kvpull_share_address(const struct kvpull_reader *share,
			  char text[KVPULL_TICKET_ADDRESS_BYTES_MAX]);
/* As the pool's; KVPULL_EINVAL: or nothing is shared. */
int KVPULL_MUST_CHECK kvpull_share_bump(struct kvpull_reader *share,
					const uint32_t *chunks, uint32_t count,
					uint64_t *generations);
int KVPULL_MUST_CHECK kvpull_share_put(struct kvpull_reader *share,
				       const struct kvpull_pool_put *put);
/* names NULL: the namespace stays. */
int KVPULL_MUST_CHECK
kvpull_share_bump_all(struct kvpull_reader *share,
		      const struct kvpull_share_names *names,
		      struct kvpull_error_detail *detail);
int KVPULL_MUST_CHECK kvpull_share_key(const struct kvpull_reader *share,
				       const struct kvpull_reader_key *own,
				       struct kvpull_pool_key *key);
/* show.c */
void kvpull_share_counts_get(const struct kvpull_reader *share,
			     union kvpull_reader_counts *counts);
/* The descriptor, or KVPULL_EDEVICE. */
int kvpull_share_event_fd(struct kvpull_reader *share);

/* The reader. */
int KVPULL_MUST_CHECK kvpull_share_local_add(struct kvpull_reader *share,
					     void *base, uint64_t block_bytes,
					     uint32_t block_count,
					     uint32_t *local);
int KVPULL_MUST_CHECK kvpull_share_peer_add(struct kvpull_reader *share,
					    const char *address,
					    uint32_t *peer);
int KVPULL_MUST_CHECK kvpull_share_peer_remove(struct kvpull_reader *share,
					       uint32_t peer);
int kvpull_share_peers(struct kvpull_reader *share,
		       struct kvpull_reader_peer *peers, uint32_t capacity,
		       size_t peer_bytes);
/* places and codes are the caller's; keys and pieces are copied. */
int KVPULL_MUST_CHECK
kvpull_share_probe(struct kvpull_reader *share,
		   const struct kvpull_reader_probe *probe,
		   const struct kvpull_reader_key keys[KVPULL_READER_ITEMS_MAX],
		   uint64_t *id);
int KVPULL_MUST_CHECK kvpull_share_read(struct kvpull_reader *share,
					const struct kvpull_reader_read *read,
					uint64_t *id);
/* codes are the caller's; puts are copied. */
int KVPULL_MUST_CHECK
kvpull_share_spill(struct kvpull_reader *share,
		   const struct kvpull_reader_spill *spill,
		   const struct kvpull_pool_put puts[KVPULL_READER_ITEMS_MAX],
		   uint64_t *id);
int KVPULL_MUST_CHECK kvpull_share_cancel(struct kvpull_reader *share,
					  uint64_t id);
int KVPULL_MUST_CHECK kvpull_share_poll(struct kvpull_reader *share,
					struct kvpull_reader_record *records,
					uint32_t capacity, size_t record_bytes);

#endif /* KVPULL_PLUGIN_SHARE_SHARE_H */
