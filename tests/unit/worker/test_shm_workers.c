/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole workers over the same-node route, in one folder, by the real clock: the
 * tests end when something was seen, the times are only bounds for failures.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "tests/unit/worker/node.h"

#define OTHER_UID 12345u
#define PATIENCE_NS (20 * KVPULL_NS_PER_S)

static char folder[64];

static int folder_begin(void **state)
{
	(void)state;
	(void)snprintf(folder, sizeof(folder), "/tmp/kvpull-test-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

/* Removes the folder: killed workers have left their sockets. */
static int folder_end(void **state)
{
	char command[128];

	(void)state;
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return system(command);
}

static void node_open(struct node *node, const char *id, uint64_t incarnation,
		      const char *more)
{
	const struct kvpull_worker_setup setup = { .incarnation = incarnation };
	char json[256];

	/*
	 * A stalled machine must not make a peer count as gone, unless a test
	 * wants that.
	 */
	(void)snprintf(json, sizeof(json),
		       ",\"route\":\"shm\",\"socket_dir\":\"%s\"%s%s", folder,
		       strstr(more, "connect_ms") ? "" :
						    ",\"connect_ms\":60000",
		       more);
	node_make(node, id, json, setup);
}

/* Waits for the end of d's pull; p NULL: the producer is elsewhere. */
static struct kvpull_poll_record pull_end(struct node *p, struct node *d)
{
	const uint64_t until = kvpull_clock_ns() + PATIENCE_NS;

	while (!d->count && kvpull_clock_ns() < until) {
		if (p)
			node_poll(p);
		node_poll(d);
	}
	assert_int_equal(d->count, 1);
	return d->records[0];
}

static void pulls(struct node *p, struct node *d, uint32_t slot)
{
	node_claim(d, p, slot);
	node_pull(d);
	assert_int_equal(pull_end(p, d).kind, KVPULL_POLL_LOADED);
}

/* Sends the release to p, so that close() does not wait for it. */
static void release(struct node *p, struct node *d)
{
	const uint64_t until = kvpull_clock_ns() + PATIENCE_NS;

	p->count = 0;
	node_release(d);
	while (!p->count && kvpull_clock_ns() < until) {
		node_poll(d);
		node_poll(p);
	}
	assert_int_equal(p->records[0].kind, KVPULL_POLL_SENT);
}

#define TEST(name) UNIT_TEST_WITH(name, folder_begin, folder_end)

/* A search of the folder for dead sockets connects to no live one. */
TEST(first_pull_after_a_start_succeeds)
{
	static struct node p, d[2];

	node_open(&p, "P", 0xa1, ",\"consumers_max\":1");
	node_open(&d[0], "D0", 0xd1, "");
	node_open(&d[1], "D1", 0xd2, "");
	node_hold(&p, 3);
	pulls(&p, &d[0], 3);
	release(&p, &d[0]);
	kvpull_worker_destroy(p.worker);
	kvpull_worker_destroy(d[0].worker);
	kvpull_worker_destroy(d[1].worker);
}

/*
 * P's engine takes the release no more. close() waits for it a part of its
 * second, and the core is others' meanwhile.
 */
TEST(close_waits_without_spinning)
{
	static struct node p, d;
	uint64_t began_ns;
	uint64_t burnt_ns;

	node_open(&p, "P", 0xa1, "");
	node_open(&d, "D0", 0xd1, "");
	node_hold(&p, 3);
	pulls(&p, &d, 3);
	began_ns = kvpull_clock_ns();
	burnt_ns = kvpull_clock_thread_ns();
	kvpull_worker_destroy(d.worker);
	burnt_ns = kvpull_clock_thread_ns() - burnt_ns;
	assert_true(kvpull_clock_ns() - began_ns >= KVPULL_CLOSE_NS / 2);
	assert_in_range(burnt_ns, 0, KVPULL_CLOSE_NS / 4);
	kvpull_worker_destroy(p.worker);
}

/* A consumer that is killed when it has read. */
static pid_t consumer_fork(const struct node *p)
{
	static struct node d;
	const pid_t child = fork();

	assert_true(child >= 0);
	if (child)
		return child;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	node_open(&d, "D0", 0xd1, "");
	node_claim(&d, p, 3);
	node_pull(&d);
	if (pull_end(NULL, &d).kind == KVPULL_POLL_LOADED)
		(void)kill(getpid(), SIGKILL);
	_exit(1);
}

/*
 * Users that are not listed cannot even connect; listed ones must be able to.
 */
TEST(socket_is_open_to_others_if_some_are_listed)
{
	const mode_t mask = umask(077);
	char uids[3][64] = { "" };
	static struct node p;
	struct stat status;
	char path[128];
	uint32_t at;

	/* The worker's own user comes first in the list. */
	(void)snprintf(uids[1], sizeof(uids[1]), ",\"uids\":[%u,%u]", geteuid(),
		       geteuid() + 1);
	/* Another user alone. */
	(void)snprintf(uids[2], sizeof(uids[2]), ",\"uids\":[%u]",
		       geteuid() + 1);
	for (at = 0; at < 3; at++) {
		node_open(&p, "P", 0xb0 + at, uids[at]);
		(void)snprintf(path, sizeof(path), "%s/kvpull-%016x.sock",
			       folder, 0xb0 + at);
		assert_int_equal(stat(path, &status), 0);
		assert_int_equal(status.st_mode & 0066, at ? 0066 : 0);
		kvpull_worker_destroy(p.worker);
	}
	(void)umask(mask);
}

static char touched[128]; /* the file that was last given the time of now */

/* In the place of libc's, for the library that is linked to this program. */
int utimensat(int folder_fd, const char *path, const struct timespec times[2],
	      int flags)
{
	if (!times)
		(void)snprintf(touched, sizeof(touched), "%s", path);
	return (int)syscall(SYS_utimensat, folder_fd, path, times, flags);
}

/* A store into its memory may change its times, too: nobody counts on that. */
TEST(worker_keeps_its_status_file_young)
{
	const struct timespec old[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
	static struct node p;
	struct stat status;

	/* With a name that no process of this number ever had. */
	node_open(&p, "P", 0, "");
	assert_string_not_equal(p.worker->status.path, "");
	node_poll(&p);
	assert_int_equal(utimensat(AT_FDCWD, p.worker->status.path, old, 0), 0);
	touched[0] = '\0';
	p.worker->status.young_ns = 0;
	node_poll(&p);
	assert_string_equal(touched, p.worker->status.path);
	assert_int_equal(stat(p.worker->status.path, &status), 0);
	assert_true(status.st_mtime > 1000);
	kvpull_worker_destroy(p.worker);
}

TEST(pull_waits_for_room_at_its_producer)
{
	const uint64_t until = kvpull_clock_ns() + PATIENCE_NS;
	static struct node p, d;
	int status = 0;
	pid_t child;

	node_open(&p, "P", 0xa1, ",\"consumers_max\":1");
	node_hold(&p, 3);
	node_hold(&p, 4);
	child = consumer_fork(&p);
	while (!waitpid(child, &status, WNOHANG) && kvpull_clock_ns() < until)
		node_poll(&p);
	assert_true(WIFSIGNALED(status));
	/* P's engine learns of its death after the other one calls. */
	node_open(&d, "D1", 0xd2, "");
	pulls(&p, &d, 4);
	release(&p, &d);
	kvpull_worker_destroy(p.worker);
	kvpull_worker_destroy(d.worker);
}

/* As an engine without work: 1 if it was woken, and polled, within ms. */
static int engine_sleep(struct node *node, int ms)
{
	struct pollfd due = { .fd = kvpull_worker_event_fd(node->worker),
			      .events = POLLIN };

	if (!poll(&due, 1, ms))
		return 0;
	node_poll(node);
	return 1;
}

static int raw_connect(const struct node *p)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	(void)snprintf(address.sun_path, sizeof(address.sun_path),
		       "%s/kvpull-%016llx.sock", folder,
		       (unsigned long long)p->worker->facts.incarnation);
	assert_int_equal(
		connect(fd, (const struct sockaddr *)&address, sizeof(address)),
		0);
	return fd;
}

/* The engine sleeps, and its worker does what is due all the same. */
static void engine_sleeps_until(struct node *node, int fd, short what)
{
	const uint64_t until = kvpull_clock_ns() + PATIENCE_NS;
	struct pollfd seen = { .fd = fd, .events = what };

	while (poll(&seen, 1, 0) != 1) {
		assert_true(kvpull_clock_ns() < until);
		assert_true(engine_sleep(node, PATIENCE_NS / 1000000));
	}
}

TEST(listener_that_rests_is_not_slept_over)
{
	static struct node p;
	struct rlimit limit;
	struct rlimit low;
	int fds[128];
	uint32_t count = 0;
	int caller;

	node_open(&p, "P", 0xa1, "");
	while (engine_sleep(&p, 20))
		;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	low.rlim_cur = 128;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	caller = raw_connect(&p);
	while (count < 128 && (fds[count] = fcntl(2, F_DUPFD_CLOEXEC, 0)) >= 0)
		count++;
	/* Descriptors are short for a moment, as it calls. */
	while (engine_sleep(&p, 20))
		;
	while (count)
		(void)close(fds[--count]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	engine_sleeps_until(&p, caller, POLLIN);
	(void)close(caller);
	kvpull_worker_destroy(p.worker);
}

TEST(silent_caller_is_closed_while_the_engine_sleeps)
{
	static struct node p;
	int caller;

	node_open(&p, "P", 0xa1, ",\"connect_ms\":300");
	caller = raw_connect(&p);
	engine_sleeps_until(&p, caller, POLLRDHUP);
	(void)close(caller);
	kvpull_worker_destroy(p.worker);
}

/* A producer of another user's process, until it is killed. */
static pid_t producer_fork(uint64_t incarnation, int fill)
{
	static struct node p;
	char byte = 'r';
	int ready[2];
	pid_t child;

	assert_int_equal(pipe(ready), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		/* A new user's process has lost the signal that it had. */
		if (setresuid(OTHER_UID, OTHER_UID, OTHER_UID) ||
		    prctl(PR_SET_PDEATHSIG, SIGKILL))
			_exit(1);
		node_open(&p, "P", incarnation, ",\"uids\":[12345,0]");
		memset(p.memory, fill, WORLD_BLOCKS * WORLD_BLOCK_BYTES);
		node_hold(&p, 3);
		if (write(ready[1], &byte, 1) != 1)
			_exit(1);
		for (;;)
			(void)engine_sleep(&p, 1000);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	(void)close(ready[0]);
	(void)close(ready[1]);
	return child;
}

/*
 * The end of D's pull, and what it reads, when P is gone, its ticket is not, and
 * another user's process, which fills its memory so, has P's name.
 */
static struct kvpull_poll_record pull_of_another(const char *more, int fill,
						 uint8_t *byte)
{
	static struct node p, d;
	struct kvpull_poll_record end;
	pid_t other;

	if (geteuid() != 0)
		skip();
	assert_int_equal(chmod(folder, 01777), 0);
	node_open(&p, "P", 0xa1, "");
	node_open(&d, "D", 0xd1, more);
	/* The ticket's secret is the process's own: it has no claim there. */
	node_claim(&d, &p, 3);
	kvpull_worker_destroy(p.worker);
	other = producer_fork(0xa1, fill);
	node_pull(&d);
	end = pull_end(NULL, &d);
	*byte = d.memory[5 * WORLD_BLOCK_BYTES];
	kvpull_worker_destroy(d.worker);
	assert_int_equal(kill(other, SIGKILL), 0);
	assert_int_equal(waitpid(other, NULL, 0), other);
	return end;
}

TEST(producer_of_another_user_is_not_believed)
{
	uint8_t byte;
	const struct kvpull_poll_record end = pull_of_another("", 'X', &byte);

	assert_int_equal(end.kind, KVPULL_POLL_FAILED);
	assert_int_equal(end.reason, KVPULL_EAUTH);
	assert_int_not_equal(byte, 'X');
}

/* Two users' pods in root's folder, each of which lists the other. */
TEST(producer_of_a_listed_user_is_read)
{
	uint8_t byte;

	assert_int_equal(
		pull_of_another(",\"uids\":[0,12345]", 'O', &byte).kind,
		KVPULL_POLL_LOADED);
	assert_int_equal(byte, 'O');
}
