/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel that refuses the calls that a test names, for the one file of a program
 * that includes this. Only calls of the thread that asked for it are refused.
 */
#ifndef KVPULL_TESTS_LIB_REFUSE_H
#define KVPULL_TESTS_LIB_REFUSE_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/lib/unit.h"

/*
 * 1 where mmap() and pthread_create() can be refused, too: sanitizers have their
 * own.
 */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&         \
	!defined(__clang__)
#define REFUSE_IS_PLAIN 1
#endif

#define REFUSE_MAX 4u

struct refuse {
	const char *call;
	uint32_t skip; /* calls of that name that pass before */
	int error;
};

static _Thread_local struct {
	struct refuse rows[REFUSE_MAX];
	uint32_t count;
	uint32_t done;
} refusals;

/* The call that comes after so many others of its name fails, once. */
static inline void refuse(const char *call, uint32_t skip, int error)
{
	assert_true(refusals.count < REFUSE_MAX);
	refusals.rows[refusals.count++] =
		(struct refuse){ .call = call, .skip = skip, .error = error };
}

/* Ends all that is still to be refused; returns how many calls were. */
static inline uint32_t refuse_end(void)
{
	const uint32_t done = refusals.done;

	refusals.count = refusals.done = 0;
	return done;
}

/* 1: this call fails; errno is set. */
static inline int refuse_takes(const char *call)
{
	uint32_t at;

	for (at = 0; at < refusals.count; at++) {
		struct refuse *row = &refusals.rows[at];

		if (!row->call || strcmp(row->call, call))
			continue;
		if (row->skip) {
			row->skip--;
			continue;
		}
		row->call = NULL;
		refusals.done++;
		errno = row->error;
		return 1;
	}
	return 0;
}

/*
 * Bytes of address space that this process has mapped, as /proc/self/maps says:
 * qemu-user shows no mapping of its own there. 0: sanitizers map, too.
 */
static inline uint64_t refuse_mapped(void)
{
	uint64_t bytes = 0;
#ifdef REFUSE_IS_PLAIN
	static char text[(1u << 18) + 1];
	const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t got;
	char *line;

	while ((got = read(fd, text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)got;
	(void)close(fd);
	assert_in_range(length, 1, sizeof(text) - 2);
	text[length] = '\0';
	for (line = text; *line; line = strchr(line, '\n') + 1) {
		const uint64_t first = strtoull(line, &line, 16);

		bytes += strtoull(line + 1, &line, 16) - first;
	}
#endif
	return bytes;
}

/*
 * In the place of the library's function of that name, which returns `refused`.
 * Statements behind the arguments run after the call, whose value is `result`.
 */
#define REFUSABLE_THEN(type, name, refused, parameters, arguments, ...)        \
	type refuse_##name parameters __asm__(#name);                          \
	type refuse_##name parameters                                          \
	{                                                                      \
		__typeof__(&refuse_##name) next;                               \
		type result;                                                   \
                                                                               \
		if (refuse_takes(#name))                                       \
			return (refused);                                      \
		*(void **)&next = dlsym(RTLD_NEXT, #name);                     \
		result = next arguments;                                       \
		__VA_ARGS__;                                                   \
		return result;                                                 \
	}

#define REFUSABLE(type, name, refused, parameters, arguments)                  \
	REFUSABLE_THEN(type, name, refused, parameters, arguments, )

/* getrlimit() says limit_told of that resource, unless it is 0. */
#define REFUSABLE_LIMIT(resource)                                              \
	static rlim_t limit_told;                                              \
	REFUSABLE_THEN(int, getrlimit, -1, (int what, struct rlimit *limit),   \
		       (what, limit),                                          \
		       if (what == (resource) && limit_told) limit->rlim_cur = \
			       limit_told)

#endif /* KVPULL_TESTS_LIB_REFUSE_H */
