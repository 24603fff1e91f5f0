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

#include "base/fd.h"
#include "shm/mount.h"

#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x2000U /* Linux 6.1 */
#endif

#define HANDED_MODE 0444
#define OTHERS_WRITE (S_IWGRP | S_IWOTH)
#define UNSAID UINT32_MAX /* no alignment */

static int reopen(int fd, int flags)
{
	/* A lease on the file must not make this wait. */
	return kvpull_fd_reopen(fd, O_RDONLY | O_NONBLOCK | flags);
}

static int is_shorter(const struct stat *status, uint64_t offset,
		      uint64_t bytes)
{
	uint64_t end;

	return __builtin_add_overflow(offset, bytes, &end) || end > INT64_MAX ||
	       status->st_size < (int64_t)end;
}

/* NULL, or why these bytes may not be served. */
static const char *serve_fault(int fd, uint64_t offset, uint64_t bytes,
			       struct stat *status)
{
	const int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fstat(fd, status))
		return "is not an open descriptor";
	if (!S_ISREG(status->st_mode))
		return "is not a regular file";
	if ((flags & O_ACCMODE) == O_WRONLY || (flags & O_PATH))
		return "is not open for reading";
	if (status->st_uid != geteuid())
		return "belongs to another uid";
	if (!bytes || is_shorter(status, offset, bytes))
		return "is shorter than fd_offset + bytes";
	return NULL;
}

/* Makes a descriptor that can only read. */
static int hand(int fd, int *handed, const char **why)
{
	*handed = reopen(fd, 0);
	if (*handed >= 0)
		return 0;
	*why = "cannot be reopened through /proc/self/fd";
	return KVPULL_EDEVICE;
}

int kvpull_file_reader(int fd, int flags)
{
	return fchmod(fd, HANDED_MODE) ? -1 : reopen(fd, flags);
}

int kvpull_file_serve(int fd, uint64_t offset, uint64_t bytes, int *handed,
		      const char **why)
{
	struct stat status;

	*why = serve_fault(fd, offset, bytes, &status);
	if (!*why && status.st_nlink)
		*why = "has a name: use O_TMPFILE, or unlink it first";
	if (*why)
		return KVPULL_EINVAL;
	if (fchmod(fd, HANDED_MODE)) {
		*why = "cannot be made read-only";
		return KVPULL_EDEVICE;
	}
	return hand(fd, handed, why);
}

/* 0, or -1 with errno: another description has it, or it is not for writing. */
static int bytes_lock(const struct kvpull_file_lent *lent, short type)
{
	struct flock lock = { .l_type = type,
			      .l_whence = SEEK_SET,
			      .l_start = (off_t)lent->offset,
			      .l_len = (off_t)lent->bytes };

	return fcntl(lent->lock_fd, F_OFD_SETLK, &lock);
}

/* NULL, or why they may not be lent; then nothing is locked. */
static const char *lend_fault(struct kvpull_file_lent *lent)
{
	struct stat status;
	const char *why;

	/* Readers' poll() would ask it how long the file is. */
	if (!kvpull_mount_fd_is_local(lent->lock_fd))
		return "is of another program or machine, which may never answer: share one of /dev/shm, or a memfd";
	why = serve_fault(lent->lock_fd, lent->offset, lent->bytes, &status);
	if (why)
		return why;
	if (status.st_mode & OTHERS_WRITE)
		return "can be written by other users: its mode is 0600, or 0644";
	if (bytes_lock(lent, F_WRLCK))
		return errno == EAGAIN || errno == EACCES ?
			       "is locked: another owner shares it, or a child of one that ended" :
			       "cannot be locked: it is to be open for writing, too";
	/* Under the lock: no other owner is between its look and its mark. */
	if (fstat(lent->lock_fd, &status) || status.st_mode & S_ISVTX)
		why = "was shared by an owner that was killed (sticky bit): make another one";
	lent->mode = status.st_mode & 07777U;
	if (!why && fchmod(lent->lock_fd, lent->mode | S_ISVTX))
		why = "does not take the sticky bit, which says that it is shared";
	if (why)
		(void)bytes_lock(lent, F_UNLCK);
	return why;
}

int kvpull_file_lend(int fd, uint64_t offset, uint64_t bytes,
		     struct kvpull_file_lent *lent, const char **why)
{
	int code;

	*lent = (struct kvpull_file_lent){ .offset = offset, .bytes = bytes };
	/*
	 * Shares the engine's open file description, so the lock outlasts the
	 * engine's close().
	 */
	lent->lock_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (lent->lock_fd < 0 && errno == EMFILE) {
		*why = "cannot be kept open: raise ulimit -n";
		memset(lent, 0, sizeof(*lent));
		return KVPULL_ENOMEM;
	}
	*why = lent->lock_fd < 0 ? "is not an open descriptor" :
				   lend_fault(lent);
	lent->is_lent = !*why;
	lent->fd = -1;
	code = *why ? KVPULL_EINVAL : hand(fd, &lent->fd, why);
	if (code && lent->is_lent)
		kvpull_file_take_back(lent);
	else if (code)
		kvpull_fd_close(&lent->lock_fd);
	if (code)
		memset(lent, 0, sizeof(*lent));
	return code;
}

void kvpull_file_take_back(struct kvpull_file_lent *lent)
{
	if (!lent->is_lent)
		return;
	(void)fchmod(lent->lock_fd, lent->mode);
	(void)bytes_lock(lent, F_UNLCK);
	(void)close(lent->lock_fd);
	kvpull_fd_close(&lent->fd);
	memset(lent, 0, sizeof(*lent));
}

/* As the kernel has it; 0: no O_DIRECT, or more than we do; UNSAID: who knows. */
static uint32_t align_said(int fd)
{
	struct statx status;
	uint32_t align;

	/* Without the flag any read is taken: tmpfs before Linux 6.6. */
	if (!(fcntl(fd, F_GETFL) & O_DIRECT))
		return 0;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) ||
	    !(status.stx_mask & STATX_DIOALIGN))
		return UNSAID;
	align = status.stx_dio_offset_align;
	if (align && align < status.stx_dio_mem_align)
		align = status.stx_dio_mem_align;
	return align > KVPULL_FILE_ALIGN_MAX || (align & (align - 1)) ? 0 :
									align;
}

uint32_t kvpull_file_align(int fd, uint64_t offset)
{
	_Alignas(KVPULL_FILE_ALIGN_MAX) uint8_t page[KVPULL_FILE_ALIGN_MAX];
	const uint64_t start = offset & ~(uint64_t)(sizeof(page) - 1);
	const uint32_t align = align_said(fd);

	if (align != UNSAID)
		return align;
	/* Where the kernel does not say, one read does. */
	return pread(fd, page, sizeof(page), (off_t)start) > 0 ?
		       KVPULL_FILE_ALIGN_MAX :
		       0;
}

/*
 * The disk is not asked: it may hang, and all others with it. Where the kernel
 * does not say, a read that is refused shows it, and goes by the page cache.
 */
static void direct_try(struct kvpull_file *file)
{
	const int fd = reopen(file->fd, O_DIRECT);
	const uint32_t said = fd < 0 ? 0 : align_said(fd);

	if (said) {
		file->direct_fd = fd;
		file->align = said == UNSAID ? KVPULL_FILE_ALIGN_MAX : said;
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
	if (direct == KVPULL_FILE_DIRECT_STRICT)
		file->is_strict = (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
	if (direct == KVPULL_FILE_DIRECT_AUTO || file->is_strict)
		direct_try(file);
	if (file->is_strict && file->direct_fd < 0) {
		kvpull_warn(
			log,
			"a peer's file cannot be opened with O_DIRECT, as its owner writes it");
		(void)close(file->fd);
		code = KVPULL_EUNSUPPORTED;
		goto err;
	}
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
	kvpull_fd_close(&file->direct_fd);
	(void)close(file->fd);
	memset(file, 0, sizeof(*file));
}
