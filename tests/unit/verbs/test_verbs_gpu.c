/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a GPU by verbs: it is registered by dmabufs that the route asks the
 * GPU's driver for, or refused by name.
 */
#include "tests/unit/verbs/gpu.h"

#include <errno.h>

static int up(void **state)
{
	const int code = world_up(state);

	gpu_open();
	return code;
}

static int down(void **state)
{
	const int code = world_down(state);

	gpu_close();
	return code;
}

/* P's blocks are a GPU's, and D's are the host's. */
UNIT_TEST_WITH(memory_of_a_gpu_is_registered_by_a_dmabuf_and_read, up, down)
{
	struct fake_verbs_dmabuf dmabuf;

	assert_int_equal(gpu_serve(&world.p), 0);
	assert_int_equal(gpu.dmabuf_count, 1);
	assert_int_equal(gpu.dmabuf_memory.address,
			 (uintptr_t)world.p.memory - GPU_OFFSET);
	assert_int_equal(gpu.dmabuf_memory.bytes, GPU_OFFSET + WORLD_BYTES);
	dmabuf = fake_verbs_dmabuf();
	/* The descriptor for peers on this node is none for a NIC. */
	assert_int_not_equal(dmabuf.fd, world.p.serve.regions[0].fd);
	assert_int_equal(dmabuf.offset, GPU_OFFSET);
	assert_int_equal(dmabuf.bytes, WORLD_BYTES);
	assert_int_equal(dmabuf.iova, (uintptr_t)world.p.memory);
	/* Last for the rail's loop: to be read, and by nobody else. */
	assert_int_equal(dmabuf.access, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(fake_verbs_memory_access(world.p.memory),
			 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE);
	world_fill();
	world_pulls();
}

/* The port near to the GPU is chosen: test_verbs_topology. */
UNIT_TEST_WITH(rails_are_chosen_for_the_gpu_of_the_thread, up, down)
{
	(void)snprintf(gpu.device.pci, sizeof(gpu.device.pci), "0000:3d:00.0");
	side_hear(&world.p, KVPULL_LOG_INFO);
	assert_int_equal(gpu_serve(&world.p), 0);
	assert_non_null(strstr(
		lines.all,
		": the only port; no PCI bridge is that of the GPU at 0000:3d:00.0, too\n"));
}

/* Regions of one memory share its dmabuf, and close() gives it back. */
UNIT_TEST_WITH(memory_has_one_dmabuf_that_close_gives_back, up, down)
{
	const uint32_t fds = fds_open();
	struct kvpull_serve *const serve = &world.p.serve;

	side_close(&world.p);
	assert_int_equal(side_open(&world.p), 0);
	side_fill(&world.p);
	gpu_fill(&world.p);
	serve->regions[1] = serve->regions[0];
	serve->regions[1].base += WORLD_BYTES / 2;
	serve->regions[1].fd_offset += WORLD_BYTES / 2;
	serve->regions[0].bytes = serve->regions[1].bytes = WORLD_BYTES / 2;
	serve->region_count = 2;
	route_begin(world.p.route);
	assert_int_equal(world.p.route->ops->serve(world.p.route, serve), 0);
	assert_int_equal(gpu.dmabuf_count, 1);
	assert_int_equal(fake_verbs_dmabuf().offset,
			 GPU_OFFSET + WORLD_BYTES / 2);
	side_close(&world.p);
	assert_int_equal(side_open(&world.p), 0);
	assert_int_equal(fds_open(), fds);
}

/* Each MR of a dmabuf begins where its address says. */
UNIT_TEST_WITH(slices_of_a_dmabuf_keep_their_offset, up, down)
{
	struct fake_verbs_dmabuf dmabuf;

	world.mr_shift = 12;
	assert_int_equal(gpu_serve(&world.p), 0);
	dmabuf = fake_verbs_dmabuf();
	assert_int_equal(dmabuf.iova % 4096, 0);
	assert_int_equal(dmabuf.iova + dmabuf.bytes,
			 (uintptr_t)world.p.memory + WORLD_BYTES);
	assert_int_equal(dmabuf.offset - GPU_OFFSET,
			 dmabuf.iova - (uintptr_t)world.p.memory);
	assert_true(dmabuf.offset > GPU_OFFSET);
}

/* Refused, with a line, and host memory is served by the same route after it. */
static void refused(int code, const char *words)
{
	uint32_t fds;

	side_close(&world.p);
	assert_int_equal(side_open(&world.p), 0);
	fds = fds_open();
	side_hear(&world.p, KVPULL_LOG_WARN);
	side_fill(&world.p);
	gpu_fill(&world.p);
	route_begin(world.p.route);
	assert_int_equal(
		world.p.route->ops->serve(world.p.route, &world.p.serve), code);
	assert_true(lines_said(words));
	assert_string_equal(side_address(&world.p), "");
	assert_int_equal(fds_open(), fds);
	assert_int_equal(side_serve(&world.p), 0);
}

UNIT_TEST_WITH(driver_without_dmabufs_is_named, up, down)
{
	gpu.dmabuf_code = KVPULL_EUNSUPPORTED;
	refused(KVPULL_EUNSUPPORTED, "its driver makes no dmabuf of it");
	gpu.dmabuf_code = KVPULL_EDEVICE;
	refused(KVPULL_EDEVICE, "(EDEVICE)");
}

UNIT_TEST_WITH(device_that_takes_no_dmabuf_is_named, up, down)
{
	static const struct {
		int error;
		int code;
	} rows[] = { { EOPNOTSUPP, KVPULL_EUNSUPPORTED },
		     { EINVAL, KVPULL_EUNSUPPORTED },
		     { ENOMEM, KVPULL_ENOMEM } };
	uint32_t i;

	for (i = 0; i < 3; i++) {
		fake_verbs_knobs.dmabuf_error = rows[i].error;
		refused(rows[i].code,
			"fake0 cannot register region 0, memory of a GPU (dmabuf of 16384 bytes): ");
	}
}

UNIT_TEST_WITH(library_without_dmabufs_is_no_crash, up, down)
{
	fake_verbs_fabric()->ibv.reg_dmabuf_mr = NULL;
	refused(KVPULL_EUNSUPPORTED, "fake0 cannot register region 0");
}

UNIT_TEST_WITH(memory_of_a_gpu_without_its_driver_is_refused, up, down)
{
	struct kvpull_device_thread *const thread = world.gpu;

	world.gpu = NULL;
	refused(KVPULL_EUNSUPPORTED, "its driver makes no dmabuf of it");
	world.gpu = thread;
}

/* The dmabuf is kept: the driver is not asked again when a device comes late. */
UNIT_TEST_WITH(device_that_comes_late_takes_the_same_dmabuf, up, down)
{
	struct fake_verbs_dmabuf dmabuf;

	side_close(&world.p);
	fake_verbs_devices(0);
	assert_int_equal(side_open(&world.p), 0);
	side_fill(&world.p);
	gpu_fill(&world.p);
	route_begin(world.p.route);
	assert_int_equal(
		world.p.route->ops->serve(world.p.route, &world.p.serve), 0);
	assert_int_equal(gpu.dmabuf_count, 1);
	fake_verbs_devices(1);
	world_run(1500);
	dmabuf = fake_verbs_dmabuf();
	assert_int_equal(dmabuf.iova, (uintptr_t)world.p.memory);
	assert_int_equal(gpu.dmabuf_count, 1);
	world_fill();
	world_pulls();
}
