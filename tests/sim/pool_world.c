/* SPDX-License-Identifier: Apache-2.0 */
/* A seed's pool: what it is like, whose turn it is, and what befalls them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/pool.h"

uint32_t sim_pool_pick(const struct pool_world *world, uint64_t bound)
{
	return (uint32_t)sim_below(world->sim, bound);
}

int sim_pool_chance(const struct pool_world *world, uint32_t per_mille)
{
	return sim_chance(world->sim, per_mille);
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
	while (b) {
		const uint32_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

struct pool_order sim_pool_order(struct pool_world *world, uint32_t count)
{
	struct pool_order order = { .count = count, .stride = 1 };

	if (sim_pool_chance(world, 300))
		return order;
	order.first = sim_pool_pick(world, count);
	do
		order.stride = 1 + sim_pool_pick(world, count);
	while (common_divisor(order.stride, count) != 1);
	return order;
}

uint32_t sim_pool_order_next(struct pool_order *order)
{
	return (uint32_t)((order->first +
			   (uint64_t)order->next++ * order->stride) %
			  order->count);
}

const struct kvpull_pool_key *sim_pool_key(const struct pool_world *world,
					   uint32_t weights, uint32_t key)
{
	return &world->digests[weights * world->keys + key];
}

static void names_make(struct pool_world *world)
{
	struct kvpull_model model = {
		.struct_size = sizeof(model),
		.model = "m",
		.dtype = "float16",
		.layout = "LBHNC",
	};
	const struct kvpull_reader_naming naming = { .model = &model,
						     .hash = "sha256" };
	const uint32_t namespaces = world->big ? 1 : POOL_WEIGHTS;
	uint32_t weights;
	uint32_t key;
	int code = 0;

	world->digests = calloc((size_t)POOL_WEIGHTS * world->keys,
				sizeof(*world->digests));
	if (!world->digests)
		abort();
	for (weights = 0; weights < namespaces; weights++) {
		const char text[2] = { (char)('0' + weights), 0 };

		model.weights = text;
		code |= kvpull_pool_namespace_make(&naming,
						   &world->namespaces[weights]);
		for (key = 0; key < world->keys; key++)
			code |= kvpull_pool_key_make(
				&world->namespaces[weights], &key, sizeof(key),
				&world->digests[weights * world->keys + key]);
	}
	sim_pool_code_is(world, "key_make", code, 0);
}

/* Tables that fill, and others with room; long chunks, and short ones. */
static void shape(struct pool_world *world)
{
	world->proc_count = 2 + sim_pool_pick(world, POOL_PROCS - 1);
	world->chunks = 3 + sim_pool_pick(world, 10);
	world->slots = sim_pool_pick(world, 5);
	world->keys = 2 + sim_pool_pick(world, 3 * world->chunks);
	world->words = 1 + sim_pool_pick(world, 12);
	world->entries = KVPULL_POOL_WINDOW;
	if (sim_pool_chance(world, 700))
		world->entries += sim_pool_pick(
			world, 3 * (world->chunks + world->slots));
	world->bursts = 1 + sim_pool_pick(world, 4);
	world->haste = 1 + sim_pool_pick(world, 8);
	world->evictions =
		sim_pool_pick(world, sim_pool_chance(world, 300) ? 20 : 200);
	world->fills = 20 + sim_pool_pick(world, 400);
	world->asks = 30 + sim_pool_pick(world, 300);
	world->deaths =
		sim_pool_pick(world, sim_pool_chance(world, 200) ? 40 : 5);
	world->losses = sim_pool_pick(world, 20);
	world->renames = sim_pool_pick(world, 12);
	world->resets = sim_pool_pick(world, 12);
	world->sleeps = sim_pool_pick(world, 30);
	world->careless = sim_pool_pick(world, 150);
}

/* Few faults, and a directory that is as full as it may be. */
static void shape_big(struct pool_world *world)
{
	world->proc_count = 2;
	world->chunks = world->big;
	world->keys = world->big;
	world->words = 1;
	world->entries = 2 * world->big;
	world->bursts = 4;
	world->haste = 4;
	world->evictions = 1000;
	world->fills = 1000;
	world->asks = 900;
	world->losses = 1;
	world->sleeps = 30;
}

/* Mostly what the others have, too. */
static uint32_t weights_pick(const struct pool_world *world)
{
	return world->big || sim_pool_chance(world, 700) ?
		       0 :
		       sim_pool_pick(world, POOL_WEIGHTS);
}

static void proc_start(struct pool_proc *proc, struct pool_home *predecessor)
{
	struct pool_world *world = proc->world;

	proc->is_alive = 1;
	proc->weights = weights_pick(world);
	proc->transport.ops = &sim_pool_ops;
	proc->transport.peer_count_max = POOL_CONNS;
	proc->home = NULL;
	/* Some processes only read. */
	if (world->home_count < POOL_HOMES &&
	    (predecessor || proc->index == 0 || sim_pool_chance(world, 700)))
		proc->home = sim_pool_home_open(proc, predecessor);
	sim_pool_reader_open(proc);
}

/* Killed, or closed in order; it is started again soon. */
static void proc_end(struct pool_proc *proc, enum pool_home_state state)
{
	struct pool_world *world = proc->world;

	sim_trace(world->sim, "process %u ends, state %u", proc->index, state,
		  0);
	if (state == POOL_KILLED)
		world->counts.kills++;
	else
		world->counts.closed++;
	if (proc->home)
		sim_pool_home_end(proc->home, state);
	sim_pool_reader_close(proc);
	proc->is_alive = 0;
	proc->asleep = world->sim->turn;
	if (sim_pool_chance(world, 500))
		proc->asleep += sim_pool_pick(world, 20);
}

static void proc_wake(struct pool_proc *proc)
{
	struct pool_home *last = proc->home;

	if (!proc->is_alive)
		proc_start(proc,
			   last && !last->is_hostile &&
					   sim_pool_chance(proc->world, 500) ?
				   last :
				   NULL);
}

static void weights_change(struct pool_proc *proc)
{
	struct pool_world *world = proc->world;

	proc->weights = weights_pick(world);
	if (proc->home && !proc->home->is_hostile)
		sim_pool_home_bump_all(proc->home, proc->weights);
	sim_pool_reader_rename(proc);
}

static void misfortune(struct pool_proc *proc)
{
	struct pool_world *world = proc->world;
	struct pool_conn *conn = &proc->conns[sim_pool_pick(world, POOL_CONNS)];

	if (world->home_count < POOL_HOMES &&
	    sim_pool_chance(world, world->deaths)) {
		proc_end(proc, sim_pool_chance(world, 700) ? POOL_KILLED :
							     POOL_CLOSED);
		return;
	}
	if (sim_pool_chance(world, world->sleeps))
		proc->asleep = world->sim->turn + sim_pool_pick(world, 40);
	if (sim_pool_chance(world, world->losses)) {
		world->counts.losses += conn->state == POOL_CONN_UP;
		sim_pool_conn_lose(conn, POOL_CONN_LOST);
	} else if (sim_pool_chance(world, world->losses)) {
		conn->is_hung = 1;
	}
	if (sim_pool_chance(world, world->renames))
		weights_change(proc);
	if (sim_pool_chance(world, world->resets) && proc->home &&
	    !proc->home->is_hostile)
		sim_pool_home_bump_all(proc->home, proc->weights);
}

/* The route and others' memory do not sleep with a process. */
static void proc_turn(struct pool_proc *proc)
{
	struct pool_world *world = proc->world;

	if (proc->is_alive)
		sim_pool_route_run(proc);
	if (proc->asleep > world->sim->turn)
		return;
	proc_wake(proc);
	if (proc->home)
		sim_pool_home_turn(proc->home);
	if (sim_pool_chance(world, 500))
		sim_pool_route_run(proc);
	sim_pool_reader_turn(proc);
	if (!world->quiet)
		misfortune(proc);
}

static void world_turn(struct pool_world *world)
{
	const uint32_t first = sim_pool_pick(world, world->proc_count);
	uint32_t at;

	world->sim->turn++;
	world->sim->now_ns += POOL_STEP_NS;
	for (at = 0; at < world->proc_count; at++)
		proc_turn(&world->procs[(first + at) % world->proc_count]);
	for (at = 0; at < world->home_count; at++)
		if (world->homes[at].state != POOL_LIVE)
			sim_pool_home_turn(&world->homes[at]);
}

/* Every task comes to its end; one that hangs does once it is given up. */
static void world_end(struct pool_world *world)
{
	uint32_t left;
	uint32_t at;
	uint32_t conn;

	world->quiet = 1;
	for (left = 200; left; left--)
		world_turn(world);
	for (at = 0; at < world->proc_count; at++)
		for (conn = 0; conn < POOL_CONNS; conn++)
			sim_pool_conn_lose(&world->procs[at].conns[conn],
					   POOL_CONN_LOST);
	for (left = 2 * POOL_QUIET; left; left--)
		world_turn(world);
	for (at = 0; at < world->proc_count; at++) {
		sim_pool_reader_is_empty(&world->procs[at]);
		sim_pool_reader_close(&world->procs[at]);
	}
	/* A home that took over another's memory goes first. */
	for (at = world->home_count; at--;)
		sim_pool_home_free(&world->homes[at]);
	free(world->digests);
}

static void counts_add(struct pool_counts *total,
		       const struct pool_counts *counts)
{
#define ADD(name) total->name += counts->name;
	POOL_COUNTS(ADD)
#undef ADD
}

void sim_pool_run(struct sim_world *sim, uint32_t chunks,
		  struct pool_counts *total)
{
	struct pool_world *world = calloc(1, sizeof(*world));
	uint32_t at;

	if (!world)
		abort();
	world->sim = sim;
	world->big = chunks;
	sim->state = sim->seed * UINT64_C(0x9e3779b97f4a7c15);
	if (chunks)
		shape_big(world);
	else
		shape(world);
	names_make(world);
	for (at = 0; at < world->proc_count; at++) {
		world->procs[at].world = world;
		world->procs[at].index = at;
		proc_start(&world->procs[at], NULL);
		if (world->big && world->procs[at].home)
			sim_pool_home_fill(world->procs[at].home);
	}
	while (sim->turn < sim->steps)
		world_turn(world);
	world_end(world);
	counts_add(total, &world->counts);
	free(world);
}

int sim_pool_saw_all(const struct pool_counts *total)
{
	int all = 1;

#define SAY(name)                                                              \
	printf("%s %llu, ", #name, (unsigned long long)total->name);           \
	all &= total->name != 0;
	POOL_COUNTS(SAY)
#undef SAY
	printf("of each at least one: %s\n", all ? "yes" : "no");
	return all;
}
