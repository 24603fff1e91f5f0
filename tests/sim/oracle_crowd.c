/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle, where consumers_max is reached: the consumer that was heard
 * longest ago makes room, with its instance, if none of its ranks has a claim.
 * No other consumer is sent away, and none without a claim keeps others out.
 */
#include "plugin/bytes/handshake.h"
#include "tests/sim/oracle.h"

/* A newcomer's first claim may still be on its way. */
#define NEW_NS (100 * KVPULL_NS_PER_MS)

void sim_refusal_note(struct sim_proc *proc, const struct sim_conn *conn,
		      const void *refusal, size_t refusal_bytes)
{
	struct kvpull_refusal said;

	if (kvpull_handshake_get_refusal(refusal, refusal_bytes, &said))
		sim_fail(proc->world, "process %u refuses without a reason",
			 proc->index);
	proc->crowded |= said.code == KVPULL_EFULL;
	if (said.code != KVPULL_EFULL && said.code != KVPULL_EAGAIN &&
	    said.code != KVPULL_ENOMEM)
		conn->client->turned_away |= UINT64_C(1) << sim_rank_bit(proc);
	proc->world->counts.refused++;
	sim_trace(proc->world, "process %lu refuses process %lu, code %ld",
		  proc->index, conn->client->index,
		  (uint64_t)(int64_t)said.code);
}

static int is_in(const struct sim_proc *proc, const struct sim_conn *conn)
{
	return conn->ring_memory && conn->joined_ns && !conn->server_done &&
	       !conn->drained && !conn->server_down &&
	       !proc->worker->crowd.notes[conn->caller].dropped;
}

/* Does a rank owe a word, for what it claimed itself by then? */
static int owes_since(const struct sim_claimer *claimer, uint64_t by)
{
	uint32_t rank;

	for (rank = 0; rank < SIM_RANKS_MAX; rank++)
		if (sim_owes_itself(claimer, rank) &&
		    claimer->debts[rank].claimed <= by)
			return 1;
	return 0;
}

/* An open hold of which the instance has spoken; by: on which it owes a word. */
static const struct sim_hold *claimed(const struct sim_proc *proc,
				      uint64_t instance_id, uint64_t by)
{
	const struct sim_list *open = &proc->instance->open;
	uint32_t who;
	uint32_t at;

	for (at = 0; at < open->count; at++) {
		const struct sim_hold *hold = &proc->world->holds[open->at[at]];
		const struct sim_hold_rank *past = &hold->ranks[proc->rank];

		if (!sim_hold_is_of(hold, proc) || past->sent_by)
			continue;
		for (who = 0; who < past->claimer_count; who++) {
			const struct sim_claimer *claimer =
				&past->claimers[who];

			if (claimer->instance_id == instance_id &&
			    (!by || owes_since(claimer, by)))
				return hold;
		}
	}
	return NULL;
}

/* The silence of an instance: when the first of its ranks here was heard. */
struct silence {
	uint64_t since_ns;
	uint32_t is_whole; /* each of them may make room */
};

static struct silence silence_of(struct sim_proc *proc, uint64_t instance_id)
{
	const struct sim_seen *seen = sim_seen_of(proc, instance_id);
	struct silence silence = { UINT64_MAX, 1 };
	const struct sim_conn *conn;

	for (conn = proc->transport.conns; conn; conn = conn->next) {
		uint64_t heard_ns;

		if (conn->instance_id != instance_id || conn->server_done ||
		    conn->drained || !conn->ring_memory)
			continue;
		silence.is_whole &=
			is_in(proc, conn) && !conn->sent_away &&
			proc->world->now_ns - conn->joined_ns >= NEW_NS;
		heard_ns = seen->ranks[conn->client_rank].heard_ns;
		if (conn->joined_ns && heard_ns < silence.since_ns)
			silence.since_ns = heard_ns;
	}
	return silence;
}

static void sent_away_check(struct sim_proc *proc, const struct sim_conn *conn)
{
	struct sim_world *world = proc->world;
	const uint64_t since_ns = silence_of(proc, conn->instance_id).since_ns;
	const struct sim_conn *other;

	if (!proc->crowded)
		sim_fail(world,
			 "process %u sends process %u away, and nobody waits",
			 proc->index, conn->client->index);
	for (other = proc->transport.conns; other; other = other->next) {
		struct silence silence;

		if (!is_in(proc, other) || other->sent_away ||
		    claimed(proc, other->instance_id, 0))
			continue;
		silence = silence_of(proc, other->instance_id);
		if (silence.is_whole && silence.since_ns < since_ns)
			sim_fail(
				world,
				"process %u sends process %u away, and process %u was silent for longer",
				proc->index, conn->client->index,
				other->client->index);
	}
}

/* A caller found no place. 1: an instance could have made room. */
static int has_idle(struct sim_proc *proc)
{
	const struct sim_conn *conn;
	int idle = 0;

	for (conn = proc->transport.conns; conn; conn = conn->next) {
		if (conn->sent_away && !conn->server_done && !conn->drained)
			return 0;
		idle |= is_in(proc, conn) &&
			!claimed(proc, conn->instance_id, 0) &&
			silence_of(proc, conn->instance_id).is_whole;
	}
	return idle;
}

/* How far the process is with a consumer that it sends away. */
enum {
	AWAY_NOT,
	AWAY_JUDGED,
	AWAY_CHOSEN,
	AWAY_SEEN
};

void sim_oracle_crowd(struct sim_proc *proc)
{
	struct sim_conn *conn;

	/* First all of them: they are chosen together. */
	for (conn = proc->transport.conns; conn; conn = conn->next)
		if (is_in(proc, conn) && !conn->sent_away &&
		    proc->worker->crowd.notes[conn->caller].leaves)
			conn->sent_away = AWAY_CHOSEN;
	for (conn = proc->transport.conns; conn; conn = conn->next) {
		if (conn->sent_away != AWAY_CHOSEN)
			continue;
		sim_trace(proc->world, "process %lu sends process %lu away",
			  proc->index, conn->client->index, 0);
		sent_away_check(proc, conn);
		conn->sent_away = AWAY_SEEN;
		proc->away_event = proc->event_count;
		proc->world->counts.sent_away++;
	}
	if (proc->crowded && has_idle(proc))
		sim_fail(
			proc->world,
			"process %u keeps a silent consumer, and another has no place",
			proc->index);
	proc->crowded = 0;
}

/* Connections that ended before this poll have been reported by now. */
void sim_oracle_crowd_end(struct sim_proc *proc)
{
	struct sim_conn *conn;

	for (conn = proc->transport.conns; conn && proc->away_event;
	     conn = conn->next) {
		const struct sim_hold *hold;

		if (conn->sent_away != AWAY_SEEN)
			continue;
		conn->sent_away = AWAY_JUDGED;
		hold = claimed(proc, conn->instance_id, proc->away_event);
		if (hold)
			sim_fail(
				proc->world,
				"process %u sends process %u away, whose instance claimed hold %llu",
				proc->index, conn->client->index,
				(unsigned long long)hold->key);
	}
	proc->away_event = 0;
}
