/* SPDX-License-Identifier: Apache-2.0 */
/* The same-node route and memory of a device, which no descriptor here leads to. */
#include "tests/unit/shm/raw.h"

uint32_t world_blocks = 16u; /* nobody reads here */

/* The line says whose memory it is; an unknown kind has a number there. */
UNIT_TEST(memory_of_a_device_is_refused_by_its_name)
{
	struct imposter imposter;
	struct world *world = &imposter.world;
	struct kvpull_region_view *region;
	struct good good;

	imposter_begin(&imposter);
	region = &world->serve.regions[0];
	good_begin(&good, world);
	region->kind = KVPULL_REGION_DEVICE;
	region->bytes = 4096;
	assert_int_equal(attach_with(&imposter, good.fds, 4),
			 KVPULL_EUNSUPPORTED);
	assert_non_null(strstr(world->warning, "region 0 is of kind 7"));
	world->serve.device_count = 1;
	world->serve.devices[0] = (struct kvpull_device_view){
		.uuid = { 0x6f, 0x1c, 0x2b, 0x3a, 0x4d, 0x5e, 0x60, 0x71, 0x82,
			  0x93, 0xa4, 0xb5, 0xc6, 0xd7, 0xe8, 0xf9 },
		.granularity = 4096,
		.part_bytes = 4096,
		.part_count = 1,
	};
	assert_int_equal(attach_with(&imposter, good.fds, 4),
			 KVPULL_EUNSUPPORTED);
	assert_non_null(strstr(
		world->warning,
		"region 0 is memory of GPU-6f1c2b3a-4d5e-6071-8293-a4b5c6d7e8f9: this worker has no device"));
	good_end(&good);
	imposter_end(&imposter);
}
