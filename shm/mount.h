/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File systems that answer only when another program or machine does. An open()
 * there may never return, and no deadline ends it, so none is made.
 */
#ifndef KVPULL_SHM_MOUNT_H
#define KVPULL_SHM_MOUNT_H

#include <stddef.h>

#define KVPULL_MOUNT_TYPE_BYTES 32u

/*
 * Looks at each folder on the way before the next one is looked up, and asks
 * none of them. A link in the path is followed, and may lead where this waits.
 * What the root itself lies on counts only for a folder that is on it, too.
 *
 * @type  out, where 0 is returned: what the file system is called
 * Return: 1: the folder is on a local file system, or open() says what it is;
 * 0: it is not.
 */
int kvpull_mount_is_local(const char *folder,
			  char type[KVPULL_MOUNT_TYPE_BYTES]);

/* Likewise of an open file; one of another mount namespace counts as local. */
int kvpull_mount_fd_is_local(int fd);

#endif /* KVPULL_SHM_MOUNT_H */
