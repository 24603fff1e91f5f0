/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_uring as files use it: reads of a descriptor into a fixed buffer, or
 * writes, their results, and an eventfd that tells a sleeper. Opened late, by
 * the thread that will use it; where it is forbidden, open() says why.
 *
 * Measured (Linux 6.18): a ring with DEFER_TASKRUN does not wake who sleeps in
 * poll() or epoll_wait() on the ring's own descriptor; with a registered
 * eventfd it does. So the eventfd is what the owner waits on.
 */
#ifndef KVPULL_SHM_URING_H
#define KVPULL_SHM_URING_H

#include <stddef.h>
#include <stdint.h>

#include <liburing.h>

#include "base/log.h"

enum kvpull_uring_mode {
	KVPULL_URING_NO = 0,
	/* The owner may be another thread at each call, one at a time. */
	KVPULL_URING_ANY_THREAD,
	/*
	 * The same thread from open to close: completions never interrupt it.
	 */
	KVPULL_URING_ONE_THREAD
};

struct kvpull_uring {
	struct io_uring ring;
	const struct kvpull_log *log;
	uint32_t is_open;
	uint32_t is_fixed;  /* the buffer is registered */
	uint32_t in_flight; /* queued or in the kernel */
	uint32_t depth;
};

/* A read or write of `bytes` at `offset`; `tag` comes back with its result. */
struct kvpull_uring_io {
	uint8_t *memory; /* in the registered buffer, if there is one */
	uint64_t offset;
	uint32_t bytes;
	int fd;
	uint32_t is_write; /* by a thread of the kernel: a flush waits for none */
	uint64_t tag;
};

struct kvpull_uring_result {
	uint64_t tag;
	int32_t code; /* bytes, or -errno */
};

/**
 * Open with room for `depth` reads.
 *
 * @wake_fd  non-blocking eventfd, written when a result comes; not closed here
 * Return: 0; KVPULL_EUNSUPPORTED: not on this machine (a warning says why).
 */
int KVPULL_MUST_CHECK kvpull_uring_open(struct kvpull_uring *uring,
					enum kvpull_uring_mode mode,
					uint32_t depth, int wake_fd,
					const struct kvpull_log *log);
/*
 * Register the buffer that all reads go to: cheaper reads, and the kernel then
 * holds its pages, not its addresses. 0; KVPULL_ENOMEM: over memlock (logged);
 * reads work without.
 */
int KVPULL_MUST_CHECK kvpull_uring_register(struct kvpull_uring *uring,
					    uint8_t *base, size_t bytes);
/*
 * From any thread, once the owner calls no more; waits for reads in flight if
 * it can, until close_by_ns. Return: reads that may still write to the buffer's addresses, which
 * must then stay mapped for ever; 0 with a registered buffer.
 */
uint32_t kvpull_uring_close(struct kvpull_uring *uring, uint64_t close_by_ns);

/* Queue one: KVPULL_EAGAIN beyond depth. flush() gives them to the kernel. */
int KVPULL_MUST_CHECK kvpull_uring_queue(struct kvpull_uring *uring,
					 const struct kvpull_uring_io *io);
void kvpull_uring_flush(struct kvpull_uring *uring);
/*
 * The read with this tag is not wanted any more: if the kernel has not taken it
 * yet, it reads nothing, so that its descriptor may be closed now. Its result
 * comes all the same.
 */
void kvpull_uring_drop(struct kvpull_uring *uring, uint64_t tag);
/* Return: results, 0 .. capacity; no system call while there are none. */
uint32_t kvpull_uring_poll(struct kvpull_uring *uring,
			   struct kvpull_uring_result *results,
			   uint32_t capacity);
/* Before a sleep on wake_fd: 1 = there is something to do, do not sleep. */
int kvpull_uring_arm(struct kvpull_uring *uring);

#endif /* KVPULL_SHM_URING_H */
