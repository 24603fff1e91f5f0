/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs: does the library take memory of each that other processes can map? A child
 * asks, since a driver may hang, and stays in the process that has called it.
 */
#include "tools/kvpull_doctor_parts.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/ib_pull_engine.h"

#define GPUS_MAX 16
#define GPU_MS 15000 /* the library gives a driver up after 10 s */

/* What the child says of a GPU. */
struct answer {
	int32_t code;
	char line[DOCTOR_TEXT_BYTES_MAX]; /* the library's last warning */
};

static const struct {
	const char *sign; /* in the line */
	const char *advice;
} causes[] = {
	{ "update the driver", "a driver of CUDA 12.0 or newer" },
	{ "the driver does not start",
	  "nvidia-smi; in a container: --gpus all, or a ResourceClaim for the GPU" },
	{ "has not begun", "nvidia-smi; dmesg | grep Xid; reset the GPU" },
};

/* Without the key's own words, which here nobody has set. */
static void line_keep(void *context, uint32_t level, const char *line)
{
	static const char begin[] = "device=required: ";
	struct answer *answer = context;
	char *end;

	if (level > KVPULL_LOG_WARN)
		return;
	if (strncmp(line, begin, sizeof(begin) - 1) == 0)
		line += sizeof(begin) - 1;
	(void)snprintf(answer->line, sizeof(answer->line), "%s", line);
	end = strstr(answer->line, "; correct that, or set");
	if (end)
		*end = '\0';
}

/* 0, and nothing of it is left; or the library's error. */
static int gpu_try(const struct kvpull_worker_ops *ops, int32_t index,
		   struct answer *answer)
{
	const struct kvpull_host host = { .struct_size = sizeof(host),
					  .context = answer,
					  .log = line_keep,
					  .log_level = KVPULL_LOG_WARN };
	const struct kvpull_group group = { .block_tokens = 16 };
	const struct kvpull_model model = { .struct_size = sizeof(model),
					    .model = "doctor",
					    .dtype = "bytes",
					    .layout = "LBHNC",
					    .layer_count = 1,
					    .head_count = 1,
					    .head_bytes = 256 };
	const struct kvpull_open_params params = {
		.struct_size = sizeof(params),
		.host = &host,
		.config_json =
			"{\"route\":\"shm\",\"device\":\"required\",\"status\":\"off\",\"progress\":\"caller\",\"copy_threads\":0,\"copy_routine\":\"memcpy\"}",
		.model = &model,
		.engine_id = "doctor",
		.tp_size = 1,
		.groups = &group,
		.group_bytes = sizeof(group),
		.group_count = 1,
		.device_kind = KVPULL_DEVICE_CUDA,
		.device_index = index,
	};
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_worker *worker;
	int code = ops->open(&params, &worker, NULL);

	if (code)
		return code;
	code = ops->memory_alloc(worker, 1, KVPULL_MEMORY_DEVICE, &memory);
	ops->close(worker);
	return code;
}

/* Until the first GPU that is not there, or does not serve. */
static void gpus_try(int to)
{
	const struct kvpull_connector_ops *ops = engine_library();
	int32_t index;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (index = 0; ops && index < GPUS_MAX; index++) {
		struct answer answer = { 0 };

		answer.code = gpu_try(ops->worker, index, &answer);
		if (write(to, &answer, sizeof(answer)) != sizeof(answer) ||
		    answer.code)
			break;
	}
	_exit(0);
}

static void gpu_refused(struct doctor *doctor, const struct answer *answer)
{
	size_t at;

	doctor_say(doctor, DOCTOR_WARN, "gpu", "%s", answer->line);
	for (at = 0; at < sizeof(causes) / sizeof(causes[0]); at++)
		if (strstr(answer->line, causes[at].sign)) {
			doctor_advise(doctor, "%s", causes[at].advice);
			return;
		}
	doctor_advise(doctor, "KV caches in host memory, or on another GPU");
}

/* 1: another answer follows. */
static int answer_say(struct doctor *doctor, uint32_t index,
		      const struct answer *answer)
{
	if (!answer->code) {
		doctor_say(
			doctor, DOCTOR_OK, "gpu",
			"GPU %u: its memory can be shared with processes of this node",
			index);
		return 1;
	}
	/* A machine without a driver has its own line; the last GPU has none. */
	if (!strstr(answer->line, "no driver on this host") &&
	    !(index && strstr(answer->line, "cuDeviceGet")))
		gpu_refused(doctor, answer);
	return 0;
}

static void answers_say(struct doctor *doctor, int from)
{
	struct pollfd ready = { .fd = from, .events = POLLIN };
	struct answer answer;
	uint32_t index = 0;
	int has_answer;

	do {
		if (poll(&ready, 1, GPU_MS) <= 0) {
			doctor_say(doctor, DOCTOR_WARN, "gpu",
				   "GPU %u: its driver does not answer in %u s",
				   index, GPU_MS / 1000);
			doctor_advise(
				doctor,
				"nvidia-smi; dmesg | grep Xid; reset the GPU");
			return;
		}
		has_answer =
			read(from, &answer, sizeof(answer)) == sizeof(answer);
		answer.line[sizeof(answer.line) - 1] = '\0';
	} while (has_answer && answer_say(doctor, index++, &answer));
}

void doctor_gpus(struct doctor *doctor)
{
	int ends[2];
	pid_t child;

	/* The output so far is the parent's to write. */
	(void)fflush(NULL);
	if (pipe2(ends, O_CLOEXEC))
		return;
	child = fork();
	if (!child)
		gpus_try(ends[1]);
	(void)close(ends[1]);
	if (child > 0) {
		answers_say(doctor, ends[0]);
		(void)kill(child, SIGKILL);
		(void)waitpid(child, NULL, 0);
	}
	(void)close(ends[0]);
}
