/* SPDX-License-Identifier: Apache-2.0 */
/* The same-node route and memory of a device, of which this worker has none. */
#include "shm/attach.h"
#include "tests/lib/lines.h"
#include "tests/unit/shm/raw.h"

uint32_t world_blocks = 16u; /* nobody reads here */

/* The line says whose memory it is; a welcome that does not is damaged. */
UNIT_TEST_IN(memory_of_a_device_is_refused_by_its_name, imposter)
{
	struct world *world = &imposter->world;
	struct kvpull_region_view *region;
	struct good good;

	region = &world->serve.regions[0];
	good_begin(&good, world);
	region->kind = KVPULL_REGION_DEVICE;
	region->bytes = 4096;
	assert_int_equal(attach_with(imposter, good.fds, 4), KVPULL_EPROTO);
	world->serve.device_count = 1;
	world->serve.devices[0] = (struct kvpull_device_view){
		.uuid = { 0x6f, 0x1c, 0x2b, 0x3a, 0x4d, 0x5e, 0x60, 0x71, 0x82,
			  0x93, 0xa4, 0xb5, 0xc6, 0xd7, 0xe8, 0xf9 },
		.granularity = 4096,
		.part_bytes = 4096,
		.part_count = 1,
	};
	assert_int_equal(attach_with(imposter, good.fds, 4),
			 KVPULL_EUNSUPPORTED);
	assert_non_null(strstr(
		lines.bad,
		"region 0 is memory of GPU-6f1c2b3a-4d5e-6071-8293-a4b5c6d7e8f9: this worker has no device"));
	good_end(&good);
}

/* Attach by a worker with a device, of a welcome that names a memory so. */
static int device_attach(const struct kvpull_device_view *view)
{
	struct kvpull_shm_device device = {
		/* Nothing is ordered of it. */
		.thread = (struct kvpull_device_thread *)(void *)&device,
	};
	struct kvpull_parts welcome = { .fd_count = 4 };
	struct kvpull_serve own = {
		.region_count = 1,
		.regions = { { .kind = KVPULL_REGION_DEVICE } },
	};
	const struct kvpull_serve remote = {
		.region_count = 1,
		.slot_count = 1,
		.regions = { { .kind = KVPULL_REGION_DEVICE, .bytes = 4096 } },
		.device_count = 2,
		.devices = { { .granularity = 4096,
			       .part_bytes = 4096,
			       .part_count = view->part_count },
			     { .granularity = 4096,
			       .part_bytes = 4096,
			       .part_count = 1,
			       .fd_index = view->fd_index } },
	};
	const struct kvpull_shm_handed handed = {
		.log = &lines_log,
		.device = &device,
		.own = &own,
		.welcome = &welcome,
	};
	struct kvpull_shm_memory memory = { .doorbell = -1 };

	lines_forget();
	return kvpull_shm_attach(&memory, &handed, &remote);
}

UNIT_TEST(memory_of_a_device_in_parts_is_refused)
{
	assert_int_equal(
		device_attach(&(struct kvpull_device_view){ .part_count = 2 }),
		KVPULL_EUNSUPPORTED);
	assert_non_null(strstr(lines.bad, "it comes in parts"));
}

/* The welcome came with one descriptor of memory. */
UNIT_TEST(memory_of_a_descriptor_that_did_not_come_is_refused)
{
	assert_int_equal(device_attach(&(struct kvpull_device_view){
				 .part_count = 1, .fd_index = 1 }),
			 KVPULL_EPROTO);
}
