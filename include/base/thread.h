/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the library's own. */
#ifndef KVPULL_BASE_THREAD_H
#define KVPULL_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/*
 * Start one that takes no signals: those are for the host's threads. name: at
 * most 15 characters. Return: 0, or an errno.
 */
static inline int kvpull_thread_start(pthread_t *thread, const char *name,
				      void *(*run)(void *), void *argument)
{
	sigset_t all;
	sigset_t before;
	int error;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(thread, NULL, run, argument);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error)
		(void)pthread_setname_np(*thread, name);
	return error;
}

#endif /* KVPULL_BASE_THREAD_H */
