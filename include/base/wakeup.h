/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor on which an engine sleeps: an epoll with a timer, an eventfd of
 * its own calls, and what its owner adds. Nothing here is a system call for an
 * engine that never asked for it.
 */
#ifndef KVPULL_BASE_WAKEUP_H
#define KVPULL_BASE_WAKEUP_H

#include <stdint.h>

struct kvpull_wakeup {
	int fd; /* -1 until it is asked for */
	int timer_fd;
	int wake_fd;       /* of the owner; written when a poll is due */
	uint32_t is_kept;  /* readable by our own doing, until the next poll */
	uint64_t timer_ns; /* that the timer is set to; UINT64_MAX: not set */
};

/*
 * Set a timer of CLOCK_MONOTONIC, unless it is set to that; UINT64_MAX: to no
 * time. 0 is none, too, as the kernel has it.
 */
void kvpull_timer_at(int timer_fd, uint64_t *set_ns, uint64_t at_ns);

/* 0, or -1 with errno. */
int kvpull_wakeup_open(struct kvpull_wakeup *wakeup, int wake_fd);
void kvpull_wakeup_close(struct kvpull_wakeup *wakeup);
/* Keeps the descriptor readable until a poll has cleared it. */
void kvpull_wakeup_keep(struct kvpull_wakeup *wakeup);
/* Reads the descriptor until it is no longer readable. */
void kvpull_wakeup_clear(struct kvpull_wakeup *wakeup);
/* Makes the descriptor readable at that time; UINT64_MAX: never. */
void kvpull_wakeup_at(struct kvpull_wakeup *wakeup, uint64_t at_ns);

#endif /* KVPULL_BASE_WAKEUP_H */
