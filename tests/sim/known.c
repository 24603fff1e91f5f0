/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the consumers themselves know of a hold: the oracle's other book. What a
 * producer was told may be all that it goes by; whether somebody is left who
 * could say the last word only the consumers know.
 */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/sim/sim.h"

#define POLLS_SLACK 6u

static int runs(const struct sim_proc *proc)
{
	const struct sim_world *world = proc->world;

	return world->now_ns >= proc->frozen_ns &&
	       world->now_ns >= proc->instance->stalled_ns;
}

/* Commands are on their way, which may claim it or release it. */
static int is_commanding(const struct sim_instance *instance)
{
	const struct kvpull_scheduler *scheduler = instance->scheduler;
	uint32_t rank;

	if (scheduler->demand.releasing.count)
		return 1;
	for (rank = 0; rank < instance->tp; rank++)
		if (scheduler->outbox.ranks[rank].applied + 1 <
		    scheduler->outbox.next_sequence)
			return 1;
	return 0;
}

static int has_request(const struct sim_instance *instance,
		       const struct sim_hold *hold)
{
	const uint32_t index = (uint32_t)(hold - instance->world->holds);
	uint32_t at;

	for (at = 0; at < SIM_REQUESTS; at++) {
		const struct sim_request *request = &instance->requests[at];

		if (request->hold == index && (request->state == SIM_WAITING ||
					       request->state == SIM_PULLING))
			return 1;
	}
	return 0;
}

static int knows(const struct sim_instance *instance,
		 const struct sim_hold *hold, uint64_t producer)
{
	uint32_t rank;

	if (has_request(instance, hold) || is_commanding(instance))
		return 1;
	for (rank = 0; rank < instance->tp; rank++) {
		const struct sim_proc *proc = instance->procs[rank];

		/* What found no room at one rank is pinned by its others. */
		if (proc->alive &&
		    (!runs(proc) || proc->crowded_ns >= hold->created_ns ||
		     kvpull_progress_owes(proc->worker->progress, hold->slot,
					  hold->generation, producer)))
			return 1;
	}
	return 0;
}

/*
 * A worker that was restarted alone, and its producer had never seen another of
 * its rank, or was told of the hold only when this one was there: neither of
 * them knows that its word will not come.
 */
static int is_awaited(const struct sim_instance *instance,
		      const struct sim_hold *hold,
		      const struct sim_claimer *claimer)
{
	uint32_t rank;

	if (!instance->restarts)
		return 0;
	for (rank = 0; rank < instance->tp; rank++)
		if (!((claimer->spoke | claimer->died | claimer->absent) >>
			      rank &
		      1) &&
		    instance->procs[rank]->opened_ns > hold->created_ns)
			return 1;
	return 0;
}

/* Of those who claimed it on this rank. */
static int is_known(const struct sim_proc *proc, const struct sim_hold *hold)
{
	const struct sim_world *world = proc->world;
	const struct sim_hold_rank *rank = &hold->ranks[proc->rank];
	uint32_t index;
	uint32_t at;

	for (at = 0; at < rank->claimer_count; at++)
		for (index = 0; index < world->instance_count; index++) {
			const struct sim_instance *instance =
				&world->instances[index];

			if (instance->alive &&
			    instance->incarnation ==
				    rank->claimers[at].instance_id &&
			    (knows(instance, hold, proc->incarnation) ||
			     is_awaited(instance, hold, &rank->claimers[at])))
				return 1;
		}
	return 0;
}

int sim_known_is_forgotten(struct sim_proc *proc, struct sim_hold *hold)
{
	const struct sim_world *world = proc->world;
	struct sim_hold_rank *rank = &hold->ranks[proc->rank];

	/* After hold_max, which this rank may count from later, none is said. */
	if (!rank->claimer_count || rank->claimer_count > KVPULL_CLAIMS_MAX ||
	    world->now_ns > hold->created_ns + world->hold_max_ns ||
	    is_known(proc, hold)) {
		rank->forgotten_polls = 0;
		return 0;
	}
	if (!rank->forgotten_polls++) {
		rank->forgotten_ns = world->now_ns;
		rank->forgotten_stall_ns = proc->stall_ns;
	}
	/* Deaths are on their way, and graces, which a stall prolongs. */
	return rank->forgotten_polls > POLLS_SLACK &&
	       world->now_ns - rank->forgotten_ns >
		       2 * world->grace_ns + 2000 * (uint64_t)world->delay_us +
			       proc->stall_ns - rank->forgotten_stall_ns;
}
