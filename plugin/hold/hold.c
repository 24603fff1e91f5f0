/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hold table. Invariants:
 *  - a hold that ended has its revocation entry written in the same call, and
 *    is reported only after a fence that came later (publish);
 *  - a slot's generation only grows; each generation is reported at most once;
 *  - live[] has the bits of exactly the staged and held slots;
 *  - an instance is counted in as many refs as claims name it;
 *  - nothing but counters changes for a notification whose tag is wrong;
 *  - generations up to `floor` are revoked in every entry, and never staged.
 *
 * Two clocks. Leases and graces run on the lease clock (missed.h): it stands
 * still while the producer does. hold_max runs on now_ns. The expiry
 * heap holds now_ns keys: shift_ns only grows, so they stay lower bounds.
 */
#include "plugin/hold/hold.h"

#include <string.h>

#include "plugin/hold/hold_state.h"

/* Ends whose holds are fetched before they are reported. */
#define REPORTS_AHEAD 8u

/* Claims. */

static struct claim *claim_find(struct hold *hold, uint32_t instance)
{
	uint32_t i;

	for (i = 0; i < hold->claim_count; i++)
		if (hold->claims[i].instance == instance)
			return &hold->claims[i];
	return NULL;
}

static void claims_clear(struct kvpull_holds *holds, struct hold *hold)
{
	while (hold->claim_count) {
		struct claim *claim = &hold->claims[--hold->claim_count];

		kvpull_instances_release(&holds->instances, claim->instance);
		*claim = (struct claim){ 0 };
	}
	/* In the hold's second line, which stays untouched otherwise. */
	if (hold->is_wide)
		memset(hold->claimed_high, 0, sizeof(hold->claimed_high));
	hold->is_wide = 0;
}

static int is_complete(const struct kvpull_holds *holds,
		       const struct hold *hold)
{
	uint32_t i;

	for (i = 0; i < hold->claim_count; i++) {
		const struct claim *claim = &hold->claims[i];
		const struct kvpull_instance *instance =
			&holds->instances.all[claim->instance];

		if ((claim->released | kvpull_instance_dead(instance)) !=
		    kvpull_ranks_all(instance->rank_count))
			return 0;
	}
	return hold->claim_count > 0;
}

/* By the same instance before all of its ranks were gone. */
static int was_claimed_before(const struct kvpull_holds *holds,
			      const struct hold *hold,
			      const struct kvpull_instance *instance)
{
	uint32_t i;

	for (i = 0; i < hold->claim_count; i++) {
		const struct kvpull_instance *other =
			&holds->instances.all[hold->claims[i].instance];

		if (kvpull_instance_is_over(other) && other->id == instance->id)
			return 1;
	}
	return 0;
}

/*
 * A rank that is not connected when its instance first claims owes nothing. If
 * it comes back, it is another worker that was never told of the ticket, or the
 * same one, which claims it itself or has released it already.
 */
static struct claim claim_new(const struct kvpull_holds *holds,
			      const struct hold *hold,
			      const struct hold_input *input)
{
	const struct kvpull_instance *instance =
		&holds->instances.all[input->instance];
	uint64_t released = kvpull_instance_absent(instance);

	if (was_claimed_before(holds, hold, instance))
		released = kvpull_ranks_all(instance->rank_count);
	return (struct claim){ .instance = input->instance,
			       .released = released &
					   ~(UINT64_C(1) << input->rank) };
}

static void note_count(struct kvpull_holds *holds, struct hold *hold,
		       const struct hold_input *input)
{
	const uint64_t bit = UINT64_C(1) << input->rank;
	struct claim *claim = claim_find(hold, input->instance);

	if (!claim && hold->claim_count == KVPULL_CLAIMS_MAX) {
		holds->counts.claims_over++;
		return;
	}
	if (!claim) {
		const struct claim next = claim_new(holds, hold, input);

		claim = &hold->claims[hold->claim_count++];
		*claim = next;
		kvpull_instances_acquire(&holds->instances, input->instance);
	}
	if (hold->state == HOLD_STAGED)
		holds->counts.early++;
	/* Not before its last sign of life: the lease clock was set back since. */
	hold_word_said(
		hold,
		holds->instances.all[input->instance].heard_ns[input->rank]);
	if (input->kind == KVPULL_NOTE_CLAIM) {
		/* Also after a release: it owes a new one. */
		claim->released &= ~bit;
		claim->claimed |= (uint32_t)bit;
		if (bit >> 32) {
			hold->is_wide = 1;
			hold->claimed_high[claim - hold->claims] |=
				(uint32_t)(bit >> 32);
		}
		holds->counts.claims++;
	} else if (claim->released & bit) {
		holds->counts.duplicates++;
	} else {
		claim->released |= bit;
		holds->counts.releases++;
	}
	/*
	 * No RELEASE event if this note ends the hold: the END event names the
	 * claimant.
	 */
	if (hold->state == HOLD_STAGED || hold->claim_count > 1 ||
	    !is_complete(holds, hold))
		hold_show_claim(holds, hold, input);
}

/* Actions. */

static void generation_seen(struct kvpull_holds *holds, uint64_t generation)
{
	if (generation > holds->generation_max)
		holds->generation_max = generation;
}

static void action_take(struct kvpull_holds *holds, uint32_t slot,
			const struct hold_input *input)
{
	struct hold *hold = &holds->holds[slot];

	if (hold->staged != input->generation)
		claims_clear(holds, hold);
	hold->tag = kvpull_ticket_tag(holds->secret, slot, input->generation);
	hold->generation = input->generation;
	hold->key = input->key;
	hold->taken_ns = holds->now_ns;
	hold->word_ns = hold_lease_clock(holds, holds->now_ns);
	/* Relaxed: a mark that is missed here is told to _give() afterwards. */
	hold->is_given =
		holds->given &&
		atomic_load_explicit(&holds->given[slot],
				     memory_order_relaxed) == input->generation;
	hold_given_due(holds, slot);
	generation_seen(holds, input->generation);
	kvpull_check(holds->log,
		     kvpull_map_set(&holds->keys, input->key, slot) == 0);
	holds->counts.taken++;
	hold_show_take(holds, slot);
}

static void action_stage(struct kvpull_holds *holds, struct hold *hold,
			 const struct hold_input *input)
{
	claims_clear(holds, hold);
	hold->staged = input->generation;
	generation_seen(holds, input->generation);
	hold_show_staged(holds, hold);
	note_count(holds, hold, input);
}

static void action_unstage(struct kvpull_holds *holds, uint32_t slot)
{
	struct hold *hold = &holds->holds[slot];

	claims_clear(holds, hold);
	hold->staged = hold->word_ns = 0;
	hold_show_unstaged(holds, slot);
}

/* The one way out: whatever ends a hold comes through here. */
static void action_end(struct kvpull_holds *holds, uint32_t slot,
		       int32_t reason)
{
	struct hold *hold = &holds->holds[slot];

	kvpull_revocation_write(&holds->entries[slot], hold->generation);
	holds->unfenced = 1;
	hold_show_end(holds, slot, reason);
	kvpull_map_remove(&holds->keys, hold->key);
	claims_clear(holds, hold);
	hold->tag = 0;
	hold->is_given = 0;
	hold->reason = reason;
	/* state_set() has counted this end already. */
	*hold_ended(holds, holds->state_counts[HOLD_ENDED] - 1) = slot;
	if (reason == KVPULL_END_RELEASED)
		holds->counts.released++;
	else if (reason == KVPULL_END_EXPIRED)
		holds->counts.expired++;
	else if (reason == KVPULL_END_GIVEN_BACK)
		holds->counts.given_back++;
	else
		holds->counts.revoked++;
}

static void action_report(struct kvpull_holds *holds, uint32_t slot)
{
	struct hold *hold = &holds->holds[slot];

	kvpull_check(holds->log, *hold_ended(holds, 0) == slot);
	kvpull_check(holds->log, holds->published > 0);
	holds->published--;
	if (++holds->ended_first == holds->slot_count)
		holds->ended_first = 0;
	hold_show_report(holds, slot);
	/* action_end() has cleared the claims and `tag` already. */
	hold->key = hold->taken_ns = hold->word_ns = 0;
	hold->reason = 0;
}

static int is_listed(uint32_t state)
{
	return state == HOLD_STAGED || state == HOLD_HELD;
}

/* The only writer of a state. */
static void state_set(struct kvpull_holds *holds, uint32_t slot, uint8_t next)
{
	struct hold *hold = &holds->holds[slot];
	const uint8_t last = hold->state;

	hold->state = next;
	holds->state_counts[last]--;
	holds->state_counts[next]++;
	if (is_listed(last) == is_listed(next))
		return;
	holds->live[slot / 64] ^= UINT64_C(1) << slot % 64;
	if (is_listed(next)) {
		holds->live_count++;
		return;
	}
	holds->live_count--;
	/* Entries left in the heap are stale: none may wake the worker. */
	if (!holds->live_count)
		kvpull_leases_clear(&holds->leases);
}

static void lease_arm(struct kvpull_holds *holds, uint32_t slot)
{
	const struct hold *hold = &holds->holds[slot];

	kvpull_leases_arm(&holds->leases, slot,
			  hold_deadline_ns(holds, hold, holds->now_ns));
}

int hold_apply(struct kvpull_holds *holds, uint32_t slot, enum hold_event event,
	       const struct hold_input *input)
{
	struct hold *hold = &holds->holds[slot];
	const struct hold_edge edge = hold_edges[hold->state][event];

	kvpull_check(holds->log, edge.action != HOLD_BUG);
	state_set(holds, slot, edge.next);
	switch ((enum hold_action)edge.action) {
	case HOLD_BUG:
	case HOLD_IGNORE:
		break;
	case HOLD_REFUSE:
		return KVPULL_EINVAL;
	case HOLD_UNKNOWN:
		holds->counts.unknown++;
		break;
	case HOLD_TAKE:
		action_take(holds, slot, input);
		lease_arm(holds, slot);
		break;
	case HOLD_STAGE:
		action_stage(holds, hold, input);
		break;
	case HOLD_COUNT:
		note_count(holds, hold, input);
		break;
	case HOLD_END:
		action_end(holds, slot, input->reason);
		break;
	case HOLD_TAKE_END:
		action_take(holds, slot, input);
		action_end(holds, slot, input->reason);
		break;
	case HOLD_DOOM:
		kvpull_revocation_write(&holds->entries[slot], hold->staged);
		holds->unfenced = 1;
		break;
	case HOLD_REPORT:
		action_report(holds, slot);
		break;
	case HOLD_UNSTAGE:
		action_unstage(holds, slot);
		break;
	}
	return 0;
}

void hold_settle(struct kvpull_holds *holds, uint32_t slot)
{
	const struct hold_input released = { .reason = KVPULL_END_RELEASED };

	if (is_complete(holds, &holds->holds[slot]))
		(void)hold_apply(holds, slot, HOLD_EV_COMPLETE, &released);
}

/* A key that can be taken: not 0, and of no other hold. */
static int key_is_new(const struct kvpull_holds *holds, uint64_t key)
{
	return key && kvpull_map_get(&holds->keys, key) == KVPULL_NONE;
}

/* Opening of the table. */

static void tables_take(struct kvpull_holds *holds,
			const struct kvpull_hold_params *params,
			struct kvpull_arena *arena)
{
	const uint32_t slot_count = params->hold_count_max;

	holds->holds = kvpull_arena_take_table(arena, slot_count,
					       sizeof(*holds->holds));
	holds->live = kvpull_arena_take_table(arena, slot_count / 64 + 1,
					      sizeof(*holds->live));
	holds->ended = kvpull_arena_take_table(arena, slot_count,
					       sizeof(*holds->ended));
	holds->given_due = kvpull_arena_take_table(arena, slot_count / 64 + 1,
						   sizeof(*holds->given_due));
	kvpull_map_init(&holds->keys, slot_count, arena);
	kvpull_leases_init(&holds->leases, slot_count, arena);
	kvpull_instances_init(&holds->instances, params->instance_count_max,
			      params->grace_ns, arena);
}

struct kvpull_holds *kvpull_holds_open(const struct kvpull_hold_params *params,
				       struct kvpull_arena *arena)
{
	struct kvpull_holds *holds =
		kvpull_arena_take(arena, 1, sizeof(*holds));
	uint32_t slot;

	if (!holds)
		return NULL;
	*holds = (struct kvpull_holds){
		.log = params->log,
		.entries = params->entries,
		.given = params->given,
		.missed.lease_ns = params->lease_ns,
		.lease_ns = params->lease_ns,
		.hold_max_ns = params->hold_max_ns,
		.slot_count = params->hold_count_max,
		.state_counts[HOLD_FREE] = params->hold_count_max,
		.shown = params->shown,
	};
	memcpy(holds->secret, params->secret, sizeof(holds->secret));
	tables_take(holds, params, arena);
	if (!kvpull_arena_ok(arena))
		return NULL;
	for (slot = 0; slot < holds->slot_count; slot++)
		/* Relaxed: written once, before a consumer is served. */
		atomic_store_explicit(&holds->entries[slot].incarnation,
				      params->incarnation,
				      memory_order_relaxed);
	return holds;
}

/* Time. */

/* Holds taken before any time was known are taken at the first. */
static void time_begin(struct kvpull_holds *holds, uint64_t now_ns)
{
	uint32_t slot = holds->slot_count;

	holds->missed.looked_ns = now_ns;
	while ((slot = hold_live_below(holds, slot)) != KVPULL_NONE) {
		holds->holds[slot].taken_ns = now_ns;
		holds->holds[slot].word_ns = now_ns;
	}
}

static void time_pass(struct kvpull_holds *holds, uint64_t now_ns,
		      uint64_t stopped_ns, int is_poll)
{
	if (!holds->now_ns)
		time_begin(holds, now_ns);
	holds->now_ns = now_ns;
	kvpull_missed_pass(&holds->missed, now_ns, stopped_ns, is_poll);
}

void kvpull_holds_stamp(struct kvpull_holds *holds, uint64_t now_ns,
			uint64_t stopped_ns)
{
	if (now_ns > holds->now_ns)
		time_pass(holds, now_ns, stopped_ns, 0);
}

void kvpull_holds_tick(struct kvpull_holds *holds, uint64_t now_ns,
		       uint64_t stopped_ns)
{
	time_pass(holds, now_ns > holds->now_ns ? now_ns : holds->now_ns,
		  stopped_ns, 1);
	kvpull_instances_tick(&holds->instances);
}

/* Calls of the engine. */

void kvpull_holds_begin(struct kvpull_holds *holds, uint64_t floor)
{
	const struct hold_input none = { 0 };
	uint32_t slot = holds->slot_count;

	holds->floor = floor;
	generation_seen(holds, floor);
	while ((slot = hold_live_below(holds, slot)) != KVPULL_NONE)
		if (holds->holds[slot].staged <= floor)
			(void)hold_apply(holds, slot, HOLD_EV_FORGET, &none);
	for (slot = 0; slot < holds->slot_count; slot++)
		/* revoke_all() may have met what is staged, and is above. */
		if (atomic_load_explicit(&holds->entries[slot].revoked,
					 memory_order_relaxed) < floor)
			kvpull_revocation_write(&holds->entries[slot], floor);
	/*
	 * No report follows these revocations: the next words written may be
	 * their blocks'.
	 */
	kvpull_revocation_fence();
}

int kvpull_holds_take(struct kvpull_holds *holds, uint32_t slot,
		      uint64_t generation, uint64_t key)
{
	const struct hold_input input = { .generation = generation,
					  .key = key,
					  .reason = KVPULL_END_REVOKED };
	uint64_t revoked;
	int result;

	if (slot >= holds->slot_count || !key_is_new(holds, key) ||
	    generation <= holds->holds[slot].generation ||
	    generation <= holds->floor)
		return KVPULL_EINVAL;
	result = hold_apply(holds, slot, HOLD_EV_TAKE, &input);
	if (result)
		return result;
	/* Revoked while it was staged. We wrote it ourselves: relaxed will do. */
	revoked = atomic_load_explicit(&holds->entries[slot].revoked,
				       memory_order_relaxed);
	if (revoked >= generation)
		(void)hold_apply(holds, slot, HOLD_EV_REVOKE, &input);
	else
		hold_settle(holds, slot);
	hold_show_unreported(holds);
	return 0;
}

int kvpull_holds_end(struct kvpull_holds *holds, uint32_t slot,
		     uint64_t generation, uint64_t key, int32_t reason)
{
	const struct hold_input input = { .generation = generation,
					  .key = key,
					  .reason = reason };
	int is_newer;
	int result;

	if (slot >= holds->slot_count || reason < KVPULL_END_RELEASED ||
	    reason > KVPULL_END_RANK)
		return KVPULL_EINVAL;
	if (generation < holds->holds[slot].generation)
		return 0;
	is_newer = generation > holds->holds[slot].generation;
	if (is_newer && (!key_is_new(holds, key) || generation <= holds->floor))
		return KVPULL_EINVAL;
	result = hold_apply(holds, slot,
			    is_newer ? HOLD_EV_END_NEWER : HOLD_EV_END, &input);
	hold_show_unreported(holds);
	return result;
}

void kvpull_holds_give(struct kvpull_holds *holds, uint32_t slot,
		       uint64_t generation)
{
	struct hold *hold;

	if (slot >= holds->slot_count)
		return;
	hold = &holds->holds[slot];
	if (hold->state != HOLD_HELD || hold->generation != generation)
		return;
	hold->is_given = 1;
	hold_given_due(holds, slot);
}

uint32_t kvpull_holds_revoke_all(struct kvpull_holds *holds, int32_t reason)
{
	const struct hold_input input = { .reason = reason };
	const uint32_t held = holds->state_counts[HOLD_HELD];
	uint32_t slot = holds->slot_count;

	while ((slot = hold_live_below(holds, slot)) != KVPULL_NONE)
		(void)hold_apply(holds, slot, HOLD_EV_REVOKE, &input);
	hold_show_unreported(holds);
	kvpull_holds_publish(holds);
	return held;
}

uint32_t kvpull_holds_revoke_full(struct kvpull_holds *holds, int32_t reason)
{
	const uint32_t held = kvpull_holds_revoke_all(holds, reason);
	uint32_t slot;

	for (slot = 0; slot < holds->slot_count; slot++)
		kvpull_revocation_close(&holds->entries[slot]);
	kvpull_revocation_fence();
	return held;
}

int kvpull_holds_ready(struct kvpull_holds *holds, uint64_t key)
{
	const uint32_t slot = kvpull_map_get(&holds->keys, key);

	if (slot == KVPULL_NONE)
		return KVPULL_ENOKEY;
	/* E0: pairs with the acquire of ready in kvpull_revocation_read. */
	atomic_store_explicit(&holds->entries[slot].ready,
			      holds->holds[slot].generation,
			      memory_order_release);
	return 0;
}

/* From consumers. */

int kvpull_holds_join(struct kvpull_holds *holds, struct kvpull_join *join,
		      uint64_t now_ns, uint32_t *instance)
{
	join->lease_now_ns = hold_lease_clock(holds, now_ns);
	return kvpull_instances_join(&holds->instances, join, instance);
}

void kvpull_holds_call_lost(struct kvpull_holds *holds,
			    const struct kvpull_join *join)
{
	kvpull_instances_call_lost(&holds->instances, join);
}

void kvpull_holds_leave(struct kvpull_holds *holds, uint32_t instance,
			uint32_t rank, uint64_t now_ns)
{
	kvpull_instances_leave(&holds->instances, instance, rank, 0,
			       hold_lease_clock(holds, now_ns));
}

void kvpull_holds_lose(struct kvpull_holds *holds, uint32_t instance,
		       uint32_t rank, uint64_t now_ns)
{
	kvpull_instances_leave(&holds->instances, instance, rank,
			       holds->lease_ns,
			       hold_lease_clock(holds, now_ns));
}

void kvpull_holds_beat(struct kvpull_holds *holds, uint32_t instance,
		       uint32_t rank, uint64_t now_ns)
{
	struct kvpull_instance *alive =
		kvpull_instances_speaking(&holds->instances, instance, rank);

	if (alive)
		kvpull_instance_hear(alive, rank,
				     hold_lease_clock(holds, now_ns));
}

/* A hash; but of what is held it was computed once. */
static uint64_t tag_of(const struct kvpull_holds *holds, uint32_t slot,
		       uint64_t generation)
{
	const struct hold *hold = &holds->holds[slot];

	if (hold->state == HOLD_HELD && hold->generation == generation)
		return hold->tag;
	return kvpull_ticket_tag(holds->secret, slot, generation);
}

void kvpull_holds_note(struct kvpull_holds *holds, uint32_t instance,
		       uint32_t rank, const struct kvpull_record *record,
		       uint64_t now_ns)
{
	const struct kvpull_record note = *record;
	const struct hold_input input = { .generation = note.generation,
					  .instance = instance,
					  .rank = rank,
					  .kind = note.kind };
	struct kvpull_instance *sender =
		kvpull_instances_speaking(&holds->instances, instance, rank);
	enum hold_event event = HOLD_EV_NOTE;
	uint64_t generation;

	if (sender && note.kind == KVPULL_NOTE_AWAY) {
		kvpull_instance_part(sender, rank);
		return;
	}
	if (!sender || note.slot >= holds->slot_count ||
	    (note.kind != KVPULL_NOTE_CLAIM &&
	     note.kind != KVPULL_NOTE_RELEASE)) {
		holds->counts.unknown++;
		return;
	}
	if (note.tag != tag_of(holds, note.slot, note.generation)) {
		holds->counts.bad_tag++;
		return;
	}
	kvpull_instance_hear(sender, rank, hold_lease_clock(holds, now_ns));
	generation = holds->holds[note.slot].state == HOLD_STAGED ?
			     holds->holds[note.slot].staged :
			     holds->holds[note.slot].generation;
	if (generation < holds->floor)
		generation = holds->floor;
	if (note.generation > generation)
		event = HOLD_EV_NOTE_NEWER;
	else if (note.generation < generation)
		event = HOLD_EV_NOTE_OLDER;
	(void)hold_apply(holds, note.slot, event, &input);
	if (event != HOLD_EV_NOTE || note.kind != KVPULL_NOTE_RELEASE)
		return;
	hold_settle(holds, note.slot);
	hold_given_due(holds, note.slot);
}

/* Reports. */

void kvpull_holds_publish(struct kvpull_holds *holds)
{
	if (holds->unfenced)
		kvpull_revocation_fence();
	holds->unfenced = 0;
	holds->published = holds->state_counts[HOLD_ENDED];
}

uint32_t kvpull_holds_report(struct kvpull_holds *holds,
			     struct kvpull_hold_end *ends, uint32_t capacity)
{
	const struct hold_input input = { 0 };
	uint32_t count = 0;

	while (count < capacity && holds->published) {
		const uint32_t slot = *hold_ended(holds, 0);
		const struct hold *hold = &holds->holds[slot];

		if (holds->published > REPORTS_AHEAD)
			__builtin_prefetch(
				&holds->holds[*hold_ended(holds, REPORTS_AHEAD)],
				1);
		ends[count++] =
			(struct kvpull_hold_end){ .key = hold->key,
						  .generation =
							  hold->generation,
						  .slot = slot,
						  .reason = hold->reason };
		(void)hold_apply(holds, slot, HOLD_EV_REPORT, &input);
	}
	/*
	 * After a burst the next poll shows the rest: a row for each would cost
	 * more.
	 */
	if (!count)
		hold_show_unreported(holds);
	return count;
}
