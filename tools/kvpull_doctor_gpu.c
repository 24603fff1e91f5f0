/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs: does the library take memory of each that another process can map and copy
 * from? Children ask, since a driver may hang, and stays in the process that has
 * called it. One child takes memory of each GPU in turn, and sends its descriptor
 * by a socket; a second child for each maps it. Both end with the parent, which
 * waits a bounded time for each answer.
 */
#include "tools/kvpull_doctor_gpu_facts.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cuda/cuda.h"

/* For an answer about a GPU, and for all that a process does which maps it. */
#define ANSWER_MS 15000
/* A child that was killed ends once the kernel's driver lets go of it. */
#define KILL_ROUNDS 100u
#define KILL_ROUND_MS 10u

/* What the first child says of a GPU; a descriptor may come with it. */
struct answer {
	int32_t code; /* the library's; 0: a descriptor of @bytes comes */
	uint32_t reserved;
	uint64_t bytes;
	struct doctor_gpu gpu;
	char line[DOCTOR_TEXT_BYTES_MAX]; /* the library's last warning */
};

/* ---- messages with a descriptor ---- */

union control {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr header;
};

static int answer_send(int to, const struct answer *answer, int fd)
{
	union control control = { .header = { .cmsg_len = CMSG_LEN(sizeof(fd)),
					      .cmsg_level = SOL_SOCKET,
					      .cmsg_type = SCM_RIGHTS } };
	struct answer copy = *answer;
	struct iovec part = { &copy, sizeof(copy) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

	if (fd >= 0) {
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
	}
	return sendmsg(to, &message, MSG_NOSIGNAL) == sizeof(copy) ? 0 : -1;
}

/* 1, and *fd is the caller's, or -1; 0: the child has ended. */
static int answer_take(int from, struct answer *answer, int *fd)
{
	union control control;
	struct iovec part = { answer, sizeof(*answer) };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	const struct cmsghdr *header;

	*fd = -1;
	if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) !=
	    (ssize_t)sizeof(*answer))
		return 0;
	header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(header), sizeof(*fd));
	answer->line[sizeof(answer->line) - 1] = '\0';
	return 1;
}

/* ---- the first child ---- */

struct taker {
	struct kvpull_cuda_calls calls;
	struct kvpull_arena arena;
	struct kvpull_device *device; /* NULL: none is open */
	struct kvpull_device_memory memory;
};

/* A GPU that an engine has filled may have room for the least of memory alone. */
static int memory_take(struct taker *taker, const struct kvpull_log *log,
		       int index, int *fd)
{
	const struct kvpull_device_ops *ops;
	int code;

	kvpull_arena_init(&taker->arena, log);
	code = kvpull_cuda_open(&taker->arena, log, index, &taker->device);
	if (code) {
		taker->device = NULL;
		return code;
	}
	ops = taker->device->ops;
	code = ops->alloc(taker->device, DOCTOR_GPU_COPY_BYTES, &taker->memory);
	if (code == KVPULL_ENOMEM)
		code = ops->alloc(taker->device, 1, &taker->memory);
	return code ? code : ops->export_fd(taker->device, &taker->memory, fd);
}

static void memory_give(struct taker *taker, int fd)
{
	if (fd >= 0)
		(void)close(fd);
	if (taker->device) {
		taker->device->ops->unmap(taker->device, &taker->memory);
		taker->device->ops->close(taker->device);
	}
	kvpull_arena_fini(&taker->arena);
}

/* Return: 0; -1: the parent has ended. */
static int gpu_answer(struct taker *taker, int to, struct answer *answer)
{
	const struct kvpull_log log = doctor_log(answer->line);
	char go_on;
	int fd = -1;
	int code;

	doctor_gpu_ask(&taker->calls, &answer->gpu);
	answer->code = memory_take(taker, &log, answer->gpu.index, &fd);
	answer->bytes = taker->memory.bytes;
	code = answer_send(to, answer, fd);
	/* The memory stays until the second child is done with it. */
	if (!code && read(to, &go_on, 1) != 1)
		code = -1;
	memory_give(taker, fd);
	return code;
}

__attribute__((noreturn)) static void taker_run(int to)
{
	static struct taker taker;
	struct answer answer = { 0 };
	const struct kvpull_log log = doctor_log(answer.line);
	int32_t index = 0;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	answer.code = kvpull_cuda_calls_load(&taker.calls, &log);
	if (answer.code) {
		(void)answer_send(to, &answer, -1);
		_exit(0);
	}
	do {
		answer = (struct answer){ .gpu.index = index };
	} while (!gpu_answer(&taker, to, &answer) &&
		 ++index < answer.gpu.count && index < (int)DOCTOR_GPUS_MAX);
	_exit(0);
}

/* ---- the second child ---- */

/* A process inside the kernel's driver may not end: it is left behind then. */
static void child_end(pid_t child)
{
	const struct timespec nap = kvpull_clock_timespec(
		KILL_ROUND_MS * (uint64_t)KVPULL_NS_PER_MS);
	uint32_t round;

	(void)kill(child, SIGKILL);
	for (round = 0; round < KILL_ROUNDS; round++) {
		if (waitpid(child, NULL, WNOHANG) != 0)
			return;
		(void)nanosleep(&nap, NULL);
	}
}

__attribute__((noreturn)) static void importer_run(const struct answer *answer,
						   int fd, int to)
{
	struct doctor_gpu_import import = { 0 };

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	doctor_gpu_import(&answer->gpu, fd, answer->bytes, &import);
	(void)!write(to, &import, sizeof(import));
	_exit(0);
}

static void import_take(struct doctor *doctor, const struct answer *answer,
			int from)
{
	struct pollfd ready = { .fd = from, .events = POLLIN };
	const int index = answer->gpu.index;
	struct doctor_gpu_import import;

	if (poll(&ready, 1, ANSWER_MS) <= 0)
		doctor_say(doctor, SAY_GPU_IMPORT_HANGS, index,
			   ANSWER_MS / 1000);
	else if (read(from, &import, sizeof(import)) != sizeof(import))
		doctor_say(doctor, SAY_GPU_IMPORT_ENDED, index);
	else {
		import.line[sizeof(import.line) - 1] = '\0';
		doctor_gpu_import_say(doctor, &answer->gpu, &import);
	}
}

static void import_try(struct doctor *doctor, const struct answer *answer,
		       int fd)
{
	int ends[2];
	pid_t child;

	if (pipe2(ends, O_CLOEXEC))
		return;
	child = fork();
	if (!child)
		importer_run(answer, fd, ends[1]);
	(void)close(ends[1]);
	if (child > 0) {
		import_take(doctor, answer, ends[0]);
		child_end(child);
	}
	(void)close(ends[0]);
}

/* ---- the parent ---- */

/* A machine without a driver has a line of its own. */
static int is_without_driver(const struct answer *answer)
{
	return strstr(answer->line, "no driver on this host") != NULL;
}

static void answer_say(struct doctor *doctor, const struct answer *answer,
		       int fd)
{
	/* The driver did not start: nothing was asked of it. */
	if (answer->gpu.count)
		doctor_gpu_say(doctor, &answer->gpu);
	if (fd >= 0 && !answer->code)
		import_try(doctor, answer, fd);
	else if (!is_without_driver(answer))
		doctor_gpu_refusal_say(doctor, "", answer->line);
}

static void silence_say(struct doctor *doctor, int32_t index, int has_ended)
{
	if (has_ended)
		doctor_say(doctor, SAY_GPU_ENDED, index);
	else
		doctor_say(doctor, SAY_GPU_HANGS, index, ANSWER_MS / 1000);
}

static void answers_say(struct doctor *doctor, int from)
{
	struct pollfd ready = { .fd = from, .events = POLLIN };
	struct answer answer;
	int32_t index = 0;

	do {
		int fd;

		if (poll(&ready, 1, ANSWER_MS) <= 0) {
			silence_say(doctor, index, 0);
			return;
		}
		if (!answer_take(from, &answer, &fd)) {
			silence_say(doctor, index, 1);
			return;
		}
		answer_say(doctor, &answer, fd);
		if (fd >= 0)
			(void)close(fd);
		(void)!write(from, "", 1);
	} while (++index < answer.gpu.count && index < (int)DOCTOR_GPUS_MAX);
	if (answer.gpu.count > (int)DOCTOR_GPUS_MAX)
		doctor_say(doctor, SAY_GPUS_LEFT_OUT, answer.gpu.count,
			   DOCTOR_GPUS_MAX);
}

void doctor_gpus(struct doctor *doctor)
{
	int ends[2];
	pid_t child;

	/* The output so far is the parent's to write. */
	(void)fflush(NULL);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return;
	child = fork();
	if (!child) {
		(void)close(ends[0]);
		taker_run(ends[1]);
	}
	(void)close(ends[1]);
	if (child > 0) {
		answers_say(doctor, ends[0]);
		child_end(child);
	}
	(void)close(ends[0]);
}
