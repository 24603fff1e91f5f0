/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors that may be there or not. */
#ifndef KVPULL_BASE_FD_H
#define KVPULL_BASE_FD_H

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* Close what is open; it is -1 then, and may be closed again. */
static inline void kvpull_fd_close(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

/* Another description of the same file, closed on exec; or -1 with errno. */
static inline int kvpull_fd_reopen(int fd, int flags)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

#endif /* KVPULL_BASE_FD_H */
