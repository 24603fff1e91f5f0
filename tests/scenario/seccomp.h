/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that fail from now on, in this process and its children. */
#ifndef KVPULL_TESTS_SECCOMP_H
#define KVPULL_TESTS_SECCOMP_H

#include <stdint.h>

#define SECCOMP_CALLS_MAX 8u

/*
 * Makes these system calls fail with that errno. 0; or -1 and errno: the kernel
 * does not allow it.
 */
int seccomp_forbid(const int *numbers, uint32_t count, int error);

#endif /* KVPULL_TESTS_SECCOMP_H */
