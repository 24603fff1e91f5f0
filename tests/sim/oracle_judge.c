/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle's judgements: what was reported, and what is still kept. */
#include "plugin/hold/hold_state.h"
#include "tests/sim/oracle.h"

#define POLLS_SLACK 3u
#define HELD_CHECKED 40u /* a poll; a small world has fewer open */

/*
 * A hold may have ended at any moment of this poll. Is there one at which the
 * rank owed nothing? A debt of this poll may have come after it.
 */
static int was_free(const struct sim_proc *proc,
		    const struct sim_claimer *claimer, uint32_t rank)
{
	const struct sim_debt *debt = &claimer->debts[rank];

	if (debt->paid > proc->poll_event || !sim_owes(claimer, rank))
		return 1;
	/*
	 * All of it is of this poll, which takes in one rank's words after the
	 * other's, whose order the book does not know. A rank that was dead or
	 * called until another said the first word owed nothing until its own
	 * claim; that other one may also have said its last word before it.
	 */
	if (claimer->first > proc->poll_event)
		return claimer->exempt >> rank & 1 &&
		       (debt->claimed > claimer->first + 1 ||
			claimer->released);
	return (debt->claimed <= debt->paid ||
		debt->claimed > proc->poll_event) &&
	       (debt->waited <= debt->paid || debt->waited > proc->poll_event);
}

static int was_complete(struct sim_proc *proc,
			const struct sim_claimer *claimer)
{
	const struct sim_seen *seen = sim_seen_of(proc, claimer->instance_id);
	uint32_t rank;

	for (rank = 0; rank < seen->rank_count; rank++)
		if (!was_free(proc, claimer, rank))
			return 0;
	return 1;
}

/* Promise 3: nobody who claimed, lives and has not released is cut off. */
static void released_check(struct sim_proc *proc, const struct sim_hold *hold)
{
	const struct sim_hold_rank *rank = &hold->ranks[proc->rank];
	uint32_t complete = 0;
	uint32_t at;

	if (rank->claimer_count > KVPULL_CLAIMS_MAX)
		return;
	for (at = 0; at < rank->claimer_count; at++) {
		const struct sim_claimer *claimer = &rank->claimers[at];

		if (was_complete(proc, claimer))
			complete++;
		else if (claimer->first <= proc->poll_event)
			sim_fail(
				proc->world,
				"hold %llu ended as released on process %u, but instance %llu claimed it and has not released",
				(unsigned long long)hold->key, proc->index,
				(unsigned long long)claimer->instance_id);
	}
	if (!complete)
		sim_fail(proc->world,
			 "hold %llu ended as released on process %u, by nobody",
			 (unsigned long long)hold->key, proc->index);
}

/* A pull that its worker was told of, and whose end it has not reported. */
static int is_pulling(const struct sim_proc *proc,
		      const struct sim_request *request)
{
	return request->state == SIM_PULLING &&
	       kvpull_map_get(&proc->worker->pulls.map, request->key) !=
		       KVPULL_NONE;
}

/* Promise E.2, from below; sim_engine_beats() has it from above. */
static int must_beat(const struct sim_proc *proc, const struct sim_hold *hold)
{
	const struct sim_world *world = proc->world;
	uint32_t at;

	if (world->now_ns <= proc->step_ns + 2 * world->lease_ns)
		return 1;
	/* A process that does not poll may have a pull that has ended. */
	if (world->now_ns - proc->awake_ns > world->lease_ns / 6)
		return 0;
	for (at = 0; at < SIM_REQUESTS; at++) {
		const struct sim_request *request =
			&proc->instance->requests[at];

		if (&world->holds[request->hold] == hold &&
		    is_pulling(proc, request))
			return 1;
	}
	return 0;
}

/*
 * A consumer that is connected, runs and has not released is heard within a
 * lease. A claim of an earlier connection does not count: its release may be
 * lost with that.
 */
static void silent_check(struct sim_proc *proc, const struct sim_hold *hold,
			 const struct sim_claimer *claimer)
{
	struct sim_world *world = proc->world;
	const uint64_t then_ns = world->now_ns - 2 * world->lease_ns;
	uint32_t at;

	if (1000 * (uint64_t)world->delay_us > world->lease_ns / 6)
		return;
	for (at = 0; at < world->shape.callers; at++) {
		const struct sim_conn *conn = proc->transport.callers[at];

		if (conn && !conn->lost &&
		    conn->instance_id == claimer->instance_id &&
		    conn->joined_ns && conn->joined_ns < then_ns &&
		    conn->joined_ns <=
			    claimer->debts[conn->client_rank].spoke_ns &&
		    conn->client->lag_ns < then_ns &&
		    conn->client->mute_ns < then_ns &&
		    world->now_ns - conn->client->run_ns <
			    world->lease_ns / 6 &&
		    must_beat(conn->client, hold) &&
		    sim_owes_itself(claimer, conn->client_rank))
			sim_fail(
				world,
				"hold %llu expired on process %u, but process %u claimed it and lives",
				(unsigned long long)hold->key, proc->index,
				conn->client->index);
	}
}

static uint64_t later_of(uint64_t left, uint64_t right)
{
	return left > right ? left : right;
}

/* The last sign of life of a rank of it that owes a word. */
static uint64_t owing_heard(struct sim_proc *proc,
			    const struct sim_claimer *claimer)
{
	const struct sim_seen *seen = sim_seen_of(proc, claimer->instance_id);
	uint64_t last_ns = 0;
	uint32_t rank;

	for (rank = 0; rank < SIM_RANKS_MAX; rank++)
		if (sim_owes_itself(claimer, rank))
			last_ns = later_of(
				last_ns,
				sim_moved(proc, seen->ranks[rank].heard_ns,
					  seen->ranks[rank].heard_missed_ns));
	return last_ns;
}

/*
 * Return: the time from which a lease runs: the latest of the take, the last
 * word, and the time at which a claimer that owes a word was heard.
 */
static uint64_t silent_since(struct sim_proc *proc, const struct sim_hold *hold)
{
	const struct sim_hold_rank *rank = &hold->ranks[proc->rank];
	uint64_t since_ns =
		sim_moved(proc, rank->taken_ns, rank->taken_missed_ns);
	uint32_t at;

	if (rank->word_ns)
		since_ns = later_of(since_ns, sim_moved(proc, rank->word_ns,
							rank->word_missed_ns));
	for (at = 0; at < rank->claimer_count; at++)
		since_ns = later_of(since_ns,
				    owing_heard(proc, &rank->claimers[at]));
	return since_ns;
}

/* Promise 7: expired only after the silence of a lease, or at hold_max. */
static void expired_check(struct sim_proc *proc, const struct sim_hold *hold)
{
	struct sim_world *world = proc->world;
	const struct sim_hold_rank *rank = &hold->ranks[proc->rank];
	uint32_t at;

	sim_oracle_stranded(proc, hold);
	if (world->now_ns >= hold->created_ns + world->hold_max_ns)
		return;
	if (world->now_ns < hold->created_ns + world->lease_ns ||
	    (rank->taken_by == proc->incarnation &&
	     world->now_ns < rank->taken_ns + world->lease_ns +
				     proc->missed_ns - rank->taken_missed_ns))
		sim_fail(world,
			 "hold %llu expired on process %u in its first lease",
			 (unsigned long long)hold->key, proc->index);
	if (rank->claimer_count > KVPULL_CLAIMS_MAX)
		return;
	for (at = 0; at < rank->claimer_count; at++) {
		const struct sim_claimer *claimer = &rank->claimers[at];

		silent_check(proc, hold, claimer);
		if (world->now_ns < owing_heard(proc, claimer) +
					    world->lease_ns +
					    sim_missed_late(proc))
			sim_fail(
				world,
				"hold %llu expired on process %u, but instance %llu owes a word and was heard",
				(unsigned long long)hold->key, proc->index,
				(unsigned long long)claimer->instance_id);
	}
	if (rank->word_ns &&
	    world->now_ns <
		    sim_moved(proc, rank->word_ns, rank->word_missed_ns) +
			    world->lease_ns + sim_missed_late(proc))
		sim_fail(
			world,
			"hold %llu expired on process %u within a lease of the last word on it",
			(unsigned long long)hold->key, proc->index);
}

/* Ended by the engine or by another rank: there must have been a cause. */
static void ended_check(struct sim_proc *proc, const struct sim_hold *hold,
			int32_t reason)
{
	const struct sim_instance *instance = proc->instance;
	int cause = instance->revoked != 0;
	uint32_t rank;

	if (reason == KVPULL_END_RANK) {
		cause |= instance->restarts != 0;
		for (rank = 0; rank < instance->ranks; rank++)
			cause |= hold->ranks[rank].sent_by &&
				 hold->ranks[rank].reason &&
				 hold->ranks[rank].reason !=
					 KVPULL_END_GIVEN_BACK;
	} else if (reason == KVPULL_END_ABORTED) {
		cause = hold->aborted && instance->abort_revokes;
	} else if (reason != KVPULL_END_REVOKED) {
		cause = 0;
	}
	if (!cause)
		sim_fail(
			proc->world,
			"hold %llu ended on process %u by reason %d, without a cause",
			(unsigned long long)hold->key, proc->index, reason);
}

void sim_oracle_sent(struct sim_proc *proc,
		     const struct kvpull_poll_record *record)
{
	struct sim_world *world = proc->world;
	struct sim_hold *hold = sim_hold_find(world, record->key);
	struct sim_hold_rank *rank;

	if (!hold || !sim_hold_is_of(hold, proc))
		sim_fail(world, "process %u reports %llu, which is not held",
			 proc->index, (unsigned long long)record->key);
	rank = &hold->ranks[proc->rank];
	if (rank->sent_by == proc->incarnation ||
	    (rank->sent_by && !rank->excused))
		sim_fail(world, "hold %llu is reported twice by rank %u",
			 (unsigned long long)hold->key, proc->rank);
	if (record->reason == KVPULL_END_RELEASED) {
		released_check(proc, hold);
		world->counts.released++;
	} else if (record->reason == KVPULL_END_EXPIRED) {
		expired_check(proc, hold);
		world->counts.expired++;
	} else if (record->reason == KVPULL_END_GIVEN_BACK) {
		sim_oracle_given_back(proc, hold);
	} else {
		ended_check(proc, hold, record->reason);
		world->counts.ended++;
	}
	rank->reason = record->reason;
	rank->sent_by = proc->incarnation;
}

/* Promise 2: nothing is kept longer than it must be. */

/* Does no rank owe a word, of those whose past the process knows? */
static int is_complete(struct sim_proc *proc, const struct sim_claimer *claimer)
{
	const struct sim_seen *seen = sim_seen_of(proc, claimer->instance_id);
	uint32_t rank;

	for (rank = 0; rank < seen->rank_count; rank++)
		if (sim_owes(claimer, rank) ||
		    (!(claimer->known >> rank & 1) &&
		     claimer->debts[rank].paid < claimer->first))
			return 0;
	return 1;
}

static int must_be_over(struct sim_proc *proc, const struct sim_hold *hold)
{
	const struct sim_hold_rank *rank = &hold->ranks[proc->rank];
	uint32_t complete = 0;
	uint32_t at;

	if (rank->claimer_count > KVPULL_CLAIMS_MAX)
		return 0;
	for (at = 0; at < rank->claimer_count; at++)
		complete += (uint32_t)is_complete(proc, &rank->claimers[at]);
	return complete && complete == rank->claimer_count;
}

/* Fails the seed with what the process itself thinks of the hold. */
static void __attribute__((noreturn))
kept_too_long(struct sim_proc *proc, const struct sim_hold *hold,
	      const char *what)
{
	char text[KVPULL_LOG_LINE_BYTES];

	kvpull_holds_describe(proc->worker->holds, hold->slot,
			      proc->world->now_ns, text, sizeof(text));
	sim_fail(proc->world, "hold %llu is kept by process %u %s: %s",
		 (unsigned long long)hold->key, proc->index, what, text);
}

/* B.7: what ended on one rank, but for its own releases, ends on all. */
static int must_follow(const struct sim_proc *proc, struct sim_hold *hold)
{
	const struct sim_instance *instance = proc->instance;
	const struct sim_world *world = proc->world;

	if (!hold->told_ns || world->bytes_faulty || instance->restarts)
		return 0;
	if (!hold->spread_ns && instance->stepped_ns > hold->told_ns)
		hold->spread_ns = instance->stepped_ns;
	return hold->spread_ns &&
	       world->now_ns >
		       hold->spread_ns + 1000 * (uint64_t)world->delay_us;
}

static void held_check(struct sim_proc *proc, struct sim_hold *hold)
{
	struct sim_world *world = proc->world;
	struct sim_hold_rank *rank = &hold->ranks[proc->rank];

	if (world->now_ns >= rank->taken_ns + world->hold_max_ns)
		kept_too_long(proc, hold, "past hold_max");
	rank->complete_polls =
		must_be_over(proc, hold) ? rank->complete_polls + 1 : 0;
	if (rank->complete_polls > POLLS_SLACK)
		kept_too_long(proc, hold, "after its last reader's end");
	rank->overdue_polls = world->now_ns > silent_since(proc, hold) +
						      world->lease_ns +
						      sim_missed_late(proc) ?
				      rank->overdue_polls + 1 :
				      0;
	if (rank->overdue_polls > POLLS_SLACK)
		kept_too_long(proc, hold, "past its lease");
	rank->alone_polls = must_follow(proc, hold) ? rank->alone_polls + 1 : 0;
	if (rank->alone_polls > POLLS_SLACK)
		kept_too_long(proc, hold, "after another rank's end");
	rank->given_polls =
		sim_oracle_must_give(proc, hold) ? rank->given_polls + 1 : 0;
	if (rank->given_polls > POLLS_SLACK)
		kept_too_long(proc, hold, "after it was given back");
	sim_oracle_owes(proc, hold);
}

static void producer_polled(struct sim_proc *proc)
{
	struct sim_instance *instance = proc->instance;
	struct sim_list *open = &instance->open;
	uint32_t left = open->count < HELD_CHECKED ? open->count : HELD_CHECKED;
	uint32_t at = left < HELD_CHECKED ? 0 : instance->open_at;

	sim_oracle_crowd_end(proc);
	while (left--) {
		struct sim_hold *hold;
		const struct sim_hold_rank *rank;

		if (at >= open->count)
			at = 0;
		hold = &proc->world->holds[open->at[at]];
		rank = &hold->ranks[proc->rank];
		if (sim_hold_is_over(proc->world, hold)) {
			sim_list_drop(open, at);
			continue;
		}
		if (rank->taken_by == proc->incarnation && !rank->sent_by)
			held_check(proc, hold);
		at++;
	}
	instance->open_at = at;
}

/*
 * Promise 4: a pull ends, whatever became of its peers; where an engine steps
 * no more, one that its worker was told of.
 */
static void consumer_polled(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	const uint64_t limit_ns = world->deadline_ns + 4 * world->lease_ns +
				  40000 * (uint64_t)world->delay_us +
				  100 * KVPULL_NS_PER_MS;
	uint32_t at;

	for (at = 0; at < SIM_REQUESTS; at++) {
		struct sim_request *request = &proc->instance->requests[at];

		if (request->state != SIM_PULLING ||
		    proc->block_key[request->blocks[0]] != request->key)
			continue;
		if (world->now_ns > request->since_ns + limit_ns +
					    (proc->stall_ns -
					     request->stall_ns[proc->rank]) &&
		    (!proc->instance->abandoned || is_pulling(proc, request)))
			sim_fail(
				world,
				"pull of request %llu does not end on process %u",
				(unsigned long long)request->key, proc->index);
	}
}

void sim_oracle_polled(struct sim_proc *proc)
{
	if (proc->instance->produces)
		producer_polled(proc);
	else
		consumer_polled(proc);
}
