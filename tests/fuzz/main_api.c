/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpull_api_fuzz: worlds of some calls, each from a seed of its own, until all
 * calls are made or the seconds are over. What fails says seed and call.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/pool.h"

#define WORLD_CALLS 1000u
#define CALLS 100000u

struct options {
	uint64_t seed;
	uint64_t calls;   /* 0: as many as the seconds take */
	uint64_t seconds; /* 0: as many as the calls take */
	int is_verbose;
	int is_threaded;
};

static void usage(void)
{
	printf("kvpull_api_fuzz [--seed N] [--calls N] [--seconds N] [--threads] [--verbose]\n");
	exit(2);
}

static struct options options_take(int argc, char **argv)
{
	struct options options = { .seed = 1 };
	int i;

	for (i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--verbose")) {
			options.is_verbose = 1;
			continue;
		}
		if (!strcmp(argv[i], "--threads")) {
			options.is_threaded = 1;
			continue;
		}
		if (i + 1 == argc)
			usage();
		if (!strcmp(argv[i], "--seed"))
			options.seed = strtoull(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "--calls"))
			options.calls = strtoull(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "--seconds"))
			options.seconds = strtoull(argv[++i], NULL, 10);
		else
			usage();
	}
	if (!options.calls)
		options.calls = options.seconds ? UINT64_MAX : CALLS;
	return options;
}

/* Real time, whatever clock the last world had. */
static uint64_t seconds_now(void)
{
	api_clock_init(0);
	return api_now_ns() / 1000 / API_NS_PER_MS;
}

int main(int argc, char **argv)
{
	const struct options options = options_take(argc, argv);
	const uint64_t end = seconds_now() + options.seconds;
	uint64_t seed = options.seed;
	uint64_t left = options.calls;
	uint64_t worlds = 0;
	uint64_t made = 0;

	for (; left && (!options.seconds || seconds_now() < end); seed++) {
		const uint64_t now = left < WORLD_CALLS ? left : WORLD_CALLS;
		char replay[160];

		(void)snprintf(replay, sizeof(replay),
			       "replay: %s --seed %" PRIu64 " --calls %" PRIu64
			       "%s --verbose",
			       argv[0], seed, now,
			       options.is_threaded ? " --threads" : "");
		api_calls_init(replay, options.is_verbose);
		api_draw_seed(seed);
		/* Each fourth world is one of pools, which have no threads. */
		if (seed % 4 == 3 && !options.is_threaded)
			pool_run(now);
		else
			api_run(now, options.is_threaded);
		left -= now;
		made += now;
		worlds++;
	}
	printf("%" PRIu64 " calls in %" PRIu64 " worlds: %" PRIu64
	       " holds, ranks' ends %" PRIu64 " released, %" PRIu64
	       " expired; ranks' pulls %" PRIu64 " loaded, %" PRIu64
	       " failed, %" PRIu64 " bytes, %" PRIu64 " payloads told; %" PRIu64
	       " restarts, %" PRIu64 " lies refused\n",
	       made, worlds, api_counts.holds, api_counts.released,
	       api_counts.expired, api_counts.loaded, api_counts.failed,
	       api_counts.bytes, api_counts.payloads, api_counts.restarts,
	       api_counts.lies);
	printf("pools: %" PRIu64 " puts, %" PRIu64
	       " keys found, pieces %" PRIu64 " good, %" PRIu64
	       " stale, %" PRIu64 " failed; %" PRIu64
	       " chunks spilled, %" PRIu64 " slots good; %" PRIu64
	       " false messages\n",
	       pool_counts.puts, pool_counts.found, pool_counts.good,
	       pool_counts.stale, pool_counts.other, pool_counts.spilled,
	       pool_counts.filed, pool_counts.messages);
	printf("1 passed, 0 failed, 0 skipped\n");
	return 0;
}
