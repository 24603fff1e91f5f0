/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A read as a sequence of work requests, made on the fly from strips and ids.
 * A slice is one range at the peer and one or more ranges here: neighbours on
 * both sides become one range, neighbours at the peer alone a scatter list.
 * Pure.
 */
#ifndef KVPULL_VERBS_CURSOR_H
#define KVPULL_VERBS_CURSOR_H

#include "verbs/frame.h"

#define KVPULL_SLICE_PARTS_MAX 32u

struct kvpull_cursor {
	uint32_t strip;
	uint32_t id; /* index into the id lists */
	uint32_t row;
	uint32_t reserved;
	uint64_t at; /* bytes of the row that are done */
};

struct kvpull_slice_part {
	uint8_t *local;
	uint64_t bytes;
};

struct kvpull_slice {
	uint32_t region_index; /* the peer's */
	uint32_t part_count;
	uint64_t remote_offset;
	uint64_t bytes;
	struct kvpull_slice_part parts[KVPULL_SLICE_PARTS_MAX];
};

struct kvpull_slice_limits {
	uint64_t bytes_max; /* of a slice */
	uint32_t parts_max; /* 1 .. KVPULL_SLICE_PARTS_MAX */
	uint32_t mr_shift;  /* of MRs here: each part is in one */
	/* The peer's: each slice is in one MR there. */
	const struct kvpull_keys *keys;
};

/* To where so many bytes are before it; 0 begins. No more than the read has. */
void kvpull_cursor_seek(struct kvpull_cursor *cursor,
			const struct kvpull_read *read, uint64_t bytes);
int kvpull_cursor_is_done(const struct kvpull_cursor *cursor,
			  const struct kvpull_read *read);
/* Bytes before it, in the order in which it goes. */
uint64_t kvpull_cursor_tell(const struct kvpull_cursor *cursor,
			    const struct kvpull_read *read);
/* The next slice; there is one: see is_done. */
void kvpull_cursor_next(struct kvpull_cursor *cursor,
			const struct kvpull_read *read,
			const struct kvpull_slice_limits *limits,
			struct kvpull_slice *slice);

#endif /* KVPULL_VERBS_CURSOR_H */
