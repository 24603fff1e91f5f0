/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner's file of slots: chunks are copied into it, and listed there when
 * all of a copy was written and its chunk was not bumped meanwhile.
 *
 * Slots are taken in turn, the oldest first; one whose write has not ended is
 * passed by. A spill that is late is told, and its slots stay quarantined until
 * the disk has answered. All memory is taken at open.
 */
#ifndef KVPULL_PLUGIN_SHARE_SPILL_H
#define KVPULL_PLUGIN_SHARE_SPILL_H

#include "base/arena.h"
#include "base/index.h"
#include "kvpull/reader.h"
#include "plugin/pool/pool.h"
#include "shm/slots.h"

#define KVPULL_SHARE_SPILLS_MAX KVPULL_READER_SPILLS_MAX

/* Ids of spills follow those of probes and reads. */
#define KVPULL_SHARE_SPILL_ID_FIRST KVPULL_READER_OPEN_MAX

struct kvpull_share_spill; /* spill.c */

/* Zeroed: no file. */
struct kvpull_share_spills {
	struct kvpull_slots file;
	struct kvpull_pool *pool;
	const uint8_t *chunks;
	uint64_t chunk_bytes;
	uint32_t slot_first; /* place of the first slot */
	uint32_t slot_count;
	uint32_t slot_next;
	uint32_t serial;
	struct kvpull_share_spill *spills; /* [KVPULL_SHARE_SPILLS_MAX] */
	struct kvpull_index_pool free;
	struct kvpull_index_list begun;
	struct kvpull_index_list ended;
	uint64_t written; /* chunks; counters */
	uint64_t failed;
};

struct kvpull_share_spill_end {
	uint64_t id;
	int32_t code; /* the first of its codes, or 0 */
	uint32_t count;
};

/* The file is open, the rest but the tables is set. -1: the arena is too small. */
int KVPULL_MUST_CHECK
kvpull_share_spills_open(struct kvpull_share_spills *spills,
			 struct kvpull_arena *arena);
/* No end of a spill comes any more. Return: as kvpull_slots_close(). */
uint32_t kvpull_share_spills_close(struct kvpull_share_spills *spills,
				   uint64_t close_by_ns);

/* puts: of chunks; copied. codes: until its end. KVPULL_EFULL, KVPULL_EINVAL. */
int KVPULL_MUST_CHECK
kvpull_share_spill_begin(struct kvpull_share_spills *spills,
			 const struct kvpull_pool_put *puts, uint32_t count,
			 int32_t *codes, uint64_t deadline_ns, uint64_t *id);
/*
 * Cancels; the end still comes. KVPULL_EINVAL: no such spill, or it has ended.
 */
int KVPULL_MUST_CHECK
kvpull_share_spill_cancel(struct kvpull_share_spills *spills, uint64_t id);
/* Cancels all spills, at the end of the share. */
void kvpull_share_spills_cancel(struct kvpull_share_spills *spills);

/* Return: 1: there was something to do. */
uint32_t kvpull_share_spills_run(struct kvpull_share_spills *spills,
				 uint64_t now_ns);
uint64_t kvpull_share_spills_due_ns(const struct kvpull_share_spills *spills);
/* Before a sleep: 1: there is something to do, or to tell. */
int kvpull_share_spills_arm(struct kvpull_share_spills *spills);
/* Return: 1: *end is the oldest one that was not told. */
int kvpull_share_spills_end(struct kvpull_share_spills *spills,
			    struct kvpull_share_spill_end *end);

#endif /* KVPULL_PLUGIN_SHARE_SPILL_H */
