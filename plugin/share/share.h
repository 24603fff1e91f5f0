/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handle of kvpull_reader_v1(): an owner of shared memory, a reader of
 * others', or both. One thread's: what is begun goes on in _poll().
 *
 * The calls are those of the table, as include/kvpull/reader.h tells. Each takes
 * structs of any size, and refuses a handle or a pointer that is not there.
 */
#ifndef KVPULL_PLUGIN_SHARE_SHARE_H
#define KVPULL_PLUGIN_SHARE_SHARE_H

#include "kvpull/reader.h"
#include "plugin/config/config.h"

struct kvpull_share_setup {
	struct kvpull_log log;
	const struct kvpull_config *config;
	const struct kvpull_reader_naming *naming; /* the caller's own */
	const char *engine_id;
};

int KVPULL_MUST_CHECK kvpull_share_open(const struct kvpull_share_setup *setup,
					struct kvpull_reader **share,
					struct kvpull_error_detail *detail);
void kvpull_share_close(struct kvpull_reader *share);

/* The owner. */
int kvpull_share_begin(struct kvpull_reader *share,
		       const struct kvpull_reader_share *theirs,
		       struct kvpull_memory *memory,
		       struct kvpull_error_detail *detail);
int kvpull_share_end(struct kvpull_reader *share);
int kvpull_share_address(struct kvpull_reader *share, char *text,
			 size_t capacity, size_t *byte_count);
int kvpull_share_bump(struct kvpull_reader *share, const uint32_t *chunks,
		      uint32_t count, uint64_t *generations);
int kvpull_share_bump_all(struct kvpull_reader *share,
			  const struct kvpull_reader_naming *naming,
			  struct kvpull_error_detail *detail);
int kvpull_share_generation(struct kvpull_reader *share, uint32_t chunk,
			    uint64_t *generation);
int kvpull_share_epoch(struct kvpull_reader *share, uint64_t *epoch);
int kvpull_share_write_begin(struct kvpull_reader *share, uint32_t chunk);
int kvpull_share_write_end(struct kvpull_reader *share, uint32_t chunk);
int kvpull_share_put(struct kvpull_reader *share,
		     const struct kvpull_reader_put *put);
int kvpull_share_spill(struct kvpull_reader *share,
		       const struct kvpull_reader_spill *theirs, uint64_t *id);

/* The reader. */
int kvpull_share_local_add(struct kvpull_reader *share, void *base,
			   uint64_t block_bytes, uint32_t block_count,
			   uint32_t *local);
int kvpull_share_peer_add(struct kvpull_reader *share, const char *address,
			  uint32_t *peer);
int kvpull_share_peer_remove(struct kvpull_reader *share, uint32_t peer);
int kvpull_share_peers(struct kvpull_reader *share,
		       struct kvpull_reader_peer *peers, uint32_t capacity,
		       size_t peer_bytes);
int kvpull_share_probe(struct kvpull_reader *share,
		       const struct kvpull_reader_probe *theirs, uint64_t *id);
int kvpull_share_read(struct kvpull_reader *share,
		      const struct kvpull_reader_read *theirs, uint64_t *id);

/* Calls of the owner and of the reader. */
int kvpull_share_cancel(struct kvpull_reader *share, uint64_t id);
int kvpull_share_poll(struct kvpull_reader *share,
		      struct kvpull_reader_record *records, uint32_t capacity,
		      size_t record_bytes);
int kvpull_share_event_fd(struct kvpull_reader *share);
int kvpull_share_counters(struct kvpull_reader *share,
			  struct kvpull_counter *counters, uint32_t capacity,
			  size_t counter_bytes);

#endif /* KVPULL_PLUGIN_SHARE_SHARE_H */
