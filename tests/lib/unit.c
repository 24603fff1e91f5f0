/* SPDX-License-Identifier: Apache-2.0 */
/* The tests of a program: a list in the order of their lines. */
#include "tests/lib/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/uring.h"

/* More than any program has; a program with more fails at once. */
#define TESTS_MAX 256

static struct unit_entry *entries;

void unit_enter(struct unit_entry *entry)
{
	struct unit_entry **at = &entries;

	while (*at && (*at)->line < entry->line)
		at = &(*at)->next;
	entry->next = *at;
	*at = entry;
}

int unit_run(CMFixtureFunction setup, CMFixtureFunction teardown)
{
	static struct CMUnitTest tests[TESTS_MAX];
	size_t count = 0;

	for (const struct unit_entry *entry = entries; entry;
	     entry = entry->next) {
		if (count == TESTS_MAX) {
			print_error("more than %d tests: raise TESTS_MAX\n",
				    TESTS_MAX);
			return 1;
		}
		tests[count++] = entry->test;
	}
	return _cmocka_run_group_tests("tests", tests, count, setup, teardown);
}

uint32_t fds_open(void)
{
	DIR *folder = opendir("/proc/self/fd");
	uint32_t count = 0;

	assert_non_null(folder);
	while (readdir(folder))
		count++;
	(void)closedir(folder);
	return count;
}

int input_close(void)
{
	const int input = fcntl(0, F_DUPFD_CLOEXEC, 3);

	(void)close(0);
	return input;
}

void input_open(int input)
{
	if (input < 0)
		return;
	assert_int_equal(dup2(input, 0), 0);
	assert_int_equal(close(input), 0);
}

void unit_needs_uring(void)
{
	const int refused = uring_errno();

	if (!refused)
		return;
	print_message("refused: io_uring: %s\n", strerror(refused));
	skip();
}

__attribute__((weak)) int unit_thread_hangs(void)
{
	return 0;
}

/*
 * In the place of libc's, for the library that is linked here: close() waits
 * for a thread's end, however long the host stands still meanwhile, and gives
 * one up that hangs.
 */
int pthread_cond_timedwait(pthread_cond_t *restrict cond,
			   pthread_mutex_t *restrict lock,
			   const struct timespec *restrict until)
{
	if (!unit_thread_hangs())
		return pthread_cond_wait(cond, lock);
	return pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, until);
}
