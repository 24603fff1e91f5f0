/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probe: a producer and a consumer, as processes of their own, and one
 * pull between them through the library, each byte compared.
 */
#include "tools/kvpull_doctor_parts.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/ib_pull_engine.h"

#define PROBE_BLOCKS 64u
#define PROBE_BLOCK_BYTES 65536u
#define PROBE_LAYERS 4u
#define PROBE_SEED 7u
#define PROBE_S 10
#define PROBE_NS (PROBE_S * UINT64_C(1000000000))

struct probe {
	const struct kvpull_connector_ops *ops;
	char config[DOCTOR_PATH_BYTES_MAX];
	char why[DOCTOR_TEXT_BYTES_MAX]; /* the library's last complaint */
	struct engine engine;
	uint32_t ids[PROBE_BLOCKS];
	uint8_t ticket[65536];
	size_t ticket_bytes;
	uint64_t took_ns;
	uint64_t wrong_bytes;
};

static int probe_open(struct probe *probe, const char *name)
{
	const struct kvpull_log log = doctor_log(probe->why);
	const struct kvpull_host host = {
		.struct_size = sizeof(host),
		.context = log.context,
		.log = log.write,
		.log_level = log.level,
	};
	const struct engine_params params = {
		.ops = probe->ops,
		.host = &host,
		.config_json = probe->config,
		.engine_id = name,
		.shape = { .block_bytes = PROBE_BLOCK_BYTES,
			   .block_count = PROBE_BLOCKS,
			   .layer_count = PROBE_LAYERS,
			   .group_count = 1,
			   .block_tokens = 16 },
		.tp_size = 1,
		.quiet = 1,
	};

	const int code = engine_open(&probe->engine, &params);

	/* Where the log has nothing, the detail is the reason. */
	if (code && !probe->why[0])
		(void)snprintf(probe->why, sizeof(probe->why), "%s",
			       probe->engine.detail.message);
	return code ? code :
		      engine_blocks_take(&probe->engine, probe->ids,
					 PROBE_BLOCKS);
}

static struct kvpull_blocks probe_blocks(const struct probe *probe)
{
	return (struct kvpull_blocks){ .block_count = PROBE_BLOCKS,
				       .block_ids = probe->ids };
}

/* ---- the producer, a child ---- */

static int produce(struct probe *probe)
{
	struct engine *engine = &probe->engine;
	const struct kvpull_blocks blocks = probe_blocks(probe);
	const struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = 1,
		.prompt_tokens = PROBE_BLOCKS * 16,
		.flags = KVPULL_REQUEST_WANTS_HOLD,
	};
	struct kvpull_finish finish = {
		.struct_size = sizeof(finish),
		.key = 1,
		.computed_tokens = PROBE_BLOCKS * 16,
		.group_count = 1,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
		.ticket = probe->ticket,
		.ticket_capacity = sizeof(probe->ticket),
	};
	uint32_t i;

	for (i = 0; i < PROBE_BLOCKS; i++)
		engine_block_fill(engine, 0, probe->ids[i], PROBE_SEED + i);
	if (engine->ops->scheduler->request_new(engine->scheduler, &request) ||
	    engine->ops->scheduler->request_finished(
		    engine->scheduler, &finish) != KVPULL_FINISH_HELD)
		return 1;
	probe->ticket_bytes = finish.ticket_bytes;
	return 0;
}

/* In the place of a ticket, which begins with a letter: 0 and why. */
static void producer_fails(const struct probe *probe, int to)
{
	(void)dprintf(to, "%cits producer: %s", '\0', probe->why);
}

/* Until the consumer has hung up; its pipe tells. */
static void producer_run(struct probe *probe, int to, int until)
{
	struct pollfd gone = { .fd = until, .events = POLLIN };

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (probe_open(probe, "doctor-producer") || produce(probe) ||
	    write(to, probe->ticket, probe->ticket_bytes) !=
		    (ssize_t)probe->ticket_bytes) {
		producer_fails(probe, to);
		_exit(1);
	}
	(void)close(to);
	while (poll(&gone, 1, 1) == 0) {
		if (engine_step(&probe->engine))
			_exit(1);
	}
	engine_close(&probe->engine);
	_exit(0);
}

/* ---- the consumer ---- */

static int consumer_ask(struct probe *probe)
{
	struct engine *engine = &probe->engine;
	const struct kvpull_scheduler_ops *scheduler = engine->ops->scheduler;
	const struct kvpull_blocks blocks = probe_blocks(probe);
	const struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = 1,
		.prompt_tokens = PROBE_BLOCKS * 16,
		.flags = KVPULL_REQUEST_PULL,
		.ticket = probe->ticket,
		.ticket_bytes = probe->ticket_bytes,
	};
	const struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.key = 1,
		.external_tokens = PROBE_BLOCKS * 16,
		.group_count = 1,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
	};
	uint32_t tokens = 0;

	return scheduler->request_new(engine->scheduler, &request) ||
	       scheduler->matched_tokens(engine->scheduler, 1, 0, &tokens) !=
		       KVPULL_MATCH_LOAD ||
	       scheduler->allocated(engine->scheduler, &allocation);
}

static int consumer_wait(struct probe *probe)
{
	const uint64_t until_ns = engine_now_ns() + PROBE_NS;
	struct engine_event event;

	while (engine_now_ns() < until_ns) {
		if (engine_step(&probe->engine))
			return KVPULL_EDEVICE;
		if (!engine_event(&probe->engine, &event))
			continue;
		probe->took_ns = event.took_ns;
		return event.kind == KVPULL_POLL_LOADED ? 0 : event.reason;
	}
	return KVPULL_EDEADLINE;
}

static int consume(struct probe *probe)
{
	uint32_t i;
	int code;

	if (!probe->ticket_bytes) {
		(void)snprintf(probe->why, sizeof(probe->why),
			       "its producer did not start");
		return KVPULL_EPEER;
	}
	if (!probe->ticket[0]) {
		(void)snprintf(probe->why, sizeof(probe->why), "%.*s",
			       (int)probe->ticket_bytes - 1,
			       (const char *)probe->ticket + 1);
		return KVPULL_EPEER;
	}
	code = probe_open(probe, "doctor-consumer");
	if (code)
		return code;
	code = consumer_ask(probe) ? KVPULL_EDEVICE : consumer_wait(probe);
	for (i = 0; i < PROBE_BLOCKS && !code; i++)
		probe->wrong_bytes += engine_block_wrong(
			&probe->engine, 0, probe->ids[i], PROBE_SEED + i);
	engine_close(&probe->engine);
	return code;
}

static void consumer_say(struct doctor *doctor, struct probe *probe, int code)
{
	const uint64_t bytes =
		(uint64_t)PROBE_BLOCKS * PROBE_BLOCK_BYTES * PROBE_LAYERS;
	const double gb_s = (double)bytes / (double)probe->took_ns;

	if (code || probe->wrong_bytes) {
		doctor_say(doctor, SAY_PROBE_FAILED,
			   probe->wrong_bytes ? "wrong bytes" :
			   probe->why[0]      ? probe->why :
						probe->ops->error_text(code));
		doctor_advise(
			doctor,
			strstr(probe->why, "raise ulimit -n") ?
				DOCTOR_RAISE_THE_FILES :
				"ib_pull --demo says more; OPERATION in kvpull(7) says what it needs");
		return;
	}
	doctor_say(doctor, SAY_PROBE, (unsigned int)(bytes >> 20), gb_s);
	doctor->probe =
		json_pack("{s:I, s:I, s:f}", "bytes", (json_int_t)bytes,
			  "took_ns", (json_int_t)probe->took_ns, "gb_s", gb_s);
}

/* Reads the ticket, which is all that the child writes before it closes. */
static void ticket_take(struct probe *probe, int from)
{
	ssize_t got;

	while (probe->ticket_bytes < sizeof(probe->ticket) &&
	       (got = read(from, probe->ticket + probe->ticket_bytes,
			   sizeof(probe->ticket) - probe->ticket_bytes)) > 0)
		probe->ticket_bytes += (size_t)got;
}

static void probe_run(struct doctor *doctor, struct probe *probe)
{
	int tickets[2];
	int end[2];
	pid_t child;

	if (pipe(tickets))
		return;
	if (pipe(end) || (child = fork()) < 0) {
		doctor_say(doctor, SAY_PROBE_NO_PROCESS);
		return;
	}
	if (child == 0) {
		(void)close(end[1]);
		(void)close(tickets[0]);
		producer_run(probe, tickets[1], end[0]);
	}
	(void)close(tickets[1]);
	(void)close(end[0]);
	ticket_take(probe, tickets[0]);
	(void)close(tickets[0]);
	consumer_say(doctor, probe, consume(probe));
	(void)close(end[1]);
	(void)waitpid(child, NULL, 0);
}

static void ends_take(sigset_t *ends)
{
	(void)sigemptyset(ends);
	(void)sigaddset(ends, SIGINT);
	(void)sigaddset(ends, SIGTERM);
	(void)sigaddset(ends, SIGHUP);
}

/*
 * A call into a device or a folder may hang for ever: let signals end the wait.
 */
static void ends_let(int number)
{
	sigset_t ends;

	(void)number;
	ends_take(&ends);
	(void)sigprocmask(SIG_UNBLOCK, &ends, NULL);
}

static void ends_look_each(time_t seconds)
{
	const struct sigaction action = { .sa_handler = ends_let,
					  .sa_flags = SA_RESTART };
	const struct itimerval timer = { .it_interval.tv_sec = seconds,
					 .it_value.tv_sec = seconds };

	(void)sigaction(SIGALRM, &action, NULL);
	(void)setitimer(ITIMER_REAL, &timer, NULL);
}

void doctor_probe(struct doctor *doctor)
{
	static struct probe probe;
	char folder[] = "/tmp/kvpull-doctor-XXXXXX";
	sigset_t ends;
	sigset_t before;

	probe.ops = engine_library();
	if (!probe.ops) {
		doctor_say(doctor, SAY_PROBE_NO_LIBRARY);
		return;
	}
	/* A signal waits until the probe has cleaned up, PROBE_S at most. */
	ends_take(&ends);
	(void)sigprocmask(SIG_BLOCK, &ends, &before);
	/* A folder of the probe's own: it meets no engine's socket. */
	if (!mkdtemp(folder)) {
		(void)sigprocmask(SIG_SETMASK, &before, NULL);
		doctor_say(doctor, SAY_PROBE_NO_FOLDER);
		return;
	}
	(void)snprintf(
		probe.config, sizeof(probe.config),
		"{\"socket_dir\":\"%s\",\"progress\":\"caller\",\"route\":\"shm\"}",
		folder);
	ends_look_each(PROBE_S);
	probe_run(doctor, &probe);
	ends_look_each(0);
	(void)rmdir(folder);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
}
