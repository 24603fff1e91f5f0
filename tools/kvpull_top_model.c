/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges the snapshots: who keeps how many holds for how long, and what is
 * wrong. A finding names one engine and process, and how much it keeps; the
 * screen's tables show the rest.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "tools/kvpull_top_parts.h"

const struct kvpull_status_hold_now *
top_holds_now(const struct top_worker *worker)
{
	return top_rows(worker, KVPULL_STATUS_HOLDS_NOW, NULL);
}

static uint32_t hold_state(const struct top_worker *worker, uint32_t slot)
{
	const _Atomic uint64_t *held =
		top_rows(worker, KVPULL_STATUS_HELD, NULL);

	if (GET(&held[slot / 64]) >> slot % 64 & 1)
		return KVPULL_SHOWN_HELD;
	return GET(&top_holds_now(worker)[slot].state);
}

void top_holds(const struct top_worker *worker, struct top_holds *holds)
{
	uint32_t count;
	const struct kvpull_status_hold *rows =
		top_rows(worker, KVPULL_STATUS_HOLDS, &count);
	const struct kvpull_status_hold_now *now = top_holds_now(worker);
	uint32_t at;

	for (at = 0; at < count; at++, now++) {
		const uint64_t age_ns =
			top_ago(worker, GET(&rows[at].taken_ns));
		const uint32_t state = hold_state(worker, at);

		holds->staged += state == KVPULL_SHOWN_STAGED;
		holds->ended += state == KVPULL_SHOWN_ENDED;
		if (state != KVPULL_SHOWN_HELD)
			continue;
		holds->held++;
		holds->claimed += GET(&now->joined) != 0;
		holds->blocks += GET(&now->blocks);
		if (age_ns > holds->oldest_ns)
			holds->oldest_ns = age_ns;
		holds->ages[age_ns < KVPULL_NS_PER_S      ? 0 :
			    age_ns < 10 * KVPULL_NS_PER_S ? 1 :
			    age_ns < TOP_MINUTE_NS        ? 2 :
							    3]++;
	}
}

static void holds_share(const struct top_worker *worker,
			struct top_consumers *consumers)
{
	uint32_t count;
	const struct kvpull_status_hold *rows =
		top_rows(worker, KVPULL_STATUS_HOLDS, &count);
	const struct kvpull_status_hold_now *now = top_holds_now(worker);
	uint32_t at;

	for (at = 0; at < count; at++, now++) {
		const uint64_t age_ns =
			top_ago(worker, GET(&rows[at].taken_ns));
		struct top_consumer *owner = consumers->at[GET(&now->joined)];

		if (hold_state(worker, at) != KVPULL_SHOWN_HELD)
			continue;
		if (!owner)
			owner = &consumers->all[consumers->count];
		owner->holds++;
		owner->blocks += GET(&now->blocks);
		if (age_ns > owner->oldest_ns)
			owner->oldest_ns = age_ns;
	}
}

const struct top_consumers *top_consumers(const struct top_worker *worker)
{
	static struct top_consumers consumers;
	static struct kvpull_status_words nobody;
	const struct kvpull_status_thread *engine =
		top_thread(worker, KVPULL_STATUS_ENGINE);
	const uint64_t ran_ns = GET(&engine->ran_ns);
	uint32_t left;
	const struct kvpull_status_consumer *row =
		top_rows(worker, KVPULL_STATUS_CONSUMERS, &left);
	const struct kvpull_status_words *words =
		top_rows(worker, KVPULL_STATUS_WORDS, NULL);
	struct top_consumer *next = consumers.all;

	memset(consumers.at, 0, sizeof(consumers.at));
	for (; left-- && next < consumers.all + TOP_CONSUMERS_MAX;
	     row++, words++) {
		const uint64_t heard_ns = GET(&words->heard_ns);
		const uint64_t joined = GET(&words->joined);

		if (!GET(&row->state))
			continue;
		/* Several ranks of one engine share its holds. */
		if (joined && joined <= UINT16_MAX && !consumers.at[joined])
			consumers.at[joined] = next;
		*next++ = (struct top_consumer){
			.row = row,
			.words = words,
			/* By its last poll: one that does not poll hears nobody. */
			.heard_ns = ran_ns > heard_ns ? ran_ns - heard_ns : 0,
		};
	}
	nobody.expired = GET(&engine->expired);
	nobody.expired_blocks = GET(&engine->expired_blocks);
	nobody.expired_ns = GET(&engine->expired_ns);
	*next = (struct top_consumer){ .words = &nobody };
	consumers.count = (uint32_t)(next - consumers.all);
	holds_share(worker, &consumers);
	return &consumers;
}

uint32_t top_oldest(const struct top_worker *worker, uint32_t *slots,
		    uint32_t capacity)
{
	uint32_t count;
	const struct kvpull_status_hold *rows =
		top_rows(worker, KVPULL_STATUS_HOLDS, &count);
	uint32_t used = 0;
	uint32_t slot;
	uint32_t at;

	for (slot = 0; slot < count; slot++) {
		const uint64_t taken_ns = GET(&rows[slot].taken_ns);

		if (hold_state(worker, slot) != KVPULL_SHOWN_HELD)
			continue;
		for (at = used; at; at--) {
			if (GET(&rows[slots[at - 1]].taken_ns) <= taken_ns)
				break;
			if (at < capacity)
				slots[at] = slots[at - 1];
		}
		if (at < capacity)
			slots[at] = slot;
		used += used < capacity;
	}
	return used;
}

/* Where there was no connection yet a pool knows no incarnation. */
int top_peer_is_shown(const struct kvpull_status_peer *row)
{
	return GET(&row->incarnation) || GET(&row->state);
}

const char *top_role(const struct top_worker *worker)
{
	static const char *const roles[] = { "-", "owner", "reader", "both" };
	uint32_t role = GET(&top_pool(worker)->state) == KVPULL_SHOWN_HERE;
	uint32_t count;
	const struct kvpull_status_peer *peer =
		top_rows(worker, KVPULL_STATUS_PEERS, &count);

	for (; count--; peer++)
		if (top_peer_is_shown(peer))
			role |= 2;
	return roles[role];
}

uint32_t top_given_up(const struct top_worker *worker)
{
	uint32_t count;
	const struct kvpull_status_peer *peer =
		top_rows(worker, KVPULL_STATUS_PEERS, &count);
	uint32_t given_up = 0;

	for (; count--; peer++)
		given_up += GET(&peer->state) == KVPULL_SHOWN_PEER_GONE;
	return given_up;
}

/* Sum of a counter over both threads. */
#define SUM_OF(worker, member)                                                 \
	(GET(&top_thread(worker, KVPULL_STATUS_ENGINE)->member) +              \
	 GET(&top_thread(worker, KVPULL_STATUS_PROGRESS)->member))

uint64_t top_failures(const struct top_worker *worker, int code)
{
	return SUM_OF(worker, failures[code]);
}

uint64_t top_ran(const struct top_worker *worker, enum kvpull_status_part part)
{
	return top_ago(worker, GET(&top_thread(worker, part)->ran_ns));
}

uint64_t top_time_sum(const struct top_worker *worker, uint32_t which)
{
	return SUM_OF(worker, time_sums[which]);
}

uint64_t top_times(const struct top_worker *worker, uint32_t which,
		   uint64_t *buckets)
{
	uint64_t times = 0;
	uint32_t at;

	for (at = 0; at < KVPULL_STATUS_BUCKETS; at++) {
		buckets[at] = SUM_OF(worker, times[which][at]);
		times += buckets[at];
	}
	return times;
}

uint64_t top_quantile(const uint64_t *buckets, uint64_t times, uint32_t percent)
{
	uint64_t below = 0;
	uint32_t at;

	for (at = 0; times && at < KVPULL_STATUS_BUCKETS - 1; at++) {
		below += buckets[at];
		if (below * 100 >= times * percent)
			return UINT64_C(2) << at;
	}
	return 0;
}

/* Errors of the last minute, as far as the events reach back. */
uint64_t top_errors(const struct top_worker *worker)
{
	struct top_events events = { .worker = worker };
	const struct kvpull_status_note *note = &events.note;
	uint64_t errors = 0;

	while (top_event_next(&events))
		errors += top_ago(worker, note->at_ns) < TOP_MINUTE_NS &&
			  (note->what == KVPULL_DID_FAILED ||
			   note->what == KVPULL_DID_DOWN ||
			   (note->what == KVPULL_DID_END &&
			    note->arg == KVPULL_END_EXPIRED));
	return errors;
}

static double seconds(uint64_t ns)
{
	return (double)ns / (double)KVPULL_NS_PER_S;
}

/*
 * Adds a finding on a consumer, NULL: on the worker itself. The text begins with
 * the culprit: that stands on any screen.
 */
static void __attribute__((format(printf, 4, 5)))
finding_add(struct top *top, const struct top_finding *found,
	    const struct top_consumer *consumer, const char *format, ...)
{
	const struct kvpull_status_header *header = &found->at->header;
	struct top_finding *finding = &top->findings[top->finding_count];
	char culprit[96] = "nobody";
	va_list arguments;
	int used;

	if (top->finding_count == TOP_FINDINGS_MAX) {
		top->findings_more++;
		return;
	}
	top->finding_count++;
	*finding = *found;
	if (!consumer || consumer->row) {
		finding->pid = consumer ? consumer->row->pid : header->pid;
		top_text(finding->engine, sizeof(finding->engine),
			 consumer ? consumer->row->engine_id :
				    header->engine_id,
			 KVPULL_STATUS_NAME_BYTES);
	}
	if (finding->pid)
		(void)snprintf(culprit, sizeof(culprit), "%s pid %u",
			       finding->engine, finding->pid);
	used = snprintf(finding->text, sizeof(finding->text), "%s ", culprit);
	va_start(arguments, format);
	(void)vsnprintf(finding->text + used,
			sizeof(finding->text) - (size_t)used, format,
			arguments);
	va_end(arguments);
}

/*
 * Lists what a worker or a pool's handle has: each lacks the rows of the other
 * kind. Return: whether something waits for it.
 */
static int kept_list(const struct top_worker *worker,
		     const struct top_holds *holds, char *text, size_t bytes)
{
	const int is_gone = worker->state == TOP_GONE;
	const struct kvpull_status_pool *pool = top_pool(worker);
	const int is_owner = pool && GET(&pool->state) == KVPULL_SHOWN_HERE;
	const struct {
		const char *name;
		uint64_t count;
		int is_awaited;
	} kept[] = {
		{ "holds", holds->held, 1 },
		{ "blocks", holds->blocks, 1 },
		{ "pulls", top_counter_named(worker, "pulls_live"), 1 },
		/* Tickets or chunks alone make nobody late who lives. */
		{ "tickets", top_counter_named(worker, "claims_live"),
		  is_gone },
		{ "probes and reads in flight",
		  top_counter_named(worker, "asks_live"), 1 },
		{ "chunks", is_owner ? GET(&pool->chunk_count) : 0, is_gone },
	};
	const char *before = is_gone ? "; it had " : "; it has ";
	int is_awaited = 0;
	uint32_t at;

	for (at = 0; at < sizeof(kept) / sizeof(kept[0]); at++) {
		const size_t used = strlen(text);

		if (!kept[at].count)
			continue;
		is_awaited |= kept[at].is_awaited;
		(void)snprintf(text + used, bytes - used, "%s%" PRIu64 " %s",
			       before, kept[at].count, kept[at].name);
		before = ", ";
	}
	return is_awaited;
}

/*
 * A process that ended without closing, is stopped, or whose thread is silent;
 * the first and the last of these matter only where something waits for it.
 */
static void find_process(struct top *top, const struct top_worker *worker,
			 const struct top_holds *holds)
{
	static const struct {
		const char *what;
		const char *text;
	} faults[] = {
		[TOP_RUNNING] = { "engine-silent", "has not polled" },
		[TOP_STOPPED] = { "process-stopped", "is stopped" },
		[TOP_GONE] = { "process-gone", "is gone" },
		[TOP_CLOSED] = { NULL, NULL },
	};
	const enum top_state state = worker->state;
	const uint64_t silent_ns = top_ran(worker, KVPULL_STATUS_ENGINE);
	char kept[160] = "";
	const int is_awaited = kept_list(worker, holds, kept, sizeof(kept));
	const struct top_finding found = {
		.what = faults[state].what,
		.at = worker,
		.since_ns = state == TOP_GONE ? worker->gone_ns : silent_ns,
		.holds = holds->held,
		.blocks = holds->blocks,
	};
	const char *role = top_pool(worker) ? top_role(worker) : "";

	if (state == TOP_CLOSED || (state != TOP_STOPPED && !is_awaited) ||
	    (state == TOP_RUNNING && silent_ns <= TOP_SILENT_NS))
		return;
	finding_add(top, &found, NULL, "%s%s%s%s for %.1f s%s",
		    *role ? "(a pool's " : "",
		    !strcmp(role, "both") ? "owner and reader" :
		    !strcmp(role, "-")    ? "handle" :
					    role,
		    *role ? ") " : "", faults[state].text,
		    seconds(found.since_ns), kept);
}

#define KEEPS " %" PRIu64 " holds, %" PRIu64 " blocks of %s"

static void find_consumer(struct top *top, const struct top_worker *worker,
			  const struct top_consumer *consumer)
{
	const struct kvpull_status_header *header = &worker->header;
	const int is_keeping = consumer->row && consumer->holds;
	/* It should beat every third of a lease. */
	const int is_silent = consumer->heard_ns > header->lease_ns / 2;
	const uint64_t expired_ns = GET(&consumer->words->expired_ns);
	struct top_finding found = { .at = worker,
				     .holds = consumer->holds,
				     .blocks = consumer->blocks };
	struct top_finding expired = {
		.what = "holds-expire",
		.at = worker,
		.since_ns = top_ago(worker, expired_ns) + worker->gone_ns,
		.holds = GET(&consumer->words->expired),
		.blocks = GET(&consumer->words->expired_blocks),
	};

	if (is_keeping && is_silent) {
		found.what = "consumer-silent";
		found.since_ns = consumer->heard_ns + worker->gone_ns;
		finding_add(top, &found, consumer,
			    "says nothing for %.1f s and keeps" KEEPS,
			    seconds(found.since_ns), found.holds, found.blocks,
			    header->engine_id);
	}
	if (expired_ns && top_ago(worker, expired_ns) <= TOP_MINUTE_NS)
		finding_add(top, &expired, consumer,
			    "claimed" KEEPS ", which expired after %.1f s",
			    expired.holds, expired.blocks, header->engine_id,
			    seconds(header->lease_ns));
	/* Alive, and keeps a hold for over a lease: a ticket that it forgot? */
	if (is_keeping && !is_silent && worker->state != TOP_GONE &&
	    consumer->oldest_ns > header->lease_ns) {
		found.what = "holds-kept";
		found.since_ns = consumer->oldest_ns;
		finding_add(
			top, &found, consumer,
			"keeps" KEEPS
			", the oldest for %.1f s: it beats, and releases nothing",
			found.holds, found.blocks, header->engine_id,
			seconds(found.since_ns));
	}
}

/* Nineteen of twenty slots are taken: who keeps most of them. */
static void find_full(struct top *top, const struct top_worker *worker,
		      const struct top_holds *holds,
		      const struct top_consumers *consumers)
{
	const uint64_t used = holds->held + holds->staged + holds->ended;
	const struct top_consumer *most = consumers->all;
	struct top_finding found = { .what = "table-full", .at = worker };
	uint32_t at;

	if (used * 20 < (uint64_t)worker->header.max_holds * 19)
		return;
	for (at = 0; at <= consumers->count; at++)
		if (consumers->all[at].holds > most->holds)
			most = &consumers->all[at];
	found.since_ns = most->oldest_ns + worker->gone_ns;
	found.holds = most->holds;
	found.blocks = most->blocks;
	finding_add(top, &found, most,
		    "claimed" KEEPS ", the oldest for %.1f s: %" PRIu64
		    " of its %u slots are taken",
		    found.holds, found.blocks, worker->header.engine_id,
		    seconds(found.since_ns), used, worker->header.max_holds);
}

/* An owner that a handle does not read any more, and nobody has removed. */
static void find_given_up(struct top *top, const struct top_worker *worker)
{
	uint32_t count;
	const struct kvpull_status_peer *peer =
		top_rows(worker, KVPULL_STATUS_PEERS, &count);

	for (; worker->state != TOP_GONE && count--; peer++) {
		const uint64_t ago_ns = top_ago(worker, GET(&peer->since_ns));
		char address[48];
		char why[KVPULL_STATUS_ADDRESS_BYTES];

		if (GET(&peer->state) != KVPULL_SHOWN_PEER_GONE)
			continue;
		top_text(address, sizeof(address), peer->address,
			 sizeof(peer->address));
		top_text(why, sizeof(why), peer->why, sizeof(peer->why));
		finding_add(top,
			    &(struct top_finding){ .what = "peer-given-up",
						   .at = worker,
						   .since_ns = ago_ns },
			    NULL, "gave up owner %s %.1f s ago: %s, %s",
			    address, seconds(ago_ns),
			    kvpull_error_name(GET(&peer->error)), why);
	}
}

void top_look(struct top *top, struct top *before,
	      const struct top_options *options)
{
	const struct top_worker *worker = top->workers;
	uint32_t left;

	top_read(top, before, options);
	for (left = top->worker_count; left--; worker++) {
		const struct top_consumers *consumers;
		struct top_holds holds = { 0 };
		uint32_t at;

		top_holds(worker, &holds);
		find_process(top, worker, &holds);
		if (top_pool(worker)) {
			find_given_up(top, worker);
			continue;
		}
		consumers = top_consumers(worker);
		for (at = 0; at <= consumers->count; at++)
			find_consumer(top, worker, &consumers->all[at]);
		find_full(top, worker, &holds, consumers);
	}
}

const char *top_end_reason(int32_t reason)
{
	static const char *const names[] = { "released", "expired", "aborted",
					     "revoked", "another rank" };

	return NAME_OF(names, (uint32_t)reason);
}
