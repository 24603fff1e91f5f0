/* SPDX-License-Identifier: Apache-2.0 */
/*
 * F5, P's side: families of one or four run, finish, and lose their clients
 * before, in the step of, and after the finish, some of them twice. The engine
 * owns a request's blocks but from the answer HELD until the one report SENT;
 * any report beside that ends the case. What came back is overwritten.
 */
#include <sched.h>
#include <string.h>

#include "tests/scenario/f5.h"

#define FAMILIES_MAX 256u
#define SIBLINGS_MAX 4u
#define REQUESTS_MAX (FAMILIES_MAX * SIBLINGS_MAX)
#define LOST_PERCENT 3u /* tickets that no D ever sees */

enum state {
	STATE_FREE = 0,
	STATE_RUNNING,
	STATE_HELD /* until SENT */
};

struct family {
	uint64_t seed;
	uint64_t parent_key;
	uint32_t open; /* siblings; 0: free */
	uint32_t ticket_bytes;
	uint32_t ids[F5_BLOCKS];
	char ticket[4080];
};

struct request {
	uint64_t key;
	enum state state;
	uint32_t family;
	uint32_t disconnected;
};

struct producer {
	struct f5_side *side;
	uint32_t open; /* requests */
	struct family families[FAMILIES_MAX];
	struct request requests[REQUESTS_MAX];
};

static void disconnect_count(struct producer *producer, struct request *request)
{
	if (request->disconnected)
		return;
	request->disconnected = 1;
	atomic_fetch_add_explicit(&producer->side->counts->disconnects, 1,
				  memory_order_relaxed);
}

/* The blocks are the engine's when the last sibling is over. */
static void request_end(struct producer *producer, struct request *request)
{
	struct family *family = &producer->families[request->family];
	struct engine *engine = &producer->side->engine;
	uint32_t index;

	request->state = STATE_FREE;
	producer->open--;
	if (--family->open)
		return;
	for (index = 0; index < F5_BLOCKS; index++)
		engine_block_fill(engine, 0, family->ids[index], 0xbad);
	engine_blocks_give(engine, family->ids, F5_BLOCKS);
}

static void ticket_push(struct producer *producer, const struct family *family)
{
	struct f5_arena *arena = producer->side->arena;
	const uint64_t pushed =
		atomic_load_explicit(&arena->pushed, memory_order_relaxed);
	struct f5_ticket *ticket = &arena->tickets[pushed % F5_TICKETS];

	/* Pairs with the release in the consumer's ticket_pop(). */
	if (pushed - atomic_load_explicit(&arena->popped,
					  memory_order_acquire) ==
		    F5_TICKETS ||
	    f5_chance(producer->side, LOST_PERCENT))
		return;
	ticket->seed = family->seed;
	ticket->bytes = family->ticket_bytes;
	memcpy(ticket->text, family->ticket, family->ticket_bytes);
	/* Pairs with the acquire in the consumer's ticket_pop(). */
	atomic_store_explicit(&arena->pushed, pushed + 1, memory_order_release);
}

/* The client is gone: what the answer must be depends on the state alone. */
static void request_abort(struct producer *producer, struct request *request)
{
	struct kvpull_finish finish = { .struct_size = sizeof(finish) };
	const int answer = f5_finish(producer->side, &finish, request->key,
				     KVPULL_FINISH_ABORT);

	disconnect_count(producer, request);
	scenario_check(!finish.ticket_bytes, "P: a ticket for an aborted one");
	if (request->state == STATE_HELD) {
		scenario_check(answer == KVPULL_FINISH_HELD,
			       "P: an abort freed a held request: %d", answer);
		producer->side->counts->after++;
		return;
	}
	scenario_check(answer == KVPULL_FINISH_FREE,
		       "P: an aborted request is not free: %d", answer);
	producer->side->counts->before++;
	request_end(producer, request);
}

static void request_finish(struct producer *producer, struct request *request)
{
	struct family *family = &producer->families[request->family];
	const struct kvpull_blocks blocks = { .block_count = F5_BLOCKS,
					      .block_ids = family->ids };
	char ticket[sizeof(family->ticket)];
	struct kvpull_finish finish = {
		.struct_size = sizeof(finish),
		.computed_tokens = F5_BLOCKS * 16,
		.group_count = 1,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
		.ticket = ticket,
		.ticket_capacity = sizeof(ticket),
	};
	const int answer =
		f5_finish(producer->side, &finish, request->key,
			  f5_chance(producer->side, 50) ? KVPULL_FINISH_LENGTH :
							  KVPULL_FINISH_STOP);
	/* A client that leaves right now: its engine tells in the same step. */
	const uint32_t leaves = f5_chance(producer->side, 30);

	scenario_check(finish.ticket_bytes > 0, "P: no ticket: %d", answer);
	scenario_check(
		answer == KVPULL_FINISH_HELD ||
			(answer == KVPULL_FINISH_FREE &&
			 family->ticket_bytes == finish.ticket_bytes &&
			 !memcmp(family->ticket, ticket, finish.ticket_bytes)),
		"P: a sibling has neither hold nor its family's ticket");
	family->ticket_bytes = (uint32_t)finish.ticket_bytes;
	memcpy(family->ticket, ticket, finish.ticket_bytes);
	ticket_push(producer, family);
	if (answer == KVPULL_FINISH_FREE) {
		request_end(producer, request);
		return;
	}
	request->state = STATE_HELD;
	if (leaves) {
		producer->side->counts->around++;
		request_abort(producer, request);
	}
}

static void request_enter(struct producer *producer, uint32_t family_index,
			  struct request *request)
{
	const struct family *family = &producer->families[family_index];
	struct engine *engine = &producer->side->engine;
	struct kvpull_request params = {
		.struct_size = sizeof(params),
		.key = engine->next_key++,
		.parent_key = family->parent_key,
		.prompt_tokens = F5_BLOCKS * 16,
		.flags = KVPULL_REQUEST_WANTS_HOLD,
	};

	memcpy(params.prompt_digest, &family->seed, sizeof(family->seed));
	scenario_check(!engine->ops->scheduler->request_new(engine->scheduler,
							    &params),
		       "P: request_new");
	*request = (struct request){ .key = params.key,
				     .state = STATE_RUNNING,
				     .family = family_index };
	producer->open++;
	producer->side->counts->requests++;
}

static void family_enter(struct producer *producer)
{
	struct f5_side *side = producer->side;
	const uint32_t at =
		(uint32_t)(random_next(&side->random) % FAMILIES_MAX);
	struct family *family = &producer->families[at];
	const uint32_t siblings = f5_chance(side, 25) ? SIBLINGS_MAX : 1;
	uint32_t index;

	if (family->open ||
	    engine_blocks_take(&side->engine, family->ids, F5_BLOCKS))
		return;
	family->seed = random_next(&side->random);
	family->parent_key = siblings > 1 ? side->engine.next_key : 0;
	family->open = siblings;
	family->ticket_bytes = 0;
	for (index = 0; index < F5_BLOCKS; index++)
		engine_block_fill(&side->engine, 0, family->ids[index],
				  f5_block_seed(family->seed, index));
	for (index = 0; index < siblings; index++)
		request_enter(producer, at,
			      &producer->requests[at * SIBLINGS_MAX + index]);
}

static void request_act(struct producer *producer)
{
	struct f5_side *side = producer->side;
	struct request *request =
		&producer->requests[random_next(&side->random) % REQUESTS_MAX];

	if (request->state == STATE_RUNNING && f5_chance(side, 60))
		request_finish(producer, request);
	else if (f5_chance(side, request->state == STATE_RUNNING ? 50 :
				 request->state == STATE_HELD    ? 5 :
								   0))
		request_abort(producer, request);
}

/* Aborts a request that is over, or never was: a no-op. */
static void stray_abort(struct producer *producer)
{
	struct f5_side *side = producer->side;
	const uint64_t key =
		1 + random_next(&side->random) % (2 * side->engine.next_key);
	struct kvpull_finish finish = { .struct_size = sizeof(finish) };
	uint32_t index;

	for (index = 0; index < REQUESTS_MAX; index++)
		if (producer->requests[index].state != STATE_FREE &&
		    producer->requests[index].key == key)
			return;
	scenario_check(f5_finish(side, &finish, key, KVPULL_FINISH_ABORT) ==
			       KVPULL_FINISH_FREE,
		       "P: a request that is over is held");
}

static void report_take(struct producer *producer,
			const struct engine_event *event)
{
	struct f5_counts *counts = producer->side->counts;
	struct request *request = NULL;
	uint32_t index;

	for (index = 0; index < REQUESTS_MAX; index++)
		if (producer->requests[index].state == STATE_HELD &&
		    producer->requests[index].key == event->key)
			request = &producer->requests[index];
	scenario_check(request && event->kind == KVPULL_POLL_SENT,
		       "P: a report of request %llu, which is not held",
		       (unsigned long long)event->key);
	scenario_check(event->reason == KVPULL_END_RELEASED ||
			       event->reason == KVPULL_END_EXPIRED ||
			       event->reason == KVPULL_END_RANK ||
			       (producer->side->setup->abort_revokes &&
				request->disconnected),
		       "P: a hold ended by %d", event->reason);
	counts->released += event->reason == KVPULL_END_RELEASED;
	counts->expired += event->reason == KVPULL_END_EXPIRED;
	counts->aborted += event->reason == KVPULL_END_ABORTED;
	request_end(producer, request);
}

void f5_producer_run(struct f5_side *side)
{
	static struct producer producer;
	struct f5_arena *arena = side->arena;
	struct engine_event event;
	uint32_t index;

	producer.side = side;
	while (!atomic_load_explicit(&arena->stop, memory_order_relaxed)) {
		const uint32_t ending = atomic_load_explicit(
			&arena->ending, memory_order_relaxed);

		if (!ending && f5_chance(side, 80))
			family_enter(&producer);
		for (index = 0; index < F5_ACTS; index++)
			request_act(&producer);
		if (f5_chance(side, 5))
			stray_abort(&producer);
		if (!ending && !f5_chance(side, 70))
			continue;
		scenario_check(!engine_step(&side->engine), "P: step");
		while (engine_event(&side->engine, &event))
			report_take(&producer, &event);
		side->counts->open = producer.open;
		atomic_store_explicit(&side->counts->idle,
				      ending && !producer.open &&
					      f5_tables_are_empty(side),
				      memory_order_relaxed);
		(void)sched_yield();
	}
}
