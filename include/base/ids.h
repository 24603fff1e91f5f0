/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of block ids as it travels: kept as it came, or as the list that it
 * will be made of. Pure.
 *
 *   u32 ids; unless 0: u32 runs, u8 bytes of an id (2, 3 or 4), the first id of
 *   each run; unless all runs are of one, u16 ids of each after its first
 *
 * A list has at most 65,536 ids, so a run does. A writer takes runs of one
 * where that is no longer, and the fewest bytes an id.
 */
#ifndef KVPULL_BASE_IDS_H
#define KVPULL_BASE_IDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "base/wire.h"

struct kvpull_ids {
	const uint32_t *list; /* to write; NULL: the bytes */
	const uint8_t *bytes; /* what came after the count */
	uint32_t byte_count;
	uint32_t count;
	uint32_t runs; /* of those that came, likewise */
	uint32_t id_bytes;
};

/* Bytes of a list at most. */
#define KVPULL_IDS_BYTES(count) (9u + 4u * (size_t)(count))

void kvpull_ids_put(struct kvpull_wire_writer *writer,
		    const struct kvpull_ids *ids);
/* The list stays where it is; the reader is bad if it is none of at most max. */
void kvpull_ids_get(struct kvpull_wire_reader *reader, uint32_t max,
		    struct kvpull_ids *ids);
/*
 * `count` ids from the one at `first` on into list, of what kvpull_ids_get()
 * took: first + count <= ids->count.
 */
void kvpull_ids_copy(const struct kvpull_ids *ids, uint32_t first,
		     uint32_t count, uint32_t *list);
/* 1: all are below the bound. */
int kvpull_ids_are_below(const uint32_t *list, uint32_t count, uint32_t bound);

#endif /* KVPULL_BASE_IDS_H */
