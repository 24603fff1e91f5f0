/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/inside.h"

#include <string.h>

#include "base/index.h"
#include "plugin/hold/hold_state.h"
#include "plugin/progress/progress_state.h"
#include "plugin/scheduler/scheduler_state.h"

static uint64_t mix_bytes(uint64_t digest, const void *bytes, size_t byte_count)
{
	const uint8_t *at = (const uint8_t *)bytes;
	uint64_t word;

	for (; byte_count >= sizeof(word); byte_count -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		digest = kvpull_index_mix(digest, word);
		at += sizeof(word);
	}
	return digest;
}

uint64_t kvpull_holds_digest(const struct kvpull_holds *holds)
{
	uint64_t digest = 1;
	uint32_t i;

	_Static_assert(
		sizeof(struct hold) % sizeof(uint64_t) == 0 &&
			sizeof(struct kvpull_instance) % sizeof(uint64_t) == 0,
		"the digest sees every byte of them");
	for (i = 0; i < holds->slot_count; i++) {
		struct hold hold = holds->holds[i];

		hold.generation = 0;
		digest = mix_bytes(digest, &hold, sizeof(hold));
	}
	digest = mix_bytes(digest, holds->instances.all,
			   (size_t)holds->instances.count *
				   sizeof(*holds->instances.all));
	for (i = 0; i < HOLD_STATES; i++)
		digest = kvpull_index_mix(digest, holds->state_counts[i]);
	digest = kvpull_index_mix(digest, holds->live_count);
	digest = kvpull_index_mix(digest, holds->leases.count);
	digest = kvpull_index_mix(digest, holds->keys.count);
	digest = kvpull_index_mix(digest, holds->instances.due_ns);
	digest = kvpull_index_mix(digest, holds->scan_open);
	digest = kvpull_index_mix(digest, holds->scan_left);
	for (i = 0; i < holds->state_counts[HOLD_ENDED]; i++)
		digest = kvpull_index_mix(digest, *hold_ended(holds, i));
	digest = kvpull_index_mix(digest, holds->published);
	return kvpull_index_mix(digest, holds->unfenced);
}

static uint64_t slots_digest(const struct kvpull_slots *slots)
{
	uint32_t index = slots->live.first;
	uint64_t digest = 0;

	for (; index != KVPULL_NONE; index = slots->live.links[index].next) {
		const struct kvpull_slot *slot = &slots->slots[index];

		digest += kvpull_index_mix(kvpull_index_mix(slot->key, index),
					   slot->reported << 1 | slot->ending);
	}
	digest = kvpull_index_mix(digest, slots->ending.count);
	return kvpull_index_mix(digest, kvpull_index_pool_used(&slots->pool));
}

static uint64_t families_digest(const struct kvpull_families *families)
{
	uint64_t digest = 0;
	uint32_t index;

	for (index = 0; index < families->pool.touched; index++) {
		const struct kvpull_family *family = &families->families[index];

		if (family->parent_key)
			digest += kvpull_index_mix(
				family->parent_key,
				families->ended.links[index].linked + 1);
	}
	return kvpull_index_mix(digest,
				kvpull_index_pool_used(&families->pool));
}

static uint64_t demand_digest(const struct kvpull_demand *demand)
{
	uint64_t digest = 0;
	uint32_t index;

	for (index = 0; index < demand->pool.touched; index++) {
		const struct kvpull_demand_ticket *entry =
			&demand->tickets[index];

		if (!entry->incarnation)
			continue;
		digest += kvpull_index_mix(
			kvpull_index_mix(entry->map_key, entry->loader),
			(uint64_t)entry->user_count << 40 ^
				(uint64_t)entry->pull_count << 8 ^
				entry->flags);
	}
	digest = kvpull_index_mix(digest, demand->releasing.count);
	digest = kvpull_index_mix(digest, demand->pull_count);
	digest = kvpull_index_mix(digest, demand->chosen_count);
	return kvpull_index_mix(digest, demand->live_count);
}

uint64_t kvpull_scheduler_digest(const struct kvpull_scheduler *scheduler)
{
	const uint32_t count = scheduler->request_pool.touched;
	uint64_t digest = slots_digest(&scheduler->slots);
	uint64_t requests = 0;
	uint32_t index;

	digest =
		kvpull_index_mix(digest, families_digest(&scheduler->families));
	digest = kvpull_index_mix(digest, demand_digest(&scheduler->demand));
	digest = kvpull_index_mix(
		digest, kvpull_index_pool_used(&scheduler->texts.pool));
	for (index = 0; index < count; index++) {
		const struct kvpull_scheduler_request *request =
			&scheduler->requests[index];

		if (request->key)
			requests += kvpull_index_mix(
				request->key,
				(uint64_t)request->user.state << 8 |
					request->finished << 4 | request->owed);
	}
	digest = kvpull_index_mix(digest, requests);
	digest = kvpull_index_mix(digest, scheduler->by_key.count);
	digest = kvpull_index_mix(digest, scheduler->owing.count);
	digest = kvpull_index_mix(
		digest, kvpull_outbox_has_unsent(&scheduler->outbox) != 0);
	return kvpull_index_mix(digest, scheduler->draining);
}

uint32_t kvpull_progress_pulls(const struct kvpull_progress *progress)
{
	return progress->reads.live.count;
}

static int owes(const struct kvpull_claim *claim, uint64_t incarnation)
{
	uint32_t at;

	for (at = 0; at < claim->order->rank_count; at++)
		if (claim->order->ranks[at].incarnation == incarnation &&
		    claim->ranks[at].state <= KVPULL_RANK_SAID)
			return 1;
	return 0;
}

int kvpull_progress_owes(const struct kvpull_progress *progress, uint32_t slot,
			 uint64_t generation, uint64_t incarnation)
{
	uint32_t index;

	for (index = 0;
	     index < kvpull_config_claims_max(&progress->facts->config);
	     index++) {
		const struct kvpull_claim *claim = &progress->claims.all[index];

		if (claim->order && claim->order->slot == slot &&
		    claim->order->generation == generation &&
		    owes(claim, incarnation))
			return 1;
	}
	return 0;
}
