/* SPDX-License-Identifier: Apache-2.0 */
/*
 * F3: tensor parallel sizes and pipelines that differ, both ways, and at one ticket.
 */
#include "tests/scenario/family.h"

#define LIMIT_NS (10 * SCENARIO_NS_PER_S * patience())
#define BLOCKS 64u

static void sizes_run(const struct scenario *scenario, uint32_t p_tp,
		      uint32_t d_tp)
{
	const struct family_setup setup = {
		.p_tp = p_tp,
		.d_count = 2,
		.d_tp = { d_tp, d_tp },
		.siblings = 4,
		.blocks = BLOCKS,
		.batches = scenario->full ? 200 : 8,
		.a_batch = 4,
	};

	family_run(scenario, &setup);
}

SCENARIO_RUN(f3_one_to_two, sizes_run(scenario, 1, 2))
SCENARIO_RUN(f3_two_to_one, sizes_run(scenario, 2, 1))
SCENARIO_RUN(f3_two_to_two, sizes_run(scenario, 2, 2))
SCENARIO_RUN(f3_four_to_two, sizes_run(scenario, 4, 2))

/* Seven layers: stages have unlike lengths, and those of two sides cross. */
static void stages_run(const struct scenario *scenario, uint32_t p_pp,
		       uint32_t p_tp, uint32_t d_pp, uint32_t d_tp)
{
	const struct family_setup setup = {
		.p_tp = p_tp,
		.p_pp = p_pp,
		.d_count = 2,
		.d_tp = { d_tp, d_tp },
		.d_pp = d_pp,
		.layers = 7,
		.siblings = 4,
		.blocks = BLOCKS,
		.batches = scenario->full ? 200 : 8,
		.a_batch = 4,
		.split = 1,
	};

	family_run(scenario, &setup);
}

SCENARIO_RUN(f3_stages_two_to_one, stages_run(scenario, 2, 1, 1, 1))
SCENARIO_RUN(f3_stages_one_to_two, stages_run(scenario, 1, 1, 2, 1))
SCENARIO_RUN(f3_stages_two_to_two, stages_run(scenario, 2, 2, 2, 1))
SCENARIO_RUN(f3_stages_four_to_two, stages_run(scenario, 4, 1, 2, 2))
SCENARIO_RUN(f3_stages_three_to_two, stages_run(scenario, 3, 1, 2, 1))

/*
 * Both instances claim; one is complete before the other has read anything.
 * first: the index of the one that is complete first.
 */
static void both_claim(struct node *p, struct node *consumers, uint32_t round)
{
	const uint32_t first = round & 1;
	static struct node_message message;
	static struct node_message admit[2];
	struct node_message event;
	uint64_t held;
	uint32_t turn;

	held = node_prefill(p, &message, BLOCKS, round * 1000003u + 1);
	for (turn = 0; turn < 2; turn++) {
		admit[turn] = message;
		admit[turn].op = NODE_ADMIT;
		node_call(&consumers[turn], &admit[turn]);
		scenario_check(!admit[turn].code, "admit: error %d",
			       admit[turn].code);
	}
	/* Both ranks of P have heard of three consumer ranks a round. */
	node_claims_await(p, 2, 3 * (uint64_t)(round + 1), LIMIT_NS);
	for (turn = 0; turn < 2; turn++) {
		const uint32_t at = first ^ turn;
		struct node_message start = { .op = NODE_START,
					      .key = admit[at].key };

		scenario_check(!node_event(p, &event, 0),
			       "the hold ended before the second pull");
		node_call(&consumers[at], &start);
		node_await(&consumers[at], admit[at].key, &event, LIMIT_NS);
		scenario_check(event.kind == KVPULL_POLL_LOADED && !event.wrong,
			       "instance %u: error %d, %llu wrong bytes", at,
			       event.reason, (unsigned long long)event.wrong);
		if (turn == 0)
			scenario_sleep_ns(5 * SCENARIO_NS_PER_MS);
	}
	node_await(p, held, &event, LIMIT_NS);
	scenario_check(event.reason == KVPULL_END_RELEASED,
		       "the hold ended by %d", event.reason);
}

static void f3_one_ticket(const struct scenario *scenario)
{
	const struct family_setup setup = {
		.p_tp = 2,
		.d_count = 2,
		.d_tp = { 1, 2 },
		.siblings = 1,
		.blocks = BLOCKS,
		.a_batch = 4,
	};
	const uint32_t rounds = scenario->full ? 500 : 20;
	struct node p, consumers[FAMILY_CONSUMERS_MAX];
	uint32_t round;

	family_open(scenario, &setup, &p, consumers);
	for (round = 0; round < rounds; round++)
		both_claim(&p, consumers, round);
	node_check_empty(&p);
	node_check_empty(&consumers[0]);
	node_check_empty(&consumers[1]);
	scenario_say("%u tickets at two instances", rounds);
	node_close(&consumers[0]);
	node_close(&consumers[1]);
	node_close(&p);
}

/* ---- more producers than a rank of D has room for ---- */

#define CROWD 3u

/* p_tp: ranks of each; that many entries for tickets that wait, and for pulls. */
static void crowd_open(const struct scenario *scenario, struct node *producers,
		       uint32_t p_tp, struct node *d, uint32_t d_tp)
{
	char config[32];

	static const char *const names[CROWD] = { "producer-0", "producer-1",
						  "producer-2" };
	struct node_params params = {
		.scenario = scenario,
		.config = "",
		.shape = scenario_shape(4096, 4 * BLOCKS, 2),
		.tp_size = p_tp,
		.scribble = 1,
	};
	uint32_t at;

	for (at = 0; at < CROWD; at++) {
		params.id = names[at];
		node_open(&producers[at], &params);
	}
	params.id = "consumer";
	(void)snprintf(config, sizeof(config), "\"peers_max\":%u", p_tp);
	params.config = config;
	params.shape.block_count *= CROWD;
	params.tp_size = d_tp;
	params.scribble = 0;
	params.split = d_tp > 1;
	node_open(d, &params);
}

/* nodes: the producers, and D. */
static void crowd_event(struct node *const *nodes, uint32_t round)
{
	struct node_message event;
	const int from = node_event_any(nodes, CROWD + 1, &event, LIMIT_NS);

	scenario_check(from >= 0, "round %u does not end", round);
	if (from < (int)CROWD)
		scenario_check(event.reason == KVPULL_END_RELEASED,
			       "round %u: a hold ended by %d", round,
			       event.reason);
	else
		scenario_check(event.kind == KVPULL_POLL_LOADED && !event.wrong,
			       "round %u: error %d, %llu wrong bytes", round,
			       event.reason, (unsigned long long)event.wrong);
}

/* All three are asked at once, so that one of them has to wait for its place. */
static void crowd_round(struct node *producers, struct node *d, uint32_t round)
{
	static struct node_message message;
	struct node *nodes[CROWD + 1] = { [CROWD] = d };
	uint32_t at;

	for (at = 0; at < CROWD; at++) {
		/* The order of producers changes in each round. */
		nodes[at] = &producers[(at + round) % CROWD];
		(void)node_prefill(nodes[at], &message, BLOCKS,
				   1000003u * round + at + 1);
		(void)node_pull(d, &message);
	}
	for (at = 0; at < 2 * CROWD; at++)
		crowd_event(nodes, round);
}

/*
 * A connection that is closed to make room is no rank's death: what its sibling
 * had claimed was ended before the rank came back.
 */
static void f3_crowd(const struct scenario *scenario)
{
	const uint32_t rounds = scenario->full ? 2000 : 100;
	struct node producers[CROWD], d;
	struct node_stats stats;
	uint64_t connects;
	uint32_t round;
	uint32_t at;

	crowd_open(scenario, producers, 1, &d, 2);
	for (round = 0; round < rounds; round++)
		crowd_round(producers, &d, round);
	node_check_empty(&d);
	node_stats_get(&d, &stats);
	connects = stats.ranks[0].peer_connects + stats.ranks[1].peer_connects;
	scenario_check(connects >= rounds,
		       "%llu connections: nobody had to make room",
		       (unsigned long long)connects);
	scenario_say(
		"%u pulls of three producers, room for two: %llu connections",
		CROWD * rounds, (unsigned long long)connects);
	node_close(&d);
	for (at = 0; at < CROWD; at++) {
		node_check_empty(&producers[at]);
		node_close(&producers[at]);
	}
}

/* Each producer's ticket is claimed, and waits for blocks. */
static void tickets_admit(struct node *producers, struct node *d,
			  struct node_message *admitted)
{
	uint32_t at;

	for (at = 0; at < CROWD; at++) {
		(void)node_prefill(&producers[at], &admitted[at], BLOCKS,
				   at + 1);
		admitted[at].op = NODE_ADMIT;
		node_call(d, &admitted[at]);
		scenario_check(!admitted[at].code, "admission: error %d",
			       admitted[at].code);
	}
}

/* The last is begun first: those before it wait, and it does not wait for them. */
static void f3_waits(const struct scenario *scenario)
{
	static struct node_message admitted[CROWD];
	struct node producers[CROWD], d;
	struct node_message event;
	uint32_t at;

	crowd_open(scenario, producers, 2, &d, 1);
	tickets_admit(producers, &d, admitted);
	for (at = CROWD; at-- > 0;) {
		admitted[at].op = NODE_START;
		node_call(&d, &admitted[at]);
		scenario_check(!admitted[at].code, "start: error %d",
			       admitted[at].code);
		node_await(&d, admitted[at].key, &event, LIMIT_NS);
		scenario_check(event.kind == KVPULL_POLL_LOADED && !event.wrong,
			       "producer %u: error %d, %llu wrong bytes", at,
			       event.reason, (unsigned long long)event.wrong);
	}
	node_check_empty(&d);
	node_close(&d);
	for (at = 0; at < CROWD; at++) {
		node_check_empty(&producers[at]);
		node_close(&producers[at]);
	}
}

const struct scenario_case scenario_f3[] = {
	{ "F3a", "a producer of one rank, consumers of two", f3_one_to_two, 30,
	  120 },
	{ "F3b", "a producer of two ranks, consumers of one", f3_two_to_one, 30,
	  120 },
	{ "F3c", "two ranks on both sides", f3_two_to_two, 30, 120 },
	{ "F3d", "a producer of four ranks, consumers of two", f3_four_to_two,
	  30, 120 },
	{ "F3e", "the second instance at a ticket is not cut", f3_one_ticket,
	  30, 120 },
	{ "F3f", "two ranks read three producers with room for two", f3_crowd,
	  30, 120 },
	{ "F3g", "tickets that wait leave connections to a pull", f3_waits, 30,
	  120 },
	{ "F3h", "a producer of two stages, consumers of one",
	  f3_stages_two_to_one, 30, 120 },
	{ "F3i", "a producer of one stage, consumers of two",
	  f3_stages_one_to_two, 30, 120 },
	{ "F3j", "two stages on both sides, of two ranks and of one",
	  f3_stages_two_to_two, 30, 120 },
	{ "F3k", "a producer of four stages, consumers of two, of two ranks",
	  f3_stages_four_to_two, 30, 120 },
	{ "F3l", "stages that cross: a producer of three, consumers of two",
	  f3_stages_three_to_two, 30, 120 },
	{ 0 },
};
