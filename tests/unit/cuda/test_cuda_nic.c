/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that a NIC reads and writes: its dmabufs, and the flush. */
#include <fcntl.h>

#include "tests/fake/cuda/cuda.h"
#include "tests/lib/unit.h"
#include "tests/unit/cuda/world.h"

#define BYTES (2 * FAKE_GRANULARITY)

UNIT_TEST_IN_CHILD(memory_that_no_nic_may_have_is_taken_without_one)
{
	struct kvpull_device_memory memory;

	(void)setenv("FAKE_CUDA_RDMA", "1", 1);
	memory = world_open_with(BYTES);
	MUST(!lines.bad_count);
	world_close_with(&memory);
}

/* The NIC is this program: it finds the bytes behind the page of the fake. */
UNIT_TEST_IN_CHILD(dmabuf_of_memory_has_its_bytes)
{
	static const uint8_t wanted[4] = { 1, 2, 3, 4 };
	struct kvpull_device_memory memory;
	uint8_t bytes[4] = { 0 };
	int fd = -1;

	(void)setenv("FAKE_CUDA_RDMA", "2", 1);
	memory = world_open_with(BYTES);
	bytes_put(memory.address + 8192, wanted, sizeof(wanted));
	MUST(!world.ops->dmabuf(world.device, &memory, &fd));
	MUST(!lines.bad_count);
	MUST(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	MUST(pread(fd, bytes, sizeof(bytes), 4096 + 8192) == sizeof(bytes));
	MUST(!memcmp(bytes, wanted, sizeof(wanted)));
	(void)close(fd);
	world_close_with(&memory);
}

static uint32_t flush_bits, ordering, can_flush, orders_writes;

static void as_the_driver_says(void)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%u", flush_bits);
	(void)setenv("FAKE_CUDA_FLUSH", text, 1);
	(void)snprintf(text, sizeof(text), "%u", ordering);
	(void)setenv("FAKE_CUDA_ORDERING", text, 1);
	world_open();
	MUST(world.device->can_flush == can_flush);
	MUST(world.device->orders_writes == orders_writes);
	MUST(!can_flush || !world.ops->flush(world.device));
	world_close();
}

/* Bit 2 is a flush by streams, which is not called; 100: for the device alone. */
UNIT_TEST(flushes_and_order_are_as_the_driver_says)
{
	static const uint32_t rows[][4] = {
		{ 0, 0, 0, 0 },   { 1, 0, 1, 0 },   { 2, 0, 0, 0 },
		{ 3, 100, 1, 1 }, { 1, 200, 1, 1 },
	};
	uint32_t i;

	for (i = 0; i < 5; i++) {
		flush_bits = rows[i][0];
		ordering = rows[i][1];
		can_flush = rows[i][2];
		orders_writes = rows[i][3];
		assert_int_equal(end_of(as_the_driver_says), 0);
	}
}

UNIT_TEST_IN_CHILD(driver_without_dmabufs_is_named)
{
	struct kvpull_device_memory memory;
	int fd = -1;

	memory = world_open_with(BYTES);
	MUST(world.ops->dmabuf(world.device, &memory, &fd) ==
	     KVPULL_EUNSUPPORTED);
	MUST(lines.bad_count == 1 &&
	     strstr(lines.bad, "cuMemGetHandleForAddressRange"));
	MUST(fd == -1);
	world_close_with(&memory);
}

UNIT_TEST_IN_CHILD(place_on_the_pci_bus_is_in_the_kernels_small_letters)
{
	world_open();
	MUST(!strcmp(world.device->pci, "0000:3d:00.0"));
	world_close();
}
