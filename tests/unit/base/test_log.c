/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines: levels, the budget of a second, and what a failed check does. And the
 * double that keeps lines for other tests.
 */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/lib/lines.h"
#include "tests/lib/unit.h"

#define FLOOD 10000u

struct sink {
	uint32_t lines;
	uint32_t fatals;
	jmp_buf out;
	char last[KVPULL_LOG_LINE_BYTES];
};

static void line_take(void *context, uint32_t level, const char *message)
{
	struct sink *sink = context;

	(void)level;
	sink->lines++;
	(void)snprintf(sink->last, sizeof(sink->last), "%s", message);
}

static void fatal_take(void *context, const char *message)
{
	struct sink *sink = context;

	(void)message;
	sink->fatals++;
	longjmp(sink->out, 1);
}

UNIT_TEST(lines_below_the_level_are_not_written)
{
	struct sink sink = { 0 };
	const struct kvpull_log log = { .write = line_take,
					.context = &sink,
					.level = KVPULL_LOG_WARN };

	kvpull_info(&log, "no");
	kvpull_warn(&log, "yes %d", 7);
	assert_int_equal(sink.lines, 1);
	assert_string_equal(sink.last, "yes 7");
	kvpull_warn(NULL, "nobody listens");
}

/* The flood may cross a second once or twice; it never gets through. */
UNIT_TEST(flood_is_counted_not_written)
{
	struct kvpull_log_budget budget = { 0 };
	struct sink sink = { 0 };
	const struct kvpull_log log = { .write = line_take,
					.context = &sink,
					.budget = &budget,
					.level = KVPULL_LOG_INFO };
	uint32_t index;

	for (index = 0; index < FLOOD; index++)
		kvpull_warn(&log, "again");
	assert_in_range(sink.lines, KVPULL_LOG_LINES_MAX,
			5 * KVPULL_LOG_LINES_MAX);
	assert_int_equal(sink.lines +
				 atomic_load_explicit(&budget.suppressed,
						      memory_order_relaxed),
			 FLOOD);
	index = sink.lines;
	kvpull_error(&log, "errors always");
	assert_int_equal(sink.lines, index + 1);
}

UNIT_TEST(failed_check_logs_and_calls_the_host)
{
	struct sink sink = { 0 };
	const struct kvpull_log log = { .write = line_take,
					.fatal = fatal_take,
					.context = &sink,
					.level = KVPULL_LOG_ERROR };

	kvpull_check(&log, 1 + 1 == 2);
	if (!setjmp(sink.out))
		kvpull_check(&log, 1 + 1 == 3);
	assert_int_equal(sink.fatals, 1);
	assert_non_null(strstr(sink.last, "1 + 1 == 3"));
}

/* Where the host has no callback, or there is no log at all. */
UNIT_TEST(failed_check_without_a_host_aborts)
{
	struct sink sink = { 0 };
	const struct kvpull_log log = { .write = line_take,
					.context = &sink,
					.level = KVPULL_LOG_ERROR };
	const struct kvpull_log *logs[] = { &log, NULL };
	size_t at;

	for (at = 0; at < 2; at++) {
		const struct rlimit no_core = { 0, 0 };
		int status = 0;
		const pid_t child = fork();

		assert_true(child >= 0);
		if (!child) {
			(void)signal(SIGABRT, SIG_DFL);
			(void)setrlimit(RLIMIT_CORE, &no_core);
			kvpull_check(logs[at], 1 + 1 == 3);
			_exit(0);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGABRT);
	}
}

/* ---- tests/lib/lines.h, which all other tests listen by ---- */

static void *lines_log_many(void *unused)
{
	uint32_t at;

	(void)unused;
	for (at = 0; at < FLOOD; at++)
		kvpull_warn(&lines_log, "%u", at);
	return NULL;
}

UNIT_TEST(lines_of_two_threads_are_all_kept)
{
	pthread_t thread;

	lines_forget();
	assert_int_equal(pthread_create(&thread, NULL, lines_log_many, NULL),
			 0);
	(void)lines_log_many(NULL);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(lines.bad_count, 2 * FLOOD);
	assert_string_equal(lines.bad, "9999");
	assert_true(lines_said("9999\n"));
	lines_forget();
	assert_false(lines_said("9999"));
}

/* The thread may have the lock as its process forks. */
UNIT_TEST(forked_child_logs_beside_a_thread_that_logs)
{
	pthread_t thread;
	uint32_t at;

	lines_forget();
	assert_int_equal(pthread_create(&thread, NULL, lines_log_many, NULL),
			 0);
	for (at = 0; at < 20; at++) {
		int status = 0;
		const pid_t child = fork();

		assert_true(child >= 0);
		if (!child) {
			(void)alarm(60);
			kvpull_warn(&lines_log, "of the child");
			/* No exit: sanitizers would miss the thread there. */
			if (lines_said("of the child"))
				(void)raise(SIGKILL);
			_exit(1);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, SIGKILL);
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_false(lines_said("of the child"));
}
