/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copy threads that do not start, and a file of routines that cannot be read or
 * written: fewer threads copy, by the default, and no half file is left.
 */
#undef _FORTIFY_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "shm/copy.h"
#include "shm/copy_choice.h"
#include "shm/folder.h"
#include "tests/lib/lines.h"
#include "tests/lib/refuse.h"
#include "tests/unit/shm/copies.h"

/* clang-format off */
REFUSABLE(int, openat, -1, (int fd, const char *path, int flags, mode_t mode), (fd, path, flags, mode))
REFUSABLE(int, fstat, -1, (int fd, struct stat *status), (fd, status))
REFUSABLE(ssize_t, read, -1, (int fd, void *bytes, size_t byte_count), (fd, bytes, byte_count))
REFUSABLE(int, fchmod, -1, (int fd, mode_t mode), (fd, mode))
REFUSABLE(int, renameat, -1, (int from_fd, const char *from, int to_fd, const char *to), (from_fd, from, to_fd, to))
#ifdef REFUSE_IS_PLAIN
REFUSABLE(int, pthread_create, errno, (pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument), (thread, how, run, argument))
#endif
/* clang-format on */

static uint32_t is_full; /* the disk takes a byte less than it is given */

ssize_t refuse_write(int fd, const void *bytes,
		     size_t byte_count) __asm__("write");

ssize_t refuse_write(int fd, const void *bytes, size_t byte_count)
{
	ssize_t (*next)(int, const void *, size_t);

	if (refuse_takes("write"))
		return -1;
	*(void **)&next = dlsym(RTLD_NEXT, "write");
	return next(fd, bytes, byte_count - is_full);
}

static struct {
	char path[64];
	char file[128];
	struct kvpull_folder folder;
} place;

static int up(void **state)
{
	(void)state;
	memset(&place, 0, sizeof(place));
	lines_forget();
	(void)snprintf(place.path, sizeof(place.path),
		       "/tmp/kvpull-test-XXXXXX");
	if (!mkdtemp(place.path))
		return -1;
	(void)snprintf(place.file, sizeof(place.file), "%s/%s", place.path,
		       KVPULL_COPY_CHOICE_FILE);
	place.folder = (struct kvpull_folder){ .path = place.path, .fd = -1 };
	return kvpull_folder_open(&place.folder, &lines_log);
}

/* Nothing but the file is in the folder. */
static int down(void **state)
{
	(void)state;
	(void)unlink(place.file);
	kvpull_folder_close(&place.folder);
	return rmdir(place.path);
}

#define TEST(name) UNIT_TEST_WITH(name, up, down)

static struct kvpull_copy_choices plain(void)
{
	struct kvpull_copy_choices choices;

	kvpull_copy_choices_set(&choices, kvpull_copy_routine_named("memcpy"));
	return choices;
}

TEST(choice_that_cannot_be_written_leaves_no_file)
{
	static const struct {
		struct refuse refused;
		uint32_t is_full;
		const char *said;
	} rows[] = {
		{ { "openat", 0, EACCES }, 0, "Permission denied: this user" },
		{ { "write", 0, ENOSPC }, 0, "No space left on device" },
		{ { "fchmod", 0, EPERM }, 0, "Operation not permitted" },
		{ { "renameat", 0, EROFS }, 0, "Read-only file system" },
		{ { NULL, 0, 0 }, 1, "No space left on device: its file" },
	};
	const struct kvpull_copy_choices choices = plain();
	const uint32_t fds = fds_open();
	struct stat status;
	size_t at;

	for (at = 0; at < sizeof(rows) / sizeof(rows[0]); at++) {
		if (rows[at].refused.call)
			refuse(rows[at].refused.call, 0,
			       rows[at].refused.error);
		is_full = rows[at].is_full;
		assert_int_equal(kvpull_copy_choice_save(&place.folder,
							 &choices, &lines_log),
				 KVPULL_EDEVICE);
		is_full = 0;
		assert_int_equal(refuse_end(), rows[at].refused.call != NULL);
		assert_int_equal(lines.counts[KVPULL_LOG_ERROR], at + 1);
		assert_int_equal(
			strncmp(lines.bad, place.file, strlen(place.file)), 0);
		assert_non_null(strstr(lines.bad, rows[at].said));
		assert_int_equal(fds_open(), fds);
		assert_int_equal(lstat(place.file, &status), -1);
		/* down() sees that no other file is there. */
	}
	assert_int_equal(
		kvpull_copy_choice_save(&place.folder, &choices, &lines_log),
		0);
	assert_int_equal(fds_open(), fds);
}

TEST(choice_that_cannot_be_read_is_ignored)
{
	static const struct {
		struct refuse refused;
		const char *why;
	} rows[] = {
		{ { "openat", 0, EACCES }, "Permission denied" },
		{ { "fstat", 0, EIO }, "it cannot be looked at" },
		{ { "read", 0, EIO }, "it cannot be read" },
	};
	const struct kvpull_copy_choices saved = plain();
	struct kvpull_copy_choices choices = saved;
	const uint32_t fds = fds_open();
	size_t at;

	assert_int_equal(
		kvpull_copy_choice_save(&place.folder, &saved, &lines_log), 0);
	for (at = 0; at < sizeof(rows) / sizeof(rows[0]); at++) {
		char said[256];

		refuse(rows[at].refused.call, 0, rows[at].refused.error);
		assert_int_equal(kvpull_copy_choice_load(&place.folder,
							 &choices, &lines_log),
				 KVPULL_EROUTE);
		assert_int_equal(refuse_end(), 1);
		assert_int_equal(lines.counts[KVPULL_LOG_WARN], at + 1);
		(void)snprintf(said, sizeof(said), "%s is ignored: %s",
			       place.file, rows[at].why);
		assert_int_equal(strncmp(lines.bad, said, strlen(said)), 0);
		assert_int_equal(fds_open(), fds);
	}
	/* Where there is none nothing is said. */
	refuse("openat", 0, ENOENT);
	assert_int_equal(
		kvpull_copy_choice_load(&place.folder, &choices, &lines_log),
		KVPULL_EROUTE);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(lines.counts[KVPULL_LOG_WARN], 3);
	assert_int_equal(
		kvpull_copy_choice_load(&place.folder, &choices, &lines_log),
		0);
	assert_memory_equal(&choices, &saved, sizeof(saved));
}

#ifdef REFUSE_IS_PLAIN
TEST(fewer_copy_threads_are_said_and_copy_alone)
{
	const struct kvpull_copy_params params = {
		.thread_count = 3,
		.job_max = 4,
		.wake_fd = -1,
		.routine = "memcpy",
	};
	uint32_t started;

	for (started = 0; started <= 3; started++) {
		struct kvpull_arena arena;
		struct kvpull_copy *copy;
		char said[96];

		lines_forget();
		kvpull_arena_init(&arena, &lines_log);
		refuse("pthread_create", started, EAGAIN);
		assert_int_equal(
			kvpull_copy_open(&copy, &params, &arena, &lines_log),
			0);
		assert_int_equal(refuse_end(), started < 3);
		assert_int_equal(kvpull_copy_threads(copy), started);
		assert_int_equal(lines.counts[KVPULL_LOG_WARN], started < 3);
		(void)snprintf(
			said, sizeof(said),
			"%u of 3 copy threads, so that large pulls are slower: Resource",
			started);
		if (started < 3)
			assert_int_equal(strncmp(lines.bad, said, strlen(said)),
					 0);
		kvpull_copy_close(copy);
		kvpull_arena_fini(&arena);
	}
}
#endif

/* The length is looked at first: what is longer is not even taken apart. */
TEST(choice_has_at_most_512_bytes)
{
	struct kvpull_copy_choices choices = plain();
	char text[KVPULL_COPY_CHOICE_BYTES_MAX + 1];
	int fd;

	memset(text, 'x', sizeof(text));
	fd = open(place.file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, text, KVPULL_COPY_CHOICE_BYTES_MAX),
			 KVPULL_COPY_CHOICE_BYTES_MAX);
	assert_int_equal(
		kvpull_copy_choice_load(&place.folder, &choices, &lines_log),
		KVPULL_EROUTE);
	assert_non_null(strstr(lines.bad, "it is damaged"));
	assert_int_equal(write(fd, text, 1), 1);
	assert_int_equal(
		kvpull_copy_choice_load(&place.folder, &choices, &lines_log),
		KVPULL_EROUTE);
	assert_non_null(strstr(lines.bad, "it is too large"));
	(void)close(fd);
}

/* An engine may have closed its standard input. */
TEST(owner_is_woken_by_a_descriptor_0)
{
	const int input = input_close();
	struct work *work = work_simple(0, 64, 32768);
	struct pollfd wake = { .events = POLLIN };
	struct kvpull_copy_job *job;
	struct pool pool;

	pool_open(&pool, 1, 1);
	wake.fd = pool.wake_fd;
	assert_int_equal(wake.fd, 0);
	assert_int_equal(kvpull_copy_arm(pool.copy), 0);
	assert_int_equal(kvpull_copy_start(pool.copy, &work->job), 0);
	assert_int_equal(poll(&wake, 1, 60000), 1);
	kvpull_copy_disarm(pool.copy);
	assert_int_equal(kvpull_copy_poll(pool.copy, &job, 1), 1);
	assert_ptr_equal(job, &work->job);
	work_check(work);
	pool_close(&pool);
	work_free(work);
	input_open(input);
}
