/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer's tickets.
 *
 * A ticket is open, then spent (nothing is loaded from it any more: it was
 * pulled, expired, or given back on some rank), then released, then
 * remembered for a lease, then forgotten.
 *
 *   event                          open                    spent
 *   a user asks                    LOAD, or WAIT while     NOTHING, the user is
 *                                  another one loads       done
 *   pull ends well, it released    spent, released         -
 *   pull ends well, it did not     spent, or, where each   (stays)
 *                                  user pulls, open
 *   pull ends EEXPIRED on a rank   spent                   (stays)
 *   pull fails otherwise           the next user may load; (stays)
 *                                  spent if some rank's
 *                                  worker has released
 *   last user is done              spent, released         released
 *   no pull is open                -                       released
 *
 * A PULL with KVPULL_FLAG_RELEASE releases on each rank by itself after success
 * or EEXPIRED; a RELEASE on top of that is a no-op for the worker. The RELEASE
 * comes after all PULLs of the ticket in the log, but for a PULL that carries a
 * reason: workers report that FAILED without looking at the ticket.
 *
 * A producer waits for no rank whose worker it saw go, and the next worker may
 * call it for this very pull, when its siblings are done. So once a worker of
 * several was replaced no PULL releases: the RELEASE follows, when each rank
 * has read.
 */
#include <inttypes.h>
#include <string.h>

#include "plugin/scheduler/demand.h"
#include "plugin/scheduler/offer.h"

#define TICKET_SPENT 1u
#define TICKET_RELEASED 2u
#define TICKET_RELEASING 4u /* an open pull releases it */
#define TICKET_FOREIGN 8u   /* for another model or layout */
#define TICKET_READY 16u

#define USER_RELEASES 1u /* its pull releases the ticket */
#define USER_EXPIRED 2u  /* a rank reported EEXPIRED */
#define USER_PULLED 4u
#define USER_CHANGED 8u /* weights or adapter, before it was used */
#define USER_USED 16u   /* its engine goes on with what was loaded */

/* Places where a ticket's name may be in the map: names are not ours. */
#define IDENTITY_PROBES 4u

void kvpull_demand_init(struct kvpull_demand *demand, uint32_t count_max,
			struct kvpull_arena *arena)
{
	KVPULL_ARENA_TAKE(arena, demand->tickets, count_max);
	kvpull_index_pool_init(&demand->pool, count_max, arena);
	kvpull_index_list_init(&demand->releasing, count_max, arena);
	kvpull_index_list_init(&demand->remembered, count_max, arena);
	kvpull_map_init(&demand->by_identity, count_max, arena);
	demand->remote_ids = kvpull_arena_take(arena, KVPULL_TICKET_BLOCKS_MAX,
					       sizeof(uint32_t));
	demand->local_ids = kvpull_arena_take(arena, KVPULL_TICKET_BLOCKS_MAX,
					      sizeof(uint32_t));
	demand->count_max = count_max;
	demand->serial_next = 1;
}

static uint64_t identity(const struct kvpull_ticket *ticket, uint32_t probe)
{
	const uint64_t mixed = kvpull_index_mix(
		kvpull_index_mix(ticket->ranks[0].incarnation, ticket->slot),
		ticket->generation + probe);

	return mixed ? mixed : 1;
}

static uint32_t find(const struct kvpull_demand *demand)
{
	const struct kvpull_ticket *ticket = demand->scratch;
	uint32_t probe;

	for (probe = 0; probe < IDENTITY_PROBES; probe++) {
		const uint32_t index = kvpull_map_get(&demand->by_identity,
						      identity(ticket, probe));
		const struct kvpull_demand_ticket *entry;

		if (index == KVPULL_NONE)
			continue;
		entry = &demand->tickets[index];
		if (entry->incarnation == ticket->ranks[0].incarnation &&
		    entry->slot == ticket->slot &&
		    entry->generation == ticket->generation)
			return index;
	}
	return KVPULL_NONE;
}

static void forget(struct kvpull_demand *demand, uint32_t index)
{
	struct kvpull_demand_ticket *entry = &demand->tickets[index];

	kvpull_check(demand->log, !entry->user_count && !entry->pull_count);
	kvpull_index_list_remove(&demand->remembered, index);
	kvpull_map_remove(&demand->by_identity, entry->map_key);
	entry->incarnation = 0;
	kvpull_index_pool_give(&demand->pool, index);
}

static int put_claim(struct kvpull_demand *demand,
		     const struct kvpull_user *reader)
{
	const struct kvpull_ticket *ticket = demand->scratch;
	struct kvpull_command command = {
		.kind = KVPULL_COMMAND_CLAIM,
		.slot = ticket->slot,
		.generation = ticket->generation,
		.ticket_serial = demand->serial_next,
		.rank_count = ticket->rank_count,
		.ranks = ticket->ranks,
		.priority = reader ? reader->priority : 0,
	};

	kvpull_step_label(command.label, reader ? reader->label : NULL);
	return kvpull_outbox_put(demand->outbox, &command);
}

/* 0, or the RELEASE has to wait for room: no other stranger meanwhile. */
static int stranger_release(struct kvpull_demand *demand)
{
	const struct kvpull_command command = {
		.kind = KVPULL_COMMAND_RELEASE,
		.ticket_serial = demand->stranger_serial,
	};
	const int code = demand->stranger_serial ?
				 kvpull_outbox_put(demand->outbox, &command) :
				 0;

	if (!code)
		demand->stranger_serial = 0;
	return code;
}

static int strangers_are_many(struct kvpull_demand *demand)
{
	if (demand->now_ns - demand->strangers_ns >= KVPULL_NS_PER_S) {
		demand->strangers_ns = demand->now_ns;
		demand->stranger_count = 0;
	}
	return demand->stranger_count >= KVPULL_STRANGERS_MAX;
}

/*
 * The ticket is whole, but its producer and we share no key: it refuses the
 * worker's connection, or the worker refuses it, and the ticket is given back
 * on that call. It joins no tickets here, whose names are those of our key.
 */
static void stranger_give(struct kvpull_demand *demand)
{
	if (stranger_release(demand) || strangers_are_many(demand) ||
	    put_claim(demand, NULL))
		return;
	demand->stranger_serial = demand->serial_next++;
	demand->stranger_count++;
	(void)stranger_release(demand);
}

int kvpull_demand_decode(struct kvpull_demand *demand, const void *text,
			 size_t text_bytes)
{
	int code = KVPULL_ENOTICKET;

	if (text && text_bytes)
		code = kvpull_ticket_decode(
			(const char *)text, text_bytes, demand->ticket_key,
			demand->scratch_bytes, demand->scratch);
	if (!code || code == KVPULL_ENOTMINE)
		return code;
	demand->counts->bad_tickets++;
	if (code == KVPULL_EVERSION) {
		kvpull_warn(
			demand->log,
			"ticket of %zu bytes refused: another version than ours, %u (by %s)",
			text_bytes, KVPULL_WIRE_VERSION,
			demand->scratch->unknown[0] ? demand->scratch->unknown :
						      "its text");
		return KVPULL_ENOTICKET;
	}
	kvpull_warn(demand->log, "ticket of %zu bytes refused: %s", text_bytes,
		    code != KVPULL_EAUTH ?
			    "incomplete or damaged" :
		    demand->ticket_key ?
			    "not made with our key" :
			    "made with a key_file, which this side lacks");
	if (code == KVPULL_EAUTH)
		stranger_give(demand);
	return KVPULL_ENOTICKET;
}

static uint32_t ticket_flags(const struct kvpull_demand *demand)
{
	const struct kvpull_ticket *ticket = demand->scratch;
	uint32_t flags = 0;

	if (ticket->flags & KVPULL_TICKET_READY_NEEDED)
		flags |= TICKET_READY;
	if (memcmp(ticket->compat, demand->compat, sizeof(demand->compat)))
		flags |= TICKET_FOREIGN;
	return flags;
}

/* The decoded ticket, seen for the first time. */
static int claim(struct kvpull_demand *demand, const struct kvpull_user *user,
		 uint32_t *claimed)
{
	const struct kvpull_ticket *ticket = demand->scratch;
	struct kvpull_demand_ticket *entry;
	uint64_t map_key = 0;
	uint32_t probe;
	uint32_t index;
	uint32_t kept;

	if (kvpull_index_pool_peek(&demand->pool) == KVPULL_NONE &&
	    demand->remembered.count)
		forget(demand, demand->remembered.first);
	for (probe = IDENTITY_PROBES; probe-- > 0;)
		if (kvpull_map_get(&demand->by_identity,
				   identity(ticket, probe)) == KVPULL_NONE)
			map_key = identity(ticket, probe);
	index = kvpull_index_pool_peek(&demand->pool);
	if (index == KVPULL_NONE || !map_key)
		return KVPULL_EFULL;
	kept = kvpull_texts_put(demand->texts, demand->scratch_bytes,
				ticket->body_bytes);
	if (kept == KVPULL_NONE)
		return KVPULL_EFULL;
	if (put_claim(demand, user) ||
	    kvpull_map_set(&demand->by_identity, map_key, index)) {
		kvpull_texts_release(demand->texts, kept);
		return KVPULL_EFULL;
	}
	(void)kvpull_index_pool_take(&demand->pool);
	entry = &demand->tickets[index];
	*entry = (struct kvpull_demand_ticket){
		.incarnation = ticket->ranks[0].incarnation,
		.generation = ticket->generation,
		.serial = demand->serial_next++,
		.map_key = map_key,
		.slot = ticket->slot,
		.kept = kept,
		.prompt_tokens = ticket->prompt_tokens,
		.payload_bytes = ticket->payload_bytes,
		.flags = ticket_flags(demand),
	};
	memcpy(entry->digest, ticket->digest, sizeof(entry->digest));
	demand->live_count++;
	demand->counts->tickets_seen++;
	*claimed = index;
	return 0;
}

/* Nothing is read by its body any more: those that are remembered lack it. */
static void release(struct kvpull_demand *demand, uint32_t index)
{
	struct kvpull_demand_ticket *entry = &demand->tickets[index];

	entry->flags |= TICKET_SPENT | TICKET_RELEASED;
	kvpull_texts_release(demand->texts, entry->kept);
	entry->kept = KVPULL_NONE;
	demand->live_count--;
}

/* After any change of a ticket: is it over, and can it be remembered only? */
static void settle(struct kvpull_demand *demand, uint32_t index)
{
	struct kvpull_demand_ticket *entry = &demand->tickets[index];

	if (entry->pull_count)
		return;
	if (!(entry->flags & TICKET_RELEASED) &&
	    (!entry->user_count || (entry->flags & TICKET_SPENT))) {
		release(demand, index);
		kvpull_index_list_push(&demand->releasing, index);
	}
	if (!entry->user_count && (entry->flags & TICKET_RELEASED) &&
	    !demand->releasing.links[index].linked) {
		entry->remembered_ns = demand->now_ns;
		kvpull_index_list_push(&demand->remembered, index);
	}
}

static void state_set(struct kvpull_demand *demand, struct kvpull_user *user,
		      enum kvpull_user_state state)
{
	if (user->state == KVPULL_USER_CHOSEN)
		demand->chosen_count--;
	if (state == KVPULL_USER_CHOSEN)
		demand->chosen_count++;
	user->state = state;
}

static void finish_user(struct kvpull_demand *demand, struct kvpull_user *user,
			uint64_t key)
{
	struct kvpull_demand_ticket *entry = &demand->tickets[user->ticket];

	kvpull_check(demand->log, entry->user_count > 0);
	entry->user_count--;
	if (entry->loader == key)
		entry->loader = 0;
	state_set(demand, user, KVPULL_USER_DONE);
	settle(demand, user->ticket);
}

int kvpull_demand_join(struct kvpull_demand *demand, struct kvpull_user *user,
		       const char *label, int32_t priority)
{
	const struct kvpull_user joined = { .label = label,
					    .priority = priority };
	uint32_t index = find(demand);
	int code;

	if (index == KVPULL_NONE) {
		code = claim(demand, &joined, &index);
		if (code)
			return code;
	} else if (!(demand->tickets[index].flags & TICKET_RELEASED) &&
		   !kvpull_texts_are(demand->texts, demand->tickets[index].kept,
				     demand->scratch_bytes,
				     demand->scratch->body_bytes)) {
		demand->counts->bad_tickets++;
		return KVPULL_ENOTICKET;
	}
	*user = joined;
	user->ticket = index;
	user->state = KVPULL_USER_DONE;
	user->code = demand->tickets[index].code;
	if (demand->tickets[index].flags & TICKET_RELEASED)
		return 0;
	user->state = KVPULL_USER_WAITING;
	user->code = 0;
	demand->tickets[index].user_count++;
	return 0;
}

int kvpull_demand_reject(struct kvpull_demand *demand)
{
	uint32_t index = find(demand);
	int code;

	if (index != KVPULL_NONE)
		return 0; /* its users, or its release, see to it */
	code = claim(demand, NULL, &index);
	if (!code)
		settle(demand, index);
	return code;
}

/*
 * Return: what is wrong with the ticket, in words that come before the request;
 * NULL: nothing.
 */
static const char *mismatch_of(const struct kvpull_demand_ticket *entry,
			       const struct kvpull_demand_ask *ask)
{
	return entry->flags & TICKET_FOREIGN ?
		       "is for another model than" :
		       kvpull_prompt_mismatch(entry->digest, ask->digest);
}

int kvpull_demand_match(struct kvpull_demand *demand, struct kvpull_user *user,
			const struct kvpull_demand_ask *ask, uint32_t *tokens)
{
	struct kvpull_demand_ticket *entry;
	const char *mismatch;
	uint32_t beyond;

	if (user->state == KVPULL_USER_PULLING)
		return KVPULL_MATCH_WAIT;
	if (user->state != KVPULL_USER_WAITING &&
	    user->state != KVPULL_USER_CHOSEN)
		return KVPULL_MATCH_NOTHING;
	if (user->flags & USER_CHANGED) {
		demand->counts->changed++;
		finish_user(demand, user, ask->key);
		return KVPULL_MATCH_NOTHING;
	}
	entry = &demand->tickets[user->ticket];
	mismatch = mismatch_of(entry, ask);
	if (mismatch) {
		demand->counts->mismatches++;
		kvpull_warn(demand->log,
			    "ticket slot %u generation %" PRIu64
			    " %s request key %" PRIu64 ": nothing is loaded",
			    entry->slot, entry->generation, mismatch, ask->key);
		user->code = entry->flags & TICKET_FOREIGN ? KVPULL_EREJECTED :
							     KVPULL_EMISMATCH;
		finish_user(demand, user, ask->key);
		return KVPULL_MATCH_NOTHING;
	}
	if (entry->flags & TICKET_SPENT) {
		user->code = entry->code;
		finish_user(demand, user, ask->key);
		return KVPULL_MATCH_NOTHING;
	}
	beyond = kvpull_offer_tokens(entry->prompt_tokens, ask->prompt_tokens,
				     ask->local_tokens, demand->has_state);
	if (!beyond) {
		/* Not for good: what is local may be evicted before the end. */
		if (entry->loader == ask->key)
			entry->loader = 0;
		state_set(demand, user, KVPULL_USER_WAITING);
		return KVPULL_MATCH_NOTHING;
	}
	if ((entry->flags & TICKET_RELEASING) ||
	    (entry->loader && entry->loader != ask->key))
		return KVPULL_MATCH_WAIT;
	/* Workers have no place for more; a chosen user has been given one. */
	if (user->state != KVPULL_USER_CHOSEN &&
	    demand->chosen_count + demand->pull_count >= demand->pulls_max)
		return KVPULL_MATCH_WAIT;
	if (demand->share_prefix)
		entry->loader = ask->key;
	state_set(demand, user, KVPULL_USER_CHOSEN);
	user->local_tokens = ask->local_tokens;
	user->tokens = beyond;
	*tokens = beyond;
	return KVPULL_MATCH_LOAD;
}

/*
 * Pairs by logical index, never by position in a list. All that the ticket has
 * go on as they came, and the blocks of one group as they lie.
 */
static int map_blocks(struct kvpull_demand *demand,
		      const struct kvpull_demand_ticket *entry,
		      const struct kvpull_allocation *allocation,
		      struct kvpull_command *command)
{
	struct kvpull_ticket *ticket = demand->scratch;
	const uint32_t total = kvpull_kept_wanted(allocation);
	uint32_t *remote_ids = demand->remote_ids;
	uint32_t pairs = 0;
	uint32_t group;

	if (kvpull_kept_get(demand->texts, entry->kept, demand->scratch_bytes,
			    ticket) ||
	    allocation->group_count != ticket->group_count)
		return KVPULL_ETRUNCATED;
	if (total > demand->pull_blocks_max)
		return KVPULL_EFULL;
	if (total == ticket->ids.count) {
		command->remote = ticket->ids;
		remote_ids = NULL;
	}
	for (group = 0; group < ticket->group_count; group++) {
		const struct kvpull_blocks *local = &allocation->groups[group];
		const uint32_t count = local->block_count;

		command->group_first[group] = pairs;
		if (!count)
			continue;
		if (kvpull_kept_ids(ticket, group, local,
				    remote_ids ? remote_ids + pairs : NULL))
			return KVPULL_ETRUNCATED;
		if (count == total)
			command->local_ids = local->block_ids;
		else
			memcpy(demand->local_ids + pairs, local->block_ids,
			       count * sizeof(*local->block_ids));
		pairs += count;
	}
	command->group_count = ticket->group_count;
	command->group_first[group] = pairs;
	return 0;
}

static int command_pull(struct kvpull_demand *demand, struct kvpull_user *user,
			const struct kvpull_allocation *allocation)
{
	struct kvpull_demand_ticket *entry = &demand->tickets[user->ticket];
	struct kvpull_command command = {
		.kind = KVPULL_COMMAND_PULL,
		.key = allocation->key,
		.ticket_serial = entry->serial,
		.priority = user->priority,
		.remote_ids = demand->remote_ids,
		.local_ids = demand->local_ids,
	};
	int code;

	if (user->flags & USER_CHANGED)
		return KVPULL_EMISMATCH;
	if (entry->flags & TICKET_SPENT)
		return KVPULL_EEXPIRED;
	code = map_blocks(demand, entry, allocation, &command);
	if (code)
		return code;
	if (!demand->was_replaced &&
	    (demand->share_prefix || entry->user_count == 1))
		command.flags |= KVPULL_FLAG_RELEASE;
	if (entry->flags & TICKET_READY)
		command.flags |= KVPULL_FLAG_READY;
	kvpull_step_label(command.label, user->label);
	code = kvpull_outbox_put(demand->outbox, &command);
	if (code)
		return code;
	if (command.flags & KVPULL_FLAG_RELEASE) {
		user->flags |= USER_RELEASES;
		entry->flags |= TICKET_RELEASING;
	}
	demand->counts->pulls_commanded++;
	return 0;
}

int kvpull_demand_pull(struct kvpull_demand *demand, struct kvpull_user *user,
		       const struct kvpull_allocation *allocation)
{
	int code;

	if (user->state == KVPULL_USER_PULLING || (user->flags & USER_PULLED))
		return 0;
	if (user->state != KVPULL_USER_CHOSEN ||
	    !kvpull_kept_wanted(allocation))
		return KVPULL_EINVAL;
	code = command_pull(demand, user, allocation);
	state_set(demand, user, KVPULL_USER_PULLING);
	user->flags |= USER_PULLED;
	demand->tickets[user->ticket].pull_count++;
	demand->pull_count++;
	return code;
}

int kvpull_demand_refuse(struct kvpull_demand *demand, uint64_t key,
			 int32_t reason)
{
	const struct kvpull_command command = {
		.kind = KVPULL_COMMAND_PULL,
		.key = key,
		.reason = reason,
		.group_count = 1,
		.remote_ids = demand->remote_ids,
		.local_ids = demand->local_ids,
	};

	return kvpull_outbox_put(demand->outbox, &command);
}

void kvpull_demand_leave(struct kvpull_demand *demand, struct kvpull_user *user,
			 uint64_t key)
{
	if (user->state == KVPULL_USER_WAITING ||
	    user->state == KVPULL_USER_CHOSEN)
		finish_user(demand, user, key);
}

void kvpull_demand_change(struct kvpull_demand *demand,
			  struct kvpull_user *user, uint64_t key)
{
	if (user->state == KVPULL_USER_CHOSEN ||
	    (user->flags & (USER_PULLED | USER_USED)) == USER_PULLED)
		user->flags |= USER_CHANGED;
	else if (user->state != KVPULL_USER_WAITING)
		return;
	user->code = KVPULL_EMISMATCH;
	if (user->state != KVPULL_USER_WAITING)
		return;
	demand->counts->changed++;
	finish_user(demand, user, key);
}

int kvpull_demand_use(struct kvpull_user *user)
{
	if (user->flags & USER_CHANGED)
		return KVPULL_EMISMATCH;
	user->flags |= USER_USED;
	return 0;
}

static void end_pull(struct kvpull_demand *demand, struct kvpull_user *user,
		     uint64_t key)
{
	struct kvpull_demand_ticket *entry = &demand->tickets[user->ticket];
	const int releases = (user->flags & USER_RELEASES) != 0;
	const int was_spent = (entry->flags & TICKET_SPENT) != 0;

	entry->pull_count--;
	demand->pull_count--;
	if (user->flags & USER_CHANGED) {
		demand->counts->changed++;
		user->code = KVPULL_EMISMATCH;
	}
	if (releases)
		entry->flags &= ~TICKET_RELEASING;
	if (user->code)
		demand->counts->pulls_failed++;
	else
		demand->counts->pulls_done++;
	if (!user->code && entry->payload_bytes && entry->kept != KVPULL_NONE)
		kvpull_payload_keep(&user->payload, demand->texts, entry->kept,
				    demand->scratch, demand->scratch_bytes);
	if (releases && user->ended == demand->ranks_all &&
	    !(entry->flags & TICKET_RELEASED))
		release(demand, user->ticket);
	else if ((user->flags & USER_EXPIRED) || (releases && user->ended) ||
		 (demand->share_prefix && !user->code))
		entry->flags |= TICKET_SPENT;
	if (!was_spent && (entry->flags & TICKET_SPENT))
		entry->code = user->code;
	finish_user(demand, user, key);
}

int kvpull_demand_payload(const struct kvpull_demand *demand,
			  const struct kvpull_user *user, void *bytes,
			  size_t capacity, size_t *byte_count)
{
	if (user->state == KVPULL_USER_PULLING)
		return KVPULL_EAGAIN;
	if (user->code)
		return user->code;
	if (user->state != KVPULL_USER_DONE || !user->reported)
		return KVPULL_ENOTICKET;
	return kvpull_payload_get(&user->payload, demand->texts, bytes,
				  capacity, byte_count);
}

int kvpull_demand_report(struct kvpull_demand *demand, struct kvpull_user *user,
			 uint32_t rank, const struct kvpull_result *result,
			 uint32_t *ended)
{
	const uint64_t bit = UINT64_C(1) << rank;

	if (user->state != KVPULL_USER_PULLING || (user->reported & bit))
		return KVPULL_ENOKEY;
	user->reported |= bit;
	if (!result->reason || result->reason == KVPULL_EEXPIRED)
		user->ended |= bit;
	if (result->reason == KVPULL_EEXPIRED)
		user->flags |= USER_EXPIRED;
	if (!user->code)
		user->code = result->reason;
	*ended = user->reported == demand->ranks_all;
	if (*ended)
		end_pull(demand, user, result->key);
	return 0;
}

void kvpull_demand_rank_restart(struct kvpull_demand *demand)
{
	uint32_t index;

	demand->was_replaced = demand->ranks_all != 1;
	for (index = 0; index < demand->pool.touched; index++) {
		if (!demand->tickets[index].incarnation)
			continue;
		if (!(demand->tickets[index].flags & TICKET_SPENT))
			demand->tickets[index].code = KVPULL_EABORTED;
		demand->tickets[index].flags |= TICKET_SPENT;
		settle(demand, index);
	}
}

void kvpull_demand_flush(struct kvpull_demand *demand)
{
	if (stranger_release(demand))
		return;
	while (demand->releasing.count) {
		const uint32_t index = demand->releasing.first;
		const struct kvpull_command command = {
			.kind = KVPULL_COMMAND_RELEASE,
			.ticket_serial = demand->tickets[index].serial,
		};

		if (kvpull_outbox_put(demand->outbox, &command) != 0)
			return;
		kvpull_index_list_remove(&demand->releasing, index);
		settle(demand, index);
	}
}

void kvpull_demand_expire(struct kvpull_demand *demand, uint64_t now_ns)
{
	demand->now_ns = now_ns;
	while (demand->remembered.count) {
		const uint32_t index = demand->remembered.first;
		const uint64_t from_ns = demand->tickets[index].remembered_ns;

		if (now_ns < from_ns || now_ns - from_ns < demand->lease_ns)
			return;
		forget(demand, index);
	}
}

void kvpull_demand_forget(struct kvpull_demand *demand)
{
	while (demand->remembered.count)
		forget(demand, demand->remembered.first);
}
