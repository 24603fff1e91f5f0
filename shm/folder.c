/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder's owner may rename and remove the sockets in it, with the sticky
 * bit or without. So the owner must be a user that is trusted as a peer.
 */
#include "shm/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/fd.h"
#include "shm/mount.h"
#include "shm/shortage.h"

int kvpull_folder_trusts(const struct kvpull_folder *folder, uint32_t uid)
{
	return !uid || kvpull_users_believe(&folder->users, uid) ||
	       (uid == geteuid() &&
		!kvpull_users_is_unknown(&folder->users, uid));
}

/*
 * In a user namespace the node's root looks like every other user that it does
 * not map. A folder of theirs is taken: peers are judged by their own uids.
 */
static int may_own(const struct kvpull_folder *folder, uint32_t uid)
{
	return kvpull_folder_trusts(folder, uid) ||
	       kvpull_users_is_unknown(&folder->users, uid);
}

static int folder_check(const struct kvpull_folder *folder,
			const struct stat *status, const struct kvpull_log *log)
{
	if (!may_own(folder, status->st_uid)) {
		kvpull_warn(
			log,
			"socket folder %s belongs to user %u, who may replace sockets in it: list that user in uids, or use another folder",
			folder->path, status->st_uid);
		return KVPULL_EROUTE;
	}
	if ((status->st_mode & S_IWOTH) && !(status->st_mode & S_ISVTX)) {
		kvpull_warn(
			log,
			"socket folder %s: anybody may replace sockets in it: set mode 0700 or the sticky bit",
			folder->path);
		return KVPULL_EROUTE;
	}
	return 0;
}

static int open_failed(const struct kvpull_folder *folder,
		       const struct kvpull_log *log)
{
	const int error = errno;

	if (kvpull_errno_is_shortage(error))
		return KVPULL_EAGAIN;
	if (error != ENOENT)
		kvpull_warn(log, "socket folder %s: %s", folder->path,
			    kvpull_why(FOLDER, error));
	return KVPULL_EROUTE;
}

/* Before anything is asked of it, which may be the last thing that is done. */
static void place_judge(int fd, const char *path, const struct kvpull_log *log)
{
	if (!kvpull_mount_fd_is_local(fd))
		kvpull_warn(
			log,
			"socket folder %s is of another program or machine (FUSE, a network): while that does not answer, heartbeats stop; name one of this machine by socket_dir",
			path);
}

int kvpull_folder_open(struct kvpull_folder *folder,
		       const struct kvpull_log *log)
{
	struct stat status;

	/* Removed and made again, or another one is mounted there now. */
	if (folder->fd >= 0 &&
	    (lstat(folder->path, &status) || status.st_ino != folder->inode ||
	     status.st_dev != folder->device))
		kvpull_folder_close(folder);
	if (folder->fd < 0) {
		const int fd =
			open(folder->path,
			     O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (fd < 0)
			return open_failed(folder, log);
		place_judge(fd, folder->path, log);
		if (fstat(fd, &status)) {
			(void)close(fd);
			return open_failed(folder, log);
		}
		folder->fd = fd;
		folder->inode = status.st_ino;
		folder->device = status.st_dev;
	}
	return folder_check(folder, &status, log);
}

int kvpull_folder_make(struct kvpull_folder *folder,
		       const struct kvpull_log *log)
{
	int code;

	if (mkdir(folder->path, 0700) && errno != EEXIST) {
		kvpull_error(log, "socket folder %s cannot be made: %s",
			     folder->path, kvpull_why(FOLDER, errno));
		return KVPULL_EDEVICE;
	}
	code = kvpull_folder_open(folder, log);
	if (code == KVPULL_EAGAIN)
		kvpull_error(log, "socket folder %s: %s", folder->path,
			     kvpull_why(FOLDER, errno));
	return code ? KVPULL_EDEVICE : 0;
}

void kvpull_folder_close(struct kvpull_folder *folder)
{
	kvpull_fd_close(&folder->fd);
}
