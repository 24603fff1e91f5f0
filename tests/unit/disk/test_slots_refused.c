/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner's file of slots, rings and the disk's thread, whose calls the kernel
 * refuses in turn: why, and that nothing is left open or mapped.
 */
#undef _FORTIFY_SOURCE
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "shm/disk.h"
#include "shm/file_read.h"
#include "shm/slots.h"
#include "tests/lib/lines.h"
#include "tests/unit/disk/kernel.h"

#define SLOT_BYTES 16384u
#define SLOTS 4u
#define FOLDER "/tmp"

/* clang-format off */
REFUSABLE(int, fallocate, -1, (int fd, int mode, off_t offset, off_t bytes), (fd, mode, offset, bytes))
REFUSABLE(int, ftruncate, -1, (int fd, off_t bytes), (fd, bytes))
REFUSABLE(int, eventfd, -1, (unsigned int value, int flags), (value, flags))
REFUSABLE(int, io_uring_queue_init, -errno, (unsigned int depth, struct io_uring *ring, unsigned int flags), (depth, ring, flags))
REFUSABLE(int, io_uring_register_eventfd, -errno, (struct io_uring *ring, int fd), (ring, fd))
REFUSABLE(int, io_uring_register_buffers, -errno, (struct io_uring *ring, const struct iovec *parts, unsigned int count), (ring, parts, count))
#ifdef REFUSE_IS_PLAIN
REFUSABLE(int, pthread_create, errno, (pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument), (thread, how, run, argument))
REFUSABLE(void *, mmap, MAP_FAILED,
	  (void *at, size_t bytes, int protection, int flags, int fd, off_t offset),
	  (at, bytes, protection, flags, fd, offset))
#endif
/* clang-format on */

static int lacks = -1; /* the operation that the ring does not have */

/* clang-format off */
REFUSABLE_THEN(int, io_uring_register_probe, -errno,
	       (struct io_uring *ring, struct io_uring_probe *probe, unsigned int count), (ring, probe, count),
	       if (lacks >= 0) probe->ops[lacks].flags = 0)
/* clang-format on */

REFUSABLE_LIMIT(RLIMIT_FSIZE)

/* Signals that meet the thread of a disk. */
static _Atomic uint32_t interrupts;

static int is_interrupted(void)
{
	if (!atomic_load_explicit(&interrupts, memory_order_relaxed))
		return 0;
	atomic_fetch_sub_explicit(&interrupts, 1, memory_order_relaxed);
	errno = EINTR;
	return 1;
}

ssize_t refuse_pwrite(int fd, const void *bytes, size_t byte_count,
		      off_t offset) __asm__("pwrite");

ssize_t refuse_pwrite(int fd, const void *bytes, size_t byte_count,
		      off_t offset)
{
	ssize_t (*next)(int, const void *, size_t, off_t);

	if (is_interrupted())
		return -1;
	*(void **)&next = dlsym(RTLD_NEXT, "pwrite");
	return next(fd, bytes, byte_count, offset);
}

UNIT_FIXTURE(up)
{
	lines_forget();
	direct_fake(1, 512, 512);
	limit_told = 0;
	lacks = -1;
}

#define TEST(name) UNIT_TEST_WITH(name, up, NULL)

static int slots_open(struct kvpull_slots *slots, uint64_t slot_bytes,
		      const char **why)
{
	const struct kvpull_slots_params params = {
		.log = &lines_log,
		.folder = FOLDER,
		.slot_bytes = slot_bytes,
		.slot_count = SLOTS,
		.uring = KVPULL_URING_NO,
	};

	return kvpull_slots_open(slots, &params, why);
}

static void slots_close(struct kvpull_slots *slots)
{
	assert_int_equal(kvpull_slots_close(slots, kvpull_clock_close_by()), 0);
}

struct row {
	struct refuse refused;
	int code;
	const char *why;  /* to the caller */
	const char *said; /* in the log */
};

/* clang-format off */
static const struct row opens[] = {
	{ { "tmpfile", 0, EMFILE }, KVPULL_ENOMEM, "no descriptor is left: raise ulimit -n",
	  "the file of slots in /tmp: Too many open files" },
	{ { "tmpfile", 0, ENFILE }, KVPULL_ENOMEM, "no descriptor is left: raise ulimit -n",
	  "the file of slots in /tmp: Too many open files in system" },
	{ { "tmpfile", 0, EOPNOTSUPP }, KVPULL_EINVAL, "its folder takes no unnamed file: name one of a local file system",
	  "the file of slots in /tmp: Operation not supported" },
	{ { "fallocate", 0, ENOSPC }, KVPULL_EINVAL, "there is no room for so many slots: free some, or lower slot_count",
	  "the file of slots in /tmp: No space left on device: its file system is full" },
	{ { "fchmod", 0, EPERM }, KVPULL_EINVAL, "it cannot be opened for reading alone",
	  "the file of slots in /tmp: Operation not permitted" },
	{ { "reopen", 0, EMFILE }, KVPULL_ENOMEM, "no descriptor is left: raise ulimit -n",
	  "the file of slots in /tmp: Too many open files" },
	{ { "eventfd", 0, EMFILE }, KVPULL_EDEVICE, "nothing can write it: no descriptor or thread is left", "" },
	{ { "fcntl", 0, EMFILE }, KVPULL_EAGAIN, "nothing can write it: no descriptor or thread is left",
	  "no thread for files: Too many open files: every descriptor of this process is in use: raise ulimit -n; it is tried again" },
#ifdef REFUSE_IS_PLAIN
	{ { "pthread_create", 0, EAGAIN }, KVPULL_EAGAIN, "nothing can write it: no descriptor or thread is left",
	  "no thread for files: Resource temporarily unavailable: " },
	{ { "mmap", 0, ENOMEM }, KVPULL_EAGAIN, "nothing can write it: no descriptor or thread is left",
	  "no thread for files: Cannot allocate memory: " },
#endif
};
/* clang-format on */

static void nothing_is_left(const struct kvpull_slots *slots, uint32_t fds,
			    uint64_t mapped)
{
	const struct kvpull_slots none = { 0 };

	assert_memory_equal(slots, &none, sizeof(none));
	assert_int_equal(fds_open(), fds);
	assert_int_equal(refuse_mapped(), mapped);
}

/* A thread that has ended leaves its stack mapped for the next. */
static void thread_warm(void)
{
	struct kvpull_slots slots;
	const char *why;

	assert_int_equal(slots_open(&slots, SLOT_BYTES, &why), 0);
	slots_close(&slots);
	lines_forget();
}

TEST(file_of_slots_that_cannot_be_made_leaves_nothing)
{
	size_t at;

	thread_warm();
	for (at = 0; at < sizeof(opens) / sizeof(opens[0]); at++) {
		const uint32_t fds = fds_open();
		const uint64_t mapped = refuse_mapped();
		struct kvpull_slots slots;
		const char *why;

		lines.bad[0] = '\0';
		refuse(opens[at].refused.call, opens[at].refused.skip,
		       opens[at].refused.error);
		assert_int_equal(slots_open(&slots, SLOT_BYTES, &why),
				 opens[at].code);
		assert_int_equal(refuse_end(), 1);
		assert_string_equal(why, opens[at].why);
		assert_int_equal(!lines.bad[0], !opens[at].said[0]);
		assert_non_null(strstr(lines.bad, opens[at].said));
		nothing_is_left(&slots, fds, mapped);
		assert_int_equal(slots_open(&slots, SLOT_BYTES, &why), 0);
		assert_string_equal(
			lines.of[KVPULL_LOG_INFO],
			"4 slots of 16384 bytes in /tmp, with O_DIRECT");
		slots_close(&slots);
	}
}

/* An old file system: the next way is taken, and the file is as long. */
TEST(file_of_slots_is_made_by_what_the_file_system_has)
{
	static const struct refuse older[] = {
		{ "tmpfile", 0, EINVAL },
		{ "fallocate", 0, EINTR },
		{ "fallocate", 0, EOPNOTSUPP },
	};
	struct kvpull_slots slots;
	struct stat status;
	const char *why;
	size_t at;

	for (at = 0; at < 3; at++) {
		refuse(older[at].call, 0, older[at].error);
		assert_int_equal(slots_open(&slots, SLOT_BYTES, &why), 0);
		assert_int_equal(refuse_end(), 1);
		assert_null(why);
		assert_int_equal(fstat(slots.fd, &status), 0);
		assert_int_equal(status.st_size, SLOTS * SLOT_BYTES);
		assert_int_equal(status.st_mode & 07777, 0444);
		assert_int_equal(slots.align, 512);
		slots_close(&slots);
	}
	/* Both are refused. */
	refuse("fallocate", 0, EOPNOTSUPP);
	refuse("ftruncate", 0, EFBIG);
	assert_int_equal(slots_open(&slots, SLOT_BYTES, &why), KVPULL_EINVAL);
	assert_int_equal(refuse_end(), 2);
	assert_non_null(strstr(why, "there is no room for so many slots"));
	assert_non_null(strstr(lines.bad, "File too large: raise ulimit -f"));
}

TEST(file_of_slots_is_within_the_limit_of_a_files_length)
{
	struct kvpull_slots slots;
	const char *why;

	limit_told = SLOTS * SLOT_BYTES - 1;
	assert_int_equal(slots_open(&slots, SLOT_BYTES, &why), KVPULL_EINVAL);
	assert_string_equal(
		why,
		"no file of this process may be so long: raise ulimit -f, or lower slot_count");
	assert_non_null(strstr(lines.bad, "File too large: raise ulimit -f"));
	limit_told++;
	assert_int_equal(slots_open(&slots, SLOT_BYTES, &why), 0);
	slots_close(&slots);
}

TEST(slots_are_multiples_of_what_direct_writes_ask_for)
{
	const uint32_t fds = fds_open();
	struct kvpull_slots slots;
	const char *why;

	direct_fake(1, 4096, 4096);
	assert_int_equal(slots_open(&slots, 4096 + 512, &why), KVPULL_EINVAL);
	assert_string_equal(
		why,
		"chunk_bytes is no multiple of what O_DIRECT asks for there");
	assert_non_null(strstr(lines.bad, "Invalid argument"));
	assert_int_equal(fds_open(), fds);
	direct_fake(1, 512, 512);
	assert_int_equal(slots_open(&slots, 4096 + 512, &why), 0);
	slots_close(&slots);
	/* Without it any size goes, once the flag is off. */
	direct_fake(1, 0, 0);
	refuse("setfl", 0, EPERM);
	assert_int_equal(slots_open(&slots, 4096 + 1, &why), KVPULL_EINVAL);
	assert_int_equal(refuse_end(), 1);
	assert_string_equal(why, "its file does not go without O_DIRECT");
	assert_int_equal(slots_open(&slots, 4096 + 1, &why), 0);
	assert_int_equal(slots.align, 1);
	assert_string_equal(lines.of[KVPULL_LOG_INFO],
			    "4 slots of 4097 bytes in /tmp, without O_DIRECT");
	slots_close(&slots);
	/* The largest slot that one write takes, and one that is larger. */
	assert_int_equal(slots_open(&slots, (UINT64_C(1) << 30) + 1, &why),
			 KVPULL_EINVAL);
	assert_string_equal(
		why, "chunk_bytes is more than 1 GiB, which one write takes");
}

TEST(file_that_was_cut_is_seen_as_short)
{
	struct kvpull_slots slots;
	const char *why;

	assert_int_equal(slots_open(&slots, SLOT_BYTES, &why), 0);
	assert_int_equal(kvpull_slots_is_short(&slots), 0);
	refuse("fstat", 0, EIO);
	assert_int_equal(kvpull_slots_is_short(&slots), 0);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(ftruncate(slots.fd, SLOTS * SLOT_BYTES - 1), 0);
	assert_int_equal(kvpull_slots_is_short(&slots), 1);
	slots_close(&slots);
}

static void entry_await(struct kvpull_disk *disk,
			struct kvpull_uring_result *result)
{
	while (!kvpull_disk_poll(disk, result, 1))
		(void)poll(NULL, 0, 1);
}

/* A host's timers may interrupt reads and writes of the disk's thread. */
TEST(thread_of_a_disk_goes_on_after_signals)
{
	static uint8_t out[100] = "kvpull";
	static uint8_t back[100];
	const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct kvpull_uring_io io = { .memory = out,
				      .offset = 5,
				      .bytes = sizeof(out),
				      .is_write = 1,
				      .tag = 9 };
	struct kvpull_uring_result result;
	struct kvpull_disk disk;
	eventfd_t woken;

	io.fd = memfd_create("test-disk", MFD_CLOEXEC);
	assert_int_equal(kvpull_disk_open(&disk, wake_fd, &lines_log), 0);
	assert_int_equal(kvpull_disk_arm(&disk), 0);
	atomic_store_explicit(&interrupts, 3, memory_order_relaxed);
	assert_int_equal(kvpull_disk_queue(&disk, &io), 0);
	/* The result is there before the owner is woken. */
	while (eventfd_read(wake_fd, &woken))
		(void)poll(NULL, 0, 1);
	assert_int_equal(kvpull_disk_arm(&disk), 1);
	entry_await(&disk, &result);
	assert_int_equal(kvpull_disk_arm(&disk), 0);
	assert_int_equal(interrupts, 0);
	assert_int_equal(result.tag, 9);
	assert_int_equal(result.code, sizeof(out));
	io.is_write = 0;
	io.memory = back;
	assert_int_equal(kvpull_disk_queue(&disk, &io), 0);
	entry_await(&disk, &result);
	assert_int_equal(result.code, sizeof(out));
	assert_memory_equal(out, back, sizeof(out));
	/* Another error is a result. */
	(void)close(io.fd);
	io.fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	assert_int_equal(kvpull_disk_queue(&disk, &io), 0);
	entry_await(&disk, &result);
	assert_int_equal(result.code, -EISDIR);
	/* A descriptor that cannot be kept reads nothing. */
	refuse("fcntl", 0, EMFILE);
	assert_int_equal(kvpull_disk_queue(&disk, &io), 0);
	assert_int_equal(refuse_end(), 1);
	entry_await(&disk, &result);
	assert_int_equal(result.code, -ECANCELED);
	assert_int_equal(kvpull_disk_close(&disk, kvpull_clock_close_by()), 0);
	(void)close(io.fd);
	(void)close(wake_fd);
}

/* ---- rings ---- */

struct ring_row {
	struct refuse refused;
	int lacks;
	const char *said;
};

/* clang-format off */
static const struct ring_row rings[] = {
	{ { "io_uring_queue_init", 0, ENOSYS }, -1, "no io_uring: Function not implemented: seccomp or this kernel lacks it: allow it, or set uring to no; reads wait for each other" },
	{ { "io_uring_register_probe", 0, EINVAL }, -1, "no io_uring: no probe (Linux 5.6 has it); reads wait for each other" },
	{ { NULL, 0, 0 }, IORING_OP_READ, "no io_uring: no reads and writes (Linux 5.6 has them); reads wait for each other" },
	{ { NULL, 0, 0 }, IORING_OP_WRITE, "no io_uring: no reads and writes (Linux 5.6 has them); reads wait for each other" },
	{ { "io_uring_register_eventfd", 0, EBUSY }, -1, "no io_uring: its eventfd is refused; reads wait for each other" },
};
/* clang-format on */

TEST(ring_that_lacks_something_is_closed_and_said)
{
	const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct kvpull_uring uring;
	uint32_t fds;
	size_t at;

	unit_needs_uring();
	fds = fds_open();
	for (at = 0; at < sizeof(rings) / sizeof(rings[0]); at++) {
		if (rings[at].refused.call)
			refuse(rings[at].refused.call, 0,
			       rings[at].refused.error);
		lacks = rings[at].lacks;
		assert_int_equal(kvpull_uring_open(&uring,
						   KVPULL_URING_ANY_THREAD, 8,
						   wake_fd, &lines_log),
				 KVPULL_EUNSUPPORTED);
		assert_int_equal(refuse_end(), rings[at].refused.call != NULL);
		assert_string_equal(lines.bad, rings[at].said);
		assert_int_equal(lines.counts[KVPULL_LOG_WARN], at + 1);
		assert_int_equal(uring.is_open, 0);
		assert_int_equal(fds_open(), fds);
	}
	(void)close(wake_fd);
}

/* Flags that a kernel does not know are left out, one set after the other. */
TEST(ring_of_an_older_kernel_has_fewer_flags)
{
	static uint8_t bytes[8192];
	const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct kvpull_uring uring;

	unit_needs_uring();
	refuse("io_uring_queue_init", 0, EINVAL);
	refuse("io_uring_queue_init", 0, EINVAL);
	assert_int_equal(kvpull_uring_open(&uring, KVPULL_URING_ONE_THREAD, 8,
					   wake_fd, &lines_log),
			 0);
	assert_int_equal(refuse_end(), 2);
	assert_int_equal(uring.ring.flags & (IORING_SETUP_COOP_TASKRUN |
					     IORING_SETUP_SINGLE_ISSUER),
			 0);
	refuse("io_uring_register_buffers", 0, ENOMEM);
	assert_int_equal(kvpull_uring_register(&uring, bytes, sizeof(bytes)),
			 KVPULL_ENOMEM);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(uring.is_fixed, 0);
	assert_string_equal(
		lines.of[KVPULL_LOG_INFO],
		"io_uring: 8192 bytes of buffers not registered: Cannot allocate memory: memlock must hold all of it: raise ulimit -l");
	assert_int_equal(kvpull_uring_close(&uring, kvpull_clock_close_by()),
			 0);
	/* Three times is a kernel that has none. */
	refuse("io_uring_queue_init", 0, EINVAL);
	refuse("io_uring_queue_init", 0, EINVAL);
	refuse("io_uring_queue_init", 0, EINVAL);
	assert_int_equal(kvpull_uring_open(&uring, KVPULL_URING_ONE_THREAD, 8,
					   wake_fd, &lines_log),
			 KVPULL_EUNSUPPORTED);
	assert_int_equal(refuse_end(), 3);
	(void)close(wake_fd);
}

/* 1: a line of the last open of files said so. */
static int reads_to_plain_memory(int is_refused)
{
	const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct kvpull_files files;
	struct kvpull_arena arena;

	lines_forget();
	kvpull_arena_init(&arena, &lines_log);
	assert_int_equal(kvpull_files_open(&files, 4, &arena, &lines_log), 0);
	if (is_refused)
		refuse("io_uring_register_buffers", 0, ENOMEM);
	/* No thread is asked for: there is a ring. */
	assert_int_equal(kvpull_files_prepare(&files, KVPULL_URING_ANY_THREAD,
					      KVPULL_FILE_THREAD_NO, wake_fd),
			 0);
	assert_int_equal(refuse_end(), is_refused);
	assert_int_equal(files.uring.is_open, 1);
	assert_int_equal(files.uring.is_fixed, !is_refused);
	assert_int_equal(lines.counts[KVPULL_LOG_ERROR], 0);
	assert_int_equal(lines.counts[KVPULL_LOG_WARN], 0);
	kvpull_files_close(&files, kvpull_clock_close_by());
	kvpull_arena_fini(&arena);
	(void)close(wake_fd);
	return !strcmp(lines.last, "io_uring reads to plain memory");
}

TEST(buffers_that_are_not_registered_are_read_to_all_the_same)
{
	unit_needs_uring();
	assert_int_equal(reads_to_plain_memory(0), 0);
	assert_int_equal(reads_to_plain_memory(1), 1);
}

TEST(owner_may_sleep_until_a_slot_was_written)
{
	static _Alignas(4096) uint8_t from[SLOT_BYTES];
	struct kvpull_slots_result result;
	struct kvpull_slots slots = { 0 };
	struct pollfd wake = { .events = POLLIN };
	const char *why;

	/* There is no file. */
	assert_int_equal(kvpull_slots_arm(&slots), 0);
	assert_int_equal(slots_open(&slots, SLOT_BYTES, &why), 0);
	assert_int_equal(kvpull_slots_arm(&slots), 0);
	assert_int_equal(kvpull_slots_write(&slots, 3, from, 77), 0);
	wake.fd = slots.wake_fd;
	assert_int_equal(poll(&wake, 1, 60000), 1);
	assert_int_equal(kvpull_slots_arm(&slots), 1);
	assert_int_equal(kvpull_slots_poll(&slots, &result, 0), 0);
	assert_int_equal(kvpull_slots_arm(&slots), 1);
	assert_int_equal(kvpull_slots_poll(&slots, &result, 1), 1);
	assert_int_equal(result.tag, 77);
	assert_int_equal(result.code, 0);
	assert_int_equal(kvpull_slots_arm(&slots), 0);
	slots_close(&slots);
}
