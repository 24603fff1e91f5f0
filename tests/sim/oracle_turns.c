/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle, where pulls wait for entries of producers' ranks: the turn goes to
 * the smallest priority, and of equal ones to the pull whose claim lacked entries
 * first; the last turn of a round goes to the one of all whose claim did. So none
 * starves. All requests of a ticket have one priority, which follows from it.
 */
#include "plugin/progress/progress_state.h"
#include "tests/sim/oracle.h"

#define ROUND 8u /* as connector.h says */

int32_t sim_priority(const struct sim_world *world, uint64_t generation)
{
	/* Few numbers, so that many are equal. */
	return world->shape.ranked ?
		       (int32_t)(generation * UINT64_C(0x9e3779b97f4a7c15) >>
				 62) -
			       1 :
		       0;
}

static int32_t priority_of(const struct sim_proc *proc,
			   const struct kvpull_claim *claim)
{
	return sim_priority(proc->world, claim->order->generation);
}

static int lacks_entries(const struct kvpull_claim *claim)
{
	uint32_t rank;

	for (rank = 0; claim->order && rank < claim->order->rank_count; rank++)
		if (claim->ranks[rank].peer == KVPULL_NONE &&
		    claim->ranks[rank].state <= KVPULL_RANK_SAID)
			return 1;
	return 0;
}

/* The pull of the claim waited at the last look, and does so now. */
static int waited(const struct sim_proc *proc, uint32_t index)
{
	const struct sim_waiter *waiter = &proc->turns.waiters[index];
	const struct kvpull_claim *claim =
		&proc->worker->progress->claims.all[index];

	return lacks_entries(claim) && claim->pull_count && waiter->pulls &&
	       waiter->serial == claim->order->serial;
}

/* Was the pull at `other` to have the turn that the one at `index` has? */
static int is_passed_over(const struct sim_proc *proc, uint32_t index,
			  uint32_t other)
{
	const struct kvpull_progress *progress = proc->worker->progress;
	const struct kvpull_claim *claims = progress->claims.all;
	const int32_t priority = priority_of(proc, &claims[index]);
	const int32_t others = priority_of(proc, &claims[other]);
	const struct sim_waiter *waiter = &proc->turns.waiters[index];
	const int came_later = waiter->serial != claims[index].order->serial ||
			       proc->turns.waiters[other].since < waiter->since;

	if (progress->room.turns.given % ROUND == ROUND - 1)
		return came_later;
	return others < priority || (others == priority && came_later);
}

static void turn_check(struct sim_proc *proc, uint32_t index)
{
	const struct kvpull_progress *progress = proc->worker->progress;
	const struct kvpull_claim *claims = progress->claims.all;
	uint32_t judged = 0;
	uint32_t other;

	/* A release has it when no pull wants it. */
	for (other = 0; other < progress->claims.end; other++) {
		if (other == index || !waited(proc, other))
			continue;
		judged++;
		if (!claims[index].pull_count ||
		    is_passed_over(proc, index, other))
			sim_fail(
				proc->world,
				"process %u gives entries to slot %u generation %llu before generation %llu",
				proc->index, claims[index].order->slot,
				(unsigned long long)claims[index]
					.order->generation,
				(unsigned long long)claims[other]
					.order->generation);
	}
	proc->world->counts.judged += judged != 0;
}

static void waiter_note(struct sim_proc *proc, uint32_t index)
{
	const struct kvpull_claim *claim =
		&proc->worker->progress->claims.all[index];
	struct sim_waiter *waiter = &proc->turns.waiters[index];

	if (!lacks_entries(claim)) {
		waiter->serial = 0;
		return;
	}
	if (waiter->serial != claim->order->serial)
		waiter->since = proc->poll_count;
	waiter->serial = claim->order->serial;
	waiter->pulls = claim->pull_count != 0;
}

void sim_oracle_turns(struct sim_proc *proc)
{
	const struct kvpull_progress *progress = proc->worker->progress;
	const uint32_t turn = progress->room.turn;
	const uint64_t serial =
		turn == KVPULL_NONE ? 0 :
				      progress->claims.all[turn].order->serial;
	uint32_t index;

	if (!proc->world->shape.crowd)
		return;
	if (progress->claims.end > SIM_WAITERS)
		sim_fail(proc->world, "process %u has %u claims", proc->index,
			 progress->claims.end);
	if (serial && serial != proc->turns.serial)
		turn_check(proc, turn);
	proc->turns.serial = serial;
	for (index = 0; index < progress->claims.end; index++)
		waiter_note(proc, index);
}
