/* SPDX-License-Identifier: Apache-2.0 */
/* K1: kill -9 at random moments, again and again. */
#include "tests/scenario/crash.h"

static void kills_run(const struct scenario *scenario, enum crash_victim victim,
		      uint32_t forked)
{
	const struct crash_setup setup = { .victim = victim,
					   .rounds = scenario->full ? 250 : 3,
					   .forked = forked,
					   .tp_size = 1 };

	crash_run(scenario, &setup);
}

SCENARIO_RUN(k1_producer, kills_run(scenario, CRASH_PRODUCER, 0))
SCENARIO_RUN(k1_producer_parent, kills_run(scenario, CRASH_PRODUCER, 1))
SCENARIO_RUN(k1_consumer, kills_run(scenario, CRASH_CONSUMER, 0))
SCENARIO_RUN(k1_consumer_parent, kills_run(scenario, CRASH_CONSUMER, 1))

const struct scenario_case scenario_k1[] = {
	{ "K1a", "a producer dies at random moments", k1_producer, 60, 600 },
	{ "K1b", "a producer dies, its child lives on", k1_producer_parent, 60,
	  600 },
	{ "K1c", "a consumer dies at random moments", k1_consumer, 60, 600 },
	{ "K1d", "a consumer dies, its child lives on", k1_consumer_parent, 60,
	  600 },
	{ 0 },
};
