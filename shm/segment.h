/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory between processes of one node: memfds that their maker writes
 * and nobody else can.
 *
 * Order that works: memfd_create(CLOEXEC|ALLOW_SEALING, NOEXEC_SEAL where
 * known) -> ftruncate -> reserve a 2 MiB aligned range -> map read-write ->
 * touch a byte per 2 MiB -> MADV_COLLAPSE -> seal SHRINK|GROW|FUTURE_WRITE|
 * SEAL -> open("/proc/self/fd/N", O_RDONLY): that descriptor is handed over.
 * (Without FUTURE_WRITE a reader reopens it through /proc for writing.)
 */
#ifndef KVPULL_SHM_SEGMENT_H
#define KVPULL_SHM_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/log.h"

#define KVPULL_HUGE_BYTES 2097152u
#define KVPULL_SEGMENT_THREADS_MAX 16u             /* more are not started */
#define KVPULL_SEGMENT_BYTES_MAX ((size_t)1 << 46) /* half of 47-bit space */

enum kvpull_segment_kind {
	KVPULL_SEGMENT_READ_ONLY = 0, /* KV, revocation: sealed FUTURE_WRITE */
	KVPULL_SEGMENT_SHARED = 1     /* a ring: sealed against resizing only */
};

struct kvpull_shared { /* made here */
	uint8_t *base;
	size_t bytes;      /* as asked, rounded up to a page */
	size_t huge_bytes; /* on huge pages */
	uint64_t took_ns;
	int fd; /* what is handed over: O_RDONLY or O_RDWR */
	int reserved;
};

/**
 * Make, map and seal. Zeroed. huge_threads > 0: ask for huge pages, with that
 * many threads. MADV_DONTDUMP is set; fork()ed children do not get a copy
 * (MADV_DONTFORK). Fewer huge pages than asked for is no error: a warning says
 * why, and huge_bytes how many.
 * Return: 0; KVPULL_EINVAL (bytes is 0 or over _BYTES_MAX); KVPULL_ENOMEM,
 * KVPULL_EDEVICE (logged with errno).
 */
int KVPULL_MUST_CHECK kvpull_segment_make(struct kvpull_shared *shared,
					  const char *name, size_t bytes,
					  enum kvpull_segment_kind kind,
					  uint32_t huge_threads,
					  const struct kvpull_log *log);
/* Unmakes a segment; a zeroed or unmade one is left alone. */
void kvpull_segment_unmake(struct kvpull_shared *shared);

/**
 * Map a peer's descriptor after checking it: a memfd with the seals and the
 * open mode that its kind needs and at least `bytes` long. Lazily; the
 * descriptor stays the caller's; children do not get a copy.
 * Return: 0 and *base; KVPULL_EPROTO (seals, mode, size; logged);
 * KVPULL_ENOMEM (errno, not logged).
 */
int KVPULL_MUST_CHECK kvpull_segment_map(int fd, size_t bytes,
					 enum kvpull_segment_kind kind,
					 const struct kvpull_log *log,
					 uint8_t **base);
/*
 * The size of a peer's segment. Nothing that a file system of the peer's could
 * delay is asked of a descriptor that has no seals. 0 or KVPULL_EPROTO.
 */
int KVPULL_MUST_CHECK kvpull_segment_bytes(int fd, uint64_t *bytes);
void kvpull_segment_unmap(uint8_t *base, size_t bytes);

#endif /* KVPULL_SHM_SEGMENT_H */
