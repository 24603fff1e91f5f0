/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the rows of each table: a value for each of its columns, which stand in
 * kvpull_top_columns.h.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <time.h>

#include "base/device_name.h"
#include "base/least.h"
#include "base/text_file.h"
#include "tools/kvpull_top_columns.h"
#include "tools/kvpull_top_parts.h"

#define EVENTS_SHOWN 40u /* of a thread, the last ones */

/* Screens sort by number first: a text without one is sorted as text. */
static void __attribute__((format(printf, 3, 4)))
text_put(struct top_cell *cell, uint64_t number, const char *format, ...)
{
	va_list arguments;

	cell->kind = TOP_TEXT;
	cell->number = number;
	va_start(arguments, format);
	(void)vsnprintf(cell->text, sizeof(cell->text), format, arguments);
	va_end(arguments);
}

static void number_put(struct top_cell *cell, enum top_kind kind,
		       uint64_t number)
{
	text_put(cell, number, "%" PRIu64, number);
	cell->kind = kind;
}

/* "431 us", "2.5 s", "3 min", "2.1 h", "9 d": at most six places. */
static void age_put(struct top_cell *cell, uint64_t ns)
{
	const double s = (double)ns / (double)KVPULL_NS_PER_S;

	if (!ns)
		text_put(cell, ns, "-");
	else if (s < 0.001)
		text_put(cell, ns, "%.0f us", s * 1e6);
	else if (s < 1)
		text_put(cell, ns, "%.0f ms", s * 1e3);
	else if (s < 100)
		text_put(cell, ns, "%.1f s", s);
	else if (s < 6000)
		text_put(cell, ns, "%.0f min", s / 60);
	else if (s < 360000)
		text_put(cell, ns, "%.1f h", s / 3600);
	else
		text_put(cell, ns, "%.0f d", s / 86400);
	cell->kind = TOP_AGE;
}

static void bytes_put(struct top_cell *cell, const char *from, size_t bytes)
{
	text_put(cell, 0, "%.*s", (int)bytes, from);
	kvpull_text_clean(cell->text);
}

static void label_put(struct top_cell *cell, const _Atomic uint64_t *words)
{
	char label[KVPULL_STATUS_LABEL_BYTES];

	kvpull_status_label_get(words, label);
	bytes_put(cell, label, sizeof(label));
}

/* null for programs, a word for people. */
static void nothing_put(struct top_cell *cell, const char *word)
{
	text_put(cell, 0, "%s", word);
	cell->kind = TOP_NOTHING;
}

/* A moment of the past: its time today, or its date. */
static void date_put(struct top_cell *cell, const char *word,
		     const struct top *top, uint64_t ago_ns)
{
	const time_t then = (time_t)((top->utc_ns - ago_ns) / KVPULL_NS_PER_S);
	char when[32];

	(void)strftime(when, sizeof(when),
		       ago_ns < 86400 * KVPULL_NS_PER_S ? "%H:%M:%S" :
							  "%m-%d %H:%M",
		       gmtime(&then));
	text_put(cell, ago_ns, "%s %s", word, when);
}

#define NUMBER(value) number_put(cell++, TOP_NUMBER, value)
#define AGE(ns) age_put(cell++, ns)
/* The age of a moment that the file has. */
#define SINCE(moment_ns) AGE(goes_on(worker, top_ago(worker, moment_ns)))
#define FLAG(value) number_put(cell++, TOP_FLAG, value)
#define TEXT(array) bytes_put(cell++, array, sizeof(array))
#define WORD(text) text_put(cell++, 0, "%s", text)
#define NOTHING(word) nothing_put(cell++, word)
#define DATE(word, ago_ns) date_put(cell++, word, row->top, ago_ns)
#define HEX(value) text_put(cell++, 0, "%016" PRIx64, (uint64_t)(value))
#define COUNTER(name) NUMBER(top_counter_named(worker, name))

#define COLUMN(name, head, width, priority, metric, help, cell)                \
	{ name, head, width, priority, { metric, help } },
#define CELL(name, head, width, priority, metric, help, cell) cell;
/* Fills the row's cells and gives it. */
#define GIVE(COLUMNS, its_mark)                                                \
	do {                                                                   \
		struct top_cell *cell = row->cells;                            \
                                                                               \
		COLUMNS(CELL)                                                  \
		row->mark = its_mark;                                          \
		row->give(row);                                                \
	} while (0)
#define TABLE(table, whose, COLUMNS)                                           \
	static const struct top_column table##_columns[] = { COLUMNS(          \
		COLUMN) };                                                     \
	_Static_assert(sizeof(table##_columns) / sizeof(struct top_column) <=  \
			       TOP_COLUMNS_MAX,                                \
		       "a row has room for all columns");                      \
	const struct top_table top_##table##_table = {                         \
		#table, whose,                                                 \
		sizeof(table##_columns) / sizeof(struct top_column),           \
		table##_columns, table##_each                                  \
	};

/* clang-format off */
static const char *const file_states[] = {
	"running", "stopped", "gone", "closed"
};
static const char *const peer_states[] = {
	"free", "connecting", "greeted", "up", "waiting", "gone"
};
static const char *const pull_states[] = {
	"ended", "connecting", "unwritten", "reading", "checking", "draining",
	"again"
};
static const char *const event_names[KVPULL_DID_COUNT] = {
	"-", "take", "claim", "release", "end", "sent", "join", "leave",
	"claim ticket", "release ticket", "pull", "read", "came", "loaded",
	"failed", "peer up", "peer down"
};
/* clang-format on */

/* Ages of what a process kept go on after its end, so that they do not look alive. */
static uint64_t goes_on(const struct top_worker *worker, uint64_t ns)
{
	return ns ? ns + worker->gone_ns : 0;
}

static int is_ended(const struct top_worker *worker)
{
	return worker->state == TOP_GONE || worker->state == TOP_CLOSED;
}

/* Elsewhere there is another clock: only the time of the open is known. */
static uint64_t ended_ago(const struct top *top,
			  const struct top_worker *worker)
{
	const uint64_t ran_ns = worker->now_ns - worker->header.opened_ns;

	return worker->is_here ?
		       worker->gone_ns :
		       top->utc_ns - worker->header.opened_utc - ran_ns;
}

/* MiB a second since the snapshot before; without one what came in all. */
static void throughput_put(struct top_cell *cell,
			   const struct top_worker *worker)
{
	const struct top_worker *then = worker->before;
	const uint64_t took_ns = then ? top_ago(worker, then->now_ns) : 0;
	const char *name = top_pool(worker) ? "bytes_read" : "bytes_pulled";
	const uint64_t bytes = top_counter_named(worker, name);
	double rate;

	if (!took_ns) {
		text_put(cell, bytes, "%.0f M", (double)bytes / 1048576);
		return;
	}
	rate = (double)(bytes - top_counter_named(then, name)) * 1e9 /
	       (double)took_ns;
	text_put(cell, (uint64_t)rate, "%.1f/s", rate / 1048576);
}

static enum top_mark file_mark(const struct top_worker *worker)
{
	return is_ended(worker)             ? TOP_FAINT :
	       worker->state == TOP_STOPPED ? TOP_BAD :
	       top_errors(worker)           ? TOP_PLAIN :
					      TOP_GOOD;
}

static enum top_mark plain_mark(const struct top_worker *worker)
{
	return is_ended(worker) ? TOP_FAINT : TOP_PLAIN;
}

static void workers_each(struct top_row *row)
{
	const struct top_worker *worker = row->worker;
	struct top_holds holds = { 0 };

	top_holds(worker, &holds);
	GIVE(WORKER_COLUMNS, file_mark(worker));
}

static void pools_each(struct top_row *row)
{
	const struct top_worker *worker = row->worker;
	const struct kvpull_status_pool *pool = top_pool(worker);
	const uint64_t shared = GET(&pool->state) == KVPULL_SHOWN_HERE;

	GIVE(POOL_COLUMNS, file_mark(worker));
}

static void ages_each(struct top_row *row)
{
	const struct top *top = row->top;
	struct top_holds sum = { 0 };
	uint32_t at;

	for (at = 0; at < top->worker_count; at++)
		if (!is_ended(&top->workers[at]))
			top_holds(&top->workers[at], &sum);
	if (top->pool_count < top->worker_count)
		GIVE(AGE_COLUMNS, sum.ages[3] ? TOP_BAD : TOP_PLAIN);
}

static void holds_each(struct top_row *row)
{
	const struct top_worker *worker = row->worker;
	const struct top_consumers *consumers = top_consumers(worker);
	const struct kvpull_status_hold *holds =
		top_rows(worker, KVPULL_STATUS_HOLDS, NULL);
	uint32_t slots[TOP_ROWS_MAX];
	const uint32_t used = top_oldest(worker, slots, TOP_ROWS_MAX);
	uint32_t at;

	for (at = 0; at < used; at++) {
		const uint32_t slot = slots[at];
		const struct kvpull_status_hold *hold = &holds[slot];
		const struct kvpull_status_hold_now *now =
			&top_holds_now(worker)[slot];
		const struct top_consumer *by =
			consumers->at[GET(&now->joined)];

		GIVE(HOLD_COLUMNS, plain_mark(worker));
	}
}

/* A consumer or a reader: here, or since when it or whom it reads is gone. */
static void caller_state_put(struct top_cell *cell, const struct top_row *row,
			     const struct kvpull_status_consumer *who)
{
	const struct top_worker *worker = row->worker;

	if (GET(&who->state) != KVPULL_SHOWN_HERE)
		date_put(cell, "left", row->top,
			 goes_on(worker, top_ago(worker, GET(&who->since_ns))));
	else if (is_ended(worker))
		date_put(cell, "P gone", row->top, ended_ago(row->top, worker));
	else
		text_put(cell, 0, "here");
}

static enum top_mark caller_mark(const struct top_worker *worker,
				 const struct kvpull_status_consumer *who)
{
	if (GET(&who->state) == KVPULL_SHOWN_HERE)
		return plain_mark(worker);
	return top_ago(worker, GET(&who->since_ns)) + worker->gone_ns <
			       TOP_GONE_NS ?
		       TOP_FAINT :
		       TOP_HIDDEN;
}

static enum top_mark consumer_mark(const struct top_worker *worker,
				   const struct top_consumer *one)
{
	const enum top_mark mark = caller_mark(worker, one->row);

	if (one->holds && mark == TOP_HIDDEN)
		return TOP_FAINT;
	return one->holds && mark == TOP_PLAIN &&
			       one->heard_ns > worker->header.lease_ns / 2 ?
		       TOP_BAD :
		       mark;
}

static void consumers_each(struct top_row *row)
{
	const struct top_worker *worker = row->worker;
	const struct top_consumers *consumers = top_consumers(worker);
	const struct top_consumer *one = consumers->all;
	uint32_t left = consumers->count;

	for (; left--; one++) {
		const struct kvpull_status_consumer *who = one->row;

		GIVE(CONSUMER_COLUMNS, consumer_mark(worker, one));
	}
}

static void readers_each(struct top_row *row)
{
	const struct top_worker *worker = row->worker;
	uint32_t count;
	const struct kvpull_status_consumer *who =
		top_rows(worker, KVPULL_STATUS_CONSUMERS, &count);

	for (; count--; who++)
		if (GET(&who->state) != KVPULL_SHOWN_NONE)
			GIVE(READER_COLUMNS, caller_mark(worker, who));
}

static int gpu_is_lost(const struct top_worker *worker)
{
	return top_counter_named(worker, "devices_lost") != 0;
}

static void gpu_put(struct top_cell *cell, const struct top_worker *worker)
{
	const uint64_t words[2] = { GET(&worker->header.device[0]),
				    GET(&worker->header.device[1]) };
	uint8_t uuid[sizeof(words)];
	char name[KVPULL_DEVICE_NAME_BYTES];

	memcpy(uuid, words, sizeof(uuid));
	kvpull_device_name(name, uuid);
	text_put(cell, 0, "%s", name);
}

static void gpus_each(struct top_row *row)
{
	const struct top_worker *worker = row->worker;

	if (GET(&worker->header.device[0]) | GET(&worker->header.device[1]))
		GIVE(GPU_COLUMNS, is_ended(worker)    ? TOP_FAINT :
				  gpu_is_lost(worker) ? TOP_BAD :
							TOP_GOOD);
}

static void peers_each(struct top_row *row)
{
	const struct top_worker *worker = row->worker;
	uint32_t count;
	const struct kvpull_status_peer *peer =
		top_rows(worker, KVPULL_STATUS_PEERS, &count);

	for (; count--; peer++) {
		const uint64_t peer_bytes =
			GET(&peer->bytes) + GET(&peer->small_bytes);

		if (top_peer_is_shown(peer))
			GIVE(PEER_COLUMNS,
			     GET(&peer->error) && !is_ended(worker) ?
				     TOP_BAD :
				     plain_mark(worker));
	}
}

static void pulls_each(struct top_row *row)
{
	const struct top_worker *worker = row->worker;
	uint32_t count;
	const struct kvpull_status_pull *pull =
		top_rows(worker, KVPULL_STATUS_PULLS, &count);
	uint32_t left = TOP_ROWS_MAX;

	for (; left && count--; pull++) {
		const uint64_t place = GET(&pull->slot_blocks);

		if (!(uint32_t)GET(&pull->state))
			continue;
		GIVE(PULL_COLUMNS, plain_mark(worker));
		left--;
	}
}

/* An instance, or an incarnation, by its engine's name where one is known. */
static void who_put(struct top_cell *cell, const struct top_worker *worker,
		    const struct kvpull_status_note *note)
{
	uint32_t count;
	const struct kvpull_status_consumer *consumer =
		top_rows(worker, KVPULL_STATUS_CONSUMERS, &count);
	const struct kvpull_status_peer *peer;

	if (note->what == KVPULL_DID_TAKE || note->what == KVPULL_DID_SENT) {
		text_put(cell, 0, "key %" PRIu64, note->who);
		return;
	}
	text_put(cell, 0, note->who ? "%016" PRIx64 : "nobody", note->who);
	for (; note->who && count--; consumer++)
		if (GET(&consumer->instance) == note->who)
			bytes_put(cell, consumer->engine_id,
				  sizeof(consumer->engine_id));
	peer = top_rows(worker, KVPULL_STATUS_PEERS, &count);
	for (; note->who && count--; peer++)
		if (GET(&peer->incarnation) == note->who)
			bytes_put(cell, peer->engine_id,
				  sizeof(peer->engine_id));
}

/* The outcome of an event, or the peer's rank. */
static void outcome_put(struct top_cell *cell,
			const struct kvpull_status_note *note)
{
	switch (note->what) {
	case KVPULL_DID_END:
		text_put(cell, 0, "%s", top_end_reason(note->arg));
		return;
	case KVPULL_DID_FAILED:
	case KVPULL_DID_DOWN:
		text_put(cell, 0, "%s", kvpull_error_name(-note->arg));
		return;
	case KVPULL_DID_CLAIM:
	case KVPULL_DID_RELEASE:
	case KVPULL_DID_JOIN:
	case KVPULL_DID_LEAVE:
	case KVPULL_DID_CLAIM_TICKET:
		text_put(cell, 0, "rank %d", note->arg);
		return;
	default:
		nothing_put(cell, "");
		return;
	}
}

static void events_each(struct top_row *row)
{
	const struct top_worker *worker = row->worker;
	struct top_events events = { .worker = worker };
	const struct kvpull_status_note *note = &events.note;

	while (top_event_next(&events)) {
		const char *thread = events.thread ? "progress" : "engine";

		if (events.left < EVENTS_SHOWN)
			GIVE(EVENT_COLUMNS, TOP_PLAIN);
	}
}

static void findings_each(struct top_row *row)
{
	const struct top_finding *finding = row->top->findings;
	uint32_t left = row->top->finding_count;

	for (; left--; finding++)
		GIVE(FINDING_COLUMNS, TOP_BAD);
}

static void unread_each(struct top_row *row)
{
	const struct top_unread *unread = row->top->unread;
	uint32_t left =
		kvpull_least_u32(row->top->unread_count, TOP_UNREAD_MAX);

	for (; left--; unread++)
		GIVE(UNREAD_COLUMNS, TOP_FAINT);
}

TABLE(workers, TOP_OF_WORKERS, WORKER_COLUMNS)
TABLE(pools, TOP_OF_POOLS, POOL_COLUMNS)
TABLE(ages, TOP_OF_NONE, AGE_COLUMNS)
TABLE(holds, TOP_OF_WORKERS, HOLD_COLUMNS)
TABLE(consumers, TOP_OF_WORKERS, CONSUMER_COLUMNS)
TABLE(readers, TOP_OF_POOLS, READER_COLUMNS)
TABLE(peers, TOP_OF_WORKERS | TOP_OF_POOLS, PEER_COLUMNS)
TABLE(gpus, TOP_OF_WORKERS, GPU_COLUMNS)
TABLE(pulls, TOP_OF_WORKERS, PULL_COLUMNS)
TABLE(events, TOP_OF_WORKERS | TOP_OF_POOLS, EVENT_COLUMNS)
TABLE(findings, TOP_OF_NONE, FINDING_COLUMNS)
TABLE(unread, TOP_OF_NONE, UNREAD_COLUMNS)

/* clang-format off */
const struct top_time top_times_names[KVPULL_TIMES_COUNT] = {
	[KVPULL_TIMES_HOLD] = { TOP_OF_WORKERS, "hold", "kvpull_worker_hold_seconds", "From a hold's take to its end" },
	[KVPULL_TIMES_SENT] = { TOP_OF_WORKERS, "release_to_sent", "kvpull_worker_release_to_sent_seconds",
		"From the poll that took the last release to SENT" },
	[KVPULL_TIMES_STEP] = { TOP_OF_WORKERS, "step", "kvpull_worker_step_seconds", "A step" },
	[KVPULL_TIMES_PULL] = { TOP_OF_WORKERS, "pull", "kvpull_worker_pull_seconds",
		"From a pull's command to its outcome" },
	[KVPULL_TIMES_FIRST] = { TOP_OF_WORKERS, "claim_to_first", "kvpull_worker_claim_to_first_seconds",
		"From a claim to the first bytes of its pull" },
	[KVPULL_TIMES_CHECK] = { TOP_OF_WORKERS, "check", "kvpull_worker_check_seconds",
		"From a pull's last bytes to its outcome" },
	[KVPULL_TIMES_READ] = { TOP_OF_POOLS, "read", "kvpull_reader_read_seconds", "From a read's beginning to its end" },
};
/* clang-format on */

void top_each_of(const struct top_table *table, const struct top *top,
		 const struct top_worker *worker, top_row_fn *give,
		 void *context)
{
	struct top_row row = { .table = table,
			       .top = top,
			       .worker = worker,
			       .give = give,
			       .context = context };

	if (top_is_of(worker, table->of))
		table->each(&row);
}

void top_each(const struct top_table *table, const struct top *top,
	      top_row_fn *give, void *context)
{
	uint32_t at;

	for (at = 0; at < top->worker_count; at++)
		top_each_of(table, top, &top->workers[at], give, context);
	top_each_of(table, top, NULL, give, context);
}
