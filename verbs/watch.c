/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/watch.h"

#include <errno.h>
#include <sys/epoll.h>

int kvpull_verbs_watch_add(const struct kvpull_verbs_watch *watch, int fd,
			   uint32_t tag)
{
	struct epoll_event event = { .events = EPOLLIN };

	event.data.u32 = tag;
	return epoll_ctl(watch->fd, EPOLL_CTL_ADD, fd, &event);
}

int kvpull_verbs_watch_device(const struct kvpull_verbs_watch *watch,
			      const struct kvpull_verbs_device *devices,
			      uint32_t index)
{
	const struct kvpull_verbs_device *device = &devices[index];

	if (kvpull_verbs_watch_add(watch, device->channel->fd, index))
		return -1;
	return kvpull_verbs_watch_add(watch, device->context->async_fd,
				      KVPULL_VERBS_TAG_ASYNC + index) &&
			       errno != EEXIST ?
		       -1 :
		       0;
}

void kvpull_verbs_watch_remove(const struct kvpull_verbs_watch *watch, int fd)
{
	(void)epoll_ctl(watch->fd, EPOLL_CTL_DEL, fd, NULL);
}
