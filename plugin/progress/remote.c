/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, progress side, consumer's role: the producer ranks that we
 * read. One connection each, made in the background at the first claim, kept,
 * and made again after a fault to the same incarnation only.
 *
 * state       leaves by
 * WAIT        retry.at_ns: connect() -> CONNECTING, or WAIT again, at last GONE
 * CONNECTING  challenge -> GREETED; down or connect_ms -> WAIT or GONE
 * GREETED     welcome -> UP; refusal or a wrong welcome -> GONE (EAGAIN: WAIT)
 * UP          down -> WAIT
 * GONE        a claim after retry.at_ns -> WAIT; evicted when its entry is needed
 *
 * The claims on a peer that is GONE are given up: their releases will not be
 * said. If it lives after all and is called again, it must not take us for the
 * one that claimed: the hello then carries another incarnation (self), and the
 * peer ends what the former one had, as of a worker that was restarted; also when
 * the entry was used for others meanwhile. Else it is called as the one that it
 * knows: what our siblings claimed while we made room we will claim yet.
 *
 * Timers: retry.at_ns starts at a failed connect and fires the next one;
 * greeted_ns bounds the handshake; beat_ns fires every third of the peer's
 * lease while a claim on it is open; closing_ns bounds how long a peer that is
 * closed to make room has to hear of it. A peer that did not would take us for
 * dead, and end what our siblings claim.
 */
#include "plugin/progress/progress_state.h"

#define SILENT_LEASES 2u        /* of a scheduler half: semantics E.2 */
#define GONE_NS KVPULL_NS_PER_S /* before a lost incarnation is asked again */
#define AWAY_NS (100 * KVPULL_NS_PER_MS)    /* for a peer to hear that we go */
#define AWAY_LOOK_NS (KVPULL_NS_PER_MS / 4) /* did it? Nobody tells. */

static void due_at(struct kvpull_progress *progress, uint64_t at_ns)
{
	if (at_ns < progress->remote_ns)
		progress->remote_ns = at_ns;
}

int kvpull_remote_is_free(const struct kvpull_remote *remote)
{
	return !remote->claim_count && !remote->giving &&
	       (remote->state == KVPULL_REMOTE_FREE ||
		remote->state == KVPULL_REMOTE_GONE ||
		remote->state == KVPULL_REMOTE_WAIT);
}

uint32_t kvpull_remote_free_count(const struct kvpull_progress *progress)
{
	uint32_t count = progress->remote_count - progress->remote_end;
	uint32_t index;

	for (index = 0; index < progress->remote_end; index++)
		count += (uint32_t)kvpull_remote_is_free(
			&progress->remotes[index]);
	return count;
}

/* One that was never used, or of those that can be taken the longest unused. */
static uint32_t entry_take(struct kvpull_progress *progress)
{
	uint32_t found = KVPULL_NONE;
	uint32_t index;

	if (progress->remote_end < progress->remote_count)
		return progress->remote_end++;
	for (index = 0; index < progress->remote_end; index++) {
		const struct kvpull_remote *remote = &progress->remotes[index];

		if (kvpull_remote_is_free(remote) &&
		    (found == KVPULL_NONE ||
		     remote->used_ns < progress->remotes[found].used_ns))
			found = index;
	}
	return found;
}

static void remote_disconnect(const struct kvpull_remote *remote)
{
	struct kvpull_transport *transport = remote->route->transport;

	transport->ops->disconnect(transport, remote->handle);
}

int kvpull_remote_note(struct kvpull_remote *remote,
		       const struct kvpull_record *record)
{
	struct kvpull_transport *transport = remote->route->transport;

	if (transport->ops->notify(transport, remote->handle, record))
		return KVPULL_EAGAIN;
	remote->notes_said++;
	return 0;
}

/* It lives, and so do we: the producer is told before the connection ends. */
static int part_from(struct kvpull_progress *progress,
		     struct kvpull_remote *remote, uint64_t now_ns)
{
	const struct kvpull_record record = { .kind = KVPULL_NOTE_AWAY };

	if (kvpull_remote_note(remote, &record))
		return KVPULL_EAGAIN;
	remote->closing_ns = now_ns + AWAY_NS;
	due_at(progress, now_ns);
	return 0;
}

static void closing_run(struct kvpull_progress *progress,
			const struct kvpull_remote *remote, uint64_t now_ns)
{
	const struct kvpull_transport *transport = remote->route->transport;

	if (now_ns >= remote->closing_ns ||
	    !transport->ops->notes_open(transport, remote->handle))
		remote_disconnect(remote);
	else
		due_at(progress, now_ns + AWAY_LOOK_NS);
}

/* The connection unused for longest, of those that are not being closed. */
static struct kvpull_remote *idle_find(struct kvpull_progress *progress)
{
	struct kvpull_remote *found = NULL;
	uint32_t index;

	for (index = 0; index < progress->remote_end; index++) {
		struct kvpull_remote *remote = &progress->remotes[index];

		if (remote->state == KVPULL_REMOTE_UP && !remote->claim_count &&
		    !remote->closing_ns &&
		    (!found || remote->used_ns < found->used_ns))
			found = remote;
	}
	return found;
}

uint32_t kvpull_remote_idle_close(struct kvpull_progress *progress,
				  uint32_t count, uint64_t now_ns)
{
	struct kvpull_remote *remote;
	uint32_t closing = 0;
	uint32_t index;

	for (index = 0; index < progress->remote_end; index++)
		closing += progress->remotes[index].state == KVPULL_REMOTE_UP &&
			   !progress->remotes[index].claim_count &&
			   progress->remotes[index].closing_ns;
	while (closing < count) {
		remote = idle_find(progress);
		if (!remote)
			break;
		closing++;
		/* No room: its engine is slow, and the next try comes soon. */
		if (part_from(progress, remote, now_ns))
			break;
	}
	return closing;
}

static uint64_t self_next(struct kvpull_progress *progress)
{
	const uint64_t lives = (UINT64_C(1) << KVPULL_SELF_BITS) - 1;

	return (progress->facts->incarnation & ~lives) |
	       (++progress->selves & lives);
}

/*
 * Its peer is forgotten. One that was given up must not meet the name that it
 * knows again; all others must, or they end what our siblings claimed.
 */
static void entry_leave(struct kvpull_progress *progress,
			const struct kvpull_remote *remote)
{
	if (remote->incarnation)
		kvpull_map_remove(&progress->remote_map, remote->incarnation);
	if (!progress->self)
		progress->self = self_next(progress);
	if (!remote->gave_up)
		return;
	/* Too many to know them all: nobody meets its name again. */
	if (progress->named_count == KVPULL_NAMED_MAX) {
		progress->self = self_next(progress);
		progress->named_count = 0;
		return;
	}
	progress->named[progress->named_count++] = (struct kvpull_named){
		.incarnation = remote->incarnation,
		.self = remote->self,
	};
}

/* Its own, if it was given up once. */
static void name_take(struct kvpull_progress *progress,
		      struct kvpull_remote *remote)
{
	uint32_t at;

	remote->self = progress->self;
	remote->gave_up = 0;
	for (at = 0; at < progress->named_count; at++) {
		if (progress->named[at].incarnation != remote->incarnation)
			continue;
		remote->self = progress->named[at].self;
		remote->gave_up = 1;
		progress->named[at] = progress->named[--progress->named_count];
		return;
	}
}

/* A failure from a time when nobody waited for it does not count now. */
static void known_find(struct kvpull_progress *progress,
		       struct kvpull_remote *remote, uint64_t now_ns)
{
	const int may_be_back = remote->state == KVPULL_REMOTE_GONE &&
				now_ns >= remote->retry.at_ns;
	const int is_unwanted =
		remote->state == KVPULL_REMOTE_WAIT && !remote->claim_count;

	if (!may_be_back && !is_unwanted)
		return;
	remote->state = KVPULL_REMOTE_WAIT;
	remote->code = 0;
	remote->retry = (struct kvpull_retry){ .at_ns = remote->retry.at_ns };
	due_at(progress, now_ns);
}

/*
 * Its device came back at another address, and its tickets since then say so. A
 * peer that was given up there is called at once.
 */
static void address_take(struct kvpull_remote *remote,
			 const struct kvpull_ticket_rank *rank,
			 uint64_t generation, uint64_t now_ns)
{
	const struct kvpull_transport *transport = remote->route->transport;
	char address[KVPULL_ADDRESS_BYTES_MAX];

	if (generation <= remote->named_by)
		return;
	remote->named_by = generation;
	if (kvpull_ticket_address(rank->address, transport->ops->name,
				  address) ||
	    strcmp(address, remote->address) == 0 ||
	    transport->ops->reachable(transport, address))
		return;
	memcpy(remote->address, address, sizeof(remote->address));
	remote->retry.attempts = 0;
	if (remote->state == KVPULL_REMOTE_GONE)
		remote->retry.at_ns = now_ns;
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

	return kvpull_map_get(&progress->remote_map, rank->incarnation) !=
		       KVPULL_NONE ||
	       choose(progress, rank, &choice) != KVPULL_EROUTE;
}

int kvpull_remote_find(struct kvpull_progress *progress,
		       const struct kvpull_ticket_rank *rank,
		       uint64_t generation, uint64_t now_ns, uint32_t *peer)
{
	struct kvpull_route_choice choice;
	struct kvpull_remote *remote;
	uint32_t index =
		kvpull_map_get(&progress->remote_map, rank->incarnation);
	int code;

	if (index != KVPULL_NONE) {
		address_take(&progress->remotes[index], rank, generation,
			     now_ns);
		known_find(progress, &progress->remotes[index], now_ns);
		*peer = index;
		return 0;
	}
	code = choose(progress, rank, &choice);
	if (code)
		return code == KVPULL_EAGAIN ? code : KVPULL_EROUTE;
	index = entry_take(progress);
	if (index == KVPULL_NONE)
		return KVPULL_EFULL;
	remote = &progress->remotes[index];
	entry_leave(progress, remote);
	if (kvpull_map_set(&progress->remote_map, rank->incarnation, index))
		return KVPULL_EFULL;
	remote->incarnation = rank->incarnation;
	name_take(progress, remote);
	remote->state = KVPULL_REMOTE_WAIT;
	remote->code = 0;
	remote->claim_count = remote->wait_count = remote->drains = 0;
	remote->closing_ns = 0;
	remote->refused = remote->giving = remote->gave = 0;
	remote->give_retry = (struct kvpull_retry){ 0 };
	remote->life = remote->cut_life = 0;
	remote->fault_life = progress->lives;
	remote->to_say.first = remote->said.first = KVPULL_NONE;
	remote->retry = (struct kvpull_retry){ .at_ns = now_ns };
	remote->used_ns = now_ns;
	remote->named_by = generation;
	remote->route = choice.route;
	remote->why = choice.why;
	memcpy(remote->address, choice.address, sizeof(remote->address));
	due_at(progress, now_ns);
	*peer = index;
	return 0;
}

/* Its claims hear of it in this run: see kvpull_claim_run(). */
static void changed(struct kvpull_progress *progress, uint32_t index)
{
	progress->remotes[index].changed = progress->remotes_changed = 1;
}

/* The end for this incarnation: what waits for it fails. */
static void give_up(struct kvpull_progress *progress, uint32_t index,
		    int32_t code, uint32_t refused, uint64_t now_ns)
{
	struct kvpull_remote *remote = &progress->remotes[index];

	remote->refused = refused;
	remote->state = KVPULL_REMOTE_GONE;
	remote->self = self_next(progress);
	remote->gave_up |= remote->claim_count != 0;
	remote->code = code;
	remote->retry.at_ns = now_ns + GONE_NS;
	/* Nobody is where the newest one says: who knows who wrote it. */
	remote->named_by = 0;
	due_at(progress, now_ns);
	changed(progress, index);
	progress->pulls_dirty = 1;
}

static void wait_for_retry(struct kvpull_progress *progress, uint32_t index,
			   int32_t code)
{
	struct kvpull_remote *remote = &progress->remotes[index];

	remote->state = KVPULL_REMOTE_WAIT;
	remote->code = code;
	due_at(progress, remote->retry.at_ns);
	/* Releases do not wait for ever. */
	changed(progress, index);
	progress->pulls_dirty = 1;
}

/* No attempt is left. */
static void attempts_end(struct kvpull_progress *progress, uint32_t index,
			 int32_t code, uint64_t now_ns)
{
	const struct kvpull_remote *remote = &progress->remotes[index];

	kvpull_warn(progress->log, "peer %s is gone after %u attempts",
		    remote->address, remote->retry.attempts);
	give_up(progress, index, code, code != KVPULL_EPEER, now_ns);
}

static void try_later(struct kvpull_progress *progress, uint32_t index,
		      int32_t code, uint64_t now_ns)
{
	struct kvpull_remote *remote = &progress->remotes[index];

	kvpull_count_add(&progress->counts->peer_failures, 1);
	if (kvpull_retry_failed(&remote->retry, code, now_ns))
		attempts_end(progress, index, code, now_ns);
	else
		wait_for_retry(progress, index, code);
}

static void try_connect(struct kvpull_progress *progress, uint32_t index,
			uint64_t now_ns)
{
	struct kvpull_remote *remote = &progress->remotes[index];
	struct kvpull_transport *transport = remote->route->transport;
	uint32_t handle;
	int code;

	code = transport->ops->connect(transport, remote->address, &handle);
	if (code) {
		try_later(progress, index, code, now_ns);
		return;
	}
	remote->handle = handle;
	progress->remote_of[remote->route->peer_first + handle] = remote;
	remote->state = KVPULL_REMOTE_CONNECTING;
	remote->code = 0;
	remote->greeted_ns =
		now_ns + progress->facts->config.connect_ms * KVPULL_NS_PER_MS;
	due_at(progress, remote->greeted_ns);
}

static void came_up(struct kvpull_progress *progress, uint32_t index,
		    uint64_t now_ns)
{
	struct kvpull_remote *remote = &progress->remotes[index];

	remote->state = KVPULL_REMOTE_UP;
	remote->life = ++progress->lives;
	remote->closing_ns = 0;
	remote->notes_said = 0;
	remote->code = 0;
	remote->retry.up_ns = now_ns;
	remote->beat_ns = now_ns;
	due_at(progress, now_ns);
	kvpull_count_add(&progress->counts->peer_connects, 1);
	kvpull_count_add(&progress->counts->peers_live, 1);
	kvpull_info(progress->log,
		    "peer %s connected by %s: rank %u, %u strips; %s",
		    remote->address, remote->route->transport->ops->name,
		    remote->tp_rank, remote->plan.strip_count, remote->why);
	kvpull_show_peer_up(progress, index);
	changed(progress, index);
	progress->pulls_dirty = 1;
	kvpull_lend(progress, index);
}

static void message(struct kvpull_progress *progress, uint32_t index,
		    const struct kvpull_event *event, uint64_t now_ns)
{
	struct kvpull_remote *remote = &progress->remotes[index];
	const int kind = kvpull_handshake_kind(event->data, event->data_bytes);

	if (kind == KVPULL_MESSAGE_CHALLENGE &&
	    remote->state == KVPULL_REMOTE_CONNECTING) {
		if (kvpull_remote_greet(progress, remote, event))
			remote_disconnect(remote);
		return;
	}
	if (kind == KVPULL_MESSAGE_WELCOME &&
	    remote->state == KVPULL_REMOTE_GREETED) {
		remote->code = kvpull_remote_welcome(progress, remote, event);
		if (!remote->code) {
			came_up(progress, index, now_ns);
			return;
		}
	} else if (kind == KVPULL_MESSAGE_REFUSAL) {
		kvpull_remote_refused(progress, remote, event);
	} else {
		remote->code = kind < 0 ? kind : KVPULL_EPROTO;
	}
	remote_disconnect(remote);
}

int kvpull_remote_lost_code(const struct kvpull_remote *remote, uint64_t life)
{
	/* Who waits for another rank may have missed one cut, or several. */
	if (remote->cut_life == life || remote->fault_life < life)
		return KVPULL_EABORTED;
	return KVPULL_EPEER;
}

/* The pulls of this peer failed; notes that are left need another connection. */
static void lost(struct kvpull_progress *progress, uint32_t index, int32_t code,
		 uint64_t now_ns)
{
	struct kvpull_remote *remote = &progress->remotes[index];
	const uint64_t connect_ns =
		progress->facts->config.connect_ms * KVPULL_NS_PER_MS;

	kvpull_count_add(&progress->counts->peers_live, UINT64_MAX);
	kvpull_count_add(&progress->counts->peer_failures, 1);
	if (code == KVPULL_EABORTED)
		remote->cut_life = remote->life;
	else
		remote->fault_life = remote->life;
	if (kvpull_retry_lost(&remote->retry, code, connect_ns, now_ns))
		attempts_end(progress, index, KVPULL_EPEER, now_ns);
	else
		wait_for_retry(progress, index, 0);
}

static void down(struct kvpull_progress *progress, uint32_t index,
		 const struct kvpull_event *event, uint64_t now_ns)
{
	struct kvpull_remote *remote = &progress->remotes[index];
	const int32_t code = remote->code ? remote->code :
			     event->code  ? event->code :
					    KVPULL_EPEER;

	progress->remote_of[remote->route->peer_first + remote->handle] = NULL;
	if (remote->giving) {
		remote->give_code = event->code;
		remote->gave = 1;
		progress->give_ns = now_ns;
		return;
	}
	kvpull_lend_end(progress, index);
	/* Its entry may be what claims wait for. */
	progress->room_ns = now_ns;
	kvpull_show_peer_down(progress, index, code);
	if (remote->state == KVPULL_REMOTE_UP) {
		lost(progress, index, event->code, now_ns);
		return;
	}
	/* A refusal is final, unless it names a shortage. */
	if (remote->code && !kvpull_retry_is_shortage(remote->code)) {
		kvpull_count_add(&progress->counts->peer_failures, 1);
		/* KVPULL_EPEER: another incarnation has nothing of ours. */
		give_up(progress, index, code, code != KVPULL_EPEER, now_ns);
		return;
	}
	try_later(progress, index, code, now_ns);
}

void kvpull_remote_event(struct kvpull_progress *progress,
			 const struct kvpull_route *route,
			 const struct kvpull_event *event, uint64_t now_ns)
{
	struct kvpull_remote *remote;
	uint32_t index;

	kvpull_check(progress->log,
		     event->index < route->transport->peer_count_max);
	remote = progress->remote_of[route->peer_first + event->index];
	if (!remote)
		return;
	index = (uint32_t)(remote - progress->remotes);
	if (event->kind == KVPULL_EVENT_PEER_MESSAGE)
		message(progress, index, event, now_ns);
	else
		down(progress, index, event, now_ns);
}

/* 1: a pull that was begun reads from it, or will. */
static int is_pulled(const struct kvpull_progress *progress, uint32_t index)
{
	uint32_t at;
	uint32_t rank;

	for (at = 0; at < progress->live_count; at++) {
		const struct kvpull_pull *pull =
			&progress->pulls[progress->live[at]];
		const struct kvpull_claim *claim =
			&progress->claims[pull->order->claim];

		for (rank = 0;
		     pull->uses_claim && rank < claim->order->rank_count;
		     rank++)
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
	struct kvpull_remote *remote = &progress->remotes[index];
	struct kvpull_transport *transport;

	if (!remote->claim_count)
		return;
	transport = remote->route->transport;
	if (now_ns >= remote->beat_ns) {
		if (!is_abandoned(progress, remote, now_ns) ||
		    is_pulled(progress, index))
			transport->ops->beat(transport, remote->handle);
		remote->beat_ns = now_ns + remote->beat_every_ns;
	}
	due_at(progress, remote->beat_ns);
}

static void run_one(struct kvpull_progress *progress, uint32_t index,
		    uint64_t now_ns)
{
	struct kvpull_remote *remote = &progress->remotes[index];

	switch (remote->state) {
	case KVPULL_REMOTE_WAIT:
		/* Its handle is of another call: that ends first. */
		if (remote->giving)
			break;
		/* Nobody waits for it: it is tried again when somebody does. */
		if (!remote->claim_count)
			break;
		if (now_ns >= remote->retry.at_ns)
			try_connect(progress, index, now_ns);
		else
			due_at(progress, remote->retry.at_ns);
		break;
	case KVPULL_REMOTE_CONNECTING:
	case KVPULL_REMOTE_GREETED:
		if (now_ns >= remote->greeted_ns)
			remote_disconnect(remote);
		else
			due_at(progress, remote->greeted_ns);
		break;
	case KVPULL_REMOTE_UP:
		if (remote->closing_ns)
			closing_run(progress, remote, now_ns);
		else
			beat(progress, index, now_ns);
		break;
	case KVPULL_REMOTE_FREE:
	case KVPULL_REMOTE_GONE:
		break;
	}
}

void kvpull_remote_run(struct kvpull_progress *progress, uint64_t now_ns)
{
	uint32_t index;

	if (now_ns < progress->remote_ns) {
		kvpull_progress_timer(progress, progress->remote_ns);
		return;
	}
	progress->remote_ns = UINT64_MAX;
	for (index = 0; index < progress->remote_end; index++)
		run_one(progress, index, now_ns);
	kvpull_progress_peers_tell(progress);
	kvpull_progress_timer(progress, progress->remote_ns);
}
