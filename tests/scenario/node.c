/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's side of engines in processes of their own; see node.h. */
#include "tests/scenario/node.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/gpu_ledger.h"

#define REPLY_NS (20 * SCENARIO_NS_PER_S)
#define PULL_NS (10 * SCENARIO_NS_PER_S)
/* A consumer gives a dead producer up after 0.7 s; leases are a second. */
#define EMPTY_NS (15 * SCENARIO_NS_PER_S)

static size_t message_bytes(const struct node_message *message)
{
	return offsetof(struct node_message, ticket) + message->ticket_bytes;
}

static void event_keep(struct node *node, const struct node_message *event)
{
	scenario_check(node->event_count < NODE_EVENTS_MAX,
		       "%s: too many events", node->id);
	memcpy(&node->events[(node->event_first + node->event_count++) %
			     NODE_EVENTS_MAX],
	       event, offsetof(struct node_message, ticket));
}

/* 1: a reply, 0: an event was kept, or nothing came; negative: it is gone. */
static int receive(struct node *node, struct node_message *reply,
		   uint64_t limit_ns)
{
	static struct node_message message;
	struct pollfd ready = { .fd = node->control, .events = POLLIN };
	const int limit_ms =
		(int)((limit_ns + SCENARIO_NS_PER_MS - 1) / SCENARIO_NS_PER_MS);
	ssize_t got;

	if (poll(&ready, 1, limit_ms) <= 0)
		return 0;
	got = recv(node->control, &message, sizeof(message), 0);
	if (got < (ssize_t)offsetof(struct node_message, ticket))
		return -1;
	if (message.op == NODE_EVENT) {
		event_keep(node, &message);
		return 0;
	}
	memcpy(reply, &message, (size_t)got);
	return 1;
}

void node_send(struct node *node, const struct node_message *message)
{
	if (send(node->control, message, message_bytes(message), MSG_NOSIGNAL) <
	    0)
		scenario_fail("%s: does not take commands: %s", node->id,
			      strerror(errno));
}

int node_reply(struct node *node, struct node_message *reply)
{
	const uint64_t until = engine_now_ns() + REPLY_NS;
	int got = 0;

	while (!got && engine_now_ns() < until)
		got = receive(node, reply, until - engine_now_ns());
	return got == 1 ? 0 : -1;
}

void node_call(struct node *node, struct node_message *message)
{
	node_send(node, message);
	scenario_check(!node_reply(node, message), "%s: no reply to command %u",
		       node->id, message->op);
}

int node_event(struct node *node, struct node_message *event, uint64_t limit_ns)
{
	struct node *const nodes[1] = { node };

	return node_event_any(nodes, 1, event, limit_ns) == 0;
}

static int event_take(struct node *const *nodes, uint32_t count,
		      struct node_message *event)
{
	uint32_t index;

	for (index = 0; index < count; index++) {
		struct node *node = nodes[index];

		if (!node->event_count)
			continue;
		memcpy(event, &node->events[node->event_first],
		       offsetof(struct node_message, ticket));
		node->event_first = (node->event_first + 1) % NODE_EVENTS_MAX;
		node->event_count--;
		return (int)index;
	}
	return -1;
}

int node_event_any(struct node *const *nodes, uint32_t count,
		   struct node_message *event, uint64_t limit_ns)
{
	const uint64_t until = engine_now_ns() + limit_ns;
	struct node_message reply;
	struct pollfd ready[16];
	uint32_t index;
	uint64_t now;
	int found;

	while ((found = event_take(nodes, count, event)) < 0) {
		now = engine_now_ns();
		if (now >= until)
			return -1;
		for (index = 0; index < count; index++)
			ready[index] = (struct pollfd){
				.fd = nodes[index]->control,
				.events = POLLIN,
			};
		(void)poll(ready, count,
			   (int)((until - now) / SCENARIO_NS_PER_MS) + 1);
		for (index = 0; index < count; index++)
			if (ready[index].revents &&
			    receive(nodes[index], &reply, 0))
				scenario_fail("%s: ended", nodes[index]->id);
	}
	return found;
}

void node_await(struct node *node, uint64_t key, struct node_message *event,
		uint64_t limit_ns)
{
	const uint64_t until = engine_now_ns() + limit_ns;

	do {
		const uint64_t now = engine_now_ns();

		if (now >= until || !node_event(node, event, until - now))
			scenario_fail("%s: request %llu did not end in %llu ms",
				      node->id, (unsigned long long)key,
				      (unsigned long long)(limit_ns /
							   SCENARIO_NS_PER_MS));
	} while (event->key != key);
}

void node_start(struct node *node, const struct node_params *params)
{
	int pair[2];

	scenario_check(
		!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair),
		"socketpair: %s", strerror(errno));
	*node = (struct node){ .id = params->id, .control = pair[0] };
	node->events = calloc(NODE_EVENTS_MAX, sizeof(*node->events));
	scenario_check(node->events != NULL, "out of memory");
	node->pid = fork();
	if (!node->pid) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(pair[0]);
		node_engine_main(params, pair[1]);
	}
	(void)close(pair[1]);
}

/* A node of another user cannot tell the case that this machine refuses. */
static void open_failed(struct node *node)
{
	int status = 0;

	(void)waitpid(node->pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == SCENARIO_REFUSED)
		scenario_refuse("%s", "");
	scenario_fail("%s: did not open", node->id);
}

int node_try(struct node *node, const struct node_params *params)
{
	struct node_message reply;

	node_start(node, params);
	if (node_reply(node, &reply))
		open_failed(node);
	return reply.code;
}

void node_open(struct node *node, const struct node_params *params)
{
	const int code = node_try(node, params);

	scenario_check(!code, "%s: open: error %d", params->id, code);
}

static void node_forget(struct node *node)
{
	(void)close(node->control);
	free(node->events);
	node->events = NULL;
	node->control = -1;
}

void node_close(struct node *node)
{
	const struct node_message message = { .op = NODE_QUIT };
	const uint64_t until = engine_now_ns() + EMPTY_NS;
	int status = 0;
	pid_t ended = 0;

	node_send(node, &message);
	/* Take the last events, which could fill the socket. */
	while (!ended && engine_now_ns() < until) {
		struct node_message reply;

		(void)receive(node, &reply, SCENARIO_NS_PER_MS);
		ended = waitpid(node->pid, &status, WNOHANG);
	}
	scenario_check(ended == node->pid, "%s: does not close", node->id);
	scenario_check(WIFEXITED(status) && !WEXITSTATUS(status),
		       "%s: closed with status 0x%x", node->id,
		       (unsigned)status);
	node_forget(node);
}

void node_kill(struct node *node)
{
	(void)kill(node->pid, SIGKILL);
	(void)waitpid(node->pid, NULL, 0);
	gpu_ledger_kill(node->pid);
	node_forget(node);
}

void node_stats_get(struct node *node, struct node_stats *stats)
{
	static struct node_message message;

	message = (struct node_message){ .op = NODE_STATS };
	node_call(node, &message);
	scenario_check(message.ticket_bytes == sizeof(*stats),
		       "%s: no statistics", node->id);
	memcpy(stats, message.ticket, sizeof(*stats));
}

void node_claims_await(struct node *node, uint32_t rank_count, uint64_t claims,
		       uint64_t limit_ns)
{
	const uint64_t until = engine_now_ns() + limit_ns;
	struct node_stats stats;
	uint32_t rank;

	for (rank = 0; rank < rank_count;) {
		node_stats_get(node, &stats);
		if (stats.ranks[rank].claims >= claims) {
			rank++;
			continue;
		}
		scenario_check(
			engine_now_ns() < until,
			"%s: rank %u has %llu of %llu claims; %llu expired, %llu unknown",
			node->id, rank,
			(unsigned long long)stats.ranks[rank].claims,
			(unsigned long long)claims,
			(unsigned long long)stats.ranks[rank].holds_expired,
			(unsigned long long)stats.ranks[rank].unknown);
		scenario_sleep_ns(SCENARIO_NS_PER_MS);
	}
}

uint64_t node_prefill(struct node *node, struct node_message *message,
		      uint32_t blocks, uint64_t seed)
{
	*message = (struct node_message){
		.op = NODE_PREFILL,
		.blocks = blocks,
		.seed = seed,
		.siblings = 1,
	};
	node_call(node, message);
	scenario_check(!message->code, "%s: prefill: error %d", node->id,
		       message->code);
	return message->key;
}

uint64_t node_pull(struct node *node, const struct node_message *message)
{
	static struct node_message pull;

	memcpy(&pull, message, message_bytes(message));
	pull.op = NODE_PULL;
	node_call(node, &pull);
	scenario_check(!pull.code, "%s: pull: error %d", node->id, pull.code);
	return pull.key;
}

/* Names something that is left over; "" when all is over. */
static const char *left_over(const struct node_stats *stats)
{
	uint32_t rank;

	if (stats->blocks_free != stats->blocks_all)
		return "blocks are not back";
	if (stats->requests_open)
		return "requests are open";
	if (stats->scheduler.holds_live)
		return "the scheduler half has holds";
	for (rank = 0; rank < ENGINE_RANKS_MAX; rank++) {
		const union kvpull_worker_counts *worker = &stats->ranks[rank];

		if (worker->holds_live || worker->staged_live)
			return "holds are live or staged";
		if (worker->pulls_live || worker->releases_queued)
			return "pulls are live or releases queued";
	}
	return "";
}

void node_check_empty(struct node *node)
{
	const uint64_t until = engine_now_ns() + EMPTY_NS;
	struct node_stats stats;
	const char *left;

	node_stats_get(node, &stats);
	left = left_over(&stats);
	while (*left && engine_now_ns() < until) {
		scenario_sleep_ns(5 * SCENARIO_NS_PER_MS);
		node_stats_get(node, &stats);
		left = left_over(&stats);
	}
	scenario_check(!*left, "%s: %s (%u of %u blocks, %u requests)",
		       node->id, left, stats.blocks_free, stats.blocks_all,
		       stats.requests_open);
	scenario_check(!stats.double_reports, "%s: %llu double reports",
		       node->id, (unsigned long long)stats.double_reports);
	scenario_check(!stats.lost_requests, "%s: %llu unknown reports",
		       node->id, (unsigned long long)stats.lost_requests);
}

void node_pair_close(struct node *p, struct node *d)
{
	node_check_empty(p);
	node_check_empty(d);
	node_close(d);
	node_close(p);
}

void node_pulls(struct node *p, struct node *d, uint32_t blocks, uint32_t count)
{
	static struct node_message message;
	struct node_message event;
	uint64_t bytes = 0;
	uint64_t held;
	uint32_t round;

	for (round = 0; round < count; round++) {
		held = node_prefill(p, &message, blocks, round * 1000003u + 1);
		node_await(d, node_pull(d, &message), &event, PULL_NS);
		scenario_check(event.kind == KVPULL_POLL_LOADED && !event.wrong,
			       "a pull: error %d, %llu wrong bytes",
			       event.reason, (unsigned long long)event.wrong);
		bytes += event.bytes;
		node_await(p, held, &event, PULL_NS);
		scenario_check(event.reason == KVPULL_END_RELEASED,
			       "a hold ended by %d", event.reason);
	}
	node_check_empty(p);
	node_check_empty(d);
	scenario_say("%u pulls, %llu KiB equal", count,
		     (unsigned long long)(bytes / 1024));
}

uint32_t node_sockets(const char *folder)
{
	DIR *stream = opendir(folder);
	struct dirent *entry;
	uint32_t count = 0;

	if (!stream)
		return 0;
	while ((entry = readdir(stream)))
		count += strstr(entry->d_name, "kvpull-") != NULL;
	(void)closedir(stream);
	return count;
}
