/* SPDX-License-Identifier: Apache-2.0 */
/*
 * F9: pulls by RDMA into memory of a GPU. NIC and GPU are fakes: what a NIC wrote
 * there is seen by nobody until it is flushed, and what the engine has queued comes
 * late. (Memory of the host, with frames and a switch that are real: tests/fabric.)
 */
#include "tests/scenario/crash.h"
#include "tests/scenario/f7.h"
#include "tests/scenario/fabric.h"
#include "tests/scenario/family.h"
#include "tests/scenario/logs.h"
#include "tests/scenario/mutant.h"

#include <stdlib.h>
#include <string.h>

#define FULL_TRIES 10000u
#define QUICK_TRIES 300u
#define CONTROL_TRIES 100u
#define SEEN_MIN 5u
#define PULL_BLOCKS 64u

static struct f7_setup setup_of(const struct scenario *scenario)
{
	fabric_use(scenario, 1);
	return f7_gpu_setup(scenario,
			    scenario->full ? FULL_TRIES : QUICK_TRIES);
}

static void race_run(const struct scenario *scenario, enum f7_gpu gpu)
{
	struct f7_setup setup = setup_of(scenario);
	struct f7_counts counts;
	uint64_t wrong;

	setup.gpu = gpu;
	setup.expired = SEEN_MIN;
	setup.loaded = SEEN_MIN;
	wrong = f7_gpu_race(scenario, &setup, &counts);
	scenario_check(!wrong, "wrong bytes were believed");
	scenario_check(counts.tries >= setup.tries / 4,
		       "too few tries in the time");
	scenario_check(counts.expired >= SEEN_MIN, "too few expired");
	scenario_check(counts.loaded >= SEEN_MIN, "too few succeeded");
	scenario_check(!counts.failed, "%llu failed for another reason: %lld",
		       (unsigned long long)counts.failed,
		       (long long)counts.failed_for);
}

SCENARIO_RUN(f9_whole, race_run(scenario, F7_GPU_BOTH))
SCENARIO_RUN(f9_to_host, race_run(scenario, F7_GPU_PRODUCER))
SCENARIO_RUN(f9_from_host, race_run(scenario, F7_GPU_CONSUMER))

/* The control of the marks: D says that it has queued nothing. */
static void f9_unmarked(const struct scenario *scenario)
{
	struct f7_setup setup = setup_of(scenario);
	struct f7_counts counts;

	setup.unmarked = 1;
	setup.tries = CONTROL_TRIES;
	scenario_check(f7_gpu_race(scenario, &setup, &counts) > 0,
		       "no load was wiped: the marks are not tested");
}

static void broken_run(const struct scenario *scenario, const char *name,
		       const char *file, const char *sed)
{
	struct f7_setup setup = setup_of(scenario);
	struct f7_counts counts;

	setup.tries = CONTROL_TRIES;
	mutant_use(name, file, sed);
	scenario_check(f7_gpu_race(scenario, &setup, &counts) > 0,
		       "no wrong bytes: what is left out is not tested");
}

static void f9_unchecked(const struct scenario *scenario)
{
	broken_run(scenario, "nocheck", "plugin/reads/judge.c",
		   "s/return KVPULL_EEXPIRED/return 0/");
}

static void f9_unflushed(const struct scenario *scenario)
{
	broken_run(scenario, "noflush", "verbs/gpu.c",
		   "s/own->flushes.at\\[end->device\\] = .*/(void)part;/");
}

static void f9_families(const struct scenario *scenario)
{
	const struct family_setup setup = {
		.p_tp = 4,
		.d_count = 2,
		.d_tp = { 2, 1 },
		.siblings = 4,
		.blocks = 16,
		.batches = scenario->full ? 100 : 4,
		.a_batch = 4,
		.gpu = 1,
	};

	fabric_use(scenario, 1);
	family_run(scenario, &setup);
}

static void death_run(const struct scenario *scenario, enum crash_victim victim)
{
	const struct crash_setup setup = {
		.victim = victim,
		.rounds = scenario->full ? 100 : 2,
		.tp_size = 1,
		.gpu = 1,
	};

	fabric_use(scenario, 1);
	crash_run(scenario, &setup);
}

SCENARIO_RUN(f9_producer, death_run(scenario, CRASH_PRODUCER))
SCENARIO_RUN(f9_consumer, death_run(scenario, CRASH_CONSUMER))

struct rail_counts {
	uint64_t loaded;
	uint64_t failed;
};

/* Where there is another rail, nothing but the flush makes a pull fail. */
static int may_fail(int32_t reason, uint32_t rails)
{
	return reason == KVPULL_EREAD ||
	       (rails == 1 &&
		(reason == KVPULL_EPEER || reason == KVPULL_EDEADLINE ||
		 reason == KVPULL_EEXPIRED));
}

static void pull_count(struct node *p, struct node *d, uint32_t rails,
		       struct rail_counts *counts)
{
	const uint64_t seed = 1 + counts->loaded + counts->failed;
	const uint64_t limit_ns = 10 * SCENARIO_NS_PER_S * patience();
	static struct node_message message;
	struct node_message event;
	uint64_t held;

	held = node_prefill(p, &message, PULL_BLOCKS, seed);
	node_await(d, node_pull(d, &message), &event, limit_ns);
	scenario_check(event.kind == KVPULL_POLL_LOADED ||
			       may_fail(event.reason, rails),
		       "a pull: error %d", event.reason);
	scenario_check(!event.wrong, "%llu wrong bytes",
		       (unsigned long long)event.wrong);
	counts->loaded += event.kind == KVPULL_POLL_LOADED;
	counts->failed += event.kind != KVPULL_POLL_LOADED;
	node_await(p, held, &event, limit_ns);
}

/*
 * The last rail loses its queue pairs again and again. Whatever it has brought when
 * the one to itself is lost was not flushed: the pull fails. So it does, or goes on
 * by the next connection, where that was the only rail.
 */
static void rails_run(const struct scenario *scenario, uint32_t rails)
{
	const uint64_t until = engine_now_ns() + (scenario->full ? 1000 : 40) *
							 patience() *
							 SCENARIO_NS_PER_S;
	const uint64_t wanted =
		(scenario->full ? 10 : 1) * (rails > 1 ? 100u : 10u);
	/* Claims of a peer that is lost end by their lease. */
	struct node_params params = {
		.scenario = scenario,
		.id = "producer",
		.config = rails > 1 ? "" :
				      "\"lease_ms\":500,\"hold_max_ms\":20000",
		.shape = scenario_shape(16384, 2 * PULL_BLOCKS, 4),
		.tp_size = 1,
		.gpu = 1,
		.scribble = 1,
	};
	struct rail_counts counts = { 0 };
	struct node p, d;

	(void)setenv("FAKE_RDMA_FAULT", "breaks", 1);
	fabric_use(scenario, rails);
	node_open(&p, &params);
	params.id = "consumer";
	params.scribble = 0;
	node_open(&d, &params);
	while ((counts.loaded < wanted || counts.failed < 2) &&
	       engine_now_ns() < until)
		pull_count(&p, &d, rails, &counts);
	scenario_say("%llu pulls equal, %llu failed",
		     (unsigned long long)counts.loaded,
		     (unsigned long long)counts.failed);
	scenario_check(counts.loaded >= wanted && counts.failed >= 2,
		       "too few in the time");
	node_pair_close(&p, &d);
}

SCENARIO_RUN(f9_rail, rails_run(scenario, 2))
SCENARIO_RUN(f9_link, rails_run(scenario, 1))

/* ---- the cost of a flush ---- */

#define COST_PAIRS 100u
#define COST_WARM 2u
#define COST_BLOCKS 256u
#define COST_BLOCK_BYTES 65536u

/*
 * Flushes memory of the host as a GPU's: one pull of each pair, the second one and
 * the first one by turns, so that the other says what the flush costs.
 */
static const char flush_seconds[] =
	"s/back->serve.region_count = kvpull_serve_memory_count(serve);/&"
	" shared->flush = KVPULL_VERBS_FLUSHES_BY_LOOPS;/;"
	"s/uint32_t written = 0;/static uint32_t turn;"
	" uint32_t written = turn++ \\& 0;/;"
	"s/written = 1;/if (turn % 4 < 2) { own->flushes.at[rail] = 0; continue; }/";

/* Return: how long it took. */
static uint64_t cost_pull(struct node *p, struct node *d, uint64_t seed)
{
	const uint64_t limit_ns = 10 * SCENARIO_NS_PER_S * patience();
	static struct node_message message;
	struct node_message event, end;
	uint64_t held;

	held = node_prefill(p, &message, COST_BLOCKS, seed);
	node_await(d, node_pull(d, &message), &event, limit_ns);
	scenario_check(event.kind == KVPULL_POLL_LOADED && !event.wrong,
		       "a pull: error %d, %llu wrong bytes", event.reason,
		       (unsigned long long)event.wrong);
	node_await(p, held, &end, limit_ns);
	return event.took_ns;
}

/* Returns the ratio of the median pair, in thousandths. */
static uint64_t cost_measure(struct node *p, struct node *d)
{
	uint64_t ratios[COST_PAIRS];
	uint64_t seed = 1;
	uint32_t pair;

	for (pair = 0; pair < COST_WARM + COST_PAIRS; pair++) {
		uint64_t took_ns[2];

		took_ns[pair % 2] = cost_pull(p, d, seed++);
		took_ns[!(pair % 2)] = cost_pull(p, d, seed++);
		if (pair >= COST_WARM)
			ratios[pair - COST_WARM] =
				took_ns[1] * 1000 / (took_ns[0] | 1);
	}
	qsort(ratios, COST_PAIRS, sizeof(*ratios), scenario_compare_u64);
	return ratios[COST_PAIRS / 2];
}

/* D says it as it closes, but for a close that is over before its thread has ended. */
static void flushes_check(const char *path)
{
	char line[1024];
	unsigned int count = COST_WARM + COST_PAIRS;
	FILE *log = fopen(path, "re");

	scenario_check(log != NULL, "D has no log");
	while (fgets(line, sizeof(line), log)) {
		const char *words = strstr(line, " READs that flush");

		while (words && words > line && words[-1] != ' ')
			words--;
		if (words)
			count = (unsigned int)strtoul(words, NULL, 10);
	}
	(void)fclose(log);
	scenario_check(count == COST_WARM + COST_PAIRS,
		       "%u flushes, in the place of %u", count,
		       COST_WARM + COST_PAIRS);
}

/* Over a device, if there is one: memory of the host alone. */
static void f9_cost(const struct scenario *scenario)
{
	struct node_params params = {
		.scenario = scenario,
		.id = "producer",
		.config = "",
		.shape = scenario_shape(COST_BLOCK_BYTES, 2 * COST_BLOCKS, 1),
		.tp_size = 1,
		.scribble = 1,
	};
	struct node p, d;

	if (!scenario_is_remote())
		fabric_use(scenario, 1);
	mutant_use("flushed", "verbs/serve.c verbs/gpu.c", flush_seconds);
	logs_open(scenario);
	node_open(&p, &params);
	params.id = "consumer";
	params.scribble = 0;
	params.log_path = log_path(params.id);
	node_open(&d, &params);
	scenario_say("a flush costs %lld thousandths",
		     (long long)cost_measure(&p, &d) - 1000);
	node_pair_close(&p, &d);
	flushes_check(log_path("consumer"));
}

const struct scenario_case scenario_f9[] = {
	{ "F9a",
	  "no wrong byte comes into a GPU by RDMA, none is wiped or unseen",
	  f9_whole, 60, 1300 },
	{ "F9b", "loads by RDMA are wiped where an engine hides its work",
	  f9_unmarked, 60, 60 },
	{ "F9c", "a library without the check believes wrong bytes by RDMA",
	  f9_unchecked, 120, 120 },
	{ "F9d", "a library without the flush reports bytes that nobody sees",
	  f9_unflushed, 120, 120 },
	{ "F9e", "families between GPUs by RDMA: one pull each, P drains",
	  f9_families, 60, 300 },
	{ "F9f", "P killed in the middle of pulls by RDMA comes back",
	  f9_producer, 60, 600 },
	{ "F9g", "D killed in the middle of pulls by RDMA comes back",
	  f9_consumer, 60, 600 },
	{ "F9h", "one of two rails breaks again and again: bytes are right",
	  f9_rail, 60, 1300 },
	{ "F9i", "the only rail breaks again and again: bytes are right",
	  f9_link, 60, 1300 },
	{ "F9j", "one pull of each pair is flushed: bytes are right", f9_cost,
	  120, 120 },
	{ "F9k", "no wrong byte comes from a GPU into a host by RDMA",
	  f9_to_host, 60, 1300 },
	{ "F9l", "no wrong byte comes from a host into a GPU by RDMA",
	  f9_from_host, 60, 1300 },
	{ 0 },
};
