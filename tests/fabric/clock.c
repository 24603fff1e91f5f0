/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A clock that costs what it costs on other machines, to be preloaded in
 * guests of user-mode Linux: there the monotonic clock is a system call of some
 * 15 us, elsewhere a read of the processor's counter, which is also what
 * perftest times itself by. The counter is one for all guests of a machine, so
 * that times of two guests can be compared.
 *
 * FABRIC_COUNTER has the counter's value and the nanoseconds of a tick. Without
 * it the program says both of this machine, and ends.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define MEASURE_NS UINT64_C(200000000)
#define NS_PER_S UINT64_C(1000000000)

int clock_gettime(clockid_t id, struct timespec *now);
int timerfd_settime(int fd, int flags, const struct itimerspec *to,
		    struct itimerspec *was);

static double ns_a_tick;
static uint64_t first_ticks;

static uint64_t kernel_ns(uint64_t *ticks)
{
	const uint64_t before = __rdtsc();
	struct timespec now;

	(void)syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	/* The kernel's clock was read in the middle. */
	*ticks = before + (__rdtsc() - before) / 2;
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void measure(void)
{
	uint64_t first;
	uint64_t ticks;
	const uint64_t first_ns = kernel_ns(&first);
	uint64_t ns;

	do
		ns = kernel_ns(&ticks);
	while (ns - first_ns < MEASURE_NS);
	(void)printf("%llu:%.12f\n", (unsigned long long)first,
		     (double)(ns - first_ns) / (double)(ticks - first));
	exit(0);
}

__attribute__((constructor)) static void start(void)
{
	const char *counter = getenv("FABRIC_COUNTER");
	char *end = NULL;

	if (!counter)
		measure();
	first_ticks = strtoull(counter, &end, 10);
	ns_a_tick = *end ? strtod(end + 1, NULL) : 0;
}

/* Nanoseconds, from 1 s on: 0 is no time. */
static uint64_t counter_ns(void)
{
	return NS_PER_S +
	       (uint64_t)((double)(__rdtsc() - first_ticks) * ns_a_tick);
}

int clock_gettime(clockid_t id, struct timespec *now)
{
	uint64_t ns;

	if (id != CLOCK_MONOTONIC || ns_a_tick <= 0)
		return (int)syscall(SYS_clock_gettime, id, now);
	ns = counter_ns();
	now->tv_sec = (time_t)(ns / NS_PER_S);
	now->tv_nsec = (long)(ns % NS_PER_S);
	return 0;
}

/* A time of this clock means nothing to the kernel: it is told how long. */
int timerfd_settime(int fd, int flags, const struct itimerspec *to,
		    struct itimerspec *was)
{
	struct itimerspec left = *to;
	uint64_t at_ns;
	uint64_t now_ns;

	at_ns = (uint64_t)to->it_value.tv_sec * NS_PER_S +
		(uint64_t)to->it_value.tv_nsec;
	if (ns_a_tick > 0 && at_ns && flags & TFD_TIMER_ABSTIME) {
		now_ns = counter_ns();
		/* A time of 0 would stop the timer. */
		at_ns = at_ns > now_ns ? at_ns - now_ns : 1;
		left.it_value.tv_sec = (time_t)(at_ns / NS_PER_S);
		left.it_value.tv_nsec = (long)(at_ns % NS_PER_S);
		flags &= ~TFD_TIMER_ABSTIME;
	}
	return (int)syscall(SYS_timerfd_settime, fd, flags, &left, was);
}
