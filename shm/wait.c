/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Level-triggered epoll. Nothing here blocks: who sleeps, sleeps on the
 * descriptor of the epoll itself.
 */
#include "shm/wait.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/fd.h"
#include "base/least.h"

#define GENERATION_MASK UINT32_C(0xffffff)

int kvpull_wait_open(struct kvpull_wait *wait, const struct kvpull_log *log)
{
	wait->fd = epoll_create1(EPOLL_CLOEXEC);
	if (wait->fd < 0) {
		kvpull_error(log, "epoll: %s", kvpull_why(OTHER, errno));
		return KVPULL_EDEVICE;
	}
	return 0;
}

void kvpull_wait_close(struct kvpull_wait *wait)
{
	kvpull_fd_close(&wait->fd);
}

int kvpull_wait_add(struct kvpull_wait *wait, int fd,
		    struct kvpull_wait_token token)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP };

	event.data.u64 = (uint64_t)token.kind << 56 |
			 (uint64_t)(token.generation & GENERATION_MASK) << 32 |
			 token.index;
	return epoll_ctl(wait->fd, EPOLL_CTL_ADD, fd, &event) ? KVPULL_EDEVICE :
								0;
}

void kvpull_wait_remove(struct kvpull_wait *wait, int fd)
{
	(void)epoll_ctl(wait->fd, EPOLL_CTL_DEL, fd, NULL);
}

void kvpull_wait_end(struct kvpull_wait *wait, int *fd)
{
	if (*fd < 0)
		return;
	kvpull_wait_remove(wait, *fd);
	/* A child that the host fork()ed keeps it open; a pidfd is no socket. */
	(void)shutdown(*fd, SHUT_RDWR);
	kvpull_fd_close(fd);
}

uint32_t kvpull_wait_poll(struct kvpull_wait *wait,
			  struct kvpull_wait_token *tokens, uint32_t capacity)
{
	struct epoll_event events[KVPULL_WAIT_BATCH_MAX];
	int count;
	int i;

	capacity = kvpull_least_u32(capacity, KVPULL_WAIT_BATCH_MAX);
	if (!capacity)
		return 0;
	count = epoll_wait(wait->fd, events, (int)capacity, 0);
	for (i = 0; i < count; i++) {
		const uint64_t word = events[i].data.u64;

		tokens[i] = (struct kvpull_wait_token){
			.kind = (enum kvpull_wait_kind)(word >> 56),
			.index = (uint32_t)word,
			.generation = (uint32_t)(word >> 32) & GENERATION_MASK,
		};
	}
	return count > 0 ? (uint32_t)count : 0;
}
