/* SPDX-License-Identifier: Apache-2.0 */
/* Calls about requests and tickets, as hosts make them, and as they should not. */
#include "tests/fuzz/api.h"

#include <stdlib.h>
#include <string.h>

#define PARENTS 6u

static const struct kvpull_scheduler_ops *ops_of(void)
{
	return api_world->ops->scheduler;
}

static void digest_draw(uint8_t digest[KVPULL_DIGEST_BYTES])
{
	memset(digest, (int)api_below(3), KVPULL_DIGEST_BYTES);
}

/* A hold whose ticket is known: one of the last ones, most often. */
static struct api_hold *hold_any(void)
{
	uint64_t back = 1 + api_below(api_chance(900) ? 6 : API_HOLDS_MAX - 1);

	if (back >= api_world->hold_next)
		back = api_world->hold_next - 1;
	return api_hold_of(api_world->hold_next - back);
}

/* ---- tickets ---- */

struct ticket {
	uint8_t *text; /* of exactly its bytes; free it */
	size_t byte_count;
	int is_whole; /* as it was given out */
	const struct api_hold *hold;
};

static void ticket_damage(struct ticket *ticket)
{
	uint8_t *text;

	switch (api_below(5)) {
	case 0: /* cut */
		ticket->byte_count = api_below(ticket->byte_count);
		break;
	case 1: /* a bit */
		ticket->text[api_below(ticket->byte_count)] ^=
			(uint8_t)(1u << api_below(8));
		return;
	case 2: /* longer */
		text = calloc(1, ticket->byte_count + 1);
		api_expect(text != NULL);
		memcpy(text, ticket->text, ticket->byte_count);
		free(ticket->text);
		text[ticket->byte_count++] = (uint8_t)api_below(256);
		ticket->text = text;
		return;
	case 3: /* the end of it */
		text = ticket->text;
		ticket->byte_count -= api_below(ticket->byte_count);
		ticket->text = api_copy(text, ticket->byte_count);
		free(text);
		return;
	default:
		free(ticket->text);
		ticket->text = NULL;
		return;
	}
	text = ticket->text;
	ticket->text = api_copy(text, ticket->byte_count);
	free(text);
}

static struct ticket ticket_draw(void)
{
	static const char other[] = "not a ticket at all";
	const struct api_hold *hold = hold_any();
	struct ticket ticket = { .hold = hold, .is_whole = 1 };

	if (!hold) {
		ticket.is_whole = 0;
		ticket.byte_count = sizeof(other) - api_below(4);
		ticket.text = api_copy(other, ticket.byte_count);
		return ticket;
	}
	ticket.byte_count = hold->ticket_bytes;
	ticket.text = api_copy(hold->ticket, hold->ticket_bytes);
	if (!api_chance(930))
		ticket_damage(&ticket);
	ticket.is_whole = ticket.text &&
			  ticket.byte_count == hold->ticket_bytes &&
			  !memcmp(ticket.text, hold->ticket, ticket.byte_count);
	return ticket;
}

/* Answers that a call with this ticket may give. */
static void ticket_expect(const struct ticket *ticket, int code)
{
	/*
	 * A half that was restarted before its workers may give out the name
	 * of a hold again that they were never told of.
	 */
	if (ticket->is_whole && code == KVPULL_ENOTICKET)
		api_expect(api_world->engines[ticket->hold->engine].life > 1);
	else if (ticket->is_whole)
		api_expect(code == 0 || code == KVPULL_EFULL);
	else if (!ticket->text && ticket->byte_count)
		api_expect(code == KVPULL_EINVAL);
	else
		api_expect(code == KVPULL_ENOTICKET || code == KVPULL_ENOTMINE);
}

/* ---- a request enters ---- */

static void request_draw(struct kvpull_request *request,
			 const struct ticket *ticket)
{
	static const uint32_t flags[] = {
		KVPULL_REQUEST_WANTS_HOLD,
		KVPULL_REQUEST_WANTS_HOLD,
		KVPULL_REQUEST_PULL,
		KVPULL_REQUEST_PULL,
		KVPULL_REQUEST_PULL,
		KVPULL_REQUEST_WANTS_HOLD | KVPULL_REQUEST_ALONE,
		KVPULL_REQUEST_WANTS_HOLD | KVPULL_REQUEST_PULL,
		0,
	};

	*request = (struct kvpull_request){
		.struct_size = sizeof(*request),
		.key = api_world->key_next,
		.flags = flags[api_below(sizeof(flags) / sizeof(flags[0]))],
		.prompt_tokens = 1 + (uint32_t)api_below(48),
		.adapter = api_chance(300) ? api_below(3) : 0,
		.label = api_chance(500) ? "a label\nof two lines" : NULL,
	};
	if (api_chance(300))
		request->parent_key = 1 + api_below(PARENTS);
	if (api_chance(300))
		request->priority = (int32_t)api_odd_u32();
	if (api_chance(10))
		request->reserved = 1 + (uint32_t)api_below(UINT32_MAX);
	if (api_chance(20))
		request->flags = api_odd_u32();
	if (api_chance(10))
		request->key = 0;
	digest_draw(request->prompt_digest);
	if (!(request->flags & KVPULL_REQUEST_PULL))
		return;
	request->ticket = ticket->text;
	request->ticket_bytes = ticket->byte_count;
	if (ticket->hold && api_chance(950)) {
		memcpy(request->prompt_digest, ticket->hold->digest,
		       sizeof(request->prompt_digest));
		request->prompt_tokens = ticket->hold->tokens;
	}
}

static void request_check(const struct kvpull_request *request,
			  const struct ticket *ticket, int code)
{
	if (!request->key || request->flags >= 8)
		api_expect(code == KVPULL_EINVAL);
	else if (!(request->flags & KVPULL_REQUEST_PULL))
		api_expect(code == 0 || code == KVPULL_EFULL);
	else if (request->ticket_bytes == ticket->byte_count &&
		 code != KVPULL_EFULL)
		ticket_expect(ticket, code);
}

/* A size that ends in the middle of an array of bytes. */
static int is_cut(size_t bytes, size_t member, size_t member_bytes)
{
	return bytes > member && bytes < member + member_bytes;
}

/* Ends a request for which there is no place. */
static void end_at_once(struct api_engine *engine, uint64_t key)
{
	struct kvpull_finish finish = { .struct_size = sizeof(finish),
					.key = key,
					.reason = KVPULL_FINISH_ABORT };

	api_expect(ops_of()->request_finished(engine->scheduler, &finish) == 0);
}

void api_request_new(struct api_engine *engine)
{
	struct ticket ticket = ticket_draw();
	struct kvpull_request request;
	struct api_struct given;
	struct api_request *entry;
	int code;

	request_draw(&request, &ticket);
	entry = api_chance(40) ? api_request_any(engine) : NULL;
	/* A key is used once: of one that ended the library knows nothing. */
	if (entry && (entry->finished || entry->is_unknown ||
		      entry->life != engine->life))
		entry = NULL;
	if (entry)
		request.key = entry->key;
	given = api_struct_make(&request, sizeof(request));
	given.is_bad |= !request.ticket && request.ticket_bytes;
	given.is_bad |= request.reserved != 0;
	given.is_bad |= is_cut(given.known_bytes,
			       offsetof(struct kvpull_request, prompt_digest),
			       KVPULL_DIGEST_BYTES) ||
			is_cut(given.known_bytes,
			       offsetof(struct kvpull_request, trace),
			       KVPULL_TRACE_BYTES);
	code = ops_of()->request_new(engine->scheduler, given.given);
	api_trace("%s: request_new key %llu flags %u hold %llu: %d",
		  engine->name, (unsigned long long)request.key, request.flags,
		  ticket.hold ? (unsigned long long)ticket.hold->key : 0, code);
	free(given.given);
	if (given.is_bad) {
		api_expect(code == KVPULL_EINVAL);
	} else if (!entry) {
		request_check(&request, &ticket, code);
		entry = request.key && code != KVPULL_EINVAL ?
				api_request_add(engine) :
				NULL;
		if (!entry && request.key && code != KVPULL_EINVAL)
			end_at_once(engine, request.key);
		if (entry) {
			*entry = (struct api_request){
				.key = request.key,
				.life = engine->life,
				.flags = request.flags,
				.prompt_tokens = request.prompt_tokens,
				.adapter = request.adapter,
				.is_unknown = code == KVPULL_EFULL,
			};
			memcpy(entry->digest, request.prompt_digest,
			       sizeof(entry->digest));
			if (request.flags & KVPULL_REQUEST_PULL && !code)
				entry->hold_serial = ticket.hold->serial;
		}
		api_world->key_next++;
	}
	free(ticket.text);
}

static int has_state(void)
{
	return api_world->shape.is_state && api_world->shape.group_count > 1;
}

static int may_load(const struct api_request *request)
{
	return request->hold_serial && !request->finished && !request->pulling;
}

static int is_chosen(const struct api_request *request)
{
	return may_load(request) && request->tokens;
}

void api_matched(struct api_engine *engine)
{
	struct api_request *request = api_request_pick(engine, may_load);
	const uint64_t key =
		request && api_chance(980) ? request->key : api_key_of_nobody();
	const uint32_t local = api_chance(700) ? 0 :
			       api_chance(900) ? (uint32_t)api_below(48) :
						 api_odd_u32();
	uint32_t tokens = UINT32_MAX;
	const struct api_hold *hold;
	const int answer = ops_of()->matched_tokens(engine->scheduler, key,
						    local, &tokens);

	api_trace("%s: matched_tokens key %llu local %u: %d, %u", engine->name,
		  (unsigned long long)key, local, answer, tokens);
	if (answer != KVPULL_MATCH_LOAD) {
		api_expect(answer == KVPULL_MATCH_NOTHING ||
			   answer == KVPULL_MATCH_WAIT);
		api_expect(tokens == UINT32_MAX);
		api_expect(ops_of()->match_failure(engine->scheduler, key) <=
			   0);
		return;
	}
	api_expect(request && request->key == key);
	api_expect(!ops_of()->match_failure(engine->scheduler, key));
	api_expect(!request->finished && request->hold_serial);
	api_expect(request->life == engine->life);
	request->local_tokens = local;
	request->tokens = tokens;
	hold = api_hold_of(request->hold_serial);
	if (!hold)
		return;
	api_expect(tokens && tokens <= hold->tokens - local);
	if (has_state())
		api_expect(tokens == hold->tokens - local);
	api_expect(
		!memcmp(hold->digest, request->digest, sizeof(hold->digest)));
}

/* ---- local blocks ---- */

/* The blocks that the tokens of matched_tokens() lie in. */
static void local_draw(const struct api_engine *engine,
		       struct api_request *request)
{
	const uint32_t tokens = api_world->shape.block_tokens;
	const struct api_hold *hold = api_hold_of(request->hold_serial);
	const uint32_t end =
		(request->local_tokens + request->tokens + tokens - 1) / tokens;
	uint32_t group;

	for (group = 0; group < api_world->shape.group_count; group++) {
		struct api_blocks *to = &request->local[group];
		uint32_t first = request->local_tokens / tokens;
		uint32_t last = end;

		if (hold && first < hold->groups[group].first_index)
			first = hold->groups[group].first_index;
		if (hold && last > hold->groups[group].first_index +
					    hold->groups[group].count)
			last = hold->groups[group].first_index +
			       hold->groups[group].count;
		to->first_index = first;
		to->count = last > first ? last - first : 0;
		if (api_chance(100) && to->count)
			to->count = (uint32_t)api_below(to->count + 1);
		if (to->count > API_HOLD_BLOCKS_MAX)
			to->count = API_HOLD_BLOCKS_MAX;
		if (api_chance(30))
			to->first_index = api_odd_u32();
		api_ids_draw(engine, group, to);
	}
}

/* A half judges ids by what every rank has told it. */
static int knows_ranks(const struct api_engine *engine)
{
	uint32_t rank;

	for (rank = 0; rank < engine->tp_size; rank++)
		if (!engine->ranks[rank].known)
			return 0;
	return 1;
}

/* A block that is none of the cache's; one beyond the tokens to be loaded. */
static int has_bad_blocks(const struct api_engine *engine,
			  const struct api_request *request, uint32_t external)
{
	const uint32_t tokens = api_world->shape.block_tokens;
	const uint64_t end = (uint64_t)request->local_tokens + external;
	uint32_t group;
	uint32_t at;

	for (group = 0; group < api_world->shape.group_count; group++) {
		const struct api_blocks *local = &request->local[group];

		for (at = 0; at < local->count; at++)
			if (knows_ranks(engine) && local->ids[at] >= API_BLOCKS)
				return 1;
		if (local->count &&
		    (local->first_index < request->local_tokens / tokens ||
		     ((uint64_t)local->first_index + local->count - 1) *
				     tokens >=
			     end))
			return 1;
		if (group && has_state() &&
		    (local->count != 1 ||
		     local->first_index != (end - 1) / tokens))
			return 1;
	}
	return external > request->tokens ||
	       (has_state() && external != request->tokens);
}

static int allocated_call(struct api_engine *engine,
			  struct kvpull_allocation *allocation, int *is_bad)
{
	const struct api_struct given =
		api_struct_make(allocation, sizeof(*allocation));
	int code;

	*is_bad = given.is_bad || api_groups_are_cut(allocation->groups,
						     allocation->group_count,
						     allocation->group_bytes);
	code = ops_of()->allocated(engine->scheduler, given.given);
	free(given.given);
	return code;
}

void api_allocated(struct api_engine *engine)
{
	struct api_request *request = api_request_pick(engine, is_chosen);
	struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.group_bytes = sizeof(struct kvpull_blocks),
		.group_count = api_world->shape.group_count,
	};
	struct api_request asked;
	struct api_lists lists;
	int is_bad;
	int code;

	if (!request || (!request->tokens && api_chance(900)))
		return;
	asked = *request;
	if (!asked.pulling)
		local_draw(engine, &asked);
	lists = api_lists_make(asked.local);
	allocation.key = api_chance(990) ? request->key : api_key_of_nobody();
	allocation.external_tokens = asked.tokens;
	if (api_chance(40))
		allocation.external_tokens = api_odd_u32();
	if (api_chance(20))
		allocation.group_count = api_odd_u32();
	allocation.groups = api_chance(990) ? lists.blocks : NULL;
	if (allocation.group_count > api_world->shape.group_count &&
	    allocation.group_count <= KVPULL_GROUPS_MAX)
		allocation.group_count = KVPULL_GROUPS_MAX + 1;
	code = allocated_call(engine, &allocation, &is_bad);
	api_trace("%s: allocated key %llu external %u: %d", engine->name,
		  (unsigned long long)allocation.key,
		  allocation.external_tokens, code);
	api_lists_free(&lists);
	if (is_bad) {
		api_expect(code == KVPULL_EINVAL);
		return;
	}
	if (code == KVPULL_EINVAL || code == KVPULL_ENOKEY ||
	    !allocation.external_tokens || request->pulling)
		return;
	api_expect(allocation.key == request->key && request->tokens);
	api_expect(request->life == engine->life && !request->finished);
	if (!code) {
		api_expect(!lists.is_odd && allocation.groups);
		api_expect(allocation.group_count ==
			   api_world->shape.group_count);
		if (has_bad_blocks(engine, &asked, allocation.external_tokens))
			api_fail(
				"blocks beyond the cache or the tokens: taken");
		memcpy(request->local, asked.local, sizeof(asked.local));
	}
	api_pull_begun(engine, request, code);
}

/* ---- tickets again ---- */

void api_rejected(struct api_engine *engine)
{
	struct ticket ticket = ticket_draw();
	const int code = ops_of()->request_rejected(
		engine->scheduler, ticket.text, ticket.byte_count);

	api_trace("%s: request_rejected: %d", engine->name, code);
	ticket_expect(&ticket, code);
	free(ticket.text);
}

void api_ticket_get(struct api_engine *engine)
{
	const struct api_request *request = api_request_any(engine);
	const size_t capacity =
		api_chance(800) ? API_TICKET_BYTES : api_below(600);
	uint8_t *text = malloc(capacity ? capacity : 1);
	size_t byte_count = 0;
	int code;

	api_expect(text != NULL);
	code = ops_of()->ticket_get(
		engine->scheduler, request ? request->key : api_key_of_nobody(),
		text, capacity, &byte_count);
	if (code == KVPULL_ETOOSMALL)
		api_expect(byte_count > capacity);
	else if (!code)
		api_expect(byte_count <= capacity && request->held &&
			   api_hold_serial(text, byte_count));
	else
		api_expect(code == KVPULL_ENOKEY);
	free(text);
}

/* The hold's ticket says, to anybody, how long its payload is. */
static uint32_t payload_bytes_of(const struct api_hold *hold)
{
	struct kvpull_ticket_info info = { .struct_size = sizeof(info) };

	api_expect(!api_world->ops->ticket_peek(hold->ticket,
						hold->ticket_bytes, &info));
	return info.payload_bytes;
}

void api_payload_get(struct api_engine *engine)
{
	const struct api_request *request = api_request_any(engine);
	const size_t capacity =
		api_chance(800) ? KVPULL_PAYLOAD_BYTES_MAX : api_below(64);
	uint8_t *payload = malloc(capacity ? capacity : 1);
	const struct api_hold *hold;
	size_t byte_count = SIZE_MAX;
	int code;

	api_expect(payload != NULL);
	code = ops_of()->payload_get(
		engine->scheduler, request ? request->key : api_key_of_nobody(),
		payload, capacity, &byte_count);
	api_expect(code <= 0);
	hold = request && (!code || code == KVPULL_ETOOSMALL) ?
		       api_hold_of(request->hold_serial) :
		       NULL;
	if (hold)
		api_expect(byte_count == payload_bytes_of(hold));
	if (hold && !code)
		api_expect(!memcmp(payload, hold->payload, byte_count));
	if (!code) {
		/* A ticket that some rank did not read is told to nobody. */
		api_expect(request && !request->finished && request->pulling &&
			   request->ended + 1 == 1u << engine->tp_size);
		api_counts.payloads += byte_count != 0;
	}
	if (code == KVPULL_ETOOSMALL)
		api_expect(byte_count > capacity);
	free(payload);
}

void api_ticket_peek(struct api_engine *engine)
{
	struct ticket ticket = ticket_draw();
	struct kvpull_ticket_info info = { .struct_size = sizeof(info) };
	const struct api_struct given = api_output_make(&info, sizeof(info));
	const int code = api_world->ops->ticket_peek(
		ticket.text, ticket.byte_count, given.given);

	(void)engine;
	if (given.is_bad)
		api_expect(code < 0);
	else if (ticket.is_whole)
		api_expect(code == 0);
	if (!given.is_bad && !code)
		memcpy((uint8_t *)&info + sizeof(size_t),
		       (uint8_t *)given.given + sizeof(size_t),
		       given.known_bytes - sizeof(size_t));
	if (!given.is_bad && !code && given.known_bytes == sizeof(info))
		api_expect(info.block_count && info.rank_count &&
			   info.rank_count <= API_RANKS_MAX);
	free(given.given);
	free(ticket.text);
}
