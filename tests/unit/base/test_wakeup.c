/* SPDX-License-Identifier: Apache-2.0 */
/* The timer that an engine's thread sleeps on. */
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/wakeup.h"
#include "tests/lib/unit.h"

/* Long past: it comes as soon as it is set. */
#define PAST_NS 1u
#define PATIENCE_MS 20000

static uint32_t sets; /* of timers */

/* In the place of libc's, for the library that is linked to this program. */
int timerfd_settime(int fd, int flags, const struct itimerspec *to,
		    struct itimerspec *before)
{
	sets++;
	return (int)syscall(SYS_timerfd_settime, fd, flags, to, before);
}

static int is_woken(const struct kvpull_wakeup *wakeup, int timeout_ms)
{
	struct pollfd fd = { .fd = wakeup->fd, .events = POLLIN };

	return poll(&fd, 1, timeout_ms);
}

/* The clock of the poll may be a little behind the timer's. */
UNIT_TEST(a_time_that_came_too_early_comes_again)
{
	const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct kvpull_wakeup wakeup;
	uint32_t turn;

	assert_true(wake_fd >= 0);
	assert_int_equal(kvpull_wakeup_open(&wakeup, wake_fd), 0);
	assert_int_equal(is_woken(&wakeup, 0), 0);
	for (turn = 0; turn < 3; turn++) {
		kvpull_wakeup_at(&wakeup, PAST_NS);
		assert_int_equal(sets, turn + 1);
		assert_int_equal(is_woken(&wakeup, PATIENCE_MS), 1);
		kvpull_wakeup_clear(&wakeup);
		assert_int_equal(is_woken(&wakeup, 0), 0);
	}
	/* A wake-up that was taken back in between does not fire. */
	kvpull_wakeup_at(&wakeup, UINT64_MAX - 1);
	kvpull_wakeup_at(&wakeup, UINT64_MAX);
	assert_int_equal(is_woken(&wakeup, 0), 0);
	kvpull_wakeup_close(&wakeup);
	(void)close(wake_fd);
}

UNIT_TEST(descriptor_0_is_slept_on)
{
	const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	const int input = input_close();
	struct kvpull_wakeup wakeup;
	int is_kept;

	assert_int_equal(kvpull_wakeup_open(&wakeup, wake_fd), 0);
	assert_int_equal(wakeup.fd, 0);
	kvpull_wakeup_keep(&wakeup);
	is_kept = is_woken(&wakeup, 0);
	kvpull_wakeup_close(&wakeup);
	input_open(input);
	assert_int_equal(is_kept, 1);
	(void)close(wake_fd);
}
