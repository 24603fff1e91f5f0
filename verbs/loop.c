/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/loop.h"

#include <errno.h>
#include <string.h>

#include "base/cause.h"

/* Hops of a packet that never leaves the port: the CM's number. */
#define HOPS 64u
/* Code of the time after which an empty receive queue is tried again: 0.64 ms. */
#define RNR_TIMER 12u
/* Work requests, and completions of one that is flushed as well. */
#define DEPTH 2

static const char *name_of(const struct kvpull_verbs_loop *loop)
{
	const struct kvpull_verbs_device *device = &loop->device;

	return device->fabric->ibv.get_device_name(device->context->device);
}

/* A rail without a loop is tried again and again: one line says so. */
static int refuse(struct kvpull_verbs_loop *loop, const char *what)
{
	kvpull_log(
		loop->device.log,
		loop->is_said ? KVPULL_LOG_DEBUG : KVPULL_LOG_ERROR,
		"verbs: rail %u, %s, does not serve memory of a GPU: its queue pair to itself, %s: %s: nothing would flush what it wrote; see device_flush",
		loop->device.rail, name_of(loop), what,
		kvpull_why(LOCK, errno));
	return KVPULL_EDEVICE;
}

void kvpull_verbs_loop_init(struct kvpull_verbs_loop *loop, uint32_t reads_max,
			    struct kvpull_arena *arena)
{
	KVPULL_ARENA_TAKE(arena, loop->open, reads_max);
	KVPULL_ARENA_TAKE(arena, loop->wanted, reads_max);
}

int kvpull_verbs_loop_begin(struct kvpull_verbs_loop *loop,
			    const struct kvpull_verbs_device *device,
			    const struct kvpull_serve *serve,
			    const struct kvpull_verbs_params *params)
{
	loop->device = *device;
	loop->device.pd = device->fabric->ibv.alloc_pd(device->context);
	if (!loop->device.pd)
		return refuse(loop, "protection domain");
	loop->is_broken = 0;
	kvpull_verbs_regions_begin(&loop->regions, &loop->device, serve,
				   params->mr_shift);
	loop->regions.is_for_loop = 1;
	return kvpull_verbs_regions_grow(&loop->regions, serve);
}

/* ---- the queue pair ---- */

/* Finds the way from the port to itself, by its own address. */
static int path_find(const struct kvpull_verbs_loop *loop,
		     struct ibv_qp_attr *attr)
{
	const struct kvpull_verbs_device *device = &loop->device;
	struct ibv_gid_entry entry;
	struct ibv_port_attr port;

	memset(&entry, 0, sizeof(entry));
	if (kvpull_fabric_port(device->fabric, device->context,
			       (uint8_t)device->port, &port) ||
	    device->fabric->ibv.query_gid(device->context, device->port,
					  device->gid_index, &entry, 0,
					  sizeof(entry)))
		return KVPULL_EDEVICE;
	attr->path_mtu = port.active_mtu;
	attr->ah_attr = (struct ibv_ah_attr){
		.grh = { .dgid = entry.gid,
			 .sgid_index = (uint8_t)device->gid_index,
			 .hop_limit = HOPS },
		.dlid = port.lid,
		.is_global = device->rank != KVPULL_GID_INFINIBAND,
		.port_num = (uint8_t)device->port,
	};
	return 0;
}

static int to_init(const struct kvpull_verbs_loop *loop)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = (uint8_t)loop->device.port,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ,
	};

	return loop->device.fabric->ibv.modify_qp(
		loop->qp, &attr,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			IBV_QP_ACCESS_FLAGS);
}

static int to_receive(const struct kvpull_verbs_loop *loop)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.dest_qp_num = loop->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = RNR_TIMER,
	};

	if (path_find(loop, &attr))
		return -1;
	return loop->device.fabric->ibv.modify_qp(
		loop->qp, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			IBV_QP_MIN_RNR_TIMER);
}

static int to_send(const struct kvpull_verbs_loop *loop,
		   const struct kvpull_verbs_params *params)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = (uint8_t)params->ack_timeout,
		.retry_cnt = (uint8_t)params->retry_count,
		.rnr_retry = (uint8_t)params->retry_count,
		.max_rd_atomic = 1,
	};

	return loop->device.fabric->ibv.modify_qp(
		loop->qp, &attr,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC);
}

static int pair_make(struct kvpull_verbs_loop *loop)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = loop->cq,
		.recv_cq = loop->cq,
		.cap = { .max_send_wr = DEPTH,
			 .max_recv_wr = 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	loop->qp = loop->device.fabric->ibv.create_qp(loop->device.pd, &attr);
	return loop->qp ? to_init(loop) : -1;
}

int kvpull_verbs_loop_connect(struct kvpull_verbs_loop *loop,
			      const struct kvpull_verbs_params *params)
{
	const struct kvpull_verbs_device *device = &loop->device;

	if (!device->pd)
		return 0;
	loop->memory = kvpull_verbs_device_register(device, &loop->answer,
						    sizeof(loop->answer),
						    IBV_ACCESS_LOCAL_WRITE);
	/* The context of its events is none: those of ends have one. */
	loop->cq = device->fabric->ibv.create_cq(device->context, DEPTH, NULL,
						 device->channel, 0);
	if (!loop->memory || !loop->cq || pair_make(loop))
		return refuse(loop, "to be made");
	if (to_receive(loop) || to_send(loop, params))
		return refuse(loop, "to be connected");
	loop->is_said = 0;
	return 0;
}

void kvpull_verbs_loop_stop(struct kvpull_verbs_loop *loop)
{
	const struct kvpull_verbs_device *device = &loop->device;

	if (!device->pd)
		return;
	if (loop->qp && device->fabric->ibv.destroy_qp(loop->qp))
		kvpull_warn(device->log, "verbs: queue pair to itself: %s",
			    kvpull_why(OTHER, errno));
	if (loop->cq && device->fabric->ibv.destroy_cq(loop->cq))
		kvpull_warn(device->log, "verbs: completion queue: %s",
			    kvpull_why(OTHER, errno));
	kvpull_verbs_device_deregister(device, loop->memory);
	loop->qp = NULL;
	loop->cq = NULL;
	loop->memory = NULL;
	loop->is_armed = 0;
}

void kvpull_verbs_loop_end(struct kvpull_verbs_loop *loop)
{
	const struct kvpull_verbs_device *device = &loop->device;

	if (device->pd && device->fabric->ibv.dealloc_pd(device->pd))
		kvpull_warn(device->log, "verbs: protection domain: %s",
			    kvpull_why(OTHER, errno));
	loop->device.pd = NULL;
}

/* ---- a READ ---- */

static int broken(struct kvpull_verbs_loop *loop, const char *why)
{
	loop->why = why;
	loop->is_broken = 1;
	return KVPULL_EREAD;
}

int kvpull_verbs_loop_read(struct kvpull_verbs_loop *loop, uint64_t at)
{
	const struct kvpull_verbs_regions *regions = &loop->regions;
	const uint32_t region = kvpull_verbs_regions_find(
		regions, (const uint8_t *)(uintptr_t)at, 1);
	struct ibv_sge part = { .addr = (uintptr_t)&loop->answer,
				.length = 1,
				.lkey = loop->memory->lkey };
	struct ibv_send_wr request = {
		.sg_list = &part,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;

	kvpull_check(loop->device.log, region != KVPULL_NONE);
	request.wr.rdma.remote_addr = at;
	request.wr.rdma.rkey =
		regions->keys
			.mr_keys[kvpull_keys_mr(&regions->keys, region, at)];
	return ibv_post_send(loop->qp, &request, &bad) ?
		       broken(loop, "a post is refused") :
		       0;
}

int kvpull_verbs_loop_poll(struct kvpull_verbs_loop *loop)
{
	struct ibv_wc completion;
	const int count = ibv_poll_cq(loop->cq, 1, &completion);

	if (count < 0)
		return broken(loop, "poll of the completion queue");
	if (!count)
		return 0;
	return completion.status == IBV_WC_SUCCESS ?
		       1 :
		       broken(loop, loop->device.fabric->ibv.wc_status_str(
					    completion.status));
}

void kvpull_verbs_loop_late(struct kvpull_verbs_loop *loop)
{
	(void)broken(loop, "no answer in time");
}

int kvpull_verbs_loop_arm(struct kvpull_verbs_loop *loop)
{
	if (!loop->is_reading || loop->is_armed)
		return 0;
	/* Where it cannot be armed it is polled. */
	loop->is_armed = !ibv_req_notify_cq(loop->cq, 0);
	return 1;
}
