/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle's books of consumers: what a producer's process was told by them. */
#include <string.h>

#include "tests/sim/oracle.h"

struct sim_seen *sim_seen_of(struct sim_proc *proc, uint64_t instance_id)
{
	struct sim_seen *seen;

	if (instance_id >= proc->seen_count) {
		const uint64_t count = 2 * instance_id + 16;

		proc->seen = sim_grown(proc->seen, count, sizeof(seen));
		memset(&proc->seen[proc->seen_count], 0,
		       (count - proc->seen_count) * sizeof(seen));
		proc->seen_count = count;
	}
	seen = proc->seen[instance_id];
	if (seen)
		return seen;
	seen = sim_grown(NULL, 1, sizeof(*seen));
	*seen = (struct sim_seen){ .instance_id = instance_id };
	proc->seen[instance_id] = seen;
	return seen;
}

static struct sim_claimer *claimer_of(struct sim_hold_rank *rank,
				      const struct sim_seen *seen)
{
	uint32_t at;

	for (at = 0; at < rank->claimer_count; at++)
		if (rank->claimers[at].instance_id == seen->instance_id &&
		    rank->claimers[at].life == seen->life)
			return &rank->claimers[at];
	return NULL;
}

/* Ranks that were there, and are dead now. */
uint64_t sim_seen_gone(const struct sim_seen *seen)
{
	return seen->ever & ~seen->connected & ~seen->in_grace & ~seen->away;
}

/* In an earlier life. */
static int has_spoken(const struct sim_hold_rank *rank,
		      const struct sim_seen *seen)
{
	uint32_t at;

	for (at = 0; at < rank->claimer_count; at++)
		if (rank->claimers[at].instance_id == seen->instance_id)
			return 1;
	return 0;
}

/* Ranks whose death is worked off after the notes of this poll. */
static uint64_t dying(const struct sim_proc *proc, const struct sim_seen *seen)
{
	uint64_t ranks = 0;
	uint32_t rank;

	if (proc->world->grace_ns)
		return sim_seen_gone(seen);
	for (rank = 0; rank < SIM_RANKS_MAX; rank++)
		if (seen->down_poll[rank] == proc->poll_count)
			ranks |= UINT64_C(1) << rank;
	return ranks & ~seen->away;
}

/* Who claims owes a word, whatever was its last one. */
static void claim_again(const struct sim_proc *proc,
			struct sim_claimer *claimer, uint64_t bit)
{
	if (claimer->again_poll != proc->poll_count)
		claimer->again = 0;
	claimer->again_poll = proc->poll_count;
	claimer->again |=
		(claimer->released | claimer->died | claimer->absent) & bit;
	claimer->released &= ~bit;
	claimer->died &= ~bit;
	claimer->absent &= ~bit;
	claimer->owes |= bit;
}

static void word_said(const struct sim_proc *proc, struct sim_hold_rank *rank)
{
	rank->word_ns = proc->world->now_ns;
	rank->word_stall_ns = proc->stall_ns;
}

static struct sim_claimer *claimer_add(const struct sim_proc *proc,
				       struct sim_hold_rank *rank,
				       const struct sim_seen *seen)
{
	const struct sim_claimer claimer = {
		.instance_id = seen->instance_id,
		.died = dying(proc, seen),
		.absent = has_spoken(rank, seen) ?
				  UINT64_MAX :
				  seen->was_gone | sim_seen_gone(seen),
		.since_poll = proc->poll_count,
		.life = seen->life,
	};

	rank->claimers = sim_grown(rank->claimers, rank->claimer_count + 1,
				   sizeof(claimer));
	rank->claimers[rank->claimer_count] = claimer;
	return &rank->claimers[rank->claimer_count++];
}

static void note_apply(struct sim_proc *proc, struct sim_conn *conn,
		       const struct kvpull_record *note)
{
	struct sim_world *world = proc->world;
	const struct sim_seen *seen = sim_seen_of(proc, conn->instance_id);
	const uint64_t bit = UINT64_C(1) << conn->client_rank;
	struct sim_hold *hold =
		sim_hold_named(proc->instance, note->slot, note->generation);
	struct sim_hold_rank *rank;
	struct sim_claimer *claimer;

	if (note->kind == KVPULL_NOTE_AWAY) {
		conn->parts_said = 1;
		return;
	}
	if (!hold)
		sim_fail(world, "process %u is told of a hold that never was",
			 proc->index);
	rank = &hold->ranks[proc->rank];
	if (rank->sent_by)
		return;
	claimer = claimer_of(rank, seen);
	if (!claimer && rank->claimer_count == SIM_CLAIMERS)
		return;
	if (!claimer)
		claimer = claimer_add(proc, rank, seen);
	claimer->spoke |= bit;
	claimer->spoke_ns[conn->client_rank] = world->now_ns;
	word_said(proc, rank);
	if (note->kind == KVPULL_NOTE_RELEASE) {
		claimer->released |= bit;
		claimer->owes &= ~bit;
	} else {
		claim_again(proc, claimer, bit);
	}
	sim_trace(world,
		  note->kind == KVPULL_NOTE_RELEASE ?
			  "process %lu gets RELEASE of %lu from process %lu" :
			  "process %lu gets CLAIM of %lu from process %lu",
		  proc->index, hold->key, conn->client->index);
}

/* These ranks are dead, for what their instance has claimed. */
static void ranks_die(struct sim_proc *proc, const struct sim_seen *seen,
		      uint64_t ranks)
{
	const struct sim_list *open = &proc->instance->open;
	uint32_t at;

	for (at = 0; at < open->count; at++) {
		struct sim_hold *hold = &proc->world->holds[open->at[at]];
		struct sim_claimer *claimer;

		if (!sim_hold_is_of(hold, proc))
			continue;
		claimer = claimer_of(&hold->ranks[proc->rank], seen);
		if (!claimer)
			continue;
		if (claimer->owes & ranks)
			word_said(proc, &hold->ranks[proc->rank]);
		claimer->died |= ranks;
		claimer->owes &= ~ranks;
	}
}

static void down_apply(struct sim_proc *proc, const struct sim_conn *conn,
		       struct sim_seen *seen)
{
	const uint64_t bit = UINT64_C(1) << conn->client_rank;

	if (conn->parts && !conn->parts_said)
		sim_fail(
			proc->world,
			"process %u made room, and process %u takes it for dead",
			conn->client->index, proc->index);
	seen->connected &= ~bit;
	seen->were_there &= ~bit;
	seen->down_poll[conn->client_rank] = proc->poll_count;
	seen->down_ns[conn->client_rank] = proc->world->now_ns;
	seen->down_stall_ns[conn->client_rank] = proc->stall_ns;
	if (conn->parts_said)
		seen->away |= bit;
	else if (proc->world->grace_ns)
		seen->in_grace |= bit;
	else
		ranks_die(proc, seen, bit);
	/* Who comes in the same poll may come after all had gone. */
	if (conn->parts_said && !(seen->were_there | seen->in_grace))
		seen->forgotten |= seen->ever & ~seen->connected;
	sim_trace(proc->world, "process %lu sees process %lu go", proc->index,
		  conn->client->index, 0);
}

/* A time of then, as a stalled producer counts it. */
uint64_t sim_moved(const struct sim_proc *proc, uint64_t then_ns,
		   uint64_t then_stall_ns)
{
	return then_ns + proc->stall_ns - then_stall_ns;
}

/* Whose grace is over, which a stalled producer prolongs. */
static uint64_t graces_over(const struct sim_proc *proc,
			    const struct sim_seen *seen)
{
	const struct sim_world *world = proc->world;
	uint64_t over = 0;
	uint32_t rank;

	for (rank = 0; rank < SIM_RANKS_MAX; rank++)
		if (world->now_ns >= sim_moved(proc, seen->down_ns[rank],
					       seen->down_stall_ns[rank]) +
					     world->grace_ns)
			over |= UINT64_C(1) << rank;
	return over & seen->in_grace;
}

/* Who is there again came within it; who is away dies with the last. */
static void graces_end(struct sim_proc *proc, struct sim_seen *seen)
{
	uint64_t over;

	seen->in_grace &= ~seen->connected;
	over = proc->world->grace_ns ? graces_over(proc, seen) :
				       dying(proc, seen);
	if (over && !(seen->connected | (seen->in_grace & ~over)))
		over |= seen->away;
	/* While it claims nothing the producer knows none of it any more. */
	if (!(seen->connected | seen->in_grace))
		seen->forgotten |= seen->ever;
	if (!over)
		return;
	ranks_die(proc, seen, over);
	seen->in_grace &= ~over;
	seen->away &= ~over;
}

/* With its last rank an instance is gone, and ranks that never came. */
static void instances_end(struct sim_proc *proc)
{
	struct sim_seen *seen;

	for (seen = proc->seen_first; seen; seen = seen->next) {
		graces_end(proc, seen);
		if (seen->connected || seen->in_grace || seen->away ||
		    !seen->ever)
			continue;
		ranks_die(proc, seen, sim_ranks_all(seen->rank_count));
		seen->ever = seen->forgotten = 0;
		seen->life++;
	}
}

/* Another worker of a rank waits to join: its predecessor's grace is over. */
static void successor_seen(struct sim_proc *proc, struct sim_seen *seen,
			   const struct kvpull_consumer *caller)
{
	const uint64_t bit = UINT64_C(1) << caller->rank;

	if (!((seen->in_grace | seen->away) & bit) ||
	    seen->workers[caller->rank] == caller->incarnation)
		return;
	ranks_die(proc, seen, bit);
	seen->in_grace &= ~bit;
	seen->away &= ~bit;
}

static void conn_drained(struct sim_proc *proc, struct sim_conn *conn)
{
	const struct kvpull_consumer *caller =
		&proc->worker->handover.consumers[conn->caller];
	const struct kvpull_consumer_note *note =
		&proc->worker->consumer_notes[conn->caller];
	struct sim_seen *seen = sim_seen_of(proc, conn->instance_id);
	uint32_t at;

	if (!note->joined || note->dropped) {
		if (!note->dropped)
			successor_seen(proc, seen, caller);
		conn->drained = conn->server_down;
		return;
	}
	seen->workers[caller->rank] = caller->incarnation;
	seen->rank_count = conn->client_ranks;
	if (!conn->joined_ns)
		conn->joined_ns = proc->world->now_ns;
	if (!(seen->connected >> conn->client_rank & 1) || conn->beats ||
	    conn->note_count) {
		seen->heard_ns[conn->client_rank] = proc->world->now_ns;
		seen->heard_stall_ns[conn->client_rank] = proc->stall_ns;
	}
	seen->connected |= UINT64_C(1) << conn->client_rank;
	seen->ever |= seen->connected;
	seen->away &= ~seen->connected;
	seen->forgotten &= ~seen->connected;
	if (!seen->listed) {
		seen->listed = 1;
		seen->next = proc->seen_first;
		proc->seen_first = seen;
	}
	for (at = 0; at < conn->note_count; at++)
		note_apply(proc, conn, &conn->notes[at]);
	conn->note_count = conn->beats = 0;
	conn->drained = conn->server_down;
	if (conn->server_down)
		down_apply(proc, conn, seen);
}

void sim_oracle_drained(struct sim_proc *proc)
{
	struct sim_seen **link = &proc->seen_first;
	struct sim_conn *conn;

	while (*link) {
		struct sim_seen *seen = *link;

		seen->was_gone = sim_seen_gone(seen);
		seen->were_there = seen->connected;
		if (seen->ever) {
			link = &seen->next;
			continue;
		}
		*link = seen->next;
		seen->listed = 0;
	}
	for (conn = proc->transport.conns; conn; conn = conn->next)
		if (conn->ring_memory && !conn->server_done && !conn->drained)
			conn_drained(proc, conn);
	instances_end(proc);
}
