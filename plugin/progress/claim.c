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
 * is no entry waits for one (room.c), and so do pulls, within their deadlines.
 *
 * What waits for a peer waits in that peer's lists, in order: only the first of
 * a list is looked at, so a run costs as much as it changes.
 */
#include "plugin/progress/progress_state.h"

#define FULL_RETRY_NS UINT64_C(20000) /* the peer's engine polls slowly */
/* Between two tries of many claims, twenty times what one takes for each 64. */
#define ROOM_TRY_NS UINT64_C(320000)
#define TAKEN_FIRST_NS UINT64_C(100000)
#define TAKEN_LAST_NS (16 * KVPULL_NS_PER_MS)

void kvpull_claims_init(struct kvpull_claims *claims,
			const struct kvpull_config *config,
			struct kvpull_arena *arena)
{
	const uint32_t claims_max = kvpull_config_claims_max(config);

	KVPULL_ARENA_TAKE(arena, claims->all, claims_max);
	kvpull_index_list_init(&claims->work, claims_max, arena);
	claims->lists_ns = UINT64_MAX;
}

/* Once; one that has no entries is tried again anyway. */
static void work_add(struct kvpull_progress *progress, uint32_t index)
{
	if (!progress->room.turns.arrival.links[index].linked)
		kvpull_index_list_push(&progress->claims.work, index);
}

/* The first of a list, and its claim; NULL: the list is empty. */
static struct kvpull_claim_rank *list_first(const struct kvpull_claims *claims,
					    const struct kvpull_rank_list *list,
					    struct kvpull_claim **claim)
{
	if (list->first == KVPULL_NONE)
		return NULL;
	*claim = &claims->all[list->first / KVPULL_RANKS_MAX];
	return kvpull_claim_rank_of(claims, list->first);
}

static void list_add(struct kvpull_claims *claims,
		     struct kvpull_rank_list *list,
		     const struct kvpull_claim *claim,
		     struct kvpull_claim_rank *rank)
{
	const uint32_t id = (uint32_t)(claim - claims->all) * KVPULL_RANKS_MAX +
			    (uint32_t)(rank - claim->ranks);

	rank->listed = 1;
	rank->next = KVPULL_NONE;
	if (list->first == KVPULL_NONE)
		list->first = id;
	else
		kvpull_claim_rank_of(claims, list->last)->next = id;
	list->last = id;
	claims->listed_count++;
}

/* The first one leaves; what is said of its claim may be all by then. */
static void list_pop(struct kvpull_progress *progress,
		     struct kvpull_rank_list *list)
{
	struct kvpull_claim_rank *rank =
		kvpull_claim_rank_of(&progress->claims, list->first);

	work_add(progress, list->first / KVPULL_RANKS_MAX);
	rank->listed = 0;
	list->first = rank->next;
	progress->claims.listed_count--;
}

void kvpull_claim_new(struct kvpull_progress *progress, uint32_t index,
		      uint64_t now_ns)
{
	struct kvpull_claims *claims = &progress->claims;
	struct kvpull_claim *claim = &claims->all[index];
	uint32_t at;

	claim->order = &progress->handover->claims[index];
	if (claims->end <= index)
		claims->end = index + 1;
	claims->instance_id = claim->order->instance_id;
	claim->since_ns = now_ns;
	claim->priority = claim->order->priority;
	claim->pull_count = claim->releasing = 0;
	claim->waits = 1;
	claim->open_count = claim->order->rank_count;
	for (at = 0; at < claim->order->rank_count; at++)
		claim->ranks[at] =
			(struct kvpull_claim_rank){ .peer = KVPULL_NONE };
	if (kvpull_room_take(progress, index, now_ns) == KVPULL_EFULL)
		kvpull_room_wait(progress, claim, now_ns);
	kvpull_show_claim(progress, claim);
	work_add(progress, index);
}

/* A claim that lacks entries already waits with that priority from here. */
static void priority_set(struct kvpull_progress *progress, uint32_t index,
			 int32_t priority)
{
	struct kvpull_turns *turns = &progress->room.turns;

	progress->claims.all[index].priority = priority;
	if (!turns->arrival.links[index].linked)
		return;
	kvpull_turns_remove(turns, index);
	kvpull_turns_push(turns, index, priority);
}

void kvpull_claim_release(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_claim *claim = &progress->claims.all[index];

	if (claim->releasing)
		return;
	kvpull_room_want(progress, claim);
	claim->releasing = 1;
	/* Every pull goes before a release, for which no request waits. */
	priority_set(progress, index, INT32_MAX);
	kvpull_count_add(&progress->counts->releases_queued, claim->open_count);
	work_add(progress, index);
}

void kvpull_claim_use(struct kvpull_progress *progress, uint32_t index,
		      int32_t priority)
{
	struct kvpull_claim *claim = &progress->claims.all[index];

	claim->pull_count++;
	if (priority < claim->priority)
		priority_set(progress, index, priority);
	kvpull_room_want(progress, claim);
}

void kvpull_claim_unuse(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_claim *claim = &progress->claims.all[index];

	kvpull_check(progress->log, claim->pull_count > 0);
	claim->pull_count--;
	if (!claim->pull_count && !claim->releasing)
		kvpull_room_unwant(progress, index);
	work_add(progress, index);
}

static void peer_changed(struct kvpull_progress *progress, uint32_t peer,
			 uint64_t now_ns)
{
	struct kvpull_claims *claims = &progress->claims;
	struct kvpull_remote *remote = &progress->remotes.all[peer];
	uint32_t index;
	uint32_t at;

	/* Whoever is in its lists has an open claim on it. */
	remote->to_say.first = remote->said.first = KVPULL_NONE;
	if (!remote->claim_count)
		return;
	for (index = 0; index < claims->end; index++) {
		struct kvpull_claim *claim = &claims->all[index];

		if (!claim->order || !claim->open_count)
			continue;
		for (at = 0; at < claim->order->rank_count; at++) {
			struct kvpull_claim_rank *rank = &claim->ranks[at];

			if (rank->peer != peer ||
			    rank->state > KVPULL_RANK_SAID)
				continue;
			/* On a new connection it is said again. */
			rank->state = KVPULL_RANK_NEW;
			claims->listed_count -= rank->listed;
			rank->listed = 0;
			if (remote->peer.state == KVPULL_PEER_GONE &&
			    !kvpull_give_wants(remote, rank))
				kvpull_room_close(progress, claim, rank,
						  KVPULL_RANK_LOST, now_ns);
			work_add(progress, index);
		}
	}
}

static void peers_changed(struct kvpull_progress *progress, uint64_t now_ns)
{
	struct kvpull_remotes *remotes = &progress->remotes;
	uint32_t peer;

	remotes->changed = 0;
	for (peer = 0; peer < remotes->end; peer++) {
		if (!remotes->all[peer].changed)
			continue;
		remotes->all[peer].changed = 0;
		peer_changed(progress, peer, now_ns);
	}
}

/* Peers take notifications in the order in which they were said. */
static int is_taken(const struct kvpull_remote *remote,
		    const struct kvpull_claim_rank *rank)
{
	const struct kvpull_transport *transport =
		remote->peer.route->transport;
	const uint64_t open =
		transport->ops->notes_open(transport, remote->peer.handle);

	return remote->notes_said - rank->note >= open;
}

/* Return: 1 if it is given up, since no hold of it can be left. */
static int rank_expires(struct kvpull_progress *progress,
			struct kvpull_claim *claim,
			struct kvpull_claim_rank *rank, uint64_t now_ns)
{
	/* What nobody claimed ends at its lease; what siblings did, a lease after. */
	const uint64_t most_ms = rank->was_told ?
					 progress->facts->config.hold_max_ms :
					 progress->facts->config.lease_ms;

	if (!claim->releasing ||
	    now_ns - claim->since_ns <= most_ms * KVPULL_NS_PER_MS)
		return 0;
	kvpull_room_close(progress, claim, rank, KVPULL_RANK_LOST, now_ns);
	return 1;
}

/* Its claim, or its release. 0; KVPULL_EAGAIN: the peer has no room. */
static int rank_say(struct kvpull_progress *progress,
		    struct kvpull_claim *claim, struct kvpull_claim_rank *rank,
		    uint64_t now_ns)
{
	struct kvpull_claims *claims = &progress->claims;
	struct kvpull_remote *remote = &progress->remotes.all[rank->peer];
	const struct kvpull_record record = {
		.kind = claim->releasing ? KVPULL_NOTE_RELEASE :
					   KVPULL_NOTE_CLAIM,
		.slot = claim->order->slot,
		.generation = claim->order->generation,
		.tag = claim->order->ranks[rank - claim->ranks].tag,
	};

	if (kvpull_remote_note(remote, &record))
		return KVPULL_EAGAIN;
	rank->note = remote->notes_said;
	if (!claim->releasing) {
		rank->state = KVPULL_RANK_CLAIMED;
		rank->was_told = 1;
		return 0;
	}
	rank->state = KVPULL_RANK_SAID;
	kvpull_show_release(progress, claim, rank);
	if (remote->said.first == KVPULL_NONE && is_taken(remote, rank)) {
		kvpull_room_close(progress, claim, rank, KVPULL_RANK_RELEASED,
				  now_ns);
		return 0;
	}
	list_add(claims, &remote->said, claim, rank);
	claims->taken_every_ns = TAKEN_FIRST_NS;
	kvpull_due_by(&claims->lists_ns, now_ns + TAKEN_FIRST_NS);
	return 0;
}

/* 1: there is a word for its peer now. */
static int has_word(const struct kvpull_claim *claim,
		    const struct kvpull_claim_rank *rank)
{
	if (rank->state > KVPULL_RANK_CLAIMED)
		return 0;
	/* The last pull's end brings the release back. */
	return claim->releasing ? !claim->pull_count :
				  rank->state == KVPULL_RANK_NEW;
}

static void rank_run(struct kvpull_progress *progress,
		     struct kvpull_claim *claim, struct kvpull_claim_rank *rank,
		     uint64_t now_ns)
{
	struct kvpull_claims *claims = &progress->claims;
	struct kvpull_remote *remote;

	if (rank->state > KVPULL_RANK_SAID || rank->listed ||
	    rank_expires(progress, claim, rank, now_ns) ||
	    rank->peer == KVPULL_NONE)
		return;
	remote = &progress->remotes.all[rank->peer];
	if (kvpull_give_wants(remote, rank)) {
		/*
		 * A refusal is final, so the ticket's users are not waited for:
		 * they may stand in the engine's queue for minutes.
		 */
		if (remote->peer.state == KVPULL_PEER_GONE ||
		    (claim->releasing && has_word(claim, rank))) {
			list_add(claims, &remote->to_say, claim, rank);
			progress->gives.due_ns = now_ns;
		}
		return;
	}
	if (remote->peer.state == KVPULL_PEER_GONE) {
		kvpull_room_close(progress, claim, rank, KVPULL_RANK_LOST,
				  now_ns);
		return;
	}
	/*
	 * Else peers_changed() brings it back. One that was told that we go
	 * hears it when we are back: it might let go of what it hears now.
	 */
	if (remote->peer.state != KVPULL_PEER_UP || remote->closing_ns ||
	    !has_word(claim, rank))
		return;
	/* This rank speaks after those that wait already. */
	if (remote->to_say.first == KVPULL_NONE &&
	    !rank_say(progress, claim, rank, now_ns))
		return;
	list_add(claims, &remote->to_say, claim, rank);
	kvpull_due_by(&claims->lists_ns, now_ns + FULL_RETRY_NS);
}

/* Return: 0; else it lacks entries, and is to be tried again. */
static int claim_run(struct kvpull_progress *progress, uint32_t index,
		     uint64_t now_ns)
{
	struct kvpull_claim *claim = &progress->claims.all[index];
	const int code = kvpull_room_take(progress, index, now_ns);
	uint32_t at;

	for (at = 0; at < claim->order->rank_count; at++)
		rank_run(progress, claim, &claim->ranks[at], now_ns);
	if (!code && claim->releasing && !claim->open_count &&
	    !claim->pull_count) {
		/* From here the slot is the engine's. */
		claim->order = NULL;
		kvpull_progress_tell(progress, KVPULL_FROM_CLAIM, index);
	}
	return code;
}

/* Peers take notifications in the order in which they were said. */
static void said_run(struct kvpull_progress *progress,
		     struct kvpull_remote *remote, uint64_t now_ns)
{
	struct kvpull_claim_rank *rank;
	struct kvpull_claim *claim;

	while ((rank = list_first(&progress->claims, &remote->said, &claim))) {
		if (is_taken(remote, rank))
			kvpull_room_close(progress, claim, rank,
					  KVPULL_RANK_RELEASED, now_ns);
		else if (!rank_expires(progress, claim, rank, now_ns))
			return;
		list_pop(progress, &remote->said);
	}
}

static void to_say_run(struct kvpull_progress *progress,
		       struct kvpull_remote *remote, uint64_t now_ns)
{
	struct kvpull_claims *claims = &progress->claims;
	struct kvpull_rank_list *list = &remote->to_say;
	struct kvpull_claim_rank *rank;
	struct kvpull_claim *claim;

	while ((rank = list_first(claims, list, &claim))) {
		const uint32_t id = list->first;

		/* Out of the list first: a release goes into the other one. */
		list_pop(progress, list);
		if (rank_expires(progress, claim, rank, now_ns) ||
		    !has_word(claim, rank) ||
		    !rank_say(progress, claim, rank, now_ns))
			continue;
		/* The rank goes back to the front of the list. */
		rank->listed = 1;
		rank->next = list->first;
		if (rank->next == KVPULL_NONE)
			list->last = id;
		list->first = id;
		claims->listed_count++;
		kvpull_due_by(&claims->lists_ns, now_ns + FULL_RETRY_NS);
		return;
	}
}

void kvpull_claim_given(struct kvpull_progress *progress,
			struct kvpull_remote *remote, uint32_t count,
			enum kvpull_claim_state state, uint64_t now_ns)
{
	struct kvpull_rank_list *list = &remote->to_say;
	struct kvpull_claim_rank *rank;
	struct kvpull_claim *claim;

	while (count-- &&
	       (rank = list_first(&progress->claims, list, &claim))) {
		list_pop(progress, list);
		if (state == KVPULL_RANK_RELEASED)
			kvpull_show_release(progress, claim, rank);
		kvpull_room_close(progress, claim, rank, state, now_ns);
	}
}

static void lists_run(struct kvpull_progress *progress, uint64_t now_ns)
{
	struct kvpull_claims *claims = &progress->claims;
	const uint32_t listed = claims->listed_count;
	uint32_t index;

	claims->lists_ns = UINT64_MAX;
	for (index = 0; index < progress->remotes.end; index++) {
		struct kvpull_remote *remote = &progress->remotes.all[index];

		if (remote->peer.state != KVPULL_PEER_UP)
			continue;
		said_run(progress, remote, now_ns);
		to_say_run(progress, remote, now_ns);
	}
	if (!claims->listed_count)
		return;
	/* Nobody tells what a peer took: look, less and less often. */
	kvpull_due_by(&claims->lists_ns, now_ns + claims->taken_every_ns);
	if (claims->listed_count != listed)
		claims->taken_every_ns = TAKEN_FIRST_NS;
	else if (claims->taken_every_ns <= TAKEN_LAST_NS / 2)
		claims->taken_every_ns *= 2;
}

/* Each of the list once; who goes back into it waits for the next run. */
static void work_run(struct kvpull_progress *progress, uint64_t now_ns)
{
	struct kvpull_index_list *list = &progress->claims.work;
	uint32_t left = list->count;

	while (left--) {
		const uint32_t index = list->first;

		kvpull_index_list_remove(list, index);
		if (claim_run(progress, index, now_ns))
			kvpull_turns_push(&progress->room.turns, index,
					  progress->claims.all[index].priority);
	}
}

/* Return: 1: it lacks no entries any more. */
static int room_try(struct kvpull_progress *progress, uint32_t index,
		    uint64_t now_ns)
{
	if (claim_run(progress, index, now_ns))
		return 0;
	kvpull_turns_remove(&progress->room.turns, index);
	return 1;
}

/*
 * Each claim that lacks entries, the most urgent first. Where a claim's turn ends
 * the next run begins again from the first, whose turn it may be.
 */
static void rooms_run(struct kvpull_progress *progress, uint64_t now_ns)
{
	struct kvpull_turns *turns = &progress->room.turns;
	const struct kvpull_index_list *list = kvpull_turns_list(turns);
	const uint32_t given = turns->given;
	uint32_t index = kvpull_room_oldest(progress);
	uint32_t next;

	if (index != KVPULL_NONE && room_try(progress, index, now_ns)) {
		/* The oldest's turn is over as soon as it began. */
		kvpull_turns_give(turns);
		progress->room.due_ns = now_ns;
	}
	for (index = list->first; index != KVPULL_NONE && turns->given == given;
	     index = next) {
		next = list->links[index].next;
		(void)room_try(progress, index, now_ns);
	}
}

void kvpull_claim_run(struct kvpull_progress *progress, uint64_t now_ns)
{
	struct kvpull_claims *claims = &progress->claims;
	struct kvpull_room *room = &progress->room;

	if (progress->remotes.changed)
		peers_changed(progress, now_ns);
	if (now_ns >= kvpull_room_due_ns(room)) {
		room->due_ns = UINT64_MAX;
		rooms_run(progress, now_ns);
		room->after_ns =
			now_ns + room->turns.arrival.count / 64 * ROOM_TRY_NS;
	}
	work_run(progress, now_ns);
	/* After what was said: peers may have taken earlier notes meanwhile. */
	if (claims->listed_count && now_ns >= claims->lists_ns) {
		lists_run(progress, now_ns);
		work_run(progress, now_ns);
	}
	if (room->turns.arrival.count && room->due_ns == UINT64_MAX)
		room->due_ns = now_ns + KVPULL_ROOM_RETRY_NS;
	kvpull_due_by(&progress->timer_ns, kvpull_room_due_ns(room));
	if (claims->listed_count)
		kvpull_due_by(&progress->timer_ns, claims->lists_ns);
}
