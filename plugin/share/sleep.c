/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor on which an engine sleeps: readable when a poll has something
 * to do. Nothing here is a system call for an engine that never asked for it.
 */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/cause.h"
#include "base/epoll.h"
#include "base/fd.h"
#include "plugin/share/share_state.h"

void kvpull_share_wake(struct kvpull_reader *share)
{
	kvpull_wakeup_keep(&share->wakeup);
}

void kvpull_share_sleep(struct kvpull_reader *share, uint32_t worked,
			uint64_t due_ns)
{
	/* Where something was done there may be more. */
	if (!worked && !kvpull_share_reader_has_end(share->reader)) {
		kvpull_routes_disarm(&share->routes);
		kvpull_wakeup_clear(&share->wakeup);
		kvpull_wakeup_at(&share->wakeup, due_ns);
		if (!kvpull_routes_arm(&share->routes) &&
		    !kvpull_share_spills_arm(&share->spills))
			return;
	}
	kvpull_share_wake(share);
}

void kvpull_share_sleep_end(struct kvpull_reader *share)
{
	kvpull_wakeup_close(&share->wakeup);
	kvpull_fd_close(&share->wakeup.wake_fd);
}

int kvpull_share_sleep_watch(struct kvpull_reader *share)
{
	return share->wakeup.fd >= 0 && share->spills.file.bytes &&
	       kvpull_epoll_add(share->wakeup.fd, share->spills.file.wake_fd,
				EPOLLIN | EPOLLET);
}

static int sleep_begin(struct kvpull_reader *share)
{
	const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	return kvpull_wakeup_open(&share->wakeup, wake_fd) ||
	       kvpull_share_sleep_watch(share) ||
	       kvpull_routes_watch(&share->routes, share->wakeup.fd);
}

int kvpull_share_event_fd(struct kvpull_reader *share)
{
	if (!share)
		return KVPULL_EINVAL;
	if (share->wakeup.fd >= 0)
		return share->wakeup.fd;
	if (sleep_begin(share)) {
		kvpull_error(&share->log, "event_fd: %s",
			     kvpull_why(WATCH, errno));
		kvpull_share_sleep_end(share);
		return KVPULL_EDEVICE;
	}
	/* Nothing is armed yet: the first sleep ends in a poll that does. */
	kvpull_share_wake(share);
	return share->wakeup.fd;
}
