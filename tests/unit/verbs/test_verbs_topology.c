/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of topologies: for each machine and configuration the device, port,
 * GID and address of every rail, and the line that says why. The machine is a
 * fake one; the kernel's files about it are a folder that the test makes.
 */
#include <stdlib.h>

#include "tests/unit/verbs/machines.h"
#include "tests/unit/verbs/sysfs.h"
#include "tests/unit/verbs/world.h"

#define LINES_MAX 12u
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- lines ---- */

static const char *told[LINES_MAX];
static uint32_t told_count;

/* But for lines on what peers may call: the table is not about those. */
static void lines_take(void)
{
	char *rest = lines.all;
	char *line;

	told_count = 0;
	while (*rest) {
		line = strsep(&rest, "\n");
		if (strstr(line, "verbs: no interface has") ||
		    strstr(line, "verbs: listening at"))
			continue;
		assert_true(told_count < LINES_MAX);
		told[told_count++] = line;
	}
}

/* ---- the table ---- */

struct row {
	const char *name;
	const struct fake_verbs_shape *machine;
	uint32_t device_count;
	/* the configuration */
	const char *device, *address;
	uint32_t rails, port, gid, rank;
	uint64_t cpus;   /* 0: all */
	uint32_t memory; /* its node, + 1 */
	const char *gpu; /* its address on the PCI bus */
	/* what must come of it */
	const char *serves; /* NULL: it does not open; "": it waits */
	int code;
	const char *lines[9];
};

#define EIGHT(n, gbps)                                                         \
	"mlx5_" #n " port 1 gid 0, RoCE v2 IPv4 10.4." #n ".1, " #gbps         \
	" Mb/s, MTU 4096"
#define RANK_OF_8(who, n)                                                      \
	{                                                                      \
		.name = "NIC a GPU, rank " #who, MACHINE(eight_hcas),          \
		.rank = (who), .serves = "10.4." #n ".1:7471",                 \
		.lines = {                                                     \
			"verbs: rail 0 of 1: " EIGHT(                          \
				n, 400000) ": for local rank " #who            \
					   " one of 8 equal ports of 9",       \
		},                                                             \
	}
#define RAIL_OF_8(rail, n, left)                                               \
	"verbs: rail " #rail " of 8: " EIGHT(n, 400000) ": " left

static const struct row rows[] = {
	{
		.name = "one HCA",
		MACHINE(one_hca),
		.serves = "10.0.0.1:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_0 port 1 gid 1, RoCE v2 IPv4 10.0.0.1, 25000 Mb/s, MTU 4096: the only port",
		},
	},
	{
		.name = "two IB ports of one HCA, rank 0",
		MACHINE(two_ib_ports),
		.serves = "10.1.0.1:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_0 port 1 gid 0, InfiniBand 10.1.0.1, 25000 Mb/s, MTU 4096: for local rank 0 one of 2 equal ports of 2",
		},
	},
	{
		.name = "two IB ports of one HCA, rank 1",
		MACHINE(two_ib_ports),
		.rank = 1,
		.serves = "10.1.1.1:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_0 port 2 gid 0, InfiniBand 10.1.1.1, 25000 Mb/s, MTU 4096: for local rank 1 one of 2 equal ports of 2",
		},
	},
	{
		.name = "two IB ports of one HCA, the second one's address",
		MACHINE(two_ib_ports),
		.address = "10.1.1.1",
		.serves = "10.1.1.1:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_0 port 2 gid 0, InfiniBand 10.1.1.1, 25000 Mb/s, MTU 4096: the only port that the configuration leaves",
		},
	},
	{
		.name = "two IB ports of one HCA, the second one's number",
		MACHINE(two_ib_ports),
		.port = 2,
		.serves = "10.1.1.1:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_0 port 2 gid 0, InfiniBand 10.1.1.1, 25000 Mb/s, MTU 4096: the only port that the configuration leaves",
		},
	},
	{
		.name = "two IB ports of one HCA, both as rails",
		MACHINE(two_ib_ports),
		.rails = 2,
		.serves = "10.1.0.1:7471,10.1.1.1:7471",
		.lines = {
			"verbs: rail 0 of 2: mlx5_0 port 1 gid 0, InfiniBand 10.1.0.1, 25000 Mb/s, MTU 4096: for local rank 0 one of 2 equal ports of 2",
			"verbs: rail 1 of 2: mlx5_0 port 2 gid 0, InfiniBand 10.1.1.1, 25000 Mb/s, MTU 4096: the only port",
		},
	},
	{
		.name = "two IB ports of one HCA, the first one without a link",
		MACHINE(first_ib_port_down),
		.serves = "10.1.1.1:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_0 port 2 gid 0, InfiniBand 10.1.1.1, 25000 Mb/s, MTU 4096: the only port; ports without a link: 1",
		},
	},
	{
		.name = "two IB ports of one HCA, the first one's address and the second one's number",
		MACHINE(two_ib_ports),
		.address = "10.1.0.1",
		.port = 2,
		.code = KVPULL_ECONFIG,
		.lines = {
			"verbs: rail 0: port 2 address 10.1.0.1 is refused: the address is on mlx5_0 port 1; this host has mlx5_0 port 1 10.1.0.1; mlx5_0 port 2 10.1.1.1",
		},
	},
	{
		.name = "two IB ports of one HCA, the first one's name and address, without a link",
		MACHINE(first_ib_port_down),
		.device = "mlx5_0",
		.address = "10.1.0.1",
		.port = 1,
		.serves = "",
		.lines = {
			"verbs: rail 0: no port that can be used is device mlx5_0 port 1 address 10.1.0.1; this host has mlx5_0 port 1 no link; mlx5_0 port 2 10.1.1.1",
		},
	},
	{
		.name = "IB HCA with addresses of this host alone before its own",
		MACHINE(loopback),
		.serves = "[fd00::9]:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_0 port 1 gid 0, InfiniBand fd00::9, 25000 Mb/s, MTU 4096: the only port",
		},
	},
	{
		.name = "one HCA, a GID that it does not have",
		MACHINE(one_hca),
		.gid = 9,
		.serves = "",
		.lines = {
			"verbs: rail 0: no port that can be used is gid 8; this host has mlx5_0 port 1 fe80::1 10.0.0.1",
		},
	},
	{
		.name = "two IB HCAs on one subnet, the second one's address",
		MACHINE(two_ib_hcas),
		.address = "10.2.0.2",
		.serves = "10.2.0.2:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_1 port 1 gid 0, InfiniBand 10.2.0.2, 25000 Mb/s, MTU 4096: the only port that the configuration leaves",
		},
	},
	{
		.name = "two IB HCAs on one subnet, the second one's name",
		MACHINE(two_ib_hcas),
		.device = "mlx5_1",
		.serves = "10.2.0.2:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_1 port 1 gid 0, InfiniBand 10.2.0.2, 25000 Mb/s, MTU 4096: the only port that the configuration leaves",
		},
	},
	{
		.name = "two IB HCAs on one subnet, both addresses",
		MACHINE(two_ib_hcas),
		.address = "10.2.0.2,10.2.0.1",
		.serves = "10.2.0.2:7471,10.2.0.1:7471",
		.lines = {
			"verbs: rail 0 of 2: mlx5_1 port 1 gid 0, InfiniBand 10.2.0.2, 25000 Mb/s, MTU 4096: the only port that the configuration leaves",
			"verbs: rail 1 of 2: mlx5_0 port 1 gid 0, InfiniBand 10.2.0.1, 25000 Mb/s, MTU 4096: the only port that the configuration leaves",
		},
	},
	{
		.name = "two IB HCAs on one subnet, one's name and the other one's address",
		MACHINE(two_ib_hcas),
		.device = "mlx5_0",
		.address = "10.2.0.2",
		.code = KVPULL_ECONFIG,
		.lines = {
			"verbs: rail 0: device mlx5_0 address 10.2.0.2 is refused: the address is on mlx5_1 port 1; this host has mlx5_0 port 1 10.2.0.1; mlx5_1 port 1 fe80::2 10.2.0.2",
		},
	},
	{
		.name = "two IB HCAs on one subnet, nobody's address",
		MACHINE(two_ib_hcas),
		.address = "10.2.0.9",
		.serves = "",
		.lines = {
			"verbs: rail 0: no port that can be used is address 10.2.0.9; this host has mlx5_0 port 1 10.2.0.1; mlx5_1 port 1 fe80::2 10.2.0.2",
		},
	},
	{
		.name = "IB HCA without an address",
		MACHINE(ib_without_ip),
		.serves = "",
		.lines = {
			"verbs: rail 0: no port that can be used; this host has mlx5_0 port 1 no address",
		},
	},
	{
		.name = "two RoCE HCAs on one subnet, one's name and the other one's address",
		MACHINE(two_roce_hcas),
		.device = "mlx5_0",
		.address = "10.2.0.2",
		.code = KVPULL_ECONFIG,
		.lines = {
			"verbs: rail 0: device mlx5_0 address 10.2.0.2 is refused: the address is on mlx5_1 port 1; this host has mlx5_0 port 1 10.2.0.1; mlx5_1 port 1 10.2.0.2",
		},
	},
	{
		.name = "two RoCE HCAs on one subnet, both addresses",
		MACHINE(two_roce_hcas),
		.address = "10.2.0.1,10.2.0.2",
		.serves = "10.2.0.1:7471,10.2.0.2:7471",
		.lines = {
			"verbs: rail 0 of 2: mlx5_0 port 1 gid 0, RoCE v2 IPv4 10.2.0.1, 25000 Mb/s, MTU 4096: the only port that the configuration leaves",
			"verbs: rail 1 of 2: mlx5_1 port 1 gid 0, RoCE v2 IPv4 10.2.0.2, 25000 Mb/s, MTU 4096: the only port that the configuration leaves",
		},
	},
	{
		.name = "two RoCE HCAs, one on no node that is known, memory on node 0",
		MACHINE(two_roce_hcas),
		.memory = 1,
		.serves = "10.2.0.2:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_1 port 1 gid 0, RoCE v2 IPv4 10.2.0.2, 25000 Mb/s, MTU 4096: the nearest of 2",
		},
	},
	{
		.name = "bond",
		MACHINE(bond),
		.serves = "10.5.0.1:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_bond_0 port 1 gid 1, RoCE v2 IPv4 10.5.0.1, 25000 Mb/s, MTU 4096: the only port; GIDs whose address leads elsewhere: 1",
		},
	},
	{
		.name = "SR-IOV, a pod with one function of three",
		MACHINE(functions),
		.serves = "10.6.0.3:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_3 port 1 gid 0, RoCE v2 IPv4 10.6.0.3, 25000 Mb/s, MTU 4096: the only port; GIDs whose address leads elsewhere: 2",
		},
	},
	{
		.name = "RoCE with every kind of GID",
		MACHINE(every_gid),
		.serves = "10.7.0.1:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_0 port 1 gid 3, RoCE v2 IPv4 10.7.0.1, 25000 Mb/s, MTU 4096: the only port",
		},
	},
	{
		.name = "RoCE with every kind of GID, the address of IPv6",
		MACHINE(every_gid),
		.address = "fd00::1",
		.serves = "[fd00::1]:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_0 port 1 gid 2, RoCE v2 IPv6 fd00::1, 25000 Mb/s, MTU 4096: the only port that the configuration leaves",
		},
	},
	{
		.name = "RoCE with every kind of GID, version 1 by its index",
		MACHINE(every_gid),
		.gid = 1,
		.serves = "10.7.0.1:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_0 port 1 gid 0, RoCE v1 10.7.0.1, 25000 Mb/s, MTU 4096: the only port that the configuration leaves",
		},
	},
	{
		.name = "RoCE with IPv6 on one HCA and IPv4 on another",
		MACHINE(ipv6_and_ipv4),
		.serves = "10.7.0.1:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_1 port 1 gid 1, RoCE v2 IPv4 10.7.0.1, 25000 Mb/s, MTU 4096: the best kind of address of 3",
		},
	},
	{
		.name = "RoCE with IPv6",
		MACHINE(ipv6_alone),
		.serves = "[fd00::1]:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_0 port 1 gid 1, RoCE v2 IPv6 fd00::1, 25000 Mb/s, MTU 4096: the only port",
		},
	},
	{
		.name = "RoCE with a link-local GID",
		MACHINE(link_local_alone),
		.serves = "[fe80::1]:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_0 port 1 gid 0, RoCE v2 link-local fe80::1, 25000 Mb/s, MTU 4096: the only port",
			"verbs: only a link-local address: peers on other links cannot be reached",
		},
	},
	{
		.name = "iWARP",
		MACHINE(iwarp_alone),
		.serves = "",
		.lines = {
			"verbs: rail 0: no port that can be used; this host has siw0 iWARP, which is not supported",
		},
	},
	{
		.name = "iWARP by its address",
		MACHINE(iwarp_alone),
		.address = "10.8.0.1",
		.serves = "",
		.lines = {
			"verbs: rail 0: no port that can be used is address 10.8.0.1; this host has siw0 iWARP, which is not supported",
		},
	},
	{
		.name = "iWARP and RoCE",
		MACHINE(iwarp_and_roce),
		.serves = "10.8.0.2:7471",
		.lines = {
			"verbs: rail 0 of 1: mlx5_0 port 1 gid 0, RoCE v2 IPv4 10.8.0.2, 25000 Mb/s, MTU 4096: the only port; devices of iWARP, which is not supported: 1",
		},
	},
	{
		.name = "port without a link",
		MACHINE(down_alone),
		.serves = "",
		.lines = {
			"verbs: rail 0: no port that can be used; this host has mlx5_0 port 1 no link",
		},
	},
	RANK_OF_8(0, 0),
	RANK_OF_8(1, 1),
	RANK_OF_8(7, 7),
	RANK_OF_8(11, 3),
	{
		.name = "NIC a GPU, a list of names a rank",
		MACHINE(eight_hcas),
		.device = "mlx5_3;mlx5_2,mlx5_1;mlx5_0",
		.rank = 4,
		.serves = "10.4.2.1:7471,10.4.1.1:7471",
		.lines = {
			"verbs: rail 0 of 2: " EIGHT(2, 400000) ": the only port that the configuration leaves",
			"verbs: rail 1 of 2: " EIGHT(1, 400000) ": the only port that the configuration leaves",
		},
	},
	{
		.name = "NIC a GPU, a list of addresses a rank",
		MACHINE(eight_hcas),
		.address = "10.4.3.1;10.4.2.1;10.4.1.1",
		.rank = 2,
		.serves = "10.4.1.1:7471",
		.lines = {
			"verbs: rail 0 of 1: " EIGHT(1, 400000) ": the only port that the configuration leaves",
		},
	},
	{
		.name = "NIC a GPU, a pattern and two rails",
		MACHINE(eight_hcas),
		.device = "mlx5_[4-7]",
		.rails = 2,
		.rank = 1,
		.serves = "10.4.6.1:7471,10.4.7.1:7471",
		.lines = {
			"verbs: rail 0 of 2: " EIGHT(6, 400000) ": for local rank 1 one of 4 equal ports of 4 that the configuration leaves",
			"verbs: rail 1 of 2: " EIGHT(7, 400000) ": for local rank 1 one of 4 equal ports of 4 that the configuration leaves",
		},
	},
	{
		.name = "NIC a GPU, all of them as rails",
		MACHINE(eight_hcas),
		.rails = 8,
		.serves = "10.4.0.1:7471,10.4.1.1:7471,10.4.2.1:7471,10.4.3.1:7471,10.4.4.1:7471,10.4.5.1:7471,10.4.6.1:7471,10.4.7.1:7471",
		.lines = {
			RAIL_OF_8(0, 0, "for local rank 0 one of 8 equal ports of 9"),
			RAIL_OF_8(1, 1, "for local rank 0 one of 8 equal ports of 9"),
			RAIL_OF_8(2, 2, "for local rank 0 one of 8 equal ports of 9"),
			RAIL_OF_8(3, 3, "for local rank 0 one of 8 equal ports of 9"),
			RAIL_OF_8(4, 4, "for local rank 0 one of 8 equal ports of 9"),
			RAIL_OF_8(5, 5, "for local rank 0 one of 8 equal ports of 9"),
			RAIL_OF_8(6, 6, "for local rank 0 one of 8 equal ports of 9"),
			RAIL_OF_8(7, 7, "for local rank 0 one of 8 equal ports of 9"),
		},
	},
	{
		.name = "NIC a GPU, rank 5 on the CPUs of node 1",
		MACHINE(eight_hcas),
		.rank = 5,
		.cpus = 0xf0,
		.serves = "10.4.5.1:7471",
		.lines = {
			"verbs: rail 0 of 1: " EIGHT(5, 400000) ": for local rank 5 one of 4 equal ports of 9",
		},
	},
	{
		.name = "NIC a GPU, rank 0 on the CPUs of node 1",
		MACHINE(eight_hcas),
		.cpus = 0xf0,
		.serves = "10.4.4.1:7471",
		.lines = {
			"verbs: rail 0 of 1: " EIGHT(4, 400000) ": for local rank 0 one of 4 equal ports of 9",
		},
	},
	{
		.name = "NIC a GPU, rank 0 anywhere, its memory on node 1",
		MACHINE(eight_hcas),
		.memory = 2,
		.serves = "10.4.4.1:7471",
		.lines = {
			"verbs: rail 0 of 1: " EIGHT(0, 400000) ": for local rank 0 one of 8 equal ports of 9",
			"verbs: rail 0 goes by " EIGHT(4, 400000) " from now on: for local rank 0 one of 4 equal ports of 9 for memory on node 1",
		},
	},
	{
		.name = "NIC a GPU, rank 2 on the CPUs of node 1, its memory on node 0",
		MACHINE(eight_hcas),
		.rank = 2,
		.cpus = 0xf0,
		.memory = 1,
		.serves = "10.4.2.1:7471",
		.lines = {
			"verbs: rail 0 of 1: " EIGHT(6, 400000) ": for local rank 2 one of 4 equal ports of 9",
			"verbs: rail 0 goes by " EIGHT(2, 400000) " from now on: for local rank 2 one of 4 equal ports of 9 for memory on node 0",
		},
	},
	{
		.name = "NIC a GPU, two rails, memory on node 1",
		MACHINE(eight_hcas),
		.rails = 2,
		.rank = 1,
		.memory = 2,
		.serves = "10.4.6.1:7471,10.4.7.1:7471",
		.lines = {
			"verbs: rail 0 of 2: " EIGHT(2, 400000) ": for local rank 1 one of 8 equal ports of 9",
			"verbs: rail 1 of 2: " EIGHT(3, 400000) ": for local rank 1 one of 8 equal ports of 9",
			"verbs: rail 0 goes by " EIGHT(6, 400000) " from now on: for local rank 1 one of 4 equal ports of 9 for memory on node 1",
			"verbs: rail 1 goes by " EIGHT(7, 400000) " from now on: for local rank 1 one of 4 equal ports of 9 for memory on node 1",
		},
	},
	{
		.name = "NIC a GPU, memory on node 1, and a far device named",
		MACHINE(eight_hcas),
		.device = "mlx5_1",
		.memory = 2,
		.serves = "10.4.1.1:7471",
		.lines = {
			"verbs: rail 0 of 1: " EIGHT(1, 400000) ": the only port that the configuration leaves",
		},
	},
	{
		.name = "NIC a GPU, below one switch, the sixth GPU",
		MACHINE(eight_hcas),
		.gpu = "0000:54:00.0",
		.serves = "10.4.5.1:7471",
		.lines = {
			"verbs: rail 0 of 1: " EIGHT(5, 400000) ": the nearest of 9 for the GPU at 0000:54:00.0: PCI bridges of both: 3",
		},
	},
	{
		.name = "NIC a GPU, below one switch, the sixth GPU, of the third rank on other CPUs",
		MACHINE(eight_hcas),
		.gpu = "0000:54:00.0",
		.rank = 2,
		.cpus = 0xf,
		.serves = "10.4.5.1:7471",
		.lines = {
			"verbs: rail 0 of 1: " EIGHT(5, 400000) ": the nearest of 9 for the GPU at 0000:54:00.0: PCI bridges of both: 3",
		},
	},
	{
		.name = "NIC a GPU, below one switch, the first GPU, two rails",
		MACHINE(eight_hcas),
		.gpu = "0000:04:00.0",
		.rails = 2,
		.serves = "10.4.0.1:7471,10.4.2.1:7471",
		.lines = {
			"verbs: rail 0 of 2: " EIGHT(0, 400000) ": the nearest of 9 for the GPU at 0000:04:00.0: PCI bridges of both: 3",
			"verbs: rail 1 of 2: " EIGHT(2, 400000) ": for local rank 0 one of 7 equal ports of 9; no PCI bridge is that of the GPU at 0000:04:00.0, too",
		},
	},
	{
		.name = "NIC a GPU, and a GPU below another switch of the fourth NIC's bridge",
		MACHINE(eight_hcas),
		.gpu = "0000:3f:00.0",
		.serves = "10.4.3.1:7471",
		.lines = {
			"verbs: rail 0 of 1: " EIGHT(3, 400000) ": the nearest of 9 for the GPU at 0000:3f:00.0: PCI bridges of both: 1",
		},
	},
	{
		.name = "NIC a GPU, and a GPU of which the kernel says nothing",
		MACHINE(eight_hcas),
		.gpu = "0000:ff:00.0",
		.rank = 1,
		.serves = "10.4.1.1:7471",
		.lines = {
			"verbs: rail 0 of 1: " EIGHT(1, 400000) ": for local rank 1 one of 8 equal ports of 9; no PCI bridge is that of the GPU at 0000:ff:00.0, too",
		},
	},
	{
		.name = "NIC a GPU, the GPU of the slow one",
		MACHINE(eight_hcas),
		.gpu = "0000:84:00.0",
		.serves = "10.4.0.1:7471",
		.lines = {
			"verbs: rail 0 of 1: " EIGHT(0, 400000) ": for local rank 0 one of 8 equal ports of 9; no PCI bridge is that of the GPU at 0000:84:00.0, too",
		},
	},
	{
		.name = "NIC a GPU, the sixth GPU, and memory of the host on node 0",
		MACHINE(eight_hcas),
		.gpu = "0000:54:00.0",
		.memory = 1,
		.serves = "10.4.0.1:7471",
		.lines = {
			"verbs: rail 0 of 1: " EIGHT(5, 400000) ": the nearest of 9 for the GPU at 0000:54:00.0: PCI bridges of both: 3",
			"verbs: rail 0 goes by " EIGHT(0, 400000) " from now on: for local rank 0 one of 4 equal ports of 9 for memory on node 0",
		},
	},
};

static uint32_t memory_node;

static int node_of_page(const void *page)
{
	(void)page;
	return (int)memory_node - 1;
}

static void row_open(const struct row *row)
{
	world_init();
	fake_verbs_shapes(row->machine, row->device_count);
	world.device = row->device;
	world.address = row->address;
	world.rails = row->rails;
	world.device_port = row->port;
	world.gid_index = row->gid;
	world.local_rank = row->rank;
	world.gpu_pci = row->gpu;
	world.listen_port = 7471;
	side_hear(&world.p, KVPULL_LOG_INFO);
	memory_node = row->memory;
	world_node = row->memory ? node_of_page : NULL;
}

static int row_is_right(const struct row *row)
{
	uint32_t at;
	int code;

	row_open(row);
	code = side_open(&world.p);
	if (!code && side_serve(&world.p))
		return 0;
	lines_take();
	for (at = 0; at < COUNT(row->lines) && row->lines[at]; at++)
		if (at >= told_count || strcmp(told[at], row->lines[at]) != 0)
			return 0;
	if (at < told_count || code != row->code)
		return 0;
	return code || !strcmp(side_address(&world.p), row->serves);
}

static void row_print(const struct row *row)
{
	uint32_t at;

	print_error("%s: address %s\n", row->name,
		    world.p.route ? side_address(&world.p) : "none");
	for (at = 0; at < told_count; at++)
		print_error("  is:        %s\n", told[at]);
	for (at = 0; at < COUNT(row->lines) && row->lines[at]; at++)
		print_error("  should be: %s\n", row->lines[at]);
}

UNIT_TEST(every_rail_goes_by_the_port_of_the_table)
{
	uint32_t wrong = 0;
	uint32_t at;

	for (at = 0; at < COUNT(rows); at++) {
		const struct row *row = &rows[at];

		tree_make();
		if (row->machine == eight_hcas)
			eight_files_make();
		if (row->machine == two_roce_hcas && row->memory)
			files_of("mlx5_1", "1\n", "");
		cpus_allowed = row->cpus ? row->cpus : 0xff;
		if (!row_is_right(row)) {
			row_print(row);
			wrong++;
		}
		side_close(&world.p);
		assert_int_equal(fake_verbs_live(), 0);
		tree_remove();
	}
	assert_int_equal(wrong, 0);
}

/* Each object of the move in turn: a far device is better than none. */
UNIT_TEST(move_that_fails_leaves_a_device_and_nothing_else)
{
	static const struct row row = { .machine = eight_hcas,
					.device_count = COUNT(eight_hcas),
					.memory = 2 };
	uint32_t at;
	int code = -1;

	tree_make();
	eight_files_make();
	cpus_allowed = 0xff;
	for (at = 1; code || !fake_verbs_knobs.make_at; at++) {
		assert_in_range(at, 1, 100);
		side_close(&world.p);
		assert_int_equal(fake_verbs_live(), 0);
		row_open(&row);
		assert_int_equal(side_open(&world.p), 0);
		fake_verbs_knobs.make_at = at;
		code = side_serve(&world.p);
		if (!code)
			assert_non_null(
				strstr(side_address(&world.p), "10.4."));
	}
	assert_true(at > 8);
	side_close(&world.p);
	assert_int_equal(fake_verbs_live(), 0);
	tree_remove();
}
