/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memfds that one process writes and others can only read.
 *
 * Invariants. A READ_ONLY segment's one writable mapping is made before
 * F_SEAL_FUTURE_WRITE and is the last one ever; the writable descriptor is
 * closed before the O_RDONLY one is handed over (a reader may reopen that one
 * for writing through /proc: the seal, not the mode, refuses the write). No
 * segment can shrink under a mapping (no SIGBUS) nor take further seals.
 * Nothing of a peer's descriptor is believed before its seals are known:
 * without F_SEAL_SHRINK its size means nothing.
 */
#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/fsize.h"
#include "base/least.h"
#include "base/thread.h"

/*
 * By number where the headers are older than the kernel; whether the kernel
 * knows them is found at run time.
 */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif

#define SEALS_SIZE (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
/*
 * Bytes that one madvise() collapses. A call has a fixed cost (it drains every
 * core's page lists), and threads share the work by pieces.
 */
#define PIECE_BYTES ((size_t)32 * KVPULL_HUGE_BYTES)

/* Log what failed, with errno; which error that is. errno survives. */
static int make_failed(const struct kvpull_log *log, const char *name,
		       const char *what, size_t bytes)
{
	const int error = errno;
	struct kvpull_cause cause;

	if (log)
		kvpull_error(log, "segment %s of %zu bytes: %s: %s", name,
			     bytes, what,
			     kvpull_cause_of_map(&cause, KVPULL_CALL_SIZE,
						 error, bytes));
	errno = error;
	return error == ENOMEM || error == EMFILE ? KVPULL_ENOMEM :
						    KVPULL_EDEVICE;
}

static size_t page_round(size_t bytes)
{
	const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page_bytes - 1) & ~(page_bytes - 1);
}

/*
 * Map the file where a huge page can be mapped: address and offset must agree
 * modulo 2 MiB, and mmap() alone does not see to that before Linux 6.7.
 */
static uint8_t *map_aligned(int fd, size_t bytes, int protection)
{
	const size_t mapped_bytes = page_round(bytes);
	const size_t reserved_bytes = mapped_bytes + KVPULL_HUGE_BYTES;
	uint8_t *reserved;
	uint8_t *base;
	size_t head_bytes;
	void *mapped;

	if (bytes < KVPULL_HUGE_BYTES) {
		mapped = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
		return mapped == MAP_FAILED ? NULL : mapped;
	}
	mapped = mmap(NULL, reserved_bytes, PROT_NONE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mapped == MAP_FAILED)
		return NULL;
	reserved = mapped;
	head_bytes =
		(KVPULL_HUGE_BYTES - (uintptr_t)reserved % KVPULL_HUGE_BYTES) %
		KVPULL_HUGE_BYTES;
	base = reserved + head_bytes;
	mapped = mmap(base, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
	if (mapped == MAP_FAILED) {
		const int error = errno;

		(void)munmap(reserved, reserved_bytes);
		errno = error;
		return NULL;
	}
	if (head_bytes)
		(void)munmap(reserved, head_bytes);
	(void)munmap(base + mapped_bytes, KVPULL_HUGE_BYTES - head_bytes);
	return base;
}

/* Neither in core dumps nor in children: a child would keep the memory. */
static int keep_private(uint8_t *base, size_t bytes)
{
	if (madvise(base, bytes, MADV_DONTDUMP) != 0 ||
	    madvise(base, bytes, MADV_DONTFORK) != 0)
		return -1;
	return 0;
}

/* Huge pages, by several threads: pieces from a counter. */
struct collapse {
	uint8_t *base;
	size_t piece_count;
	size_t bytes; /* whole huge pages */
	_Atomic size_t next_piece;
	_Atomic size_t huge_bytes;
	_Atomic int error; /* the last errno; set: give up */
};

/* Collapse a range that holds a touched page per 2 MiB; its huge bytes. */
static size_t collapse_range(struct collapse *collapse, uint8_t *base,
			     size_t bytes)
{
	size_t huge_bytes = 0;
	size_t at;

	if (madvise(base, bytes, MADV_COLLAPSE) == 0)
		return bytes;
	/*
	 * madvise() stops at the first page that it cannot collapse: go on one
	 * by one.
	 */
	for (at = 0; at < bytes; at += KVPULL_HUGE_BYTES) {
		int tries = 3; /* EAGAIN: a page was busy for a moment */
		int rc;

		do
			rc = madvise(base + at, KVPULL_HUGE_BYTES,
				     MADV_COLLAPSE);
		while (rc != 0 && errno == EAGAIN && --tries);
		if (rc == 0) {
			huge_bytes += KVPULL_HUGE_BYTES;
			continue;
		}
		atomic_store_explicit(&collapse->error, errno,
				      memory_order_relaxed);
		/* No support, or no huge page is left: more of it is waste. */
		if (errno != EAGAIN && errno != EBUSY)
			break;
	}
	return huge_bytes;
}

static void *collapse_run(void *argument)
{
	struct collapse *collapse = argument;

	/*
	 * All relaxed: the counter only shares out the pieces, and the sums
	 * are read after the threads were joined.
	 */
	while (!atomic_load_explicit(&collapse->error, memory_order_relaxed)) {
		const size_t piece = atomic_fetch_add_explicit(
			&collapse->next_piece, 1, memory_order_relaxed);
		uint8_t *base = collapse->base + piece * PIECE_BYTES;
		size_t bytes;
		size_t at;

		if (piece >= collapse->piece_count)
			break;
		bytes = kvpull_least(PIECE_BYTES,
				     collapse->bytes - piece * PIECE_BYTES);
		/* An untouched range is EINVAL; one page is enough. */
		for (at = 0; at < bytes; at += KVPULL_HUGE_BYTES)
			base[at] = 0;
		atomic_fetch_add_explicit(&collapse->huge_bytes,
					  collapse_range(collapse, base, bytes),
					  memory_order_relaxed);
	}
	return NULL;
}

/* Return the bytes that are on huge pages now; *error: why not all. */
static size_t make_huge(uint8_t *base, size_t bytes, uint32_t thread_count,
			int *error)
{
	struct collapse collapse = {
		.base = base, .bytes = bytes - bytes % KVPULL_HUGE_BYTES
	};
	pthread_t threads[KVPULL_SEGMENT_THREADS_MAX];
	uint32_t started = 0;

	collapse.piece_count = (collapse.bytes + PIECE_BYTES - 1) / PIECE_BYTES;
	thread_count =
		kvpull_least_u32(thread_count, KVPULL_SEGMENT_THREADS_MAX);
	thread_count =
		(uint32_t)kvpull_least(thread_count, collapse.piece_count);
	/* This thread is one of them, so none that cannot start is missed. */
	while (started + 1 < thread_count &&
	       kvpull_thread_start(&threads[started], "kvpull-huge",
				   collapse_run, &collapse) == 0)
		started++;
	(void)collapse_run(&collapse);
	while (started)
		(void)pthread_join(threads[--started], NULL);
	*error = atomic_load_explicit(&collapse.error, memory_order_relaxed);
	return atomic_load_explicit(&collapse.huge_bytes, memory_order_relaxed);
}

/* A memfd that takes seals; without execution where the kernel can. */
static int memfd_open(const char *name, const char **noexec)
{
	const unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);

	*noexec = "sealed against execution";
	if (fd < 0 && errno == EINVAL) {
		*noexec = "kernel knows no exec seal";
		fd = memfd_create(name, flags);
	}
	return fd;
}

/*
 * Seal, and leave in *fd what is handed over; the mapping stays writable.
 * Return NULL, or what failed, with errno.
 */
static const char *seal(int *fd, enum kvpull_segment_kind kind)
{
	int handed;

	if (kind == KVPULL_SEGMENT_SHARED)
		return fcntl(*fd, F_ADD_SEALS, SEALS_SIZE) == 0 ? NULL :
								  "cannot seal";
	if (fcntl(*fd, F_ADD_SEALS, SEALS_SIZE | F_SEAL_FUTURE_WRITE) != 0)
		return "cannot seal against writing (Linux 5.1 can)";
	handed = kvpull_fd_reopen(*fd, O_RDONLY);
	if (handed < 0)
		return "cannot reopen read-only through /proc/self/fd";
	(void)close(*fd);
	*fd = handed;
	return NULL;
}

static void log_made(const struct kvpull_log *log, const char *name,
		     const struct kvpull_shared *made, const char *noexec,
		     int huge_error)
{
	kvpull_info(log,
		    "segment %s: %zu bytes, %zu on huge pages, %llu us, %s",
		    name, made->bytes, made->huge_bytes,
		    (unsigned long long)(made->took_ns / 1000), noexec);
	if (huge_error)
		kvpull_warn(log, "segment %s: not all on huge pages: %s", name,
			    kvpull_why(OTHER, huge_error));
}

int kvpull_segment_make(struct kvpull_shared *shared, const char *name,
			size_t bytes, enum kvpull_segment_kind kind,
			uint32_t huge_threads, const struct kvpull_log *log)
{
	const uint64_t start_ns = kvpull_clock_ns();
	struct kvpull_shared made = { .fd = -1 };
	const char *noexec;
	const char *failure;
	int huge_error = 0;
	int code;

	if (!bytes || bytes > KVPULL_SEGMENT_BYTES_MAX)
		return KVPULL_EINVAL;
	made.bytes = page_round(bytes);
	failure = "cannot create a memfd";
	made.fd = memfd_open(name, &noexec);
	if (made.fd < 0)
		goto err;
	failure = "cannot set its size";
	if (kvpull_fsize_check(made.bytes) != 0 ||
	    ftruncate(made.fd, (off_t)made.bytes) != 0)
		goto err;
	failure = "cannot map";
	made.base = map_aligned(made.fd, made.bytes, PROT_READ | PROT_WRITE);
	if (!made.base)
		goto err;
	failure = "cannot keep from dumps and children";
	if (keep_private(made.base, made.bytes) != 0)
		goto err;
	if (huge_threads && made.bytes >= KVPULL_HUGE_BYTES)
		made.huge_bytes = make_huge(made.base, made.bytes, huge_threads,
					    &huge_error);
	failure = seal(&made.fd, kind);
	if (failure)
		goto err;
	made.took_ns = kvpull_clock_ns() - start_ns;
	log_made(log, name, &made, noexec, huge_error);
	*shared = made;
	return 0;

err:
	code = make_failed(log, name, failure, made.bytes);
	if (made.base)
		(void)munmap(made.base, made.bytes);
	kvpull_fd_close(&made.fd);
	return code;
}

void kvpull_segment_unmake(struct kvpull_shared *shared)
{
	if (!shared->base)
		return;
	(void)munmap(shared->base, shared->bytes);
	(void)close(shared->fd);
	*shared = (struct kvpull_shared){ .fd = -1 };
}

int kvpull_segment_bytes(int fd, uint64_t *bytes)
{
	struct stat status;

	if (fcntl(fd, F_GET_SEALS) < 0 || fstat(fd, &status) ||
	    status.st_size < 0)
		return KVPULL_EPROTO;
	*bytes = (uint64_t)status.st_size;
	return 0;
}

/* NULL, or why the peer's descriptor is not what its kind promises. */
static const char *descriptor_fault(int fd, size_t bytes,
				    enum kvpull_segment_kind kind)
{
	/* First: this never asks the file system, which may be the peer's. */
	const int seals = fcntl(fd, F_GET_SEALS);
	const int flags = fcntl(fd, F_GETFL);
	const int write_seals = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
	struct statfs system;
	struct stat status;

	if (seals < 0 || flags < 0)
		return "is no memfd";
	/*
	 * A hugetlb memfd has seals too, and mmap() rounds its length up to a
	 * huge page: with MAP_FIXED, over our other mappings.
	 */
	if (fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC)
		return "is no memfd of ordinary pages";
	if ((seals & SEALS_SIZE) != SEALS_SIZE)
		return "is not sealed against resizing";
	if (kind == KVPULL_SEGMENT_READ_ONLY) {
		if (!(seals & F_SEAL_FUTURE_WRITE))
			return "is not sealed against writing";
		if ((flags & O_ACCMODE) != O_RDONLY)
			return "is not opened read-only";
	} else {
		if (seals & write_seals)
			return "is sealed against writing";
		if ((flags & O_ACCMODE) != O_RDWR)
			return "is not opened for reading and writing";
	}
	if (fstat(fd, &status) != 0)
		return "has no size";
	if (!bytes || status.st_size < 0 || (uint64_t)status.st_size < bytes)
		return "is shorter than its peer says";
	return NULL;
}

int kvpull_segment_map(int fd, size_t bytes, enum kvpull_segment_kind kind,
		       const struct kvpull_log *log, uint8_t **base)
{
	const char *fault = descriptor_fault(fd, bytes, kind);
	uint8_t *mapped;

	if (fault) {
		kvpull_warn(log, "a peer's segment of %zu bytes %s", bytes,
			    fault);
		return KVPULL_EPROTO;
	}
	mapped = map_aligned(fd, bytes,
			     kind == KVPULL_SEGMENT_READ_ONLY ?
				     PROT_READ :
				     PROT_READ | PROT_WRITE);
	/* A shortage of our own: the caller says so. */
	if (!mapped)
		return KVPULL_ENOMEM;
	if (keep_private(mapped, bytes) != 0) {
		const int error = errno;

		(void)munmap(mapped, bytes);
		errno = error;
		return KVPULL_ENOMEM;
	}
	*base = mapped;
	return 0;
}

void kvpull_segment_unmap(uint8_t *base, size_t bytes)
{
	if (base)
		(void)munmap(base, bytes);
}
