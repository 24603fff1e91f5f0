/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world of a seed. Half of the worlds are plain: two ranks at most, tables
 * with room, every fault. The others are wide, each in some ways drawn by a
 * generator of their own, so that a plain seed keeps its story whatever is
 * added here. They know a random half of the faults, since a fault that comes
 * often hides what another does alone.
 */
#include "tests/sim/sim.h"

#define SEED_FACTOR UINT64_C(0xd1342543de82ef95)
/*
 * Seeds that failed once (main.c) have no thread, no pace, no changes, no gives or
 * places, no ranks, no stages and no devices.
 */
#define TIME_SALT 145
#define CHANGE_SALT 136
#define STATE_SALT 35
#define GIVE_SALT 8314
#define RANK_SALT 1660660
#define STAGE_SALT 350035
#define DEVICE_SALT 6

static uint64_t draw(struct sim_world *world, uint64_t bound)
{
	uint64_t value = world->shape_state += UINT64_C(0x9e3779b97f4a7c15);

	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return (value ^ value >> 31) % bound;
}

static void plain_fill(struct sim_shape *shape)
{
	*shape = (struct sim_shape){
		.heads = 2,
		.layers = 2,
		.ring_records = 16,
		.holds = 16,
		.families = 16, /* a live one finds room */
		.tickets = 16,
		.requests = 64,
		.pulls = 8,
		.peers = 8,
		.callers = 8,
		.conns = 64,
		.procs = 48,
		.blocks = SIM_BLOCKS,
		.times = 1,
	};
}

/* A quarter of the instances produce; in a crowd all but one do. */
int sim_produces(const struct sim_world *world, uint32_t index)
{
	return world->shape.crowd ? index != 1 : index % 4 == 0;
}

/* Room for all holds at once, and connections that make room for others. */
static void big_fill(struct sim_world *world)
{
	struct sim_shape *shape = &world->shape;
	const uint32_t producers = (world->big_instances + 3) / 4;

	shape->times = world->big / producers / SIM_REQUESTS + 1;
	shape->holds = shape->times * SIM_REQUESTS;
	shape->families = shape->holds;
	shape->requests = 4 * shape->holds;
	shape->peers = 8;
	shape->callers = SIM_CALLERS;
	shape->procs = 4 * world->big_instances + 16;
	shape->conns = shape->procs * shape->peers;
}

/* Tables that are full now and then, some of them. */
static void tables_draw(struct sim_world *world)
{
	struct sim_shape *shape = &world->shape;

	if (draw(world, 2))
		shape->holds = 2 + (uint32_t)draw(world, 6);
	if (draw(world, 2))
		shape->tickets = 2 + (uint32_t)draw(world, 6);
	if (draw(world, 2))
		shape->pulls = 1 + (uint32_t)draw(world, 3);
	if (draw(world, 2))
		shape->peers = 8 + (uint32_t)draw(world, 8);
	if (draw(world, 2))
		shape->ring_records = 4;
}

/* Drawn apart: what is drawn below stays as it was. */
static void more_draw(struct sim_world *world)
{
	const uint64_t state = world->shape_state;
	struct sim_shape *shape = &world->shape;

	world->shape_state = ~state;
	if (draw(world, 3) == 0)
		shape->blocks = 6 + (uint32_t)draw(world, 18);
	if (draw(world, 3) == 0)
		shape->times = 2;
	if (draw(world, 3) == 0)
		shape->families = 1 + (uint32_t)draw(world, 4);
	if (draw(world, 3) == 0)
		shape->requests = 6 + (uint32_t)draw(world, 20);
	shape->tight = shape->families < 16 || shape->requests < 32;
	shape->crowd = draw(world, 4) == 0;
	world->shape_state = state;
	sim_trace(world, "blocks %lu, families %lu, requests %lu",
		  shape->blocks, shape->families, shape->requests);
}

/* Likewise: what is drawn elsewhere stays as it was. */
static void time_draw(struct sim_world *world)
{
	const uint64_t state = world->shape_state;
	struct sim_shape *shape = &world->shape;

	world->shape_state = state ^ TIME_SALT;
	if (!shape->crowd) {
		shape->thread = draw(world, 3) == 0;
		shape->pace =
			draw(world, 3) ? 0 : 4 + (uint32_t)draw(world, 12);
	}
	world->shape_state = state;
	sim_trace(world, "thread %lu, pace %lu", shape->thread, shape->pace, 0);
}

/* Draws tickets that are given back, in the same way. */
static void give_draw(struct sim_world *world)
{
	const uint64_t state = world->shape_state;
	struct sim_shape *shape = &world->shape;

	world->shape_state = world->seed * SEED_FACTOR ^ GIVE_SALT;
	if (!shape->crowd) {
		shape->gives = (uint32_t)draw(world, 2);
		if (draw(world, 3) == 0)
			shape->places = 2 + (uint32_t)draw(world, 7);
	}
	world->shape_state = state;
	sim_trace(world, "gives %lu, places %lu", shape->gives, shape->places,
		  0);
}

/* Draws changes of the weights, in the same way. */
static void change_draw(struct sim_world *world)
{
	const uint64_t state = world->shape_state;

	world->shape_state = world->seed * SEED_FACTOR ^ CHANGE_SALT;
	world->shape.changes = draw(world, 3) == 0;
	world->shape_state = state;
	sim_trace(world, "changes %lu", world->shape.changes, 0, 0);
}

/* Draws the ranks, in the same way. */
static void rank_draw(struct sim_world *world)
{
	const uint64_t state = world->shape_state;

	world->shape_state = world->seed * SEED_FACTOR ^ RANK_SALT;
	world->shape.ranked = (uint32_t)draw(world, 2);
	world->shape_state = state;
	sim_trace(world, "ranked %lu", world->shape.ranked, 0, 0);
}

/* Likewise: with four layers there are stages of unlike lengths. */
static void stage_draw(struct sim_world *world)
{
	const uint64_t state = world->shape_state;
	struct sim_shape *shape = &world->shape;

	world->shape_state = world->seed * SEED_FACTOR ^ STAGE_SALT;
	shape->staged = !shape->crowd && draw(world, 3) == 0;
	if (shape->staged)
		shape->layers = SIM_LAYERS_MAX;
	world->shape_state = state;
	sim_trace(world, "staged %lu", shape->staged, 0, 0);
}

/* Draws the device, in the same way. */
static void device_draw(struct sim_world *world)
{
	const uint64_t state = world->shape_state;

	world->shape_state = world->seed * SEED_FACTOR ^ DEVICE_SALT;
	world->shape.device = !world->shape.network && draw(world, 2) == 0;
	world->shape_state = state;
	sim_trace(world, "devices %lu", world->shape.device, 0, 0);
}

/* Draws from numbers of its own. A state is the last block of what was computed. */
static void state_draw(struct sim_world *world)
{
	const uint64_t state = world->shape_state;

	world->shape_state = world->seed * SEED_FACTOR ^ STATE_SALT;
	world->shape.state = world->shape.window && draw(world, 3) == 0;
	if (world->shape.state)
		world->shape.window = 1;
	world->shape_state = state;
	sim_trace(world, "states %lu", world->shape.state, 0, 0);
}

void sim_shape_draw(struct sim_world *world)
{
	static const uint32_t heads[] = { 1, 2, 6, 8 };
	struct sim_shape *shape = &world->shape;

	world->shape_state = world->seed * SEED_FACTOR;
	plain_fill(shape);
	if (world->big) {
		big_fill(world);
		return;
	}
	if (draw(world, 2))
		return;
	shape->wide = 1;
	shape->heads = heads[draw(world, 4)];
	shape->replicated = draw(world, 4) == 0;
	shape->window = (uint32_t)draw(world, 4); /* 3: never slides */
	shape->network = draw(world, 3) == 0;
	shape->keyed = draw(world, 3) == 0;
	shape->partial = draw(world, 2) == 0;
	shape->late_bytes = draw(world, 2) == 0;
	shape->impatient = draw(world, 4) == 0;
	shape->calm = (uint32_t)draw(world, UINT64_C(1) << SIM_FAULTS);
	shape->peers = 16;
	shape->callers = 32;
	shape->conns = SIM_CONNS_MAX;
	shape->procs = SIM_PROCS_MAX;
	if (draw(world, 2))
		tables_draw(world);
	more_draw(world);
	time_draw(world);
	change_draw(world);
	give_draw(world);
	state_draw(world);
	rank_draw(world);
	stage_draw(world);
	device_draw(world);
	sim_trace(world, "wide: %lu heads, replicated %lu, network %lu",
		  shape->heads, shape->replicated, shape->network);
	sim_trace(world, "keyed %lu, partial %lu, impatient %lu", shape->keyed,
		  shape->partial, shape->impatient);
	sim_trace(world, "late bytes %lu, window %lu, calm %lx",
		  shape->late_bytes, shape->window, shape->calm);
	sim_trace(world, "holds %lu, tickets %lu, pulls %lu", shape->holds,
		  shape->tickets, shape->pulls);
}

static uint32_t tp_draw(struct sim_world *world)
{
	static const uint32_t sizes[] = { 1, 1, 2, 2, 3, 4, 6, 8 };
	const struct sim_shape *shape = &world->shape;
	uint32_t tp;

	/* Heads are divided among ranks, or ranks among heads. */
	do {
		tp = sizes[draw(world, 8)];
	} while (!shape->replicated && shape->heads % tp && tp % shape->heads);
	return tp;
}

/* Each producer of a crowd needs all entries that claims which wait may keep. */
uint32_t sim_shape_tp(struct sim_world *world, uint32_t index)
{
	const uint32_t tp = tp_draw(world);

	if (!world->shape.crowd || !sim_produces(world, index))
		return tp;
	if (!index)
		world->shape.peers = tp;
	return world->shape.peers;
}

void sim_shape_stages(struct sim_world *world, uint32_t index, uint32_t tp,
		      struct sim_stages *stages)
{
	const uint64_t state = world->shape_state;
	const uint32_t layers = world->shape.layers;
	uint32_t at;

	*stages = (struct sim_stages){ .count = 1 };
	world->shape_state = (world->seed * SEED_FACTOR ^ STAGE_SALT) + index;
	if (world->shape.staged)
		stages->count = 1 + (uint32_t)draw(world, SIM_STAGES_MAX);
	while (stages->count * tp > SIM_RANKS_MAX)
		stages->count--;
	/* Each stage leaves a layer at least to each one behind it. */
	for (at = 0; at + 1 < stages->count; at++) {
		const uint32_t first = at ? stages->ends[at - 1] : 0;

		stages->ends[at] =
			first + 1 +
			(uint32_t)draw(world, layers - first -
						      (stages->count - at - 1));
	}
	stages->ends[at] = layers;
	world->shape_state = state;
	sim_trace(world, "instance %lu: %lu stages of %lu ranks", index,
		  stages->count, tp);
}
