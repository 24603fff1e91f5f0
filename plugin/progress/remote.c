/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, progress side, consumer's role: the producer ranks that we read.
 * plugin/session/peers.h has their connections, which begin with the first claim
 * on one, and lead to the same incarnation only. A peer that is GONE is called
 * again by a claim after retry.at_ns, and evicted when its entry is needed.
 *
 * The claims on a peer that is GONE are given up: their releases will not be
 * said. If it lives after all and is called again, it must not take us for the
 * one that claimed: the hello then carries another incarnation (self), and the
 * peer ends what the former one had, as of a worker that was restarted; also when
 * the entry was used for others meanwhile. Else it is called as the one that it
 * knows: what our siblings claimed while we made room we will claim yet.
 *
 * Timers: beat_ns fires every third of the peer's lease while a claim on it is
 * open; closing_ns bounds how long a peer that is closed to make room has to hear
 * of it. A peer that did not would take us for dead, and end what our siblings
 * claim.
 */
#include <sys/resource.h>

#include "plugin/progress/progress_state.h"

#define SILENT_LEASES 2u        /* of a scheduler half: semantics E.2 */
#define GONE_NS KVPULL_NS_PER_S /* before a lost incarnation is asked again */
#define AWAY_NS (100 * KVPULL_NS_PER_MS)    /* for a peer to hear that we go */
#define AWAY_LOOK_NS (KVPULL_NS_PER_MS / 4) /* did it? Nobody tells. */
/* A peer of this node has three descriptors; a host has some of its own. */
#define PEER_FDS 3u
#define HOST_FDS 64u

_Static_assert(!offsetof(struct kvpull_remote, peer), "begins with its peer");

int kvpull_remote_is_free(const struct kvpull_remote *remote)
{
	return !remote->claim_count && !remote->giving &&
	       (remote->peer.state == KVPULL_PEER_FREE ||
		remote->peer.state == KVPULL_PEER_GONE ||
		remote->peer.state == KVPULL_PEER_WAIT);
}

uint32_t kvpull_remote_free_count(const struct kvpull_remotes *remotes)
{
	uint32_t count = remotes->count - remotes->end;
	uint32_t index;

	for (index = 0; index < remotes->end; index++)
		count += (uint32_t)kvpull_remote_is_free(&remotes->all[index]);
	return count;
}

/* One that was never used, or of those that can be taken the longest unused. */
static uint32_t entry_take(struct kvpull_remotes *remotes)
{
	uint32_t found = KVPULL_NONE;
	uint32_t index;

	if (remotes->end < remotes->count)
		return remotes->end++;
	for (index = 0; index < remotes->end; index++) {
		const struct kvpull_remote *remote = &remotes->all[index];

		if (kvpull_remote_is_free(remote) &&
		    (found == KVPULL_NONE ||
		     remote->used_ns < remotes->all[found].used_ns))
			found = index;
	}
	return found;
}

int kvpull_remote_note(struct kvpull_remote *remote,
		       const struct kvpull_record *record)
{
	struct kvpull_transport *transport = remote->peer.route->transport;

	if (transport->ops->notify(transport, remote->peer.handle, record))
		return KVPULL_EAGAIN;
	remote->notes_said++;
	return 0;
}

/* It lives, and so do we: the producer is told before the connection ends. */
static int part_from(struct kvpull_remotes *remotes,
		     struct kvpull_remote *remote, uint64_t now_ns)
{
	const struct kvpull_record record = { .kind = KVPULL_NOTE_AWAY };

	if (kvpull_remote_note(remote, &record))
		return KVPULL_EAGAIN;
	remote->closing_ns = now_ns + AWAY_NS;
	kvpull_due_by(&remotes->due_ns, now_ns);
	return 0;
}

static void closing_run(struct kvpull_remotes *remotes,
			struct kvpull_remote *remote, uint64_t now_ns)
{
	const struct kvpull_transport *transport =
		remote->peer.route->transport;

	if (now_ns >= remote->closing_ns ||
	    !transport->ops->notes_open(transport, remote->peer.handle))
		kvpull_peer_leave(&remote->peer);
	else
		kvpull_due_by(&remotes->due_ns, now_ns + AWAY_LOOK_NS);
}

/* The connection unused for longest, of those that are not being closed. */
static struct kvpull_remote *idle_find(struct kvpull_remotes *remotes)
{
	struct kvpull_remote *found = NULL;
	uint32_t index;

	for (index = 0; index < remotes->end; index++) {
		struct kvpull_remote *remote = &remotes->all[index];

		if (remote->peer.state == KVPULL_PEER_UP &&
		    !remote->claim_count && !remote->closing_ns &&
		    (!found || remote->used_ns < found->used_ns))
			found = remote;
	}
	return found;
}

uint32_t kvpull_remote_idle_close(struct kvpull_remotes *remotes,
				  uint32_t count, uint64_t now_ns)
{
	struct kvpull_remote *remote;
	uint32_t closing = 0;
	uint32_t index;

	for (index = 0; index < remotes->end; index++) {
		remote = &remotes->all[index];
		closing += remote->peer.state == KVPULL_PEER_UP &&
			   !remote->claim_count && remote->closing_ns;
	}
	while (closing < count) {
		remote = idle_find(remotes);
		if (!remote)
			break;
		closing++;
		/* No room: its engine is slow, and the next try comes soon. */
		if (part_from(remotes, remote, now_ns))
			break;
	}
	return closing;
}

static uint64_t self_next(struct kvpull_names *names)
{
	const uint64_t lives = (UINT64_C(1) << KVPULL_SELF_BITS) - 1;

	return (names->ours & ~lives) | (++names->selves & lives);
}

/*
 * Its peer is forgotten. One that was given up must not meet the name that it
 * knows again; all others must, or they end what our siblings claimed.
 */
static void entry_leave(struct kvpull_remotes *remotes,
			const struct kvpull_remote *remote)
{
	struct kvpull_names *names = &remotes->names;

	if (remote->incarnation)
		kvpull_map_remove(&remotes->map, remote->incarnation);
	if (!names->self)
		names->self = self_next(names);
	if (!remote->gave_up)
		return;
	/* Too many to know them all: nobody meets its name again. */
	if (names->named_count == KVPULL_NAMED_MAX) {
		names->self = self_next(names);
		names->named_count = 0;
		return;
	}
	names->named[names->named_count++] = (struct kvpull_named){
		.incarnation = remote->incarnation,
		.self = remote->self,
	};
}

/* Its own, if it was given up once. */
static void name_take(struct kvpull_names *names, struct kvpull_remote *remote)
{
	uint32_t at;

	remote->self = names->self;
	remote->gave_up = 0;
	for (at = 0; at < names->named_count; at++) {
		if (names->named[at].incarnation != remote->incarnation)
			continue;
		remote->self = names->named[at].self;
		remote->gave_up = 1;
		names->named[at] = names->named[--names->named_count];
		return;
	}
}

/* A failure from a time when nobody waited for it does not count now. */
static void known_find(struct kvpull_remotes *remotes,
		       struct kvpull_remote *remote, uint64_t now_ns)
{
	const int may_be_back = remote->peer.state == KVPULL_PEER_GONE &&
				now_ns >= remote->peer.retry.at_ns;
	const int is_unwanted =
		remote->peer.state == KVPULL_PEER_WAIT && !remote->claim_count;

	if (!may_be_back && !is_unwanted)
		return;
	kvpull_peer_again(&remote->peer);
	kvpull_due_by(&remotes->due_ns, now_ns);
}

/*
 * Its device came back at another address, and its tickets since then say so. A
 * peer that was given up there is called at once.
 */
static void address_take(struct kvpull_remote *remote,
			 const struct kvpull_ticket_rank *rank,
			 uint64_t generation, uint64_t now_ns)
{
	const struct kvpull_transport *transport =
		remote->peer.route->transport;
	char address[KVPULL_ADDRESS_BYTES_MAX];

	if (generation <= remote->named_by)
		return;
	remote->named_by = generation;
	if (kvpull_ticket_address(rank->address, transport->ops->name,
				  address) ||
	    strcmp(address, remote->peer.address) == 0 ||
	    transport->ops->reachable(transport, address))
		return;
	memcpy(remote->peer.address, address, sizeof(remote->peer.address));
	remote->peer.retry.attempts = remote->peer.retry.breaks = 0;
	if (remote->peer.state == KVPULL_PEER_GONE)
		remote->peer.retry.at_ns = now_ns;
}

static int choose(const struct kvpull_progress *progress,
		  const struct kvpull_ticket_rank *rank,
		  struct kvpull_route_choice *choice)
{
	const int code =
		kvpull_routes_choose(&progress->routes, rank->address, choice);

	if (code == KVPULL_EROUTE)
		kvpull_warn(
			progress->log,
			"no allowed route to %s: its worker has ended or is on another node, or it is not of the configured socket folder and networks",
			rank->address);
	return code;
}

int kvpull_remote_has_way(const struct kvpull_progress *progress,
			  const struct kvpull_ticket_rank *rank)
{
	struct kvpull_route_choice choice;

	return kvpull_map_get(&progress->remotes.map, rank->incarnation) !=
		       KVPULL_NONE ||
	       choose(progress, rank, &choice) != KVPULL_EROUTE;
}

int kvpull_remote_find(struct kvpull_progress *progress,
		       const struct kvpull_ticket_rank *rank,
		       uint64_t generation, uint64_t now_ns, uint32_t *peer)
{
	struct kvpull_remotes *remotes = &progress->remotes;
	struct kvpull_route_choice choice;
	struct kvpull_remote *remote;
	uint32_t index = kvpull_map_get(&remotes->map, rank->incarnation);
	int code;

	if (index != KVPULL_NONE) {
		address_take(&remotes->all[index], rank, generation, now_ns);
		known_find(remotes, &remotes->all[index], now_ns);
		*peer = index;
		return 0;
	}
	code = choose(progress, rank, &choice);
	if (code)
		return code == KVPULL_EAGAIN ? code : KVPULL_EROUTE;
	index = entry_take(remotes);
	if (index == KVPULL_NONE)
		return KVPULL_EFULL;
	remote = &remotes->all[index];
	entry_leave(remotes, remote);
	if (kvpull_map_set(&remotes->map, rank->incarnation, index))
		return KVPULL_EFULL;
	remote->incarnation = rank->incarnation;
	name_take(&remotes->names, remote);
	kvpull_peer_begin(&remote->peer, &choice, now_ns);
	remote->claim_count = remote->wait_count = remote->drains = 0;
	remote->closing_ns = 0;
	remote->giving = remote->gave = 0;
	remote->give_retry = (struct kvpull_retry){ 0 };
	remote->life = remote->cut_life = 0;
	remote->fault_life = remotes->lives;
	remote->to_say.first = remote->said.first = KVPULL_NONE;
	remote->used_ns = now_ns;
	remote->named_by = generation;
	kvpull_due_by(&remotes->due_ns, now_ns);
	*peer = index;
	return 0;
}

static void came_up(struct kvpull_progress *progress,
		    struct kvpull_remote *remote)
{
	const uint32_t index = (uint32_t)(remote - progress->remotes.all);

	remote->life = ++progress->remotes.lives;
	remote->closing_ns = 0;
	remote->notes_said = 0;
	remote->beat_ns = progress->run_ns;
	kvpull_due_by(&progress->remotes.due_ns, progress->run_ns);
	kvpull_count_add(&progress->counts->peer_connects, 1);
	kvpull_count_add(&progress->counts->peers_live, 1);
	kvpull_info(
		progress->log,
		"peer %s connected by %s: rank %u, %u strips; %s",
		remote->peer.address, remote->peer.route->transport->ops->name,
		remote->stage.rank, remote->plan.strip_count, remote->peer.why);
	kvpull_show_peer_up(progress, index);
	kvpull_lend(progress, index);
}

/* The end for this incarnation: what waits for it fails. */
static void given_up(struct kvpull_progress *progress,
		     struct kvpull_remote *remote)
{
	remote->self = self_next(&progress->remotes.names);
	remote->gave_up |= remote->claim_count != 0;
	remote->peer.retry.at_ns = progress->run_ns + GONE_NS;
	/* Nobody is where the newest one says: who knows who wrote it. */
	remote->named_by = 0;
	kvpull_due_by(&progress->remotes.due_ns, progress->run_ns);
}

static void failed(struct kvpull_progress *progress,
		   struct kvpull_remote *remote, enum kvpull_peer_state was,
		   int32_t code)
{
	const uint32_t index = (uint32_t)(remote - progress->remotes.all);

	kvpull_count_add(&progress->counts->peer_failures, 1);
	if (was != KVPULL_PEER_WAIT) {
		kvpull_lend_end(progress, index);
		/* Claims may wait for the entry of this peer. */
		progress->room.due_ns = progress->run_ns;
		kvpull_show_peer_down(progress, index, code);
	}
	if (was == KVPULL_PEER_UP) {
		kvpull_count_add(&progress->counts->peers_live, UINT64_MAX);
		if (code == KVPULL_EABORTED)
			remote->cut_life = remote->life;
		else
			remote->fault_life = remote->life;
	}
	if (code == KVPULL_EROUTE &&
	    kvpull_serve_has_devices(&progress->facts->serve))
		remote->peer.why =
			"refused: the memory of its device cannot be mapped here: see the log";
	if (remote->peer.state == KVPULL_PEER_GONE)
		given_up(progress, remote);
	else
		kvpull_due_by(&progress->remotes.due_ns,
			      remote->peer.retry.at_ns);
}

/* Claims on the peer hear of it in this run: see kvpull_claim_run(). */
static void changed(void *own, struct kvpull_peer *peer,
		    enum kvpull_peer_state was, int32_t code)
{
	struct kvpull_progress *progress = own;
	struct kvpull_remote *remote = (struct kvpull_remote *)peer;

	if (peer->state == KVPULL_PEER_CONNECTING ||
	    peer->state == KVPULL_PEER_GREETED)
		return;
	if (peer->state == KVPULL_PEER_UP)
		came_up(progress, remote);
	else
		failed(progress, remote, was, code);
	/* Releases that wait for this peer have to end. */
	remote->changed = progress->remotes.changed = 1;
	progress->reads.has_changed = 1;
}

/* A handle that gives tickets back is of another call: that ends first. */
static int is_wanted(void *own, const struct kvpull_peer *peer)
{
	const struct kvpull_remote *remote = (const struct kvpull_remote *)peer;

	(void)own;
	return remote->claim_count && !remote->giving;
}

static const struct kvpull_peers_owner remote_owner = {
	.hello_put = kvpull_remote_hello,
	.welcome_take = kvpull_remote_welcome,
	.is_wanted = is_wanted,
	.changed = changed,
};

/*
 * A host that is short of descriptors connects to some ranks of each producer,
 * and to all of none: then claims have fewer entries.
 */
static uint32_t entry_count(const struct kvpull_progress *progress)
{
	const struct kvpull_config *config = &progress->facts->config;
	const uint32_t most = kvpull_config_peer_entries(config);
	struct rlimit limit;
	uint64_t room;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return most;
	room = limit.rlim_cur > HOST_FDS ?
		       (limit.rlim_cur - HOST_FDS) / PEER_FDS :
		       0;
	if (room >= most)
		return most;
	kvpull_warn(
		progress->log,
		"ulimit -n is %llu: pulls have few connections to producers beside those of tickets that wait, raise it to %u",
		(unsigned long long)limit.rlim_cur, HOST_FDS + most * PEER_FDS);
	return room > config->peers_max ? (uint32_t)room : config->peers_max;
}

int kvpull_remotes_init(struct kvpull_progress *progress,
			struct kvpull_arena *arena)
{
	struct kvpull_remotes *remotes = &progress->remotes;
	uint32_t index;

	remotes->count = entry_count(progress);
	KVPULL_ARENA_TAKE(arena, remotes->all, remotes->count);
	remotes->peers = (struct kvpull_peers){
		.owner = &remote_owner,
		.own = progress,
		.log = progress->log,
		.config = &progress->facts->config,
		.of_handle =
			kvpull_arena_take(arena, progress->routes.peer_count,
					  sizeof(*remotes->peers.of_handle)),
		.message = progress->scratch.message,
	};
	remotes->names.ours = progress->facts->incarnation;
	KVPULL_ARENA_TAKE(arena, remotes->names.named, KVPULL_NAMED_MAX);
	kvpull_map_init(&remotes->map, remotes->count, arena);
	if (!kvpull_arena_ok(arena))
		return KVPULL_ENOMEM;
	for (index = 0; index < remotes->count; index++) {
		struct kvpull_plan *plan = &remotes->all[index].plan;

		plan->strip_count_max = KVPULL_STRIPS_MAX;
		KVPULL_ARENA_TAKE(arena, plan->strips, KVPULL_STRIPS_MAX);
	}
	return kvpull_arena_ok(arena) ? 0 : KVPULL_ENOMEM;
}

void kvpull_remote_event(struct kvpull_progress *progress,
			 const struct kvpull_route *route,
			 const struct kvpull_event *event, uint64_t now_ns)
{
	struct kvpull_peer **of_handle =
		kvpull_peer_of(&progress->remotes.peers, route, event->index);
	struct kvpull_remote *remote = (struct kvpull_remote *)*of_handle;

	if (!remote || !remote->giving) {
		kvpull_peers_event(&progress->remotes.peers, route, event,
				   now_ns);
		return;
	}
	/* A call that gives tickets back has no event but its end. */
	*of_handle = NULL;
	remote->give_code = event->code;
	remote->gave = 1;
	progress->gives.due_ns = now_ns;
}

/* Rates below 10 GB/s have a digit behind the point. */
static void rate_say(char why[KVPULL_DEVICE_WHY_BYTES], uint32_t bytes_per_us)
{
	const uint32_t tenths = bytes_per_us / 100;

	if (tenths >= 100)
		(void)snprintf(why, KVPULL_DEVICE_WHY_BYTES,
			       KVPULL_DEVICE_WHY_OTHER ", %u GB/s calibrated",
			       tenths / 10);
	else
		(void)snprintf(why, KVPULL_DEVICE_WHY_BYTES,
			       KVPULL_DEVICE_WHY_OTHER
			       ", %u.%u GB/s calibrated",
			       tenths / 10, tenths % 10);
}

void kvpull_remote_rate(struct kvpull_progress *progress,
			const struct kvpull_route *route,
			const struct kvpull_event *event, uint64_t now_ns)
{
	struct kvpull_remote *remote = (struct kvpull_remote *)*kvpull_peer_of(
		&progress->remotes.peers, route, event->index);

	if (!remote)
		return;
	rate_say(remote->device_why, (uint32_t)event->code);
	remote->peer.why = remote->device_why;
	kvpull_show_peer_why(progress,
			     (uint32_t)(remote - progress->remotes.all));
	kvpull_due_by(&progress->remotes.due_ns, now_ns);
}

/* 1: a pull that was begun reads from it, or will. */
static int is_pulled(const struct kvpull_progress *progress, uint32_t index)
{
	const struct kvpull_index_list *live = &progress->reads.live;
	uint32_t at;
	uint32_t rank;

	for (at = live->first; at != KVPULL_NONE; at = live->links[at].next) {
		const struct kvpull_claim *claim = progress->pulls[at].claim;

		for (rank = 0; claim && rank < claim->order->rank_count; rank++)
			if (claim->ranks[rank].peer == index)
				return 1;
	}
	return 0;
}

/*
 * A scheduler half that says nothing for so long may owe a release that nobody
 * steps: its tickets are not worth a producer's memory. While it has tickets it
 * speaks each third of its own lease.
 */
static int is_abandoned(const struct kvpull_progress *progress,
			const struct kvpull_remote *remote, uint64_t now_ns)
{
	const uint64_t own_ns =
		progress->facts->config.lease_ms * KVPULL_NS_PER_MS;
	const uint64_t theirs_ns = 3 * remote->beat_every_ns;
	const uint64_t lease_ns = own_ns > theirs_ns ? own_ns : theirs_ns;
	const uint64_t step_ns = atomic_load_explicit(
		&progress->handover->step_ns, memory_order_relaxed);

	return now_ns > step_ns && now_ns - step_ns > SILENT_LEASES * lease_ns;
}

static void beat(struct kvpull_progress *progress, uint32_t index,
		 uint64_t now_ns)
{
	struct kvpull_remote *remote = &progress->remotes.all[index];
	struct kvpull_transport *transport;

	if (!remote->claim_count)
		return;
	transport = remote->peer.route->transport;
	if (now_ns >= remote->beat_ns) {
		if (!is_abandoned(progress, remote, now_ns) ||
		    is_pulled(progress, index))
			transport->ops->beat(transport, remote->peer.handle);
		remote->beat_ns = now_ns + remote->beat_every_ns;
	}
	kvpull_due_by(&progress->remotes.due_ns, remote->beat_ns);
}

static void run_one(struct kvpull_progress *progress, uint32_t index,
		    uint64_t now_ns)
{
	struct kvpull_remote *remote = &progress->remotes.all[index];

	kvpull_due_by(&progress->remotes.due_ns,
		      kvpull_peer_run(&progress->remotes.peers, &remote->peer,
				      now_ns));
	if (remote->peer.state != KVPULL_PEER_UP)
		return;
	if (remote->closing_ns)
		closing_run(&progress->remotes, remote, now_ns);
	else
		beat(progress, index, now_ns);
}

void kvpull_remote_run(struct kvpull_progress *progress, uint64_t now_ns)
{
	struct kvpull_remotes *remotes = &progress->remotes;
	uint32_t index;

	if (now_ns >= remotes->due_ns) {
		remotes->due_ns = UINT64_MAX;
		for (index = 0; index < remotes->end; index++)
			run_one(progress, index, now_ns);
		kvpull_progress_peers_tell(progress);
	}
	kvpull_due_by(&progress->timer_ns, remotes->due_ns);
}
