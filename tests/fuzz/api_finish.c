/* SPDX-License-Identifier: Apache-2.0 */
/* request_finished(): who owns the blocks now, and the ticket. */
#include "tests/fuzz/api.h"

#include <stdlib.h>
#include <string.h>

static const struct kvpull_scheduler_ops *ops_of(void)
{
	return api_world->ops->scheduler;
}

/* A pull is aborted now and then, and goes on most often. */
static int may_finish(const struct api_request *request)
{
	return !request->finished && (!request->hold_serial || api_chance(50));
}

static void hold_draw(const struct api_engine *engine, struct api_hold *hold,
		      uint32_t *computed)
{
	const uint32_t count = 1 + (uint32_t)api_below(API_HOLD_BLOCKS_MAX);
	uint32_t group;

	*computed = count * api_world->shape.block_tokens -
		    (uint32_t)api_below(api_world->shape.block_tokens);
	free(hold->ticket);
	memset(hold, 0, sizeof(*hold));
	for (group = 0; group < api_world->shape.group_count; group++) {
		struct api_blocks *blocks = &hold->groups[group];

		blocks->count = count;
		/* A sliding window's: the last ones alone. */
		if (group && api_chance(api_world->shape.is_window ? 600 : 5)) {
			blocks->first_index = (uint32_t)api_below(count);
			blocks->count = count - blocks->first_index;
		}
		if (group && api_world->shape.is_state && api_chance(950)) {
			blocks->first_index = count - 1;
			blocks->count = 1;
		}
		if (api_chance(10))
			blocks->first_index = api_odd_u32();
		if (api_chance(10))
			blocks->count = 0;
		api_ids_draw(engine, group, blocks);
	}
}

struct finish {
	struct kvpull_finish params;
	struct api_lists lists;
	uint8_t payload[KVPULL_PAYLOAD_BYTES_MAX];
	uint8_t *ticket; /* of its capacity */
	uint32_t needed; /* bytes that it said */
	int is_bad;
};

/* Bytes of no two places are alike by chance: their first one is drawn. */
static void payload_draw(uint8_t payload[KVPULL_PAYLOAD_BYTES_MAX])
{
	const uint64_t first = api_below(256);
	size_t at;

	for (at = 0; at < KVPULL_PAYLOAD_BYTES_MAX; at++)
		payload[at] = (uint8_t)(first + at * 7 + at / 256);
}

static void finish_draw(struct finish *finish, uint64_t key,
			const struct api_hold *hold)
{
	struct kvpull_finish *params = &finish->params;

	finish->lists = api_lists_make(hold->groups);
	*params = (struct kvpull_finish){
		.struct_size = sizeof(*params),
		.key = key,
		.reason = api_chance(750) ? KVPULL_FINISH_STOP :
					    (uint32_t)api_below(5),
		.flags = api_chance(150) ? KVPULL_FINISH_READY_NEEDED : 0,
		.group_count = api_world->shape.group_count,
		.groups = finish->lists.blocks,
		.group_bytes = sizeof(*finish->lists.blocks),
		.ticket_capacity = API_TICKET_BYTES,
	};
	if (api_chance(10))
		params->reason = api_odd_u32();
	if (api_chance(20))
		params->ticket_capacity = api_below(600);
	if (api_chance(10) && params->group_count > 1)
		params->group_count--;
	if (api_chance(300)) {
		payload_draw(finish->payload);
		params->payload = finish->payload;
		params->payload_bytes =
			(uint32_t)api_below(sizeof(finish->payload) + 1);
	}
	if (api_chance(10)) {
		params->payload = api_chance(500) ? finish->payload : NULL;
		params->payload_bytes = KVPULL_PAYLOAD_BYTES_MAX + 1;
	}
	finish->ticket = malloc(params->ticket_capacity + 1);
	api_expect(finish->ticket != NULL);
	params->ticket = api_chance(995) ? finish->ticket : NULL;
	params->last_block_bytes = api_chance(100) ? api_odd_u32() : 0;
}

static int finish_call(struct api_engine *engine, struct finish *finish)
{
	struct api_struct given =
		api_struct_make(&finish->params, sizeof(finish->params));
	const int code =
		ops_of()->request_finished(engine->scheduler, given.given);

	finish->is_bad =
		given.is_bad ||
		(!finish->params.ticket && finish->params.ticket_capacity) ||
		api_groups_are_cut(finish->params.groups,
				   finish->params.group_count,
				   finish->params.group_bytes);
	if (!given.is_bad)
		memcpy(&finish->params, given.given, given.known_bytes);
	free(given.given);
	return code;
}

/* To the last token; of full attention from the first one on, of a state it alone. */
static int has_tokens(const struct api_hold *hold, uint32_t group,
		      uint32_t tokens)
{
	const struct api_blocks *blocks = &hold->groups[group];
	const uint64_t behind = (uint64_t)blocks->first_index + blocks->count;

	if (group && api_world->shape.is_state)
		return tokens && blocks->count == 1 &&
		       blocks->first_index ==
			       (tokens - 1) / api_world->shape.block_tokens;
	return behind * api_world->shape.block_tokens >= tokens &&
	       (!blocks->first_index || (group && api_world->shape.is_window));
}

/* HELD for the first time: its blocks are the library's from now on. */
static void finish_held(struct api_engine *engine, struct api_request *request,
			struct api_hold *hold, struct finish *finish)
{
	const struct kvpull_finish *params = &finish->params;
	uint32_t group;
	uint32_t at;

	api_expect(request->flags & KVPULL_REQUEST_WANTS_HOLD);
	api_expect(!request->changed);
	api_expect(request->life == engine->life && !engine->draining);
	api_expect(params->reason == KVPULL_FINISH_STOP ||
		   params->reason == KVPULL_FINISH_LENGTH);
	api_expect(!finish->lists.is_odd);
	api_expect(params->group_count == api_world->shape.group_count);
	for (group = 0; group < params->group_count; group++)
		for (at = 0; at < hold->groups[group].count; at++)
			if (hold->groups[group].ids[at] >= API_BLOCKS)
				api_fail("a block beyond the cache is held");
	if (params->computed_tokens < request->prompt_tokens)
		request->prompt_tokens = params->computed_tokens;
	for (group = 0; group < params->group_count; group++)
		if (!has_tokens(hold, group, request->prompt_tokens))
			api_fail("%u tokens are held, and group %u lacks some",
				 request->prompt_tokens, group);
	memcpy(hold->payload, finish->payload, sizeof(hold->payload));
	/* Where the struct was too short for it, it has no length. */
	hold->ticket_bytes = params->ticket_bytes;
	hold->ticket = api_copy(finish->ticket, hold->ticket_bytes);
	if (!hold->ticket_bytes) {
		size_t bytes = 0;

		free(hold->ticket);
		(void)ops_of()->ticket_get(engine->scheduler, request->key,
					   NULL, 0, &bytes);
		hold->ticket = malloc(bytes);
		hold->ticket_bytes = bytes;
		api_expect(!ops_of()->ticket_get(engine->scheduler,
						 request->key, hold->ticket,
						 bytes, &bytes));
	}
	api_hold_taken(engine, request, hold);
}

static void finish_settle(struct api_engine *engine,
			  struct api_request *request, struct api_hold *hold,
			  struct finish *finish, int code)
{
	if (finish->is_bad) {
		api_expect(code == KVPULL_EINVAL);
		return;
	}
	if (code == KVPULL_ETOOSMALL) {
		api_expect(finish->params.ticket_bytes == 0 ||
			   finish->params.ticket_bytes >
				   finish->params.ticket_capacity ||
			   !finish->params.ticket);
		return;
	}
	api_expect(code == KVPULL_FINISH_FREE || code == KVPULL_FINISH_HELD);
	if (!request)
		return;
	if (code == KVPULL_FINISH_HELD && !request->finished)
		finish_held(engine, request, hold, finish);
	else if (code == KVPULL_FINISH_HELD)
		api_expect(request->held);
	else if (finish->params.ticket_bytes && !request->finished)
		(void)api_hold_serial(finish->ticket,
				      finish->params.ticket_bytes);
	if (request->life == engine->life)
		request->finished = 1;
}

void api_finished(struct api_engine *engine)
{
	struct api_request *request = api_request_pick(engine, may_finish);
	struct api_hold *hold = api_hold_add();
	struct finish finish = { .is_bad = 0 };
	uint32_t computed;
	int code;

	if (!request || !hold)
		return;
	/*
	 * The hold's blocks are drawn once, and written before the request
	 * ends.
	 */
	hold_draw(engine, hold, &computed);
	if (api_chance(10))
		request = NULL;
	finish_draw(&finish, request ? request->key : api_key_of_nobody(),
		    hold);
	finish.params.computed_tokens =
		api_chance(980) ? computed : api_odd_u32();
	api_hold_fill(engine, hold,
		      !(finish.params.flags & KVPULL_FINISH_READY_NEEDED));
	code = finish_call(engine, &finish);
	api_trace("%s: request_finished key %llu reason %u flags %u: %d, %zu",
		  engine->name, (unsigned long long)finish.params.key,
		  finish.params.reason, finish.params.flags, code,
		  finish.params.ticket_bytes);
	/* A flag that a short struct has no place for: written all the same. */
	if (!(finish.params.flags & KVPULL_FINISH_READY_NEEDED) &&
	    hold->ready != UINT32_MAX)
		memset(hold->content, 0, sizeof(hold->content));
	/* In a struct that was cut there may be no key. */
	if (request && finish.params.key != request->key)
		request = NULL;
	finish_settle(engine, request, hold, &finish, code);
	if (!hold->serial) {
		free(hold->ticket);
		memset(hold, 0, sizeof(*hold));
	}
	api_lists_free(&finish.lists);
	free(finish.ticket);
}

void api_requests_end(struct api_engine *engine)
{
	uint32_t at;

	for (at = 0; at < API_REQUESTS_MAX; at++) {
		struct api_request *request = &engine->requests[at];
		struct kvpull_finish finish = { .struct_size = sizeof(finish),
						.key = request->key,
						.reason = KVPULL_FINISH_ABORT };

		if (!request->key || request->finished ||
		    request->life != engine->life)
			continue;
		api_expect(ops_of()->request_finished(engine->scheduler,
						      &finish) ==
			   KVPULL_FINISH_FREE);
		request->finished = 1;
	}
}
