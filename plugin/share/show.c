/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows a handle and its counters in its status file. The one calling thread
 * owns all rows. Puts and bumps store nothing here: the next poll shows their
 * counts. Without a file nothing is stored.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/params.h"
#include "plugin/share/share_state.h"

#define FROM_OWN(member) share->counts.member
#define FROM_SHARE(member) share->member
#define FROM_SPILLS(member) share->spills.member
#define FROM_REFUSED(member) count_of(&share->member)
#define FROM_LOG(member) count_of(&share->log_budget.member)
#define FROM_ARENA(member) (share->arena.member + share->pool_arena.member)
#define COPY(name, kind, from, help) counts->name = FROM_##from;

static uint64_t count_of(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void counts_get(const struct kvpull_reader *share,
		       union kvpull_reader_counts *counts)
{
	KVPULL_READER_COUNTERS(COPY)
}

int kvpull_share_counters(struct kvpull_reader *share,
			  struct kvpull_counter *counters, uint32_t capacity,
			  size_t counter_bytes)
{
	union kvpull_reader_counts counts;

	if (share)
		counts_get(share, &counts);
	return kvpull_counters_list(&kvpull_reader_counters,
				    share ? counts.values : NULL, counters,
				    capacity, counter_bytes);
}

static int is_shown(const struct kvpull_reader *share)
{
	return kvpull_status_is_on(&share->status.engine);
}

int kvpull_share_show_open(struct kvpull_reader *share, uint32_t tp_size)
{
	const struct kvpull_status_params params = {
		.log = &share->log,
		.config = &share->config,
		.engine_id = share->engine_id,
		.incarnation = share->incarnation,
		.now_ns = kvpull_clock_ns(),
		.rank_count = tp_size,
		.caller_count_max = share->routes.caller_count,
		.peer_count_max = share->links_max,
		.kind = KVPULL_STATUS_OF_POOL,
	};

	share->run_ns = params.now_ns;
	return kvpull_status_open(&share->status, &params);
}

void kvpull_share_show_close(struct kvpull_reader *share)
{
	kvpull_share_show_counts(share);
	kvpull_status_close(&share->status);
}

void kvpull_share_show_run(struct kvpull_reader *share, uint64_t now_ns)
{
	share->run_ns = now_ns;
	kvpull_status_ran(&share->status.engine, now_ns);
	kvpull_status_keep_young(&share->status, now_ns);
}

void kvpull_share_show_counts(struct kvpull_reader *share)
{
	_Atomic uint64_t *rows;
	union kvpull_reader_counts counts;
	uint32_t at;

	if (!is_shown(share))
		return;
	rows = share->status.engine.thread->counters;
	counts_get(share, &counts);
	for (at = 0; at < KVPULL_READER_COUNTER_COUNT; at++)
		kvpull_status_set(&rows[at], counts.values[at]);
}

/* Shows open asks at once, so that a reader which hangs is seen waiting. */
void kvpull_share_show_asked(struct kvpull_reader *share)
{
	const size_t at = offsetof(union kvpull_reader_counts, asks_live) /
			  sizeof(uint64_t);

	if (is_shown(share))
		kvpull_status_set(&share->status.engine.thread->counters[at],
				  share->counts.asks_live);
}

void kvpull_share_show_pool(struct kvpull_reader *share)
{
	struct kvpull_status_pool *row = share->status.pool;

	if (!is_shown(share))
		return;
	kvpull_status_set(&row->chunk_bytes, share->chunk_bytes);
	kvpull_status_set(&row->chunk_count, share->terms.chunk_count);
	kvpull_status_set(&row->slot_count, share->terms.slot_count);
	kvpull_status_set(&row->state, share->is_ended ? KVPULL_SHOWN_GONE :
							 KVPULL_SHOWN_HERE);
}

static void note(struct kvpull_reader *share, enum kvpull_status_what what,
		 uint32_t slot, uint64_t who, int32_t code)
{
	const struct kvpull_status_note made = {
		.at_ns = share->run_ns,
		.who = who,
		.slot = slot,
		.what = what,
		.arg = -code,
	};

	kvpull_status_note(&share->status.engine, &made);
}

/* ---- owners that are read ---- */

static struct kvpull_status_peer *row_of(const struct kvpull_reader *share,
					 const struct kvpull_share_link *link)
{
	return &share->status.peers[link - share->links];
}

void kvpull_share_show_link(struct kvpull_reader *share,
			    const struct kvpull_share_link *link)
{
	struct kvpull_status_peer *row;

	if (!is_shown(share))
		return;
	row = row_of(share, link);
	if (kvpull_status_get(&row->state) != link->peer.state)
		kvpull_status_set(&row->since_ns, share->run_ns);
	if (link->peer.state == KVPULL_PEER_FREE)
		kvpull_status_set(&row->incarnation, 0);
	kvpull_status_set(&row->retries, link->peer.state == KVPULL_PEER_UP ?
						 0 :
						 link->peer.retry.attempts);
	kvpull_status_set(&row->error, link->error);
	kvpull_status_set(&row->state, link->peer.state);
}

void kvpull_share_show_link_new(struct kvpull_reader *share,
				const struct kvpull_share_link *link)
{
	struct kvpull_status_peer *row;

	if (!is_shown(share))
		return;
	row = row_of(share, link);
	kvpull_status_peer_new(row, link->shown.route, link->shown.address,
			       link->peer.why);
	kvpull_share_show_link(share, link);
}

void kvpull_share_show_link_up(struct kvpull_reader *share,
			       const struct kvpull_share_link *link,
			       uint32_t pid)
{
	struct kvpull_status_peer *row;

	if (!is_shown(share))
		return;
	row = row_of(share, link);
	kvpull_status_set(&row->incarnation, link->shown.incarnation);
	kvpull_status_set(&row->up_ns, share->run_ns);
	row->pid = pid;
	kvpull_status_text(row->engine_id, sizeof(row->engine_id),
			   link->shown.engine_id);
	kvpull_status_text(row->why, sizeof(row->why), link->peer.why);
	note(share, KVPULL_DID_UP, (uint32_t)(link - share->links),
	     link->shown.incarnation, 0);
}

void kvpull_share_show_link_down(struct kvpull_reader *share,
				 const struct kvpull_share_link *link,
				 int32_t code)
{
	if (is_shown(share))
		note(share, KVPULL_DID_DOWN, (uint32_t)(link - share->links),
		     kvpull_status_get(&row_of(share, link)->incarnation),
		     code);
}

void kvpull_share_show_refusal(struct kvpull_reader *share,
			       const struct kvpull_share_link *link,
			       const char *field, const char *there,
			       const char *here)
{
	char why[KVPULL_STATUS_ADDRESS_BYTES];

	if (!is_shown(share))
		return;
	(void)snprintf(why, sizeof(why), "%.30s is %.38s there and %.38s here",
		       field, there, here);
	kvpull_status_text(row_of(share, link)->why, sizeof(why), why);
}

/* ---- readers of our share ---- */

void kvpull_share_show_caller(struct kvpull_reader *share,
			      const struct kvpull_caller *caller, uint32_t uid)
{
	const uint32_t index = kvpull_caller_index(&share->callers, caller);
	struct kvpull_status_consumer *row;

	if (!is_shown(share))
		return;
	row = &share->status.consumers[index];
	kvpull_status_set(&row->state, KVPULL_SHOWN_NONE);
	kvpull_status_set(&row->instance, share->hello->incarnation);
	kvpull_status_set(&row->incarnation, share->hello->incarnation);
	kvpull_status_set(&row->since_ns, share->run_ns);
	row->pid = share->hello->pid;
	row->uid = uid;
	row->rank_count = share->hello->naming.tp_size;
	kvpull_status_text(row->route, sizeof(row->route),
			   caller->route->transport->ops->name);
	kvpull_status_text(row->engine_id, sizeof(row->engine_id),
			   share->hello->engine_id);
	kvpull_status_set(&row->state, KVPULL_SHOWN_HERE);
	note(share, KVPULL_DID_JOIN, index, share->hello->incarnation, 0);
}

void kvpull_share_show_caller_gone(struct kvpull_reader *share,
				   const struct kvpull_caller *caller)
{
	const uint32_t index = kvpull_caller_index(&share->callers, caller);
	struct kvpull_status_consumer *row;

	if (!is_shown(share))
		return;
	row = &share->status.consumers[index];
	kvpull_status_set(&row->state, KVPULL_SHOWN_GONE);
	kvpull_status_set(&row->since_ns, share->run_ns);
	note(share, KVPULL_DID_LEAVE, index, kvpull_status_get(&row->instance),
	     0);
}

/* ---- reads ---- */

uint64_t kvpull_share_show_clock(const struct kvpull_reader *share)
{
	return is_shown(share) ? kvpull_clock_ns() : 0;
}

void kvpull_share_show_read(struct kvpull_reader *share,
			    const struct kvpull_share_ask *ask,
			    const struct kvpull_share_reader_end *end,
			    uint64_t bytes)
{
	const struct kvpull_status_side *side = &share->status.engine;
	struct kvpull_status_peer *row;
	int32_t failed = 0;
	uint32_t at;

	if (!is_shown(share))
		return;
	row = &share->status.peers[ask->peer];
	for (at = 0; end->code && at < end->count; at++) {
		kvpull_status_failed(side, end->codes[at]);
		if (!failed && end->codes[at] != KVPULL_ESTALE)
			failed = end->codes[at];
	}
	kvpull_status_took(side, KVPULL_TIMES_READ,
			   kvpull_clock_ns() - ask->begun_ns, 1);
	kvpull_status_add(&row->pulls, 1);
	kvpull_status_add(&row->bytes, bytes);
	if (!failed)
		return;
	kvpull_status_add(&row->failures, 1);
	note(share, KVPULL_DID_FAILED, ask->peer, end->incarnation, failed);
}
