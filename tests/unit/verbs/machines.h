/* SPDX-License-Identifier: Apache-2.0 */
/* The machines of the table of topologies, for its test alone. */
#ifndef KVPULL_TESTS_UNIT_VERBS_MACHINES
#define KVPULL_TESTS_UNIT_VERBS_MACHINES

#include "tests/fake/verbs_shape.h"

static const struct fake_verbs_shape one_hca[] = {
	{ .name = "mlx5_0",
	  .places = { { .ip = "fe80::1" }, { .ip = "10.0.0.1" } } },
};

static const struct fake_verbs_shape two_ib_ports[] = {
	{ .name = "mlx5_0",
	  .link = FAKE_VERBS_INFINIBAND,
	  .port_count = 2,
	  .places = { { .ip = "10.1.0.1", .port = 1 },
		      { .ip = "10.1.1.1", .port = 2 } } },
};

static const struct fake_verbs_shape first_ib_port_down[] = {
	{ .name = "mlx5_0",
	  .link = FAKE_VERBS_INFINIBAND,
	  .port_count = 2,
	  .down = 1,
	  .places = { { .ip = "10.1.0.1", .port = 1 },
		      { .ip = "10.1.1.1", .port = 2 } } },
};

static const struct fake_verbs_shape two_ib_hcas[] = {
	{ .name = "mlx5_0",
	  .link = FAKE_VERBS_INFINIBAND,
	  .places = { { .ip = "10.2.0.1" } } },
	{ .name = "mlx5_1",
	  .link = FAKE_VERBS_INFINIBAND,
	  .places = { { .ip = "fe80::2" }, { .ip = "10.2.0.2" } } },
};

static const struct fake_verbs_shape loopback[] = {
	{ .name = "mlx5_0",
	  .link = FAKE_VERBS_INFINIBAND,
	  .places = { { .ip = "127.0.0.1" },
		      { .ip = "127.255.0.1" },
		      { .ip = "::1" },
		      { .ip = "fd00::9" } } },
};

static const struct fake_verbs_shape ib_without_ip[] = {
	{ .name = "mlx5_0", .link = FAKE_VERBS_INFINIBAND },
};

static const struct fake_verbs_shape two_roce_hcas[] = {
	{ .name = "mlx5_0", .places = { { .ip = "10.2.0.1" } } },
	{ .name = "mlx5_1", .places = { { .ip = "10.2.0.2" } } },
};

static const struct fake_verbs_shape eight_hcas[] = {
	{ .name = "mlx5_0", .places = { { .ip = "10.4.0.1" } } },
	{ .name = "mlx5_1", .places = { { .ip = "10.4.1.1" } } },
	{ .name = "mlx5_2", .places = { { .ip = "10.4.2.1" } } },
	{ .name = "mlx5_3", .places = { { .ip = "10.4.3.1" } } },
	{ .name = "mlx5_4", .places = { { .ip = "10.4.4.1" } } },
	{ .name = "mlx5_5", .places = { { .ip = "10.4.5.1" } } },
	{ .name = "mlx5_6", .places = { { .ip = "10.4.6.1" } } },
	{ .name = "mlx5_7", .places = { { .ip = "10.4.7.1" } } },
	/* For storage. */
	{ .name = "mlx5_8", .places = { { .ip = "10.4.8.1" } } },
};

static const struct fake_verbs_shape bond[] = {
	{ .name = "mlx5_bond_0",
	  .places = { { .ip = "fe80::1" }, { .ip = "10.5.0.1" } } },
	/* Its other half has the bond's GID, too, and is no way to it. */
	{ .name = "mlx5_1", .places = { { .ip = "10.5.0.1", .away = 1 } } },
};

static const struct fake_verbs_shape functions[] = {
	{ .name = "mlx5_0", .places = { { .ip = "10.6.0.1", .away = 1 } } },
	{ .name = "mlx5_2", .places = { { .ip = "10.6.0.2", .away = 1 } } },
	{ .name = "mlx5_3", .places = { { .ip = "10.6.0.3" } } },
};

static const struct fake_verbs_shape every_gid[] = {
	{ .name = "mlx5_0",
	  .places = { { .ip = "10.7.0.1", .v1 = 1 },
		      { .ip = "fe80::1" },
		      { .ip = "fd00::1" },
		      { .ip = "10.7.0.1" },
		      { .ip = "10.7.0.2" } } },
};

static const struct fake_verbs_shape ipv6_and_ipv4[] = {
	{ .name = "mlx5_0",
	  .places = { { .ip = "fe80::1" }, { .ip = "fd00::1" } } },
	{ .name = "mlx5_1",
	  .places = { { .ip = "fe80::2" }, { .ip = "10.7.0.1" } } },
	{ .name = "mlx5_2", .places = { { .ip = "fe80::3" } } },
};

static const struct fake_verbs_shape ipv6_alone[] = {
	{ .name = "mlx5_0",
	  .places = { { .ip = "fe80::1" }, { .ip = "fd00::1" } } },
};

static const struct fake_verbs_shape link_local_alone[] = {
	{ .name = "mlx5_0", .places = { { .ip = "fe80::1" } } },
};

static const struct fake_verbs_shape iwarp_alone[] = {
	{ .name = "siw0",
	  .link = FAKE_VERBS_IWARP,
	  .places = { { .ip = "10.8.0.1" } } },
};

static const struct fake_verbs_shape iwarp_and_roce[] = {
	{ .name = "irdma0",
	  .link = FAKE_VERBS_IWARP,
	  .places = { { .ip = "10.8.0.1" } } },
	{ .name = "mlx5_0", .places = { { .ip = "10.8.0.2" } } },
};

static const struct fake_verbs_shape down_alone[] = {
	{ .name = "mlx5_0", .down = 1, .places = { { .ip = "fd00::9" } } },
};

#define MACHINE(shapes) shapes, COUNT(shapes)

#endif /* KVPULL_TESTS_UNIT_VERBS_MACHINES */
