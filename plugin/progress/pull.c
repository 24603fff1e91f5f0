/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress side of a consumer: a pull from its command to its outcome.
 *
 * plugin/reads/reads.h has its states. A request of that engine is a pull, by the
 * same index, and a part reads from one producer rank. Here is which ranks must be
 * up, what is read of each, how its entry is judged, and what follows the end.
 */
#include "plugin/progress/progress_state.h"
#include "plugin/reads/judge.h"

#define CUT_ATTEMPTS_MAX 3u /* connects to a peer that was cut on purpose */

/* Nothing writes into its blocks: the engine may know. */
static void pull_ended(void *own, uint32_t index)
{
	struct kvpull_progress *progress = own;
	struct kvpull_pull *pull = &progress->pulls[index];
	const int32_t code = progress->reads.requests[index].code;
	const int said = !code || code == KVPULL_EEXPIRED;

	/* The run's time is from before the copy that may have run in it. */
	progress->handover->outcomes[index] = (struct kvpull_pull_outcome){
		.phases = pull->phases,
		.bytes = pull->bytes,
		.ended_ns = kvpull_facts_now(progress->facts),
		.code = code,
	};
	kvpull_show_pull_end(progress, index,
			     progress->handover->outcomes[index].ended_ns);
	if (pull->claim) {
		if (said && pull->order->flags & KVPULL_FLAG_RELEASE)
			kvpull_claim_release(progress, pull->order->claim);
		kvpull_claim_unuse(progress, pull->order->claim);
	}
	/* From here the slot is the engine's. */
	pull->order = NULL;
	kvpull_progress_tell(progress, KVPULL_FROM_PULL, index);
}

/* The next connection reads what is missing. */
static void pull_again(void *own, uint32_t index)
{
	struct kvpull_progress *progress = own;
	struct kvpull_pull *pull = &progress->pulls[index];
	const struct kvpull_reads_request *request =
		&progress->reads.requests[index];
	uint32_t at;

	for (at = 0; at < request->part_count; at++) {
		const struct kvpull_reads_part *part =
			&progress->reads.parts[request->parts[at]];

		pull->done_ranks |= UINT64_C(1) << part->rank;
		pull->done[part->rank] = (struct kvpull_part_done){
			.bytes = part->read.done_bytes,
			.digest = part->digest,
		};
	}
	pull->phases = (struct kvpull_pull_phases){
		.begun_ns = pull->phases.begun_ns,
	};
}

/*
 * A first error of a peer fails the pull, for it may be dead. One that was cut
 * on purpose lived a moment ago: it is called more than once.
 */
static int peer_fails(const struct kvpull_remote *remote)
{
	const struct kvpull_peer *peer = &remote->peer;
	const int was_cut = remote->life && remote->cut_life == remote->life;

	if (peer->state != KVPULL_PEER_WAIT)
		return peer->state == KVPULL_PEER_GONE;
	if (peer->code == KVPULL_EAUTH || peer->code == KVPULL_EREJECTED)
		return 1;
	return peer->code == KVPULL_EPEER &&
	       (!was_cut || peer->retry.attempts >= CUT_ATTEMPTS_MAX);
}

/*
 * Do the ranks' parts cover every local byte once? before: the rank before that one;
 * NULL: it is the first, or another one is still awaited.
 */
static int ranks_agree(const struct kvpull_progress *progress,
		       const struct kvpull_claim *claim,
		       const struct kvpull_remote *before,
		       const struct kvpull_remote *remote, uint32_t at)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	if (remote->stage.rank != at ||
	    remote->stage.rank_count != claim->order->rank_count)
		return 0;
	if (!before ||
	    !kvpull_stages_compare(&before->stage, &remote->stage, &detail))
		return 1;
	kvpull_warn(
		progress->log,
		"request %s is not pulled from %s, whose ranks do not fit: %s",
		kvpull_log_label(claim->order->label), remote->peer.address,
		detail.message);
	return 0;
}

/* The engine of reads asks: are all ranks of the ticket connected? */
static int peers_ready(void *own, uint32_t index)
{
	const struct kvpull_progress *progress = own;
	const struct kvpull_claim *claim = progress->pulls[index].claim;
	const struct kvpull_remote *before = NULL;
	int code = 0;
	uint32_t at;

	for (at = 0; at < claim->order->rank_count; at++) {
		const struct kvpull_claim_rank *rank = &claim->ranks[at];
		const struct kvpull_remote *remote;

		if (rank->peer == KVPULL_NONE) {
			if (rank->state == KVPULL_RANK_LOST)
				return KVPULL_EROUTE;
			code = KVPULL_EAGAIN;
			continue;
		}
		remote = &progress->remotes.all[rank->peer];
		if (remote->incarnation != claim->order->ranks[at].incarnation)
			return KVPULL_EPEER;
		if (peer_fails(remote))
			return remote->peer.code;
		if (rank->state == KVPULL_RANK_RELEASED) /* given back */
			return KVPULL_EREJECTED;
		/* One that is closed to make room is called again. */
		if (remote->peer.state != KVPULL_PEER_UP || remote->closing_ns)
			code = KVPULL_EAGAIN;
		else if (!ranks_agree(progress, claim, before, remote, at))
			return KVPULL_EPROTO;
		before = code ? NULL : remote;
	}
	return code;
}

/* Was its connection cut on purpose (KVPULL_EABORTED), or lost (KVPULL_EPEER)? */
static int part_lost(void *own, const struct kvpull_reads_part *part)
{
	const struct kvpull_progress *progress = own;
	const struct kvpull_remote *remote = &progress->remotes.all[part->peer];

	if (remote->peer.state == KVPULL_PEER_UP && remote->life == part->life)
		return 0;
	/* A pull that waits for another rank may have missed one cut, or several. */
	if (remote->cut_life == part->life || remote->fault_life < part->life)
		return KVPULL_EABORTED;
	return KVPULL_EPEER;
}

/*
 * Bytes that an earlier connection to the same incarnation read of it. Reads behind
 * a mark land in memory of a device, and begin again: that connection may have ended
 * before the flush.
 */
static uint64_t part_kept(const struct kvpull_pull *pull,
			  const struct kvpull_reads_part *part)
{
	const struct kvpull_part_done *done = &pull->done[part->rank];

	if (part->read.after || !(pull->done_ranks >> part->rank & 1) ||
	    done->digest != part->digest || done->bytes > part->read.byte_count)
		return 0;
	return done->bytes;
}

/* The part that reads from one rank; none if nothing is needed from it. */
static int part_make(struct kvpull_progress *progress, uint32_t index,
		     uint32_t rank_index)
{
	struct kvpull_pull *pull = &progress->pulls[index];
	const struct kvpull_claim *claim = pull->claim;
	const uint32_t peer = claim->ranks[rank_index].peer;
	const struct kvpull_remote *remote = &progress->remotes.all[peer];
	struct kvpull_reads_part *part;
	struct kvpull_read *read;

	if (!remote->plan.strip_count)
		return 0;
	part = kvpull_reads_part_add(&progress->reads, index);
	part->transport = remote->peer.route->transport;
	part->handle = remote->peer.handle;
	part->rank = rank_index;
	part->peer = peer;
	part->slot = claim->order->slot;
	part->life = remote->life;
	part->digest = remote->plan.digest;
	read = &part->read;
	read->strips = remote->plan.strips;
	read->strip_count = remote->plan.strip_count;
	read->remote_ids = pull->order->remote_ids;
	read->local_ids = pull->order->local_ids;
	read->group_first = pull->order->group_first;
	read->slots = &part->slot;
	read->entries = &part->entry;
	read->slot_count = 1;
	read->generation = claim->order->generation;
	read->after = pull->order->after;
	read->tag = claim->order->ranks[rank_index].tag;
	if (kvpull_plan_check_ids(&remote->plan, read, &read->byte_count))
		return KVPULL_ETRUNCATED;
	read->done_bytes = part_kept(pull, part);
	pull->bytes += read->byte_count;
	return 0;
}

static int parts_make(void *own, uint32_t index)
{
	struct kvpull_progress *progress = own;
	const struct kvpull_claim *claim = progress->pulls[index].claim;
	uint32_t rank;
	int code = 0;

	progress->pulls[index].bytes = 0;
	for (rank = 0; !code && rank < claim->order->rank_count; rank++)
		code = part_make(progress, index, rank);
	return code;
}

/* Is the ticket live at this rank, and written if it must be? */
static int part_judge(void *own, const struct kvpull_reads_part *part,
		      enum kvpull_reads_state phase)
{
	const struct kvpull_progress *progress = own;
	const struct kvpull_claim *claim = progress->pulls[part->request].claim;

	if (phase == KVPULL_READS_DATA)
		return 0;
	return kvpull_guard_judge(
		phase == KVPULL_READS_WRITTEN ? KVPULL_GUARD_WRITTEN :
						KVPULL_GUARD_HOLD,
		&part->entry, claim->order->ranks[part->rank].incarnation,
		claim->order->generation);
}

static void phase_entered(void *own, uint32_t index)
{
	struct kvpull_progress *progress = own;
	struct kvpull_pull_phases *phases = &progress->pulls[index].phases;
	const enum kvpull_reads_state state =
		progress->reads.requests[index].state;
	const uint64_t now_ns = kvpull_facts_now(progress->facts);

	if (!phases->connected_ns)
		phases->connected_ns = now_ns;
	if (state == KVPULL_READS_DATA)
		phases->asked_ns = now_ns;
	if (state == KVPULL_READS_GUARDS)
		phases->came_ns = now_ns;
	kvpull_show_pull_state(progress, index,
			       state == KVPULL_READS_DATA ? KVPULL_DID_READ :
			       state == KVPULL_READS_GUARDS ?
							    KVPULL_DID_CAME :
							    KVPULL_DID_NOTHING);
}

const struct kvpull_reads_owner kvpull_pull_owner = {
	.ready = peers_ready,
	.parts_make = parts_make,
	.lost = part_lost,
	.entered = phase_entered,
	.judge = part_judge,
	.again = pull_again,
	.ended = pull_ended,
};

void kvpull_pull_new(struct kvpull_progress *progress, uint32_t index,
		     uint32_t serial)
{
	static const enum kvpull_reads_state phases[] = {
		KVPULL_READS_WRITTEN, /* left out if the hold says it is */
		KVPULL_READS_DATA,
		KVPULL_READS_GUARDS,
		KVPULL_READS_FREE,
	};
	struct kvpull_pull *pull = &progress->pulls[index];
	const struct kvpull_pull_order *order =
		&progress->handover->pulls[index];
	const struct kvpull_claim *claim = &progress->claims.all[order->claim];

	pull->order = order;
	pull->serial = serial;
	pull->bytes = pull->first_ns = pull->done_ranks = 0;
	pull->claim = NULL;
	if (claim->order && claim->order->serial == order->claim_serial &&
	    !claim->releasing)
		pull->claim = claim;
	pull->phases = (struct kvpull_pull_phases){
		.begun_ns = kvpull_facts_now(progress->facts),
	};
	kvpull_reads_begin(&progress->reads, index,
			   phases + !(order->flags & KVPULL_FLAG_READY),
			   pull->claim ? claim->order->rank_count : 0,
			   order->deadline_ns);
	progress->reads.requests[index].priority = order->priority;
	if (!pull->claim) {
		kvpull_reads_fail(&progress->reads, index, KVPULL_EEXPIRED);
		return;
	}
	kvpull_claim_use(progress, order->claim, order->priority);
	kvpull_show_pull(progress, index);
	if (progress->run_ns >= order->deadline_ns)
		kvpull_reads_fail(&progress->reads, index, KVPULL_EDEADLINE);
	else
		kvpull_reads_step(&progress->reads, index);
}

void kvpull_pull_event(struct kvpull_progress *progress,
		       const struct kvpull_event *event)
{
	struct kvpull_pull *pull =
		&progress->pulls[progress->reads.parts[event->read->index]
					 .request];

	if (event->kind == KVPULL_EVENT_READ_DONE && !pull->first_ns)
		pull->first_ns = progress->run_ns;
	kvpull_reads_event(&progress->reads, event);
}
