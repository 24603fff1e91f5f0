/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: an open write is in the kernel, the thread's queue or our ring
 * exactly once; its index is the tag there.
 */
#include "shm/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/fd.h"
#include "base/fsize.h"
#include "base/least.h"
#include "shm/file.h"
#include "shm/mount.h"

/*
 * Tries of a write that comes back short or cancelled; so many of them through
 * the ring.
 */
#define TRIES_MAX 16u
#define RING_TRIES_MAX 4u
#define RESULTS_MAX 8u

static uint32_t bytes_left(const struct kvpull_slots *slots,
			   const struct kvpull_slots_write *write)
{
	return slots->slot_bytes - write->done;
}

/*
 * A ring gives up what it has not begun when the thread that submitted it ends,
 * which may be each poll's: on a busy machine nothing of it is ever begun. Then
 * a thread of ours writes.
 */
static int is_by_ring(struct kvpull_slots *slots,
		      const struct kvpull_slots_write *write)
{
	return slots->uring.is_open &&
	       (write->tries < RING_TRIES_MAX ||
		(!slots->disk.queue &&
		 kvpull_disk_open(&slots->disk, slots->wake_fd, slots->log)));
}

static void write_queue(struct kvpull_slots *slots,
			const struct kvpull_slots_write *write)
{
	const struct kvpull_uring_io io = {
		/* Read there, though io_uring's own type does not say so. */
		.memory = (uint8_t *)(uintptr_t)(write->from + write->done),
		.offset = write->offset + write->done,
		.bytes = bytes_left(slots, write),
		.fd = slots->fd,
		.is_write = 1,
		.tag = (uint64_t)(write - slots->writes),
	};

	kvpull_check(slots->log,
		     is_by_ring(slots, write) ?
			     !kvpull_uring_queue(&slots->uring, &io) :
			     !kvpull_disk_queue(&slots->disk, &io));
}

int kvpull_slots_is_short(const struct kvpull_slots *slots)
{
	struct stat status;

	return !fstat(slots->fd, &status) && S_ISREG(status.st_mode) &&
	       (uint64_t)status.st_size < slots->bytes;
}

int kvpull_slots_write(struct kvpull_slots *slots, uint32_t slot,
		       const uint8_t *from, uint64_t tag)
{
	struct kvpull_slots_write *write = slots->writes;

	if (slots->open_count == KVPULL_SLOTS_DEPTH)
		return KVPULL_EAGAIN;
	while (write->is_open)
		write++;
	*write = (struct kvpull_slots_write){
		.from = from,
		.offset = (uint64_t)slot * slots->slot_bytes,
		.tag = tag,
		.is_open = 1,
	};
	slots->open_count++;
	write_queue(slots, write);
	return 0;
}

/* 1: more of it is under way; 0: *code is how it ended. */
static int write_goes_on(struct kvpull_slots *slots,
			 struct kvpull_slots_write *write, int32_t result,
			 int32_t *code)
{
	const uint32_t wanted = bytes_left(slots, write);

	*code = 0;
	if (result > 0 && (uint32_t)result >= wanted)
		return 0;
	if (result > 0)
		write->done += (uint32_t)result & ~(slots->align - 1);
	if ((result > 0 || result == -EAGAIN || result == -EINTR ||
	     result == -ECANCELED) &&
	    ++write->tries < TRIES_MAX) {
		write_queue(slots, write);
		return 1;
	}
	kvpull_warn(slots->log,
		    "a slot's %u bytes at %llu were not written: %s", wanted,
		    (unsigned long long)(write->offset + write->done),
		    result < 0 ? kvpull_why(SIZE, -result) :
				 "only a part is taken");
	*code = KVPULL_EREAD;
	return 0;
}

uint32_t kvpull_slots_poll(struct kvpull_slots *slots,
			   struct kvpull_slots_result *results,
			   uint32_t capacity)
{
	struct kvpull_uring_result ended[RESULTS_MAX];
	const uint32_t room = kvpull_least_u32(capacity, RESULTS_MAX);
	uint32_t count = 0;
	uint32_t came;
	uint32_t at;

	if (!slots->open_count)
		return 0;
	kvpull_uring_flush(&slots->uring);
	came = kvpull_uring_poll(&slots->uring, ended, room);
	came += kvpull_disk_poll(&slots->disk, ended + came, room - came);
	for (at = 0; at < came; at++) {
		struct kvpull_slots_write *write =
			&slots->writes[ended[at].tag % KVPULL_SLOTS_DEPTH];
		int32_t code;

		if (write_goes_on(slots, write, ended[at].code, &code))
			continue;
		write->is_open = 0;
		slots->open_count--;
		results[count++] =
			(struct kvpull_slots_result){ .tag = write->tag,
						      .code = code };
	}
	kvpull_uring_flush(&slots->uring);
	return count;
}

int kvpull_slots_arm(struct kvpull_slots *slots)
{
	return slots->bytes && (kvpull_uring_arm(&slots->uring) ||
				kvpull_disk_arm(&slots->disk));
}

/* The file itself, direct where it can be. -1: errno. */
static int file_make(const char *folder)
{
	const int flags = O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC;
	const int fd = open(folder, flags | O_DIRECT, 0600);

	return fd < 0 && errno == EINVAL ? open(folder, flags, 0600) : fd;
}

/* NULL, or what would not end in an error of open() or fallocate(): errno. */
static const char *place_fault(const struct kvpull_slots *slots,
			       const struct kvpull_slots_params *params)
{
	char type[KVPULL_MOUNT_TYPE_BYTES];

	errno = EOPNOTSUPP;
	if (!kvpull_mount_is_local(params->folder, type)) {
		kvpull_error(slots->log, "%s is %s", params->folder, type);
		return "its folder is of another program or machine, which may never answer: name one of a local file system";
	}
	if (kvpull_fsize_check(slots->bytes))
		return "no file of this process may be so long: raise ulimit -f, or lower slot_count";
	return NULL;
}

/* A host's timers may interrupt what takes long. */
static int file_fill(int fd, uint64_t bytes)
{
	int code;

	do
		code = fallocate(fd, 0, 0, (off_t)bytes);
	while (code && errno == EINTR);
	return code && errno == EOPNOTSUPP ? ftruncate(fd, (off_t)bytes) : code;
}

/* NULL, or why not: errno. */
static const char *file_fault(struct kvpull_slots *slots,
			      const struct kvpull_slots_params *params)
{
	const uint64_t bytes = params->slot_bytes * params->slot_count;
	const char *why = place_fault(slots, params);
	uint32_t align;

	if (why)
		return why;
	slots->fd = file_make(params->folder);
	if (slots->fd < 0)
		return "its folder takes no unnamed file: name one of a local file system";
	/*
	 * Reserve all blocks now: otherwise a full disk would show in the
	 * middle of the work.
	 */
	if (file_fill(slots->fd, bytes))
		return "there is no room for so many slots: free some, or lower slot_count";
	align = kvpull_file_align(slots->fd, 0);
	if (!align && fcntl(slots->fd, F_SETFL, 0))
		return "its file does not go without O_DIRECT";
	slots->align = align ? align : 1;
	if (params->slot_bytes % slots->align) {
		errno = EINVAL;
		return "chunk_bytes is no multiple of what O_DIRECT asks for there";
	}
	slots->read_fd = kvpull_file_reader(slots->fd, align ? O_DIRECT : 0);
	return slots->read_fd < 0 ? "it cannot be opened for reading alone" :
				    NULL;
}

static int ring_open(struct kvpull_slots *slots,
		     const struct kvpull_slots_params *params, const char **why)
{
	int code = KVPULL_EDEVICE;

	slots->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (slots->wake_fd >= 0 &&
	    kvpull_uring_open(&slots->uring, params->uring, KVPULL_SLOTS_DEPTH,
			      slots->wake_fd, slots->log))
		code = kvpull_disk_open(&slots->disk, slots->wake_fd,
					slots->log);
	else if (slots->wake_fd >= 0)
		code = 0;
	if (code)
		*why = "nothing can write it: no descriptor or thread is left";
	return code;
}

int kvpull_slots_open(struct kvpull_slots *slots,
		      const struct kvpull_slots_params *params,
		      const char **why)
{
	int code = KVPULL_EINVAL;

	*why = "chunk_bytes is more than 1 GiB, which one write takes";
	if (params->slot_bytes > KVPULL_SLOT_BYTES_MAX)
		return KVPULL_EINVAL;
	*slots = (struct kvpull_slots){
		.log = params->log,
		.bytes = params->slot_bytes * params->slot_count,
		.slot_bytes = (uint32_t)params->slot_bytes,
		.fd = -1,
		.read_fd = -1,
		.wake_fd = -1,
	};
	*why = file_fault(slots, params);
	if (*why) {
		const int error = errno;

		kvpull_error(slots->log, "the file of slots in %s: %s",
			     params->folder, kvpull_why(SIZE, error));
		if (error == EMFILE || error == ENFILE) {
			*why = "no descriptor is left: raise ulimit -n";
			code = KVPULL_ENOMEM;
		}
	} else {
		code = ring_open(slots, params, why);
	}
	if (code)
		(void)kvpull_slots_close(slots, kvpull_clock_close_by());
	else
		kvpull_info(
			slots->log, "%u slots of %u bytes in %s, %s O_DIRECT",
			params->slot_count, slots->slot_bytes, params->folder,
			slots->align > 1 ? "with" : "without");
	return code;
}

uint32_t kvpull_slots_close(struct kvpull_slots *slots, uint64_t close_by_ns)
{
	uint32_t hang;

	if (!slots->bytes)
		return 0;
	hang = kvpull_disk_close(&slots->disk, close_by_ns) +
	       kvpull_uring_close(&slots->uring, close_by_ns);
	if (hang)
		kvpull_warn(
			slots->log,
			"writes to slots are still under way: the chunks stay mapped");
	kvpull_fd_close(&slots->fd);
	kvpull_fd_close(&slots->read_fd);
	kvpull_fd_close(&slots->wake_fd);
	memset(slots, 0, sizeof(*slots));
	return hang;
}
