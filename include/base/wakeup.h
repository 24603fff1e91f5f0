/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor on which an engine sleeps: an epoll with a timer, an eventfd of
 * its own calls, and what its owner adds. Nothing here is a system call for an
 * engine that never asked for it.
 */
#ifndef KVPULL_BASE_WAKEUP_H
#define KVPULL_BASE_WAKEUP_H

#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "base/epoll.h"
#include "base/fd.h"

#define KVPULL_WAKEUP_EVENTS 8u

struct kvpull_wakeup {
	int fd; /* -1 until it is asked for */
	int timer_fd;
	int wake_fd;       /* of the owner; written when a poll is due */
	uint32_t is_kept;  /* readable by our own doing, until the next poll */
	uint64_t timer_ns; /* that the timer is set to; UINT64_MAX: not set */
};

static inline void kvpull_wakeup_close(struct kvpull_wakeup *wakeup)
{
	kvpull_fd_close(&wakeup->fd);
	kvpull_fd_close(&wakeup->timer_fd);
}

/* 0, or -1 with errno; both are edge triggered. */
static inline int kvpull_wakeup_open(struct kvpull_wakeup *wakeup, int wake_fd)
{
	*wakeup = (struct kvpull_wakeup){
		.fd = epoll_create1(EPOLL_CLOEXEC),
		.timer_fd = timerfd_create(CLOCK_MONOTONIC,
					   TFD_CLOEXEC | TFD_NONBLOCK),
		.wake_fd = wake_fd,
		.timer_ns = UINT64_MAX,
	};
	return wakeup->fd < 0 || wakeup->timer_fd < 0 ||
			       kvpull_epoll_add(wakeup->fd, wake_fd,
						EPOLLIN | EPOLLET) ||
			       kvpull_epoll_add(wakeup->fd, wakeup->timer_fd,
						EPOLLIN | EPOLLET) ?
		       -1 :
		       0;
}

/* It stays readable until a poll has cleared it. */
static inline void kvpull_wakeup_keep(struct kvpull_wakeup *wakeup)
{
	if (wakeup->fd < 0 || wakeup->is_kept)
		return;
	wakeup->is_kept = 1;
	(void)eventfd_write(wakeup->wake_fd, 1);
}

/* Eat what woke us. */
static inline void kvpull_wakeup_clear(struct kvpull_wakeup *wakeup)
{
	struct epoll_event events[KVPULL_WAKEUP_EVENTS];
	int count = epoll_wait(wakeup->fd, events, KVPULL_WAKEUP_EVENTS, 0);

	wakeup->is_kept = 0;
	/* Its time came after this poll's: it is to be set once more. */
	for (; count > 0; count--)
		if (events[count - 1].data.fd == wakeup->timer_fd)
			wakeup->timer_ns = 0;
}

static inline void kvpull_wakeup_at(struct kvpull_wakeup *wakeup,
				    uint64_t at_ns)
{
	struct itimerspec timer = { 0 };

	if (at_ns == wakeup->timer_ns)
		return;
	wakeup->timer_ns = at_ns;
	if (at_ns != UINT64_MAX) {
		timer.it_value.tv_sec = (time_t)(at_ns / KVPULL_NS_PER_S);
		timer.it_value.tv_nsec = (long)(at_ns % KVPULL_NS_PER_S);
	}
	(void)timerfd_settime(wakeup->timer_fd, TFD_TIMER_ABSTIME, &timer,
			      NULL);
}

#endif /* KVPULL_BASE_WAKEUP_H */
