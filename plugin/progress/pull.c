/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress side of a consumer: a pull from its command to its outcome.
 *
 * state    goes on when                              to
 * CONNECT  every rank of the ticket is connected     WRITTEN, or READ
 *          a rank is gone or away                    end (its error)
 * WRITTEN  ready[slot] says so at each peer read     READ
 * READ     all bytes came from all peers             CHECK
 * CHECK    every peer's entry is live                end (0)
 *          one is not                                end (EEXPIRED)
 * DRAIN    no write into the blocks can land any more  end (its error)
 * AGAIN    likewise                                  CONNECT, to read the rest
 *
 * An error, an abort and the deadline lead to DRAIN from anywhere. So a pull
 * ends once, and when it ends, nothing writes into its blocks any more. An
 * entry is read only after the data of *all* peers of the pull came.
 * A connection that a route cuts to end one pull's reads is no fault of its
 * peer: the others go to AGAIN, and their deadlines bound how often.
 */
#include <inttypes.h>

#include "plugin/progress/progress_state.h"
#include "plugin/reads/judge.h"

#define DEADLINES_NS KVPULL_NS_PER_MS /* how often deadlines are looked at */
#define READY_NS UINT64_C(100000)
#define TURNS_MAX 64u       /* of pulls that waited, in one run */
#define LOOKS_MAX 512u      /* at deadlines, likewise */
#define CUT_ATTEMPTS_MAX 3u /* connects to a peer that was cut on purpose */

enum part_state {
	PART_NEW = 0, /* read not taken by the transport yet */
	PART_READS,
	PART_READ, /* all its bytes are there */
	PART_CHECKS,
	PART_LIVE,
	PART_ENDED /* failed, and quiet */
};

static void wait_leave(struct kvpull_progress *progress, uint32_t index)
{
	kvpull_index_list_remove(&progress->parts_waits, index);
	kvpull_index_list_remove(&progress->again_waits, index);
}

/* Something may change for it. Return: KVPULL_EAGAIN, the step's code. */
static int again_wait(struct kvpull_progress *progress, uint32_t index)
{
	kvpull_index_list_push(&progress->again_waits, index);
	return KVPULL_EAGAIN;
}

static struct kvpull_part *part_of(struct kvpull_progress *progress,
				   const struct kvpull_pull *pull, uint32_t at)
{
	return &progress->parts[pull->parts[at]];
}

static int part_start(const struct kvpull_progress *progress,
		      struct kvpull_part *part, int checks)
{
	const struct kvpull_peer *peer = &progress->remotes[part->peer].peer;
	struct kvpull_transport *transport = peer->route->transport;

	return checks ? transport->ops->check_start(transport, peer->handle,
						    &part->read) :
			transport->ops->read_start(transport, peer->handle,
						   &part->read);
}

static void part_cancel(const struct kvpull_progress *progress,
			struct kvpull_part *part)
{
	const struct kvpull_peer *peer = &progress->remotes[part->peer].peer;
	struct kvpull_transport *transport = peer->route->transport;

	transport->ops->read_cancel(transport, peer->handle, &part->read);
}

static void parts_free(struct kvpull_progress *progress,
		       struct kvpull_pull *pull)
{
	uint32_t at;

	for (at = 0; at < pull->part_count; at++)
		kvpull_index_pool_give(&progress->part_pool, pull->parts[at]);
	pull->part_count = 0;
}

static void live_remove(struct kvpull_progress *progress,
			struct kvpull_pull *pull)
{
	const uint32_t last = progress->live[--progress->live_count];

	progress->live[pull->live_at] = last;
	progress->pulls[last].live_at = pull->live_at;
}

/* Nothing writes into its blocks: the engine may know. */
static void pull_end(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_pull *pull = &progress->pulls[index];
	const int said = !pull->code || pull->code == KVPULL_EEXPIRED;

	kvpull_check(progress->log, !pull->parts_open);
	/* The run's time is from before the copy that may have run in it. */
	progress->handover->outcomes[index] = (struct kvpull_pull_outcome){
		.phases = pull->phases,
		.bytes = pull->bytes,
		.ended_ns = kvpull_facts_now(progress->facts),
		.code = pull->code,
	};
	kvpull_show_pull_end(progress, index,
			     progress->handover->outcomes[index].ended_ns);
	pull->state = KVPULL_PULL_FREE;
	wait_leave(progress, index);
	parts_free(progress, pull);
	live_remove(progress, pull);
	if (pull->uses_claim) {
		if (said && pull->order->flags & KVPULL_FLAG_RELEASE)
			kvpull_claim_release(progress, pull->order->claim);
		kvpull_claim_unuse(progress, pull->order->claim);
	}
	/* From here the slot is the engine's. */
	pull->order = NULL;
	kvpull_progress_tell(progress, KVPULL_FROM_PULL, index);
}

static void pull_fail(struct kvpull_progress *progress, uint32_t index,
		      int32_t code)
{
	struct kvpull_pull *pull = &progress->pulls[index];
	uint32_t at;

	if (pull->state == KVPULL_PULL_DRAIN)
		return;
	pull->code = code;
	pull->state = KVPULL_PULL_DRAIN;
	wait_leave(progress, index);
	for (at = 0; at < pull->part_count; at++) {
		struct kvpull_part *part = part_of(progress, pull, at);

		/* A check writes nothing here, but it must end, too. */
		if (part->state == PART_READS || part->state == PART_CHECKS)
			part_cancel(progress, part);
	}
	if (!pull->parts_open)
		pull_end(progress, index);
}

static void part_keep(struct kvpull_pull *pull, const struct kvpull_part *part)
{
	pull->done_ranks |= UINT64_C(1) << part->rank;
	pull->done[part->rank] = (struct kvpull_part_done){
		.bytes = part->read.done_bytes,
		.digest = part->digest,
	};
}

/* A connection was cut for another pull: what is missing is read by the next. */
static void pull_again(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_pull *pull = &progress->pulls[index];
	uint32_t at;

	pull->state = KVPULL_PULL_AGAIN;
	if (pull->parts_open)
		return;
	for (at = 0; at < pull->part_count; at++)
		part_keep(pull, part_of(progress, pull, at));
	parts_free(progress, pull);
	pull->bytes = 0;
	pull->phases = (struct kvpull_pull_phases){
		.begun_ns = pull->phases.begun_ns,
	};
	pull->state = KVPULL_PULL_CONNECT;
	(void)again_wait(progress, index);
	progress->pulls_dirty = 1;
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

static struct kvpull_claim *claim_of(const struct kvpull_progress *progress,
				     const struct kvpull_pull *pull)
{
	return &progress->claims[pull->order->claim];
}

/* 0: all ranks are connected; KVPULL_EAGAIN: not yet; else the error. */
static int peers_ready(const struct kvpull_progress *progress,
		       const struct kvpull_claim *claim)
{
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
		remote = &progress->remotes[rank->peer];
		if (remote->incarnation != claim->order->ranks[at].incarnation)
			return KVPULL_EPEER;
		if (peer_fails(remote))
			return remote->peer.code;
		if (rank->state == KVPULL_RANK_RELEASED) /* given back */
			return KVPULL_EREJECTED;
		/* One that is closed to make room is called again. */
		if (remote->peer.state != KVPULL_PEER_UP || remote->closing_ns)
			code = KVPULL_EAGAIN;
		/* Else the parts would not cover every local byte. */
		else if (remote->tp_rank != at ||
			 remote->tp_size != claim->order->rank_count)
			return KVPULL_EPROTO;
	}
	return code;
}

/* 0: its connection is up, and still the one that its plan was made for. */
static int part_lost(const struct kvpull_progress *progress,
		     const struct kvpull_part *part)
{
	const struct kvpull_remote *remote = &progress->remotes[part->peer];

	if (remote->peer.state == KVPULL_PEER_UP && remote->life == part->life)
		return 0;
	return kvpull_remote_lost_code(remote, part->life);
}

/* Bytes that an earlier connection to the same incarnation read of it. */
static uint64_t part_kept(const struct kvpull_pull *pull,
			  const struct kvpull_part *part)
{
	const struct kvpull_part_done *done = &pull->done[part->rank];

	if (!(pull->done_ranks >> part->rank & 1) ||
	    done->digest != part->digest || done->bytes > part->read.byte_count)
		return 0;
	return done->bytes;
}

/* The part that reads from one rank; none if nothing is needed from it. */
static int part_make(struct kvpull_progress *progress, uint32_t index,
		     uint32_t rank_index)
{
	struct kvpull_pull *pull = &progress->pulls[index];
	const struct kvpull_claim *claim = claim_of(progress, pull);
	const uint32_t peer = claim->ranks[rank_index].peer;
	const struct kvpull_plan *plan = &progress->remotes[peer].plan;
	const uint32_t at = kvpull_index_pool_peek(&progress->part_pool);
	struct kvpull_part *part;

	if (!plan->strip_count)
		return 0;
	kvpull_check(progress->log, at != KVPULL_NONE);
	part = &progress->parts[at];
	part->read.index = at;
	part->pull = index;
	part->rank = rank_index;
	part->peer = peer;
	part->life = progress->remotes[peer].life;
	part->digest = plan->digest;
	part->state = PART_NEW;
	part->read.strips = plan->strips;
	part->read.strip_count = plan->strip_count;
	part->read.remote_ids = pull->order->remote_ids;
	part->read.local_ids = pull->order->local_ids;
	part->read.group_first = pull->order->group_first;
	part->slot = claim->order->slot;
	part->read.slots = &part->slot;
	part->read.entries = &part->entry;
	part->read.slot_count = 1;
	if (kvpull_plan_check_ids(plan, &part->read, &part->read.byte_count))
		return KVPULL_ETRUNCATED;
	part->read.done_bytes = part_kept(pull, part);
	pull->parts[pull->part_count++] =
		kvpull_index_pool_take(&progress->part_pool);
	return 0;
}

/* The most that it can need of them: 1 if they are there. */
static int has_room(const struct kvpull_progress *progress, uint32_t index)
{
	const struct kvpull_pull *pull = &progress->pulls[index];

	return progress->part_count_max -
		       kvpull_index_pool_used(&progress->part_pool) >=
	       claim_of(progress, pull)->order->rank_count;
}

/* In order, and all at once: pulls that hold some would wait for each other. */
static int parts_make(struct kvpull_progress *progress, uint32_t index)
{
	const struct kvpull_pull *pull = &progress->pulls[index];
	const struct kvpull_claim *claim = claim_of(progress, pull);
	uint32_t rank;
	int code = 0;

	if (!has_room(progress, index) ||
	    (progress->parts_waits.count && progress->parts_turn != index)) {
		kvpull_index_list_push(&progress->parts_waits, index);
		return KVPULL_EAGAIN;
	}
	for (rank = 0; !code && rank < claim->order->rank_count; rank++)
		code = part_make(progress, index, rank);
	return code;
}

/* Entry of the part is there: is the ticket live, and ready if it must be? */
static int part_judge(const struct kvpull_progress *progress,
		      const struct kvpull_pull *pull,
		      const struct kvpull_part *part)
{
	const struct kvpull_claim *claim = claim_of(progress, pull);

	return kvpull_guard_judge(
		pull->state == KVPULL_PULL_WRITTEN ? KVPULL_GUARD_WRITTEN :
						     KVPULL_GUARD_HOLD,
		&part->entry, claim->order->ranks[part->rank].incarnation,
		claim->order->generation);
}

/* Return: 1 if all parts are in the state, 0 if not. */
static int parts_all(struct kvpull_progress *progress,
		     const struct kvpull_pull *pull, uint32_t state)
{
	uint32_t at;

	for (at = 0; at < pull->part_count; at++)
		if (part_of(progress, pull, at)->state != state)
			return 0;
	return 1;
}

static void part_read_all(struct kvpull_part *part)
{
	part->state = PART_READ;
	part->read.done_bytes = part->read.byte_count;
}

static int part_read(struct kvpull_progress *progress, struct kvpull_pull *pull,
		     struct kvpull_part *part)
{
	int code = part_lost(progress, part);

	if (!code)
		code = part->read.done_bytes == part->read.byte_count ?
			       1 :
			       part_start(progress, part, 0);
	if (code < 0)
		return code;
	pull->bytes += part->read.byte_count;
	if (code == 1) {
		part_read_all(part);
		return 0;
	}
	part->state = PART_READS;
	pull->parts_open++;
	return 0;
}

/* Start what is not started; KVPULL_EAGAIN: some has to wait. */
static int parts_read(struct kvpull_progress *progress,
		      struct kvpull_pull *pull)
{
	int again = 0;
	uint32_t at;

	for (at = 0; at < pull->part_count; at++) {
		struct kvpull_part *part = part_of(progress, pull, at);
		int code;

		if (part->state != PART_NEW)
			continue;
		code = part_read(progress, pull, part);
		if (code == KVPULL_EAGAIN)
			again = code;
		else if (code)
			return code;
	}
	return again;
}

/* Read the entries of the parts in state `from`; live ones go to `to`. */
static int parts_check(struct kvpull_progress *progress,
		       struct kvpull_pull *pull, uint32_t from, uint32_t to)
{
	uint32_t at;

	for (at = 0; at < pull->part_count; at++) {
		struct kvpull_part *part = part_of(progress, pull, at);
		int code;

		if (part->state != from)
			continue;
		code = part_lost(progress, part);
		if (!code)
			code = part_start(progress, part, 1);
		if (code < 0)
			return code;
		if (code == 0) {
			part->state = PART_CHECKS;
			pull->parts_open++;
			continue;
		}
		code = part_judge(progress, pull, part);
		if (code)
			return code;
		part->state = to;
	}
	return 0;
}

static int enter(struct kvpull_progress *progress, uint32_t index,
		 enum kvpull_pull_state state, enum kvpull_status_what what)
{
	progress->pulls[index].state = state;
	kvpull_show_pull_state(progress, index, what);
	return 0;
}

static int step_connect(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_pull *pull = &progress->pulls[index];
	int code = peers_ready(progress, claim_of(progress, pull));

	if (code == KVPULL_EAGAIN)
		return again_wait(progress, index);
	if (!code)
		code = parts_make(progress, index);
	if (code)
		return code;
	pull->phases.connected_ns = kvpull_facts_now(progress->facts);
	if (pull->order->flags & KVPULL_FLAG_READY)
		return enter(progress, index, KVPULL_PULL_WRITTEN,
			     KVPULL_DID_NOTHING);
	pull->phases.asked_ns = pull->phases.connected_ns;
	return enter(progress, index, KVPULL_PULL_READ, KVPULL_DID_READ);
}

/* A part that is written waits in PART_LIVE until all are. */
static int step_written(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_pull *pull = &progress->pulls[index];
	int code;
	uint32_t at;

	code = parts_check(progress, pull, PART_NEW, PART_LIVE);
	if (code == KVPULL_EAGAIN) {
		kvpull_progress_timer(
			progress, kvpull_facts_now(progress->facts) + READY_NS);
		progress->pulls_dirty = 1;
		return again_wait(progress, index);
	}
	if (code || !parts_all(progress, pull, PART_LIVE))
		return code ? code : KVPULL_EAGAIN;
	for (at = 0; at < pull->part_count; at++)
		part_of(progress, pull, at)->state = PART_NEW;
	pull->phases.asked_ns = kvpull_facts_now(progress->facts);
	return enter(progress, index, KVPULL_PULL_READ, KVPULL_DID_READ);
}

static int step_read(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_pull *pull = &progress->pulls[index];
	const int code = parts_read(progress, pull);

	if (code == KVPULL_EAGAIN) {
		progress->pulls_dirty = 1;
		return again_wait(progress, index);
	}
	if (code)
		return code;
	if (!parts_all(progress, pull, PART_READ))
		return KVPULL_EAGAIN;
	pull->phases.came_ns = kvpull_facts_now(progress->facts);
	return enter(progress, index, KVPULL_PULL_CHECK, KVPULL_DID_CAME);
}

static int step_check(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_pull *pull = &progress->pulls[index];
	const int code = parts_check(progress, pull, PART_READ, PART_LIVE);

	if (code == KVPULL_EAGAIN) {
		progress->pulls_dirty = 1;
		return again_wait(progress, index);
	}
	if (code)
		return code;
	return parts_all(progress, pull, PART_LIVE) ? 1 : KVPULL_EAGAIN;
}

/* As far as it goes now. */
static void pull_step(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_pull *pull = &progress->pulls[index];
	int code = 0;

	progress->pull_steps++;
	wait_leave(progress, index);
	while (!code) {
		switch (pull->state) {
		case KVPULL_PULL_CONNECT:
			code = step_connect(progress, index);
			break;
		case KVPULL_PULL_WRITTEN:
			code = step_written(progress, index);
			break;
		case KVPULL_PULL_READ:
			code = step_read(progress, index);
			break;
		case KVPULL_PULL_CHECK:
			code = step_check(progress, index);
			break;
		case KVPULL_PULL_DRAIN:
		case KVPULL_PULL_AGAIN:
		case KVPULL_PULL_FREE:
		case KVPULL_PULL_STATES:
			return;
		}
	}
	if (code == 1)
		pull_end(progress, index);
	else if (code == KVPULL_EABORTED)
		pull_again(progress, index);
	else if (code != KVPULL_EAGAIN)
		pull_fail(progress, index, code);
}

void kvpull_pull_new(struct kvpull_progress *progress, uint32_t index,
		     uint32_t serial)
{
	struct kvpull_pull *pull = &progress->pulls[index];
	const struct kvpull_pull_order *order =
		&progress->handover->pulls[index];
	const struct kvpull_claim *claim = &progress->claims[order->claim];

	pull->order = order;
	pull->serial = serial;
	pull->state = KVPULL_PULL_CONNECT;
	pull->code = 0;
	pull->bytes = pull->first_ns = pull->done_ranks = 0;
	pull->part_count = pull->parts_open = 0;
	pull->live_at = progress->live_count;
	progress->live[progress->live_count++] = index;
	pull->uses_claim = 0;
	pull->phases = (struct kvpull_pull_phases){
		.begun_ns = kvpull_facts_now(progress->facts),
	};
	if (!claim->order || claim->order->serial != order->claim_serial ||
	    claim->releasing) {
		pull_fail(progress, index, KVPULL_EEXPIRED);
		return;
	}
	pull->uses_claim = 1;
	kvpull_claim_use(progress, order->claim);
	kvpull_show_pull(progress, index);
	if (progress->run_ns >= order->deadline_ns)
		pull_fail(progress, index, KVPULL_EDEADLINE);
	else
		pull_step(progress, index);
}

void kvpull_pull_abort(struct kvpull_progress *progress, uint32_t index,
		       int32_t code)
{
	pull_fail(progress, index, code);
}

void kvpull_pull_event(struct kvpull_progress *progress,
		       const struct kvpull_event *event)
{
	struct kvpull_part *part = &progress->parts[event->read->index];
	struct kvpull_pull *pull = &progress->pulls[part->pull];
	int32_t code = event->code;

	kvpull_check(progress->log, pull->parts_open > 0);
	pull->parts_open--;
	if (event->kind == KVPULL_EVENT_READ_DONE) {
		kvpull_check(progress->log, part->state == PART_READS);
		part->state = PART_ENDED;
		if (!code)
			part_read_all(part);
		if (!pull->first_ns)
			pull->first_ns = progress->run_ns;
	} else {
		kvpull_check(progress->log, part->state == PART_CHECKS);
		part->state = PART_ENDED;
		if (!code)
			code = part_judge(progress, pull, part);
		if (!code)
			part->state = PART_LIVE;
		else if (code == KVPULL_EAGAIN)
			part->state = PART_NEW; /* not written yet */
	}
	if (pull->state == KVPULL_PULL_DRAIN) {
		if (!pull->parts_open)
			pull_end(progress, part->pull);
		return;
	}
	if (code && code != KVPULL_EAGAIN && code != KVPULL_EABORTED)
		pull_fail(progress, part->pull, code);
	else if (code == KVPULL_EABORTED || pull->state == KVPULL_PULL_AGAIN)
		pull_again(progress, part->pull);
	else
		pull_step(progress, part->pull);
}

/* Parts came free: the pulls that wait for them go on, in order. */
static void parts_turns(struct kvpull_progress *progress, uint64_t now_ns)
{
	const struct kvpull_index_list *list = &progress->parts_waits;
	uint32_t left = TURNS_MAX;

	while (list->count && has_room(progress, list->first) && left--) {
		progress->parts_turn = list->first;
		pull_step(progress, list->first);
	}
	progress->parts_turn = KVPULL_NONE;
	if (list->count && has_room(progress, list->first))
		kvpull_progress_timer(progress, now_ns);
}

/* Something else has changed: each pull that waits is looked at once. */
static void again_turns(struct kvpull_progress *progress, uint64_t now_ns)
{
	const struct kvpull_index_list *list = &progress->again_waits;
	uint32_t left = TURNS_MAX;

	if (progress->pulls_dirty && !progress->again_left) {
		progress->pulls_dirty = 0;
		progress->again_left = list->count;
	}
	for (; progress->again_left && list->count && left--;
	     progress->again_left--)
		pull_step(progress, list->first);
	if (!list->count)
		progress->again_left = 0;
	if (progress->again_left)
		kvpull_progress_timer(progress, now_ns);
	else if (progress->pulls_dirty)
		kvpull_progress_timer(progress, now_ns + READY_NS);
}

static void deadlines_look(struct kvpull_progress *progress, uint64_t now_ns)
{
	uint32_t left = LOOKS_MAX;

	if (!progress->deadline_left && now_ns >= progress->pull_ns) {
		progress->deadline_left = progress->live_count;
		progress->pull_ns = now_ns + DEADLINES_NS;
	}
	/* From the end: an ended pull is replaced by one already seen. */
	for (; progress->deadline_left && left--; progress->deadline_left--) {
		const uint32_t at = progress->deadline_left - 1;

		if (at < progress->live_count &&
		    now_ns >= progress->pulls[progress->live[at]]
				      .order->deadline_ns)
			pull_fail(progress, progress->live[at],
				  KVPULL_EDEADLINE);
	}
	kvpull_progress_timer(
		progress, progress->deadline_left ? now_ns : progress->pull_ns);
}

/* What each costs does not grow with the number of pulls. */
void kvpull_pull_run(struct kvpull_progress *progress, uint64_t now_ns)
{
	if (!progress->live_count)
		return;
	/* One that is too late is not begun. */
	deadlines_look(progress, now_ns);
	parts_turns(progress, now_ns);
	again_turns(progress, now_ns);
}
