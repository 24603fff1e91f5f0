/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: only kvpull_verbs_pair_open() lets the other side reach memory.
 * The access and the retry counts that the CM proposes are replaced by our own:
 * a stranger could have us retry for ever.
 */
#include "verbs/pair.h"

#include <errno.h>
#include <string.h>

#include "base/cause.h"
#include "base/least.h"

static int fail(const struct kvpull_verbs_end *end, const char *what)
{
	kvpull_error(end->shared->log, "verbs: %s: queue pair, %s: %s",
		     end->name, what, kvpull_why(OTHER, errno));
	return KVPULL_EDEVICE;
}

uint8_t kvpull_verbs_pair_reads(const struct kvpull_verbs_end *end)
{
	const struct ibv_device_attr *limits =
		&end->shared->devices[end->device].limits;
	const uint32_t most = (uint32_t)(end->role == KVPULL_VERBS_PEER ?
						 limits->max_qp_init_rd_atom :
						 limits->max_qp_rd_atom);

	return (uint8_t)kvpull_least_u32(end->shared->params.rd_atomic, most);
}

/* Only a caller is read, and only a peer reads. */
static void depths_set(const struct kvpull_verbs_end *end,
		       struct ibv_qp_attr *attr)
{
	const uint8_t own = kvpull_verbs_pair_reads(end);

	if (end->role == KVPULL_VERBS_CALLER) {
		attr->max_dest_rd_atomic = own;
		attr->max_rd_atomic = 0;
	} else {
		attr->max_dest_rd_atomic = 0;
		if (attr->max_rd_atomic > own)
			attr->max_rd_atomic = own;
	}
}

static int transition(const struct kvpull_verbs_end *end,
		      enum ibv_qp_state state, const char *what)
{
	const struct kvpull_fabric *fabric = end->shared->fabric;
	const uint8_t retry_count = (uint8_t)end->shared->params.retry_count;
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask = 0;

	if (fabric->cm.init_qp_attr(end->id, &attr, &mask))
		return fail(end, what);
	attr.qp_access_flags = 0;
	attr.retry_cnt = attr.rnr_retry = retry_count;
	/* The CM knows what the caller's port carries, not what both do. */
	if ((uint32_t)attr.path_mtu > end->mtu)
		attr.path_mtu = (enum ibv_mtu)end->mtu;
	depths_set(end, &attr);
	return fabric->ibv.modify_qp(end->qp, &attr, mask) ? fail(end, what) :
							     0;
}

int kvpull_verbs_pair_make(struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_shared *shared = end->shared;
	const int is_peer = end->role == KVPULL_VERBS_PEER;
	struct ibv_qp_init_attr attr = {
		.qp_context = end,
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = { .max_send_wr = end->queue_max,
			 .max_recv_wr = end->frame_max,
			 .max_send_sge = is_peer ? shared->params.parts_max : 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	end->qp = shared->fabric->ibv.create_qp(shared->devices[end->device].pd,
						&attr);
	if (!end->qp)
		return KVPULL_EDEVICE;
	return transition(end, IBV_QPS_INIT, "to take receives");
}

int kvpull_verbs_pair_connect(struct kvpull_verbs_end *end)
{
	const int code = transition(end, IBV_QPS_RTR, "to receive");

	return code ? code : transition(end, IBV_QPS_RTS, "to send");
}

int kvpull_verbs_pair_open(struct kvpull_verbs_end *end)
{
	struct ibv_qp_attr attr = { .qp_access_flags = IBV_ACCESS_REMOTE_READ };

	return end->shared->fabric->ibv.modify_qp(end->qp, &attr,
						  IBV_QP_ACCESS_FLAGS) ?
		       fail(end, "to be read") :
		       0;
}

void kvpull_verbs_pair_stop(struct kvpull_verbs_end *end)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	/*
	 * modify_qp() may fail on a device that is gone; unmake() destroys the
	 * queue pair anyway.
	 */
	if (end->qp)
		(void)end->shared->fabric->ibv.modify_qp(end->qp, &attr,
							 IBV_QP_STATE);
}

void kvpull_verbs_pair_unmake(struct kvpull_verbs_end *end)
{
	if (end->qp && end->shared->fabric->ibv.destroy_qp(end->qp))
		kvpull_error(end->shared->log, "verbs: %s: queue pair: %s",
			     end->name, kvpull_why(OTHER, errno));
	end->qp = NULL;
}
