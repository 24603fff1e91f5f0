/* SPDX-License-Identifier: Apache-2.0 */
/* The key file, where the kernel gives it in pieces, or not at all. */
#undef _FORTIFY_SOURCE /* whose read() is inline, and cannot be replaced */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/config/world.h"

#define PATH "/tmp/kvpull-test-key-file-XXXXXX"

static uint32_t piece_bytes; /* of a read; 0: as many as are asked for */
static uint32_t signals;     /* reads that a signal ends before they begin */
static int read_errno;       /* of the read after `good_reads` */
static uint32_t good_reads;

/* In the place of libc's, for the library that is linked to this program. */
ssize_t read(int fd, void *bytes, size_t byte_count)
{
	struct stat status;

	/* The kernel's tables are read whole; their files have no size. */
	if (fstat(fd, &status) || status.st_size == 0)
		return syscall(SYS_read, fd, bytes, byte_count);
	if (signals) {
		signals--;
		errno = EINTR;
		return -1;
	}
	if (read_errno && !good_reads) {
		errno = read_errno;
		return -1;
	}
	if (good_reads)
		good_reads--;
	if (piece_bytes && byte_count > piece_bytes)
		byte_count = piece_bytes;
	return syscall(SYS_read, fd, bytes, byte_count);
}

struct key_file {
	char path[sizeof(PATH)];
	char value[sizeof(PATH) + 2];
};

static int setup(void **state)
{
	static struct key_file file;
	uint8_t key[32];
	size_t at;
	int fd;

	if (environment_clear(state))
		return -1;
	for (at = 0; at < sizeof(key); at++)
		key[at] = (uint8_t)(at + 1);
	(void)snprintf(file.path, sizeof(file.path), PATH);
	fd = mkstemp(file.path);
	(void)snprintf(file.value, sizeof(file.value), "\"%s\"", file.path);
	*state = &file;
	if (fd < 0 || write(fd, key, sizeof(key)) != sizeof(key))
		return -1;
	return close(fd);
}

static int teardown(void **state)
{
	const struct key_file *file = *state;

	return unlink(file->path);
}

#define TEST(name) UNIT_TEST_WITH(name, setup, teardown)

static void is_loaded(const struct key_file *file)
{
	uint8_t at;

	loads_one("key_file", file->value);
	for (at = 0; at < 32; at++)
		assert_int_equal(config.key[at], at + 1u);
}

TEST(key_that_comes_in_pieces_between_signals_is_whole)
{
	for (piece_bytes = 1; piece_bytes <= 33; piece_bytes++) {
		signals = piece_bytes % 3;
		is_loaded(*state);
	}
	piece_bytes = 0;
}

/* A key of which the end could not be read is none: it may be a longer one. */
TEST(key_that_cannot_be_read_to_its_end_is_refused)
{
	const struct key_file *file = *state;
	const uint32_t fds = fds_open();
	uint32_t good;

	memset(&config, 0xa5, sizeof(config));
	for (good = 0; good < 3; good++) {
		piece_bytes = 16;
		good_reads = good;
		read_errno = EIO;
		refused_one(
			"key_file", file->value,
			"must have exactly 32 bytes: head -c 32 /dev/urandom makes them");
		read_errno = 0;
		piece_bytes = 0;
		assert_int_equal(config.key[0], 0xa5);
		assert_int_equal(fds_open(), fds);
	}
	is_loaded(file);
	assert_int_equal(fds_open(), fds);
}

TEST(key_file_without_descriptors_says_what_to_raise)
{
	const struct key_file *file = *state;
	char line[256];

	assert_int_equal(unlink(file->path), 0);
	(void)snprintf(
		line, sizeof(line),
		"key_file %s cannot be opened: No such file or directory",
		file->path);
	refused_one("key_file", file->value, line);
	assert_int_equal(symlink("/tmp", file->path), 0);
	(void)snprintf(line, sizeof(line), "key_file %s is not a regular file",
		       file->path);
	refused_one("key_file", file->value, line);
}
