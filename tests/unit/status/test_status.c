/* SPDX-License-Identifier: Apache-2.0 */
/* The status file: where it lies, who is believed, what outlives its worker. */

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/status/world.h"

/* In a time namespace of its own, and in a user's where only root may have one. */
static void clock_offset_child(struct world *world)
{
	const int64_t more_ns = 1000 * (int64_t)KVPULL_NS_PER_S;
	const int64_t before_ns = kvpull_status_clock_offset();
	int status = 1;
	FILE *offsets;
	pid_t child;

	if (unshare(CLONE_NEWTIME) && unshare(CLONE_NEWUSER | CLONE_NEWTIME))
		_exit(77);
	offsets = fopen("/proc/self/timens_offsets", "w");
	if (!offsets || fprintf(offsets, "monotonic 1000 0\n") < 0 ||
	    fclose(offsets))
		_exit(77);
	child = fork();
	if (!child)
		_exit(open_as(world, &world->status, 7) ||
		      world->status.header->clock_offset_ns !=
			      before_ns + more_ns);
	_exit(child < 0 || waitpid(child, &status, 0) != child || status);
}

TEST(file_has_the_offset_of_its_clock)
{
	int status = 0;
	const pid_t child = fork();

	assert_true(child >= 0);
	if (!child)
		clock_offset_child(world);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

static time_t file_time(const struct world *world)
{
	struct stat status;

	assert_int_equal(stat(world->status.path, &status), 0);
	return status.st_mtime;
}

TEST(file_of_who_runs_for_long_is_kept_young)
{
	const struct timespec old[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
	const uint64_t hour_ns = 3600 * KVPULL_NS_PER_S;

	opens(world, 0x1234);
	assert_int_equal(utimensat(AT_FDCWD, world->status.path, old, 0), 0);
	kvpull_status_keep_young(&world->status, 5);
	assert_true(file_time(world) > 1);
	/* At each run of a thread would be too often. */
	assert_int_equal(utimensat(AT_FDCWD, world->status.path, old, 0), 0);
	kvpull_status_keep_young(&world->status, hour_ns);
	assert_int_equal(file_time(world), 1);
	kvpull_status_keep_young(&world->status, 5 + hour_ns);
	assert_true(file_time(world) > 1);
}

TEST(file_says_who_writes_it)
{
	struct kvpull_status_header header = { 0 };
	struct stat status;

	opens(world, 0x1234);
	assert_memory_equal(world->status.path, world->folder,
			    strlen(world->folder));
	assert_int_equal(stat(world->status.path, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0400);
	/* No page of it is taken later, when there may be none. */
	assert_true((uint64_t)status.st_blocks * 512 >= world->status.bytes);
	header_reads(world, &header, 0);
	assert_int_equal(header.pid, getpid());
	assert_int_equal(header.incarnation, 0x1234);
	assert_string_equal(header.engine_id, "prefill-0");
	assert_int_equal(header.max_holds, 100);
	assert_true(header.start_ticks > 0);
	assert_int_equal(header.closed, 0);
}

TEST(file_is_read_by_the_group_that_is_configured)
{
	struct stat status;

	world->config.status_group = geteuid() ? getegid() : 1;
	opens(world, 0x1234);
	assert_int_equal(stat(world->status.path, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0440);
	assert_int_equal(status.st_gid, world->config.status_group);
}

OPEN_TEST(events_are_kept_in_a_circle)
{
	struct kvpull_status_note note = { .what = KVPULL_DID_END,
					   .generation = 7,
					   .arg = 2 };
	const struct kvpull_status_event *event;
	uint32_t at;

	for (at = 0; at < KVPULL_STATUS_EVENTS + 3; at++) {
		note.slot = at;
		kvpull_status_note(&world->status.engine, &note);
	}
	event = &world->status.engine.events[2];
	assert_int_equal(world->status.engine.thread->event_count,
			 KVPULL_STATUS_EVENTS + 3);
	assert_int_equal(event->what, (KVPULL_STATUS_EVENTS + 2) |
					      (uint64_t)KVPULL_DID_END << 32 |
					      UINT64_C(2) << 48);
	assert_int_equal(event->generation, 7);
}

OPEN_TEST(bytes_of_a_stranger_are_refused)
{
	struct kvpull_status_header header;
	struct kvpull_status_header bad;
	uint32_t part;

	bad = *world->status.header;
#define REFUSED(code_, change)                                                 \
	do {                                                                   \
		change;                                                        \
		assert_int_equal(                                              \
			read_header(world->status.path, geteuid(), &header),   \
			code_);                                                \
		memcpy(world->status.base, &bad, sizeof(bad));                 \
	} while (0)
	REFUSED(0, (void)0);
	REFUSED(KVPULL_EPROTO, world->status.header->magic++);
	REFUSED(KVPULL_EVERSION, world->status.header->version++);
	REFUSED(KVPULL_EVERSION, world->status.header->part_count--);
	REFUSED(KVPULL_EVERSION,
		world->status.header->kind = KVPULL_STATUS_KINDS);
	/* Without what one of that kind has. */
	REFUSED(KVPULL_EPROTO,
		world->status.header->kind = KVPULL_STATUS_OF_POOL);
	REFUSED(KVPULL_EPROTO,
		world->status.header->places[KVPULL_STATUS_PROGRESS_EVENTS]
			.row_count = 0);
	REFUSED(KVPULL_EPROTO, world->status.header->file_bytes += 64);
	for (part = 0; part < KVPULL_STATUS_PARTS; part++) {
		struct kvpull_status_place *place =
			&world->status.header->places[part];

		REFUSED(KVPULL_EPROTO, place->offset = bad.file_bytes + 64);
		REFUSED(KVPULL_EPROTO, place->offset = UINT64_MAX - 63);
		REFUSED(KVPULL_EPROTO, place->offset = 0);
		REFUSED(KVPULL_EPROTO, place->row_bytes += 8);
		REFUSED(KVPULL_EPROTO, place->row_count = UINT32_MAX);
		/* By no more than a row. */
		REFUSED(KVPULL_EPROTO,
			place->row_count =
				(uint32_t)((bad.file_bytes - place->offset) /
						   place->row_bytes +
					   1));
	}
	/* Root alone may write into the file by its name. */
	assert_int_equal(chmod(world->status.path, 0600), 0);
	assert_int_equal(truncate(world->status.path, 4096), 0);
	header_reads(world, &header, KVPULL_EPROTO);
}

/* Rows that are looked at together, and those that we have place for. */
OPEN_TEST(counts_that_do_not_fit_each_other_are_refused)
{
	static const uint32_t fewer[] = { KVPULL_STATUS_HELD,
					  KVPULL_STATUS_HOLDS_NOW,
					  KVPULL_STATUS_WORDS };
	struct kvpull_status_header header;
	struct kvpull_status_place *place;
	uint32_t at;

	for (at = 0; at < sizeof(fewer) / sizeof(fewer[0]); at++) {
		place = &world->status.header->places[fewer[at]];
		place->row_count--;
		header_reads(world, &header, KVPULL_EPROTO);
		place->row_count++;
	}
	place = &world->status.header->places[KVPULL_STATUS_COUNTERS];
	for (at = 0; at < 2; at++) {
		place->row_count = KVPULL_STATUS_COUNTERS_MAX + at;
		/* All rows lie in the file. */
		assert_true(place->offset + (uint64_t)place->row_count *
						    place->row_bytes <=
			    world->status.header->file_bytes);
		header_reads(world, &header, at ? KVPULL_EPROTO : 0);
	}
}

OPEN_TEST(texts_of_a_stranger_have_an_end)
{
	struct kvpull_status_header *theirs;
	struct kvpull_status_header header;

	theirs = world->status.header;
	memset(theirs->library, 'x', sizeof(theirs->library));
	memset(theirs->engine_id, 'x', sizeof(theirs->engine_id));
	memset(theirs->host, 'x', sizeof(theirs->host));
	header_reads(world, &header, 0);
	assert_int_equal(header.library[sizeof(header.library) - 1], '\0');
	assert_int_equal(header.engine_id[sizeof(header.engine_id) - 1], '\0');
	assert_int_equal(header.host[sizeof(header.host) - 1], '\0');
}

OPEN_TEST(file_of_another_user_is_refused)
{
	struct kvpull_status_header header;

	if (geteuid())
		skip();
	/* Root's may be read in anybody's folder. */
	assert_int_equal(read_header(world->status.path, 4711, &header), 0);
	assert_int_equal(chown(world->status.path, 4711, 4711), 0);
	assert_int_equal(read_header(world->status.path, 4712, &header),
			 KVPULL_EAUTH);
	assert_int_equal(read_header(world->status.path, 4711, &header), 0);
}

static void leave_dead(struct world *world, uint64_t incarnation)
{
	const pid_t child = fork();
	int status;

	if (!child) {
		struct kvpull_status own;

		if (open_as(world, &own, incarnation))
			_exit(1);
		kvpull_status_set(&own.engine.thread->ran_ns,
				  kvpull_clock_ns());
		(void)raise(SIGKILL);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
}

OPEN_TEST(newest_files_of_the_dead_are_kept)
{
	char path[160];
	uint64_t at;

	for (at = 0; at < KVPULL_STATUS_KEPT + 3; at++)
		leave_dead(world, 100 + at);
	/* Each open sweeps before it makes its own. */
	assert_int_equal(file_count(world), 1 + KVPULL_STATUS_KEPT + 1);
	kvpull_status_close(&world->status);
	opens(world, 2);
	(void)snprintf(path, sizeof(path), "%s", world->status.path);
	assert_int_equal(file_count(world), 1 + KVPULL_STATUS_KEPT);
	for (at = 0; at < KVPULL_STATUS_KEPT + 3; at++)
		assert_int_equal(has_file(world, 100 + at), at >= 3);
	/* The living is not among those that are counted, or swept. */
	leave_dead(world, 200);
	leave_dead(world, 201);
	assert_int_equal(access(path, F_OK), 0);
}

TEST(old_files_of_the_dead_are_swept)
{
	const uint64_t kept_ns = KVPULL_STATUS_KEPT_S * KVPULL_NS_PER_S;
	uint64_t now_ns;

	opens(world, 1);
	leave_dead(world, 2);
	leave_dead(world, 3);
	now_ns = kvpull_clock_ns();
	sweep(world, now_ns + kept_ns / 2, KVPULL_STATUS_KEPT);
	assert_int_equal(file_count(world), 3);
	sweep(world, now_ns + kept_ns + KVPULL_NS_PER_S, KVPULL_STATUS_KEPT);
	assert_int_equal(file_count(world), 1);
	assert_int_equal(access(world->status.path, F_OK), 0);
}

/* Anybody can make a pipe in a folder of many: who opened it would wait. */
TEST(sweep_waits_for_nobody_and_removes_nothing_of_others)
{
	static const char *const names[] = { "/a" KVPULL_STATUS_SUFFIX,
					     "/b" KVPULL_STATUS_SUFFIX };
	const int is_root = !geteuid();
	char path[2][160];
	int made;

	for (made = 0; made < 2; made++)
		(void)snprintf(path[made], sizeof(path[made]), "%s%s",
			       world->folder, names[made]);
	assert_int_equal(mkfifo(path[0], 0600), 0);
	made = open(path[1], O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(made >= 0);
	(void)close(made);
	if (is_root)
		assert_int_equal(chown(path[1], 4711, 4711), 0);
	(void)alarm(5);
	sweep(world, kvpull_clock_ns(), 0);
	(void)alarm(0);
	assert_int_equal(access(path[0], F_OK), 0);
	assert_int_equal(!access(path[1], F_OK), is_root);
}

/* Blocks that are free where the file is made; 0: as many as there are. */
static uint64_t blocks_free;

/* In the place of libc's, for the library that is linked to this program. */
int fstatfs(int fd, struct statfs *system)
{
	if (syscall(SYS_fstatfs, fd, system))
		return -1;
	if (blocks_free)
		system->f_bavail = blocks_free;
	return 0;
}

/* A container's /dev/shm is small, and others live from it. */
TEST(file_takes_a_quarter_of_what_is_free)
{
	struct statfs system;
	uint64_t blocks;

	assert_int_equal(statfs(world->folder, &system), 0);
	opens(world, 1);
	blocks = (world->status.bytes * 4 - 1) / (uint64_t)system.f_bsize + 1;
	kvpull_status_close(&world->status);
	blocks_free = blocks - 1;
	opens(world, 1);
	assert_string_equal(world->status.path, "");
	kvpull_status_close(&world->status);
	blocks_free = blocks;
	opens(world, 1);
	assert_string_not_equal(world->status.path, "");
	blocks_free = 0;
}

/* A store into pages of a disk file would wait for the disk. */
TEST(folder_on_a_disk_is_not_used)
{
	struct kvpull_config config = world->config;
	char path[160] = "";
	const char *why = NULL;
	int fd;

	(void)snprintf(config.socket_dir, sizeof(config.socket_dir), "/proc");
	fd = kvpull_status_folder(&config, path, sizeof(path), &why);
	assert_true(fd >= 0);
	(void)close(fd);
	assert_memory_equal(path, "/dev/shm/kvpull-", 16);
}

/* As on a full disk: the worker goes on, and no signal ends it. */
TEST(file_beyond_the_longest_is_not_made)
{
	const struct rlimit limit = { 1, 1 };
	int status = -1;
	pid_t child;

	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		(void)signal(SIGXFSZ, SIG_DFL);
		_exit(setrlimit(RLIMIT_FSIZE, &limit) ||
		      open_as(world, &world->status, 1) ||
		      world->status.path[0]);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(file_count(world), 0);
}

TEST(without_a_file_all_goes_on)
{
	const struct kvpull_status_note note = { .what = KVPULL_DID_END };

	world->config.status = KVPULL_STATUS_OFF;
	opens(world, 1);
	assert_int_equal(file_count(world), 0);
	assert_string_equal(world->status.path, "");
	/* Without a file nothing is stored. */
	kvpull_status_took(&world->status.engine, KVPULL_TIMES_STEP, 1000, 1);
	kvpull_status_note(&world->status.engine, &note);
	kvpull_status_ran(&world->status.engine, 1);
	assert_null(world->status.holds.side);
	assert_int_equal(
		world->status.engine.thread->times[KVPULL_TIMES_STEP][9], 0);
	assert_int_equal(world->status.engine.thread->event_count, 0);
	assert_int_equal(world->status.engine.thread->ran_ns, 0);
}

static uint32_t endless; /* entries of the folder that were read, from 1 on */

/* In the place of libc's; a folder may have no end. */
struct dirent *readdir(DIR *folder)
{
	static struct dirent entry = { .d_name = "no-file" };
	struct dirent *(*next)(DIR *);

	if (endless) {
		if (endless++ <= 2 * KVPULL_STATUS_FILES_MAX)
			return &entry;
		return NULL;
	}
	*(void **)&next = dlsym(RTLD_NEXT, "readdir");
	return next(folder);
}

TEST(sweep_looks_at_a_bounded_number_of_files)
{
	endless = 1;
	sweep(world, kvpull_clock_ns(), 0);
	assert_int_equal(endless - 1, KVPULL_STATUS_FILES_MAX);
	endless = 0;
}
