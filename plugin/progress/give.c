/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, progress side, consumer's role: tickets of producers that do not
 * let us in.
 *
 * A release needs a connection, and a producer that refuses us gives none. So a
 * ticket is given back by its tag, in a call of its own: it says slot, generation
 * and tag of each ticket, and ends. That is done at once where either side refused
 * (GONE), whoever still waits to use the ticket. It is done when the last user of
 * the ticket is done where the producer turned us away until the waits are the
 * longest (WAIT), and never heard of the claim.
 *
 * Ranks to be given back wait in their peer's to_say, as those do that wait for
 * room for a note. A call that failed by a shortage, or that was not answered in
 * time, is made again until the tickets expire; a producer that nobody finds has
 * ended.
 */
#include "base/params.h"
#include "plugin/progress/progress_state.h"

/* The first tickets that wait, at most as many as a call takes. */
static void words_fill(const struct kvpull_claims *claims,
		       const struct kvpull_remote *remote,
		       struct kvpull_give *give)
{
	const struct kvpull_transport *transport =
		remote->peer.route->transport;
	const uint32_t room = kvpull_give_room(transport->ops->give_bytes_max);
	uint32_t id = remote->to_say.first;

	give->magic = KVPULL_GIVE_MAGIC;
	for (give->word_count = 0; id != KVPULL_NONE && give->word_count < room;
	     id = kvpull_claim_rank_of(claims, id)->next) {
		const struct kvpull_claim_order *order =
			claims->all[id / KVPULL_RANKS_MAX].order;

		give->words[give->word_count++] = (struct kvpull_give_word){
			.slot = order->slot,
			.generation = order->generation,
			.tag = order->ranks[id % KVPULL_RANKS_MAX].tag,
		};
	}
}

static int call(const struct kvpull_scratch *scratch,
		struct kvpull_remote *remote)
{
	struct kvpull_transport *transport = remote->peer.route->transport;
	const size_t byte_count = kvpull_give_put(
		scratch->message, KVPULL_MESSAGE_BYTES_MAX, scratch->give);

	if (!byte_count)
		return KVPULL_EUNSUPPORTED;
	return transport->ops->give(transport, remote->peer.address,
				    scratch->message, byte_count,
				    &remote->peer.handle);
}

/* A shortage passes. For a producer that is not there nothing is left to do. */
static void failed(struct kvpull_progress *progress,
		   struct kvpull_remote *remote, int32_t code, uint64_t now_ns)
{
	if (kvpull_retry_is_shortage(code) &&
	    !kvpull_retry_failed(&remote->give_retry, code, now_ns)) {
		kvpull_due_by(&progress->gives.due_ns,
			      remote->give_retry.at_ns);
		/* Tickets that expired meanwhile leave the list. */
		remote->changed = progress->remotes.changed = 1;
		return;
	}
	kvpull_info(progress->log, "peer %s did not take its tickets back: %s",
		    remote->peer.address, kvpull_error_name(code));
	remote->give_retry = (struct kvpull_retry){ 0 };
	kvpull_claim_given(progress, remote, UINT32_MAX, KVPULL_RANK_LOST,
			   now_ns);
}

static void say(struct kvpull_progress *progress,
		const struct kvpull_remote *remote, uint64_t now_ns)
{
	const uint32_t claim = remote->to_say.first / KVPULL_RANKS_MAX;

	if (!kvpull_second_passed(&progress->gives.said_ns, now_ns))
		return;
	kvpull_warn(
		progress->log,
		"tickets of peer %s cannot be used (%s): %u were given back, the first of request %s",
		remote->peer.address, kvpull_error_name(remote->peer.code),
		remote->giving,
		kvpull_log_label(progress->claims.all[claim].order->label));
}

static void begin(struct kvpull_progress *progress,
		  struct kvpull_remote *remote, uint64_t now_ns)
{
	struct kvpull_give *give = progress->scratch.give;
	int code;

	words_fill(&progress->claims, remote, give);
	code = call(&progress->scratch, remote);
	if (code) {
		failed(progress, remote, code, now_ns);
		return;
	}
	*kvpull_peer_of(&progress->remotes.peers, remote->peer.route,
			remote->peer.handle) = &remote->peer;
	remote->giving = give->word_count;
	remote->peer.greeted_ns =
		now_ns + progress->facts->config.connect_ms * KVPULL_NS_PER_MS;
	kvpull_due_by(&progress->gives.due_ns, remote->peer.greeted_ns);
}

static void end(struct kvpull_progress *progress, struct kvpull_remote *remote,
		uint64_t now_ns)
{
	const uint32_t count = remote->giving;
	/* A producer that is late is there, and busy: that passes. */
	const int32_t code =
		remote->give_code && now_ns >= remote->peer.greeted_ns ?
			KVPULL_EAGAIN :
			remote->give_code;

	if (!remote->give_code) {
		say(progress, remote, now_ns);
		kvpull_count_add(&progress->counts->gives_said, count);
		kvpull_claim_given(progress, remote, count,
				   KVPULL_RANK_RELEASED, now_ns);
		remote->give_retry = (struct kvpull_retry){ 0 };
	}
	remote->giving = remote->gave = 0;
	/* A claim that came meanwhile waited for the end of this call. */
	if (remote->peer.state == KVPULL_PEER_WAIT) {
		progress->remotes.due_ns = now_ns;
		kvpull_due_by(&progress->timer_ns, now_ns);
	}
	if (code)
		failed(progress, remote, code, now_ns);
}

static void run_one(struct kvpull_progress *progress,
		    struct kvpull_remote *remote, uint64_t now_ns)
{
	if (remote->gave)
		end(progress, remote, now_ns);
	if (remote->giving && now_ns >= remote->peer.greeted_ns)
		kvpull_peer_disconnect(&remote->peer);
	else if (remote->giving)
		kvpull_due_by(&progress->gives.due_ns, remote->peer.greeted_ns);
	else if (remote->to_say.first == KVPULL_NONE ||
		 (remote->peer.state != KVPULL_PEER_GONE &&
		  remote->peer.state != KVPULL_PEER_WAIT))
		return;
	else if (now_ns < remote->give_retry.at_ns)
		kvpull_due_by(&progress->gives.due_ns,
			      remote->give_retry.at_ns);
	else
		begin(progress, remote, now_ns);
}

void kvpull_give_run(struct kvpull_progress *progress, uint64_t now_ns)
{
	uint32_t index;

	if (now_ns >= progress->gives.due_ns) {
		progress->gives.due_ns = UINT64_MAX;
		for (index = 0; index < progress->remotes.end; index++)
			run_one(progress, &progress->remotes.all[index],
				now_ns);
	}
	kvpull_due_by(&progress->timer_ns, progress->gives.due_ns);
}
