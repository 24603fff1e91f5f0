/* SPDX-License-Identifier: Apache-2.0 */
/* See sandbox.h. */
#include "tests/scenario/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/scenario/scenario.h"
#include "tests/scenario/seccomp.h"

#define NAMESPACES                                                             \
	(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET |            \
	 CLONE_NEWUTS)
#define MEMLOCK_BYTES (8u << 20)

static const char *folder;

void sandbox_folder_set(const char *path)
{
	folder = path;
}

static void forbidden(const char *what)
{
	scenario_refuse("%s: %s", what, strerror(errno));
}

static void uid_take(uint32_t uid)
{
	if (!geteuid() && (setgroups(0, NULL) || setresgid(uid, uid, uid) ||
			   setresuid(uid, uid, uid)))
		forbidden("setresuid");
	/* A change of uid hides our own /proc entries; engines do not. */
	(void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static void file_write(const char *path, const char *text)
{
	const int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		forbidden(path);
	(void)close(fd);
}

static void user_namespace(void)
{
	char text[64];
	const uid_t uid = geteuid();
	const gid_t gid = getegid();

	if (unshare(CLONE_NEWUSER))
		forbidden("unshare(CLONE_NEWUSER)");
	file_write("/proc/self/setgroups", "deny");
	(void)snprintf(text, sizeof(text), "0 %u 1", uid);
	file_write("/proc/self/uid_map", text);
	(void)snprintf(text, sizeof(text), "0 %u 1", gid);
	file_write("/proc/self/gid_map", text);
}

/* We are the first process of the new PID namespace; our parent waits. */
static void pid_namespace(void)
{
	const pid_t pid = fork();
	int status = 0;

	if (pid < 0)
		forbidden("fork");
	if (pid) {
		(void)signal(SIGTERM, SIG_DFL);
		(void)waitpid(pid, &status, 0);
		/*
		 * The child printed why this machine refuses, which it cannot
		 * tell the case.
		 */
		if (WIFEXITED(status) &&
		    WEXITSTATUS(status) == SCENARIO_REFUSED)
			scenario_refuse("%s", "");
		if (WIFEXITED(status) && !WEXITSTATUS(status))
			_exit(0);
		scenario_fail("the first process ended with status 0x%x",
			      (unsigned)status);
	}
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void hide(const char *path)
{
	if (mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") &&
	    errno != ENOENT)
		forbidden(path);
}

static void mounts(void)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		forbidden("mount /");
	hide("/mnt");
	if (mkdir(SANDBOX_FOLDER, 0700) ||
	    mount(folder, SANDBOX_FOLDER, NULL, MS_BIND, NULL))
		forbidden("mount --bind");
	hide("/dev/shm");
	hide("/tmp");
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV, NULL))
		forbidden("mount /proc");
}

void sandbox_container(void)
{
	if (geteuid())
		user_namespace();
	if (unshare(NAMESPACES))
		forbidden("unshare");
	pid_namespace();
	mounts();
}

void sandbox_container_full(void)
{
	sandbox_container();
	if (mount(NULL, "/dev/shm", NULL, MS_REMOUNT | MS_NOSUID | MS_NODEV,
		  "mode=1777,size=128k"))
		forbidden("mount /dev/shm");
}

static void stranger(uint32_t uid)
{
	if (geteuid())
		scenario_refuse("users other than our own need root");
	uid_take(uid);
	user_namespace();
	if (unshare(NAMESPACES))
		forbidden("unshare");
	pid_namespace();
	mounts();
}

void sandbox_container_first(void)
{
	stranger(SANDBOX_FIRST_UID);
}

void sandbox_container_second(void)
{
	stranger(SANDBOX_SECOND_UID);
}

/* From the parent's namespace, whose rights the one that enters has lost. */
static void maps_write(pid_t pid)
{
	char path[64];
	char text[64];

	(void)snprintf(text, sizeof(text), "0 %u 65536", SANDBOX_POD_FIRST);
	(void)snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
	file_write(path, text);
	(void)snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
	file_write(path, text);
}

void sandbox_pod(void)
{
	const pid_t self = getpid();
	int entered[2];
	int status = 0;
	pid_t helper;
	char byte = 0;

	if (geteuid())
		scenario_refuse("users other than our own need root");
	helper = pipe2(entered, O_CLOEXEC) ? -1 : fork();
	if (helper < 0)
		forbidden("fork");
	if (!helper) {
		if (read(entered[0], &byte, 1) != 1)
			_exit(1);
		maps_write(self);
		_exit(0);
	}
	if (unshare(CLONE_NEWUSER))
		forbidden("unshare(CLONE_NEWUSER)");
	scenario_check(write(entered[1], &byte, 1) == 1, "pipe");
	(void)waitpid(helper, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		scenario_refuse("%s", "no map of users can be written");
	if (setresgid(SANDBOX_UID, SANDBOX_UID, SANDBOX_UID) ||
	    setresuid(SANDBOX_UID, SANDBOX_UID, SANDBOX_UID))
		forbidden("setresuid");
	(void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

void sandbox_nobody(void)
{
	const struct rlimit memlock = { MEMLOCK_BYTES, MEMLOCK_BYTES };

	if (setrlimit(RLIMIT_MEMLOCK, &memlock))
		forbidden("setrlimit");
	uid_take(SANDBOX_UID);
}

static const int uring[] = { SYS_io_uring_setup, SYS_io_uring_enter,
			     SYS_io_uring_register };
static const int others[] = { SYS_process_vm_readv, SYS_process_vm_writev,
			      SYS_ptrace, SYS_pidfd_getfd };

static const int threads[] = { SYS_clone, SYS_clone3 };

static void syscalls_forbid(const int *numbers, uint32_t count, int error)
{
	if (seccomp_forbid(numbers, count, error))
		forbidden("seccomp");
}

void sandbox_uring_eperm(void)
{
	syscalls_forbid(uring, 3, EPERM);
}

void sandbox_uring_enosys(void)
{
	syscalls_forbid(uring, 3, ENOSYS);
}

void sandbox_no_threads(void)
{
	syscalls_forbid(threads, 2, EAGAIN);
}

void sandbox_strict(void)
{
	sandbox_nobody();
	syscalls_forbid(uring, 3, EPERM);
	syscalls_forbid(others, 4, EPERM);
}
