/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files whose system calls are refused: why they are not served, lent or taken,
 * and that they are as they were. O_DIRECT of each alignment.
 */
#include <sys/file.h>

#include "shm/file.h"
#include "tests/lib/lines.h"
#include "tests/unit/disk/kernel.h"

#define FILE_BYTES 20000u

struct row {
	struct refuse refused;
	int code;
	const char *why;
};

UNIT_FIXTURE(up)
{
	lines_forget();
	memset(&direct, 0, sizeof(direct));
}

#define TEST(name) UNIT_TEST_WITH(name, up, NULL)

static int file_make(void)
{
	const int fd = memfd_create("test-file", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, FILE_BYTES), 0);
	assert_int_equal(fchmod(fd, 0600), 0);
	return fd;
}

static int reopen(int fd, int flags)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

static mode_t mode_of(int fd)
{
	struct stat status;

	assert_int_equal(fstat(fd, &status), 0);
	return status.st_mode & 07777;
}

/* clang-format off */
static const struct row serves[] = {
	{ { "getfl", 0, EBADF }, KVPULL_EINVAL, "is not an open descriptor" },
	{ { "fstat", 0, EIO }, KVPULL_EINVAL, "is not an open descriptor" },
	{ { "fchmod", 0, EPERM }, KVPULL_EDEVICE, "cannot be made read-only" },
	{ { "reopen", 0, ENOENT }, KVPULL_EDEVICE, "cannot be reopened through /proc/self/fd" },
};
/* clang-format on */

TEST(file_that_cannot_be_handed_over_says_why)
{
	const int fd = file_make();
	const uint32_t fds = fds_open();
	const char *why;
	int handed = -1;
	size_t at;

	for (at = 0; at < sizeof(serves) / sizeof(serves[0]); at++) {
		refuse(serves[at].refused.call, serves[at].refused.skip,
		       serves[at].refused.error);
		assert_int_equal(
			kvpull_file_serve(fd, 0, FILE_BYTES, &handed, &why),
			serves[at].code);
		assert_int_equal(refuse_end(), 1);
		assert_string_equal(why, serves[at].why);
		assert_int_equal(handed, -1);
		assert_int_equal(fds_open(), fds);
	}
	assert_int_equal(kvpull_file_serve(fd, 0, FILE_BYTES, &handed, &why),
			 0);
	assert_null(why);
	assert_int_equal(fds_open(), fds + 1);
	(void)close(handed);
	(void)close(fd);
}

TEST(reader_of_a_file_cannot_write_it)
{
	const int fd = file_make();
	int read_fd;

	refuse("fchmod", 0, EPERM);
	assert_int_equal(kvpull_file_reader(fd, 0), -1);
	assert_int_equal(refuse_end(), 1);
	refuse("reopen", 0, EMFILE);
	assert_int_equal(kvpull_file_reader(fd, 0), -1);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(errno, EMFILE);
	read_fd = kvpull_file_reader(fd, 0);
	assert_true(read_fd >= 0);
	assert_int_equal(mode_of(fd), 0444);
	assert_int_equal(fcntl(read_fd, F_GETFL, 0) & O_ACCMODE, O_RDONLY);
	(void)close(read_fd);
	(void)close(fd);
}

/* clang-format off */
static const struct row lends[] = {
	{ { "fcntl", 0, EMFILE }, KVPULL_ENOMEM, "cannot be kept open: raise ulimit -n" },
	{ { "fcntl", 0, EBADF }, KVPULL_EINVAL, "is not an open descriptor" },
	{ { "getfl", 0, EBADF }, KVPULL_EINVAL, "is not an open descriptor" },
	{ { "fcntl", 1, EAGAIN }, KVPULL_EINVAL, "is locked: another owner shares it, or a child of one that ended" },
	{ { "fcntl", 1, EACCES }, KVPULL_EINVAL, "is locked: another owner shares it, or a child of one that ended" },
	{ { "fcntl", 1, EBADF }, KVPULL_EINVAL, "cannot be locked: it is to be open for writing, too" },
	{ { "fstat", 1, EIO }, KVPULL_EINVAL, "was shared by an owner that was killed (sticky bit): make another one" },
	{ { "fchmod", 0, EPERM }, KVPULL_EINVAL, "does not take the sticky bit, which says that it is shared" },
	{ { "reopen", 0, ENOENT }, KVPULL_EDEVICE, "cannot be reopened through /proc/self/fd" },
};
/* clang-format on */

TEST(file_that_cannot_be_lent_is_as_it_was)
{
	const struct kvpull_file_lent none = { 0 };
	const int fd = file_make();
	const int other = reopen(fd, O_RDWR);
	const uint32_t fds = fds_open();
	struct kvpull_file_lent lent;
	const char *why;
	size_t at;

	for (at = 0; at < sizeof(lends) / sizeof(lends[0]); at++) {
		memset(&lent, 0xff, sizeof(lent));
		refuse(lends[at].refused.call, lends[at].refused.skip,
		       lends[at].refused.error);
		assert_int_equal(
			kvpull_file_lend(fd, 0, FILE_BYTES, &lent, &why),
			lends[at].code);
		assert_int_equal(refuse_end(), 1);
		assert_string_equal(why, lends[at].why);
		assert_memory_equal(&lent, &none, sizeof(lent));
		assert_int_equal(fds_open(), fds);
		assert_int_equal(mode_of(fd), 0600);
		/* Nothing is locked: another owner may lend it. */
		assert_int_equal(
			kvpull_file_lend(other, 0, FILE_BYTES, &lent, &why), 0);
		assert_null(why);
		assert_int_equal(mode_of(fd), 01600);
		kvpull_file_take_back(&lent);
		assert_int_equal(mode_of(fd), 0600);
		assert_memory_equal(&lent, &none, sizeof(lent));
		assert_int_equal(fds_open(), fds);
	}
	(void)close(other);
	(void)close(fd);
}

/* A second owner, one that was killed, and a file that others may write. */
TEST(file_is_lent_by_one_owner_at_a_time)
{
	static const mode_t bad[] = { 0620, 0602, 0666 };
	const int fd = file_make();
	const int other = reopen(fd, O_RDWR);
	struct kvpull_file_lent lents[2];
	const char *why;
	size_t at;

	assert_int_equal(kvpull_file_lend(fd, 4096, 4096, &lents[0], &why), 0);
	assert_int_equal(fcntl(lents[0].fd, F_GETFL, 0) & O_ACCMODE, O_RDONLY);
	/* The very bytes are locked: their neighbours are not. */
	assert_int_equal(kvpull_file_lend(other, 8191, 1, &lents[1], &why),
			 KVPULL_EINVAL);
	assert_non_null(strstr(why, "is locked"));
	assert_int_equal(kvpull_file_lend(other, 8192, 4096, &lents[1], &why),
			 KVPULL_EINVAL);
	assert_non_null(strstr(why, "sticky bit"));
	kvpull_file_take_back(&lents[0]);
	kvpull_file_take_back(&lents[0]);
	for (at = 0; at < 3; at++) {
		assert_int_equal(fchmod(fd, bad[at]), 0);
		assert_int_equal(kvpull_file_lend(fd, 0, 1, &lents[0], &why),
				 KVPULL_EINVAL);
		assert_string_equal(
			why,
			"can be written by other users: its mode is 0600, or 0644");
	}
	assert_int_equal(fchmod(fd, 0644), 0);
	assert_int_equal(kvpull_file_lend(fd, 0, 1, &lents[0], &why), 0);
	kvpull_file_take_back(&lents[0]);
	assert_int_equal(mode_of(fd), 0644);
	(void)close(other);
	(void)close(fd);
}

/* ---- what is taken ---- */

/* clang-format off */
static const struct row takes[] = {
	{ { "getfl", 0, EBADF }, KVPULL_EPROTO, "a peer's file of 20000 bytes is not opened read-only" },
	{ { "fstat", 0, EIO }, KVPULL_EPROTO, "a peer's file of 20000 bytes is not a regular file" },
	{ { "fcntl", 0, EMFILE }, KVPULL_ENOMEM, "" },
};
/* clang-format on */

TEST(file_of_a_peer_that_cannot_be_taken_leaves_nothing)
{
	const struct kvpull_file none = { 0 };
	const int fd = file_make();
	const int handed = reopen(fd, O_RDONLY);
	const uint32_t fds = fds_open();
	size_t at;

	for (at = 0; at < sizeof(takes) / sizeof(takes[0]); at++) {
		struct kvpull_file file = { .bytes = FILE_BYTES };

		lines_forget();
		refuse(takes[at].refused.call, takes[at].refused.skip,
		       takes[at].refused.error);
		assert_int_equal(kvpull_file_open(&file, handed,
						  KVPULL_FILE_DIRECT_AUTO,
						  &lines_log),
				 takes[at].code);
		assert_int_equal(refuse_end(), 1);
		assert_string_equal(lines.last, takes[at].why);
		assert_memory_equal(&file, &none, sizeof(file));
		assert_int_equal(fds_open(), fds);
	}
	(void)close(handed);
	(void)close(fd);
}

/* said, offset_align, memory_align; the alignment that is used, 0: not direct. */
static const uint32_t aligns[][4] = {
	{ 1, 512, 512, 512 },  { 1, 512, 4096, 4096 }, { 1, 4096, 4, 4096 },
	{ 1, 1, 1, 1 },        { 1, 0, 0, 0 },         { 1, 0, 512, 0 },
	{ 1, 8192, 512, 0 },   { 1, 512, 8192, 0 },    { 1, 1536, 512, 0 },
	{ 0, 512, 512, 4096 },
};

TEST(direct_reads_have_the_alignment_that_the_kernel_says)
{
	const int fd = file_make();
	const int handed = reopen(fd, O_RDONLY);
	const uint32_t fds = fds_open();
	size_t at;

	for (at = 0; at < sizeof(aligns) / sizeof(aligns[0]); at++) {
		struct kvpull_file file = { .bytes = FILE_BYTES };
		const uint32_t align = aligns[at][3];
		char said[96];

		direct_fake(aligns[at][0], aligns[at][1], aligns[at][2]);
		assert_int_equal(kvpull_file_align(fd, 0), align);
		assert_int_equal(kvpull_file_open(&file, handed,
						  KVPULL_FILE_DIRECT_AUTO,
						  &lines_log),
				 0);
		assert_int_equal(file.direct_fd >= 0, align > 0);
		assert_int_equal(file.align, align ? align : 1);
		assert_int_equal(fds_open(), fds + (align ? 2 : 1));
		(void)snprintf(
			said, sizeof(said),
			align ? "a peer's file is read with O_DIRECT, aligned to %u" :
				"a peer's file is read without O_DIRECT",
			align);
		assert_string_equal(lines.last, said);
		kvpull_file_close(&file);
		assert_int_equal(fds_open(), fds);
	}
	direct_end();
	(void)close(handed);
	(void)close(fd);
}

/* A kernel before Linux 6.1: one read shows it, where there is a byte. */
TEST(file_shows_by_a_read_whether_it_goes_direct)
{
	const int fd = file_make();

	direct_fake(1, 512, 512);
	refuse("statx", 0, ENOSYS);
	assert_int_equal(kvpull_file_align(fd, 0), KVPULL_FILE_ALIGN_MAX);
	assert_int_equal(refuse_end(), 1);
	direct_fake(0, 0, 0);
	refuse("pread", 0, EINVAL);
	assert_int_equal(kvpull_file_align(fd, 0), 0);
	assert_int_equal(refuse_end(), 1);
	/* From the page on in which the bytes begin: one is left there. */
	assert_int_equal(ftruncate(fd, 8193), 0);
	assert_int_equal(kvpull_file_align(fd, 12287), KVPULL_FILE_ALIGN_MAX);
	assert_int_equal(kvpull_file_align(fd, 12288), 0);
	/* Not asked of a file that was opened without. */
	direct_end();
	if (!(fcntl(fd, F_GETFL, 0) & O_DIRECT))
		assert_int_equal(kvpull_file_align(fd, 0), 0);
	(void)close(fd);
}

/* Opens the file as one that its owner writes with O_DIRECT. */
static void take_strict(struct kvpull_file *file, int handed, int code)
{
	*file = (struct kvpull_file){ .bytes = FILE_BYTES };
	assert_int_equal(kvpull_file_open(file, handed,
					  KVPULL_FILE_DIRECT_STRICT,
					  &lines_log),
			 code);
}

TEST(file_that_its_owner_writes_direct_is_read_direct_or_not_at_all)
{
	const struct kvpull_file none = { 0 };
	const int fd = file_make();
	const int handed = reopen(fd, O_RDONLY);
	const uint32_t fds = fds_open();
	struct kvpull_file file;

	direct_fake(1, 512, 512);
	take_strict(&file, handed, 0);
	assert_int_equal(file.is_strict, 1);
	assert_true(file.direct_fd >= 0);
	kvpull_file_close(&file);
	/* A file system that has no O_DIRECT, or a descriptor too few. */
	direct_fake(1, 0, 0);
	take_strict(&file, handed, KVPULL_EUNSUPPORTED);
	assert_string_equal(
		lines.last,
		"a peer's file cannot be opened with O_DIRECT, as its owner writes it");
	assert_int_equal(lines.bad_count, 1);
	assert_memory_equal(&file, &none, sizeof(file));
	assert_int_equal(fds_open(), fds);
	direct_fake(1, 512, 512);
	refuse("reopen", 0, EMFILE);
	take_strict(&file, handed, KVPULL_EUNSUPPORTED);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(fds_open(), fds);
	/* An owner that writes through the page cache is read through it. */
	direct_end();
	take_strict(&file, handed, 0);
	assert_int_equal(file.is_strict, 0);
	assert_int_equal(file.direct_fd, -1);
	kvpull_file_close(&file);
	(void)close(handed);
	(void)close(fd);
}
