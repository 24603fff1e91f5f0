/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/disk/sandbox.h"

int sandbox_forbid_uring(int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {
		.len = sizeof(filter) / sizeof(filter[0]), .filter = filter
	};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
			       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER,
				     &program) ?
		       -1 :
		       0;
}

int sandbox_drop_privileges(rlim_t memlock_bytes)
{
	const struct rlimit memlock = { memlock_bytes, memlock_bytes };
	/* Locked memory counts by uid: one that nobody else has now. */
	const uid_t uid = 20000u + (uid_t)getpid() % 40000u;

	if (setrlimit(RLIMIT_MEMLOCK, &memlock) ||
	    (!geteuid() && (setgroups(0, NULL) || setresgid(uid, uid, uid) ||
			    setresuid(uid, uid, uid))))
		return -1;
	/* A change of uid hides our own /proc entries; engines do not. */
	return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

void sandbox_expect(int (*run)(int argument), int argument)
{
	const pid_t child = fork();
	int status = 0;

	assert_true(child >= 0);
	if (!child)
		_exit(run(argument));
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == SANDBOX_SKIP) {
		print_message(
			"refused: this machine does not allow the test\n");
		skip();
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}
