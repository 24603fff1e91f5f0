/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, engine's thread: pulls that are smaller than what it takes to
 * wake another thread. They are copied here, in a poll, from memory that their
 * peers' routes have mapped and lent.
 *
 * A pull is looked at twice, and then it is one thread's for good: in
 * start_loads(), where it stays here or is handed over, and in its turn, which
 * its priority decides. There it is done whole, or is handed over before anything
 * was told of it. Between take() and give() below
 *   the claim   was handed over before its pull, so it is said, or the release is
 *   the data    of all peers is copied
 *   the entries of all peers are read after the last byte of the data
 * and nothing is unmapped. Whatever is not plainly right goes to the other
 * thread, which has the words for it.
 */
#include "plugin/progress/plan.h"
#include "plugin/reads/judge.h"
#include "plugin/worker/worker_state.h"

/* Copied in a poll. With progress=caller, the routes' own half comes to it. */
#define SMALL_BYTES 131072u

void kvpull_small_init(struct kvpull_worker *worker)
{
	uint32_t at;

	for (at = 0; at < worker->facts.cache_count; at++) {
		const struct kvpull_cache *cache = &worker->facts.caches[at];

		worker->small.block_bytes[cache->group_index] +=
			(uint64_t)cache->layer_count * cache->row_count *
			cache->head_count * cache->head_bytes;
	}
}

/* Blocks have a size that was checked; a sum of 32-bit counts of it fits. */
static uint64_t pull_bytes(const struct kvpull_worker *worker,
			   const struct kvpull_pull_order *order)
{
	uint64_t bytes = 0;
	uint32_t group;

	for (group = 0; group < worker->facts.compat.group_count; group++)
		bytes += (order->group_first[group + 1] -
			  order->group_first[group]) *
			 worker->small.block_bytes[group];
	return bytes;
}

/* Neighbouring ranks of a ticket came one after the other, mostly. */
static struct kvpull_lent *lent_find(struct kvpull_worker *worker,
				     uint64_t incarnation)
{
	const uint32_t end = atomic_load_explicit(&worker->handover.lent_end,
						  memory_order_relaxed);
	uint32_t left = end;
	uint32_t at = worker->small.lent_last;

	for (; left; left--) {
		struct kvpull_lent *lent = &worker->handover.lent[at];

		/* A hint; it is judged under the pin. */
		if (atomic_load_explicit(&lent->incarnation,
					 memory_order_relaxed) == incarnation) {
			worker->small.lent_last = at;
			return lent;
		}
		if (++at == end)
			at = 0;
	}
	return NULL;
}

int kvpull_small_knows(struct kvpull_worker *worker,
		       const struct kvpull_claim_order *claim)
{
	uint32_t rank;

	for (rank = 0; rank < claim->rank_count; rank++) {
		const struct kvpull_lent *lent =
			lent_find(worker, claim->ranks[rank].incarnation);

		if (!lent || !kvpull_mapping_is_open(&lent->mapping))
			return 0;
	}
	return 1;
}

int kvpull_small_fits(struct kvpull_worker *worker, uint32_t index)
{
	const struct kvpull_pull_order *order = &worker->handover.pulls[index];

	return pull_bytes(worker, order) <= worker->facts.config.inline_bytes &&
	       !(order->flags & KVPULL_FLAG_READY) &&
	       !worker->claims.notes[order->claim].release_told &&
	       kvpull_small_knows(worker,
				  &worker->handover.claims[order->claim]);
}

/* A peer's part of the pull, while its memory is pinned. */
struct part {
	struct kvpull_lent *lent;
	struct kvpull_read read;
};

/* Pinned, and what the ticket says of it holds: 0; else nothing was taken. */
static int part_take(struct kvpull_worker *worker,
		     const struct kvpull_pull_order *order, uint32_t rank,
		     struct part parts[KVPULL_RANKS_MAX])
{
	const struct kvpull_claim_order *claim =
		&worker->handover.claims[order->claim];
	const uint64_t incarnation = claim->ranks[rank].incarnation;
	struct kvpull_lent *lent = lent_find(worker, incarnation);
	struct part *part = &parts[rank];

	if (!lent || !kvpull_mapping_take(&lent->mapping))
		return KVPULL_EAGAIN;
	part->lent = lent;
	part->read = (struct kvpull_read){
		.strips = lent->plan->strips,
		.strip_count = lent->plan->strip_count,
		.remote_ids = order->remote_ids,
		.local_ids = order->local_ids,
		.group_first = order->group_first,
	};
	if (atomic_load_explicit(&lent->incarnation, memory_order_relaxed) ==
		    incarnation &&
	    lent->stage.rank == rank &&
	    lent->stage.rank_count == claim->rank_count &&
	    (!rank || !kvpull_stages_compare(&parts[rank - 1].lent->stage,
					     &lent->stage, NULL)) &&
	    claim->slot < lent->mapping.slot_count &&
	    (!part->read.strip_count ||
	     !kvpull_plan_check_ids(lent->plan, &part->read,
				    &part->read.byte_count)))
		return 0;
	kvpull_mapping_give(&lent->mapping);
	return KVPULL_EAGAIN;
}

static int parts_copy(const struct part *parts, uint32_t count)
{
	uint32_t at;
	int code = 0;

	for (at = 0; !code && at < count; at++)
		if (parts[at].read.strip_count)
			code = parts[at].lent->mapping.copy(
				&parts[at].lent->mapping, &parts[at].read);
	return code;
}

/*
 * After the last byte of all of them. Whose death was seen before its entry is
 * read is judged by who saw it. 0, KVPULL_EAGAIN, KVPULL_EEXPIRED.
 */
static int parts_check(const struct part *parts, uint32_t count,
		       const struct kvpull_claim_order *claim)
{
	uint32_t at;
	int code = 0;

	for (at = 0; !code && at < count; at++) {
		const struct kvpull_mapping *mapping = &parts[at].lent->mapping;
		struct kvpull_revocation_value value;

		if (!parts[at].read.strip_count)
			continue;
		if (!kvpull_mapping_is_open(mapping))
			return KVPULL_EAGAIN;
		value = kvpull_revocation_read(&mapping->entries[claim->slot]);
		code = kvpull_guard_judge(KVPULL_GUARD_HOLD, &value,
					  claim->ranks[at].incarnation,
					  claim->generation);
	}
	return code;
}

static void parts_show(const struct kvpull_worker *worker,
		       const struct part *parts, uint32_t count)
{
	uint32_t at;

	for (at = 0; at < count; at++) {
		struct kvpull_status_peer *row =
			&worker->status
				 .peers[parts[at].lent - worker->handover.lent];

		if (!parts[at].read.strip_count)
			continue;
		kvpull_status_add(&row->small_pulls, 1);
		kvpull_status_add(&row->small_bytes, parts[at].read.byte_count);
	}
}

/* 0: loaded; else the other thread finds out what is wrong. */
static int pull_copy(struct kvpull_worker *worker,
		     const struct kvpull_pull_order *order,
		     struct kvpull_pull_outcome *outcome)
{
	const struct kvpull_claim_order *claim =
		&worker->handover.claims[order->claim];
	struct part parts[KVPULL_RANKS_MAX];
	uint32_t taken = 0;
	int code = 0;

	while (!code && taken < claim->rank_count) {
		code = part_take(worker, order, taken, parts);
		if (!code)
			outcome->bytes += parts[taken++].read.byte_count;
	}
	if (!code)
		code = parts_copy(parts, taken);
	outcome->phases.came_ns = kvpull_facts_now(&worker->facts);
	if (!code)
		code = parts_check(parts, taken, claim);
	if (!code)
		parts_show(worker, parts, taken);
	while (taken)
		kvpull_mapping_give(&parts[--taken].lent->mapping);
	return code;
}

/* Ends the pull, or hands it over. */
static void pull_turn(struct kvpull_worker *worker, uint32_t index,
		      uint64_t now_ns)
{
	const struct kvpull_pull_order *order = &worker->handover.pulls[index];
	const uint64_t begun_ns = kvpull_facts_now(&worker->facts);
	struct kvpull_pull_outcome outcome = {
		.phases = { begun_ns, begun_ns, begun_ns, 0 },
	};

	/* A pull beyond its deadline is not begun here. */
	if (now_ns >= order->deadline_ns ||
	    pull_copy(worker, order, &outcome)) {
		kvpull_pull_hand_over(worker, index);
		return;
	}
	worker->claims.notes[order->claim].waiting--;
	outcome.ended_ns = kvpull_facts_now(&worker->facts);
	worker->handover.outcomes[index] = outcome;
	kvpull_worker_show_small(worker, index);
	kvpull_pulls_add(&worker->pulls, &worker->pulls.ended, index);
	if (order->flags & KVPULL_FLAG_RELEASE)
		kvpull_worker_claim_release(worker, order->claim);
}

uint32_t kvpull_small_run(struct kvpull_worker *worker, uint64_t now_ns)
{
	struct kvpull_turns *turns = &worker->small.turns;
	uint64_t left = SMALL_BYTES;
	uint32_t count = 0;

	while (turns->arrival.count) {
		const uint32_t index = kvpull_turns_next(turns);
		const uint64_t bytes =
			pull_bytes(worker, &worker->handover.pulls[index]);

		if (bytes > left)
			break;
		left -= bytes;
		kvpull_turns_remove(turns, index);
		kvpull_turns_give(turns);
		pull_turn(worker, index, now_ns);
		count++;
	}
	return count;
}
