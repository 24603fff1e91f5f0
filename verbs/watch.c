/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/watch.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/wakeup.h"
#include "verbs/async.h"
#include "verbs/cm.h"

#define LOOK_POLLS 16u
#define LOOK_NS KVPULL_NS_PER_MS
#define LOOK_WAITS_MAX 4u /* polls that put off a look that is due */

/*
 * Tags of the epoll set: a device's completions have its index, its
 * asynchronous events its index and TAG_ASYNC.
 */
#define TAG_ASYNC KVPULL_VERBS_RAILS_MAX
#define TAG_CM (2 * KVPULL_VERBS_RAILS_MAX)
#define TAG_TIMER (TAG_CM + 1)
#define WATCHED_MAX (TAG_CM + 2)

static int add(const struct kvpull_verbs_watch *watch, int fd, uint32_t tag)
{
	struct epoll_event event = { .events = EPOLLIN };

	event.data.u32 = tag;
	return epoll_ctl(watch->fd, EPOLL_CTL_ADD, fd, &event);
}

int kvpull_verbs_watch_device(const struct kvpull_verbs_watch *watch,
			      uint32_t index)
{
	const struct kvpull_verbs_device *device =
		&watch->connect->shared->devices[index];

	if (add(watch, device->channel->fd, index))
		return -1;
	return add(watch, device->context->async_fd, TAG_ASYNC + index) &&
			       errno != EEXIST ?
		       -1 :
		       0;
}

static void watch_remove(const struct kvpull_verbs_watch *watch, int fd)
{
	(void)epoll_ctl(watch->fd, EPOLL_CTL_DEL, fd, NULL);
}

/*
 * Another device that shares the context, if any, takes over its asynchronous
 * events.
 */
static void async_leave(const struct kvpull_verbs_watch *watch, uint32_t index)
{
	const struct kvpull_verbs_shared *shared = watch->connect->shared;
	const struct ibv_context *context = shared->devices[index].context;
	struct epoll_event event = { .events = EPOLLIN };
	uint32_t at;

	for (at = 0; at < shared->rail_count; at++) {
		if (at == index || shared->devices[at].context != context)
			continue;
		event.data.u32 = TAG_ASYNC + at;
		(void)epoll_ctl(watch->fd, EPOLL_CTL_MOD, context->async_fd,
				&event);
		return;
	}
	watch_remove(watch, context->async_fd);
}

void kvpull_verbs_watch_leave(const struct kvpull_verbs_watch *watch,
			      uint32_t index)
{
	const struct kvpull_verbs_device *device =
		&watch->connect->shared->devices[index];

	if (device->channel)
		watch_remove(watch, device->channel->fd);
	if (device->context)
		async_leave(watch, index);
}

int kvpull_verbs_watch_open(struct kvpull_verbs_watch *watch)
{
	const struct kvpull_verbs_shared *shared = watch->connect->shared;
	uint32_t at;
	int failed;

	watch->look_now = 1;
	watch->timer_ns = UINT64_MAX;
	watch->fd = epoll_create1(EPOLL_CLOEXEC);
	watch->timer_fd =
		timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	failed = watch->fd < 0 || watch->timer_fd < 0 ||
		 add(watch, watch->timer_fd, TAG_TIMER) ||
		 add(watch, watch->connect->channel->fd, TAG_CM);
	for (at = 0; !failed && at < shared->rail_count; at++)
		failed = !shared->devices[at].gone &&
			 kvpull_verbs_watch_device(watch, at);
	if (!failed)
		return 0;
	kvpull_error(shared->log, "verbs: epoll: %s", kvpull_why(WATCH, errno));
	return KVPULL_EDEVICE;
}

void kvpull_verbs_watch_close(struct kvpull_verbs_watch *watch)
{
	kvpull_fd_close(&watch->fd);
	kvpull_fd_close(&watch->timer_fd);
}

/* Completion queues of a device that may have an event, each one at most. */
static uint32_t armed_count(const struct kvpull_verbs_connect *connect,
			    uint32_t device)
{
	uint32_t count = connect->shared->loops[device].is_armed;
	uint32_t at;

	for (at = 0; at < kvpull_verbs_connect_ends(connect); at++) {
		const struct kvpull_verbs_end *end =
			kvpull_verbs_connect_end(connect, at);

		count += end->bell != KVPULL_BELL_OFF && end->device == device;
	}
	return count;
}

/* As many reads as queues are armed: one more would only find it empty. */
static void channel_clear(const struct kvpull_verbs_watch *watch,
			  uint32_t index)
{
	struct kvpull_verbs_shared *shared = watch->connect->shared;
	struct ibv_comp_channel *channel = shared->devices[index].channel;
	uint32_t left = armed_count(watch->connect, index);
	struct ibv_cq *cq;
	void *context;

	do {
		struct kvpull_verbs_end *end;

		if (shared->fabric->ibv.get_cq_event(channel, &cq, &context)) {
			if (errno != EAGAIN && errno != EINTR)
				/* A device that is gone says so for ever. */
				watch_remove(watch, channel->fd);
			return;
		}
		end = context;
		shared->fabric->ibv.ack_cq_events(cq, 1);
		if (end)
			end->bell = KVPULL_BELL_OFF;
		else
			shared->loops[index].is_armed = 0;
	} while (left-- > 1);
}

static void async_clear(const struct kvpull_verbs_watch *watch, uint32_t device)
{
	if (kvpull_verbs_async_poll(watch->connect, device))
		watch_remove(watch, watch->connect->shared->devices[device]
					    .context->async_fd);
}

/*
 * The timer may have fired for a deadline after this poll's time, so it is set
 * again.
 */
static void timer_clear(struct kvpull_verbs_watch *watch)
{
	uint64_t ignored;

	(void)!read(watch->timer_fd, &ignored, sizeof(ignored));
	watch->timer_ns = UINT64_MAX;
}

int kvpull_verbs_watch_is_due(struct kvpull_verbs_watch *watch,
			      uint32_t told_count)
{
	if (++watch->polls < LOOK_POLLS && !watch->look_now &&
	    watch->connect->shared->now_ns - watch->looked_ns < LOOK_NS)
		return 0;
	/* A poll that has events returns at once: its caller polls again soon. */
	if (told_count && watch->passed_over < LOOK_WAITS_MAX) {
		watch->passed_over++;
		return 0;
	}
	watch->passed_over = 0;
	return 1;
}

int kvpull_verbs_watch_look(struct kvpull_verbs_watch *watch)
{
	struct epoll_event ready[WATCHED_MAX];
	const int count = epoll_wait(watch->fd, ready, WATCHED_MAX, 0);
	int at;

	for (at = 0; at < count; at++) {
		const uint32_t tag = ready[at].data.u32;

		if (tag == TAG_CM)
			kvpull_verbs_cm_poll(watch->connect);
		else if (tag == TAG_TIMER)
			timer_clear(watch);
		else if (tag < TAG_ASYNC)
			channel_clear(watch, tag);
		else
			async_clear(watch, tag - TAG_ASYNC);
	}
	watch->look_now = 0;
	watch->polls = 0;
	watch->looked_ns = watch->connect->shared->now_ns;
	return count > 0;
}

void kvpull_verbs_watch_until(struct kvpull_verbs_watch *watch, uint64_t at_ns)
{
	/* A nanosecond later: 0 would be no time. */
	kvpull_timer_at(watch->timer_fd, &watch->timer_ns,
			at_ns == UINT64_MAX ? at_ns : at_ns + 1);
}
