/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, progress side: what this thread shows in the status file, and
 * what it logs of claims and of pulls that failed; and its peers, for peers(),
 * which another thread calls. Rows are written by this thread alone.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/device_thread.h"
#include "base/params.h"
#include "plugin/progress/progress_state.h"

#define FAILURES_NS KVPULL_NS_PER_S
#define PHASE_BYTES 64u

_Static_assert((uint32_t)KVPULL_PEER_CONNECTING ==
			       KVPULL_SHOWN_PEER_CONNECTING &&
		       (uint32_t)KVPULL_PEER_GREETED ==
			       KVPULL_SHOWN_PEER_GREETED &&
		       (uint32_t)KVPULL_PEER_UP == KVPULL_SHOWN_PEER_UP &&
		       (uint32_t)KVPULL_PEER_WAIT == KVPULL_SHOWN_PEER_WAIT &&
		       (uint32_t)KVPULL_PEER_GONE == KVPULL_SHOWN_PEER_GONE,
	       "a peer's state is shown as it is");

/* Of a request; who: a producer rank's incarnation, or a consumer's instance. */
static void note(struct kvpull_progress *progress, enum kvpull_status_what what,
		 uint32_t slot, uint64_t generation, uint64_t who)
{
	const struct kvpull_status_note made = {
		.at_ns = progress->run_ns,
		.generation = generation,
		.who = who,
		.slot = slot,
		.what = what,
	};

	kvpull_status_note(&progress->facts->status->progress, &made);
}

void kvpull_show_consumer(struct kvpull_progress *progress, uint32_t index,
			  uint32_t uid)
{
	const struct kvpull_consumer *consumer =
		&progress->handover->consumers[index];
	struct kvpull_status_consumer *row =
		&progress->facts->status->consumers[index];

	kvpull_status_set(&row->state, KVPULL_SHOWN_NONE);
	kvpull_status_set(&row->instance, consumer->instance_id);
	kvpull_status_set(&row->incarnation, consumer->incarnation);
	kvpull_status_set(&row->since_ns, progress->run_ns);
	row->pid = consumer->pid;
	row->uid = uid;
	row->rank = consumer->rank;
	row->rank_count = consumer->rank_count;
	kvpull_status_text(
		row->route, sizeof(row->route),
		progress->callers.all[index].route->transport->ops->name);
	kvpull_status_text(row->engine_id, sizeof(row->engine_id),
			   consumer->engine_id);
	kvpull_status_set(&row->state, KVPULL_SHOWN_HERE);
	note(progress, KVPULL_DID_JOIN, index, 0, consumer->instance_id);
}

void kvpull_show_consumer_gone(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_status_consumer *row =
		&progress->facts->status->consumers[index];

	kvpull_status_set(&row->state, KVPULL_SHOWN_GONE);
	kvpull_status_set(&row->since_ns, progress->run_ns);
	note(progress, KVPULL_DID_LEAVE, index, 0,
	     kvpull_status_get(&row->instance));
}

/* Tell a peer's row, whatever changed. */
static void show_peer(struct kvpull_progress *progress, uint32_t index)
{
	const struct kvpull_remote *remote = &progress->remotes.all[index];
	struct kvpull_status_peer *row = &progress->facts->status->peers[index];

	if (kvpull_status_get(&row->incarnation) != remote->incarnation) {
		kvpull_status_peer_new(row,
				       remote->peer.route->transport->ops->name,
				       remote->peer.address, remote->peer.why);
		kvpull_status_set(&row->incarnation, remote->incarnation);
	}
	kvpull_status_set(&row->state, remote->peer.state);
	kvpull_status_set(&row->error, remote->peer.code);
	kvpull_status_set(&row->retries, remote->peer.state == KVPULL_PEER_UP ?
						 0 :
						 remote->peer.retry.attempts);
	kvpull_status_set(&row->claims, remote->claim_count);
}

void kvpull_show_peer_why(struct kvpull_progress *progress, uint32_t index)
{
	const struct kvpull_remote *remote = &progress->remotes.all[index];
	struct kvpull_status_peer *row = &progress->facts->status->peers[index];

	if (kvpull_status_get(&row->incarnation) == remote->incarnation)
		kvpull_status_text(row->why, sizeof(row->why),
				   remote->peer.why);
}

void kvpull_show_peer_up(struct kvpull_progress *progress, uint32_t index)
{
	const struct kvpull_remote *remote = &progress->remotes.all[index];
	struct kvpull_status_peer *row = &progress->facts->status->peers[index];

	show_peer(progress, index);
	kvpull_status_set(&row->up_ns, progress->run_ns);
	row->pid = progress->scratch.welcome->pid;
	row->rank = remote->stage.rank;
	kvpull_status_text(row->engine_id, sizeof(row->engine_id),
			   progress->scratch.welcome->engine_id);
	note(progress, KVPULL_DID_UP, index, 0, remote->incarnation);
}

void kvpull_show_peer_down(struct kvpull_progress *progress, uint32_t index,
			   int32_t code)
{
	const struct kvpull_status_note made = {
		.at_ns = progress->run_ns,
		.who = progress->remotes.all[index].incarnation,
		.slot = index,
		.what = KVPULL_DID_DOWN,
		.arg = -code,
	};

	kvpull_status_note(&progress->facts->status->progress, &made);
}

void kvpull_show_claim(struct kvpull_progress *progress,
		       const struct kvpull_claim *claim)
{
	const struct kvpull_claim_order *order = claim->order;
	uint32_t at;

	for (at = 0; at < order->rank_count; at++)
		note(progress, KVPULL_DID_CLAIM_TICKET, order->slot,
		     order->generation, order->ranks[at].incarnation);
	if (progress->log->level >= KVPULL_LOG_DEBUG)
		kvpull_debug(
			progress->log,
			"ticket claimed for request %s: slot %u generation %" PRIu64
			" of %016" PRIx64 ", %u ranks",
			kvpull_log_label(order->label), order->slot,
			order->generation, order->ranks[0].incarnation,
			order->rank_count);
}

void kvpull_show_release(struct kvpull_progress *progress,
			 const struct kvpull_claim *claim,
			 const struct kvpull_claim_rank *rank)
{
	const struct kvpull_claim_order *order = claim->order;

	note(progress, KVPULL_DID_RELEASE_TICKET, order->slot,
	     order->generation, order->ranks[rank - claim->ranks].incarnation);
}

static void pull_note(struct kvpull_progress *progress, uint32_t index,
		      enum kvpull_status_what what, uint64_t at_ns)
{
	const struct kvpull_claim *claim = progress->pulls[index].claim;
	const struct kvpull_status_note made = {
		.at_ns = at_ns,
		.generation = claim ? claim->order->generation : 0,
		.who = claim ? claim->order->ranks[0].incarnation : 0,
		.slot = claim ? claim->order->slot : 0,
		.what = what,
		.arg = -progress->reads.requests[index].code,
	};

	kvpull_status_note(&progress->facts->status->progress, &made);
}

void kvpull_show_pull(struct kvpull_progress *progress, uint32_t index)
{
	const struct kvpull_pull *pull = &progress->pulls[index];
	const struct kvpull_claim *claim = pull->claim;
	struct kvpull_status_pull *row = &progress->facts->status->pulls[index];
	const uint32_t blocks = pull->order->group_first[KVPULL_GROUPS_MAX];

	if (!kvpull_status_is_on(&progress->facts->status->progress))
		return;
	kvpull_status_set(&row->key, pull->order->key);
	kvpull_status_set(&row->generation, claim->order->generation);
	kvpull_status_set(&row->started_ns, pull->order->started_ns);
	kvpull_status_set(&row->slot_blocks,
			  claim->order->slot | (uint64_t)blocks << 32);
	kvpull_show_pull_state(progress, index, KVPULL_DID_NOTHING);
	kvpull_status_label(row->label, pull->order->label);
	pull_note(progress, index, KVPULL_DID_PULL, pull->order->started_ns);
}

void kvpull_show_pull_state(struct kvpull_progress *progress, uint32_t index,
			    enum kvpull_status_what what)
{
	const struct kvpull_claim *claim = progress->pulls[index].claim;
	struct kvpull_status_pull *row = &progress->facts->status->pulls[index];

	if (!kvpull_status_is_on(&progress->facts->status->progress))
		return;
	kvpull_status_set(&row->state,
			  progress->reads.requests[index].state |
				  (uint64_t)claim->ranks[0].peer << 32);
	if (what != KVPULL_DID_NOTHING)
		pull_note(progress, index, what, progress->run_ns);
}

/* Whose fault it may be: a peer that is not there, else the first. */
static uint32_t peer_of(const struct kvpull_progress *progress,
			const struct kvpull_claim *claim)
{
	uint32_t at;

	for (at = 0; at < claim->order->rank_count; at++) {
		const uint32_t peer = claim->ranks[at].peer;

		if (peer != KVPULL_NONE &&
		    progress->remotes.all[peer].peer.state != KVPULL_PEER_UP)
			return peer;
	}
	return claim->ranks[0].peer;
}

static const char *phase_of(const struct kvpull_progress *progress,
			    const struct kvpull_pull *pull, uint32_t peer,
			    char text[PHASE_BYTES])
{
	const struct kvpull_pull_phases *phases = &pull->phases;
	const struct kvpull_remote *remote =
		peer == KVPULL_NONE ? NULL : &progress->remotes.all[peer];

	if (pull->order->unstarted)
		return "for start_loads(), which this engine has not called";
	if (!phases->connected_ns) {
		if (!remote || !remote->peer.code)
			return "to connect";
		(void)snprintf(text, PHASE_BYTES, "to connect (last try: %s)",
			       kvpull_error_name(remote->peer.code));
		return text;
	}
	if (!phases->asked_ns)
		return "for P to write";
	return phases->came_ns ? "for the check" : "for the bytes";
}

static void failures_log(struct kvpull_progress *progress)
{
	struct kvpull_failures *failures = &progress->failures;

	if (failures->more)
		kvpull_warn(progress->log,
			    "%u more pulls from %s failed likewise: %s",
			    failures->more, failures->producer,
			    kvpull_error_name(failures->code));
	failures->more = 0;
}

void kvpull_show_failures(struct kvpull_progress *progress, uint64_t now_ns)
{
	const struct kvpull_failures *failures = &progress->failures;

	if (now_ns >= failures->until_ns)
		failures_log(progress);
	else if (failures->more)
		kvpull_due_by(&progress->timer_ns, failures->until_ns);
}

void kvpull_show_device(struct kvpull_progress *progress)
{
	const struct kvpull_device_thread *const thread =
		kvpull_routes_device(&progress->routes);
	struct kvpull_status_header *const header =
		progress->facts->status->header;
	uint64_t words[2];

	if (!thread)
		return;
	_Static_assert(sizeof(words) == KVPULL_DEVICE_UUID_BYTES, "a UUID");
	memcpy(words, kvpull_device_thread_device(thread)->uuid, sizeof(words));
	kvpull_status_set(&header->device[0], words[0]);
	kvpull_status_set(&header->device[1], words[1]);
}

void kvpull_show_mapped(struct kvpull_progress *progress)
{
	const struct kvpull_device_thread *const thread =
		kvpull_routes_device(&progress->routes);
	const struct kvpull_device_mapped *mapped;

	if (!thread)
		return;
	mapped = kvpull_device_thread_mapped(thread);
	kvpull_status_set(&progress->counts->device_mapped_bytes,
			  mapped->bytes);
	kvpull_status_set(&progress->counts->device_stores, mapped->stores);
}

/* 1: the last line on a pull that failed says it of this one, too. */
static int is_likewise(struct kvpull_progress *progress,
		       const struct kvpull_claim *claim, int32_t code,
		       uint64_t now_ns, const struct kvpull_status_peer *row)
{
	struct kvpull_failures *failures = &progress->failures;
	const uint64_t incarnation = claim->order->ranks[0].incarnation;

	if (failures->incarnation == incarnation && failures->code == code &&
	    now_ns < failures->until_ns) {
		failures->more++;
		return 1;
	}
	failures_log(progress);
	failures->incarnation = incarnation;
	failures->code = code;
	failures->until_ns = now_ns + FAILURES_NS;
	(void)snprintf(failures->producer, sizeof(failures->producer), "%s %s",
		       row->engine_id[0] ? row->engine_id : "peer",
		       row->address);
	return 0;
}

/* One line a pull that failed, and what is needed to find its other side. */
static void failure_log(struct kvpull_progress *progress, uint32_t index,
			uint64_t ended_ns)
{
	const struct kvpull_pull *pull = &progress->pulls[index];
	const struct kvpull_pull_order *order = pull->order;
	const int32_t code = progress->reads.requests[index].code;
	const struct kvpull_claim *claim = progress->pulls[index].claim;
	const uint32_t peer = claim ? peer_of(progress, claim) : KVPULL_NONE;
	const struct kvpull_status_peer *row =
		peer == KVPULL_NONE ? NULL :
				      &progress->facts->status->peers[peer];
	char phase[PHASE_BYTES];
	const int is_debug =
		code == KVPULL_EABORTED ||
		(row && is_likewise(progress, claim, code, ended_ns, row));

	kvpull_log(
		progress->log, is_debug ? KVPULL_LOG_DEBUG : KVPULL_LOG_WARN,
		"pull of request %s key %" PRIu64 " failed after %" PRIu64
		" ms, waiting %s: %s: %s; peer %s pid %u by %s %s, slot %u generation %" PRIu64
		" of %016" PRIx64,
		kvpull_log_label(order->label), order->key,
		(ended_ns - order->started_ns) / KVPULL_NS_PER_MS,
		phase_of(progress, pull, peer, phase), kvpull_error_name(code),
		kvpull_error_text(code),
		row && row->engine_id[0] ? row->engine_id : "unknown",
		row ? row->pid : 0, row ? row->route : "no route",
		row ? row->address : "", claim ? claim->order->slot : 0,
		claim ? claim->order->generation : 0,
		claim ? claim->order->ranks[0].incarnation : 0);
}

static void parts_count(struct kvpull_progress *progress,
			const struct kvpull_reads_request *request)
{
	uint32_t at;

	for (at = 0; at < request->part_count; at++) {
		const struct kvpull_reads_part *part =
			&progress->reads.parts[request->parts[at]];
		struct kvpull_status_peer *row =
			&progress->facts->status->peers[part->peer];

		kvpull_status_add(request->code ? &row->failures : &row->pulls,
				  1);
		if (!request->code)
			kvpull_status_add(&row->bytes, part->read.byte_count);
	}
}

void kvpull_show_pull_end(struct kvpull_progress *progress, uint32_t index,
			  uint64_t ended_ns)
{
	const struct kvpull_pull *pull = &progress->pulls[index];
	const struct kvpull_claim *claim = pull->claim;
	const int32_t code = progress->reads.requests[index].code;
	const struct kvpull_status_side *side =
		&progress->facts->status->progress;
	struct kvpull_status_pull *row = &progress->facts->status->pulls[index];

	pull_note(progress, index, code ? KVPULL_DID_FAILED : KVPULL_DID_LOADED,
		  ended_ns);
	kvpull_status_set(&row->state, kvpull_status_get(&row->state) &
					       ~(uint64_t)UINT32_MAX);
	parts_count(progress, &progress->reads.requests[index]);
	if (code) {
		kvpull_status_failed(side, code);
		failure_log(progress, index, ended_ns);
		return;
	}
	kvpull_status_took(side, KVPULL_TIMES_PULL,
			   ended_ns - pull->order->started_ns, 1);
	if (claim)
		kvpull_status_took(
			side, KVPULL_TIMES_FIRST,
			(pull->first_ns ? pull->first_ns : ended_ns) -
				claim->since_ns,
			1);
	kvpull_status_took(side, KVPULL_TIMES_CHECK,
			   ended_ns - pull->phases.came_ns, 1);
}

/* Under a lock: once a run, and only when something is due. */
void kvpull_progress_peers_tell(struct kvpull_progress *progress)
{
	struct kvpull_told *told = &progress->told;
	uint32_t index;

	(void)pthread_mutex_lock(&told->lock);
	told->count = 0;
	for (index = 0; index < progress->remotes.end; index++) {
		const struct kvpull_remote *remote =
			&progress->remotes.all[index];
		struct kvpull_peer_info *info = &told->peers[told->count];

		if (remote->peer.state == KVPULL_PEER_FREE)
			continue;
		told->count++;
		info->incarnation = remote->incarnation;
		(void)snprintf(info->route, sizeof(info->route), "%s",
			       remote->peer.route->transport->ops->name);
		info->state_error = remote->peer.state == KVPULL_PEER_UP ? 0 :
				    remote->peer.code ? remote->peer.code :
							KVPULL_EAGAIN;
		show_peer(progress, index);
		memcpy(info->address, remote->peer.address,
		       sizeof(info->address));
		(void)snprintf(info->why, sizeof(info->why), "%s",
			       remote->peer.why);
	}
	(void)pthread_mutex_unlock(&told->lock);
}
