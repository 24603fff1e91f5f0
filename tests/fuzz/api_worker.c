/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of a worker, and the bytes between the halves: given at once, or late,
 * twice, cut, in another order, or to the wrong half.
 */
#include "tests/fuzz/api.h"

#include <stdlib.h>
#include <string.h>

#define RESULT_BYTES 2048u

static const struct kvpull_worker_ops *ops_of(void)
{
	return api_world->ops->worker;
}

static struct api_rank *rank_any(struct api_engine *engine, uint32_t *rank)
{
	*rank = (uint32_t)api_below(engine->tp_size);
	return &engine->ranks[*rank];
}

/* ---- steps ---- */

static void message_free(struct api_message *message)
{
	free(message->bytes);
	memset(message, 0, sizeof(*message));
}

static void message_keep(struct api_message *messages,
			 struct api_message message)
{
	struct api_message *to = &messages[api_below(API_MESSAGES_MAX)];

	message_free(to);
	message.bytes = api_copy(message.bytes, message.byte_count);
	*to = message;
}

void api_messages_drop(void)
{
	uint32_t at;

	for (at = 0; at < API_MESSAGES_MAX; at++) {
		message_free(&api_world->steps[at]);
		message_free(&api_world->results[at]);
	}
}

static struct api_message step_build(struct api_engine *engine)
{
	const struct kvpull_scheduler_ops *ops = api_world->ops->scheduler;
	struct api_message message = { .engine = engine->index,
				       .half = engine->life };
	size_t capacity = api_chance(970) ? API_STEP_BYTES : api_below(600);
	uint8_t *bytes = malloc(capacity ? capacity : 1);
	size_t byte_count = SIZE_MAX;
	int code;

	api_expect(bytes != NULL);
	code = ops->step_build(engine->scheduler, bytes, capacity, &byte_count);
	if (code == KVPULL_ETOOSMALL) {
		api_expect(byte_count > capacity);
		free(bytes);
		capacity = byte_count;
		bytes = malloc(capacity);
		api_expect(bytes != NULL);
		code = ops->step_build(engine->scheduler, bytes, capacity,
				       &byte_count);
	}
	api_expect(code == 0 && byte_count <= capacity);
	message.bytes = bytes;
	message.byte_count = byte_count;
	return message;
}

/* To a rank of any engine. What is right follows from whom it follows. */
static void step_give(struct api_engine *engine, uint32_t rank,
		      const struct api_message *message, int is_honest)
{
	struct api_rank *to = &engine->ranks[rank];
	const int is_own = message->engine == engine->index;
	size_t byte_count = message->byte_count;
	uint8_t *bytes;
	int code;

	/* The worker would follow that half, and write where it says. */
	if (!to->follows && (!is_own || message->half != engine->life))
		return;
	if (!is_honest && api_chance(20))
		byte_count = api_below(byte_count + 1);
	bytes = api_copy(message->bytes, byte_count);
	code = ops_of()->step(to->worker, bytes, byte_count);
	free(bytes);
	api_trace("%s rank %u: step of engine%u half %u, %zu of %zu bytes: %d",
		  engine->name, rank, message->engine, message->half,
		  byte_count, message->byte_count, code);
	if (!byte_count) {
		api_expect(code == 0);
		return;
	}
	if (byte_count < message->byte_count) {
		api_expect(code == KVPULL_EINVAL);
		return;
	}
	if (to->ended ||
	    (to->follows && (!is_own || message->half != to->follows))) {
		api_expect(code == KVPULL_ECLOSED);
		to->ended = 1;
		return;
	}
	api_expect(code == 0);
	to->follows = message->half;
}

/* ---- results ---- */

static void result_give(struct api_engine *engine,
			const struct api_message *message, int is_honest)
{
	const int is_own = message->engine == engine->index;
	struct api_rank *from = &engine->ranks[message->rank];
	size_t byte_count = message->byte_count;
	uint8_t *bytes;
	int code;

	/* A worker that follows no half might be ours as well. */
	if (!message->follows && (!is_own || message->half != engine->life))
		return;
	/* Older ones than a scheduler half remembers. */
	if (is_own && message->life + 6 < from->life)
		return;
	if (!is_honest && api_chance(20))
		byte_count = api_below(byte_count);
	bytes = api_copy(message->bytes, byte_count);
	code = api_world->ops->scheduler->result_take(engine->scheduler, bytes,
						      byte_count);
	free(bytes);
	api_trace(
		"%s: result of engine%u rank %u life %u, %zu of %zu bytes: %d",
		engine->name, message->engine, message->rank, message->life,
		byte_count, message->byte_count, code);
	if (byte_count < message->byte_count) {
		api_expect(code < 0);
		return;
	}
	api_expect(code == 0 || code == KVPULL_EINVAL);
	/* The half learns nothing of a worker of another half. */
	if (!is_own || code || !message->is_known ||
	    (message->follows && message->follows != engine->life))
		return;
	/* In place of one that it knew, only of one that has heard it. */
	if (!message->follows && engine->introduced >> message->rank & 1)
		return;
	if (message->life == from->life)
		api_rank_known(engine, message->rank);
	else if (message->half == engine->life)
		engine->introduced |= 1u << message->rank;
}

static struct api_message result_build(struct api_engine *engine, uint32_t rank)
{
	struct api_rank *from = &engine->ranks[rank];
	struct api_message message = { .engine = engine->index,
				       .rank = rank,
				       .half = engine->life,
				       .life = from->life,
				       .follows = from->follows,
				       .is_known = from->registered };
	size_t capacity = api_chance(970) ? RESULT_BYTES : api_below(300);
	uint8_t *bytes = malloc(capacity ? capacity : 1);
	size_t byte_count = SIZE_MAX;
	int code;

	api_expect(bytes != NULL);
	code = ops_of()->result_build(from->worker, bytes, capacity,
				      &byte_count);
	if (code == KVPULL_ETOOSMALL) {
		api_expect(byte_count > capacity);
		free(bytes);
		capacity = byte_count;
		bytes = malloc(capacity);
		api_expect(bytes != NULL);
		code = ops_of()->result_build(from->worker, bytes, capacity,
					      &byte_count);
	}
	api_expect(code == 0 && byte_count <= capacity);
	message.bytes = bytes;
	message.byte_count = byte_count;
	return message;
}

/* ---- polls ---- */

void api_poll_rank(struct api_engine *engine, uint32_t rank, uint32_t capacity)
{
	struct kvpull_poll_record *records =
		malloc((capacity + 1) * sizeof(*records));
	int count;
	int at;

	api_expect(records != NULL);
	count = ops_of()->poll(engine->ranks[rank].worker, records, capacity,
			       sizeof(*records));
	api_expect(count >= 0 && (uint32_t)count <= capacity);
	for (at = 0; at < count; at++)
		api_record_take(engine, rank, &records[at]);
	free(records);
}

void api_poll(struct api_engine *engine)
{
	static const uint32_t capacities[] = { 0, 1, 2, 8, API_RECORDS_MAX };
	uint32_t rank;

	(void)rank_any(engine, &rank);
	api_poll_rank(engine, rank, capacities[api_below(5)]);
}

/* ---- whole steps ---- */

static void results_carry(struct api_engine *engine, int is_honest)
{
	uint32_t rank;

	for (rank = 0; rank < engine->tp_size; rank++) {
		struct api_message message = result_build(engine, rank);

		if (message.byte_count) {
			if (!is_honest && api_chance(100))
				message_keep(api_world->results, message);
			if (is_honest || api_chance(930))
				result_give(engine, &message, is_honest);
		}
		free(message.bytes);
	}
}

static void step_all(struct api_engine *engine, int is_honest)
{
	struct api_message message = step_build(engine);
	uint32_t rank;

	for (rank = 0; rank < engine->tp_size; rank++) {
		if (message.byte_count && (is_honest || api_chance(950)))
			step_give(engine, rank, &message, is_honest);
		if (is_honest || api_chance(950))
			api_expect(!ops_of()->start_loads(
				engine->ranks[rank].worker, NULL));
	}
	if (message.byte_count && !is_honest && api_chance(100))
		message_keep(api_world->steps, message);
	free(message.bytes);
	for (rank = 0; rank < engine->tp_size; rank++)
		if (is_honest || api_chance(950))
			api_poll_rank(engine, rank, API_RECORDS_MAX);
	results_carry(engine, is_honest);
}

void api_step(struct api_engine *engine)
{
	step_all(engine, 0);
}

void api_step_honest(struct api_engine *engine)
{
	step_all(engine, 1);
}

/* Most often a message of this engine. */
static const struct api_message *message_any(struct api_message *messages,
					     const struct api_engine *engine)
{
	uint32_t tries;
	const int is_any = api_chance(30);

	for (tries = 0; tries < 8; tries++) {
		const struct api_message *message =
			&messages[api_below(API_MESSAGES_MAX)];

		if (message->bytes &&
		    (is_any || message->engine == engine->index))
			return message;
	}
	return NULL;
}

void api_step_late(struct api_engine *engine)
{
	const struct api_message *message =
		message_any(api_world->steps, engine);
	uint32_t rank;

	(void)rank_any(engine, &rank);
	if (message)
		step_give(engine, rank, message, 0);
}

void api_result_late(struct api_engine *engine)
{
	const struct api_message *message =
		message_any(api_world->results, engine);

	if (message && message->rank < engine->tp_size)
		result_give(engine, message, 0);
}

/* ---- one worker ---- */

void api_hold_ready(struct api_engine *engine)
{
	uint32_t rank;
	const struct api_rank *to = rank_any(engine, &rank);
	const struct api_request *request = api_request_any(engine);
	uint32_t at;

	if (!request)
		return;
	for (at = 0; at < API_HOLDS_MAX; at++)
		if (api_world->holds[at].serial &&
		    api_world->holds[at].key == request->key)
			api_hold_write(engine, &api_world->holds[at], rank);
	at = (uint32_t)ops_of()->hold_ready(to->worker, request->key);
	api_expect((int)at == 0 || (int)at == KVPULL_ENOKEY);
}

static void memory_call(struct api_rank *to)
{
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	const struct api_struct given =
		api_output_make(&memory, sizeof(memory));
	const uint64_t bytes = api_chance(800) ? 1 + api_below(65536) :
			       api_chance(500) ? 0 :
						 UINT64_MAX - api_below(8192);
	const int code = ops_of()->memory_alloc(
		to->worker, bytes, (uint32_t)api_below(4), given.given);

	if (given.is_bad || to->registered || !bytes)
		api_expect(code == KVPULL_EINVAL);
	if (!code && given.known_bytes >= 2 * sizeof(size_t)) {
		memcpy(&memory, given.given, given.known_bytes);
		if (api_chance(900))
			api_expect(!ops_of()->memory_free(to->worker,
							  memory.base));
	}
	api_expect(ops_of()->memory_free(to->worker, NULL) == KVPULL_EINVAL);
	api_expect(ops_of()->memory_free(to->worker, &memory) == KVPULL_EINVAL);
	free(given.given);
	/* No worker here has a device, and so no mark. */
	api_expect(ops_of()->engine_mark(to->worker, bytes) ==
		   KVPULL_EUNSUPPORTED);
	api_expect(ops_of()->hold_ready_after(to->worker, 1, (int64_t)bytes) ==
		   KVPULL_EINVAL);
}

/* Elements of an older, a newer or no header at all; NULL: the worker's half. */
static void counters_call(struct kvpull_scheduler *scheduler,
			  struct kvpull_worker *worker)
{
	const uint32_t capacity = (uint32_t)api_below(64);
	const size_t bytes = 8 * api_below(7); /* < 32: of no header */
	uint8_t *list = malloc(capacity * bytes + 1);
	int count;

	api_expect(list != NULL);
	count = worker ? ops_of()->counters(worker, (void *)list, capacity,
					    bytes) :
			 api_world->ops->scheduler->counters(
				 scheduler, (void *)list, capacity, bytes);
	if (bytes < 32)
		api_expect(count == KVPULL_EINVAL);
	else
		api_expect(count > 0 && count <= 64);
	free(list);
}

static void peers_call(const struct api_rank *to)
{
	const uint32_t capacity = (uint32_t)api_below(8);
	struct kvpull_peer_info *peers =
		malloc((capacity + 1) * sizeof(*peers));
	int count;

	api_expect(peers != NULL);
	count = ops_of()->peers(to->worker, peers, capacity, sizeof(*peers));
	/* How many there are, whether or not they fit. */
	api_expect(count >= 0 && count <= 64);
	free(peers);
}

static void rank_info_call(struct api_engine *engine, uint32_t rank)
{
	const struct api_rank *to = &engine->ranks[rank];
	const size_t capacity = api_below(600);
	uint8_t *bytes = malloc(capacity ? capacity : 1);
	size_t byte_count = 0;
	int code;

	api_expect(bytes != NULL);
	code = ops_of()->rank_info(to->worker, bytes, capacity, &byte_count);
	if (!to->registered)
		api_expect(code == KVPULL_EAGAIN);
	else if (byte_count > capacity)
		api_expect(code == KVPULL_ETOOSMALL);
	else
		api_expect(code == 0);
	free(bytes);
	if (api_chance(500))
		api_rank_introduce(engine, rank);
}

void api_worker_call(struct api_engine *engine)
{
	uint32_t rank;
	struct api_rank *to = rank_any(engine, &rank);
	int code;

	switch (api_below(9)) {
	case 0:
		memory_call(to);
		break;
	case 1:
		counters_call(NULL, to->worker);
		break;
	case 2:
		peers_call(to);
		break;
	case 3:
		rank_info_call(engine, rank);
		break;
	case 4:
		if (api_chance(100))
			api_expect(ops_of()->revoke_all(to->worker) >= 0);
		break;
	case 5:
		api_expect(ops_of()->event_fd(to->worker) >= 0);
		break;
	case 6:
		api_expect(ops_of()->start_loads(to->worker, NULL) == 0);
		break;
	case 7:
		if (!to->registered)
			api_worker_register(engine, rank);
		break;
	default:
		code = ops_of()->progress(to->worker, api_odd_u32());
		api_expect(api_world->shape.is_threaded ?
				   code == KVPULL_EINVAL :
				   code >= 0);
		break;
	}
}

/* A request that runs over a change of what computes it is never held. */
static void change_call(struct api_engine *engine)
{
	const uint64_t adapter = api_below(3);
	uint32_t at;

	api_expect(!api_world->ops->scheduler->changed(engine->scheduler,
						       adapter));
	for (at = 0; at < API_REQUESTS_MAX; at++) {
		struct api_request *request = &engine->requests[at];

		if (request->life == engine->life &&
		    (!adapter || request->adapter == adapter))
			request->changed = 1;
	}
}

static void loaded_call(struct api_engine *engine)
{
	const struct api_request *request = api_request_any(engine);
	const int code = api_world->ops->scheduler->loaded(
		engine->scheduler,
		request ? request->key : api_key_of_nobody());

	api_expect(code == 0 || code == KVPULL_ENOKEY ||
		   (code == KVPULL_EMISMATCH && request && request->changed));
}

void api_scheduler_call(struct api_engine *engine)
{
	const struct kvpull_scheduler_ops *ops = api_world->ops->scheduler;
	int code;

	switch (api_below(7)) {
	case 0:
		code = ops->ranks_missing(engine->scheduler);
		api_expect(code >= 0 && (uint32_t)code <= engine->tp_size);
		break;
	case 1:
		code = ops->has_pending(engine->scheduler);
		api_expect(code >= 0 && code < 8);
		break;
	case 2:
		if (!api_chance(100))
			break;
		code = ops->reset(engine->scheduler, (uint32_t)api_below(9));
		api_expect(code == 0 || code == KVPULL_EINVAL);
		break;
	case 3:
		if (!api_chance(100) && !engine->draining)
			break;
		engine->draining = !engine->draining;
		api_expect(ops->drain(engine->scheduler, engine->draining) >=
			   0);
		break;
	case 4:
		if (api_chance(200))
			change_call(engine);
		break;
	case 5:
		loaded_call(engine);
		break;
	default:
		counters_call(engine->scheduler, NULL);
		break;
	}
}
