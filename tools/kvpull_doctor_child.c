/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that do what may hang or crash, each with a socket to this one, and
 * waits on descriptors with a deadline.
 */
#include "tools/kvpull_doctor_parts.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

/* From a kill to the end of a wait. */
#define KILL_NS KVPULL_NS_PER_S

int doctor_await(int fd, short events, uint64_t until_ns)
{
	struct pollfd waits = { .fd = fd, .events = events };
	uint64_t now_ns;
	int count = 0;

	while (count < 1 && (now_ns = kvpull_clock_ns()) < until_ns)
		count = poll(&waits, 1,
			     (int)((until_ns - now_ns) / KVPULL_NS_PER_MS) + 1);
	return count > 0;
}

int doctor_child_start(struct doctor_child *child, int type)
{
	int ends[2];
	int own;

	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends))
		return -1;
	child->pid = fork();
	own = !child->pid;
	child->socket = ends[own];
	(void)close(ends[!own]);
	if (child->pid < 0)
		(void)close(child->socket);
	if (!child->pid)
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	return child->pid < 0 ? -1 : 0;
}

/* 1: the child has ended. */
static int child_wait(const struct doctor_child *child, uint64_t wait_ns,
		      int *status)
{
	const uint64_t until_ns = kvpull_clock_ns() + wait_ns;
	pid_t ended;

	while (!(ended = waitpid(child->pid, status, WNOHANG)) &&
	       kvpull_clock_ns() < until_ns)
		kvpull_clock_nap();
	return ended != 0;
}

int doctor_child_end(const struct doctor_child *child, uint64_t wait_ns)
{
	int status = -1;

	(void)close(child->socket);
	if (!child_wait(child, wait_ns, &status)) {
		(void)kill(child->pid, SIGKILL);
		(void)child_wait(child, KILL_NS, &status);
	}
	return status;
}
