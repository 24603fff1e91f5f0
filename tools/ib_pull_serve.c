/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The producer: prefills what consumers ask for, hands out tickets, and takes
 * a request's blocks back when every rank reported its hold ended. Blocks that
 * came back are overwritten at once, so that a pull that came too late and was
 * believed would show.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/index.h"
#include "base/map.h"
#include "tools/ib_pull_parts.h"

#define CLIENTS_MAX 64u
#define HELD_MAX 32768u
#define SPIN_POLLS 1024u             /* between two looks at the sockets */
#define ASK_NS UINT64_C(1000000000)  /* from its first byte to its last */
#define IDLE_NS UINT64_C(5000000000) /* then a client may make room */

struct held {
	uint32_t *ids; /* [count] */
	uint32_t count;
	uint32_t reserved;
	uint64_t taken_ns;
};

struct client {
	int control;
	uint32_t ask_bytes; /* so much of the next ask is there */
	struct ib_ask ask;
	uint64_t heard_ns; /* when that, the last ask or the client came */
	char *ticket;      /* the last one, which it may give back */
	size_t ticket_bytes;
};

struct producer {
	const struct ib_options *options;
	struct engine engine;
	struct held *held; /* [HELD_MAX] */
	struct kvpull_index_pool held_free;
	struct kvpull_map held_of; /* a request's key: its place in held */
	struct kvpull_arena arena; /* of these three */
	uint64_t seed;
	uint64_t ended_ns; /* a hold's end was reported last */
	uint64_t held_block_us;
	int listener;
	int port_listener;
	struct client clients[CLIENTS_MAX];
	uint32_t client_count;
	char *ticket;
	uint8_t *message;
};

static int control_open(struct producer *producer)
{
	producer->listener = ib_control_listen(producer->options);
	if (producer->listener < 0)
		return 1;
	if (!producer->options->port)
		return 0;
	producer->port_listener = ib_control_listen_port(producer->options);
	return producer->port_listener < 0;
}

static int held_open(struct producer *producer)
{
	struct kvpull_arena *arena = &producer->arena;

	kvpull_arena_init(arena, NULL);
	kvpull_map_init(&producer->held_of, HELD_MAX, arena);
	kvpull_index_pool_init(&producer->held_free, HELD_MAX, arena);
	producer->held = kvpull_arena_take_table(arena, HELD_MAX,
						 sizeof(*producer->held));
	return !kvpull_arena_ok(arena);
}

static void held_close(struct producer *producer)
{
	uint32_t index;

	for (index = 0; producer->held && index < HELD_MAX; index++)
		free(producer->held[index].ids);
	kvpull_arena_fini(&producer->arena);
}

/* There is room: prefill() looked. */
static void held_begin(struct producer *producer, uint64_t key,
		       const uint32_t *ids, uint32_t count)
{
	const uint32_t index = kvpull_index_pool_take(&producer->held_free);
	struct held *held = &producer->held[index];

	held->count = count;
	held->taken_ns = engine_now_ns();
	held->ids = malloc(count * sizeof(*ids));
	if (!held->ids || kvpull_map_set(&producer->held_of, key, index))
		abort();
	memcpy(held->ids, ids, count * sizeof(*ids));
}

/* Ended holds leave the table: a producer serves for ever. */
static void held_end(struct producer *producer, uint64_t key)
{
	const uint32_t place = kvpull_map_get(&producer->held_of, key);
	const uint32_t groups = producer->engine.shape.group_count;
	struct held *held;
	uint32_t index;

	if (place == KVPULL_NONE) {
		fprintf(stderr, "hold of an unknown request ended\n");
		abort();
	}
	held = &producer->held[place];
	producer->held_block_us +=
		held->count * ((engine_now_ns() - held->taken_ns) / 1000);
	for (index = 0; index < held->count; index++)
		engine_block_fill(&producer->engine,
				  index / (held->count / groups),
				  held->ids[index], 0xdeadu);
	engine_blocks_give(&producer->engine, held->ids, held->count);
	free(held->ids);
	held->ids = NULL;
	kvpull_map_remove(&producer->held_of, key);
	kvpull_index_pool_give(&producer->held_free, place);
}

static int sibling_finish(struct producer *producer, uint64_t parent,
			  const struct kvpull_blocks *blocks,
			  struct ib_answer *answer)
{
	struct engine *engine = &producer->engine;
	const uint32_t tokens =
		blocks[0].block_count * engine->shape.block_tokens;
	struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = engine->next_key++,
		.parent_key = parent,
		.prompt_tokens = tokens,
		.flags = KVPULL_REQUEST_WANTS_HOLD,
	};
	struct kvpull_finish finish = {
		.struct_size = sizeof(finish),
		.key = request.key,
		.computed_tokens = tokens,
		.group_count = engine->shape.group_count,
		.groups = blocks,
		.group_bytes = sizeof(*blocks),
		.ticket = producer->ticket,
		.ticket_capacity = IB_TICKET_BYTES_MAX,
	};
	int code;

	memcpy(request.prompt_digest, &answer->seed, sizeof(answer->seed));
	code = engine->ops->scheduler->request_new(engine->scheduler, &request);
	if (!code)
		code = engine->ops->scheduler->request_finished(
			engine->scheduler, &finish);
	answer->ticket_bytes = (uint32_t)finish.ticket_bytes;
	if (code == KVPULL_FINISH_HELD)
		held_begin(producer, request.key, blocks[0].block_ids,
			   blocks[0].block_count * engine->shape.group_count);
	return code;
}

/* Makes one prefill with n siblings; the first that finishes is held. */
static void prefill(struct producer *producer, const struct ib_ask *ask,
		    struct ib_answer *answer)
{
	struct engine *engine = &producer->engine;
	const uint32_t groups = engine->shape.group_count;
	static uint32_t ids[IB_BLOCKS_MAX];
	struct kvpull_blocks blocks[KVPULL_GROUPS_MAX];
	const uint64_t parent = ask->siblings > 1 ? engine->next_key++ : 0;
	uint32_t holds = 0;
	uint32_t index;

	if (!ask->blocks || ask->blocks > IB_BLOCKS_MAX / groups ||
	    ask->blocks > engine->shape.block_count / groups ||
	    !ask->siblings || ask->siblings > IB_SIBLINGS_MAX) {
		answer->code = KVPULL_EINVAL;
		return;
	}
	if (kvpull_index_pool_peek(&producer->held_free) == KVPULL_NONE ||
	    engine_blocks_take(&producer->engine, ids, ask->blocks * groups)) {
		answer->code = KVPULL_EFULL;
		return;
	}
	answer->seed = producer->seed += 1000003;
	for (index = 0; index < ask->blocks * groups; index++)
		engine_block_fill(engine, index / ask->blocks, ids[index],
				  answer->seed + index * 4096u);
	for (index = 0; index < groups; index++)
		blocks[index] = (struct kvpull_blocks){
			.block_count = ask->blocks,
			.block_ids = ids + index * ask->blocks,
		};
	for (index = 0; index < ask->siblings; index++)
		holds += sibling_finish(producer, parent, blocks, answer) ==
			 KVPULL_FINISH_HELD;
	if (!holds)
		engine_blocks_give(engine, ids, ask->blocks * groups);
	answer->code = holds == 1 ? 0 : KVPULL_EFULL;
}

static uint64_t count_all(const struct engine *engine, const char *name)
{
	uint64_t count = 0;
	uint32_t rank;

	for (rank = 0; rank < engine->rank_count; rank++)
		count += engine_count(engine, rank, name);
	return count;
}

static void stats_answer(struct producer *producer, struct ib_answer *answer)
{
	const struct engine *engine = &producer->engine;

	answer->holds_live += count_all(engine, "holds_live");
	answer->holds_released += count_all(engine, "holds_released");
	answer->holds_expired += count_all(engine, "holds_expired");
	answer->holds_revoked += count_all(engine, "holds_revoked");
	answer->consumers_died += count_all(engine, "consumers_died");
	answer->blocks_free = engine->free_count;
	answer->blocks_all = engine->shape.block_count;
	answer->block_bytes = engine->shape.block_bytes;
	answer->layer_count = engine->shape.layer_count;
	answer->group_count = engine->shape.group_count;
	answer->double_reports = engine->double_reports;
	answer->held_block_us = producer->held_block_us;
}

static int producer_step(struct producer *producer)
{
	struct engine_event event;
	const int code = engine_step(&producer->engine);

	while (engine_event(&producer->engine, &event)) {
		if (event.kind != KVPULL_POLL_SENT)
			continue;
		producer->ended_ns = engine_now_ns();
		held_end(producer, event.key);
	}
	if (code)
		fprintf(stderr, "producer: %s\n",
			producer->engine.ops->error_text(code));
	return code;
}

static void ticket_keep(const struct producer *producer, struct client *client,
			const struct ib_answer *answer)
{
	free(client->ticket);
	client->ticket = malloc(answer->ticket_bytes + 1);
	client->ticket_bytes = client->ticket ? answer->ticket_bytes : 0;
	if (client->ticket)
		memcpy(client->ticket, producer->ticket, client->ticket_bytes);
}

/* A consumer may reach no route on which to give its ticket back. */
static int ticket_give(struct producer *producer, struct client *client)
{
	const struct engine *engine = &producer->engine;
	const size_t ticket_bytes = client->ticket_bytes;

	client->ticket_bytes = 0;
	if (!ticket_bytes)
		return KVPULL_EINVAL;
	return engine->ops->scheduler->request_rejected(
		engine->scheduler, client->ticket, ticket_bytes);
}

static int ask_answer(struct producer *producer, struct client *client)
{
	struct ib_answer answer = { 0 };

	/* Blocks that came back are overwritten now, not in the next pull. */
	if (producer_step(producer))
		return 1;
	if (client->ask.kind == IB_ASK_PREFILL)
		prefill(producer, &client->ask, &answer);
	else if (client->ask.kind == IB_ASK_GIVE)
		answer.code = ticket_give(producer, client);
	else
		stats_answer(producer, &answer);
	if (answer.ticket_bytes)
		ticket_keep(producer, client, &answer);
	answer.host = ib_times_host();
	answer.ended_ns = producer->ended_ns;
	memcpy(producer->message, &answer, sizeof(answer));
	memcpy(producer->message + sizeof(answer), producer->ticket,
	       answer.ticket_bytes);
	return ib_control_send(client->control, producer->message,
			       sizeof(answer) + answer.ticket_bytes);
}

/* Return: 1 if the client is gone. */
static int client_serve(struct producer *producer, struct client *client)
{
	const uint32_t ask_bytes = client->ask_bytes;
	const int got = ib_control_ask_take(client->control, &client->ask,
					    &client->ask_bytes);

	if (got < 0)
		return 1;
	if (got || (client->ask_bytes && !ask_bytes))
		client->heard_ns = engine_now_ns();
	return got ? ask_answer(producer, client) : 0;
}

static void client_close(struct producer *producer, struct client *client)
{
	(void)close(client->control);
	free(client->ticket);
	*client = producer->clients[--producer->client_count];
}

/* The one that asked nothing for the longest time, if that is long. */
static struct client *client_idle(struct producer *producer)
{
	struct client *idle = producer->clients;
	uint32_t index;

	for (index = 1; index < producer->client_count; index++)
		if (producer->clients[index].heard_ns < idle->heard_ns)
			idle = &producer->clients[index];
	return engine_now_ns() - idle->heard_ns >= IDLE_NS ? idle : NULL;
}

static int has_room(struct producer *producer)
{
	return producer->client_count < CLIENTS_MAX || client_idle(producer);
}

static void client_accept(struct producer *producer, int listener)
{
	const int is_full = producer->client_count == CLIENTS_MAX;
	struct client *idle = is_full ? client_idle(producer) : NULL;
	struct client client = { .heard_ns = engine_now_ns() };

	if (is_full && !idle)
		return;
	client.control = accept(listener, NULL, NULL);
	if (client.control < 0)
		return;
	ib_control_limit(client.control);
	if (idle)
		client_close(producer, idle);
	producer->clients[producer->client_count++] = client;
}

static void clients_look(struct producer *producer, const struct pollfd *fds)
{
	uint32_t index;

	for (index = producer->client_count; index > 0; index--) {
		struct client *client = &producer->clients[index - 1];
		int gone = 0;

		if (fds[index - 1].revents)
			gone = client_serve(producer, client);
		if (gone || (client->ask_bytes &&
			     engine_now_ns() - client->heard_ns >= ASK_NS))
			client_close(producer, client);
	}
}

static int clients_serve(struct producer *producer, int timeout_ms)
{
	struct pollfd fds[CLIENTS_MAX + 2 + ENGINE_RANKS_MAX] = { 0 };
	const uint32_t listener = producer->client_count;
	const int is_open = has_room(producer);
	uint32_t index;

	for (index = 0; index < producer->client_count; index++)
		fds[index] =
			(struct pollfd){ .fd = producer->clients[index].control,
					 .events = POLLIN };
	/* A negative one is passed over: who waits must not keep us awake. */
	fds[index++] = (struct pollfd){ .fd = is_open ? producer->listener : -1,
					.events = POLLIN };
	fds[index++] =
		(struct pollfd){ .fd = is_open ? producer->port_listener : -1,
				 .events = POLLIN };
	index += engine_waits(&producer->engine, fds + index);
	if (poll(fds, index, timeout_ms) < 0)
		return errno != EINTR;
	clients_look(producer, fds);
	if (fds[listener].revents)
		client_accept(producer, producer->listener);
	if (fds[listener + 1].revents)
		client_accept(producer, producer->port_listener);
	return 0;
}

/* A rank's result may make commands for the others: they go at once. */
static int sleep_ms(const struct producer *producer)
{
	return producer->options->spin || engine_has_step(&producer->engine) ?
		       0 :
		       ENGINE_WAIT_MS;
}

/* Until something ended, or the sockets are to be looked at again. */
static int spin(struct producer *producer)
{
	struct engine *engine = &producer->engine;
	uint32_t left;
	int code = 0;

	for (left = SPIN_POLLS; !code && left && !engine->event_count; left--)
		code = engine_poll(engine);
	return code;
}

int ib_serve(const struct ib_options *options)
{
	struct producer *producer = calloc(1, sizeof(*producer));
	int failed = 0;

	if (!producer)
		return 1;
	producer->options = options;
	producer->seed = options->seed;
	producer->ticket = malloc(IB_TICKET_BYTES_MAX);
	producer->message =
		malloc(IB_TICKET_BYTES_MAX + sizeof(struct ib_answer));
	producer->listener = producer->port_listener = -1;
	failed = held_open(producer) || !producer->ticket ||
		 !producer->message ||
		 ib_engine_open(options, &producer->engine) ||
		 control_open(producer);
	if (!failed && !options->quiet)
		fprintf(stderr, "serving in %s: pull with `ib_pull %s`\n",
			options->dir, options->dir);
	while (!failed && !*options->stop)
		failed = producer_step(producer) ||
			 clients_serve(producer, sleep_ms(producer)) ||
			 (options->spin && spin(producer));
	if (producer->engine.ops)
		engine_close(&producer->engine);
	while (producer->client_count)
		client_close(producer, producer->clients);
	kvpull_fd_close(&producer->listener);
	kvpull_fd_close(&producer->port_listener);
	held_close(producer);
	free(producer->ticket);
	free(producer->message);
	free(producer);
	return failed;
}
