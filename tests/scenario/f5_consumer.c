/* SPDX-License-Identifier: Apache-2.0 */
/*
 * F5, D's side: requests show P's tickets and lose their clients before
 * admission, before and after their blocks are taken, while the pull runs and
 * after it. Local blocks belong to a request until its one report; a report of
 * any other request ends the case, and so does a wrong byte in a load.
 */
#include <sched.h>
#include <string.h>

#include "tests/scenario/f5.h"

#define USERS_MAX 512u

enum state {
	STATE_FREE = 0,
	STATE_ASKING,  /* matched_tokens() */
	STATE_LOADING, /* until LOADED or FAILED */
	STATE_LEFT,    /* the same, its client is gone */
	STATE_LOADED   /* decoding */
};

struct user {
	uint64_t key;
	uint64_t seed;
	enum state state;
	uint32_t ids[F5_BLOCKS];
};

struct consumer {
	struct f5_side *side;
	uint32_t open;
	struct f5_ticket ticket;
	struct user users[USERS_MAX];
};

static int ticket_pop(struct consumer *consumer)
{
	struct f5_arena *arena = consumer->side->arena;
	const uint64_t popped =
		atomic_load_explicit(&arena->popped, memory_order_relaxed);

	/* Pairs with the release in the producer's ticket_push(). */
	if (atomic_load_explicit(&arena->pushed, memory_order_acquire) ==
	    popped)
		return 0;
	memcpy(&consumer->ticket, &arena->tickets[popped % F5_TICKETS],
	       sizeof(consumer->ticket));
	atomic_store_explicit(&consumer->side->counts->idle, 0,
			      memory_order_relaxed);
	/* Pairs with the acquires in the producer's ticket_push(), is_over(). */
	atomic_store_explicit(&arena->popped, popped + 1, memory_order_release);
	return 1;
}

static void disconnect_count(struct consumer *consumer)
{
	atomic_fetch_add_explicit(&consumer->side->counts->disconnects, 1,
				  memory_order_relaxed);
}

static void finish(struct consumer *consumer, const struct user *user,
		   uint32_t reason)
{
	struct kvpull_finish over = { .struct_size = sizeof(over) };

	scenario_check(f5_finish(consumer->side, &over, user->key, reason) ==
			       KVPULL_FINISH_FREE,
		       "D: a consumer's request is held");
}

static void user_end(struct consumer *consumer, struct user *user,
		     uint32_t has_blocks)
{
	if (has_blocks)
		engine_blocks_give(&consumer->side->engine, user->ids,
				   F5_BLOCKS);
	user->state = STATE_FREE;
	consumer->open--;
}

/* The router sends a client's request; or D refuses it before admission. */
static void request_take(struct consumer *consumer, struct user *user)
{
	struct f5_side *side = consumer->side;
	struct engine *engine = &side->engine;
	const struct f5_ticket *ticket = &consumer->ticket;
	struct kvpull_request request = {
		.struct_size = sizeof(request),
		.ticket = ticket->text,
		.ticket_bytes = ticket->bytes,
		.prompt_tokens = F5_BLOCKS * 16,
		.flags = KVPULL_REQUEST_PULL,
	};

	side->counts->requests++;
	memcpy(request.prompt_digest, &ticket->seed, sizeof(ticket->seed));
	if (f5_chance(side, 10)) {
		side->counts->rejected++;
		scenario_check(
			!engine->ops->scheduler->request_rejected(
				engine->scheduler, ticket->text, ticket->bytes),
			"D: request_rejected");
		disconnect_count(consumer);
		return;
	}
	request.key = engine->next_key++;
	scenario_check(!engine->ops->scheduler->request_new(engine->scheduler,
							    &request),
		       "D: request_new");
	*user = (struct user){ .key = request.key,
			       .seed = ticket->seed,
			       .state = STATE_ASKING };
	consumer->open++;
}

static void leave(struct consumer *consumer, struct user *user)
{
	struct f5_counts *counts = consumer->side->counts;

	finish(consumer, user, KVPULL_FINISH_ABORT);
	disconnect_count(consumer);
	/* A disconnect may come twice. */
	if (f5_chance(consumer->side, 10))
		finish(consumer, user, KVPULL_FINISH_ABORT);
	counts->before += user->state == STATE_ASKING;
	counts->around += user->state == STATE_LOADING;
	counts->after += user->state == STATE_LOADED;
	if (user->state == STATE_LOADING)
		user->state = STATE_LEFT;
	else
		user_end(consumer, user, user->state == STATE_LOADED);
}

/* Blocks are taken for it; none where D has all of the prompt by itself. */
static void load(struct consumer *consumer, struct user *user, uint32_t tokens)
{
	struct engine *engine = &consumer->side->engine;
	const uint32_t is_hit = f5_chance(consumer->side, 10);
	const struct kvpull_blocks blocks = { .block_count = F5_BLOCKS,
					      .block_ids = user->ids };
	const struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.key = user->key,
		.external_tokens = is_hit ? 0 : tokens,
		.group_count = 1,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
	};

	scenario_check(!engine_blocks_take(engine, user->ids, F5_BLOCKS),
		       "D: the pool is empty");
	scenario_check(!engine->ops->scheduler->allocated(engine->scheduler,
							  &allocation),
		       "D: allocated");
	user->state = is_hit ? STATE_LOADED : STATE_LOADING;
	/* The client leaves in the same step, before the pull has begun. */
	if (f5_chance(consumer->side, 15))
		leave(consumer, user);
}

static void ask(struct consumer *consumer, struct user *user)
{
	struct f5_side *side = consumer->side;
	uint32_t tokens = 0;
	const int answer = side->engine.ops->scheduler->matched_tokens(
		side->engine.scheduler, user->key, 0, &tokens);

	/* The client may leave between the answer and the blocks. */
	if (answer == KVPULL_MATCH_LOAD && f5_chance(side, 80)) {
		load(consumer, user, tokens);
	} else if (answer == KVPULL_MATCH_NOTHING) {
		side->counts->nothing++;
		finish(consumer, user, KVPULL_FINISH_STOP);
		user_end(consumer, user, 0);
	}
}

static void user_act(struct consumer *consumer)
{
	struct f5_side *side = consumer->side;
	struct user *user =
		&consumer->users[random_next(&side->random) % USERS_MAX];

	if (user->state == STATE_FREE) {
		if (ticket_pop(consumer))
			request_take(consumer, user);
	} else if (user->state == STATE_LEFT) {
		return;
	} else if (f5_chance(side, 20)) {
		leave(consumer, user);
	} else if (user->state == STATE_ASKING) {
		ask(consumer, user);
	} else if (user->state == STATE_LOADED && f5_chance(side, 50)) {
		finish(consumer, user, KVPULL_FINISH_STOP);
		user_end(consumer, user, 1);
	}
}

static void bytes_check(struct consumer *consumer, const struct user *user)
{
	uint32_t index;

	for (index = 0; index < F5_BLOCKS; index++)
		scenario_check(
			!engine_block_wrong(&consumer->side->engine, 0,
					    user->ids[index],
					    f5_block_seed(user->seed, index)),
			"D: wrong bytes were believed");
}

static void report_take(struct consumer *consumer,
			const struct engine_event *event)
{
	struct f5_counts *counts = consumer->side->counts;
	struct user *user = NULL;
	uint32_t index;

	for (index = 0; index < USERS_MAX; index++)
		if ((consumer->users[index].state == STATE_LOADING ||
		     consumer->users[index].state == STATE_LEFT) &&
		    consumer->users[index].key == event->key)
			user = &consumer->users[index];
	scenario_check(user && event->kind != KVPULL_POLL_SENT,
		       "D: a report of request %llu, which does not load",
		       (unsigned long long)event->key);
	counts->loaded += event->kind == KVPULL_POLL_LOADED;
	counts->failed += event->kind == KVPULL_POLL_FAILED;
	if (event->kind == KVPULL_POLL_LOADED)
		bytes_check(consumer, user);
	else
		scenario_check(event->reason == KVPULL_EEXPIRED ||
				       event->reason == KVPULL_EABORTED,
			       "D: a pull failed: error %d", event->reason);
	if (user->state == STATE_LEFT) {
		user_end(consumer, user, 1);
	} else if (event->kind == KVPULL_POLL_LOADED) {
		user->state = STATE_LOADED;
	} else {
		finish(consumer, user, KVPULL_FINISH_ERROR);
		user_end(consumer, user, 1);
	}
}

void f5_consumer_run(struct f5_side *side)
{
	static struct consumer consumer;
	struct f5_arena *arena = side->arena;
	struct engine_event event;
	uint32_t index;

	consumer.side = side;
	while (!atomic_load_explicit(&arena->stop, memory_order_relaxed)) {
		const uint32_t ending = atomic_load_explicit(
			&arena->ending, memory_order_relaxed);

		for (index = 0; index < F5_ACTS; index++)
			user_act(&consumer);
		if (!ending && !f5_chance(side, 70))
			continue;
		scenario_check(!engine_step(&side->engine), "D: step");
		while (engine_event(&side->engine, &event))
			report_take(&consumer, &event);
		side->counts->open = consumer.open;
		atomic_store_explicit(&side->counts->idle,
				      ending && !consumer.open &&
					      f5_tables_are_empty(side),
				      memory_order_relaxed);
		(void)sched_yield();
	}
}
