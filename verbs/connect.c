/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: an id belongs to the end in its context, or is a listener
 * (context NULL); a bundle is active from the time it has an id until it is
 * freed.
 */
#include "verbs/connect.h"

#include <errno.h>
#include <string.h>

#include "base/cause.h"
#include "base/least.h"
#include "verbs/pair.h"

int kvpull_verbs_connect_open(struct kvpull_verbs_connect *connect)
{
	const struct kvpull_verbs_shared *shared = connect->shared;

	connect->channel = shared->fabric->cm.create_event_channel();
	if (connect->channel && !kvpull_verbs_unblock(connect->channel->fd))
		return 0;
	kvpull_error(shared->log, "verbs: CM event channel: %s",
		     kvpull_why(OTHER, errno));
	return KVPULL_EDEVICE;
}

void kvpull_verbs_connect_close(struct kvpull_verbs_connect *connect)
{
	if (connect->channel)
		connect->shared->fabric->cm.destroy_event_channel(
			connect->channel);
	connect->channel = NULL;
}

struct kvpull_verbs_bundle *
kvpull_verbs_connect_take(struct kvpull_verbs_connect *connect,
			  enum kvpull_verbs_role role)
{
	uint32_t at;

	for (at = 0; at < connect->bundle_count; at++) {
		struct kvpull_verbs_bundle *bundle = &connect->bundles[at];

		if (bundle->role != role || bundle->state != KVPULL_BUNDLE_FREE)
			continue;
		bundle->state = KVPULL_BUNDLE_MEETING;
		bundle->active_at = connect->active_count;
		connect->active[connect->active_count++] = at;
		return bundle;
	}
	return NULL;
}

void kvpull_verbs_connect_free(struct kvpull_verbs_connect *connect,
			       struct kvpull_verbs_bundle *bundle)
{
	const uint32_t last = connect->active[--connect->active_count];

	connect->active[bundle->active_at] = last;
	connect->bundles[last].active_at = bundle->active_at;
	kvpull_verbs_bundle_unmake(bundle);
}

/* Not fatal where it is not supported: times are longer then. */
void kvpull_verbs_connect_options(const struct kvpull_verbs_shared *shared,
				  struct rdma_cm_id *id)
{
	uint8_t timeout = (uint8_t)shared->params.ack_timeout;
	uint8_t service = (uint8_t)shared->params.traffic_class;

	if (shared->fabric->cm.set_option(id, RDMA_OPTION_ID,
					  RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
					  sizeof(timeout)))
		kvpull_debug(shared->log, "verbs: ack time-out: %s",
			     kvpull_why(OTHER, errno));
	if (service && shared->fabric->cm.set_option(id, RDMA_OPTION_ID,
						     RDMA_OPTION_ID_TOS,
						     &service, sizeof(service)))
		kvpull_warn(shared->log, "verbs: traffic class %u: %s", service,
			    kvpull_why(OTHER, errno));
}

struct rdma_conn_param
kvpull_verbs_connect_param(const struct kvpull_verbs_end *end,
			   uint8_t private_data[KVPULL_VERBS_PRIVATE_BYTES])
{
	const struct kvpull_verbs_params *params = &end->shared->params;
	const int is_peer = end->role == KVPULL_VERBS_PEER;
	struct kvpull_verbs_greeting greeting = {
		.kind = is_peer && end->joins ? KVPULL_VERBS_JOIN :
						KVPULL_VERBS_CALL,
		.credits = params->notify_credits,
		.rail = end->rail,
		.lane = end->lane,
		.mtu = end->mtu,
	};
	struct rdma_conn_param param = {
		.private_data = private_data,
		.private_data_len = KVPULL_VERBS_PRIVATE_BYTES,
		.retry_count = (uint8_t)params->retry_count,
		.rnr_retry_count = (uint8_t)params->retry_count,
		.qp_num = end->qp->qp_num,
	};

	/* Only a caller is read, and only a peer reads. */
	if (is_peer)
		param.initiator_depth = kvpull_verbs_pair_reads(end);
	else
		param.responder_resources = kvpull_verbs_pair_reads(end);
	if (greeting.kind == KVPULL_VERBS_JOIN)
		memcpy(greeting.token, end->bundle->token,
		       sizeof(greeting.token));
	kvpull_verbs_greeting_put(private_data, &greeting);
	return param;
}

void kvpull_verbs_connect_agree(struct kvpull_verbs_end *end,
				const struct kvpull_verbs_greeting *greeting)
{
	end->credits = kvpull_least_u32(end->shared->params.notify_credits,
					greeting->credits);
	end->mtu = kvpull_least_u32(end->mtu, greeting->mtu);
}

void kvpull_verbs_connect_device_lost(struct kvpull_verbs_connect *connect,
				      uint32_t device, const char *why)
{
	struct kvpull_verbs_shared *shared = connect->shared;
	uint32_t at;

	if (shared->devices[device].gone == KVPULL_VERBS_DEVICE_LOST ||
	    shared->devices[device].gone == KVPULL_VERBS_DEVICE_CLOSED)
		return;
	shared->devices[device].gone = KVPULL_VERBS_DEVICE_LOST;
	kvpull_error(shared->log,
		     "verbs: %s was %s: nothing goes by it until it is back",
		     shared->devices[device].choice, why);
	for (at = 0; at < kvpull_verbs_connect_ends(connect); at++) {
		struct kvpull_verbs_end *end =
			kvpull_verbs_connect_end(connect, at);

		if (end->device == device)
			kvpull_verbs_end_lose(end, KVPULL_EPEER,
					      "its device is gone");
	}
}

void kvpull_verbs_connect_devices_lost(struct kvpull_verbs_connect *connect,
				       const struct ibv_context *context,
				       const char *why)
{
	uint32_t at;

	for (at = 0; at < connect->shared->rail_count; at++)
		if (connect->shared->devices[at].context == context)
			kvpull_verbs_connect_device_lost(connect, at, why);
}
