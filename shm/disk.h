/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes of files where io_uring is not allowed: one thread, one
 * after the other, in the order in which they were asked for. Its owner asks
 * and polls as it does with io_uring, and never waits for the disk.
 *
 * What the thread touches lies in a mapping of its own, with a descriptor of
 * its own for each read: a read that hangs for ever can be left behind, with
 * all that it may still touch.
 */
#ifndef KVPULL_SHM_DISK_H
#define KVPULL_SHM_DISK_H

#include "base/log.h"
#include "shm/uring.h"

#define KVPULL_DISK_DEPTH 32u

struct kvpull_disk_queue; /* the thread's, too */

struct kvpull_disk {
	const struct kvpull_log *log;
	struct kvpull_disk_queue *queue; /* NULL: not open */
	uint32_t in_flight;              /* asked for, result not polled */
};

/* 0; KVPULL_EAGAIN: no thread, memory or descriptor for now (logged). */
int KVPULL_MUST_CHECK kvpull_disk_open(struct kvpull_disk *disk, int wake_fd,
				       const struct kvpull_log *log);
/*
 * Waits for a read that runs until close_by_ns. Return: 0; 1: it hangs. Its thread, its buffer and this library then stay
 * until the process ends.
 */
uint32_t kvpull_disk_close(struct kvpull_disk *disk, uint64_t close_by_ns);

/* As with io_uring; KVPULL_EAGAIN if the queue is full. */
int KVPULL_MUST_CHECK kvpull_disk_queue(struct kvpull_disk *disk,
					const struct kvpull_uring_io *io);
/*
 * Drops a result that is not wanted. A read that has not begun is never made.
 */
void kvpull_disk_drop(struct kvpull_disk *disk, uint64_t tag);
uint32_t kvpull_disk_poll(struct kvpull_disk *disk,
			  struct kvpull_uring_result *results,
			  uint32_t capacity);
/* Before a sleep on wake_fd: 1: there is a result. */
int kvpull_disk_arm(struct kvpull_disk *disk);

/* A thread that is left behind runs code of ours: it is not to be unloaded. */
void kvpull_library_keep(void);

#endif /* KVPULL_SHM_DISK_H */
