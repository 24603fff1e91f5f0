/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits that a device tells, also when it comes back with other ones, and calls
 * of the handshake that are made twice or too late.
 */
#include <errno.h>

#include "tests/unit/verbs/world.h"
#include "verbs/bundle.h"
#include "verbs/device.h"
#include "verbs/setup.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define FRAMES 8u /* of both directions, with the world's 4 credits */

static struct ibv_device_attr limits;

static int query_device(struct ibv_context *context,
			struct ibv_device_attr *attr)
{
	(void)context;
	*attr = limits;
	return 0;
}

UNIT_TEST(limits_of_the_device_bound_depth_and_parts)
{
	static const struct {
		int requests, completions, parts_of_reads, parts;
		uint32_t depth, parts_max;
	} rows[] = {
		{ 2048, 8192, 32, 32, 256, 16 },
		{ 256 + FRAMES, 8192, 32, 32, 256, 16 },
		{ 255 + FRAMES, 8192, 32, 32, 255, 16 },
		{ 1 + FRAMES, 8192, 32, 32, 1, 16 },
		/* Less than the frames take: making the queue says so. */
		{ FRAMES, 8192, 32, 32, 256, 16 },
		{ 2048, 100 + 2 * FRAMES, 32, 32, 100, 16 },
		{ 2048, 1 + 2 * FRAMES, 32, 32, 1, 16 },
		{ 2048, 2 * FRAMES, 32, 32, 256, 16 },
		{ 2048, 8192, 5, 32, 256, 5 },
		{ 2048, 8192, 0, 3, 256, 3 },
	};
	static struct kvpull_verbs_shared shared;
	size_t i;

	for (i = 0; i < COUNT(rows); i++) {
		world_init();
		limits = (struct ibv_device_attr){
			.phys_port_cnt = 1,
			.max_qp_wr = rows[i].requests,
			.max_cqe = rows[i].completions,
			.max_sge_rd = rows[i].parts_of_reads,
			.max_sge = rows[i].parts,
		};
		fake_verbs_fabric()->ibv.query_device = query_device;
		memset(&shared, 0, sizeof(shared));
		shared.params = world_params(&world.d);
		shared.fabric = shared.params.fabric;
		shared.log = &world.d.log;
		kvpull_verbs_setup_defaults(&shared.params);
		assert_int_equal(kvpull_verbs_setup_devices(&shared), 0);
		assert_int_equal(shared.params.depth, rows[i].depth);
		assert_int_equal(shared.params.parts_max, rows[i].parts_max);
		kvpull_verbs_device_close(&shared.devices[0]);
		assert_int_equal(fake_verbs_live(), 0);
	}
}

/* Queues are as deep as they were made. */
UNIT_TEST(device_that_comes_back_with_less_depth_is_not_used)
{
	world_init();
	assert_int_equal(world_open(), 0);
	fake_verbs_remove_device();
	world_run(10);
	side_hear(&world.d, KVPULL_LOG_WARN);
	lines_forget();
	fake_verbs_knobs.queue_max = 255 + FRAMES;
	fake_verbs_return(0, 0);
	world_run(10000);
	assert_true(lines_said(" takes less than before: restart to use it\n"));
	assert_int_equal(lines.bad_count, 1);
	assert_int_equal(world_connect(), KVPULL_EPEER);
	fake_verbs_knobs.queue_max++;
	world_run(3000);
	assert_true(lines_said(" is back: pulls go by it again\n"));
	assert_int_equal(lines.bad_count, 2);
	world_pulls();
	assert_int_equal(world_down(state), 0);
}

static int gid_error;
static uint32_t gid_asked;

static int query_gid(struct ibv_context *context, uint32_t port, uint32_t index,
		     struct ibv_gid_entry *entry, uint32_t flags, size_t bytes)
{
	static const uint8_t gid[16] = { [10] = 0xff, 0xff, 10, 66, 0, 1 };

	(void)context;
	(void)flags;
	assert_int_equal(port, 2);
	assert_int_equal(index, 3);
	assert_int_equal(bytes, sizeof(*entry));
	memcpy(entry->gid.raw, gid, sizeof(gid));
	gid_asked++;
	return gid_error;
}

/* The host's shortage is not the device's. */
UNIT_TEST(address_is_there_until_the_device_says_otherwise)
{
	static const struct {
		int error, has;
	} rows[] = {
		{ 0, 1 },      { ENOMEM, 1 }, { EMFILE, 1 },
		{ ENFILE, 1 }, { EINTR, 1 },  { EAGAIN, 1 },
		{ ENOENT, 0 }, { EIO, 0 },    { ENODATA, 0 },
	};
	struct kvpull_fabric fabric = { .ibv.query_gid = query_gid };
	struct kvpull_verbs_device device = { .fabric = &fabric,
					      .port = 2,
					      .gid_index = 3,
					      .rank = KVPULL_GID_IPV4 };
	size_t i;

	assert_int_equal(
		kvpull_verbs_address_parse_ip("10.66.0.1", &device.address), 0);
	for (i = 0; i < COUNT(rows); i++) {
		gid_error = rows[i].error;
		assert_int_equal(kvpull_verbs_device_has_address(&device),
				 rows[i].has);
	}
	gid_error = 0;
	assert_int_equal(
		kvpull_verbs_address_parse_ip("10.66.0.2", &device.address), 0);
	assert_false(kvpull_verbs_device_has_address(&device));
	/* A GID of InfiniBand is no address. */
	device.rank = KVPULL_GID_INFINIBAND;
	gid_asked = 0;
	assert_true(kvpull_verbs_device_has_address(&device));
	assert_int_equal(gid_asked, 0);
}

/* ---- the handshake ---- */

UNIT_TEST_ATTACHED(peer_is_attached_and_caller_admitted_once)
{
	const struct kvpull_transport_ops *ops = world.p.route->ops;
	struct kvpull_ring *ring = NULL;

	assert_int_equal(ops->attach(world.d.route, world.peer, &world.p.serve),
			 KVPULL_EPEER);
	assert_int_equal(
		ops->admit(world.p.route, world.p.handle, "welcome", 8, &ring),
		KVPULL_EPEER);
	assert_null(ring);
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.d.downs + world.p.downs, 0);
	world_reads(5);
	assert_int_equal(world_note_send(1), 0);
	world_run(5);
	assert_int_equal(world.note_count, 1);
}

/* Before the welcome there are no keys, and nothing to attach to. */
UNIT_TEST_UP(peer_is_not_attached_before_its_keys_came)
{
	const struct kvpull_transport_ops *ops = world.d.route->ops;
	const struct kvpull_record record = { .kind = KVPULL_NOTE_CLAIM };
	const struct kvpull_verbs_end *end;

	world.silent = 1;
	assert_int_equal(world_connect(), 0);
	assert_int_equal(ops->attach(world.d.route, world.peer, &world.p.serve),
			 KVPULL_EPEER);
	world_run(5);
	end = fake_verbs_owner(1);
	assert_int_equal(end->state, KVPULL_VERBS_OPEN);
	assert_int_equal(ops->attach(world.d.route, world.peer, &world.p.serve),
			 KVPULL_EPROTO);
	assert_int_equal(world_read_start(), KVPULL_EPEER);
	assert_int_equal(ops->notify(world.d.route, world.peer, &record),
			 KVPULL_EAGAIN);
	assert_int_equal(ops->peer_send(world.d.route, world.peer, "", 0),
			 KVPULL_EPEER);
}

/* The reason is on its way: a second disconnect does not cut it off. */
UNIT_TEST_UP(farewell_is_heard_though_its_sender_goes_twice)
{
	const struct kvpull_verbs_end *end;
	uint32_t steps = 0;

	world.leaves = 1;
	assert_int_equal(world_connect(), 0);
	while (world.d.messages < 2) {
		assert_in_range(++steps, 1, 50);
		world_run(1);
	}
	end = fake_verbs_owner(1);
	assert_non_null(end);
	assert_int_equal(end->state, KVPULL_VERBS_LINGER);
	world_disconnect();
	assert_int_equal(end->state, KVPULL_VERBS_LINGER);
	world_run(WORLD_MS_FLUSHED);
	assert_string_equal(world.p.message, "farewell");
	assert_int_equal(world.d.downs, 1);
	assert_int_equal(world.p.downs, 1);
}
