/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors that may be there or not. */
#ifndef KVPULL_BASE_FD_H
#define KVPULL_BASE_FD_H

#include <unistd.h>

/* Close what is open; it is -1 then, and may be closed again. */
static inline void kvpull_fd_close(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

#endif /* KVPULL_BASE_FD_H */
