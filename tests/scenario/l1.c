/* SPDX-License-Identifier: Apache-2.0 */
/*
 * L1: a long run. One P and one D live through all of it; beside them a P and
 * a D that pull and serve as they do are killed -9, stopped, and started again
 * in turns. What lives must be at the end as it was: memory, descriptors,
 * mappings, tables, and the time of a pull. Tickets are pulled, rejected, lost,
 * and shown to two instances at once; what was pulled is compared.
 */
#include "tests/scenario/node.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define FULL_S 1800u
#define QUICK_S 4u
#define REMOTE_S 160u
#define HOLDS_MIN 1000000u /* of the full run */
#define REMOTE_LOADED_MIN 5000u
#define BLOCKS 4u
#define OPEN_MAX 48u /* of one producer, or one consumer */
#define LEASE_NS (500 * SCENARIO_NS_PER_MS)
#define FAULT_NS (700 * SCENARIO_NS_PER_MS) /* between faults */
#define LIMIT_NS (20 * SCENARIO_NS_PER_S * patience())
#define SAMPLES 8192u
/* Beyond what an allocator keeps; 10^6 holds that leak a byte each are more. */
#define GROWN_KIB_MAX 768u
/* A short run does not use each place of each table before it begins. */
#define TOUCHED_KIB_MAX 65536u
/* Medians of the first and the last quarter: machines are shared. */
#define SLOWER_MAX 3u

enum side {
	P = 0, /* lives */
	D,
	P_VICTIM,
	D_VICTIM,
	SIDES
};

struct state {
	uint64_t maps, fds, anon_kib, arena_bytes;
};

struct soak {
	const struct scenario *scenario;
	struct node nodes[SIDES];
	uint32_t open[SIDES]; /* ends that are still to come */
	uint64_t stopped_until_ns[SIDES];
	uint64_t random;
	uint64_t seed;
	uint64_t holds, loaded, failed, rejected, lost, twice, kills, stops,
		restarts;
	uint64_t took_ns[2][SAMPLES]; /* of D at P: first and last quarter */
	uint32_t took_count[2];
	uint32_t quarter;
	uint32_t reserved;
};

static const char *const names[SIDES] = { "producer", "consumer", "producer2",
					  "consumer2" };

static void side_open(struct soak *soak, enum side side)
{
	const struct node_params params = {
		.scenario = soak->scenario,
		.id = names[side],
		.config = "\"lease_ms\":500,\"hold_max_ms\":60000,"
			  "\"deadline_ms\":10000",
		.shape = scenario_shape(4096, BLOCKS * 4 * OPEN_MAX, 2),
		.tp_size = 1,
		.scribble = side == P || side == P_VICTIM,
	};

	node_open(&soak->nodes[side], &params);
	soak->open[side] = 0;
}

static int is_stopped(const struct soak *soak, enum side side)
{
	return soak->stopped_until_ns[side] != 0;
}

static void resume(struct soak *soak, enum side side)
{
	if (!is_stopped(soak, side))
		return;
	(void)kill(soak->nodes[side].pid, SIGCONT);
	soak->stopped_until_ns[side] = 0;
}

static void event_take(struct soak *soak, enum side side,
		       const struct node_message *event)
{
	const uint32_t last = soak->quarter == 3;

	scenario_check(event->seed != 0,
		       "%s: report of an unknown request: kind %u, reason %d",
		       names[side], event->kind, event->reason);
	scenario_check(!event->wrong, "%s: %llu wrong bytes were believed",
		       names[side], (unsigned long long)event->wrong);
	scenario_check(soak->open[side], "%s: one report too many",
		       names[side]);
	soak->open[side]--;
	if (event->kind == KVPULL_POLL_SENT)
		return;
	soak->loaded += event->kind == KVPULL_POLL_LOADED;
	soak->failed += event->kind == KVPULL_POLL_FAILED;
	if (side == D && event->kind == KVPULL_POLL_LOADED && event->bytes &&
	    (soak->quarter == 1 || last) && soak->took_count[last] < SAMPLES)
		soak->took_ns[last][soak->took_count[last]++] = event->took_ns;
}

/* Reports of those that run, until each has at most so many open. */
static void events_take(struct soak *soak, uint32_t open_max)
{
	const uint64_t until = engine_now_ns() + LIMIT_NS;
	struct node_message event;
	enum side side;

	for (side = P; side < SIDES; side++) {
		if (is_stopped(soak, side))
			continue;
		while (node_event(&soak->nodes[side], &event, 0))
			event_take(soak, side, &event);
		while (soak->open[side] > open_max) {
			scenario_check(engine_now_ns() < until,
				       "%s: %u requests do not end",
				       names[side], soak->open[side]);
			if (node_event(&soak->nodes[side], &event,
				       SCENARIO_NS_PER_MS))
				event_take(soak, side, &event);
		}
	}
}

static void pull(struct soak *soak, enum side side,
		 const struct node_message *ticket)
{
	(void)node_pull(&soak->nodes[side], ticket);
	soak->open[side] += ticket->siblings;
}

static void request(struct soak *soak)
{
	static struct node_message message;
	const uint64_t random = random_next(&soak->random);
	const enum side p =
		random & 1 && !is_stopped(soak, P_VICTIM) ? P_VICTIM : P;
	const enum side d =
		random & 2 && !is_stopped(soak, D_VICTIM) ? D_VICTIM : D;
	const uint32_t what = (uint32_t)(random >> 8) % 100;

	message = (struct node_message){
		.op = NODE_PREFILL,
		.blocks = BLOCKS,
		.seed = soak->seed += 1000003,
		.siblings = 1 + (uint32_t)(random >> 16) % 8 / 6,
	};
	node_call(&soak->nodes[p], &message);
	scenario_check(!message.code, "%s: prefill: error %d", names[p],
		       message.code);
	soak->open[p]++;
	soak->holds++;
	if (what < 1) { /* no consumer ever sees it */
		soak->lost++;
	} else if (what < 10) {
		message.op = NODE_REJECT;
		node_call(&soak->nodes[d], &message);
		soak->rejected++;
	} else {
		pull(soak, d, &message);
		if (what < 15 && d == D && !is_stopped(soak, D_VICTIM)) {
			pull(soak, D_VICTIM, &message);
			soak->twice++;
		}
	}
}

static void fault(struct soak *soak)
{
	const uint64_t random = random_next(&soak->random);
	const enum side side = random & 1 ? P_VICTIM : D_VICTIM;
	const uint32_t what = (uint32_t)(random >> 8) % 4;

	resume(soak, P_VICTIM);
	resume(soak, D_VICTIM);
	if (what < 2) {
		(void)kill(soak->nodes[side].pid, SIGSTOP);
		soak->stopped_until_ns[side] =
			engine_now_ns() + (random >> 16) % (3 * LEASE_NS);
		soak->stops++;
		return;
	}
	if (what == 2) {
		node_kill(&soak->nodes[side]);
		soak->kills++;
	} else {
		node_close(&soak->nodes[side]);
		soak->restarts++;
	}
	side_open(soak, side);
}

static uint64_t anon_kib_of(pid_t pid)
{
	char path[64], line[128];
	unsigned long long kib = 0;
	FILE *status;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	status = fopen(path, "re");
	scenario_check(status != NULL, "%s cannot be read", path);
	while (fgets(line, sizeof(line), status))
		(void)sscanf(line, "RssAnon: %llu", &kib);
	(void)fclose(status);
	return kib;
}

/* All four are up, know one another and have nothing to do. */
static void settle(struct soak *soak)
{
	static struct node_message message;
	enum side p, d;

	resume(soak, P_VICTIM);
	resume(soak, D_VICTIM);
	for (p = P; p < SIDES; p += 2)
		for (d = D; d < SIDES; d += 2) {
			(void)node_prefill(&soak->nodes[p], &message, BLOCKS,
					   soak->seed += 1000003);
			soak->open[p]++;
			soak->holds++;
			pull(soak, d, &message);
		}
	events_take(soak, 0);
	for (p = P; p < SIDES; p++)
		node_check_empty(&soak->nodes[p]);
}

static void state_of(struct node *node, struct state *state)
{
	struct node_stats stats;

	node_stats_get(node, &stats);
	*state = (struct state){ .maps = stats.maps,
				 .fds = stats.fds,
				 .anon_kib = anon_kib_of(node->pid),
				 .arena_bytes = stats.ranks[0].arena_bytes };
}

/* The engine closes everything of an ended process within a moment. */
static void state_compare(struct node *node, const struct state *before,
			  uint64_t grown_kib_max)
{
	const uint64_t until = engine_now_ns() + LIMIT_NS;
	struct state now;

	do
		state_of(node, &now);
	while ((now.fds != before->fds || now.maps != before->maps) &&
	       engine_now_ns() < until);
	scenario_check(now.fds == before->fds && now.maps == before->maps &&
			       now.arena_bytes == before->arena_bytes,
		       "%s: %llu descriptors, %llu maps, before %llu and %llu",
		       node->id, (unsigned long long)now.fds,
		       (unsigned long long)now.maps,
		       (unsigned long long)before->fds,
		       (unsigned long long)before->maps);
	scenario_check(now.anon_kib <= before->anon_kib + grown_kib_max,
		       "%s: %llu KiB, before %llu", node->id,
		       (unsigned long long)now.anon_kib,
		       (unsigned long long)before->anon_kib);
	scenario_say(", %s %llu KiB of %llu, %llu fds", node->id,
		     (unsigned long long)now.anon_kib,
		     (unsigned long long)before->anon_kib,
		     (unsigned long long)now.fds);
}

static uint64_t median(uint64_t *values, uint32_t count)
{
	scenario_check(count, "no pull was timed");
	qsort(values, count, sizeof(*values), scenario_compare_u64);
	return values[count / 2];
}

static void quarter_run(struct soak *soak, uint64_t length_ns)
{
	const uint64_t until = engine_now_ns() + length_ns;
	uint64_t fault_ns = engine_now_ns() + FAULT_NS;
	uint64_t now;

	while ((now = engine_now_ns()) < until) {
		enum side side;

		for (side = P_VICTIM; side < SIDES; side++)
			if (is_stopped(soak, side) &&
			    now >= soak->stopped_until_ns[side])
				resume(soak, side);
		if (now >= fault_ns) {
			fault(soak);
			fault_ns = now + FAULT_NS;
		}
		request(soak);
		events_take(soak, OPEN_MAX);
	}
	soak->quarter++;
}

static void l1_run(const struct scenario *scenario)
{
	static struct soak soak;
	struct state before[2];
	const uint64_t length_ns = (scenario->full       ? FULL_S :
				    scenario_is_remote() ? REMOTE_S :
							   QUICK_S) *
				   SCENARIO_NS_PER_S / 4;
	uint64_t first, last;
	enum side side;

	soak.scenario = scenario;
	soak.random = engine_now_ns() | 1;
	for (side = P; side < SIDES; side++)
		side_open(&soak, side);
	/* By now each place of each table was used. */
	quarter_run(&soak, length_ns);
	settle(&soak);
	state_of(&soak.nodes[P], &before[P]);
	state_of(&soak.nodes[D], &before[D]);
	while (soak.quarter < 4)
		quarter_run(&soak, length_ns);
	settle(&soak);
	first = median(soak.took_ns[0], soak.took_count[0]);
	last = median(soak.took_ns[1], soak.took_count[1]);
	scenario_say(
		"%llu holds, %llu loaded, %llu failed, %llu rejected, %llu lost, %llu shown twice; %llu kills, %llu stops, %llu restarts; a pull took %llu us, at last %llu",
		(unsigned long long)soak.holds, (unsigned long long)soak.loaded,
		(unsigned long long)soak.failed,
		(unsigned long long)soak.rejected,
		(unsigned long long)soak.lost, (unsigned long long)soak.twice,
		(unsigned long long)soak.kills, (unsigned long long)soak.stops,
		(unsigned long long)soak.restarts,
		(unsigned long long)first / 1000,
		(unsigned long long)last / 1000);
	for (side = P; side <= D; side++)
		state_compare(&soak.nodes[side], &before[side],
			      scenario->full ? GROWN_KIB_MAX : TOUCHED_KIB_MAX);
	scenario_check(!scenario->full || soak.holds >= HOLDS_MIN,
		       "%llu holds are few", (unsigned long long)soak.holds);
	scenario_check(!scenario_is_remote() ||
			       soak.loaded >= REMOTE_LOADED_MIN,
		       "%llu answers are few", (unsigned long long)soak.loaded);
	scenario_check(!scenario->full || last <= first * SLOWER_MAX,
		       "a pull takes %llu us, at first %llu",
		       (unsigned long long)last / 1000,
		       (unsigned long long)first / 1000);
	for (side = P; side < SIDES; side++)
		node_close(&soak.nodes[side]);
}

const struct scenario_case scenario_l1[] = {
	{ "L1", "after a long run with kills and stops all is as it was",
	  l1_run, 60, FULL_S + 120 },
	{ 0 },
};
