/* SPDX-License-Identifier: Apache-2.0 */
/* F7's cases: three ways to overwrite, and libraries that do not check. */
#include "tests/scenario/f7.h"
#include "tests/scenario/mutant.h"

#define FULL_TRIES 400000u /* of each of the three ways */
#define FULL_EXPIRED 340000u
#define QUICK_TRIES 8000u
#define SEEN_MIN 20u
#define REMOTE_TRIES 2000u /* a pull takes milliseconds there */

static void race_judge(const struct scenario *scenario,
		       const struct f7_setup *setup)
{
	struct f7_counts counts;
	uint64_t wrong;

	f7_run(scenario, setup, &counts);
	wrong = counts.wrong[F7_LARGE] + counts.wrong[F7_SMALL];
	scenario_say(
		"%llu tries, %llu (%.1f %%) expired, %.1f %% loaded, %llu wrong",
		(unsigned long long)counts.tries,
		(unsigned long long)counts.expired,
		100.0 * (double)counts.expired / (double)counts.tries,
		100.0 * (double)counts.loaded / (double)counts.tries,
		(unsigned long long)wrong);
	scenario_check(!wrong, "wrong bytes were believed");
	scenario_check(counts.tries >= setup->tries / 4,
		       "too few tries in the time");
	scenario_check(counts.expired >= setup->expired,
		       "too few expired in the time");
	/* Counts and not shares: how many come late is the machine's matter. */
	scenario_check(counts.expired >= SEEN_MIN, "too few expired");
	scenario_check(counts.loaded >= SEEN_MIN, "too few succeeded");
	scenario_check(!counts.failed, "%llu failed for another reason: %lld",
		       (unsigned long long)counts.failed,
		       (long long)counts.failed_for);
}

static void race_run(const struct scenario *scenario, enum f7_mode mode)
{
	const struct f7_setup setup = {
		.mode = mode,
		.tries = scenario->full       ? FULL_TRIES :
			 scenario_is_remote() ? REMOTE_TRIES :
						QUICK_TRIES,
		.expired = scenario->full ? FULL_EXPIRED : 0,
		.limit_ns = (scenario->full ? 1200 : 20 * patience()) *
			    SCENARIO_NS_PER_S,
	};

	race_judge(scenario, &setup);
}

/* Two threads copy each pull; none is copied before its poll returns. */
static void f7_shares(const struct scenario *scenario)
{
	const struct f7_setup setup = {
		.mode = F7_IN_POLL,
		.tries = scenario->full ? FULL_TRIES / 10 : QUICK_TRIES / 4,
		.limit_ns = (scenario->full ? 300 : 20 * patience()) *
			    SCENARIO_NS_PER_S,
		.block_bytes = 65536,
		.shares = 1,
	};

	race_judge(scenario, &setup);
}

SCENARIO_RUN(f7_in_poll, race_run(scenario, F7_IN_POLL))
SCENARIO_RUN(f7_thread, race_run(scenario, F7_THREAD))
SCENARIO_RUN(f7_streamed, race_run(scenario, F7_STREAMED))

/* P writes the slot of a state again, as an engine does that goes on in it. */
static void f7_states(const struct scenario *scenario)
{
	const struct f7_setup setup = {
		.mode = F7_IN_POLL,
		.tries = scenario->full ? FULL_TRIES / 4 : REMOTE_TRIES,
		.limit_ns = (scenario->full ? 600 : 20 * patience()) *
			    SCENARIO_NS_PER_S,
		.states = 1,
	};

	race_judge(scenario, &setup);
}

static void mutant_run(const struct scenario *scenario, uint32_t states)
{
	const struct f7_setup setup = {
		.mode = F7_IN_POLL,
		.states = states,
		.tries = scenario->full ? FULL_TRIES : 20 * QUICK_TRIES,
		.limit_ns = (scenario->full ? 120 : 5 * patience()) *
			    SCENARIO_NS_PER_S,
		.until_torn = scenario->full ? 10 : 1,
	};
	struct f7_counts counts;
	uint32_t size;

	f7_run(scenario, &setup, &counts);
	for (size = 0; size < F7_SIZES; size++) {
		scenario_say("%s%s: %llu wrong, %llu of them torn",
			     size ? "; " : "", size ? "small" : "large",
			     (unsigned long long)counts.wrong[size],
			     (unsigned long long)counts.torn[size]);
		scenario_check(counts.wrong[size] > 0,
			       "no wrong bytes: the check is not tested");
		/* A check before the read would believe a torn one. */
		scenario_check(counts.torn[size] > 0 || !scenario->full,
			       "no torn reads: the race is not tested");
	}
	scenario_check(!states || counts.states > 0,
		       "no wrong state: its check is not tested");
	scenario_say("; %llu states; %llu tries",
		     (unsigned long long)counts.states,
		     (unsigned long long)counts.tries);
}

static void f7_unchecked(const struct scenario *scenario)
{
	/* Removes the check of both threads that copy. */
	mutant_use("nocheck", "plugin/reads/judge.c",
		   "s/return KVPULL_EEXPIRED/return 0/");
	mutant_run(scenario, 0);
}

static void f7_states_unchecked(const struct scenario *scenario)
{
	mutant_use("nocheck", "plugin/reads/judge.c",
		   "s/return KVPULL_EEXPIRED/return 0/");
	mutant_run(scenario, 1);
}

const struct scenario_case scenario_f7[] = {
	{ "F7a", "no wrong byte is believed when the poll overwrites",
	  f7_in_poll, 30, 1300 },
	{ "F7b", "no wrong byte is believed when a thread overwrites",
	  f7_thread, 30, 1300 },
	{ "F7c", "no wrong byte is believed after non-temporal stores",
	  f7_streamed, 30, 1300 },
	{ "F7e", "no wrong byte is believed when two threads copy a pull",
	  f7_shares, 30, 330 },
	{ "F7d", "a library without the check believes wrong bytes",
	  f7_unchecked, 120, 300 },
	{ "F7f", "no wrong state is believed when the poll writes its slot",
	  f7_states, 30, 630 },
	{ "F7g", "a library without the check believes wrong states",
	  f7_states_unchecked, 120, 300 },
	{ 0 },
};
