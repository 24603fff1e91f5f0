/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strangers at a producer's socket, all of whom are not let in: garbage before
 * a hello, 1,000 callers that say nothing, 2,000 dials that never read, calls
 * without end, and a user that is not in uids (as root). While they are there a
 * newcomer must be in, and have its blocks, within a second; an honest consumer
 * pulls all the while and no pull of its may fail; and when they are gone the
 * producer has as many descriptors as before.
 *
 * Prints a row an attack and `N passed, N failed, N skipped`. Exit 0 or 1.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "plugin/bytes/ticket.h"
#include "tests/stress/hostile_world.h"

#define PROCESSES_MAX 20u
#define NEWCOMER_NS (KVPULL_NS_PER_S * patience())
#define NOFILE 1024u /* P's; the strangers have far more */

static struct sockaddr_un producer;

static int dial(void)
{
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		die("socket");
	/* Blocks while P's backlog is full. */
	if (connect(fd, (const struct sockaddr *)&producer, sizeof(producer)))
		die("connect");
	return fd;
}

static void ready_tell(void)
{
	atomic_fetch_add_explicit(&arena->strangers, 1, memory_order_relaxed);
}

/* ---- what they do, each process so often ---- */

static void say_garbage(uint32_t count)
{
	static uint8_t bytes[KVPULL_MESSAGE_BYTES_MAX];

	while (count--) {
		const int fd = dial();
		const size_t most = count % 4 ? 4096 : sizeof(bytes);
		struct pollfd end = { .fd = fd, .events = POLLIN };
		uint32_t left = 3;

		randombytes_buf(bytes, sizeof(bytes));
		/* Something that begins as a message does, too. */
		if (count % 2)
			memcpy(bytes, "KVPH", 4);
		while (left-- &&
		       send(fd, bytes, 1 + (size_t)random_any() % most,
			    MSG_NOSIGNAL) > 0)
			(void)poll(&end, 1, 1);
		(void)close(fd);
	}
	ready_tell();
}

static void say_nothing(uint32_t count)
{
	while (count--)
		(void)dial();
	ready_tell();
	for (;;)
		(void)pause();
}

/* Callers that are turned away call again at once. */
static void call_again_and_again(uint32_t count)
{
	int fds[64];
	uint32_t at = 0;
	uint32_t i;

	for (i = 0; i < count; i++)
		fds[i] = dial();
	ready_tell();
	for (;;) {
		char text[64];

		while (recv(fds[at], text, sizeof(text), 0) > 0)
			;
		(void)close(fds[at]);
		fds[at] = dial();
		at = (at + 1) % count;
	}
}

static const struct stranger {
	const char *what;
	void (*act)(uint32_t count);
	uint32_t processes;
	uint32_t each; /* dials of a process */
	uid_t uid;
	uint32_t ends; /* they end by themselves; the newcomer comes after */
} strangers[] = {
	{ "200 callers of garbage", say_garbage, 4, 50, 0, 1 },
	{ "1,000 half-open callers of one process", say_nothing, 1, 1000, 0,
	  0 },
	{ "1,000 half-open callers of 20 processes", say_nothing, 20, 50, 0,
	  0 },
	{ "2,000 dials that never read", say_nothing, 20, 100, 0, 0 },
	{ "a process that calls again and again", call_again_and_again, 1, 16,
	  0, 0 },
	{ "1,000 half-open callers of another user that is let in", say_nothing,
	  20, 50, OTHER_UID, 0 },
	{ "100 silent connections of a user that is not in uids", say_nothing,
	  1, 100, STRANGER_UID, 0 },
	{ "a user that is not in uids calls again and again",
	  call_again_and_again, 2, 16, STRANGER_UID, 0 },
};
#define STRANGERS (sizeof(strangers) / sizeof(strangers[0]))

/* ---- the parent ---- */

static uint32_t fds_of(pid_t pid)
{
	char path[64];
	uint32_t count = 0;
	DIR *entries;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	entries = opendir(path);
	if (!entries)
		die("the producer's descriptors cannot be seen");
	while (readdir(entries))
		count++;
	(void)closedir(entries);
	return count;
}

/*
 * Waits until P has as many descriptors as with the honest consumer alone. 1:
 * it has.
 */
static int fds_are_back(uint32_t before)
{
	const uint64_t until = kvpull_clock_ns() + LIMIT_NS;

	while (fds_of(producer_pid) != before) {
		if (kvpull_clock_ns() >= until) {
			fprintf(stderr, "descriptors: %u, before %u\n",
				fds_of(producer_pid), before);
			return 0;
		}
		nap();
	}
	return 1;
}

static void name_find(void)
{
	struct kvpull_ticket ticket;
	char name[KVPULL_ADDRESS_BYTES_MAX];

	ticket_open(&arena->baits[0], &ticket);
	if (kvpull_ticket_address(ticket.ranks[0].address, "shm", name))
		die("no address");
	producer.sun_family = AF_UNIX;
	if ((size_t)snprintf(producer.sun_path, sizeof(producer.sun_path),
			     "%s/%s", folder,
			     name) >= sizeof(producer.sun_path))
		die("too long a path");
}

/* A consumer that has never been there: its first pull is in time. */
static void newcomer_main(const struct ticket *bait)
{
	uint64_t since_ns;
	int code;

	side_open("newcomer");
	since_ns = kvpull_clock_ns();
	code = pull(bait->text, bait->byte_count, bait->seed);
	since_ns = kvpull_clock_ns() - since_ns;
	printf("       newcomer in after %.1f ms%s\n", (double)since_ns / 1e6,
	       code ? ": its pull failed" : "");
	(void)fflush(NULL);
	side_close();
	_exit(code || since_ns > NEWCOMER_NS);
}

static int newcomer_fails(uint32_t bait)
{
	pid_t pid;

	(void)fflush(NULL);
	pid = child_start();
	if (!pid)
		newcomer_main(&arena->baits[bait]);
	return child_failed(pid);
}

/* 1: they did not get as far as they should. */
static int strangers_await(const struct stranger *stranger, const pid_t *pids)
{
	const uint64_t until = kvpull_clock_ns() + LIMIT_NS;
	uint32_t i;

	while (get(&arena->strangers) < stranger->processes)
		if (kvpull_clock_ns() >= until)
			return 1;
		else
			nap();
	for (i = 0; stranger->ends && i < stranger->processes; i++)
		if (waitpid(pids[i], NULL, 0) != pids[i])
			return 1;
	return 0;
}

static void stranger_run(const struct stranger *stranger, uint32_t bait,
			 uint32_t fds_before)
{
	const rlim_t many = 4096;
	const struct rlimit limit = { .rlim_cur = many, .rlim_max = many };
	pid_t pids[PROCESSES_MAX];
	uint32_t i;
	int is_bad;

	(void)fflush(NULL);
	set(&arena->strangers, 0);
	for (i = 0; i < stranger->processes; i++) {
		pids[i] = child_start();
		if (pids[i])
			continue;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
		become(stranger->uid ? stranger->uid : getuid());
		stranger->act(stranger->each);
		_exit(0);
	}
	is_bad = strangers_await(stranger, pids);
	is_bad |= newcomer_fails(bait);
	for (i = 0; !stranger->ends && i < stranger->processes; i++) {
		(void)kill(pids[i], SIGKILL);
		(void)waitpid(pids[i], NULL, 0);
	}
	/* Before the row: it waits until only the honest one is left. */
	row(stranger->what, stranger->uid ? stranger->uid : getuid(), is_bad);
	if (!fds_are_back(fds_before))
		row("descriptors come back", getuid(), 1);
}

int main(void)
{
	uint32_t fds_before;
	uint32_t i;

	hostile_begin(NOFILE);
	name_find();
	while (!goes_on())
		nap();
	fds_before = fds_of(producer_pid);
	for (i = 0; i < STRANGERS; i++) {
		if (!strangers[i].uid || !getuid()) {
			stranger_run(&strangers[i], i, fds_before);
			continue;
		}
		printf("refused: %s: it needs root\n", strangers[i].what);
		skipped++;
	}
	return hostile_end();
}
