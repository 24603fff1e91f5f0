/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of the simulated network into memory of a device: as in shm/, a job of the
 * device's thread each, and a mapping for each peer.
 */
#include <stdlib.h>
#include <unistd.h>

#include "tests/sim/device.h"

#define STEPS_MAX 6u /* of the thread, in a turn */

void sim_device_start(struct sim_proc *proc)
{
	const struct kvpull_config *config = &proc->instance->config;
	const struct kvpull_device_thread_params params = {
		.open = sim_device_open,
		.index = (int)proc->index,
		.wake_fd = -1,
		.limits = { .job_max = SIM_READS,
			    .mark_max = 2 * (uint32_t)config->pulls_max + 1,
			    .mapping_max = SIM_PEERS + 1,
			    .bytes_per_ms = 1 },
	};

	proc->transport.device.is_required = 1;
	if (kvpull_shm_device_open(&proc->transport.device, &params,
				   &proc->instance->log))
		sim_fail(proc->world, "process %u has no device", proc->index);
}

int sim_device_attach(struct sim_conn *conn, const struct kvpull_serve *remote)
{
	const struct kvpull_serve *serve = conn->server->transport.serve;
	int fd;

	if (!kvpull_serve_has_devices(remote) || remote->device_count != 1)
		return KVPULL_EPROTO;
	fd = dup(serve->regions[0].fd);
	if (fd < 0)
		abort();
	kvpull_device_thread_import(
		conn->client->transport.device.thread, conn->peer, fd,
		remote->devices[0].part_bytes, remote->devices[0].uuid);
	conn->mapping = SIM_MAPPED;
	return 0;
}

int sim_device_detach(struct sim_conn *conn)
{
	if (conn->mapping == SIM_MAPPED) {
		kvpull_device_thread_unmap(
			conn->client->transport.device.thread, conn->peer);
		conn->mapping = SIM_LEAVING;
	}
	return conn->mapping == SIM_UNMAPPED;
}

int sim_device_read(struct sim_transport *own, struct sim_read *mine)
{
	static const struct kvpull_device_region regions[SIM_PEERS] = {
#define REGION(at) { .mapping = (at) }
#define REGIONS(at)                                                            \
	REGION(at), REGION((at) + 1), REGION((at) + 2), REGION((at) + 3)
		REGIONS(0),  REGIONS(4),  REGIONS(8),  REGIONS(12),
		REGIONS(16), REGIONS(20), REGIONS(24), REGIONS(28),
	};
	const uint64_t after = mine->read->after;

	if (!after)
		return KVPULL_EINVAL;
	mine->on_device = 1;
	mine->job = (struct kvpull_device_job){
		.read = mine->read,
		.regions = &regions[mine->conn->peer],
		.region_count = 1,
	};
	if (after != KVPULL_AFTER_NOTHING)
		mine->job.after =
			(struct kvpull_device_event *)(uintptr_t)after;
	return kvpull_device_thread_start(own->device.thread, &mine->job);
}

void sim_device_cancel(struct sim_proc *proc, struct sim_read *mine,
		       int32_t code)
{
	if (mine->code)
		return;
	mine->code = code;
	kvpull_device_thread_cancel(proc->transport.device.thread, &mine->job);
	proc->world->counts.stopped++;
}

static void peer_lose(struct sim_conn *conn, int32_t code)
{
	struct sim_world *world = conn->client->world;

	if (!conn->lost)
		(void)sim_queue_put(world, &conn->to_server, SIM_CLOSE, NULL,
				    0);
	conn->lost = 1;
	sim_queue_put(world, &conn->to_client, SIM_CLOSE, NULL, 0)->code = code;
}

static void read_ended(struct sim_transport *own,
		       const struct kvpull_device_end *end)
{
	struct sim_read *mine = &own->reads[end->index];

	if (!mine->active || mine->done || !mine->on_device)
		sim_fail(own->proc->world,
			 "process %u: read %u ends, which does not run",
			 own->proc->index, end->index);
	mine->done = 1;
	if (!end->code || !mine->code)
		mine->code = end->code;
}

void sim_device_poll(struct sim_transport *own, uint64_t now_ns)
{
	struct kvpull_device_end ends[8];
	uint32_t count;
	uint32_t at;

	if (!own->device.thread || !own->proc->alive)
		return;
	count = kvpull_device_thread_poll(own->device.thread, ends, 8, now_ns);
	for (at = 0; at < count; at++) {
		struct sim_conn *conn = own->peers[ends[at].index % SIM_PEERS];

		if (ends[at].kind == KVPULL_DEVICE_COPY)
			read_ended(own, &ends[at]);
		else if (ends[at].kind == KVPULL_DEVICE_UNMAP)
			conn->mapping = SIM_UNMAPPED;
		else if (ends[at].code)
			peer_lose(conn, ends[at].code);
	}
}

/* Some slices are so small that rows are cut, others have a read's all. */
static uint64_t slice_draw(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;

	return sim_chance(world, 100) ?
		       8 * (1 + sim_below(world, 8)) :
		       proc->block_bytes * (1 + sim_below(world, 2));
}

void sim_device_run(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	const uint64_t now_ns = world->now_ns + proc->clock_extra_ns;
	const struct sim_instance *instance = proc->instance;
	uint32_t steps = 0;

	if (!proc->transport.device.thread || !proc->alive)
		return;
	sim_streams_run(proc->device, now_ns);
	/* All of a process may stand still, which its device does not see. */
	if (instance->splits || proc->closing ||
	    (now_ns >= instance->stalled_ns && now_ns >= proc->frozen_ns))
		steps = (uint32_t)sim_below(world, STEPS_MAX);
	while (steps--)
		(void)sim_thread_step(proc->transport.device.thread,
				      slice_draw(proc), now_ns);
}

void sim_device_close(struct sim_proc *proc)
{
	struct kvpull_shm_device *device = &proc->transport.device;
	const uint64_t now_ns = proc->world->now_ns + proc->clock_extra_ns;

	if (!device->thread)
		return;
	sim_streams_flush(proc->device);
	sim_thread_end(device->thread, !proc->alive, now_ns);
	kvpull_shm_device_close(device, 0);
}
