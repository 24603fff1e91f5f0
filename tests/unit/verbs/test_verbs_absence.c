/* SPDX-License-Identifier: Apache-2.0 */
/* A host without the RDMA that was asked for: who is told, and how loudly. */
#include "tests/unit/verbs/world.h"
#include "verbs/search.h"

static uint32_t last_level;
static char last_line[KVPULL_LOG_LINE_BYTES];

static void line_keep(void *context, uint32_t level, const char *line)
{
	(void)context;
	last_level = level;
	(void)snprintf(last_line, sizeof(last_line), "%s", line);
}

/* Open one side over so many devices; the level of what it said last. */
static uint32_t level_of(uint32_t devices, const char *device,
			 const char *address)
{
	int code;

	world_init();
	fake_verbs_devices(devices);
	world.device = device;
	world.address = address;
	world.d.log = (struct kvpull_log){ .write = line_keep,
					   .level = KVPULL_LOG_DEBUG };
	last_level = 0;
	code = side_open(&world.d);
	/* One may come later. */
	assert_int_equal(code, 0);
	side_close(&world.d);
	return last_level;
}

UNIT_TEST(host_without_devices_warns_if_one_is_named)
{
	assert_int_equal(level_of(0, NULL, NULL), KVPULL_LOG_DEBUG);
	assert_int_equal(level_of(0, "", ""), KVPULL_LOG_DEBUG);
	assert_int_equal(level_of(0, "mlx5_7", NULL), KVPULL_LOG_WARN);
	assert_non_null(strstr(last_line, "no RDMA device"));
	assert_non_null(strstr(last_line, "mlx5_7"));
	assert_int_equal(level_of(0, NULL, "10.66.9.9"), KVPULL_LOG_WARN);
	assert_non_null(strstr(last_line, "10.66.9.9"));
}

UNIT_TEST(device_that_is_not_there_is_a_warning)
{
	assert_int_equal(level_of(1, "mlx5_7", NULL), KVPULL_LOG_WARN);
	assert_non_null(strstr(last_line, "mlx5_7"));
	assert_int_equal(level_of(1, NULL, "10.66.9.9"), KVPULL_LOG_WARN);
	assert_non_null(strstr(last_line, "10.66.9.9"));
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
