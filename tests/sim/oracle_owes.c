/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle's other book: what the consumers know. A producer keeps a hold for
 * every rank that has claimed it, lives and owes a last word; so each such rank
 * must have the claim in its table, or its last word must be on the way. Else
 * the word never comes, and heartbeats keep the hold until hold_max.
 */
#include "tests/lib/inside.h"
#include "tests/sim/oracle.h"

/* Is it connected to its consumer's end, which may still say the word? */
static int is_open(const struct sim_conn *conn)
{
	return conn && conn->attached && conn->joined_ns && !conn->lost &&
	       !conn->server_down;
}

/* Has the rank that called claimed, and said no last word? */
static int owes(const struct sim_hold_rank *rank, const struct sim_conn *conn)
{
	uint32_t at;

	for (at = 0; at < rank->claimer_count; at++)
		if (rank->claimers[at].instance_id == conn->instance_id &&
		    sim_owes_itself(&rank->claimers[at], conn->client_rank))
			return 1;
	return 0;
}

void sim_oracle_owes(struct sim_proc *proc, const struct sim_hold *hold)
{
	struct sim_world *world = proc->world;
	const struct sim_hold_rank *rank = &hold->ranks[proc->rank];
	uint32_t at;

	/* After it a consumer says nothing more; this rank may count it later. */
	if (world->now_ns > hold->created_ns + world->hold_max_ns)
		return;
	for (at = 0; rank->claimer_count && at < world->shape.callers; at++) {
		const struct sim_conn *conn = proc->transport.callers[at];

		if (is_open(conn) && owes(rank, conn) &&
		    !kvpull_progress_owes(conn->client->worker->progress,
					  hold->slot, hold->generation,
					  proc->incarnation))
			sim_fail(
				world,
				"process %u owes process %u a word on hold %llu, and does not know it",
				conn->client->index, proc->index,
				(unsigned long long)hold->key);
	}
}
