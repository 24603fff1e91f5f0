/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle's books of consumers: what a producer's process was told by them,
 * and when. States and debts are not kept: they are asked of the past.
 */
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

enum sim_rank_state sim_rank_state(const struct sim_seen *seen, uint32_t rank)
{
	const struct sim_rank *past = &seen->ranks[rank];

	if (!past->came)
		return SIM_RANK_NEVER;
	if (past->left < past->came)
		return SIM_RANK_HERE;
	if (past->died > past->left)
		return SIM_RANK_DEAD;
	if (past->called > past->left)
		return SIM_RANK_CALLED;
	return past->said ? SIM_RANK_AWAY : SIM_RANK_GRACE;
}

static int is_absent(const struct sim_seen *seen, uint32_t rank)
{
	const enum sim_rank_state state = sim_rank_state(seen, rank);

	return state == SIM_RANK_DEAD || state == SIM_RANK_CALLED;
}

/* Is a worker of it there, or waited for? */
static int is_served(const struct sim_seen *seen, uint32_t rank)
{
	const enum sim_rank_state state = sim_rank_state(seen, rank);

	return state == SIM_RANK_HERE || state == SIM_RANK_GRACE ||
	       state == SIM_RANK_CALLED;
}

/* Return: ranks of the instance for which `is` holds. */
static uint64_t ranks_that(int (*is)(const struct sim_seen *seen,
				     uint32_t rank),
			   const struct sim_seen *seen)
{
	uint64_t ranks = 0;
	uint32_t rank;

	for (rank = 0; rank < SIM_RANKS_MAX; rank++)
		if (is(seen, rank))
			ranks |= UINT64_C(1) << rank;
	return ranks;
}

static int has_come(const struct sim_seen *seen)
{
	uint32_t rank;

	for (rank = 0; rank < SIM_RANKS_MAX; rank++)
		if (seen->ranks[rank].came)
			return 1;
	return 0;
}

/* Has an earlier life of the instance spoken of the hold? */
static int has_spoken(const struct sim_hold_rank *rank,
		      const struct sim_seen *seen)
{
	uint32_t at;

	for (at = 0; at < rank->claimer_count; at++)
		if (rank->claimers[at].instance_id == seen->instance_id)
			return 1;
	return 0;
}

static void word_said(const struct sim_proc *proc, struct sim_hold_rank *rank)
{
	rank->word_ns = proc->world->now_ns;
	rank->word_missed_ns = proc->missed_ns;
}

/* The first word of an instance puts its ranks into debt, but for the absent. */
static struct sim_claimer *claimer_add(struct sim_proc *proc,
				       struct sim_hold_rank *rank,
				       const struct sim_seen *seen,
				       uint32_t speaker)
{
	struct sim_claimer claimer = { .instance_id = seen->instance_id,
				       .life = seen->life,
				       .first = ++proc->event_count,
				       .known = ~seen->forgotten };
	uint32_t at;

	claimer.exempt = seen->absent | ranks_that(is_absent, seen);
	if (has_spoken(rank, seen))
		claimer.exempt = UINT64_MAX;
	for (at = 0; at < seen->rank_count; at++)
		if (at != speaker && !(claimer.exempt >> at & 1))
			claimer.debts[at].waited = claimer.first;
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
	struct sim_hold *hold =
		sim_hold_named(proc->instance, note->slot, note->generation);
	struct sim_hold_rank *rank;
	struct sim_claimer *claimer;
	struct sim_debt *debt;

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
		claimer = claimer_add(proc, rank, seen, conn->client_rank);
	debt = &claimer->debts[conn->client_rank];
	debt->spoke_ns = world->now_ns;
	word_said(proc, rank);
	if (note->kind == KVPULL_NOTE_RELEASE)
		claimer->released = debt->paid = ++proc->event_count;
	else if (debt->claimed <= debt->paid)
		debt->claimed = ++proc->event_count;
	sim_trace(world,
		  note->kind == KVPULL_NOTE_RELEASE ?
			  "process %lu gets RELEASE of %lu from process %lu" :
			  "process %lu gets CLAIM of %lu from process %lu",
		  proc->index, hold->key, conn->client->index);
}

/* These ranks have paid what their instance has claimed by now. */
static void ranks_pay(struct sim_proc *proc, const struct sim_seen *seen,
		      uint64_t ranks)
{
	const struct sim_list *open = &proc->instance->open;
	const uint64_t now = ++proc->event_count;
	uint32_t rank;
	uint32_t at;

	for (at = 0; ranks && at < open->count; at++) {
		struct sim_hold *hold = &proc->world->holds[open->at[at]];
		struct sim_claimer *claimer;

		if (!sim_hold_is_of(hold, proc))
			continue;
		claimer = claimer_of(&hold->ranks[proc->rank], seen);
		for (rank = 0; claimer && rank < SIM_RANKS_MAX; rank++) {
			if (!(ranks >> rank & 1))
				continue;
			if (sim_owes_itself(claimer, rank))
				word_said(proc, &hold->ranks[proc->rank]);
			claimer->debts[rank].paid = now;
		}
	}
}

/* A time of then, as a stalled producer counts it. */
uint64_t sim_moved(const struct sim_proc *proc, uint64_t then_ns,
		   uint64_t then_missed_ns)
{
	return then_ns + proc->missed_ns - then_missed_ns;
}

static void down_apply(struct sim_proc *proc, const struct sim_conn *conn,
		       struct sim_rank *past)
{
	if (conn->parts && !conn->parts_said)
		sim_fail(
			proc->world,
			"process %u made room, and process %u takes it for dead",
			conn->client->index, proc->index);
	past->left = ++proc->event_count;
	past->left_ns = proc->world->now_ns;
	past->left_missed_ns = proc->missed_ns;
	/* Or the process made the rank go, which lives, for others' sake. */
	past->said = conn->parts_said || conn->sent_away;
	sim_trace(proc->world, "process %lu sees process %lu go", proc->index,
		  conn->client->index, 0);
}

/* Is it dead in the sweep of this poll? A stalled producer prolongs graces. */
static int dies(const struct sim_proc *proc, const struct sim_seen *seen,
		uint32_t rank)
{
	const struct sim_rank *past = &seen->ranks[rank];

	switch (sim_rank_state(seen, rank)) {
	case SIM_RANK_GRACE:
		return proc->world->now_ns >=
		       sim_moved(proc, past->left_ns, past->left_missed_ns) +
			       proc->world->grace_ns + sim_missed_late(proc);
	case SIM_RANK_CALLED:
		return !past->waits;
	default:
		return 0;
	}
}

/* The sweep: ranks that die, and with the last of them the instance. */
static void instance_sweep(struct sim_proc *proc, struct sim_seen *seen)
{
	uint64_t paid = 0;
	uint64_t died = 0;
	uint32_t rank;

	for (rank = 0; rank < SIM_RANKS_MAX; rank++) {
		if (dies(proc, seen, rank))
			died |= UINT64_C(1) << rank;
		else if (seen->ranks[rank].called > proc->call_event)
			paid |= UINT64_C(1) << rank;
	}
	for (rank = 0; rank < SIM_RANKS_MAX; rank++)
		if (died >> rank & 1)
			seen->ranks[rank].died = ++proc->event_count;
	if (!died || ranks_that(is_served, seen)) {
		ranks_pay(proc, seen, paid | died);
		return;
	}
	ranks_pay(proc, seen, UINT64_MAX);
	seen->life++;
	seen->forgotten = 0;
	memset(seen->ranks, 0, sizeof(seen->ranks));
}

/*
 * Another worker of a rank waits to be let in. The rank is called from its
 * first call on.
 */
static void caller_waits(struct sim_proc *proc, const struct sim_conn *conn,
			 struct sim_seen *seen)
{
	struct sim_rank *past = &seen->ranks[conn->client_rank];
	const uint64_t worker =
		proc->worker->handover.consumers[conn->caller].incarnation;
	const enum sim_rank_state state =
		sim_rank_state(seen, conn->client_rank);

	if (past->worker == worker)
		return;
	if (state == SIM_RANK_GRACE || state == SIM_RANK_AWAY)
		past->called = ++proc->event_count;
	past->waits |= !conn->server_down;
}

static void joined_see(struct sim_proc *proc, struct sim_conn *conn,
		       struct sim_seen *seen)
{
	struct sim_rank *past = &seen->ranks[conn->client_rank];
	const int is_new = !conn->joined_ns;
	uint32_t at;

	seen->rank_count = conn->client_ranks;
	if (is_new) {
		conn->joined_ns = proc->world->now_ns;
		past->came = ++proc->event_count;
		past->worker = proc->worker->handover.consumers[conn->caller]
				       .incarnation;
		seen->forgotten &= ~(UINT64_C(1) << conn->client_rank);
	}
	if (is_new || conn->beats || conn->note_count) {
		past->heard_ns = proc->world->now_ns;
		past->heard_missed_ns = proc->missed_ns;
	}
	if (!seen->listed) {
		seen->listed = 1;
		seen->next = proc->seen_first;
		proc->seen_first = seen;
	}
	for (at = 0; at < conn->note_count; at++)
		note_apply(proc, conn, &conn->notes[at]);
	conn->note_count = conn->beats = 0;
	if (conn->server_down)
		down_apply(proc, conn, past);
}

/*
 * A rank's connections follow one another: the one of before this poll, those
 * that came and went in it, the one that came and stays, a caller that waits.
 */
enum {
	CONN_OLD,
	CONN_BRIEF,
	CONN_NEW,
	CONN_WAITS,
	CONN_TURNS
};

static uint32_t conn_turn(const struct sim_proc *proc,
			  const struct sim_conn *conn)
{
	const struct kvpull_consumer_note *note =
		&proc->worker->crowd.notes[conn->caller];

	if (conn->joined_ns)
		return CONN_OLD;
	if (note->dropped)
		return CONN_TURNS;
	if (!note->joined)
		return CONN_WAITS;
	return conn->server_down ? CONN_BRIEF : CONN_NEW;
}

static void conns_see(struct sim_proc *proc, uint32_t turn)
{
	struct sim_conn *conn;

	for (conn = proc->transport.conns; conn; conn = conn->next) {
		struct sim_seen *seen;

		if (!conn->ring_memory || conn->server_done || conn->drained ||
		    conn_turn(proc, conn) != turn)
			continue;
		seen = sim_seen_of(proc, conn->instance_id);
		if (turn == CONN_WAITS)
			caller_waits(proc, conn, seen);
		else
			joined_see(proc, conn, seen);
	}
}

/* An end that was seen in this poll is seen once. */
static void conns_end(const struct sim_proc *proc)
{
	struct sim_conn *conn;

	for (conn = proc->transport.conns; conn; conn = conn->next)
		if (conn->ring_memory && !conn->server_done)
			conn->drained |= conn->server_down;
}

/*
 * The process may forget an instance that no worker speaks for, if it claims
 * nothing: in the middle of a poll, too, where all have gone before one comes.
 */
static void forget(const struct sim_proc *proc, struct sim_seen *seen,
		   uint64_t served)
{
	uint32_t rank;

	for (rank = 0; rank < SIM_RANKS_MAX; rank++)
		if (served >> rank & 1 &&
		    seen->ranks[rank].left <= proc->call_event)
			return;
	for (rank = 0; rank < SIM_RANKS_MAX; rank++)
		if (sim_rank_state(seen, rank) != SIM_RANK_HERE)
			seen->forgotten |= UINT64_C(1) << rank;
}

static void call_begin(struct sim_proc *proc)
{
	struct sim_seen **link = &proc->seen_first;

	proc->call_event = proc->event_count;
	while (*link) {
		struct sim_seen *seen = *link;
		uint32_t rank;

		seen->absent = ranks_that(is_absent, seen);
		seen->served = ranks_that(is_served, seen);
		for (rank = 0; rank < SIM_RANKS_MAX; rank++)
			seen->ranks[rank].waits = 0;
		if (has_come(seen)) {
			link = &seen->next;
			continue;
		}
		*link = seen->next;
		seen->listed = 0;
	}
}

void sim_oracle_drained(struct sim_proc *proc)
{
	struct sim_seen *seen;
	uint32_t turn;

	const int is_first = proc->judged_poll != proc->poll_count;

	if (is_first)
		proc->poll_event = proc->event_count;
	proc->judged_poll = proc->poll_count;
	call_begin(proc);
	for (turn = CONN_OLD; turn < CONN_TURNS; turn++)
		conns_see(proc, turn);
	sim_oracle_crowd(proc);
	conns_end(proc);
	for (seen = proc->seen_first; seen; seen = seen->next) {
		forget(proc, seen, seen->served);
		instance_sweep(proc, seen);
		forget(proc, seen, ranks_that(is_served, seen));
	}
	if (is_first)
		proc->sweep_event = proc->event_count;
}
