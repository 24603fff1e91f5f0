/* SPDX-License-Identifier: Apache-2.0 */
/* The only place that reads a clock; the core gets time as an argument. */
#ifndef KVPULL_BASE_CLOCK_H
#define KVPULL_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define KVPULL_NS_PER_MS UINT64_C(1000000)
#define KVPULL_NS_PER_S UINT64_C(1000000000)

/* CLOCK_MONOTONIC, nanoseconds; never 0. */
static inline uint64_t kvpull_clock_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * KVPULL_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* CLOCK_REALTIME, nanoseconds: to say when, never to measure. */
static inline uint64_t kvpull_clock_utc_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * KVPULL_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* CPU time of this thread: what else ran on its core is not in it. */
static inline uint64_t kvpull_clock_thread_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * KVPULL_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* 1 if a line may be said again: the last one is a second old. */
static inline int kvpull_second_passed(uint64_t *said_ns, uint64_t now_ns)
{
	if (*said_ns && now_ns - *said_ns < KVPULL_NS_PER_S)
		return 0;
	*said_ns = now_ns ? now_ns : 1;
	return 1;
}

/*
 * All waits of one close() end by then: semantics F15's second, less what is
 * given back without a wait.
 */
#define KVPULL_CLOSE_NS (9 * KVPULL_NS_PER_S / 10)

static inline uint64_t kvpull_clock_close_by(void)
{
	return kvpull_clock_ns() + KVPULL_CLOSE_NS;
}

/* A pause of close(), between two looks at what it waits for. */
static inline void kvpull_clock_nap(void)
{
	const struct timespec nap = { .tv_nsec = (long)KVPULL_NS_PER_MS };

	(void)nanosleep(&nap, NULL);
}

/* A time of kvpull_clock_ns(), for calls that wait until then. */
static inline struct timespec kvpull_clock_timespec(uint64_t at_ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(at_ns / KVPULL_NS_PER_S),
		.tv_nsec = (long)(at_ns % KVPULL_NS_PER_S),
	};
}

#endif /* KVPULL_BASE_CLOCK_H */
