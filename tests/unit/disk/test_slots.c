/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner's file of slots: where it may not be made, a disk that takes only a
 * part of what it is given, and a ring that gives up.
 */
#undef _FORTIFY_SOURCE /* whose pwrite() may be inline */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "shm/file.h"
#include "shm/folder.h"
#include "shm/mount.h"
#include "shm/slots.h"
#include "tests/unit/disk/sandbox.h"
#include "tests/unit/disk/world.h"

#define SLOT_BYTES 16384u
#define HANG_S 30u

/* Largest pwrite(); 0: no limit. */
static _Atomic uint32_t most;
/* pwrite() writes all and returns this much; 0: it returns all. */
static _Atomic uint32_t most_said;
static _Atomic uint32_t pwrites;

/* In the place of libc's, for the library that is linked to this program. */
ssize_t pwrite(int fd, const void *bytes, size_t byte_count, off_t offset)
{
	const size_t limit = atomic_load_explicit(&most, memory_order_relaxed);
	const struct iovec part = {
		.iov_base = (void *)(uintptr_t)bytes,
		.iov_len = limit && limit < byte_count ? limit : byte_count,
	};
	const size_t told =
		atomic_load_explicit(&most_said, memory_order_relaxed);
	const ssize_t taken = pwritev(fd, &part, 1, offset);

	atomic_fetch_add_explicit(&pwrites, 1, memory_order_relaxed);
	return told && taken > (ssize_t)told ? (ssize_t)told : taken;
}

/* io_uring cancels entries that it has not begun when their thread ends. */
static uint32_t ring_gives_up;
static uint32_t given_up;

uint32_t __real_kvpull_uring_poll(struct kvpull_uring *uring,
				  struct kvpull_uring_result *results,
				  uint32_t capacity);
uint32_t __wrap_kvpull_uring_poll(struct kvpull_uring *uring,
				  struct kvpull_uring_result *results,
				  uint32_t capacity);

uint32_t __wrap_kvpull_uring_poll(struct kvpull_uring *uring,
				  struct kvpull_uring_result *results,
				  uint32_t capacity)
{
	const uint32_t count =
		__real_kvpull_uring_poll(uring, results, capacity);
	uint32_t at;

	for (at = 0; ring_gives_up && at < count; at++) {
		results[at].code = -ECANCELED;
		given_up++;
	}
	return count;
}

static char said[2048];

static int fuse_fd = -1; /* whose end ends all waits for its answers */

static void hear(void *context, uint32_t level, const char *line)
{
	const size_t used = strlen(said);

	if (strstr(line, "of another program or machine") && fuse_fd >= 0) {
		(void)close(fuse_fd);
		fuse_fd = -1;
	}
	(void)context;
	(void)level;
	(void)snprintf(said + used, sizeof(said) - used, "%s\n", line);
}

static const struct kvpull_log heard = { .write = hear,
					 .level = KVPULL_LOG_DEBUG };

static int slots_open_by(struct kvpull_slots *slots, const char *folder,
			 enum kvpull_uring_mode uring, const char **why)
{
	const struct kvpull_slots_params params = {
		.log = &heard,
		.folder = folder,
		.slot_bytes = SLOT_BYTES,
		.slot_count = 4,
		.uring = uring,
	};

	return kvpull_slots_open(slots, &params, why);
}

static int slots_open(struct kvpull_slots *slots, const char *folder,
		      const char **why)
{
	return slots_open_by(slots, folder, KVPULL_URING_NO, why);
}

/* Writes a slot; returns its code. */
static int32_t slot_write(struct kvpull_slots *slots, uint32_t slot,
			  const uint8_t *from)
{
	struct kvpull_slots_result result;

	assert_int_equal(kvpull_slots_write(slots, slot, from, 7), 0);
	while (!kvpull_slots_poll(slots, &result, 1))
		(void)poll(NULL, 0, 1);
	assert_int_equal(result.tag, 7);
	return result.code;
}

static void expect_written_by(uint32_t at_once, int32_t code)
{
	struct kvpull_slots slots;
	uint8_t *from = pages(SLOT_BYTES);
	uint8_t *back = pages(SLOT_BYTES);
	const char *why;
	uint32_t at;

	for (at = 0; at < SLOT_BYTES; at++)
		from[at] = (uint8_t)(at * 31 >> 3);
	assert_int_equal(slots_open(&slots, "/var/tmp", &why), 0);
	atomic_store_explicit(&most, at_once, memory_order_relaxed);
	assert_int_equal(slot_write(&slots, 1, from), code);
	atomic_store_explicit(&most, 0, memory_order_relaxed);
	atomic_store_explicit(&most_said, 0, memory_order_relaxed);
	assert_int_equal(pread(slots.read_fd, back, SLOT_BYTES, SLOT_BYTES),
			 SLOT_BYTES);
	if (!code)
		assert_memory_equal(from, back, SLOT_BYTES);
	assert_int_equal(kvpull_slots_close(&slots, kvpull_clock_close_by()),
			 0);
	(void)munmap(from, SLOT_BYTES);
	(void)munmap(back, SLOT_BYTES);
}

UNIT_TEST(a_slot_is_written_when_all_of_it_is)
{
	expect_written_by(0, 0);
	expect_written_by(SLOT_BYTES / 4, 0);
}

/*
 * The write goes on where a direct write may begin, and writes some bytes
 * twice.
 */
UNIT_TEST(a_slot_goes_on_where_its_disk_takes_it)
{
	atomic_store_explicit(&most_said, SLOT_BYTES / 4 + 100,
			      memory_order_relaxed);
	expect_written_by(0, 0);
}

UNIT_TEST(a_slot_beyond_four_gib_is_where_it_belongs)
{
	const uint32_t far = (uint32_t)((UINT64_C(1) << 32) / SLOT_BYTES) + 1;
	struct kvpull_slots slots;
	uint8_t *from = pages(SLOT_BYTES);
	uint8_t *back = pages(SLOT_BYTES);
	const char *why;

	memset(from, 7, SLOT_BYTES);
	assert_int_equal(slots_open(&slots, "/var/tmp", &why), 0);
	/* The file grows by it, and takes no room for what is between. */
	assert_int_equal(slot_write(&slots, far, from), 0);
	assert_int_equal(
		pread(slots.read_fd, back, SLOT_BYTES, (off_t)far * SLOT_BYTES),
		SLOT_BYTES);
	assert_memory_equal(from, back, SLOT_BYTES);
	assert_int_equal(kvpull_slots_close(&slots, kvpull_clock_close_by()),
			 0);
	(void)munmap(from, SLOT_BYTES);
	(void)munmap(back, SLOT_BYTES);
}

/* Ends make room in a poll, whenever the disk has made them. */
UNIT_TEST(writes_are_as_many_as_there_is_place_for)
{
	struct kvpull_slots_result result;
	struct kvpull_slots slots;
	uint8_t *from = pages(SLOT_BYTES);
	const char *why;
	uint32_t at;

	assert_int_equal(slots_open(&slots, "/var/tmp", &why), 0);
	for (at = 0; at < KVPULL_SLOTS_DEPTH; at++)
		assert_int_equal(kvpull_slots_write(&slots, at % 4, from, at),
				 0);
	assert_int_equal(kvpull_slots_write(&slots, 0, from, at),
			 KVPULL_EAGAIN);
	while (!kvpull_slots_poll(&slots, &result, 1))
		(void)poll(NULL, 0, 1);
	assert_int_equal(kvpull_slots_write(&slots, 0, from, at), 0);
	while (slots.open_count)
		if (!kvpull_slots_poll(&slots, &result, 1))
			(void)poll(NULL, 0, 1);
	assert_int_equal(kvpull_slots_close(&slots, kvpull_clock_close_by()),
			 0);
	(void)munmap(from, SLOT_BYTES);
}

/* Nothing stays open of what is refused; one write takes a slot. */
UNIT_TEST(slots_that_are_refused_leave_nothing_open)
{
	const uint32_t before = fds_open();
	struct kvpull_slots_params params = {
		.log = &heard,
		.folder = "/var/tmp",
		.slot_bytes = KVPULL_SLOT_BYTES_MAX + UINT64_C(4096),
		.slot_count = 1,
		.uring = KVPULL_URING_NO,
	};
	struct kvpull_slots slots;
	const char *why = "";

	assert_int_equal(kvpull_slots_open(&slots, &params, &why),
			 KVPULL_EINVAL);
	assert_non_null(strstr(why, "1 GiB"));
	/* No disk has so much room: its file is there by then. */
	params.slot_bytes = KVPULL_SLOT_BYTES_MAX;
	params.slot_count = UINT32_MAX;
	assert_int_equal(kvpull_slots_open(&slots, &params, &why),
			 KVPULL_EINVAL);
	assert_non_null(strstr(why, "no room"));
	assert_int_equal(fds_open(), before);
}

UNIT_TEST(a_disk_that_takes_only_crumbs_is_an_error)
{
	said[0] = '\0';
	/* The text says so: a write is as long as O_DIRECT needs. */
	atomic_store_explicit(&most_said, SLOT_BYTES / 32,
			      memory_order_relaxed);
	expect_written_by(0, KVPULL_EREAD);
	assert_non_null(strstr(said, "only a part is taken"));
}

/*
 * A host whose polls are threads that end at once, on a busy machine: the ring
 * begins nothing before it gives it up, and a thread of the library's writes.
 */
UNIT_TEST(what_a_ring_gives_up_is_written_by_a_thread)
{
	const uint32_t before = fds_open();
	struct kvpull_slots slots;
	uint8_t *from = pages(SLOT_BYTES);
	const char *why;
	uint32_t tries;

	unit_needs_uring();
	memset(from, 7, SLOT_BYTES);
	assert_int_equal(slots_open_by(&slots, "/var/tmp",
				       KVPULL_URING_ANY_THREAD, &why),
			 0);
	assert_true(slots.uring.is_open);
	atomic_store_explicit(&pwrites, 0, memory_order_relaxed);
	ring_gives_up = 1;
	given_up = 0;
	assert_int_equal(slot_write(&slots, 1, from), 0);
	assert_int_equal(atomic_load_explicit(&pwrites, memory_order_relaxed),
			 1);
	tries = given_up;
	assert_in_range(tries, 1, 8);
	/* Each slot has as many tries: other threads may live on. */
	assert_int_equal(slot_write(&slots, 2, from), 0);
	assert_int_equal(given_up, 2 * tries);
	ring_gives_up = 0;
	assert_int_equal(slot_write(&slots, 3, from), 0);
	assert_int_equal(atomic_load_explicit(&pwrites, memory_order_relaxed),
			 2);
	assert_int_equal(kvpull_slots_close(&slots, kvpull_clock_close_by()),
			 0);
	/* A single thread was enough, and has ended. */
	assert_int_equal(fds_open(), before);
	(void)munmap(from, SLOT_BYTES);
}

/* Nor is it tried for ever where no thread can be had. */
UNIT_TEST(what_a_ring_gives_up_is_an_error_without_a_thread)
{
	struct kvpull_slots slots;
	uint8_t *from = pages(SLOT_BYTES);
	struct rlimit before;
	struct rlimit none;
	const char *why;

	unit_needs_uring();
	said[0] = '\0';
	assert_int_equal(slots_open_by(&slots, "/var/tmp",
				       KVPULL_URING_ANY_THREAD, &why),
			 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	ring_gives_up = 1;
	assert_int_equal(slot_write(&slots, 1, from), KVPULL_EREAD);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_non_null(strstr(said, "no thread for files"));
	assert_non_null(strstr(said, "were not written"));
	/* And then one can. */
	assert_int_equal(slot_write(&slots, 1, from), 0);
	ring_gives_up = 0;
	assert_int_equal(kvpull_slots_close(&slots, kvpull_clock_close_by()),
			 0);
	(void)munmap(from, SLOT_BYTES);
}

/* fallocate() beyond it would end the process. */
static int longer_than_a_file_may_be(int argument)
{
	const struct rlimit limit = { 2 * SLOT_BYTES, 2 * SLOT_BYTES };
	struct kvpull_slots slots;
	const char *why;

	(void)argument;
	(void)signal(SIGXFSZ, SIG_DFL);
	if (setrlimit(RLIMIT_FSIZE, &limit))
		return SANDBOX_SKIP;
	return slots_open(&slots, "/var/tmp", &why) != KVPULL_EINVAL ||
	       !strstr(why, "ulimit -f");
}

UNIT_TEST(a_file_that_may_not_be_so_long_is_refused)
{
	sandbox_expect(longer_than_a_file_may_be, 0);
}

/* Mounts from here on are this process's alone. */
static int mounts_begin(void)
{
	return unshare(CLONE_NEWNS) ||
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

/* There is less on the whole disk than the file is to have. */
static int disk_is_too_small(int argument)
{
	char folder[] = "/tmp/kvpull-small-XXXXXX";
	struct kvpull_slots slots;
	const char *why = "";
	int code = 0;
	int is_there;

	(void)argument;
	if (!mkdtemp(folder))
		return SANDBOX_SKIP;
	is_there = !mounts_begin() &&
		   !mount("small", folder, "tmpfs", MS_NOSUID, "size=32k");
	if (is_there) {
		code = slots_open(&slots, folder, &why);
		(void)umount2(folder, MNT_DETACH);
	}
	(void)rmdir(folder);
	if (!is_there)
		return SANDBOX_SKIP;
	return code != KVPULL_EINVAL || !strstr(why, "no room") ||
	       !strstr(said, "No space left");
}

UNIT_TEST(a_disk_that_is_too_small_is_refused)
{
	sandbox_expect(disk_is_too_small, 0);
}

/* A FUSE file system whose program answers nothing, on this folder. */
static int mount_fuse(const char *folder)
{
	const int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[96];

	(void)snprintf(options, sizeof(options),
		       "fd=%d,rootmode=40000,user_id=%u,group_id=%u", fd,
		       (unsigned)geteuid(), (unsigned)getegid());
	return fd < 0 || mounts_begin() ||
			       mount("hung", folder, "fuse.kvpull",
				     MS_NOSUID | MS_NODEV, options) ?
		       -1 :
		       fd;
}

/* Uses such a folder. Returns 0 if the result is right. */
static int (*fuse_use)(const char *folder, int fd);

static int fuse_run(int argument)
{
	char folder[] = "/tmp/kvpull-fuse-XXXXXX";
	int verdict = SANDBOX_SKIP;
	int fd;

	(void)argument;
	if (!mkdtemp(folder))
		return SANDBOX_SKIP;
	fd = mount_fuse(folder);
	if (fd >= 0) {
		/* If the test hangs here, the alarm ends it. */
		(void)alarm(HANG_S);
		verdict = fuse_use(folder, fd);
		(void)alarm(0);
		(void)umount2(folder, MNT_DETACH);
		(void)close(fd);
	}
	(void)rmdir(folder);
	return verdict;
}

static void fuse_expect(int (*use)(const char *folder, int fd))
{
	fuse_use = use;
	sandbox_expect(fuse_run, 0);
}

static int slots_are_refused(const char *folder, int fd)
{
	struct kvpull_slots slots;
	const char *why = "";
	const int code = slots_open(&slots, folder, &why);

	(void)fd;
	return code != KVPULL_EINVAL ||
	       !strstr(why, "of another program or machine") ||
	       !strstr(said, "is fuse");
}

UNIT_TEST(a_folder_that_never_answers_is_refused)
{
	fuse_expect(slots_are_refused);
}

/* A name in it, which would have to be looked up there. */
static int slots_below_are_refused(const char *folder, int fd)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "%s/a/b", folder);
	return slots_are_refused(name, fd);
}

UNIT_TEST(likewise_what_lies_in_it)
{
	fuse_expect(slots_below_are_refused);
}

/* The folder itself, by a descriptor for which nothing was asked yet. */
static int it_is_not_lent(const char *folder, int fd)
{
	const int file = open(folder, O_PATH | O_CLOEXEC);
	struct kvpull_file_lent lent;
	const char *why = "";
	const int code = kvpull_file_lend(file, 0, SLOT_BYTES, &lent, &why);

	(void)fd;
	(void)close(file);
	return code != KVPULL_EINVAL ||
	       !strstr(why, "of another program or machine");
}

UNIT_TEST(a_file_that_never_answers_is_not_lent)
{
	fuse_expect(it_is_not_lent);
}

/*
 * The line comes before the first call into the folder, which may never return.
 */
static int it_is_said_of_sockets(const char *path, int fd)
{
	struct kvpull_folder folder = { .path = path, .fd = -1 };
	int code;

	fuse_fd = fd;
	code = kvpull_folder_make(&folder, &heard);
	return code != KVPULL_EDEVICE || fuse_fd >= 0;
}

UNIT_TEST(a_socket_folder_that_may_not_answer_is_said)
{
	fuse_expect(it_is_said_of_sockets);
}

UNIT_TEST(a_socket_folder_of_this_machine_is_not)
{
	struct kvpull_folder folder = { .path = "/tmp", .fd = -1 };

	said[0] = '\0';
	assert_int_equal(kvpull_folder_open(&folder, &heard), 0);
	assert_null(strstr(said, "of another program"));
	kvpull_folder_close(&folder);
}

UNIT_TEST(folders_of_this_machine_are_local)
{
	static const char *const local[] = {
		"/", "/tmp", "/dev/shm/", "tests", "/nowhere/at/all", "."
	};
	char type[KVPULL_MOUNT_TYPE_BYTES];
	size_t at;

	for (at = 0; at < sizeof(local) / sizeof(local[0]); at++)
		if (!kvpull_mount_is_local(local[at], type))
			fail_msg("%s is %s", local[at], type);
}
