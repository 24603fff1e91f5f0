/* SPDX-License-Identifier: Apache-2.0 */
/* F5: the driver, and what P's and D's sides share; see f5.h. */
#include "tests/scenario/f5.h"
#include "tests/lib/counts.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_NS (20 * SCENARIO_NS_PER_S) /* until all is over */
#define P_BLOCKS 1024u
#define D_BLOCKS 2048u

uint32_t f5_chance(struct f5_side *side, uint32_t percent)
{
	return random_next(&side->random) % 100 < percent;
}

uint64_t f5_block_seed(uint64_t seed, uint32_t index)
{
	return seed + index * 4096u;
}

int f5_finish(struct f5_side *side, struct kvpull_finish *finish, uint64_t key,
	      uint32_t reason)
{
	const struct kvpull_scheduler_ops *ops = side->engine.ops->scheduler;

	finish->key = key;
	finish->reason = reason;
	return ops->request_finished(side->engine.scheduler, finish);
}

uint32_t f5_tables_are_empty(struct f5_side *side)
{
	struct engine *engine = &side->engine;
	const union kvpull_scheduler_counts counts =
		scheduler_counts(engine->ops->scheduler, engine->scheduler);
	uint32_t rank;

	if (counts.holds_live || counts.families_live || counts.tickets_live ||
	    engine->free_count != engine->shape.block_count)
		return 0;
	for (rank = 0; rank < engine->rank_count; rank++) {
		const union kvpull_worker_counts worker = worker_counts(
			engine->ops->worker, engine->workers[rank]);

		if (worker.holds_live || worker.staged_live ||
		    worker.pulls_live || worker.releases_queued)
			return 0;
	}
	return 1;
}

void f5_open(struct f5_side *side, const struct scenario *scenario,
	     const char *id, uint32_t block_count)
{
	char config[512];
	const struct engine_params params = {
		.ops = engine_library(),
		.config_json = config,
		.engine_id = id,
		.shape = scenario_shape(F5_BLOCK_BYTES, block_count, F5_LAYERS),
		.tp_size = side->setup->tp_size,
	};

	(void)snprintf(config, sizeof(config),
		       "{\"socket_dir\":\"%s\",\"lease_ms\":300,"
		       "\"hold_max_ms\":60000,\"deadline_ms\":20000,"
		       "\"max_holds\":4096,\"copy_threads\":0%s}",
		       scenario->folder, side->setup->config);
	scenario_check(params.ops && !engine_open(&side->engine, &params),
		       "%s: open", id);
}

static void side_main(const struct scenario *scenario, struct f5_side *side,
		      uint32_t is_producer)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	side->counts = is_producer ? &side->arena->p : &side->arena->d;
	side->random = (engine_now_ns() + is_producer) | 1;
	f5_open(side, scenario, is_producer ? "producer" : "consumer",
		is_producer ? P_BLOCKS : D_BLOCKS);
	/* P's first leases do not count how long D takes to open. */
	(void)atomic_fetch_add_explicit(&side->arena->opened, 1,
					memory_order_relaxed);
	while (atomic_load_explicit(&side->arena->opened,
				    memory_order_relaxed) < 2)
		scenario_sleep_ns(SCENARIO_NS_PER_MS);
	if (is_producer)
		f5_producer_run(side);
	else
		f5_consumer_run(side);
	scenario_check(!side->engine.double_reports, "%llu double reports",
		       (unsigned long long)side->engine.double_reports);
	engine_close(&side->engine);
	_exit(0);
}

static uint64_t disconnects(struct f5_arena *arena)
{
	return atomic_load_explicit(&arena->p.disconnects,
				    memory_order_relaxed) +
	       atomic_load_explicit(&arena->d.disconnects,
				    memory_order_relaxed);
}

static uint32_t is_over(struct f5_arena *arena)
{
	/* Pairs with the release in ticket_pop(): D was not idle before it. */
	const uint64_t popped =
		atomic_load_explicit(&arena->popped, memory_order_acquire);

	return atomic_load_explicit(&arena->pushed, memory_order_relaxed) ==
		       popped &&
	       atomic_load_explicit(&arena->p.idle, memory_order_relaxed) &&
	       atomic_load_explicit(&arena->d.idle, memory_order_relaxed);
}

static void look(const pid_t *pids)
{
	scenario_sleep_ns(SCENARIO_NS_PER_MS);
	scenario_check(waitpid(pids[0], NULL, WNOHANG) == 0 &&
			       waitpid(pids[1], NULL, WNOHANG) == 0,
		       "an engine ended");
}

static void sides_run(struct f5_arena *arena, const struct f5_setup *setup,
		      const pid_t *pids)
{
	int statuses[2] = { -1, -1 };
	uint64_t until;

	while (disconnects(arena) < setup->disconnects)
		look(pids);
	atomic_store_explicit(&arena->ending, 1, memory_order_relaxed);
	until = engine_now_ns() + END_NS;
	while (!is_over(arena)) {
		scenario_check(
			engine_now_ns() < until,
			"not all is reported: %u requests open at P, %u at D",
			arena->p.open, arena->d.open);
		look(pids);
	}
	atomic_store_explicit(&arena->stop, 1, memory_order_relaxed);
	(void)waitpid(pids[1], &statuses[1], 0);
	(void)waitpid(pids[0], &statuses[0], 0);
	scenario_check(!statuses[0] && !statuses[1],
		       "engines ended with status 0x%x, 0x%x",
		       (unsigned)statuses[0], (unsigned)statuses[1]);
}

static void counts_say(struct f5_arena *arena)
{
	const struct f5_counts *p = &arena->p;
	const struct f5_counts *d = &arena->d;

	scenario_say("%llu disconnects",
		     (unsigned long long)disconnects(arena));
	scenario_say(
		"; P: %llu requests, left %llu before, %llu with, %llu after the finish; holds %llu released, %llu expired, %llu aborted",
		(unsigned long long)p->requests, (unsigned long long)p->before,
		(unsigned long long)p->around, (unsigned long long)p->after,
		(unsigned long long)p->released, (unsigned long long)p->expired,
		(unsigned long long)p->aborted);
	scenario_say(
		"; D: %llu requests, %llu rejected, left %llu before, %llu in, %llu after the pull; %llu loaded, %llu failed",
		(unsigned long long)d->requests,
		(unsigned long long)d->rejected, (unsigned long long)d->before,
		(unsigned long long)d->around, (unsigned long long)d->after,
		(unsigned long long)d->loaded, (unsigned long long)d->failed);
	scenario_check(p->before && p->around && p->after && d->before &&
			       d->around && d->after && d->loaded,
		       "a kind of interleaving is missing");
}

static void f5_run(const struct scenario *scenario, struct f5_setup *setup)
{
	struct f5_side side = { .setup = setup };
	pid_t pids[2];
	uint32_t index;

	setup->disconnects = scenario->full ? 100000 : 4000;
	side.arena = mmap(NULL, sizeof(*side.arena), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	scenario_check(side.arena != MAP_FAILED, "out of memory");
	for (index = 0; index < 2; index++) {
		pids[index] = fork();
		if (!pids[index])
			side_main(scenario, &side, index == 0);
	}
	sides_run(side.arena, setup, pids);
	counts_say(side.arena);
	(void)munmap(side.arena, sizeof(*side.arena));
}

static void f5_plain(const struct scenario *scenario)
{
	struct f5_setup setup = { .config = "", .tp_size = 1 };

	f5_run(scenario, &setup);
}

static void f5_ranks(const struct scenario *scenario)
{
	struct f5_setup setup = { .config = "", .tp_size = 2 };

	f5_run(scenario, &setup);
}

static void f5_revoking(const struct scenario *scenario)
{
	struct f5_setup setup = { .config = ",\"abort_revokes\":true",
				  .tp_size = 2,
				  .abort_revokes = 1 };

	f5_run(scenario, &setup);
}

const struct scenario_case scenario_f5[] = {
	{ "F5a", "clients that disconnect cost no report, and none is double",
	  f5_plain, 40, 600 },
	{ "F5b", "the same with two ranks on both sides", f5_ranks, 40, 600 },
	{ "F5c", "the same where an abort after the finish revokes",
	  f5_revoking, 40, 600 },
	{ 0 },
};
