/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, engine's thread: step bytes in, result bytes out.
 *
 * A step is checked whole before its first command is applied. Commands are
 * applied in sequence, once: what was seen is dropped, a gap drops the whole
 * message and is told in the next result. One scheduler half is followed, from
 * its first command; if that is lost for ever (this worker was restarted alone),
 * the scheduler half knows so once it has acknowledged a result of this
 * incarnation, and then it is followed from where it goes on.
 *
 * A scheduler half that was restarted alone knows nothing of the tickets that
 * the old one gave out, and neither may this worker: what they name is not held
 * any more. So it is not followed, and nothing of this incarnation is live.
 *
 * Results are kept until a step acknowledges them, and all of them are said
 * again in each message: the scheduler half drops replays.
 */
#include "base/params.h"
#include "base/probe.h"
#include "plugin/worker/worker_state.h"

#include <inttypes.h>

#include "base/wrap.h"

/* Report FAILED for a pull that gets no slot. */
static void pull_refuse(struct kvpull_worker *worker,
			const struct kvpull_command *command, int32_t reason)
{
	struct kvpull_worker_pulls *pulls = &worker->pulls;
	uint32_t at;

	if (pulls->refused_count == pulls->refused_max) {
		kvpull_error(
			&worker->facts.log,
			"more than %u pulls refused in one poll: request %" PRIu64
			" is not reported; raise requests_max",
			pulls->refused_max, command->key);
		worker->counts.step_bad++;
		return;
	}
	at = (pulls->refused_first + pulls->refused_count++) %
	     pulls->refused_max;
	pulls->refused[at] = (struct kvpull_refused){ .key = command->key,
						      .reason = reason };
	kvpull_status_failed(&worker->status.engine, reason);
	kvpull_warn(&worker->facts.log,
		    "pull of request %s key %" PRIu64 " refused: %s: %s",
		    kvpull_log_label(command->label), command->key,
		    kvpull_error_name(reason), kvpull_error_text(reason));
}

static void apply_hold(struct kvpull_worker *worker,
		       const struct kvpull_command *command)
{
	const int code = kvpull_holds_take(worker->holds, command->slot,
					   command->generation, command->key);

	if (!code) {
		KVPULL_PROBE5(hold, command->key, command->slot,
			      command->generation, command->blocks,
			      worker->facts.incarnation);
		kvpull_worker_show_hold(&worker->status, command);
		return;
	}
	kvpull_error(&worker->facts.log,
		     "hold of request %" PRIu64
		     " in slot %u generation %" PRIu64
		     " refused: the step does not fit this rank's table",
		     command->key, command->slot, command->generation);
	worker->counts.step_bad++;
}

static void apply_end(struct kvpull_worker *worker,
		      const struct kvpull_command *command)
{
	/* By us, or by the worker that we replace. */
	if (command->reported >> worker->facts.stage.rank & 1)
		return;
	if (command->reason == KVPULL_END_GIVEN_BACK) {
		kvpull_holds_give(worker->holds, command->slot,
				  command->generation);
		return;
	}
	if (kvpull_holds_end(worker->holds, command->slot, command->generation,
			     command->key, command->reason))
		worker->counts.step_bad++;
}

/* Most tickets have few: a page for each would be slower than its pull. */
static struct kvpull_ticket_rank *ranks_of(const struct kvpull_worker *worker,
					   uint32_t index, uint32_t count)
{
	return count <= KVPULL_RANKS_FEW ?
		       worker->handover.ranks_few +
			       index * (size_t)KVPULL_RANKS_FEW :
		       worker->handover.ranks +
			       index * (size_t)KVPULL_RANKS_MAX;
}

static void apply_claim(struct kvpull_worker *worker,
			const struct kvpull_command *command)
{
	const uint32_t index = kvpull_index_pool_peek(&worker->claims.pool);
	struct kvpull_claim_order *claim;

	if (kvpull_map_get(&worker->claims.map, command->ticket_serial) !=
	    KVPULL_NONE)
		return;
	if (index == KVPULL_NONE ||
	    kvpull_map_set(&worker->claims.map, command->ticket_serial,
			   index)) {
		if (!kvpull_second_passed(&worker->said.full_ns,
					  kvpull_facts_now(&worker->facts)))
			return;
		kvpull_warn(
			&worker->facts.log,
			"no room for another ticket beside those that peers have not taken back: raise tickets_max (%u); its pull will fail, and its hold stays a lease longer",
			worker->facts.config.tickets_max);
		return;
	}
	claim = &worker->handover.claims[index];
	(void)kvpull_index_pool_take(&worker->claims.pool);
	worker->claims.notes[index].release_told = 0;
	claim->serial = command->ticket_serial;
	claim->instance_id = worker->stream.incarnation;
	claim->generation = command->generation;
	claim->slot = command->slot;
	claim->rank_count = command->rank_count;
	claim->priority = command->priority;
	claim->ranks = ranks_of(worker, index, command->rank_count);
	memcpy(claim->ranks, command->ranks,
	       command->rank_count * sizeof(*claim->ranks));
	memcpy(claim->label, command->label, sizeof(claim->label));
	/* A peer that is there is told in time, even by a thread that sleeps. */
	if (kvpull_small_knows(worker, claim))
		kvpull_worker_tell_later(worker, KVPULL_TO_CLAIM, index,
					 claim->serial);
	else
		kvpull_worker_tell(worker, KVPULL_TO_CLAIM, index,
				   claim->serial);
}

static void pull_fill(struct kvpull_worker *worker, uint32_t index,
		      const struct kvpull_command *command)
{
	struct kvpull_pull_order *pull = &worker->handover.pulls[index];
	struct kvpull_pull_note *note = &worker->pulls.notes[index];
	const uint64_t now_ns = kvpull_facts_now(&worker->facts);
	const uint64_t limit_ms = worker->facts.config.deadline_ms ?
					  worker->facts.config.deadline_ms :
					  worker->facts.config.lease_ms;
	const uint32_t pairs = command->group_first[command->group_count];
	uint32_t group;

	pull->key = command->key;
	pull->claim_serial = command->ticket_serial;
	pull->flags = command->flags;
	pull->priority = command->priority;
	pull->started_ns = now_ns;
	pull->unstarted = 0;
	pull->after = 0;
	note->mark = KVPULL_NONE;
	pull->deadline_ns = now_ns + limit_ms * KVPULL_NS_PER_MS;
	note->abort_told = 0;
	if (!note->serial)
		note->serial = KVPULL_WRAP_START;
	if (!++note->serial)
		note->serial = 1;
	for (group = 0; group <= KVPULL_GROUPS_MAX; group++)
		pull->group_first[group] = group <= command->group_count ?
						   command->group_first[group] :
						   pairs;
	memcpy(pull->label, command->label, sizeof(pull->label));
	pull->remote_ids = kvpull_pulls_ids(&worker->pulls, index, pairs);
	pull->local_ids = pull->remote_ids + pairs;
	kvpull_ids_copy(&command->remote, 0, pairs, pull->remote_ids);
	kvpull_ids_copy(&command->local, 0, pairs, pull->local_ids);
}

static void apply_pull(struct kvpull_worker *worker,
		       const struct kvpull_command *command)
{
	const uint32_t claim =
		kvpull_map_get(&worker->claims.map, command->ticket_serial);
	const uint32_t pairs = command->group_first[command->group_count];
	struct kvpull_worker_pulls *pulls = &worker->pulls;
	int32_t refusal = command->reason;
	uint32_t index;

	/* Said twice: its one report is on its way. */
	if (kvpull_map_get(&pulls->map, command->key) != KVPULL_NONE) {
		worker->counts.step_bad++;
		return;
	}
	if (!refusal && claim == KVPULL_NONE)
		refusal = KVPULL_EEXPIRED;
	if (!refusal)
		refusal = kvpull_pulls_slot(pulls, command->key, pairs, &index);
	if (refusal) {
		pull_refuse(worker, command, refusal);
		return;
	}
	worker->handover.pulls[index].claim = claim;
	worker->claims.notes[claim].waiting++;
	pull_fill(worker, index, command);
	kvpull_pulls_add(pulls, &pulls->start, index);
	worker->counts.pulls_started++;
	KVPULL_PROBE5(
		pull_start, command->key, worker->handover.claims[claim].slot,
		worker->handover.claims[claim].generation,
		worker->handover.claims[claim].ranks[0].incarnation, pairs);
}

static void apply_abort(struct kvpull_worker *worker,
			const struct kvpull_command *command)
{
	const uint32_t index = kvpull_map_get(&worker->pulls.map, command->key);

	if (index != KVPULL_NONE)
		kvpull_worker_pull_abort(worker, index);
}

static void apply_release(struct kvpull_worker *worker,
			  const struct kvpull_command *command)
{
	const uint32_t index =
		kvpull_map_get(&worker->claims.map, command->ticket_serial);

	if (index != KVPULL_NONE)
		kvpull_worker_claim_release(worker, index);
}

static void apply(struct kvpull_worker *worker,
		  const struct kvpull_command *command)
{
	switch (command->kind) {
	case KVPULL_COMMAND_HOLD:
		apply_hold(worker, command);
		break;
	case KVPULL_COMMAND_END:
		apply_end(worker, command);
		break;
	case KVPULL_COMMAND_CLAIM:
		apply_claim(worker, command);
		break;
	case KVPULL_COMMAND_PULL:
		apply_pull(worker, command);
		break;
	case KVPULL_COMMAND_ABORT:
		apply_abort(worker, command);
		break;
	case KVPULL_COMMAND_RELEASE:
		apply_release(worker, command);
		break;
	}
}

static int names_us(const struct kvpull_facts *facts,
		    const struct kvpull_step_header *header)
{
	return facts->stage.rank < header->rank_count &&
	       header->ack_incarnations[facts->stage.rank] ==
		       facts->incarnation;
}

/* The scheduler half has these: they need not be said again. */
static void take_acks(struct kvpull_worker *worker,
		      const struct kvpull_step_header *header)
{
	if (names_us(&worker->facts, header))
		kvpull_results_acknowledge(
			&worker->results,
			header->acks[worker->facts.stage.rank]);
}

void kvpull_worker_retire(struct kvpull_worker *worker)
{
	uint32_t index;

	worker->stream.retired = 1;
	(void)kvpull_holds_revoke_full(worker->holds, KVPULL_END_REVOKED);
	(void)kvpull_worker_start_loads(worker);
	for (index = 0; index < worker->facts.config.pulls_max; index++)
		if (kvpull_map_get(&worker->pulls.map,
				   worker->handover.pulls[index].key) == index)
			kvpull_worker_pull_abort(worker, index);
	for (index = 0; index <= worker->claims.map.mask; index++) {
		const struct kvpull_map_entry *entry =
			&worker->claims.map.entries[index];

		if (entry->key)
			kvpull_worker_claim_release(worker, entry->value);
	}
	kvpull_wakeup_keep(&worker->wakeup);
}

/* The step's bytes are of another scheduler half than before. */
static int retire(struct kvpull_worker *worker)
{
	if (!worker->stream.retired) {
		kvpull_error(
			&worker->facts.log,
			"the scheduler half was restarted: all holds and pulls end, and no ticket of this worker is live; close it and open another");
		kvpull_worker_retire(worker);
	}
	worker->counts.step_bad++;
	return KVPULL_ECLOSED;
}

/* 0: follow this message; 1: something before it is missing. */
static int follow(struct kvpull_worker *worker,
		  const struct kvpull_step_header *header)
{
	struct kvpull_worker_stream *stream = &worker->stream;

	if (!stream->incarnation) {
		stream->incarnation = header->incarnation;
		kvpull_holds_begin(worker->holds,
				   kvpull_half_floor(header->incarnation));
		/*
		 * The half must get a result that names this worker as its
		 * follower.
		 */
		stream->told = UINT64_MAX;
	}
	/* Meant for our predecessor: the blocks that it names may be in use. */
	if (!stream->sequence && !names_us(&worker->facts, header))
		return 1;
	if (header->first_sequence <= stream->sequence + 1)
		return 0;
	/* The half has acknowledged a result of ours, so it goes on for us. */
	if (!stream->sequence && stream->gap &&
	    header->acks[worker->facts.stage.rank] > 0) {
		stream->sequence = header->first_sequence - 1;
		return 0;
	}
	return 1;
}

int kvpull_worker_step(struct kvpull_worker *worker, const void *bytes,
		       size_t byte_count)
{
	struct kvpull_wire_reader reader = { .data = bytes,
					     .byte_count = byte_count };
	struct kvpull_worker_stream *stream = &worker->stream;
	struct kvpull_step_header header;
	struct kvpull_command command;
	uint64_t now_ns;
	uint32_t index;
	int code;

	/* Wakes the progress thread for work that the last poll left. */
	kvpull_worker_wake_all(worker);
	kvpull_worker_marks_step(worker);
	if (!byte_count)
		return 0;
	now_ns = kvpull_facts_now(&worker->facts);
	code = kvpull_step_begin(&reader, &stream->scratch, &header);
	if (code) {
		worker->counts.step_bad++;
		kvpull_error(
			&worker->facts.log,
			code == KVPULL_EVERSION ?
				"step of %zu bytes refused: the scheduler half is newer, we lack %s" :
				"step of %zu bytes refused: damaged%s",
			byte_count, stream->scratch.unknown);
		return code;
	}
	if (stream->retired ||
	    (stream->incarnation && stream->incarnation != header.incarnation))
		return retire(worker);
	atomic_store_explicit(&worker->handover.step_ns, now_ns,
			      memory_order_relaxed);
	kvpull_status_set(&worker->status.engine.thread->step_ns, now_ns);
	take_acks(worker, &header);
	if (follow(worker, &header)) {
		stream->gap = 1;
		stream->gap_told = 0; /* the last word may be lost */
		worker->counts.step_gaps++;
		return 0;
	}
	stream->gap = 0;
	/* Holds are taken now, not at the last poll. */
	kvpull_holds_stamp(worker->holds, now_ns,
			   kvpull_worker_stopped(worker, now_ns));
	for (index = 0; index < header.record_count; index++) {
		if (kvpull_step_peek_again(&reader, &stream->scratch, &command))
			return KVPULL_EINVAL;
		if (header.first_sequence + index <= stream->sequence) {
			worker->counts.step_replayed++;
			continue;
		}
		stream->sequence = header.first_sequence + index;
		apply(worker, &command);
	}
	if (header.record_count)
		kvpull_wakeup_keep(&worker->wakeup);
	kvpull_worker_show_step(worker, now_ns);
	kvpull_worker_wake(worker);
	return 0;
}

int kvpull_worker_start_loads(struct kvpull_worker *worker)
{
	struct kvpull_worker_pulls *pulls = &worker->pulls;

	if (kvpull_worker_marks_wait(worker))
		return 0;
	while (pulls->start.first != KVPULL_NONE) {
		const uint32_t index = kvpull_pulls_take(pulls, &pulls->start);
		const int is_small = kvpull_small_fits(worker, index);

		kvpull_worker_pull_mark(worker, index);
		if (is_small)
			kvpull_turns_push(
				&worker->small.turns, index,
				worker->handover.pulls[index].priority);
		else
			kvpull_pull_hand_over(worker, index);
		if (is_small ||
		    worker->facts.config.progress == KVPULL_PROGRESS_CALLER)
			kvpull_wakeup_keep(&worker->wakeup);
	}
	kvpull_worker_wake(worker);
	return 0;
}

static void rank_fill(struct kvpull_worker *worker,
		      struct kvpull_rank_info *rank)
{
	uint32_t index;

	*rank = (struct kvpull_rank_info){
		.incarnation = worker->facts.incarnation,
		.generation_floor = kvpull_holds_generation_max(worker->holds),
		.stage = worker->facts.stage,
		.slot_count = worker->facts.config.max_holds,
		.group_count = worker->facts.compat.group_count,
	};
	for (index = 0; index < worker->facts.cache_count; index++) {
		const struct kvpull_cache *cache = &worker->facts.caches[index];
		uint32_t *count = &rank->block_counts[cache->group_index];

		if (!*count || cache->block_count < *count)
			*count = cache->block_count;
	}
	memcpy(rank->secret, worker->secret, sizeof(rank->secret));
	memcpy(rank->compat, worker->compat_digest, sizeof(rank->compat));
	kvpull_handover_address_get(&worker->handover, rank->address);
}

int kvpull_worker_rank_info(struct kvpull_worker *worker, void *bytes,
			    size_t capacity, size_t *byte_count)
{
	struct kvpull_wire_writer writer = { .data = bytes,
					     .capacity = capacity };
	struct kvpull_rank_info rank;

	if (!worker->memories.registered)
		return KVPULL_EAGAIN;
	rank_fill(worker, &rank);
	kvpull_step_put_rank_info(&writer, &rank);
	*byte_count = writer.used;
	return kvpull_wire_fits(&writer) ? 0 : KVPULL_ETOOSMALL;
}

static void result_put(struct kvpull_worker *worker,
		       struct kvpull_wire_writer *writer, uint64_t sequence)
{
	const struct kvpull_worker_result *outcome =
		kvpull_result_at(&worker->results, sequence);
	struct kvpull_result result = {
		.kind = (enum kvpull_result_kind)outcome->kind,
		.slot = outcome->slot,
		.key = outcome->key,
		.generation = outcome->generation,
		.bytes = outcome->bytes,
		.reason = outcome->reason,
	};

	if (result.kind == KVPULL_RESULT_RANK)
		rank_fill(worker, &result.rank);
	kvpull_step_put_result(writer, &result);
}

int kvpull_worker_result_build(struct kvpull_worker *worker, void *bytes,
			       size_t capacity, size_t *byte_count)
{
	struct kvpull_wire_writer writer = { .data = bytes,
					     .capacity = capacity };
	struct kvpull_worker_results *results = &worker->results;
	struct kvpull_worker_stream *stream = &worker->stream;
	struct kvpull_result_header header;
	uint64_t open;
	uint32_t index;

	kvpull_worker_wake_all(worker);
	kvpull_results_add_rank(results, &worker->handover);
	open = results->next - results->first;
	if (!open && stream->told == stream->sequence &&
	    stream->gap_told == stream->gap) {
		*byte_count = 0;
		return 0;
	}
	header = (struct kvpull_result_header){
		.incarnation = worker->facts.incarnation,
		.first_sequence = results->first,
		.record_count = open < KVPULL_RESULTS_A_BUILD ?
					(uint32_t)open :
					KVPULL_RESULTS_A_BUILD,
		.rank = worker->facts.stage.rank,
		.step_incarnation = stream->incarnation,
		.step_sequence = stream->sequence,
		.gap = stream->gap,
	};
	kvpull_step_put_result_header(&writer, &header);
	for (index = 0; index < header.record_count; index++)
		result_put(worker, &writer, results->first + index);
	*byte_count = writer.used;
	if (!kvpull_wire_fits(&writer))
		return KVPULL_ETOOSMALL;
	stream->told = stream->sequence;
	stream->gap_told = stream->gap;
	return 0;
}
