/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a link is and who is near a device, as the kernel writes it. */
#include "tests/lib/unit.h"
#include "verbs/place.h"

UNIT_TEST(every_speed_is_read)
{
	assert_int_equal(kvpull_place_rate_mbps("2.5 Gb/sec (1X SDR)"), 2500);
	assert_int_equal(kvpull_place_rate_mbps("100 Gb/sec (4X EDR)"), 100000);
	assert_int_equal(kvpull_place_rate_mbps("400 Gb/sec (4X NDR)"), 400000);
	/*
	 * libibverbs' number of this rate has nine bits, and the field eight.
	 */
	assert_int_equal(kvpull_place_rate_mbps("800 Gb/sec (4X XDR)"), 800000);
	assert_int_equal(kvpull_place_rate_mbps("1600 Gb/sec (8X XDR)"),
			 1600000);
}

UNIT_TEST(what_is_no_rate_is_none)
{
	static const char *const none[] = { "",    "Gb/sec", "-1 Gb/sec",
					    "nan", "inf",    "1e300" };
	uint32_t i;

	for (i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		assert_int_equal(kvpull_place_rate_mbps(none[i]), 0);
}

UNIT_TEST(distance_of_a_node_is_read)
{
	assert_int_equal(kvpull_place_distance("10 21 31\n", 0), 10);
	assert_int_equal(kvpull_place_distance("10 21 31\n", 1), 21);
	assert_int_equal(kvpull_place_distance("10 21 31\n", 2), 31);
	assert_int_equal(kvpull_place_distance("10 21 31\n", 3), 0);
	assert_int_equal(kvpull_place_distance("", 0), 0);
	assert_int_equal(kvpull_place_distance("junk", 0), 0);
	assert_int_equal(kvpull_place_distance("99999999999 10", 0), 0);
}

static int is_among(const char *list, size_t cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	return kvpull_place_is_among(list, &cpus);
}

UNIT_TEST(cpus_of_a_node_are_found)
{
	assert_true(is_among("0-15,32-47", 0));
	assert_true(is_among("0-15,32-47", 15));
	assert_true(is_among("0-15,32-47\n", 47));
	assert_true(is_among("3", 3));
	assert_false(is_among("0-15,32-47", 16));
	assert_false(is_among("0-15,32-47", 48));
	assert_false(is_among("", 0));
	assert_false(is_among("junk", 0));
	assert_false(is_among("5-2", 3));
	assert_false(is_among("99999999999999999999", 0));
	assert_true(is_among("0-99999999999999999999", CPU_SETSIZE - 1));
}

/* Not only that of the moment: a process of all nodes is near to all. */
UNIT_TEST(any_cpu_that_may_be_used_is_near)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(1, &cpus);
	CPU_SET(40, &cpus);
	assert_true(kvpull_place_is_among("0-15", &cpus));
	assert_true(kvpull_place_is_among("32-47", &cpus));
	assert_false(kvpull_place_is_among("16-31", &cpus));
}

UNIT_TEST(bridges_that_two_devices_have_in_common_are_counted)
{
#define BRIDGE "../../devices/pci0000:3a"
	static const struct {
		const char *one, *other;
		uint32_t count;
	} rows[] = {
		{ BRIDGE "/0000:3a:00.0/0000:3b:00.0/infiniband/mlx5_0",
		  "../" BRIDGE "/0000:3a:00.0/0000:3c:00.0", 2 },
		{ BRIDGE "/0000:3b:00.0/infiniband/mlx5_0",
		  BRIDGE "/0000:3c:00.0", 1 },
		/* Two functions of one device: itself is no bridge. */
		{ BRIDGE "/0000:3b:00.0", BRIDGE "/0000:3b:00.0", 1 },
		/* A number that begins alike is another one. */
		{ BRIDGE "/0000:3b:00.0", BRIDGE "b/0000:3b:00.0", 0 },
		{ BRIDGE "/0000:3b:00.0",
		  "../../devices/pci0000:80/0000:81:00.0", 0 },
		{ "../../devices/virtual/infiniband/rxe0",
		  "../../devices/virtual/infiniband/rxe0", 0 },
		{ "", BRIDGE "/0000:3b:00.0", 0 },
		{ BRIDGE "/0000:3b:00.0", "", 0 },
	};
	uint32_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(
			kvpull_place_bridges(rows[i].one, rows[i].other),
			rows[i].count);
}
