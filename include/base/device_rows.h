/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a job's next slice, as one call of the device's table takes them:
 * pieces for copy(), or strips of rows for gather(). Here is where each row is
 * held against the memory that it is read from, which a peer has claimed.
 */
#ifndef KVPULL_DEVICE_ROWS_H
#define KVPULL_DEVICE_ROWS_H

#include "base/device_job.h"
#include "base/rows.h"

struct kvpull_device_mapping {
	struct kvpull_device_memory memory; /* of an order: what is claimed */
	uint8_t uuid[KVPULL_DEVICE_UUID_BYTES]; /* of its device, as claimed */
	int32_t fd;     /* of an import, until it is made */
	int32_t code;   /* of the import; jobs of the mapping end with it */
	uint32_t users; /* jobs that were taken, and have not ended */
	uint32_t is_leaving; /* is unmapped when these have ended */
};

struct kvpull_device_rows {
	struct kvpull_device_pieces pieces;
	struct kvpull_device_strip *strips; /* [KVPULL_DEVICE_STRIPS_MAX] */
	const struct kvpull_device_mapping *mappings;
	uint64_t bytes;       /* of what was taken */
	uint32_t strip_count; /* 0: these are pieces, if any */
};

/* 0, KVPULL_ENOMEM. */
int KVPULL_MUST_CHECK
kvpull_device_rows_init(struct kvpull_device_rows *rows,
			const struct kvpull_device_mapping *mappings,
			struct kvpull_arena *arena);

/* 1: all rows of the job can be gathered: its mappings are there (pure). */
uint32_t kvpull_device_rows_can_gather(const struct kvpull_device_rows *rows,
				       const struct kvpull_device_job *job);

/*
 * Take the job's next rows from the cursor on, of byte_max bytes at most, which
 * are at least KVPULL_DEVICE_SLICE_BYTES_MIN: as strips, if it gathers. 0;
 * rows->bytes is 0 if none is left. KVPULL_EPROTO: a row is not mapped.
 */
int KVPULL_MUST_CHECK kvpull_device_rows_take(
	struct kvpull_device_rows *rows, const struct kvpull_device_job *job,
	struct kvpull_rows_cursor *cursor, uint32_t gathers, uint64_t byte_max);

/* Are there rows behind the cursor (pure)? */
int kvpull_device_rows_left(const struct kvpull_device_job *job,
			    const struct kvpull_rows_cursor *cursor);

#endif /* KVPULL_DEVICE_ROWS_H */
