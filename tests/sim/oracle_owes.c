/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle's other book: what the consumers know. A producer keeps a hold for
 * every rank that has claimed it, lives and owes a last word; so each such rank
 * must have the claim in its table, or its last word must be on the way. Else
 * the word never comes, and heartbeats keep the hold until hold_max.
 */
#include "tests/sim/sim.h"

/* Is it connected to its consumer's end, which may still say the word? */
static int is_open(const struct sim_conn *conn, const struct sim_proc *server)
{
	return conn->used && conn->server == server && conn->attached &&
	       conn->joined_ns && !conn->lost && !conn->server_down;
}

void sim_oracle_owes(struct sim_proc *proc, const struct sim_hold *hold)
{
	struct sim_world *world = proc->world;
	const struct sim_hold_rank *rank = &hold->ranks[proc->rank];
	uint32_t index;
	uint32_t at;

	/* After it a consumer says nothing more; this rank may count it later. */
	if (world->now_ns > hold->created_ns + world->hold_max_ns)
		return;
	for (index = 0; index < world->shape.conns; index++) {
		const struct sim_conn *conn = &world->conns[index];

		if (!is_open(conn, proc) ||
		    kvpull_progress_owes(conn->client->worker->progress,
					 hold->slot, hold->generation,
					 proc->incarnation))
			continue;
		for (at = 0; at < rank->claimer_count; at++)
			if (rank->claimers[at].instance_id ==
				    conn->instance_id &&
			    rank->claimers[at].owes >> conn->client_rank & 1)
				sim_fail(
					world,
					"process %u owes process %u a word on hold %llu, and does not know it",
					conn->client->index, proc->index,
					(unsigned long long)hold->key);
	}
}
