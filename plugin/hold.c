/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hold table. Invariants:
 *  - a hold that ended has its revocation entry written in the same call, and
 *    is reported only after a fence that came later (publish);
 *  - a slot's generation only grows; each generation is reported at most once;
 *  - live[] lists exactly the staged and held slots, so that a scan costs what
 *    is held and not what could be;
 *  - an instance is counted in as many refs as claims name it;
 *  - nothing but counters changes for a notification whose tag is wrong.
 *
 * Two clocks. Leases and graces run on the lease clock, now_ns - shift_ns: it
 * stands still while the producer does. hold_max runs on now_ns. The expiry
 * heap holds now_ns keys: shift_ns only grows, so they stay lower bounds.
 *
 * A rank that left is first dying (its grace), then scanning (a pass over
 * live[] releases for it), then gone, until it joins again. While gone it
 * counts as having released whatever its instance claims: a hold must not wait
 * for a rank that is not there. When the last rank of an instance is gone, so
 * is the instance, with ranks that never came: whoever joins under its id
 * afterwards is another instance.
 */
#include "plugin/hold.h"

#include <inttypes.h>
#include <string.h>

#include "base/map.h"
#include "plugin/lease.h"

/*
 * How often deadline() wants a poll while leases run, in parts of a lease: a
 * sleep of more than a third would be taken for a stall and move the lease.
 */
#define POLLS_A_LEASE 6u
#define STALLS_A_LEASE 3u

enum hold_state { HOLD_FREE, HOLD_STAGED, HOLD_HELD, HOLD_ENDED, HOLD_STATES };

enum hold_event {
	HOLD_EV_TAKE,
	HOLD_EV_NOTE,       /* of the generation staged or held, or the last */
	HOLD_EV_NOTE_NEWER,
	HOLD_EV_NOTE_OLDER,
	HOLD_EV_COMPLETE,   /* every claimed instance is complete */
	HOLD_EV_DUE,        /* root of the heap */
	HOLD_EV_END,        /* of the generation held, or the last */
	HOLD_EV_END_NEWER,
	HOLD_EV_REVOKE,
	HOLD_EV_REPORT,
	HOLD_EVENTS
};

enum hold_action {
	HOLD_BUG, /* an empty cell: the table or a caller is wrong */
	HOLD_IGNORE,
	HOLD_REFUSE,
	HOLD_UNKNOWN,
	HOLD_TAKE,
	HOLD_STAGE,
	HOLD_COUNT,
	HOLD_END,
	HOLD_TAKE_END,
	HOLD_DOOM, /* staged: revoke it before it was told */
	HOLD_REPORT
};

struct hold_edge {
	uint8_t action;
	uint8_t next;
};

static const struct hold_edge hold_edges[HOLD_STATES][HOLD_EVENTS] = {
	[HOLD_FREE] = {
		[HOLD_EV_TAKE] = { HOLD_TAKE, HOLD_HELD },
		[HOLD_EV_NOTE] = { HOLD_UNKNOWN, HOLD_FREE },
		[HOLD_EV_NOTE_NEWER] = { HOLD_STAGE, HOLD_STAGED },
		[HOLD_EV_NOTE_OLDER] = { HOLD_UNKNOWN, HOLD_FREE },
		[HOLD_EV_DUE] = { HOLD_IGNORE, HOLD_FREE },
		[HOLD_EV_END] = { HOLD_IGNORE, HOLD_FREE },
		[HOLD_EV_END_NEWER] = { HOLD_TAKE_END, HOLD_ENDED },
	},
	[HOLD_STAGED] = {
		[HOLD_EV_TAKE] = { HOLD_TAKE, HOLD_HELD },
		[HOLD_EV_NOTE] = { HOLD_COUNT, HOLD_STAGED },
		[HOLD_EV_NOTE_NEWER] = { HOLD_STAGE, HOLD_STAGED },
		[HOLD_EV_NOTE_OLDER] = { HOLD_UNKNOWN, HOLD_STAGED },
		[HOLD_EV_COMPLETE] = { HOLD_IGNORE, HOLD_STAGED },
		[HOLD_EV_DUE] = { HOLD_IGNORE, HOLD_STAGED },
		[HOLD_EV_END] = { HOLD_IGNORE, HOLD_STAGED },
		[HOLD_EV_END_NEWER] = { HOLD_TAKE_END, HOLD_ENDED },
		[HOLD_EV_REVOKE] = { HOLD_DOOM, HOLD_STAGED },
	},
	[HOLD_HELD] = {
		[HOLD_EV_TAKE] = { HOLD_REFUSE, HOLD_HELD },
		[HOLD_EV_NOTE] = { HOLD_COUNT, HOLD_HELD },
		[HOLD_EV_NOTE_NEWER] = { HOLD_UNKNOWN, HOLD_HELD },
		[HOLD_EV_NOTE_OLDER] = { HOLD_UNKNOWN, HOLD_HELD },
		[HOLD_EV_COMPLETE] = { HOLD_END, HOLD_ENDED },
		[HOLD_EV_DUE] = { HOLD_END, HOLD_ENDED },
		[HOLD_EV_END] = { HOLD_END, HOLD_ENDED },
		[HOLD_EV_END_NEWER] = { HOLD_REFUSE, HOLD_HELD },
		[HOLD_EV_REVOKE] = { HOLD_END, HOLD_ENDED },
	},
	[HOLD_ENDED] = {
		[HOLD_EV_TAKE] = { HOLD_REFUSE, HOLD_ENDED },
		[HOLD_EV_NOTE] = { HOLD_UNKNOWN, HOLD_ENDED },
		[HOLD_EV_NOTE_NEWER] = { HOLD_UNKNOWN, HOLD_ENDED },
		[HOLD_EV_NOTE_OLDER] = { HOLD_UNKNOWN, HOLD_ENDED },
		[HOLD_EV_DUE] = { HOLD_IGNORE, HOLD_ENDED },
		[HOLD_EV_END] = { HOLD_IGNORE, HOLD_ENDED },
		[HOLD_EV_END_NEWER] = { HOLD_REFUSE, HOLD_ENDED },
		[HOLD_EV_REPORT] = { HOLD_REPORT, HOLD_FREE },
	},
};

/* What an event brings along. */
struct hold_input {
	uint64_t generation;
	uint64_t key;
	uint32_t instance;
	uint32_t rank;
	uint32_t kind; /* KVPULL_NOTE_* */
	int32_t reason;
};

struct claim {
	uint64_t released; /* ranks that released, or died after the claim */
	uint32_t instance;
	uint32_t reserved;
};

/* Two cache lines, the second for the claims of the third and fourth. */
struct hold {
	uint64_t generation; /* last one told; its entry's while HELD, ENDED */
	uint64_t staged;     /* STAGED: generation of the claims */
	uint64_t key;
	uint64_t taken_ns;
	uint64_t taken_lease_ns; /* lease clock */
	uint32_t live_index;
	uint32_t ended_next;
	int32_t reason;
	uint8_t state;
	uint8_t claim_count;
	uint16_t reserved;
	struct claim claims[KVPULL_CLAIMS_MAX];
};

struct instance {
	uint64_t id;
	uint64_t heard_ns;  /* lease clock: last sign of life of any rank */
	uint64_t connected; /* these four: bitmaps of ranks, disjoint */
	uint64_t dying;
	uint64_t scanning;
	uint64_t gone;
	uint32_t rank_count;
	uint32_t refs; /* claims that name it */
	uint32_t used;
	uint32_t retired; /* all ranks gone: its id may be used anew */
	uint64_t due_ns[KVPULL_RANKS_MAX]; /* dying: end of grace, lease clock */
};

struct kvpull_holds {
	const struct kvpull_log *log;
	struct hold *holds;                      /* [slot_count] */
	struct kvpull_revocation_entry *entries; /* [slot_count] */
	struct instance *instances;              /* [instance_count] */
	uint32_t *live;                          /* [slot_count], live_count used */
	struct kvpull_leases leases;
	struct kvpull_map keys; /* of HELD holds */
	uint64_t lease_ns;
	uint64_t hold_max_ns;
	uint64_t grace_ns;
	uint64_t now_ns;
	uint64_t polled_ns; /* what a stall is measured from */
	uint64_t shift_ns;  /* sum of stalls */
	uint64_t death_due_ns; /* first grace to end, lease clock, or later */
	uint64_t generation_max;
	uint32_t slot_count;
	uint32_t instance_count;
	uint32_t state_counts[HOLD_STATES];
	uint32_t live_count;
	uint32_t scan_open; /* a pass for the dead is under way */
	uint32_t scan_left; /* live[0 .. scan_left) is still to be looked at */
	uint32_t ended_first;
	uint32_t ended_last;
	uint32_t published; /* of the ended, oldest first */
	uint32_t unfenced;  /* entries were written since the last fence */
	struct kvpull_hold_counts counts;
	uint8_t secret[KVPULL_SECRET_BYTES];
};

static uint64_t add_saturated(uint64_t left, uint64_t right)
{
	return left > UINT64_MAX - right ? UINT64_MAX : left + right;
}

static uint64_t lease_clock(const struct kvpull_holds *holds, uint64_t now_ns)
{
	return now_ns > holds->shift_ns ? now_ns - holds->shift_ns : 0;
}

static uint64_t ranks_all(uint32_t rank_count)
{
	return UINT64_MAX >> (KVPULL_RANKS_MAX - rank_count);
}

/* Instances. */

static void instance_unref(struct instance *instance)
{
	instance->refs--;
	if (!instance->refs && instance->retired)
		*instance = (struct instance){ 0 };
}

static int instance_is_here(const struct instance *instance)
{
	return (instance->connected | instance->dying) != 0;
}

/* Ranks that count as having released whatever the instance claims. */
static uint64_t instance_dead(const struct instance *instance)
{
	return instance_is_here(instance) ?
		       instance->scanning | instance->gone :
		       ranks_all(instance->rank_count);
}

/* Connected, or in its grace: only then has it anything to say. */
static struct instance *instance_speaking(struct kvpull_holds *holds,
					  uint32_t index, uint32_t rank)
{
	struct instance *instance;

	if (index >= holds->instance_count || rank >= KVPULL_RANKS_MAX)
		return NULL;
	instance = &holds->instances[index];
	if (!((instance->connected | instance->dying) >> rank & 1))
		return NULL;
	return instance;
}

static void instance_heard(const struct kvpull_holds *holds,
			   struct instance *instance, uint64_t now_ns)
{
	const uint64_t heard_ns = lease_clock(holds, now_ns);

	if (heard_ns > instance->heard_ns)
		instance->heard_ns = heard_ns;
}

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

		instance_unref(&holds->instances[claim->instance]);
		*claim = (struct claim){ 0 };
	}
}

static int is_complete(const struct kvpull_holds *holds,
		       const struct hold *hold)
{
	uint32_t i;

	for (i = 0; i < hold->claim_count; i++) {
		const struct claim *claim = &hold->claims[i];
		const struct instance *instance =
			&holds->instances[claim->instance];

		if ((claim->released | instance_dead(instance)) !=
		    ranks_all(instance->rank_count))
			return 0;
	}
	return hold->claim_count > 0;
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
		claim = &hold->claims[hold->claim_count++];
		*claim = (struct claim){ .instance = input->instance };
		holds->instances[input->instance].refs++;
	}
	if (hold->state == HOLD_STAGED)
		holds->counts.early++;
	if (input->kind == KVPULL_NOTE_CLAIM) {
		holds->counts.claims++;
	} else if (claim->released & bit) {
		holds->counts.duplicates++;
	} else {
		claim->released |= bit;
		holds->counts.releases++;
	}
}

/* Actions. */

static void generation_seen(struct kvpull_holds *holds, uint64_t generation)
{
	if (generation > holds->generation_max)
		holds->generation_max = generation;
}

/* A signal of life can only make this later. */
static uint64_t deadline_of(const struct kvpull_holds *holds,
			    const struct hold *hold)
{
	uint64_t heard_ns = hold->taken_lease_ns;
	uint64_t lease_end_ns, hold_end_ns;
	uint32_t i;

	for (i = 0; i < hold->claim_count; i++) {
		const struct instance *instance =
			&holds->instances[hold->claims[i].instance];

		if (instance->heard_ns > heard_ns)
			heard_ns = instance->heard_ns;
	}
	lease_end_ns = add_saturated(add_saturated(heard_ns, holds->lease_ns),
				     holds->shift_ns);
	hold_end_ns = add_saturated(hold->taken_ns, holds->hold_max_ns);
	return lease_end_ns < hold_end_ns ? lease_end_ns : hold_end_ns;
}

static void action_take(struct kvpull_holds *holds, uint32_t slot,
			const struct hold_input *input)
{
	struct hold *hold = &holds->holds[slot];

	if (hold->staged != input->generation)
		claims_clear(holds, hold);
	hold->staged = 0;
	hold->generation = input->generation;
	hold->key = input->key;
	hold->taken_ns = holds->now_ns;
	hold->taken_lease_ns = lease_clock(holds, holds->now_ns);
	generation_seen(holds, input->generation);
	kvpull_check(holds->log,
		     kvpull_map_set(&holds->keys, input->key, slot) == 0);
	holds->counts.taken++;
}

static void action_stage(struct kvpull_holds *holds, struct hold *hold,
			 const struct hold_input *input)
{
	claims_clear(holds, hold);
	hold->staged = input->generation;
	generation_seen(holds, input->generation);
	note_count(holds, hold, input);
}

/* The one way out: whatever ends a hold comes through here. */
static void action_end(struct kvpull_holds *holds, uint32_t slot,
		       int32_t reason)
{
	struct hold *hold = &holds->holds[slot];

	kvpull_revocation_write(&holds->entries[slot], hold->generation);
	holds->unfenced = 1;
	kvpull_map_remove(&holds->keys, hold->key);
	claims_clear(holds, hold);
	hold->reason = reason;
	hold->ended_next = KVPULL_NONE;
	if (holds->ended_first == KVPULL_NONE)
		holds->ended_first = slot;
	else
		holds->holds[holds->ended_last].ended_next = slot;
	holds->ended_last = slot;
	if (reason == KVPULL_END_RELEASED)
		holds->counts.released++;
	else if (reason == KVPULL_END_EXPIRED)
		holds->counts.expired++;
	else
		holds->counts.revoked++;
}

static void action_report(struct kvpull_holds *holds, uint32_t slot)
{
	struct hold *hold = &holds->holds[slot];

	kvpull_check(holds->log, holds->ended_first == slot);
	kvpull_check(holds->log, holds->published > 0);
	holds->published--;
	holds->ended_first = hold->ended_next;
	if (holds->ended_first == KVPULL_NONE)
		holds->ended_last = KVPULL_NONE;
	*hold = (struct hold){ .generation = hold->generation };
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
	if (is_listed(next)) {
		hold->live_index = holds->live_count;
		holds->live[holds->live_count++] = slot;
		return;
	}
	holds->live_count--;
	holds->live[hold->live_index] = holds->live[holds->live_count];
	holds->holds[holds->live[hold->live_index]].live_index =
		hold->live_index;
	hold->live_index = 0;
	/* What is left in the heap is stale: nothing may wake for it. */
	if (!holds->live_count)
		kvpull_leases_clear(&holds->leases);
}

/* Lower bound: a sign of life that is already known shows when it is due. */
static void lease_arm(struct kvpull_holds *holds, uint32_t slot)
{
	const struct hold *hold = &holds->holds[slot];

	kvpull_leases_arm(&holds->leases, slot, deadline_of(holds, hold));
}

static int hold_apply(struct kvpull_holds *holds, uint32_t slot,
		      enum hold_event event, const struct hold_input *input)
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
	}
	return 0;
}

static void hold_settle(struct kvpull_holds *holds, uint32_t slot)
{
	const struct hold_input released = { .reason = KVPULL_END_RELEASED };

	if (is_complete(holds, &holds->holds[slot]))
		(void)hold_apply(holds, slot, HOLD_EV_COMPLETE, &released);
}

/* A key that can be taken: not 0, and of no other hold. */
static int key_is_new(const struct kvpull_holds *holds, uint64_t key)
{
	return key && kvpull_map_get(&holds->keys, key) == KVPULL_MAP_NONE;
}

/* Open. */

static size_t lines(size_t count, size_t item_bytes)
{
	return count * item_bytes + KVPULL_CACHE_LINE;
}

size_t kvpull_holds_bytes(const struct kvpull_hold_params *params)
{
	return lines(1, sizeof(struct kvpull_holds)) +
	       lines(params->hold_count_max, sizeof(struct hold)) +
	       lines(params->hold_count_max, sizeof(uint32_t)) +
	       lines(params->instance_count_max, sizeof(struct instance)) +
	       kvpull_leases_bytes(params->hold_count_max) +
	       kvpull_map_bytes(params->hold_count_max);
}

static int tables_take(struct kvpull_holds *holds, struct kvpull_arena *arena)
{
	int result;

	holds->holds = (struct hold *)kvpull_arena_take(
		arena, holds->slot_count, sizeof(*holds->holds));
	holds->live = (uint32_t *)kvpull_arena_take(arena, holds->slot_count,
						    sizeof(*holds->live));
	holds->instances = (struct instance *)kvpull_arena_take(
		arena, holds->instance_count, sizeof(*holds->instances));
	result = kvpull_leases_init(&holds->leases, holds->slot_count, arena);
	kvpull_map_init(&holds->keys, holds->slot_count, arena);
	if (!holds->holds || !holds->live || !holds->instances ||
	    !holds->keys.entries)
		return KVPULL_ENOMEM;
	return result;
}

struct kvpull_holds *kvpull_holds_open(const struct kvpull_hold_params *params,
				       struct kvpull_arena *arena)
{
	struct kvpull_holds *holds = (struct kvpull_holds *)kvpull_arena_take(
		arena, 1, sizeof(*holds));
	uint32_t slot;

	if (!holds)
		return NULL;
	*holds = (struct kvpull_holds){
		.log = params->log,
		.entries = params->entries,
		.lease_ns = params->lease_ns,
		.hold_max_ns = params->hold_max_ns,
		.grace_ns = params->grace_ns,
		.death_due_ns = UINT64_MAX,
		.slot_count = params->hold_count_max,
		.instance_count = params->instance_count_max,
		.state_counts[HOLD_FREE] = params->hold_count_max,
		.ended_first = KVPULL_NONE,
		.ended_last = KVPULL_NONE,
	};
	memcpy(holds->secret, params->secret, sizeof(holds->secret));
	if (tables_take(holds, arena))
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
	uint32_t i;

	holds->polled_ns = now_ns;
	for (i = 0; i < holds->live_count; i++) {
		struct hold *hold = &holds->holds[holds->live[i]];

		hold->taken_ns = now_ns;
		hold->taken_lease_ns = now_ns;
	}
}

void kvpull_holds_stamp(struct kvpull_holds *holds, uint64_t now_ns)
{
	if (now_ns <= holds->now_ns)
		return;
	if (!holds->now_ns)
		time_begin(holds, now_ns);
	holds->now_ns = now_ns;
	if (now_ns - holds->polled_ns <= holds->lease_ns / STALLS_A_LEASE)
		return;
	holds->shift_ns += now_ns - holds->polled_ns;
	holds->polled_ns = now_ns;
}

void kvpull_holds_tick(struct kvpull_holds *holds, uint64_t now_ns)
{
	kvpull_holds_stamp(holds, now_ns);
	holds->polled_ns = holds->now_ns;
}

/* From the engine. */

int kvpull_holds_take(struct kvpull_holds *holds, uint32_t slot,
		      uint64_t generation, uint64_t key)
{
	const struct hold_input input = { .generation = generation,
					  .key = key,
					  .reason = KVPULL_END_REVOKED };
	struct kvpull_revocation_value value;
	int result;

	if (slot >= holds->slot_count || !key_is_new(holds, key) ||
	    generation <= holds->holds[slot].generation)
		return KVPULL_EINVAL;
	result = hold_apply(holds, slot, HOLD_EV_TAKE, &input);
	if (result)
		return result;
	/* Revoked while staged: its blocks went with the others'. */
	value = kvpull_revocation_read(&holds->entries[slot]);
	if (value.revoked >= generation)
		(void)hold_apply(holds, slot, HOLD_EV_REVOKE, &input);
	else
		hold_settle(holds, slot);
	return 0;
}

int kvpull_holds_end(struct kvpull_holds *holds, uint32_t slot,
		     uint64_t generation, uint64_t key, int32_t reason)
{
	const struct hold_input input = { .generation = generation,
					  .key = key,
					  .reason = reason };

	if (slot >= holds->slot_count || reason < KVPULL_END_RELEASED ||
	    reason > KVPULL_END_RANK)
		return KVPULL_EINVAL;
	if (generation < holds->holds[slot].generation)
		return 0;
	if (generation == holds->holds[slot].generation)
		return hold_apply(holds, slot, HOLD_EV_END, &input);
	if (!key_is_new(holds, key))
		return KVPULL_EINVAL;
	return hold_apply(holds, slot, HOLD_EV_END_NEWER, &input);
}

uint32_t kvpull_holds_revoke_all(struct kvpull_holds *holds, int32_t reason)
{
	const struct hold_input input = { .reason = reason };
	const uint32_t held = holds->state_counts[HOLD_HELD];
	uint32_t i = holds->live_count;

	/* Downwards: an end moves the last of the list into its place. */
	while (i)
		(void)hold_apply(holds, holds->live[--i], HOLD_EV_REVOKE,
				 &input);
	kvpull_holds_publish(holds);
	return held;
}

int kvpull_holds_ready(struct kvpull_holds *holds, uint64_t key)
{
	const uint32_t slot = kvpull_map_get(&holds->keys, key);

	if (slot == KVPULL_MAP_NONE)
		return KVPULL_ENOKEY;
	/* E0: pairs with the acquire of ready in kvpull_revocation_read. */
	atomic_store_explicit(&holds->entries[slot].ready,
			      holds->holds[slot].generation,
			      memory_order_release);
	return 0;
}

/* From consumers. */

static uint32_t instance_find(const struct kvpull_holds *holds, uint64_t id)
{
	uint32_t i;

	for (i = 0; i < holds->instance_count; i++)
		if (holds->instances[i].used && !holds->instances[i].retired &&
		    holds->instances[i].id == id)
			return i;
	return KVPULL_NONE;
}

static uint32_t instance_make(struct kvpull_holds *holds, uint64_t id,
			      uint32_t rank_count)
{
	uint32_t i;

	for (i = 0; i < holds->instance_count; i++)
		if (!holds->instances[i].used)
			break;
	if (i == holds->instance_count)
		return KVPULL_NONE;
	holds->instances[i] = (struct instance){ .id = id,
						 .rank_count = rank_count,
						 .used = 1 };
	return i;
}

/* 0, or why this rank cannot join an instance that is known. */
static int instance_admits(const struct kvpull_holds *holds,
			   const struct instance *instance, uint32_t rank,
			   uint64_t now_ns)
{
	const uint64_t bit = UINT64_C(1) << rank;

	if (instance->connected & bit)
		return KVPULL_EREJECTED;
	/* Its last rank is being worked off: the id is free when that is done. */
	if (!instance_is_here(instance) || (instance->scanning & bit))
		return KVPULL_EAGAIN;
	if ((instance->dying & bit) &&
	    instance->due_ns[rank] <= lease_clock(holds, now_ns))
		return KVPULL_EAGAIN;
	return 0;
}

int kvpull_holds_join(struct kvpull_holds *holds, uint64_t instance_id,
		      uint32_t rank, uint32_t rank_count, uint64_t now_ns,
		      uint32_t *instance)
{
	uint32_t index = instance_find(holds, instance_id);
	struct instance *joined;
	int result;

	if (rank_count > KVPULL_RANKS_MAX || rank >= rank_count)
		return KVPULL_EREJECTED;
	if (index == KVPULL_NONE) {
		index = instance_make(holds, instance_id, rank_count);
		if (index == KVPULL_NONE)
			return KVPULL_EFULL;
	} else {
		joined = &holds->instances[index];
		if (joined->rank_count != rank_count)
			return KVPULL_EREJECTED;
		result = instance_admits(holds, joined, rank, now_ns);
		if (result)
			return result;
	}
	joined = &holds->instances[index];
	joined->connected |= UINT64_C(1) << rank;
	joined->dying &= ~joined->connected;
	joined->gone &= ~joined->connected;
	instance_heard(holds, joined, now_ns);
	*instance = index;
	return 0;
}

void kvpull_holds_leave(struct kvpull_holds *holds, uint32_t instance,
			uint32_t rank, uint64_t now_ns)
{
	struct instance *left = instance_speaking(holds, instance, rank);
	const uint64_t due_ns =
		add_saturated(lease_clock(holds, now_ns), holds->grace_ns);

	if (!left || !(left->connected >> rank & 1))
		return;
	left->connected &= ~(UINT64_C(1) << rank);
	left->dying |= UINT64_C(1) << rank;
	left->due_ns[rank] = due_ns;
	if (due_ns < holds->death_due_ns)
		holds->death_due_ns = due_ns;
}

void kvpull_holds_beat(struct kvpull_holds *holds, uint32_t instance,
		       uint32_t rank, uint64_t now_ns)
{
	struct instance *alive = instance_speaking(holds, instance, rank);

	if (alive)
		instance_heard(holds, alive, now_ns);
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
	struct instance *sender = instance_speaking(holds, instance, rank);
	enum hold_event event = HOLD_EV_NOTE;
	uint64_t generation;

	if (!sender || note.slot >= holds->slot_count ||
	    (note.kind != KVPULL_NOTE_CLAIM &&
	     note.kind != KVPULL_NOTE_RELEASE)) {
		holds->counts.unknown++;
		return;
	}
	if (note.tag !=
	    kvpull_ticket_tag(holds->secret, note.slot, note.generation)) {
		holds->counts.bad_tag++;
		return;
	}
	instance_heard(holds, sender, now_ns);
	generation = holds->holds[note.slot].state == HOLD_STAGED ?
			     holds->holds[note.slot].staged :
			     holds->holds[note.slot].generation;
	if (note.generation > generation)
		event = HOLD_EV_NOTE_NEWER;
	else if (note.generation < generation)
		event = HOLD_EV_NOTE_OLDER;
	(void)hold_apply(holds, note.slot, event, &input);
	if (event == HOLD_EV_NOTE && note.kind == KVPULL_NOTE_RELEASE)
		hold_settle(holds, note.slot);
}

/* Sweep: deaths. */

/* Ranks whose grace is over; the others' first end goes to *next_ns. */
static uint64_t instance_due(const struct instance *instance,
			     uint64_t lease_now_ns, uint64_t *next_ns)
{
	uint64_t left = instance->dying;
	uint64_t due = 0;

	for (; left; left &= left - 1) {
		const uint32_t rank = (uint32_t)__builtin_ctzll(left);

		if (instance->due_ns[rank] <= lease_now_ns)
			due |= UINT64_C(1) << rank;
		else if (instance->due_ns[rank] < *next_ns)
			*next_ns = instance->due_ns[rank];
	}
	return due;
}

/* One pass serves all that died until now, however many. */
static void scan_begin(struct kvpull_holds *holds, uint64_t lease_now_ns)
{
	uint64_t next_ns = UINT64_MAX;
	uint32_t i;

	for (i = 0; i < holds->instance_count; i++) {
		struct instance *instance = &holds->instances[i];
		const uint64_t due =
			instance_due(instance, lease_now_ns, &next_ns);

		instance->dying &= ~due;
		instance->scanning = due;
		if (!due)
			continue;
		holds->scan_open = 1;
		holds->counts.consumers_died +=
			(uint64_t)__builtin_popcountll(due);
	}
	holds->death_due_ns = next_ns;
	holds->scan_left = holds->live_count;
}

static void scan_slot(struct kvpull_holds *holds, uint32_t slot)
{
	struct hold *hold = &holds->holds[slot];
	uint32_t i;

	for (i = 0; i < hold->claim_count; i++) {
		const struct instance *instance =
			&holds->instances[hold->claims[i].instance];

		/* Those gone before count as long as they are away. */
		if (instance->scanning)
			hold->claims[i].released |=
				instance_is_here(instance) ?
					instance->scanning :
					ranks_all(instance->rank_count);
	}
	hold_settle(holds, slot);
}

static void scan_end(struct kvpull_holds *holds)
{
	uint32_t i;

	holds->scan_open = 0;
	for (i = 0; i < holds->instance_count; i++) {
		struct instance *instance = &holds->instances[i];

		if (!instance->scanning)
			continue;
		instance->gone |= instance->scanning;
		instance->scanning = 0;
		if (instance_is_here(instance))
			continue;
		instance->retired = 1;
		if (!instance->refs)
			*instance = (struct instance){ 0 };
	}
}

/*
 * Downwards, so that an end, which moves the last of the list into its place,
 * never moves one that is still to be looked at behind the cursor. What is
 * claimed during a pass is behind it, and needs no look: the dead count there.
 */
static void scan_step(struct kvpull_holds *holds)
{
	uint32_t budget = KVPULL_SCAN_MAX;

	if (holds->scan_left > holds->live_count)
		holds->scan_left = holds->live_count;
	for (; holds->scan_left && budget; budget--) {
		holds->scan_left--;
		scan_slot(holds, holds->live[holds->scan_left]);
		if (holds->scan_left > holds->live_count)
			holds->scan_left = holds->live_count;
	}
	if (!holds->scan_left)
		scan_end(holds);
}

/* Sweep: leases. */

static void hold_expire(struct kvpull_holds *holds, uint32_t slot,
			uint64_t now_ns)
{
	const struct hold_input expired = { .reason = KVPULL_END_EXPIRED };
	const struct hold *hold = &holds->holds[slot];
	char text[KVPULL_LOG_LINE_BYTES];

	if (holds->log && holds->log->write) {
		kvpull_holds_describe(holds, slot, now_ns, text, sizeof(text));
		kvpull_warn(holds->log, "hold expired at its %s: %s",
			    now_ns >= add_saturated(hold->taken_ns,
						    holds->hold_max_ns) ?
				    "hold_max" :
				    "lease",
			    text);
	}
	(void)hold_apply(holds, slot, HOLD_EV_DUE, &expired);
}

static void expire(struct kvpull_holds *holds, uint64_t now_ns)
{
	uint32_t budget = KVPULL_EXPIRE_MAX;

	while (budget-- && kvpull_leases_next(&holds->leases) <= now_ns) {
		const uint32_t slot = kvpull_leases_root(&holds->leases);
		const struct hold *hold = &holds->holds[slot];
		const uint64_t deadline_ns = deadline_of(holds, hold);

		if (hold->state == HOLD_HELD && deadline_ns > now_ns) {
			kvpull_leases_rekey(&holds->leases, deadline_ns);
			continue;
		}
		kvpull_leases_drop(&holds->leases);
		if (hold->state == HOLD_HELD)
			hold_expire(holds, slot, now_ns);
	}
}

static int is_due(const struct kvpull_holds *holds, uint64_t now_ns)
{
	return holds->scan_open ||
	       holds->death_due_ns <= lease_clock(holds, now_ns) ||
	       kvpull_leases_next(&holds->leases) <= now_ns;
}

int kvpull_holds_sweep(struct kvpull_holds *holds, uint64_t now_ns)
{
	if (!is_due(holds, now_ns))
		return 0;
	if (!holds->scan_open &&
	    holds->death_due_ns <= lease_clock(holds, now_ns))
		scan_begin(holds, lease_clock(holds, now_ns));
	if (holds->scan_open)
		scan_step(holds);
	expire(holds, now_ns);
	return is_due(holds, now_ns);
}

uint64_t kvpull_holds_deadline(const struct kvpull_holds *holds)
{
	const uint64_t poll_ns = add_saturated(
		holds->polled_ns, holds->lease_ns / POLLS_A_LEASE);
	uint64_t due_ns = kvpull_leases_next(&holds->leases);

	if (holds->scan_open)
		return holds->now_ns;
	if (holds->death_due_ns < UINT64_MAX) {
		const uint64_t death_ns = add_saturated(holds->death_due_ns,
							holds->shift_ns);

		due_ns = death_ns < due_ns ? death_ns : due_ns;
	}
	return due_ns < UINT64_MAX && poll_ns < due_ns ? poll_ns : due_ns;
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
		const uint32_t slot = holds->ended_first;
		const struct hold *hold = &holds->holds[slot];

		ends[count++] =
			(struct kvpull_hold_end){ .key = hold->key,
						  .generation = hold->generation,
						  .slot = slot,
						  .reason = hold->reason };
		(void)hold_apply(holds, slot, HOLD_EV_REPORT, &input);
	}
	return count;
}

/* Looking at it. */

void kvpull_holds_counts(const struct kvpull_holds *holds,
			 struct kvpull_hold_counts *counts)
{
	*counts = holds->counts;
	counts->live = holds->state_counts[HOLD_HELD];
	counts->staged = holds->state_counts[HOLD_STAGED];
	counts->ended = holds->state_counts[HOLD_ENDED];
}

uint64_t kvpull_holds_generation_max(const struct kvpull_holds *holds)
{
	return holds->generation_max;
}

static uint64_t mix(uint64_t digest, uint64_t value)
{
	digest = (digest ^ value) * UINT64_C(0x9e3779b97f4a7c15);
	return digest ^ digest >> 29;
}

static uint64_t mix_bytes(uint64_t digest, const void *bytes, size_t byte_count)
{
	const uint8_t *at = (const uint8_t *)bytes;
	uint64_t word;

	for (; byte_count >= sizeof(word); byte_count -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		digest = mix(digest, word);
		at += sizeof(word);
	}
	return digest;
}

uint64_t kvpull_holds_digest(const struct kvpull_holds *holds)
{
	uint64_t digest = 1;
	uint32_t i;

	_Static_assert(sizeof(struct hold) % sizeof(uint64_t) == 0 &&
			       sizeof(struct instance) % sizeof(uint64_t) == 0,
		       "the digest sees every byte of them");
	for (i = 0; i < holds->slot_count; i++) {
		struct hold hold = holds->holds[i];

		hold.generation = 0;
		digest = mix_bytes(digest, &hold, sizeof(hold));
	}
	digest = mix_bytes(digest, holds->instances,
			   (size_t)holds->instance_count *
				   sizeof(*holds->instances));
	for (i = 0; i < HOLD_STATES; i++)
		digest = mix(digest, holds->state_counts[i]);
	digest = mix(digest, holds->live_count);
	digest = mix(digest, holds->leases.count);
	digest = mix(digest, holds->keys.count);
	digest = mix(digest, holds->death_due_ns);
	digest = mix(digest, holds->scan_open);
	digest = mix(digest, holds->scan_left);
	digest = mix(digest, holds->ended_first);
	digest = mix(digest, holds->ended_last);
	digest = mix(digest, holds->published);
	return mix(digest, holds->unfenced);
}

static uint64_t ms_since(uint64_t then_ns, uint64_t now_ns)
{
	return now_ns > then_ns ? (now_ns - then_ns) / UINT64_C(1000000) : 0;
}

void kvpull_holds_describe(const struct kvpull_holds *holds, uint32_t slot,
			   uint64_t now_ns, char *text, size_t capacity)
{
	static const char *const names[HOLD_STATES] = { "free", "staged",
							"held", "ended" };
	const struct hold *hold;
	size_t used;
	uint32_t i;

	if (!capacity)
		return;
	if (slot >= holds->slot_count) {
		(void)snprintf(text, capacity, "slot %" PRIu32 " unknown", slot);
		return;
	}
	hold = &holds->holds[slot];
	(void)snprintf(text, capacity,
		       "slot %" PRIu32 " generation %" PRIu64 " key %" PRIu64
		       " %s %" PRIu64 " ms, claimed by %s",
		       slot,
		       hold->state == HOLD_STAGED ? hold->staged :
						    hold->generation,
		       hold->key, names[hold->state],
		       hold->state == HOLD_HELD ?
			       ms_since(hold->taken_ns, now_ns) :
			       0,
		       hold->claim_count ? "" : "nobody");
	for (i = 0; i < hold->claim_count; i++) {
		const struct claim *claim = &hold->claims[i];
		const struct instance *instance =
			&holds->instances[claim->instance];

		used = strlen(text);
		(void)snprintf(text + used, capacity - used,
			       "%sinstance %#" PRIx64 " released %d of %" PRIu32
			       " heard %" PRIu64 " ms ago",
			       i ? ", " : "", instance->id,
			       __builtin_popcountll(claim->released),
			       instance->rank_count,
			       ms_since(instance->heard_ns,
					lease_clock(holds, now_ns)));
	}
}
