/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A clock that costs what it costs on other machines, to be preloaded in
 * guests of user-mode Linux: there the monotonic clock is a system call of some
 * 15 us, elsewhere a read of the processor's counter, which is also what
 * perftest times itself by. The counter is set by the kernel's clock each
 * millisecond, so that two processes agree on it within some microseconds.
 */
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define SET_NS UINT64_C(1000000)
#define MEASURE_NS UINT64_C(20000000)

int clock_gettime(clockid_t id, struct timespec *now);

static double ns_a_tick;
static _Thread_local uint64_t set_ticks;
static _Thread_local uint64_t set_ns;
static _Thread_local uint64_t last_ns;

static uint64_t kernel_ns(uint64_t *ticks)
{
	const uint64_t before = __rdtsc();
	struct timespec now;

	(void)syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	/* It was read in the middle. */
	*ticks = before + (__rdtsc() - before) / 2;
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

__attribute__((constructor)) static void measure(void)
{
	uint64_t first_ticks;
	uint64_t ticks;
	const uint64_t first_ns = kernel_ns(&first_ticks);
	uint64_t ns;

	do
		ns = kernel_ns(&ticks);
	while (ns - first_ns < MEASURE_NS);
	ns_a_tick = (double)(ns - first_ns) / (double)(ticks - first_ticks);
}

int clock_gettime(clockid_t id, struct timespec *now)
{
	uint64_t ns;

	if (id != CLOCK_MONOTONIC || ns_a_tick <= 0)
		return (int)syscall(SYS_clock_gettime, id, now);
	ns = (uint64_t)((double)(__rdtsc() - set_ticks) * ns_a_tick);
	if (!set_ns || ns >= SET_NS) {
		set_ns = kernel_ns(&set_ticks);
		ns = 0;
	}
	ns += set_ns;
	if (ns > last_ns)
		last_ns = ns;
	now->tv_sec = (time_t)(last_ns / 1000000000u);
	now->tv_nsec = (long)(last_ns % 1000000000u);
	return 0;
}
