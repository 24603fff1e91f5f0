/* SPDX-License-Identifier: Apache-2.0 */
/* The one source of chance of a seed, and the stamps that blocks carry. */
#include "tests/sim/sim.h"

static uint64_t mix(uint64_t value)
{
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

/* splitmix64 */
uint64_t sim_random(struct sim_world *world)
{
	world->state += UINT64_C(0x9e3779b97f4a7c15);
	return mix(world->state);
}

uint64_t sim_below(struct sim_world *world, uint64_t bound)
{
	return bound ? sim_random(world) % bound : 0;
}

int sim_chance(struct sim_world *world, uint32_t per_mille)
{
	return sim_below(world, 1000) < per_mille;
}

int sim_fault(struct sim_world *world, enum sim_fault fault, uint32_t per_mille)
{
	return sim_chance(world,
			  world->shape.calm >> fault & 1 ? 0 : per_mille);
}

uint64_t sim_stamp(uint64_t content, uint32_t block, uint32_t row)
{
	return mix(content * 1021 + block * 131 + row + 1);
}
