/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A read cut into shares, without any list: share s is computed from its number
 * when a worker takes it. Pure: the only memory it touches is the read's.
 */
#ifndef KVPULL_SHM_COPY_PLAN_H
#define KVPULL_SHM_COPY_PLAN_H

#include <stdint.h>

#include "base/transport.h"
#include "shm/copy_kernels.h"

#define KVPULL_COPY_SHARE_BYTES_MIN 262144u
#define KVPULL_COPY_SHARE_BYTES_MAX 1048576u

/* Span sizes that may want different routines. */
enum kvpull_copy_class {
	KVPULL_COPY_1K = 0, /* up to 1 KiB */
	KVPULL_COPY_4K,     /* up to 4 KiB */
	KVPULL_COPY_16K,    /* up to 16 KiB */
	KVPULL_COPY_64K,    /* up to 64 KiB */
	KVPULL_COPY_LONG,   /* above */
	KVPULL_COPY_CLASSES
};

struct kvpull_copy_choices {
	const struct kvpull_copy_routine *routines[KVPULL_COPY_CLASSES];
};

/* Sets one routine for all sizes. */
static inline void
kvpull_copy_choices_set(struct kvpull_copy_choices *choices,
			const struct kvpull_copy_routine *routine)
{
	uint32_t class;

	for (class = 0; class < KVPULL_COPY_CLASSES; class ++)
		choices->routines[class] = routine;
}

/* A job: one read, with its remote regions resolved to addresses here. */
struct kvpull_copy_job {
	const struct kvpull_read *read;
	const uint8_t *const *regions; /* by region_index: the peer's */
	int32_t code;                  /* out: 0 or KVPULL_EABORTED */
};

struct kvpull_copy_plan {
	const struct kvpull_read *read;
	const uint8_t *const *regions;
	struct kvpull_copy_choices choices;
	uint64_t serial; /* tells plans apart for cursors; never 0 */
	uint32_t share_count;
	uint32_t share_bytes; /* a power of two */
	uint32_t tail_first;  /* shares from here on are shorter */
	uint32_t tail_bytes;
	uint32_t is_short; /* no share has more than a poll may copy */
};

/* Where a worker's last share ended; zeroed: nowhere. */
struct kvpull_copy_cursor {
	uint64_t serial;
	uint64_t strip_start;
	uint32_t strip_index;
};

void kvpull_copy_plan_init(struct kvpull_copy_plan *plan,
			   const struct kvpull_copy_job *job,
			   const struct kvpull_copy_choices *choices,
			   uint64_t serial);

/* Copy share 0 .. share_count - 1. Any thread, each share once. */
void kvpull_copy_share(const struct kvpull_copy_plan *plan,
		       uint32_t share_index, struct kvpull_copy_cursor *cursor);

#endif /* KVPULL_SHM_COPY_PLAN_H */
