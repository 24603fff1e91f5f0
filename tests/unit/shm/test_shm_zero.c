/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine that closed its standard input: whichever of the route's descriptors
 * the kernel numbers 0, blocks are pulled and nothing is left open.
 */
#include "tests/unit/shm/world.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

static uint32_t made; /* descriptors, in the order of their calls */
static uint32_t zero; /* the one that is 0 */
static int counts;
static int input; /* what 0 is otherwise */
static int spare; /* keeps the number of descriptors */

static int numbered(int fd)
{
	if (fd < 0 || !counts || made++ != zero)
		return fd;
	spare = fcntl(input, F_DUPFD_CLOEXEC, 3);
	assert_int_equal(dup3(fd, 0, O_CLOEXEC), 0);
	(void)close(fd);
	return 0;
}

/* In the place of libc's, for the library that is linked to this program. */
int epoll_create1(int flags)
{
	return numbered((int)syscall(SYS_epoll_create1, flags));
}

int eventfd(unsigned int value, int flags)
{
	return numbered((int)syscall(SYS_eventfd2, value, flags));
}

int timerfd_create(clockid_t clock, int flags)
{
	return numbered((int)syscall(SYS_timerfd_create, clock, flags));
}

int memfd_create(const char *name, unsigned int flags)
{
	return numbered((int)syscall(SYS_memfd_create, name, flags));
}

int socket(int family, int type, int protocol)
{
	return numbered((int)syscall(SYS_socket, family, type, protocol));
}

int accept4(int fd, __SOCKADDR_ARG address, socklen_t *restrict bytes,
	    int flags)
{
	return numbered((int)syscall(SYS_accept4, fd, address.__sockaddr__,
				     bytes, flags));
}

/* Those that came with a message, too. */
ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	const ssize_t got = syscall(SYS_recvmsg, fd, message, flags);
	struct cmsghdr *part = got < 0 ? NULL : CMSG_FIRSTHDR(message);
	size_t at;

	for (; part; part = CMSG_NXTHDR(message, part)) {
		if (part->cmsg_type != SCM_RIGHTS)
			continue;
		for (at = CMSG_LEN(0); at < part->cmsg_len; at += sizeof(int)) {
			int *taken = (int *)(void *)((uint8_t *)part + at);

			*taken = numbered(*taken);
		}
	}
	return got;
}

UNIT_TEST(any_descriptor_may_be_0)
{
	static struct world world;

	input = fcntl(0, F_DUPFD_CLOEXEC, 3);
	if (input < 0)
		skip();
	for (zero = 0; made >= zero; zero++) {
		made = 0;
		spare = -1;
		counts = 1;
		world_open(&world);
		world_connect(&world);
		world_close(&world);
		counts = 0;
		(void)close(spare);
		assert_int_equal(dup2(input, 0), 0);
	}
	assert_true(zero > 8);
	(void)close(input);
}
