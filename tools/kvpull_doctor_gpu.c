/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs: does the library take memory of each that another process can map and copy
 * from? Children ask, since a driver may hang, and stays in the process that has
 * called it. For each GPU one child takes memory, and sends its descriptor by a
 * socket; a second one maps it. They give nothing back: they end. The parent waits
 * a bounded time for each answer.
 */
#include "tools/kvpull_doctor_gpu_facts.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "cuda/cuda.h"

/* For an answer about a GPU, and for all that a process does which maps it. */
#define ANSWER_S 15
#define ANSWER_NS (ANSWER_S * KVPULL_NS_PER_S)

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

/* Without a descriptor where fd is -1. */
static void answer_send(int to, struct answer *answer, int fd)
{
	union control control = { .header = { .cmsg_len = CMSG_LEN(sizeof(fd)),
					      .cmsg_level = SOL_SOCKET,
					      .cmsg_type = SCM_RIGHTS } };
	struct iovec part = { answer, sizeof(*answer) };
	const struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = fd < 0 ? 0 : sizeof(control),
	};

	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	(void)sendmsg(to, &message, MSG_NOSIGNAL);
}

/* 1, and *fd is the caller's, if there is one; 0: the child has ended. */
static int answer_take(int from, struct answer *answer, int *fd)
{
	union control control;
	struct iovec part = { answer, sizeof(*answer) };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };

	if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) !=
	    (ssize_t)sizeof(*answer))
		return 0;
	if (CMSG_FIRSTHDR(&message))
		memcpy(fd, CMSG_DATA(&control.header), sizeof(*fd));
	answer->line[sizeof(answer->line) - 1] = '\0';
	return 1;
}

/* ---- the first child ---- */

/* A GPU that an engine has filled may have room for the least of memory alone. */
static int memory_take(const struct kvpull_log *log, int index, uint64_t *bytes,
		       int *fd)
{
	static struct kvpull_arena arena;
	struct kvpull_device_memory memory = { 0 };
	struct kvpull_device *device;
	int code;

	kvpull_arena_init(&arena, log);
	code = kvpull_cuda_open(&arena, log, index, &device);
	if (code)
		return code;
	code = device->ops->alloc(device, DOCTOR_GPU_COPY_BYTES, &memory);
	if (code == KVPULL_ENOMEM)
		code = device->ops->alloc(device, 1, &memory);
	*bytes = memory.bytes;
	return code ? code : device->ops->export_fd(device, &memory, fd);
}

__attribute__((noreturn)) static void taker_run(int32_t index, int to)
{
	static struct kvpull_cuda_calls calls;
	struct answer answer = { .gpu.index = index };
	const struct kvpull_log log = doctor_log(answer.line);
	char end;
	int fd = -1;

	answer.code = kvpull_cuda_calls_load(&calls, &log);
	if (!answer.code) {
		doctor_gpu_ask(&calls, &answer.gpu);
		answer.code = memory_take(&log, index, &answer.bytes, &fd);
	}
	answer_send(to, &answer, fd);
	/* The memory stays until the second child is done with it. */
	(void)!read(to, &end, 1);
	_exit(0);
}

/* ---- the second child ---- */

__attribute__((noreturn)) static void importer_run(const struct answer *answer,
						   int fd, int to)
{
	struct doctor_gpu_import import = { 0 };

	doctor_gpu_import(&answer->gpu, fd, answer->bytes, &import);
	(void)!write(to, &import, sizeof(import));
	_exit(0);
}

static void import_try(struct doctor *doctor, const struct answer *answer,
		       int fd)
{
	const int index = answer->gpu.index;
	struct doctor_gpu_import import;
	struct doctor_child child;

	if (doctor_child_start(&child, SOCK_SEQPACKET))
		return;
	if (!child.pid)
		importer_run(answer, fd, child.socket);
	if (!doctor_await(child.socket, POLLIN, kvpull_clock_ns() + ANSWER_NS))
		doctor_say(doctor, SAY_GPU_IMPORT_HANGS, index, ANSWER_S);
	else if (read(child.socket, &import, sizeof(import)) != sizeof(import))
		doctor_say(doctor, SAY_GPU_IMPORT_ENDED, index);
	else {
		import.line[sizeof(import.line) - 1] = '\0';
		doctor_gpu_import_say(doctor, &answer->gpu, &import);
	}
	(void)doctor_child_end(&child, DOCTOR_END_NS);
}

/* ---- the parent ---- */

static void answer_say(struct doctor *doctor, const struct answer *answer,
		       int fd)
{
	/* The driver did not start: nothing was asked of it. */
	if (answer->gpu.count)
		doctor_gpu_say(doctor, &answer->gpu);
	if (fd >= 0 && !answer->code)
		import_try(doctor, answer, fd);
	/* A machine without a driver has a line of its own. */
	else if (!strstr(answer->line, "no driver on this host"))
		doctor_gpu_refusal_say(doctor, "", answer->line);
}

/* Returns how many GPUs there are; 0: the driver does not say. */
static int32_t gpu_try(struct doctor *doctor, int32_t index)
{
	struct answer answer = { 0 };
	struct doctor_child child;
	int fd = -1;

	if (doctor_child_start(&child, SOCK_SEQPACKET))
		return 0;
	if (!child.pid)
		taker_run(index, child.socket);
	if (!doctor_await(child.socket, POLLIN, kvpull_clock_ns() + ANSWER_NS))
		doctor_say(doctor, SAY_GPU_HANGS, index, ANSWER_S);
	else if (!answer_take(child.socket, &answer, &fd))
		doctor_say(doctor, SAY_GPU_ENDED, index);
	else
		answer_say(doctor, &answer, fd);
	kvpull_fd_close(&fd);
	(void)doctor_child_end(&child, DOCTOR_END_NS);
	return answer.gpu.count;
}

void doctor_gpus(struct doctor *doctor)
{
	int32_t index = 0;
	int32_t count;

	do
		count = gpu_try(doctor, index);
	while (++index < count && index < (int)DOCTOR_GPUS_MAX);
	if (count > (int)DOCTOR_GPUS_MAX)
		doctor_say(doctor, SAY_GPUS_LEFT_OUT, count, DOCTOR_GPUS_MAX);
}
