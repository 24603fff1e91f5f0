/* SPDX-License-Identifier: Apache-2.0 */
/* The snapshots as one JSON object, for programs. */
#include <inttypes.h>
#include <string.h>

#include "tools/json.h"
#include "tools/kvpull_top_parts.h"

static json_t *text_of(const char *from, size_t bytes)
{
	char text[256];
	json_t *value;

	top_text(text, sizeof(text), from, bytes);
	value = json_string(text);
	/* Not UTF-8: somebody's bytes. */
	return value ? value : json_string("?");
}

static json_t *hex_of(uint64_t number)
{
	return json_sprintf("%016" PRIx64, number);
}

/* An array of characters. */
#define SET_TEXT(object, key, text)                                            \
	set_value(object, key, text_of(text, sizeof(text)))

static void set_seconds(json_t *object, const char *key, uint64_t ns)
{
	set_real(object, key, (double)ns / (double)KVPULL_NS_PER_S);
}

static void set_label(json_t *object, const _Atomic uint64_t *words)
{
	char label[KVPULL_STATUS_LABEL_BYTES];

	kvpull_status_label_get(words, label);
	SET_TEXT(object, "label", label);
}

static json_t *counters_of(const struct top_worker *worker)
{
	json_t *object = json_object();
	uint32_t count;
	const struct kvpull_status_counter *rows =
		top_rows(worker, KVPULL_STATUS_COUNTERS, &count);
	uint32_t at;

	for (at = 0; at < count; at++) {
		char name[sizeof(rows[at].name) + 1];

		top_text(name, sizeof(name), rows[at].name,
			 sizeof(rows[at].name));
		set(object, name, top_counter(worker, at));
	}
	return object;
}

static json_t *failures_of(const struct top_worker *worker)
{
	json_t *object = json_object();
	int code;

	for (code = 1; code < (int)KVPULL_STATUS_CODES; code++) {
		const uint64_t failures = top_failures(worker, code);

		if (failures)
			set(object, kvpull_error_name(-code), failures);
	}
	return object;
}

static json_t *times_of(const struct top_worker *worker)
{
	static const char *const names[KVPULL_TIMES_COUNT] = {
		"hold",           "release_to_sent", "step", "pull",
		"claim_to_first", "check",           "read"
	};
	json_t *object = json_object();
	uint32_t which;

	for (which = 0; which < KVPULL_TIMES_COUNT; which++) {
		uint64_t buckets[KVPULL_STATUS_BUCKETS];
		const uint64_t times = top_times(worker, which, buckets);
		json_t *row;

		/* A pool takes that of a read alone, and nobody else does. */
		if (!top_pool(worker) != (which != KVPULL_TIMES_READ))
			continue;
		row = json_object();
		set(row, "count", times);
		set(row, "p50_ns", top_quantile(buckets, times, 50));
		set(row, "p99_ns", top_quantile(buckets, times, 99));
		set_value(object, names[which], row);
	}
	return object;
}

static json_t *consumers_of(const struct top_worker *worker)
{
	uint32_t count;
	const struct top_consumer *consumers = top_consumers(worker, &count);
	json_t *array = json_array();
	uint32_t at;

	for (at = 0; at + 1 < count; at++) {
		const struct top_consumer *one = &consumers[at];
		const struct kvpull_status_consumer *row = one->row;
		json_t *object = json_object();

		SET_TEXT(object, "engine", row->engine_id);
		set(object, "pid", row->pid);
		set(object, "uid", row->uid);
		set(object, "rank", row->rank);
		set(object, "rank_count", row->rank_count);
		set_value(object, "instance",
			  hex_of(kvpull_status_get(&row->instance)));
		SET_TEXT(object, "route", row->route);
		set_value(object, "connected",
			  json_boolean(kvpull_status_get(&row->state) ==
				       KVPULL_SHOWN_HERE));
		set_seconds(object, "heard_s", one->heard_ns);
		set(object, "claims", kvpull_status_get(&one->words->claims));
		set(object, "releases",
		    kvpull_status_get(&one->words->releases));
		set(object, "expired", kvpull_status_get(&one->words->expired));
		set(object, "holds", one->holds);
		set(object, "blocks", one->blocks);
		set_seconds(object, "oldest_s", one->oldest_ns);
		(void)json_array_append_new(array, object);
	}
	return array;
}

static json_t *peers_of(const struct top_worker *worker)
{
	uint32_t count;
	const struct kvpull_status_peer *rows =
		top_rows(worker, KVPULL_STATUS_PEERS, &count);
	json_t *array = json_array();
	uint32_t at;

	for (at = 0; at < count; at++) {
		const struct kvpull_status_peer *row = &rows[at];
		const int32_t error = kvpull_status_get(&row->error);
		json_t *object;

		if (!top_peer_is_shown(row))
			continue;
		object = json_object();
		SET_TEXT(object, "engine", row->engine_id);
		set(object, "pid", row->pid);
		SET_TEXT(object, "address", row->address);
		SET_TEXT(object, "route", row->route);
		SET_TEXT(object, "why", row->why);
		set_value(object, "state",
			  json_string(top_peer_state(
				  kvpull_status_get(&row->state))));
		set_value(object, "error",
			  error ? json_string(kvpull_error_name(error)) :
				  json_null());
		set(object, "retries", kvpull_status_get(&row->retries));
		if (top_pool(worker)) {
			set_seconds(object, "since_s",
				    top_ago(worker,
					    kvpull_status_get(&row->since_ns)));
		} else {
			set(object, "claims", kvpull_status_get(&row->claims));
		}
		set(object, top_pool(worker) ? "reads" : "pulls",
		    top_peer_pulls(row));
		set(object, "failures", kvpull_status_get(&row->failures));
		set(object, "bytes", top_peer_bytes(row));
		(void)json_array_append_new(array, object);
	}
	return array;
}

static json_t *pulls_of(const struct top_worker *worker)
{
	uint32_t count;
	const struct kvpull_status_pull *rows =
		top_rows(worker, KVPULL_STATUS_PULLS, &count);
	json_t *array = json_array();
	uint32_t at;

	for (at = 0; at < count && json_array_size(array) < TOP_ROWS_MAX;
	     at++) {
		const uint32_t state =
			(uint32_t)kvpull_status_get(&rows[at].state);
		const uint64_t place = kvpull_status_get(&rows[at].slot_blocks);
		json_t *object;

		if (!state)
			continue;
		object = json_object();
		set(object, "key", kvpull_status_get(&rows[at].key));
		set_label(object, rows[at].label);
		set(object, "slot", (uint32_t)place);
		set(object, "generation",
		    kvpull_status_get(&rows[at].generation));
		set(object, "blocks", place >> 32);
		set_value(object, "state", json_string(top_pull_state(state)));
		set_seconds(object, "age_s",
			    top_ago(worker,
				    kvpull_status_get(&rows[at].started_ns)));
		(void)json_array_append_new(array, object);
	}
	return array;
}

static json_t *oldest_of(const struct top_worker *worker)
{
	uint32_t consumer_count;
	struct top_consumer *consumers = top_consumers(worker, &consumer_count);
	uint32_t slots[20];
	const uint32_t used = top_oldest(worker, slots, 20);
	uint32_t count;
	const struct kvpull_status_hold *rows =
		top_rows(worker, KVPULL_STATUS_HOLDS, &count);
	const struct kvpull_status_hold_now *nows = top_holds_now(worker);
	json_t *array = json_array();
	uint32_t at;

	for (at = 0; at < used; at++) {
		const struct kvpull_status_hold *row = &rows[slots[at]];
		const struct kvpull_status_hold_now *now = &nows[slots[at]];
		char claimant[KVPULL_STATUS_NAME_BYTES];
		json_t *object = json_object();

		top_claimant(now, consumers, consumer_count, claimant,
			     sizeof(claimant));

		set(object, "key", kvpull_status_get(&row->key));
		set_label(object, row->label);
		set(object, "slot", slots[at]);
		set(object, "generation", kvpull_status_get(&row->generation));
		set(object, "blocks", kvpull_status_get(&now->blocks));
		set_seconds(object, "age_s",
			    top_ago(worker, kvpull_status_get(&row->taken_ns)));
		set_seconds(object, "heard_s",
			    top_ago(worker, kvpull_status_get(&now->word_ns)));
		set_value(object, "claimed_by", json_string(claimant));
		(void)json_array_append_new(array, object);
	}
	return array;
}

static json_t *holds_of(const struct top_worker *worker)
{
	json_t *object = json_object();
	struct top_holds holds;

	top_holds(worker, &holds);
	set(object, "held", holds.held);
	set(object, "staged", holds.staged);
	set(object, "ended", holds.ended);
	set(object, "max", worker->header.max_holds);
	set(object, "blocks", holds.blocks);
	set(object, "claimed", holds.claimed);
	set_seconds(object, "oldest_s", holds.oldest_ns);
	set_value(object, "oldest", oldest_of(worker));
	return object;
}

/* The members that workers and pools have in common. */
static json_t *file_of(const struct top_worker *worker)
{
	const struct kvpull_status_header *header = &worker->header;
	json_t *object = json_object();

	SET_TEXT(object, "engine", header->engine_id);
	set(object, "pid", header->pid);
	set(object, "uid", header->uid);
	set(object, "rank", header->tp_rank);
	set(object, "rank_count", header->tp_size);
	set_value(object, "incarnation", hex_of(header->incarnation));
	SET_TEXT(object, "host", header->host);
	SET_TEXT(object, "library", header->library);
	set_value(object, "state", json_string(top_state_name(worker->state)));
	SET_TEXT(object, "path", worker->path);
	set_seconds(object, "up_s", top_ago(worker, header->opened_ns));
	set_seconds(object, "engine_thread_s",
		    top_ran(worker, KVPULL_STATUS_ENGINE));
	set(object, "errors_last_minute", top_errors(worker));
	set_value(object, "counters", counters_of(worker));
	set_value(object, "failures", failures_of(worker));
	set_value(object, "times", times_of(worker));
	set_value(object, "peers", peers_of(worker));
	return object;
}

static json_t *worker_of(const struct top_worker *worker)
{
	const struct kvpull_status_thread *engine =
		top_thread(worker, KVPULL_STATUS_ENGINE);
	json_t *object = file_of(worker);

	set_seconds(object, "lease_s", worker->header.lease_ns);
	set_seconds(object, "progress_thread_s",
		    top_ran(worker, KVPULL_STATUS_PROGRESS));
	set_seconds(object, "step_s",
		    top_ago(worker, kvpull_status_get(&engine->step_ns)));
	set_value(object, "holds", holds_of(worker));
	set_value(object, "consumers", consumers_of(worker));
	set_value(object, "pulls", pulls_of(worker));
	return object;
}

static json_t *readers_of(const struct top_worker *worker)
{
	uint32_t count;
	const struct kvpull_status_consumer *rows =
		top_rows(worker, KVPULL_STATUS_CONSUMERS, &count);
	json_t *array = json_array();
	uint32_t at;

	for (at = 0; at < count; at++) {
		const uint32_t state = kvpull_status_get(&rows[at].state);
		json_t *object;

		if (state == KVPULL_SHOWN_NONE)
			continue;
		object = json_object();
		SET_TEXT(object, "engine", rows[at].engine_id);
		set(object, "pid", rows[at].pid);
		set(object, "uid", rows[at].uid);
		set_value(object, "incarnation",
			  hex_of(kvpull_status_get(&rows[at].incarnation)));
		SET_TEXT(object, "route", rows[at].route);
		set_value(object, "connected",
			  json_boolean(state == KVPULL_SHOWN_HERE));
		set_seconds(
			object, "since_s",
			top_ago(worker, kvpull_status_get(&rows[at].since_ns)));
		(void)json_array_append_new(array, object);
	}
	return array;
}

static json_t *pool_of(const struct top_worker *worker)
{
	const struct kvpull_status_pool *pool = top_pool(worker);
	json_t *object = file_of(worker);

	set_value(object, "role", json_string(top_role(worker)));
	set_value(object, "shares",
		  json_boolean(kvpull_status_get(&pool->state) ==
			       KVPULL_SHOWN_HERE));
	set(object, "chunks", kvpull_status_get(&pool->chunk_count));
	set(object, "chunk_bytes", kvpull_status_get(&pool->chunk_bytes));
	set(object, "slots", kvpull_status_get(&pool->slot_count));
	set_value(object, "readers", readers_of(worker));
	return object;
}

static json_t *findings_of(const struct top *top)
{
	json_t *array = json_array();
	uint32_t at;

	for (at = 0; at < top->finding_count; at++) {
		const struct top_finding *finding = &top->findings[at];
		json_t *object = json_object();

		set_value(object, "what", json_string(finding->what));
		SET_TEXT(object, "engine", finding->engine);
		set(object, "pid", finding->pid);
		set_seconds(object, "since_s", finding->since_ns);
		set(object, "holds", finding->holds);
		set(object, "blocks", finding->blocks);
		set(object, "seen_by", finding->at->header.pid);
		SET_TEXT(object, "text", finding->text);
		(void)json_array_append_new(array, object);
	}
	return array;
}

static json_t *unread_of(const struct top *top)
{
	json_t *array = json_array();
	uint32_t at;

	for (at = 0; at < top->unread_count && at < TOP_UNREAD_MAX; at++) {
		json_t *object = json_object();

		SET_TEXT(object, "path", top->unread[at].path);
		SET_TEXT(object, "why", top->unread[at].why);
		(void)json_array_append_new(array, object);
	}
	return array;
}

int top_json(const struct top *top)
{
	json_t *object = json_object();
	json_t *workers = json_array();
	json_t *pools = json_array();
	uint32_t at;
	int failed;

	for (at = 0; at < top->worker_count; at++)
		if (top_pool(&top->workers[at]))
			(void)json_array_append_new(pools,
						    pool_of(&top->workers[at]));
		else
			(void)json_array_append_new(
				workers, worker_of(&top->workers[at]));
	set(object, "version", 1);
	set(object, "utc_ns", top->utc_ns);
	set(object, "unread_count", top->unread_count);
	set_value(object, "unread", unread_of(top));
	set(object, "workers_more", top->workers_more);
	set(object, "findings_more", top->findings_more);
	set_value(object, "findings", findings_of(top));
	set_value(object, "workers", workers);
	set_value(object, "pools", pools);
	failed = json_dumpf(object, stdout, JSON_INDENT(1)) != 0;
	(void)putchar('\n');
	json_decref(object);
	return failed;
}
