/* SPDX-License-Identifier: Apache-2.0 */
/*
 * P's blocks are in the memory of one GPU and D's in that of another. Each process
 * sees the node's GPUs in an order of its own, and opens the first that it sees.
 */
#include "tests/scenario/f17_gpus.h"

#include <stdlib.h>
#include <string.h>

#include "tests/scenario/logs.h"
#include "tests/scenario/node.h"
#include "tests/scenario/top.h"

#define BLOCKS 24u
#define LIMIT_NS (10 * SCENARIO_NS_PER_S * patience())

/* As kvpull_top writes the fake driver's UUIDs. */
#define UUID_OF_P "GPU-66616b65-2064-6576-6963-652030303030"
#define UUID_OF_D "GPU-66616b65-2064-6576-6963-652062656566"

static const char *folder; /* of the sockets; NULL: the case's */

/* The GPUs of the next process, by their places on the node. */
static const char *seen;

static void see(void)
{
	(void)setenv("CUDA_VISIBLE_DEVICES", seen, 1);
}

/* @reaches: of each GPU, whose memory it reaches. */
static void gpus_make(const struct scenario *scenario, const char *reaches)
{
	(void)setenv("FAKE_CUDA_GPUS", "0000 beef", 1);
	(void)setenv("FAKE_CUDA_P2P", reaches, 1);
	logs_open(scenario);
}

static void engine_on(const struct scenario *scenario, struct node *node,
		      const char *id, const char *places)
{
	const struct node_params params = {
		.scenario = scenario,
		.id = id,
		.config = "\"lease_ms\":5000",
		.shape = scenario_shape(16384, BLOCKS * 2, 2),
		.tp_size = 1,
		.gpu = 1,
		.scribble = *id == 'p',
		.socket_dir = folder,
		.before_open = see,
		.log_path = log_path(id),
	};

	seen = places;
	node_open(node, &params);
}

/* D pulls one request of P's. */
static void pull_one(struct node *p, struct node *d, uint64_t seed,
		     struct node_message *event)
{
	static struct node_message message;

	(void)node_prefill(p, &message, BLOCKS, seed);
	node_await(d, node_pull(d, &message), event, LIMIT_NS);
}

static void pull_is_right(struct node *p, struct node *d, uint64_t seed)
{
	struct node_message event;

	pull_one(p, d, seed, &event);
	scenario_check(event.kind == KVPULL_POLL_LOADED,
		       "%s: not loaded: error %d", d->id, event.reason);
	scenario_check(!event.wrong, "%s: %llu wrong bytes", d->id,
		       (unsigned long long)event.wrong);
}

void f17_gpus_apart(const struct scenario *scenario)
{
	const uint64_t pulls = scenario->full ? 1000 : 50;
	struct node p;
	struct node d;
	uint64_t at;

	gpus_make(scenario, "11 11");
	engine_on(scenario, &p, "producer", "0,1");
	engine_on(scenario, &d, "consumer", "1,0");
	for (at = 1; at <= pulls; at++)
		pull_is_right(&p, &d, at * 1000003);
	log_has("consumer", "device: another GPU of this node");
	node_close(&d);
	node_close(&p);
}

/* The pull fails by name, and a consumer on P's own GPU is served all the same. */
static void refused(const struct scenario *scenario, const char *reaches,
		    const char *places, const char *advice)
{
	struct node_message event;
	struct node p;
	struct node d;

	gpus_make(scenario, reaches);
	engine_on(scenario, &p, "producer", "0,1");
	engine_on(scenario, &d, "consumer", places);
	pull_one(&p, &d, 1, &event);
	scenario_check(event.kind == KVPULL_POLL_FAILED &&
			       event.reason == KVPULL_EROUTE,
		       "the pull ended by %d, error %d", event.kind,
		       event.reason);
	log_has("consumer", advice);
	node_close(&d);
	engine_on(scenario, &d, "neighbour", "0");
	pull_is_right(&p, &d, 2);
	log_has("neighbour", "device: the same GPU");
	node_close(&d);
	node_close(&p);
}

void f17_gpus_unreached(const struct scenario *scenario)
{
	/* P's GPU reaches D's, which is of no use. */
	refused(scenario, "11 01", "1,0",
		"cuMemSetAccess: 101 CUDA_ERROR_INVALID_DEVICE: this GPU does not reach the peer's: see nvidia-smi topo -p2p r");
}

void f17_gpus_unseen(const struct scenario *scenario)
{
	refused(scenario, "11 11", "1",
		"cuMemImportFromShareableHandle: 101 CUDA_ERROR_INVALID_DEVICE: the peer's GPU is not visible in this container: show both GPUs to both");
}

/* The one row of a node's GPU in kvpull_top's JSON. */
static const json_t *row_of(const json_t *top, const struct node *node)
{
	const json_t *workers = json_object_get(top, "workers");
	const json_t *worker;
	size_t at;

	json_array_foreach(workers, at, worker)
	{
		const json_t *rows = json_object_get(worker, "gpus");

		if (json_integer_value(json_object_get(worker, "pid")) !=
		    node->pid)
			continue;
		scenario_check(json_array_size(rows) == 1,
			       "%s: other than one row of a GPU", node->id);
		return json_array_get(rows, 0);
	}
	scenario_fail("%s: is not shown", node->id);
}

static void row_is_right(const json_t *top, const struct node *node,
			 const char *uuid, uint64_t mapped_bytes)
{
	const json_t *row = row_of(top, node);

	scenario_check(
		!strcmp(json_string_value(json_object_get(row, "uuid")), uuid),
		"%s: another GPU than its own is shown", node->id);
	scenario_check(
		!strcmp(json_string_value(json_object_get(row, "state")), "up"),
		"%s: its GPU is not up", node->id);
	scenario_check(
		json_integer_value(json_object_get(row, "mapped_bytes")) ==
			(json_int_t)mapped_bytes,
		"%s: other bytes than its GPU maps", node->id);
	scenario_check(!json_integer_value(json_object_get(row, "stores")),
		       "%s: its GPU maps for stores", node->id);
}

void f17_gpus_shown(const struct scenario *scenario)
{
	struct top_folder sockets;
	struct node_stats stats;
	struct node p;
	struct node d;
	json_t *top;

	top_folder_open(&sockets);
	folder = sockets.path;
	gpus_make(scenario, "11 11");
	engine_on(scenario, &p, "producer", "0,1");
	engine_on(scenario, &d, "consumer", "1,0");
	pull_is_right(&p, &d, 1);
	node_stats_get(&d, &stats);
	top = top_json(&sockets);
	scenario_check(stats.ranks[0].device_mapped_bytes > 0,
		       "D's GPU maps nothing of P's");
	row_is_right(top, &p, UUID_OF_P, 0);
	row_is_right(top, &d, UUID_OF_D, stats.ranks[0].device_mapped_bytes);
	json_decref(top);
	node_close(&d);
	node_close(&p);
	top_folder_close(&sockets);
}
