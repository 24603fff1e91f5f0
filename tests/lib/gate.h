/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gate in front of the library's copy threads, for the one file of a program
 * that includes this: a thread that sleeps stays asleep while the gate is
 * closed, whoever wakes it. So a test says when they begin.
 */
#ifndef KVPULL_TESTS_LIB_GATE_H
#define KVPULL_TESTS_LIB_GATE_H

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>

typedef long (*gate_next)(long, long, long, long, long, long, long);

/* In the place of libc's, for the library that is linked to this program. */
long gate_syscall(long number, long a, long b, long c, long d, long e,
		  long f) __asm__("syscall");

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static uint32_t gate_is_closed;
static uint32_t gate_asleep;
static uint32_t gate_wakes; /* by whom, is the test's to know */

long gate_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	const int is_sleep =
		number == SYS_futex && (int)b == FUTEX_WAIT_PRIVATE;
	gate_next next;
	long result;

	*(void **)&next = dlsym(RTLD_NEXT, "syscall");
	if (number == SYS_futex && (int)b == FUTEX_WAKE_PRIVATE) {
		(void)pthread_mutex_lock(&gate_lock);
		gate_wakes++;
		(void)pthread_mutex_unlock(&gate_lock);
	}
	if (!is_sleep)
		return next(number, a, b, c, d, e, f);
	(void)pthread_mutex_lock(&gate_lock);
	gate_asleep++;
	(void)pthread_cond_broadcast(&gate_changed);
	(void)pthread_mutex_unlock(&gate_lock);
	result = next(number, a, b, c, d, e, f);
	(void)pthread_mutex_lock(&gate_lock);
	while (gate_is_closed)
		(void)pthread_cond_wait(&gate_changed, &gate_lock);
	gate_asleep--;
	(void)pthread_mutex_unlock(&gate_lock);
	return result;
}

/* Returns when so many threads, which is all of them, are behind it. */
static void gate_close(uint32_t thread_count)
{
	(void)pthread_mutex_lock(&gate_lock);
	gate_is_closed = 1;
	while (gate_asleep < thread_count)
		(void)pthread_cond_wait(&gate_changed, &gate_lock);
	(void)pthread_mutex_unlock(&gate_lock);
}

static void gate_open(void)
{
	(void)pthread_mutex_lock(&gate_lock);
	gate_is_closed = 0;
	(void)pthread_cond_broadcast(&gate_changed);
	(void)pthread_mutex_unlock(&gate_lock);
}

#endif
