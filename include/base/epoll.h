/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor into an epoll that tells its events by their descriptors. */
#ifndef KVPULL_BASE_EPOLL_H
#define KVPULL_BASE_EPOLL_H

#include <stdint.h>
#include <sys/epoll.h>

/* 0, or -1 with errno. */
static inline int kvpull_epoll_add(int epoll_fd, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events };

	event.data.fd = fd;
	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

#endif /* KVPULL_BASE_EPOLL_H */
