// SPDX-License-Identifier: Apache-2.0
/*
 * The clock runs from where the poster tells the thread to copy until both ends
 * know of it: the poster is awake again, and so is the producer's process. That
 * is what a pull's clock does; who comes last ends it.
 */
#include "tests/bench/woken.h"

#include <poll.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/thread.h"

/* As who may wait for more than one thing: with poll(), not in a read. */
static void wait_for(int fd)
{
	struct pollfd waited = { .fd = fd, .events = POLLIN };
	eventfd_t ignored;

	/* Go on sleeping after an interruption. */
	while (poll(&waited, 1, -1) < 1)
		;
	(void)eventfd_read(fd, &ignored);
}

static void *woken_main(void *argument)
{
	struct woken *woken = argument;

	for (;;) {
		wait_for(woken->wake_fd);
		if (woken->stop)
			return NULL;
		woken->copy(woken->context);
		/*
		 * The producer's process before the poster, as kvpull's thread
		 * says the release before it wakes its engine: so both wake up
		 * at the same time, and not one after the other.
		 */
		producer_mark(woken->producer);
		(void)eventfd_write(woken->done_fd, 1);
		/* Sleep at once: the core is for the woken processes. */
	}
}

int woken_open(struct woken *woken, struct producer *producer,
	       void (*copy)(void *context), void *context)
{
	*woken = (struct woken){
		.producer = producer,
		.copy = copy,
		.context = context,
		.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
		.done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
	};
	if (woken->wake_fd < 0 || woken->done_fd < 0)
		return KVPULL_ENOMEM;
	/* Bound to no core, as kvpull's are. */
	woken->thread_runs = !kvpull_thread_start(&woken->thread, "bench-woken",
						  woken_main, woken);
	return woken->thread_runs ? 0 : KVPULL_ENOMEM;
}

void woken_close(struct woken *woken)
{
	if (!woken->producer) /* never opened */
		return;
	if (woken->thread_runs) {
		woken->stop = 1;
		(void)eventfd_write(woken->wake_fd, 1);
		(void)pthread_join(woken->thread, NULL);
	}
	kvpull_fd_close(&woken->wake_fd);
	kvpull_fd_close(&woken->done_fd);
	woken->producer = NULL;
}

int woken_run(struct woken *woken, uint64_t *took_ns)
{
	uint64_t start_ns;
	uint64_t ended_ns;
	uint64_t marked_ns;
	int code;

	/*
	 * The producer has slept no longer than after it took a hold for a
	 * pull.
	 */
	code = producer_mode(woken->producer, MAIL_SLEEP);
	if (code)
		return code;
	start_ns = kvpull_clock_ns();
	/* As a step that tells kvpull's thread, and an engine on event_fd(). */
	(void)eventfd_write(woken->wake_fd, 1);
	wait_for(woken->done_fd);
	ended_ns = kvpull_clock_ns();
	code = producer_wait_marked(woken->producer, &marked_ns);
	if (marked_ns > ended_ns)
		ended_ns = marked_ns;
	*took_ns = ended_ns - start_ns;
	return code;
}
