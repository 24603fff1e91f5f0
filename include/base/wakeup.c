// SPDX-License-Identifier: Apache-2.0
/* Every descriptor in the epoll set is edge triggered. */
#include "base/wakeup.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "base/epoll.h"
#include "base/fd.h"

#define EVENTS_MAX 8

void kvpull_wakeup_close(struct kvpull_wakeup *wakeup)
{
	kvpull_fd_close(&wakeup->fd);
	kvpull_fd_close(&wakeup->timer_fd);
}

int kvpull_wakeup_open(struct kvpull_wakeup *wakeup, int wake_fd)
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

void kvpull_wakeup_keep(struct kvpull_wakeup *wakeup)
{
	if (wakeup->fd < 0 || wakeup->is_kept)
		return;
	wakeup->is_kept = 1;
	(void)eventfd_write(wakeup->wake_fd, 1);
}

void kvpull_wakeup_clear(struct kvpull_wakeup *wakeup)
{
	struct epoll_event events[EVENTS_MAX];
	int count = epoll_wait(wakeup->fd, events, EVENTS_MAX, 0);

	wakeup->is_kept = 0;
	/* The timer fired after this poll read the clock: set it once more. */
	for (; count > 0; count--)
		if (events[count - 1].data.fd == wakeup->timer_fd)
			wakeup->timer_ns = 0;
}

void kvpull_timer_at(int timer_fd, uint64_t *set_ns, uint64_t at_ns)
{
	struct itimerspec timer = { 0 };

	if (at_ns == *set_ns)
		return;
	*set_ns = at_ns;
	if (at_ns != UINT64_MAX) {
		timer.it_value.tv_sec = (time_t)(at_ns / KVPULL_NS_PER_S);
		timer.it_value.tv_nsec = (long)(at_ns % KVPULL_NS_PER_S);
	}
	(void)timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

void kvpull_wakeup_at(struct kvpull_wakeup *wakeup, uint64_t at_ns)
{
	kvpull_timer_at(wakeup->timer_fd, &wakeup->timer_ns, at_ns);
}
