/* SPDX-License-Identifier: Apache-2.0 */
/*
 * F6: what ends a hold that D has claimed and does not read: never the lease
 * while D's engine steps, nor within two of them where it stands; three leases
 * if it never steps again; at once its death, at the latest hold_max.
 *
 * Between machines a link may flap: there the dead have a lease of grace, and
 * what they had claimed may end by its own lease before that.
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/scenario/node.h"

#define QUEUE_LEASE_MS 600u
#define LEASE_MS 1000u
#define HOLD_MAX_MS 2000u
#define BLOCKS 16u
#define HOLDS 8u
#define FREED_NS (100 * SCENARIO_NS_PER_MS)
#define FREED_MAX_NS (LEASE_MS * SCENARIO_NS_PER_MS)
#define REMOTE_MAX_NS (2 * LEASE_MS * SCENARIO_NS_PER_MS)
#define LIMIT_NS (5 * SCENARIO_NS_PER_S * patience())

static const char limited[] = "\"lease_ms\":1000,\"hold_max_ms\":2000";
static const char config[] = "\"lease_ms\":1000,\"hold_max_ms\":60000";
static const char patient[] = "\"lease_ms\":600,\"hold_max_ms\":60000";

static void engine_start(const struct scenario *scenario, struct node *node,
			 const char *id, const char *members)
{
	const struct node_params params = {
		.scenario = scenario,
		.id = id,
		.config = members,
		.shape = scenario_shape(8192, BLOCKS * HOLDS, 2),
		.tp_size = 2,
		.scribble = *id == 'p',
	};

	node_open(node, &params);
}

/* Prefill and admit HOLDS requests; keys of P's holds and D's requests. */
static void claim_all(struct node *p, struct node *d, uint64_t *held,
		      uint64_t *admitted)
{
	static struct node_message message;
	uint32_t index;

	for (index = 0; index < HOLDS; index++) {
		held[index] = node_prefill(p, &message, BLOCKS, index + 1);
		message.op = NODE_ADMIT;
		node_call(d, &message);
		scenario_check(!message.code, "admit: error %d", message.code);
		admitted[index] = message.key;
	}
}

static void f6_queue(const struct scenario *scenario)
{
	uint64_t held[HOLDS], admitted[HOLDS];
	const uint32_t leases = scenario->full ? 30 : 4;
	struct node_message message = { .op = NODE_FREEZE };
	struct node_message event;
	struct node p, d;
	uint32_t index;

	engine_start(scenario, &p, "producer", patient);
	engine_start(scenario, &d, "consumer", patient);
	claim_all(&p, &d, held, admitted);
	/* D's engine steps, and has no time for them. */
	scenario_check(
		!node_event(&p, &event,
			    leases * QUEUE_LEASE_MS * SCENARIO_NS_PER_MS),
		"a hold ended by %d while D queued", event.reason);
	/* Then it stands for more than a lease: a long forward pass. */
	message.at_ns = QUEUE_LEASE_MS * 3 / 2 * SCENARIO_NS_PER_MS;
	node_send(&d, &message);
	scenario_check(!node_event(&p, &event, message.at_ns),
		       "a hold ended by %d while D stood", event.reason);
	scenario_check(!node_reply(&d, &message), "D did not come back");
	for (index = 0; index < HOLDS; index++) {
		message = (struct node_message){ .op = NODE_START,
						 .key = admitted[index] };
		node_call(&d, &message);
	}
	for (index = 0; index < HOLDS; index++) {
		scenario_check(node_event(&d, &event, LIMIT_NS) &&
				       event.kind == KVPULL_POLL_LOADED &&
				       !event.wrong,
			       "a pull failed: error %d", event.reason);
		scenario_check(node_event(&p, &event, LIMIT_NS) &&
				       event.reason == KVPULL_END_RELEASED,
			       "a hold ended by %d", event.reason);
	}
	node_check_empty(&p);
	node_check_empty(&d);
	scenario_say("%u holds over %u leases", HOLDS, leases);
	node_close(&d);
	node_close(&p);
}

enum victim {
	VICTIM_ALONE,
	VICTIM_EARLY,
	VICTIM_PARENT
};

/* Longest time from the kill until P had all its blocks. */
static uint64_t kill_one(const struct scenario *scenario, struct node *p,
			 uint64_t claims, enum victim victim)
{
	uint64_t held[HOLDS], admitted[HOLDS];
	struct node_message message = { .op = NODE_FORK };
	struct node_message event;
	uint64_t longest_ns = 0;
	uint64_t killed_ns;
	pid_t left = 0;
	struct node d;
	uint32_t index;

	engine_start(scenario, &d, "consumer", config);
	claim_all(p, &d, held, admitted);
	if (victim == VICTIM_PARENT) {
		scenario_sleep_ns(20 * SCENARIO_NS_PER_MS);
		node_call(&d, &message);
		left = message.code;
		scenario_check(left > 0, "fork");
	}
	node_claims_await(p, 2, claims, LIMIT_NS);
	/* Wait for the first heartbeats, unless the victim dies before them. */
	if (victim != VICTIM_EARLY)
		scenario_sleep_ns(LEASE_MS * 2 / 5 * SCENARIO_NS_PER_MS);
	killed_ns = engine_now_ns();
	node_kill(&d);
	for (index = 0; index < HOLDS; index++) {
		scenario_check(node_event(p, &event, LIMIT_NS),
			       "holds of a dead consumer stay");
		scenario_check(event.reason == KVPULL_END_RELEASED ||
				       (scenario_is_remote() &&
					event.reason == KVPULL_END_EXPIRED),
			       "a hold ended by %d", event.reason);
		if (event.at_ns - killed_ns > longest_ns)
			longest_ns = event.at_ns - killed_ns;
	}
	if (left) {
		scenario_check(!kill(left, 0), "the child of D is gone");
		(void)kill(left, SIGKILL);
		(void)waitpid(left, NULL, 0);
	}
	return longest_ns;
}

/* A lease may end a hold before its consumer's grace is over. */
static void dead_await(struct node *p, uint32_t count, struct node_stats *stats)
{
	const uint64_t until = engine_now_ns() + LIMIT_NS;

	do
		node_stats_get(p, stats);
	while (scenario_is_remote() && engine_now_ns() < until &&
	       stats->ranks[0].consumers_died < count);
}

static void kill_run(const struct scenario *scenario, enum victim victim)
{
	const uint32_t rounds = scenario->full ? 50 : 2;
	const uint64_t freed_max_ns =
		scenario_is_remote() ? REMOTE_MAX_NS : FREED_MAX_NS;
	uint64_t longest_ns = 0;
	struct node_stats stats;
	uint32_t late = 0;
	struct node p;
	uint32_t round;

	engine_start(scenario, &p, "producer", config);
	for (round = 0; round < rounds; round++) {
		/* Each D rank claims each hold at each P rank. */
		const uint64_t took_ns =
			kill_one(scenario, &p,
				 (uint64_t)(round + 1) * HOLDS * 2, victim);

		late += took_ns > FREED_NS;
		if (took_ns > longest_ns)
			longest_ns = took_ns;
	}
	scenario_say(
		"%u kills, %u holds each, longest %llu us, %u after more than 100 ms",
		rounds, HOLDS, (unsigned long long)longest_ns / 1000, late);
	/* A busy machine may delay some, but not to the lease. */
	scenario_check((!scenario->full || scenario_is_remote() ||
			late * 4 < rounds) &&
			       longest_ns < freed_max_ns,
		       "too late");
	node_check_empty(&p);
	/*
	 * A fork()ed child keeps the connection open: its parent's death is not
	 * seen.
	 */
	if (scenario_is_remote() && victim == VICTIM_PARENT) {
		node_close(&p);
		return;
	}
	dead_await(&p, 2 * rounds, &stats);
	scenario_check(
		(!stats.ranks[0].holds_expired || scenario_is_remote()) &&
			stats.ranks[0].consumers_died == 2u * rounds &&
			!stats.ranks[0].consumers_live,
		"%llu expired, %llu died, %llu live",
		(unsigned long long)stats.ranks[0].holds_expired,
		(unsigned long long)stats.ranks[0].consumers_died,
		(unsigned long long)stats.ranks[0].consumers_live);
	node_close(&p);
}

SCENARIO_RUN(f6_killed, kill_run(scenario, VICTIM_ALONE))
SCENARIO_RUN(f6_killed_early, kill_run(scenario, VICTIM_EARLY))
SCENARIO_RUN(f6_killed_parent, kill_run(scenario, VICTIM_PARENT))

static void f6_stopped(const struct scenario *scenario)
{
	uint64_t held[HOLDS], admitted[HOLDS];
	struct node_message message = { .op = NODE_FREEZE, .at_ns = 0 };
	struct node_message event;
	uint64_t start_ns;
	uint64_t first_ns = UINT64_MAX;
	uint64_t last_ns = 0;
	struct node p, d;
	uint32_t index;

	engine_start(scenario, &p, "producer", limited);
	engine_start(scenario, &d, "consumer", limited);
	start_ns = engine_now_ns();
	claim_all(&p, &d, held, admitted);
	/* D's worker has sent the words that it had before it froze. */
	node_claims_await(&p, 2, 2 * HOLDS, LIMIT_NS);
	node_send(&d, &message);
	for (index = 0; index < HOLDS; index++) {
		uint64_t took_ns;

		scenario_check(node_event(&p, &event, LIMIT_NS),
			       "a hold outlives hold_max");
		scenario_check(event.reason == KVPULL_END_EXPIRED,
			       "a hold ended by %d", event.reason);
		took_ns = event.at_ns - start_ns;
		first_ns = took_ns < first_ns ? took_ns : first_ns;
		last_ns = took_ns > last_ns ? took_ns : last_ns;
	}
	scenario_say("%u holds, freed after %llu .. %llu ms", HOLDS,
		     (unsigned long long)(first_ns / SCENARIO_NS_PER_MS),
		     (unsigned long long)(last_ns / SCENARIO_NS_PER_MS));
	scenario_check(first_ns >= HOLD_MAX_MS * SCENARIO_NS_PER_MS,
		       "before hold_max");
	scenario_check(last_ns < (HOLD_MAX_MS + 1000 * patience()) *
					 SCENARIO_NS_PER_MS,
		       "long after hold_max");
	node_kill(&d);
	node_check_empty(&p);
	node_close(&p);
}

/* The release waits in the scheduler half, and the worker lives. */
static void f6_abandoned(const struct scenario *scenario)
{
	const uint64_t limit_ns =
		(3 * LEASE_MS + 300 * patience()) * SCENARIO_NS_PER_MS;
	struct node_message message, event;
	struct node p, d;
	uint64_t start_ns;

	engine_start(scenario, &p, "producer", config);
	engine_start(scenario, &d, "consumer", config);
	(void)node_prefill(&p, &message, BLOCKS, 1);
	message.op = NODE_ADMIT;
	node_call(&d, &message);
	scenario_check(!message.code, "admit: error %d", message.code);
	node_claims_await(&p, 2, 2, LIMIT_NS);
	message =
		(struct node_message){ .op = NODE_FREEZE, .key = message.key };
	start_ns = engine_now_ns();
	node_send(&d, &message);
	scenario_check(node_event(&p, &event, limit_ns),
		       "a hold outlives its consumer's last step by %llu ms",
		       (unsigned long long)(limit_ns / SCENARIO_NS_PER_MS));
	scenario_check(event.reason == KVPULL_END_EXPIRED, "a hold ended by %d",
		       event.reason);
	scenario_say("freed after %llu ms, leases of %u ms",
		     (unsigned long long)(event.at_ns - start_ns) /
			     SCENARIO_NS_PER_MS,
		     LEASE_MS);
	node_kill(&d);
	node_check_empty(&p);
	node_close(&p);
}

const struct scenario_case scenario_f6[] = {
	{ "F6a", "holds of a queueing D never expire, nor while it stands long",
	  f6_queue, 20, 60 },
	{ "F6b", "holds of a killed D are freed within 100 ms", f6_killed, 20,
	  120 },
	{ "F6c", "also when it dies before its first heartbeat",
	  f6_killed_early, 20, 120 },
	{ "F6d", "also when its forked child keeps its sockets open",
	  f6_killed_parent, 20, 120 },
	{ "F6e", "holds of a D that only beats are freed at hold_max",
	  f6_stopped, 20, 20 },
	{ "F6f",
	  "a D that claims, finishes and never steps frees P in 3 leases",
	  f6_abandoned, 20, 20 },
	{ 0 },
};
