/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows are gathered into vectors of up to BATCH_MAX pieces, neighbours merged,
 * one system call a vector. A short count is a failed read: the kernel stops
 * at the first range that is not there.
 */
#include "shm/foreign.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

/* Half of IOV_MAX: 16 KiB of stack; more did not make a read faster. */
#define BATCH_MAX 512u

struct piece {
	const struct kvpull_strip *strip;
	uint64_t remote_offset; /* in the region */
	uint8_t *local;
	uint64_t bytes;
};

struct batch {
	struct iovec here[BATCH_MAX];
	struct iovec there[BATCH_MAX];
	uint32_t count;
	uint64_t bytes;
};

static uint32_t strip_block_count(const struct kvpull_read *read,
				  const struct kvpull_strip *strip)
{
	return read->group_first[strip->group_index + 1] -
	       read->group_first[strip->group_index];
}

static void cursor_advance(struct kvpull_foreign_cursor *cursor,
			   const struct piece *piece, uint32_t block_count)
{
	cursor->row_bytes_done += piece->bytes;
	if (cursor->row_bytes_done < piece->strip->row_bytes)
		return;
	cursor->row_bytes_done = 0;
	if (++cursor->row_index < piece->strip->row_count)
		return;
	cursor->row_index = 0;
	if (++cursor->block_index < block_count)
		return;
	cursor->block_index = 0;
	cursor->strip_index++;
}

/* The next row, or what byte_max leaves of it. 0: there is none. */
static int piece_next(const struct kvpull_read *read,
		      struct kvpull_foreign_cursor *cursor, uint64_t byte_max,
		      struct piece *piece)
{
	const struct kvpull_strip *strip;
	uint32_t block_count;
	uint32_t at;

	for (;; cursor->strip_index++) {
		if (cursor->strip_index == read->strip_count)
			return 0;
		strip = &read->strips[cursor->strip_index];
		block_count = strip_block_count(read, strip);
		if (block_count && strip->row_count && strip->row_bytes)
			break;
	}
	at = read->group_first[strip->group_index] + cursor->block_index;
	piece->strip = strip;
	piece->remote_offset =
		strip->remote_offset +
		read->remote_ids[at] * strip->remote_block_stride +
		cursor->row_index * strip->remote_row_stride +
		cursor->row_bytes_done;
	piece->local = strip->local +
		       read->local_ids[at] * strip->local_block_stride +
		       cursor->row_index * strip->local_row_stride +
		       cursor->row_bytes_done;
	piece->bytes = strip->row_bytes - cursor->row_bytes_done;
	if (piece->bytes > byte_max)
		piece->bytes = byte_max;
	cursor_advance(cursor, piece, block_count);
	return 1;
}

/* An address of another process: a number that is never followed here. */
static void *remote_pointer(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

static void batch_add(struct batch *batch, const struct piece *piece,
		      uint64_t address)
{
	struct iovec *here = &batch->here[batch->count];
	struct iovec *there = &batch->there[batch->count];

	batch->bytes += piece->bytes;
	if (batch->count &&
	    (uint8_t *)here[-1].iov_base + here[-1].iov_len == piece->local &&
	    (uintptr_t)there[-1].iov_base + there[-1].iov_len == address) {
		here[-1].iov_len += piece->bytes;
		there[-1].iov_len += piece->bytes;
		return;
	}
	*here = (struct iovec){ .iov_base = piece->local,
				.iov_len = piece->bytes };
	*there = (struct iovec){ .iov_base = remote_pointer(address),
				 .iov_len = piece->bytes };
	batch->count++;
}

static int vector_read(int32_t pid, const struct iovec *here,
		       const struct iovec *there, uint32_t count,
		       uint64_t bytes)
{
	const ssize_t got = process_vm_readv(pid, here, count, there, count, 0);

	if (got >= 0 && (uint64_t)got == bytes)
		return 0;
	return got < 0 && errno == ESRCH ? KVPULL_EPEER : KVPULL_EREAD;
}

/* 0: the read is complete; 1: the batch, or byte_max, is full. */
static int batch_fill(struct batch *batch, const struct kvpull_foreign *foreign,
		      const struct kvpull_read *read,
		      struct kvpull_foreign_cursor *cursor, uint64_t *byte_max)
{
	struct piece piece;

	batch->count = 0;
	batch->bytes = 0;
	while (*byte_max && batch->count < BATCH_MAX) {
		uint32_t region;

		if (!piece_next(read, cursor, *byte_max, &piece))
			return 0;
		*byte_max -= piece.bytes;
		region = piece.strip->region_index;
		if (foreign->mapped[region])
			memcpy(piece.local,
			       foreign->mapped[region] + piece.remote_offset,
			       piece.bytes);
		else
			batch_add(batch, &piece,
				  foreign->remote_address[region] +
					  piece.remote_offset);
	}
	return 1;
}

int kvpull_foreign_read(const struct kvpull_foreign *foreign,
			const struct kvpull_read *read,
			struct kvpull_foreign_cursor *cursor, uint64_t byte_max)
{
	struct batch batch;
	int more = 1;
	int code;

	while (byte_max && more) {
		more = batch_fill(&batch, foreign, read, cursor, &byte_max);
		if (!batch.count)
			continue;
		code = vector_read(foreign->pid, batch.here, batch.there,
				   batch.count, batch.bytes);
		if (code)
			return code;
	}
	return more;
}

int kvpull_foreign_entry(int32_t pid, uint64_t address,
			 struct kvpull_revocation_value *value)
{
	uint64_t words[sizeof(struct kvpull_revocation_entry) / 8] = { 0 };
	const struct iovec here = { .iov_base = words,
				    .iov_len = sizeof(words) };
	const struct iovec there = { .iov_base = remote_pointer(address),
				     .iov_len = sizeof(words) };
	const int code = vector_read(pid, &here, &there, 1, sizeof(words));

	if (code)
		return code;
	/* In the order of struct kvpull_revocation_entry. */
	value->incarnation = words[0];
	value->revoked = words[1];
	value->ready = words[2];
	return 0;
}
