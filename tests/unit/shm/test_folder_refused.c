/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listeners, calls and folders whose system calls are refused: what is returned
 * and said, and that nothing is left open or in the folder.
 */
#include "tests/unit/shm/place.h"
#include "tests/unit/shm/raw.h"

#include <sys/syscall.h>

/* clang-format off */
REFUSABLE(int, socket, -1, (int family, int type, int protocol), (family, type, protocol))
REFUSABLE(int, bind, -1, (int fd, const void *address, socklen_t bytes), (fd, address, bytes))
REFUSABLE(int, connect, -1, (int fd, const void *address, socklen_t bytes), (fd, address, bytes))
REFUSABLE(int, listen, -1, (int fd, int backlog), (fd, backlog))
REFUSABLE(int, accept4, -1, (int fd, void *address, void *bytes, int flags), (fd, address, bytes, flags))
REFUSABLE(int, renameat, -1, (int from_fd, const char *from, int to_fd, const char *to), (from_fd, from, to_fd, to))
REFUSABLE(int, fstatat, -1, (int fd, const char *name, struct stat *status, int flags), (fd, name, status, flags))
REFUSABLE(int, fchmodat, -1, (int fd, const char *name, mode_t mode, int flags), (fd, name, mode, flags))
REFUSABLE(int, fcntl, -1, (int fd, int command, long argument), (fd, command, argument))
REFUSABLE(int, open, -1, (const char *path, int flags, mode_t mode), (path, flags, mode))
REFUSABLE(int, openat, -1, (int fd, const char *path, int flags, mode_t mode), (fd, path, flags, mode))
REFUSABLE(void *, fdopendir, NULL, (int fd), (fd))
REFUSABLE(int, fstat, -1, (int fd, struct stat *status), (fd, status))
REFUSABLE(int, mkdir, -1, (const char *path, mode_t mode), (path, mode))
/* clang-format on */

static uint32_t own_uid = KVPULL_UID_NONE;

uid_t refuse_geteuid(void) __asm__("geteuid");

uid_t refuse_geteuid(void)
{
	return own_uid == KVPULL_UID_NONE ? (uid_t)syscall(SYS_geteuid) :
					    own_uid;
}

static const int shortages[] = { EMFILE,  ENFILE, ENOMEM,
				 ENOBUFS, ENOSPC, ETOOMANYREFS };
#define SHORTAGES (sizeof(shortages) / sizeof(shortages[0]))

/* clang-format off */
static const struct row listens[] = {
	{ { "fcntl", 0, EMFILE }, KVPULL_EDEVICE, "/p: Too many open files" },
	{ { "socket", 0, ENFILE }, KVPULL_EDEVICE, "/p: Too many open files in system" },
	{ { "bind", 0, EROFS }, KVPULL_EDEVICE, "/p cannot be made: Read-only file system: its file system" },
	{ { "fstatat", 1, EIO }, KVPULL_EDEVICE, "/p cannot be listened at: Input/output error" },
	{ { "fchmodat", 0, EPERM }, KVPULL_EDEVICE, "/p cannot be listened at: Operation not permitted: its file" },
	{ { "listen", 0, EADDRINUSE }, KVPULL_EDEVICE, "/p cannot be listened at: Address already in use" },
	{ { "renameat", 0, EACCES }, KVPULL_EDEVICE, "/p cannot be listened at: Permission denied: this user" },
};
/* clang-format on */

UNIT_TEST_IN(listener_that_cannot_be_made_says_why_and_leaves_no_file, place)
{
	struct kvpull_listener listener;
	struct stat status;
	uint32_t fds;
	size_t at;

	fds = fds_open();
	for (at = 0; at < sizeof(listens) / sizeof(listens[0]); at++) {
		const struct row *row = &listens[at];

		refuse(row->refused.call, row->refused.skip,
		       row->refused.error);
		row_check(row,
			  kvpull_listener_open(&listener, &place->folder, "p",
					       0600, &place->log),
			  KVPULL_LOG_ERROR);
		assert_int_equal(listener.fd, -1);
		assert_int_equal(listener.folder_fd, -1);
		assert_int_equal(fds_open(), fds);
		assert_int_equal(fstatat(place->folder.fd, ".p", &status, 0),
				 -1);
		assert_int_equal(fstatat(place->folder.fd, "p", &status, 0),
				 -1);
	}
	assert_int_equal(kvpull_listener_open(&listener, &place->folder, "p",
					      0600, &place->log),
			 0);
	kvpull_listener_close(&listener);
	assert_int_equal(listener.fd, -1);
	assert_int_equal(listener.folder_fd, -1);
	/* A name that was not good made nothing. */
	assert_int_equal(kvpull_listener_open(&listener, &place->folder, ".p",
					      0, &place->log),
			 KVPULL_EINVAL);
}

/* Sweeping is a service to others: a listener is made without it. */
UNIT_TEST_IN(folder_that_cannot_be_swept_keeps_what_is_in_it, place)
{
	static const char *const calls[] = { "openat", "fdopendir" };
	struct kvpull_listener listener;
	struct stat status;
	size_t at;

	for (at = 0; at <= 2; at++) {
		socket_leave(place->path, "kvpull-left");
		if (at < 2)
			refuse(calls[at], 0, EMFILE);
		place_listen(place, &listener);
		assert_int_equal(refuse_end(), at < 2);
		/* A dead worker's is removed where it is looked for. */
		assert_int_equal(fstatat(place->folder.fd, "kvpull-left",
					 &status, AT_SYMLINK_NOFOLLOW),
				 at < 2 ? 0 : -1);
		kvpull_listener_close(&listener);
		if (at < 2)
			assert_int_equal(
				unlinkat(place->folder.fd, "kvpull-left", 0),
				0);
	}
	assert_int_equal(lines.bad_count, 0);
}

/* A dead socket is removed if its name is that of a worker, and nothing fails. */
UNIT_TEST_IN(sweep_removes_only_names_of_workers_that_it_can_look_at, place)
{
	static const char *const kept[] = { "kvpull-a b", "kvpull-+",
					    ".kvpull-a b", "kvpul-a" };
	struct kvpull_listener listener;
	struct stat status;
	size_t at;

	for (at = 0; at < 4; at++)
		socket_leave(place->path, kept[at]);
	socket_leave(place->path, "kvpull-dead");
	/* The new name's own, its hidden one's, then the only worker's. */
	refuse("fstatat", 2, EIO);
	place_listen(place, &listener);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(fstatat(place->folder.fd, "kvpull-dead", &status, 0),
			 0);
	kvpull_listener_close(&listener);
	place_listen(place, &listener);
	assert_int_equal(fstatat(place->folder.fd, "kvpull-dead", &status, 0),
			 -1);
	kvpull_listener_close(&listener);
	for (at = 0; at < 4; at++)
		assert_int_equal(unlinkat(place->folder.fd, kept[at], 0), 0);
	assert_int_equal(lines.bad_count, 0);
}

/* clang-format off */
static const struct row calls[] = {
	{ { "fstatat", 0, ENOENT }, KVPULL_EPEER, "" },
	{ { "fstatat", 0, ENOMEM }, KVPULL_EAGAIN, "" },
	{ { "fstatat", 0, EACCES }, KVPULL_EAUTH, "connect to p: Permission denied: its socket is not open" },
	{ { "fstatat", 0, EIO }, KVPULL_EPEER, "connect to p: Input/output error" },
	{ { "socket", 0, EMFILE }, KVPULL_EAGAIN, "" },
	{ { "socket", 0, EAFNOSUPPORT }, KVPULL_EPEER, "connect to p: Address family not supported" },
	{ { "connect", 0, ECONNREFUSED }, KVPULL_EPEER, "" },
	{ { "connect", 0, ENOENT }, KVPULL_EPEER, "" },
	{ { "connect", 0, EAGAIN }, KVPULL_EAGAIN, "" },
	{ { "connect", 0, EPERM }, KVPULL_EAUTH, "connect to p: Operation not permitted: a security module" },
	{ { "connect", 0, EACCES }, KVPULL_EAUTH, "connect to p: Permission denied: its socket" },
	{ { "connect", 0, EPROTOTYPE }, KVPULL_EPEER, "connect to p: Protocol wrong type" },
};
/* clang-format on */

UNIT_TEST_IN(call_that_fails_says_whether_to_try_again, place)
{
	struct kvpull_listener listener;
	uint32_t fds;
	size_t at;
	int fd = -1;

	place_listen(place, &listener);
	fds = fds_open();
	for (at = 0; at < sizeof(calls) / sizeof(calls[0]); at++) {
		const struct row *row = &calls[at];
		int code;

		refuse(row->refused.call, row->refused.skip,
		       row->refused.error);
		code = kvpull_endpoint_connect(place->folder.fd, "p",
					       &place->log, &fd);
		assert_int_equal(errno, row->refused.error);
		row_check(row, code, KVPULL_LOG_WARN);
		assert_int_equal(fd, -1);
		assert_int_equal(fds_open(), fds);
	}
	for (at = 0; at < SHORTAGES; at++) {
		refuse("connect", 0, shortages[at]);
		assert_int_equal(kvpull_endpoint_connect(place->folder.fd, "p",
							 &place->log, &fd),
				 KVPULL_EAGAIN);
		assert_int_equal(refuse_end(), 1);
	}
	assert_int_equal(kvpull_endpoint_connect(place->folder.fd, "p",
						 &place->log, &fd),
			 0);
	(void)close(fd);
	assert_int_equal(lines.bad_count, 0);
	kvpull_listener_close(&listener);
}

UNIT_TEST_IN(name_that_cannot_be_looked_up_is_asked_for_again, place)
{
	struct kvpull_listener listener;
	size_t at;

	place_listen(place, &listener);
	for (at = 0; at < SHORTAGES; at++) {
		refuse("fstatat", 0, shortages[at]);
		assert_int_equal(kvpull_endpoint_find(place->folder.fd, "p"),
				 KVPULL_EAGAIN);
		assert_int_equal(refuse_end(), 1);
	}
	refuse("fstatat", 0, EACCES);
	assert_int_equal(kvpull_endpoint_find(place->folder.fd, "p"),
			 KVPULL_EROUTE);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(kvpull_endpoint_find(place->folder.fd, "p"), 0);
	assert_int_equal(kvpull_endpoint_find(place->folder.fd, "q"),
			 KVPULL_EROUTE);
	kvpull_listener_close(&listener);
}

UNIT_TEST_IN(accept_tells_shortages_from_callers_who_left, place)
{
	static const int others[] = { EAGAIN, ECONNABORTED, EINTR };
	struct kvpull_listener listener;
	size_t at;
	int fd;

	place_listen(place, &listener);
	for (at = 0; at < SHORTAGES; at++) {
		refuse("accept4", 0, shortages[at]);
		assert_int_equal(kvpull_listener_accept(&listener, &fd),
				 KVPULL_EFULL);
		assert_int_equal(refuse_end(), 1);
	}
	for (at = 0; at < 3; at++) {
		refuse("accept4", 0, others[at]);
		assert_int_equal(kvpull_listener_accept(&listener, &fd),
				 KVPULL_EAGAIN);
		assert_int_equal(refuse_end(), 1);
	}
	kvpull_listener_close(&listener);
}

/* ---- the folder ---- */

/* clang-format off */
static const struct row folders[] = {
	{ { "open", 0, ENOENT }, KVPULL_EROUTE, "" },
	{ { "open", 0, EMFILE }, KVPULL_EAGAIN, "" },
	{ { "open", 0, ELOOP }, KVPULL_EROUTE, ": Too many levels of symbolic links: it is a symbolic link" },
	{ { "fstat", 0, EIO }, KVPULL_EROUTE, ": Input/output error" },
	{ { "fstat", 0, ENOMEM }, KVPULL_EAGAIN, "" },
};
/* clang-format on */

UNIT_TEST_IN(folder_that_cannot_be_opened_leaves_nothing_open, place)
{
	size_t at;

	for (at = 0; at < sizeof(folders) / sizeof(folders[0]); at++) {
		const struct row *row = &folders[at];

		kvpull_folder_close(&place->folder);
		refuse(row->refused.call, row->refused.skip,
		       row->refused.error);
		row_check(row, kvpull_folder_open(&place->folder, &place->log),
			  KVPULL_LOG_WARN);
		assert_int_equal(place->folder.fd, -1);
		assert_int_equal(fds_open(), place->fds_at_start);
		assert_int_equal(
			kvpull_folder_open(&place->folder, &place->log), 0);
	}
}

/* A folder of another file system may have the same inode number. */
UNIT_TEST_IN(folder_that_something_was_mounted_over_is_opened_again, place)
{
	uint64_t device;
	uint64_t inode;

	device = place->folder.device;
	inode = place->folder.inode;
	place->folder.device++;
	assert_int_equal(kvpull_folder_open(&place->folder, &place->log), 0);
	assert_int_equal(place->folder.device, device);
	place->folder.inode++;
	assert_int_equal(kvpull_folder_open(&place->folder, &place->log), 0);
	assert_int_equal(place->folder.inode, inode);
	assert_int_equal(fds_open(), place->fds_at_start + 1);
}

UNIT_TEST_IN(folder_that_cannot_be_made_says_what_to_do, place)
{
	refuse("mkdir", 0, EACCES);
	assert_int_equal(kvpull_folder_make(&place->folder, &place->log),
			 KVPULL_EDEVICE);
	assert_int_equal(refuse_end(), 1);
	assert_non_null(strstr(lines.bad, place->path));
	assert_non_null(strstr(lines.bad, " cannot be made: Permission denied: "
					  "this user may not write there"));
	kvpull_folder_close(&place->folder);
	lines_forget();
	refuse("open", 0, EMFILE);
	assert_int_equal(kvpull_folder_make(&place->folder, &place->log),
			 KVPULL_EDEVICE);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(lines.bad_count, 1);
	assert_int_equal(lines.level, KVPULL_LOG_ERROR);
	assert_non_null(strstr(lines.bad, ": Too many open files: every"));
	assert_int_equal(kvpull_folder_make(&place->folder, &place->log), 0);
}

UNIT_TEST(folder_is_trusted_to_root_to_us_and_to_the_users_of_the_list)
{
	static const uint32_t uids[] = { 7 };
	struct kvpull_folder folder = {
		.users = { .uids = uids, .uid_count = 1, .unknown = 65534 }
	};

	own_uid = 1000;
	assert_int_equal(kvpull_folder_trusts(&folder, 0), 1);
	assert_int_equal(kvpull_folder_trusts(&folder, 7), 1);
	assert_int_equal(kvpull_folder_trusts(&folder, 1000), 1);
	assert_int_equal(kvpull_folder_trusts(&folder, 1001), 0);
	/* Many users may have that uid. */
	own_uid = 65534;
	assert_int_equal(kvpull_folder_trusts(&folder, 65534), 1);
	folder.users.has_unknown = 1;
	assert_int_equal(kvpull_folder_trusts(&folder, 65534), 0);
	own_uid = KVPULL_UID_NONE;
}
