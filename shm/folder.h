/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of the sockets. It is opened once, checked through its descriptor,
 * and kept: what was checked is what is used, and whoever has no descriptor to
 * spare still finds the peers in it.
 */
#ifndef KVPULL_SHM_FOLDER_H
#define KVPULL_SHM_FOLDER_H

#include <stdint.h>

#include "base/log.h"
#include "base/users.h"

struct kvpull_folder {
	const char *path;
	struct kvpull_users users; /* who may own it beside us and root */
	int fd;                    /* O_PATH; -1: not opened yet */
	uint64_t device;           /* of fd */
	uint64_t inode;
};

/*
 * Open it, or see that it still is what was opened.
 * Return: 0; KVPULL_EROUTE: it is not there, or not safe (logged): a symlink, a
 * folder of another user's, or one that everybody may write into without the
 * sticky bit; KVPULL_EAGAIN: out of descriptors or memory (errno says which).
 */
int KVPULL_MUST_CHECK kvpull_folder_open(struct kvpull_folder *folder,
					 const struct kvpull_log *log);
/* Make it with mode 0700 if it is missing, and open it. 0, KVPULL_EDEVICE. */
int KVPULL_MUST_CHECK kvpull_folder_make(struct kvpull_folder *folder,
					 const struct kvpull_log *log);
/* A user that may replace what is in it: ours, root, or one of uids. */
int kvpull_folder_trusts(const struct kvpull_folder *folder, uint32_t uid);
void kvpull_folder_close(struct kvpull_folder *folder);

#endif /* KVPULL_SHM_FOLDER_H */
