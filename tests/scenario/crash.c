/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round: P has requests held, D pulls most of them, the victim is killed at a
 * random moment. The other one must report each request once; a pull that was
 * believed has the right bytes. The victim comes back under its old name in
 * the same folder: a ticket of its former life is worth nothing, a new one
 * works. Every third time it is killed once more while it opens. At the end the
 * survivor's tables, descriptors and mappings are as they were before.
 */
#include "tests/scenario/crash.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define TRIES_MAX 20u
#define REQUESTS 8u
#define BLOCKS 24u
#define LEASE_NS (200 * SCENARIO_NS_PER_MS)
#define LIMIT_NS (10 * SCENARIO_NS_PER_S * patience())
#define OPEN_NS (20 * SCENARIO_NS_PER_MS)
#define UNMAP_NS (100 * SCENARIO_NS_PER_MS)
/* A busy machine may delay one, but not beyond this. */
#define UNMAP_MAX_NS (2 * SCENARIO_NS_PER_S)

#define RANKS_MAX 2u
#define SCHEDULER_VALUES 7u
#define RANK_VALUES 7u
#define TABLE_VALUES (SCHEDULER_VALUES + RANKS_MAX * RANK_VALUES)

struct tables {
	uint64_t values[TABLE_VALUES];
};

struct crash {
	const struct scenario *scenario;
	const struct crash_setup *setup;
	struct node p, d;
	uint64_t random;
	uint64_t seed;
	struct node_message tickets[REQUESTS]; /* prefills of this round */
	uint64_t loaded, failed, released, expired;
	uint64_t unmap_ns; /* longest */
	uint32_t unmaps_late;
	uint32_t opens_killed;
	uint32_t early;
	uint32_t reserved;
};

/* Short leases: what was never claimed is freed soon. */
static const char config[] = "\"lease_ms\":200,\"hold_max_ms\":20000,"
			     "\"deadline_ms\":3000,\"copy_threads\":1";

static void params_fill(const struct crash *crash, const char *id,
			struct node_params *params)
{
	*params = (struct node_params){
		.scenario = crash->scenario,
		.id = id,
		.config = config,
		.shape = scenario_shape(16384, BLOCKS * (REQUESTS + 1), 2),
		.tp_size = crash->setup->tp_size,
		.foreign = crash->setup->foreign,
		.gpu = crash->setup->gpu,
		.scribble = *id == 'p',
		.split = crash->setup->rank_only,
	};
}

static void side_open(struct crash *crash, struct node *node, const char *id)
{
	struct node_params params;

	params_fill(crash, id, &params);
	node_open(node, &params);
}

/* The victim comes back; at times it does not get through its open. */
static void side_reopen(struct crash *crash, struct node *node, const char *id)
{
	struct node_params params;

	params_fill(crash, id, &params);
	if (random_next(&crash->random) % 3 == 0) {
		node_start(node, &params);
		scenario_sleep_ns(random_next(&crash->random) % OPEN_NS);
		node_kill(node);
		crash->opens_killed++;
	}
	node_open(node, &params);
}

static struct node *survivor(struct crash *crash)
{
	return crash->setup->victim == CRASH_PRODUCER ? &crash->d : &crash->p;
}

static struct node *victim(struct crash *crash)
{
	return crash->setup->victim == CRASH_PRODUCER ? &crash->p : &crash->d;
}

/*
 * May a new ticket fail? Its first lease may be over before D, which has just
 * started, comes to claim it. And P counts a rank that died as having released
 * whatever its instance claims until it is back: the other rank's release may
 * come before that.
 */
static int is_early(const struct crash *crash, const struct node_message *end)
{
	return end->reason == KVPULL_END_EXPIRED ||
	       end->reason == KVPULL_END_RANK ||
	       (end->reason == KVPULL_END_RELEASED && crash->setup->rank_only &&
		crash->setup->victim == CRASH_CONSUMER);
}

/* Runs a request from end to end; 0: too early. */
static int works_once(struct crash *crash)
{
	static struct node_message message;
	struct node_message event, end;
	uint64_t held;

	(void)node_prefill(&crash->p, &message, BLOCKS, crash->seed += 1000003);
	held = message.key;
	node_await(&crash->d, node_pull(&crash->d, &message), &event, LIMIT_NS);
	node_await(&crash->p, held, &end, LIMIT_NS);
	if (event.kind != KVPULL_POLL_LOADED) {
		scenario_check(
			is_early(crash, &end) &&
				event.reason == KVPULL_EEXPIRED,
			"a new ticket does not work: error %d; its hold ended by %d after %llu ms",
			event.reason, end.reason,
			(unsigned long long)((end.at_ns - message.at_ns) /
					     SCENARIO_NS_PER_MS));
		crash->early++;
		return 0;
	}
	scenario_check(!event.wrong, "%llu wrong bytes of a new ticket",
		       (unsigned long long)event.wrong);
	return 1;
}

/* Leases are short here, and machines busy. */
static void works(struct crash *crash)
{
	uint32_t tries = 0;

	while (!works_once(crash))
		scenario_check(++tries < TRIES_MAX, "new tickets all expire");
}

/* All but the last, whose ticket D sees after the death only. */
static void load_up(struct crash *crash)
{
	static struct node_message pull;
	uint32_t index;

	for (index = 0; index < REQUESTS; index++)
		(void)node_prefill(&crash->p, &crash->tickets[index], BLOCKS,
				   crash->seed += 1000003);
	for (index = 0; index + 1 < REQUESTS; index++) {
		memcpy(&pull, &crash->tickets[index], sizeof(pull));
		pull.op = NODE_PULL;
		node_send(&crash->d, &pull);
	}
}

/* A D that lives has taken them all. */
static void replies_take(struct crash *crash)
{
	struct node_message reply;
	uint32_t index;

	for (index = 0; index + 1 < REQUESTS; index++)
		scenario_check(!node_reply(&crash->d, &reply) && !reply.code,
			       "pull: error %d", reply.code);
}

static void report_take(struct crash *crash, const struct node_message *event)
{
	scenario_check(event->seed != 0,
		       "report of an unknown request %llu: kind %u, reason %d",
		       (unsigned long long)event->key, event->kind,
		       event->reason);
	scenario_check(!event->wrong, "%llu wrong bytes were believed",
		       (unsigned long long)event->wrong);
	crash->loaded += event->kind == KVPULL_POLL_LOADED;
	crash->failed += event->kind == KVPULL_POLL_FAILED ||
			 event->kind == NODE_EVENT_NOTHING;
	crash->released += event->kind == KVPULL_POLL_SENT &&
			   event->reason != KVPULL_END_EXPIRED;
	crash->expired += event->kind == KVPULL_POLL_SENT &&
			  event->reason == KVPULL_END_EXPIRED;
}

static void reports_await(struct crash *crash, struct node *node,
			  uint32_t count)
{
	struct node_message event;

	for (; count; count--) {
		scenario_check(node_event(node, &event, LIMIT_NS),
			       "%s: %u requests are not reported", node->id,
			       count);
		report_take(crash, &event);
	}
}

/* A ticket from before the death. */
static void old_ticket(struct crash *crash)
{
	struct node_message event;
	const uint64_t key =
		node_pull(&crash->d, &crash->tickets[REQUESTS - 1]);

	node_await(&crash->d, key, &event, LIMIT_NS);
	scenario_check(event.kind != KVPULL_POLL_LOADED,
		       "an old ticket matches");
	scenario_check(event.reason || event.kind == NODE_EVENT_NOTHING,
		       "an old ticket fails without a reason");
}

static void child_end(pid_t child)
{
	if (child <= 0)
		return;
	scenario_check(!kill(child, 0), "the victim's child is gone");
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
}

static void unmap_await(struct crash *crash, uint64_t killed_ns, uint32_t maps)
{
	struct node_stats stats;
	uint64_t took_ns;

	do {
		node_stats_get(&crash->d, &stats);
		took_ns = engine_now_ns() - killed_ns;
		scenario_check(stats.maps <= maps || took_ns < UNMAP_MAX_NS,
			       "a dead P is still mapped: %u maps, %u at start",
			       stats.maps, maps);
	} while (stats.maps > maps);
	crash->unmaps_late += took_ns > UNMAP_NS;
	if (took_ns > crash->unmap_ns)
		crash->unmap_ns = took_ns;
}

static void round_run(struct crash *crash, uint32_t own_maps)
{
	const enum crash_victim who = crash->setup->victim;
	struct node_message message = { .op = NODE_FORK };
	pid_t child = 0;
	uint64_t killed_ns;

	if (crash->setup->forked) {
		node_call(victim(crash), &message);
		child = message.code;
	}
	load_up(crash);
	scenario_sleep_ns(random_next(&crash->random) % 1500000);
	killed_ns = engine_now_ns();
	node_kill(victim(crash));
	if (who == CRASH_PRODUCER) {
		replies_take(crash);
		unmap_await(crash, killed_ns, own_maps);
		reports_await(crash, &crash->d, REQUESTS - 1);
		side_reopen(crash, &crash->p, "producer");
		old_ticket(crash);
	} else {
		reports_await(crash, &crash->p, REQUESTS);
		side_reopen(crash, &crash->d, "consumer");
	}
	works(crash);
	child_end(child);
}

/* The same with one of the victim's two workers. */
static void rank_round_run(struct crash *crash)
{
	const enum crash_victim who = crash->setup->victim;
	struct node_message message = {
		.op = NODE_RANK_KILL,
		.kind = (uint32_t)(random_next(&crash->random) % 2),
	};

	load_up(crash);
	scenario_sleep_ns(random_next(&crash->random) % 1500000);
	if (who == CRASH_CONSUMER)
		replies_take(crash);
	node_call(victim(crash), &message);
	if (who == CRASH_PRODUCER) {
		/* P's scheduler half does not know yet: D must. */
		replies_take(crash);
		reports_await(crash, &crash->d, REQUESTS - 1);
	}
	message.op = NODE_RANK_START;
	node_call(victim(crash), &message);
	scenario_check(!message.code, "rank: error %d", message.code);
	if (who == CRASH_CONSUMER)
		reports_await(crash, &crash->d, REQUESTS - 1);
	reports_await(crash, &crash->p, REQUESTS);
	if (who == CRASH_PRODUCER)
		old_ticket(crash);
	works(crash);
}

/* Makes sockets of processes that died before they listened look old. */
static void sockets_age(const char *folder)
{
	char command[512];

	(void)snprintf(
		command, sizeof(command),
		"find '%s' -name '.kvpull-*' -exec touch -h -d '1 hour ago' {} +",
		folder);
	scenario_check(!system(command), "find");
}

static void crash_close(struct crash *crash)
{
	node_check_empty(&crash->p);
	node_check_empty(&crash->d);
	node_close(&crash->d);
	node_close(&crash->p);
	sockets_age(crash->scenario->folder);
	/* The next worker that opens removes the sockets of killed ones. */
	side_open(crash, &crash->p, "producer");
	node_close(&crash->p);
	scenario_check(!node_sockets(crash->scenario->folder),
		       "%u sockets of dead workers stay",
		       node_sockets(crash->scenario->folder));
	scenario_say(
		"%u kills, %u while opening, %u new tickets too early, %llu loaded, %llu failed, %llu released, %llu expired",
		crash->setup->rounds + crash->opens_killed, crash->opens_killed,
		crash->early, (unsigned long long)crash->loaded,
		(unsigned long long)crash->failed,
		(unsigned long long)crash->released,
		(unsigned long long)crash->expired);
	if (crash->unmap_ns)
		scenario_say(
			", unmapped within %llu ms, %u after more than 100",
			(unsigned long long)(crash->unmap_ns /
					     SCENARIO_NS_PER_MS),
			crash->unmaps_late);
	scenario_check(!crash->scenario->full ||
			       crash->unmaps_late * 4 < crash->setup->rounds,
		       "a dead P is unmapped too late");
}

/* Live entries of the node's tables; tickets are remembered for a lease. */
static void tables_of(struct node *node, struct tables *tables)
{
	struct node_stats stats;
	uint32_t rank;

	node_stats_get(node, &stats);
	*tables = (struct tables){
		.values = { stats.fds, stats.maps, stats.blocks_free,
			    stats.requests_open, stats.scheduler.holds_live,
			    stats.scheduler.families_live,
			    stats.scheduler.tickets_live }
	};
	for (rank = 0; rank < RANKS_MAX; rank++) {
		const union kvpull_worker_counts *worker = &stats.ranks[rank];
		uint64_t *to =
			tables->values + SCHEDULER_VALUES + rank * RANK_VALUES;

		*to++ = worker->holds_live;
		*to++ = worker->staged_live;
		*to++ = worker->consumers_live;
		*to++ = worker->pulls_live;
		*to++ = worker->peers_live;
		*to++ = worker->releases_queued;
		*to = worker->arena_bytes;
	}
}

static void tables_compare(struct node *node, const struct tables *before)
{
	const uint64_t until = engine_now_ns() + LIMIT_NS;
	struct tables after;
	uint32_t index = 0;

	do {
		tables_of(node, &after);
		for (index = 0; index < TABLE_VALUES; index++)
			if (after.values[index] != before->values[index])
				break;
		if (index == TABLE_VALUES)
			return;
		scenario_sleep_ns(5 * SCENARIO_NS_PER_MS);
	} while (engine_now_ns() < until);
	scenario_fail("%s: table %u (see tables_of()) has %llu, before %llu",
		      node->id, index, (unsigned long long)after.values[index],
		      (unsigned long long)before->values[index]);
}

void crash_run(const struct scenario *scenario, const struct crash_setup *setup)
{
	static struct crash crash;
	struct tables before;
	struct node_stats own;
	uint32_t round;

	crash.scenario = scenario;
	crash.setup = setup;
	crash.random = engine_now_ns() | 1;
	side_open(&crash, &crash.p, "producer");
	side_open(&crash, &crash.d, "consumer");
	node_stats_get(&crash.d, &own);
	works(&crash);
	/* Also what the first request left is over. */
	scenario_sleep_ns(2 * LEASE_NS);
	tables_of(survivor(&crash), &before);
	for (round = 0; round < setup->rounds; round++) {
		if (setup->rank_only)
			rank_round_run(&crash);
		else
			round_run(&crash, own.maps);
	}
	tables_compare(survivor(&crash), &before);
	crash_close(&crash);
}
