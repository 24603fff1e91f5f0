/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel for files that refuses what a test names, and has the O_DIRECT that
 * a test says, for the one file of a program that includes this. "reopen" is the
 * open() of a descriptor's path, "tmpfile" that of an unnamed file.
 */
#ifndef KVPULL_TESTS_UNIT_DISK_KERNEL
#define KVPULL_TESTS_UNIT_DISK_KERNEL

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "tests/lib/refuse.h"

#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x2000U
#endif

/* Faked: files seem to be opened with O_DIRECT, and statx() says this of it. */
static struct {
	uint32_t is_faked;
	uint32_t is_said;
	uint32_t offset_align;
	uint32_t memory_align;
} direct;

/* clang-format off */
REFUSABLE(int, fstat, -1, (int fd, struct stat *status), (fd, status))
REFUSABLE(int, fchmod, -1, (int fd, mode_t mode), (fd, mode))
REFUSABLE(ssize_t, pread, -1, (int fd, void *bytes, size_t byte_count, off_t offset), (fd, bytes, byte_count, offset))
/* clang-format on */

int refuse_fcntl(int fd, int command, long argument) __asm__("fcntl");

int refuse_fcntl(int fd, int command, long argument)
{
	int (*next)(int, int, long);
	const char *call = command == F_GETFL ? "getfl" :
			   command == F_SETFL ? "setfl" :
						"fcntl";

	if (refuse_takes(call))
		return -1;
	*(void **)&next = dlsym(RTLD_NEXT, "fcntl");
	return next(fd, command, argument) |
	       (command == F_GETFL && direct.is_faked ? O_DIRECT : 0);
}

int refuse_open(const char *path, int flags, mode_t mode) __asm__("open");

int refuse_open(const char *path, int flags, mode_t mode)
{
	int (*next)(const char *, int, mode_t);

	if ((flags & O_TMPFILE) == O_TMPFILE && refuse_takes("tmpfile"))
		return -1;
	if ((flags & O_NONBLOCK) && !strncmp(path, "/proc/self/fd/", 14) &&
	    refuse_takes("reopen"))
		return -1;
	*(void **)&next = dlsym(RTLD_NEXT, "open");
	return next(path, direct.is_faked ? flags & ~O_DIRECT : flags, mode);
}

/* open() with _FORTIFY_SOURCE, where the flags are no constant. */
int refuse_open_2(const char *path, int flags) __asm__("__open_2");

int refuse_open_2(const char *path, int flags)
{
	return refuse_open(path, flags, 0);
}

int refuse_statx(int fd, const char *path, int flags, unsigned int mask,
		 struct statx *status) __asm__("statx");

int refuse_statx(int fd, const char *path, int flags, unsigned int mask,
		 struct statx *status)
{
	int (*next)(int, const char *, int, unsigned int, struct statx *);
	int code;

	if (refuse_takes("statx"))
		return -1;
	*(void **)&next = dlsym(RTLD_NEXT, "statx");
	code = next(fd, path, flags, mask, status);
	if (direct.is_faked) {
		status->stx_mask &= ~STATX_DIOALIGN;
		status->stx_mask |= direct.is_said ? STATX_DIOALIGN : 0;
		status->stx_dio_offset_align = direct.offset_align;
		status->stx_dio_mem_align = direct.memory_align;
	}
	return code;
}

static inline void direct_fake(uint32_t is_said, uint32_t offset_align,
			       uint32_t memory_align)
{
	direct.is_faked = 1;
	direct.is_said = is_said;
	direct.offset_align = offset_align;
	direct.memory_align = memory_align;
}

/* The kernel's own answers again. */
static inline void direct_end(void)
{
	direct.is_faked = 0;
}

#endif /* KVPULL_TESTS_UNIT_DISK_KERNEL */
