/* SPDX-License-Identifier: Apache-2.0 */
/* F1: one producer, one consumer, every byte compared. */
#include <string.h>

#include "tests/scenario/node.h"

#define LIMIT_NS (10 * SCENARIO_NS_PER_S * patience())

struct f1_setup {
	const char *config; /* NULL: "" */
	uint32_t tp_size;
	uint32_t groups;
	uint32_t foreign;
	uint32_t spin;
	uint32_t block_bytes;
	uint32_t blocks_max; /* of a request, a group */
	uint32_t split;
};

static void pair_params(const struct scenario *scenario,
			const struct f1_setup *setup,
			struct node_params *params)
{
	*params = (struct node_params){
		.scenario = scenario,
		.config = setup->config ? setup->config : "",
		.shape = { .block_bytes = setup->block_bytes,
			   .block_count = 256 * setup->groups,
			   .layer_count = 2 * setup->groups,
			   .group_count = setup->groups,
			   .block_tokens = 16 },
		.tp_size = setup->tp_size,
		.foreign = setup->foreign,
		.spin = setup->spin,
		.split = setup->split,
		.scribble = 1,
	};
}

/* A request of each size, in flight together up to what the pools take. */
static void pulls_run(const struct scenario *scenario, struct node *p,
		      struct node *d, const struct f1_setup *setup)
{
	const uint32_t rounds = scenario->full ? 400 : 25;
	static struct node_message message;
	struct node_message event;
	uint64_t bytes = 0;
	uint64_t random = 7;
	uint32_t round;

	for (round = 0; round < rounds; round++) {
		const uint32_t blocks = 1 + (uint32_t)(random_next(&random) %
						       setup->blocks_max);
		uint64_t held;

		held = node_prefill(p, &message, blocks, round * 1000003u + 1);
		node_await(d, node_pull(d, &message), &event, LIMIT_NS);
		scenario_check(event.kind == KVPULL_POLL_LOADED,
			       "round %u: error %d", round, event.reason);
		scenario_check(!event.wrong, "round %u: %llu wrong bytes",
			       round, (unsigned long long)event.wrong);
		scenario_check(event.bytes == (uint64_t)blocks *
						      setup->block_bytes * 2 *
						      setup->groups,
			       "round %u: %llu bytes told", round,
			       (unsigned long long)event.bytes);
		bytes += event.bytes;
		node_await(p, held, &event, LIMIT_NS);
		scenario_check(event.reason == KVPULL_END_RELEASED,
			       "round %u: hold ended by %d", round,
			       event.reason);
	}
	scenario_say("%u pulls, %llu KiB equal", rounds,
		     (unsigned long long)(bytes / 1024));
}

static void pair_run(const struct scenario *scenario,
		     const struct f1_setup *setup)
{
	struct node_params params;
	struct node_stats stats;
	struct node p, d;

	pair_params(scenario, setup, &params);
	params.id = "producer";
	node_open(&p, &params);
	params.id = "consumer";
	params.scribble = 0;
	node_open(&d, &params);
	pulls_run(scenario, &p, &d, setup);
	node_check_empty(&p);
	node_check_empty(&d);
	node_stats_get(&p, &stats);
	scenario_check(stats.ranks[0].holds_released ==
				       stats.scheduler.holds_taken &&
			       stats.scheduler.holds_ended ==
				       stats.scheduler.holds_taken,
		       "%llu holds taken, %llu released",
		       (unsigned long long)stats.scheduler.holds_taken,
		       (unsigned long long)stats.ranks[0].holds_released);
	scenario_check(!stats.ranks[0].unknown && !stats.ranks[0].bad_tag,
		       "unknown notifications");
	node_close(&d);
	node_close(&p);
	scenario_check(!node_sockets(scenario->folder),
		       "sockets were left behind");
}

/* Runs a case with a setup of its own. */
#define F1_RUN(name, ...)                                                      \
	SCENARIO_RUN(name, const struct f1_setup setup = { __VA_ARGS__ };      \
		     pair_run(scenario, &setup))

/* clang-format off */
F1_RUN(f1_plain, .tp_size = 1, .groups = 1, .block_bytes = 16384, .blocks_max = 64)
F1_RUN(f1_groups, .tp_size = 1, .groups = 3, .block_bytes = 4096, .blocks_max = 64)
F1_RUN(f1_foreign, .tp_size = 1, .groups = 2, .foreign = 1, .block_bytes = 8192, .blocks_max = 64)
F1_RUN(f1_caller, .config = "\"progress\":\"caller\",\"copy_threads\":0",
       .tp_size = 1, .groups = 1, .spin = 1, .block_bytes = 8192, .blocks_max = 64)
F1_RUN(f1_no_copy_thread, .config = "\"copy_threads\":0",
       .tp_size = 1, .groups = 1, .block_bytes = 16384, .blocks_max = 64)
F1_RUN(f1_two_copy_threads, .config = "\"copy_threads\":2,\"inline_bytes\":0",
       .tp_size = 1, .groups = 1, .block_bytes = 16384, .blocks_max = 128)
F1_RUN(f1_tensor_parallel, .tp_size = 2, .groups = 2, .block_bytes = 8192, .blocks_max = 64)
F1_RUN(f1_small_blocks, .tp_size = 2, .groups = 1, .block_bytes = 512, .blocks_max = 64)
F1_RUN(f1_split, .tp_size = 2, .groups = 1, .block_bytes = 8192, .blocks_max = 64, .split = 1)
/* clang-format on */

const struct scenario_case scenario_f1[] = {
	{ "F1a", "pulled bytes are equal, holds end, tables are empty",
	  f1_plain, 20, 60 },
	{ "F1b", "the same with three block groups", f1_groups, 20, 60 },
	{ "F1c", "the same from the engine's own memory", f1_foreign, 20, 60 },
	{ "F1d", "the same with progress=caller", f1_caller, 20, 60 },
	{ "F1e", "the same without a copy thread", f1_no_copy_thread, 20, 60 },
	{ "F1f", "the same with two copy threads", f1_two_copy_threads, 20,
	  60 },
	{ "F1g", "the same with two ranks on both sides", f1_tensor_parallel,
	  20, 60 },
	{ "F1h", "the same with blocks of 512 bytes over two ranks",
	  f1_small_blocks, 20, 60 },
	{ "F1i", "the same with each rank in a process of its own", f1_split,
	  20, 60 },
	{ 0 },
};
