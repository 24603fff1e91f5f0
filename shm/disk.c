/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: first <= next <= last, free-running: results are in [first,
 * next), reads not ended in [next, last), of which the thread may have begun
 * the one at `next`. All under the lock, which is never held in a read.
 */
#include "shm/disk.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/thread.h"
#include "base/wrap.h"

struct entry {
	struct kvpull_uring_io io; /* .fd is ours */
	int32_t result;
	uint32_t is_dropped;
};

struct kvpull_disk_queue {
	pthread_mutex_t lock;
	pthread_cond_t asked; /* or told to stop */
	pthread_cond_t ended; /* the thread's end */
	pthread_t thread;
	int wake_fd; /* a copy: the owner's may be another's by then */
	uint32_t first;
	uint32_t next;
	uint32_t last;
	uint32_t stop;
	uint32_t has_ended;
	struct entry entries[KVPULL_DISK_DEPTH];
};

static struct entry *entry_at(struct kvpull_disk_queue *queue, uint32_t at)
{
	return &queue->entries[at % KVPULL_DISK_DEPTH];
}

static int32_t entry_run(const struct entry *entry)
{
	const struct kvpull_uring_io *io = &entry->io;
	ssize_t got;

	if (entry->is_dropped)
		return -ECANCELED;
	do
		got = io->is_write ? pwrite(io->fd, io->memory, io->bytes,
					    (off_t)io->offset) :
				     pread(io->fd, io->memory, io->bytes,
					   (off_t)io->offset);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : (int32_t)got;
}

static void *disk_main(void *argument)
{
	struct kvpull_disk_queue *queue = argument;

	(void)pthread_mutex_lock(&queue->lock);
	while (!queue->stop) {
		struct entry entry;

		if (queue->next == queue->last) {
			(void)pthread_cond_wait(&queue->asked, &queue->lock);
			continue;
		}
		entry = *entry_at(queue, queue->next);
		(void)pthread_mutex_unlock(&queue->lock);
		entry.result = entry_run(&entry);
		/* A file system may make this wait, too. */
		(void)close(entry.io.fd);
		(void)pthread_mutex_lock(&queue->lock);
		*entry_at(queue, queue->next++) = entry;
		(void)eventfd_write(queue->wake_fd, 1);
	}
	queue->has_ended = 1;
	(void)pthread_cond_signal(&queue->ended);
	(void)pthread_mutex_unlock(&queue->lock);
	return NULL;
}

static void locks_init(struct kvpull_disk_queue *queue)
{
	pthread_condattr_t monotonic;

	(void)pthread_condattr_init(&monotonic);
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	(void)pthread_mutex_init(&queue->lock, NULL);
	(void)pthread_cond_init(&queue->asked, NULL);
	(void)pthread_cond_init(&queue->ended, &monotonic);
	(void)pthread_condattr_destroy(&monotonic);
}

int kvpull_disk_open(struct kvpull_disk *disk, int wake_fd,
		     const struct kvpull_log *log)
{
	struct kvpull_disk_queue *queue =
		mmap(NULL, sizeof(*queue), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	enum kvpull_call call = KVPULL_CALL_MAP;
	struct kvpull_cause cause;
	int error = errno;

	*disk = (struct kvpull_disk){ .log = log };
	if (queue == MAP_FAILED)
		goto err;
	locks_init(queue);
	queue->first = queue->next = queue->last = KVPULL_WRAP_START;
	queue->wake_fd = fcntl(wake_fd, F_DUPFD_CLOEXEC, 0);
	call = queue->wake_fd < 0 ? KVPULL_CALL_OTHER : KVPULL_CALL_THREAD;
	error = queue->wake_fd < 0 ?
			errno :
			kvpull_thread_start(&queue->thread, "kvpull-disk",
					    disk_main, queue);
	if (!error) {
		disk->queue = queue;
		return 0;
	}
	kvpull_fd_close(&queue->wake_fd);
	(void)munmap(queue, sizeof(*queue));
err:
	kvpull_warn(log, "no thread for files: %s; it is tried again",
		    kvpull_cause_of(&cause, call, error));
	return KVPULL_EAGAIN;
}

/* 1: the thread has ended, or is about to: no read of its runs. */
static int end_await(struct kvpull_disk_queue *queue, uint64_t close_by_ns)
{
	const struct timespec until = kvpull_clock_timespec(close_by_ns);
	int error = 0;
	int ends;

	(void)pthread_mutex_lock(&queue->lock);
	queue->stop = 1;
	(void)pthread_cond_signal(&queue->asked);
	while (!queue->has_ended && queue->next != queue->last && !error)
		error = pthread_cond_timedwait(&queue->ended, &queue->lock,
					       &until);
	ends = queue->has_ended || queue->next == queue->last;
	(void)pthread_mutex_unlock(&queue->lock);
	return ends;
}

void kvpull_library_keep(void)
{
	/* An address of ours; a function's is no object's in ISO C. */
	static const char here;
	Dl_info info;

	/* Linked into the program, it cannot go away. */
	if (dladdr(&here, &info) && info.dli_fname)
		(void)dlopen(info.dli_fname,
			     RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

uint32_t kvpull_disk_close(struct kvpull_disk *disk, uint64_t close_by_ns)
{
	struct kvpull_disk_queue *queue = disk->queue;

	if (!queue)
		return 0;
	disk->queue = NULL;
	if (!end_await(queue, close_by_ns)) {
		(void)pthread_detach(queue->thread);
		/*
		 * The thread hangs in a read, and goes on if that ever returns:
		 * keep the library loaded.
		 */
		kvpull_library_keep();
		return 1;
	}
	(void)pthread_join(queue->thread, NULL);
	while (queue->next != queue->last)
		(void)close(entry_at(queue, queue->next++)->io.fd);
	(void)close(queue->wake_fd);
	(void)munmap(queue, sizeof(*queue));
	return 0;
}

int kvpull_disk_queue(struct kvpull_disk *disk,
		      const struct kvpull_uring_io *io)
{
	struct kvpull_disk_queue *queue = disk->queue;
	struct entry *entry;
	int code = KVPULL_EAGAIN;

	(void)pthread_mutex_lock(&queue->lock);
	if (queue->last - queue->first < KVPULL_DISK_DEPTH) {
		entry = entry_at(queue, queue->last);
		*entry = (struct entry){ .io = *io };
		/* By its turn the peer's number may be another file's. */
		entry->io.fd = fcntl(io->fd, F_DUPFD_CLOEXEC, 0);
		entry->is_dropped = entry->io.fd < 0;
		queue->last++;
		disk->in_flight++;
		(void)pthread_cond_signal(&queue->asked);
		code = 0;
	}
	(void)pthread_mutex_unlock(&queue->lock);
	return code;
}

void kvpull_disk_drop(struct kvpull_disk *disk, uint64_t tag)
{
	struct kvpull_disk_queue *queue = disk->queue;
	uint32_t at;

	if (!disk->in_flight)
		return;
	(void)pthread_mutex_lock(&queue->lock);
	for (at = queue->next; at != queue->last; at++)
		if (entry_at(queue, at)->io.tag == tag)
			entry_at(queue, at)->is_dropped = 1;
	(void)pthread_mutex_unlock(&queue->lock);
}

uint32_t kvpull_disk_poll(struct kvpull_disk *disk,
			  struct kvpull_uring_result *results,
			  uint32_t capacity)
{
	struct kvpull_disk_queue *queue = disk->queue;
	uint32_t count = 0;

	if (!disk->in_flight)
		return 0;
	(void)pthread_mutex_lock(&queue->lock);
	for (; count < capacity && queue->first != queue->next; count++) {
		const struct entry *entry = entry_at(queue, queue->first++);

		results[count] = (struct kvpull_uring_result){
			.tag = entry->io.tag,
			.code = entry->result,
		};
	}
	(void)pthread_mutex_unlock(&queue->lock);
	disk->in_flight -= count;
	return count;
}

int kvpull_disk_arm(struct kvpull_disk *disk)
{
	struct kvpull_disk_queue *queue = disk->queue;
	int is_ready;

	if (!disk->in_flight)
		return 0;
	(void)pthread_mutex_lock(&queue->lock);
	is_ready = queue->first != queue->next;
	(void)pthread_mutex_unlock(&queue->lock);
	return is_ready;
}
