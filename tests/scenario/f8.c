/* SPDX-License-Identifier: Apache-2.0 */
/* F8: one side, or one worker of it, dies in the middle of pulls; comes back. */
#include "tests/scenario/crash.h"

static uint32_t rounds(const struct scenario *scenario)
{
	return scenario->full ? 100 : 2;
}

static void f8_producer(const struct scenario *scenario)
{
	const struct crash_setup setup = { .victim = CRASH_PRODUCER,
					   .rounds = rounds(scenario),
					   .tp_size = 2 };

	crash_run(scenario, &setup);
}

static void f8_foreign(const struct scenario *scenario)
{
	const struct crash_setup setup = { .victim = CRASH_PRODUCER,
					   .rounds = rounds(scenario),
					   .tp_size = 1,
					   .foreign = 1 };

	crash_run(scenario, &setup);
}

static void f8_consumer(const struct scenario *scenario)
{
	const struct crash_setup setup = { .victim = CRASH_CONSUMER,
					   .rounds = rounds(scenario),
					   .tp_size = 2 };

	crash_run(scenario, &setup);
}

static void f8_producer_rank(const struct scenario *scenario)
{
	const struct crash_setup setup = { .victim = CRASH_PRODUCER,
					   .rounds = rounds(scenario),
					   .tp_size = 2,
					   .rank_only = 1 };

	crash_run(scenario, &setup);
}

static void f8_consumer_rank(const struct scenario *scenario)
{
	const struct crash_setup setup = { .victim = CRASH_CONSUMER,
					   .rounds = rounds(scenario),
					   .tp_size = 2,
					   .rank_only = 1 };

	crash_run(scenario, &setup);
}

const struct scenario_case scenario_f8[] = {
	{ "F8a", "P killed in the middle of pulls comes back; nothing leaks",
	  f8_producer, 60, 300 },
	{ "F8b", "the same where D reads the engine's own memory", f8_foreign,
	  60, 300 },
	{ "F8c", "D killed in the middle of pulls comes back; nothing leaks",
	  f8_consumer, 60, 300 },
	{ "F8d", "one of P's two workers is killed and comes back",
	  f8_producer_rank, 60, 300 },
	{ "F8e", "one of D's two workers is killed and comes back",
	  f8_consumer_rank, 60, 300 },
	{ 0 },
};
