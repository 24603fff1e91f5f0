/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine's process: takes commands, makes steps, tells what ended.
 *
 * It sleeps on its control socket and the workers' event_fd, as an idle engine
 * does, unless told to spin. A request owns its blocks until its end was
 * reported; blocks that came back to a producer are overwritten at once.
 */
#include "tests/lib/counts.h"
#include "tests/scenario/gpu.h"
#include "tests/scenario/node_requests.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Long enough that a missed wake-up shows. */
#define SLEEP_MS 5000
#define SPIN_MS 0
#define QUEUE_MS 50 /* with requests that wait: an engine with work steps */
/* Ranks in other processes wake nobody. */
#define SPLIT_MS 1

static void log_line(void *context, uint32_t level, const char *line)
{
	struct server *server = context;

	if (!server->log)
		return;
	fprintf(server->log, "%s %u %s\n", server->params->id, level, line);
	(void)fflush(server->log);
}

static void tell(struct server *server, const struct node_message *message)
{
	if (send(server->control, message,
		 offsetof(struct node_message, ticket) + message->ticket_bytes,
		 MSG_NOSIGNAL) < 0)
		_exit(3); /* the driver is gone */
}

static void event_tell(struct server *server, const struct request *request,
		       const struct engine_event *event, uint64_t wrong)
{
	const struct node_message message = {
		.op = NODE_EVENT,
		.key = event->key,
		.seed = request ? request->seed : 0,
		.kind = event->kind,
		.reason = event->reason,
		.bytes = event->bytes,
		.took_ns = event->took_ns,
		.wrong = wrong,
		.at_ns = engine_now_ns(),
	};

	tell(server, &message);
}

/* Finishes a sibling: its answer, and its ticket in the message. */
static int sibling_finish(struct server *server, struct node_message *message,
			  uint64_t key, const struct kvpull_blocks *groups)
{
	const struct kvpull_scheduler_ops *ops = server->engine.ops->scheduler;
	struct kvpull_request request;
	struct kvpull_finish finish = {
		.struct_size = sizeof(finish),
		.key = key,
		.group_count = server->engine.shape.group_count,
		.groups = groups,
		.group_bytes = sizeof(*groups),
		.ticket = message->ticket,
		.ticket_capacity = NODE_TICKET_BYTES_MAX,
	};
	int code;

	node_request_fill(server, message, &request);
	request.key = key;
	request.flags = KVPULL_REQUEST_WANTS_HOLD;
	request.parent_key = message->siblings > 1 ? message->key : 0;
	finish.computed_tokens = request.prompt_tokens;
	code = ops->request_new(server->engine.scheduler, &request);
	if (!code)
		code = ops->request_finished(server->engine.scheduler, &finish);
	message->ticket_bytes = (uint32_t)finish.ticket_bytes;
	return code;
}

static void prefill(struct server *server, struct node_message *message)
{
	struct engine *engine = &server->engine;
	const uint32_t groups = engine->shape.group_count;
	struct kvpull_blocks blocks[KVPULL_GROUPS_MAX];
	uint32_t *ids = node_ids_take(server, message->blocks);
	uint32_t held = 0;
	uint32_t index;

	message->key = engine->next_key;
	message->code = KVPULL_EFULL;
	if (!ids)
		return;
	for (index = 0; index < message->blocks * groups; index++)
		node_block_fill(server, index / message->blocks, ids[index],
				message->seed + index * 4096u);
	gpu_blocks_written(engine);
	node_groups_fill(server, ids, message->blocks, blocks);
	message->code = 0;
	for (index = 0; index < message->siblings; index++) {
		const uint64_t key = engine->next_key++;
		const int code = sibling_finish(server, message, key, blocks);

		if (code < 0)
			message->code = code;
		if (code != KVPULL_FINISH_HELD)
			continue;
		node_held_add(server, message, key, ids);
		held++;
	}
	if (!held) {
		engine_blocks_give(engine, ids, message->blocks * groups);
		free(ids);
	}
	if (held != 1 && !message->code)
		message->code = held ? KVPULL_EINVAL : KVPULL_EFULL;
	message->at_ns = engine_now_ns();
}

/* Finishes a sibling of a family with a ticket: no further hold is made. */
static void sibling_late(struct server *server, struct node_message *message)
{
	const uint64_t key = server->engine.next_key++;
	uint32_t ids[NODE_BLOCKS_MAX] = { 0 };
	struct kvpull_blocks blocks[KVPULL_GROUPS_MAX];

	node_groups_fill(server, ids, message->blocks, blocks);
	message->code = sibling_finish(server, message, key, blocks);
}

/* D: n requests that show one ticket. */
static void admit(struct server *server, struct node_message *message)
{
	struct engine *engine = &server->engine;
	struct kvpull_request request;
	uint32_t index;

	message->code = 0;
	node_request_fill(server, message, &request);
	request.ticket = message->ticket;
	request.ticket_bytes = message->ticket_bytes;
	request.flags = KVPULL_REQUEST_PULL;
	request.parent_key = message->siblings > 1 ? engine->next_key : 0;
	message->key = engine->next_key;
	for (index = 0; index < message->siblings; index++) {
		struct request *own;
		int code;

		request.key = engine->next_key++;
		code = engine->ops->scheduler->request_new(engine->scheduler,
							   &request);
		if (code)
			message->code = code;
		own = node_request_add(server, request.key);
		own->seed = message->seed;
		own->blocks = message->blocks;
		own->flags = message->flags;
		own->state = REQUEST_ADMITTED;
		if (message->op == NODE_PULL) {
			own->state = REQUEST_ASKING;
			server->asking_count++;
		} else {
			server->queues = 1;
		}
	}
	message->ticket_bytes = 0;
	message->at_ns = engine_now_ns();
}

/* D: the request is over for the scheduler half. */
static void finish(struct server *server, struct request *request,
		   uint32_t reason)
{
	struct kvpull_finish finish = {
		.struct_size = sizeof(finish),
		.key = request->key,
		.reason = reason,
	};

	(void)server->engine.ops->scheduler->request_finished(
		server->engine.scheduler, &finish);
}

/* Tells a request that has nothing to load, and ends it. */
static void nothing(struct server *server, struct request *request)
{
	const struct engine_event event = { .key = request->key,
					    .kind = NODE_EVENT_NOTHING };

	server->asking_count--;
	event_tell(server, request, &event, 0);
	if (request->flags & NODE_FLAG_KEEP) {
		request->state = REQUEST_KEPT;
		return;
	}
	finish(server, request, KVPULL_FINISH_LENGTH);
	node_request_remove(server, request);
}

static void load(struct server *server, struct request *request,
		 uint32_t tokens)
{
	struct kvpull_blocks groups[KVPULL_GROUPS_MAX];
	const struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.key = request->key,
		.external_tokens = tokens,
		.group_count = server->engine.shape.group_count,
		.groups = groups,
		.group_bytes = sizeof(*groups),
	};
	int code;

	request->ids = node_ids_take(server, request->blocks);
	if (!request->ids)
		return; /* asked again */
	node_groups_fill(server, request->ids, request->blocks, groups);
	code = server->engine.ops->scheduler->allocated(
		server->engine.scheduler, &allocation);
	if (code && code != KVPULL_ETRUNCATED && code != KVPULL_EFULL) {
		fprintf(stderr, "%s: allocated: error %d\n", server->params->id,
			code);
		abort();
	}
	request->state = REQUEST_LOADING;
	server->asking_count--;
}

static void ask(struct server *server)
{
	uint32_t left = server->asking_count;
	uint64_t key = server->engine.next_key;
	uint32_t back;

	for (back = 0; left && back < REQUESTS_MAX && --key; back++) {
		struct request *request = &server->requests[key % REQUESTS_MAX];
		uint32_t tokens = 0;
		int answer;

		if (request->key != key || request->state != REQUEST_ASKING)
			continue;
		left--;
		answer = server->engine.ops->scheduler->matched_tokens(
			server->engine.scheduler, key, 0, &tokens);
		if (answer == KVPULL_MATCH_NOTHING)
			nothing(server, request);
		else if (answer == KVPULL_MATCH_LOAD)
			load(server, request, tokens);
	}
}

static uint64_t wrong_bytes(struct server *server,
			    const struct request *request)
{
	const uint32_t groups = server->engine.shape.group_count;
	uint64_t wrong = 0;
	uint32_t index;

	if (request->flags & NODE_FLAG_UNCHECKED)
		return 0;
	for (index = 0; index < request->blocks * groups; index++)
		wrong += node_block_wrong(server, index / request->blocks,
					  request->ids[index],
					  request->seed + index * 4096u);
	return wrong;
}

static void event_take(struct server *server, const struct engine_event *event)
{
	struct request *request = node_request_find(server, event->key);
	uint64_t wrong = 0;

	if (!request || (event->kind == KVPULL_POLL_SENT) !=
				(request->state == REQUEST_HELD)) {
		server->lost_requests++;
		event_tell(server, NULL, event, 0);
		return;
	}
	if (event->kind == KVPULL_POLL_SENT) {
		server->sent_released += event->reason == KVPULL_END_RELEASED;
		event_tell(server, request, event, 0);
		node_request_remove(server, request);
		return;
	}
	if (event->kind == KVPULL_POLL_LOADED)
		wrong = wrong_bytes(server, request);
	event_tell(server, request, event, wrong);
	if (request->flags & NODE_FLAG_KEEP && !request->aborted) {
		request->state = REQUEST_KEPT;
		return;
	}
	if (!request->aborted)
		finish(server, request, KVPULL_FINISH_LENGTH);
	node_request_remove(server, request);
}

/* The client went away. A pull's blocks stay until it is reported. */
static void abort_request(struct server *server, struct node_message *message)
{
	struct request *request = node_request_find(server, message->key);
	struct kvpull_finish over = {
		.struct_size = sizeof(over),
		.key = message->key,
		.reason = KVPULL_FINISH_ABORT,
	};

	message->code = server->engine.ops->scheduler->request_finished(
		server->engine.scheduler, &over);
	if (!request || request->state == REQUEST_HELD || request->aborted)
		return;
	if (request->state == REQUEST_LOADING) {
		request->aborted = 1;
		return;
	}
	/* The request had no pull, so no end of a pull follows. */
	message->kind = NODE_EVENT_NOTHING;
	if (request->state == REQUEST_ASKING)
		server->asking_count--;
	node_request_remove(server, request);
}

static void start(struct server *server, struct node_message *message)
{
	struct request *request = node_request_find(server, message->key);

	message->code = KVPULL_ENOKEY;
	if (!request || request->state != REQUEST_ADMITTED)
		return;
	request->state = REQUEST_ASKING;
	server->asking_count++;
	message->code = 0;
}

static void reject(struct server *server, struct node_message *message)
{
	uint32_t index;

	message->at_ns = engine_now_ns();
	for (index = 0; index < message->siblings; index++)
		message->code = server->engine.ops->scheduler->request_rejected(
			server->engine.scheduler, message->ticket,
			message->ticket_bytes);
	message->ticket_bytes = 0;
}

static uint32_t fds_count(void)
{
	DIR *stream = opendir("/proc/self/fd");
	uint32_t count = 0;

	while (stream && readdir(stream))
		count++;
	if (stream)
		(void)closedir(stream);
	return count;
}

static uint32_t maps_count(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	uint32_t count = 0;

	while (maps && fgets(line, sizeof(line), maps))
		count += strstr(line, "memfd:") != NULL;
	if (maps)
		(void)fclose(maps);
	return count;
}

static void stats_give(struct server *server, struct node_message *message)
{
	struct engine *engine = &server->engine;
	struct node_stats stats = {
		.double_reports = engine->double_reports,
		.late_releases = server->late_releases,
		.lost_requests = server->lost_requests,
		.requests_open = server->request_count,
		.blocks_free = engine->free_count,
		.blocks_all = engine->shape.block_count,
		.fds = fds_count(),
		.maps = maps_count(),
	};
	uint32_t rank;

	stats.scheduler =
		scheduler_counts(engine->ops->scheduler, engine->scheduler);
	for (rank = 0; rank < engine->rank_count; rank++) {
		if (server->params->split) {
			ranks_stats(&server->ranks, rank, &stats.ranks[rank]);
			continue;
		}
		stats.ranks[rank] = worker_counts(engine->ops->worker,
						  engine->workers[rank]);
	}
	message->ticket_bytes = sizeof(stats);
	memcpy(message->ticket, &stats, sizeof(stats));
}

/* A child that has all our descriptors and does nothing. */
static int32_t child_leave(void)
{
	const pid_t pid = fork();

	if (pid)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, 0);
	for (;;)
		(void)pause();
}

static void freeze(const struct node_message *message)
{
	if (message->at_ns)
		scenario_sleep_ns(message->at_ns);
	else
		for (;;)
			(void)pause();
}

static void holds_revoke(struct server *server, struct node_message *message)
{
	struct engine *engine = &server->engine;
	uint32_t rank;

	message->code = 0;
	for (rank = 0; rank < engine->rank_count; rank++)
		message->code +=
			engine->ops->worker->revoke_all(engine->workers[rank]);
}

static void command(struct server *server, struct node_message *message)
{
	switch ((enum node_op)message->op) {
	case NODE_PREFILL:
		prefill(server, message);
		break;
	case NODE_SIBLING:
		sibling_late(server, message);
		break;
	case NODE_PULL:
	case NODE_ADMIT:
		admit(server, message);
		break;
	case NODE_START:
		start(server, message);
		break;
	case NODE_ABORT:
		abort_request(server, message);
		break;
	case NODE_REJECT:
		reject(server, message);
		break;
	case NODE_STATS:
		stats_give(server, message);
		break;
	case NODE_FREEZE:
		if (message->key)
			abort_request(server, message);
		freeze(message);
		break;
	case NODE_FORK:
		message->code = child_leave();
		break;
	case NODE_SPIN:
		server->spin = message->flags;
		break;
	case NODE_REVOKE:
		holds_revoke(server, message);
		break;
	case NODE_DRAIN:
		message->code = server->engine.ops->scheduler->drain(
			server->engine.scheduler, 1);
		break;
	case NODE_RANK_KILL:
		ranks_kill(&server->ranks, message->kind);
		break;
	case NODE_RANK_START:
		message->code = ranks_start(&server->ranks, message->kind);
		if (!message->code)
			message->code = engine_rank_restarted(&server->engine,
							      message->kind);
		break;
	case NODE_QUIT:
		server->stop = 1;
		return;
	case NODE_REPLY:
	case NODE_EVENT:
		abort();
	}
	message->op = NODE_REPLY;
	tell(server, message);
}

static void commands(struct server *server)
{
	struct node_message *message = &server->message;
	uint32_t taken;

	for (taken = 0; taken < 64 && !server->stop; taken++) {
		const ssize_t got = recv(server->control, message,
					 sizeof(*message), MSG_DONTWAIT);

		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (got <= 0)
			_exit(3);
		command(server, message);
	}
}

/*
 * Each release that reached a producer of one rank, from a consumer of one,
 * must have ended its hold in the same step.
 */
static void releases_watch(struct server *server)
{
	const struct engine *engine = &server->engine;
	const union kvpull_worker_counts counts =
		worker_counts(engine->ops->worker, engine->workers[0]);

	server->late_releases +=
		counts.releases > server->sent_released + counts.staged_live;
}

static int is_busy(struct server *server)
{
	const int pending = server->engine.ops->scheduler->has_pending(
		server->engine.scheduler);

	return server->spin || server->asking_count ||
	       (pending > 0 && (pending & (int)KVPULL_PENDING_STEP));
}

static void turn(struct server *server, struct pollfd *fds, uint32_t count)
{
	struct engine_event event;
	int code;

	(void)poll(fds, count,
		   is_busy(server)       ? SPIN_MS :
		   server->params->split ? SPLIT_MS :
		   server->queues        ? QUEUE_MS :
					   SLEEP_MS);
	commands(server);
	ask(server);
	code = engine_step(&server->engine);
	if (code) {
		fprintf(stderr, "%s: step: error %d\n", server->params->id,
			code);
		abort();
	}
	while (engine_event(&server->engine, &event))
		event_take(server, &event);
	if (server->engine.rank_count == 1 && !server->params->split)
		releases_watch(server);
}

static int has_gpu(const struct node_params *params)
{
	return params->gpu || params->scenario->device;
}

static int server_open(struct server *server, struct kvpull_host *host)
{
	const struct node_params *params = server->params;
	struct engine_params open = {
		.ops = params->library ? params->library() : engine_library(),
		.host = host,
		.engine_id = params->id,
		.shape = params->shape,
		.tp_size = params->tp_size,
		.pp_size = params->pp_size,
		/* The ranks' processes open the GPU where there are any. */
		.gpu = has_gpu(params) && !params->split ? gpu_open() : NULL,
		.foreign = params->foreign,
		.device = params->device,
		.weights = params->weights,
		.model = params->model,
		.dtype = params->dtype,
		.revision = params->revision,
		.layout = params->layout,
	};
	int code;

	(void)snprintf(server->config, sizeof(server->config),
		       "{\"socket_dir\":\"%s\"%s%s%s}",
		       params->socket_dir ? params->socket_dir :
					    params->scenario->folder,
		       has_gpu(params) ? ",\"device\":\"auto\"" : "",
		       params->config[0] ? "," : "", params->config);
	open.config_json = server->config;
	if (!open.ops)
		return KVPULL_ECONFIG;
	if (params->split) {
		code = ranks_open(&server->ranks, &open, server->control,
				  has_gpu(params));
		if (code)
			return code;
		open.ops = &server->ranks.ops;
	}
	return engine_open(&server->engine, &open);
}

static void serve(struct server *server)
{
	struct pollfd fds[ENGINE_RANKS_MAX + 1] = { { 0 } };
	const struct kvpull_worker_ops *ops = server->engine.ops->worker;
	uint32_t count = 1;
	uint32_t rank;

	fds[0] = (struct pollfd){ .fd = server->control, .events = POLLIN };
	for (rank = 0; !server->spin && !server->params->split &&
		       rank < server->engine.rank_count;
	     rank++)
		fds[count++] = (struct pollfd){
			.fd = ops->event_fd(server->engine.workers[rank]),
			.events = POLLIN,
		};
	while (!server->stop)
		turn(server, fds, count);
}

void node_engine_main(const struct node_params *params, int control)
{
	static struct server server;
	static struct kvpull_host host = {
		.struct_size = sizeof(host),
		.context = &server,
		.log = log_line,
		.log_level = KVPULL_LOG_DEBUG,
	};
	struct node_message ready = { .op = NODE_REPLY };

	server.params = params;
	server.control = control;
	server.spin = params->spin;
	server.log = params->log_path          ? fopen(params->log_path, "ae") :
		     params->scenario->verbose ? stderr :
						 NULL;
	server.requests = calloc(REQUESTS_MAX, sizeof(*server.requests));
	if (!server.requests)
		abort();
	/* Where it looks for the library may be out of sight after this. */
	if (params->before_open && engine_library())
		params->before_open();
	if (params->uid && setuid(params->uid))
		abort();
	/* setuid() has cleared the signal of a parent that dies. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	ready.code = server_open(&server, &host);
	tell(&server, &ready);
	if (!ready.code)
		serve(&server);
	engine_close(&server.engine);
	if (params->split)
		ranks_close(&server.ranks);
	if (server.engine.gpu)
		gpu_close();
	_exit(0);
}
