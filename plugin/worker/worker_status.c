/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, engine's thread: its counters, for the engine that asks and for
 * the status file, and its part of what that file says of holds and consumers.
 */
#include "plugin/worker/worker_state.h"

#include <inttypes.h>

#include "base/probe.h"

static uint64_t count_of(const _Atomic uint64_t *counter)
{
	/* A statistic: no order with anything else. */
	return atomic_load_explicit(counter, memory_order_relaxed);
}

#define FROM_OWN(member) worker->counts.member
#define FROM_HOLDS(member) holds.member
#define FROM_PROGRESS(member) count_of(&progress->member)
#define FROM_WORKER(member) worker->member
#define FROM_LOG(member) count_of(&worker->facts.log_budget.member)
#define COPY(name, kind, from, help) counts->name = FROM_##from;

void kvpull_worker_counts(struct kvpull_worker *worker,
			  union kvpull_worker_counts *counts)
{
	const struct kvpull_progress_counts *progress =
		kvpull_progress_counts(worker->progress);
	struct kvpull_hold_counts holds;

	kvpull_holds_counts(worker->holds, &holds);
	KVPULL_WORKER_COUNTERS(COPY)
}

/* Rows of the engine's thread; those of the progress thread lie apart. */
#define SHOW_OWN(member) SHOW(FROM_OWN(member))
#define SHOW_HOLDS(member) SHOW(FROM_HOLDS(member))
#define SHOW_WORKER(member) SHOW(FROM_WORKER(member))
#define SHOW_LOG(member) SHOW(FROM_LOG(member))
#define SHOW_PROGRESS(member) (void)row++;
#define SHOW(value) kvpull_status_set(row++, value);
#define SHOW_ROW(name, kind, from, help) SHOW_##from

static void show_counters(struct kvpull_worker *worker)
{
	_Atomic uint64_t *row = worker->status.engine.thread->counters;
	struct kvpull_hold_counts holds;

	kvpull_holds_counts(worker->holds, &holds);
	/* cppcheck-suppress unknownMacro ; a statement a row */
	KVPULL_WORKER_COUNTERS(SHOW_ROW)
}

void kvpull_worker_show_step(struct kvpull_worker *worker, uint64_t begun_ns)
{
	struct kvpull_status_side *side = &worker->status.engine;

	if (!kvpull_status_is_on(side))
		return;
	kvpull_status_took(side, KVPULL_TIMES_STEP,
			   kvpull_facts_now(&worker->facts) - begun_ns, 1);
	kvpull_status_set(&side->thread->instance, worker->stream.incarnation);
	show_counters(worker);
}

void kvpull_worker_show_poll(struct kvpull_worker *worker, uint64_t took_ns,
			     uint32_t sent)
{
	if (!kvpull_status_is_on(&worker->status.engine))
		return;
	if (sent)
		kvpull_status_took(&worker->status.engine, KVPULL_TIMES_SENT,
				   took_ns, sent);
	show_counters(worker);
}

void kvpull_worker_show_heard(struct kvpull_status *status, uint32_t index,
			      uint64_t now_ns)
{
	if (kvpull_status_is_on(&status->engine))
		kvpull_status_set(&status->words[index].heard_ns, now_ns);
}

void kvpull_worker_show_notes(struct kvpull_status *status, uint32_t index,
			      uint32_t claims, uint32_t releases)
{
	if (!kvpull_status_is_on(&status->engine))
		return;
	kvpull_status_add(&status->words[index].claims, claims);
	kvpull_status_add(&status->words[index].releases, releases);
}

void kvpull_worker_show_hold(struct kvpull_status *status,
			     const struct kvpull_command *command)
{
	struct kvpull_status_hold *row = &status->holds.rows[command->slot];

	kvpull_status_set(&row->generation, command->generation);
	kvpull_status_set(&status->holds.now[command->slot].blocks,
			  command->blocks);
	kvpull_status_label(row->label, command->label);
}

static void small_note(struct kvpull_status_side *side,
		       const struct kvpull_claim_order *claim,
		       enum kvpull_status_what what, uint64_t at_ns)
{
	const struct kvpull_status_note note = {
		.at_ns = at_ns,
		.generation = claim->generation,
		.who = claim->ranks[0].incarnation,
		.slot = claim->slot,
		.what = what,
	};

	kvpull_status_note(side, &note);
}

void kvpull_worker_show_small(struct kvpull_worker *worker, uint32_t index)
{
	const struct kvpull_pull_order *order = &worker->handover.pulls[index];
	const struct kvpull_pull_outcome *outcome =
		&worker->handover.outcomes[index];
	const struct kvpull_claim_order *claim =
		&worker->handover.claims[order->claim];
	struct kvpull_status_side *side = &worker->status.engine;

	small_note(side, claim, KVPULL_DID_PULL, order->started_ns);
	small_note(side, claim, KVPULL_DID_LOADED, outcome->ended_ns);
	kvpull_status_took(side, KVPULL_TIMES_PULL,
			   outcome->ended_ns - order->started_ns, 1);
}

/*
 * The consumer with this place in the hold table, or the last one there; NULL:
 * none.
 */
static const struct kvpull_consumer_note *
consumer_of(const struct kvpull_worker *worker, uint32_t joined, uint32_t *at)
{
	uint32_t index;

	for (index = 0; joined && index < worker->facts.caller_count_max;
	     index++)
		if (kvpull_status_get(&worker->status.words[index].joined) ==
		    joined) {
			*at = index;
			return &worker->crowd.notes[index];
		}
	return NULL;
}

void kvpull_worker_show_joined(struct kvpull_worker *worker, uint32_t index)
{
	const struct kvpull_consumer *consumer =
		&worker->crowd.consumers[index];
	struct kvpull_consumer_note *notes = worker->crowd.notes;
	struct kvpull_status_words *words = worker->status.words;
	const uint64_t joined = notes[index].instance + 1u;
	uint32_t at;

	for (at = 0; at < worker->facts.caller_count_max; at++)
		if (kvpull_status_get(&words[at].joined) == joined &&
		    (notes[at].instance_id != consumer->instance_id ||
		     notes[at].rank == consumer->rank))
			kvpull_status_set(&words[at].joined, 0);
	notes[index].instance_id = consumer->instance_id;
	notes[index].rank = consumer->rank;
	notes[index].pid = consumer->pid;
	memcpy(notes[index].engine_id, consumer->engine_id,
	       sizeof(notes[index].engine_id));
	kvpull_status_set(&words[index].joined, joined);
}

void kvpull_worker_say_claim(struct kvpull_worker *worker,
			     const struct kvpull_consumer *consumer,
			     const struct kvpull_record *record)
{
	const struct kvpull_status_hold *rows = worker->status.holds.rows;
	char label[KVPULL_STATUS_LABEL_BYTES] = "";

	/* As its sender says: another's slot, or none, maybe. */
	if (record->slot < worker->facts.config.max_holds &&
	    kvpull_status_get(&rows[record->slot].generation) ==
		    record->generation)
		kvpull_status_label_get(rows[record->slot].label, label);
	kvpull_debug(
		&worker->facts.log,
		"claim of request %s by %s rank %u pid %u: slot %u generation %" PRIu64
		" of %016" PRIx64,
		label[0] ? label : "unknown yet", consumer->engine_id,
		consumer->rank, consumer->pid, record->slot, record->generation,
		worker->facts.incarnation);
}

void kvpull_worker_show_expired(struct kvpull_worker *worker,
				const struct kvpull_hold_end *end)
{
	const struct kvpull_status_hold *row =
		&worker->status.holds.rows[end->slot];
	const struct kvpull_status_hold_now *now =
		&worker->status.holds.now[end->slot];
	struct kvpull_status_thread *thread = worker->status.engine.thread;
	const uint32_t blocks = kvpull_status_get(&now->blocks);
	const uint64_t now_ns = kvpull_status_get(&now->word_ns);
	const uint64_t age_ns = now_ns - kvpull_status_get(&row->taken_ns);
	const uint64_t max_ns =
		worker->facts.config.hold_max_ms * KVPULL_NS_PER_MS;
	char label[KVPULL_STATUS_LABEL_BYTES];
	char claimant[KVPULL_ENGINE_ID_BYTES_MAX + 16] = "nobody";
	const struct kvpull_consumer_note *consumer;
	struct kvpull_status_words *words;
	uint32_t at = 0;

	consumer = consumer_of(worker, kvpull_status_get(&now->joined), &at);
	words = &worker->status.words[at];
	if (consumer)
		(void)snprintf(claimant, sizeof(claimant), "%s pid %u",
			       consumer->engine_id, consumer->pid);
	kvpull_status_label_get(row->label, label);
	KVPULL_PROBE5(expire, end->key, end->slot, end->generation, age_ns,
		      consumer ? consumer->pid : 0);
	kvpull_status_add(consumer ? &words->expired : &thread->expired, 1);
	kvpull_status_add(consumer ? &words->expired_blocks :
				     &thread->expired_blocks,
			  blocks);
	kvpull_status_set(consumer ? &words->expired_ns : &thread->expired_ns,
			  now_ns);
	kvpull_warn(&worker->facts.log,
		    "hold of request %s key %" PRIu64
		    " expired at its %s: %u blocks after %" PRIu64
		    " ms, claimed last by %s; slot %u generation %" PRIu64
		    " of %016" PRIx64,
		    kvpull_log_label(label), end->key,
		    age_ns < max_ns ? "lease" : "hold_max", blocks,
		    age_ns / KVPULL_NS_PER_MS, claimant, end->slot,
		    end->generation, worker->facts.incarnation);
}

void kvpull_worker_show_given(struct kvpull_worker *worker,
			      const struct kvpull_hold_end *end)
{
	const uint64_t now_ns = kvpull_facts_now(&worker->facts);
	char label[KVPULL_STATUS_LABEL_BYTES];

	if (!kvpull_second_passed(&worker->said.given_ns, now_ns)) {
		worker->said.given_unsaid++;
		return;
	}
	kvpull_status_label_get(worker->status.holds.rows[end->slot].label,
				label);
	kvpull_warn(
		&worker->facts.log,
		"a consumer that is not let in gave back the ticket of request %s key %" PRIu64
		": its %u blocks are free (and those of %u requests more, since the last such line)",
		kvpull_log_label(label), end->key,
		kvpull_status_get(&worker->status.holds.now[end->slot].blocks),
		worker->said.given_unsaid);
	worker->said.given_unsaid = 0;
}
