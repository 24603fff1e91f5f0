/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle: naive books of who holds, claimed and released what, and the
 * promises that they are compared with. It shares no code with the core; it
 * looks into it only to see when something was taken in (a hold by a rank, a
 * consumer by a hold table), never to see what was decided.
 */
#include <string.h>

#include "plugin/hold/hold_state.h"
#include "tests/sim/sim.h"

#define POLLS_SLACK 3u

static uint64_t ranks_all(uint32_t rank_count)
{
	return (UINT64_C(1) << rank_count) - 1;
}

static struct sim_hold *hold_find(struct sim_world *world, uint64_t key)
{
	uint32_t at;

	for (at = world->hold_count; at > 0; at--)
		if (world->holds[at - 1].key == key)
			return &world->holds[at - 1];
	return NULL;
}

void sim_oracle_held(struct sim_instance *instance,
		     const struct sim_request *request, const char *ticket,
		     size_t ticket_bytes)
{
	static struct kvpull_ticket_scratch scratch;
	struct sim_world *world = instance->world;
	struct kvpull_ticket_info info = { .struct_size = sizeof(info) };
	struct sim_hold *hold = &world->holds[world->hold_count];

	if (world->hold_count == SIM_HOLDS)
		sim_fail(world,
			 "more holds than the oracle keeps: fewer steps");
	if (kvpull_ticket_peek(ticket, ticket_bytes, &scratch, &info))
		sim_fail(world, "a fresh ticket cannot be read");
	*hold = (struct sim_hold){
		.key = request->key,
		.content = request->content,
		.generation = info.generation,
		.life = instance->incarnation,
		.created_ns = world->now_ns,
		.slot = info.slot,
		.instance = instance->index,
		.tokens = request->tokens,
		.block_count = request->block_count,
		.ticket_bytes = ticket_bytes,
	};
	memcpy(hold->digest, request->digest, sizeof(hold->digest));
	memcpy(hold->ticket, ticket, ticket_bytes);
	world->open[world->open_count++] = world->hold_count++;
}

uint32_t sim_oracle_ticket(const struct sim_world *world, const char *ticket,
			   size_t ticket_bytes)
{
	uint32_t at;

	for (at = world->hold_count; at > 0; at--)
		if (world->holds[at - 1].ticket_bytes == ticket_bytes &&
		    !memcmp(world->holds[at - 1].ticket, ticket, ticket_bytes))
			return at - 1;
	return SIM_NONE;
}

static int is_of(const struct sim_hold *hold, const struct sim_proc *proc)
{
	return hold->life == proc->instance->incarnation;
}

void sim_oracle_told(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	uint32_t at;

	for (at = 0; at < world->open_count; at++) {
		struct sim_hold *hold = &world->holds[world->open[at]];
		struct sim_hold_rank *rank = &hold->ranks[proc->rank];

		if (!is_of(hold, proc) || rank->taken_by == proc->incarnation ||
		    kvpull_map_get(&proc->worker->holds->keys, hold->key) ==
			    KVPULL_MAP_NONE)
			continue;
		rank->taken_by = proc->incarnation;
		rank->taken_ns = world->now_ns;
		rank->taken_stall_ns = proc->stall_ns;
	}
}

/* What a producer's process was told by its consumers. */

static struct sim_seen *seen_of(struct sim_proc *proc, uint64_t instance_id)
{
	struct sim_world *world = proc->world;
	uint32_t at;

	for (at = 0; at < world->seen_count; at++)
		if (world->seen[at].proc == proc->index &&
		    world->seen[at].instance_id == instance_id)
			return &world->seen[at];
	world->seen[at] = (struct sim_seen){ .proc = proc->index,
					     .instance_id = instance_id };
	world->seen_count++;
	return &world->seen[at];
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
static uint64_t gone(const struct sim_seen *seen)
{
	return seen->ever & ~seen->connected & ~seen->in_grace;
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
		return gone(seen);
	for (rank = 0; rank < SIM_RANKS_MAX; rank++)
		if (seen->down_poll[rank] == proc->poll_count)
			ranks |= UINT64_C(1) << rank;
	return ranks;
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

static void note_apply(struct sim_proc *proc, const struct sim_conn *conn,
		       const struct kvpull_record *note)
{
	struct sim_world *world = proc->world;
	const struct sim_seen *seen = seen_of(proc, conn->instance_id);
	const uint64_t bit = UINT64_C(1) << conn->client_rank;
	struct sim_hold *hold = NULL;
	struct sim_hold_rank *rank;
	struct sim_claimer *claimer;
	uint32_t at;

	for (at = world->hold_count; at > 0 && !hold; at--)
		if (is_of(&world->holds[at - 1], proc) &&
		    world->holds[at - 1].slot == note->slot &&
		    world->holds[at - 1].generation == note->generation)
			hold = &world->holds[at - 1];
	if (!hold)
		sim_fail(world, "process %u is told of a hold that never was",
			 proc->index);
	rank = &hold->ranks[proc->rank];
	if (rank->sent_by)
		return;
	claimer = claimer_of(rank, seen);
	if (!claimer && rank->claimer_count == SIM_CLAIMERS)
		return;
	if (!claimer) {
		const int again = has_spoken(rank, seen);

		claimer = &rank->claimers[rank->claimer_count++];
		*claimer = (struct sim_claimer){
			.instance_id = conn->instance_id,
			.died = dying(proc, seen),
			.absent = again ? UINT64_MAX :
					  seen->was_gone | gone(seen),
			.since_poll = proc->poll_count,
			.life = seen->life,
		};
	}
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
	struct sim_world *world = proc->world;
	uint32_t at;

	for (at = 0; at < world->open_count; at++) {
		struct sim_hold *hold = &world->holds[world->open[at]];
		struct sim_claimer *claimer;

		if (!is_of(hold, proc))
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

	seen->connected &= ~bit;
	seen->down_poll[conn->client_rank] = proc->poll_count;
	seen->down_ns[conn->client_rank] = proc->world->now_ns;
	seen->down_stall_ns[conn->client_rank] = proc->stall_ns;
	if (proc->world->grace_ns)
		seen->in_grace |= bit;
	else
		ranks_die(proc, seen, bit);
	sim_trace(proc->world, "process %lu sees process %lu go", proc->index,
		  conn->client->index, 0);
}

/* A time of then, as a stalled producer counts it. */
static uint64_t moved(const struct sim_proc *proc, uint64_t then_ns,
		      uint64_t then_stall_ns)
{
	return then_ns + proc->stall_ns - then_stall_ns;
}

/* Who is there again came within it, which a stalled producer prolongs. */
static void graces_end(struct sim_proc *proc, struct sim_seen *seen)
{
	const struct sim_world *world = proc->world;
	uint32_t rank;

	for (rank = 0; rank < SIM_RANKS_MAX; rank++) {
		const uint64_t bit = UINT64_C(1) << rank;

		if (!(seen->in_grace & bit))
			continue;
		if (seen->connected & bit) {
			seen->in_grace &= ~bit;
			continue;
		}
		if (world->now_ns < moved(proc, seen->down_ns[rank],
					  seen->down_stall_ns[rank]) +
					    world->grace_ns)
			continue;
		ranks_die(proc, seen, bit);
		seen->in_grace &= ~bit;
	}
}

/* With its last rank an instance is gone, and ranks that never came. */
static void instances_end(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	uint32_t at;

	for (at = 0; at < world->seen_count; at++) {
		struct sim_seen *seen = &world->seen[at];

		if (seen->proc != proc->index)
			continue;
		graces_end(proc, seen);
		if (seen->connected || seen->in_grace || !seen->ever)
			continue;
		ranks_die(proc, seen, ranks_all(seen->rank_count));
		seen->ever = 0;
		seen->life++;
	}
}

/* Another worker of a rank waits to join: its predecessor's grace is over. */
static void successor_seen(struct sim_proc *proc, struct sim_seen *seen,
			   const struct kvpull_consumer *caller)
{
	const uint64_t bit = UINT64_C(1) << caller->rank;

	if (!(seen->in_grace & bit) ||
	    seen->workers[caller->rank] == caller->incarnation)
		return;
	ranks_die(proc, seen, bit);
	seen->in_grace &= ~bit;
}

static void conn_drained(struct sim_proc *proc, struct sim_conn *conn)
{
	const struct kvpull_consumer *caller =
		&proc->worker->handover.consumers[conn->caller];
	const struct kvpull_consumer_note *note =
		&proc->worker->consumer_notes[conn->caller];
	struct sim_seen *seen = seen_of(proc, conn->instance_id);
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
	for (at = 0; at < conn->note_count; at++)
		note_apply(proc, conn, &conn->notes[at]);
	conn->note_count = conn->beats = 0;
	conn->drained = conn->server_down;
	if (conn->server_down)
		down_apply(proc, conn, seen);
}

void sim_oracle_drained(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	uint32_t at;

	for (at = 0; at < world->seen_count; at++)
		world->seen[at].was_gone = gone(&world->seen[at]);
	for (at = 0; at < SIM_CONNS_MAX; at++) {
		struct sim_conn *conn = &world->conns[at];

		if (conn->used && conn->server == proc && conn->ring_memory &&
		    !conn->server_done && !conn->drained)
			conn_drained(proc, conn);
	}
	instances_end(proc);
}

/* Judgements. */

/* With ranks that are gone for the whole of it, or that were before it. */
static int is_complete(const struct sim_seen *seen,
		       const struct sim_claimer *claimer, uint64_t gone)
{
	return ((claimer->released | claimer->died | gone) &
		ranks_all(seen->rank_count)) == ranks_all(seen->rank_count);
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
		const struct sim_seen *seen =
			seen_of(proc, claimer->instance_id);
		uint64_t owes_not =
			seen->was_gone | gone(seen) | claimer->absent;

		/* In which order of this poll: either may be right. */
		if (claimer->again_poll == proc->poll_count)
			owes_not |= claimer->again;
		if (is_complete(seen, claimer, owes_not))
			complete++;
		else if (claimer->since_poll < proc->poll_count)
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

/*
 * Who is connected, runs and has not released is heard within a lease. A claim
 * of an earlier connection does not count: its release may be lost with that.
 */
static void silent_check(struct sim_proc *proc, const struct sim_hold *hold,
			 const struct sim_claimer *claimer)
{
	struct sim_world *world = proc->world;
	const uint64_t then_ns = world->now_ns - 2 * world->lease_ns;
	uint32_t at;

	if (1000 * (uint64_t)world->delay_us > world->lease_ns / 6)
		return;
	for (at = 0; at < SIM_CONNS_MAX; at++) {
		const struct sim_conn *conn = &world->conns[at];

		if (conn->used && conn->server == proc && !conn->lost &&
		    conn->instance_id == claimer->instance_id &&
		    conn->joined_ns && conn->joined_ns < then_ns &&
		    conn->joined_ns <= claimer->spoke_ns[conn->client_rank] &&
		    conn->client->lag_ns < then_ns &&
		    world->now_ns - conn->client->run_ns <
			    world->lease_ns / 6 &&
		    (claimer->spoke & ~claimer->released & ~claimer->died) >>
				    conn->client_rank &
			    1)
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
	const struct sim_seen *seen = seen_of(proc, claimer->instance_id);
	uint64_t last_ns = 0;
	uint32_t rank;

	for (rank = 0; rank < SIM_RANKS_MAX; rank++)
		if (claimer->owes >> rank & 1)
			last_ns = later_of(last_ns,
					   moved(proc, seen->heard_ns[rank],
						 seen->heard_stall_ns[rank]));
	return last_ns;
}

/* What a lease runs from: the take, the last word, who owes one and lives. */
static uint64_t silent_since(struct sim_proc *proc, const struct sim_hold *hold)
{
	const struct sim_hold_rank *rank = &hold->ranks[proc->rank];
	uint64_t since_ns = moved(proc, rank->taken_ns, rank->taken_stall_ns);
	uint32_t at;

	if (rank->word_ns)
		since_ns = later_of(since_ns, moved(proc, rank->word_ns,
						    rank->word_stall_ns));
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

	if (world->now_ns >= hold->created_ns + world->hold_max_ns)
		return;
	if (world->now_ns < hold->created_ns + world->lease_ns ||
	    (rank->taken_by == proc->incarnation &&
	     world->now_ns < rank->taken_ns + world->lease_ns + proc->stall_ns -
				     rank->taken_stall_ns))
		sim_fail(world,
			 "hold %llu expired on process %u in its first lease",
			 (unsigned long long)hold->key, proc->index);
	if (rank->claimer_count > KVPULL_CLAIMS_MAX)
		return;
	for (at = 0; at < rank->claimer_count; at++) {
		const struct sim_claimer *claimer = &rank->claimers[at];

		silent_check(proc, hold, claimer);
		if (world->now_ns <
		    owing_heard(proc, claimer) + world->lease_ns)
			sim_fail(
				world,
				"hold %llu expired on process %u, but instance %llu owes a word and was heard",
				(unsigned long long)hold->key, proc->index,
				(unsigned long long)claimer->instance_id);
	}
	if (rank->word_ns &&
	    world->now_ns < moved(proc, rank->word_ns, rank->word_stall_ns) +
				    world->lease_ns)
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
		for (rank = 0; rank < instance->tp; rank++)
			cause |= hold->ranks[rank].sent_by &&
				 hold->ranks[rank].reason;
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
	struct sim_hold *hold = hold_find(world, record->key);
	struct sim_hold_rank *rank;

	if (!hold || !is_of(hold, proc))
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
	} else {
		ended_check(proc, hold, record->reason);
		world->counts.ended++;
	}
	rank->reason = record->reason;
	rank->sent_by = proc->incarnation;
}

/* Promise 2: nothing is kept longer than it must be. */

static int must_be_over(struct sim_proc *proc, const struct sim_hold *hold)
{
	const struct sim_hold_rank *rank = &hold->ranks[proc->rank];
	uint32_t complete = 0;
	uint32_t at;

	if (proc->world->grace_ns || rank->claimer_count > KVPULL_CLAIMS_MAX)
		return 0;
	for (at = 0; at < rank->claimer_count; at++) {
		const struct sim_claimer *claimer = &rank->claimers[at];
		const struct sim_seen *seen =
			seen_of(proc, claimer->instance_id);

		complete += is_complete(seen, claimer,
					seen->ever & ~seen->connected) != 0;
	}
	return complete && complete == rank->claimer_count;
}

/* What the process itself thinks of the hold. */
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
	rank->overdue_polls =
		world->now_ns > silent_since(proc, hold) + world->lease_ns ?
			rank->overdue_polls + 1 :
			0;
	if (rank->overdue_polls > POLLS_SLACK)
		kept_too_long(proc, hold, "past its lease");
	rank->alone_polls = must_follow(proc, hold) ? rank->alone_polls + 1 : 0;
	if (rank->alone_polls > POLLS_SLACK)
		kept_too_long(proc, hold, "after another rank's end");
	sim_oracle_owes(proc, hold);
}

static int is_over(struct sim_world *world, const struct sim_hold *hold)
{
	struct sim_instance *instance = &world->instances[hold->instance];

	return hold->life != instance->incarnation ||
	       !sim_request_find(instance, hold->key);
}

static void producer_polled(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	uint32_t at = 0;

	while (at < world->open_count) {
		struct sim_hold *hold = &world->holds[world->open[at]];
		const struct sim_hold_rank *rank = &hold->ranks[proc->rank];

		if (is_over(world, hold)) {
			world->open[at] = world->open[--world->open_count];
			continue;
		}
		if (is_of(hold, proc) && rank->taken_by == proc->incarnation &&
		    !rank->sent_by)
			held_check(proc, hold);
		at++;
	}
}

/* Promise 4: a pull ends, whatever became of its peers. */
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
		if (world->now_ns >
		    request->since_ns + limit_ns +
			    (proc->stall_ns - request->stall_ns[proc->rank]))
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

int sim_oracle_is_known(struct sim_proc *proc, uint64_t key)
{
	const struct sim_hold *hold = hold_find(proc->world, key);
	const struct sim_hold_rank *rank;

	if (!hold)
		return 0;
	rank = &hold->ranks[proc->rank];
	return rank->taken_by == proc->incarnation || rank->claimer_count;
}

void sim_oracle_heard(struct sim_proc *proc,
		      const struct kvpull_poll_record *record)
{
	struct sim_hold *hold = hold_find(proc->world, record->key);

	if (hold && !hold->told_ns && record->reason != KVPULL_END_RELEASED)
		hold->told_ns = proc->world->now_ns;
}

void sim_oracle_aborted(struct sim_instance *instance, uint64_t key)
{
	struct sim_hold *hold = hold_find(instance->world, key);

	if (hold)
		hold->aborted = 1;
}

/* What it had said, and the engine never got, was never said. */
void sim_oracle_proc_dead(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	const uint64_t bit = UINT64_C(1) << proc->rank;
	uint32_t at;

	for (at = 0; at < world->hold_count; at++) {
		struct sim_hold *hold = &world->holds[at];
		struct sim_hold_rank *rank = &hold->ranks[proc->rank];
		const struct sim_request *request;

		if (!is_of(hold, proc) || rank->sent_by != proc->incarnation)
			continue;
		request = sim_request_find(proc->instance, hold->key);
		if (request && !(request->reported & bit))
			rank->sent_by = 0;
		rank->excused = proc->unsaid;
	}
}
