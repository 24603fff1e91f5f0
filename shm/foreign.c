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

struct batch {
	struct iovec here[BATCH_MAX];
	struct iovec there[BATCH_MAX];
	uint32_t count;
	uint64_t bytes;
};

/* An address of another process: a number that is never followed here. */
static void *remote_pointer(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

static void batch_add(struct batch *batch, const struct kvpull_row *row,
		      uint64_t address)
{
	struct iovec *here = &batch->here[batch->count];
	struct iovec *there = &batch->there[batch->count];

	batch->bytes += row->bytes;
	if (batch->count &&
	    (uint8_t *)here[-1].iov_base + here[-1].iov_len == row->local &&
	    (uintptr_t)there[-1].iov_base + there[-1].iov_len == address) {
		here[-1].iov_len += row->bytes;
		there[-1].iov_len += row->bytes;
		return;
	}
	*here = (struct iovec){ .iov_base = row->local, .iov_len = row->bytes };
	*there = (struct iovec){ .iov_base = remote_pointer(address),
				 .iov_len = row->bytes };
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
		      struct kvpull_rows_cursor *cursor, uint64_t *byte_max)
{
	struct kvpull_row row;

	batch->count = 0;
	batch->bytes = 0;
	while (*byte_max && batch->count < BATCH_MAX) {
		uint32_t region;

		if (!kvpull_rows_next(read, cursor, *byte_max, &row))
			return 0;
		*byte_max -= row.bytes;
		region = row.strip->region_index;
		if (foreign->mapped[region])
			memcpy(row.local,
			       foreign->mapped[region] + row.remote_offset,
			       row.bytes);
		else
			batch_add(batch, &row,
				  foreign->remote_address[region] +
					  row.remote_offset);
	}
	return 1;
}

int kvpull_foreign_read(const struct kvpull_foreign *foreign,
			const struct kvpull_read *read,
			struct kvpull_rows_cursor *cursor, uint64_t byte_max)
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
