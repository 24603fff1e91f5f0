/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cause.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/text_file.h"

#define STACK_BYTES ((uint64_t)8 << 20) /* where ulimit -s has no limit */
#define STATUS_BYTES 4096u

/* clang-format off */
static const struct {
	enum kvpull_call call; /* OTHER: whatever was called */
	int error;
	const char *advice;
} rows[] = {
	{ KVPULL_CALL_OTHER, EMFILE,
	  "every descriptor of this process is in use: raise ulimit -n" },
	{ KVPULL_CALL_OTHER, ENFILE,
	  "every descriptor of this machine is in use: raise fs.file-max" },
	{ KVPULL_CALL_OTHER, ETOOMANYREFS,
	  "too many descriptors are on their way to other processes: raise ulimit -n" },
	{ KVPULL_CALL_WATCH, ENOSPC, "raise fs.epoll.max_user_watches" },
	{ KVPULL_CALL_SIZE, EFBIG, "raise ulimit -f" },
	{ KVPULL_CALL_SIZE, ENOSPC, "its file system is full: make room, or name a folder on another one" },
	{ KVPULL_CALL_LOCK, ENOMEM, "memlock must hold all of it: raise ulimit -l" },
	{ KVPULL_CALL_LOCK, EAGAIN, "memlock must hold all of it: raise ulimit -l" },
	{ KVPULL_CALL_LOCK, EPERM, "memlock is 0: raise ulimit -l" },
	{ KVPULL_CALL_FOLDER, EROFS,
	  "its file system is read-only: name a folder that can be written by socket_dir" },
	{ KVPULL_CALL_FOLDER, EACCES,
	  "this user may not write there: give it mode 700 for the user, or name another by socket_dir" },
	{ KVPULL_CALL_FOLDER, EPERM,
	  "its file system does not allow that: name a folder on another one by socket_dir" },
	{ KVPULL_CALL_FOLDER, EOPNOTSUPP,
	  "its file system has no sockets: name a folder on another one by socket_dir" },
	{ KVPULL_CALL_FOLDER, ENOSPC,
	  "its file system is full: make room, or name another folder by socket_dir" },
	{ KVPULL_CALL_FOLDER, EDQUOT,
	  "the user's quota there is used up: name another folder by socket_dir" },
	{ KVPULL_CALL_FOLDER, ENOENT,
	  "the folder above is missing: make it, or name another by socket_dir" },
	{ KVPULL_CALL_FOLDER, ENOTDIR,
	  "a part of the path is no folder: name another by socket_dir" },
	{ KVPULL_CALL_FOLDER, ELOOP,
	  "it is a symbolic link: name the folder itself by socket_dir" },
	{ KVPULL_CALL_CONNECT, EACCES,
	  "its socket is not open to this user: list the user in uids of both sides" },
	{ KVPULL_CALL_CONNECT, EPERM,
	  "a security module forbids it: allow connections between these users" },
	{ KVPULL_CALL_URING, EPERM,
	  "seccomp or kernel.io_uring_disabled forbids it: allow it, or set uring to no" },
	{ KVPULL_CALL_URING, ENOSYS,
	  "seccomp or this kernel lacks it: allow it, or set uring to no" },
	{ KVPULL_CALL_URING, ENOMEM, "memlock is too small for its rings: raise ulimit -l" },
	{ KVPULL_CALL_PROCESS, EPERM,
	  "that takes one user, kernel.yama.ptrace_scope 0 or CAP_SYS_PTRACE" },
	{ KVPULL_CALL_PROCESS, ESRCH,
	  "it has ended, or is in another PID namespace" },
	{ KVPULL_CALL_LISTEN, EADDRINUSE,
	  "another process listens there: name another by verbs_listen_port" },
	{ KVPULL_CALL_LISTEN, EACCES,
	  "ports below 1024 are root's: name another by verbs_listen_port" },
};
/* clang-format on */

static const char *advice_of(enum kvpull_call call, int error)
{
	size_t at;

	for (at = 0; at < sizeof(rows) / sizeof(*rows); at++)
		if (rows[at].error == error &&
		    (rows[at].call == call ||
		     rows[at].call == KVPULL_CALL_OTHER))
			return rows[at].advice;
	return NULL;
}

static unsigned long long number_read(const char *path)
{
	char text[32];

	kvpull_text_read(path, text, sizeof(text));
	return strtoull(text, NULL, 10);
}

/* "VmSize:    1234 kB" */
static uint64_t status_bytes(const char *status, const char *name)
{
	const char *line = strstr(status, name);

	return line ? strtoull(line + strlen(name), NULL, 10) * 1024 : 0;
}

/* 1: so many bytes more are over the limit, which is told in *limit_bytes. */
static int is_over(unsigned int resource, uint64_t used_bytes,
		   uint64_t more_bytes, uint64_t *limit_bytes)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return 0;
	*limit_bytes = limit.rlim_cur;
	return more_bytes > limit.rlim_cur ||
	       used_bytes > limit.rlim_cur - more_bytes;
}

/*
 * mmap() is refused once there are more mappings than the limit, and what splits
 * one once there are as many: a hole in three pages is refused in both cases.
 */
static int has_too_many_maps(void)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *pages =
		mmap(NULL, 3 * page, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int failed;

	if (pages == MAP_FAILED)
		return 1;
	failed = munmap(pages + page, page);
	(void)munmap(pages, failed ? 3 * page : page);
	if (!failed)
		(void)munmap(pages + 2 * page, page);
	return failed != 0;
}

/* Why memory was not mapped, as text; the checks go from the sure to the rest. */
static int map_explain(char *text, size_t text_bytes, enum kvpull_call call,
		       uint64_t bytes)
{
	char status[STATUS_BYTES];
	uint64_t limit_bytes = 0;

	kvpull_text_read("/proc/self/status", status, sizeof(status));
	if (is_over(RLIMIT_AS, status_bytes(status, "VmSize:"), bytes,
		    &limit_bytes))
		return snprintf(
			text, text_bytes,
			"the address space is limited to %llu MiB: raise ulimit -v",
			(unsigned long long)limit_bytes >> 20);
	if (has_too_many_maps())
		return snprintf(
			text, text_bytes,
			"this process has as many mappings as vm.max_map_count allows (%llu): raise it by sysctl",
			number_read("/proc/sys/vm/max_map_count"));
	if (call == KVPULL_CALL_MAP &&
	    is_over(RLIMIT_DATA, status_bytes(status, "VmData:"), bytes,
		    &limit_bytes))
		return snprintf(
			text, text_bytes,
			"private memory is limited to %llu MiB: raise ulimit -d",
			(unsigned long long)limit_bytes >> 20);
	if (call != KVPULL_CALL_SHARE && call != KVPULL_CALL_SIZE &&
	    number_read("/proc/sys/vm/overcommit_memory") == 2)
		return snprintf(
			text, text_bytes,
			"vm.overcommit_memory is 2, and all of CommitLimit is taken: set it to 0 or 1, or raise vm.overcommit_ratio");
	return 0;
}

static uint64_t stack_bytes(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_STACK, &limit) ||
			       limit.rlim_cur == RLIM_INFINITY ?
		       STACK_BYTES :
		       limit.rlim_cur;
}

/* A cause that errno does not tell; 0: none. */
static int explain(char *text, size_t text_bytes, enum kvpull_call call,
		   int error, uint64_t bytes)
{
	const char *rest =
		"there is no memory left on the machine or in its control group";

	if (call == KVPULL_CALL_THREAD &&
	    (error == EAGAIN || error == ENOMEM)) {
		bytes = stack_bytes();
		rest = "the user or the control group has as many threads as it may: raise ulimit -u, or pids.max";
	} else if (error != ENOMEM ||
		   (call != KVPULL_CALL_MAP && call != KVPULL_CALL_SHARE &&
		    call != KVPULL_CALL_SIZE)) {
		return 0;
	}
	if (!map_explain(text, text_bytes, call, bytes))
		(void)snprintf(text, text_bytes, "%s", rest);
	return 1;
}

const char *kvpull_cause_of_map(struct kvpull_cause *cause,
				enum kvpull_call call, int error, size_t bytes)
{
	const int saved = errno;
	const char *advice = advice_of(call, error);
	char told[KVPULL_CAUSE_BYTES];
	char name[64];
	/* GNU's: it may return a text of its own. */
	const char *words = strerror_r(error, name, sizeof(name));

	if (explain(told, sizeof(told), call, error, bytes))
		advice = told;
	if (advice)
		(void)snprintf(cause->text, sizeof(cause->text),
			       "%.60s: %.190s", words, advice);
	else
		(void)snprintf(cause->text, sizeof(cause->text), "%.60s",
			       words);
	errno = saved;
	return cause->text;
}

const char *kvpull_cause_of(struct kvpull_cause *cause, enum kvpull_call call,
			    int error)
{
	return kvpull_cause_of_map(cause, call, error, 0);
}
