/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges the snapshots: who keeps how many holds for how long, and what is
 * wrong. A finding names one engine and process, and how much it keeps; the
 * screen's tables show the rest.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/kvpull_top_parts.h"

#define CONSUMERS_MAX 4096u /* of a worker, that are shown */

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

	memset(holds, 0, sizeof(*holds));
	for (at = 0; at < count; at++) {
		const uint64_t age_ns =
			top_ago(worker, GET(&rows[at].taken_ns));
		const uint32_t state = hold_state(worker, at);

		holds->staged += state == KVPULL_SHOWN_STAGED;
		holds->ended += state == KVPULL_SHOWN_ENDED;
		if (state != KVPULL_SHOWN_HELD)
			continue;
		holds->held++;
		holds->claimed += GET(&now[at].joined) != 0;
		holds->blocks += GET(&now[at].blocks);
		if (age_ns > holds->oldest_ns)
			holds->oldest_ns = age_ns;
		holds->ages[age_ns < KVPULL_NS_PER_S      ? 0 :
			    age_ns < 10 * KVPULL_NS_PER_S ? 1 :
			    age_ns < TOP_MINUTE_NS        ? 2 :
							    3]++;
	}
}

/*
 * Several ranks of one engine share its holds: they count at the first. The
 * last one is nobody: also for a place that no row has any more.
 */
static struct top_consumer *owner_of(struct top_consumer *consumers,
				     uint32_t count, uint64_t joined)
{
	uint32_t at;

	for (at = 0; at + 1 < count; at++)
		if (joined && GET(&consumers[at].words->joined) == joined)
			return &consumers[at];
	return &consumers[count - 1];
}

const struct top_consumer *
top_claimant(const struct kvpull_status_hold_now *now,
	     struct top_consumer *consumers, uint32_t count)
{
	const struct top_consumer *owner =
		owner_of(consumers, count, GET(&now->joined));

	return owner->row ? owner : NULL;
}

/* Looked up once a place and not once a hold. */
static void holds_share(const struct top_worker *worker,
			struct top_consumer *consumers, uint32_t consumer_count)
{
	static struct top_consumer *owners[UINT16_MAX + 1];
	uint32_t count;
	const struct kvpull_status_hold *rows =
		top_rows(worker, KVPULL_STATUS_HOLDS, &count);
	const struct kvpull_status_hold_now *now = top_holds_now(worker);
	uint32_t at;

	memset(owners, 0, sizeof(owners));
	for (at = 0; at < count; at++) {
		const uint16_t joined = GET(&now[at].joined);
		const uint64_t age_ns =
			top_ago(worker, GET(&rows[at].taken_ns));
		struct top_consumer **owner = &owners[joined];

		if (hold_state(worker, at) != KVPULL_SHOWN_HELD)
			continue;
		if (!*owner)
			*owner = owner_of(consumers, consumer_count, joined);
		(*owner)->holds++;
		(*owner)->blocks += GET(&now[at].blocks);
		if (age_ns > (*owner)->oldest_ns)
			(*owner)->oldest_ns = age_ns;
	}
}

struct top_consumer *top_consumers(const struct top_worker *worker,
				   uint32_t *consumer_count)
{
	static struct top_consumer consumers[CONSUMERS_MAX];
	uint32_t row_count;
	const struct kvpull_status_consumer *rows =
		top_rows(worker, KVPULL_STATUS_CONSUMERS, &row_count);
	const struct kvpull_status_words *words =
		top_rows(worker, KVPULL_STATUS_WORDS, &row_count);
	const uint64_t ran_ns =
		GET(&top_thread(worker, KVPULL_STATUS_ENGINE)->ran_ns);
	uint32_t count = 0;
	uint32_t at;

	*consumer_count = 0;
	if (top_pool(worker))
		return consumers;
	for (at = 0; at < row_count && count + 1 < CONSUMERS_MAX; at++) {
		const uint64_t heard_ns = GET(&words[at].heard_ns);

		if (!GET(&rows[at].state))
			continue;
		consumers[count++] = (struct top_consumer){
			.row = &rows[at],
			.words = &words[at],
			/* By its last poll: one that does not poll hears nobody. */
			.heard_ns = ran_ns > heard_ns ? ran_ns - heard_ns : 0,
		};
	}
	consumers[count++] = (struct top_consumer){ .row = NULL };
	holds_share(worker, consumers, count);
	*consumer_count = count;
	return consumers;
}

struct aged {
	uint64_t taken_ns;
	uint32_t slot;
};

static int oldest_first(const void *left, const void *right)
{
	const struct aged *one = left;
	const struct aged *other = right;

	return (one->taken_ns > other->taken_ns) -
	       (one->taken_ns < other->taken_ns);
}

uint32_t top_oldest(const struct top_worker *worker, uint32_t *slots,
		    uint32_t capacity)
{
	uint32_t count;
	const struct kvpull_status_hold *rows =
		top_rows(worker, KVPULL_STATUS_HOLDS, &count);
	struct aged *aged = calloc(count ? count : 1, sizeof(*aged));
	uint32_t used = 0;
	uint32_t at;

	for (at = 0; aged && at < count; at++)
		if (hold_state(worker, at) == KVPULL_SHOWN_HELD)
			aged[used++] =
				(struct aged){ GET(&rows[at].taken_ns), at };
	if (aged)
		qsort(aged, used, sizeof(*aged), oldest_first);
	for (at = 0; at < used && at < capacity; at++)
		slots[at] = aged[at].slot;
	free(aged);
	return at;
}

/* Where there was no connection yet a pool knows no incarnation. */
int top_peer_is_shown(const struct kvpull_status_peer *row)
{
	return GET(&row->incarnation) || GET(&row->state);
}

const char *top_role(const struct top_worker *worker)
{
	const int is_owner = GET(&top_pool(worker)->state) == KVPULL_SHOWN_HERE;
	uint32_t count;
	const struct kvpull_status_peer *rows =
		top_rows(worker, KVPULL_STATUS_PEERS, &count);
	int is_reader = 0;
	uint32_t at;

	for (at = 0; at < count; at++)
		is_reader |= top_peer_is_shown(&rows[at]);
	if (is_owner)
		return is_reader ? "both" : "owner";
	return is_reader ? "reader" : "-";
}

uint32_t top_given_up(const struct top_worker *worker)
{
	uint32_t count;
	const struct kvpull_status_peer *rows =
		top_rows(worker, KVPULL_STATUS_PEERS, &count);
	uint32_t given_up = 0;
	uint32_t at;

	for (at = 0; at < count; at++)
		given_up += GET(&rows[at].state) == KVPULL_SHOWN_PEER_GONE;
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

/* The next finding; the last one is overwritten where there are too many. */
static struct top_finding *finding_add(struct top *top, const char *what,
				       const struct top_worker *at,
				       uint64_t since_ns)
{
	struct top_finding *finding = &top->findings[top->finding_count];

	if (top->finding_count < TOP_FINDINGS_MAX - 1)
		top->finding_count++;
	else
		top->findings_more++;
	memset(finding, 0, sizeof(*finding));
	finding->what = what;
	finding->at = at;
	finding->since_ns = since_ns;
	return finding;
}

/* The text begins with the culprit: that stands on any screen. */
static void __attribute__((format(printf, 2, 3)))
finding_say(struct top_finding *finding, const char *format, ...)
{
	va_list arguments;
	int used;

	used = finding->pid ?
		       snprintf(finding->text, sizeof(finding->text),
				"%s pid %u ", finding->engine, finding->pid) :
		       snprintf(finding->text, sizeof(finding->text),
				"nobody ");
	va_start(arguments, format);
	(void)vsnprintf(finding->text + used,
			sizeof(finding->text) - (size_t)used, format,
			arguments);
	va_end(arguments);
}

static void name_worker(struct top_finding *finding,
			const struct top_worker *worker)
{
	top_text(finding->engine, sizeof(finding->engine),
		 worker->header.engine_id, KVPULL_STATUS_NAME_BYTES);
	finding->pid = worker->header.pid;
}

/* A finding that names a consumer, and what it keeps. */
static struct top_finding *finding_of(struct top *top, const char *what,
				      const struct top_worker *at,
				      const struct top_consumer *consumer,
				      uint64_t since_ns)
{
	struct top_finding *finding = finding_add(top, what, at, since_ns);

	if (consumer->row) {
		top_text(finding->engine, sizeof(finding->engine),
			 consumer->row->engine_id, KVPULL_STATUS_NAME_BYTES);
		finding->pid = consumer->row->pid;
	}
	finding->holds = consumer->holds;
	finding->blocks = consumer->blocks;
	return finding;
}

/*
 * A process that ended without closing, is stopped, or whose thread is silent;
 * the first and the last of these matter only where something waits for it.
 */
static const char *process_fault(const struct top_worker *worker,
				 int is_awaited)
{
	if (worker->state == TOP_STOPPED)
		return "process-stopped";
	if (!is_awaited)
		return NULL;
	if (worker->state == TOP_GONE)
		return "process-gone";
	return worker->state == TOP_RUNNING &&
			       top_ran(worker, KVPULL_STATUS_ENGINE) >
				       TOP_SILENT_NS ?
		       "engine-silent" :
		       NULL;
}

struct kept {
	const char *name;
	uint64_t count;
};

/* kept: what the process has, up to a NULL; what there is none of is not said. */
static struct top_finding *find_process(struct top *top,
					const struct top_worker *worker,
					const char *what,
					const struct kept *kept)
{
	const int is_gone = worker->state == TOP_GONE;
	struct top_finding *finding =
		finding_add(top, what, worker,
			    is_gone ? worker->gone_ns :
				      top_ran(worker, KVPULL_STATUS_ENGINE));
	const char *role = top_pool(worker) ? top_role(worker) : "";
	char text[160] = "";

	for (; kept->name; kept++)
		if (kept->count)
			(void)snprintf(text + strlen(text),
				       sizeof(text) - strlen(text),
				       "%s%" PRIu64 " %s",
				       *text   ? ", " :
				       is_gone ? "; it had " :
						 "; it has ",
				       kept->count, kept->name);
	name_worker(finding, worker);
	finding_say(finding, "%s%s%s%s for %.1f s%s", *role ? "(a pool's " : "",
		    !strcmp(role, "both") ? "owner and reader" :
		    !strcmp(role, "-")    ? "handle" :
					    role,
		    *role ? ") " : "",
		    is_gone                      ? "is gone" :
		    worker->state == TOP_STOPPED ? "is stopped" :
						   "has not polled",
		    seconds(finding->since_ns), text);
	return finding;
}

static void find_worker(struct top *top, const struct top_worker *worker)
{
	const uint64_t pulls = top_counter_named(worker, "pulls_live");
	const uint64_t tickets = top_counter_named(worker, "claims_live");
	struct top_finding *finding;
	struct top_holds holds;
	const char *what;

	top_holds(worker, &holds);
	/* Tickets alone do not make a living consumer late. */
	what = process_fault(worker,
			     holds.held || pulls ||
				     (tickets && worker->state == TOP_GONE));
	if (!what)
		return;
	finding =
		find_process(top, worker, what,
			     (const struct kept[]){ { "holds", holds.held },
						    { "blocks", holds.blocks },
						    { "pulls", pulls },
						    { "tickets", tickets },
						    { NULL, 0 } });
	finding->holds = holds.held;
	finding->blocks = holds.blocks;
}

static void find_pool(struct top *top, const struct top_worker *worker)
{
	const struct kvpull_status_pool *pool = top_pool(worker);
	const struct kept kept[] = {
		{ "probes and reads in flight",
		  top_counter_named(worker, "asks_live") },
		{ "chunks", GET(&pool->state) == KVPULL_SHOWN_HERE ?
				    GET(&pool->chunk_count) :
				    0 },
		{ NULL, 0 },
	};
	const char *what = process_fault(
		worker,
		kept[0].count || (kept[1].count && worker->state == TOP_GONE));

	if (what)
		(void)find_process(top, worker, what, kept);
}

/*
 * Finds a consumer that keeps holds and is silent: it should beat every third
 * of a lease.
 */
static void find_silent(struct top *top, const struct top_worker *worker,
			const struct top_consumer *consumer)
{
	struct top_finding *finding;

	if (!consumer->row || !consumer->holds ||
	    consumer->heard_ns <= worker->header.lease_ns / 2)
		return;
	finding = finding_of(top, "consumer-silent", worker, consumer,
			     consumer->heard_ns + worker->gone_ns);
	finding_say(finding,
		    "says nothing for %.1f s and keeps %" PRIu64
		    " holds, %" PRIu64 " blocks of %s",
		    seconds(finding->since_ns), finding->holds, finding->blocks,
		    worker->header.engine_id);
}

static void find_expired(struct top *top, const struct top_worker *worker,
			 const struct top_consumer *consumer)
{
	const struct kvpull_status_thread *engine =
		top_thread(worker, KVPULL_STATUS_ENGINE);
	const uint64_t last_ns =
		GET(consumer->row ? &consumer->words->expired_ns :
				    &engine->expired_ns);
	struct top_finding *finding;

	if (!last_ns || top_ago(worker, last_ns) > TOP_MINUTE_NS)
		return;
	finding = finding_of(top, "holds-expire", worker, consumer,
			     top_ago(worker, last_ns) + worker->gone_ns);
	finding->holds = GET(consumer->row ? &consumer->words->expired :
					     &engine->expired);
	finding->blocks = GET(consumer->row ? &consumer->words->expired_blocks :
					      &engine->expired_blocks);
	finding_say(finding,
		    "claimed %" PRIu64 " holds, %" PRIu64
		    " blocks of %s, which expired after %.1f s",
		    finding->holds, finding->blocks, worker->header.engine_id,
		    seconds(worker->header.lease_ns));
}

/* Nineteen of twenty slots are taken: who keeps most of them. */
static void find_full(struct top *top, const struct top_worker *worker,
		      const struct top_consumer *consumers, uint32_t count)
{
	const struct top_consumer *most = &consumers[0];
	struct top_finding *finding;
	struct top_holds holds;
	uint64_t used;
	uint32_t at;

	top_holds(worker, &holds);
	used = holds.held + holds.staged + holds.ended;
	if (used * 20 < (uint64_t)worker->header.max_holds * 19)
		return;
	for (at = 0; at < count; at++)
		if (consumers[at].holds > most->holds)
			most = &consumers[at];
	finding = finding_of(top, "table-full", worker, most,
			     most->oldest_ns + worker->gone_ns);
	finding_say(finding,
		    "claimed %" PRIu64 " holds, %" PRIu64
		    " blocks of %s, the oldest for %.1f s: %" PRIu64
		    " of its %u slots are taken",
		    finding->holds, finding->blocks, worker->header.engine_id,
		    seconds(finding->since_ns), used, worker->header.max_holds);
}

/* Alive, and keeps a hold for longer than a lease: a ticket that it forgot? */
static void find_kept(struct top *top, const struct top_worker *worker,
		      const struct top_consumer *consumer)
{
	struct top_finding *finding;

	if (worker->state == TOP_GONE || !consumer->row || !consumer->holds ||
	    consumer->oldest_ns <= worker->header.lease_ns ||
	    consumer->heard_ns > worker->header.lease_ns / 2)
		return;
	finding = finding_of(top, "holds-kept", worker, consumer,
			     consumer->oldest_ns);
	finding_say(
		finding,
		"keeps %" PRIu64 " holds, %" PRIu64
		" blocks of %s, the oldest for %.1f s: it beats, and releases nothing",
		finding->holds, finding->blocks, worker->header.engine_id,
		seconds(finding->since_ns));
}

/* An owner that a handle does not read any more, and nobody has removed. */
static void find_given_up(struct top *top, const struct top_worker *worker)
{
	uint32_t count;
	const struct kvpull_status_peer *rows =
		top_rows(worker, KVPULL_STATUS_PEERS, &count);
	struct top_finding *finding;
	char address[48];
	char why[KVPULL_STATUS_ADDRESS_BYTES];
	uint32_t at;

	for (at = 0; worker->state != TOP_GONE && at < count; at++) {
		if (GET(&rows[at].state) != KVPULL_SHOWN_PEER_GONE)
			continue;
		top_text(address, sizeof(address), rows[at].address,
			 sizeof(rows[at].address));
		top_text(why, sizeof(why), rows[at].why, sizeof(rows[at].why));
		finding = finding_add(top, "peer-given-up", worker,
				      top_ago(worker, GET(&rows[at].since_ns)));
		name_worker(finding, worker);
		finding_say(finding, "gave up owner %s %.1f s ago: %s, %s",
			    address, seconds(finding->since_ns),
			    kvpull_error_name(GET(&rows[at].error)), why);
	}
}

void top_find(struct top *top)
{
	uint32_t index;

	for (index = 0; index < top->worker_count; index++) {
		const struct top_worker *worker = &top->workers[index];
		const struct top_consumer *consumers;
		uint32_t count;
		uint32_t at;

		if (top_pool(worker)) {
			find_pool(top, worker);
			find_given_up(top, worker);
			continue;
		}
		find_worker(top, worker);
		consumers = top_consumers(worker, &count);
		for (at = 0; at < count; at++) {
			find_silent(top, worker, &consumers[at]);
			find_expired(top, worker, &consumers[at]);
			find_kept(top, worker, &consumers[at]);
		}
		find_full(top, worker, consumers, count);
	}
}

const char *top_end_reason(int32_t reason)
{
	static const char *const names[] = { "released", "expired", "aborted",
					     "revoked", "another rank" };

	return (uint32_t)reason < sizeof(names) / sizeof(names[0]) ?
		       names[reason] :
		       "?";
}
