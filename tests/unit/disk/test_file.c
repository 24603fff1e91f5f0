/* SPDX-License-Identifier: Apache-2.0 */
/* Files that a producer may serve, and that a consumer takes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/file.h"
#include "tests/lib/lines.h"
#include "tests/lib/unit.h"
#include "tests/unit/disk/sandbox.h"

#define FILE_BYTES 20000u

/* As an engine makes it; FILE_BYTES long. */
static int file_make(void)
{
	int fd = open("/tmp", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0) /* a file system that has none */
		fd = memfd_create("test-file", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, FILE_BYTES), 0);
	return fd;
}

static int reopen(int fd, int flags)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

/* ---- producer ---- */

UNIT_TEST(unnamed_file_is_served_read_only)
{
	const uint32_t before = fds_open();
	const int fd = file_make();
	const char *why = NULL;
	struct stat status;
	int handed = -1;

	assert_int_equal(kvpull_file_serve(fd, 0, FILE_BYTES, &handed, &why),
			 0);
	assert_null(why);
	assert_int_equal(fcntl(handed, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(fcntl(handed, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(fstat(handed, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0444);
	/* The engine writes on. */
	assert_int_equal(pwrite(fd, "x", 1, 0), 1);
	(void)close(handed);
	(void)close(fd);
	assert_int_equal(fds_open(), before);
}

static int writing_child(int handed)
{
	int fd;

	if (geteuid())
		return SANDBOX_SKIP;
	if (sandbox_drop_privileges(0))
		return SANDBOX_SKIP;
	fd = reopen(handed, O_RDONLY);
	if (fd < 0)
		return 1;
	return reopen(handed, O_RDWR) < 0 && errno == EACCES ? 0 : 2;
}

UNIT_TEST(another_uid_can_read_what_is_handed_over_but_not_write)
{
	const int fd = file_make();
	const char *why;
	int handed = -1;

	assert_int_equal(kvpull_file_serve(fd, 0, FILE_BYTES, &handed, &why),
			 0);
	(void)close(fd);
	sandbox_expect(writing_child, handed);
	(void)close(handed);
}

UNIT_TEST(memfd_is_served)
{
	const int fd = memfd_create("test-file", MFD_CLOEXEC);
	const char *why;
	int handed = -1;

	assert_int_equal(ftruncate(fd, FILE_BYTES), 0);
	assert_int_equal(
		kvpull_file_serve(fd, 4096, FILE_BYTES - 4096, &handed, &why),
		0);
	(void)close(handed);
	(void)close(fd);
}

/* Refused, with that word in the reason; the argument is closed. */
static void serve_refuses(int fd, uint64_t offset, uint64_t bytes,
			  const char *word)
{
	const uint32_t before = fds_open();
	const char *why = NULL;
	int handed = -1;

	assert_int_equal(kvpull_file_serve(fd, offset, bytes, &handed, &why),
			 KVPULL_EINVAL);
	assert_non_null(why);
	assert_non_null(strstr(why, word));
	assert_int_equal(handed, -1);
	assert_int_equal(fds_open(), before);
	(void)close(fd);
}

UNIT_TEST(file_with_a_name_is_not_served)
{
	char path[] = "/tmp/kvpull-test-XXXXXX";
	const int fd = mkstemp(path);
	struct stat status;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, FILE_BYTES), 0);
	serve_refuses(dup(fd), 0, FILE_BYTES, "name");
	/* And not changed either. */
	assert_int_equal(fstat(fd, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	assert_int_equal(unlink(path), 0);
	(void)close(fd);
}

UNIT_TEST(what_is_no_file_is_not_served)
{
	int pipes[2];

	assert_int_equal(pipe(pipes), 0);
	serve_refuses(pipes[0], 0, 1, "regular");
	(void)close(pipes[1]);
	serve_refuses(open("/tmp", O_RDONLY | O_DIRECTORY), 0, 1, "regular");
	serve_refuses(open("/dev/zero", O_RDONLY), 0, 1, "regular");
	serve_refuses(eventfd(0, 0), 0, 1, "regular");
	serve_refuses(-1, 0, 1, "open");
}

UNIT_TEST(file_that_cannot_be_read_is_not_served)
{
	int fd = open("/tmp", O_TMPFILE | O_WRONLY, 0600);

	if (fd < 0)
		skip();
	assert_int_equal(ftruncate(fd, FILE_BYTES), 0);
	serve_refuses(fd, 0, FILE_BYTES, "reading");
	fd = file_make();
	serve_refuses(reopen(fd, O_PATH), 0, FILE_BYTES, "reading");
	(void)close(fd);
}

UNIT_TEST(file_that_is_too_short_is_not_served)
{
	serve_refuses(file_make(), 0, FILE_BYTES + 1, "short");
	serve_refuses(file_make(), 1, FILE_BYTES, "short");
	serve_refuses(file_make(), FILE_BYTES, 1, "short");
	serve_refuses(file_make(), 0, 0, "short");
	serve_refuses(file_make(), UINT64_MAX, 2, "short");
	serve_refuses(file_make(), 2, UINT64_MAX, "short");
	serve_refuses(file_make(), INT64_MAX, 1, "short");
}

UNIT_TEST(file_of_another_uid_is_not_served)
{
	const int fd = file_make();

	if (fchown(fd, SANDBOX_UID, SANDBOX_UID)) {
		(void)close(fd);
		skip(); /* only root gives files away */
	}
	serve_refuses(fd, 0, FILE_BYTES, "uid");
}

/* ---- consumer ---- */

static int take(struct kvpull_file *file, int fd, uint64_t offset,
		uint64_t bytes)
{
	*file = (struct kvpull_file){ .bytes = bytes, .offset = offset };
	return kvpull_file_open(file, fd, KVPULL_FILE_DIRECT_AUTO, &lines_log);
}

UNIT_TEST(file_is_taken_and_its_descriptor_duplicated)
{
	const uint32_t before = fds_open();
	const int fd = file_make();
	const int handed = reopen(fd, O_RDONLY);
	struct kvpull_file file;
	char byte;

	assert_int_equal(pwrite(fd, "k", 1, 5000), 1);
	assert_int_equal(take(&file, handed, 1, FILE_BYTES - 1), 0);
	(void)close(handed);
	(void)close(fd);
	assert_int_equal(pread(file.fd, &byte, 1, 5000), 1);
	assert_int_equal(byte, 'k');
	assert_int_equal(fcntl(file.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	/* A power of two; of 1 no direct reads are made. */
	assert_in_range(file.align, 1, KVPULL_FILE_ALIGN_MAX);
	assert_int_equal(file.align & (file.align - 1), 0);
	assert_true(file.align == 1 || file.direct_fd >= 0);
	if (file.direct_fd >= 0)
		assert_true(fcntl(file.direct_fd, F_GETFL) & O_DIRECT);
	kvpull_file_close(&file);
	kvpull_file_close(&file);
	assert_int_equal(fds_open(), before);
}

UNIT_TEST(direct_reads_can_be_switched_off)
{
	const int fd = file_make();
	const int handed = reopen(fd, O_RDONLY);
	struct kvpull_file file = { .bytes = FILE_BYTES };

	assert_int_equal(kvpull_file_open(&file, handed, KVPULL_FILE_DIRECT_NO,
					  &lines_log),
			 0);
	assert_int_equal(file.direct_fd, -1);
	assert_int_equal(file.align, 1);
	assert_non_null(strstr(lines.last, "without O_DIRECT"));
	kvpull_file_close(&file);
	(void)close(handed);
	(void)close(fd);
}

/* sysfs says that its files are a page long, and has no O_DIRECT. */
UNIT_TEST(file_system_without_direct_reads_is_read_all_the_same)
{
	const int fd = open("/sys/kernel/uevent_seqnum", O_RDONLY | O_CLOEXEC);
	struct kvpull_file file;
	struct stat status;

	if (fd < 0 || fstat(fd, &status) || !status.st_size)
		skip();
	assert_int_equal(take(&file, fd, 0, 1), 0);
	assert_int_equal(file.direct_fd, -1);
	assert_int_equal(file.align, 1);
	kvpull_file_close(&file);
	(void)close(fd);
}

/* Refused; the argument is closed, nothing else stays open. */
static void open_refuses(int fd, uint64_t offset, uint64_t bytes)
{
	const uint32_t before = fds_open();
	const struct kvpull_file none = { 0 };
	struct kvpull_file file;

	assert_int_equal(take(&file, fd, offset, bytes), KVPULL_EPROTO);
	assert_memory_equal(&file, &none, sizeof(file));
	/* A peer can cause it: so it is one of the lines that are counted. */
	assert_int_equal(lines.level, KVPULL_LOG_WARN);
	kvpull_file_close(&file);
	assert_int_equal(fds_open(), before);
	(void)close(fd);
}

UNIT_TEST(what_is_no_file_is_not_taken)
{
	int pipes[2];

	assert_int_equal(pipe(pipes), 0);
	open_refuses(pipes[0], 0, 1);
	(void)close(pipes[1]);
	open_refuses(open("/dev/zero", O_RDONLY), 0, 1);
	open_refuses(open("/tmp", O_RDONLY | O_DIRECTORY), 0, 1);
	open_refuses(-1, 0, 1);
}

UNIT_TEST(file_that_could_be_written_is_not_taken)
{
	const int fd = file_make();

	open_refuses(reopen(fd, O_RDWR), 0, FILE_BYTES);
	open_refuses(reopen(fd, O_WRONLY), 0, FILE_BYTES);
	open_refuses(reopen(fd, O_PATH), 0, FILE_BYTES);
	(void)close(fd);
}

UNIT_TEST(file_that_is_too_short_is_not_taken)
{
	const int fd = file_make();

	open_refuses(reopen(fd, O_RDONLY), 0, FILE_BYTES + 1);
	open_refuses(reopen(fd, O_RDONLY), 1, FILE_BYTES);
	open_refuses(reopen(fd, O_RDONLY), UINT64_MAX, 2);
	open_refuses(reopen(fd, O_RDONLY), INT64_MAX, 2);
	(void)close(fd);
}

static int no_descriptors_child(int handed)
{
	const struct rlimit none = { 0, 0 };
	struct kvpull_file file;

	if (setrlimit(RLIMIT_NOFILE, &none))
		return SANDBOX_SKIP;
	return take(&file, handed, 0, FILE_BYTES) != KVPULL_ENOMEM ||
	       file.bytes;
}

/* The owner writes direct, and no descriptor is left to read so: none stays. */
static int no_second_descriptor_child(int handed)
{
	struct kvpull_file file = { .bytes = FILE_BYTES };
	struct rlimit one_more;
	const int next = fcntl(handed, F_DUPFD_CLOEXEC, 0);

	(void)close(next);
	one_more = (struct rlimit){ (rlim_t)next + 1, (rlim_t)next + 1 };
	if (fcntl(handed, F_SETFL, O_DIRECT) ||
	    !(fcntl(handed, F_GETFL) & O_DIRECT) ||
	    setrlimit(RLIMIT_NOFILE, &one_more))
		return SANDBOX_SKIP;
	if (kvpull_file_open(&file, handed, KVPULL_FILE_DIRECT_STRICT,
			     &lines_log) != KVPULL_EUNSUPPORTED)
		return 1;
	/* The descriptor that it took is free again. */
	return file.bytes || fcntl(handed, F_DUPFD_CLOEXEC, 0) != next;
}

UNIT_TEST(file_that_must_be_read_direct_is_refused_whole)
{
	const int fd = file_make();
	const int handed = reopen(fd, O_RDONLY);

	sandbox_expect(no_second_descriptor_child, handed);
	(void)close(handed);
	(void)close(fd);
}

UNIT_TEST(out_of_descriptors_is_no_fault_of_the_peer)
{
	const int fd = file_make();
	const int handed = reopen(fd, O_RDONLY);

	sandbox_expect(no_descriptors_child, handed);
	(void)close(handed);
	(void)close(fd);
}
