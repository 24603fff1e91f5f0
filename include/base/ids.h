/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of block ids as it travels: kept as it came, or as the list that it
 * will be made of. Pure.
 *
 *   u32 ids; unless 0: u8 form, then
 *   LIST   the ids
 *   RUNS   u32 runs, the first id of each, u16 ids of each after its first
 *
 * A list has at most 65,536 ids, so a run does. Ids are u16 where all are below 65,536 (NARROW), else u32. A writer takes the
 * shorter form.
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
};

/* Bytes of a list at most. */
#define KVPULL_IDS_BYTES(count) (5u + 4u * (size_t)(count))

void kvpull_ids_put(struct kvpull_wire_writer *writer,
		    const struct kvpull_ids *ids);
/* The list stays where it is; the reader is bad if it is none of at most max. */
void kvpull_ids_get(struct kvpull_wire_reader *reader, uint32_t max,
		    struct kvpull_ids *ids);
/* Into list[ids->count], of what kvpull_ids_get() took. */
void kvpull_ids_copy(const struct kvpull_ids *ids, uint32_t *list);

/* Ids from `at` on that follow one another; 1 at least. */
static inline uint32_t kvpull_ids_run(const uint32_t *list, uint32_t at,
				      uint32_t count)
{
	uint32_t run = 1;

	while (run < count - at && list[at + run] == (uint64_t)list[at] + run)
		run++;
	return run;
}

#endif /* KVPULL_BASE_IDS_H */
