/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler half: what goes to the workers and what comes from them.
 *
 * A rank's worker is known by its incarnation. Another one, told by rank_info
 * or by a RANK result under its own header, replaces it: what the old one held
 * is ended on all ranks, what it pulled counts as failed on that rank (the
 * engine that restarts a consumer's worker alone fails those requests itself:
 * nobody is left to report them), and what still comes from it is dropped.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "plugin/scheduler/scheduler_state.h"

#define SILENCE_NS (10 * KVPULL_NS_PER_S) /* beyond hold_max: B.7 */

/* All of its open pulls are over on this rank. */
static void fail_pulls(struct kvpull_scheduler *scheduler, uint32_t rank)
{
	const uint32_t count = scheduler->request_pool.touched;
	uint32_t index;

	for (index = 0; index < count; index++) {
		struct kvpull_scheduler_request *request =
			&scheduler->requests[index];
		const struct kvpull_result result = {
			.kind = KVPULL_RESULT_PULL_ENDED,
			.key = request->key,
			.reason = KVPULL_EPEER,
		};
		uint32_t ended = 0;

		if (!request->key ||
		    kvpull_demand_report(&scheduler->demand, &request->user,
					 rank, &result, &ended))
			continue;
		if (ended)
			kvpull_scheduler_pull_ended(scheduler, request);
	}
}

static int is_past(const struct kvpull_scheduler_rank *rank,
		   uint64_t incarnation)
{
	uint32_t i;

	for (i = 0; i < KVPULL_PAST_WORKERS; i++)
		if (rank->past[i] == incarnation)
			return 1;
	return 0;
}

static void replace_worker(struct kvpull_scheduler *scheduler, uint32_t index)
{
	struct kvpull_scheduler_rank *rank = &scheduler->ranks[index];

	kvpull_warn(
		scheduler->log,
		"rank %u has another worker: the old one's holds are ended and its pulls failed",
		index);
	rank->past[rank->past_count++ % KVPULL_PAST_WORKERS] =
		rank->info.incarnation;
	kvpull_slots_rank_restart(&scheduler->slots, index);
	kvpull_demand_rank_restart(&scheduler->demand);
	fail_pulls(scheduler, index);
}

/*
 * Each layer of the model is in one stage, as far as the ranks are known. A ticket
 * has none of a rank that was refused: there is no hold.
 */
static int layers_fit(const struct kvpull_scheduler *scheduler,
		      const struct kvpull_stage *stage)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	int code = kvpull_stage_check(stage, scheduler->layer_count, &detail);
	uint32_t at;

	for (at = 0; !code && at < scheduler->rank_count; at++)
		if (at != stage->rank && scheduler->ranks[at].info.incarnation)
			code = kvpull_stages_compare(
				&scheduler->ranks[at].info.stage, stage,
				&detail);
	if (code)
		kvpull_error(scheduler->log, "rank %u is refused: %s",
			     stage->rank, detail.message);
	return !code;
}

/* 0; KVPULL_EAGAIN: of a worker that was replaced; KVPULL_EINVAL. */
static int learn_rank(struct kvpull_scheduler *scheduler,
		      const struct kvpull_rank_info *info)
{
	struct kvpull_scheduler_rank *rank;

	if (!info->incarnation ||
	    info->stage.rank_count != scheduler->rank_count ||
	    info->stage.pp_size != scheduler->pp_size ||
	    memcmp(info->compat, scheduler->compat, sizeof(info->compat))) {
		kvpull_error(
			scheduler->log,
			"rank %u of %u in %u stages refused: ours are %u in %u, or its model record differs",
			info->stage.rank, info->stage.rank_count,
			info->stage.pp_size, scheduler->rank_count,
			scheduler->pp_size);
		return KVPULL_EINVAL;
	}
	if (!layers_fit(scheduler, &info->stage))
		return KVPULL_EINVAL;
	rank = &scheduler->ranks[info->stage.rank];
	if (is_past(rank, info->incarnation))
		return KVPULL_EAGAIN;
	if (rank->info.incarnation != info->incarnation) {
		kvpull_outbox_rank_start(&scheduler->outbox, info->stage.rank,
					 info->incarnation);
		if (rank->info.incarnation)
			replace_worker(scheduler, info->stage.rank);
	}
	rank->info = *info;
	return 0;
}

int kvpull_scheduler_rank_info(struct kvpull_scheduler *scheduler,
			       const void *bytes, size_t byte_count,
			       uint64_t now_ns)
{
	struct kvpull_rank_info info;
	int code;

	kvpull_scheduler_tick(scheduler, now_ns);
	code = kvpull_step_get_rank_info(bytes, byte_count, &info);
	if (code)
		return code;
	code = learn_rank(scheduler, &info);
	return code == KVPULL_EAGAIN ? 0 : code;
}

/* Commands of requests that found no room before. */
static void flush_requests(struct kvpull_scheduler *scheduler)
{
	while (scheduler->owing.count) {
		const uint32_t index = scheduler->owing.first;
		struct kvpull_scheduler_request *request =
			&scheduler->requests[index];
		const struct kvpull_command command = {
			.kind = KVPULL_COMMAND_ABORT,
			.key = request->key,
		};

		if (request->owed & KVPULL_OWED_REFUSAL) {
			if (kvpull_demand_refuse(&scheduler->demand,
						 request->key,
						 request->refusal) != 0)
				return;
			request->owed &= ~KVPULL_OWED_REFUSAL;
		}
		if ((request->owed & KVPULL_OWED_ABORT) &&
		    kvpull_outbox_put(&scheduler->outbox, &command) != 0)
			return;
		request->owed = 0;
		kvpull_index_list_remove(&scheduler->owing, index);
	}
}

/* Workers beat for the tickets of a half that speaks. */
static void keep_alive(struct kvpull_scheduler *scheduler, uint64_t now_ns)
{
	if (scheduler->demand.live_count)
		kvpull_outbox_speak(&scheduler->outbox,
				    scheduler->demand.lease_ns / 3, now_ns);
}

static int step_build(struct kvpull_scheduler *scheduler, void *bytes,
		      size_t capacity, size_t *byte_count, uint64_t now_ns)
{
	int code;

	kvpull_scheduler_tick(scheduler, now_ns);
	kvpull_outbox_tick(&scheduler->outbox, now_ns);
	keep_alive(scheduler, now_ns);
	kvpull_slots_flush(&scheduler->slots, &scheduler->outbox);
	flush_requests(scheduler);
	kvpull_demand_flush(&scheduler->demand);
	code = kvpull_outbox_build(&scheduler->outbox, bytes, capacity,
				   byte_count, now_ns);
	if (!code && *byte_count)
		scheduler->counts.steps_built++;
	return code;
}

int kvpull_scheduler_worker_attach(struct kvpull_scheduler *scheduler,
				   struct kvpull_worker *worker,
				   kvpull_step_fn *step)
{
	if (scheduler->rank_count != 1)
		return KVPULL_EINVAL;
	scheduler->worker = worker;
	scheduler->worker_step = step;
	return 0;
}

int kvpull_scheduler_say(struct kvpull_scheduler *scheduler, uint64_t now_ns)
{
	struct kvpull_outbox *outbox = &scheduler->outbox;
	size_t byte_count;
	int code;

	if (!scheduler->worker)
		return 0;
	code = step_build(scheduler, outbox->message, outbox->message_bytes,
			  &byte_count, now_ns);
	kvpull_check(scheduler->log, !code);
	return byte_count ?
		       scheduler->worker_step(scheduler->worker,
					      outbox->message, byte_count) :
		       0;
}

int kvpull_scheduler_step_build(struct kvpull_scheduler *scheduler, void *bytes,
				size_t capacity, size_t *byte_count,
				uint64_t now_ns)
{
	if (!scheduler->worker)
		return step_build(scheduler, bytes, capacity, byte_count,
				  now_ns);
	*byte_count = 0;
	return kvpull_scheduler_say(scheduler, now_ns);
}

/*
 * A header of a worker that we do not know: the message must bring its RANK.
 * 0, or KVPULL_EAGAIN: it is of a replaced worker, or of one that follows
 * another half, or says nothing of itself. In place of one that we know it must
 * follow us: what a dead one said before it heard any half may come late. It
 * hears us now, and says its RANK again.
 */
static int learn_from_results(struct kvpull_scheduler *scheduler,
			      const struct kvpull_result_header *header,
			      struct kvpull_wire_reader reader, uint64_t now_ns)
{
	struct kvpull_result result;
	uint32_t i;

	if (!header->step_incarnation &&
	    scheduler->ranks[header->rank].info.incarnation) {
		kvpull_outbox_speak(&scheduler->outbox, 0, now_ns);
		return KVPULL_EAGAIN;
	}
	if (header->step_incarnation &&
	    header->step_incarnation != scheduler->outbox.incarnation)
		return KVPULL_EAGAIN;
	for (i = 0; i < header->record_count; i++) {
		if (kvpull_step_get_result(&reader, &result) != 0)
			return KVPULL_EINVAL;
		if (result.kind == KVPULL_RESULT_RANK &&
		    result.rank.incarnation == header->incarnation &&
		    result.rank.stage.rank == header->rank)
			return learn_rank(scheduler, &result.rank);
	}
	return KVPULL_EAGAIN;
}

static void apply_result(struct kvpull_scheduler *scheduler,
			 const struct kvpull_result_header *header,
			 const struct kvpull_result *result, uint64_t now_ns)
{
	struct kvpull_scheduler_request *request;
	uint32_t ended = 0;
	int code = 0;

	switch (result->kind) {
	case KVPULL_RESULT_RANK:
		/* A worker speaks for itself only. */
		code = KVPULL_EINVAL;
		if (result->rank.incarnation == header->incarnation &&
		    result->rank.stage.rank == header->rank)
			code = learn_rank(scheduler, &result->rank);
		if (code)
			scheduler->counts.results_bad++;
		return;
	case KVPULL_RESULT_HOLD_ENDED:
		code = kvpull_slots_report(&scheduler->slots, header->rank,
					   result, now_ns);
		break;
	case KVPULL_RESULT_PULL_ENDED:
		request = kvpull_scheduler_find(scheduler, result->key);
		code = KVPULL_ENOKEY;
		if (request)
			code = kvpull_demand_report(
				&scheduler->demand, &request->user,
				header->rank, result, &ended);
		if (ended)
			kvpull_scheduler_pull_ended(scheduler, request);
		break;
	}
	if (code)
		scheduler->counts.unknown_keys++;
}

/* The header fits a worker that we know, or come to know by it. */
static int admit(struct kvpull_scheduler *scheduler,
		 const struct kvpull_result_header *header,
		 struct kvpull_wire_reader reader, uint64_t now_ns)
{
	if (header->rank >= scheduler->rank_count)
		return KVPULL_EINVAL;
	if (header->incarnation ==
	    scheduler->ranks[header->rank].info.incarnation)
		return 0;
	return learn_from_results(scheduler, header, reader, now_ns);
}

int kvpull_scheduler_result_take(struct kvpull_scheduler *scheduler,
				 const void *bytes, size_t byte_count,
				 uint64_t now_ns)
{
	struct kvpull_wire_reader reader = { bytes, byte_count, 0, 0 };
	struct kvpull_result_header header;
	struct kvpull_result result;
	uint32_t skip = 0;
	uint32_t i;
	int code;

	kvpull_scheduler_tick(scheduler, now_ns);
	code = kvpull_step_check_result(bytes, byte_count);
	if (!code)
		code = kvpull_step_get_result_header(&reader, &header);
	if (!code)
		code = admit(scheduler, &header, reader, now_ns);
	if (code == KVPULL_EAGAIN) {
		scheduler->counts.results_replayed++;
		return 0;
	}
	if (!code)
		code = kvpull_outbox_take(&scheduler->outbox, &header, now_ns,
					  &skip);
	if (code == KVPULL_EAGAIN)
		return 0; /* the worker says it again */
	if (code) {
		scheduler->counts.results_bad++;
		return code;
	}
	scheduler->counts.results_replayed += skip;
	for (i = 0; i < header.record_count; i++) {
		if (kvpull_step_get_result(&reader, &result) != 0)
			return KVPULL_EINVAL;
		if (i >= skip)
			apply_result(scheduler, &header, &result, now_ns);
	}
	return 0;
}

static int owes(const struct kvpull_scheduler *scheduler)
{
	return scheduler->owing.count || scheduler->slots.ending.count ||
	       scheduler->demand.releasing.count ||
	       scheduler->demand.stranger_serial;
}

int kvpull_scheduler_has_pending(struct kvpull_scheduler *scheduler,
				 uint64_t now_ns)
{
	const uint64_t silence_ns =
		scheduler->config.hold_max_ms * KVPULL_NS_PER_MS + SILENCE_NS;
	int bits = 0;

	kvpull_scheduler_tick(scheduler, now_ns);
	kvpull_outbox_tick(&scheduler->outbox, now_ns);
	keep_alive(scheduler, now_ns);
	if (kvpull_slots_are_old(&scheduler->slots, silence_ns, now_ns))
		return KVPULL_ERANK;
	if (kvpull_outbox_has_unsent(&scheduler->outbox) ||
	    scheduler->outbox.acks_wanted ||
	    (owes(scheduler) && kvpull_outbox_has_room(&scheduler->outbox)))
		bits |= (int)KVPULL_PENDING_STEP;
	if (scheduler->slots.live.count)
		bits |= (int)KVPULL_PENDING_HOLDS;
	if (scheduler->demand.pull_count)
		bits |= (int)KVPULL_PENDING_PULLS;
	return bits;
}

int kvpull_scheduler_reset(struct kvpull_scheduler *scheduler, uint32_t flags,
			   uint64_t now_ns)
{
	if (flags &
	    ~(KVPULL_RESET_FORGET | KVPULL_RESET_REVOKE | KVPULL_RESET_CLEARED))
		return KVPULL_EINVAL;
	kvpull_scheduler_tick(scheduler, now_ns);
	if (flags & KVPULL_RESET_CLEARED)
		kvpull_suspects_clear(&scheduler->suspects);
	if (flags & KVPULL_RESET_REVOKE)
		kvpull_slots_end_all(&scheduler->slots, KVPULL_END_REVOKED);
	if (flags & KVPULL_RESET_FORGET) {
		kvpull_families_forget(&scheduler->families);
		kvpull_demand_forget(&scheduler->demand);
	}
	return 0;
}

int kvpull_scheduler_drain(struct kvpull_scheduler *scheduler, uint32_t on)
{
	scheduler->draining = on != 0;
	return (int)scheduler->slots.live.count;
}

#define FROM_OWN(member) scheduler->counts.member
#define FROM_SLOTS(member) scheduler->slots.member
#define FROM_FAMILIES(member) scheduler->families.member
#define FROM_DEMAND(member) scheduler->demand.member
#define FROM_OUTBOX(member) scheduler->outbox.member
#define COPY(name, kind, from, help) counts->name = FROM_##from;

void kvpull_scheduler_counts(struct kvpull_scheduler *scheduler,
			     union kvpull_scheduler_counts *counts)
{
	KVPULL_SCHEDULER_COUNTERS(COPY)
}
