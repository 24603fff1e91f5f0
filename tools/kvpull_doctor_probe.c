/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probe: a producer and a consumer, as processes of their own, and one
 * pull between them through the library, each byte compared. A call into a
 * device or a folder may hang for ever: this process waits a bounded time.
 */
#include "tools/kvpull_doctor_parts.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/ib_pull_engine.h"

#define PROBE_BLOCKS 64u
#define PROBE_BLOCK_BYTES 65536u
#define PROBE_LAYERS 4u
#define PROBE_SEED 7u
#define PULL_NS (8 * KVPULL_NS_PER_S)
#define PROBE_NS (10 * KVPULL_NS_PER_S) /* for all */

/* The producer sends this text in place of a ticket, which has no blank. */
#define COMPLAINT "its producer: "

/* The consumer's result, which the parent reads. */
struct result {
	int code;
	uint64_t took_ns;
	uint64_t wrong_bytes;
	char why[DOCTOR_TEXT_BYTES_MAX]; /* the library's last complaint */
};

struct probe {
	const struct kvpull_connector_ops *ops;
	char config[DOCTOR_PATH_BYTES_MAX];
	struct result result;
	struct engine engine;
	uint32_t ids[PROBE_BLOCKS];
	uint8_t ticket[65536];
	size_t ticket_bytes;
};

static int probe_open(struct probe *probe, const char *name)
{
	const struct kvpull_log log = doctor_log(probe->result.why);
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
	if (code && !probe->result.why[0])
		(void)snprintf(probe->result.why, sizeof(probe->result.why),
			       "%s", probe->engine.detail.message);
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

/* Until the consumer and the parent have hung up. */
static void producer_run(struct probe *probe, int to)
{
	if (probe_open(probe, "doctor-producer") || produce(probe)) {
		(void)dprintf(to, COMPLAINT "%s", probe->result.why);
		_exit(1);
	}
	if (write(to, probe->ticket, probe->ticket_bytes) < 0)
		_exit(1);
	while (!doctor_await(to, POLLIN, kvpull_clock_ns() + KVPULL_NS_PER_MS))
		if (engine_step(&probe->engine))
			_exit(1);
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
	const uint64_t until_ns = engine_now_ns() + PULL_NS;
	struct engine_event event;

	while (engine_now_ns() < until_ns) {
		if (engine_step(&probe->engine))
			return KVPULL_EDEVICE;
		if (!engine_event(&probe->engine, &event))
			continue;
		probe->result.took_ns = event.took_ns;
		return event.kind == KVPULL_POLL_LOADED ? 0 : event.reason;
	}
	return KVPULL_EDEADLINE;
}

static int consume(struct probe *probe, int from)
{
	const ssize_t got =
		recv(from, probe->ticket, sizeof(probe->ticket) - 1, 0);
	const char *ticket = (const char *)probe->ticket;
	uint32_t i;
	int code;

	if (got <= 0)
		ticket = "its producer did not start";
	if (got <= 0 || !strncmp(ticket, COMPLAINT, sizeof(COMPLAINT) - 1)) {
		(void)snprintf(probe->result.why, DOCTOR_TEXT_BYTES_MAX, "%.*s",
			       (int)DOCTOR_TEXT_BYTES_MAX - 1, ticket);
		return KVPULL_EPEER;
	}
	probe->ticket_bytes = (size_t)got;
	code = probe_open(probe, "doctor-consumer");
	if (code)
		return code;
	code = consumer_ask(probe) ? KVPULL_EDEVICE : consumer_wait(probe);
	for (i = 0; i < PROBE_BLOCKS && !code; i++)
		probe->result.wrong_bytes += engine_block_wrong(
			&probe->engine, 0, probe->ids[i], PROBE_SEED + i);
	engine_close(&probe->engine);
	return code;
}

static void consumer_run(struct probe *probe, int from, int to)
{
	probe->result.code = consume(probe, from);
	(void)!write(to, &probe->result, sizeof(probe->result));
	_exit(0);
}

/* ---- the parent ---- */

static void result_say(struct doctor *doctor, const struct probe *probe)
{
	const struct result *result = &probe->result;
	const uint64_t bytes =
		(uint64_t)PROBE_BLOCKS * PROBE_BLOCK_BYTES * PROBE_LAYERS;
	const double gb_s = (double)bytes / (double)result->took_ns;

	if (result->code || result->wrong_bytes) {
		doctor_say(
			doctor, SAY_PROBE_FAILED,
			result->wrong_bytes ? "wrong bytes" :
			result->why[0]      ? result->why :
					 probe->ops->error_text(result->code),
			strstr(result->why, "raise ulimit -n") ?
				DOCTOR_RAISE_THE_FILES :
				"ib_pull --demo says more; OPERATION in kvpull(7) says what it needs");
		return;
	}
	doctor_say(doctor, SAY_PROBE, (unsigned int)(bytes >> 20), gb_s);
	doctor->probe =
		json_pack("{s:I, s:I, s:f}", "bytes", (json_int_t)bytes,
			  "took_ns", (json_int_t)result->took_ns, "gb_s", gb_s);
}

static void probe_run(struct doctor *doctor, struct probe *probe)
{
	struct doctor_child producer;
	struct doctor_child consumer;

	if (doctor_child_start(&producer, SOCK_SEQPACKET)) {
		doctor_say(doctor, SAY_PROBE_NO_PROCESS);
		return;
	}
	if (!producer.pid)
		producer_run(probe, producer.socket);
	if (doctor_child_start(&consumer, SOCK_SEQPACKET)) {
		doctor_say(doctor, SAY_PROBE_NO_PROCESS);
	} else {
		if (!consumer.pid)
			consumer_run(probe, producer.socket, consumer.socket);
		probe->result.code = KVPULL_EDEADLINE;
		if (doctor_await(consumer.socket, POLLIN,
				 kvpull_clock_ns() + PROBE_NS) &&
		    read(consumer.socket, &probe->result,
			 sizeof(probe->result)) !=
			    (ssize_t)sizeof(probe->result))
			(void)snprintf(probe->result.why, DOCTOR_TEXT_BYTES_MAX,
				       "the process that pulls ended early");
		result_say(doctor, probe);
		(void)doctor_child_end(&consumer, DOCTOR_END_NS);
	}
	(void)doctor_child_end(&producer, DOCTOR_END_NS);
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
	/* A signal waits until the probe has cleaned up. */
	(void)sigemptyset(&ends);
	(void)sigaddset(&ends, SIGINT);
	(void)sigaddset(&ends, SIGTERM);
	(void)sigaddset(&ends, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &ends, &before);
	/* A folder of the probe's own: it meets no engine's socket. */
	if (mkdtemp(folder)) {
		(void)snprintf(
			probe.config, sizeof(probe.config),
			"{\"socket_dir\":\"%s\",\"progress\":\"caller\",\"route\":\"shm\"}",
			folder);
		probe_run(doctor, &probe);
		(void)rmdir(folder);
	} else {
		doctor_say(doctor, SAY_PROBE_NO_FOLDER);
	}
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
}
