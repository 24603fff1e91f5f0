/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices, links and addresses that were not there at open: they are used within
 * two seconds of their coming, without a restart.
 */
#include "tests/fake/verbs_shape.h"
#include "tests/lib/lines.h"
#include "tests/unit/verbs/world.h"

#define COME_MS 2000u

static void log_begin(struct world_side *side)
{
	lines_forget();
	side->log = lines_from(KVPULL_LOG_INFO);
}

static const char *address_of(const struct world_side *side)
{
	return side->route->ops->address(side->route);
}

UNIT_TEST_DOWN(port_without_a_link_at_open_is_used_when_it_has_one)
{
	world_init();
	fake_verbs_knobs.ports_down = 1;
	log_begin(&world.p);
	assert_int_equal(world_open(), 0);
	world_run(5000);
	assert_string_equal(address_of(&world.p), "");
	assert_int_not_equal(world_connect(), 0);
	assert_int_equal(world.p.addresses, 0);
	fake_verbs_knobs.ports_down = 0;
	world_run(COME_MS);
	assert_int_equal(world.p.addresses, 1);
	assert_non_null(strstr(
		lines.all,
		"verbs: rail 0 goes by fake0 port 1 gid 1, RoCE v2 IPv4 "
		"10.66.0.1, 25000 Mb/s, MTU 4096 from now on: the only port\n"));
	world_pulls();
}

UNIT_TEST_DOWN(device_that_is_plugged_after_open_is_used)
{
	world_init();
	fake_verbs_devices(0);
	assert_int_equal(world_open(), 0);
	world_run(5000);
	assert_int_not_equal(world_connect(), 0);
	fake_verbs_devices(1);
	world_run(COME_MS);
	world_pulls();
}

UNIT_TEST_DOWN(address_that_comes_after_open_is_used)
{
	world_init();
	fake_verbs_unaddress(0);
	assert_int_equal(world_open(), 0);
	world_run(5000);
	assert_int_not_equal(world_connect(), 0);
	fake_verbs_return(0, 0);
	world_run(COME_MS);
	world_pulls();
}

/* Also by peers that are connected by the other rail already. */
UNIT_TEST_DOWN(rail_without_a_link_at_open_joins_when_it_has_one)
{
	world_init();
	fake_verbs_devices(2);
	world.rails = 2;
	world.networks = "10.66.0.0/16";
	assert_int_equal(side_open(&world.p), 0);
	fake_verbs_knobs.ports_down = 2;
	assert_int_equal(side_open(&world.d), 0);
	world_serve();
	world_pulls();
	assert_int_equal(world_reads_by(1), 0);
	fake_verbs_knobs.ports_down = 0;
	world_run(COME_MS);
	memset(world.d.memory, 0, WORLD_BYTES);
	world_read_run(5);
	assert_int_equal(world.d.reads_done, 2);
	assert_true(world_read_is_right());
	assert_true(world_reads_by(1) > 0);
	assert_int_equal(world.d.downs, 0);
}

UNIT_TEST_DOWN(late_device_with_fewer_parts_sets_the_bounds)
{
	world_init();
	fake_verbs_devices(0);
	assert_int_equal(world_open(), 0);
	world_run(100);
	fake_verbs_devices(1);
	fake_verbs_knobs.parts_max = 2;
	world_run(COME_MS);
	world_pulls();
}

/* A route without a device costs its owner little: a look a second. */
UNIT_TEST_DOWN(devices_that_never_came_are_looked_for_once_a_second)
{
	uint32_t before;

	world_init();
	fake_verbs_devices(0);
	assert_int_equal(world_open(), 0);
	world_run(10);
	side_sleep(&world.d);
	before = fake_verbs_listings();
	world_run(5000);
	/* Two sides. */
	assert_in_range(fake_verbs_listings() - before, 8, 12);
}

/* Pinned to this route, an engine without it would serve nobody. */
UNIT_TEST(route_that_is_required_is_refused_without_a_device)
{
	struct kvpull_verbs_params params;
	struct kvpull_transport *route = NULL;

	world_init();
	fake_verbs_knobs.ports_down = 1;
	kvpull_arena_init(&world.p.arena, &world.p.log);
	params = world_params(&world.p);
	params.required = 1;
	assert_int_equal(kvpull_verbs_open(&params, &world.p.arena, &route),
			 KVPULL_EUNSUPPORTED);
	kvpull_arena_fini(&world.p.arena);
	assert_int_equal(fake_verbs_live(), 0);
}

/* ---- addresses of another kind ---- */

static struct fake_verbs_shape machine[1];

/* P on a machine with these addresses of its only port. */
static void machine_opens(const char *first, const char *second)
{
	world_init();
	memset(machine, 0, sizeof(machine));
	machine[0].name = "mlx5_0";
	machine[0].places[0].ip = first;
	machine[0].places[1].ip = second;
	fake_verbs_shapes(machine, 1);
	world.listen_port = 7471;
	side_begin(&world.p);
	world_run(100);
}

static void machine_has(const char *first, const char *second)
{
	machine[0].places[0].ip = first;
	machine[0].places[1].ip = second;
	world_run(COME_MS);
}

UNIT_TEST_DOWN(route_moves_from_ipv4_to_ipv6)
{
	machine_opens("fe80::1", "10.0.0.1");
	assert_string_equal(address_of(&world.p), "10.0.0.1:7471");
	machine_has("fe80::1", "fd00::1");
	assert_string_equal(address_of(&world.p), "[fd00::1]:7471");
}

/* Peers on other links could not follow there. */
UNIT_TEST_DOWN(route_does_not_move_to_a_link_local_address)
{
	machine_opens("fe80::1", "10.0.0.1");
	machine_has("fe80::1", NULL);
	world_run(10000);
	assert_int_equal(world.p.addresses, 0);
	machine_has("fe80::1", "10.0.0.1");
	assert_string_equal(address_of(&world.p), "10.0.0.1:7471");
}

UNIT_TEST_DOWN(route_leaves_a_link_local_address_for_a_routable_one)
{
	machine_opens("fe80::1", NULL);
	assert_string_equal(address_of(&world.p), "[fe80::1]:7471");
	machine_has("fe80::1", "10.0.0.1");
	assert_string_equal(address_of(&world.p), "10.0.0.1:7471");
}

UNIT_TEST_DOWN(named_link_local_address_is_kept)
{
	world_init();
	memset(machine, 0, sizeof(machine));
	machine[0].name = "mlx5_0";
	machine[0].places[0].ip = "fe80::1";
	fake_verbs_shapes(machine, 1);
	world.listen_port = 7471;
	world.address = "fe80::1";
	side_begin(&world.p);
	machine_has("fe80::1", "10.0.0.1");
	assert_string_equal(address_of(&world.p), "[fe80::1]:7471");
	world.address = NULL;
}

/* A wrong name at open is right when the device comes that has it. */
UNIT_TEST_DOWN(named_device_that_vanishes_is_used_again)
{
	machine_opens("10.0.0.1", NULL);
	machine[0].hidden = 1;
	fake_verbs_async(0, IBV_EVENT_DEVICE_FATAL);
	world_run(5000);
	machine[0].hidden = 0;
	fake_verbs_return(0, 0);
	world_run(COME_MS);
	assert_string_equal(address_of(&world.p), "10.0.0.1:7471");
	assert_int_equal(world.p.downs, 0);
}
