/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle's book of words: which tags a producer's process was shown. A hold
 * whose tag was shown ends at the first sweep at which no rank that claimed it
 * itself owes a word, and at none before; nothing else gives it back.
 */
#include <string.h>

#include "tests/lib/inside.h"
#include "tests/sim/oracle.h"

#define MAGIC "KVGB"

/* The form never changes, so it is written down here once more. */
static size_t number_put(uint8_t *bytes, size_t at, uint64_t value,
			 uint32_t count)
{
	while (count--) {
		bytes[at++] = (uint8_t)value;
		value >>= 8;
	}
	return at;
}

static uint64_t number_get(const uint8_t *bytes, size_t at, uint32_t count)
{
	uint64_t value = 0;

	while (count--)
		value = value << 8 | bytes[at + count];
	return value;
}

size_t sim_words_put(uint8_t *bytes, const struct sim_word *words,
		     uint32_t count)
{
	size_t at = 4;
	uint32_t index;

	memcpy(bytes, MAGIC, at);
	at = number_put(bytes, at, count, 2);
	for (index = 0; index < count; index++) {
		at = number_put(bytes, at, words[index].slot, 4);
		at = number_put(bytes, at, words[index].generation, 8);
		at = number_put(bytes, at, words[index].tag, 8);
	}
	return at;
}

static uint32_t words_get(struct sim_world *world, const uint8_t *bytes,
			  size_t byte_count)
{
	const uint32_t count =
		byte_count < 6 ? 0 : (uint32_t)number_get(bytes, 4, 2);

	if (!count || memcmp(bytes, MAGIC, 4) != 0 ||
	    byte_count != SIM_WORDS_BYTES(count))
		sim_fail(world, "a give-back message is not of its form");
	return count;
}

static struct sim_word word_at(const uint8_t *bytes, uint32_t index)
{
	const size_t at = SIM_WORDS_BYTES(index);

	return (struct sim_word){
		.slot = (uint32_t)number_get(bytes, at, 4),
		.generation = number_get(bytes, at + 4, 8),
		.tag = number_get(bytes, at + 12, 8),
	};
}

/* The hold whose ticket has this word for this rank's worker. */
static struct sim_hold *hold_shown(const struct sim_proc *proc,
				   const struct sim_word *word)
{
	struct sim_hold *hold =
		sim_hold_named(proc->instance, word->slot, word->generation);

	if (!hold || hold->tags[proc->rank] != word->tag ||
	    hold->workers[proc->rank] != proc->incarnation)
		return NULL;
	return hold;
}

void sim_oracle_shown(struct sim_proc *proc, const uint8_t *bytes,
		      size_t byte_count)
{
	const uint32_t count = words_get(proc->world, bytes, byte_count);
	uint32_t at;

	for (at = 0; at < count; at++) {
		const struct sim_word word = word_at(bytes, at);
		struct sim_hold *hold = hold_shown(proc, &word);

		sim_trace(proc->world,
			  hold ? "process %lu is shown the tag of %lu" :
				 "process %lu is shown a wrong tag",
			  proc->index, hold ? hold->key : 0, 0);
		if (hold)
			hold->ranks[proc->rank].given_by = proc->incarnation;
	}
}

static int is_reading(const struct sim_proc *proc, uint64_t key)
{
	uint32_t at;

	for (at = 0; at < SIM_READS; at++)
		if (proc->transport.reads[at].active &&
		    proc->transport.reads[at].key == key)
			return 1;
	return 0;
}

/* Either side refused the other for good: no request is served any more. */
static int is_turned_away(const struct sim_proc *client,
			  const struct sim_proc *server)
{
	return client->misfit || client->refuses >> server->rank & 1 ||
	       client->turned_away >> sim_rank_bit(server) & 1;
}

/* A consumer gives nothing back that its engine may still use. */
static void word_check(const struct sim_conn *conn, struct sim_hold *hold)
{
	struct sim_world *world = conn->client->world;
	struct sim_instance *instance = conn->client->instance;
	const struct sim_user *user = sim_user_of(hold, instance);
	uint32_t at;

	if (user->copied_life == instance->incarnation)
		return;
	/* A worker whose device is lost gives back all that it has. */
	if (conn->client->worker->stream.retired)
		return;
	for (at = 0; at < SIM_REQUESTS; at++) {
		const struct sim_request *request = &instance->requests[at];

		if (&world->holds[request->hold] != hold ||
		    request->state == SIM_IDLE)
			continue;
		if (is_reading(conn->client, request->key))
			sim_fail(
				world,
				"process %u gives back what request %llu reads",
				conn->client->index,
				(unsigned long long)request->key);
		if (request->state == SIM_WAITING && request->fresh &&
		    !request->wrong && !request->changed &&
		    !is_turned_away(conn->client, conn->server) &&
		    !instance->restarts && !instance->stranger &&
		    user->ended_life != instance->incarnation)
			sim_fail(
				world,
				"process %u gives back the ticket of request %llu, which waits",
				conn->client->index,
				(unsigned long long)request->key);
	}
}

void sim_oracle_gives(const struct sim_conn *conn, const uint8_t *bytes,
		      size_t byte_count)
{
	const uint32_t count =
		words_get(conn->client->world, bytes, byte_count);
	uint32_t at;

	/*
	 * A consumer that closes drops its pulls, and gives back all that it
	 * has.
	 */
	for (at = 0; at < count && !conn->client->closing; at++) {
		const struct sim_word word = word_at(bytes, at);
		struct sim_hold *hold = hold_shown(conn->server, &word);

		if (hold)
			word_check(conn, hold);
	}
}

/*
 * Does a rank that claimed the hold itself owe a word? after: what was said
 * later does not count.
 */
static const struct sim_claimer *owing(const struct sim_hold_rank *rank,
				       uint64_t after)
{
	uint32_t who;
	uint32_t at;

	for (at = 0; at < rank->claimer_count; at++)
		for (who = 0; who < SIM_RANKS_MAX; who++)
			if (sim_owes_itself(&rank->claimers[at], who) &&
			    rank->claimers[at].debts[who].claimed <= after)
				return &rank->claimers[at];
	return NULL;
}

/* Was its tag shown here, or to a rank that told the others? */
static int was_given(const struct sim_proc *proc, const struct sim_hold *hold)
{
	uint32_t rank;

	if (hold->ranks[proc->rank].given_by == proc->incarnation)
		return 1;
	for (rank = 0; rank < proc->instance->ranks; rank++)
		if (hold->ranks[rank].reason == KVPULL_END_GIVEN_BACK)
			return 1;
	return 0;
}

/* Promise 8: the ring was drained before, and each claim in it counts. */
void sim_oracle_given_back(struct sim_proc *proc, const struct sim_hold *hold)
{
	const struct sim_hold_rank *rank = &hold->ranks[proc->rank];
	const struct sim_claimer *claimer = owing(rank, proc->sweep_event);

	if (!was_given(proc, hold))
		sim_fail(
			proc->world,
			"hold %llu ended as given back on process %u, and nobody showed its tag",
			(unsigned long long)hold->key, proc->index);
	if (claimer && rank->claimer_count <= KVPULL_CLAIMS_MAX)
		sim_fail(
			proc->world,
			"hold %llu ended as given back on process %u, but instance %llu claimed it and has not released",
			(unsigned long long)hold->key, proc->index,
			(unsigned long long)claimer->instance_id);
	proc->world->counts.given_back++;
}

/* An end of that kind on one rank is a mark on the others. */
static int is_marked(const struct sim_proc *proc, struct sim_hold *hold)
{
	const struct sim_instance *instance = proc->instance;
	const struct sim_world *world = proc->world;

	if (!hold->marked_ns || world->bytes_faulty || instance->restarts)
		return 0;
	if (!hold->marks_ns && instance->stepped_ns > hold->marked_ns)
		hold->marks_ns = instance->stepped_ns;
	return hold->marks_ns &&
	       world->now_ns >
		       hold->marks_ns + 1000 * (uint64_t)world->delay_us;
}

int sim_oracle_must_give(const struct sim_proc *proc, struct sim_hold *hold)
{
	const struct sim_hold_rank *rank = &hold->ranks[proc->rank];
	const int is_known =
		rank->given_by == proc->incarnation || is_marked(proc, hold);

	return is_known && rank->claimer_count <= KVPULL_CLAIMS_MAX &&
	       !owing(rank, UINT64_MAX);
}

/* Time for all that a refused consumer says, and hears, where nothing is lost. */
static uint64_t refusal_ns(const struct sim_world *world)
{
	return 150 * KVPULL_NS_PER_MS + 30000 * (uint64_t)world->delay_us;
}

/* Where calls come, and are answered soon; all tables of a consumer have room. */
static int is_tidy(const struct sim_world *world)
{
	const struct sim_shape *shape = &world->shape;

	return world->tidy && !shape->impatient && !shape->tight &&
	       shape->tickets == 16;
}

/* Is that the case, of its model or of each of its workers' memory? */
static int is_refused(const struct sim_instance *instance, uint32_t server_rank)
{
	uint32_t rank;

	if (!instance->alive || instance->restarts)
		return 0;
	if (instance->stranger == SIM_STRANGER_MODEL)
		return 1;
	/* The consumer's welcome may have to wait for a place. */
	if (instance->world->shape.places)
		return 0;
	for (rank = 0; rank < instance->ranks; rank++)
		if (instance->stranger ||
		    !(instance->procs[rank]->misfit ||
		      instance->procs[rank]->refuses >> server_rank & 1))
			return 0;
	return 1;
}

/* No consumer claimed the hold: did one that is refused keep its ticket? */
void sim_oracle_stranded(struct sim_proc *proc, const struct sim_hold *hold)
{
	struct sim_world *world = proc->world;
	/* Turns of the quiet end are too long for a call to be answered in time. */
	const uint64_t until_ns =
		world->quiet ? world->quiet_ns : world->now_ns;
	uint32_t at;

	if (!is_tidy(world) || hold->ranks[proc->rank].claimer_count)
		return;
	for (at = 0; at < hold->user_count; at++) {
		const struct sim_user *user = &hold->users[at];
		const struct sim_instance *instance =
			&world->instances[user->instance];

		if (user->used_ns && user->used_life == instance->incarnation &&
		    is_refused(instance, proc->rank) &&
		    until_ns > user->used_ns + refusal_ns(world))
			sim_fail(
				world,
				"hold %llu expired on process %u, and instance %u, which is refused, did not give its ticket back",
				(unsigned long long)hold->key, proc->index,
				instance->index);
	}
}
