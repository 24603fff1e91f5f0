/* SPDX-License-Identifier: Apache-2.0 */
/* X3: blocks of P in an unnamed file, which D reads from the disk. */
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/uring.h"
#include "tests/scenario/file_library.h"
#include "tests/scenario/logs.h"
#include "tests/scenario/node.h"
#include "tests/scenario/sandbox.h"

#define LIMIT_NS (20 * SCENARIO_NS_PER_S * patience())
#define BLOCK_BYTES 16384u
#define POOL_BLOCKS 384u /* a group */
#define LAYERS 2u        /* a group */
#define BLOCKS_MAX 64u
#define LARGE_BLOCKS 320u /* 10 MiB of a group: some milliseconds */

struct x3_setup {
	const char *config;
	uint32_t file_only;
	uint32_t spin;
	void (*before_open)(void); /* D */
	const char *log;           /* what D's log says */
	uint32_t disk_hangs;       /* 1: none of D's reads comes back */
	uint32_t no_files;         /* 1: D reads none */
};

struct pair {
	const struct scenario *scenario;
	const struct x3_setup *setup;
	struct node p, d;
	uint64_t seed;
};

/* ---- the pair ---- */

static void side_open(struct pair *pair, struct node *node, const char *id)
{
	const struct x3_setup *setup = pair->setup;
	const uint32_t is_producer = *id == 'p';
	const uint32_t groups = setup->file_only ? 1 : 2;
	const struct node_params params = {
		.scenario = pair->scenario,
		.id = id,
		.config = setup->config,
		.shape = { .block_bytes = BLOCK_BYTES,
			   .block_count = POOL_BLOCKS * groups,
			   .layer_count = LAYERS * groups,
			   .group_count = groups,
			   .block_tokens = 16 },
		.tp_size = 1,
		.spin = setup->spin,
		.scribble = is_producer,
		.before_open = is_producer ? NULL : setup->before_open,
		.log_path = log_path(id),
		.library = is_producer ?
				   (setup->file_only ? file_library_only :
						       file_library_mixed) :
			   setup->disk_hangs && *id == 'c' ?
				   file_library_unloading :
				   NULL,
	};

	node_open(node, &params);
}

static void pair_open(struct pair *pair, const struct scenario *scenario,
		      const struct x3_setup *setup)
{
	*pair = (struct pair){ .scenario = scenario, .setup = setup };
	logs_open(scenario);
	side_open(pair, &pair->p, "producer");
	side_open(pair, &pair->d, "consumer");
}

static void pair_close(struct pair *pair)
{
	node_check_empty(&pair->p);
	node_check_empty(&pair->d);
	if (!pair->setup->no_files)
		log_has("consumer", "a peer's file is read with");
	if (pair->setup->log)
		log_has("consumer", pair->setup->log);
	node_close(&pair->d);
	node_close(&pair->p);
}

static void held_ends(struct node *p, uint64_t held, int32_t reason)
{
	struct node_message event;

	node_await(p, held, &event, LIMIT_NS);
	scenario_check(event.reason == reason, "a hold ended by %d",
		       event.reason);
}

/* From prefill to the hold's end; every byte compared. */
static uint64_t works_from(struct pair *pair, struct node *p, uint32_t blocks)
{
	static struct node_message message;
	struct node_message event;
	uint64_t held;

	held = node_prefill(p, &message, blocks, pair->seed += 1000003);
	node_await(&pair->d, node_pull(&pair->d, &message), &event, LIMIT_NS);
	scenario_check(event.kind == KVPULL_POLL_LOADED, "a pull: error %d",
		       event.reason);
	scenario_check(!event.wrong, "%llu wrong bytes",
		       (unsigned long long)event.wrong);
	held_ends(p, held, KVPULL_END_RELEASED);
	return event.bytes;
}

static uint64_t works(struct pair *pair, uint32_t blocks)
{
	return works_from(pair, &pair->p, blocks);
}

static void pulls_run(const struct scenario *scenario,
		      const struct x3_setup *setup)
{
	const uint32_t rounds = scenario->full ? 200 : 8;
	static struct pair pair;
	uint64_t random = 7;
	uint64_t bytes = 0;
	uint32_t round;

	pair_open(&pair, scenario, setup);
	for (round = 0; round < rounds; round++)
		bytes += works(&pair, 1 + (uint32_t)(random_next(&random) %
						     BLOCKS_MAX));
	bytes += works(&pair, LARGE_BLOCKS);
	pair_close(&pair);
	scenario_say("%u pulls, %llu KiB equal", rounds + 1,
		     (unsigned long long)(bytes / 1024));
}

static void x3_mixed(const struct scenario *scenario)
{
	const struct x3_setup setup = { .config = "" };

	pulls_run(scenario, &setup);
}

static void x3_file(const struct scenario *scenario)
{
	const struct x3_setup setup = { .config = "", .file_only = 1 };

	pulls_run(scenario, &setup);
}

/* Without it no thread would read files for an engine that has none. */
static void caller_needs_uring(void)
{
	const int refused = uring_errno();

	if (refused)
		scenario_refuse("io_uring: %s", strerror(refused));
}

static void x3_caller(const struct scenario *scenario)
{
	const struct x3_setup setup = {
		.config = "\"progress\":\"caller\",\"copy_threads\":0",
		.spin = 1,
	};

	caller_needs_uring();
	pulls_run(scenario, &setup);
}

static void x3_sleeping_caller(const struct scenario *scenario)
{
	const struct x3_setup setup = { .config = "\"progress\":\"caller\"",
					.file_only = 1 };

	caller_needs_uring();
	pulls_run(scenario, &setup);
}

static void x3_switched_off(const struct scenario *scenario)
{
	const struct x3_setup setup = { .config = "\"uring\":\"no\"",
					.log = "no io_uring: switched off" };

	pulls_run(scenario, &setup);
}

static void x3_eperm(const struct scenario *scenario)
{
	const struct x3_setup setup = {
		.config = "",
		.before_open = sandbox_uring_eperm,
		.log = "no io_uring: Operation not permitted",
	};

	pulls_run(scenario, &setup);
}

static void x3_enosys(const struct scenario *scenario)
{
	const struct x3_setup setup = {
		.config = "",
		.before_open = sandbox_uring_enosys,
		.log = "no io_uring: Function not implemented",
	};

	pulls_run(scenario, &setup);
}

/* D's one thread may wait for no disk. */
static void x3_caller_refused(const struct scenario *scenario)
{
	const struct x3_setup setup = {
		.config = "\"progress\":\"caller\",\"copy_threads\":0,"
			  "\"lease_ms\":1000",
		.spin = 1,
		.before_open = sandbox_uring_eperm,
		.log = "progress caller needs io_uring",
		.no_files = 1,
	};
	static struct node_message message;
	struct node_message event;
	struct node other;
	struct pair pair;
	uint64_t bytes = 0;
	uint64_t held;
	uint32_t round;

	pair_open(&pair, scenario, &setup);
	side_open(&pair, &other, "other"); /* all of its blocks are memory */
	for (round = 0; round < 3; round++) {
		(void)node_prefill(&pair.p, &message, BLOCKS_MAX, pair.seed++);
		held = message.key;
		node_await(&pair.d, node_pull(&pair.d, &message), &event,
			   LIMIT_NS);
		scenario_check(event.kind == KVPULL_POLL_FAILED &&
				       event.reason == KVPULL_EUNSUPPORTED,
			       "a pull ended as %u, error %d", event.kind,
			       event.reason);
		/* D cannot read P's files, and gives the ticket back. */
		held_ends(&pair.p, held, KVPULL_END_GIVEN_BACK);
		bytes += works_from(&pair, &other, BLOCKS_MAX);
	}
	pair_close(&pair);
	node_check_empty(&other);
	node_close(&other);
	scenario_say("%u refused, %llu KiB equal", round, bytes / 1024ull);
}

/* D can read P's file, and has what a container gives it. */
static void x3_another_uid(const struct scenario *scenario)
{
	const struct x3_setup setup = {
		.config = "\"uids\":[0,65534]",
		.before_open = sandbox_nobody,
	};

	if (geteuid())
		scenario_refuse("users other than our own need root");
	scenario_check(!chmod(scenario->folder, 01777), "chmod");
	pulls_run(scenario, &setup);
}

/* ---- ends in the middle ---- */

/* How long after a pull's command its middle is; found by trying. */
struct moment {
	uint64_t delay_ns;
	uint32_t early; /* it was too early or just right: the pull failed */
	uint32_t late;  /* the pull was over */
};

static void moment_learn(struct moment *moment, uint32_t was_late)
{
	moment->early += !was_late;
	moment->late += was_late;
	moment->delay_ns =
		was_late ? moment->delay_ns / 2 :
			   moment->delay_ns + moment->delay_ns / 4 + 100000;
}

/* Some rounds; more while the machine is too slow to meet the middle. */
static int moment_goes_on(const struct moment *moment, uint32_t rounds)
{
	const uint32_t done = moment->early + moment->late;

	return done < rounds || (!moment->early && done < rounds * 20);
}

/* A large pull that something is about to happen to. */
static uint64_t large_start(struct pair *pair, struct node_message *message)
{
	(void)node_prefill(&pair->p, message, LARGE_BLOCKS,
			   pair->seed += 1000003);
	return node_pull(&pair->d, message);
}

/* The pull's end: right bytes, or that error. */
static void large_end(struct pair *pair, uint64_t key, int32_t reason,
		      struct moment *moment)
{
	struct node_message event;

	node_await(&pair->d, key, &event, LIMIT_NS);
	scenario_check(
		event.kind == KVPULL_POLL_LOADED || event.reason == reason,
		"a pull ended as %u, error %d", event.kind, event.reason);
	scenario_check(!event.wrong, "%llu wrong bytes were believed",
		       (unsigned long long)event.wrong);
	moment_learn(moment, event.kind == KVPULL_POLL_LOADED);
}

static void moment_check(const struct moment *moment)
{
	scenario_check(moment->early, "no pull was cut short: %u were over",
		       moment->late);
	scenario_say("%u pulls cut short, %u over before", moment->early,
		     moment->late);
}

static void x3_revoked(const struct scenario *scenario)
{
	const uint32_t rounds = scenario->full ? 200 : 8;
	const struct x3_setup setup = { .config = "" };
	static struct node_message message;
	struct moment moment = { .delay_ns = 1000000 };
	static struct pair pair;

	pair_open(&pair, scenario, &setup);
	(void)works(&pair, 1);
	while (moment_goes_on(&moment, rounds)) {
		const uint64_t key = large_start(&pair, &message);
		struct node_message revoke = { .op = NODE_REVOKE };

		scenario_sleep_ns(moment.delay_ns);
		/* P overwrites them all at once. */
		node_call(&pair.p, &revoke);
		node_await(&pair.p, message.key, &revoke, LIMIT_NS);
		large_end(&pair, key, KVPULL_EEXPIRED, &moment);
	}
	(void)works(&pair, BLOCKS_MAX);
	pair_close(&pair);
	moment_check(&moment);
}

/* The same by time: hold_max ends the hold, though D lives. */
static void x3_expired(const struct scenario *scenario)
{
	const uint32_t rounds = scenario->full ? 100 : 6;
	const struct x3_setup setup = {
		.config = "\"lease_ms\":40,\"hold_max_ms\":40,"
			  "\"deadline_ms\":5000",
		.file_only = 1,
	};
	static struct node_message message;
	struct moment moment = { .delay_ns = 30000000 };
	static struct pair pair;
	uint32_t round = 0;

	pair_open(&pair, scenario, &setup);
	while (moment_goes_on(&moment, rounds)) {
		uint64_t held;

		(void)node_prefill(&pair.p, &message, LARGE_BLOCKS,
				   pair.seed += 1000003);
		held = message.key;
		scenario_sleep_ns(moment.delay_ns);
		large_end(&pair, node_pull(&pair.d, &message), KVPULL_EEXPIRED,
			  &moment);
		node_await(&pair.p, held, &message, LIMIT_NS);
		/* An early start is a late end. */
		moment.delay_ns = 10000000 + ++round % 4 * 8000000;
	}
	pair_close(&pair);
	moment_check(&moment);
}

static void x3_aborted(const struct scenario *scenario)
{
	const uint32_t rounds = scenario->full ? 200 : 8;
	const struct x3_setup setup = { .config = "" };
	static struct node_message message;
	struct moment moment = { .delay_ns = 1000000 };
	static struct pair pair;
	uint32_t none = 0;

	pair_open(&pair, scenario, &setup);
	while (moment_goes_on(&moment, rounds)) {
		const uint64_t key = large_start(&pair, &message);
		struct node_message abort = { .op = NODE_ABORT, .key = key };

		scenario_sleep_ns(moment.delay_ns);
		node_call(&pair.d, &abort);
		/* A busy machine has not begun the pull yet. */
		if (abort.kind == NODE_EVENT_NOTHING) {
			scenario_check(++none < 1000, "no pull begins");
			moment.delay_ns += 100000;
		} else {
			large_end(&pair, key, KVPULL_EABORTED, &moment);
		}
		node_await(&pair.p, message.key, &abort, LIMIT_NS);
	}
	(void)works(&pair, BLOCKS_MAX);
	pair_close(&pair);
	moment_check(&moment);
}

static void x3_killed(const struct scenario *scenario)
{
	const uint32_t rounds = scenario->full ? 50 : 3;
	const struct x3_setup setup = { .config = "" };
	static struct node_message message;
	struct moment moment = { .delay_ns = 500000 };
	struct node_stats before, after;
	static struct pair pair;
	uint64_t until;

	pair_open(&pair, scenario, &setup);
	(void)works(&pair, 1);
	node_stats_get(&pair.d, &before);
	while (moment_goes_on(&moment, rounds)) {
		const uint64_t key = large_start(&pair, &message);

		scenario_sleep_ns(moment.delay_ns);
		node_kill(&pair.p);
		large_end(&pair, key, KVPULL_EPEER, &moment);
		side_open(&pair, &pair.p, "producer");
		(void)works(&pair, BLOCKS_MAX);
	}
	until = engine_now_ns() + LIMIT_NS;
	do
		node_stats_get(&pair.d, &after);
	while ((after.fds != before.fds || after.maps != before.maps) &&
	       engine_now_ns() < until);
	scenario_check(after.fds == before.fds && after.maps == before.maps,
		       "%u descriptors, %u before; %u mappings, %u before",
		       after.fds, before.fds, after.maps, before.maps);
	pair_close(&pair);
	moment_check(&moment);
}

/*
 * Semantics E.2, E.4 and B.8: D beats on, so that P's hold outlives its lease;
 * what it has from others is pulled; the pull ends at its deadline and D's close
 * in its time; and what still hangs there harms nobody.
 */
static void x3_hangs(const struct scenario *scenario)
{
	const struct x3_setup setup = {
		.config = "\"uring\":\"no\",\"lease_ms\":1000,"
			  "\"deadline_ms\":3000",
		.before_open = file_disk_hangs,
		.disk_hangs = 1,
	};
	static struct node_message message, event;
	static struct pair pair;
	static struct node other;
	struct node_stats stats;
	uint64_t held, hanging, others, start_ns, took_ns;

	pair_open(&pair, scenario, &setup);
	side_open(&pair, &other, "other"); /* all of its blocks are memory */
	(void)node_prefill(&pair.p, &message, BLOCKS_MAX, 1);
	held = message.key;
	start_ns = engine_now_ns();
	hanging = node_pull(&pair.d, &message);
	for (others = 0; engine_now_ns() - start_ns < 2 * SCENARIO_NS_PER_S;
	     others++)
		(void)works_from(&pair, &other, BLOCKS_MAX);
	node_stats_get(&pair.p, &stats);
	scenario_check(stats.ranks[0].holds_live == 1 &&
			       !stats.ranks[0].holds_expired,
		       "the hold ended while D lived");
	node_await(&pair.d, hanging, &event, LIMIT_NS);
	took_ns = engine_now_ns() - start_ns;
	scenario_check(event.kind == KVPULL_POLL_FAILED &&
			       event.reason == KVPULL_EDEADLINE,
		       "a pull that hangs ended as %u, error %d", event.kind,
		       event.reason);
	scenario_check(took_ns <=
			       (3000 + 2000 * patience()) * SCENARIO_NS_PER_MS,
		       "only after %llu ms",
		       (unsigned long long)(took_ns / SCENARIO_NS_PER_MS));
	held_ends(&pair.p, held, KVPULL_END_RELEASED);
	start_ns = engine_now_ns();
	pair_close(&pair);
	took_ns = engine_now_ns() - start_ns;
	scenario_check(took_ns <= 3 * patience() * SCENARIO_NS_PER_S,
		       "it closed in %llu ms",
		       (unsigned long long)(took_ns / SCENARIO_NS_PER_MS));
	node_check_empty(&other);
	node_close(&other);
	log_has("consumer", "reads are still under way");
	scenario_say("%llu other pulls in 2 s, closed after %llu ms",
		     (unsigned long long)others,
		     (unsigned long long)(took_ns / SCENARIO_NS_PER_MS));
}

/*
 * Semantics F15: D closes while its disk hangs and P, which is owed a release,
 * stands still. Each of both waits was bounded, and they added up.
 */
static void x3_close(const struct scenario *scenario)
{
	const struct x3_setup setup = {
		.config = "\"uring\":\"no\"",
		.before_open = file_disk_hangs,
		.disk_hangs = 1,
	};
	static struct node_message message;
	static struct pair pair;
	uint64_t start_ns, took_ns;

	pair_open(&pair, scenario, &setup);
	(void)node_prefill(&pair.p, &message, BLOCKS_MAX, 1);
	(void)node_pull(&pair.d, &message);
	/* It connects, and its first read begins. */
	scenario_sleep_ns(500 * patience() * SCENARIO_NS_PER_MS);
	(void)kill(pair.p.pid, SIGSTOP);
	start_ns = engine_now_ns();
	node_close(&pair.d);
	took_ns = engine_now_ns() - start_ns;
	(void)kill(pair.p.pid, SIGCONT);
	node_close(&pair.p);
	log_has("consumer", "reads are still under way");
	scenario_say("closed after %llu ms",
		     (unsigned long long)(took_ns / SCENARIO_NS_PER_MS));
	/* Beside its process, which ends. */
	scenario_check(took_ns <= 1200 * patience() * SCENARIO_NS_PER_MS,
		       "it closes too late");
}

const struct scenario_case scenario_x3[] = {
	{ "X3a", "memory and file come in one pull, bytes equal", x3_mixed, 30,
	  120 },
	{ "X3b", "a producer with a file alone", x3_file, 30, 120 },
	{ "X3c", "memory and file with progress=caller", x3_caller, 30, 120 },
	{ "X3d", "a file wakes a caller that sleeps", x3_sleeping_caller, 30,
	  120 },
	{ "X3e", "with uring=no files are read by pread", x3_switched_off, 30,
	  120 },
	{ "X3f", "io_uring forbidden with EPERM: pread, and the log says why",
	  x3_eperm, 30, 120 },
	{ "X3g", "io_uring forbidden with ENOSYS: pread, and the log says why",
	  x3_enosys, 30, 120 },
	{ "X3h", "hold revoked and blocks overwritten while D reads: EEXPIRED",
	  x3_revoked, 30, 300 },
	{ "X3i", "hold expired while D reads: EEXPIRED", x3_expired, 30, 120 },
	{ "X3j", "pull aborted while it reads: told once, files go on",
	  x3_aborted, 30, 300 },
	{ "X3k", "P killed while D reads its file: EPEER; P comes back",
	  x3_killed, 60, 300 },
	{ "X3l", "a consumer of another uid, without rights, 8 MiB of memlock",
	  x3_another_uid, 30, 120 },
	{ "X3m", "a disk that hangs for ever stops nothing but its pull",
	  x3_hangs, 30, 30 },
	{ "X3n", "files are refused by name where D may not wait for them",
	  x3_caller_refused, 30, 30 },
	{ "X3o",
	  "D closes in a second though P stands still and its disk hangs",
	  x3_close, 20, 20 },
	{ 0 },
};
