/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that calls a device's driver, one a worker. Its owner, another
 * thread, orders imports, copies and unmaps, and polls their ends, as it does with
 * the copy workers of shm/copy.h. It never waits for the driver but in open() and
 * close(), which are bounded.
 *
 * Orders are taken in their order: a copy may be ordered right behind the import
 * of its mapping. A job's end means that no copy of it is queued. A mapping is
 * unmapped once its jobs have ended.
 *
 * KVPULL_EDEVICE is for ever: all pending jobs end with it, and all later ones. A
 * call of the driver, or a queued slice behind its mark, that takes
 * KVPULL_DEVICE_HANG_NS is KVPULL_EDEVICE, too; but jobs that the device may still
 * write for do not end.
 */
#ifndef KVPULL_DEVICE_THREAD_H
#define KVPULL_DEVICE_THREAD_H

#include "base/arena.h"
#include "base/device_job.h"

struct kvpull_device_thread;

struct kvpull_device_thread_params {
	kvpull_device_open_fn open; /* a table's: called by the thread */
	int index;                  /* of the device, for it */
	int wake_fd; /* eventfd, written when something ends while the
				       owner is armed; -1: none */
	struct kvpull_device_limits limits;
};

/**
 * Start the thread, and wait until it has opened the device: at most
 * KVPULL_DEVICE_HANG_NS.
 *
 * @log     outlives the thread, or its close(); no line comes after it.
 * @thread  out, on success.
 *
 * Return: 0, or that of params->open; KVPULL_EDEVICE: the driver does not answer;
 * KVPULL_ENOMEM: no memory, thread or descriptor. One line says which.
 */
int KVPULL_MUST_CHECK
kvpull_device_thread_open(struct kvpull_device_thread **thread,
			  const struct kvpull_device_thread_params *params,
			  const struct kvpull_log *log);

/*
 * Waits until close_by_ns at most. Copies that are queued end, all mappings are
 * unmapped, the device is closed. What was not polled never comes out. Return: 0;
 * 1: copies may still land, or the device is lost: the process keeps all of its
 * memory, and a thread that hangs.
 */
uint32_t kvpull_device_thread_close(struct kvpull_device_thread *thread,
				    uint64_t close_by_ns);

/* For alloc(), export_fd(), unmap() of own memory, events and mark(). */
struct kvpull_device *
kvpull_device_thread_device(const struct kvpull_device_thread *thread);

/* Any thread: 1: the device is lost, or hangs, and stays so. */
uint32_t
kvpull_device_thread_is_lost(const struct kvpull_device_thread *thread);

/*
 * The event of a mark, by a number below mark_max: for mark(), and for a job's
 * `after`. It is there until the close; NULL before the first mark_open().
 */
struct kvpull_device_event *
kvpull_device_thread_mark(const struct kvpull_device_thread *thread,
			  uint32_t index);

/*
 * Open that event, if it is not open: few of them are ever used. By the one
 * thread that makes marks. 0, or event_open()'s error.
 */
int kvpull_device_thread_mark_open(const struct kvpull_device_thread *thread,
				   uint32_t index);

/*
 * Map a peer's memory: see import_fd() in base/device.h. The descriptor is the
 * thread's from here on, also on an error. A mapping that was not imported stays
 * taken until its unmap, too: its jobs end with the import's code.
 */
void kvpull_device_thread_import(struct kvpull_device_thread *thread,
				 uint32_t mapping, int fd, uint64_t bytes,
				 const uint8_t *uuid);
/* Give own memory to the thread, which unmaps it at close. */
void kvpull_device_thread_adopt(struct kvpull_device_thread *thread,
				const struct kvpull_device_memory *memory);
/* Unmap it once the jobs that were started before have ended. */
void kvpull_device_thread_unmap(struct kvpull_device_thread *thread,
				uint32_t mapping);

/* 0; KVPULL_EAGAIN: its index is in flight. */
int KVPULL_MUST_CHECK
kvpull_device_thread_start(struct kvpull_device_thread *thread,
			   struct kvpull_device_job *job);
/* No new slice of it is queued; it still comes out of poll. */
void kvpull_device_thread_cancel(struct kvpull_device_thread *thread,
				 const struct kvpull_device_job *job);

/*
 * Orders whose ends have not been polled: while there are some the owner polls
 * once a second at least, so that a hang is seen. Here and below NULL is a
 * worker without a device: 0, and nothing to do.
 */
uint32_t
kvpull_device_thread_pending(const struct kvpull_device_thread *thread);
/* Memory of peers that is mapped; how much of it was mapped for stores, too, in all. */
struct kvpull_device_mapped {
	uint64_t bytes;
	uint64_t stores;
};
const struct kvpull_device_mapped *
kvpull_device_thread_mapped(const struct kvpull_device_thread *thread);
/* Ends: how many, but for jobs that have a function of their own. Also looks whether a call hangs: at least once a second. */
uint32_t kvpull_device_thread_poll(struct kvpull_device_thread *thread,
				   struct kvpull_device_end *ends,
				   uint32_t capacity, uint64_t now_ns);
/* Before sleeping on wake_fd. 1: something has ended meanwhile. */
int KVPULL_MUST_CHECK
kvpull_device_thread_arm(struct kvpull_device_thread *thread);
void kvpull_device_thread_disarm(struct kvpull_device_thread *thread);

#endif /* KVPULL_DEVICE_THREAD_H */
