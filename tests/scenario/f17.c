/* SPDX-License-Identifier: Apache-2.0 */
/*
 * F17: F7's race with the blocks in a GPU's memory. D has queued zeros for its own
 * blocks before each pull, and they come late; P queues its stores in the poll that
 * reports. Then other work of D's, and engines that mark it badly; families, unlike
 * tensor parallel sizes and deaths there; two GPUs. The GPUs are the fake driver's.
 */
#include "tests/scenario/crash.h"
#include "tests/scenario/f17_gpus.h"
#include "tests/scenario/f7.h"
#include "tests/scenario/family.h"
#include "tests/scenario/mutant.h"

#define FULL_TRIES 100000u
#define FULL_WORK_TRIES 10000u /* of each other kind of D's work */
#define QUICK_TRIES 400u
#define QUICK_WORK_TRIES 100u
#define SHARE_MIN 100u /* each outcome is one of so many tries, or more */
#define SEEN_MIN 10u   /* a race goes on until it saw each outcome so often */

static struct f7_setup setup_of(const struct scenario *scenario)
{
	return f7_gpu_setup(scenario,
			    scenario->full ? FULL_TRIES : QUICK_TRIES);
}

static void race_judge(const struct scenario *scenario,
		       const struct f7_setup *setup)
{
	struct f7_setup both = *setup;
	struct f7_counts counts;
	uint64_t wrong;
	uint64_t least;

	both.expired = both.loaded = SEEN_MIN;
	wrong = f7_gpu_race(scenario, &both, &counts);
	least = counts.tries / SHARE_MIN;
	scenario_check(!wrong, "wrong bytes were believed, or wiped");
	scenario_check(!counts.disturbed,
		       "a step in flight met a pull's bytes");
	scenario_check(counts.tries >= setup->tries / 4,
		       "too few tries in the time");
	scenario_check(counts.expired > least, "too few expired");
	scenario_check(counts.loaded > least, "too few succeeded");
	scenario_check(!counts.failed, "%llu failed for another reason: %lld",
		       (unsigned long long)counts.failed,
		       (long long)counts.failed_for);
}

static void f17_whole(const struct scenario *scenario)
{
	const struct f7_setup setup = setup_of(scenario);

	race_judge(scenario, &setup);
}

static struct f7_setup work_of(const struct scenario *scenario,
			       enum f7_work work)
{
	struct f7_setup setup = setup_of(scenario);

	setup.tries = scenario->full ? FULL_WORK_TRIES : QUICK_WORK_TRIES;
	setup.work = work;
	return setup;
}

static void f17_freed(const struct scenario *scenario)
{
	const struct f7_setup setup = work_of(scenario, F7_LOADS);

	race_judge(scenario, &setup);
}

static void f17_captured(const struct scenario *scenario)
{
	const struct f7_setup setup = work_of(scenario, F7_CAPTURED);

	race_judge(scenario, &setup);
}

/* An engine without marks is slow: none of its pulls is made. */
static void f17_careless(const struct scenario *scenario)
{
	const struct f7_setup setup = work_of(scenario, F7_CARELESS);
	struct f7_counts counts;

	(void)f7_gpu_race(scenario, &setup, &counts);
	scenario_check(!counts.loaded, "a pull without a mark was made");
	scenario_check(counts.failed_for == KVPULL_EINVAL,
		       "the pulls failed for another reason: %lld",
		       (long long)counts.failed_for);
	/* A ticket that was over may end by that before. */
	scenario_check(counts.failed > counts.tries / SHARE_MIN,
		       "too few were refused");
	scenario_check(counts.tries >= setup.tries / 4,
		       "too few tries in the time");
}

/* The control of the marks: D says that it has queued nothing. */
static void f17_unmarked(const struct scenario *scenario)
{
	struct f7_setup setup = setup_of(scenario);
	struct f7_counts counts;

	setup.unmarked = 1;
	setup.tries = QUICK_TRIES;
	scenario_check(f7_gpu_race(scenario, &setup, &counts) > 0,
		       "no load was wiped: the marks are not tested");
}

/* A step in flight meets the bytes of a later request then, too. */
static void f17_freed_unmarked(const struct scenario *scenario)
{
	struct f7_setup setup = work_of(scenario, F7_LOADS);
	struct f7_counts counts;

	setup.unmarked = 1;
	setup.tries = QUICK_WORK_TRIES;
	(void)f7_gpu_race(scenario, &setup, &counts);
	scenario_check(counts.disturbed > 0,
		       "no step was disturbed: the marks are not tested");
}

/* The control: without the check, wrong bytes are loaded. */
static void f17_unchecked(const struct scenario *scenario)
{
	const struct f7_setup setup = setup_of(scenario);
	struct f7_counts counts;

	mutant_use("nocheck", "plugin/reads/judge.c",
		   "s/return KVPULL_EEXPIRED/return 0/");
	scenario_check(f7_gpu_race(scenario, &setup, &counts) > 0,
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

SCENARIO_RUN(f17_producer, death_run(scenario, CRASH_PRODUCER))
SCENARIO_RUN(f17_consumer, death_run(scenario, CRASH_CONSUMER))

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
	{ "F17g", "a step in flight has its blocks to itself", f17_freed, 30,
	  1300 },
	{ "F17h", "a step in flight is disturbed where an engine hides it",
	  f17_freed_unmarked, 30, 60 },
	{ "F17i", "loads wait for the mark behind a capture", f17_captured, 30,
	  1300 },
	{ "F17j", "no load of an engine that never marks is made", f17_careless,
	  30, 1300 },
	{ "F17k",
	  "blocks of one GPU come to another, which are seen in unlike order",
	  f17_gpus_apart, 30, 60 },
	{ "F17l", "a GPU that does not reach P's is refused by name",
	  f17_gpus_unreached, 30, 60 },
	{ "F17m", "a GPU that D's container does not show is refused by name",
	  f17_gpus_unseen, 30, 60 },
	{ "F17n", "kvpull_top has a row for each worker's GPU", f17_gpus_shown,
	  30, 60 },
	{ 0 },
};
