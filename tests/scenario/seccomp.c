/* SPDX-License-Identifier: Apache-2.0 */
/* See seccomp.h. Containers' default profiles forbid by the same means. */
#include "tests/scenario/seccomp.h"

#include <errno.h>
#include <stddef.h>
#include <sys/prctl.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

int seccomp_forbid(const int *numbers, uint32_t count, int error)
{
	struct sock_filter filter[SECCOMP_CALLS_MAX + 3] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
	};
	struct sock_fprog program = { .filter = filter };
	uint32_t used = 1;
	uint32_t index;

	if (!count || count > SECCOMP_CALLS_MAX) {
		errno = EINVAL;
		return -1;
	}
	/* Each jumps over the others and over the permission. */
	for (index = 0; index < count; index++)
		filter[used++] = (struct sock_filter)BPF_JUMP(
			BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)numbers[index],
			(uint8_t)(count - index), 0);
	filter[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
						      SECCOMP_RET_ALLOW);
	filter[used++] = (struct sock_filter)BPF_STMT(
		BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error);
	program.len = (unsigned short)used;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
			       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER,
				     &program) ?
		       -1 :
		       0;
}
