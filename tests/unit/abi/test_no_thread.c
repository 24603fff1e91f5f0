/* SPDX-License-Identifier: Apache-2.0 */
/* A host that gives a process no more threads: the worker has none of its own. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/patience.h"
#include "tests/unit/abi/world.h"

/* Sanitizers have a pthread_create of their own. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&         \
	!defined(__clang__)
#define HAS_OWN_THREADS 1

typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
			 void *);

static uint32_t exhausted;

/* Before libc's, for the library that is linked to this program. */
int pthread_create(pthread_t *restrict thread,
		   const pthread_attr_t *restrict attr,
		   void *(*routine)(void *), void *restrict argument)
{
	create_fn create;

	if (exhausted)
		return EAGAIN;
	*(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
	return create(thread, attr, routine, argument);
}
#endif

static uint32_t thread_count(void)
{
	DIR *folder = opendir("/proc/self/task");
	uint32_t count = 0;

	assert_non_null(folder);
	while (readdir(folder))
		count++;
	(void)closedir(folder);
	return count - 2; /* . and .. */
}

/*
 * The kernel lists a thread for a moment after pthread_join() returned. Return:
 * the number of threads, wanted unless it stays another one.
 */
static uint32_t thread_count_soon(uint32_t wanted)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	uint32_t tries = 1000 * patience();
	uint32_t count;

	while ((count = thread_count()) != wanted && tries--)
		(void)nanosleep(&pause, NULL);
	return count;
}

static void *end_at_once(void *argument)
{
	return argument;
}

/* The thread sanitizer makes one of its own beside the first one of a program. */
#ifdef __SANITIZE_THREAD__
#define THREADS_ALWAYS 2u
#else
#define THREADS_ALWAYS 1u
#endif

static uint32_t threads_before(void)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, end_at_once, NULL), 0);
	(void)pthread_join(thread, NULL);
	return thread_count_soon(THREADS_ALWAYS);
}

/* However many descriptors are left: an error, or a thread that runs. */
UNIT_TEST(registration_without_descriptors_is_no_success)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_open_params params = open_params("engine");
	struct kvpull_region region = { 0 };
	const struct kvpull_regions regions = four_blocks_in(&region);
	struct rlimit before;
	const uint32_t threads = threads_before();
	rlim_t more;
	int code = KVPULL_EDEVICE;

	params.config_json = "{\"copy_threads\":0,\"route\":\"shm\"}";
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	for (more = 0; code && more < 32; more++) {
		struct kvpull_worker *worker;
		struct rlimit few = before;
		int lowest;

		assert_int_equal(ops->open(&params, &worker, NULL), 0);
		region = region_alloc(worker);
		lowest = dup(0);
		assert_true(lowest >= 0);
		(void)close(lowest);
		few.rlim_cur = (rlim_t)lowest + more;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
		code = ops->regions_register(worker, &regions, NULL);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
		assert_int_equal(thread_count_soon(threads + !code),
				 threads + !code);
		ops->close(worker);
	}
	assert_int_equal(code, 0);
	assert_true(more > 1);
}

UNIT_TEST(registration_without_a_thread_says_what_to_do)
{
#ifdef HAS_OWN_THREADS
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_open_params params = open_params("engine");
	struct kvpull_region region = { 0 };
	const struct kvpull_regions regions = four_blocks_in(&region);
	struct kvpull_worker *worker;

	params.config_json = "{\"copy_threads\":0,\"route\":\"shm\"}";
	assert_int_equal(ops->open(&params, &worker, &detail), 0);
	region = region_alloc(worker);
	exhausted = 1;
	assert_int_equal(ops->regions_register(worker, &regions, &detail),
			 KVPULL_EDEVICE);
	assert_int_equal(detail.code, KVPULL_EDEVICE);
	assert_non_null(strstr(detail.message, "close the worker"));
	ops->close(worker);
	exhausted = 0;
	/* And that is what helps. */
	assert_int_equal(ops->open(&params, &worker, &detail), 0);
	region = region_alloc(worker);
	assert_int_equal(ops->regions_register(worker, &regions, &detail), 0);
	ops->close(worker);
#else
	(void)state;
	skip();
#endif
}
