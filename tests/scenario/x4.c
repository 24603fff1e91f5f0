/* SPDX-License-Identifier: Apache-2.0 */
/* X4: engines with few rights pull the other way, or are told what is missing. */
#include <sys/stat.h>

#include "tests/scenario/logs.h"
#include "tests/scenario/node.h"
#include "tests/scenario/sandbox.h"

#define BLOCKS 64u
#define PULLS 20u
#define CONFIG "\"lease_ms\":2000"
#define LIMIT_NS (10 * SCENARIO_NS_PER_S * patience())

/* A pool of 64 MiB a side: far more than it may lock. */
static void side_open(const struct scenario *scenario, struct node *node,
		      const char *id, const char *config, uint32_t foreign,
		      void (*before_open)(void))
{
	const struct node_params params = {
		.scenario = scenario,
		.id = id,
		.config = config,
		.shape = scenario_shape(65536, 512, 2),
		.tp_size = 1,
		.foreign = *id == 'p' && foreign,
		.scribble = *id == 'p',
		.before_open = before_open,
		.log_path = log_path(id),
	};

	node_open(node, &params);
}

static void pair_open(const struct scenario *scenario, struct node *p,
		      struct node *d, const char *config, uint32_t foreign,
		      void (*before_open)(void))
{
	scenario_check(!chmod(scenario->folder, 01777), "chmod");
	logs_open(scenario);
	side_open(scenario, p, "producer", config, foreign, before_open);
	side_open(scenario, d, "consumer", config, 0, before_open);
}

static void pair_run(const struct scenario *scenario, uint32_t foreign,
		     void (*before_open)(void))
{
	struct node p, d;

	pair_open(scenario, &p, &d, CONFIG, foreign, before_open);
	node_pulls(&p, &d, BLOCKS, PULLS);
	node_close(&d);
	node_close(&p);
}

SCENARIO_RUN(x4_nobody, pair_run(scenario, 0, sandbox_nobody))
SCENARIO_RUN(x4_nobody_foreign, pair_run(scenario, 1, sandbox_nobody))
SCENARIO_RUN(x4_eperm, pair_run(scenario, 0, sandbox_uring_eperm))
SCENARIO_RUN(x4_enosys, pair_run(scenario, 0, sandbox_uring_enosys))
SCENARIO_RUN(x4_strict, pair_run(scenario, 0, sandbox_strict))

static void x4_strict_foreign(const struct scenario *scenario)
{
	static struct node_message message;
	struct node_message event;
	struct node p, d;

	pair_open(scenario, &p, &d, CONFIG, 1, sandbox_strict);
	(void)node_prefill(&p, &message, BLOCKS, 1);
	node_await(&d, node_pull(&d, &message), &event, LIMIT_NS);
	scenario_check(event.kind == KVPULL_POLL_FAILED &&
			       event.reason == KVPULL_EROUTE,
		       "the pull ended as %u, error %d", event.kind,
		       event.reason);
	log_has("consumer", "own memory cannot be read");
	log_has("consumer", "Operation not permitted");
	node_kill(&d);
	node_close(&p);
}

/* With a thread of kvpull's own it would not open; copies do without theirs. */
static void x4_no_threads(const struct scenario *scenario)
{
	struct node p, d;

	pair_open(scenario, &p, &d,
		  CONFIG ",\"progress\":\"caller\",\"copy_threads\":2", 0,
		  sandbox_no_threads);
	node_pulls(&p, &d, BLOCKS, PULLS);
	log_has("consumer", "0 of 2 copy threads");
	node_close(&d);
	node_close(&p);
}

const struct scenario_case scenario_x4[] = {
	{ "X4a", "nobody with 8 MiB of memlock pulls", x4_nobody, 30, 30 },
	{ "X4b", "the same from the engine's own memory", x4_nobody_foreign, 30,
	  30 },
	{ "X4c", "io_uring forbidden with EPERM", x4_eperm, 30, 30 },
	{ "X4d", "io_uring forbidden with ENOSYS", x4_enosys, 30, 30 },
	{ "X4e", "nobody, without io_uring and process_vm_readv", x4_strict, 30,
	  30 },
	{ "X4f", "the engine's own memory is then refused, with the reason",
	  x4_strict_foreign, 30, 30 },
	{ "X4g", "where no thread can be started the engine's own copies",
	  x4_no_threads, 30, 30 },
	{ 0 },
};
