/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child process that gives up rights for good: io_uring by seccomp, root,
 * memlock. Its verdict is its exit status; asserts do not reach the parent.
 */
#ifndef KVPULL_TESTS_UNIT_DISK_SANDBOX
#define KVPULL_TESTS_UNIT_DISK_SANDBOX

#include <errno.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

#include "tests/lib/unit.h"

#define SANDBOX_SKIP 77
#define SANDBOX_UID 65533u

/* io_uring_setup() fails with that errno from now on. 0 or -1. */
int sandbox_forbid_uring(int error);

/* Another uid, none of root's rights, and that much memlock. 0 or -1. */
int sandbox_drop_privileges(rlim_t memlock_bytes);

/* Run it in a child: 0 passes, SANDBOX_SKIP skips, the rest is a failure. */
void sandbox_expect(int (*run)(int argument), int argument);

#endif /* KVPULL_TESTS_UNIT_DISK_SANDBOX */
