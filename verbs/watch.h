/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one descriptor that tells of all others: completions of each device, what
 * each says of itself, the CM, a timer.
 *
 * Looking at it is a system call; so a busy owner looks once in LOOK_POLLS polls
 * or LOOK_NS, and always after a sleep. Completion queues are looked at in each
 * poll, and first: that is user memory, and what woke the owner lies there. A
 * poll that has something to tell puts the look off to the next one, a few times
 * in a row.
 */
#ifndef KVPULL_VERBS_WATCH_H
#define KVPULL_VERBS_WATCH_H

#include "verbs/connect.h"

struct kvpull_verbs_watch {
	struct kvpull_verbs_connect *connect;
	int fd;
	int timer_fd;
	uint32_t look_now;
	uint32_t may_sleep;   /* armed, and nothing was there */
	uint32_t passed_over; /* looks that were put off, in a row */
	uint32_t polls;       /* since the last look */
	uint64_t looked_ns;
	uint64_t timer_ns; /* set in timer_fd; UINT64_MAX: not */
};

/* connect is set, and open; both descriptors are -1. 0 or KVPULL_EDEVICE. */
int KVPULL_MUST_CHECK kvpull_verbs_watch_open(struct kvpull_verbs_watch *watch);
void kvpull_verbs_watch_close(struct kvpull_verbs_watch *watch);
/*
 * A device's completions, and what it says of itself: of those that share a
 * context one is listened to for all. 0, or -1 and errno; and not any more.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_watch_device(const struct kvpull_verbs_watch *watch,
			  uint32_t device);
void kvpull_verbs_watch_leave(const struct kvpull_verbs_watch *watch,
			      uint32_t device);

/* In each poll: is it time to look, now that so many events are to be told? */
int kvpull_verbs_watch_is_due(struct kvpull_verbs_watch *watch,
			      uint32_t told_count);
/* Return: 1 if something was there. */
int kvpull_verbs_watch_look(struct kvpull_verbs_watch *watch);
/* Before a sleep: it ends at this time at the latest; UINT64_MAX: never. */
void kvpull_verbs_watch_until(struct kvpull_verbs_watch *watch, uint64_t at_ns);

#endif /* KVPULL_VERBS_WATCH_H */
