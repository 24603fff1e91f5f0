/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run: three engines, calls in any order, then the end: hosts behave, and
 * all that was held or pulled is reported within the leases.
 */
#include "tests/fuzz/api.h"
#include "tests/lib/counts.h"

#include <string.h>

#define SLACK_NS (20 * API_NS_PER_MS)
#define TURN_NS API_NS_PER_MS
#define THREADS_NS (8000 * API_NS_PER_MS)
#define GONE_NS (1500 * API_NS_PER_MS) /* a peer is asked for that long */

typedef void (*api_call_fn)(struct api_engine *engine);

static void restart_any(struct api_engine *engine)
{
	if (api_chance(250))
		api_scheduler_restart(engine);
	else
		api_worker_restart(engine,
				   (uint32_t)api_below(engine->tp_size));
}

static void sleep_any(struct api_engine *engine)
{
	const uint64_t lease_ns = api_world->shape.lease_ns;

	(void)engine;
	api_sleep_ns(api_chance(900) ? api_below(lease_ns / 16) :
		     api_chance(800) ? api_below(lease_ns) :
				       api_below(3 * lease_ns));
}

static void check_any(struct api_engine *engine)
{
	(void)engine;
	if (!api_world->shape.is_threaded)
		api_memory_check();
}

/* clang-format off */
static const struct {
	const char *name;
	uint32_t weight;
	api_call_fn call;
} calls[] = {
	{ "request_new", 120, api_request_new },
	{ "matched_tokens", 130, api_matched },
	{ "allocated", 90, api_allocated },
	{ "request_finished", 130, api_finished },
	{ "request_rejected", 10, api_rejected },
	{ "ticket_get", 6, api_ticket_get },
	{ "payload_get", 20, api_payload_get },
	{ "ticket_peek", 6, api_ticket_peek },
	{ "step", 260, api_step },
	{ "step_honest", 60, api_step_honest },
	{ "step late", 20, api_step_late },
	{ "result late", 20, api_result_late },
	{ "poll", 60, api_poll },
	{ "hold_ready", 20, api_hold_ready },
	{ "a worker's call", 60, api_worker_call },
	{ "a scheduler's call", 20, api_scheduler_call },
	{ "hostile", 16, api_hostile },
	{ "restart", 3, restart_any },
	{ "sleep", 20, sleep_any },
	{ "check", 4, check_any },
};
/* clang-format on */

static void call_one(void)
{
	struct api_engine *engine = &api_world->engines[api_below(API_ENGINES)];
	uint64_t total = 0;
	uint64_t drawn;
	size_t at;

	for (at = 0; at < sizeof(calls) / sizeof(calls[0]); at++)
		total += calls[at].weight;
	drawn = api_below(total);
	for (at = 0; drawn >= calls[at].weight; at++)
		drawn -= calls[at].weight;
	api_call(calls[at].name);
	calls[at].call(engine);
}

/* Ranks that are not there yet, or were told to end. */
static void ranks_mend(struct api_engine *engine)
{
	uint32_t rank;

	for (rank = 0; rank < engine->tp_size; rank++) {
		struct api_rank *to = &engine->ranks[rank];

		if (to->ended)
			api_worker_restart(engine, rank);
		if (!to->registered)
			api_worker_register(engine, rank);
		if (!to->known)
			api_rank_introduce(engine, rank);
	}
}

static uint32_t turn(int is_told)
{
	uint32_t owed = 0;
	uint32_t index;

	for (index = 0; index < API_ENGINES; index++) {
		struct api_engine *engine = &api_world->engines[index];

		ranks_mend(engine);
		api_step_honest(engine);
		owed += api_owed(engine, is_told);
		owed += api_world->ops->scheduler->has_pending(
				engine->scheduler) != 0;
	}
	api_sleep_ns(TURN_NS);
	return owed;
}

static void left_tell(const struct api_engine *engine, uint32_t rank,
		      const union kvpull_worker_counts *counts)
{
	struct kvpull_peer_info peers[16];
	int count;

	api_trace("%s rank %u: holds %llu staged %llu pulls %llu releases %llu",
		  engine->name, rank, (unsigned long long)counts->holds_live,
		  (unsigned long long)counts->staged_live,
		  (unsigned long long)counts->pulls_live,
		  (unsigned long long)counts->releases_queued);
	count = api_world->ops->worker->peers(engine->ranks[rank].worker, peers,
					      16, sizeof(*peers));
	for (; count > 0; count--)
		api_trace("peer %llx route %s %s %d: %s",
			  (unsigned long long)peers[count - 1].incarnation,
			  peers[count - 1].route, peers[count - 1].address,
			  peers[count - 1].state_error, peers[count - 1].why);
}

/* Names something that must end and has not yet; NULL: all has. */
static const char *left_of(const struct api_engine *engine, int is_told)
{
	const union kvpull_scheduler_counts live =
		scheduler_counts(api_world->ops->scheduler, engine->scheduler);
	union kvpull_worker_counts counts;
	uint32_t rank;

	if (live.holds_live || live.families_live || live.tickets_live)
		return "holds, families or tickets of a scheduler half";
	for (rank = 0; rank < engine->tp_size; rank++) {
		counts = worker_counts(api_world->ops->worker,
				       engine->ranks[rank].worker);
		api_expect(counts.rings_broken == 0);
		if (is_told)
			left_tell(engine, rank, &counts);
		if (counts.holds_live || counts.staged_live)
			return "a worker's holds";
		if (counts.pulls_live || counts.releases_queued)
			return "a worker's pulls or releases";
	}
	return NULL;
}

static const char *left(int is_told)
{
	const char *what = NULL;
	uint32_t index;

	for (index = 0; !what && index < API_ENGINES; index++)
		what = left_of(&api_world->engines[index], is_told);
	return what;
}

/* Until nothing is owed; time is what the promise says. */
static void turns(uint64_t limit_ns, const char *what)
{
	uint64_t until_ns = api_now_ns() + limit_ns;

	/* The machine's clock goes on while others have its processors. */
	if (api_world->shape.is_threaded)
		until_ns += THREADS_NS;
	while (turn(0)) {
		if (api_now_ns() < until_ns)
			continue;
		(void)turn(1);
		api_fail("%s after %llu ms", what,
			 (unsigned long long)(limit_ns / API_NS_PER_MS));
	}
}

static void end(void)
{
	const uint64_t lease_ns = api_world->shape.lease_ns;
	uint64_t until_ns;
	uint32_t index;

	api_call("the end");
	for (index = 0; index < API_ENGINES; index++)
		api_requests_end(&api_world->engines[index]);
	turns(3 * lease_ns + SLACK_NS, "something is still owed");
	/*
	 * Families and spent tickets are remembered for a lease, a release to
	 * somebody who is gone for hold_max, or until he is given up.
	 */
	until_ns = api_now_ns() + 2 * lease_ns + SLACK_NS + GONE_NS +
		   api_world->shape.hold_max_ns;
	while (left(0) && api_now_ns() < until_ns) {
		(void)turn(0);
		api_sleep_ns(lease_ns / 4);
	}
	if (left(1))
		api_fail("left: %s", left(0));
	api_memory_check();
}

void api_run(uint64_t call_count, int is_threaded)
{
	uint64_t at;

	api_world_open(is_threaded);
	for (at = 0; at < call_count && !api_draw_over(); at++)
		call_one();
	end();
	api_call("close");
	api_world_close();
}
