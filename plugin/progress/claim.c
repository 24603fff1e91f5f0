/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, progress side, consumer's role: tickets that were claimed.
 *
 * Every rank of the producer gets a claim when its connection is up and a
 * release at the end, whether or not this rank reads from it. A notification
 * that does not fit into a ring, or whose peer is away, waits in the claim
 * itself: nothing is lost. A release that a peer has not taken yet is said again
 * on the next connection. A claim is free again when its last word was said,
 * no pull uses it, and each rank took the release or is lost: gone for good
 * (a dead incarnation counts its consumers as released, or is no more), or
 * silent for hold_max, after which no hold can be left. A rank for which there
 * is no entry waits for one, and so do pulls, within their deadlines.
 */
#include "plugin/progress/progress_state.h"

#define FULL_RETRY_NS UINT64_C(20000) /* the peer's engine polls slowly */
#define ROOM_RETRY_NS (5 * KVPULL_NS_PER_MS) /* no entry for another peer */
#define TAKEN_FIRST_NS UINT64_C(100000)
#define TAKEN_LAST_NS (16 * KVPULL_NS_PER_MS)

static void queued_add(struct kvpull_progress *progress, uint64_t more)
{
	kvpull_count_add(&progress->counts.releases_queued, more);
}

static void work_add(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_claim *claim = &progress->claims[index];

	if (claim->in_work)
		return;
	claim->in_work = 1;
	claim->next_work = progress->claim_work;
	progress->claim_work = index;
}

static void rank_close(struct kvpull_progress *progress,
		       struct kvpull_claim *claim,
		       struct kvpull_claim_rank *rank, uint32_t state,
		       uint64_t now_ns)
{
	if (rank->peer != KVPULL_NONE) {
		struct kvpull_remote *remote = &progress->remotes[rank->peer];

		kvpull_check(progress->log, remote->claim_count > 0);
		remote->claim_count--;
		remote->used_ns = now_ns;
	}
	if (claim->releasing)
		queued_add(progress, UINT64_MAX);
	rank->state = state;
	kvpull_check(progress->log, claim->open_count > 0);
	claim->open_count--;
}

enum again {
	AGAIN_NO = 0,
	AGAIN_TAKEN = 1, /* said, and not taken yet */
	AGAIN_SAY = 2,   /* the peer had no room */
	AGAIN_ROOM = 4   /* we have none for the peer */
};

/* Return: AGAIN_NO, also where it is lost, or AGAIN_ROOM. */
static int rank_find(struct kvpull_progress *progress,
		     struct kvpull_claim *claim, struct kvpull_claim_rank *rank,
		     uint64_t now_ns)
{
	uint32_t peer;
	int code;

	rank->tries++;
	code = kvpull_remote_find(progress,
				  &claim->order->ranks[rank - claim->ranks],
				  rank->tries == 1, now_ns, &peer);
	if (code == KVPULL_EFULL)
		return AGAIN_ROOM;
	/* What waited for it goes on, or ends. */
	progress->pulls_dirty = 1;
	if (code) {
		rank_close(progress, claim, rank, KVPULL_RANK_LOST, now_ns);
		return AGAIN_NO;
	}
	rank->peer = peer;
	progress->remotes[peer].claim_count++;
	/* Its heartbeats begin, or go on. */
	progress->remote_ns = now_ns;
	return AGAIN_NO;
}

void kvpull_claim_new(struct kvpull_progress *progress, uint32_t index,
		      uint64_t now_ns)
{
	struct kvpull_claim *claim = &progress->claims[index];
	uint32_t at;

	claim->order = &progress->handover->claims[index];
	progress->instance_id = claim->order->instance_id;
	claim->since_ns = now_ns;
	claim->pull_count = claim->releasing = claim->in_work = 0;
	claim->open_count = claim->order->rank_count;
	for (at = 0; at < claim->order->rank_count; at++)
		claim->ranks[at] =
			(struct kvpull_claim_rank){ .peer = KVPULL_NONE };
	for (at = 0; at < claim->order->rank_count; at++)
		(void)rank_find(progress, claim, &claim->ranks[at], now_ns);
	work_add(progress, index);
}

void kvpull_claim_release(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_claim *claim = &progress->claims[index];

	if (claim->releasing)
		return;
	claim->releasing = 1;
	queued_add(progress, claim->open_count);
	work_add(progress, index);
}

void kvpull_claim_unuse(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_claim *claim = &progress->claims[index];

	kvpull_check(progress->log, claim->pull_count > 0);
	claim->pull_count--;
	work_add(progress, index);
}

static void peer_changed(struct kvpull_progress *progress, uint32_t peer,
			 uint64_t now_ns)
{
	const struct kvpull_remote *remote = &progress->remotes[peer];
	uint32_t index;
	uint32_t at;

	if (!remote->claim_count)
		return;
	for (index = 0; index < progress->facts->config.tickets_max; index++) {
		struct kvpull_claim *claim = &progress->claims[index];

		if (!claim->order || !claim->open_count)
			continue;
		for (at = 0; at < claim->order->rank_count; at++) {
			struct kvpull_claim_rank *rank = &claim->ranks[at];

			if (rank->peer != peer ||
			    rank->state > KVPULL_RANK_SAID)
				continue;
			/* Another life of the connection: say it again. */
			rank->state = KVPULL_RANK_NEW;
			if (remote->state == KVPULL_REMOTE_GONE)
				rank_close(progress, claim, rank,
					   KVPULL_RANK_LOST, now_ns);
			work_add(progress, index);
		}
	}
}

static void peers_changed(struct kvpull_progress *progress, uint64_t now_ns)
{
	uint32_t peer;

	progress->remotes_changed = 0;
	for (peer = 0; peer < progress->facts->config.peers_max; peer++) {
		if (!progress->remotes[peer].changed)
			continue;
		progress->remotes[peer].changed = 0;
		peer_changed(progress, peer, now_ns);
	}
}

static int say(struct kvpull_progress *progress,
	       const struct kvpull_claim *claim, struct kvpull_claim_rank *rank,
	       uint32_t kind)
{
	struct kvpull_transport *transport = progress->transport;
	struct kvpull_remote *remote = &progress->remotes[rank->peer];
	const struct kvpull_record record = {
		.kind = kind,
		.slot = claim->order->slot,
		.generation = claim->order->generation,
		.tag = claim->order->ranks[rank - claim->ranks].tag,
	};

	if (transport->ops->notify(transport, remote->handle, &record))
		return KVPULL_EAGAIN;
	rank->note = ++remote->notes_said;
	return 0;
}

/* Peers take notifications in the order in which they were said. */
static int is_taken(const struct kvpull_progress *progress,
		    const struct kvpull_remote *remote,
		    const struct kvpull_claim_rank *rank)
{
	const struct kvpull_transport *transport = progress->transport;
	const uint64_t open =
		transport->ops->notes_open(transport, remote->handle);

	return remote->notes_said - rank->note >= open;
}

static int rank_release(struct kvpull_progress *progress,
			struct kvpull_claim *claim,
			struct kvpull_claim_rank *rank, uint64_t now_ns)
{
	if (rank->state != KVPULL_RANK_SAID) {
		if (say(progress, claim, rank, KVPULL_NOTE_RELEASE))
			return AGAIN_SAY;
		rank->state = KVPULL_RANK_SAID;
		progress->taken_every_ns = TAKEN_FIRST_NS;
	}
	if (!is_taken(progress, &progress->remotes[rank->peer], rank))
		return AGAIN_TAKEN;
	rank_close(progress, claim, rank, KVPULL_RANK_RELEASED, now_ns);
	return AGAIN_NO;
}

/* Return: enum again. */
static int rank_run(struct kvpull_progress *progress,
		    struct kvpull_claim *claim, struct kvpull_claim_rank *rank,
		    uint64_t now_ns)
{
	const struct kvpull_remote *remote;
	const uint64_t hold_max_ns =
		progress->facts->config.hold_max_ms * KVPULL_NS_PER_MS;

	if (rank->state > KVPULL_RANK_SAID)
		return AGAIN_NO;
	if (claim->releasing && now_ns - claim->since_ns > hold_max_ns) {
		rank_close(progress, claim, rank, KVPULL_RANK_LOST, now_ns);
		return AGAIN_NO;
	}
	if (rank->peer == KVPULL_NONE) {
		if (rank_find(progress, claim, rank, now_ns))
			return AGAIN_ROOM;
		if (rank->state == KVPULL_RANK_LOST)
			return AGAIN_NO;
	}
	remote = &progress->remotes[rank->peer];
	if (remote->state == KVPULL_REMOTE_GONE) {
		rank_close(progress, claim, rank, KVPULL_RANK_LOST, now_ns);
		return AGAIN_NO;
	}
	if (remote->state != KVPULL_REMOTE_UP)
		return AGAIN_NO; /* peers_changed() brings it back */
	if (!claim->releasing) {
		if (rank->state == KVPULL_RANK_CLAIMED)
			return AGAIN_NO;
		if (say(progress, claim, rank, KVPULL_NOTE_CLAIM))
			return AGAIN_SAY;
		rank->state = KVPULL_RANK_CLAIMED;
		return AGAIN_NO;
	}
	if (claim->pull_count)
		return AGAIN_NO; /* the last pull's end brings it back */
	return rank_release(progress, claim, rank, now_ns);
}

static int claim_run(struct kvpull_progress *progress, uint32_t index,
		     uint64_t now_ns)
{
	struct kvpull_claim *claim = &progress->claims[index];
	int again = AGAIN_NO;
	uint32_t at;

	for (at = 0; at < claim->order->rank_count; at++)
		again |= rank_run(progress, claim, &claim->ranks[at], now_ns);
	if (again) {
		work_add(progress, index);
		return again;
	}
	if (claim->releasing && !claim->open_count && !claim->pull_count) {
		/* From here the slot is the engine's. */
		claim->order = NULL;
		kvpull_progress_tell(progress, KVPULL_FROM_CLAIM, index);
	}
	return AGAIN_NO;
}

void kvpull_claim_run(struct kvpull_progress *progress, uint64_t now_ns)
{
	int again = AGAIN_NO;
	uint32_t index;

	if (progress->remotes_changed)
		peers_changed(progress, now_ns);
	index = progress->claim_work;
	progress->claim_work = KVPULL_NONE;
	while (index != KVPULL_NONE) {
		const uint32_t next = progress->claims[index].next_work;

		progress->claims[index].in_work = 0;
		again |= claim_run(progress, index, now_ns);
		index = next;
	}
	if (again & AGAIN_ROOM)
		kvpull_progress_timer(progress, now_ns + ROOM_RETRY_NS);
	if (again & AGAIN_SAY) {
		kvpull_progress_timer(progress, now_ns + FULL_RETRY_NS);
	} else if (again & AGAIN_TAKEN) {
		/* Nobody tells what a peer took: look, less and less often. */
		kvpull_progress_timer(progress,
				      now_ns + progress->taken_every_ns);
		if (progress->taken_every_ns < TAKEN_LAST_NS)
			progress->taken_every_ns *= 2;
	}
}

static int owes(const struct kvpull_claim *claim, uint64_t incarnation)
{
	uint32_t at;

	for (at = 0; at < claim->order->rank_count; at++)
		if (claim->order->ranks[at].incarnation == incarnation &&
		    claim->ranks[at].state <= KVPULL_RANK_SAID)
			return 1;
	return 0;
}

int kvpull_progress_owes(const struct kvpull_progress *progress, uint32_t slot,
			 uint64_t generation, uint64_t incarnation)
{
	uint32_t index;

	for (index = 0; index < progress->facts->config.tickets_max; index++) {
		const struct kvpull_claim *claim = &progress->claims[index];

		if (claim->order && claim->order->slot == slot &&
		    claim->order->generation == generation &&
		    owes(claim, incarnation))
			return 1;
	}
	return 0;
}
