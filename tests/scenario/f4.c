/* SPDX-License-Identifier: Apache-2.0 */
/*
 * F4: D rejects requests before it admits them, while P's pool has room for
 * four requests and is always full. A hold whose consumer will never come must
 * end at the first poll after D said so, or P stalls until the lease.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/scenario/node.h"

#define BLOCKS 8u
#define ROOM 4u
#define SLICES 20u
#define LIMIT_NS (20 * SCENARIO_NS_PER_S * patience())
#define LATENCY_NS (20 * SCENARIO_NS_PER_MS)
/* A busy machine's own delays, not ours: they do not reach a timer of ours. */
#define LATENCY_MAX_NS (100 * SCENARIO_NS_PER_MS)

static void pair_open(const struct scenario *scenario, struct node *p,
		      struct node *d)
{
	struct node_params params = {
		.scenario = scenario,
		.id = "producer",
		.config = "",
		.shape = scenario_shape(16384, BLOCKS * ROOM, 2),
		.tp_size = 1,
		.scribble = 1,
	};

	node_open(p, &params);
	params.id = "consumer";
	params.scribble = 0;
	params.shape.block_count = BLOCKS * 64;
	node_open(d, &params);
}

struct pump {
	struct node *nodes[2]; /* P, D */
	uint64_t random;
	uint32_t left; /* families to prefill */
	uint32_t reject_percent;
	uint32_t held;
	uint32_t requests;
	uint64_t took_ns;
	uint32_t rejected;
	uint32_t full; /* times that P had no room */
	uint32_t open; /* pulls at D, all siblings */
	uint32_t routed_first, routed_count;
	struct node_message routed[ROOM]; /* tickets that D has not seen */
};

/* Makes another family if P has room; its ticket waits with the router. */
static int pump_prefill(struct pump *pump)
{
	struct node_message *message =
		&pump->routed[(pump->routed_first + pump->routed_count) % ROOM];
	const uint64_t random = random_next(&pump->random);

	*message = (struct node_message){
		.op = NODE_PREFILL,
		.blocks = BLOCKS,
		.seed = random,
		.siblings = 1 + ((random >> 20) % 3 == 0) * 3,
	};
	node_call(pump->nodes[0], message);
	if (message->code == KVPULL_EFULL)
		return 0;
	scenario_check(!message->code, "prefill: error %d", message->code);
	pump->held++;
	pump->routed_count++;
	pump->requests += message->siblings;
	return 1;
}

/* The oldest ticket goes to D: to be pulled, or rejected by each sibling. */
static void pump_route(struct pump *pump)
{
	struct node_message *message = &pump->routed[pump->routed_first];
	const uint32_t rejects =
		random_next(&pump->random) % 100 < pump->reject_percent;

	pump->routed_first = (pump->routed_first + 1) % ROOM;
	pump->routed_count--;
	message->op = rejects ? NODE_REJECT : NODE_PULL;
	if (rejects)
		pump->rejected += message->siblings;
	else
		pump->open += message->siblings;
	node_call(pump->nodes[1], message);
	scenario_check(!message->code, "%s: error %d",
		       rejects ? "reject" : "pull", message->code);
}

static void pump_event(struct pump *pump)
{
	struct node_message event;
	const int from = node_event_any(pump->nodes, 2, &event, LIMIT_NS);

	scenario_check(from >= 0, "nothing ends: %u holds, %u pulls",
		       pump->held, pump->open);
	if (from == 0) {
		scenario_check(event.reason == KVPULL_END_RELEASED,
			       "a hold ended by %d", event.reason);
		pump->held--;
		return;
	}
	scenario_check(event.kind == KVPULL_POLL_LOADED ||
			       event.kind == NODE_EVENT_NOTHING,
		       "a pull failed: error %d", event.reason);
	scenario_check(!event.wrong, "wrong bytes");
	pump->open--;
}

/* Serves all families until each of them is over. */
static void pump_run(struct pump *pump, uint32_t families)
{
	const uint64_t start_ns = engine_now_ns();

	pump->left = families;
	while (pump->left || pump->held || pump->open) {
		if (pump->left && pump->routed_count < ROOM &&
		    pump_prefill(pump)) {
			pump->left--;
			continue;
		}
		pump->full += pump->held == ROOM;
		if (pump->routed_count)
			pump_route(pump);
		else
			pump_event(pump);
	}
	pump->took_ns += engine_now_ns() - start_ns;
}

static double pump_rate(const struct pump *pump)
{
	return 1e9 * pump->requests / (double)pump->took_ns;
}

/* The share of its slice: a machine that stood still in one of them is no reject. */
static double slice_share(struct pump *plain, struct pump *mixed,
			  uint32_t families)
{
	const struct pump plain_before = *plain;
	const struct pump mixed_before = *mixed;

	pump_run(plain, families);
	pump_run(mixed, families);
	return (double)(mixed->requests - mixed_before.requests) /
	       (double)(mixed->took_ns - mixed_before.took_ns) /
	       ((double)(plain->requests - plain_before.requests) /
		(double)(plain->took_ns - plain_before.took_ns));
}

static int compare_shares(const void *a, const void *b)
{
	const double *left = a;
	const double *right = b;

	return (*left > *right) - (*left < *right);
}

static void f4_full(const struct scenario *scenario)
{
	const uint32_t families = scenario->full ? 20000 : 800;
	static struct pump plain = { .random = 11, .reject_percent = 0 };
	static struct pump mixed = { .random = 11, .reject_percent = 25 };
	struct node_stats stats;
	struct node p, d;
	double shares[SLICES];
	uint32_t slice;
	double share;

	pair_open(scenario, &p, &d);
	plain.nodes[0] = mixed.nodes[0] = &p;
	plain.nodes[1] = mixed.nodes[1] = &d;
	/* In turns: the machine's other work then slows both alike. */
	for (slice = 0; slice < SLICES; slice++)
		shares[slice] = slice_share(&plain, &mixed, families / SLICES);
	qsort(shares, SLICES, sizeof(*shares), compare_shares);
	share = scenario->full ? pump_rate(&mixed) / pump_rate(&plain) :
				 shares[SLICES / 2];
	scenario_say(
		"%u requests, %u rejected, P full %u times, %.0f requests/s without rejects, %.0f with",
		mixed.requests, mixed.rejected, mixed.full, pump_rate(&plain),
		pump_rate(&mixed));
	scenario_check(share >= (scenario->full ? 0.95 : 0.7),
		       "rejects cost throughput");
	node_check_empty(&p);
	node_check_empty(&d);
	node_stats_get(&p, &stats);
	scenario_check(!stats.late_releases,
		       "%llu polls saw a release and did not end its hold",
		       (unsigned long long)stats.late_releases);
	scenario_check(!stats.ranks[0].holds_expired &&
			       !stats.ranks[0].unknown &&
			       !stats.ranks[0].bad_tag,
		       "expired holds or unknown notifications");
	node_close(&d);
	node_close(&p);
}

/* Both asleep: how long from the call until P has its blocks. */
static void f4_idle(const struct scenario *scenario)
{
	const uint32_t rounds = scenario->full ? 2000 : 100;
	/* In few rounds the longest times are the machine's. */
	const uint32_t soon = rounds * (scenario->full ? 99 : 50) / 100;
	const uint32_t late = scenario->full ? rounds - 1 : rounds * 90 / 100;
	uint64_t *took_ns = calloc(rounds, sizeof(*took_ns));
	static struct node_message message;
	struct node_message event;
	struct node p, d;
	uint32_t round;

	scenario_check(took_ns != NULL, "out of memory");
	pair_open(scenario, &p, &d);
	for (round = 0; round < rounds; round++) {
		uint64_t key;

		key = node_prefill(&p, &message, BLOCKS, round + 1);
		scenario_sleep_ns(2 * SCENARIO_NS_PER_MS);
		message.op = NODE_REJECT;
		message.siblings = 1 + 3 * (round % 2);
		node_call(&d, &message);
		scenario_check(!message.code, "reject: error %d", message.code);
		node_await(&p, key, &event, LIMIT_NS);
		scenario_check(event.reason == KVPULL_END_RELEASED,
			       "hold ended by %d", event.reason);
		took_ns[round] = event.at_ns - message.at_ns;
	}
	qsort(took_ns, rounds, sizeof(*took_ns), scenario_compare_u64);
	scenario_say(
		"%u rejects, median %llu us, 99 %% %llu us, longest %llu us",
		rounds, (unsigned long long)took_ns[rounds / 2] / 1000,
		(unsigned long long)took_ns[rounds * 99 / 100] / 1000,
		(unsigned long long)took_ns[rounds - 1] / 1000);
	scenario_check(took_ns[soon] < patience() * LATENCY_NS &&
			       took_ns[late] < patience() * LATENCY_MAX_NS,
		       "too late");
	node_pair_close(&p, &d);
}

const struct scenario_case scenario_f4[] = {
	{ "F4a", "rejected requests free a full P at its next poll", f4_full,
	  40, 300 },
	{ "F4b", "a reject frees P within 20 ms when both sleep", f4_idle, 30,
	  120 },
	{ 0 },
};
