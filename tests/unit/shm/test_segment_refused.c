/* SPDX-License-Identifier: Apache-2.0 */
/* Segments that the kernel does not make, seal or map: nothing of them is left. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "shm/segment.h"
#include "tests/lib/lines.h"
#include "tests/lib/refuse.h"

#define PAGE ((size_t)4096)
#define LARGE (KVPULL_HUGE_BYTES + PAGE)

/* clang-format off */
REFUSABLE(int, memfd_create, -1, (const char *name, unsigned int flags), (name, flags))
REFUSABLE(int, ftruncate, -1, (int fd, off_t bytes), (fd, bytes))
REFUSABLE(int, fcntl, -1, (int fd, int command, long argument), (fd, command, argument))
REFUSABLE(int, open, -1, (const char *path, int flags, mode_t mode), (path, flags, mode))
REFUSABLE(int, fstat, -1, (int fd, struct stat *status), (fd, status))
REFUSABLE(int, fstatfs, -1, (int fd, struct statfs *status), (fd, status))
REFUSABLE(int, madvise, -1, (void *at, size_t bytes, int advice), (at, bytes, advice))
#ifdef REFUSE_IS_PLAIN
REFUSABLE(void *, mmap, MAP_FAILED,
	  (void *at, size_t bytes, int protection, int flags, int fd, off_t offset),
	  (at, bytes, protection, flags, fd, offset))
#endif
/* clang-format on */

REFUSABLE_LIMIT(RLIMIT_FSIZE)

UNIT_FIXTURE(setup)
{
	lines_forget();
}

#define TEST(name) UNIT_TEST_WITH(name, setup, NULL)

struct row {
	size_t bytes;
	enum kvpull_segment_kind kind;
	struct refuse refused;
	int code;
	const char *said;
};

/* With the log; that is the code. */
static void make(struct kvpull_shared *shared, size_t bytes,
		 enum kvpull_segment_kind kind, int code)
{
	assert_int_equal(
		kvpull_segment_make(shared, "test", bytes, kind, 0, &lines_log),
		code);
}

/* clang-format off */
static const struct row makes[] = {
	{ PAGE, KVPULL_SEGMENT_READ_ONLY, { "memfd_create", 0, EMFILE }, KVPULL_ENOMEM, "segment test of 4096 bytes: cannot create a memfd: Too many open files" },
	{ PAGE, KVPULL_SEGMENT_READ_ONLY, { "memfd_create", 0, ENFILE }, KVPULL_EDEVICE, "segment test of 4096 bytes: cannot create a memfd: Too many open files in system" },
	{ PAGE, KVPULL_SEGMENT_READ_ONLY, { "ftruncate", 0, ENOSPC }, KVPULL_EDEVICE, "segment test of 4096 bytes: cannot set its size: No space left" },
	{ PAGE, KVPULL_SEGMENT_READ_ONLY, { "ftruncate", 0, ENOMEM }, KVPULL_ENOMEM, "segment test of 4096 bytes: cannot set its size: Cannot allocate memory" },
	{ PAGE, KVPULL_SEGMENT_READ_ONLY, { "madvise", 0, EINVAL }, KVPULL_EDEVICE, "segment test of 4096 bytes: cannot keep from dumps and children: Invalid" },
	{ LARGE, KVPULL_SEGMENT_SHARED, { "madvise", 1, ENOMEM }, KVPULL_ENOMEM, "segment test of 2101248 bytes: cannot keep from dumps and children: Cannot" },
	{ PAGE, KVPULL_SEGMENT_READ_ONLY, { "fcntl", 0, EINVAL }, KVPULL_EDEVICE, "cannot seal against writing (Linux 5.1 can): Invalid" },
	{ PAGE, KVPULL_SEGMENT_SHARED, { "fcntl", 0, EPERM }, KVPULL_EDEVICE, "segment test of 4096 bytes: cannot seal: Operation not permitted" },
	{ LARGE, KVPULL_SEGMENT_READ_ONLY, { "open", 0, ENOENT }, KVPULL_EDEVICE, "cannot reopen read-only through /proc/self/fd: No such file" },
#ifdef REFUSE_IS_PLAIN
	{ PAGE, KVPULL_SEGMENT_READ_ONLY, { "mmap", 0, ENODEV }, KVPULL_EDEVICE, "segment test of 4096 bytes: cannot map: No such device" },
	{ LARGE, KVPULL_SEGMENT_SHARED, { "mmap", 0, ENOMEM }, KVPULL_ENOMEM, "segment test of 2101248 bytes: cannot map: Cannot allocate memory" },
	{ LARGE, KVPULL_SEGMENT_SHARED, { "mmap", 1, ENODEV }, KVPULL_EDEVICE, "segment test of 2101248 bytes: cannot map: No such device" },
#endif
};
/* clang-format on */

TEST(segment_that_cannot_be_made_says_why_and_leaves_nothing)
{
	size_t at;

	for (at = 0; at < sizeof(makes) / sizeof(makes[0]); at++) {
		const struct row *row = &makes[at];
		const uint32_t fds = fds_open();
		const uint64_t mapped = refuse_mapped();
		struct kvpull_shared shared = { .reserved = 7 };
		int code;

		refuse(row->refused.call, row->refused.skip,
		       row->refused.error);
		code = kvpull_segment_make(&shared, "test", row->bytes,
					   row->kind, 0, &lines_log);
		assert_int_equal(errno, row->refused.error);
		assert_int_equal(refuse_end(), 1);
		assert_int_equal(code, row->code);
		assert_non_null(strstr(lines.bad, row->said));
		assert_int_equal(lines.counts[KVPULL_LOG_ERROR], at + 1);
		assert_int_equal(lines.counts[KVPULL_LOG_WARN], 0);
		assert_int_equal(lines.counts[KVPULL_LOG_INFO], at);
		assert_int_equal(shared.reserved, 7);
		assert_null(shared.base);
		assert_int_equal(fds_open(), fds);
		assert_int_equal(refuse_mapped(), mapped);
		make(&shared, row->bytes, row->kind, 0);
		kvpull_segment_unmake(&shared);
	}
}

/* The caller, who gave no log, says so by errno. */
TEST(failed_segment_without_a_log_keeps_its_errno)
{
	struct kvpull_shared shared;

	refuse("ftruncate", 0, ENOSPC);
	assert_int_equal(kvpull_segment_make(&shared, "test", PAGE,
					     KVPULL_SEGMENT_SHARED, 0, NULL),
			 KVPULL_EDEVICE);
	assert_int_equal(errno, ENOSPC);
	assert_int_equal(refuse_end(), 1);
}

TEST(kernel_without_the_exec_seal_makes_segments_all_the_same)
{
	struct kvpull_shared shared;

	refuse("memfd_create", 0, EINVAL);
	make(&shared, PAGE, KVPULL_SEGMENT_READ_ONLY, 0);
	assert_int_equal(refuse_end(), 1);
	assert_non_null(
		strstr(lines.of[KVPULL_LOG_INFO], "kernel knows no exec seal"));
	assert_true(fcntl(shared.fd, F_GETFD, 0) & FD_CLOEXEC);
	assert_true(fcntl(shared.fd, F_GET_SEALS, 0) & F_SEAL_SHRINK);
	kvpull_segment_unmake(&shared);
	/* Another error is no older kernel. */
	refuse("memfd_create", 0, EPERM);
	make(&shared, PAGE, KVPULL_SEGMENT_READ_ONLY, KVPULL_EDEVICE);
	assert_int_equal(refuse_end(), 1);
	make(&shared, PAGE, KVPULL_SEGMENT_READ_ONLY, 0);
	assert_non_null(
		strstr(lines.of[KVPULL_LOG_INFO], "sealed against execution"));
	kvpull_segment_unmake(&shared);
}

/* "": no line, the shortage is ours. */
/* clang-format off */
static const struct row maps[] = {
	{ PAGE, KVPULL_SEGMENT_READ_ONLY, { "fcntl", 0, EINVAL }, KVPULL_EPROTO, "a peer's segment of 4096 bytes is no memfd" },
	{ PAGE, KVPULL_SEGMENT_READ_ONLY, { "fcntl", 1, EBADF }, KVPULL_EPROTO, "a peer's segment of 4096 bytes is no memfd" },
	{ PAGE, KVPULL_SEGMENT_READ_ONLY, { "fstatfs", 0, EIO }, KVPULL_EPROTO, "is no memfd of ordinary pages" },
	{ PAGE, KVPULL_SEGMENT_SHARED, { "fstat", 0, EIO }, KVPULL_EPROTO, "a peer's segment of 4096 bytes has no size" },
	{ PAGE, KVPULL_SEGMENT_SHARED, { "madvise", 0, ENOMEM }, KVPULL_ENOMEM, "" },
	{ LARGE, KVPULL_SEGMENT_READ_ONLY, { "madvise", 1, EINVAL }, KVPULL_ENOMEM, "" },
#ifdef REFUSE_IS_PLAIN
	{ PAGE, KVPULL_SEGMENT_SHARED, { "mmap", 0, ENOMEM }, KVPULL_ENOMEM, "" },
	{ LARGE, KVPULL_SEGMENT_READ_ONLY, { "mmap", 0, ENOMEM }, KVPULL_ENOMEM, "" },
	{ LARGE, KVPULL_SEGMENT_READ_ONLY, { "mmap", 1, EAGAIN }, KVPULL_ENOMEM, "" },
#endif
};
/* clang-format on */

TEST(segment_of_a_peer_that_cannot_be_mapped_leaves_nothing)
{
	size_t at;

	for (at = 0; at < sizeof(maps) / sizeof(maps[0]); at++) {
		const struct row *row = &maps[at];
		struct kvpull_shared shared;
		uint8_t *base = NULL;
		uint64_t mapped;
		uint32_t fds;
		int code;

		assert_int_equal(kvpull_segment_make(&shared, "test",
						     row->bytes, row->kind, 0,
						     NULL),
				 0);
		fds = fds_open();
		mapped = refuse_mapped();
		lines.bad[0] = '\0';
		refuse(row->refused.call, row->refused.skip,
		       row->refused.error);
		code = kvpull_segment_map(shared.fd, row->bytes, row->kind,
					  &lines_log, &base);
		assert_int_equal(errno, row->refused.error);
		assert_int_equal(refuse_end(), 1);
		assert_int_equal(code, row->code);
		assert_null(base);
		assert_true(row->said[0] ? !!strstr(lines.bad, row->said) :
					   !lines.bad[0]);
		assert_int_equal(fds_open(), fds);
		assert_int_equal(refuse_mapped(), mapped);
		assert_int_equal(kvpull_segment_map(shared.fd, row->bytes,
						    row->kind, &lines_log,
						    &base),
				 0);
		kvpull_segment_unmap(base, row->bytes);
		assert_int_equal(refuse_mapped(), mapped);
		kvpull_segment_unmake(&shared);
	}
}

TEST(size_of_a_segment_is_told_of_a_memfd_alone)
{
	struct kvpull_shared shared;
	uint64_t bytes = 7;

	assert_int_equal(kvpull_segment_make(&shared, "test", 3 * PAGE,
					     KVPULL_SEGMENT_SHARED, 0, NULL),
			 0);
	refuse("fcntl", 0, EINVAL);
	assert_int_equal(kvpull_segment_bytes(shared.fd, &bytes),
			 KVPULL_EPROTO);
	assert_int_equal(refuse_end(), 1);
	refuse("fstat", 0, EIO);
	assert_int_equal(kvpull_segment_bytes(shared.fd, &bytes),
			 KVPULL_EPROTO);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(bytes, 7);
	assert_int_equal(kvpull_segment_bytes(shared.fd, &bytes), 0);
	assert_int_equal(bytes, 3 * PAGE);
	kvpull_segment_unmake(&shared);
}

TEST(segment_is_within_the_limit_of_a_files_length)
{
	struct kvpull_shared shared;

	limit_told = 2 * PAGE - 1;
	make(&shared, 2 * PAGE, KVPULL_SEGMENT_SHARED, KVPULL_EDEVICE);
	assert_string_equal(
		lines.bad,
		"segment test of 8192 bytes: cannot set its size: File too large: raise ulimit -f");
	limit_told++;
	make(&shared, 2 * PAGE, KVPULL_SEGMENT_SHARED, 0);
	limit_told = 0;
	kvpull_segment_unmake(&shared);
}

TEST(segment_of_a_peer_has_the_bytes_that_it_says)
{
	struct kvpull_shared shared;
	uint8_t *base = NULL;

	assert_int_equal(kvpull_segment_make(&shared, "test", PAGE,
					     KVPULL_SEGMENT_SHARED, 0, NULL),
			 0);
	assert_int_equal(kvpull_segment_map(shared.fd, 0, KVPULL_SEGMENT_SHARED,
					    &lines_log, &base),
			 KVPULL_EPROTO);
	assert_string_equal(
		lines.bad,
		"a peer's segment of 0 bytes is shorter than its peer says");
	assert_int_equal(kvpull_segment_map(shared.fd, PAGE + 1,
					    KVPULL_SEGMENT_SHARED, &lines_log,
					    &base),
			 KVPULL_EPROTO);
	assert_null(base);
	assert_int_equal(kvpull_segment_map(shared.fd, PAGE,
					    KVPULL_SEGMENT_SHARED, &lines_log,
					    &base),
			 0);
	kvpull_segment_unmap(base, PAGE);
	kvpull_segment_unmap(NULL, PAGE);
	kvpull_segment_unmake(&shared);
}
