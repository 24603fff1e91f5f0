/* SPDX-License-Identifier: Apache-2.0 */
/* A host without the RDMA that was asked for: who is told, and how loudly. */
#include "tests/lib/lines.h"
#include "tests/unit/verbs/world.h"
#include "verbs/search.h"

/* Open one side over so many devices; the level of what it said last. */
static uint32_t level_of(uint32_t devices, const char *device,
			 const char *address)
{
	int code;

	world_init();
	fake_verbs_devices(devices);
	world.device = device;
	world.address = address;
	world.d.log = lines_log;
	lines_forget();
	code = side_open(&world.d);
	/* One may come later. */
	assert_int_equal(code, 0);
	side_close(&world.d);
	return lines.level;
}

UNIT_TEST(host_without_devices_warns_if_one_is_named)
{
	assert_int_equal(level_of(0, NULL, NULL), KVPULL_LOG_DEBUG);
	assert_int_equal(level_of(0, "", ""), KVPULL_LOG_DEBUG);
	assert_int_equal(level_of(0, "mlx5_7", NULL), KVPULL_LOG_WARN);
	assert_non_null(strstr(lines.last, "no RDMA device"));
	assert_non_null(strstr(lines.last, "mlx5_7"));
	assert_int_equal(level_of(0, NULL, "10.66.9.9"), KVPULL_LOG_WARN);
	assert_non_null(strstr(lines.last, "10.66.9.9"));
}

UNIT_TEST(device_that_is_not_there_is_a_warning)
{
	assert_int_equal(level_of(1, "mlx5_7", NULL), KVPULL_LOG_WARN);
	assert_non_null(strstr(lines.last, "mlx5_7"));
	assert_int_equal(level_of(1, NULL, "10.66.9.9"), KVPULL_LOG_WARN);
	assert_non_null(strstr(lines.last, "10.66.9.9"));
}

UNIT_TEST(route_that_is_required_is_an_error)
{
	struct kvpull_verbs_params params = { .required = 1 };

	assert_int_equal(kvpull_verbs_absence_level(&params, KVPULL_LOG_DEBUG),
			 KVPULL_LOG_ERROR);
	params.required = 0;
	assert_int_equal(kvpull_verbs_absence_level(&params, KVPULL_LOG_DEBUG),
			 KVPULL_LOG_DEBUG);
}
