/* SPDX-License-Identifier: Apache-2.0 */
/* kvpull_sim: seeds one after the other; the first that fails ends it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/sim/sim.h"

#define STEPS_DEFAULT 1000u

/*
 * Seeds that failed once, run before all others: a handshake that took longer
 * than connect_ms and failed its pulls, engines that step no more (what their
 * workers were never told does not end, and nobody beats for it), one that
 * steps again after that, a worker whose first call came late, one that ran what
 * its predecessor was told before anybody was heard of, a pull that began on a
 * connection that was being closed to make room.
 */
static const uint64_t failed_once[] = {
	77000636,  915019843, 915010466,   915010903, 915011597,
	915012522, 915015508, 915016375,   915016849, 915017415,
	915027571, 5000873,   31337001631,
};

struct sim_world *sim_current;
uint64_t sim_passed;

static struct sim_counts total;

static void usage(void)
{
	printf("kvpull_sim [--seeds N] [--first K] [--seed S] [--steps M] [--verbose]\n");
	exit(2);
}

static void add_counts(const struct sim_counts *counts)
{
	const uint64_t *from = (const uint64_t *)(const void *)counts;
	uint64_t *to = (uint64_t *)(void *)&total;
	size_t at;

	for (at = 0; at < sizeof(*counts) / sizeof(*from); at++)
		to[at] += from[at];
}

static void run_seed(uint64_t seed, uint64_t steps, uint32_t verbose)
{
	struct sim_world *world = calloc(1, sizeof(*world));

	if (!world)
		exit(2);
	world->seed = seed;
	world->steps = steps;
	world->verbose = verbose;
	sim_current = world;
	sim_world_run(world);
	world->counts.turns = world->turn;
	add_counts(&world->counts);
	sim_current = NULL;
	sim_passed++;
	free(world);
}

int main(int argc, char **argv)
{
	uint64_t first = 1;
	uint64_t seeds = 200;
	uint64_t steps = STEPS_DEFAULT;
	uint32_t verbose = 0;
	uint64_t at;
	int i;

	for (i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--verbose")) {
			verbose = 1;
			continue;
		}
		if (i + 1 == argc)
			usage();
		at = strtoull(argv[i + 1], NULL, 10);
		if (!strcmp(argv[i], "--seeds"))
			seeds = at;
		else if (!strcmp(argv[i], "--first") ||
			 !strcmp(argv[i], "--seed"))
			first = at;
		else if (!strcmp(argv[i], "--steps"))
			steps = at;
		else
			usage();
		if (!strcmp(argv[i], "--seed"))
			seeds = 1;
		i++;
	}
	sim_report_open();
	for (at = 0;
	     seeds > 1 && at < sizeof(failed_once) / sizeof(*failed_once); at++)
		run_seed(failed_once[at], steps, verbose);
	for (at = 0; at < seeds; at++)
		run_seed(first + at, steps, verbose);
	printf("%" PRIu64 " turns, %" PRIu64 " polls: %" PRIu64
	       " holds (%" PRIu64 " siblings), ends: %" PRIu64
	       " released, %" PRIu64 " expired, %" PRIu64 " other\n",
	       total.turns, total.polls, total.holds, total.siblings,
	       total.released, total.expired, total.ended);
	printf("%" PRIu64 " loads, %" PRIu64 " failed (%" PRIu64
	       " expired), %" PRIu64 " rejects, %" PRIu64
	       " corrupt tickets, %" PRIu64 " deaths, %" PRIu64
	       " connections lost, %" PRIu64 " cut, %" PRIu64
	       " pulls went on after one, %" PRIu64
	       " parts copied by engines\n",
	       total.loaded, total.failed, total.eexpired, total.rejects,
	       total.corrupt, total.kills, total.losses, total.cuts,
	       total.resumed, total.small);
	printf("%" PRIu64 " passed, 0 failed, 0 skipped\n", sim_passed);
	return 0;
}
