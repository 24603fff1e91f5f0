/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory in a welcome: what is told of it, and what is hostile. */

#include <string.h>

#include "plugin/bytes/handshake.h"
#include "tests/lib/unit.h"
#include "tests/unit/bytes/making.h"

static const uint8_t nonce[KVPULL_NONCE_BYTES] = { 5, 6, 7 };

static uint8_t bytes[KVPULL_MESSAGE_BYTES_MAX];
static size_t byte_count;
static struct kvpull_welcome welcome;
static struct kvpull_welcome got;

/* The first region is host memory; the second is half of a device's memory. */
static int setup(void **state)
{
	(void)state;
	memset(&welcome, 0, sizeof(welcome));
	welcome.sealed.version = KVPULL_WIRE_VERSION;
	welcome.incarnation = 3;
	welcome.lease_ns = 30000000000;
	welcome.slot_count = 65536;
	welcome.tp_size = 1;
	welcome.region_count = 2;
	welcome.regions[0].bytes = 1 << 20;
	welcome.regions[1] = (struct kvpull_welcome_region){
		.kind = KVPULL_REGION_DEVICE,
		.fd_index = 5,
		.address = 0x302000000,
		.fd_offset = 4 << 20,
		.bytes = 4 << 20,
	};
	welcome.cache_count = 1;
	welcome.caches[0] = (struct kvpull_cache){
		.struct_size = sizeof(struct kvpull_cache),
		.layer_count = 1,
		.block_count = 1,
		.row_count = 1,
		.head_count = 1,
		.head_bytes = 1,
	};
	welcome.device_count = 1;
	welcome.devices[0] = (struct kvpull_device_view){
		.uuid = { 0x6f, 0x1c },
		.granularity = 2 << 20,
		.part_bytes = 8 << 20,
		.part_count = 1,
		.fd_index = 5,
	};
	return 0;
}

static int put(void)
{
	byte_count = kvpull_handshake_put_welcome(bytes, sizeof(bytes),
						  &welcome, NULL, nonce);
	return byte_count != 0;
}

/* The welcome with these bytes changed, and a checksum that says they are right. */
static int get_with(size_t at, uint64_t value, size_t value_bytes)
{

	assert_true(put());
	value_put(bytes + at, value, value_bytes);
	checksum_put(bytes, byte_count, nonce, "kvpull.welcome.1");
	return kvpull_handshake_get_welcome(bytes, byte_count, NULL, nonce,
					    &got);
}

#define TEST(name) UNIT_TEST_WITH(name, setup, NULL)

TEST(device_memory_round_trips_and_becomes_a_view)
{
	static struct kvpull_serve view;

	assert_int_equal(get_with(0, 0, 0), 0);
	assert_memory_equal(&got, &welcome, sizeof(welcome));
	view.device_count = got.device_count;
	memcpy(view.devices, got.devices, sizeof(view.devices));
	assert_ptr_equal(kvpull_device_view_of(view.devices, 1, 5),
			 &view.devices[0]);
	assert_null(kvpull_device_view_of(view.devices, 1, 4));
	assert_null(kvpull_device_view_of(view.devices, 0, 5));
}

/* Changes one thing of a good welcome: the encoder says no. */
#define DEVICE_REFUSED(change)                                                 \
	do {                                                                   \
		(void)setup(state);                                            \
		change;                                                        \
		assert_false(put());                                           \
	} while (0)

TEST(device_memory_out_of_bounds_is_not_made)
{
	struct kvpull_device_view *device = &welcome.devices[0];
	struct kvpull_welcome_region *region = &welcome.regions[1];

	DEVICE_REFUSED(device->granularity = 0);
	DEVICE_REFUSED(device->granularity = 3 << 20;
		       device->part_bytes = 12 << 20);
	DEVICE_REFUSED(device->part_bytes = 0);
	DEVICE_REFUSED(device->part_bytes = (8 << 20) + 4096);
	DEVICE_REFUSED(device->part_count = 0);
	DEVICE_REFUSED(device->part_count = KVPULL_DEVICE_PARTS_MAX + 1);
	/* Four parts wrap around to nothing, or to one part. */
	DEVICE_REFUSED(device->part_bytes = UINT64_C(1) << 62;
		       device->part_count = 4);
	DEVICE_REFUSED(device->granularity = 1;
		       device->part_bytes = (UINT64_C(1) << 63) + (16 << 20);
		       device->part_count = 2);
	DEVICE_REFUSED(device->fd_index = KVPULL_REGIONS_MAX);
	/* The region ends behind its memory, or begins there. */
	DEVICE_REFUSED(region->bytes++);
	DEVICE_REFUSED(region->fd_offset++);
	DEVICE_REFUSED(region->fd_offset = UINT64_MAX);
	DEVICE_REFUSED(device->part_bytes = 6 << 20);
	/* Without its memory, or with another one's. */
	DEVICE_REFUSED(welcome.device_count = 0);
	DEVICE_REFUSED(region->fd_index = 4);
	/* Memory without a region. */
	DEVICE_REFUSED(region->kind = KVPULL_REGION_PROVIDED);
	DEVICE_REFUSED(welcome.device_count = 2; device[1] = device[0];
		       device[1].fd_index = 6);
	/* Twice, and in another order. */
	DEVICE_REFUSED(welcome.device_count = 2; device[1] = device[0]);
	DEVICE_REFUSED(welcome.region_count = 3; welcome.regions[2] = *region;
		       welcome.regions[2].fd_index = 4;
		       welcome.device_count = 2; device[1] = device[0];
		       device[1].fd_index = 4);
	DEVICE_REFUSED(welcome.device_count = KVPULL_DEVICE_MEMORIES_MAX + 1);
	/* Parts together have room for the region. */
	(void)setup(state);
	device->part_bytes = 2 << 20;
	device->part_count = 4;
	assert_true(put());
}

/* The extension is id 1, its bytes, then u8 rows of 40 bytes. */
TEST(device_memory_out_of_bounds_is_not_taken)
{
	size_t at;

	assert_true(put());
	at = byte_count - KVPULL_CHECKSUM_BYTES - 40;
	assert_int_equal(get_with(at, 0, 1), 0);
	assert_int_equal(got.devices[0].uuid[0], 0);
	assert_int_equal(get_with(at - 1, 0, 1), KVPULL_EPROTO);
	assert_int_equal(get_with(at - 1, 2, 1), KVPULL_EPROTO);
	assert_int_equal(get_with(at - 3, 42, 2), KVPULL_EPROTO);
	assert_int_equal(get_with(at + 16, 1 << 20, 8), 0);
	assert_int_equal(get_with(at + 16, 3, 8), KVPULL_EPROTO);
	assert_int_equal(get_with(at + 24, 6 << 20, 8), KVPULL_EPROTO);
	assert_int_equal(get_with(at + 32, 0, 4), KVPULL_EPROTO);
	assert_int_equal(get_with(at + 32, 4096, 4), 0);
	assert_int_equal(get_with(at + 32, 4097, 4), KVPULL_EPROTO);
	assert_int_equal(get_with(at + 36, 4, 4), KVPULL_EPROTO);
	/* An extension of another id is passed over: then the region has no memory. */
	assert_int_equal(get_with(at - 5, 2, 2), KVPULL_EPROTO);
	welcome.regions[1].kind = KVPULL_REGION_PROVIDED;
	welcome.device_count = 0;
	memset(welcome.devices, 0, sizeof(welcome.devices));
	at = byte_count;
	assert_true(put());
	assert_int_equal(byte_count, at - 45);
}
