/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The producer: prefills what consumers ask for, hands out tickets, and takes
 * a request's blocks back when every rank reported its hold ended. Blocks that
 * came back are overwritten at once, so that a pull that came too late and was
 * believed would show.
 */
#include <errno.h>
#include <poll.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/ib_pull_parts.h"

#define CLIENTS_MAX 64u
#define HELD_MAX 32768u
#define SPIN_POLLS 1024u             /* between two looks at the sockets */
#define ASK_NS UINT64_C(1000000000)  /* from its first byte to its last */
#define IDLE_NS UINT64_C(5000000000) /* then a client may make room */

struct held {
	uint64_t key; /* of the request */
	uint64_t taken_ns;
	uint32_t count;
	uint32_t ids[]; /* [count], one group after another */
};

struct client {
	int control;        /* -1: nobody */
	uint32_t ask_bytes; /* so much of the next ask is there */
	struct ib_ask ask;
	uint64_t heard_ns;   /* when that, the last ask or the client came */
	size_t ticket_bytes; /* of the message's, while it may give it back */
	struct ib_message message;
};

struct producer {
	const struct ib_options *options;
	struct engine engine;
	void *held; /* a tree by key: see tsearch(3) */
	uint32_t held_count;
	uint64_t seed;
	uint64_t ended_ns; /* a hold's end was reported last */
	uint64_t held_block_us;
	int listeners[IB_LISTENERS];
	struct client clients[CLIENTS_MAX];
};

static int held_compare(const void *left, const void *right)
{
	const struct held *one = left;
	const struct held *other = right;

	return (one->key > other->key) - (one->key < other->key);
}

/* Ended holds leave the tree: a producer serves for ever. */
static void held_end(struct producer *producer, uint64_t key)
{
	struct engine *engine = &producer->engine;
	const struct held wanted = { .key = key };
	void *const *place = tfind(&wanted, &producer->held, held_compare);
	struct held *held;
	uint32_t index;

	if (!place) {
		fprintf(stderr, "hold of an unknown request ended\n");
		abort();
	}
	held = *place;
	producer->held_block_us +=
		held->count * ((engine_now_ns() - held->taken_ns) / 1000);
	for (index = 0; index < held->count; index++)
		engine_block_fill(
			engine, index * engine->shape.group_count / held->count,
			held->ids[index], 0xdeadu);
	engine_blocks_give(engine, held->ids, held->count);
	(void)tdelete(held, &producer->held, held_compare);
	producer->held_count--;
	free(held);
}

/* 1: its blocks are held now; 0: they are not. */
static int sibling_finish(struct producer *producer, uint64_t parent,
			  const struct kvpull_blocks *blocks, struct held *held,
			  struct ib_message *message)
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
		.ticket = message->ticket,
		.ticket_capacity = IB_TICKET_BYTES_MAX,
	};
	int code;

	memcpy(request.prompt_digest, &message->answer.seed,
	       sizeof(message->answer.seed));
	code = engine->ops->scheduler->request_new(engine->scheduler, &request);
	if (!code)
		code = engine->ops->scheduler->request_finished(
			engine->scheduler, &finish);
	message->answer.ticket_bytes = (uint32_t)finish.ticket_bytes;
	if (code != KVPULL_FINISH_HELD)
		return 0;
	held->key = request.key;
	held->taken_ns = engine_now_ns();
	if (!tsearch(held, &producer->held, held_compare))
		abort();
	producer->held_count++;
	return 1;
}

/* Makes one prefill with n siblings; the first that finishes is held. */
static void prefill(struct producer *producer, struct client *client)
{
	const struct ib_ask *ask = &client->ask;
	struct ib_answer *answer = &client->message.answer;
	struct engine *engine = &producer->engine;
	const uint32_t groups = engine->shape.group_count;
	const uint64_t parent = ask->siblings > 1 ? engine->next_key++ : 0;
	struct kvpull_blocks blocks[KVPULL_GROUPS_MAX];
	struct held *held;
	uint32_t count;
	uint32_t index;
	int is_held = 0;

	if (!ask->blocks || ask->blocks > IB_BLOCKS_MAX / groups ||
	    ask->blocks > engine->shape.block_count / groups ||
	    !ask->siblings || ask->siblings > IB_SIBLINGS_MAX) {
		answer->code = KVPULL_EINVAL;
		return;
	}
	answer->code = KVPULL_EFULL;
	count = ask->blocks * groups;
	held = malloc(sizeof(*held) + count * sizeof(*held->ids));
	if (!held || producer->held_count == HELD_MAX ||
	    engine_blocks_take(engine, held->ids, count)) {
		free(held);
		return;
	}
	held->count = count;
	answer->seed = producer->seed += 1000003;
	for (index = 0; index < count; index++)
		engine_block_fill(engine, index / ask->blocks, held->ids[index],
				  answer->seed + index * 4096u);
	for (index = 0; index < groups; index++)
		blocks[index] = (struct kvpull_blocks){
			.block_count = ask->blocks,
			.block_ids = held->ids + index * ask->blocks,
		};
	for (index = 0; index < ask->siblings; index++)
		is_held |= sibling_finish(producer, parent, blocks, held,
					  &client->message);
	client->ticket_bytes = answer->ticket_bytes;
	if (is_held) {
		answer->code = 0;
		return;
	}
	engine_blocks_give(engine, held->ids, count);
	free(held);
}

static void stats_answer(const struct producer *producer,
			 struct ib_answer *answer)
{
	const struct engine *engine = &producer->engine;

	answer->holds_live = engine_count(engine, "holds_live");
	answer->holds_released = engine_count(engine, "holds_released");
	answer->holds_expired = engine_count(engine, "holds_expired");
	answer->holds_revoked = engine_count(engine, "holds_revoked");
	answer->consumers_died = engine_count(engine, "consumers_died");
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

static int ask_answer(struct producer *producer, struct client *client)
{
	struct engine *engine = &producer->engine;
	struct ib_answer *answer = &client->message.answer;

	/* Blocks that came back are overwritten now, not in the next pull. */
	if (producer_step(producer))
		return 1;
	*answer = (struct ib_answer){ .host = ib_times_host(),
				      .ended_ns = producer->ended_ns };
	if (client->ask.kind == IB_ASK_PREFILL) {
		prefill(producer, client);
	} else if (client->ask.kind == IB_ASK_GIVE) {
		/* A consumer may reach no route on which to do it. */
		answer->code = client->ticket_bytes ?
				       engine->ops->scheduler->request_rejected(
					       engine->scheduler,
					       client->message.ticket,
					       client->ticket_bytes) :
				       KVPULL_EINVAL;
		client->ticket_bytes = 0;
	} else {
		stats_answer(producer, answer);
	}
	return ib_control_send(client->control, &client->message,
			       sizeof(*answer) + answer->ticket_bytes);
}

static void client_close(struct client *client)
{
	kvpull_fd_close(&client->control);
	client->ask_bytes = 0;
	client->ticket_bytes = 0;
	client->heard_ns = 0;
}

/* Closes a client that is gone, or that began an ask and does not end it. */
static void client_serve(struct producer *producer, struct client *client,
			 short events)
{
	const uint32_t ask_bytes = client->ask_bytes;
	int got = 0;

	if (events)
		got = ib_control_ask_take(client->control, &client->ask,
					  &client->ask_bytes);
	if (got > 0 || (client->ask_bytes && !ask_bytes))
		client->heard_ns = engine_now_ns();
	if (got < 0 || (got && ask_answer(producer, client)) ||
	    (client->ask_bytes && engine_now_ns() - client->heard_ns >= ASK_NS))
		client_close(client);
}

/*
 * A place that nobody has, or of the one that asked nothing for the longest
 * time, if that is long; NULL: there is none.
 */
static struct client *place_find(struct producer *producer)
{
	struct client *place = producer->clients;
	uint32_t index;

	for (index = 1; index < CLIENTS_MAX; index++)
		if (producer->clients[index].heard_ns < place->heard_ns)
			place = &producer->clients[index];
	return place->control < 0 ||
			       engine_now_ns() - place->heard_ns >= IDLE_NS ?
		       place :
		       NULL;
}

static void client_accept(struct producer *producer, int listener)
{
	struct client *client = place_find(producer);
	const int control = client ? accept(listener, NULL, NULL) : -1;

	if (control < 0)
		return;
	client_close(client);
	ib_control_limit(control);
	client->control = control;
	client->heard_ns = engine_now_ns();
}

static int clients_serve(struct producer *producer)
{
	struct pollfd fds[CLIENTS_MAX + IB_LISTENERS + ENGINE_RANKS_MAX] = { 0 };
	struct pollfd *listeners = fds + CLIENTS_MAX;
	const int has_room = place_find(producer) != NULL;
	/* A rank's result may make commands for the others: they go at once. */
	const int is_busy =
		producer->options->spin || engine_has_step(&producer->engine);
	uint32_t index;

	for (index = 0; index < CLIENTS_MAX + IB_LISTENERS; index++)
		fds[index].events = POLLIN;
	for (index = 0; index < CLIENTS_MAX; index++)
		fds[index].fd = producer->clients[index].control;
	/* A negative one is passed over: who waits must not keep us awake. */
	for (index = 0; index < IB_LISTENERS; index++)
		listeners[index].fd =
			has_room ? producer->listeners[index] : -1;
	index += CLIENTS_MAX +
		 engine_waits(&producer->engine, listeners + IB_LISTENERS);
	if (poll(fds, index, is_busy ? 0 : ENGINE_WAIT_MS) < 0)
		return errno != EINTR;
	for (index = 0; index < CLIENTS_MAX; index++)
		client_serve(producer, &producer->clients[index],
			     fds[index].revents);
	for (index = 0; index < IB_LISTENERS; index++)
		if (listeners[index].revents)
			client_accept(producer, producer->listeners[index]);
	return 0;
}

int ib_serve(const struct ib_options *options)
{
	struct producer *producer = calloc(1, sizeof(*producer));
	uint32_t index;
	int failed;

	if (!producer)
		return 1;
	producer->options = options;
	producer->seed = options->seed;
	for (index = 0; index < CLIENTS_MAX; index++)
		producer->clients[index].control = -1;
	producer->listeners[0] = producer->listeners[1] = -1;
	failed = ib_engine_open(options, &producer->engine) ||
		 ib_control_listen(options, producer->listeners);
	if (!failed && !options->quiet)
		fprintf(stderr, "serving in %s: pull with `ib_pull %s`\n",
			options->dir, options->dir);
	while (!failed && !*options->stop)
		failed = producer_step(producer) || clients_serve(producer) ||
			 (options->spin &&
			  ib_engine_spin(&producer->engine, SPIN_POLLS));
	if (producer->engine.ops)
		engine_close(&producer->engine);
	for (index = 0; index < CLIENTS_MAX; index++)
		kvpull_fd_close(&producer->clients[index].control);
	for (index = 0; index < IB_LISTENERS; index++)
		kvpull_fd_close(&producer->listeners[index]);
	tdestroy(producer->held, free);
	free(producer);
	return failed;
}
