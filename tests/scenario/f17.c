/* SPDX-License-Identifier: Apache-2.0 */
/*
 * F17: F7's race with the blocks in a GPU's memory. D has queued zeros for its own
 * blocks before each pull, and they come late; P queues its stores in the poll that
 * reports. Then families, unlike tensor parallel sizes and deaths there. The GPU is
 * the fake driver's.
 */
#include "tests/scenario/crash.h"
#include "tests/scenario/f7.h"
#include "tests/scenario/family.h"
#include "tests/scenario/mutant.h"

#define FULL_TRIES 100000u
#define QUICK_TRIES 400u
#define SEEN_MIN 20u

static struct f7_setup setup_of(const struct scenario *scenario)
{
	return (struct f7_setup){
		.mode = F7_IN_POLL,
		.tries = scenario->full ? FULL_TRIES : QUICK_TRIES,
		.limit_ns = (scenario->full ? 1200 : 20 * patience()) *
			    SCENARIO_NS_PER_S,
		.gpu = 1,
	};
}

static uint64_t wrong_of(const struct scenario *scenario,
			 const struct f7_setup *setup, struct f7_counts *counts)
{
	uint64_t wrong;

	f7_run(scenario, setup, counts);
	wrong = counts->wrong[F7_LARGE] + counts->wrong[F7_SMALL];
	scenario_say("%llu tries, %llu expired, %llu loaded, %llu wrong",
		     (unsigned long long)counts->tries,
		     (unsigned long long)counts->expired,
		     (unsigned long long)counts->loaded,
		     (unsigned long long)wrong);
	return wrong;
}

static void f17_whole(const struct scenario *scenario)
{
	const struct f7_setup setup = setup_of(scenario);
	struct f7_counts counts;
	const uint64_t wrong = wrong_of(scenario, &setup, &counts);

	scenario_check(!wrong, "wrong bytes were believed");
	scenario_check(counts.tries >= setup.tries / 4,
		       "too few tries in the time");
	scenario_check(counts.expired >= SEEN_MIN, "too few expired");
	scenario_check(counts.loaded >= SEEN_MIN, "too few succeeded");
	scenario_check(!counts.failed, "%llu failed for another reason: %lld",
		       (unsigned long long)counts.failed,
		       (long long)counts.failed_for);
}

/* The control of the marks: D says that it has queued nothing. */
static void f17_unmarked(const struct scenario *scenario)
{
	struct f7_setup setup = setup_of(scenario);
	struct f7_counts counts;

	setup.unmarked = 1;
	setup.tries = QUICK_TRIES;
	scenario_check(wrong_of(scenario, &setup, &counts) > 0,
		       "no load was wiped: the marks are not tested");
}

/* The control of the check. */
static void f17_unchecked(const struct scenario *scenario)
{
	const struct f7_setup setup = setup_of(scenario);
	struct f7_counts counts;

	mutant_use("nocheck", "plugin/reads/judge.c",
		   "s/return KVPULL_EEXPIRED/return 0/");
	scenario_check(wrong_of(scenario, &setup, &counts) > 0,
		       "no wrong bytes: the check is not tested");
}

/* Four ranks of P and two of D: each a worker with memory of its own. */
static void f17_families(const struct scenario *scenario)
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

	crash_run(scenario, &setup);
}

static void f17_producer(const struct scenario *scenario)
{
	death_run(scenario, CRASH_PRODUCER);
}

static void f17_consumer(const struct scenario *scenario)
{
	death_run(scenario, CRASH_CONSUMER);
}

const struct scenario_case scenario_f17[] = {
	{ "F17a", "no wrong byte is believed of a GPU's memory, and none wiped",
	  f17_whole, 30, 1300 },
	{ "F17b", "loads are wiped where an engine hides what it has queued",
	  f17_unmarked, 30, 60 },
	{ "F17c", "a library without the check believes a GPU's wrong bytes",
	  f17_unchecked, 120, 1300 },
	{ "F17d", "families between GPUs: one pull each, P drains",
	  f17_families, 30, 300 },
	{ "F17e", "P killed in the middle of pulls between GPUs comes back",
	  f17_producer, 60, 600 },
	{ "F17f", "D killed in the middle of pulls between GPUs comes back",
	  f17_consumer, 60, 600 },
	{ 0 },
};
