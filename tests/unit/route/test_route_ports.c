/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers of one node that share a configuration: each listens at a port of its
 * own, and opens the device of its rank. The library takes the fake fabric for
 * the host's.
 */
#include "plugin/route/route.h"
#include "tests/lib/lines.h"
#include "tests/unit/verbs/world.h"

int __wrap_kvpull_fabric_load(struct kvpull_fabric *fabric,
			      const struct kvpull_log *log, uint32_t level);

int __wrap_kvpull_fabric_load(struct kvpull_fabric *fabric,
			      const struct kvpull_log *log, uint32_t level)
{
	(void)log;
	(void)level;
	*fabric = *fake_verbs_fabric();
	return 0;
}

/* The routes of a worker of this rank. */
static int rank_open(struct world_side *side, struct kvpull_routes *routes,
		     const char *json, uint32_t rank)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_config config;
	const struct kvpull_route_params params = {
		.log = &side->log,
		.config = &config,
		.arena = &side->arena,
		.reads_max = 8,
		.engine_wake_fd = -1,
		.rank = rank,
	};

	lines_forget();
	side->log = lines_log;
	assert_int_equal(kvpull_config_load(&config, json, &detail), 0);
	kvpull_arena_init(&side->arena, &side->log);
	side->memory = kvpull_arena_take(&side->arena, 1, WORLD_BYTES);
	side->entries = kvpull_arena_take(&side->arena, WORLD_SLOTS,
					  sizeof(*side->entries));
	return kvpull_routes_open(routes, &params);
}

/* This rank's only address, as tickets have it. */
static void rank_serves(const char *json, uint32_t rank, const char *address)
{
	struct world_side *side = &world.p;
	struct kvpull_routes routes;
	char text[KVPULL_TICKET_ADDRESS_BYTES_MAX];

	world_init();
	fake_verbs_devices(2);
	assert_int_equal(rank_open(side, &routes, json, rank), 0);
	side_fill(side);
	route_begin(routes.list[0].transport);
	assert_int_equal(kvpull_routes_serve(&routes, &side->serve), 0);
	kvpull_routes_print(&routes, text, sizeof(text));
	assert_string_equal(text, address);
	kvpull_routes_close(&routes, kvpull_clock_close_by());
	kvpull_arena_fini(&side->arena);
	assert_int_equal(fake_verbs_live(), 0);
}

#define VERBS "{\"route\": \"verbs\", "

UNIT_TEST(each_rank_listens_at_a_port_of_its_own)
{
	static const char json[] = VERBS
		"\"verbs_device\": \"fake0\", \"verbs_listen_port\": 7471}";

	rank_serves(json, 0, "verbs:10.66.0.1:7471");
	rank_serves(json, 1, "verbs:10.66.0.1:7472");
	rank_serves(json, 7, "verbs:10.66.0.1:7478");
}

UNIT_TEST(each_rank_opens_another_one_of_equal_devices)
{
	static const char json[] = VERBS "\"verbs_listen_port\": 7471}";

	rank_serves(json, 0, "verbs:10.66.0.1:7471");
	rank_serves(json, 1, "verbs:10.66.1.1:7472");
	rank_serves(json, 2, "verbs:10.66.0.1:7473");
}

UNIT_TEST(configured_rank_is_taken_before_the_engines)
{
	rank_serves(VERBS
		    "\"verbs_local_rank\": 5, \"verbs_listen_port\": 7471}",
		    0, "verbs:10.66.1.1:7476");
}

UNIT_TEST(port_beyond_the_largest_is_refused)
{
	struct kvpull_routes routes;

	world_init();
	assert_int_equal(rank_open(&world.p, &routes,
				   VERBS "\"verbs_listen_port\": 65535}", 1),
			 KVPULL_ECONFIG);
	assert_non_null(strstr(lines.of[KVPULL_LOG_ERROR], "port 65536"));
	kvpull_routes_close(&routes, kvpull_clock_close_by());
	kvpull_arena_fini(&world.p.arena);
}
