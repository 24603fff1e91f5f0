/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each call into the kernel that a status file takes is refused in turn: the
 * worker goes on without a file, a line says why, and nothing is left behind.
 */
#undef _FORTIFY_SOURCE /* whose calls are inline, and cannot be replaced */
#include "tests/unit/status/world.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

enum call {
	CALL_NONE = 0,
	CALL_OPEN, /* of the unnamed file */
	CALL_GROUP,
	CALL_MODE,
	CALL_LOCK,
	CALL_SYSTEM,
	CALL_PAGES,
	CALL_MAP,
	CALL_NAME,
	CALL_FOLDER
};

static enum call refused_call;
static int refused_errno;
static uint32_t refused_times; /* so many times more; then it is allowed */
static uint32_t calls[CALL_FOLDER + 1];
static struct statfs system_is; /* f_type 0: the kernel's */

static int is_refused(enum call call)
{
	calls[call]++;
	if (call != refused_call || !refused_times)
		return 0;
	refused_times--;
	errno = refused_errno;
	return 1;
}

static void refuse(enum call call, int error, uint32_t times)
{
	refused_call = call;
	refused_errno = error;
	refused_times = times;
	memset(calls, 0, sizeof(calls));
}

/* In the place of libc's, for the library that is linked to this program. */
int openat(int folder, const char *path, int flags, ...)
{
	if ((flags & O_TMPFILE) == O_TMPFILE && is_refused(CALL_OPEN))
		return -1;
	return (int)syscall(SYS_openat, folder, path, flags, 0600);
}

int fchown(int fd, uid_t owner, gid_t group)
{
	return is_refused(CALL_GROUP) ?
		       -1 :
		       (int)syscall(SYS_fchown, fd, owner, group);
}

int fchmod(int fd, mode_t mode)
{
	return is_refused(CALL_MODE) ? -1 : (int)syscall(SYS_fchmod, fd, mode);
}

int flock(int fd, int operation)
{
	return is_refused(CALL_LOCK) ? -1 :
				       (int)syscall(SYS_flock, fd, operation);
}

int fstatfs(int fd, struct statfs *system)
{
	if (is_refused(CALL_SYSTEM) || syscall(SYS_fstatfs, fd, system))
		return -1;
	if (system_is.f_type) {
		system->f_type = system_is.f_type;
		system->f_blocks = system_is.f_blocks;
		system->f_bavail = system_is.f_bavail;
	}
	return 0;
}

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
	return is_refused(CALL_PAGES) ?
		       -1 :
		       (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}

int linkat(int from_folder, const char *from, int folder, const char *name,
	   int flags)
{
	return is_refused(CALL_NAME) ? -1 :
				       (int)syscall(SYS_linkat, from_folder,
						    from, folder, name, flags);
}

int statfs(const char *path, struct statfs *system)
{
	return is_refused(CALL_FOLDER) ? -1 :
					 (int)syscall(SYS_statfs, path, system);
}

/* close() that succeeds may leave any errno. */
int close(int fd)
{
	const int code = (int)syscall(SYS_close, fd);

	if (!code)
		errno = EDOM;
	return code;
}

/* Sanitizers have an mmap of their own. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HAS_OWN_MMAP 1

void *mmap(void *at, size_t bytes, int protection, int flags, int fd,
	   off_t offset)
{
	if (is_refused(CALL_MAP))
		return MAP_FAILED;
	return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd,
			       offset);
}

#endif

static int host_fails;

int gethostname(char *name, size_t bytes)
{
	(void)snprintf(name, bytes, host_fails ? "half-of-a-na" : "host-1");
	errno = ENAMETOOLONG;
	return host_fails ? -1 : 0;
}

/* A worker without a file: all of it is its own, and it counts as with one. */
static void goes_on_without_a_file(struct world *world)
{
	struct kvpull_status *status = &world->status;

	assert_non_null(status->base);
	assert_string_equal(status->path, "");
	assert_false(kvpull_status_is_on(&status->engine));
	assert_int_equal(status->header->incarnation, 1);
	status->counts->releases_queued = 1;
	assert_int_equal(file_count(world), 0);
	kvpull_status_close(status);
}

static void works_again(struct world *world)
{
	struct kvpull_status_header header;

	refuse(CALL_NONE, 0, 0);
	opens(world, 2);
	header_reads(world, &header, 0);
	assert_int_equal(file_count(world), 1);
	assert_int_equal(unlink(world->status.path), 0);
	kvpull_status_close(&world->status);
}

/* The whole line; what is a number of pages, or a limit, says its remedy. */
static const struct {
	enum call call;
	int error;
	uint32_t times;
	const char *why;
} rows[] = {
	{ CALL_OPEN, EOPNOTSUPP, 1, "Operation not supported" },
	{ CALL_OPEN, EMFILE, 1,
	  "Too many open files: every descriptor of this process is in use: raise ulimit -n" },
	{ CALL_GROUP, EPERM, 1, "Operation not permitted" },
	{ CALL_MODE, EPERM, 1, "Operation not permitted" },
	{ CALL_LOCK, ENOLCK, 1, "No locks available" },
	{ CALL_SYSTEM, EIO, 1, "Input/output error" },
	{ CALL_PAGES, EFBIG, 1, "File too large: raise ulimit -f" },
	/* The dead gave way, and still there is no room. */
	{ CALL_PAGES, ENOSPC, 2,
	  "No space left on device: its file system is full: make room, or name a folder on another one" },
	{ CALL_PAGES, EINTR, 8, "Interrupted system call" },
#ifdef HAS_OWN_MMAP
	{ CALL_MAP, EAGAIN, 1, "Resource temporarily unavailable" },
#endif
	{ CALL_NAME, EACCES, 1, "Permission denied" },
	{ CALL_NAME, EEXIST, 1, "File exists" },
};

TEST(refused_call_is_told_and_the_worker_goes_on)
{
	const uint32_t fds = fds_open();
	char line[512];
	size_t at;

	world->config.status_group = getegid() + !getegid();
	for (at = 0; at < sizeof(rows) / sizeof(*rows); at++) {
		lines_forget();
		refuse(rows[at].call, rows[at].error, rows[at].times);
		opens(world, 1);
		assert_int_equal(refused_times, 0);
		assert_int_equal(lines.bad_count, 1);
		(void)snprintf(
			line, sizeof(line),
			"no status file in %s: %s; kvpull_top will not see this worker",
			world->folder, rows[at].why);
		assert_string_equal(lines.bad, line);
		goes_on_without_a_file(world);
		assert_int_equal(fds_open(), fds);
		works_again(world);
		assert_int_equal(fds_open(), fds);
	}
}

/* Nothing of a pool counts without a file; nor is that an error. */
TEST(refused_call_leaves_a_pool_without_rows)
{
	const uint32_t fds = fds_open();
	const char *end = "kvpull_top will not see this pool";

	refuse(CALL_NAME, EACCES, 1);
	assert_int_equal(open_pool(world, &world->status, 1), 0);
	assert_null(world->status.base);
	assert_null(world->status.header);
	assert_true(strlen(lines.bad) > strlen(end));
	assert_string_equal(lines.bad + strlen(lines.bad) - strlen(end), end);
	kvpull_status_close(&world->status);
	assert_int_equal(fds_open(), fds);
	refuse(CALL_NONE, 0, 0);
	assert_int_equal(open_pool(world, &world->status, 1), 0);
	assert_int_equal(file_count(world), 1);
	assert_int_equal(world->status.header->kind, KVPULL_STATUS_OF_POOL);
}

#ifdef HAS_OWN_MMAP

/* Neither a file's pages nor private ones. */
TEST(worker_without_memory_for_its_counters_is_not_opened)
{
	const uint32_t fds = fds_open();

	refuse(CALL_MAP, ENOMEM, UINT32_MAX);
	assert_int_equal(open_as(world, &world->status, 1), KVPULL_ENOMEM);
	assert_null(world->status.base);
	assert_int_equal(file_count(world), 0);
	assert_int_equal(fds_open(), fds);
	works_again(world);
}

#endif

TEST(pages_are_asked_for_again_after_a_signal)
{
	refuse(CALL_PAGES, EINTR, 7);
	opens(world, 1);
	assert_int_equal(calls[CALL_PAGES], 8);
	assert_int_equal(lines.bad_count, 0);
	assert_int_equal(file_count(world), 1);
}

/* A file that is closed is a dead process's: no lock is on it. */
static void leave_dead(struct world *world, uint64_t incarnation,
		       uint64_t opened_ns, uint64_t ran_ns)
{
	struct kvpull_status own;

	assert_int_equal(open_at(world, &own, incarnation, opened_ns), 0);
	kvpull_status_set(&own.engine.thread->ran_ns, ran_ns);
	kvpull_status_close(&own);
	assert_true(has_file(world, incarnation));
}

TEST(dead_give_way_where_there_is_no_room)
{
	const uint64_t now_ns = kvpull_clock_ns();

	leave_dead(world, 7, now_ns, now_ns);
	leave_dead(world, 8, now_ns, now_ns);
	assert_int_equal(file_count(world), 2);
	refuse(CALL_PAGES, ENOSPC, 1);
	opens(world, 1);
	assert_int_equal(lines.bad_count, 0);
	assert_int_equal(file_count(world), 1);
	assert_true(has_file(world, 1));
}

/* The size that a file system tells, and whether a file is made on it. */
TEST(file_is_made_where_the_file_system_has_no_limit)
{
	static const struct {
		uint32_t type;
		uint32_t blocks;
		uint32_t is_made;
		uint32_t asks; /* for pages */
	} systems[] = {
		{ TMPFS_MAGIC, 1000, 0, 0 },
		{ TMPFS_MAGIC, 0, 1, 1 },
		{ RAMFS_MAGIC, 1000, 1, 0 },
	};
	struct kvpull_status_header header;
	size_t at;

	for (at = 0; at < sizeof(systems) / sizeof(*systems); at++) {
		refuse(CALL_NONE, 0, 0);
		system_is = (struct statfs){ .f_type = systems[at].type,
					     .f_blocks = systems[at].blocks };
		opens(world, 1);
		system_is.f_type = 0;
		assert_int_equal(calls[CALL_PAGES], systems[at].asks);
		assert_int_equal(file_count(world), systems[at].is_made);
		if (systems[at].is_made) {
			header_reads(world, &header, 0);
			assert_int_equal(unlink(world->status.path), 0);
		}
		kvpull_status_close(&world->status);
	}
}

TEST(host_whose_name_is_not_told_has_none)
{
	host_fails = 1;
	opens(world, 1);
	host_fails = 0;
	assert_string_equal(world->status.header->host, "");
	kvpull_status_close(&world->status);
	opens(world, 2);
	assert_string_equal(world->status.header->host, "host-1");
}

/* ---- the folder ---- */

static void folder_is(struct world *world, const char *socket_dir,
		      const char *wanted)
{
	char path[160] = "";
	const char *why = "";
	int fd;

	(void)snprintf(world->config.socket_dir,
		       sizeof(world->config.socket_dir), "%s", socket_dir);
	fd = kvpull_status_folder(&world->config, path, sizeof(path), &why);
	assert_true(fd >= 0);
	(void)close(fd);
	assert_null(why);
	assert_string_equal(path, wanted);
}

TEST(folder_is_made_in_memory_or_another_one_is_used)
{
	char other[64];
	char path[128];

	(void)snprintf(other, sizeof(other), KVPULL_STATUS_FOLDER, geteuid());
	(void)snprintf(path, sizeof(path), "%s/new", world->folder);
	folder_is(world, path, path);
	assert_int_equal(access(path, F_OK), 0);
	/* The folder above it is missing too. */
	(void)snprintf(path, sizeof(path), "%s/no/new", world->folder);
	folder_is(world, path, other);
	/* The folder above is the root, or is not named. */
	folder_is(world, "/kvpull-test-no-such", other);
	assert_int_not_equal(access("/kvpull-test-no-such", F_OK), 0);
	folder_is(world, "kvpull-test-no-such", other);
	assert_int_not_equal(access("kvpull-test-no-such", F_OK), 0);
	/* Anybody may replace what lies there. */
	assert_int_equal(chmod(world->folder, 0777), 0);
	folder_is(world, world->folder, other);
	assert_int_equal(chmod(world->folder, 0700), 0);
	folder_is(world, world->folder, world->folder);
}

TEST(folder_that_is_nowhere_in_memory_is_told)
{
	const uint32_t fds = fds_open();
	char line[256];

	(void)snprintf(
		line, sizeof(line),
		"no status file in " KVPULL_STATUS_FOLDER
		": its file system is not in memory; kvpull_top will not see this worker",
		geteuid());
	refuse(CALL_FOLDER, EACCES, UINT32_MAX);
	opens(world, 1);
	assert_string_equal(lines.bad, line);
	goes_on_without_a_file(world);
	assert_int_equal(fds_open(), fds);
	works_again(world);
}

/* ---- whom a reader believes ---- */

TEST(file_of_no_size_to_believe_is_refused)
{
	struct kvpull_status_header header;
	char path[sizeof(world->status.path)];
	int fd;

	/* No file at all; one that may not be read. */
	assert_int_equal(read_header(world->folder, geteuid(), &header),
			 KVPULL_EPROTO);
	opens(world, 1);
	(void)snprintf(path, sizeof(path), "%s", world->status.path);
	kvpull_status_close(&world->status);
	assert_int_equal(chmod(path, 0600), 0);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(kvpull_status_header_read(fd, geteuid(), &header),
			 KVPULL_EPROTO);
	/* The longest that is believed, and a byte more. */
	assert_int_equal(read_header(path, geteuid(), &header), 0);
	header.file_bytes = KVPULL_STATUS_BYTES_MAX;
	assert_int_equal(ftruncate(fd, (off_t)header.file_bytes), 0);
	assert_int_equal(pwrite(fd, &header, sizeof(header), 0),
			 sizeof(header));
	assert_int_equal(read_header(path, geteuid(), &header), 0);
	header.file_bytes++;
	assert_int_equal(ftruncate(fd, (off_t)header.file_bytes), 0);
	assert_int_equal(pwrite(fd, &header, sizeof(header), 0),
			 sizeof(header));
	assert_int_equal(read_header(path, geteuid(), &header), KVPULL_EPROTO);
	/* A header that ends too soon. */
	assert_int_equal(ftruncate(fd, (off_t)sizeof(header) - 1), 0);
	assert_int_equal(read_header(path, geteuid(), &header), KVPULL_EPROTO);
	(void)close(fd);
}

OPEN_TEST(rows_that_begin_between_cache_lines_are_refused)
{
	struct kvpull_status_header header;
	uint32_t part;

	for (part = 0; part < KVPULL_STATUS_PARTS; part++) {
		struct kvpull_status_place *place =
			&world->status.header->places[part];

		place->offset -= 8;
		header_reads(world, &header, KVPULL_EPROTO);
		place->offset += 8;
	}
	for (part = KVPULL_STATUS_ENGINE; part <= KVPULL_STATUS_PROGRESS;
	     part++) {
		world->status.header->places[part].row_count = 0;
		header_reads(world, &header, KVPULL_EPROTO);
		world->status.header->places[part].row_count = 1;
	}
	header_reads(world, &header, 0);
}

/* ---- the sweep ---- */

/* Seen last when it ran; it may have ended before its first run. */
TEST(file_of_the_dead_is_as_old_as_its_last_run)
{
	const uint64_t kept_ns = KVPULL_STATUS_KEPT_S * KVPULL_NS_PER_S;

	leave_dead(world, 11, 1000, 0);
	leave_dead(world, 12, 1000, 2000);
	leave_dead(world, 13, 1000, 999);
	sweep(world, 1000 + kept_ns, KVPULL_STATUS_KEPT);
	assert_int_equal(file_count(world), 3);
	sweep(world, 1001 + kept_ns, KVPULL_STATUS_KEPT);
	assert_false(has_file(world, 11));
	assert_true(has_file(world, 12));
	assert_false(has_file(world, 13));
	sweep(world, 2000 + kept_ns, KVPULL_STATUS_KEPT);
	assert_true(has_file(world, 12));
	sweep(world, 2001 + kept_ns, KVPULL_STATUS_KEPT);
	assert_false(has_file(world, 12));
}

static void make_empty(const struct world *world, const char *name)
{
	char path[160];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", world->folder, name);
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	(void)close(fd);
}

static int is_left(const struct world *world, const char *name)
{
	char path[160];

	(void)snprintf(path, sizeof(path), "%s/%s", world->folder, name);
	return access(path, F_OK) == 0;
}

/* A name of so many bytes, with our end. */
static const char *name_of(size_t bytes, char name[80])
{
	memset(name, 'a', bytes);
	(void)snprintf(name + bytes - strlen(KVPULL_STATUS_SUFFIX), 16, "%s",
		       KVPULL_STATUS_SUFFIX);
	return name;
}

TEST(sweep_takes_only_what_has_a_name_of_ours)
{
	char shortest[80];
	char longest[80];
	char too_long[80];
	const struct {
		const char *name;
		int is_taken;
	} names[] = {
		{ name_of(7, shortest), 0 }, { "a.status", 1 },
		{ name_of(63, longest), 1 }, { name_of(64, too_long), 0 },
		{ "a.status2", 0 },          { "a-status", 0 },
	};
	const uint64_t now_ns = kvpull_clock_ns();
	size_t at;

	for (at = 0; at < sizeof(names) / sizeof(*names); at++)
		make_empty(world, names[at].name);
	leave_dead(world, 7, now_ns, now_ns);
	/* An empty file is the oldest of all. */
	sweep(world, now_ns + KVPULL_STATUS_KEPT_S * KVPULL_NS_PER_S,
	      KVPULL_STATUS_KEPT);
	assert_true(has_file(world, 7));
	for (at = 0; at < sizeof(names) / sizeof(*names); at++)
		assert_int_equal(is_left(world, names[at].name),
				 !names[at].is_taken);
}

static int streams_refused;

DIR *fdopendir(int fd)
{
	DIR *(*next)(int);

	if (streams_refused)
		return NULL;
	*(void **)&next = dlsym(RTLD_NEXT, "fdopendir");
	return next(fd);
}

TEST(sweep_that_cannot_look_leaves_all_as_it_is)
{
	const uint32_t fds = fds_open();

	leave_dead(world, 7, 1, 1);
	kvpull_status_sweep(-1, UINT64_MAX, 0);
	streams_refused = 1;
	sweep(world, UINT64_MAX, 0);
	streams_refused = 0;
	assert_int_equal(fds_open(), fds);
	assert_true(has_file(world, 7));
	sweep(world, UINT64_MAX, 0);
	assert_false(has_file(world, 7));
}

/* As of a daemon that closed its first three. */
TEST(file_may_be_descriptor_0)
{
	struct kvpull_status_header header;
	const int kept = dup(0);

	assert_true(kept > 0);
	(void)close(0);
	opens(world, 7);
	assert_true(kvpull_status_is_on(&world->status.engine));
	header_reads(world, &header, 0);
	kvpull_status_close(&world->status);
	assert_int_equal(fcntl(0, F_GETFD), -1);
	assert_int_equal(dup2(kept, 0), 0);
	(void)close(kept);
}
