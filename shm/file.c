/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A descriptor from a peer is checked to be a regular file: reading from a
 * pipe or a device of its choice could block or have effects. Its size is only
 * a hint, since the peer can truncate it: a short read says so later.
 */
#include "shm/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x2000U /* Linux 6.1 */
#endif

#define HANDED_MODE 0444

static int reopen(int fd, int flags)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	/* A lease on the file must not make this wait. */
	return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
}

static int is_shorter(const struct stat *status, uint64_t offset,
		      uint64_t bytes)
{
	uint64_t end;

	return __builtin_add_overflow(offset, bytes, &end) || end > INT64_MAX ||
	       status->st_size < (int64_t)end;
}

/* NULL, or why these bytes may not be served. */
static const char *serve_fault(int fd, uint64_t offset, uint64_t bytes)
{
	const int flags = fcntl(fd, F_GETFL);
	struct stat status;

	if (flags < 0 || fstat(fd, &status))
		return "is not an open descriptor";
	if (!S_ISREG(status.st_mode))
		return "is not a regular file";
	if (status.st_nlink)
		return "has a name: use O_TMPFILE, or unlink it first";
	if ((flags & O_ACCMODE) == O_WRONLY || (flags & O_PATH))
		return "is not open for reading";
	if (status.st_uid != geteuid())
		return "belongs to another uid";
	if (!bytes || is_shorter(&status, offset, bytes))
		return "is shorter than fd_offset + bytes";
	return NULL;
}

int kvpull_file_serve(int fd, uint64_t offset, uint64_t bytes, int *handed,
		      const char **why)
{
	int made;

	*why = serve_fault(fd, offset, bytes);
	if (*why)
		return KVPULL_EINVAL;
	if (fchmod(fd, HANDED_MODE)) {
		*why = "cannot be made read-only";
		return KVPULL_EDEVICE;
	}
	made = reopen(fd, 0);
	if (made < 0) {
		*why = "cannot be reopened through /proc/self/fd";
		return KVPULL_EDEVICE;
	}
	*handed = made;
	return 0;
}

/* Where the kernel does not say, one read does. */
static uint32_t align_tried(int fd, uint64_t offset)
{
	_Alignas(KVPULL_FILE_ALIGN_MAX) uint8_t page[KVPULL_FILE_ALIGN_MAX];
	const uint64_t start = offset & ~(uint64_t)(sizeof(page) - 1);

	return pread(fd, page, sizeof(page), (off_t)start) > 0 ?
		       KVPULL_FILE_ALIGN_MAX :
		       0;
}

/* What O_DIRECT asks for; 0: the file does not take it, or wants too much. */
static uint32_t align_of(int fd, uint64_t offset)
{
	struct statx status;
	uint32_t align;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) ||
	    !(status.stx_mask & STATX_DIOALIGN))
		return align_tried(fd, offset);
	align = status.stx_dio_offset_align;
	if (align && align < status.stx_dio_mem_align)
		align = status.stx_dio_mem_align;
	return align > KVPULL_FILE_ALIGN_MAX || (align & (align - 1)) ? 0 :
									align;
}

static void direct_try(struct kvpull_file *file)
{
	const int fd = reopen(file->fd, O_DIRECT);
	const uint32_t align = fd < 0 ? 0 : align_of(fd, file->offset);

	if (align) {
		file->direct_fd = fd;
		file->align = align;
	} else if (fd >= 0) {
		(void)close(fd);
	}
}

/* NULL, or why a peer's descriptor is not what its kind promises. */
static const char *descriptor_fault(int fd, const struct kvpull_file *file)
{
	const int flags = fcntl(fd, F_GETFL);
	struct stat status;

	/* This is asked of the descriptor, what follows of the file system. */
	if (flags < 0 || (flags & O_ACCMODE) != O_RDONLY || (flags & O_PATH))
		return "is not opened read-only";
	if (fstat(fd, &status) || !S_ISREG(status.st_mode))
		return "is not a regular file";
	if (is_shorter(&status, file->offset, file->bytes))
		return "is shorter than its peer says";
	return NULL;
}

int kvpull_file_open(struct kvpull_file *file, int fd,
		     enum kvpull_file_direct direct,
		     const struct kvpull_log *log)
{
	const char *fault = descriptor_fault(fd, file);
	int code = KVPULL_EPROTO;

	if (fault) {
		kvpull_warn(log, "a peer's file of %llu bytes %s",
			    (unsigned long long)file->bytes, fault);
		goto err;
	}
	file->align = 1;
	file->direct_fd = -1;
	file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (file->fd < 0) {
		code = KVPULL_ENOMEM;
		goto err;
	}
	if (direct == KVPULL_FILE_DIRECT_AUTO)
		direct_try(file);
	if (file->direct_fd < 0)
		kvpull_info(log, "a peer's file is read without O_DIRECT");
	else
		kvpull_info(
			log,
			"a peer's file is read with O_DIRECT, aligned to %u",
			file->align);
	return 0;
err:
	memset(file, 0, sizeof(*file));
	return code;
}

void kvpull_file_close(struct kvpull_file *file)
{
	if (!file->bytes)
		return;
	if (file->direct_fd >= 0)
		(void)close(file->direct_fd);
	(void)close(file->fd);
	memset(file, 0, sizeof(*file));
}
