/* SPDX-License-Identifier: Apache-2.0 */
/* See ranks.h. One request and one reply at a time on each socket. */
#include "tests/scenario/ranks.h"
#include "tests/lib/counts.h"
#include "tests/lib/gpu_ledger.h"
#include "tests/scenario/gpu.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES_MAX 131072u
#define RECORDS_MAX 256u

enum rank_op {
	RANK_INFO = 1,
	RANK_TURN,
	RANK_RESULT,
	RANK_FILL,
	RANK_WRONG,
	RANK_STATS,
	RANK_CLOSE
};

struct rank_message {
	uint32_t op;
	int32_t code;
	uint32_t group, id;
	uint64_t seed; /* or bytes that are wrong */
	uint64_t byte_count;
	/* Poll records are copied out before use. */
	_Alignas(16) uint8_t bytes[BYTES_MAX];
};

static size_t message_bytes(const struct rank_message *message)
{
	return offsetof(struct rank_message, bytes) +
	       (size_t)message->byte_count;
}

/* ---- a rank's process ---- */

static void serve_one(struct engine *engine, uint32_t rank,
		      struct rank_message *message)
{
	static struct kvpull_poll_record records[RECORDS_MAX];
	union kvpull_worker_counts counts;
	size_t byte_count = 0;

	switch ((enum rank_op)message->op) {
	case RANK_INFO:
		message->code = engine->ops->worker->rank_info(
			engine->workers[rank], message->bytes, BYTES_MAX,
			&byte_count);
		break;
	case RANK_TURN:
		message->code = engine_rank_turn(engine, rank, message->bytes,
						 message->byte_count, records,
						 RECORDS_MAX);
		if (message->code > 0)
			byte_count = (size_t)message->code * sizeof(*records);
		memcpy(message->bytes, records, byte_count);
		break;
	case RANK_RESULT:
		message->code = engine->ops->worker->result_build(
			engine->workers[rank], message->bytes, BYTES_MAX,
			&byte_count);
		break;
	case RANK_FILL:
		engine_block_fill(engine, message->group, message->id,
				  message->seed);
		gpu_blocks_written(engine);
		break;
	case RANK_WRONG:
		message->seed = engine_block_wrong(engine, message->group,
						   message->id, message->seed);
		break;
	case RANK_STATS:
		counts = worker_counts(engine->ops->worker,
				       engine->workers[rank]);
		message->code = 0;
		byte_count = sizeof(counts);
		memcpy(message->bytes, &counts, sizeof(counts));
		break;
	case RANK_CLOSE:
		break;
	}
	message->byte_count = byte_count;
}

static void rank_main(const struct ranks *ranks, uint32_t rank, int socket)
{
	static struct rank_message message;
	static struct engine engine;
	struct engine_params params = ranks->params;

	params.only_rank = rank + 1;
	params.gpu = ranks->has_gpu ? gpu_open() : NULL;
	message.code = engine_open(&engine, &params);
	/* The word that it serves, or not. */
	while (send(socket, &message, message_bytes(&message), MSG_NOSIGNAL) >
		       0 &&
	       message.op != RANK_CLOSE && message.code >= 0) {
		if (recv(socket, &message, sizeof(message), 0) <= 0)
			break;
		serve_one(&engine, rank, &message);
	}
	engine_close(&engine);
	if (params.gpu)
		gpu_close();
	_exit(0);
}

/* ---- the scheduler's process ---- */

/* 0; -1: the rank is dead. */
static int call(struct ranks *ranks, uint32_t rank,
		struct rank_message *message)
{
	const int socket = ranks->sockets[rank];

	if (socket < 0 ||
	    send(socket, message, message_bytes(message), MSG_NOSIGNAL) < 0 ||
	    recv(socket, message, sizeof(*message), 0) <= 0)
		return -1;
	return 0;
}

/* ---- the workers of its engine: each stands for a rank's process ---- */

static struct ranks *carried;

static uint32_t ranks_of(const struct engine_params *params)
{
	return params->tp_size * (params->pp_size ? params->pp_size : 1);
}

static uint32_t rank_of(struct kvpull_worker *worker)
{
	return (uint32_t)((int *)(void *)worker - carried->sockets);
}

static int carry_open(const struct kvpull_open_params *params,
		      struct kvpull_worker **worker,
		      struct kvpull_error_detail *detail)
{
	(void)detail;
	*worker = (void *)&carried->sockets[params->pp_rank * params->tp_size +
					    params->tp_rank];
	return 0;
}

/* ranks_close() ends the process. */
static void carry_close(struct kvpull_worker *worker)
{
	(void)worker;
}

/* The process has its memory already. */
static int carry_memory(struct kvpull_worker *worker, uint64_t bytes,
			uint32_t flags, struct kvpull_memory *memory)
{
	(void)worker;
	(void)bytes;
	(void)flags;
	(void)memory;
	return 0;
}

static int carry_regions(struct kvpull_worker *worker,
			 const struct kvpull_regions *regions,
			 struct kvpull_error_detail *detail)
{
	(void)worker;
	(void)regions;
	(void)detail;
	return 0;
}

static int carry_info(struct kvpull_worker *worker, void *bytes,
		      size_t capacity, size_t *byte_count)
{
	static struct rank_message message;

	message = (struct rank_message){ .op = RANK_INFO };
	if (call(carried, rank_of(worker), &message) ||
	    message.byte_count > capacity)
		return KVPULL_EPEER;
	memcpy(bytes, message.bytes, message.byte_count);
	*byte_count = message.byte_count;
	return message.code;
}

/* A step and the poll behind it are one message, RANK_TURN. */
static struct rank_message turn = { .op = RANK_TURN };

static int carry_step(struct kvpull_worker *worker, const void *bytes,
		      size_t byte_count)
{
	(void)worker;
	if (byte_count > BYTES_MAX)
		abort();
	turn.byte_count = byte_count;
	memcpy(turn.bytes, bytes, byte_count);
	return 0;
}

static int carry_loads(struct kvpull_worker *worker, void *stream)
{
	(void)worker;
	(void)stream;
	return 0;
}

static int carry_poll(struct kvpull_worker *worker,
		      struct kvpull_poll_record *records, uint32_t capacity,
		      size_t record_bytes)
{
	const int is_dead = call(carried, rank_of(worker), &turn);
	const uint64_t byte_count = is_dead ? 0 : turn.byte_count;

	turn.byte_count = 0;
	if (byte_count > capacity * record_bytes)
		abort();
	memcpy(records, turn.bytes, byte_count);
	return is_dead ? 0 : turn.code;
}

static int carry_result(struct kvpull_worker *worker, void *bytes,
			size_t capacity, size_t *byte_count)
{
	static struct rank_message message;

	message.op = RANK_RESULT;
	message.byte_count = 0;
	*byte_count = 0;
	if (call(carried, rank_of(worker), &message))
		return 0;
	if (message.byte_count > capacity)
		abort();
	memcpy(bytes, message.bytes, message.byte_count);
	*byte_count = message.byte_count;
	return message.code;
}

static const struct kvpull_worker_ops carry_ops = {
	.struct_size = sizeof(carry_ops),
	.open = carry_open,
	.close = carry_close,
	.memory_alloc = carry_memory,
	.regions_register = carry_regions,
	.rank_info = carry_info,
	.step = carry_step,
	.start_loads = carry_loads,
	.poll = carry_poll,
	.result_build = carry_result,
};

/* ---- its other words with the ranks ---- */

/* The sum of the answers of all that live. */
static uint64_t blocks_call(struct ranks *ranks, enum rank_op op,
			    uint32_t group, uint32_t id, uint64_t seed)
{
	static struct rank_message message;
	uint64_t sum = 0;
	uint32_t rank;

	for (rank = 0; rank < ranks_of(&ranks->params); rank++) {
		message.op = op;
		message.group = group;
		message.id = id;
		message.seed = seed;
		message.byte_count = 0;
		sum += call(ranks, rank, &message) ? 0 : message.seed;
	}
	return sum;
}

void ranks_fill(struct ranks *ranks, uint32_t group, uint32_t id, uint64_t seed)
{
	(void)blocks_call(ranks, RANK_FILL, group, id, seed);
}

uint64_t ranks_wrong(struct ranks *ranks, uint32_t group, uint32_t id,
		     uint64_t seed)
{
	return blocks_call(ranks, RANK_WRONG, group, id, seed);
}

void ranks_stats(struct ranks *ranks, uint32_t rank,
		 union kvpull_worker_counts *counts)
{
	static struct rank_message message;

	message.op = RANK_STATS;
	message.byte_count = 0;
	memset(counts, 0, sizeof(*counts));
	if (!call(ranks, rank, &message))
		memcpy(counts, message.bytes, sizeof(*counts));
}

int ranks_start(struct ranks *ranks, uint32_t rank)
{
	static struct rank_message message;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return KVPULL_EDEVICE;
	ranks->pids[rank] = fork();
	if (!ranks->pids[rank]) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(ranks->inherited);
		(void)close(pair[0]);
		rank_main(ranks, rank, pair[1]);
	}
	(void)close(pair[1]);
	ranks->sockets[rank] = pair[0];
	if (recv(pair[0], &message, sizeof(message), 0) <= 0)
		return KVPULL_EDEVICE;
	return message.code;
}

void ranks_kill(struct ranks *ranks, uint32_t rank)
{
	(void)kill(ranks->pids[rank], SIGKILL);
	(void)waitpid(ranks->pids[rank], NULL, 0);
	gpu_ledger_kill(ranks->pids[rank]);
	(void)close(ranks->sockets[rank]);
	ranks->sockets[rank] = -1;
}

int ranks_open(struct ranks *ranks, const struct engine_params *params,
	       int inherited, int has_gpu)
{
	int code = 0;
	uint32_t rank;

	*ranks = (struct ranks){
		.params = *params,
		.ops = *params->ops,
		.inherited = inherited,
		.has_gpu = has_gpu,
	};
	ranks->ops.worker = &carry_ops;
	carried = ranks;
	for (rank = 0; !code && rank < ranks_of(params); rank++)
		code = ranks_start(ranks, rank);
	return code;
}

void ranks_close(struct ranks *ranks)
{
	static struct rank_message message;
	uint32_t rank;

	for (rank = 0; rank < ranks_of(&ranks->params); rank++) {
		message.op = RANK_CLOSE;
		message.byte_count = 0;
		if (call(ranks, rank, &message))
			continue;
		(void)waitpid(ranks->pids[rank], NULL, 0);
		(void)close(ranks->sockets[rank]);
	}
}
