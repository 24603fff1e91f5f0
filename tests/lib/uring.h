/* SPDX-License-Identifier: Apache-2.0 */
/* Containers and old kernels forbid io_uring: tests that need it ask first. */
#ifndef KVPULL_TESTS_LIB_URING_H
#define KVPULL_TESTS_LIB_URING_H

#include <errno.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 0: io_uring may be used here; or the errno of the kernel's refusal. */
static inline int uring_errno(void)
{
	struct io_uring_params params = { 0 };
	const int fd = (int)syscall(SYS_io_uring_setup, 1, &params);

	if (fd < 0)
		return errno;
	(void)close(fd);
	return 0;
}

#endif /* KVPULL_TESTS_LIB_URING_H */
