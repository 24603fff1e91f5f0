/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders on file systems that wait for others are told by a mountinfo of the
 * test's own: mount 1 is the root, 40 /tmp, and 41 the folder of this test.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "shm/file.h"
#include "shm/folder.h"
#include "shm/mount.h"
#include "shm/slots.h"
#include "tests/lib/lines.h"
#include "tests/lib/refuse.h"

static char table[4096];    /* /proc/self/mountinfo */
static unsigned int ids[3]; /* of the root, /tmp, the folder */
static char folder[] = "/tmp/kvpull-test-XXXXXX";

REFUSABLE(ssize_t, read, -1, (int fd, void *bytes, size_t byte_count),
	  (fd, bytes, byte_count))

static int text_open(const char *text)
{
	const int fd = memfd_create("test-mount", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, text, strlen(text), 0), strlen(text));
	return fd;
}

static int fdinfo_open(const char *number)
{
	char link[64];
	char path[256] = "";
	char text[64];
	size_t depth;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%s", number);
	assert_true(readlink(link, path, sizeof(path) - 1) > 0);
	depth = !strcmp(path, "/") ? 0 : !strcmp(path, "/tmp") ? 1 : 2;
	(void)snprintf(text, sizeof(text),
		       "pos:\t0\nflags:\t012000000\nmnt_id:\t%u\nino:\t7\n",
		       ids[depth]);
	return text_open(text);
}

int refuse_open(const char *path, int flags, mode_t mode) __asm__("open");

int refuse_open(const char *path, int flags, mode_t mode)
{
	static const char fdinfo[] = "/proc/self/fdinfo/";
	int (*next)(const char *, int, mode_t);

	if (!strcmp(path, "/proc/self/mountinfo"))
		return refuse_takes("mountinfo") ? -1 : text_open(table);
	if (!strncmp(path, fdinfo, sizeof(fdinfo) - 1))
		return refuse_takes("fdinfo") ?
			       -1 :
			       fdinfo_open(path + sizeof(fdinfo) - 1);
	*(void **)&next = dlsym(RTLD_NEXT, "open");
	return next(path, flags, mode);
}

/* The table of a machine: types of the three mounts. */
static void machine(const char *root, const char *tmp, const char *own)
{
	(void)snprintf(
		table, sizeof(table),
		"1 0 8:1 / / rw,relatime shared:1 master:2 - %s /dev/x rw\n"
		"40 1 8:2 /a /tmp rw - %s - rw\n"
		"140 1 8:2 /a /other rw - nfs - rw\n"
		"41 40 8:3 / /tmp/41 rw,nosuid - %s host:/x rw,vers=4\n",
		root, tmp, own);
	ids[0] = 1;
	ids[1] = 40;
	ids[2] = 41;
}

static int up(void **state)
{
	(void)state;
	memcpy(folder + sizeof(folder) - 7, "XXXXXX", 6);
	return mkdtemp(folder) ? 0 : -1;
}

static int down(void **state)
{
	(void)state;
	return rmdir(folder);
}

#define TEST(name) UNIT_TEST_WITH(name, up, down)

/* The answers for the folder's name and for its descriptor. */
static void expect(int by_name, int by_fd)
{
	const uint32_t fds = fds_open();
	char type[KVPULL_MOUNT_TYPE_BYTES];
	int fd;

	assert_int_equal(kvpull_mount_is_local(folder, type), by_name);
	fd = open(folder, O_PATH | O_CLOEXEC);
	assert_int_equal(kvpull_mount_fd_is_local(fd), by_fd);
	(void)close(fd);
	assert_int_equal(fds_open(), fds);
}

TEST(file_systems_that_wait_for_others_are_known_by_their_type)
{
	static const char *const waiting[] = {
		"fuse",     "fuse.sshfs", "fuse.",  "fuseblk", "virtiofs",
		"nfs",      "nfs4",       "cifs",   "smb3",    "9p",
		"ceph",     "afs",        "lustre", "gpfs",    "coda",
		"orangefs", "beegfs",     "gfs2",   "ocfs2",
	};
	static const char *const local[] = { "ext4",    "tmpfs", "fusectl",
					     "nfsd",    "nfs4x", "xnfs",
					     "overlay", "smb",   "9" };
	char type[KVPULL_MOUNT_TYPE_BYTES];
	size_t at;

	for (at = 0; at < sizeof(waiting) / sizeof(waiting[0]); at++) {
		machine("ext4", "tmpfs", waiting[at]);
		expect(0, 0);
		assert_int_equal(kvpull_mount_is_local(folder, type), 0);
		assert_string_equal(type, waiting[at]);
	}
	for (at = 0; at < sizeof(local) / sizeof(local[0]); at++) {
		machine("ext4", "tmpfs", local[at]);
		expect(1, 1);
	}
}

/* A name that is too long for us is cut, and still no other's. */
TEST(type_of_any_length_is_read)
{
	char type[KVPULL_MOUNT_TYPE_BYTES];

	machine("ext4", "tmpfs",
		"fuse.a-name-that-is-much-longer-than-any-other");
	expect(0, 0);
	assert_int_equal(kvpull_mount_is_local(folder, type), 0);
	assert_int_equal(strlen(type), KVPULL_MOUNT_TYPE_BYTES - 1);
	assert_memory_equal(type, "fuse.a-name-that", 16);
	machine("ext4", "tmpfs",
		"an-unknown-name-that-is-much-longer-than-any");
	expect(1, 1);
}

/* A local file system below one that waits is reached through that. */
TEST(folder_below_one_that_waits_waits_too)
{
	machine("ext4", "nfs4", "tmpfs");
	expect(0, 1);
	machine("ext4", "tmpfs", "tmpfs");
	expect(1, 1);
}

/* A node without disks has its root on a network; it waits anyway. */
TEST(root_that_waits_stops_only_what_lies_in_it)
{
	machine("nfs", "tmpfs", "tmpfs");
	expect(1, 1);
	ids[1] = ids[2] = 1;
	/* By its name it is refused, for a file of slots; a socket folder is not. */
	expect(0, 1);
	machine("ext4", "tmpfs", "tmpfs");
	ids[1] = ids[2] = 1;
	expect(1, 1);
}

TEST(mount_that_the_table_lacks_is_local)
{
	machine("nfs", "nfs", "nfs");
	ids[1] = 1;
	ids[2] = 4;
	expect(1, 1);
	/* Nor is a part of a line one. */
	ids[2] = 8;
	expect(1, 1);
	table[0] = '\0';
	ids[2] = 41;
	expect(1, 1);
}

/* The table is read in pieces, whose ends fall anywhere. */
TEST(line_across_the_end_of_a_piece_is_read)
{
	char filler[1200];
	size_t length;

	for (length = 900; length < 1030; length++) {
		memset(filler, 'x', length);
		filler[length] = '\0';
		machine("ext4", "tmpfs", "nfs");
		(void)snprintf(table, sizeof(table),
			       "1 0 8:1 /%s / rw - ext4 /dev/x rw\n"
			       "41 40 8:3 / /tmp/41 rw - nfs host:/x rw\n",
			       filler);
		expect(0, 0);
	}
}

TEST(place_that_cannot_be_found_out_is_local)
{
	static const char *const calls[] = { "fdinfo", "read", "mountinfo" };
	/* Calls for the root and for /tmp, before those for the folder. */
	static const uint32_t before[] = { 2, 3, 1 };
	char type[KVPULL_MOUNT_TYPE_BYTES];
	size_t at;

	for (at = 0; at < 3; at++) {
		const int fd = open(folder, O_PATH | O_CLOEXEC);
		const uint32_t fds = fds_open();

		machine("ext4", "tmpfs", "nfs");
		refuse(calls[at], 0, EMFILE);
		assert_int_equal(kvpull_mount_fd_is_local(fd), 1);
		assert_int_equal(refuse_end(), 1);
		assert_int_equal(kvpull_mount_fd_is_local(fd), 0);
		refuse(calls[at], before[at], EMFILE);
		assert_int_equal(kvpull_mount_is_local(folder, type), 1);
		assert_int_equal(refuse_end(), 1);
		assert_int_equal(fds_open(), fds);
		(void)close(fd);
	}
	/* A folder that is not there. */
	assert_int_equal(kvpull_mount_is_local("/tmp/not-there/x", type), 1);
	assert_int_equal(kvpull_mount_is_local("", type), 1);
}

/* Sockets may lie there: whoever reads the log is told what that costs. */
TEST(socket_folder_that_may_not_answer_is_said_and_taken)
{
	struct kvpull_folder place = { .path = folder, .fd = -1 };
	uint32_t is_nfs;

	for (is_nfs = 0; is_nfs <= 1; is_nfs++) {
		machine("ext4", "tmpfs", is_nfs ? "nfs4" : "xfs");
		lines_forget();
		assert_int_equal(kvpull_folder_open(&place, &lines_log), 0);
		assert_int_equal(lines.counts[KVPULL_LOG_WARN], is_nfs);
		/* Once for a folder that stays open. */
		assert_int_equal(kvpull_folder_open(&place, &lines_log), 0);
		assert_int_equal(lines.counts[KVPULL_LOG_WARN], is_nfs);
		kvpull_folder_close(&place);
	}
	assert_int_equal(strncmp(lines.bad, "socket folder /tmp/", 19), 0);
	assert_non_null(strstr(lines.bad, folder));
	assert_non_null(strstr(
		lines.bad,
		" is of another program or machine (FUSE, a network): while that does not answer, heartbeats stop; name one of this machine by socket_dir"));
}

TEST(file_of_slots_is_not_made_where_nothing_may_answer)
{
	const struct kvpull_slots_params params = { .log = &lines_log,
						    .folder = folder,
						    .slot_bytes = 4096,
						    .slot_count = 2,
						    .uring = KVPULL_URING_NO };
	const uint32_t fds = fds_open();
	struct kvpull_slots slots;
	const char *why;
	char line[128];

	machine("ext4", "tmpfs", "nfs4");
	lines_forget();
	assert_int_equal(kvpull_slots_open(&slots, &params, &why),
			 KVPULL_EINVAL);
	assert_string_equal(
		why,
		"its folder is of another program or machine, which may never answer: name one of a local file system");
	(void)snprintf(line, sizeof(line), "%s is nfs4", folder);
	assert_true(lines_said(line));
	assert_int_equal(fds_open(), fds);
}

TEST(file_that_may_not_answer_is_not_lent)
{
	struct kvpull_file_lent lent;
	const char *why;
	const int fd = text_open("kvpull");
	const uint32_t fds = fds_open();

	assert_int_equal(fchmod(fd, 0600), 0);
	machine("ext4", "tmpfs", "fuse.x");
	assert_int_equal(kvpull_file_lend(fd, 0, 6, &lent, &why),
			 KVPULL_EINVAL);
	assert_string_equal(
		why,
		"is of another program or machine, which may never answer: share one of /dev/shm, or a memfd");
	assert_int_equal(fds_open(), fds);
	machine("ext4", "tmpfs", "tmpfs");
	assert_int_equal(kvpull_file_lend(fd, 0, 6, &lent, &why), 0);
	kvpull_file_take_back(&lent);
	(void)close(fd);
}
