/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor on which an engine sleeps: readable when a poll has something
 * to do. Nothing here is a system call for an engine that never asked for it.
 */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/epoll.h"
#include "base/fd.h"
#include "plugin/share/share_state.h"

#define EVENTS_MAX 8u

void kvpull_share_wake(struct kvpull_reader *share)
{
	if (share->event_fd < 0 || share->is_kept)
		return;
	share->is_kept = 1;
	(void)eventfd_write(share->wake_fd, 1);
}

static void timer_set(struct kvpull_reader *share, uint64_t at_ns)
{
	struct itimerspec timer = { 0 };

	if (at_ns == share->timer_ns)
		return;
	share->timer_ns = at_ns;
	if (at_ns != UINT64_MAX) {
		timer.it_value.tv_sec = (time_t)(at_ns / KVPULL_NS_PER_S);
		timer.it_value.tv_nsec = (long)(at_ns % KVPULL_NS_PER_S);
	}
	(void)timerfd_settime(share->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

/* Eat what woke us: our own two are edge triggered. */
static void events_clear(struct kvpull_reader *share)
{
	struct epoll_event events[EVENTS_MAX];
	int count = epoll_wait(share->event_fd, events, EVENTS_MAX, 0);

	share->is_kept = 0;
	/* Its time came after this poll's: it is to be set once more. */
	for (; count > 0; count--)
		if (events[count - 1].data.fd == share->timer_fd)
			share->timer_ns = 0;
}

void kvpull_share_sleep(struct kvpull_reader *share, uint32_t worked,
			uint64_t due_ns)
{
	/* Where something was done there may be more. */
	if (!worked && !kvpull_share_reader_has_end(share->reader)) {
		kvpull_routes_disarm(&share->routes);
		events_clear(share);
		timer_set(share, due_ns);
		if (!kvpull_routes_arm(&share->routes) &&
		    !kvpull_share_spills_arm(&share->spills))
			return;
	}
	kvpull_share_wake(share);
}

void kvpull_share_sleep_end(struct kvpull_reader *share)
{
	kvpull_fd_close(&share->event_fd);
	kvpull_fd_close(&share->timer_fd);
	kvpull_fd_close(&share->wake_fd);
}

int kvpull_share_sleep_watch(struct kvpull_reader *share)
{
	return share->event_fd >= 0 && share->spills.file.bytes &&
	       kvpull_epoll_add(share->event_fd, share->spills.file.wake_fd,
				EPOLLIN | EPOLLET);
}

static int sleep_begin(struct kvpull_reader *share)
{
	share->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	share->timer_fd =
		timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	share->event_fd = epoll_create1(EPOLL_CLOEXEC);
	return share->wake_fd < 0 || share->timer_fd < 0 ||
	       share->event_fd < 0 ||
	       kvpull_epoll_add(share->event_fd, share->wake_fd,
				EPOLLIN | EPOLLET) ||
	       kvpull_epoll_add(share->event_fd, share->timer_fd,
				EPOLLIN | EPOLLET) ||
	       kvpull_share_sleep_watch(share) ||
	       kvpull_routes_watch(&share->routes, share->event_fd);
}

int kvpull_share_event_fd(struct kvpull_reader *share)
{
	if (share->event_fd >= 0)
		return share->event_fd;
	if (sleep_begin(share)) {
		kvpull_error(&share->log, "event_fd: %s", strerror(errno));
		kvpull_share_sleep_end(share);
		return KVPULL_EDEVICE;
	}
	/* Nothing is armed yet: the first sleep ends in a poll that does. */
	share->is_kept = 0;
	share->timer_ns = UINT64_MAX;
	kvpull_share_wake(share);
	return share->event_fd;
}
