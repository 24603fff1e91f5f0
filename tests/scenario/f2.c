/* SPDX-License-Identifier: Apache-2.0 */
/* F2: one producer, three consumers, eight siblings a request. */
#include "tests/scenario/family.h"

static void f2_siblings(const struct scenario *scenario)
{
	const struct family_setup setup = {
		.p_tp = 1,
		.d_count = 3,
		.d_tp = { 1, 1, 1 },
		.siblings = 8,
		.blocks = 128, /* 2048 tokens */
		.batches = scenario->full ? 200 : 12,
		.a_batch = 4,
	};

	family_run(scenario, &setup);
}

const struct scenario_case scenario_f2[] = {
	{ "F2a", "families of 8 at 3 consumers: one pull each, P drains",
	  f2_siblings, 30, 120 },
	{ 0 },
};
