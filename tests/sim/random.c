/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one source of chance of a seed, the random numbers that the library asks
 * for, the stamps that blocks carry, and the digest of a seed's story.
 */
#include <sodium.h>

#include "tests/sim/sim.h"

static uint64_t secrets_state;

static uint64_t mix(uint64_t value)
{
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

/* splitmix64 */
static uint64_t next(uint64_t *state)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	return mix(*state);
}

uint64_t sim_random(struct sim_world *world)
{
	return next(&world->state);
}

static uint32_t secret_next(void)
{
	return (uint32_t)next(&secrets_state);
}

static void secret_fill(void *const bytes, const size_t byte_count)
{
	uint8_t *to = bytes;
	size_t at;

	for (at = 0; at < byte_count; at++)
		to[at] = (uint8_t)secret_next();
}

static const char *secrets_name(void)
{
	return "simulation";
}

void sim_secrets_begin(uint64_t seed)
{
	static struct randombytes_implementation secrets = {
		.implementation_name = secrets_name,
		.random = secret_next,
		.buf = secret_fill,
	};

	secrets_state = ~seed;
	(void)randombytes_set_implementation(&secrets);
}

void sim_story_add(struct sim_world *world, const void *bytes,
		   size_t byte_count)
{
	const uint8_t *from = bytes;
	size_t at;

	for (at = 0; at < byte_count; at++)
		world->story = mix(world->story * 257 + from[at] + 1);
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
