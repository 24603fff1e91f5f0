/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of waking in a plain program: a thread sleeps until it is asked for
 * a copy, and wakes the waiting processes afterwards. The hand-overs are those
 * of a pull with progress=thread, and it does nothing else of a pull.
 */
#ifndef KVPULL_TESTS_BENCH_WOKEN_H
#define KVPULL_TESTS_BENCH_WOKEN_H

#include <pthread.h>
#include <stdint.h>

#include "tests/bench/node.h"

struct woken {
	struct producer *producer;
	void (*copy)(void *context);
	void *context;
	pthread_t thread;
	int thread_runs;
	int stop;    /* ordered by wake_fd */
	int wake_fd; /* the thread sleeps on it */
	int done_fd; /* the poster sleeps on it */
};

/* 0 or an error. Its copy() runs on the thread. Closed by _close, also then. */
int woken_open(struct woken *woken, struct producer *producer,
	       void (*copy)(void *context), void *context);
void woken_close(struct woken *woken);
/* Asks for a copy and waits for it. 0 and the time it took, or an error. */
int woken_run(struct woken *woken, uint64_t *took_ns);

#endif /* KVPULL_TESTS_BENCH_WOKEN_H */
