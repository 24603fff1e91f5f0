/* SPDX-License-Identifier: Apache-2.0 */
/* The worlds of several rails: see world.h. */
#include "tests/unit/verbs/world.h"

#include "verbs/endpoint.h"

uint32_t world_reads_by(uint32_t device)
{
	return fake_verbs_device_count(device, FAKE_VERBS_READ);
}

void world_read_is_good(void)
{
	world_read_ended(0);
	assert_int_equal(world.d.downs, 0);
	assert_memory_equal(world.p.memory, world.d.memory, WORLD_BYTES);
}

void world_read_ends_well(uint32_t steps)
{
	world_run(steps);
	world_read_is_good();
}

void world_reads_well(uint32_t steps)
{
	world_read_run(steps);
	world_read_is_good();
}

void world_rails_init(uint32_t count)
{
	world_init();
	fake_verbs_devices(count);
	world.networks = "10.66.0.0/16";
	world.rails = count;
	world.batch = 4;
}

void world_scatter(void)
{
	uint32_t i;

	for (i = 0; i < WORLD_BLOCKS; i++)
		world.local_ids[i] = world.remote_ids[i] = i * 5 % WORLD_BLOCKS;
}

static int world_rails_open_count(uint32_t count)
{
	world_rails_init(count);
	world.listen_port = 7471;
	(void)world_open();
	world_scatter();
	return 0;
}

int world_rails_open(void)
{
	return world_rails_open_count(2);
}

struct kvpull_verbs_bundle *world_bundle(void)
{
	const struct kvpull_verbs_end *end = fake_verbs_owner(1);

	return end->bundle;
}

void world_shallow_rails_up(void)
{
	(void)world_rails_open();
	world.depth = 8;
	world_consumer_again();
	world_connect_run(20);
}

int world_rails_up_count(uint32_t count)
{
	(void)world_rails_open_count(count);
	world_comes_up(20);
	return 0;
}

int world_rails_up(void **state)
{
	(void)state;
	return world_rails_up_count(2);
}
