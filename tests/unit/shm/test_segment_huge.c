/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which huge pages a segment asks for, with how many threads, of a kernel that
 * has as many as a test says.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/segment.h"
#include "tests/lib/lines.h"
#include "tests/lib/unit.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* The kernel. */
static struct {
	uint32_t fails_from; /* calls from this one on, */
	uint32_t fails_to;   /* and before that one, and the first of all */
	int error;
	_Atomic uint32_t calls;
	uint32_t threads; /* made */
} kernel;

/* In the place of libc's, for the library that is linked to this program. */
int madvise(void *at, size_t bytes, int advice)
{
	uint32_t call;

	if (advice != MADV_COLLAPSE)
		return (int)syscall(SYS_madvise, at, bytes, advice);
	call = kernel.calls++;
	if (!kernel.error ||
	    (call && (call < kernel.fails_from || call >= kernel.fails_to)))
		return 0;
	errno = kernel.error;
	return -1;
}

/* Sanitizers have a pthread_create of their own. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&         \
	!defined(__clang__)
#define HAS_OWN_THREADS 1

typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
			 void *);

int pthread_create(pthread_t *restrict thread,
		   const pthread_attr_t *restrict attr,
		   void *(*routine)(void *), void *restrict argument)
{
	create_fn create;

	kernel.threads++;
	*(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
	return create(thread, attr, routine, argument);
}
#endif

UNIT_FIXTURE(setup)
{
	lines_forget();
	memset(&kernel, 0, sizeof(kernel));
}

#define TEST(name) UNIT_TEST_WITH(name, setup, NULL)

/* Return: huge bytes of a segment of so many huge pages. */
static size_t collapsed(size_t pages, uint32_t threads)
{
	struct kvpull_shared shared;
	size_t huge_bytes;

	kernel.calls = kernel.threads = 0;
	assert_int_equal(kvpull_segment_make(
				 &shared, "test", pages * KVPULL_HUGE_BYTES,
				 KVPULL_SEGMENT_READ_ONLY, threads, &lines_log),
			 0);
	huge_bytes = shared.huge_bytes;
	kvpull_segment_unmake(&shared);
	return huge_bytes;
}

/* The calling thread is one of them; a piece is 32 huge pages. */
TEST(huge_pages_are_made_by_the_threads_asked_and_at_most_sixteen)
{
	static const uint32_t cases[][2] = {
		{ 1, 0 },   { 2, 1 },   { 15, 14 },
		{ 16, 15 }, { 17, 15 }, { 64, 15 },
	};
	const size_t pages = 20 * 32;
	uint32_t at;

	for (at = 0; at < sizeof(cases) / sizeof(*cases); at++) {
		assert_int_equal(collapsed(pages, cases[at][0]),
				 pages * KVPULL_HUGE_BYTES);
		assert_int_equal(kernel.calls, 20);
#ifdef HAS_OWN_THREADS
		assert_int_equal(kernel.threads, cases[at][1]);
#endif
	}
	/* No more threads than pieces. */
	assert_int_equal(collapsed(33, 8), 33 * KVPULL_HUGE_BYTES);
#ifdef HAS_OWN_THREADS
	assert_int_equal(kernel.threads, 1);
#endif
}

/* Calls: the whole piece, then each page; a page that is busy is tried thrice. */
TEST(page_that_is_busy_costs_itself_alone)
{
	kernel.fails_from = 2;
	kernel.error = EBUSY;
	kernel.fails_to = 3;
	assert_int_equal(collapsed(4, 1), 3 * KVPULL_HUGE_BYTES);
	assert_int_equal(kernel.calls, 5);
	assert_int_equal(lines.counts[KVPULL_LOG_WARN], 1);
	kernel.error = EAGAIN;
	assert_int_equal(collapsed(4, 1), 4 * KVPULL_HUGE_BYTES);
	assert_int_equal(kernel.calls, 6);
	kernel.fails_to = 5;
	assert_int_equal(collapsed(4, 1), 3 * KVPULL_HUGE_BYTES);
	assert_int_equal(kernel.calls, 7);
}

TEST(kernel_without_huge_pages_is_asked_for_no_more)
{
	static const int errors[] = { EINVAL, ENOMEM };
	uint32_t at;

	kernel.fails_from = 2;
	kernel.fails_to = UINT32_MAX;
	for (at = 0; at < sizeof(errors) / sizeof(*errors); at++) {
		kernel.error = errors[at];
		assert_int_equal(collapsed(64, 1), KVPULL_HUGE_BYTES);
		/* The whole, the first page, and the second: no other piece. */
		assert_int_equal(kernel.calls, 3);
		assert_int_equal(lines.counts[KVPULL_LOG_WARN], at + 1);
	}
}
