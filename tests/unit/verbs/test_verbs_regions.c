/* SPDX-License-Identifier: Apache-2.0 */
/* As many regions as an engine may register, over verbs. */
#include "tests/unit/verbs/world.h"

#include "verbs/region.h"

#define REGIONS KVPULL_REGIONS_MAX
#define REGION_BYTES 64u

static uint8_t memory[2][REGIONS][REGION_BYTES];

/* In an order of their own: region i lies at place i * 7. */
static uint8_t *region_of(uint32_t side, uint32_t i)
{
	return memory[side][i * 7 % REGIONS];
}

static void serve_fill(struct world_side *side, uint32_t which)
{
	uint32_t i;

	side_fill(side);
	side->serve.region_count = REGIONS;
	for (i = 0; i < REGIONS; i++) {
		memset(region_of(which, i), which ? 0 : (int)(i % 251 + 1),
		       REGION_BYTES);
		side->serve.regions[i] = (struct kvpull_region_view){
			.kind = KVPULL_REGION_FOREIGN,
			.fd = -1,
			.base = region_of(which, i),
			.bytes = REGION_BYTES,
		};
	}
	route_begin(side->route);
	assert_int_equal(side->route->ops->serve(side->route, &side->serve), 0);
}

UNIT_TEST(all_regions_are_read)
{
	static struct kvpull_strip strips[REGIONS];
	uint32_t i;

	world_init();
	assert_int_equal(side_open(&world.p), 0);
	assert_int_equal(side_open(&world.d), 0);
	serve_fill(&world.p, 0);
	serve_fill(&world.d, 1);
	world_comes_up(100);
	assert_int_equal(world.attach_code, 0);
	world_read_make(0);
	for (i = 0; i < REGIONS; i++)
		strips[i] = (struct kvpull_strip){
			.region_index = i,
			.remote_block_stride = REGION_BYTES,
			.local = region_of(1, i),
			.local_block_stride = REGION_BYTES,
			.row_bytes = REGION_BYTES,
			.row_count = 1,
		};
	world.remote_ids[0] = world.local_ids[0] = 0;
	for (i = 1; i <= KVPULL_GROUPS_MAX; i++)
		world.group_first[i] = 1;
	world.read.strips = strips;
	world.read.strip_count = REGIONS;
	world.read.byte_count = sizeof(memory[0]);
	world_read_run(200);
	world_read_ended(0);
	assert_memory_equal(memory[0], memory[1], sizeof(memory[0]));
	side_close(&world.d);
	side_close(&world.p);
	assert_int_equal(fake_verbs_live(), 0);
}

UNIT_TEST_UP(memory_is_served_once_and_added_to_so_often)
{
	const struct kvpull_transport_ops *ops = world.d.route->ops;
	const uint32_t registered = fake_verbs_registrations();
	uint32_t i;

	assert_int_equal(ops->serve(world.d.route, &world.d.serve),
			 KVPULL_EINVAL);
	for (i = 0; i < KVPULL_TRANSPORT_LOCALS_MAX; i++)
		assert_int_equal(ops->local_add(world.d.route, memory[1][i],
						REGION_BYTES),
				 0);
	assert_int_equal(
		ops->local_add(world.d.route, memory[1][i], REGION_BYTES),
		KVPULL_EFULL);
	assert_int_equal(fake_verbs_registrations(),
			 registered + KVPULL_TRANSPORT_LOCALS_MAX);
}

/* Against the plain loop, also where regions overlap or lie apart. */
UNIT_TEST(region_of_an_address_is_found)
{
	static struct kvpull_serve serve = {
		.regions = {
			{ .base = memory[0][8], .bytes = 64 },
			{ .base = memory[0][1], .bytes = 128 },
			{ .base = memory[0][0], .bytes = 1024 }, /* both */
			{ .base = memory[0][20], .bytes = 32 },
			{ .base = memory[0][20], .bytes = 64 }, /* longer */
		},
		.region_count = 5,
		.slot_count = 1,
	};
	static struct kvpull_revocation_entry entry;
	static struct kvpull_verbs_regions regions;
	const struct kvpull_region_view *views = serve.regions;
	const struct kvpull_log log = { .level = KVPULL_LOG_ERROR };
	struct ibv_pd pd = { .context = NULL };
	const struct kvpull_verbs_device device = {
		.fabric = fake_verbs_fabric(),
		.log = &log,
		.pd = &pd,
		.limits.max_mr_size = UINT64_MAX,
	};
	const uint8_t *at;
	uint64_t bytes;
	uint32_t i;

	world_init();
	for (i = 0; i < serve.region_count; i++)
		serve.regions[i].kind = KVPULL_REGION_FOREIGN;
	serve.entries = &entry;
	kvpull_verbs_regions_begin(&regions, &device, &serve, 30);
	assert_int_equal(kvpull_verbs_regions_grow(&regions, &serve), 0);
	while (kvpull_verbs_regions_register(&regions, &serve) > 0)
		;
	assert_non_null(regions.entries);
	for (at = memory[0][0]; at < memory[0][23]; at += 16)
		for (bytes = 16; bytes <= 64; bytes += 16) {
			const uint32_t found =
				kvpull_verbs_regions_find(&regions, at, bytes);
			uint32_t is_in = 0;

			for (i = 0; i < serve.region_count; i++)
				is_in |= at >= views[i].base &&
					 at + bytes <=
						 views[i].base + views[i].bytes;
			assert_int_equal(found != KVPULL_NONE, is_in);
			if (found == KVPULL_NONE)
				continue;
			assert_true(at >= views[found].base);
			assert_true(at + bytes <=
				    views[found].base + views[found].bytes);
		}
	while (kvpull_verbs_regions_deregister(&regions))
		;
	assert_int_equal(fake_verbs_live(), 0);
}

UNIT_TEST(regions_shrink_to_those_from_before)
{
	static const struct kvpull_serve serve = {
		.regions = {
			{ .kind = KVPULL_REGION_FOREIGN,
			  .base = memory[0][8], .bytes = 64 },
			{ .kind = KVPULL_REGION_FOREIGN,
			  .base = memory[0][1], .bytes = 128 },
			{ .kind = KVPULL_REGION_FOREIGN,
			  .base = memory[0][20], .bytes = 32 },
		},
		.region_count = 3,
		.slot_count = 1,
	};
	static struct kvpull_verbs_regions regions;
	const struct kvpull_log log = { .level = KVPULL_LOG_ERROR };
	const struct kvpull_verbs_device device = {
		.fabric = fake_verbs_fabric(),
		.log = &log,
		.limits.max_mr_size = UINT64_MAX,
	};
	uint32_t count;

	kvpull_verbs_regions_begin(&regions, &device, &serve, 30);
	for (count = 3; count--;) {
		assert_int_equal(kvpull_verbs_regions_grow(&regions, &serve),
				 0);
		assert_int_equal(regions.keys.region_count, 3);
		kvpull_verbs_regions_shrink(&regions, count);
		assert_int_equal(regions.keys.region_count, count);
	}
}
