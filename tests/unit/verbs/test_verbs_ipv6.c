/* SPDX-License-Identifier: Apache-2.0 */
/* Pulls between addresses of IPv6, also such as lead to one link alone. */
#include "tests/fake/verbs_shape.h"
#include "tests/unit/verbs/world.h"

static const struct fake_verbs_shape routable[] = {
	{ .name = "mlx5_0", .places = { { .ip = "fd00::a:1" } } },
	{ .name = "mlx5_1", .places = { { .ip = "fd00:1::b:1" } } },
};

static const struct fake_verbs_shape link_local[] = {
	{ .name = "mlx5_0", .places = { { .ip = "fe80::a:1" } } },
};

/* Scopes of both addresses that D resolved last. */
static uint32_t scope_from, scope_to;
static struct kvpull_fabric real;

static int resolve_addr(struct rdma_cm_id *id, struct sockaddr *from,
			struct sockaddr *to, int ms)
{
	scope_from = ((struct sockaddr_in6 *)(void *)from)->sin6_scope_id;
	scope_to = ((struct sockaddr_in6 *)(void *)to)->sin6_scope_id;
	return real.cm.resolve_addr(id, from, to, ms);
}

static void machine_is(const struct fake_verbs_shape *shapes, uint32_t count)
{
	world_init();
	world.networks = NULL;
	world.listen_port = 7471;
	fake_verbs_shapes(shapes, count);
	real = *fake_verbs_fabric();
	fake_verbs_fabric()->cm.resolve_addr = resolve_addr;
	assert_int_equal(world_open(), 0);
}

UNIT_TEST(pull_goes_between_addresses_of_ipv6)
{
	machine_is(routable, 1);
	assert_string_equal(side_address(&world.p), "[fd00::a:1]:7471");
	world_pulls();
	assert_int_equal(scope_from, 0);
	assert_int_equal(scope_to, 0);
	assert_int_equal(world_down(state), 0);
}

UNIT_TEST(rails_of_ipv6_are_called_by_their_neighbours)
{
	world_init();
	world.rails = 2;
	world.networks = NULL;
	world.listen_port = 7471;
	fake_verbs_shapes(routable, 2);
	assert_int_equal(world_open(), 0);
	assert_string_equal(side_address(&world.p),
			    "[fd00::a:1]:7471,[fd00:1::b:1]:7471");
	world_pulls();
	world_run(20);
	assert_int_equal(fake_verbs_calls(), 2);
	assert_int_equal(world_down(state), 0);
}

/* The text has no scope: what D sends by is the scope of its own address. */
UNIT_TEST(link_local_peer_is_called_in_the_scope_of_our_own_address)
{
	machine_is(link_local, 1);
	assert_string_equal(side_address(&world.p), "[fe80::a:1]:7471");
	world_pulls();
	assert_int_equal(scope_from, 1);
	assert_int_equal(scope_to, 1);
	assert_int_equal(world_down(state), 0);
}

UNIT_TEST(caller_of_ipv6_outside_the_networks_is_named)
{
	world_init();
	world.networks = "fd00::b:0/112";
	world.listen_port = 7471;
	fake_verbs_shapes(routable, 1);
	side_begin(&world.p);
	world.networks = NULL;
	side_begin(&world.d);
	side_hear(&world.p, KVPULL_LOG_WARN);
	side_hear(&world.d, KVPULL_LOG_WARN);
	world_connect_run(10);
	side_is_down(&world.d, KVPULL_EREJECTED);
	assert_true(lines_said(
		"verbs: caller [fd00::a:1] is refused: it is not in the configured networks (1 refused so far)\n"));
	assert_true(lines_said(
		"it rejects us: our address [fd00::a:1] is in none of its networks"));
	assert_int_equal(world_down(state), 0);
}
