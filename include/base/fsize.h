/* SPDX-License-Identifier: Apache-2.0 */
/* How long a file of this process may be: ulimit -f. */
#ifndef KVPULL_BASE_FSIZE_H
#define KVPULL_BASE_FSIZE_H

#include <errno.h>
#include <stdint.h>
#include <sys/resource.h>

/*
 * Before a file, a memfd too, is made so long: beyond the limit the kernel
 * sends SIGXFSZ, which ends a process that has not asked for it. Return: 0;
 * -1 with errno EFBIG.
 */
static inline int kvpull_fsize_check(uint64_t bytes)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur >= bytes)
		return 0;
	errno = EFBIG;
	return -1;
}

#endif /* KVPULL_BASE_FSIZE_H */
