/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: a slot is live from its take until every rank has reported, each
 * counted by its bit; live, by_key and key != 0 name the same slots.
 *
 * END goes to all ranks, once a hold, when one rank's hold ended for another
 * reason than that its own consumers released, when the engine revokes, and
 * when a rank's worker was replaced before it reported (again, then: the new
 * one must report). It names the ranks that have reported: the worker of such a
 * rank may be another one since, and engines count reports.
 * An END with KVPULL_END_GIVEN_BACK is a mark: each rank ends the hold when no
 * consumer that claimed it there owes a word. So a true END may follow it.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "plugin/scheduler/slot.h"

void kvpull_slots_init(struct kvpull_slots *slots, uint32_t count_max,
		       struct kvpull_arena *arena)
{
	KVPULL_ARENA_TAKE(arena, slots->slots, count_max);
	kvpull_index_pool_init(&slots->pool, count_max, arena);
	kvpull_index_list_init(&slots->live, count_max, arena);
	kvpull_index_list_init(&slots->ending, count_max, arena);
	kvpull_map_init(&slots->by_key, count_max, arena);
}

int kvpull_slots_peek(const struct kvpull_slots *slots, uint32_t slot_count,
		      uint64_t floor, struct kvpull_slot_take *take)
{
	const uint32_t index = kvpull_index_pool_peek(&slots->pool);
	uint64_t last;

	if (index == KVPULL_NONE || index >= slot_count)
		return KVPULL_EFULL;
	last = slots->slots[index].generation;
	take->slot = index;
	take->generation = (last > floor ? last : floor) + 1;
	return 0;
}

void kvpull_slots_take(struct kvpull_slots *slots,
		       const struct kvpull_slot_take *take)
{
	const uint32_t index = kvpull_index_pool_take(&slots->pool);
	struct kvpull_slot *slot = &slots->slots[index];

	kvpull_check(slots->log, index == take->slot && !slot->key &&
					 slot->generation < take->generation);
	*slot = (struct kvpull_slot){
		.key = take->key,
		.generation = take->generation,
		.taken_ns = take->now_ns,
		.parent_key = take->parent_key,
		.text = take->text,
	};
	(void)snprintf(slot->label, sizeof(slot->label), "%s", take->label);
	kvpull_index_list_push(&slots->live, index);
	/* As many places as slots: it cannot be full. */
	kvpull_check(slots->log,
		     kvpull_map_set(&slots->by_key, take->key, index) == 0);
}

uint32_t kvpull_slots_find(const struct kvpull_slots *slots, uint64_t key)
{
	return kvpull_map_get(&slots->by_key, key);
}

static void free_slot(struct kvpull_slots *slots, uint32_t index,
		      uint64_t now_ns)
{
	struct kvpull_slot *slot = &slots->slots[index];

	if (slot->parent_key)
		kvpull_families_end(slots->families, slot->parent_key,
				    slot->text, now_ns);
	kvpull_texts_release(slots->texts, slot->text);
	kvpull_map_remove(&slots->by_key, slot->key);
	kvpull_index_list_remove(&slots->live, index);
	kvpull_index_list_remove(&slots->ending, index);
	slot->key = 0;
	kvpull_index_pool_give(&slots->pool, index);
	slots->ended++;
}

int kvpull_slots_report(struct kvpull_slots *slots, uint32_t rank,
			const struct kvpull_result *result, uint64_t now_ns)
{
	const uint64_t bit = UINT64_C(1) << rank;
	struct kvpull_slot *slot;

	if (result->slot >= slots->pool.count_max)
		return KVPULL_ENOKEY;
	slot = &slots->slots[result->slot];
	if (!slot->key || slot->key != result->key ||
	    slot->generation != result->generation || (slot->reported & bit))
		return KVPULL_ENOKEY;
	slot->reported |= bit;
	if (slot->reported == slots->ranks_all)
		free_slot(slots, result->slot, now_ns);
	else if (result->reason == KVPULL_END_GIVEN_BACK)
		kvpull_slots_end(slots, result->slot, KVPULL_END_GIVEN_BACK);
	else if (result->reason != KVPULL_END_RELEASED)
		kvpull_slots_end(slots, result->slot, KVPULL_END_RANK);
	return 0;
}

void kvpull_slots_end(struct kvpull_slots *slots, uint32_t slot, int32_t reason)
{
	struct kvpull_slot *entry = &slots->slots[slot];

	/* A mark ends nothing by itself: a true end may follow it. */
	if (entry->ending && (entry->end_reason != KVPULL_END_GIVEN_BACK ||
			      reason == KVPULL_END_GIVEN_BACK))
		return;
	entry->ending = 1;
	entry->end_reason = reason;
	kvpull_index_list_push(&slots->ending, slot);
}

void kvpull_slots_end_all(struct kvpull_slots *slots, int32_t reason)
{
	uint32_t index = slots->live.first;

	for (; index != KVPULL_NONE; index = slots->live.links[index].next)
		kvpull_slots_end(slots, index, reason);
}

void kvpull_slots_rank_restart(struct kvpull_slots *slots, uint32_t rank)
{
	const uint64_t bit = UINT64_C(1) << rank;
	uint32_t index = slots->live.first;

	for (; index != KVPULL_NONE; index = slots->live.links[index].next) {
		struct kvpull_slot *slot = &slots->slots[index];

		if (slot->reported & bit)
			continue;
		slot->ending = 0;
		kvpull_slots_end(slots, index, KVPULL_END_RANK);
	}
}

void kvpull_slots_flush(struct kvpull_slots *slots,
			struct kvpull_outbox *outbox)
{
	while (slots->ending.count) {
		const uint32_t index = slots->ending.first;
		const struct kvpull_slot *slot = &slots->slots[index];
		const struct kvpull_command command = {
			.kind = KVPULL_COMMAND_END,
			.slot = index,
			.key = slot->key,
			.generation = slot->generation,
			.reason = slot->end_reason,
			.reported = slot->reported,
		};

		if (kvpull_outbox_put(outbox, &command) != 0)
			return;
		kvpull_index_list_remove(&slots->ending, index);
	}
}

int kvpull_slots_are_old(struct kvpull_slots *slots, uint64_t max_ns,
			 uint64_t now_ns)
{
	const uint32_t index = slots->live.first;
	struct kvpull_slot *slot;
	uint64_t missing;

	if (index == KVPULL_NONE)
		return 0;
	slot = &slots->slots[index];
	if (now_ns < slot->taken_ns || now_ns - slot->taken_ns <= max_ns)
		return 0;
	missing = slots->ranks_all & ~slot->reported;
	if (!slot->silent)
		kvpull_error(slots->log,
			     "rank %d has not reported request %s key %" PRIu64
			     " for %" PRIu64
			     " ms: its blocks are stranded, restart the engine",
			     __builtin_ctzll(missing), slot->label, slot->key,
			     (now_ns - slot->taken_ns) / KVPULL_NS_PER_MS);
	slot->silent = 1;
	return 1;
}
