/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of the same-node route: names, owners, what the dead left. */

#include "tests/unit/shm/raw.h"

#include <netinet/in.h>
#include <sched.h>

#include "base/clock.h"
#include "shm/caller.h"
#include "shm/folder.h"

uint32_t world_blocks = 64u; /* nobody reads much here */

static int serve_in(struct world *world, const char *folder, const char *name)
{
	struct kvpull_shm_params params = world_params(world, name);
	struct kvpull_transport *p;
	int code;

	params.socket_dir = folder;
	side_open(&world->p, &params);
	p = world->p.transport;
	code = p->ops->serve(p, &world->serve);
	side_close(&world->p);
	return code;
}

static int is_left(const char *folder, const char *name)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	return !access(path, F_OK);
}

UNIT_TEST_OPEN(names_outside_the_folder_are_refused)
{
	static const char *const bad[] = {
		"",
		"..",
		"../p",
		".p",
		"/p",
		"a/b",
		"a b",
		"a;b",
		"p\n",
		"\xc3\xa4",
		"p/../p",
		"./p",
		("12345678901234567890123456789012345678901234567890"
		 "123456789012345678901234567890"),
	};
	struct kvpull_transport *d = world->d.transport;
	uint32_t peer;
	uint32_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(d->ops->reachable(d, bad[i]), KVPULL_EROUTE);
		assert_int_equal(d->ops->connect(d, bad[i], &peer),
				 KVPULL_EROUTE);
	}
	assert_int_equal(d->ops->reachable(d, "not-there"), KVPULL_EROUTE);
	assert_int_equal(d->ops->connect(d, "not-there", &peer), KVPULL_EPEER);
	assert_int_equal(d->ops->reachable(d, "p"), 0);
}

UNIT_TEST_OPEN(link_to_a_socket_elsewhere_is_refused)
{
	struct kvpull_transport *d = world->d.transport;
	char path[128];
	uint32_t peer;

	(void)snprintf(path, sizeof(path), "%s/link", world->folder);
	assert_int_equal(symlink("p", path), 0);
	assert_int_equal(d->ops->reachable(d, "link"), KVPULL_EROUTE);
	assert_int_equal(d->ops->connect(d, "link", &peer), KVPULL_EPEER);
	raw_unlink(world, "link");
}

UNIT_TEST_IN_WORLD(unsafe_folders_are_refused, world_begin)
{
	struct stat stat;
	char folder[128];
	char other[128];

	world_memory_make(world);
	(void)snprintf(folder, sizeof(folder), "%s/made", world->folder);
	(void)snprintf(other, sizeof(other), "%s/link", world->folder);
	assert_int_equal(serve_in(world, folder, "p"), 0);
	assert_int_equal(lstat(folder, &stat), 0);
	assert_int_equal(stat.st_mode & 07777, 0700);
	assert_int_equal(symlink(folder, other), 0);
	assert_int_equal(serve_in(world, other, "p"), KVPULL_EDEVICE);
	assert_int_equal(chmod(folder, 0777), 0);
	assert_int_equal(serve_in(world, folder, "p"), KVPULL_EDEVICE);
	assert_int_equal(chmod(folder, 01777), 0);
	assert_int_equal(serve_in(world, folder, "p"), 0);
	assert_int_equal(unlink(other), 0);
	/* A name that a file has: not ours to remove. */
	(void)snprintf(other, sizeof(other), "%s/made/p", world->folder);
	assert_int_equal(mkdir(other, 0700), 0);
	assert_int_equal(serve_in(world, folder, "p"), KVPULL_EDEVICE);
	assert_int_equal(rmdir(other), 0);
	assert_int_equal(rmdir(folder), 0);
}

UNIT_TEST_IN_WORLD(long_folder_names_are_no_limit, world_begin)
{
	char folder[256];

	world_memory_make(world);
	(void)snprintf(folder, sizeof(folder), "%s/%0150d", world->folder, 0);
	assert_int_equal(serve_in(world, folder, "p"), 0);
	assert_int_equal(rmdir(folder), 0);
}

UNIT_TEST_IN_WORLD(longest_name_is_served, world_begin)
{
	char name[KVPULL_ENDPOINT_NAME_BYTES_MAX];

	world_memory_make(world);
	memset(name, 'a', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	assert_int_equal(serve_in(world, world->folder, name), 0);
}

UNIT_TEST_OPEN(name_in_use_is_not_taken_over)
{
	struct kvpull_shm_params params;
	struct side second;

	params = world_params(world, "p");
	side_open(&second, &params);
	assert_int_equal(
		second.transport->ops->serve(second.transport, &world->serve),
		KVPULL_EDEVICE);
	side_close(&second);
	assert_int_equal(
		world->d.transport->ops->reachable(world->d.transport, "p"), 0);
}

static void listen_as_me(struct kvpull_listener *listener, const char *path)
{
	const int fd = open(path, O_PATH | O_CLOEXEC);
	const struct kvpull_folder folder = { .path = path, .fd = fd };

	assert_int_equal(
		kvpull_listener_open(listener, &folder, "kvpull-me", 0, NULL),
		0);
	(void)close(fd);
}

UNIT_TEST(sockets_of_the_dead_are_removed)
{
	const struct timespec old[2] = { { 0 } };
	char folder[] = "/tmp/kvpull-unit-XXXXXX";
	struct kvpull_listener listener;
	char path[128];

	assert_non_null(mkdtemp(folder));
	socket_leave(folder, "kvpull-dead");
	socket_leave(folder, ".kvpull-opening");
	socket_leave(folder, ".kvpull-dead-in-open");
	socket_leave(folder, "stranger");
	(void)snprintf(path, sizeof(path), "%s/.kvpull-dead-in-open", folder);
	assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
	listen_as_me(&listener, folder);
	assert_false(is_left(folder, "kvpull-dead"));
	assert_false(is_left(folder, ".kvpull-dead-in-open"));
	assert_true(is_left(folder, ".kvpull-opening"));
	assert_true(is_left(folder, "stranger"));
	assert_true(is_left(folder, "kvpull-me"));
	kvpull_listener_close(&listener);
	assert_false(is_left(folder, "kvpull-me"));
	(void)snprintf(path, sizeof(path), "rm -rf '%s'", folder);
	assert_int_equal(system(path), 0);
}

/* A plain file may have such a name, and root may remove anybody's socket. */
UNIT_TEST(what_is_not_our_socket_is_not_removed)
{
	const struct timespec old[2] = { { 0 } };
	const int is_root = !geteuid();
	char folder[] = "/tmp/kvpull-unit-XXXXXX";
	struct kvpull_listener listener;
	char path[128];
	int fd;

	assert_non_null(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/.kvpull-plain", folder);
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	(void)close(fd);
	assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
	socket_leave(folder, "kvpull-other");
	(void)snprintf(path, sizeof(path), "%s/kvpull-other", folder);
	if (is_root)
		assert_int_equal(chown(path, 4711, 4711), 0);
	listen_as_me(&listener, folder);
	assert_true(is_left(folder, ".kvpull-plain"));
	assert_int_equal(is_left(folder, "kvpull-other"), is_root);
	kvpull_listener_close(&listener);
	(void)snprintf(path, sizeof(path), "rm -rf '%s'", folder);
	assert_int_equal(system(path), 0);
}

/*
 * The worker looks which sockets in the folder are live, without calling their
 * owners.
 */
UNIT_TEST_IN_WORLD(start_takes_no_place_at_a_producer, world_begin)
{
	struct kvpull_shm_params params;
	struct side starting = { .queue_count = 0 };

	world_memory_make(world);
	world_serve(world, "kvpull-p");
	params = world_params(world, "kvpull-starting");
	side_open(&starting, &params);
	assert_int_equal(starting.transport->ops->serve(starting.transport,
							&world->serve),
			 0);
	side_look(world, &world->p);
	assert_int_equal(world->p.queue_count, 0);
	side_close(&starting);
	assert_true(is_left(world->folder, "kvpull-p"));
}

static int serve_for(struct world *world, const uint32_t *uids, uint32_t count)
{
	struct kvpull_shm_params params = world_params(world, "p");
	struct kvpull_transport *p;
	uint32_t peer;
	int code;

	params.users.uids = uids;
	params.users.uid_count = count;
	side_open(&world->p, &params);
	p = world->p.transport;
	code = p->ops->serve(p, &world->serve);
	if (!code)
		assert_int_equal(p->ops->connect(p, "p", &peer), 0);
	else
		assert_int_equal(p->ops->reachable(p, "p"), KVPULL_EROUTE);
	side_close(&world->p);
	return code;
}

UNIT_TEST(folder_of_another_user_is_refused)
{
	const uint32_t uids[2] = { 4, 12345 };
	struct world world;

	if (geteuid() != 0)
		skip();
	world_begin(&world);
	world_memory_make(&world);
	assert_int_equal(chmod(world.folder, 01777), 0);
	assert_int_equal(chown(world.folder, 12345, 12345), 0);
	assert_int_equal(serve_for(&world, NULL, 0), KVPULL_EDEVICE);
	assert_non_null(strstr(lines.bad, "user 12345"));
	assert_int_equal(serve_for(&world, uids, 1), KVPULL_EDEVICE);
	assert_int_equal(serve_for(&world, uids, 2), 0);
	assert_int_equal(chown(world.folder, 0, 0), 0);
	assert_int_equal(serve_for(&world, NULL, 0), 0);
	world_close(&world);
}

UNIT_TEST_OPEN(folder_that_was_made_again_is_found)
{
	struct kvpull_transport *d = world->d.transport;
	char old[128];

	assert_int_equal(d->ops->reachable(d, "p"), 0);
	(void)snprintf(old, sizeof(old), "%s-old", world->folder);
	assert_int_equal(rename(world->folder, old), 0);
	assert_int_equal(mkdir(world->folder, 0700), 0);
	assert_int_equal(d->ops->reachable(d, "p"), KVPULL_EROUTE);
	assert_int_equal(rmdir(world->folder), 0);
	assert_int_equal(d->ops->reachable(d, "p"), KVPULL_EROUTE);
	assert_int_equal(mkdir(world->folder, 0700), 0);
	/* The producer removes its socket from where it put it. */
	side_close(&world->p);
	assert_int_equal(rmdir(old), 0);
	world_serve(world, "p");
	assert_int_equal(d->ops->reachable(d, "p"), 0);
	assert_int_equal(chmod(world->folder, 0777), 0);
	assert_int_equal(d->ops->reachable(d, "p"), KVPULL_EROUTE);
}

/* Root of a user namespace that knows nobody else; -1: there is none to have. */
static int container_enter(void)
{
	static const char map[] = "0 0 1";
	const int is_in = !unshare(CLONE_NEWUSER);
	const int fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
	const int failed = !is_in || write(fd, map, sizeof(map) - 1) < 0;

	(void)close(fd);
	return failed ? -1 : 0;
}

/* A container's process looks at a folder that the node's root made. */
static int container_look(struct kvpull_folder *folder)
{
	if (container_enter())
		return 2;
	kvpull_users_look(&folder->users);
	/* It is taken, and a peer of its owner's uid is not believed for that. */
	return kvpull_folder_open(folder, NULL) ||
	       kvpull_folder_trusts(folder, 65534);
}

UNIT_TEST(unknown_owner_is_nobody_in_a_container_alone)
{
	struct kvpull_folder folder = { .fd = -1 };
	struct world world;
	struct stat first;
	int status = 0;
	pid_t child;

	/* The number of this node's first user namespace. */
	if (geteuid() != 0 || stat("/proc/self/ns/user", &first) ||
	    first.st_ino != 0xeffffffd)
		skip();
	world_begin(&world);
	folder.path = world.folder;
	assert_int_equal(chown(world.folder, 65534, 65534), 0);
	assert_int_equal(chmod(world.folder, 01777), 0);
	assert_int_equal(kvpull_folder_open(&folder, &world.log),
			 KVPULL_EROUTE);
	assert_non_null(strstr(lines.bad, "user 65534"));
	kvpull_folder_close(&folder);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(container_look(&folder));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 1);
	world_memory_make(&world);
	world_close(&world);
}

/* A user that may write into the folder may take the name of another worker. */
static void other_user_serve(const struct world *world, int ready)
{
	int socket;

	/* A new user's process has lost the signal that it had. */
	if (setresuid(12345, 12345, 12345) || prctl(PR_SET_PDEATHSIG, SIGKILL))
		_exit(1);
	socket = raw_listen(world, "p");
	if (write(ready, "r", 1) != 1)
		_exit(1);
	raw_send(accept4(socket, NULL, NULL, SOCK_CLOEXEC), NULL, 0);
	for (;;)
		(void)pause();
}

/* Root's folder, in which anybody may make sockets, as of two users' pods. */
static pid_t other_user_begin(struct world *world,
			      void (*serve)(const struct world *world,
					    int ready))
{
	int ready[2];
	pid_t child;
	char byte;

	world_begin(world);
	world_memory_make(world);
	assert_int_equal(chmod(world->folder, 01777), 0);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		serve(world, ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	(void)close(ready[0]);
	(void)close(ready[1]);
	world_open_consumer(world);
	return child;
}

static void other_user_end(struct world *world, pid_t child)
{
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
	raw_unlink(world, "p");
	world_close(world);
}

UNIT_TEST(producer_of_another_user_is_told_as_such)
{
	struct world world;
	pid_t child;

	if (geteuid() != 0)
		skip();
	child = other_user_begin(&world, other_user_serve);
	world_call(&world);
	assert_int_equal(
		world_expect(&world, &world.d, KVPULL_EVENT_PEER_MESSAGE).uid,
		12345);
	other_user_end(&world, child);
}

/* Far longer than a machine stands still. */
#define LINGER_S 100

/* A socket that lingers: whoever drops its last descriptor waits. */
static int lingering_make(void)
{
	const struct linger linger = { .l_onoff = 1, .l_linger = LINGER_S };
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr =
					       htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(address);
	static const char filling[65536];
	const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (bind(listener, (const struct sockaddr *)&address, bytes) ||
	    listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &bytes) ||
	    connect(fd, (const struct sockaddr *)&address, bytes) ||
	    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)))
		_exit(1);
	while (send(fd, filling, sizeof(filling), MSG_DONTWAIT) > 0)
		;
	return fd;
}

static void other_user_lingers(const struct world *world, int ready)
{
	int lingering;
	int caller;
	int socket;

	if (setresuid(12345, 12345, 12345) || prctl(PR_SET_PDEATHSIG, SIGKILL))
		_exit(1);
	lingering = lingering_make();
	socket = raw_listen(world, "p");
	if (write(ready, "r", 1) != 1)
		_exit(1);
	caller = accept4(socket, NULL, NULL, SOCK_CLOEXEC);
	/* D's is the last one, if it came. */
	if (!raw_try_send(caller, &lingering, 1))
		(void)close(lingering);
	raw_send(caller, NULL, 0);
	for (;;)
		(void)pause();
}

/* The kernel drops descriptors of the other user's producer in our name. */
UNIT_TEST(producer_of_another_user_does_not_hold_us_up)
{
	struct world world;
	uint64_t before_ns;
	pid_t child;

	if (geteuid() != 0 || !has_passrights())
		skip();
	child = other_user_begin(&world, other_user_lingers);
	before_ns = kvpull_clock_ns();
	world_call(&world);
	(void)world_expect(&world, &world.d, KVPULL_EVENT_PEER_MESSAGE);
	assert_true(kvpull_clock_ns() - before_ns <
		    LINGER_S / 2 * KVPULL_NS_PER_S);
	other_user_end(&world, child);
}

/* P looks for its name once a minute. */
static void minute_pass(struct world *world)
{
	world->now_ns += UINT64_C(61000000000);
	side_look(world, &world->p);
	side_look(world, &world->d);
}

/* A cleaner of /tmp takes no socket for in use by its name. */
UNIT_TEST_OPEN(name_that_is_removed_is_made_again)
{
	char path[128];
	uint32_t fds;

	side_look(world, &world->p);
	fds = fds_open();
	/* Also where nothing happens: its owner sleeps until then at most. */
	assert_in_range(kvpull_shm_callers_due_ns(
				&kvpull_shm_of(world->p.transport)->callers),
			world->now_ns, world->now_ns + 60 * KVPULL_NS_PER_S);
	raw_unlink(world, "p");
	side_look(world, &world->p);
	assert_int_equal(is_left(world->folder, "p"), 0);
	minute_pass(world);
	assert_int_equal(is_left(world->folder, "p"), 1);
	assert_int_equal(lines.bad_count, 1);
	assert_non_null(strstr(lines.bad, "was removed from"));
	assert_int_equal(fds_open(), fds);
	world_connect(world);
	/* Consumers that are connected do not notice. */
	(void)snprintf(path, sizeof(path), "%s/p", world->folder);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(world->folder), 0);
	minute_pass(world);
	assert_int_equal(is_left(world->folder, "p"), 1);
	assert_int_equal(world->p.queue_count + world->d.queue_count, 0);
}

UNIT_TEST_OPEN(name_stays_young_and_waits_for_a_file_that_took_it)
{
	const struct timespec old[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
	struct stat stat;
	char path[128];
	char other[128];

	(void)snprintf(path, sizeof(path), "%s/p", world->folder);
	(void)snprintf(other, sizeof(other), "%s/q", world->folder);
	assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
	/* Once a day: a write waits where a file system is frozen meanwhile. */
	minute_pass(world);
	assert_int_equal(lstat(path, &stat), 0);
	assert_int_equal(stat.st_mtime, 1);
	world->now_ns += 24 * 3600 * KVPULL_NS_PER_S;
	minute_pass(world);
	assert_int_equal(lstat(path, &stat), 0);
	assert_true(stat.st_mtime > 1000 && stat.st_atime > 1000);
	assert_int_equal(lines.bad_count, 0);
	/* A file that took the name is not ours to remove: it is said. */
	assert_int_equal(rename(path, other), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	minute_pass(world);
	assert_int_equal(lines.bad_count, 2);
	assert_non_null(strstr(lines.bad, "that is no socket"));
	assert_int_equal(rmdir(path), 0);
	minute_pass(world);
	assert_int_equal(lstat(path, &stat), 0);
	assert_true(S_ISSOCK(stat.st_mode));
	assert_int_equal(unlink(other), 0);
	world_connect(world);
}

static int connect_as_other_user(int folder)
{
	int fd;

	if (setresuid(12345, 12345, 12345))
		return 1;
	return kvpull_endpoint_connect(folder, "p", NULL, &fd) != KVPULL_EAUTH;
}

/* The mode that its engine asked for; it is no lost peer for who is kept out. */
UNIT_TEST(socket_has_its_mode_and_says_who_may_not_connect)
{
	struct world world;
	struct kvpull_shm_params params;
	struct stat stat;
	char path[128];
	int status = 0;
	int folder;
	pid_t child;

	if (geteuid() != 0)
		skip();
	world_begin(&world);
	world_memory_make(&world);
	assert_int_equal(chmod(world.folder, 01777), 0);
	params = world_params(&world, "p");
	params.socket_mode = 0600;
	world_serve_as(&world, &params);
	(void)snprintf(path, sizeof(path), "%s/p", world.folder);
	assert_int_equal(lstat(path, &stat), 0);
	assert_int_equal(stat.st_mode & 0777, 0600);
	folder = open(world.folder, O_PATH | O_CLOEXEC);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(connect_as_other_user(folder));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	(void)close(folder);
	world_close(&world);
}
