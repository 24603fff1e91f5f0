/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, progress side, consumer's role: which claims have entries, where
 * they name more producer ranks than there are entries for.
 *
 * A claim waits while no pull of it runs, and its release is not said: an engine
 * claims a ticket long before it has blocks for it. Those that wait keep
 * peers_max entries at most, so pulls always have the others to themselves; one
 * that finds none is told when its pull begins.
 *
 * A claim takes all entries that it lacks, or none: claims that had some each
 * would wait for each other. Of those with a pull one at a time has the turn, by
 * priority, and keeps what it gets; a release has it when no pull wants it. While
 * nothing comes free for it, peers that only pulls use are drained, one more at
 * each try: no other claim comes to them, so that they end what they have, and
 * make room.
 */
#include "plugin/progress/progress_state.h"

void kvpull_room_init(struct kvpull_progress *progress,
		      struct kvpull_arena *arena)
{
	const struct kvpull_config *config = &progress->facts->config;
	const uint32_t entries = progress->remotes.count;
	struct kvpull_room *room = &progress->room;

	kvpull_turns_init(&room->turns, kvpull_config_claims_max(config),
			  arena);
	room->turn = KVPULL_NONE;
	room->due_ns = UINT64_MAX;
	/* Pulls have half of the entries where there are fewer than there should be. */
	room->waited_max = entries == kvpull_config_peer_entries(config) ?
				   config->peers_max :
				   entries / 2;
}

static int lacks_entry(const struct kvpull_claim_rank *rank)
{
	return rank->peer == KVPULL_NONE && rank->state <= KVPULL_RANK_SAID;
}

static int has_entry(const struct kvpull_claim_rank *rank)
{
	return rank->peer != KVPULL_NONE && rank->state <= KVPULL_RANK_SAID;
}

static uint32_t lack_count(const struct kvpull_claim *claim)
{
	uint32_t count = 0;
	uint32_t at;

	for (at = 0; at < claim->order->rank_count; at++)
		count += (uint32_t)lacks_entry(&claim->ranks[at]);
	return count;
}

/* Counts a claim more that waits on the remote. */
static void wait_begin(struct kvpull_room *room, struct kvpull_remote *remote)
{
	if (!remote->wait_count++)
		room->waited_count++;
}

static void attach(struct kvpull_progress *progress,
		   const struct kvpull_claim *claim,
		   struct kvpull_claim_rank *rank, uint32_t peer)
{
	struct kvpull_remote *remote = &progress->remotes.all[peer];

	rank->peer = peer;
	remote->claim_count++;
	if (claim->waits)
		wait_begin(&progress->room, remote);
}

/* Counts a claim less that waits on the remote. */
static void wait_end(struct kvpull_progress *progress,
		     struct kvpull_remote *remote)
{
	kvpull_check(progress->log, remote->wait_count > 0);
	if (!--remote->wait_count)
		progress->room.waited_count--;
}

static void detach(struct kvpull_progress *progress,
		   const struct kvpull_claim *claim,
		   const struct kvpull_claim_rank *rank)
{
	struct kvpull_remote *remote = &progress->remotes.all[rank->peer];

	kvpull_check(progress->log, remote->claim_count > 0);
	remote->claim_count--;
	if (claim->waits)
		wait_end(progress, remote);
}

void kvpull_room_close(struct kvpull_progress *progress,
		       struct kvpull_claim *claim,
		       struct kvpull_claim_rank *rank, uint32_t state,
		       uint64_t now_ns)
{
	if (rank->peer != KVPULL_NONE) {
		detach(progress, claim, rank);
		progress->remotes.all[rank->peer].used_ns = now_ns;
	}
	if (claim->releasing)
		kvpull_count_add(&progress->counts->releases_queued,
				 UINT64_MAX);
	rank->state = state;
	kvpull_check(progress->log, claim->open_count > 0);
	claim->open_count--;
}

void kvpull_room_want(struct kvpull_progress *progress,
		      struct kvpull_claim *claim)
{
	uint32_t at;

	if (!claim->waits)
		return;
	claim->waits = 0;
	for (at = 0; at < claim->order->rank_count; at++) {
		const struct kvpull_claim_rank *rank = &claim->ranks[at];

		if (lacks_entry(rank))
			progress->room.due_ns = progress->run_ns;
		else if (has_entry(rank))
			wait_end(progress, &progress->remotes.all[rank->peer]);
	}
}

static void turn_end(struct kvpull_progress *progress, uint64_t now_ns)
{
	uint32_t peer;

	for (peer = 0; peer < progress->remotes.end; peer++)
		progress->remotes.all[peer].drains = 0;
	progress->room.turn = KVPULL_NONE;
	kvpull_turns_give(&progress->room.turns);
	/* Claims that lack entries are tried at once: one takes the turn. */
	progress->room.due_ns = now_ns;
}

/*
 * Gives others the entries that the claim has got and has not used to say
 * anything.
 */
static void give_back(struct kvpull_progress *progress,
		      struct kvpull_claim *claim)
{
	uint32_t at;

	for (at = 0; at < claim->order->rank_count; at++) {
		struct kvpull_claim_rank *rank = &claim->ranks[at];

		if (rank->peer == KVPULL_NONE ||
		    rank->state != KVPULL_RANK_NEW || rank->was_told ||
		    rank->listed)
			continue;
		detach(progress, claim, rank);
		rank->peer = KVPULL_NONE;
	}
}

/* More of them than peers_max may wait now: then no other ones begin to. */
void kvpull_room_unwant(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_claim *claim = &progress->claims.all[index];
	uint32_t at;

	if (progress->room.turn == index) {
		give_back(progress, claim);
		turn_end(progress, progress->run_ns);
	}
	claim->waits = 1;
	for (at = 0; at < claim->order->rank_count; at++) {
		const struct kvpull_claim_rank *rank = &claim->ranks[at];

		if (has_entry(rank))
			wait_begin(&progress->room,
				   &progress->remotes.all[rank->peer]);
	}
}

uint32_t kvpull_room_oldest(const struct kvpull_progress *progress)
{
	const struct kvpull_turns *turns = &progress->room.turns;
	uint32_t index = turns->arrival.first;

	if (progress->room.turn != KVPULL_NONE ||
	    !kvpull_turns_is_oldest(turns))
		return KVPULL_NONE;
	while (index != KVPULL_NONE && !progress->claims.all[index].pull_count)
		index = turns->arrival.links[index].next;
	return index;
}

/* Each that does is tried again within this time. */
static int pulls_wait(const struct kvpull_room *room, uint64_t now_ns)
{
	return now_ns - room->pull_ns < 2 * KVPULL_ROOM_RETRY_NS;
}

/* Without the turn. Return: 1 if it may try to take what it lacks. */
static int may_take(struct kvpull_progress *progress,
		    const struct kvpull_claim *claim, uint64_t now_ns)
{
	const struct kvpull_room *room = &progress->room;
	struct kvpull_remotes *remotes = &progress->remotes;
	uint32_t more_waited = 0;
	uint32_t entries = 0;
	uint32_t own = 0; /* its peers whose entries another might take */
	uint32_t free_count;
	uint32_t at;

	for (at = 0; at < claim->order->rank_count; at++) {
		uint32_t peer;

		if (!lacks_entry(&claim->ranks[at]))
			continue;
		peer = kvpull_map_get(&remotes->map,
				      claim->order->ranks[at].incarnation);
		if (peer != KVPULL_NONE && remotes->all[peer].drains)
			return 0;
		entries += peer == KVPULL_NONE;
		more_waited +=
			peer == KVPULL_NONE || !remotes->all[peer].wait_count;
		own += peer != KVPULL_NONE &&
		       kvpull_remote_is_free(&remotes->all[peer]);
	}
	if (entries && (room->turn != KVPULL_NONE ||
			(!claim->pull_count && pulls_wait(room, now_ns))))
		return 0;
	if (!claim->waits)
		return 1;
	/* Where too many wait already none may join them, or they would for ever. */
	if (room->waited_count + more_waited > room->waited_max)
		return 0;
	if (!entries)
		return 1;
	free_count = kvpull_remote_free_count(remotes) - own;
	if (free_count >= entries)
		return 1;
	(void)kvpull_remote_idle_close(remotes, entries - free_count, now_ns);
	return 0;
}

/* A producer of more ranks than peers_max is never read. */
static void refuse(struct kvpull_progress *progress, struct kvpull_claim *claim,
		   uint64_t now_ns)
{
	uint32_t at;

	kvpull_warn(
		progress->log, "a producer has %u ranks: raise peers_max (%u)",
		claim->order->rank_count, progress->facts->config.peers_max);
	for (at = 0; at < claim->order->rank_count; at++)
		if (lacks_entry(&claim->ranks[at]))
			kvpull_room_close(progress, claim, &claim->ranks[at],
					  KVPULL_RANK_LOST, now_ns);
}

/* Return: 0, also where there is no way to it; KVPULL_EFULL, KVPULL_EAGAIN. */
static int rank_find(struct kvpull_progress *progress,
		     struct kvpull_claim *claim, struct kvpull_claim_rank *rank,
		     uint64_t now_ns)
{
	uint32_t peer;
	const int code = kvpull_remote_find(
		progress, &claim->order->ranks[rank - claim->ranks],
		claim->order->generation, now_ns, &peer);

	if (code == KVPULL_EFULL || code == KVPULL_EAGAIN)
		return code;
	if (code) {
		kvpull_room_close(progress, claim, rank, KVPULL_RANK_LOST,
				  now_ns);
		return 0;
	}
	attach(progress, claim, rank, peer);
	/* The heartbeats of the peer begin, or go on. */
	progress->remotes.due_ns = now_ns;
	return 0;
}

/*
 * Among the peers that only pulls use, the one with the fewest claims takes no
 * more. Others follow, should it not come free.
 */
static void drain_one(const struct kvpull_remotes *remotes,
		      const struct kvpull_claim *claim)
{
	struct kvpull_remote *found = NULL;
	uint32_t peer;
	uint32_t at;

	for (peer = 0; peer < remotes->end; peer++) {
		struct kvpull_remote *remote = &remotes->all[peer];

		if (!remote->claim_count || remote->wait_count ||
		    remote->drains ||
		    (found && found->claim_count <= remote->claim_count))
			continue;
		for (at = 0; at < claim->order->rank_count; at++)
			if (claim->ranks[at].peer == peer)
				break;
		if (at == claim->order->rank_count)
			found = remote;
	}
	if (found)
		found->drains = 1;
}

static void turn_take(struct kvpull_progress *progress, uint32_t index,
		      uint64_t now_ns)
{
	const struct kvpull_claim *claim = &progress->claims.all[index];
	const uint32_t wanted = lack_count(claim);

	progress->room.turn = index;
	if (kvpull_remote_idle_close(&progress->remotes, wanted, now_ns) ==
	    wanted)
		return;
	drain_one(&progress->remotes, claim);
	if (kvpull_second_passed(&progress->room.said_ns, now_ns))
		kvpull_warn(
			progress->log,
			"no room for a producer's ranks, pulls wait: raise peers_max (%u)",
			progress->facts->config.peers_max);
}

/* Return: 0; of what still lacks one, KVPULL_EFULL before KVPULL_EAGAIN. */
static int ranks_find(struct kvpull_progress *progress,
		      struct kvpull_claim *claim, uint64_t now_ns)
{
	int result = 0;
	uint32_t at;

	for (at = 0; at < claim->order->rank_count; at++) {
		int code;

		if (!lacks_entry(&claim->ranks[at]))
			continue;
		code = rank_find(progress, claim, &claim->ranks[at], now_ns);
		/* A claim that waited for an entry goes on, or ends. */
		progress->reads.has_changed |= !code;
		if (result != KVPULL_EFULL && code)
			result = code;
	}
	return result;
}

int kvpull_room_take(struct kvpull_progress *progress, uint32_t index,
		     uint64_t now_ns)
{
	struct kvpull_room *room = &progress->room;
	struct kvpull_claim *claim = &progress->claims.all[index];
	const int has_turn = room->turn == index;
	int code = 0;

	if (lack_count(claim)) {
		if (claim->order->rank_count >
		    progress->facts->config.peers_max) {
			refuse(progress, claim, now_ns);
			return 0;
		}
		if (claim->pull_count)
			room->pull_ns = now_ns;
		if (!has_turn && !may_take(progress, claim, now_ns))
			return KVPULL_EFULL;
		code = ranks_find(progress, claim, now_ns);
	}
	if (code == KVPULL_EFULL && !claim->waits) {
		/* A newcomer waits for the next try of all, which picks one. */
		if (room->turns.arrival.links[index].linked)
			turn_take(progress, index, now_ns);
		else
			room->due_ns = now_ns;
	}
	if (code && room->turn != index)
		give_back(progress, claim);
	else if (!code && has_turn)
		turn_end(progress, now_ns);
	return code;
}

void kvpull_room_wait(struct kvpull_progress *progress,
		      struct kvpull_claim *claim, uint64_t now_ns)
{
	struct kvpull_room *room = &progress->room;
	uint32_t at;

	for (at = 0; at < claim->order->rank_count; at++)
		if (lacks_entry(&claim->ranks[at]) &&
		    !kvpull_remote_has_way(progress, &claim->order->ranks[at]))
			kvpull_room_close(progress, claim, &claim->ranks[at],
					  KVPULL_RANK_LOST, now_ns);
	/*
	 * Unless another claim has the turn, or too many wait, the claim soon
	 * takes entries of connections that nobody uses, without a line.
	 */
	if ((room->turn != KVPULL_NONE ||
	     room->waited_count + claim->order->rank_count >
		     room->waited_max) &&
	    kvpull_second_passed(&room->said_ns, now_ns))
		kvpull_warn(
			progress->log,
			"no room for a producer's ranks: a ticket is claimed when its pull begins, and may end before: raise peers_max (%u)",
			progress->facts->config.peers_max);
}
