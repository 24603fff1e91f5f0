/* SPDX-License-Identifier: Apache-2.0 */
/* A refusal of the kernel is told with its true cause, and the remedy. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cause.h"
#include "tests/lib/maps.h"
#include "tests/lib/unit.h"

#define WANTED_BYTES ((size_t)256 << 20)
#define SKIPPED 77

static const char *told(enum kvpull_call call, int error)
{
	static struct kvpull_cause cause;

	return kvpull_cause_of(&cause, call, error);
}

UNIT_TEST(one_errno_has_its_own_advice_for_each_call)
{
	static const struct {
		enum kvpull_call call;
		int error;
		const char *words;
	} cases[] = {
		{ KVPULL_CALL_OTHER, EMFILE, "raise ulimit -n" },
		{ KVPULL_CALL_THREAD, EMFILE, "raise ulimit -n" },
		{ KVPULL_CALL_OTHER, ENFILE, "raise fs.file-max" },
		{ KVPULL_CALL_OTHER, ETOOMANYREFS, "raise ulimit -n" },
		{ KVPULL_CALL_WATCH, ENOSPC, "fs.epoll.max_user_watches" },
		{ KVPULL_CALL_SIZE, ENOSPC, "is full" },
		{ KVPULL_CALL_SIZE, EFBIG, "ulimit -f" },
		{ KVPULL_CALL_LOCK, ENOMEM, "ulimit -l" },
		{ KVPULL_CALL_FOLDER, EROFS, "read-only: name a folder" },
		{ KVPULL_CALL_FOLDER, EACCES, "this user may not write" },
		{ KVPULL_CALL_CONNECT, EACCES, "list the user in uids" },
		{ KVPULL_CALL_URING, EPERM, "io_uring_disabled" },
		{ KVPULL_CALL_URING, ENOMEM, "ulimit -l" },
		{ KVPULL_CALL_PROCESS, EPERM, "ptrace_scope" },
		{ KVPULL_CALL_PROCESS, ESRCH, "PID namespace" },
		{ KVPULL_CALL_LISTEN, EADDRINUSE, "verbs_listen_port" },
		{ KVPULL_CALL_THREAD, EAGAIN, "ulimit -u, or pids.max" },
	};
	size_t at;

	for (at = 0; at < sizeof(cases) / sizeof(*cases); at++) {
		const char *text = told(cases[at].call, cases[at].error);

		if (strncmp(text, strerror(cases[at].error),
			    strlen(strerror(cases[at].error))) != 0 ||
		    !strstr(text, cases[at].words))
			fail_msg("\"%s\" is not in: %s", cases[at].words, text);
	}
}

UNIT_TEST(errno_without_advice_is_its_own_text)
{
	assert_string_equal(told(KVPULL_CALL_OTHER, EIO), strerror(EIO));
	assert_string_equal(told(KVPULL_CALL_FOLDER, EIO), strerror(EIO));
	assert_string_equal(told(KVPULL_CALL_OTHER, ENOSPC), strerror(ENOSPC));
}

UNIT_TEST(errno_survives)
{
	errno = EDOM;
	(void)told(KVPULL_CALL_MAP, ENOMEM);
	assert_int_equal(errno, EDOM);
}

/* ---- ENOMEM of mmap() ---- */

/* In a child: `limit` makes it refuse, and these words are told; or not told. */
static void refused_for(int (*limit)(void), enum kvpull_call call,
			const char *words)
{
	int status = 0;
	const pid_t child = fork();

	assert_true(child >= 0);
	if (!child) {
		struct kvpull_cause cause;
		void *mapped;

		if (limit())
			_exit(SKIPPED);
		mapped = mmap(NULL, WANTED_BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (mapped != MAP_FAILED || errno != ENOMEM)
			_exit(2);
		(void)kvpull_cause_of_map(&cause, call, errno, WANTED_BYTES);
		if (strstr(cause.text, words))
			_exit(0);
		(void)!write(STDOUT_FILENO, cause.text, strlen(cause.text));
		_exit(1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == SKIPPED)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

static int limit_to(unsigned int resource)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit))
		return 1;
	limit.rlim_cur = WANTED_BYTES / 2;
	return setrlimit(resource, &limit);
}

static int limit_address_space(void)
{
	return limit_to(RLIMIT_AS);
}

static int limit_data(void)
{
	return limit_to(RLIMIT_DATA);
}

static int limit_maps(void)
{
	static struct maps maps;

	return !maps_exhaust(&maps, 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
UNIT_TEST(address_space_is_told_by_its_limit)
{
	refused_for(limit_address_space, KVPULL_CALL_MAP,
		    "address space is limited to 128 MiB: raise ulimit -v");
	refused_for(limit_address_space, KVPULL_CALL_SHARE, "ulimit -v");
}

UNIT_TEST(private_memory_is_told_by_its_limit)
{
	refused_for(limit_data, KVPULL_CALL_MAP,
		    "private memory is limited to 128 MiB: raise ulimit -d");
	/* Shared memory is not private: the same errno has another cause. */
	refused_for(limit_data, KVPULL_CALL_SHARE, "no memory left");
}
#endif

UNIT_TEST(mappings_are_told_by_their_number)
{
	refused_for(limit_maps, KVPULL_CALL_MAP,
		    "as many mappings as vm.max_map_count allows (");
	/* glibc says EAGAIN for a stack that is not mapped. */
	refused_for(limit_maps, KVPULL_CALL_SHARE, "vm.max_map_count");
}

static int threads_refused(void)
{
	struct kvpull_cause cause;
	struct maps maps;
	int status = 0;
	const pid_t child = fork();

	if (!child) {
		if (!maps_exhaust(&maps, 0))
			_exit(SKIPPED);
		_exit(!strstr(
			kvpull_cause_of(&cause, KVPULL_CALL_THREAD, EAGAIN),
			"vm.max_map_count"));
	}
	return child < 0 || waitpid(child, &status, 0) != child ||
			       !WIFEXITED(status) ?
		       1 :
		       WEXITSTATUS(status);
}

UNIT_TEST(thread_without_a_mapping_for_its_stack_is_no_lack_of_threads)
{
	const int refused = threads_refused();

	if (refused == SKIPPED)
		skip();
	assert_int_equal(refused, 0);
}

UNIT_TEST(memory_is_told_where_no_limit_is_reached)
{
	struct kvpull_cause cause;

	assert_non_null(strstr(kvpull_cause_of_map(&cause, KVPULL_CALL_SHARE,
						   ENOMEM, MAPS_PAGE),
			       "no memory left on the machine"));
}
