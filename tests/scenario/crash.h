/* SPDX-License-Identifier: Apache-2.0 */
/* Kill one side in the middle of pulls, start it again, look at the other. */
#ifndef KVPULL_TESTS_CRASH_H
#define KVPULL_TESTS_CRASH_H

#include "tests/scenario/node.h"

enum crash_victim {
	CRASH_PRODUCER,
	CRASH_CONSUMER
};

struct crash_setup {
	enum crash_victim victim;
	uint32_t rounds;
	uint32_t forked; /* 1: the victim leaves a child behind */
	uint32_t tp_size;
	uint32_t rank_only; /* 1: rank processes; one of them dies */
	uint32_t foreign;
	uint32_t gpu;
};

void crash_run(const struct scenario *scenario,
	       const struct crash_setup *setup);

#endif /* KVPULL_TESTS_CRASH_H */
