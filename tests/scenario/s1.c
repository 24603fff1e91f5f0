/* SPDX-License-Identifier: Apache-2.0 */
/*
 * S1: what goes wrong at night is named by kvpull_top alone: which engine, which
 * process, for how long, how many blocks. Also while P's engine stands, and
 * after its kill -9. Likewise of a pool: its owner and who reads it.
 */
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/scenario/f14.h"
#include "tests/scenario/node.h"
#include "tests/scenario/top.h"

#define BLOCKS 8u /* of a request */
#define CROWD 38u
#define LIMIT_NS (10 * SCENARIO_NS_PER_S * patience())

static void open_node(const struct scenario *scenario, struct node *node,
		      const char *id, const char *folder, const char *config)
{
	const struct node_params params = {
		.scenario = scenario,
		.id = id,
		.config = config,
		.shape = scenario_shape(4096, 2048, 2),
		.tp_size = 1,
		.socket_dir = folder,
	};

	node_open(node, &params);
}

/* D claims so many tickets of P's, and does nothing with them. */
static void claim_some(struct node *p, struct node *d, uint32_t count)
{
	static struct node_message message;
	struct node_stats stats;
	uint64_t before;
	uint32_t at;

	/*
	 * P and D are connected: a claim that waits for a connection may
	 * outwait its lease.
	 */
	node_pulls(p, d, BLOCKS, 1);
	node_stats_get(p, &stats);
	before = stats.ranks[0].claims;
	for (at = 0; at < count; at++) {
		(void)node_prefill(p, &message, BLOCKS, at + 1);
		message.op = NODE_ADMIT;
		node_call(d, &message);
		scenario_check(!message.code, "admit: error %d", message.code);
	}
	node_claims_await(p, 1, before + count, LIMIT_NS);
}

static double number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

/* NULL: none of that kind is about this process. */
static const json_t *finding_of(const json_t *top, const char *what, pid_t pid)
{
	const json_t *findings = json_object_get(top, "findings");
	const json_t *finding;
	size_t at;

	json_array_foreach(findings, at, finding)
	{
		if (!strcmp(json_string_value(json_object_get(finding, "what")),
			    what) &&
		    (pid_t)number(finding, "pid") == pid)
			return finding;
	}
	return NULL;
}

/* A finding of that kind that names this node. */
static void named(const json_t *top, const char *what, const struct node *node,
		  uint32_t holds, double since_min_s)
{
	const json_t *finding = finding_of(top, what, node->pid);
	const char *engine;

	if (!finding) {
		top_print(top, "findings");
		scenario_fail("no %s names %s pid %d", what, node->id,
			      node->pid);
	}
	engine = json_string_value(json_object_get(finding, "engine"));
	scenario_check(engine && !strcmp(engine, node->id),
		       "%s names engine %s, not %s", what, engine, node->id);
	scenario_check(number(finding, "holds") == holds &&
			       number(finding, "blocks") == holds * BLOCKS,
		       "%s: %.0f holds, %.0f blocks, not %u and %u", what,
		       number(finding, "holds"), number(finding, "blocks"),
		       holds, holds * BLOCKS);
	scenario_check(number(finding, "since_s") >= since_min_s &&
			       number(finding, "since_s") < 30,
		       "%s: for %.2f s", what, number(finding, "since_s"));
	(void)printf("    %s\n",
		     json_string_value(json_object_get(finding, "text")));
}

/*
 * Waits until kvpull_top shows this finding for the process, or for LIMIT_NS.
 */
static json_t *shown_with(const struct top_folder *folder, const char *what,
			  pid_t pid)
{
	const uint64_t until = engine_now_ns() + LIMIT_NS;
	json_t *top = top_json(folder);

	while (!finding_of(top, what, pid) && engine_now_ns() < until) {
		json_decref(top);
		scenario_sleep_ns(50 * SCENARIO_NS_PER_MS);
		top = top_json(folder);
	}
	return top;
}

/* The screen alone names the culprit, at each of three sizes. */
static void captured(const struct top_folder *folder, const struct node *node)
{
	char culprit[96];

	(void)snprintf(culprit, sizeof(culprit), "%s pid %d", node->id,
		       node->pid);
	top_captures(folder, culprit);
}

static void not_said(const json_t *top, const char *what)
{
	const json_t *findings = json_object_get(top, "findings");
	const json_t *finding;
	size_t at;

	json_array_foreach(findings, at, finding) scenario_check(
		strcmp(json_string_value(json_object_get(finding, "what")),
		       what) != 0,
		"%s is said of one that is well", what);
}

static void s1_paused(const struct scenario *scenario)
{
	const char *config = "\"lease_ms\":4000";
	struct top_folder folder;
	struct node p, d;
	json_t *top;

	top_folder_open(&folder);
	open_node(scenario, &p, "prefill-a", folder.path, config);
	open_node(scenario, &d, "decode-b", folder.path, config);
	claim_some(&p, &d, 5);
	scenario_sleep_ns(2200 * SCENARIO_NS_PER_MS);
	top = top_json(&folder);
	not_said(top, "consumer-silent");
	json_decref(top);
	scenario_check(!kill(d.pid, SIGSTOP), "SIGSTOP");
	top = shown_with(&folder, "consumer-silent", d.pid);
	named(top, "consumer-silent", &d, 5, 2);
	/* The last heartbeat came up to a third of a lease before. */
	named(top, "process-stopped", &d, 0, 0.5);
	json_decref(top);
	captured(&folder, &d);
	(void)kill(d.pid, SIGCONT);
	node_kill(&d);
	node_close(&p);
	top_folder_close(&folder);
}

static void s1_expiry(const struct scenario *scenario)
{
	const char *config = "\"lease_ms\":500";
	static struct node_message message;
	struct node_message event;
	struct top_folder folder;
	struct node p, idle, busy;
	uint32_t expired = 0;
	uint32_t pulls = 0;
	const uint64_t until = engine_now_ns() + LIMIT_NS;
	json_t *top;

	top_folder_open(&folder);
	open_node(scenario, &p, "prefill-a", folder.path, config);
	open_node(scenario, &idle, "decode-idle", folder.path, config);
	open_node(scenario, &busy, "decode-busy", folder.path, config);
	claim_some(&p, &idle, 6);
	scenario_check(!kill(idle.pid, SIGSTOP), "SIGSTOP");
	for (; expired < 6; pulls++) {
		scenario_check(engine_now_ns() < until, "no lease ends");
		(void)node_prefill(&p, &message, BLOCKS, 100 + pulls);
		message.key = node_pull(&busy, &message);
		node_await(&busy, message.key, &event, LIMIT_NS);
		scenario_check(event.kind == KVPULL_POLL_LOADED && !event.wrong,
			       "a pull failed: error %d", event.reason);
		while (node_event(&p, &event, 0))
			expired += event.reason == KVPULL_END_EXPIRED;
	}
	scenario_say("%u pulls meanwhile", pulls);
	top = top_json(&folder);
	named(top, "holds-expire", &idle, 6, 0);
	json_decref(top);
	captured(&folder, &idle);
	(void)kill(idle.pid, SIGCONT);
	node_kill(&idle);
	node_close(&busy);
	node_close(&p);
	top_folder_close(&folder);
}

/* Each of P's oldest holds says whose claim it is. */
static void claimed_by(const json_t *top, const struct node *p, const char *who)
{
	const json_t *worker;
	size_t at;

	json_array_foreach(json_object_get(top, "workers"), at, worker)
	{
		const json_t *oldest = json_object_get(
			json_object_get(worker, "holds"), "oldest");
		const json_t *hold;
		size_t each;

		if ((pid_t)number(worker, "pid") != p->pid)
			continue;
		json_array_foreach(oldest, each, hold) scenario_check(
			!strcmp(json_string_value(
					json_object_get(hold, "claimed_by")),
				who),
			"a hold is not claimed by %s", who);
		scenario_check(each != 0, "P has no holds");
		return;
	}
	scenario_fail("P is not there");
}

static const json_t *worker_of(const json_t *top, pid_t pid)
{
	const json_t *worker;
	size_t at;

	json_array_foreach(json_object_get(top, "workers"), at, worker)
	{
		if ((pid_t)number(worker, "pid") == pid)
			return worker;
	}
	scenario_fail("no worker of pid %d", pid);
}

/* Ages of what a process kept do not stand still when it is gone. */
static void goes_on(const struct top_folder *folder, const json_t *before,
		    const struct node *p)
{
	static const char *const ages[] = { "heard_s", "oldest_s" };
	json_t *after;
	uint32_t age;
	size_t at;
	const json_t *consumers =
		json_object_get(worker_of(before, p->pid), "consumers");
	const json_t *then;

	scenario_sleep_ns(300 * SCENARIO_NS_PER_MS);
	after = top_json(folder);
	json_array_foreach(consumers, at, then)
	{
		const json_t *now = json_array_get(
			json_object_get(worker_of(after, p->pid), "consumers"),
			at);

		if (!number(then, "holds"))
			continue;
		for (age = 0; age < 2; age++)
			scenario_check(number(now, ages[age]) >=
					       number(then, ages[age]) + 0.3,
				       "%s stands still at %.3f", ages[age],
				       number(now, ages[age]));
	}
	json_decref(after);
}

static void s1_leak(const struct scenario *scenario)
{
	const char *config = "\"lease_ms\":600,\"max_holds\":32";
	struct node_message freeze = { .op = NODE_FREEZE }; /* for good */
	struct top_folder folder;
	struct node p, d, other;
	char claimed[96];
	char pid[24];
	json_t *top;

	top_folder_open(&folder);
	open_node(scenario, &p, "prefill-a", folder.path, config);
	open_node(scenario, &other, "decode-other", folder.path, config);
	open_node(scenario, &d, "decode-leaks", folder.path, config);
	claim_some(&p, &d, 32);
	top = shown_with(&folder, "holds-kept", d.pid);
	named(top, "table-full", &d, 32, 0.5);
	named(top, "holds-kept", &d, 32, 0.5);
	claimed_by(top, &p, d.id);
	not_said(top, "engine-silent");
	json_decref(top);
	captured(&folder, &d);
	/* All of the claimant's name, and its pid, at 80 columns. */
	(void)snprintf(claimed, sizeof(claimed), "%-13s %7d", d.id, d.pid);
	top_capture(&folder, 80, 24, "h", claimed);
	/* P's engine stands: nobody asks it anything. */
	node_send(&p, &freeze);
	top = shown_with(&folder, "engine-silent", p.pid);
	named(top, "engine-silent", &p, 32, 2);
	named(top, "table-full", &d, 32, 1);
	not_said(top, "consumer-silent");
	json_decref(top);
	node_kill(&p);
	top = top_json(&folder);
	named(top, "process-gone", &p, 32, 0);
	named(top, "table-full", &d, 32, 1);
	not_said(top, "holds-kept");
	goes_on(&folder, top, &p);
	json_decref(top);
	captured(&folder, &d);
	top_capture(&folder, 80, 24, "c", " P gone ");
	(void)snprintf(pid, sizeof(pid), "%d", p.pid);
	scenario_check(!top_run(&folder, "--after", pid, NULL),
		       "--after finds nothing of it");
	scenario_check(top_run(&folder, "--after", "1", NULL) != 0,
		       "--after finds what is not there");
	node_kill(&d);
	node_close(&other);
	top_folder_close(&folder);
}

/* Each of these consumers is well: it pulls once. */
static void crowd_open(const struct scenario *scenario, const char *folder,
		       const char *config, struct node *p, struct node *crowd)
{
	static char ids[CROWD][16];
	static struct node_message message;
	struct node_message event;
	uint32_t at;

	for (at = 0; at < CROWD; at++) {
		(void)snprintf(ids[at], sizeof(ids[at]), "decode-%02u", at);
		open_node(scenario, &crowd[at], ids[at], folder, config);
		(void)node_prefill(p, &message, BLOCKS, 100 + at);
		node_await(&crowd[at], node_pull(&crowd[at], &message), &event,
			   LIMIT_NS);
		scenario_check(event.kind == KVPULL_POLL_LOADED && !event.wrong,
			       "%s: error %d", ids[at], event.reason);
	}
}

/* Forty engines fill the screen: findings, with their culprits, stand first. */
static void s1_forty(const struct scenario *scenario)
{
	const char *config = "\"lease_ms\":600,\"max_holds\":32";
	static struct node crowd[CROWD];
	struct top_folder folder;
	struct node p, d;
	json_t *top;
	uint32_t at;

	top_folder_open(&folder);
	open_node(scenario, &p, "prefill-a", folder.path, config);
	crowd_open(scenario, folder.path, config, &p, crowd);
	open_node(scenario, &d, "decode-leaks", folder.path, config);
	claim_some(&p, &d, 32);
	top = shown_with(&folder, "holds-kept", d.pid);
	named(top, "holds-kept", &d, 32, 0.5);
	scenario_check(json_array_size(json_object_get(top, "workers")) ==
			       CROWD + 2,
		       "the engines are not forty");
	json_decref(top);
	captured(&folder, &d);
	node_kill(&p);
	captured(&folder, &p);
	node_kill(&d);
	for (at = 0; at < CROWD; at++)
		node_kill(&crowd[at]);
	top_folder_close(&folder);
}

static void s1_screens(const struct scenario *scenario)
{
	const char *config = "\"lease_ms\":600,\"max_holds\":32";
	struct top_folder folder;
	struct node p, d;
	uint32_t at;

	top_folder_open(&folder);
	open_node(scenario, &p, "prefill-a", folder.path, config);
	open_node(scenario, &d, "decode-b", folder.path, config);
	node_pulls(&p, &d, BLOCKS, 20);
	claim_some(&p, &d, 31);
	scenario_sleep_ns(900 * SCENARIO_NS_PER_MS);
	top_metrics_check(&folder,
			  "kvpull_consumer_hold_blocks{engine=\"prefill-a\"");
	top_captures(&folder, "holds-kept");
	top_capture(&folder, 80, 24, "?", "reverse the order");
	top_capture(&folder, 80, 24, "h", "q end  ? help");
	top_capture(&folder, 80, 24, "h\033[6~", "13-29 of 31");
	top_capture(&folder, 80, 24, "h>>", "by AGE");
	top_capture(&folder, 80, 24, "c/decode-b\r", "/decode-b");
	for (at = 0; at < 10; at++)
		top_interrupt(&folder);
	node_kill(&d);
	node_kill(&p);
	top_folder_close(&folder);
}

/* Not before P's rank has taken its hold: the spans of both overlap then. */
static void pull_what_is_held(struct node *p, struct node *d, uint32_t taken)
{
	static struct node_message message;
	const uint64_t until = engine_now_ns() + LIMIT_NS;
	struct node_message event;
	struct node_stats stats;
	uint64_t key;

	key = node_prefill(p, &message, BLOCKS, taken);
	do {
		scenario_check(engine_now_ns() < until, "no hold is taken");
		node_stats_get(p, &stats);
	} while (stats.ranks[0].holds_taken < taken);
	node_await(d, node_pull(d, &message), &event, LIMIT_NS);
	scenario_check(event.kind == KVPULL_POLL_LOADED && !event.wrong,
		       "a pull: error %d", event.reason);
	node_await(p, key, &event, LIMIT_NS);
}

static void s1_trace(const struct scenario *scenario)
{
	struct top_folder folder;
	struct node p, d;
	char path[128];
	json_t *trace;
	uint32_t at;

	top_folder_open(&folder);
	open_node(scenario, &p, "prefill-a", folder.path, "");
	open_node(scenario, &d, "decode-b", folder.path, "");
	for (at = 0; at < 20; at++)
		pull_what_is_held(&p, &d, at + 1);
	(void)snprintf(path, sizeof(path), "%s/trace.json", folder.path);
	scenario_check(!top_run(&folder, "--trace", path, NULL), "no trace");
	trace = json_load_file(path, 0, NULL);
	scenario_check(trace != NULL, "the trace is no JSON");
	scenario_say("%u events", top_trace_check(trace, 20));
	json_decref(trace);
	node_close(&d);
	node_close(&p);
	top_folder_close(&folder);
}

/* A pool's reader, in a process of its own. */
struct pool_reader {
	_Atomic uint32_t tries; /* that brought something */
	_Atomic uint32_t hangs; /* it is to ask, and to poll no more */
};

static void pool_reader_main(const struct scenario *scenario,
			     const struct f14_arena *arena,
			     struct pool_reader *shared)
{
	const uint64_t number = 1;
	const struct kvpull_reader_key key = { &number, sizeof(number) };
	struct kvpull_reader_place place;
	struct f14_reader reader;
	struct kvpull_reader_probe probe = { .struct_size = sizeof(probe),
					     .key_count = 1,
					     .keys = &key,
					     .key_bytes = sizeof(key),
					     .places = &place,
					     .place_bytes = sizeof(place) };
	uint64_t id;

	scenario_check(!f14_reader_start(&reader, scenario, arena, "w1"),
		       "the reader is not let in");
	while (!atomic_load_explicit(&shared->hangs, memory_order_relaxed)) {
		const uint64_t good = reader.good;

		scenario_check(!f14_try(&reader, arena), "a read");
		atomic_fetch_add_explicit(&shared->tries, reader.good > good,
					  memory_order_relaxed);
		scenario_sleep_ns(SCENARIO_NS_PER_MS);
	}
	probe.peer = reader.peer;
	scenario_check(!reader.ops->probe(reader.handle, &probe, &id),
		       "a probe");
	atomic_store_explicit(&shared->hangs, 2, memory_order_relaxed);
	for (;;)
		(void)pause();
}

static pid_t pool_reader_start(const struct scenario *scenario,
			       const struct f14_arena *arena,
			       struct pool_reader *shared)
{
	const uint64_t until = engine_now_ns() + LIMIT_NS;
	const pid_t pid = fork();

	scenario_check(pid >= 0, "fork");
	if (!pid) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		pool_reader_main(scenario, arena, shared);
	}
	while (atomic_load_explicit(&shared->tries, memory_order_relaxed) < 5) {
		scenario_check(engine_now_ns() < until, "nothing is read");
		scenario_sleep_ns(SCENARIO_NS_PER_MS);
	}
	return pid;
}

/* The handle of that process in --json, which must show no worker. */
static const json_t *pool_of(const json_t *top, pid_t pid)
{
	const json_t *pool;
	size_t at;

	scenario_check(!json_array_size(json_object_get(top, "workers")),
		       "a pool's handle is shown as a worker");
	json_array_foreach(json_object_get(top, "pools"), at, pool)
	{
		if ((pid_t)number(pool, "pid") == pid)
			return pool;
	}
	top_print(top, "pools");
	scenario_fail("no pool of pid %d", pid);
}

static void says(const json_t *object, const char *key, const char *text)
{
	const char *is = json_string_value(json_object_get(object, key));

	scenario_check(is && !strcmp(is, text), "%s is %s, not %s", key,
		       is ? is : "not said", text);
}

static void pool_named(const json_t *top, const char *what, pid_t pid,
		       const char *words)
{
	const json_t *finding = finding_of(top, what, pid);
	const char *text;

	if (!finding) {
		top_print(top, "findings");
		scenario_fail("no %s names pid %d", what, pid);
	}
	text = json_string_value(json_object_get(finding, "text"));
	scenario_check(strstr(text, words) != NULL, "%s: %s", what, text);
	(void)printf("    %s\n", text);
}

/* Owner and reader as the other sees it, and what came over. */
static void pool_shown(const json_t *top, pid_t owner, pid_t reader)
{
	const json_t *one = pool_of(top, owner);
	const json_t *caller =
		json_array_get(json_object_get(one, "readers"), 0);
	const json_t *peer;

	says(one, "role", "owner");
	says(one, "state", "running");
	scenario_check(number(one, "chunks") == F14_CHUNKS &&
			       number(one, "chunk_bytes") == F14_CHUNK_BYTES,
		       "%.0f chunks", number(one, "chunks"));
	scenario_check(
		(pid_t)number(caller, "pid") == reader &&
			json_is_true(json_object_get(caller, "connected")),
		"the owner's reader is pid %.0f", number(caller, "pid"));
	one = pool_of(top, reader);
	says(one, "role", "reader");
	scenario_check(
		number(json_object_get(one, "counters"), "pieces_good") > 0 &&
			number(json_object_get(json_object_get(one, "times"),
					       "read"),
			       "count") > 0,
		"nothing was read");
	peer = json_array_get(json_object_get(one, "peers"), 0);
	says(peer, "state", "up");
	says(peer, "route", "shm");
	scenario_check((pid_t)number(peer, "pid") == owner &&
			       number(peer, "bytes") > 0 &&
			       number(peer, "pulls") > 0,
		       "the reader's peer is pid %.0f", number(peer, "pid"));
}

/* An owner with other weights in this process: the refused reader sees why. */
static void pool_refused(const struct scenario *scenario,
			 const struct f14_arena *arena,
			 const struct top_folder *folder)
{
	struct f14_reader other;
	json_t *top;

	scenario_check(f14_reader_start(&other, scenario, arena, "w2") ==
			       KVPULL_EREJECTED,
		       "other weights are let in");
	top = top_json(folder);
	pool_named(top, "peer-given-up", getpid(),
		   "weights is w1 there and w2 here");
	says(json_array_get(json_object_get(pool_of(top, getpid()), "peers"),
			    0),
	     "error", "EREJECTED");
	json_decref(top);
	f14_reader_stop(&other);
}

static void pool_kill(pid_t pid)
{
	scenario_check(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid,
		       "kill");
}

static void s1_pool(const struct scenario *scenario)
{
	struct f14_arena *arena = f14_arena_make();
	struct pool_reader *shared =
		mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct scenario own = *scenario;
	struct top_folder folder;
	pid_t owner, reader;
	json_t *top;

	scenario_check(shared != MAP_FAILED, "out of memory");
	top_folder_open(&folder);
	own.folder = folder.path;
	owner = f14_owner_start(&own, arena);
	reader = pool_reader_start(&own, arena, shared);
	top = top_json(&folder);
	pool_shown(top, owner, reader);
	not_said(top, "engine-silent");
	json_decref(top);
	pool_refused(&own, arena, &folder);
	atomic_store_explicit(&shared->hangs, 1, memory_order_relaxed);
	top = shown_with(&folder, "engine-silent", reader);
	scenario_check(
		atomic_load_explicit(&shared->hangs, memory_order_relaxed) == 2,
		"the reader does not hang");
	pool_named(top, "engine-silent", reader,
		   "it has 1 probes and reads in flight");
	json_decref(top);
	pool_kill(owner);
	pool_kill(reader);
	top = top_json(&folder);
	pool_named(top, "process-gone", owner, "(a pool's owner) is gone");
	pool_named(top, "process-gone", reader, "(a pool's reader) is gone");
	says(pool_of(top, owner), "state", "gone");
	scenario_check(
		number(pool_of(top, owner), "chunks") == F14_CHUNKS &&
			number(json_object_get(pool_of(top, owner), "counters"),
			       "puts") > 0,
		"what the owner shared is not said");
	json_decref(top);
	top_metrics_check(&folder, "kvpull_reader_chunks{engine=\"pool\"");
	top_folder_close(&folder);
}

const struct scenario_case scenario_s1[] = {
	{ "S1a", "a paused consumer is named", s1_paused, 30, 60 },
	{ "S1b", "whose leases expire is named", s1_expiry, 30, 60 },
	{ "S1c", "who filled the table is named, also when P stands or is gone",
	  s1_leak, 40, 80 },
	{ "S1d", "metrics, and what the keys of the screen show", s1_screens,
	  30, 60 },
	{ "S1e", "a trace of 20 requests joins both sides", s1_trace, 30, 60 },
	{ "S1f",
	  "a pool's owner and reader are named, also hung, refused or gone",
	  s1_pool, 30, 60 },
	{ "S1g", "who filled the table stands first among forty engines",
	  s1_forty, 60, 60 },
	{ 0 },
};
