/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler half: the calls about requests.
 *
 * A request is in the table from request_new() until request_finished(), and
 * longer while its pull is open: every rank reports that once, whatever became
 * of the request. A held request moves to the slots, until every rank reported.
 *
 * request_finished() decides everything before it changes anything, so that
 * KVPULL_ETOOSMALL leaves no trace. Commands that must not be lost but find no
 * room in the log (END, RELEASE, ABORT, a refused PULL) wait in lists of their
 * own tables; the others (HOLD, CLAIM, PULL) are refused.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/params.h"
#include "plugin/scheduler/scheduler_state.h"

void kvpull_scheduler_tick(struct kvpull_scheduler *scheduler, uint64_t now_ns)
{
	kvpull_families_expire(&scheduler->families, now_ns);
	kvpull_demand_expire(&scheduler->demand, now_ns);
}

struct kvpull_scheduler_request *
kvpull_scheduler_find(struct kvpull_scheduler *scheduler, uint64_t key)
{
	const uint32_t index = kvpull_map_get(&scheduler->by_key, key);

	return index == KVPULL_NONE ? NULL : &scheduler->requests[index];
}

static uint32_t index_of(const struct kvpull_scheduler *scheduler,
			 const struct kvpull_scheduler_request *request)
{
	return (uint32_t)(request - scheduler->requests);
}

/* Removes a request that has finished and whose pull has ended. */
static void request_remove(struct kvpull_scheduler *scheduler,
			   struct kvpull_scheduler_request *request)
{
	const uint32_t index = index_of(scheduler, request);

	kvpull_index_list_remove(&scheduler->owing, index);
	kvpull_map_remove(&scheduler->by_key, request->key);
	kvpull_payload_drop(&request->user.payload, &scheduler->texts);
	request->key = 0;
	kvpull_index_pool_give(&scheduler->request_pool, index);
}

void kvpull_scheduler_pull_ended(struct kvpull_scheduler *scheduler,
				 struct kvpull_scheduler_request *request)
{
	request->owed = 0;
	kvpull_index_list_remove(&scheduler->owing,
				 index_of(scheduler, request));
	if (request->finished)
		request_remove(scheduler, request);
}

static int may_say(struct kvpull_scheduler *scheduler,
		   enum kvpull_table_full table, uint64_t now_ns)
{
	if (now_ns < scheduler->full_say_ns[table])
		return 0;
	scheduler->full_say_ns[table] = now_ns + KVPULL_NS_PER_S;
	return 1;
}

static int tickets_full(struct kvpull_scheduler *scheduler, const char *label,
			uint64_t now_ns)
{
	if (may_say(scheduler, KVPULL_FULL_TICKETS, now_ns))
		kvpull_warn(
			scheduler->log,
			"no room for the ticket of request %s: tickets_max %u or step_log_mib %u is reached",
			kvpull_log_label(label), scheduler->config.tickets_max,
			scheduler->config.step_log_mib);
	return KVPULL_EFULL;
}

static int join_ticket(struct kvpull_scheduler *scheduler,
		       struct kvpull_scheduler_request *entry,
		       const struct kvpull_request *request, uint64_t now_ns)
{
	int code = kvpull_demand_decode(&scheduler->demand, request->ticket,
					request->ticket_bytes);

	if (!code)
		code = kvpull_demand_join(&scheduler->demand, &entry->user,
					  entry->label, request->priority);
	return code == KVPULL_EFULL ?
		       tickets_full(scheduler, entry->label, now_ns) :
		       code;
}

/* Clients may have chosen it, and a line of a log is one line. */
static void label_take(char own[KVPULL_LABEL_BYTES], const char *label)
{
	(void)snprintf(own, KVPULL_LABEL_BYTES, "%s", label ? label : "");
	kvpull_text_clean(own);
}

int kvpull_scheduler_request_new(struct kvpull_scheduler *scheduler,
				 const struct kvpull_request *request,
				 uint64_t now_ns)
{
	struct kvpull_scheduler_request *entry;
	uint32_t index;
	int code;

	kvpull_scheduler_tick(scheduler, now_ns);
	if (!request->key ||
	    (request->flags & ~(KVPULL_REQUEST_WANTS_HOLD |
				KVPULL_REQUEST_PULL | KVPULL_REQUEST_ALONE)))
		return KVPULL_EINVAL;
	if (kvpull_scheduler_find(scheduler, request->key))
		return 0;
	if (kvpull_slots_find(&scheduler->slots, request->key) != KVPULL_NONE) {
		if (may_say(scheduler, KVPULL_KEY_HELD, now_ns))
			kvpull_warn(
				scheduler->log,
				"request %s is neither held nor pulled: its key %" PRIu64
				" is still that of a hold: use a key again after its SENT",
				kvpull_log_label(request->label), request->key);
		return 0;
	}
	index = kvpull_index_pool_peek(&scheduler->request_pool);
	if (index == KVPULL_NONE ||
	    kvpull_map_set(&scheduler->by_key, request->key, index) != 0) {
		if (may_say(scheduler, KVPULL_FULL_REQUESTS, now_ns))
			kvpull_warn(
				scheduler->log,
				"request key %" PRIu64
				" is neither held nor pulled: requests_max %u is reached",
				request->key, scheduler->config.requests_max);
		return KVPULL_EFULL;
	}
	(void)kvpull_index_pool_take(&scheduler->request_pool);
	kvpull_check(scheduler->log, scheduler->requests != NULL);
	entry = &scheduler->requests[index];
	*entry = (struct kvpull_scheduler_request){
		.key = request->key,
		.parent_key = request->parent_key,
		.adapter = request->adapter,
		.flags = request->flags,
		.prompt_tokens = request->prompt_tokens,
	};
	memcpy(entry->digest, request->prompt_digest, sizeof(entry->digest));
	memcpy(entry->trace, request->trace, sizeof(entry->trace));
	label_take(entry->label, request->label);
	if (!(request->flags & KVPULL_REQUEST_PULL))
		return 0;
	code = join_ticket(scheduler, entry, request, now_ns);
	if (code)
		entry->user.code = code;
	return code;
}

/* A rank of which nothing is known takes no step, so that no pull would end. */
static int ranks_unknown(const struct kvpull_scheduler *scheduler)
{
	uint32_t rank;

	for (rank = 0; rank < scheduler->rank_count; rank++)
		if (!scheduler->ranks[rank].info.incarnation)
			return 1;
	return 0;
}

static void ranks_log(const struct kvpull_scheduler *scheduler,
		      const struct kvpull_scheduler_request *request,
		      const char *what)
{
	kvpull_warn(
		scheduler->log,
		"request %s key %" PRIu64
		" is not %s: %d of %u ranks are unknown: their workers registered no regions, or rank_info() was not told",
		kvpull_log_label(request->label), request->key, what,
		kvpull_scheduler_ranks_missing(scheduler),
		scheduler->rank_count);
}

/* The ranks' rank_info() may be on its way: wait, but for one lease only. */
static int match_later(struct kvpull_scheduler *scheduler,
		       struct kvpull_scheduler_request *request,
		       uint64_t now_ns)
{
	if (request->user.state != KVPULL_USER_WAITING)
		return KVPULL_MATCH_NOTHING;
	if (!request->asked_ns)
		request->asked_ns = now_ns;
	if (now_ns - request->asked_ns < scheduler->demand.lease_ns)
		return KVPULL_MATCH_WAIT;
	if (may_say(scheduler, KVPULL_RANKS_UNKNOWN, now_ns))
		ranks_log(scheduler, request, "pulled");
	request->user.code = KVPULL_ERANK;
	kvpull_demand_leave(&scheduler->demand, &request->user, request->key);
	return KVPULL_MATCH_NOTHING;
}

int kvpull_scheduler_match_failure(struct kvpull_scheduler *scheduler,
				   uint64_t key)
{
	const struct kvpull_scheduler_request *request =
		kvpull_scheduler_find(scheduler, key);

	return request ? request->user.code : KVPULL_ENOKEY;
}

int kvpull_scheduler_matched_tokens(struct kvpull_scheduler *scheduler,
				    uint64_t key, uint32_t local_tokens,
				    uint32_t *tokens, uint64_t now_ns)
{
	struct kvpull_scheduler_request *request;
	struct kvpull_demand_ask ask;

	kvpull_scheduler_tick(scheduler, now_ns);
	request = kvpull_scheduler_find(scheduler, key);
	if (!request) {
		scheduler->counts.unknown_keys++;
		return KVPULL_MATCH_NOTHING;
	}
	if (local_tokens &&
	    kvpull_suspects_has(&scheduler->suspects, request->adapter))
		request->changed = 1;
	if (ranks_unknown(scheduler))
		return match_later(scheduler, request, now_ns);
	ask = (struct kvpull_demand_ask){
		.key = key,
		.digest = request->digest,
		.prompt_tokens = request->prompt_tokens,
		.local_tokens = local_tokens,
	};
	return kvpull_demand_match(&scheduler->demand, &request->user, &ask,
				   tokens);
}

static void owe(struct kvpull_scheduler *scheduler,
		struct kvpull_scheduler_request *request, uint32_t what)
{
	request->owed |= what;
	kvpull_index_list_push(&scheduler->owing, index_of(scheduler, request));
}

/* A pull that was refused: which of the limits it was. */
static void refusal_log(const struct kvpull_scheduler *scheduler,
			const struct kvpull_scheduler_request *request,
			const struct kvpull_allocation *allocation, int code)
{
	const struct kvpull_config *config = &scheduler->config;
	char why[96] = "its ticket lacks the blocks asked for";
	const uint32_t blocks = kvpull_kept_wanted(allocation);

	if (code == KVPULL_EFULL && blocks > config->pull_blocks_max)
		(void)snprintf(why, sizeof(why),
			       "%u blocks, pull_blocks_max is %u", blocks,
			       config->pull_blocks_max);
	else if (code == KVPULL_EFULL)
		(void)snprintf(why, sizeof(why), "step_log_mib %u is reached",
			       config->step_log_mib);
	else if (code == KVPULL_EEXPIRED)
		(void)snprintf(why, sizeof(why), "its ticket has ended");
	else if (code == KVPULL_EMISMATCH)
		(void)snprintf(why, sizeof(why),
			       "the weights or its adapter changed");
	kvpull_warn(scheduler->log,
		    "request %s key %" PRIu64 " cannot be pulled: %s (%s)",
		    kvpull_log_label(request->label), request->key, why,
		    kvpull_error_name(code));
}

/*
 * Logs that the consumer's engine named wrong blocks; the ticket may still be
 * good.
 */
static void blocks_refuse(const struct kvpull_scheduler *scheduler,
			  const struct kvpull_scheduler_request *request,
			  const char *why)
{
	kvpull_warn(scheduler->log,
		    "request %s key %" PRIu64 ": allocated() %s",
		    kvpull_log_label(request->label), request->key, why);
}

int kvpull_scheduler_allocated(struct kvpull_scheduler *scheduler,
			       const struct kvpull_allocation *allocation,
			       uint64_t now_ns)
{
	struct kvpull_scheduler_request *request;
	int code;

	kvpull_scheduler_tick(scheduler, now_ns);
	request = kvpull_scheduler_find(scheduler, allocation->key);
	if (!request) {
		scheduler->counts.unknown_keys++;
		return KVPULL_ENOKEY;
	}
	if (!allocation->external_tokens) {
		kvpull_demand_leave(&scheduler->demand, &request->user,
				    request->key);
		return 0;
	}
	if (!kvpull_scheduler_has_blocks(allocation)) {
		blocks_refuse(scheduler, request,
			      "names groups or blocks, and gives none");
		return KVPULL_EINVAL;
	}
	/* A second call is a no-op, whatever it names. */
	if (request->user.state == KVPULL_USER_CHOSEN &&
	    !kvpull_scheduler_may_pull(scheduler, request, allocation))
		return KVPULL_EINVAL;
	code = kvpull_demand_pull(&scheduler->demand, &request->user,
				  allocation);
	if (code == KVPULL_EINVAL)
		blocks_refuse(
			scheduler, request,
			"has blocks for tokens that matched_tokens() did not offer, or none for those that it did");
	if (!code || code == KVPULL_EINVAL)
		return code;
	refusal_log(scheduler, request, allocation, code);
	request->refusal = code;
	owe(scheduler, request, KVPULL_OWED_REFUSAL);
	return code;
}

/* The consumer's part of a finish; the request is removed if it can be. */
static void finish_consumer(struct kvpull_scheduler *scheduler,
			    struct kvpull_scheduler_request *request)
{
	kvpull_demand_leave(&scheduler->demand, &request->user, request->key);
	if (request->user.state != KVPULL_USER_PULLING) {
		request_remove(scheduler, request);
		return;
	}
	request->finished = 1;
	owe(scheduler, request, KVPULL_OWED_ABORT);
}

static int fill_groups(const struct kvpull_scheduler *scheduler,
		       const struct kvpull_scheduler_request *request,
		       const struct kvpull_finish *finish)
{
	struct kvpull_ticket *ticket = scheduler->ticket;
	const int is_one = finish->group_count == 1;
	uint32_t blocks = 0;
	uint32_t group;

	if (finish->group_count != scheduler->group_count || !finish->groups)
		return KVPULL_EINVAL;
	/* The ids of a single group are encoded without a copy. */
	ticket->block_ids =
		is_one ? finish->groups->block_ids : scheduler->block_ids;
	for (group = 0; group < finish->group_count; group++) {
		const struct kvpull_blocks *from = &finish->groups[group];

		if (from->block_count > KVPULL_TICKET_BLOCKS_MAX - blocks ||
		    (from->block_count && !from->block_ids))
			return KVPULL_EINVAL;
		ticket->groups[group] = (struct kvpull_ticket_group){
			.block_tokens = scheduler->group_tokens[group],
			.first_index = from->first_index,
			.block_count = from->block_count,
			.first_id = blocks,
		};
		if (from->block_count && !is_one)
			memcpy(scheduler->block_ids + blocks, from->block_ids,
			       from->block_count * sizeof(uint32_t));
		blocks += from->block_count;
	}
	ticket->group_count = finish->group_count;
	return blocks && kvpull_scheduler_may_hold(scheduler, request, finish) ?
		       0 :
		       KVPULL_EINVAL;
}

static void fill_ranks(const struct kvpull_scheduler *scheduler)
{
	struct kvpull_ticket *ticket = scheduler->ticket;
	uint32_t rank;

	ticket->rank_count = scheduler->rank_count;
	for (rank = 0; rank < scheduler->rank_count; rank++) {
		const struct kvpull_rank_info *info =
			&scheduler->ranks[rank].info;
		struct kvpull_ticket_rank *to = &ticket->ranks[rank];

		to->incarnation = info->incarnation;
		to->tag = kvpull_ticket_tag(info->secret, ticket->slot,
					    ticket->generation);
		memcpy(to->address, info->address, sizeof(to->address));
	}
}

/* The ticket of this hold, as the caller's text. 0, or as the encoder says. */
static int encode_ticket(struct kvpull_scheduler *scheduler,
			 const struct kvpull_scheduler_request *request,
			 const struct kvpull_slot_take *take,
			 struct kvpull_finish *finish)
{
	struct kvpull_ticket *ticket = scheduler->ticket;
	const int ready = (finish->flags & KVPULL_FINISH_READY_NEEDED) != 0;

	if (finish->payload_bytes > KVPULL_PAYLOAD_BYTES_MAX ||
	    (finish->payload_bytes && !finish->payload) ||
	    fill_groups(scheduler, request, finish) != 0)
		return KVPULL_EINVAL;
	ticket->version = scheduler->config.wire_emit;
	ticket->generation = take->generation;
	ticket->slot = take->slot;
	ticket->flags = ready ? KVPULL_TICKET_READY_NEEDED : 0;
	ticket->prompt_tokens = request->prompt_tokens;
	if (finish->computed_tokens < ticket->prompt_tokens)
		ticket->prompt_tokens = finish->computed_tokens;
	ticket->last_block_bytes = finish->last_block_bytes;
	ticket->payload_bytes = finish->payload_bytes;
	if (finish->payload_bytes)
		memcpy(ticket->payload, finish->payload, finish->payload_bytes);
	memcpy(ticket->engine_id, scheduler->engine_id,
	       sizeof(ticket->engine_id));
	memcpy(ticket->compat, scheduler->compat, sizeof(ticket->compat));
	memcpy(ticket->digest, request->digest, sizeof(ticket->digest));
	memcpy(ticket->trace, request->trace, sizeof(ticket->trace));
	fill_ranks(scheduler);
	return kvpull_ticket_encode(
		ticket, scheduler->demand.ticket_key, scheduler->ticket_bytes,
		finish->ticket, finish->ticket_capacity, &finish->ticket_bytes);
}

/* Generations from here on are new to every rank; slots below are everywhere. */
static void bounds_of_ranks(const struct kvpull_scheduler *scheduler,
			    uint64_t *floor, uint32_t *slot_count)
{
	uint32_t rank;

	*floor = kvpull_half_floor(scheduler->outbox.incarnation);
	*slot_count = scheduler->config.max_holds;
	for (rank = 0; rank < scheduler->rank_count; rank++) {
		const struct kvpull_rank_info *info =
			&scheduler->ranks[rank].info;

		if (info->generation_floor > *floor)
			*floor = info->generation_floor;
		if (info->slot_count < *slot_count)
			*slot_count = info->slot_count;
	}
}

/* The log takes the HOLD and the store the text, or neither. */
static int commit_hold(struct kvpull_scheduler *scheduler,
		       struct kvpull_slot_take *take,
		       const struct kvpull_finish *finish)
{
	struct kvpull_command command = {
		.kind = KVPULL_COMMAND_HOLD,
		.slot = take->slot,
		.key = take->key,
		.generation = take->generation,
		.flags = scheduler->ticket->flags,
		.blocks = scheduler->ticket->ids.count,
	};

	kvpull_step_label(command.label, take->label);
	take->text = kvpull_texts_put(&scheduler->texts, finish->ticket,
				      finish->ticket_bytes);
	if (take->text == KVPULL_NONE)
		return KVPULL_EFULL;
	if (kvpull_outbox_put(&scheduler->outbox, &command) != 0) {
		kvpull_texts_release(&scheduler->texts, take->text);
		return KVPULL_EFULL;
	}
	kvpull_slots_take(&scheduler->slots, take);
	return 0;
}

static int take_hold(struct kvpull_scheduler *scheduler,
		     const struct kvpull_scheduler_request *request,
		     struct kvpull_finish *finish, uint64_t parent_key,
		     uint64_t now_ns)
{
	struct kvpull_slot_take take = {
		.key = request->key,
		.parent_key = parent_key,
		.now_ns = now_ns,
		.label = request->label,
	};
	uint32_t slot_count;
	uint64_t floor;
	int code;

	bounds_of_ranks(scheduler, &floor, &slot_count);
	if (kvpull_slots_peek(&scheduler->slots, slot_count, floor, &take)) {
		scheduler->counts.no_slot++;
		if (may_say(scheduler, KVPULL_FULL_HOLDS, now_ns))
			kvpull_warn(
				scheduler->log,
				"request %s key %" PRIu64
				" is not held: %u holds are the most there can be; kvpull_top says who keeps them, or raise max_holds",
				kvpull_log_label(request->label), request->key,
				slot_count);
		return KVPULL_FINISH_FREE;
	}
	code = encode_ticket(scheduler, request, &take, finish);
	if (code == KVPULL_ETOOSMALL)
		return code;
	if (code) {
		finish->ticket_bytes = 0;
		kvpull_warn(
			scheduler->log,
			"request %s key %" PRIu64
			" is not held: its blocks or its payload make no ticket",
			kvpull_log_label(request->label), request->key);
		return KVPULL_FINISH_FREE;
	}
	if (commit_hold(scheduler, &take, finish) != 0) {
		finish->ticket_bytes = 0;
		scheduler->counts.no_slot++;
		if (may_say(scheduler, KVPULL_FULL_LOG, now_ns))
			kvpull_warn(
				scheduler->log,
				"request %s key %" PRIu64
				" is not held: step_log_mib %u is reached: raise it, or look for a rank that takes no steps or whose results are not taken",
				kvpull_log_label(request->label), request->key,
				scheduler->config.step_log_mib);
		return KVPULL_FINISH_FREE;
	}
	if (parent_key)
		kvpull_families_add(&scheduler->families, parent_key,
				    request->digest, take.text);
	scheduler->counts.holds_taken++;
	return KVPULL_FINISH_HELD;
}

int kvpull_scheduler_ranks_missing(const struct kvpull_scheduler *scheduler)
{
	int missing = 0;
	uint32_t rank;

	/* Without an address it has no memory to read yet. */
	for (rank = 0; rank < scheduler->rank_count; rank++)
		if (!scheduler->ranks[rank].info.incarnation ||
		    !scheduler->ranks[rank].info.address[0])
			missing++;
	return missing;
}

/* The producer's part of a finish: who owns the blocks now. */
static int finish_producer(struct kvpull_scheduler *scheduler,
			   const struct kvpull_scheduler_request *request,
			   struct kvpull_finish *finish, uint64_t now_ns)
{
	const int alone = (request->flags & KVPULL_REQUEST_ALONE) ||
			  scheduler->config.siblings_alone;
	const uint64_t parent_key = alone ? 0 : request->parent_key;
	uint32_t text = KVPULL_NONE;

	if (!(request->flags & KVPULL_REQUEST_WANTS_HOLD) ||
	    (finish->reason != KVPULL_FINISH_LENGTH &&
	     finish->reason != KVPULL_FINISH_STOP) ||
	    !finish->computed_tokens ||
	    request->user.state == KVPULL_USER_PULLING)
		return KVPULL_FINISH_FREE;
	if (request->changed) {
		scheduler->counts.changed++;
		return KVPULL_FINISH_FREE;
	}
	if (parent_key)
		text = kvpull_families_find(&scheduler->families, parent_key,
					    request->digest);
	if (text != KVPULL_NONE) {
		if (kvpull_texts_give(&scheduler->texts, text, finish->ticket,
				      finish->ticket_capacity,
				      &finish->ticket_bytes))
			return KVPULL_ETOOSMALL;
		scheduler->counts.family_members++;
		return KVPULL_FINISH_FREE;
	}
	if (scheduler->draining)
		return KVPULL_FINISH_FREE;
	if (kvpull_scheduler_ranks_missing(scheduler)) {
		scheduler->counts.not_ready++;
		if (may_say(scheduler, KVPULL_RANKS_UNKNOWN_HOLD, now_ns))
			ranks_log(scheduler, request, "held");
		return KVPULL_FINISH_FREE;
	}
	return take_hold(scheduler, request, finish, parent_key, now_ns);
}

/* Not in the table: held already, or never seen, or finished before. */
static int finish_unknown(struct kvpull_scheduler *scheduler,
			  const struct kvpull_finish *finish)
{
	const uint32_t slot = kvpull_slots_find(&scheduler->slots, finish->key);

	scheduler->counts.unknown_keys++;
	if (slot == KVPULL_NONE)
		return KVPULL_FINISH_FREE;
	if (finish->reason == KVPULL_FINISH_ABORT &&
	    scheduler->config.abort_revokes)
		kvpull_slots_end(&scheduler->slots, slot, KVPULL_END_ABORTED);
	return KVPULL_FINISH_HELD; /* still: until each rank has reported */
}

int kvpull_scheduler_request_finished(struct kvpull_scheduler *scheduler,
				      struct kvpull_finish *finish,
				      uint64_t now_ns)
{
	struct kvpull_scheduler_request *request;
	int answer;

	kvpull_scheduler_tick(scheduler, now_ns);
	finish->ticket_bytes = 0;
	if (!finish->ticket)
		finish->ticket_capacity = 0;
	request = kvpull_scheduler_find(scheduler, finish->key);
	if (!request || request->finished)
		return finish_unknown(scheduler, finish);
	answer = finish_producer(scheduler, request, finish, now_ns);
	if (answer < 0)
		return answer;
	if (finish->reason == KVPULL_FINISH_REJECT)
		scheduler->counts.rejects++;
	finish_consumer(scheduler, request);
	return answer;
}

int kvpull_scheduler_request_rejected(struct kvpull_scheduler *scheduler,
				      const void *ticket, size_t ticket_bytes,
				      uint64_t now_ns)
{
	int code;

	kvpull_scheduler_tick(scheduler, now_ns);
	code = kvpull_demand_decode(&scheduler->demand, ticket, ticket_bytes);
	if (!code)
		code = kvpull_demand_reject(&scheduler->demand);
	if (!code)
		scheduler->counts.rejects++;
	return code == KVPULL_EFULL ?
		       tickets_full(scheduler, "that was rejected", now_ns) :
		       code;
}

int kvpull_scheduler_ticket_get(struct kvpull_scheduler *scheduler,
				uint64_t key, void *ticket, size_t capacity,
				size_t *ticket_bytes)
{
	const uint32_t slot = kvpull_slots_find(&scheduler->slots, key);

	return slot == KVPULL_NONE ?
		       KVPULL_ENOKEY :
		       kvpull_texts_give(&scheduler->texts,
					 scheduler->slots.slots[slot].text,
					 ticket, capacity, ticket_bytes);
}

int kvpull_scheduler_payload_get(struct kvpull_scheduler *scheduler,
				 uint64_t key, void *payload, size_t capacity,
				 size_t *payload_bytes)
{
	const struct kvpull_scheduler_request *request =
		kvpull_scheduler_find(scheduler, key);

	return request ?
		       kvpull_demand_payload(&scheduler->demand, &request->user,
					     payload, capacity, payload_bytes) :
		       KVPULL_ENOKEY;
}
